/*
 * Each fault of the decorator does what its line in halage/transport/fault.h says, and nothing else:
 * looked at are the bytes, the order in which they land, the immediates, the completions and their sums.
 */
#include "fault_net.h"

static struct net net;

/* ---- pieces --------------------------------------------------------------------------------- */

static void without_rules_all_passes(void **state)
{
    (void)state;
    net_make(&net, 1, "# nothing\n");
    net_post_all(&net, 0, 1, 3, 40);
    net_run_dry(&net);
    net_expect_done(&net, 0, 3, 40, 0);
    assert_int_equal(net.ends[1].pieces, 40);
    assert_true(net_has(&net, 1, 0, 0) && net_has(&net, 1, 39, 0) && !net_has(&net, 1, 40, 0));
    for (uint32_t kind = 1; kind < HLG_FAULT_KINDS; kind++) {
        assert_int_equal(net_hits(&net, kind), 0);
    }
    net_drop(&net);
}

static void a_delayed_piece_lands_its_span_later(void **state)
{
    (void)state;
    net_make(&net, 1, "delay node 0 nth 2 span 50us");
    net_post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 50 * NET_US);
    net_expect_done(&net, 0, 1, 2, 0);
    assert_int_equal(net.ends[1].pieces, 2);
    assert_true(net_has(&net, 1, 0, 0) && !net_has(&net, 1, 1, 0) && net_has(&net, 1, 2, 0));
    net_pass(&net, NET_US);
    net_expect_done(&net, 0, 1, 3, 0);
    assert_true(net_has(&net, 1, 1, 0));
    assert_int_equal(net.ends[1].pieces, 3);
    assert_int_equal(net_hits(&net, HLG_FAULT_DELAY), 1);
    net_drop(&net);
}

static void a_reordered_piece_goes_behind_the_next_ones(void **state)
{
    (void)state;
    net_make(&net, 1, "reorder node 0 nth 1");
    net_post_all(&net, 0, 1, 1, 3);
    net_run_dry(&net);
    assert_int_equal(net.landings, 3);
    assert_int_equal(net.landed[0], 1);
    assert_int_equal(net.landed[1], 2);
    assert_int_equal(net.landed[2], 0);
    net_expect_done(&net, 0, 1, 3, 0);
    net_drop(&net);
    /* the last of its write: behind the first one of the next */
    net_make(&net, 1, "reorder node 0 nth 2 span 20us");
    struct hlg_paged_write w = net_write(&net, 0, 1, 1, 0, 2);
    assert_int_equal(net_post(&net, 0, &w), 2);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net.landings, 1);
    w = net_write(&net, 0, 1, 2, 2, 3);
    assert_int_equal(net_post(&net, 0, &w), 1);
    net_pass(&net, 2 * NET_US);
    assert_int_equal(net.landings, 3);
    assert_int_equal(net.landed[1], 2);
    assert_int_equal(net.landed[2], 1);
    net_drop(&net);
    /* nothing comes: after its span */
    net_make(&net, 1, "reorder node 0 nth 1 span 20us");
    net_post_all(&net, 0, 1, 1, 1);
    net_pass(&net, 20 * NET_US);
    assert_int_equal(net.landings, 0);
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 1);
    net_drop(&net);
}

static void a_duplicated_piece_lands_twice_and_counts_once(void **state)
{
    (void)state;
    net_make(&net, 1, "duplicate node 0 nth 2");
    net_post_all(&net, 0, 1, 1, 3);
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 3); /* 0, the shadow of 1, 2 */
    assert_int_equal(net.ends[1].pieces, 2);
    net_run_dry(&net);
    assert_int_equal(net.landings, 4);
    assert_int_equal(net.landed[3], 1);
    assert_int_equal(net.ends[1].pieces, 3);
    assert_int_equal(net.ends[1].immediates, 3);
    net_expect_done(&net, 0, 1, 3, 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_DUPLICATE), 1);
    net_drop(&net);
}

