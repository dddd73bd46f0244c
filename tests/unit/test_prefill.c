/*
 * The prefill machine: which layer it may post when, that every piece is offered exactly once however
 * little a transport takes, windows, fairness, limits, and what it refuses of peer and engine. Most
 * tests join it to a decode machine; hostile ones feed it messages by hand.
 */
#include "pair.h"

#include <core/census.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two pages of two planes in two layers. */
#define TOKENS 9u
#define PIECES 8u

static const struct pair_ask simple_ask = {.tokens = TOKENS};

static hlg_handle ask(struct pair *p, uint32_t side, const struct pair_ask *asked)
{
    assert_int_equal(pair_submit(p, side, asked, NULL), 0);
    pair_run(p);
    return pair_requested(p, PREFILL);
}

static hlg_handle admitted(struct pair *p, const struct pair_ask *asked)
{
    hlg_handle request = ask(p, DECODE, asked);

    assert_int_equal(pair_admit(p, PREFILL, request, asked->tokens, 0, 0), 0);
    return request;
}

/* Two decoders, sides 0 and 2, of the one prefiller, which knows them as peers 0 and 1. */
static struct pair *open_two_decoders(const struct hlg_prefill_config *config)
{
    struct pair *p = pair_joined(config, config);

    pair_join_other(p, HLG_ROLE_DECODE, config, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "up up");
    return p;
}

static bool next_write(struct pair *p, uint32_t lane, struct hlg_action_write *write)
{
    struct hlg_action action;

    *write = (struct hlg_action_write){0};
    if (hlg_prefill_next(p->sides[PREFILL].prefill, lane, HLG_ACTION_WRITE, &action) == 0) {
        return false;
    }
    *write = action.write;
    return true;
}

static void take(struct pair *p, hlg_op_id op, uint32_t pieces)
{
    struct hlg_event event = {.kind = HLG_EVENT_TAKEN, .taken = {.op = op, .pieces = pieces}};

    assert_int_equal(pair_feed(p, PREFILL, &event), 0);
}

static void room(struct pair *p, uint32_t lane, uint32_t rail)
{
    struct hlg_event event = {.kind = HLG_EVENT_ROOM, .room = {.lane = lane, .rail = rail}};

    assert_int_equal(pair_feed(p, PREFILL, &event), 0);
}

/* Pieces taken so far, by layer. */
struct tally {
    uint32_t pieces[8];
};

static void on_piece(void *context, const struct hlg_action_write *write, uint32_t piece)
{
    struct tally *tally = context;

    (void)piece;
    tally->pieces[write->layer]++;
}

static void watch(struct pair *p, struct tally *tally)
{
    *tally = (struct tally){0};
    p->on_piece = on_piece;
    p->context = tally;
}

static void expect_tally(const struct tally *tally, uint32_t a, uint32_t b, uint32_t c)
{
    assert_int_equal(tally->pieces[0], a);
    assert_int_equal(tally->pieces[1], b);
    assert_int_equal(tally->pieces[2], c);
}

/* ---- layers ------------------------------------------------------------------------------- */

static void a_layer_goes_after_its_tick_and_the_context_after_the_last(void **state)
{
    struct hlg_prefill_config config;
    struct tally tally;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    struct pair *p = pair_simple(&config);
    watch(p, &tally);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    pair_run(p);
    expect_tally(&tally, 0, 0, 0);
    for (uint32_t layers = 1; layers <= 3; layers++) {
        assert_int_equal(pair_tick(p, PREFILL, 0, 1, layers), 0);
        pair_run(p);
        expect_tally(&tally, 4, layers >= 2 ? 4 : 0, layers >= 3 ? 1 : 0);
    }
    pair_expect(p, PREFILL, "requested sent");
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void ticks_of_unannounced_forwards_post_nothing(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 5, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 4, 2), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 6, 2), 0);
    assert_int_equal(pair_tick(p, PREFILL, 1, 5, 2), -HLG_EINVAL); /* no such word */
    pair_run(p);
    expect_tally(&tally, 0, 0, 0);
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_LAYER_UNANNOUNCED], 2);
    assert_int_equal(pair_tick(p, PREFILL, 0, 5, 2), 0);
    pair_run(p);
    expect_tally(&tally, 4, 4, 0);
    pair_close(p);
}

/* Who polls the counters may rest when nothing waits for them. */
static void what_waits_for_a_counter_is_known(void **state)
{
    struct hlg_prefill_config config;
    hlg_handle requests[2];

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    struct pair *p = pair_simple(&config);
    const struct hlg_prefill *prefill = p->sides[PREFILL].prefill;
    assert_false(hlg_prefill_awaits(prefill));
    for (uint32_t i = 0; i < 2; i++) {
        requests[i] =
            admitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2 * i, .context = i});
        assert_int_equal(hlg_prefill_awaits(prefill), i == 1);
        assert_int_equal(pair_chunk(p, PREFILL, requests[i], i + 1, 0, TOKENS - 1), 0);
    }
    p->hold_writes = true;
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    assert_true(hlg_prefill_awaits(prefill)); /* the second forward */
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 1), 0);
    assert_true(hlg_prefill_awaits(prefill)); /* its second layer */
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 2), 0);
    assert_true(hlg_prefill_awaits(prefill)); /* its context */
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 3), 0);
    assert_false(hlg_prefill_awaits(prefill)); /* though nobody ended it */
    p->hold_writes = false;
    pair_run(p);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 2), 0);
    assert_false(hlg_prefill_awaits(prefill));
    pair_run(p);
    pair_expect(p, PREFILL, "requested requested sent sent");
    pair_close(p);
}

static void two_forwards_in_flight_are_told_apart(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 2, 4, 4), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
    pair_run(p);
    expect_tally(&tally, 2, 0, 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 0), 0); /* a newer stamp: the first is over */
    pair_run(p);
    expect_tally(&tally, 2, 2, 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0); /* read late */
    pair_run(p);
    expect_tally(&tally, 2, 2, 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 2), 0);
    pair_run(p);
    expect_tally(&tally, 4, 4, 0);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void forwards_wrap_while_requests_go_on(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 0, 0, 4), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 0x1000000, 0, 4), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 0xffffff, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 0xfffffe, 4, 4), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 4, 4), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 2), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 0xffffff), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 0xffffff), 0); /* no news */
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 0xffffff), -HLG_ESTATE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 7), -HLG_ESTATE);
    pair_close(p);
}

static void without_all_reduce_each_rank_has_its_word(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_action_write write;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 2, 2, 4, false);
    config.layout.all_reduce = 0;
    assert_int_equal(hlg_prefill_words(&config.layout), 2);
    struct pair *p = pair_simple(&config);
    p->hold_writes = true;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 1, 1, 1), 0);
    assert_false(next_write(p, 0, &write));
    assert_true(next_write(p, 1, &write));
    assert_int_equal(write.lane, 1);
    take(p, write.op, 0);
    pair_close(p);
}

static void with_all_reduce_each_stage_has_its_word(void **state)
{
    struct hlg_prefill_config config;
    struct tally tally;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    config.layout.stages = 2;
    config.layout.stage_limit[0] = 1;
    config.layout.stage_limit[1] = 2;
    config.layout.rank_limit = 2;
    assert_int_equal(hlg_prefill_words(&config.layout), 2);
    struct pair *p = pair_simple(&config);
    watch(p, &tally);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 1, 1, 1), 0); /* layers are counted within the stage */
    pair_run(p);
    expect_tally(&tally, 0, 4, 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 2), 0); /* the first stage has no context */
    pair_run(p);
    expect_tally(&tally, 4, 4, 0);
    assert_int_equal(pair_tick(p, PREFILL, 1, 1, 2), 0);
    pair_run(p);
    expect_tally(&tally, 4, 4, 1); /* from the last stage alone */
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void on_lane(void *context, const struct hlg_action_write *write, uint32_t piece)
{
    uint32_t *pieces = context;

    (void)piece;
    pieces[write->lane]++;
}

