#include "session.h"
#include "census.h"

#define OUT_RESERVE_PERCENT 50u  /* of the outbox, in equal parts for each peer */
#define NOTES_KEPT          256u /* of the ring, for notes that are no steps */

static void free_outgoing(struct sessions *s, uint32_t index)
{
    s->out[index].next = s->out_free;
    s->out_free = index;
    s->out_free_count++;
}

static uint32_t index_of(const struct sessions *s, const struct session *peer)
{
    return (uint32_t)(peer - s->peers);
}

/* An entry of a peer is free. */
static void give_outgoing(struct sessions *s, const struct session *peer, uint32_t index)
{
    if (s->out[index].shared) {
        shares_give(&s->out_shares, index_of(s, peer), 1);
    }
    free_outgoing(s, index);
}

bool sessions_fit(const struct hlg_limits *limits, const struct hlg_layout *layout, uint32_t rails)
{
    struct hlg_refusal why;

    return hlg_layout_check(layout, &why) == 0 && rails >= 1 && rails <= limits->rails_max &&
           limits->rails_max <= HLG_RAILS_MAX && hlg_layout_lanes(layout) <= limits->lanes_max &&
           limits->lanes_max <= HLG_RANKS_MAX && limits->requests_max >= 1 &&
           limits->requests_max < HLG_SLOTS_MAX && limits->peers_max >= 1 &&
           limits->reserve_percent <= 100 && limits->window_pieces >= 2;
}

/* What a prefiller grants each decoder: as the limits say, else what one can have of the tables. */
static struct hlg_load grant_of(const struct hlg_limits *limits)
{
    uint32_t percent = limits->reserve_percent;
    uint32_t requests = shares_most(limits->requests_max, limits->peers_max, percent);
    uint32_t blocks = shares_most(limits->blocks_max, limits->peers_max, percent);
    struct hlg_load grant = {.requests = limits->grant_requests,
                             .pages = limits->grant_pages,
                             .prompt_bytes = limits->grant_prompt_bytes};

    if (grant.requests == 0) {
        grant.requests = requests;
    }
    if (grant.pages == 0) {
        grant.pages = (uint64_t)blocks * HLG_BLOCK_PAGES;
    }
    if (grant.prompt_bytes == 0) {
        grant.prompt_bytes = (uint64_t)requests * limits->prompt_bytes_max;
    }
    return grant;
}

void sessions_init(struct sessions *s, struct carve *c, const struct session_config *config)
{
    const struct hlg_limits *limits = config->limits;
    uint32_t out_max = 4 * limits->requests_max + 16 * limits->peers_max;
    uint32_t notices_max = 4 * limits->requests_max + 4 * limits->peers_max;
    struct session *peers = carve_array(c, limits->peers_max, sizeof *peers);
    struct outgoing *out = carve_array(c, out_max, sizeof *out);
    struct hlg_notice *notices = carve_array(c, notices_max, sizeof *notices);
    uint32_t notes_max = NOTES_KEPT + 4 * limits->requests_max + 4 * limits->peers_max;
    struct hlg_note *notes = carve_array(c, notes_max, sizeof *notes);
    struct hlg_slice *slices =
        carve_array(c, (size_t)limits->peers_max * limits->slices_max, sizeof *slices);
    struct shares out_shares = {0};
    uint64_t *waiting = carve_array(c, bits_words(limits->peers_max), sizeof *waiting);
    struct timers due = {0};

    /* The last entries are kept for the sessions' own messages. */
    shares_init(&out_shares, c, out_max - 4 * limits->peers_max, limits->peers_max,
                OUT_RESERVE_PERCENT);
    timers_init(&due, c, limits->peers_max);
    if (c->base == NULL) {
        return;
    }
    *s = (struct sessions){.due = due,
                           .limits = limits,
                           .layout = config->layout,
                           .fingerprint = config->fingerprint,
                           .role = config->role,
                           .node = config->node,
                           .incarnation = config->incarnation,
                           .grant = grant_of(limits),
                           .peers = peers,
                           .out = out,
                           .out_max = out_max,
                           .out_free = HLG_NONE,
                           .out_shares = out_shares,
                           .sending = HLG_NONE,
                           .waiting = waiting,
                           .notices = notices,
                           .notices_max = notices_max,
                           .notes = notes,
                           .notes_max = notes_max};
    for (uint32_t i = out_max; i > 0; i--) {
        free_outgoing(s, i - 1);
    }
    for (uint32_t i = 0; i < limits->peers_max; i++) {
        peers[i].slices = slices + (size_t)i * limits->slices_max;
        peers[i].out_head = HLG_NONE;
        peers[i].out_tail = HLG_NONE;
    }
}

