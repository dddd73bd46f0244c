/*
 * Layer counters over the double of libcuda: what the word shows after each stamp and tick, straight and
 * through replays of one graph; that the word may lie in memory of another process; and that each driver
 * call that fails gives one sentence and leaves nothing. The stream waits before each tick until the test
 * opens the gate, so that no value is missed.
 */
#define _GNU_SOURCE
#include <halage/counter.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../support/cuda_child.h"
#include "../support/cuda_engine.h"
#include "../support/fake_cuda_control.h"

#define LAYERS 5u
#define LOOKS  20000u /* of 0.1 ms */

/* ---- An engine's stream, with a gate before each tick ---- */

static struct cuda_engine engine;

static void open_engine(uint32_t way)
{
    cuda_engine_open(&engine, way, 1, LAYERS);
}

static void close_engine(void)
{
    cuda_engine_close(&engine);
    check_clean();
}

static void expect(uint32_t value)
{
    const struct timespec nap = {.tv_nsec = 100000};
    uint32_t now = ~value;

    for (uint32_t i = 0; i < LOOKS && now != value; i++) {
        now = atomic_load_explicit(hlg_counter_word(engine.counter), memory_order_acquire);
        if (now != value) {
            (void)nanosleep(&nap, NULL);
        }
    }
    if (now != value) {
        (void)fprintf(stderr, "the word is %x, not %x\n", now, value);
        _exit(1);
    }
}

/* One forward pass: each value in turn, and none before its gate is open. */
static void pass(uint32_t forward)
{
    cuda_engine_launch(&engine, forward);
    expect(forward << 8);
    for (uint32_t done = 1; done <= LAYERS; done++) {
        CHECK(atomic_load(hlg_counter_word(engine.counter)) == (forward << 8 | (done - 1)));
        atomic_store(engine.gate, done);
        expect(forward << 8 | done);
    }
}

static void passes(void)
{
    expect(0); /* what create tried is gone */
    pass(1);
    pass(2);
    pass(0xffffffu);
    pass(1);
}

static void replayed(void)
{
    open_engine(HLG_COUNTER_KERNEL);
    cuda_engine_capture(&engine);
    expect(0); /* a capture runs nothing */
    passes();
    /* Without a stamp the same graph says nothing that was not said. */
    CHECK(engine.graphs.cuGraphLaunch(engine.exec, engine.stream) == CUDA_OK);
    CHECK(engine.cuda->cuStreamSynchronize(engine.stream) == CUDA_OK);
    expect(1u << 8 | LAYERS);
    close_engine();
}

static void straight_by_kernel(void)
{
    open_engine(HLG_COUNTER_KERNEL);
    passes();
    close_engine();
}

static void straight_by_write(void)
{
    open_engine(HLG_COUNTER_WRITE);
    passes();
    close_engine();
}

static void stamps_and_ticks_follow_the_stream(void **state)
{
    (void)state;
    in_child(straight_by_kernel, NULL, NULL);
    in_child(straight_by_write, NULL, NULL);
    in_child(straight_by_write, "FAKE_CUDA_DELAY_US", "500");
}

static uint32_t failing_way;

static void stamp_fails(void)
{
    struct fake_cuda_control control;

    fake_cuda_control(&control);
    open_engine(failing_way);
    CHECK(hlg_counter_stamp(engine.counter, engine.stream, 3, NULL, 0) == 0);
    control.fail_call(failing_way == HLG_COUNTER_WRITE ? "cuStreamWriteValue32" : "cuLaunchKernel",
                      1, CUDA_UNKNOWN);
    CHECK(hlg_counter_stamp(engine.counter, engine.stream, 4, NULL, 0) != 0);
    CHECK(hlg_counter_tick(engine.counter, engine.stream, 2, NULL, 0) == 0);
    CHECK(engine.cuda->cuStreamSynchronize(engine.stream) == CUDA_OK);
    CHECK(atomic_load(hlg_counter_word(engine.counter)) == (3u << 8 | 2));
    close_engine();
}

