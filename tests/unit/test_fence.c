/*
 * Fencing where writes are merely acknowledged when they complete, as on efa and verbs: FENCED comes while bytes
 * are still on their way into pages. Pages return when the pieces that FENCED speaks for were counted, or when
 * our endpoints are closed, and at no other time. Machines are joined directly; landings are the test's.
 */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Two pages of two planes in two layers. */
#define TOKENS 9u
#define PIECES 8u

static const struct pair_ask ask = {.tokens = TOKENS};

/* Each test has a pair of its own whose writes complete before they land. */
static int set_up(void **state)
{
    struct hlg_prefill_config config;

    pair_config(&config);
    config.acknowledged = true;
    struct pair *p = pair_simple(&config);
    p->hold_landing = true;
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    pair_close(*state);
    return 0;
}

static hlg_handle submit(struct pair *p)
{
    const hlg_handle request = pair_submitted(p, &ask);

    pair_run(p);
    return request;
}

/* Compute and post one of two layers, half of the pieces; all completions are told, and nothing lands. */
static hlg_handle post_half(struct pair *p)
{
    hlg_handle request = pair_requested(p, PREFILL);

    assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
    pair_run(p);
    return request;
}

/* Let `count` pieces land, one by one, and the pages be `state` after each. */
static void land(struct pair *p, uint32_t count, enum hlg_page_state state)
{
    for (uint32_t i = 0; i < count; i++) {
        struct pair_write *w = pair_oldest(p);
        assert_non_null(w);
        pair_land(p, w, 1);
        pair_expect_pages(p, state);
    }
}

static void pages_return_with_the_last_piece_that_fenced_speaks_for(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    post_half(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_PIECES);
    assert_int_equal(p->sides[PREFILL].last.answer.pieces, PIECES / 2);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    pair_expect(p, DECODE, "");
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
}

static void pieces_counted_before_fenced_need_not_come_again(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    post_half(p);
    land(p, PIECES / 2, HLG_PAGE_OWNED);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted failed(cancelled) returned");
}

static void nothing_posted_is_nothing_to_wait_for(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, DECODE, "failed(cancelled) returned");
}

/* SENT: the prefiller has forgotten the request, and all of its pieces are still on their way. */
static void a_forgotten_request_is_fenced_when_all_of_it_is_counted(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_ALL);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    land(p, PIECES - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
}

/* The prefill engine gives up; CANCEL crosses its FENCED and is answered by one that knows less. */
static void the_first_fenced_is_the_one_that_knows(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    hlg_handle theirs = post_half(p);
    p->hold_frames = true;
    assert_int_equal(pair_cancel(p, PREFILL, theirs), 0);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    p->hold_frames = false;
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 2);
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_ALL);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "accepted failed(cancelled) returned");
}

/* A message of the prefiller's that this one would not send so. */
static void feed(struct pair *p, uint32_t kind, uint64_t pieces, uint32_t await)
{
    const struct hlg_message message = {
        .kind = kind,
        .answer = {.number = 1, .incarnation = 1001, .pieces = pieces, .await = await}};

    assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
}

/* FENCED unasked tells that no more comes: there is nothing left to CANCEL. */
static void a_fenced_that_waits_is_not_cancelled(void **state)
{
    struct pair *p = *state;

    submit(p);
    post_half(p);
    feed(p, HLG_MESSAGE_FENCED, PIECES / 2, HLG_AWAIT_PIECES);
    pair_run(p);
    pair_expect(p, DECODE, "accepted failed(peer)");
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_CANCEL], 0);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
}

/* What would end the wait sooner is not heeded. */
static void nothing_that_is_said_later_shortens_the_wait(void **state)
{
    struct pair *p = *state;

    submit(p);
    post_half(p);
    feed(p, HLG_MESSAGE_FENCED, PIECES / 2, HLG_AWAIT_PIECES);
    feed(p, HLG_MESSAGE_FENCED, 0, HLG_AWAIT_PIECES);
    feed(p, HLG_MESSAGE_FENCED, 0, HLG_AWAIT_NOTHING);
    feed(p, HLG_MESSAGE_REJECT, 0, HLG_AWAIT_NOTHING);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "accepted failed(peer) returned");
}

/* An immediate is lost: the session ends when fence_ns is over, which closes the endpoints. */
static void what_never_comes_ends_the_session(void **state)
{
    struct pair *p = *state;

    p->sides[DECODE].hold_close = true;
    hlg_handle request = submit(p);
    post_half(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    pair_advance(p, p->sides[DECODE].config.limits.fence_ns);
    pair_run(p);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_FENCE_TIMEOUT], 1);
    pair_expect(p, DECODE, "down");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
}

