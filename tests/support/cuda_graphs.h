/*
 * Calls of the CUDA driver that an engine makes and the library does not: graphs, and a stream that waits
 * for a word. Of whichever libcuda.so.1 the library path finds, the double or the driver.
 */
#ifndef CUDA_GRAPHS_H
#define CUDA_GRAPHS_H

#include "../../src/memory/cuda_abi.h"

typedef struct cuda_graph_opaque *cuda_graph;
typedef struct cuda_graph_exec_opaque *cuda_graph_exec;

#define CUDA_GRAPH_CALLS(X)                                                 \
    X(cuStreamBeginCapture, 10010, (cuda_stream stream, int mode))          \
    X(cuStreamEndCapture, 10000, (cuda_stream stream, cuda_graph * graph))  \
    X(cuGraphInstantiateWithFlags, 11040,                                   \
      (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags)) \
    X(cuGraphLaunch, 10000, (cuda_graph_exec exec, cuda_stream stream))     \
    X(cuGraphDestroy, 10000, (cuda_graph graph))                            \
    X(cuGraphExecDestroy, 10000, (cuda_graph_exec exec))                    \
    X(cuStreamWaitValue32, 11070,                                           \
      (cuda_stream stream, cuda_ptr at, uint32_t value, unsigned flags /* 0: >= */))

struct cuda_graphs {
#define CUDA_GRAPH_DECLARE(name, version, arguments) cuda_result(*name) arguments;
    CUDA_GRAPH_CALLS(CUDA_GRAPH_DECLARE)
#undef CUDA_GRAPH_DECLARE
};

/* Returns the name of a call that there is not, or NULL: all are found. */
const char *cuda_graphs_find(struct cuda_graphs *graphs);

#endif
