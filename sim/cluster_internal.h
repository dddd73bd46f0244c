/*
 * What the files of the simulated cluster share.
 *
 *   cluster.c         the run: arrivals, the loop, the end
 *   cluster_heap.c    what is to happen, by time
 *   cluster_roster.c  objects by number
 *   cluster_layout.c  layouts, folding, limits
 *   cluster_setup.c   making and unmaking nodes
 *   cluster_net.c     the network's turn, and each node's
 *   cluster_request.c a request's way through routers, retries and its end
 *   cluster_end.c     what is summed and asserted at the end
 *   cluster_fault.c   deaths, repairs, slow NICs
 *   cluster_sample.c  integrals over time and the series
 *   prefill_node.c    the modelled prefill engine
 *   decode_node.c     the modelled decode engine
 *   mixed_node.c      co-located nodes, which need no network
 *
 * Times in here count from the start of the run; the network's own clock is `base` ahead.
 */
#ifndef HALAGE_SIM_CLUSTER_INTERNAL_H
#define HALAGE_SIM_CLUSTER_INTERNAL_H

#include "batch.h"
#include "cluster.h"
#include "mixed.h"
#include "pages.h"
#include "router.h"

#include <halage/pump.h>
#include <halage/transport/simgrid.h>

#define CLUSTER_FAILURES_MAX 3u /* tries after the first one */
#define CLUSTER_RETRY_NS     (10 * HLG_NS_PER_MS)
#define CLUSTER_PATIENCE     10u /* each failure makes the next pause so many times as long */
#define CLUSTER_HOMELESS_NS  (100 * HLG_NS_PER_MS)
#define CLUSTER_DIAL_NS      (100 * HLG_NS_PER_MS)
#define CLUSTER_TTL_NS       (600 * HLG_NS_PER_S) /* of a request, in a run with faults */
#define CLUSTER_PROMPT_BYTES 16u
#define CLUSTER_DAYS_MAX \
    100u /* of a run with a network: operation clocks and leases know no more */
#define CLUSTER_SAMPLE_PACE_NS (10 * HLG_NS_PER_MS) /* at first */

enum event_kind {
    EVENT_ARRIVE = 1, /* index: request */
    EVENT_INGESTED,   /* index: job */
    EVENT_ROUTE,      /* index: job; again, after a failure */
    EVENT_DISPATCHED, /* index: work; its prefill engine has it */
    EVENT_NEWS,       /* index: intake; its decode engine knows that it is READY */
    EVENT_TICK,       /* of the forward that runs; index: layer */
    EVENT_COMPOSE,    /* a prefill engine that ran into a limit looks again */
    EVENT_BATCH,      /* of a decode engine */
    EVENT_MIXED,      /* of a co-located node */
    EVENT_QUEUED,     /* index: job; its co-located engine has it */
    EVENT_DEADLINE,   /* of a pump */
    EVENT_DIAL,       /* index: prefill node; a decode node's session with it ended */
    EVENT_FAULT,      /* index: of the scenario */
    EVENT_SAMPLE,
};

struct event {
    hlg_time at;
    uint64_t sequence; /* ties go by order of scheduling */
    uint32_t kind;
    uint32_t node;
    uint32_t index;
    uint32_t serial; /* of the object: an event of an older one is none */
};

struct heap {
    struct event *events;
    uint32_t count;
    uint32_t capacity;
    uint32_t lasting; /* of them, those that bring a request on */
    uint64_t sequence;
};

/* First member of what a roster keeps. Numbers are reused, (number, serial) is not. */
struct roster_item {
    uint32_t number;
    uint32_t serial;
    uint32_t next_free;
    bool used;
};

struct roster {
    void **items; /* each stays where it is */
    uint32_t count;
    uint32_t capacity;
    uint32_t free_head;
    uint32_t used;
    size_t bytes;
};

/* A request from its arrival to its end, over all its attempts. */
struct job {
    struct roster_item item;
    uint32_t request;
    uint32_t next;   /* in a decode rank's queue */
    uint32_t tokens; /* of this attempt's prompt, as the messenger counts them */
    uint32_t output; /* tokens that this attempt is to make */
    uint32_t made;   /* by earlier ones */
    uint32_t failures;
    uint32_t node; /* decode or co-located node, or HLG_NONE */
    uint32_t rank;
    uint32_t intake; /* number, or HLG_NONE */
    bool queued;
    hlg_time queued_at; /* co-located: of the EVENT_QUEUED that counts */
    uint64_t *names;    /* co-located: of its pages, until it leaves */
    uint32_t names_max;
};

