/* Which rows a plan has, and what is said of each. */
#include "plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS               ((double)HLG_NS_PER_MS)
#define PREFILL_ROWS_MAX 12u /* numbers of prefill nodes that are looked at */
#define HOPELESS         1.2 /* overload by formula beyond which nothing is simulated */
#define MATCHED_MAX      8u  /* co-located rows on as many GPUs as feasible splits */

/* ---- What no size can do ---- */

static void never(struct plan *plan)
{
    const struct sim_analytic_base *base = sim_analytic_base(plan->analytic);
    const double ttft = plan->slo_ttft_ns / MS;
    const double tpot = plan->slo_tpot_ns / MS;

    if (ttft > 0 && base->share_ttft_ms > ttft) {
        plan->never = true;
        (void)snprintf(
            plan->why, sizeof plan->why,
            "infeasible at any size: on idle nodes %.6g %% of the requests have a TTFT of "
            "up to %.1f ms, above the SLO of %.6g ms; use more GPUs a prefill node (tp), "
            "a shorter prompt or a longer SLO",
            100 * plan->share, base->share_ttft_ms, ttft);
    } else if (tpot > 0 && base->unloaded_tpot_ms > tpot) {
        plan->never = true;
        (void)snprintf(
            plan->why, sizeof plan->why,
            "infeasible at any size: a sequence alone has a TPOT of %.2f ms, above the SLO "
            "of %.6g ms; use more GPUs a decode node (tp), drafts (MTP) or a longer SLO",
            base->unloaded_tpot_ms, tpot);
    }
}

/* ---- Rows ---- */

static void overload(const struct plan *plan, struct plan_row *row)
{
    const struct sim_analytic_point *point = &row->analytic;

    if (point->prefill_use > HOPELESS) {
        const double nodes = ceil(point->prefill_use * row->prefill);
        row->simulated = false;
        (void)snprintf(
            row->why, sizeof row->why,
            "prefill is overloaded %.2f times: the rate needs at least %.0f prefill nodes",
            point->prefill_use, nodes);
    } else if (point->batch > HOPELESS * point->batch_max) {
        row->simulated = false;
        (void)snprintf(row->why, sizeof row->why,
                       "decode is overloaded: the rate needs a batch of %.0f a node, KV and slots "
                       "allow %.0f",
                       point->batch, point->batch_max);
    }
    (void)plan;
}

static void add_row(struct plan *plan, uint32_t prefill, uint32_t decode, bool whole)
{
    const struct sim_scenario *scenario = plan->scenario;

    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].prefill == prefill && plan->rows[i].decode == decode) {
            plan->rows[i].whole_budget |= whole;
            return;
        }
    }
    if (plan->row_count == PLAN_ROWS_MAX - 1) { /* the last is the co-located one's */
        plan->thinned = true;
        return;
    }
    struct plan_row *row = &plan->rows[plan->row_count++];
    *row = (struct plan_row){
        .prefill = prefill,
        .decode = decode,
        .gpus = prefill * scenario->prefill.engine.gpus + decode * scenario->decode.engine.gpus,
        .whole_budget = whole,
        .analytic_known = true,
        .simulated = true,
    };
    sim_analytic_point(plan->analytic, prefill, decode, &row->analytic);
    overload(plan, row);
}

/* By formula, the fewest decode nodes that hold the rate and the TPOT; `most` if none do. */
static uint32_t decode_min(const struct plan *plan, uint32_t prefill, uint32_t most)
{
    uint32_t low = 1;
    uint32_t high = most;

    while (low < high) {                                /* more nodes are never slower */
        const uint32_t middle = low + (high - low) / 2; /* floored: the lower one of two */
        struct sim_analytic_point point;
        sim_analytic_point(plan->analytic, prefill, middle, &point);
        const bool good = !point.decode_overloaded &&
                          (plan->slo_tpot_ns <= 0 || point.tpot_ms <= plan->slo_tpot_ns / MS);
        low = good ? low : middle + 1;
        high = good ? middle : high;
    }
    return low;
}

static void add_prefill(struct plan *plan, uint32_t prefill)
{
    const uint32_t left = plan->gpus - prefill * plan->scenario->prefill.engine.gpus;
    const uint32_t most =
        hlg_min_u32(left / plan->scenario->decode.engine.gpus, /* floored: what still fits */
                    SIM_NODES_MAX - prefill);
    const uint32_t least = decode_min(plan, prefill, most);

    for (uint32_t decode = least > 1 ? least - 1 : 1; decode <= least + 1 && decode <= most;
         decode++) {
        add_row(plan, prefill, decode, decode == most);
    }
    add_row(plan, prefill, most, true);
}

