/*
 * The modelled decode engine: a queue for pages for each DP rank, first come, first served; SUBMIT to
 * a prefill node once a request has its pages; a batch that READY requests join. Requests on their way
 * hold pages like any other.
 */
#include "cluster_internal.h"

#include "driver/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 64u

/* ---- pages -------------------------------------------------------------------------------- */

static uint32_t page_tokens_of(const struct cluster *c)
{
    return c->scenario->decode.engine.page_tokens;
}

uint32_t decode_pages_wanted(const struct cluster *c, const struct job *job)
{
    uint32_t tokens =
        c->scenario->decode.policy == SIM_KV_RESERVE ? job->tokens + job->output : job->tokens;

    return request_pages(tokens, page_tokens_of(c));
}

/* `count` more pages for an intake. */
static bool take_pages(struct node *n, struct intake *intake, uint32_t count)
{
    uint32_t wanted = intake->page_count + count;

    if (wanted > intake->page_capacity) {
        intake->pages = cluster_grow(intake->pages, wanted, sizeof *intake->pages);
        intake->page_capacity = wanted;
    }
    sample_pages(n);
    bool taken = sim_pages_take(n->pages[intake->rank], count, intake->pages + intake->page_count);
    sample_pages_after(n);
    intake->page_count += taken ? count : 0;
    return taken;
}

static void give_pages(struct node *n, struct intake *intake)
{
    sample_pages(n);
    sim_pages_give(n->pages[intake->rank], intake->pages, intake->page_count);
    sample_pages_after(n);
    intake->page_count = 0;
}

/* A sequence has left the batch: the machine lets go of its pages first. */
static void release(void *context, uint32_t rank, uint32_t sequence)
{
    struct node *n = context;
    struct intake *intake = roster_at(&n->cluster->intakes, n->decoder.intakes[sequence]);
    struct hlg_event event = {.kind = HLG_EVENT_RELEASE, .request = intake->handle};
    int error = net_event(n, &event);

    HLG_ASSERT(error == 0 && intake->rank == rank); /* it is READY */
    give_pages(n, intake);
}

static bool grow(void *context, uint32_t rank, uint32_t sequence, uint32_t tokens)
{
    struct node *n = context;
    struct intake *intake = roster_at(&n->cluster->intakes, n->decoder.intakes[sequence]);

    HLG_ASSERT(intake->rank == rank);
    uint32_t pages = request_pages(intake->room + tokens, page_tokens_of(n->cluster));
    if (pages > intake->page_count && !take_pages(n, intake, pages - intake->page_count)) {
        return false;
    }
    intake->room += tokens;
    return true;
}

/* ---- making and unmaking ------------------------------------------------------------------ */

static int open_batch(struct node *n)
{
    struct cluster *c = n->cluster;
    const struct sim_decode *d = &c->scenario->decode;
    struct sim_batch_config config = {.cost = c->costs[1],
                                      .ranks = n->ranks,
                                      .sequences_max = d->sequences_max,
                                      .waiting_max = c->limits[1].requests_max,
                                      .seed = c->scenario->seed,
                                      .draft = d->draft,
                                      .grow = d->policy == SIM_KV_GROW ? grow : NULL,
                                      .grow_tokens = d->engine.page_tokens,
                                      .release = release,
                                      .context = n};

    memcpy(config.accept, d->accept, sizeof config.accept);
    return sim_batch_create(&config, &n->decoder.batch);
}

int decode_open(struct node *n, char *text, size_t capacity)
{
    struct decode_engine *e = &n->decoder;

    *e = (struct decode_engine){.batch_at = HLG_TIME_NEVER};
    e->queues = calloc(n->ranks, sizeof *e->queues);
    e->intakes = calloc(n->cluster->limits[1].requests_max, sizeof *e->intakes);
    if (e->queues == NULL || e->intakes == NULL ||
        !numbers_init(&e->slots, n->cluster->limits[1].requests_max)) {
        (void)snprintf(text, capacity, "no memory for a decode node");
        return -HLG_ENOMEM;
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        e->queues[rank] = (struct queue){.head = HLG_NONE, .tail = HLG_NONE};
    }
    int error = open_batch(n);
    if (error != 0) {
        (void)snprintf(text, capacity, "decode.sequences_max or decode.accept cannot be: %s",
                       hlg_error_text(error));
    }
    return error;
}

void decode_close(struct node *n)
{
    struct decode_engine *e = &n->decoder;

    if (e->batch != NULL) {
        sim_batch_destroy(e->batch);
    }
    free(e->queues);
    free(e->intakes);
    free(e->slots.free);
    *e = (struct decode_engine){.batch_at = HLG_TIME_NEVER};
}

