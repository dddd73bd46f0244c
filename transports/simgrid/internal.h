/*
 * What the files of the simgrid transport share. As in the loop, all tables are arrays taken at create,
 * and rows name each other by index. SimGrid knows of flows and nothing else: every other happening
 * is in a schedule of ours, in whole nanoseconds.
 */
#ifndef HALAGE_SIMGRID_INTERNAL_H
#define HALAGE_SIMGRID_INTERNAL_H

#include "driver/rng.h"
#include "halage/transport/simgrid.h"

enum happening_kind {
    HAPPENING_FLOW = 1, /* a flow ends: SimGrid says so, or it was ALONE and this is scheduled */
    HAPPENING_SENT,     /* a batch has left; the next of its queue begins */
    HAPPENING_LAND,     /* its bytes are there, or came to nothing */
    HAPPENING_DONE,     /* its source learns so */
    HAPPENING_PEER,     /* a refused peer is looked at */
    HAPPENING_FRAME,    /* a frame can be received */
    HAPPENING_END,      /* an end of a channel is over */
    HAPPENING_KILL,     /* traced, not scheduled */
    HAPPENING_LINK, /* traced, not scheduled: a link went down or up, or has another bandwidth */
};

/* One entry of the schedule. Ties in time go by sequence, that is by order of scheduling. */
struct happening {
    hlg_time time;
    uint64_t sequence;
    uint32_t kind;
    uint32_t index; /* batch, endpoint or pair */
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
    uint32_t nic; /* of all NICs of the platform */
    uint32_t slot;
    uint64_t serial; /* of that endpoint; slots are reused, serials are not */
};

/* A peer, and the queue of writes to it, which outlives peer_close. */
struct peer {
    bool open;
    bool down; /* PEER_DOWN waits to be polled */
    bool down_told;
    bool timer;             /* a PEER happening is scheduled; it outlives peer_close */
    hlg_time refused_since; /* of refusals with no progress between, or HLG_TIME_NEVER */
    struct place place;
    uint32_t head; /* batches not yet sent, or HLG_NONE */
    uint32_t tail;
    uint32_t writes; /* batches under way */
    uint32_t pieces;
};

struct done_entry {
    hlg_op_id op;
    uint32_t done;
    uint32_t failed;
    uint32_t writes; /* batches summed here */
    int32_t status;
};

struct imm_entry {
    uint32_t imm;
    uint32_t count;
};

struct endpoint {
    struct hlg_transport transport;
    struct hlg_simgrid *sim;
    struct place self;
    uint32_t state;
    bool used;          /* its tables were filled in once */
    bool downs;         /* some peer's PEER_DOWN may wait to be polled */
    bool starved;       /* a write was refused for want of a batch since the last poll */
    uint32_t writes;    /* batches taken whose DONE_WRITE was not polled */
    uint32_t pieces;    /* pieces of these */
    uint32_t lost;      /* batches of former endpoints of this slot, which is why it has fewer */
    uint32_t first;     /* batches under way, or HLG_NONE */
    uint32_t held_head; /* batches that landed here and found the queue full, or HLG_NONE */
    uint32_t held_tail;
    struct region *regions;
    struct peer *peers;
    struct done_entry *dones; /* ring of writes_max */
    uint32_t done_head;
    uint32_t done_count;
    struct imm_entry *imms; /* ring of imms_max */
    uint32_t imm_head;
    uint32_t imm_count; /* entries */
    uint32_t unread;    /* immediates in them */
};

enum batch_state {
    BATCH_FREE = 0,
    BATCH_QUEUED,  /* behind others to the same peer */
    BATCH_FLOW,    /* in SimGrid */
    BATCH_ALONE,   /* a flow that shares with none, and is not in SimGrid: FLOW is scheduled */
    BATCH_SENDING, /* its flow is over, or it has none; SENT is scheduled */
    BATCH_SENT,    /* LAND or DONE is scheduled */
    BATCH_HELD,    /* landed, but the target has no room for the immediates: its poll goes on */
    BATCH_LOST,    /* its source is gone; something is scheduled that finds it so */
};

