/*
 * A small fixed world for the failure matrix and the golden stories: two prefillers, two decoders, real
 * machines and real pumps over the loop network, whose latencies are constant here, so that a request can
 * be brought to an exact point of its life. Engines do nothing by chance either. Bytes are real: each is a
 * function of (request, layer, plane, head, token), so that one at the wrong place, of the wrong time or
 * of another request is seen.
 *
 * Checked always: both machines' own checks after every step; no byte lands in a page that its engine
 * holds free, or in a page of another request; no source page is read after it was given back; READY
 * means every byte right; one terminal notice a request, and one for its pages. The first violation is
 * kept in `broken`.
 */
#ifndef HALAGE_TESTS_FAILURE_SCENE_H
#define HALAGE_TESTS_FAILURE_SCENE_H

#include <core/note.h>
#include <halage/pump.h>
#include <halage/transport/fault.h>
#include <halage/transport/loop.h>

#define LAYERS      4u
#define PLANES      2u
#define HEADS       2u
#define HEAD_BYTES  16u
#define PAGE_TOKENS 4u
#define PAGES       32u
#define CONTEXTS    8u
#define GROUPS      2u
#define JOBS_MAX    12u
#define JOB_PAGES   8u
#define LIVES_MAX   4u /* incarnations of a node */
#define PEERS_MAX   16u

#define US(n) ((hlg_time)(n)*1000u)
#define MS(n) ((hlg_time)(n)*1000000u)

/* Constant latencies of the world, and its nodes' limits. */
#define LAND_NS      US(100) /* from write to landing; the immediate follows US(20) later, ... */
#define DONE_NS      US(60)  /* ... the completion this much after the landing */
#define FRAME_NS     US(50)
#define LAYER_NS     US(200) /* what a layer takes to compute */
#define DIAL_NS      MS(1)
#define LEASE_NS     MS(100)
#define HEARTBEAT_NS MS(10)
#define FENCE_NS     MS(40)
#define STALL_NS     MS(20)

enum scene_node {
    DECODE_0,
    PREFILL_0,
    PREFILL_1,
    DECODE_1,
    NODES
};

enum target_state {
    TARGET_NONE,
    TARGET_REFUSED, /* SUBMIT said no */
    TARGET_OPEN,
    TARGET_READY,
    TARGET_RELEASED,
    TARGET_FAILED,
    TARGET_RETURNED,
    TARGET_POISONED,
    TARGET_GONE, /* with its node */
};

enum source_state {
    SOURCE_NONE, /* its prefiller has not heard of it */
    SOURCE_ASKED,
    SOURCE_ADMITTED,
    SOURCE_STOPPING,
    SOURCE_SENT,
    SOURCE_FENCED,
    SOURCE_POISONED,
    SOURCE_REJECTED,
    SOURCE_GONE, /* with its node */
};

struct job_source {
    uint32_t node;
    uint32_t state; /* enum source_state */
    uint32_t reason;
    hlg_handle handle;
    bool paged;         /* it has source pages */
    uint32_t announced; /* tokens, by chunks */
    uint32_t computed;
    uint32_t pages[JOB_PAGES]; /* all of the prompt */
    uint32_t context;
};

/* One request, as the engines of both sides see it. */
struct job {
    bool used;
    uint64_t uid;
    char id[16];
    uint32_t node; /* that decodes */
    uint32_t tokens;
    uint32_t first; /* pages that the decoder has */
    uint32_t count; /* pages asked */
    uint32_t pages[JOB_PAGES];
    uint32_t context;
    hlg_time ttl_ns;       /* 0: a minute */
    uint32_t chunk_tokens; /* 0: the whole prompt in one chunk */
    uint32_t cached;       /* tokens that the prefillers have */
    uint32_t stop_at;      /* tokens that are computed for now; 0: all */
    /* what the engines hold back */
    bool hold_answer;
    bool hold_chunk;
    bool hold_release;    /* READY is kept */
    uint32_t will_reject; /* bit i: the engine of source i */
    hlg_time retry_after;
    /* what became of it */
    uint32_t target; /* enum target_state */
    uint32_t reason;
    int submit_error;
    hlg_handle handle;
    uint32_t landed; /* pieces */
    hlg_time submitted_at;
    hlg_time terminal_at;
    hlg_time settled_at;
    hlg_time retry_heard;
    uint64_t pieces; /* expected */
    bool accepted;
    uint32_t source_count;
    struct job_source sources[2];
};

/* The forward pass that a prefill engine runs. */
struct forward {
    uint32_t number; /* 0: none */
    uint32_t layers; /* computed */
    uint32_t job_count;
    uint32_t jobs[JOBS_MAX];
    uint32_t begin[JOBS_MAX];
    uint32_t limit[JOBS_MAX];
};

