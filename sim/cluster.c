/* A run: set-up, the loop that interleaves the engines' events with the network's, the end. */
#include "cluster_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_TURNS 4096u

void cluster_trace(struct cluster *c, uint32_t kind, uint64_t a, uint64_t b)
{
    const uint64_t words[4] = {kind, c->now, a, b};

    for (uint32_t i = 0; i < 4; i++) {
        c->hash = (c->hash ^ words[i]) * 0x100000001b3ull; /* FNV-1a by words, folded */
        c->hash ^= c->hash >> 32;
    }
}

struct sim_record *cluster_record(const struct cluster *c, const struct job *job)
{
    return &c->run->records[job->request];
}

void cluster_stamp(struct cluster *c, const struct job *job, enum sim_moment moment, hlg_time at)
{
    struct sim_record *record = cluster_record(c, job);

    if (moment < SIM_FINISHED && record->at[SIM_FIRST] != HLG_TIME_NEVER) {
        return;
    }
    record->at[moment] = at;
}

void cluster_span(struct cluster *c, const struct sim_span *span)
{
    if (c->options->span != NULL) {
        c->options->span(c->options->context, span);
    }
}

void cluster_tell_spans(struct cluster *c, const struct job *job, uint32_t node)
{
    const struct sim_record *record = cluster_record(c, job);
    struct sim_span span = {.node = node,
                            .track = 2 + job->item.number, /* open requests have different ones */
                            .request = job->request,
                            .value = record->prompt_tokens};
    hlg_time begin = record->at[SIM_ARRIVED];

    if (c->options->span == NULL) {
        return;
    }
    for (uint32_t part = 0; part < SIM_TTFT_PARTS; part++) {
        hlg_time end = record->at[part + 1];
        if (part + 1 <= SIM_FIRST && end != HLG_TIME_NEVER && end > begin) {
            span.name = sim_part_name(part);
            span.begin = begin;
            span.end = end;
            c->options->span(c->options->context, &span);
            begin = end;
        }
    }
    span.name = "decode";
    span.begin = record->at[SIM_FIRST];
    span.end = c->now;
    span.value = record->output_tokens;
    c->options->span(c->options->context, &span);
}

/* ---- the loop ----------------------------------------------------------------------------- */

static void on_job(struct cluster *c, const struct event *event)
{
    struct job *job = roster_find(&c->jobs, event->index, event->serial);

    if (job == NULL) {
        return;
    }
    if (event->kind == EVENT_QUEUED) {
        /* Else the node that it was on its way to has died. */
        if (event->at == job->queued_at) {
            mixed_queued(c, job);
        }
    } else {
        request_route(c, job);
    }
}

static void on_node(struct cluster *c, const struct event *event)
{
    struct node *n = &c->nodes[event->node];

    if (!n->alive || event->serial != n->incarnation) {
        return;
    }
    switch ((enum event_kind)event->kind) {
    case EVENT_TICK:
        prefill_tick(n, event->index);
        return;
    case EVENT_COMPOSE:
        n->prefill.retry_armed = false;
        prefill_poke(n);
        return;
    case EVENT_BATCH:
        if (event->at == n->decoder.batch_at) {
            decode_batch(n);
        }
        return;
    case EVENT_MIXED:
        if (event->at == n->mixed.at) {
            mixed_advance(n);
        }
        return;
    case EVENT_DEADLINE:
        if (event->at == n->deadline_at) {
            n->deadline_at = HLG_TIME_NEVER;
        }
        net_dirty(n);
        return;
    case EVENT_DIAL:
        fault_dial(c, n, event->index);
        return;
    case EVENT_ARRIVE:
    case EVENT_INGESTED:
    case EVENT_ROUTE:
    case EVENT_QUEUED:
    case EVENT_DISPATCHED:
    case EVENT_NEWS:
    case EVENT_FAULT:
    case EVENT_SAMPLE:
        break;
    }
    hlg_unreachable();
}

