/*
 * The cost model's own promises: parts that sum, times that do not fall when work grows, ranks in
 * lock-step, shapes that are refused, flags that say what was not measured, and equal bits with every
 * compiler. How near the times are to reality: tests/accuracy/test_steps.c.
 */
#define _GNU_SOURCE /* mkstemp() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <driver/rng.h>

#include "calibration.h"
#include "cost.h"
#include "cost_curve.h"

#define GIB 1073741824.0

struct shape {
    const char *gpu;
    const char *engine;
    const char *model;
    enum sim_dtype weights;
    enum sim_dtype kv;
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
};

static const struct shape shapes[] = {
    {"H200", "sglang", "DeepSeek-R1", SIM_FP8, SIM_BF16, 8, 1, 1},
    {"H200", "trtllm", "DeepSeek-R1", SIM_FP8, SIM_BF16, 8, 1, 8},
    {"H200", "trtllm", "DeepSeek-R1", SIM_FP8, SIM_FP8, 1, 8, 8},
    {"H200", "sglang", "DeepSeek-R1", SIM_FP8, SIM_BF16, 4, 2, 1},
    {"B200", "sglang", "DeepSeek-R1", SIM_FP4, SIM_FP8, 1, 8, 8},
    {"H100", "sglang", "DeepSeek-R1", SIM_FP8, SIM_BF16, 1, 32, 32},
    {"H200", "sglang", "Kimi-K2-Instruct", SIM_FP8, SIM_BF16, 8, 2, 16},
    {"H200", "vllm", "Qwen3-Coder-480B-A35B-Instruct", SIM_FP8, SIM_BF16, 8, 1, 8},
    {"H200", "sglang", "Qwen3-Coder-480B-A35B-Instruct", SIM_FP8, SIM_FP8, 8, 1, 2},
    {"H200", "sglang", "Qwen3-30B-A3B", SIM_BF16, SIM_BF16, 1, 1, 1},
    {"H100", "vllm", "Llama-3.1-70B", SIM_BF16, SIM_BF16, 4, 1, 1},
    {"H100", "none", "Llama-3.1-8B", SIM_BF16, SIM_FP8, 1, 1, 1},
    {"H200", "sglang", "gpt-oss-120b", SIM_MXFP4, SIM_BF16, 1, 1, 1},
    {"B200", "sglang", "gpt-oss-120b", SIM_MXFP4, SIM_FP8, 2, 1, 2},
    {"H20", "sglang", "Qwen3-32B", SIM_FP8, SIM_BF16, 2, 1, 1},
    {"A100", "vllm", "Llama-3.1-70B", SIM_BF16, SIM_BF16, 8, 1, 1},
    {"GB200", "trtllm", "DeepSeek-R1", SIM_FP4, SIM_FP8, 1, 16, 16},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static struct sim_cost_config config_of(const struct shape *shape)
{
    return (struct sim_cost_config){.model = sim_model_find(shape->model),
                                    .gpu = sim_gpu_find(shape->gpu),
                                    .engine = shape->engine,
                                    .weights = shape->weights,
                                    .kv = shape->kv,
                                    .tp = shape->tp,
                                    .dp = shape->dp,
                                    .ep = shape->ep,
                                    .step_overhead_ns = -1.0,
                                    .layer_overhead_ns = -1.0};
}

static struct sim_cost *create(const struct sim_cost_config *config)
{
    struct sim_cost *cost = NULL;
    char text[512] = "";

    if (sim_cost_create(config, &cost, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    return cost;
}

static struct sim_cost *make(const struct shape *shape)
{
    const struct sim_cost_config config = config_of(shape);

    return create(&config);
}

static struct sim_rank_step decode(uint32_t sequences, uint32_t context)
{
    return (struct sim_rank_step){.sequences = sequences,
                                  .context_sum = (uint64_t)sequences * context,
                                  .context_max = context,
                                  .query_tokens = 1};
}

/* All ranks alike. */
static double step_ns(const struct sim_cost *cost, uint32_t dp, const struct sim_rank_step *rank)
{
    struct sim_rank_step ranks[64];

    for (uint32_t i = 0; i < dp; i++) {
        ranks[i] = *rank;
    }
    return sim_cost_step_ns(cost, ranks, dp, NULL);
}

static double decode_ns(const struct sim_cost *cost, uint32_t dp, uint32_t sequences,
                        uint32_t context)
{
    const struct sim_rank_step rank = decode(sequences, context);

    return step_ns(cost, dp, &rank);
}

static double prefill_ns(const struct sim_cost *cost, uint32_t dp, uint32_t tokens,
                         uint32_t context)
{
    const struct sim_chunk chunk = {tokens, context};
    const struct sim_rank_step rank = {.chunks = &chunk, .chunk_count = 1};

    return step_ns(cost, dp, &rank);
}

static uint32_t draw(struct hlg_rng *rng, uint32_t limit)
{
    return (uint32_t)(hlg_rng_next(rng) % limit);
}

static void parts_sum_to_the_step(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct sim_cost *cost = make(&shapes[i]);
        struct hlg_rng rng = hlg_rng_seed(i + 1);
        for (uint32_t round = 0; round < 200; round++) {
            struct sim_chunk chunks[3];
            struct sim_rank_step ranks[64];
            for (uint32_t c = 0; c < 3; c++) {
                chunks[c] = (struct sim_chunk){1 + draw(&rng, 4096), draw(&rng, 30000)};
            }
            for (uint32_t rank = 0; rank < shapes[i].dp; rank++) {
                ranks[rank] = decode(draw(&rng, 64), 1 + draw(&rng, 30000));
                ranks[rank].chunks = chunks;
                ranks[rank].chunk_count = draw(&rng, 4);
                ranks[rank].query_tokens = 1 + draw(&rng, 4);
            }
            struct sim_cost_parts parts;
            const double ns = sim_cost_step_ns(cost, ranks, shapes[i].dp, &parts);
            const double sum = parts.gemm_ns + parts.attention_ns + parts.experts_ns +
                               parts.communication_ns + parts.head_ns + parts.overhead_ns;
            assert_true(isfinite(ns) && ns >= 0.0);
            assert_true(fabs(sum - ns) <= 1e-9 * ns);
            assert_true(parts.gemm_ns >= 0.0 && parts.attention_ns >= 0.0 &&
                        parts.experts_ns >= 0.0 && parts.communication_ns >= 0.0 &&
                        parts.head_ns >= 0.0 && parts.overhead_ns >= 0.0);
        }
        sim_cost_destroy(cost);
    }
}

/* One argument grows, the others stay. */
static void more_work_never_takes_less(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct sim_cost *cost = make(&shapes[i]);
        const uint32_t dp = shapes[i].dp;
        for (uint32_t small = 1; small <= 4096; small *= 4) {
            double before[4] = {0};
            for (uint32_t grown = 1; grown <= 70000; grown += 1 + grown / 9) {
                const double now[4] = {
                    decode_ns(cost, dp, small, grown), decode_ns(cost, dp, grown, small),
                    prefill_ns(cost, dp, small, grown), prefill_ns(cost, dp, grown, small)};
                for (uint32_t k = 0; k < 4; k++) {
                    if (!(now[k] >= before[k])) {
                        fail_msg("%s on %s: case %u, %u by %u: %.0f after %.0f ns", shapes[i].model,
                                 shapes[i].gpu, k, small, grown, now[k], before[k]);
                    }
                    before[k] = now[k];
                }
            }
        }
        sim_cost_destroy(cost);
    }
}

static void ragged_contexts_last_as_long_as_the_longest(void **state)
{
    struct sim_cost *cost = make(&shapes[0]);
    struct sim_rank_step even = decode(4, 30000);
    struct sim_rank_step ragged = even;

    (void)state;
    even.context_sum = 32768;
    even.context_max = 8192;
    ragged.context_sum = 32768;
    ragged.context_max = 32000;
    assert_true(step_ns(cost, 1, &ragged) > step_ns(cost, 1, &even));
    assert_true(step_ns(cost, 1, &ragged) <= decode_ns(cost, 1, 4, 32000));
    sim_cost_destroy(cost);
}

static void ranks_wait_for_the_slowest(void **state)
{
    const struct shape *shape = &shapes[2];
    struct sim_cost *cost = make(shape);
    struct sim_rank_step ranks[8] = {[3] = decode(32, 8000)};
    struct sim_cost_parts one;
    struct sim_cost_parts both;

    (void)state;
    assert_true(sim_cost_step_ns(cost, ranks, 8, NULL) ==
                sim_cost_step_ns(cost, &ranks[3], 1, NULL));
    const double alone = sim_cost_step_ns(cost, ranks, 8, &one);
    ranks[5] = decode(16, 4000); /* less than rank 3: only the experts notice */
    const double joined = sim_cost_step_ns(cost, ranks, 8, &both);
    assert_true(joined > alone);
    assert_true(both.gemm_ns == one.gemm_ns && both.attention_ns == one.attention_ns);
    assert_true(both.communication_ns == one.communication_ns && both.head_ns == one.head_ns);
    assert_true(both.experts_ns > one.experts_ns);
    ranks[5] = decode(64, 8000); /* more than rank 3 */
    assert_true(sim_cost_step_ns(cost, ranks, 8, &one) > joined);
    assert_true(one.attention_ns > both.attention_ns);
    sim_cost_destroy(cost);
}

static void ranks_without_work_take_no_time(void **state)
{
    struct sim_cost *cost = make(&shapes[2]);
    const struct sim_rank_step idle[8] = {0};
    struct sim_cost_parts parts;

    (void)state;
    assert_true(sim_cost_step_ns(cost, idle, 8, &parts) == 0.0);
    assert_true(parts.overhead_ns == 0.0 && !parts.is_beyond);
    sim_cost_destroy(cost);
}

static void mixed_steps_take_more_than_either_part(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct sim_cost *cost = make(&shapes[i]);
        const struct sim_chunk chunk = {2048, 4096};
        struct sim_rank_step mixed = decode(32, 5000);
        mixed.chunks = &chunk;
        mixed.chunk_count = 1;
        const double both = step_ns(cost, shapes[i].dp, &mixed);
        const double prefill = prefill_ns(cost, shapes[i].dp, 2048, 4096);
        const double tokens = decode_ns(cost, shapes[i].dp, 32, 5000);
        assert_true(both > prefill && both > 2.0 * tokens);
        assert_true(both < prefill + tokens); /* they share weights and constants */
        sim_cost_destroy(cost);
    }
}

