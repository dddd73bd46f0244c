/*
 * A peer that speaks well-formed frames and means harm: to a prefill node as a decoder, to a decode node as
 * a prefiller. Each case says what becomes of its session and of its own requests, and each ends with the
 * honest pair at work as if nothing had been. support/hostile.c looks at every byte that lands. At last,
 * frames changed at random: whatever they say, no crash, no foreign page, and honest requests go on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/hostile.h"
#include "core/note.h"
#include "driver/rng.h"

#define SETTLED   100000u
#define MUTATIONS 100000u

static int setup(void **state)
{
    *state = hostile_open(3);
    return 0;
}

static int teardown(void **state)
{
    hostile_close(*state);
    return 0;
}

/* ---- A decoder that means harm: HELLO ---- */

static void offset_beyond_region(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].offset = w->bytes - 1;
}

static void offset_that_wraps(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].offset = UINT64_MAX - 7;
}

static void stride_that_wraps(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].stride = UINT64_MAX / (HOSTILE_PAGES - 1) + 2;
}

static void stride_beyond_region(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].stride = w->bytes / (HOSTILE_PAGES - 2);
}

static void region_without_key(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].region = 1;
}

static void lane_of_nobody(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].lane = UINT32_MAX;
}

static void group_of_nobody(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].group = UINT32_MAX;
}

static void layer_of_nobody(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].layer = UINT32_MAX;
}

static void plane_of_nobody(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1].plane = UINT32_MAX;
}

static void place_twice(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->places[1] = w->places[0];
}

static void key_that_wraps(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->key.address = UINT64_MAX - w->bytes + 2;
}

static void key_of_nothing(struct hostile_world *w, struct hlg_message *m)
{
    (void)m;
    w->key.bytes = 0;
}

static void no_keys(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.key_count = 0;
}

static void no_window(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.window_pieces = 0;
}

static void other_role(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.role = 1 - m->hello.role;
}

static void no_common_version(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.protocol_min = 2;
    m->hello.protocol_max = 9;
}

static void pages_without_end(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.layout.groups[0].page_count = UINT32_MAX;
}

static void heads_without_end(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.layout.groups[0].heads = UINT32_MAX;
    m->hello.layout.groups[0].head_bytes = UINT32_MAX;
    m->hello.layout.groups[0].page_tokens = UINT32_MAX;
}

static void ranks_without_end(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.layout.tp = UINT32_MAX;
    m->hello.layout.pools = UINT32_MAX;
    m->hello.layout.rank_limit = UINT32_MAX;
}

static void layers_without_end(struct hostile_world *w, struct hlg_message *m)
{
    (void)w;
    m->hello.layout.layers = UINT32_MAX;
    m->hello.layout.stage_limit[0] = UINT32_MAX;
}

static void hellos_that_claim_too_much_are_refused(void **state)
{
    static void (*const spoils[])(struct hostile_world * w, struct hlg_message * m) = {
        offset_beyond_region,
        offset_that_wraps,
        stride_that_wraps,
        stride_beyond_region,
        region_without_key,
        lane_of_nobody,
        group_of_nobody,
        layer_of_nobody,
        plane_of_nobody,
        place_twice,
        key_that_wraps,
        key_of_nothing,
        no_keys,
        no_window,
        other_role,
        no_common_version,
        pages_without_end,
        heads_without_end,
        ranks_without_end,
        layers_without_end,
    };
    struct hostile_world *w = *state;
    struct hlg_place places[HOSTILE_PLACES];
    const struct hlg_region_key key = w->key;
    struct hlg_message hello;

    memcpy(places, w->places, sizeof places);
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        (void)hostile_submit(w, 13);
        hostile_dial(w, PREFILL);
        hostile_hello(w, PREFILL, &hello);
        spoils[i](w, &hello);
        const uint64_t byes = w->byes;
        assert_true(hostile_say(w, &hello));
        memcpy(w->places, places, sizeof places); /* on_landing() reads them */
        w->key = key;
        if (hostile_connected(w) || w->byes != byes + 1) {
            fail_msg("hello %zu was let in", i);
        }
        hostile_finish(w);
    }
    assert_int_equal(w->nodes[PREFILL].notices[HLG_NOTICE_PEER_UP], 1);
    assert_int_equal(w->landings[PEER], 0);
    hostile_join(w, PREFILL); /* and it works when it is good */
}