static void on_event(struct cluster *c, const struct event *event)
{
    struct work *work = NULL;
    struct intake *intake = NULL;

    switch ((enum event_kind)event->kind) {
    case EVENT_ARRIVE:
        request_arrive(c, event->index);
        return;
    case EVENT_INGESTED:
    case EVENT_ROUTE:
    case EVENT_QUEUED:
        on_job(c, event);
        return;
    case EVENT_DISPATCHED:
        work = roster_find(&c->works, event->index, event->serial);
        if (work != NULL) {
            prefill_dispatched(&c->nodes[event->node], work);
        }
        return;
    case EVENT_NEWS:
        intake = roster_find(&c->intakes, event->index, event->serial);
        if (intake != NULL) {
            decode_news(&c->nodes[event->node], intake);
        }
        return;
    case EVENT_FAULT:
        fault_happen(c, event->index);
        return;
    case EVENT_SAMPLE:
        sample_take(c);
        return;
    case EVENT_TICK:
    case EVENT_COMPOSE:
    case EVENT_BATCH:
    case EVENT_MIXED:
    case EVENT_DEADLINE:
    case EVENT_DIAL:
        on_node(c, event);
        return;
    }
    hlg_unreachable();
}

/* Whether the run goes on. */
static bool report_progress(struct cluster *c)
{
    if (c->turns++ % PROGRESS_TURNS != 0 || c->options->progress == NULL) {
        return true;
    }
    c->run->interrupted = !c->options->progress(c->options->context, c->finished, c->limit, c->now);
    return !c->run->interrupted;
}

/* One happening of the network, or one event. Returns whether there was one before `stop`. */
static bool advance(struct cluster *c, hlg_time stop)
{
    /* Timers that go on for ever do not count when they are all there is. */
    bool some = c->heap.lasting > 0 || (c->faulty && c->heap.count > 0);
    hlg_time next = some ? c->heap.events[0].at : HLG_TIME_NEVER;
    hlg_time limit = hlg_min_time(next, stop);

    if (net_step(c, limit > c->now ? limit : c->now)) {
        net_turn(c);
        return true;
    }
    if (next == HLG_TIME_NEVER || next >= stop) {
        return false;
    }
    struct event event = heap_take(&c->heap);
    c->run->events++;
    on_event(c, &event);
    net_turn(c);
    return true;
}

/* When it ends, done or not. */
static hlg_time stop_of(const struct cluster *c)
{
    const hlg_time days = CLUSTER_DAYS_MAX * 86400 * HLG_NS_PER_S;
    const hlg_time stop = c->scenario->measure.stop_ns;

    return c->colocated ? stop : hlg_min_time(stop, days);
}

static void run_on(struct cluster *c)
{
    const hlg_time stop = stop_of(c);

    while (c->finished < c->limit && report_progress(c)) {
        if (!advance(c, stop)) {
            break;
        }
    }
    if (c->finished < c->limit && !c->run->interrupted && stop != HLG_TIME_NEVER) {
        c->now = stop;
    }
    c->run->end_ns = c->now;
}

/* ---- the ends of it ----------------------------------------------------------------------- */

static int take_memory(struct cluster *c, char *text, size_t capacity)
{
    struct sim_run *run = c->run;

    run->record_count = c->limit;
    run->node_count = c->node_count;
    run->prefill_nodes = c->prefills;
    run->records = calloc(c->limit, sizeof *run->records);
    run->nodes = calloc(c->node_count, sizeof *run->nodes);
    if (run->records == NULL || run->nodes == NULL) {
        (void)snprintf(text, capacity, "no memory for %u records", c->limit);
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < c->limit; i++) {
        const struct sim_workload_request *request = &c->workload->requests[i];
        struct sim_record *record = &run->records[i];
        *record = (struct sim_record){.request = i,
                                      .prompt_tokens = request->prompt_tokens,
                                      .output_tokens = request->output_tokens,
                                      .prefill_node = HLG_NONE,
                                      .decode_node = HLG_NONE};
        for (uint32_t m = 0; m < SIM_MOMENTS; m++) {
            record->at[m] = HLG_TIME_NEVER;
        }
    }
    return 0;
}

