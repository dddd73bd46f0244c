/*
 * Replica sets: with more ranks than heads, several sets of ranks each hold the whole cache. A set
 * of the source serves a set of the target; which one, a random number says, so that over many
 * requests all source ranks and their NICs carry the same load.
 */
#ifndef HALAGE_REPLICA_H
#define HALAGE_REPLICA_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Replica offset of a request.
 *
 * random        uniform over 32 bits
 * offset_count  struct hlg_plan's, >= 1
 *
 * Returns an offset below offset_count, each as likely as any other to within 2^-26 (at most 64
 * offsets). Pure.
 */
uint32_t hlg_replica_offset(uint32_t random, uint32_t offset_count);

/* Source set that serves target set `target_set` at a replica offset; source_sets >= 1. */
uint32_t hlg_replica_source_set(uint32_t target_set, uint32_t offset, uint32_t source_sets);

#ifdef __cplusplus
}
#endif

#endif
