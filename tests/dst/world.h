/*
 * The storm: whole nodes (real machine, real pump) with small fake engines on the loop network, all
 * drawn from one seed. Real bytes: each byte of KV is a function of (request, layer, plane, head,
 * token), so that a byte at the wrong place, of the wrong time or of another request is seen.
 *
 * A run has four phases: faults and requests (STORM); no more faults, everything open must end in bound
 * (SETTLE); a request between every two nodes that can have one must become READY (PROBE); nothing may
 * be held any more (REST).
 */
#ifndef HALAGE_TESTS_DST_WORLD_H
#define HALAGE_TESTS_DST_WORLD_H

#include "../../src/core/census.h"
#include "../../src/driver/rng.h"
#include "kinds.h"
#include <halage/pump.h>
#include <halage/transport/fault.h>
#include <halage/transport/loop.h>

#define PREFILLERS_MAX 4u
#define DECODERS_MAX   4u
#define NODES_MAX      (PREFILLERS_MAX + DECODERS_MAX)
#define PEERS_MAX      (NODES_MAX * 4)
#define PAGES_MAX      64u
#define POOLS_MAX      4u
#define LANES_MAX      16u
#define REQUESTS_MAX   16u
#define TOKENS_MAX     48u
#define FORWARDS_MAX   3u
#define LAYERS_MAX     5u /* the context's among them */
#define SLOTS_MAX      (REQUESTS_MAX * PREFILLERS_MAX)
#define GENERATIONS    32u   /* that are remembered of a slot */
#define SCRIBBLE       0xEEu /* over pages that nobody has */
#define STORY_LINES    48u
#define STORY_BYTES    112u

/* Limits in time, all virtual. */
#define LEASE_NS     (200 * HLG_NS_PER_MS)
#define HEARTBEAT_NS (20 * HLG_NS_PER_MS)
#define FENCE_NS     (100 * HLG_NS_PER_MS)
#define TTL_NS       (1500 * HLG_NS_PER_MS)
#define CLOSE_NS     (3 * HLG_NS_PER_MS) /* an endpoint whose close failed is open so long at most */
/* After the calm a request is over at its deadline, and its pages are back one fence later, or when
 * the session that does not answer has been silent for a lease; engines and redials take the rest. */
#define SETTLE_NS (TTL_NS + FENCE_NS + LEASE_NS + 200 * HLG_NS_PER_MS)

enum phase {
    PHASE_STORM = 0,
    PHASE_SETTLE,
    PHASE_PROBE,
    PHASE_REST,
};

/* What to run: a seed, and what is taken out of what it draws. */
struct storm_case {
    uint64_t seed;
    uint32_t plant; /* enum storm_plant */
    storm_kinds without;
    uint32_t requests;
    uint32_t prefillers; /* at most */
    uint32_t decoders;   /* at most */
    const char *trace;   /* directory for the nodes' traces, or NULL */
};

/* One request as an engine sees it; decode and prefill engines keep one each. */
struct job {
    bool used;
    bool ready;    /* decode: READY, until released */
    bool failed;   /* decode: FAILED said, pages not back */
    bool probe;    /* decode: must become READY */
    bool admitted; /* prefill */
    bool stopping; /* prefill */
    bool rejected; /* prefill: the engine will say no */
    hlg_handle handle;
    uint64_t uid; /* of this attempt; in the prompt */
    uint32_t set; /* decode: of prefillers */
    uint32_t pool;
    uint32_t tokens;
    uint32_t computed;  /* prefill: tokens announced so far */
    uint32_t announced; /* prefill: tokens accepted as chunks */
    uint64_t landed;    /* decode: pieces, each once */
    uint64_t arrived;   /* decode: likewise, each time */
    uint64_t flushing;  /* of them, before the flush under way */
    uint64_t visible;   /* of them, before the last flush that went well */
    uint32_t first[HLG_GROUPS_MAX];
    uint32_t count[HLG_GROUPS_MAX];
    uint32_t pages[HLG_GROUPS_MAX][PAGES_MAX]; /* decode: asked ones; prefill: all */
    uint8_t fact[LANES_MAX][LAYERS_MAX];       /* prefill: [word][layer] tokens computed */
    uint8_t prompt[8];
    hlg_time release_at; /* decode: READY is kept until then */
    hlg_time give_up_at; /* the engine cancels it then */
};

