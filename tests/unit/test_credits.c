/*
 * Credit on requests, pages and prompt bytes between machines joined directly: what is beyond a grant
 * waits in order and at its own peer alone, what can never fit is refused at once, credit comes back
 * before it is missed, and neither side believes nonsense. Then shares: what a hostile or idle decoder
 * leaves the others of each table of a prefiller.
 */
#include "pair.h"

#include <core/credit.h>
#include <core/share.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 9u /* 8 to prefill: two pages of four, eight pieces */

/* A decoder and a prefiller that grants `requests` and `pages`; 0: what it can. */
static struct pair *open_granting(uint32_t requests, uint32_t pages)
{
    struct hlg_prefill_config config;

    pair_config(&config);
    config.limits.grant_requests = requests;
    config.limits.grant_pages = pages;
    return pair_simple(&config);
}

static struct pair_ask ask_for(uint32_t index)
{
    return (struct pair_ask){.tokens = TOKENS, .page = 2 * index};
}

static int submit(struct pair *p, uint32_t index, hlg_handle *request)
{
    const struct pair_ask ask = ask_for(index);
    int error = pair_submit(p, DECODE, &ask, request);

    pair_run(p);
    return error;
}

static uint32_t sent(const struct pair *p, uint32_t side, uint32_t kind)
{
    return p->sides[side].sent[kind];
}

/* ---- waiting ------------------------------------------------------------------------------ */

static void requests_beyond_the_grant_wait_and_go_in_order(void **state)
{
    struct pair *p = open_granting(2, 0);
    uint64_t number = 0;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(submit(p, i, NULL), 0);
    }
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_STEP_REQUEST_WAITS], 2);
    assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_REJECT), 0);
    pair_expect(p, DECODE, "");
    pair_expect(p, PREFILL, "requested requested");
    for (uint32_t i = 0; i < 4; i++) {
        number = p->sides[PREFILL].asked.number;
        pair_serve(p, PREFILL, i + 1);
        pair_run(p);
        if (i < 2) {
            assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 3 + i);
            assert_true(p->sides[PREFILL].asked.number > number);
        } else {
            break; /* pair_serve() serves the last that was requested */
        }
    }
    pair_close(p);
}

/* Pages bound as well as requests do, and a small request does not overtake one that waits: first in,
 * first out. */
static void nothing_overtakes_what_waits(void **state)
{
    struct pair *p = open_granting(0, 5);
    const struct pair_ask large = {.tokens = 13, .page = 2}; /* three pages */
    const struct pair_ask larger = {.tokens = 17, .page = 10};
    const struct pair_ask small = {.tokens = 5, .page = 20};

    (void)state;
    assert_int_equal(submit(p, 0, NULL), 0);
    assert_int_equal(pair_submit(p, DECODE, &large, NULL), 0);
    assert_int_equal(pair_submit(p, DECODE, &larger, NULL), 0);
    assert_int_equal(pair_submit(p, DECODE, &small, NULL), 0);
    pair_run(p);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2); /* all five pages */
    pair_expect(p, PREFILL, "requested requested");
    pair_serve(p, PREFILL, 1); /* gives back three: not enough for four pages */
    pair_run(p);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2);
    pair_expect(p, PREFILL, "sent");
    pair_close(p);
}

static void a_waiting_request_that_is_cancelled_lets_the_next_go(void **state)
{
    struct pair *p = open_granting(0, 5);
    const struct pair_ask large = {.tokens = 17, .page = 2}; /* four pages */
    const struct pair_ask small = {.tokens = 13, .page = 20};
    hlg_handle request = 0;

    (void)state;
    assert_int_equal(submit(p, 0, NULL), 0);
    assert_int_equal(pair_submit(p, DECODE, &large, &request), 0);
    assert_int_equal(pair_submit(p, DECODE, &small, NULL), 0);
    pair_run(p);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 1);
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, request), 0);
    pair_run(p);
    pair_expect(p, DECODE, "failed(cancelled) returned"); /* nobody had heard of it */
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_CANCEL), 0);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2);
    pair_close(p);
}

