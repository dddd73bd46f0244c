/*
 * An engine's stream over the double of libcuda, whose layers each wait for a gate, so that a test sees every
 * tick of its counter. What goes wrong ends the process: it is used in children of tests too.
 */
#ifndef CUDA_ENGINE_H
#define CUDA_ENGINE_H

#include <halage/counter.h>

#include <stdatomic.h>

#include "../../src/memory/cuda_dl.h"
#include "cuda_graphs.h"

struct cuda_engine {
    const struct cuda *cuda;
    struct cuda_graphs graphs;
    struct hlg_counter *counter;
    int32_t device;
    uint32_t layers; /* ticks of a forward pass */
    cuda_context context;
    cuda_stream stream;
    _Atomic uint32_t *gate; /* layer l waits until it is >= l */
    cuda_ptr gate_address;
    cuda_graph graph;
    cuda_graph_exec exec; /* NULL: the stream is given waits and ticks themselves */
};

/* way: enum hlg_counter_way. The context is current from then on. */
void cuda_engine_open(struct cuda_engine *e, uint32_t way, int32_t device, uint32_t layers);
void cuda_engine_close(struct cuda_engine *e);
/* Capture a forward pass: launches replay it. */
void cuda_engine_capture(struct cuda_engine *e);
/* Shut the gate, stamp, and put in a forward pass. */
void cuda_engine_launch(struct cuda_engine *e, uint32_t forward);

#endif