static void a_cached_prefix_costs_attention_alone(void **state)
{
    struct sim_cost *cost = make(&shapes[0]);
    const struct sim_chunk fresh = {1024, 0};
    const struct sim_chunk behind = {1024, 16384};
    const struct sim_rank_step ranks[2] = {{.chunks = &fresh, .chunk_count = 1},
                                           {.chunks = &behind, .chunk_count = 1}};
    struct sim_cost_parts parts[2];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        (void)sim_cost_step_ns(cost, &ranks[i], 1, &parts[i]);
    }
    assert_true(parts[0].gemm_ns == parts[1].gemm_ns);
    assert_true(parts[0].experts_ns == parts[1].experts_ns);
    assert_true(parts[1].attention_ns > 5.0 * parts[0].attention_ns);
    sim_cost_destroy(cost);
}

/* Chunks of a prompt attend as often as the prompt in one piece: only starts are paid again. */
static void cutting_a_prompt_only_adds_starts(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    config.model = sim_model_find("gpt-oss-120b"); /* with windows */
    config.weights = SIM_MXFP4;
    const struct sim_model *models[] = {sim_model_find("DeepSeek-R1"), config.model};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        config.model = models[i];
        config.weights = i == 0 ? SIM_FP8 : SIM_MXFP4;
        struct sim_cost *cost = create(&config);
        const struct sim_chunk pieces[4] = {{2048, 0}, {2048, 2048}, {2048, 4096}, {2048, 6144}};
        const struct sim_chunk whole = {8192, 0};
        struct sim_rank_step rank = {.chunks = pieces, .chunk_count = 4};
        struct sim_cost_parts cut;
        struct sim_cost_parts one;
        (void)sim_cost_step_ns(cost, &rank, 1, &cut);
        rank = (struct sim_rank_step){.chunks = &whole, .chunk_count = 1};
        (void)sim_cost_step_ns(cost, &rank, 1, &one);
        assert_true(fabs(cut.attention_ns / one.attention_ns - 1.0) < 1e-9);
        sim_cost_destroy(cost);
    }
}

