/*
 * Faults of nodes and of frames: the decorator does what their lines in halage/transport/fault.h say, to
 * endpoints, clocks and channels, and to nobody else's.
 */
#include "fault_net.h"

static struct net net;

static struct hlg_fault_rule rule_of(uint32_t kind, uint32_t node)
{
    return (struct hlg_fault_rule){.kind = kind,
                                   .node = node,
                                   .peer = HLG_FAULT_ANY,
                                   .lane = HLG_FAULT_ANY,
                                   .rail = HLG_FAULT_ANY};
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void a_killed_node_is_gone_and_can_come_again(void **state)
{
    struct hlg_fault_rule rule = rule_of(HLG_FAULT_KILL, 1);
    struct hlg_transport *t;
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "delay node 1 ppm 500000 span 50us");
    t = net.ends[1].t;
    net_post_all(&net, 1, 0, 1, 20);
    assert_true(hlg_fault_add(net.fault, &rule, NULL, 0) >= 0);
    assert_false(hlg_fault_alive(net.fault, 1));
    w = net_write(&net, 1, 0, 1, 20, 30);
    assert_int_equal(net_post(&net, 1, &w), -HLG_ESTATE);
    net_poll(&net, 1);
    net_expect_done(&net, 1, 1, 0, 0);
    assert_int_equal(net.ends[1].fabric->open(net.ends[1].fabric, 0, 0, &t), -HLG_ESTATE);
    w = net_write(&net, 0, 1, 2, 0, 4);
    for (uint32_t round = 0; round < 300; round++) {
        (void)net_post(&net, 0, &w);
        net_pass(&net, NET_US);
    }
    assert_int_equal(net.ends[0].downs[1], 1);
    assert_int_equal(net.ends[0].done[2], 0);
    assert_false(net_has(&net, 1, 0, 0));
    t = net.ends[1].t;
    assert_int_equal(t->ops->close(t), 0);
    net_poll(&net, 1);
    assert_true(net_is_even(&net, 1));
    t->ops->free(t);
    hlg_fault_restart(net.fault, 1);
    assert_true(hlg_fault_alive(net.fault, 1));
    net_open(&net, 1);
    net_join(&net, 0, 1);
    net_post_all(&net, 0, 1, 3, 4);
    net_run_dry(&net);
    net_expect_done(&net, 0, 3, 4, 0);
    assert_true(net_has(&net, 1, 0, 0));
    net_drop(&net);
}

static void a_frozen_node_does_nothing_and_goes_on(void **state)
{
    struct hlg_transport *t;
    struct hlg_paged_write w;
    hlg_time before;

    (void)state;
    net_make(&net, 1, "freeze node 1 at 10us span 100us");
    t = net.ends[1].t;
    net_pass(&net, 10 * NET_US);
    assert_true(hlg_fault_frozen(net.fault, 1) && !hlg_fault_frozen(net.fault, 0));
    before = t->ops->now(t);
    net_post_all(&net, 0, 1, 1, 4);
    w = net_write(&net, 1, 0, 2, 4, 8);
    assert_int_equal(net_post(&net, 1, &w), 0);
    net_pass(&net, 99 * NET_US);
    assert_int_equal(t->ops->now(t), before);
    assert_int_equal(net.ends[1].fabric->now(net.ends[1].fabric), before);
    assert_int_equal(net.ends[1].pieces, 0);
    assert_true(net_has(&net, 1, 3, 0)); /* its memory is the network's */
    net_pass(&net, NET_US);
    assert_false(hlg_fault_frozen(net.fault, 1));
    assert_int_equal(t->ops->now(t), hlg_loop_now(net.loop));
    assert_int_equal(net.ends[1].pieces, 4);
    assert_int_equal(net_post(&net, 1, &w), 4);
    net_run_dry(&net);
    net_expect_done(&net, 1, 2, 4, 0);
    net_drop(&net);
}

