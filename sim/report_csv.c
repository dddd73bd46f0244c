#include "report.h"

#include <inttypes.h>
#include <string.h>

static void origin_line(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                        const struct sim_metrics *metrics)
{
    const bool extrapolated = run->basis[0].extrapolated || run->basis[1].extrapolated;
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;

    (void)fprintf(file, "# halage-sim %s scenario %016" PRIx64 " seed %" PRIu64 " calibration %s",
                  sim_version(), metrics->digest, scenario->seed, run->basis[0].id);
    if (!colocated && strcmp(run->basis[0].id, run->basis[1].id) != 0) {
        (void)fprintf(file, "/%s", run->basis[1].id);
    }
    (void)fprintf(file, " engine %s %s", run->basis[0].engine,
                  colocated ? scenario->colocated.engine.version
                            : scenario->prefill.engine.version);
    (void)fprintf(file, " extrapolated %s\n", extrapolated ? "yes" : "no");
}

static void number(FILE *file, uint32_t value)
{
    if (value != HLG_NONE) {
        (void)fprintf(file, ",%" PRIu32, value);
    } else {
        (void)fputc(',', file);
    }
}

static void row(FILE *file, const struct sim_record *record, const struct sim_run *run)
{
    (void)fprintf(file,
                  "%" PRIu32 ",%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32
                  ",%" PRIu32 ",%" PRIu64,
                  record->request, sim_outcome_name(record->outcome), record->prompt_tokens,
                  record->output_tokens, record->cached_tokens, record->chunks, record->steps,
                  record->preemptions, record->bytes);
    number(file, record->prefill_node);
    number(file, record->decode_node);
    number(file, record->decode_rank);
    for (uint32_t i = 0; i < SIM_MOMENTS; i++) {
        if (record->at[i] == HLG_TIME_NEVER) {
            (void)fputc(',', file);
        } else {
            (void)fprintf(file, ",%" PRIu64, record->at[i]);
        }
    }
    const uint64_t waited =
        record->at[SIM_ARRIVED] > run->end_ns ? 0 : run->end_ns - record->at[SIM_ARRIVED];
    const bool first = record->at[SIM_FIRST] != HLG_TIME_NEVER;
    const uint64_t ttft = first ? record->at[SIM_FIRST] - record->at[SIM_ARRIVED] : waited;
    (void)fprintf(file, ",%" PRIu64 ",%s\n", ttft, first ? "exact" : "at least");
}

int sim_report_csv(FILE *file, const struct sim_scenario *scenario,
                   const struct sim_workload *workload, const struct sim_run *run,
                   const struct sim_metrics *metrics)
{
    HLG_ASSERT(run->record_count <= workload->count);
    origin_line(file, scenario, run, metrics);
    (void)fputs("request,outcome,prompt_tokens,output_tokens,cached_tokens,chunks,decode_steps,"
                "preemptions,landed_bytes,prefill_node,decode_node,decode_rank",
                file);
    for (uint32_t i = 0; i < SIM_MOMENTS; i++) {
        (void)fprintf(file, ",%s_ns", sim_moment_name(i));
    }
    (void)fputs(",ttft_ns,ttft_is\n", file);
    for (uint32_t i = 0; i < run->record_count; i++) {
        row(file, &run->records[i], run);
    }
    return ferror(file) != 0 ? -HLG_EIO : 0;
}

int sim_report_series(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                      const struct sim_metrics *metrics)
{
    origin_line(file, scenario, run, metrics);
    (void)fputs("time_s\tprefill_queue\tdecode_running\tdecode_waiting\tprefill_busy\tprefill_kv\t"
                "decode_kv\tnic_out\tnic_out_busiest\tnic_in\tnic_in_busiest\n",
                file);
    for (uint32_t i = 0; i < run->series_count; i++) {
        const struct sim_sample *s = &run->series[i];
        (void)fprintf(file,
                      "%.6f\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32
                      "\t%.5f\t%.5f\t%.5f\t%.5f\t%.5f\t%.5f\t%.5f\n",
                      (double)s->at / (double)HLG_NS_PER_S, s->prefill_queue, s->decode_running,
                      s->decode_waiting, (double)s->prefill_busy, (double)s->prefill_kv,
                      (double)s->decode_kv, (double)s->nic_out, (double)s->nic_out_max,
                      (double)s->nic_in, (double)s->nic_in_max);
    }
    return ferror(file) != 0 ? -HLG_EIO : 0;
}
