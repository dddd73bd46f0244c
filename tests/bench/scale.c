#include "scale.h"

#include "../support/small_layout.h"

#include <halage/places.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_TOKENS   4u
#define TOKENS        (SCALE_PAGES * PAGE_TOKENS + 1) /* of a prompt */
#define MESSAGE_BYTES 16384u
#define PLACES_MAX    16u
#define IDLE_TURNS    2000000u /* 20 s: longer than any lease */

static void make_layout(struct hlg_layout *layout, uint32_t page_count)
{
    *layout = small_layout((struct small_layout){.layers = SCALE_LAYERS,
                                                 .planes = 1,
                                                 .heads = 1,
                                                 .head_bytes = 8,
                                                 .page_tokens = PAGE_TOKENS,
                                                 .pages = page_count});
}

static void make_limits(const struct scale_node *n, struct hlg_limits *limits)
{
    const struct scale_config *config = &n->world->config;

    hlg_limits_default(limits);
    limits->peers_max = n->role == HLG_ROLE_PREFILL ? config->peers_max : 2;
    limits->requests_max = n->requests_max;
    limits->sources_max = 1;
    limits->lanes_max = 1;
    limits->rails_max = 1;
    limits->slices_max = 16;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = MESSAGE_BYTES;
    limits->blocks_max = n->requests_max;
    limits->chunks_max = n->requests_max;
    limits->ops_max = n->requests_max * SCALE_LAYERS;
    limits->window_pieces = 1u << 20;
    limits->heartbeat_ns = HLG_NS_PER_MS * 100;
    limits->lease_ns = HLG_NS_PER_S;
    limits->fence_ns = HLG_NS_PER_S;
}

/* ---- Pages ---- */

static void take_pages(struct scale_node *n, struct scale_request *r)
{
    HLG_ASSERT(n->pages.count >= SCALE_PAGES && !r->open);
    for (uint32_t i = 0; i < SCALE_PAGES; i++) {
        r->pages[i] = n->pages.pages[--n->pages.count];
    }
    r->open = true;
    n->open++;
}

static void give_pages(struct scale_node *n, struct scale_request *r)
{
    HLG_ASSERT(r->open && n->open > 0);
    for (uint32_t i = 0; i < SCALE_PAGES; i++) {
        n->pages.pages[n->pages.count++] = r->pages[i];
    }
    r->open = false;
    n->open--;
}

static struct scale_request *request_of(struct scale_node *n, hlg_handle handle)
{
    const uint32_t index = (uint32_t)handle;

    HLG_ASSERT(index < n->requests_max);
    return &n->requests[index];
}

static int tell(struct scale_node *n, struct hlg_event event)
{
    return hlg_pump_event(n->pump, &event);
}

/* ---- Decode engine ---- */

/* A request may end while it is being submitted, since its session does: its handle is new to us then. */
static void end_request(struct scale_node *n, hlg_handle handle)
{
    struct scale_request *r = request_of(n, handle);

    if (!r->open) {
        HLG_ASSERT(n->submitting);
        n->submitting = false;
        *r = n->made;
    }
    give_pages(n, r);
    n->in_session++;
}

static void decode_notice(struct scale_node *n, const struct hlg_notice *notice)
{
    struct scale_world *w = n->world;

    const bool current = notice->peer == n->peer; /* and not of a session that was replaced */

    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->up = current;
        n->in_session = 0;
        w->sessions++;
    } else if (notice->kind == HLG_NOTICE_PEER_DOWN || notice->kind == HLG_NOTICE_PEER_REFUSED) {
        n->up = n->up && !current;
        n->joined = n->joined && !current;
    } else if (notice->kind == HLG_NOTICE_READY) {
        w->ready++;
        /* Released by the turn: a notice must not call the pump. */
        n->waiting[(n->wait_begin + n->wait_count++) % n->requests_max] = notice->request;
    } else if (notice->kind == HLG_NOTICE_FAILED) {
        w->failed++;
    } else if (notice->kind == HLG_NOTICE_RETURNED) {
        end_request(n, notice->request);
    } else {
        HLG_ASSERT(notice->kind == HLG_NOTICE_ACCEPTED); /* nothing is ever poisoned here */
    }
}