static void windows_bound_the_attention(void **state)
{
    struct sim_cost *cost = make(&shapes[12]);
    struct sim_cost_config config = config_of(&shapes[12]);
    struct sim_model full = *config.model;
    full.window_layers = 0;
    full.window_tokens = 0;
    memset(full.window_bits, 0, sizeof full.window_bits);
    config.model = &full;
    struct sim_cost *without = create(&config);
    const struct sim_rank_step rank = decode(64, 32768);
    struct sim_cost_parts parts[2];

    (void)state;
    (void)sim_cost_step_ns(cost, &rank, 1, &parts[0]);
    (void)sim_cost_step_ns(without, &rank, 1, &parts[1]);
    assert_true(parts[0].attention_ns < 0.6 * parts[1].attention_ns);
    assert_true(parts[0].attention_ns > 0.5 * parts[1].attention_ns);
    assert_true(prefill_ns(cost, 1, 100, 0) == prefill_ns(without, 1, 100, 0)); /* inside */
    assert_true(prefill_ns(cost, 1, 8192, 0) < prefill_ns(without, 1, 8192, 0));
    sim_cost_destroy(cost);
    sim_cost_destroy(without);
}

static void drafts_cost_less_than_the_steps_they_save(void **state)
{
    struct sim_cost *cost = make(&shapes[0]);
    struct sim_rank_step rank = decode(8, 4000);
    struct sim_cost_parts one;
    struct sim_cost_parts two;

    (void)state;
    const double plain = sim_cost_step_ns(cost, &rank, 1, &one);
    rank.query_tokens = 2;
    const double drafted = sim_cost_step_ns(cost, &rank, 1, &two);
    printf("R1 TP8, batch 8: %.2f ms, with one draft %.2f ms\n", plain / 1e6, drafted / 1e6);
    assert_true(drafted > plain && drafted < 1.8 * plain);
    assert_true(two.head_ns > one.head_ns && two.experts_ns > one.experts_ns);
    sim_cost_destroy(cost);
}