/* By formula, the fewest prefill nodes whose queue ends and whose mean TTFT meets the SLO. */
static uint32_t prefill_min(const struct plan *plan, uint32_t most)
{
    for (uint32_t prefill = 1; prefill < most; prefill++) {
        struct sim_analytic_point point;
        sim_analytic_point(plan->analytic, prefill, 1, &point);
        if (point.prefill_use < 1 &&
            (plan->slo_ttft_ns <= 0 || point.ttft_ms <= plan->slo_ttft_ns / MS)) {
            return prefill;
        }
    }
    return most;
}

static void add_rows(struct plan *plan)
{
    const struct sim_scenario *scenario = plan->scenario;
    const uint32_t prefill_gpus = scenario->prefill.engine.gpus;
    const uint32_t decode_gpus = scenario->decode.engine.gpus;

    if (plan->gpus < prefill_gpus + decode_gpus) {
        plan->never = true;
        (void)snprintf(plan->why, sizeof plan->why,
                       "infeasible because %" PRIu32 " GPUs are fewer than a prefill node (%" PRIu32
                       ") and a decode node (%" PRIu32 ") have; raise --gpus",
                       plan->gpus, prefill_gpus, decode_gpus);
        return;
    }
    const uint32_t most = hlg_min_u32((plan->gpus - decode_gpus) / prefill_gpus, /* floored */
                                      SIM_NODES_MAX / 2);
    if (most <= PREFILL_ROWS_MAX) {
        for (uint32_t prefill = 1; prefill <= most; prefill++) {
            add_prefill(plan, prefill);
        }
        return;
    }
    plan->thinned = true;
    const uint32_t least = prefill_min(plan, most);
    const uint32_t begin = least > 2 ? least - 2 : 1;
    uint32_t prefill = begin;
    for (; prefill <= most && prefill < begin + PREFILL_ROWS_MAX / 2; prefill++) {
        add_prefill(plan, prefill);
    }
    for (uint32_t step = 1; prefill <= most; prefill += step, step *= 2) {
        add_prefill(plan, prefill);
    }
}

/* As many GPUs, or as near as whole nodes come: the baseline. Returns whether the row is new. */
static bool add_colocated(struct plan *plan, uint32_t gpus)
{
    const uint32_t each = plan->scenario->colocated.engine.gpus;
    const uint32_t nodes = each == 0 ? 0 : gpus / each; /* floored: what fits */

    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].colocated && plan->rows[i].prefill == nodes) {
            return false;
        }
    }
    if (nodes == 0 || plan->row_count == PLAN_ROWS_MAX + PLAN_MIXED_MAX) {
        return false;
    }
    plan->rows[plan->row_count++] =
        (struct plan_row){.prefill = nodes,
                          .gpus = nodes * each,
                          .colocated = true,
                          .whole_budget = nodes == plan->gpus / each, /* floored */
                          .simulated = true};
    return true;
}

/* Whether a co-located row could be simulated: if one can, all can. */
static bool colocated_works(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].colocated && plan->rows[i].report != NULL) {
            return true;
        }
    }
    return false;
}

void plan_match_colocated(struct plan *plan)
{
    uint32_t done = 0; /* GPUs of the last count */

    for (uint32_t added = 0; added < MATCHED_MAX && colocated_works(plan);) {
        uint32_t gpus = UINT32_MAX; /* the next larger count */
        for (uint32_t i = 0; i < plan->row_count; i++) {
            const struct plan_row *row = &plan->rows[i];
            if (!row->colocated && row->feasible && row->gpus > done && row->gpus < gpus) {
                gpus = row->gpus;
            }
        }
        if (gpus == UINT32_MAX) {
            return;
        }
        added += add_colocated(plan, gpus) ? 1 : 0;
        done = gpus;
    }
}

bool plan_narrow_colocated(struct plan *plan)
{
    uint32_t high = UINT32_MAX; /* fewest nodes that are feasible */
    uint32_t low = 0;           /* most below that are not */

    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        high = row->colocated && row->feasible ? hlg_min_u32(high, row->prefill) : high;
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        low = row->colocated && row->prefill < high ? hlg_max_u32(low, row->prefill) : low;
    }
    if (high == UINT32_MAX || high - low < 2) {
        return false;
    }
    return add_colocated(plan, (low + (high - low) / 2) * /* floored: the lower one of two */
                                   plan->scenario->colocated.engine.gpus);
}

