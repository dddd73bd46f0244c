/*
 * The guard of a decode node's free pages: they hold a pattern, and whoever takes them, or looks at the
 * end, sees whether a byte landed there while nobody had asked for it. For tests (--guard): a page costs a
 * pass over its bytes when it is given back and another when it is taken.
 */
#ifndef HALAGE_NODE_GUARD_H
#define HALAGE_NODE_GUARD_H

#include "node.h"
#include "pages.h"

/* Fill pages of a group of a pool with the pattern. `group` 0: KV, 1: contexts. Without --guard nothing. */
void guard_fill(struct node *node, uint32_t pool, uint32_t group, const uint32_t *pages,
                uint32_t count);

/* How many of these pages hold something else; one line says which was the first. Without --guard 0. */
uint32_t guard_touched(struct node *node, uint32_t pool, uint32_t group, const uint32_t *pages,
                       uint32_t count);

#endif
