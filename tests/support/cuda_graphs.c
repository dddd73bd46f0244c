#define _GNU_SOURCE /* dlfcn */
#include "cuda_graphs.h"

#include <dlfcn.h>
#include <string.h>

const char *cuda_graphs_find(struct cuda_graphs *graphs)
{
    cuda_get_v2 get = NULL;
    void *call = NULL;
    int status = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;

    if (symbol == NULL) {
        return "cuGetProcAddress_v2";
    }
    memcpy(&get, &symbol, sizeof get);
#define CUDA_GRAPH_FIND(name, version, arguments)                      \
    if (get(#name, &call, version, 0, &status) != 0 || call == NULL) { \
        return #name;                                                  \
    }                                                                  \
    memcpy(&graphs->name, &call, sizeof call);
    CUDA_GRAPH_CALLS(CUDA_GRAPH_FIND)
#undef CUDA_GRAPH_FIND
    return NULL;
}
