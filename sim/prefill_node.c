/*
 * The modelled prefill engine: a queue of prompts for each DP rank, first come, first served; forwards
 * of at most budget_tokens a rank, over all ranks in lock-step; one in flight, or two: then the next
 * is composed, and announced, while one runs.
 *
 * A prompt gets its pages when its first chunk is composed, which is when it looks into the prefix cache.
 */
#include "cluster_internal.h"

#include <halage/handoff.h>
#include <stdlib.h>
#include <string.h>

#define FORWARD_MASK 0xffffffu

int prefill_open(struct node *n)
{
    struct cluster *c = n->cluster;
    struct prefill_engine *e = &n->prefill;

    *e = (struct prefill_engine){
        .running = HLG_NONE, .composed = HLG_NONE, .open = e->open, .full = e->full};
    e->queues = calloc(n->ranks, sizeof *e->queues);
    e->valid = calloc(n->ranks, sizeof *e->valid);
    e->rank_busy = calloc(n->ranks, sizeof *e->rank_busy);
    e->works = calloc(c->limits[0].requests_max, sizeof *e->works);
    if (e->queues == NULL || e->valid == NULL || e->rank_busy == NULL || e->works == NULL) {
        return -HLG_ENOMEM;
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        e->queues[rank] = (struct queue){.head = HLG_NONE, .tail = HLG_NONE};
        if (c->scenario->prefill.prefix_cache) {
            e->valid[rank] = calloc(c->kv_pages[0], sizeof **e->valid);
        }
        if (c->scenario->prefill.prefix_cache && e->valid[rank] == NULL) {
            return -HLG_ENOMEM;
        }
    }
    return 0;
}

void prefill_close(struct node *n)
{
    struct prefill_engine *e = &n->prefill;

    for (uint32_t rank = 0; e->valid != NULL && rank < n->ranks; rank++) {
        free(e->valid[rank]);
    }
    free(e->valid);
    free(e->queues);
    free(e->rank_busy);
    free(e->works);
    free(e->forwards[0].parts);
    free(e->forwards[1].parts);
    /* what is on its way to it is so still */
    *e = (struct prefill_engine){
        .running = HLG_NONE, .composed = HLG_NONE, .open = e->open, .full = e->full};
}

/* ---- queues ------------------------------------------------------------------------------- */

static void push(struct node *n, struct work *w)
{
    struct queue *q = &n->prefill.queues[w->rank];

    w->queued = true;
    w->next = HLG_NONE;
    if (q->tail == HLG_NONE) {
        q->head = w->item.number;
    } else {
        ((struct work *)roster_at(&n->cluster->works, q->tail))->next = w->item.number;
    }
    q->tail = w->item.number;
    q->count++;
}

/* Most leave at the head; one that stops, anywhere. */
static void pull(struct node *n, struct work *w)
{
    struct queue *q = &n->prefill.queues[w->rank];
    uint32_t before = HLG_NONE;

    if (!w->queued) {
        return;
    }
    for (uint32_t i = q->head; i != w->item.number;) {
        HLG_ASSERT(i != HLG_NONE);
        before = i;
        i = ((struct work *)roster_at(&n->cluster->works, i))->next;
    }
    if (before == HLG_NONE) {
        q->head = w->next;
    } else {
        ((struct work *)roster_at(&n->cluster->works, before))->next = w->next;
    }
    q->tail = q->tail == w->item.number ? before : q->tail;
    q->count--;
    w->queued = false;
}

/* Whose times these are, or NULL when that attempt is over. */
static struct job *job_of(struct cluster *c, const struct work *w)
{
    struct intake *intake = roster_find(&c->intakes, w->intake, w->intake_serial);

    return intake == NULL || intake->job == HLG_NONE ? NULL : roster_at(&c->jobs, intake->job);
}

static void stamp(struct cluster *c, const struct work *w, enum sim_moment moment)
{
    struct job *job = job_of(c, w);

    if (job != NULL) {
        cluster_stamp(c, job, moment, c->now);
    }
}

