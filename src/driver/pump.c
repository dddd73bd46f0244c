#include "pump_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITES_PER_STEP_MAX 256u
#define ACTIONS_PER_STEP_MAX \
    (1u << 24) /* more than any table holds: a machine that loops is broken */
/* A target may owe its peer the acknowledgement of the last bytes when its own request is over;
   providers with manual progress send it while polled. */
#define LINGER_NS (20 * HLG_NS_PER_MS)

hlg_time hlg_pump_now(const struct hlg_pump *p)
{
    return p->fabric->now(p->fabric);
}

int pump_feed(struct hlg_pump *p, struct hlg_event *event)
{
    event->now = hlg_pump_now(p);
    return p->machine.handle(p->machine.memory, event);
}

void pump_feed_peer(struct hlg_pump *p, enum hlg_event_kind kind, uint32_t peer, int32_t status)
{
    struct hlg_event event = {
        .kind = (uint32_t)kind,
        .peer = {.peer = peer, .domain = p->peers[peer].domain, .status = status}};
    int error = pump_feed(p, &event);

    HLG_ASSERT(error == 0); /* the driver knows which peers there are */
}

/* ---- Making ---- */

static void *take(size_t count, size_t bytes)
{
    return calloc(count > 0 ? count : 1, bytes);
}

static void give_peers_and_domains(struct hlg_pump *p)
{
    for (uint32_t i = 0; p->domains != NULL && i < p->domain_count; i++) {
        free(p->domains[i].endpoints);
        free(p->domains[i].mems);
    }
    for (uint32_t i = 0; p->peers != NULL && i < p->limits.peers_max; i++) {
        free(p->peers[i].addresses);
        free(p->peers[i].keys);
        free(p->peers[i].places);
        free(p->peers[i].numbers);
    }
}

static void give_memory(struct hlg_pump *p)
{
    give_peers_and_domains(p);
    free(p->domains);
    free(p->peers);
    free(p->regions);
    free(p->own_places);
    free(p->places);
    free(p->own_addresses);
    free(p->own_keys);
    free(p->frame);
    free(p->scratch);
    free(p->room);
    free(p->machine.memory);
    free(p);
}

static bool take_peers_and_domains(struct hlg_pump *p)
{
    size_t endpoints = (size_t)p->lanes * p->rails;
    size_t remotes = (size_t)p->limits.lanes_max * p->limits.rails_max;
    bool prefill = p->role == HLG_ROLE_PREFILL;
    bool all = true;

    p->domains = take(p->domain_count, sizeof *p->domains);
    p->peers = take(p->limits.peers_max, sizeof *p->peers);
    if (p->domains == NULL || p->peers == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < p->domain_count; i++) {
        struct pump_domain *domain = &p->domains[i];
        domain->endpoints = take(endpoints, sizeof *domain->endpoints);
        domain->mems = take((size_t)p->rails * p->region_count, sizeof *domain->mems);
        all = all && domain->endpoints != NULL && domain->mems != NULL;
    }
    for (uint32_t i = 0; i < p->limits.peers_max; i++) {
        struct pump_peer *peer = &p->peers[i];
        peer->addresses = take(remotes, sizeof *peer->addresses);
        peer->keys = take(prefill ? p->keys_max : 0, sizeof *peer->keys);
        peer->places = take(prefill ? p->places_max : 0, sizeof *peer->places);
        peer->numbers = take(endpoints * remotes, sizeof *peer->numbers);
        all = all && peer->addresses != NULL && peer->keys != NULL && peer->places != NULL &&
              peer->numbers != NULL;
    }
    return all;
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
    return p->regions != NULL && p->own_places != NULL && p->places != NULL &&
           p->own_addresses != NULL && p->own_keys != NULL && p->frame != NULL &&
           p->scratch != NULL && p->room != NULL && take_peers_and_domains(p);
}

