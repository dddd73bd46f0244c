/*
 * The decode machine: what it counts and when it says READY, that pages come back only when nothing
 * can land in them any more (I1), and that no answer of a peer can break it. Most tests join it to
 * prefill machines; hostile ones feed it messages by hand.
 */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Two pages of two planes in two layers. */
#define TOKENS 9u
#define PIECES 8u

static const struct pair_ask simple_ask = {.tokens = TOKENS};
static const struct pair_ask two_sources = {.tokens = TOKENS, .source_count = 2, .peers = {0, 1}};

/* Two prefillers, each of which hosts one of two ranks, so that a request needs both. */
static struct pair *open_split(void)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();

    pair_config(&config);
    pair_add(p, HLG_ROLE_DECODE, &config);
    pair_layout(&config.layout, 2, 2, 4, false);
    config.layout.rank_limit = 1;
    pair_add(p, HLG_ROLE_PREFILL, &config);
    config.layout.rank_begin = 1;
    config.layout.rank_limit = 2;
    pair_add(p, HLG_ROLE_PREFILL, &config);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_connect(p, DECODE, OTHER, 1, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up up");
    pair_expect(p, PREFILL, "up");
    pair_expect(p, OTHER, "up");
    return p;
}

/* ---- nothing to wait for ------------------------------------------------------------------ */

static void a_one_token_prompt_is_ready_at_once(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    for (uint32_t context = 0; context < 2; context++) {
        pair_layout(&config.layout, 1, 2, 4, context == 1);
        struct pair *p = pair_open();
        pair_add(p, HLG_ROLE_DECODE, &config); /* knows no prefiller */
        hlg_handle request = pair_submitted(p, &(struct pair_ask){.tokens = 1});
        pair_expect(p, DECODE, "ready");
        assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_READY)->pieces_expected, 0);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), -HLG_ESTALE);
        assert_int_equal(hlg_decode_open(p->sides[DECODE].decode), 0);
        pair_close(p);
    }
}

static void a_full_prefix_hit_is_ready_at_once(void **state)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();

    (void)state;
    pair_config(&config);
    pair_add(p, HLG_ROLE_DECODE, &config);
    pair_submitted(p, &(struct pair_ask){.tokens = TOKENS, .first = 2});
    pair_expect(p, DECODE, "ready");
    pair_close(p);
}

static void a_full_prefix_hit_with_a_context_due_moves_the_context_alone(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    struct pair *p = pair_simple(&config);
    pair_submitted(p, &(struct pair_ask){.tokens = TOKENS, .first = 2, .context = 5});
    pair_run(p);
    pair_expect(p, DECODE, "");
    assert_int_equal(p->sides[PREFILL].asked.pieces, 1);
    hlg_handle asked = pair_requested(p, PREFILL);
    /* At least one token is computed, since the last one's hidden state is asked for. */
    assert_int_equal(pair_admit(p, PREFILL, asked, TOKENS, TOKENS - 1, 0), -HLG_EINVAL);
    assert_int_equal(pair_admit(p, PREFILL, asked, TOKENS, TOKENS - 2, 0), 0);
    assert_int_equal(pair_chunk(p, PREFILL, asked, 1, TOKENS - 2, 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 2), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted");
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 3), 0);
    pair_run(p);
    pair_expect(p, DECODE, "ready");
    pair_close(p);
}

/* ---- immediates --------------------------------------------------------------------------- */

/* An immediate that overtakes the decoder's own bookkeeping must still be counted: the counter exists
 * from the moment the request does, so nothing can arrive too early. */
static void early_immediates_are_counted(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &simple_ask);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 3), 0);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_IMM_EARLY], 1);
    pair_run(p);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_REQUEST], 1);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), PIECES - 4), 0);
    pair_expect(p, DECODE, "");
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 1), 0);
    pair_expect(p, DECODE, "ready");
    pair_close(p);
}

static void a_request_that_is_whole_early_is_never_sent(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &simple_ask);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), PIECES), 0);
    pair_expect(p, DECODE, "ready");
    pair_run(p);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_REQUEST], 0);
    pair_close(p);
}

static void one_piece_too_many_is_a_breach_of_the_protocol(void **state)
{
    (void)state;
    for (uint32_t early = 0; early < 2; early++) {
        struct pair *p = pair_simple(NULL);
        pair_submitted(p, &simple_ask);
        if (early == 0) {
            pair_run(p);
        }
        p->sides[DECODE].hold_close = true;
        assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), PIECES + 1), 0);
        /* What was never sent can be fenced at once: but who wrote it? Its session ends first. */
        pair_expect(p, DECODE,
                    early == 0 ? "failed(protocol) down" : "failed(protocol) returned down");
        pair_run(p);
        pair_closed(p, DECODE, 0, 0);
        pair_expect(p, DECODE, early == 0 ? "returned" : "");
        pair_close(p);
    }
}

static void a_piece_after_ready_ends_the_session_and_not_the_request(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), PIECES), 0);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 1), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
    pair_expect(p, DECODE, "");
    pair_close(p);
}

static void old_generations_and_unknown_slots_count_nothing(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 1, 0), 1), 0);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 4095, 0), 1), 0);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_IMM_STALE], 2);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(1, 0, 0), 1), 0);
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(65535, 0, 0), 1), 0);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_IMM_UNKNOWN], 2);
    pair_expect(p, DECODE, "");
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* The driver adds up weights: what the machine gets is pieces. A mark brings none. */
static void weights_count_and_a_mark_does_not(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 1, 4, false);
    config.layout.groups[0].head_bytes = 2048;
    config.layout.piece_bytes_max = 1; /* a page of each of two planes is 2^14 pieces */
    struct pair *p = pair_simple(&config);
    pair_submitted(p, &(struct pair_ask){.tokens = 5});
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].asked.pieces, 1u << 15);
    for (uint32_t weight = 0; weight < HLG_IMM_WEIGHT_MARK; weight++) {
        struct hlg_event event = {
            .kind = HLG_EVENT_IMM,
            .imm = {.imm = hlg_imm_make(0, 0, weight), .pieces = 1u << weight, .immediates = 1}};
        assert_int_equal(pair_feed(p, DECODE, &event), 0);
    }
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, HLG_IMM_WEIGHT_MARK), 0), 0);
    pair_expect(p, DECODE, "");
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 1), 0);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_READY)->pieces_counted, 1u << 15);
    pair_close(p);
}

