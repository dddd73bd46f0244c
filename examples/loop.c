/*
 * Both nodes in one process, on a virtual clock: no network, no thread, libc alone. A start for tests of
 * an engine of one's own, and what a build without any other library can run (preset minimal).
 *
 *     loop [SCRIPT]     SCRIPT: faults, as include/halage/transport/fault.h describes them
 *
 * A decode node asks for ten requests; the prefill node computes each in one forward pass, layer by
 * layer, and its pages are compared with those that landed.
 */
#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/fault.h>
#include <halage/transport/loop.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS      4u
#define PAGE_TOKENS 16u
#define PAGE_COUNT  64u
#define REQUESTS    10u
#define TOKENS      65u /* of a prompt; the last one is not sent */
#define PAGES       4u  /* that the others fill */
#define PLACES      16u
#define TURNS_MAX   1000000u

enum {
    PREFILL,
    DECODE,
    NODES
};

struct node {
    struct hlg_pump *pump;
    struct hlg_fabric *fabric;
    uint8_t *memory;
    uint64_t bytes;
    struct hlg_notice notices[4 * REQUESTS];
    uint32_t notice_count;
    uint32_t answered;
};

struct world {
    struct hlg_loop *loop;
    struct hlg_fault *fault;
    struct node nodes[NODES];
    struct hlg_place places[PLACES];
    int place_count;
    uint32_t pages[REQUESTS][PAGES]; /* of the decode node, kept until the request is over */
    uint32_t ready;
    uint32_t ended;
};

/* Two planes (keys, values) of one head in each layer. */
static struct hlg_layout make_layout(void)
{
    return (struct hlg_layout){.tp = 1,
                               .stages = 1,
                               .pools = 1,
                               .layers = LAYERS,
                               .stage_limit = {LAYERS},
                               .rank_limit = 1,
                               .all_reduce = 1,
                               .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                               .group_count = 1,
                               .groups = {{.kind = HLG_GROUP_PAGED,
                                           .planes = 2,
                                           .heads = 1,
                                           .head_bytes = 128,
                                           .page_tokens = PAGE_TOKENS,
                                           .page_count = PAGE_COUNT,
                                           .layers = {(1u << LAYERS) - 1}}}};
}

/* The pump tells what happened; it is looked at when the pump is not running. */
static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;
    if (n->notice_count < sizeof n->notices / sizeof n->notices[0]) {
        n->notices[n->notice_count++] = *notice;
    }
}

static bool open_node(struct world *w, uint32_t index)
{
    struct node *n = &w->nodes[index];
    const struct hlg_layout layout = make_layout();
    struct hlg_limits limits;
    char error[256] = "";

    hlg_limits_default(&limits);
    limits.peers_max = 1;
    limits.requests_max = REQUESTS;
    limits.lanes_max = 1;
    limits.rails_max = 1;
    limits.slices_max = 64;
    w->place_count = hlg_places_linear(&layout, 0, w->places, PLACES, &n->bytes);
    n->memory = w->place_count > 0 ? calloc(n->bytes, 1) : NULL;
    if (n->memory == NULL ||
        hlg_fault_fabric(w->fault, index, hlg_loop_fabric(w->loop, index), &n->fabric) != 0) {
        return false;
    }
    const struct hlg_pump_region region = {.memory = HLG_MEM_HOST(n->memory, n->bytes)};
    struct hlg_pump_config config = {.role = index == PREFILL ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE,
                                     .fabric = n->fabric,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = w->places,
                                     .place_count = (uint32_t)w->place_count,
                                     .notice = take_notice,
                                     .context = n};
    if (index == PREFILL) {
        config.prefill = (struct hlg_prefill_config){
            .limits = limits, .layout = layout, .rails = 1, .node = 1, .incarnation = 1};
    } else {
        config.decode = (struct hlg_decode_config){
            .limits = limits, .layout = layout, .rails = 1, .node = 2, .incarnation = 1};
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        (void)fprintf(stderr, "loop: %s\n", error);
        return false;
    }
    return true;
}

static bool open_world(struct world *w, const char *script)
{
    struct hlg_loop_config loop;
    struct hlg_fault_config fault;
    struct hlg_channel *ends[NODES] = {NULL, NULL};
    uint32_t peer;
    char error[256] = "";

    hlg_loop_config_default(&loop);
    hlg_fault_config_default(&fault);
    if (hlg_loop_create(&loop, &w->loop) != 0 || hlg_fault_create(&fault, &w->fault) != 0 ||
        !open_node(w, PREFILL) || !open_node(w, DECODE)) {
        (void)fprintf(stderr, "loop: the nodes cannot be made\n");
        return false;
    }
    if (hlg_fault_script(w->fault, script, error, sizeof error) != 0) {
        (void)fprintf(stderr, "loop: %s\n", error);
        return false;
    }
    return hlg_loop_channel_pair(w->loop, DECODE, PREFILL, &ends[DECODE], &ends[PREFILL]) == 0 &&
           hlg_pump_channel(w->nodes[DECODE].pump, ends[DECODE], true, &peer) == 0 &&
           hlg_pump_channel(w->nodes[PREFILL].pump, ends[PREFILL], false, &peer) == 0;
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < NODES; i++) {
        hlg_pump_destroy(w->nodes[i].pump);
        free(w->nodes[i].memory);
    }
    hlg_fault_destroy(w->fault);
    hlg_loop_destroy(w->loop);
}

/* What the prefill node writes into layer `layer` of a page of keys or values. */
static uint8_t value_of(uint32_t request, uint32_t page, uint32_t place)
{
    return (uint8_t)(1 + request * 59 + page * 31 + place * 7);
}