struct hlg_notice *sessions_notice(struct sessions *s, uint32_t kind, uint32_t peer)
{
    /* The driver pulls all notices after each event, so that one event's fit. */
    HLG_ASSERT(s->notice_count < s->notices_max);
    struct hlg_notice *notice = &s->notices[(s->notice_begin + s->notice_count) % s->notices_max];
    s->notice_count++;
    memset(notice, 0, sizeof *notice);
    notice->kind = kind;
    notice->peer = peer;
    notice->noticed = s->now;
    return notice;
}

void sessions_note(struct sessions *s, uint32_t code, uint32_t peer, uint64_t a, uint64_t b,
                   uint64_t c)
{
    const bool step = code >= HLG_NOTE_STEP_FIRST;
    const uint32_t room = s->notes_max - s->note_count;

    HLG_ASSERT(code != HLG_NOTE_NONE && code < HLG_NOTE_COUNT);
    if (room <= (step ? NOTES_KEPT : 0)) {
        s->notes_lost += !step;
        s->steps_lost += step;
        return;
    }
    s->notes[(s->note_begin + s->note_count) % s->notes_max] =
        (struct hlg_note){.code = code, .peer = peer, .a = a, .b = b, .c = c};
    s->note_count++;
}

bool sessions_up(const struct sessions *s, uint32_t peer)
{
    return peer < s->limits->peers_max && s->peers[peer].state == SESSION_UP;
}

/* The steps that are a message of ours; HLG_NOTE_NONE for the others. */
static uint32_t step_of(uint32_t kind)
{
    switch ((enum hlg_message_kind)kind) {
    case HLG_MESSAGE_HELLO:
        return HLG_NOTE_STEP_HELLO_SENT;
    case HLG_MESSAGE_REQUEST:
        return HLG_NOTE_STEP_REQUEST_SENT;
    case HLG_MESSAGE_CANCEL:
        return HLG_NOTE_STEP_CANCEL_SENT;
    case HLG_MESSAGE_FENCED:
        return HLG_NOTE_STEP_FENCED_SENT;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_FAILED:
    case HLG_MESSAGE_CREDIT:
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
    case HLG_MESSAGE_BYE:
        break;
    }
    return HLG_NOTE_NONE;
}

/* The pulled message left: its entry is free. */
static void sent(struct sessions *s)
{
    if (s->sending == HLG_NONE) {
        return;
    }
    struct session *peer = &s->peers[s->sending];
    uint32_t index = peer->out_head;
    HLG_ASSERT(index != HLG_NONE && peer->out_count > 0);
    const struct outgoing *out = &s->out[index];
    uint32_t step = step_of(out->kind);
    if (step != HLG_NOTE_NONE) {
        bool hello = out->kind == HLG_MESSAGE_HELLO;
        sessions_note(s, step, s->sending, hello ? peer->serial : out->answer.number,
                      out->answer.pieces, 0);
    }
    peer->out_head = s->out[index].next;
    if (peer->out_head == HLG_NONE) {
        peer->out_tail = HLG_NONE;
        bits_clear(s->waiting, index_of(s, peer));
    }
    peer->out_count--;
    give_outgoing(s, peer, index);
    peer->sent = s->now; /* the peer will hear from us later */
    s->sending = HLG_NONE;
}

