/*
 * halage/transport.h, line by line. Each test names the paragraph that it checks. Writer and target
 * are two endpoints of this thread; a peer that must die is a process of its own where it can be.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "../support/allocations.h"
#include "conformance.h"

static bool limited(uint32_t limits)
{
    return (conformance_backend.limits & limits) != 0;
}

static void skip_if(uint32_t limits)
{
    if (limited(limits)) {
        skip();
    }
}

/* ---- 1: prefixes, cursors, sums ------------------------------------------------------------- */

/* An operation larger than the window is taken in prefixes; offered again from the cursor, every
 * piece lands once, and the reports add up to what was taken. */
static void a_prefix_is_taken_and_the_cursor_resumes(void **state)
{
    struct fixture *f = *state;
    const uint32_t pieces = 4000;
    struct hlg_paged_write w = fixture_write(f, 7, 3, pieces, 512);
    uint32_t prefixes = 0;

    fixture_fill(f, f->writer.memory, (size_t)pieces * 512);
    while (w.piece_begin < pieces) {
        prefixes += fixture_offer(f, &w) > 0;
        fixture_round(f);
    }
    fixture_drain(f);
    fixture_expect(f, 3, pieces);
    assert_true(prefixes > 1);
    assert_int_equal(f->writer.tally.ops[7].over, pieces);
    assert_int_equal(f->writer.tally.ops[7].failed, 0);
    assert_int_equal(f->target.tally.slots[3].immediates, pieces);
    assert_memory_equal(f->writer.memory, f->target.memory, (size_t)pieces * 512);
    assert_int_equal(f->target.memory[(size_t)pieces * 512], 0);
}

/* With a target that makes no progress the window fills and stays bounded. */
static void the_window_is_bounded(void **state)
{
    struct fixture *f = *state;

    fixture_connect(f);
    struct hlg_paged_write w = fixture_write(f, 1, 1, 4000, 1024);
    f->target.dead = true; /* it is not polled */
    for (int i = 0; i < 500; i++) {
        assert_true(fixture_offer(f, &w) >= 0);
        node_poll(&f->writer);
    }
    f->target.dead = false;
    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, 1, 4000);
}

/* A peer that makes no progress takes a window and no more: there is room for others. */
static void a_silent_peer_leaves_room_for_others(void **state)
{
    struct fixture *f = *state;
    struct node *silent = &f->victim.node;
    struct hlg_paged_write w = fixture_write(f, 1, 1, 1, 65536);

    skip_if(LIMIT_HEAD_OF_LINE);
    node_open(silent, 2);
    w.peer = node_peer(&f->writer, silent);
    w.remote = silent->export.address;
    w.remote_key = silent->export.key;
    fixture_push(f, &w);
    fixture_drain(f);
    silent->dead = true; /* it is not polled */
    w.piece_limit = 4000;
    w.local_stride = 0;
    w.remote_stride = 0;
    for (int i = 0; i < 500 && f->writer.tally.down[w.peer] == 0; i++) {
        (void)fixture_offer(f, &w);
        node_poll(&f->writer);
    }
    struct hlg_paged_write other = fixture_write(f, 2, 2, 1000, 256);
    fixture_push(f, &other);
    while (f->writer.tally.ops[2].over < 1000) {
        fixture_round(f);
    }
    fixture_expect(f, 2, 1000);
    silent->dead = false;
    fixture_drain(f);
    assert_int_equal(f->writer.tally.ops[1].failed + f->writer.tally.ops[2].failed, 0);
}

static void bad_arguments_are_refused(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *t = f->writer.t;
    uint8_t noise[HLG_ADDRESS_BYTES_MAX];
    struct hlg_mem_export export;

    memset(noise, 0x5a, sizeof noise);
    assert_true(t->ops->peer_open(t, noise, 0) < 0);
    assert_true(t->ops->peer_open(t, noise, 3) < 0);
    assert_true(t->ops->peer_open(t, noise, sizeof noise) < 0);
    assert_true(t->ops->peer_close(t, 12345) < 0);
    assert_true(t->ops->mem_export(t, 12345, &export) < 0);
    struct hlg_paged_write w = fixture_write(f, 0, 0, 1, 64);
    w.peer = 15;
    assert_true(fixture_offer(f, &w) < 0);
    uint8_t small[1];
    assert_true(t->ops->address(t, small, sizeof small) < 0);
}

static uint32_t open_nobody(struct fixture *f)
{
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    const uint32_t bytes = conformance_backend.nobody(address, sizeof address);

    const int peer = f->writer.t->ops->peer_open(f->writer.t, address, bytes);
    assert_in_range(peer, 0, PEERS_MAX - 1);
    return (uint32_t)peer;
}