/* ---- intakes ------------------------------------------------------------------------------ */

void intake_unload(struct cluster *c, struct intake *intake)
{
    if (intake->peer_target != HLG_NONE) {
        struct job *job = roster_at(&c->jobs, intake->job);
        sim_router_load(c->routers[0], intake->peer_target, -(int64_t)job->tokens);
        intake->peer_target = HLG_NONE;
    }
}

static struct intake *open_intake(struct node *n, struct job *job)
{
    struct cluster *c = n->cluster;
    struct intake *intake = roster_take(&c->intakes);

    intake->job = job->item.number;
    intake->node = n->index;
    intake->rank = job->rank;
    intake->slot = n->decoder.slots.free[--n->decoder.slots.count];
    intake->peer_target = HLG_NONE;
    intake->flying = HLG_NONE;
    intake->joined = false;
    intake->ready = false;
    intake->handle = 0;
    intake->page_count = 0;
    n->decoder.intakes[intake->slot] = intake->item.number;
    return intake;
}

/* Its pages are the engine's again, or nobody's. */
static void close_intake(struct node *n, struct intake *intake, bool poisoned)
{
    struct cluster *c = n->cluster;

    HLG_ASSERT(!intake->joined && intake->peer_target == HLG_NONE);
    if (poisoned) {
        sample_pages(n);
        sim_pages_poison(n->pages[intake->rank], intake->pages, intake->page_count);
        sample_pages_after(n);
        intake->page_count = 0;
    } else {
        give_pages(n, intake);
    }
    n->decoder.slots.free[n->decoder.slots.count++] = intake->slot;
    roster_give(&c->intakes, intake);
}

/* The intake goes its own way; the job is free for another. */
static struct job *detach(struct cluster *c, struct intake *intake)
{
    struct job *job = roster_at(&c->jobs, intake->job);

    intake_unload(c, intake);
    if (intake->flying != HLG_NONE) {
        struct node *p = &c->nodes[intake->flying];
        intake->flying = HLG_NONE;
        prefill_count(p, -1);
    }
    HLG_ASSERT(job->intake == intake->item.number);
    job->intake = HLG_NONE;
    intake->job = HLG_NONE;
    return job;
}

/* ---- submission --------------------------------------------------------------------------- */

struct asked {
    struct cluster *cluster;
    uint32_t names;
};

/* Tokens of c->names that a prefill target has in its cache. */
static uint32_t cached_at(void *context, uint32_t target)
{
    const struct asked *asked = context;
    struct cluster *c = asked->cluster;
    const struct node *p = &c->nodes[target % c->prefills];

    if (!p->alive) {
        return 0;
    }
    return sim_pages_peek(p->pages[target / c->prefills], c->names, asked->names) *
           c->scenario->prefill.engine.page_tokens;
}

static uint32_t choose_prefill(struct cluster *c, const struct job *job)
{
    struct asked asked = {.cluster = c};

    if (c->scenario->prefill_routing == SIM_ROUTING_PREFIX) {
        asked.names = request_names(c, job->request, c->scenario->prefill.engine.page_tokens);
    }
    return sim_router_choose(c->routers[0], cached_at, &asked);
}

static void put_u32(uint8_t *bytes, uint32_t value)
{
    memcpy(bytes, &value, sizeof value);
}

static void fill_prompt(struct intake *intake, const struct job *job, uint32_t rank)
{
    put_u32(intake->prompt, job->request);
    put_u32(intake->prompt + 4, intake->item.number);
    put_u32(intake->prompt + 8, intake->item.serial);
    put_u32(intake->prompt + 12, rank);
}

/* What picks the replica offset: 0 where every offset is the same but for the ranks' names. */
static uint32_t draw_offset(const struct cluster *c, const struct intake *intake, uint32_t request)
{
    if (c->fold.rank_to_rank) {
        return 0;
    }
    struct hlg_rng rng =
        hlg_rng_seed(c->scenario->seed ^ ((uint64_t)request << 20) ^ intake->item.serial);
    return (uint32_t)(hlg_rng_next(&rng) >> 32);
}

