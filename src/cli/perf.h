/*
 * `halage perf`: what the files of it share.
 *
 *   perf.c         command lines
 *   perf_run.c     the side that asks: cases, repetitions, pairs; perf_session.c its connection
 *   perf_serve.c   the side that is asked
 *   perf_link.c    messages between the two, and what is let in
 *   perf_door.c    who connects to the side that is asked
 *   perf_arena.c   memory that is moved, its pattern, the order of pages
 *   perf_fabric.c  the way to the wire: a provider, and what stages memory of GPUs before it
 *   perf_core.c    a case through the messenger's core: pumps of prefill and decode machines
 *   perf_ping.c    a case over a transport alone: one write there, one back
 *   perf_bare.c    a case over libfabric alone
 *   perf_layer.c   counter word to request whole, through messengers; perf_node.c what both have alike
 *   perf_table.c   tables, JSON, TSV
 */
#ifndef HALAGE_CLI_PERF_H
#define HALAGE_CLI_PERF_H

#include <halage/channel.h>
#include <halage/layout.h>
#include <halage/memory.h>
#include <halage/messenger.h>
#include <halage/transport.h>
#include <halage/transport/staged.h>
#include <halage/transport/tcp.h>

#include <signal.h>
#include <stdio.h>

#define PERF_VERSION        2u
#define PERF_PEERS_MAX      64u
#define PERF_RAILS_MAX      8u
#define PERF_WINDOW_MAX     4096u
#define PERF_LAYERS_MAX     64u
#define PERF_PAGES_MAX      65536u
#define PERF_PAGE_BYTES_MAX (1u << 30)
#define PERF_SIZES_MAX      32u
#define PERF_ROUNDS_MAX     1000u
#define PERF_SLOTS          2u /* requests that a target has open: one is written, the next waits */
#define PERF_BENCHES        2u /* alive at a time: the core's and the bare one */
#define PERF_FRAME_BYTES    (1u << 20)
#define PERF_ERROR_BYTES    200u
#define PERF_STUCK_S        60u /* that one call of a provider may take */

enum perf_path {
    PERF_CORE = 1,
    PERF_BARE,
    PERF_PING,
    PERF_LAYER,
    PERF_PATHS,
};

enum perf_order {
    PERF_CONTIGUOUS = 0,
    PERF_SCATTERED,
    PERF_ORDERS,
};

/* Memory that pages lie in at both sides, and how they get to the wire. Crosses the wire as it is. */
struct perf_way {
    uint32_t memory; /* enum hlg_memory_kind */
    uint32_t staged; /* 1: through pinned host memory */
    char provider[16];
};

/* What is moved, and how: the asking side decides, both act on it. Crosses the wire as it is. */
struct perf_case {
    uint32_t path;  /* enum perf_path */
    uint32_t order; /* enum perf_order */
    uint32_t page_bytes;
    uint32_t pages; /* of a layer of a request */
    uint32_t layers;
    uint32_t peers;
    uint32_t rails;
    uint32_t window; /* pieces on their way to one peer */
    uint32_t check;  /* 1: every byte is looked at */
    uint32_t pad;    /* 0 */
    struct perf_way way;
    char address[HLG_TCP_NAME_BYTES]; /* PERF_LAYER: of the prefill node; else empty */
};

/* Where an end can be written to. Crosses the wire as it is. */
struct perf_ready {
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    uint32_t address_bytes;
    uint32_t pad; /* 0 */
    uint64_t
        token; /* of serve: what the peers' connections of a core's bench show, see perf_door.c */
    uint64_t base;
    uint64_t key;
};

/* ---- perf_arena.c ---- */

/* One side's memory. Requests are [layers][pages]; a target has PERF_SLOTS of them for each peer. */
struct perf_arena {
    struct perf_case shape;
    struct hlg_memory *memory;
    uint64_t bytes;
    uint64_t peer_bytes; /* of one peer's part */
    uint32_t page_count; /* of one layer of one peer's part */
    uint32_t *pages;     /* [page_count] page that position i of a layer lies in */
    uint8_t *page; /* [page_bytes] on its way to the memory or from it, which the CPU may not see */
};

