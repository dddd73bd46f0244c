/*
 * simgrid: nodes that differ, links that slow down, fail and are repaired, and what is ready.
 */
#include "simgrid_world.h"

#include <math.h>
#include <string.h>

#define KB 1000u

static void play_unequal(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_transport_caps caps;
    struct hlg_transport *t = NULL;
    struct hlg_simgrid_node_config nodes[3] = {
        {1, 1, NIC_BANDWIDTH, 0, 2000, 65536},
        {2, 4, NIC_BANDWIDTH / 4, 0, 4000, 1000},
        {1, 1, NIC_BANDWIDTH, 20000, 2000, 65536},
    };

    world_config(&config, 3);
    config.node_configs = nodes;
    config.lanes = 0; /* unread */
    world_open(&w, &config);
    memset(nodes, 0, sizeof nodes); /* copied */
    post(&w, 0, 1, 100, 1000 * KB);
    post(&w, 2, 0, 100, 1);
    w.nodes[1]->ops->query(w.nodes[1], &caps);
    result->codes[0] = (int32_t)caps.pieces_max;

    struct hlg_fabric *fabric = hlg_simgrid_fabric(w.sim, 1);

    result->codes[1] = (int32_t)fabric->rails;
    result->codes[2] = fabric->open(fabric, 1, 3, &t);
    fabric = hlg_simgrid_fabric(w.sim, 2);
    result->codes[3] = fabric->open(fabric, 0, 1, &t);
    run(&w);
}

static void nodes_may_differ(void **state)
{
    struct result result;

    (void)state;
    in_child(play_unequal, &result);
    assert_near(result.arrived[1], 8 * HLG_NS_PER_MS + 3000); /* the slower NIC, the mean latency */
    assert_near(result.arrived[0], 2000 + 2000);              /* 100 operations of 20 ns */
    assert_int_equal(result.codes[0], 1000);
    assert_int_equal(result.codes[1], 4);
    assert_int_equal(result.codes[2], 0);
    assert_int_equal(result.codes[3], -HLG_EINVAL);
}

static void play_faults_of_config(struct result *result)
{
    struct hlg_simgrid_node_config nodes[2] = {{1, 1, 1e9, 0, 0, 16}, {1, 1, 1e9, 0, 0, 16}};
    struct hlg_simgrid *sim = NULL;
    struct hlg_simgrid_config config;
    char error[128];

    for (uint32_t fault = 0; fault < 6; fault++) {
        struct hlg_simgrid_node_config *node = &nodes[1];

        *node = nodes[0];
        hlg_simgrid_config_default(&config);
        config.node_configs = nodes;
        node->lanes = fault == 0 ? 0 : 1;
        node->rails = fault == 1 ? 0 : 1;
        node->nic_bandwidth = fault == 2 ? NAN : 1e9;
        node->op_ps = fault == 3 ? 1ull << 32 : 0;
        node->pieces_max = fault == 4 ? config.cq_depth + 1 : 16;
        node->latency_ns = fault == 5 ? UINT64_MAX : 0;
        error[0] = 0;
        result->failed += hlg_simgrid_create(&config, &sim, error, sizeof error) == -HLG_EINVAL &&
                          strncmp(error, "simgrid: ", 9) == 0;
    }
}

static void a_bad_node_is_refused_with_a_sentence(void **state)
{
    struct result result;

    (void)state;
    in_child(play_faults_of_config, &result);
    assert_int_equal(result.failed, 6);
}

static void play_slow(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 3);
    world_open(&w, &config);
    post(&w, 0, 1, 100, 1000 * KB);
    post(&w, 2, 2, 0 + 1, 500 * KB); /* to itself, by its own bandwidth */
    (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS);
    look(&w, 2);
    HLG_ASSERT(hlg_simgrid_set_bandwidth(w.sim, 1, 0, 0, 0.25) == 0);
    HLG_ASSERT(hlg_simgrid_set_bandwidth(w.sim, 2, 0, 0, 0.5) == 0);
    (void)hlg_simgrid_advance_to(w.sim, 3 * HLG_NS_PER_MS);
    HLG_ASSERT(hlg_simgrid_set_bandwidth(w.sim, 1, 0, 0, 1) == 0);
    result->codes[0] = hlg_simgrid_set_bandwidth(w.sim, 1, 0, 0, 0);
    result->codes[1] = hlg_simgrid_set_bandwidth(w.sim, 1, 0, 1, 1);
    result->codes[2] = hlg_simgrid_set_bandwidth(w.sim, 1, 0, 0, INFINITY);
    result->codes[3] = hlg_simgrid_set_bandwidth(w.sim, 3, 0, 0, 1);
    post(&w, 2, 2, 50, 500 * KB);
    run(&w);
}

