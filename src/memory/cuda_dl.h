/* The CUDA driver, found at run time: one program works with and without it. */
#ifndef HALAGE_MEMORY_CUDA_DL_H
#define HALAGE_MEMORY_CUDA_DL_H

#include "cuda_abi.h"
#include "internal.h"

struct cuda {
#define CUDA_DECLARE(name, version, arguments) cuda_result(*name) arguments;
    CUDA_CALLS(CUDA_DECLARE)
#undef CUDA_DECLARE
    int devices; /* that this process sees */
};

/*
 * The driver, loaded and begun by the first call of this process that succeeds, and kept. Calls that
 * the driver is too old for are NULL: cuMemGetHandleForAddressRange and cuStreamWriteValue32 (11.7) and
 * cuFlushGPUDirectRDMAWrites (11.3) alone may be missing. Any thread.
 *
 * Returns it, or NULL with *code and a sentence that says what to do.
 */
const struct cuda *cuda_open(int *code, char *error, size_t error_bytes);

/* Say which call failed, with what, and what to do. Returns a negated enum hlg_error. */
int cuda_fail(const struct cuda *cuda, const char *call, cuda_result result, char *error,
              size_t error_bytes);

/*
 * The primary context of a device, made current for the calls in between; the caller's own current
 * context is current again after cuda_leave(). Each enter that succeeds needs its leave, in the same
 * thread.
 */
int cuda_enter(const struct cuda *cuda, cuda_context context, char *error, size_t error_bytes);
void cuda_leave(const struct cuda *cuda);

/* Whether an ordinal is one of this process's. Returns 0, or -HLG_EINVAL with a sentence. */
int cuda_check_device(const struct cuda *cuda, int32_t device, char *error, size_t error_bytes);

#endif
