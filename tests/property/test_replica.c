/*
 * The choice among replica sets: over many equal requests every source rank, hence every NIC, must
 * carry the same load. An MLA model (the latent whole on each rank) on 8 source ranks has 8 sets.
 */
#include "../../src/driver/rng.h"

#include <halage/plan.h>
#include <halage/replica.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define RANKS      8u
#define SEEDS      8u
#define REQUESTS   10000u
#define SLICES_MAX 256u

/* Chi-square of 7 degrees of freedom that chance exceeds once in 1000: any table of quantiles. */
#define CHI_SQUARE_MAX 24.322

static struct hlg_slice slices[SLICES_MAX];

static struct hlg_plan make_plan(uint32_t target_tp)
{
    struct hlg_layout source = {
        .tp = RANKS,
        .stages = 1,
        .pools = 1,
        .layers = 61,
        .stage_limit = {61},
        .rank_limit = RANKS,
        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
        .group_count = 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = 1152,
                    .page_tokens = 64,
                    .page_count = 1,
                    .layers = {(1ull << 61) - 1}}},
    };
    struct hlg_layout target = source;
    struct hlg_refusal why;
    struct hlg_plan plan;
    target.tp = target_tp;
    target.rank_limit = target_tp;
    assert_int_equal(hlg_plan_build(&plan, slices, SLICES_MAX, &source, &target, &why), 0);
    assert_int_equal(plan.offset_count, RANKS);
    return plan;
}

/* Add to load[] the slices that each source rank sends in a request of this offset. */
static void send(const struct hlg_plan *plan, uint32_t offset, uint32_t load[RANKS])
{
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        if (hlg_plan_uses(plan, &plan->slices[i], offset)) {
            load[plan->slices[i].source_rank]++;
        }
    }
}

static void one_target_set_loads_all_source_ranks_alike(void **state)
{
    const struct hlg_plan plan = make_plan(1);
    (void)state;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        uint32_t load[RANKS] = {0};
        for (uint32_t request = 0; request < REQUESTS; request++) {
            send(&plan, hlg_replica_offset((uint32_t)(hlg_rng_next(&rng) >> 32), plan.offset_count),
                 load);
        }
        const double mean = (double)REQUESTS / RANKS;
        double chi_square = 0;
        uint32_t sum = 0;
        uint32_t max = 0;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            chi_square += (load[rank] - mean) * (load[rank] - mean) / mean;
            sum += load[rank];
            max = hlg_max_u32(max, load[rank]);
        }
        print_message("seed %" PRIu64 ": chi-square %.2f, max/mean %.3f\n", seed, chi_square,
                      max / mean);
        assert_int_equal(sum, REQUESTS);
        assert_true(chi_square <= CHI_SQUARE_MAX);
        assert_true(max / mean <= 1.10);
    }
}

static void as_many_target_sets_take_one_source_rank_each(void **state)
{
    const struct hlg_plan plan = make_plan(RANKS);
    (void)state;

    for (uint32_t offset = 0; offset < plan.offset_count; offset++) {
        uint32_t load[RANKS] = {0};
        send(&plan, offset, load);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(load[rank], 1);
        }
    }
}

static void offsets_cover_the_range_and_no_more(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= HLG_RANKS_MAX; count++) {
        assert_int_equal(hlg_replica_offset(0, count), 0);
        assert_int_equal(hlg_replica_offset(UINT32_MAX, count), count - 1);
    }
    assert_int_equal(hlg_replica_offset(0x7fffffffu, 2), 0);
    assert_int_equal(hlg_replica_offset(0x80000000u, 2), 1);
}

/* From the generators' own reference output, so that seeds mean the same everywhere. */
static void the_generator_is_the_published_one(void **state)
{
    struct hlg_rng rng = hlg_rng_seed(1234567);
    (void)state;

    assert_int_equal(hlg_rng_next(&rng), 6457827717110365317u);
    assert_int_equal(hlg_rng_next(&rng), 3203168211198807973u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_target_set_loads_all_source_ranks_alike),
        cmocka_unit_test(as_many_target_sets_take_one_source_rank_each),
        cmocka_unit_test(offsets_cover_the_range_and_no_more),
        cmocka_unit_test(the_generator_is_the_published_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