static void immediates_of_no_such_rail_are_an_error(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_event event = {.kind = HLG_EVENT_IMM, .imm = {.lane = 1}};

    (void)state;
    assert_int_equal(pair_feed(p, DECODE, &event), -HLG_EINVAL);
    event.imm.lane = 0;
    event.imm.rail = 1;
    assert_int_equal(pair_feed(p, DECODE, &event), -HLG_EINVAL);
    pair_close(p);
}

static void generations_come_round_after_4096_uses_of_a_slot(void **state)
{
    struct pair *p = pair_simple(NULL);
    const uint32_t slots = 8; /* requests_max * sources_max */

    (void)state;
    for (uint32_t i = 0; i < slots * HLG_GENERATIONS; i++) {
        hlg_handle request = pair_submitted(p, &simple_ask);
        assert_int_equal(pair_cancel(p, DECODE, request), 0);
        pair_expect(p, DECODE, "failed(cancelled) returned");
        if (i % 16 == 0) {
            pair_run(p); /* drops what need not be sent */
        }
    }
    pair_run(p);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_REQUEST], 0);
    pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].asked.slot, 0);
    assert_int_equal(p->sides[PREFILL].asked.generation, 0);
    assert_int_equal(p->sides[PREFILL].asked.number, slots * HLG_GENERATIONS + 1);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- cancel ------------------------------------------------------------------------------- */

static void a_request_cancelled_before_it_is_sent_never_is(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_expect_pages(p, HLG_PAGE_OWNED);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_expect(p, DECODE, "failed(cancelled) returned");
    pair_expect_pages(p, HLG_PAGE_FREE);
    assert_int_equal(pair_cancel(p, DECODE, request), -HLG_ESTALE);
    /* Its slot is used again before the queue is looked at. */
    for (uint32_t i = 0; i < 8; i++) {
        request = pair_submitted(p, &simple_ask);
        assert_int_equal(pair_cancel(p, DECODE, request), 0);
        pair_expect(p, DECODE, "failed(cancelled) returned");
    }
    pair_run(p);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_REQUEST], 0);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_CANCEL], 0);
    pair_expect(p, PREFILL, "");
    pair_close(p);
}

static void a_request_whose_channel_was_full_is_unsent(void **state)
{
    struct hlg_event room = {.kind = HLG_EVENT_SEND_ROOM};
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    p->sides[DECODE].ends[0].refuse_count = 1;
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_expect(p, DECODE, "failed(cancelled) returned");
    assert_int_equal(pair_feed(p, DECODE, &room), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "");
    pair_close(p);
}

static void a_sent_request_returns_its_pages_after_fenced(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_expect(p, DECODE, "failed(cancelled)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    assert_int_equal(pair_cancel(p, DECODE, request), -HLG_ESTATE);
    assert_int_equal(pair_submit(p, DECODE, &simple_ask, NULL), -HLG_EOWNED);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, DECODE, "returned");
    pair_expect_pages(p, HLG_PAGE_FREE);
    pair_close(p);
}

static void pages_stay_while_a_write_is_outstanding(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->hold_done = true;
    p->hold_landing = true;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested");
    pair_land(p, pair_oldest(p), 1);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "stopping(cancelled)");
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    p->hold_landing = false;
    pair_run(p); /* all land late: counted apart, and no READY any more */
    assert_true(p->sides[DECODE].notes[HLG_NOTE_IMM_LATE] > 0);
    pair_expect(p, DECODE, "");
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, PREFILL, "fenced");
    pair_expect(p, DECODE, "returned");
    pair_expect_pages(p, HLG_PAGE_FREE);
    pair_close(p);
}

static void a_ready_request_cannot_be_cancelled(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), -HLG_ESTATE);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    assert_int_equal(pair_cancel(p, DECODE, request), -HLG_ESTATE);
    pair_expect_pages(p, HLG_PAGE_OWNED);
    assert_int_equal(pair_submit(p, DECODE, &simple_ask, NULL), -HLG_EOWNED);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
    pair_expect_pages(p, HLG_PAGE_FREE);
    assert_int_equal(pair_cancel(p, DECODE, request), -HLG_ESTALE);
    assert_int_equal(pair_cancel(p, DECODE, 0), -HLG_ESTALE);
    assert_int_equal(pair_cancel(p, DECODE, UINT64_MAX), -HLG_ESTALE);
    pair_close(p);
}

/* ---- several sources ---------------------------------------------------------------------- */

static void two_sources_are_ready_only_when_both_are_complete(void **state)
{
    struct pair *p = open_split();

    (void)state;
    pair_submitted(p, &two_sources);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    pair_expect(p, DECODE, "");
    pair_serve(p, OTHER, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_READY)->pieces_counted, 2 * PIECES);
    pair_close(p);
}

struct share {
    uint32_t tp;
    uint32_t stages;
    uint32_t begin;
    uint32_t limit; /* 0: no such node */
};

/* Nodes with these shares of the ranks, all connected, and a SUBMIT that names them in one order or the
 * other. `rank` is that of the note, HLG_NONE: it is sound. */
struct hosting {
    struct share shares[2];
    bool context_alone; /* no paged pages are asked */
    uint32_t rank;
    uint32_t hosts;
};

static const struct hosting hostings[] = {
    {{{2, 1, 0, 2}}, false, HLG_NONE, 0},
    {{{2, 1, 0, 1}}, false, 1, 0},
    {{{2, 1, 1, 2}}, false, 0, 0},
    {{{2, 1, 0, 1}, {2, 1, 1, 2}}, false, HLG_NONE, 0},
    {{{2, 1, 0, 1}, {2, 1, 0, 1}}, false, 0, 2},
    {{{2, 1, 0, 2}, {2, 1, 0, 2}}, false, 0, 2},
    {{{2, 1, 0, 2}, {2, 1, 1, 2}}, false, 1, 2},
    {{{1, 1, 0, 1}, {1, 1, 0, 1}}, false, 0, 2},
    /* replica sets: which ranks write is drawn, so that all must be there */
    {{{4, 1, 0, 2}, {4, 1, 2, 4}}, false, HLG_NONE, 0},
    {{{4, 1, 0, 1}, {4, 1, 2, 4}}, false, 1, 0},
    {{{4, 1, 0, 2}}, false, 2, 0},
    {{{4, 1, 0, 3}, {4, 1, 2, 4}}, false, 2, 2},
    {{{4, 1, 0, 1}, {4, 1, 3, 4}}, false, 1, 0},
    /* stages: a context comes from the last one alone */
    {{{1, 2, 0, 1}, {1, 2, 1, 2}}, false, HLG_NONE, 0},
    {{{1, 2, 0, 1}}, false, 1, 0},
    {{{1, 2, 1, 2}}, false, 0, 0},
    {{{1, 2, 1, 2}}, true, HLG_NONE, 0},
    {{{1, 2, 0, 1}}, true, 1, 0},
    {{{1, 2, 0, 1}, {1, 2, 1, 2}}, true, HLG_NONE, 0},
    /* shares of two different groups of ranks */
    {{{2, 1, 0, 1}, {1, 2, 1, 2}}, false, HLG_RANKS_MAX, 0},
    {{{2, 1, 0, 1}, {4, 1, 2, 4}}, false, HLG_RANKS_MAX, 0},
};

