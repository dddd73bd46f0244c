/*
 * Sessions between machines joined directly: how they begin, what ends them and what else ends with
 * them, leases, draining, and the order of messages over a channel that is full.
 */
#include "pair.h"

#include <core/census.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void both_sides_come_up_and_know_each_other(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_PEER_UP)->node, 101);
    assert_int_equal(pair_last(p, PREFILL, HLG_NOTICE_PEER_UP)->node, 100);
    pair_close(p);
}

static void events_of_peers_that_do_not_exist_change_nothing(void **state)
{
    static const uint32_t kinds[] = {HLG_EVENT_CHANNEL_UP, HLG_EVENT_PEER_OPENED,
                                     HLG_EVENT_PEER_DOWN, HLG_EVENT_DISCONNECT,
                                     HLG_EVENT_PEER_CLOSED};
    static const uint32_t channel_kinds[] = {HLG_EVENT_SEND_REFUSED, HLG_EVENT_SEND_ROOM};
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        for (size_t i = 0; i < sizeof channel_kinds / sizeof channel_kinds[0]; i++) {
            struct hlg_event event = {.kind = channel_kinds[i], .peer = {.peer = 3}};
            assert_int_equal(pair_feed(p, side, &event), 0);
            event.peer.peer = HLG_NONE; /* which "nothing was pulled" is called too */
            assert_int_equal(pair_feed(p, side, &event), 0);
        }
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            struct hlg_event event = {.kind = kinds[i], .peer = {.peer = 3}};
            assert_true(pair_feed(p, side, &event) < 0);
            event.peer.peer = HLG_NONE;
            assert_true(pair_feed(p, side, &event) < 0);
        }
        struct hlg_event event = {.kind = HLG_EVENT_CHANNEL_UP, .peer = {.peer = 0}};
        assert_int_equal(pair_feed(p, side, &event), -HLG_ESTATE); /* in use */
        event.kind = HLG_EVENT_PEER_OPENED;
        assert_int_equal(pair_feed(p, side, &event), -HLG_ESTATE); /* up already */
        event.kind = HLG_EVENT_PEER_CLOSED;
        assert_int_equal(pair_feed(p, side, &event), -HLG_ESTATE); /* not closing */
        assert_int_equal(pair_down(p, side, 1), 0);                /* unused: nothing to end */
        assert_int_equal(pair_feed_kind(p, side, 0), -HLG_EINVAL);
        assert_int_equal(pair_feed_kind(p, side, 999), -HLG_EINVAL);
        pair_run(p);
        pair_expect(p, side, "");
    }
    pair_close(p);
}

/* ---- HELLO -------------------------------------------------------------------------------- */

static void make_hello(struct hlg_hello *hello, enum hlg_role role)
{
    *hello = (struct hlg_hello){.protocol_min = HLG_PROTOCOL_MIN,
                                .protocol_max = HLG_PROTOCOL_MAX,
                                .role = (uint32_t)role,
                                .window_pieces = 64,
                                .message_bytes_max = 4096,
                                .prompt_bytes_max = 64,
                                .grant = {.requests = role == HLG_ROLE_PREFILL ? 4 : 0,
                                          .pages = role == HLG_ROLE_PREFILL ? 64 : 0},
                                .node = 77,
                                .incarnation = 5,
                                .session = 1,
                                .fingerprint = {7},
                                .address_count = 1};
    pair_layout(&hello->layout, 1, 2, 4, false);
}

static void spoil(struct hlg_hello *h, uint32_t which)
{
    switch (which) {
    case 0:
        h->protocol_min = HLG_PROTOCOL_MAX + 1;
        h->protocol_max = HLG_PROTOCOL_MAX + 9;
        break;
    case 1:
        h->protocol_max = HLG_PROTOCOL_MIN - 1;
        break;
    case 2:
        h->role = h->role == HLG_ROLE_DECODE ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE;
        break;
    case 3:
        h->role = 99;
        break;
    case 4:
        h->fingerprint[31] = 1;
        break;
    case 5:
        h->window_pieces = 0;
        break;
    case 6:
        h->address_count = 0;
        break;
    case 7:
        h->layout.tp = 2;
        h->layout.rank_limit = 2;
        h->address_count = 3; /* not a multiple of two lanes */
        break;
    case 8:
        h->address_count = UINT32_MAX;
        break;
    case 9:
        h->layout.layers = 3;
        h->layout.stage_limit[0] = 3;
        break;
    case 10:
        memset(&h->layout, 0, sizeof h->layout);
        break;
    case 11:
        memset(&h->layout, 0xff, sizeof h->layout);
        break;
    case 12:
        h->layout.groups[0].page_tokens = 8;
        break;
    default:
        h->address_count = 3; /* more rails than limits.rails_max */
        break;
    }
}

