/* What KV bytes ought to be, without the planner: straight from who holds which head and layer. */
#include "world.h"

#include <string.h>

uint8_t content_byte(uint64_t uid, uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
                     uint32_t token, uint32_t byte)
{
    uint64_t x = uid * 0x9e3779b97f4a7c15u;

    x ^= ((uint64_t)group << 56) ^ ((uint64_t)layer << 40) ^ ((uint64_t)plane << 36) ^
         ((uint64_t)head << 24) ^ token;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
    return (uint8_t)((x >> (8 * (byte % 8))) + byte);
}

static const struct hlg_place *place_of(const struct node *n, uint32_t lane, uint32_t group,
                                        uint32_t layer, uint32_t plane)
{
    for (uint32_t i = n->place_begin[lane]; i < n->place_begin[lane + 1]; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->group == group && p->layer == layer && p->plane == plane) {
            return p;
        }
    }
    return NULL;
}

static uint8_t *page_at(struct node *n, uint32_t lane, uint32_t group, uint32_t layer,
                        uint32_t plane, uint32_t page)
{
    const struct hlg_place *place = place_of(n, lane, group, layer, plane);

    HLG_ASSERT(place != NULL);
    return n->memory[lane] + place->offset + page * place->stride;
}

/* One token of one plane of one page: write or compare each byte of each head the rank holds. */
static uint64_t fill_token(const struct hlg_group *group, const struct job *job, uint8_t *page,
                           const uint32_t name[4], uint32_t head_begin, uint32_t heads,
                           uint32_t token, bool check)
{
    uint64_t wrong = 0;
    uint32_t slot = token % group->page_tokens;

    for (uint32_t h = 0; h < heads; h++) {
        uint32_t at =
            group->arrangement == HLG_HND ? h * group->page_tokens + slot : slot * heads + h;
        for (uint32_t b = 0; b < group->head_bytes; b++) {
            uint8_t want =
                content_byte(job->uid, name[0], name[1], name[2], head_begin + h, token, b);
            uint8_t *byte = &page[at * group->head_bytes + b];
            wrong += check && *byte != want;
            *byte = check ? *byte : want;
        }
    }
    return wrong;
}

/* Heads that a rank of a layout holds of a group: heads / tp each, or the one head floor(t * heads / tp). */
static uint32_t heads_of(const struct node *n, uint32_t g, uint32_t rank, uint32_t *head_begin)
{
    uint32_t tp = n->layout.tp;
    uint32_t t = rank % tp;
    uint32_t all = n->layout.groups[g].heads;
    uint32_t heads = tp <= all ? all / tp : 1;

    *head_begin = tp <= all ? t * heads : t * all / tp;
    return heads;
}

uint64_t content_fill(struct node *n, const struct job *job, uint32_t g, uint32_t layer,
                      uint32_t rank, uint32_t begin, uint32_t limit, bool check)
{
    const struct hlg_group *group = &n->layout.groups[g];
    uint32_t lane = hlg_layout_lane(&n->layout, job->pool, rank);
    uint32_t head_begin = 0;
    uint32_t heads = heads_of(n, g, rank, &head_begin);
    uint64_t wrong = 0;

    for (uint32_t plane = 0; plane < group->planes; plane++) {
        const uint32_t name[4] = {g, layer, plane, 0};
        for (uint32_t token = begin; token < limit; token++) {
            uint32_t position = token / group->page_tokens;
            if (position < job->first[g] || position >= job->first[g] + job->count[g]) {
                continue;
            }
            uint8_t *page =
                page_at(n, lane, g, layer, plane, job->pages[g][position - job->first[g]]);
            wrong += fill_token(group, job, page, name, head_begin, heads, token, check);
        }
    }
    return wrong;
}

uint64_t content_touched(struct node *n, const struct job *job, uint32_t g, uint32_t layer,
                         uint32_t rank, uint32_t token)
{
    const struct hlg_group *group = &n->layout.groups[g];
    uint32_t lane = hlg_layout_lane(&n->layout, job->pool, rank);
    uint32_t position = token / group->page_tokens;
    uint32_t slot = token % group->page_tokens;
    uint32_t head_begin = 0;
    uint32_t heads = heads_of(n, g, rank, &head_begin);
    uint64_t touched = 0;

    if (position < job->first[g] || position >= job->first[g] + job->count[g]) {
        return 0;
    }
    for (uint32_t plane = 0; plane < group->planes; plane++) {
        const uint8_t *page =
            page_at(n, lane, g, layer, plane, job->pages[g][position - job->first[g]]);
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t at =
                group->arrangement == HLG_HND ? h * group->page_tokens + slot : slot * heads + h;
            for (uint32_t b = 0; b < group->head_bytes; b++) {
                touched += page[at * group->head_bytes + b] != SCRIBBLE;
            }
        }
    }
    return touched;
}
