/*
 * Planted faults that act between messenger and transport, or between ranks and messenger. Without
 * a plant these do nothing.
 */
#ifndef HALAGE_NODE_PLANT_FABRIC_H
#define HALAGE_NODE_PLANT_FABRIC_H

#include "node.h"

/* Put a decorator over node->fabric where the plant needs one. Returns whether there was memory. */
bool plant_fabric_wrap(struct node *node);

/* Take it off again: node->fabric is the one below. */
void plant_fabric_unwrap(struct node *node);

/* The counter word that the messenger is to watch: the ranks' own, or one that lies. */
const _Atomic uint32_t *plant_fabric_word(struct node *node);

/* Prefill: just before forward `forward` is posted, its chunks announced. */
void plant_fabric_forward(struct node *node, uint32_t forward);

#endif
