/*
 * Chunks (I5): every page of every layer goes exactly once, when it is final, however the prompt is
 * cut. The domain is small and whole: every prompt of 2..12 tokens, page of 1..4 tokens, prefix on
 * the target, cached tokens, and way of cutting the rest. The oracle looks at single tokens: it keeps
 * which token of which layer is computed, and reads no page list of the machines.
 */
#include "pair.h"

#include <core/chunk.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS_MAX 12u
#define LAYERS     2u
#define PLANES     2u
#define PAGES      64u

/* ---- chunk_pages against single tokens ----------------------------------------------------- */

/* Whether a page goes with the chunk: no token of it is left to compute, some are, and it has one of
 * the chunk's, so that no earlier chunk took it. */
static bool goes(uint32_t page_tokens, uint32_t begin, uint32_t limit, bool last, uint32_t page)
{
    uint32_t page_limit = (page + 1) * page_tokens;
    bool started = page * page_tokens < limit;

    return started && page_limit > begin && (last || page_limit <= limit);
}

static void a_chunk_takes_the_pages_that_it_makes_final(void **state)
{
    (void)state;
    for (uint32_t page_tokens = 1; page_tokens <= 4; page_tokens++) {
        for (uint32_t begin = 0; begin < TOKENS_MAX; begin++) {
            for (uint32_t limit = begin + 1; limit <= TOKENS_MAX; limit++) {
                for (uint32_t k = 0; k < 2 * (TOKENS_MAX + 1); k++) {
                    bool last = k % 2 == 1;
                    uint32_t first = k / 2;
                    struct page_span span = chunk_pages(page_tokens, begin, limit, last, first);
                    for (uint32_t page = 0; page <= TOKENS_MAX; page++) {
                        bool in = page >= span.begin && page < span.begin + span.count;
                        bool want = page >= first && goes(page_tokens, begin, limit, last, page);
                        assert_int_equal(in, want);
                    }
                }
            }
        }
    }
}

/* ---- whole machines ------------------------------------------------------------------------ */

struct oracle {
    struct pair *p;
    uint32_t page_tokens;
    uint32_t tokens;  /* that the prefiller handles */
    uint32_t first;   /* pages on the target */
    uint32_t source;  /* first source page */
    uint32_t forward; /* last number used */
    bool context;
    bool computed[LAYERS][TOKENS_MAX];
    bool context_computed;
    uint32_t hits[LAYERS][PLANES][PAGES]; /* by position */
    uint32_t context_hits;
    uint64_t runs;
};

static void on_piece(void *context, const struct hlg_action_write *write, uint32_t piece)
{
    struct oracle *o = context;
    uint32_t at = piece / write->slice->count;

    assert_true(at < write->page_count);
    if (write->slice->group == 1) {
        assert_int_equal(write->layer, LAYERS);
        assert_int_equal(write->target_pages[at], 3);
        assert_true(o->context_computed);
        o->context_hits++;
        return;
    }
    uint32_t position = write->source_pages[at] - o->source;
    assert_int_equal(write->target_pages[at], pair_page(position));
    assert_true(write->layer < LAYERS && position >= o->first);
    assert_true(position * o->page_tokens < o->tokens);
    for (uint32_t t = 0; t < o->page_tokens; t++) {
        uint32_t token = position * o->page_tokens + t;
        assert_true(token >= o->tokens || o->computed[write->layer][token]);
    }
    o->hits[write->layer][write->slice->plane][position]++;
}

static void expect_once(const struct oracle *o)
{
    uint32_t pages = hlg_div_ceil(o->tokens, o->page_tokens);

    for (uint32_t i = 0; i < LAYERS * PLANES * PAGES; i++) {
        uint32_t position = i % PAGES;
        uint32_t want = position >= o->first && position < pages ? 1 : 0;
        assert_int_equal(o->hits[i / PAGES / PLANES][i / PAGES % PLANES][position], want);
    }
    assert_int_equal(o->context_hits, o->context ? 1 : 0);
}

