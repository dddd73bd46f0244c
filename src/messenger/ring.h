/*
 * What threads speak through: a bounded queue of fixed-size items for any number of threads on either
 * end, a bell that wakes a sleeper, and a latch that is set once. Nothing here allocates after init, or
 * blocks but for the copy of an item that another thread is at.
 */
#ifndef HALAGE_MESSENGER_RING_H
#define HALAGE_MESSENGER_RING_H

#include <errno.h>
#include <halage/base.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * Each cell has a turn number: `at` when it waits for the push number `at`, `at + 1` when that push
 * is done and the pop may come, `at + capacity` when it waits for the next push. Source: D. Vyukov,
 * "Bounded MPMC queue", 1024cores.net. The padding keeps the two ends out of each other's cache line.
 */
struct ring {                /* NOLINT(clang-analyzer-optin.performance.Padding) */
    _Atomic uint64_t *turns; /* [capacity] */
    uint8_t *items;          /* [capacity][item_bytes] */
    uint64_t mask;
    size_t item_bytes;
    _Alignas(64) _Atomic uint64_t pushes; /* claimed so far */
    _Alignas(64) _Atomic uint64_t pops;   /* claimed so far */
};

/* Room for at least `capacity` items. Returns 0 or -HLG_ENOMEM. */
static inline int ring_init(struct ring *r, uint32_t capacity, size_t item_bytes)
{
    uint64_t cells = 2;

    while (cells < capacity) {
        cells *= 2;
    }
    r->turns = malloc(cells * sizeof *r->turns);
    r->items = malloc(cells * item_bytes); /* cells never used stay the system's */
    if (r->turns == NULL || r->items == NULL) {
        free(r->turns);
        free(r->items);
        r->turns = NULL;
        r->items = NULL;
        return -HLG_ENOMEM;
    }
    for (uint64_t i = 0; i < cells; i++) {
        atomic_init(&r->turns[i], i);
    }
    r->mask = cells - 1;
    r->item_bytes = item_bytes;
    atomic_init(&r->pushes, 0);
    atomic_init(&r->pops, 0);
    return 0;
}

static inline void ring_fini(struct ring *r)
{
    free(r->turns);
    free(r->items);
    r->turns = NULL;
    r->items = NULL;
}

/*
 * Whether the cell of push number `at` still holds the item one round ago. If not, the pop that empties it is
 * under way: its thread may be held up there while others pop and push, so that an item whose room is
 * certain, such as a ticket that comes back, finds its cell in use for a moment.
 */
static inline bool ring_is_full(const struct ring *r, uint64_t at)
{
    /* acquire: pairs with the pushes so far, so that each pop that came before one of them is counted */
    (void)atomic_load_explicit(&r->pushes, memory_order_acquire);
    return atomic_load_explicit(&r->pops, memory_order_relaxed) + r->mask + 1 <= at;
}

/* Another thread copies an item; sleeps where that one may be waiting for our processor. */
static inline void ring_pause(uint32_t *rounds)
{
    if (++*rounds < 64) {
        (void)sched_yield();
    } else {
        (void)poll(NULL, 0, 1);
    }
}

static inline bool ring_push(struct ring *r, const void *item)
{
    uint32_t rounds = 0;
    /* relaxed: the number is only a guess until the turn confirms it */
    uint64_t at = atomic_load_explicit(&r->pushes, memory_order_relaxed);

    for (;;) {
        /* acquire: pairs with the release of the pop that freed the cell, so that it has read before
           we write */
        uint64_t turn = atomic_load_explicit(&r->turns[at & r->mask], memory_order_acquire);
        if (turn == at) {
            /* release: pairs with ring_is_full(); publishes nothing else */
            if (atomic_compare_exchange_weak_explicit(&r->pushes, &at, at + 1, memory_order_release,
                                                      memory_order_relaxed)) {
                break;
            }
        } else if (turn < at) {
            if (ring_is_full(r, at)) {
                return false;
            }
            ring_pause(&rounds);
            at = atomic_load_explicit(&r->pushes, memory_order_relaxed);
        } else {
            at = atomic_load_explicit(&r->pushes, memory_order_relaxed);
        }
    }
    memcpy(r->items + (at & r->mask) * r->item_bytes, item, r->item_bytes);
    /* release: whoever sees the turn sees the item, and all that its thread did before */
    atomic_store_explicit(&r->turns[at & r->mask], at + 1, memory_order_release);
    return true;
}

