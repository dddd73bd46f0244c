#include "cost_operator.h"

#include "calibration.h"
#include "cost_roofline.h"
#include "workload_variate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The engine whose operators stand in for another's. */
#define LENDER "sglang"

/* Of the roofline's grid: powers of two. */
#define ROOFLINE_POINTS 18u

/* GPUs of the nodes that tables were measured on. */
#define NODE_RANKS 8u

/* The exchange was measured with DeepSeek's shape; others count by what they move. */
#define EXCHANGE_VALUES (7168.0 * 8.0)

/* GPUs whose kernels run as on another one: H800 is an H100 with fewer links, GB200 a B200 with 4 to 11 %
 * more of everything. Not for collectives. */
static const char *relative(const char *gpu, enum sim_operator which)
{
    if (which == SIM_OPERATOR_REDUCE || which == SIM_OPERATOR_EXCHANGE) {
        return NULL;
    }
    return strcmp(gpu, "H800") == 0 ? "H100" : strcmp(gpu, "GB200") == 0 ? "B200" : NULL;
}

/* Rows of one GPU: this engine's own, the lender's, or any engine's. */
static bool find_on(struct sim_operators *operators, enum sim_operator which, const char *text,
                    char *prefix, const char *gpu, const char *rest)
{
    const char *const engines[] = {operators->engine, LENDER, "any"};

    for (uint32_t i = 0; i < 3; i++) {
        (void)snprintf(prefix, SIM_OPERATOR_PREFIX, "%s\t%s\t%s", gpu, engines[i], rest);
        if (sim_calibration_next(text, prefix, NULL) != NULL) {
            operators->borrowed[which] |= i == 1 && strcmp(operators->engine, LENDER) != 0;
            return true;
        }
    }
    return false;
}

bool sim_operators_find(struct sim_operators *operators, enum sim_operator which, const char *text,
                        char *prefix, const char *format, ...)
{
    const char *other = relative(operators->gpu->name, which);
    char rest[SIM_OPERATOR_PREFIX / 2];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(rest, sizeof rest, format, arguments);
    va_end(arguments);
    if (operators->measured &&
        find_on(operators, which, text, prefix, operators->gpu->name, rest)) {
        return true;
    }
    if (operators->measured && other != NULL &&
        find_on(operators, which, text, prefix, other, rest)) {
        operators->related[which] = true;
        return true;
    }
    operators->missing[which] = true;
    return false;
}

static void read_curve(const char *text, const char *row, uint32_t keys, struct sim_curve *curve)
{
    curve->count =
        sim_calibration_numbers(sim_calibration_heading(text), keys, curve->x, SIM_GRID_MAX);
    const uint32_t count = sim_calibration_numbers(row, keys, curve->ns, SIM_GRID_MAX);
    HLG_ASSERT(count == curve->count);
}

static void powers_of_two(struct sim_curve *curve, double first)
{
    curve->count = ROOFLINE_POINTS;
    for (uint32_t i = 0; i < ROOFLINE_POINTS; i++) {
        curve->x[i] = first * (double)(1u << i);
    }
}

/* Neighbours of x among the values of a column; x outside of them is drawn to the nearest. */
struct neighbours {
    double x;
    double low;
    double high;
};

static struct neighbours neighbours(const char *text, const char *prefix, uint32_t column, double x)
{
    double least = 1e18;
    double most = 0.0;
    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        double value;
        (void)sim_calibration_numbers(row, column, &value, 1);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    struct neighbours found = {x < least ? least : x > most ? most : x, least, most};
    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        double value;
        (void)sim_calibration_numbers(row, column, &value, 1);
        found.low = value <= found.x && value > found.low ? value : found.low;
        found.high = value >= found.x && value < found.high ? value : found.high;
    }
    return found;
}

static double log_weight(const struct neighbours *at)
{
    return at->high > at->low ? sim_log(at->x / at->low) / sim_log(at->high / at->low) : 0.0;
}

/* One shape between four measured ones: lines in the logarithms of n, k and time. A side below the
 * least measured one takes that one's time, one above the greatest grows in proportion. */
