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

static struct pair *open_acknowledged(void)
{
    struct hlg_prefill_config config;

    pair_config(&config);
    config.acknowledged = true;
    struct pair *p = pair_simple(&config);
    p->hold_landing = true;
    return p;
}

static hlg_handle submit(struct pair *p)
{
    hlg_handle request = 0;

    assert_int_equal(pair_submit(p, DECODE, &ask, &request), 0);
    pair_run(p);
    return request;
}

static int cancel(struct pair *p, uint32_t side, hlg_handle request)
{
    return pair_feed_request(p, side, HLG_EVENT_CANCEL, request);
}

static void expect_pages(const struct pair *p, enum hlg_page_state state)
{
    assert_int_equal(pair_page_state(p, DECODE, pair_page(0)), state);
    assert_int_equal(pair_page_state(p, DECODE, pair_page(1)), state);
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
        expect_pages(p, state);
    }
}

static void pages_return_with_the_last_piece_that_fenced_speaks_for(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    post_half(p);
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_PIECES);
    assert_int_equal(p->sides[PREFILL].last.answer.pieces, PIECES / 2);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    pair_expect(p, DECODE, "");
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

static void pieces_counted_before_fenced_need_not_come_again(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    post_half(p);
    land(p, PIECES / 2, HLG_PAGE_OWNED);
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted failed(cancelled) returned");
    pair_close(p);
}

static void nothing_posted_is_nothing_to_wait_for(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled) fenced");
    pair_expect(p, DECODE, "failed(cancelled) returned");
    pair_close(p);
}

/* SENT: the prefiller has forgotten the request, and all of its pieces are still on their way. */
static void a_forgotten_request_is_fenced_when_all_of_it_is_counted(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_ALL);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    land(p, PIECES - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

/* The prefill engine gives up; CANCEL crosses its FENCED and is answered by one that knows less. */
static void the_first_fenced_is_the_one_that_knows(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    hlg_handle theirs = post_half(p);
    p->hold_frames = true;
    assert_int_equal(cancel(p, PREFILL, theirs), 0);
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    p->hold_frames = false;
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 2);
    assert_int_equal(p->sides[PREFILL].last.answer.await, HLG_AWAIT_ALL);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "accepted failed(cancelled) returned");
    pair_close(p);
}

/* FENCED unasked tells that no more comes: there is nothing left to CANCEL. */
static void a_fenced_that_waits_is_not_cancelled(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    submit(p);
    post_half(p);
    struct hlg_message message = {
        .kind = HLG_MESSAGE_FENCED,
        .answer = {
            .number = 1, .incarnation = 1001, .pieces = PIECES / 2, .await = HLG_AWAIT_PIECES}};
    assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted failed(peer)");
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_CANCEL], 0);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    land(p, 1, HLG_PAGE_FREE);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

/* An immediate is lost: the session ends when fence_ns is over, which closes the endpoints. */
static void what_never_comes_ends_the_session(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    p->sides[DECODE].hold_close = true;
    hlg_handle request = submit(p);
    post_half(p);
    assert_int_equal(cancel(p, DECODE, request), 0);
    pair_run(p);
    land(p, PIECES / 2 - 1, HLG_PAGE_QUARANTINED);
    pair_expect(p, DECODE, "accepted failed(cancelled)");
    pair_advance(p, p->sides[DECODE].config.limits.fence_ns);
    pair_run(p);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_FENCE_TIMEOUT], 1);
    pair_expect(p, DECODE, "down");
    expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

/* More than was asked for, or fewer than came: whoever says so cannot be believed. */
static void a_count_that_cannot_be_ends_the_session(void **state)
{
    static const uint64_t counts[] = {PIECES + 1, UINT64_MAX, PIECES / 2 - 1, 0};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct pair *p = open_acknowledged();
        submit(p);
        post_half(p);
        land(p, PIECES / 2, HLG_PAGE_OWNED);
        p->sides[DECODE].hold_close = true;
        struct hlg_message message = {
            .kind = HLG_MESSAGE_FENCED,
            .answer = {
                .number = 1, .incarnation = 1001, .pieces = counts[i], .await = HLG_AWAIT_PIECES}};
        assert_int_equal(pair_feed_message(p, DECODE, 0, &message), 0);
        pair_expect(p, DECODE, "accepted down failed(peer)");
        expect_pages(p, HLG_PAGE_QUARANTINED);
        assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_PIECES_DIFFER], 1);
        pair_closed(p, DECODE, 0, 0);
        pair_expect(p, DECODE, "returned");
        pair_close(p);
    }
}

/* Immediates alone complete a request, also one that is SENT long before they come. */
static void a_request_is_ready_with_its_last_piece(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
    hlg_handle request = submit(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    land(p, PIECES - 1, HLG_PAGE_OWNED);
    pair_expect(p, DECODE, "accepted");
    land(p, 1, HLG_PAGE_OWNED);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, request), 0);
    expect_pages(p, HLG_PAGE_FREE);
    pair_close(p);
}

/* A write that fails proves nothing here either. */
static void a_failed_write_ends_the_session(void **state)
{
    struct pair *p = open_acknowledged();

    (void)state;
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
    expect_pages(p, HLG_PAGE_QUARANTINED);
    pair_closed(p, DECODE, 0, 0);
    pair_expect(p, DECODE, "returned");
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_return_with_the_last_piece_that_fenced_speaks_for),
        cmocka_unit_test(pieces_counted_before_fenced_need_not_come_again),
        cmocka_unit_test(nothing_posted_is_nothing_to_wait_for),
        cmocka_unit_test(a_forgotten_request_is_fenced_when_all_of_it_is_counted),
        cmocka_unit_test(the_first_fenced_is_the_one_that_knows),
        cmocka_unit_test(a_fenced_that_waits_is_not_cancelled),
        cmocka_unit_test(what_never_comes_ends_the_session),
        cmocka_unit_test(a_count_that_cannot_be_ends_the_session),
        cmocka_unit_test(a_request_is_ready_with_its_last_piece),
        cmocka_unit_test(a_failed_write_ends_the_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