/* Credit is charged when a REQUEST is queued, and given back when it is dropped unsent. */
static void a_request_dropped_unsent_costs_nothing(void **state)
{
    struct pair *p = open_granting(1, 0);
    hlg_handle request = 0;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        p->sides[DECODE].ends[0].refuse_count = 1;
        assert_int_equal(submit(p, 0, &request), 0);
        assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 0);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, request), 0);
        pair_expect(p, DECODE, "failed(cancelled) returned");
        assert_int_equal(
            pair_feed(p, DECODE,
                      &(struct hlg_event){.kind = HLG_EVENT_SEND_ROOM, .peer = {.peer = 0}}),
            0);
        pair_run(p);
    }
    assert_int_equal(submit(p, 0, NULL), 0);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 1);
    pair_close(p);
}

/* What is given up before its channel has room leaves no trace there: an engine that gives up many requests while
 * one peer is slow to read does not lose that peer for it. */
static void requests_dropped_unsent_leave_the_outbox(void **state)
{
    struct pair *p = open_granting(1000, 0);
    hlg_handle request = 0;

    (void)state;
    p->sides[DECODE].ends[0].refuse_count = 1;
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(submit(p, i % 4, &request), 0);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, request), 0);
        pair_run(p);
        pair_expect(p, DECODE, "failed(cancelled) returned");
    }
    assert_int_equal(submit(p, 0, NULL), 0);
    assert_int_equal(
        pair_feed(p, DECODE, &(struct hlg_event){.kind = HLG_EVENT_SEND_ROOM, .peer = {.peer = 0}}),
        0);
    pair_run(p);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 1);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_OUTBOX_FULL], 0);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

static void the_time_to_live_bounds_the_wait(void **state)
{
    struct pair *p = open_granting(1, 0);
    struct pair_ask ask = ask_for(1);

    (void)state;
    assert_int_equal(submit(p, 0, NULL), 0);
    ask.ttl_ns = HLG_NS_PER_S;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_advance(p, HLG_NS_PER_S);
    pair_run(p);
    pair_expect(p, DECODE, "failed(deadline) returned");
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 1);
    pair_close(p);
}

static void waiting_at_one_peer_holds_up_no_other(void **state)
{
    struct hlg_prefill_config config;
    struct pair_ask ask;

    (void)state;
    pair_config(&config);
    config.limits.grant_requests = 1;
    struct pair *p = pair_joined(&config, &config);
    pair_join_other(p, HLG_ROLE_PREFILL, &config, 1);
    pair_run(p);
    assert_int_equal(submit(p, 0, NULL), 0);
    assert_int_equal(submit(p, 1, NULL), 0); /* waits */
    ask = ask_for(2);
    ask.peers[0] = 1;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2);
    pair_serve(p, OTHER, 1);
    pair_run(p);
    pair_expect(p, DECODE, "up up accepted ready");
    /* A lost peer takes what waits for it along. */
    assert_int_equal(pair_feed(p, DECODE,
                               &(struct hlg_event){.kind = HLG_EVENT_PEER_DOWN,
                                                   .peer = {.peer = 0, .status = -HLG_EPEER}}),
                     0);
    pair_run(p);
    pair_expect(p, DECODE, "down failed(peer) failed(peer) returned returned");
    pair_close(p);
}

/* Two sources, one of which has no credit left: the other is asked at once, and the request is whole only
 * when both are. */
static void one_of_two_sources_may_wait(void **state)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();
    struct pair_ask ask = {.tokens = TOKENS, .source_count = 2, .peers = {0, 1}};
    hlg_handle first = 0;

    (void)state;
    pair_config(&config);
    pair_add(p, HLG_ROLE_DECODE, &config);
    pair_layout(&config.layout, 2, 2, 4, false); /* each hosts one of two ranks */
    config.layout.rank_limit = 1;
    pair_add(p, HLG_ROLE_PREFILL, &config);
    config.layout.rank_begin = 1;
    config.layout.rank_limit = 2;
    config.limits.grant_requests = 1;
    pair_add(p, HLG_ROLE_PREFILL, &config);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_connect(p, DECODE, OTHER, 1, 0);
    pair_run(p);
    assert_int_equal(pair_submit(p, DECODE, &ask, &first), 0);
    pair_run(p);
    ask.page = 2;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "up requested requested");
    pair_expect(p, OTHER, "up requested");
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "sent");
    assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, first), 0);
    pair_run(p); /* its end gives back what the second waits for */
    pair_expect(p, OTHER, "stopping(cancelled) fenced requested");
    pair_serve(p, OTHER, 1);
    pair_run(p);
    pair_expect(p, DECODE, "up up failed(cancelled) returned accepted ready");
    pair_close(p);
}

