/* Ends of channels: frames wait in a ring at their sender, in order, until they are due. */
#include <string.h>

#include "internal.h"

static struct end *end_of(struct hlg_channel *c)
{
    return (struct end *)c; /* channel is the first member */
}

static struct occasion occasion_of(const struct end *c, hlg_time now)
{
    return (struct occasion){c->node, c->peer, HLG_NONE, HLG_NONE, now};
}

uint32_t fault_end_frames(const struct end *c)
{
    return c->used ? c->frame_count : 0;
}

/* ---- the ring ------------------------------------------------------------------------------- */

static void ring_put(struct end *c, const uint8_t *bytes, uint32_t count, hlg_time due)
{
    const uint32_t capacity = c->fault->ring_bytes;
    const uint32_t frames_max = c->fault->config.frames_max;
    const uint32_t begin = (c->ring_head + c->ring_used) % capacity;
    const uint32_t straight = hlg_min_u32(count, capacity - begin);

    HLG_ASSERT(count <= capacity - c->ring_used && c->frame_count < frames_max);
    memcpy(c->ring + begin, bytes, straight);
    memcpy(c->ring, bytes + straight, count - straight);
    c->frames[(c->frame_head + c->frame_count) % frames_max] = (struct frame){count, due};
    c->ring_used += count;
    c->frame_count++;
}

/* The first frame in one stretch. */
static const uint8_t *ring_first(struct end *c)
{
    const uint32_t capacity = c->fault->ring_bytes;
    const uint32_t count = c->frames[c->frame_head].bytes;
    const uint32_t straight = hlg_min_u32(count, capacity - c->ring_head);

    if (straight == count) {
        return c->ring + c->ring_head;
    }
    memcpy(c->whole, c->ring + c->ring_head, straight);
    memcpy(c->whole + straight, c->ring, count - straight);
    return c->whole;
}

static void ring_drop(struct end *c)
{
    const uint32_t count = c->frames[c->frame_head].bytes;

    c->ring_head = (c->ring_head + count) % c->fault->ring_bytes;
    c->ring_used -= count;
    c->frame_head = (c->frame_head + 1) % c->fault->config.frames_max;
    c->frame_count--;
}

/* Send what is due; with `all`, what is not as well. */
static void flush(struct end *c, hlg_time now, bool all)
{
    c->stuck = false;
    while (c->below != NULL && c->frame_count > 0 &&
           !fault_rule_blocks(c->fault, c->node, c->peer) &&
           (all || now >= c->frames[c->frame_head].due)) {
        const int rc = c->below->ops->send(c->below, ring_first(c), c->frames[c->frame_head].bytes);

        if (rc < 0) {
            return; /* the caller is told by receive, after what came before the end */
        }
        if (rc == 0) {
            c->stuck = true;
            return;
        }
        ring_drop(c);
    }
}

/* ---- the calls ------------------------------------------------------------------------------ */

static void cut(struct end *c)
{
    if (c->below != NULL) {
        c->below->ops->close(c->below);
        c->below = NULL;
    }
    c->frame_count = 0;
    c->ring_used = 0;
    c->ring_head = 0;
}

void fault_end_kill(struct end *c)
{
    cut(c);
}

/* Holds the frame back. Returns 1, or 0 when there is no room. */
static int hold(struct end *c, const uint8_t *frame, uint32_t bytes, hlg_time due)
{
    if (c->frame_count == c->fault->config.frames_max ||
        bytes > c->fault->ring_bytes - c->ring_used) {
        return 0;
    }
    ring_put(c, frame, bytes, due);
    return 1;
}

/* A frame that may be sent, or has to wait behind others. */
static int send_or_hold(struct end *c, const uint8_t *frame, uint32_t bytes, hlg_time now)
{
    struct hlg_fault *f = c->fault;
    const struct occasion o = occasion_of(c, now);
    const struct hlg_rng before = f->rng;
    const uint32_t drop = fault_rule_draw(f, HLG_FAULT_FRAME_DROP, &o);
    const uint32_t delay =
        drop == HLG_NONE ? fault_rule_draw(f, HLG_FAULT_FRAME_DELAY, &o) : HLG_NONE;
    const bool waits =
        delay != HLG_NONE || c->frame_count > 0 || fault_rule_blocks(f, c->node, c->peer);
    int rc = 1;

    if (drop == HLG_NONE && waits) {
        rc = hold(c, frame, bytes, now);
    } else if (drop == HLG_NONE) {
        rc = c->below->ops->send(c->below, frame, bytes);
    }
    if (rc <= 0) {
        f->rng = before; /* drawn again when it is sent again */
        return rc;
    }
    fault_rule_occasion(f, HLG_FAULT_FRAME_DROP, &o);
    fault_rule_occasion(f, HLG_FAULT_FRAME_DELAY, &o);
    if (drop != HLG_NONE) {
        (void)fault_rule_hit(f, drop);
        cut(c);
    } else if (delay != HLG_NONE) {
        const uint32_t last = (c->frame_head + c->frame_count - 1) % f->config.frames_max;

        c->frames[last].due = hlg_time_after(now, fault_rule_hit(f, delay));
    }
    return 1;
}

