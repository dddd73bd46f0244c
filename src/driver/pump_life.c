/* Making and unmaking: all memory is taken here once, from the limits. */
#include "pump_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *take(size_t count, size_t bytes)
{
    return calloc(count > 0 ? count : 1, bytes);
}

/* The tables of the first peer and the first domain are those of all. */
static void give_peers_and_domains(struct hlg_pump *p)
{
    if (p->domains != NULL) {
        free(p->domains[0].endpoints);
        free(p->domains[0].mems);
    }
    if (p->peers != NULL) {
        free(p->peers[0].addresses);
        free(p->peers[0].keys);
        free(p->peers[0].places);
        free(p->peers[0].numbers);
    }
}

static void give_memory(struct hlg_pump *p)
{
    give_peers_and_domains(p);
    free(p->domains);
    free(p->peers);
    free(p->looks);
    free(p->look_peers);
    free(p->regions);
    free(p->own_places);
    free(p->places);
    free(p->own_addresses);
    free(p->own_keys);
    free(p->frame);
    free(p->scratch);
    free(p->room);
    free(p->flush.queue);
    free(p->machine.memory);
    free(p);
}

/* One array for all peers: what most of them never use is then never touched. */
static bool take_peers(struct hlg_pump *p)
{
    size_t remotes = (size_t)p->limits.lanes_max * p->limits.rails_max;
    size_t numbers = (size_t)p->lanes * p->rails * remotes;
    size_t count = p->limits.peers_max;
    bool prefill = p->role == HLG_ROLE_PREFILL;
    struct pump_peer *first;

    p->peers = take(count, sizeof *p->peers);
    p->looks = take(count, sizeof *p->looks);
    p->look_peers = take(count, sizeof *p->look_peers);
    if (p->peers == NULL || p->looks == NULL || p->look_peers == NULL) {
        return false;
    }
    first = p->peers;
    first->addresses = take(count * remotes, sizeof *first->addresses);
    first->keys = take(prefill ? count * p->keys_max : 0, sizeof *first->keys);
    first->places = take(prefill ? count * p->places_max : 0, sizeof *first->places);
    first->numbers = take(count * numbers, sizeof *first->numbers);
    if (first->addresses == NULL || first->keys == NULL || first->places == NULL ||
        first->numbers == NULL) {
        return false;
    }
    for (size_t i = 1; i < count; i++) {
        struct pump_peer *peer = &p->peers[i];
        peer->addresses = first->addresses + i * remotes;
        peer->keys = first->keys + (prefill ? i * p->keys_max : 0);
        peer->places = first->places + (prefill ? i * p->places_max : 0);
        peer->numbers = first->numbers + i * numbers;
    }
    return true;
}

static bool take_domains(struct hlg_pump *p)
{
    size_t endpoints = (size_t)p->lanes * p->rails;
    size_t mems = (size_t)p->rails * p->region_count;
    struct pump_domain *first;

    p->domains = take(p->domain_count, sizeof *p->domains);
    if (p->domains == NULL) {
        return false;
    }
    first = p->domains;
    first->endpoints = take(p->domain_count * endpoints, sizeof *first->endpoints);
    first->mems = take(p->domain_count * mems, sizeof *first->mems);
    if (first->endpoints == NULL || first->mems == NULL) {
        return false;
    }
    for (size_t i = 1; i < p->domain_count; i++) {
        p->domains[i].endpoints = first->endpoints + i * endpoints;
        p->domains[i].mems = first->mems + i * mems;
    }
    return true;
}

static bool take_memory(struct hlg_pump *p, const struct hlg_pump_config *config)
{
    size_t endpoints = (size_t)p->lanes * p->rails;

    p->scratch_bytes = hlg_wire_scratch_bytes(&p->limits);
    p->regions = take(p->region_count, sizeof *p->regions);
    p->own_places = take(config->place_count, sizeof *p->own_places);
    p->places = take(p->places_max, sizeof *p->places);
    p->own_addresses = take(endpoints, sizeof *p->own_addresses);
    p->own_keys = take((size_t)p->region_count * p->rails, sizeof *p->own_keys);
    p->frame = take(p->limits.message_bytes_max, 1);
    p->scratch = take(p->scratch_bytes, 1);
    p->room = take(endpoints, sizeof *p->room);
    p->flush.capacity = p->limits.requests_max;
    p->flush.queue = take(p->flusher != NULL ? p->flush.capacity : 0, sizeof *p->flush.queue);
    return p->regions != NULL && p->own_places != NULL && p->places != NULL &&
           p->own_addresses != NULL && p->own_keys != NULL && p->frame != NULL &&
           p->scratch != NULL && p->room != NULL && p->flush.queue != NULL && take_domains(p) &&
           take_peers(p);
}