/* ---- what can never go -------------------------------------------------------------------- */

static void a_submit_that_can_never_fit_is_refused_at_once(void **state)
{
    struct hlg_prefill_config decode;
    struct hlg_prefill_config prefill;
    struct pair_ask ask = {.tokens = 17, .page = 0}; /* four pages */

    (void)state;
    for (uint32_t which = 0; which < 2; which++) {
        pair_config(&decode);
        pair_config(&prefill);
        if (which == 0) {
            prefill.limits.grant_pages = 3;
        } else {
            prefill.limits.message_bytes_max = 90; /* and 96 are needed */
        }
        struct pair *p = pair_joined(&decode, &prefill);
        pair_run(p);
        assert_int_equal(pair_submit(p, DECODE, &ask, NULL), -HLG_ELIMIT);
        assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_SUBMIT_TOO_LARGE], 1);
        assert_int_equal(hlg_decode_open(p->sides[DECODE].decode), 0);
        assert_int_equal(pair_page_state(p, DECODE, pair_page(0)), HLG_PAGE_FREE);
        pair_close(p);
    }
}

/* ---- CREDIT ------------------------------------------------------------------------------- */

/* As many requests as fit go through a grant of any size, one after the other or together, and nobody waits
 * for ever: credit comes back whenever a decoder could be short of it. */
static void every_grant_moves_everything_in_the_end(void **state)
{
    (void)state;
    for (uint32_t requests = 1; requests <= 4; requests++) {
        for (uint32_t pages = 4; pages <= 9; pages++) {
            struct pair *p = open_granting(requests, pages);
            uint32_t forward = 0;
            uint32_t ready = 0;
            for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(submit(p, i, NULL), 0);
            }
            for (uint32_t n = 0; n < p->sides[PREFILL].notice_count; n++) {
                if (p->sides[PREFILL].notices[n].kind != HLG_NOTICE_REQUESTED) {
                    continue;
                }
                hlg_handle request = p->sides[PREFILL].notices[n].request;
                forward++;
                assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), 0);
                assert_int_equal(pair_chunk(p, PREFILL, request, forward, 0, TOKENS - 1), 0);
                assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, forward), 0);
                pair_run(p);
            }
            for (uint32_t n = 0; n < p->sides[DECODE].notice_count; n++) {
                ready += p->sides[DECODE].notices[n].kind == HLG_NOTICE_READY;
            }
            assert_int_equal(ready, 4);
            pair_close(p);
        }
    }
}

/* A prefiller with plenty left says nothing: no CREDIT for each request. */
static void credit_is_not_told_before_it_is_needed(void **state)
{
    struct pair *p = open_granting(1000, 100000);

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(submit(p, 0, NULL), 0);
        pair_serve(p, PREFILL, i + 1);
        pair_run(p);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE,
                                           pair_last(p, DECODE, HLG_NOTICE_READY)->request),
                         0);
    }
    /* 64 bytes of prompt a request, of which a grant holds requests_max: they bind first, if any */
    assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_CREDIT), 0);
    pair_close(p);
}

static void credit_that_makes_no_sense_ends_the_session(void **state)
{
    static const struct hlg_credit_entry entry = {.pieces = 1};
    const struct hlg_credit bad[] = {
        {.finished = {1, 2, 0}},                                /* given before */
        {.finished = {0, 0, 0}},                                /* backward */
        {.finished = {2, 1, 0}},                                /* backward in part */
        {.finished = {3, 2, 0}},                                /* more than was sent */
        {.finished = {2, 5, 0}},                                /* more pages */
        {.finished = {2, 4, 1}},                                /* more bytes */
        {.finished = {UINT64_MAX, 4, 0}},                       /* */
        {.finished = {2, 4, 0}, .count = 1, .entries = &entry}, /* a decoder's */
    };

    (void)state;
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        struct pair *p = open_granting(3, 0);
        struct hlg_message credit = {.kind = HLG_MESSAGE_CREDIT, .credit = {.finished = {1, 2, 0}}};
        assert_int_equal(submit(p, 0, NULL), 0);
        assert_int_equal(submit(p, 1, NULL), 0);
        p->hold_frames = true;
        p->sides[DECODE].ends[0].refuse_count = 1;
        assert_int_equal(submit(p, 2, NULL), 0); /* charged, and not sent */
        assert_int_equal(pair_feed_message(p, DECODE, 0, &credit), 0);
        pair_expect(p, DECODE, "");
        credit.credit = i < sizeof bad / sizeof bad[0]
                            ? bad[i]
                            : (struct hlg_credit){.finished = {2, 4, 0}}; /* and a good one */
        assert_int_equal(pair_feed_message(p, DECODE, 0, &credit), 0);
        bool good = i == sizeof bad / sizeof bad[0];
        pair_expect(p, DECODE, good ? "" : "down failed(peer) failed(peer) failed(peer) returned");
        assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_GRANT_BACKWARD], !good);
        p->hold_frames = false;
        pair_run(p);
        pair_close(p);
    }
}

