#include "fault_net.h"

static void see_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct net *n = context;

    assert_true(n->landings < NET_LANDINGS);
    n->landed[n->landings] = (uint32_t)(landing->target_offset / NET_PAGE_BYTES);
    n->copies[n->landings] = hlg_fault_owns(n->fault, landing->source);
    n->landings++;
}

void net_open(struct net *n, uint32_t node)
{
    struct end *e = &n->ends[node];

    assert_int_equal(e->fabric->open(e->fabric, 0, 0, &e->t), 0);
    assert_int_equal(
        e->t->ops->mem_register(e->t, &HLG_MEM_HOST(e->memory, sizeof(e->memory)), &e->mem), 0);
    assert_int_equal(e->t->ops->mem_export(e->t, e->mem, &e->exported), 0);
}

void net_join(struct net *n, uint32_t from, uint32_t to)
{
    struct hlg_transport *t = n->ends[from].t;
    struct hlg_transport *other = n->ends[to].t;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    const int bytes = other->ops->address(other, address, sizeof(address));

    assert_true(bytes > 0);
    const int peer = t->ops->peer_open(t, address, (uint32_t)bytes);
    assert_true(peer >= 0);
    n->ends[from].peers[to] = (uint32_t)peer;
}

static void make_loop(struct net *n, uint64_t seed)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = seed;
    config.nodes = NET_NODES;
    config.stall_ns = NET_STALL_NS;
    config.domains_max = 8;
    config.land_ns = (struct hlg_loop_span){NET_US, NET_US};
    config.imm_ns = (struct hlg_loop_span){0, 0};
    config.done_ns = (struct hlg_loop_span){0, 0};
    config.frame_ns = (struct hlg_loop_span){10 * NET_US, 10 * NET_US};
    assert_int_equal(hlg_loop_create(&config, &n->loop), 0);
    hlg_loop_on_landing(n->loop, see_landing, n);
}

void net_script(struct net *n, const char *script)
{
    char error[256] = "";

    if (hlg_fault_script(n->fault, script, error, sizeof(error)) != 0) {
        fail_msg("%s", error);
    }
}

void net_make_of(struct net *n, const struct hlg_fault_config *config, const char *script)
{
    memset(n, 0, sizeof(*n));
    make_loop(n, config->seed);
    assert_int_equal(hlg_fault_create(config, &n->fault), 0);
    for (uint32_t node = 0; node < NET_NODES; node++) {
        struct end *e = &n->ends[node];

        assert_int_equal(
            hlg_fault_fabric(n->fault, node, hlg_loop_fabric(n->loop, node), &e->fabric), 0);
        net_open(n, node);
        for (uint32_t index = 0; index < sizeof(e->memory); index++) {
            e->memory[index] = (uint8_t)(index / NET_PAGE_BYTES + 80 * node + 1);
        }
    }
    for (uint32_t from = 0; from < NET_NODES; from++) {
        for (uint32_t to = 0; to < NET_NODES; to++) {
            net_join(n, from, to);
        }
    }
    for (uint32_t page = 0; page < NET_PAGES; page++) {
        n->pages[page] = page;
    }
    net_script(n, script);
}

void net_make(struct net *n, uint64_t seed, const char *script)
{
    struct hlg_fault_config config;

    hlg_fault_config_default(&config);
    config.seed = seed;
    config.nodes = NET_NODES;
    net_make_of(n, &config, script);
}

void net_drop(struct net *n)
{
    assert_int_equal(hlg_fault_check(n->fault), 0);
    for (uint32_t node = 0; node < NET_NODES; node++) {
        if (n->ends[node].t != NULL) {
            n->ends[node].t->ops->free(n->ends[node].t);
        }
    }
    assert_int_equal(hlg_fault_check(n->fault), 0);
    hlg_fault_destroy(n->fault);
    assert_int_equal(hlg_loop_check(n->loop), 0);
    hlg_loop_destroy(n->loop);
}

struct hlg_paged_write net_write(const struct net *n, uint32_t from, uint32_t to, hlg_op_id op,
                                 uint32_t begin, uint32_t limit)
{
    return (struct hlg_paged_write){
        .op = op,
        .peer = n->ends[from].peers[to],
        .mem = n->ends[from].mem,
        .imm = hlg_imm_make(5, op % 16, 0),
        .local = (uint8_t *)n->ends[from].memory,
        .local_stride = NET_PAGE_BYTES,
        .remote = n->ends[to].exported.address,
        .remote_key = n->ends[to].exported.key,
        .remote_stride = NET_PAGE_BYTES,
        .source_pages = n->pages,
        .target_pages = n->pages,
        .bytes = NET_PAGE_BYTES,
        .count = 1,
        .piece_begin = begin,
        .piece_limit = limit,
    };
}

int64_t net_post(struct net *n, uint32_t from, const struct hlg_paged_write *w)
{
    const int64_t taken = n->ends[from].t->ops->write(n->ends[from].t, w);

    assert_true(taken <= (int64_t)(w->piece_limit - w->piece_begin));
    n->ends[from].taken[w->op] += taken > 0 ? (uint32_t)taken : 0;
    return taken;
}

