/* write: what is taken, what of it waits, and what becomes of each piece. */
#include <string.h>

#include "internal.h"

/* Rules that one piece fell under, by kind. */
struct fate {
    uint32_t rule[HLG_FAULT_FAIL_LATE + 1];
};

hlg_time fault_peer_stall(const struct endpoint *e, const struct peer *peer)
{
    if (!peer->used || peer->closing || peer->down_told || peer->refused_since == HLG_TIME_NEVER) {
        return HLG_TIME_NEVER;
    }
    const hlg_time down = hlg_time_after(peer->refused_since, e->caps.stall_ns);

    return peer->refused_until >= down || fault_rule_blocks(e->fault, e->node, peer->node)
               ? down
               : HLG_TIME_NEVER;
}

/* A refusal that follows the last one by more than stall_ns says nothing of the time between. */
static void refuse(struct endpoint *e, struct peer *peer, hlg_time now)
{
    e->refused = true;
    if (peer->refused_since == HLG_TIME_NEVER || now - peer->refused_last > e->caps.stall_ns) {
        peer->refused_since = now;
    }
    peer->refused_last = now;
}

static bool draw_refusal(struct endpoint *e, struct peer *peer, hlg_time now)
{
    const struct occasion o = fault_endpoint_occasion(e, peer->node, now);
    hlg_time span;

    if (now < peer->refused_until) {
        return true;
    }
    if (!fault_rule_strikes(e->fault, HLG_FAULT_REFUSE, &o, &span)) {
        return false;
    }
    peer->refused_until = hlg_time_after(now, span);
    return true;
}

static bool is_watched(const struct hlg_fault *f)
{
    uint32_t rules = f->rules_of[HLG_FAULT_PARTITION] + f->rules_of[HLG_FAULT_HALF_OPEN] +
                     f->rules_of[HLG_FAULT_SLOW];

    for (uint32_t kind = HLG_FAULT_DELAY; kind <= HLG_FAULT_FAIL_LATE; kind++) {
        rules += f->rules_of[kind];
    }
    return rules != 0;
}

static bool may_be_late(const struct endpoint *e, const struct hlg_paged_write *w)
{
    return e->late != NULL && w->bytes <= e->fault->config.late_bytes_max &&
           e->late_used != (1u << LATE_SLOTS) - 1;
}

/* Draw in a fixed order; at most one way to fail. */
static struct fate draw_fate(struct endpoint *e, const struct peer *peer,
                             const struct hlg_paged_write *w, const struct occasion *o)
{
    struct fate fate;

    for (uint32_t kind = 0; kind <= HLG_FAULT_FAIL_LATE; kind++) {
        fate.rule[kind] = HLG_NONE;
    }
    fate.rule[HLG_FAULT_FAIL_BEFORE] = fault_rule_draw(e->fault, HLG_FAULT_FAIL_BEFORE, o);
    if (fate.rule[HLG_FAULT_FAIL_BEFORE] != HLG_NONE) {
        return fate;
    }
    if (fault_held_has_room(e, peer) && may_be_late(e, w)) {
        fate.rule[HLG_FAULT_FAIL_LATE] = fault_rule_draw(e->fault, HLG_FAULT_FAIL_LATE, o);
        if (fate.rule[HLG_FAULT_FAIL_LATE] != HLG_NONE) {
            return fate;
        }
    }
    fate.rule[HLG_FAULT_FAIL_AFTER] = fault_rule_draw(e->fault, HLG_FAULT_FAIL_AFTER, o);
    if (!fault_held_has_room(e, peer)) {
        return fate;
    }
    fate.rule[HLG_FAULT_REORDER] = fault_rule_draw(e->fault, HLG_FAULT_REORDER, o);
    fate.rule[HLG_FAULT_DELAY] = fault_rule_draw(e->fault, HLG_FAULT_DELAY, o);
    /* The first placement must be over before the second, which has the immediate, begins. */
    if (peer->node != HLG_NONE && e->caps.placed) {
        fate.rule[HLG_FAULT_DUPLICATE] = fault_rule_draw(e->fault, HLG_FAULT_DUPLICATE, o);
    }
    return fate;
}

static bool strikes(const struct fate *fate, uint32_t kind)
{
    return fate->rule[kind] != HLG_NONE;
}

/* The piece is taken: count it for all rules, and those that struck. Returns when it is due. */
static hlg_time commit(struct endpoint *e, const struct fate *fate, const struct occasion *o)
{
    hlg_time wait = 0;

    for (uint32_t kind = HLG_FAULT_DELAY; kind <= HLG_FAULT_FAIL_LATE; kind++) {
        fault_rule_occasion(e->fault, kind, o);
    }
    for (uint32_t kind = HLG_FAULT_DELAY; kind <= HLG_FAULT_FAIL_LATE; kind++) {
        if (strikes(fate, kind)) {
            const hlg_time span = fault_rule_hit(e->fault, fate->rule[kind]);

            wait = span > wait ? span : wait;
        }
    }
    return hlg_time_after(o->now, wait);
}

/* Its bytes leave now, into a copy, and land later. */
static void put_late(struct endpoint *e, uint32_t row, const struct hlg_paged_write *w,
                     uint32_t piece, hlg_time due)
{
    struct held *h = fault_held_put(e, row, w, piece, due);
    uint32_t slot = 0;

    while ((e->late_used & 1u << slot) != 0) {
        slot++;
    }
    HLG_ASSERT(slot < LATE_SLOTS);
    e->late_used |= 1u << slot;
    uint8_t *copy = e->late + (size_t)slot * e->fault->config.late_bytes_max;

    memcpy(copy, h->w.local, w->bytes);
    h->w.local = copy;
    h->w.mem = e->late_mem;
    h->kind = FLIGHT_LATE;
    h->late = slot;
}

