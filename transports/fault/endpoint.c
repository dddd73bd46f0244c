/* Endpoints: opening, closing, and the calls that go straight to the one below. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static struct endpoint *endpoint_of(struct hlg_transport *t)
{
    return (struct endpoint *)t; /* transport is the first member */
}

/* ---- open ----------------------------------------------------------------------------------- */

static void give_memory(struct endpoint *e)
{
    free(e->peers);
    free(e->helds);
    free(e->flights);
    free(e->reports);
    free(e->imms);
    free(e->late);
    e->peers = NULL;
    e->helds = NULL;
    e->flights = NULL;
    e->reports = NULL;
    e->imms = NULL;
    e->late = NULL;
}

static bool take_memory(struct endpoint *e)
{
    const struct hlg_fault_config *c = &e->fault->config;

    /* Each piece taken, each that waits and its shadow, and late ones may be under way at a time. */
    e->flights_max = e->caps.pieces_max + 2 * c->held_max + LATE_SLOTS;
    e->peers = calloc(c->peers_max, sizeof(*e->peers));
    e->helds = calloc(c->held_max, sizeof(*e->helds));
    e->flights = calloc(e->flights_max, sizeof(*e->flights));
    e->reports = calloc(e->caps.pieces_max, sizeof(*e->reports));
    e->imms = calloc(c->held_max, sizeof(*e->imms));
    if (e->peers == NULL || e->helds == NULL || e->flights == NULL || e->reports == NULL ||
        e->imms == NULL) {
        return false;
    }
    for (uint32_t index = 0; index < c->held_max; index++) {
        e->helds[index].next = index + 1 < c->held_max ? index + 1 : HLG_NONE;
    }
    for (uint32_t index = 0; index < e->flights_max; index++) {
        e->flights[index].next_free = index + 1 < e->flights_max ? index + 1 : HLG_NONE;
    }
    e->held_first = HLG_NONE;
    e->held_last = HLG_NONE;
    e->held_free = 0;
    e->flight_free = 0;
    return true;
}

/* Room for copies of late writes. Where below has no registration left for it there are none. */
static void take_late(struct endpoint *e)
{
    const uint64_t bytes = (uint64_t)LATE_SLOTS * e->fault->config.late_bytes_max;

    e->late = bytes != 0 ? calloc(bytes, 1) : NULL;
    if (e->late != NULL &&
        e->below->ops->mem_register(e->below, &HLG_MEM_HOST(e->late, bytes), &e->late_mem) != 0) {
        free(e->late);
        e->late = NULL;
    }
}

static struct endpoint *find_free(struct hlg_fault *f)
{
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        if (f->endpoints[index].state == ENDPOINT_FREE) {
            return &f->endpoints[index];
        }
    }
    return NULL;
}

int fault_endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                        struct hlg_transport **out)
{
    const struct node *node = (const struct node *)fabric; /* fabric is the first member */
    struct hlg_fault *f = node->fault;

    fault_tick(f);
    if (!node->alive) {
        return -HLG_ESTATE;
    }
    struct endpoint *e = find_free(f);
    struct hlg_transport *below = NULL;

    if (e == NULL) {
        return -HLG_ELIMIT;
    }
    const int error = node->below->open(node->below, lane, rail, &below);

    if (error != 0) {
        return error;
    }
    *e = (struct endpoint){.transport = {.ops = &fault_endpoint_ops},
                           .fault = f,
                           .below = below,
                           .node = node->index,
                           .lane = lane,
                           .rail = rail};
    below->ops->query(below, &e->caps);
    if (!take_memory(e)) {
        give_memory(e);
        below->ops->free(below);
        return -HLG_ENOMEM;
    }
    take_late(e);
    e->state = ENDPOINT_OPEN;
    *out = &e->transport;
    return 0;
}

/* ---- straight through ----------------------------------------------------------------------- */

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    *caps = ((const struct endpoint *)t)->caps;
}

static hlg_time now(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    fault_tick(e->fault);
    return fault_clock(e->fault, e->node, e->below->ops->now(e->below));
}

static int address(struct hlg_transport *t, uint8_t *bytes, uint32_t capacity)
{
    struct endpoint *e = endpoint_of(t);
    const int count = e->below->ops->address(e->below, bytes, capacity);

    if (count > 0 && (uint32_t)count <= sizeof(e->address)) {
        memcpy(e->address, bytes, (uint32_t)count);
        e->address_bytes = (uint32_t)count;
    }
    return count;
}

/* Whose address that is, the latest where it was used twice; rows keep it until they are used again. */
static uint32_t node_at(const struct hlg_fault *f, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        const struct endpoint *e = &f->endpoints[index];

        if (count != 0 && e->address_bytes == count && memcmp(e->address, bytes, count) == 0) {
            return e->node;
        }
    }
    return HLG_NONE;
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    struct endpoint *e = endpoint_of(t);
    uint32_t row = 0;

    fault_tick(e->fault);
    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    while (row < e->fault->config.peers_max && e->peers[row].used) {
        row++;
    }
    if (row == e->fault->config.peers_max) {
        return -HLG_ELIMIT;
    }
    const int below = e->below->ops->peer_open(e->below, bytes, count);

    if (below < 0) {
        return below;
    }
    e->peers[row] = (struct peer){.used = true,
                                  .below = (uint32_t)below,
                                  .node = node_at(e->fault, bytes, count),
                                  .refused_since = HLG_TIME_NEVER};
    return (int)row;
}

