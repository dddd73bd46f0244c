/*
 * Prefill nodes and three times as many decode nodes, each a pump over simgrid, with engines that
 * follow a script: a prefiller admits each request and computes them one after the other, a forward
 * each, whose layers tick at equal pauses; each decoder has so many requests open at a time, and asks
 * one prefiller after the other.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/simgrid.h>
#include <string.h>
#include <sys/mman.h>

#define OPEN_MAX     2u  /* requests of a decoder at a time */
#define SLOTS        16u /* of a prefiller's pages; nobody minds if two requests share one */
#define WAITING_MAX  (OPEN_MAX * DECODERS * PREFILLS_MAX)
#define PAGES_MAX    256u
#define STEPS_MAX    1000u
#define LATENT_BYTES 1152u /* of a token and layer: 576 numbers of 16 bits (DeepSeek-R1) */

struct node {
    struct cluster *cluster;
    struct hlg_pump *pump;
    uint32_t index;
    hlg_time deadline; /* of the machine or of the engine */
    uint32_t heap;     /* place in the heap of deadlines */
    /* decode */
    uint32_t open;
    uint32_t ups;
    uint32_t turn;       /* prefiller asked next, as a peer */
    bool free[OPEN_MAX]; /* slots of pages */
    hlg_handle handles[OPEN_MAX];
    hlg_handle ready[OPEN_MAX];
    uint32_t ready_count;
    /* prefill */
    hlg_handle waiting[WAITING_MAX];
    uint64_t waiting_head;
    uint64_t waiting_tail;
    uint64_t admitted;
    uint64_t sent;
    bool computing;
    uint32_t forward; /* number of the pass */
    uint32_t layer;   /* done in it */
    hlg_time tick;
};

struct cluster {
    const struct options *options;
    struct hlg_simgrid *sim;
    struct hlg_layout layout;
    void *memory;
    uint64_t memory_bytes;
    struct node nodes[NODES_MAX];
    uint32_t node_count;
    uint32_t heap[NODES_MAX]; /* nodes by deadline */
    uint32_t pages;           /* of a request */
    uint32_t numbers[OPEN_MAX][PAGES_MAX];
    uint32_t ups; /* decoders that are up with all prefillers */
    uint64_t submitted;
    uint64_t done;
    uint64_t sent;
};

static void set_layout(struct cluster *c)
{
    const uint32_t lanes = c->options->lanes;

    c->layout = (struct hlg_layout){
        .tp = lanes,
        .stages = 1,
        .pools = 1,
        .layers = LAYERS,
        .stage_limit = {LAYERS},
        .rank_limit = lanes,
        .all_reduce = 1,
        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
        .group_count = 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = LATENT_BYTES * (LANES_MAX / lanes),
                    .page_tokens = PAGE_TOKENS,
                    .page_count = SLOTS * c->pages,
                    .layers = {(1ull << LAYERS) - 1}}},
    };
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;
    struct cluster *c = n->cluster;

    switch ((enum hlg_notice_kind)notice->kind) {
    case HLG_NOTICE_PEER_UP:
        n->ups++;
        c->ups += n->index >= c->options->prefills && n->ups == c->options->prefills;
        return;
    case HLG_NOTICE_REQUESTED:
        n->waiting[n->waiting_tail++ % WAITING_MAX] = notice->request;
        HLG_ASSERT(n->waiting_tail - n->waiting_head <= WAITING_MAX);
        return;
    case HLG_NOTICE_SENT:
        n->sent++;
        c->sent++;
        return;
    case HLG_NOTICE_READY:
        HLG_ASSERT(n->ready_count < OPEN_MAX);
        n->ready[n->ready_count++] = notice->request;
        return;
    case HLG_NOTICE_ACCEPTED:
        return;
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
    case HLG_NOTICE_STOPPING:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        break;
    }
    hlg_unreachable(); /* nothing fails here */
}

