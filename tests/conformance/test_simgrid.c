/*
 * What the simgrid transport's times mean.
 */
#include "simgrid_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void play_one_flow(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 2);
    world_open(&w, &config);
    post(&w, 0, 1, 50000, 1000000);
    run(&w);
}

/* 50 GB at 50 GB/s: 1 s, to a part in 10^9. */
static void a_flow_takes_bytes_over_bandwidth(void **state)
{
    struct result result;

    (void)state;
    in_child(play_one_flow, &result);
    assert_near(result.arrived[1], HLG_NS_PER_S);
    assert_int_equal(result.failed, 0);
}

static void play_latency(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 2);
    config.latency_ns = 2500;
    world_open(&w, &config);
    post(&w, 0, 1, 10, 500000);
    post(&w, 0, 1, 10, 500000);
    run(&w);
}

/* Two writes of 100 us in one queue: latency comes on top once, and once more on the way back. */
static void latency_is_added_after_the_queue(void **state)
{
    struct result result;

    (void)state;
    in_child(play_latency, &result);
    assert_near(result.arrived[1], 202500);
    assert_near(result.done[0], 205000);
}

static void play_operations(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 4);
    config.op_ps = 12345;
    world_open(&w, &config);
    for (uint32_t i = 0; i < 10; i++) {
        post(&w, 0, 1, 99, 8);
    }
    post(&w, 2, 3, 100, 500000);
    run(&w);
}

/* 990 tiny pieces of 12.345 ns take 12221.55 ns; 1 ms of bytes hides 1.2 us of operations: the
 * later of the two, not the sum. */
static void small_pieces_are_bound_by_the_operation_clock(void **state)
{
    struct result result;

    (void)state;
    in_child(play_operations, &result);
    assert_near(result.arrived[1], 12221);
    assert_near(result.arrived[3], HLG_NS_PER_MS);
}

static void play_target_operations(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 5);
    config.op_ps = 10000;
    world_open(&w, &config);
    for (uint32_t source = 0; source < 4; source++) {
        post(&w, source, 4, 250, 8);
    }
    run(&w);
}

/* Four sources write 250 pieces each to one target: its own clock takes 1000 operations. */
static void the_operation_clock_of_the_target_counts(void **state)
{
    struct result result;

    (void)state;
    in_child(play_target_operations, &result);
    assert_near(result.arrived[4], 10000);
    assert_near(result.done[0], 2500);
}

static void play_incast(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 10);
    world_open(&w, &config);
    for (uint32_t source = 0; source < 8; source++) {
        post(&w, source, 8, 1000, 100000);
        post(&w, source, 9, 1000, 100000);
    }
    run(&w);
}

/* 8 to 2: each target's link is shared by eight, so that all end together at 8 B / W. */
static void incast_shares_fairly(void **state)
{
    struct result result;

    (void)state;
    in_child(play_incast, &result);
    for (uint32_t source = 0; source < 8; source++) {
        assert_near(result.done[source], 16 * HLG_NS_PER_MS);
    }
    assert_near(result.arrived[8], 16 * HLG_NS_PER_MS);
    assert_near(result.arrived[9], 16 * HLG_NS_PER_MS);
}

static void play_nics(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_simgrid_nic_stats stats[3];
    int code = 0;

    world_config(&config, 3);
    world_open(&w, &config);
    post(&w, 0, 2, 1000, 50000);
    post(&w, 1, 2, 500, 50000);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + HLG_NS_PER_S);
    for (uint32_t node = 0; node < 3; node++) {
        code |= hlg_simgrid_nic_stats(w.sim, node, 0, 0, &stats[node]);
    }
    result->codes[0] = hlg_simgrid_nic_stats(w.sim, 3, 0, 0, &stats[0]);
    run(&w);
    result->failed += code != 0;
    for (uint32_t node = 0; node < 3; node++) {
        const uint32_t side = node == 2 ? 1 : 0;
        result->done[node] = stats[node].busy_ns[side];
        result->arrived[node] = stats[node].bytes[side];
        result->failed += stats[node].bytes[1 - side] != 0 || stats[node].flows != (node < 2);
    }
}

/* Two share a target: the shorter one is done after 1 ms, the longer one alone from then on. */
static void nics_count_what_they_move(void **state)
{
    struct result result;

    (void)state;
    in_child(play_nics, &result);
    assert_int_equal(result.codes[0], -HLG_EINVAL);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.arrived[0], 50000000);
    assert_int_equal(result.arrived[1], 25000000);
    assert_int_equal(result.arrived[2], 75000000);
    assert_near(result.done[0], 1500000);
    assert_near(result.done[1], HLG_NS_PER_MS);
    assert_near(result.done[2], 1500000);
}

static void play_groups(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;

    world_config(&config, 8);
    config.group_nodes = 4;
    config.group_bandwidth = NIC_BANDWIDTH;
    world_open(&w, &config);
    post(&w, 0, 4, 100, 500000);
    post(&w, 1, 5, 100, 500000);
    post(&w, 2, 3, 100, 500000);
    run(&w);
}

