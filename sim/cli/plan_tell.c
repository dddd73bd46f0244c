/* What a plan is told as. */
#include "plan.h"

#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MS ((double)HLG_NS_PER_MS)

static double number(const struct plan_row *row, const char *group, const char *name,
                     const char *leaf)
{
    const json_t *json = json_object_get(json_object_get(row->report, group), name);
    return json_number_value(leaf == NULL ? json : json_object_get(json, leaf));
}

static void row_name(const struct plan_row *row, char name[32])
{
    if (row->colocated) {
        (void)snprintf(name, 32, "co-loc. %" PRIu32, row->prefill);
    } else {
        (void)snprintf(name, 32, "%" PRIu32 ":%" PRIu32, row->prefill, row->decode);
    }
}

static void latency_cell(FILE *file, double value)
{
    (void)fprintf(file, " %8.*f", value < 100 ? 2 : 0, value);
}

/* By formula, and by how much that is off. */
static void analytic_cell(FILE *file, const struct plan_row *row, double formula, double simulated)
{
    if (!row->analytic_known) {
        (void)fprintf(file, " %15s", "-");
    } else if (isinf(formula)) {
        (void)fprintf(file, " %15s", "no end");
    } else if (row->report == NULL) {
        (void)fprintf(file, " %8.*f       ", formula < 100 ? 2 : 0, formula);
    } else {
        (void)fprintf(file, " %8.*f %+5.0f%%", formula < 100 ? 2 : 0, formula,
                      100 * (formula / simulated - 1));
    }
}

/* GPUs of a machine of the preset; 0: the scenario names none. */
static uint32_t machine_gpus(const struct plan *plan)
{
    const struct sim_node_preset *preset = sim_node_preset_find(plan->scenario->node);
    return preset == NULL ? 0 : preset->gpus;
}

static void machines_cell(FILE *file, const struct plan *plan, const struct plan_row *row)
{
    const uint32_t each = machine_gpus(plan);

    if (each == 0) {
        (void)fprintf(file, " %8s", "-");
    } else {
        (void)fprintf(file, " %8.5g", (double)row->gpus / each);
    }
}

static void table_row(FILE *file, const struct plan *plan, const struct plan_row *row)
{
    char name[32];

    row_name(row, name);
    (void)fprintf(file, "%c%-11s %5" PRIu32, row == plan->best ? '*' : ' ', name, row->gpus);
    machines_cell(file, plan, row);
    if (row->report == NULL) {
        (void)fprintf(file, " %8s %7s %8s %8s %8s %8s", "-", "-", "-", "-", "-", "-");
    } else {
        (void)fprintf(file, " %8.3f %6.2f%%", number(row, "throughput", "goodput_per_s", NULL),
                      100 * row->slo_share);
        latency_cell(file, number(row, "latency", "ttft_ms", "p50"));
        latency_cell(file, number(row, "latency", "ttft_ms", "p90"));
        latency_cell(file, number(row, "latency", "tpot_ms", "p50"));
        latency_cell(file, number(row, "latency", "tpot_ms", "p90"));
    }
    analytic_cell(file, row, row->analytic.ttft_ms, number(row, "latency", "ttft_ms", "mean"));
    analytic_cell(file, row, row->analytic.tpot_ms, number(row, "latency", "tpot_ms", "mean"));
    if (row->feasible) {
        const char *limit = json_string_value(json_object_get(row->report, "limit"));
        (void)fprintf(file, "  feasible%s; limit: %s\n", row->uncertain ? " (not certain)" : "",
                      limit);
    } else if (row->unable) {
        (void)fprintf(file, "  not simulated: %s\n", row->why);
    } else if (row->why[0] != '\0') {
        (void)fprintf(file, "  infeasible because %s%s\n", row->why,
                      row->uncertain ? " (not certain)" : "");
    } else {
        (void)fputs("  not simulated: interrupted\n", file);
    }
}

