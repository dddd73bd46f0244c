/* A request's way: arrival, routing, retries, its end; and who arrives next. */
#include "cluster_internal.h"

uint32_t request_pages(uint32_t tokens, uint32_t page_tokens)
{
    return hlg_div_ceil(tokens, page_tokens);
}

uint32_t request_names(struct cluster *c, uint32_t request, uint32_t page_tokens)
{
    if (c->names_count > 0 && c->names_request == request && c->names_page_tokens == page_tokens) {
        return c->names_count;
    }
    uint32_t count = sim_workload_page_count(c->workload, request, page_tokens);

    if (count > c->names_max) {
        c->names = cluster_grow(c->names, count, sizeof *c->names);
        c->names_max = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        c->names[i] = sim_workload_page_hash(c->workload, request, page_tokens, i);
    }
    c->names_request = request;
    c->names_page_tokens = page_tokens;
    c->names_count = count;
    return count;
}

/* In an open loop: the next request in order. */
static void await_next(struct cluster *c)
{
    const struct sim_workload *w = c->workload;

    if (w->users != 0 || c->arrived >= c->limit || c->arrived >= c->gate) {
        return;
    }
    hlg_time at = hlg_time_after(w->requests[c->arrived].arrival_ns, c->shift);
    heap_put(c, (struct event){
                    .at = at > c->now ? at : c->now, .kind = EVENT_ARRIVE, .index = c->arrived});
}

/* In a closed loop: a user goes on to the next request after `pause`. */
static void go_on(struct cluster *c, hlg_time pause)
{
    if (c->arrived < c->limit && c->arrived < c->gate) {
        heap_put(c, (struct event){.at = hlg_time_after(c->now, pause),
                                   .kind = EVENT_ARRIVE,
                                   .index = c->arrived});
        c->arrived++;
    }
}

void request_begin(struct cluster *c)
{
    if (c->workload->users == 0) {
        await_next(c);
        return;
    }
    for (uint32_t user = 0; user < c->workload->users; user++) {
        go_on(c, 0);
    }
}

/* The warm-up is drained: the others may come. */
static void open_gate(struct cluster *c)
{
    c->gate = c->limit;
    if (c->workload->users == 0 && c->arrived < c->limit) {
        hlg_time first = c->workload->requests[c->arrived].arrival_ns;
        c->shift = c->now > first ? c->now - first : 0;
    }
    request_begin(c);
}

void request_arrive(struct cluster *c, uint32_t request)
{
    const struct sim_workload_request *r = &c->workload->requests[request];
    struct job *job = roster_take(&c->jobs);

    job->request = request;
    job->next = HLG_NONE;
    job->tokens = r->prompt_tokens + (c->last_token ? 0 : 1);
    job->output = r->output_tokens - (c->last_token ? 0 : 1);
    job->made = 0;
    job->failures = 0;
    job->node = HLG_NONE;
    job->rank = 0;
    job->intake = HLG_NONE;
    job->queued = false;
    job->queued_at = HLG_TIME_NEVER;
    sample_open(c);
    c->open++;
    if (c->workload->users == 0) {
        HLG_ASSERT(request == c->arrived);
        c->arrived++;
        await_next(c);
    }
    cluster_trace(c, EVENT_ARRIVE, request, 0);
    cluster_stamp(c, job, SIM_ARRIVED, c->now);
    heap_put(c, (struct event){.at = hlg_time_after(c->now, c->ingest_ns),
                               .kind = EVENT_INGESTED,
                               .index = job->item.number,
                               .serial = job->item.serial});
}

/* Whether no node could ever hold it. */
static bool is_too_long(const struct cluster *c, const struct job *job)
{
    uint32_t page_tokens = c->scenario->prefill.engine.page_tokens;

    return (uint64_t)job->tokens + job->output > HLG_TOKENS_MAX ||
           request_pages(job->tokens - 1, page_tokens) > c->kv_pages[0] ||
           request_pages(job->tokens + job->output, c->scenario->decode.engine.page_tokens) >
               c->kv_pages[1];
}