/* A chunk of one job within a forward. */
struct piece_of_work {
    uint32_t job;
    hlg_handle handle;
    uint32_t begin;
    uint32_t count;
    bool last;
};

/* A forward pass that the fake engine runs: each counter word goes through its layers in time. */
struct forward_run {
    uint32_t number; /* 0: unused */
    uint32_t work_count;
    struct piece_of_work work[REQUESTS_MAX];
    uint32_t done[LANES_MAX]; /* [words] layers computed */
    hlg_time next_at;
    bool over;  /* computed; FORWARD_END waits for end_at */
    bool abort; /* will be aborted rather than ended */
    hlg_time end_at;
};

/* What an engine knows of one of its pages. */
struct page {
    bool is_free;
    bool poisoned;
    uint8_t job;      /* that holds it */
    uint8_t position; /* in the request */
};

#define DEVICE_FLUSHES 2u /* at a time, few: more have to wait */

/* What makes landed bytes visible at a decode node, where the kind is on. */
struct device {
    struct hlg_flusher flusher; /* first */
    struct node *node;
    struct hlg_rng rng; /* of its own: the rest of the world draws what it drew without */
    uint32_t count;     /* under way, in order */
    hlg_handle requests[DEVICE_FLUSHES];
    hlg_time due[DEVICE_FLUSHES];
    hlg_time again; /* when who was refused is worth another look; HLG_TIME_NEVER: nobody was */
    bool ends;      /* the node goes: what is under way ends at once */
};

struct node {
    struct world *world;
    uint32_t index;
    bool decode;
    bool alive;
    hlg_time restart_at;
    uint64_t incarnation;
    uint32_t starts;
    uint8_t version;      /* of the model that it runs */
    bool draining;        /* takes no new requests; restarts once it has none */
    hlg_time drain_at;    /* begins to */
    hlg_time drain_until; /* restarts then whatever it has */
    struct hlg_pump *pump;
    struct hlg_fabric *fabric; /* the network's, decorated or not */
    struct tap *tap;
    struct hlg_trace *trace;
    struct hlg_layout layout;
    uint32_t lanes;
    uint8_t *memory[LANES_MAX];
    uint64_t memory_bytes;
    uint32_t place_count;
    struct hlg_place *places;
    uint32_t place_begin[LANES_MAX + 1]; /* of each lane */
    /* pages that the engine holds free, newest first (LIFO, so that a page is reused at once) */
    uint32_t free_count[POOLS_MAX][HLG_GROUPS_MAX];
    uint32_t free_pages[POOLS_MAX][HLG_GROUPS_MAX][PAGES_MAX];
    struct page pages[POOLS_MAX][HLG_GROUPS_MAX][PAGES_MAX];
    uint32_t poisonings;
    struct job jobs[REQUESTS_MAX];
    uint64_t slot_uid[SLOTS_MAX][GENERATIONS]; /* decode: whom REQUESTs gave a slot to */
    uint32_t peer_of[NODES_MAX]; /* pump's peer number of the other node, or HLG_NONE */
    bool peer_up[NODES_MAX];
    uint32_t node_of[PEERS_MAX];        /* other node of a pump's peer; HLG_NONE: a stranger */
    uint8_t version_of[PEERS_MAX];      /* that the other node ran when it was dialled */
    uint64_t incarnation_of[PEERS_MAX]; /* likewise */
    hlg_time dial_at[NODES_MAX];
    /* prefill */
    struct forward_run forwards[FORWARDS_MAX];
    uint32_t forward_number;
    hlg_time forward_at;
    hlg_time stranger_at;
    /* decode */
    struct device device;
    hlg_time submit_at;
    uint32_t probe; /* next set of prefillers to be asked in the calm */
};

