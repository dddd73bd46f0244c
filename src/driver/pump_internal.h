/*
 * What the files of the pump share. pump.c turns the crank; pump_life.c takes and gives memory;
 * pump_machine.c is the one place that knows which of the two machines runs; pump_domain.c owns
 * endpoints, pump_session.c channels and greetings, pump_table.c the addresses behind pages,
 * pump_flush.c what makes landed bytes visible to a device.
 */
#ifndef HALAGE_DRIVER_PUMP_INTERNAL_H
#define HALAGE_DRIVER_PUMP_INTERNAL_H

#include <halage/pump.h>
#include <halage/wire.h>

#include <poll.h>
#include <string.h>

/* Keys are indexed by place, so that their number is bounded by what a HELLO can carry alone. */
#define PUMP_KEY_WIRE_BYTES_MIN 32u
#define PUMP_REGIONS_MAX        4096u /* of one node, all lanes */

struct pump_machine {
    void *memory;
    int (*handle)(void *machine, const struct hlg_event *event);
    int (*next)(void *machine, uint32_t lane, unsigned kinds, struct hlg_action *action);
    hlg_time (*deadline)(const void *machine);
    int (*check)(const void *machine);
    uint32_t (*open)(const void *machine);
    bool (*awaits)(const void *machine);
    hlg_handle (*submitted)(const void *machine);
    void (*stats)(const void *machine, struct hlg_pump_stats *stats); /* adds its own */
};

/* Where the pages of one (lane, group, layer, plane) lie. */
struct pump_place {
    uint32_t region; /* ours: index into regions; a peer's: index of its key for rail 0; HLG_NONE */
    uint64_t offset; /* from the region's first byte */
    uint64_t stride;
    uint64_t room; /* bytes of the region from offset on */
};

/* What is known of the pages of a write that is offered in parts, so that no part looks at them again. */
struct pump_stretch {
    uint32_t limit; /* up to this one; 0: nothing */
    uint32_t
        weight; /* > 0: each follows the one before, and 2^weight may go at once; 0: none does */
};

struct pump_endpoint {
    struct hlg_transport *transport; /* NULL: not open */
    bool refused;                    /* took less than it was offered since the last ROOM */
    uint32_t resolved_limit;         /* pieces of `write` whose pages were looked at; 0: none */
    struct hlg_paged_write write;    /* resolved last */
    struct pump_stretch stretch;     /* of its pages */
};

struct pump_domain {
    struct pump_endpoint *endpoints; /* [lanes * rails] */
    hlg_mem *mems;                   /* [rails][regions], of the endpoint of the region's lane */
    uint32_t users;                  /* peers that live in it */
    uint32_t opening;                /* counts its openings, so that a peer of an older one shows */
    bool open;
    int32_t close_status; /* of the last closing */
};

enum pump_peer_state {
    PUMP_PEER_FREE = 0,
    PUMP_PEER_LIVE,
    PUMP_PEER_ENDED, /* the machine was told, or asked; no frame is read any more */
};

struct pump_peer {
    enum pump_peer_state state;
    struct hlg_channel *channel;
    uint32_t domain;
    uint32_t opening; /* of the domain */
    bool send_full;
    bool unread;    /* its channel was not read yet, or may hold more frames */
    bool opened;    /* `numbers` are filled in */
    bool has_table; /* places are known: the peer's layout fits ours so far */
    uint32_t lanes; /* of the peer, from its HELLO */
    uint32_t rails;
    uint32_t key_count;
    struct hlg_rail_address *addresses; /* [lanes_max * rails_max], in order of lane, rail */
    struct hlg_region_key *keys;        /* [keys_max], in order of lane, region, rail; prefill */
    struct pump_place *places;          /* [places_max] by pump_place_index; prefill */
    uint32_t *numbers; /* transports' own: [our lanes * rails][lanes_max * rails_max] */
};