static void offer_to_nobody(struct fixture *f, struct hlg_paged_write *w)
{
    const int64_t taken = fixture_offer(f, w);

    assert_true(taken <= 0 || limited(LIMIT_TAKES_FIRST));
    w->piece_begin = 0; /* there is always something to offer */
}

/* A peer that never existed takes nothing (LIMIT_TAKES_FIRST: what it takes fails); others go on; it
 * is reported down, once, and not before stall_ns have passed. */
static void a_stalled_peer_is_down_once_and_others_go_on(void **state)
{
    struct fixture *f = *state;
    const uint32_t dead = open_nobody(f);
    struct hlg_paged_write to_dead = fixture_write(f, 1, 1, 8, 256);
    uint32_t live = 0;

    to_dead.peer = dead;
    assert_int_equal(f->writer.caps.stall_ns, STALL_NS);
    const hlg_time begin = f->writer.t->ops->now(f->writer.t);
    while (f->writer.tally.down[dead] == 0) {
        struct hlg_paged_write w = fixture_write(f, 2, 2, 16, 256);
        offer_to_nobody(f, &to_dead);
        fixture_push(f, &w);
        live += 16;
    }
    assert_true(limited(LIMIT_DOWN_AT_ONCE) ||
                f->writer.t->ops->now(f->writer.t) - begin >= STALL_NS);
    for (int i = 0; i < 200; i++) {
        offer_to_nobody(f, &to_dead);
        fixture_round(f);
    }
    fixture_drain(f);
    fixture_expect(f, 2, live);
    assert_int_equal(f->writer.tally.down[dead], 1);
    assert_int_equal(f->writer.tally.ops[1].failed, f->writer.tally.ops[1].taken);
    assert_int_equal(f->writer.tally.down[f->peer], 0);
    assert_int_equal(f->writer.tally.ops[2].failed, 0);
    assert_int_equal(f->writer.t->ops->peer_close(f->writer.t, dead), 0);
}

/* Killed, with writes under way or without: what was taken completes; then the peer is refused and
 * reported down, once; the other peer is unaffected. */
static void kill_victim(struct fixture *f, bool busy)
{
    struct hlg_paged_write w = fixture_write(f, 1, 1, 4000, 2048);

    skip_if(LIMIT_KILL_HANGS);
    victim_start(f);
    w.peer = node_peer(&f->writer, &f->victim.node);
    w.remote = f->victim.node.export.address;
    w.remote_key = f->victim.node.export.key;
    while (f->writer.tally.ops[1].over < 200) {
        assert_true(fixture_offer(f, &w) >= 0);
        fixture_round(f);
    }
    if (!busy) {
        fixture_drain(f);
    }
    victim_kill(f);
    while (f->writer.tally.down[w.peer] == 0) {
        struct hlg_paged_write other = fixture_write(f, 2, 2, 4, 256);
        w.piece_begin %= 2000; /* there is always something to offer */
        (void)fixture_offer(f, &w);
        fixture_push(f, &other);
    }
    for (int i = 0; i < 50; i++) {
        (void)fixture_offer(f, &w); /* what a dead peer's window still takes completes as well */
        fixture_round(f);
    }
    fixture_drain(f);
    assert_int_equal(f->writer.tally.down[w.peer], 1);
    assert_int_equal(f->writer.tally.down[f->peer], 0);
    assert_int_equal(f->writer.tally.ops[2].failed, 0);
}

static void a_peer_killed_while_busy_completes_what_it_took(void **state)
{
    kill_victim(*state, true);
}

static void a_peer_killed_while_idle_goes_down(void **state)
{
    kill_victim(*state, false);
}

/* Posted, hardly progressed, closed: what had not completed is reported as cancelled, nothing twice,
 * and what is reported as done is there. */
static void close_reports_what_was_under_way(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *t = f->writer.t;

    fixture_connect(f);
    fixture_fill(f, f->writer.memory, 20u << 16);
    struct hlg_paged_write a = fixture_write(f, 1, 1, 20, 1u << 16);
    struct hlg_paged_write b = fixture_write(f, 2, 2, 20, 1u << 16);
    assert_true(fixture_offer(f, &a) > 0);
    assert_true(fixture_offer(f, &b) >= 0); /* shm of libfabric 2 takes one large write at a time */
    assert_int_equal(t->ops->close(t), 0);
    assert_true(fixture_offer(f, &b) < 0);
    f->target.dead = true; /* not polled, so that nothing more lands before it is looked at */
    fixture_drain(f);
    for (hlg_op_id op = 1; op <= 2; op++) {
        const int32_t status = f->writer.tally.ops[op].status;
        assert_true(status == 0 || status == -HLG_ECANCELED);
    }
    if (f->writer.caps.placed && f->writer.tally.ops[1].failed == 0) {
        assert_memory_equal(f->target.memory, f->writer.memory, (size_t)a.piece_begin << 16);
    }
    struct hlg_transport_event event;
    assert_int_equal(t->ops->poll(t, &event, 1), 0);
    assert_int_equal(t->ops->close(t), 0);
}

