/*
 * The loop transport: each promise of transport.h and channel.h, each fault, and that equal seeds
 * make equal histories. Two or three nodes with one buffer each; the source's page i goes to the
 * target's page i unless a test says otherwise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/allocations.h"
#include "halage/message.h"
#include "halage/transport/loop.h"

#define NODES      3u
#define PAGES      64u
#define PAGE_BYTES 64u
#define OPS        64u
#define IMM        0x00050060u /* slot 5, generation 6, weight 0 */

struct end {
    struct hlg_transport *t;
    uint8_t memory[PAGES * PAGE_BYTES];
    hlg_mem mem;
    struct hlg_mem_export exported;
    uint32_t peers[NODES];
    uint32_t pieces; /* counted by IMM events */
    uint32_t immediates;
    uint32_t marks;
    uint32_t downs;
    uint32_t done[OPS];
    uint32_t failed[OPS];
    int32_t status[OPS];
};

struct net {
    struct hlg_loop *loop;
    struct end ends[NODES];
    uint32_t identity[PAGES];
    uint32_t landings;
    uint32_t again;
};

static void count_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct net *n = context;
    const struct end *target = &n->ends[landing->target_node];

    assert_ptr_equal(landing->target_base, target->memory);
    assert_true(landing->target_offset + landing->bytes <= sizeof(target->memory));
    assert_int_equal(landing->bytes, PAGE_BYTES);
    n->landings++;
    n->again += landing->again;
}

static void open_end(struct net *n, uint32_t node)
{
    struct hlg_fabric *fabric = hlg_loop_fabric(n->loop, node);
    struct end *e = &n->ends[node];

    assert_int_equal(fabric->open(fabric, 0, 0, &e->t), 0);
    assert_int_equal(
        e->t->ops->mem_register(e->t, &HLG_MEM_HOST(e->memory, sizeof(e->memory)), &e->mem), 0);
    assert_int_equal(e->t->ops->mem_export(e->t, e->mem, &e->exported), 0);
}

static void join(struct net *n, uint32_t from, uint32_t to)
{
    struct hlg_transport *t = n->ends[from].t;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    const int bytes = n->ends[to].t->ops->address(n->ends[to].t, address, sizeof(address));
    int peer;

    assert_true(bytes > 0);
    peer = t->ops->peer_open(t, address, (uint32_t)bytes);
    assert_true(peer >= 0);
    n->ends[from].peers[to] = (uint32_t)peer;
}

static void make_net(struct net *n, const struct hlg_loop_config *config)
{
    memset(n, 0, sizeof(*n));
    assert_int_equal(hlg_loop_create(config, &n->loop), 0);
    for (uint32_t node = 0; node < NODES; node++) {
        open_end(n, node);
        for (uint32_t index = 0; index < sizeof(n->ends[node].memory); index++) {
            n->ends[node].memory[index] = (uint8_t)(index / PAGE_BYTES + 100 * (node + 1));
        }
    }
    for (uint32_t from = 0; from < NODES; from++) {
        for (uint32_t to = 0; to < NODES; to++) {
            join(n, from, to);
        }
    }
    for (uint32_t page = 0; page < PAGES; page++) {
        n->identity[page] = page;
    }
    hlg_loop_on_landing(n->loop, count_landing, n);
}

static struct hlg_loop_config plain_config(uint64_t seed)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = seed;
    config.nodes = NODES;
    config.stall_ns = HLG_NS_PER_MS;
    config.faults.delay_ns_max = 100000;
    config.faults.refuse_ns_max = 50000;
    config.faults.kill_ns_max = 10000;
    return config;
}

static void drop_net(struct net *n)
{
    assert_int_equal(hlg_loop_check(n->loop), 0);
    for (uint32_t node = 0; node < NODES; node++) {
        if (n->ends[node].t != NULL) {
            n->ends[node].t->ops->free(n->ends[node].t);
        }
    }
    assert_int_equal(hlg_loop_check(n->loop), 0);
    hlg_loop_destroy(n->loop);
}

static struct hlg_paged_write make_write(const struct net *n, uint32_t from, uint32_t to,
                                         hlg_op_id op, uint32_t pieces)
{
    return (struct hlg_paged_write){
        .op = op,
        .peer = n->ends[from].peers[to],
        .mem = n->ends[from].mem,
        .imm = IMM,
        .local = (uint8_t *)n->ends[from].memory,
        .local_stride = PAGE_BYTES,
        .remote = n->ends[to].exported.address,
        .remote_key = n->ends[to].exported.key,
        .remote_stride = PAGE_BYTES,
        .source_pages = n->identity,
        .target_pages = n->identity,
        .bytes = PAGE_BYTES,
        .count = 1,
        .piece_limit = pieces,
    };
}

static int64_t post(struct net *n, uint32_t from, const struct hlg_paged_write *w)
{
    return n->ends[from].t->ops->write(n->ends[from].t, w);
}

static void take(struct end *e, const struct hlg_transport_event *event)
{
    if (event->kind == HLG_TRANSPORT_IMM) {
        assert_int_equal(event->imm.imm >> 4, IMM >> 4);
        e->pieces += event->imm.pieces;
        e->immediates += event->imm.immediates;
        if (hlg_imm_weight(event->imm.imm) == HLG_IMM_WEIGHT_MARK) {
            assert_int_equal(event->imm.pieces, 0);
            e->marks += event->imm.immediates;
        }
    } else if (event->kind == HLG_TRANSPORT_DONE_WRITE) {
        assert_true(event->done.op < OPS && event->done.done + event->done.failed > 0);
        e->done[event->done.op] += event->done.done;
        e->failed[event->done.op] += event->done.failed;
        assert_true((event->done.failed == 0) == (event->done.status == 0));
        if (event->done.status != 0) {
            e->status[event->done.op] = event->done.status;
        }
    } else {
        assert_int_equal(event->kind, HLG_TRANSPORT_PEER_DOWN);
        e->downs++;
    }
}

