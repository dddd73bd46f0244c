/*
 * Files that scenarios name.
 */
#ifndef HALAGE_SIM_SCENARIO_PATH_H
#define HALAGE_SIM_SCENARIO_PATH_H

#include "scenario.h"

/*
 * Find a file: absolute, or else beside the file `base` (NULL: none), in the directory that the
 * environment's HALAGE_DATA names, or in the working directory, whichever is first. Returns whether `path` has the name of a file that is there.
 */
bool sim_path_find(const char *base, const char *name, char path[SIM_PATH_MAX]);

/* Join the directory of `base` and a relative name. Returns whether it fits. */
bool sim_path_join(const char *base, const char *name, char path[SIM_PATH_MAX]);

#endif
