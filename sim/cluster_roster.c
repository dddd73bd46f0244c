/* Objects by number: each stays where it is while it is used, and its number is reused. */
#include "cluster_internal.h"

#include <stdlib.h>
#include <string.h>

void *cluster_grow(void *memory, size_t count, size_t bytes)
{
    void *grown = count > SIZE_MAX / bytes ? NULL : realloc(memory, count * bytes);

    HLG_ASSERT(grown != NULL);
    return grown;
}

void *roster_take(struct roster *roster)
{
    if (roster->used == roster->count) {
        if (roster->count == roster->capacity) {
            roster->capacity = roster->capacity == 0 ? 64 : 2 * roster->capacity;
            roster->items = cluster_grow(roster->items, roster->capacity, sizeof *roster->items);
        }
        struct roster_item *made = cluster_grow(NULL, 1, roster->bytes);
        memset(made, 0, roster->bytes);
        made->number = roster->count;
        made->next_free = HLG_NONE;
        roster->free_head = made->number;
        roster->items[roster->count++] = made;
    }
    struct roster_item *item = roster->items[roster->free_head];
    HLG_ASSERT(!item->used);
    roster->free_head = item->next_free;
    roster->used++;
    item->used = true;
    item->serial++;
    return item;
}

void roster_give(struct roster *roster, void *given)
{
    struct roster_item *item = given;

    HLG_ASSERT(item->used && roster->used > 0);
    item->used = false;
    item->next_free = roster->free_head;
    roster->free_head = item->number;
    roster->used--;
}

void *roster_find(const struct roster *roster, uint32_t number, uint32_t serial)
{
    if (number >= roster->count) {
        return NULL;
    }
    struct roster_item *item = roster->items[number];
    return item->used && item->serial == serial ? item : NULL;
}

void *roster_at(const struct roster *roster, uint32_t number)
{
    HLG_ASSERT(number < roster->count);
    struct roster_item *item = roster->items[number];
    HLG_ASSERT(item->used);
    return item;
}

void roster_free(struct roster *roster)
{
    for (uint32_t i = 0; i < roster->count; i++) {
        free(roster->items[i]);
    }
    free(roster->items);
    *roster = (struct roster){.bytes = roster->bytes};
}

bool numbers_init(struct numbers *numbers, uint32_t count)
{
    numbers->free = malloc(count * sizeof *numbers->free);
    if (numbers->free == NULL) {
        return false;
    }
    numbers->count = count;
    for (uint32_t i = 0; i < count; i++) {
        numbers->free[i] = count - 1 - i; /* 0 is taken first */
    }
    return true;
}
