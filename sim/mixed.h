/*
 * A co-located engine: one node that computes prompts and decodes, in DP ranks that step together, each
 * with its own queue, pages and prefix cache. The baseline that disaggregation is compared with; what it
 * assumes is in docs/engines.md.
 *
 * Each rank serves its queue in order. A request starts when the rank has a place and pages for it; its
 * prompt, less what the cache has, is computed within the token budget of a step, and the step that ends
 * it gives the first token.
 *   chunked   a step carries all decode sequences and, with what they leave of the budget, prompts in
 *             order, cut where the budget ends
 *   whole     prompts go first: steps of whole prompts, as many as the budget holds and at least one, in
 *             which decode stands still on all ranks
 * Steps without prompts are summed in closed form, as in batch.h.
 *
 * Time is the caller's, as in batch.h: what happens depends on the submits and their times alone. At one
 * time prompts that end are told first, then sequences that end, then who is preempted, then who starts.
 */
#ifndef HALAGE_SIM_MIXED_H
#define HALAGE_SIM_MIXED_H

#include "batch.h"
#include "cost.h"
#include "gaps.h"

struct sim_mixed;

struct sim_mixed_config {
    const struct sim_cost *cost; /* must outlive the node */
    uint32_t ranks;              /* DP ranks */
    uint32_t budget_tokens;      /* of one step of a rank, >= 1 */
    bool chunked;
    uint32_t sequences_max; /* of a rank: decoding, or with a prompt under way */
    uint32_t requests_max;  /* of the node: waiting ones too */
    uint32_t pages;         /* of a rank */
    uint32_t page_tokens;
    /* Pages are taken for the prompt alone, and more as it grows: when there are none, the request of the
       rank that started last leaves, goes to the front of the queue and is computed anew with what it has
       said so far. false: pages for prompt and whole output are taken at its start. */
    bool grow;
    bool cache; /* prefix cache, of names */
    uint64_t seed;
    uint32_t draft; /* MTP, as in struct sim_batch_config */
    double accept[SIM_DRAFT_MAX];
};

enum sim_mixed_event_kind {
    SIM_MIXED_COMPUTED = 1, /* the step with the prompt's last chunk is over */
    SIM_MIXED_FIRST,        /* the first token is out: at the same time */
    SIM_MIXED_FINISHED,     /* the last token is out; pages are back */
    SIM_MIXED_PREEMPTED,    /* it has lost its pages and waits again */
    SIM_MIXED_STARTED,      /* the step with the prompt's first chunk begins */
};

/* A request that is computed anew gives STARTED and COMPUTED again only if its first token is not out. */
struct sim_mixed_event {
    uint32_t kind;    /* enum sim_mixed_event_kind */
    uint32_t request; /* the caller's number */
    uint32_t rank;
    uint32_t tokens;      /* out so far */
    uint32_t cached;      /* prompt tokens that the cache had, at its first start */
    uint32_t chunks;      /* steps with a part of its prompt so far */
    uint32_t steps;       /* decode steps so far; complete at FINISHED */
    uint32_t preemptions; /* so far */
    hlg_time at;
};

/* Returns 0, -HLG_EINVAL or -HLG_ENOMEM. A node that dies is destroyed and created anew. */
int sim_mixed_create(const struct sim_mixed_config *config, struct sim_mixed **mixed);
void sim_mixed_destroy(struct sim_mixed *mixed);

/* Whether a rank could hold such a request, alone: prompt and output fit its pages. */
bool sim_mixed_fits(const struct sim_mixed *mixed, uint32_t prompt_tokens, uint32_t output_tokens);

/*
 * A request for a rank's queue. It may start at the first boundary >= now, one at `now` itself included.
 *
 * now            not before an earlier call's
 * request        the caller's number
 * stream         of its MTP draws
 * prompt_tokens  1..HLG_TOKENS_MAX
 * output_tokens  1..HLG_TOKENS_MAX
 * names          [name_count] of its whole pages, of the prompt and, where known, of what it will say; not
 *                copied, must last until it has FINISHED; at most (prompt + output - 1) / page_tokens count
 *
 * Returns 0, -HLG_EINVAL when it fits no rank (sim_mixed_fits()), -HLG_ELIMIT beyond requests_max, or
 * -HLG_ENOMEM.
 */
int sim_mixed_submit(struct sim_mixed *mixed, hlg_time now, uint32_t rank, uint32_t request,
                     uint64_t stream, uint32_t prompt_tokens, uint32_t output_tokens,
                     const uint64_t *names, uint32_t name_count);

/* When to advance next, or HLG_TIME_NEVER. Nothing happens before; now and then nothing happens then. */
hlg_time sim_mixed_next(struct sim_mixed *mixed);

/* Advance to `now` and give what happened, oldest first. Returns how many of `capacity` were filled in;
 * when it is all of them, call again. */
uint32_t sim_mixed_advance(struct sim_mixed *mixed, hlg_time now, struct sim_mixed_event *events,
                           uint32_t capacity);

/* Prompt tokens that the cache of a rank has now, of such names: for a router. */
uint32_t sim_mixed_cached(const struct sim_mixed *mixed, uint32_t rank, const uint64_t *names,
                          uint32_t name_count);

/* Of a rank now: requests waiting, with a prompt under way, and in decode; pages in use. */
uint32_t sim_mixed_waiting(const struct sim_mixed *mixed, uint32_t rank);
uint32_t sim_mixed_computing(const struct sim_mixed *mixed, uint32_t rank);
uint32_t sim_mixed_running(const struct sim_mixed *mixed, uint32_t rank);
uint32_t sim_mixed_pages_used(const struct sim_mixed *mixed, uint32_t rank);

/* Sums up to the last boundary that was advanced to. */
struct sim_mixed_totals {
    uint64_t steps;        /* of any kind */
    uint64_t beyond;       /* of these, with a price beyond what was measured */
    uint64_t prompt_steps; /* of these, with a part of a prompt */
    double busy_ns;
    uint64_t tokens_in;     /* prompt tokens computed, those computed anew too */
    uint64_t tokens_cached; /* prompt tokens found in the cache */
    uint64_t tokens_out;    /* those of running sequences not yet counted */
    uint64_t preemptions;
};
void sim_mixed_totals(const struct sim_mixed *mixed, struct sim_mixed_totals *totals);

/* Gaps between the tokens of each request, steps of prompts and preemptions in between included. */
void sim_mixed_gaps(const struct sim_mixed *mixed, struct sim_gaps *gaps);

/* Recount. Returns 0, or the number of the check that failed. */
int sim_mixed_check(const struct sim_mixed *mixed);

#endif
