/*
 * Stories: a deterministic world is played, both machines are recorded, and the records are told as
 * prose, one line an event that matters: time, who, what.
 */
#ifndef HALAGE_TESTS_FAILURE_TALE_H
#define HALAGE_TESTS_FAILURE_TALE_H

#include "scene.h"

#define TALE_LINES_MAX  1024u
#define TALE_LINE_BYTES 200u

struct tale_line {
    hlg_time at;
    uint32_t order; /* of who speaks, at equal times */
    uint32_t number;
    char who[12];
    char what[TALE_LINE_BYTES];
};

struct tale {
    struct scene scene;
    hlg_time begin; /* what was before is left out; times are since */
    uint32_t line_count;
    struct tale_line lines[TALE_LINES_MAX];
};

struct story {
    const char *name;
    const char *title; /* a line */
    const char *moral; /* a line: what is to be seen here */
    struct scene_config config;
    bool greets; /* told from the first greeting on */
    void (*play)(struct tale *t);
};

/* The story fails unless that holds. */
#define MUST(t, condition)                                                 \
    do {                                                                   \
        if (!(condition)) {                                                \
            scene_break(&(t)->scene, "line %d: %s", __LINE__, #condition); \
        }                                                                  \
    } while (0)

/* What no machine sees, told by whoever plays: `who` is "network", "world" or a node. */
void tale_say(struct tale *t, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds what a node's machines saw and did; ends their records. prose.c */
void tale_read(struct tale *t, uint32_t node);
void tale_add(struct tale *t, hlg_time at, uint32_t order, const char *who, const char *what);
const char *tale_node(uint32_t node);

/* stories_*.c */
extern const struct story stories_plain[];
extern const struct story stories_ends[];
extern const struct story stories_broken[];
extern const uint32_t stories_plain_count;
extern const uint32_t stories_ends_count;
extern const uint32_t stories_broken_count;

/* What most stories begin with: a request of 20 tokens and one more from decode to prefill-0. */
struct job *tale_job(struct tale *t, const char *id);
void tale_wait_for(struct tale *t, scene_fn *fn);
/* Until the first job is at that state. */
void tale_target(struct tale *t, uint32_t state);
void tale_source(struct tale *t, uint32_t state);
/* Lets everything end; nothing may be open then but what is poisoned. */
void tale_rest(struct tale *t);

#endif