static void a_hello_that_does_not_fit_is_refused_with_a_reason(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    for (uint32_t i = 0; i < 28; i++) {
        bool decode = i % 2 == 0;
        struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};
        struct pair *p = pair_joined(&config, &config);
        make_hello(&hello.hello, decode ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE);
        spoil(&hello.hello, i / 2);
        assert_int_equal(pair_feed_message(p, decode ? DECODE : PREFILL, 0, &hello), 0);
        pair_expect(p, decode ? DECODE : PREFILL, "refused");
        uint32_t code =
            pair_last(p, decode ? DECODE : PREFILL, HLG_NOTICE_PEER_REFUSED)->refusal.code;
        assert_int_not_equal(code, HLG_REFUSAL_NONE);
        pair_run(p);
        /* Its BYE told the other side why. */
        pair_expect(p, decode ? PREFILL : DECODE, "refused");
        assert_int_equal(
            pair_last(p, decode ? PREFILL : DECODE, HLG_NOTICE_PEER_REFUSED)->refusal.code, code);
        pair_close(p);
    }
}

static void a_failed_open_refuses_the_peer(void **state)
{
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};
    struct pair *p = pair_joined(NULL, NULL);
    struct hlg_action action;

    (void)state;
    make_hello(&hello.hello, HLG_ROLE_PREFILL);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &hello), 0);
    struct hlg_event opened = {.kind = HLG_EVENT_PEER_OPENED, .peer = {.status = -HLG_EIO}};
    assert_int_equal(pair_feed(p, DECODE, &opened), -HLG_ESTATE); /* nobody asked */
    assert_int_equal(hlg_decode_next(p->sides[DECODE].decode, 0, HLG_ACTION_PEER_OPEN, &action), 1);
    assert_int_equal(pair_feed(p, DECODE, &opened), 0);
    pair_expect(p, DECODE, "refused");
    assert_int_equal(pair_last(p, DECODE, HLG_NOTICE_PEER_REFUSED)->refusal.code,
                     HLG_REFUSAL_TRANSPORT);
    pair_close(p);
}

static void a_second_hello_ends_the_session(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};

    (void)state;
    make_hello(&hello.hello, HLG_ROLE_DECODE);
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &hello), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "down");
    pair_expect(p, DECODE, "down");
    pair_close(p);
}

static void a_new_hello_of_a_node_ends_its_older_session(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct pair_ask ask = {.tokens = 9};

    (void)state;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested");
    pair_connect(p, DECODE, PREFILL, 1, 1);
    pair_run(p);
    pair_expect(p, PREFILL, "down stopping(peer) fenced up");
    pair_expect(p, DECODE, "down failed(peer) returned up");
    assert_true(p->sides[PREFILL].notes[HLG_NOTE_SESSION_REPLACED] == 1);
    ask.peers[0] = 1;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    pair_close(p);
}

/* ---- messages out of place ---------------------------------------------------------------- */

