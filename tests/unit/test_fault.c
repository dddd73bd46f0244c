/*
 * Each fault of the decorator does what its line in halage/transport/fault.h says, and nothing else:
 * looked at are the bytes, the order in which they land, the immediates, the completions and their sums.
 */
#include "fault_net.h"

/* Allocations since the start, by the linker's --wrap. */
static uint64_t allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations++;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    allocations++;
    return __real_realloc(memory, bytes);
}

static struct net net;

static void post_all(struct net *n, uint32_t from, uint32_t to, hlg_op_id op, uint32_t pieces)
{
    const struct hlg_paged_write w = net_write(n, from, to, op, 0, pieces);

    assert_int_equal(net_post(n, from, &w), pieces);
}

static void expect_done(uint32_t node, hlg_op_id op, uint32_t done, uint32_t failed)
{
    assert_int_equal(net.ends[node].done[op], done);
    assert_int_equal(net.ends[node].failed[op], failed);
}

static struct hlg_fault_rule rule_of(uint32_t kind, uint32_t node)
{
    return (struct hlg_fault_rule){.kind = kind,
                                   .node = node,
                                   .peer = HLG_FAULT_ANY,
                                   .lane = HLG_FAULT_ANY,
                                   .rail = HLG_FAULT_ANY};
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void without_rules_all_passes(void **state)
{
    (void)state;
    net_make(&net, 1, "# nothing\n");
    post_all(&net, 0, 1, 3, 40);
    net_run_dry(&net);
    expect_done(0, 3, 40, 0);
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
    post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 50 * NET_US);
    expect_done(0, 1, 2, 0);
    assert_int_equal(net.ends[1].pieces, 2);
    assert_true(net_has(&net, 1, 0, 0) && !net_has(&net, 1, 1, 0) && net_has(&net, 1, 2, 0));
    net_pass(&net, NET_US);
    expect_done(0, 1, 3, 0);
    assert_true(net_has(&net, 1, 1, 0));
    assert_int_equal(net.ends[1].pieces, 3);
    assert_int_equal(net_hits(&net, HLG_FAULT_DELAY), 1);
    net_drop(&net);
}

static void a_reordered_piece_goes_behind_the_next_ones(void **state)
{
    (void)state;
    net_make(&net, 1, "reorder node 0 nth 1");
    post_all(&net, 0, 1, 1, 3);
    net_run_dry(&net);
    assert_int_equal(net.landings, 3);
    assert_int_equal(net.landed[0], 1);
    assert_int_equal(net.landed[1], 2);
    assert_int_equal(net.landed[2], 0);
    expect_done(0, 1, 3, 0);
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
    post_all(&net, 0, 1, 1, 1);
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
    post_all(&net, 0, 1, 1, 3);
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 3); /* 0, the shadow of 1, 2 */
    assert_int_equal(net.ends[1].pieces, 2);
    net_run_dry(&net);
    assert_int_equal(net.landings, 4);
    assert_int_equal(net.landed[3], 1);
    assert_int_equal(net.ends[1].pieces, 3);
    assert_int_equal(net.ends[1].immediates, 3);
    expect_done(0, 1, 3, 0);
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
        stranger->ops->mem_register(stranger, net.ends[2].memory, sizeof(net.ends[2].memory), &mem),
        0);
    assert_int_equal(stranger->ops->mem_export(stranger, mem, &net.ends[2].exported), 0);
    const int bytes = stranger->ops->address(stranger, address, sizeof(address));
    const int peer = net.ends[0].t->ops->peer_open(net.ends[0].t, address, (uint32_t)bytes);
    assert_true(peer >= 0);
    net.ends[0].peers[2] = (uint32_t)peer;
    post_all(&net, 0, 2, 1, 3);
    net_run_dry(&net);
    assert_int_equal(net.landings, 3);
    expect_done(0, 1, 3, 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_DUPLICATE), 0);
    stranger->ops->free(stranger);
    net_drop(&net);
}

