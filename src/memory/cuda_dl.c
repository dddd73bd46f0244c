#define _GNU_SOURCE /* dlfcn with a path that the linker resolves */
#include "cuda_dl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* One driver a process, as the driver itself is: written once under the lock, then only read. */
static struct {
    pthread_mutex_t lock;
    void *library;
    pid_t process; /* that began it; a fork of it cannot use it */
    struct cuda cuda;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define OLD_GPU "this GPU is older than sm_70, or its driver: use HLG_COUNTER_WRITE"

static const struct {
    cuda_result result;
    int code;
    const char *remedy;
} remedies[] = {
    {CUDA_OUT_OF_MEMORY, -HLG_ENOMEM, "free memory of that GPU, or ask for less"},
    {CUDA_NO_DEVICE, -HLG_EUNSUPPORTED,
     "this process sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use memory of kind "
     "host"},
    {CUDA_STUB_LIBRARY, -HLG_EUNSUPPORTED,
     "libcuda.so.1 is the Toolkit's stub: take its folder out of LD_LIBRARY_PATH"},
    {CUDA_INVALID_DEVICE, -HLG_EINVAL, "name a GPU that nvidia-smi -L lists"},
    {CUDA_INVALID_VALUE, -HLG_EINVAL,
     "the descriptor, size or pointer is not what the driver takes: send the descriptor that "
     "hlg_memory_export() gave, with its header"},
    {CUDA_INVALID_HANDLE, -HLG_EINVAL,
     "the descriptor stands for no memory of this driver: both processes need the same one"},
    {CUDA_OPERATING_SYSTEM, -HLG_EIO,
     "the system refused: raise ulimit -n, and check that /dev/nvidia* are in the container"},
    {CUDA_NOT_PERMITTED, -HLG_EUNSUPPORTED, "the driver does not permit it: see its log in dmesg"},
    {CUDA_NOT_SUPPORTED, -HLG_EUNSUPPORTED,
     "this GPU or driver cannot do it: use memory of kind host, or a newer driver"},
    {CUDA_NO_BINARY_FOR_GPU, -HLG_EUNSUPPORTED, OLD_GPU},
    {CUDA_INVALID_PTX, -HLG_EUNSUPPORTED, OLD_GPU},
    {CUDA_OLD_FOR_PTX, -HLG_EUNSUPPORTED, OLD_GPU},
    {CUDA_NO_JIT_COMPILER, -HLG_EUNSUPPORTED,
     "put libnvidia-ptxjitcompiler.so.1 of the driver into the container "
     "(NVIDIA_DRIVER_CAPABILITIES), "
     "or use HLG_COUNTER_WRITE"},
    {CUDA_REGISTERED_ALREADY, -HLG_EINVAL,
     "that memory is pinned already: give each counter memory of its own"},
    {CUDA_CAPTURE_UNSUPPORTED, -HLG_ESTATE, "do it while no stream is captured to a graph"},
    {CUDA_NOT_INITIALIZED, -HLG_ESTATE,
     "the driver was begun before this process was forked: make memory after fork()"},
    {CUDA_DRIVER_MISMATCH, -HLG_EUNSUPPORTED,
     "libcuda.so.1 and the kernel module differ in version: reload the module or reboot"},
};

int cuda_fail(const struct cuda *cuda, const char *call, cuda_result result, char *error,
              size_t error_bytes)
{
    const char *remedy = "see the driver's messages in dmesg";
    const char *name = NULL;
    int code = -HLG_EIO;

    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        if (remedies[i].result == result) {
            remedy = remedies[i].remedy;
            code = remedies[i].code;
        }
    }
    if (cuda->cuGetErrorName(result, &name) != CUDA_OK || name == NULL) {
        name = "unknown";
    }
    return memory_fail(code, error, error_bytes, "%s failed with error %d (%s): %s", call, result,
                       name, remedy);
}