static int check_input(const struct cluster *c, char *text, size_t capacity)
{
    const struct sim_scenario *s = c->scenario;
    const hlg_time stop = stop_of(c);
    const hlg_time last = c->limit == 0 ? 0 : c->workload->requests[c->limit - 1].arrival_ns;

    if (c->limit == 0) {
        (void)snprintf(text, capacity, "the workload has no requests: write at least one");
        return -HLG_EINVAL;
    }
    if (stop < s->measure.stop_ns && c->workload->users == 0 && last >= stop) {
        (void)snprintf(text, capacity,
                       "traffic: the last request arrives after %" PRIu64
                       " days, and a run ends after %u: write a higher rate, or fewer requests",
                       (uint64_t)(last / (86400 * HLG_NS_PER_S)), CLUSTER_DAYS_MAX);
        return -HLG_EINVAL;
    }
    for (uint32_t i = 0; i < s->fault_count; i++) {
        const struct sim_fault *fault = &s->faults[i];
        if (c->colocated && (fault->kind == SIM_FAULT_SLOW || fault->kind == SIM_FAULT_LINK)) {
            (void)snprintf(text, capacity,
                           "faults[%u]: co-located nodes have no network; write kill or restart",
                           i);
            return -HLG_EINVAL;
        }
        if (fault->node >= (fault->decode ? c->decodes : c->prefills)) {
            (void)snprintf(text, capacity, "faults[%u].node: %u: there are fewer nodes", i,
                           fault->node);
            return -HLG_EINVAL;
        }
    }
    return 0;
}

static void begin(struct cluster *c)
{
    const struct sim_measure *measure = &c->scenario->measure;

    c->gate = measure->drain_warmup && measure->warmup_requests > 0
                  ? hlg_min_u32(measure->warmup_requests, c->limit)
                  : c->limit;
    c->pace = CLUSTER_SAMPLE_PACE_NS;
    heap_put(c, (struct event){.at = c->pace, .kind = EVENT_SAMPLE});
    fault_begin(c);
    request_begin(c);
    net_turn(c);
}

int sim_run(const struct sim_scenario *scenario, const struct sim_workload *workload,
            const struct sim_run_options *options, struct sim_run *run, char *text, size_t capacity)
{
    static const struct sim_run_options none = {0};
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    struct cluster *c = calloc(1, sizeof *c);

    if (c == NULL) {
        (void)snprintf(text, capacity, "no memory");
        return -HLG_ENOMEM;
    }
    memset(run, 0, sizeof *run);
    *c = (struct cluster){.scenario = scenario,
                          .workload = workload,
                          .options = options != NULL ? options : &none,
                          .run = run,
                          .jobs = {.free_head = HLG_NONE, .bytes = sizeof(struct job)},
                          .intakes = {.free_head = HLG_NONE, .bytes = sizeof(struct intake)},
                          .works = {.free_head = HLG_NONE, .bytes = sizeof(struct work)},
                          .colocated = colocated,
                          .prefills =
                              colocated ? scenario->colocated.nodes : scenario->prefill.nodes,
                          .decodes = colocated ? 0 : scenario->decode.nodes,
                          .last_token = colocated || scenario->decode.last_token,
                          .ingest_ns = colocated ? scenario->colocated.engine.ingest_ns
                                                 : scenario->decode.engine.ingest_ns,
                          .limit = workload->count,
                          .faulty = scenario->fault_count > 0,
                          .hash = 0xcbf29ce484222325ull};
    c->node_count = c->prefills + c->decodes;
    if (c->options->requests_max != 0) {
        c->limit = hlg_min_u32(c->limit, c->options->requests_max);
    }
    int error = check_input(c, text, capacity);
    if (error == 0) {
        error = take_memory(c, text, capacity);
    }
    if (error == 0) {
        error = colocated ? mixed_open(c, text, capacity) : cluster_open(c, text, capacity);
    }
    if (error == 0) {
        begin(c);
        run_on(c);
        cluster_sum(c);
    }
    cluster_close(c);
    free(c);
    if (error != 0) {
        sim_run_fini(run);
    }
    return error;
}

void sim_run_fini(struct sim_run *run)
{
    free(run->records);
    free(run->nodes);
    memset(run, 0, sizeof *run);
}
