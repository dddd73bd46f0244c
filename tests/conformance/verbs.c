#include "ofi.h"

/* Needs an RDMA device, and HALAGE_TEST_NODE to be its address: tests/rxe brings one up in a virtual machine. */
static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    (void)node;
    return ofi_backend_open("verbs;ofi_rxm", stall_ns);
}

const struct conformance_backend conformance_backend = {
    .name = "verbs;ofi_rxm",
    .limits = LIMIT_ERROR_IS_FINAL,
    .open = open_fabric,
    .close = ofi_backend_close,
    .nobody = ofi_backend_nobody_ip,
};