/* Memory of the case's kind, on GPU `device`; host memory is touched. Returns 0, or an error with a sentence. */
int perf_arena_open(const struct perf_case *shape, bool target, int32_t device,
                    struct perf_arena *arena, char *error);
void perf_arena_close(struct perf_arena *arena);
/* Which page each position lies in, [page_count], for free(): in order, or a fixed shuffle, another one at
 * each side. NULL: no memory. Looks at shape and page_count alone. */
uint32_t *perf_arena_order(const struct perf_arena *arena, bool target);
/* First byte of position `position` of a layer in a peer's part; slot s begins at s * shape.pages. */
uint64_t perf_arena_offset(const struct perf_arena *arena, uint32_t peer, uint32_t layer,
                           uint32_t position);
/* One peer's part, for pumps and messengers; a source has one part. */
struct hlg_mem_region perf_arena_region(const struct perf_arena *arena, uint32_t peer);
/* Of a node with one lane whose pages are one piece each. */
void perf_arena_layout(const struct perf_arena *arena, struct hlg_layout *layout);
/* Source: the pattern of an iteration; `plant`: but for one byte. Target: bytes of `slots` slots of all peers that
 * differ from it. Both return 0, or what hlg_memory_read() does. */
int perf_arena_fill(struct perf_arena *arena, uint64_t iteration, bool plant);
int perf_arena_wrong(const struct perf_arena *arena, uint64_t iteration, uint32_t slots,
                     uint64_t *wrong);

/* ---- perf_link.c ---- */

enum perf_message_kind {
    PERF_MESSAGE_HELLO = 1, /* both: the version; first */
    PERF_MESSAGE_CASE,      /* run: open a bench; of PERF_LAYER a decode node: the answer is UP */
    PERF_MESSAGE_READY,     /* serve: it is open; run: so is mine, join it */
    PERF_MESSAGE_UP,        /* serve: joined */
    PERF_MESSAGE_GO,        /* run: move so many */
    PERF_MESSAGE_DONE,      /* serve: they are here */
    PERF_MESSAGE_END,       /* run: close the bench */
    PERF_MESSAGE_ERROR,     /* serve: a sentence; the connection ends */
    PERF_MESSAGE_PEER, /* run, first on another connection: it is of a core's bench, by its token */
};

struct perf_message {
    uint32_t bytes; /* as in wire.h: of what follows */
    uint16_t version;
    uint16_t wire_kind; /* 0: no frame of the messenger's */
    uint32_t kind;      /* enum perf_message_kind */
    uint32_t bench;
    union {
        struct perf_case shape;  /* CASE */
        struct perf_ready ready; /* READY */
        uint64_t token;          /* PEER */
        struct {
            uint64_t count;     /* requests of each peer; pieces where there are none; pings */
            uint64_t iteration; /* of the pattern; 0: nobody looks */
            uint64_t wrong;     /* DONE: bytes */
            uint64_t ready_ns;  /* DONE of a layer run: CLOCK_MONOTONIC of the serving host */
        } go;
        char text[PERF_ERROR_BYTES];
    };
};

/* Returns 0 or -HLG_EPEER. */
int perf_send(struct hlg_channel *channel, struct perf_message *message);
/* Returns 1 with *message, 0 when none has come, -HLG_EPEER at the end, -HLG_EPROTO for anything else. */
int perf_receive(struct hlg_channel *channel, struct perf_message *message);
/* As receive, but sleeps until one has come, at most `span`, or until a signal of perf_interrupted(). */
int perf_await(struct hlg_channel *channel, hlg_time span, struct perf_message *message);
/* Whether a case from the other side is within all bounds; else a sentence. */
bool perf_case_check(const struct perf_case *shape, char *error);

/*
 * Against a provider that never returns, as shm of 1.17 does when its peer has died: the process ends with a
 * sentence unless this is called again, or with NULL, within PERF_STUCK_S seconds. `program` is kept.
 */
void perf_watch(const char *program);

/* ---- ends of a bench: perf_core.c, perf_ping.c, perf_bare.c ---- */

struct perf_end;