static void messages_out_of_place_end_the_session(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind <= HLG_MESSAGE_BYE + 2; kind++) {
        for (uint32_t side = 0; side < 2; side++) {
            bool to_decode = kind == HLG_MESSAGE_ACCEPT || kind == HLG_MESSAGE_REJECT ||
                             kind == HLG_MESSAGE_FENCED || kind == HLG_MESSAGE_FAILED;
            bool to_prefill = kind == HLG_MESSAGE_CANCEL; /* a CREDIT must give something */
            bool stays = kind == HLG_MESSAGE_HEARTBEAT || kind == HLG_MESSAGE_DRAIN ||
                         (side == DECODE ? to_decode : to_prefill);
            struct pair *p = pair_simple(NULL);
            struct hlg_message message = {.kind = kind};
            assert_int_equal(pair_feed_message(p, side, 0, &message), 0);
            bool drained = side == DECODE && kind == HLG_MESSAGE_DRAIN;
            pair_expect(p, side, drained ? "draining" : stays ? "" : "down");
            pair_close(p);
        }
    }
}

static void nothing_but_hello_comes_before_hello(void **state)
{
    struct hlg_prefill_config config;

    (void)state;
    pair_config(&config);
    for (uint32_t kind = HLG_MESSAGE_REQUEST; kind <= HLG_MESSAGE_CREDIT; kind++) {
        for (uint32_t side = 0; side < 2; side++) {
            struct hlg_message message = {.kind = kind};
            struct pair *p = pair_joined(&config, &config);
            assert_int_equal(pair_feed_message(p, side, 0, &message), 0);
            pair_expect(p, side, "down");
            /* What is unread of an ended session is nothing. */
            assert_int_equal(pair_feed_message(p, side, 0, &message), 0);
            pair_expect(p, side, "");
            pair_close(p);
        }
    }
}

/* ---- leases ------------------------------------------------------------------------------- */

static void heartbeats_keep_an_idle_session_alive(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        pair_advance(p, 5 * HLG_NS_PER_S);
        pair_run(p);
    }
    pair_expect(p, DECODE, "");
    pair_expect(p, PREFILL, "");
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_HEARTBEAT], 40);
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_HEARTBEAT], 40);
    pair_close(p);
}

static void silence_beyond_the_lease_ends_the_session(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct pair_ask ask = {.tokens = 9};

    (void)state;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_serve(p, PREFILL, 1);
    p->hold_landing = true;
    pair_run(p);
    pair_expect(p, DECODE, "accepted");
    p->hold_frames = true;
    pair_advance(p, 30 * HLG_NS_PER_S - 1);
    pair_expect(p, DECODE, "");
    pair_advance(p, 1);
    pair_expect(p, DECODE, "down failed(peer)");
    pair_expect(p, PREFILL, "requested sent down");
    pair_close(p);
}

static void the_deadline_names_the_next_heartbeat_and_lease(void **state)
{
    struct pair *p = pair_simple(NULL);
    hlg_time begin = p->now;

    (void)state;
    pair_advance(p, 0);
    assert_int_equal(hlg_decode_deadline(p->sides[DECODE].decode), begin + 5 * HLG_NS_PER_S);
    p->hold_frames = true;
    for (uint32_t i = 0; i < 20; i++) {
        hlg_time due = hlg_decode_deadline(p->sides[DECODE].decode);
        if (due == HLG_TIME_NEVER) {
            break;
        }
        assert_true(due > p->now); /* or a driver would spin */
        pair_advance(p, due - p->now);
    }
    pair_expect(p, DECODE, "down");
    assert_int_equal(p->now, begin + 30 * HLG_NS_PER_S);
    pair_close(p);
}

/* ---- fence domains ------------------------------------------------------------------------ */

