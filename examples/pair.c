/*
 * The smallest engines that there can be: one process prefills, another decodes. The "cache" of a
 * token is its number, layer by layer, so that the decoder can see whether it got the right one.
 *
 * Read prefill() and decode() first: they are the calls that an engine makes, in order.
 *
 * With an argument it is a test: the argument is a script of faults (halage/transport/fault.h) which
 * both fabrics suffer, and the cache has to come through whole all the same.
 */
#define _GNU_SOURCE /* kill */

#include <halage/messenger.h>
#include <halage/transport/fault.h>
#include <halage/transport/ofi.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAYERS      4u
#define PAGE_TOKENS 16u
#define PAGES       32u
#define TOKENS      100u
#define PLACES_MAX  (LAYERS + 1)

static const char *script; /* NULL: no faults */
static struct hlg_fault *fault;
static struct hlg_fabric *fabric;
static struct hlg_layout layout;
static struct hlg_place places[PLACES_MAX];
static uint8_t *memory;
static _Atomic uint32_t counter; /* an engine's kernels would stamp it on the device */

/* The fabric as the script spoils it: this process is node 0 or 1 of a decorator of its own. */
static struct hlg_fabric *spoil(enum hlg_role role)
{
    struct hlg_fault_config config;
    struct hlg_fabric *spoilt = NULL;
    char error[256] = "";

    hlg_fault_config_default(&config);
    if (hlg_fault_create(&config, &fault) != 0 ||
        hlg_fault_script(fault, script, error, sizeof error) != 0 ||
        hlg_fault_fabric(fault, role == HLG_ROLE_PREFILL ? 0 : 1, fabric, &spoilt) != 0) {
        (void)fprintf(stderr, "no faults: %s\n", error);
        exit(1);
    }
    return spoilt;
}

/* What both sides have alike: the shape of the cache, a messenger, and memory for the pages. */
static struct hlg_messenger *open_messenger(enum hlg_role role)
{
    struct hlg_ofi_config ofi = {.provider = "auto"};
    struct hlg_messenger_config config;
    struct hlg_messenger *m = NULL;
    uint64_t bytes = 0;
    char error[256] = "";

    layout = (struct hlg_layout){.tp = 1,
                                 .stages = 1,
                                 .pools = 1,
                                 .layers = LAYERS,
                                 .stage_limit = {LAYERS},
                                 .rank_limit = 1,
                                 .all_reduce = 1,
                                 .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                                 .group_count = 2,
                                 .groups = {{.kind = HLG_GROUP_PAGED,
                                             .planes = 1,
                                             .heads = 1,
                                             .head_bytes = sizeof(uint32_t),
                                             .page_tokens = PAGE_TOKENS,
                                             .page_count = PAGES,
                                             .layers = {(1u << LAYERS) - 1}},
                                            {.kind = HLG_GROUP_CONTEXT,
                                             .planes = 1,
                                             .heads = 1,
                                             .head_bytes = 64,
                                             .page_tokens = 1,
                                             .page_count = 4}}};
    hlg_messenger_config_default(&config);
    config.role = (uint32_t)role;
    config.layout = layout;
    config.listen = role == HLG_ROLE_PREFILL ? "127.0.0.1:0" : NULL;
    if (hlg_ofi_open(&ofi, &fabric, error, sizeof error) != 0) {
        (void)fprintf(stderr, "no fabric: %s\n", error);
        exit(1);
    }
    config.fabric = script != NULL ? spoil(role) : fabric;
    int failed = hlg_messenger_create(&config, &m, error, sizeof error);
    if (failed == 0) {
        (void)hlg_places_linear(&layout, 0, places, PLACES_MAX, &bytes);
        memory = calloc(1, bytes);
        failed = hlg_messenger_region_add(m, 0, &HLG_MEM_HOST(memory, bytes)) < 0 ||
                 hlg_messenger_places_linear(m) != 0 ||
                 (role == HLG_ROLE_PREFILL && hlg_messenger_counter_watch(m, 0, &counter) != 0) ||
                 hlg_messenger_start(m) != 0;
    }
    if (failed != 0) {
        (void)fprintf(stderr, "no messenger: %s\n", m == NULL ? error : hlg_messenger_error(m));
        exit(1);
    }
    return m;
}

static void close_messenger(struct hlg_messenger *m)
{
    (void)hlg_messenger_destroy(m);
    hlg_fault_destroy(fault);
    hlg_ofi_close(fabric);
    free(memory);
}

/* The next report, slept for. */
static struct hlg_report next_report(struct hlg_messenger *m)
{
    struct hlg_report report;

    while (hlg_messenger_poll(m, &report, sizeof report, 1) == 0) {
        struct pollfd fd = {.fd = hlg_messenger_fd(m), .events = POLLIN};
        (void)poll(&fd, 1, -1);
    }
    return report;
}

/* Where the cache of one token of one layer lies, given the request's pages. */
static uint8_t *cell(const uint32_t *pages, uint32_t layer, uint32_t token)
{
    return memory + places[layer].offset + pages[token / PAGE_TOKENS] * places[layer].stride +
           (uint64_t)(token % PAGE_TOKENS) * sizeof(uint32_t);
}