/* Poll an end until it is empty, three events at a time so that poll has to stop midway. */
static void poll_end(struct net *n, uint32_t node)
{
    struct hlg_transport *t = n->ends[node].t;
    struct hlg_transport_event events[3];
    int count;

    do {
        count = t->ops->poll(t, events, 3);
        assert_true(count >= 0);
        for (int index = 0; index < count; index++) {
            take(&n->ends[node], &events[index]);
        }
    } while (count > 0);
}

static void poll_all(struct net *n)
{
    for (uint32_t node = 0; node < NODES; node++) {
        poll_end(n, node);
    }
}

static void run_dry(struct net *n)
{
    poll_all(n);
    while (hlg_loop_step(n->loop) != 0) {
        poll_all(n);
    }
    assert_int_equal(hlg_loop_check(n->loop), 0);
}

static struct hlg_loop_stats stats_of(const struct net *n)
{
    struct hlg_loop_stats stats;

    hlg_loop_stats(n->loop, &stats);
    return stats;
}

static void expect_page(const struct net *n, uint32_t node, uint32_t page, uint32_t from)
{
    for (uint32_t index = 0; index < PAGE_BYTES; index++) {
        assert_int_equal(n->ends[node].memory[page * PAGE_BYTES + index],
                         (uint8_t)(page + 100 * (from + 1)));
    }
}

static void bytes_land_and_are_counted_on_both_sides(void **state)
{
    struct hlg_loop_config config = plain_config(1);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 3, PAGES);
    assert_int_equal(post(&n, 0, &w), PAGES);
    expect_page(&n, 1, 0, 1); /* nothing lands at once */
    run_dry(&n);
    for (uint32_t page = 0; page < PAGES; page++) {
        expect_page(&n, 1, page, 0);
    }
    assert_int_equal(n.ends[0].done[3], PAGES);
    assert_int_equal(n.ends[0].failed[3], 0);
    assert_int_equal(n.ends[1].pieces, PAGES);
    assert_int_equal(n.ends[1].immediates, PAGES);
    assert_int_equal(n.ends[2].pieces, 0);
    assert_int_equal(n.landings, PAGES);
    drop_net(&n);
}

/* Piece i is slice i % count of page i / count: strides and offsets within a page differ. */
static void pieces_within_pages_go_where_the_write_says(void **state)
{
    struct hlg_loop_config config = plain_config(2);
    static const uint32_t source_pages[] = {9, 4};
    static const uint32_t target_pages[] = {2, 7};
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    hlg_loop_on_landing(n.loop, NULL, NULL);
    for (uint32_t index = 0; index < sizeof(n.ends[0].memory); index++) {
        n.ends[0].memory[index] = (uint8_t)(index * 7 + index / 256);
    }
    memset(n.ends[1].memory, 0, sizeof(n.ends[1].memory));
    w = make_write(&n, 0, 1, 1, 4);
    w.source_pages = source_pages;
    w.target_pages = target_pages;
    w.bytes = 8;
    w.count = 2;
    w.source_offset = 16;
    w.source_stride = 32;
    w.target_offset = 4;
    w.target_stride = 8;
    w.piece_begin = 1;
    assert_int_equal(post(&n, 0, &w), 3);
    run_dry(&n);
    for (uint32_t piece = 0; piece < 4; piece++) {
        const uint8_t *from =
            n.ends[0].memory + source_pages[piece / 2] * PAGE_BYTES + 16 + (piece % 2) * 32;
        const uint8_t *to =
            n.ends[1].memory + target_pages[piece / 2] * PAGE_BYTES + 4 + (piece % 2) * 8;
        static const uint8_t zero[8];

        assert_memory_equal(to, piece == 0 ? zero : from, 8);
    }
    drop_net(&n);
}

/* Each page carries its own slot, so that an immediate tells which page must be there. */
static void payload_is_visible_before_its_own_immediate(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        uint32_t imm_before_done = 0;
        uint32_t done_before_imm = 0;
        uint32_t seen = 0;
        struct net n;

        config.faults.duplicate_ppm = 300000;
        make_net(&n, &config);
        for (uint32_t page = 0; page < PAGES; page++) {
            struct hlg_paged_write w = make_write(&n, 0, 1, page, page + 1);

            w.piece_begin = page;
            w.imm = hlg_imm_make(page, 1, 0);
            assert_int_equal(post(&n, 0, &w), 1);
        }
        while (hlg_loop_step(n.loop) != 0) {
            struct hlg_transport *t = n.ends[1].t;
            struct hlg_transport_event event;

            poll_end(&n, 0);
            while (t->ops->poll(t, &event, 1) == 1) {
                const uint32_t page = hlg_imm_slot(event.imm.imm);

                expect_page(&n, 1, page, 0);
                if (n.ends[0].done[page] == 0) {
                    imm_before_done++;
                } else {
                    done_before_imm++;
                }
                /* not placed again: what the target writes now stays */
                memset(n.ends[1].memory + page * PAGE_BYTES, 0xee, PAGE_BYTES);
                seen++;
            }
        }
        assert_int_equal(seen, PAGES);
        assert_true(imm_before_done > 0 && done_before_imm > 0);
        for (uint32_t index = 0; index < sizeof(n.ends[1].memory); index++) {
            assert_int_equal(n.ends[1].memory[index], 0xee);
        }
        drop_net(&n);
    }
}

static void source_bytes_are_read_late(void **state)
{
    struct hlg_loop_config config = plain_config(4);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 1);
    assert_int_equal(post(&n, 0, &w), 1);
    memset(n.ends[0].memory, 0x77, PAGE_BYTES); /* reused too early */
    run_dry(&n);
    assert_int_equal(n.ends[1].memory[0], 0x77);
    drop_net(&n);
}

