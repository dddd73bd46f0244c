/* A node: its layout's memory, its engine's free pages, its pump. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

void world_break(struct world *w, const char *what, uint64_t a, uint64_t b)
{
    if (w->broken == NULL) {
        w->broken = what;
        w->broken_a = a;
        w->broken_b = b;
    }
}

bool chance(struct world *w, uint32_t ppm)
{
    return draw(w, 1000000) < ppm;
}

uint32_t node_hosted(const struct node *n)
{
    return n->layout.rank_limit - n->layout.rank_begin;
}

hlg_time soon(struct world *w, hlg_time most)
{
    return 1 + (hlg_time)draw_u32(w) % most;
}

hlg_time give_up_time(struct world *w, uint32_t ppm)
{
    if (w->calm || !chance(w, w->fickle ? 4 * ppm : ppm)) {
        return HLG_TIME_NEVER;
    }
    return hlg_loop_now(w->loop) + soon(w, 600000);
}

bool node_take(struct node *n, uint32_t pool, uint32_t group, uint32_t count, uint32_t *pages)
{
    if (n->free_count[pool][group] < count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = n->free_pages[pool][group][--n->free_count[pool][group]];
        n->is_free[pool][group][pages[i]] = false;
    }
    return true;
}

/* Scribble over every byte that a page has on any lane: whoever still needs it will see. */
static void scrub(struct node *n, uint32_t pool, uint32_t group, uint32_t page)
{
    uint32_t ranks = node_hosted(n);

    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->group == group && p->lane / ranks == pool) {
            memset(n->memory[p->lane] + p->offset + page * p->stride, 0xEE, p->stride);
        }
    }
}

void node_give(struct node *n, uint32_t pool, uint32_t group, const uint32_t *pages, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--) {
        uint32_t page = pages[i - 1];
        if (n->is_free[pool][group][page]) {
            world_break(n->world, "a page was given back twice", group, page);
            return;
        }
        scrub(n, pool, group, page);
        n->is_free[pool][group][page] = true;
        n->free_pages[pool][group][n->free_count[pool][group]++] = page;
    }
}

static void on_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    if (notice->kind == HLG_NOTICE_PEER_DOWN && n->node_of[notice->peer] == HLG_NONE) {
        return;
    }
    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->peer_up[n->node_of[notice->peer]] = true;
    } else if (notice->kind == HLG_NOTICE_PEER_DOWN || notice->kind == HLG_NOTICE_PEER_REFUSED) {
        uint32_t other = n->node_of[notice->peer];
        if (n->peer_of[other] == notice->peer) {
            n->peer_of[other] = HLG_NONE;
            n->peer_up[other] = false;
            n->dial_at[other] = hlg_loop_now(n->world->loop) + soon(n->world, 5000000);
        }
        if (notice->kind == HLG_NOTICE_PEER_REFUSED &&
            notice->refusal.code != HLG_REFUSAL_TRANSPORT) {
            world_break(n->world, "peers of a sound world were refused", notice->refusal.code,
                        n->index);
        }
    } else if (n->decode) {
        decode_notice(n, notice);
    } else {
        prefill_notice(n, notice);
    }
}

static void on_note(void *context, const struct hlg_note *note)
{
    struct node *n = context;

    HLG_ASSERT(note->code < 64);
    n->world->counts.notes[note->code]++;
}

static void fill_pools(struct node *n)
{
    for (uint32_t pool = 0; pool < n->layout.pools; pool++) {
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            uint32_t count = 0;
            for (uint32_t page = 0; page < n->layout.groups[g].page_count; page++) {
                n->is_free[pool][g][page] = !n->poisoned[pool][g][page];
                if (n->is_free[pool][g][page]) {
                    n->free_pages[pool][g][count++] = page;
                }
            }
            n->free_count[pool][g] = count;
        }
    }
}

static void small_limits(struct hlg_limits *limits, const struct node *n)
{
    hlg_limits_default(limits);
    limits->peers_max = NODES_MAX * 4;
    limits->requests_max = REQUESTS_MAX;
    limits->sources_max = PREFILLERS_MAX;
    limits->lanes_max = LANES_MAX;
    limits->rails_max = 2;
    limits->slices_max = 2048;
    limits->forwards_max = FORWARDS_MAX + 1;
    limits->chunks_max = 64;
    limits->ops_max = 8 + (uint32_t)(n->world->seed % 64);
    limits->blocks_max = 256;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = 1u << 16;
    limits->window_pieces = 4 + (uint32_t)(n->world->seed % 60);
    limits->lease_ns = 200 * HLG_NS_PER_MS;
    limits->heartbeat_ns = 20 * HLG_NS_PER_MS;
    limits->fence_ns = 100 * HLG_NS_PER_MS;
    if (n->world->tiny) {
        limits->requests_max = 2 + (uint32_t)(n->world->seed % 3);
        limits->chunks_max = 1 + (uint32_t)(n->world->seed % 4);
        limits->ops_max = 1 + (uint32_t)(n->world->seed % 3);
        limits->blocks_max = HLG_GROUPS_MAX;
        limits->window_pieces = 2 + (uint32_t)(n->world->seed % 3);
    }
}

void node_start(struct node *n)
{
    struct hlg_pump_region regions[LANES_MAX];
    struct hlg_pump_config config = {.role = n->decode ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                                     .fabric = hlg_loop_fabric(n->world->loop, n->index),
                                     .regions = regions,
                                     .region_count = n->lanes,
                                     .places = n->places,
                                     .place_count = n->place_count,
                                     .notice = on_notice,
                                     .note = on_note,
                                     .context = n};
    char error[256] = "";

    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        regions[lane] = (struct hlg_pump_region){
            .lane = lane, .base = n->memory[lane], .bytes = n->memory_bytes};
        memset(n->memory[lane], 0xEE, n->memory_bytes);
    }
    n->incarnation = ++n->world->uid;
    if (n->decode) {
        config.decode = (struct hlg_decode_config){.layout = n->layout,
                                                   .rails = config.fabric->rails,
                                                   .node = n->index + 1,
                                                   .incarnation = n->incarnation,
                                                   .flush = n->world->flush};
        small_limits(&config.decode.limits, n);
    } else {
        config.prefill = (struct hlg_prefill_config){.layout = n->layout,
                                                     .rails = config.fabric->rails,
                                                     .node = n->index + 1,
                                                     .incarnation = n->incarnation};
        small_limits(&config.prefill.limits, n);
    }
    fill_pools(n);
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        n->peer_of[i] = HLG_NONE;
        n->peer_up[i] = false;
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        world_break(n->world, "the pump could not be made", n->index, 0);
        return;
    }
    n->alive = true;
}

void node_stop(struct node *n)
{
    hlg_pump_destroy(n->pump);
    n->pump = NULL;
}
