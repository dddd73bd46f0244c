#include "report.h"

#include <inttypes.h>

#define DIGITS 10u /* significant ones, of reals */

const char *sim_version(void)
{
    return HALAGE_VERSION;
}

static json_t *hex(uint64_t value)
{
    char text[17];

    (void)snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

/* NaN and infinity have no JSON: they would be errors of ours, and show as null. */
static json_t *real(double value)
{
    json_t *json = json_real(value);
    return json != NULL ? json : json_null();
}

static json_t *boolean(bool value)
{
    return value ? json_true() : json_false();
}

static json_t *summary(const struct sim_summary *s)
{
    return json_pack(
        "{sI sI so so so so so so so so sI sb sb}", "count", (json_int_t)s->count, "open_count",
        (json_int_t)s->open_count, "mean", s->mean_count == 0 ? json_null() : real(s->mean), "low",
        s->batches == 0 ? json_null() : real(s->low), "high",
        s->batches == 0 ? json_null() : real(s->high), "p50",
        s->count == 0 ? json_null() : real(s->p50), "p90",
        s->count == 0 ? json_null() : real(s->p90), "p99",
        s->count == 0 ? json_null() : real(s->p99), "max",
        s->count == 0 ? json_null() : real(s->max), "lower_bound",
        s->count == 0 ? json_null()
                      : json_pack("{sb sb sb sb}", "p50", s->p50_open, "p90", s->p90_open, "p99",
                                  s->p99_open, "max", s->max_open),
        "batches", (json_int_t)s->batches, "wide", s->wide, "correlated", s->correlated);
}

static json_t *basis(const struct sim_run *run, uint32_t side, const char *version)
{
    const struct sim_cost_basis *b = &run->basis[side];
    uint64_t beyond = 0;
    const uint64_t steps = sim_report_steps(run, side == 1, &beyond);

    return json_pack("{ss ss ss sb ss so so sI sI}", "calibration", b->id, "engine", b->engine,
                     "engine_version", version, "extrapolated", b->extrapolated, "why", b->why,
                     "step_overhead_us", real(b->step_overhead_ns / 1000), "layer_overhead_us",
                     real(b->layer_overhead_ns / 1000), "steps", (json_int_t)steps, "steps_beyond",
                     (json_int_t)beyond);
}

json_t *sim_report_origin(const struct sim_scenario *scenario, const struct sim_run *run,
                          const struct sim_metrics *metrics)
{
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    json_t *sides = json_array();

    if (sides == NULL) {
        return NULL;
    }
    (void)json_array_append_new(sides, basis(run, 0,
                                             colocated ? scenario->colocated.engine.version
                                                       : scenario->prefill.engine.version));
    if (!colocated) {
        (void)json_array_append_new(sides, basis(run, 1, scenario->decode.engine.version));
    }
    return json_pack("{ss ss so sI so ss ss so sb}", "program", "halage-sim", "version",
                     sim_version(), "scenario_digest", hex(metrics->digest), "seed",
                     (json_int_t)scenario->seed, "cost", sides, "name", scenario->name, "question",
                     scenario->question, "trace_hash", hex(run->trace_hash), "folded", run->folded);
}

static json_t *latencies(const struct sim_metrics *m)
{
    json_t *parts = json_object();

    if (parts == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < SIM_TTFT_PARTS; i++) {
        (void)json_object_set_new(parts, sim_part_name(i), summary(&m->part_ms[i]));
    }
    return json_pack("{so so so so so so so}", "ttft_ms", summary(&m->ttft_ms), "ttft_parts_ms",
                     parts, "tpot_ms", summary(&m->tpot_ms), "itl_ms", summary(&m->itl_ms),
                     "e2e_per_output_token_ms", summary(&m->e2e_per_token_ms), "e2e_ms",
                     summary(&m->e2e_ms), "speed_tokens_per_s", summary(&m->speed_tps));
}

static json_t *requests(const struct sim_run *run, const struct sim_metrics *m)
{
    return json_pack("{sI sI sI sI sI sI sI sb}", "measured", (json_int_t)m->requests, "finished",
                     (json_int_t)m->finished, "unfinished", (json_int_t)m->unfinished, "failed",
                     (json_int_t)m->failed, "refused", (json_int_t)m->refused, "preemptions",
                     (json_int_t)m->preemptions, "all", (json_int_t)run->record_count,
                     "interrupted", run->interrupted);
}

static json_t *throughput(const struct sim_metrics *m)
{
    return json_pack("{so so so so so so so so so sI}", "window_begin_s",
                     real((double)m->window_begin_ns / (double)HLG_NS_PER_S), "window_s",
                     real(m->window_s), "arrivals_per_s", real(m->arrival_rate), "finished_per_s",
                     real(m->request_rate), "goodput_per_s", real(m->goodput), "input_tokens_per_s",
                     real(m->input_tps), "output_tokens_per_s", real(m->output_tps),
                     "input_tokens_per_s_per_gpu", real(m->input_tps_per_gpu),
                     "output_tokens_per_s_per_gpu", real(m->output_tps_per_gpu), "gpus",
                     (json_int_t)m->gpus);
}

static json_t *use(const struct sim_metrics *m)
{
    return json_pack("{so so so so so so so so so so so so so so so}", "prefill_busy",
                     real(m->prefill_busy), "decode_busy", real(m->decode_busy), "prefill_kv",
                     real(m->prefill_kv), "decode_kv", real(m->decode_kv), "nic_out",
                     real(m->nic_out), "nic_out_busiest", real(m->nic_out_max), "nic_in",
                     real(m->nic_in), "nic_in_busiest", real(m->nic_in_max), "batch_mean",
                     real(m->batch_mean), "held_mean", real(m->held_mean), "page_wait_share",
                     real(m->waiting_share), "held_when_waiting", real(m->waiting_held),
                     "limit_batch", real(m->limit_batch), "queue_mean", real(m->queue_mean),
                     "cached_share", real(m->cached_share));
}

json_t *sim_report_json(const struct sim_scenario *scenario, const struct sim_run *run,
                        const struct sim_metrics *metrics)
{
    const struct sim_measure *measure = &scenario->measure;
    json_t *slo = metrics->slo
                      ? json_pack("{so so so so so sI}", "ttft_ms",
                                  real(measure->slo_ttft_ns / (double)HLG_NS_PER_MS), "tpot_ms",
                                  real(measure->slo_tpot_ns / (double)HLG_NS_PER_MS), "share",
                                  real(metrics->slo_share), "low", real(metrics->slo_low), "high",
                                  real(metrics->slo_high), "met", (json_int_t)metrics->slo_hits)
                      : json_null();

    return json_pack(
        "{so so so so so so ss so so so so}", "origin", sim_report_origin(scenario, run, metrics),
        "requests", requests(run, metrics), "latency", latencies(metrics), "throughput",
        throughput(metrics), "use", use(metrics), "slo", slo, "limit", metrics->limit, "overloaded",
        boolean(metrics->overloaded), "kv_tokens",
        json_pack("[II]", (json_int_t)run->kv_tokens[0], (json_int_t)run->kv_tokens[1]), "network",
        json_pack("{sI sI sI sI sI}", "flows", (json_int_t)run->flows, "messages",
                  (json_int_t)run->messages, "bytes_posted", (json_int_t)run->bytes_posted,
                  "bytes_landed", (json_int_t)run->bytes_landed, "bytes_planned",
                  (json_int_t)run->bytes_planned),
        "end_s", real((double)run->end_ns / (double)HLG_NS_PER_S));
}

int sim_report_json_write(FILE *file, const json_t *json)
{
    if (json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS)) != 0 ||
        fputc('\n', file) == EOF) {
        return -HLG_EIO;
    }
    return 0;
}