/* FLUSH actions that the fabric's flusher carries out. */
struct pump_flush {
    hlg_handle *queue; /* [capacity] a ring: asked for, not yet all told to the flusher */
    uint32_t capacity; /* requests_max; 0: no flusher */
    uint32_t first;
    uint32_t count;
    uint32_t place;     /* of the first request: index of the place that is told now */
    uint32_t page;      /* and the page of its list */
    uint32_t under_way; /* told and not yet answered */
};

struct hlg_pump {
    struct pump_machine machine;
    enum hlg_role role;
    struct hlg_limits limits;
    struct hlg_layout layout;
    struct hlg_fabric *fabric;
    struct hlg_transport_caps caps;
    uint32_t lanes;
    uint32_t rails;
    uint32_t planes; /* of the group that has most */
    uint32_t places_max;
    uint32_t keys_max;
    uint32_t domain_count;
    struct hlg_pump_region *regions; /* [region_count] */
    uint32_t region_count;
    uint32_t
        region_begin[HLG_RANKS_MAX + 1]; /* of lane l: [region_begin[l], region_begin[l + 1]) */
    struct hlg_place *own_places;        /* [own_place_count], as given, for HELLO */
    uint32_t own_place_count;
    struct pump_place *places; /* [places_max], ours */
    struct pump_domain *domains;
    struct pump_peer *peers; /* [limits.peers_max] */
    struct pollfd
        *looks; /* [limits.peers_max] descriptors of channels that are looked at together */
    uint32_t *look_peers; /* [limits.peers_max] whose they are */
    uint32_t peers_used;  /* one more than the highest in use: rounds look no further */
    struct hlg_rail_address *own_addresses; /* [lanes * rails], filled for each HELLO */
    struct hlg_region_key *own_keys;        /* [region_count * rails] */
    uint8_t *frame;                         /* [limits.message_bytes_max] */
    void *scratch;                          /* [scratch_bytes] of hlg_wire_decode() */
    uint64_t scratch_bytes;
    struct hlg_message message; /* the last one received; its arrays lie in scratch */
    bool *room;                 /* [lanes * rails], while ROOM is gathered */
    bool any_room;
    bool any_unread;             /* of the peers */
    struct hlg_flusher *flusher; /* NULL: what landed is visible */
    struct pump_flush flush;
    uint64_t events;  /* that the machine was given */
    uint64_t carried; /* of these when it had no action left that belongs to no lane */
    uint64_t written[HLG_RANKS_MAX]; /* and when a lane had no write left */
    bool busy;                       /* endpoints had something in the last step */
    hlg_time channels_due;
    hlg_time linger; /* endpoints are polled until then though nothing is open */
    void (*notice)(void *context, const struct hlg_notice *notice);
    void (*note)(void *context, const struct hlg_note *note);
    void *context;
    struct hlg_trace *trace; /* NULL: none */
    struct hlg_pump_stats stats;
};

/* pump_machine.c: makes the machine of the config's role. Returns 0, -HLG_EINVAL or -HLG_ENOMEM. */
int pump_machine_init(struct pump_machine *machine, const struct hlg_pump_config *config);
/* Begins the trace of the machine that init makes of this. */
void pump_machine_trace(struct hlg_trace *trace, const struct hlg_pump_config *config);

/* pump.c: hand an event to the machine, with the time; pull from it. */
int pump_feed(struct hlg_pump *p, struct hlg_event *event);
int pump_pull(struct hlg_pump *p, uint32_t lane, unsigned kinds, struct hlg_action *action);
void pump_feed_peer(struct hlg_pump *p, enum hlg_event_kind kind, uint32_t peer, int32_t status);
/* Carry out all actions that belong to no lane. */
void pump_carry_node(struct hlg_pump *p);