static uint32_t source_page(uint32_t request, uint32_t page)
{
    return request * PAGES + page;
}

static uint8_t *page_at(const struct node *n, const struct hlg_place *place, uint32_t page)
{
    return n->memory + place->offset + page * place->stride;
}

static bool told(struct hlg_pump *pump, struct hlg_event event)
{
    return hlg_pump_event(pump, &event) == 0;
}

/* One forward pass: all tokens of a request, layer by layer. Its number is in the request's id. */
static bool compute(struct world *w, const struct hlg_notice *notice, uint32_t request)
{
    struct node *n = &w->nodes[PREFILL];
    uint32_t pages[PAGES];
    const uint32_t forward = request + 1;

    for (uint32_t i = 0; i < PAGES; i++) {
        pages[i] = source_page(request, i);
    }
    bool well = told(n->pump,
                     (struct hlg_event){.kind = HLG_EVENT_ADMIT,
                                        .admit = {.request = notice->request,
                                                  .groups = {{.count = PAGES, .pages = pages}}}}) &&
                told(n->pump, (struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                                 .chunk = {.request = notice->request,
                                                           .forward = forward,
                                                           .token_count = TOKENS - 1}});
    for (uint32_t layer = 0; layer < LAYERS && well; layer++) {
        for (int p = 0; p < w->place_count; p++) {
            for (uint32_t i = 0; i < PAGES && w->places[p].layer == layer; i++) {
                memset(page_at(n, &w->places[p], pages[i]), value_of(request, i, (uint32_t)p),
                       w->places[p].stride);
            }
        }
        /* In an engine the GPU raises a counter here, and the messenger polls it. */
        well = told(n->pump, (struct hlg_event){.kind = HLG_EVENT_LAYER,
                                                .layer = {.value = forward << 8 | (layer + 1)}});
    }
    return well &&
           told(n->pump, (struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = forward});
}

/* Ask for a request. Its pages lie apart, so that each is a write of its own. */
static bool submit(struct world *w, uint32_t peer, uint32_t request)
{
    const uint8_t id = (uint8_t)request;
    for (uint32_t i = 0; i < PAGES; i++) {
        w->pages[request][i] = i * REQUESTS + request;
    }
    return told(
        w->nodes[DECODE].pump,
        (struct hlg_event){.kind = HLG_EVENT_SUBMIT,
                           .submit = {.source_count = 1,
                                      .peers = {peer},
                                      .tokens = TOKENS,
                                      .ttl_ns = 10 * HLG_NS_PER_S,
                                      .id_bytes = 1,
                                      .id = &id,
                                      .groups = {{.count = PAGES, .pages = w->pages[request]}}}});
}

/* Whether each byte of a request that is READY is the one that the prefill node computed. */
static bool landed(const struct world *w, uint32_t request)
{
    bool equal = true;
    for (int p = 0; p < w->place_count; p++) {
        for (uint32_t i = 0; i < PAGES; i++) {
            const struct hlg_place *place = &w->places[p];
            equal = equal && memcmp(page_at(&w->nodes[PREFILL], place, source_page(request, i)),
                                    page_at(&w->nodes[DECODE], place, w->pages[request][i]),
                                    place->stride) == 0;
        }
    }
    return equal;
}

/* What an engine does about a notice. Returns whether all is well. */
static bool answer(struct world *w, const struct node *n, const struct hlg_notice *notice)
{
    const uint32_t request = notice->id[0];
    bool well = true;
    switch (notice->kind) {
    case HLG_NOTICE_PEER_UP:
        for (uint32_t i = 0; i < REQUESTS && n == &w->nodes[DECODE]; i++) {
            well = well && submit(w, notice->peer, i);
        }
        return well;
    case HLG_NOTICE_REQUESTED:
        return compute(w, notice, request);
    case HLG_NOTICE_READY:
        w->ready++;
        w->ended++;
        return landed(w, request) && told(n->pump, (struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                                                      .request = notice->request});
    case HLG_NOTICE_FAILED:
        w->ended++;
        return true;
    default:
        return true;
    }
}

/* Let both nodes work; when neither can, let time pass until something happens. False: all is still. */
static bool turn(struct world *w, bool *well)
{
    hlg_time next = hlg_loop_next_time(w->loop);
    int work = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        work += hlg_pump_step(n->pump);
        for (; n->answered < n->notice_count && *well; n->answered++, work++) {
            *well = answer(w, n, &n->notices[n->answered]);
        }
        const hlg_time due = hlg_pump_deadline(n->pump);
        next = due < next ? due : next;
    }
    const hlg_time due = hlg_fault_deadline(w->fault);
    next = due < next ? due : next;
    if (work == 0 && next != HLG_TIME_NEVER) {
        const hlg_time now = hlg_loop_now(w->loop);
        (void)hlg_loop_advance_to(w->loop, next > now ? next : now + 1);
    }
    return work != 0 || next != HLG_TIME_NEVER;
}

int main(int argc, char **argv)
{
    static struct world w;
    bool well = open_world(&w, argc > 1 ? argv[1] : "");
    if (well) {
        for (uint32_t i = 0; i < TURNS_MAX && w.ended < REQUESTS && well && turn(&w, &well); i++) {
        }
        (void)printf("%" PRIu32 " of %u requests ready%s, after %" PRIu64 " us of virtual time\n",
                     w.ready, REQUESTS, well ? " and equal" : ", and not all well",
                     hlg_loop_now(w.loop) / 1000);
    }
    close_world(&w);
    return well && w.ready == REQUESTS ? 0 : 1;
}
