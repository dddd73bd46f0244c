/*
 * Flush policy READ (src/messenger/sentinel.c) on a clock of its own, over sentinels that do as the test says:
 * a read for each lane, rail and GPU, rounds that serve all who were whole when they began, and an end in bounded
 * time where a read is delayed, fails, or never comes back. Test `flush` has the same in a real messenger.
 */
#include "../../src/messenger/messenger_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STALL_NS 1000u
#define ALL_MAX  8u
#define NEVER    (-1)
#define REGIONS  4u
#define GPU(b, d)                                                                  \
    {                                                                              \
        .base = (void *)(b), .bytes = 4096, .kind = HLG_MEMORY_CUDA, .device = (d) \
    }

/* A sentinel: `delay` of polls until its read is over; NEVER; `fails`: an error then. */
struct fake {
    struct hlg_sentinel sentinel; /* first */
    uint32_t lane;
    uint32_t rail;
    int32_t device;
    bool open;
    bool reading;
    int left;
};

static struct {
    struct hlg_fabric fabric;
    hlg_time now;
    struct fake all[ALL_MAX];
    uint32_t opened; /* in all */
    uint32_t freed;
    uint32_t reads; /* begun */
    uint32_t over;
    int delay;
    int busy;         /* reads that are told "not now" */
    int fails;        /* of the next reads that are polled to their end */
    int open_fails;   /* of the next openings */
    hlg_time open_ns; /* that each opening takes */
    const void *base; /* of the region that was opened last */
} world;

static int fake_read(struct hlg_sentinel *sentinel)
{
    struct fake *f = (struct fake *)(void *)sentinel;

    assert_true(f->open && !f->reading);
    if (world.busy > 0) {
        world.busy--;
        return 0;
    }
    f->reading = true;
    f->left = world.delay;
    world.reads++;
    return 1;
}

static int fake_poll(struct hlg_sentinel *sentinel)
{
    struct fake *f = (struct fake *)(void *)sentinel;

    assert_true(f->open && f->reading);
    if (f->left == NEVER || f->left-- > 0) {
        return 0;
    }
    f->reading = false;
    if (world.fails > 0) {
        world.fails--;
        return -HLG_EIO;
    }
    world.over++;
    return 1;
}

static void fake_free(struct hlg_sentinel *sentinel)
{
    struct fake *f = (struct fake *)(void *)sentinel;

    assert_true(f->open);
    f->open = false;
    world.freed++;
}

static const struct hlg_sentinel_ops fake_ops = {
    .read = fake_read, .poll = fake_poll, .free = fake_free};

static int fake_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                     const struct hlg_mem_region *region, struct hlg_sentinel **out)
{
    (void)fabric;
    world.now += world.open_ns;
    if (world.open_fails > 0) {
        world.open_fails--;
        return -HLG_EUNSUPPORTED;
    }
    for (uint32_t i = 0; i < ALL_MAX; i++) {
        struct fake *f = &world.all[i];
        if (!f->open) {
            *f = (struct fake){.sentinel.ops = &fake_ops,
                               .lane = lane,
                               .rail = rail,
                               .device = region->device,
                               .open = true};
            *out = &f->sentinel;
            world.opened++;
            world.base = region->base;
            return 0;
        }
    }
    return -HLG_ELIMIT;
}

static hlg_time fake_now(struct hlg_fabric *fabric)
{
    (void)fabric;
    return world.now++; /* so that a trial ends without help */
}

static void fake_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    (void)fabric;
    *caps = (struct hlg_transport_caps){.stall_ns = STALL_NS};
}

/* Lane 0 has two GPUs, one of them twice, and host memory; lane 1 one GPU. */
static struct hlg_pump_region regions[REGIONS + 1] = {
    {.lane = 0, .memory = GPU(0x10000, 0)}, {.lane = 0, .memory = GPU(0x20000, 3)},
    {.lane = 0, .memory = GPU(0x30000, 0)}, {.lane = 0, .memory = {.kind = HLG_MEMORY_HOST}},
    {.lane = 1, .memory = GPU(0x40000, 0)},
};

static struct hlg_messenger *begin(uint32_t rails)
{
    struct hlg_messenger *m = calloc(1, sizeof *m);

    memset(&world, 0, sizeof world);
    world.fabric = (struct hlg_fabric){
        .query = fake_query, .now = fake_now, .sentinel_open = fake_open, .rails = rails};
    m->config.role = HLG_ROLE_DECODE;
    m->config.fabric = &world.fabric;
    m->config.flush = HLG_FLUSH_READ;
    m->regions = regions;
    m->region_count = REGIONS + 1;
    return m;
}