static void curves_pass_through_their_points(void **state)
{
    struct sim_curve curve = {.count = 3, .x = {2, 4, 16}, .ns = {10, 20, 50}};
    struct sim_plane plane = {.row_count = 2,
                              .column_count = 2,
                              .sequences = {1, 3},
                              .context = {100, 200},
                              .ns = {{5, 7}, {9, 15}}};
    bool beyond = false;

    (void)state;
    assert_true(sim_curve_at(&curve, 2, &beyond) == 10 && sim_curve_at(&curve, 4, &beyond) == 20);
    assert_true(sim_curve_at(&curve, 16, &beyond) == 50 && sim_curve_at(&curve, 10, &beyond) == 35);
    assert_true(sim_curve_at(&curve, 1, &beyond) == 10 && sim_curve_at(&curve, 0, &beyond) == 0);
    assert_true(sim_plane_at(&plane, 1, 200, &beyond) == 7);
    assert_true(sim_plane_at(&plane, 2, 150, &beyond) == 9);
    assert_true(sim_plane_at(&plane, 0.5, 50, &beyond) == 5);
    assert_false(beyond);
    assert_true(sim_curve_at(&curve, 28, &beyond) == 80);
    assert_true(beyond);
    beyond = false;
    assert_true(sim_plane_at(&plane, 3, 300, &beyond) == 22.5);
    assert_true(beyond);
    curve.count = 0;
    assert_true(sim_curve_at(&curve, 5, &beyond) == 0);
}

static void steps_beyond_the_tables_say_so(void **state)
{
    struct sim_cost *cost = make(&shapes[0]);
    struct sim_cost_parts parts;
    struct sim_rank_step rank = decode(64, 8000);
    const struct sim_chunk chunk = {200000, 0};

    (void)state;
    (void)sim_cost_step_ns(cost, &rank, 1, &parts);
    assert_false(parts.is_beyond);
    rank = decode(8, 200000); /* the tables end at 131,072 */
    (void)sim_cost_step_ns(cost, &rank, 1, &parts);
    assert_true(parts.is_beyond);
    rank = (struct sim_rank_step){.chunks = &chunk, .chunk_count = 1};
    (void)sim_cost_step_ns(cost, &rank, 1, &parts);
    assert_true(parts.is_beyond);
    sim_cost_destroy(cost);
}

static struct sim_cost_basis basis_of(const struct sim_cost_config *config)
{
    struct sim_cost *cost = create(config);
    struct sim_cost_basis basis;

    sim_cost_basis(cost, &basis);
    sim_cost_destroy(cost);
    return basis;
}

