/*
 * The same core under three transports. One script, drawn from a seed: requests of several scenes, each
 * with 2 prefill and 3 decode nodes of its own layouts, their lengths, prefixes, chunk cuts and ends.
 * It is run live on whichever backend a program links, with the unchanged pump and machines and small
 * engines that follow the script's order and never the clock. Every node's trace is recorded, and of
 * the traces a canonical list is made: what each request moved and was told, without times.
 */
#ifndef HALAGE_TESTS_TRACE_SAMECORE_H
#define HALAGE_TESTS_TRACE_SAMECORE_H

#include <halage/pump.h>
#include <stdio.h>

#define PREFILLERS 2u
#define DECODERS   3u
#define NODES      (PREFILLERS + DECODERS)
#define SCENES     5u
#define OF_SCENE   40u
#define REQUESTS   (SCENES * OF_SCENE)
#define LANES_MAX  4u
#define RAILS      2u
#define GROUPS_MAX 3u
#define TOKENS_MAX 41u /* of a prompt */
#define PAGES_MAX  20u /* of a request and group */
#define CUTS_MAX   8u
#define SOURCE_SLOTS \
    12u /* requests that a prefill node holds at a time; each has pages of its own */
#define TARGET_SLOTS 8u /* requests that a decode node has open at a time */

/* How a request ends. */
enum fate {
    FATE_READY = 0,
    FATE_LOCAL,        /* nothing is due from a prefiller */
    FATE_REJECTED,     /* the prefill engine says no */
    FATE_CANCEL_ASKED, /* the decode engine gives it up while it waits to be admitted */
    FATE_CANCEL_CUT,   /* the same when chunk `cut_last` is written, the next one not announced */
    FATE_GIVEN_UP,     /* there, the prefill engine gives it up */
    FATE_ABORTED,      /* the forward of the chunk after `cut_last` is aborted */
    FATE_COUNT,
};

struct script_request {
    enum fate fate;
    uint32_t prefiller;
    uint32_t decoder; /* 0..DECODERS - 1 */
    uint32_t source_pool;
    uint32_t target_pool;
    uint32_t source_slot; /* n-th of its prefiller, mod SOURCE_SLOTS */
    uint32_t target_slot;
    uint32_t tokens;
    uint32_t cached_tokens;     /* of the prefiller */
    uint32_t first[GROUPS_MAX]; /* pages that the decoder has */
    uint32_t count[GROUPS_MAX]; /* pages that it asks for */
    uint32_t random;
    uint32_t cut_count;
    uint32_t cuts[CUTS_MAX]; /* ends of chunks, the last is tokens - 1 */
    uint32_t cut_last;
};

struct scene {
    const char *name;
    struct hlg_layout layouts[NODES]; /* prefillers first */
    struct script_request requests[OF_SCENE];
};

struct script {
    uint64_t seed;
    struct scene scenes[SCENES];
};

/* script.c: equal seed, equal script. */
void script_draw(struct script *script, uint64_t seed);
/* Moves one chunk cut by a token: what the comparison must see. */
void script_plant_cut(struct script *script);
/* Page of a request as position `position` of its list, at either end. */
uint32_t script_source_page(const struct script_request *r, uint32_t position);
uint32_t script_target_page(const struct script_request *r, uint32_t position);
bool script_alone(const struct script_request *r); /* runs alone on its prefiller */

/* A backend: backend_loop.c, backend_net.c or backend_simgrid.c, one a program. */
struct backend {
    const char *name;
    /* Networks of NODES nodes, LANES_MAX lanes and RAILS rails. Returns false after a line. */
    bool (*open)(uint64_t seed);
    void (*close)(void);
    struct hlg_fabric *(*fabric)(uint32_t node);
    bool (*connect)(uint32_t a, uint32_t b, struct hlg_channel **channel_a,
                    struct hlg_channel **channel_b);
    /* Nothing can be done: let time pass, or wait. */
    void (*idle)(struct hlg_pump *const *pumps, uint32_t count);
};

extern const struct backend backend;

/* world.c: run one scene. traces: [NODES] recorders, fresh. Returns NULL, or what was wrong. */
const char *world_run(const struct script *script, uint32_t scene, struct hlg_trace *const *traces);

/* list.c */
struct list;
struct list *list_make(void);
void list_free(struct list *list);
/* Adds what the logs [NODES] of a scene say. Returns NULL, or what was wrong. */
const char *list_add(struct list *list, uint32_t scene, struct hlg_trace_log *const *logs);
void list_sort(struct list *list);
void list_print(const struct list *list, FILE *out);
uint64_t list_digest(const struct list *list);
size_t list_count(const struct list *list);

#endif
