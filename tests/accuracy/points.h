/*
 * The points of a shipped scenario's sweep, each simulated in a process of its own (SimGrid has one
 * engine a process), two at a time.
 */
#ifndef HALAGE_TESTS_POINTS_H
#define HALAGE_TESTS_POINTS_H

#include "metrics.h"

struct point {
    int error;
    char text[512]; /* why, on an error */
    struct sim_metrics metrics;
};

/*
 * Run all points of scenarios/`file`, which must be `count`, and check each run's conservation.
 * Fails the test with the sentence of the first that does not end as it should. Release with
 * points_free().
 */
struct point *points_run(const char *file, uint32_t count);
void points_free(struct point *points, uint32_t count);

#endif
