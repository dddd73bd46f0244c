/*
 * Layer counters on a GPU. KERNEL: the forward number lies on the GPU, where the stamp's kernel leaves it
 * for the ticks', captured ones too. WRITE: the values are reckoned here, when they are put into the
 * stream.
 */
#include <halage/counter.h>

#include "counter_ptx.h"
#include "cuda_dl.h"

#include <stdlib.h>
#include <string.h>

#define FORWARD_MAX 0xffffffu
#define DONE_MAX    255u

struct hlg_counter {
    const struct cuda *cuda;
    cuda_device device;
    cuda_context context; /* NULL: none */
    cuda_module module;   /* NULL: none */
    cuda_function stamp;
    cuda_function tick;
    void *host;       /* page of the word; NULL: none */
    bool registered;  /* it is the caller's */
    cuda_ptr address; /* of the word, as the GPU has it */
    enum hlg_counter_way way;
    uint32_t forward; /* WRITE: shifted, of the last stamp */
};

#define TRY(call, ...)                                                     \
    do {                                                                   \
        const cuda_result result_ = c->cuda->call(__VA_ARGS__);            \
        if (result_ != CUDA_OK) {                                          \
            return cuda_fail(c->cuda, #call, result_, error, error_bytes); \
        }                                                                  \
    } while (0)

/* In the context. */
static int write_value(struct hlg_counter *c, cuda_stream stream, uint32_t value, char *error,
                       size_t error_bytes)
{
    /* flags 0: what the stream did before is visible to the system first */
    TRY(cuStreamWriteValue32, stream, c->address, value, 0);
    return 0;
}

static int launch(struct hlg_counter *c, cuda_stream stream, cuda_function kernel, uint32_t value,
                  char *error, size_t error_bytes)
{
    void *parameters[] = {&c->address, &value};

    TRY(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    return 0;
}

static int put_stamp(struct hlg_counter *c, cuda_stream stream, uint32_t forward, char *error,
                     size_t error_bytes)
{
    if (c->way == HLG_COUNTER_KERNEL) {
        return launch(c, stream, c->stamp, forward << 8, error, error_bytes);
    }
    const int code = write_value(c, stream, forward << 8, error, error_bytes);
    c->forward = code == 0 ? forward << 8 : c->forward;
    return code;
}

static int put_tick(struct hlg_counter *c, cuda_stream stream, uint32_t done, char *error,
                    size_t error_bytes)
{
    return c->way == HLG_COUNTER_KERNEL
               ? launch(c, stream, c->tick, done, error, error_bytes)
               : write_value(c, stream, c->forward | done, error, error_bytes);
}

static int load(struct hlg_counter *c, char *error, size_t error_bytes)
{
    TRY(cuModuleLoadData, &c->module, counter_ptx);
    TRY(cuModuleGetFunction, &c->stamp, c->module, COUNTER_STAMP);
    TRY(cuModuleGetFunction, &c->tick, c->module, COUNTER_TICK);
    return 0;
}

static int map_word(struct hlg_counter *c, void *memory, char *error, size_t error_bytes)
{
    /* The flags of both calls are the same two bits. */
    const unsigned flags = CUDA_HOSTALLOC_PORTABLE | CUDA_HOSTALLOC_DEVICEMAP;

    if (memory != NULL) {
        TRY(cuMemHostRegister, memory, HLG_COUNTER_BYTES, flags);
        c->registered = true;
        c->host = memory;
    } else {
        TRY(cuMemHostAlloc, &c->host, HLG_COUNTER_BYTES, flags);
    }
    TRY(cuMemHostGetDevicePointer, &c->address, c->host, 0);
    memset(c->host, 0, HLG_COUNTER_BYTES);
    return 0;
}

static int saw(struct hlg_counter *c, cuda_stream stream, uint32_t wanted, char *error,
               size_t error_bytes)
{
    uint32_t seen = 0;

    TRY(cuStreamSynchronize, stream);
    memcpy(&seen, c->host, sizeof seen);
    return seen == wanted
               ? 0
               : memory_fail(-HLG_EIO, error, error_bytes,
                             "the GPU wrote %u to a counter word in host memory and the CPU reads "
                             "%u: use the other way of struct hlg_counter_config",
                             wanted, seen);
}

/* Forward 0, layer 1: what nobody announces. Leaves 0. */
static int prove(struct hlg_counter *c, cuda_stream stream, char *error, size_t error_bytes)
{
    int code = put_stamp(c, stream, 0, error, error_bytes);

    code = code == 0 ? put_tick(c, stream, 1, error, error_bytes) : code;
    code = code == 0 ? saw(c, stream, 1, error, error_bytes) : code;
    code = code == 0 ? put_stamp(c, stream, 0, error, error_bytes) : code;
    return code == 0 ? saw(c, stream, 0, error, error_bytes) : code;
}

/* In the context. */
static int make(struct hlg_counter *c, void *memory, char *error, size_t error_bytes)
{
    cuda_stream stream = NULL;
    int code = c->way == HLG_COUNTER_KERNEL ? load(c, error, error_bytes) : 0;

    if (code == 0) {
        code = map_word(c, memory, error, error_bytes);
    }
    if (code != 0) {
        return code;
    }
    TRY(cuStreamCreate, &stream, CUDA_STREAM_NON_BLOCKING);
    code = prove(c, stream, error, error_bytes);
    if (code != 0) {
        (void)c->cuda->cuStreamSynchronize(stream); /* what is in it uses the word */
    }
    (void)c->cuda->cuStreamDestroy(stream);
    return code;
}

static int open_device(struct hlg_counter *c, const struct hlg_counter_config *config, char *error,
                       size_t error_bytes)
{
    int code = cuda_check_device(c->cuda, config->device, error, error_bytes);

    if (code != 0) {
        return code;
    }
    if (c->way == HLG_COUNTER_WRITE && c->cuda->cuStreamWriteValue32 == NULL) {
        return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                           "the CUDA driver has no cuStreamWriteValue32 of CUDA 11.7: use "
                           "HLG_COUNTER_KERNEL, or driver 515 or newer");
    }
    TRY(cuDeviceGet, &c->device, config->device);
    TRY(cuDevicePrimaryCtxRetain, &c->context, c->device);
    code = cuda_enter(c->cuda, c->context, error, error_bytes);
    if (code == 0) {
        code = make(c, config->memory, error, error_bytes);
        cuda_leave(c->cuda);
    }
    return code;
}

int hlg_counter_create(const struct hlg_counter_config *config, struct hlg_counter **counter,
                       char *error, size_t error_bytes)
{
    int code = 0;

    if (config->way != HLG_COUNTER_KERNEL && config->way != HLG_COUNTER_WRITE) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "there is no way %u to stamp a counter: name one of "
                           "enum hlg_counter_way",
                           config->way);
    }
    if ((uintptr_t)config->memory % HLG_COUNTER_BYTES != 0) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "a counter's memory must begin at a multiple of %u bytes, not at %p",
                           HLG_COUNTER_BYTES, config->memory);
    }
    struct hlg_counter *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
    }
    c->way = config->way;
    c->cuda = cuda_open(&code, error, error_bytes);
    if (c->cuda != NULL) {
        code = open_device(c, config, error, error_bytes);
    }
    if (code != 0) {
        hlg_counter_release(c);
        return code;
    }
    *counter = c;
    return 0;
}