/* Two flows share the uplink between groups; one within a group does not feel it. */
static void groups_share_their_uplink(void **state)
{
    struct result result;

    (void)state;
    in_child(play_groups, &result);
    assert_near(result.arrived[4], 2 * HLG_NS_PER_MS);
    assert_near(result.arrived[5], 2 * HLG_NS_PER_MS);
    assert_near(result.arrived[3], HLG_NS_PER_MS);
}

static uint64_t storm_seed;
static uint32_t storm_group_nodes = 4;
static bool storm_engine_always;
static bool storm_deaths = true;

/* A NIC is slowed down, and mended, with what is under way. */
static void storm_slow(struct world *w, uint32_t i)
{
    const double factor = i % 40 == 0 ? 0.3 : 1;

    if (i % 20 == 0) {
        HLG_ASSERT(hlg_simgrid_set_bandwidth(w->sim, i / 40 % 12, 0, 0, factor) == 0);
    }
}

static void play_storm(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    uint64_t random = storm_seed;

    world_config(&config, 12);
    config.group_nodes = storm_group_nodes;
    config.engine_always = storm_engine_always;
    config.op_ps = 7001;
    config.latency_ns = 2500;
    world_open(&w, &config);
    for (uint32_t i = 0; i < 400; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const uint32_t source = (uint32_t)(random >> 33) % 12;
        const uint32_t target = (uint32_t)(random >> 40) % 12; /* itself, too */
        if (hlg_simgrid_alive(w.sim, source) && hlg_simgrid_alive(w.sim, target)) {
            post(&w, source, target, 1 + (uint32_t)(random >> 50) % 60,
                 1 + (uint32_t)(random >> 35) % 70000);
        }
        (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + (random >> 45) % 5000);
        for (uint32_t node = 0; node < 12; node++) {
            look(&w, node);
        }
        if (storm_deaths && (i == 200 || i == 210)) {
            hlg_simgrid_kill(w.sim, i % 12);
        }
        storm_slow(&w, i);
        HLG_ASSERT(hlg_simgrid_check(w.sim) == 0);
    }
    run(&w);
    for (uint32_t node = 0; node < 12; node++) {
        HLG_ASSERT(w.posted[node] == 0 || node == 200 % 12 || node == 210 % 12);
    }
}

/* Everything at once, with two deaths: sums hold, equal seeds give equal traces, others do not. */
static void equal_calls_give_equal_traces(void **state)
{
    struct result a;
    struct result b;
    struct result c;

    (void)state;
    storm_seed = 1;
    in_child(play_storm, &a);
    in_child(play_storm, &b);
    assert_memory_equal(&a, &b, sizeof a);
    storm_seed = 2;
    in_child(play_storm, &c);
    assert_true(a.hash != c.hash);
    assert_true(a.failed > 0);
}

static void assert_times_near(const hlg_time a[NODES_MAX], const hlg_time b[NODES_MAX],
                              hlg_time least)
{
    for (uint32_t node = 0; node < 12; node++) {
        const hlg_time off = a[node] > b[node] ? a[node] - b[node] : b[node] - a[node];

        assert_true(a[node] > least);
        assert_true(
            off <=
            5); /* SimGrid takes what ends within 1 ns for one: each of a queue may differ so */
    }
}

/* Flows that share with none are not SimGrid's, until another one comes, or a NIC slows down. Nobody can tell:
 * all is there when SimGrid alone says so. Deaths are drawn as well, for the sums. */
static void flows_alone_take_the_time_that_simgrid_says(void **state)
{
    struct result own;
    struct result engine;

    (void)state;
    storm_group_nodes = 0;
    for (storm_seed = 1; storm_seed <= 20; storm_seed++) {
        storm_deaths = false;
        in_child(play_storm, &own);
        storm_engine_always = true;
        in_child(play_storm, &engine);
        storm_engine_always = false;
        assert_true(own.failed == 0 && engine.failed == 0);
        assert_times_near(own.arrived, engine.arrived, 100000);
        assert_times_near(own.done, engine.done, 100000);
        storm_deaths = true;
        in_child(play_storm, &own);
        assert_true(own.failed > 0);
    }
    storm_group_nodes = 4;
}

static void play_held(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_transport_event event;

    world_config(&config, 3);
    config.pieces_max = 64;
    config.cq_depth = 64;
    world_open(&w, &config);
    post(&w, 0, 2, 40, 1000);
    post(&w, 1, 2, 40, 1000);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + HLG_NS_PER_MS);
    look(&w, 0);
    look(&w, 1);
    result->codes[0] = (int32_t)w.posted[0];
    result->codes[1] = (int32_t)w.posted[1];
    HLG_ASSERT(w.nodes[2]->ops->poll(w.nodes[2], &event, 1) == 1);
    HLG_ASSERT(event.kind == HLG_TRANSPORT_IMM && event.imm.immediates == 40);
    w.expected[2] -= event.imm.pieces;
    HLG_ASSERT(w.nodes[2]->ops->poll(w.nodes[2], &event, 1) == 0);
    run(&w);
}

/* Two times 40 immediates for a queue of 64: those of one write wait until the target polls, and
 * its DONE_WRITE with them. */