static void what_was_not_measured_is_flagged(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    struct sim_cost_basis basis = basis_of(&config);
    char id[48];

    (void)state;
    sim_calibration_id(id, sizeof id);
    assert_string_equal(basis.id, id);
    assert_string_equal(basis.why, "");
    assert_false(basis.extrapolated || basis.borrowed || basis.is_stale);

    config.version = "9.9";
    basis = basis_of(&config);
    assert_true(basis.is_stale && !basis.extrapolated);
    assert_non_null(strstr(basis.why, "version 9.9 asked for, constants are of sglang 0.5.9"));
    config.version = "0.5.9";
    assert_false(basis_of(&config).is_stale);

    config.gpu = sim_gpu_find("H20"); /* no table: the H200's is not taken for it */
    basis = basis_of(&config);
    assert_true(basis.extrapolated);
    assert_non_null(strstr(basis.why, "no measured times on H20 for matrix products"));

    config.gpu = sim_gpu_find("H800"); /* H100's kernels, but not its links */
    basis = basis_of(&config);
    assert_true(basis.extrapolated);
    assert_non_null(strstr(basis.why, "no measured times on H800 for all-reduce: roofline"));
    assert_non_null(strstr(basis.why, "measured on another GPU than H800: matrix products"));

    config = config_of(&shapes[1]);
    basis = basis_of(&config);
    assert_true(basis.borrowed && !basis.extrapolated);
    assert_non_null(strstr(basis.why, "measured with sglang 0.5.14: matrix products"));

    config.roofline = true;
    basis = basis_of(&config);
    assert_true(basis.extrapolated && basis.layer_overhead_ns == 0.0);

    config = config_of(&shapes[9]); /* 128 experts of 768: not in the tables */
    basis = basis_of(&config);
    assert_true(basis.extrapolated);
    assert_non_null(strstr(basis.why, "for experts: roofline"));
}

static void constants_can_be_given(void **state)
{
    struct sim_cost_config config = config_of(&shapes[1]);

    (void)state;
    struct sim_cost *cost = create(&config);
    config.layer_overhead_ns = 1000.0;
    config.step_overhead_ns = 5000.0;
    struct sim_cost *given = create(&config);
    struct sim_cost_parts parts;
    const struct sim_rank_step rank = decode(4, 1000);
    (void)sim_cost_step_ns(given, &rank, 1, &parts);
    assert_true(parts.overhead_ns == 61.0 * 1000.0 + 5000.0);
    (void)sim_cost_step_ns(cost, &rank, 1, &parts);
    assert_true(parts.overhead_ns > 1e6);
    sim_cost_destroy(cost);
    sim_cost_destroy(given);
}

/* The roofline, the negative control, is far too fast for R1 TP8 in decode (planning notes: 1.5 to 4.2
 * times). */
static void the_roofline_is_faster_than_the_tables(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    struct sim_cost *measured = create(&config);
    config.roofline = true;
    struct sim_cost *roofline = create(&config);

    (void)state;
    for (uint32_t batch = 4; batch <= 64; batch *= 2) {
        const double ratio =
            decode_ns(measured, 1, batch, 1400) / decode_ns(roofline, 1, batch, 1400);
        printf("R1 TP8 batch %u: tables over roofline %.2f\n", batch, ratio);
        assert_true(ratio > 1.1 && ratio < 4.2);
    }
    sim_cost_destroy(measured);
    sim_cost_destroy(roofline);
}

/* A GPU with little compute for its memory (H20) wants more prefill for the same decode. */
static void little_compute_wants_more_prefill(void **state)
{
    const char *const gpus[] = {"H200", "H20"};
    double ratio[2];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_cost_config config = config_of(&shapes[14]);
        config.gpu = sim_gpu_find(gpus[i]);
        config.roofline = true; /* the same basis for both */
        struct sim_cost *cost = create(&config);
        ratio[i] = prefill_ns(cost, 1, 4096, 0) / decode_ns(cost, 1, 32, 4096);
        sim_cost_destroy(cost);
        printf("%s: prefill of 4096 over a decode step of 32: %.1f\n", gpus[i], ratio[i]);
    }
    assert_true(ratio[1] > 4.0 * ratio[0]);
}

static void imbalance_slows_spread_experts_down(void **state)
{
    struct sim_cost_config config = config_of(&shapes[2]);
    double ns[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        config.moe_imbalance = 1.0 + i;
        struct sim_cost *cost = create(&config);
        ns[i] = decode_ns(cost, 8, 64, 4000);
        sim_cost_destroy(cost);
    }
    assert_true(ns[0] < ns[1] && ns[1] < ns[2]);
}

/* The same experts and tokens: 8 ranks that each hold all tokens, or that are sent theirs. */
static void a_dispatch_spares_the_experts(void **state)
{
    struct sim_cost_config config = config_of(&shapes[1]);
    struct sim_cost *whole = create(&config);
    config = config_of(&shapes[2]);
    config.kv = SIM_BF16;
    struct sim_cost *sent = create(&config);

    (void)state;
    for (uint32_t batch = 1; batch <= 4096; batch *= 2) {
        const struct sim_rank_step all = decode(8 * batch, 1000);
        struct sim_rank_step ranks[8];
        struct sim_cost_parts parts[2];
        for (uint32_t i = 0; i < 8; i++) {
            ranks[i] = decode(batch, 1000);
        }
        (void)sim_cost_step_ns(whole, &all, 1, &parts[0]);
        (void)sim_cost_step_ns(sent, ranks, 8, &parts[1]);
        assert_true(parts[1].experts_ns < 1.01 * parts[0].experts_ns);
        assert_true(parts[1].experts_ns > 0.5 * parts[0].experts_ns);
    }
    sim_cost_destroy(whole);
    sim_cost_destroy(sent);
}

