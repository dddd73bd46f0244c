/*
 * The life of a batch, which is what one call of write took: queued behind others to its peer, a
 * flow in SimGrid, sent once the operation clocks agree, landed, and told to its source. Whatever
 * becomes of it, at most one happening of it is scheduled at a time.
 */
#include <string.h>

#include "internal.h"

#define PS_PER_NS 1000u

static uint32_t index_of(const struct hlg_simgrid *sim, const struct batch *b)
{
    return hlg_u32((uint64_t)(b - sim->batches));
}

static struct peer *queue_of(struct hlg_simgrid *sim, const struct batch *b)
{
    return &sim->endpoints[b->source].peers[b->peer];
}

uint32_t batch_pieces(const struct batch *b)
{
    HLG_ASSERT(b->state != BATCH_FREE);
    HLG_ASSERT(b->write.piece_begin < b->write.piece_limit);
    return b->write.piece_limit - b->write.piece_begin;
}

/* A slot has writes_max batches at most, those lost included: the pool is as large. */
static struct batch *take_batch(struct hlg_simgrid *sim)
{
    uint32_t index = sim->batch_free;

    if (index == HLG_NONE) {
        HLG_ASSERT(sim->batch_fresh < sim->batch_count);
        index = sim->batch_fresh++;
    } else {
        sim->batch_free = sim->batches[index].next;
    }
    HLG_ASSERT(sim->batches[index].state == BATCH_FREE);
    sim->batch_used++;
    return &sim->batches[index];
}

static void give_back(struct hlg_simgrid *sim, struct batch *b)
{
    HLG_ASSERT(b->state != BATCH_FREE && sim->batch_used > 0);
    b->state = BATCH_FREE;
    b->next = sim->batch_free;
    sim->batch_free = index_of(sim, b);
    sim->batch_used--;
}

static void list(struct hlg_simgrid *sim, struct endpoint *e, struct batch *b)
{
    b->before = HLG_NONE;
    b->after = e->first;
    e->first = index_of(sim, b);
    if (b->after != HLG_NONE) {
        sim->batches[b->after].before = e->first;
    }
}

static void unlist(struct hlg_simgrid *sim, struct endpoint *e, const struct batch *b)
{
    if (b->before == HLG_NONE) {
        HLG_ASSERT(e->first == index_of(sim, b));
        e->first = b->after;
    } else {
        sim->batches[b->before].after = b->after;
    }
    if (b->after != HLG_NONE) {
        sim->batches[b->after].before = b->before;
    }
}

/* A batch whose source is gone ends at its next happening. */
static bool is_lost(struct hlg_simgrid *sim, struct batch *b)
{
    struct endpoint *e = &sim->endpoints[b->source];

    HLG_ASSERT(b->state != BATCH_FREE && b->state != BATCH_QUEUED);
    if (b->state != BATCH_LOST) {
        return false;
    }
    HLG_ASSERT(e->lost > 0);
    e->lost--;
    if (e->starved && e->state == ENDPOINT_OPEN) {
        ready_put_endpoint(e);
    }
    give_back(sim, b);
    return true;
}

/*
 * Queue the pieces in a NIC's operation clock. Rounding its end down loses nothing: the clock itself
 * goes on in picoseconds, and whoever comes next begins no earlier than that.
 */
static hlg_time charge(struct hlg_simgrid *sim, uint32_t nic, uint32_t pieces)
{
    uint64_t *free_ps = &sim->nics[nic].ops_ps;
    const uint64_t op_ps = sim->nodes[sim->nics[nic].node].config.op_ps;

    HLG_ASSERT(sim->now < UINT64_MAX / PS_PER_NS / 2); /* 106 days */
    if (*free_ps < sim->now * PS_PER_NS) {
        *free_ps = sim->now * PS_PER_NS;
    }
    *free_ps += pieces * op_ps;
    return *free_ps / PS_PER_NS;
}

static void send_at(struct hlg_simgrid *sim, struct batch *b, hlg_time when)
{
    b->state = BATCH_SENDING;
    schedule_put(sim, when > sim->now ? when : sim->now, HAPPENING_SENT, index_of(sim, b), 0);
}

/* One way, for bytes as for news. */
static hlg_time latency(const struct hlg_simgrid *sim, const struct batch *b)
{
    const hlg_time source = sim->nodes[sim->endpoints[b->source].self.node].config.latency_ns;
    const hlg_time target = sim->nodes[b->target.node].config.latency_ns;

    return (source + target) / 2; /* floor: whole nanoseconds */
}

