#include "ofi.h"

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    (void)node;
    return ofi_backend_open("tcp;ofi_rxm", stall_ns);
}

const struct conformance_backend conformance_backend = {
    .name = "tcp;ofi_rxm",
    .limits = LIMIT_ERROR_IS_FINAL | LIMIT_CUT_WRITE_BREAKS,
    .open = open_fabric,
    .close = ofi_backend_close,
    .nobody = ofi_backend_nobody_ip,
};
