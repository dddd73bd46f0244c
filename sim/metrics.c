#include "metrics.h"

#include <math.h>
#include <stdlib.h>

#define MS            ((double)HLG_NS_PER_MS)
#define FULL_SHARE    0.9  /* a resource that is used more is called the limit */
#define WAITING_SHARE 0.25 /* of the window, with requests waiting for pages: the same */
#define SLOTS_SHARE   0.95 /* of all slots, in the mean over the window: the same */
#define SAMPLES_MIN   8u   /* in the window, else totals of the run stand in */
#define GROWTH_SHARE  0.02 /* of the arrivals that must be left in the queue: overload */
#define GROWTH_MIN    4.0  /* requests */
#define QUARTERS      4u

struct window {
    hlg_time begin;
    hlg_time end;
};

static double span_ns(hlg_time begin, hlg_time end)
{
    return end > begin ? (double)(end - begin) : 0;
}

/* Of [begin, end), what lies in the window. */
static double clipped(const struct window *window, hlg_time begin, hlg_time end)
{
    return span_ns(begin > window->begin ? begin : window->begin,
                   end < window->end ? end : window->end);
}

static bool reached(const struct sim_record *record, enum sim_moment moment)
{
    return record->at[moment] != HLG_TIME_NEVER;
}

/* When it was there, or else the end of the run. */
static hlg_time moment_or_end(const struct sim_run *run, const struct sim_record *record,
                              enum sim_moment moment)
{
    return reached(record, moment) ? record->at[moment] : run->end_ns;
}

/* When it left the system, or else the end of the run. */
static hlg_time left_at(const struct sim_run *run, const struct sim_record *record)
{
    return moment_or_end(run, record, SIM_FINISHED);
}

static double tpot_ns(const struct sim_record *record)
{
    HLG_ASSERT(record->output_tokens > 1);
    return span_ns(record->at[SIM_FIRST], record->at[SIM_FINISHED]) /
           (double)(record->output_tokens - 1);
}

bool sim_metrics_meets(const struct sim_scenario *scenario, const struct sim_record *record)
{
    const struct sim_measure *measure = &scenario->measure;

    if (record->outcome != SIM_DONE) {
        return false;
    }
    const double ttft = span_ns(record->at[SIM_ARRIVED], record->at[SIM_FIRST]);
    const double tpot = record->output_tokens > 1 ? tpot_ns(record) : 0;
    return (measure->slo_ttft_ns <= 0 || ttft <= measure->slo_ttft_ns) &&
           (measure->slo_tpot_ns <= 0 || tpot <= measure->slo_tpot_ns);
}

/* ---- Which requests, which time ---- */

static bool measured(const struct sim_scenario *scenario, const struct sim_record *record)
{
    const struct sim_measure *measure = &scenario->measure;
    const hlg_time at = record->at[SIM_ARRIVED];

    return at != HLG_TIME_NEVER && record->request >= measure->warmup_requests &&
           at >= measure->warmup_ns && at < hlg_time_after(measure->warmup_ns, measure->window_ns);
}

/* When the last request arrived. */
static hlg_time last_arrival(const struct sim_run *run)
{
    hlg_time last = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const hlg_time at = run->records[i].at[SIM_ARRIVED];
        last = at != HLG_TIME_NEVER && at > last ? at : last;
    }
    return last;
}

static struct window window_of(const struct sim_scenario *scenario,
                               const struct sim_workload *workload, const struct sim_run *run)
{
    const struct sim_measure *measure = &scenario->measure;
    struct window window = {measure->warmup_ns, run->end_ns};

    if (measure->warmup_requests != 0) {
        hlg_time first = HLG_TIME_NEVER;
        for (uint32_t i = 0; i < run->record_count; i++) {
            if (measured(scenario, &run->records[i])) {
                first = hlg_min_time(first, run->records[i].at[SIM_ARRIVED]);
            }
        }
        window.begin = first;
    }
    window.end = hlg_min_time(run->end_ns, hlg_time_after(measure->warmup_ns, measure->window_ns));
    window.begin = hlg_min_time(window.begin, window.end);
    if (measure->window_ns == HLG_TIME_NEVER && workload->users == 0) {
        /* Once arrivals cease the cluster runs empty: no rate of that time is one that it has. */
        const hlg_time last = hlg_min_time(last_arrival(run), window.end);
        if (last > window.begin && last - window.begin >= (window.end - window.begin) / 2) {
            window.end = last;
        }
    }
    return window;
}

