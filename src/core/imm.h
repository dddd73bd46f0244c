/*
 * Immediate counters: one slot for each (request, source), with a generation. A counter exists from
 * the moment the request does, so that no immediate is too early (I3); one of an older generation is
 * found out and counted apart (I7). Slots are reused first-in-first-out, to keep a number and its
 * generations as far apart as can be.
 */
#ifndef HALAGE_CORE_IMM_H
#define HALAGE_CORE_IMM_H

#include "carve.h"
#include <halage/message.h>

enum slot_state {
    SLOT_FREE = 0,
    SLOT_OPEN,
    SLOT_POISONED, /* its pages are: never used again */
};

/* The session whose window a slot's immediates come out of; serial 0: none. */
struct sender {
    uint32_t peer;
    uint64_t serial;
    uint64_t owed; /* pieces of it that were not credited yet: no immediate comes out of it twice */
};

struct slot {
    uint8_t state;
    bool used;        /* ever: its generation means something */
    uint16_t source;  /* of the request */
    uint32_t request; /* index */
    uint32_t generation;
    uint32_t next;   /* free list, or chain of the number's bucket */
    uint64_t number; /* of the REQUEST; chained by it while open */
    uint64_t expected;
    uint64_t counted;
    struct sender senders[2]; /* by generation mod 2: of this one and of the last */
};

struct slots {
    uint32_t capacity;
    uint32_t free_head;
    uint32_t free_tail;
    uint32_t free_count;
    uint32_t poisoned_count;
    uint32_t bucket_mask;
    uint32_t *buckets; /* by number */
    struct slot *slots;
};

void slots_init(struct slots *s, struct carve *c, uint32_t capacity);
/* Open a slot; its sender owes what is expected. Returns its number, or HLG_NONE when none is free. */
uint32_t slots_open(struct slots *s, uint32_t request, uint16_t source, uint64_t number,
                    uint64_t expected, struct sender sender);
/* Who sends the immediates of a slot's generation, this one or the last, though the slot may be closed
 * by now; NULL: not known. */
struct sender *slots_sender(struct slots *s, uint32_t slot, uint32_t generation);
/* Close it, with its pages: free again, or never again. */
void slots_close(struct slots *s, uint32_t slot, bool poisoned);
/* The open slot of a REQUEST's number, or HLG_NONE. */
uint32_t slots_find(const struct slots *s, uint64_t number);
void slots_check(const struct slots *s);

#endif