/* Regions come in order of lane; region_begin finds each lane's. */
static bool take_regions(struct hlg_pump *p, const struct hlg_pump_config *config)
{
    uint32_t lane = 0;

    for (uint32_t i = 0; i < config->region_count; i++) {
        const struct hlg_pump_region *region = &config->regions[i];
        if (region->lane >= p->lanes || region->lane < lane || region->memory.base == NULL ||
            region->memory.bytes == 0) {
            return false;
        }
        while (lane < region->lane) {
            p->region_begin[++lane] = i;
        }
        p->regions[i] = *region;
    }
    while (lane < p->lanes) {
        p->region_begin[++lane] = config->region_count;
    }
    return true;
}

static void fill_numbers(struct hlg_pump *p, const struct hlg_pump_config *config)
{
    bool prefill = config->role == HLG_ROLE_PREFILL;

    p->role = config->role;
    p->limits = prefill ? config->prefill.limits : config->decode.limits;
    p->layout = prefill ? config->prefill.layout : config->decode.layout;
    p->rails = prefill ? config->prefill.rails : config->decode.rails;
    p->fabric = config->fabric;
    p->flusher = config->flusher != NULL ? config->flusher : config->fabric->flusher;
    p->notice = config->notice;
    p->note = config->note;
    p->context = config->context;
    p->trace = config->trace;
    p->region_count = config->region_count;
    p->own_place_count = config->place_count;
    p->fabric->query(p->fabric, &p->caps);
    p->lanes = hlg_layout_lanes(&p->layout);
    for (uint32_t g = 0; g < p->layout.group_count; g++) {
        p->planes = hlg_max_u32(p->planes, p->layout.groups[g].planes);
    }
    p->domain_count = hlg_max_u32(1, hlg_min_u32(p->caps.domains_max, p->limits.peers_max));
    uint64_t places =
        (uint64_t)p->limits.lanes_max * p->layout.group_count * (p->layout.layers + 1) * p->planes;
    p->places_max = hlg_u32(places);
    p->keys_max = hlg_min_u32(p->limits.lanes_max * p->limits.rails_max * PUMP_REGIONS_MAX,
                              p->limits.message_bytes_max / PUMP_KEY_WIRE_BYTES_MIN);
    /* All peers of one domain fill the same completion queues, so they share the depth (I8). The
       machine must know, since it says when credit is due. */
    uint32_t sharers = hlg_max_u32(1, hlg_div_ceil(p->limits.peers_max, p->domain_count));
    p->limits.window_pieces =
        hlg_min_u32(p->limits.window_pieces, hlg_max_u32(2, p->caps.cq_depth / sharers));
}

static const char *find_fault(const struct hlg_pump_config *config)
{
    bool prefill = config->role == HLG_ROLE_PREFILL;
    struct hlg_refusal why = {0};

    if (config->role != HLG_ROLE_PREFILL && config->role != HLG_ROLE_DECODE) {
        return "role is neither prefill nor decode";
    }
    const struct hlg_layout *layout = prefill ? &config->prefill.layout : &config->decode.layout;
    const struct hlg_limits *limits = prefill ? &config->prefill.limits : &config->decode.limits;
    uint32_t rails = prefill ? config->prefill.rails : config->decode.rails;
    if (hlg_layout_check(layout, &why) != 0) {
        return "the layout is unsound";
    }
    if (config->fabric == NULL || config->notice == NULL) {
        return "no fabric or no notice callback is given";
    }
    if (limits->peers_max == 0 || limits->lanes_max == 0 || limits->rails_max == 0 ||
        limits->lanes_max > HLG_RANKS_MAX || limits->rails_max > HLG_RAILS_MAX ||
        hlg_layout_lanes(layout) > limits->lanes_max) {
        return "more lanes than limits.lanes_max, or a limit is 0 or too large";
    }
    if (rails == 0 || rails > limits->rails_max || rails > config->fabric->rails) {
        return "rails is 0 or above limits.rails_max or the fabric's";
    }
    if (limits->message_bytes_max < HLG_WIRE_HEADER_BYTES ||
        limits->message_bytes_max > HLG_MESSAGE_BYTES_MAX) {
        return "limits.message_bytes_max is out of range";
    }
    if (limits->ops_max > 1u << PUMP_OP_BITS) {
        return "limits.ops_max is out of range";
    }
    if (config->region_count > PUMP_REGIONS_MAX) {
        return "too many regions";
    }
    return NULL;
}

static int fail(char *error, size_t error_bytes, int code, const char *sentence)
{
    if (error_bytes > 0) {
        (void)snprintf(error, error_bytes, "%s", sentence); /* cut where it does not fit */
    }
    return code;
}