/* When a slow rail has moved the piece. */
static hlg_time slow_due(struct rule *r, uint32_t bytes, hlg_time now)
{
    const hlg_time begin = r->free_at > now ? r->free_at : now;
    const uint64_t ns = (uint64_t)bytes * HLG_NS_PER_S / r->what.rate;

    r->free_at = hlg_time_after(begin, ns);
    return r->free_at;
}

/* One piece. Returns 1 when it was taken, 0 when it was not, or an error of the one below. */
static int64_t write_piece(struct endpoint *e, uint32_t row, const struct hlg_paged_write *w,
                           uint32_t piece, hlg_time now)
{
    struct peer *peer = &e->peers[row];
    const struct occasion o = fault_endpoint_occasion(e, peer->node, now);
    const struct hlg_rng before = e->fault->rng;
    const bool blocked = fault_rule_blocks(e->fault, e->node, peer->node);
    struct rule *slow = fault_rule_slow(e->fault, &o);

    if ((blocked || slow != NULL) && !fault_held_has_room(e, peer)) {
        return 0;
    }
    const struct fate fate = draw_fate(e, peer, w, &o);
    const uint32_t kind = strikes(&fate, HLG_FAULT_FAIL_AFTER) ? FLIGHT_FAIL : FLIGHT_PLAIN;
    const bool reorder = strikes(&fate, HLG_FAULT_REORDER);
    const bool duplicate = strikes(&fate, HLG_FAULT_DUPLICATE);

    if (strikes(&fate, HLG_FAULT_FAIL_BEFORE)) {
        (void)commit(e, &fate, &o);
        fault_report_add(e, w->op, 1, -HLG_EIO);
        return 1;
    }
    if (strikes(&fate, HLG_FAULT_FAIL_LATE)) {
        put_late(e, row, w, piece, commit(e, &fate, &o));
        fault_report_add(e, w->op, 1, -HLG_EIO);
        return 1;
    }
    if (reorder || duplicate || strikes(&fate, HLG_FAULT_DELAY) || blocked || slow != NULL) {
        hlg_time due = commit(e, &fate, &o);

        if (slow != NULL) {
            const hlg_time moved = slow_due(slow, w->bytes, now);
            due = moved > due ? moved : due;
        }
        struct held *h = fault_held_put(e, row, w, piece, due);
        h->kind = (uint8_t)kind;
        h->reorder = reorder && slow == NULL;
        h->duplicate = duplicate;
        return 1;
    }
    struct hlg_paged_write one = *w;

    one.piece_begin = piece;
    one.piece_limit = piece + 1;
    const int64_t taken = fault_flight_post(e, peer, &one, kind, HLG_NONE, HLG_NONE);
    if (taken <= 0) {
        e->fault->rng = before; /* it will be drawn again when it is offered again */
        return taken;
    }
    (void)commit(e, &fate, &o);
    return 1;
}

static int64_t write_pieces(struct endpoint *e, uint32_t row, const struct hlg_paged_write *w,
                            uint32_t pieces, hlg_time now)
{
    uint32_t taken = 0;
    int64_t rc = 1;

    if (!is_watched(e->fault)) {
        struct hlg_paged_write prefix = *w;

        prefix.piece_limit = w->piece_begin + pieces;
        return fault_flight_post(e, &e->peers[row], &prefix, FLIGHT_PLAIN, HLG_NONE, HLG_NONE);
    }
    while (taken < pieces && rc > 0) {
        rc = write_piece(e, row, w, w->piece_begin + taken, now);
        taken += rc > 0;
    }
    return taken != 0 ? (int64_t)taken : rc;
}

/* A prefix, if it is drawn. An occasion is a write that could take more than one piece. */
static uint32_t draw_prefix(struct endpoint *e, const struct peer *peer, uint32_t pieces,
                            hlg_time now)
{
    const struct occasion o = fault_endpoint_occasion(e, peer->node, now);
    hlg_time span;

    if (pieces > 1 && fault_rule_strikes(e->fault, HLG_FAULT_PARTIAL, &o, &span)) {
        return (uint32_t)hlg_rng_between(&e->fault->rng, 1, pieces - 1);
    }
    return pieces;
}

int64_t fault_endpoint_write(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    struct endpoint *e = (struct endpoint *)t; /* transport is the first member */
    struct hlg_fault *f = e->fault;

    fault_tick(f);
    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (w->peer >= f->config.peers_max || !e->peers[w->peer].used || e->peers[w->peer].closing ||
        w->bytes == 0 || w->count == 0 || w->piece_begin >= w->piece_limit) {
        return -HLG_EINVAL;
    }
    if (fault_rule_freezes(f, e->node)) {
        return 0;
    }
    struct peer *peer = &e->peers[w->peer];
    const hlg_time now = e->below->ops->now(e->below);

    fault_held_release(e, now);
    if (peer->stuck) {
        return 0;
    }
    if (draw_refusal(e, peer, now)) {
        refuse(e, peer, now);
        return 0;
    }
    uint32_t pieces =
        hlg_min_u32(w->piece_limit - w->piece_begin, e->caps.pieces_max - e->unpolled);
    if (pieces == 0) {
        return 0;
    }
    pieces = draw_prefix(e, peer, pieces, now);
    const int64_t taken = write_pieces(e, w->peer, w, pieces, now);
    if (taken > 0) {
        e->unpolled += hlg_u32((uint64_t)taken);
        peer->refused_since = HLG_TIME_NEVER;
        fault_held_release(e, now); /* what goes behind these */
    } else if (taken == 0 && fault_rule_blocks(f, e->node, peer->node)) {
        refuse(e, peer, now);
    }
    return taken;
}