static void heading(FILE *file, const struct plan *plan)
{
    (void)fprintf(file, "halage-sim %s plan: %s; scenario %016" PRIx64 ", seed %" PRIu64 "; %s\n",
                  sim_version(), plan->scenario->name, sim_scenario_digest(plan->scenario),
                  plan->scenario->seed, plan->scenario->model.name);
    (void)fputs("  wanted:", file);
    if (plan->slo_ttft_ns > 0) {
        (void)fprintf(file, " TTFT <= %.6g ms", plan->slo_ttft_ns / MS);
    }
    if (plan->slo_tpot_ns > 0) {
        (void)fprintf(file, "%s TPOT <= %.6g ms", plan->slo_ttft_ns > 0 ? " and" : "",
                      plan->slo_tpot_ns / MS);
    }
    (void)fprintf(file, " for %.6g %% of the requests, on at most %" PRIu32 " GPUs\n",
                  100 * plan->share, plan->gpus);
}

static void base_lines(FILE *file, const struct plan *plan)
{
    const struct sim_analytic_base *base = sim_analytic_base(plan->analytic);
    const struct sim_scenario *scenario = plan->scenario;

    (void)fprintf(file,
                  "  traffic: %.6g requests/s of %.0f prompt and %.0f output tokens in the mean\n",
                  base->rate, base->prompt_tokens, base->output_tokens);
    (void)fprintf(
        file,
        "  unloaded: TTFT %.1f ms in the mean (%.6g %% within %.1f ms), of it prefill %.1f "
        "ms; TPOT %.2f ms\n",
        base->unloaded_ttft_ms, 100 * plan->share, base->share_ttft_ms, base->prefill_ms,
        base->unloaded_tpot_ms);
    (void)fprintf(file,
                  "  nodes: prefill %" PRIu32 " x %s, %" PRIu64 " KV tokens a rank; decode %" PRIu32
                  " x %s, %" PRIu64 "; co-located %" PRIu32 " x %s\n",
                  scenario->prefill.engine.gpus, scenario->prefill.engine.gpu, base->kv_tokens[0],
                  scenario->decode.engine.gpus, scenario->decode.engine.gpu, base->kv_tokens[1],
                  scenario->colocated.engine.gpus, scenario->colocated.engine.gpu);
    (void)fputs("  a node is an instance of tp * dp GPUs, not a machine", file);
    if (machine_gpus(plan) != 0) {
        (void)fprintf(file, " (%s: %" PRIu32 " GPUs)", scenario->node, machine_gpus(plan));
    }
    (void)fputs("; tp, dp and ep are the scenario's, they are not searched\n", file);
    if (scenario->decode.draft != scenario->colocated.draft) {
        (void)fprintf(file,
                      "  unequal: decode nodes verify %" PRIu32
                      " drafts a step, co-located ones %" PRIu32
                      " (decode.accept, colocated.accept)\n",
                      scenario->decode.draft, scenario->colocated.draft);
    }
}

/* The largest share of steps beyond what was measured, of all simulations with this role. */
static double beyond_share(const struct plan *plan, bool colocated, size_t side)
{
    double most = 0;

    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        const json_t *costs = json_object_get(json_object_get(row->report, "origin"), "cost");
        const json_t *cost = json_array_get(costs, side);
        const double steps = json_number_value(json_object_get(cost, "steps"));
        if (row->colocated == colocated && steps > 0) {
            most = fmax(most, json_number_value(json_object_get(cost, "steps_beyond")) / steps);
        }
    }
    return most;
}

static void cost_line(FILE *file, const char *role, const json_t *cost, double beyond)
{
    const char *const why = json_string_value(json_object_get(cost, "why"));
    const char *const id = json_string_value(json_object_get(cost, "calibration"));

    if (strcmp(id, "none") == 0) { /* a user's own step times */
        (void)fprintf(file, "  %s: %s\n", role, why);
    } else {
        (void)fprintf(file, "  %s: %s, calibration %s%s%s\n", role,
                      json_string_value(json_object_get(cost, "engine")), id,
                      why[0] == '\0'                                        ? ""
                      : json_is_true(json_object_get(cost, "extrapolated")) ? "; EXTRAPOLATED: "
                                                                            : "; rests on: ",
                      why);
    }
    if (beyond > 0) {
        (void)fprintf(
            file, "    BEYOND what was measured: %.2f %% of its steps in the worst of the rows\n",
            100 * beyond);
    }
}

