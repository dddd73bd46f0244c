/* poll: what the one below tells, less what the caller must not know, and what waited long enough. */
#include "internal.h"

struct output {
    struct hlg_transport_event *events;
    uint32_t capacity;
    uint32_t count;
};

static void take_reports(struct endpoint *e, struct output *out)
{
    while (e->report_count > 0 && out->count < out->capacity) {
        const struct report *r = &e->reports[e->report_head];

        out->events[out->count++] = (struct hlg_transport_event){
            .kind = HLG_TRANSPORT_DONE_WRITE,
            .done = {r->op, r->done, r->failed, r->status},
        };
        HLG_ASSERT(e->unpolled >= r->done + r->failed);
        e->unpolled -= r->done + r->failed;
        e->report_head = (e->report_head + 1) % e->caps.pieces_max;
        e->report_count--;
    }
}

static void take_imms(struct endpoint *e, hlg_time now, struct output *out)
{
    uint32_t kept = 0;

    for (uint32_t index = 0; index < e->imm_count; index++) {
        const struct imm *imm = &e->imms[index];

        if (now >= imm->due && out->count < out->capacity) {
            out->events[out->count++] = (struct hlg_transport_event){
                .kind = HLG_TRANSPORT_IMM,
                .imm = {imm->imm, imm->pieces, imm->immediates},
            };
        } else {
            e->imms[kept++] = *imm;
        }
    }
    e->imm_count = kept;
}

/* Remember the immediate. Returns whether one of an earlier generation of its slot is known. */
static bool remember(struct endpoint *e, uint32_t imm, uint32_t *old)
{
    struct seen *seen = &e->seen[(imm >> 16) % SEEN_SLOTS];

    if (!seen->known || seen->last >> 16 != imm >> 16) {
        *seen = (struct seen){.known = true, .last = imm};
    } else if (seen->last >> 4 != imm >> 4) {
        seen->old = seen->last;
        seen->has_old = true;
        seen->last = imm;
    }
    *old = seen->old;
    return seen->has_old;
}

static void add_imm(struct endpoint *e, const struct hlg_transport_event *event, hlg_time due)
{
    HLG_ASSERT(e->imm_count < e->fault->config.held_max);
    e->imms[e->imm_count++] =
        (struct imm){event->imm.imm, event->imm.pieces, event->imm.immediates, due};
}

static void add_stale(struct endpoint *e, uint32_t imm, hlg_time now)
{
    const uint32_t weight = imm & 15u;
    const struct hlg_transport_event event = {
        .kind = HLG_TRANSPORT_IMM,
        .imm = {imm, weight == 15u ? 0 : 1u << weight, 1},
    };

    add_imm(e, &event, now);
}

/* Returns whether the caller gets it now. */
static bool pass_imm(struct endpoint *e, const struct hlg_transport_event *event, hlg_time now)
{
    const struct occasion o = fault_endpoint_occasion(e, HLG_NONE, now);
    const uint32_t room = e->fault->config.held_max;
    uint32_t old;
    hlg_time span;

    if (event->imm.imm >> 4 == FAULT_IMM_SHADOW >> 4 || e->state != ENDPOINT_OPEN) {
        return false;
    }
    if (remember(e, event->imm.imm, &old) && e->imm_count < room &&
        fault_rule_strikes(e->fault, HLG_FAULT_IMM_STALE, &o, &span)) {
        add_stale(e, old, now);
    }
    if (e->imm_count < room && fault_rule_strikes(e->fault, HLG_FAULT_IMM_LATE, &o, &span)) {
        add_imm(e, event, hlg_time_after(now, span));
        return false;
    }
    return true;
}

static uint32_t row_of(const struct endpoint *e, uint32_t below)
{
    for (uint32_t row = 0; row < e->fault->config.peers_max; row++) {
        if (e->peers[row].used && e->peers[row].below == below) {
            return row;
        }
    }
    return HLG_NONE;
}

static bool pass_down(struct endpoint *e, struct hlg_transport_event *event)
{
    const uint32_t row = row_of(e, event->peer);

    if (row == HLG_NONE || e->state != ENDPOINT_OPEN) {
        return false;
    }
    struct peer *peer = &e->peers[row];
    const bool news = !peer->closing && !peer->down_told;

    event->peer = row;
    peer->down_told = true;
    peer->dead = true;
    fault_held_fail(e, row, -HLG_EPEER);
    return news;
}

static bool pass(struct endpoint *e, struct hlg_transport_event *event, hlg_time now)
{
    switch ((enum hlg_transport_event_kind)event->kind) {
    case HLG_TRANSPORT_DONE_WRITE:
        return fault_flight_over(e, event);
    case HLG_TRANSPORT_IMM:
        return pass_imm(e, event, now);
    case HLG_TRANSPORT_PEER_DOWN:
        return pass_down(e, event);
    }
    hlg_unreachable();
}

/* Ask below until it has no more or there is room for no more: what is kept from the caller must not
 * look like an end. */
static void poll_below(struct endpoint *e, hlg_time now, struct output *out)
{
    int got = 1;

    while (got > 0 && out->count < out->capacity && !e->muted) {
        struct hlg_transport_event *events = out->events + out->count;

        got = e->below->ops->poll(e->below, events, out->capacity - out->count);
        for (int index = 0; index < got; index++) {
            struct hlg_transport_event event = events[index];

            if (pass(e, &event, now)) {
                out->events[out->count++] = event;
            }
        }
        if (e->state == ENDPOINT_OPEN && got > 0) {
            fault_held_release(e, now); /* behind shadows that are over */
        }
    }
}

static void take_downs(struct endpoint *e, hlg_time now, struct output *out)
{
    bool refused = false;

    for (uint32_t row = 0; e->refused && row < e->fault->config.peers_max; row++) {
        refused = refused || e->peers[row].refused_since != HLG_TIME_NEVER;
        if (out->count < out->capacity && now >= fault_peer_stall(e, &e->peers[row])) {
            e->peers[row].down_told = true;
            out->events[out->count++] =
                (struct hlg_transport_event){.kind = HLG_TRANSPORT_PEER_DOWN, .peer = row};
        }
    }
    e->refused = refused;
}

int fault_endpoint_poll(struct hlg_transport *t, struct hlg_transport_event *events,
                        uint32_t capacity)
{
    struct endpoint *e = (struct endpoint *)t; /* transport is the first member */
    struct output out = {events, capacity, 0};

    fault_tick(e->fault);
    HLG_ASSERT(e->state != ENDPOINT_FREE && e->state != ENDPOINT_ZOMBIE);
    if (e->state == ENDPOINT_DEAD ||
        (e->state == ENDPOINT_OPEN && fault_rule_freezes(e->fault, e->node))) {
        return 0;
    }
    const hlg_time now = e->below->ops->now(e->below);

    take_reports(e, &out);
    if (e->state == ENDPOINT_OPEN) {
        fault_held_release(e, now);
        take_imms(e, now, &out);
    }
    poll_below(e, now, &out);
    take_reports(e, &out);
    if (e->state == ENDPOINT_OPEN) {
        take_imms(e, now, &out);
        take_downs(e, now, &out);
    }
    return (int)out.count;
}
