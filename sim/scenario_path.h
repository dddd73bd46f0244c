/*
 * Files that scenarios name, and lines in scenario files.
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

/*
 * Line of a key, such as "traffic.arrivals.rate" or "faults.1.at", counted from 1. 0 when it cannot be
 * told: the key is not there, is there twice, or stands in braces over several lines.
 */
uint32_t sim_yaml_line(const char *file, const char *path);

#endif