static void unload(struct cluster *c, const struct work *w)
{
    struct intake *intake = roster_find(&c->intakes, w->intake, w->intake_serial);

    if (intake != NULL) {
        intake_unload(c, intake);
    }
}

/* ---- admission ---------------------------------------------------------------------------- */

/* Whether forward a is newer than b, as the core compares them. */
static bool is_newer(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & FORWARD_MASK;

    return ahead != 0 && ahead < 0x800000u;
}

static bool is_under_way(const struct prefill_engine *e, uint32_t forward)
{
    return forward != 0 &&
           (e->composing == forward ||
            (e->running != HLG_NONE && e->forwards[e->running].number == forward) ||
            (e->composed != HLG_NONE && e->forwards[e->composed].number == forward));
}

/* Take the prompt's pages: those in the cache, and fresh ones. */
static bool take_pages(struct node *n, struct work *w, uint32_t *cached)
{
    struct cluster *c = n->cluster;
    uint32_t page_tokens = c->scenario->prefill.engine.page_tokens;
    uint32_t count = request_pages(w->tokens - 1, page_tokens);
    uint32_t hits = 0;

    if (count > w->page_capacity) {
        w->pages = cluster_grow(w->pages, count, sizeof *w->pages);
        w->page_capacity = count;
    }
    if (c->scenario->prefill.prefix_cache) {
        uint32_t known = hlg_min_u32(request_names(c, w->request, page_tokens), count);
        uint32_t found = sim_pages_peek(n->pages[w->rank], c->names, known);
        if (count - found > sim_pages_available(n->pages[w->rank])) {
            return false;
        }
        hits = sim_pages_match(n->pages[w->rank], c->names, known, w->pages);
    }
    if (!sim_pages_take(n->pages[w->rank], count - hits, w->pages + hits)) {
        sim_pages_give(n->pages[w->rank], w->pages, hits);
        return false;
    }
    w->page_count = count;
    *cached = hits;
    return true;
}

static void give_pages(struct node *n, struct work *w)
{
    sample_pages(n);
    sim_pages_give(n->pages[w->rank], w->pages, w->page_count);
    w->page_count = 0;
    sample_pages_after(n);
}

/* The newest of the forwards that still compute these pages; 0: they are all there. */
static uint32_t valid_after(const struct node *n, const struct work *w, uint32_t pages)
{
    const struct prefill_engine *e = &n->prefill;
    uint32_t newest = 0;

    for (uint32_t i = 0; i < pages; i++) {
        uint32_t forward = e->valid[w->rank][w->pages[i]];
        if (is_under_way(e, forward) && (newest == 0 || is_newer(forward, newest))) {
            newest = forward;
        }
    }
    return newest;
}

static int tell_admit(struct node *n, struct work *w, uint32_t cached_pages)
{
    struct cluster *c = n->cluster;
    const struct hlg_layout *layout = &c->layouts[0];
    uint32_t most = hlg_handoff_cached_tokens_max(layout, w->tokens);
    uint32_t tokens = hlg_min_u32(cached_pages * c->scenario->prefill.engine.page_tokens, most);
    struct hlg_event event = {
        .kind = HLG_EVENT_ADMIT,
        .admit = {.request = w->handle,
                  .pool = w->rank,
                  .cached_tokens = tokens,
                  .cached_forward = tokens > 0 ? valid_after(n, w, cached_pages) : 0}};

    for (uint32_t g = 0; g < layout->group_count; g++) {
        bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
        event.admit.groups[g] = (struct hlg_page_list){.count = context ? 1 : w->page_count,
                                                       .pages = context ? &w->slot : w->pages};
    }
    int error = net_event(n, &event);
    w->announced = error == 0 ? tokens : 0;
    return error;
}

