/* Which calls there are, how often each was made, and which is to fail. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef void (*any_call)(void);

static struct {
    const char *name;
    int version;
    any_call function;
    int made;
    int fail_at; /* 0: never; else fails from... the n-th time, once */
    cuda_result fail_with;
} calls[CALL_COUNT] = {
#define FAKE_ROW(call, since, arguments) \
    {.name = #call, .version = (since), .function = (any_call)fake_##call},
    CUDA_CALLS(FAKE_ROW) FAKE_CALLS(FAKE_ROW)
#undef FAKE_ROW
};

static int find(const char *name, size_t bytes)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        if (strlen(calls[i].name) == bytes && memcmp(calls[i].name, name, bytes) == 0) {
            return i;
        }
    }
    return -1;
}

/* FAKE_CUDA_FAIL=name:n:error,name:n:error: read once. A name that is unknown is a mistake of the test. */
static void read_failures(void)
{
    static bool was_read;
    const char *text = getenv("FAKE_CUDA_FAIL");

    if (was_read) {
        return;
    }
    was_read = true;
    while (text != NULL && *text != '\0') {
        char *end = NULL;
        const size_t bytes = strcspn(text, ":");
        const int i = find(text, bytes);
        if (i < 0 || text[bytes] != ':') {
            (void)fprintf(stderr, "fake_cuda: cannot read FAKE_CUDA_FAIL at '%s'\n", text);
            abort();
        }
        calls[i].fail_at = (int)strtol(text + bytes + 1, &end, 10);
        calls[i].fail_with = *end == ':' ? (int)strtol(end + 1, &end, 10) : CUDA_UNKNOWN;
        text = *end == ',' ? end + 1 : NULL;
    }
}

static bool needs_no_begin(enum fake_call call)
{
    return call == CALL_cuInit || call == CALL_cuGetErrorName || call == CALL_cuDriverGetVersion;
}

cuda_result fake_enter(enum fake_call call)
{
    cuda_result result = CUDA_OK;

    (void)pthread_mutex_lock(&fake.lock);
    read_failures();
    calls[call].made++;
    if (calls[call].made == calls[call].fail_at) {
        result = calls[call].fail_with;
    } else if (!needs_no_begin(call) && (!fake.begun || fake.process != getpid())) {
        result = CUDA_NOT_INITIALIZED; /* as the driver has it in a fork of who began it */
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuGetErrorName(cuda_result result, const char **name)
{
    static const struct {
        cuda_result result;
        const char *name;
    } names[] = {
        {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CUDA_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    const cuda_result failed = fake_enter(CALL_cuGetErrorName);

    *name = NULL;
    for (size_t i = 0; failed == CUDA_OK && i < sizeof names / sizeof names[0]; i++) {
        if (names[i].result == result) {
            *name = names[i].name;
            return CUDA_OK;
        }
    }
    return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
}

/* ---- What the program finds by name ---- */

EXPORT cuda_result cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
                                       int *status);
EXPORT cuda_result cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
                                       int *status)
{
    const int i = find(name, strlen(name));
    const char *missing = getenv("FAKE_CUDA_MISSING");

    (void)flags;
    *call = NULL;
    if (i < 0 || (missing != NULL && strcmp(missing, name) == 0)) {
        *status = 1; /* no such symbol */
        return CUDA_NOT_FOUND;
    }
    if (version < calls[i].version) {
        *status = 2; /* there is, but not in so old a version */
        return CUDA_NOT_FOUND;
    }
    *status = 0;
    memcpy(call, &calls[i].function, sizeof *call);
    return CUDA_OK;
}

/* For tests within the process: the next calls' n-th one from now on is to fail. */
EXPORT void fake_cuda_fail(const char *name, int n, cuda_result with);
EXPORT void fake_cuda_fail(const char *name, int n, cuda_result with)
{
    const int i = find(name, strlen(name));

    (void)pthread_mutex_lock(&fake.lock);
    read_failures();
    calls[i].fail_at = n == 0 ? 0 : calls[i].made + n;
    calls[i].fail_with = with;
    (void)pthread_mutex_unlock(&fake.lock);
}

/* Name of call i and how often it was made; NULL beyond the last. */
EXPORT const char *fake_cuda_call(int i, int *made);
EXPORT const char *fake_cuda_call(int i, int *made)
{
    if (i >= CALL_COUNT) {
        return NULL;
    }
    (void)pthread_mutex_lock(&fake.lock);
    *made = calls[i].made;
    (void)pthread_mutex_unlock(&fake.lock);
    return calls[i].name;
}

/* What is alive, in words; returns how many things. */
EXPORT int fake_cuda_live(char *text, size_t bytes);
EXPORT int fake_cuda_live(char *text, size_t bytes)
{
    (void)pthread_mutex_lock(&fake.lock);
    const struct fake_live l = fake.live;
    (void)pthread_mutex_unlock(&fake.lock);
    (void)snprintf(text, bytes,
                   "allocations %d handles %d mappings %d reservations %d contexts %d streams %d "
                   "events %d pinned %d modules %d graphs %d",
                   l.allocations, l.handles, l.mappings, l.reservations, l.contexts, l.streams,
                   l.events, l.pinned, l.modules, l.graphs);
    return l.allocations + l.handles + l.mappings + l.reservations + l.contexts + l.streams +
           l.events + l.pinned + l.modules + l.graphs;
}

/* FAKE_CUDA_REPORT=FILE: one line a process at its end, and one for each call that was made. */
__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAKE_CUDA_REPORT");
    char text[4096];
    char live[256];
    size_t used = 0;

    if (path == NULL || !fake.begun || fake.process != getpid()) {
        return;
    }
    const int alive = fake_cuda_live(live, sizeof live);
    used +=
        (size_t)snprintf(text, sizeof text, "end %s %s\n", alive == 0 ? "clean" : "LEAKED", live);
    for (int i = 0; i < CALL_COUNT; i++) {
        if (calls[i].made > 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "call %s %d\n", calls[i].name,
                                     calls[i].made);
        }
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, used) != (ssize_t)used) {
        (void)fprintf(stderr, "fake_cuda: cannot write %s\n", path);
        abort();
    }
    (void)close(fd);
}
