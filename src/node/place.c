#include "place.h"

#include "../cli/cli.h"
#include "machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_auto(const char *option)
{
    return option != NULL && strcmp(option, "auto") == 0;
}

/* This machine. Says a line and returns NULL on failure. */
static struct hlg_topology *look(const struct node *node, const char *option, const char *provider)
{
    char text[1024] = "";
    struct hlg_topology *topology = NULL;
    /* The driver says which GPUs pages are on; without it the environment says which they would be on. */
    const struct machine_request request = {.provider = provider, .all = node->options.config.cuda};
    if (machine_look(&request, &topology, text, sizeof text) != 0) {
        node_say(node, "--%s auto: %s", option, text);
        return NULL;
    }
    return topology;
}

/* The GPU that a lane's pages are on, as an index in the topology: by its bus id where the driver tells it, which may
 * count in another order; pages in host memory are taken for those of the GPU that the lane would have. HLG_NONE: none. */
static uint32_t find_gpu(const struct node *node, const struct hlg_topology *topology,
                         uint32_t lane)
{
    char bus[HLG_MEMORY_BUS_BYTES] = "";
    char text[256] = "";
    const uint32_t rank = node_ranks_lane(node, lane);
    if (!node->options.config.cuda) {
        return topology->gpu_count == 0 ? HLG_NONE : rank % topology->gpu_count;
    }
    const int32_t device = hlg_memory_device(ranks_memory(node->ranks, rank));
    if (hlg_memory_bus(device, bus, text, sizeof text) == 0) {
        const int gpu = hlg_topology_gpu_find(topology, bus, text, sizeof text);
        if (gpu >= 0) {
            return (uint32_t)gpu;
        }
    }
    node_say(node, "nobody knows what is near to the GPU of lane %" PRIu32 ": %s", lane, text);
    return HLG_NONE;
}

/* The first word of --nics as hlg_topology_nic_find() knows it; one that it does not know (TCP's interfaces) is none. */
static uint32_t find_nic(const struct hlg_topology *topology, const char *names)
{
    char word[HLG_TOPOLOGY_NAME_BYTES] = "";
    char error[HLG_TOPOLOGY_NOTE_BYTES];
    if (names == NULL || is_auto(names)) {
        return HLG_NONE;
    }
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(names, ","), names);
    const int nic = hlg_topology_nic_find(topology, word, error, sizeof error);
    return nic < 0 ? HLG_NONE : (uint32_t)nic;
}

/* --cores auto: near the NIC, or the GPU. Leaves the placement empty where there is neither. */
static int choose(struct node *node, char *why, size_t why_bytes)
{
    struct hlg_topology *topology =
        look(node, "cores", NULL); /* libfabric comes after the placement */
    if (topology == NULL) {
        return CLI_FAILED;
    }
    const uint32_t nic = find_nic(topology, node->options.config.nics);
    const uint32_t gpu = find_gpu(node, topology, 0);
    (void)hlg_topology_place(topology, gpu, nic, &node->placement, why, why_bytes);
    hlg_topology_free(topology);
    return CLI_DONE;
}

/* Own NICs of a GPU with commas between; the caller frees them. NULL: no memory. */
static char *join_names(const struct hlg_topology *topology, const struct hlg_topology_gpu *gpu)
{
    const size_t bytes = (size_t)gpu->share_count * (HLG_TOPOLOGY_NAME_BYTES + 1) + 1;
    size_t used = 0;
    char *names = calloc(bytes, 1);
    for (uint32_t i = 0; names != NULL && i < gpu->share_count; i++) {
        const struct hlg_topology_nic *nic = &topology->nics[gpu->nics[i].nic];
        const int more = snprintf(names + used, bytes - used, "%s%s", i == 0 ? "" : ",",
                                  nic->domain[0] != '\0' ? nic->domain : nic->name);
        used += more > 0 ? (size_t)more : 0;
    }
    return names;
}