/* Returns whether the prompt has its pages now; `limit`: the core ran into one of its own. */
static bool admit(struct node *n, struct work *w, bool *limit)
{
    struct cluster *c = n->cluster;
    uint32_t cached = 0;

    sample_pages(n);
    bool taken = take_pages(n, w, &cached);
    sample_pages_after(n);
    if (!taken) {
        return false;
    }
    int error = tell_admit(n, w, cached);
    if (error != 0) {
        give_pages(n, w);
        *limit = *limit || error == -HLG_ELIMIT;
        w->stopping = w->stopping || error != -HLG_ELIMIT;
        return false;
    }
    w->admitted = true;
    struct job *job = job_of(c, w);
    if (job != NULL) {
        cluster_record(c, job)->cached_tokens = w->announced;
    }
    return true;
}

/* ---- forwards ----------------------------------------------------------------------------- */

/* Pages that a chunk completes can be found in the cache from now on; they are valid after it. */
static void name_pages(struct node *n, const struct work *w, uint32_t begin, uint32_t limit,
                       uint32_t forward)
{
    struct cluster *c = n->cluster;
    uint32_t page_tokens = c->scenario->prefill.engine.page_tokens;
    uint32_t known = request_names(c, w->request, page_tokens);
    uint32_t first = begin / page_tokens;                    /* floor: left by the chunk before */
    uint32_t last = hlg_min_u32(limit / page_tokens, known); /* floor: left to the next */

    for (uint32_t i = first; i < last; i++) {
        n->prefill.valid[w->rank][w->pages[i]] = forward;
    }
    if (last > first) {
        sim_pages_name(n->pages[w->rank], w->pages + first, c->names + first, last - first);
    }
}

static void add_part(struct forward *f, const struct part *part)
{
    if (f->count == f->capacity) {
        f->capacity = f->capacity == 0 ? 16 : 2 * f->capacity;
        f->parts = cluster_grow(f->parts, f->capacity, sizeof *f->parts);
    }
    f->parts[f->count++] = *part;
    f->tokens += part->tokens;
}

/* Announce `count` more tokens of a prompt as computed by a forward. Returns what the core says. */
static int add_chunk(struct node *n, struct forward *f, struct work *w, uint32_t count)
{
    struct hlg_event event = {.kind = HLG_EVENT_CHUNK,
                              .chunk = {.request = w->handle,
                                        .forward = f->number,
                                        .token_begin = w->announced,
                                        .token_count = count}};
    uint32_t begin = w->announced;
    int error = net_event(n, &event);

    if (error != 0) {
        return error;
    }
    w->announced += count;
    add_part(f, &(struct part){.work = w->item.number,
                               .serial = w->item.serial,
                               .rank = w->rank,
                               .tokens = count,
                               .context = begin,
                               .first = !w->started,
                               .last = w->announced == w->tokens - 1});
    w->started = true;
    struct job *job = job_of(n->cluster, w);
    if (job != NULL) {
        cluster_record(n->cluster, job)->chunks++;
    }
    if (n->cluster->scenario->prefill.prefix_cache) {
        name_pages(n, w, begin, w->announced, f->number);
    }
    return 0;
}

/* Nothing is left to compute of a prompt that was found in the cache. */
static void found_whole(struct node *n, struct work *w)
{
    stamp(n->cluster, w, SIM_STARTED);
    stamp(n->cluster, w, SIM_COMPUTED);
    unload(n->cluster, w);
    pull(n, w);
}

