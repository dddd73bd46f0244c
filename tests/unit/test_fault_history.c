/*
 * All faults at once, in drawn histories: equal seeds give equal ones, what was taken adds up to the end,
 * through deaths and closes, and nothing is allocated on the way.
 */
#include "../support/allocations.h"
#include "fault_net.h"

static struct net net;

/* ---- all of it ------------------------------------------------------------------------------ */

static const char all_kinds[] = "delay ppm 100000 span 1us..80us\n"
                                "reorder ppm 100000\n"
                                "duplicate ppm 50000\n"
                                "fail-before ppm 20000\n"
                                "fail-after ppm 20000\n"
                                "fail-late ppm 20000 span 1us..50us\n"
                                "refuse ppm 50000 span 1us..20us\n"
                                "partial ppm 200000\n"
                                "imm-late ppm 100000 span 1us..50us\n"
                                "imm-stale ppm 20000\n"
                                "freeze node 2 at 100us span 50us\n"
                                "partition node 0 peer 1 at 200us span 60us\n"
                                "half-open node 1 at 400us span 60us\n"
                                "slow node 1 at 300us rate 10MB/s span 100us\n"
                                "clock-jump node 0 at 50us span 10us\n";

/* A history under all rules: who writes what to whom is drawn from the seed alone. */
static uint64_t run_history(uint64_t seed, uint64_t hits[HLG_FAULT_KINDS])
{
    struct hlg_fault_stats stats;
    uint64_t random = seed;
    uint64_t hash;

    net_make(&net, seed, all_kinds);
    for (uint32_t round = 0; round < 400; round++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const uint32_t from = (uint32_t)(random >> 33) % NET_NODES;
        const uint32_t to = (from + 1 + (uint32_t)(random >> 40) % (NET_NODES - 1)) % NET_NODES;
        const uint32_t begin = (uint32_t)(random >> 50) % 60;
        const struct hlg_paged_write w =
            net_write(&net, from, to, round % NET_OPS, begin, begin + 4);

        net.landings = 0;
        assert_true(net_post(&net, from, &w) >= 0);
        net_pass(&net, 2 * NET_US);
    }
    net_run_dry(&net);
    for (uint32_t node = 0; node < NET_NODES; node++) {
        assert_true(net_is_even(&net, node));
    }
    hlg_fault_stats(net.fault, &stats);
    assert_int_equal(stats.held, 0);
    memcpy(hits, stats.hits, sizeof(stats.hits));
    hash = hlg_loop_trace_hash(net.loop);
    net_drop(&net);
    return hash;
}

static void equal_seeds_give_equal_histories_and_sums_hold(void **state)
{
    uint64_t total[HLG_FAULT_KINDS] = {0};
    uint64_t last = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t first[HLG_FAULT_KINDS];
        uint64_t second[HLG_FAULT_KINDS];
        const uint64_t hash = run_history(seed, first);

        assert_int_equal(run_history(seed, second), hash);
        assert_memory_equal(first, second, sizeof(first));
        assert_true(hash != last);
        last = hash;
        for (uint32_t kind = 0; kind < HLG_FAULT_KINDS; kind++) {
            total[kind] += first[kind];
        }
    }
    for (uint32_t kind = HLG_FAULT_DELAY; kind <= HLG_FAULT_IMM_STALE; kind++) {
        assert_true(total[kind] > 0);
    }
    assert_int_equal(total[HLG_FAULT_FREEZE], 20);
}

/* ---- deaths and closes ------------------------------------------------------------------------ */

static const char deadly_kinds[] = "delay ppm 150000 span 1us..80us\n"
                                   "reorder ppm 100000 span 0us..30us\n"
                                   "duplicate ppm 100000\n"
                                   "fail-before ppm 20000\n"
                                   "fail-after ppm 20000\n"
                                   "fail-late ppm 50000 span 1us..90us\n"
                                   "refuse ppm 50000 span 1us..300us\n"
                                   "partial ppm 200000\n"
                                   "imm-late ppm 100000 span 1us..50us\n"
                                   "close-fails ppm 300000 span 0us..60us\n";

struct history {
    uint64_t random;
    uint64_t taken;   /* of endpoints that are gone */
    uint64_t counted; /* pieces at all targets */
};

static uint32_t draw(struct history *h, uint32_t limit)
{
    h->random = h->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(h->random >> 33) % limit;
}