/* Latents lie on all eight ranks: the one that the REQUEST's offset names sends all, context too. */
static void the_offset_of_the_request_names_the_sender(void **state)
{
    struct hlg_prefill_config source;
    struct hlg_prefill_config target;

    (void)state;
    pair_config(&source);
    source.limits.lanes_max = 8;
    pair_layout(&source.layout, 8, 2, 4, true);
    source.layout.groups[0].heads = 1;
    target = source;
    target.layout.tp = 1;
    target.layout.rank_limit = 1;
    struct pair *p = pair_joined(&target, &source);
    pair_run(p);
    p->on_piece = on_lane;
    for (uint32_t offset = 0; offset < 8; offset++) {
        uint32_t pieces[8] = {0};
        p->context = pieces;
        hlg_handle request = admitted(p, &(struct pair_ask){.tokens = TOKENS,
                                                            .page = 2 * offset,
                                                            .context = offset % 8,
                                                            .random = offset << 29});
        assert_int_equal(p->sides[PREFILL].asked.offset, offset);
        assert_int_equal(pair_chunk(p, PREFILL, request, offset + 1, 0, TOKENS - 1), 0);
        assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, offset + 1), 0);
        pair_run(p);
        for (uint32_t lane = 0; lane < 8; lane++) {
            assert_int_equal(pieces[lane], lane == offset ? PIECES + 1 : 0);
        }
        hlg_handle ready = hlg_decode_submitted(p->sides[DECODE].decode);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE, ready), 0);
    }
    pair_close(p);
}

static void all_layers_but_the_last_are_posted_early(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_prefill_stats stats;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 2, 5, 4, true);
    struct pair *p = pair_simple(&config);
    hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 25});
    for (uint32_t forward = 1; forward <= 3; forward++) {
        assert_int_equal(pair_chunk(p, PREFILL, request, forward, 8 * (forward - 1), 8), 0);
        for (uint32_t layers = 1; layers <= 5; layers++) {
            assert_int_equal(pair_tick(p, PREFILL, 0, forward, layers), 0);
            pair_run(p);
        }
        assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, forward), 0);
        pair_run(p);
    }
    pair_expect(p, DECODE, "accepted ready");
    hlg_prefill_stats(p->sides[PREFILL].prefill, &stats);
    assert_int_equal(stats.layers_early, 3 * 4 * 2); /* forwards, layers but the last, ranks */
    assert_int_equal(stats.layers_late, 0);
    /* The same with no ticks at all: late, each of them. */
    request = admitted(p, &(struct pair_ask){.tokens = 25, .page = 8, .context = 1});
    assert_int_equal(pair_chunk(p, PREFILL, request, 4, 0, 24), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 4), 0);
    pair_run(p);
    hlg_prefill_stats(p->sides[PREFILL].prefill, &stats);
    assert_int_equal(stats.layers_early, 3 * 4 * 2);
    assert_int_equal(stats.layers_late, 4 * 2);
    pair_close(p);
}

/* The write that ends a layer may be taken on one rail while an earlier one waits on another. */
static void a_layer_is_early_only_when_all_its_writes_are(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_prefill_stats stats;
    struct hlg_action_write first;
    struct hlg_action_write second;

    (void)state;
    pair_config(&config);
    config.rails = 2;
    for (uint32_t late = 0; late < 2; late++) {
        struct pair *p = pair_simple(&config);
        p->hold_writes = true;
        hlg_handle request = admitted(p, &simple_ask);
        assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
        assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
        assert_true(next_write(p, 0, &first));
        assert_int_equal(first.piece_limit, 1); /* its rail's share */
        take(p, first.op, 0);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(next_write(p, 0, &second));
            assert_int_not_equal(first.rail, second.rail);
            take(p, second.op, 1);
        }
        hlg_prefill_stats(p->sides[PREFILL].prefill, &stats);
        assert_int_equal(stats.layers_early + stats.layers_late, 0);
        if (late == 1) {
            assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
        }
        room(p, 0, first.rail);
        assert_true(next_write(p, 0, &first));
        while (first.layer != 0) { /* of the forward's end */
            take(p, first.op, 0);
            assert_true(next_write(p, 0, &first));
        }
        take(p, first.op, 1);
        hlg_prefill_stats(p->sides[PREFILL].prefill, &stats);
        assert_int_equal(stats.layers_early, 1 - late);
        assert_int_equal(stats.layers_late, late);
        pair_close(p);
    }
}

/* ---- aborted forwards --------------------------------------------------------------------- */

static void an_aborted_forward_posts_nothing_more(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
    pair_run(p);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), -HLG_ESTATE);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 2), 0);
    pair_run(p);
    expect_tally(&tally, 4, 0, 0);
    pair_expect(p, PREFILL, "requested stopping(preempted) fenced");
    pair_expect(p, DECODE, "accepted failed(preempted) returned");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_FAILED)->pieces_counted, 4);
    pair_close(p);
}

static void an_abort_stops_the_requests_of_that_forward_alone(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle one = admitted(p, &simple_ask);
    hlg_handle two = admitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    assert_int_equal(pair_chunk(p, PREFILL, one, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, two, 2, 0, TOKENS - 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), 0);
    pair_expect(p, PREFILL, "requested requested stopping(preempted) fenced");
    assert_int_equal(pair_chunk(p, PREFILL, one, 3, 4, 4), -HLG_ESTALE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 2), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "sent");
    pair_close(p);
}

static void a_chunk_of_no_pages_stops_with_its_forward(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 3), 0); /* fills no page */
    pair_run(p);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(preempted) fenced");
    pair_expect(p, DECODE, "accepted failed(preempted) returned");
    pair_close(p);
}

/* Cached pages wait for the forward that another request computes them in; if that is given up they
 * never become valid, and must not be sent as if they had. */
static void cached_pages_of_an_aborted_forward_are_not_sent(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    hlg_handle one = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, one, 1, 0, TOKENS - 1), 0);
    hlg_handle two = ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    assert_int_equal(pair_admit(p, PREFILL, two, TOKENS, 4, 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), 0);
    pair_run(p);
    expect_tally(&tally, 0, 0, 0);
    pair_expect(p, PREFILL,
                "requested requested stopping(preempted) fenced stopping(preempted) fenced");
    pair_expect(p, DECODE,
                "accepted accepted failed(preempted) returned failed(preempted) returned");
    pair_close(p);
}

static void cached_pages_go_after_their_forward(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    hlg_handle one = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, one, 3, 0, TOKENS - 1), 0);
    hlg_handle two = ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    assert_int_equal(pair_admit(p, PREFILL, two, TOKENS, 8, 4), -HLG_EINVAL); /* not announced */
    assert_int_equal(pair_admit(p, PREFILL, two, TOKENS, 8, 3), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 3, 1), 0);
    pair_run(p);
    expect_tally(&tally, 8, 0, 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 3), 0);
    pair_run(p);
    expect_tally(&tally, 8, 8, 0);
    pair_expect(p, DECODE, "accepted accepted ready ready");
    /* A forward that is over and gone: valid already. */
    hlg_handle three = ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 4});
    assert_int_equal(pair_admit(p, PREFILL, three, TOKENS, 8, 3), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- what a transport takes --------------------------------------------------------------- */

/* One write of pieces [0, total), cut by what the transport takes, at every place. */
static void a_partly_taken_write_goes_on_where_it_stopped(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    for (uint32_t tp = 1; tp <= 2; tp++) {
        for (uint32_t first = 0; first <= 4; first++) {
            for (uint32_t second = 0; first + second <= 4; second++) {
                pair_layout(&config.layout, tp, 2, 2, false); /* four pages, a piece each */
                struct pair *p = pair_simple(&config);
                struct hlg_action_write write;
                const uint32_t cuts[] = {first, second, 4 - first - second};
                uint32_t at = 0;
                p->hold_writes = true;
                hlg_handle request = admitted(p, &simple_ask);
                assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
                assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
                assert_true(next_write(p, 0, &write));
                hlg_op_id op = write.op;
                for (uint32_t i = 0; i < 3 && at < 4; i++) {
                    assert_int_equal(write.op, op);
                    assert_int_equal(write.piece_begin, at);
                    assert_int_equal(write.piece_limit, 4);
                    take(p, op, cuts[i]);
                    at += cuts[i];
                    if (at < 4) {
                        assert_false(next_write(p, 0, &write)); /* parked */
                        room(p, 0, 0);
                        assert_true(next_write(p, 0, &write));
                    }
                }
                assert_true(next_write(p, 0, &write));
                assert_int_not_equal(write.op, op);
                take(p, write.op, 0);
                pair_close(p);
            }
        }
    }
}

static void any_share_that_is_taken_sends_all_exactly_once(void **state)
{
    struct hlg_prefill_config config;
    struct tally tally;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 2, 2, 4, true);
    for (uint32_t share = 1; share <= 5; share++) {
        for (uint32_t rails = 1; rails <= 2; rails++) {
            config.rails = rails;
            struct pair *p = pair_simple(&config);
            watch(p, &tally);
            p->take_max = share;
            admitted(p, &(struct pair_ask){.tokens = 21});
            hlg_handle request = pair_requested(p, PREFILL);
            assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 20), 0);
            assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
            pair_run(p);
            pair_expect(p, DECODE, "accepted ready");
            pair_expect(p, PREFILL, "requested sent");
            expect_tally(&tally, 5 * 2 * 2, 5 * 2 * 2, 2);
            pair_close(p);
        }
    }
}

