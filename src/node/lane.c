#include "lane.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct hlg_memory *memory_of(const struct node *node, uint32_t lane)
{
    return ranks_memory(node->ranks, node_ranks_lane(node, lane));
}

uint64_t lane_page(const struct node *node, uint32_t layer, uint32_t plane, uint32_t page)
{
    const struct tlm_config *model = &node->options.config.model;
    const uint32_t tp = node->layout.tp;
    return tlm_plane_offset(model, tp, node->layout.groups[0].page_count, layer, plane) +
           page * (uint64_t)tlm_page_bytes(model, tp);
}

uint64_t lane_context(const struct node *node, uint32_t lane, uint32_t page)
{
    return hlg_memory_bytes(memory_of(node, lane)) -
           (uint64_t)(node->layout.groups[1].page_count - page) *
               hlg_layout_page_bytes(&node->layout, 1);
}

static void take_status(struct node *node, uint32_t lane, int status, const char *verb)
{
    if (status != 0 && !node->broken) {
        node->broken = true;
        node_say(node,
                 "memory of lane %" PRIu32 " on GPU %" PRId32
                 " cannot be %s: see the driver's messages in dmesg; the node cannot go on",
                 lane, hlg_memory_device(memory_of(node, lane)), verb);
    }
}

const uint8_t *lane_look(struct node *node, uint32_t lane, uint64_t offset, uint64_t bytes)
{
    const struct hlg_memory *memory = memory_of(node, lane);
    if (hlg_memory_kind(memory) == HLG_MEMORY_HOST) {
        return (const uint8_t *)hlg_memory_base(memory) + offset;
    }
    HLG_ASSERT(bytes <= node->looked_bytes);
    const int status = hlg_memory_read(memory, offset, node->looked, bytes);
    if (status != 0) {
        memset(node->looked, 0, (size_t)bytes);
    }
    take_status(node, lane, status, "read");
    return node->looked;
}

void lane_put(struct node *node, uint32_t lane, uint64_t offset, const void *from, uint64_t bytes)
{
    take_status(node, lane, hlg_memory_write(memory_of(node, lane), offset, from, bytes),
                "written");
}

void lane_flip(struct node *node, uint32_t lane, uint64_t offset)
{
    const uint8_t byte = *lane_look(node, lane, offset, 1) ^ 0x80;
    lane_put(node, lane, offset, &byte, 1);
}

bool lane_init(struct node *node)
{
    const struct hlg_layout *layout = &node->layout;
    node->looked_bytes = hlg_max_u64(tlm_page_bytes(&node->options.config.model, layout->tp),
                                     hlg_layout_page_bytes(layout, 1));
    node->looked = calloc(1, (size_t)node->looked_bytes);
    return node->looked != NULL;
}

void lane_fini(struct node *node)
{
    free(node->looked);
    node->looked = NULL;
}
