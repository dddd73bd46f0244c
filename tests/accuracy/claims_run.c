#include "claims.h"

#include "metrics.h"

#include <stdlib.h>

#define LONG_GAP_NS (100 * HLG_NS_PER_MS)

static const char *const control_names[] = {"none", "roofline", "nic/10", "whole", "2048"};

static void check(int error, const char *text)
{
    if (error != 0) {
        (void)fprintf(stderr, "halage-claims: %s\n", text);
        exit(1);
    }
}

static double half(const struct sim_summary *summary)
{
    return (summary->high - summary->low) / 2;
}

/* What lies between prefill and the first token, and before prefill but for its queue. */
static double handover_ms(const struct sim_metrics *metrics)
{
    static const uint32_t parts[] = {SIM_INGESTED, SIM_SUBMITTED, SIM_COMPUTED,
                                     SIM_LANDED,   SIM_READY,     SIM_STEPPED};
    double sum = 0;

    for (uint32_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        sum += metrics->part_ms[parts[i]].mean; /* from this moment to the next */
    }
    return sum;
}

static double long_gaps(const struct sim_run *run)
{
    uint64_t sum = 0;

    for (uint32_t i = sim_gap_bucket(LONG_GAP_NS); i < SIM_GAP_BUCKETS; i++) {
        sum += run->gaps.count[i];
    }
    return (double)sum / (double)run->record_count;
}

static void write_row(const struct claims_part *part, const struct sim_scenario *scenario,
                      const struct sim_run *run, const struct sim_metrics *m,
                      char row[CLAIMS_ROW_BYTES])
{
    const bool mixed = scenario->serving == SIM_SERVING_COLOCATED;
    const double queue = m->part_ms[SIM_REQUESTED].mean + m->part_ms[SIM_STARTED].mean;
    const int bytes = snprintf(
        row, CLAIMS_ROW_BYTES,
        "%s\t%s\t%s\t%u\t%u\t%u\t%u\t%u\t%g\t%.2f\t%.2f\t%.3f\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.3f\t"
        "%.2f\t%.3f\t%.3f\t%d\t%s",
        part->deployment, control_names[part->control],
        mixed ? scenario->colocated.engine.name : scenario->prefill.engine.name,
        scenario->traffic.drawn.prompt.tokens_min, scenario->traffic.drawn.output.tokens_min,
        mixed ? scenario->colocated.draft : scenario->decode.draft,
        mixed ? scenario->colocated.nodes : scenario->prefill.nodes,
        mixed ? 0 : scenario->decode.nodes, scenario->traffic.drawn.arrivals.rate_rps,
        m->speed_tps.mean, half(&m->speed_tps), m->tpot_ms.mean, m->ttft_ms.mean, half(&m->ttft_ms),
        handover_ms(m), queue, m->part_ms[SIM_COMPUTED].mean, m->prefill_busy, m->batch_mean,
        long_gaps(run), m->request_rate / m->arrival_rate, m->overloaded, m->limit);

    HLG_ASSERT(bytes > 0 && (uint32_t)bytes < CLAIMS_ROW_BYTES);
}

void claims_run(const struct claims_part *part, const struct sim_scenario *scenario,
                char row[CLAIMS_ROW_BYTES])
{
    const struct sim_run_options options = {0};
    char text[1024];
    struct sim_workload workload = {0};
    struct sim_metrics metrics;
    struct sim_run *run = calloc(1, sizeof *run);

    check(run == NULL, "no memory for a run");
    check(sim_scenario_check(scenario, NULL, text, sizeof text), text);
    check(sim_scenario_workload(scenario, &workload, text, sizeof text), text);
    check(sim_run(scenario, &workload, &options, run, text, sizeof text), text);
    check(sim_metrics(scenario, &workload, run, &metrics), "no memory for the figures of a run");
    check(metrics.failed != 0 || metrics.refused != 0, "a request failed or was refused");
    write_row(part, scenario, run, &metrics, row);
    sim_run_fini(run);
    sim_workload_fini(&workload);
    free(run);
}