static void expect_refusal(const struct sim_cost_config *config, const char *sentence)
{
    struct sim_cost *cost = NULL;
    char text[512] = "";

    assert_int_equal(sim_cost_create(config, &cost, text, sizeof text), -HLG_EINVAL);
    assert_null(cost);
    if (strstr(text, sentence) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text, sentence);
    }
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    const struct shape coder = {
        "H200", "sglang", "Qwen3-Coder-480B-A35B-Instruct", SIM_FP8, SIM_BF16, 8, 1, 1};
    struct sim_cost_config config = config_of(&coder);
    struct sim_cost *cost;

    (void)state;
    expect_refusal(&config,
                   "ep: 1: leaves 320 of each expert's 2560 rows to a rank, no multiple of "
                   "the fp8 block of 128: set ep: 8, or tp: 4");
    config.tp = 4; /* the remedy works */
    cost = create(&config);
    sim_cost_destroy(cost);
    config.tp = 8;
    config.ep = 8;
    cost = create(&config);
    sim_cost_destroy(cost);
    config.ep = 1;
    config.weights = SIM_BF16;
    cost = create(&config);
    sim_cost_destroy(cost);
    config.ep = 3;
    expect_refusal(&config, "ep: 3: must divide tp * dp, 8");
    config.ep = 0;
    expect_refusal(&config, "ep: 0");
    config = config_of(&coder);
    config.tp = 7;
    expect_refusal(&config, "tp: 7: must divide the 96 heads");
    config.tp = 0;
    expect_refusal(&config, "tp, dp: 0, 1");
    config.tp = UINT32_MAX;
    config.dp = UINT32_MAX;
    expect_refusal(&config, "their product at most 1024");
    config = config_of(&coder);
    config.tp = 12;
    expect_refusal(&config, "tp: 12: neither divides the 8 KV heads");
    config = config_of(&coder);
    config.dp = 8;
    config.ep = 64;
    expect_refusal(&config, "ep: 64: must divide the 160 experts of "
                            "Qwen3-Coder-480B-A35B-Instruct: use other weights or fewer ranks");
    config = config_of(&shapes[10]);
    config.ep = 2;
    expect_refusal(&config, "ep: 2: Llama-3.1-70B has no experts: write 1");
    config = config_of(&shapes[10]);
    config.kv = SIM_FP4;
    expect_refusal(&config, "kv: fp4");
    config = config_of(&shapes[10]);
    config.weights = SIM_MXFP4;
    expect_refusal(&config, "weights: mxfp4");
    config = config_of(&shapes[0]);
    config.engine = "tgi";
    expect_refusal(&config, "engine: 'tgi': write sglang, trtllm, vllm or none");
    config.engine = NULL;
    expect_refusal(&config, "engine: ''");
    config = config_of(&shapes[0]);
    config.moe_imbalance = 0.5;
    expect_refusal(&config, "moe_imbalance: 0.5");
    config.moe_imbalance = (double)NAN;
    expect_refusal(&config, "moe_imbalance: ");
    config = config_of(&shapes[0]);
    config.layer_overhead_ns = (double)INFINITY;
    expect_refusal(&config, "layer_overhead");
}

static void a_model_that_does_not_fit_is_refused(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    char text[512] = "";

    (void)state;
    config.gpu = sim_gpu_find("H100");
    struct sim_cost *cost = create(&config);
    assert_true(sim_cost_kv_tokens(cost, 0.9, text, sizeof text) == 0);
    printf("%s\n", text);
    assert_non_null(strstr(text, "DeepSeek-R1 on H100: weights 7"));
    const char *missing = strstr(text, " GiB missing of the 71.");
    assert_non_null(missing);
    while (missing > text && missing[-1] != ' ') {
        missing--;
    }
    /* 673 GB of weights over 8, less shared parts' copies, plus some 5 GiB, against 71.7 GiB. */
    const double gib = strtod(missing, NULL);
    assert_true(gib > 10.0 && gib < 14.0);
    sim_cost_destroy(cost);
}

