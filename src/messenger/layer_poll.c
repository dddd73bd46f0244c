/*
 * The layer poller: one thread that watches the counter words while a forward pass is announced, and
 * sleeps otherwise; or none (config.counter_core), and the core thread looks at them itself.
 *
 * Order (I4). The engine pushes CHUNK, then stamps the words of that forward. This thread reads a
 * stamp with acquire order and pushes it with release order; the core thread pops it with acquire
 * order. So CHUNK happens before the core thread sees the stamp, which therefore finds it in the
 * command ring when it looks there after taking the stamp and before acting on it.
 */
#define _GNU_SOURCE /* nanosleep */
#include "messenger_internal.h"

#include <poll.h>
#include <time.h>

static void pause_ns(hlg_time ns)
{
    struct timespec span = {.tv_sec = (time_t)(ns / HLG_NS_PER_S),
                            .tv_nsec = (long)(ns % HLG_NS_PER_S)};

    if (ns > 0) {
        (void)nanosleep(&span, NULL); /* cut short by a signal: just looks earlier */
    }
}

/* Returns whether a word moved. */
static bool look(struct hlg_messenger *m)
{
    bool moved = false;

    for (uint32_t i = 0; i < m->word_count; i++) {
        struct counter_word *word = &m->words[i];
        if (word->counter == NULL) {
            continue;
        }
        /* acquire: see the top; pairs with the engine's release, or the device's system fence */
        uint32_t value = atomic_load_explicit(word->counter, memory_order_acquire);
        if (value == word->last) {
            continue;
        }
        struct layer_value layer = {.word = i, .value = value, .read = metrics_clock()};
        /* A full ring loses nothing: the word keeps its value, or a later one that implies it. */
        if (ring_push(&m->layers, &layer)) {
            word->last = value;
            moved = true;
        }
    }
    return moved;
}

/* As the ring would bring it, without a ring: CHUNK was pushed before the stamp that is read here. */
uint32_t layer_poll_look(struct hlg_messenger *m, struct layer_value *values, uint32_t capacity)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < m->word_count && count < capacity; i++) {
        struct counter_word *word = &m->words[i];
        if (word->counter == NULL) {
            continue;
        }
        /* acquire: see the top */
        uint32_t value = atomic_load_explicit(word->counter, memory_order_acquire);
        if (value != word->last) {
            word->last = value;
            values[count++] =
                (struct layer_value){.word = i, .value = value, .read = metrics_clock()};
        }
    }
    return count;
}

bool layer_poll_resting(const struct hlg_messenger *m)
{
    /* acquire: pairs with announce and rest, so that what made them so is seen */
    uint64_t announced = atomic_load_explicit(&m->chunks_announced, memory_order_acquire);
    uint64_t rested = atomic_load_explicit(&m->chunks_rested, memory_order_acquire);

    return announced == rested;
}

bool layer_poll_awaits(const struct hlg_messenger *m)
{
    return m->config.counter_core && !layer_poll_resting(m);
}

void *layer_poll_main(void *messenger)
{
    struct hlg_messenger *m = messenger;

    while (!latch_is_set(&m->stop)) {
        if (!layer_poll_resting(m)) {
            if (look(m)) {
                bell_ring(&m->core_bell);
            }
            pause_ns(m->config.counter_ns);
            continue;
        }
        bell_arm(&m->layer_bell);
        if (layer_poll_resting(m) && !latch_is_set(&m->stop)) {
            struct pollfd fd = {.fd = m->layer_bell.fd, .events = POLLIN};
            (void)poll(&fd, 1, -1); /* an error or a signal only makes it look again */
        }
    }
    return NULL;
}

void layer_poll_announce(struct hlg_messenger *m)
{
    /* release: pairs with layer_poll_resting() */
    (void)atomic_fetch_add_explicit(&m->chunks_announced, 1, memory_order_release);
    bell_ring(&m->layer_bell);
}

void layer_poll_withdraw(struct hlg_messenger *m)
{
    (void)atomic_fetch_sub_explicit(&m->chunks_announced, 1, memory_order_release);
}

void layer_poll_rest(struct hlg_messenger *m, uint64_t handled)
{
    /* release: pairs with layer_poll_resting(); only the core thread writes it, upward */
    atomic_store_explicit(&m->chunks_rested, handled, memory_order_release);
}
