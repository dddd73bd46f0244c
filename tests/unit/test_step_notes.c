/*
 * The protocol's steps as notes: each is noted once for each request or session, in the order in which
 * it happens, and however many there are, they leave room for what went wrong.
 */
#include "pair.h"

#include <core/session.h>
#include <halage/log.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 9u /* 8 to prefill: two pages of four */

static const struct pair_ask ask = {.tokens = TOKENS};

/* Fails unless the side noted exactly these steps, each once, and no other step. */
static void expect_steps(const struct pair *p, uint32_t side, const uint32_t *steps, size_t count)
{
    uint32_t wanted[HLG_NOTE_COUNT] = {0};

    for (size_t i = 0; i < count; i++) {
        wanted[steps[i]] = 1;
    }
    for (uint32_t code = HLG_NOTE_STEP_FIRST; code < HLG_NOTE_COUNT; code++) {
        if (p->sides[side].notes[code] != wanted[code]) {
            fail_msg("side %u noted step %u %u times, not %u", side, code,
                     p->sides[side].notes[code], wanted[code]);
        }
    }
}

#define EXPECT_STEPS(p, side, ...)                                                                 \
    expect_steps(p, side,                                                                          \
                 (const uint32_t[]){HLG_NOTE_STEP_HELLO_SENT, HLG_NOTE_STEP_GREETED, __VA_ARGS__}, \
                 2 + sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void a_request_that_goes_well_is_noted_step_by_step(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_submitted(p, &ask);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_GREETED); /* and no more */
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_REQUEST_SENT);
    EXPECT_STEPS(p, PREFILL, HLG_NOTE_STEP_REQUESTED);
    p->take_max = 1; /* the first write posted is not the last */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_REQUEST_SENT, HLG_NOTE_STEP_ACCEPTED,
                 HLG_NOTE_STEP_FIRST_PIECE, HLG_NOTE_STEP_WHOLE);
    EXPECT_STEPS(p, PREFILL, HLG_NOTE_STEP_REQUESTED, HLG_NOTE_STEP_ADMITTED,
                 HLG_NOTE_STEP_FIRST_POSTED, HLG_NOTE_STEP_ALL_POSTED, HLG_NOTE_STEP_SENT);
    pair_close(p);
}

static void a_cancelled_request_is_noted_until_its_pages_return(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = pair_submitted(p, &ask);
    pair_run(p);
    p->hold_done = true;
    pair_serve(p, PREFILL, 1);
    p->hold_landing = true;
    pair_run(p);
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_REQUEST_SENT, HLG_NOTE_STEP_ACCEPTED,
                 HLG_NOTE_STEP_CANCEL_SENT);
    EXPECT_STEPS(p, PREFILL, HLG_NOTE_STEP_REQUESTED, HLG_NOTE_STEP_ADMITTED,
                 HLG_NOTE_STEP_FIRST_POSTED, HLG_NOTE_STEP_ALL_POSTED);
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_REQUEST_STOPPED], 1);
    p->hold_done = false;
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_REQUEST_SENT, HLG_NOTE_STEP_ACCEPTED,
                 HLG_NOTE_STEP_CANCEL_SENT, HLG_NOTE_STEP_SOURCE_FENCED,
                 HLG_NOTE_STEP_PAGES_RETURNED);
    EXPECT_STEPS(p, PREFILL, HLG_NOTE_STEP_REQUESTED, HLG_NOTE_STEP_ADMITTED,
                 HLG_NOTE_STEP_FIRST_POSTED, HLG_NOTE_STEP_ALL_POSTED, HLG_NOTE_STEP_FENCED_SENT);
    pair_close(p);
}

/* A REQUEST that its channel refused was not sent, and neither was one that nobody wants any more. */
static void only_what_was_sent_is_noted_as_sent(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->sides[DECODE].ends[0].refuse_count = 1;
    hlg_handle request = pair_submitted(p, &ask);
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_GREETED); /* and no more */
    assert_int_equal(pair_cancel(p, DECODE, request), 0);
    assert_int_equal(
        pair_feed(p, DECODE, &(struct hlg_event){.kind = HLG_EVENT_SEND_ROOM, .peer = {.peer = 0}}),
        0);
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_SOURCE_FENCED, HLG_NOTE_STEP_PAGES_RETURNED);
    pair_close(p);
}

static void a_session_is_noted_from_hello_to_closed(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->sides[DECODE].hold_close = true;
    assert_int_equal(
        pair_feed(p, DECODE,
                  &(struct hlg_event){.kind = HLG_EVENT_DISCONNECT, .peer = {.peer = 0}}),
        0);
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_CLOSING);
    pair_closed(p, DECODE, 0, 0);
    pair_run(p);
    EXPECT_STEPS(p, DECODE, HLG_NOTE_STEP_CLOSING, HLG_NOTE_STEP_CLOSED);
    EXPECT_STEPS(p, PREFILL, HLG_NOTE_STEP_CLOSING, HLG_NOTE_STEP_CLOSED);
    pair_close(p);
}

/* However many steps nobody pulled, a warning still has room. */
static void steps_do_not_take_a_warnings_room(void **state)
{
    struct hlg_prefill_config config;
    struct sessions sessions = {0};
    struct carve measured = {0};
    struct hlg_action action;
    const struct outgoing *out = NULL;
    uint32_t steps = 0;
    uint32_t warnings = 0;

    (void)state;
    pair_config(&config);
    struct session_config given = {.limits = &config.limits, .layout = &config.layout};
    sessions_init(&sessions, &measured, &given);
    struct carve real = {.base = malloc(measured.used)};
    assert_non_null(real.base);
    sessions_init(&sessions, &real, &given);
    for (uint32_t i = 0; i < 100000; i++) {
        sessions_note(&sessions, HLG_NOTE_STEP_FIRST, 0, i, 0, 0);
    }
    assert_int_equal(sessions.notes_lost, 0);
    for (uint32_t i = 0; i < 300; i++) {
        sessions_note(&sessions, HLG_NOTE_OUTBOX_FULL, 0, i, 0, 0);
    }
    while (sessions_next(&sessions, HLG_ACTION_NOTE, &action, &out) != 0) {
        steps += action.note.code == HLG_NOTE_STEP_FIRST;
        warnings += action.note.code == HLG_NOTE_OUTBOX_FULL;
    }
    assert_int_equal(warnings, 256);
    assert_int_equal(sessions.notes_lost, 300 - 256);
    assert_true(steps >= 4 * config.limits.requests_max);
    assert_int_equal(steps + sessions.steps_lost, 100000);
    free(real.base);
}

static void steps_are_for_debugging(void **state)
{
    (void)state;
    for (uint32_t code = HLG_NOTE_STEP_FIRST; code < HLG_NOTE_COUNT; code++) {
        assert_int_equal(hlg_note_level(&(struct hlg_note){.code = code}), HLG_LOG_DEBUG);
    }
    assert_int_equal(hlg_note_level(&(struct hlg_note){.code = HLG_NOTE_OUTBOX_FULL}),
                     HLG_LOG_ERROR);
    assert_int_equal(hlg_note_level(&(struct hlg_note){.code = HLG_NOTE_COUNT}), HLG_LOG_WARN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_goes_well_is_noted_step_by_step),
        cmocka_unit_test(a_cancelled_request_is_noted_until_its_pages_return),
        cmocka_unit_test(only_what_was_sent_is_noted_as_sent),
        cmocka_unit_test(a_session_is_noted_from_hello_to_closed),
        cmocka_unit_test(steps_do_not_take_a_warnings_room),
        cmocka_unit_test(steps_are_for_debugging),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