/* A refused CREDIT is sent later, once: the same twice would end the session. */
static void a_refused_credit_goes_once(void **state)
{
    struct pair *p = open_granting(1, 0);

    (void)state;
    assert_int_equal(submit(p, 0, NULL), 0);
    pair_run(p);
    p->sides[PREFILL].ends[0].refuse_count = 1; /* the ACCEPT, and what is behind it */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_CREDIT), 0);
    assert_int_equal(
        pair_feed(p, PREFILL,
                  &(struct hlg_event){.kind = HLG_EVENT_SEND_ROOM, .peer = {.peer = 0}}),
        0);
    p->sides[PREFILL].ends[0].refuse_count = 0;
    pair_run(p);
    assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_CREDIT), 1);
    pair_expect(p, DECODE, "ready");
    assert_int_equal(submit(p, 1, NULL), 0);
    assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 2);
    pair_close(p);
}

/* ---- hostile decoders --------------------------------------------------------------------- */

/* A REQUEST out of nowhere, as good as any but for its number. */
static struct hlg_message forged(const struct pair *p, uint64_t number, const uint32_t *pages)
{
    struct hlg_message m = {.kind = HLG_MESSAGE_REQUEST, .request = p->sides[PREFILL].asked};

    m.request.number = number;
    m.request.prompt_bytes = 0;
    m.request.groups[0].pages = pages;
    return m;
}

static void a_flood_beyond_the_grant_is_rejected_counted_and_bounded(void **state)
{
    static const uint32_t pages[2] = {1, 2};
    struct pair *p = open_granting(2, 0);
    struct hlg_prefill_stats stats;

    (void)state;
    assert_int_equal(submit(p, 0, NULL), 0);
    p->hold_frames = true;
    p->sides[PREFILL].ends[0].refuse_count = UINT32_MAX; /* it reads nothing */
    uint64_t n = 0;
    while (p->sides[PREFILL].notes[HLG_NOTE_OUTBOX_FULL] == 0) {
        struct hlg_message m = forged(p, 100 + n, pages);
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &m), 0);
        assert_true(++n < 1000);
        assert_true(hlg_prefill_open(p->sides[PREFILL].prefill) <= 2);
    }
    hlg_prefill_stats(p->sides[PREFILL].prefill, &stats);
    assert_true(stats.beyond_grant >= n - 2);
    uint32_t noted = p->sides[PREFILL].notes[HLG_NOTE_GRANT_EXCEEDED];
    assert_true(noted >= 3 && noted <= 11); /* at 1, 2, 4, ... */
    p->hold_frames = false;
    pair_run(p);
    pair_expect(p, PREFILL, "requested requested down stopping(peer) fenced stopping(peer) fenced");
    pair_close(p);
}

/* ---- draining ----------------------------------------------------------------------------- */

static void a_decoder_that_comes_later_is_told_of_draining(void **state)
{
    struct hlg_prefill_config config;
    struct pair *p = pair_open();

    (void)state;
    pair_config(&config);
    pair_add(p, HLG_ROLE_DECODE, &config);
    pair_add(p, HLG_ROLE_PREFILL, &config);
    assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_DRAIN), 0);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up draining");
    assert_int_equal(submit(p, 0, NULL), -HLG_EPEER);
    pair_close(p);
}

/* ---- shares ------------------------------------------------------------------------------- */

/* Small tables, exhaustively: no order of takes by the others keeps a peer from its reserve, and the sums
 * hold. */
