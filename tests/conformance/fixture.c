/* Two endpoints of one thread, what they have seen, and a third node that can be killed. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

#define WATCHDOG_S   30
#define BURST_PIECES 3000u /* fewer than a target's queue takes unread: hlg_ofi_config.cq_depth */
#define OTHER_FD     3

/* ---- time ----------------------------------------------------------------------------------- */

uint32_t fixture_slowness(void)
{
    const char *text = getenv("HALAGE_TEST_SLOWNESS");
    const unsigned long times = text != NULL ? strtoul(text, NULL, 10) : 1;

    assert_in_range(times, 1, 100);
    return (uint32_t)times;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void node_endpoint(struct node *node)
{
    struct hlg_transport *t = NULL;

    assert_int_equal(node->fabric->open(node->fabric, 0, 0, &t), 0);
    node->t = t;
    t->ops->query(t, &node->caps);
    assert_int_equal(t->ops->mem_register(t, &HLG_MEM_HOST(node->memory, MEMORY_BYTES), &node->mem),
                     0);
    assert_int_equal(t->ops->mem_export(t, node->mem, &node->export), 0);
    const int bytes = t->ops->address(t, node->address, sizeof node->address);
    assert_in_range(bytes, 1, sizeof node->address);
    node->address_bytes = (uint32_t)bytes;
    node->dead = false;
}

void node_open(struct node *node, uint32_t number)
{
    node->memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(node->memory, MAP_FAILED);
    node->fabric = conformance_backend.open(number, STALL_NS);
    assert_non_null(node->fabric);
    node_endpoint(node);
}

void node_close(struct node *node)
{
    if (node->t != NULL) {
        node->t->ops->free(node->t);
    }
    if (node->fabric != NULL) {
        conformance_backend.close(node->fabric);
    }
    if (node->memory != NULL) {
        (void)munmap(node->memory, MEMORY_BYTES);
    }
    *node = (struct node){.t = NULL};
}

static void see_done(struct tally *tally, const struct hlg_transport_event *event)
{
    const hlg_op_id op = event->done.op;

    assert_in_range(op, 0, OPS_MAX - 1);
    const uint32_t over = event->done.done + event->done.failed;
    assert_true(over > 0);
    assert_int_equal(event->done.failed > 0, event->done.status < 0);
    tally->ops[op].over += over;
    tally->ops[op].failed += event->done.failed;
    tally->over += over;
    if (tally->ops[op].status == 0) {
        tally->ops[op].status = event->done.status;
    }
    assert_true(tally->ops[op].over <= tally->ops[op].taken);
}

static void see_imm(struct tally *tally, const struct hlg_transport_event *event)
{
    const uint32_t slot = hlg_imm_slot(event->imm.imm) | hlg_imm_generation(event->imm.imm) << 8;

    assert_in_range(hlg_imm_slot(event->imm.imm), 0, 0xff);
    assert_in_range(slot, 0, SLOTS_MAX - 1);
    assert_true(event->imm.immediates > 0);
    tally->slots[slot].immediates += event->imm.immediates;
    tally->slots[slot].pieces += event->imm.pieces;
    if (hlg_imm_weight(event->imm.imm) == HLG_IMM_WEIGHT_MARK) {
        assert_int_equal(event->imm.pieces, 0);
        tally->slots[slot].marks += event->imm.immediates;
    }
    if (tally->on_imm != NULL) {
        tally->on_imm(tally->context, slot);
    }
}

void node_poll(struct node *node)
{
    struct hlg_transport_event events[EVENTS];

    if (node->t == NULL || node->dead) {
        return;
    }
    const uint32_t capacity = node->events_max != 0 ? node->events_max : EVENTS;
    const int count = node->t->ops->poll(node->t, events, capacity);
    assert_in_range(count, 0, EVENTS);
    for (int i = 0; i < count; i++) {
        switch ((enum hlg_transport_event_kind)events[i].kind) {
        case HLG_TRANSPORT_DONE_WRITE:
            see_done(&node->tally, &events[i]);
            break;
        case HLG_TRANSPORT_IMM:
            see_imm(&node->tally, &events[i]);
            break;
        case HLG_TRANSPORT_PEER_DOWN:
            assert_in_range(events[i].peer, 0, PEERS_MAX - 1);
            node->tally.down[events[i].peer]++;
            break;
        }
    }
}

uint32_t node_peer(struct node *node, const struct node *other)
{
    const int peer = node->t->ops->peer_open(node->t, other->address, other->address_bytes);

    assert_in_range(peer, 0, PEERS_MAX - 1);
    return (uint32_t)peer;
}

/* ---- the fixture ---------------------------------------------------------------------------- */

static void on_alarm(int signal)
{
    static const char text[] = "the watchdog ended this test\n";

    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        _exit(2);
    }
    _exit(1);
}

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)signal(SIGALRM, on_alarm);
    (void)alarm(WATCHDOG_S * fixture_slowness());
    const char *seed = getenv("HALAGE_SEED");
    f->seed = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    f->random = f->seed;
    for (uint32_t i = 0; i < sizeof f->pages / sizeof f->pages[0]; i++) {
        f->pages[i] = i;
    }
    node_open(&f->writer, 0);
    node_open(&f->target, 1);
    f->peer = node_peer(&f->writer, &f->target);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;

    victim_kill(f);
    node_close(&f->victim.node);
    node_close(&f->writer);
    node_close(&f->target);
    free(f);
    (void)alarm(0);
    return 0;
}