static void room_for_tokens_follows_from_bytes(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    char text[512] = "";

    (void)state;
    struct sim_cost *cost = create(&config);
    const double tokens = (double)sim_cost_kv_tokens(cost, 0.9, text, sizeof text);
    const double more = (double)sim_cost_kv_tokens(cost, 0.95, text, sizeof text);
    sim_cost_destroy(cost);
    /* MLA: each of the TP ranks holds all 70,272 bytes of a token. */
    const double expected = 0.05 * (double)config.gpu->hbm_bytes / 70272.0;
    assert_true(fabs(more - tokens - expected) <= 2.0);

    config.kv = SIM_FP8; /* twice the tokens, the same weights */
    cost = create(&config);
    assert_true(fabs((double)sim_cost_kv_tokens(cost, 0.9, text, sizeof text) - 2.0 * tokens) <=
                2.0);
    sim_cost_destroy(cost);

    config = config_of(&shapes[0]);
    config.draft_module = true;
    cost = create(&config);
    const double drafting = (double)sim_cost_kv_tokens(cost, 0.9, text, sizeof text);
    const double bytes = (double)sim_model_mtp_weight_bytes(config.model, SIM_FP8) / 8.0;
    assert_true(fabs((tokens - drafting) * 70272.0 - bytes) <= 2.0 * 70272.0);
    sim_cost_destroy(cost);

    /* gpt-oss: a token takes room in the 18 layers without a window alone. */
    cost = make(&shapes[12]);
    const double small = (double)sim_cost_kv_tokens(cost, 0.85, text, sizeof text);
    const double large = (double)sim_cost_kv_tokens(cost, 0.9, text, sizeof text);
    assert_true(fabs((large - small) * 36864.0 / (0.05 * 151397597184.0) - 1.0) < 0.01);
    sim_cost_destroy(cost);
}

static char *write_table(const char *text)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/halage-steps-XXXXXX");
    const int file = mkstemp(path);
    assert_true(file >= 0);
    FILE *out = fdopen(file, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    return path;
}

static const char heading[] = "kind\ttokens\tcontext\ttime_us\n";

static void a_users_table_overrides(void **state)
{
    struct sim_cost_config config = config_of(&shapes[0]);
    char text[1024];
    struct sim_cost_parts parts;

    (void)state;
    (void)snprintf(text, sizeof text, "%s%s", heading,
                   "decode\t16\t1000\t2000\n" /* in any order */
                   "prefill\t1000\t0\t10000\nprefill\t2000\t0\t30000\nprefill\t1000\t8000\t20000\n"
                   "decode\t8\t1000\t1000\ndecode\t8\t3000\t1500.5\n");
    char *path = write_table(text);
    config.table = path;
    struct sim_cost *cost = create(&config);
    remove(path);
    assert_true(prefill_ns(cost, 1, 1000, 0) == 10e6 && prefill_ns(cost, 1, 1500, 0) == 20e6);
    assert_true(prefill_ns(cost, 1, 1000, 4000) == 15e6 && prefill_ns(cost, 1, 10, 0) == 10e6);
    assert_true(prefill_ns(cost, 1, 3000, 0) == 50e6); /* the line goes on */
    assert_true(prefill_ns(cost, 1, 1000, 16000) == 30e6);
    assert_true(decode_ns(cost, 1, 8, 1000) == 1e6 && decode_ns(cost, 1, 12, 1000) == 1.5e6);
    assert_true(decode_ns(cost, 1, 1, 10) == 1e6 && decode_ns(cost, 1, 8, 3000) == 1.5005e6);
    const struct sim_chunk chunk = {1000, 0};
    struct sim_rank_step mixed = decode(16, 1000);
    mixed.chunks = &chunk;
    mixed.chunk_count = 1;
    assert_true(sim_cost_step_ns(cost, &mixed, 1, &parts) == 10e6 + 2e6 - 1e6);
    assert_true(parts.overhead_ns == 11e6 && !parts.is_beyond);
    const struct sim_rank_step outside[] = {decode(99, 1000), decode(8, 3001), decode(7, 1000),
                                            decode(8, 999)};
    for (uint32_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        (void)sim_cost_step_ns(cost, &outside[i], 1, &parts);
        assert_true(parts.is_beyond);
    }
    struct sim_cost_basis basis;
    sim_cost_basis(cost, &basis);
    assert_non_null(strstr(basis.why, "step times of /tmp/halage-steps-"));
    assert_true(basis.own_times && strcmp(basis.id, "none") == 0);
    assert_string_equal(basis.engine, "none");
    sim_cost_destroy(cost);
}

