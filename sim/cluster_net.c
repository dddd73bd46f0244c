/* The network's turn, and each node's: a node is stepped when the network or its engine has news. */
#include "cluster_internal.h"

/* A step that did less than any bound inside of it has done all there was. */
#define STEP_LITTLE 32

bool net_step(struct cluster *c, hlg_time limit)
{
    if (c->net == NULL) {
        c->now = limit == HLG_TIME_NEVER ? c->now : limit;
        return false;
    }
    hlg_time until = limit == HLG_TIME_NEVER ? limit : hlg_time_after(c->base, limit);
    bool happened = hlg_simgrid_run(c->net, until);
    uint32_t index = 0;

    if (happened || limit != HLG_TIME_NEVER) {
        c->now = hlg_simgrid_now(c->net) - c->base;
    }
    while (hlg_simgrid_ready(c->net, &index)) {
        net_dirty(&c->nodes[index]);
    }
    return happened;
}

bool net_greet(struct cluster *c)
{
    bool happened = hlg_simgrid_run(c->net, HLG_TIME_NEVER);
    uint32_t index = 0;

    while (hlg_simgrid_ready(c->net, &index)) {
        net_dirty(&c->nodes[index]);
    }
    return happened;
}

void net_dirty(struct node *n)
{
    if (!n->dirty) {
        n->dirty = true;
        n->cluster->dirty[n->cluster->dirty_count++] = n->index;
    }
}

int net_event(struct node *n, struct hlg_event *event)
{
    int result = hlg_pump_event(n->pump, event);

    net_dirty(n);
    return result;
}

static void on_down(struct node *n, uint32_t peer, uint32_t other)
{
    struct cluster *c = n->cluster;

    if (n->peer_of[other] != peer) {
        return; /* an older session's end */
    }
    n->peer_of[other] = HLG_NONE;
    n->peer_up[other] = false;
    if (n->decode) {
        cluster_dial_later(c, n, other);
    }
}

/* Sessions come and go: the routers hear of it at once. */
static bool session_letter(struct node *n, const struct hlg_notice *notice)
{
    struct cluster *c = n->cluster;
    uint32_t kind = notice->kind;

    if (kind != HLG_NOTICE_PEER_UP && kind != HLG_NOTICE_PEER_DOWN &&
        kind != HLG_NOTICE_PEER_REFUSED) {
        return false;
    }
    uint32_t other = n->node_of[notice->peer];
    if (kind == HLG_NOTICE_PEER_UP) {
        n->peer_up[other] = true;
        n->peer_of[other] = notice->peer;
    } else {
        HLG_ASSERT(!c->greeting || kind == HLG_NOTICE_PEER_REFUSED);
        on_down(n, notice->peer, other);
    }
    if (!c->greeting) {
        cluster_set_up(c, n);
        cluster_set_up(c, n->decode ? &c->nodes[other] : cluster_decode_node(c, other));
    }
    return true;
}

static void read_letters(struct node *n)
{
    for (uint32_t i = 0; i < n->letter_count; i++) {
        struct letter letter = n->letters[i]; /* a call of the pump may add some, and move them */
        if (session_letter(n, &letter.notice)) {
            continue;
        }
        if (n->decode) {
            decode_letter(n, &letter);
        } else {
            prefill_letter(n, &letter);
        }
    }
    n->letter_count = 0;
}

/* Without faults nothing is ever late: leases last longer than any run, and requests for ever. */
static void await_deadline(struct node *n)
{
    struct cluster *c = n->cluster;

    if (c->greeting || !c->faulty) {
        return;
    }
    hlg_time at = hlg_pump_deadline(n->pump);
    if (at == HLG_TIME_NEVER) {
        return;
    }
    at = at > c->base ? at - c->base : 0;
    at = at > c->now ? at : c->now;
    if (at < n->deadline_at) {
        n->deadline_at = at;
        heap_put(c,
                 (struct event){
                     .at = at, .kind = EVENT_DEADLINE, .node = n->index, .serial = n->incarnation});
    }
}

static void turn(struct node *n)
{
    while (hlg_pump_step(n->pump) >= STEP_LITTLE) {
    }
    read_letters(n);
    if (n->cluster->options->check) {
        (void)hlg_pump_check(n->pump);
    }
    await_deadline(n);
}

void net_turn(struct cluster *c)
{
    /* One node's turn may make others dirty, and itself again: each leaves the list first. */
    while (c->dirty_count > 0) {
        struct node *n = &c->nodes[c->dirty[--c->dirty_count]];
        n->dirty = false;
        if (n->alive) {
            turn(n);
        }
    }
}
