/*
 * CUDA memory over the double of libcuda: it crosses processes, every driver call that fails gives one
 * sentence and leaves nothing behind, and all that cannot work is refused with a remedy. The program
 * begins no driver itself before it forks, as an engine must not either.
 */
#define _GNU_SOURCE
#include <halage/memory.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../src/memory/cuda_dl.h"
#include "../support/cuda_child.h"
#include "../support/fake_cuda_control.h"

#define BYTES 100000u

static int make(int32_t device, struct hlg_memory **memory, char error[SENTENCE])
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = device};

    error[0] = '\0';
    return hlg_memory_create(&site, BYTES, memory, error, SENTENCE);
}

/* ---- What it is ---- */

static void memory_as_made(void)
{
    struct hlg_memory *memory = NULL;
    uint8_t bytes[3] = {1, 2, 3};
    char error[SENTENCE];

    CHECK(make(1, &memory, error) == 0);
    CHECK(hlg_memory_kind(memory) == HLG_MEMORY_CUDA && hlg_memory_device(memory) == 1);
    CHECK(hlg_memory_bytes(memory) == BYTES);
    CHECK(hlg_memory_dmabuf(memory) >= 0);
    const struct hlg_mem_region region = hlg_memory_region(memory);
    CHECK(region.base == hlg_memory_base(memory) && region.kind == HLG_MEMORY_CUDA &&
          region.device == 1 && region.dmabuf_fd == hlg_memory_dmabuf(memory));
    CHECK(hlg_memory_check(&region, error, sizeof error) == 0);
    CHECK(hlg_memory_read(memory, BYTES - 3, bytes, 3) == 0);
    CHECK(bytes[0] == 0 && bytes[2] == 0);
    CHECK(hlg_memory_write(memory, BYTES - 3, "abc", 3) == 0);
    CHECK(hlg_memory_read(memory, BYTES - 3, bytes, 3) == 0 && memcmp(bytes, "abc", 3) == 0);
    CHECK(hlg_memory_read(memory, BYTES - 2, bytes, 3) == -HLG_EINVAL);
    CHECK(hlg_memory_write(memory, UINT64_MAX, bytes, 2) == -HLG_EINVAL);
    hlg_memory_release(memory);
    check_clean();
}

static void it_is_zeroed_copied_and_described(void **state)
{
    (void)state;
    in_child(memory_as_made, NULL, NULL);
    in_child(memory_as_made, "FAKE_CUDA_DELAY_US", "2000");
}

static void no_dmabuf(void)
{
    struct hlg_memory *memory = NULL;
    char error[SENTENCE];

    CHECK(make(0, &memory, error) == 0);
    CHECK(hlg_memory_dmabuf(memory) == -1);
    hlg_memory_release(memory);
    check_clean();
}

static void without_dma_bufs_it_has_none(void **state)
{
    (void)state;
    in_child(no_dmabuf, "FAKE_CUDA_ATTRIBUTES", "124=0");
    in_child(no_dmabuf, "FAKE_CUDA_MISSING", "cuMemGetHandleForAddressRange");
    in_child(no_dmabuf, "FAKE_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:801");
    in_child(no_dmabuf, "FAKE_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:1");
}

/* An engine's thread keeps its own current context, a bare thread gets none. */
static void contexts_stay(void)
{
    struct hlg_memory *memory = NULL;
    cuda_context own = NULL;
    cuda_context now = NULL;
    char error[SENTENCE];
    int code = 0;

    const struct cuda *cuda = cuda_open(&code, error, sizeof error);
    CHECK(cuda != NULL);
    CHECK(make(1, &memory, error) == 0);
    CHECK(cuda->cuCtxPopCurrent(&now) != CUDA_OK); /* there is none */
    CHECK(cuda->cuDevicePrimaryCtxRetain(&own, 0) == CUDA_OK);
    CHECK(cuda->cuCtxPushCurrent(own) == CUDA_OK);
    CHECK(hlg_memory_write(memory, 0, "x", 1) == 0);
    hlg_memory_release(memory);
    CHECK(cuda->cuCtxPopCurrent(&now) == CUDA_OK && now == own);
    CHECK(cuda->cuDevicePrimaryCtxRelease(0) == CUDA_OK);
    check_clean();
}