void sessions_begin(struct sessions *s, const struct hlg_event *event)
{
    HLG_ASSERT(event->now >= s->now);
    s->now = event->now;
    if (event->kind == HLG_EVENT_SEND_REFUSED && s->sending != HLG_NONE &&
        event->peer.peer == s->sending) {
        s->peers[s->sending].send_full = true;
        s->sending = HLG_NONE;
    }
    sent(s);
    if (event->kind == HLG_EVENT_SEND_ROOM && event->peer.peer < s->limits->peers_max) {
        s->peers[event->peer.peer].send_full = false;
    }
}

static void drop_outgoing(struct sessions *s, struct session *peer)
{
    HLG_ASSERT(s->sending == HLG_NONE || &s->peers[s->sending] != peer);
    while (peer->out_head != HLG_NONE) {
        uint32_t index = peer->out_head;
        peer->out_head = s->out[index].next;
        give_outgoing(s, peer, index);
    }
    peer->out_tail = HLG_NONE;
    peer->out_count = 0;
    bits_clear(s->waiting, index_of(s, peer));
}

static void append(struct sessions *s, struct session *peer, const struct outgoing *message)
{
    uint32_t index = s->out_free;

    HLG_ASSERT(index != HLG_NONE);
    s->out_free = s->out[index].next;
    s->out_free_count--;
    s->out[index] = *message;
    s->out[index].next = HLG_NONE;
    if (peer->out_tail == HLG_NONE) {
        peer->out_head = index;
    } else {
        s->out[peer->out_tail].next = index;
    }
    peer->out_tail = index;
    peer->out_count++;
    bits_set(s->waiting, index_of(s, peer));
}

void sessions_send(struct sessions *s, uint32_t index, const struct outgoing *message)
{
    struct session *peer = &s->peers[index];

    if (peer->state == SESSION_FREE || peer->state == SESSION_CLOSING) {
        return;
    }
    /* One that lets its messages pile up leaves the others theirs. */
    if (peer->out_count > s->out_max / 2 || !shares_take(&s->out_shares, index, 1)) {
        sessions_note(s, HLG_NOTE_OUTBOX_FULL, index, peer->out_count, 0, 0);
        sessions_end(s, index, SESSION_END_OUTBOX, -HLG_ELIMIT);
        return;
    }
    struct outgoing shared = *message;
    shared.shared = true;
    append(s, peer, &shared);
}

bool sessions_take_back(struct sessions *s, uint32_t index, uint32_t slot, struct hlg_load *load)
{
    struct session *peer = &s->peers[index];
    uint32_t before = HLG_NONE;
    uint32_t at = peer->out_head;

    HLG_ASSERT(s->sending != index);
    while (at != HLG_NONE && (s->out[at].kind != HLG_MESSAGE_REQUEST || s->out[at].slot != slot)) {
        before = at;
        at = s->out[at].next;
    }
    if (at == HLG_NONE) {
        return false;
    }
    *load = s->out[at].load;
    if (before == HLG_NONE) {
        peer->out_head = s->out[at].next;
    } else {
        s->out[before].next = s->out[at].next;
    }
    peer->out_tail = peer->out_tail == at ? before : peer->out_tail;
    peer->out_count--;
    if (peer->out_count == 0) {
        bits_clear(s->waiting, index);
    }
    give_outgoing(s, peer, at);
    return true;
}

void sessions_drain(struct sessions *s)
{
    s->draining = true;
    for (uint32_t i = 0; i < s->limits->peers_max; i++) {
        if (s->peers[i].state == SESSION_UP) {
            sessions_send(s, i, &(struct outgoing){.kind = HLG_MESSAGE_DRAIN});
        }
    }
}

static bool is_changing(const struct session *peer)
{
    return (peer->state == SESSION_OPENING && !peer->open_asked) ||
           (peer->state == SESSION_CLOSING && !peer->close_asked);
}