/* What comes before or beside the one HELLO. */
static void a_hello_comes_first_and_once(void **state)
{
    struct hostile_world *w = *state;
    struct hlg_message message;

    for (uint32_t kind = HLG_MESSAGE_REQUEST; kind < HLG_MESSAGE_BYE; kind++) {
        if (kind == HLG_MESSAGE_HEARTBEAT || kind == HLG_MESSAGE_DRAIN) {
            continue;
        }
        message = (struct hlg_message){.kind = kind, .answer = {.number = 1}};
        if (kind == HLG_MESSAGE_REQUEST) {
            hostile_request(1, 5, &message);
        } else if (kind == HLG_MESSAGE_CREDIT) {
            message.credit = (struct hlg_credit){0};
        }
        hostile_dial(w, PREFILL);
        assert_true(hostile_say(w, &message));
        assert_false(hostile_connected(w));
    }
    hostile_join(w, PREFILL);
    hostile_hello(w, PREFILL, &message);
    assert_true(hostile_say(w, &message));
    assert_false(hostile_connected(w));
    assert_true(w->nodes[PREFILL].notes[HLG_NOTE_MESSAGE_UNEXPECTED] >= 8);
    assert_int_equal(w->landings[PEER], 0);
}

/* Without a key anybody can say that it is a node that is connected: as after a restart, the older session
 * ends. Its requests fail and their pages come back; what the newcomer gets is its own alone. */
static void a_session_that_is_taken_over_ends_well(void **state)
{
    struct hostile_world *w = *state;
    struct hostile_node *decode = &w->nodes[DECODE];
    struct hlg_message message;

    w->nodes[PREFILL].deaf = true;
    for (uint32_t i = 0; i < 4; i++) {
        (void)hostile_submit(w, 13);
    }
    hostile_settle(w, SETTLED);
    w->nodes[PREFILL].deaf = false;
    for (uint32_t i = 0; i < 4; i++) {
        (void)hostile_submit(w, 40);
    }
    hostile_dial(w, PREFILL);
    hostile_hello(w, PREFILL, &message);
    message.hello.node = 1;
    message.hello.incarnation = 7;
    assert_true(hostile_say(w, &message));
    hostile_request(100, 5, &message);
    assert_true(hostile_say(w, &message));
    assert_true(hostile_connected(w));
    assert_int_equal(w->nodes[PREFILL].notes[HLG_NOTE_SESSION_REPLACED], 1);
    assert_int_equal(decode->notices[HLG_NOTICE_PEER_DOWN], 1);
    assert_true(decode->failed >= 4);
    assert_int_equal(decode->notices[HLG_NOTICE_RETURNED], decode->failed);
    assert_int_equal(decode->ready + decode->failed, 8);
    assert_int_equal(w->answers[HLG_MESSAGE_ACCEPT], 1);
    assert_int_equal(w->landings[PEER], 19);
}

/* ---- REQUEST ---- */

/* Makes a good REQUEST bad. */
struct spoiled_request {
    void (*spoil)(struct hlg_request_message *m);
    uint32_t answer; /* REJECT; ACCEPT when it concerns nobody else; 0: the session ends */
};

static uint32_t three_pages[3];
static const uint32_t far_context = HOSTILE_CONTEXTS;

static void set_pages(struct hlg_request_message *m, uint32_t a, uint32_t b, uint32_t c)
{
    three_pages[0] = a;
    three_pages[1] = b;
    three_pages[2] = c;
    m->groups[0].pages = three_pages;
}

static void page_beyond(struct hlg_request_message *m)
{
    set_pages(m, 5, 6, HOSTILE_PAGES);
}

static void page_at_the_end(struct hlg_request_message *m)
{
    set_pages(m, 5, 6, UINT32_MAX);
}

static void page_thrice(struct hlg_request_message *m)
{
    set_pages(m, 5, 5, 5);
}

static void context_beyond(struct hlg_request_message *m)
{
    m->groups[1].pages = &far_context;
}

static void pages_too_few(struct hlg_request_message *m)
{
    m->groups[0].count = 2;
}

