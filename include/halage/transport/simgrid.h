/*
 * simgrid: a network simulated by SimGrid (3.32), on its virtual clock. NICs share links as SimGrid's
 * model says, so that times mean something; bytes move only if asked. Nodes can die, links can slow
 * down, fail and be repaired; nothing else goes wrong.
 *
 * What one `write` takes is one flow from NIC to NIC. Writes to one peer go first in, first out: the
 * next begins when the one before it has left. A write has left at the later of two times: SimGrid's
 * end of its flow, and its turn in the operation clocks of both NICs, where each piece takes op_ps and
 * all writes of a NIC queue. It lands latency_ns later, with its immediates, and is reported to the
 * source another latency_ns later.
 *
 * A flow that shares its NICs with no other is not SimGrid's: it has the bandwidth of the slower NIC, and its
 * end is computed, to a nanosecond that of SimGrid. When another flow comes to one of these NICs, SimGrid gets
 * what is left of it.
 *
 * Nothing happens by itself: hlg_simgrid_step() moves the clock to the next happening and performs
 * it. Equal calls give equal happenings, times and trace hash, within one version of SimGrid. All memory
 * of ours is taken by hlg_simgrid_create(); SimGrid itself allocates for each flow. One thread.
 */
#ifndef HALAGE_TRANSPORT_SIMGRID_H
#define HALAGE_TRANSPORT_SIMGRID_H

#include "../channel.h"
#include "../transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_simgrid;

/* What a node has of its own. */
struct hlg_simgrid_node_config {
    uint32_t lanes;
    uint32_t rails;       /* of each lane: each is a NIC */
    double nic_bandwidth; /* bytes/s, each way */
    uint64_t op_ps;
    hlg_time latency_ns; /* one way, to a node alike; between two others it is their mean */
    uint32_t pieces_max; /* queue depth of an endpoint, <= cq_depth */
};

struct hlg_simgrid_config {
    uint64_t seed; /* of keys and addresses, not of times */
    uint32_t nodes;
    /* [nodes], copied by create; then the fields of the same names below are unread. NULL: the nodes
       are all alike */
    const struct hlg_simgrid_node_config *node_configs;
    uint32_t lanes;         /* of each node */
    uint32_t rails;         /* of each lane: each is a NIC */
    uint32_t group_nodes;   /* nodes below one uplink; 0: a fabric that blocks nowhere */
    double nic_bandwidth;   /* bytes/s, each way */
    double group_bandwidth; /* bytes/s of an uplink, each way; unread without groups */
    uint64_t op_ps; /* picoseconds of a NIC for each piece, as source and as target; may be 0 */
    hlg_time latency_ns; /* one way; of an acknowledgement as well */
    hlg_time frame_ns;   /* one way, of a channel's frames and of the news of its end */
    bool
        engine_always; /* ask SimGrid even of a flow that shares with none: the same times, slower */
    bool
        copy_bytes; /* move bytes, and check bounds; else memory is never touched and only keys count */
    uint32_t domains_max;     /* endpoints of one (lane, rail) at a time */
    uint32_t peers_max;       /* of one endpoint */
    uint32_t regions_max;     /* of one endpoint */
    uint32_t writes_max;      /* of one endpoint: taken, DONE_WRITE not yet polled */
    uint32_t pieces_max;      /* pieces of these, <= cq_depth */
    uint32_t peer_writes_max; /* under way to one peer */
    uint32_t peer_pieces_max;
    uint32_t
        cq_depth; /* immediates unread at one endpoint; more are held back, and then DONE_WRITE is */
    uint32_t channels_max; /* pairs at a time */
    uint32_t frames_max;   /* frames unread in one direction */
    uint32_t room_bytes; /* bytes unread in one direction; a frame into an empty one always fits */
    uint32_t message_bytes_max; /* of one frame */
    uint64_t piece_bytes_max;
    hlg_time stall_ns;
};

/* Two nodes of one lane and rail of 50 GB/s, no groups, bytes copied. */
void hlg_simgrid_config_default(struct hlg_simgrid_config *config);

/*
 * Build the platform. A process has one SimGrid engine, so one simulation at a time, and after its
 * destroy only another of the same shape and bandwidths, whose links are whole: sweeps fork. The clock
 * begins at 0.
 *
 * error  [error_bytes] a sentence on failure, which names the number that is wrong; untouched on
 *        success
 *
 * Returns 0, -HLG_EINVAL, -HLG_ENOMEM, or -HLG_EIO when SimGrid said no.
 */
int hlg_simgrid_create(const struct hlg_simgrid_config *config, struct hlg_simgrid **out,
                       char *error, size_t error_bytes);

/* Endpoints and channels made by the simulation die with it. NULL is allowed. */
void hlg_simgrid_destroy(struct hlg_simgrid *sim);