/* Who is not decorated would see the shadow's immediate. */
static void nothing_is_duplicated_towards_a_stranger(void **state)
{
    struct hlg_fabric *fabric;
    struct hlg_transport *stranger;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    hlg_mem mem;

    (void)state;
    net_make(&net, 1, "duplicate ppm 1000000");
    fabric = hlg_loop_fabric(net.loop, 2);
    assert_int_equal(fabric->open(fabric, 0, 0, &stranger), 0);
    assert_int_equal(
        stranger->ops->mem_register(
            stranger, &HLG_MEM_HOST(net.ends[2].memory, sizeof(net.ends[2].memory)), &mem),
        0);
    assert_int_equal(stranger->ops->mem_export(stranger, mem, &net.ends[2].exported), 0);
    const int bytes = stranger->ops->address(stranger, address, sizeof(address));
    const int peer = net.ends[0].t->ops->peer_open(net.ends[0].t, address, (uint32_t)bytes);
    assert_true(peer >= 0);
    net.ends[0].peers[2] = (uint32_t)peer;
    net_post_all(&net, 0, 2, 1, 3);
    net_run_dry(&net);
    assert_int_equal(net.landings, 3);
    net_expect_done(&net, 0, 1, 3, 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_DUPLICATE), 0);
    stranger->ops->free(stranger);
    net_drop(&net);
}

static void a_piece_that_fails_before_never_lands(void **state)
{
    (void)state;
    net_make(&net, 1, "fail-before node 0 nth 3");
    net_post_all(&net, 0, 1, 1, 4);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 3, 1);
    assert_int_equal(net.ends[0].status[1], -HLG_EIO);
    assert_int_equal(net.ends[1].pieces, 3);
    assert_true(net_has(&net, 1, 1, 0) && !net_has(&net, 1, 2, 0) && net_has(&net, 1, 3, 0));
    net_drop(&net);
}

static void a_piece_that_fails_after_has_landed(void **state)
{
    (void)state;
    net_make(&net, 1, "fail-after node 0 nth 3");
    net_post_all(&net, 0, 1, 1, 4);
    (void)hlg_loop_advance_to(net.loop, NET_US);
    net_poll(&net, 0);
    assert_int_equal(net.landings, 4);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 3, 1);
    assert_int_equal(net.ends[0].status[1], -HLG_EIO);
    assert_int_equal(net.ends[1].pieces, 4);
    assert_true(net_has(&net, 1, 2, 0));
    net_drop(&net);
}

/* The page is written anew as soon as the failure is known: what lands is what was posted. */
static void a_late_piece_lands_after_it_failed_with_its_old_bytes(void **state)
{
    uint8_t old[NET_PAGE_BYTES];

    (void)state;
    net_make(&net, 1, "fail-late node 0 nth 2 span 30us");
    memcpy(old, net.ends[0].memory + NET_PAGE_BYTES, sizeof(old));
    net_post_all(&net, 0, 1, 1, 3);
    net_poll(&net, 0);
    net_expect_done(&net, 0, 1, 0, 1);
    memset(net.ends[0].memory + NET_PAGE_BYTES, 0xcc, NET_PAGE_BYTES);
    net_pass(&net, 30 * NET_US);
    net_expect_done(&net, 0, 1, 2, 1);
    assert_int_equal(net.landings, 2);
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 3);
    assert_int_equal(net.landed[2], 1);
    assert_true(net.copies[2] && !net.copies[0]);
    assert_memory_equal(net.ends[1].memory + NET_PAGE_BYTES, old, sizeof(old));
    assert_int_equal(net.ends[1].pieces, 3);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 2, 1);
    net_drop(&net);
}

