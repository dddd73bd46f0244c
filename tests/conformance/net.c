#include "ofi.h"

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    (void)node;
    return ofi_backend_open("net", stall_ns);
}

const struct conformance_backend CONFORMANCE_BACKEND = {
    .name = "net",
    .limits = 0,
    .open = open_fabric,
    .close = ofi_backend_close,
    .nobody = ofi_backend_nobody_ip,
};