/* One forward over tokens [begin, limit): its first layer by a tick, the others by its end. */
static void compute(struct oracle *o, hlg_handle request, uint32_t begin, uint32_t limit)
{
    o->forward++;
    assert_int_equal(pair_chunk(o->p, 1, request, o->forward, begin, limit - begin), 0);
    pair_run(o->p);
    memset(&o->computed[0][begin], 1, limit - begin);
    assert_int_equal(pair_tick(o->p, 1, 0, o->forward, 1), 0);
    pair_run(o->p);
    memset(&o->computed[1][begin], 1, limit - begin);
    o->context_computed = limit == o->tokens;
    assert_int_equal(pair_forward(o->p, 1, HLG_EVENT_FORWARD_END, o->forward), 0);
    pair_run(o->p);
}

/* Bit i of `cuts`: a chunk ends after token cached + i. */
static void run_cuts(struct oracle *o, uint32_t cached, uint32_t cuts)
{
    struct pair_ask ask = {.tokens = o->tokens + 1, .first = o->first, .context = 3};
    struct pair *p = o->p;
    hlg_handle request = 0;
    uint32_t begin = cached;

    memset(o->computed, 0, sizeof o->computed);
    memset(o->hits, 0, sizeof o->hits);
    o->context_hits = 0;
    o->context_computed = false;
    memset(&o->computed[0][0], 1, cached);
    memset(&o->computed[1][0], 1, cached);
    p->sides[1].page_next = o->source;
    assert_int_equal(pair_submit(p, 0, &ask, &request), 0);
    pair_run(p);
    hlg_handle requested = pair_requested(p, 1);
    assert_int_equal(pair_admit(p, 1, requested, o->tokens + 1, cached, 0), 0);
    pair_run(p);
    for (uint32_t t = cached; t < o->tokens; t++) {
        if (t + 1 == o->tokens || (cuts >> (t - cached) & 1u) != 0) {
            compute(o, requested, begin, t + 1);
            begin = t + 1;
        }
    }
    pair_expect(p, 0, "accepted ready");
    pair_expect(p, 1, "requested sent");
    expect_once(o);
    assert_int_equal(pair_feed_request(p, 0, HLG_EVENT_RELEASE, request), 0);
    assert_int_equal(hlg_decode_open(p->sides[0].decode), 0);
    assert_int_equal(hlg_prefill_open(p->sides[1].prefill), 0);
    o->runs++;
}

static void run_page_size(uint32_t page_tokens, bool context, uint64_t *runs)
{
    struct hlg_prefill_config config;
    struct oracle o = {.page_tokens = page_tokens, .context = context, .source = 5};

    pair_config(&config);
    pair_layout(&config.layout, 1, LAYERS, page_tokens, context);
    o.p = pair_simple(&config);
    o.p->on_piece = on_piece;
    o.p->context = &o;
    for (o.tokens = 1; o.tokens < TOKENS_MAX; o.tokens++) {
        uint32_t pages = hlg_div_ceil(o.tokens, page_tokens);
        /* With all pages there and no context due no prefiller hears of it. */
        for (o.first = 0; o.first < pages + (context ? 1 : 0); o.first++) {
            for (uint32_t cached = 0; cached + (context ? 1 : 0) <= o.tokens; cached++) {
                uint32_t left = o.tokens - cached;
                for (uint32_t cuts = 0; cuts < 1u << (left > 1 ? left - 1 : 0); cuts++) {
                    run_cuts(&o, cached, cuts);
                }
            }
        }
    }
    *runs += o.runs;
    pair_close(o.p);
}

static void every_page_goes_once_however_the_prompt_is_cut(void **state)
{
    uint64_t runs = 0;

    (void)state;
    for (uint32_t page_tokens = 1; page_tokens <= 4; page_tokens++) {
        run_page_size(page_tokens, false, &runs);
    }
    print_message("%llu ways\n", (unsigned long long)runs);
}

static void a_context_goes_once_and_last(void **state)
{
    uint64_t runs = 0;

    (void)state;
    for (uint32_t page_tokens = 1; page_tokens <= 4; page_tokens++) {
        run_page_size(page_tokens, true, &runs);
    }
    print_message("%llu ways\n", (unsigned long long)runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_takes_the_pages_that_it_makes_final),
        cmocka_unit_test(every_page_goes_once_however_the_prompt_is_cut),
        cmocka_unit_test(a_context_goes_once_and_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
