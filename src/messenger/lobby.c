/*
 * The lobby: connections wait here until they have proved themselves. With a key that is the handshake;
 * without one, an accepted connection must bring a whole HELLO. Only then does it become a peer, which
 * costs a number, buffers and endpoints. The lobby is small, each guest's time is bounded, and where it is
 * full the oldest accepted guest gives way: a flood keeps others out for the time of one flood's turn, no
 * longer. Dialled connections have places of their own.
 */
#include "messenger_internal.h"

#include <halage/wire.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A busy core thread listens to those who wait this often: each costs a call of the system. */
#define LISTEN_NS HLG_NS_PER_MS

_Static_assert((int)HLG_REFUSED_FRAME == HLG_SEALED_REASONS - 1, "all reasons but NONE, in order");
_Static_assert((int)HLG_REFUSED_BY_PEER == HLG_SEALED_REFUSED - 1, "in the same order");

const char *hlg_refused_name(enum hlg_refused refused)
{
    static const char *const names[] = {
        [HLG_REFUSED_VERSION] = "version", [HLG_REFUSED_PLAIN] = "plain",
        [HLG_REFUSED_KEY] = "key",         [HLG_REFUSED_ALTERED] = "altered",
        [HLG_REFUSED_LONG] = "long",       [HLG_REFUSED_IDENTITY] = "identity",
        [HLG_REFUSED_BY_PEER] = "by_peer", [HLG_REFUSED_FRAME] = "frame",
        [HLG_REFUSED_SILENCE] = "silence", [HLG_REFUSED_CROWDED] = "crowded",
        [HLG_REFUSED_GONE] = "gone",       [HLG_REFUSED_ADDRESS] = "address",
    };
    _Static_assert(sizeof names / sizeof names[0] == HLG_REFUSED_KINDS, "a name each");

    return (uint32_t)refused < HLG_REFUSED_KINDS ? names[refused] : "unknown";
}

/* ---- A channel that gives a frame back that was looked at ---- */

struct primed {
    struct hlg_channel channel;
    struct hlg_channel *below;
    const uint8_t
        *frame; /* NULL: none; in the buffer of `below`, untouched until its next receive */
    uint32_t bytes;
};

static struct primed *primed_of(struct hlg_channel *c)
{
    return (struct primed *)c;
}

static int primed_send(struct hlg_channel *c, const uint8_t *frame, uint32_t bytes)
{
    return primed_of(c)->below->ops->send(primed_of(c)->below, frame, bytes);
}

static int primed_receive(struct hlg_channel *c, const uint8_t **frame, uint32_t *bytes)
{
    struct primed *p = primed_of(c);

    if (p->frame == NULL) {
        return p->below->ops->receive(p->below, frame, bytes);
    }
    *frame = p->frame;
    *bytes = p->bytes;
    p->frame = NULL;
    return 1;
}

static int primed_wait_fd(struct hlg_channel *c, short *events)
{
    return primed_of(c)->below->ops->wait_fd(primed_of(c)->below, events);
}

static const char *primed_name(struct hlg_channel *c)
{
    return primed_of(c)->below->ops->name(primed_of(c)->below);
}

static void primed_close(struct hlg_channel *c)
{
    primed_of(c)->below->ops->close(primed_of(c)->below);
    free(c);
}

static const struct hlg_channel_ops primed_ops = {
    .send = primed_send,
    .receive = primed_receive,
    .wait_fd = primed_wait_fd,
    .name = primed_name,
    .close = primed_close,
};

/* Owns `below`, also on failure. */
static int prime(struct hlg_channel *below, struct hlg_channel **out)
{
    struct primed *p = calloc(1, sizeof *p);

    if (p == NULL) {
        below->ops->close(below);
        return -HLG_ENOMEM;
    }
    p->channel.ops = &primed_ops;
    p->below = below;
    *out = &p->channel;
    return 0;
}

/* ---- Guests ---- */