/* The peer's state, or what was asked of it, changed. */
static void recount(struct sessions *s, const struct session *peer, bool before)
{
    const bool after = is_changing(peer);

    HLG_ASSERT(after || !before || s->changing_count > 0);
    s->changing_count = s->changing_count + after - before;
}

/* Last words, then PEER_CLOSE. */
static void close_session(struct sessions *s, uint32_t index, const struct hlg_refusal *bye)
{
    struct session *peer = &s->peers[index];

    drop_outgoing(s, peer); /* nothing is being sent: sessions end within events alone */
    if (peer->state == SESSION_UP) {
        HLG_ASSERT(s->up_count > 0);
        s->up_count--;
    }
    const bool before = is_changing(peer);
    peer->state = SESSION_CLOSING;
    recount(s, peer, before);
    peer->ended = true;
    s->ended_count++;
    timers_clear(&s->due, index);
    sessions_note(s, HLG_NOTE_STEP_CLOSING, index, peer->node, 0, 0);
    if (bye != NULL) {
        append(s, peer, &(struct outgoing){.kind = HLG_MESSAGE_BYE, .why = *bye});
    }
}

static void refuse(struct sessions *s, uint32_t index, const struct hlg_refusal *why, bool tell)
{
    struct session *peer = &s->peers[index];

    HLG_ASSERT(why->code != HLG_REFUSAL_NONE);
    sessions_note(s, HLG_NOTE_SESSION_REFUSED, index, why->code, 0, 0);
    struct hlg_notice *notice = sessions_notice(s, HLG_NOTICE_PEER_REFUSED, index);
    notice->refusal = *why;
    notice->node = peer->node;
    close_session(s, index, tell ? why : NULL);
}

static void end_one(struct sessions *s, uint32_t index, enum session_end why, int32_t status)
{
    struct session *peer = &s->peers[index];
    static const struct hlg_refusal orderly = {0};
    bool bye = why != SESSION_END_CHANNEL && why != SESSION_END_BYE;

    sessions_note(s, HLG_NOTE_SESSION_DOWN, index, (uint64_t)why, (uint64_t)(int64_t)status, 0);
    struct hlg_notice *notice = sessions_notice(s, HLG_NOTICE_PEER_DOWN, index);
    notice->node = peer->node;
    notice->reason = why == SESSION_END_PROTOCOL ? HLG_REASON_PROTOCOL : HLG_REASON_PEER;
    close_session(s, index, bye ? &orderly : NULL);
}

void sessions_end(struct sessions *s, uint32_t index, enum session_end why, int32_t status)
{
    HLG_ASSERT(index < s->limits->peers_max);
    struct session *peer = &s->peers[index];
    if (peer->state == SESSION_FREE || peer->state == SESSION_CLOSING) {
        return;
    }
    end_one(s, index, why, status);
    if (!peer->was_up) {
        return; /* nothing was asked of it or written to it: its domain stays as it is */
    }
    for (uint32_t i = 0; i < s->limits->peers_max; i++) {
        struct session *other = &s->peers[i];
        if (other->state != SESSION_FREE && other->state != SESSION_CLOSING &&
            other->domain == peer->domain) {
            sessions_note(s, HLG_NOTE_SESSION_SHARED, i, peer->domain, 0, 0);
            end_one(s, i, SESSION_END_SHARED, status);
        }
    }
}

uint32_t sessions_take_ended(struct sessions *s)
{
    for (uint32_t i = 0; s->ended_count > 0 && i < s->limits->peers_max; i++) {
        if (s->peers[i].ended) {
            s->peers[i].ended = false;
            s->ended_count--;
            return i;
        }
    }
    HLG_ASSERT(s->ended_count == 0);
    return HLG_NONE;
}