struct storm_counts {
    uint64_t submitted;
    uint64_t ready;
    uint64_t failed[HLG_REASON_PREEMPTED + 1];
    uint64_t returned;
    uint64_t poisoned;
    uint64_t local; /* needed no prefiller */
    uint64_t landings;
    uint64_t pieces;
    uint64_t restarts;
    uint64_t probes;
    uint64_t old_keys; /* writes that found their endpoint's successor, and were kept out */
    uint64_t steps;
    uint64_t settle_ns_max;     /* longest time from calm to all ended */
    uint64_t net[KIND_COUNT];   /* hits of the loop and of engines; for ways: worlds */
    uint64_t fault[KIND_COUNT]; /* hits of the decorator */
    uint64_t looked[CHECKER_COUNT];
    uint64_t notes[64];
    uint64_t seeds;
};

struct world {
    struct storm_case what;
    struct hlg_rng rng;
    bool check; /* run the machines' own checks */
    bool calm;  /* faults are over: everything must come to rest */
    uint32_t phase;
    hlg_time calm_at;
    hlg_time probe_at;
    struct hlg_loop *loop;
    struct hlg_fault *fault; /* between pumps and loop; NULL: this world has none */
    uint32_t prefillers;
    uint32_t decoders;
    uint32_t node_count;
    uint32_t share; /* prefillers of a set: each has a part of the ranks */
    uint32_t sets;
    uint32_t rails;
    bool
        below; /* kinds that loop and decorator both know are the loop's here, else the decorator's */
    struct node nodes[NODES_MAX];
    uint64_t uid;
    uint32_t submits_left;
    hlg_time submit_at; /* of the last one of the storm */
    storm_kinds drawn;
    storm_kinds on; /* drawn, and not taken out */
    uint32_t domains;
    uint32_t merge_bytes_max; /* where KIND_DENSE is on */
    uint32_t endpoints;       /* open, as the taps count */
    struct storm_counts counts;
    uint64_t hash;   /* of what engines were told */
    uint32_t broken; /* first violation: enum storm_checker */
    const char *broken_text;
    uint64_t broken_a;
    uint64_t broken_b;
    bool planted;   /* the plant that happens once did */
    char text[320]; /* what was drawn */
    char story[STORY_LINES][STORY_BYTES];
    uint64_t story_count;
};

void world_break(struct world *w, enum storm_checker checker, const char *what, uint64_t a,
                 uint64_t b);