/*
 * The fabric of a node; it belongs to the simulation. Its `open` returns -HLG_EINVAL for a lane or rail
 * that is none, -HLG_ELIMIT beyond domains_max, -HLG_ESTATE while the node is dead. Endpoints belong
 * to the caller until `free`. peer_open takes any well-formed address. A write to an endpoint that is
 * gone is refused, and PEER_DOWN comes after stall_ns; so it does for a peer that took nothing and
 * completed nothing between refusals for so long. wait_fd has no descriptor. It has `ready`, which
 * tells of the channels of hlg_simgrid_channel_pair() as well.
 */
struct hlg_fabric *hlg_simgrid_fabric(struct hlg_simgrid *sim, uint32_t node);

/*
 * Connect two live nodes. The two ends belong to the caller until close. Frames take frame_ns and no
 * bandwidth. Returns 0, -HLG_EINVAL, -HLG_ELIMIT beyond channels_max, -HLG_ESTATE when a node is dead.
 */
int hlg_simgrid_channel_pair(struct hlg_simgrid *sim, uint32_t node_a, uint32_t node_b,
                             struct hlg_channel **a, struct hlg_channel **b);

/* Rounded down to whole nanoseconds; SimGrid's own seconds go on unrounded below, from the first flow
 * under way to the end of the last. */
hlg_time hlg_simgrid_now(const struct hlg_simgrid *sim);

/* Advance to the next happening and perform it. Returns false when nothing is due ever. */
bool hlg_simgrid_step(struct hlg_simgrid *sim);

/* Perform all that is due by `when` >= now, then let it be `when`. Returns happenings performed. */
uint64_t hlg_simgrid_advance_to(struct hlg_simgrid *sim, hlg_time when);

/*
 * Perform happenings until a node is ready, and then the others of that instant, or until `when` >=
 * now; then it is `when`. HLG_TIME_NEVER: until nothing is due ever. Returns whether a node is ready.
 * A driver steps those that are, looks which deadline comes next, and calls this again.
 */
bool hlg_simgrid_run(struct hlg_simgrid *sim, hlg_time when);

/*
 * Pop a node that has something new to look at: completions, immediates, PEER_DOWN, a frame, the end
 * of a channel, room where a write or a frame was refused, a channel just made, a `wake`. In order of
 * happening; a node is listed once at a time, and no longer when all of it has been looked at. A
 * popped node must be stepped until it has nothing more to do, since it is listed again only by news
 * and by what one poll or receive leaves behind. Its machine's deadline is not told of here.
 *
 * Returns false when there is none. O(1).
 */
bool hlg_simgrid_ready(struct hlg_simgrid *sim, uint32_t *node);

/*
 * Let a NIC have `factor` times its configured bandwidth from now on, flows under way too. Its
 * operation clock stays.
 *
 * factor  > 0, 1: as configured; what results must be at least 1 byte/s
 *
 * Returns 0, -HLG_EINVAL for a NIC that is none or a factor out of range, or -HLG_EIO when SimGrid
 * said no.
 */
int hlg_simgrid_set_bandwidth(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                              double factor);

/*
 * Take the link of a NIC down now, or repair it. Writes that have not landed fail with -HLG_EPEER, as
 * if the peer had died, and are reported when that news would come; those that landed are reported
 * well. While it is down, writes from and to the NIC are refused, and PEER_DOWN comes after stall_ns.
 * After a repair they are taken again. Channels are not affected. O(endpoints).
 *
 * Returns 0, or -HLG_EINVAL for a NIC that is none.
 */
int hlg_simgrid_set_link(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                         bool up);

/*
 * What a NIC has moved, out of it (0) and into it (1), since create. Bytes count when the last one of a
 * write has left; busy is the time with at least one write under way, turns of operation clocks included.
 */
struct hlg_simgrid_nic_stats {
    uint64_t flows; /* of SimGrid, that began here */
    uint64_t bytes[2];
    hlg_time busy_ns[2];
};

/* Returns 0, or -HLG_EINVAL for a NIC that is none. O(1). */
int hlg_simgrid_nic_stats(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                          struct hlg_simgrid_nic_stats *stats);

/*
 * Kill a node now: nothing is placed into it any more, its ends of channels are over, and what it had
 * under way is gone. Its endpoints give nothing but what close reports. Peers see failed writes and
 * the end of channels, and PEER_DOWN if they go on offering.
 */
void hlg_simgrid_kill(struct hlg_simgrid *sim, uint32_t node);

/* Let a dead node live again, as a new incarnation without endpoints or channels. */
void hlg_simgrid_restart(struct hlg_simgrid *sim, uint32_t node);

/* Whether a node lives: was not killed, or was restarted. */
bool hlg_simgrid_alive(const struct hlg_simgrid *sim, uint32_t node);

/* Running hash of all writes and happenings: kind, time, nodes, operations, immediates. */
uint64_t hlg_simgrid_trace_hash(const struct hlg_simgrid *sim);

/* Recount pools, windows and the schedule. Returns 0, or the number of the check that failed. */
int hlg_simgrid_check(const struct hlg_simgrid *sim);

#ifdef __cplusplus
}
#endif

#endif