static void check_hosting(const struct hosting *h, bool swapped, uint32_t random)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();
    struct pair_ask ask = {.tokens = TOKENS,
                           .first = h->context_alone ? 2 : 0,
                           .source_count = h->shares[1].limit != 0 ? 2 : 1,
                           .random = random,
                           .peers = {0, 1}};

    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    pair_add(p, HLG_ROLE_DECODE, &config);
    for (uint32_t i = 0; i < ask.source_count; i++) {
        const struct share *share = &h->shares[i];
        pair_layout(&config.layout, share->tp, 2, 4, true);
        config.layout.stages = share->stages;
        config.layout.stage_limit[0] = share->stages == 2 ? 1 : 2;
        config.layout.stage_limit[1] = share->stages == 2 ? 2 : 0;
        config.layout.rank_begin = share->begin;
        config.layout.rank_limit = share->limit;
        pair_add(p, HLG_ROLE_PREFILL, &config);
        pair_connect(p, DECODE, PREFILL + i, i, 0);
    }
    pair_run(p);
    if (swapped) {
        ask.peers[0] = ask.source_count - 1;
        ask.peers[1] = 0;
    }
    bool sound = h->rank == HLG_NONE;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), sound ? 0 : -HLG_EINVAL);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_SUBMIT_SOURCES], !sound);
    if (!sound) {
        assert_int_equal(p->sides[DECODE].note.a, h->rank);
        assert_int_equal(p->sides[DECODE].note.b, h->hosts);
        assert_int_equal(hlg_decode_open(p->sides[DECODE].decode), 0);
        pair_expect_pages(p, HLG_PAGE_FREE);
    }
    pair_close(p);
}

/* A rank that no source hosts would be missing from the count too, so that a request with holes were READY;
 * one that two host would write twice. */
static void sources_host_every_rank_once_or_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostings / sizeof hostings[0]; i++) {
        for (uint32_t random = 0; random < 4; random++) {
            check_hosting(&hostings[i], false, random << 30);
            check_hosting(&hostings[i], true, random << 30);
        }
    }
}

static void pages_return_only_after_both_sources_are_fenced(void **state)
{
    struct pair *p = open_split();

    (void)state;
    hlg_handle request = pair_submitted(p, &two_sources);
    pair_run(p);
    p->hold_done = true;
    pair_serve(p, OTHER, 1);
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, OTHER, "requested stopping(cancelled)");
    pair_expect(p, DECODE, "failed(cancelled)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

static void a_reject_of_one_source_cancels_the_other(void **state)
{
    struct hlg_event reject = {.kind = HLG_EVENT_REJECT, .reject = {.retry_after_ns = 55}};
    struct pair *p = open_split();

    (void)state;
    pair_submitted(p, &two_sources);
    pair_run(p);
    reject.reject.request = pair_requested(p, PREFILL);
    p->hold_frames = true;
    assert_int_equal(pair_feed(p, PREFILL, &reject), 0);
    assert_int_equal(pair_feed(p, PREFILL, &reject), -HLG_ESTALE);
    pair_run(p);
    assert_true(pair_deliver(p, DECODE));
    pair_expect(p, DECODE, "failed(rejected)");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_FAILED)->retry_after_ns, 55);
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    p->hold_frames = false;
    pair_run(p);
    pair_expect(p, OTHER, "requested stopping(cancelled) fenced");
    pair_expect(p, PREFILL, "requested"); /* its REJECT counts as FENCED */
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

static void one_of_two_requests_unsent_fences_at_once(void **state)
{
    struct pair *p = open_split();

    (void)state;
    p->sides[DECODE].ends[1].refuse_count = 1;
    hlg_handle request = pair_submitted(p, &two_sources);
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_expect(p, DECODE, "failed(cancelled)");
    pair_run(p);
    pair_expect(p, DECODE, "returned");
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, OTHER, "");
    pair_close(p);
}

/* ---- deadlines, fences, peers that go ----------------------------------------------------- */

static void a_request_fails_at_its_deadline(void **state)
{
    struct pair_ask ask = {.tokens = TOKENS, .ttl_ns = 1000};
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &ask);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].asked.ttl_ns, 1000);
    pair_advance(p, 0);
    assert_int_equal(hlg_decode_deadline(p->sides[DECODE].decode), p->now + 1000);
    pair_advance(p, 999);
    pair_expect(p, DECODE, "");
    pair_advance(p, 1);
    pair_expect(p, DECODE, "failed(deadline)");
    pair_run(p);
    pair_expect(p, DECODE, "returned");
    pair_expect(p, PREFILL, "requested stopping(deadline) fenced");
    pair_close(p);
}

/* Some transports lose an immediate and report no error to anybody. The count stands still: the request ends
 * at its deadline, says how far it came, and its pages return by the fence. */
static void a_lost_immediate_fails_the_request_at_its_deadline(void **state)
{
    struct pair_ask ask = {.tokens = TOKENS, .ttl_ns = 1000};
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &ask);
    pair_run(p);
    p->hold_landing = true;
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    struct pair_write *lost = pair_oldest(p);
    assert_non_null(lost);
    lost->landed = 1; /* its bytes, and no immediate of them */
    p->hold_landing = false;
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    pair_expect(p, DECODE, "accepted");
    pair_advance(p, 999);
    pair_run(p);
    pair_expect(p, DECODE, "");
    pair_advance(p, 1);
    pair_run(p);
    pair_expect(p, DECODE, "failed(deadline) returned");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_FAILED)->pieces_expected, PIECES);
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_FAILED)->pieces_counted, PIECES - 1);
    pair_close(p);
}

