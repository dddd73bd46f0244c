/*
 * Channels: two queues of frames. A frame lies in its receiver's ring from the moment it is sent and
 * counts as arrived when its happening is performed.
 */
#include <string.h>

#include "internal.h"

#define NAME         "simgrid node "
#define NAME_BYTES   (sizeof(NAME) - 1)
#define LENGTH_BYTES 4u /* a frame's first bytes: the length of what follows them */

static struct side *side_of(struct hlg_channel *c)
{
    return (struct side *)c; /* channel is the first member */
}

static struct pair *pair_of(const struct side *s)
{
    return &s->sim->pairs[s->pair];
}

static uint32_t number_of(const struct side *s)
{
    return s == &pair_of(s)->sides[0] ? 0 : 1;
}

static struct side *other_of(const struct side *s)
{
    return &pair_of(s)->sides[1 - number_of(s)];
}

static void put(struct side *s, hlg_time when, uint32_t kind)
{
    pair_of(s)->scheduled++;
    schedule_put(s->sim, when, kind, s->pair, number_of(s));
}

/* The two ends are rows of a table; they are free once nobody holds them and nothing is due. */
static void settle(struct hlg_simgrid *sim, struct pair *pair)
{
    if (pair->used && !pair->sides[0].open && !pair->sides[1].open && pair->scheduled == 0) {
        pair->used = false;
        pair->next = sim->pair_free;
        sim->pair_free = hlg_u32((uint64_t)(pair - sim->pairs));
    }
}

/* NULL: all are in use. */
static struct pair *take_pair(struct hlg_simgrid *sim)
{
    struct pair *pair;

    if (sim->pair_free != HLG_NONE) {
        pair = &sim->pairs[sim->pair_free];
        sim->pair_free = pair->next;
    } else if (sim->pair_fresh < sim->config.channels_max) {
        pair = &sim->pairs[sim->pair_fresh++];
    } else {
        return NULL;
    }
    HLG_ASSERT(!pair->used && pair->scheduled == 0);
    pair->used = true;
    return pair;
}

static void end_later(struct side *s, hlg_time when)
{
    if (!s->open || s->ended || s->ending) {
        return;
    }
    s->ending = true;
    put(s, when, HAPPENING_END);
}

/* Bytes of the ring, whose end may lie between. */
static void ring_write(struct side *s, const uint8_t *bytes, uint32_t count)
{
    const uint32_t capacity = s->sim->ring_capacity;
    const uint32_t begin = (s->ring_head + s->ring_bytes) % capacity;
    const uint32_t straight = hlg_min_u32(count, capacity - begin);

    HLG_ASSERT(count <= capacity - s->ring_bytes);
    memcpy(s->ring + begin, bytes, straight);
    memcpy(s->ring, bytes + straight, count - straight);
    s->ring_bytes += count;
}

static void ring_read(struct side *s, uint8_t *bytes, uint32_t count)
{
    const uint32_t capacity = s->sim->ring_capacity;
    const uint32_t straight = hlg_min_u32(count, capacity - s->ring_head);

    HLG_ASSERT(count <= s->ring_bytes);
    memcpy(bytes, s->ring + s->ring_head, straight);
    memcpy(bytes + straight, s->ring, count - straight);
    s->ring_head = (s->ring_head + count) % capacity;
    s->ring_bytes -= count;
    if (s->ring_bytes == 0) {
        s->ring_head = 0; /* so that it touches no more memory than it needs */
    }
}

static bool has_room(const struct side *s, uint32_t bytes)
{
    const struct hlg_simgrid_config *config = &s->sim->config;

    return s->frame_count == 0 ||
           (s->frame_count < config->frames_max && s->ring_bytes <= config->room_bytes &&
            bytes <= config->room_bytes - s->ring_bytes);
}

static int send_frame(struct hlg_channel *c, const uint8_t *frame, uint32_t bytes)
{
    struct side *s = side_of(c);
    struct side *to = other_of(s);
    struct hlg_simgrid *sim = s->sim;
    hlg_time arrival;

    HLG_ASSERT(s->open && bytes >= LENGTH_BYTES);
    if (bytes > sim->config.message_bytes_max) {
        return -HLG_ELIMIT;
    }
    if (s->ended) {
        return -HLG_EPEER;
    }
    if (!to->open || to->ended) {
        return 1; /* as with a socket: the end is on its way, and the frame is lost */
    }
    if (!has_room(to, bytes)) {
        s->refused = true;
        return 0;
    }
    ring_write(to, frame, bytes);
    to->sizes[(to->frame_head + to->frame_count++) % sim->config.frames_max] = bytes;
    arrival = sim->now + sim->config.frame_ns;
    to->last_arrival = arrival > to->last_arrival ? arrival : to->last_arrival;
    put(to, to->last_arrival, HAPPENING_FRAME);
    sim_trace(sim, 0, s->node, to->node, bytes);
    return 1;
}

static uint32_t frame_length(const uint8_t *frame)
{
    return (uint32_t)frame[0] | (uint32_t)frame[1] << 8 | (uint32_t)frame[2] << 16 |
           (uint32_t)frame[3] << 24;
}

/* After a receive. */
static void tell(struct side *s)
{
    if (s->arrived > 0 || (s->ended && !s->told)) {
        ready_put_side(s);
    } else {
        ready_drop_side(s);
    }
}