static void late_pieces_have_as_much_room_as_was_configured(void **state)
{
    struct hlg_fault_config config;

    (void)state;
    hlg_fault_config_default(&config);
    config.nodes = NET_NODES;
    config.late_bytes_max = NET_PAGE_BYTES - 1;
    net_make_of(&net, &config, "fail-late ppm 1000000 span 30us");
    net_post_all(&net, 0, 1, 1, 3);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 3, 0);
    net_drop(&net);
    net_make(&net, 1, "fail-late ppm 1000000 span 30us");
    net_post_all(&net, 0, 1, 1, 20);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 4, 16); /* copies for 16 */
    assert_int_equal(net.ends[1].pieces, 20);
    net_drop(&net);
}

/* ---- calls of write ------------------------------------------------------------------------- */

static void a_refused_peer_takes_nothing_for_a_while_and_others_do(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "refuse node 0 peer 1 nth 2 span 50us");
    net_post_all(&net, 0, 1, 1, 2);
    w = net_write(&net, 0, 1, 1, 2, 4);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_post_all(&net, 0, 2, 2, 4);
    net_pass(&net, 49 * NET_US);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, NET_US);
    assert_int_equal(net_post(&net, 0, &w), 2);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 4, 0);
    net_expect_done(&net, 0, 2, 4, 0);
    assert_int_equal(net.ends[0].downs[1], 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_REFUSE), 1);
    net_drop(&net);
}

static void a_peer_refused_for_too_long_is_down_once(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "refuse node 0 peer 1 nth 1 span 500us");
    w = net_write(&net, 0, 1, 1, 0, 4);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, NET_STALL_NS - 1);
    assert_int_equal(net.ends[0].downs[1], 0);
    net_pass(&net, 1);
    assert_int_equal(net.ends[0].downs[1], 1);
    net_pass(&net, NET_STALL_NS);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_run_dry(&net);
    assert_int_equal(net.ends[0].downs[1], 1);
    assert_int_equal(net.ends[0].downs[2], 0);
    net_drop(&net);
}

/* Two short refusals far apart are no long one. */
static void refusals_far_apart_do_not_add_up(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "refuse node 0 peer 1 nth 1 count 2 span 10us");
    w = net_write(&net, 0, 1, 1, 0, 4);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, 2 * NET_STALL_NS);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net_post(&net, 0, &w), 4);
    net_run_dry(&net);
    assert_int_equal(net.ends[0].downs[1], 0);
    net_drop(&net);
}

/* What was taken between two refusals parts them. */
static void a_write_that_is_taken_ends_a_refusal(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1,
             "refuse node 0 peer 1 nth 1 span 150us\nrefuse node 0 peer 1 nth 3 span 150us");
    w = net_write(&net, 0, 1, 1, 0, 4);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, 150 * NET_US);
    assert_int_equal(net_post(&net, 0, &w), 4);
    w = net_write(&net, 0, 1, 1, 4, 8);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, 150 * NET_US);
    assert_int_equal(net_hits(&net, HLG_FAULT_REFUSE), 2);
    assert_int_equal(net_post(&net, 0, &w), 4);
    net_run_dry(&net);
    assert_int_equal(net.ends[0].downs[1], 0);
    net_drop(&net);
}

static void a_partial_write_takes_a_prefix(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "partial ppm 1000000 count 3");
    w = net_write(&net, 0, 1, 1, 0, 50);
    for (uint32_t call = 0; call < 3; call++) {
        const int64_t taken = net_post(&net, 0, &w);

        assert_in_range(taken, 1, w.piece_limit - w.piece_begin - 1);
        w.piece_begin += (uint32_t)taken;
    }
    assert_int_equal(net_post(&net, 0, &w), w.piece_limit - w.piece_begin);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 50, 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_PARTIAL), 3);
    net_drop(&net);
}

/* ---- immediates ----------------------------------------------------------------------------- */