static int find_call(void *library, const char *name, int version, void **call)
{
    void *const v2 = dlsym(library, "cuGetProcAddress_v2");
    void *const v1 = dlsym(library, "cuGetProcAddress");
    cuda_get_v2 get_v2 = NULL;
    cuda_get_v1 get_v1 = NULL;
    cuda_result result = CUDA_NOT_FOUND;
    int status = 0;

    *call = NULL;
    if (v2 != NULL) {
        memcpy(&get_v2, &v2, sizeof get_v2); /* as POSIX has it for dlsym */
        result = get_v2(name, call, version, CUDA_PROC_ADDRESS_DEFAULT, &status);
    } else if (v1 != NULL) {
        memcpy(&get_v1, &v1, sizeof get_v1);
        result = get_v1(name, call, version, CUDA_PROC_ADDRESS_DEFAULT);
    }
    return result == CUDA_OK && *call != NULL ? 0 : -1;
}

static bool may_be_missing(const char *name)
{
    return strcmp(name, "cuMemGetHandleForAddressRange") == 0 ||
           strcmp(name, "cuFlushGPUDirectRDMAWrites") == 0 ||
           strcmp(name, "cuStreamWriteValue32") == 0;
}

static int find_calls(void *library, struct cuda *cuda, char *error, size_t error_bytes)
{
    void *call = NULL;

#define CUDA_FIND(name, version, arguments)                                                  \
    if (find_call(library, #name, version, &call) == 0) {                                    \
        memcpy(&cuda->name, &call, sizeof call);                                             \
    } else if (!may_be_missing(#name)) {                                                     \
        return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,                            \
                           "the CUDA driver has no " #name " of CUDA %d.%d: install driver " \
                           "470 or newer, or use memory of kind host",                       \
                           (version) / 1000, (version) % 1000 / 10);                         \
    }
    CUDA_CALLS(CUDA_FIND)
#undef CUDA_FIND
    return 0;
}

static int begin(char *error, size_t error_bytes)
{
    struct cuda cuda = {0};

    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                           "there is no CUDA driver here (libcuda.so.1 was not found): install "
                           "NVIDIA's driver, or use memory of kind host");
    }
    int code = find_calls(library, &cuda, error, error_bytes);
    if (code == 0) {
        const cuda_result result = cuda.cuInit(0);
        code = result == CUDA_OK ? 0 : cuda_fail(&cuda, "cuInit", result, error, error_bytes);
    }
    if (code == 0) {
        const cuda_result result = cuda.cuDeviceGetCount(&cuda.devices);
        code = result == CUDA_OK ? 0
                                 : cuda_fail(&cuda, "cuDeviceGetCount", result, error, error_bytes);
    }
    if (code == 0 && cuda.devices <= 0) {
        code = cuda_fail(&cuda, "cuDeviceGetCount", CUDA_NO_DEVICE, error, error_bytes);
    }
    if (code != 0) {
        (void)dlclose(library);
        return code;
    }
    driver.library = library;
    driver.process = getpid();
    driver.cuda = cuda;
    return 0;
}

const struct cuda *cuda_open(int *code, char *error, size_t error_bytes)
{
    const int locked = pthread_mutex_lock(&driver.lock);

    HLG_ASSERT(locked == 0);
    *code = driver.library == NULL ? begin(error, error_bytes) : 0;
    if (*code == 0 && driver.process != getpid()) {
        *code = cuda_fail(&driver.cuda, "cuInit", CUDA_NOT_INITIALIZED, error, error_bytes);
    }
    (void)pthread_mutex_unlock(&driver.lock);
    return *code == 0 ? &driver.cuda : NULL;
}

int cuda_enter(const struct cuda *cuda, cuda_context context, char *error, size_t error_bytes)
{
    const cuda_result result = cuda->cuCtxPushCurrent(context);

    return result == CUDA_OK ? 0 : cuda_fail(cuda, "cuCtxPushCurrent", result, error, error_bytes);
}

void cuda_leave(const struct cuda *cuda)
{
    cuda_context ours = NULL;

    /* Nothing can be done about a failure here, and what was to be done was done. */
    (void)cuda->cuCtxPopCurrent(&ours);
}

int cuda_check_device(const struct cuda *cuda, int32_t device, char *error, size_t error_bytes)
{
    if (device >= 0 && device < cuda->devices) {
        return 0;
    }
    return memory_fail(-HLG_EINVAL, error, error_bytes,
                       "there is no GPU %d: this process sees %d, numbered from 0 (nvidia-smi -L; "
                       "CUDA_VISIBLE_DEVICES)",
                       device, cuda->devices);
}