static void first_that_wraps(struct hlg_request_message *m)
{
    m->groups[0].first = HLG_TOKENS_MAX - 3;
}

static void groups_too_few(struct hlg_request_message *m)
{
    m->group_count = 1;
}

static void groups_too_many(struct hlg_request_message *m)
{
    m->group_count = 3;
}

static void one_token(struct hlg_request_message *m)
{
    m->tokens = 1;
}

static void tokens_too_many(struct hlg_request_message *m)
{
    m->tokens = HLG_TOKENS_MAX;
}

static void pool_of_nobody(struct hlg_request_message *m)
{
    m->pool = UINT32_MAX;
}

static void replica_of_nobody(struct hlg_request_message *m)
{
    m->offset = UINT32_MAX;
}

static void pieces_too_many(struct hlg_request_message *m)
{
    m->pieces = UINT64_MAX;
}

static void no_time(struct hlg_request_message *m)
{
    m->ttl_ns = 0;
}

static void all_time(struct hlg_request_message *m)
{
    m->ttl_ns = UINT64_MAX;
}

static void a_number_again(struct hlg_request_message *m)
{
    m->number = 1;
}

static void requests_get_their_own_pages_only(void **state)
{
    static const struct spoiled_request cases[] = {
        {page_beyond, HLG_MESSAGE_REJECT},     {page_at_the_end, HLG_MESSAGE_REJECT},
        {page_thrice, HLG_MESSAGE_ACCEPT},     {context_beyond, HLG_MESSAGE_REJECT},
        {pages_too_few, HLG_MESSAGE_REJECT},   {first_that_wraps, HLG_MESSAGE_REJECT},
        {groups_too_few, HLG_MESSAGE_REJECT},  {groups_too_many, HLG_MESSAGE_REJECT},
        {one_token, HLG_MESSAGE_REJECT},       {tokens_too_many, HLG_MESSAGE_REJECT},
        {pool_of_nobody, HLG_MESSAGE_REJECT},  {replica_of_nobody, HLG_MESSAGE_REJECT},
        {pieces_too_many, HLG_MESSAGE_REJECT}, {no_time, HLG_MESSAGE_FAILED},
        {all_time, HLG_MESSAGE_ACCEPT},        {a_number_again, 0},
    };
    struct hostile_world *w = *state;
    struct hlg_message message;

    hostile_join(w, PREFILL);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t before[HLG_MESSAGE_BYE + 1];
        (void)hostile_submit(w, 13);
        hostile_request(i + 2, 5, &message);
        cases[i].spoil(&message.request);
        memcpy(before, w->answers, sizeof before);
        assert_true(hostile_say(w, &message));
        const bool open = hostile_connected(w);
        hostile_finish(w);
        if (open != (cases[i].answer != 0) ||
            (open && w->answers[cases[i].answer] != before[cases[i].answer] + 1)) {
            fail_msg("request %u: answered otherwise", i);
        }
    }
    assert_true(w->landings[PEER] > 0); /* the good ones */
}

/* A thousand requests of a peer that heeds no grant, and stays. What is beyond its grant or its share is refused
 * one by one; others are served all the while. */
static void a_flood_of_requests_leaves_room_for_others(void **state)
{
    struct hostile_world *w = *state;
    struct hlg_message message;

    hostile_join(w, PREFILL);
    w->nodes[PREFILL].deaf_to_peer = true; /* what it asks for stays open */
    for (uint32_t i = 0; i < 1000; i++) {
        hostile_request(i + 1, 5, &message);
        assert_true(hostile_say(w, &message));
        hostile_settle(w, 64);
        if (i % 100 == 50) {
            (void)hostile_submit(w, 30);
            hostile_finish(w);
        }
    }
    assert_true(hostile_connected(w));
    const uint32_t open = hlg_pump_open(w->nodes[PREFILL].pump);
    print_message("%u of 16 requests are the peer's, %u were rejected\n", open,
                  (unsigned)w->answers[HLG_MESSAGE_REJECT]);
    assert_true(open > 0 && open < 16);
    assert_int_equal(w->answers[HLG_MESSAGE_REJECT], 1000 - open);
    assert_true(w->nodes[PREFILL].notes[HLG_NOTE_GRANT_EXCEEDED] > 0);
    for (uint32_t i = 0; i < 4; i++) { /* two at a time: the share that is kept for it */
        (void)hostile_submit(w, 30);
        (void)hostile_submit(w, 30);
        hostile_finish(w);
    }
    assert_int_equal(w->nodes[DECODE].ready, 18);
}

