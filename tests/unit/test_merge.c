/*
 * Merging of pages into one write: whatever pages are asked, each piece is written once, from and to where it would go
 * alone, and counted for what it is; a transport that takes less is offered nothing beyond, and what it reports is told
 * in pieces. A fake transport takes writes apart again.
 */
#include "driver/pump_internal.h"
#include "driver/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PAGES      64u
#define PAGE_BYTES 16u
#define LIST       48u
#define OP         5u
#define IMM        0x00120030u

struct taker {
    struct hlg_transport transport;
    uint32_t room;    /* runs that it takes before it says no */
    int64_t refusal;  /* what it says then */
    uint32_t writes;  /* calls */
    uint32_t runs;    /* taken */
    uint32_t pieces;  /* in them, by their weights */
    uint32_t largest; /* bytes of a run */
    uint32_t order;   /* pieces seen, which come in order */
    uint32_t offered; /* calls after a refusal */
    const struct hlg_paged_write *whole;
};

/* A run: every byte of it is one of the whole write's, in order. */
static void take_run(struct taker *t, const struct hlg_paged_write *w, uint32_t run)
{
    const uint32_t weight = hlg_imm_weight(w->imm);

    assert_int_equal(w->op, OP | weight << PUMP_OP_BITS);
    assert_int_equal(w->imm, IMM | weight);
    assert_int_equal(w->bytes, t->whole->bytes << weight);
    for (uint32_t i = 0; i < 1u << weight; i++) {
        const uint32_t piece = t->order++;
        assert_ptr_equal(hlg_paged_write_source(w, run) + i * t->whole->bytes,
                         hlg_paged_write_source(t->whole, piece));
        assert_int_equal(hlg_paged_write_target(w, run) + i * t->whole->bytes,
                         hlg_paged_write_target(t->whole, piece));
    }
    t->runs++;
    t->pieces += 1u << weight;
    t->largest = hlg_max_u32(t->largest, w->bytes);
}

static int64_t take(struct hlg_transport *transport, const struct hlg_paged_write *w)
{
    struct taker *t = (struct taker *)transport;
    int64_t taken = 0;

    t->writes++;
    assert_true(w->piece_begin < w->piece_limit);
    assert_int_equal(t->offered, 0);
    for (uint32_t run = w->piece_begin; run < w->piece_limit; run++) {
        if (t->room == 0) {
            t->offered++;
            return taken > 0 ? taken : t->refusal;
        }
        take_run(t, w, run);
        t->room--;
        taken++;
    }
    return taken;
}

static const struct hlg_transport_ops ops = {.write = take};

static struct hlg_paged_write make_write(uint8_t *memory, const uint32_t *source,
                                         const uint32_t *target, uint32_t begin, uint32_t limit)
{
    return (struct hlg_paged_write){
        .op = OP,
        .imm = IMM,
        .local = memory,
        .local_stride = PAGE_BYTES,
        .remote = 0x1000,
        .remote_stride = PAGE_BYTES,
        .source_pages = source,
        .target_pages = target,
        .bytes = PAGE_BYTES,
        .count = 1,
        .piece_begin = begin,
        .piece_limit = limit,
    };
}

static struct taker offer(const struct hlg_paged_write *w, uint64_t merge_bytes_max, uint32_t room,
                          int64_t refusal, int64_t *result)
{
    struct taker t = {.transport = {.ops = &ops},
                      .room = room,
                      .refusal = refusal,
                      .order = w->piece_begin,
                      .whole = w};

    *result = pump_merge_write(&t.transport, w, merge_bytes_max, &(struct pump_stretch){0});
    return t;
}

static uint8_t memory[PAGES * PAGE_BYTES];

static void a_row_goes_at_once(void **state)
{
    uint32_t pages[LIST];
    int64_t taken = 0;

    (void)state;
    for (uint32_t i = 0; i < LIST; i++) {
        pages[i] = 3 + i;
    }
    struct hlg_paged_write w = make_write(memory, pages, pages, 0, 32);
    struct taker t = offer(&w, 32 * PAGE_BYTES, UINT32_MAX, 0, &taken);
    assert_int_equal(taken, 32);
    assert_int_equal(t.writes, 1);
    assert_int_equal(t.runs, 1);
    t = offer(&w, 8 * PAGE_BYTES + 1, UINT32_MAX, 0,
              &taken); /* at most 8 a run, one call for all */
    assert_int_equal(taken, 32);
    assert_int_equal(t.writes, 1);
    assert_int_equal(t.runs, 4);
    w.piece_begin = 1;
    t = offer(&w, 1u << 20, UINT32_MAX, 0, &taken); /* 31: 16, 8, 4, 2, 1 */
    assert_int_equal(taken, 31);
    assert_int_equal(t.runs, 5);
    assert_int_equal(t.largest, 16 * PAGE_BYTES);
}