/* Fill a forward from one rank's queue. Returns whether a limit of the core stopped it. */
static bool compose_rank(struct node *n, struct forward *f, uint32_t rank)
{
    const struct sim_prefill *p = &n->cluster->scenario->prefill;
    struct queue *q = &n->prefill.queues[rank];
    uint32_t budget = p->budget_tokens;
    uint32_t own = 0; /* parts of this rank */
    bool limit = false;

    for (uint32_t i = q->head; i != HLG_NONE && budget > 0;) {
        struct work *w = roster_at(&n->cluster->works, i);
        i = w->next;
        if (!w->admitted && !admit(n, w, &limit)) {
            if (w->stopping) {
                pull(n, w);
                continue;
            }
            break;
        }
        uint32_t left = w->tokens - 1 - w->announced;
        if (left == 0) {
            found_whole(n, w);
            continue;
        }
        if (!p->chunked && left > budget && own > 0) {
            break;
        }
        uint32_t count = p->chunked ? hlg_min_u32(left, budget) : left;
        int error = add_chunk(n, f, w, count);
        if (error != 0) {
            limit = error == -HLG_ELIMIT;
            w->stopping = w->stopping || !limit;
            break;
        }
        own++;
        budget -= hlg_min_u32(count, budget);
        if (count == left) {
            pull(n, w);
        }
    }
    return limit;
}

static void retry_later(struct node *n)
{
    if (!n->prefill.retry_armed) {
        n->prefill.retry_armed = true;
        heap_put(n->cluster, (struct event){.at = n->cluster->now + HLG_NS_PER_MS,
                                            .kind = EVENT_COMPOSE,
                                            .node = n->index,
                                            .serial = n->incarnation});
    }
}

/* Compose the next forward into the unused place. */
static void compose(struct node *n)
{
    struct prefill_engine *e = &n->prefill;
    uint32_t place = e->running == 0 ? 1 : 0;
    struct forward *f = &e->forwards[place];
    bool limit = false;

    HLG_ASSERT(e->composed == HLG_NONE);
    f->number = (e->forward_number & FORWARD_MASK) == FORWARD_MASK ? 1 : e->forward_number + 1;
    f->count = 0;
    f->tokens = 0;
    e->composing = f->number;
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        limit = compose_rank(n, f, rank) || limit;
    }
    e->composing = 0;
    if (limit) {
        retry_later(n);
    }
    if (f->count > 0) {
        e->forward_number = f->number;
        e->composed = place;
    }
}

/* How long the forward takes, by the cost model. Fills in which ranks take part. */
static hlg_time span_of(struct node *n, struct forward *f)
{
    struct cluster *c = n->cluster;
    struct sim_cost_parts parts;
    uint32_t used = 0;

    if (f->count > c->chunks_max) {
        c->chunks = cluster_grow(c->chunks, f->count, sizeof *c->chunks);
        c->chunks_max = f->count;
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        uint32_t begin = used;
        while (used < f->count && f->parts[used].rank == rank) {
            c->chunks[used] = (struct sim_chunk){.tokens = f->parts[used].tokens,
                                                 .context = f->parts[used].context};
            used++;
        }
        c->steps[rank] =
            (struct sim_rank_step){.chunks = c->chunks + begin, .chunk_count = used - begin};
        n->prefill.rank_busy[rank] = used > begin;
    }
    HLG_ASSERT(used == f->count);
    double span = sim_cost_step_ns(c->costs[0], c->steps, n->ranks, &parts);
    f->beyond = parts.is_beyond;
    return span < 1 ? 1 : (hlg_time)(span + 0.5);
}

static void await_tick(struct node *n, uint32_t layer)
{
    struct cluster *c = n->cluster;
    const struct forward *f = &n->prefill.forwards[n->prefill.running];
    uint32_t layers = c->layouts[0].layers;
    double rest = (double)(f->span - f->overhead);
    hlg_time at = f->begin + f->overhead +
                  (hlg_time)(rest * (double)(layer + 1) / (double)layers); /* floor */

    if (layer + 1 == layers) {
        at = f->begin + f->span;
    }
    heap_put(c, (struct event){.at = at > c->now ? at : c->now,
                               .kind = EVENT_TICK,
                               .node = n->index,
                               .index = layer,
                               .serial = n->incarnation});
}