/* ---- Latencies ---- */

/* Time between two moments, or the time waited for the second. False: the first was not reached. */
static bool waited(const struct sim_run *run, const struct sim_record *record, uint32_t from,
                   uint32_t to, struct sim_value *value)
{
    if (!reached(record, from)) {
        return false;
    }
    value->open = !reached(record, to);
    value->value = span_ns(record->at[from], moment_or_end(run, record, to)) / MS;
    return true;
}

/* A latency of a request. Returns whether it has one. */
static bool latency_of(const struct sim_run *run, const struct sim_record *record, uint32_t latency,
                       struct sim_value *value)
{
    const bool done = record->outcome == SIM_DONE;

    *value = (struct sim_value){0};
    if (record->outcome == SIM_REFUSED) {
        return false;
    }
    if (latency < SIM_LATENCY_TTFT) {
        const bool has = waited(run, record, latency, latency + 1, value);
        value->counted = has && reached(record, SIM_FIRST);
        return has;
    }
    switch ((enum sim_latency)latency) {
    case SIM_LATENCY_TTFT:
        (void)waited(run, record, SIM_ARRIVED, SIM_FIRST, value);
        break;
    case SIM_LATENCY_E2E:
        value->open = !done;
        value->value =
            span_ns(record->at[SIM_ARRIVED], done ? record->at[SIM_FINISHED] : run->end_ns) / MS;
        break;
    case SIM_LATENCY_TPOT:
    case SIM_LATENCY_SPEED:
        if (!done || record->output_tokens < 2) {
            return false;
        }
        value->value = tpot_ns(record) / MS;
        if (latency == SIM_LATENCY_SPEED) {
            if (value->value <= 0) {
                return false;
            }
            value->value = 1000 / value->value;
        }
        break;
    case SIM_LATENCY_E2E_PER_TOKEN:
        if (!done) {
            return false;
        }
        value->value = span_ns(record->at[SIM_ARRIVED], record->at[SIM_FINISHED]) / MS /
                       (double)record->output_tokens;
        break;
    case SIM_LATENCY_PART:
    case SIM_LATENCIES:
        hlg_unreachable();
    }
    value->counted = !value->open;
    return true;
}

uint64_t sim_metrics_values(const struct sim_scenario *scenario, const struct sim_run *run,
                            uint32_t latency, struct sim_value *values)
{
    uint64_t count = 0;

    HLG_ASSERT(latency < SIM_LATENCIES);
    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        if (measured(scenario, record) && latency_of(run, record, latency, &values[count])) {
            count++;
        }
    }
    return count;
}

static struct sim_summary *summary_of(struct sim_metrics *metrics, uint32_t latency)
{
    switch ((enum sim_latency)latency) {
    case SIM_LATENCY_TTFT:
        return &metrics->ttft_ms;
    case SIM_LATENCY_TPOT:
        return &metrics->tpot_ms;
    case SIM_LATENCY_E2E_PER_TOKEN:
        return &metrics->e2e_per_token_ms;
    case SIM_LATENCY_E2E:
        return &metrics->e2e_ms;
    case SIM_LATENCY_SPEED:
        return &metrics->speed_tps;
    case SIM_LATENCY_PART:
    case SIM_LATENCIES:
        break;
    }
    HLG_ASSERT(latency < SIM_TTFT_PARTS);
    return &metrics->part_ms[latency];
}

/* From the fast side: what so many users have at least. */
static void turn_speed(const struct sim_summary *tpot, struct sim_summary *speed)
{
    speed->p50 = tpot->p50 > 0 ? 1000 / tpot->p50 : 0;
    speed->p90 = tpot->p90 > 0 ? 1000 / tpot->p90 : 0;
    speed->p99 = tpot->p99 > 0 ? 1000 / tpot->p99 : 0;
    speed->max = tpot->max > 0 ? 1000 / tpot->max : 0;
}