void hlg_counter_release(struct hlg_counter *c)
{
    if (c == NULL) {
        return;
    }
    if (c->context != NULL) {
        /* Without the context these fail, and the driver frees them with it. */
        const bool is_in = c->cuda->cuCtxPushCurrent(c->context) == CUDA_OK;
        if (c->host != NULL) {
            (void)(c->registered ? c->cuda->cuMemHostUnregister(c->host)
                                 : c->cuda->cuMemFreeHost(c->host));
        }
        if (c->module != NULL) {
            (void)c->cuda->cuModuleUnload(c->module);
        }
        if (is_in) {
            cuda_leave(c->cuda);
        }
        (void)c->cuda->cuDevicePrimaryCtxRelease(c->device);
    }
    free(c);
}

const HLG_ATOMIC_U32 *hlg_counter_word(const struct hlg_counter *c)
{
    return c->host;
}

/* ---- In the stream ---- */

/* In the context: whether the stream may be given a constant now. */
static int check_stream(struct hlg_counter *c, cuda_stream stream, const char *what, char *error,
                        size_t error_bytes)
{
    int status = CUDA_CAPTURE_NONE;

    TRY(cuStreamIsCapturing, stream, &status);
    return status == CUDA_CAPTURE_NONE
               ? 0
               : memory_fail(-HLG_ESTATE, error, error_bytes,
                             "a graph would replay this %s with the forward number of its capture: "
                             "stamp before each launch, and capture ticks of HLG_COUNTER_KERNEL",
                             what);
}

int hlg_counter_stamp(struct hlg_counter *c, void *stream, uint32_t forward, char *error,
                      size_t error_bytes)
{
    if (forward == 0 || forward > FORWARD_MAX) {
        return memory_fail(
            -HLG_EINVAL, error, error_bytes,
            "forward pass %u cannot be stamped: number them from 1 to %u, then from 1 "
            "again",
            forward, FORWARD_MAX);
    }
    int code = cuda_enter(c->cuda, c->context, error, error_bytes);
    if (code != 0) {
        return code;
    }
    code = check_stream(c, stream, "stamp", error, error_bytes);
    if (code == 0) {
        code = put_stamp(c, stream, forward, error, error_bytes);
    }
    cuda_leave(c->cuda);
    return code;
}

int hlg_counter_tick(struct hlg_counter *c, void *stream, uint32_t done, char *error,
                     size_t error_bytes)
{
    if (done == 0 || done > DONE_MAX) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "%u layers done cannot be ticked: count from 1 to %u", done, DONE_MAX);
    }
    int code = cuda_enter(c->cuda, c->context, error, error_bytes);
    if (code != 0) {
        return code;
    }
    if (c->way == HLG_COUNTER_WRITE) {
        code = check_stream(c, stream, "tick", error, error_bytes);
    }
    if (code == 0) {
        code = put_tick(c, stream, done, error, error_bytes);
    }
    cuda_leave(c->cuda);
    return code;
}