static void set_limits(struct hlg_limits *limits, const struct options *options, bool prefill)
{
    hlg_limits_default(limits);
    limits->peers_max = prefill ? options->prefills * DECODERS : options->prefills;
    limits->requests_max = prefill ? 2 * OPEN_MAX * limits->peers_max : 4 * OPEN_MAX;
    limits->lanes_max = options->lanes;
    limits->rails_max = 1;
    limits->slices_max = options->lanes * options->lanes;
    limits->chunks_max = 64;
    limits->ops_max = 4096;
    limits->blocks_max = 2 * limits->requests_max;
    limits->window_pieces = 65536;
    limits->turn_bytes = UINT64_MAX;
    limits->message_bytes_max = 1u << 16;
}

static void open_node(struct cluster *c, uint32_t index)
{
    struct node *n = &c->nodes[index];
    struct hlg_pump_region regions[LANES_MAX];
    struct hlg_place places[LANES_MAX * LAYERS];
    const bool prefill = index < c->options->prefills;
    struct hlg_pump_config config = {.role = prefill ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE,
                                     .fabric = hlg_simgrid_fabric(c->sim, index),
                                     .regions = regions,
                                     .places = places,
                                     .notice = take_notice,
                                     .context = n};
    struct hlg_limits limits;
    char error[256];

    set_limits(&limits, c->options, prefill);
    for (uint32_t lane = 0; lane < c->options->lanes; lane++) {
        const int count = hlg_places_linear(&c->layout, lane, places + config.place_count, LAYERS,
                                            &c->memory_bytes);

        HLG_ASSERT(count == (int)LAYERS);
        config.place_count += (uint32_t)count;
        regions[config.region_count++] = (struct hlg_pump_region){
            .lane = lane, .memory = HLG_MEM_HOST(c->memory, c->memory_bytes)};
    }
    if (prefill) {
        config.prefill = (struct hlg_prefill_config){
            .limits = limits, .layout = c->layout, .rails = 1, .node = index + 1, .incarnation = 1};
    } else {
        config.decode = (struct hlg_decode_config){
            .limits = limits, .layout = c->layout, .rails = 1, .node = index + 1, .incarnation = 1};
    }
    *n = (struct node){
        .cluster = c, .index = index, .heap = index, .turn = index % c->options->prefills};
    c->heap[index] = index;
    for (uint32_t slot = 0; slot < OPEN_MAX; slot++) {
        n->free[slot] = true;
    }
    HLG_ASSERT(hlg_pump_create(&config, &n->pump, error, sizeof error) == 0);
}

static void open_simulation(struct cluster *c)
{
    struct hlg_simgrid_config config;
    char error[256];

    hlg_simgrid_config_default(&config);
    config.nodes = c->node_count;
    config.lanes = c->options->lanes;
    config.nic_bandwidth = NIC_BANDWIDTH * LANES_MAX / c->options->lanes;
    config.latency_ns = LATENCY_NS;
    config.copy_bytes = false;
    config.engine_always = c->options->engine;
    config.domains_max = c->options->prefills * DECODERS;
    config.peers_max = LANES_MAX;
    config.regions_max = 1;
    config.writes_max = 64;
    config.peer_writes_max = 64;
    config.channels_max = c->options->prefills * c->options->prefills * DECODERS;
    config.message_bytes_max = 1u << 16;
    config.room_bytes = 1u << 16;
    config.pieces_max = 65536;
    config.peer_pieces_max = 65536;
    config.cq_depth = 65536;
    HLG_ASSERT(hlg_simgrid_create(&config, &c->sim, error, sizeof error) == 0);
}

static void join(struct cluster *c, uint32_t decoder)
{
    for (uint32_t prefill = 0; prefill < c->options->prefills; prefill++) {
        struct hlg_channel *a = NULL;
        struct hlg_channel *b = NULL;
        uint32_t peer = 0;

        HLG_ASSERT(hlg_simgrid_channel_pair(c->sim, decoder, prefill, &a, &b) == 0);
        HLG_ASSERT(hlg_pump_channel(c->nodes[decoder].pump, a, true, &peer) == 0);
        HLG_ASSERT(peer == prefill);
        HLG_ASSERT(hlg_pump_channel(c->nodes[prefill].pump, b, false, &peer) == 0);
    }
}

static void tell(struct node *n, struct hlg_event *event)
{
    HLG_ASSERT(hlg_pump_event(n->pump, event) == 0);
}