static void latencies(const struct sim_scenario *scenario, const struct sim_run *run,
                      struct sim_value *values, struct sim_metrics *metrics)
{
    for (uint32_t latency = 0; latency < SIM_LATENCIES; latency++) {
        const uint64_t count = sim_metrics_values(scenario, run, latency, values);
        sim_summarise(values, count, summary_of(metrics, latency));
    }
    turn_speed(&metrics->tpot_ms, &metrics->speed_tps);
}

/* ---- Gaps between tokens: a histogram with eight buckets to a factor of two ---- */

/* Upper end of a bucket, in milliseconds: 2^((bucket + 1) / 8) microseconds. */
static double gap_end_ms(uint32_t bucket)
{
    static const double eighths[8] = {
        1.0,
        1.0905077326652577,
        1.1892071150027210,
        1.2968395546510096,
        1.4142135623730951,
        1.5422108254079408,
        1.6817928305074290,
        1.8340080864093424,
    };
    const uint32_t power = bucket + 1;
    return ldexp(eighths[power % 8], (int)(power / 8)) / 1000;
}

static double gap_quantile(const struct sim_gaps *gaps, uint64_t count, uint32_t percent)
{
    const uint64_t rank = (count / 100) * percent + (count % 100 * percent + 99) / 100;
    uint64_t seen = gaps->bursts;

    if (seen >= rank) {
        return 0;
    }
    for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
        seen += gaps->count[i];
        if (seen >= rank) {
            return gap_end_ms(i);
        }
    }
    hlg_unreachable();
}

static void gap_summary(const struct sim_gaps *gaps, struct sim_summary *summary)
{
    uint64_t count = gaps->bursts;

    *summary = (struct sim_summary){.wide = false};
    for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
        count += gaps->count[i];
    }
    summary->count = summary->mean_count = count;
    if (count == 0) {
        return;
    }
    summary->mean = summary->low = summary->high = gaps->sum_ns / (double)count / MS;
    summary->p50 = gap_quantile(gaps, count, 50);
    summary->p90 = gap_quantile(gaps, count, 90);
    summary->p99 = gap_quantile(gaps, count, 99);
    summary->max = gap_quantile(gaps, count, 100);
}

/* ---- Counts and rates ---- */

static void count_measured(const struct sim_scenario *scenario, const struct sim_run *run,
                           struct sim_metrics *metrics)
{
    uint64_t prompt = 0;
    uint64_t cached = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        if (!measured(scenario, record)) {
            continue;
        }
        metrics->requests++;
        metrics->finished += record->outcome == SIM_DONE;
        metrics->unfinished += record->outcome == SIM_UNFINISHED;
        metrics->failed += record->outcome == SIM_FAILED;
        metrics->refused += record->outcome == SIM_REFUSED;
        metrics->preemptions += record->preemptions;
        metrics->slo_hits += sim_metrics_meets(scenario, record);
        prompt += record->prompt_tokens;
        cached += record->cached_tokens;
    }
    metrics->slo = scenario->measure.slo_ttft_ns > 0 || scenario->measure.slo_tpot_ns > 0;
    metrics->slo_share =
        metrics->requests == 0 ? 0 : (double)metrics->slo_hits / (double)metrics->requests;
    sim_wilson(metrics->slo_hits, metrics->requests, &metrics->slo_low, &metrics->slo_high);
    metrics->cached_share = prompt == 0 ? 0 : (double)cached / (double)prompt;
}

static bool inside(const struct window *window, hlg_time at)
{
    return at != HLG_TIME_NEVER && at >= window->begin && at <= window->end;
}

static void rates(const struct sim_scenario *scenario, const struct sim_run *run,
                  const struct window *window, struct sim_metrics *metrics)
{
    uint64_t arrived = 0;
    uint64_t finished = 0;
    uint64_t good = 0;
    uint64_t input = 0;
    uint64_t output = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        arrived += inside(window, record->at[SIM_ARRIVED]);
        if (record->outcome == SIM_DONE && inside(window, record->at[SIM_FINISHED])) {
            finished++;
            good += sim_metrics_meets(scenario, record);
            input += record->prompt_tokens;
            output += record->output_tokens;
        }
    }
    metrics->window_begin_ns = window->begin;
    metrics->window_end_ns = window->end;
    metrics->window_s = span_ns(window->begin, window->end) / (double)HLG_NS_PER_S;
    if (metrics->window_s <= 0) {
        return;
    }
    metrics->arrival_rate = (double)arrived / metrics->window_s;
    metrics->request_rate = (double)finished / metrics->window_s;
    metrics->goodput = (double)good / metrics->window_s;
    metrics->input_tps = (double)input / metrics->window_s;
    metrics->output_tps = (double)output / metrics->window_s;
    metrics->input_tps_per_gpu = metrics->input_tps / metrics->gpus;
    metrics->output_tps_per_gpu = metrics->output_tps / metrics->gpus;
}

