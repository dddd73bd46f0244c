/* Co-located nodes: an engine that does both (mixed.h), put into the loop; there is no network. */
#include "cluster_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 64u

static const struct sim_colocated *scenario_of(const struct cluster *c)
{
    return &c->scenario->colocated;
}

int mixed_start(struct node *n, char *text, size_t capacity)
{
    const struct cluster *c = n->cluster;
    const struct sim_colocated *s = scenario_of(c);
    struct sim_mixed_config config = {.cost = c->costs[0],
                                      .ranks = n->ranks,
                                      .budget_tokens = s->budget_tokens,
                                      .chunked = s->chunked,
                                      .sequences_max = s->sequences_max,
                                      .requests_max = s->engine.requests_max,
                                      .pages = c->kv_pages[0],
                                      .page_tokens = s->engine.page_tokens,
                                      .grow = s->policy == SIM_KV_GROW,
                                      .cache = s->prefix_cache,
                                      .seed = c->scenario->seed,
                                      .draft = s->draft};

    memcpy(config.accept, s->accept, sizeof config.accept);
    n->mixed =
        (struct mixed_node){.queue = {.head = HLG_NONE, .tail = HLG_NONE}, .at = HLG_TIME_NEVER};
    int error = sim_mixed_create(&config, &n->mixed.mixed);
    if (error != 0) {
        (void)snprintf(text, capacity, "colocated: its numbers make no engine: %s",
                       hlg_error_text(error));
        return error;
    }
    n->alive = true;
    n->incarnation++;
    return 0;
}

static int make_node(struct cluster *c, uint32_t index, char *text, size_t capacity)
{
    struct node *n = &c->nodes[index];

    n->cluster = c;
    n->index = index;
    n->number = index;
    n->ranks = scenario_of(c)->engine.dp;
    n->busy_since = HLG_TIME_NEVER;
    n->totals.kv_pages = c->kv_pages[0] * n->ranks;
    return mixed_start(n, text, capacity);
}

int mixed_open(struct cluster *c, char *text, size_t capacity)
{
    const struct sim_engine *engine = &scenario_of(c)->engine;
    struct sim_run *run = c->run;
    int error = sim_scenario_cost(c->scenario, engine, &c->costs[0], text, capacity);

    if (error == 0) {
        error = sim_scenario_kv_tokens(engine, c->costs[0], &run->kv_tokens[0], text, capacity);
    }
    if (error != 0) {
        return error;
    }
    sim_cost_basis(c->costs[0], &run->basis[0]);
    run->basis[1] = run->basis[0];
    run->kv_tokens[1] = run->kv_tokens[0];
    uint64_t pages = run->kv_tokens[0] / engine->page_tokens; /* whole ones */
    c->kv_pages[0] = hlg_u32(pages < UINT32_MAX ? pages : UINT32_MAX);
    error = sim_router_create(c->scenario->prefill_routing, c->prefills * engine->dp,
                              c->scenario->seed, c->scenario->routing_load_weight, &c->routers[0]);
    c->nodes = calloc(c->node_count, sizeof *c->nodes);
    if (error != 0 || c->nodes == NULL) {
        (void)snprintf(text, capacity, "no memory for the nodes");
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; error == 0 && i < c->node_count; i++) {
        error = make_node(c, i, text, capacity);
    }
    return error;
}

void mixed_close(struct cluster *c)
{
    for (uint32_t i = 0; c->nodes != NULL && i < c->node_count; i++) {
        if (c->nodes[i].mixed.mixed != NULL) {
            sim_mixed_destroy(c->nodes[i].mixed.mixed);
        }
    }
    for (uint32_t i = 0; i < c->jobs.count; i++) {
        free(((struct job *)c->jobs.items[i])->names);
    }
}

/* ---- a request's way ---------------------------------------------------------------------- */

struct asked {
    struct cluster *cluster;
    uint32_t names;
};