int sessions_closed(struct sessions *s, uint32_t index)
{
    if (index >= s->limits->peers_max || s->peers[index].state != SESSION_CLOSING) {
        return -HLG_ESTATE;
    }
    struct session *peer = &s->peers[index];
    struct hlg_slice *slices = peer->slices;
    sessions_note(s, HLG_NOTE_STEP_CLOSED, index, peer->node, 0, 0);
    drop_outgoing(s, peer);
    const bool before = is_changing(peer);
    *peer = (struct session){.slices = slices, .out_head = HLG_NONE, .out_tail = HLG_NONE};
    recount(s, peer, before);
    return 0;
}

int sessions_channel_up(struct sessions *s, const struct hlg_event_peer *event)
{
    if (event->peer >= s->limits->peers_max) {
        return -HLG_EINVAL;
    }
    struct session *peer = &s->peers[event->peer];
    if (peer->state != SESSION_FREE) {
        return -HLG_ESTATE;
    }
    peer->state = SESSION_GREETING;
    peer->domain = event->domain;
    peer->dialled = event->dialled;
    peer->serial = ++s->serial;
    peer->heard = s->now;
    peer->sent = s->now;
    timers_set(&s->due, event->peer, s->now); /* the next TIME finds the real one */
    if (event->dialled) {
        append(s, peer, &(struct outgoing){.kind = HLG_MESSAGE_HELLO});
    }
    return 0;
}

int sessions_opened(struct sessions *s, const struct hlg_event_peer *event)
{
    if (event->peer >= s->limits->peers_max) {
        return -HLG_EINVAL;
    }
    struct session *peer = &s->peers[event->peer];
    if (peer->state != SESSION_OPENING || !peer->open_asked) {
        return peer->state == SESSION_CLOSING ? 0 : -HLG_ESTATE;
    }
    if (event->status != 0) {
        refuse(s, event->peer, &(struct hlg_refusal){.code = HLG_REFUSAL_TRANSPORT}, true);
        return 0;
    }
    if (!peer->dialled) {
        append(s, peer, &(struct outgoing){.kind = HLG_MESSAGE_HELLO});
    }
    peer->state = SESSION_UP;
    peer->was_up = true;
    s->up_count++;
    sessions_note(s, HLG_NOTE_SESSION_UP, event->peer, peer->node, peer->incarnation, 0);
    sessions_notice(s, HLG_NOTICE_PEER_UP, event->peer)->node = peer->node;
    if (peer->draining) {
        sessions_notice(s, HLG_NOTICE_PEER_DRAINING, event->peer)->node = peer->node;
    }
    if (s->draining && peer->dialled) {
        /* our HELLO went before, and may not have said so */
        sessions_send(s, event->peer, &(struct outgoing){.kind = HLG_MESSAGE_DRAIN});
    }
    return 0;
}

/* What in a HELLO makes the two nodes unfit for each other, the plan included. */
static int greet(struct sessions *s, struct session *peer, const struct hlg_hello *hello,
                 struct hlg_refusal *why)
{
    bool prefill = s->role == HLG_ROLE_PREFILL;

    if (hello->protocol_min > HLG_PROTOCOL_MAX || hello->protocol_max < HLG_PROTOCOL_MIN) {
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_VERSION,
                                    .a = HLG_PROTOCOL_MIN,
                                    .b = HLG_PROTOCOL_MAX,
                                    .c = hello->protocol_min,
                                    .d = hello->protocol_max};
        return -HLG_EPLAN;
    }
    if (hello->role != (prefill ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL)) {
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_ROLE, .a = hello->role};
        return -HLG_EPLAN;
    }
    if (memcmp(hello->fingerprint, s->fingerprint, HLG_FINGERPRINT_BYTES) != 0) {
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_FINGERPRINT};
        return -HLG_EPLAN;
    }
    int error = hlg_plan_build(&peer->plan, peer->slices, s->limits->slices_max,
                               prefill ? s->layout : &hello->layout,
                               prefill ? &hello->layout : s->layout, why);
    if (error != 0) {
        return error;
    }
    uint32_t lanes = hlg_layout_lanes(&hello->layout);
    peer->rails = hello->address_count / lanes;
    if (peer->rails == 0 || peer->rails > s->limits->rails_max ||
        hello->address_count % lanes != 0 || hello->window_pieces == 0 ||
        (!prefill && hello->grant.requests == 0)) {
        *why =
            (struct hlg_refusal){.code = HLG_REFUSAL_TABLE, .a = hello->address_count, .b = lanes};
        return -HLG_EPLAN;
    }
    return 0;
}