static uint32_t gpus_of(const struct sim_scenario *scenario)
{
    if (scenario->serving == SIM_SERVING_COLOCATED) {
        return scenario->colocated.nodes * scenario->colocated.engine.gpus;
    }
    return scenario->prefill.nodes * scenario->prefill.engine.gpus +
           scenario->decode.nodes * scenario->decode.engine.gpus;
}

/* ---- Use of nodes and NICs ---- */

static void use_of_totals(const struct sim_run *run, struct sim_metrics *metrics)
{
    const double end = run->end_ns == 0 ? 1 : (double)run->end_ns;
    double busy[2] = {0, 0};
    double kv[2] = {0, 0};
    double nic[2] = {0, 0};
    double nic_max[2] = {0, 0};
    uint32_t count[2] = {0, 0};
    uint32_t nics[2] = {0, 0};

    for (uint32_t i = 0; i < run->node_count; i++) {
        const struct sim_node_totals *node = &run->nodes[i];
        const uint32_t side = i >= run->prefill_nodes;
        busy[side] += node->busy_ns / end;
        kv[side] += node->kv_pages == 0 ? 0 : node->kv_page_ns / end / node->kv_pages;
        nic[side] += node->nic_busy_ns / end;
        nics[side] += node->nics;
        if (node->nics != 0 && node->nic_busy_ns / end / node->nics > nic_max[side]) {
            nic_max[side] = node->nic_busy_ns / end / node->nics;
        }
        count[side]++;
    }
    metrics->prefill_busy = count[0] == 0 ? 0 : busy[0] / count[0];
    metrics->decode_busy = count[1] == 0 ? 0 : busy[1] / count[1];
    metrics->prefill_kv = count[0] == 0 ? 0 : kv[0] / count[0];
    metrics->decode_kv = count[1] == 0 ? 0 : kv[1] / count[1];
    metrics->nic_out = nics[0] == 0 ? 0 : nic[0] / nics[0];
    metrics->nic_in = nics[1] == 0 ? 0 : nic[1] / nics[1];
    metrics->nic_out_max = nic_max[0];
    metrics->nic_in_max = nic_max[1];
}

/* Means over the samples of the window, each weighted with the time since the one before. */
static void use_of_series(const struct sim_run *run, const struct window *window,
                          struct sim_metrics *metrics)
{
    struct sim_metrics mean = *metrics;
    hlg_time last = 0;
    double weight = 0;
    uint32_t count = 0;

    mean.prefill_kv = mean.decode_kv = mean.prefill_busy = 0;
    mean.nic_out = mean.nic_in = mean.nic_out_max = mean.nic_in_max = 0;
    for (uint32_t i = 0; i < run->series_count; i++) {
        const struct sim_sample *sample = &run->series[i];
        const double w = clipped(window, last, sample->at);
        last = sample->at;
        count += w > 0;
        weight += w;
        mean.prefill_busy += w * (double)sample->prefill_busy;
        mean.prefill_kv += w * (double)sample->prefill_kv;
        mean.decode_kv += w * (double)sample->decode_kv;
        mean.nic_out += w * (double)sample->nic_out;
        mean.nic_in += w * (double)sample->nic_in;
        mean.nic_out_max += w * (double)sample->nic_out_max;
        mean.nic_in_max += w * (double)sample->nic_in_max;
    }
    if (count < SAMPLES_MIN) {
        return;
    }
    metrics->prefill_busy = mean.prefill_busy / weight;
    metrics->prefill_kv = mean.prefill_kv / weight;
    metrics->decode_kv = mean.decode_kv / weight;
    metrics->nic_out = mean.nic_out / weight;
    metrics->nic_in = mean.nic_in / weight;
    metrics->nic_out_max = mean.nic_out_max / weight;
    metrics->nic_in_max = mean.nic_in_max / weight;
}

