/* Nodes meet, leave, die and come back, as what runs them would see to. */
#include "world.h"

#include <string.h>

bool life_is_frozen(const struct node *n)
{
    const struct world *w = n->world;

    if (w->what.plant == PLANT_ASLEEP && w->phase == PHASE_SETTLE && n->index == 0) {
        return true;
    }
    return w->fault != NULL && hlg_fault_frozen(w->fault, n->index);
}

/* Whether whatever killed it let it live. */
static bool is_killed(const struct world *w, uint32_t node)
{
    return !hlg_loop_alive(w->loop, node) || (w->fault != NULL && !hlg_fault_alive(w->fault, node));
}

/* A channel through the loop, with the decorator at both ends. */
static bool open_channel(struct world *w, uint32_t a, uint32_t b, struct hlg_channel **ours,
                         struct hlg_channel **theirs)
{
    if (hlg_loop_channel_pair(w->loop, a, b, ours, theirs) != 0) {
        return false;
    }
    if (w->fault == NULL) {
        return true;
    }
    if (hlg_fault_channel(w->fault, a, b, *ours, ours) != 0) {
        (*theirs)->ops->close(*theirs);
        return false;
    }
    if (hlg_fault_channel(w->fault, b, a, *theirs, theirs) != 0) {
        (*ours)->ops->close(*ours);
        return false;
    }
    return true;
}

/* Two nodes get a channel; each remembers who is at the other end, and what ran there. */
static void connect_nodes(struct world *w, struct node *d, struct node *p)
{
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    if (!open_channel(w, d->index, p->index, &ours, &theirs)) {
        return;
    }
    if (hlg_pump_channel(d->pump, ours, true, &peer) == 0) {
        d->peer_of[p->index] = peer;
        d->peer_up[p->index] = false;
        d->node_of[peer] = p->index;
        d->version_of[peer] = p->version;
        d->incarnation_of[peer] = p->incarnation;
    }
    if (hlg_pump_channel(p->pump, theirs, false, &peer) == 0) {
        p->node_of[peer] = d->index;
        p->version_of[peer] = d->version;
        p->incarnation_of[peer] = d->incarnation;
    }
}

/* Decoders dial prefillers that they have no session with; now and then also those that they have. */
static void dial(struct world *w, struct node *d, uint32_t other, hlg_time now)
{
    struct node *p = &w->nodes[other];
    bool again = d->peer_up[other] && mischief(w, KIND_TWICE, 200);

    if (!d->alive || !p->alive ||
        (!again && (d->peer_of[other] != HLG_NONE || d->dial_at[other] > now))) {
        return;
    }
    d->dial_at[other] = now + 5 * HLG_NS_PER_MS;
    connect_nodes(w, d, p);
}

/* Somebody connects, says nothing and goes: nobody else may notice. */
static void bother(struct world *w, struct node *n, hlg_time now)
{
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t other = (n->index + 1) % w->node_count;
    uint32_t peer = 0;

    if (n->stranger_at > now || !mischief(w, KIND_STRANGER, 1000000)) {
        return;
    }
    n->stranger_at = now + soon(w, HLG_NS_PER_MS);
    if (!open_channel(w, other, n->index, &ours, &theirs)) {
        return;
    }
    if (hlg_pump_channel(n->pump, theirs, false, &peer) == 0) {
        n->node_of[peer] = HLG_NONE;
    }
    ours->ops->close(ours);
}

/* An engine ends a session for no reason that we know. */
static void leave(struct world *w, struct node *n)
{
    uint32_t other = draw(w, w->prefillers);

    if (n->decode && n->peer_up[other] && mischief(w, KIND_DISCONNECT, 500)) {
        struct hlg_event event = {.kind = HLG_EVENT_DISCONNECT,
                                  .peer = {.peer = n->peer_of[other]}};
        looked(w, CHECK_CALL);
        if (hlg_pump_event(n->pump, &event) != 0) {
            world_break(w, CHECK_CALL, "DISCONNECT was refused", n->index, other);
        }
    }
}

void life_meet(struct world *w, struct node *n, hlg_time now)
{
    bother(w, n, now);
    leave(w, n);
    for (uint32_t other = 0; n->decode && other < w->prefillers; other++) {
        dial(w, n, other, now);
    }
}

/* ---- going and coming ----------------------------------------------------------------------- */

void life_plan(struct world *w, struct node *n, hlg_time now)
{
    bool leaves = chance(w, 300000) && is_on(w, KIND_DRAIN);

    if (!w->calm && leaves) {
        n->drain_at = now + soon(w, 4 * HLG_NS_PER_MS);
    }
    if (!w->calm && n->version != 0) {
        n->drain_at = now + soon(w, 20 * HLG_NS_PER_MS); /* it gets the others' model */
    }
}

