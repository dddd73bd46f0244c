/*
 * Sequences of one node in decode, which step together, and the closed form of their steps: shared by
 * batch.c and mixed.c, which say who steps when.
 *
 * A plan is a run of up to SIM_STEPS_MAX steps between two changes. Its first and its last step are
 * priced, and of a long one the middle; those between lie on the line through the ends, since the cost of a
 * step is nearly linear in the contexts: a plan is cut where it is not. Boundary k of a plan is the end of its k-th step; boundary 0 is its begin.
 */
#ifndef HALAGE_SIM_STEPS_H
#define HALAGE_SIM_STEPS_H

#include "batch.h"

#define SIM_STEPS_MAX 64u

struct sim_steps;

struct sim_steps_config {
    const struct sim_cost *cost;
    uint32_t ranks;
    uint32_t sequences_max; /* of all ranks */
    uint64_t seed;
    uint32_t draft;
    const double *accept; /* [draft], copied */
    uint32_t grow_tokens; /* page size of those that grow; 0: room was reserved */
};

enum sim_steps_key {
    SIM_STEPS_FINISH, /* count of steps after which it is finished */
    SIM_STEPS_GROW,   /* count of steps before which it needs more room; UINT64_MAX: never */
    SIM_STEPS_KEYS
};

/* One sequence, by its place. Read only but for `announced`. */
struct sim_steps_sequence {
    uint64_t key[SIM_STEPS_KEYS];
    uint32_t heap_index[SIM_STEPS_KEYS];
    uint64_t serial;    /* order of adding */
    uint64_t seed;      /* of its draws */
    uint64_t begin;     /* count of steps before its first */
    uint64_t context_q; /* tokens << SIM_STEPS_SHIFT in the cache at `begin` */
    uint64_t rate_q;    /* mean growth of a step, likewise */
    hlg_time last_ns;   /* time of the token before its first one here; HLG_TIME_NEVER: none */
    uint32_t user;      /* the caller's number */
    uint32_t rank;
    uint32_t output;       /* tokens to be made here */
    uint32_t steps;        /* that they take */
    uint32_t first_tokens; /* of its first step */
    uint32_t room;         /* tokens */
    uint32_t older;        /* of the rank */
    uint32_t newer;
    bool announced; /* for the caller; false at first */
};
#define SIM_STEPS_SHIFT 20u

/* Returns 0, -HLG_EINVAL or -HLG_ENOMEM. */
int sim_steps_create(const struct sim_steps_config *config, struct sim_steps **steps);
void sim_steps_destroy(struct sim_steps *steps);

/* Add and remove at a boundary. `stream`, `salt`: equal ones, equal draws. Returns its place. */
uint32_t sim_steps_add(struct sim_steps *steps, uint32_t rank, uint32_t user, uint64_t stream,
                       uint32_t salt, uint32_t context, uint32_t output, hlg_time last_ns);
void sim_steps_remove(struct sim_steps *steps, uint32_t place);

struct sim_steps_sequence *sim_steps_at(struct sim_steps *steps, uint32_t place);
uint32_t sim_steps_made(const struct sim_steps *steps, uint32_t place);
uint32_t sim_steps_tokens(const struct sim_steps *steps, uint32_t place); /* out so far */
uint32_t sim_steps_count(const struct sim_steps *steps);                  /* all ranks */
uint32_t sim_steps_running(const struct sim_steps *steps, uint32_t rank);
uint64_t sim_steps_context(const struct sim_steps *steps, uint32_t rank);
uint32_t sim_steps_youngest(const struct sim_steps *steps, uint32_t rank); /* or HLG_NONE */

/* Those that have not stepped yet, oldest first. A move empties the list, and leaves what is read
 * of it valid until the next add or remove. */
const uint32_t *sim_steps_fresh(const struct sim_steps *steps, uint32_t *count);

/* A place whose key has come, the oldest first, or HLG_NONE. */
uint32_t sim_steps_due(const struct sim_steps *steps, enum sim_steps_key key);
/* It has grow_tokens more room. */
void sim_steps_grown(struct sim_steps *steps, uint32_t place);

/*
 * Plan from `now` on. prompts [ranks], of which the chunks are read, or NULL: then the step is one alone,
 * priced with them. decode: sequences step too; false: they stand still.
 */
void sim_steps_plan(struct sim_steps *steps, hlg_time now, const struct sim_rank_step *prompts,
                    bool decode);
bool sim_steps_planned(const struct sim_steps *steps);
hlg_time sim_steps_boundary(const struct sim_steps *steps, uint32_t k);
uint32_t sim_steps_position(const struct sim_steps *steps);
uint32_t sim_steps_end(const struct sim_steps *steps);

/* The first boundary from the position on that is not before `at`; the end if there is none. */
uint32_t sim_steps_until(const struct sim_steps *steps, hlg_time at);
/* The next boundary at which a key comes, or the end. After the position. */
uint32_t sim_steps_next(const struct sim_steps *steps);
/* Count the steps up to boundary k; never back. */
void sim_steps_move(struct sim_steps *steps, uint32_t k);
/* End the plan at boundary k, not before the position. */
void sim_steps_cut(struct sim_steps *steps, uint32_t k);
void sim_steps_drop(struct sim_steps *steps);

/* Time of the last token of those that have stepped. */
hlg_time sim_steps_last(const struct sim_steps *steps);
void sim_steps_totals(const struct sim_steps *steps, struct sim_batch_totals *totals);
struct sim_gaps *sim_steps_gaps(struct sim_steps *steps);

/* Recount. Returns 0, or the number of the check that failed. */
int sim_steps_check(const struct sim_steps *steps);

#endif
