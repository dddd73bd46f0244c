/*
 * Continuous batching of decode: sequences in DP ranks that step together. Between two changes of the
 * batch, steps are summed in closed form, so that the cost is per change and not per token.
 *
 * Time is the caller's: sim_batch_next() says when something will happen, sim_batch_advance() makes it
 * happen. A sequence joins at the next step boundary. MTP: each step yields 1 to 1 + draft tokens,
 * drawn per request from its own stream.
 *
 * What happens depends on the joins and leaves and their times alone, not on how often the batch is
 * asked or advanced in between. At one time events come as FIRST, FINISHED, PREEMPTED, STEPPED.
 */
#ifndef HALAGE_SIM_BATCH_H
#define HALAGE_SIM_BATCH_H

#include "cost.h"
#include "gaps.h"

#define SIM_DRAFT_MAX 8u

struct sim_batch;

struct sim_batch_config {
    const struct sim_cost *cost; /* must outlive the batch */
    uint32_t ranks;
    uint32_t sequences_max; /* of a rank, in a batch; others wait in order */
    uint32_t waiting_max;   /* of the whole batch, running ones included */
    uint64_t seed;
    /* MTP: draft tokens that each step verifies, and the share of steps that accept at least k of
       them, k = 1..draft, falling. draft 0: none. */
    uint32_t draft;
    double accept[SIM_DRAFT_MAX];
    /*
     * Grow-and-preempt: asked at a boundary when `sequence` needs `tokens` tokens more room than it
     * has; false makes the youngest running sequence of the rank leave (SIM_BATCH_PREEMPTED), perhaps
     * this one, and asks again. A sequence joins with room for its context, rounded up to
     * grow_tokens, and needs room for all that the step to come may write. Who holds such a page
     * already says true. NULL: room was reserved at join.
     */
    bool (*grow)(void *context, uint32_t rank, uint32_t sequence, uint32_t tokens);
    uint32_t grow_tokens; /* how much is asked for at a time: a page */
    /* Called when a sequence has finished or is preempted, before anybody at that boundary grows and
       before its event is given: its room is free. NULL: none. Not called by sim_batch_leave(). */
    void (*release)(void *context, uint32_t rank, uint32_t sequence);
    void *context;
};

enum sim_batch_event_kind {
    SIM_BATCH_STEPPED = 1, /* the sequence's first step begins */
    SIM_BATCH_FIRST,       /* its first token is out */
    SIM_BATCH_FINISHED,    /* its last token is out; it has left */
    SIM_BATCH_PREEMPTED,   /* it has left; `tokens` were out already */
};

struct sim_batch_event {
    uint32_t kind;     /* enum sim_batch_event_kind */
    uint32_t sequence; /* the caller's number */
    uint32_t rank;
    uint32_t tokens; /* out so far */
    uint32_t steps;  /* made so far */
    hlg_time at;
};

/* Returns 0, -HLG_EINVAL or -HLG_ENOMEM. All memory is taken here. */
int sim_batch_create(const struct sim_batch_config *config, struct sim_batch **batch);
void sim_batch_destroy(struct sim_batch *batch);

/*
 * Add a sequence; it steps from the first boundary >= now that has a slot for it. At a boundary at `now`
 * itself it is in time, whether or not the batch was advanced to it already.
 *
 * now            not before an earlier call's
 * sequence       the caller's number, unique among those in the batch
 * stream         of its draws: equal seed and stream, equal draws
 * context        tokens in the cache before its first step, >= 0
 * output_tokens  to be made, 1..HLG_TOKENS_MAX
 *
 * Returns 0, or -HLG_ELIMIT beyond waiting_max.
 */
int sim_batch_join(struct sim_batch *batch, hlg_time now, uint32_t rank, uint32_t sequence,
                   uint64_t stream, uint32_t context, uint32_t output_tokens);

/* The same for a request whose last token came out elsewhere at `last_ns` <= now: from the prefill node, or
 * before it was preempted. The gap from it to the first token here is counted; events are the same. */
int sim_batch_resume(struct sim_batch *batch, hlg_time now, uint32_t rank, uint32_t sequence,
                     uint64_t stream, uint32_t context, uint32_t output_tokens, hlg_time last_ns);

/* A sequence leaves at `now` (its node fails, its user goes), and nothing more is said of it; a step under
 * way ends as it would have. Events before `now` must have been taken. Nothing happens if it is not in the
 * batch. O(sequences). */
void sim_batch_leave(struct sim_batch *batch, hlg_time now, uint32_t sequence);

/* When to advance next, or HLG_TIME_NEVER. Nothing happens before; now and then nothing happens then. */
hlg_time sim_batch_next(struct sim_batch *batch);

/* Advance to `now` and give what happened, oldest first. Returns how many of `capacity` were filled in;
 * when it is all of them, call again. */
uint32_t sim_batch_advance(struct sim_batch *batch, hlg_time now, struct sim_batch_event *events,
                           uint32_t capacity);

/* Sequences of a rank, running and waiting; context tokens of the running ones, as of the last boundary
 * that was advanced to (with MTP by their mean growth). */
uint32_t sim_batch_running(const struct sim_batch *batch, uint32_t rank);
uint32_t sim_batch_waiting(const struct sim_batch *batch, uint32_t rank);
uint64_t sim_batch_context(const struct sim_batch *batch, uint32_t rank);

/* Sums over all steps up to the last boundary that was advanced to. */
struct sim_batch_totals {
    uint64_t steps;
    uint64_t beyond; /* of these, with a price beyond what was measured */
    double busy_ns;
    uint64_t tokens; /* out; those of running sequences not yet counted */
};
void sim_batch_totals(const struct sim_batch *batch, struct sim_batch_totals *totals);

/* Gaps between the tokens of each sequence, likewise. */
void sim_batch_gaps(const struct sim_batch *batch, struct sim_gaps *gaps);

/* Recount. Returns 0, or the number of the check that failed. */
int sim_batch_check(const struct sim_batch *batch);

#endif
