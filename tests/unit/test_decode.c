/*
 * The decode machine by itself, told of events that no sound network brings in this order: who loses
 * a session, who is given credit, and what is refused. The storm covers the rest.
 */
#include <halage/decode.h>
#include <halage/plan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES       16u
#define PEERS       3u
#define NOTICES_MAX 64u
#define FENCE_NS    (10 * HLG_NS_PER_MS)

struct bench {
    struct hlg_decode *decode;
    void *memory;
    struct hlg_layout layout;
    hlg_time now;
    struct hlg_notice notices[NOTICES_MAX];
    uint32_t notice_count;
    struct hlg_request_message requests[PEERS]; /* last REQUEST to each peer */
    uint64_t sessions[PEERS];                   /* serial of each peer's session */
    uint64_t credits[PEERS];                    /* CREDIT of rail 0, lane 0 */
};

static int bench_setup(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct hlg_decode_config config = {.rails = 1, .node = 1, .incarnation = 1};

    assert_non_null(b);
    b->layout = (struct hlg_layout){.tp = 1,
                                    .stages = 1,
                                    .pools = 1,
                                    .layers = 1,
                                    .stage_limit = {1},
                                    .rank_limit = 1,
                                    .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                                    .group_count = 1,
                                    .groups = {{.planes = 1,
                                                .heads = 2,
                                                .head_bytes = 2,
                                                .page_tokens = 1,
                                                .page_count = PAGES,
                                                .layers = {1}}}};
    hlg_limits_default(&config.limits);
    config.limits.peers_max = PEERS;
    config.limits.requests_max = 4;
    config.limits.sources_max = 2;
    config.limits.slices_max = 4;
    config.limits.window_pieces = 2;
    config.limits.fence_ns = FENCE_NS;
    config.limits.message_bytes_max = 512;
    config.layout = b->layout;
    b->memory = malloc(hlg_decode_size(&config));
    assert_non_null(b->memory);
    b->decode = hlg_decode_init(b->memory, &config);
    *state = b;
    return 0;
}

static int bench_teardown(void **state)
{
    struct bench *b = *state;

    free(b->memory);
    free(b);
    return 0;
}

static void carry_send(struct bench *b, const struct hlg_action_send *send)
{
    const struct hlg_message *message = &send->message;

    if (message->kind == HLG_MESSAGE_HELLO) {
        b->sessions[send->peer] = message->hello.session;
    } else if (message->kind == HLG_MESSAGE_REQUEST) {
        b->requests[send->peer] = message->request;
    } else if (message->kind == HLG_MESSAGE_CREDIT) {
        b->credits[send->peer] = message->credit.entries[0].pieces;
    }
}

/* An event, then all that the machine asks for; PEER_OPEN is carried out, PEER_CLOSE left to the
 * test. */
static int tell(struct bench *b, struct hlg_event event)
{
    struct hlg_action action;

    event.now = b->now;
    int result = hlg_decode_handle(b->decode, &event);
    while (hlg_decode_next(b->decode, 0, HLG_ACTIONS_NODE, &action) != 0) {
        if (action.kind == HLG_ACTION_SEND) {
            carry_send(b, &action.send);
        } else if (action.kind == HLG_ACTION_PEER_OPEN) {
            struct hlg_event opened = {
                .kind = HLG_EVENT_PEER_OPENED, .now = b->now, .peer = {.peer = action.peer}};
            assert_int_equal(hlg_decode_handle(b->decode, &opened), 0);
        } else if (action.kind == HLG_ACTION_NOTICE) {
            assert_true(b->notice_count < NOTICES_MAX);
            b->notices[b->notice_count++] = action.notice;
        }
    }
    assert_int_equal(hlg_decode_check(b->decode), 0);
    return result;
}

static uint32_t count_notices(const struct bench *b, uint32_t kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < b->notice_count; i++) {
        count += b->notices[i].kind == kind;
    }
    return count;
}

/* A session with prefiller `node`, under the unused number `peer`. */
static void join(struct bench *b, uint32_t peer, uint32_t domain, uint64_t node)
{
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO,
                                .hello = {.protocol_min = HLG_PROTOCOL_MIN,
                                          .protocol_max = HLG_PROTOCOL_MAX,
                                          .role = HLG_ROLE_PREFILL,
                                          .window_pieces = 2,
                                          .message_bytes_max = 512,
                                          .prompt_bytes_max = 512,
                                          .grant = {1000, 1000, 4096},
                                          .node = node,
                                          .incarnation = node,
                                          .session = 1,
                                          .layout = b->layout,
                                          .address_count = 1}};
    uint32_t up = count_notices(b, HLG_NOTICE_PEER_UP);

    assert_int_equal(
        tell(b, (struct hlg_event){.kind = HLG_EVENT_CHANNEL_UP,
                                   .peer = {.peer = peer, .domain = domain, .dialled = true}}),
        0);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                                .peer = {.peer = peer, .message = &hello}}),
                     0);
    assert_int_equal(count_notices(b, HLG_NOTICE_PEER_UP), up + 1);
}

/* Asks peers [first, first + count) for `pages` pages from page `page` on. */
static int submit(struct bench *b, uint32_t first, uint32_t count, uint32_t page, uint32_t pages)
{
    static uint32_t list[PAGES];
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = count,
                                         .tokens = pages + 1,
                                         .ttl_ns = HLG_TIME_NEVER,
                                         .groups = {{.count = pages, .pages = list}}}};

    for (uint32_t i = 0; i < pages; i++) {
        list[i] = (page + 2 * i) % PAGES; /* each page a run of its own */
    }
    for (uint32_t i = 0; i < count; i++) {
        event.submit.peers[i] = first + i;
    }
    return tell(b, event);
}