static void a_partition_holds_both_ways_and_then_all_passes_in_order(void **state)
{
    (void)state;
    net_make(&net, 1, "partition node 0 peer 1 span 100us");
    net_post_all(&net, 0, 1, 1, 5);
    net_post_all(&net, 1, 0, 2, 0 + 5);
    net_post_all(&net, 0, 2, 3, 5);
    net_pass(&net, 99 * NET_US);
    net_expect_done(&net, 0, 1, 0, 0);
    net_expect_done(&net, 1, 2, 0, 0);
    net_expect_done(&net, 0, 3, 5, 0);
    assert_int_equal(net.landings, 5);
    assert_int_equal(net_held(&net), 10);
    net_pass(&net, 2 * NET_US);
    net_expect_done(&net, 0, 1, 5, 0);
    net_expect_done(&net, 1, 2, 5, 0);
    for (uint32_t index = 0; index < 5; index++) {
        assert_int_equal(net.landed[5 + index], index);
        assert_int_equal(net.landed[10 + index], index);
    }
    net_drop(&net);
}

/* What can wait is bounded; then the peer is refused, and down after stall_ns. What waits still adds up
 * when the partition heals. */
static void a_partition_fills_up_and_the_peer_is_down(void **state)
{
    struct hlg_paged_write w;
    struct hlg_fault_config config;

    (void)state;
    hlg_fault_config_default(&config);
    config.nodes = NET_NODES;
    config.held_max = 40;
    net_make_of(&net, &config, "partition node 0 peer 1 span forever");
    w = net_write(&net, 0, 1, 1, 0, 30);
    assert_int_equal(net_post(&net, 0, &w), 10); /* a quarter */
    w.piece_begin = 10;
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, NET_STALL_NS - 1);
    assert_int_equal(net.ends[0].downs[1], 0);
    net_pass(&net, 1);
    assert_int_equal(net.ends[0].downs[1], 1);
    net_pass(&net, NET_STALL_NS);
    assert_int_equal(net.ends[0].downs[1], 1);
    net_expect_done(&net, 0, 1, 0, 0);
    hlg_fault_calm(net.fault);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 10, 0);
    net_drop(&net);
}

static void half_open_holds_one_way_only(void **state)
{
    (void)state;
    net_make(&net, 1, "half-open node 0 peer 1 span 100us");
    net_post_all(&net, 0, 1, 1, 5);
    net_post_all(&net, 1, 0, 2, 5);
    net_pass(&net, 99 * NET_US);
    net_expect_done(&net, 0, 1, 0, 0);
    net_expect_done(&net, 1, 2, 5, 0);
    net_pass(&net, 2 * NET_US);
    net_expect_done(&net, 0, 1, 5, 0);
    net_drop(&net);
}

/* 64 bytes at 1 MB/s are 64 us; three of them take 192, of any peer. */
static void a_slow_rail_keeps_to_its_rate(void **state)
{
    (void)state;
    net_make(&net, 1, "slow node 0 rail 0 rate 1MB/s span 1s");
    net_post_all(&net, 0, 1, 1, 2);
    net_post_all(&net, 0, 2, 2, 1);
    net_post_all(&net, 1, 0, 3, 1);
    net_pass(&net, 64 * NET_US);
    assert_int_equal(net.landings, 1); /* that of node 1 */
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 2);
    net_pass(&net, 64 * NET_US);
    assert_int_equal(net.landings, 3);
    net_expect_done(&net, 0, 2, 0, 0);
    net_pass(&net, 64 * NET_US);
    net_expect_done(&net, 0, 1, 2, 0);
    net_expect_done(&net, 0, 2, 1, 0);
    net_drop(&net);
}

