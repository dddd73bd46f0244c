#include "report.h"

#include <inttypes.h>

/* What happened, in words, at the end of each part. */
static void happening(FILE *file, const struct sim_record *record, uint32_t moment)
{
    switch ((enum sim_moment)moment) {
    case SIM_ARRIVED:
        (void)fprintf(file, "%" PRIu32 " prompt tokens, %" PRIu32 " to make", record->prompt_tokens,
                      record->output_tokens);
        break;
    case SIM_INGESTED:
        (void)fputs("tokenised and routed", file);
        break;
    case SIM_SUBMITTED:
        (void)fprintf(file, "decode node %" PRId64 " rank %" PRId64 " has pages and a slot",
                      record->decode_node == HLG_NONE ? -1 : (int64_t)record->decode_node,
                      record->decode_rank == HLG_NONE ? -1 : (int64_t)record->decode_rank);
        break;
    case SIM_REQUESTED:
        (void)fprintf(file, "the engine of prefill node %" PRId64 " has it",
                      record->prefill_node == HLG_NONE ? -1 : (int64_t)record->prefill_node);
        break;
    case SIM_STARTED:
        (void)fprintf(file, "its first forward begins, %" PRIu32 " tokens were cached",
                      record->cached_tokens);
        break;
    case SIM_COMPUTED:
        (void)fprintf(file, "the last of its %" PRIu32 " forwards is over", record->chunks);
        break;
    case SIM_LANDED:
        (void)fprintf(file, "the last of %" PRIu64 " bytes has landed", record->bytes);
        break;
    case SIM_READY:
        (void)fputs("the decode engine knows", file);
        break;
    case SIM_STEPPED:
        (void)fputs("its first step begins", file);
        break;
    case SIM_FIRST:
        (void)fputs("the first token is out", file);
        break;
    case SIM_FINISHED:
        (void)fprintf(file, "%s after %" PRIu32 " steps", sim_outcome_name(record->outcome),
                      record->steps);
        break;
    case SIM_MOMENTS:
        hlg_unreachable();
    }
}

int sim_report_explain(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                       uint32_t request)
{
    if (request >= run->record_count) {
        return -HLG_EINVAL;
    }
    const struct sim_record *record = &run->records[request];
    hlg_time last = record->at[SIM_ARRIVED];
    (void)fprintf(file, "halage-sim %s: %s: request %" PRIu32 ", %s\n", sim_version(),
                  scenario->name, request, sim_outcome_name(record->outcome));
    (void)fprintf(file, "  scenario %016" PRIx64 ", seed %" PRIu64 ", calibration %s%s\n",
                  sim_scenario_digest(scenario), scenario->seed, run->basis[0].id,
                  run->basis[0].extrapolated || run->basis[1].extrapolated ? ", EXTRAPOLATED" : "");
    (void)fprintf(file, "%16s %12s  %-16s %-10s\n", "at s", "took ms", "part", "moment");
    for (uint32_t i = 0; i < SIM_MOMENTS; i++) {
        const char *part = i == SIM_ARRIVED    ? ""
                           : i == SIM_FINISHED ? "decode"
                                               : sim_part_name(i - 1);
        if (record->at[i] == HLG_TIME_NEVER) {
            continue;
        }
        (void)fprintf(
            file, "%16.9f %12.6f  %-16s %-10s ", (double)record->at[i] / (double)HLG_NS_PER_S,
            (double)(record->at[i] - last) / (double)HLG_NS_PER_MS, part, sim_moment_name(i));
        happening(file, record, i);
        (void)fputc('\n', file);
        last = record->at[i];
    }
    if (record->outcome == SIM_UNFINISHED && record->at[SIM_ARRIVED] != HLG_TIME_NEVER) {
        (void)fprintf(file, "%16.9f %12.6f  the run ends; it was not finished\n",
                      (double)run->end_ns / (double)HLG_NS_PER_S,
                      (double)(run->end_ns - last) / (double)HLG_NS_PER_MS);
    }
    if (record->preemptions != 0) {
        (void)fprintf(file,
                      "  preempted %" PRIu32 " times: the times above are of the last attempt\n",
                      record->preemptions);
    }
    if (record->at[SIM_FIRST] != HLG_TIME_NEVER) {
        (void)fprintf(file, "  TTFT %.6f ms\n",
                      (double)(record->at[SIM_FIRST] - record->at[SIM_ARRIVED]) /
                          (double)HLG_NS_PER_MS);
    }
    return ferror(file) != 0 ? -HLG_EIO : 0;
}
