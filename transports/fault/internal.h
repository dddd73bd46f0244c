/*
 * What the files of the decorator share.
 *
 * Everything posted below carries an operation number of ours, a flight: below must not take a shadow
 * or a late write for the caller's. A piece that waits is held: alone, with its addresses resolved, so
 * that the caller's page lists are not needed any more. Times here are of the fabric below; what a node
 * is told passes fault_clock().
 */
#ifndef HALAGE_FAULT_INTERNAL_H
#define HALAGE_FAULT_INTERNAL_H

#include "driver/rng.h"
#include "halage/transport/fault.h"

/* Slots are below 65535, so that no request has this immediate. The weight is of what is shadowed. */
#define FAULT_IMM_SHADOW 0xfffffff0u

#define LATE_SLOTS 16u /* late pieces of one endpoint at a time */
#define SEEN_SLOTS 64u /* rows of the memory for stale immediates */

struct rule {
    struct hlg_fault_rule what;
    bool used;
    bool active; /* a fault of a node is under way */
    uint16_t uses;
    uint64_t seen;  /* occasions that fitted */
    uint64_t fired; /* those at which it did something */
    hlg_time until;
    hlg_time clock;   /* what a stalled clock shows */
    hlg_time free_at; /* when a slow rail has moved all that it was given */
};

/* What a rule is held against. Unknown or without meaning: HLG_NONE. */
struct occasion {
    uint32_t node;
    uint32_t peer;
    uint32_t lane;
    uint32_t rail;
    hlg_time now;
};

enum flight_kind {
    FLIGHT_PLAIN = 0,
    FLIGHT_FAIL,   /* will be reported failed, whatever becomes of it */
    FLIGHT_SHADOW, /* a first placement; the caller does not know of it */
    FLIGHT_LATE,   /* reported long ago */
};

/* What one write below took, until all of it is over. */
struct flight {
    bool used;
    uint8_t kind; /* enum flight_kind */
    hlg_op_id op; /* the caller's */
    uint32_t outstanding;
    uint32_t held; /* SHADOW: the piece that waits for its end, or HLG_NONE */
    uint32_t late; /* LATE: the copy in use, else HLG_NONE */
    uint32_t next_free;
};

enum held_state {
    HELD_FREE = 0,
    HELD_WAITING,  /* until it is due and below takes it */
    HELD_SHADOWED, /* its shadow is under way */
};

struct held {
    struct hlg_paged_write w; /* one piece; op is the caller's, pages are a 0 of ours */
    uint8_t state;            /* enum held_state */
    uint8_t kind;             /* of its flight */
    bool duplicate;           /* its shadow is still to be posted */
    bool reorder;             /* goes as soon as something went after `mark` */
    uint64_t mark;
    hlg_time due;
    uint32_t peer; /* row of ours */
    uint32_t late;
    uint32_t next; /* in the list by due, or in the free list */
    uint32_t previous;
};

struct peer {
    bool used;
    bool closing; /* closed by the caller, pieces wait */
    bool stuck;   /* what was due was refused below */
    bool down_told;
    bool dead;      /* so said the one below: nothing waits for it any more */
    uint32_t below; /* its number there */
    uint32_t node;  /* HLG_NONE: not one of this decorator's */
    uint32_t held;
    uint64_t posted;
    hlg_time refused_since; /* by us, with nothing taken since, or HLG_TIME_NEVER */
    hlg_time refused_last;
    hlg_time refused_until;
};

struct report {
    hlg_op_id op;
    uint32_t done;
    uint32_t failed;
    int32_t status;
};

struct imm {
    uint32_t imm;
    uint32_t pieces;
    uint32_t immediates;
    hlg_time due;
};

/* The last immediate of a slot, and one of the generation before. */
struct seen {
    bool known;
    bool has_old;
    uint32_t last;
    uint32_t old;
};

enum endpoint_state {
    ENDPOINT_FREE = 0,
    ENDPOINT_OPEN,
    ENDPOINT_DEAD,   /* its node was killed */
    ENDPOINT_CLOSED, /* still to be polled and freed */
    ENDPOINT_ZOMBIE, /* freed, but its close had failed: still open below */
};

struct endpoint {
    struct hlg_transport transport;
    struct hlg_fault *fault;
    struct hlg_transport *below;
    struct hlg_transport_caps caps;
    uint32_t state;
    uint32_t node;
    uint32_t lane;
    uint32_t rail;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    uint32_t address_bytes; /* 0: nobody asked for it */
    bool refused;           /* some peer may be: its refused_since is looked at */
    uint32_t unpolled;      /* pieces taken and not yet told to be over */
    bool muted;             /* below is open, though our close was called */
    int close_status;
    hlg_time muted_until;
    struct peer *peers;
    struct held *helds;
    uint32_t held_first; /* of the list by due */
    uint32_t held_last;
    uint32_t held_free;
    uint32_t held_count;
    struct flight *flights;
    uint32_t flight_free;
    uint32_t flights_max;
    struct report *reports; /* ring of caps.pieces_max */
    uint32_t report_head;
    uint32_t report_count;
    struct imm *imms; /* [held_max] */
    uint32_t imm_count;
    struct seen seen[SEEN_SLOTS];
    uint8_t *late; /* [LATE_SLOTS][late_bytes_max], registered below, or NULL */
    hlg_mem late_mem;
    uint32_t late_used; /* bits */
};

