#include "sweep_run.h"

#include "calibration.h"

#include <stdlib.h>

#define SENTENCE_BYTES 1024u

static json_t *told(const char *status, const char *sentence, uint64_t digest, json_t *report)
{
    char hex[17];
    char calibration[48]; /* as in struct sim_cost_basis */

    sim_calibration_id(calibration, sizeof calibration);
    (void)snprintf(hex, sizeof hex, "%016llx", (unsigned long long)digest);
    return json_pack("{ss ss ss ss ss so}", "version", sim_version(), "calibration", calibration,
                     "digest", hex, "status", status, "sentence", sentence, "report",
                     report != NULL ? report : json_null());
}

static uint32_t nodes_of(const struct sim_scenario *scenario)
{
    return scenario->serving == SIM_SERVING_COLOCATED
               ? scenario->colocated.nodes
               : scenario->prefill.nodes + scenario->decode.nodes;
}

static uint32_t first_nodes_of(const struct sim_scenario *scenario)
{
    return scenario->serving == SIM_SERVING_COLOCATED ? scenario->colocated.nodes
                                                      : scenario->prefill.nodes;
}

static json_t *run(const struct sim_scenario *scenario, const struct sim_workload *workload,
                   uint64_t digest)
{
    const struct sim_run_options options = {0};
    char sentence[SENTENCE_BYTES] = "";
    struct sim_metrics metrics;
    struct sim_run *result = calloc(1, sizeof *result);

    if (result == NULL) {
        return NULL;
    }
    const int error = sim_run(scenario, workload, &options, result, sentence, sizeof sentence);
    json_t *json = NULL;
    if (error != 0) {
        json = told(error == -HLG_EINVAL ? "refused" : "failed", sentence, digest, NULL);
    } else {
        /* What ran is what was asked for. */
        HLG_ASSERT(result->node_count == nodes_of(scenario));
        HLG_ASSERT(result->prefill_nodes == first_nodes_of(scenario));
        const bool good = sim_metrics(scenario, workload, result, &metrics) == 0;
        if (good && metrics.requests == 0) {
            json =
                told("refused",
                     "no request is measured: all arrive in the warm-up or after the window; ask "
                     "for more requests, or lower measure.warmup_requests or measure.warmup",
                     digest, NULL);
        } else if (good) {
            json_t *report = sim_report_json(scenario, result, &metrics);
            json = report == NULL ? NULL : told("done", "", digest, report);
        }
        sim_run_fini(result);
    }
    free(result);
    return json;
}

json_t *sim_point_run(const char *path, const char *const *overrides, uint32_t count)
{
    char sentence[SENTENCE_BYTES] = "";
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);
    struct sim_workload workload = {0};
    json_t *json = NULL;

    if (scenario == NULL) {
        return NULL;
    }
    if (sim_scenario_read(scenario, path, overrides, count, sentence, sizeof sentence) != 0) {
        free(scenario);
        return told("refused", sentence, 0, NULL);
    }
    const uint64_t digest = sim_scenario_digest(scenario);
    if (sim_scenario_check(scenario, NULL, sentence, sizeof sentence) != 0 ||
        sim_scenario_workload(scenario, &workload, sentence, sizeof sentence) != 0) {
        json = told("refused", sentence, digest, NULL);
    } else {
        json = run(scenario, &workload, digest);
        sim_workload_fini(&workload);
    }
    sim_scenario_fini(scenario);
    free(scenario);
    return json;
}
