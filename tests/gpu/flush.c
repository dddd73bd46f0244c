/* Flush policies: what AUTO chooses here, and what a flush costs; READ where libfabric's TCP takes memory of the GPU.
 * That bytes of a NIC are visible after it takes a NIC that writes GPU memory, and is not shown. */
#include <halage/memory.h>
#include <halage/transport/ofi.h>

#include <stdio.h>

#include "check.h"

#define FLUSHES 1000u
#define READ_NS INT64_C(2000000000)

/* Whether a sentinel could be tried. What it costs without a NIC says nothing of one; that it comes back does. */
static bool read_back(const struct hlg_memory *memory)
{
    static int64_t times[FLUSHES];
    const struct hlg_ofi_config config = {.provider = "tcp", .device_memory = true};
    const struct hlg_mem_region region = hlg_memory_region(memory);
    struct hlg_transport_caps caps;
    struct hlg_fabric *fabric = NULL;
    struct hlg_sentinel *s = NULL;
    char error[512] = "";

    GPU_NEED(hlg_ofi_open(&config, &fabric, error, sizeof error) == 0, "%s", error);
    fabric->query(fabric, &caps);
    if (!caps.device_memory) {
        (void)printf("policy READ: not tried, libfabric's TCP takes no memory of GPUs here\n");
        hlg_ofi_close(fabric);
        return false;
    }
    GPU_NEED(fabric->sentinel_open(fabric, 0, 0, &region, &s) == 0, "no sentinel");
    for (uint32_t i = 0; i < FLUSHES; i++) {
        const int64_t begin = gpu_now_ns();
        int begun = 0;
        int over = 0;
        while (over == 0) {
            GPU_NEED(gpu_now_ns() - begin < READ_NS, "read %u did not come back in 2 s", i);
            begun = begun == 0 ? s->ops->read(s) : begun;
            over = begun > 0 ? s->ops->poll(s) : begun;
        }
        GPU_NEED(over == 1, "read %u failed", i);
        times[i] = gpu_now_ns() - begin;
    }
    gpu_print_times("policy READ over TCP, one read", times, FLUSHES);
    s->ops->free(s);
    hlg_ofi_close(fabric);
    return true;
}

void gpu_flush(void)
{
    static int64_t times[FLUSHES];
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = 0};
    struct hlg_memory *memory = NULL;
    char error[512] = "";

    (void)gpu_driver();
    GPU_NEED(hlg_memory_create(&site, 1 << 20, &memory, error, sizeof error) == 0, "%s", error);
    const int needs = hlg_memory_needs_flush(0, error, sizeof error);
    if (needs < 0) {
        (void)printf("policy AUTO: refused, %s\n", error);
    } else {
        (void)printf("policy AUTO: %s\n", needs == 1
                                              ? "CUDA, since the GPU does not order writes of NICs"
                                              : "NONE, since the GPU orders writes of NICs");
    }
    const bool reads = read_back(memory);
    if (hlg_memory_flush(0, error, sizeof error) != 0) {
        GPU_NEED(needs != 1, "a flush that AUTO needs fails: %s", error);
        if (reads) {
            gpu_ran("policy READ alone; CUDA cannot be had here: %s", error);
        }
        gpu_skipped("policy CUDA cannot be had here: %s", error);
    }
    for (uint32_t i = 0; i < FLUSHES; i++) {
        const int64_t begin = gpu_now_ns();
        GPU_NEED(hlg_memory_flush(0, error, sizeof error) == 0, "flush %u: %s", i, error);
        times[i] = gpu_now_ns() - begin;
    }
    gpu_print_times("policy CUDA, one flush from the call to its return", times, FLUSHES);
    hlg_memory_release(memory);
    gpu_ran("AUTO says %d; %u flushes; READ %s", needs, FLUSHES, reads ? "too" : "not tried");
}