/* One SUBMIT of a decode engine, until its pages are back. */
struct intake {
    struct roster_item item;
    uint32_t job; /* number; HLG_NONE: it failed, and its request goes on elsewhere */
    uint32_t node;
    uint32_t rank;
    uint32_t slot;        /* of the node: context page, and number in the batch */
    uint32_t peer_target; /* of the prefill router, while its load counts there */
    uint32_t flying;      /* prefill node that has not got its REQUEST yet, or HLG_NONE */
    bool joined;          /* it is in the batch */
    bool ready;
    hlg_handle handle;
    uint32_t *pages;
    uint32_t page_count;
    uint32_t page_capacity;
    uint32_t room; /* tokens that the batch knows of */
    uint8_t prompt[CLUSTER_PROMPT_BYTES];
};

/* One request at a prefill engine. */
struct work {
    struct roster_item item;
    uint32_t node;
    uint32_t rank;
    uint32_t slot; /* of the node: context page */
    uint32_t next; /* in a rank's queue */
    uint32_t request;
    uint32_t intake; /* with its serial: whose record this is */
    uint32_t intake_serial;
    uint32_t tokens;
    uint32_t announced; /* tokens, cached ones included */
    bool dispatched;
    bool admitted;
    bool started; /* some chunk of it is announced */
    bool queued;
    bool stopping;
    hlg_handle handle;
    uint32_t *pages;
    uint32_t page_count;
    uint32_t page_capacity;
};

struct queue {
    uint32_t head; /* numbers of jobs or works */
    uint32_t tail;
    uint32_t count;
};

/* Numbers below a bound that are in nobody's hands. */
struct numbers {
    uint32_t *free;
    uint32_t count;
};

/* A part of a prompt in a forward. */
struct part {
    uint32_t work;
    uint32_t serial;
    uint32_t rank;
    uint32_t tokens;
    uint32_t context;
    bool first;
    bool last;
};

struct forward {
    uint32_t number; /* as the core counts; 0: none */
    struct part *parts;
    uint32_t count;
    uint32_t capacity;
    uint64_t tokens;
    hlg_time begin;
    hlg_time span;
    hlg_time overhead;
    bool beyond; /* its price is beyond what was measured */
};

struct prefill_engine {
    struct queue *queues; /* [ranks] works, in order of arrival */
    uint32_t **valid;     /* [ranks][pages] forward that computed the page's content */
    uint32_t *works;      /* [requests_max] by index in the machine's table */
    uint32_t forward_number;
    uint32_t composing; /* number of the forward that is being composed, or 0 */
    uint32_t running;   /* index into forwards, or HLG_NONE */
    uint32_t composed;
    struct forward forwards[2];
    uint32_t open; /* requests that it has, or that are on their way to it */
    bool full;
    bool *rank_busy; /* [ranks] of the forward that runs */
    bool retry_armed;
};

struct decode_engine {
    struct queue *queues; /* [ranks] jobs that wait for pages */
    struct numbers slots;
    uint32_t *intakes; /* [slots] */
    struct sim_batch *batch;
    hlg_time batch_at; /* of the EVENT_BATCH that counts */
    bool starved;      /* of slots */
    bool blocked;      /* all prefill nodes have as many requests as they take */
};

struct mixed_node {
    struct sim_mixed *mixed;
    struct queue queue; /* jobs beyond requests_max */
    uint32_t open;      /* others */
    hlg_time at;        /* of the EVENT_MIXED that counts */
};

/* What a notice says, kept until the pump's call is over. */
struct letter {
    struct hlg_notice notice;
    uint8_t prompt[CLUSTER_PROMPT_BYTES];
    uint32_t tokens;
};

struct node {
    struct cluster *cluster;
    uint32_t index;  /* in the network: prefill first */
    uint32_t number; /* among its kind */
    bool decode;
    bool alive;
    bool dirty;   /* waits for its turn */
    bool turning; /* has it */
    uint32_t incarnation;
    struct hlg_pump *pump;
    struct letter *letters;
    uint32_t letter_count;
    uint32_t letter_capacity;
    hlg_time deadline_at; /* of the earliest EVENT_DEADLINE */
    uint32_t *peer_of;    /* [nodes of the other kind] pump's number, or HLG_NONE */
    uint32_t *node_of;    /* [peers_max] the reverse */
    bool *peer_up;
    struct sim_pages **pages; /* [ranks] */
    uint32_t ranks;
    uint32_t pages_used; /* all ranks */
    hlg_time pages_since;
    hlg_time busy_since; /* HLG_TIME_NEVER: idle */
    double busy_sampled; /* at the last sample */
    uint64_t bytes_sampled;
    struct sim_node_totals totals;
    struct prefill_engine prefill;
    struct decode_engine decoder;
    struct mixed_node mixed;
};