static void end(struct hlg_messenger *m)
{
    sentinels_end(m);
    assert_int_equal(world.opened, world.freed);
    free(m);
}

static struct hlg_flusher *start(struct hlg_messenger *m)
{
    struct hlg_flusher *flusher = NULL;

    if (messenger_flusher(m, &flusher) != 0) {
        fail_msg("%s", m->error);
    }
    assert_non_null(flusher);
    world.reads = 0;
    world.over = 0;
    return flusher;
}

/* Polls `turns` times. Returns how many requests were over; the first one's in *first. */
static int turns(struct hlg_flusher *flusher, int count, struct hlg_flushed *first)
{
    struct hlg_flushed done[4];
    int over = 0;

    for (int i = 0; i < count; i++) {
        const int now = flusher->poll(flusher, done, 4);
        if (over == 0 && now > 0 && first != NULL) {
            *first = done[0];
        }
        over += now;
    }
    return over;
}

static void each_nic_reads_each_gpu_of_its_lane_once(void **state)
{
    struct hlg_messenger *m = begin(2);
    uint32_t seen = 0;

    (void)state;
    (void)start(m);
    assert_int_equal(world.opened, 6); /* (lane 0: GPUs 0 and 3; lane 1: GPU 0) times two rails */
    for (uint32_t i = 0; i < world.opened; i++) {
        const struct fake *f = &world.all[i];
        seen |= 1u << (f->lane << 3 | f->rail << 2 | (f->device == 3 ? 1u : 0));
    }
    assert_int_equal(seen, 1u << 0 | 1u << 1 | 1u << 4 | 1u << 5 | 1u << 8 | 1u << 12);
    assert_ptr_equal(world.base, (void *)0x40000);
    end(m);
}

/* No request is over before every read is. */
static void a_request_waits_for_the_slowest_read(void **state)
{
    struct hlg_messenger *m = begin(2);
    struct hlg_flushed done = {0};

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.delay = 3;
    world.busy = 2;
    assert_int_equal(flusher->finish(flusher, 77), 1);
    for (int i = 0; world.over < 6; i++) {
        assert_true(i < 10);
        const int over = turns(flusher, 1, &done);
        assert_true(over == 0 || world.over == 6);
    }
    assert_int_equal(world.reads, 6);
    assert_int_equal(done.request, 77);
    assert_int_equal(done.status, 0);
    end(m);
}

/* Who is whole while a round is under way has the next one: that round's reads may have gone before its bytes. */
static void a_round_serves_who_was_whole_before_it(void **state)
{
    struct hlg_messenger *m = begin(1);
    struct hlg_flushed done = {0};

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.delay = 1;
    assert_int_equal(flusher->finish(flusher, 1), 1);
    assert_int_equal(flusher->finish(flusher, 2), 1);
    assert_int_equal(turns(flusher, 1, NULL), 0);
    assert_int_equal(world.reads, 3);
    assert_int_equal(flusher->finish(flusher, 3), 1); /* too late for this one */
    assert_int_equal(turns(flusher, 2, &done), 2);
    assert_int_equal(done.request, 1);
    assert_int_equal(world.reads, 3);
    assert_int_equal(turns(flusher, 3, &done), 1);
    assert_int_equal(done.request, 3);
    assert_int_equal(world.reads, 6);
    end(m);
}

static void a_read_that_fails_fails_its_round_and_no_other(void **state)
{
    struct hlg_messenger *m = begin(1);
    struct hlg_flushed done = {0};

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.fails = 1;
    assert_int_equal(flusher->finish(flusher, 1), 1);
    assert_int_equal(turns(flusher, 3, &done), 1);
    assert_int_equal(done.status, -HLG_EIO);
    assert_int_equal(world.freed, 1);
    assert_int_equal(flusher->finish(flusher, 2), 1);
    assert_int_equal(turns(flusher, 3, &done), 1);
    assert_int_equal(done.status, 0);
    assert_int_equal(world.opened, 4); /* anew */
    end(m);
}

