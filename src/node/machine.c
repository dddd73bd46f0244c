#include "machine.h"

#include <halage/transport/ofi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "tcp" is also the first word of "tcp;ofi_rxm". */
static bool is_wanted(const char *provider, const char *wanted)
{
    const size_t bytes = strlen(wanted);
    return strcmp(wanted, "auto") == 0 || (strncmp(provider, wanted, bytes) == 0 &&
                                           (provider[bytes] == '\0' || provider[bytes] == ';'));
}

static uint32_t find_domains(const char *provider, struct hlg_topology_domain *domains)
{
    static struct hlg_ofi_device devices[HLG_TOPOLOGY_DOMAINS_MAX];
    const uint32_t device_count = hlg_ofi_devices(NULL, devices, HLG_TOPOLOGY_DOMAINS_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < device_count; i++) {
        if (!is_wanted(devices[i].provider, provider)) {
            continue;
        }
        struct hlg_topology_domain *domain = &domains[count++];
        domain->on_bus = devices[i].on_bus;
        domain->bus = (struct hlg_bus_id){.domain = devices[i].domain,
                                          .bus = devices[i].bus,
                                          .device = devices[i].slot,
                                          .function = devices[i].function};
        (void)snprintf(domain->name, sizeof domain->name, "%.63s", devices[i].name);
    }
    return count;
}

int machine_look(const struct machine_request *request, struct hlg_topology **topology, char *error,
                 size_t error_bytes)
{
    static struct hlg_topology_domain domains[HLG_TOPOLOGY_DOMAINS_MAX];
    struct hlg_topology *bare = NULL;
    struct hlg_topology_config config = {
        .size = sizeof config,
        .xml = request->xml,
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
        .cuda_visible = request->all ? NULL : getenv("CUDA_VISIBLE_DEVICES"),
        /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
        .nvidia_visible = request->all ? NULL : getenv("NVIDIA_VISIBLE_DEVICES"),
        .nics = request->nics,
    };
    int status = hlg_topology_load(&config, &bare, error, error_bytes);
    if (status != 0 || request->provider == NULL || !bare->live || bare->nic_count == 0) {
        *topology = status == 0 ? bare : *topology;
        return status;
    }
    hlg_topology_free(bare);
    config.domain_count = find_domains(request->provider, domains);
    config.domains = domains;
    return hlg_topology_load(&config, topology, error, error_bytes);
}
