/*
 * The ring, the bell and the latch, with several threads on either end. Run under the thread
 * sanitizer too: the orderings that ring.h claims are what it would find missing.
 */
#include "../../src/messenger/ring.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PRODUCERS 3u
#define CONSUMERS 3u
#define ITEMS     20000u /* of each producer */
#define CAPACITY  64u

struct item {
    uint32_t producer;
    uint32_t number;
    uint64_t check;
};

struct crowd {
    struct ring ring;
    struct latch done;
    uint32_t producer; /* number of the next thread that starts, under lock */
    pthread_mutex_t lock;
    uint64_t popped;
    uint8_t seen[PRODUCERS][ITEMS];
};

static void items_come_out_in_order_and_full_is_said(void **state)
{
    struct ring ring;
    uint32_t value = 0;

    (void)state;
    assert_int_equal(ring_init(&ring, 5, sizeof value), 0);
    assert_int_equal(ring_capacity(&ring), 8);
    assert_false(ring_pop(&ring, &value));
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 8; i++) {
            value = round * 100 + i;
            assert_true(ring_push(&ring, &value));
        }
        assert_false(ring_push(&ring, &value));
        for (uint32_t i = 0; i < 8; i++) {
            assert_true(ring_pop(&ring, &value));
            assert_int_equal(value, round * 100 + i);
        }
        assert_true(ring_empty(&ring));
        assert_false(ring_pop(&ring, &value));
    }
    assert_int_equal(ring_pushes(&ring), 40);
    assert_int_equal(ring_pops(&ring), 40);
    ring_fini(&ring);
}

/* A pop of the first cell that was begun; its thread was then held up. */
static void *finish_pop(void *context)
{
    struct ring *ring = context;

    (void)poll(NULL, 0, 5);
    atomic_store_explicit(&ring->turns[0], ring_capacity(ring), memory_order_release);
    return NULL;
}

/* Items that are never more than the cells always find room, though whoever pops is held up for a while: the
 * one that takes a ticket may be, while others give theirs back. */
static void a_pop_under_way_does_not_make_it_full(void **state)
{
    struct ring ring;
    pthread_t thread;
    uint32_t value = 0;

    (void)state;
    assert_int_equal(ring_init(&ring, 2, sizeof value), 0);
    for (value = 0; value < 2; value++) {
        assert_true(ring_push(&ring, &value));
    }
    assert_int_equal(atomic_fetch_add(&ring.pops, 1), 0);
    assert_true(ring_pop(&ring, &value));
    assert_int_equal(value, 1);
    assert_int_equal(pthread_create(&thread, NULL, finish_pop, &ring), 0);
    for (value = 2; value < 4; value++) {
        assert_true(ring_push(&ring, &value));
    }
    assert_false(ring_push(&ring, &value));
    pthread_join(thread, NULL);
    for (uint32_t i = 2; i < 4; i++) {
        assert_true(ring_pop(&ring, &value));
        assert_int_equal(value, i);
    }
    ring_fini(&ring);
}

static void *produce(void *context)
{
    struct crowd *c = context;

    pthread_mutex_lock(&c->lock);
    uint32_t producer = c->producer++;
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct item item = {.producer = producer, .number = i, .check = ~(uint64_t)i};
        while (!ring_push(&c->ring, &item)) {
            sched_yield();
        }
    }
    return NULL;
}

static void *consume(void *context)
{
    struct crowd *c = context;
    uint32_t last[PRODUCERS] = {0};
    struct item item;

    for (;;) {
        bool over = latch_is_set(&c->done);
        if (!ring_pop(&c->ring, &item)) {
            if (over) {
                return NULL;
            }
            sched_yield();
            continue;
        }
        /* One consumer sees what one producer pushed in order. */
        HLG_ASSERT(item.check == ~(uint64_t)item.number && item.number + 1 > last[item.producer]);
        last[item.producer] = item.number + 1;
        pthread_mutex_lock(&c->lock);
        c->popped++;
        c->seen[item.producer][item.number]++;
        pthread_mutex_unlock(&c->lock);
    }
}