/* ---- 2: immediates -------------------------------------------------------------------------- */

#define SINGLES 256u

struct singles {
    struct fixture *f;
    uint64_t offset[SINGLES];
    uint32_t bytes[SINGLES];
    uint32_t seen;
};

static void check_single(void *context, uint32_t slot)
{
    struct singles *s = context;

    assert_in_range(slot, 0, SINGLES - 1);
    assert_memory_equal(s->f->target.memory + s->offset[slot],
                        s->f->writer.memory + s->offset[slot], s->bytes[slot]);
    s->seen++;
}

/* Many writes of one piece under way at a time, of any size: the bytes of each are there when its
 * immediate is, in whatever order they come. */
static void bytes_are_readable_with_their_immediate(void **state)
{
    struct fixture *f = *state;
    static struct singles s;
    uint64_t end = 0;

    s = (struct singles){.f = f};
    fixture_fill(f, f->writer.memory, MEMORY_BYTES);
    f->target.tally.on_imm = check_single;
    f->target.tally.context = &s;
    for (uint32_t i = 0; i < SINGLES; i++) {
        const uint64_t most = UINT64_C(1) << fixture_random(f, i % 64 == 0 ? 21 : 16);
        s.offset[i] = end;
        s.bytes[i] = (uint32_t)(1 + fixture_random(f, most));
        end += s.bytes[i];
        assert_true(end <= MEMORY_BYTES);
        struct hlg_paged_write w = fixture_write(f, i, i, 1, s.bytes[i]);
        w.local += s.offset[i];
        w.remote += s.offset[i];
        while (fixture_offer(f, &w) == 0) {
            fixture_round(f);
        }
    }
    fixture_drain(f);
    while (s.seen < SINGLES) {
        fixture_round(f);
    }
    assert_int_equal(s.seen, SINGLES);
}

static void shuffle(struct fixture *f, uint32_t *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        const uint64_t j = fixture_random(f, i);
        const uint32_t page = pages[i - 1];
        pages[i - 1] = pages[j];
        pages[j] = page;
    }
}

/* Pages in any order, several pieces a page, different strides at both ends: pieces land where
 * the two address formulas say, and not a byte elsewhere. */
static void check_paged(struct fixture *f, uint32_t slot)
{
    uint32_t source_pages[64];
    uint32_t target_pages[64];
    struct hlg_paged_write w = fixture_write(f, slot, slot, 0, 0);
    uint32_t total = 0;

    const uint32_t page_count = 1 + (uint32_t)fixture_random(f, 64);
    shuffle(f, source_pages, page_count);
    shuffle(f, target_pages, page_count);
    w.source_pages = source_pages;
    w.target_pages = target_pages;
    w.count = 1 + (uint32_t)fixture_random(f, 5);
    HLG_ASSERT(page_count > 0 && w.count > 0);
    w.bytes = 1 + (uint32_t)fixture_random(f, MEMORY_BYTES / page_count / w.count / 2 - 64);
    w.source_stride = w.bytes + (uint32_t)fixture_random(f, 8);
    w.target_stride = w.bytes + (uint32_t)fixture_random(f, 8);
    w.source_offset = (uint32_t)fixture_random(f, 16);
    w.target_offset = (uint32_t)fixture_random(f, 16);
    w.local_stride = (uint64_t)w.source_stride * w.count + 16;
    w.remote_stride = (uint64_t)w.target_stride * w.count + 16;
    w.piece_limit = page_count * w.count;
    memset(f->target.memory, GUARD, MEMORY_BYTES);
    fixture_push(f, &w);
    fixture_expect(f, slot, w.piece_limit);
    w.remote = 0;
    for (uint32_t i = 0; i < w.piece_limit; i++) {
        uint8_t *landed = f->target.memory + hlg_paged_write_target(&w, i);
        assert_memory_equal(landed, hlg_paged_write_source(&w, i), w.bytes);
        memset(landed, GUARD, w.bytes);
    }
    for (uint32_t i = 0; i < MEMORY_BYTES; i++) {
        total += f->target.memory[i] != GUARD;
    }
    assert_int_equal(total, 0);
    fixture_drain(f);
}