int plan_prepare(struct plan *plan, char *text, size_t capacity)
{
    plan->base[plan->base_count] = "serving=disaggregated";
    plan->scenario = calloc(1, sizeof *plan->scenario);
    if (plan->scenario == NULL) {
        (void)snprintf(text, capacity, "no memory");
        return CLI_FAILED;
    }
    if (sim_scenario_read(plan->scenario, plan->command.path, plan->base, plan->base_count + 1,
                          text, capacity) != 0) {
        free(plan->scenario);
        plan->scenario = NULL;
        return CLI_BAD_INPUT;
    }
    if (plan->rate > 0 && plan->scenario->traffic.kind != SIM_WORKLOAD_DRAWN) {
        (void)snprintf(text, capacity,
                       "--rate: '%s' takes its requests from a trace, which has a rate of its own; "
                       "leave --rate out, or set traffic.trace.speed",
                       plan->command.path);
        return CLI_BAD_INPUT;
    }
    if (sim_scenario_check(plan->scenario, NULL, text, capacity) != 0) {
        return CLI_BAD_INPUT;
    }
    if (sim_scenario_workload(plan->scenario, &plan->workload, text, capacity) != 0 ||
        sim_analytic_create(plan->scenario, &plan->workload, plan->share, &plan->analytic, text,
                            capacity) != 0) {
        return CLI_BAD_INPUT;
    }
    never(plan);
    if (!plan->never) {
        add_rows(plan);
    }
    if (!plan->never) {
        (void)add_colocated(plan, plan->gpus);
    }
    return CLI_DONE;
}

/* ---- Verdicts ---- */

static double number(const json_t *report, const char *group, const char *name, const char *leaf)
{
    const json_t *json = json_object_get(json_object_get(report, group), name);
    return json_number_value(leaf == NULL ? json : json_object_get(json, leaf));
}

static void say_missed(const struct plan *plan, const struct plan_row *row, char *text,
                       size_t capacity)
{
    const json_t *report = row->report;
    const double ttft = number(report, "latency", "ttft_ms", "p90");
    const double tpot = number(report, "latency", "tpot_ms", "p90");
    const char *limit = json_string_value(json_object_get(report, "limit"));
    int used = 0;

    used =
        snprintf(text, capacity, "the SLO is met by %.2f %% of the requests", 100 * row->slo_share);
    if (json_is_true(json_object_get(report, "overloaded"))) {
        used = snprintf(text, capacity, "it is overloaded: the queue grew all the time");
    } else if (plan->slo_ttft_ns > 0 && ttft > plan->slo_ttft_ns / MS) {
        used += snprintf(text + used, capacity - (size_t)used, ", TTFT p90 is %.0f ms", ttft);
    }
    if (plan->slo_tpot_ns > 0 && tpot > plan->slo_tpot_ns / MS) {
        used += snprintf(text + used, capacity - (size_t)used, ", TPOT p90 is %.2f ms", tpot);
    }
    if (limit != NULL && strcmp(limit, "none") != 0) {
        (void)snprintf(text + used, capacity - (size_t)used, "; limit: %s", limit);
    }
}

void plan_judge(const struct plan *plan, struct plan_row *row, json_t *result, const char *sentence)
{
    const char *status = json_string_value(json_object_get(result, "status"));
    const json_t *slo = NULL;

    if (status == NULL || strcmp(status, "done") != 0) {
        row->unable = true;
        row->broken = status == NULL || strcmp(status, "refused") != 0;
        (void)snprintf(row->why, sizeof row->why, "%s",
                       status == NULL ? sentence
                                      : json_string_value(json_object_get(result, "sentence")));
        return;
    }
    row->report = json_incref(json_object_get(result, "report"));
    slo = json_object_get(row->report, "slo");
    row->slo_share = json_number_value(json_object_get(slo, "share"));
    row->feasible =
        row->slo_share >= plan->share && !json_is_true(json_object_get(row->report, "overloaded"));
    row->uncertain = json_number_value(json_object_get(slo, "low")) < plan->share &&
                     json_number_value(json_object_get(slo, "high")) > plan->share;
    if (!row->feasible) {
        say_missed(plan, row, row->why, sizeof row->why);
    }
}

/* Whether a row is the better answer: fewer GPUs, then more that meet the SLO. */
static const struct plan_row *better(const struct plan_row *best, const struct plan_row *row)
{
    return best == NULL || row->gpus < best->gpus ||
                   (row->gpus == best->gpus && row->slo_share > best->slo_share)
               ? row
               : best;
}

void plan_choose(struct plan *plan)
{
    for (uint32_t i = 1; i < plan->row_count; i++) { /* co-located rows by their nodes */
        const struct plan_row row = plan->rows[i];
        uint32_t at = i;
        for (; row.colocated && at > 0 && plan->rows[at - 1].colocated &&
               plan->rows[at - 1].prefill > row.prefill;
             at--) {
            plan->rows[at] = plan->rows[at - 1];
        }
        plan->rows[at] = row;
    }
    plan->best = plan->best_split = plan->best_colocated = NULL;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (row->feasible) {
            const struct plan_row **of = row->colocated ? &plan->best_colocated : &plan->best_split;
            *of = better(*of, row);
            plan->best = better(plan->best, row);
        }
    }
}

void plan_fini(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        json_decref(plan->rows[i].report);
    }
    sim_analytic_destroy(plan->analytic);
    sim_workload_fini(&plan->workload);
    if (plan->scenario != NULL) {
        sim_scenario_fini(plan->scenario);
        free(plan->scenario);
    }
}
