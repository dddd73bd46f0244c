/* gpu-check CHECK: one of the checks, its last line saying how it ended. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define BUCKETS 24

static _Noreturn void end(int status, const char *word, const char *format, va_list arguments)
{
    (void)printf("%s: ", word);
    (void)vprintf(format, arguments);
    (void)printf("\n");
    (void)fflush(stdout);
    _Exit(status);
}

void gpu_ran(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    end(0, "ran", format, arguments);
}

void gpu_failed(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    end(1, "failed", format, arguments);
}

void gpu_skipped(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    end(77, "skipped", format, arguments);
}

const struct cuda *gpu_driver(void)
{
    char error[512] = "";
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, sizeof error);

    if (cuda == NULL) {
        gpu_skipped("%s", error);
    }
    return cuda;
}

int64_t gpu_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static double us(int64_t ns)
{
    return (double)ns / 1000;
}

void gpu_print_times(const char *name, int64_t *ns, uint32_t count)
{
    uint32_t buckets[BUCKETS] = {0};

    qsort(ns, count, sizeof *ns, compare);
    (void)printf("%s, us: %u times, p50 %.2f p90 %.2f p99 %.2f max %.2f\n", name, count,
                 us(ns[count / 2]), us(ns[count * 9ull / 10]), us(ns[count * 99ull / 100]),
                 us(ns[count - 1]));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bucket = 0;
        while (bucket < BUCKETS - 1 && ns[i] >= INT64_C(250) << bucket) {
            bucket++;
        }
        buckets[bucket]++;
    }
    for (uint32_t b = 0; b < BUCKETS; b++) {
        if (buckets[b] > 0) {
            (void)printf("  < %10.2f us  %u\n", us(INT64_C(250) << b), buckets[b]);
        }
    }
}

/* What the machine is: the first line of each report. */
static void probe(void)
{
    const struct cuda *cuda = gpu_driver();
    char bus[32] = "";
    int version = 0;
    cuda_device device = 0;

    GPU_NEED(cuda->cuDriverGetVersion(&version) == CUDA_OK &&
                 cuda->cuDeviceGet(&device, 0) == CUDA_OK &&
                 cuda->cuDeviceGetPCIBusId(bus, sizeof bus, device) == CUDA_OK,
             "the driver says nothing of GPU 0");
    gpu_ran("%d GPUs, the first at %s, driver of CUDA %d.%d", cuda->devices, bus, version / 1000,
            version % 1000 / 10);
}

int main(int argc, char **argv)
{
    const char *check = argc > 1 ? argv[1] : "";

    if (strcmp(check, "probe") == 0) {
        probe();
    } else if (strcmp(check, "cumem") == 0) {
        gpu_cumem();
    } else if (strcmp(check, "staged") == 0) {
        gpu_staged();
    } else if (strcmp(check, "counter") == 0 && argc >= 3) {
        const long forwards = strtol(argv[2], NULL, 10);
        gpu_counter(forwards > 0 && forwards < 10000 ? (uint32_t)forwards : 1);
    } else if (strcmp(check, "flush") == 0) {
        gpu_flush();
    }
    (void)fprintf(stderr, "usage: gpu-check probe | cumem | staged | counter FORWARDS | "
                          "flush\n");
    return 2;
}
