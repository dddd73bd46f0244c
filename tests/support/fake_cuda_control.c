#define _GNU_SOURCE /* dlfcn */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_control.h"

/* Not cmocka's way: it is called in children of tests too. */
static _Noreturn void give_up(const char *why)
{
    (void)fprintf(stderr, "%s\n", why);
    abort();
}

static void find(void *library, const char *name, void *function)
{
    void *const symbol = dlsym(library, name);

    if (symbol == NULL) {
        give_up(
            "libcuda.so.1 is not the double: LD_LIBRARY_PATH must name build/<preset>/fake_cuda");
    }
    memcpy(function, &symbol, sizeof symbol);
}

void fake_cuda_control(struct fake_cuda_control *control)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        give_up(dlerror()); /* NOLINT(concurrency-mt-unsafe) */
    }
    find(library, "fake_cuda_fail", &control->fail_call);
    find(library, "fake_cuda_call", &control->call);
    find(library, "fake_cuda_live", &control->live);
}

int fake_cuda_made(const struct fake_cuda_control *control, const char *name)
{
    const char *call = NULL;
    int made = 0;

    for (int i = 0; (call = control->call(i, &made)) != NULL; i++) {
        if (strcmp(call, name) == 0) {
            return made;
        }
    }
    give_up("the double has no such call");
}
