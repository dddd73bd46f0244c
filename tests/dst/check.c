/* The checkers that look at each landing, at each posting, after each turn, and at rest. */
#include "../../src/core/census.h"
#include "../../src/core/imm.h"
#include "../../src/driver/pump_internal.h"
#include "world.h"

/* Whom the immediate of a landing speaks for: what a REQUEST said of its slot. */
static uint64_t landing_uid(const struct node *n, uint32_t imm)
{
    uint32_t slot = hlg_imm_slot(imm);

    return slot < SLOTS_MAX ? n->slot_uid[slot][hlg_imm_generation(imm) % GENERATIONS] : 0;
}

/* What the machine holds of a page that something lands in. */
static bool machine_agrees(const struct node *n, uint32_t pool, uint32_t group, uint32_t page,
                           const struct job *job)
{
    hlg_handle owner = 0;
    enum hlg_page_state state = hlg_decode_page(n->pump->machine.memory, pool, group, page, &owner);

    return owner == job->handle && state == (job->failed ? HLG_PAGE_QUARANTINED : HLG_PAGE_OWNED);
}

/* Bytes [offset, limit) of a lane's memory, which lie in one page. */
static void check_page(struct world *w, const struct hlg_loop_landing *landing, uint64_t offset,
                       uint64_t limit)
{
    struct node *n = &w->nodes[landing->target_node];
    const struct hlg_place *place = NULL;
    uint32_t number = 0;
    uint32_t last = 0;
    uint32_t lane = landing->target_lane;
    struct page *page = node_find_page(n, lane, offset, &place, &number);

    looked(w, CHECK_TARGET);
    if (page == NULL || node_find_page(n, lane, limit - 1, &place, &last) != page) {
        world_break(w, CHECK_TARGET, "bytes landed outside of any page", offset, limit - offset);
        return;
    }
    if (page->is_free) {
        world_break(w, CHECK_TARGET, "bytes landed in a page that its engine holds free",
                    place->group, number);
        return;
    }
    if (page->poisoned) {
        return; /* that is why nobody may use it again */
    }
    struct job *job = &n->jobs[page->job];
    job->arrived++;
    looked(w, CHECK_OWNER);
    if (hlg_imm_slot(landing->imm) == HLG_SLOTS_MAX - 1) {
        return; /* no request has that slot: a first placement by the decorator: the second one counts */
    }
    if (landing_uid(n, landing->imm) != job->uid) {
        world_break(w, CHECK_OWNER, "bytes of one request landed in a page of another",
                    landing_uid(n, landing->imm), job->uid);
    } else if (job->ready) {
        world_break(w, CHECK_OWNER, "bytes landed in a page of a request that was READY", job->uid,
                    number);
    } else if (!machine_agrees(n, lane / node_hosted(n), place->group, number, job)) {
        world_break(w, CHECK_OWNER, "the machine's owner of a page is not its engine's", job->uid,
                    number);
    }
    job->landed += !landing->again;
}

/* A write of several pages lands in each of them: all of a piece's bytes in one. */
static void check_target(struct world *w, const struct hlg_loop_landing *landing)
{
    const uint32_t pieces = 1u << hlg_imm_weight(landing->imm);
    const uint32_t bytes = landing->bytes / pieces;

    w->counts.net[KIND_DENSE] += pieces > 1;
    if (bytes * pieces != landing->bytes) {
        world_break(w, CHECK_TARGET, "bytes landed that are no whole pieces", landing->bytes,
                    pieces);
        return;
    }
    for (uint32_t i = 0; i < pieces && w->broken == CHECK_NONE; i++) {
        const uint64_t offset = landing->target_offset + (uint64_t)i * bytes;
        check_page(w, landing, offset, offset + bytes);
    }
}

static void check_source(struct world *w, const struct hlg_loop_landing *landing)
{
    struct node *n = &w->nodes[landing->source_node];

    looked(w, CHECK_SOURCE);
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        const struct hlg_place *place = NULL;
        uint32_t number = 0;
        if (landing->source < n->memory[lane] ||
            landing->source >= n->memory[lane] + n->memory_bytes) {
            continue;
        }
        const struct page *page =
            node_find_page(n, lane, (uint64_t)(landing->source - n->memory[lane]), &place, &number);
        if (page == NULL || page->is_free) {
            world_break(w, CHECK_SOURCE, "bytes were read from a source page that was given back",
                        place != NULL ? place->group : HLG_NONE, number);
        }
        return;
    }
    world_break(w, CHECK_SOURCE, "bytes were read from nowhere", landing->source_node, 0);
}