static void pages_and_strides_land_where_they_should(void **state)
{
    struct fixture *f = *state;

    fixture_fill(f, f->writer.memory, MEMORY_BYTES);
    for (uint32_t slot = 0; slot < 24; slot++) {
        check_paged(f, slot);
    }
}

/* Slots and generations interleaved, weights drawn: sums are exact, marks count no pieces. */
static void coalesced_sums_are_exact(void **state)
{
    struct fixture *f = *state;
    static uint32_t pieces[SLOTS_MAX];
    static uint32_t immediates[SLOTS_MAX];
    static uint32_t marks[SLOTS_MAX];

    for (uint32_t i = 0; i < 600; i++) {
        const uint32_t slot = (uint32_t)(fixture_random(f, 4) | fixture_random(f, 4) << 8);
        const uint32_t weight = (uint32_t)fixture_random(f, 16);
        const uint32_t count = 1 + (uint32_t)fixture_random(f, 6);
        struct hlg_paged_write w = fixture_write(f, i, slot, count, 8);
        w.imm = slot_imm(slot, weight);
        while (w.piece_begin < w.piece_limit) {
            assert_true(fixture_offer(f, &w) >= 0);
            if (fixture_random(f, 16) == 0 || w.piece_begin < w.piece_limit) {
                fixture_round(f);
            }
        }
        immediates[slot] += count;
        marks[slot] += weight == HLG_IMM_WEIGHT_MARK ? count : 0;
        pieces[slot] += weight == HLG_IMM_WEIGHT_MARK ? 0 : count << weight;
    }
    fixture_drain(f);
    for (uint32_t slot = 0; slot < SLOTS_MAX; slot++) {
        while (f->target.tally.slots[slot].immediates < immediates[slot]) {
            fixture_round(f);
        }
    }
    for (int i = 0; i < 100; i++) {
        fixture_round(f);
    }
    for (uint32_t slot = 0; slot < SLOTS_MAX; slot++) {
        assert_int_equal(f->target.tally.slots[slot].immediates, immediates[slot]);
        assert_int_equal(f->target.tally.slots[slot].marks, marks[slot]);
        assert_int_equal(f->target.tally.slots[slot].pieces, pieces[slot]);
    }
}

/* A poll of one event at a time loses nothing either. */
static void a_small_event_array_loses_nothing(void **state)
{
    struct fixture *f = *state;

    f->writer.events_max = 1;
    f->target.events_max = 1;
    for (hlg_op_id op = 0; op < 100; op++) {
        struct hlg_paged_write w = fixture_write(f, op, op, 3, 32);
        fixture_push(f, &w);
    }
    fixture_drain(f);
    for (uint32_t slot = 0; slot < 100; slot++) {
        fixture_expect(f, slot, 3);
    }
}

/* ---- 3: refused writes ---------------------------------------------------------------------- */

/* Wrong key, and beyond the registration: memory stays as it was and the failure, if one is reported
 * at all, is of that operation. */
static void refuse(struct fixture *f, struct hlg_paged_write w)
{
    memset(f->target.memory, GUARD, MEMORY_BYTES);
    fixture_fill(f, f->writer.memory, 4096);
    w.piece_limit = limited(LIMIT_FALSE_SUCCESS) ? 1 : w.piece_limit;
    fixture_push(f, &w);
    if (limited(LIMIT_FALSE_SUCCESS)) {
        for (int i = 0; i < 2000; i++) {
            fixture_round(f);
        }
    } else {
        fixture_drain(f);
        assert_int_equal(f->writer.tally.ops[w.op].failed, w.piece_limit);
        assert_true(f->writer.tally.ops[w.op].status < 0);
    }
    assert_int_equal(f->target.tally.slots[1].immediates, 0);
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        assert_int_equal(f->target.memory[i], GUARD);
    }
    if (!limited(LIMIT_FALSE_SUCCESS | LIMIT_ERROR_IS_FINAL)) {
        struct hlg_paged_write good = fixture_write(f, 9, 9, 4, 512);
        fixture_push(f, &good);
        fixture_drain(f);
        fixture_expect(f, 9, 4);
        assert_int_equal(f->writer.tally.ops[9].failed, 0);
    }
}