/* What one call of write took. */
struct batch {
    uint32_t state;
    uint32_t source; /* endpoint */
    uint32_t peer;   /* of it, as a queue: the peer itself may be another by now */
    uint32_t next;   /* of the queue, of those held, or of the free ones */
    uint32_t after;  /* of the same source */
    uint32_t before;
    uint32_t failed; /* pieces, once landed */
    int32_t status;
    bool landed;
    bool moving; /* it counts in both NICs' `moving` */
    uint64_t mem_key;
    uint32_t happening; /* ALONE: place of its FLOW in the heap */
    double rate;        /* ALONE: bytes/s */
    hlg_time end;       /* ALONE: whole nanoseconds, and */
    double end_part;    /* what comes on top */
    hlg_time ops_end;   /* its turn in both NICs' operation clocks is over */
    struct place target;
    struct hlg_paged_write write; /* narrowed to what was taken */
};

struct side {
    struct hlg_channel channel;
    struct hlg_simgrid *sim;
    uint32_t pair;
    uint32_t node;
    bool open;
    bool ended;
    bool ending;  /* an END is scheduled */
    bool told;    /* of the end, by receive */
    bool refused; /* a frame from this side found no room since the other one last received */
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
    uint32_t next; /* free one */
    uint32_t scheduled;
    struct side sides[2];
};

struct node {
    struct hlg_fabric fabric;
    struct hlg_simgrid *sim;
    uint32_t index;
    bool alive;
    struct hlg_simgrid_node_config config;
    uint32_t nic_begin; /* its first */
};

struct nic {
    uint32_t node;
    bool up;
    double factor;        /* of its node's nic_bandwidth */
    uint64_t ops_ps;      /* when its operation clock is free, in picoseconds */
    uint32_t moving[2];   /* writes under way, out of it and into it */
    hlg_time since[2];    /* when the first of these began */
    uint32_t flowing[2];  /* flows, out of it and into it */
    uint32_t alone[2];    /* the batch of such a flow that is ALONE, or HLG_NONE */
    hlg_time ended[2];    /* when the last one ended, in whole nanoseconds, and */
    double ended_part[2]; /* what comes on top */
    struct hlg_simgrid_nic_stats stats;
};

/* A member of a list of what is ready, or the list's head; alone it points to itself. */
struct item {
    uint32_t next;
    uint32_t before;
};

struct hlg_simgrid {
    struct hlg_simgrid_config config;
    struct hlg_rng rng;
    hlg_time now;
    uint64_t sequence;
    uint64_t serial;
    uint64_t hash;
    uint32_t ring_capacity;
    uint32_t imms_max; /* entries of one endpoint's queue; what finds none is held back as well */
    uint32_t flows;    /* in SimGrid */
    /* SimGrid's clock stands still while there is no flow. When the first one began it showed
       `engine_seconds`, and it was `engine_start`. */
    double engine_seconds;
    hlg_time engine_start;
    double engine_next; /* when the next flow ends, in SimGrid's seconds, unless it is stale */
    bool engine_stale;
    bool engine; /* SimGrid's is ours */
    struct node *nodes;
    struct nic *nics;
    uint32_t nic_count;
    struct item *items; /* see ready.c */
    struct endpoint *endpoints;
    uint32_t endpoint_count;
    struct batch *batches;
    uint32_t batch_count;
    uint32_t
        batch_fresh; /* those from here on were never used, so that their memory is not touched */
    uint32_t batch_free; /* first free batch of those before, or HLG_NONE */
    uint32_t batch_used;
    struct pair *pairs;
    uint32_t pair_fresh; /* those from here on were never used */
    uint32_t pair_free;  /* first free one of those before, or HLG_NONE */
    struct happening *heap;
    uint32_t heap_count;
    uint32_t heap_capacity;
    void *memory[16]; /* everything taken at create */
    uint64_t memory_bytes[16];
    uint32_t memory_count;
};

/* sim.c */
/* Something about flows is to change: SimGrid's clock, which lags while none ends, must be ours. */
void sim_sync(struct hlg_simgrid *sim);
void sim_trace(struct hlg_simgrid *sim, uint64_t kind, uint64_t a, uint64_t b, uint64_t c);

/* config.c: a sentence that names what is wrong, or NULL. */
const char *config_fault(const struct hlg_simgrid_config *config);

/* link.c */
struct nic *link_nic(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail);