static void submit(struct cluster *c, struct node *n)
{
    uint32_t slot = 0;

    while (!n->free[slot]) {
        slot++;
    }
    tell(n, &(struct hlg_event){
                .kind = HLG_EVENT_SUBMIT,
                .submit = {.source_count = 1,
                           .peers = {n->turn},
                           .tokens = c->options->tokens,
                           .ttl_ns = HLG_TIME_NEVER / 4,
                           .groups = {{.count = c->pages, .pages = c->numbers[slot]}}}});
    n->handles[slot] = hlg_pump_submitted(n->pump);
    n->free[slot] = false;
    n->turn = (n->turn + 1) % c->options->prefills;
    n->open++;
    c->submitted++;
}

static bool decode_turn(struct cluster *c, struct node *n)
{
    bool work = false;

    for (uint32_t i = 0; i < n->ready_count; i++) {
        for (uint32_t slot = 0; slot < OPEN_MAX; slot++) {
            n->free[slot] = n->free[slot] || n->handles[slot] == n->ready[i];
        }
        tell(n, &(struct hlg_event){.kind = HLG_EVENT_RELEASE, .request = n->ready[i]});
        n->open--;
        c->done++;
        work = true;
    }
    n->ready_count = 0;
    while (c->ups == c->options->prefills * DECODERS && n->open < OPEN_MAX &&
           c->submitted < c->options->requests) {
        submit(c, n);
        work = true;
    }
    return work;
}

static void admit(struct cluster *c, struct node *n, hlg_handle request)
{
    uint32_t pages[PAGES_MAX];

    for (uint32_t page = 0; page < c->pages; page++) {
        pages[page] = (uint32_t)(n->admitted % SLOTS) * c->pages + page;
    }
    n->admitted++;
    tell(n, &(struct hlg_event){
                .kind = HLG_EVENT_ADMIT,
                .admit = {.request = request, .groups = {{.count = c->pages, .pages = pages}}}});
}

/* Prefillers differ a little, or all of them would do the same at the same time. */
static hlg_time pause_of(const struct node *n)
{
    return n->cluster->options->tick_ns + n->index * (n->cluster->options->tick_ns / 1009);
}

static void begin_forward(struct cluster *c, struct node *n)
{
    const hlg_handle request = n->waiting[n->waiting_head++ % WAITING_MAX];

    admit(c, n, request);
    n->computing = true;
    n->forward = n->forward % 0xffffffu + 1;
    n->layer = 0;
    n->tick = hlg_simgrid_now(c->sim) + pause_of(n);
    tell(n, &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                .chunk = {.request = request,
                                          .forward = n->forward,
                                          .token_count = c->options->tokens - 1}});
}

static bool prefill_turn(struct cluster *c, struct node *n)
{
    bool work = false;

    if (n->computing && hlg_simgrid_now(c->sim) >= n->tick) {
        n->layer++;
        n->tick += pause_of(n);
        tell(n, &(struct hlg_event){.kind = HLG_EVENT_LAYER,
                                    .layer = {.value = n->forward << 8 | n->layer}});
        work = true;
    }
    if (n->computing && n->layer == LAYERS) {
        n->computing = false;
        tell(n, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = n->forward});
    }
    if (!n->computing && n->waiting_head < n->waiting_tail) {
        begin_forward(c, n);
        work = true;
    }
    return work;
}

/* ---- deadlines, as a heap ---- */

static bool is_before(const struct cluster *c, uint32_t a, uint32_t b)
{
    const hlg_time left = c->nodes[a].deadline;
    const hlg_time right = c->nodes[b].deadline;

    return left != right ? left < right : a < b;
}

static void put(struct cluster *c, uint32_t place, uint32_t node)
{
    c->heap[place] = node;
    c->nodes[node].heap = place;
}