int lobby_init(struct hlg_messenger *m)
{
    struct lobby *lobby = &m->lobby;

    lobby->accepted_max = m->config.waiting_max;
    lobby->guests = calloc(lobby->accepted_max + DIALS_MAX, sizeof *lobby->guests);
    if (m->config.key == NULL) {
        lobby->scratch_bytes = hlg_wire_scratch_bytes(&m->config.limits);
        lobby->scratch = malloc(lobby->scratch_bytes);
    }
    return lobby->guests == NULL || (m->config.key == NULL && lobby->scratch == NULL) ? -HLG_ENOMEM
                                                                                      : 0;
}

void lobby_fini(struct hlg_messenger *m)
{
    struct lobby *lobby = &m->lobby;

    for (uint32_t i = 0; lobby->guests != NULL && i < lobby->accepted_max + DIALS_MAX; i++) {
        if (lobby->guests[i].channel != NULL) {
            lobby->guests[i].channel->ops->close(lobby->guests[i].channel);
        }
    }
    free(lobby->guests);
    free(lobby->scratch);
}

bool lobby_needs_loopback(const struct hlg_messenger *m)
{
    return m->config.key == NULL && !m->config.allow_unauthenticated;
}

static void leave(struct lobby *lobby, struct guest *guest)
{
    HLG_ASSERT(lobby->count > 0);
    lobby->count--;
    guest->channel = NULL;
}

/* An engine hears of what it dialled. Strangers are only counted and, now and then, logged: a flood must
 * fill neither reports nor logs. */
static void tell(struct hlg_messenger *m, const char *name, uint32_t connection, int error,
                 enum hlg_refused why, const char *sentence)
{
    struct hlg_report report = {.kind = HLG_NOTICE_PEER_REFUSED,
                                .peer = HLG_NONE,
                                .connection = connection,
                                .error = error};
    const hlg_time now = hlg_pump_now(m->pump);

    if (why == HLG_REFUSED_KEY || why == HLG_REFUSED_PLAIN) {
        report.error = -HLG_EPLAN; /* as it is, it never will work */
        report.refusal = (struct hlg_refusal){.code = HLG_REFUSAL_KEY,
                                              .a = why == HLG_REFUSED_KEY ? HLG_KEY_DIFFERS
                                                                          : HLG_KEY_MISSING_THERE};
    }
    (void)snprintf(report.text, sizeof report.text, "%s: %s", name, sentence);
    m->lobby.untold++;
    if (connection != 0) {
        messenger_log(m, HLG_LOG_WARN, "peer_refused connection %" PRIu32 " %s", connection,
                      report.text);
        report_push(m, &report);
    } else if (m->lobby.told == 0 || now - m->lobby.told >= HLG_NS_PER_S) {
        messenger_log(m, HLG_LOG_WARN, "connections_refused %" PRIu64 " last %s why %s: %s",
                      m->lobby.untold, name, hlg_refused_name(why), sentence);
        m->lobby.untold = 0;
        m->lobby.told = now > 0 ? now : 1;
    }
}

static void refuse(struct hlg_messenger *m, struct guest *guest, enum hlg_refused why,
                   const char *sentence)
{
    char name[HLG_TCP_NAME_BYTES];

    (void)snprintf(name, sizeof name, "%s", guest->channel->ops->name(guest->channel));
    guest->channel->ops->close(guest->channel);
    leave(&m->lobby, guest);
    if (why >= HLG_REFUSED_FRAME) { /* the others are counted where they are found */
        m->stats.peers_refused[why]++;
    }
    tell(m, name, guest->connection, -HLG_EPEER, why, sentence);
}

/* A free place; of accepted ones, else, the oldest's. */
static struct guest *find_place(struct hlg_messenger *m, bool dialled)
{
    struct lobby *lobby = &m->lobby;
    const uint32_t begin = dialled ? lobby->accepted_max : 0;
    const uint32_t limit = dialled ? lobby->accepted_max + DIALS_MAX : lobby->accepted_max;
    struct guest *oldest = NULL;