/* 2 ms of work: 1 ms whole, 2 ms at a quarter, the rest whole again. */
static void a_slow_link_slows_flows_under_way(void **state)
{
    struct result result;

    (void)state;
    in_child(play_slow, &result);
    assert_near(result.arrived[1], 3 * HLG_NS_PER_MS + HLG_NS_PER_MS / 2);
    assert_near(result.arrived[2], 4 * HLG_NS_PER_MS);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(result.codes[i], -HLG_EINVAL);
    }
}

static void play_again(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct result first = {0};

    world_config(&config, 2);
    w.result = &first;
    world_open(&w, &config);
    HLG_ASSERT(hlg_simgrid_set_bandwidth(w.sim, 1, 0, 0, 0.25) == 0);
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, 1, 0, 0, false) == 0);
    run(&w);
    w = (struct world){.result = result};
    world_open(&w, &config);
    post(&w, 0, 1, 100, 500 * KB);
    run(&w);
}

static void the_next_simulation_has_whole_links(void **state)
{
    struct result result;

    (void)state;
    in_child(play_again, &result);
    assert_near(result.arrived[1], HLG_NS_PER_MS);
}

/* What one endpoint reports: pieces done and failed, and whether a peer is down. */
struct report {
    uint32_t done;
    uint32_t failed;
    uint32_t downs;
};

static void gather(struct world *w, uint32_t node, struct report *report)
{
    struct hlg_transport_event events[8];
    int count;

    while ((count = w->nodes[node]->ops->poll(w->nodes[node], events, 8)) > 0) {
        for (int i = 0; i < count; i++) {
            const bool done = events[i].kind == HLG_TRANSPORT_DONE_WRITE;

            report->done += done ? events[i].done.done : 0;
            report->failed += done ? events[i].done.failed : 0;
            report->downs += events[i].kind == HLG_TRANSPORT_PEER_DOWN;
            HLG_ASSERT(!done || (events[i].done.failed > 0) == (events[i].done.status != 0));
        }
    }
}

static uint32_t broken; /* node whose link fails */

static void play_break(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct report report = {0};

    world_config(&config, 3);
    config.latency_ns = 10000;
    config.stall_ns = 5 * HLG_NS_PER_MS;
    world_open(&w, &config);
    post(&w, 0, 1, 1, 1000);        /* there before the link fails */
    post(&w, 0, 1, 100, 1000 * KB); /* under way */
    post(&w, 0, 1, 10, 1000 * KB);  /* queued behind it */
    post(&w, 0, 2, 100, 1000 * KB); /* elsewhere, unless the source's link fails */
    (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS);
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, broken, 0, 0, false) == 0);
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, broken, 0, 0, false) == 0); /* nothing new */
    HLG_ASSERT(hlg_simgrid_check(w.sim) == 0);
    result->codes[0] = (int32_t)offer(&w, 0, 1, 1, 1000);
    (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS + 50000);
    gather(&w, 0, &report);
    result->posted_done = report.done;
    result->failed = report.failed;
    result->codes[1] = (int32_t)offer(&w, 0, 1, 1, 1000); /* after news: refused anew */
    (void)hlg_simgrid_advance_to(w.sim, 6 * HLG_NS_PER_MS + 49999);
    gather(&w, 0, &report);
    result->codes[2] = (int32_t)report.downs;
    (void)hlg_simgrid_advance_to(w.sim, 6 * HLG_NS_PER_MS + 50000);
    gather(&w, 0, &report);
    result->downs = report.downs;
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, broken, 0, 0, true) == 0);
    result->codes[3] = (int32_t)offer(&w, 0, 1, 1, 500 * KB);
    look(&w, 1); /* what was there before */
    w.expected[1] = 1;
    w.posted[0] = 1;
    run(&w);
}