/* Both NICs of a batch, its source's first. */
static struct nic *nic_of(struct hlg_simgrid *sim, const struct batch *b, uint32_t side)
{
    return &sim->nics[side == 0 ? sim->endpoints[b->source].self.nic : b->target.nic];
}

static void begin_move(struct hlg_simgrid *sim, struct batch *b)
{
    b->moving = true;
    for (uint32_t side = 0; side < 2; side++) {
        struct nic *nic = nic_of(sim, b, side);

        if (nic->moving[side]++ == 0) {
            nic->since[side] = sim->now;
        }
    }
}

/* `whole`: all its bytes have left. */
static void end_move(struct hlg_simgrid *sim, struct batch *b, bool whole)
{
    const uint64_t bytes = whole ? (uint64_t)batch_pieces(b) * b->write.bytes : 0;

    for (uint32_t side = 0; b->moving && side < 2; side++) {
        struct nic *nic = nic_of(sim, b, side);

        HLG_ASSERT(nic->moving[side] > 0);
        if (--nic->moving[side] == 0) {
            nic->stats.busy_ns[side] += sim->now - nic->since[side];
        }
        nic->stats.bytes[side] += bytes;
    }
    b->moving = false;
}

/* The head of a queue has its turn. */
static void start(struct hlg_simgrid *sim, struct batch *b)
{
    const uint32_t nic = sim->endpoints[b->source].self.nic;
    const uint32_t pieces = batch_pieces(b);
    const double bytes = (double)pieces * (double)b->write.bytes;

    HLG_ASSERT(b->state == BATCH_QUEUED);
    if (endpoint_find(sim, &b->target) == NULL || !sim->nics[nic].up ||
        !sim->nics[b->target.nic].up) {
        b->status = -HLG_EPEER;
        send_at(sim, b, sim->now);
        return;
    }
    begin_move(sim, b);
    b->ops_end = charge(sim, nic, pieces);
    if (nic == b->target.nic) {
        /* SimGrid has no route from a NIC to itself. */
        const double whole = sim->nodes[b->target.node].config.nic_bandwidth;
        const double span = bytes / (whole * sim->nics[nic].factor) * 1e9;
        const hlg_time end = sim->now + (hlg_time)span;

        send_at(sim, b, end > b->ops_end ? end : b->ops_end);
        return;
    }
    const hlg_time target_end = charge(sim, b->target.nic, pieces);

    b->ops_end = target_end > b->ops_end ? target_end : b->ops_end;
    flow_begin(sim, b, bytes);
}

void batch_post(struct endpoint *e, const struct hlg_paged_write *w, uint32_t pieces)
{
    struct hlg_simgrid *sim = e->sim;
    struct batch *b = take_batch(sim);
    const uint32_t index = index_of(sim, b);
    struct peer *queue = &e->peers[w->peer];

    HLG_ASSERT(pieces > 0);
    b->state = BATCH_QUEUED;
    b->source = e->self.slot;
    b->peer = w->peer;
    b->next = HLG_NONE;
    b->failed = 0;
    b->status = 0;
    b->landed = false;
    b->moving = false;
    b->mem_key = e->regions[w->mem].key;
    b->ops_end = 0;
    b->target = queue->place;
    b->write = *w;
    b->write.piece_limit = w->piece_begin + pieces;
    list(sim, e, b);
    e->writes++;
    e->pieces += pieces;
    queue->writes++;
    queue->pieces += pieces;
    if (queue->head != HLG_NONE) {
        sim->batches[queue->tail].next = index;
        queue->tail = index;
        return;
    }
    queue->head = index;
    queue->tail = index;
    start(sim, b);
}

void batch_on_flow(struct hlg_simgrid *sim, uint32_t index)
{
    struct batch *b = &sim->batches[index];

    flow_over(sim, b);
    if (b->state == BATCH_FLOW) {
        HLG_ASSERT(sim->flows > 0);
        sim->flows--;
    }
    sim_trace(sim, HAPPENING_FLOW, b->source, b->target.nic, b->write.op);
    if (b->ops_end > sim->now) {
        send_at(sim, b, b->ops_end);
    } else {
        b->state = BATCH_SENDING;
        batch_on_sent(sim, index);
    }
}