static void a_write_takes_a_prefix_and_goes_on_from_there(void **state)
{
    struct hlg_loop_config config = plain_config(5);
    uint32_t calls = 0;
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.pieces_max = 10;
    config.faults.partial_ppm = 500000;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 2, PAGES);
    while (w.piece_begin < PAGES) {
        const int64_t taken = post(&n, 0, &w);

        assert_true(taken >= 0 && taken <= 10);
        w.piece_begin += (uint32_t)taken;
        calls++;
        poll_all(&n);
        if (taken == 0) {
            assert_true(hlg_loop_step(n.loop) != 0);
        }
    }
    run_dry(&n);
    assert_true(calls > PAGES / 10);
    assert_true(stats_of(&n).partials > 0);
    assert_int_equal(n.ends[0].done[2], PAGES);
    assert_int_equal(n.ends[1].pieces, PAGES);
    drop_net(&n);
}

static void bad_arguments_are_refused(void **state)
{
    struct hlg_loop_config config = plain_config(6);
    struct net n;
    struct hlg_paged_write w;
    struct hlg_transport *t;
    struct hlg_fabric *fabric;
    struct hlg_transport *extra[4];
    uint8_t address[HLG_ADDRESS_BYTES_MAX] = {0};

    (void)state;
    make_net(&n, &config);
    t = n.ends[0].t;
    fabric = hlg_loop_fabric(n.loop, 0);
    w = make_write(&n, 0, 1, 0, 1);
    w.peer = 9;
    assert_int_equal(post(&n, 0, &w), -HLG_EINVAL);
    w = make_write(&n, 0, 1, 0, 1);
    w.bytes = 0;
    assert_int_equal(post(&n, 0, &w), -HLG_EINVAL);
    w = make_write(&n, 0, 1, 0, 1);
    w.mem = 5;
    assert_int_equal(post(&n, 0, &w), -HLG_EINVAL);
    w = make_write(&n, 0, 1, 0, 1);
    w.source_offset = PAGES * PAGE_BYTES - PAGE_BYTES + 1;
    assert_int_equal(post(&n, 0, &w), -HLG_EINVAL);
    assert_int_equal(t->ops->peer_open(t, address, 32), -HLG_EINVAL);
    assert_int_equal(t->ops->peer_close(t, 9), -HLG_EINVAL);
    assert_int_equal(t->ops->address(t, address, 8), -HLG_ELIMIT);
    assert_true(t->ops->wait_fd(t) < 0);
    assert_int_equal(fabric->open(fabric, 1, 0, &extra[0]), -HLG_EINVAL);
    for (uint32_t index = 0; index < 3; index++) {
        assert_int_equal(fabric->open(fabric, 0, 0, &extra[index]), 0);
    }
    assert_int_equal(fabric->open(fabric, 0, 0, &extra[3]), -HLG_ELIMIT);
    for (uint32_t index = 0; index < 3; index++) {
        extra[index]->ops->free(extra[index]);
    }
    config.imm_ns.min = config.imm_ns.max + 1;
    assert_int_equal(hlg_loop_create(&config, &n.loop), -HLG_EINVAL);
    drop_net(&n);
}

static void wrong_keys_and_bounds_land_nothing(void **state)
{
    struct hlg_loop_config config = plain_config(7);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 4);
    w.remote_key++;
    assert_int_equal(post(&n, 0, &w), 4);
    w = make_write(&n, 0, 1, 1, 1);
    w.remote--;
    assert_int_equal(post(&n, 0, &w), 1);
    w = make_write(&n, 0, 1, 2, 1);
    w.remote += PAGES * PAGE_BYTES - PAGE_BYTES + 1;
    assert_int_equal(post(&n, 0, &w), 1);
    w = make_write(&n, 0, 1, 3, 1);
    w.remote = UINT64_MAX - 8;
    assert_int_equal(post(&n, 0, &w), 1);
    run_dry(&n);
    n.ends[1].t->ops->mem_release(n.ends[1].t, n.ends[1].mem);
    w = make_write(&n, 0, 1, 4, 1);
    assert_int_equal(post(&n, 0, &w), 1);
    run_dry(&n);
    assert_int_equal(n.landings, 0);
    assert_int_equal(n.ends[1].pieces, 0);
    for (uint32_t op = 0; op < 5; op++) {
        assert_int_equal(n.ends[0].failed[op], op == 0 ? 4 : 1);
        assert_int_equal(n.ends[0].status[op], -HLG_EIO);
    }
    drop_net(&n);
}

/* Close the source at every moment of its writes: sums add up at once. What lands later comes from
 * the network's copy, never from the source's pages. */
static void closing_the_source_ends_its_writes(void **state)
{
    uint64_t late = 0;

    (void)state;
    for (uint32_t steps = 0; steps < 3 * PAGES; steps += 3) {
        struct hlg_loop_config config = plain_config(1000 + steps);
        struct hlg_loop_stats stats;
        uint64_t landed;
        struct net n;
        struct hlg_paged_write w;

        config.faults.duplicate_ppm = 300000;
        make_net(&n, &config);
        w = make_write(&n, 0, 1, 0, PAGES);
        assert_int_equal(post(&n, 0, &w), PAGES);
        for (uint32_t step = 0; step < steps; step++) {
            assert_true(hlg_loop_step(n.loop) != 0);
        }
        assert_int_equal(n.ends[0].t->ops->close(n.ends[0].t), 0);
        landed = n.landings;
        poll_end(&n, 0);
        assert_int_equal(n.ends[0].done[0] + n.ends[0].failed[0], PAGES);
        assert_true(n.ends[0].failed[0] > 0);
        assert_int_equal(n.ends[0].status[0], -HLG_ECANCELED);
        assert_int_equal(post(&n, 0, &w), -HLG_ESTATE);
        run_dry(&n);
        /* what had left may land all the same, from the network's own copy */
        hlg_loop_stats(n.loop, &stats);
        assert_int_equal(n.landings, landed + stats.lates);
        late += stats.lates;
        assert_int_equal(n.ends[0].done[0] + n.ends[0].failed[0], PAGES);
        assert_true(n.ends[1].pieces >= n.ends[0].done[0]);
        drop_net(&n);
    }
    assert_true(late > 0);
}