/* Regions come in order of lane; region_begin finds each lane's. */
static bool take_regions(struct hlg_pump *p, const struct hlg_pump_config *config)
{
    uint32_t lane = 0;

    for (uint32_t i = 0; i < config->region_count; i++) {
        const struct hlg_pump_region *region = &config->regions[i];
        if (region->lane >= p->lanes || region->lane < lane || region->base == NULL ||
            region->bytes == 0) {
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
    p->notice = config->notice;
    p->note = config->note;
    p->context = config->context;
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
    uint32_t sharers = hlg_div_ceil(p->limits.peers_max, p->domain_count);
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
    if (config->place_count > 0) {
        memcpy(p->own_places, config->places, config->place_count * sizeof *config->places);
    }
    if (pump_table_own(p, config) != 0) {
        give_memory(p);
        return fail(error, error_bytes, -HLG_EINVAL,
                    "places are missing, unknown or reach beyond their region");
    }
    int code = pump_machine_init(&p->machine, config, &p->limits);
    if (code != 0) {
        give_memory(p);
        return fail(error, error_bytes, code,
                    code == -HLG_ENOMEM ? "out of memory" : "the machine refuses the limits");
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
    for (uint32_t i = 0; i < p->limits.peers_max; i++) {
        struct pump_peer *peer = &p->peers[i];
        if (peer->channel != NULL) {
            pump_session_bye(p, i, &orderly);
            peer->channel->ops->close(peer->channel);
        }
    }
    for (uint32_t i = 0; i < p->domain_count; i++) {
        pump_domain_close(p, i);
    }
    give_memory(p);
}

static void refuse_channel(struct hlg_pump *p, struct hlg_channel *channel,
                           const struct hlg_refusal *why)
{
    struct hlg_message bye = {.kind = HLG_MESSAGE_BYE, .bye = {.why = *why}};
    int64_t bytes = hlg_wire_encode(&bye, p->frame, p->limits.message_bytes_max);

    if (bytes > 0) {
        (void)channel->ops->send(channel, p->frame, hlg_u32((uint64_t)bytes)); /* last words */
    }
    channel->ops->close(channel);
}

int hlg_pump_channel(struct hlg_pump *p, struct hlg_channel *channel, bool dialled,
                     uint32_t *peer_out)
{
    uint32_t index = 0;

    while (index < p->limits.peers_max && p->peers[index].state != PUMP_PEER_FREE) {
        index++;
    }
    if (index == p->limits.peers_max) {
        refuse_channel(p, channel,
                       &(struct hlg_refusal){.code = HLG_REFUSAL_FULL, .a = p->limits.peers_max});
        return -HLG_ELIMIT;
    }
    struct pump_peer *peer = &p->peers[index];
    uint32_t domain = pump_domain_choose(p);
    int error = pump_domain_open(p, domain);
    if (error < 0) {
        refuse_channel(p, channel, &(struct hlg_refusal){.code = HLG_REFUSAL_TRANSPORT});
        return error;
    }
    p->domains[domain].users++;
    peer->state = PUMP_PEER_LIVE;
    peer->channel = channel;
    peer->domain = domain;
    peer->opening = p->domains[domain].opening;
    peer->send_full = false;
    peer->lanes = 0;
    peer->rails = 0;
    peer->key_count = 0;
    *peer_out = index;
    struct hlg_event event = {.kind = HLG_EVENT_CHANNEL_UP,
                              .peer = {.peer = index, .domain = domain, .dialled = dialled}};
    error = pump_feed(p, &event);
    HLG_ASSERT(error == 0); /* the index is unused */
    return 0;
}

const char *hlg_pump_peer_name(const struct hlg_pump *p, uint32_t peer)
{
    HLG_ASSERT(peer < p->limits.peers_max);
    struct hlg_channel *channel = p->peers[peer].channel;
    return channel == NULL ? "" : channel->ops->name(channel);
}

/* ---- Actions ---- */

static void carry_send(struct hlg_pump *p, const struct hlg_action_send *send)
{
    struct pump_peer *peer = &p->peers[send->peer];
    int taken = pump_session_send(p, send->peer, &send->message);

    if (taken == 0) {
        peer->send_full = true;
        pump_feed_peer(p, HLG_EVENT_SEND_REFUSED, send->peer, 0);
    } else if (taken < 0) {
        pump_session_end(p, send->peer, taken);
    }
}

static void carry_open(struct hlg_pump *p, uint32_t index)
{
    struct pump_peer *peer = &p->peers[index];
    int status = peer->has_table ? pump_domain_peer_open(p, peer) : -HLG_EPLAN;

    pump_feed_peer(p, HLG_EVENT_PEER_OPENED, index, status);
}

static void carry_flush(struct hlg_pump *p, hlg_handle request)
{
    /* Host memory: what an immediate announces is visible. */
    struct hlg_event event = {.kind = HLG_EVENT_FLUSHED, .request = request};

    (void)pump_feed(p, &event); /* -HLG_ESTALE when the request ended meanwhile */
}

static void carry_action(struct hlg_pump *p, const struct hlg_action *action)
{
    switch ((enum hlg_action_kind)action->kind) {
    case HLG_ACTION_SEND:
        carry_send(p, &action->send);
        return;
    case HLG_ACTION_PEER_OPEN:
        carry_open(p, action->peer);
        return;
    case HLG_ACTION_PEER_CLOSE:
        pump_session_close(p, action->close.peer);
        return;
    case HLG_ACTION_FLUSH:
        carry_flush(p, action->request);
        return;
    case HLG_ACTION_NOTICE:
        p->notice(p->context, &action->notice);
        return;
    case HLG_ACTION_NOTE:
        if (p->note != NULL) {
            p->note(p->context, &action->note);
        }
        return;
    case HLG_ACTION_WRITE:
        break;
    }
    hlg_unreachable();
}

void pump_carry_node(struct hlg_pump *p)
{
    struct hlg_action action;
    uint32_t count = 0;

    while (p->machine.next(p->machine.memory, 0, HLG_ACTIONS_NODE, &action) != 0) {
        carry_action(p, &action);
        HLG_ASSERT(++count < ACTIONS_PER_STEP_MAX);
    }
}

/* Returns the pieces that were taken. */
static uint32_t carry_write(struct hlg_pump *p, const struct hlg_action_write *action)
{
    const struct pump_peer *peer = &p->peers[action->peer];
    struct hlg_paged_write write;
    int64_t taken = pump_table_resolve(p, action, &write);

    HLG_ASSERT(p->domains[peer->domain].open);
    struct pump_endpoint *endpoint = pump_endpoint(p, peer->domain, action->lane, action->rail);
    if (taken == 0) {
        taken = endpoint->transport->ops->write(endpoint->transport, &write);
    }
    uint32_t offered = action->piece_limit - action->piece_begin;
    uint32_t pieces = taken > 0 ? hlg_u32((uint64_t)taken) : 0;
    HLG_ASSERT(pieces <= offered);
    struct hlg_event event = {.kind = HLG_EVENT_TAKEN,
                              .taken = {.op = action->op, .pieces = pieces}};
    int error = pump_feed(p, &event);
    HLG_ASSERT(error == 0);
    p->stats.pieces_posted += pieces;
    p->stats.bytes_posted += (uint64_t)pieces * action->slice->bytes;
    p->stats.writes_refused += pieces == 0;
    endpoint->refused = endpoint->refused || pieces < offered;
    if (taken < 0) {
        pump_session_end(p, action->peer, (int32_t)taken);
    }
    return pieces;
}

static int carry_writes(struct hlg_pump *p, uint32_t lane)
{
    struct hlg_action action;
    int work = 0;

    for (uint32_t i = 0; i < WRITES_PER_STEP_MAX; i++) {
        if (p->machine.next(p->machine.memory, lane, HLG_ACTION_WRITE, &action) == 0) {
            break;
        }
        work += carry_write(p, &action.write) > 0;
    }
    /* What the writes brought up: a lost peer, a request that is over. */
    pump_carry_node(p);
    return work;
}

/* ---- Turning ---- */

int hlg_pump_event(struct hlg_pump *p, struct hlg_event *event)
{
    int result = pump_feed(p, event);

    pump_carry_node(p);
    return result;
}

hlg_handle hlg_pump_submitted(const struct hlg_pump *p)
{
    return p->machine.submitted(p->machine.memory);
}

int hlg_pump_step(struct hlg_pump *p)
{
    hlg_time now = hlg_pump_now(p);
    bool due = hlg_pump_deadline(p) <= now;
    int work = 0;

    if (due) {
        struct hlg_event event = {.kind = HLG_EVENT_TIME};
        int error = pump_feed(p, &event);
        HLG_ASSERT(error == 0);
        work++;
    }
    pump_carry_node(p);
    work += pump_sessions_read(p);
    if (hlg_pump_open(p) > 0) {
        p->linger = now + LINGER_NS;
    }
    if (due || now < p->linger) {
        work += pump_domains_poll(p);
        pump_carry_node(p);
    }
    for (uint32_t lane = 0; lane < p->lanes; lane++) {
        work += carry_writes(p, lane);
    }
    return work;
}

hlg_time hlg_pump_deadline(const struct hlg_pump *p)
{
    return p->machine.deadline(p->machine.memory);
}

int hlg_pump_wait_fds(struct hlg_pump *p, struct pollfd *fds, uint32_t capacity, bool endpoints)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < p->limits.peers_max; i++) {
        struct pump_peer *peer = &p->peers[i];
        short events = 0;
        if (peer->state != PUMP_PEER_LIVE) {
            continue;
        }
        int fd = peer->channel->ops->wait_fd(peer->channel, &events);
        if (fd < 0 || count == capacity) {
            return -HLG_ELIMIT;
        }
        fds[count++] = (struct pollfd){.fd = fd, .events = events};
    }
    for (uint32_t i = 0; endpoints && i < p->domain_count * p->lanes * p->rails; i++) {
        const struct pump_domain *domain = &p->domains[i / (p->lanes * p->rails)];
        struct hlg_transport *t = domain->endpoints[i % (p->lanes * p->rails)].transport;
        if (t == NULL) {
            continue;
        }
        int fd = t->ops->wait_fd(t);
        if (fd < 0) {
            return fd;
        }
        if (count == capacity) {
            return -HLG_ELIMIT;
        }
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return (int)count;
}

uint32_t hlg_pump_open(const struct hlg_pump *p)
{
    return p->machine.open(p->machine.memory);
}

int hlg_pump_check(const struct hlg_pump *p)
{
    return p->machine.check(p->machine.memory);
}

void hlg_pump_stats(const struct hlg_pump *p, struct hlg_pump_stats *stats)
{
    *stats = p->stats;
    p->machine.stats(p->machine.memory, stats);
}
