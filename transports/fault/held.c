/* Pieces that wait at an endpoint, what is under way below it, and what it has to report. */
#include <string.h>

#include "internal.h"

static const uint32_t page_zero[1] = {0};

struct occasion fault_endpoint_occasion(const struct endpoint *e, uint32_t peer, hlg_time now)
{
    return (struct occasion){e->node, peer, e->lane, e->rail, now};
}

/* ---- reports -------------------------------------------------------------------------------- */

void fault_report_add(struct endpoint *e, hlg_op_id op, uint32_t failed, int32_t status)
{
    const uint32_t capacity = e->caps.pieces_max;
    struct report *last = &e->reports[(e->report_head + e->report_count + capacity - 1) % capacity];

    HLG_ASSERT(failed > 0 && status < 0);
    if (e->report_count == 0 || last->op != op) {
        HLG_ASSERT(e->report_count < capacity);
        last = &e->reports[(e->report_head + e->report_count) % capacity];
        e->report_count++;
        *last = (struct report){.op = op, .status = status};
    }
    last->failed += failed;
}

/* ---- flights -------------------------------------------------------------------------------- */

int64_t fault_flight_post(struct endpoint *e, struct peer *peer, const struct hlg_paged_write *w,
                          uint32_t kind, uint32_t held, uint32_t late)
{
    const uint32_t index = e->flight_free;

    if (index == HLG_NONE) {
        return 0;
    }
    struct hlg_paged_write below = *w;

    below.op = index;
    below.peer = peer->below;
    below.imm = kind == FLIGHT_SHADOW ? FAULT_IMM_SHADOW | (w->imm & 15u) : w->imm;
    const int64_t taken = e->below->ops->write(e->below, &below);
    if (taken <= 0) {
        return taken;
    }
    struct flight *flight = &e->flights[index];

    HLG_ASSERT(!flight->used);
    e->flight_free = flight->next_free;
    *flight = (struct flight){.used = true,
                              .kind = (uint8_t)kind,
                              .op = w->op,
                              .outstanding = hlg_u32((uint64_t)taken),
                              .held = held,
                              .late = late};
    peer->posted += kind == FLIGHT_SHADOW ? 0 : (uint64_t)taken;
    return taken;
}

static void late_give_back(struct endpoint *e, uint32_t late)
{
    if (late != HLG_NONE) {
        HLG_ASSERT((e->late_used & 1u << late) != 0);
        e->late_used &= ~(1u << late);
    }
}

static void flight_end(struct endpoint *e, struct flight *flight)
{
    late_give_back(e, flight->late);
    if (flight->held != HLG_NONE) {
        HLG_ASSERT(e->helds[flight->held].state == HELD_SHADOWED);
        e->helds[flight->held].state = HELD_WAITING;
    }
    flight->used = false;
    flight->next_free = e->flight_free;
    e->flight_free = hlg_u32((uint64_t)(flight - e->flights));
}

bool fault_flight_over(struct endpoint *e, struct hlg_transport_event *event)
{
    struct flight *flight = &e->flights[event->done.op];
    const uint32_t over = event->done.done + event->done.failed;
    const uint32_t kind = flight->kind;

    HLG_ASSERT(event->done.op < e->flights_max && flight->used && over <= flight->outstanding);
    event->done.op = flight->op;
    flight->outstanding -= over;
    if (flight->outstanding == 0) {
        flight_end(e, flight);
    }
    if (kind == FLIGHT_FAIL) {
        event->done.done = 0;
        event->done.failed = over;
        event->done.status = event->done.status != 0 ? event->done.status : -HLG_EIO;
    }
    if (kind == FLIGHT_SHADOW || kind == FLIGHT_LATE) {
        return false;
    }
    HLG_ASSERT(e->unpolled >= over);
    e->unpolled -= over;
    return true;
}

/* ---- what waits ----------------------------------------------------------------------------- */

/* One peer may not have it all: pieces for others must be able to wait as well. */
bool fault_held_has_room(const struct endpoint *e, const struct peer *peer)
{
    return !peer->dead && e->held_free != HLG_NONE &&
           peer->held < (e->fault->config.held_max + 3) / 4;
}

static void link_by_due(struct endpoint *e, uint32_t index)
{
    struct held *h = &e->helds[index];
    uint32_t before = e->held_last;

    while (before != HLG_NONE && e->helds[before].due > h->due) {
        before = e->helds[before].previous;
    }
    h->previous = before;
    h->next = before == HLG_NONE ? e->held_first : e->helds[before].next;
    if (before == HLG_NONE) {
        e->held_first = index;
    } else {
        e->helds[before].next = index;
    }
    if (h->next == HLG_NONE) {
        e->held_last = index;
    } else {
        e->helds[h->next].previous = index;
    }
}

