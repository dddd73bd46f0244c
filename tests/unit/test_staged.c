/*
 * GPU memory all the way, over the double of libcuda: two rank processes make it and export it, two
 * messengers import it and move pages by libfabric's TCP through the staged path, and the decode rank
 * looks at its pages through its own mapping. No CPU can follow a pointer of the double, so what cheats
 * dies. Then each driver call of the messengers' process fails in turn: every request ends, every failure
 * has its sentence, nothing is left behind.
 */
#define _GNU_SOURCE
#include <halage/places.h>
#include <halage/transport/staged.h>

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../src/memory/cuda_abi.h"
#include "../support/duo.h"
#include "../support/fake_cuda_control.h"

#define TOKENS     41u /* 40 are prefilled: 10 pages */
#define PAGES      10u
#define PLACES_MAX 64u
#define PREFILL    0
#define DECODE     1
#define CALLS_MAX  128
/* How long a sentinel's read may take. */
#define SENTINEL_NS (300 * HLG_NS_PER_MS)

/* ---- Rank processes ---- */

struct order {
    char what; /* m: make memory and send it; v: verify and release it */
    uint8_t pages;
    uint32_t target;
    uint32_t source;
};

static struct {
    pid_t pid;
    int socket;
} ranks[2];

/* Made once: to look for libfabric's providers takes longer than all the rest. */
static struct hlg_fabric *fabrics[2];

static uint8_t pattern(uint64_t i)
{
    return (uint8_t)(i * 167 + i / 256);
}

/* Memory of the decoder holds the source's pages at the target's, and else what it was made with. */
static bool is_as_ordered(const uint8_t *memory, uint64_t bytes, const struct order *order)
{
    struct hlg_place places[PLACES_MAX];
    struct hlg_layout layout;
    bool as_ordered = true;

    duo_layout(&layout);
    uint8_t *expected = calloc(1, bytes);
    const int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, NULL);
    for (int p = 0; p < count; p++) {
        const bool context = places[p].group == 1;
        const uint32_t pages = context && order->pages > 0 ? 1 : order->pages;
        for (uint64_t i = 0; i < pages * places[p].stride; i++) {
            expected[places[p].offset + (context ? 0 : order->target * places[p].stride) + i] =
                pattern(places[p].offset + (context ? 0 : order->source * places[p].stride) + i);
        }
    }
    for (uint64_t i = 0; i < bytes && as_ordered; i++) {
        as_ordered = memory[i] == expected[i];
        if (!as_ordered && order->pages > 0) {
            (void)fprintf(stderr, "byte %llu is %02x, not %02x\n", (unsigned long long)i, memory[i],
                          expected[i]);
        }
    }
    free(expected);
    return as_ordered;
}

static bool make_and_send(int socket, bool prefill, uint64_t bytes, struct hlg_memory **memory)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = 1};
    struct hlg_fd_header header;
    char error[256] = "";

    uint8_t *all = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        all[i] = pattern(i);
    }
    if (hlg_memory_create(&site, bytes, memory, error, sizeof error) != 0 ||
        (prefill && hlg_memory_write(*memory, 0, all, bytes) != 0)) {
        (void)fprintf(stderr, "rank: %s\n", error);
        return false;
    }
    free(all);
    const int fd = hlg_memory_export(*memory, &header, error, sizeof error);
    const bool sent = fd >= 0 && hlg_fd_send(socket, &header, fd) == 0;
    (void)close(fd);
    return sent;
}

static void rank_main(int socket, bool prefill)
{
    struct hlg_memory *memory = NULL;
    struct hlg_layout layout;
    struct order order;
    uint64_t bytes = 0;

    duo_layout(&layout);
    (void)hlg_places_linear(&layout, 0, NULL, 0, &bytes);
    uint8_t *copy = malloc(bytes);
    while (read(socket, &order, sizeof order) == (ssize_t)sizeof order) {
        bool well = true;
        if (order.what == 'm') {
            hlg_memory_release(memory);
            well = make_and_send(socket, prefill, bytes, &memory);
        } else {
            well = memory == NULL || (hlg_memory_read(memory, 0, copy, bytes) == 0 &&
                                      (prefill || is_as_ordered(copy, bytes, &order)));
            hlg_memory_release(memory);
            memory = NULL;
            const char answer = well ? 'y' : 'n';
            (void)!write(socket, &answer, 1);
        }
        if (!well && order.what == 'm') {
            _exit(1);
        }
    }
    hlg_memory_release(memory);
    free(copy);
    exit(0);
}