struct perf_end_ops {
    /* One round of whatever is under way. Returns 0, or an error with perf_end.error set. */
    int (*step)(struct perf_end *end);
    /* The other end's address, for those that have one. */
    int (*join)(struct perf_end *end, const struct perf_ready *other);
    bool (*joined)(const struct perf_end *end);
    void (*begin)(struct perf_end *end, uint64_t count);
    bool (*over)(const struct perf_end *end);
    void (*close)(struct perf_end *end);
};

struct perf_end {
    const struct perf_end_ops *ops;
    struct perf_arena *arena;
    bool target;
    struct perf_ready ready;
    hlg_time *samples; /* of pings, [sample_count <= sample_capacity] round trips */
    uint64_t sample_count;
    uint64_t sample_capacity;
    char error[PERF_ERROR_BYTES];
};

/* Where endpoints and memory are opened. */
struct perf_place {
    const char *node; /* IP address, or NULL */
    int32_t device;   /* GPU */
};

/* ---- perf_fabric.c ---- */

/* A provider, and before it what stages memory of GPUs where the case says so. */
struct perf_fabric {
    struct hlg_fabric *top;    /* for pumps and messengers */
    struct hlg_fabric *ofi;    /* NULL: not open */
    struct hlg_staged *staged; /* NULL: none */
};

/* Opens what the case needs: rails and window of 0 take defaults. Returns 0, or an error with a sentence. */
int perf_fabric_open(const struct perf_case *shape, const struct perf_place *place, bool target,
                     struct perf_fabric *fabric, char *error);
void perf_fabric_close(struct perf_fabric *fabric);
/* "host memory", "memory of GPUs", "memory of GPUs staged through pinned host memory" */
const char *perf_way_text(const struct perf_way *way);

/* Each opens an end in memory of its own. Returns 0, or an error with a sentence. */
int perf_core_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error);
/* Gives the next peer's channel to it; it owns the channel. */
int perf_core_channel(struct perf_end *end, struct hlg_channel *channel);
int perf_ping_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error);
int perf_bare_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error);
int perf_end_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                  struct perf_end **end, char *error);

/* ---- perf_node.c ---- */

/* A messenger and what it stands on, at either side of a layer run. */
struct perf_node {
    struct perf_arena arena;
    struct perf_fabric fabric;
    struct hlg_messenger *messenger;
};

/* Opens memory and fabric, and fills in what both sides' messengers have alike. Returns 0, or an error with a
 * sentence; perf_node_close() either way. */
int perf_node_open(struct perf_node *node, enum hlg_role role, const struct perf_case *shape,
                   const struct perf_place *place, bool insecure,
                   struct hlg_messenger_config *config, char *error);
/* Makes the messenger and starts it. `word`: counter word 0, or NULL. */
int perf_node_start(struct perf_node *node, const struct hlg_messenger_config *config,
                    const HLG_ATOMIC_U32 *word, char *error);
/* Returns 1 with the next report; 0 when none came within `span` or before a signal. */
int perf_node_report(struct perf_node *node, hlg_time span, struct hlg_report *report);
void perf_node_close(struct perf_node *node);

/* ---- perf_layer.c, perf_layer_target.c ---- */

/* The decode node of a layer run. */
struct perf_layer_target;

int perf_layer_target_open(const struct perf_case *shape, const struct perf_place *place,
                           bool insecure, struct perf_layer_target **target, char *error);
/* Takes NULL. */
void perf_layer_target_close(struct perf_layer_target *target);
/* Asks for so many requests, one after the other, and tells of each when it is ready. */
int perf_layer_target_go(struct perf_layer_target *target, struct hlg_channel *channel,
                         uint64_t count, char *error);

/* ---- perf_door.c ---- */

/*
 * Whoever connects to serve says in its first message what it is: one who asks (HELLO), of whom one at a time is
 * served and others hear so, or a peer's connection of the bench that is open (PEER, with its token).
 */
struct perf_door;

int perf_door_open(const char *listen, struct perf_door **door, char *error);
void perf_door_close(struct perf_door *door);
/* Address listened on. */
const char *perf_door_name(const struct perf_door *door);
/* The next who asks, greeted; NULL: none within `span`, or a signal came. */
struct hlg_channel *perf_door_asker(struct perf_door *door, hlg_time span);
/* The next connection with this token, NULL: none now. Whoever asks hears that `busy_with` is served. */
struct hlg_channel *perf_door_peer(struct perf_door *door, uint64_t token, const char *busy_with);

