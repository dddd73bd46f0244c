#include "cuda_engine.h"

#include "cuda_child.h"

void cuda_engine_open(struct cuda_engine *e, uint32_t way, int32_t device, uint32_t layers)
{
    const struct hlg_counter_config config = {.device = device, .way = way};
    char error[SENTENCE];
    void *page = NULL;
    int code = 0;

    *e = (struct cuda_engine){.device = device, .layers = layers};
    e->cuda = cuda_open(&code, error, sizeof error);
    CHECK(e->cuda != NULL && cuda_graphs_find(&e->graphs) == NULL);
    if (hlg_counter_create(&config, &e->counter, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s\n", error);
        _exit(1);
    }
    CHECK(e->cuda->cuDevicePrimaryCtxRetain(&e->context, device) == CUDA_OK);
    CHECK(e->cuda->cuCtxPushCurrent(e->context) == CUDA_OK);
    CHECK(e->cuda->cuStreamCreate(&e->stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
    CHECK(e->cuda->cuMemHostAlloc(&page, 4096, CUDA_HOSTALLOC_DEVICEMAP) == CUDA_OK);
    CHECK(e->cuda->cuMemHostGetDevicePointer(&e->gate_address, page, 0) == CUDA_OK);
    e->gate = page;
}

void cuda_engine_close(struct cuda_engine *e)
{
    CHECK(e->cuda->cuStreamSynchronize(e->stream) == CUDA_OK);
    if (e->exec != NULL) {
        CHECK(e->graphs.cuGraphExecDestroy(e->exec) == CUDA_OK);
        CHECK(e->graphs.cuGraphDestroy(e->graph) == CUDA_OK);
    }
    CHECK(e->cuda->cuStreamDestroy(e->stream) == CUDA_OK);
    CHECK(e->cuda->cuMemFreeHost((void *)e->gate) == CUDA_OK);
    hlg_counter_release(e->counter);
    CHECK(e->cuda->cuCtxPopCurrent(&e->context) == CUDA_OK);
    CHECK(e->cuda->cuDevicePrimaryCtxRelease(e->device) == CUDA_OK);
}

static void compute(struct cuda_engine *e)
{
    for (uint32_t done = 1; done <= e->layers; done++) {
        CHECK(e->graphs.cuStreamWaitValue32(e->stream, e->gate_address, done, 0) == CUDA_OK);
        CHECK(hlg_counter_tick(e->counter, e->stream, done, NULL, 0) == 0);
    }
}

void cuda_engine_capture(struct cuda_engine *e)
{
    CHECK(e->graphs.cuStreamBeginCapture(e->stream, CUDA_CAPTURE_THREAD_LOCAL) == CUDA_OK);
    compute(e);
    CHECK(e->graphs.cuStreamEndCapture(e->stream, &e->graph) == CUDA_OK);
    CHECK(e->graphs.cuGraphInstantiateWithFlags(&e->exec, e->graph, 0) == CUDA_OK);
}

void cuda_engine_launch(struct cuda_engine *e, uint32_t forward)
{
    atomic_store(e->gate, 0);
    CHECK(hlg_counter_stamp(e->counter, e->stream, forward, NULL, 0) == 0);
    if (e->exec != NULL) {
        CHECK(e->graphs.cuGraphLaunch(e->exec, e->stream) == CUDA_OK);
    } else {
        compute(e);
    }
}
