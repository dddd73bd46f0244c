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
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->lane == lane && p->group == group && p->layer == layer && p->plane == plane) {
            return p;
        }
    }
    return NULL;
}

uint8_t *node_page(struct node *n, uint32_t lane, uint32_t group, uint32_t layer, uint32_t plane,
                   uint32_t page)
{
    const struct hlg_place *place = place_of(n, lane, group, layer, plane);

    HLG_ASSERT(place != NULL);
    return n->memory[lane] + place->offset + page * place->stride;
}

bool node_find_page(const struct node *n, uint32_t lane, uint64_t offset, uint32_t *pool,
                    uint32_t *group, uint32_t *page)
{
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        uint64_t limit = p->offset + p->stride * n->layout.groups[p->group].page_count;
        if (p->lane == lane && offset >= p->offset && offset < limit) {
            *pool = lane / node_hosted(n);
            *group = p->group;
            *page = (uint32_t)((offset - p->offset) / p->stride);
            return true;
        }
    }
    return false;
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

uint64_t content_fill(struct node *n, const struct job *job, uint32_t g, uint32_t layer,
                      uint32_t rank, uint32_t begin, uint32_t limit, bool check)
{
    const struct hlg_group *group = &n->layout.groups[g];
    uint32_t lane = hlg_layout_lane(&n->layout, job->pool, rank);
    uint32_t t = rank % n->layout.tp;
    uint32_t tp = n->layout.tp;
    /* the definition: heads / tp each, or the one head floor(t * heads / tp) */
    uint32_t heads = tp <= group->heads ? group->heads / tp : 1;
    uint32_t head_begin = tp <= group->heads ? t * heads : t * group->heads / tp;
    uint64_t wrong = 0;

    for (uint32_t plane = 0; plane < group->planes; plane++) {
        const uint32_t name[4] = {g, layer, plane, 0};
        for (uint32_t token = begin; token < limit; token++) {
            uint32_t position = token / group->page_tokens;
            if (position < job->first[g] || position >= job->first[g] + job->count[g]) {
                continue;
            }
            uint8_t *page =
                node_page(n, lane, g, layer, plane, job->pages[g][position - job->first[g]]);
            wrong += fill_token(group, job, page, name, head_begin, heads, token, check);
        }
    }
    return wrong;
}