static void closing_the_target_fails_what_is_under_way(void **state)
{
    uint32_t refused = 0;

    (void)state;
    for (uint32_t steps = 0; steps < 2 * PAGES; steps += 3) {
        struct hlg_loop_config config = plain_config(2000 + steps);
        uint32_t landed;
        struct net n;
        struct hlg_paged_write w;

        make_net(&n, &config);
        w = make_write(&n, 0, 1, 0, PAGES);
        assert_int_equal(post(&n, 0, &w), PAGES);
        for (uint32_t step = 0; step < steps; step++) {
            assert_true(hlg_loop_step(n.loop) != 0);
        }
        n.ends[1].t->ops->free(n.ends[1].t);
        memset(n.ends[1].memory, 0xee, sizeof(n.ends[1].memory));
        n.ends[1].t = NULL;
        landed = n.landings;
        w.op = 1;
        w.piece_limit = 1;
        const int64_t taken = post(&n, 0, &w); /* to an endpoint that is gone */

        assert_true(taken == 0 || taken == 1);
        while (hlg_loop_step(n.loop) != 0) {
            poll_end(&n, 0);
        }
        assert_int_equal(n.landings, landed);
        for (uint32_t index = 0; index < sizeof(n.ends[1].memory); index++) {
            assert_int_equal(n.ends[1].memory[index], 0xee);
        }
        assert_int_equal(n.ends[0].done[0] + n.ends[0].failed[0], PAGES);
        assert_int_equal(n.ends[0].failed[0], PAGES - landed);
        assert_int_equal(n.ends[0].status[0], landed == PAGES ? 0 : -HLG_ECANCELED);
        assert_int_equal(n.ends[0].failed[1], taken);
        assert_int_equal(n.ends[0].status[1], taken == 0 ? 0 : -HLG_EPEER);
        assert_int_equal(n.ends[0].downs, taken == 0 ? 1 : 0);
        refused += taken == 0;
        drop_net(&n);
    }
    assert_true(refused > 0 && refused < 2 * PAGES / 3);
}

/* A reopened endpoint has the slot of the old one, and nothing meant for the old reaches it. */
static void a_reopened_endpoint_is_another(void **state)
{
    struct hlg_loop_config config = plain_config(8);
    struct net n;
    struct hlg_paged_write w;
    uint64_t key;

    (void)state;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 8);
    assert_int_equal(post(&n, 0, &w), 8);
    key = n.ends[1].exported.key;
    n.ends[1].t->ops->free(n.ends[1].t);
    open_end(&n, 1);
    assert_int_not_equal(n.ends[1].exported.key, key);
    run_dry(&n);
    assert_int_equal(n.landings, 0);
    assert_int_equal(n.ends[0].failed[0], 8);
    assert_int_equal(n.ends[0].t->ops->peer_close(n.ends[0].t, n.ends[0].peers[1]), 0);
    join(&n, 0, 1);
    w = make_write(&n, 0, 1, 1, 8);
    assert_int_equal(post(&n, 0, &w), 8);
    run_dry(&n);
    assert_int_equal(n.ends[0].done[1], 8);
    assert_int_equal(n.ends[1].pieces, 8);
    drop_net(&n);
}

/* With a fixed port a late write finds who came after: its key alone keeps it out, and one who counts his
 * keys lets it in. What landed in the one counts in that one only. */
static void a_successor_at_the_same_address_goes_by_keys(void **state)
{
    (void)state;
    for (uint32_t counted = 0; counted < 2; counted++) {
        struct hlg_loop_config config = plain_config(8);
        struct net n;
        config.old_addresses = true;
        config.old_keys = counted == 1;
        make_net(&n, &config);
        struct hlg_paged_write w = make_write(&n, 0, 1, 0, 8);
        assert_int_equal(post(&n, 0, &w), 8);
        n.ends[1].t->ops->free(n.ends[1].t);
        open_end(&n, 1);
        run_dry(&n);
        assert_int_equal(n.landings, counted == 1 ? 8 : 0);
        assert_int_equal(n.ends[1].pieces, counted == 1 ? 8 : 0);
        assert_int_equal(n.ends[0].failed[0], counted == 1 ? 0 : 8);
        assert_int_equal(stats_of(&n).old_keys, counted == 1 ? 0 : 8);
        drop_net(&n);
    }
}

static void writes_outlive_their_closed_peer(void **state)
{
    struct hlg_loop_config config = plain_config(9);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 8);
    assert_int_equal(post(&n, 0, &w), 8);
    assert_int_equal(n.ends[0].t->ops->peer_close(n.ends[0].t, w.peer), 0);
    assert_int_equal(post(&n, 0, &w), -HLG_EINVAL);
    run_dry(&n);
    assert_int_equal(n.ends[0].done[0], 8);
    assert_int_equal(n.ends[1].pieces, 8);
    drop_net(&n);
}

/* A node that acknowledges: the source's page is the engine's again at DONE, before its bytes land. */
static void acknowledged_writes_complete_before_they_land(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        struct hlg_transport_caps caps;
        uint32_t early = 0;
        struct net n;

        config.acknowledged = true;
        config.faults.duplicate_ppm = 300000;
        make_net(&n, &config);
        n.ends[0].t->ops->query(n.ends[0].t, &caps);
        assert_false(caps.placed);
        for (uint32_t page = 0; page < PAGES; page++) {
            struct hlg_paged_write w = make_write(&n, 0, 1, page, page + 1);
            w.piece_begin = page;
            assert_int_equal(post(&n, 0, &w), 1);
        }
        do {
            poll_all(&n);
            for (uint32_t page = 0; page < PAGES; page++) {
                uint8_t *bytes = n.ends[0].memory + page * PAGE_BYTES;
                if (n.ends[0].done[page] == 1 && bytes[0] != 0xee) {
                    early += n.ends[1].memory[page * PAGE_BYTES] != (uint8_t)(page + 100);
                    memset(bytes, 0xee, PAGE_BYTES);
                }
            }
        } while (hlg_loop_step(n.loop) != 0);
        poll_all(&n);
        for (uint32_t page = 0; page < PAGES; page++) {
            expect_page(&n, 1, page, 0);
            assert_int_equal(n.ends[0].done[page], 1);
        }
        assert_int_equal(n.ends[1].pieces, PAGES);
        assert_true(early > 0 && stats_of(&n).acknowledged >= early);
        assert_int_equal(hlg_loop_check(n.loop), 0);
        drop_net(&n);
    }
}