/* A forward that was not stamped has no layers, whoever ticks on. */
static void ticks_after_a_stamp_that_failed_are_not_of_its_forward(void **state)
{
    (void)state;
    failing_way = HLG_COUNTER_WRITE;
    in_child(stamp_fails, NULL, NULL);
    failing_way = HLG_COUNTER_KERNEL;
    in_child(stamp_fails, NULL, NULL);
}

static void one_graph_ticks_for_every_forward(void **state)
{
    (void)state;
    in_child(replayed, NULL, NULL);
    in_child(replayed, "FAKE_CUDA_DELAY_US", "500");
}

/* ---- Where the word is ---- */

static void *shared_page;

static void rank_main(void)
{
    const struct hlg_counter_config config = {.way = HLG_COUNTER_KERNEL, .memory = shared_page};
    struct hlg_counter *counter = NULL;
    struct hlg_counter *second = NULL;
    cuda_stream stream = NULL;
    cuda_context context = NULL;
    char error[SENTENCE] = "";
    int code = 0;

    CHECK(hlg_counter_create(&config, &counter, NULL, 0) == 0);
    CHECK((const void *)hlg_counter_word(counter) == shared_page);
    CHECK(hlg_counter_create(&config, &second, error, sizeof error) == -HLG_EINVAL);
    CHECK(strstr(error, "pinned already") != NULL);
    engine.cuda = cuda_open(&code, NULL, 0);
    /* No context of ours is left current. */
    CHECK(engine.cuda->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_INVALID_CONTEXT);
    CHECK(engine.cuda->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_OK);
    CHECK(engine.cuda->cuCtxPushCurrent(context) == CUDA_OK);
    CHECK(engine.cuda->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
    CHECK(hlg_counter_stamp(counter, stream, 7, NULL, 0) == 0);
    CHECK(hlg_counter_tick(counter, stream, 3, NULL, 0) == 0);
    CHECK(engine.cuda->cuStreamSynchronize(stream) == CUDA_OK);
    CHECK(engine.cuda->cuStreamDestroy(stream) == CUDA_OK);
    CHECK(engine.cuda->cuCtxPopCurrent(&context) == CUDA_OK);
    CHECK(engine.cuda->cuDevicePrimaryCtxRelease(0) == CUDA_OK);
    hlg_counter_release(counter);
    check_clean();
}

static void another_process_reads_the_word(void **state)
{
    (void)state;
    shared_page =
        mmap(NULL, HLG_COUNTER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared_page != MAP_FAILED);
    in_child(rank_main, NULL, NULL);
    assert_int_equal(*(const uint32_t *)shared_page, 7u << 8 | 3);
    assert_int_equal(munmap(shared_page, HLG_COUNTER_BYTES), 0);
}

/* ---- What fails ---- */

static uint32_t tried_way;
static void *tried_memory;

/* A counter's whole life. Returns the first error. */
static int all_of_it(char error[SENTENCE])
{
    const struct hlg_counter_config config = {.way = tried_way, .memory = tried_memory};
    struct hlg_counter *counter = NULL;

    error[0] = '\0';
    int code = hlg_counter_create(&config, &counter, error, SENTENCE);
    if (code == 0) {
        CHECK(atomic_load(hlg_counter_word(counter)) == 0);
        code = hlg_counter_stamp(counter, engine.stream, 9, error, SENTENCE);
    }
    if (code == 0) {
        code = hlg_counter_tick(counter, engine.stream, 2, error, SENTENCE);
    }
    CHECK(engine.cuda->cuStreamSynchronize(engine.stream) == CUDA_OK);
    CHECK(code != 0 || atomic_load(hlg_counter_word(counter)) == (9u << 8 | 2));
    hlg_counter_release(counter);
    return code;
}

/* Calls whose failure nobody can mend: what was to be done was done. The n-th of `count`. */
static bool is_harmless(const char *call, int n, int count)
{
    static const char *const harmless[] = {"cuMemFreeHost",   "cuMemHostUnregister",
                                           "cuModuleUnload",  "cuDevicePrimaryCtxRelease",
                                           "cuStreamDestroy", "cuCtxPopCurrent"};

    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (strcmp(call, harmless[i]) == 0) {
            return true;
        }
    }
    return strcmp(call, "cuCtxPushCurrent") == 0 && n == count; /* of release */
}