/* Two ranks into one, token by token: a page of a slice is many pieces. */
static void runs_of_a_page_are_sent_exactly_once(void **state)
{
    struct hlg_prefill_config decode;
    struct hlg_prefill_config prefill;
    struct tally tally;

    (void)state;
    pair_config(&decode);
    pair_config(&prefill);
    pair_layout(&prefill.layout, 2, 2, 4, false);
    decode.layout.groups[0].arrangement = HLG_NHD;
    prefill.layout.groups[0].arrangement = HLG_NHD;
    for (uint32_t share = 1; share <= 9; share++) {
        struct pair *p = pair_joined(&decode, &prefill);
        pair_run(p);
        pair_expect(p, DECODE, "up");
        watch(p, &tally);
        p->take_max = share;
        ask(p, DECODE, &simple_ask);
        pair_serve(p, PREFILL, 1);
        pair_run(p);
        pair_expect(p, DECODE, "accepted ready");
        expect_tally(&tally, 2 * 2 * 2 * 4, 2 * 2 * 2 * 4, 0); /* pages, planes, ranks, tokens */
        pair_close(p);
    }
}

static void a_parked_peer_blocks_neither_peers_nor_rails(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_action_write write;

    (void)state;
    pair_config(&config);
    config.rails = 2;
    struct pair *p = open_two_decoders(&config);
    p->hold_writes = true;
    hlg_handle one = ask(p, DECODE, &simple_ask);
    assert_int_equal(pair_admit(p, PREFILL, one, TOKENS, 0, 0), 0);
    hlg_handle two = ask(p, OTHER, &simple_ask);
    assert_int_equal(pair_admit(p, PREFILL, two, TOKENS, 0, 0), 0);
    assert_int_equal(pair_chunk(p, PREFILL, one, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_chunk(p, PREFILL, two, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    bool parked[2][2] = {{false}};
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(next_write(p, 0, &write));
        assert_false(parked[write.peer][write.rail]);
        parked[write.peer][write.rail] = true;
        take(p, write.op, 0);
    }
    assert_false(next_write(p, 0, &write)); /* all four refused */
    room(p, 0, 1);
    assert_true(next_write(p, 0, &write));
    assert_int_equal(write.rail, 1);
    take(p, write.op, write.piece_limit);
    assert_true(next_write(p, 0, &write));
    assert_int_equal(write.rail, 1);
    take(p, write.op, 0);
    p->hold_writes = false;
    p->take_max = 1;
    pair_close(p);
}

/* Pages of the run that each rail was offered first, when all is taken at once. */
static uint32_t share_run(struct pair *p, uint32_t rails, uint64_t *pages)
{
    struct hlg_action_write write;
    uint32_t writes = 0;

    memset(pages, 0, rails * sizeof *pages);
    while (next_write(p, 0, &write)) {
        pages[write.rail] += write.page_count;
        take(p, write.op, write.piece_limit);
        writes++;
    }
    return writes;
}

/* However long a turn is, the rails of a lane share each run: after one layer they differ by a page at
 * most for each plane, and after all layers none is ahead for good. */
static void rails_share_each_run(void **state)
{
    (void)state;
    for (uint32_t rails = 1; rails <= 2; rails++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            struct hlg_prefill_config config;
            uint64_t pages[2] = {0};
            uint64_t sums[2] = {0};

            pair_config(&config);
            config.rails = rails;
            config.limits.turn_bytes = turn == 0 ? 256u << 10 : UINT64_MAX;
            config.limits.ops_max = 64;
            struct pair *p = pair_simple(&config);
            p->hold_writes = true;
            hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 29}); /* 7 pages */
            assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 28), 0);
            for (uint32_t layer = 1; layer <= config.layout.layers; layer++) {
                assert_int_equal(pair_tick(p, PREFILL, 0, 1, layer), 0);
                assert_int_equal(share_run(p, rails, pages), 2 * rails);
                assert_int_equal(pages[0] + pages[1], 2 * 7);
                assert_true(rails == 1 || (pages[0] >= 6 && pages[0] <= 8));
                sums[0] += pages[0];
                sums[1] += pages[1];
            }
            assert_true(rails == 1 || sums[0] == sums[1]);
            assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
            pair_close(p);
        }
    }
}

/* With a turn without end a run of one peer is one write, as a simulator wants it. */
static void a_long_turn_takes_a_run_whole(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_action_write write;

    (void)state;
    for (uint32_t longer = 0; longer < 2; longer++) {
        pair_config(&config);
        config.layout.groups[0].head_bytes = 16384; /* 128 KiB a page and plane */
        config.limits.turn_bytes = longer != 0 ? UINT64_MAX : config.limits.turn_bytes;
        struct pair *p = pair_simple(&config);
        p->hold_writes = true;
        hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 29});
        assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 28), 0);
        assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
        assert_true(next_write(p, 0, &write));
        assert_int_equal(write.piece_limit - write.piece_begin, longer != 0 ? 7 : 2);
        take(p, write.op, 0);
        p->hold_writes = false;
        pair_close(p);
    }
    config.limits.turn_bytes = 0;
    assert_int_equal(hlg_prefill_size(&config), 0);
}

static void nonsense_of_a_transport_is_refused(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_action_write write;
    struct hlg_event taken = {.kind = HLG_EVENT_TAKEN};
    struct hlg_event done = {.kind = HLG_EVENT_DONE_WRITE, .done = {.done = 1}};
    struct hlg_event no_rail = {.kind = HLG_EVENT_ROOM, .room = {.rail = 1}};

    (void)state;
    p->hold_writes = true;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_feed(p, PREFILL, &taken), -HLG_EINVAL); /* nothing was offered */
    assert_int_equal(pair_feed(p, PREFILL, &done), -HLG_EINVAL);
    assert_int_equal(pair_feed(p, PREFILL, &no_rail), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    assert_true(next_write(p, 0, &write));
    taken.taken = (struct hlg_event_taken){.op = write.op, .pieces = write.piece_limit + 1};
    assert_int_equal(pair_feed(p, PREFILL, &taken), -HLG_EINVAL);
    taken.taken.op = UINT32_MAX;
    assert_int_equal(pair_feed(p, PREFILL, &taken), -HLG_EINVAL);
    take(p, write.op, 1);
    done.done.op = write.op;
    done.done.failed = 1;
    assert_int_equal(pair_feed(p, PREFILL, &done), -HLG_EINVAL); /* one was taken, not two */
    done.done = (struct hlg_event_done){.op = write.op, .done = UINT32_MAX, .failed = 2};
    assert_int_equal(pair_feed(p, PREFILL, &done), -HLG_EINVAL);
    done.done = (struct hlg_event_done){.op = UINT32_MAX, .done = 1};
    assert_int_equal(pair_feed(p, PREFILL, &done), -HLG_EINVAL);
    done.done = (struct hlg_event_done){.op = write.op, .done = 1};
    assert_int_equal(pair_feed(p, PREFILL, &done), 0);
    pair_close(p);
}

