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
#define SLOTS       8u /* requests_max * sources_max */
#define FENCE_NS    (10 * HLG_NS_PER_MS)

struct bench {
    struct hlg_decode *decode;
    void *memory;
    struct hlg_layout layout;
    hlg_time now;
    struct hlg_notice notices[NOTICES_MAX];
    uint32_t notice_count;
    struct hlg_request_message requests[PEERS]; /* last REQUEST to each peer */
    uint32_t request_count;                     /* REQUESTs to all */
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
        b->request_count++;
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
static void join_as(struct bench *b, uint32_t peer, uint32_t domain, uint64_t node,
                    uint64_t incarnation)
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
                                          .incarnation = incarnation,
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

static void join(struct bench *b, uint32_t peer, uint32_t domain, uint64_t node)
{
    join_as(b, peer, domain, node, node);
}

/* The same, as peer `rank` in the fence domain of that number, with a prefiller that hosts one rank of two. */
static void join_rank(struct bench *b, uint32_t rank, uint64_t node)
{
    b->layout.tp = 2;
    b->layout.rank_begin = rank;
    b->layout.rank_limit = rank + 1;
    join(b, rank, rank, node);
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

    join_rank(b, 0, 10);
    join_rank(b, 1, 11);
    assert_int_equal(submit(b, 0, 2, 0, 2), 0);
    close_peer(b, 0, -HLG_EIO);
    assert_int_equal(count_notices(b, HLG_NOTICE_FAILED), 1);
    join_rank(b, 0, 12);
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

/* The same, but the channel says that it is full when a CREDIT comes: it goes later, once, and says all. */
static void a_refused_credit_goes_once_and_says_all(void **state)
{
    struct bench *b = *state;
    struct hlg_action action;

    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 3), 0);
    struct hlg_event landed = {
        .kind = HLG_EVENT_IMM,
        .imm = {.imm = hlg_imm_make(b->requests[0].slot, b->requests[0].generation, 0),
                .pieces = 1,
                .immediates = 1}};
    assert_int_equal(hlg_decode_handle(b->decode, &landed), 0);
    assert_int_equal(hlg_decode_next(b->decode, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_CREDIT);
    assert_int_equal(
        tell(b, (struct hlg_event){.kind = HLG_EVENT_SEND_REFUSED, .peer = {.peer = 0}}), 0);
    assert_int_equal(tell(b, landed), 0);
    assert_int_equal(b->credits[0], 0);
    assert_int_equal(hlg_decode_handle(b->decode, &(struct hlg_event){.kind = HLG_EVENT_SEND_ROOM,
                                                                      .peer = {.peer = 0}}),
                     0);
    assert_int_equal(hlg_decode_next(b->decode, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_CREDIT);
    assert_int_equal(action.send.message.credit.entries[0].pieces, 2);
    assert_int_equal(hlg_decode_next(b->decode, 0, HLG_ACTION_SEND, &action), 0);
}

/* A session that is over is sent no CREDIT, and the one that has its number next starts at none. */
static void immediates_of_an_ended_session_are_credited_to_nobody(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 3), 0);
    struct hlg_request_message first = b->requests[0];
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_PEER_DOWN}), 0);
    immediate(b, &first, 0);
    assert_int_equal(b->credits[0], 0);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_PEER_CLOSED}), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 1);
    join(b, 0, 0, 10);
    immediate(b, &first, 0);
    assert_int_equal(b->credits[0], 0);
    assert_int_equal(submit(b, 0, 1, 0, 3), 0);
    immediate(b, &b->requests[0], 0);
    assert_int_equal(b->credits[0], 1);
}

/* Nor over another fence domain than the sender's: keys of a slot are no keys of its window. */
static void immediates_of_a_foreign_domain_count_for_nobody(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    join(b, 1, 1, 11);
    assert_int_equal(submit(b, 0, 1, 0, 1), 0);
    immediate(b, &b->requests[0], 1);
    assert_int_equal(count_notices(b, HLG_NOTICE_READY), 0);
    assert_int_equal(b->credits[0] + b->credits[1], 0);
    immediate(b, &b->requests[0], 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_READY), 1);
    assert_int_equal(b->credits[0], 1);
}