static inline bool ring_pop(struct ring *r, void *item)
{
    uint64_t at = atomic_load_explicit(&r->pops, memory_order_relaxed);

    for (;;) {
        /* acquire: pairs with the release of the push */
        uint64_t turn = atomic_load_explicit(&r->turns[at & r->mask], memory_order_acquire);
        if (turn == at + 1) {
            if (atomic_compare_exchange_weak_explicit(&r->pops, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                break;
            }
        } else if (turn < at + 1) {
            return false; /* empty, or the push is under way */
        } else {
            at = atomic_load_explicit(&r->pops, memory_order_relaxed);
        }
    }
    memcpy(item, r->items + (at & r->mask) * r->item_bytes, r->item_bytes);
    /* release: the item is read, the cell may be written again */
    atomic_store_explicit(&r->turns[at & r->mask], at + r->mask + 1, memory_order_release);
    return true;
}

/* Pushes claimed so far. A push that happened before this call is in the number. */
static inline uint64_t ring_pushes(const struct ring *r)
{
    /* relaxed: happens-before orders it already after every push that matters (coherence) */
    return atomic_load_explicit(&r->pushes, memory_order_relaxed);
}

static inline uint64_t ring_pops(const struct ring *r)
{
    return atomic_load_explicit(&r->pops, memory_order_relaxed);
}

static inline bool ring_empty(const struct ring *r)
{
    return ring_pushes(r) == ring_pops(r);
}

static inline uint64_t ring_capacity(const struct ring *r)
{
    return r->mask + 1;
}

/* An eventfd that is written only when somebody may sleep on it. */
struct bell {
    _Atomic uint32_t rung; /* 1: its write is there to be read, or still to come */
    int fd;
};

static inline int bell_init(struct bell *b)
{
    atomic_init(&b->rung, 0);
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return b->fd < 0 ? -HLG_EIO : 0;
}

static inline void bell_fini(struct bell *b)
{
    if (b->fd >= 0) {
        (void)close(b->fd);
    }
    b->fd = -1;
}

/* After a push: the sleeper wakes. */
static inline void bell_ring(struct bell *b)
{
    /* acq_rel: both sides exchange the same word, so their order decides. If ours is first, the
       sleeper's exchange reads it and sees our push when it looks; if its is first, we read 0 and
       write. */
    if (atomic_exchange_explicit(&b->rung, 1, memory_order_acq_rel) == 0) {
        uint64_t one = 1;
        ssize_t written = 0;
        do {
            written = write(b->fd, &one, sizeof one);
        } while (written < 0 && errno == EINTR);
        HLG_ASSERT(written == (ssize_t)sizeof one); /* the count cannot reach its end */
    }
}

/* Before sleeping: after this, look at the queues once more, and then sleep on b->fd. */
static inline void bell_arm(struct bell *b)
{
    uint64_t count = 0;

    /* relaxed: a look, to save the system call */
    if (atomic_load_explicit(&b->rung, memory_order_relaxed) == 0) {
        return;
    }
    /* A ringer that has not written yet wakes us once more, and stays the one that did: were `rung` 0 again,
       nobody would read what it writes, and the descriptor stay readable. */
    if (read(b->fd, &count, sizeof count) == (ssize_t)sizeof count) {
        /* acq_rel: see bell_ring() */
        (void)atomic_exchange_explicit(&b->rung, 0, memory_order_acq_rel);
    }
}

/* Whether it was rung since it was last armed: without it there is nothing new to look for. */
static inline bool bell_rung(const struct bell *b)
{
    /* acquire: what the ringer pushed is seen by who sees the bell */
    return atomic_load_explicit(&b->rung, memory_order_acquire) != 0;
}

/* Set once, by any thread, seen by all. */
struct latch {
    _Atomic uint32_t set;
};

static inline void latch_init(struct latch *l)
{
    atomic_init(&l->set, 0);
}

static inline void latch_set(struct latch *l)
{
    /* release: whoever sees it sees what came before */
    atomic_store_explicit(&l->set, 1, memory_order_release);
}

static inline bool latch_is_set(const struct latch *l)
{
    return atomic_load_explicit(&l->set, memory_order_acquire) != 0;
}

#endif