/* pump_domain.c */
uint32_t pump_domain_choose(const struct hlg_pump *p);
int pump_domain_open(struct hlg_pump *p, uint32_t domain);
/* Closes the endpoints; what they still report becomes events. Idempotent. */
void pump_domain_close(struct hlg_pump *p, uint32_t domain);
/* Polls every open endpoint, then says ROOM. Returns the events that there were. */
int pump_domains_poll(struct hlg_pump *p);
/* Polls an open endpoint, by the tag of its transport. */
int pump_domain_poll(struct hlg_pump *p, uint32_t number);
void pump_domains_say_room(struct hlg_pump *p);
/* Inserts all the peer's addresses in all our endpoints of its domain. */
int pump_domain_peer_open(struct hlg_pump *p, struct pump_peer *peer);

/* pump_flush.c: only where the fabric has a flusher, of a decode pump. */
void pump_flush_add(struct hlg_pump *p, hlg_handle request);
/* Returns how many things it did. */
int pump_flush_step(struct hlg_pump *p);
bool pump_flush_busy(const struct hlg_pump *p);
/* Wait until no copy is under way any more; nothing is fed to the machine. */
void pump_flush_drain(struct hlg_pump *p);

/* pump_session.c */
int pump_sessions_read(struct hlg_pump *p);
/* Reads one peer's channel. */
int pump_session_read(struct hlg_pump *p, uint32_t peer);
/* Returns 1 when the message went, 0 when there is no room, or an error when the session is over. */
int pump_session_send(struct hlg_pump *p, uint32_t peer, const struct hlg_message *message);
void pump_session_end(struct hlg_pump *p, uint32_t peer, int32_t status);
void pump_session_bye(struct hlg_pump *p, uint32_t peer, const struct hlg_refusal *why);
/* `fence`: its domain must be closed, though others use it. */
void pump_session_close(struct hlg_pump *p, uint32_t peer, bool fence);

/* pump_merge.c: offers a paged write, with runs of pages that follow one another merged up to so many bytes.
 * Returns pieces, as a transport's write does. What is reported of it has the weight above PUMP_OP_BITS of its
 * operation, and counts in runs of 2^weight pieces. `stretch` is 0 for the first offer of a write and kept for those
 * that go on with it. Cost: some 3 instructions a page for looking, once. */
#define PUMP_OP_BITS 28u
int64_t pump_merge_write(struct hlg_transport *t, const struct hlg_paged_write *w,
                         uint64_t merge_bytes_max, struct pump_stretch *stretch);

/* pump_table.c */
int pump_table_own(struct hlg_pump *p, const struct hlg_pump_config *config);
/* Checks and copies what a HELLO says of addresses, keys and places. -HLG_EPLAN: *why says. */
int pump_table_peer(struct hlg_pump *p, struct pump_peer *peer, const struct hlg_hello *hello,
                    struct hlg_refusal *why);
/* Fills in what the transport is to write. -HLG_EPROTO when a byte would lie outside a region. */
int pump_table_resolve(const struct hlg_pump *p, const struct hlg_action_write *action,
                       struct hlg_paged_write *write);
/* Most bytes that the frame of our HELLO can have. */
uint64_t pump_table_hello_bytes(struct hlg_pump *p);
/* Adds what only the driver knows: provider, addresses, keys and places. */
int pump_table_hello(struct hlg_pump *p, const struct pump_peer *peer, struct hlg_hello *hello);

/* Page numbers, looked at PUMP_ROW at a time: each page of each write is. */
#define PUMP_ROW 4u
typedef uint32_t pump_row __attribute__((vector_size(PUMP_ROW * sizeof(uint32_t))));

static inline pump_row pump_row_load(const uint32_t *pages)
{
    pump_row row;

    memcpy(&row, pages, sizeof row);
    return row;
}

/* The bits that any of them has. */
static inline uint32_t pump_row_any(pump_row row)
{
    return row[0] | row[1] | row[2] | row[3];
}

static inline struct pump_endpoint *pump_endpoint(const struct hlg_pump *p, uint32_t domain,
                                                  uint32_t lane, uint32_t rail)
{
    HLG_ASSERT(domain < p->domain_count && lane < p->lanes && rail < p->rails);
    return &p->domains[domain].endpoints[lane * p->rails + rail];
}

#endif
