/*
 * Both nodes in one process, on a virtual clock: no network, no thread, no messenger, libc alone. A start for tests
 * of an engine of one's own, and what a build without any other library can run (preset minimal).
 *
 *     loop [SCRIPT]     SCRIPT: faults, as include/halage/transport/fault.h describes them
 *
 * A decode node asks for ten requests; the prefill node computes each in one forward pass, layer by
 * layer, and its pages are compared with those that landed.
 *
 *     cc loop.c $(pkg-config --cflags --libs halage-loop halage-fault)
 */
#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/fault.h>
#include <halage/transport/loop.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAYERS     4u
#define PAGE_BYTES 2048u /* of one layer: 16 tokens of 128 bytes */
#define REQUESTS   10u
#define PAGES      4u /* of a request */
#define PAGE_COUNT (REQUESTS * PAGES)
#define TOKENS     65u /* of a prompt; the last one is not sent */
#define TURNS_MAX  1000000u

enum {
    PREFILL,
    DECODE,
    NODES
};

struct node {
    struct hlg_pump *pump;
    uint8_t memory[LAYERS][PAGE_COUNT][PAGE_BYTES]; /* as hlg_places_linear() lays pages out */
    uint32_t pages[REQUESTS][PAGES]; /* the pump reads them while a request is open */
    struct hlg_notice notices[8 * REQUESTS];
    uint32_t notice_count;
    uint32_t answered;
};

static struct hlg_loop *loop;
static struct hlg_fault *fault;
static struct node nodes[NODES];
static uint32_t ready;
static uint32_t ended;

/* The pump tells what happened; it is looked at when the pump is not running. */
static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;
    if (n->notice_count < sizeof n->notices / sizeof n->notices[0]) {
        n->notices[n->notice_count++] = *notice;
    }
}

static bool open_node(struct node *n, enum hlg_role role, char *error, size_t error_bytes)
{
    const struct hlg_layout layout = {.tp = 1,
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
                                                  .page_count = PAGE_COUNT,
                                                  .layers = {(1u << LAYERS) - 1}}}};
    const struct hlg_pump_region region = {.memory = HLG_MEM_HOST(n->memory, sizeof n->memory)};
    const uint32_t index = role == HLG_ROLE_PREFILL ? PREFILL : DECODE;
    struct hlg_fabric *fabric = NULL;
    struct hlg_place places[LAYERS];
    struct hlg_limits limits;

    hlg_limits_default(&limits);
    for (uint32_t i = 0; i < PAGE_COUNT;
         i++) { /* a target's lie apart, so that each is a write of its own */
        n->pages[i / PAGES][i % PAGES] = index == PREFILL ? i : i % PAGES * REQUESTS + i / PAGES;
    }
    if (hlg_places_linear(&layout, 0, places, LAYERS, NULL) != (int)LAYERS ||
        hlg_fault_fabric(fault, index, hlg_loop_fabric(loop, index), &fabric) != 0) {
        return false;
    }
    struct hlg_pump_config config = {.role = role,
                                     .fabric = fabric,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = places,
                                     .place_count = LAYERS,
                                     .notice = take_notice,
                                     .context = n};
    if (index == PREFILL) {
        config.prefill = (struct hlg_prefill_config){
            .limits = limits, .layout = layout, .rails = 1, .node = 1, .incarnation = 1};
    } else {
        config.decode = (struct hlg_decode_config){
            .limits = limits, .layout = layout, .rails = 1, .node = 2, .incarnation = 1};
    }
    return hlg_pump_create(&config, &n->pump, error, error_bytes) == 0;
}

/* Two nodes with a channel between them, over a fabric that the script spoils. */
static bool open_world(const char *script, char *error, size_t error_bytes)
{
    struct hlg_loop_config loop_config;
    struct hlg_fault_config fault_config;
    struct hlg_channel *ends[NODES] = {NULL, NULL};
    uint32_t peer;

    hlg_loop_config_default(&loop_config);
    hlg_fault_config_default(&fault_config);
    return hlg_loop_create(&loop_config, &loop) == 0 &&
           hlg_fault_create(&fault_config, &fault) == 0 &&
           hlg_fault_script(fault, script, error, error_bytes) == 0 &&
           open_node(&nodes[PREFILL], HLG_ROLE_PREFILL, error, error_bytes) &&
           open_node(&nodes[DECODE], HLG_ROLE_DECODE, error, error_bytes) &&
           hlg_loop_channel_pair(loop, DECODE, PREFILL, &ends[DECODE], &ends[PREFILL]) == 0 &&
           hlg_pump_channel(nodes[DECODE].pump, ends[DECODE], true, &peer) == 0 &&
           hlg_pump_channel(nodes[PREFILL].pump, ends[PREFILL], false, &peer) == 0;
}

static void close_world(void)
{
    hlg_pump_destroy(nodes[PREFILL].pump);
    hlg_pump_destroy(nodes[DECODE].pump);
    hlg_fault_destroy(fault);
    hlg_loop_destroy(loop);
}