struct fold {
    bool on;
    bool rank_to_rank; /* every replica offset but 0 is a mere renaming */
    uint32_t lanes;    /* of a node in the network, the larger of both kinds */
    double scale[2];   /* bandwidth of a lane's rail over a NIC's */
};

struct cluster {
    const struct sim_scenario *scenario;
    const struct sim_workload *workload;
    const struct sim_run_options *options;
    struct sim_run *run;
    struct hlg_simgrid *net;
    hlg_time base;
    hlg_time now;
    struct heap heap;
    struct roster jobs;
    struct roster intakes;
    struct roster works;
    struct node *nodes; /* [node_count] prefill first */
    uint32_t node_count;
    uint32_t prefills;
    uint32_t decodes;
    uint32_t *dirty; /* [node_count] */
    uint32_t dirty_count;
    struct sim_router *routers[2]; /* prefill, decode: target = rank * nodes + node */
    struct sim_cost *costs[2];
    struct hlg_layout layouts[2];
    struct hlg_limits limits[2];
    struct fold fold;
    uint32_t kv_pages[2]; /* of a rank */
    double step_overhead_ns;
    uint64_t page_bytes;    /* of KV of one page, over all layers and ranks of a decode pool */
    uint64_t context_bytes; /* likewise, of a request's context */
    uint32_t slices;        /* of the plan between two nodes */
    void *memory;           /* never touched */
    uint64_t memory_bytes;
    uint64_t *names; /* scratch: of the pages of one request's prompt, as follows */
    uint32_t names_max;
    uint32_t names_count;
    uint32_t names_request;
    uint32_t names_page_tokens;
    struct sim_chunk *chunks; /* scratch */
    uint32_t chunks_max;
    struct sim_rank_step *steps; /* scratch, [ranks of a prefill node] */
    uint64_t incarnations;
    uint32_t arrived;  /* requests that came in */
    uint32_t limit;    /* requests that may come in */
    uint32_t gate;     /* while warming up: requests below it alone may */
    uint32_t finished; /* of any outcome */
    uint32_t open;
    hlg_time open_since;
    hlg_time shift;      /* what the warm-up's drain adds to arrivals */
    hlg_time sampled_at; /* last sample */
    hlg_time pace;
    uint64_t turns;
    uint64_t hash;
    uint32_t full_count; /* prefill nodes that take no more */
    uint32_t unblocked;  /* decode node whose turn it is when they do again */
    bool greeting;       /* nodes are getting to know each other */
    bool faulty;
    bool colocated;  /* all nodes are prefill nodes in name, and there is no network */
    bool last_token; /* see struct sim_decode */
    hlg_time ingest_ns;
};

/* cluster_heap.c */
void heap_put(struct cluster *c, struct event event);
struct event heap_take(struct heap *heap);

/* cluster_roster.c */
void *roster_take(struct roster *roster);
void roster_give(struct roster *roster, void *item);
/* NULL when it is in use no more. */
void *roster_find(const struct roster *roster, uint32_t number, uint32_t serial);
void *roster_at(const struct roster *roster, uint32_t number);
void roster_free(struct roster *roster);
bool numbers_init(struct numbers *numbers, uint32_t count);
/* Memory beyond what set-up took; its lack ends the process. */
void *cluster_grow(void *memory, size_t count, size_t bytes);

/* cluster_layout.c */
int cluster_lay_out(struct cluster *c, char *text, size_t capacity);
void cluster_limits(struct cluster *c, uint32_t kind);

/* cluster_setup.c */
int cluster_open(struct cluster *c, char *text, size_t capacity);
void cluster_close(struct cluster *c);
/* It dies: what it had is gone. */
void cluster_stop_node(struct cluster *c, struct node *n);
int cluster_start_node(struct cluster *c, struct node *n, char *text, size_t capacity);
void cluster_dial_later(struct cluster *c, struct node *decode, uint32_t prefill);
void cluster_connect(struct cluster *c, struct node *prefill, struct node *decode);
void cluster_set_up(struct cluster *c, struct node *n);

/* cluster_net.c */
/* Perform the network's next happening if it is due by `limit`, or else let it be `limit`. Returns
 * whether there was one. */