static void sessions_of_one_fence_domain_end_together(void **state)
{
    struct pair *p = pair_two_sources(NULL, 4, 4);

    (void)state;
    p->sides[DECODE].hold_close = true;
    assert_int_equal(pair_down(p, DECODE, 1), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down down");
    assert_true(p->sides[DECODE].ends[0].closing && p->sides[DECODE].ends[1].closing);
    pair_closed(p, DECODE, 0, 0);
    pair_closed(p, DECODE, 1, 0);
    pair_run(p);
    pair_expect(p, PREFILL, "down");
    pair_expect(p, OTHER, "down");
    pair_close(p);
}

static void sessions_of_other_fence_domains_go_on(void **state)
{
    struct pair *p = pair_two_sources(NULL, 4, 5);

    (void)state;
    assert_int_equal(pair_down(p, DECODE, 1), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down");
    pair_expect(p, PREFILL, "");
    pair_expect(p, OTHER, "down");
    pair_close(p);
}

/* Nothing was asked of it or written to it: its PEER_CLOSE leaves the domain open. */
static void a_peer_that_never_was_up_spares_its_domain(void **state)
{
    (void)state;
    for (uint32_t refused = 0; refused < 2; refused++) {
        struct pair *p = pair_two_sources(NULL, 4, 5);
        struct hlg_message message = {.kind =
                                          refused == 1 ? HLG_MESSAGE_HELLO : HLG_MESSAGE_REQUEST};
        struct hlg_event up = {.kind = HLG_EVENT_CHANNEL_UP, .peer = {.peer = 2, .domain = 4}};
        struct hlg_action action;
        assert_int_equal(pair_feed(p, DECODE, &up), 0);
        if (refused == 1) {
            make_hello(&message.hello, HLG_ROLE_DECODE); /* not a prefiller's */
        }
        assert_int_equal(pair_feed_message(p, DECODE, 2, &message), 0);
        pair_expect(p, DECODE, refused == 1 ? "refused" : "down");
        while (hlg_decode_next(p->sides[DECODE].decode, 0, HLG_ACTION_SEND | HLG_ACTION_PEER_CLOSE,
                               &action) != 0) {
        }
        assert_int_equal(action.kind, HLG_ACTION_PEER_CLOSE);
        assert_int_equal(action.close.peer, 2);
        assert_false(action.close.fence);
        pair_expect(p, DECODE, "");
        pair_close(p);
    }
}

static void a_peer_number_is_used_again_only_once_closed(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_event up = {.kind = HLG_EVENT_CHANNEL_UP};

    (void)state;
    p->sides[DECODE].hold_close = true;
    assert_int_equal(pair_down(p, DECODE, 0), 0);
    pair_run(p);
    assert_int_equal(pair_feed(p, DECODE, &up), -HLG_ESTATE);
    pair_closed(p, DECODE, 0, 0);
    pair_run(p);
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "down up");
    pair_close(p);
}

/* ---- draining, full channels -------------------------------------------------------------- */

static void a_draining_prefiller_gets_no_new_requests(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct pair_ask ask = {.tokens = 9};

    (void)state;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "requested");
    ask.page = 8;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0); /* crosses the DRAIN */
    assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_DRAIN), 0);
    assert_int_equal(pair_feed_kind(p, PREFILL, HLG_EVENT_DRAIN), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "");
    pair_expect(p, DECODE, "draining failed(rejected) returned");
    assert_true(pair_last(p, DECODE, HLG_NOTICE_FAILED)->retry_after_ns > 0);
    ask.page = 16;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), -HLG_EPEER);
    /* What was taken before is served. */
    pair_serve(p, PREFILL, 1);
    pair_run(p);
    pair_expect(p, DECODE, "accepted ready");
    assert_int_equal(hlg_prefill_open(p->sides[PREFILL].prefill), 0);
    pair_close(p);
}

static void a_full_channel_keeps_messages_in_order(void **state)
{
    struct hlg_event room = {.kind = HLG_EVENT_SEND_ROOM};
    struct pair *p = pair_simple(NULL);
    struct pair_ask ask = {.tokens = 5};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        ask.page = i;
        assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        p->sides[DECODE].ends[0].refuse_count = 1;
        pair_run(p);
        assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_REQUEST], 0);
        pair_expect(p, PREFILL, "");
        pair_run(p); /* not tried again before SEND_ROOM */
        assert_int_equal(p->sides[DECODE].ends[0].refuse_count, 0);
        assert_int_equal(pair_feed(p, DECODE, &room), 0);
    }
    pair_run(p);
    pair_expect(p, PREFILL, "requested requested requested");
    assert_int_equal(p->sides[PREFILL].asked.number, 3); /* an earlier one later ends the session */
    pair_close(p);
}

static void a_full_channel_does_not_block_another(void **state)
{
    struct pair *p = pair_two_sources(NULL, 0, 1);
    struct pair_ask ask = {.tokens = 5};

    (void)state;
    p->sides[DECODE].ends[0].refuse_count = 1;
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    ask = (struct pair_ask){.tokens = 5, .page = 1, .peers = {1}};
    assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
    pair_run(p);
    pair_expect(p, PREFILL, "");
    pair_expect(p, OTHER, "requested");
    pair_close(p);
}