static void clocks_stall_and_jump_and_never_run_back(void **state)
{
    struct hlg_transport *t;

    (void)state;
    net_make(&net, 1, "clock-stall node 0 at 10us span 50us\nclock-jump node 1 at 20us span 1ms");
    t = net.ends[0].t;
    net_pass(&net, 10 * NET_US);
    assert_int_equal(t->ops->now(t), 10 * NET_US);
    net_pass(&net, 49 * NET_US);
    assert_int_equal(t->ops->now(t), 10 * NET_US);
    assert_int_equal(net.ends[1].t->ops->now(net.ends[1].t), 1059 * NET_US);
    assert_int_equal(net.ends[2].t->ops->now(net.ends[2].t), 59 * NET_US);
    net_post_all(&net, 0, 1, 1, 3); /* all else goes on */
    net_pass(&net, NET_US);
    net_expect_done(&net, 0, 1, 3, 0);
    assert_int_equal(t->ops->now(t), 60 * NET_US);
    net_drop(&net);
}

/* A node that is opened again over another fabric does not find itself in the past. */
static void a_clock_below_that_begins_anew_is_no_step_back(void **state)
{
    struct hlg_loop_config config;
    struct hlg_loop *other;
    struct hlg_fabric *fabric;
    hlg_time before;

    (void)state;
    net_make(&net, 1, "");
    hlg_loop_config_default(&config);
    assert_int_equal(hlg_loop_create(&config, &other), 0);
    net_pass(&net, 5 * NET_US);
    fabric = net.ends[2].fabric;
    before = fabric->now(fabric);
    assert_int_equal(before, 5 * NET_US);
    net.ends[2].t->ops->free(net.ends[2].t);
    net.ends[2].t = NULL;
    assert_int_equal(hlg_fault_fabric(net.fault, 2, hlg_loop_fabric(other, 0), &fabric), 0);
    assert_int_equal(fabric->now(fabric), before);
    net_drop(&net);
    hlg_loop_destroy(other);
}

static void calm_lets_all_pass_at_once(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1,
             "delay node 0 nth 1 count 3 span 1s\nrefuse node 1 nth 1 span 1s\n"
             "partition node 0 peer 2 span forever\nfreeze node 2 span forever\n"
             "imm-late node 1 ppm 1000000 span 1s");
    net_post_all(&net, 0, 1, 1, 5);
    net_post_all(&net, 0, 2, 2, 5);
    w = net_write(&net, 1, 0, 3, 0, 4);
    assert_int_equal(net_post(&net, 1, &w), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net_held(&net), 3 + 5 + 1);
    hlg_fault_calm(net.fault);
    assert_int_equal(net_post(&net, 1, &w), 4);
    net_pass(&net, 2 * NET_US);
    assert_int_equal(net_held(&net), 0);
    assert_int_equal(hlg_fault_deadline(net.fault), HLG_TIME_NEVER);
    net_expect_done(&net, 0, 1, 5, 0);
    net_expect_done(&net, 0, 2, 5, 0);
    net_expect_done(&net, 1, 3, 4, 0);
    assert_int_equal(net.ends[1].pieces, 5);
    assert_int_equal(net.ends[2].pieces, 5);
    net_drop(&net);
}

/* ---- channels ------------------------------------------------------------------------------- */