static void a_piece_that_fails_before_never_lands(void **state)
{
    (void)state;
    net_make(&net, 1, "fail-before node 0 nth 3");
    post_all(&net, 0, 1, 1, 4);
    net_run_dry(&net);
    expect_done(0, 1, 3, 1);
    assert_int_equal(net.ends[0].status[1], -HLG_EIO);
    assert_int_equal(net.ends[1].pieces, 3);
    assert_true(net_has(&net, 1, 1, 0) && !net_has(&net, 1, 2, 0) && net_has(&net, 1, 3, 0));
    net_drop(&net);
}

static void a_piece_that_fails_after_has_landed(void **state)
{
    (void)state;
    net_make(&net, 1, "fail-after node 0 nth 3");
    post_all(&net, 0, 1, 1, 4);
    (void)hlg_loop_advance_to(net.loop, NET_US);
    net_poll(&net, 0);
    assert_int_equal(net.landings, 4);
    net_run_dry(&net);
    expect_done(0, 1, 3, 1);
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
    post_all(&net, 0, 1, 1, 3);
    net_poll(&net, 0);
    expect_done(0, 1, 0, 1);
    memset(net.ends[0].memory + NET_PAGE_BYTES, 0xcc, NET_PAGE_BYTES);
    net_pass(&net, 30 * NET_US);
    expect_done(0, 1, 2, 1);
    assert_int_equal(net.landings, 2);
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 3);
    assert_int_equal(net.landed[2], 1);
    assert_true(net.copies[2] && !net.copies[0]);
    assert_memory_equal(net.ends[1].memory + NET_PAGE_BYTES, old, sizeof(old));
    assert_int_equal(net.ends[1].pieces, 3);
    net_run_dry(&net);
    expect_done(0, 1, 2, 1);
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
    post_all(&net, 0, 1, 1, 3);
    net_run_dry(&net);
    expect_done(0, 1, 3, 0);
    net_drop(&net);
    net_make(&net, 1, "fail-late ppm 1000000 span 30us");
    post_all(&net, 0, 1, 1, 20);
    net_run_dry(&net);
    expect_done(0, 1, 4, 16); /* copies for 16 */
    assert_int_equal(net.ends[1].pieces, 20);
    net_drop(&net);
}

/* ---- calls of write ------------------------------------------------------------------------- */

static void a_refused_peer_takes_nothing_for_a_while_and_others_do(void **state)
{
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "refuse node 0 peer 1 nth 2 span 50us");
    post_all(&net, 0, 1, 1, 2);
    w = net_write(&net, 0, 1, 1, 2, 4);
    assert_int_equal(net_post(&net, 0, &w), 0);
    post_all(&net, 0, 2, 2, 4);
    net_pass(&net, 49 * NET_US);
    assert_int_equal(net_post(&net, 0, &w), 0);
    net_pass(&net, NET_US);
    assert_int_equal(net_post(&net, 0, &w), 2);
    net_run_dry(&net);
    expect_done(0, 1, 4, 0);
    expect_done(0, 2, 4, 0);
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
    expect_done(0, 1, 50, 0);
    assert_int_equal(net_hits(&net, HLG_FAULT_PARTIAL), 3);
    net_drop(&net);
}

/* ---- immediates ----------------------------------------------------------------------------- */

