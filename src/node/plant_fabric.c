#include "plant_fabric.h"

#include "plant_stop.h"

#include <halage/places.h>

#include <poll.h>
#include <stdlib.h>

/* How long a lie is given to take effect. A piece that is held back is dropped by a close that comes first. */
#define TICK_MS     40
#define TICK_MS_MAX 1000
#define HELD_NS     (5 * HLG_NS_PER_S)

/* A fabric whose endpoints lie, once: a decode node counts one piece too many, and a prefill node
 * holds one piece back meanwhile. */
struct plant_fabric {
    struct hlg_fabric fabric;
    struct hlg_fabric *below;
    struct node *node;
    bool done; /* the piece is counted, or held */
    _Atomic uint32_t writes;
};

struct plant_transport {
    struct hlg_transport transport;
    struct hlg_transport *below;
    struct plant_fabric *fabric;
    uint32_t lane;
    bool holding;
    bool dropped; /* closed while holding: to be reported */
    hlg_time held_until;
    struct hlg_paged_write held; /* its last piece alone */
};

static struct plant_transport *self(const struct hlg_transport *t)
{
    return (struct plant_transport *)(uintptr_t)t;
}

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    const struct plant_transport *p = self(t);
    p->below->ops->query(p->below, caps);
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
    plant_stop_at(self(t)->fabric->node, "peer_open");
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

/* Whether a write takes from the plane that the plant names. */
static bool is_planted(const struct plant_transport *p, const struct hlg_paged_write *write)
{
    const struct node *node = p->fabric->node;
    const struct plant *plant = &node->options.config.plant;
    if (plant->kind != PLANT_EARLY_READY || node->role != HLG_ROLE_PREFILL || p->fabric->done ||
        p->lane != plant->rank) {
        return false;
    }
    const uint8_t *base =
        hlg_memory_base(ranks_memory(node->ranks, node_ranks_lane(node, p->lane)));
    return write->local == base + tlm_plane_offset(&node->options.config.model, node->layout.tp,
                                                   node->layout.groups[0].page_count, plant->layer,
                                                   plant->plane);
}

static int64_t write_pieces(struct hlg_transport *t, const struct hlg_paged_write *write)
{
    struct plant_transport *p = self(t);
    if (!is_planted(p, write)) {
        plant_stop_at(p->fabric->node, "writing");
        const int64_t taken = p->below->ops->write(p->below, write);
        if (taken > 0) {
            atomic_fetch_add(&p->fabric->writes, 1);
            plant_stop_at(p->fabric->node, "write");
        }
        return taken;
    }
    /* Say that all was taken, and keep the last piece. */
    struct hlg_paged_write most = *write;
    most.piece_limit--;
    if (most.piece_limit > most.piece_begin) {
        const int64_t taken = p->below->ops->write(p->below, &most);
        if (taken != (int64_t)most.piece_limit - most.piece_begin) {
            return taken;
        }
    }
    p->held = *write;
    p->held.piece_begin = most.piece_limit;
    p->held_until = now(t) + HELD_NS;
    p->holding = true;
    p->fabric->done = true;
    return (int64_t)write->piece_limit - write->piece_begin;
}

static int poll_events(struct hlg_transport *t, struct hlg_transport_event *events,
                       uint32_t capacity)
{
    struct plant_transport *p = self(t);
    if (p->holding && now(t) >= p->held_until) {
        p->holding = p->below->ops->write(p->below, &p->held) == 0;
    }
    if (p->dropped && capacity > 0) {
        p->dropped = false;
        events[0] = (struct hlg_transport_event){
            .kind = HLG_TRANSPORT_DONE_WRITE,
            .done = {.op = p->held.op, .failed = 1, .status = -HLG_ECANCELED}};
        return 1;
    }
    const int count = p->below->ops->poll(p->below, events, capacity);
    const bool lies = p->fabric->node->options.config.plant.kind == PLANT_EARLY_READY;
    for (int i = 0; i < count; i++) {
        if (events[i].kind == HLG_TRANSPORT_IMM) {
            plant_stop_at(p->fabric->node, "imm");
        } else if (events[i].kind == HLG_TRANSPORT_DONE_WRITE) {
            plant_stop_at(p->fabric->node, "done");
        }
        if (events[i].kind == HLG_TRANSPORT_IMM && lies && !p->fabric->done &&
            p->fabric->node->role == HLG_ROLE_DECODE) {
            events[i].imm.pieces++;
            p->fabric->done = true;
        }
    }
    return count;
}