/* What the numbers rest on: of the first simulation of either serving, they all do on the same. */
static void cost_lines(FILE *file, const struct plan *plan)
{
    for (uint32_t colocated = 0; colocated < 2; colocated++) {
        for (uint32_t i = 0; i < plan->row_count; i++) {
            const struct plan_row *row = &plan->rows[i];
            const json_t *costs = json_object_get(json_object_get(row->report, "origin"), "cost");
            if (row->report == NULL || row->colocated != (colocated == 1)) {
                continue;
            }
            for (size_t k = 0; k < json_array_size(costs); k++) {
                cost_line(file,
                          row->colocated ? "co-located"
                          : k == 0       ? "prefill"
                                         : "decode",
                          json_array_get(costs, k), beyond_share(plan, row->colocated, k));
            }
            break;
        }
    }
}

/* What is not known yet may be better than what is. */
static void interrupted_line(FILE *file, const struct plan *plan)
{
    char name[32];
    uint32_t due = 0;
    uint32_t over = 0;

    for (uint32_t i = 0; i < plan->row_count; i++) {
        due += plan->rows[i].simulated;
        over += plan->rows[i].simulated &&
                (plan->rows[i].report != NULL || plan->rows[i].why[0] != '\0');
    }
    (void)fprintf(file, "INTERRUPTED: %" PRIu32 " of %" PRIu32 " splits simulated; ", over, due);
    if (plan->best == NULL) {
        (void)fputs("none of them is feasible\n", file);
        return;
    }
    row_name(plan->best, name);
    (void)fprintf(file, "* fewest GPUs so far: %s on %" PRIu32 " GPUs\n", name, plan->best->gpus);
}

static void answer_row(FILE *file, const struct plan *plan, const struct plan_row *row)
{
    const uint32_t each = machine_gpus(plan);
    char name[32];

    row_name(row, name);
    (void)fprintf(file, "%s on %" PRIu32 " GPUs", name, row->gpus);
    if (each != 0) {
        (void)fprintf(file, " = %.5g machine%s", (double)row->gpus / each,
                      row->gpus == each ? "" : "s");
    }
}

/* The fewest GPUs, and beside them those of the other serving. */
static void answer(FILE *file, const struct plan *plan)
{
    if (plan->never) {
        (void)fprintf(file, "%s\n", plan->why);
        return;
    }
    if (plan->interrupted) {
        interrupted_line(file, plan);
        return;
    }
    if (plan->best == NULL) {
        (void)fprintf(file, "nothing is feasible with %" PRIu32 " GPUs\n", plan->gpus);
        return;
    }
    const struct plan_row *other = plan->best->colocated ? plan->best_split : plan->best_colocated;
    (void)fputs("* fewest GPUs: ", file);
    answer_row(file, plan, plan->best);
    if (other != NULL) {
        (void)fprintf(file, "; %s: ", other->colocated ? "co-located" : "apart");
        answer_row(file, plan, other);
    }
    (void)fputc('\n', file);
}

void plan_text(FILE *file, const struct plan *plan)
{
    heading(file, plan);
    answer(file, plan);
    if (plan->analytic != NULL) {
        base_lines(file, plan);
    }
    cost_lines(file, plan);
    if (plan->never) {
        return;
    }
    (void)fprintf(file, "\n%-12s %5s %8s %8s %7s %17s %17s %31s\n", "", "", "", "", "",
                  "TTFT ms, simulated", "TPOT ms, simulated", "mean by formula, ms, and off by");
    (void)fprintf(file, " %-11s %5s %8s %8s %7s %8s %8s %8s %8s %15s %15s  %s\n", "P:D", "GPUs",
                  "machines", "good/s", "SLO met", "p50", "p90", "p50", "p90", "TTFT", "TPOT",
                  "verdict");
    for (uint32_t i = 0; i < plan->row_count; i++) {
        table_row(file, plan, &plan->rows[i]);
    }
    if (plan->thinned) {
        (void)fputs("not all splits are shown: those near the formulas' best, and some beyond\n",
                    file);
    }
    answer(file, plan);
}