static void too_many_waiting_messages_end_the_session(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.session = 1}};

    (void)state;
    p->hold_frames = true;
    p->sides[PREFILL].ends[0].refuse_count = 1;
    for (uint32_t i = 0; i < 200; i++) {
        cancel.answer.number = i;
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
        pair_run(p);
    }
    pair_expect(p, PREFILL, "down");
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_OUTBOX_FULL], 1);
    pair_close(p);
}

/* Two decoders that read nothing cannot take the places of a third one's messages, whoever floods first. */
static void floods_of_two_leave_the_third_its_messages(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_message cancel = {.kind = HLG_MESSAGE_CANCEL, .answer = {.session = 1}};
    uint32_t held = 0;

    (void)state;
    pair_config(&config);
    config.limits.reserve_percent = 50;
    struct pair *p = pair_joined(&config, &config);
    pair_join_other(p, HLG_ROLE_DECODE, &config, 1);
    pair_run(p);
    for (uint32_t peer = 0; peer < 2; peer++) {
        p->sides[PREFILL].ends[peer].refuse_count = 1;
    }
    /* the first stops short of its end, the second does not */
    for (uint32_t i = 1; i <= 30; i++) {
        cancel.answer.number = i;
        assert_int_equal(pair_feed_message(p, PREFILL, 0, &cancel), 0);
    }
    while (p->sides[PREFILL].notes[HLG_NOTE_OUTBOX_FULL] == 0) {
        cancel.answer.number++;
        assert_int_equal(pair_feed_message(p, PREFILL, 1, &cancel), 0);
        assert_true(++held < 200);
    }
    struct hlg_census census;
    hlg_prefill_census(p->sides[PREFILL].prefill, &census);
    assert_true(30 + held < census.messages_max - 4 * 3); /* the third's share is there still */
    pair_run(p);
    pair_expect(p, PREFILL, "up up down"); /* the second alone */
    pair_close(p);
}

static void a_disconnect_says_bye_and_closes(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_event event = {.kind = HLG_EVENT_DISCONNECT};

    (void)state;
    assert_int_equal(pair_feed(p, PREFILL, &event), 0);
    assert_int_equal(pair_feed(p, PREFILL, &event), 0); /* over already */
    pair_run(p);
    pair_expect(p, PREFILL, "down");
    pair_expect(p, DECODE, "down");
    assert_int_equal(p->sides[PREFILL].sent[HLG_MESSAGE_BYE], 1);
    assert_int_equal(p->sides[DECODE].sent[HLG_MESSAGE_BYE], 0);
    pair_close(p);
}

/* ---- limits ------------------------------------------------------------------------------- */

/* The n-th thing that makes a config unfit for machines; false when there are no more. */
static bool unfit(struct hlg_prefill_config *c, uint32_t n)
{
    struct hlg_limits *l = &c->limits;

    switch (n) {
    case 0:
        return c->layout.tp = 0, true;
    case 1:
        return c->rails = 0, true;
    case 2:
        return c->rails = l->rails_max + 1, true;
    case 3:
        return l->rails_max = HLG_RAILS_MAX + 1, true;
    case 4:
        return l->lanes_max = 0, true;
    case 5:
        return l->lanes_max = HLG_RANKS_MAX + 1, true;
    case 6:
        return l->requests_max = 0, true;
    case 7:
        return l->requests_max = HLG_SLOTS_MAX, true;
    case 8:
        return l->peers_max = 0, true;
    case 9:
        return l->reserve_percent = 101, true;
    case 10:
        return l->window_pieces = 1, true;
    default:
        return false;
    }
}

static size_t decode_size(const struct hlg_prefill_config *config)
{
    const struct hlg_decode_config decode = {
        .limits = config->limits, .layout = config->layout, .rails = config->rails};

    return hlg_decode_size(&decode);
}

