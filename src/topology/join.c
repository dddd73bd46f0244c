/* NICs as libfabric names them, and as a user picks them. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* libfabric may have several domains for one function: EFA has -rdm and -dgrm. */
static int goodness(const struct hlg_topology_nic *nic, const char *domain)
{
    const size_t bytes = strlen(nic->name);
    if (strcmp(domain, nic->name) == 0) {
        return 3;
    }
    return strncmp(domain, nic->name, bytes) == 0 && strcmp(domain + bytes, "-rdm") == 0 ? 2 : 1;
}

void topology_join(const struct hlg_topology_config *config, struct hlg_topology *t,
                   bool unusable[HLG_TOPOLOGY_NICS_MAX])
{
    uint32_t joined = 0;
    for (uint32_t i = 0; i < t->nic_count; i++) {
        struct hlg_topology_nic *nic = &t->nics[i];
        int best = 0;
        for (uint32_t d = 0; config->domains != NULL && d < config->domain_count; d++) {
            const struct hlg_topology_domain *domain = &config->domains[d];
            const int good = goodness(nic, domain->name);
            const bool same = domain->on_bus && nic->on_bus
                                  ? hlg_bus_id_equal(&domain->bus, &nic->bus)
                                  : good > 1; /* no bus id: the name must do */
            if (same && good > best) {
                best = good;
                (void)snprintf(nic->domain, sizeof nic->domain, "%s", domain->name);
            }
        }
        joined += best > 0;
    }
    if (config->domains == NULL || t->nic_count == 0) {
        return;
    }
    if (joined == 0) {
        topology_note(t, "libfabric opens none of the %u NICs: see halage doctor", t->nic_count);
        return;
    }
    for (uint32_t i = 0; i < t->nic_count; i++) {
        if (t->nics[i].domain[0] == '\0') {
            unusable[i] = true;
            topology_note(t, "libfabric does not open NIC %s: it is left out", t->nics[i].name);
        }
    }
}

int topology_restrict(const struct hlg_topology_config *config, const struct hlg_topology *t,
                      bool unusable[HLG_TOPOLOGY_NICS_MAX], char *error, size_t error_bytes)
{
    const char *list = config->nics;
    bool named[HLG_TOPOLOGY_NICS_MAX] = {false};
    if (list == NULL) {
        return 0;
    }
    for (;;) {
        char word[HLG_TOPOLOGY_NAME_BYTES];
        const size_t bytes = strcspn(list, ",");
        if (bytes == 0 || bytes >= sizeof word) {
            (void)snprintf(error, error_bytes,
                           "NICs '%.200s': write names with commas between, as mlx5_0,mlx5_3",
                           config->nics);
            return -HLG_EINVAL;
        }
        memcpy(word, list, bytes);
        word[bytes] = '\0';
        const int nic = hlg_topology_nic_find(t, word, error, error_bytes);
        if (nic < 0) {
            return nic;
        }
        if (unusable[nic]) {
            (void)snprintf(error, error_bytes,
                           "NIC '%s' cannot be used: libfabric does not open it", word);
            return -HLG_EINVAL;
        }
        named[nic] = true;
        if (list[bytes] == '\0') {
            break;
        }
        list += bytes + 1;
    }
    for (uint32_t i = 0; i < t->nic_count; i++) {
        unusable[i] = unusable[i] || !named[i];
    }
    return 0;
}