static void fail_once(const struct fake_cuda_control *control, const char *call, int n, int count,
                      int with)
{
    char before[256];
    char after[256];
    char error[SENTENCE];

    (void)control->live(before, sizeof before);
    control->fail_call(call, n, with);
    const int code = all_of_it(error);
    control->fail_call(call, 0, 0);
    (void)control->live(after, sizeof after);
    const bool right =
        is_harmless(call, n, count) ? code == 0 : code < 0 && strstr(error, call) != NULL;
    if (!right || strcmp(before, after) != 0) {
        (void)fprintf(stderr, "call %d of %s failing with %d: code %d '%s', alive %s, was %s\n", n,
                      call, with, code, error, after, before);
        _exit(1);
    }
}

/* The test's own stream and its synchronising are of another context: counted apart. */
static int fail_each(const struct fake_cuda_control *control)
{
    static const int errors[] = {CUDA_OUT_OF_MEMORY, CUDA_NOT_PERMITTED + 1000, CUDA_INVALID_PTX};
    const char *call = NULL;
    char error[SENTENCE];
    int failures = 0;

    for (int i = 0, made = 0; (call = control->call(i, &made)) != NULL; i++) {
        const int before = made;
        CHECK(all_of_it(error) == 0);
        (void)control->call(i, &made);
        const int own = strcmp(call, "cuStreamSynchronize") == 0; /* the last is this test's */
        for (int n = 1; n <= made - before - own; n++) {
            for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
                fail_once(control, call, n, made - before, errors[e]);
                failures++;
            }
        }
    }
    return failures;
}

static void each_fails(void)
{
    struct fake_cuda_control control;
    int failures = 0;

    open_engine(HLG_COUNTER_KERNEL);
    fake_cuda_control(&control);
    tried_way = HLG_COUNTER_KERNEL;
    failures += fail_each(&control);
    CHECK(failures >= 3 * 20); /* else the calls are not what a counter makes any more */
    tried_way = HLG_COUNTER_WRITE;
    tried_memory =
        mmap(NULL, HLG_COUNTER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tried_memory != MAP_FAILED);
    failures += fail_each(&control);
    CHECK(munmap(tried_memory, HLG_COUNTER_BYTES) == 0);
    (void)printf("# %d failures\n", failures);
    (void)fflush(stdout);
    close_engine();
}

static void every_call_that_fails_leaves_nothing(void **state)
{
    (void)state;
    in_child(each_fails, NULL, NULL);
}

/* ---- What cannot be ---- */

static void wrong_configs(void)
{
    static char unaligned[8];
    static const struct {
        struct hlg_counter_config config;
        const char *sentence;
    } cases[] = {
        {{.way = 0}, "no way 0"},
        {{.way = 3}, "no way 3"},
        {{.way = HLG_COUNTER_KERNEL, .device = 2}, "no GPU 2"},
        {{.way = HLG_COUNTER_KERNEL, .device = -1}, "no GPU -1"},
        {{.way = HLG_COUNTER_WRITE, .memory = unaligned + 1}, "multiple of 4096"},
    };
    struct hlg_counter *counter = NULL;
    char error[SENTENCE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int code = hlg_counter_create(&cases[i].config, &counter, error, sizeof error);
        refused_as(code, -HLG_EINVAL, error, cases[i].sentence);
        CHECK(counter == NULL);
    }
    hlg_counter_release(NULL);
}