static int peer_close(struct hlg_transport *t, uint32_t row)
{
    struct endpoint *e = endpoint_of(t);

    fault_tick(e->fault);
    if (row >= e->fault->config.peers_max || !e->peers[row].used || e->peers[row].closing) {
        return -HLG_EINVAL;
    }
    e->peers[row].closing = true;
    fault_peer_settle(e, &e->peers[row]);
    return 0;
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem)
{
    struct endpoint *e = endpoint_of(t);

    fault_tick(e->fault);
    return e->state == ENDPOINT_OPEN ? e->below->ops->mem_register(e->below, region, mem)
                                     : -HLG_ESTATE;
}

static int mem_export(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out)
{
    struct endpoint *e = endpoint_of(t);

    return e->below->ops->mem_export(e->below, mem, out);
}

static int mem_release(struct hlg_transport *t, hlg_mem mem)
{
    struct endpoint *e = endpoint_of(t);

    return e->below->ops->mem_release(e->below, mem);
}

/* Nobody tells a sleeper when what waits here is due. */
static int wait_fd(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    fault_tick(e->fault);
    if (e->state != ENDPOINT_OPEN || e->held_count != 0 || e->imm_count != 0 ||
        e->report_count != 0 || fault_rule_freezes(e->fault, e->node)) {
        return -HLG_ESTATE;
    }
    return e->below->ops->wait_fd(e->below);
}

static void wake(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    e->below->ops->wake(e->below);
}

/* ---- close ---------------------------------------------------------------------------------- */

/* Nothing waits any more; late writes stay where they are. */
static void end_all(struct endpoint *e)
{
    fault_held_fail(e, HLG_NONE, -HLG_ECANCELED);
    e->imm_count = 0;
    HLG_ASSERT(e->held_count == 0 && e->held_first == HLG_NONE);
}

void fault_endpoint_kill(struct endpoint *e)
{
    HLG_ASSERT(e->state == ENDPOINT_OPEN);
    end_all(e);
    e->state = ENDPOINT_DEAD;
    e->close_status = e->below->ops->close(e->below);
}

void fault_endpoint_bury(struct endpoint *e)
{
    if (e->state == ENDPOINT_ZOMBIE) {
        fault_endpoint_reap(e);
    } else if (e->state == ENDPOINT_CLOSED && e->muted) {
        e->muted_until = 0;
        (void)e->below->ops->close(e->below);
    }
}

/* The one below stays open for `span`: what is under way lands. The caller is told that it is over. */
static void fail_close(struct endpoint *e, hlg_time span)
{
    for (uint32_t index = 0; index < e->flights_max; index++) {
        const struct flight *flight = &e->flights[index];

        if (flight->used && (flight->kind == FLIGHT_PLAIN || flight->kind == FLIGHT_FAIL)) {
            fault_report_add(e, flight->op, flight->outstanding, -HLG_ECANCELED);
        }
    }
    e->muted = true;
    e->muted_until = hlg_time_after(fault_now(e->fault), span);
    e->close_status = -HLG_EIO;
}

static int close_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);
    hlg_time span;

    fault_tick(e->fault);
    HLG_ASSERT(e->state != ENDPOINT_FREE && e->state != ENDPOINT_ZOMBIE);
    if (e->state == ENDPOINT_OPEN) {
        const struct occasion o = fault_endpoint_occasion(e, HLG_NONE, fault_now(e->fault));

        end_all(e);
        if (fault_rule_strikes(e->fault, HLG_FAULT_CLOSE_FAILS, &o, &span)) {
            fail_close(e, span);
        } else {
            e->close_status = e->below->ops->close(e->below);
        }
    }
    e->state = ENDPOINT_CLOSED;
    return e->close_status;
}

void fault_endpoint_reap(struct endpoint *e)
{
    if (e->state == ENDPOINT_ZOMBIE) {
        e->fault->zombies--;
    }
    e->state = ENDPOINT_FREE;
    e->below->ops->free(e->below);
    give_memory(e);
}

static void free_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    (void)close_endpoint(t);
    if (e->muted && fault_now(e->fault) < e->muted_until) {
        e->state = ENDPOINT_ZOMBIE;
        e->fault->zombies++;
        return;
    }
    fault_endpoint_reap(e);
}

const struct hlg_transport_ops fault_endpoint_ops = {
    .query = query,
    .now = now,
    .address = address,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .mem_register = mem_register,
    .mem_export = mem_export,
    .mem_release = mem_release,
    .write = fault_endpoint_write,
    .poll = fault_endpoint_poll,
    .wait_fd = wait_fd,
    .wake = wake,
    .close = close_endpoint,
    .free = free_endpoint,
};
