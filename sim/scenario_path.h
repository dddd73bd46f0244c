/*
 * Files that scenarios name.
 */
#ifndef HALAGE_SIM_SCENARIO_PATH_H
#define HALAGE_SIM_SCENARIO_PATH_H

#include "scenario.h"

/*
 * Find a file: absolute, beside `base` (a file; NULL: from the working directory), or in the directory
 * that the environment's HALAGE_DATA names. Returns whether `path` has the name of a file that is there.
 */
bool sim_path_find(const char *base, const char *name, char path[SIM_PATH_MAX]);

/* Join the directory of `base` and a relative name. Returns whether it fits. */
bool sim_path_join(const char *base, const char *name, char path[SIM_PATH_MAX]);

#endif
