/*
 * What the files of the loop share. All tables are arrays taken at create; rows name each other by
 * index, so that nothing depends on an address.
 */
#ifndef HALAGE_LOOP_INTERNAL_H
#define HALAGE_LOOP_INTERNAL_H

#include "driver/rng.h"
#include "halage/transport/loop.h"

/* One entry of the schedule. Ties in time go by sequence, that is by order of scheduling. */
struct happening {
    hlg_time time;
    uint64_t sequence;
    uint32_t kind;  /* enum hlg_loop_happening */
    uint32_t index; /* piece, endpoint, pair or node */
    uint32_t part;  /* peer of the endpoint, side of the pair */
};

enum endpoint_state {
    ENDPOINT_FREE = 0,
    ENDPOINT_OPEN,
    ENDPOINT_DEAD,   /* its node was killed */
    ENDPOINT_CLOSED, /* still to be polled and freed */
};

struct region {
    uint8_t *base;
    uint64_t bytes;
    uint64_t address; /* what peers call base */
    uint64_t key;
    bool live;
};

/* What an address says. */
struct place {
    uint32_t node;
    uint32_t incarnation;
    uint32_t lane;
    uint32_t rail;
    uint32_t slot;   /* endpoint in the loop's table */
    uint64_t serial; /* of that endpoint; slots are reused, serials are not */
};

#define PEER_TIMERS_MAX 2u

struct peer {
    bool open;
    bool met;      /* a write found it open, and none since found out that it is gone */
    bool gone;     /* refused because nobody is there */
    bool refusing; /* refused by a fault, until refused_until */
    bool down;     /* PEER_DOWN waits to be polled */
    bool down_told;
    uint32_t timers; /* PEER happenings scheduled, <= PEER_TIMERS_MAX; they outlive peer_close */
    hlg_time refused_since; /* of refusals with no write taken between, or HLG_TIME_NEVER */
    hlg_time refused_until;
    hlg_time death; /* when the death of the peer's node is told, or HLG_TIME_NEVER */
    struct place place;
};

struct done_entry {
    hlg_op_id op;
    uint32_t done;
    uint32_t failed;
    int32_t status;
};

struct endpoint {
    struct hlg_transport transport;
    struct hlg_loop *loop;
    struct place self;
    uint32_t state;
    bool downs;        /* some peer's PEER_DOWN may wait to be polled */
    uint32_t unpolled; /* pieces taken whose DONE_WRITE was not polled */
    struct region *regions;
    struct peer *peers;
    struct done_entry *dones; /* ring of pieces_max */
    uint32_t done_head;
    uint32_t done_count;
    uint32_t *imms; /* ring of cq_depth */
    uint32_t imm_head;
    uint32_t imm_count;
};

enum fate {
    FATE_GOOD = 0,
    FATE_FAIL_BEFORE,
    FATE_FAIL_WITH_IMM,
    FATE_FAIL_WITHOUT_IMM,
    FATE_DROP,
};

/* Longest piece that can land after it was reported; its bytes are kept in a copy, as in a target's socket. */
#define LATE_BYTES 256u

/* One piece of a write, from its posting until its DONE is reported and nothing of it is scheduled. */
struct piece {
    bool used;
    bool reported; /* in the source's ring of completions; nothing lands any more if by close */
    bool lost;     /* will not land: its source was closed, or died with it */
    bool orphan;   /* its source's node was killed: close will report it */
    bool was_open; /* the target's endpoint was open when it was posted */
    uint8_t fate;
    uint8_t landings; /* still to come */
    bool placed;      /* once at least */
    bool early;       /* its DONE is scheduled beside its landing, and may come before it */
    bool left;        /* acknowledged: the bytes are on the target's side, and land from the copy */
    bool late;        /* reported failed, yet on its way: lands from its own copy of the bytes */
    uint8_t scheduled;
    int32_t status;       /* of the completion, once known */
    uint64_t placed_in;   /* serial of the endpoint that it landed in: its immediate comes there */
    hlg_time lands_until; /* an orphan's last moment */
    uint32_t source;      /* endpoint, or HLG_NONE once freed */
    hlg_op_id op;
    uint32_t imm;
    uint32_t bytes;
    hlg_mem mem;
    uint64_t mem_key;
    const uint8_t *from;
    uint64_t remote;
    uint64_t remote_key;
    struct place target;
    uint32_t source_node;
    uint32_t next_free;
    uint8_t copy[LATE_BYTES];
};