/* ---- perf_serve.c ---- */

struct perf_serve {
    const char *program;
    const char *listen;
    struct perf_place place;
    bool insecure;
    bool once; /* one connection, then end */
};

/* Returns an enum cli_exit. `port_fd` >= 0: the address listened on is written there. */
int perf_serve(const struct perf_serve *serve, int port_fd);

/* ---- perf_run.c ---- */

struct perf_options {
    const char *program;
    const char *address; /* of serve; NULL: --local */
    struct perf_place place;
    const char *provider;
    const char *json_file;
    const char *tsv_file;
    bool cuda;
    bool staged;
    bool device; /* one was named */
    bool local;
    bool insecure;
    bool bare;
    bool check;
    bool plant; /* for tests: a wrong byte */
    bool contiguous;
    bool scattered;
    bool latency;
    uint32_t sizes[PERF_SIZES_MAX];
    uint32_t size_count;
    uint32_t pages; /* 0: by size */
    uint32_t peers;
    uint32_t rails;
    uint32_t window;
    uint32_t rounds; /* repetitions, or pairs; 0: default */
    uint32_t pairs;
    uint32_t span_ms; /* of one repetition */
    /* layer */
    uint32_t page_bytes;
    uint32_t layers;
    uint32_t forwards;
    uint32_t layer_us;
    int cpu;     /* of the core thread; -1: none */
    bool thread; /* the layer poller's thread looks at the counter too, in a run of its own */
    bool core;   /* the core thread does */
};

struct perf_rate {
    uint64_t writes;
    hlg_time ns;
};

/* What became of one case. */
struct perf_row {
    struct perf_case shape;
    uint32_t rounds; /* done */
    struct perf_rate core[PERF_ROUNDS_MAX];
    struct perf_rate bare[PERF_ROUNDS_MAX];
    hlg_time latency_ns[4]; /* one way: mean, p50, p90, p99; all 0: not measured */
    uint64_t wrong;
    uint64_t checked; /* bytes */
};

struct perf_result {
    const struct perf_options *options;
    struct perf_way way;
    struct perf_row *rows; /* [row_count <= row_capacity] */
    uint32_t row_count;
    uint32_t row_capacity;
    bool interrupted;
};

int perf_run(const struct perf_options *options);
int perf_layer(const struct perf_options *options);

/* A connection to `serve`, started here where options say so. */
struct perf_session {
    const struct perf_options *options;
    struct hlg_channel *channel;
    char address[HLG_TCP_NAME_BYTES];
    char node[HLG_TCP_IP_BYTES]; /* of our endpoints */
    struct perf_way way;
    struct perf_place place;
    int child; /* pid, or 0 */
};

/* Returns 0, or with a sentence on standard error the program's exit status. */
int perf_session_open(const struct perf_options *options, struct perf_session *session);
void perf_session_close(struct perf_session *session);

/* What came from the other side instead of the message that was due, as a sentence. Returns an error. */
int perf_session_wrong(int got, const struct perf_message *message, char *error);
/* Waits for a message of that kind. Returns 0, or an error with a sentence. */
int perf_session_await(struct perf_session *session, uint32_t kind, hlg_time span,
                       struct perf_message *message, char *error);

/* Standard error where JSON goes to the standard output, else that. */
FILE *perf_out(const struct perf_options *options);
hlg_time perf_now(void);
/* SIGINT or SIGTERM came since perf_catch(). */
bool perf_interrupted(void);
void perf_catch(void);

/* ---- perf_table.c ---- */

void perf_table_head(const struct perf_result *result, FILE *out);
void perf_table_row(const struct perf_result *result, const struct perf_row *row, FILE *out);
void perf_table_foot(const struct perf_result *result, FILE *out);
/* Each returns an enum cli_exit. */
int perf_json(const struct perf_result *result);
int perf_tsv(const struct perf_result *result);
/* Quantile q (0..1) of `count` numbers, which are sorted. */
double perf_quantile(double *values, uint32_t count, double q);

#endif
