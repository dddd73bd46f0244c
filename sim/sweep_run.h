/*
 * A sweep: the points of a grid, each a run of its own with one result file in a folder, and the table
 * merged from these files.
 *
 * A result file is named by the digest of its point's scenario. Existing ones of the same digest,
 * version and calibration are kept, so that a sweep that was ended goes on where it was, and shards that share the
 * folder complete each other. Files are renamed into place whole. The merged files sweep.tsv and
 * sweep.json are in the grid's order and depend neither on jobs nor on shards nor on when what ran.
 *
 * A point that cannot be run (bad values, a model that does not fit) is a row with its sentence.
 */
#ifndef HALAGE_SIM_SWEEP_RUN_H
#define HALAGE_SIM_SWEEP_RUN_H

#include "report.h"
#include "sweep_axis.h"

struct sim_sweep_totals {
    uint32_t points; /* of the whole grid */
    uint32_t due;    /* of this shard */
    uint32_t kept;
    uint32_t ran;
    uint32_t refused; /* results that say why the point cannot be run */
    uint32_t broken;  /* results that failed to run, or crashed */
    uint32_t missing; /* have no result yet; 0: the merged files were written */
    char first[512];  /* why the first refused one cannot be run, in the grid's order */
};

struct sim_sweep_run {
    const char *scenario;         /* file */
    const char *const *overrides; /* [override_count]; those of the grid come after */
    uint32_t override_count;
    const struct sim_sweep *grid;
    const char *folder; /* made if it is not there */
    uint32_t jobs;
    uint32_t shard_index;  /* 0 <= shard_index < shard_count: points of that rest are run here */
    uint32_t shard_count;  /* >= 1 */
    bool fresh;            /* run again what has a result */
    bool (*stopped)(void); /* as in struct sim_pool */
    /* After each point, with the numbers of this shard so far. May be NULL. */
    void (*progress)(void *context, const struct sim_sweep_totals *totals);
    void *context;
};

/*
 * Run what has no result yet, then merge if all points have one.
 *
 * text  [capacity] on error one sentence
 *
 * Returns 0, -HLG_ECANCELED (stopped: what was over is kept), -HLG_EINVAL (the base scenario is not
 * readable), -HLG_EIO or -HLG_ENOMEM.
 */
int sim_sweep_run(const struct sim_sweep_run *sweep, struct sim_sweep_totals *totals, char *text,
                  size_t capacity);

/*
 * Run one scenario from file and overrides, and tell it as JSON: "status" ("done", "refused" or
 * "failed"), "sentence" and "report". A new reference, or NULL without memory.
 */
json_t *sim_point_run(const char *scenario, const char *const *overrides, uint32_t count);

#endif