/* What a REQUEST carries is a span. Clocks of two hosts have nothing in common. */
static void a_deadline_is_kept_whatever_the_other_clock_says(void **state)
{
    struct pair_ask ask = {.tokens = TOKENS, .ttl_ns = 1000};
    struct hlg_prefill_config config;

    (void)state;
    for (uint32_t ahead = DECODE; ahead <= PREFILL; ahead++) {
        pair_config(&config);
        struct pair *p = pair_open();
        p->clocks[ahead] = 1000000 * HLG_NS_PER_S;
        pair_add(p, HLG_ROLE_DECODE, &config);
        pair_add(p, HLG_ROLE_PREFILL, &config);
        pair_connect(p, DECODE, PREFILL, 0, 0);
        pair_run(p);
        pair_submitted(p, &ask);
        pair_run(p);
        p->hold_frames = true; /* each by its own clock */
        pair_advance(p, 999);
        pair_expect(p, PREFILL, "up requested");
        pair_expect(p, DECODE, "up");
        pair_advance(p, 1);
        pair_expect(p, PREFILL, "stopping(deadline) fenced");
        pair_expect(p, DECODE, "failed(deadline)");
        p->hold_frames = false;
        pair_run(p);
        pair_expect(p, DECODE, "returned");
        pair_close(p);
    }
}

static void a_fence_that_does_not_come_closes_the_domain(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->sides[DECODE].hold_close = true;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    p->hold_frames = true;
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_advance(p, 10 * HLG_NS_PER_S - 1);
    pair_expect(p, DECODE, "failed(cancelled)");
    pair_advance(p, 1);
    pair_expect(p, DECODE, "down");
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_FENCE_TIMEOUT], 1);
    pair_run(p);
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

static void a_lost_peer_fails_at_once_and_returns_when_closed(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->sides[DECODE].hold_close = true;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_down(p, DECODE, 0), 0);
    pair_expect(p, DECODE, "down failed(peer)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_run(p);
    pair_advance(p, 60 * HLG_NS_PER_S); /* time proves nothing */
    pair_expect(p, DECODE, "");
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
    pair_expect_pages(p, HLG_PAGE_FREE);
    assert_int_equal(pair_submit(p, DECODE, &simple_ask, NULL), -HLG_EPEER);
    pair_close(p);
}

static void pages_are_poisoned_when_the_domain_cannot_be_closed(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->sides[DECODE].close_status = -HLG_EIO;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_down(p, DECODE, 0), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down failed(peer) poisoned");
    pair_expect_pages(p, HLG_PAGE_POISONED);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up");
    for (uint32_t i = 0; i < 3; i++) {
        struct pair_ask ask = {.tokens = TOKENS, .page = i < 2 ? i : 2};
        assert_int_equal(pair_submit(p, DECODE, &ask, NULL), i < 2 ? -HLG_EOWNED : 0);
    }
    pair_run(p);
    assert_int_not_equal(p->sides[PREFILL].asked.slot, 0); /* it shares its pages' fate */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void one_lost_source_poisons_although_the_other_fenced(void **state)
{
    struct pair *p = open_split();

    (void)state;
    p->sides[DECODE].close_status = -HLG_EIO;
    pair_submitted(p, &two_sources);
    pair_run(p);
    assert_int_equal(pair_down(p, DECODE, 1), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, DECODE, "down failed(peer) poisoned");
    pair_expect_pages(p, HLG_PAGE_POISONED);
    pair_close(p);
}

static void a_failed_write_ends_the_session_instead_of_fencing(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->hold_landing = true;
    p->hold_done = true;
    p->sides[DECODE].hold_close = true;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_done(p, pair_oldest(p), 0, 1);
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(peer) down fenced");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    pair_expect(p, DECODE, "accepted failed(peer) down");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

/* ---- answers ------------------------------------------------------------------------------ */

static struct hlg_message answer(uint32_t kind, uint64_t number)
{
    return (struct hlg_message){
        .kind = kind, .answer = {.number = number, .incarnation = 1001, .pieces = PIECES}};
}

static void an_accept_of_another_count_fails_the_request(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message message = answer(HLG_MESSAGE_ACCEPT, 1);

    (void)state;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    message.answer.pieces = PIECES + 1;
    assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
    pair_expect(p, DECODE, "failed(protocol)");
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_PIECES_DIFFER], 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

static void answers_of_others_change_nothing(void **state)
{
    struct pair *p = pair_two_sources(NULL, 0, 1);

    (void)state;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    for (uint32_t kind = HLG_MESSAGE_ACCEPT; kind <= HLG_MESSAGE_FAILED; kind++) {
        if (kind == HLG_MESSAGE_CANCEL) {
            continue;
        }
        static const uint64_t unknown[] = {0, 2, UINT64_MAX};
        for (size_t i = 0; i < 3; i++) {
            struct hlg_message message = answer(kind, unknown[i]);
            assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
        }
        struct hlg_message message = answer(kind, 1);
        assert_int_equal(pair_feed_message(p, DECODE, 1, &message), 0); /* another peer's */
        message.answer.incarnation = 1;                                 /* of another run */
        assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
    }
    pair_expect(p, DECODE, "");
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_ANSWER_UNKNOWN], 12);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_ANSWER_FOREIGN], 8);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void an_answer_to_an_unsent_request_proves_nothing(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message message = answer(HLG_MESSAGE_FENCED, 1);

    (void)state;
    pair_submitted(p, &simple_ask);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
    pair_expect(p, DECODE, "");
    pair_expect_pages(p, HLG_PAGE_OWNED);
    pair_close(p);
}

static void any_reason_from_outside_is_one_of_ours(void **state)
{
    static const uint32_t reasons[] = {0, 1, 7, 8, 255, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        for (uint32_t reject = 0; reject < 2; reject++) {
            struct pair *p = pair_simple(NULL);
            struct hlg_message message =
                answer(reject == 1 ? HLG_MESSAGE_REJECT : HLG_MESSAGE_FAILED, 1);
            pair_submitted(p, &simple_ask);
            pair_run(p);
            message.answer.reason = reasons[i];
            assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
            uint32_t reason = pair_last(p, DECODE, HLG_NOTICE_FAILED)->reason;
            assert_in_range(reason, HLG_REASON_REJECTED, HLG_REASON_PREEMPTED);
            pair_run(p);
            pair_close(p);
        }
    }
}

static void answers_after_ready_change_nothing(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    for (uint32_t kind = HLG_MESSAGE_ACCEPT; kind <= HLG_MESSAGE_FAILED; kind++) {
        struct hlg_message message = answer(kind, 1);
        message.answer.pieces = 3;
        if (kind != HLG_MESSAGE_CANCEL) {
            assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
        }
    }
    pair_expect(p, DECODE, "");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
    pair_close(p);
}

/* READY is terminal, and writes may well overtake the ACCEPT. */
static void nothing_is_said_of_a_request_after_ready(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &simple_ask);
    pair_run(p);
    p->hold_frames = true;
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "ready");
    p->hold_frames = false;
    pair_run(p);
    pair_expect(p, DECODE, "");
    pair_close(p);
}