static void add_measured_gemm(const char *text, const char *prefix, double n, double k,
                              double count, struct sim_curve *sum)
{
    const struct neighbours rows = neighbours(text, prefix, 3, n);
    const struct neighbours columns = neighbours(text, prefix, 4, k);
    const double row_weight = log_weight(&rows);
    const double column_weight = log_weight(&columns);
    double logs[SIM_GRID_MAX] = {0};

    for (uint32_t corner = 0; corner < 4; corner++) {
        const bool is_high_row = (corner & 1) != 0;
        const bool is_high_column = (corner & 2) != 0;
        const double weight = (is_high_row ? row_weight : 1.0 - row_weight) *
                              (is_high_column ? column_weight : 1.0 - column_weight);
        char key[SIM_OPERATOR_PREFIX + 48];
        struct sim_curve curve;
        (void)snprintf(key, sizeof key, "%s%.0f\t%.0f\t", prefix,
                       is_high_row ? rows.high : rows.low,
                       is_high_column ? columns.high : columns.low);
        const char *row = sim_calibration_next(text, key, NULL);
        HLG_ASSERT(row != NULL);
        read_curve(text, row, 5, &curve);
        for (uint32_t i = 0; i < curve.count; i++) {
            logs[i] += weight * sim_log(curve.ns[i]);
        }
        memcpy(sum->x, curve.x, sizeof sum->x);
        sum->count = curve.count;
    }
    const double beyond = (n > rows.x ? n / rows.x : 1.0) * (k > columns.x ? k / columns.x : 1.0);
    for (uint32_t i = 0; i < sum->count; i++) {
        sum->ns[i] += count * beyond * sim_exp(logs[i]);
    }
}

/* The grid of a curve that roofline and measured products may both be added to. */
static void take_gemm_grid(const char *text, struct sim_curve *curve)
{
    curve->count =
        sim_calibration_numbers(sim_calibration_heading(text), 5, curve->x, SIM_GRID_MAX);
}

void sim_operators_add_gemm(struct sim_operators *operators, enum sim_dtype weights, uint32_t n,
                            uint32_t k, double count, struct sim_curve *curve)
{
    const char *text = sim_calibration_text("gemm.tsv");
    char prefix[SIM_OPERATOR_PREFIX];

    HLG_ASSERT(n > 0 && k > 0);
    take_gemm_grid(text, curve);
    if (sim_operators_find(operators, SIM_OPERATOR_GEMM, text, prefix, "%s\t",
                           sim_dtype_name(weights))) {
        add_measured_gemm(text, prefix, n, k, count, curve);
        return;
    }
    for (uint32_t i = 0; i < curve->count; i++) {
        curve->ns[i] += count * sim_roofline_gemm_ns(operators->gpu, weights, curve->x[i], n, k);
    }
}

/* Of the measured ways to cut this model's experts, the one nearest to (moe_tp, ep). */
static const char *nearest_cut(const char *text, const char *prefix, uint32_t moe_tp, uint32_t ep,
                               bool skewed, double *row_tp, double *row_ep)
{
    const char *best = NULL;
    double best_distance = 0.0;

    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        double cut[2];
        char routing[16];
        (void)sim_calibration_numbers(row, 7, cut, 2);
        sim_calibration_field(row, 9, routing, sizeof routing);
        const double tp = cut[0] > moe_tp ? cut[0] / moe_tp : moe_tp / cut[0];
        const double spread = cut[1] > ep ? cut[1] / ep : ep / cut[1];
        if ((strcmp(routing, "skewed") == 0) == skewed &&
            (best == NULL || tp * spread < best_distance)) {
            best = row;
            best_distance = tp * spread;
            *row_tp = cut[0];
            *row_ep = cut[1];
        }
    }
    return best;
}

/* Nanoseconds that one more token of the group costs a rank where computing is all that counts: the end
 * of the table of all experts on one rank, or the roofline. */
static double computing_ns(const struct sim_operators *operators, const char *text,
                           const char *prefix, bool skewed, double ranks)
{
    const struct sim_model *model = operators->model;
    const double many = 1048576.0;
    double row_tp = 0.0;
    double row_ep = 0.0;
    struct sim_curve whole;

    read_curve(text, nearest_cut(text, prefix, 1, 1, skewed, &row_tp, &row_ep), 10, &whole);
    if (row_tp == 1.0 && row_ep == 1.0 && whole.count > 1) {
        const uint32_t last = whole.count - 1;
        return (whole.ns[last] - whole.ns[last - 1]) / (whole.x[last] - whole.x[last - 1]) / ranks;
    }
    return (sim_roofline_experts_ns(operators->gpu, model, operators->weights, 2.0 * many, 1, 1) -
            sim_roofline_experts_ns(operators->gpu, model, operators->weights, many, 1, 1)) /
           many / ranks;
}

/* (1 - share) to the power of times. */
static double missed(double share, uint32_t times)
{
    double left = 1.0;

    for (uint32_t i = 0; i < times; i++) {
        left *= 1.0 - share;
    }
    return left;
}

/*
 * The tables were measured with every token of the group at each rank, which sorts, quantises and sums
 * them all, also those that none of its experts takes. A dispatch brings a rank only those that do: so the
 * table is read at the tokens that reach a rank, and the pairs beyond what it holds for so many are
 * charged as computing alone.
 *
 * With experts over more than one node that sorting is still nearly all of the table's time, and engines
 * use other kernels there (grouped products over what DeepEP delivers). No time is taken to be longer than
 * reading all experts, as the table has it at the first point that touches 95 % of them, and computing.
 */