static void a_failed_link_fails_what_is_under_way(void **state)
{
    struct result result;

    (void)state;
    for (broken = 0; broken < 2; broken++) {
        in_child(play_break, &result);
        assert_int_equal(result.codes[0], 0);
        assert_int_equal(result.codes[1], 0);
        assert_int_equal(result.codes[2], 0);
        assert_int_equal(result.downs, 1);
        assert_int_equal(result.posted_done, 1);
        assert_int_equal(result.failed, broken == 0 ? 210 : 110);
        /* Repaired: 500 kB in 10 us, then the latency. */
        assert_int_equal(result.codes[3], 1);
        assert_near(result.arrived[1], 6 * HLG_NS_PER_MS + 50000 + 10000 + 10000);
    }
}

static void play_survivor(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 4);
    world_open(&w, &config);
    post(&w, 0, 3, 100, 1000 * KB);
    post(&w, 1, 3, 100, 1000 * KB);
    w.expected[3] = 100;
    (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS);
    hlg_simgrid_kill(w.sim, 1);
    (void)hlg_simgrid_advance_to(w.sim, 2 * HLG_NS_PER_MS);
    post(&w, 2, 0, 100, 500 * KB); /* elsewhere: nobody shares with it */
    run(&w);
}

/* 1 ms at half the bandwidth, and what is left at the whole: the dead one's share is free at once. */
static void survivors_get_the_share_of_the_dead(void **state)
{
    struct result result;

    (void)state;
    in_child(play_survivor, &result);
    assert_in_range(result.arrived[3], 2500000 - 2, 2500000 + 2);
    assert_near(result.arrived[0], 3 * HLG_NS_PER_MS);
}

static void play_repair(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct report report = {0};
    uint32_t node = 0;

    world_config(&config, 2);
    config.stall_ns = HLG_NS_PER_MS;
    world_open(&w, &config);
    HLG_ASSERT(!hlg_simgrid_ready(w.sim, &node));
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, 1, 0, 0, false) == 0);
    result->codes[0] = (int32_t)offer(&w, 0, 1, 1, 1000);
    (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS / 2);
    HLG_ASSERT(!hlg_simgrid_ready(w.sim, &node));
    HLG_ASSERT(hlg_simgrid_set_link(w.sim, 1, 0, 0, true) == 0);
    result->codes[1] = hlg_simgrid_ready(w.sim, &node) && node == 0;
    (void)hlg_simgrid_advance_to(w.sim, 3 * HLG_NS_PER_MS);
    gather(&w, 0, &report);
    result->downs = report.downs;
    result->codes[2] = hlg_simgrid_set_link(w.sim, 0, 1, 0, true);
    run(&w);
}

/* Whoever was refused hears of the repair, and the old refusal does not count any more. */
static void a_repair_is_news(void **state)
{
    struct result result;

    (void)state;
    in_child(play_repair, &result);
    assert_int_equal(result.codes[0], 0);
    assert_int_equal(result.codes[1], 1);
    assert_int_equal(result.downs, 0);
    assert_int_equal(result.codes[2], -HLG_EINVAL);
}

/* ---- what is ready ---- */

static bool pop(struct world *w, uint32_t node)
{
    uint32_t popped = HLG_NONE;

    return hlg_simgrid_ready(w->sim, &popped) && popped == node;
}

static bool none_ready(struct world *w)
{
    uint32_t popped;

    return !hlg_simgrid_ready(w->sim, &popped);
}