static void a_late_immediate_is_polled_its_span_later(void **state)
{
    (void)state;
    net_make(&net, 1, "imm-late node 1 nth 1 span 40us");
    net_post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 40 * NET_US);
    net_expect_done(&net, 0, 1, 3, 0);
    assert_true(net_has(&net, 1, 2, 0));
    assert_int_equal(net.ends[1].pieces, 0);
    assert_int_equal(net_held(&net), 1);
    net_pass(&net, NET_US);
    assert_int_equal(net.ends[1].pieces, 3);
    assert_int_equal(net.ends[1].immediates, 3);
    net_drop(&net);
}

static void a_stale_immediate_is_of_the_generation_before(void **state)
{
    (void)state;
    net_make(&net, 1, "imm-stale node 1 nth 1 count 2");
    for (hlg_op_id op = 1; op <= 4; op++) {
        net_post_all(&net, 0, 1, op, 3);
        net_run_dry(&net);
    }
    assert_int_equal(net.ends[1].generations[1], 4); /* with 2 */
    assert_int_equal(net.ends[1].generations[2], 4); /* with 3 */
    assert_int_equal(net.ends[1].generations[3], 3);
    assert_int_equal(net.ends[1].generations[4], 3);
    assert_int_equal(net_hits(&net, HLG_FAULT_IMM_STALE), 2);
    assert_int_equal(net.landings, 12);
    net_drop(&net);
}

/* ---- below refuses what was taken here ------------------------------------------------------- */

static void let_loop_refuse(hlg_time span)
{
    const struct hlg_loop_faults faults = {.refuse_ppm = span != 0 ? 1000000 : 0,
                                           .refuse_ns_max = span};

    hlg_loop_faults(net.loop, &faults);
}

/* What waits goes first, in order; what is new is refused until then, for that peer alone. */
static void what_below_refuses_waits_in_order(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "delay node 0 peer 1 ppm 1000000 span 10us");
    net_post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 9 * NET_US);
    let_loop_refuse(20 * NET_US);
    net_pass(&net, 2 * NET_US);
    w = net_write(&net, 0, 1, 1, 3, 6);
    assert_int_equal(net_post(&net, 0, &w), 0);
    assert_int_equal(net_held(&net), 3);
    let_loop_refuse(0);
    net_post_all(&net, 0, 2, 2, 3);
    net_pass(&net, 100 * NET_US);
    assert_int_equal(net_held(&net), 0);
    assert_int_equal(net_post(&net, 0, &w), 3);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 6, 0);
    net_expect_done(&net, 0, 2, 3, 0);
    assert_int_equal(net.landings, 9);
    for (uint32_t index = 0; index < 3; index++) {
        assert_int_equal(net.landed[3 + index], index);
        assert_int_equal(net.landed[6 + index], 3 + index);
    }
    net_drop(&net);
}

/* Pieces that fail, as bits, after `refusals` offers that below refused. */
static uint64_t failures_after(uint32_t refusals)
{
    struct hlg_paged_write w;
    uint64_t bits = 0;

    net_make(&net, 5, "fail-after node 0 ppm 300000\n");
    w = net_write(&net, 0, 1, 0, 0, 40);
    let_loop_refuse(NET_US);
    for (uint32_t offer = 0; offer < refusals; offer++) {
        assert_int_equal(net_post(&net, 0, &w), 0);
        net_pass(&net, NET_US);
    }
    let_loop_refuse(0);
    net_pass(&net, 3 * NET_US);
    for (uint32_t piece = 0; piece < 40; piece++) {
        w = net_write(&net, 0, 1, piece, piece, piece + 1);
        assert_int_equal(net_post(&net, 0, &w), 1);
        net_pass(&net, 2 * NET_US);
        bits |= (uint64_t)(net.ends[0].failed[piece] != 0) << piece;
    }
    net_drop(&net);
    return bits;
}

static void what_was_refused_was_no_occasion(void **state)
{
    const uint64_t wanted = failures_after(0);

    (void)state;
    assert_true(wanted != 0 && wanted != (1ull << 40) - 1);
    assert_int_equal(failures_after(1), wanted);
    assert_int_equal(failures_after(7), wanted);
}