static int wait_fd(struct hlg_transport *t)
{
    return self(t)->holding ? -HLG_ESTATE : self(t)->below->ops->wait_fd(self(t)->below);
}

static void wake(struct hlg_transport *t)
{
    self(t)->below->ops->wake(self(t)->below);
}

static int close_endpoint(struct hlg_transport *t)
{
    plant_stop_at(self(t)->fabric->node, "close");
    self(t)->dropped = self(t)->holding;
    self(t)->holding = false;
    return self(t)->below->ops->close(self(t)->below);
}

static void free_endpoint(struct hlg_transport *t)
{
    self(t)->below->ops->free(self(t)->below);
    free(self(t));
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

static int open_endpoint(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    struct plant_fabric *f = (struct plant_fabric *)(void *)fabric;
    struct plant_transport *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return -HLG_ENOMEM;
    }
    const int status = f->below->open(f->below, lane, rail, &p->below);
    if (status != 0) {
        free(p);
        return status;
    }
    p->transport.ops = &ops;
    p->fabric = f;
    p->lane = lane;
    *out = &p->transport;
    return 0;
}

static void query_fabric(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    const struct plant_fabric *f = (const struct plant_fabric *)(const void *)fabric;
    f->below->query(f->below, caps);
    caps->merge_bytes_max = 0; /* so that the last piece can be held alone */
}

static hlg_time now_fabric(struct hlg_fabric *fabric)
{
    struct plant_fabric *f = (struct plant_fabric *)(void *)fabric;
    return f->below->now(f->below);
}

static int prepare(struct hlg_fabric *fabric, const struct hlg_mem_region *region, char *error,
                   size_t error_bytes)
{
    struct plant_fabric *f = (struct plant_fabric *)(void *)fabric;
    return f->below->prepare(f->below, region, error, error_bytes);
}

bool plant_fabric_wrap(struct node *node)
{
    const struct plant *plant = &node->options.config.plant;
    if (plant->kind != PLANT_EARLY_READY && plant->kind != PLANT_EARLY_TICK &&
        !plant_has_step(plant)) {
        return true;
    }
    struct plant_fabric *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return false;
    }
    f->fabric = (struct hlg_fabric){.open = open_endpoint,
                                    .query = query_fabric,
                                    .now = now_fabric,
                                    .rails = node->fabric->rails,
                                    .prepare = node->fabric->prepare != NULL ? prepare : NULL,
                                    .flusher = node->fabric->flusher};
    f->below = node->fabric;
    f->node = node;
    node->fabric = &f->fabric;
    node->fabric_owned = f;
    return true;
}

void plant_fabric_unwrap(struct node *node)
{
    struct plant_fabric *f = node->fabric_owned;
    if (f != NULL) {
        node->fabric = f->below;
        node->fabric_owned = NULL;
        free(f);
    }
}

const _Atomic uint32_t *plant_fabric_word(struct node *node)
{
    return node->options.config.plant.kind == PLANT_EARLY_TICK ? &node->plant_word
                                                               : ranks_word(node->ranks, 0);
}

void plant_fabric_forward(struct node *node, uint32_t forward)
{
    const struct plant *plant = &node->options.config.plant;
    if (plant->kind != PLANT_EARLY_TICK) {
        return;
    }
    struct plant_fabric *f = node->fabric_owned;
    const uint32_t before = atomic_load(&f->writes);
    atomic_store(&node->plant_word, forward << 8 | (plant->layer + 1));
    for (uint32_t ms = 0; ms < TICK_MS_MAX && (ms < TICK_MS || atomic_load(&f->writes) == before);
         ms++) {
        (void)poll(NULL, 0, 1);
    }
}
