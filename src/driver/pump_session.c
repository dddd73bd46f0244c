/* Sessions as the driver sees them: a channel, and the greeting that fills in what the machine does
 * not know. Whatever a peer sends wrong ends its own session and nothing else. */
#include "pump_internal.h"

#include <poll.h>

#define FRAMES_PER_STEP_MAX 32u

static int send_frame(struct hlg_pump *p, struct pump_peer *peer, const struct hlg_message *message)
{
    int64_t bytes = hlg_wire_encode(message, p->frame, p->limits.message_bytes_max);

    if (bytes < 0) {
        return (int)bytes;
    }
    int taken = peer->channel->ops->send(peer->channel, p->frame, hlg_u32((uint64_t)bytes));
    p->stats.frames_sent += taken > 0;
    return taken;
}

int pump_session_send(struct hlg_pump *p, uint32_t index, const struct hlg_message *message)
{
    struct pump_peer *peer = &p->peers[index];

    if (peer->channel == NULL) {
        return -HLG_EPEER;
    }
    if (message->kind != HLG_MESSAGE_HELLO) {
        return send_frame(p, peer, message);
    }
    struct hlg_message hello = *message;
    int error = pump_table_hello(p, peer, &hello.hello);
    return error != 0 ? error : send_frame(p, peer, &hello);
}

void pump_session_bye(struct hlg_pump *p, uint32_t index, const struct hlg_refusal *why)
{
    struct hlg_message bye = {.kind = HLG_MESSAGE_BYE, .bye = {.why = *why}};

    /* Last words: nobody waits for them, and the channel is closed either way. */
    (void)pump_session_send(p, index, &bye);
}

void pump_session_end(struct hlg_pump *p, uint32_t index, int32_t status)
{
    struct pump_peer *peer = &p->peers[index];

    if (peer->state != PUMP_PEER_LIVE) {
        return;
    }
    peer->state = PUMP_PEER_ENDED;
    pump_feed_peer(p, HLG_EVENT_PEER_DOWN, index, status);
}

void pump_session_close(struct hlg_pump *p, uint32_t index, bool fence)
{
    struct pump_peer *peer = &p->peers[index];
    struct pump_domain *domain = &p->domains[peer->domain];

    HLG_ASSERT(peer->state != PUMP_PEER_FREE);
    peer->state = PUMP_PEER_ENDED;
    if (peer->channel != NULL) {
        peer->channel->ops->close(peer->channel);
        peer->channel = NULL;
    }
    /* Of peers that share a domain the first to be closed closes it; a later peer may have had it
       opened anew meanwhile. */
    if (domain->opening == peer->opening && (fence || domain->users == 1)) {
        pump_domain_close(p, peer->domain);
    }
    HLG_ASSERT(domain->users > 0);
    domain->users--;
    p->stats.sessions_ended++;
    peer->opened = false;
    peer->has_table = false;
    peer->state = PUMP_PEER_FREE;
    while (p->peers_used > 0 && p->peers[p->peers_used - 1].state == PUMP_PEER_FREE) {
        p->peers_used--;
    }
    pump_feed_peer(p, HLG_EVENT_PEER_CLOSED, index, domain->close_status);
}

/* A HELLO that cannot work: the other side is told, and the machine as if the other side had said so,
 * which is how our engine gets to hear the reason. */
static void refuse_hello(struct hlg_pump *p, uint32_t index, const struct hlg_refusal *why)
{
    struct hlg_message bye = {.kind = HLG_MESSAGE_BYE, .bye = {.why = *why}};
    struct hlg_event event = {.kind = HLG_EVENT_MESSAGE, .peer = {.peer = index, .message = &bye}};

    pump_session_bye(p, index, why);
    p->peers[index].state = PUMP_PEER_ENDED;
    int error = pump_feed(p, &event);
    HLG_ASSERT(error == 0);
}

