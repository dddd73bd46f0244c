/*
 * Modules, kernels and graphs. A module is an image that has the entries of halage's layer counter; its
 * kernels are C functions that do what those do. A graph is the list of what was put into a stream while
 * that was captured, with the values of then; a launch puts it all into a stream.
 */
#include "fake.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STAMP "halage_counter_stamp"
#define TICK  "halage_counter_tick"

struct cuda_function_opaque {
    cuda_module module;
};

struct cuda_module_opaque {
    struct cuda_function_opaque stamp;
    struct cuda_function_opaque tick;
    uint32_t forward; /* the module's word on the GPU; that stream's thread alone uses it */
};

struct cuda_graph_opaque {
    struct operations nodes;
};

static void count(int *what, int more)
{
    (void)pthread_mutex_lock(&fake.lock);
    *what += more;
    (void)pthread_mutex_unlock(&fake.lock);
}

cuda_result fake_cuModuleLoadData(cuda_module *module, const void *image)
{
    const cuda_result failed = fake_enter_current(CALL_cuModuleLoadData);

    if (failed != CUDA_OK || strstr(image, ".entry " STAMP "(") == NULL ||
        strstr(image, ".entry " TICK "(") == NULL) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_PTX;
    }
    cuda_module m = calloc(1, sizeof *m);
    if (m == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    m->stamp.module = m;
    m->tick.module = m;
    count(&fake.live.modules, 1);
    *module = m;
    return CUDA_OK;
}

cuda_result fake_cuModuleUnload(cuda_module module)
{
    const cuda_result failed = fake_enter_current(CALL_cuModuleUnload);

    free(module);
    count(&fake.live.modules, -1);
    return failed;
}

cuda_result fake_cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name)
{
    const cuda_result failed = fake_enter_current(CALL_cuModuleGetFunction);

    if (failed != CUDA_OK) {
        return failed;
    }
    if (strcmp(name, STAMP) == 0) {
        *function = &module->stamp;
    } else if (strcmp(name, TICK) == 0) {
        *function = &module->tick;
    } else {
        return CUDA_NOT_FOUND;
    }
    return CUDA_OK;
}

cuda_result fake_cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared_bytes, cuda_stream stream,
                                void **parameters, void **extra)
{
    const cuda_result failed = fake_enter_current(CALL_cuLaunchKernel);
    struct operation o = {.kind = KERNEL, .function = function};

    if (failed != CUDA_OK || grid_x * grid_y * grid_z * block_x * block_y * block_z != 1 ||
        shared_bytes != 0 || extra != NULL) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    /* Parameters are read by the call, as the driver does. */
    memcpy(&o.device, parameters[0], sizeof o.device);
    memcpy(&o.value, parameters[1], sizeof o.value);
    return fake_put(stream, &o);
}

void fake_run(const struct operation *o)
{
    cuda_module m = o->function->module;

    if (o->function == &m->stamp) {
        m->forward = o->value;
        atomic_store_explicit(fake_word(o->device), o->value, memory_order_release);
    } else {
        atomic_store_explicit(fake_word(o->device), m->forward | o->value, memory_order_release);
    }
}

/* ---- Graphs ---- */

static cuda_graph make_graph(void)
{
    cuda_graph graph = calloc(1, sizeof *graph);

    if (graph != NULL) {
        fake_operations_begin(&graph->nodes);
        count(&fake.live.graphs, 1);
    }
    return graph;
}

static void free_graph(cuda_graph graph)
{
    fake_operations_free(&graph->nodes);
    free(graph);
    count(&fake.live.graphs, -1);
}

cuda_result fake_cuStreamBeginCapture(cuda_stream stream, int mode)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamBeginCapture);

    if (failed != CUDA_OK || mode < 0 || mode > 2 || *fake_capture(stream) != NULL) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    cuda_graph graph = make_graph();
    if (graph == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    *fake_capture(stream) = &graph->nodes; /* the first of a graph */
    return CUDA_OK;
}

cuda_result fake_cuStreamEndCapture(cuda_stream stream, cuda_graph *graph)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamEndCapture);
    struct operations **capture = fake_capture(stream);

    if (*capture == NULL) {
        return CUDA_INVALID_VALUE;
    }
    cuda_graph captured = (cuda_graph)(void *)*capture;
    *capture = NULL;
    if (failed != CUDA_OK) {
        free_graph(captured);
        return failed;
    }
    *graph = captured;
    return CUDA_OK;
}

cuda_result fake_cuStreamIsCapturing(cuda_stream stream, int *status)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamIsCapturing);

    if (failed == CUDA_OK) {
        /* the legacy stream (NULL) cannot be captured */
        const bool captured = stream != NULL && *fake_capture(stream) != NULL;
        *status = captured ? CUDA_CAPTURE_ACTIVE : CUDA_CAPTURE_NONE;
    }
    return failed;
}

cuda_result fake_cuGraphInstantiateWithFlags(cuda_graph_exec *exec, cuda_graph graph,
                                             unsigned long long flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuGraphInstantiateWithFlags);

    if (failed != CUDA_OK || flags != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    cuda_graph copy = make_graph();
    for (const struct operation *o = graph->nodes.first; copy != NULL && o != NULL; o = o->next) {
        if (!fake_operations_add(&copy->nodes, o)) {
            free_graph(copy);
            copy = NULL;
        }
    }
    if (copy == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    *exec = copy;
    return CUDA_OK;
}

cuda_result fake_cuGraphLaunch(cuda_graph_exec exec, cuda_stream stream)
{
    cuda_result result = fake_enter_current(CALL_cuGraphLaunch);

    for (const struct operation *o = exec->nodes.first; result == CUDA_OK && o != NULL;
         o = o->next) {
        result = fake_put(stream, o);
    }
    return result;
}

cuda_result fake_cuGraphDestroy(cuda_graph graph)
{
    const cuda_result failed = fake_enter(CALL_cuGraphDestroy);

    free_graph(graph);
    return failed;
}

cuda_result fake_cuGraphExecDestroy(cuda_graph_exec exec)
{
    const cuda_result failed = fake_enter(CALL_cuGraphExecDestroy);

    free_graph(exec);
    return failed;
}
