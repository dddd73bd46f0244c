/*
 * Layer facts (I4): which layers of which forward pass are complete, learned from stamped counter
 * words. A word holds forward << 8 | layers done; forward numbers are 24 bits, from 1, 0 skipped,
 * compared in a window of 2^23.
 */
#ifndef HALAGE_CORE_LAYER_H
#define HALAGE_CORE_LAYER_H

#include "carve.h"

#define LAYERS_ALL 255u /* more than any stage's layers and the context */

struct forward {
    uint32_t number; /* 0: unused */
    bool ended;
    uint32_t chunks; /* that wait for its layers */
};

struct layers {
    uint32_t forwards_max;
    uint32_t words;
    uint32_t used;   /* one more than the last index in use: a tick looks no further */
    uint32_t newest; /* highest number announced; 0: none yet */
    struct forward *forwards;
    uint8_t *done; /* [forwards_max][words] layers done */
};

enum layer_tick {
    LAYER_TICK_NEWS,
    LAYER_TICK_NOTHING,     /* known already */
    LAYER_TICK_UNANNOUNCED, /* advances nothing: warm-up, capture, dummy */
};

void layers_init(struct layers *l, struct carve *c, uint32_t forwards_max, uint32_t words);
/* Whether number a comes after b. */
bool layers_after(uint32_t a, uint32_t b);
/* The announced forward of that number, or HLG_NONE. */
uint32_t layers_find(const struct layers *l, uint32_t number);
/* Find or announce. Returns its index, -HLG_EINVAL for a number that is over or out of the window,
 * -HLG_ELIMIT when too many are open. */
int64_t layers_announce(struct layers *l, uint32_t number);
enum layer_tick layers_tick(struct layers *l, uint32_t word, uint32_t value);
/* All layers of a forward are done. It goes once no chunk waits for it. */
void layers_end(struct layers *l, uint32_t forward);
/* A chunk begins or stops to wait for a forward. */
void layers_hold(struct layers *l, uint32_t forward);
void layers_drop(struct layers *l, uint32_t forward);
/* Layers that are complete, as that word's ranks see it. HLG_NONE: no forward, all are. */
uint32_t layers_done(const struct layers *l, uint32_t forward, uint32_t word);
/* Whether a newer stamp has ended a forward on some word, and nobody has ended all of it yet. */
bool layers_passed(const struct layers *l, uint32_t forward);
void layers_check(const struct layers *l);

#endif