/* "A new HELLO ends the older session and all unread in it" (I7). */
static void replace(struct sessions *s, uint32_t index)
{
    for (uint32_t i = 0; i < s->limits->peers_max; i++) {
        struct session *other = &s->peers[i];
        if (i != index && (other->state == SESSION_UP || other->state == SESSION_OPENING) &&
            other->node == s->peers[index].node) {
            sessions_note(s, HLG_NOTE_SESSION_REPLACED, i, other->node, 0, 0);
            sessions_end(s, i, SESSION_END_REPLACED, 0);
        }
    }
}

static void on_hello(struct sessions *s, uint32_t index, const struct hlg_hello *hello)
{
    struct session *peer = &s->peers[index];
    struct hlg_refusal why = {0};

    if (peer->state != SESSION_GREETING) {
        sessions_note(s, HLG_NOTE_MESSAGE_UNEXPECTED, index, HLG_MESSAGE_HELLO, peer->state, 0);
        sessions_end(s, index, SESSION_END_PROTOCOL, -HLG_EPROTO);
        return;
    }
    peer->node = hello->node;
    peer->incarnation = hello->incarnation;
    peer->peer_serial = hello->session;
    peer->window_pieces = hello->window_pieces;
    peer->message_bytes_max = hello->message_bytes_max;
    peer->prompt_bytes_max = hello->prompt_bytes_max;
    peer->draining = hello->draining != 0;
    peer->grant = s->role == HLG_ROLE_PREFILL ? s->grant : hello->grant;
    if (greet(s, peer, hello, &why) != 0) {
        refuse(s, index, &why, true);
        return;
    }
    sessions_note(s, HLG_NOTE_STEP_GREETED, index, peer->node, peer->incarnation, 0);
    replace(s, index);
    if (peer->state != SESSION_GREETING) {
        return; /* it shared the older session's fence domain and ended with it */
    }
    peer->state = SESSION_OPENING;
    recount(s, peer, false);
}

static void on_bye(struct sessions *s, uint32_t index, const struct hlg_refusal *why)
{
    if (!s->peers[index].was_up && why->code != HLG_REFUSAL_NONE) {
        refuse(s, index, why, false);
    } else {
        sessions_end(s, index, SESSION_END_BYE, 0);
    }
}

