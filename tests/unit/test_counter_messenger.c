/*
 * A GPU's layer counter all the way to the decoder's memory, over the double of libcuda: the engine's
 * stream runs one graph again and again, each of its ticks waits for the test's gate, and the messenger's
 * poller watches the word. With gate `l` open, layer `l` must arrive and nothing of a later one (I4), in
 * the forward that the stamp before the launch named; with all open at once, everything must.
 */
#include <halage/counter.h>
#include <halage/places.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#include "../../src/memory/cuda_dl.h"
#include "../support/cuda_graphs.h"
#include "../support/duo.h"

#define TOKENS     21u /* 20 are prefilled: 5 pages */
#define PAGES      5u
#define FORWARDS   4u
#define QUIET      10u /* looks for what must not come */
#define PLACES_MAX 64u

static const struct cuda *cuda;
static struct cuda_graphs graphs;
static struct hlg_counter *counter;
static cuda_context context;
static cuda_stream stream;
static _Atomic uint32_t *gate;
static cuda_ptr gate_address;
static cuda_graph graph;
static cuda_graph_exec replay; /* NULL: the stream is given the ticks themselves */

static void compute(void)
{
    for (uint32_t done = 1; done <= DUO_LAYERS + 1; done++) {
        assert_int_equal(graphs.cuStreamWaitValue32(stream, gate_address, done, 0), CUDA_OK);
        assert_int_equal(hlg_counter_tick(counter, stream, done, NULL, 0), 0);
    }
}

static void launch(uint32_t forward)
{
    atomic_store(gate, 0);
    assert_int_equal(hlg_counter_stamp(counter, stream, forward, NULL, 0), 0);
    if (replay != NULL) {
        assert_int_equal(graphs.cuGraphLaunch(replay, stream), CUDA_OK);
    } else {
        compute();
    }
}

static void open_engine(uint32_t way)
{
    const struct hlg_counter_config config = {.way = way};
    char error[256];
    void *page = NULL;
    int code = 0;

    cuda = cuda_open(&code, error, sizeof error);
    assert_non_null(cuda);
    assert_null(cuda_graphs_find(&graphs));
    if (hlg_counter_create(&config, &counter, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    assert_int_equal(cuda->cuDevicePrimaryCtxRetain(&context, 0), CUDA_OK);
    assert_int_equal(cuda->cuCtxPushCurrent(context), CUDA_OK);
    assert_int_equal(cuda->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    assert_int_equal(cuda->cuMemHostAlloc(&page, 4096, CUDA_HOSTALLOC_DEVICEMAP), CUDA_OK);
    assert_int_equal(cuda->cuMemHostGetDevicePointer(&gate_address, page, 0), CUDA_OK);
    gate = page;
    if (way == HLG_COUNTER_KERNEL) {
        assert_int_equal(graphs.cuStreamBeginCapture(stream, CUDA_CAPTURE_THREAD_LOCAL), CUDA_OK);
        compute();
        assert_int_equal(graphs.cuStreamEndCapture(stream, &graph), CUDA_OK);
        assert_int_equal(graphs.cuGraphInstantiateWithFlags(&replay, graph, 0), CUDA_OK);
    }
}

static void close_engine(void)
{
    assert_int_equal(cuda->cuStreamSynchronize(stream), CUDA_OK);
    if (replay != NULL) {
        assert_int_equal(graphs.cuGraphExecDestroy(replay), CUDA_OK);
        assert_int_equal(graphs.cuGraphDestroy(graph), CUDA_OK);
        replay = NULL;
    }
    assert_int_equal(cuda->cuStreamDestroy(stream), CUDA_OK);
    assert_int_equal(cuda->cuMemFreeHost((void *)gate), CUDA_OK);
    hlg_counter_release(counter);
    assert_int_equal(cuda->cuCtxPopCurrent(&context), CUDA_OK);
    assert_int_equal(cuda->cuDevicePrimaryCtxRelease(0), CUDA_OK);
}

/* Bytes of a layer's pages that are the source's, and how many there are. Targets begin as zeros, of which
 * the source's pattern has few. */
static uint64_t arrived(const struct duo *duo, uint32_t layer, uint32_t target, uint32_t source,
                        uint64_t *all)
{
    struct hlg_place places[PLACES_MAX];
    struct hlg_layout layout;
    uint64_t same = 0;

    duo_layout(&layout);
    const int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, NULL);
    *all = 0;
    for (int p = 0; p < count; p++) {
        const uint64_t bytes = PAGES * places[p].stride;
        const uint8_t *to = duo->decode.memory + places[p].offset + target * places[p].stride;
        const uint8_t *from = duo->prefill.memory + places[p].offset + source * places[p].stride;
        for (uint64_t i = 0; places[p].group == 0 && places[p].layer == layer && i < bytes; i++) {
            same += to[i] != 0 && to[i] == from[i];
            *all += from[i] != 0;
        }
    }
    return same;
}

static void expect_layers(struct duo *duo, uint32_t done, uint32_t target, uint32_t source)
{
    uint64_t all = 0;

    for (uint32_t i = 0;
         i < DUO_TURNS_MAX && done > 0 && arrived(duo, done - 1, target, source, &all) < all; i++) {
        if (duo_turn(duo) == 0) {
            duo_nap(duo);
        }
    }
    for (uint32_t i = 0; i < QUIET; i++) {
        (void)duo_turn(duo);
        duo_nap(duo);
        for (uint32_t layer = 0; layer < DUO_LAYERS; layer++) {
            const uint64_t same = arrived(duo, layer, target, source, &all);
            if (same != (layer < done ? all : 0)) {
                fail_msg("with %u layers done %llu of %llu bytes of layer %u are there", done,
                         (unsigned long long)same, (unsigned long long)all, layer);
            }
        }
    }
}

/* One request in one forward. */
static void transfer(struct duo *duo, uint32_t turn, bool at_once)
{
    const uint32_t target = 100 + turn * PAGES;
    const uint32_t source = turn * PAGES;
    hlg_ticket ticket = 0;

    assert_int_equal(duo_submit(duo, "counted", TOKENS, target, turn, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, turn + 1);
    assert_int_equal(duo->forward, turn + 1);
    if (at_once) {
        atomic_store(gate, DUO_LAYERS + 1);
    }
    for (uint32_t done = 0; !at_once && done <= DUO_LAYERS; done++) {
        atomic_store(gate, done);
        expect_layers(duo, done, target, source);
        assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_READY), turn);
    }
    atomic_store(gate, DUO_LAYERS + 1); /* the context */
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, turn + 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, turn + 1);
    duo_expect(duo, target, source, PAGES);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
}

static void run(uint32_t way)
{
    open_engine(way);
    struct duo *duo = duo_open_watching(hlg_counter_word(counter), launch);
    for (uint32_t turn = 0; turn < FORWARDS; turn++) {
        transfer(duo, turn, turn == FORWARDS - 1);
    }
    duo_close(duo);
    close_engine();
}

static void replays_of_one_graph_send_layer_by_layer(void **state)
{
    (void)state;
    run(HLG_COUNTER_KERNEL);
}

static void writes_of_the_stream_send_layer_by_layer(void **state)
{
    (void)state;
    run(HLG_COUNTER_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_of_one_graph_send_layer_by_layer),
        cmocka_unit_test(writes_of_the_stream_send_layer_by_layer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