static void the_callers_context_is_untouched(void **state)
{
    (void)state;
    in_child(contexts_stay, NULL, NULL);
}

/* ---- Across processes ---- */

static int sockets[2];

/* The rank sees GPUs 0 and 1 and makes memory on its second; the leader sees them the other way round. */
static void rank_main(void)
{
    struct hlg_memory *memory = NULL;
    struct hlg_fd_header header;
    char error[SENTENCE];
    uint8_t byte = 0;

    CHECK(make(1, &memory, error) == 0);
    CHECK(hlg_memory_write(memory, BYTES - 1, "\x5a", 1) == 0);
    const int fd = hlg_memory_export(memory, &header, error, sizeof error);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(header.kind == HLG_MEMORY_CUDA && header.bytes == BYTES);
    CHECK(hlg_fd_send(sockets[1], &header, fd) == 0);
    (void)close(fd);
    CHECK(read(sockets[1], &byte, 1) == 1);
    CHECK(hlg_memory_read(memory, 0, &byte, 1) == 0 && byte == 0xa5);
    hlg_memory_release(memory);
    check_clean();
}

static void leader_main(void)
{
    struct hlg_memory *memory = NULL;
    struct hlg_fd_header header;
    char error[SENTENCE];
    uint8_t byte = 0;
    int fd = -1;

    CHECK(hlg_fd_receive(sockets[0], &header, &fd) == 1);
    CHECK(hlg_memory_import(fd, &header, &memory, error, sizeof error) == 0);
    (void)close(fd);
    CHECK(hlg_memory_device(memory) == 0);
    CHECK(hlg_memory_read(memory, BYTES - 1, &byte, 1) == 0 && byte == 0x5a);
    CHECK(hlg_memory_write(memory, 0, "\xa5", 1) == 0);
    CHECK(write(sockets[0], "g", 1) == 1);
    char end = 0;
    CHECK(read(sockets[0], &end, 1) == 0); /* the rank is gone */
    CHECK(hlg_memory_read(memory, BYTES - 1, &byte, 1) == 0 && byte == 0x5a);
    hlg_memory_release(memory);
    check_clean();
}

