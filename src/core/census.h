/*
 * What of a machine's tables is in use, for tests and stats: at rest all must be free again, and at no
 * time may one hold more than its limit.
 */
#ifndef HALAGE_CORE_CENSUS_H
#define HALAGE_CORE_CENSUS_H

#include <halage/decode.h>
#include <halage/prefill.h>

/* Entries in use, and how many there are; 0 of 0 where a machine has no such table. */
struct hlg_census {
    uint32_t requests;
    uint32_t requests_max;
    uint32_t timers; /* of requests */
    uint32_t sessions;
    uint32_t sessions_max;
    uint32_t messages; /* that wait to be sent */
    uint32_t messages_max;
    /* decode */
    uint32_t slots;
    uint32_t slots_poisoned; /* never used again, and not among `slots` */
    uint32_t slots_max;
    uint32_t pages; /* owned or quarantined */
    uint32_t pages_poisoned;
    uint32_t pages_max;
    /* prefill */
    uint32_t ops;
    uint32_t ops_max;
    uint32_t blocks;
    uint32_t blocks_max;
    uint32_t chunks;
    uint32_t chunks_max;
    uint32_t forwards;
    uint32_t forwards_max;
    uint64_t sources_poisoned; /* pages, as often as POISONED requests named them */
};

/* O(peers_max + forwards_max). */
void hlg_decode_census(const struct hlg_decode *d, struct hlg_census *census);
void hlg_prefill_census(const struct hlg_prefill *p, struct hlg_census *census);

#endif
