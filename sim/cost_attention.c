/* The attention part of cost_operator.h. */
#include "calibration.h"
#include "cost_operator.h"
#include "cost_roofline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What was measured: MLA of DeepSeek's widths, and heads of 128 values. */
#define LATENT_RANK 512u
#define LATENT_ROPE 64u
#define HEAD_DIM    128u

#define ROOFLINE_ROWS 12u

static bool is_mla(const struct sim_operators *operators)
{
    return operators->model->attention == SIM_ATTENTION_MLA;
}

static bool is_measured_latent(const struct sim_operators *operators)
{
    return operators->model->kv_lora_rank == LATENT_RANK &&
           operators->model->qk_rope_head_dim == LATENT_ROPE;
}

/* Of rows with heads and kv_heads in the columns 3 and 4, the one with most heads in common. */
static const char *nearest_heads(const char *text, const char *prefix, uint32_t heads,
                                 uint32_t kv_heads, const char *kv, double found[2])
{
    const char *best = NULL;
    double best_distance = 0.0;

    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        double values[2];
        char dtype[8];
        (void)sim_calibration_numbers(row, 3, values, 1);
        (void)sim_calibration_numbers(row, 4, values + 1, 1);
        sim_calibration_field(row, 5, dtype, sizeof dtype);
        const double distance =
            (values[0] > heads ? values[0] / heads : heads / values[0]) *
            (values[1] > kv_heads ? values[1] / kv_heads : kv_heads / values[1]);
        if (strcmp(dtype, kv) == 0 && (best == NULL || distance < best_distance)) {
            best = row;
            best_distance = distance;
            memcpy(found, values, sizeof values);
        }
    }
    return best;
}

void sim_operators_context(struct sim_operators *operators, uint32_t heads, uint32_t kv_heads,
                           struct sim_context_times *times)
{
    const char *text = sim_calibration_text("attention_context.tsv");
    char prefix[SIM_OPERATOR_PREFIX];
    double found[2] = {1.0, 1.0};
    double fitted[3];

    const bool known = !is_mla(operators) || is_measured_latent(operators);
    if (known && sim_operators_find(operators, SIM_OPERATOR_CONTEXT, text, prefix, "%s\t",
                                    is_mla(operators) ? "mla" : "gqa")) {
        /* Heads of 16-bit caches were measured everywhere, of 8-bit ones not. */
        const char *kv = sim_dtype_name(operators->kv);
        const char *row = nearest_heads(text, prefix, heads, kv_heads, kv, found);
        row = row != NULL ? row : nearest_heads(text, prefix, heads, kv_heads, "bf16", found);
        HLG_ASSERT(row != NULL);
        (void)sim_calibration_numbers(row, 6, fitted, 3);
        const double width =
            is_mla(operators) ? 1.0 : (double)operators->model->head_dim / HEAD_DIM;
        const double scale = heads / found[0] * width;
        operators->stretched[SIM_OPERATOR_CONTEXT] |= scale != 1.0;
        *times = (struct sim_context_times){fitted[0] * 1e-3, fitted[1] * 1e-3 * scale,
                                            fitted[2] * 1e-6 * scale};
        return;
    }
    operators->missing[SIM_OPERATOR_CONTEXT] = true;
    *times = (struct sim_context_times){
        3000.0, sim_roofline_token_ns(operators->gpu, operators->model, operators->kv, kv_heads),
        sim_roofline_pair_ns(operators->gpu, operators->model, heads)};
}

/* Rows of a plane: the columns before `keys` are keys, the last of them the sequences. */
static void read_plane(const char *text, const char *prefix, uint32_t keys, struct sim_plane *plane)
{
    plane->column_count =
        sim_calibration_numbers(sim_calibration_heading(text), keys, plane->context, SIM_GRID_MAX);
    plane->row_count = 0;
    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        const uint32_t index = plane->row_count;
        HLG_ASSERT(index < SIM_GRID_MAX);
        (void)sim_calibration_numbers(row, keys - 1, &plane->sequences[index], 1);
        HLG_ASSERT(index == 0 || plane->sequences[index] > plane->sequences[index - 1]);
        (void)sim_calibration_numbers(row, keys, plane->ns[index], SIM_GRID_MAX);
        plane->row_count++;
    }
}

static void roofline_plane(const struct sim_operators *operators, double heads, double kv_heads,
                           struct sim_plane *plane)
{
    plane->row_count = ROOFLINE_ROWS;
    plane->column_count = ROOFLINE_ROWS;
    for (uint32_t row = 0; row < ROOFLINE_ROWS; row++) {
        plane->sequences[row] = (double)(1u << row);
        plane->context[row] = 64.0 * (double)(1u << row);
    }
    for (uint32_t row = 0; row < ROOFLINE_ROWS; row++) {
        for (uint32_t column = 0; column < ROOFLINE_ROWS; column++) {
            plane->ns[row][column] =
                sim_roofline_decode_ns(operators->gpu, operators->model, operators->kv, heads,
                                       kv_heads, plane->sequences[row], plane->context[column]);
        }
    }
}

