#include "credit.h"

void load_add(struct hlg_load *sum, const struct hlg_load *load)
{
    sum->requests += load->requests;
    sum->pages += load->pages;
    sum->prompt_bytes += load->prompt_bytes;
}

void load_subtract(struct hlg_load *sum, const struct hlg_load *load)
{
    HLG_ASSERT(load_within(load, sum));
    sum->requests -= load->requests;
    sum->pages -= load->pages;
    sum->prompt_bytes -= load->prompt_bytes;
}

bool load_within(const struct hlg_load *a, const struct hlg_load *b)
{
    return a->requests <= b->requests && a->pages <= b->pages && a->prompt_bytes <= b->prompt_bytes;
}

struct hlg_load load_of(const struct hlg_page_list *groups, uint32_t group_count,
                        uint32_t prompt_bytes)
{
    struct hlg_load load = {.requests = 1, .prompt_bytes = prompt_bytes};

    for (uint32_t g = 0; g < hlg_min_u32(group_count, HLG_GROUPS_MAX); g++) {
        load.pages += groups[g].count;
    }
    return load;
}

/* ---- decode ---- */

void credits_init(struct credits *c, struct carve *carve, uint32_t peers, uint32_t slots)
{
    struct purse *purses = carve_array(carve, peers, sizeof *purses);
    uint32_t *next = carve_array(carve, slots, sizeof *next);
    uint32_t *before = carve_array(carve, slots, sizeof *before);
    bool *waits = carve_array(carve, slots, sizeof *waits);

    if (carve->base == NULL) {
        return;
    }
    *c = (struct credits){
        .peers = peers, .purses = purses, .next = next, .before = before, .waits = waits};
    for (uint32_t i = 0; i < peers; i++) {
        purses[i] = (struct purse){.head = HLG_NONE, .tail = HLG_NONE};
    }
}

void credits_wait(struct credits *c, uint32_t peer, uint32_t slot)
{
    struct purse *purse = &c->purses[peer];

    HLG_ASSERT(!c->waits[slot]);
    c->waits[slot] = true;
    c->next[slot] = HLG_NONE;
    c->before[slot] = purse->tail;
    if (purse->tail == HLG_NONE) {
        purse->head = slot;
    } else {
        c->next[purse->tail] = slot;
    }
    purse->tail = slot;
}

void credits_drop(struct credits *c, uint32_t peer, uint32_t slot)
{
    struct purse *purse = &c->purses[peer];

    HLG_ASSERT(c->waits[slot]);
    c->waits[slot] = false;
    if (c->before[slot] == HLG_NONE) {
        HLG_ASSERT(purse->head == slot);
        purse->head = c->next[slot];
    } else {
        c->next[c->before[slot]] = c->next[slot];
    }
    if (c->next[slot] == HLG_NONE) {
        HLG_ASSERT(purse->tail == slot);
        purse->tail = c->before[slot];
    } else {
        c->before[c->next[slot]] = c->before[slot];
    }
}

bool credits_cover(const struct credits *c, uint32_t peer, const struct hlg_load *grant,
                   const struct hlg_load *cost)
{
    const struct purse *purse = &c->purses[peer];
    struct hlg_load sum = purse->charged;

    load_subtract(&sum, &purse->returned);
    load_add(&sum, cost);
    return load_within(&sum, grant);
}

int credits_return(struct credits *c, uint32_t peer, const struct hlg_load *finished)
{
    struct purse *purse = &c->purses[peer];

    if (!load_within(&purse->returned, finished) || !load_within(finished, &purse->sent) ||
        finished->requests == purse->returned.requests) {
        return -HLG_EPROTO;
    }
    purse->returned = *finished;
    return 0;
}

void credits_forget(struct credits *c, uint32_t peer)
{
    HLG_ASSERT(c->purses[peer].head == HLG_NONE && c->purses[peer].tail == HLG_NONE);
    c->purses[peer] = (struct purse){.head = HLG_NONE, .tail = HLG_NONE};
}

/* ---- prefill ---- */

bool ledger_ask(struct ledger *l, const struct hlg_load *grant, const struct hlg_load *cost)
{
    load_add(&l->asked, cost);
    struct hlg_load open = l->asked;
    load_subtract(&open, &l->finished);
    return load_within(&open, grant);
}

static bool is_short(uint64_t grant, uint64_t used, uint64_t largest)
{
    /* floor: of an odd grant the smaller half */
    uint64_t least = largest < grant / 2 ? grant / 2 : hlg_min_u64(largest, grant);

    return used >= grant || grant - used < least;
}

bool ledger_due(const struct ledger *l, const struct hlg_load *grant,
                const struct hlg_load *largest)
{
    struct hlg_load used = l->asked;

    if (l->finished.requests == l->told.requests) {
        return false; /* pages and bytes are never finished alone */
    }
    load_subtract(&used, &l->told);
    return is_short(grant->requests, used.requests, largest->requests) ||
           is_short(grant->pages, used.pages, largest->pages) ||
           is_short(grant->prompt_bytes, used.prompt_bytes, largest->prompt_bytes);
}