/* ---- windows ------------------------------------------------------------------------------ */

static struct hlg_message credit_of(struct hlg_credit_entry *entry)
{
    return (struct hlg_message){.kind = HLG_MESSAGE_CREDIT,
                                .credit = {.count = 1, .entries = entry}};
}

/* A request of 8 pieces under a window of 5, all layers done; the machine's own WRITEs by hand. */
static struct pair *open_window(void)
{
    struct hlg_prefill_config config;

    pair_config(&config);
    config.limits.window_pieces = 5;
    struct pair *p = pair_simple(&config);
    p->hold_writes = true;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    return p;
}

static uint32_t take_all(struct pair *p)
{
    struct hlg_action_write write;
    uint32_t pieces = 0;

    while (next_write(p, 0, &write)) {
        pieces += write.piece_limit - write.piece_begin;
        take(p, write.op, write.piece_limit - write.piece_begin);
    }
    return pieces;
}

static void the_window_is_used_up_exactly(void **state)
{
    struct pair *p = open_window();
    struct hlg_credit_entry entry = {.pieces = 0};
    struct hlg_message credit = credit_of(&entry);

    (void)state;
    assert_int_equal(take_all(p), 5);
    entry.pieces = 1;
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &credit), 0);
    assert_int_equal(take_all(p), 1);
    entry.pieces = 6;
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &credit), 0);
    assert_int_equal(take_all(p), 2);
    pair_expect(p, PREFILL, "requested");
    pair_close(p);
}

static void credit_that_makes_no_sense_ends_the_session(void **state)
{
    static const struct hlg_credit_entry bad[] = {
        {.pieces = 6},                                  /* more than was posted */
        {.pieces = UINT64_MAX},                         /* much more */
        {.pieces = 2},                                  /* backward */
        {.pieces = 3},                                  /* given before */
        {.lane = 1, .pieces = 0},                       /* no such lane */
        {.lane = UINT32_MAX},                           /* */
        {.rail = 2},                                    /* no such rail */
        {.rail = UINT32_MAX},                           /* */
        {.lane = HLG_RANKS_MAX, .rail = HLG_RAILS_MAX}, /* */
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pair *p = open_window();
        struct hlg_credit_entry entry = {.pieces = 3};
        struct hlg_message credit = credit_of(&entry);
        assert_int_equal(take_all(p), 5);
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &credit), 0);
        pair_expect(p, PREFILL, "requested");
        entry = bad[i];
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &credit), 0);
        pair_expect(p, PREFILL, "down stopping(peer)");
        assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_CREDIT_BACKWARD], 1);
        pair_close(p);
    }
}

/* One CREDIT names each rail once and upward, gives something, and returns no requests. */
static void credit_in_disorder_ends_the_session(void **state)
{
    static const struct hlg_credit_entry twice[] = {{.pieces = 3}, {.pieces = 4}};
    static const struct hlg_credit_entry downward[] = {{.rail = 1}, {.pieces = 4}};
    static const struct hlg_credit_entry good = {.pieces = 3};
    const struct hlg_credit bad[] = {
        {.count = 0},
        {.count = 2, .entries = twice},
        {.count = 2, .entries = downward},
        {.finished = {.requests = 1}, .count = 1, .entries = &good},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pair *p = open_window();
        struct hlg_message credit = {.kind = HLG_MESSAGE_CREDIT, .credit = bad[i]};
        assert_int_equal(take_all(p), 5);
        pair_expect(p, PREFILL, "requested");
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &credit), 0);
        pair_expect(p, PREFILL, "down stopping(peer)");
        pair_close(p);
    }
}

static void small_windows_move_everything_in_the_end(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 2, 2, 4, true);
    for (uint32_t window = 2; window <= 9; window++) {
        config.limits.window_pieces = window;
        struct pair *p = pair_simple(&config);
        for (uint32_t i = 1; i <= 3; i++) {
            ask(p, DECODE, &(struct pair_ask){.tokens = 21, .page = 5 * i, .context = i});
            pair_serve(p, PREFILL, i);
            pair_run(p);
            pair_expect(p, DECODE, "accepted ready");
        }
        pair_close(p);
    }
}

/* ---- fairness ----------------------------------------------------------------------------- */

/* A write offered is no longer than the rest of the turn, however many pages are ready. */
static void a_peer_waits_for_no_more_than_a_turn(void **state)
{
    enum {
        TURN = 256 << 10
    }; /* of hlg_limits_default and pair_limits */
    struct hlg_prefill_config config;
    struct hlg_action_write write;
    uint64_t left[2] = {0};
    uint64_t turn = 0;
    uint32_t last = HLG_NONE;

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 8, 4, false);
    config.limits.ops_max = 64;
    config.layout.groups[0].head_bytes = 8192; /* 64 KiB a page and plane */
    struct pair *p = open_two_decoders(&config);
    p->hold_writes = true;
    /* The first asks for three pages, the second, a third of the bytes, for one. */
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t tokens = i == 0 ? 13 : 5;
        hlg_handle request = ask(p, i == 0 ? DECODE : OTHER, &(struct pair_ask){.tokens = tokens});
        assert_int_equal(pair_admit(p, PREFILL, request, tokens, 0, 0), 0);
        assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, tokens - 1), 0);
        left[i] = (uint64_t)(tokens - 1) / 4 * 2 * 8 << 16;
    }
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    while (next_write(p, 0, &write)) {
        uint32_t pieces = write.piece_limit - write.piece_begin;
        uint64_t bytes = (uint64_t)pieces * write.slice->bytes;
        if (write.peer != last) {
            assert_true(last == HLG_NONE || turn >= TURN || left[last] == 0);
            turn = 0;
            last = write.peer;
        }
        assert_true(turn < TURN || left[1 - last] == 0);
        turn += bytes;
        assert_true(turn <= TURN || left[1 - last] == 0);
        left[last] -= bytes;
        take(p, write.op, pieces);
    }
    assert_int_equal(left[0], 0);
    assert_int_equal(left[1], 0);
    pair_close(p);
}

static void requests_of_one_peer_take_turns(void **state)
{
    struct hlg_action_write write;
    struct pair *p = pair_simple(NULL);
    uint32_t first[2] = {0};

    (void)state;
    p->hold_writes = true;
    for (uint32_t i = 0; i < 2; i++) {
        hlg_handle request =
            admitted(p, &(struct pair_ask){.tokens = i == 0 ? 33 : 5, .page = 8 * i});
        assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, i == 0 ? 32 : 4), 0);
    }
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(next_write(p, 0, &write));
        first[i] = hlg_imm_slot(write.imm);
        take(p, write.op, write.piece_limit);
    }
    assert_int_not_equal(first[0], first[1]); /* a long request does not starve a short one */
    pair_close(p);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void a_failed_write_is_never_sent_again(void **state)
{
    struct tally tally;
    struct pair *p = pair_simple(NULL);

    (void)state;
    watch(p, &tally);
    p->hold_done = true;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS - 1), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 1, 1), 0);
    pair_run(p);
    pair_done(p, pair_oldest(p), 1, 1);
    pair_expect(p, PREFILL, "requested stopping(peer)");
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    p->hold_done = false;
    pair_run(p);
    expect_tally(&tally, 4, 0, 0);
    pair_expect(p, PREFILL, "down fenced");
    pair_expect(p, DECODE, "accepted failed(peer) down returned");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FAILED], 1);
    pair_close(p);
}