/* What was acknowledged lands though its source is closed and freed; not where its target is. */
static void acknowledged_bytes_outlive_their_source_alone(void **state)
{
    uint32_t outlived = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        const bool target = seed % 2 == 0;
        struct net n;

        config.acknowledged = true;
        make_net(&n, &config);
        struct hlg_paged_write w = make_write(&n, 0, 1, 1, 1);
        assert_int_equal(post(&n, 0, &w), 1);
        while (n.ends[0].done[1] == 0 && hlg_loop_step(n.loop) != 0) {
            poll_end(&n, 0);
        }
        const uint32_t before = n.landings;
        struct end *closed = &n.ends[target ? 1 : 0];
        assert_int_equal(closed->t->ops->close(closed->t), 0);
        closed->t->ops->free(closed->t);
        closed->t = NULL;
        while (hlg_loop_step(n.loop) != 0) {
        }
        assert_int_equal(n.landings, target ? before : 1);
        outlived += !target && before == 0;
        assert_int_equal(hlg_loop_check(n.loop), 0);
        hlg_loop_destroy(n.loop);
    }
    assert_true(outlived > 0);
}

static void a_bad_key_is_not_acknowledged(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        struct net n;

        config.acknowledged = true;
        make_net(&n, &config);
        struct hlg_paged_write w = make_write(&n, 0, 1, 1, PAGES);
        w.remote_key ^= 1;
        assert_int_equal(post(&n, 0, &w), PAGES);
        run_dry(&n);
        assert_int_equal(n.ends[0].failed[1], PAGES);
        assert_int_equal(n.ends[0].status[1], -HLG_EIO);
        assert_int_equal(n.landings, 0);
        drop_net(&n);
    }
}

static void weights_are_summed_and_marks_kept_apart(void **state)
{
    struct hlg_loop_config config = plain_config(10);
    struct net n;

    (void)state;
    make_net(&n, &config);
    for (uint32_t index = 0; index < 16; index++) {
        struct hlg_paged_write w = make_write(&n, 0, 1, index, 1);

        w.imm = IMM | (index % 4 == 3 ? 15u : index % 4);
        assert_int_equal(post(&n, 0, &w), 1);
    }
    while (hlg_loop_step(n.loop) != 0) {
    }
    poll_all(&n);
    assert_int_equal(n.ends[1].pieces, 4 * (1 + 2 + 4));
    assert_int_equal(n.ends[1].immediates, 16);
    assert_int_equal(n.ends[1].marks, 4);
    drop_net(&n);
}

static void immediates_wait_for_a_full_queue(void **state)
{
    struct hlg_loop_config config = plain_config(11);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.cq_depth = 3;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 10);
    assert_int_equal(post(&n, 0, &w), 10);
    hlg_loop_advance_to(n.loop, HLG_NS_PER_MS);
    poll_end(&n, 0);
    assert_int_equal(n.ends[0].done[0], 10);
    poll_end(&n, 1);
    assert_int_equal(n.ends[1].pieces, 3);
    assert_true(stats_of(&n).held > 0);
    run_dry(&n);
    assert_int_equal(n.ends[1].pieces, 10);
    drop_net(&n);
}

static void a_refused_peer_holds_up_no_other(void **state)
{
    struct hlg_loop_config config = plain_config(12);
    struct hlg_loop_faults none = {0};
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.faults.refuse_ppm = 1000000;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 1);
    assert_int_equal(post(&n, 0, &w), 0);
    hlg_loop_faults(n.loop, &none);
    assert_int_equal(post(&n, 0, &w), 0);
    w = make_write(&n, 0, 2, 1, 1);
    assert_int_equal(post(&n, 0, &w), 1);
    run_dry(&n); /* the end of the refusal is a happening too */
    w = make_write(&n, 0, 1, 0, 1);
    assert_int_equal(post(&n, 0, &w), 1);
    run_dry(&n);
    assert_int_equal(n.ends[0].downs, 0);
    drop_net(&n);
}

static void a_peer_refused_for_long_is_down(void **state)
{
    struct hlg_loop_config config = plain_config(13);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.faults.refuse_ppm = 1000000;
    config.faults.refuse_ns_max = 100 * HLG_NS_PER_MS;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, 1);
    while (post(&n, 0, &w) == 0 && n.ends[0].downs == 0) {
        assert_true(hlg_loop_step(n.loop) != 0);
        poll_all(&n);
    }
    assert_true(hlg_loop_now(n.loop) >= config.stall_ns);
    run_dry(&n);
    assert_int_equal(n.ends[0].downs, 1);
    drop_net(&n);
}