static int tell_submit(struct node *n, struct intake *intake, const struct job *job,
                       uint32_t target)
{
    struct cluster *c = n->cluster;
    const struct hlg_layout *layout = &c->layouts[1];
    bool asks = job->tokens > 1;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = asks ? 1 : 0,
                                         .pool = intake->rank,
                                         .tokens = job->tokens,
                                         .random = draw_offset(c, intake, job->request),
                                         .ttl_ns = c->faulty ? CLUSTER_TTL_NS : HLG_TIME_NEVER,
                                         .id_bytes = 8,
                                         .id = intake->prompt + 4,
                                         .prompt_bytes = CLUSTER_PROMPT_BYTES,
                                         .prompt = intake->prompt}};

    if (asks) {
        event.submit.peers[0] = n->peer_of[target % c->prefills];
    }
    for (uint32_t g = 0; asks && g < layout->group_count; g++) {
        bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
        event.submit.groups[g] = (struct hlg_page_list){
            .count = context ? 1 : request_pages(job->tokens - 1, page_tokens_of(c)),
            .pages = context ? &intake->slot : intake->pages};
    }
    int error = net_event(n, &event);
    if (error == 0) {
        intake->handle = hlg_pump_submitted(n->pump);
    }
    return error;
}

static void mark_submitted(struct node *n, const struct job *job, uint32_t target)
{
    struct cluster *c = n->cluster;
    struct sim_record *record = cluster_record(c, job);

    cluster_stamp(c, job, SIM_SUBMITTED, c->now);
    record->decode_node = n->number;
    record->decode_rank = job->rank;
    record->prefill_node = target == HLG_NONE ? HLG_NONE : target % c->prefills;
    record->cached_tokens = 0;
    record->chunks = 0;
    cluster_trace(c, EVENT_INGESTED, job->request, (uint64_t)n->index << 32 | job->rank);
}

/* A job that has left the queue, with its pages, goes to a prefill target (HLG_NONE: it needs none). */
static void submit(struct node *n, struct job *job, struct intake *intake, uint32_t target)
{
    struct cluster *c = n->cluster;
    int error = -HLG_EPEER;

    job->intake = intake->item.number;
    if (target == HLG_NONE || n->peer_up[target % c->prefills]) {
        fill_prompt(intake, job, target == HLG_NONE ? 0 : target / c->prefills);
        mark_submitted(n, job, target);
        error = tell_submit(n, intake, job, target);
        HLG_ASSERT(error == 0 || error == -HLG_EPEER || error == -HLG_ELIMIT);
    }
    if (error == 0 && target != HLG_NONE) {
        intake->peer_target = target;
        intake->flying = target % c->prefills;
        sim_router_load(c->routers[0], target, (int64_t)job->tokens);
        prefill_count(&c->nodes[intake->flying], 1);
    } else if (error != 0) { /* its session has ended a moment ago */
        job = detach(c, intake);
        close_intake(n, intake, false);
        request_failed(c, job, HLG_REASON_PEER, CLUSTER_HOMELESS_NS);
    }
}

/* ---- queues ------------------------------------------------------------------------------- */

static void pop(struct node *n, struct job *job)
{
    struct queue *q = &n->decoder.queues[job->rank];

    HLG_ASSERT(q->head == job->item.number && job->queued);
    q->head = job->next;
    q->tail = q->head == HLG_NONE ? HLG_NONE : q->tail;
    q->count--;
    job->queued = false;
}

/* Returns false when it must wait: all prefill nodes have as many requests as they take. *target is
 * HLG_NONE when there is none to wait for. */
static bool find_prefill(struct node *n, const struct job *job, uint32_t *target)
{
    struct cluster *c = n->cluster;

    *target = choose_prefill(c, job);
    if (*target == HLG_NONE && c->full_count > 0) {
        n->decoder.blocked = true;
        return false;
    }
    return true;
}

/* Submit what there are pages and slots for. */
static void look_at(struct node *n, uint32_t rank)
{
    struct cluster *c = n->cluster;
    struct queue *q = &n->decoder.queues[rank];

    while (q->head != HLG_NONE) {
        struct job *job = roster_at(&c->jobs, q->head);
        uint32_t wanted = decode_pages_wanted(c, job);
        if (n->decoder.slots.count == 0) {
            n->decoder.starved = true;
            return;
        }
        if (sim_pages_available(n->pages[rank]) < wanted) {
            return;
        }
        uint32_t target = HLG_NONE;
        if (job->tokens > 1 && !find_prefill(n, job, &target)) {
            return;
        }
        pop(n, job);
        if (job->tokens > 1 && target == HLG_NONE) {
            request_failed(c, job, HLG_REASON_PEER, CLUSTER_HOMELESS_NS);
            continue;
        }
        struct intake *intake = open_intake(n, job);
        bool taken = take_pages(n, intake, wanted);
        HLG_ASSERT(taken);
        submit(n, job, intake, target);
    }
}