/* ---- Messages on what is not the peer's ---- */

static void cancels_of_other_requests_do_nothing(void **state)
{
    struct hostile_world *w = *state;
    struct hlg_message message;

    hostile_join(w, PREFILL);
    w->nodes[PREFILL].deaf = true; /* the requests stay open */
    for (uint32_t i = 0; i < 8; i++) {
        (void)hostile_submit(w, 13);
    }
    hostile_settle(w, SETTLED);
    assert_int_equal(hlg_pump_open(w->nodes[PREFILL].pump), 8);
    for (uint64_t number = 1; number < 40; number++) {
        for (uint64_t session = 0; session < 3; session++) {
            message = (struct hlg_message){
                .kind = HLG_MESSAGE_CANCEL,
                .answer = {.number = number, .incarnation = 7, .session = session}};
            assert_true(hostile_say(w, &message));
            hostile_settle(w, 4);
        }
    }
    assert_true(hostile_connected(w));
    assert_int_equal(w->nodes[PREFILL].notes[HLG_NOTE_CANCEL_UNKNOWN], 39 * 3);
    assert_int_equal(w->nodes[PREFILL].notices[HLG_NOTICE_STOPPING], 0);
    assert_int_equal(hlg_pump_open(w->nodes[PREFILL].pump), 8);
    assert_int_equal(w->nodes[DECODE].failed, 0);
}

static void credits_that_lie_end_the_session(void **state)
{
    static const struct hlg_credit_entry lies[] = {
        {0, 0, 1}, {0, 0, UINT64_MAX}, {1, 0, 0}, {UINT32_MAX, 0, 0}, {0, 2, 0}, {0, UINT32_MAX, 0},
    };
    struct hostile_world *w = *state;

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        hostile_join(w, PREFILL);
        (void)hostile_submit(w, 13);
        const struct hlg_message message = {.kind = HLG_MESSAGE_CREDIT,
                                            .credit = {.count = 1, .entries = &lies[i]}};
        assert_true(hostile_say(w, &message));
        if (hostile_connected(w)) {
            fail_msg("credit %zu was believed", i);
        }
        hostile_finish(w);
    }
}

static void what_a_decoder_does_not_say_ends_the_session(void **state)
{
    static const uint32_t kinds[] = {HLG_MESSAGE_ACCEPT, HLG_MESSAGE_REJECT, HLG_MESSAGE_FENCED,
                                     HLG_MESSAGE_FAILED};
    struct hostile_world *w = *state;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        hostile_join(w, PREFILL);
        (void)hostile_submit(w, 13);
        const struct hlg_message message = {.kind = kinds[i],
                                            .answer = {.number = 1, .incarnation = 7}};
        assert_true(hostile_say(w, &message));
        assert_false(hostile_connected(w));
        hostile_finish(w);
    }
}

/* ---- A prefiller that means harm ---- */

static void answers_to_other_requests_do_nothing(void **state)
{
    static const uint32_t kinds[] = {HLG_MESSAGE_ACCEPT, HLG_MESSAGE_REJECT, HLG_MESSAGE_FENCED,
                                     HLG_MESSAGE_FAILED};
    struct hostile_world *w = *state;

    hostile_join(w, DECODE);
    w->nodes[PREFILL].deaf = true;
    for (uint32_t i = 0; i < 8; i++) {
        (void)hostile_submit(w, 13);
    }
    hostile_settle(w, SETTLED);
    for (uint64_t number = 1; number < 40; number++) {
        for (uint32_t i = 0; i < 8; i++) {
            struct hlg_message message = {
                .kind = kinds[i % 4],
                .answer = {.number = number, .incarnation = i < 4 ? 7 : 0x5a5a5a5a5a5aull}};
            message.answer.pieces = message.kind == HLG_MESSAGE_REJECT ? 0 : 3;
            assert_true(hostile_say(w, &message));
            hostile_settle(w, 4);
        }
    }
    assert_true(hostile_connected(w));
    assert_int_equal(w->nodes[DECODE].notes[HLG_NOTE_ANSWER_FOREIGN], 8 * 8);
    assert_int_equal(w->nodes[DECODE].notes[HLG_NOTE_ANSWER_UNKNOWN], 31 * 8);
    assert_int_equal(w->nodes[DECODE].failed, 0);
}

