#include "owner.h"

void owners_init(struct owners *o, struct carve *c, const struct hlg_layout *layout)
{
    struct owners made = {.layout = layout};

    for (uint32_t g = 0; g < layout->group_count; g++) {
        made.base[g] = made.pool_entries;
        made.pool_entries += layout->groups[g].page_count;
    }
    made.entry_count = made.pool_entries * layout->pools;
    made.entries = carve_array(c, made.entry_count, sizeof *made.entries);
    if (c->base == NULL) {
        return;
    }
    for (uint32_t i = 0; i < made.entry_count; i++) {
        made.entries[i] = (struct owner_entry){.owner = HLG_NONE, .next = HLG_NONE};
    }
    *o = made;
}

uint32_t owners_entry(const struct owners *o, uint32_t pool, uint32_t group, uint32_t page)
{
    HLG_ASSERT(pool < o->layout->pools && group < o->layout->group_count);
    HLG_ASSERT(page < o->layout->groups[group].page_count);
    return pool * o->pool_entries + o->base[group] + page;
}

int owners_take(struct owners *o, uint32_t owner, uint32_t pool, uint32_t group,
                const uint32_t *pages, uint32_t count, uint32_t *head)
{
    uint32_t taken = 0;
    uint32_t list = *head;
    int error = 0;

    HLG_ASSERT(owner != HLG_NONE);
    while (taken < count && error == 0) {
        uint32_t page = pages[taken];
        if (page >= o->layout->groups[group].page_count) {
            error = -HLG_EINVAL;
            break;
        }
        uint32_t entry = owners_entry(o, pool, group, page);
        if (o->entries[entry].owner != HLG_NONE || o->entries[entry].poisoned) {
            error = -HLG_EOWNED;
            break;
        }
        o->entries[entry] = (struct owner_entry){.owner = owner, .next = list};
        list = entry;
        taken++;
    }
    if (error == 0) {
        o->owned_count += count;
        *head = list;
        return 0;
    }
    while (taken > 0) {
        struct owner_entry *entry = &o->entries[list];
        list = entry->next;
        *entry = (struct owner_entry){.owner = HLG_NONE, .next = HLG_NONE};
        taken--;
    }
    HLG_ASSERT(list == *head);
    return error;
}

static uint32_t let_go(struct owners *o, uint32_t owner, uint32_t *head, bool poisoned)
{
    uint32_t count = 0;

    while (*head != HLG_NONE) {
        struct owner_entry *entry = &o->entries[*head];
        HLG_ASSERT(entry->owner == owner && !entry->poisoned);
        *head = entry->next;
        *entry = (struct owner_entry){.owner = HLG_NONE, .next = HLG_NONE, .poisoned = poisoned};
        count++;
    }
    HLG_ASSERT(o->owned_count >= count);
    o->owned_count -= count;
    return count;
}

uint32_t owners_release(struct owners *o, uint32_t owner, uint32_t *head)
{
    return let_go(o, owner, head, false);
}

uint32_t owners_poison(struct owners *o, uint32_t owner, uint32_t *head)
{
    uint32_t count = let_go(o, owner, head, true);

    o->poisoned_count += count;
    return count;
}

void owners_check(const struct owners *o)
{
    uint32_t owned = 0;
    uint32_t poisoned = 0;

    for (uint32_t i = 0; i < o->entry_count; i++) {
        const struct owner_entry *entry = &o->entries[i];
        HLG_ASSERT(entry->owner == HLG_NONE || !entry->poisoned);
        owned += entry->owner != HLG_NONE;
        poisoned += entry->poisoned;
    }
    HLG_ASSERT(owned == o->owned_count);
    HLG_ASSERT(poisoned == o->poisoned_count);
}