static void a_failure_after_the_cancel_is_not_fenced_either(void **state)
{
    struct pair *p = pair_simple(NULL);
    hlg_handle asked = 0;

    (void)state;
    p->hold_done = true;
    assert_int_equal(pair_submit(p, DECODE, &simple_ask, &asked), 0);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    p->hold_landing = true;
    pair_run(p);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, asked), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(cancelled)");
    pair_done(p, pair_oldest(p), 0, 1);
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, PREFILL, "down fenced");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    pair_expect(p, DECODE, "accepted failed(cancelled) down returned");
    pair_close(p);
}

static void a_lost_peer_stops_its_requests_once_drained(void **state)
{
    struct hlg_event lost = {.kind = HLG_EVENT_PEER_DOWN, .peer = {.status = -HLG_EPEER}};
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->hold_done = true;
    p->sides[PREFILL].hold_close = true;
    ask(p, DECODE, &simple_ask);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    hlg_handle second = ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    assert_int_equal(pair_feed(p, PREFILL, &lost), 0);
    pair_expect(p, PREFILL, "requested requested down stopping(peer) stopping(peer) fenced");
    assert_int_equal(pair_admit(p, PREFILL, second, TOKENS, 0, 0), -HLG_ESTALE);
    p->hold_done = false;
    pair_run(p);
    pair_expect(p, PREFILL, "fenced"); /* the source pages of the first, at its last completion */
    assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 0);
    pair_closed(p, PREFILL, 0, 0);
    pair_run(p);
    pair_close(p);
}

/* A session with two requests: of the first a write fails when the session ends, of the second, if it is
 * served at all, none. PEER_CLOSED is held back. */
static struct pair *with_failed_write(hlg_handle *failed)
{
    struct hlg_event lost = {.kind = HLG_EVENT_PEER_DOWN, .peer = {.status = -HLG_EPEER}};
    struct pair *p = pair_simple(NULL);

    p->hold_done = true;
    p->sides[PREFILL].hold_close = true;
    *failed = ask(p, DECODE, &simple_ask);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 2});
    pair_serve(p, PREFILL, 2);
    p->hold_writes = true; /* nothing of it is posted */
    assert_int_equal(pair_feed(p, PREFILL, &lost), 0);
    pair_expect(p, PREFILL, "requested requested down stopping(peer) stopping(peer) fenced");
    while (pair_oldest(p) != NULL) {
        struct pair_write *w = pair_oldest(p);
        pair_done(p, w, w->taken - w->done - 1, 1);
    }
    return p;
}

/* Nothing is outstanding, but of a failed write nobody knows whether the device still reads for it: not
 * before its endpoints are closed. What had no such write went on as ever. */
static void a_failed_write_keeps_its_source_until_the_endpoints_are_closed(void **state)
{
    (void)state;
    for (uint32_t bad = 0; bad < 2; bad++) {
        hlg_handle failed = 0;
        struct hlg_census census;
        struct pair *p = with_failed_write(&failed);
        struct hlg_prefill *prefill = p->sides[PREFILL].prefill;
        pair_expect(p, PREFILL, "");
        assert_int_equal(hlg_prefill_open(prefill), 1);
        /* it is over for the engine, and answers nothing */
        assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, failed), 0);
        p->now += 3600 * HLG_NS_PER_S;
        assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_TIME), 0);
        assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_FENCE_TIMEOUT], 0);
        assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), -HLG_ESTATE);
        pair_expect(p, PREFILL, "");
        pair_closed(p, PREFILL, 0, bad != 0 ? -HLG_EIO : 0);
        pair_expect(p, PREFILL, bad != 0 ? "poisoned" : "fenced");
        const struct hlg_notice *last =
            pair_last(p, PREFILL, bad != 0 ? HLG_NOTICE_POISONED : HLG_NOTICE_FENCED);
        assert_int_equal(last->request, failed);
        assert_int_equal(last->reason, HLG_REASON_PEER);
        assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_PAGES_POISONED], bad);
        assert_int_equal(hlg_prefill_open(prefill), 0);
        hlg_prefill_census(prefill, &census);
        assert_int_equal(census.requests + census.ops + census.blocks + census.chunks, 0);
        assert_int_equal(census.sources_poisoned, bad != 0 ? (TOKENS - 1 + 3) / 4 : 0);
        assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
        pair_run(p);
        pair_close(p);
    }
}

/* The number that the peer had is another's then, with all of its shares. */
static void a_poisoned_request_leaves_nothing_to_the_next_peer(void **state)
{
    hlg_handle failed = 0;
    struct pair *p = with_failed_write(&failed);

    (void)state;
    pair_closed(p, PREFILL, 0, -HLG_EIO);
    pair_expect(p, PREFILL, "poisoned");
    pair_run(p);
    p->hold_done = false;
    p->hold_writes = false;
    p->sides[PREFILL].hold_close = false;
    assert_int_equal(pair_connect(p, DECODE, PREFILL, 0, 0), 0);
    pair_run(p);
    ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 8});
    pair_serve(p, PREFILL, 3);
    pair_run(p);
    pair_expect(p, PREFILL, "up requested sent");
    assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, failed), -HLG_ESTALE);
    pair_close(p);
}

/* The decoder connects anew and cancels before the old endpoints are closed: no FENCED for what failed. */
static void a_cancel_of_what_waits_for_the_close_is_not_answered(void **state)
{
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL};
    hlg_handle failed = 0;
    struct pair *p = with_failed_write(&failed);

    (void)state;
    cancel.answer.number = 1;
    cancel.answer.incarnation = p->sides[PREFILL].config.incarnation;
    pair_connect(p, DECODE, PREFILL, 1, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "up");
    assert_int_equal(pair_feed_message(p, PREFILL, 1, &cancel), 0);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    pair_closed(p, PREFILL, 0, -HLG_EIO);
    pair_run(p);
    pair_expect(p, PREFILL, "poisoned");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    pair_close(p);
}

/* A decoder that is alive and completes no write keeps no source pages for ever. */
static void writes_that_do_not_end_end_the_session(void **state)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();

    (void)state;
    pair_config(&config);
    config.limits.fence_ns = HLG_TIME_NEVER; /* the decoder does not mind */
    pair_add(p, HLG_ROLE_DECODE, &config);
    config.limits.fence_ns = 10 * HLG_NS_PER_S;
    pair_add(p, HLG_ROLE_PREFILL, &config);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, PREFILL, "up");
    p->hold_done = true;
    p->sides[PREFILL].hold_close = true;
    ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS});
    hlg_handle request = pair_serve(p, PREFILL, 1);
    pair_run(p);
    assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, request), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested stopping(preempted)");
    for (hlg_time passed = 0; passed < 10 * HLG_NS_PER_S; passed += HLG_NS_PER_S) {
        pair_expect(p, PREFILL, "");
        pair_advance(p, HLG_NS_PER_S);
        pair_run(p);
    }
    pair_expect(p, PREFILL, "down");
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_FENCE_TIMEOUT], 1);
    p->hold_done = false; /* closing our endpoints ends them */
    pair_run(p);
    pair_expect(p, PREFILL, "fenced");
    pair_closed(p, PREFILL, 0, 0);
    pair_run(p);
    pair_close(p);
}

static void the_engine_may_give_a_request_up(void **state)
{
    (void)state;
    for (uint32_t when = 0; when < 3; when++) {
        struct pair *p = pair_simple(NULL);
        hlg_handle request = ask(p, DECODE, &simple_ask);
        if (when > 0) {
            assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), 0);
        }
        if (when > 1) {
            assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 5), 0);
        }
        assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, request), 0);
        assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, request), -HLG_ESTALE);
        pair_run(p);
        pair_expect(p, PREFILL, "requested stopping(preempted) fenced");
        pair_expect(p, DECODE,
                    when > 0 ? "accepted failed(preempted) returned"
                             : "failed(preempted) returned");
        pair_close(p);
    }
}

static void a_request_stops_at_its_ttl(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .ttl_ns = 1000});
    pair_advance(p, 0);
    assert_int_equal(hlg_prefill_deadline(p->sides[PREFILL].prefill), p->now + 1000);
    p->now += 1000;
    assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_TIME), 0);
    pair_expect(p, PREFILL, "requested stopping(deadline) fenced");
    pair_run(p);
    pair_expect(p, DECODE, "failed(deadline) returned");
    pair_close(p);
}

