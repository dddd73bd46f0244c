/*
 * The life of one piece: posted, landed once or twice, then told to the target and to the source in
 * either order. Its source page is read at each landing, so a page reused before DONE_WRITE shows.
 */
#include <string.h>

#include "internal.h"

static uint32_t index_of(const struct hlg_loop *loop, const struct piece *p)
{
    return hlg_u32((uint64_t)(p - loop->pieces));
}

static void put(struct hlg_loop *loop, struct piece *p, hlg_time delay, uint32_t kind)
{
    HLG_ASSERT(p->scheduled < 2);
    p->scheduled++;
    schedule_put(loop, loop->now + delay, kind, index_of(loop, p), 0);
}

/* Give the piece back when both sides have seen the last of it. */
static void settle(struct hlg_loop *loop, struct piece *p)
{
    HLG_ASSERT(p->used);
    if (!p->reported || p->scheduled != 0) {
        return;
    }
    p->used = false;
    p->next_free = loop->piece_free;
    loop->piece_free = index_of(loop, p);
    loop->piece_free_count++;
}

/* Its fate is known: let it be reported, if that is not so or on its way. */
static void finish(struct hlg_loop *loop, struct piece *p, int32_t status)
{
    p->status = status;
    if (!p->early) {
        put(loop, p, loop_draw(loop, loop->config.done_ns), HLG_LOOP_DONE);
    }
}

static void end_badly(struct hlg_loop *loop, struct piece *p, int32_t status)
{
    p->lost = true;
    finish(loop, p, status);
    settle(loop, p);
}

/* Draw what becomes of a piece. Returns the delay of its landing. */
static hlg_time draw_fate(struct hlg_loop *loop, struct piece *p)
{
    const struct hlg_loop_faults *faults = &loop->config.faults;
    hlg_time delay = loop_draw(loop, loop->config.land_ns);

    /* Only an open target: its end, which must come, is what completes a dropped piece. */
    if (p->was_open && hlg_rng_chance(&loop->rng, faults->drop_ppm) &&
        loop_doom(loop, p->source_node, p->target.node)) {
        loop->stats.drops++;
        p->fate = FATE_DROP;
    } else if (hlg_rng_chance(&loop->rng, faults->fail_before_ppm)) {
        loop->stats.fails_before++;
        p->fate = FATE_FAIL_BEFORE;
    } else if (hlg_rng_chance(&loop->rng, faults->fail_after_ppm)) {
        loop->stats.fails_after++;
        p->fate = hlg_rng_below(&loop->rng, 2) == 0 ? FATE_FAIL_WITH_IMM : FATE_FAIL_WITHOUT_IMM;
    }
    if (hlg_rng_chance(&loop->rng, faults->duplicate_ppm)) {
        loop->stats.duplicates++;
        p->landings = 2;
    }
    if (hlg_rng_chance(&loop->rng, faults->delay_ppm)) {
        loop->stats.delays++;
        delay += hlg_rng_between(&loop->rng, 0, faults->delay_ns_max);
    }
    if (hlg_rng_chance(&loop->rng, faults->reorder_ppm)) {
        loop->stats.reorders++;
        delay = 0;
    }
    return delay;
}

void piece_post(struct endpoint *e, const struct hlg_paged_write *w, uint32_t index)
{
    struct hlg_loop *loop = e->loop;
    struct piece *p = &loop->pieces[loop->piece_free];
    const struct endpoint *target = endpoint_find(loop, &e->peers[w->peer].place);
    hlg_time delay;

    HLG_ASSERT(loop->piece_free != HLG_NONE && !p->used);
    loop->piece_limit = hlg_max_u32(loop->piece_limit, loop->piece_free + 1);
    loop->piece_free = p->next_free;
    loop->piece_free_count--;
    memset(p, 0, sizeof(*p));
    p->used = true;
    p->landings = 1;
    p->lands_until = HLG_TIME_NEVER;
    p->was_open = target != NULL && target->state == ENDPOINT_OPEN;
    p->source = hlg_u32((uint64_t)(e - loop->endpoints));
    p->source_node = e->self.node;
    p->op = w->op;
    p->imm = w->imm;
    p->bytes = w->bytes;
    p->mem = w->mem;
    p->mem_key = e->regions[w->mem].key;
    p->from = hlg_paged_write_source(w, index);
    p->remote = hlg_paged_write_target(w, index);
    p->remote_key = w->remote_key;
    p->target = e->peers[w->peer].place;
    e->unpolled++;
    loop->stats.taken++;
    delay = draw_fate(loop, p);
    if (p->fate == FATE_FAIL_BEFORE) {
        p->status = -HLG_EIO;
        put(loop, p, delay, HLG_LOOP_DONE);
    } else if (p->fate != FATE_DROP) {
        put(loop, p, delay, HLG_LOOP_LAND);
    }
    if (loop->config.acknowledged && p->fate == FATE_GOOD && p->bytes <= LATE_BYTES &&
        hlg_rng_below(&loop->rng, 2) == 0) {
        p->early = true;
        put(loop, p, hlg_rng_between(&loop->rng, 0, delay), HLG_LOOP_DONE);
    }
}

