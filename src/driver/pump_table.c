/* Places, keys and addresses: what turns (lane, group, layer, plane, page) into bytes of memory. All
 * lookups are by index; all that a peer says is checked here once, and pages at every write. */
#include "pump_internal.h"

#include <string.h>

static uint32_t place_index(const struct hlg_pump *p, uint32_t lane, uint32_t group, uint32_t layer,
                            uint32_t plane)
{
    const struct hlg_layout *layout = &p->layout;

    HLG_ASSERT(group < layout->group_count && layer <= layout->layers && plane < p->planes);
    uint32_t index =
        ((lane * layout->group_count + group) * (layout->layers + 1) + layer) * p->planes + plane;
    HLG_ASSERT(index < p->places_max);
    return index;
}

/* Whether a lane holds bytes of (group, layer): its stage's layers, and contexts on the last stage. */
static bool lane_holds(const struct hlg_layout *layout, uint32_t lane, uint32_t group,
                       uint32_t layer)
{
    uint32_t rank = layout->rank_begin + lane % (layout->rank_limit - layout->rank_begin);
    uint32_t stage = rank / layout->tp;

    if (layout->groups[group].kind == HLG_GROUP_CONTEXT) {
        return layer == layout->layers && stage == layout->stages - 1;
    }
    return hlg_group_has_layer(&layout->groups[group], layer) && layer < layout->layers &&
           layer >= hlg_layout_layer_begin(layout, stage) && layer < layout->stage_limit[stage];
}

/* Whether all pages of the place's group lie in `bytes` bytes of region. */
static bool place_fits(const struct hlg_layout *layout, const struct hlg_place *place,
                       uint64_t bytes)
{
    uint64_t span = 0;
    uint32_t pages = layout->groups[place->group].page_count;

    return pages > 0 && place->offset <= bytes && hlg_mul_u64(pages - 1, place->stride, &span) &&
           span <= bytes - place->offset &&
           hlg_layout_page_bytes(layout, place->group) <= bytes - place->offset - span;
}

static bool place_known(const struct hlg_layout *layout, uint32_t lanes,
                        const struct hlg_place *place)
{
    return place->lane < lanes && place->group < layout->group_count &&
           place->plane < layout->groups[place->group].planes &&
           lane_holds(layout, place->lane, place->group, place->layer);
}

/* The first (lane, group) that lacks a place. */
static bool find_gap(const struct hlg_pump *p, const struct hlg_layout *layout, uint32_t lanes,
                     const struct pump_place *places, uint32_t *lane, uint32_t *group)
{
    for (uint32_t l = 0; l < lanes; l++) {
        for (uint32_t g = 0; g < layout->group_count; g++) {
            for (uint32_t i = 0; i < (layout->layers + 1) * layout->groups[g].planes; i++) {
                uint32_t layer = i / layout->groups[g].planes;
                uint32_t plane = i % layout->groups[g].planes;
                if (lane_holds(layout, l, g, layer) &&
                    places[place_index(p, l, g, layer, plane)].region == HLG_NONE) {
                    *lane = l;
                    *group = g;
                    return true;
                }
            }
        }
    }
    return false;
}

static void clear_places(const struct hlg_pump *p, struct pump_place *places)
{
    for (uint32_t i = 0; i < p->places_max; i++) {
        places[i] = (struct pump_place){.region = HLG_NONE};
    }
}

int pump_table_own(struct hlg_pump *p, const struct hlg_pump_config *config)
{
    uint32_t lane = 0;
    uint32_t group = 0;

    clear_places(p, p->places);
    for (uint32_t i = 0; i < config->place_count; i++) {
        const struct hlg_place *place = &config->places[i];
        if (!place_known(&p->layout, p->lanes, place)) {
            return -HLG_EINVAL;
        }
        uint32_t begin = p->region_begin[place->lane];
        if (place->region >= p->region_begin[place->lane + 1] - begin) {
            return -HLG_EINVAL;
        }
        uint64_t bytes = p->regions[begin + place->region].memory.bytes;
        if (!place_fits(&p->layout, place, bytes)) {
            return -HLG_EINVAL;
        }
        p->places[place_index(p, place->lane, place->group, place->layer, place->plane)] =
            (struct pump_place){.region = begin + place->region,
                                .offset = place->offset,
                                .stride = place->stride,
                                .room = bytes - place->offset};
    }
    return find_gap(p, &p->layout, p->lanes, p->places, &lane, &group) ? -HLG_EINVAL : 0;
}

