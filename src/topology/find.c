/* Names to numbers, and where a thread belongs. */
#include "internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void list_gpus(const struct hlg_topology *t, char *error, size_t error_bytes)
{
    if (t->gpu_count == 0) {
        topology_append(error, error_bytes,
                        t->machine_gpu_count == 0 ? "this machine has no NVIDIA GPU"
                                                  : "no GPU of this machine is visible");
        return;
    }
    topology_append(error, error_bytes, "there %s 0", t->gpu_count == 1 ? "is only" : "are");
    if (t->gpu_count > 1) {
        topology_append(error, error_bytes, " to %u", t->gpu_count - 1);
    }
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        char bus[HLG_TOPOLOGY_BUS_BYTES];
        hlg_bus_id_write(&t->gpus[i].bus, bus);
        topology_append(error, error_bytes, "%s%s", i == 0 ? ": " : " ", bus);
    }
}

static bool is_gpu(const struct hlg_topology_gpu *gpu, const char *text)
{
    char index[16];
    struct hlg_bus_id bus;
    (void)snprintf(index, sizeof index, "%u", gpu->index);
    return strcmp(index, text) == 0 ||
           (hlg_bus_id_read(text, &bus) == 0 && hlg_bus_id_equal(&bus, &gpu->bus)) ||
           (strlen(text) > 4 && strncasecmp(text, "GPU-", 4) == 0 &&
            strncasecmp(gpu->uuid, text, strlen(text)) == 0);
}

int hlg_topology_gpu_find(const struct hlg_topology *t, const char *text, char *error,
                          size_t error_bytes)
{
    int found = -1;
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        if (is_gpu(&t->gpus[i], text)) {
            if (found >= 0) {
                (void)snprintf(error, error_bytes, "GPU '%.64s': several UUIDs begin so", text);
                return -HLG_EINVAL;
            }
            found = (int)i;
        }
    }
    if (found < 0) {
        (void)snprintf(error, error_bytes, "there is no GPU '%.64s': ", text);
        list_gpus(t, error, error_bytes);
        return -HLG_EINVAL;
    }
    return found;
}

static bool is_nic(const struct hlg_topology_nic *nic, const char *text)
{
    struct hlg_bus_id bus;
    return strcmp(nic->name, text) == 0 ||
           (nic->domain[0] != '\0' && strcmp(nic->domain, text) == 0) ||
           (nic->on_bus && hlg_bus_id_read(text, &bus) == 0 && hlg_bus_id_equal(&bus, &nic->bus));
}

int hlg_topology_nic_find(const struct hlg_topology *t, const char *text, char *error,
                          size_t error_bytes)
{
    for (uint32_t i = 0; i < t->nic_count; i++) {
        if (is_nic(&t->nics[i], text)) {
            return (int)i;
        }
    }
    (void)snprintf(error, error_bytes, "there is no NIC '%.64s': ", text);
    if (t->nic_count == 0) {
        topology_append(error, error_bytes, "this machine has no RDMA NIC");
        return -HLG_EINVAL;
    }
    topology_append(error, error_bytes, "there %s", t->nic_count == 1 ? "is" : "are");
    for (uint32_t i = 0; i < t->nic_count; i++) {
        topology_append(error, error_bytes, " %s", t->nics[i].name);
    }
    return -HLG_EINVAL;
}

static void place_at(const char *what, const char *cores, int32_t numa,
                     struct hlg_placement *placement, char *why, size_t why_bytes)
{
    *placement = (struct hlg_placement){.numa = numa};
    (void)snprintf(placement->cores, sizeof placement->cores, "%s", cores);
    (void)snprintf(why, why_bytes, "near %s", what);
    if (numa >= 0) {
        topology_append(why, why_bytes, ", NUMA node %d", numa);
    } else {
        topology_append(why, why_bytes, ", of which no NUMA node is known");
    }
}

int hlg_topology_place(const struct hlg_topology *t, uint32_t gpu, uint32_t nic,
                       struct hlg_placement *placement, char *why, size_t why_bytes)
{
    char name[64];
    HLG_ASSERT(gpu == HLG_NONE || gpu < t->gpu_count);
    HLG_ASSERT(nic == HLG_NONE || nic < t->nic_count);
    if (gpu == HLG_NONE && nic == HLG_NONE && t->gpu_count > 0) {
        gpu = 0;
    }
    if (nic == HLG_NONE && gpu != HLG_NONE && t->gpus[gpu].nic_count > 0) {
        nic = t->gpus[gpu].nics[0].nic;
    }
    if (nic == HLG_NONE && gpu == HLG_NONE && t->nic_count > 0) {
        nic = 0;
    }
    if (nic != HLG_NONE) {
        /* The GPU's own slice is near the NIC, too, where both are of one node. */
        const struct hlg_topology_nic *near = &t->nics[nic];
        const bool sliced = gpu != HLG_NONE && t->gpus[gpu].numa == near->numa;
        place_at(near->name, sliced ? t->gpus[gpu].slice : near->cores, near->numa, placement, why,
                 why_bytes);
        return 1;
    }
    if (gpu != HLG_NONE) {
        (void)snprintf(name, sizeof name, "GPU %u (there is no NIC)", t->gpus[gpu].index);
        place_at(name, t->gpus[gpu].slice, t->gpus[gpu].numa, placement, why, why_bytes);
        return 1;
    }
    *placement = (struct hlg_placement){.numa = -1};
    (void)snprintf(why, why_bytes, "there is no RDMA NIC and no GPU to be near to");
    return 0;
}
