/* Devices and their primary contexts. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 8
#define STACK_MAX   8

/* Bus ids of a machine with eight GPUs. */
static const int buses[DEVICES_MAX] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};

struct cuda_context_opaque {
    int retained;
};

static struct cuda_context_opaque primary[DEVICES_MAX];
static _Thread_local cuda_context stack[STACK_MAX];
static _Thread_local int depth;

/* FAKE_CUDA_ATTRIBUTES=number=value,...: over what a GPU with everything has. */
int fake_attribute(int attribute)
{
    const char *text = getenv("FAKE_CUDA_ATTRIBUTES");

    while (text != NULL && *text != '\0') {
        char *end = NULL;
        if (strtol(text, &end, 10) == attribute && *end == '=') {
            return (int)strtol(end + 1, NULL, 10);
        }
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    switch (attribute) {
    case CUDA_ATTR_VMM:
    case CUDA_ATTR_POSIX_FD:
    case CUDA_ATTR_RDMA_WITH_VMM:
    case CUDA_ATTR_RDMA:
    case CUDA_ATTR_DMA_BUF:
        return 1;
    case CUDA_ATTR_FLUSH_OPTIONS:
        return CUDA_FLUSH_OPTION_HOST;
    case CUDA_ATTR_WRITES_ORDERING:
        return CUDA_ORDERING_OWNER;
    default:
        return 0;
    }
}

/* The devices of CUDA_VISIBLE_DEVICES, in its order, up to the first that there is not. */
static void see_devices(int physical)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");

    fake.devices = 0;
    for (int i = 0; text == NULL && i < physical; i++) {
        fake.physical[fake.devices++] = i;
    }
    while (text != NULL && *text != '\0' && fake.devices < DEVICES_MAX) {
        char *end = NULL;
        const long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= physical) {
            return;
        }
        fake.physical[fake.devices++] = (int)device;
        text = *end == ',' ? end + 1 : NULL;
    }
}

cuda_result fake_cuInit(unsigned flags)
{
    const cuda_result failed = fake_enter(CALL_cuInit);
    const char *count = getenv("FAKE_CUDA_DEVICES");
    const char *delay = getenv("FAKE_CUDA_DELAY_US");

    if (failed != CUDA_OK || flags != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    const int physical = count != NULL ? (int)strtol(count, NULL, 10) : 2;
    see_devices(physical < DEVICES_MAX ? physical : DEVICES_MAX);
    if (fake.devices == 0) {
        return CUDA_NO_DEVICE;
    }
    fake.readable = getenv("FAKE_CUDA_READABLE") != NULL;
    fake.delay_us = delay != NULL ? (int)strtol(delay, NULL, 10) : 0;
    fake.process = getpid();
    fake.begun = true;
    return CUDA_OK;
}

cuda_result fake_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return fake_enter(CALL_cuDriverGetVersion);
}

cuda_result fake_cuDeviceGetCount(int *count)
{
    *count = fake.devices;
    return fake_enter(CALL_cuDeviceGetCount);
}

cuda_result fake_cuDeviceGet(cuda_device *device, int ordinal)
{
    const cuda_result failed = fake_enter(CALL_cuDeviceGet);

    if (failed != CUDA_OK) {
        return failed;
    }
    if (ordinal < 0 || ordinal >= fake.devices) {
        return CUDA_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_OK;
}

static bool is_device(cuda_device device)
{
    return device >= 0 && device < fake.devices;
}

cuda_result fake_cuDeviceGetUuid(struct cuda_uuid *uuid, cuda_device device)
{
    const cuda_result failed = fake_enter(CALL_cuDeviceGetUuid);

    if (failed != CUDA_OK || !is_device(device)) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_DEVICE;
    }
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, "fake", 4);
    uuid->bytes[15] = (unsigned char)(fake.physical[device] + 1);
    return CUDA_OK;
}

cuda_result fake_cuDeviceGetPCIBusId(char *text, int bytes, cuda_device device)
{
    const cuda_result failed = fake_enter(CALL_cuDeviceGetPCIBusId);

    if (failed != CUDA_OK || !is_device(device) || bytes < 13) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    (void)snprintf(text, (size_t)bytes, "0000:%02X:00.0", buses[fake.physical[device]]);
    return CUDA_OK;
}

cuda_result fake_cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
    const cuda_result failed = fake_enter(CALL_cuDeviceGetAttribute);

    if (failed != CUDA_OK || !is_device(device)) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_DEVICE;
    }
    *value = fake_attribute(attribute);
    return CUDA_OK;
}

cuda_result fake_cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device)
{
    const cuda_result failed = fake_enter(CALL_cuDevicePrimaryCtxRetain);

    if (failed != CUDA_OK || !is_device(device)) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_DEVICE;
    }
    (void)pthread_mutex_lock(&fake.lock);
    primary[device].retained++;
    fake.live.contexts++;
    *context = &primary[device];
    (void)pthread_mutex_unlock(&fake.lock);
    return CUDA_OK;
}

cuda_result fake_cuDevicePrimaryCtxRelease(cuda_device device)
{
    const cuda_result failed = fake_enter(CALL_cuDevicePrimaryCtxRelease);
    cuda_result result = CUDA_INVALID_CONTEXT;

    (void)pthread_mutex_lock(&fake.lock);
    if (is_device(device) && primary[device].retained > 0) {
        primary[device].retained--;
        fake.live.contexts--;
        result = failed; /* what frees, frees, also where it is made to report a failure */
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuCtxPushCurrent(cuda_context context)
{
    const cuda_result failed = fake_enter(CALL_cuCtxPushCurrent);

    if (failed != CUDA_OK || context == NULL || depth == STACK_MAX) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return CUDA_OK;
}

cuda_result fake_cuCtxPopCurrent(cuda_context *context)
{
    const cuda_result failed = fake_enter(CALL_cuCtxPopCurrent);

    if (depth == 0) {
        return CUDA_INVALID_CONTEXT;
    }
    *context = stack[--depth];
    return failed;
}

cuda_result fake_cuCtxGetCurrent(cuda_context *context)
{
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return fake_enter(CALL_cuCtxGetCurrent);
}

cuda_result fake_cuCtxSetCurrent(cuda_context context)
{
    const cuda_result failed = fake_enter(CALL_cuCtxSetCurrent);

    if (failed == CUDA_OK) {
        depth = depth > 0 ? depth - 1 : 0;
        if (context != NULL) {
            stack[depth++] = context;
        }
    }
    return failed;
}

cuda_result fake_enter_current(enum fake_call call)
{
    const cuda_result failed = fake_enter(call);

    if (failed != CUDA_OK) {
        return failed;
    }
    return depth > 0 && stack[depth - 1]->retained > 0 ? CUDA_OK : CUDA_INVALID_CONTEXT;
}

cuda_result fake_cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    const cuda_result failed = fake_enter_current(CALL_cuFlushGPUDirectRDMAWrites);

    if (failed != CUDA_OK) {
        return failed;
    }
    if ((fake_attribute(CUDA_ATTR_FLUSH_OPTIONS) & CUDA_FLUSH_OPTION_HOST) == 0) {
        return CUDA_NOT_SUPPORTED;
    }
    return target == CUDA_FLUSH_CURRENT_CONTEXT && scope >= CUDA_FLUSH_TO_OWNER
               ? CUDA_OK
               : CUDA_INVALID_VALUE;
}