/* Kill the target, then the source, at every moment of a write. */
static void death_of_a_node_ends_everything_with_it(void **state)
{
    uint32_t downs = 0;
    uint32_t landed_late = 0;

    (void)state;
    for (uint32_t steps = 0; steps < 2 * PAGES; steps++) {
        const uint32_t victim = steps % 2;
        struct hlg_loop_config config = plain_config(3000 + steps);
        uint32_t landed_by_bound;
        uint32_t landed;
        struct hlg_channel *a;
        struct hlg_channel *b;
        const uint8_t *frame;
        uint32_t bytes;
        struct net n;
        struct hlg_paged_write w;

        config.death_ns_max = 6000; /* shorter than most landings */
        make_net(&n, &config);
        assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), 0);
        w = make_write(&n, 0, 1, 0, PAGES);
        assert_int_equal(post(&n, 0, &w), PAGES);
        for (uint32_t step = 0; step < steps; step++) {
            assert_true(hlg_loop_step(n.loop) != 0);
        }
        hlg_loop_kill(n.loop, victim);
        assert_false(hlg_loop_alive(n.loop, victim));
        landed = n.landings;
        hlg_loop_advance_to(n.loop, hlg_loop_now(n.loop) + config.death_ns_max);
        landed_by_bound = n.landings;
        poll_all(&n);
        assert_int_equal((victim == 0 ? b : a)->ops->receive(victim == 0 ? b : a, &frame, &bytes),
                         -HLG_EPEER);
        run_dry(&n);
        assert_int_equal(n.landings, landed_by_bound);
        if (victim == 1) {
            assert_int_equal(n.landings, landed);
            assert_int_equal(n.ends[0].done[0] + n.ends[0].failed[0], PAGES);
            assert_int_equal(n.ends[0].failed[0], PAGES - landed);
            assert_true(landed == PAGES || n.ends[0].status[0] == -HLG_EPEER);
            w.op = 1;
            while (post(&n, 0, &w) == PAGES) { /* until the writer knows */
                run_dry(&n);
            }
            run_dry(&n);
            assert_int_equal(n.ends[0].failed[1] % PAGES, 0);
            assert_int_equal(n.ends[0].downs, 1);
        } else {
            assert_int_equal(post(&n, 0, &w), -HLG_ESTATE);
            assert_true(n.ends[1].pieces <= n.landings);
            landed_late += n.landings > landed;
            n.ends[0].t->ops->close(n.ends[0].t);
            poll_end(&n, 0);
            assert_int_equal(n.ends[0].done[0] + n.ends[0].failed[0], PAGES);
        }
        downs += n.ends[1 - victim].downs;
        a->ops->close(a);
        b->ops->close(b);
        drop_net(&n);
    }
    assert_true(downs > 0 && downs < 2 * PAGES && landed_late > 0);
}

static void a_restarted_node_is_a_new_one(void **state)
{
    struct hlg_loop_config config = plain_config(14);
    struct hlg_fabric *fabric;
    struct hlg_transport *t;
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    hlg_loop_kill(n.loop, 1);
    fabric = hlg_loop_fabric(n.loop, 1);
    assert_int_equal(fabric->open(fabric, 0, 0, &t), -HLG_ESTATE);
    hlg_loop_restart(n.loop, 1);
    n.ends[1].t->ops->free(n.ends[1].t);
    open_end(&n, 1);
    w = make_write(&n, 0, 1, 0, 4); /* new key, old address, which it never met */
    assert_int_equal(post(&n, 0, &w), 0);
    run_dry(&n);
    assert_int_equal(n.ends[0].downs, 1);
    join(&n, 0, 1);
    w = make_write(&n, 0, 1, 1, 4);
    assert_int_equal(post(&n, 0, &w), 4);
    run_dry(&n);
    assert_int_equal(n.ends[0].done[1], 4);
    drop_net(&n);
}

static void make_frame(uint8_t *frame, uint32_t bytes, uint8_t mark)
{
    memset(frame, mark, bytes);
    for (uint32_t index = 0; index < 4; index++) {
        frame[index] = (uint8_t)(((bytes - 4) >> (8 * index)) & 0xffu);
    }
}

static void frames_come_whole_and_in_order(void **state)
{
    struct hlg_loop_config config = plain_config(15);
    uint32_t sent = 0;
    uint32_t got = 0;
    struct hlg_channel *a;
    struct hlg_channel *b;
    const uint8_t *frame;
    uint8_t buffer[512];
    uint32_t bytes;
    struct net n;

    (void)state;
    config.room_bytes = 1000;
    config.message_bytes_max = 512;
    config.frames_max = 5;
    make_net(&n, &config);
    assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 2, &a, &b), 0);
    assert_string_equal(a->ops->name(a), "loop node 2");
    assert_int_equal(a->ops->send(a, buffer, 513), -HLG_ELIMIT);
    while (got < 200) {
        make_frame(buffer, 8 + sent * 37 % 500, (uint8_t)sent);
        if (sent < 200 && a->ops->send(a, buffer, 8 + sent * 37 % 500) == 1) {
            sent++;
            continue;
        }
        assert_true(hlg_loop_step(n.loop) != 0 || sent > got);
        while (b->ops->receive(b, &frame, &bytes) == 1) {
            assert_int_equal(bytes, 8 + got * 37 % 500);
            assert_int_equal(frame[bytes - 1], (uint8_t)got);
            got++;
        }
    }
    assert_true(stats_of(&n).full > 0);
    make_frame(buffer, 100, 1);
    buffer[0]++; /* not a frame */
    assert_int_equal(a->ops->send(a, buffer, 100), 1);
    run_dry(&n);
    assert_int_equal(b->ops->receive(b, &frame, &bytes), -HLG_EPROTO);
    a->ops->close(a);
    b->ops->close(b);
    drop_net(&n);
}

/* Frames sent before close arrive before the end; frames sent before a break may not. */
static void channels_end_by_close_and_by_break(void **state)
{
    uint32_t lost = 0;
    uint32_t arrived = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        struct hlg_channel *a;
        struct hlg_channel *b;
        const uint8_t *frame;
        uint8_t buffer[64];
        uint32_t bytes;
        int status;
        uint32_t got = 0;
        struct net n;

        make_net(&n, &config);
        assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), 0);
        make_frame(buffer, 64, 1);
        for (uint32_t index = 0; index < 3; index++) {
            assert_int_equal(a->ops->send(a, buffer, 64), 1);
        }
        if (seed % 2 == 0) {
            a->ops->close(a);
        } else {
            hlg_loop_channel_break(n.loop, b);
        }
        run_dry(&n);
        while ((status = b->ops->receive(b, &frame, &bytes)) == 1) {
            got++;
        }
        assert_int_equal(status, -HLG_EPEER);
        assert_int_equal(b->ops->send(b, buffer, 64), -HLG_EPEER);
        if (seed % 2 == 0) {
            assert_int_equal(got, 3);
        } else {
            assert_int_equal(a->ops->receive(a, &frame, &bytes), -HLG_EPEER);
            assert_int_equal(a->ops->send(a, buffer, 64), -HLG_EPEER);
            a->ops->close(a);
            lost += 3 - got;
            arrived += got;
        }
        b->ops->close(b);
        for (uint32_t index = 0; index < config.channels_max; index++) { /* all pairs are free */
            assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), 0);
        }
        assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), -HLG_ELIMIT);
        drop_net(&n);
    }
    assert_true(lost > 0 && arrived > 0);
}