static bool tell(struct node *n, struct hlg_event event)
{
    return hlg_pump_event(n->pump, &event) == 0;
}

/* One forward pass: all tokens of a request, layer by layer. Its number is in the request's id. */
static bool compute(struct node *n, hlg_handle handle, uint32_t request)
{
    const uint32_t forward = request + 1;
    bool well =
        tell(n, (struct hlg_event){.kind = HLG_EVENT_ADMIT,
                                   .admit = {.request = handle,
                                             .groups = {{.count = PAGES,
                                                         .pages = n->pages[request]}}}}) &&
        tell(n, (struct hlg_event){
                    .kind = HLG_EVENT_CHUNK,
                    .chunk = {.request = handle, .forward = forward, .token_count = TOKENS - 1}});
    for (uint32_t layer = 0; layer < LAYERS && well; layer++) {
        for (uint32_t i = 0; i < PAGES; i++) {
            memset(n->memory[layer][n->pages[request][i]],
                   (int)(1 + request * 59 + i * 31 + layer * 7), PAGE_BYTES);
        }
        /* In an engine the GPU raises a counter here, and the messenger polls it. */
        well = tell(n, (struct hlg_event){.kind = HLG_EVENT_LAYER,
                                          .layer = {.value = forward << 8 | (layer + 1)}});
    }
    return well && tell(n, (struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = forward});
}

static bool submit(struct node *n, uint32_t peer, uint32_t request)
{
    const uint8_t id = (uint8_t)request;
    return tell(n, (struct hlg_event){
                       .kind = HLG_EVENT_SUBMIT,
                       .submit = {.source_count = 1,
                                  .peers = {peer},
                                  .tokens = TOKENS,
                                  .ttl_ns = 10 * HLG_NS_PER_S,
                                  .id_bytes = 1,
                                  .id = &id,
                                  .groups = {{.count = PAGES, .pages = n->pages[request]}}}});
}

/* Whether each byte of a request that is READY is the one that the prefill node computed. */
static bool landed(uint32_t request)
{
    const struct node *const from = &nodes[PREFILL];
    const struct node *const to = &nodes[DECODE];
    bool equal = true;
    for (uint32_t i = 0; i < LAYERS * PAGES; i++) {
        equal =
            equal && memcmp(from->memory[i / PAGES][from->pages[request][i % PAGES]],
                            to->memory[i / PAGES][to->pages[request][i % PAGES]], PAGE_BYTES) == 0;
    }
    return equal;
}

/* What an engine does about a notice. Returns whether all is well. */
static bool answer(struct node *n, const struct hlg_notice *notice)
{
    const uint32_t request = notice->id[0];
    bool well = true;
    switch (notice->kind) {
    case HLG_NOTICE_PEER_UP:
        for (uint32_t i = 0; i < REQUESTS && n == &nodes[DECODE]; i++) {
            well = well && submit(n, notice->peer, i);
        }
        return well;
    case HLG_NOTICE_REQUESTED:
        return compute(n, notice->request, request);
    case HLG_NOTICE_READY:
        ready++;
        ended++;
        return landed(request) &&
               tell(n, (struct hlg_event){.kind = HLG_EVENT_RELEASE, .request = notice->request});
    case HLG_NOTICE_FAILED:
        ended++;
        return true;
    default:
        return true;
    }
}

/* Let both nodes work; when neither can, let time pass until something happens. False: all is still. */
static bool turn(bool *well)
{
    hlg_time next = HLG_TIME_NEVER;
    int work = 0;
    for (struct node *n = nodes; n < nodes + NODES; n++) {
        work += hlg_pump_step(n->pump);
        for (; n->answered < n->notice_count && *well; n->answered++, work++) {
            *well = answer(n, &n->notices[n->answered]);
        }
        next = hlg_min_time(next, hlg_pump_deadline(n->pump));
    }
    next = hlg_min_time(next, hlg_min_time(hlg_loop_next_time(loop), hlg_fault_deadline(fault)));
    if (work == 0 && next != HLG_TIME_NEVER) {
        const hlg_time now = hlg_loop_now(loop);
        (void)hlg_loop_advance_to(loop, next > now ? next : now + 1);
    }
    return work != 0 || next != HLG_TIME_NEVER;
}

int main(int argc, char **argv)
{
    char error[256] = "out of memory";
    bool well = open_world(argc > 1 ? argv[1] : "", error, sizeof error);
    if (!well) {
        (void)fprintf(stderr, "loop: %s\n", error);
        close_world();
        return 1;
    }
    for (uint32_t i = 0; i < TURNS_MAX && ended < REQUESTS && well && turn(&well); i++) {
    }
    (void)printf("%" PRIu32 " of %u requests ready%s, after %" PRIu64 " us of virtual time\n",
                 ready, REQUESTS, well ? " and equal" : ", and not all well",
                 hlg_loop_now(loop) / 1000);
    close_world();
    return well && ready == REQUESTS ? 0 : 1;
}
