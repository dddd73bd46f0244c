/*
 * Any text as a fault script: all of its rules are taken, or it is refused with one sentence that names a
 * line and none is. What was taken strikes while a fabric's clock goes on, and ends when all is calm.
 */
#include "fuzz.h"

#include <halage/transport/fault.h>
#include <halage/transport/loop.h>

#define TEXT_MAX  4096u
#define NODES     3u
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

/* Lets faults strike, for a while or until nothing is due. */
static void pass_time(struct hlg_loop *loop, struct hlg_fabric **fabrics,
                      const struct hlg_fault *fault)
{
    for (uint32_t i = 0; i < 16; i++) {
        hlg_time due = hlg_fault_deadline(fault);
        if (due == HLG_TIME_NEVER || due > hlg_loop_now(loop) + 3600 * HLG_NS_PER_S) {
            return;
        }
        (void)hlg_loop_advance_to(loop, due > hlg_loop_now(loop) ? due : hlg_loop_now(loop));
        for (uint32_t node = 0; node < NODES; node++) {
            (void)fabrics[node]->now(fabrics[node]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hlg_fault_config config;
    struct hlg_loop_config network;
    struct hlg_fault *fault = NULL;
    struct hlg_loop *loop = NULL;
    struct hlg_fabric *fabrics[NODES];
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
    hlg_loop_config_default(&network);
    network.nodes = NODES;
    HLG_ASSERT(hlg_fault_create(&config, &fault) == 0 && hlg_loop_create(&network, &loop) == 0);
    for (uint32_t node = 0; node < NODES; node++) {
        HLG_ASSERT(hlg_fault_fabric(fault, node, hlg_loop_fabric(loop, node), &fabrics[node]) == 0);
    }
    uint32_t room = data[0] >= 240 ? data[0] % 16u : sizeof error;
    int result = hlg_fault_script(fault, text, error, room);
    HLG_ASSERT(result == 0 || result == -HLG_EINVAL || result == -HLG_ELIMIT);
    expect_sentence(result, error, room);
    HLG_ASSERT(hlg_fault_check(fault) == 0);
    if (result == 0) {
        HLG_ASSERT(count_rules(text) <= RULES_MAX);
        pass_time(loop, fabrics, fault);
        HLG_ASSERT(hlg_fault_check(fault) == 0);
        hlg_fault_calm(fault);
        HLG_ASSERT(hlg_fault_deadline(fault) == HLG_TIME_NEVER);
    }
    HLG_ASSERT(count_room(fault) == RULES_MAX);
    hlg_fault_destroy(fault);
    hlg_loop_destroy(loop);
    return 0;
}