/* ---- flush -------------------------------------------------------------------------------- */

static struct pair *open_flushing(void)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();

    pair_config(&config);
    pair_add_flushing(p, &config);
    pair_add(p, HLG_ROLE_PREFILL, &config);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up");
    p->sides[DECODE].hold_flush = true;
    return p;
}

/* Whoever carries out a flush asks for the pages: those of the SUBMIT, until the request is over. */
static void the_pages_of_a_flush_are_those_of_the_submit(void **state)
{
    struct pair *p = open_flushing();
    const struct hlg_decode *d = p->sides[DECODE].decode;
    const struct pair_ask ask = {.tokens = TOKENS, .page = 3, .first = 1};
    struct hlg_page_list pages = {.count = 0};
    uint32_t pool = UINT32_MAX;

    (void)state;
    const hlg_handle request = pair_submitted(p, &ask);
    const uint32_t count = hlg_layout_pages(&p->sides[DECODE].config.layout, 0, TOKENS - 1);
    assert_true(hlg_decode_pages(d, request, 0, &pool, &pages));
    assert_int_equal(pool, 0);
    assert_int_equal(pages.first, ask.first);
    assert_int_equal(pages.count, count - ask.first);
    for (uint32_t i = 0; i < pages.count; i++) {
        assert_int_equal(pages.pages[i], pair_page(ask.page + ask.first + i));
    }
    assert_false(hlg_decode_pages(d, request + 1, 0, &pool, &pages));            /* nobody's */
    assert_false(hlg_decode_pages(d, request + (1ull << 32), 0, &pool, &pages)); /* another use */
    assert_false(hlg_decode_pages(d, request | UINT32_MAX, 0, &pool, &pages));
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    assert_false(hlg_decode_pages(d, request, 0, &pool, &pages));
    pair_close(p);
}

static void ready_waits_for_the_flush(void **state)
{
    struct pair *p = open_flushing();

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, request), 0); /* not asked */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted");
    assert_int_equal(p->sides[DECODE].flush, request);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, request), 0);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, request), 0);
    pair_expect(p, DECODE, "");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, request + 1), -HLG_ESTALE);
    pair_close(p);
}

static void a_request_cancelled_while_flushing_is_not_ready_later(void **state)
{
    (void)state;
    /* Three wait for their flush; the first, middle or last is cancelled before it is asked for. */
    for (uint32_t which = 0; which < 3; which++) {
        struct pair *p = open_flushing();
        hlg_handle requests[3];
        for (uint32_t i = 0; i < 3; i++) {
            requests[i] = pair_submitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2 * i});
        }
        pair_run(p);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(i, 0, 0), PIECES), 0);
        }
        assert_int_equal(pair_cancel(p, DECODE, requests[which]), 0);
        p->sides[DECODE].hold_flush = false;
        pair_run(p);
        pair_expect(p, DECODE, "failed(cancelled) ready ready returned");
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, requests[which]),
                         -HLG_ESTALE);
        pair_close(p);
    }
}

static int flushed(struct pair *p, hlg_handle request, bool well)
{
    p->sides[DECODE].flush = 0;
    return pair_feed_request(p, DECODE, well ? HLG_EVENT_FLUSHED : HLG_EVENT_FLUSH_FAILED, request);
}

/* A flush may copy into the pages (a staged path does): until it is over they are not given back. One that failed
 * says nothing of what is on its way to the device: another one must. */
static void pages_of_a_cancelled_request_wait_for_its_flush(void **state)
{
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        struct pair *p = open_flushing();
        hlg_handle request = pair_submitted(p, &simple_ask);
        pair_run(p);
        pair_serve(p, PREFILL, 1);
        pair_run(p);
        assert_int_equal(p->sides[DECODE].flush, request);
        assert_false(p->sides[DECODE].flush_fences);
        assert_int_equal(pair_cancel(p, DECODE, request), 0);
        pair_run(p);
        pair_expect(p, DECODE, "accepted failed(cancelled)");
        assert_int_equal(flushed(p, request, failed == 0), 0);
        pair_run(p);
        if (failed != 0) {
            pair_expect(p, DECODE, "");
            assert_int_equal(p->sides[DECODE].flush, request);
            assert_true(p->sides[DECODE].flush_fences);
            assert_int_equal(flushed(p, request, true), 0);
        }
        pair_expect(p, DECODE, "returned");
        pair_close(p);
    }
}

static void a_flush_that_fails_fails_the_request(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct pair *p = open_flushing();
        hlg_handle request = pair_submitted(p, &simple_ask);
        pair_run(p);
        assert_int_equal(flushed(p, request, false), 0);
        pair_serve(p, PREFILL, 1);
        pair_run(p);
        pair_expect(p, DECODE, "accepted");
        assert_int_equal(flushed(p, request, false), 0);
        pair_run(p);
        pair_expect(p, DECODE, "failed(local)");
        assert_int_equal(p->sides[DECODE].flush, request);
        assert_true(p->sides[DECODE].flush_fences);
        assert_int_equal(flushed(p, request, again == 0), 0);
        pair_expect(p, DECODE, again == 0 ? "returned" : "poisoned");
        pair_close(p);
    }
}

enum flushed_end {
    END_CANCELLED,
    END_DOWN,
    END_REJECTED,
    END_UNSENT,
    END_LOST,
    END_COUNT
};

static void end_early(struct pair *p, hlg_handle request, enum flushed_end end)
{
    struct hlg_event reject = {.kind = HLG_EVENT_REJECT};

    switch (end) {
    case END_CANCELLED:
    case END_UNSENT:
        assert_int_equal(pair_cancel(p, DECODE, request), 0);
        break;
    case END_REJECTED:
        reject.reject.request = pair_requested(p, PREFILL);
        assert_int_equal(pair_feed(p, PREFILL, &reject), 0);
        break;
    case END_DOWN:
    case END_LOST:
        p->sides[DECODE].close_status = end == END_LOST ? -HLG_EIO : 0;
        assert_int_equal(pair_down(p, DECODE, 0), 0);
        break;
    case END_COUNT:
        fail();
    }
    pair_run(p);
}

/* What landed of a request that failed may be on its way to the device still, and reach it after the next owner's
 * bytes: its pages come back after a flush that is asked for when nothing can land any more, whatever ended it. */