bool net_step(struct cluster *c, hlg_time limit);
/* The same before time begins. */
bool net_greet(struct cluster *c);
void net_dirty(struct node *n);
/* Give all nodes that have something to do their turn. */
void net_turn(struct cluster *c);
/* Hand an event to a node's pump; what it leads to is done in the node's turn. */
int net_event(struct node *n, struct hlg_event *event);

/* cluster.c */
void cluster_trace(struct cluster *c, uint32_t kind, uint64_t a, uint64_t b);
struct sim_record *cluster_record(const struct cluster *c, const struct job *job);
/* Now is that moment of the job's request, unless its first token was out before. */
void cluster_stamp(struct cluster *c, const struct job *job, enum sim_moment moment, hlg_time at);
void cluster_span(struct cluster *c, const struct sim_span *span);
/* A finished request's life, for options.span. */
void cluster_tell_spans(struct cluster *c, const struct job *job, uint32_t node);

/* cluster_request.c */
/* The first arrivals. */
void request_begin(struct cluster *c);
void request_arrive(struct cluster *c, uint32_t request);
void request_route(struct cluster *c, struct job *job);
/* This attempt is over without success; the job has no intake any more. */
void request_failed(struct cluster *c, struct job *job, uint32_t reason, hlg_time pause);
void request_preempted(struct cluster *c, struct job *job, uint32_t tokens);
void request_end(struct cluster *c, struct job *job, enum sim_outcome outcome, uint32_t reason);
uint32_t request_pages(uint32_t tokens, uint32_t page_tokens);
/* Names of a prompt's whole pages whose prefix is known, in c->names. Returns how many. */
uint32_t request_names(struct cluster *c, uint32_t request, uint32_t page_tokens);

/* prefill_node.c */
int prefill_open(struct node *n);
void prefill_close(struct node *n);
void prefill_letter(struct node *n, const struct letter *letter);
void prefill_dispatched(struct node *n, struct work *w);
void prefill_tick(struct node *n, uint32_t layer);
void prefill_poke(struct node *n);
/* One more request is on its way to it, or one less is there. */
void prefill_count(struct node *n, int32_t more);
void prefill_died(struct node *n);

/* decode_node.c */
int decode_open(struct node *n, char *text, size_t capacity);
void decode_close(struct node *n);
void decode_letter(struct node *n, const struct letter *letter);
void decode_enqueue(struct node *n, struct job *job);
void decode_look(struct node *n);
void decode_unblock(struct cluster *c);
void decode_news(struct node *n, struct intake *intake);
void decode_batch(struct node *n);
void decode_died(struct node *n);
uint32_t decode_pages_wanted(const struct cluster *c, const struct job *job);
/* Its request is computed, or given up: it weighs no more on the prefill router. */
void intake_unload(struct cluster *c, struct intake *intake);

/* mixed_node.c */
int mixed_open(struct cluster *c, char *text, size_t capacity);
void mixed_close(struct cluster *c);
int mixed_start(struct node *n, char *text, size_t capacity);
void mixed_stop(struct node *n);
void mixed_route(struct cluster *c, struct job *job);
void mixed_queued(struct cluster *c, struct job *job);
void mixed_advance(struct node *n);
/* Before its engine is destroyed: what it counted goes into the run. */
void mixed_sum(struct node *n);

/* cluster_fault.c */
void fault_begin(struct cluster *c);
void fault_happen(struct cluster *c, uint32_t index);
void fault_dial(struct cluster *c, struct node *decode, uint32_t prefill);

/* cluster_end.c */
void cluster_sum(struct cluster *c);

/* cluster_sample.c */
void sample_pages(struct node *n); /* before pages of a node change hands */
void sample_pages_after(struct node *n);
void sample_open(struct cluster *c); /* before `open` changes */
void sample_busy(struct node *n, bool busy);
void sample_take(struct cluster *c);
void sample_end(struct cluster *c);
/* Before a pump or a batch is destroyed: what it counted goes into the run. */
void sample_stats(struct cluster *c, struct node *n);
void sample_batch(struct cluster *c, struct node *n);

static inline uint32_t cluster_kind(const struct node *n)
{
    return n->decode ? 1u : 0u;
}

static inline const struct sim_engine *cluster_engine(const struct node *n)
{
    if (n->cluster->colocated) {
        return &n->cluster->scenario->colocated.engine;
    }
    return n->decode ? &n->cluster->scenario->decode.engine : &n->cluster->scenario->prefill.engine;
}

static inline struct node *cluster_decode_node(struct cluster *c, uint32_t number)
{
    return &c->nodes[c->prefills + number];
}

#endif