    for (uint32_t i = begin; i < limit; i++) {
        struct guest *guest = &lobby->guests[i];
        if (guest->channel == NULL) {
            return guest;
        }
        if (oldest == NULL || guest->serial < oldest->serial) {
            oldest = guest;
        }
    }
    if (dialled) {
        return NULL;
    }
    refuse(m, oldest, HLG_REFUSED_CROWDED, "gave way to newer connections: waiting_max is reached");
    return oldest;
}

/* What the pump is to get in the end. Owns `tcp`, also on failure. */
static int decorate(struct hlg_messenger *m, struct hlg_channel *tcp, bool dialled,
                    struct hlg_channel **out)
{
    const struct hlg_sealed_config config = {.key = m->config.key,
                                             .dialled = dialled,
                                             .node = m->node,
                                             .incarnation = m->incarnation,
                                             .message_bytes_max =
                                                 m->config.limits.message_bytes_max,
                                             .counts = m->lobby.sealed_counts};

    if (m->config.key == NULL) {
        return prime(tcp, out);
    }
    hlg_tcp_channel_limit(tcp, HLG_SEALED_HANDSHAKE_BYTES);
    return hlg_sealed_open(&config, tcp, out);
}

void lobby_enter(struct hlg_messenger *m, struct hlg_channel *tcp, uint32_t connection,
                 hlg_time now)
{
    const bool dialled = connection != 0;
    char name[HLG_TCP_NAME_BYTES];
    struct hlg_channel *channel = NULL;

    if (dialled && m->config.key == NULL) {
        progress_let_in(m, tcp, connection); /* we speak first: there is nothing to wait for */
        return;
    }
    struct guest *guest = find_place(m, dialled);
    (void)snprintf(name, sizeof name, "%s", tcp->ops->name(tcp));
    if (guest == NULL) {
        tcp->ops->close(tcp);
        tell(m, name, connection, -HLG_ELIMIT, HLG_REFUSED_CROWDED,
             "too many handshakes are under way; try again later");
        return;
    }
    const int error = decorate(m, tcp, dialled, &channel);
    if (error != 0) {
        tell(m, name, connection, error, HLG_REFUSED_GONE, hlg_error_text(error));
        return;
    }
    *guest = (struct guest){.channel = channel,
                            .tcp = tcp,
                            .connection = connection,
                            .due = hlg_time_after(now, m->config.connect_ns),
                            .serial = ++m->lobby.serial};
    m->lobby.count++;
    m->lobby.listen_due = now;
}

/* ---- What guests bring ---- */

static void let_in(struct hlg_messenger *m, struct guest *guest)
{
    struct hlg_channel *channel = guest->channel;

    leave(&m->lobby, guest);
    progress_let_in(m, channel, guest->connection);
}

/* With a key. Returns whether the guest left. */
static bool hear_sealed(struct hlg_messenger *m, struct guest *guest)
{
    enum hlg_sealed_reason reason = HLG_SEALED_NONE;
    char sentence[128];

    switch (hlg_sealed_shake(guest->channel)) {
    case HLG_SEALED_GREETING:
        return false;
    case HLG_SEALED_OPEN:
        hlg_tcp_channel_limit(guest->tcp,
                              m->config.limits.message_bytes_max + HLG_SEALED_OVERHEAD_BYTES);
        let_in(m, guest);
        return true;
    case HLG_SEALED_OVER:
        break;
    }
    (void)hlg_sealed_state(guest->channel, &reason);
    (void)snprintf(sentence, sizeof sentence, "no handshake: the other side %s%s",
                   hlg_sealed_reason_text(reason),
                   reason == HLG_SEALED_KEY || reason == HLG_SEALED_PLAIN
                       ? "; give both sides the same key"
                       : "");
    refuse(m, guest,
           reason == HLG_SEALED_NONE ? HLG_REFUSED_GONE : (enum hlg_refused)((int)reason - 1),
           sentence);
    return true;
}

/* Last words to who begins with anything but a HELLO. */
static void say_bye(struct guest *guest, bool greeting)
{
    const struct hlg_message bye = {
        .kind = HLG_MESSAGE_BYE,
        .bye = {.why = {.code = greeting ? HLG_REFUSAL_KEY : HLG_REFUSAL_NONE,
                        .a = HLG_KEY_MISSING_HERE}}};
    uint8_t frame[64];

    const int64_t bytes = hlg_wire_encode(&bye, frame, sizeof frame);
    if (bytes > 0) {
        (void)guest->channel->ops->send(guest->channel, frame, hlg_u32((uint64_t)bytes));
    }
}