/* ---- JSON ---- */

static json_t *index_of(const struct plan *plan, const struct plan_row *row)
{
    return row == NULL ? json_null() : json_integer(row - plan->rows);
}

static json_t *finite(double value)
{
    json_t *json = json_real(value);
    return json != NULL ? json : json_null(); /* no end */
}

static json_t *row_json(const struct plan_row *row)
{
    const struct sim_analytic_point *point = &row->analytic;
    json_t *formula =
        !row->analytic_known
            ? json_null()
            : json_pack("{so so so so so so sb}", "prefill_use", finite(point->prefill_use),
                        "wait_ms", finite(point->wait_ms), "ttft_mean_ms", finite(point->ttft_ms),
                        "batch", finite(point->batch), "batch_max", finite(point->batch_max),
                        "tpot_mean_ms", finite(point->tpot_ms), "decode_overloaded",
                        point->decode_overloaded);

    return json_pack("{ss sI sI sI so sb sb sb ss sO?}", "serving",
                     row->colocated ? "colocated" : "disaggregated", "prefill_nodes",
                     (json_int_t)row->prefill, "decode_nodes", (json_int_t)row->decode, "gpus",
                     (json_int_t)row->gpus, "formula", formula, "simulated", row->report != NULL,
                     "feasible", row->feasible, "uncertain", row->uncertain, "because", row->why,
                     "report", row->report);
}

static json_t *base_json(const struct plan *plan)
{
    if (plan->analytic == NULL) {
        return json_null();
    }
    const struct sim_analytic_base *base = sim_analytic_base(plan->analytic);
    return json_pack("{so so so so so so so}", "requests_per_s", finite(base->rate),
                     "prompt_tokens_mean", finite(base->prompt_tokens), "output_tokens_mean",
                     finite(base->output_tokens), "prefill_ms", finite(base->prefill_ms),
                     "unloaded_ttft_mean_ms", finite(base->unloaded_ttft_ms),
                     "unloaded_ttft_share_ms", finite(base->share_ttft_ms), "unloaded_tpot_ms",
                     finite(base->unloaded_tpot_ms));
}

json_t *plan_json(const struct plan *plan)
{
    char digest[17];
    json_t *rows = json_array();

    (void)snprintf(digest, sizeof digest, "%016" PRIx64, sim_scenario_digest(plan->scenario));
    for (uint32_t i = 0; rows != NULL && i < plan->row_count; i++) {
        (void)json_array_append_new(rows, row_json(&plan->rows[i]));
    }
    return json_pack(
        "{s{ss ss ss ss sI} s{so so so sI} so sb sb ss so so so so so}", "origin", "program",
        "halage-sim", "version", sim_version(), "name", plan->scenario->name, "scenario_digest",
        digest, "seed", (json_int_t)plan->scenario->seed, "wanted", "ttft_ms",
        plan->slo_ttft_ns > 0 ? finite(plan->slo_ttft_ns / MS) : json_null(), "tpot_ms",
        plan->slo_tpot_ns > 0 ? finite(plan->slo_tpot_ns / MS) : json_null(), "share",
        finite(plan->share), "gpus", (json_int_t)plan->gpus, "base", base_json(plan), "interrupted",
        plan->interrupted, "feasible", plan->best != NULL, "because", plan->why, "rows", rows,
        "best", index_of(plan, plan->best), "best_split", index_of(plan, plan->best_split),
        "best_colocated", index_of(plan, plan->best_colocated), "machine_gpus",
        machine_gpus(plan) == 0 ? json_null() : json_integer(machine_gpus(plan)));
}
