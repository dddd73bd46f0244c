/*
 * The storm: whole nodes (real machine, real pump) with small fake engines on the loop network, all
 * drawn from one seed. Real bytes: each byte of KV is a function of (request, layer, plane, head,
 * token), so that a byte at the wrong place, of the wrong time or of another request is seen.
 *
 * Checked always: no landing touches a page that its engine holds free (I1); no source page is read
 * after it was given back (I1b); READY means every planned byte is right; one terminal notice a
 * request, and one for its pages; both machines' own checks after every event; at rest, nothing is
 * open and every page is back.
 */
#ifndef HALAGE_TESTS_DST_WORLD_H
#define HALAGE_TESTS_DST_WORLD_H

#include "../../src/driver/rng.h"
#include <halage/pump.h>
#include <halage/transport/loop.h>

#define PREFILLERS_MAX 2u
#define DECODERS_MAX   3u
#define NODES_MAX      (PREFILLERS_MAX + DECODERS_MAX)
#define PAGES_MAX      64u
#define LANES_MAX      16u
#define REQUESTS_MAX   16u
#define TOKENS_MAX     48u
#define FORWARDS_MAX   3u

/* One request as an engine sees it; decode and prefill engines keep one each. */
struct job {
    bool used;
    bool ready;    /* decode: READY, until released */
    bool failed;   /* decode: FAILED said, pages not back */
    bool admitted; /* prefill */
    bool stopping; /* prefill */
    bool rejected; /* prefill: the engine will say no */
    hlg_handle handle;
    uint64_t uid; /* of this attempt; in the prompt */
    uint32_t peer;
    uint32_t pool;
    uint32_t tokens;
    uint32_t computed;  /* prefill: tokens announced so far */
    uint32_t announced; /* prefill: tokens accepted as chunks */
    uint32_t first[HLG_GROUPS_MAX];
    uint32_t count[HLG_GROUPS_MAX];
    uint32_t pages[HLG_GROUPS_MAX][PAGES_MAX]; /* decode: asked ones; prefill: all */
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

struct node {
    struct world *world;
    uint32_t index;
    bool decode;
    bool alive;
    hlg_time restart_at;
    uint64_t incarnation;
    struct hlg_pump *pump;
    struct hlg_layout layout;
    uint32_t lanes;
    uint8_t *memory[LANES_MAX];
    uint64_t memory_bytes;
    uint32_t place_count;
    struct hlg_place *places;
    /* pages that the engine holds free, newest first (LIFO, so that a page is reused at once) */
    uint32_t free_count[4][HLG_GROUPS_MAX];
    uint32_t free_pages[4][HLG_GROUPS_MAX][PAGES_MAX];
    bool is_free[4][HLG_GROUPS_MAX][PAGES_MAX];
    bool poisoned[4][HLG_GROUPS_MAX][PAGES_MAX];
    struct job jobs[REQUESTS_MAX];
    uint32_t peer_of[NODES_MAX]; /* pump's peer number of the other node, or HLG_NONE */
    bool peer_up[NODES_MAX];
    uint32_t node_of[NODES_MAX * 4]; /* other node of a pump's peer; HLG_NONE: a stranger */
    hlg_time dial_at[NODES_MAX];
    /* prefill */
    struct forward_run forwards[FORWARDS_MAX];
    uint32_t forward_number;
    hlg_time forward_at;
    hlg_time stranger_at;
    /* decode */
    hlg_time submit_at;
};

struct storm_counts {
    uint64_t submitted;
    uint64_t ready;
    uint64_t failed[HLG_REASON_PREEMPTED + 1];
    uint64_t returned;
    uint64_t poisoned;
    uint64_t local; /* needed no prefiller */
    uint64_t bytes_checked;
    uint64_t landings;
    uint64_t early_landings; /* in pages of requests that had already failed */
    uint64_t aborts;
    uint64_t restarts;
    uint64_t steps;
    uint64_t notes[64];
};

struct world {
    uint64_t seed;
    struct hlg_rng rng;
    bool check; /* run the machines' own checks */
    bool calm;  /* faults are over: everything must come to rest */
    struct hlg_loop *loop;
    uint32_t prefillers;
    uint32_t decoders;
    uint32_t node_count;
    struct node nodes[NODES_MAX];
    uint64_t uid;
    uint32_t submits_left;
    /* drawn: what makes this world unlike an easy one */
    bool split;     /* each request has two sources, which share the ranks of one layout */
    bool tiny;      /* limits that are run into all the time */
    bool flush;     /* landed bytes need a FLUSH */
    bool late;      /* decode engines release READY requests late */
    bool fickle;    /* engines give most requests up */
    bool strangers; /* connections that say nothing and go, and sessions that engines end */
    uint32_t domains;
    struct storm_counts counts;
    const char *broken; /* first violation, or NULL */
    uint64_t broken_a;
    uint64_t broken_b;
    uint64_t plant; /* a fault of the engine that the checkers must see: enum storm_plant */
    char text[224]; /* what was drawn */
};

/* Faults planted in the fake engines, to prove that the checkers look. */
enum storm_plant {
    PLANT_NONE = 0,
    PLANT_TARGET_FREED_EARLY, /* decode engine reuses pages at FAILED rather than RETURNED */
    PLANT_SOURCE_FREED_EARLY, /* prefill engine reuses pages at the last chunk */
    PLANT_LAYER_EARLY,        /* the counter ticks before the layer is computed */
    PLANT_COUNT,
};

void world_break(struct world *w, const char *what, uint64_t a, uint64_t b);

/* content.c */
uint8_t content_byte(uint64_t uid, uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
                     uint32_t token, uint32_t byte);
/* Fill what rank `rank` of `layout` holds of tokens [begin, limit) at one layer, in pages named by
 * position. `check`: compare instead; returns the bytes that differ. */
uint64_t content_fill(struct node *n, const struct job *job, uint32_t group, uint32_t layer,
                      uint32_t rank, uint32_t begin, uint32_t limit, bool check);
uint8_t *node_page(struct node *n, uint32_t lane, uint32_t group, uint32_t layer, uint32_t plane,
                   uint32_t page);
/* Whether a byte of a lane's memory lies in a page; which one. */
bool node_find_page(const struct node *n, uint32_t lane, uint64_t offset, uint32_t *pool,
                    uint32_t *group, uint32_t *page);

/* node.c */
uint32_t node_hosted(const struct node *n); /* ranks, of one pool */
bool node_take(struct node *n, uint32_t pool, uint32_t group, uint32_t count, uint32_t *pages);
void node_give(struct node *n, uint32_t pool, uint32_t group, const uint32_t *pages,
               uint32_t count);
void node_start(struct node *n);
void node_stop(struct node *n);
static inline uint32_t draw_u32(struct world *w)
{
    return (uint32_t)(hlg_rng_next(&w->rng) >> 32);
}
/* Below `limit`. */
static inline uint32_t draw(struct world *w, uint32_t limit)
{
    return (uint32_t)hlg_rng_below(&w->rng, limit);
}
bool chance(struct world *w, uint32_t ppm);
hlg_time soon(struct world *w, hlg_time most);
/* When an engine gives a new request up: never, for most. */
hlg_time give_up_time(struct world *w, uint32_t ppm);

/* prefill_engine.c, decode_engine.c */
void prefill_notice(struct node *n, const struct hlg_notice *notice);
void decode_notice(struct node *n, const struct hlg_notice *notice);
void prefill_act(struct node *n, hlg_time now);
void decode_act(struct node *n, hlg_time now);
hlg_time prefill_next(const struct node *n);
hlg_time decode_next(const struct node *n);
void prefill_died(struct node *n);
void decode_died(struct node *n);

/* world.c: run one seed. Returns 0, or 1 with world->broken set. `hash`: of all that happened;
 * `faults` may be NULL: then it is a repetition, and the machines' own checks are left out. */
int storm_run(uint64_t seed, uint64_t plant, struct world *w, uint64_t *hash,
              struct hlg_loop_stats *faults);

#endif