static void dispatch(struct sim_operators *operators, double rate, uint32_t ep,
                     struct sim_curve *curve)
{
    const struct sim_model *model = operators->model;
    const double reach = 1.0 - missed(1.0 / ep, model->topk);
    uint32_t full = 0; /* index of that point */

    while (full + 1 < curve->count &&
           missed((double)model->topk / model->experts, (uint32_t)curve->x[full]) > 0.05) {
        full++;
    }
    for (uint32_t i = 0; i < curve->count; i++) {
        const double reached = curve->x[i];
        curve->x[i] = reached / reach;
        curve->ns[i] += rate * (curve->x[i] - reached);
        const double bound = curve->ns[full] + rate * (curve->x[i] - curve->x[full]);
        if (ep > NODE_RANKS && i > full && bound < curve->ns[i]) {
            operators->stretched[SIM_OPERATOR_EXPERTS] = true;
            curve->ns[i] = bound;
        }
    }
}

static void roofline_experts(const struct sim_operators *operators, uint32_t moe_tp, uint32_t ep,
                             struct sim_curve *curve)
{
    powers_of_two(curve, 1.0);
    for (uint32_t i = 0; i < curve->count; i++) {
        curve->ns[i] = sim_roofline_experts_ns(operators->gpu, operators->model, operators->weights,
                                               curve->x[i], moe_tp, ep);
    }
}

void sim_operators_experts(struct sim_operators *operators, uint32_t moe_tp, uint32_t ep,
                           bool skewed, bool dispatched, struct sim_curve *curve)
{
    const struct sim_model *model = operators->model;
    const char *text = sim_calibration_text("experts.tsv");
    char prefix[SIM_OPERATOR_PREFIX];

    if (!sim_operators_find(operators, SIM_OPERATOR_EXPERTS, text, prefix,
                            "%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t",
                            sim_dtype_name(operators->weights), model->hidden, model->moe_inter,
                            model->topk, model->experts)) {
        roofline_experts(operators, moe_tp, ep, curve);
        return;
    }
    double row_tp = 1.0;
    double row_ep = 1.0;
    const char *row = nearest_cut(text, prefix, moe_tp, ep, skewed, &row_tp, &row_ep);
    HLG_ASSERT(row != NULL);
    read_curve(text, row, 10, curve);
    if (row_tp != moe_tp || row_ep != ep) {
        /* Another cut: what was measured there, times the ratio of the two rooflines. */
        operators->stretched[SIM_OPERATOR_EXPERTS] = true;
        for (uint32_t i = 0; i < curve->count; i++) {
            const double x = curve->x[i];
            curve->ns[i] *=
                sim_roofline_experts_ns(operators->gpu, model, operators->weights, x, moe_tp, ep) /
                sim_roofline_experts_ns(operators->gpu, model, operators->weights, x,
                                        (uint32_t)row_tp, (uint32_t)row_ep);
        }
    }
    if (dispatched) {
        dispatch(operators, computing_ns(operators, text, prefix, skewed, (double)moe_tp * ep), ep,
                 curve);
    }
}

void sim_operators_reduce(struct sim_operators *operators, uint32_t gpus, struct sim_curve *curve)
{
    const char *text = sim_calibration_text("reduce.tsv");
    char prefix[SIM_OPERATOR_PREFIX];

    if (sim_operators_find(operators, SIM_OPERATOR_REDUCE, text, prefix, "%" PRIu32 "\t", gpus)) {
        read_curve(text, sim_calibration_next(text, prefix, NULL), 3, curve);
        return;
    }
    powers_of_two(curve, 4096.0);
    for (uint32_t i = 0; i < curve->count; i++) {
        curve->ns[i] = sim_roofline_reduce_ns(operators->gpu, gpus, curve->x[i]);
    }
}

void sim_operators_exchange(struct sim_operators *operators, uint32_t ranks,
                            struct sim_curve *curve)
{
    const char *text = sim_calibration_text("exchange.tsv");
    const double values = (double)operators->model->hidden * operators->model->topk;
    const uint32_t measured = ranks <= 8 ? 8 : ranks <= 16 ? 16 : ranks <= 32 ? 32 : 64;
    char prefix[SIM_OPERATOR_PREFIX];

    if (!sim_operators_find(operators, SIM_OPERATOR_EXCHANGE, text, prefix, "%" PRIu32 "\t",
                            measured)) {
        powers_of_two(curve, 1.0);
        for (uint32_t i = 0; i < curve->count; i++) {
            curve->ns[i] =
                sim_roofline_exchange_ns(operators->gpu, operators->model, ranks, curve->x[i]);
        }
        return;
    }
    operators->stretched[SIM_OPERATOR_EXCHANGE] |= ranks != 8 || values != EXCHANGE_VALUES;
    read_curve(text, sim_calibration_next(text, prefix, NULL), 3, curve);
    for (uint32_t i = 0; i < curve->count; i++) {
        curve->x[i] *= EXCHANGE_VALUES / values;
    }
}
