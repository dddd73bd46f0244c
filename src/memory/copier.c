#include "copier.h"

#include "cuda_dl.h"

#include <stdlib.h>

struct copier {
    const struct cuda *cuda;
    cuda_device device;
    cuda_context context; /* NULL: none */
    cuda_stream stream;
    cuda_event *marks; /* [mark_count] NULL from the first that could not be made */
    uint32_t mark_count;
    char why[256];
};

static int judge(struct copier *c, const char *call, cuda_result result)
{
    if (result == CUDA_OK) {
        return 0;
    }
    (void)cuda_fail(c->cuda, call, result, c->why, sizeof c->why);
    return -HLG_EIO;
}

const char *copier_why(const struct copier *c)
{
    return c->why;
}

int copier_begin(struct copier *c)
{
    return judge(c, "cuCtxPushCurrent", c->cuda->cuCtxPushCurrent(c->context));
}

void copier_end(struct copier *c)
{
    cuda_leave(c->cuda);
}

/* Stream and marks, in the context. */
static int make(struct copier *c, char *error, size_t error_bytes)
{
    cuda_result result = c->cuda->cuStreamCreate(&c->stream, CUDA_STREAM_NON_BLOCKING);

    if (result != CUDA_OK) {
        c->stream = NULL;
        return cuda_fail(c->cuda, "cuStreamCreate", result, error, error_bytes);
    }
    for (uint32_t i = 0; i < c->mark_count; i++) {
        result = c->cuda->cuEventCreate(&c->marks[i], CUDA_EVENT_DISABLE_TIMING);
        if (result != CUDA_OK) {
            c->marks[i] = NULL;
            return cuda_fail(c->cuda, "cuEventCreate", result, error, error_bytes);
        }
    }
    return 0;
}

static int open_context(struct copier *c, int32_t device, char *error, size_t error_bytes)
{
    const char *call = "cuDeviceGet";
    int code = cuda_check_device(c->cuda, device, error, error_bytes);

    if (code != 0) {
        return code;
    }
    cuda_result result = c->cuda->cuDeviceGet(&c->device, device);
    if (result == CUDA_OK) {
        call = "cuDevicePrimaryCtxRetain";
        result = c->cuda->cuDevicePrimaryCtxRetain(&c->context, c->device);
    }
    if (result != CUDA_OK) {
        c->context = NULL;
        return cuda_fail(c->cuda, call, result, error, error_bytes);
    }
    code = cuda_enter(c->cuda, c->context, error, error_bytes);
    if (code == 0) {
        code = make(c, error, error_bytes);
        cuda_leave(c->cuda);
    }
    return code;
}

int copier_open(int32_t device, uint32_t marks, struct copier **out, char *error,
                size_t error_bytes)
{
    int code = 0;
    struct copier *c = calloc(1, sizeof *c);
    cuda_event *events = calloc(marks, sizeof *events);

    if (c == NULL || events == NULL) {
        free(c);
        free(events);
        return memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
    }
    c->marks = events;
    c->mark_count = marks;
    c->cuda = cuda_open(&code, error, error_bytes);
    if (c->cuda != NULL) {
        code = open_context(c, device, error, error_bytes);
    }
    if (code != 0) {
        copier_close(c);
        return code;
    }
    *out = c;
    return 0;
}

void copier_close(struct copier *c)
{
    if (c == NULL) {
        return;
    }
    if (c->stream != NULL) {
        (void)copier_wait(c);
    }
    if (c->context != NULL) {
        const bool entered = copier_begin(c) == 0; /* else it is tried all the same */
        for (uint32_t i = 0; i < c->mark_count && c->marks[i] != NULL; i++) {
            (void)c->cuda->cuEventDestroy(c->marks[i]);
        }
        if (c->stream != NULL) {
            (void)c->cuda->cuStreamDestroy(c->stream);
        }
        if (entered) {
            copier_end(c);
        }
        (void)c->cuda->cuDevicePrimaryCtxRelease(c->device);
    }
    free(c->marks);
    free(c);
}

int copier_pin(struct copier *c, uint64_t bytes, void **host, char *error, size_t error_bytes)
{
    const int code = cuda_enter(c->cuda, c->context, error, error_bytes);

    if (code != 0) {
        return code;
    }
    const cuda_result result = c->cuda->cuMemHostAlloc(host, bytes, CUDA_HOSTALLOC_PORTABLE);
    cuda_leave(c->cuda);
    if (result == CUDA_OUT_OF_MEMORY) {
        return memory_fail(
            -HLG_ENOMEM, error, error_bytes,
            "%llu bytes of pinned host memory cannot be had, which the staged path needs (to "
            "receive, "
            "as many as the KV memory has): raise the container's memory and ulimit -l, have fewer "
            "pages, or use a provider that takes device memory",
            (unsigned long long)bytes);
    }
    return result == CUDA_OK ? 0 : cuda_fail(c->cuda, "cuMemHostAlloc", result, error, error_bytes);
}

void copier_unpin(struct copier *c, void *host)
{
    if (host != NULL && cuda_enter(c->cuda, c->context, NULL, 0) == 0) {
        (void)c->cuda->cuMemFreeHost(host);
        cuda_leave(c->cuda);
    }
}

int copier_out(struct copier *c, void *host, const void *device, uint64_t bytes)
{
    return judge(c, "cuMemcpyDtoHAsync",
                 c->cuda->cuMemcpyDtoHAsync(host, (cuda_ptr)(uintptr_t)device, bytes, c->stream));
}

int copier_in(struct copier *c, void *device, const void *host, uint64_t bytes)
{
    return judge(c, "cuMemcpyHtoDAsync",
                 c->cuda->cuMemcpyHtoDAsync((cuda_ptr)(uintptr_t)device, host, bytes, c->stream));
}

int copier_mark(struct copier *c, uint32_t mark)
{
    HLG_ASSERT(mark < c->mark_count);
    return judge(c, "cuEventRecord", c->cuda->cuEventRecord(c->marks[mark], c->stream));
}

int copier_done(struct copier *c, uint32_t mark)
{
    HLG_ASSERT(mark < c->mark_count);
    int code = copier_begin(c); /* some drivers ask a context of whoever asks an event */
    if (code != 0) {
        return code;
    }
    const cuda_result result = c->cuda->cuEventQuery(c->marks[mark]);
    copier_end(c);
    if (result == CUDA_NOT_READY) {
        return 0;
    }
    code = judge(c, "cuEventQuery", result);
    return code == 0 ? 1 : code;
}

int copier_wait(struct copier *c)
{
    const bool entered = copier_begin(c) == 0; /* else it is tried all the same */
    const int code = judge(c, "cuStreamSynchronize", c->cuda->cuStreamSynchronize(c->stream));

    if (entered) {
        copier_end(c);
    }
    return code;
}