static void a_wrong_key_changes_nothing(void **state)
{
    struct fixture *f = *state;

    fixture_connect(f);
    struct hlg_paged_write w = fixture_write(f, 1, 1, 3, 1024);
    w.remote_key ^= 0x10;
    refuse(f, w);
}

static void a_write_out_of_bounds_changes_nothing(void **state)
{
    struct fixture *f = *state;

    fixture_connect(f);
    struct hlg_paged_write w = fixture_write(f, 1, 1, 1, 1024);
    w.remote += MEMORY_BYTES - 512;
    refuse(f, w);
}

/* Registrations of both ends and of later endpoints never share a key. */
static void keys_are_unique(void **state)
{
    struct fixture *f = *state;
    enum {
        COUNT = 128
    };
    static uint64_t keys[2 * COUNT];
    static hlg_mem mems[2 * COUNT];
    uint32_t count = 0;

    for (uint32_t i = 0; i < COUNT; i++) {
        struct node *const nodes[] = {&f->writer, &f->target};
        for (uint32_t n = 0; n < 2; n++) {
            struct hlg_transport *t = nodes[n]->t;
            struct hlg_mem_export export;
            assert_int_equal(
                t->ops->mem_register(t, &HLG_MEM_HOST(nodes[n]->memory + (size_t)i * 4096, 4096),
                                     &mems[count]),
                0);
            assert_int_equal(t->ops->mem_export(t, mems[count], &export), 0);
            for (uint32_t j = 0; j < count; j++) {
                assert_true(keys[j] != export.key);
            }
            keys[count++] = export.key;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct hlg_transport *t = i % 2 == 0 ? f->writer.t : f->target.t;
        assert_int_equal(t->ops->mem_release(t, mems[i]), 0);
    }
}

/* A released number is used again, and the registrations that stay still work. */
static void registrations_come_and_go(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *t = f->target.t;
    hlg_mem highest = 0;

    for (uint32_t i = 0; i < 500; i++) {
        hlg_mem mem = 0;
        assert_int_equal(t->ops->mem_register(t, &HLG_MEM_HOST(f->target.memory, 1u << 20), &mem),
                         0);
        highest = mem > highest ? mem : highest;
        assert_int_equal(t->ops->mem_release(t, mem), 0);
    }
    assert_in_range(highest, 0, 4);
    fixture_connect(f);
}

/* ---- 4: threads and memory ------------------------------------------------------------------ */

static void nothing_is_allocated_after_setup(void **state)
{
    struct fixture *f = *state;
    void *volatile one = NULL;

    uint64_t before = allocations;
    one = malloc(1); /* the count works */
    free(one);
    assert_int_equal(allocations, before + 1);

    before = allocations;
    for (hlg_op_id op = 0; op < 8; op++) {
        struct hlg_paged_write w = fixture_write(f, op, op, 200, 2048);
        fixture_push(f, &w);
        fixture_drain(f);
        fixture_expect(f, op, 200);
    }
    assert_int_equal(allocations, before);
}

/* Sleep until the descriptor says otherwise. Fails the test when nothing wakes it for 10 s. */
static void sleep_on(struct node *node)
{
    const int fd = node->t->ops->wait_fd(node->t);

    if (fd >= 0) {
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&wanted, 1, 10000), 1);
    }
}

/* The other end in its own thread; it uses no cmocka assertions. */
static void *write_forty(void *context)
{
    struct fixture *f = context;
    struct hlg_transport *t = f->writer.t;
    struct hlg_paged_write w = fixture_write(f, 1, 1, 40, 4096);
    uint32_t done = 0;

    while (done < 40) {
        struct hlg_transport_event events[4];
        if (w.piece_begin < done + 1 && w.piece_begin < 40) {
            w.piece_limit = w.piece_begin + 1; /* one at a time: the target sleeps in between */
            const int64_t taken = t->ops->write(t, &w);
            w.piece_begin += taken > 0 ? (uint32_t)taken : 0;
        }
        const int count = t->ops->poll(t, events, 4);
        for (int i = 0; i < count; i++) {
            done += events[i].kind == HLG_TRANSPORT_DONE_WRITE ? events[i].done.done : 0;
        }
    }
    return NULL;
}

static void a_sleeper_wakes_for_each_write(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;

    if (!f->target.caps.pollable) {
        assert_true(f->target.t->ops->wait_fd(f->target.t) < 0);
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, write_forty, f), 0);
    node_poll(&f->target);
    while (f->target.tally.slots[1].pieces < 40) {
        sleep_on(&f->target);
        node_poll(&f->target);
    }
    /* The writer still needs this end for its last acknowledgements. */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        node_poll(&f->target);
    }
    assert_int_equal(f->target.tally.slots[1].pieces, 40);
}

