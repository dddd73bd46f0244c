/*
 * A pool of page numbers, last in first out: a page that is freed is the next to be handed out, on
 * purpose. An engine that gave a page back too early would see it overwritten at once.
 */
#ifndef HALAGE_NODE_PAGES_H
#define HALAGE_NODE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct pages {
    uint32_t *stack; /* [count] free numbers */
    uint32_t count;
    uint32_t free;
};

/* Numbers 0 .. count - 1, all free. Returns whether there was memory. */
bool pages_init(struct pages *pages, uint32_t count);
void pages_fini(struct pages *pages);

/* Take `count` numbers, all or none. */
bool pages_take(struct pages *pages, uint32_t *numbers, uint32_t count);

/* Give numbers back. */
void pages_give(struct pages *pages, const uint32_t *numbers, uint32_t count);

#endif