/* No machine is made of limits that it could not keep: its size is 0. One step before, it is not. */
static void a_config_that_cannot_work_has_no_size(void **state)
{
    struct hlg_prefill_config config;
    uint32_t n = 0;

    (void)state;
    for (pair_config(&config); unfit(&config, n); pair_config(&config)) {
        assert_int_equal(hlg_prefill_size(&config), 0);
        assert_int_equal(decode_size(&config), 0);
        n++;
    }
    assert_int_equal(n, 11);
    uint32_t *own[] = {&config.limits.forwards_max, &config.limits.chunks_max,
                       &config.limits.ops_max};
    for (size_t i = 0; i < 3; i++) {
        pair_config(&config);
        *own[i] = 0;
        assert_int_equal(hlg_prefill_size(&config), 0);
        *own[i] = 1;
        assert_true(hlg_prefill_size(&config) > 0);
    }
    config.limits.turn_bytes = 0;
    assert_int_equal(hlg_prefill_size(&config), 0);
    pair_config(&config);
    for (uint32_t sources = 0; sources <= HLG_SOURCES_MAX + 1; sources++) {
        config.limits.sources_max = sources;
        assert_int_equal(decode_size(&config) > 0, sources >= 1 && sources <= HLG_SOURCES_MAX);
    }
}

/* ---- census ------------------------------------------------------------------------------- */

static void the_census_counts_what_is_in_use_and_nothing_at_rest(void **state)
{
    struct pair *p = pair_simple(NULL);
    struct hlg_census decode;
    struct hlg_census prefill;
    const struct pair_ask ask = {.tokens = 9};

    (void)state;
    for (uint32_t turn = 0; turn < 2; turn++) {
        hlg_decode_census(p->sides[DECODE].decode, &decode);
        hlg_prefill_census(p->sides[PREFILL].prefill, &prefill);
        assert_int_equal(decode.requests + decode.timers + decode.messages + decode.slots +
                             decode.slots_poisoned + decode.pages + decode.pages_poisoned,
                         0);
        assert_int_equal(prefill.requests + prefill.timers + prefill.messages + prefill.ops +
                             prefill.blocks + prefill.chunks + prefill.forwards,
                         0);
        assert_int_equal(decode.sessions, 1);
        assert_int_equal(prefill.sessions, 1);
        assert_int_equal(decode.slots_max, 8);
        assert_int_equal(decode.pages_max, 64);
        assert_int_equal(prefill.ops_max, 16);
        assert_int_equal(prefill.blocks_max, 16);
        assert_int_equal(prefill.chunks_max, 8);
        assert_int_equal(prefill.forwards_max, 4);
        assert_int_equal(prefill.requests_max, 4);
        assert_int_equal(pair_submit(p, DECODE, &ask, NULL), 0);
        hlg_decode_census(p->sides[DECODE].decode, &decode);
        assert_int_equal(decode.messages, 1);
        pair_run(p);
        p->hold_landing = true;
        p->hold_done = true;
        pair_serve(p, PREFILL, turn + 1);
        pair_run(p);
        hlg_decode_census(p->sides[DECODE].decode, &decode);
        hlg_prefill_census(p->sides[PREFILL].prefill, &prefill);
        assert_int_equal(decode.requests, 1);
        assert_int_equal(decode.slots, 1);
        assert_int_equal(decode.pages, 2);
        assert_int_equal(prefill.requests, 1);
        assert_int_equal(prefill.blocks, 1);
        assert_true(prefill.ops > 0);
        p->hold_landing = false;
        p->hold_done = false;
        pair_run(p);
        assert_int_equal(pair_feed_request(p, DECODE, HLG_EVENT_RELEASE,
                                           pair_last(p, DECODE, HLG_NOTICE_READY)->request),
                         0);
    }
    pair_close(p);
}

/* ---- ends of all kinds -------------------------------------------------------------------- */

/* Each side greets on its own channel first, and takes the other's HELLO on it for the newer one: both end,
 * as the other side says BYE. Nothing hangs, and one that dials again is UP. */
