/*
 * Cases in processes of their own, so that one that aborts, hangs or is interrupted is told of like any
 * other; what they find travels through pipes. Output does not depend on how many processes there are.
 */
#ifndef HALAGE_TESTS_DST_RUNNER_H
#define HALAGE_TESTS_DST_RUNNER_H

#include "world.h"

/* What became of a case. */
struct outcome {
    struct storm_case what;
    storm_kinds drawn;
    uint32_t broken; /* enum storm_checker */
    uint64_t a;
    uint64_t b;
    char text[160];
    char world[sizeof((struct world *)0)->text];
    struct storm_counts counts;
};

/* Run a case in this process, once or, with `repeat`, twice. `w` is scratch, and holds the first run. */
void outcome_of(const struct storm_case *what, bool repeat, struct world *w, struct outcome *out);

/* The same in a child. `story`: it prints the last happenings to stdout. */
void outcome_alone(const struct storm_case *what, bool repeat, bool story, struct outcome *out);

struct runner_options {
    struct storm_case what; /* but for the seed */
    uint64_t begin;
    uint64_t last;
    uint32_t jobs;
    uint32_t repeat; /* each which seed runs twice; 0: none */
};

/* Called for each seed, in order; false: stop. */
typedef bool runner_fn(void *context, const struct outcome *out);

/* Returns 0, 130 when it was interrupted, or -HLG_EIO when processes cannot be had. */
int runner_run(const struct runner_options *options, runner_fn *fn, void *context);

/*
 * A smaller case in which the same checker finds something: fewer requests and nodes, fewer kinds. Tries
 * at most `tries` cases. Returns how many it tried; *small is `from` when nothing can go.
 */
uint32_t minimise(const struct outcome *from, uint32_t tries, struct storm_case *small);
/* The command line of a case. */
void case_text(const struct storm_case *what, char *text, size_t text_bytes);

/* heap.c: blocks of memory that are in use. */
uint64_t heap_blocks(void);

/* tally.c */
void tally_add(struct storm_counts *sum, const struct storm_counts *one);
void tally_print(const struct storm_counts *c);
/* Says what was never hit. Returns how many kinds, notes and checkers that is. */
uint32_t tally_missing(const struct storm_counts *c);
/* Returns 0, or -HLG_EIO with errno set. */
int tally_json(const struct storm_counts *c, uint64_t passed, uint64_t failed, const char *path);

#endif