/* A new process where the old one was. */
static void start_again(struct world *w, struct node *n, hlg_time now)
{
    n->decode ? decode_died(n) : prefill_died(n);
    n->version = chance(w, 200000) && !w->calm && is_on(w, KIND_VERSION) ? 1 : 0;
    node_start(n);
    w->counts.restarts++;
    life_plan(w, n, now);
}

/* Endpoints whose close fails stay open below for a while, though a process that ends takes its own along:
 * nobody uses their memory again before. */
static hlg_time restart_time(struct world *w, hlg_time now)
{
    return now + soon(w, 30 * HLG_NS_PER_MS) + (is_on(w, KIND_CLOSE_FAILS) ? CLOSE_NS : 0);
}

static void begin_drain(struct world *w, struct node *n, hlg_time now)
{
    struct hlg_event event = {.kind = HLG_EVENT_DRAIN};

    n->draining = true;
    n->drain_at = HLG_TIME_NEVER;
    n->drain_until = now + soon(w, 30 * HLG_NS_PER_MS);
    w->counts.net[KIND_DRAIN]++;
    world_tell(w, n, "drains");
    if (!n->decode && w->what.plant != PLANT_NO_DRAIN && hlg_pump_event(n->pump, &event) != 0) {
        world_break(w, CHECK_CALL, "DRAIN was refused", n->index, 0);
    }
}

static bool is_idle(const struct node *n)
{
    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        if (n->forwards[i].number != 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].used) {
            return false;
        }
    }
    return true;
}

/* Whether a node has too few pages or slots left: those that are poisoned come back with a restart. */
static bool is_worn(const struct node *n)
{
    struct hlg_census census;

    if (n->poisonings == 0) {
        return false;
    }
    check_census(n, &census);
    if (n->decode && census.slots_max - census.slots_poisoned < n->world->share) {
        return true; /* a request of all its sources has none either */
    }
    for (uint32_t pool = 0; pool < n->layout.pools; pool++) {
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            uint32_t good = 0;
            for (uint32_t i = 0; i < n->layout.groups[g].page_count; i++) {
                good += !n->pages[pool][g][i].poisoned;
            }
            if (good < hlg_layout_pages(&n->layout, g, TOKENS_MAX - 1)) {
                return true; /* the longest prompt has no room any more */
            }
        }
    }
    return n->poisonings > 2;
}

static void live_on(struct world *w, struct node *n, hlg_time now)
{
    bool other_model = w->calm && n->version != 0;
    bool due = !w->calm && n->drain_at <= now;

    if (!n->draining && (due || other_model || is_worn(n))) {
        begin_drain(w, n, now);
    }
    if (n->draining && (is_idle(n) || n->drain_until <= now)) {
        world_tell(w, n, "goes in order");
        node_stop(n);
        n->restart_at = restart_time(w, now);
    }
}

static void revive(struct world *w, uint32_t node)
{
    if (!hlg_loop_alive(w->loop, node)) {
        hlg_loop_restart(w->loop, node);
    }
    if (w->fault != NULL) {
        hlg_fault_restart(w->fault, node);
    }
}

void life_act(struct world *w, hlg_time now)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        if (n->alive && is_killed(w, i)) {
            n->alive = false;
            n->restart_at = restart_time(w, now);
            world_tell(w, n, "was killed");
        } else if (n->alive && life_is_frozen(n)) {
            continue;
        } else if (n->alive) {
            live_on(w, n, now);
        } else if (n->restart_at <= now) {
            node_stop(n);
            revive(w, i);
            start_again(w, n, now);
        }
    }
}

hlg_time life_next(const struct world *w, const struct node *n)
{
    hlg_time next = w->calm ? n->drain_until : hlg_min_time(n->drain_at, n->drain_until);

    for (uint32_t other = 0; n->decode && other < w->prefillers; other++) {
        if (n->peer_of[other] == HLG_NONE && w->nodes[other].alive) {
            next = hlg_min_time(next, n->dial_at[other]);
        }
    }
    return next;
}

bool life_set_up(const struct node *n, uint32_t set)
{
    const struct world *w = n->world;

    for (uint32_t i = set * w->share; i < (set + 1) * w->share; i++) {
        if (!n->peer_up[i]) {
            return false;
        }
    }
    return true;
}

bool life_all_met(const struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->alive || life_is_frozen(n) || n->draining || n->version != 0 ||
            hlg_pump_open(n->pump) > 0 || !is_idle(n)) {
            return false;
        }
        for (uint32_t set = 0; n->decode && set < w->sets; set++) {
            if (!life_set_up(n, set)) {
                return false;
            }
        }
    }
    return true;
}