static void dials_that_cross_end_both_and_one_more_mends(void **state)
{
    struct pair *p = pair_joined(NULL, NULL);

    (void)state;
    p->prefill_dials = true;
    pair_connect(p, DECODE, PREFILL, 1, 1);
    p->prefill_dials = false;
    pair_run(p);
    assert_int_equal(p->sides[DECODE].notes[HLG_NOTE_SESSION_REPLACED], 1);
    assert_int_equal(p->sides[PREFILL].notes[HLG_NOTE_SESSION_REPLACED], 1);
    pair_expect(p, DECODE, "up down up down");
    pair_expect(p, PREFILL, "up down up down");
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up");
    pair_expect(p, PREFILL, "up");
    pair_close(p);
}

/* The older session's fence domain closes with it, and with the domain whoever is in it: also the new one,
 * which comes again. */
static void a_new_hello_in_the_older_sessions_domain_comes_again(void **state)
{
    struct pair *p = pair_simple(NULL);

    (void)state;
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "down down");
    pair_expect(p, PREFILL, "down down");
    pair_connect(p, DECODE, PREFILL, 0, 0);
    pair_run(p);
    pair_expect(p, DECODE, "up");
    pair_expect(p, PREFILL, "up");
    pair_close(p);
}

/* A BYE that gives a reason refuses only who is not up yet. */
static void a_bye_with_a_reason_ends_a_session_that_is_up(void **state)
{
    struct pair *p = pair_simple(NULL);
    const struct hlg_message bye = {.kind = HLG_MESSAGE_BYE,
                                    .bye = {.why = {.code = HLG_REFUSAL_TABLE}}};

    (void)state;
    assert_int_equal(pair_feed_message(p, DECODE, 0, &bye), 0);
    pair_run(p);
    pair_expect(p, DECODE, "down");
    pair_expect(p, PREFILL, "down");
    pair_close(p);
}

static void a_session_that_ends_while_it_opens_stays_ended(void **state)
{
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};
    struct pair *p = pair_joined(NULL, NULL);
    struct hlg_action action;

    (void)state;
    make_hello(&hello.hello, HLG_ROLE_PREFILL);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &hello), 0);
    assert_int_equal(hlg_decode_next(p->sides[DECODE].decode, 0, HLG_ACTION_PEER_OPEN, &action), 1);
    assert_int_equal(pair_down(p, DECODE, 0), 0);
    struct hlg_event opened = {.kind = HLG_EVENT_PEER_OPENED};
    assert_int_equal(pair_feed(p, DECODE, &opened), 0);
    pair_expect(p, DECODE, "down");
    pair_close(p);
}

/* ---- draining, told in any state ---------------------------------------------------------- */

static void draining_is_said_once_and_only_of_prefillers(void **state)
{
    const struct hlg_message drain = {.kind = HLG_MESSAGE_DRAIN};
    struct pair *p = pair_simple(NULL);

    (void)state;
    assert_int_equal(pair_feed_message(p, DECODE, 0, &drain), 0);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &drain), 0);
    pair_expect(p, DECODE, "draining");
    assert_int_equal(pair_feed_message(p, PREFILL, 0, &drain), 0);
    pair_expect(p, PREFILL, "");
    pair_close(p);
}

/* A DRAIN between HELLO and the opened endpoints is said once the session is up. */
static void a_drain_while_a_session_opens_is_said_when_it_is_up(void **state)
{
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};
    const struct hlg_message drain = {.kind = HLG_MESSAGE_DRAIN};
    struct pair *p = pair_joined(NULL, NULL);
    struct hlg_action action;

    (void)state;
    make_hello(&hello.hello, HLG_ROLE_PREFILL);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &hello), 0);
    assert_int_equal(pair_feed_message(p, DECODE, 0, &drain), 0);
    pair_expect(p, DECODE, "");
    assert_int_equal(hlg_decode_next(p->sides[DECODE].decode, 0, HLG_ACTION_PEER_OPEN, &action), 1);
    struct hlg_event opened = {.kind = HLG_EVENT_PEER_OPENED};
    assert_int_equal(pair_feed(p, DECODE, &opened), 0);
    pair_expect(p, DECODE, "up draining");
    pair_close(p);
}

