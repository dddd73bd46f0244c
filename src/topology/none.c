/* For builds without hwloc: who asks is told. */
#include "internal.h"

#include <stdio.h>

int topology_discover(const struct hlg_topology_config *config, struct hlg_topology *t, char *error,
                      size_t error_bytes)
{
    (void)config;
    (void)t;
    (void)snprintf(error, error_bytes,
                   "built without hwloc; install it and configure with -DHALAGE_HWLOC=ON");
    return -HLG_EUNSUPPORTED;
}
