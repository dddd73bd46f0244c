/*
 * The layout of most tests: one rank, stage and pool; a paged group of all layers and, where it has pages, a
 * context group. What a test is about it sets afterwards.
 */
#ifndef HALAGE_TESTS_SMALL_LAYOUT_H
#define HALAGE_TESTS_SMALL_LAYOUT_H

#include <halage/layout.h>

struct small_layout {
    uint32_t layers; /* < 64 */
    uint32_t planes;
    uint32_t heads;
    uint32_t head_bytes;
    uint32_t page_tokens;
    uint32_t pages;
    uint32_t context_bytes;
    uint32_t contexts; /* pages of the context group; 0: no such group */
};

static inline struct hlg_layout small_layout(struct small_layout small)
{
    struct hlg_layout layout = {.tp = 1,
                                .stages = 1,
                                .pools = 1,
                                .layers = small.layers,
                                .stage_limit = {small.layers},
                                .rank_limit = 1,
                                .all_reduce = 1,
                                .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                                .group_count = 1,
                                .groups = {{.kind = HLG_GROUP_PAGED,
                                            .planes = small.planes,
                                            .heads = small.heads,
                                            .head_bytes = small.head_bytes,
                                            .page_tokens = small.page_tokens,
                                            .page_count = small.pages,
                                            .layers = {(1ull << small.layers) - 1}}}};

    if (small.contexts > 0) {
        layout.groups[layout.group_count++] = (struct hlg_group){.kind = HLG_GROUP_CONTEXT,
                                                                 .planes = 1,
                                                                 .heads = 1,
                                                                 .head_bytes = small.context_bytes,
                                                                 .page_tokens = 1,
                                                                 .page_count = small.contexts};
    }
    return layout;
}

#endif
