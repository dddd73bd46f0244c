/* Writes of NICs that a GPU's kernels must see: whether they need a flush, and the flush. */
#include "cuda_dl.h"

static int ask(const struct cuda *cuda, int32_t device, int attribute, int *value, char *error,
               size_t error_bytes)
{
    cuda_device name = 0;
    cuda_result result = cuda->cuDeviceGet(&name, device);

    if (result == CUDA_OK) {
        result = cuda->cuDeviceGetAttribute(value, attribute, name);
    }
    return result == CUDA_OK ? 0
                             : cuda_fail(cuda, "cuDeviceGetAttribute", result, error, error_bytes);
}

int hlg_memory_needs_flush(int32_t device, char *error, size_t error_bytes)
{
    int ordering = 0;
    int options = 0;
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);

    if (cuda == NULL) {
        return code;
    }
    code = ask(cuda, device, CUDA_ATTR_WRITES_ORDERING, &ordering, error, error_bytes);
    if (code != 0 || ordering >= CUDA_ORDERING_OWNER) {
        return code;
    }
    code = ask(cuda, device, CUDA_ATTR_FLUSH_OPTIONS, &options, error, error_bytes);
    if (code != 0) {
        return code;
    }
    if ((options & CUDA_FLUSH_OPTION_HOST) == 0 || cuda->cuFlushGPUDirectRDMAWrites == NULL) {
        return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                           "GPU %d does not order writes of NICs and its driver cannot flush them: "
                           "take flush policy read, the staged path, or a driver of CUDA 11.3 or "
                           "newer",
                           device);
    }
    return 1;
}

int hlg_memory_flush(int32_t device, char *error, size_t error_bytes)
{
    cuda_context context = NULL;
    cuda_device name = 0;
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);

    if (cuda == NULL) {
        return code;
    }
    if (cuda->cuFlushGPUDirectRDMAWrites == NULL) {
        return cuda_fail(cuda, "cuFlushGPUDirectRDMAWrites", CUDA_NOT_SUPPORTED, error,
                         error_bytes);
    }
    cuda_result result = cuda->cuDeviceGet(&name, device);
    if (result == CUDA_OK) {
        result = cuda->cuDevicePrimaryCtxRetain(&context, name);
    }
    if (result != CUDA_OK) {
        return cuda_fail(cuda, "cuDevicePrimaryCtxRetain", result, error, error_bytes);
    }
    code = cuda_enter(cuda, context, error, error_bytes);
    if (code == 0) {
        result = cuda->cuFlushGPUDirectRDMAWrites(CUDA_FLUSH_CURRENT_CONTEXT, CUDA_FLUSH_TO_OWNER);
        cuda_leave(cuda);
    }
    (void)cuda->cuDevicePrimaryCtxRelease(name);
    return result == CUDA_OK
               ? code
               : cuda_fail(cuda, "cuFlushGPUDirectRDMAWrites", result, error, error_bytes);
}
