#include "pump_internal.h"

#include <poll.h>

#define WRITES_PER_STEP_MAX 256u
#define READY_PER_STEP_MAX  1024u
#define ACTIONS_PER_STEP_MAX \
    (1u << 24) /* more than any table holds: a machine that loops is broken */
/* A target may owe its peer the acknowledgement of the last bytes when its own request is over;
   providers with manual progress send it while polled. */
#define LINGER_NS (20 * HLG_NS_PER_MS)
/* While endpoints are busy channels are looked at this often, and for a tenth of the time at most: a look is a
   call of the system, which costs as much as some pages, or with many channels as much as many. */
#define CHANNELS_NS     10000u
#define CHANNELS_NS_MAX HLG_NS_PER_MS /* a look may have been long because the thread did not run */
#define CHANNELS_REST   9u

hlg_time hlg_pump_now(const struct hlg_pump *p)
{
    return p->fabric->now(p->fabric);
}

int pump_feed(struct hlg_pump *p, struct hlg_event *event)
{
    event->now = hlg_pump_now(p);
    p->events++;
    if (p->trace == NULL) {
        return p->machine.handle(p->machine.memory, event);
    }
    hlg_trace_event(p->trace, event);
    int result = p->machine.handle(p->machine.memory, event);
    hlg_trace_result(p->trace, result);
    return result;
}

int pump_pull(struct hlg_pump *p, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    int pulled = p->machine.next(p->machine.memory, lane, kinds, action);

    if (p->trace != NULL && pulled != 0) {
        hlg_trace_action(p->trace, lane, kinds, action);
    } else if (p->trace != NULL) {
        hlg_trace_nothing(p->trace, lane, kinds);
    }
    return pulled;
}

void pump_feed_peer(struct hlg_pump *p, enum hlg_event_kind kind, uint32_t peer, int32_t status)
{
    struct hlg_event event = {
        .kind = (uint32_t)kind,
        .peer = {.peer = peer, .domain = p->peers[peer].domain, .status = status}};
    int error = pump_feed(p, &event);

    HLG_ASSERT(error == 0); /* the driver knows which peers there are */
}

/* ---- Channels ---- */

static void refuse_channel(struct hlg_pump *p, struct hlg_channel *channel,
                           const struct hlg_refusal *why)
{
    struct hlg_message bye = {.kind = HLG_MESSAGE_BYE, .bye = {.why = *why}};
    int64_t bytes = hlg_wire_encode(&bye, p->frame, p->limits.message_bytes_max);

    if (bytes > 0) {
        (void)channel->ops->send(channel, p->frame, hlg_u32((uint64_t)bytes)); /* last words */
    }
    channel->ops->close(channel);
}

int hlg_pump_channel(struct hlg_pump *p, struct hlg_channel *channel, bool dialled,
                     uint32_t *peer_out)
{
    uint32_t index = 0;

    while (index < p->limits.peers_max && p->peers[index].state != PUMP_PEER_FREE) {
        index++;
    }
    if (index == p->limits.peers_max) {
        refuse_channel(p, channel,
                       &(struct hlg_refusal){.code = HLG_REFUSAL_FULL, .a = p->limits.peers_max});
        return -HLG_ELIMIT;
    }
    struct pump_peer *peer = &p->peers[index];
    uint32_t domain = pump_domain_choose(p);
    int error = pump_domain_open(p, domain);
    if (error < 0) {
        refuse_channel(p, channel, &(struct hlg_refusal){.code = HLG_REFUSAL_TRANSPORT});
        return error;
    }
    p->domains[domain].users++;
    peer->state = PUMP_PEER_LIVE;
    p->peers_used = hlg_max_u32(p->peers_used, index + 1);
    peer->channel = channel;
    channel->tag = index;
    peer->unread = true;
    p->any_unread = true;
    peer->domain = domain;
    peer->opening = p->domains[domain].opening;
    peer->send_full = false;
    peer->lanes = 0;
    peer->rails = 0;
    peer->key_count = 0;
    *peer_out = index;
    struct hlg_event event = {.kind = HLG_EVENT_CHANNEL_UP,
                              .peer = {.peer = index, .domain = domain, .dialled = dialled}};
    error = pump_feed(p, &event);
    HLG_ASSERT(error == 0); /* the index is unused */
    return 0;
}