/* ready.c */
void ready_init(struct hlg_simgrid *sim);
uint64_t ready_items(const struct hlg_simgrid *sim);
/* There is news at an endpoint or a side of a channel. */
void ready_put_endpoint(struct endpoint *e);
void ready_put_side(struct side *s);
/* All of it was looked at. */
void ready_drop_endpoint(struct endpoint *e);
void ready_drop_side(struct side *s);
/* Whether any node has news that nobody was told of. */
bool ready_any(const struct hlg_simgrid *sim);
bool ready_pop(struct hlg_fabric *fabric, struct hlg_ready *ready);

/* memory.c */
bool memory_take(struct hlg_simgrid *sim);
void memory_free(struct hlg_simgrid *sim);

/* schedule.c */
void schedule_put(struct hlg_simgrid *sim, hlg_time time, uint32_t kind, uint32_t index,
                  uint32_t part);
struct happening schedule_take(struct hlg_simgrid *sim);
/* Take out the one at that place. Those of kind FLOW tell their batch where they are. */
void schedule_drop(struct hlg_simgrid *sim, uint32_t place);
/* True if each entry is no earlier than its parent. */
bool schedule_is_heap(const struct hlg_simgrid *sim);

/* endpoint.c */
extern const struct hlg_transport_ops endpoint_ops;
int endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                  struct hlg_transport **out);
void endpoint_query(const struct node *node, struct hlg_transport_caps *caps);
/* The open endpoint of an address, or NULL. */
struct endpoint *endpoint_find(struct hlg_simgrid *sim, const struct place *place);
void endpoint_reset_peer(struct peer *peer);
void endpoint_report(struct endpoint *e, const struct batch *b, uint32_t failed, int32_t status);
void endpoint_on_peer(struct endpoint *e, uint32_t peer);
void endpoint_on_kill(struct hlg_simgrid *sim, uint32_t node);
/* A NIC's link is up again: whoever was refused for it may try again. */
void endpoint_on_link_up(struct hlg_simgrid *sim, uint32_t nic);

/* batch.c */
/* Pieces of a batch: at least 1. */
uint32_t batch_pieces(const struct batch *b);
/* Take `pieces` of a write from its cursor on. A batch must be free. */
void batch_post(struct endpoint *e, const struct hlg_paged_write *w, uint32_t pieces);
void batch_on_flow(struct hlg_simgrid *sim, uint32_t index);
void batch_on_sent(struct hlg_simgrid *sim, uint32_t index);
void batch_on_land(struct hlg_simgrid *sim, uint32_t index);
void batch_on_done(struct hlg_simgrid *sim, uint32_t index);
/* An endpoint is closed or dead: what it had under way is reported, and lands no more. */
void batch_on_source_end(struct hlg_simgrid *sim, uint32_t slot);
/* An endpoint has room for immediates again, or is gone: batches held there go on. */
void batch_on_room(struct endpoint *e);
/* A node is dead: flows into it are over. */
void batch_on_target_kill(struct hlg_simgrid *sim, uint32_t node);
/* A NIC's link is down: what is under way over it is lost. */
void batch_on_link_down(struct hlg_simgrid *sim, uint32_t nic);

/* alone.c */
/* The batch has its turn as a flow from NIC to NIC; it counts in both NICs' `flowing`. */
void flow_begin(struct hlg_simgrid *sim, struct batch *b, double bytes);
/* It has ended, and counts no longer. */
void flow_over(struct hlg_simgrid *sim, const struct batch *b);
/* It will not end. */
void flow_cancel(struct hlg_simgrid *sim, const struct batch *b);
/* If there is a flow alone out of a NIC (side 0), or into it (side 1), it is SimGrid's from now on. */
void alone_end(struct hlg_simgrid *sim, uint32_t nic, uint32_t side);
/* What NICs count is what batches say. */
bool flow_counts_agree(const struct hlg_simgrid *sim);

/* channel.c */
extern const struct hlg_channel_ops channel_ops;
void channel_on_frame(struct hlg_simgrid *sim, uint32_t pair, uint32_t side);
void channel_on_end(struct hlg_simgrid *sim, uint32_t pair, uint32_t side);
void channel_on_kill(struct hlg_simgrid *sim, uint32_t node);

#endif