/* Whether the fabric can move each region; what that takes is taken now. */
static int prepare_regions(struct hlg_pump *p, char *error, size_t error_bytes)
{
    for (uint32_t i = 0; i < p->region_count; i++) {
        const struct hlg_mem_region *region = &p->regions[i].memory;
        if (p->fabric->prepare != NULL) {
            const int code = p->fabric->prepare(p->fabric, region, error, error_bytes);
            if (code != 0) {
                return code;
            }
        } else if (region->kind != HLG_MEMORY_HOST && !p->caps.device_memory) {
            if (error_bytes > 0) {
                (void)snprintf(
                    error, error_bytes,
                    "lane %u: provider %.16s takes no memory of a GPU: stage it through "
                    "host memory (hlg_staged_create(), which costs as much pinned memory), "
                    "or use efa or verbs;ofi_rxm of a libfabric built with CUDA",
                    p->regions[i].lane, p->caps.provider);
            }
            return -HLG_EUNSUPPORTED;
        }
    }
    return 0;
}

/*
 * Whether the fabric takes the longest piece that this node may write: else each write would end its session. A decoder
 * that holds fewer heads would get shorter ones; who will connect is not known yet, and a refusal at start is worth more
 * than one at each connect.
 */
static int check_pieces(const struct hlg_pump *p, char *error, size_t error_bytes)
{
    for (uint32_t g = 0; p->role == HLG_ROLE_PREFILL && g < p->layout.group_count; g++) {
        const uint32_t most =
            hlg_min_u32(p->layout.piece_bytes_max, hlg_layout_page_bytes(&p->layout, g));
        if (most <= p->caps.piece_bytes_max) {
            continue;
        }
        if (error_bytes > 0) {
            (void)snprintf(error, error_bytes,
                           "group %u has pieces of up to %u bytes and provider %.16s takes %llu at "
                           "most: lower the layout's piece_bytes_max to that, or raise slot_bytes "
                           "where memory is staged",
                           g, most, p->caps.provider, (unsigned long long)p->caps.piece_bytes_max);
        }
        return -HLG_EINVAL;
    }
    return 0;
}

/* The machine's config, with what the pump and the transport know and the caller need not. */
static struct hlg_pump_config complete(const struct hlg_pump *p,
                                       const struct hlg_pump_config *given)
{
    struct hlg_pump_config config = *given;

    if (config.role == HLG_ROLE_PREFILL) {
        config.prefill.limits = p->limits;
        config.prefill.acknowledged = !p->caps.placed;
    } else {
        config.decode.limits = p->limits;
        config.decode.acknowledged = !p->caps.placed;
        config.decode.flush = config.decode.flush || p->flusher != NULL;
    }
    return config;
}

int hlg_pump_create(const struct hlg_pump_config *config, struct hlg_pump **pump, char *error,
                    size_t error_bytes)
{
    const char *fault = find_fault(config);

    if (fault != NULL) {
        return fail(error, error_bytes, -HLG_EINVAL, fault);
    }
    struct hlg_pump *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    fill_numbers(p, config);
    if (!take_memory(p, config)) {
        give_memory(p);
        return fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    if (!take_regions(p, config)) {
        give_memory(p);
        return fail(error, error_bytes, -HLG_EINVAL, "regions are empty or not in order of lane");
    }
    int code = check_pieces(p, error, error_bytes);
    if (code == 0) {
        code = prepare_regions(p, error, error_bytes);
    }
    if (code != 0) {
        give_memory(p);
        return code;
    }
    if (config->place_count > 0) {
        memcpy(p->own_places, config->places, config->place_count * sizeof *config->places);
    }
    if (pump_table_own(p, config) != 0) {
        give_memory(p);
        return fail(error, error_bytes, -HLG_EINVAL,
                    "places are missing, unknown or reach beyond their region");
    }
    if (pump_table_hello_bytes(p) > p->limits.message_bytes_max) {
        give_memory(p);
        return fail(error, error_bytes, -HLG_EINVAL,
                    "limits.message_bytes_max is too small for this node's own HELLO: raise it, or "
                    "have fewer regions, places or rails");
    }
    const struct hlg_pump_config machine = complete(p, config);
    code = pump_machine_init(&p->machine, &machine);
    if (code != 0) {
        give_memory(p);
        return fail(error, error_bytes, code,
                    code == -HLG_ENOMEM ? "out of memory" : "the machine refuses the limits");
    }
    if (p->trace != NULL) {
        pump_machine_trace(p->trace, &machine);
    }
    *pump = p;
    return 0;
}

void hlg_pump_destroy(struct hlg_pump *p)
{
    static const struct hlg_refusal orderly = {0};

    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < p->peers_used; i++) {
        struct pump_peer *peer = &p->peers[i];
        if (peer->channel != NULL) {
            pump_session_bye(p, i, &orderly);
            peer->channel->ops->close(peer->channel);
        }
    }
    for (uint32_t i = 0; i < p->domain_count; i++) {
        pump_domain_close(p, i);
    }
    pump_flush_drain(p);
    give_memory(p);
}