/* splitmix64 */
uint64_t fixture_random(struct fixture *f, uint64_t limit)
{
    uint64_t z = f->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % limit;
}

void fixture_fill(struct fixture *f, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i + 8 <= count; i += 8) {
        const uint64_t word = fixture_random(f, UINT64_MAX);
        memcpy(bytes + i, &word, sizeof word);
    }
}

void fixture_round(struct fixture *f)
{
    if (conformance_backend.step != NULL) {
        conformance_backend.step();
    }
    node_poll(&f->writer);
    node_poll(&f->target);
    if (f->victim.pid > 0) {
        (void)sched_yield();
    } else {
        node_poll(&f->victim.node);
    }
}

struct hlg_paged_write fixture_write(struct fixture *f, hlg_op_id op, uint32_t slot,
                                     uint32_t pieces, uint32_t bytes)
{
    return (struct hlg_paged_write){
        .op = op,
        .peer = f->peer,
        .mem = f->writer.mem,
        .imm = slot_imm(slot, 0),
        .local = f->writer.memory,
        .local_stride = bytes,
        .remote = f->target.export.address,
        .remote_key = f->target.export.key,
        .remote_stride = bytes,
        .source_pages = f->pages,
        .target_pages = f->pages,
        .bytes = bytes,
        .count = 1,
        .piece_limit = pieces,
    };
}

int64_t fixture_offer(struct fixture *f, struct hlg_paged_write *w)
{
    struct tally *tally = &f->writer.tally;
    const int64_t taken = f->writer.t->ops->write(f->writer.t, w);

    assert_true(taken <= (int64_t)(w->piece_limit - w->piece_begin));
    if (taken > 0) {
        w->piece_begin += (uint32_t)taken;
        tally->ops[w->op].taken += (uint32_t)taken;
        tally->taken += (uint32_t)taken;
        assert_in_range(tally->taken - tally->over, 1, f->writer.caps.pieces_max);
    }
    return taken;
}

void fixture_push(struct fixture *f, struct hlg_paged_write *w)
{
    while (w->piece_begin < w->piece_limit) {
        assert_true(fixture_offer(f, w) >= 0);
        fixture_round(f);
    }
}

void fixture_drain(struct fixture *f)
{
    while (f->writer.tally.over < f->writer.tally.taken) {
        fixture_round(f);
    }
    for (uint32_t op = 0; op < OPS_MAX; op++) {
        assert_int_equal(f->writer.tally.ops[op].over, f->writer.tally.ops[op].taken);
    }
}

void fixture_expect(struct fixture *f, uint32_t slot, uint32_t pieces)
{
    while (f->target.tally.slots[slot].pieces < pieces) {
        fixture_round(f);
    }
    for (int i = 0; i < 20; i++) {
        fixture_round(f);
    }
    assert_int_equal(f->target.tally.slots[slot].pieces, pieces);
}

void fixture_connect(struct fixture *f)
{
    struct hlg_paged_write w = fixture_write(f, OPS_MAX - 1, SLOTS_MAX - 1, 1, 64);

    fixture_push(f, &w);
    fixture_drain(f);
    fixture_expect(f, SLOTS_MAX - 1, 1);
}

/* ---- the victim ----------------------------------------------------------------------------- */

struct introduction {
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    uint32_t address_bytes;
    struct hlg_mem_export export;
};