static void *wake_target(void *context)
{
    struct hlg_transport *t = context;

    t->ops->wake(t);
    return NULL;
}

static void wake_ends_a_sleep(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *t = f->target.t;
    pthread_t thread;

    t->ops->wake(t); /* harmless when nobody sleeps */
    if (!f->target.caps.pollable) {
        skip();
    }
    for (int i = 0; i < 20; i++) {
        int fd = t->ops->wait_fd(t);
        while (fd < 0) {
            node_poll(&f->target);
            fd = t->ops->wait_fd(t);
        }
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        assert_int_equal(pthread_create(&thread, NULL, wake_target, t), 0);
        assert_int_equal(poll(&wanted, 1, 10000), 1);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

/* ---- 5: closing ----------------------------------------------------------------------------- */

/* The target closes while the writer goes on writing: not a byte changes afterwards. */
static void nothing_lands_after_the_target_closed(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *t = f->target.t;
    struct hlg_paged_write w = fixture_write(f, 1, 1, 4000, 2048);

    skip_if(LIMIT_PEERS_STAY);
    fixture_fill(f, f->writer.memory, MEMORY_BYTES);
    while (f->target.tally.slots[1].pieces < 300) {
        assert_true(fixture_offer(f, &w) >= 0);
        fixture_round(f);
    }
    assert_int_equal(t->ops->close(t), 0);
    uint8_t *before = malloc(MEMORY_BYTES);
    assert_non_null(before);
    memcpy(before, f->target.memory, MEMORY_BYTES);
    fixture_fill(f, f->writer.memory, MEMORY_BYTES);
    const hlg_time begin = f->writer.t->ops->now(f->writer.t);
    while (f->writer.t->ops->now(f->writer.t) - begin < STALL_NS / 3) {
        if (!limited(LIMIT_KILL_HANGS)) {
            w.piece_begin %= 2000;
            (void)fixture_offer(f, &w);
        }
        fixture_round(f);
    }
    assert_memory_equal(before, f->target.memory, MEMORY_BYTES);
    free(before);
    assert_int_equal(f->writer.t->ops->close(f->writer.t), 0);
    fixture_drain(f);
}

/* The same with a writer in another process, which nothing here holds back. */
static void nothing_lands_from_another_process_either(void **state)
{
    struct fixture *f = *state;

    if (conformance_backend.kill != NULL) {
        skip();
    }
    flooder_start(f, true);
    while (f->target.tally.slots[1].pieces < 500) {
        fixture_round(f);
    }
    assert_int_equal(f->target.t->ops->close(f->target.t), 0);
    uint8_t *before = malloc(MEMORY_BYTES);
    assert_non_null(before);
    memcpy(before, f->target.memory, MEMORY_BYTES);
    flooder_await_refusal(f);
    victim_kill(f);
    assert_memory_equal(before, f->target.memory, MEMORY_BYTES);
    free(before);
}

/* A writer is killed while much of what it wrote waits unread: the target reads it, goes on with its
 * other peers, and closes. */
static void a_writer_that_dies_leaves_the_target_whole(void **state)
{
    struct fixture *f = *state;

    skip_if(LIMIT_KILL_HANGS | LIMIT_CUT_WRITE_BREAKS);
    if (conformance_backend.kill != NULL) {
        skip();
    }
    fixture_connect(f);
    flooder_start(f, false);
    while (f->target.tally.slots[1].pieces < 500) {
        fixture_round(f);
    }
    const hlg_time begin = f->target.t->ops->now(f->target.t);
    f->target.dead = true; /* not polled */
    while (f->target.t->ops->now(f->target.t) - begin < STALL_NS / 6) {
        fixture_round(f);
    }
    victim_kill(f);
    f->target.dead = false;
    struct hlg_paged_write w = fixture_write(f, 5, 5, 1000, 4096);
    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, 5, 1000);
    assert_int_equal(f->writer.tally.ops[5].failed, 0);
    assert_int_equal(f->target.t->ops->close(f->target.t), 0);
}

static void check_late(void *context, uint32_t slot)
{
    struct fixture *f = context;
    const uint32_t pieces = f->target.tally.slots[slot].pieces;

    if (slot == 1 && pieces == 20) {
        assert_memory_equal(f->target.memory, f->writer.memory, 20 * 4096);
    }
}

/* The writer closes with writes under way, reported as cancelled: some may land all the same (over
 * TCP they do), and then they are whole and have their immediates, until the target closes too. */
static void cancelled_writes_land_whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;

    skip_if(LIMIT_PEERS_STAY);
    fixture_connect(f);
    fixture_fill(f, f->writer.memory, 20 * 4096);
    memset(f->target.memory, GUARD, 20 * 4096);
    struct hlg_paged_write w = fixture_write(f, 1, 1, 20, 4096);
    f->target.dead = true;
    while (w.piece_begin < w.piece_limit) {
        assert_true(fixture_offer(f, &w) >= 0);
        fixture_round(f);
    }
    assert_int_equal(f->writer.t->ops->close(f->writer.t), 0);
    fixture_drain(f);
    f->target.dead = false;
    f->target.tally.on_imm = check_late;
    f->target.tally.context = f;
    for (int i = 0; i < 200; i++) {
        fixture_round(f);
    }
    assert_int_equal(f->target.t->ops->close(f->target.t), 0);
    assert_in_range(f->target.tally.slots[1].pieces, 0, 20);
}