static void what_a_prefiller_does_not_say_ends_the_session(void **state)
{
    struct hostile_world *w = *state;
    struct hlg_message message;

    for (uint32_t i = 0; i < 3; i++) {
        hostile_join(w, DECODE);
        (void)hostile_submit(w, 13);
        hostile_request(1, 5, &message);
        if (i == 1) {
            message = (struct hlg_message){.kind = HLG_MESSAGE_CANCEL, .answer = {.number = 1}};
        } else if (i == 2) {
            message = (struct hlg_message){.kind = HLG_MESSAGE_CREDIT};
        }
        assert_true(hostile_say(w, &message));
        assert_false(hostile_connected(w));
        hostile_finish(w);
    }
    assert_int_equal(w->landings[PREFILL], 0);
}

/* The peer has keys of its own fence domain of the decoder, and makes immediates up that are another
 * prefiller's. Its bytes land where its keys reach; but they count for nothing, and no credit is told. */
static void immediates_of_other_domains_do_not_count(void **state)
{
    struct hostile_world *w = *state;
    struct hlg_pump_stats stats;

    hostile_join(w, DECODE);
    w->nodes[PREFILL].deaf = true;
    (void)hostile_submit(w, 13); /* 19 pieces */
    hostile_settle(w, SETTLED);
    for (uint32_t slot = 0; slot < 4; slot++) {
        for (uint32_t generation = 0; generation < 2; generation++) {
            for (uint32_t i = 0; i < 19; i++) {
                hostile_write(w, hlg_imm_make(slot, generation, 0));
            }
        }
    }
    hostile_settle(w, SETTLED);
    hlg_pump_stats(w->nodes[DECODE].pump, &stats);
    assert_int_equal(stats.pieces_counted, 4 * 2 * 19);
    assert_true(w->nodes[DECODE].notes[HLG_NOTE_IMM_UNKNOWN] >= 19);
    assert_int_equal(w->nodes[DECODE].ready, 0);
    assert_int_equal(w->nodes[DECODE].failed, 0);
    assert_int_equal(w->nodes[DECODE].notes[HLG_NOTE_SESSION_DOWN], 0);
}

/* ---- Frames changed at random ---- */

/* Nineteen of twenty are what such a peer may say, or it would not get far. */
static uint32_t draw_kind(struct hlg_rng *rng, uint32_t node)
{
    static const uint32_t kinds[2][8] = {
        [DECODE] = {HLG_MESSAGE_ACCEPT, HLG_MESSAGE_ACCEPT, HLG_MESSAGE_REJECT, HLG_MESSAGE_FENCED,
                    HLG_MESSAGE_FENCED, HLG_MESSAGE_FAILED, HLG_MESSAGE_HEARTBEAT,
                    HLG_MESSAGE_DRAIN},
        [PREFILL] = {HLG_MESSAGE_REQUEST, HLG_MESSAGE_REQUEST, HLG_MESSAGE_REQUEST,
                     HLG_MESSAGE_REQUEST, HLG_MESSAGE_CANCEL, HLG_MESSAGE_CANCEL,
                     HLG_MESSAGE_CREDIT, HLG_MESSAGE_HEARTBEAT},
    };

    return hlg_rng_chance(rng, 50000) ? 1 + (uint32_t)hlg_rng_below(rng, HLG_MESSAGE_BYE)
                                      : kinds[node][hlg_rng_below(rng, 8)];
}