const char *hlg_pump_peer_name(const struct hlg_pump *p, uint32_t peer)
{
    HLG_ASSERT(peer < p->limits.peers_max);
    struct hlg_channel *channel = p->peers[peer].channel;
    return channel == NULL ? "" : channel->ops->name(channel);
}

/* ---- Actions ---- */

static void carry_send(struct hlg_pump *p, const struct hlg_action_send *send)
{
    struct pump_peer *peer = &p->peers[send->peer];
    int taken = pump_session_send(p, send->peer, &send->message);

    if (taken == 0) {
        peer->send_full = true;
        pump_feed_peer(p, HLG_EVENT_SEND_REFUSED, send->peer, 0);
    } else if (taken < 0) {
        pump_session_end(p, send->peer, taken);
    }
}

static void carry_open(struct hlg_pump *p, uint32_t index)
{
    struct pump_peer *peer = &p->peers[index];
    int status = peer->has_table ? pump_domain_peer_open(p, peer) : -HLG_EPLAN;

    pump_feed_peer(p, HLG_EVENT_PEER_OPENED, index, status);
}

static void carry_flush(struct hlg_pump *p, const struct hlg_action_flush *flush)
{
    const bool copies = p->flusher != NULL && p->flusher->span != NULL;

    if (p->flusher != NULL && !(copies && flush->fences)) {
        pump_flush_add(p, flush->request);
        return;
    }
    /* What an immediate announces is visible; and what nobody copies never reaches the device. */
    struct hlg_event event = {.kind = HLG_EVENT_FLUSHED, .request = flush->request};

    (void)pump_feed(p, &event); /* -HLG_ESTALE when the request ended meanwhile */
}

static void carry_action(struct hlg_pump *p, const struct hlg_action *action)
{
    switch ((enum hlg_action_kind)action->kind) {
    case HLG_ACTION_SEND:
        carry_send(p, &action->send);
        return;
    case HLG_ACTION_PEER_OPEN:
        carry_open(p, action->peer);
        return;
    case HLG_ACTION_PEER_CLOSE:
        pump_session_close(p, action->close.peer, action->close.fence);
        return;
    case HLG_ACTION_FLUSH:
        carry_flush(p, &action->flush);
        return;
    case HLG_ACTION_NOTICE:
        p->notice(p->context, &action->notice);
        return;
    case HLG_ACTION_NOTE:
        if (p->note != NULL) {
            p->note(p->context, &action->note);
        }
        return;
    case HLG_ACTION_WRITE:
        break;
    }
    hlg_unreachable();
}

void pump_carry_node(struct hlg_pump *p)
{
    struct hlg_action action;
    uint32_t count = 0;

    if (p->carried == p->events) {
        return; /* actions come of events alone */
    }
    while (pump_pull(p, 0, HLG_ACTIONS_NODE, &action) != 0) {
        carry_action(p, &action);
        HLG_ASSERT(++count < ACTIONS_PER_STEP_MAX);
    }
    p->carried = p->events;
}

/* Makes endpoint->write what is to be written. A write that goes on where the endpoint's last one ended has the
 * same addresses: a transport takes an operation in several parts, and its number is free again only when
 * the last one is over, so that another operation of that number begins with its first piece. */
static int resolve(const struct hlg_pump *p, struct pump_endpoint *endpoint,
                   const struct hlg_action_write *action)
{
    struct hlg_paged_write *write = &endpoint->write;

    if (action->piece_begin > 0 && action->op == write->op &&
        action->piece_limit <= endpoint->resolved_limit && p->peers[action->peer].opened) {
        write->piece_begin = action->piece_begin;
        write->piece_limit = action->piece_limit;
        return 0;
    }
    const int error = pump_table_resolve(p, action, write);
    endpoint->resolved_limit = error == 0 ? action->piece_limit : 0;
    endpoint->stretch = (struct pump_stretch){0};
    return error;
}