static uint32_t cached_at(void *context, uint32_t target)
{
    const struct asked *asked = context;
    const struct cluster *c = asked->cluster;
    const struct node *n = &c->nodes[target % c->prefills];

    return n->alive ? sim_mixed_cached(n->mixed.mixed, target / c->prefills, c->names, asked->names)
                    : 0;
}

/* There is a place for it: its engine has it after a while. */
static void enter(struct cluster *c, struct job *job)
{
    c->nodes[job->node].mixed.open++;
    cluster_stamp(c, job, SIM_SUBMITTED, c->now);
    job->queued_at = hlg_time_after(c->now, scenario_of(c)->engine.dispatch_ns);
    heap_put(c, (struct event){.at = job->queued_at,
                               .kind = EVENT_QUEUED,
                               .index = job->item.number,
                               .serial = job->item.serial});
}

static void push(struct node *n, struct job *job)
{
    struct queue *q = &n->mixed.queue;

    job->queued = true;
    job->next = HLG_NONE;
    if (q->tail == HLG_NONE) {
        q->head = job->item.number;
    } else {
        ((struct job *)roster_at(&n->cluster->jobs, q->tail))->next = job->item.number;
    }
    q->tail = job->item.number;
    q->count++;
}

static struct job *pop(struct node *n)
{
    struct queue *q = &n->mixed.queue;
    struct job *job = roster_at(&n->cluster->jobs, q->head);

    q->head = job->next;
    q->tail = q->head == HLG_NONE ? HLG_NONE : q->tail;
    q->count--;
    job->queued = false;
    return job;
}

void mixed_route(struct cluster *c, struct job *job)
{
    struct asked asked = {.cluster = c};

    if (c->scenario->prefill_routing == SIM_ROUTING_PREFIX) {
        asked.names = request_names(c, job->request, scenario_of(c)->engine.page_tokens);
    }
    uint32_t target = sim_router_choose(c->routers[0], cached_at, &asked);
    if (target == HLG_NONE) {
        request_failed(c, job, HLG_REASON_PEER, CLUSTER_HOMELESS_NS);
        return;
    }
    struct node *n = &c->nodes[target % c->prefills];
    if (!sim_mixed_fits(n->mixed.mixed, job->tokens, job->output)) {
        request_end(c, job, SIM_REFUSED, HLG_REASON_LOCAL);
        return;
    }
    job->node = n->index;
    job->rank = target / c->prefills;
    sim_router_load(c->routers[0], target, (int64_t)job->tokens + job->output);
    struct sim_record *record = cluster_record(c, job);
    record->prefill_node = job->node;
    record->decode_node = job->node;
    record->decode_rank = job->rank;
    if (n->mixed.open < scenario_of(c)->engine.requests_max) {
        enter(c, job);
    } else {
        push(n, job);
    }
}

static void await(struct node *n)
{
    struct cluster *c = n->cluster;
    hlg_time at = sim_mixed_next(n->mixed.mixed);

    if (at < n->mixed.at) {
        n->mixed.at = at > c->now ? at : c->now;
        heap_put(c, (struct event){.at = n->mixed.at,
                                   .kind = EVENT_MIXED,
                                   .node = n->index,
                                   .serial = n->incarnation});
    }
}

/* Names that live as long as the request is here. */
static uint32_t keep_names(struct cluster *c, struct job *job)
{
    uint32_t page_tokens = scenario_of(c)->engine.page_tokens;
    uint32_t most = (job->tokens + job->output - 1) / page_tokens; /* floor: whole pages */
    uint32_t count = hlg_min_u32(request_names(c, job->request, page_tokens), most);

    if (count > job->names_max) {
        job->names = cluster_grow(job->names, count, sizeof *job->names);
        job->names_max = count;
    }
    if (count > 0) {
        memcpy(job->names, c->names, count * sizeof *job->names);
    }
    return count;
}

