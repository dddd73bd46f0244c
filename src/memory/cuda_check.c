/* CUDA memory that an engine made itself: is it what its region says? */
#include "cuda_dl.h"

/* Regions begin on system pages: a dma-buf can be had of nothing else. */
#define ALIGNMENT 4096u

struct facts {
    unsigned type;
    int device;
    cuda_ptr start;
    size_t bytes;
};

static cuda_result ask(const struct cuda *cuda, cuda_ptr base, struct facts *facts)
{
    const struct {
        int attribute;
        void *value;
    } questions[] = {
        {CUDA_POINTER_MEMORY_TYPE, &facts->type},
        {CUDA_POINTER_DEVICE_ORDINAL, &facts->device},
        {CUDA_POINTER_RANGE_START, &facts->start},
        {CUDA_POINTER_RANGE_SIZE, &facts->bytes},
    };
    cuda_result result = CUDA_OK;

    for (size_t i = 0; i < sizeof questions / sizeof questions[0] && result == CUDA_OK; i++) {
        result = cuda->cuPointerGetAttribute(questions[i].value, questions[i].attribute, base);
    }
    return result;
}

static int judge(const struct hlg_mem_region *r, const struct facts *facts, char *error,
                 size_t error_bytes)
{
    const cuda_ptr base = (cuda_ptr)(uintptr_t)r->base;

    if (facts->type != CUDA_MEMORYTYPE_DEVICE) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "the region at %p is memory of the host: add it with kind host",
                           r->base);
    }
    if (facts->device != r->device) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "the region at %p is on GPU %d, not on GPU %d: name the one it is on",
                           r->base, facts->device, r->device);
    }
    const uint64_t inside = facts->start + facts->bytes - base;
    if (r->bytes > inside) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "the region at %p spans several allocations, of which the first ends "
                           "after %llu of its %llu bytes: add one region for each allocation, or "
                           "turn off expandable segments",
                           r->base, (unsigned long long)inside, (unsigned long long)r->bytes);
    }
    return 0;
}

int memory_cuda_check(const struct hlg_mem_region *r, char *error, size_t error_bytes)
{
    struct facts facts = {0};
    cuda_context context = NULL;
    cuda_device device = 0;
    const char *call = "cuDeviceGet";
    int code = 0;

    if ((uintptr_t)r->base % ALIGNMENT != 0) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "the region at %p does not begin on a page of %u bytes: give the start "
                           "of its allocation",
                           r->base, ALIGNMENT);
    }
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);
    if (cuda == NULL) {
        return code;
    }
    code = cuda_check_device(cuda, r->device, error, error_bytes);
    if (code != 0) {
        return code;
    }
    cuda_result result = cuda->cuDeviceGet(&device, r->device);
    if (result == CUDA_OK) {
        call = "cuDevicePrimaryCtxRetain";
        result = cuda->cuDevicePrimaryCtxRetain(&context, device);
    }
    if (result != CUDA_OK) {
        return cuda_fail(cuda, call, result, error, error_bytes);
    }
    code = cuda_enter(cuda, context, error, error_bytes);
    if (code == 0) {
        result = ask(cuda, (cuda_ptr)(uintptr_t)r->base, &facts);
        cuda_leave(cuda);
        code = result == CUDA_OK ? judge(r, &facts, error, error_bytes) : -HLG_EINVAL;
    }
    (void)cuda->cuDevicePrimaryCtxRelease(device);
    if (result == CUDA_INVALID_VALUE) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "the region at %p is not mapped on any GPU: add it after cuMemMap() and "
                           "cuMemSetAccess(), or with kind host",
                           r->base);
    }
    return result == CUDA_OK ? code
                             : cuda_fail(cuda, "cuPointerGetAttribute", result, error, error_bytes);
}
