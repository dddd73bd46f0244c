/*
 * Credit on requests: what a prefiller grants each decoder, what the decoder has used of it, and what
 * came back. Requests, the pages that they ask for and the bytes of their prompts are counted apart, upward
 * over a whole session. A decoder holds back the REQUESTs that its credit does not cover, first in first out
 * for each peer; a prefiller returns credit when a request is over there, before the decoder can be short
 * of it.
 */
#ifndef HALAGE_CORE_CREDIT_H
#define HALAGE_CORE_CREDIT_H

#include "carve.h"
#include <halage/message.h>

void load_add(struct hlg_load *sum, const struct hlg_load *load);
void load_subtract(struct hlg_load *sum, const struct hlg_load *load);
/* Whether no count of `a` is above that of `b`. */
bool load_within(const struct hlg_load *a, const struct hlg_load *b);
/* What a REQUEST of these page lists and prompt costs. */
struct hlg_load load_of(const struct hlg_page_list *groups, uint32_t group_count,
                        uint32_t prompt_bytes);

/* ---- decode ---- */

/* What a decoder spends at one peer. */
struct purse {
    struct hlg_load charged; /* by REQUESTs sent or queued in the outbox */
    struct hlg_load sent;    /* by those that the peer may have seen */
    struct hlg_load returned;
    uint32_t head; /* slots whose REQUESTs wait for credit */
    uint32_t tail;
};

struct credits {
    uint32_t peers;
    struct purse *purses; /* [peers] */
    uint32_t *next;       /* [slots] */
    uint32_t *before;     /* [slots] */
    bool *waits;          /* [slots] */
};

void credits_init(struct credits *c, struct carve *carve, uint32_t peers, uint32_t slots);
/* Put a slot's REQUEST behind the peer's others; take it out, wherever it stands. */
void credits_wait(struct credits *c, uint32_t peer, uint32_t slot);
void credits_drop(struct credits *c, uint32_t peer, uint32_t slot);
/* Whether the grant covers `cost` beside what is charged and not returned. */
bool credits_cover(const struct credits *c, uint32_t peer, const struct hlg_load *grant,
                   const struct hlg_load *cost);
/* CREDIT came. Returns -HLG_EPROTO when it returns nothing, takes some back, or is more than was sent. */
int credits_return(struct credits *c, uint32_t peer, const struct hlg_load *finished);
/* The session is over; nothing waits. */
void credits_forget(struct credits *c, uint32_t peer);

/* ---- prefill ---- */

/* What one decoder has used here. */
struct ledger {
    struct hlg_load asked;    /* by all its REQUESTs */
    struct hlg_load finished; /* by those that are over, whatever their end */
    struct hlg_load told;     /* in CREDITs */
    bool queued;              /* a CREDIT waits to be sent */
    uint64_t beyond_count;    /* REQUESTs beyond the grant */
};

/* A REQUEST came. Returns whether the grant covers it. */
bool ledger_ask(struct ledger *l, const struct hlg_load *grant, const struct hlg_load *cost);
/*
 * Whether a CREDIT is due: some is to be returned, and the decoder has less than half of its grant, or less
 * than its largest REQUEST could need.
 */
bool ledger_due(const struct ledger *l, const struct hlg_load *grant,
                const struct hlg_load *largest);

#endif