static void submit(struct scale_node *n)
{
    static const uint8_t prompt[8] = "prompt";
    uint32_t *list = n->lists[n->list];

    n->made = (struct scale_request){0};
    take_pages(n, &n->made);
    memcpy(list, n->made.pages, sizeof n->made.pages);
    const struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                                    .submit = {.source_count = 1,
                                               .peers = {n->peer},
                                               .tokens = TOKENS,
                                               .random = n->list,
                                               .ttl_ns = 60 * HLG_NS_PER_S,
                                               .id_bytes = sizeof prompt,
                                               .id = prompt,
                                               .prompt_bytes = sizeof prompt,
                                               .prompt = prompt,
                                               .groups = {{.count = SCALE_PAGES, .pages = list}}}};
    n->submitting = true;
    const int error = tell(n, event);
    HLG_ASSERT(error == 0);
    if (n->submitting) {
        *request_of(n, hlg_pump_submitted(n->pump)) = n->made;
        n->submitting = false;
    }
    n->list = (n->list + 1) % n->requests_max;
}

static int decode_turn(struct scale_node *n)
{
    int work = 0;

    for (; n->wait_count > 0; n->wait_count--, work++) {
        const hlg_handle handle = n->waiting[n->wait_begin];
        n->wait_begin = (n->wait_begin + 1) % n->requests_max;
        const int error = tell(n, (struct hlg_event){.kind = HLG_EVENT_RELEASE, .request = handle});
        HLG_ASSERT(error == 0);
        end_request(n, handle);
    }
    for (; n->up && !n->world->stop && n->open < n->world->config.in_flight; work++) {
        submit(n);
    }
    return work;
}

/* ---- Prefill engine ---- */

static void prefill_notice(struct scale_node *n, const struct hlg_notice *notice)
{
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        HLG_ASSERT(n->wait_count < n->requests_max);
        n->waiting[(n->wait_begin + n->wait_count++) % n->requests_max] = notice->request;
        take_pages(n, request_of(n, notice->request));
    } else if (notice->kind == HLG_NOTICE_SENT || notice->kind == HLG_NOTICE_FENCED) {
        n->world->sent += notice->kind == HLG_NOTICE_SENT;
        give_pages(n, request_of(n, notice->request));
    } else if (notice->kind == HLG_NOTICE_STOPPING) {
        n->world->stopped++;
    }
}

/* Takes the oldest requests into a forward. Those that ended meanwhile are refused, which is no matter. */
static void begin_forward(struct scale_node *n)
{
    n->forward = n->forward % 0xffffffu + 1;
    n->layer = 0;
    for (uint32_t taken = 0; taken < SCALE_BATCH && n->wait_count > 0; n->wait_count--) {
        const hlg_handle handle = n->waiting[n->wait_begin];
        const struct scale_request *r = request_of(n, handle);
        n->wait_begin = (n->wait_begin + 1) % n->requests_max;
        const struct hlg_event admit = {
            .kind = HLG_EVENT_ADMIT,
            .admit = {.request = handle, .groups = {{.count = SCALE_PAGES, .pages = r->pages}}}};
        const struct hlg_event chunk = {
            .kind = HLG_EVENT_CHUNK,
            .chunk = {.request = handle, .forward = n->forward, .token_count = TOKENS - 1}};
        if (tell(n, admit) == 0 && tell(n, chunk) == 0) {
            taken++;
            n->running = true;
        }
    }
}

static int prefill_turn(struct scale_node *n)
{
    if (!n->running) {
        const uint32_t before = n->wait_count;
        begin_forward(n);
        return n->running || before != n->wait_count;
    }
    n->layer++;
    struct hlg_event event = {.kind = HLG_EVENT_LAYER,
                              .layer = {.value = n->forward << 8 | n->layer}};
    if (n->layer > SCALE_LAYERS) {
        event = (struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = n->forward};
        n->running = false;
    }
    (void)tell(n, event); /* -HLG_ESTATE: all its requests ended before */
    return 1;
}