static int start_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        ranks[i].pid = fork();
        assert_true(ranks[i].pid >= 0);
        if (ranks[i].pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)close(sockets[0]);
            if (i == DECODE) {
                (void)close(ranks[PREFILL].socket);
            }
            rank_main(sockets[1], i == PREFILL);
        }
        (void)close(sockets[1]);
        ranks[i].socket = sockets[0];
    }
    return 0;
}

static int stop_ranks(void **state)
{
    int bad = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int status = 0;
        hlg_ofi_close(fabrics[i]);
        (void)close(ranks[i].socket);
        bad += waitpid(ranks[i].pid, &status, 0) != ranks[i].pid || !WIFEXITED(status) ||
               WEXITSTATUS(status) != 0;
    }
    return bad == 0 ? 0 : -1;
}

static bool ask(int rank, const struct order *order)
{
    char answer = 0;

    assert_int_equal(write(ranks[rank].socket, order, sizeof *order), sizeof *order);
    assert_int_equal(read(ranks[rank].socket, &answer, 1), 1);
    return answer == 'y';
}

static int take_from(int rank, struct hlg_fd_header *header)
{
    const struct order order = {.what = 'm'};
    int fd = -1;

    assert_int_equal(write(ranks[rank].socket, &order, sizeof order), sizeof order);
    assert_int_equal(hlg_fd_receive(ranks[rank].socket, header, &fd), 1);
    return fd;
}

static int take_prefill(struct duo_side *side, struct hlg_fd_header *header)
{
    (void)side;
    return take_from(PREFILL, header);
}

static int take_decode(struct duo_side *side, struct hlg_fd_header *header)
{
    (void)side;
    return take_from(DECODE, header);
}

/* ---- A pair of messengers ---- */

struct path {
    struct duo duo;
    struct hlg_staged *staged[2];
    char said[2048]; /* by the decorators */
};

static void hear(void *context, const char *sentence)
{
    struct path *path = context;
    const size_t used = strlen(path->said);

    (void)snprintf(path->said + used, sizeof path->said - used, "%s\n", sentence);
}

static int open_side(struct path *path, int which, bool staged)
{
    struct duo_side *side = which == PREFILL ? &path->duo.prefill : &path->duo.decode;
    struct hlg_messenger_config config;

    side->take_memory = which == PREFILL ? take_prefill : take_decode;
    side->fabric = fabrics[which];
    duo_config(side, which == PREFILL ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE, &config);
    fabrics[which] = side->fabric;
    config.log_level = HLG_LOG_FATAL;
    if (staged) {
        const struct hlg_staged_config below = {.below = side->fabric,
                                                .target = which == DECODE,
                                                .slot_bytes = 1u << 20,
                                                .slots = 8,
                                                .log = hear,
                                                .log_context = path};
        assert_int_equal(hlg_staged_create(&below, &path->staged[which], path->duo.error,
                                           sizeof path->duo.error),
                         0);
        config.fabric = hlg_staged_fabric(path->staged[which]);
    }
    return duo_open_side(&path->duo, side, &config);
}

static void close_path(struct path *path)
{
    (void)hlg_messenger_destroy(path->duo.decode.messenger);
    (void)hlg_messenger_destroy(path->duo.prefill.messenger);
    path->duo.decode.messenger = NULL;
    path->duo.prefill.messenger = NULL;
    for (int i = 0; i < 2; i++) {
        hlg_staged_destroy(path->staged[i]);
    }
    path->duo.decode.fabric = NULL;
    path->duo.prefill.fabric = NULL;
    duo_close_side(&path->duo.decode);
    duo_close_side(&path->duo.prefill);
    free(path);
}

static bool has(const struct duo_side *side, uint32_t kind)
{
    return duo_count(side, kind) > 0;
}

/* Turns until one of the kinds was reported by the decoder. */
static void wait_decode(struct path *path, const uint32_t *kinds, uint32_t count)
{
    for (uint32_t turn = 0; turn < DUO_TURNS_MAX; turn++) {
        (void)duo_turn(&path->duo);
        for (uint32_t i = 0; i < count; i++) {
            if (has(&path->duo.decode, kinds[i])) {
                return;
            }
        }
        duo_nap(&path->duo);
    }
    fail_msg("the decoder reported nothing in time; the decorators said: %s", path->said);
}