void decode_look(struct node *n)
{
    n->decoder.starved = false;
    n->decoder.blocked = false;
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        look_at(n, rank);
    }
}

/* Some prefill node has a place again: the decode nodes take turns. */
void decode_unblock(struct cluster *c)
{
    for (uint32_t i = 0; c->full_count < c->prefills && i < c->decodes; i++) {
        struct node *n = cluster_decode_node(c, c->unblocked);
        c->unblocked = (c->unblocked + 1) % c->decodes;
        if (n->alive && n->decoder.blocked) {
            decode_look(n);
        }
    }
}

/* Pages or a slot of that rank came back. */
static void look_again(struct node *n, uint32_t rank)
{
    if (n->decoder.starved) {
        decode_look(n);
    } else {
        look_at(n, rank);
    }
}

void decode_enqueue(struct node *n, struct job *job)
{
    struct queue *q = &n->decoder.queues[job->rank];

    job->queued = true;
    job->next = HLG_NONE;
    if (q->tail == HLG_NONE) {
        q->head = job->item.number;
    } else {
        ((struct job *)roster_at(&n->cluster->jobs, q->tail))->next = job->item.number;
    }
    q->tail = job->item.number;
    q->count++;
    if (q->count == 1) { /* else it waits behind others anyway */
        look_at(n, job->rank);
    }
}

/* ---- the batch ---------------------------------------------------------------------------- */

static void await_batch(struct node *n)
{
    hlg_time at = sim_batch_next(n->decoder.batch);

    if (at < n->decoder.batch_at) {
        n->decoder.batch_at = at;
        heap_put(n->cluster, (struct event){.at = at > n->cluster->now ? at : n->cluster->now,
                                            .kind = EVENT_BATCH,
                                            .node = n->index,
                                            .serial = n->incarnation});
    }
}

/* A request that is released leaves the node, finished or preempted. */
static struct job *leave(struct node *n, struct intake *intake)
{
    struct job *job = detach(n->cluster, intake);

    intake->joined = false;
    close_intake(n, intake, false);
    return job;
}

static void finish(struct node *n, struct intake *intake)
{
    uint32_t rank = intake->rank;
    struct job *job = leave(n, intake);

    cluster_stamp(n->cluster, job, SIM_FINISHED, n->cluster->now);
    cluster_tell_spans(n->cluster, job, n->index);
    request_end(n->cluster, job, SIM_DONE, HLG_REASON_NONE);
    look_again(n, rank);
}

static void on_batch_event(struct node *n, const struct sim_batch_event *event)
{
    struct cluster *c = n->cluster;
    struct intake *intake = roster_at(&c->intakes, n->decoder.intakes[event->sequence]);
    struct job *job = roster_at(&c->jobs, intake->job);
    struct sim_record *record = cluster_record(c, job);

    switch ((enum sim_batch_event_kind)event->kind) {
    case SIM_BATCH_STEPPED:
        cluster_stamp(c, job, SIM_STEPPED, event->at);
        return;
    case SIM_BATCH_FIRST:
        cluster_stamp(c, job, SIM_FIRST, event->at);
        return;
    case SIM_BATCH_FINISHED:
        record->steps += event->steps;
        finish(n, intake);
        return;
    case SIM_BATCH_PREEMPTED:
        record->steps += event->steps;
        request_preempted(c, leave(n, intake), event->tokens);
        look_again(n, event->rank);
        return;
    }
    hlg_unreachable();
}

static void count_running(struct node *n)
{
    uint32_t running = 0;

    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        running += sim_batch_running(n->decoder.batch, rank);
    }
    sample_busy(n, running > 0);
}

void decode_batch(struct node *n)
{
    struct sim_batch_event events[EVENTS_MAX];
    uint32_t count = EVENTS_MAX;

    n->decoder.batch_at = HLG_TIME_NEVER;
    while (count == EVENTS_MAX) {
        count = sim_batch_advance(n->decoder.batch, n->cluster->now, events, EVENTS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            on_batch_event(n, &events[i]);
        }
    }
    count_running(n);
    await_batch(n);
}

