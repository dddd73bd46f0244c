/*
 * Bytes of the lanes' memory as the leader reads and writes them, host memory or a GPU's. Lanes are those of
 * node->layout.
 */
#ifndef HALAGE_NODE_LANE_H
#define HALAGE_NODE_LANE_H

#include "node.h"

/* Offset in a lane's memory of one page of a plane, tlm_page_bytes() long; of one page of the context group, which
 * lies last. */
uint64_t lane_page(const struct node *node, uint32_t layer, uint32_t plane, uint32_t page);
uint64_t lane_context(const struct node *node, uint32_t lane, uint32_t page);

/*
 * Look at bytes: those of host memory as they lie, those of a GPU as a copy that is good until the next look.
 * A driver that fails makes node->broken true, and one line is said; the bytes are 0 then.
 *
 * bytes  no more than a page of either group
 */
const uint8_t *lane_look(struct node *node, uint32_t lane, uint64_t offset, uint64_t bytes);

/* Overwrite bytes, likewise. `from` may be what lane_look() returned, changed. */
void lane_put(struct node *node, uint32_t lane, uint64_t offset, const void *from, uint64_t bytes);

/* Change one bit of the byte at `offset`: a planted fault. */
void lane_flip(struct node *node, uint32_t lane, uint64_t offset);

/* What lane_look() needs. Returns whether there was memory; lane_fini() follows in any case. */
bool lane_init(struct node *node);
void lane_fini(struct node *node);

#endif