/* Connects and moves one request. Returns whether it became READY; else it failed and its pages came
 * back, or there is no session. */
static bool move(struct path *path, uint32_t page)
{
    static const uint32_t up[] = {HLG_NOTICE_PEER_UP, HLG_NOTICE_PEER_REFUSED};
    static const uint32_t over[] = {HLG_NOTICE_READY, HLG_NOTICE_RETURNED, HLG_NOTICE_POISONED};
    hlg_ticket ticket = 0;

    (void)duo_connect(&path->duo);
    wait_decode(path, up, 2);
    if (!has(&path->duo.decode, HLG_NOTICE_PEER_UP)) {
        return false;
    }
    path->duo.peer = duo_last(&path->duo.decode, HLG_NOTICE_PEER_UP)->peer;
    assert_int_equal(duo_submit(&path->duo, "a", TOKENS, page, 0, &ticket), 0);
    wait_decode(path, over, 3);
    assert_false(has(&path->duo.decode, HLG_NOTICE_POISONED));
    const bool ready = has(&path->duo.decode, HLG_NOTICE_READY);
    assert_true(ready != has(&path->duo.decode, HLG_NOTICE_FAILED));
    return ready;
}

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void expect_nothing_left(const struct fake_cuda_control *control)
{
    char live[256];

    if (control->live(live, sizeof live) != 0) {
        fail_msg("left behind: %s", live);
    }
}

static void get_copies(struct hlg_staged *staged, struct hlg_copy_stats *stats)
{
    const struct hlg_fabric *fabric = hlg_staged_fabric(staged);

    fabric->copies(fabric, stats);
}

/* Within 2 s: what a messenger shows is a little old. */
static void expect_metric(struct hlg_messenger *m, const char *series, uint64_t value)
{
    static char text[65536];
    char line[160];

    (void)snprintf(line, sizeof line, "%s %llu\n", series, (unsigned long long)value);
    for (int i = 0; i < 2000; i++) {
        const int bytes = hlg_messenger_metrics(m, text, sizeof text);
        assert_true(bytes > 0 && bytes < (int)sizeof text);
        if (strstr(text, line) != NULL) {
            return;
        }
        (void)poll(NULL, 0, 1);
    }
    fail_msg("no line %s", line);
}

/* ---- Tests ---- */

static void pages_go_from_rank_to_rank(void **state)
{
    struct fake_cuda_control control;
    struct hlg_copy_stats out;
    struct hlg_copy_stats in;

    (void)state;
    struct path *path = calloc(1, sizeof *path);
    if (open_side(path, PREFILL, true) != 0 || open_side(path, DECODE, true) != 0) {
        fail_msg("%s", path->duo.error);
    }
    assert_true(move(path, 100));
    /* READY was said a moment ago: the bytes are there, and no other page was touched. */
    assert_true(ask(DECODE, &(struct order){.what = 'v', .pages = PAGES, .target = 100}));
    get_copies(path->staged[PREFILL], &out);
    get_copies(path->staged[DECODE], &in);
    const uint64_t bytes = DUO_LAYERS * 2 * PAGES * 512 + 256;
    assert_int_equal(out.bytes_out, bytes);
    assert_int_equal(in.bytes_in, bytes);
    assert_in_range(out.copies_out, 1, DUO_LAYERS * 2 * PAGES + 1);
    assert_int_equal(in.copies_in, DUO_LAYERS * 2 + 1); /* pages that lie together are one copy */
    assert_int_equal(in.pinned_bytes, path->duo.decode.bytes);
    assert_int_equal(out.pinned_bytes, 8u << 20);
    assert_true(strstr(path->said, "is sent through 8 slots of 1048576 bytes") != NULL);
    assert_true(strstr(path->said, "as much pinned host memory") != NULL);
    expect_metric(path->duo.prefill.messenger,
                  "halage_staged_bytes_total{side=\"prefill\",direction=\"out\"}", bytes);
    expect_metric(path->duo.decode.messenger,
                  "halage_staged_bytes_total{side=\"decode\",direction=\"in\"}", bytes);
    expect_metric(path->duo.decode.messenger, "halage_staged_pinned_bytes{side=\"decode\"}",
                  path->duo.decode.bytes);
    close_path(path);
    assert_true(ask(PREFILL, &(struct order){.what = 'v'}));
    fake_cuda_control(&control);
    expect_nothing_left(&control);
}

