/*
 * The planner against an oracle that knows only the definition (plan_oracle.h), over every
 * combination of the domain below. First the oracle itself is tried: it must find planted faults.
 *
 * Domain, a full product: TP of source and of target {1,2,3,4,6,8}; heads {1,2,3,4,6,8}; HND, NHD;
 * planes {1,2}; page_tokens {1,2,4}; stages of source and of target {1,2}, cut at different layers;
 * piece_bytes_max of source and of target {2, 2^20}, with heads of 3 bytes; pools {1,2}; context
 * {whole on each rank, max(TP) shards}; and every replica offset of each plan.
 */
#include "plan_oracle.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SLICES_MAX 16384u
#define LAYERS     4u
#define FEW(array) (sizeof(array) / sizeof(array)[0])

static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8};
static const uint32_t token_counts[] = {1, 2, 4};
static const uint32_t piece_maxima[] = {2, 1u << 20};

static struct hlg_slice slices[SLICES_MAX];
static struct oracle oracle;

struct combination {
    uint32_t tp[2]; /* source, target */
    uint32_t stages[2];
    uint32_t heads;
    uint32_t arrangement;
    uint32_t planes;
    uint32_t page_tokens;
    uint32_t piece_max[2];
    uint32_t pools;
    uint32_t shards; /* of the context */
};

struct tally {
    uint64_t planned;
    uint64_t refused;
    uint64_t requests; /* plans times replica offsets */
    uint64_t pieces;
};

static struct hlg_layout make_layout(const struct combination *c, uint32_t side)
{
    /* Two stages: the source cuts after layer 0, the target after layer 2. */
    struct hlg_layout layout = {
        .tp = c->tp[side],
        .stages = c->stages[side],
        .pools = c->pools,
        .layers = LAYERS,
        .rank_limit = c->tp[side] * c->stages[side],
        .piece_bytes_max = c->piece_max[side],
        .group_count = 2,
    };
    layout.stage_limit[0] = c->stages[side] == 1 ? LAYERS : side == 0 ? 1 : 3;
    layout.stage_limit[1] = LAYERS;
    layout.groups[0] = (struct hlg_group){
        .kind = HLG_GROUP_PAGED,
        .planes = c->planes,
        .heads = c->heads,
        .head_bytes = 3,
        .page_tokens = c->page_tokens,
        .arrangement = c->arrangement,
        .page_count = 1,
        .layers = {0xd}, /* 0, 2 and 3 */
    };
    layout.groups[1] = (struct hlg_group){
        .kind = HLG_GROUP_CONTEXT,
        .planes = 1,
        .heads = c->shards,
        .head_bytes = 5,
        .page_tokens = 1,
        .page_count = 1,
    };
    return layout;
}

/* With as many sets on both sides of one size, each source rank serves one target rank. */
static bool sends_are_even(const struct hlg_plan *plan)
{
    for (uint32_t rank = 1; rank < plan->source.tp; rank++) {
        if (oracle.sent[rank] != oracle.sent[0]) {
            return false;
        }
    }
    return true;
}

static void try_offsets(const struct combination *c, const struct hlg_plan *plan,
                        struct tally *tally)
{
    uint64_t first[ORACLE_RANKS];
    oracle_fill(&oracle, &plan->source, &plan->target);
    for (uint32_t offset = 0; offset < plan->offset_count; offset++) {
        const uint32_t errors = oracle_check(&oracle, plan, offset);
        if (offset == 0) {
            memcpy(first, oracle.pieces, sizeof first);
        }
        const bool same = memcmp(first, oracle.pieces, sizeof first) == 0;
        const bool even =
            c->tp[0] != c->tp[1] || c->stages[0] != 1 || c->stages[1] != 1 || sends_are_even(plan);
        if (errors != 0 || !same || !even) {
            fail_msg("tp %u:%u stages %u:%u heads %u arrangement %u planes %u tokens %u max %u:%u "
                     "shards %u offset %u: %u errors, counts %s, sends %s",
                     c->tp[0], c->tp[1], c->stages[0], c->stages[1], c->heads, c->arrangement,
                     c->planes, c->page_tokens, c->piece_max[0], c->piece_max[1], c->shards, offset,
                     errors, same ? "equal" : "differ", even ? "even" : "uneven");
        }
        tally->requests++;
        for (uint32_t rank = 0; rank < ORACLE_RANKS; rank++) {
            tally->pieces += oracle.pieces[rank];
        }
    }
}

static void try_combination(const struct combination *c, struct tally *tally)
{
    const struct hlg_layout source = make_layout(c, 0);
    const struct hlg_layout target = make_layout(c, 1);
    struct hlg_refusal why = {0};
    struct hlg_plan plan;
    const int result = hlg_plan_build(&plan, slices, SLICES_MAX, &source, &target, &why);
    if (!oracle_can_shard(&source) || !oracle_can_shard(&target)) {
        assert_int_equal(result, -HLG_EPLAN);
        assert_int_equal(why.code, HLG_REFUSAL_HEADS_TP);
        tally->refused++;
        return;
    }
    assert_int_equal(result, 0);
    assert_int_equal(why.code, HLG_REFUSAL_NONE);
    tally->planned++;
    try_offsets(c, &plan, tally);
}