struct side {
    struct hlg_channel channel;
    struct hlg_loop *loop;
    uint32_t pair;
    uint32_t node;
    bool open;
    bool ended;
    bool ending; /* an END is scheduled */
    hlg_time last_arrival;
    /* frames to this side: sizes, and their bytes one after another in a ring */
    uint32_t *sizes;
    uint32_t frame_head;
    uint32_t frame_count;
    uint32_t arrived;
    uint8_t *ring;
    uint32_t ring_head;
    uint32_t ring_bytes;
    uint8_t *frame; /* the frame last received */
    char name[24];
};

struct pair {
    bool used;
    uint32_t scheduled;
    struct side sides[2];
};

struct node {
    struct hlg_fabric fabric;
    struct hlg_loop *loop;
    uint32_t index;
    uint32_t incarnation;
    bool alive;
    bool doomed; /* a KILL is scheduled */
    hlg_time killed_at;
};

struct hlg_loop {
    struct hlg_loop_config config;
    struct hlg_rng rng;
    hlg_time now;
    uint64_t sequence;
    uint64_t serial;
    uint64_t hash;
    uint32_t kills_left;
    uint32_t ring_capacity;
    struct hlg_loop_stats stats;
    hlg_loop_landing_fn *on_landing;
    void *context;
    struct node *nodes;
    struct endpoint *endpoints;
    uint32_t endpoint_count;
    struct piece *pieces;
    uint32_t piece_count;
    uint32_t piece_limit; /* one more than the highest that was ever in use */
    uint32_t piece_free;  /* first free piece, or HLG_NONE */
    uint32_t piece_free_count;
    struct pair *pairs;
    struct happening *heap;
    uint32_t heap_count;
    uint32_t heap_capacity;
    void *memory[16]; /* everything taken at create */
    uint32_t memory_count;
};

/* loop.c */
hlg_time loop_draw(struct hlg_loop *loop, struct hlg_loop_span span);
void loop_trace(struct hlg_loop *loop, uint64_t kind, uint64_t a, uint64_t b, uint64_t c);
/* Schedule the death of one of two nodes by a coin. False when no kill is left to give. */
bool loop_doom(struct hlg_loop *loop, uint32_t node_a, uint32_t node_b);

/* schedule.c */
void schedule_put(struct hlg_loop *loop, hlg_time time, uint32_t kind, uint32_t index,
                  uint32_t part);
struct happening schedule_take(struct hlg_loop *loop);
/* True if each entry is no earlier than its parent. */
bool schedule_is_heap(const struct hlg_loop *loop);

/* endpoint.c */
extern const struct hlg_transport_ops endpoint_ops;
int endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                  struct hlg_transport **out);
void endpoint_query(const struct hlg_loop *loop, struct hlg_transport_caps *caps);
/* The endpoint of an address, in whatever state, or NULL when it is gone. */
struct endpoint *endpoint_find(struct hlg_loop *loop, const struct place *place);
void endpoint_report(struct endpoint *e, hlg_op_id op, int32_t status);
void endpoint_on_peer(struct endpoint *e, uint32_t peer);
/* The node of some endpoints was killed. */
void endpoint_on_kill(struct hlg_loop *loop, uint32_t node);

/* piece.c */
void piece_post(struct endpoint *e, const struct hlg_paged_write *w, uint32_t index);
void piece_on_land(struct hlg_loop *loop, uint32_t index);
void piece_on_imm(struct hlg_loop *loop, uint32_t index);
void piece_on_done(struct hlg_loop *loop, uint32_t index);
/* An endpoint was closed: what it had under way is reported, and lands no more. */
void piece_on_source_close(struct hlg_loop *loop, uint32_t slot);
void piece_on_source_free(struct hlg_loop *loop, uint32_t slot);
/* Dropped pieces to an endpoint that is gone fail at last. */
void piece_on_target_end(struct hlg_loop *loop, uint32_t slot, uint64_t serial);
void piece_on_kill(struct hlg_loop *loop, uint32_t node);

/* channel.c */
extern const struct hlg_channel_ops channel_ops;
void channel_on_frame(struct hlg_loop *loop, uint32_t pair, uint32_t side);
void channel_on_end(struct hlg_loop *loop, uint32_t pair, uint32_t side);
void channel_on_kill(struct hlg_loop *loop, uint32_t node);

#endif
