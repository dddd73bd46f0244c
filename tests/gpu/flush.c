/* Flush policies: what AUTO chooses here, and what a flush costs. That bytes of a NIC are visible after it
 * takes a NIC that writes GPU memory, and is not shown. */
#include <halage/memory.h>

#include <stdio.h>

#include "check.h"

#define FLUSHES 1000u

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
    if (hlg_memory_flush(0, error, sizeof error) != 0) {
        GPU_NEED(needs != 1, "a flush that AUTO needs fails: %s", error);
        gpu_skipped("policy CUDA cannot be had here: %s", error);
    }
    for (uint32_t i = 0; i < FLUSHES; i++) {
        const int64_t begin = gpu_now_ns();
        GPU_NEED(hlg_memory_flush(0, error, sizeof error) == 0, "flush %u: %s", i, error);
        times[i] = gpu_now_ns() - begin;
    }
    gpu_print_times("policy CUDA, one flush from the call to its return", times, FLUSHES);
    hlg_memory_release(memory);
    gpu_ran("AUTO says %d; %u flushes", needs, FLUSHES);
}