/* All faults at once, nodes restarted as they die. Returns the trace's hash. */
static uint64_t stormy_history(uint64_t seed, struct hlg_loop_stats *stats)
{
    struct hlg_loop_config config = plain_config(seed);
    uint32_t taken[OPS] = {0};
    uint32_t imms_due = 0;
    uint64_t hash;
    struct net n;

    config.kills_max = 2;
    config.faults = (struct hlg_loop_faults){
        .delay_ppm = 50000,
        .reorder_ppm = 50000,
        .duplicate_ppm = 50000,
        .refuse_ppm = 50000,
        .partial_ppm = 200000,
        .fail_before_ppm = 10000,
        .fail_after_ppm = 10000,
        .drop_ppm = 500,
        .kill_ppm = 500,
        .delay_ns_max = 100000,
        .refuse_ns_max = 2 * HLG_NS_PER_MS,
        .kill_ns_max = 100000,
    };
    make_net(&n, &config);
    for (uint32_t op = 0; op < OPS; op++) {
        const uint32_t from = op % NODES;
        const struct hlg_paged_write w =
            make_write(&n, from, (from + 1 + op % 2) % NODES, op, 1 + op * 7 % PAGES);
        const int64_t count = hlg_loop_alive(n.loop, from) ? post(&n, from, &w) : 0;

        assert_true(count >= 0);
        taken[op] = (uint32_t)count;
        (void)hlg_loop_step(n.loop);
        poll_all(&n);
    }
    run_dry(&n);
    for (uint32_t node = 0; node < NODES; node++) {
        n.ends[node].t->ops->close(n.ends[node].t);
    }
    run_dry(&n);
    for (uint32_t op = 0; op < OPS; op++) {
        const struct end *e = &n.ends[op % NODES];

        assert_int_equal(e->done[op] + e->failed[op], taken[op]);
        if (hlg_loop_alive(n.loop, (op % NODES + 1 + op % 2) % NODES)) {
            imms_due += e->done[op];
        }
    }
    assert_true(n.ends[0].pieces + n.ends[1].pieces + n.ends[2].pieces >= imms_due);
    hlg_loop_stats(n.loop, stats);
    hash = hlg_loop_trace_hash(n.loop);
    drop_net(&n);
    return hash;
}

static void equal_seeds_make_equal_histories(void **state)
{
    uint64_t before = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct hlg_loop_stats stats;
        struct hlg_loop_stats again;
        const uint64_t hash = stormy_history(seed, &stats);

        assert_true(hash == stormy_history(seed, &again));
        assert_memory_equal(&stats, &again, sizeof(stats));
        assert_true(hash != before);
        before = hash;
    }
}

static void every_fault_fires(void **state)
{
    uint64_t sums[sizeof(struct hlg_loop_stats) / sizeof(uint64_t)] = {0};
    struct hlg_loop_stats sum;

    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++) {
        struct hlg_loop_stats stats;
        uint64_t numbers[sizeof(stats) / sizeof(uint64_t)];

        (void)stormy_history(seed, &stats);
        memcpy(numbers, &stats, sizeof(stats));
        for (size_t index = 0; index < sizeof(numbers) / sizeof(numbers[0]); index++) {
            sums[index] += numbers[index];
        }
        assert_int_equal(stats.completions, stats.taken);
        assert_true(stats.kills <= 2 && (stats.drops == 0 || stats.kills > 0));
    }
    memcpy(&sum, sums, sizeof(sum));
    assert_true(sum.delays > 0 && sum.reorders > 0 && sum.duplicates > 0 && sum.refusals > 0);
    assert_true(sum.partials > 0 && sum.fails_before > 0 && sum.fails_after > 0 && sum.drops > 0);
    assert_true(sum.kills > 0 && sum.downs > 0 && sum.failures > 0);
}

static void duplicates_land_twice_before_their_immediate(void **state)
{
    struct hlg_loop_config config = plain_config(16);
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.faults.duplicate_ppm = 1000000;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, PAGES);
    assert_int_equal(post(&n, 0, &w), PAGES);
    run_dry(&n);
    assert_int_equal(n.landings, 2 * PAGES);
    assert_int_equal(n.again, PAGES);
    assert_int_equal(n.ends[1].immediates, PAGES);
    assert_int_equal(n.ends[0].done[0], PAGES);
    drop_net(&n);
}

static void failed_pieces_land_or_not_as_the_fault_says(void **state)
{
    struct hlg_loop_config config = plain_config(17);
    struct hlg_loop_faults faults = {.fail_after_ppm = 1000000};
    struct hlg_loop_stats stats;
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    config.faults.fail_before_ppm = 1000000;
    make_net(&n, &config);
    w = make_write(&n, 0, 1, 0, PAGES);
    assert_int_equal(post(&n, 0, &w), PAGES);
    run_dry(&n);
    hlg_loop_stats(n.loop, &stats);
    assert_in_range(stats.lates, 1, PAGES - 1);
    assert_int_equal(n.landings, stats.lates);
    assert_int_equal(n.ends[0].failed[0], PAGES);
    assert_int_equal(n.ends[1].pieces, stats.lates);
    hlg_loop_faults(n.loop, &faults);
    w.op = 1;
    assert_int_equal(post(&n, 0, &w), PAGES);
    run_dry(&n);
    assert_int_equal(n.landings, stats.lates + PAGES);
    assert_int_equal(n.ends[0].failed[1], PAGES);
    assert_true(n.ends[1].pieces > stats.lates && n.ends[1].pieces < stats.lates + PAGES);
    drop_net(&n);
}

