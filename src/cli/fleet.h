/*
 * The node programs that a command starts: processes that die with it, each at one end of a control
 * socket.
 */
#ifndef HALAGE_CLI_FLEET_H
#define HALAGE_CLI_FLEET_H

#include "../node/config.h"
#include "../node/control.h"

#include <sys/types.h>

#define FLEET_DECODE_MAX  16u
#define FLEET_PREFILL_MAX 8u
#define FLEET_NODES_MAX   (FLEET_PREFILL_MAX + FLEET_DECODE_MAX)

enum member_state {
    MEMBER_NONE = 0,
    MEMBER_STARTING,
    MEMBER_UP,
    MEMBER_LOST, /* decode: it runs, but its prefill node is gone */
    MEMBER_GONE, /* the process ended */
};

struct member {
    enum member_state state;
    pid_t pid;
    int socket; /* -1 when it is gone */
    int status; /* exit status of the process once it is gone; 128 + signal where killed */
    char title[24];
    uint32_t in_flight;
    uint32_t pool_next; /* round robin */
    struct control_up up;
    struct control_stats stats;
    bool has_stats;
};

struct fleet {
    struct member prefill[FLEET_PREFILL_MAX];
    uint32_t prefill_count; /* 0 where they run elsewhere */
    struct member decode[FLEET_DECODE_MAX];
    uint32_t decode_count;
    int key; /* descriptor of the key, which its nodes inherit; -1: none */
};

/* Where a node runs. */
struct fleet_place {
    char netns[64]; /* network namespace, as `ip netns` names them; "": this one */
    char ip[48];    /* its address there */
};

/* Hold config->key for the nodes that this process will start, and tell them of it by config->key_file.
 * Returns 0 or -HLG_EIO. */
int fleet_hold_key(struct fleet *fleet, struct node_config *config);

/*
 * Start a node program that lies beside this one.
 *
 * place    NULL: here, on loopback
 * address  of the prefill nodes, HOST:PORT with a comma between; each config->sources in a row send a
 *          request together, and are started in this order
 *
 * Returns 0, or -HLG_EIO after a line on stderr.
 */
int fleet_start_prefill(struct fleet *fleet, const struct node_config *config,
                        const struct fleet_place *place, bool verbose);
int fleet_start_decode(struct fleet *fleet, const struct node_config *config,
                       const struct fleet_place *place, const char *address, bool verbose);

/* Run a node program in place of this process. Returns only on failure, after a line on stderr. */
int fleet_exec(const char *program, char **argv);

/* Member `index`: prefill nodes, then decode nodes; NULL behind the last. */
struct member *fleet_member(struct fleet *fleet, uint32_t index);

/* Its socket ended: wait for the process, say how it ended in `text`. Bounded. */
void fleet_reap(struct member *member, char *text, size_t capacity);

/* End all that still runs, by force. */
void fleet_kill(struct fleet *fleet);

#endif