static int incomplete(struct hlg_refusal *why, uint32_t a, uint32_t b)
{
    *why = (struct hlg_refusal){.code = HLG_REFUSAL_TABLE, .a = a, .b = b};
    return -HLG_EPLAN;
}

/* One address for each (lane, rail), in that order, as many rails on every lane. */
static int take_addresses(const struct hlg_pump *p, struct pump_peer *peer,
                          const struct hlg_hello *hello, struct hlg_refusal *why)
{
    uint32_t lanes = hlg_layout_lanes(&hello->layout);

    if (lanes > p->limits.lanes_max || hello->address_count == 0 ||
        hello->address_count % lanes != 0 || hello->address_count / lanes > p->limits.rails_max) {
        return incomplete(why, hello->address_count, lanes);
    }
    peer->lanes = lanes;
    peer->rails = hello->address_count / lanes;
    for (uint32_t i = 0; i < hello->address_count; i++) {
        const struct hlg_rail_address *address = &hello->addresses[i];
        if (address->lane != i / peer->rails || address->rail != i % peer->rails ||
            address->bytes == 0 || address->bytes > HLG_ADDRESS_BYTES_MAX) {
            return incomplete(why, i / peer->rails, i % peer->rails);
        }
        peer->addresses[i] = *address;
    }
    return 0;
}

static bool key_follows(const struct hlg_region_key *key, const struct hlg_region_key *last)
{
    return key->lane > last->lane || (key->lane == last->lane && key->region > last->region);
}

/* The keys of a region on all rails, one region after the other in order of (lane, region). */
static int take_keys(const struct hlg_pump *p, struct pump_peer *peer,
                     const struct hlg_hello *hello, struct hlg_refusal *why)
{
    if (hello->key_count > p->keys_max || hello->key_count % peer->rails != 0) {
        return incomplete(why, hello->key_count, peer->rails);
    }
    for (uint32_t i = 0; i < hello->key_count; i++) {
        const struct hlg_region_key *key = &hello->keys[i];
        const struct hlg_region_key *first = &hello->keys[i - i % peer->rails];
        bool ordered = key == first ? i == 0 || key_follows(key, key - 1)
                                    : key->lane == first->lane && key->region == first->region &&
                                          key->bytes == first->bytes;
        if (!ordered || key->lane >= peer->lanes || key->rail != i % peer->rails ||
            key->bytes > UINT64_MAX - key->address) { /* no address in it wraps */
            return incomplete(why, key->lane, key->region);
        }
        peer->keys[i] = *key;
    }
    peer->key_count = hello->key_count;
    return 0;
}

/* Index of the key of (lane, region) for rail 0, or HLG_NONE. */
static uint32_t find_key(const struct pump_peer *peer, uint32_t lane, uint32_t region)
{
    uint32_t begin = 0;
    uint32_t limit = peer->key_count / peer->rails;

    while (begin < limit) {
        uint32_t middle = begin + (limit - begin) / 2;
        const struct hlg_region_key *key = &peer->keys[middle * peer->rails];
        if (key->lane == lane && key->region == region) {
            return middle * peer->rails;
        }
        if (key->lane < lane || (key->lane == lane && key->region < region)) {
            begin = middle + 1;
        } else {
            limit = middle;
        }
    }
    return HLG_NONE;
}

static int take_places(const struct hlg_pump *p, struct pump_peer *peer,
                       const struct hlg_hello *hello, struct hlg_refusal *why)
{
    uint32_t lane = 0;
    uint32_t group = 0;

    clear_places(p, peer->places);
    for (uint32_t i = 0; i < hello->place_count; i++) {
        const struct hlg_place *place = &hello->places[i];
        if (!place_known(&hello->layout, peer->lanes, place)) {
            return incomplete(why, place->lane, place->group);
        }
        uint32_t key = find_key(peer, place->lane, place->region);
        if (key == HLG_NONE || !place_fits(&hello->layout, place, peer->keys[key].bytes)) {
            return incomplete(why, place->lane, place->region);
        }
        peer->places[place_index(p, place->lane, place->group, place->layer, place->plane)] =
            (struct pump_place){.region = key,
                                .offset = place->offset,
                                .stride = place->stride,
                                .room = peer->keys[key].bytes - place->offset};
    }
    if (find_gap(p, &hello->layout, peer->lanes, peer->places, &lane, &group)) {
        return incomplete(why, lane, group);
    }
    return 0;
}