/* ---- Sequences of nodes ---- */

/* At `at`, a node's count of holders, or of waiting requests, changes. */
struct change {
    hlg_time at;
    uint32_t node;
    int8_t held;
    int8_t waiting;
};

static int compare_changes(const void *a, const void *b)
{
    const struct change *left = a;
    const struct change *right = b;

    if (left->node != right->node) {
        return left->node < right->node ? -1 : 1;
    }
    return left->at < right->at ? -1 : left->at > right->at;
}

static uint32_t decode_nodes(const struct sim_run *run)
{
    const uint32_t count = run->node_count - run->prefill_nodes;
    return count == 0 ? run->prefill_nodes : count; /* co-located: all of them */
}

/* [4 * records] of changes; returns how many, and whether any request waited. */
static uint64_t list_changes(const struct sim_run *run, struct change *changes, bool *any_waited)
{
    uint64_t count = 0;

    *any_waited = false;
    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        const uint32_t node =
            record->decode_node != HLG_NONE ? record->decode_node : record->prefill_node;
        if (node == HLG_NONE || !reached(record, SIM_INGESTED) || record->outcome == SIM_REFUSED) {
            continue;
        }
        const hlg_time left = left_at(run, record);
        const hlg_time submitted = hlg_min_time(left, moment_or_end(run, record, SIM_SUBMITTED));
        if (submitted > record->at[SIM_INGESTED]) {
            *any_waited = true;
            changes[count++] = (struct change){record->at[SIM_INGESTED], node, 0, 1};
            changes[count++] = (struct change){submitted, node, 0, -1};
        }
        if (left > submitted) {
            changes[count++] = (struct change){submitted, node, 1, 0};
            changes[count++] = (struct change){left, node, -1, 0};
        }
    }
    return count;
}

/* While requests wait for pages or a slot of their node: how often, and how many hold pages. */
static void holders(const struct sim_run *run, const struct window *window, struct change *changes,
                    struct sim_metrics *metrics)
{
    bool any_waited = false;
    const uint64_t count = list_changes(run, changes, &any_waited);
    const double whole = span_ns(window->begin, window->end) * decode_nodes(run);
    double waiting_ns = 0;
    double waiting_held = 0;
    double held_ns = 0;
    int64_t held = 0;
    int64_t waiting = 0;

    if (!any_waited) { /* pairs of begin and end: their order does not matter */
        for (uint64_t i = 0; i < count; i += 2) {
            held_ns += clipped(window, changes[i].at, changes[i + 1].at);
        }
        metrics->held_mean = whole <= 0 ? 0 : held_ns / whole;
        return;
    }
    qsort(changes, count, sizeof *changes, compare_changes);
    for (uint64_t i = 0; i < count; i++) {
        held += changes[i].held;
        waiting += changes[i].waiting;
        if (i + 1 == count || changes[i + 1].node != changes[i].node) {
            HLG_ASSERT(held == 0 && waiting == 0);
            continue;
        }
        const double time = clipped(window, changes[i].at, changes[i + 1].at);
        held_ns += time * (double)held;
        waiting_ns += waiting > 0 ? time : 0;
        waiting_held += waiting > 0 ? time * (double)held : 0;
    }
    metrics->held_mean = whole <= 0 ? 0 : held_ns / whole;
    metrics->waiting_share = whole <= 0 ? 0 : waiting_ns / whole;
    metrics->waiting_held = waiting_ns <= 0 ? 0 : waiting_held / waiting_ns;
}

/* Requests that wait for their first token, mean over [begin, end). */
static double queue_mean(const struct sim_run *run, const struct window *window)
{
    double sum = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        if (reached(record, SIM_ARRIVED)) {
            const hlg_time until =
                reached(record, SIM_FIRST) ? record->at[SIM_FIRST] : left_at(run, record);
            sum += clipped(window, record->at[SIM_ARRIVED], until);
        }
    }
    const double length = span_ns(window->begin, window->end);
    return length <= 0 ? 0 : sum / length;
}