void batch_on_sent(struct hlg_simgrid *sim, uint32_t index)
{
    struct batch *b = &sim->batches[index];
    struct peer *queue;

    if (is_lost(sim, b)) {
        return;
    }
    HLG_ASSERT(b->state == BATCH_SENDING);
    queue = queue_of(sim, b);
    HLG_ASSERT(queue->head == index);
    end_move(sim, b, b->status == 0);
    queue->head = b->next;
    b->state = BATCH_SENT;
    schedule_put(sim, sim->now + latency(sim, b), HAPPENING_LAND, index, 0);
    if (queue->head != HLG_NONE) {
        start(sim, &sim->batches[queue->head]);
    }
}

static const struct region *find_region(const struct hlg_simgrid *sim, const struct endpoint *e,
                                        uint64_t key)
{
    for (uint32_t index = 0; index < sim->config.regions_max; index++) {
        if (e->regions[index].live && e->regions[index].key == key) {
            return &e->regions[index];
        }
    }
    return NULL;
}

static bool copy_piece(const struct batch *b, const struct region *region, uint32_t piece)
{
    const uint64_t remote = hlg_paged_write_target(&b->write, piece);
    const uint32_t bytes = b->write.bytes;

    if (remote < region->address || bytes > region->bytes ||
        remote - region->address > region->bytes - bytes) {
        return false;
    }
    /* memmove: a node may write to itself. */
    memmove(region->base + (remote - region->address), hlg_paged_write_source(&b->write, piece),
            bytes);
    return true;
}

/* Sets how many pieces failed, and why. */
static void land(struct hlg_simgrid *sim, struct batch *b, const struct endpoint *target)
{
    const struct region *source = &sim->endpoints[b->source].regions[b->write.mem];
    const struct region *region = find_region(sim, target, b->write.remote_key);
    uint32_t failed = 0;

    if (region == NULL || !source->live || source->key != b->mem_key) {
        failed = batch_pieces(b);
    } else if (sim->config.copy_bytes) {
        for (uint32_t piece = b->write.piece_begin; piece < b->write.piece_limit; piece++) {
            failed += !copy_piece(b, region, piece);
        }
    }
    b->landed = true;
    b->failed = failed;
    b->status = failed == 0 ? 0 : -HLG_EIO;
    sim_trace(sim, HAPPENING_LAND, (uint64_t)b->source << 32 | target->self.slot, b->write.op,
              (uint64_t)failed << 32 | b->write.imm);
}

/* Returns false when the target has no room for the immediates now. */
static bool deliver(const struct hlg_simgrid *sim, struct endpoint *target, uint32_t imm,
                    uint32_t count)
{
    const uint32_t depth = sim->config.cq_depth;

    HLG_ASSERT(target->unread <= depth && count <= depth);
    if (count == 0) {
        return true;
    }
    if (target->held_head != HLG_NONE || count > depth - target->unread) {
        return false; /* in order, so that none waits for ever */
    }
    struct imm_entry *last =
        &target->imms[(target->imm_head + target->imm_count + sim->imms_max - 1) % sim->imms_max];
    if (target->imm_count > 0 && last->imm == imm) {
        last->count += count;
    } else if (target->imm_count == sim->imms_max) {
        return false;
    } else {
        target->imms[(target->imm_head + target->imm_count++) % sim->imms_max] =
            (struct imm_entry){imm, count};
    }
    target->unread += count;
    ready_put_endpoint(target);
    return true;
}

static void hold(struct hlg_simgrid *sim, struct endpoint *target, struct batch *b)
{
    const uint32_t index = index_of(sim, b);

    b->state = BATCH_HELD;
    b->next = HLG_NONE;
    if (target->held_head == HLG_NONE) {
        target->held_head = index;
    } else {
        sim->batches[target->held_tail].next = index;
    }
    target->held_tail = index;
}

static void let_go(struct hlg_simgrid *sim, struct batch *b)
{
    struct endpoint *target = &sim->endpoints[b->target.slot];
    const uint32_t index = index_of(sim, b);
    uint32_t before = HLG_NONE;

    for (uint32_t i = target->held_head; i != index; i = sim->batches[i].next) {
        HLG_ASSERT(i != HLG_NONE);
        before = i;
    }
    if (before == HLG_NONE) {
        target->held_head = b->next;
    } else {
        sim->batches[before].next = b->next;
    }
    target->held_tail = target->held_tail == index ? before : target->held_tail;
}

void batch_on_room(struct endpoint *e)
{
    struct hlg_simgrid *sim = e->sim;

    for (uint32_t index = e->held_head; index != HLG_NONE; index = sim->batches[index].next) {
        HLG_ASSERT(sim->batches[index].state == BATCH_HELD);
        sim->batches[index].state = BATCH_SENT;
        schedule_put(sim, sim->now, HAPPENING_LAND, index, 0);
    }
    e->held_head = HLG_NONE;
    e->held_tail = HLG_NONE;
}