/* Whether our table has room for the peer's numbering: a plan needs as much. */
static bool same_shape(const struct hlg_pump *p, const struct hlg_layout *layout)
{
    if (layout->layers != p->layout.layers || layout->group_count != p->layout.group_count) {
        return false;
    }
    for (uint32_t g = 0; g < layout->group_count; g++) {
        if (layout->groups[g].planes > p->planes ||
            layout->groups[g].kind != p->layout.groups[g].kind) {
            return false;
        }
    }
    return true;
}

int pump_table_peer(struct hlg_pump *p, struct pump_peer *peer, const struct hlg_hello *hello,
                    struct hlg_refusal *why)
{
    struct hlg_refusal unsound = {0};

    peer->has_table = false;
    if (memcmp(hello->provider, p->caps.provider, sizeof hello->provider) != 0) {
        uint32_t words[4] = {0};
        _Static_assert(sizeof words == sizeof p->caps.provider, "a name fits a to d");
        for (uint32_t i = 0; i < sizeof words; i++) {
            words[i / 4] |= (uint32_t)(uint8_t)p->caps.provider[i] << (8 * (i % 4));
        }
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_PROVIDER,
                                    .a = words[0],
                                    .b = words[1],
                                    .c = words[2],
                                    .d = words[3]};
        return -HLG_EPLAN;
    }
    /* The machine has the better words for layouts that cannot work. */
    if (hlg_layout_check(&hello->layout, &unsound) != 0 || !same_shape(p, &hello->layout)) {
        return 0;
    }
    int error = take_addresses(p, peer, hello, why);
    /* Nothing is written to a prefiller, so its keys and places are of no use. */
    if (error == 0 && p->role == HLG_ROLE_PREFILL && hello->role == HLG_ROLE_DECODE) {
        error = take_keys(p, peer, hello, why);
        if (error == 0) {
            error = take_places(p, peer, hello, why);
        }
    }
    peer->has_table = error == 0;
    return error;
}

/* Bytes from the first of a page that a slice touches. */
static uint64_t slice_extent(uint32_t offset, uint32_t stride, const struct hlg_slice *slice)
{
    return (uint64_t)offset + (uint64_t)(slice->count - 1) * stride + slice->bytes;
}

/* The last page of a place of which `extent` bytes lie in its region, or HLG_NONE; no more than INT32_MAX. */
static uint32_t last_page(const struct pump_place *place, uint64_t extent)
{
    if (extent > place->room) {
        return HLG_NONE;
    }
    const uint64_t last = /* floor: the one after it ends beyond */
        place->stride == 0 ? INT32_MAX : (place->room - extent) / place->stride;
    return (uint32_t)hlg_min_u64(last, INT32_MAX);
}

static bool pages_inside(const struct hlg_action_write *action, const struct pump_place *source,
                         const struct pump_place *target)
{
    const struct hlg_slice *slice = action->slice;
    const uint32_t source_last =
        last_page(source, slice_extent(slice->source_offset, slice->source_stride, slice));
    const uint32_t target_last =
        last_page(target, slice_extent(slice->target_offset, slice->target_stride, slice));
    const uint32_t begin = action->piece_begin / slice->count; /* floor: the page that holds it */
    const uint32_t limit = hlg_div_ceil(action->piece_limit, slice->count);
    const pump_row source_lasts = {source_last, source_last, source_last, source_last};
    const pump_row target_lasts = {target_last, target_last, target_last, target_last};
    pump_row beyonds = {0};
    uint32_t beyond = 0;
    uint32_t i = begin;

    if (source_last == HLG_NONE || target_last == HLG_NONE) {
        return false;
    }
    /* Without a branch and a row at a time. The highest bit of a page, or of what is left to the last one,
       says that it is beyond. */
    for (; i + PUMP_ROW <= limit; i += PUMP_ROW) {
        const pump_row from = pump_row_load(action->source_pages + i);
        const pump_row to = pump_row_load(action->target_pages + i);
        beyonds |= from | (source_lasts - from) | to | (target_lasts - to);
    }
    for (; i < limit; i++) {
        beyond |= action->source_pages[i] | (source_last - action->source_pages[i]);
        beyond |= action->target_pages[i] | (target_last - action->target_pages[i]);
    }
    return (beyond | pump_row_any(beyonds)) <= INT32_MAX;
}

int pump_table_resolve(const struct hlg_pump *p, const struct hlg_action_write *action,
                       struct hlg_paged_write *write)
{
    const struct pump_peer *peer = &p->peers[action->peer];
    const struct hlg_slice *slice = action->slice;