static void set_deadline(struct cluster *c, struct node *n, hlg_time deadline)
{
    uint32_t place = n->heap;

    n->deadline = deadline;
    while (place > 0 && is_before(c, n->index, c->heap[(place - 1) / 2])) {
        put(c, place, c->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (uint32_t child = 2 * place + 1; child < c->node_count; child = 2 * place + 1) {
        if (child + 1 < c->node_count && is_before(c, c->heap[child + 1], c->heap[child])) {
            child++;
        }
        if (!is_before(c, c->heap[child], n->index)) {
            break;
        }
        put(c, place, c->heap[child]);
        place = child;
    }
    put(c, place, n->index);
}

static void step(struct cluster *c, struct node *n)
{
    uint32_t steps = 0;
    bool more;

    do {
        more = hlg_pump_step(n->pump) > 0;
        more = (n->index < c->options->prefills ? prefill_turn(c, n) : decode_turn(c, n)) || more;
        HLG_ASSERT(++steps < STEPS_MAX);
    } while (more);
    set_deadline(c, n,
                 hlg_min_time(hlg_pump_deadline(n->pump), n->computing ? n->tick : HLG_TIME_NEVER));
}

static void turn(struct cluster *c)
{
    const hlg_time now = hlg_simgrid_now(c->sim);
    const hlg_time when = c->nodes[c->heap[0]].deadline;
    uint32_t node;

    if (!hlg_simgrid_run(c->sim, when > now ? when : now)) {
        while (c->nodes[c->heap[0]].deadline <= hlg_simgrid_now(c->sim)) {
            step(c, &c->nodes[c->heap[0]]);
        }
    }
    while (hlg_simgrid_ready(c->sim, &node)) {
        step(c, &c->nodes[node]);
    }
}

static void close_all(struct cluster *c, struct outcome *outcome)
{
    struct hlg_pump_stats stats;
    uint64_t pieces = 0;

    for (uint32_t i = 0; i < c->options->prefills; i++) {
        hlg_pump_stats(c->nodes[i].pump, &stats);
        HLG_ASSERT(stats.pieces_failed == 0 && stats.pieces_done == stats.pieces_posted);
        pieces += stats.pieces_done;
    }
    HLG_ASSERT(pieces == c->done * c->pages * LAYERS * c->options->lanes);
    outcome->flows = c->done * LAYERS * c->options->lanes;
    outcome->ended = hlg_simgrid_now(c->sim);
    outcome->hash = hlg_simgrid_trace_hash(c->sim);
    for (uint32_t i = 0; i < c->node_count; i++) {
        hlg_pump_destroy(c->nodes[i].pump);
    }
    hlg_simgrid_destroy(c->sim);
    HLG_ASSERT(munmap(c->memory, c->memory_bytes) == 0);
}

void cluster_run(const struct options *options, struct tape *tape, struct outcome *outcome)
{
    static struct cluster c;

    memset(&c, 0, sizeof c);
    c.options = options;
    c.node_count = options_nodes(options);
    c.pages = hlg_div_ceil(options->tokens - 1, PAGE_TOKENS);
    HLG_ASSERT(c.pages <= PAGES_MAX);
    for (uint32_t i = 0; i < OPEN_MAX * c.pages; i++) {
        c.numbers[i / c.pages][i % c.pages] = i;
    }
    set_layout(&c);
    HLG_ASSERT(hlg_places_linear(&c.layout, 0, NULL, 0, &c.memory_bytes) == (int)LAYERS);
    /* Never touched, and shared by all nodes and lanes: addresses are all that is wanted. */
    c.memory =
        mmap(NULL, c.memory_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    HLG_ASSERT(c.memory != MAP_FAILED);
    open_simulation(&c);
    for (uint32_t i = 0; i < c.node_count; i++) {
        if (tape != NULL) {
            tape_attach(tape, hlg_simgrid_fabric(c.sim, i), i * options->lanes);
        }
        open_node(&c, i);
    }
    for (uint32_t i = options->prefills; i < c.node_count; i++) {
        join(&c, i);
    }
    while (c.ups < options->prefills * DECODERS) {
        turn(&c);
    }
    outcome->setup = processor_seconds();
    for (uint32_t i = options->prefills; i < c.node_count; i++) {
        step(&c, &c.nodes[i]);
    }
    while (c.done < options->requests || c.sent < options->requests) {
        turn(&c);
    }
    close_all(&c, outcome);
}