/* Returns the pieces that were taken. */
static uint32_t carry_write(struct hlg_pump *p, const struct hlg_action_write *action)
{
    const struct pump_peer *peer = &p->peers[action->peer];

    HLG_ASSERT(p->domains[peer->domain].open);
    struct pump_endpoint *endpoint = pump_endpoint(p, peer->domain, action->lane, action->rail);
    int64_t taken = resolve(p, endpoint, action);
    if (taken == 0) {
        taken = pump_merge_write(endpoint->transport, &endpoint->write, p->caps.merge_bytes_max,
                                 &endpoint->stretch);
    }
    uint32_t offered = action->piece_limit - action->piece_begin;
    uint32_t pieces = taken > 0 ? hlg_u32((uint64_t)taken) : 0;
    HLG_ASSERT(pieces <= offered);
    struct hlg_event event; /* of its size only what is read is set: there is one for each write */
    event.kind = HLG_EVENT_TAKEN;
    event.taken = (struct hlg_event_taken){.op = action->op, .pieces = pieces};
    int error = pump_feed(p, &event);
    HLG_ASSERT(error == 0);
    p->stats.pieces_posted += pieces;
    p->stats.bytes_posted += (uint64_t)pieces * action->slice->bytes;
    p->stats.writes_refused += pieces == 0;
    endpoint->refused = endpoint->refused || pieces < offered;
    if (taken < 0) {
        pump_session_end(p, action->peer, (int32_t)taken);
    }
    return pieces;
}

static int carry_writes(struct hlg_pump *p, uint32_t lane)
{
    struct hlg_action action;
    int work = 0;

    for (uint32_t i = 0; i < WRITES_PER_STEP_MAX; i++) {
        if (pump_pull(p, lane, HLG_ACTION_WRITE, &action) == 0) {
            p->written[lane] = p->events;
            break;
        }
        work += carry_write(p, &action.write) > 0;
    }
    /* What the writes brought up: a lost peer, a request that is over. */
    pump_carry_node(p);
    return work;
}

/* ---- Turning ---- */

int hlg_pump_event(struct hlg_pump *p, struct hlg_event *event)
{
    int result = pump_feed(p, event);

    pump_carry_node(p);
    return result;
}

hlg_handle hlg_pump_submitted(const struct hlg_pump *p)
{
    return p->machine.submitted(p->machine.memory);
}

static int read_channel(struct hlg_pump *p, const struct hlg_channel *channel)
{
    const uint32_t peer = channel->tag;
    const bool ours = peer < p->limits.peers_max && p->peers[peer].channel == channel;

    return ours && p->peers[peer].state == PUMP_PEER_LIVE ? pump_session_read(p, peer) : 0;
}

static int read_endpoint(struct hlg_pump *p, const struct hlg_transport *t)
{
    const uint32_t each = p->lanes * p->rails;
    const uint32_t domain = t->tag / each;

    return domain < p->domain_count && p->domains[domain].endpoints[t->tag % each].transport == t
               ? pump_domain_poll(p, t->tag)
               : 0;
}

/* Look only where something is: the fabric knows of channels as well. */
static int read_ready(struct hlg_pump *p)
{
    struct hlg_ready ready;
    int work = 0;

    /* What the fabric told of a channel before it was ours is lost. */
    for (uint32_t i = 0; p->any_unread && i < p->peers_used; i++) {
        if (p->peers[i].unread && p->peers[i].state == PUMP_PEER_LIVE) {
            work += pump_session_read(p, i);
        }
        p->peers[i].unread = false;
    }
    p->any_unread = false;
    for (uint32_t i = 0; i < READY_PER_STEP_MAX && p->fabric->ready(p->fabric, &ready); i++) {
        work += ready.channel != NULL ? read_channel(p, ready.channel)
                                      : read_endpoint(p, ready.transport);
    }
    pump_domains_say_room(p);
    pump_carry_node(p);
    return work;
}