    HLG_ASSERT(action->piece_begin < action->piece_limit);
    HLG_ASSERT(slice->count > 0 &&
               action->piece_limit <= (uint64_t)action->page_count * slice->count);
    if (!peer->has_table || !peer->opened || action->target_lane >= peer->lanes ||
        action->target_rail >= peer->rails) {
        return -HLG_EPEER;
    }
    const struct pump_place *source =
        &p->places[place_index(p, action->lane, slice->group, action->layer, slice->plane)];
    const struct pump_place *target = &peer->places[place_index(
        p, action->target_lane, slice->group, action->layer, slice->plane)];
    if (source->region == HLG_NONE || target->region == HLG_NONE ||
        !pages_inside(action, source, target)) {
        return -HLG_EPROTO;
    }
    const struct hlg_region_key *key = &peer->keys[target->region + action->target_rail];
    uint32_t endpoint = action->lane * p->rails + action->rail;
    uint32_t remotes = p->limits.lanes_max * p->limits.rails_max;
    *write = (struct hlg_paged_write){
        .op = action->op,
        .peer = peer->numbers[endpoint * remotes + action->target_lane * peer->rails +
                              action->target_rail],
        .mem = p->domains[peer->domain].mems[action->rail * p->region_count + source->region],
        .imm = action->imm,
        .local = (uint8_t *)p->regions[source->region].memory.base + source->offset,
        .local_stride = source->stride,
        .remote = key->address + target->offset,
        .remote_key = key->key,
        .remote_stride = target->stride,
        .source_pages = action->source_pages,
        .target_pages = action->target_pages,
        .bytes = slice->bytes,
        .count = slice->count,
        .source_offset = slice->source_offset,
        .target_offset = slice->target_offset,
        .source_stride = slice->source_stride,
        .target_stride = slice->target_stride,
        .piece_begin = action->piece_begin,
        .piece_limit = action->piece_limit};
    return 0;
}

uint64_t pump_table_hello_bytes(struct hlg_pump *p)
{
    struct hlg_message message = {.kind = HLG_MESSAGE_HELLO};
    bool decode = p->role == HLG_ROLE_DECODE;

    for (uint32_t i = 0; i < p->lanes * p->rails; i++) {
        p->own_addresses[i].bytes = HLG_ADDRESS_BYTES_MAX;
    }
    message.hello.layout = p->layout;
    message.hello.addresses = p->own_addresses;
    message.hello.address_count = p->lanes * p->rails;
    message.hello.key_count = decode ? p->region_count * p->rails : 0;
    message.hello.place_count = decode ? p->own_place_count : 0;
    return hlg_wire_bytes(&message);
}

int pump_table_hello(struct hlg_pump *p, const struct pump_peer *peer, struct hlg_hello *hello)
{
    const struct pump_domain *domain = &p->domains[peer->domain];

    memcpy(hello->provider, p->caps.provider, sizeof hello->provider);
    for (uint32_t i = 0; i < p->lanes * p->rails; i++) {
        struct hlg_rail_address *address = &p->own_addresses[i];
        struct hlg_transport *t = domain->endpoints[i].transport;
        *address = (struct hlg_rail_address){.lane = i / p->rails, .rail = i % p->rails};
        int bytes = t->ops->address(t, address->address, HLG_ADDRESS_BYTES_MAX);
        if (bytes <= 0) {
            return bytes == 0 ? -HLG_EIO : bytes;
        }
        address->bytes = (uint32_t)bytes;
    }
    hello->addresses = p->own_addresses;
    hello->address_count = p->lanes * p->rails;
    if (p->role == HLG_ROLE_PREFILL) {
        return 0;
    }
    for (uint32_t i = 0; i < p->region_count * p->rails; i++) {
        uint32_t region = i / p->rails;
        uint32_t rail = i % p->rails;
        uint32_t lane = p->regions[region].lane;
        struct hlg_transport *t = domain->endpoints[lane * p->rails + rail].transport;
        struct hlg_mem_export export = {0};
        int error = t->ops->mem_export(t, domain->mems[rail * p->region_count + region], &export);
        HLG_ASSERT(error == 0); /* what is registered can be exported */
        p->own_keys[i] = (struct hlg_region_key){.lane = lane,
                                                 .region = region - p->region_begin[lane],
                                                 .rail = rail,
                                                 .address = export.address,
                                                 .bytes = p->regions[region].memory.bytes,
                                                 .key = export.key};
    }
    hello->keys = p->own_keys;
    hello->key_count = p->region_count * p->rails;
    hello->places = p->own_places;
    hello->place_count = p->own_place_count;
    return 0;
}
