/*
 * Chunks: the tokens that one forward pass computes for one request, as pages to send. A page that a
 * chunk leaves partly filled goes with the chunk that completes it, or with the last (I5).
 */
#ifndef HALAGE_CORE_CHUNK_H
#define HALAGE_CORE_CHUNK_H

#include "block.h"
#include <halage/plan.h>

/* Positions [begin, begin + count) of the request's pages of one group. */
struct page_span {
    uint32_t begin;
    uint32_t count;
};

/*
 * Pages that a chunk makes final and that the target asked for.
 *
 * token_begin, token_limit  tokens of the chunk
 * last                      it ends the prompt less its last token
 * first                     position of the first page that the target asked for
 */
struct page_span chunk_pages(uint32_t page_tokens, uint32_t token_begin, uint32_t token_limit,
                             bool last, uint32_t first);

struct chunk {
    uint32_t request; /* HLG_NONE: unused */
    uint32_t forward; /* index in struct layers, or HLG_NONE: its pages are valid already */
    uint32_t number;  /* of that forward; 0: cached pages */
    bool last;
    uint32_t cursors; /* of its ranks, not yet at their end */
    uint32_t next;    /* of the same request, or of the free list */
    struct page_span spans[HLG_GROUPS_MAX];
    uint32_t blocks[HLG_GROUPS_MAX]; /* holding the span's first page */
};

/* How far one rank got with one chunk: the next page to write. */
struct cursor {
    uint32_t position; /* of the layer in the rank's stage; the stage's layer count: the context */
    uint32_t slice;    /* of the plan */
    uint32_t page;     /* from the span's begin */
    uint32_t block;    /* that holds it */
    uint32_t next;     /* cursors of the same (lane, peer) queue */
    uint32_t before;
    bool listed;
};

/*
 * Move a cursor on to the next page that this rank writes, or leave it where it is when it points at
 * one. Returns false at the end.
 */
bool cursor_seek(struct cursor *cursor, const struct chunk *chunk, const struct hlg_plan *plan,
                 uint32_t rank, uint32_t offset);

/* Global layer number that the cursor points at; plan->source.layers for the context. */
uint32_t cursor_layer(const struct cursor *cursor, const struct hlg_plan *plan, uint32_t rank);

#endif
