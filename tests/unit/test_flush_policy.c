/*
 * The flush policy's flusher over the double of libcuda: every GPU of the node once a request, answers in order,
 * and a bounded number of them at a time.
 */
#define _GNU_SOURCE /* setenv */
#include "../../src/messenger/messenger_internal.h"
#include "../support/fake_cuda_control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../src/memory/cuda_abi.h"

#define CALL "cuFlushGPUDirectRDMAWrites"

static struct hlg_messenger messenger;
static struct hlg_fabric fabric;
static struct hlg_pump_region regions[4];
static struct hlg_flusher *flusher;
static struct fake_cuda_control control;

static int set_up(void **state)
{
    static const int32_t devices[] = {1, 0, 1};

    (void)state;
    fake_cuda_control(&control);
    memset(&messenger, 0, sizeof messenger);
    messenger.config = (struct hlg_messenger_config){
        .role = HLG_ROLE_DECODE, .fabric = &fabric, .flush = HLG_FLUSH_AUTO};
    messenger.regions = regions;
    regions[0].memory = HLG_MEM_HOST(regions, sizeof regions);
    for (uint32_t i = 0; i < 3; i++) {
        regions[i + 1].memory =
            (struct hlg_mem_region){.kind = HLG_MEMORY_CUDA, .device = devices[i]};
    }
    messenger.region_count = 4;
    return messenger_flusher(&messenger, &flusher) == 0 && flusher != NULL ? 0 : -1;
}

static void each_gpu_is_flushed_once_a_request(void **state)
{
    struct hlg_flushed done;

    (void)state;
    for (int failing = 0; failing < 3; failing++) { /* none, the first or the second one */
        const int before = fake_cuda_made(&control, CALL);
        control.fail_call(CALL, failing, CUDA_UNKNOWN);
        assert_int_equal(flusher->finish(flusher, 7), 1);
        assert_int_equal(fake_cuda_made(&control, CALL) - before, failing == 1 ? 1 : 2);
        assert_int_equal(flusher->poll(flusher, &done, 1), 1);
        assert_int_equal(done.request, 7);
        assert_true((done.status != 0) == (failing > 0));
        assert_int_equal(flusher->poll(flusher, &done, 1), 0);
    }
    control.fail_call(CALL, 0, 0);
}

static void answers_come_in_order_and_are_bounded(void **state)
{
    struct hlg_flushed done[FLUSHES_MAX];
    hlg_handle told = 0;

    (void)state;
    for (hlg_handle i = 1; i <= FLUSHES_MAX; i++) {
        assert_int_equal(flusher->finish(flusher, i), 1);
    }
    const int before = fake_cuda_made(&control, CALL);
    assert_int_equal(flusher->finish(flusher, FLUSHES_MAX + 1), 0); /* not now */
    assert_int_equal(fake_cuda_made(&control, CALL), before);
    for (uint32_t capacity = 16; capacity <= FLUSHES_MAX; capacity += FLUSHES_MAX - 16) {
        const int count = flusher->poll(flusher, done, capacity);
        assert_int_equal(count, capacity == 16 ? 16 : FLUSHES_MAX - 15);
        for (int i = 0; i < count; i++) {
            assert_int_equal(done[i].request, ++told);
        }
        if (capacity == 16) {
            assert_int_equal(flusher->finish(flusher, FLUSHES_MAX + 1), 1);
        }
    }
    assert_int_equal(told, FLUSHES_MAX + 1);
}

static bool needs_none(void)
{
    memset(&messenger.flush, 0, sizeof messenger.flush);
    assert_int_equal(messenger_flusher(&messenger, &flusher), 0);
    return flusher == NULL;
}

static void who_needs_none_has_none(void **state)
{
    struct hlg_flusher own;

    (void)state;
    messenger.region_count = 1; /* the host's */
    assert_true(needs_none());
    messenger.region_count = 4;
    messenger.config.flush = HLG_FLUSH_NONE;
    assert_true(needs_none());
    messenger.config.flush = HLG_FLUSH_CUDA;
    assert_false(needs_none());
    fabric.flusher = &own; /* it copies */
    assert_true(needs_none());
    fabric.flusher = NULL;
    messenger.config.role = HLG_ROLE_PREFILL;
    assert_true(needs_none());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_gpu_is_flushed_once_a_request, set_up),
        cmocka_unit_test_setup(answers_come_in_order_and_are_bounded, set_up),
        cmocka_unit_test_setup(who_needs_none_has_none, set_up),
    };

    /* GPUs that do not order writes of NICs. Before the double is loaded; no other thread runs. */
    (void)setenv("FAKE_CUDA_ATTRIBUTES", "118=0", 1); /* NOLINT(concurrency-mt-unsafe) */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