/* The engine knows that a request is whole: it joins the batch, or was done with its first token. */
void decode_news(struct node *n, struct intake *intake)
{
    struct cluster *c = n->cluster;
    struct job *job = roster_at(&c->jobs, intake->job);
    bool last_token = c->last_token;

    cluster_stamp(c, job, SIM_READY, c->now);
    if (!last_token) {
        n->totals.tokens_out += cluster_record(c, job)->at[SIM_FIRST] == HLG_TIME_NEVER;
        cluster_stamp(c, job, SIM_STEPPED, c->now);
        cluster_stamp(c, job, SIM_FIRST, c->now);
    }
    if (job->output == 0) {
        release(n, intake->rank, intake->slot);
        finish(n, intake);
        return;
    }
    intake->joined = true;
    intake->room = request_pages(job->tokens - 1, page_tokens_of(c)) * page_tokens_of(c);
    int error = sim_batch_join(n->decoder.batch, c->now, job->rank, intake->slot, job->request,
                               job->tokens - 1, job->output);
    HLG_ASSERT(error == 0); /* it waits for as many as there are slots */
    await_batch(n);
    count_running(n);
}

/* ---- what the machine says ---------------------------------------------------------------- */

static struct intake *find(struct node *n, const struct hlg_notice *notice)
{
    uint32_t number = 0;
    uint32_t serial = 0;

    HLG_ASSERT(notice->id_bytes == 8);
    memcpy(&number, notice->id, sizeof number);
    memcpy(&serial, notice->id + 4, sizeof serial);
    struct intake *intake = roster_find(&n->cluster->intakes, number, serial);
    HLG_ASSERT(intake != NULL && intake->node == n->index);
    return intake;
}

static void on_ready(struct node *n, struct intake *intake, const struct hlg_notice *notice)
{
    struct cluster *c = n->cluster;
    struct job *job = roster_at(&c->jobs, intake->job);
    uint32_t pages = request_pages(job->tokens - 1, page_tokens_of(c));
    uint64_t planned = c->page_bytes * pages;

    if (job->tokens > 1) {
        cluster_stamp(c, job, SIM_LANDED, notice->last_piece - c->base);
        planned += c->context_bytes;
        cluster_span(c, &(struct sim_span){.name = "transfer",
                                           .node = n->index,
                                           .track = 1,
                                           .request = job->request,
                                           .begin = notice->first_piece - c->base,
                                           .end = notice->last_piece - c->base,
                                           .value = notice->bytes});
    }
    intake->ready = true;
    intake->handle = notice->request;
    cluster_record(c, job)->bytes = notice->bytes;
    c->run->bytes_planned += planned;
    c->run->bytes_landed += notice->bytes;
    cluster_trace(c, EVENT_NEWS, job->request, notice->bytes);
    hlg_time dispatch_ns = c->scenario->decode.engine.dispatch_ns;
    heap_put(c, (struct event){.at = hlg_time_after(c->now, dispatch_ns),
                               .kind = EVENT_NEWS,
                               .node = n->index,
                               .index = intake->item.number,
                               .serial = intake->item.serial});
}

static void on_failed(struct cluster *c, struct intake *intake, const struct hlg_notice *notice)
{
    struct job *job = detach(c, intake);

    request_failed(c, job, notice->reason, CLUSTER_RETRY_NS);
}

void decode_letter(struct node *n, const struct letter *letter)
{
    const struct hlg_notice *notice = &letter->notice;

    if (notice->kind == HLG_NOTICE_ACCEPTED || notice->kind == HLG_NOTICE_PEER_DRAINING) {
        return;
    }
    struct intake *intake = find(n, notice);
    uint32_t rank = intake->rank;
    if (notice->kind == HLG_NOTICE_READY) {
        on_ready(n, intake, notice);
    } else if (notice->kind == HLG_NOTICE_FAILED) {
        on_failed(n->cluster, intake, notice);
    } else if (notice->kind == HLG_NOTICE_RETURNED || notice->kind == HLG_NOTICE_POISONED) {
        close_intake(n, intake, notice->kind == HLG_NOTICE_POISONED);
        look_again(n, rank);
    }
}

void decode_died(struct node *n)
{
    struct cluster *c = n->cluster;

    for (uint32_t i = 0; i < c->intakes.count; i++) {
        struct intake *intake = c->intakes.items[i];
        if (!intake->item.used || intake->node != n->index) {
            continue;
        }
        struct job *job = intake->job == HLG_NONE ? NULL : detach(c, intake);
        intake->page_count = 0; /* the memory is gone with the node */
        roster_give(&c->intakes, intake);
        if (job != NULL) {
            request_failed(c, job, HLG_REASON_PEER, c->scenario->network.message_ns);
        }
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        struct queue *q = &n->decoder.queues[rank];
        while (q->head != HLG_NONE) {
            struct job *job = roster_at(&c->jobs, q->head);
            pop(n, job);
            request_failed(c, job, HLG_REASON_PEER, c->scenario->network.message_ns);
        }
    }
    sample_busy(n, false);
    decode_close(n);
}