/* ---- Nodes ---- */

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct scale_node *n = context;

    if (n->role == HLG_ROLE_PREFILL) {
        prefill_notice(n, notice);
    } else {
        decode_notice(n, notice);
    }
}

static bool open_pump(struct scale_node *n)
{
    struct hlg_place places[PLACES_MAX];
    struct hlg_limits limits;
    struct hlg_layout layout;
    char error[256] = "";

    make_layout(&layout, n->pages.capacity);
    make_limits(n, &limits);
    const int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, &n->bytes);
    HLG_ASSERT(count > 0 && count <= (int)PLACES_MAX);
    n->memory = n->memory != NULL ? n->memory : calloc(n->bytes, 1);
    const struct hlg_pump_region region = {.memory = HLG_MEM_HOST(n->memory, n->bytes)};
    struct hlg_pump_config config = {.role = n->role,
                                     .fabric = hlg_loop_fabric(n->world->loop, n->index),
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = places,
                                     .place_count = (uint32_t)count,
                                     .notice = take_notice,
                                     .context = n};
    n->incarnation++;
    if (n->role == HLG_ROLE_PREFILL) {
        config.prefill = (struct hlg_prefill_config){.limits = limits,
                                                     .layout = layout,
                                                     .rails = 1,
                                                     .node = n->index + 1,
                                                     .incarnation = n->incarnation};
    } else {
        config.decode = (struct hlg_decode_config){.limits = limits,
                                                   .layout = layout,
                                                   .rails = 1,
                                                   .node = n->index + 1,
                                                   .incarnation = n->incarnation};
    }
    return n->memory != NULL && hlg_pump_create(&config, &n->pump, error, sizeof error) == 0;
}

static bool open_node(struct scale_world *w, uint32_t index)
{
    struct scale_node *n = &w->nodes[index];
    const uint32_t share = index == 0 ? w->config.decoders : 1;

    n->world = w;
    n->index = index;
    n->role = index == 0 ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE;
    /* What is fenced, or not yet released, still counts. */
    n->requests_max = share * w->config.in_flight * 2;
    n->pages.capacity = SCALE_PAGES * n->requests_max;
    n->pages.pages = calloc(n->pages.capacity, sizeof *n->pages.pages);
    n->requests = calloc(n->requests_max, sizeof *n->requests);
    n->lists = calloc(n->requests_max, sizeof *n->lists);
    n->waiting = calloc(n->requests_max, sizeof *n->waiting);
    if (n->pages.pages == NULL || n->requests == NULL || n->lists == NULL || n->waiting == NULL) {
        return false;
    }
    for (uint32_t i = n->pages.capacity; i > 0; i--) {
        n->pages.pages[n->pages.count++] = i - 1;
    }
    return open_pump(n);
}

/* The process of a decode node ends in order, and another comes in its place. */
static bool restart(struct scale_node *n)
{
    hlg_pump_destroy(n->pump);
    n->pump = NULL;
    n->world->restarts++;
    n->world->failed += n->open - n->wait_count; /* those were ready */
    n->wait_count = 0;
    for (uint32_t i = 0; i < n->requests_max; i++) {
        if (n->requests[i].open) {
            give_pages(n, &n->requests[i]);
        }
    }
    n->up = false;
    n->joined = false;
    return open_pump(n);
}

/* ---- Sessions ---- */

static bool join(struct scale_node *n)
{
    struct scale_world *w = n->world;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    if (hlg_loop_channel_pair(w->loop, n->index, 0, &n->channel, &theirs) != 0) {
        return false; /* the one before is not over: later */
    }
    if (hlg_pump_channel(w->nodes[0].pump, theirs, false, &peer) != 0) {
        n->channel->ops->close(n->channel);
        return false;
    }
    n->joined = hlg_pump_channel(n->pump, n->channel, true, &n->peer) == 0;
    return n->joined;
}