static void wrong_values(void)
{
    struct hlg_counter *c = NULL;
    char error[SENTENCE];

    open_engine(HLG_COUNTER_KERNEL);
    c = engine.counter;
    refused_as(hlg_counter_stamp(c, engine.stream, 0, error, sizeof error), -HLG_EINVAL, error,
               "forward pass 0");
    refused_as(hlg_counter_stamp(c, engine.stream, 1u << 24, error, sizeof error), -HLG_EINVAL,
               error, "forward pass 16777216");
    refused_as(hlg_counter_tick(c, engine.stream, 0, error, sizeof error), -HLG_EINVAL, error,
               "0 layers");
    refused_as(hlg_counter_tick(c, engine.stream, 256, error, sizeof error), -HLG_EINVAL, error,
               "256 layers");
    CHECK(engine.graphs.cuStreamBeginCapture(engine.stream, CUDA_CAPTURE_THREAD_LOCAL) == CUDA_OK);
    refused_as(hlg_counter_stamp(c, engine.stream, 1, error, sizeof error), -HLG_ESTATE, error,
               "stamp before each launch");
    CHECK(engine.graphs.cuStreamEndCapture(engine.stream, &engine.graph) == CUDA_OK);
    CHECK(engine.graphs.cuGraphDestroy(engine.graph) == CUDA_OK);
    CHECK(engine.cuda->cuStreamSynchronize(engine.stream) == CUDA_OK);
    expect(0); /* nothing of all that was put into the stream */
    close_engine();
}

static void captured_write(void)
{
    char error[SENTENCE];

    open_engine(HLG_COUNTER_WRITE);
    CHECK(engine.graphs.cuStreamBeginCapture(engine.stream, CUDA_CAPTURE_THREAD_LOCAL) == CUDA_OK);
    refused_as(hlg_counter_tick(engine.counter, engine.stream, 1, error, sizeof error), -HLG_ESTATE,
               error, "HLG_COUNTER_KERNEL");
    CHECK(engine.graphs.cuStreamEndCapture(engine.stream, &engine.graph) == CUDA_OK);
    CHECK(engine.graphs.cuGraphDestroy(engine.graph) == CUDA_OK);
    close_engine();
}

static const char *expected_sentence;

static void way_refused(void)
{
    const struct hlg_counter_config config = {.way = tried_way};
    struct hlg_counter *counter = NULL;
    char error[SENTENCE];
    const int code = hlg_counter_create(&config, &counter, error, sizeof error);

    refused_as(code, -HLG_EUNSUPPORTED, error, expected_sentence);
    check_clean();
}

static void what_cannot_be_is_refused_in_a_sentence(void **state)
{
    (void)state;
    in_child(wrong_configs, NULL, NULL);
    in_child(wrong_values, NULL, NULL);
    in_child(captured_write, NULL, NULL);
    tried_way = HLG_COUNTER_WRITE;
    expected_sentence = "use HLG_COUNTER_KERNEL";
    in_child(way_refused, "FAKE_CUDA_MISSING", "cuStreamWriteValue32");
    in_child(straight_by_kernel, "FAKE_CUDA_MISSING", "cuStreamWriteValue32");
    tried_way = HLG_COUNTER_KERNEL;
    expected_sentence = "ptxjitcompiler";
    in_child(way_refused, "FAKE_CUDA_FAIL", "cuModuleLoadData:1:221");
    expected_sentence = "older than sm_70";
    in_child(way_refused, "FAKE_CUDA_FAIL", "cuModuleLoadData:1:222");
    expected_sentence = "sees no GPU";
    in_child(way_refused, "FAKE_CUDA_FAIL", "cuInit:1:100");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stamps_and_ticks_follow_the_stream),
        cmocka_unit_test(ticks_after_a_stamp_that_failed_are_not_of_its_forward),
        cmocka_unit_test(one_graph_ticks_for_every_forward),
        cmocka_unit_test(another_process_reads_the_word),
        cmocka_unit_test(every_call_that_fails_leaves_nothing),
        cmocka_unit_test(what_cannot_be_is_refused_in_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
