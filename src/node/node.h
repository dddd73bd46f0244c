/*
 * What the two node programs share: the leader of a node. It starts the ranks, then the fabric and
 * the messenger, and waits for whatever comes first: a report, a finished step, a frame from the
 * command that started it, a signal, the death of a rank.
 */
#ifndef HALAGE_NODE_NODE_H
#define HALAGE_NODE_NODE_H

#include "config.h"
#include "control.h"
#include "ranks.h"

#include <halage/exporter.h>
#include <halage/messenger.h>
#include <halage/placement.h>
#include <halage/transport/staged.h>
#include <poll.h>

#define NODE_REPORTS 32u /* taken at a time */

struct node_options {
    struct node_config config;
    const char *program;      /* for messages about options */
    const char *address;      /* to listen on; to connect to: with commas between */
    uint32_t number;          /* of its kind, for messages; 0: the only one */
    int control;              /* socket to the command that started it; -1: none */
    bool verbose;             /* the messenger's log at level info */
    enum hlg_log_level level; /* of the messenger's log */
    const char *file;         /* that options came from; NULL: none */
};

struct node {
    struct node_options options;
    char title
        [24]; /* "prefill node", "decode node 2"; of one that nobody started "halage node prefill" */
    enum hlg_role role;
    struct hlg_layout layout;       /* of the ranks that this node hosts */
    struct hlg_layout ranks_layout; /* of those that it computes: all */
    struct ranks *ranks;
    struct hlg_fabric *fabric;
    struct hlg_fabric *ofi;    /* the one below all decorators */
    struct hlg_staged *staged; /* --staged; NULL: none */
    void *fabric_owned;        /* a decorator of a planted fault; NULL: none */
    struct hlg_messenger *messenger;
    struct hlg_exporter *exporter;  /* NULL: none */
    char *lane_nics[HLG_RANKS_MAX]; /* --nics auto: of each lane, with commas; NULL: any */
    uint32_t rails;                 /* of each lane; 0: the default */
    struct hlg_placement placement; /* of the messenger's threads */
    struct hlg_placement_before placed_before;
    bool placed;
    char provider[16];
    char why[CONTROL_WHY_BYTES]; /* first sentence of the fabric, on its choice */
    /* Decode: chooses a token. Set before node_start(); prefill never samples. */
    uint32_t (*sample)(const float *logits, uint32_t vocab);
    _Atomic uint32_t plant_word;    /* of a planted fault: progress that lies */
    _Atomic uint32_t plant_reached; /* of a planted stop: times that its step was reached */
    int signals;                    /* signalfd; -1: signals are the starter's business */
    bool interrupted;
    bool draining;   /* prefill, alone: SIGTERM came; the next signal interrupts */
    bool stop;       /* the starter asked for it, or is gone */
    bool abandoned;  /* the starter is gone */
    bool started;    /* node_start() is over */
    bool broken;     /* memory of a GPU failed; a line was said */
    uint8_t *looked; /* of lane.h: [looked_bytes] */
    uint64_t looked_bytes;
    bool retry;   /* a queue was full: look again soon */
    hlg_time due; /* node_wait() waits no longer; 0: as long as it takes */
    struct pollfd fds[3 + 2 * HLG_RANKS_MAX];
    uint32_t fd_count;
    uint64_t frame[CONTROL_FRAME_BYTES_MAX / sizeof(uint64_t)];
};

/* Parse the command line of a node program. Returns 0 or CLI_BAD_INPUT. */
int node_options_parse(struct node_options *options, enum hlg_role role, int argc, char **argv);

/* Take one address of options->address. Returns whether there are more than `index`. */
#define NODE_ADDRESS_BYTES 256u
bool node_address(const struct node_options *options, uint32_t index,
                  char address[NODE_ADDRESS_BYTES]);

/* Start everything. Returns an enum cli_exit; one line was said unless it is CLI_DONE. node_stop()
 * follows in any case. `node` is zeroed but for options. */
int node_start(struct node *node, enum hlg_role role);

/* The lane of node->ranks_layout, and so of node->ranks, that is lane `lane` of node->layout. */
uint32_t node_ranks_lane(const struct node *node, uint32_t lane);

/* End everything. Returns `status`, or CLI_FAILED when that was CLI_DONE and the recording is cut short. */
int node_stop(struct node *node, int status);

/* Say one line to people: through the starter, or on stderr. */
__attribute__((format(printf, 2, 3))) void node_say(const struct node *node, const char *format,
                                                    ...);

/* Nanoseconds of the clock that all processes of this machine share. */
hlg_time node_now(void);

/* Wait. Returns CLI_DONE, or CLI_FAILED after a line when a rank is dead. */
int node_wait(struct node *node);

/* Let the next node_wait() end at `when` at the latest. */
static inline void node_wake_at(struct node *node, hlg_time when)
{
    node->due = node->due == 0 ? when : hlg_min_time(node->due, when);
}

/* The next frame from the starter, in node->frame; NULL: none. Sets node->stop at the end. */
const struct control_head *node_frame(struct node *node);

/* Send a frame to the starter; nothing where there is none. */
void node_send(struct node *node, const void *frame, size_t bytes);

/* Send CONTROL_UP, or say it. */
void node_announce(struct node *node);

/* Send CONTROL_STEP of a step that began at `begun`. */
void node_send_step(struct node *node, const struct step *step, hlg_time begun, hlg_time ended);

/* Send CONTROL_STATS: `frame` holds what the engine counted, the messenger's part is filled in. */
void node_send_stats(struct node *node, struct control_stats *frame);

#endif
