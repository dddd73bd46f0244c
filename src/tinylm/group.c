/*
 * What the ranks of a group share, and their barrier.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ABORTED = 1,    /* bit 0 of the epoch, so that setting it wakes and turns away every waiter */
    EPOCH_STEP = 2, /* the epoch wraps around harmlessly */
    SPINS = 200,    /* loads before sleeping; many ranks may share few cores */
};

_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex is 4 bytes");

size_t tlm_group_bytes(const struct tlm_config *config, uint32_t tp)
{
    const size_t tokens = config->batch_tokens_max;

    TLM_ASSERT(tlm_config_check(config, tp, NULL) == 0);
    return tlm_align(sizeof(struct tlm_group)) +
           tlm_align(tokens * config->hidden * sizeof(float)) +
           tlm_align(tokens * config->query_heads * config->head_dim * sizeof(float));
}

int tlm_group_init(void *memory, size_t bytes, const struct tlm_config *config, uint32_t tp,
                   struct tlm_group **group)
{
    const size_t stream_bytes = (size_t)config->batch_tokens_max * config->hidden * sizeof(float);

    if (tlm_config_check(config, tp, NULL) != 0) {
        return TLM_E_CONFIG;
    }
    if (tlm_memory_check(memory, bytes, tlm_group_bytes(config, tp)) != 0) {
        return TLM_E_MEMORY;
    }
    struct tlm_group *made = memory;

    made->config = *config;
    made->hidden_offset = tlm_align(sizeof(*made));
    made->gathered_offset = made->hidden_offset + tlm_align(stream_bytes);
    made->ranks = tp;
    atomic_init(&made->arrived, 0);
    atomic_init(&made->epoch, 0);
    *group = made;
    return 0;
}

uint32_t tlm_group_ranks(const struct tlm_group *group)
{
    return group->ranks;
}

const struct tlm_config *tlm_group_config(const struct tlm_group *group)
{
    return &group->config;
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    /* Any return is right: the caller looks at the word again. */
    (void)syscall(SYS_futex, (void *)word, operation, value, NULL, NULL, 0);
}

static void sleep_until_changed(_Atomic uint32_t *word, uint32_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(word, memory_order_relaxed) != seen) {
            return;
        }
    }
    futex(word, FUTEX_WAIT, seen);
}

int tlm_group_wait(struct tlm_group *group)
{
    /* Acquire pairs with the last rank's release below: what the others wrote is visible after. */
    const uint32_t epoch = atomic_load_explicit(&group->epoch, memory_order_acquire);

    if ((epoch & ABORTED) != 0) {
        return TLM_E_ABORTED;
    }
    /* Acquire and release: the last to arrive has seen what all before it wrote. */
    if (atomic_fetch_add_explicit(&group->arrived, 1, memory_order_acq_rel) + 1 == group->ranks) {
        atomic_store_explicit(&group->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&group->epoch, EPOCH_STEP, memory_order_release);
        if (group->ranks > 1) {
            futex(&group->epoch, FUTEX_WAKE, INT_MAX);
        }
        return tlm_group_aborted(group) ? TLM_E_ABORTED : 0;
    }
    uint32_t now = epoch;

    while (now == epoch) {
        sleep_until_changed(&group->epoch, epoch);
        now = atomic_load_explicit(&group->epoch, memory_order_acquire);
    }
    return (now & ABORTED) != 0 ? TLM_E_ABORTED : 0;
}

void tlm_group_abort(struct tlm_group *group)
{
    atomic_fetch_or_explicit(&group->epoch, ABORTED, memory_order_release);
    futex(&group->epoch, FUTEX_WAKE, INT_MAX);
}

int tlm_group_aborted(const struct tlm_group *group)
{
    return (atomic_load_explicit(&group->epoch, memory_order_acquire) & ABORTED) != 0;
}
