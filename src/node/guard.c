#include "guard.h"

#include "lane.h"

#include <inttypes.h>
#include <string.h>

#define PATTERN 0xa7

/* Bytes of a page on one rank that lie together. */
struct area {
    uint64_t offset; /* in the lane's memory */
    uint64_t bytes;
};

/* Area `index` of a page on a rank. Returns whether there is one. */
static bool find_area(const struct node *node, uint32_t lane, uint32_t group, uint32_t page,
                      uint32_t index, struct area *area)
{
    const struct tlm_config *model = &node->options.config.model;
    const uint32_t planes = tlm_planes(model);
    if (group == 0) {
        area->bytes = tlm_page_bytes(model, node->layout.tp);
        if (index >= model->layers * planes) {
            return false;
        }
        area->offset = lane_page(node, index / planes, index % planes, page);
        return true;
    }
    area->bytes = hlg_layout_page_bytes(&node->layout, 1);
    area->offset = lane_context(node, lane, page);
    return index == 0;
}

void guard_fill(struct node *node, uint32_t pool, uint32_t group, const uint32_t *pages,
                uint32_t count)
{
    struct area area;
    for (uint32_t i = 0; i < count && node->options.config.guard; i++) {
        for (uint32_t rank = 0; rank < node->layout.tp; rank++) {
            const uint32_t lane = pool * node->layout.tp + rank;
            for (uint32_t a = 0; find_area(node, lane, group, pages[i], a, &area); a++) {
                memset(node->looked, PATTERN, (size_t)area.bytes);
                lane_put(node, lane, area.offset, node->looked, area.bytes);
            }
        }
    }
}

static bool page_touched(struct node *node, uint32_t lane, uint32_t group, uint32_t page)
{
    struct area area;
    for (uint32_t a = 0; find_area(node, lane, group, page, a, &area); a++) {
        const uint8_t *bytes = lane_look(node, lane, area.offset, area.bytes);
        if (bytes[0] != PATTERN || memcmp(bytes, bytes + 1, (size_t)area.bytes - 1) != 0) {
            node_say(node,
                     "guard: a byte landed in free page %" PRIu32 " of group %" PRIu32
                     ", lane %" PRIu32 ", area %" PRIu32,
                     page, group, lane, a);
            return true;
        }
    }
    return false;
}

uint32_t guard_touched(struct node *node, uint32_t pool, uint32_t group, const uint32_t *pages,
                       uint32_t count)
{
    uint32_t touched = 0;
    for (uint32_t i = 0; i < count && node->options.config.guard; i++) {
        bool any = false;
        for (uint32_t rank = 0; rank < node->layout.tp && !any; rank++) {
            any = page_touched(node, pool * node->layout.tp + rank, group, pages[i]);
        }
        touched += any ? 1 : 0;
    }
    return touched;
}
