/* What the plan says of a request: whether its bytes are there, and how much of it is due. */
#include "world.h"

#include <halage/plan.h>
#include <halage/replica.h>
#include <string.h>

#define SLICES_MAX 512u

struct joint {
    struct hlg_plan plan;
    struct hlg_slice slices[SLICES_MAX];
};

static bool join(struct joint *joint, const struct world *w, const struct job *job)
{
    const struct script_request *r = job->request;
    struct hlg_refusal why = {0};

    return hlg_plan_build(&joint->plan, joint->slices, SLICES_MAX, w->nodes[r->prefiller].layout,
                          w->nodes[PREFILLERS + r->decoder].layout, &why) == 0;
}

static const uint8_t *page_at(const struct node *n, uint32_t lane, const struct hlg_slice *slice,
                              uint32_t layer, uint32_t page)
{
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *place = &n->places[i];
        if (place->lane == lane && place->group == slice->group && place->layer == layer &&
            place->plane == slice->plane) {
            return n->memory[lane] + place->offset + page * place->stride;
        }
    }
    return NULL;
}

/* One slice of one page of one layer. */
static bool slice_arrived(const struct world *w, const struct script_request *r,
                          const struct hlg_slice *slice, uint32_t layer, uint32_t position)
{
    const struct node *source = &w->nodes[r->prefiller];
    const struct node *target = &w->nodes[PREFILLERS + r->decoder];
    const uint8_t *from =
        page_at(source, hlg_layout_lane(source->layout, r->source_pool, slice->source_rank), slice,
                layer, script_source_page(r, position));
    const uint8_t *to =
        page_at(target, hlg_layout_lane(target->layout, r->target_pool, slice->target_rank), slice,
                layer, script_target_page(r, position));

    if (from == NULL || to == NULL) {
        return false;
    }
    for (uint32_t run = 0; run < slice->count; run++) {
        if (memcmp(from + slice->source_offset + (size_t)run * slice->source_stride,
                   to + slice->target_offset + (size_t)run * slice->target_stride,
                   slice->bytes) != 0) {
            return false;
        }
    }
    return true;
}

bool bytes_arrived(struct world *w, const struct job *job)
{
    static struct joint joint;
    const struct script_request *r = job->request;

    if (r->fate == FATE_LOCAL) {
        return true;
    }
    if (!join(&joint, w, job)) {
        return false;
    }
    uint32_t offset = hlg_replica_offset(r->random, joint.plan.offset_count);
    for (uint32_t i = 0; i < joint.plan.slice_count; i++) {
        const struct hlg_slice *slice = &joint.slices[i];
        for (uint32_t layer = 0; layer <= joint.plan.source.layers; layer++) {
            if (!hlg_plan_uses(&joint.plan, slice, offset) ||
                !hlg_plan_moves_layer(&joint.plan, slice, layer)) {
                continue;
            }
            for (uint32_t k = 0; k < r->count[slice->group]; k++) {
                if (!slice_arrived(w, r, slice, layer, r->first[slice->group] + k)) {
                    return false;
                }
            }
        }
    }
    return true;
}

uint64_t pieces_due(struct world *w, const struct job *job, uint32_t tokens)
{
    static struct joint joint;
    const struct script_request *r = job->request;
    uint32_t pages[HLG_GROUPS_MAX] = {0};

    if (!join(&joint, w, job)) {
        return UINT64_MAX;
    }
    for (uint32_t g = 0; g < joint.plan.source.group_count; g++) {
        const struct hlg_group *group = &joint.plan.source.groups[g];
        uint32_t whole = tokens / group->page_tokens; /* what is begun waits for a later chunk */
        if (group->kind == HLG_GROUP_PAGED && whole > r->first[g]) {
            pages[g] = whole - r->first[g];
        }
    }
    return hlg_plan_pieces(&joint.plan, hlg_replica_offset(r->random, joint.plan.offset_count),
                           HLG_NONE, pages, HLG_GROUP_PAGED);
}