struct scene;

struct scene_node_state {
    struct scene *scene;
    uint32_t index;
    bool decode;
    bool alive;
    bool frozen;
    hlg_time thaw_at;
    bool was_killed; /* in-flight writes of the dead may still read its memory */
    uint64_t incarnation;
    struct hlg_layout layout;
    struct hlg_pump *pump;
    struct hlg_trace *traces[LIVES_MAX];
    uint32_t lives;
    uint8_t *memory;
    uint64_t bytes;
    struct hlg_place places[64];
    uint32_t place_count;
    uint32_t owner[GROUPS][PAGES]; /* job + 1; 0: the engine holds it free */
    bool poisoned[GROUPS][PAGES];
    /* sessions; `other` is an enum scene_node */
    uint32_t peer_of[NODES]; /* newest peer number, or HLG_NONE */
    bool up[NODES];
    uint32_t node_of[PEERS_MAX];
    struct hlg_channel *channels[NODES]; /* to that node; ours to use while it is up */
    struct hlg_channel *lines[NODES];    /* the same, below the fault decorator */
    hlg_time dial_at[NODES];             /* decode */
    uint32_t why[NODES];                 /* first session_down with that node; 0: none */
    bool draining[NODES];
    struct hlg_refusal refusal; /* last */
    uint32_t notes[HLG_NOTE_COUNT];
    /* prefill engine */
    struct forward forward;
    uint32_t forwards;
    uint32_t layers_max; /* the forward goes no further */
    hlg_time layer_at;
    bool abort;     /* the forward is given up rather than carried on */
    bool no_stamps; /* a forward tells of its end alone */
};

struct scene_config {
    uint64_t seed;
    bool split;  /* each prefiller has one of two ranks: requests have two sources */
    bool record; /* traces */
    bool alone;  /* DECODE_1 is not connected */
    uint32_t window_pieces;
    uint32_t grant_requests;
    hlg_time death_ns; /* until the end of a node's channels is known, at most; 0: MS(3) */
    bool flush;
    bool foreign; /* PREFILL_1 serves another model */
    bool no_context;
    bool acknowledged; /* writes complete before they are placed */
};

struct scene {
    struct scene_config config;
    struct hlg_loop *loop;
    struct hlg_fault *fault;
    struct scene_node_state nodes[NODES];
    struct job jobs[JOBS_MAX];
    uint64_t uid;
    bool no_dial; /* decoders do not dial again */
    char broken[256];
    bool verbose;
};

/* Makes the world; sessions are not up yet. */
void scene_open(struct scene *s, const struct scene_config *config);
void scene_close(struct scene *s);
void scene_break(struct scene *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
hlg_time scene_now(const struct scene *s);

/* Turn the world until nothing more happens now. */
void scene_turn(struct scene *s);
typedef bool scene_fn(const struct scene *s);
/* Until `fn` holds, looked at whenever nothing more happens at a time. False: not by `limit`. */
bool scene_until(struct scene *s, scene_fn *fn, hlg_time limit);
void scene_wait(struct scene *s, hlg_time span);

/* Nodes. */
void scene_kill(struct scene *s, uint32_t node);
void scene_restart(struct scene *s, uint32_t node);
void scene_freeze(struct scene *s, uint32_t node, hlg_time span);
void scene_dial(struct scene *s, uint32_t decode, uint32_t prefill);
/* A rule of the fault decorator from now on; `text` as in its scripts. */
void scene_fault(struct scene *s, const char *text);
bool scene_all_up(const struct scene *s);

/* Requests. A job's pages are those given, each once; `sources` names prefillers. */
struct job *scene_job(struct scene *s, const char *id, uint32_t decode, const uint32_t *pages,
                      uint32_t tokens);
void scene_submit(struct scene *s, struct job *job);
int scene_cancel(struct scene *s, struct job *job);
/* The prefill engine of source `source` gives it up. */
int scene_give_up(struct scene *s, struct job *job, uint32_t source);
/* A message that no machine made, on the channel of two nodes. */
void scene_inject(struct scene *s, uint32_t from, uint32_t to, const struct hlg_message *message);
void scene_node_event(struct scene *s, uint32_t node, uint32_t kind);
uint32_t scene_pages_of(uint32_t tokens);
/* Whether everything that is not for ever is back: no request open, no page owned, sessions as wanted. */
bool scene_at_rest(const struct scene *s);

/* engine.c */
void engine_notice(struct scene_node_state *n, const struct hlg_notice *notice);
int engine_act(struct scene_node_state *n);
hlg_time engine_next(const struct scene_node_state *n);
void engine_died(struct scene_node_state *n);
/* Whose page a landing touches; checks it. */
void engine_landing(void *context, const struct hlg_loop_landing *landing);

#endif
