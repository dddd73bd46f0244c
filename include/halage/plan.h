/*
 * The resharding plan: a pure function of two layouts. It says which byte runs of a source rank's
 * page go where in a target rank's page, and how many pieces each side must count. By overlap of
 * intervals of global layer and head numbers. Needs no device: `halage plan` prints it.
 */
#ifndef HALAGE_PLAN_H
#define HALAGE_PLAN_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `count` runs of `bytes` bytes, that far apart, from a page of the source rank to the same page
 * (by position in the request's list) of the target rank. Offsets are from the start of the page of
 * that plane. Each run is one piece, the unit of counting: one write and one immediate of weight 0.
 * It holds for every layer of the group that both ranks' stages hold.
 *
 * A run is contiguous on both sides: a whole page or a span of heads under HND; under NHD a whole
 * page when both ranks hold the same heads, else one token. Runs longer than piece_bytes_max are
 * cut every piece_bytes_max bytes from their start, each cut being a slice of its own or one more
 * `count`.
 */
struct hlg_slice {
    uint16_t source_rank; /* within the pool */
    uint16_t target_rank;
    uint16_t group;
    uint16_t plane;
    uint32_t source_offset;
    uint32_t target_offset;
    uint32_t bytes;
    uint32_t count;
    uint32_t source_stride;
    uint32_t target_stride;
};

/*
 * slices is sorted by (source_rank, group, plane, target_rank, target_offset) and lists every pair
 * that some replica offset uses; hlg_plan_uses() says whether a given one does.
 * Memory belongs to the caller, who passes it to hlg_plan_build().
 */
struct hlg_plan {
    struct hlg_layout source;
    struct hlg_layout target;
    uint32_t offset_count; /* replica offsets are below it: lcm of the groups' source sets */
    uint32_t slice_count;
    uint32_t
        slice_begin[HLG_RANKS_MAX + 1]; /* of source rank r: [slice_begin[r], slice_begin[r + 1]) */
    struct hlg_slice *slices;
};

/*
 * Join two layouts.
 *
 * plan        filled on success
 * slices      [slices_max], kept by the plan
 * source      layout of the node that prefills; target of the node that decodes. Foreign data is
 *             welcome: both are checked first
 *
 * Returns 0, or -HLG_EPLAN with *why set. O(source ranks * target ranks * groups * planes).
 * Source: the article, "Transferts de Cache KV Fragmentés".
 */
int hlg_plan_build(struct hlg_plan *plan, struct hlg_slice *slices, uint32_t slices_max,
                   const struct hlg_layout *source, const struct hlg_layout *target,
                   struct hlg_refusal *why);

/*
 * Whether a request of this replica offset uses a slice: target set k takes source set
 * (k + offset) mod the group's source sets, so each target rank takes all heads of a group from one
 * source set. offset < plan->offset_count.
 */
bool hlg_plan_uses(const struct hlg_plan *plan, const struct hlg_slice *slice, uint32_t offset);

/* Whether `layer` of the slice's group lies in the stages of both its ranks. A context slice: true
 * for layer == plan->source.layers alone, which stands for the context. */
bool hlg_plan_moves_layer(const struct hlg_plan *plan, const struct hlg_slice *slice,
                          uint32_t layer);

/*
 * Pieces that one target rank, or all of them, must count for one request.
 *
 * offset       replica offset, < plan->offset_count
 * target_rank  within the pool, or HLG_NONE for the sum over all ranks
 * pages        [groups] pages asked, a context group included (1, or 0 when no context is due)
 * kind         enum hlg_group_kind to count, or HLG_NONE for both
 *
 * Only slices between ranks that their nodes host count (rank_begin..rank_limit of both layouts).
 * Both sides compute this alone and must agree (I2). UINT64_MAX stands for more than fits.
 * Pure; O(slices * layers).
 */
uint64_t hlg_plan_pieces(const struct hlg_plan *plan, uint32_t offset, uint32_t target_rank,
                         const uint32_t *pages, uint32_t kind);

/*
 * Whether some nodes, as the sources of one request, host each rank that may have to write for it once:
 * none is left out, none comes twice, whatever the replica offset.
 *
 * plans        [count], 1..HLG_SOURCES_MAX: with each node, all of the same target layout
 * pages        [groups] pages asked, a context group included; groups that none are asked of need no rank
 * hosts        when they do not fit: how many of them host the rank; may be NULL
 *
 * Returns HLG_NONE when they fit; HLG_RANKS_MAX when they do not shard alike (tp, stages, layers of a stage),
 * so that their ranks are not of one group; else the first rank that none or several host. Pure;
 * O(slices of one plan).
 */
uint32_t hlg_plan_misfit(const struct hlg_plan *const *plans, uint32_t count, const uint32_t *pages,
                         uint32_t *hosts);

#ifdef __cplusplus
}
#endif

#endif