static void many_threads_lose_and_repeat_nothing(void **state)
{
    static struct crowd c;
    pthread_t producers[PRODUCERS];
    pthread_t consumers[CONSUMERS];

    (void)state;
    assert_int_equal(ring_init(&c.ring, CAPACITY, sizeof(struct item)), 0);
    latch_init(&c.done);
    pthread_mutex_init(&c.lock, NULL);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, &c), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &c), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        pthread_join(producers[i], NULL);
    }
    latch_set(&c.done);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        pthread_join(consumers[i], NULL);
    }
    assert_int_equal(c.popped, PRODUCERS * ITEMS);
    for (uint32_t i = 0; i < PRODUCERS * ITEMS; i++) {
        assert_int_equal(c.seen[i / ITEMS][i % ITEMS], 1);
    }
    pthread_mutex_destroy(&c.lock);
    ring_fini(&c.ring);
}

struct bell_pair {
    struct ring ring;
    struct bell bell;
};

static void *ring_the_bell(void *context)
{
    struct bell_pair *p = context;

    for (uint32_t i = 0; i < ITEMS; i++) {
        while (!ring_push(&p->ring, &i)) {
            sched_yield();
        }
        bell_ring(&p->bell);
    }
    return NULL;
}

/* A sleeper that trusts the bell alone must never sleep through an item: poll would time out. */
static void a_sleeper_misses_no_item(void **state)
{
    struct bell_pair p;
    pthread_t thread;
    uint32_t expected = 0;
    uint32_t value = 0;

    (void)state;
    assert_int_equal(ring_init(&p.ring, CAPACITY, sizeof value), 0);
    assert_int_equal(bell_init(&p.bell), 0);
    assert_int_equal(pthread_create(&thread, NULL, ring_the_bell, &p), 0);
    while (expected < ITEMS) {
        if (ring_pop(&p.ring, &value)) {
            assert_int_equal(value, expected++);
            continue;
        }
        bell_arm(&p.bell);
        if (ring_empty(&p.ring)) {
            struct pollfd fd = {.fd = p.bell.fd, .events = POLLIN};
            assert_int_equal(poll(&fd, 1, 20000), 1);
        }
    }
    pthread_join(thread, NULL);
    bell_fini(&p.bell);
    ring_fini(&p.ring);
}

static bool is_readable(const struct bell *b)
{
    struct pollfd fd = {.fd = b->fd, .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

/* Two ringers and a sleeper, every order of their steps. Whoever rings may be held up between the word and the
 * write: the sleeper that armed the bell meanwhile is still woken, and once all have rung and it has armed the
 * bell again, the descriptor is quiet. Else it would never sleep again. */
static void a_ring_held_up_half_way_wakes_once(void **state)
{
    const uint64_t one = 1;

    (void)state;
    for (uint32_t order = 0; order < 27; order++) {
        struct bell bell;
        assert_int_equal(bell_init(&bell), 0);
        /* the first half of a ring */
        assert_int_equal(atomic_exchange(&bell.rung, 1), 0);
        for (uint32_t i = 0, rest = order; i < 3; i++, rest /= 3) {
            if (rest % 3 == 0) {
                bell_arm(&bell);
            } else if (rest % 3 == 1) {
                bell_ring(&bell);
            }
        }
        assert_int_equal(write(bell.fd, &one, sizeof one), sizeof one);
        assert_true(is_readable(&bell));
        bell_arm(&bell);
        assert_false(is_readable(&bell));
        bell_ring(&bell);
        assert_true(is_readable(&bell));
        bell_fini(&bell);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_order_and_full_is_said),
        cmocka_unit_test(a_pop_under_way_does_not_make_it_full),
        cmocka_unit_test(many_threads_lose_and_repeat_nothing),
        cmocka_unit_test(a_sleeper_misses_no_item),
        cmocka_unit_test(a_ring_held_up_half_way_wakes_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