/* A fence domain is closed and opened again: fresh keys, fresh address, and writes arrive. */
static void an_endpoint_can_be_opened_again(void **state)
{
    struct fixture *f = *state;
    const uint64_t key = f->target.export.key;

    skip_if(LIMIT_PEERS_STAY);
    fixture_connect(f);
    f->target.t->ops->free(f->target.t);
    memset(&f->target.tally, 0, sizeof f->target.tally);
    node_endpoint(&f->target);
    assert_true(f->target.export.key != key);
    assert_int_equal(f->writer.t->ops->peer_close(f->writer.t, f->peer), 0);
    f->peer = node_peer(&f->writer, &f->target);
    struct hlg_paged_write w = fixture_write(f, 5, 5, 100, 4096);
    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, 5, 100);
    assert_int_equal(f->writer.tally.ops[5].failed, 0);
}

/* After peer_close nothing new goes, what is under way completes, the number is used again. */
static void peer_close_lets_writes_finish(void **state)
{
    struct fixture *f = *state;

    fixture_connect(f);
    struct hlg_paged_write w = fixture_write(f, 1, 1, 60, 4096);
    const int64_t taken = fixture_offer(f, &w);
    assert_true(taken > 0);
    assert_int_equal(f->writer.t->ops->peer_close(f->writer.t, f->peer), 0);
    assert_true(fixture_offer(f, &w) < 0);
    assert_true(f->writer.t->ops->peer_close(f->writer.t, f->peer) < 0);
    fixture_drain(f);
    fixture_expect(f, 1, (uint32_t)taken);
    assert_int_equal(f->writer.tally.ops[1].failed, 0);
    assert_int_equal(node_peer(&f->writer, &f->target), f->peer);
    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, 1, 60);
}

static void peers_churn(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < 200; i++) {
        struct hlg_paged_write w = fixture_write(f, i, i, 3, 64);
        fixture_push(f, &w);
        fixture_drain(f);
        fixture_expect(f, i, 3);
        assert_int_equal(f->writer.t->ops->peer_close(f->writer.t, f->peer), 0);
        f->peer = node_peer(&f->writer, &f->target);
        assert_in_range(f->peer, 0, 1);
    }
}

/* Endpoints of other nodes come and go while this one stays. */
static void endpoints_churn(void **state)
{
    struct fixture *f = *state;

    skip_if(LIMIT_PEERS_STAY);
    for (uint32_t i = 0; i < 12; i++) {
        struct hlg_paged_write w = fixture_write(f, i, i, 20, 1024);
        fixture_push(f, &w);
        fixture_drain(f);
        fixture_expect(f, i, 20);
        assert_int_equal(f->writer.tally.ops[i].failed, 0);
        assert_int_equal(f->target.t->ops->close(f->target.t), 0);
        f->target.t->ops->free(f->target.t);
        node_endpoint(&f->target);
        assert_int_equal(f->writer.t->ops->peer_close(f->writer.t, f->peer), 0);
        f->peer = node_peer(&f->writer, &f->target);
    }
}

/* ---- 6: capabilities ------------------------------------------------------------------------ */