/* Put a job aside: nobody could take it. */
static void wait_homeless(struct cluster *c, struct job *job)
{
    request_failed(c, job, HLG_REASON_PEER, CLUSTER_HOMELESS_NS);
}

void request_route(struct cluster *c, struct job *job)
{
    cluster_stamp(c, job, SIM_INGESTED, c->now);
    if (c->colocated) {
        mixed_route(c, job);
        return;
    }
    if (is_too_long(c, job)) {
        request_end(c, job, job->made == 0 ? SIM_REFUSED : SIM_FAILED, HLG_REASON_LOCAL);
        return;
    }
    uint32_t target = sim_router_choose(c->routers[1], NULL, NULL);
    if (target == HLG_NONE) {
        wait_homeless(c, job);
        return;
    }
    job->node = target % c->decodes; /* targets of one node are its ranks */
    job->rank = target / c->decodes;
    sim_router_load(c->routers[1], target, (int64_t)job->tokens + job->output);
    decode_enqueue(cluster_decode_node(c, job->node), job);
}

/* Leave the decode node. */
static void leave(struct cluster *c, struct job *job)
{
    HLG_ASSERT(!job->queued && job->intake == HLG_NONE);
    if (job->node != HLG_NONE) {
        uint32_t nodes = c->colocated ? c->prefills : c->decodes;
        sim_router_load(c->routers[c->colocated ? 0 : 1], job->rank * nodes + job->node,
                        -((int64_t)job->tokens + job->output));
        job->node = HLG_NONE;
    }
    job->queued_at = HLG_TIME_NEVER;
}

/* Of an attempt that is over: the next one makes its own times. */
static void forget_times(struct cluster *c, const struct job *job)
{
    struct sim_record *record = cluster_record(c, job);

    for (uint32_t m = SIM_INGESTED; record->at[SIM_FIRST] == HLG_TIME_NEVER && m < SIM_MOMENTS;
         m++) {
        record->at[m] = HLG_TIME_NEVER;
    }
}

void request_failed(struct cluster *c, struct job *job, uint32_t reason, hlg_time pause)
{
    leave(c, job);
    cluster_trace(c, EVENT_ROUTE, job->request, reason);
    job->failures += reason != HLG_REASON_REJECTED; /* back-pressure is no failure */
    if (job->failures > CLUSTER_FAILURES_MAX) {
        request_end(c, job, SIM_FAILED, reason);
        return;
    }
    for (uint32_t i = 1; i < job->failures; i++) {
        pause *= CLUSTER_PATIENCE; /* what is wrong lasts longer than that */
    }
    cluster_record(c, job)->retries++;
    forget_times(c, job);
    heap_put(c, (struct event){.at = hlg_time_after(c->now, pause),
                               .kind = EVENT_ROUTE,
                               .index = job->item.number,
                               .serial = job->item.serial});
}

void request_preempted(struct cluster *c, struct job *job, uint32_t tokens)
{
    HLG_ASSERT(tokens < job->output);
    leave(c, job);
    job->made += tokens;
    job->tokens += tokens;
    job->output -= tokens;
    cluster_record(c, job)->preemptions++;
    forget_times(c, job);
    request_route(c, job);
}

void request_end(struct cluster *c, struct job *job, enum sim_outcome outcome, uint32_t reason)
{
    struct sim_record *record = cluster_record(c, job);

    leave(c, job);
    record->outcome = (uint32_t)outcome;
    record->reason = outcome == SIM_FAILED ? reason : HLG_REASON_NONE;
    cluster_stamp(c, job, SIM_FINISHED, c->now);
    cluster_trace(c, EVENT_ROUTE + 100, job->request, (uint64_t)outcome);
    sample_open(c);
    c->open--;
    c->finished++;
    roster_give(&c->jobs, job);
    if (c->gate < c->limit && c->finished == c->gate) {
        open_gate(c);
    } else if (c->workload->users != 0 && c->arrived < c->limit) {
        go_on(c, c->workload->requests[c->arrived].arrival_ns);
    }
}
