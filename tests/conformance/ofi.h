/* What the backend files of libfabric's providers share. */
#ifndef CONFORMANCE_OFI_H
#define CONFORMANCE_OFI_H

#include "conformance.h"

/* The address to bind to: HALAGE_TEST_NODE, or NULL. */
const char *ofi_backend_node(void);

struct hlg_fabric *ofi_backend_open(const char *provider, hlg_time stall_ns);
void ofi_backend_close(struct hlg_fabric *fabric);

/* An IPv4 address of this machine with a port on which nobody listens. */
uint32_t ofi_backend_nobody_ip(uint8_t *address, uint32_t capacity);

#endif