static void no_peer_can_take_anothers_reserve(void **state)
{
    (void)state;
    for (uint32_t capacity = 0; capacity <= 9; capacity++) {
        for (uint32_t percent = 0; percent <= 100; percent += 25) {
            struct shares s;
            struct carve measured = {0};
            shares_init(&s, &measured, capacity, 3, percent);
            struct carve real = {.base = malloc(measured.used)};
            assert_non_null(real.base);
            shares_init(&s, &real, capacity, 3, percent);
            uint32_t most = 0;
            while (shares_take(&s, 0, 1)) {
                most++;
                shares_check(&s);
            }
            assert_int_equal(most, shares_most(capacity, 3, percent));
            for (uint32_t peer = 1; peer < 3; peer++) {
                assert_true(s.reserve == 0 || shares_take(&s, peer, s.reserve));
                assert_false(shares_take(&s, peer, 1));
                shares_check(&s);
            }
            assert_int_equal(s.used, capacity); /* nothing is kept for nobody */
            shares_give(&s, 0, most);
            assert_false(s.reserve > 0 && shares_take(&s, 1, most));
            assert_true(most == s.reserve || shares_take(&s, 1, most - s.reserve));
            shares_check(&s);
            free(real.base);
        }
    }
}

/* Two decoders; the first takes all requests that it can get, or all blocks: the other still has a share. */
static void a_greedy_decoder_leaves_the_others_room(void **state)
{
    (void)state;
    for (uint32_t blocks = 0; blocks < 2; blocks++) {
        struct hlg_prefill_config decode;
        struct hlg_prefill_config prefill;
        pair_config(&decode);
        pair_config(&prefill);
        decode.limits.requests_max = 16;
        prefill.limits.peers_max = 2;
        prefill.limits.grant_requests = 16; /* more than there is */
        prefill.limits.requests_max = blocks != 0 ? 16 : 8;
        prefill.limits.blocks_max = blocks != 0 ? 8 : 16;
        prefill.limits.reserve_percent = 50;
        struct pair *p = pair_joined(&decode, &prefill);
        pair_join_other(p, HLG_ROLE_DECODE, &decode, 1);
        pair_run(p);
        pair_expect(p, PREFILL, "up up");
        for (uint32_t i = 0; i < 9; i++) {
            assert_int_equal(submit(p, i, NULL), 0);
        }
        pair_expect(p, PREFILL, "requested requested requested requested requested requested");
        assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_REJECT), 3);
        for (uint32_t i = 0; i < 3; i++) {
            const struct pair_ask ask = ask_for(i);
            assert_int_equal(pair_submit(p, OTHER, &ask, NULL), 0);
            pair_run(p);
        }
        pair_expect(p, PREFILL, "requested requested");
        assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_REJECT), 4);
        pair_close(p);
    }
}

/* What a decoder could not have here though nobody had anything open is not to be asked for again; what is
 * beyond its share now, is. The request takes two blocks, one for each list. */
static void only_what_can_come_to_fit_is_to_be_asked_for_again(void **state)
{
    static const uint32_t percents[] = {0, 50, 100};

    (void)state;
    for (uint32_t i = 0; i < 3 * 2 * 6; i++) {
        const uint32_t blocks = 1 + i % 6;
        const uint32_t peers = 1 + i / 6 % 2;
        const uint32_t percent = percents[i / 12];
        const uint32_t most = blocks - (peers - 1) * (blocks * percent / 100 / peers);
        struct hlg_prefill_config config;
        pair_config(&config);
        pair_layout(&config.layout, 1, 2, 4, true);
        config.limits.grant_requests = 4;
        config.limits.grant_pages = 16; /* more than there is: the decoder lets it go */
        config.limits.blocks_max = blocks;
        config.limits.peers_max = peers;
        config.limits.reserve_percent = percent;
        struct pair *p = pair_simple(&config);
        uint32_t taken = 0;
        while (sent(p, PREFILL, HLG_MESSAGE_REJECT) == 0) {
            const struct pair_ask ask = {.tokens = TOKENS, .page = 2 * taken, .context = taken};
            assert_true(taken < 4);
            assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
            pair_run(p);
            taken++;
        }
        taken--;
        assert_int_equal(taken, most / 2);
        const hlg_time retry = pair_last(p, DECODE, HLG_NOTICE_FAILED)->retry_after_ns;
        assert_true((retry > 0) == (most >= 2));
        pair_close(p);
    }
}