static int receive_frame(struct hlg_channel *c, const uint8_t **frame, uint32_t *bytes)
{
    struct side *s = side_of(c);
    uint32_t size;

    HLG_ASSERT(s->open && s->arrived <= s->frame_count);
    if (s->arrived == 0) {
        s->told = s->ended;
        tell(s);
        return s->ended ? -HLG_EPEER : 0;
    }
    size = s->sizes[s->frame_head];
    ring_read(s, s->frame, size);
    s->frame_head = (s->frame_head + 1) % s->sim->config.frames_max;
    s->frame_count--;
    s->arrived--;
    tell(s);
    if (other_of(s)->refused && other_of(s)->open) {
        other_of(s)->refused = false;
        ready_put_side(other_of(s));
    }
    if (frame_length(s->frame) != size - LENGTH_BYTES) {
        return -HLG_EPROTO;
    }
    *frame = s->frame;
    *bytes = size;
    return 1;
}

static int wait_fd(struct hlg_channel *c, short *events)
{
    (void)c;
    *events = 0;
    return -1;
}

static const char *name(struct hlg_channel *c)
{
    return side_of(c)->name;
}

/* What was sent still arrives, and then the end. */
static void close_side(struct hlg_channel *c)
{
    struct side *s = side_of(c);
    struct side *other = other_of(s);
    struct hlg_simgrid *sim = s->sim;
    const hlg_time end = sim->now + sim->config.frame_ns;

    HLG_ASSERT(s->open);
    ready_drop_side(s);
    s->open = false;
    end_later(other, end > other->last_arrival ? end : other->last_arrival);
    settle(sim, pair_of(s));
}

const struct hlg_channel_ops channel_ops = {
    .send = send_frame,
    .receive = receive_frame,
    .wait_fd = wait_fd,
    .name = name,
    .close = close_side,
};

static void put_name(struct side *s, uint32_t node)
{
    char digits[10];
    uint32_t count = 0;

    memcpy(s->name, NAME, NAME_BYTES);
    do {
        digits[count++] = (char)('0' + node % 10);
        node /= 10;
    } while (node != 0);
    for (uint32_t index = 0; index < count; index++) {
        s->name[NAME_BYTES + index] = digits[count - 1 - index];
    }
    s->name[NAME_BYTES + count] = 0;
}

static void open_side(struct side *s, uint32_t node, uint32_t peer)
{
    s->node = node;
    s->open = true;
    s->ended = false;
    s->ending = false;
    s->told = false;
    s->refused = false;
    s->last_arrival = s->sim->now;
    s->frame_head = 0;
    s->frame_count = 0;
    s->arrived = 0;
    s->ring_head = 0;
    s->ring_bytes = 0;
    put_name(s, peer);
    ready_put_side(s); /* whoever gets it has something to say */
}

int hlg_simgrid_channel_pair(struct hlg_simgrid *sim, uint32_t node_a, uint32_t node_b,
                             struct hlg_channel **a, struct hlg_channel **b)
{
    if (node_a >= sim->config.nodes || node_b >= sim->config.nodes) {
        return -HLG_EINVAL;
    }
    if (!sim->nodes[node_a].alive || !sim->nodes[node_b].alive) {
        return -HLG_ESTATE;
    }

    struct pair *pair = take_pair(sim);

    if (pair == NULL) {
        return -HLG_ELIMIT;
    }
    open_side(&pair->sides[0], node_a, node_b);
    open_side(&pair->sides[1], node_b, node_a);
    *a = &pair->sides[0].channel;
    *b = &pair->sides[1].channel;
    return 0;
}

void channel_on_frame(struct hlg_simgrid *sim, uint32_t index, uint32_t number)
{
    struct pair *pair = &sim->pairs[index];
    struct side *s = &pair->sides[number];

    HLG_ASSERT(pair->used && pair->scheduled > 0);
    pair->scheduled--;
    if (s->open && !s->ended) {
        HLG_ASSERT(s->arrived < s->frame_count);
        s->arrived++;
        ready_put_side(s);
        sim_trace(sim, HAPPENING_FRAME, s->node, index, s->arrived);
    }
    settle(sim, pair);
}

/* Frames that have not arrived never will. */
static void end_now(struct side *s)
{
    s->ended = true;
    ready_put_side(s);
    while (s->frame_count > s->arrived) {
        s->frame_count--;
        s->ring_bytes -= s->sizes[(s->frame_head + s->frame_count) % s->sim->config.frames_max];
    }
}

void channel_on_end(struct hlg_simgrid *sim, uint32_t index, uint32_t number)
{
    struct pair *pair = &sim->pairs[index];
    struct side *s = &pair->sides[number];

    HLG_ASSERT(pair->used && pair->scheduled > 0);
    pair->scheduled--;
    if (s->open && !s->ended) {
        end_now(s);
        sim_trace(sim, HAPPENING_END, s->node, index, s->arrived);
    }
    settle(sim, pair);
}

void channel_on_kill(struct hlg_simgrid *sim, uint32_t node)
{
    for (uint32_t index = 0; index < sim->pair_fresh; index++) {
        struct pair *pair = &sim->pairs[index];

        for (uint32_t number = 0; number < 2; number++) {
            struct side *s = &pair->sides[number];
            struct side *other = &pair->sides[1 - number];

            if (!pair->used || !s->open || s->ended || s->node != node) {
                continue;
            }
            end_now(s);
            end_later(other, sim->now + sim->config.frame_ns);
        }
    }
}
