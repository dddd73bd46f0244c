/*
 * loop: a network within one process, on a virtual clock, for tests. Bytes really land, at times and
 * in orders drawn from a seed, and every fault of struct hlg_loop_faults can be drawn or commanded.
 *
 * Nothing happens by itself: hlg_loop_step() moves the clock to the next happening and performs it.
 * Equal seed and equal calls give equal happenings, bytes and trace hash, whatever the addresses.
 * Source bytes are read when they land, not when they are posted, so that a page reused before its
 * DONE_WRITE shows. All memory is taken by hlg_loop_create(). One thread.
 */
#ifndef HALAGE_TRANSPORT_LOOP_H
#define HALAGE_TRANSPORT_LOOP_H

#include "../channel.h"
#include "../transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_loop;

/* Durations are drawn evenly from [min, max]. */
struct hlg_loop_span {
    hlg_time min;
    hlg_time max;
};

/* How often each fault is drawn, in parts per million, and how far it goes. All 0: none. */
struct hlg_loop_faults {
    uint32_t delay_ppm;       /* of pieces: lands up to delay_ns_max later */
    uint32_t reorder_ppm;     /* of pieces: overtakes all that is under way */
    uint32_t duplicate_ppm;   /* of pieces: placed twice, both before its immediate (as EFA does) */
    uint32_t refuse_ppm;      /* of writes: 0 taken, for that peer, for up to refuse_ns_max */
    uint32_t partial_ppm;     /* of writes: a prefix is taken */
    uint32_t fail_before_ppm; /* of pieces: DONE_WRITE failed, nothing landed; half land later */
    uint32_t fail_after_ppm;  /* of pieces: landed, DONE_WRITE failed all the same; half with IMM */
    uint32_t drop_ppm;        /* of pieces: vanishes, no DONE_WRITE; one of its two nodes is killed
                                 within kill_ns_max */
    uint32_t kill_ppm;        /* of writes: one of its two nodes is killed within kill_ns_max */
    uint32_t break_ppm;       /* of frames sent: the channel breaks */
    hlg_time delay_ns_max;
    hlg_time refuse_ns_max; /* beyond stall_ns it ends in PEER_DOWN */
    hlg_time kill_ns_max;
};

struct hlg_loop_config {
    uint64_t seed;
    uint32_t nodes;
    uint32_t lanes; /* of each node */
    uint32_t rails; /* of each lane */
    uint32_t
        domains_max; /* endpoints of one (lane, rail) at a time; killed ones not yet freed count */
    uint32_t peers_max;    /* of one endpoint */
    uint32_t regions_max;  /* of one endpoint */
    uint32_t pieces_max;   /* of one endpoint: taken, DONE_WRITE not yet polled */
    uint32_t cq_depth;     /* immediates unread at one endpoint; more are held back */
    uint32_t channels_max; /* pairs at a time */
    uint32_t frames_max;   /* frames unread in one direction */
    uint32_t room_bytes; /* bytes unread in one direction; a frame into an empty one always fits */
    uint32_t message_bytes_max; /* of one frame */
    uint32_t kills_max;         /* nodes that drop_ppm and kill_ppm may kill in all */
    bool
        old_addresses; /* an endpoint has the address of a closed or killed one of its lane and rail, as
                           with a fixed port: a late write finds it, and the key alone keeps it out */
    bool
        acknowledged; /* DONE_WRITE means acknowledged, not placed: pieces of up to 256 bytes complete
                          before they land, by a coin, and land whatever becomes of their source */
    bool
        old_keys; /* keys are not drawn but counted, so that an old one is a new one's too: a provider
                      that must not be trusted */
    uint64_t piece_bytes_max;
    uint64_t merge_bytes_max; /* caps.merge_bytes_max; 0: none */
    hlg_time stall_ns;
    struct hlg_loop_span land_ns;  /* from write to landing */
    struct hlg_loop_span imm_ns;   /* from landing to the target's immediate */
    struct hlg_loop_span done_ns;  /* from landing to the source's completion */
    struct hlg_loop_span frame_ns; /* of a channel's frames and of the news of its end */
    hlg_time death_ns_max; /* after a kill: what the dead node sent may still land this long */
    struct hlg_loop_faults faults;
};

/* Two nodes of one lane and rail, short random latencies, no faults. */
void hlg_loop_config_default(struct hlg_loop_config *config);

/* Returns 0, -HLG_EINVAL for a 0 where none may be or a reversed span, or -HLG_ENOMEM. */
int hlg_loop_create(const struct hlg_loop_config *config, struct hlg_loop **out);

/* Endpoints and channels made by the loop die with it. NULL is allowed. */
void hlg_loop_destroy(struct hlg_loop *loop);

/*
 * The fabric of a node; it belongs to the loop. Its `open` returns -HLG_EINVAL for a lane or rail that
 * is none, -HLG_ELIMIT beyond domains_max, -HLG_ESTATE while the node is dead. Endpoints belong to
 * the caller until `free`. peer_open takes any well-formed address. A write to an endpoint that is gone
 * is taken and fails with -HLG_EPEER as long as the writer, by a coin, does not know; then it is
 * refused, and PEER_DOWN comes after stall_ns. wait_fd has no descriptor.
 */
