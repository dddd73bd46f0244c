/*
 * The failure matrix: a watched request is brought to a phase of its life, one thing goes wrong, and what
 * becomes of the request, its pages, its source pages, its session and the others is compared with what
 * matrix.tsv states.
 */
#ifndef HALAGE_TESTS_FAILURE_MATRIX_H
#define HALAGE_TESTS_FAILURE_MATRIX_H

#include "scene.h"

enum phase {
    PHASE_UP,        /* connected, not submitted yet */
    PHASE_SENT,      /* REQUEST sent, not seen */
    PHASE_ASKED,     /* the prefill engine knows it and has not answered */
    PHASE_ADMITTED,  /* ACCEPT was heard; nothing is computed */
    PHASE_POSTED,    /* the first layer is posted, nothing landed */
    PHASE_HALF,      /* half of the layers landed and are complete */
    PHASE_CONTEXT,   /* all pages landed, the context is posted */
    PHASE_READY,     /* READY, not released; completions are under way (DRAINING) */
    PHASE_CANCELLED, /* as posted, but FAILED was told: CANCEL is sent, not seen */
    PHASE_FENCING,   /* cancelled, STOPPING, writes under way: FENCED is waited for */
    PHASES,
};

struct cell {
    struct scene scene;
    uint64_t seed;     /* of the few things that chance decides, such as when a death is known */
    bool acknowledged; /* writes complete before they are placed */
    uint32_t phase;
    const struct fault *fault;
    hlg_time struck_at;
    struct job *watched;
    struct job *mate;  /* same session */
    struct job *far;   /* same decoder, other prefiller; in a split world both */
    struct job *guest; /* same prefiller, other decoder; likewise */
    struct job *reuse; /* has the watched request's pages as soon as they are back */
    struct job *again; /* has them once more, from the first prefiller */
    hlg_time ttl_ns;   /* of the watched request */
    uint32_t killed;   /* a node that is to live again at revive_at; HLG_NONE */
    hlg_time revive_at;
};

struct fault {
    const char *name;
    uint32_t kind;  /* of the decorator, which must have done something; 0: it is by other means */
    bool slow_news; /* that a node died is known late */
    bool split;     /* two sources */
    bool timed;     /* strikes by the request's TTL */
    bool writes; /* the others go on when the watched request is over: the next write is its own */
    bool warm;   /* every slot has been used before, and credit flows */
    uint32_t from; /* the first phase where it can be, and why not before */
    const char *before;
    uint32_t limit; /* the first after `from` where it cannot be any more, and why; 0: none */
    uint32_t again; /* from where on it can be once more; 0: never */
    const char *after;
    hlg_time over_ns; /* when its effects are over, at the latest, but for what follows from them */
    void (*strike)(struct cell *c);
};

extern const struct fault faults[];
extern const uint32_t fault_count;
extern const char *const phase_names[PHASES];

/* phases.c: makes the world and brings it to the cell's phase. */
void cell_open(struct cell *c);
/* The engines hold nothing back any more. */
void cell_let_go(struct cell *c, bool others);

#endif