/* Ten completions that the caller must not see: a poll that says 0 has been through all of them. */
static void a_poll_of_0_has_seen_all(void **state)
{
    struct hlg_transport_event events[3];
    struct hlg_transport *t;

    (void)state;
    net_make(&net, 1, "duplicate node 0 ppm 1000000");
    t = net.ends[0].t;
    net_post_all(&net, 0, 1, 1, 10);
    (void)hlg_loop_advance_to(net.loop, NET_US);
    assert_int_equal(t->ops->poll(t, events, 3), 0);
    assert_int_equal(net_held(&net), 0);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 10, 0);
    assert_int_equal(net.landings, 20);
    net_drop(&net);
}

/* ---- the deaths of peers, peers and endpoints that are closed -------------------------------- */

/* Pieces that wait for a peer which the one below gives up fail, each once. */
static void what_waits_for_a_dead_peer_fails(void **state)
{
    (void)state;
    net_make(&net, 1, "delay node 0 ppm 1000000 span 50us");
    net_post_all(&net, 0, 1, 1, 10);
    net.ends[1].t->ops->free(net.ends[1].t);
    net.ends[1].t = NULL;
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 0, 10);
    assert_true(net.ends[0].downs[1] <= 1);
    assert_int_equal(net_held(&net), 0);
    net_drop(&net);
}

static void pieces_that_wait_when_their_peer_is_closed_still_land(void **state)
{
    struct hlg_transport *t;
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "delay node 0 ppm 1000000 span 50us");
    t = net.ends[0].t;
    net_post_all(&net, 0, 1, 1, 10);
    w = net_write(&net, 0, 1, 1, 10, 12);
    assert_int_equal(t->ops->peer_close(t, w.peer), 0);
    assert_true(net_post(&net, 0, &w) < 0);
    assert_true(t->ops->peer_close(t, w.peer) < 0);
    net_run_dry(&net);
    net_expect_done(&net, 0, 1, 10, 0);
    assert_int_equal(net.ends[1].pieces, 10);
    net_join(&net, 0, 1);
    assert_int_equal(net.ends[0].peers[1], w.peer);
    net_drop(&net);
}

static void close_cancels_what_waits(void **state)
{
    struct hlg_transport *t;

    (void)state;
    net_make(&net, 1,
             "delay node 0 ppm 500000 span 50us\nduplicate node 0 ppm 300000\n"
             "fail-late node 0 ppm 100000 span 9us");
    t = net.ends[0].t;
    net_post_all(&net, 0, 1, 1, 60);
    net_pass(&net, NET_US);
    assert_int_equal(t->ops->close(t), 0);
    assert_int_equal(t->ops->close(t), 0);
    net_poll(&net, 0);
    assert_true(net_is_even(&net, 0));
    assert_true(net.ends[0].failed[1] > 20);
    assert_int_equal(net_held(&net), 0);
    net_run_dry(&net);
    assert_true(net_is_even(&net, 0));
    net_drop(&net);
}

static void a_close_that_fails_lets_writes_land(void **state)
{
    struct hlg_transport *t;
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "close-fails node 1 span 50us");
    t = net.ends[1].t;
    struct hlg_paged_write own = net_write(&net, 1, 0, 7, 20, 23);

    assert_int_equal(net_post(&net, 1, &own), 3);
    assert_int_equal(t->ops->close(t), -HLG_EIO);
    assert_int_equal(t->ops->close(t), -HLG_EIO);
    net_poll(&net, 1);
    net_expect_done(&net, 1, 7, 0, 3);
    net_post_all(&net, 0, 1, 1, 1);
    net_pass(&net, 2 * NET_US);
    assert_true(net_has(&net, 1, 0, 0));
    assert_int_equal(net.ends[1].pieces, 0); /* nobody is told */
    t->ops->free(t);
    net.ends[1].t = NULL;
    w = net_write(&net, 0, 1, 1, 1, 2);
    assert_int_equal(net_post(&net, 0, &w), 1);
    net_pass(&net, 2 * NET_US);
    assert_true(net_has(&net, 1, 1, 0));
    net_pass(&net, 50 * NET_US); /* and now it is closed */
    w = net_write(&net, 0, 1, 1, 2, 3);
    (void)net_post(&net, 0, &w);
    net_run_dry(&net);
    assert_false(net_has(&net, 1, 2, 0));
    assert_int_equal(net_hits(&net, HLG_FAULT_CLOSE_FAILS), 1);
    net_drop(&net);
}

