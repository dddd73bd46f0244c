/* Fence domains: for each, one endpoint per (lane, rail) with its own registrations. Closing a domain
 * is what proves that nothing of its peers can land any more (I1). */
#include "pump_internal.h"

#define POLL_EVENTS     64u
#define POLL_ROUNDS_MAX 8u /* of one endpoint in one step, so that the others get their turn */

uint32_t pump_domain_choose(const struct hlg_pump *p)
{
    uint32_t best = 0;

    for (uint32_t d = 0; d < p->domain_count; d++) {
        if (p->domains[d].users < p->domains[best].users) {
            best = d;
        }
    }
    return best;
}

static int open_endpoint(struct hlg_pump *p, uint32_t domain, uint32_t lane, uint32_t rail)
{
    struct pump_endpoint *endpoint = pump_endpoint(p, domain, lane, rail);
    hlg_mem *mems = &p->domains[domain].mems[rail * p->region_count];
    struct hlg_transport *t = NULL;

    int error = p->fabric->open(p->fabric, lane, rail, &t);
    if (error < 0) {
        return error;
    }
    *endpoint = (struct pump_endpoint){.transport = t};
    t->tag = domain * p->lanes * p->rails + lane * p->rails + rail;
    for (uint32_t r = p->region_begin[lane]; r < p->region_begin[lane + 1]; r++) {
        error = t->ops->mem_register(t, &p->regions[r].memory, &mems[r]);
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

int pump_domain_open(struct hlg_pump *p, uint32_t domain)
{
    struct pump_domain *d = &p->domains[domain];

    if (d->open) {
        return 0;
    }
    d->open = true;
    d->opening++;
    for (uint32_t i = 0; i < p->lanes * p->rails; i++) {
        int error = open_endpoint(p, domain, i / p->rails, i % p->rails);
        if (error < 0) {
            pump_domain_close(p, domain);
            return error;
        }
    }
    return 0;
}

static void feed_done(struct hlg_pump *p, const struct hlg_transport_event *event)
{
    struct hlg_event e; /* of its size only what is read is set: there is one for each write */

    const uint32_t weight = event->done.op >> PUMP_OP_BITS;

    e.kind = HLG_EVENT_DONE_WRITE;
    e.done = (struct hlg_event_done){.op = event->done.op & ((1u << PUMP_OP_BITS) - 1),
                                     .done = event->done.done << weight,
                                     .failed = event->done.failed << weight,
                                     .status = event->done.status};
    p->stats.pieces_done += e.done.done;
    p->stats.pieces_failed += e.done.failed;
    int error = pump_feed(p, &e);
    HLG_ASSERT(error == 0); /* an operation lives until all that was taken is reported */
}

static void feed_imm(struct hlg_pump *p, uint32_t domain, uint32_t endpoint,
                     const struct hlg_transport_event *event)
{
    struct hlg_event e; /* likewise */

    e.kind = HLG_EVENT_IMM;
    e.imm = (struct hlg_event_imm){.imm = event->imm.imm,
                                   .pieces = event->imm.pieces,
                                   .immediates = event->imm.immediates,
                                   .lane = endpoint / p->rails,
                                   .rail = endpoint % p->rails,
                                   .domain = domain};
    p->stats.pieces_counted += event->imm.pieces;
    /* Foreign data: the machine notes what it does not know, and there is no one to answer. */
    (void)pump_feed(p, &e);
}

/* A transport names a peer by its own number: find whose it is. */
static void feed_peer_down(struct hlg_pump *p, uint32_t domain, uint32_t endpoint, uint32_t number)
{
    uint32_t remotes = p->limits.lanes_max * p->limits.rails_max;

    for (uint32_t i = 0; i < p->peers_used; i++) {
        const struct pump_peer *peer = &p->peers[i];
        if (peer->state != PUMP_PEER_LIVE || peer->domain != domain || !peer->opened) {
            continue;
        }
        for (uint32_t r = 0; r < peer->lanes * peer->rails; r++) {
            if (peer->numbers[endpoint * remotes + r] == number) {
                pump_session_end(p, i, -HLG_EPEER);
                return;
            }
        }
    }
}

/* Returns the events of one poll. */
static uint32_t poll_once(struct hlg_pump *p, uint32_t domain, uint32_t endpoint)
{
    struct hlg_transport_event events[POLL_EVENTS];
    struct hlg_transport *t = p->domains[domain].endpoints[endpoint].transport;

    int count = t->ops->poll(t, events, POLL_EVENTS);
    for (int i = 0; i < count; i++) {
        switch ((enum hlg_transport_event_kind)events[i].kind) {
        case HLG_TRANSPORT_DONE_WRITE:
            feed_done(p, &events[i]);
            break;
        case HLG_TRANSPORT_IMM:
            feed_imm(p, domain, endpoint, &events[i]);
            break;
        case HLG_TRANSPORT_PEER_DOWN:
            feed_peer_down(p, domain, endpoint, events[i].peer);
            break;
        }
    }
    return count > 0 ? (uint32_t)count : 0;
}

void pump_domain_close(struct hlg_pump *p, uint32_t domain)
{
    struct pump_domain *d = &p->domains[domain];

    if (!d->open) {
        return;
    }
    d->open = false;
    d->close_status = 0;
    for (uint32_t i = 0; i < p->lanes * p->rails; i++) {
        struct hlg_transport *t = d->endpoints[i].transport;
        if (t == NULL) {
            continue;
        }
        int error = t->ops->close(t);
        if (error < 0 && d->close_status == 0) {
            d->close_status = error;
        }
    }
    for (uint32_t i = 0; i < p->lanes * p->rails; i++) {
        struct hlg_transport *t = d->endpoints[i].transport;
        if (t == NULL) {
            continue;
        }
        /* Bounded: each operation in flight has few parts left, and none is added. */
        while (poll_once(p, domain, i) > 0) {
        }
        t->ops->free(t);
        d->endpoints[i] = (struct pump_endpoint){0};
    }
}

void pump_domains_say_room(struct hlg_pump *p)
{
    for (uint32_t i = 0; p->any_room && i < p->lanes * p->rails; i++) {
        if (p->room[i]) {
            struct hlg_event e = {.kind = HLG_EVENT_ROOM,
                                  .room = {.lane = i / p->rails, .rail = i % p->rails}};
            p->room[i] = false;
            int error = pump_feed(p, &e);
            HLG_ASSERT(error == 0);
        }
    }
    p->any_room = false;
}

int pump_domain_poll(struct hlg_pump *p, uint32_t number)
{
    const uint32_t domain = number / (p->lanes * p->rails);
    const uint32_t index = number % (p->lanes * p->rails);
    struct pump_endpoint *endpoint = &p->domains[domain].endpoints[index];
    uint32_t count = POLL_EVENTS;
    int work = 0;

    for (uint32_t round = 0; round < POLL_ROUNDS_MAX && count == POLL_EVENTS; round++) {
        count = poll_once(p, domain, index);
        work += (int)count;
    }
    /* A transport does not say when it has room again, but only news can make it. */
    if (endpoint->refused) {
        endpoint->refused = false;
        p->room[index] = true;
        p->any_room = true;
    }
    return work;
}

int pump_domains_poll(struct hlg_pump *p)
{
    const uint32_t each = p->lanes * p->rails;
    int work = 0;

    for (uint32_t d = 0; d < p->domain_count; d++) {
        for (uint32_t i = 0; p->domains[d].open && i < each; i++) {
            work += pump_domain_poll(p, d * each + i);
        }
    }
    pump_domains_say_room(p);
    return work;
}

/* The domain may live on without a peer whose addresses were not all good. */
static void take_back_numbers(struct hlg_pump *p, const struct pump_peer *peer, uint32_t count)
{
    const struct pump_domain *domain = &p->domains[peer->domain];
    uint32_t remotes = p->limits.lanes_max * p->limits.rails_max;
    uint32_t of_each = peer->lanes * peer->rails;

    for (uint32_t i = 0; i < count; i++) {
        struct hlg_transport *t = domain->endpoints[i / of_each].transport;
        int error = t->ops->peer_close(t, peer->numbers[i / of_each * remotes + i % of_each]);
        HLG_ASSERT(error == 0); /* it was opened just now */
    }
}

int pump_domain_peer_open(struct hlg_pump *p, struct pump_peer *peer)
{
    const struct pump_domain *domain = &p->domains[peer->domain];
    uint32_t remotes = p->limits.lanes_max * p->limits.rails_max;
    uint32_t of_each = peer->lanes * peer->rails; /* endpoints of the peer, for each of ours */
    uint32_t count = p->lanes * p->rails * of_each;

    HLG_ASSERT(domain->open && domain->opening == peer->opening);
    for (uint32_t i = 0; i < count; i++) {
        struct hlg_transport *t = domain->endpoints[i / of_each].transport;
        const struct hlg_rail_address *address = &peer->addresses[i % of_each];
        int number = t->ops->peer_open(t, address->address, address->bytes);
        if (number < 0) {
            take_back_numbers(p, peer, i);
            return number;
        }
        peer->numbers[i / of_each * remotes + i % of_each] = (uint32_t)number;
    }
    peer->opened = true;
    return 0;
}
