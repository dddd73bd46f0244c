#include "block.h"

void blocks_init(struct blocks *b, struct carve *c, uint32_t capacity)
{
    struct block *blocks = carve_array(c, capacity, sizeof *blocks);

    if (c->base == NULL) {
        return;
    }
    *b = (struct blocks){
        .capacity = capacity, .free_head = HLG_NONE, .free_count = capacity, .blocks = blocks};
    for (uint32_t i = capacity; i > 0; i--) {
        blocks[i - 1].next = b->free_head;
        b->free_head = i - 1;
    }
}

int blocks_take(struct blocks *b, const uint32_t *targets, uint32_t count, uint32_t *head)
{
    uint32_t wanted = hlg_div_ceil(count, HLG_BLOCK_PAGES);
    uint32_t *link = head;

    if (wanted > b->free_count) {
        return -HLG_ELIMIT;
    }
    b->free_count -= wanted;
    *head = HLG_NONE;
    for (uint32_t done = 0; done < count;) {
        uint32_t index = b->free_head;
        struct block *block = &b->blocks[index];
        uint32_t here = hlg_min_u32(count - done, HLG_BLOCK_PAGES);
        b->free_head = block->next;
        block->next = HLG_NONE;
        memcpy(block->target, targets + done, here * sizeof *targets);
        *link = index;
        link = &block->next;
        done += here;
    }
    return 0;
}

void blocks_sources(struct blocks *b, uint32_t head, const uint32_t *sources, uint32_t count)
{
    for (uint32_t done = 0; done < count; done += HLG_BLOCK_PAGES) {
        HLG_ASSERT(head != HLG_NONE);
        struct block *block = &b->blocks[head];
        uint32_t here = hlg_min_u32(count - done, HLG_BLOCK_PAGES);
        memcpy(block->source, sources + done, here * sizeof *sources);
        head = block->next;
    }
}

void blocks_give(struct blocks *b, uint32_t head)
{
    while (head != HLG_NONE) {
        uint32_t next = b->blocks[head].next;
        b->blocks[head].next = b->free_head;
        b->free_head = head;
        b->free_count++;
        head = next;
    }
}

uint32_t blocks_at(const struct blocks *b, uint32_t head, uint32_t index)
{
    for (uint32_t skip = index / HLG_BLOCK_PAGES; skip > 0; skip--) {
        HLG_ASSERT(head != HLG_NONE);
        head = b->blocks[head].next;
    }
    return head;
}

uint32_t blocks_count(const struct blocks *b, uint32_t head)
{
    uint32_t count = 0;

    for (; head != HLG_NONE; head = b->blocks[head].next) {
        count++;
    }
    return count;
}