static void a_delayed_frame_holds_up_those_behind(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "frame-delay node 0 nth 2 span 100us");
    w = net_wires(&net);
    for (uint8_t number = 1; number <= 3; number++) {
        assert_int_equal(net_send(w.a, number), 1);
        assert_int_equal(net_send(w.b, number), 1);
    }
    assert_int_equal(net_held(&net), 2);
    net_pass(&net, 20 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 1);
    assert_int_equal(net_receive(w.a, w.b), 0);
    assert_int_equal(hlg_fault_deadline(net.fault), 100 * NET_US);
    net_pass(&net, 79 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    (void)hlg_loop_advance_to(net.loop, 100 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0); /* now it leaves */
    assert_int_equal(net_held(&net), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 2);
    assert_int_equal(net_receive(w.a, w.b), 3);
    assert_int_equal(net_hits(&net, HLG_FAULT_FRAME_DELAY), 1);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

static void a_dropped_frame_takes_its_connection_along(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "frame-drop node 0 nth 2");
    w = net_wires(&net);
    assert_int_equal(net_send(w.a, 1), 1);
    assert_int_equal(net_send(w.a, 2), 1);
    assert_int_equal(net_send(w.a, 3), -HLG_EPEER);
    assert_int_equal(net_receive(NULL, w.a), -HLG_EPEER);
    assert_true(w.a->ops->name(w.a)[0] != 0);
    net_pass(&net, 30 * NET_US);
    assert_int_equal(net_receive(NULL, w.b), 1);
    assert_int_equal(net_receive(NULL, w.b), -HLG_EPEER);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

static void channels_feel_what_nodes_do(void **state)
{
    struct hlg_fault_rule kill = rule_of(HLG_FAULT_KILL, 0);
    struct wires w;

    (void)state;
    net_make(&net, 1, "half-open node 0 peer 1 span 50us");
    w = net_wires(&net);
    assert_int_equal(net_send(w.a, 1), 1);
    assert_int_equal(net_send(w.b, 9), 1);
    net_pass(&net, 20 * NET_US);
    assert_int_equal(net_receive(NULL, w.a), 9);
    net_pass(&net, 29 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    (void)hlg_loop_advance_to(net.loop, 50 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 1);
    net_script(&net, "freeze node 1 span 50us");
    assert_int_equal(net_send(w.a, 2), 1);
    assert_int_equal(net_send(w.b, 8), 0);
    net_pass(&net, 49 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    net_pass(&net, NET_US);
    assert_int_equal(net_receive(w.a, w.b), 2);
    assert_true(hlg_fault_add(net.fault, &kill, NULL, 0) >= 0);
    assert_int_equal(net_send(w.a, 3), -HLG_EPEER);
    net_pass(&net, 30 * NET_US);
    assert_int_equal(net_receive(NULL, w.b), -HLG_EPEER);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

/* Also one that was on its way when the partition began. */
static void no_frame_comes_in_through_a_partition(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "partition node 1 peer 0 at 5us span 50us");
    w = net_wires(&net);
    assert_int_equal(net_send(w.a, 1), 1);
    net_pass(&net, 54 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    net_pass(&net, NET_US);
    assert_int_equal(net_receive(w.a, w.b), 1);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

static void frames_that_wait_are_bounded(void **state)
{
    struct wires w;
    uint32_t sent = 0;

    (void)state;
    net_make(&net, 1, "partition node 0 peer 1 span 100us");
    w = net_wires(&net);
    while (net_send(w.a, 1) == 1) {
        sent++;
    }
    assert_int_equal(sent, 64); /* frames_max */
    assert_int_equal(net_send(w.a, 1), 0);
    net_pass(&net, 99 * NET_US);
    assert_int_equal(net_held(&net), 64);
    (void)hlg_loop_advance_to(net.loop, 100 * NET_US);
    assert_int_equal(net_receive(w.a, w.b), 0);
    assert_int_equal(net_held(&net), 0);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_node_is_gone_and_can_come_again),
        cmocka_unit_test(a_frozen_node_does_nothing_and_goes_on),
        cmocka_unit_test(a_partition_holds_both_ways_and_then_all_passes_in_order),
        cmocka_unit_test(a_partition_fills_up_and_the_peer_is_down),
        cmocka_unit_test(half_open_holds_one_way_only),
        cmocka_unit_test(a_slow_rail_keeps_to_its_rate),
        cmocka_unit_test(clocks_stall_and_jump_and_never_run_back),
        cmocka_unit_test(a_clock_below_that_begins_anew_is_no_step_back),
        cmocka_unit_test(calm_lets_all_pass_at_once),
        cmocka_unit_test(a_delayed_frame_holds_up_those_behind),
        cmocka_unit_test(a_dropped_frame_takes_its_connection_along),
        cmocka_unit_test(channels_feel_what_nodes_do),
        cmocka_unit_test(no_frame_comes_in_through_a_partition),
        cmocka_unit_test(frames_that_wait_are_bounded),
    };

    return cmocka_run_group_tests_name("fault-node", tests, NULL, NULL);
}
