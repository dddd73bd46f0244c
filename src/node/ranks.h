/*
 * The rank processes of a node. Each is forked before the node makes any thread, dies with it, makes
 * its own KV memory and hands it to the leader as a descriptor. The leader describes a forward pass
 * in memory that it shares with the ranks of a pool, and the ranks sleep until there is one.
 */
#ifndef HALAGE_NODE_RANKS_H
#define HALAGE_NODE_RANKS_H

#include <halage/layout.h>
#include <halage/memory.h>
#include <poll.h>
#include <sys/types.h>
#include <tinylm.h>

/* A forward pass of one pool; shared by the leader and the pool's ranks, at one address. */
struct step {
    _Atomic uint32_t posted;     /* futex: passes posted so far */
    _Atomic uint32_t ranks_done; /* with the present pass */
    _Atomic uint32_t word;       /* progress, as tlm_forward() stores it */
    _Atomic int32_t
        status;       /* of the pass: 0 or a TLM_E_*; not TLM_E_ABORTED where a rank says more */
    _Atomic bool end; /* the ranks are to end */
    uint32_t forward;
    uint32_t sequence_count;
    uint32_t token_count;
    uint32_t page_count;
    struct tlm_sequence *sequences; /* [sequences_max], pointing into tokens and pages */
    uint32_t *contexts; /* [sequences_max] context page that gets the last hidden state; HLG_NONE */
    uint32_t *tokens;   /* [tokens_max] */
    uint32_t *pages;    /* [sequences_max * sequence_pages_max] */
    /* written by rank 0 where the ranks have a sampler */
    uint32_t *sampled;     /* [sequences_max] */
    uint64_t *logits_hash; /* [sequences_max] */
};

struct ranks_config {
    const struct tlm_config *model;  /* kept */
    const struct hlg_layout *layout; /* kept */
    bool prefill;                    /* tick the word, and write contexts */
    bool cuda;                       /* KV memory of GPUs */
    int32_t device; /* of all ranks; negative: lane I on the I-th visible, counted round */
    /* Chooses a token from logits. NULL: the ranks never compute logits. */
    uint32_t (*sample)(const float *logits, uint32_t vocab);
};

struct ranks;

/*
 * Fork the ranks of all pools and take their memory. Before any thread exists.
 *
 * text  [capacity] a sentence on failure
 *
 * Returns 0 or a negated enum hlg_error. Release with ranks_stop().
 */
int ranks_start(const struct ranks_config *config, struct ranks **ranks, char *text,
                size_t capacity);

/* Ends all rank processes and waits for them; those with memory of a GPU free it before. Takes NULL. */
void ranks_stop(struct ranks *ranks);

uint32_t ranks_lanes(const struct ranks *ranks);
struct hlg_memory *ranks_memory(const struct ranks *ranks, uint32_t lane);

/* The step of a pool, empty: to be filled in by ranks_step_add(), while none is under way. */
struct step *ranks_step_begin(struct ranks *ranks, uint32_t pool, uint32_t forward);

/* Add a sequence: `tokens` [token_count] at `position`, in `pages` [page_count]; copied. Returns
 * whether there was room. */
bool ranks_step_add(struct ranks *ranks, uint32_t pool, const struct tlm_sequence *sequence,
                    uint32_t context);

/* Let the ranks run it. */
void ranks_step_post(struct ranks *ranks, uint32_t pool);

/* Whether a pool's step is under way, and the word that it stores its progress to. */
bool ranks_step_running(const struct ranks *ranks, uint32_t pool);
_Atomic uint32_t *ranks_word(struct ranks *ranks, uint32_t pool);

/* Take a pool's finished step, after its descriptor was readable. NULL: not finished. */
const struct step *ranks_step_take(struct ranks *ranks, uint32_t pool);

/* Say in `text` [capacity] why a pool's step failed. */
void ranks_step_why(const struct ranks *ranks, uint32_t pool, char *text, size_t capacity);

/*
 * Descriptors to poll: first one for each pool (a step is finished), then one for each lane (its
 * end means that the rank died). Returns how many: pools + lanes.
 */
uint32_t ranks_poll_fds(const struct ranks *ranks, struct pollfd *fds, uint32_t capacity);

/* Whether a rank is dead. Then `text` says which and how. */
bool ranks_dead(struct ranks *ranks, char *text, size_t capacity);

#endif