static void answer(struct bench *b, uint32_t peer, uint32_t kind, uint64_t incarnation)
{
    struct hlg_message message = {
        .kind = kind, .answer = {.number = b->requests[peer].number, .incarnation = incarnation}};

    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                                .peer = {.peer = peer, .message = &message}}),
                     0);
}

static void immediate(struct bench *b, const struct hlg_request_message *request, uint32_t domain)
{
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_IMM,
                                                .imm = {.imm = hlg_imm_make(request->slot,
                                                                            request->generation, 0),
                                                        .pieces = 1,
                                                        .immediates = 1,
                                                        .domain = domain}}),
                     0);
}

static void close_peer(struct bench *b, uint32_t peer, int32_t status)
{
    assert_int_equal(
        tell(b, (struct hlg_event){.kind = HLG_EVENT_PEER_DOWN, .peer = {.peer = peer}}), 0);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_PEER_CLOSED,
                                                .peer = {.peer = peer, .status = status}}),
                     0);
}

/* A source whose domain could not be closed for certain keeps its request waiting for the other one,
 * and its peer's number is given to a new peer meanwhile: not the one to end for lack of FENCED. */
static void a_lost_source_does_not_end_who_has_its_number_now(void **state)
{
    struct bench *b = *state;

    b->layout.tp = 2; /* of the prefillers, each of which hosts one rank */
    join(b, 0, 0, 10);
    b->layout.rank_begin = 1;
    b->layout.rank_limit = 2;
    join(b, 1, 1, 11);
    assert_int_equal(submit(b, 0, 2, 0, 2), 0);
    close_peer(b, 0, -HLG_EIO);
    assert_int_equal(count_notices(b, HLG_NOTICE_FAILED), 1);
    b->layout.rank_begin = 0;
    b->layout.rank_limit = 1;
    join(b, 0, 0, 12);
    b->now += FENCE_NS;
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_TIME}), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_PEER_DOWN), 2);
    assert_int_equal(b->notices[b->notice_count - 1].node, 11);
    assert_int_equal(
        tell(b, (struct hlg_event){.kind = HLG_EVENT_PEER_CLOSED, .peer = {.peer = 1}}), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_POISONED), 1);
}

/* An immediate too many names a slot, and no more: whose session asked for it is over. */
static void an_immediate_too_many_does_not_end_who_has_the_number_now(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 2), 0);
    immediate(b, &b->requests[0], 0);
    immediate(b, &b->requests[0], 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_READY), 1);
    close_peer(b, 0, 0);
    join(b, 0, 0, 12);
    immediate(b, &b->requests[0], 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_PEER_DOWN), 1);
}

/* FENCED and immediates go separate ways. What comes after FENCED is credited to its sender, not to
 * another peer of the fence domain, whose session an odd CREDIT would end. */
static void late_immediates_are_credited_to_their_sender(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    join(b, 1, 0, 11);
    assert_int_equal(submit(b, 1, 1, 0, 3), 0);
    struct hlg_request_message first = b->requests[1];
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                                .request = hlg_decode_submitted(b->decode)}),
                     0);
    answer(b, 1, HLG_MESSAGE_FENCED, 11);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 1);
    immediate(b, &first, 0);
    assert_int_equal(b->credits[0], 0);
    assert_int_equal(b->credits[1], 1);

    /* all slots once round: the first one is the other peer's now */
    do {
        assert_int_equal(submit(b, 0, 1, 0, 3), 0);
        assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                                    .request = hlg_decode_submitted(b->decode)}),
                         0);
        answer(b, 0, HLG_MESSAGE_FENCED, 10);
    } while (b->requests[0].slot != first.slot);
    immediate(b, &first, 0);
    assert_int_equal(b->credits[0], 0);
    assert_int_equal(b->credits[1], 2);
}

/* A stale immediate changes nothing: credit for what was never posted would end its sender's session. */
static void an_immediate_that_comes_again_is_not_credited_again(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 2), 0);
    struct hlg_request_message first = b->requests[0];
    immediate(b, &first, 0);
    immediate(b, &first, 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_READY), 1);
    assert_int_equal(b->credits[0], 2);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                                .request = hlg_decode_submitted(b->decode)}),
                     0);
    immediate(b, &first, 0);
    assert_int_equal(submit(b, 0, 1, 0, 2), 0);
    immediate(b, &b->requests[0], 0);
    assert_int_equal(b->credits[0], 3);
}

/* 512 bytes of frame: the driver could only end the session over more. */
static void a_request_beyond_a_frame_is_refused_at_once(void **state)
{
    struct bench *b = *state;
    static const uint8_t prompt[512];
    static const uint32_t page;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = 1,
                                         .tokens = 2,
                                         .ttl_ns = HLG_TIME_NEVER,
                                         .prompt = prompt,
                                         .prompt_bytes = sizeof prompt,
                                         .groups = {{.count = 1, .pages = &page}}}};

    join(b, 0, 0, 10);
    assert_int_equal(tell(b, event), -HLG_ELIMIT);
    event.submit.prompt_bytes = 400;
    assert_int_equal(tell(b, event), 0);
    assert_int_equal(b->requests[0].prompt_bytes, 400);
}

#define BENCH_TEST(test) cmocka_unit_test_setup_teardown(test, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BENCH_TEST(a_lost_source_does_not_end_who_has_its_number_now),
        BENCH_TEST(late_immediates_are_credited_to_their_sender),
        BENCH_TEST(an_immediate_that_comes_again_is_not_credited_again),
        BENCH_TEST(a_request_beyond_a_frame_is_refused_at_once),
        BENCH_TEST(an_immediate_too_many_does_not_end_who_has_the_number_now),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