void mixed_queued(struct cluster *c, struct job *job)
{
    struct node *n = &c->nodes[job->node];
    uint32_t names = keep_names(c, job);

    HLG_ASSERT(n->alive);
    job->queued_at = HLG_TIME_NEVER;
    cluster_stamp(c, job, SIM_REQUESTED, c->now);
    int error = sim_mixed_submit(n->mixed.mixed, c->now, job->rank, job->item.number, job->request,
                                 job->tokens, job->output, job->names, names);
    HLG_ASSERT(error == 0); /* it fits, and there is a place */
    await(n);
}

/* ---- what happens ------------------------------------------------------------------------- */

static void finish(struct node *n, struct job *job)
{
    struct cluster *c = n->cluster;

    cluster_stamp(c, job, SIM_FINISHED, c->now);
    cluster_tell_spans(c, job, n->index);
    request_end(c, job, SIM_DONE, HLG_REASON_NONE);
    n->mixed.open--;
    if (n->mixed.queue.head != HLG_NONE) {
        enter(c, pop(n));
    }
}

static void on_event(struct node *n, const struct sim_mixed_event *event)
{
    struct cluster *c = n->cluster;
    struct job *job = roster_at(&c->jobs, event->request);
    struct sim_record *record = cluster_record(c, job);

    record->cached_tokens = event->cached;
    record->chunks = event->chunks;
    record->preemptions = event->preemptions;
    cluster_trace(c, EVENT_MIXED, job->request, event->kind);
    switch ((enum sim_mixed_event_kind)event->kind) {
    case SIM_MIXED_STARTED:
        cluster_stamp(c, job, SIM_STARTED, event->at);
        return;
    case SIM_MIXED_COMPUTED:
        cluster_stamp(c, job, SIM_COMPUTED, event->at);
        return;
    case SIM_MIXED_FIRST:
        cluster_stamp(c, job, SIM_FIRST, event->at);
        return;
    case SIM_MIXED_FINISHED:
        record->steps = event->steps;
        finish(n, job);
        return;
    case SIM_MIXED_PREEMPTED:
        return;
    }
    hlg_unreachable();
}

void mixed_advance(struct node *n)
{
    struct sim_mixed_event events[EVENTS_MAX];
    uint32_t count = EVENTS_MAX;

    n->mixed.at = HLG_TIME_NEVER;
    sample_pages(n);
    while (count == EVENTS_MAX) {
        count = sim_mixed_advance(n->mixed.mixed, n->cluster->now, events, EVENTS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            on_event(n, &events[i]);
        }
    }
    uint32_t busy = 0;
    n->pages_used = 0;
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        n->pages_used += sim_mixed_pages_used(n->mixed.mixed, rank);
        busy += sim_mixed_computing(n->mixed.mixed, rank) + sim_mixed_running(n->mixed.mixed, rank);
    }
    sample_busy(n, busy > 0); /* the engine's own sum is of whole plans, too coarse for samples */
    await(n);
}

void mixed_sum(struct node *n)
{
    struct sim_mixed_totals totals = {0};
    struct sim_gaps gaps = {0};

    sim_mixed_totals(n->mixed.mixed, &totals);
    sim_mixed_gaps(n->mixed.mixed, &gaps);
    sim_gaps_merge(&n->cluster->run->gaps, &gaps);
    n->totals.forwards += totals.steps;
    n->totals.beyond += totals.beyond;
    n->totals.tokens_in += totals.tokens_in;
    n->totals.tokens_out += totals.tokens_out;
}

void mixed_stop(struct node *n)
{
    struct cluster *c = n->cluster;

    mixed_sum(n);
    sample_pages(n);
    sample_busy(n, false);
    n->pages_used = 0;
    n->alive = false;
    n->incarnation++;
    sim_mixed_destroy(n->mixed.mixed);
    n->mixed.mixed = NULL;
    while (n->mixed.queue.head != HLG_NONE) {
        (void)pop(n);
    }
    n->mixed.open = 0;
    for (uint32_t i = 0; i < c->jobs.count; i++) {
        struct job *job = c->jobs.items[i];
        if (job->item.used && job->node == n->index) {
            request_failed(c, job, HLG_REASON_PEER, c->scenario->network.message_ns);
        }
    }
}