static void bad_tables_are_refused_by_line(void **state)
{
    static const struct {
        const char *rows; /* behind the heading; NULL: the file is empty */
        const char *sentence;
    } cases[] = {
        {NULL, ":1: the file is empty"},
        {"", ": no row of kind prefill: add one"},
        {"prefill\t1\t0\t5\n", ": no row of kind decode: add one"},
        {"prefill\t1\t0\t5\nencode\t1\t0\t5\n", ":3: kind: 'encode': write prefill or decode"},
        {"prefill\t0\t0\t5\n", ":2: tokens: '0'"},
        {"prefill\t1\t-3\t5\n", ":2: context: '-3'"},
        {"prefill\t1\t0\tfast\n", ":2: time_us: 'fast'"},
        {"prefill\t1\t0\t0\n", ":2: time_us: '0'"},
        {"prefill\t1\t0\tnan\n", ":2: time_us: 'nan'"},
        {"prefill\t1\t0\t1e30\n", ":2: time_us: '1e30'"},
        {"prefill\t1\t0\n", ":2: time_us: missing"},
        {"prefill\t99999999999\t0\t5\n", ":2: tokens: '99999999999'"},
        {"decode\t1\t0\t5\nprefill\t1\t0\t5\ndecode\t1\t0\t6\n",
         ":4: tokens and context are those of line 2"},
        {"\n", ":2: is empty"},
    };
    struct sim_cost_config config = config_of(&shapes[0]);

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512] = "";
        if (cases[i].rows != NULL) {
            (void)snprintf(text, sizeof text, "%s%s", heading, cases[i].rows);
        }
        char *path = write_table(text);
        config.table = path;
        expect_refusal(&config, cases[i].sentence);
        expect_refusal(&config, path);
        remove(path);
    }
    char *path = write_table("kind\ttokens\ttime_us\n");
    config.table = path;
    expect_refusal(&config, "has no column 'context'");
    remove(path);
    config.table = "/nonexistent/steps.tsv";
    expect_refusal(&config, "/nonexistent/steps.tsv: cannot be read");
}

/* Any change of tables, constants or arithmetic changes this: read the change before the number. */
#define DIGEST "c8de261076a5e5db"

static void equal_bits_with_every_compiler(void **state)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    char text[32];

    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct sim_cost *cost = make(&shapes[i]);
        for (uint32_t batch = 1; batch < 700; batch += 1 + batch / 3) {
            const double ns[2] = {decode_ns(cost, shapes[i].dp, batch, 37 * batch),
                                  prefill_ns(cost, shapes[i].dp, 13 * batch, 29 * batch)};
            for (uint32_t k = 0; k < 2; k++) {
                uint64_t bits;
                memcpy(&bits, &ns[k], sizeof bits);
                hash = (hash ^ bits) * 0x100000001b3u;
            }
        }
        sim_cost_destroy(cost);
    }
    (void)snprintf(text, sizeof text, "%016" PRIx64, hash);
    assert_string_equal(text, DIGEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_sum_to_the_step),
        cmocka_unit_test(more_work_never_takes_less),
        cmocka_unit_test(ragged_contexts_last_as_long_as_the_longest),
        cmocka_unit_test(ranks_wait_for_the_slowest),
        cmocka_unit_test(ranks_without_work_take_no_time),
        cmocka_unit_test(mixed_steps_take_more_than_either_part),
        cmocka_unit_test(a_cached_prefix_costs_attention_alone),
        cmocka_unit_test(cutting_a_prompt_only_adds_starts),
        cmocka_unit_test(windows_bound_the_attention),
        cmocka_unit_test(drafts_cost_less_than_the_steps_they_save),
        cmocka_unit_test(curves_pass_through_their_points),
        cmocka_unit_test(steps_beyond_the_tables_say_so),
        cmocka_unit_test(what_was_not_measured_is_flagged),
        cmocka_unit_test(constants_can_be_given),
        cmocka_unit_test(the_roofline_is_faster_than_the_tables),
        cmocka_unit_test(little_compute_wants_more_prefill),
        cmocka_unit_test(imbalance_slows_spread_experts_down),
        cmocka_unit_test(a_dispatch_spares_the_experts),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(room_for_tokens_follows_from_bytes),
        cmocka_unit_test(a_users_table_overrides),
        cmocka_unit_test(bad_tables_are_refused_by_line),
        cmocka_unit_test(equal_bits_with_every_compiler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