/* ---- CANCEL ------------------------------------------------------------------------------- */

static void a_cancel_of_an_unknown_number_is_fenced_at_once(void **state)
{
    static const uint64_t numbers[] = {1, 2, 99, UINT64_MAX};
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL,
                                     .answer = {.number = numbers[i], .session = 1}};
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
        pair_run(p);
        assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], i + 1);
        assert_int_equal(p->sides[PREFILL].last.answer.number, numbers[i]);
        assert_int_equal(p->sides[PREFILL].last.answer.incarnation, 1001);
    }
    pair_expect(p, PREFILL, "");
    pair_close(p);
}

/* This node cannot vouch for what became of the writes of a session that is over. */
static void a_cancel_of_an_older_session_is_not_answered(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.number = 1}};

    (void)state;
    for (uint64_t session = 0; session < 4; session++) {
        cancel.answer.session = session;
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
        pair_run(p);
    }
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 1); /* of session 1, this one */
    pair_close(p);
}

/* The request outlives its session while a write is outstanding; a CANCEL in the next session finds
 * it, and is answered there. */
static void a_cancel_in_a_later_session_finds_the_request(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.number = 1, .session = 1}};

    (void)state;
    p->hold_done = true;
    p->sides[PREFILL].hold_close = true;
    ask(p, DECODE, &simple_ask);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_connect(p, DECODE, PREFILL, 1, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested down stopping(peer) up");
    assert_int_equal(pair_feed_message(p, PREFILL, 1, &cancel), 0);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 0);
    p->hold_done = false;
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 1);
    pair_expect(p, PREFILL, "fenced");
    pair_closed(p, PREFILL, 0, 0);
    pair_run(p);
    pair_close(p);
}

static void a_cancel_after_sent_is_fenced(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.number = 1, .session = 1}};

    (void)state;
    ask(p, DECODE, &simple_ask);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "requested sent");
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_FENCED], 1);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- limits ------------------------------------------------------------------------------- */

static void requests_beyond_a_limit_are_rejected_and_may_come_again(void **state)
{
    (void)state;
    for (uint32_t blocks = 0; blocks < 2; blocks++) {
        struct hlg_prefill_config decode;
        struct hlg_prefill_config prefill;
        pair_config(&decode);
        pair_config(&prefill);
        prefill.limits.grant_requests = 4; /* more than there is */
        if (blocks == 1) {
            prefill.limits.blocks_max = 2; /* each list takes one */
        } else {
            prefill.limits.requests_max = 2;
        }
        struct pair *p = pair_joined(&decode, &prefill);
        pair_run(p);
        for (uint32_t i = 0; i < 3; i++) {
            ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 2 * i, .context = i});
        }
        pair_expect(p, PREFILL, "up requested requested");
        pair_expect(p, DECODE, "up failed(rejected) returned");
        assert_true(pair_last(p, DECODE, HLG_NOTICE_FAILED)->retry_after_ns > 0);
        pair_serve(p, PREFILL, 1);
        pair_run(p);
        pair_expect(p, PREFILL, "sent");
        ask(p, DECODE, &(struct pair_ask){.tokens = TOKENS, .page = 4});
        pair_expect(p, PREFILL, "requested");
        pair_close(p);
    }
}

static void chunks_beyond_a_limit_are_answered(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.chunks_max = 2;
    struct pair *p = pair_simple(&config);
    hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 21});
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 2, 4, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), -HLG_ELIMIT);
    hlg_handle cached = ask(p, DECODE, &(struct pair_ask){.tokens = 21, .page = 5});
    assert_int_equal(pair_admit(p, PREFILL, cached, 21, 4, 0), -HLG_ELIMIT);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    pair_run(p);
    assert_int_equal(pair_admit(p, PREFILL, cached, 21, 4, 0), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 2), 0);
    pair_run(p);
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 3), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted accepted ready");
    pair_close(p);
}

static void forwards_beyond_a_limit_are_answered(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.forwards_max = 2;
    struct pair *p = pair_simple(&config);
    hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 21});
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 2, 4, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), -HLG_ELIMIT);
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 0), 0);
    /* The stamp ended the first, whose pages are not posted yet. */
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), 0);
    pair_run(p);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 2), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 3), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void writes_beyond_a_limit_wait_for_completions(void **state)
{
    struct hlg_prefill_config config;
    struct tally tally;

    (void)state;
    pair_config(&config);
    config.limits.ops_max = 1;
    struct pair *p = pair_simple(&config);
    watch(p, &tally);
    p->hold_done = true;
    ask(p, DECODE, &simple_ask);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    expect_tally(&tally, 2, 0, 0);
    p->hold_done = false;
    pair_run(p);
    expect_tally(&tally, 4, 4, 0);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- REQUEST ------------------------------------------------------------------------------ */

static struct hlg_message good_request(uint64_t number)
{
    static const uint32_t pages[] = {3, 4};

    return (struct hlg_message){
        .kind = HLG_MESSAGE_REQUEST,
        .request = {.number = number,
                    .source_count = 1,
                    .tokens = TOKENS,
                    .pieces = PIECES,
                    .ttl_ns = HLG_TIME_NEVER,
                    .group_count = 1,
                    .groups = {{.count = 2, .pages = pages}}},
    };
}

static void spoil(struct hlg_request_message *r, uint32_t which)
{
    static const uint32_t beyond[] = {3, 64};
    static const uint32_t far_beyond[] = {UINT32_MAX, 4};

    switch (which) {
    case 0:
        r->tokens = 0;
        break;
    case 1:
        r->tokens = 1;
        break;
    case 2:
        r->tokens = HLG_TOKENS_MAX + 1;
        break;
    case 3:
        r->tokens = UINT32_MAX;
        break;
    case 4:
        r->pool = 1;
        break;
    case 5:
        r->offset = 1; /* there is one replica set */
        break;
    case 6:
        r->group_count = 0;
        break;
    case 7:
        r->group_count = UINT32_MAX;
        break;
    case 8:
        r->slot = HLG_SLOTS_MAX;
        break;
    case 9:
        r->generation = HLG_GENERATIONS;
        break;
    case 10:
        r->id_bytes = HLG_REQUEST_ID_BYTES_MAX + 1;
        break;
    case 11:
        r->pieces = PIECES - 1;
        break;
    case 12:
        r->pieces = UINT64_MAX;
        break;
    case 13:
        r->groups[0].count = 1;
        break;
    case 14:
        r->groups[0].first = 1;
        break;
    case 15:
        r->groups[0].first = UINT32_MAX;
        break;
    case 16:
        r->groups[0].pages = beyond;
        break;
    case 17:
        r->groups[0].pages = far_beyond;
        break;
    case 18:
        r->groups[0] = (struct hlg_page_list){.count = 0};
        break;
    default:
        r->tokens = TOKENS + 4; /* one page more than is named */
        break;
    }
}

static void a_request_that_does_not_fit_is_rejected(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    p->hold_frames = true; /* the decoder would not know what is answered */
    for (uint32_t i = 0; i < 20; i++) {
        struct hlg_message message = good_request(i + 1);
        spoil(&message.request, i);
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
        pair_run(p);
        assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_REJECT], i + 1);
        assert_int_equal(p->sides[PREFILL].last.answer.reason, HLG_REASON_PROTOCOL);
        assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 0);
    }
    struct hlg_message message = good_request(21);
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    pair_expect(p, PREFILL, "requested");
    pair_close(p);
}

static void extremes_that_fit_are_taken(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message message = good_request(1);

    (void)state;
    message.request.slot = HLG_SLOTS_MAX - 1;
    message.request.generation = HLG_GENERATIONS - 1;
    message.request.ttl_ns = HLG_TIME_NEVER - 1;
    message.request.source = UINT32_MAX;
    message.request.source_count = UINT32_MAX;
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    message.request.number = 2;
    message.request.ttl_ns = 0; /* over at once */
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    pair_advance(p, 0);
    pair_expect(p, PREFILL, "requested requested stopping(deadline) fenced");
    pair_close(p);
}