static void start(struct node *n)
{
    struct cluster *c = n->cluster;
    struct prefill_engine *e = &n->prefill;
    struct forward *f = &e->forwards[e->composed];

    HLG_ASSERT(e->running == HLG_NONE);
    e->running = e->composed;
    e->composed = HLG_NONE;
    f->begin = c->now;
    f->span = span_of(n, f);
    f->overhead = c->step_overhead_ns < (double)f->span ? (hlg_time)c->step_overhead_ns : f->span;
    for (uint32_t i = 0; i < f->count; i++) {
        struct work *w = roster_find(&c->works, f->parts[i].work, f->parts[i].serial);
        if (w != NULL && f->parts[i].first) {
            stamp(c, w, SIM_STARTED);
        }
    }
    cluster_trace(c, EVENT_COMPOSE, n->index, f->tokens);
    sample_busy(n, true);
    await_tick(n, c->scenario->prefill.layerwise ? 0 : c->layouts[0].layers - 1);
}

void prefill_poke(struct node *n)
{
    struct prefill_engine *e = &n->prefill;

    if (!n->alive) {
        return;
    }
    if (e->composed == HLG_NONE &&
        (e->running == HLG_NONE || n->cluster->scenario->prefill.forwards > 1)) {
        compose(n);
    }
    if (e->running == HLG_NONE && e->composed != HLG_NONE) {
        start(n);
        if (n->cluster->scenario->prefill.forwards > 1) {
            compose(n);
        }
    }
}

static void end_forward(struct node *n)
{
    struct cluster *c = n->cluster;
    struct prefill_engine *e = &n->prefill;
    struct forward *f = &e->forwards[e->running];
    struct hlg_event event = {.kind = HLG_EVENT_FORWARD_END, .forward = f->number};
    int error = net_event(n, &event);

    HLG_ASSERT(error == 0); /* it was announced, and no newer one stamped */
    for (uint32_t i = 0; i < f->count; i++) {
        struct work *w = roster_find(&c->works, f->parts[i].work, f->parts[i].serial);
        if (w != NULL && f->parts[i].last) {
            stamp(c, w, SIM_COMPUTED);
            unload(c, w);
        }
    }
    n->totals.forwards++;
    n->totals.beyond += f->beyond ? 1 : 0;
    n->totals.tokens_in += f->tokens;
    cluster_span(c, &(struct sim_span){.name = "forward",
                                       .node = n->index,
                                       .request = HLG_NONE,
                                       .begin = f->begin,
                                       .end = c->now,
                                       .value = f->tokens});
    e->running = HLG_NONE;
    f->number = 0;
    sample_busy(n, false);
    prefill_poke(n);
}

void prefill_tick(struct node *n, uint32_t layer)
{
    struct cluster *c = n->cluster;
    struct prefill_engine *e = &n->prefill;

    HLG_ASSERT(e->running != HLG_NONE);
    if (layer + 1 == c->layouts[0].layers) {
        end_forward(n);
        return;
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        if (e->rank_busy[rank]) {
            struct hlg_event event = {
                .kind = HLG_EVENT_LAYER,
                .layer = {.word = rank,
                          .value = e->forwards[e->running].number << 8 | (layer + 1)}};
            int error = net_event(n, &event);
            HLG_ASSERT(error == 0);
        }
    }
    await_tick(n, layer + 1);
}

/* ---- how many ----------------------------------------------------------------------------- */

/* A node that has as many requests as it takes is none to the router. */
void prefill_count(struct node *n, int32_t more)
{
    struct cluster *c = n->cluster;
    struct prefill_engine *e = &n->prefill;

    HLG_ASSERT(more > 0 || e->open > 0);
    e->open = more > 0 ? e->open + 1 : e->open - 1;
    bool full = e->open >= c->limits[0].requests_max;
    if (full == e->full) {
        return;
    }
    e->full = full;
    c->full_count = full ? c->full_count + 1 : c->full_count - 1;
    cluster_set_up(c, n);
    if (!full) {
        decode_unblock(c);
    }
}

/* ---- what the machine says ---------------------------------------------------------------- */