static void two_processes_see_the_same_bytes_by_uuid(void **state)
{
    int status = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    const pid_t rank = fork();
    assert_true(rank >= 0);
    if (rank == 0) {
        (void)close(sockets[0]);
        rank_main();
        exit(0);
    }
    (void)close(sockets[1]);
    in_child(leader_main, "CUDA_VISIBLE_DEVICES", "1,0");
    (void)close(sockets[0]);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Each call fails ---- */

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Everything that memory can be asked for, as far as it goes. Returns the first error. */
static int all_of_it(char error[SENTENCE])
{
    struct hlg_memory *memory = NULL;
    struct hlg_memory *again = NULL;
    struct hlg_fd_header header;
    uint8_t byte = 0;

    int code = make(0, &memory, error);
    if (code != 0) {
        return code;
    }
    const struct hlg_mem_region region = hlg_memory_region(memory);
    code = hlg_memory_check(&region, error, SENTENCE);
    const int fd = code == 0 ? hlg_memory_export(memory, &header, error, SENTENCE) : -1;
    code = code == 0 && fd < 0 ? fd : code;
    if (fd >= 0) {
        code = hlg_memory_import(fd, &header, &again, error, SENTENCE);
        (void)close(fd);
    }
    if (code == 0) {
        code = hlg_memory_write(again, 5, "z", 1);
        code = code == 0 ? hlg_memory_read(memory, 5, &byte, 1) : code;
        CHECK(code != 0 || byte == 'z');
        (void)snprintf(error, SENTENCE, "%s", code != 0 ? "cuMemcpy, cuCtxPushCurrent" : "");
    }
    hlg_memory_release(again);
    hlg_memory_release(memory);
    return code;
}

/* Calls whose failure nobody can mend: what was to be done was done. */
static bool is_harmless(const char *call)
{
    static const char *const harmless[] = {"cuMemRelease",
                                           "cuMemUnmap",
                                           "cuMemAddressFree",
                                           "cuDevicePrimaryCtxRelease",
                                           "cuStreamDestroy",
                                           "cuCtxPopCurrent",
                                           "cuMemGetHandleForAddressRange"};

    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (strcmp(call, harmless[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void fail_once(const struct fake_cuda_control *control, const char *call, int n, int with)
{
    char error[SENTENCE];
    char live[256];
    const int fds = count_fds();

    control->fail_call(call, n, with);
    const int code = all_of_it(error);
    control->fail_call(call, 0, 0);
    const int alive = control->live(live, sizeof live);
    const bool told = strstr(error, call) != NULL || strncmp(call, "cuMemcpy", 8) == 0 ||
                      (with == CUDA_INVALID_VALUE && strstr(error, "is not mapped") != NULL);
    const bool right = is_harmless(call) ? code == 0 : code < 0 && told;
    if (!right || alive != 0 || count_fds() != fds) {
        (void)fprintf(stderr,
                      "call %d of %s failing with %d: code %d '%s', alive %s, fds %d of %d\n", n,
                      call, with, code, error, live, count_fds(), fds);
        _exit(1);
    }
}

static void each_fails(void)
{
    static const int errors[] = {CUDA_OUT_OF_MEMORY, CUDA_NOT_PERMITTED + 1000, CUDA_INVALID_VALUE};
    struct fake_cuda_control control;
    char error[SENTENCE];
    const char *call = NULL;
    int calls = 0;
    int failures = 0;

    fake_cuda_control(&control);
    CHECK(all_of_it(error) == 0); /* begins the driver */
    for (int i = 0, made = 0; (call = control.call(i, &made)) != NULL; i++) {
        const int before = made;
        CHECK(all_of_it(error) == 0);
        (void)control.call(i, &made);
        calls += made > before;
        for (int n = 1; n <= made - before; n++) {
            for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
                fail_once(&control, call, n, errors[e]);
                failures++;
            }
        }
    }
    CHECK(calls >= 20); /* else the table is not what memory uses any more */
    (void)printf("# %d failures of %d calls\n", failures, calls);
    (void)fflush(stdout);
    check_clean();
}

static void every_call_that_fails_leaves_nothing(void **state)
{
    (void)state;
    in_child(each_fails, NULL, NULL);
}

/* ---- What cannot be ---- */

static const char *expected; /* in the sentence */
static int expected_code;

static void refused(void)
{
    struct hlg_memory *memory = NULL;
    char error[SENTENCE];
    const int code = make(0, &memory, error);

    refused_as(code, expected_code, error, expected);
    CHECK(memory == NULL);
    check_clean();
}

static void begins_that_fail_are_told_with_a_remedy(void **state)
{
    static const struct {
        const char *variable;
        const char *value;
        int code;
        const char *sentence;
    } cases[] = {
        {"FAKE_CUDA_DEVICES", "0", -HLG_EUNSUPPORTED, "CUDA_VISIBLE_DEVICES"},
        {"CUDA_VISIBLE_DEVICES", "", -HLG_EUNSUPPORTED, "sees no GPU"},
        {"FAKE_CUDA_FAIL", "cuInit:1:34", -HLG_EUNSUPPORTED, "Toolkit's stub"},
        {"FAKE_CUDA_FAIL", "cuInit:1:803", -HLG_EUNSUPPORTED, "reboot"},
        {"FAKE_CUDA_FAIL", "cuDeviceGetCount:1:999", -HLG_EIO, "cuDeviceGetCount"},
        {"FAKE_CUDA_FAIL", "cuMemCreate:1:2", -HLG_ENOMEM, "free memory of that GPU"},
        {"FAKE_CUDA_FAIL", "cuMemCreate:1:801,cuGetErrorName:1:999", -HLG_EUNSUPPORTED, "unknown"},
        {"FAKE_CUDA_MISSING", "cuMemMap", -HLG_EUNSUPPORTED, "no cuMemMap of CUDA 10.2"},
        {"FAKE_CUDA_ATTRIBUTES", "102=0", -HLG_EUNSUPPORTED, "use memory of kind host"},
        {"FAKE_CUDA_ATTRIBUTES", "103=0", -HLG_EUNSUPPORTED, "POSIX descriptors"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expected = cases[i].sentence;
        expected_code = cases[i].code;
        in_child(refused, cases[i].variable, cases[i].value);
    }
}

static void wrong_ordinals(void)
{
    static const int32_t wrong[] = {-1, 2, INT32_MAX};
    struct hlg_memory *memory = NULL;
    char error[SENTENCE];

    char bus[HLG_MEMORY_BUS_BYTES] = "as it was";

    CHECK(hlg_memory_devices(error, sizeof error) == 2);
    for (size_t i = 0; i < 3; i++) {
        refused_as(make(wrong[i], &memory, error), -HLG_EINVAL, error, "this process sees 2");
        refused_as(hlg_memory_bus(wrong[i], bus, error, sizeof error), -HLG_EINVAL, error,
                   "this process sees 2");
        CHECK(strcmp(bus, "as it was") == 0);
    }
    const struct hlg_memory_site site = {.kind = 3};
    refused_as(hlg_memory_create(&site, BYTES, &memory, error, sizeof error), -HLG_EINVAL, error,
               "kind 3");
    check_clean();
}

/* CUDA counts the visible GPUs: 1,0 of those at 1b and 43. */
static void buses(void)
{
    static const char *const told[] = {"0000:43:00.0", "0000:1B:00.0"};
    char bus[HLG_MEMORY_BUS_BYTES];
    char error[SENTENCE];

    for (int32_t device = 0; device < 2; device++) {
        CHECK(hlg_memory_bus(device, bus, error, sizeof error) == 0 &&
              strcmp(bus, told[device]) == 0);
    }
    check_clean();
}

static void no_bus(void)
{
    char bus[HLG_MEMORY_BUS_BYTES];
    char error[SENTENCE];

    refused_as(hlg_memory_bus(0, bus, error, sizeof error), -HLG_EIO, error, "cuDeviceGetPCIBusId");
    check_clean();
}

static void wrong_imports(void)
{
    struct hlg_memory *memory = NULL;
    struct hlg_memory *host = NULL;
    struct hlg_memory *again = NULL;
    struct hlg_fd_header header;
    struct hlg_fd_header other;
    char error[SENTENCE];

    CHECK(make(0, &memory, error) == 0);
    const int fd = hlg_memory_export(memory, &header, error, sizeof error);
    CHECK(fd >= 0);
    other = header;
    other.device[15] ^= 0x40;
    refused_as(hlg_memory_import(fd, &other, &again, error, sizeof error), -HLG_EINVAL, error,
               "does not see that GPU");
    other = header;
    other.bytes = (uint64_t)1 << 40; /* more than there is */
    refused_as(hlg_memory_import(fd, &other, &again, error, sizeof error), -HLG_EINVAL, error,
               "cuMemMap");
    other.bytes = UINT64_MAX;
    refused_as(hlg_memory_import(fd, &other, &again, error, sizeof error), -HLG_EINVAL, error,
               "bytes");
    refused_as(hlg_memory_import(-1, &header, &again, error, sizeof error), -HLG_EINVAL, error,
               "no descriptor");
    refused_as(hlg_memory_import(0, &header, &again, error, sizeof error), -HLG_EINVAL, error,
               "cuMemImportFromShareableHandle");
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_HOST};
    CHECK(hlg_memory_create(&site, 2u << 20, &host, error, sizeof error) == 0);
    const int host_fd = hlg_memory_export(host, &other, error, sizeof error);
    refused_as(hlg_memory_import(host_fd, &header, &again, error, sizeof error), -HLG_EINVAL, error,
               "cuMemImportFromShareableHandle");
    (void)close(host_fd);
    (void)close(fd);
    hlg_memory_release(host);
    hlg_memory_release(memory);
    check_clean();
}

static void wrong_regions(void)
{
    struct hlg_memory *memory = NULL;
    static uint8_t host[8192];
    char error[SENTENCE];

    CHECK(make(0, &memory, error) == 0);
    const struct hlg_mem_region good = hlg_memory_region(memory);
    struct hlg_mem_region region = good;
    region.base = (uint8_t *)good.base + 8;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "page of 4096");
    region = good;
    region.bytes = (2u << 20) + 1;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error,
               "several allocations");
    region = good;
    region.device = 1;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "is on GPU 0");
    region.device = 7;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "no GPU 7");
    region = good;
    region.base = (void *)(((uintptr_t)host + 4095) / 4096 * 4096);
    region.bytes = 100;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "not mapped");
    region.bytes = 0;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "no bytes");
    region = good;
    region.kind = 9;
    refused_as(hlg_memory_check(&region, error, sizeof error), -HLG_EINVAL, error, "kind 9");
    CHECK(hlg_memory_check(&HLG_MEM_HOST(host, sizeof host), error, sizeof error) == 0);
    hlg_memory_release(memory);
    refused_as(hlg_memory_check(&good, error, sizeof error), -HLG_EINVAL, error, "not mapped");
    check_clean();
}