static void take(struct end *e, const struct hlg_transport_event *event)
{
    switch ((enum hlg_transport_event_kind)event->kind) {
    case HLG_TRANSPORT_IMM:
        assert_int_equal(hlg_imm_slot(event->imm.imm), 5);
        assert_true(event->imm.immediates > 0);
        e->pieces += event->imm.pieces;
        e->immediates += event->imm.immediates;
        e->generations[hlg_imm_generation(event->imm.imm) % 16] += event->imm.pieces;
        return;
    case HLG_TRANSPORT_DONE_WRITE:
        assert_true(event->done.op < NET_OPS && event->done.done + event->done.failed > 0);
        assert_true((event->done.failed == 0) == (event->done.status == 0));
        e->done[event->done.op] += event->done.done;
        e->failed[event->done.op] += event->done.failed;
        assert_true(e->done[event->done.op] + e->failed[event->done.op] <=
                    e->taken[event->done.op]);
        if (event->done.status != 0) {
            e->status[event->done.op] = event->done.status;
        }
        return;
    case HLG_TRANSPORT_PEER_DOWN:
        for (uint32_t node = 0; node < NET_NODES; node++) {
            e->downs[node] += e->peers[node] == event->peer;
        }
        return;
    }
    fail();
}

void net_poll(struct net *n, uint32_t node)
{
    struct hlg_transport *t = n->ends[node].t;
    struct hlg_transport_event events[3]; /* few, so that poll has to stop midway */
    int count = t != NULL ? 1 : 0;

    while (count > 0) {
        count = t->ops->poll(t, events, 3);
        assert_in_range(count, 0, 3);
        for (int index = 0; index < count; index++) {
            take(&n->ends[node], &events[index]);
        }
    }
}

static void poll_all(struct net *n)
{
    for (uint32_t node = 0; node < NET_NODES; node++) {
        net_poll(n, node);
    }
    for (uint32_t index = 0; index < 2; index++) {
        const uint8_t *frame;
        uint32_t bytes;

        while (n->polled[index] != NULL &&
               n->polled[index]->ops->receive(n->polled[index], &frame, &bytes) == 1) {
        }
    }
    assert_int_equal(hlg_fault_check(n->fault), 0);
}

static hlg_time next_time(const struct net *n)
{
    return hlg_min_time(hlg_loop_next_time(n->loop), hlg_fault_deadline(n->fault));
}

void net_pass(struct net *n, hlg_time span)
{
    const hlg_time end = hlg_loop_now(n->loop) + span;

    poll_all(n);
    while (next_time(n) <= end) {
        const hlg_time next = next_time(n);
        const hlg_time now = hlg_loop_now(n->loop);

        (void)hlg_loop_advance_to(n->loop, next > now ? next : now);
        poll_all(n);
    }
    (void)hlg_loop_advance_to(n->loop, end);
    poll_all(n);
}

void net_run_dry(struct net *n)
{
    poll_all(n);
    while (next_time(n) != HLG_TIME_NEVER) {
        net_pass(n, NET_US);
    }
}

uint64_t net_hits(const struct net *n, uint32_t kind)
{
    struct hlg_fault_stats stats;

    hlg_fault_stats(n->fault, &stats);
    return stats.hits[kind];
}

uint64_t net_held(const struct net *n)
{
    struct hlg_fault_stats stats;

    hlg_fault_stats(n->fault, &stats);
    return stats.held;
}

bool net_has(const struct net *n, uint32_t node, uint32_t page, uint32_t from)
{
    const size_t offset = (size_t)page * NET_PAGE_BYTES;

    return memcmp(n->ends[node].memory + offset, n->ends[from].memory + offset, NET_PAGE_BYTES) ==
           0;
}

bool net_is_even(const struct net *n, uint32_t node)
{
    const struct end *e = &n->ends[node];
    bool even = true;

    for (uint32_t op = 0; op < NET_OPS; op++) {
        even = even && e->done[op] + e->failed[op] == e->taken[op];
    }
    return even;
}

void net_post_all(struct net *n, uint32_t from, uint32_t to, hlg_op_id op, uint32_t pieces)
{
    const struct hlg_paged_write w = net_write(n, from, to, op, 0, pieces);

    assert_int_equal(net_post(n, from, &w), pieces);
}

void net_expect_done(const struct net *n, uint32_t node, hlg_op_id op, uint32_t done,
                     uint32_t failed)
{
    assert_int_equal(n->ends[node].done[op], done);
    assert_int_equal(n->ends[node].failed[op], failed);
}

struct wires net_wires(struct net *n)
{
    struct hlg_channel *a;
    struct hlg_channel *b;
    struct wires w;

    assert_int_equal(hlg_loop_channel_pair(n->loop, 0, 1, &a, &b), 0);
    assert_int_equal(hlg_fault_channel(n->fault, 0, 1, a, &w.a), 0);
    assert_int_equal(hlg_fault_channel(n->fault, 1, 0, b, &w.b), 0);
    return w;
}

int net_send(struct hlg_channel *c, uint8_t number)
{
    const uint8_t frame[5] = {1, 0, 0, 0, number};

    return c->ops->send(c, frame, sizeof(frame));
}

int net_receive(struct hlg_channel *from, struct hlg_channel *c)
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