struct hlg_fabric *hlg_loop_fabric(struct hlg_loop *loop, uint32_t node);

/*
 * Connect two live nodes. The two ends belong to the caller until close. A frame that frames_max or
 * room_bytes keeps out is answered with 0. Returns 0, -HLG_EINVAL, -HLG_ELIMIT beyond channels_max,
 * -HLG_ESTATE when a node is dead.
 */
int hlg_loop_channel_pair(struct hlg_loop *loop, uint32_t node_a, uint32_t node_b,
                          struct hlg_channel **a, struct hlg_channel **b);

/* Break a channel: each end sees -HLG_EPEER within frame_ns; frames that come later are lost. */
void hlg_loop_channel_break(struct hlg_loop *loop, struct hlg_channel *channel);

/* What one step did. */
enum hlg_loop_happening {
    HLG_LOOP_LAND = 1, /* bytes of a piece landed, or came to nothing */
    HLG_LOOP_IMM,      /* an immediate can be polled at the target, or came to nothing */
    HLG_LOOP_DONE,     /* a completion can be polled at the source, or came to nothing */
    HLG_LOOP_PEER,     /* a peer takes writes again, or is reported down */
    HLG_LOOP_FRAME,    /* a frame can be received */
    HLG_LOOP_END,      /* an end of a channel is over */
    HLG_LOOP_KILL,     /* a node was killed by a fault */
};

/* The virtual clock of the loop, from 0. */
hlg_time hlg_loop_now(const struct hlg_loop *loop);

/* Time of the next happening, or HLG_TIME_NEVER. */
hlg_time hlg_loop_next_time(const struct hlg_loop *loop);

/* Advance to the next happening and perform it. Returns its kind, or 0 when nothing is due ever. */
int hlg_loop_step(struct hlg_loop *loop);

/* Perform all that is due by `when` >= now, then let it be `when`. Returns happenings performed. */
uint64_t hlg_loop_advance_to(struct hlg_loop *loop, hlg_time when);

/* Replace the faults from now on. What was drawn before stays. */
void hlg_loop_faults(struct hlg_loop *loop, const struct hlg_loop_faults *faults);

/*
 * Kill a node now: nothing is placed into it any more, and its ends of channels are over. Peers see
 * failed writes, the end of channels and, by a coin, PEER_DOWN, each within death_ns_max. By a coin
 * each, pieces that the dead node had under way still land within death_ns_max: its memory must stay
 * until then, or until its endpoints are closed. Its endpoints give nothing but what close reports.
 */
void hlg_loop_kill(struct hlg_loop *loop, uint32_t node);

/* Let a dead node live again, as a new incarnation without endpoints or channels. */
void hlg_loop_restart(struct hlg_loop *loop, uint32_t node);

/* Whether a node lives: was not killed, or was restarted. */
bool hlg_loop_alive(const struct hlg_loop *loop, uint32_t node);

/* Bytes about to land: the moment to check who owns the page. Must not call the loop. */
struct hlg_loop_landing {
    uint32_t source_node;
    uint32_t target_node;
    uint32_t target_lane;
    uint32_t target_rail;
    uint8_t *target_base; /* of the target's registration */
    uint64_t target_offset;
    const uint8_t *source; /* NULL: the bytes had left their source before */
    uint32_t bytes;
    uint32_t imm;
    bool again; /* a second placement of the same bytes */
};

typedef void hlg_loop_landing_fn(void *context, const struct hlg_loop_landing *landing);

/* One hook a loop; NULL takes it away. */
void hlg_loop_on_landing(struct hlg_loop *loop, hlg_loop_landing_fn *fn, void *context);

/* How often each thing happened since the loop was made. */
struct hlg_loop_stats {
    uint64_t taken;       /* pieces that writes took */
    uint64_t landings;    /* placements, second ones included */
    uint64_t immediates;  /* delivered to a target's queue */
    uint64_t completions; /* pieces reported, failed ones included */
    uint64_t failures;    /* pieces reported failed, for whatever reason */
    uint64_t held;        /* immediates that found cq_depth reached: a broken credit window */
    uint64_t full;        /* frames that found no room */
    uint64_t frames;      /* frames delivered */
    /* faults */
    uint64_t delays;
    uint64_t reorders;
    uint64_t duplicates;
    uint64_t refusals;
    uint64_t partials;
    uint64_t fails_before;
    uint64_t fails_after;
    uint64_t drops;
    uint64_t kills;
    uint64_t breaks;
    uint64_t acknowledged; /* pieces that completed before they landed */
    uint64_t lates;        /* landings of pieces that had been reported failed */
    uint64_t downs;        /* PEER_DOWN events */
    uint64_t
        old_keys; /* pieces that found an endpoint at the address, and no registration of their key */
};

/* As of now. */
void hlg_loop_stats(const struct hlg_loop *loop, struct hlg_loop_stats *stats);

/* Running hash of all writes and happenings: kind, time, nodes, offsets, immediates. */
uint64_t hlg_loop_trace_hash(const struct hlg_loop *loop);

/* Recount pools, queues and the schedule. Returns 0, or the number of the check that failed. */
int hlg_loop_check(const struct hlg_loop *loop);

#ifdef __cplusplus
}
#endif

#endif