static void capabilities_are_plausible(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport_caps caps;

    f->writer.fabric->query(f->writer.fabric, &caps);
    assert_memory_equal(caps.provider, f->writer.caps.provider, sizeof caps.provider);
    assert_int_equal(caps.pollable, f->writer.caps.pollable);
    assert_int_equal(caps.placed, f->writer.caps.placed);
    assert_int_equal(caps.pieces_max, f->writer.caps.pieces_max);
    assert_true(caps.provider[0] != 0);
    assert_true(memchr(caps.provider, 0, sizeof caps.provider) != NULL);
    assert_true(caps.domains_max >= 1 && caps.pieces_max >= 1 && caps.cq_depth >= 1);
    assert_true(caps.piece_bytes_max >= 1u << 20);
    assert_true(f->writer.fabric->rails >= 1);
    const hlg_time before = f->writer.fabric->now(f->writer.fabric);
    assert_true(f->writer.t->ops->now(f->writer.t) >= before);
    const hlg_time now = f->writer.t->ops->now(f->writer.t);
    assert_true(f->writer.t->ops->now(f->writer.t) >= now);
}

/* As many fence domains as the backend says it affords, at most eight here, side by side. */
static void fence_domains_live_side_by_side(void **state)
{
    struct fixture *f = *state;
    struct hlg_transport *extra[8];
    const uint32_t count = hlg_min_u32(f->target.caps.domains_max, 8) - 2;

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(f->target.fabric->open(f->target.fabric, 0, 0, &extra[i]), 0);
    }
    fixture_connect(f);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(extra[i]->ops->close(extra[i]), 0);
        extra[i]->ops->free(extra[i]);
    }
    struct hlg_paged_write w = fixture_write(f, 1, 1, 100, 1024);
    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, 1, 100);
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

/* Returns what the sentinel said of its read, in 5 s. */
static int read_back(struct fixture *f, struct hlg_sentinel *s)
{
    const hlg_time begun = f->target.fabric->now(f->target.fabric);
    int begin = 0;
    int over = 0;

    while (over == 0 && f->target.fabric->now(f->target.fabric) - begun <
                            5 * fixture_slowness() * HLG_NS_PER_S) {
        if (begin == 0) {
            begin = s->ops->read(s);
        }
        over = begin > 0 ? s->ops->poll(s) : begin;
        fixture_round(f);
    }
    return over;
}

/* A node reads its own memory through its own NIC, also while peers write there, and changes nothing. */
static void memory_can_be_read_back(void **state)
{
    struct fixture *f = *state;
    struct hlg_fabric *fabric = f->target.fabric;
    struct hlg_sentinel *sentinels[2] = {NULL};

    if (fabric->sentinel_open == NULL) {
        skip();
    }
    const struct hlg_mem_region region = HLG_MEM_HOST(f->target.memory, MEMORY_BYTES);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fabric->sentinel_open(fabric, 0, 0, &region, &sentinels[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct hlg_paged_write w = fixture_write(f, i, i, 50, 1024);
        fixture_push(f, &w);
        assert_int_equal(read_back(f, sentinels[i % 2]), 1);
        fixture_drain(f);
        fixture_expect(f, i, 50);
        assert_memory_equal(f->target.memory, f->writer.memory, 50 * 1024);
    }
    (void)sentinels[0]->ops->read(sentinels[0]); /* and is freed in the midst of it */
    for (uint32_t i = 0; i < 2; i++) {
        sentinels[i]->ops->free(sentinels[i]);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(capabilities_are_plausible),
        T(a_prefix_is_taken_and_the_cursor_resumes),
        T(the_window_is_bounded),
        T(a_silent_peer_leaves_room_for_others),
        T(bad_arguments_are_refused),
        T(a_stalled_peer_is_down_once_and_others_go_on),
        T(a_peer_killed_while_busy_completes_what_it_took),
        T(a_peer_killed_while_idle_goes_down),
        T(close_reports_what_was_under_way),
        T(bytes_are_readable_with_their_immediate),
        T(pages_and_strides_land_where_they_should),
        T(coalesced_sums_are_exact),
        T(a_small_event_array_loses_nothing),
        T(a_wrong_key_changes_nothing),
        T(a_write_out_of_bounds_changes_nothing),
        T(keys_are_unique),
        T(registrations_come_and_go),
        T(nothing_is_allocated_after_setup),
        T(a_sleeper_wakes_for_each_write),
        T(wake_ends_a_sleep),
        T(nothing_lands_after_the_target_closed),
        T(nothing_lands_from_another_process_either),
        T(a_writer_that_dies_leaves_the_target_whole),
        T(cancelled_writes_land_whole_or_not_at_all),
        T(an_endpoint_can_be_opened_again),
        T(peer_close_lets_writes_finish),
        T(peers_churn),
        T(endpoints_churn),
        T(fence_domains_live_side_by_side),
        T(memory_can_be_read_back),
    };

    if (argc == 2 && strncmp(argv[1], "--", 2) == 0) {
        return other_main(argv[1]);
    }
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name(conformance_backend.name, tests, NULL, NULL);
}
