/*
 * The closed form of decode steps against the cost model itself: batches of several engines and shapes run
 * to their end, each finish at the time that pricing every step gives, to 1e-4. Seeds are printed, and how
 * near the worst one was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <driver/rng.h>

#include "batch.h"
#include "cost.h"

#define RANKS_MAX     8u
#define SEQUENCES_MAX 64u

struct shape {
    const char *gpu;
    const char *engine;
    const char *model;
    enum sim_dtype weights;
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
    bool roofline;
};

static const struct shape shapes[] = {
    {"H200", "sglang", "DeepSeek-R1", SIM_FP8, 8, 1, 1, false},
    {"H200", "trtllm", "DeepSeek-R1", SIM_FP8, 1, 8, 8, false},
    {"H200", "vllm", "Qwen3-Coder-480B-A35B-Instruct", SIM_FP8, 8, 1, 8, false},
    {"H100", "vllm", "Llama-3.1-70B", SIM_BF16, 4, 1, 1, false},
    {"H200", "sglang", "gpt-oss-120b", SIM_MXFP4, 1, 1, 1, false},
    {"H200", "sglang", "DeepSeek-R1", SIM_FP8, 8, 1, 1, true},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

struct sequence {
    uint32_t rank;
    uint32_t context;
    uint32_t output;
};

static uint64_t last_seed;

static struct sim_cost *create_cost(const struct shape *shape)
{
    const struct sim_cost_config config = {.model = sim_model_find(shape->model),
                                           .gpu = sim_gpu_find(shape->gpu),
                                           .engine = shape->engine,
                                           .weights = shape->weights,
                                           .kv = SIM_BF16,
                                           .tp = shape->tp,
                                           .dp = shape->dp,
                                           .ep = shape->ep,
                                           .roofline = shape->roofline,
                                           .step_overhead_ns = -1.0,
                                           .layer_overhead_ns = -1.0};
    struct sim_cost *cost = NULL;
    char text[512] = "";

    if (sim_cost_create(&config, &cost, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    return cost;
}

/* The price of step `made` of all sequences that are not over; 0: all are. */
static double price(const struct sim_cost *cost, uint32_t ranks, const struct sequence *sequences,
                    uint32_t count, uint32_t made)
{
    struct sim_rank_step steps[RANKS_MAX] = {0};
    uint32_t running = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct sim_rank_step *rank = &steps[sequences[i].rank];
        const uint32_t context = sequences[i].context + made;

        rank->query_tokens = 1;
        if (made < sequences[i].output) {
            rank->sequences++;
            rank->context_sum += context;
            rank->context_max = hlg_max_u32(rank->context_max, context);
            running++;
        }
    }
    return running == 0 ? 0 : sim_cost_step_ns(cost, steps, ranks, NULL);
}

/* Run one batch both ways. Returns the worst relative difference of a finish. */
static double run(const struct sim_cost *cost, uint32_t ranks, const struct sequence *sequences,
                  uint32_t count)
{
    const struct sim_batch_config config = {
        .cost = cost, .ranks = ranks, .sequences_max = SEQUENCES_MAX, .waiting_max = SEQUENCES_MAX};
    struct sim_batch *batch = NULL;
    struct sim_batch_event event;
    double worst = 0;
    double now = 0;
    uint32_t made = 0;
    uint32_t finished = 0;

    assert_int_equal(sim_batch_create(&config, &batch), 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(sim_batch_join(batch, 0, sequences[i].rank, i, i, sequences[i].context,
                                        sequences[i].output),
                         0);
    }
    while (finished < count) {
        if (sim_batch_advance(batch, sim_batch_next(batch), &event, 1) == 0 ||
            event.kind != SIM_BATCH_FINISHED) {
            continue;
        }
        finished++;
        for (; made < sequences[event.sequence].output; made++) {
            now += price(cost, ranks, sequences, count, made);
        }
        assert_int_equal(made, sequences[event.sequence].output); /* in order */
        worst = fmax(worst, fabs((double)event.at - now) / now);
    }
    sim_batch_destroy(batch);
    return worst;
}

