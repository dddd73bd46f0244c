/*
 * Any text as a layout file, a scenario or the axes of a sweep: read, or refused in one line that fits.
 * The first byte says which. What is read is sound.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <cli/layout_yaml.h>
#include <scenario.h>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define ERROR_BYTES YAML_FILE_ERROR_BYTES

/* A sentence is one line, is there, and ends within its room. */
static void expect_sentence(int result, const char *text)
{
    if (result < 0) {
        HLG_ASSERT(text[0] != '\0' && memchr(text, '\0', ERROR_BYTES) != NULL);
        HLG_ASSERT(strchr(text, '\n') == NULL);
    }
}

static void try_layout(const char *path)
{
    char error[ERROR_BYTES] = "";
    struct hlg_refusal why;
    struct hlg_layout layout;

    int result = layout_yaml_read(path, &layout, error, sizeof error);
    HLG_ASSERT(result == 0 || result == -HLG_EINVAL || result == -HLG_EPLAN);
    expect_sentence(result, error);
    HLG_ASSERT(result != 0 || hlg_layout_check(&layout, &why) == 0);
}

static void try_scenario(const char *path)
{
    char error[ERROR_BYTES] = "";
    static struct sim_scenario scenario;

    int result = sim_scenario_read(&scenario, path, NULL, 0, error, sizeof error);
    expect_sentence(result, error);
    if (result == 0) {
        sim_scenario_fini(&scenario);
    }
}

static void try_sweep(const char *path)
{
    char error[ERROR_BYTES] = "";
    struct sim_sweep sweep = {0};

    int result = sim_scenario_sweep(path, &sweep, error, sizeof error);
    expect_sentence(result, error);
    if (result >= 0) {
        sim_sweep_fini(&sweep);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];

    if (size == 0 || size > 8192) {
        return 0;
    }
    int file = memfd_create("fuzz", 0);
    HLG_ASSERT(file >= 0);
    HLG_ASSERT(write(file, data + 1, size - 1) == (ssize_t)(size - 1));
    int bytes = snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    HLG_ASSERT(bytes > 0 && (size_t)bytes < sizeof path);
    switch (data[0] % 3) {
    case 0:
        try_layout(path);
        break;
    case 1:
        try_scenario(path);
        break;
    default:
        try_sweep(path);
        break;
    }
    close(file);
    return 0;
}