struct held *fault_held_put(struct endpoint *e, uint32_t row, const struct hlg_paged_write *w,
                            uint32_t piece, hlg_time due)
{
    const uint32_t index = e->held_free;
    struct peer *peer = &e->peers[row];

    HLG_ASSERT(index != HLG_NONE && e->helds[index].state == HELD_FREE);
    struct held *h = &e->helds[index];

    e->held_free = h->next;
    *h = (struct held){.w = *w,
                       .state = HELD_WAITING,
                       .kind = FLIGHT_PLAIN,
                       .mark = peer->posted,
                       .due = due,
                       .peer = row,
                       .late = HLG_NONE};
    h->w.local = hlg_paged_write_source(w, piece);
    h->w.remote = hlg_paged_write_target(w, piece);
    h->w.local_stride = 0;
    h->w.remote_stride = 0;
    h->w.source_offset = 0;
    h->w.target_offset = 0;
    h->w.source_pages = page_zero;
    h->w.target_pages = page_zero;
    h->w.count = 1;
    h->w.piece_begin = 0;
    h->w.piece_limit = 1;
    link_by_due(e, index);
    e->held_count++;
    peer->held++;
    return h;
}

static void held_remove(struct endpoint *e, struct held *h)
{
    const uint32_t index = hlg_u32((uint64_t)(h - e->helds));
    struct peer *peer = &e->peers[h->peer];

    if (h->previous == HLG_NONE) {
        e->held_first = h->next;
    } else {
        e->helds[h->previous].next = h->next;
    }
    if (h->next == HLG_NONE) {
        e->held_last = h->previous;
    } else {
        e->helds[h->next].previous = h->previous;
    }
    h->state = HELD_FREE;
    h->next = e->held_free;
    e->held_free = index;
    HLG_ASSERT(e->held_count > 0 && peer->held > 0);
    e->held_count--;
    peer->held--;
    fault_peer_settle(e, peer);
}

/* It will not be posted any more. A shadow of it that is under way goes on alone. */
static void held_end(struct endpoint *e, struct held *h, int32_t status)
{
    const uint32_t index = hlg_u32((uint64_t)(h - e->helds));

    for (uint32_t i = 0; h->state == HELD_SHADOWED && i < e->flights_max; i++) {
        if (e->flights[i].used && e->flights[i].held == index) {
            e->flights[i].held = HLG_NONE;
        }
    }
    if (h->kind != FLIGHT_LATE) {
        fault_report_add(e, h->w.op, 1, status);
    }
    late_give_back(e, h->late);
    held_remove(e, h);
}

void fault_held_fail(struct endpoint *e, uint32_t row, int32_t status)
{
    uint32_t index = e->held_first;

    while (index != HLG_NONE) {
        struct held *h = &e->helds[index];

        index = h->next;
        if (row == HLG_NONE || h->peer == row) {
            held_end(e, h, status);
        }
    }
}

static void post_held(struct endpoint *e, struct held *h)
{
    struct peer *peer = &e->peers[h->peer];
    const uint32_t index = hlg_u32((uint64_t)(h - e->helds));
    const int64_t taken = h->duplicate
                              ? fault_flight_post(e, peer, &h->w, FLIGHT_SHADOW, index, HLG_NONE)
                              : fault_flight_post(e, peer, &h->w, h->kind, HLG_NONE, h->late);

    if (taken < 0) {
        held_end(e, h, (int32_t)taken);
    } else if (taken == 0) {
        peer->stuck = true;
    } else if (h->duplicate) {
        h->duplicate = false;
        h->state = HELD_SHADOWED;
    } else {
        held_remove(e, h);
    }
}

void fault_held_release(struct endpoint *e, hlg_time now)
{
    uint32_t index = e->held_first;

    HLG_ASSERT(e->state == ENDPOINT_OPEN);
    for (uint32_t i = index; i != HLG_NONE; i = e->helds[i].next) {
        e->peers[e->helds[i].peer].stuck = false;
    }
    while (index != HLG_NONE) {
        struct held *h = &e->helds[index];
        const struct peer *peer = &e->peers[h->peer];
        const bool due = now >= h->due || (h->reorder && peer->posted > h->mark);

        index = h->next;
        if (due && h->state == HELD_WAITING && !peer->stuck &&
            !fault_rule_blocks(e->fault, e->node, peer->node)) {
            post_held(e, h);
        }
    }
}

/* Close below what was closed above, once nothing waits for it. */
void fault_peer_settle(struct endpoint *e, struct peer *peer)
{
    if (peer->used && peer->closing && peer->held == 0) {
        if (e->state == ENDPOINT_OPEN) {
            (void)e->below->ops->peer_close(e->below, peer->below);
        }
        *peer = (struct peer){.used = false};
    }
}