static void numbers_that_do_not_rise_end_the_session(void **state)
{
    static const uint64_t numbers[][2] = {{0, 0}, {7, 7}, {7, 6}, {UINT64_MAX, 1}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct pair *p = pair_simple(NULL);
        for (uint32_t k = numbers[i][0] == 0 ? 1 : 0; k < 2; k++) {
            struct hlg_message message = good_request(numbers[i][k]);
            assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
        }
        pair_expect(p, PREFILL,
                    numbers[i][0] == 0 ? "down" : "requested down stopping(peer) fenced");
        pair_close(p);
    }
}

/* ---- the engine's mistakes ---------------------------------------------------------------- */

static void an_admit_that_does_not_fit_changes_nothing(void **state)
{
    static const uint32_t good[] = {1, 2};
    static const uint32_t beyond[] = {1, 64};
    const struct hlg_event_admit cases[] = {
        {.pool = 1, .groups = {{.count = 2, .pages = good}}},
        {.cached_tokens = TOKENS, .groups = {{.count = 2, .pages = good}}},
        {.cached_tokens = UINT32_MAX, .groups = {{.count = 2, .pages = good}}},
        {.cached_tokens = 4, .cached_forward = 9, .groups = {{.count = 2, .pages = good}}},
        {.groups = {{.count = 1, .pages = good}}},
        {.groups = {{.count = 3, .pages = good}}},
        {.groups = {{.count = 2, .first = 1, .pages = good}}},
        {.groups = {{.count = 2, .pages = beyond}}},
        {.groups = {{.count = 0}}},
    };
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = ask(p, DECODE, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), -HLG_ESTATE); /* too early */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hlg_event event = {.kind = HLG_EVENT_ADMIT, .admit = cases[i]};
        event.admit.request = request;
        assert_int_equal(pair_feed(p, PREFILL, &event), -HLG_EINVAL);
        assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_ACCEPT], 0);
    }
    assert_int_equal(pair_admit(p, PREFILL, request + 1, TOKENS, 0, 0), -HLG_ESTALE);
    assert_int_equal(pair_admit(p, PREFILL, 0, TOKENS, 0, 0), -HLG_ESTALE);
    assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), 0);
    assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), -HLG_ESTATE);
    struct hlg_event reject = {.kind = HLG_EVENT_REJECT, .reject = {.request = request}};
    assert_int_equal(pair_feed(p, PREFILL, &reject), -HLG_ESTATE);
    pair_close(p);
}

static void chunks_out_of_order_change_nothing(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 1, 4), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 0), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, TOKENS), -HLG_EINVAL); /* the last one */
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, UINT32_MAX), -HLG_EINVAL);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), -HLG_EINVAL); /* again */
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 4, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 8, 1), -HLG_ESTATE);
    assert_int_equal(pair_chunk(p, PREFILL, 0, 1, 0, 1), -HLG_ESTALE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), 0);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void events_of_a_decoder_are_refused(void **state)
{
    static const uint32_t kinds[] = {HLG_EVENT_IMM, HLG_EVENT_FLUSHED, HLG_EVENT_SUBMIT,
                                     HLG_EVENT_RELEASE};
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pair_feed_kind(p, PREFILL, kinds[i]), -HLG_EINVAL);
    }
    pair_close(p);
}

/* ---- what is no one's --------------------------------------------------------------------- */

static void a_handle_of_no_request_is_stale(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    hlg_handle request = ask(p, DECODE, &simple_ask);
    const hlg_handle handles[] = {0, UINT32_MAX, UINT64_MAX, request + 1, request + (1ull << 32)};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        struct hlg_event reject = {.kind = HLG_EVENT_REJECT, .reject = {.request = handles[i]}};
        assert_int_equal(pair_feed(p, PREFILL, &reject), -HLG_ESTALE);
        assert_int_equal(pair_feed_request(p, PREFILL, HLG_EVENT_CANCEL, handles[i]), -HLG_ESTALE);
    }
    assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 1);
    pair_close(p);
}

/* A decoder that knows the limit never sends one: who does all the same is answered, and not with room. */
static void a_prompt_beyond_the_limit_is_rejected(void **state)
{
    static const uint8_t prompt[65];

    (void)state;
    for (uint32_t bytes = 64; bytes <= 65; bytes++) {
        struct pair *p = pair_simple(NULL);
        struct hlg_message message = good_request(1);
        message.request.prompt = prompt;
        message.request.prompt_bytes = bytes;
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
        pair_expect(p, PREFILL, bytes == 64 ? "requested" : "");
        assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_REQUEST_REFUSED], bytes == 65);
        assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), bytes == 64);
        pair_close(p);
    }
}

/* A full channel to one decoder says nothing of what another was sent. */
static void a_refusal_of_another_peer_undoes_nothing(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_action action;
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.number = 9}};

    (void)state;
    pair_config(&config);
    struct pair *p = open_two_decoders(&config);
    struct hlg_prefill *prefill = p->sides[PREFILL].prefill;
    cancel.answer.session = p->sides[DECODE].ends[0].connection;
    for (uint64_t session = 0; session < 3; session++) {
        cancel.answer.session = session; /* one of them is its own: answered FENCED */
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
    }
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_FENCED);
    assert_int_equal(action.send.peer, 0);
    struct hlg_event refused = {.kind = HLG_EVENT_SEND_REFUSED, .peer = {.peer = 1}};
    assert_int_equal(pair_feed(p, PREFILL, &refused), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action), 0);
    pair_close(p);
}

/* A stamp of one word lets the table go of an older forward only where nobody waits for its other words. */
static void a_forward_that_another_rank_computes_is_kept(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_prefill_config decode;

    (void)state;
    pair_config(&config);
    pair_config(&decode);
    config.limits.forwards_max = 2;
    pair_layout(&config.layout, 2, 2, 4, false);
    pair_layout(&decode.layout, 2, 2, 4, false);
    config.layout.all_reduce = 0; /* a word of each rank */
    decode.layout.all_reduce = 0;
    struct pair *p = pair_joined(&decode, &config);
    pair_run(p);
    hlg_handle request = admitted(p, &(struct pair_ask){.tokens = 21});
    assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 2, 4, 4), 0);
    assert_int_equal(pair_tick(p, PREFILL, 0, 2, 0), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), -HLG_ELIMIT);
    assert_int_equal(pair_tick(p, PREFILL, 1, 2, 0), 0);
    assert_int_equal(pair_chunk(p, PREFILL, request, 3, 8, 12), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 2), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 3), 0);
    pair_run(p);
    pair_expect(p, DECODE, "up accepted ready");
    pair_close(p);
}

/* An end that comes late is no news; one of a forward that never was, or an abort, is a mistake. */
static void the_end_of_a_forward_may_come_after_newer_stamps(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 1), -HLG_ESTATE);
    hlg_handle request = admitted(p, &simple_ask);
    assert_int_equal(pair_chunk(p, PREFILL, request, 5, 0, TOKENS - 1), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 5), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 5), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 4), 0);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 5), -HLG_ESTATE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 6), -HLG_ESTATE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 0), -HLG_ESTATE);
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 0x1000005), -HLG_ESTATE);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* A REQUEST may cross the DRAIN: it is answered, and what was taken before goes on. */
static void a_request_that_crosses_a_drain_is_rejected(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message message = good_request(9);

    (void)state;
    ask(p, DECODE, &simple_ask);
    assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_DRAIN), 0);
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    pair_expect(p, PREFILL, "requested");
    assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 1);
    pair_run(p);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_REJECT], 1);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "draining accepted ready");
    pair_close(p);
}

