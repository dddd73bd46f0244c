/*
 * Who owns each target page (I1). One entry for each page of each (pool, group); the pages of an owner
 * are a list threaded through the entries, so that no page list is ever copied or allocated.
 */
#ifndef HALAGE_CORE_OWNER_H
#define HALAGE_CORE_OWNER_H

#include "carve.h"
#include <halage/layout.h>

struct owner_entry {
    uint32_t owner; /* request's index, or HLG_NONE */
    uint32_t next;  /* entry of the owner's next page, or HLG_NONE */
    bool poisoned;
};

struct owners {
    const struct hlg_layout *layout;
    uint32_t base[HLG_GROUPS_MAX]; /* entry of (pool 0, group g, page 0) */
    uint32_t pool_entries;         /* entries of one pool */
    uint32_t entry_count;
    struct owner_entry *entries;
    uint32_t owned_count;
    uint32_t poisoned_count;
};

void owners_init(struct owners *o, struct carve *c, const struct hlg_layout *layout);
uint32_t owners_entry(const struct owners *o, uint32_t pool, uint32_t group, uint32_t page);
/*
 * Give pages [count] of (pool, group) to `owner`, in front of its list *head. All or none: returns 0,
 * -HLG_EINVAL for a page out of range, -HLG_EOWNED for one that has an owner (also one named twice).
 */
int owners_take(struct owners *o, uint32_t owner, uint32_t pool, uint32_t group,
                const uint32_t *pages, uint32_t count, uint32_t *head);
/* Free a whole list, or mark its pages poisoned for ever. Returns how many pages it held. */
uint32_t owners_release(struct owners *o, uint32_t owner, uint32_t *head);
uint32_t owners_poison(struct owners *o, uint32_t owner, uint32_t *head);
void owners_check(const struct owners *o);

#endif