/* A decoder that never gives credit for immediates holds operations that cannot be posted, one on each rail.
 * Another one's requests go through all the same. */
static void a_decoder_without_credit_leaves_the_others_operations(void **state)
{
    struct hlg_prefill_config decode;
    struct hlg_prefill_config prefill;

    (void)state;
    pair_config(&decode);
    pair_config(&prefill);
    decode.rails = 2;
    prefill.rails = 2;
    decode.limits.window_pieces = 2;
    prefill.limits.peers_max = 2;
    prefill.limits.ops_max = 4; /* lanes x peers x rails; 2 are two of the first peer */
    prefill.limits.reserve_percent = 100;
    struct pair *p = pair_joined(&decode, &prefill);
    pair_join_other(p, HLG_ROLE_DECODE, &decode, 1);
    pair_run(p);
    const struct pair_ask large = {.tokens = 33, .page = 0};
    assert_int_equal(pair_submit(p, DECODE, &large, NULL), 0);
    pair_run(p);
    p->hold_landing = true; /* so that no CREDIT comes */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    const struct pair_ask small = {.tokens = 5, .page = 40};
    assert_int_equal(pair_submit(p, OTHER, &small, NULL), 0);
    pair_run(p);
    pair_serve(p, PREFILL, 2);
    pair_run(p);
    uint32_t others = 0;
    for (uint32_t i = 0; i < PAIR_WRITES_MAX; i++) {
        others += p->writes[i].used && p->writes[i].to == OTHER ? p->writes[i].taken : 0;
    }
    assert_true(others > 0);
    pair_close(p);
}

/* What a decoder without credit keeps from being posted holds no forward once that has ended: new ones are
 * for the others' requests. Ended by the engine, or by newer stamps alone. */
static void a_decoder_without_credit_leaves_the_others_forwards(void **state)
{
    (void)state;
    for (uint32_t stamps = 0; stamps < 2; stamps++) {
        struct hlg_prefill_config decode;
        struct hlg_prefill_config prefill;
        pair_config(&decode);
        pair_config(&prefill);
        decode.limits.window_pieces = 2;
        prefill.limits.forwards_max = 2;
        prefill.limits.requests_max = 8;
        struct pair *p = pair_joined(&decode, &prefill);
        pair_join_other(p, HLG_ROLE_DECODE, &decode, 1);
        pair_run(p);
        p->hold_landing = true; /* so that no CREDIT comes */
        for (uint32_t forward = 1; forward <= 4; forward++) {
            const struct pair_ask ask = {.tokens = TOKENS, .page = 2 * (forward - 1)};
            assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
            pair_run(p);
            hlg_handle request = pair_requested(p, PREFILL);
            assert_int_equal(pair_admit(p, PREFILL, request, TOKENS, 0, 0), 0);
            assert_int_equal(pair_chunk(p, PREFILL, request, forward, 0, TOKENS - 1), 0);
            if (stamps != 0) {
                assert_int_equal(pair_tick(p, PREFILL, 0, forward, 2), 0);
            } else {
                assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, forward), 0);
            }
            pair_run(p);
        }
        const struct pair_ask other = {.tokens = 5, .page = 40};
        assert_int_equal(pair_submit(p, OTHER, &other, NULL), 0);
        pair_run(p);
        hlg_handle request = pair_requested(p, PREFILL);
        assert_int_equal(pair_admit(p, PREFILL, request, 5, 0, 0), 0);
        assert_int_equal(pair_chunk(p, PREFILL, request, 5, 0, 4), 0);
        pair_run(p);
        /* nothing of it goes before its own forward is done */
        uint32_t early = 0;
        for (uint32_t i = 0; i < PAIR_WRITES_MAX; i++) {
            early += p->writes[i].used && p->writes[i].to == OTHER ? p->writes[i].taken : 0;
        }
        assert_int_equal(early, 0);
        p->hold_landing = false;
        pair_run(p); /* what waited goes on */
        if (stamps == 0) {
            assert_int_equal(pair_forward(p, PREFILL, HLG_EVENT_FORWARD_END, 5), 0);
        } else {
            assert_int_equal(pair_tick(p, PREFILL, 0, 5, 2), 0);
        }
        pair_run(p);
        pair_expect(p, OTHER, "up accepted ready");
        pair_expect(p, DECODE, "up accepted accepted accepted accepted ready ready ready ready");
        pair_close(p);
    }
}