static void nothing_is_merged_where_there_are_gaps(void **state)
{
    uint32_t pages[LIST];
    uint32_t others[LIST];
    int64_t taken = 0;

    (void)state;
    for (uint32_t i = 0; i < LIST; i++) {
        pages[i] = i;
        others[i] = LIST - i;
    }
    for (uint32_t kind = 0; kind < 6; kind++) {
        struct hlg_paged_write w = make_write(memory, pages, pages, 0, LIST);
        w.target_pages = kind == 0 ? others : pages;
        w.source_pages = kind == 1 ? others : pages;
        w.local_stride += kind == 2;
        w.remote_stride += kind == 3;
        w.bytes -= kind == 4;
        const struct taker t = offer(&w, kind == 5 ? 0 : 1u << 20, UINT32_MAX, 0, &taken);
        assert_int_equal(taken, LIST);
        assert_int_equal(t.runs, LIST);
        assert_int_equal(t.writes, 1); /* in one call, as ever */
    }
    struct hlg_paged_write runs = make_write(memory, pages, pages, 0, 2 * LIST);
    runs.count = 2; /* parts of pages */
    runs.bytes = PAGE_BYTES / 2;
    runs.source_stride = PAGE_BYTES / 2;
    runs.target_stride = PAGE_BYTES / 2;
    assert_int_equal(offer(&runs, 1u << 20, UINT32_MAX, 0, &taken).runs, 2 * LIST);
}

static void pages_go_backwards_or_twice_alone(void **state)
{
    static const uint32_t source[] = {9, 8, 7, 7, 8, 0, 1, 5, UINT32_MAX, 0};
    static const uint32_t target[] = {0, 1, 2, 3, 4, 9, 10, 30, 31, 32};
    int64_t taken = 0;

    (void)state;
    struct hlg_paged_write w = make_write(memory, source, target, 0, 8);
    const struct taker t = offer(&w, 1u << 20, UINT32_MAX, 0, &taken);
    assert_int_equal(taken, 8);
    assert_int_equal(t.runs, 6); /* 9, 8, 7, 7 8, 0 1, 5 */
}

/* Any lists, with rows in them here and there; any room. */
static void each_piece_goes_once_whatever_the_pages(void **state)
{
    uint32_t merged = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        uint32_t source[LIST];
        uint32_t target[LIST];
        for (uint32_t i = 0; i < LIST; i++) {
            const bool row = i > 0 && hlg_rng_below(&rng, 4) > 0;
            source[i] = row ? source[i - 1] + 1 : (uint32_t)hlg_rng_below(&rng, PAGES);
            target[i] = row && hlg_rng_below(&rng, 8) > 0 ? target[i - 1] + 1
                                                          : (uint32_t)hlg_rng_below(&rng, PAGES);
        }
        const uint32_t begin = (uint32_t)hlg_rng_below(&rng, LIST);
        const uint32_t limit = begin + 1 + (uint32_t)hlg_rng_below(&rng, LIST - begin);
        const uint32_t room =
            hlg_rng_below(&rng, 3) == 0 ? (uint32_t)hlg_rng_below(&rng, 8) : UINT32_MAX;
        const int64_t refusal = hlg_rng_below(&rng, 2) == 0 ? 0 : -HLG_EPEER;
        const struct hlg_paged_write w = make_write(memory, source, target, begin, limit);
        int64_t taken = 0;
        const struct taker t = offer(&w, hlg_rng_below(&rng, 1000), room, refusal, &taken);
        if (t.runs == 0) {
            assert_int_equal(taken, refusal);
        } else {
            assert_int_equal(taken, t.pieces);
            assert_int_equal(t.order, begin + t.pieces);
            assert_true(room != UINT32_MAX || t.pieces == limit - begin);
        }
        merged += t.pieces - t.runs;
    }
    assert_true(merged > 20000);
}

/* A write that is offered again and again from where it was left, as windows and turns let it, with what is known of its
 * pages kept: nothing is forgotten, nothing goes twice, and rows are found all the same. */
static void parts_of_a_write_go_on_where_the_last_one_ended(void **state)
{
    uint32_t runs = 0;
    uint32_t pieces = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        struct pump_stretch stretch = {0};
        uint32_t source[LIST];
        uint32_t target[LIST];
        for (uint32_t i = 0; i < LIST; i++) {
            const bool row = i > 0 && hlg_rng_below(&rng, 8) > 0;
            source[i] = row ? source[i - 1] + 1 : (uint32_t)hlg_rng_below(&rng, PAGES);
            target[i] = row ? target[i - 1] + 1 : (uint32_t)hlg_rng_below(&rng, PAGES);
        }
        const uint64_t merge_bytes_max = hlg_rng_below(&rng, 16 * PAGE_BYTES);
        struct hlg_paged_write w = make_write(memory, source, target, 0, LIST);
        for (uint32_t offers = 0; w.piece_begin < LIST; offers++) {
            const uint32_t turn = (uint32_t)hlg_rng_below(&rng, 24);
            w.piece_limit = hlg_min_u32(LIST, w.piece_begin + 1 + turn); /* it grows and shrinks */
            struct taker t = {.transport = {.ops = &ops},
                              .room = (uint32_t)hlg_rng_below(&rng, 6),
                              .order = w.piece_begin,
                              .whole = &w};
            const int64_t taken = pump_merge_write(&t.transport, &w, merge_bytes_max, &stretch);
            assert_int_equal(taken, t.pieces);
            assert_int_equal(t.order, w.piece_begin + t.pieces);
            w.piece_begin = t.order;
            runs += t.runs;
            pieces += t.pieces;
            assert_true(offers < 1000);
        }
    }
    assert_int_equal(pieces, 20000 * LIST);
    assert_true(runs < pieces * 2 / 3); /* a third of all was merged at least */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_goes_at_once),
        cmocka_unit_test(nothing_is_merged_where_there_are_gaps),
        cmocka_unit_test(pages_go_backwards_or_twice_alone),
        cmocka_unit_test(each_piece_goes_once_whatever_the_pages),
        cmocka_unit_test(parts_of_a_write_go_on_where_the_last_one_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