static void pages_of_a_failed_request_are_flushed_before_they_return(void **state)
{
    static const char *const notices[END_COUNT] = {
        "failed(cancelled)", "down failed(peer)", "failed(rejected) returned",
        "failed(cancelled) returned", "down failed(peer) poisoned"};

    (void)state;
    for (uint32_t end = 0; end < END_COUNT; end++) {
        struct pair *p = open_flushing();
        const hlg_handle request = pair_submitted(p, &simple_ask);
        if (end != END_UNSENT) {
            pair_run(p);
        }
        end_early(p, request, (enum flushed_end)end);
        pair_expect(p, DECODE, notices[end]);
        if (end == END_CANCELLED || end == END_DOWN) {
            assert_int_equal(p->sides[DECODE].flush, request);
            assert_true(p->sides[DECODE].flush_fences);
            pair_expect_pages(p, HLG_PAGE_QUARANTINED);
            pair_advance(p, HLG_NS_PER_S); /* time proves nothing */
            assert_int_equal(flushed(p, request, true), 0);
            pair_expect(p, DECODE, "returned");
            pair_expect_pages(p, HLG_PAGE_FREE);
        }
        assert_int_equal(flushed(p, request, true), -HLG_ESTALE);
        pair_close(p);
    }
}

static void a_flush_that_ends_after_the_cancel_is_nothing(void **state)
{
    struct pair *p = open_flushing();

    (void)state;
    hlg_handle request = pair_submitted(p, &simple_ask);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    assert_int_equal(p->sides[DECODE].flush, request);
    p->hold_frames = true;
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_FLUSHED, request), 0);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    p->hold_frames = false;
    pair_run(p);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

/* ---- CREDIT ------------------------------------------------------------------------------- */

static void credit_goes_at_every_half_window(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.window_pieces = 6;
    struct pair *p = pair_simple(&config);
    pair_submitted(p, &simple_ask);
    pair_run(p);
    for (uint32_t i = 1; i < PIECES; i++) {
        assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 1), 0);
        p->hold_frames = true;
        pair_run(p);
        assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_CREDIT], i / 3);
    }
    pair_close(p);
}

/* Pages that were merged: one immediate for two pieces. The window is of pieces, and comes back whole. */
static void merged_pieces_are_credited_as_what_they_count(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.window_pieces = 4;
    struct pair *p = pair_simple(&config);
    for (uint32_t i = 0; i < 4; i++) {
        hlg_handle request = pair_submitted(p, &simple_ask);
        pair_run(p);
        p->hold_landing = true;
        pair_serve(p, PREFILL, i + 1);
        pair_run(p);
        for (uint32_t landed = 0; landed < PIECES;) {
            struct pair_write *w = pair_oldest(p);
            assert_non_null(w); /* or the window ran dry */
            const uint32_t pieces = hlg_min_u32(2, w->taken - w->landed);
            const struct hlg_event event = {.kind = HLG_EVENT_IMM,
                                            .imm = {.imm = w->write.imm | (pieces - 1),
                                                    .pieces = pieces,
                                                    .immediates = 1,
                                                    .lane = w->write.target_lane,
                                                    .rail = w->write.target_rail,
                                                    .domain = w->domain}};
            w->landed += pieces;
            w->used = w->landed < w->taken;
            landed += pieces;
            assert_int_equal(pair_feed(p, DECODE, &event), 0);
            pair_run(p);
        }
        pair_expect(p, DECODE, "accepted ready");
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
        pair_run(p);
    }
    assert_true(p->sides[DECODE].sent[HLG_MESSAGE_CREDIT] > 0);
    pair_close(p);
}

/* Writes of a request may land after its FENCED, when its slot is closed. Their window is that of the
 * peer that wrote them, not of another one that shares its fence domain: given to that one it would be
 * credit for what it never posted, and end its session. */
static void late_immediates_are_credited_to_their_own_peer(void **state)
{
    struct pair_ask ask = {.tokens = TOKENS, .peers = {1}};
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.window_pieces = 2;
    struct pair *p = pair_two_sources(&config, 0, 0);
    hlg_handle request = pair_submitted(p, &ask);
    pair_run(p);
    p->hold_landing = true;
    pair_serve(p, OTHER, 1);
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted failed(cancelled) returned");
    p->hold_landing = false;
    pair_run(p);
    pair_expect(p, DECODE, "");
    pair_expect(p, PREFILL, "");
    pair_expect(p, OTHER, "requested stopping(cancelled) fenced");
    /* The window is whole again: the next request needs all of it. */
    pair_submitted(p, &ask);
    pair_run(p);
    pair_serve(p, OTHER, 2);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- SUBMIT ------------------------------------------------------------------------------- */

static void a_limit_that_is_reached_is_answered_and_recovers(void **state)
{
    struct pair *p = pair_simple(NULL);
    hlg_handle requests[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        requests[i] = pair_submitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2 * i});
    }
    struct pair_ask fifth = {.tokens = TOKENS, .page = 8};
    assert_int_equal(pair_submit(p, DECODE, &fifth, NULL), -HLG_ELIMIT);
    assert_int_equal(pair_page_state(p, DECODE, pair_page(8)), HLG_PAGE_FREE);
    assert_int_equal(pair_cancel(p, DECODE, requests[2]), 0);
    pair_run(p);
    pair_submitted(p, &fifth);
    pair_run(p);
    pair_expect(p, PREFILL, "requested requested requested requested");
    pair_close(p);
}

static void poisoned_slots_leave_the_rest_to_work_with(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.requests_max = 2;
    config.limits.sources_max = 1; /* two slots in all */
    struct pair *p = pair_simple(&config);
    p->sides[DECODE].close_status = -HLG_EIO;
    pair_submitted(p, &(struct pair_ask){.tokens = TOKENS});
    pair_submitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    pair_run(p);
    assert_int_equal(pair_down(p, DECODE, 0), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down failed(peer) failed(peer) poisoned poisoned");
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    struct pair_ask ask = {.tokens = TOKENS, .page = 8};
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), -HLG_ELIMIT); /* not a wait for ever */
    pair_submitted(p, &(struct pair_ask){.tokens = 1});                /* needs no slot */
    pair_close(p);
}

struct bad_submit {
    struct hlg_event_submit submit;
    int error;
};

