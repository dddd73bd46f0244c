/* For builds without libfabric: what needs a fabric is told that there is none. */
#include <halage/transport/ofi.h>

#include <stdio.h>

int hlg_ofi_open(const struct hlg_ofi_config *config, struct hlg_fabric **fabric, char *error,
                 size_t error_bytes)
{
    (void)config;
    (void)fabric;
    if (error_bytes > 0) {
        (void)snprintf(error, error_bytes,
                       "built without libfabric; install it and configure with -DHALAGE_OFI=ON");
    }
    return -HLG_EINVAL;
}

void hlg_ofi_close(struct hlg_fabric *fabric)
{
    HLG_ASSERT(fabric == NULL); /* nobody has one */
}

uint32_t hlg_ofi_list(const char *node, struct hlg_ofi_provider *providers, uint32_t capacity)
{
    (void)node;
    (void)providers;
    (void)capacity;
    return 0;
}

struct hlg_ofi_version hlg_ofi_version(void)
{
    return (struct hlg_ofi_version){.major = 0};
}

struct hlg_ofi_version hlg_ofi_version_min(const char *provider)
{
    (void)provider;
    return (struct hlg_ofi_version){.major = 0};
}

uint32_t hlg_ofi_devices(const char *node, struct hlg_ofi_device *devices, uint32_t capacity)
{
    (void)node;
    (void)devices;
    (void)capacity;
    return 0;
}