/* A checker looked at something. */
static inline void looked(struct world *w, enum storm_checker checker)
{
    w->counts.looked[checker]++;
}
/* Remember a happening for whoever reads of a failure: the last STORY_LINES are kept. */
void world_tell(struct world *w, const struct node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline uint32_t draw_u32(struct world *w)
{
    return (uint32_t)(hlg_rng_next(&w->rng) >> 32);
}
/* Below `limit`. */
static inline uint32_t draw(struct world *w, uint32_t limit)
{
    return (uint32_t)hlg_rng_below(&w->rng, limit);
}
static inline bool is_on(const struct world *w, enum storm_kind kind)
{
    return (w->on & STORM_KIND(kind)) != 0;
}
bool chance(struct world *w, uint32_t ppm);
/* Draws, and counts as a hit of that kind; never in the calm or where the kind is off. */
bool mischief(struct world *w, enum storm_kind kind, uint32_t ppm);
hlg_time soon(struct world *w, hlg_time most);
/* When an engine gives a new request up: never, for most. */
hlg_time give_up_time(struct world *w, uint32_t ppm);

/* content.c */
uint8_t content_byte(uint64_t uid, uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
                     uint32_t token, uint32_t byte);
/* Fill what rank `rank` of `layout` holds of tokens [begin, limit) at one layer, in pages named by
 * position. `check`: compare instead; returns the bytes that differ. */
uint64_t content_fill(struct node *n, const struct job *job, uint32_t group, uint32_t layer,
                      uint32_t rank, uint32_t begin, uint32_t limit, bool check);
/* Bytes of the slots of one token that are not as a page's owner left them: nobody may fill them. */
uint64_t content_touched(struct node *n, const struct job *job, uint32_t group, uint32_t layer,
                         uint32_t rank, uint32_t token);

/* node.c */
uint32_t node_hosted(const struct node *n); /* ranks, of one pool */
bool node_take(struct node *n, struct job *job, uint32_t group);
void node_give(struct node *n, const struct job *job, uint32_t group);
/* Never to be used again. */
void node_poison(struct node *n, const struct job *job, uint32_t group);
void node_start(struct node *n);
void node_stop(struct node *n);
/* Which page a byte of a lane's memory lies in; NULL: none. */
struct page *node_find_page(struct node *n, uint32_t lane, uint64_t offset,
                            const struct hlg_place **place, uint32_t *page);

/* prefill_engine.c, decode_engine.c */
void prefill_notice(struct node *n, const struct hlg_notice *notice);
void decode_notice(struct node *n, const struct hlg_notice *notice);
void prefill_act(struct node *n, hlg_time now);
void decode_act(struct node *n, hlg_time now);
hlg_time prefill_next(const struct node *n);
hlg_time decode_next(const struct node *n);
void prefill_died(struct node *n);
void decode_died(struct node *n);
/* Counter word that speaks for a lane. */
uint32_t prefill_word(const struct hlg_layout *layout, uint32_t lane);

/* life.c: nodes meet, leave, die and come back. */
void life_act(struct world *w, hlg_time now);
/* Whether and when a node that starts is taken out again. */
void life_plan(struct world *w, struct node *n, hlg_time now);
void life_meet(struct world *w, struct node *n, hlg_time now);
hlg_time life_next(const struct world *w, const struct node *n);
bool life_is_frozen(const struct node *n);
/* Every two nodes that can have a session have one. */
bool life_all_met(const struct world *w);
bool life_set_up(const struct node *n, uint32_t set);

/* tap.c: a fabric between the pump and the network, which sees what is posted. */
struct hlg_fabric *tap_open(struct node *n, struct hlg_fabric *below);
void tap_close(struct node *n);

/* flush.c: whether the device sees all that landed for a job, now that its pages change hands. */
void device_check(struct node *n, const struct job *job);
/* A device to which landed bytes are copied. Returns NULL where none is drawn. */
struct hlg_flusher *device_start(struct node *n);
hlg_time device_next(const struct node *n);

/* check.c */
void check_landing(void *context, const struct hlg_loop_landing *landing);
/* Bytes that a pump posts, of one page or of several in a row; `source` in the memory of that lane. */
void check_post(struct node *n, uint32_t lane, const uint8_t *source, uint32_t bytes);
void check_census(const struct node *n, struct hlg_census *census);
void check_tables(struct node *n);
void check_rest(struct world *w);

/* faults.c: the network's faults, of the loop and of the decorator. */
void faults_of_loop(const struct world *w, struct hlg_loop_faults *f);
/* Draws the decorator's, and gives each node its fabric. Returns false when memory ran out. */
bool faults_decorate(struct world *w, uint32_t lanes);
void faults_calm(struct world *w);
void faults_count(struct world *w);

/* draw.c: everything that a seed decides beforehand. Returns false when memory ran out. */
bool draw_world(struct world *w);
/* Peers that one endpoint may have. */
uint32_t draw_peers_max(const struct world *w, uint32_t lanes);

/* world.c: run one case. Returns 0, or 1 with world->broken set. `hash`: of all that happened.
 * `again`: it is a repetition, and the machines' own checks are left out. */
int storm_run(const struct storm_case *what, struct world *w, bool again, uint64_t *hash);

#endif