/* Two nodes may have drawn the same incarnation: the answer counts that comes from the peer asked. */
static void an_answer_of_a_peer_that_was_not_asked_is_ignored(void **state)
{
    struct bench *b = *state;
    struct hlg_message message = {.kind = HLG_MESSAGE_FENCED, .answer = {.incarnation = 10}};

    join(b, 0, 0, 10);
    join_as(b, 1, 1, 11, 10);
    assert_int_equal(submit(b, 0, 1, 0, 2), 0);
    message.answer.number = b->requests[0].number;
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                                .peer = {.peer = 1, .message = &message}}),
                     0);
    assert_int_equal(count_notices(b, HLG_NOTICE_FAILED), 0);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                                .request = hlg_decode_submitted(b->decode)}),
                     0);
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                                .peer = {.peer = 1, .message = &message}}),
                     0);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 0);
    answer(b, 0, HLG_MESSAGE_FENCED, 10);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 1);
}

/* The same node under the same number, but in a later session: it vouches for nothing of the older one,
 * whose domain could not be closed, and neither does the close of its own. */
static void a_later_session_vouches_for_nothing_of_a_lost_one(void **state)
{
    struct bench *b = *state;

    join_rank(b, 0, 10);
    join_rank(b, 1, 11);
    assert_int_equal(submit(b, 0, 2, 0, 2), 0);
    close_peer(b, 0, -HLG_EIO);
    join_rank(b, 0, 10);
    answer(b, 0, HLG_MESSAGE_FENCED, 10);
    close_peer(b, 0, 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 0);
    answer(b, 1, HLG_MESSAGE_FENCED, 11);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_POISONED), 1);
}

/* A REQUEST that waits in the outbox is dropped with its request, also when its slot is another's by now. */
static void only_the_live_request_goes_of_many_that_were_queued(void **state)
{
    struct bench *b = *state;
    static const uint32_t page;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = 1,
                                         .tokens = 2,
                                         .ttl_ns = HLG_TIME_NEVER,
                                         .groups = {{.count = 1, .pages = &page}}}};

    join(b, 0, 0, 10);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(hlg_decode_handle(b->decode, &event), 0);
        assert_int_equal(
            hlg_decode_handle(b->decode,
                              &(struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                                  .request = hlg_decode_submitted(b->decode)}),
            0);
    }
    assert_int_equal(tell(b, event), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), SLOTS);
    assert_int_equal(b->request_count, 1);
    assert_int_equal(b->requests[0].number, SLOTS + 1);
}

/* A channel that is full of one peer's messages is not taken for another's: what was pulled has left. */
static void a_refusal_of_another_peer_undoes_nothing(void **state)
{
    struct bench *b = *state;
    struct hlg_action action;
    static const uint32_t page;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = 1,
                                         .tokens = 2,
                                         .ttl_ns = HLG_TIME_NEVER,
                                         .groups = {{.count = 1, .pages = &page}}}};

    join(b, 0, 0, 10);
    join(b, 1, 1, 11);
    assert_int_equal(hlg_decode_handle(b->decode, &event), 0);
    assert_int_equal(hlg_decode_next(b->decode, 0, HLG_ACTION_SEND, &action), 1);
    assert_int_equal(action.send.message.kind, HLG_MESSAGE_REQUEST);
    assert_int_equal(
        tell(b, (struct hlg_event){.kind = HLG_EVENT_SEND_REFUSED, .peer = {.peer = 1}}), 0);
    assert_int_equal(b->request_count, 0); /* not pulled again */
    b->requests[0] = action.send.message.request;
    answer(b, 0, HLG_MESSAGE_REJECT, 10);
    assert_int_equal(count_notices(b, HLG_NOTICE_RETURNED), 1);
}