static void a_late_immediate_is_polled_its_span_later(void **state)
{
    (void)state;
    net_make(&net, 1, "imm-late node 1 nth 1 span 40us");
    post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 40 * NET_US);
    expect_done(0, 1, 3, 0);
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
        post_all(&net, 0, 1, op, 3);
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
    post_all(&net, 0, 1, 1, 3);
    net_pass(&net, 9 * NET_US);
    let_loop_refuse(20 * NET_US);
    net_pass(&net, 2 * NET_US);
    w = net_write(&net, 0, 1, 1, 3, 6);
    assert_int_equal(net_post(&net, 0, &w), 0);
    assert_int_equal(net_held(&net), 3);
    let_loop_refuse(0);
    post_all(&net, 0, 2, 2, 3);
    net_pass(&net, 100 * NET_US);
    assert_int_equal(net_held(&net), 0);
    assert_int_equal(net_post(&net, 0, &w), 3);
    net_run_dry(&net);
    expect_done(0, 1, 6, 0);
    expect_done(0, 2, 3, 0);
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
    post_all(&net, 0, 1, 1, 10);
    (void)hlg_loop_advance_to(net.loop, NET_US);
    assert_int_equal(t->ops->poll(t, events, 3), 0);
    assert_int_equal(net_held(&net), 0);
    net_run_dry(&net);
    expect_done(0, 1, 10, 0);
    assert_int_equal(net.landings, 20);
    net_drop(&net);
}

/* ---- the deaths of peers, peers and endpoints that are closed -------------------------------- */

