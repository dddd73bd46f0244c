/*
 * Continuous batching of decode: sequences in DP ranks that step together. Between two changes of the
 * batch, steps are summed in closed form, so that the cost is per change and not per token.
 *
 * Time is the caller's: sim_batch_next() says when something will happen, sim_batch_advance() makes it
 * happen. A sequence joins at the next step boundary. MTP: each step yields 1 to 1 + draft tokens,
 * drawn per request from its own stream.
 */
#ifndef HALAGE_SIM_BATCH_H
#define HALAGE_SIM_BATCH_H

#include "cost.h"

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
    /* Grow-and-preempt: asked when `rank` needs `tokens` tokens more room at a boundary; false makes the
       youngest sequence of the rank leave (SIM_BATCH_PREEMPTED). NULL: room was reserved at join. */
    bool (*grow)(void *context, uint32_t rank, uint32_t sequence, uint32_t tokens);
    uint32_t grow_tokens; /* how much is asked for at a time: a page */
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
 * Add a sequence; it steps from the first boundary >= now that has a slot for it.
 *
 * sequence       the caller's number, unique among those in the batch
 * stream         of its draws: equal seed and stream, equal draws
 * context        tokens in the cache before its first step, >= 0
 * output_tokens  to be made, >= 1
 *
 * Returns 0, or -HLG_ELIMIT beyond waiting_max.
 */
int sim_batch_join(struct sim_batch *batch, hlg_time now, uint32_t rank, uint32_t sequence,
                   uint64_t stream, uint32_t context, uint32_t output_tokens);

/* A sequence leaves now (its node fails, its user goes). */
void sim_batch_leave(struct sim_batch *batch, uint32_t sequence);

/* When the next event is due, or HLG_TIME_NEVER. */
hlg_time sim_batch_next(struct sim_batch *batch);

/* Advance to `now` and give what happened, oldest first. Returns how many of `capacity` were filled in;
 * when it is all of them, call again. */
uint32_t sim_batch_advance(struct sim_batch *batch, hlg_time now, struct sim_batch_event *events,
                           uint32_t capacity);

/* Sequences of a rank, running and waiting; context tokens of the running ones. */
uint32_t sim_batch_running(const struct sim_batch *batch, uint32_t rank);
uint32_t sim_batch_waiting(const struct sim_batch *batch, uint32_t rank);
uint64_t sim_batch_context(const struct sim_batch *batch, uint32_t rank);

/* Gaps between tokens, as a histogram over all sequences: bucket i counts gaps of
 * [2^(i/8), 2^((i+1)/8)) microseconds; tokens that come with another one (MTP) have gap 0 and are
 * counted in `bursts`. */
#define SIM_GAP_BUCKETS 256u
struct sim_gaps {
    uint64_t count[SIM_GAP_BUCKETS];
    uint64_t bursts;
    double sum_ns;
};
void sim_batch_gaps(const struct sim_batch *batch, struct sim_gaps *gaps);

#endif