static void a_full_queue_holds_immediates_back(void **state)
{
    struct result result;

    (void)state;
    in_child(play_held, &result);
    assert_int_equal(result.codes[0] + result.codes[1], 40);
    assert_int_equal(result.failed, 0);
    assert_true(result.arrived[2] >= HLG_NS_PER_MS);
    assert_true(result.done[0] > 0 && result.done[1] > 0);
}

static void play_silent(struct result *result)
{
    struct world w = {.result = result};
    struct hlg_simgrid_config config;
    struct hlg_transport_event event;

    world_config(&config, 2);
    config.pieces_max = 64;
    config.cq_depth = 64;
    config.peer_pieces_max = 40;
    config.stall_ns = HLG_NS_PER_MS;
    world_open(&w, &config);
    post(&w, 0, 1, 40, 1000);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + HLG_NS_PER_MS);
    look(&w, 0);
    post(&w, 0, 1, 40, 1000); /* held: the target has not polled */
    result->codes[0] = (int32_t)offer(&w, 0, 1, 1, 1000);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + HLG_NS_PER_MS - 1);
    result->codes[1] = w.nodes[0]->ops->poll(w.nodes[0], &event, 1);
    (void)hlg_simgrid_advance_to(w.sim, hlg_simgrid_now(w.sim) + 1);
    result->codes[2] = w.nodes[0]->ops->poll(w.nodes[0], &event, 1);
    HLG_ASSERT(event.kind == HLG_TRANSPORT_PEER_DOWN && event.peer == 1);
    run(&w);
}

/* A full window is a refusal, and after stall_ns, not before, the peer is down; what it took still
 * completes when it polls at last. */
static void a_peer_that_never_polls_goes_down(void **state)
{
    struct result result;

    (void)state;
    in_child(play_silent, &result);
    assert_int_equal(result.codes[0], 0);
    assert_int_equal(result.codes[1], 0);
    assert_int_equal(result.codes[2], 1);
    assert_int_equal(result.failed, 0);
    assert_true(result.arrived[1] > 0 && result.done[0] > 0);
}

static void play_second(struct result *result)
{
    struct hlg_simgrid_config config;
    struct hlg_simgrid *first = NULL;
    struct hlg_simgrid *second = NULL;
    char error[64] = "";

    hlg_simgrid_config_default(&config);
    config.nodes = 0;
    result->codes[0] = hlg_simgrid_create(&config, &first, error, sizeof error);
    config.nodes = 2;
    result->codes[1] = hlg_simgrid_create(&config, &first, error, sizeof error);
    result->codes[2] = hlg_simgrid_create(&config, &second, error, sizeof error);
    HLG_ASSERT(strlen(error) > 0);
    hlg_simgrid_destroy(first);
    config.nodes = 3;
    result->codes[3] = hlg_simgrid_create(&config, &second, error, sizeof error);
    config.nodes = 2;
    HLG_ASSERT(hlg_simgrid_create(&config, &second, error, sizeof error) == 0);
    hlg_simgrid_destroy(second);
}

static void a_process_has_one_engine(void **state)
{
    struct result result;

    (void)state;
    in_child(play_second, &result);
    assert_int_equal(result.codes[0], -HLG_EINVAL);
    assert_int_equal(result.codes[1], 0);
    assert_int_equal(result.codes[2], -HLG_EIO);
    assert_int_equal(result.codes[3], -HLG_EIO);
}

/* SimGrid's own objects go when the process exits, and flows that were cancelled refer to them. */
static void a_process_may_exit_after_cancelled_flows(void **state)
{
    int status = 0;

    (void)state;
    (void)fflush(NULL); /* the child exits in order, and prints nothing twice */
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct result result = {0};
        struct world w = {.result = &result};
        struct hlg_simgrid_config config;
        world_config(&config, 3);
        world_open(&w, &config);
        post(&w, 0, 2, 50000, 1000000);
        post(&w, 1, 2, 50, 1000);
        while (w.expected[2] > 50000) {
            HLG_ASSERT(hlg_simgrid_step(w.sim));
            look(&w, 2);
        }
        hlg_simgrid_destroy(w.sim);
        free(w.memory);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_takes_bytes_over_bandwidth),
        cmocka_unit_test(latency_is_added_after_the_queue),
        cmocka_unit_test(small_pieces_are_bound_by_the_operation_clock),
        cmocka_unit_test(the_operation_clock_of_the_target_counts),
        cmocka_unit_test(incast_shares_fairly),
        cmocka_unit_test(nics_count_what_they_move),
        cmocka_unit_test(groups_share_their_uplink),
        cmocka_unit_test(equal_calls_give_equal_traces),
        cmocka_unit_test(flows_alone_take_the_time_that_simgrid_says),
        cmocka_unit_test(a_full_queue_holds_immediates_back),
        cmocka_unit_test(a_peer_that_never_polls_goes_down),
        cmocka_unit_test(a_process_has_one_engine),
        cmocka_unit_test(a_process_may_exit_after_cancelled_flows),
    };

    return cmocka_run_group_tests_name("simgrid", tests, NULL, NULL);
}