/* With a GPU that takes its time: cancelled while its pages are copied, a request gives them back only
 * when that is over. */
static void cancelled_pages_come_back_after_the_copy(void **state)
{
    static const uint32_t returned[] = {HLG_NOTICE_RETURNED, HLG_NOTICE_POISONED};
    struct fake_cuda_control control;
    hlg_ticket ticket = 0;

    (void)state;
    struct path *path = calloc(1, sizeof *path);
    assert_int_equal(open_side(path, PREFILL, true), 0);
    assert_int_equal(open_side(path, DECODE, true), 0);
    (void)duo_connect(&path->duo);
    duo_wait(&path->duo, &path->duo.decode, HLG_NOTICE_PEER_UP, 1);
    path->duo.peer = duo_last(&path->duo.decode, HLG_NOTICE_PEER_UP)->peer;
    assert_int_equal(duo_submit(&path->duo, "a", TOKENS, 50, 0, &ticket), 0);
    /* SENT says that all is placed; the decoder is about to copy, or copies. */
    duo_wait(&path->duo, &path->duo.prefill, HLG_NOTICE_SENT, 1);
    assert_int_equal(hlg_messenger_cancel(path->duo.decode.messenger, ticket), 0);
    if (!has(&path->duo.decode, HLG_NOTICE_READY)) {
        static const uint32_t any[] = {HLG_NOTICE_READY, HLG_NOTICE_FAILED};
        wait_decode(path, any, 2);
    }
    if (!has(&path->duo.decode, HLG_NOTICE_READY)) {
        wait_decode(path, returned, 2);
        assert_false(has(&path->duo.decode, HLG_NOTICE_POISONED));
    }
    close_path(path);
    assert_true(ask(PREFILL, &(struct order){.what = 'v'}));
    (void)ask(DECODE, &(struct order){.what = 'v', .pages = PAGES, .target = 50});
    fake_cuda_control(&control);
    expect_nothing_left(&control);
}

static void without_the_staged_path_gpu_memory_is_refused(void **state)
{
    (void)state;
    struct path *path = calloc(1, sizeof *path);
    assert_int_equal(open_side(path, DECODE, false), -HLG_EUNSUPPORTED);
    assert_true(strstr(path->duo.error, "takes no memory of a GPU: stage it") != NULL);
    close_path(path);
    assert_true(ask(DECODE, &(struct order){.what = 'v'}));
}

static void regions_that_overlap_are_refused(void **state)
{
    struct hlg_messenger_config config;
    struct hlg_messenger *m = NULL;
    static uint8_t memory[8192];

    (void)state;
    struct path *path = calloc(1, sizeof *path);
    path->duo.decode.fabric = fabrics[DECODE];
    duo_config(&path->duo.decode, HLG_ROLE_DECODE, &config);
    fabrics[DECODE] = path->duo.decode.fabric;
    assert_int_equal(hlg_messenger_create(&config, &m, NULL, 0), 0);
    assert_int_equal(hlg_messenger_region_add(m, 0, &HLG_MEM_HOST(memory, 4096)), 0);
    assert_int_equal(hlg_messenger_region_add(m, 0, &HLG_MEM_HOST(memory + 4095, 10)), -HLG_EINVAL);
    assert_true(strstr(hlg_messenger_error(m), "overlaps") != NULL);
    assert_int_equal(hlg_messenger_region_add(m, 0, &HLG_MEM_HOST(memory + 4096, 4096)), 1);
    const struct hlg_mem_region gpu = {.base = memory, .bytes = 10, .kind = HLG_MEMORY_CUDA};
    assert_int_equal(hlg_messenger_region_add(m, 0, &gpu), -HLG_EINVAL);
    (void)hlg_messenger_destroy(m);
    close_path(path);
}

/* ---- A provider that reaches GPU memory itself ---- */

/* Stands for one: the double's memory can be read by the CPU here, and is registered as the host's. */
static struct hlg_fabric direct;
static bool without_sentinel;
static const struct hlg_transport_ops *real;
static struct hlg_transport_ops shim;