static int pick(struct node *node, const struct hlg_topology *topology)
{
    const uint32_t lanes = hlg_layout_lanes(&node->layout);
    char bus[HLG_TOPOLOGY_BUS_BYTES];
    struct hlg_limits limits;
    hlg_limits_default(&limits);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const uint32_t found = find_gpu(node, topology, lane);
        if (found == HLG_NONE) {
            continue; /* any NIC */
        }
        const struct hlg_topology_gpu *gpu = &topology->gpus[found];
        node->lane_nics[lane] = join_names(topology, gpu);
        if (node->lane_nics[lane] == NULL) {
            node_say(node, "out of memory");
            return CLI_FAILED;
        }
        const uint32_t rails = hlg_min_u32(gpu->share_count, limits.rails_max);
        node->rails =
            node->rails < rails ? rails : node->rails; /* fewer NICs serve several rails */
        hlg_bus_id_write(&gpu->bus, bus);
        node_say(node, "lane %" PRIu32 ", GPU %s: %s (%s)", lane, bus, node->lane_nics[lane],
                 hlg_link_name(gpu->nics[0].link));
    }
    return CLI_DONE;
}

/* Whether libfabric has a name for one of the NICs; it knows none on a machine that it does not run on. */
static bool can_open(const struct hlg_topology *topology)
{
    bool opens = !topology->live;
    for (uint32_t i = 0; i < topology->nic_count; i++) {
        opens = opens || topology->nics[i].domain[0] != '\0';
    }
    return opens;
}

int node_pick_nics(struct node *node)
{
    int status = CLI_DONE;
    if (!is_auto(node->options.config.nics)) {
        return status;
    }
    node->options.config.nics = NULL;
    struct hlg_topology *topology = look(node, "nics", node->options.config.provider);
    if (topology == NULL) {
        return CLI_FAILED;
    }
    if (topology->gpu_count == 0) {
        node_say(node, "nics: all: there is no GPU to choose them by");
    } else if (topology->nic_count == 0 || !can_open(topology)) {
        node_say(node, "nics: all: %s",
                 topology->nic_count == 0 ? "there is no RDMA NIC"
                                          : "the provider opens none of the RDMA NICs");
    } else {
        status = pick(node, topology);
    }
    hlg_topology_free(topology);
    return status;
}

int node_place(struct node *node)
{
    char text[1024] = "";
    char why[160] = "as told";
    const char *cores = node->options.config.cores;
    struct hlg_placement is;
    node->placement = (struct hlg_placement){.numa = -1};
    if (cores == NULL) {
        return CLI_DONE;
    }
    if (is_auto(cores)) {
        const int status = choose(node, why, sizeof why);
        if (status != CLI_DONE) {
            return status;
        }
    } else {
        (void)snprintf(node->placement.cores, sizeof node->placement.cores, "%s", cores);
    }
    if (node->placement.cores[0] == '\0') {
        node_say(node, "cores: any: %s", why);
        return CLI_DONE;
    }
    if (hlg_placement_bind(&node->placement, &node->placed_before, text, sizeof text) != 0) {
        node_say(node, "--cores: %s", text);
        return CLI_BAD_INPUT;
    }
    node->placed = true;
    if (hlg_placement_read(&is) == 0 && is.numa >= 0) {
        node_say(node, "cores: %s, memory of NUMA node %" PRId32 ": %s", is.cores, is.numa, why);
    } else if (node->placement.numa >= 0) {
        node_say(node, "cores: %s, memory of any NUMA node (the kernel refused %" PRId32 "): %s",
                 is.cores, node->placement.numa, why);
    } else {
        node_say(node, "cores: %s: %s", is.cores, why);
    }
    return CLI_DONE;
}

void node_unplace(struct node *node)
{
    if (node->placed) {
        hlg_placement_restore(&node->placed_before);
        node->placed = false;
    }
}