/* The greatest time of the rows: much work, where the kernel and not its start counts. */
static double greatest(const char *text, const char *prefix)
{
    double ns[SIM_GRID_MAX];
    double most = 0.0;

    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        const uint32_t count = sim_calibration_numbers(row, 5, ns, SIM_GRID_MAX);
        most = ns[count - 1] > most ? ns[count - 1] : most;
    }
    return most;
}

/* SGLang's fp8 MLA decode on Hopper reads at a sixteenth of the memory's speed, far slower than its
 * bf16. That is a kernel of that engine: others are charged bf16's time, the nearest measured one. */
static bool mla_rows(struct sim_operators *operators, const char *text, const char *heads,
                     char *prefix)
{
    char bf16[SIM_OPERATOR_PREFIX];

    if (!sim_operators_find(operators, SIM_OPERATOR_DECODE, text, prefix, "%s\t%s\t", heads,
                            sim_dtype_name(operators->kv))) {
        return false;
    }
    if (operators->borrowed[SIM_OPERATOR_DECODE] && operators->kv != SIM_BF16 &&
        sim_operators_find(operators, SIM_OPERATOR_DECODE, text, bf16, "%s\tbf16\t", heads) &&
        greatest(text, bf16) < greatest(text, prefix)) {
        memcpy(prefix, bf16, sizeof bf16);
        operators->stretched[SIM_OPERATOR_DECODE] = true;
    }
    return true;
}

static bool mla_decode(struct sim_operators *operators, uint32_t heads,
                       struct sim_decode_times *times)
{
    const char *text = sim_calibration_text("mla_decode.tsv");
    char prefix[SIM_OPERATOR_PREFIX];

    if (!is_measured_latent(operators) || !mla_rows(operators, text, "16", prefix)) {
        return false;
    }
    read_plane(text, prefix, 5, &times->low);
    const bool is_both = mla_rows(operators, text, "128", prefix);
    HLG_ASSERT(is_both);
    read_plane(text, prefix, 5, &times->high);
    times->heads_low = 16.0;
    times->heads_high = 128.0;
    operators->stretched[SIM_OPERATOR_DECODE] |= heads != 16 && heads != 128;
    return true;
}

/* Heads of one kv head work together, and kv heads apart, as sequences do: 24 heads over 2 kv heads
 * are 12 over 1 with twice the sequences. */
static bool gqa_decode(struct sim_operators *operators, uint32_t heads, uint32_t kv_heads,
                       struct sim_decode_times *times)
{
    const char *text = sim_calibration_text("gqa_decode.tsv");
    char prefix[SIM_OPERATOR_PREFIX];
    const uint32_t group = heads / kv_heads;
    const uint32_t tried[] = {kv_heads, 1, 2, 4, 8};

    times->context_scale = (double)operators->model->head_dim / HEAD_DIM;
    operators->stretched[SIM_OPERATOR_DECODE] |= operators->model->head_dim != HEAD_DIM;
    for (uint32_t i = 0; i < 5; i++) {
        if (sim_operators_find(operators, SIM_OPERATOR_DECODE, text, prefix,
                               "%" PRIu32 "\t%" PRIu32 "\t%s\t", group * tried[i], tried[i],
                               sim_dtype_name(operators->kv))) {
            read_plane(text, prefix, 6, &times->low);
            times->sequence_scale = (double)kv_heads / tried[i];
            operators->stretched[SIM_OPERATOR_DECODE] |= tried[i] != kv_heads;
            operators->missing[SIM_OPERATOR_DECODE] = false;
            return true;
        }
    }
    return false;
}

void sim_operators_decode(struct sim_operators *operators, uint32_t heads, uint32_t kv_heads,
                          struct sim_decode_times *times)
{
    *times = (struct sim_decode_times){.sequence_scale = 1.0, .context_scale = 1.0};
    const bool measured = is_mla(operators) ? mla_decode(operators, heads, times)
                                            : gqa_decode(operators, heads, kv_heads, times);
    /* MLA's second plane holds what more heads cost. */
    times->query_ns =
        is_mla(operators) ? 0.0 : sim_roofline_pair_ns(operators->gpu, operators->model, 1.0);
    if (!measured) {
        operators->missing[SIM_OPERATOR_DECODE] = true;
        times->context_scale = 1.0;
        roofline_plane(operators, heads, kv_heads, &times->low);
        times->high.row_count = 0;
        if (is_mla(operators)) {
            times->heads_low = heads;
            times->heads_high = 8.0 * heads;
            roofline_plane(operators, times->heads_high, kv_heads, &times->high);
        }
    }
}

double sim_decode_times_at(const struct sim_decode_times *times, double heads, double sequences,
                           double context, bool *beyond)
{
    const double count = sequences * times->sequence_scale;
    const double length = context * times->context_scale;
    double ns = sim_plane_at(&times->low, count, length, beyond);

    if (times->high.row_count > 0 && heads > times->heads_low) {
        const double high = sim_plane_at(&times->high, count, length, beyond);
        const double weight = (heads - times->heads_low) / (times->heads_high - times->heads_low);
        ns = high > ns ? ns + (high - ns) * weight : ns;
    }
    const double compute = times->query_ns * heads * sequences * context;
    return compute > ns ? compute : ns;
}