static void play_ready(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_fabric *fabric;
    struct hlg_ready ready;

    world_config(&config, 3);
    config.latency_ns = 1000;
    world_open(&w, &config);
    fabric = hlg_simgrid_fabric(w.sim, 1);
    HLG_ASSERT(none_ready(&w));
    post(&w, 0, 1, 4, 1000);
    post(&w, 2, 1, 4, 1000);
    (void)hlg_simgrid_advance_to(w.sim, 1600);
    HLG_ASSERT(pop(&w, 1)); /* once, for two writes */
    HLG_ASSERT(none_ready(&w));
    HLG_ASSERT(fabric->ready(fabric, &ready) && ready.transport == w.nodes[1]);
    HLG_ASSERT(ready.channel == NULL && !fabric->ready(fabric, &ready));
    look(&w, 1);
    (void)hlg_simgrid_advance_to(w.sim, 5000);
    HLG_ASSERT(pop(&w, 0) && pop(&w, 2) && none_ready(&w)); /* DONE_WRITE, in order */
    look(&w, 0);
    look(&w, 2);
    HLG_ASSERT(!fabric->ready(fabric, &ready)); /* polled: nothing is left to look at */
    post(&w, 0, 1, 4, 1000);
    (void)hlg_simgrid_advance_to(w.sim, 6100);
    look(&w, 1); /* looked at before it was popped */
    HLG_ASSERT(none_ready(&w));
    w.nodes[2]->ops->wake(w.nodes[2]);
    HLG_ASSERT(pop(&w, 2) && none_ready(&w));
    hlg_simgrid_kill(w.sim, 1);
    run(&w);
}

static void a_node_with_news_is_listed_once(void **state)
{
    struct result result;

    (void)state;
    in_child(play_ready, &result);
}

static uint8_t frame[64];

static void play_ready_channel(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;
    struct hlg_ready ready;
    const uint8_t *got = NULL;
    uint32_t bytes = 0;

    memset(frame, 0, sizeof frame);
    frame[0] = sizeof frame - 4;
    world_config(&config, 2);
    config.frames_max = 2;
    world_open(&w, &config);
    HLG_ASSERT(hlg_simgrid_channel_pair(w.sim, 0, 1, &a, &b) == 0);
    HLG_ASSERT(pop(&w, 0) && pop(&w, 1) && none_ready(&w)); /* new */
    HLG_ASSERT(a->ops->receive(a, &got, &bytes) == 0 && b->ops->receive(b, &got, &bytes) == 0);
    HLG_ASSERT(a->ops->send(a, frame, sizeof frame) == 1);
    HLG_ASSERT(a->ops->send(a, frame, sizeof frame) == 1);
    HLG_ASSERT(a->ops->send(a, frame, sizeof frame) == 0);
    HLG_ASSERT(none_ready(&w));
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + 30000);
    HLG_ASSERT(pop(&w, 1) && none_ready(&w));

    struct hlg_fabric *fabric = hlg_simgrid_fabric(w.sim, 1);

    HLG_ASSERT(fabric->ready(fabric, &ready) && ready.channel == b && ready.transport == NULL);
    HLG_ASSERT(b->ops->receive(b, &got, &bytes) == 1);
    HLG_ASSERT(pop(&w, 1)); /* one frame is left */
    HLG_ASSERT(pop(&w, 0)); /* room again */
    HLG_ASSERT(b->ops->receive(b, &got, &bytes) == 1);
    HLG_ASSERT(!fabric->ready(fabric, &ready));
    b->ops->close(b);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + 30000);
    HLG_ASSERT(pop(&w, 0) && none_ready(&w)); /* the end */
    HLG_ASSERT(a->ops->receive(a, &got, &bytes) == -HLG_EPEER);
    fabric = hlg_simgrid_fabric(w.sim, 0);
    HLG_ASSERT(!fabric->ready(fabric, &ready)); /* it was told */
    a->ops->close(a);
    run(&w);
}

static void channels_are_ready_with_frames_room_and_ends(void **state)
{
    struct result result;

    (void)state;
    in_child(play_ready_channel, &result);
}

static void play_ready_reused(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;

    world_config(&config, 4);
    config.channels_max = 1;
    world_open(&w, &config);
    HLG_ASSERT(hlg_simgrid_channel_pair(w.sim, 0, 1, &a, &b) == 0);
    a->ops->close(a); /* while both ends are listed */
    b->ops->close(b);
    while (hlg_simgrid_step(w.sim)) {
    }
    HLG_ASSERT(none_ready(&w));
    HLG_ASSERT(hlg_simgrid_channel_pair(w.sim, 2, 3, &a, &b) == 0);
    HLG_ASSERT(pop(&w, 2) && pop(&w, 3) && none_ready(&w));
    run(&w);
}

/* The rows of a channel's ends go to other nodes later, and must not be listed at the old ones. */
static void a_reused_channel_is_ready_at_its_own_nodes(void **state)
{
    struct result result;

    (void)state;
    in_child(play_ready_reused, &result);
}

