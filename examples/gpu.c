/*
 * Pages in memory of a GPU, and a layer counter that the GPU's stream moves: what differs from pair.c, which read
 * first. Both nodes are in this one process, each a messenger.
 *
 * No CUDA Toolkit is needed: copies to the GPU stand for an engine's kernels, and NULL, the legacy stream,
 * for its stream. With CUDA graphs capture the ticks, and stamp before each launch (halage/counter.h).
 * Exits 77 where there is no GPU.
 */
#include <halage/counter.h>
#include <halage/messenger.h>
#include <halage/transport/ofi.h>
#include <halage/transport/staged.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS     4u
#define PAGE_BYTES 2048u /* of one layer: 16 tokens of 128 bytes */
#define PAGES      5u
#define TOKENS     81u /* of which the last is not sent */
#define WAIT_MS    10000

struct node {
    struct hlg_fabric *fabric;
    struct hlg_staged *staged;
    struct hlg_memory *memory;
    struct hlg_messenger *messenger;
};

static char error[512];

static void check(bool good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "gpu: %s%s%s\n", what, error[0] != 0 ? ": " : "", error);
        exit(1);
    }
}

/* A node whose pages lie in GPU 0. `counter`: of a prefill node; NULL: a decode node. */
static void open_node(struct node *n, const struct hlg_counter *counter)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = 0};
    const struct hlg_ofi_config ofi = {.provider = "auto"};
    struct hlg_messenger_config config;
    uint64_t bytes = 0;

    hlg_messenger_config_default(&config);
    config.role = counter != NULL ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE;
    config.listen = counter != NULL ? "127.0.0.1:0" : NULL;
    config.layout = (struct hlg_layout){.tp = 1,
                                        .stages = 1,
                                        .pools = 1,
                                        .layers = LAYERS,
                                        .stage_limit = {LAYERS},
                                        .rank_limit = 1,
                                        .all_reduce = 1,
                                        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                                        .group_count = 1,
                                        .groups = {{.kind = HLG_GROUP_PAGED,
                                                    .planes = 1,
                                                    .heads = 1,
                                                    .head_bytes = 128,
                                                    .page_tokens = 16,
                                                    .page_count = 2 * PAGES,
                                                    .layers = {(1u << LAYERS) - 1}}}};
    check(hlg_places_linear(&config.layout, 0, NULL, 0, &bytes) > 0, "layout");
    check(hlg_memory_create(&site, bytes, &n->memory, error, sizeof error) == 0, "memory");
    check(hlg_ofi_open(&ofi, &n->fabric, error, sizeof error) == 0, "fabric");
    /* Works with every provider, by way of host memory. Where the NIC reaches the GPU, leave it out and set
     * ofi.device_memory: see docs/memory.md. */
    const struct hlg_staged_config staged = {.below = n->fabric, .target = counter == NULL};
    check(hlg_staged_create(&staged, &n->staged, error, sizeof error) == 0, "staged path");
    config.fabric = hlg_staged_fabric(n->staged);
    check(hlg_messenger_create(&config, &n->messenger, error, sizeof error) == 0, "messenger");
    const struct hlg_mem_region region = hlg_memory_region(n->memory);
    const bool good = hlg_messenger_region_add(n->messenger, 0, &region) >= 0 &&
                      hlg_messenger_places_linear(n->messenger) == 0 &&
                      (counter == NULL || hlg_messenger_counter_watch(
                                              n->messenger, 0, hlg_counter_word(counter)) == 0) &&
                      hlg_messenger_start(n->messenger) == 0;
    (void)snprintf(error, sizeof error, "%s", hlg_messenger_error(n->messenger));
    check(good, "start");
}

static void close_node(struct node *n)
{
    (void)hlg_messenger_destroy(n->messenger);
    hlg_staged_destroy(n->staged);
    hlg_ofi_close(n->fabric);
    hlg_memory_release(n->memory);
}

/* Take reports until one of this kind comes. */
static struct hlg_report wait_for(struct node *n, uint32_t kind)
{
    struct hlg_report report = {0};

    while (report.kind != kind) {
        struct pollfd fd = {.fd = hlg_messenger_fd(n->messenger), .events = POLLIN};
        if (hlg_messenger_poll(n->messenger, &report, sizeof report, 1) == 0) {
            check(poll(&fd, 1, WAIT_MS) > 0, "no report came in time");
        } else if (report.kind == HLG_NOTICE_FAILED || report.kind == HLG_NOTICE_PEER_REFUSED ||
                   report.kind == HLG_REPORT_REFUSED) {
            (void)snprintf(error, sizeof error, "%s", report.text);
            check(false, "a request failed");
        }
    }
    return report;
}

