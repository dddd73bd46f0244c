/* What the files of a live scene share: world.c, and the two small engines. */
#ifndef HALAGE_TESTS_TRACE_WORLD_H
#define HALAGE_TESTS_TRACE_WORLD_H

#include "samecore.h"

#define PLACES_MAX 32u /* of a lane */

/* A request on its way; both engines look at it, as nodes of one process may. */
struct job {
    const struct script_request *request;
    uint32_t index;
    /* decode */
    hlg_handle target;
    bool submitted;
    bool ready;
    bool failed;
    bool over; /* and its target pages are free */
    uint32_t pages[GROUPS_MAX][PAGES_MAX];
    /* prefill */
    hlg_handle source;
    bool asked;
    bool admitted;
    bool stopped;         /* STOPPING, or rejected */
    bool finished;        /* and its source pages are free */
    bool cancelled;       /* its fate was carried out */
    uint32_t announced;   /* chunks */
    uint32_t computed;    /* chunks whose forward is over */
    uint64_t done_before; /* pieces done by its prefiller when it was admitted */
};

struct forward {
    uint32_t number; /* 0: none is running */
    uint32_t step;   /* layers ticked */
    uint32_t job_count;
    struct job *jobs[SOURCE_SLOTS];
};

struct node {
    struct world *world;
    uint32_t index;
    const struct hlg_layout *layout;
    struct hlg_pump *pump;
    uint32_t lanes;
    uint8_t *memory[LANES_MAX];
    uint64_t memory_bytes;
    struct hlg_place places[LANES_MAX * PLACES_MAX];
    uint32_t place_count;
    uint32_t peers[NODES]; /* the pump's number of each other node */
    uint32_t ups;
    struct forward forward; /* prefill */
    uint32_t forwards;
};

struct world {
    const struct scene *scene;
    struct node nodes[NODES];
    struct job jobs[OF_SCENE];
    const char *broken;
};

void world_break(struct world *w, const char *what);
/* Hands an event to a node's machine; it must be taken. */
void world_event(struct node *n, struct hlg_event *event);

void prefill_notice(struct node *n, const struct hlg_notice *notice);
void prefill_act(struct node *n);
void decode_notice(struct node *n, const struct hlg_notice *notice);
void decode_act(struct node *n);

/* bytes.c: whether the pages of a READY request hold what its source pages do. */
bool bytes_arrived(struct world *w, const struct job *job);
/* Pieces of the paged groups that are due once `tokens` tokens of a request are computed. */
uint64_t pieces_due(struct world *w, const struct job *job, uint32_t tokens);

#endif
