/*
 * A fabric between a pump and its network that changes nothing: it shows the checkers each piece as it
 * is posted, counts endpoints, and is where faults of a transport are planted.
 */
#include "world.h"

#include <stdlib.h>
#include <string.h>

struct tap {
    struct hlg_fabric fabric;
    struct hlg_fabric *below;
    struct node *node;
    uint32_t endpoints; /* open */
};

struct tap_endpoint {
    struct hlg_transport transport;
    struct hlg_transport *below;
    struct tap *tap;
    uint32_t lane;
    uint32_t polls;
};

static struct tap_endpoint *self(const struct hlg_transport *t)
{
    return (struct tap_endpoint *)(uintptr_t)t;
}

static bool is_planted(const struct tap *tap, enum storm_plant plant)
{
    return tap->node->world->what.plant == plant;
}

/* Whether the plant that happens once happens now. */
static bool plant_once(const struct tap *tap, enum storm_plant plant)
{
    struct world *w = tap->node->world;

    if (w->what.plant != plant || w->planted) {
        return false;
    }
    w->planted = true;
    return true;
}

static void tell_caps(const struct tap *tap, struct hlg_transport_caps *caps)
{
    caps->domains_max = tap->node->world->domains;
    if (is_planted(tap, PLANT_WIDE_WINDOW)) {
        caps->cq_depth *= 16;
    }
    caps->placed = caps->placed || is_planted(tap, PLANT_SAID_PLACED);
}

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    self(t)->below->ops->query(self(t)->below, caps);
    tell_caps(self(t)->tap, caps);
}

static hlg_time now(struct hlg_transport *t)
{
    return self(t)->below->ops->now(self(t)->below);
}

static int address(struct hlg_transport *t, uint8_t *bytes, uint32_t capacity)
{
    return self(t)->below->ops->address(self(t)->below, bytes, capacity);
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    return self(t)->below->ops->peer_open(self(t)->below, bytes, count);
}

static int peer_close(struct hlg_transport *t, uint32_t peer)
{
    return self(t)->below->ops->peer_close(self(t)->below, peer);
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem)
{
    return self(t)->below->ops->mem_register(self(t)->below, region, mem);
}

static int mem_export(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out)
{
    return self(t)->below->ops->mem_export(self(t)->below, mem, out);
}

static int mem_release(struct hlg_transport *t, hlg_mem mem)
{
    return self(t)->below->ops->mem_release(self(t)->below, mem);
}

static int64_t write_pieces(struct hlg_transport *t, const struct hlg_paged_write *write)
{
    struct tap_endpoint *e = self(t);
    struct hlg_paged_write moved = *write;

    if (write->target_pages[write->piece_begin / write->count] > 0 &&
        plant_once(e->tap, PLANT_WRONG_PAGE)) {
        moved.remote -= moved.remote_stride;
    }
    int64_t taken = e->below->ops->write(e->below, &moved);
    for (int64_t i = 0; i < taken; i++) {
        check_post(e->tap->node, e->lane,
                   hlg_paged_write_source(write, write->piece_begin + (uint32_t)i), write->bytes);
    }
    return taken;
}

static int poll_events(struct hlg_transport *t, struct hlg_transport_event *events,
                       uint32_t capacity)
{
    struct tap_endpoint *e = self(t);

    if (is_planted(e->tap, PLANT_WIDE_WINDOW) && e->tap->node->decode && ++e->polls % 1024 != 0) {
        return 0; /* only who polls seldom has much unread */
    }
    int count = e->below->ops->poll(e->below, events, capacity);

    if (count > 0 && events[0].kind == HLG_TRANSPORT_IMM && plant_once(e->tap, PLANT_COUNT_MORE)) {
        events[0].imm.pieces++;
    }
    if (count > 0 && events[count - 1].kind == HLG_TRANSPORT_DONE_WRITE &&
        plant_once(e->tap, PLANT_DONE_LOST)) {
        count--;
    }
    return count;
}

static int wait_fd(struct hlg_transport *t)
{
    return self(t)->below->ops->wait_fd(self(t)->below);
}

static void wake(struct hlg_transport *t)
{
    self(t)->below->ops->wake(self(t)->below);
}

static int close_endpoint(struct hlg_transport *t)
{
    return self(t)->below->ops->close(self(t)->below);
}

static void free_endpoint(struct hlg_transport *t)
{
    struct tap_endpoint *e = self(t);

    if (!plant_once(e->tap, PLANT_ENDPOINT_LEAK)) {
        e->tap->endpoints--;
        e->tap->node->world->endpoints--;
    }
    e->below->ops->free(e->below);
    free(e);
}

static const struct hlg_transport_ops ops = {
    .query = query,
    .now = now,
    .address = address,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .mem_register = mem_register,
    .mem_export = mem_export,
    .mem_release = mem_release,
    .write = write_pieces,
    .poll = poll_events,
    .wait_fd = wait_fd,
    .wake = wake,
    .close = close_endpoint,
    .free = free_endpoint,
};

static struct tap *tap_of(const struct hlg_fabric *fabric)
{
    return (struct tap *)(uintptr_t)fabric;
}

static int open_endpoint(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    struct tap *tap = tap_of(fabric);
    struct tap_endpoint *e = calloc(1, sizeof *e);
    struct world *w = tap->node->world;

    if (e == NULL) {
        return -HLG_ENOMEM;
    }
    int error = tap->below->open(tap->below, lane, rail, &e->below);
    if (error != 0) {
        free(e);
        return error;
    }
    e->transport.ops = &ops;
    e->tap = tap;
    e->lane = lane;
    *out = &e->transport;
    w->endpoints++;
    looked(w, CHECK_BOUND);
    if (++tap->endpoints > w->domains * tap->node->lanes * w->rails) {
        world_break(w, CHECK_BOUND, "more endpoints are open than lanes, rails and domains allow",
                    tap->endpoints, tap->node->index);
    }
    return 0;
}

static void query_fabric(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    const struct tap *tap = tap_of(fabric);

    tap->below->query(tap->below, caps);
    tell_caps(tap, caps);
}

static hlg_time now_fabric(struct hlg_fabric *fabric)
{
    return tap_of(fabric)->below->now(tap_of(fabric)->below);
}

struct hlg_fabric *tap_open(struct node *n, struct hlg_fabric *below)
{
    struct tap *tap = calloc(1, sizeof *tap);

    HLG_ASSERT(n->tap == NULL);
    if (tap == NULL) {
        return NULL;
    }
    tap->fabric = (struct hlg_fabric){
        .open = open_endpoint, .query = query_fabric, .now = now_fabric, .rails = below->rails};
    tap->below = below;
    tap->node = n;
    n->tap = tap;
    return &tap->fabric;
}

void tap_close(struct node *n)
{
    if (n->tap != NULL && n->tap->endpoints != 0) {
        world_break(n->world, CHECK_BOUND, "a node that went left endpoints open",
                    n->tap->endpoints, n->index);
    }
    free(n->tap);
    n->tap = NULL;
}