static void a_read_that_never_comes_back_has_its_time(void **state)
{
    struct hlg_messenger *m = begin(1);
    struct hlg_flushed done = {0};

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.delay = NEVER;
    assert_int_equal(flusher->finish(flusher, 1), 1);
    assert_int_equal(turns(flusher, 1, &done), 0);
    const hlg_time begun = world.now;
    while (turns(flusher, 1, &done) == 0) {
        assert_true(world.now - begun < STALL_NS);
    }
    assert_true(world.now - begun >= STALL_NS - 4);
    assert_int_equal(done.status, -HLG_EIO);
    assert_int_equal(world.freed, 3);
    assert_non_null(strstr(m->sentinels.why, "did not come back in time"));
    /* The next request has sentinels of its own. */
    world.delay = 0;
    assert_int_equal(flusher->finish(flusher, 2), 1);
    assert_int_equal(turns(flusher, 3, &done), 1);
    assert_int_equal(done.status, 0);
    world.open_fails = 0;
    end(m);
}

static void one_that_cannot_be_opened_again_fails_the_request(void **state)
{
    struct hlg_messenger *m = begin(1);
    struct hlg_flushed done = {0};

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.fails = 1;
    assert_int_equal(flusher->finish(flusher, 1), 1);
    assert_int_equal(turns(flusher, 3, &done), 1);
    world.open_fails = 1;
    assert_int_equal(flusher->finish(flusher, 2), 1);
    assert_int_equal(turns(flusher, 3, &done), 1);
    assert_int_equal(done.status, -HLG_EUNSUPPORTED);
    end(m);
}

static void what_cannot_be_done_is_refused_at_start(void **state)
{
    static const struct {
        int open_fails;
        int fails;
        int delay;
        const char *sentence;
    } cases[] = {
        {1, 0, 0, "gpu 0 through the NIC of lane 0, rail 0 cannot be prepared (not supported"},
        {0, 1, 0, "failed"},
        {0, 0, NEVER, "did not come back in time"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hlg_messenger *m = begin(1);
        struct hlg_flusher *flusher = NULL;
        m->region_count = 1;
        world.open_fails = cases[i].open_fails;
        world.fails = cases[i].fails;
        world.delay = cases[i].delay;
        assert_true(messenger_flusher(m, &flusher) < 0);
        assert_null(flusher);
        if (strstr(m->error, cases[i].sentence) == NULL) {
            fail_msg("%s", m->error);
        }
        assert_non_null(strstr(m->error, "take flush policy cuda, or the staged path"));
        end(m);
    }
}

/* More requests than a flusher holds wait at the pump; none is lost, none is told twice. */
static void it_holds_as_many_as_it_says(void **state)
{
    struct hlg_messenger *m = begin(1);
    hlg_handle next = 0;
    hlg_handle expected = 0;

    (void)state;
    struct hlg_flusher *flusher = start(m);
    world.delay = 2;
    while (expected < 500) {
        struct hlg_flushed done[3];
        while (next < 500 && flusher->finish(flusher, next) == 1) {
            next++;
        }
        assert_true(next - expected <= FLUSHES_MAX);
        const int over = flusher->poll(flusher, done, 3);
        for (int i = 0; i < over; i++) {
            assert_int_equal(done[i].request, expected++);
        }
    }
    assert_int_equal(turns(flusher, 10, NULL), 0);
    end(m);
}

/* Opening all of them may take longer than a round. */
static void endpoints_open_in_their_own_time(void **state)
{
    struct hlg_messenger *m = begin(2);

    (void)state;
    world.open_ns = STALL_NS / 2;
    (void)start(m);
    assert_int_equal(world.opened, 6);
    end(m);
}

static void host_memory_needs_none(void **state)
{
    struct hlg_messenger *m = begin(1);
    struct hlg_flusher *flusher = NULL;

    (void)state;
    m->regions = &regions[3];
    m->region_count = 1;
    assert_int_equal(messenger_flusher(m, &flusher), 0);
    assert_null(flusher);
    end(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_nic_reads_each_gpu_of_its_lane_once),
        cmocka_unit_test(a_request_waits_for_the_slowest_read),
        cmocka_unit_test(a_round_serves_who_was_whole_before_it),
        cmocka_unit_test(a_read_that_fails_fails_its_round_and_no_other),
        cmocka_unit_test(a_read_that_never_comes_back_has_its_time),
        cmocka_unit_test(one_that_cannot_be_opened_again_fails_the_request),
        cmocka_unit_test(what_cannot_be_done_is_refused_at_start),
        cmocka_unit_test(it_holds_as_many_as_it_says),
        cmocka_unit_test(endpoints_open_in_their_own_time),
        cmocka_unit_test(host_memory_needs_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