static void accepted_is_said_once_and_never_after_the_end(void **state)
{
    struct bench *b = *state;
    struct hlg_message accept = {.kind = HLG_MESSAGE_ACCEPT,
                                 .answer = {.incarnation = 10, .pieces = 2}};
    const struct hlg_event event = {.kind = HLG_EVENT_MESSAGE, .peer = {.message = &accept}};

    b->now = 1;
    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 2), 0);
    accept.answer.number = b->requests[0].number;
    assert_int_equal(tell(b, event), 0);
    assert_int_equal(tell(b, event), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_ACCEPTED), 1);
    assert_int_equal(submit(b, 0, 1, 1, 2), 0);
    accept.answer.number = b->requests[0].number;
    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                                .request = hlg_decode_submitted(b->decode)}),
                     0);
    assert_int_equal(tell(b, event), 0);
    assert_int_equal(count_notices(b, HLG_NOTICE_ACCEPTED), 1);
}

static void a_reject_says_why(void **state)
{
    struct bench *b = *state;
    static const uint32_t reasons[] = {HLG_REASON_PROTOCOL, HLG_REASON_REJECTED, HLG_REASON_PEER,
                                       99};
    struct hlg_message reject = {.kind = HLG_MESSAGE_REJECT,
                                 .answer = {.incarnation = 10, .retry_after_ns = 7}};

    join(b, 0, 0, 10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(submit(b, 0, 1, 0, 2), 0);
        reject.answer.number = b->requests[0].number;
        reject.answer.reason = reasons[i];
        assert_int_equal(
            tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE, .peer = {.message = &reject}}),
            0);
        const struct hlg_notice *failed = &b->notices[b->notice_count - 2];
        assert_int_equal(failed->kind, HLG_NOTICE_FAILED);
        assert_int_equal(failed->retry_after_ns, 7);
        assert_int_equal(failed->reason, i == 0 ? HLG_REASON_PROTOCOL : HLG_REASON_REJECTED);
    }
}

static void a_handle_of_an_earlier_use_is_stale(void **state)
{
    struct bench *b = *state;

    join(b, 0, 0, 10);
    assert_int_equal(submit(b, 0, 1, 0, 1), 0);
    hlg_handle first = hlg_decode_submitted(b->decode);
    struct hlg_event cancel = {.kind = HLG_EVENT_CANCEL, .request = first};
    assert_int_equal(tell(b, cancel), 0);
    answer(b, 0, HLG_MESSAGE_FENCED, 10);
    assert_int_equal(submit(b, 0, 1, 0, 1), 0);
    assert_int_equal((uint32_t)hlg_decode_submitted(b->decode), (uint32_t)first);
    assert_int_equal(tell(b, cancel), -HLG_ESTALE);
    cancel.request = UINT32_MAX;
    assert_int_equal(tell(b, cancel), -HLG_ESTALE);
    assert_int_equal(hlg_decode_open(b->decode), 1);
}

/* A message can only come of a session: the number of none is the driver's error. */
static void a_message_of_no_peer_changes_nothing(void **state)
{
    struct bench *b = *state;
    struct hlg_message message = {.kind = HLG_MESSAGE_BYE};

    assert_int_equal(tell(b, (struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                                .peer = {.peer = PEERS, .message = &message}}),
                     -HLG_EINVAL);
    assert_int_equal(b->notice_count, 0);
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
        BENCH_TEST(a_refused_credit_goes_once_and_says_all),
        BENCH_TEST(immediates_of_an_ended_session_are_credited_to_nobody),
        BENCH_TEST(immediates_of_a_foreign_domain_count_for_nobody),
        BENCH_TEST(an_answer_of_a_peer_that_was_not_asked_is_ignored),
        BENCH_TEST(a_later_session_vouches_for_nothing_of_a_lost_one),
        BENCH_TEST(only_the_live_request_goes_of_many_that_were_queued),
        BENCH_TEST(a_refusal_of_another_peer_undoes_nothing),
        BENCH_TEST(accepted_is_said_once_and_never_after_the_end),
        BENCH_TEST(a_reject_says_why),
        BENCH_TEST(a_handle_of_an_earlier_use_is_stale),
        BENCH_TEST(a_message_of_no_peer_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