/* Pages of a layer follow one another, and layers too (hlg_places_linear()). */
static uint64_t page_at(uint32_t layer, uint32_t page)
{
    return ((uint64_t)layer * 2 * PAGES + page) * PAGE_BYTES;
}

/* One forward pass of forward number `forward`, of one request. */
static void prefill(struct node *n, hlg_ticket ticket, struct hlg_counter *counter,
                    uint32_t forward)
{
    static const uint32_t pages[PAGES] = {0, 1, 2, 3, 4};
    const struct hlg_admit admit = {.size = sizeof admit,
                                    .groups = {{.count = PAGES, .pages = pages}}};
    uint8_t computed[PAGE_BYTES];

    check(hlg_messenger_admit(n->messenger, ticket, &admit) == 0 &&
              hlg_messenger_chunk(n->messenger, ticket, forward, 0, TOKENS - 1) == 0,
          "admit");
    check(hlg_counter_stamp(counter, NULL, forward, error, sizeof error) == 0, "stamp");
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < PAGES; i++) {
            memset(computed, (int)(16 * (layer + 1) + i), sizeof computed);
            check(hlg_memory_write(n->memory, page_at(layer, pages[i]), computed,
                                   sizeof computed) == 0,
                  "compute");
        }
        /* When the stream comes to it the layer's pages go, while the next layer is computed. */
        check(hlg_counter_tick(counter, NULL, layer + 1, error, sizeof error) == 0, "tick");
    }
    check(hlg_counter_tick(counter, NULL, LAYERS + 1, error, sizeof error) == 0, "tick");
}

static bool landed(const struct node *n, const uint32_t *pages)
{
    uint8_t computed[PAGE_BYTES];
    uint8_t got[PAGE_BYTES];
    bool equal = true;

    for (uint32_t i = 0; i < LAYERS * PAGES; i++) {
        memset(computed, (int)(16 * (i / PAGES + 1) + i % PAGES), sizeof computed);
        equal = equal &&
                hlg_memory_read(n->memory, page_at(i / PAGES, pages[i % PAGES]), got, sizeof got) ==
                    0 &&
                memcmp(got, computed, sizeof got) == 0;
    }
    return equal;
}

int main(void)
{
    static const uint32_t pages[PAGES] = {9, 3, 7, 0, 8};
    const struct hlg_counter_config config = {.device = 0, .way = HLG_COUNTER_KERNEL};
    struct hlg_counter *counter = NULL;
    struct node source = {0};
    struct node target = {0};
    char address[32];

    if (hlg_memory_devices(error, sizeof error) < 0) {
        (void)printf("gpu: %s\n", error);
        return 77;
    }
    check(hlg_counter_create(&config, &counter, error, sizeof error) == 0, "counter");
    open_node(&source, counter);
    open_node(&target, NULL);
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", hlg_messenger_port(source.messenger));
    (void)hlg_messenger_connect(target.messenger, address);

    struct hlg_submit submit = {.size = sizeof submit,
                                .source_count = 1,
                                .peers = {wait_for(&target, HLG_NOTICE_PEER_UP).peer},
                                .tokens = TOKENS,
                                .id_bytes = 5,
                                .id = "first",
                                .groups = {{.count = PAGES, .pages = pages}}};
    hlg_ticket asked = 0;
    check(hlg_messenger_submit(target.messenger, &submit, &asked) == 0, "submit");
    const hlg_ticket given = wait_for(&source, HLG_NOTICE_REQUESTED).ticket;
    prefill(&source, given, counter, 1 /* of the passes */);
    const struct hlg_report ready = wait_for(&target, HLG_NOTICE_READY);
    const bool good = landed(&target, pages);
    (void)hlg_messenger_release(target.messenger, asked);
    (void)wait_for(&source, HLG_NOTICE_SENT); /* its source pages are free again */
    (void)hlg_messenger_release(source.messenger, given);
    /* Of each pass, once the stream is past it: whatever the counter shows, all is computed. */
    (void)hlg_messenger_forward_end(source.messenger, 1);
    (void)printf("%s %llu bytes in %llu pieces, from GPU to GPU\n", good ? "ready" : "wrong",
                 (unsigned long long)ready.bytes, (unsigned long long)ready.pieces_counted);

    close_node(&target);
    close_node(&source);
    hlg_counter_release(counter);
    return good ? 0 : 1;
}
