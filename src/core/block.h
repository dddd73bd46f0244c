/*
 * Page lists of the prefill side: an arena of blocks that hold page numbers of source and target side
 * by side, so that a paged write can point into one.
 */
#ifndef HALAGE_CORE_BLOCK_H
#define HALAGE_CORE_BLOCK_H

#include "carve.h"

struct block {
    uint32_t next;
    uint32_t source[HLG_BLOCK_PAGES];
    uint32_t target[HLG_BLOCK_PAGES];
};

struct blocks {
    uint32_t capacity;
    uint32_t free_head;
    uint32_t free_count;
    struct block *blocks;
};

void blocks_init(struct blocks *b, struct carve *c, uint32_t capacity);
/* A chain for `count` pages, its targets filled in. Returns its head (HLG_NONE for 0 pages) in *head,
 * or -HLG_ELIMIT. */
int blocks_take(struct blocks *b, const uint32_t *targets, uint32_t count, uint32_t *head);
/* Fill in the sources of a chain of `count` pages. */
void blocks_sources(struct blocks *b, uint32_t head, const uint32_t *sources, uint32_t count);
void blocks_give(struct blocks *b, uint32_t head);
/* The block that holds position `index` of a chain. O(blocks). */
uint32_t blocks_at(const struct blocks *b, uint32_t head, uint32_t index);
uint32_t blocks_count(const struct blocks *b, uint32_t head);

#endif
