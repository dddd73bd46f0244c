#include <halage/places.h>

/* Each group begins on a system page of its own, so that one can be mapped or advised alone. */
#define GROUP_ALIGN 4096u

struct cursor {
    struct hlg_place *places;
    uint32_t capacity;
    uint32_t count;
    uint64_t bytes;
};

static void add_layer(struct cursor *c, const struct hlg_layout *layout, uint32_t lane,
                      uint32_t group, uint32_t layer)
{
    uint64_t page_bytes = hlg_layout_page_bytes(layout, group);

    for (uint32_t plane = 0; plane < layout->groups[group].planes; plane++) {
        if (c->count < c->capacity) {
            c->places[c->count] = (struct hlg_place){.lane = lane,
                                                     .group = group,
                                                     .layer = layer,
                                                     .plane = plane,
                                                     .offset = c->bytes,
                                                     .stride = page_bytes};
        }
        c->count++;
        c->bytes += page_bytes * layout->groups[group].page_count;
    }
}

int hlg_places_linear(const struct hlg_layout *layout, uint32_t lane, struct hlg_place *places,
                      uint32_t capacity, uint64_t *bytes)
{
    struct cursor c = {.places = places, .capacity = capacity};

    if (lane >= hlg_layout_lanes(layout)) {
        return -HLG_EINVAL;
    }
    uint32_t rank = layout->rank_begin + lane % (layout->rank_limit - layout->rank_begin);
    uint32_t stage = rank / layout->tp;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        c.bytes = (c.bytes + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
        if (layout->groups[g].kind == HLG_GROUP_CONTEXT) {
            if (stage == layout->stages - 1) {
                add_layer(&c, layout, lane, g, layout->layers);
            }
            continue;
        }
        for (uint32_t layer = hlg_layout_layer_begin(layout, stage);
             layer < layout->stage_limit[stage]; layer++) {
            if (hlg_group_has_layer(&layout->groups[g], layer)) {
                add_layer(&c, layout, lane, g, layer);
            }
        }
    }
    if (bytes != NULL) {
        *bytes = c.bytes;
    }
    return (int)c.count;
}