static uint32_t draw_frame(struct hostile_world *w, struct hlg_rng *rng, uint32_t node,
                           uint64_t number, uint8_t frame[8192])
{
    static const struct hlg_credit_entry entry = {0, 0, 0};
    struct hlg_message message = {.kind = draw_kind(rng, node)};

    if (w->channel == NULL) {
        hostile_dial(w, node);
        message.kind = HLG_MESSAGE_HELLO;
    }
    if (message.kind == HLG_MESSAGE_HELLO) {
        hostile_hello(w, node, &message);
    } else if (message.kind == HLG_MESSAGE_REQUEST) {
        hostile_request(number, (uint32_t)hlg_rng_below(rng, HOSTILE_PAGES - 3), &message);
    } else if (message.kind == HLG_MESSAGE_CREDIT) {
        message.credit = (struct hlg_credit){.count = 1, .entries = &entry};
    } else if (message.kind != HLG_MESSAGE_BYE) {
        message.answer.number = number - hlg_min_u64(number - 1, hlg_rng_below(rng, 64));
        message.answer.incarnation = 7;
    }
    const int64_t bytes = hlg_wire_encode(&message, frame, 8192);
    assert_true(bytes > 0);
    return (uint32_t)bytes;
}

/* Most changes leave the length alone, so that they get past the channel. */
static void change(struct hlg_rng *rng, uint8_t *frame, uint32_t bytes)
{
    const uint32_t changes = (uint32_t)hlg_rng_below(rng, 3);

    for (uint32_t i = 0; i < changes; i++) {
        const uint32_t begin = hlg_rng_chance(rng, 20000) ? 4 : HLG_WIRE_HEADER_BYTES;
        if (bytes <= begin) {
            continue;
        }
        uint8_t *at = &frame[begin + hlg_rng_below(rng, bytes - begin)];
        switch (hlg_rng_below(rng, 4)) {
        case 0:
            *at ^= (uint8_t)(1u << hlg_rng_below(rng, 8));
            break;
        case 1:
            *at = 0xff;
            break;
        case 2:
            *at = (uint8_t)(*at + 1);
            break;
        default:
            *at = (uint8_t)hlg_rng_below(rng, 256);
            break;
        }
    }
}

static void mutate(struct hostile_world *w, uint32_t node, uint64_t seed, uint32_t count)
{
    struct hlg_rng rng = hlg_rng_seed(seed);
    uint8_t frame[8192];
    uint64_t submitted = 0;
    uint32_t sessions = 0;

    for (uint32_t i = 0; i < count; i++) {
        const bool first = w->channel == NULL;
        const uint32_t bytes = draw_frame(w, &rng, node, i + 1, frame);
        if (!first || hlg_rng_chance(&rng, 300000)) {
            change(&rng, frame, bytes);
        }
        sessions += first;
        (void)hostile_say_bytes(w, frame, bytes);
        if (first || i % 4 == 3) {
            hostile_settle(w, 64);
        }
        if (i % 500 == 0) {
            hostile_finish(w);
            (void)hostile_submit(w, 2 + (uint32_t)hlg_rng_below(&rng, 40));
            submitted++;
        }
    }
    hostile_finish(w);
    assert_int_equal(w->nodes[DECODE].ready, submitted);
    struct hlg_pump_stats stats;
    hlg_pump_stats(w->nodes[node].pump, &stats);
    print_message(
        "%u frames, %u received, %u sessions, %u malformed, %u requests, %u pieces for "
        "the peer\n",
        count, (unsigned)stats.frames_received, sessions, (unsigned)stats.frames_malformed,
        (unsigned)w->nodes[PREFILL].notices[HLG_NOTICE_REQUESTED], (unsigned)w->landings[PEER]);
    assert_true(stats.frames_malformed > 0);
    assert_true(stats.frames_received > count / 2);
}

static void changed_frames_do_a_prefiller_no_harm(void **state)
{
    struct hostile_world *w = *state;

    mutate(w, PREFILL, 21, MUTATIONS);
    assert_true(w->landings[PEER] > 0);
}

static void changed_frames_do_a_decoder_no_harm(void **state)
{
    mutate(*state, DECODE, 22, MUTATIONS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hellos_that_claim_too_much_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_hello_comes_first_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_that_is_taken_over_ends_well, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_get_their_own_pages_only, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_requests_leaves_room_for_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(cancels_of_other_requests_do_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(credits_that_lie_end_the_session, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_decoder_does_not_say_ends_the_session, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(answers_to_other_requests_do_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_prefiller_does_not_say_ends_the_session, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(immediates_of_other_domains_do_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(changed_frames_do_a_prefiller_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(changed_frames_do_a_decoder_no_harm, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