static int send_frame(struct hlg_channel *channel, const uint8_t *frame, uint32_t bytes)
{
    struct end *c = end_of(channel);

    fault_tick(c->fault);
    HLG_ASSERT(c->used);
    if (c->below == NULL) {
        return -HLG_EPEER;
    }
    if (bytes > c->fault->config.message_bytes_max) {
        return -HLG_ELIMIT;
    }
    if (fault_rule_freezes(c->fault, c->node)) {
        return 0;
    }
    const hlg_time now = fault_now(c->fault);

    flush(c, now, false);
    return send_or_hold(c, frame, bytes, now);
}

static int receive_frame(struct hlg_channel *channel, const uint8_t **frame, uint32_t *bytes)
{
    struct end *c = end_of(channel);

    fault_tick(c->fault);
    HLG_ASSERT(c->used);
    if (c->below == NULL) {
        return -HLG_EPEER;
    }
    if (fault_rule_freezes(c->fault, c->node)) {
        return 0;
    }
    flush(c, fault_now(c->fault), false);
    if (fault_rule_blocks(c->fault, c->peer, c->node)) {
        return 0;
    }
    return c->below->ops->receive(c->below, frame, bytes);
}

static int wait_fd(struct hlg_channel *channel, short *events)
{
    struct end *c = end_of(channel);

    fault_tick(c->fault);
    *events = 0;
    if (c->below == NULL || c->frame_count > 0 || fault_rule_freezes(c->fault, c->node) ||
        fault_rule_blocks(c->fault, c->peer, c->node)) {
        return -1;
    }
    return c->below->ops->wait_fd(c->below, events);
}

static const char *name(struct hlg_channel *channel)
{
    return end_of(channel)->name;
}

static void close_end(struct hlg_channel *channel)
{
    struct end *c = end_of(channel);

    fault_tick(c->fault);
    HLG_ASSERT(c->used);
    if (!fault_rule_freezes(c->fault, c->node)) {
        flush(c, 0, true);
    }
    cut(c);
    c->used = false;
}

static const struct hlg_channel_ops end_ops = {
    .send = send_frame,
    .receive = receive_frame,
    .wait_fd = wait_fd,
    .name = name,
    .close = close_end,
};

static struct end *find_free(struct hlg_fault *f)
{
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        if (!f->ends[index].used) {
            return &f->ends[index];
        }
    }
    return NULL;
}

static int refuse(struct hlg_channel *below, int error)
{
    below->ops->close(below);
    return error;
}

int hlg_fault_channel(struct hlg_fault *f, uint32_t node, uint32_t peer, struct hlg_channel *below,
                      struct hlg_channel **out)
{
    if (below == NULL) {
        return -HLG_EINVAL;
    }
    if (node >= f->config.nodes || (peer != HLG_FAULT_ANY && peer >= f->config.nodes)) {
        return refuse(below, -HLG_EINVAL);
    }
    fault_tick(f);
    if (!f->nodes[node].alive) {
        return refuse(below, -HLG_ESTATE);
    }
    struct end *c = find_free(f);

    if (c == NULL) {
        return refuse(below, -HLG_ELIMIT);
    }
    const char *below_name = below->ops->name(below);
    size_t length = 0;

    while (length + 1 < sizeof(c->name) && below_name[length] != 0) {
        c->name[length] = below_name[length];
        length++;
    }
    c->name[length] = 0;
    c->channel = (struct hlg_channel){.ops = &end_ops};
    c->fault = f;
    c->below = below;
    c->used = true;
    c->stuck = false;
    c->node = node;
    c->peer = peer;
    c->frame_head = 0;
    c->frame_count = 0;
    c->ring_head = 0;
    c->ring_used = 0;
    *out = &c->channel;
    return 0;
}