/* Steps of the batch that go beyond what was measured, counted one by one. */
static uint64_t beyond_of(const struct sim_cost *cost, const struct sequence *sequences,
                          uint32_t count)
{
    uint64_t beyond = 0;
    struct sim_cost_parts parts = {0};

    for (uint32_t made = 0;; made++) {
        struct sim_rank_step rank = {.query_tokens = 1};

        for (uint32_t i = 0; i < count; i++) {
            if (made < sequences[i].output) {
                rank.sequences++;
                rank.context_sum += sequences[i].context + made;
                rank.context_max = hlg_max_u32(rank.context_max, sequences[i].context + made);
            }
        }
        if (rank.sequences == 0) {
            return beyond;
        }
        (void)sim_cost_step_ns(cost, &rank, 1, &parts);
        beyond += parts.is_beyond ? 1 : 0;
    }
}

/* Contexts that grow out of the tables' range, and out of it and back in when a sequence ends. */
static void steps_beyond_what_was_measured_are_counted(void **state)
{
    static const struct sequence batches[][2] = {
        {{0, 130900, 400}, {0, 130800, 700}}, /* the tables end at 131,072 */
        {{0, 140000, 100}, {0, 2000, 300}},
        {{0, 1000, 300}, {0, 2000, 77}}};
    struct sim_cost *cost = create_cost(&shapes[0]);
    uint64_t sum = 0;

    (void)state;
    for (uint32_t b = 0; b < 3; b++) {
        const struct sim_batch_config config = {
            .cost = cost, .ranks = 1, .sequences_max = 2, .waiting_max = 2};
        struct sim_batch *batch = NULL;
        struct sim_batch_event event;
        struct sim_batch_totals totals;

        assert_int_equal(sim_batch_create(&config, &batch), 0);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(
                sim_batch_join(batch, 0, 0, i, i, batches[b][i].context, batches[b][i].output), 0);
        }
        for (hlg_time at = 0; (at = sim_batch_next(batch)) != HLG_TIME_NEVER;) {
            (void)sim_batch_advance(batch, at, &event, 1);
        }
        sim_batch_totals(batch, &totals);
        assert_int_equal(totals.beyond, beyond_of(cost, batches[b], 2));
        assert_true(totals.beyond < totals.steps);
        sum += totals.beyond;
        sim_batch_destroy(batch);
    }
    assert_true(sum > 400);
    sim_cost_destroy(cost);
}

static void each_finish_is_on_time(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SHAPES; s++) {
        struct sim_cost *cost = create_cost(&shapes[s]);
        double worst = 0;

        for (uint64_t seed = 1; seed <= 300; seed++) {
            struct hlg_rng rng = hlg_rng_seed(seed * 100 + s);
            const uint32_t count = (uint32_t)hlg_rng_between(&rng, 1, SEQUENCES_MAX);
            const uint32_t contexts = seed % 2 == 0 ? 30000 : 2000;
            struct sequence sequences[SEQUENCES_MAX];

            last_seed = seed * 100 + s;
            for (uint32_t i = 0; i < count; i++) {
                sequences[i].rank = (uint32_t)hlg_rng_below(&rng, shapes[s].dp);
                sequences[i].context = (uint32_t)hlg_rng_below(&rng, contexts);
                sequences[i].output = (uint32_t)hlg_rng_between(&rng, 1, 1000);
            }
            worst = fmax(worst, run(cost, shapes[s].dp, sequences, count));
        }
        print_message("steps: %s %s %s: worst %.1e\n", shapes[s].gpu, shapes[s].engine,
                      shapes[s].model, worst);
        assert_true(worst < 1e-4);
        sim_cost_destroy(cost);
    }
}

static int print_seed(void **state)
{
    (void)state;
    print_message("steps: seeds up to %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_finish_is_on_time, print_seed),
        cmocka_unit_test(steps_beyond_what_was_measured_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
