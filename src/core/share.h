/*
 * Shares of a table: each peer has a part that no other can take, and the rest goes to whoever comes
 * first. So a peer that gives nothing back cannot take all from the others.
 */
#ifndef HALAGE_CORE_SHARE_H
#define HALAGE_CORE_SHARE_H

#include "carve.h"

struct shares {
    uint32_t peers;
    uint32_t capacity; /* entries of the table */
    uint32_t reserve;  /* of them, each peer's own */
    uint32_t used;     /* by all peers */
    uint32_t unmet;    /* sum over peers of the part of their reserve that they do not use */
    uint32_t *by_peer; /* [peers] entries in use */
};

/* percent  of the table that is reserved, in equal parts (floor), 0..100 */
void shares_init(struct shares *s, struct carve *c, uint32_t capacity, uint32_t peers,
                 uint32_t percent);
/* What one peer can have when the others have nothing. */
uint32_t shares_most(uint32_t capacity, uint32_t peers, uint32_t percent);
void shares_check(const struct shares *s);

static inline uint32_t shares_own(const struct shares *s, uint32_t peer)
{
    return s->by_peer[peer] < s->reserve ? s->reserve - s->by_peer[peer] : 0;
}

/* Whether a peer may take `count` more entries: out of its own part, then of what is nobody's. */
static inline bool shares_fit(const struct shares *s, uint32_t peer, uint32_t count)
{
    uint32_t own = hlg_min_u32(shares_own(s, peer), count);

    return count <= s->capacity - s->used && count - own <= s->capacity - s->used - s->unmet;
}

/* Takes them, or nothing. */
static inline bool shares_take(struct shares *s, uint32_t peer, uint32_t count)
{
    if (!shares_fit(s, peer, count)) {
        return false;
    }
    s->unmet -= hlg_min_u32(shares_own(s, peer), count);
    s->by_peer[peer] += count;
    s->used += count;
    return true;
}

static inline void shares_give(struct shares *s, uint32_t peer, uint32_t count)
{
    HLG_ASSERT(count <= s->by_peer[peer] && count <= s->used);
    uint32_t before = shares_own(s, peer);
    s->by_peer[peer] -= count;
    s->used -= count;
    s->unmet += shares_own(s, peer) - before;
}

#endif