/* A dropped piece leaves no trace until one of its nodes dies. */
static void dropped_pieces_come_with_a_death(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct hlg_loop_config config = plain_config(seed);
        struct net n;
        struct hlg_paged_write w;

        config.faults.drop_ppm = 1000000;
        make_net(&n, &config);
        w = make_write(&n, 0, 1, 0, 4);
        assert_int_equal(post(&n, 0, &w), 4);
        run_dry(&n);
        assert_int_equal(n.landings, 0);
        assert_true(hlg_loop_alive(n.loop, 0) != hlg_loop_alive(n.loop, 1));
        n.ends[0].t->ops->close(n.ends[0].t);
        poll_end(&n, 0);
        assert_int_equal(n.ends[0].failed[0], 4);
        assert_int_equal(n.ends[0].status[0],
                         hlg_loop_alive(n.loop, 0) ? -HLG_EPEER : -HLG_ECANCELED);
        assert_int_equal(stats_of(&n).kills, 1);
        drop_net(&n);
    }
}

static void channels_break_by_fault(void **state)
{
    struct hlg_loop_config config = plain_config(18);
    struct hlg_channel *a;
    struct hlg_channel *b;
    uint8_t buffer[16];
    struct net n;

    (void)state;
    config.faults.break_ppm = 300000;
    make_net(&n, &config);
    assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), 0);
    make_frame(buffer, 16, 0);
    while (a->ops->send(a, buffer, 16) == 1 && hlg_loop_step(n.loop) != 0) {
    }
    run_dry(&n);
    assert_int_equal(a->ops->send(a, buffer, 16), -HLG_EPEER);
    assert_true(stats_of(&n).breaks > 0);
    a->ops->close(a);
    b->ops->close(b);
    drop_net(&n);
}

static void nothing_is_allocated_after_set_up(void **state)
{
    struct hlg_loop_config config = plain_config(19);
    struct hlg_channel *a;
    struct hlg_channel *b;
    const uint8_t *frame;
    uint32_t bytes;
    uint8_t buffer[64];
    uint64_t before;
    struct net n;

    (void)state;
    before = allocations;
    make_net(&n, &config);
    assert_true(allocations > before);
    before = allocations;
    make_frame(buffer, 64, 0);
    for (uint32_t round = 0; round < 50; round++) {
        struct hlg_paged_write w = make_write(&n, 0, 1, round, PAGES);

        assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &a, &b), 0);
        assert_int_equal(post(&n, 0, &w), PAGES);
        assert_int_equal(a->ops->send(a, buffer, 64), 1);
        run_dry(&n);
        assert_int_equal(b->ops->receive(b, &frame, &bytes), 1);
        a->ops->close(a);
        b->ops->close(b);
        run_dry(&n);
        n.ends[1].t->ops->free(n.ends[1].t);
        open_end(&n, 1);
        assert_int_equal(n.ends[0].t->ops->peer_close(n.ends[0].t, w.peer), 0);
        join(&n, 0, 1);
    }
    assert_int_equal(allocations, before);
    drop_net(&n);
}

static void the_clock_goes_where_it_is_told(void **state)
{
    struct hlg_loop_config config = plain_config(20);
    struct hlg_transport_caps caps;
    struct net n;
    struct hlg_paged_write w;

    (void)state;
    make_net(&n, &config);
    n.ends[0].t->ops->query(n.ends[0].t, &caps);
    assert_string_equal(caps.provider, "loop");
    assert_true(caps.placed && !caps.pollable);
    assert_true(hlg_loop_next_time(n.loop) == HLG_TIME_NEVER);
    assert_int_equal(hlg_loop_step(n.loop), 0);
    w = make_write(&n, 0, 1, 0, 1);
    assert_int_equal(post(&n, 0, &w), 1);
    assert_true(hlg_loop_next_time(n.loop) >= config.land_ns.min);
    assert_int_equal(hlg_loop_advance_to(n.loop, config.land_ns.min - 1), 0);
    assert_int_equal(n.ends[0].t->ops->now(n.ends[0].t), config.land_ns.min - 1);
    assert_int_equal(hlg_loop_advance_to(n.loop, HLG_NS_PER_S), 3);
    assert_int_equal(hlg_loop_now(n.loop), HLG_NS_PER_S);
    drop_net(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_land_and_are_counted_on_both_sides),
        cmocka_unit_test(pieces_within_pages_go_where_the_write_says),
        cmocka_unit_test(payload_is_visible_before_its_own_immediate),
        cmocka_unit_test(source_bytes_are_read_late),
        cmocka_unit_test(a_write_takes_a_prefix_and_goes_on_from_there),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(wrong_keys_and_bounds_land_nothing),
        cmocka_unit_test(closing_the_source_ends_its_writes),
        cmocka_unit_test(closing_the_target_fails_what_is_under_way),
        cmocka_unit_test(a_reopened_endpoint_is_another),
        cmocka_unit_test(a_successor_at_the_same_address_goes_by_keys),
        cmocka_unit_test(writes_outlive_their_closed_peer),
        cmocka_unit_test(acknowledged_writes_complete_before_they_land),
        cmocka_unit_test(acknowledged_bytes_outlive_their_source_alone),
        cmocka_unit_test(a_bad_key_is_not_acknowledged),
        cmocka_unit_test(weights_are_summed_and_marks_kept_apart),
        cmocka_unit_test(immediates_wait_for_a_full_queue),
        cmocka_unit_test(a_refused_peer_holds_up_no_other),
        cmocka_unit_test(a_peer_refused_for_long_is_down),
        cmocka_unit_test(death_of_a_node_ends_everything_with_it),
        cmocka_unit_test(a_restarted_node_is_a_new_one),
        cmocka_unit_test(frames_come_whole_and_in_order),
        cmocka_unit_test(channels_end_by_close_and_by_break),
        cmocka_unit_test(equal_seeds_make_equal_histories),
        cmocka_unit_test(every_fault_fires),
        cmocka_unit_test(duplicates_land_twice_before_their_immediate),
        cmocka_unit_test(failed_pieces_land_or_not_as_the_fault_says),
        cmocka_unit_test(dropped_pieces_come_with_a_death),
        cmocka_unit_test(channels_break_by_fault),
        cmocka_unit_test(nothing_is_allocated_after_set_up),
        cmocka_unit_test(the_clock_goes_where_it_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
