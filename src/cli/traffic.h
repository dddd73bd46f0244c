/*
 * A closed loop of requests through a fleet: some in flight at a time, each verified by the oracle,
 * all counted. `halage demo` and `halage node decode` differ only in the fleet.
 */
#ifndef HALAGE_CLI_TRAFFIC_H
#define HALAGE_CLI_TRAFFIC_H

#include "fleet.h"
#include "oracle.h"
#include "workload.h"

#include <stdio.h>

enum traffic_state {
    TRAFFIC_PENDING = 0,
    TRAFFIC_IN_FLIGHT,
    TRAFFIC_DECODED, /* waits for its verdict */
    TRAFFIC_VERIFIED,
    TRAFFIC_MISMATCHED,
    TRAFFIC_FAILED,
};

struct traffic_request {
    enum traffic_state state;
    uint32_t member;               /* decode node, from 0 */
    struct control_result *result; /* until the verdict */
    uint32_t verdict_next;         /* queue of those that wait for the oracle */
    uint64_t bytes;
    uint64_t pieces_counted;
    uint64_t pieces_expected;
    uint32_t prefill;   /* prefill node, from 0 */
    hlg_time submitted; /* these on the machine's clock; 0: not known */
    hlg_time asked;
    hlg_time accepted;
    hlg_time forward_end;
    hlg_time first_piece;
    hlg_time last_piece;
    hlg_time ready;
    hlg_time first_token;
};

/* A forward pass or a decode step. */
struct traffic_step {
    uint32_t member; /* of the fleet */
    uint32_t sequences;
    uint32_t tokens;
    uint64_t context_sum; /* tokens in the cache before each of `tokens`, summed */
    hlg_time begun;
    hlg_time ended;
};

struct traffic_config {
    const char *command; /* "halage demo" */
    struct node_config node;
    uint32_t requests;
    uint32_t in_flight;    /* 0: the default */
    const char *trace;     /* NULL: lengths are drawn */
    const char *json_file; /* NULL: none, "-": stdout */
    bool paced;            /* requests come at the trace's times, to the decode nodes in turn */
    bool detail;           /* each request and step in the JSON */
    uint32_t prefill_nodes;
    uint32_t decode_nodes;
    struct fleet_place places[FLEET_NODES_MAX]; /* prefill nodes first */
    uint32_t place_count;                       /* 0: all here */
    const char *connect; /* address of a prefill node elsewhere; NULL: start one */
    bool verbose;
};

struct traffic {
    struct traffic_config config;
    struct fleet fleet;
    struct oracle oracle;
    struct workload workload;
    struct traffic_request *requests; /* [workload.count] */
    FILE *out;                        /* for people */
    bool tty;
    int signals; /* signalfd */
    bool interrupted;
    bool killed;                /* interrupted twice: nothing more will come */
    bool stopping;              /* nodes were asked to end */
    bool submit_over;           /* no more requests are sent, whatever is pending */
    uint32_t next;              /* to submit */
    uint32_t member_next;       /* paced: decode node whose turn it is */
    struct traffic_step *steps; /* [step_count], with detail only */
    uint32_t step_count;
    uint32_t step_capacity;
    uint32_t in_flight;
    uint32_t verified;
    uint32_t mismatched;
    uint32_t failed;
    uint32_t constant;
    uint32_t queue_head; /* of the oracle, HLG_NONE: empty */
    uint32_t queue_tail;
    uint32_t backlog; /* results in it */
    bool oracle_busy;
    bool oracle_gone;
    bool node_failed; /* a node ended that should not have */
    int start_status; /* of a node that ended before it was up; 0: none */
    hlg_time begun;
    hlg_time ended;
    hlg_time progress_due;
    uint32_t progress_told; /* in steps of a tenth, off a terminal */
    uint32_t differences_told;
    uint64_t frame[CONTROL_FRAME_BYTES_MAX / sizeof(uint64_t)];
};

/* Run it all and report. Returns an enum cli_exit. */
int traffic_run(const struct traffic_config *config);

/* Options of both commands; keys from TRAFFIC_KEY_REQUESTS on. */
enum traffic_key {
    TRAFFIC_KEY_REQUESTS = NODE_KEY_OWN + 0x80,
    TRAFFIC_KEY_IN_FLIGHT,
    TRAFFIC_KEY_TRACE,
    TRAFFIC_KEY_JSON,
    TRAFFIC_KEY_ARRIVALS,
    TRAFFIC_KEY_DETAIL,
    TRAFFIC_KEY_VERBOSE,
};

#define TRAFFIC_OPTION_ROWS                                                                       \
    {"requests", TRAFFIC_KEY_REQUESTS, "N", 0, "Requests to run (default 200)", 0},               \
        {"in-flight",                                                                             \
         TRAFFIC_KEY_IN_FLIGHT,                                                                   \
         "N",                                                                                     \
         0,                                                                                       \
         "Of these at a time (default 8; 256 with --arrivals trace)",                             \
         0},                                                                                      \
        {"trace",                                                                                 \
         TRAFFIC_KEY_TRACE,                                                                       \
         "FILE",                                                                                  \
         0,                                                                                       \
         "Take lengths from a trace: TIMESTAMP,ContextTokens,GeneratedTokens; the first N rows",  \
         0},                                                                                      \
        {"json",                                                                                  \
         TRAFFIC_KEY_JSON,                                                                        \
         "FILE",                                                                                  \
         0,                                                                                       \
         "Write the results as JSON; - is stdout, text then to stderr",                           \
         0},                                                                                      \
        {"arrivals",                                                                              \
         TRAFFIC_KEY_ARRIVALS,                                                                    \
         "closed|trace",                                                                          \
         0,                                                                                       \
         "When requests come: the next when one is done (default), or at the trace's times, to "  \
         "the decode nodes in turn",                                                              \
         0},                                                                                      \
        {"detail", TRAFFIC_KEY_DETAIL, NULL, 0, "Add each request and each step to the JSON", 0}, \
    {                                                                                             \
        "verbose", TRAFFIC_KEY_VERBOSE, NULL, 0, "Show the messengers' logs", 0                   \
    }

void traffic_config_default(struct traffic_config *config, const char *command);

/* As node_config_parse(), for these and the shared options. */
int traffic_config_parse(int key, char *argument, const char *program,
                         struct traffic_config *config);

#endif
