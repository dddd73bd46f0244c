/*
 * Checks of a machine with a GPU, for `run` beside this. Each prints what it measured and ends in `ran`,
 * `failed` or `skipped`, with the reason, by one of the functions below. Over the double of libcuda they
 * show that they work, and nothing else.
 */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/cuda_dl.h"

/* Exit status of each: 0, 1, 77. */
__attribute__((format(printf, 1, 2))) _Noreturn void gpu_ran(const char *format, ...);
__attribute__((format(printf, 1, 2))) _Noreturn void gpu_failed(const char *format, ...);
__attribute__((format(printf, 1, 2))) _Noreturn void gpu_skipped(const char *format, ...);

#define GPU_NEED(condition, ...)     \
    do {                             \
        if (!(condition)) {          \
            gpu_failed(__VA_ARGS__); \
        }                            \
    } while (0)

/* The driver; skipped where there is none or no GPU. Not before a fork. */
const struct cuda *gpu_driver(void);

int64_t gpu_now_ns(void);
/* Sorts, and prints: name, how many, p50, p90, p99, most, in us; then a histogram by powers of two. */
void gpu_print_times(const char *name, int64_t *ns, uint32_t count);

void gpu_cumem(void);
void gpu_staged(void);
/* forwards  passes that the graph is launched for */
void gpu_counter(uint32_t forwards);
void gpu_flush(void);

#endif
