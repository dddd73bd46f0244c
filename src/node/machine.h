/*
 * The machine that this runs on, or one that hwloc wrote down, as the programs of this project see it: the GPUs that the
 * environment leaves visible, and the NICs joined with what libfabric opens.
 */
#ifndef HALAGE_NODE_MACHINE_H
#define HALAGE_NODE_MACHINE_H

#include <halage/topology.h>

struct machine_request {
    const char *xml;  /* as hlg_topology_config.xml; NULL: this machine */
    const char *nics; /* as hlg_topology_config.nics; NULL: all */
    const char *
        provider; /* of libfabric, whose NICs are joined; "auto": those of all; NULL: it is not asked */
    bool all;     /* GPUs, whatever CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES say */
};

/* Look. As hlg_topology_load(); only a machine that this runs on is joined, for which libfabric opens its providers. */
int machine_look(const struct machine_request *request, struct hlg_topology **topology, char *error,
                 size_t error_bytes);

#endif