/* Ends a session in the way whose turn it is. */
static bool end_session(struct scale_node *n)
{
    n->in_session = 0;
    switch (n->endings++ % 4) {
    case 0:
        (void)tell(n, (struct hlg_event){.kind = HLG_EVENT_DISCONNECT, .peer = {.peer = n->peer}});
        return true;
    case 1:
        hlg_loop_channel_break(n->world->loop, n->channel);
        return true;
    case 2:
        return restart(n);
    default:
        n->up = false;
        return join(n); /* the new greeting replaces the session on both sides */
    }
}

static int turn(struct scale_world *w)
{
    int work = 0;

    for (uint32_t i = 0; i <= w->config.decoders; i++) {
        struct scale_node *n = &w->nodes[i];
        work += hlg_pump_step(n->pump);
        if (i == 0) {
            work += prefill_turn(n);
            continue;
        }
        work += decode_turn(n);
        if (!n->joined && !w->stop) {
            work += join(n);
        } else if (n->up && w->config.session_requests > 0 &&
                   n->in_session >= w->config.session_requests) {
            work += end_session(n);
        }
    }
    w->now += SCALE_TURN_NS;
    work += hlg_loop_advance_to(w->loop, w->now) > 0;
    return work;
}

/* ---- The world ---- */

struct scale_world *scale_open(const struct scale_config *config)
{
    struct scale_world *w = calloc(1, sizeof *w);
    struct hlg_loop_config loop;
    const uint32_t all = config->decoders * config->in_flight;

    HLG_ASSERT(config->decoders <= SCALE_NODES_MAX && w != NULL);
    w->config = *config;
    hlg_loop_config_default(&loop);
    loop.seed = config->seed;
    loop.nodes = 1 + config->decoders;
    loop.domains_max = 2 * config->decoders;
    loop.peers_max = 2 * config->decoders;
    loop.channels_max = 4 * config->decoders;
    loop.pieces_max = 2 * all * SCALE_LAYERS * SCALE_PAGES;
    loop.cq_depth = loop.pieces_max * 2 * config->decoders;
    loop.frames_max = 8 * config->in_flight + 64;
    loop.message_bytes_max = MESSAGE_BYTES;
    loop.room_bytes = 1u << 24;
    loop.piece_bytes_max = 4096;
    loop.land_ns = (struct hlg_loop_span){config->land_ns, 2 * config->land_ns};
    bool good = hlg_loop_create(&loop, &w->loop) == 0;
    for (uint32_t i = 0; i <= config->decoders && good; i++) {
        good = open_node(w, i);
    }
    if (!good) {
        scale_close(w);
        return NULL;
    }
    return w;
}

bool scale_run(struct scale_world *w, uint64_t requests)
{
    uint32_t idle = 0;

    while (w->ready + w->failed < requests && idle < IDLE_TURNS) {
        idle = turn(w) > 0 ? 0 : idle + 1;
    }
    return w->ready + w->failed >= requests;
}

static bool at_rest(const struct scale_world *w)
{
    for (uint32_t i = 0; i <= w->config.decoders; i++) {
        if (w->nodes[i].open > 0 || hlg_pump_open(w->nodes[i].pump) > 0) {
            return false;
        }
    }
    return true;
}

const char *scale_drain(struct scale_world *w)
{
    w->stop = true;
    for (uint32_t i = 0; i < IDLE_TURNS && !at_rest(w); i++) {
        (void)turn(w);
    }
    if (!at_rest(w)) {
        return "a request is still open";
    }
    for (uint32_t i = 0; i <= w->config.decoders; i++) {
        struct scale_node *n = &w->nodes[i];
        if (n->pages.count != n->pages.capacity) {
            return "pages are missing";
        }
        if (hlg_pump_check(n->pump) != 0) {
            return "a machine's own check fails";
        }
    }
    return hlg_loop_check(w->loop) == 0 ? NULL : "the loop's own check fails";
}

void scale_close(struct scale_world *w)
{
    for (uint32_t i = 0; i <= w->config.decoders; i++) {
        struct scale_node *n = &w->nodes[i];
        hlg_pump_destroy(n->pump);
        free(n->memory);
        free(n->pages.pages);
        free(n->requests);
        free(n->lists);
        free(n->waiting);
    }
    hlg_loop_destroy(w->loop);
    free(w);
}
