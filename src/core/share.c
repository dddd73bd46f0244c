#include "share.h"

static uint32_t reserve_of(uint32_t capacity, uint32_t peers, uint32_t percent)
{
    HLG_ASSERT(peers > 0 && percent <= 100);
    /* floor: what does not divide is nobody's */
    return (uint32_t)((uint64_t)capacity * percent / 100 / peers);
}

void shares_init(struct shares *s, struct carve *c, uint32_t capacity, uint32_t peers,
                 uint32_t percent)
{
    uint32_t *by_peer = carve_array(c, peers, sizeof *by_peer);

    if (c->base == NULL) {
        return;
    }
    *s = (struct shares){.peers = peers,
                         .capacity = capacity,
                         .reserve = reserve_of(capacity, peers, percent),
                         .by_peer = by_peer};
    s->unmet = s->reserve * peers;
}

uint32_t shares_most(uint32_t capacity, uint32_t peers, uint32_t percent)
{
    return capacity - (peers - 1) * reserve_of(capacity, peers, percent);
}

void shares_check(const struct shares *s)
{
    uint32_t used = 0;
    uint32_t unmet = 0;

    for (uint32_t i = 0; i < s->peers; i++) {
        used += s->by_peer[i];
        unmet += shares_own(s, i);
    }
    HLG_ASSERT(used == s->used && unmet == s->unmet);
    HLG_ASSERT(used <= s->capacity && unmet <= s->capacity - used);
}