/* ---- more of the same --------------------------------------------------------------------- */

/* Whichever of those that wait is cancelled, the others keep their order and their places. */
static void any_that_waits_may_be_cancelled(void **state)
{
    (void)state;
    for (uint32_t cancelled = 1; cancelled < 4; cancelled++) {
        struct pair *p = open_granting(1, 0);
        hlg_handle requests[4];
        uint64_t numbers[4] = {0};
        uint32_t count = 0;
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(submit(p, i, &requests[i]), 0);
        }
        assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 1);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_CANCEL, requests[cancelled]), 0);
        pair_run(p);
        for (uint32_t i = 0; i < 3; i++) {
            numbers[count++] = p->sides[PREFILL].asked.number;
            pair_serve(p, PREFILL, i + 1);
            pair_run(p);
        }
        assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), 3);
        for (uint32_t i = 0, number = 1; i < count; i++, number++) {
            number += number == cancelled + 1;
            assert_int_equal(numbers[i], number);
        }
        pair_close(p);
    }
}

static int submit_prompt(struct pair *p, uint32_t bytes)
{
    static const uint8_t prompt[64];
    static const uint32_t pages[] = {60, 61};

    return pair_feed(p, DECODE,
                     &(struct hlg_event){.kind = HLG_EVENT_SUBMIT,
                                         .submit = {.source_count = 1,
                                                    .tokens = TOKENS,
                                                    .ttl_ns = HLG_TIME_NEVER,
                                                    .prompt = prompt,
                                                    .prompt_bytes = bytes,
                                                    .groups = {{.count = 2, .pages = pages}}}});
}

/* Bytes of prompts are granted too: one larger than the grant can never go, and one that fits goes and comes
 * back, told in time for the next. */
static void prompts_are_bounded_by_their_grant(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    config.limits.grant_requests = 100;
    config.limits.grant_pages = 1000;
    config.limits.grant_prompt_bytes = 10;
    struct pair *p = pair_simple(&config);
    assert_int_equal(submit_prompt(p, 11), -HLG_ELIMIT);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_SUBMIT_TOO_LARGE], 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(submit_prompt(p, 10), 0);
        pair_run(p);
        assert_int_equal(sent(p, DECODE, HLG_MESSAGE_REQUEST), i + 1);
        pair_serve(p, PREFILL, i + 1);
        pair_run(p);
        assert_int_equal(sent(p, PREFILL, HLG_MESSAGE_CREDIT), i + 1);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE,
                                           pair_last(p, DECODE, HLG_NOTICE_READY)->request),
                         0);
    }
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_beyond_the_grant_wait_and_go_in_order),
        cmocka_unit_test(nothing_overtakes_what_waits),
        cmocka_unit_test(a_waiting_request_that_is_cancelled_lets_the_next_go),
        cmocka_unit_test(a_request_dropped_unsent_costs_nothing),
        cmocka_unit_test(requests_dropped_unsent_leave_the_outbox),
        cmocka_unit_test(the_time_to_live_bounds_the_wait),
        cmocka_unit_test(waiting_at_one_peer_holds_up_no_other),
        cmocka_unit_test(one_of_two_sources_may_wait),
        cmocka_unit_test(a_submit_that_can_never_fit_is_refused_at_once),
        cmocka_unit_test(every_grant_moves_everything_in_the_end),
        cmocka_unit_test(credit_is_not_told_before_it_is_needed),
        cmocka_unit_test(credit_that_makes_no_sense_ends_the_session),
        cmocka_unit_test(a_refused_credit_goes_once),
        cmocka_unit_test(a_flood_beyond_the_grant_is_rejected_counted_and_bounded),
        cmocka_unit_test(a_decoder_that_comes_later_is_told_of_draining),
        cmocka_unit_test(no_peer_can_take_anothers_reserve),
        cmocka_unit_test(a_greedy_decoder_leaves_the_others_room),
        cmocka_unit_test(only_what_can_come_to_fit_is_to_be_asked_for_again),
        cmocka_unit_test(a_decoder_without_credit_leaves_the_others_operations),
        cmocka_unit_test(a_decoder_without_credit_leaves_the_others_forwards),
        cmocka_unit_test(any_that_waits_may_be_cancelled),
        cmocka_unit_test(prompts_are_bounded_by_their_grant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