/* The endpoint's last word, then a new one in its place that all know. */
static void replace(struct net *n, struct history *h, uint32_t node)
{
    struct end *e = &n->ends[node];
    struct hlg_fabric *fabric = e->fabric;
    struct hlg_transport *t;
    int error;

    (void)e->t->ops->close(e->t);
    net_poll(n, node);
    assert_true(net_is_even(n, node));
    for (uint32_t op = 0; op < NET_OPS; op++) {
        h->taken += e->taken[op];
    }
    h->counted += e->pieces;
    e->t->ops->free(e->t);
    e->t = NULL;
    e->pieces = 0;
    memset(e->taken, 0, sizeof(e->taken));
    memset(e->done, 0, sizeof(e->done));
    memset(e->failed, 0, sizeof(e->failed));
    if (!hlg_fault_alive(n->fault, node)) {
        hlg_fault_restart(n->fault, node);
    }
    while ((error = fabric->open(fabric, 0, 0, &t)) == -HLG_ELIMIT) {
        net_pass(n, 10 * NET_US); /* closes that failed are still open below */
    }
    assert_int_equal(error, 0);
    t->ops->free(t);
    net_open(n, node);
    for (uint32_t other = 0; other < NET_NODES; other++) {
        struct hlg_transport *o = n->ends[other].t;

        if (other != node) {
            (void)o->ops->peer_close(o, n->ends[other].peers[node]);
            net_join(n, other, node);
        }
        net_join(n, node, other);
    }
}

static void act(struct net *n, struct history *h, uint32_t round)
{
    const uint32_t from = draw(h, NET_NODES);
    const uint32_t to = (from + 1 + draw(h, NET_NODES - 1)) % NET_NODES;
    const uint32_t begin = draw(h, 50);
    const uint32_t what = draw(h, 100);
    const struct hlg_paged_write w =
        net_write(n, from, to, round % NET_OPS, begin, begin + 1 + draw(h, 12));

    if (what < 85) {
        (void)net_post(n, from, &w); /* an error: it was given up for dead */
    } else if (what < 92) {
        assert_int_equal(n->ends[from].t->ops->peer_close(n->ends[from].t, w.peer), 0);
        net_join(n, from, to);
    } else if (what < 96) {
        replace(n, h, from);
    } else {
        char kill[32];

        (void)snprintf(kill, sizeof(kill), "kill node %u", from);
        net_script(n, kill);
        net_pass(n, draw(h, 100) * NET_US);
        replace(n, h, from);
    }
    net_pass(n, draw(h, 4) * NET_US);
}

static void sums_hold_through_deaths_and_closes(void **state)
{
    uint64_t hits[HLG_FAULT_KINDS] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct history h = {.random = seed};
        struct hlg_fault_stats stats;

        net_make(&net, seed, deadly_kinds);
        for (uint32_t round = 0; round < 300; round++) {
            net.landings = 0;
            act(&net, &h, round);
        }
        hlg_fault_calm(net.fault);
        net_run_dry(&net);
        hlg_fault_stats(net.fault, &stats);
        assert_int_equal(stats.held, 0);
        for (uint32_t node = 0; node < NET_NODES; node++) {
            assert_true(net_is_even(&net, node));
            net.landings = 0;
            replace(&net, &h, node);
        }
        assert_true(h.counted <= h.taken && h.counted > 500);
        for (uint32_t kind = 0; kind < HLG_FAULT_KINDS; kind++) {
            hits[kind] += stats.hits[kind];
        }
        net_drop(&net);
    }
    assert_true(hits[HLG_FAULT_KILL] > 100 && hits[HLG_FAULT_CLOSE_FAILS] > 100);
}

static void nothing_is_allocated_after_open(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "");
    w = net_wires(&net);
    net.polled[0] = w.a;
    net.polled[1] = w.b;
    const uint64_t before = allocations;
    assert_true(before > 0); /* the count works */
    net_script(&net, all_kinds);
    for (uint32_t op = 0; op < NET_OPS; op++) {
        const struct hlg_paged_write write = net_write(&net, 0, 1, op, 0, 8);

        net.landings = 0;
        assert_true(net_post(&net, 0, &write) >= 0);
        assert_true(net_send(w.a, 1) >= 0);
        net_pass(&net, 5 * NET_US);
    }
    hlg_fault_calm(net.fault);
    net_run_dry(&net);
    assert_int_equal(allocations, before);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_seeds_give_equal_histories_and_sums_hold),
        cmocka_unit_test(sums_hold_through_deaths_and_closes),
        cmocka_unit_test(nothing_is_allocated_after_open),
    };

    return cmocka_run_group_tests_name("fault-history", tests, NULL, NULL);
}