static uint32_t get_u32(const uint8_t *bytes)
{
    uint32_t value = 0;

    memcpy(&value, bytes, sizeof value);
    return value;
}

static void on_requested(struct node *n, const struct letter *letter)
{
    struct cluster *c = n->cluster;
    struct work *w = roster_take(&c->works);
    struct prefill_engine *e = &n->prefill;

    w->node = n->index;
    w->handle = letter->notice.request;
    w->slot = (uint32_t)w->handle; /* the low half: a handle's index in the machine's table */
    HLG_ASSERT(w->slot < n->cluster->limits[0].requests_max);
    e->works[w->slot] = w->item.number;
    struct intake *intake =
        roster_find(&c->intakes, get_u32(letter->prompt + 4), get_u32(letter->prompt + 8));
    if (intake != NULL && intake->flying != HLG_NONE) {
        intake->flying = HLG_NONE; /* now it is there */
    } else {
        prefill_count(n, 1);
    }
    w->request = get_u32(letter->prompt);
    w->intake = get_u32(letter->prompt + 4);
    w->intake_serial = get_u32(letter->prompt + 8);
    w->rank = get_u32(letter->prompt + 12) % n->ranks;
    w->tokens = letter->tokens;
    w->announced = 0;
    w->started = false;
    w->dispatched = false;
    w->admitted = false;
    w->queued = false;
    w->stopping = false;
    w->page_count = 0;
    heap_put(c, (struct event){.at = hlg_time_after(c->now, cluster_engine(n)->dispatch_ns),
                               .kind = EVENT_DISPATCHED,
                               .node = n->index,
                               .index = w->item.number,
                               .serial = w->item.serial});
}

void prefill_dispatched(struct node *n, struct work *w)
{
    if (w->stopping) {
        return;
    }
    stamp(n->cluster, w, SIM_REQUESTED);
    w->dispatched = true;
    push(n, w);
    prefill_poke(n);
}

static void let_go(struct node *n, struct work *w, bool poisoned)
{
    pull(n, w);
    unload(n->cluster, w);
    if (poisoned) { /* nobody's any more: the NIC may still be reading them */
        sample_pages(n);
        sim_pages_poison(n->pages[w->rank], w->pages, w->page_count);
        w->page_count = 0;
        sample_pages_after(n);
    } else {
        give_pages(n, w);
    }
    roster_give(&n->cluster->works, w);
    prefill_count(n, -1);
}

static struct work *find(struct node *n, hlg_handle handle)
{
    uint32_t slot = (uint32_t)handle;

    HLG_ASSERT(slot < n->cluster->limits[0].requests_max);
    struct work *w = roster_at(&n->cluster->works, n->prefill.works[slot]);
    HLG_ASSERT(w->node == n->index && w->handle == handle);
    return w;
}

void prefill_letter(struct node *n, const struct letter *letter)
{
    if (letter->notice.kind == HLG_NOTICE_REQUESTED) {
        on_requested(n, letter);
        return;
    }
    struct work *w = find(n, letter->notice.request);
    if (letter->notice.kind == HLG_NOTICE_STOPPING) {
        w->stopping = true;
        pull(n, w);
    } else if (letter->notice.kind == HLG_NOTICE_SENT || letter->notice.kind == HLG_NOTICE_FENCED ||
               letter->notice.kind == HLG_NOTICE_POISONED) {
        let_go(n, w, letter->notice.kind == HLG_NOTICE_POISONED);
        prefill_poke(n);
    }
}

void prefill_died(struct node *n)
{
    struct cluster *c = n->cluster;

    for (uint32_t i = 0; i < c->works.count; i++) {
        struct work *w = c->works.items[i];
        if (w->item.used && w->node == n->index) {
            w->queued = false;
            unload(c, w);
            w->page_count = 0; /* the memory is gone with the node */
            roster_give(&c->works, w);
            prefill_count(n, -1);
        }
    }
    sample_busy(n, false);
    prefill_close(n);
}