static void play_never_polled(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    uint32_t steps = 0;

    world_config(&config, 2);
    config.pieces_max = 64;
    config.cq_depth = 64;
    world_open(&w, &config);
    for (uint32_t i = 0; i < 2; i++) {
        post(&w, 0, 1, 40, 1000);
        (void)hlg_simgrid_advance_to(w.sim, HLG_NS_PER_MS);
        look(&w, 0);
    }
    while (hlg_simgrid_step(w.sim)) {
        HLG_ASSERT(++steps < 100);
    }
    result->codes[0] = (int32_t)w.posted[0];
    w.nodes[0]->ops->free(w.nodes[0]); /* also what is held ends */
    struct hlg_fabric *fabric = hlg_simgrid_fabric(w.sim, 0);
    HLG_ASSERT(fabric->open(fabric, 0, 0, &w.nodes[0]) == 0);
    w.expected[1] = 40;
    run(&w);
}

/* Immediates that wait for a target which never polls keep nothing going. */
static void held_immediates_wait_in_silence(void **state)
{
    struct result result;

    (void)state;
    in_child(play_never_polled, &result);
    assert_int_equal(result.codes[0], 40);
    assert_int_not_equal(result.arrived[1], 0);
}

static void play_starved(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_fabric *fabric;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];

    world_config(&config, 2);
    config.latency_ns = HLG_NS_PER_MS;
    config.domains_max = 1;
    config.writes_max = 2;
    world_open(&w, &config);
    post(&w, 0, 1, 1, 1000);
    post(&w, 0, 1, 1, 1000);
    (void)hlg_simgrid_advance_to(w.sim, 1000); /* both have left */
    w.nodes[0]->ops->free(w.nodes[0]);
    HLG_ASSERT(hlg_simgrid_check(w.sim) == 0);
    fabric = hlg_simgrid_fabric(w.sim, 0);
    HLG_ASSERT(fabric->open(fabric, 0, 0, &w.nodes[0]) == 0);
    HLG_ASSERT(
        w.nodes[0]->ops->mem_register(w.nodes[0], &HLG_MEM_HOST(w.memory, 1u << 20), &w.mem) == 0);
    for (uint32_t node = 0; node < 2; node++) {
        const int bytes = w.nodes[node]->ops->address(w.nodes[node], address, sizeof address);
        HLG_ASSERT(w.nodes[0]->ops->peer_open(w.nodes[0], address, (uint32_t)bytes) == (int)node);
    }
    HLG_ASSERT(none_ready(&w));
    result->codes[0] = (int32_t)offer(&w, 0, 1, 1, 1000);
    (void)hlg_simgrid_advance_to(w.sim, 2 * HLG_NS_PER_MS);
    result->codes[1] = pop(&w, 0);
    w.expected[1] = 0;
    w.posted[0] = 0;
    post(&w, 0, 1, 1, 1000);
    run(&w);
}

/* Writes of an endpoint that is gone take up the room of the one that came after it, for a while. */
static void room_that_lost_writes_leave_is_news(void **state)
{
    struct result result;

    (void)state;
    in_child(play_starved, &result);
    assert_int_equal(result.codes[0], 0);
    assert_int_equal(result.codes[1], 1);
    assert_in_range(result.arrived[1], 3 * HLG_NS_PER_MS, 3 * HLG_NS_PER_MS + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_may_differ),
        cmocka_unit_test(a_bad_node_is_refused_with_a_sentence),
        cmocka_unit_test(a_slow_link_slows_flows_under_way),
        cmocka_unit_test(the_next_simulation_has_whole_links),
        cmocka_unit_test(a_failed_link_fails_what_is_under_way),
        cmocka_unit_test(survivors_get_the_share_of_the_dead),
        cmocka_unit_test(a_repair_is_news),
        cmocka_unit_test(a_node_with_news_is_listed_once),
        cmocka_unit_test(channels_are_ready_with_frames_room_and_ends),
        cmocka_unit_test(a_reused_channel_is_ready_at_its_own_nodes),
        cmocka_unit_test(held_immediates_wait_in_silence),
        cmocka_unit_test(room_that_lost_writes_leave_is_news),
    };

    return cmocka_run_group_tests_name("simgrid-links", tests, NULL, NULL);
}
