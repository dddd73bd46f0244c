/*
 * Any text as a fault script: all of its rules are taken, or it is refused with one sentence that names a
 * line and none is. What was taken strikes while nodes write to each other. When all is calm every piece that
 * was taken has come to its end, but for those of nodes that were killed.
 */
#include "../unit/fault_net.h"
#include "fuzz.h"

#define TEXT_MAX  4096u
#define NODES     NET_NODES
#define OPS       16u
#define RULES_MAX 8u

/* Lines with a word before any `#`: each is a rule, or wrong. */
static uint32_t count_rules(const char *text)
{
    uint32_t rules = 0;
    bool word = false;
    bool comment = false;

    for (const char *at = text;; at++) {
        if (*at == '\n' || *at == '\0') {
            rules += word;
            word = false;
            comment = false;
        } else if (*at == '#') {
            comment = true;
        } else if (!comment && *at != ' ' && *at != '\t' && *at != '\r') {
            word = true;
        }
        if (*at == '\0') {
            return rules;
        }
    }
}

/* How many rules still fit. */
static uint32_t count_room(struct hlg_fault *fault)
{
    const struct hlg_fault_rule rule = {.kind = HLG_FAULT_DELAY,
                                        .node = HLG_FAULT_ANY,
                                        .peer = HLG_FAULT_ANY,
                                        .lane = HLG_FAULT_ANY,
                                        .rail = HLG_FAULT_ANY,
                                        .nth = 1000,
                                        .span = 1,
                                        .count = 1};
    uint32_t room = 0;

    while (hlg_fault_add(fault, &rule, NULL, 0) >= 0) {
        room++;
        HLG_ASSERT(room <= RULES_MAX);
    }
    return room;
}

static void expect_sentence(int result, const char *error, uint32_t bytes)
{
    if (result >= 0 || bytes == 0) {
        return;
    }
    HLG_ASSERT(memchr(error, '\0', bytes) != NULL && strchr(error, '\n') == NULL);
    HLG_ASSERT(bytes < 16 || strncmp(error, "line ", 5) == 0 || result == -HLG_ELIMIT);
    for (const char *at = error; *at != '\0'; at++) {
        HLG_ASSERT((unsigned char)*at >= ' ' && *at != 0x7f);
    }
}

/* Writes, and time in which faults strike them. */
static void work(struct net *n)
{
    for (hlg_op_id op = 0; op < OPS; op++) {
        const struct hlg_paged_write w =
            net_write(n, op % NODES, (op / 2 + 1) % NODES, op, 4 * op, 4 * op + 4);
        (void)net_post(n, op % NODES, &w);
        net_pass(n, (op % 4 == 3 ? 1000 : 2) * NET_US);
    }
}

/* All is calm: what was taken comes to its end. */
static void end(struct net *n, bool killed)
{
    hlg_fault_calm(n->fault);
    net_run_dry(n);
    HLG_ASSERT(hlg_fault_deadline(n->fault) == HLG_TIME_NEVER);
    for (hlg_op_id op = 0; op < OPS && !killed; op++) {
        const struct end *e = &n->ends[op % NODES];
        HLG_ASSERT(e->done[op] + e->failed[op] == e->taken[op]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct net net;
    struct hlg_fault_config config;
    char text[TEXT_MAX + 1];
    char error[256] = "";

    if (size == 0 || size > TEXT_MAX) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    hlg_fault_config_default(&config);
    config.nodes = NODES;
    config.rules_max = RULES_MAX;
    config.message_bytes_max = 256;
    net_make_of(&net, &config, "");
    uint32_t room = data[0] >= 240 ? data[0] % 16u : sizeof error;
    int result = hlg_fault_script(net.fault, text, error, room);
    HLG_ASSERT(result == 0 || result == -HLG_EINVAL || result == -HLG_ELIMIT);
    expect_sentence(result, error, room);
    HLG_ASSERT(hlg_fault_check(net.fault) == 0);
    if (result == 0) {
        HLG_ASSERT(count_rules(text) <= RULES_MAX);
        work(&net);
        end(&net, strstr(text, "kill") != NULL);
    }
    HLG_ASSERT(count_room(net.fault) == RULES_MAX);
    net_drop(&net);
    return 0;
}
