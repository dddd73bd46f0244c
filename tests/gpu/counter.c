/*
 * The layer counter inside a replayed CUDA graph, and by writes of the stream. Before each tick the stream
 * waits at a gate, a word in host memory. This thread opens the gate and spins on the counter word, as the
 * poller does, until the tick is there. Measured:
 *
 *   gate to tick   from just before the CPU opens the gate to the tick seen: GPU reads the gate across
 *                  PCIe, the next node of the graph starts, fence, store, CPU sees it
 *   tick alone     from %globaltimer, read when the gate kernel lets through, to the tick seen: start of the
 *                  tick's kernel, fence, store, CPU sees it. Clocks are matched within each forward pass:
 *                  a note lies between gate and tick of its own, which bounds their difference from both
 *                  sides; half the width of the bounds is the uncertainty
 */
#include <halage/counter.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/cuda_graphs.h"
#include "check.h"
#include "gate_ptx.h"

#define LAYERS   61u /* and the context */
#define LIMIT_NS INT64_C(1500000000)

static const struct cuda *cuda;
static struct cuda_graphs graphs;
static cuda_function gate_kernel; /* NULL: the stream's own wait */
static cuda_stream stream;
static _Atomic uint32_t *gate;
static uint64_t *notes; /* [LAYERS] of the GPU's time */
static cuda_ptr gate_address;
static cuda_ptr notes_address;

struct samples {
    int64_t *round_trips; /* [forwards][LAYERS] */
    int64_t *alone;
    int64_t *uncertain; /* [forwards] */
};

#define DO(call) GPU_NEED((call) == CUDA_OK, "%s failed", #call)

static void *map_page(cuda_ptr *address)
{
    void *page = NULL;

    DO(cuda->cuMemHostAlloc(&page, 4096, CUDA_HOSTALLOC_PORTABLE | CUDA_HOSTALLOC_DEVICEMAP));
    DO(cuda->cuMemHostGetDevicePointer(address, page, 0));
    memset(page, 0, 4096);
    return page;
}

