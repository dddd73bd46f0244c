/*
 * Before a sweep runs: whether every point can be read, and whether no result replaces a file that it is
 * made from.
 */
#ifndef HALAGE_SIM_CLI_SWEEP_EXAMINE_H
#define HALAGE_SIM_CLI_SWEEP_EXAMINE_H

#include "output.h"
#include "points.h"
#include "sweep_axis.h"

struct examine {
    const char *scenario; /* file */
    const struct points_overrides *overrides;
    const struct sim_sweep *grid;
    bool from_line; /* the grid is that of -g */
    const char *folder;
    const char *json_file; /* NULL: none */
    bool plot;
};

/* Errors, and a note on points that are the same, are printed to stderr. Returns an enum cli_exit. */
int sweep_examine(const char *program, const struct examine *examine);

#endif