/* What a write to an endpoint that is not open ends in. */
static int32_t gone_status(const struct hlg_loop *loop, const struct piece *p)
{
    const struct node *node = &loop->nodes[p->target.node];

    if (!node->alive || node->incarnation != p->target.incarnation || !p->was_open) {
        return -HLG_EPEER;
    }
    return -HLG_ECANCELED;
}

static const struct region *find_region(const struct hlg_loop *loop, const struct endpoint *target,
                                        const struct piece *p)
{
    for (uint32_t index = 0; index < loop->config.regions_max; index++) {
        const struct region *region = &target->regions[index];

        if (region->live && region->key == p->remote_key) {
            const bool inside = p->remote >= region->address && p->bytes <= region->bytes &&
                                p->remote - region->address <= region->bytes - p->bytes;

            return inside ? region : NULL;
        }
    }
    return NULL;
}

static bool source_is_registered(const struct hlg_loop *loop, const struct piece *p)
{
    const struct region *region = &loop->endpoints[p->source].regions[p->mem];

    return region->live && region->key == p->mem_key;
}

static void place(struct hlg_loop *loop, struct piece *p, const struct endpoint *target,
                  const struct region *region)
{
    const struct hlg_loop_landing landing = {
        .source_node = p->source_node,
        .target_node = target->self.node,
        .target_lane = target->self.lane,
        .target_rail = target->self.rail,
        .target_base = region->base,
        .target_offset = p->remote - region->address,
        .source = p->late || p->left ? NULL : p->from,
        .bytes = p->bytes,
        .imm = p->imm,
        .again = p->placed,
    };

    if (loop->on_landing != NULL) {
        loop->on_landing(loop->context, &landing);
    }
    /* memmove: a node may write to itself. */
    memmove(region->base + landing.target_offset, p->from, p->bytes);
    p->placed = true;
    p->placed_in = target->self.serial;
    p->landings--;
    loop->stats.landings++;
    loop_trace(loop, HLG_LOOP_LAND, (uint64_t)p->source_node << 32 | target->self.node,
               landing.target_offset, (uint64_t)p->imm << 32 | p->bytes);
}

void piece_on_land(struct hlg_loop *loop, uint32_t index)
{
    struct piece *p = &loop->pieces[index];
    const struct endpoint *target;
    const struct region *region;

    HLG_ASSERT(p->used && p->scheduled <= 1u + p->early && p->landings > 0);
    p->scheduled--;
    p->lost = p->lost || loop->now > p->lands_until;
    if (p->lost) {
        settle(loop, p);
        return;
    }
    target = endpoint_find(loop, &p->target);
    if (target == NULL || target->state != ENDPOINT_OPEN) {
        end_badly(loop, p, gone_status(loop, p));
        return;
    }
    region = find_region(loop, target, p);
    loop->stats.old_keys += region == NULL;
    if (region == NULL || (!p->late && !p->left && !source_is_registered(loop, p))) {
        end_badly(loop, p, -HLG_EIO);
        return;
    }
    place(loop, p, target, region);
    if (p->late) {
        p->landings = 0;
        loop->stats.lates++;
        put(loop, p, loop_draw(loop, loop->config.imm_ns), HLG_LOOP_IMM);
        return;
    }
    if (p->landings > 0) {
        put(loop, p, loop_draw(loop, loop->config.land_ns), HLG_LOOP_LAND);
        return;
    }
    if (p->fate != FATE_FAIL_WITHOUT_IMM) {
        put(loop, p, loop_draw(loop, loop->config.imm_ns), HLG_LOOP_IMM);
    }
    finish(loop, p, p->fate == FATE_GOOD ? 0 : -HLG_EIO);
}

void piece_on_imm(struct hlg_loop *loop, uint32_t index)
{
    struct piece *p = &loop->pieces[index];
    struct endpoint *target = endpoint_find(loop, &p->target);
    const uint32_t depth = loop->config.cq_depth;

    HLG_ASSERT(p->used && p->scheduled > 0 && p->landings == 0);
    p->scheduled--;
    if (target != NULL && target->state == ENDPOINT_OPEN && target->self.serial == p->placed_in) {
        if (target->imm_count == depth) {
            loop->stats.held++;
            put(loop, p, loop->config.imm_ns.max + 1, HLG_LOOP_IMM);
            return;
        }
        target->imms[(target->imm_head + target->imm_count++) % depth] = p->imm;
        loop->stats.immediates++;
        loop_trace(loop, HLG_LOOP_IMM, p->source_node, target->self.node, p->imm);
    }
    settle(loop, p);
}