static void end_malformed(struct hlg_pump *p, uint32_t index)
{
    static const struct hlg_refusal none = {0};

    p->stats.frames_malformed++;
    if (p->peers[index].state == PUMP_PEER_LIVE) {
        pump_session_bye(p, index, &none);
        pump_session_end(p, index, -HLG_EPROTO);
    }
}

static void on_frame(struct hlg_pump *p, uint32_t index, const uint8_t *frame, uint32_t bytes)
{
    struct pump_peer *peer = &p->peers[index];
    struct hlg_message *message = &p->message; /* REQUESTED will point to it */
    struct hlg_refusal why = {0};

    p->stats.frames_received++;
    if (hlg_wire_decode(frame, bytes, p->scratch, p->scratch_bytes, message) != 0) {
        end_malformed(p, index);
        return;
    }
    /* A second HELLO on a channel breaks the protocol; the machine says so, the first one's tables
       stay. */
    if (message->kind == HLG_MESSAGE_HELLO && peer->lanes == 0 &&
        pump_table_peer(p, peer, &message->hello, &why) != 0) {
        refuse_hello(p, index, &why);
        return;
    }
    struct hlg_event event = {.kind = HLG_EVENT_MESSAGE,
                              .peer = {.peer = index, .message = message}};
    if (pump_feed(p, &event) != 0) {
        end_malformed(p, index);
    }
}

/* Whether a channel that had no room may have some: it has nothing left to move. */
static bool has_room(const struct pump_peer *peer)
{
    short events = 0;

    return peer->channel->ops->wait_fd(peer->channel, &events) < 0 || (events & POLLOUT) == 0;
}

int pump_session_read(struct hlg_pump *p, uint32_t index)
{
    struct pump_peer *peer = &p->peers[index];
    uint32_t frames = 0;
    int work = 0;

    for (; frames < FRAMES_PER_STEP_MAX && peer->state == PUMP_PEER_LIVE; frames++) {
        const uint8_t *frame = NULL;
        uint32_t bytes = 0;
        int got = peer->channel->ops->receive(peer->channel, &frame, &bytes);
        if (got == 0) {
            break;
        }
        work++;
        if (got > 0) {
            on_frame(p, index, frame, bytes);
        } else if (got == -HLG_EPROTO) {
            end_malformed(p, index);
        } else {
            pump_session_end(p, index, got);
        }
        pump_carry_node(p);
    }
    peer->unread =
        frames == FRAMES_PER_STEP_MAX; /* more may be here, of which no descriptor tells */
    if (peer->state == PUMP_PEER_LIVE && peer->send_full && has_room(peer)) {
        /* Not work by itself: a frame that then goes is. */
        peer->send_full = false;
        uint64_t sent = p->stats.frames_sent;
        pump_feed_peer(p, HLG_EVENT_SEND_ROOM, index, 0);
        pump_carry_node(p);
        work += p->stats.frames_sent != sent;
    }
    return work;
}

/* Whether the peer's channel is to be read whatever its descriptor says; else that is in *look. */
static bool must_read(const struct pump_peer *peer, struct pollfd *look)
{
    *look = (struct pollfd){.fd = -1};
    look->fd = peer->channel->ops->wait_fd(peer->channel, &look->events);
    return look->fd < 0 || peer->unread || peer->send_full;
}

int pump_sessions_read(struct hlg_pump *p)
{
    uint32_t count = 0;
    int work = 0;

    for (uint32_t i = 0; i < p->peers_used; i++) {
        if (p->peers[i].state != PUMP_PEER_LIVE) {
            continue;
        }
        if (must_read(&p->peers[i], &p->looks[count])) {
            work += pump_session_read(p, i);
        } else {
            p->look_peers[count++] = i;
        }
    }
    /* One call of the system for all, and one more for each that has something: 1,000 silent sessions take 65 us
       and not 202. A lone one is read at once. */
    const bool all = count == 1 || (count > 1 && poll(p->looks, count, 0) < 0);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = p->look_peers[k];
        if ((all || p->looks[k].revents != 0) && p->peers[i].state == PUMP_PEER_LIVE) {
            work += pump_session_read(p, i);
        }
    }
    return work;
}