static void after_a_fork(void)
{
    struct hlg_memory *memory = NULL;
    char error[SENTENCE];
    int status = 0;

    CHECK(make(0, &memory, error) == 0);
    const pid_t child = fork();
    if (child == 0) {
        struct hlg_memory *mine = NULL;
        refused_as(make(0, &mine, error), -HLG_ESTATE, error, "after fork()");
        hlg_memory_release(memory); /* nothing of the parent's is touched */
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(hlg_memory_write(memory, 0, "x", 1) == 0);
    hlg_memory_release(memory);
    check_clean();
}

static void each_gpu_tells_its_bus_id(void **state)
{
    (void)state;
    in_child(buses, "CUDA_VISIBLE_DEVICES", "1,0");
}

static void what_cannot_be_is_refused_in_a_sentence(void **state)
{
    (void)state;
    in_child(wrong_ordinals, NULL, NULL);
    in_child(no_bus, "FAKE_CUDA_FAIL", "cuDeviceGetPCIBusId:1:999");
    in_child(wrong_imports, NULL, NULL);
    in_child(wrong_regions, NULL, NULL);
    in_child(after_a_fork, NULL, NULL);
}

static int needs; /* what hlg_memory_needs_flush is to say */

static void flush_as_told(void)
{
    struct fake_cuda_control control;
    char error[SENTENCE] = "";
    const int said = hlg_memory_needs_flush(0, error, sizeof error);

    if (said != needs || (needs < 0) != (error[0] != '\0')) {
        (void)fprintf(stderr, "said %d '%s', not %d\n", said, error, needs);
        _exit(1);
    }
    fake_cuda_control(&control);
    if (needs == 1) {
        CHECK(hlg_memory_flush(0, error, sizeof error) == 0);
        CHECK(fake_cuda_made(&control, "cuFlushGPUDirectRDMAWrites") == 1);
        control.fail_call("cuFlushGPUDirectRDMAWrites", 1, CUDA_UNKNOWN);
        refused_as(hlg_memory_flush(0, error, sizeof error), -HLG_EIO, error,
                   "cuFlushGPUDirectRDMAWrites");
        control.fail_call("cuCtxPushCurrent", 1, CUDA_UNKNOWN);
        refused_as(hlg_memory_flush(0, error, sizeof error), -HLG_EIO, error, "cuCtxPushCurrent");
    }
    check_clean();
}

/* Attribute 118 is the ordering, 117 the ways to flush. */
static void a_gpu_is_flushed_where_it_does_not_order(void **state)
{
    (void)state;
    needs = 0;
    in_child(flush_as_told, NULL, NULL);
    in_child(flush_as_told, "FAKE_CUDA_ATTRIBUTES", "118=200");
    needs = 1;
    in_child(flush_as_told, "FAKE_CUDA_ATTRIBUTES", "118=0");
    needs = -HLG_EUNSUPPORTED;
    in_child(flush_as_told, "FAKE_CUDA_ATTRIBUTES", "118=0,117=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_zeroed_copied_and_described),
        cmocka_unit_test(without_dma_bufs_it_has_none),
        cmocka_unit_test(the_callers_context_is_untouched),
        cmocka_unit_test(two_processes_see_the_same_bytes_by_uuid),
        cmocka_unit_test(every_call_that_fails_leaves_nothing),
        cmocka_unit_test(begins_that_fail_are_told_with_a_remedy),
        cmocka_unit_test(each_gpu_tells_its_bus_id),
        cmocka_unit_test(what_cannot_be_is_refused_in_a_sentence),
        cmocka_unit_test(a_gpu_is_flushed_where_it_does_not_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
