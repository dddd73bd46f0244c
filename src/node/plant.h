/*
 * Planted faults: what tests break on purpose, to see that the verification finds it.
 * docs/testing.md lists them.
 */
#ifndef HALAGE_NODE_PLANT_H
#define HALAGE_NODE_PLANT_H

#include <stdbool.h>
#include <stdint.h>

enum plant_kind {
    PLANT_NONE = 0,
    PLANT_LANDED,       /* decode: a byte of a landed page differs, before READY's hash */
    PLANT_LANDED_AFTER, /* decode: the same, after the hash and before the first step */
    PLANT_CONTEXT,      /* decode: a byte of a landed context differs */
    PLANT_OFFSET,       /* decode: says that a plane lies one token further on than it does */
    PLANT_EARLY_READY,  /* decode: a piece is counted that has not come, prefill: it is held back */
    PLANT_EARLY_TICK,   /* prefill: a layer's tick comes before its KV is written */
    PLANT_TOKEN,        /* decode: another token is sampled than the greedy one */
    PLANT_FREE,         /* decode: a byte lands in a page that nobody asked for */
    PLANT_STUCK,        /* a call of the transport never returns; see plant_stop.h */
    PLANT_STOP,         /* the leader stops itself (SIGSTOP) at a step; see plant_stop.h */
    PLANT_CRASH,        /* the leader follows a null pointer at a step; see plant_stop.h */
};

struct plant {
    enum plant_kind kind;
    uint32_t layer;
    uint32_t plane;
    uint32_t rank;  /* of the node, over all its pools */
    char step[24];  /* PLANT_STUCK, PLANT_STOP, PLANT_CRASH */
    uint32_t count; /* of these: which time, from 1 */
};

/* Read "KIND", "KIND:LAYER,PLANE,RANK" or, of those with a step, "KIND:STEP[,COUNT]".
 * Returns whether it is one. */
bool plant_parse(const char *text, struct plant *plant);

/* Whether it happens at a step. */
static inline bool plant_has_step(const struct plant *plant)
{
    return plant->kind >= PLANT_STUCK;
}

/* All kinds, separated by blanks, for a message. */
const char *plant_kinds(void);

#endif