static void a_submit_that_does_not_fit_changes_nothing(void **state)
{
    static const uint32_t good[] = {60, 61};
    static const uint32_t twice[] = {60, 60};
    static const uint32_t beyond[] = {60, 64};
    static const uint32_t owned[] = {62, 60}; /* pair_page(1) */
    struct bad_submit cases[] = {
        {{.tokens = 0}, -HLG_EINVAL},
        {{.tokens = HLG_TOKENS_MAX + 1}, -HLG_EINVAL},
        {{.tokens = UINT32_MAX}, -HLG_EINVAL},
        {{.pool = 1}, -HLG_EINVAL},
        {{.id_bytes = HLG_REQUEST_ID_BYTES_MAX + 1}, -HLG_EINVAL},
        {{.prompt_bytes = 65}, -HLG_EINVAL},
        {{.source_count = 3}, -HLG_EINVAL},
        {{.source_count = 2}, -HLG_EINVAL}, /* peer 0 twice */
        {{.peers = {1}}, -HLG_EPEER},
        {{.peers = {UINT32_MAX}}, -HLG_EPEER},
        {{.groups = {{.count = 1, .pages = good}}}, -HLG_EINVAL},
        {{.groups = {{.count = 2, .first = 1, .pages = good}}}, -HLG_EINVAL},
        {{.groups = {{.count = 2, .first = UINT32_MAX, .pages = good}}}, -HLG_EINVAL},
        {{.groups = {{.count = 2, .pages = twice}}}, -HLG_EOWNED},
        {{.groups = {{.count = 2, .pages = beyond}}}, -HLG_EINVAL},
        {{.groups = {{.count = 2, .pages = owned}}}, -HLG_EOWNED},
    };
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &simple_ask);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hlg_event event = {.kind = HLG_EVENT_SUBMIT, .submit = cases[i].submit};
        struct hlg_event_submit *e = &event.submit;
        e->tokens = i < 3 ? e->tokens : TOKENS;
        e->source_count = e->source_count == 0 ? 1 : e->source_count;
        if (e->groups[0].count == 0) {
            e->groups[0] = (struct hlg_page_list){.count = 2, .pages = good};
        }
        assert_int_equal(pair_feed(p, DECODE, &event), cases[i].error);
        assert_int_equal(hlg_decode_open(p->sides[DECODE].decode), 1);
        assert_int_equal(pair_page_state(p, DECODE, 60), HLG_PAGE_FREE);
        assert_int_equal(pair_page_state(p, DECODE, 62), HLG_PAGE_OWNED);
    }
    struct hlg_event none = {.kind = HLG_EVENT_SUBMIT, .submit = {.tokens = TOKENS}};
    none.submit.groups[0] = (struct hlg_page_list){.count = 2, .pages = good};
    assert_int_equal(pair_feed(p, DECODE, &none), -HLG_EINVAL); /* no source */
    pair_expect(p, DECODE, "");
    pair_close(p);
}

static void a_submit_without_id_needs_no_pointers(void **state)
{
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = 1, .tokens = TOKENS, .ttl_ns = 9}};
    struct pair *p = pair_simple(NULL);

    (void)state;
    event.submit.groups[0].first = 2; /* all pages are there: no list either */
    assert_int_equal(pair_feed(p, DECODE, &event), 0);
    pair_expect(p, DECODE, "ready");
    pair_close(p);
}

static void events_of_a_prefiller_are_refused(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (uint32_t kind = HLG_EVENT_TAKEN; kind <= HLG_EVENT_RELEASE; kind++) {
        bool own = kind == HLG_EVENT_IMM || kind == HLG_EVENT_FLUSHED || kind == HLG_EVENT_CANCEL ||
                   kind == HLG_EVENT_DISCONNECT || kind == HLG_EVENT_SUBMIT ||
                   kind == HLG_EVENT_RELEASE;
        if (!own) {
            assert_int_equal(pair_feed_kind(p, DECODE, kind), -HLG_EINVAL);
        }
    }
    pair_expect(p, DECODE, "");
    pair_close(p);
}

/* A layout with a context group: each request of more than one token brings exactly one context page. */
static void a_submit_with_another_count_of_contexts_is_refused(void **state)
{
    static const uint32_t pages[] = {60, 61};
    static const uint32_t contexts[] = {3, 4};
    const struct hlg_page_list cases[] = {
        {.count = 0, .pages = contexts},
        {.count = 2, .pages = contexts},
        {.count = 1, .first = 1, .pages = contexts},
        {.count = 0, .first = 1, .pages = contexts},
    };
    struct hlg_prefill_config config;
    struct hlg_event event = {
        .kind = HLG_EVENT_SUBMIT,
        .submit = {.source_count = 1, .tokens = TOKENS, .ttl_ns = HLG_TIME_NEVER}};

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    struct pair *p = pair_simple(&config);
    event.submit.groups[0] = (struct hlg_page_list){.count = 2, .pages = pages};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        event.submit.groups[1] = cases[i];
        assert_int_equal(pair_feed(p, DECODE, &event), -HLG_EINVAL);
        assert_int_equal(pair_page_state(p, DECODE, 60), HLG_PAGE_FREE);
    }
    event.submit.groups[1] = (struct hlg_page_list){.count = 1, .pages = contexts};
    assert_int_equal(pair_feed(p, DECODE, &event), 0);
    event.submit.tokens = 1; /* nothing to prefill: no context either */
    event.submit.groups[0] = (struct hlg_page_list){0};
    event.submit.groups[1] = (struct hlg_page_list){0};
    assert_int_equal(pair_feed(p, DECODE, &event), 0);
    pair_expect(p, DECODE, "ready");
    pair_close(p);
}

/* Pages of all groups together are bounded, before one of them is looked at. */
static void more_pages_than_a_message_holds_are_refused_at_once(void **state)
{
    static const uint32_t page = 1;
    struct hlg_prefill_config config;
    struct hlg_event event = {
        .kind = HLG_EVENT_SUBMIT,
        .submit = {.source_count = 1, .tokens = HLG_TOKENS_MAX, .ttl_ns = HLG_TIME_NEVER}};

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 1, false);
    config.layout.group_count = 2;
    config.layout.groups[1] = config.layout.groups[0];
    config.layout.groups[0].layers[0] = 1;
    config.layout.groups[1].layers[0] = 2;
    struct pair *p = pair_simple(&config);
    for (uint32_t g = 0; g < 2; g++) {
        event.submit.groups[g] =
            (struct hlg_page_list){.count = HLG_TOKENS_MAX - 1, .pages = &page};
    }
    assert_int_equal(pair_feed(p, DECODE, &event), -HLG_ELIMIT);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_SUBMIT_TOO_LARGE], 1);
    assert_int_equal(hlg_decode_open(p->sides[DECODE].decode), 0);
    pair_close(p);
}

/* Which replica set writes is drawn. Who shares the model but not that set is asked as well, since its ranks
 * must compute too, and is not waited for. */