/* Without the kernel (over the double) the stream waits itself. */
static void load_gate(void)
{
    cuda_module module = NULL;
    const cuda_result result = cuda->cuModuleLoadData(&module, gate_ptx);

    if (result != CUDA_OK) {
        (void)printf(
            "no gate kernel (error %d): the stream waits itself, and nothing is told of the "
            "tick alone\n",
            result);
        return;
    }
    DO(cuda->cuModuleGetFunction(&gate_kernel, module, "gpu_gate"));
    /* Once now, with the gate open: drivers load a kernel when it is first launched, which may wait for those that
       run, and here one that runs waits for us. The counter's own ran when it was made. */
    uint32_t open = 0;
    void *parameters[] = {&gate_address, &open, &notes_address};
    DO(cuda->cuLaunchKernel(gate_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    DO(cuda->cuStreamSynchronize(stream));
}

static void compute(struct hlg_counter *counter)
{
    char error[512] = "";

    for (uint32_t done = 1; done <= LAYERS; done++) {
        cuda_ptr note = notes_address + (done - 1) * sizeof *notes;
        void *parameters[] = {&gate_address, &done, &note};
        if (gate_kernel != NULL) {
            DO(cuda->cuLaunchKernel(gate_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        } else {
            DO(graphs.cuStreamWaitValue32(stream, gate_address, done, 0));
        }
        GPU_NEED(hlg_counter_tick(counter, stream, done, error, sizeof error) == 0, "%s", error);
    }
}

static void wait_for(const struct hlg_counter *counter, uint32_t value)
{
    const int64_t limit = gpu_now_ns() + LIMIT_NS;
    uint32_t now = 0;

    do {
        now = atomic_load_explicit(hlg_counter_word(counter), memory_order_acquire);
        GPU_NEED(now == value || now + 1 == value || gpu_now_ns() < limit, "the word jumps to %x",
                 now);
        GPU_NEED(gpu_now_ns() < limit, "the word stays %x and does not become %x", now, value);
    } while (now != value);
}

/* Layer by layer. Fills in this pass's samples. */
static void pass(const struct hlg_counter *counter, uint32_t forward, const struct samples *s,
                 uint32_t index)
{
    int64_t opened[LAYERS];
    int64_t seen[LAYERS];
    int64_t least = INT64_MIN; /* GPU's clock less ours: bounds */
    int64_t most = INT64_MAX;

    wait_for(counter, forward << 8);
    for (uint32_t i = 0; i < LAYERS; i++) {
        opened[i] = gpu_now_ns();
        atomic_store_explicit(gate, i + 1, memory_order_release);
        wait_for(counter, forward << 8 | (i + 1));
        seen[i] = gpu_now_ns();
        s->round_trips[index * LAYERS + i] = seen[i] - opened[i];
    }
    for (uint32_t i = 0; gate_kernel != NULL && i < LAYERS; i++) {
        const int64_t note = (int64_t)notes[i];
        least = note - seen[i] > least ? note - seen[i] : least;
        most = note - opened[i] < most ? note - opened[i] : most;
    }
    for (uint32_t i = 0; gate_kernel != NULL && i < LAYERS; i++) {
        s->alone[index * LAYERS + i] = seen[i] + (least / 2 + most / 2) - (int64_t)notes[i];
    }
    s->uncertain[index] = gate_kernel != NULL ? (most - least) / 2 : 0;
}

static void print(const char *way, const struct samples *s, uint32_t forwards)
{
    char name[128];

    (void)snprintf(name, sizeof name, "%s, gate to tick", way);
    gpu_print_times(name, s->round_trips, forwards * LAYERS);
    if (gate_kernel != NULL) {
        (void)snprintf(name, sizeof name, "%s, tick alone", way);
        gpu_print_times(name, s->alone, forwards * LAYERS);
        (void)snprintf(name, sizeof name, "%s, uncertainty of the tick alone, of each pass", way);
        gpu_print_times(name, s->uncertain, forwards);
    }
}

/* Returns whether there is such a way here. */
static bool run(uint32_t way, uint32_t forwards)
{
    const struct hlg_counter_config config = {.way = way};
    const struct samples s = {.round_trips = calloc((size_t)forwards * LAYERS, sizeof(int64_t)),
                              .alone = calloc((size_t)forwards * LAYERS, sizeof(int64_t)),
                              .uncertain = calloc(forwards, sizeof(int64_t))};
    struct hlg_counter *counter = NULL;
    cuda_graph graph = NULL;
    cuda_graph_exec replay = NULL;
    char error[512] = "";

    GPU_NEED(s.round_trips != NULL && s.alone != NULL && s.uncertain != NULL, "out of memory");
    const int code = hlg_counter_create(&config, &counter, error, sizeof error);
    if (code == -HLG_EUNSUPPORTED) {
        (void)printf("way %u cannot be had here: %s\n", way, error);
        return false;
    }
    GPU_NEED(code == 0, "%s", error);
    if (way == HLG_COUNTER_KERNEL) {
        DO(graphs.cuStreamBeginCapture(stream, CUDA_CAPTURE_THREAD_LOCAL));
        compute(counter);
        DO(graphs.cuStreamEndCapture(stream, &graph));
        DO(graphs.cuGraphInstantiateWithFlags(&replay, graph, 0));
    }
    for (uint32_t i = 0; i < forwards; i++) {
        atomic_store(gate, 0);
        GPU_NEED(hlg_counter_stamp(counter, stream, i + 1, error, sizeof error) == 0, "%s", error);
        if (replay != NULL) {
            DO(graphs.cuGraphLaunch(replay, stream));
        } else {
            compute(counter);
        }
        pass(counter, i + 1, &s, i);
        DO(cuda->cuStreamSynchronize(stream));
    }
    print(way == HLG_COUNTER_KERNEL ? "kernel, in a replayed graph" : "write of the stream", &s,
          forwards);
    if (replay != NULL) {
        DO(graphs.cuGraphExecDestroy(replay));
        DO(graphs.cuGraphDestroy(graph));
    }
    hlg_counter_release(counter);
    free(s.round_trips);
    free(s.alone);
    free(s.uncertain);
    return true;
}

void gpu_counter(uint32_t forwards)
{
    cuda_context context = NULL;
    cuda_device device = 0;

    cuda = gpu_driver();
    const char *missing = cuda_graphs_find(&graphs);
    if (missing != NULL) {
        gpu_skipped("the driver has no %s", missing);
    }
    DO(cuda->cuDeviceGet(&device, 0));
    DO(cuda->cuDevicePrimaryCtxRetain(&context, device));
    DO(cuda->cuCtxPushCurrent(context));
    DO(cuda->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
    gate = map_page(&gate_address);
    notes = map_page(&notes_address);
    load_gate();
    const bool kernel = run(HLG_COUNTER_KERNEL, forwards);
    const bool write = run(HLG_COUNTER_WRITE, forwards);
    if (!kernel && !write) {
        gpu_skipped("neither way of a counter can be had here");
    }
    gpu_ran("%u forward passes of %u ticks by %s, every tick seen in its turn", forwards, LAYERS,
            kernel && write ? "each way"
            : kernel        ? "the kernel alone"
                            : "writes alone");
}