/* A context page is asked for, or the prompt has none: it cannot be there already. */
static void a_context_that_is_said_to_be_there_is_rejected(void **state)
{
    static const uint32_t pages[] = {3, 4};
    struct hlg_prefill_config config;
    struct hlg_message message = good_request(1);

    (void)state;
    pair_config(&config);
    pair_layout(&config.layout, 1, 2, 4, true);
    struct pair *p = pair_simple(&config);
    message.request.group_count = 2;
    message.request.groups[1] = (struct hlg_page_list){.first = 1, .pages = pages};
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    pair_expect(p, PREFILL, "");
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_REQUEST_REFUSED], 1);
    message.request.number = 2;
    message.request.pieces = PIECES + 1;
    message.request.groups[1] = (struct hlg_page_list){.count = 1, .pages = pages};
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &message), 0);
    pair_expect(p, PREFILL, "requested");
    pair_close(p);
}

/* Numbers begin anew with each incarnation of a decoder: its CANCEL is not of its predecessor's request, though
 * that has the same number and still drains. */
static void a_cancel_of_the_next_incarnation_is_its_own(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_prefill *prefill = p->sides[PREFILL].prefill;
    struct hlg_event up = {.kind = HLG_EVENT_CHANNEL_UP, .peer = {.peer = 1, .domain = 1}};
    struct hlg_event opened = {.kind = HLG_EVENT_PEER_OPENED, .peer = {.peer = 1}};
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO,
                                .hello = {.protocol_min = HLG_PROTOCOL_MIN,
                                          .protocol_max = HLG_PROTOCOL_MAX,
                                          .role = HLG_ROLE_DECODE,
                                          .window_pieces = 64,
                                          .message_bytes_max = 4096,
                                          .prompt_bytes_max = 64,
                                          .node = 100,
                                          .incarnation = 2000,
                                          .session = 1,
                                          .fingerprint = {7},
                                          .layout = p->sides[DECODE].config.layout,
                                          .address_count = 1}};
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.session = 1}};
    struct hlg_action action = {0};

    (void)state;
    p->hold_done = true;
    ask(p, DECODE, &simple_ask);
    cancel.answer.number = p->sides[PREFILL].asked.number;
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    assert_int_equal(pair_feed(p, PREFILL, &up), 0);
    assert_int_equal(pair_feed_message(p, PREFILL, 1, &hello), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_PEER_OPEN, &action), 1);
    assert_int_equal(pair_feed(p, PREFILL, &opened), 0);
    pair_expect(p, PREFILL, "requested down stopping(peer) up"); /* not fenced: it drains */
    assert_int_equal(pair_feed_message(p, PREFILL, 1, &cancel), 0);
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_CANCEL_UNKNOWN], 1);
    uint32_t fenced = 0;
    while (hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action) != 0) {
        fenced += action.send.peer == 1 && action.send.message.kind == HLG_MESSAGE_FENCED;
    }
    assert_int_equal(fenced, 1);
    pair_close(p);
}

/* As many as the table holds: each of them stops. */
static void an_abort_stops_every_request_of_its_forward(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (uint32_t i = 0; i < p->sides[PREFILL].config.limits.requests_max; i++) {
        hlg_handle request =
            admitted(p, &(struct pair_ask){.tokens = TOKENS, .page = 2 * i, .context = i});
        assert_int_equal(pair_chunk(p, PREFILL, request, 1, 0, 4), 0);
    }
    pair_expect(p, PREFILL, "requested requested requested requested");
    assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_ABORT, 1), 0);
    assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 0);
    pair_expect(p, PREFILL,
                "stopping(preempted) fenced stopping(preempted) fenced "
                "stopping(preempted) fenced stopping(preempted) fenced");
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_goes_after_its_tick_and_the_context_after_the_last),
        cmocka_unit_test(ticks_of_unannounced_forwards_post_nothing),
        cmocka_unit_test(what_waits_for_a_counter_is_known),
        cmocka_unit_test(two_forwards_in_flight_are_told_apart),
        cmocka_unit_test(forwards_wrap_while_requests_go_on),
        cmocka_unit_test(without_all_reduce_each_rank_has_its_word),
        cmocka_unit_test(with_all_reduce_each_stage_has_its_word),
        cmocka_unit_test(the_offset_of_the_request_names_the_sender),
        cmocka_unit_test(all_layers_but_the_last_are_posted_early),
        cmocka_unit_test(a_layer_is_early_only_when_all_its_writes_are),
        cmocka_unit_test(an_aborted_forward_posts_nothing_more),
        cmocka_unit_test(an_abort_stops_the_requests_of_that_forward_alone),
        cmocka_unit_test(a_chunk_of_no_pages_stops_with_its_forward),
        cmocka_unit_test(cached_pages_of_an_aborted_forward_are_not_sent),
        cmocka_unit_test(cached_pages_go_after_their_forward),
        cmocka_unit_test(a_partly_taken_write_goes_on_where_it_stopped),
        cmocka_unit_test(any_share_that_is_taken_sends_all_exactly_once),
        cmocka_unit_test(runs_of_a_page_are_sent_exactly_once),
        cmocka_unit_test(a_parked_peer_blocks_neither_peers_nor_rails),
        cmocka_unit_test(rails_share_each_run),
        cmocka_unit_test(a_long_turn_takes_a_run_whole),
        cmocka_unit_test(nonsense_of_a_transport_is_refused),
        cmocka_unit_test(the_window_is_used_up_exactly),
        cmocka_unit_test(credit_that_makes_no_sense_ends_the_session),
        cmocka_unit_test(credit_in_disorder_ends_the_session),
        cmocka_unit_test(small_windows_move_everything_in_the_end),
        cmocka_unit_test(a_peer_waits_for_no_more_than_a_turn),
        cmocka_unit_test(requests_of_one_peer_take_turns),
        cmocka_unit_test(a_failed_write_is_never_sent_again),
        cmocka_unit_test(a_failure_after_the_cancel_is_not_fenced_either),
        cmocka_unit_test(a_lost_peer_stops_its_requests_once_drained),
        cmocka_unit_test(a_failed_write_keeps_its_source_until_the_endpoints_are_closed),
        cmocka_unit_test(a_poisoned_request_leaves_nothing_to_the_next_peer),
        cmocka_unit_test(a_cancel_of_what_waits_for_the_close_is_not_answered),
        cmocka_unit_test(writes_that_do_not_end_end_the_session),
        cmocka_unit_test(the_engine_may_give_a_request_up),
        cmocka_unit_test(a_request_stops_at_its_ttl),
        cmocka_unit_test(a_cancel_of_an_unknown_number_is_fenced_at_once),
        cmocka_unit_test(a_cancel_of_an_older_session_is_not_answered),
        cmocka_unit_test(a_cancel_in_a_later_session_finds_the_request),
        cmocka_unit_test(a_cancel_after_sent_is_fenced),
        cmocka_unit_test(requests_beyond_a_limit_are_rejected_and_may_come_again),
        cmocka_unit_test(chunks_beyond_a_limit_are_answered),
        cmocka_unit_test(forwards_beyond_a_limit_are_answered),
        cmocka_unit_test(writes_beyond_a_limit_wait_for_completions),
        cmocka_unit_test(a_request_that_does_not_fit_is_rejected),
        cmocka_unit_test(extremes_that_fit_are_taken),
        cmocka_unit_test(numbers_that_do_not_rise_end_the_session),
        cmocka_unit_test(an_admit_that_does_not_fit_changes_nothing),
        cmocka_unit_test(chunks_out_of_order_change_nothing),
        cmocka_unit_test(events_of_a_decoder_are_refused),
        cmocka_unit_test(a_handle_of_no_request_is_stale),
        cmocka_unit_test(a_prompt_beyond_the_limit_is_rejected),
        cmocka_unit_test(a_refusal_of_another_peer_undoes_nothing),
        cmocka_unit_test(a_forward_that_another_rank_computes_is_kept),
        cmocka_unit_test(the_end_of_a_forward_may_come_after_newer_stamps),
        cmocka_unit_test(a_request_that_crosses_a_drain_is_rejected),
        cmocka_unit_test(a_context_that_is_said_to_be_there_is_rejected),
        cmocka_unit_test(a_cancel_of_the_next_incarnation_is_its_own),
        cmocka_unit_test(an_abort_stops_every_request_of_its_forward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
