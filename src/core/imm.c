#include "imm.h"

static uint32_t bucket(const struct slots *s, uint64_t number)
{
    return (uint32_t)(number & s->bucket_mask);
}

static void append_free(struct slots *s, uint32_t slot)
{
    s->slots[slot].next = HLG_NONE;
    if (s->free_tail == HLG_NONE) {
        s->free_head = slot;
    } else {
        s->slots[s->free_tail].next = slot;
    }
    s->free_tail = slot;
    s->free_count++;
}

void slots_init(struct slots *s, struct carve *c, uint32_t capacity)
{
    uint32_t buckets = 1;

    while (buckets < capacity) {
        buckets *= 2;
    }
    uint32_t *heads = carve_array(c, buckets, sizeof *heads);
    struct slot *slots = carve_array(c, capacity, sizeof *slots);
    if (c->base == NULL) {
        return;
    }
    HLG_ASSERT(capacity <= HLG_SLOTS_MAX);
    *s = (struct slots){.capacity = capacity,
                        .free_head = HLG_NONE,
                        .free_tail = HLG_NONE,
                        .bucket_mask = buckets - 1,
                        .buckets = heads,
                        .slots = slots};
    for (uint32_t i = 0; i < buckets; i++) {
        heads[i] = HLG_NONE;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        append_free(s, i);
    }
}

uint32_t slots_open(struct slots *s, uint32_t request, uint16_t source, uint64_t number,
                    uint64_t expected, struct sender sender)
{
    uint32_t index = s->free_head;

    if (index == HLG_NONE) {
        return HLG_NONE;
    }
    struct slot *slot = &s->slots[index];
    HLG_ASSERT(slot->state == SLOT_FREE);
    s->free_head = slot->next;
    if (s->free_head == HLG_NONE) {
        s->free_tail = HLG_NONE;
    }
    s->free_count--;
    uint32_t generation = slot->used ? (slot->generation + 1) % HLG_GENERATIONS : 0;
    uint32_t *head = &s->buckets[bucket(s, number)];
    struct sender last = slot->senders[(generation + 1) % 2];
    *slot = (struct slot){.state = SLOT_OPEN,
                          .used = true,
                          .source = source,
                          .request = request,
                          .generation = generation,
                          .next = *head,
                          .number = number,
                          .expected = expected};
    slot->senders[generation % 2] = sender;
    slot->senders[generation % 2].owed = expected;
    slot->senders[(generation + 1) % 2] = last;
    *head = index;
    return index;
}

struct sender *slots_sender(struct slots *s, uint32_t index, uint32_t generation)
{
    if (index >= s->capacity || !s->slots[index].used) {
        return NULL;
    }
    struct slot *slot = &s->slots[index];
    uint32_t age = (slot->generation - generation) % HLG_GENERATIONS;
    return age < 2 ? &slot->senders[generation % 2] : NULL;
}

void slots_close(struct slots *s, uint32_t index, bool poisoned)
{
    HLG_ASSERT(index < s->capacity && s->slots[index].state == SLOT_OPEN);
    struct slot *slot = &s->slots[index];
    uint32_t *link = &s->buckets[bucket(s, slot->number)];
    while (*link != index) {
        HLG_ASSERT(*link != HLG_NONE);
        link = &s->slots[*link].next;
    }
    *link = slot->next;
    if (poisoned) {
        slot->state = SLOT_POISONED;
        s->poisoned_count++;
    } else {
        slot->state = SLOT_FREE;
        append_free(s, index);
    }
}

uint32_t slots_find(const struct slots *s, uint64_t number)
{
    uint32_t index = s->buckets[bucket(s, number)];

    while (index != HLG_NONE && s->slots[index].number != number) {
        index = s->slots[index].next;
    }
    return index;
}

void slots_check(const struct slots *s)
{
    uint32_t open = 0;
    uint32_t free = 0;

    for (uint32_t i = 0; i < s->capacity; i++) {
        const struct slot *slot = &s->slots[i];
        HLG_ASSERT(slot->generation < HLG_GENERATIONS);
        if (slot->state == SLOT_OPEN) {
            HLG_ASSERT(slots_find(s, slot->number) == i);
            open++;
        }
    }
    for (uint32_t i = s->free_head; i != HLG_NONE; i = s->slots[i].next) {
        HLG_ASSERT(s->slots[i].state == SLOT_FREE);
        free++;
    }
    HLG_ASSERT(free == s->free_count);
    HLG_ASSERT(open + free + s->poisoned_count == s->capacity);
}