/* The number of combinations, and the one of each index: a mixed-radix number. */
static bool decode(uint64_t index, struct combination *c)
{
    static const uint32_t radix[] = {
        FEW(sizes), FEW(sizes),        FEW(sizes),        2, 2, FEW(token_counts), 2,
        2,          FEW(piece_maxima), FEW(piece_maxima), 2, 2};
    uint32_t digit[FEW(radix)];
    for (uint32_t i = 0; i < FEW(radix); i++) {
        digit[i] = (uint32_t)(index % radix[i]);
        index /= radix[i];
    }
    *c = (struct combination){
        .tp = {sizes[digit[0]], sizes[digit[1]]},
        .stages = {digit[6] + 1, digit[7] + 1},
        .heads = sizes[digit[2]],
        .arrangement = digit[3] == 0 ? HLG_HND : HLG_NHD,
        .planes = digit[4] + 1,
        .page_tokens = token_counts[digit[5]],
        .piece_max = {piece_maxima[digit[8]], piece_maxima[digit[9]]},
        .pools = digit[10] + 1,
    };
    c->shards = digit[11] == 0 ? 1 : hlg_max_u32(c->tp[0], c->tp[1]);
    return index == 0;
}

static void every_combination_moves_every_byte_once(void **state)
{
    struct tally tally = {0};
    struct combination c;
    uint64_t count = 0;
    (void)state;

    for (; decode(count, &c); count++) {
        try_combination(&c, &tally);
    }
    print_message("%" PRIu64 " combinations: %" PRIu64 " planned, %" PRIu64 " refused; %" PRIu64
                  " requests, %" PRIu64 " pieces\n",
                  count, tally.planned, tally.refused, tally.requests, tally.pieces);
    assert_int_equal(count, 165888);
    assert_int_equal(tally.planned + tally.refused, count);
}

enum mutant {
    SOURCE_OFFSET,
    TARGET_OFFSET,
    BYTES,
    COUNT,
    SOURCE_STRIDE,
    TARGET_RANK,
    SOURCE_RANK,
    PLANE,
    MISSING,
    DOUBLED,
    MUTANTS,
};

/* Plant a fault in slice `index`. Returns false where this fault would change nothing. */
static bool mutate(struct hlg_plan *plan, enum mutant mutant, uint32_t index)
{
    struct hlg_slice *slice = &plan->slices[index];
    switch (mutant) {
    case SOURCE_OFFSET:
        slice->source_offset++;
        return true;
    case TARGET_OFFSET:
        slice->target_offset++;
        return true;
    case BYTES:
        slice->bytes--;
        return true;
    case COUNT:
        slice->count--;
        return true;
    case SOURCE_STRIDE:
        slice->source_stride++;
        return slice->count > 1;
    case TARGET_RANK:
        slice->target_rank ^= 1;
        return true;
    case SOURCE_RANK:
        slice->source_rank ^= 1;
        return true;
    case PLANE:
        slice->plane ^= 1;
        return true;
    case MISSING:
        *slice = plan->slices[--plan->slice_count];
        return true;
    case DOUBLED:
        plan->slices[plan->slice_count++] = *slice;
        return true;
    case MUTANTS:
        break;
    }
    return false;
}

static uint32_t errors_of_all_offsets(const struct hlg_plan *plan)
{
    uint32_t errors = 0;
    for (uint32_t offset = 0; offset < plan->offset_count; offset++) {
        errors += oracle_check(&oracle, plan, offset);
    }
    return errors;
}

static void planted_faults_are_found(void **state)
{
    const struct combination cases[] = {
        {{4, 2}, {1, 1}, 8, HLG_HND, 2, 2, {1u << 20, 1u << 20}, 1, 4},
        {{2, 4}, {2, 1}, 4, HLG_NHD, 2, 4, {1u << 20, 1u << 20}, 1, 1},
        {{8, 4}, {1, 2}, 2, HLG_NHD, 1, 2, {2, 2}, 1, 8},
        {{2, 3}, {2, 2}, 6, HLG_HND, 2, 1, {2, 4}, 1, 1},
    };
    uint32_t planted = 0;
    (void)state;

    for (uint32_t i = 0; i < FEW(cases); i++) {
        const struct hlg_layout source = make_layout(&cases[i], 0);
        const struct hlg_layout target = make_layout(&cases[i], 1);
        struct hlg_refusal why;
        struct hlg_plan plan;
        uint32_t index = 0;
        oracle_fill(&oracle, &source, &target);
        do {
            for (uint32_t mutant = 0; mutant < MUTANTS; mutant++) {
                assert_int_equal(
                    hlg_plan_build(&plan, slices, SLICES_MAX - 1, &source, &target, &why), 0);
                assert_int_equal(errors_of_all_offsets(&plan), 0);
                if (mutate(&plan, (enum mutant)mutant, index)) {
                    planted++;
                    if (errors_of_all_offsets(&plan) == 0) {
                        fail_msg("case %u, slice %u: fault %u not found", i, index, mutant);
                    }
                }
            }
            index++;
        } while (index < plan.slice_count - 1); /* the last mutant added one */
    }
    print_message("%u faults planted, all found\n", planted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_faults_are_found),
        cmocka_unit_test(every_combination_moves_every_byte_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