/* Without a key: a whole, well-formed HELLO, which is then given to the pump. */
static bool hear_plain(struct hlg_messenger *m, struct guest *guest)
{
    struct primed *primed = primed_of(guest->channel);
    struct hlg_message message;
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;

    const int got = primed->below->ops->receive(primed->below, &frame, &bytes);
    if (got == 0) {
        return false;
    }
    if (got < 0 && got != -HLG_EPROTO) {
        refuse(m, guest, HLG_REFUSED_GONE, "closed the connection before it had greeted");
        return true;
    }
    if (got < 0 ||
        hlg_wire_decode(frame, bytes, m->lobby.scratch, m->lobby.scratch_bytes, &message) != 0 ||
        message.kind != HLG_MESSAGE_HELLO) {
        const bool greeting = got == 1 && hlg_sealed_is_greeting(frame, bytes);
        say_bye(guest, greeting);
        refuse(m, guest, HLG_REFUSED_FRAME,
               greeting ? "the other side has a key and this one none; give both the same key"
                        : "its first frame is no HELLO of this protocol");
        return true;
    }
    primed->frame = frame;
    primed->bytes = bytes;
    let_in(m, guest);
    return true;
}

int lobby_step(struct hlg_messenger *m, hlg_time now)
{
    struct lobby *lobby = &m->lobby;
    int work = 0;

    if (now < lobby->listen_due) {
        return 0;
    }
    lobby->listen_due = now + LISTEN_NS;
    for (uint32_t i = 0; lobby->count > 0 && i < lobby->accepted_max + DIALS_MAX; i++) {
        struct guest *guest = &lobby->guests[i];
        if (guest->channel == NULL) {
            continue;
        }
        const bool left = m->config.key != NULL ? hear_sealed(m, guest) : hear_plain(m, guest);
        if (!left && guest->due <= now) {
            refuse(m, guest, HLG_REFUSED_SILENCE,
                   guest->connection != 0
                       ? "no handshake within connect_ns; is a node with a key listening there?"
                       : "neither a handshake nor a HELLO within connect_ns");
            work++;
        }
        work += left;
    }
    return work;
}

hlg_time lobby_deadline(const struct hlg_messenger *m)
{
    const struct lobby *lobby = &m->lobby;
    hlg_time due = HLG_TIME_NEVER;

    for (uint32_t i = 0; lobby->count > 0 && i < lobby->accepted_max + DIALS_MAX; i++) {
        if (lobby->guests[i].channel != NULL) {
            due = hlg_min_time(due, lobby->guests[i].due);
        }
    }
    return hlg_max_u64(due, lobby->listen_due);
}

uint32_t lobby_wait_fds(const struct hlg_messenger *m, struct pollfd *fds, uint32_t capacity)
{
    const struct lobby *lobby = &m->lobby;
    uint32_t count = 0;

    for (uint32_t i = 0; lobby->count > 0 && i < lobby->accepted_max + DIALS_MAX; i++) {
        struct hlg_channel *channel = lobby->guests[i].channel;
        short events = 0;
        if (channel == NULL) {
            continue;
        }
        HLG_ASSERT(count < capacity);
        const int fd = channel->ops->wait_fd(channel, &events);
        fds[count++] = (struct pollfd){.fd = fd, .events = events};
    }
    return count;
}

void lobby_woken(struct hlg_messenger *m, const struct pollfd *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fds[i].revents != 0) {
            m->lobby.listen_due = 0;
            return;
        }
    }
}

void lobby_stats(const struct hlg_messenger *m, struct hlg_messenger_stats *stats)
{
    for (uint32_t i = 1; i < HLG_SEALED_REASONS; i++) {
        stats->peers_refused[i - 1] = m->lobby.sealed_counts[i];
    }
}