static int read_all(struct hlg_pump *p, bool due)
{
    const hlg_time now = hlg_pump_now(p);
    int work = 1; /* nobody may sleep before the channels were looked at */

    if (!p->busy || now >= p->channels_due) {
        work = pump_sessions_read(p);
        const hlg_time then = hlg_pump_now(p);
        const hlg_time rest = hlg_min_time(CHANNELS_REST * (then - now), CHANNELS_NS_MAX);
        p->channels_due = then + hlg_max_u64(CHANNELS_NS, rest);
    }
    p->busy = false;
    if (hlg_pump_open(p) > 0) {
        p->linger = now + LINGER_NS;
    }
    if (due || now < p->linger) {
        const int events = pump_domains_poll(p);
        p->busy = events > 0;
        work += events;
        pump_carry_node(p);
    }
    return work;
}

int hlg_pump_write(struct hlg_pump *p)
{
    int work = 0;

    for (uint32_t lane = 0; p->role == HLG_ROLE_PREFILL && lane < p->lanes; lane++) {
        work += p->written[lane] == p->events ? 0 : carry_writes(p, lane);
    }
    return work;
}

int hlg_pump_step(struct hlg_pump *p)
{
    bool due = hlg_pump_deadline(p) <= hlg_pump_now(p);
    int work = 0;

    if (due) {
        struct hlg_event event = {.kind = HLG_EVENT_TIME};
        int error = pump_feed(p, &event);
        HLG_ASSERT(error == 0);
        work++;
    }
    pump_carry_node(p);
    work += p->fabric->ready != NULL ? read_ready(p) : read_all(p, due);
    if (pump_flush_busy(p)) {
        work += pump_flush_step(p);
        pump_carry_node(p);
    }
    return work + hlg_pump_write(p);
}

hlg_time hlg_pump_deadline(const struct hlg_pump *p)
{
    return p->machine.deadline(p->machine.memory);
}

int hlg_pump_wait_fds(struct hlg_pump *p, struct pollfd *fds, uint32_t capacity, bool endpoints)
{
    uint32_t count = 0;

    if (endpoints && pump_flush_busy(p)) {
        return -HLG_ESTATE; /* a device wakes nobody */
    }
    for (uint32_t i = 0; i < p->peers_used; i++) {
        struct pump_peer *peer = &p->peers[i];
        short events = 0;
        if (peer->state != PUMP_PEER_LIVE) {
            continue;
        }
        int fd = peer->channel->ops->wait_fd(peer->channel, &events);
        if (fd < 0 || count == capacity) {
            return -HLG_ELIMIT;
        }
        fds[count++] = (struct pollfd){.fd = fd, .events = events};
    }
    for (uint32_t i = 0; endpoints && i < p->domain_count * p->lanes * p->rails; i++) {
        const struct pump_domain *domain = &p->domains[i / (p->lanes * p->rails)];
        struct hlg_transport *t = domain->endpoints[i % (p->lanes * p->rails)].transport;
        if (t == NULL) {
            continue;
        }
        int fd = t->ops->wait_fd(t);
        if (fd < 0) {
            return fd;
        }
        if (count == capacity) {
            return -HLG_ELIMIT;
        }
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return (int)count;
}

uint32_t hlg_pump_open(const struct hlg_pump *p)
{
    return p->machine.open(p->machine.memory);
}

bool hlg_pump_awaits(const struct hlg_pump *p)
{
    return p->machine.awaits(p->machine.memory);
}

int hlg_pump_check(const struct hlg_pump *p)
{
    return p->machine.check(p->machine.memory);
}

void hlg_pump_stats(const struct hlg_pump *p, struct hlg_pump_stats *stats)
{
    *stats = p->stats;
    p->machine.stats(p->machine.memory, stats);
}