static int register_as_host(struct hlg_transport *t, const struct hlg_mem_region *region,
                            hlg_mem *mem)
{
    return real->mem_register(t, &HLG_MEM_HOST(region->base, region->bytes), mem);
}

static int direct_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                       struct hlg_transport **out)
{
    (void)fabric;
    const int code = fabrics[DECODE]->open(fabrics[DECODE], lane, rail, out);
    if (code == 0) {
        real = (*out)->ops;
        shim = *real;
        shim.mem_register = register_as_host;
        (*out)->ops = &shim;
    }
    return code;
}

static void direct_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    (void)fabric;
    fabrics[DECODE]->query(fabrics[DECODE], caps);
    caps->device_memory = true;
    caps->stall_ns = SENTINEL_NS;
}

static hlg_time direct_now(struct hlg_fabric *fabric)
{
    (void)fabric;
    return fabrics[DECODE]->now(fabrics[DECODE]);
}

/* Reads of the real one, and what becomes of the next: it is over, at once or after some polls; it fails; it never ends,
 * until the sentinel is opened anew. */
enum fate {
    FATE_GOOD,
    FATE_LATE,
    FATE_FAILS,
    FATE_NEVER
};

static struct {
    struct hlg_sentinel sentinel;
    struct hlg_sentinel *real;
    enum fate fate; /* of the next */
    enum fate now;
    uint32_t polls;
    uint32_t begun;
    uint32_t over;
} sentinel;

static int sentinel_read(struct hlg_sentinel *s)
{
    (void)s;
    const int rc = sentinel.real->ops->read(sentinel.real);
    if (rc > 0) {
        sentinel.begun++;
        sentinel.polls = 0;
        sentinel.now = sentinel.fate;
        sentinel.fate = FATE_GOOD;
    }
    return rc;
}

static int sentinel_poll(struct hlg_sentinel *s)
{
    (void)s;
    sentinel.polls++;
    if (sentinel.now == FATE_NEVER || (sentinel.now == FATE_LATE && sentinel.polls < 20)) {
        return 0;
    }
    const int rc = sentinel.now == FATE_FAILS ? -HLG_EIO : sentinel.real->ops->poll(sentinel.real);
    sentinel.over += rc > 0;
    return rc;
}

static void sentinel_free(struct hlg_sentinel *s)
{
    (void)s;
    sentinel.real->ops->free(sentinel.real);
    sentinel.fate = FATE_GOOD;
}

static int direct_sentinel(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                           const struct hlg_mem_region *region, struct hlg_sentinel **out)
{
    static const struct hlg_sentinel_ops ops = {
        .read = sentinel_read, .poll = sentinel_poll, .free = sentinel_free};

    (void)fabric;
    sentinel.sentinel.ops = &ops;
    *out = &sentinel.sentinel;
    return fabrics[DECODE]->sentinel_open(
        fabrics[DECODE], lane, rail, &HLG_MEM_HOST(region->base, region->bytes), &sentinel.real);
}

/* The decode side over that fabric, with a policy. */
static int open_direct(struct path *path, uint32_t policy)
{
    struct hlg_messenger_config config;

    path->duo.decode.take_memory = take_decode;
    path->duo.decode.fabric = fabrics[DECODE];
    duo_config(&path->duo.decode, HLG_ROLE_DECODE, &config);
    fabrics[DECODE] = path->duo.decode.fabric;
    direct = (struct hlg_fabric){
        .open = direct_open, .query = direct_query, .now = direct_now, .rails = 1};
    direct.sentinel_open = without_sentinel ? NULL : direct_sentinel;
    config.fabric = &direct;
    config.flush = policy;
    config.log_level = HLG_LOG_FATAL;
    return duo_open_side(&path->duo, &path->duo.decode, &config);
}