/* A prefiller that dialled may have said HELLO before it was told to drain: then DRAIN follows. */
static void who_dialled_says_drain_once_the_session_is_up(void **state)
{
    struct hlg_prefill_config config;
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};
    struct hlg_event up = {.kind = HLG_EVENT_CHANNEL_UP, .peer = {.dialled = true}};
    struct hlg_event opened = {.kind = HLG_EVENT_PEER_OPENED};
    struct pair *p = pair_open();
    struct hlg_action action;

    (void)state;
    pair_config(&config);
    pair_add(p, HLG_ROLE_PREFILL, &config);
    struct hlg_prefill *prefill = p->sides[0].prefill;
    assert_int_equal(pair_feed(p, 0, &up), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_HELLO);
    assert_int_equal(action.send.message.hello.draining, 0);
    assert_int_equal(pair_feed_kind(p, 0, HLG_EVENT_DRAIN), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action), 0);
    make_hello(&hello.hello, HLG_ROLE_DECODE);
    assert_int_equal(pair_feed_message(p, 0, 0, &hello), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_PEER_OPEN, &action), 1);
    assert_int_equal(pair_feed(p, 0, &opened), 0);
    assert_int_equal(hlg_prefill_next(prefill, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_DRAIN);
    pair_close(p);
}

static void messages_of_no_peer_change_nothing(void **state)
{
    struct pair *p = pair_simple(NULL);
    const struct hlg_message bye = {.kind = HLG_MESSAGE_BYE};

    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_feed_message(p, side, 3, &bye), -HLG_EINVAL);
        assert_int_equal(pair_feed_message(p, side, HLG_NONE, &bye), -HLG_EINVAL);
        pair_expect(p, side, "");
    }
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_come_up_and_know_each_other),
        cmocka_unit_test(events_of_peers_that_do_not_exist_change_nothing),
        cmocka_unit_test(a_hello_that_does_not_fit_is_refused_with_a_reason),
        cmocka_unit_test(a_failed_open_refuses_the_peer),
        cmocka_unit_test(a_second_hello_ends_the_session),
        cmocka_unit_test(a_new_hello_of_a_node_ends_its_older_session),
        cmocka_unit_test(messages_out_of_place_end_the_session),
        cmocka_unit_test(nothing_but_hello_comes_before_hello),
        cmocka_unit_test(heartbeats_keep_an_idle_session_alive),
        cmocka_unit_test(silence_beyond_the_lease_ends_the_session),
        cmocka_unit_test(the_deadline_names_the_next_heartbeat_and_lease),
        cmocka_unit_test(sessions_of_one_fence_domain_end_together),
        cmocka_unit_test(sessions_of_other_fence_domains_go_on),
        cmocka_unit_test(a_peer_that_never_was_up_spares_its_domain),
        cmocka_unit_test(a_peer_number_is_used_again_only_once_closed),
        cmocka_unit_test(a_draining_prefiller_gets_no_new_requests),
        cmocka_unit_test(a_full_channel_keeps_messages_in_order),
        cmocka_unit_test(a_full_channel_does_not_block_another),
        cmocka_unit_test(too_many_waiting_messages_end_the_session),
        cmocka_unit_test(floods_of_two_leave_the_third_its_messages),
        cmocka_unit_test(a_disconnect_says_bye_and_closes),
        cmocka_unit_test(a_config_that_cannot_work_has_no_size),
        cmocka_unit_test(the_census_counts_what_is_in_use_and_nothing_at_rest),
        cmocka_unit_test(dials_that_cross_end_both_and_one_more_mends),
        cmocka_unit_test(a_new_hello_in_the_older_sessions_domain_comes_again),
        cmocka_unit_test(a_bye_with_a_reason_ends_a_session_that_is_up),
        cmocka_unit_test(a_session_that_ends_while_it_opens_stays_ended),
        cmocka_unit_test(draining_is_said_once_and_only_of_prefillers),
        cmocka_unit_test(a_drain_while_a_session_opens_is_said_when_it_is_up),
        cmocka_unit_test(who_dialled_says_drain_once_the_session_is_up),
        cmocka_unit_test(messages_of_no_peer_change_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