static void introduce(int fd, const struct node *node)
{
    struct introduction words = {.address_bytes = node->address_bytes, .export = node->export};

    memcpy(words.address, node->address, sizeof words.address);
    assert_int_equal(send(fd, &words, sizeof words, MSG_NOSIGNAL), sizeof words);
}

static void meet(int fd, struct node *node)
{
    struct introduction words;

    assert_int_equal(recv(fd, &words, sizeof words, MSG_WAITALL), sizeof words);
    node->address_bytes = words.address_bytes;
    node->export = words.export;
    memcpy(node->address, words.address, sizeof words.address);
}

static bool dismissed(void)
{
    struct pollfd parent = {.fd = OTHER_FD, .events = POLLIN};

    return poll(&parent, 1, 0) != 0;
}

/* A target that polls until it is killed or dismissed. */
static void be_victim(struct node *node)
{
    introduce(OTHER_FD, node);
    while (!dismissed()) {
        for (int i = 0; i < 64; i++) {
            node_poll(node);
        }
        (void)sched_yield();
    }
}

/* A writer that floods who it is told, with bytes that change, and says when it was first refused,
 * or failed, after having been heard. */
static void be_flooder(struct fixture *f, uint32_t pieces_max)
{
    const char word = 'r';
    bool told = false;

    meet(OTHER_FD, &f->target);
    f->peer = node_peer(&f->writer, &f->target);
    for (uint32_t i = 0; !dismissed(); i++) {
        struct hlg_paged_write w = fixture_write(f, 1, 1, 64, 4096);
        memset(f->writer.memory, (int)(i & 0xff), (size_t)64 * 4096);
        const int64_t taken = f->writer.tally.taken < pieces_max ? fixture_offer(f, &w) : 0;
        node_poll(&f->writer);
        if (!told && (taken < 0 || f->writer.tally.ops[1].failed > 0)) {
            told = send(OTHER_FD, &word, 1, MSG_NOSIGNAL) == 1;
        }
    }
}

int other_main(const char *part)
{
    static struct fixture f;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(WATCHDOG_S * fixture_slowness());
    for (uint32_t i = 0; i < sizeof f.pages / sizeof f.pages[0]; i++) {
        f.pages[i] = i;
    }
    node_open(&f.writer, 2);
    if (strcmp(part, "--victim") == 0) {
        be_victim(&f.writer);
    } else {
        be_flooder(&f, strcmp(part, "--burst") == 0 ? BURST_PIECES : UINT32_MAX);
    }
    return 0;
}

/* Start this program again as another node. */
static void spawn(struct victim *victim, const char *part)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    (void)fflush(NULL);
    victim->pid = fork();
    assert_true(victim->pid >= 0);
    if (victim->pid == 0) {
        char name[16];
        (void)snprintf(name, sizeof name, "%s", part);
        char *const arguments[] = {name, name, NULL};
        const int copy = dup(pair[1]); /* so that dup2 clears close-on-exec in any case */
        (void)dup2(copy, OTHER_FD);
        (void)execv("/proc/self/exe", arguments);
        _exit(127);
    }
    (void)close(pair[1]);
    victim->fd = pair[0];
}

void victim_start(struct fixture *f)
{
    if (conformance_backend.kill != NULL) {
        node_open(&f->victim.node, 2);
    } else {
        spawn(&f->victim, "--victim");
        meet(f->victim.fd, &f->victim.node);
    }
}

void flooder_start(struct fixture *f, bool endless)
{
    HLG_ASSERT(conformance_backend.kill == NULL);
    spawn(&f->victim, endless ? "--flooder" : "--burst");
    introduce(f->victim.fd, &f->target);
}

void flooder_await_refusal(struct fixture *f)
{
    struct pollfd wanted = {.fd = f->victim.fd, .events = POLLIN};

    (void)poll(&wanted, 1, 500);
}

void victim_kill(struct fixture *f)
{
    struct victim *victim = &f->victim;

    if (victim->pid > 0) {
        assert_int_equal(kill(victim->pid, SIGKILL), 0);
        assert_int_equal(waitpid(victim->pid, NULL, 0), victim->pid);
        (void)close(victim->fd);
        if (conformance_backend.bury != NULL) {
            conformance_backend.bury(victim->pid);
        }
        victim->pid = 0;
    } else if (conformance_backend.kill != NULL && victim->node.t != NULL && !victim->node.dead) {
        conformance_backend.kill(victim->node.fabric);
        victim->node.dead = true;
    }
}