struct node {
    struct hlg_fabric fabric;
    struct hlg_fault *fault;
    struct hlg_fabric *below; /* NULL: none yet */
    uint32_t index;
    bool alive;
    hlg_time ahead; /* of its clock */
    hlg_time shown; /* the latest that it was told */
};

struct frame {
    uint32_t bytes;
    hlg_time due;
};

struct end {
    struct hlg_channel channel;
    struct hlg_fault *fault;
    struct hlg_channel *below; /* NULL: over */
    bool used;
    bool stuck; /* below had no room for what was due */
    uint32_t node;
    uint32_t peer;
    struct frame *frames; /* ring of frames_max */
    uint32_t frame_head;
    uint32_t frame_count;
    uint8_t *ring; /* of ring_bytes */
    uint32_t ring_head;
    uint32_t ring_used;
    uint8_t *whole; /* a frame whose bytes are not in one stretch */
    char name[96];
};

struct hlg_fault {
    struct hlg_fault_config config;
    struct hlg_rng rng;
    bool begun; /* `began` is known */
    hlg_time began;
    struct rule *rules;
    uint32_t rules_of[HLG_FAULT_KINDS];
    uint32_t node_rules; /* faults of nodes that wait or are under way */
    uint32_t zombies;
    struct node *nodes;
    struct endpoint *endpoints;
    struct end *ends;
    uint32_t ring_bytes;
    uint64_t hits[HLG_FAULT_KINDS];
    void *memory[8]; /* all that create took */
    uint32_t memory_count;
};

/* fault.c */
hlg_time fault_now(const struct hlg_fault *f);
/* What the node takes for the time. */
hlg_time fault_clock(struct hlg_fault *f, uint32_t node, hlg_time now);
void fault_kill(struct hlg_fault *f, struct node *node);

/* rule.c */
/* Begin and end the faults of nodes that are due. At the head of every call from above. */
void fault_tick(struct hlg_fault *f);
bool fault_rule_is_of_node(uint32_t kind);
/* A rule of that kind that does something at this occasion, or HLG_NONE. Changes no rule. */
uint32_t fault_rule_draw(struct hlg_fault *f, uint32_t kind, const struct occasion *o);
/* The occasion took place: it is counted by all that it fits. After fault_rule_draw, before fault_rule_hit. */
void fault_rule_occasion(struct hlg_fault *f, uint32_t kind, const struct occasion *o);
/* Rule `index` does something. Returns its span. */
hlg_time fault_rule_hit(struct hlg_fault *f, uint32_t index);
/* The three of them, for occasions that always take place. False: nothing happens. */
bool fault_rule_strikes(struct hlg_fault *f, uint32_t kind, const struct occasion *o,
                        hlg_time *span);
/* Whether nothing passes from node to peer now. */
bool fault_rule_blocks(const struct hlg_fault *f, uint32_t node, uint32_t peer);
/* The slow rail that a piece must pass, or NULL. */
struct rule *fault_rule_slow(struct hlg_fault *f, const struct occasion *o);
bool fault_rule_freezes(const struct hlg_fault *f, uint32_t node);
void fault_rule_free(struct hlg_fault *f, struct rule *r);
/* Returns false with a sentence when there can be no such rule. */
bool fault_rule_is_sound(const struct hlg_fault *f, const struct hlg_fault_rule *what, char *error,
                         size_t error_bytes);

/* endpoint.c */
extern const struct hlg_transport_ops fault_endpoint_ops;
int fault_endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                        struct hlg_transport **out);
void fault_endpoint_kill(struct endpoint *e);
/* The process that it was of is over, and so is what a close that failed had left open. */
void fault_endpoint_bury(struct endpoint *e);
/* Give a zombie's endpoint below back. */
void fault_endpoint_reap(struct endpoint *e);

/* held.c: what waits at an endpoint, and what is under way below it */
struct occasion fault_endpoint_occasion(const struct endpoint *e, uint32_t peer, hlg_time now);
/* One more piece may wait for that peer. */
bool fault_held_has_room(const struct endpoint *e, const struct peer *peer);
/* Holds piece `piece` of w. */
struct held *fault_held_put(struct endpoint *e, uint32_t peer, const struct hlg_paged_write *w,
                            uint32_t piece, hlg_time due);
/* Post what is due below, as far as below takes it. */
void fault_held_release(struct endpoint *e, hlg_time now);
/* All that waits for a peer, or with HLG_NONE for any, fails. */
void fault_held_fail(struct endpoint *e, uint32_t peer, int32_t status);
/* Returns pieces that below took, or an error. `held` and `late` as in struct flight. */
int64_t fault_flight_post(struct endpoint *e, struct peer *peer, const struct hlg_paged_write *w,
                          uint32_t kind, uint32_t held, uint32_t late);
/* Pieces of a flight are over. Turns the event into the caller's; false: he knows nothing of it. */
bool fault_flight_over(struct endpoint *e, struct hlg_transport_event *event);
void fault_report_add(struct endpoint *e, hlg_op_id op, uint32_t failed, int32_t status);
void fault_peer_settle(struct endpoint *e, struct peer *peer);

/* write.c, poll.c */
int64_t fault_endpoint_write(struct hlg_transport *t, const struct hlg_paged_write *w);
int fault_endpoint_poll(struct hlg_transport *t, struct hlg_transport_event *events,
                        uint32_t capacity);
/* When the peer is to be reported down by us, or HLG_TIME_NEVER. */
hlg_time fault_peer_stall(const struct endpoint *e, const struct peer *peer);

/* channel.c */
void fault_end_kill(struct end *c);
uint32_t fault_end_frames(const struct end *c);

#endif