static void a_source_that_has_nothing_to_send_is_not_waited_for(void **state)
{
    struct hlg_prefill_config decode;
    struct hlg_prefill_config prefill;
    uint32_t wrote = 0;

    (void)state;
    pair_config(&decode);
    pair_config(&prefill);
    decode.layout.groups[0].heads = 1;
    prefill.layout.groups[0].heads = 1;
    prefill.layout.tp = 2;
    for (uint32_t offset = 0; offset < 2; offset++) {
        struct pair *p = pair_open();
        const struct pair_ask ask = {
            .tokens = TOKENS, .random = offset << 31, .source_count = 2, .peers = {0, 1}};
        pair_add(p, HLG_ROLE_DECODE, &decode);
        for (uint32_t rank = 0; rank < 2; rank++) {
            prefill.layout.rank_begin = rank;
            prefill.layout.rank_limit = rank + 1;
            pair_add(p, HLG_ROLE_PREFILL, &prefill);
            pair_connect(p, DECODE, PREFILL + rank, rank, 0);
        }
        pair_run(p);
        pair_submitted(p, &ask);
        pair_run(p);
        uint32_t writer = p->sides[PREFILL].asked.pieces > 0 ? PREFILL : OTHER;
        assert_int_equal(p->sides[PREFILL].asked.pieces + p->sides[OTHER].asked.pieces, PIECES);
        wrote |= 1u << writer;
        pair_serve(p, writer, 1);
        pair_run(p);
        pair_expect(p, DECODE, "up up ready");
        assert_true(pair_last(p, DECODE, HLG_NOTICE_READY)->bytes > 0);
        pair_close(p);
    }
    assert_int_equal(wrote, 1u << PREFILL | 1u << OTHER);
}

/* Ranks of several nodes may decode together. One whose stage has no layer of what is asked waits for nothing. */
static void a_stage_without_layers_is_ready_at_once(void **state)
{
    struct hlg_prefill_config decode;
    struct hlg_prefill_config prefill;
    struct pair *p = pair_open();

    (void)state;
    pair_config(&decode);
    decode.layout.groups[0].layers[0] = 2;
    prefill = decode;
    decode.layout.stages = 2;
    decode.layout.stage_limit[0] = 1;
    decode.layout.stage_limit[1] = 2;
    pair_add(p, HLG_ROLE_DECODE, &decode); /* it hosts the first stage */
    pair_add(p, HLG_ROLE_PREFILL, &prefill);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_submitted(p, &simple_ask);
    pair_run(p);
    pair_expect(p, DECODE, "up ready");
    pair_expect(p, PREFILL, "up");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_READY)->bytes, 0);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_one_token_prompt_is_ready_at_once),
        cmocka_unit_test(a_full_prefix_hit_is_ready_at_once),
        cmocka_unit_test(a_full_prefix_hit_with_a_context_due_moves_the_context_alone),
        cmocka_unit_test(early_immediates_are_counted),
        cmocka_unit_test(a_request_that_is_whole_early_is_never_sent),
        cmocka_unit_test(one_piece_too_many_is_a_breach_of_the_protocol),
        cmocka_unit_test(a_piece_after_ready_ends_the_session_and_not_the_request),
        cmocka_unit_test(old_generations_and_unknown_slots_count_nothing),
        cmocka_unit_test(weights_count_and_a_mark_does_not),
        cmocka_unit_test(immediates_of_no_such_rail_are_an_error),
        cmocka_unit_test(generations_come_round_after_4096_uses_of_a_slot),
        cmocka_unit_test(a_request_cancelled_before_it_is_sent_never_is),
        cmocka_unit_test(a_request_whose_channel_was_full_is_unsent),
        cmocka_unit_test(a_sent_request_returns_its_pages_after_fenced),
        cmocka_unit_test(pages_stay_while_a_write_is_outstanding),
        cmocka_unit_test(a_ready_request_cannot_be_cancelled),
        cmocka_unit_test(two_sources_are_ready_only_when_both_are_complete),
        cmocka_unit_test(sources_host_every_rank_once_or_are_refused),
        cmocka_unit_test(pages_return_only_after_both_sources_are_fenced),
        cmocka_unit_test(a_reject_of_one_source_cancels_the_other),
        cmocka_unit_test(one_of_two_requests_unsent_fences_at_once),
        cmocka_unit_test(a_request_fails_at_its_deadline),
        cmocka_unit_test(a_lost_immediate_fails_the_request_at_its_deadline),
        cmocka_unit_test(a_deadline_is_kept_whatever_the_other_clock_says),
        cmocka_unit_test(a_fence_that_does_not_come_closes_the_domain),
        cmocka_unit_test(a_lost_peer_fails_at_once_and_returns_when_closed),
        cmocka_unit_test(pages_are_poisoned_when_the_domain_cannot_be_closed),
        cmocka_unit_test(one_lost_source_poisons_although_the_other_fenced),
        cmocka_unit_test(a_failed_write_ends_the_session_instead_of_fencing),
        cmocka_unit_test(an_accept_of_another_count_fails_the_request),
        cmocka_unit_test(answers_of_others_change_nothing),
        cmocka_unit_test(an_answer_to_an_unsent_request_proves_nothing),
        cmocka_unit_test(any_reason_from_outside_is_one_of_ours),
        cmocka_unit_test(answers_after_ready_change_nothing),
        cmocka_unit_test(nothing_is_said_of_a_request_after_ready),
        cmocka_unit_test(the_pages_of_a_flush_are_those_of_the_submit),
        cmocka_unit_test(ready_waits_for_the_flush),
        cmocka_unit_test(a_request_cancelled_while_flushing_is_not_ready_later),
        cmocka_unit_test(a_flush_that_ends_after_the_cancel_is_nothing),
        cmocka_unit_test(pages_of_a_cancelled_request_wait_for_its_flush),
        cmocka_unit_test(a_flush_that_fails_fails_the_request),
        cmocka_unit_test(pages_of_a_failed_request_are_flushed_before_they_return),
        cmocka_unit_test(credit_goes_at_every_half_window),
        cmocka_unit_test(merged_pieces_are_credited_as_what_they_count),
        cmocka_unit_test(late_immediates_are_credited_to_their_own_peer),
        cmocka_unit_test(a_limit_that_is_reached_is_answered_and_recovers),
        cmocka_unit_test(poisoned_slots_leave_the_rest_to_work_with),
        cmocka_unit_test(a_submit_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_submit_without_id_needs_no_pointers),
        cmocka_unit_test(events_of_a_prefiller_are_refused),
        cmocka_unit_test(a_submit_with_another_count_of_contexts_is_refused),
        cmocka_unit_test(more_pages_than_a_message_holds_are_refused_at_once),
        cmocka_unit_test(a_source_that_has_nothing_to_send_is_not_waited_for),
        cmocka_unit_test(a_stage_without_layers_is_ready_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