int sessions_message(struct sessions *s, const struct hlg_event_peer *event)
{
    const struct hlg_message *message = event->message;
    HLG_ASSERT(event->peer < s->limits->peers_max);
    struct session *peer = &s->peers[event->peer];

    if (peer->state == SESSION_FREE || peer->state == SESSION_CLOSING) {
        return 1; /* unread of an ended session */
    }
    peer->heard = s->now;
    switch ((enum hlg_message_kind)message->kind) {
    case HLG_MESSAGE_HELLO:
        on_hello(s, event->peer, &message->hello);
        return 1;
    case HLG_MESSAGE_BYE:
        on_bye(s, event->peer, &message->bye.why);
        return 1;
    case HLG_MESSAGE_HEARTBEAT:
        return 1;
    case HLG_MESSAGE_DRAIN:
        if (s->role == HLG_ROLE_DECODE && peer->state != SESSION_GREETING && !peer->draining) {
            peer->draining = true;
            if (peer->state == SESSION_UP) {
                sessions_notice(s, HLG_NOTICE_PEER_DRAINING, event->peer)->node = peer->node;
            }
        }
        return 1;
    case HLG_MESSAGE_REQUEST:
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
    case HLG_MESSAGE_CREDIT:
        if (peer->state == SESSION_UP) {
            return 0;
        }
        break;
    }
    sessions_note(s, HLG_NOTE_MESSAGE_UNEXPECTED, event->peer, message->kind, peer->state, 0);
    sessions_end(s, event->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
    return 1;
}

void sessions_time(struct sessions *s)
{
    for (uint32_t i = timers_due(&s->due, s->now); i != HLG_NONE; i = timers_due(&s->due, s->now)) {
        struct session *peer = &s->peers[i];
        HLG_ASSERT(peer->state != SESSION_FREE && peer->state != SESSION_CLOSING);
        hlg_time lease = hlg_time_after(peer->heard, s->limits->lease_ns);
        if (lease <= s->now) {
            sessions_end(s, i, SESSION_END_SILENCE, -HLG_EPEER);
            continue;
        }
        hlg_time beat = hlg_time_after(peer->sent, s->limits->heartbeat_ns);
        if (beat <= s->now) {
            if (peer->state == SESSION_UP && peer->out_count == 0) {
                append(s, peer, &(struct outgoing){.kind = HLG_MESSAGE_HEARTBEAT});
            }
            peer->sent = s->now; /* asked for; not again before the next beat */
            beat = hlg_time_after(s->now, s->limits->heartbeat_ns);
        }
        /* Later than now, so that this ends. What is sent or heard meanwhile moves it when it is due. */
        timers_set(&s->due, i, hlg_max_u64(hlg_min_time(lease, beat), s->now + 1));
    }
}

static void fill_send(struct sessions *s, uint32_t index, struct hlg_action *action)
{
    const struct session *peer = &s->peers[index];
    const struct outgoing *out = &s->out[peer->out_head];

    memset(action, 0, sizeof *action);
    action->kind = HLG_ACTION_SEND;
    action->send.peer = index;
    action->send.message.kind = out->kind;
    if (out->kind == HLG_MESSAGE_BYE) {
        action->send.message.bye.why = out->why;
    } else if (out->kind == HLG_MESSAGE_HELLO) {
        struct hlg_hello *hello = &action->send.message.hello;
        hello->protocol_min = HLG_PROTOCOL_MIN;
        hello->protocol_max = HLG_PROTOCOL_MAX;
        hello->role = (uint32_t)s->role;
        hello->window_pieces = s->limits->window_pieces;
        hello->message_bytes_max = s->limits->message_bytes_max;
        hello->prompt_bytes_max = s->limits->prompt_bytes_max;
        if (s->role == HLG_ROLE_PREFILL) {
            hello->draining = s->draining;
            hello->grant = s->grant;
        }
        hello->node = s->node;
        hello->incarnation = s->incarnation;
        hello->session = peer->serial;
        memcpy(hello->fingerprint, s->fingerprint, HLG_FINGERPRINT_BYTES);
        hello->layout = *s->layout;
    } else {
        action->send.message.answer = out->answer;
    }
}

static bool next_send(struct sessions *s, struct hlg_action *action,
                      const struct outgoing **outgoing)
{
    if (s->out_free_count == s->out_max) {
        return false;
    }
    const uint32_t peers_max = s->limits->peers_max;
    for (uint32_t looked = 0; looked < peers_max;) {
        const uint32_t from = (s->turn + looked) % peers_max;
        const uint32_t index = bits_next(s->waiting, bits_words(peers_max), from);
        HLG_ASSERT(index != HLG_NONE); /* a message is in use, so someone's */
        const uint32_t ahead = (index + peers_max - s->turn) % peers_max;
        if (ahead < looked) {
            break; /* once round */
        }
        looked = ahead + 1;
        struct session *peer = &s->peers[index];
        if (peer->send_full || peer->close_asked) {
            continue;
        }
        fill_send(s, index, action);
        *outgoing = &s->out[peer->out_head];
        s->sending = index;
        s->turn = index;
        return true;
    }
    return false;
}

static bool next_open_or_close(struct sessions *s, unsigned kinds, struct hlg_action *action)
{
    for (uint32_t i = 0; s->changing_count > 0 && i < s->limits->peers_max; i++) {
        struct session *peer = &s->peers[i];
        if ((kinds & HLG_ACTION_PEER_OPEN) != 0 && peer->state == SESSION_OPENING &&
            !peer->open_asked) {
            peer->open_asked = true;
            recount(s, peer, true);
            *action = (struct hlg_action){.kind = HLG_ACTION_PEER_OPEN, .peer = i};
            return true;
        }
        /* A BYE goes first, unless its channel is full: nobody waits for it. */
        if ((kinds & HLG_ACTION_PEER_CLOSE) != 0 && peer->state == SESSION_CLOSING &&
            !peer->close_asked && !peer->ended && (peer->out_head == HLG_NONE || peer->send_full)) {
            peer->close_asked = true;
            recount(s, peer, true);
            *action = (struct hlg_action){
                .kind = HLG_ACTION_PEER_CLOSE,
                .close = {.peer = i, .domain = peer->domain, .fence = peer->was_up}};
            return true;
        }
    }
    return false;
}

int sessions_next(struct sessions *s, unsigned kinds, struct hlg_action *action,
                  const struct outgoing **outgoing)
{
    *outgoing = NULL;
    if ((kinds & HLG_ACTION_SEND) != 0) {
        sent(s); /* or it would have been refused: the note of it goes first */
    }
    if ((kinds & HLG_ACTION_NOTE) != 0 && s->note_count > 0) {
        *action = (struct hlg_action){.kind = HLG_ACTION_NOTE, .note = s->notes[s->note_begin]};
        s->note_begin = (s->note_begin + 1) % s->notes_max;
        s->note_count--;
        return 1;
    }
    if ((kinds & HLG_ACTION_NOTICE) != 0 && s->notice_count > 0) {
        action->kind = HLG_ACTION_NOTICE;
        action->notice = s->notices[s->notice_begin];
        s->notice_begin = (s->notice_begin + 1) % s->notices_max;
        s->notice_count--;
        return 1;
    }
    if ((kinds & HLG_ACTION_SEND) != 0 && next_send(s, action, outgoing)) {
        return 1;
    }
    if ((kinds & (HLG_ACTION_PEER_OPEN | HLG_ACTION_PEER_CLOSE)) != 0 &&
        next_open_or_close(s, kinds, action)) {
        return 1;
    }
    return 0;
}

void sessions_census(const struct sessions *s, struct hlg_census *census)
{
    census->sessions_max = s->limits->peers_max;
    census->messages_max = s->out_max;
    census->messages = s->out_max - s->out_free_count;
    for (uint32_t i = 0; i < s->limits->peers_max; i++) {
        census->sessions += s->peers[i].state != SESSION_FREE;
    }
}

void sessions_check(const struct sessions *s)
{
    uint32_t waiting = 0;
    uint32_t up = 0;
    uint32_t ended = 0;
    uint32_t changing = 0;
    uint32_t open = 0;

    for (uint32_t i = 0; i < s->limits->peers_max; i++) {
        const struct session *peer = &s->peers[i];
        uint32_t count = 0;
        for (uint32_t o = peer->out_head; o != HLG_NONE; o = s->out[o].next) {
            count++;
        }
        HLG_ASSERT(count == peer->out_count);
        HLG_ASSERT(bits_has(s->waiting, i) == (count > 0));
        HLG_ASSERT(peer->state != SESSION_FREE || count == 0);
        waiting += count;
        up += peer->state == SESSION_UP;
        open += peer->state != SESSION_FREE && peer->state != SESSION_CLOSING;
        ended += peer->ended;
        changing += is_changing(peer);
    }
    HLG_ASSERT(waiting + s->out_free_count == s->out_max);
    shares_check(&s->out_shares);
    HLG_ASSERT(up == s->up_count);
    HLG_ASSERT(changing == s->changing_count);
    HLG_ASSERT(ended == 0 && s->ended_count == 0);
    timers_check(&s->due);
    HLG_ASSERT(s->due.count == open);
}
