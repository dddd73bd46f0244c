#include "ofi.h"

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    (void)node;
    return ofi_backend_open("sockets", stall_ns);
}

const struct conformance_backend conformance_backend = {
    .name = "sockets",
    .limits = LIMIT_DOWN_AT_ONCE | LIMIT_CUT_WRITE_BREAKS, /* of 2.1: two runs of eight hung */
    .open = open_fabric,
    .close = ofi_backend_close,
    .nobody = ofi_backend_nobody_ip,
};