/* One request: admit it, announce the forward pass, and stamp each layer when it is computed. */
static void serve(struct hlg_messenger *m, hlg_ticket ticket)
{
    static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6};
    static const uint32_t context = 0;
    struct hlg_request request = {.size = sizeof request};
    struct hlg_admit admit = {
        .size = sizeof admit,
        .groups = {{.count = 7, .pages = pages}, {.count = 1, .pages = &context}}};
    const uint32_t forward = 1;

    (void)hlg_messenger_request(m, ticket, &request);
    (void)hlg_messenger_admit(m, ticket, &admit);
    (void)hlg_messenger_chunk(m, ticket, forward, 0, request.tokens - 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t token = 0; token < request.tokens - 1; token++) {
            uint32_t value = 1000 * layer + request.prompt[token];
            memcpy(cell(pages, layer, token), &value, sizeof value);
        }
        /* From here on the layer's pages are on their way, while the next is computed. */
        atomic_store_explicit(&counter, forward << 8 | (layer + 1), memory_order_release);
    }
    memcpy(memory + places[LAYERS].offset, "hidden states", 14);
    atomic_store_explicit(&counter, forward << 8 | (LAYERS + 1), memory_order_release);
    (void)hlg_messenger_forward_end(m, forward);
}

static int prefill(int port_pipe)
{
    struct hlg_messenger *m = open_messenger(HLG_ROLE_PREFILL);
    int port = hlg_messenger_port(m);

    if (write(port_pipe, &port, sizeof port) != (ssize_t)sizeof port) {
        return 1;
    }
    for (;;) {
        struct hlg_report report = next_report(m);
        if (report.kind == HLG_NOTICE_REQUESTED) {
            serve(m, report.ticket);
        } else if (report.kind == HLG_NOTICE_SENT || report.kind == HLG_NOTICE_FENCED ||
                   report.kind == HLG_NOTICE_POISONED) {
            /* and the source pages are free, but after POISONED: those are never used again */
            (void)hlg_messenger_release(m, report.ticket);
        } else if (report.kind == HLG_NOTICE_PEER_DOWN) {
            close_messenger(m);
            return 0;
        }
    }
}

/* Whether the cache that came is that of the prompt. */
static bool verify(const uint32_t *pages, const uint8_t *prompt)
{
    for (uint32_t i = 0; i < LAYERS * (TOKENS - 1); i++) {
        uint32_t value = 0;
        memcpy(&value, cell(pages, i % LAYERS, i / LAYERS), sizeof value);
        if (value != 1000 * (i % LAYERS) + prompt[i / LAYERS]) {
            return false;
        }
    }
    return strcmp((const char *)memory + places[LAYERS].offset, "hidden states") == 0;
}

static int decode(int port)
{
    static const uint32_t pages[] = {9, 3, 27, 14, 0, 31, 8};
    static const uint32_t context = 0;
    struct hlg_messenger *m = open_messenger(HLG_ROLE_DECODE);
    uint8_t prompt[TOKENS];
    char address[32];
    hlg_ticket ticket = 0;
    bool good = false;

    for (uint32_t i = 0; i < TOKENS; i++) {
        prompt[i] = (uint8_t)(7 * i);
    }
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", port);
    (void)hlg_messenger_connect(m, address);
    struct hlg_report report = next_report(m);
    if (report.kind == HLG_NOTICE_PEER_UP) {
        struct hlg_submit submit = {
            .size = sizeof submit,
            .source_count = 1,
            .peers = {report.peer},
            .tokens = TOKENS,
            .id_bytes = 5,
            .prompt_bytes = sizeof prompt,
            .ttl_ns = 10 * HLG_NS_PER_S,
            .id = "first",
            .prompt = prompt,
            .groups = {{.count = 7, .pages = pages}, {.count = 1, .pages = &context}}};
        (void)hlg_messenger_submit(m, &submit, &ticket);
        do {
            report = next_report(m);
        } while (report.kind != HLG_NOTICE_READY && report.kind != HLG_NOTICE_RETURNED);
        good = report.kind == HLG_NOTICE_READY && verify(pages, prompt);
        (void)hlg_messenger_release(m, ticket);
    }
    (void)printf("%s %llu bytes in %llu pieces%s%s\n", good ? "ready" : "failed",
                 (unsigned long long)report.bytes, (unsigned long long)report.pieces_counted,
                 report.text[0] != 0 ? ": " : "", report.text);
    close_messenger(m);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    int pipe_fds[2];
    int port = 0;
    int status = 1;

    script = argc > 1 ? argv[1] : NULL;
    if (pipe(pipe_fds) != 0) {
        return 1;
    }
    /* Messengers are made after the fork, never carried through one. */
    pid_t child = fork();
    if (child == 0) {
        exit(prefill(pipe_fds[1]));
    }
    (void)close(pipe_fds[1]);
    if (child < 0 || read(pipe_fds[0], &port, sizeof port) != (ssize_t)sizeof port) {
        return 1;
    }
    int result = decode(port);
    if (result != 0) {
        (void)kill(child, SIGTERM); /* it may wait for ever for who never came */
    }
    (void)waitpid(child, &status, 0);
    return result == 0 && status == 0 ? 0 : 1;
}