/*
 * By a coin, let a piece that is reported failed land all the same: its bytes had left. Measured on
 * net and tcp;ofi_rxm, see docs/transport.md. Returns whether it will.
 */
static bool leave_late(struct hlg_loop *loop, struct piece *p)
{
    if (p->bytes > LATE_BYTES || p->landings == 0 || hlg_rng_below(&loop->rng, 2) == 0) {
        return false;
    }
    memcpy(p->copy, p->from, p->bytes);
    p->from = p->copy;
    p->late = true;
    return true;
}

/* What the target's side says of a piece that has not landed: it takes it, and lets it land by and by, or
 * not. */
static void acknowledge(struct hlg_loop *loop, struct piece *p)
{
    const struct endpoint *target = endpoint_find(loop, &p->target);

    if (target == NULL || target->state != ENDPOINT_OPEN) {
        p->status = gone_status(loop, p);
    } else if (find_region(loop, target, p) == NULL || !source_is_registered(loop, p)) {
        p->status = -HLG_EIO;
    }
    if (p->status != 0) {
        p->lost = true;
        return;
    }
    memcpy(p->copy, p->from, p->bytes);
    p->from = p->copy;
    p->left = true;
    loop->stats.acknowledged++;
}

void piece_on_done(struct hlg_loop *loop, uint32_t index)
{
    struct piece *p = &loop->pieces[index];

    HLG_ASSERT(p->used && p->scheduled > 0);
    p->scheduled--;
    if (p->early && p->landings > 0 && p->status == 0 && !p->reported && !p->orphan) {
        acknowledge(loop, p);
    }
    if (!p->reported && !p->orphan) {
        endpoint_report(&loop->endpoints[p->source], p->op, p->status);
        p->reported = true;
        loop_trace(loop, HLG_LOOP_DONE, p->source_node, p->op, (uint64_t)(int64_t)p->status);
        if (p->fate == FATE_FAIL_BEFORE && leave_late(loop, p)) {
            put(loop, p, hlg_rng_between(&loop->rng, 0, loop->config.faults.delay_ns_max),
                HLG_LOOP_LAND);
        }
    }
    settle(loop, p);
}

void piece_on_source_close(struct hlg_loop *loop, uint32_t slot)
{
    for (uint32_t index = 0; index < loop->piece_limit; index++) {
        struct piece *p = &loop->pieces[index];

        if (p->used && p->source == slot && !p->reported) {
            endpoint_report(&loop->endpoints[slot], p->op, -HLG_ECANCELED);
            p->reported = true;
            const bool on_its_way = p->scheduled == 1 && p->fate != FATE_DROP &&
                                    p->fate != FATE_FAIL_BEFORE && !p->orphan;
            p->lost = !on_its_way || !leave_late(loop, p);
            settle(loop, p);
        }
    }
}

void piece_on_source_free(struct hlg_loop *loop, uint32_t slot)
{
    for (uint32_t index = 0; index < loop->piece_limit; index++) {
        struct piece *p = &loop->pieces[index];

        if (p->used && p->source == slot) {
            HLG_ASSERT(p->reported);
            p->source = HLG_NONE;
        }
    }
}

void piece_on_target_end(struct hlg_loop *loop, uint32_t slot, uint64_t serial)
{
    for (uint32_t index = 0; index < loop->piece_limit; index++) {
        struct piece *p = &loop->pieces[index];

        if (p->used && p->fate == FATE_DROP && p->target.slot == slot &&
            p->target.serial == serial && p->scheduled == 0 && !p->reported && !p->orphan) {
            end_badly(loop, p, gone_status(loop, p));
        }
    }
}

void piece_on_kill(struct hlg_loop *loop, uint32_t node)
{
    for (uint32_t index = 0; index < loop->piece_limit; index++) {
        struct piece *p = &loop->pieces[index];

        if (!p->used || p->reported || p->orphan || p->source_node != node) {
            continue;
        }
        p->orphan = true;
        p->lands_until = loop->now + loop->config.death_ns_max;
        p->lost = hlg_rng_below(&loop->rng, 2) == 0;
        if (p->fate == FATE_GOOD && hlg_rng_below(&loop->rng, 2) == 0) {
            p->fate = FATE_FAIL_WITHOUT_IMM;
        }
    }
}
