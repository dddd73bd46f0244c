/*
 * A double of libcuda.so.1: the driver calls that halage uses, over memfd. Processes that load it
 * export, import and map the same "device memory", streams run in threads of their own, and any call
 * can be made to fail. How to steer it: README.md. What cannot be shown with it: anything of a GPU.
 *
 * calls.c counts, fails and hands out the calls; device.c has devices and contexts, vmm.c memory,
 * stream.c streams, events and copies, graph.c modules, kernels and graphs.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "../../../src/memory/cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct cuda_graph_opaque *cuda_graph;
typedef struct cuda_graph_opaque *cuda_graph_exec;

/* Calls that tests and later code want, beside those that the library uses: X as for CUDA_CALLS. */
#define FAKE_CALLS(X)                                                       \
    X(cuCtxGetCurrent, 4000, (cuda_context * context))                      \
    X(cuCtxSetCurrent, 4000, (cuda_context context))                        \
    X(cuStreamBeginCapture, 10010, (cuda_stream stream, int mode))          \
    X(cuStreamEndCapture, 10000, (cuda_stream stream, cuda_graph * graph))  \
    X(cuGraphInstantiateWithFlags, 11040,                                   \
      (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags)) \
    X(cuGraphLaunch, 10000, (cuda_graph_exec exec, cuda_stream stream))     \
    X(cuGraphDestroy, 10000, (cuda_graph graph))                            \
    X(cuGraphExecDestroy, 10000, (cuda_graph_exec exec))                    \
    X(cuStreamWaitValue32, 11070, (cuda_stream stream, cuda_ptr at, uint32_t value, unsigned flags))

#define FAKE_DECLARE(name, version, arguments) cuda_result fake_##name arguments;
CUDA_CALLS(FAKE_DECLARE)
FAKE_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE

enum fake_call {
#define FAKE_NUMBER(name, version, arguments) CALL_##name,
    CUDA_CALLS(FAKE_NUMBER)
    FAKE_CALLS(FAKE_NUMBER)
#undef FAKE_NUMBER
        CALL_COUNT
};

/* What is alive in this process. */
struct fake_live {
    int allocations; /* handles, and what is only held by mappings */
    int handles;
    int mappings;
    int reservations;
    int contexts; /* retained */
    int streams;
    int events;
    int pinned; /* host allocations and registrations */
    int modules;
    int graphs; /* and what was instantiated of them */
};

struct fake {
    pthread_mutex_t lock; /* over all but streams' queues */
    bool begun;
    int process;
    int devices;     /* that are seen */
    int physical[8]; /* of each that is seen */
    bool readable;
    int delay_us; /* before each operation of a stream */
    struct fake_live live;
};
extern struct fake fake;

/* Count a call and see whether it is to fail, or cannot be made now. CUDA_OK: go on. */
cuda_result fake_enter(enum fake_call call);
/* The same for calls that need a current context. */
cuda_result fake_enter_current(enum fake_call call);

/* device.c */
int fake_attribute(int attribute);

/* vmm.c: the bytes behind a device pointer, with *room bytes from there on in the same mapping; NULL
 * when nothing is mapped there or its access was not set. With `lock` held. */
uint8_t *fake_bytes(cuda_ptr pointer, size_t *room);
/* Whether all of a range is mapped and accessible. With `lock` held. */
bool fake_mapped(cuda_ptr pointer, size_t bytes);
bool fake_pinned(const void *host);

/* ---- stream.c ---- */

enum kind {
    COPY_OUT = 1, /* device to host */
    COPY_IN,
    FILL,
    RECORD,
    WRITE_WORD,
    WAIT_WORD,
    KERNEL,
};

struct operation {
    enum kind kind;
    cuda_ptr device;
    void *host;
    size_t bytes;
    uint32_t value;
    cuda_event event;
    uint64_t turn;
    cuda_function function;
    struct operation *next;
};

/* Operations in order, of a stream or a graph. */
struct operations {
    struct operation *first;
    struct operation **last;
};
void fake_operations_begin(struct operations *list);
bool fake_operations_add(struct operations *list, const struct operation *operation);
void fake_operations_free(struct operations *list);

/* Put an operation into a stream, or into the graph that it is captured to. */
cuda_result fake_put(cuda_stream stream, const struct operation *operation);
/* What a stream is captured to; NULL: it is not. Set by one thread, that of the stream's caller. */
struct operations **fake_capture(cuda_stream stream);
/* Whether the word may be used by a kernel now; as a pointer that the CPU may follow. */
_Atomic uint32_t *fake_word(cuda_ptr device);

/* ---- graph.c ---- */

/* The work of a kernel. */
void fake_run(const struct operation *operation);

#endif