/* Pieces that wait for a peer which the one below gives up fail, each once. */
static void what_waits_for_a_dead_peer_fails(void **state)
{
    (void)state;
    net_make(&net, 1, "delay node 0 ppm 1000000 span 50us");
    post_all(&net, 0, 1, 1, 10);
    net.ends[1].t->ops->free(net.ends[1].t);
    net.ends[1].t = NULL;
    net_run_dry(&net);
    expect_done(0, 1, 0, 10);
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
    post_all(&net, 0, 1, 1, 10);
    w = net_write(&net, 0, 1, 1, 10, 12);
    assert_int_equal(t->ops->peer_close(t, w.peer), 0);
    assert_true(net_post(&net, 0, &w) < 0);
    assert_true(t->ops->peer_close(t, w.peer) < 0);
    net_run_dry(&net);
    expect_done(0, 1, 10, 0);
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
    post_all(&net, 0, 1, 1, 60);
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
    expect_done(1, 7, 0, 3);
    post_all(&net, 0, 1, 1, 1);
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

/* ---- nodes ---------------------------------------------------------------------------------- */

static void a_killed_node_is_gone_and_can_come_again(void **state)
{
    struct hlg_fault_rule rule = rule_of(HLG_FAULT_KILL, 1);
    struct hlg_transport *t;
    struct hlg_paged_write w;

    (void)state;
    net_make(&net, 1, "delay node 1 ppm 500000 span 50us");
    t = net.ends[1].t;
    post_all(&net, 1, 0, 1, 20);
    assert_true(hlg_fault_add(net.fault, &rule, NULL, 0) >= 0);
    assert_false(hlg_fault_alive(net.fault, 1));
    w = net_write(&net, 1, 0, 1, 20, 30);
    assert_int_equal(net_post(&net, 1, &w), -HLG_ESTATE);
    net_poll(&net, 1);
    expect_done(1, 1, 0, 0);
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
    post_all(&net, 0, 1, 3, 4);
    net_run_dry(&net);
    expect_done(0, 3, 4, 0);
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
    post_all(&net, 0, 1, 1, 4);
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
    expect_done(1, 2, 4, 0);
    net_drop(&net);
}

static void a_partition_holds_both_ways_and_then_all_passes_in_order(void **state)
{
    (void)state;
    net_make(&net, 1, "partition node 0 peer 1 span 100us");
    post_all(&net, 0, 1, 1, 5);
    post_all(&net, 1, 0, 2, 0 + 5);
    post_all(&net, 0, 2, 3, 5);
    net_pass(&net, 99 * NET_US);
    expect_done(0, 1, 0, 0);
    expect_done(1, 2, 0, 0);
    expect_done(0, 3, 5, 0);
    assert_int_equal(net.landings, 5);
    assert_int_equal(net_held(&net), 10);
    net_pass(&net, 2 * NET_US);
    expect_done(0, 1, 5, 0);
    expect_done(1, 2, 5, 0);
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
    expect_done(0, 1, 0, 0);
    hlg_fault_calm(net.fault);
    net_run_dry(&net);
    expect_done(0, 1, 10, 0);
    net_drop(&net);
}

static void half_open_holds_one_way_only(void **state)
{
    (void)state;
    net_make(&net, 1, "half-open node 0 peer 1 span 100us");
    post_all(&net, 0, 1, 1, 5);
    post_all(&net, 1, 0, 2, 5);
    net_pass(&net, 99 * NET_US);
    expect_done(0, 1, 0, 0);
    expect_done(1, 2, 5, 0);
    net_pass(&net, 2 * NET_US);
    expect_done(0, 1, 5, 0);
    net_drop(&net);
}

/* 64 bytes at 1 MB/s are 64 us; three of them take 192, of any peer. */
static void a_slow_rail_keeps_to_its_rate(void **state)
{
    (void)state;
    net_make(&net, 1, "slow node 0 rail 0 rate 1MB/s span 1s");
    post_all(&net, 0, 1, 1, 2);
    post_all(&net, 0, 2, 2, 1);
    post_all(&net, 1, 0, 3, 1);
    net_pass(&net, 64 * NET_US);
    assert_int_equal(net.landings, 1); /* that of node 1 */
    net_pass(&net, NET_US);
    assert_int_equal(net.landings, 2);
    net_pass(&net, 64 * NET_US);
    assert_int_equal(net.landings, 3);
    expect_done(0, 2, 0, 0);
    net_pass(&net, 64 * NET_US);
    expect_done(0, 1, 2, 0);
    expect_done(0, 2, 1, 0);
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
    post_all(&net, 0, 1, 1, 3); /* all else goes on */
    net_pass(&net, NET_US);
    expect_done(0, 1, 3, 0);
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
    post_all(&net, 0, 1, 1, 5);
    post_all(&net, 0, 2, 2, 5);
    w = net_write(&net, 1, 0, 3, 0, 4);
    assert_int_equal(net_post(&net, 1, &w), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(net_held(&net), 3 + 5 + 1);
    hlg_fault_calm(net.fault);
    assert_int_equal(net_post(&net, 1, &w), 4);
    net_pass(&net, 2 * NET_US);
    assert_int_equal(net_held(&net), 0);
    assert_int_equal(hlg_fault_deadline(net.fault), HLG_TIME_NEVER);
    expect_done(0, 1, 5, 0);
    expect_done(0, 2, 5, 0);
    expect_done(1, 3, 4, 0);
    assert_int_equal(net.ends[1].pieces, 5);
    assert_int_equal(net.ends[2].pieces, 5);
    net_drop(&net);
}

/* ---- channels ------------------------------------------------------------------------------- */

struct wires {
    struct hlg_channel *a; /* node 0's end */
    struct hlg_channel *b; /* node 1's */
};

static struct wires join_channel(void)
{
    struct hlg_channel *a;
    struct hlg_channel *b;
    struct wires w;

    assert_int_equal(hlg_loop_channel_pair(net.loop, 0, 1, &a, &b), 0);
    assert_int_equal(hlg_fault_channel(net.fault, 0, 1, a, &w.a), 0);
    assert_int_equal(hlg_fault_channel(net.fault, 1, 0, b, &w.b), 0);
    return w;
}

static int send_number(struct hlg_channel *c, uint8_t number)
{
    const uint8_t frame[5] = {1, 0, 0, 0, number};

    return c->ops->send(c, frame, sizeof(frame));
}

/* The number of the next frame, 0 for none, or an error. Lets the sender move on first. */
static int take_number(struct hlg_channel *from, struct hlg_channel *c)
{
    const uint8_t *frame;
    uint32_t bytes;
    int rc;

    if (from != NULL) {
        (void)from->ops->receive(from, &frame, &bytes);
    }
    rc = c->ops->receive(c, &frame, &bytes);
    return rc == 1 ? frame[4] : rc;
}

static void a_delayed_frame_holds_up_those_behind(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "frame-delay node 0 nth 2 span 100us");
    w = join_channel();
    for (uint8_t number = 1; number <= 3; number++) {
        assert_int_equal(send_number(w.a, number), 1);
        assert_int_equal(send_number(w.b, number), 1);
    }
    assert_int_equal(net_held(&net), 2);
    net_pass(&net, 20 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 1);
    assert_int_equal(take_number(w.a, w.b), 0);
    assert_int_equal(hlg_fault_deadline(net.fault), 100 * NET_US);
    net_pass(&net, 79 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0);
    (void)hlg_loop_advance_to(net.loop, 100 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0); /* now it leaves */
    assert_int_equal(net_held(&net), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 2);
    assert_int_equal(take_number(w.a, w.b), 3);
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
    w = join_channel();
    assert_int_equal(send_number(w.a, 1), 1);
    assert_int_equal(send_number(w.a, 2), 1);
    assert_int_equal(send_number(w.a, 3), -HLG_EPEER);
    assert_int_equal(take_number(NULL, w.a), -HLG_EPEER);
    assert_true(w.a->ops->name(w.a)[0] != 0);
    net_pass(&net, 30 * NET_US);
    assert_int_equal(take_number(NULL, w.b), 1);
    assert_int_equal(take_number(NULL, w.b), -HLG_EPEER);
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
    w = join_channel();
    assert_int_equal(send_number(w.a, 1), 1);
    assert_int_equal(send_number(w.b, 9), 1);
    net_pass(&net, 20 * NET_US);
    assert_int_equal(take_number(NULL, w.a), 9);
    net_pass(&net, 29 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0);
    (void)hlg_loop_advance_to(net.loop, 50 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0);
    net_pass(&net, 10 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 1);
    net_script(&net, "freeze node 1 span 50us");
    assert_int_equal(send_number(w.a, 2), 1);
    assert_int_equal(send_number(w.b, 8), 0);
    net_pass(&net, 49 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0);
    net_pass(&net, NET_US);
    assert_int_equal(take_number(w.a, w.b), 2);
    assert_true(hlg_fault_add(net.fault, &kill, NULL, 0) >= 0);
    assert_int_equal(send_number(w.a, 3), -HLG_EPEER);
    net_pass(&net, 30 * NET_US);
    assert_int_equal(take_number(NULL, w.b), -HLG_EPEER);
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
    w = join_channel();
    while (send_number(w.a, 1) == 1) {
        sent++;
    }
    assert_int_equal(sent, 64); /* frames_max */
    assert_int_equal(send_number(w.a, 1), 0);
    net_pass(&net, 99 * NET_US);
    assert_int_equal(net_held(&net), 64);
    (void)hlg_loop_advance_to(net.loop, 100 * NET_US);
    assert_int_equal(take_number(w.a, w.b), 0);
    assert_int_equal(net_held(&net), 0);
    w.a->ops->close(w.a);
    w.b->ops->close(w.b);
    net_drop(&net);
}

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

static void nothing_is_allocated_after_open(void **state)
{
    struct wires w;

    (void)state;
    net_make(&net, 1, "");
    w = join_channel();
    net.polled[0] = w.a;
    net.polled[1] = w.b;
    const uint64_t before = allocations;
    net_script(&net, all_kinds);
    for (uint32_t op = 0; op < NET_OPS; op++) {
        const struct hlg_paged_write write = net_write(&net, 0, 1, op, 0, 8);

        net.landings = 0;
        assert_true(net_post(&net, 0, &write) >= 0);
        assert_true(send_number(w.a, 1) >= 0);
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
        cmocka_unit_test(frames_that_wait_are_bounded),
        cmocka_unit_test(equal_seeds_give_equal_histories_and_sums_hold),
        cmocka_unit_test(nothing_is_allocated_after_open),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