/*
 * Half of the pieces are posted, of which `landed` have landed, and the prefiller says what cannot be: nothing of
 * what it says is believed, and the pages return when our endpoints are closed, with `note`.
 */
static void expect_disbelief(struct pair *p, uint32_t kind, uint64_t pieces, uint32_t await,
                             uint32_t landed, uint32_t note)
{
    submit(p);
    post_half(p);
    land(p, landed, HLG_PAGE_OWNED);
    p->sides[DECODE].hold_close = true;
    feed(p, kind, pieces, await);
    pair_expect(p, DECODE, "accepted down failed(peer)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    assert_int_equal(p->sides[DECODE].notes[note], 1);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
}

/* More than was asked for, or fewer than came: whoever says so cannot be believed. */
static void a_count_that_cannot_be_ends_the_session(void **state)
{
    static const uint64_t counts[] = {PIECES + 1, UINT64_MAX, PIECES / 2 - 1, 0};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        expect_disbelief(*state, HLG_MESSAGE_FENCED, counts[i], HLG_AWAIT_PIECES, PIECES / 2,
                         HLG_NOTE_PIECES_DIFFER);
        (void)tear_down(state);
        (void)set_up(state);
    }
}

/* It takes every completed write for placed. Over this transport that is not so, and `pieces` is no help: a
 * prefiller that has forgotten the request says 0. */
static void a_fenced_that_awaits_nothing_ends_the_session(void **state)
{
    for (uint32_t posted = 0; posted <= PIECES / 2; posted += PIECES / 2) {
        for (uint32_t landed = 0; landed <= PIECES / 2; landed += PIECES / 2) {
            expect_disbelief(*state, HLG_MESSAGE_FENCED, posted, HLG_AWAIT_NOTHING, landed,
                             HLG_NOTE_MESSAGE_UNEXPECTED);
            (void)tear_down(state);
            (void)set_up(state);
        }
    }
}

/* REJECT says that nothing was posted: not of a request that was accepted, nor of one that something came for. */
static void a_reject_that_comes_too_late_ends_the_session(void **state)
{
    struct pair *p = *state;

    submit(p);
    p->sides[DECODE].hold_close = true;
    assert_int_equal(pair_feed_imm(p, DECODE, hlg_imm_make(0, 0, 0), 1), 0);
    feed(p, HLG_MESSAGE_REJECT, 0, HLG_AWAIT_NOTHING);
    pair_expect(p, DECODE, "down failed(peer)");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    (void)tear_down(state);
    (void)set_up(state);
    expect_disbelief(*state, HLG_MESSAGE_REJECT, 0, HLG_AWAIT_NOTHING, 0,
                     HLG_NOTE_MESSAGE_UNEXPECTED);
}

/* Immediates alone complete a request, also one that is SENT long before they come. */
static void a_request_is_ready_with_its_last_piece(void **state)
{
    struct pair *p = *state;

    hlg_handle request = submit(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    land(p, PIECES - 1, HLG_PAGE_OWNED);
    pair_expect(p, DECODE, "accepted");
    land(p, 1, HLG_PAGE_OWNED);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
    pair_expect_pages(p, HLG_PAGE_FREE);
}

/* A write that fails proves nothing here either. */
static void a_failed_write_ends_the_session(void **state)
{
    struct pair *p = *state;

    p->hold_done = true;
    p->sides[DECODE].hold_close = true;
    submit(p);
    post_half(p);
    pair_done(p, pair_oldest(p), 0, 1);
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(peer) down fenced");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    pair_expect(p, DECODE, "accepted failed(peer) down");
    pair_expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pages_return_with_the_last_piece_that_fenced_speaks_for),
        TEST(pieces_counted_before_fenced_need_not_come_again),
        TEST(nothing_posted_is_nothing_to_wait_for),
        TEST(a_forgotten_request_is_fenced_when_all_of_it_is_counted),
        TEST(the_first_fenced_is_the_one_that_knows),
        TEST(a_fenced_that_waits_is_not_cancelled),
        TEST(nothing_that_is_said_later_shortens_the_wait),
        TEST(what_never_comes_ends_the_session),
        TEST(a_count_that_cannot_be_ends_the_session),
        TEST(a_fenced_that_awaits_nothing_ends_the_session),
        TEST(a_reject_that_comes_too_late_ends_the_session),
        TEST(a_request_is_ready_with_its_last_piece),
        TEST(a_failed_write_ends_the_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