void check_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct world *w = context;

    w->counts.landings++;
    if (w->nodes[landing->target_node].alive) {
        check_target(w, landing);
    }
    if (w->fault != NULL && hlg_fault_owns(w->fault, landing->source)) {
        return; /* the decorator's copy of what failed */
    }
    if (landing->source != NULL && w->nodes[landing->source_node].alive) {
        check_source(w, landing);
    }
}

/* Returns where the page ends that holds a byte which is posted. */
static uint64_t check_posted(struct node *n, uint32_t lane, uint64_t offset)
{
    struct world *w = n->world;
    const struct hlg_place *place = NULL;
    uint32_t number = 0;
    const struct page *page = node_find_page(n, lane, offset, &place, &number);

    looked(w, CHECK_LAYER);
    if (page == NULL || page->is_free) {
        world_break(w, CHECK_SOURCE, "a piece was posted out of a page that was given back", lane,
                    number);
        return UINT64_MAX;
    }
    const struct job *job = &n->jobs[page->job];
    const struct hlg_group *group = &n->layout.groups[place->group];
    uint32_t computed = job->fact[prefill_word(&n->layout, lane)][place->layer];
    uint32_t needed = hlg_min_u32((page->position + 1) * group->page_tokens, job->tokens - 1);
    if (computed < needed) {
        world_break(w, CHECK_LAYER, "a piece was posted before its layer was computed", computed,
                    needed);
    }
    return place->offset + (number + 1) * place->stride;
}

void check_post(struct node *n, uint32_t lane, const uint8_t *source, uint32_t bytes)
{
    uint64_t offset = (uint64_t)(source - n->memory[lane]);
    const uint64_t limit = offset + bytes;

    while (offset < limit) {
        offset = check_posted(n, lane, offset);
    }
}

void check_census(const struct node *n, struct hlg_census *census)
{
    if (n->decode) {
        hlg_decode_census(n->pump->machine.memory, census);
    } else {
        hlg_prefill_census(n->pump->machine.memory, census);
    }
}

static uint32_t count_jobs(const struct node *n)
{
    uint32_t jobs = 0;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        jobs += n->jobs[i].used;
    }
    return jobs;
}

void check_tables(struct node *n)
{
    struct world *w = n->world;
    struct hlg_census c;

    check_census(n, &c);
    looked(w, CHECK_BOUND);
    looked(w, CHECK_REST);
    if (c.requests > c.requests_max || c.timers > c.requests_max || c.sessions > c.sessions_max ||
        c.messages > c.messages_max || c.slots + c.slots_poisoned > c.slots_max ||
        c.pages + c.pages_poisoned > c.pages_max || c.ops > c.ops_max || c.blocks > c.blocks_max ||
        c.chunks > c.chunks_max || c.forwards > c.forwards_max) {
        world_break(w, CHECK_BOUND, "a table holds more than its limit", n->index, c.requests);
    }
    if (c.requests != count_jobs(n)) {
        world_break(w, CHECK_REST, "a machine holds other requests than its engine", c.requests,
                    count_jobs(n));
    }
}

/* Nothing is open: every page of every pool must be free again, or poisoned and said to be. */
static void check_pages(struct node *n, const struct hlg_census *c)
{
    uint32_t poisoned = 0;

    looked(n->world, CHECK_PAGES);
    for (uint32_t pool = 0; pool < n->layout.pools; pool++) {
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            uint32_t count = n->free_count[pool][g];
            for (uint32_t i = 0; i < n->layout.groups[g].page_count; i++) {
                poisoned += n->pages[pool][g][i].poisoned;
                count += n->pages[pool][g][i].poisoned;
            }
            if (count != n->layout.groups[g].page_count) {
                world_break(n->world, CHECK_PAGES, "pages were lost", n->index, g);
            }
        }
    }
    uint64_t known = n->decode ? c->pages_poisoned : c->sources_poisoned;
    if (poisoned != known) {
        world_break(n->world, CHECK_PAGES, "the engine knows of other poisoned pages", poisoned,
                    known);
    }
}

void check_rest(struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        struct hlg_census c;
        check_census(n, &c);
        looked(w, CHECK_REST);
        if (c.requests + c.timers + c.slots + c.pages + c.ops + c.blocks + c.chunks > 0) {
            world_break(w, CHECK_REST,
                        "requests, timers, slots, pages, writes, blocks or chunks "
                        "are held at rest",
                        i, c.requests + c.timers + c.slots + c.pages);
        }
        if (c.forwards > 0) {
            world_break(w, CHECK_REST, "forwards are held at rest", i, c.forwards);
        }
        if (c.sessions != (n->decode ? w->prefillers : w->decoders)) {
            world_break(w, CHECK_PEER, "other sessions than those of the connected nodes", i,
                        c.sessions);
        }
        check_pages(n, &c);
    }
}
