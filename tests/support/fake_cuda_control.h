/* Steering of the double of libcuda from within the process that loaded it: fake_cuda/README.md. */
#ifndef FAKE_CUDA_CONTROL_H
#define FAKE_CUDA_CONTROL_H

#include <stddef.h>

struct fake_cuda_control {
    void (*fail_call)(const char *name, int n, int with);
    const char *(*call)(int i, int *made);
    int (*live)(char *text, size_t bytes);
};

/* Loads the double. Ends the process where the library path finds another libcuda, or none. */
void fake_cuda_control(struct fake_cuda_control *control);

/* How often a call was made so far. */
int fake_cuda_made(const struct fake_cuda_control *control, const char *name);

#endif