void batch_on_land(struct hlg_simgrid *sim, uint32_t index)
{
    struct batch *b = &sim->batches[index];
    struct endpoint *target;

    if (is_lost(sim, b)) {
        return;
    }
    HLG_ASSERT(b->state == BATCH_SENT);
    target = endpoint_find(sim, &b->target);
    if (!b->landed && (b->status != 0 || target == NULL)) {
        b->failed = batch_pieces(b);
        b->status = -HLG_EPEER;
    } else if (!b->landed) {
        land(sim, b, target);
    }
    if (target != NULL && !deliver(sim, target, b->write.imm, batch_pieces(b) - b->failed)) {
        hold(sim, target, b);
        return;
    }
    schedule_put(sim, sim->now + latency(sim, b), HAPPENING_DONE, index, 0);
}

void batch_on_done(struct hlg_simgrid *sim, uint32_t index)
{
    struct batch *b = &sim->batches[index];
    struct peer *queue;

    if (is_lost(sim, b)) {
        return;
    }
    HLG_ASSERT(b->state == BATCH_SENT);
    queue = queue_of(sim, b);
    queue->refused_since = HLG_TIME_NEVER; /* this is progress */
    HLG_ASSERT(queue->writes > 0 && queue->pieces >= batch_pieces(b));
    queue->writes--;
    queue->pieces -= batch_pieces(b);
    sim_trace(sim, HAPPENING_DONE, b->source, b->write.op, (uint64_t)(int64_t)b->status);
    endpoint_report(&sim->endpoints[b->source], b, b->failed, b->status);
    unlist(sim, &sim->endpoints[b->source], b);
    give_back(sim, b);
}

void batch_on_source_end(struct hlg_simgrid *sim, uint32_t slot)
{
    struct endpoint *e = &sim->endpoints[slot];
    uint32_t next;

    for (uint32_t index = e->first; index != HLG_NONE; index = next) {
        struct batch *b = &sim->batches[index];

        next = b->after;
        endpoint_report(e, b, batch_pieces(b), -HLG_ECANCELED);
        end_move(sim, b, false);
        const bool flows = b->state == BATCH_FLOW || b->state == BATCH_ALONE;
        if (flows) {
            flow_cancel(sim, b);
        }
        if (b->state == BATCH_HELD) {
            let_go(sim, b);
        }
        if (flows || b->state == BATCH_QUEUED || b->state == BATCH_HELD) {
            give_back(sim, b);
        } else {
            b->state = BATCH_LOST;
            e->lost++;
        }
    }
    e->first = HLG_NONE;
    for (uint32_t index = 0; index < sim->config.peers_max; index++) {
        struct peer *queue = &e->peers[index];

        queue->head = HLG_NONE;
        queue->writes = 0;
        queue->pieces = 0;
    }
}

/* It will not land. */
static void fail(struct hlg_simgrid *sim, struct batch *b)
{
    b->status = -HLG_EPEER;
    if (b->state == BATCH_FLOW || b->state == BATCH_ALONE) {
        flow_cancel(sim, b);
        end_move(sim, b, false);
        send_at(sim, b, sim->now);
    }
}

void batch_on_target_kill(struct hlg_simgrid *sim, uint32_t node)
{
    for (uint32_t slot = 0; slot < sim->endpoint_count; slot++) {
        const struct endpoint *e = &sim->endpoints[slot];

        for (uint32_t index = e->used ? e->first : HLG_NONE; index != HLG_NONE;
             index = sim->batches[index].after) {
            struct batch *b = &sim->batches[index];

            if ((b->state == BATCH_FLOW || b->state == BATCH_ALONE) && b->target.node == node) {
                fail(sim, b);
            }
        }
    }
}

void batch_on_link_down(struct hlg_simgrid *sim, uint32_t nic)
{
    for (uint32_t slot = 0; slot < sim->endpoint_count; slot++) {
        const struct endpoint *e = &sim->endpoints[slot];

        for (uint32_t index = e->used ? e->first : HLG_NONE; index != HLG_NONE;
             index = sim->batches[index].after) {
            struct batch *b = &sim->batches[index];

            /* Those queued fail when their turn comes, unless the link is up again by then. */
            if ((e->self.nic == nic || b->target.nic == nic) && b->state != BATCH_QUEUED &&
                !b->landed) {
                fail(sim, b);
            }
        }
    }
}