/* A GPU that does not order writes of NICs is flushed once a request; if that fails so does the request. */
static void what_nics_wrote_is_flushed_once_a_request(void **state)
{
    static const struct {
        uint32_t policy;
        int flushes;
        bool fails;
    } cases[] = {{HLG_FLUSH_AUTO, 1, false},
                 {HLG_FLUSH_CUDA, 1, false},
                 {HLG_FLUSH_NONE, 0, false},
                 {HLG_FLUSH_AUTO, 2, true}}; /* once more, to give the pages back */
    struct fake_cuda_control control;

    (void)state;
    fake_cuda_control(&control);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct path *path = calloc(1, sizeof *path);
        assert_int_equal(open_side(path, PREFILL, true), 0);
        assert_int_equal(open_direct(path, cases[i].policy), 0);
        const int before = fake_cuda_made(&control, "cuFlushGPUDirectRDMAWrites");
        control.fail_call("cuFlushGPUDirectRDMAWrites", cases[i].fails ? 1 : 0, CUDA_UNKNOWN);
        assert_true(move(path, 20) == !cases[i].fails);
        assert_int_equal(fake_cuda_made(&control, "cuFlushGPUDirectRDMAWrites") - before,
                         cases[i].flushes);
        assert_true(ask(DECODE, &(struct order){.what = 'v', .pages = PAGES, .target = 20}));
        close_path(path);
        assert_true(ask(PREFILL, &(struct order){.what = 'v'}));
        expect_nothing_left(&control);
    }
}

/* Policy READ: pages are handed over when a read that began after they had landed is over, on a real provider;
 * if it fails or does not come back, so does the request, and its pages return when another one is over. */
static void what_nics_wrote_is_read_back_before_it_is_handed_over(void **state)
{
    static const enum fate fates[] = {FATE_GOOD, FATE_LATE, FATE_FAILS, FATE_NEVER};
    struct fake_cuda_control control;

    (void)state;
    fake_cuda_control(&control);
    const int flushes = fake_cuda_made(&control, "cuFlushGPUDirectRDMAWrites");
    for (size_t i = 0; i < sizeof fates / sizeof fates[0]; i++) {
        struct path *path = calloc(1, sizeof *path);
        assert_int_equal(open_side(path, PREFILL, true), 0);
        memset(&sentinel, 0, sizeof sentinel);
        if (open_direct(path, HLG_FLUSH_READ) != 0) {
            fail_msg("%s", path->duo.error);
        }
        assert_int_equal(sentinel.over, 1); /* on trial */
        sentinel.fate = fates[i];
        const bool good = fates[i] == FATE_GOOD || fates[i] == FATE_LATE;
        const hlg_time begun = direct_now(&direct);
        assert_true(move(path, 20) == good);
        assert_int_equal(sentinel.begun, good ? 2 : 3);
        assert_int_equal(sentinel.over, 2);
        assert_true(fates[i] != FATE_LATE || sentinel.polls >= 20);
        if (fates[i] == FATE_NEVER) {
            assert_true(direct_now(&direct) - begun >= SENTINEL_NS);
        }
        if (!good) {
            assert_int_equal(duo_last(&path->duo.decode, HLG_NOTICE_FAILED)->reason,
                             HLG_REASON_LOCAL);
        }
        assert_int_equal(fake_cuda_made(&control, "cuFlushGPUDirectRDMAWrites"), flushes);
        assert_true(ask(DECODE, &(struct order){.what = 'v', .pages = PAGES, .target = 20}));
        close_path(path);
        assert_true(ask(PREFILL, &(struct order){.what = 'v'}));
        expect_nothing_left(&control);
    }
}

static void a_fabric_that_cannot_read_back_refuses_the_policy(void **state)
{
    struct path *path = calloc(1, sizeof *path);

    (void)state;
    without_sentinel = true;
    assert_int_equal(open_direct(path, HLG_FLUSH_READ), -HLG_EUNSUPPORTED);
    assert_true(strstr(path->duo.error, "cannot read its own memory back") != NULL);
    assert_int_equal(open_direct(path, HLG_FLUSH_READ + 1), -HLG_EINVAL);
    assert_true(strstr(path->duo.error, "is no policy of enum hlg_flush_policy") != NULL);
    without_sentinel = false;
    close_path(path);
}

/* ---- Each call fails ---- */