/* Quarter by quarter the queue grows, by more than chance lets it. */
static bool overloaded(const struct sim_workload *workload, const struct sim_run *run,
                       const struct window *window)
{
    struct window arrivals = {window->begin, window->begin};
    double queue[QUARTERS];
    uint64_t count = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const hlg_time at = run->records[i].at[SIM_ARRIVED];
        if (inside(window, at)) {
            arrivals.end = at > arrivals.end ? at : arrivals.end;
            count++;
        }
    }
    const hlg_time length = arrivals.end - arrivals.begin;
    if (workload->users != 0 || length < QUARTERS) {
        return false;
    }
    for (uint32_t i = 0; i < QUARTERS; i++) {
        const struct window quarter = {
            arrivals.begin + length / QUARTERS * i, /* floored: the rest is left out */
            arrivals.begin + length / QUARTERS * (i + 1),
        };
        queue[i] = queue_mean(run, &quarter);
        if (i != 0 && queue[i] <= queue[i - 1]) {
            return false;
        }
    }
    const double growth = queue[QUARTERS - 1] - queue[0];
    return growth >= GROWTH_MIN && growth >= GROWTH_SHARE * (double)count;
}

static double batch_mean(const struct sim_run *run, const struct window *window)
{
    double sum = 0;

    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        if (reached(record, SIM_STEPPED)) {
            sum += clipped(window, record->at[SIM_STEPPED], left_at(run, record));
        }
    }
    const double whole = span_ns(window->begin, window->end) * decode_nodes(run);
    return whole <= 0 ? 0 : sum / whole;
}

/* ---- What is fullest ---- */

/* A prefill node or NIC that is always busy is the cause where decode nodes are full as well: they hold
 * pages for what waits for it. Sets metrics->limit and limit_batch. */
static void find_limit(const struct sim_scenario *scenario, struct sim_metrics *metrics)
{
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    const struct sim_engine *engine =
        colocated ? &scenario->colocated.engine : &scenario->decode.engine;
    const uint32_t rank_slots =
        colocated ? scenario->colocated.sequences_max : scenario->decode.sequences_max;
    const double slots = (double)rank_slots * engine->dp;
    const double network =
        metrics->nic_out_max > metrics->nic_in_max ? metrics->nic_out_max : metrics->nic_in_max;

    metrics->limit = "none";
    if (!colocated && metrics->prefill_busy >= FULL_SHARE && metrics->prefill_busy >= network) {
        metrics->limit = "prefill";
    } else if (!colocated && network >= FULL_SHARE) {
        metrics->limit = "network";
    } else if (metrics->batch_mean >= SLOTS_SHARE * slots) {
        metrics->limit = colocated ? "batch slots" : "decode batch slots";
        metrics->limit_batch = metrics->batch_mean;
    } else if (metrics->waiting_share > WAITING_SHARE) {
        metrics->limit = colocated ? "KV" : "decode KV";
        metrics->limit_batch = metrics->waiting_held;
    } else if (colocated && metrics->overloaded) {
        metrics->limit = "engine";
    }
}

int sim_metrics(const struct sim_scenario *scenario, const struct sim_workload *workload,
                const struct sim_run *run, struct sim_metrics *metrics)
{
    const size_t records = run->record_count == 0 ? 1 : run->record_count;
    const struct window window = window_of(scenario, workload, run);
    struct sim_value *values = malloc(records * sizeof *values);
    struct change *changes = malloc(4 * records * sizeof *changes);

    if (values == NULL || changes == NULL) {
        free(values);
        free(changes);
        return -HLG_ENOMEM;
    }
    *metrics = (struct sim_metrics){
        .digest = sim_scenario_digest(scenario),
        .gpus = gpus_of(scenario),
    };
    latencies(scenario, run, values, metrics);
    gap_summary(&run->gaps, &metrics->itl_ms);
    count_measured(scenario, run, metrics);
    rates(scenario, run, &window, metrics);
    use_of_totals(run, metrics);
    use_of_series(run, &window, metrics);
    holders(run, &window, changes, metrics);
    metrics->batch_mean = batch_mean(run, &window);
    metrics->queue_mean = queue_mean(run, &window);
    metrics->overloaded = overloaded(workload, run, &window);
    find_limit(scenario, metrics);
    free(values);
    free(changes);
    return 0;
}
