#include "place.h"

#include "../cli/cli.h"

#include <halage/topology.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first word of --nics as hlg_topology_nic_find() knows it; one that it does not know (TCP's interfaces) is none. */
static uint32_t find_nic(const struct hlg_topology *topology, const char *names)
{
    char word[HLG_TOPOLOGY_NAME_BYTES] = "";
    char error[HLG_TOPOLOGY_NOTE_BYTES];
    if (names == NULL) {
        return HLG_NONE;
    }
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(names, ","), names);
    const int nic = hlg_topology_nic_find(topology, word, error, sizeof error);
    return nic < 0 ? HLG_NONE : (uint32_t)nic;
}

/* --cores auto: near the NIC, or the GPU. Leaves the placement empty where there is neither. */
static int choose(struct node *node, char *why, size_t why_bytes)
{
    char text[1024] = "";
    struct hlg_topology *topology = NULL;
    const struct hlg_topology_config config = {
        .size = sizeof config,
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
        .cuda_visible = getenv("CUDA_VISIBLE_DEVICES"),
        /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
        .nvidia_visible = getenv("NVIDIA_VISIBLE_DEVICES"),
    };
    const int status = hlg_topology_load(&config, &topology, text, sizeof text);
    if (status != 0) {
        node_say(node, "--cores auto: %s", text);
        return CLI_FAILED;
    }
    const uint32_t nic = find_nic(topology, node->options.config.nics);
    (void)hlg_topology_place(topology, HLG_NONE, nic, &node->placement, why, why_bytes);
    hlg_topology_free(topology);
    return CLI_DONE;
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
    if (strcmp(cores, "auto") == 0) {
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