/* Failing, they do what they are for. */
static bool is_harmless(const char *call)
{
    static const char *const harmless[] = {"cuMemRelease",     "cuMemUnmap",
                                           "cuMemAddressFree", "cuDevicePrimaryCtxRelease",
                                           "cuStreamDestroy",  "cuEventDestroy",
                                           "cuMemFreeHost",    "cuCtxPopCurrent",
                                           "cuGetErrorName",   "cuMemGetHandleForAddressRange"};

    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (strcmp(call, harmless[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* One request with one failure. Returns whether it came through. */
static bool run(struct path *path)
{
    return open_side(path, PREFILL, true) == 0 && open_side(path, DECODE, true) == 0 &&
           move(path, 7);
}

static void fail_once(const struct fake_cuda_control *control, const char *call, int n)
{
    const int fds = count_fds();
    const int before = fake_cuda_made(control, call);

    control->fail_call(call, n, CUDA_OUT_OF_MEMORY);
    struct path *path = calloc(1, sizeof *path);
    const bool through = run(path);
    const bool failed =
        fake_cuda_made(control, call) - before >= n; /* how often one polls varies */
    control->fail_call(call, 0, 0);
    /* A call that only ends things may have been late, and what waits at the end is waited for again. */
    const bool may_pass = is_harmless(call) || strcmp(call, "cuStreamSynchronize") == 0;
    const bool told = strstr(path->duo.error, call) != NULL || strstr(path->said, call) != NULL ||
                      strstr(path->duo.error, "pinned host memory") != NULL;
    if (!through && !told) {
        fail_msg("call %d of %s failed without a word: '%s' '%s'", n, call, path->duo.error,
                 path->said);
    }
    /* A copy that could not begin was not taken, and may be offered again: said, not silent. */
    if (through && failed && !may_pass && !told) {
        fail_msg("call %d of %s failed and nobody noticed", n, call);
    }
    close_path(path);
    const bool right =
        ask(DECODE, &(struct order){.what = 'v', .pages = through ? PAGES : 0, .target = 7});
    assert_true(right || !through); /* a request that failed may have been copied in part */
    (void)ask(PREFILL, &(struct order){.what = 'v'});
    expect_nothing_left(control);
    assert_int_equal(count_fds(), fds);
}

/* How often each call is made for one request that goes well. */
static void count_calls(const struct fake_cuda_control *control, int counts[CALLS_MAX])
{
    struct path *path = calloc(1, sizeof *path);

    for (int i = 0, made = 0; control->call(i, &made) != NULL; i++) {
        assert_true(i < CALLS_MAX);
        counts[i] = -made;
    }
    assert_true(run(path));
    for (int i = 0, made = 0; control->call(i, &made) != NULL; i++) {
        counts[i] += made;
    }
    close_path(path);
    assert_true(ask(DECODE, &(struct order){.what = 'v', .pages = PAGES, .target = 7}));
    assert_true(ask(PREFILL, &(struct order){.what = 'v'}));
}

static void every_call_that_fails_ends_well(void **state)
{
    struct fake_cuda_control control;
    int counts[CALLS_MAX];
    const char *call = NULL;
    int failures = 0;
    int calls = 0;

    (void)state;
    fake_cuda_control(&control);
    count_calls(&control, counts);
    for (int i = 0, made = 0; (call = control.call(i, &made)) != NULL; i++) {
        /* The first two set up, of either side; the last is of the transfer, or of the decode side. */
        const int turns[] = {1, 2, counts[i]};
        calls += counts[i] > 0;
        for (int t = 0; t < 3 && turns[t] <= counts[i]; t++) {
            if (t < 2 || turns[t] > 2) {
                fail_once(&control, call, turns[t]);
                failures++;
            }
        }
    }
    print_message("# %d failures of %d calls\n", failures, calls);
    assert_true(calls >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_go_from_rank_to_rank),
        cmocka_unit_test(cancelled_pages_come_back_after_the_copy),
        cmocka_unit_test(without_the_staged_path_gpu_memory_is_refused),
        cmocka_unit_test(regions_that_overlap_are_refused),
        cmocka_unit_test(every_call_that_fails_ends_well),
    };

    const struct CMUnitTest readable[] = {
        cmocka_unit_test(what_nics_wrote_is_flushed_once_a_request),
        cmocka_unit_test(what_nics_wrote_is_read_back_before_it_is_handed_over),
        cmocka_unit_test(a_fabric_that_cannot_read_back_refuses_the_policy),
    };

    return getenv("FAKE_CUDA_READABLE") != NULL
               ? cmocka_run_group_tests(readable, start_ranks, stop_ranks)
               : cmocka_run_group_tests(tests, start_ranks, stop_ranks);
}