/* Whether page 0 that node 0 posts to node 1 lands after the other's close failed and `end` was done. */
static bool lands_after(void (*end)(void), bool freed)
{
    struct hlg_transport *t;
    struct hlg_paged_write w;
    bool landed;

    net_make(&net, 1, "close-fails node 1 span 1s");
    t = net.ends[1].t;
    assert_int_equal(t->ops->close(t), -HLG_EIO);
    if (freed) {
        t->ops->free(t);
        net.ends[1].t = NULL;
    }
    end();
    w = net_write(&net, 0, 1, 1, 0, 1);
    (void)net_post(&net, 0, &w);
    net_pass(&net, 2 * NET_US);
    landed = net_has(&net, 1, 0, 0);
    net_drop(&net);
    return landed;
}

static void go_on(void)
{
}

static void kill_it(void)
{
    net_script(&net, "kill node 1");
}

static void restart_it(void)
{
    hlg_fault_restart(net.fault, 1);
}

static void a_process_that_ends_takes_failed_closes_along(void **state)
{
    (void)state;
    for (uint32_t freed = 0; freed < 2; freed++) {
        assert_true(lands_after(go_on, freed != 0));
        assert_false(lands_after(kill_it, freed != 0));
        assert_false(lands_after(restart_it, freed != 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rules_all_passes),
        cmocka_unit_test(a_delayed_piece_lands_its_span_later),
        cmocka_unit_test(a_reordered_piece_goes_behind_the_next_ones),
        cmocka_unit_test(a_duplicated_piece_lands_twice_and_counts_once),
        cmocka_unit_test(nothing_is_duplicated_towards_a_stranger),
        cmocka_unit_test(a_piece_that_fails_before_never_lands),
        cmocka_unit_test(a_piece_that_fails_after_has_landed),
        cmocka_unit_test(a_late_piece_lands_after_it_failed_with_its_old_bytes),
        cmocka_unit_test(late_pieces_have_as_much_room_as_was_configured),
        cmocka_unit_test(a_refused_peer_takes_nothing_for_a_while_and_others_do),
        cmocka_unit_test(a_peer_refused_for_too_long_is_down_once),
        cmocka_unit_test(refusals_far_apart_do_not_add_up),
        cmocka_unit_test(a_write_that_is_taken_ends_a_refusal),
        cmocka_unit_test(a_partial_write_takes_a_prefix),
        cmocka_unit_test(a_late_immediate_is_polled_its_span_later),
        cmocka_unit_test(a_stale_immediate_is_of_the_generation_before),
        cmocka_unit_test(what_below_refuses_waits_in_order),
        cmocka_unit_test(what_was_refused_was_no_occasion),
        cmocka_unit_test(a_poll_of_0_has_seen_all),
        cmocka_unit_test(what_waits_for_a_dead_peer_fails),
        cmocka_unit_test(pieces_that_wait_when_their_peer_is_closed_still_land),
        cmocka_unit_test(close_cancels_what_waits),
        cmocka_unit_test(a_close_that_fails_lets_writes_land),
        cmocka_unit_test(a_process_that_ends_takes_failed_closes_along),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
