#include "pages.h"

#include <halage/base.h>

#include <stdlib.h>

bool pages_init(struct pages *pages, uint32_t count)
{
    *pages = (struct pages){.count = count, .free = count};
    pages->stack = calloc(count, sizeof *pages->stack);
    for (uint32_t i = 0; i < count && pages->stack != NULL; i++) {
        pages->stack[i] = count - 1 - i;
    }
    return pages->stack != NULL;
}

void pages_fini(struct pages *pages)
{
    free(pages->stack);
    pages->stack = NULL;
}

bool pages_take(struct pages *pages, uint32_t *numbers, uint32_t count)
{
    if (count > pages->free) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = pages->stack[--pages->free];
    }
    return true;
}

void pages_give(struct pages *pages, const uint32_t *numbers, uint32_t count)
{
    HLG_ASSERT(count <= pages->count - pages->free);
    for (uint32_t i = 0; i < count; i++) {
        HLG_ASSERT(numbers[i] < pages->count);
        pages->stack[pages->free++] = numbers[i];
    }
}
