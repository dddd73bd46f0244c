/*
 * What sweep and plan share: they run many points of one scenario.
 */
#ifndef HALAGE_SIM_CLI_POINTS_H
#define HALAGE_SIM_CLI_POINTS_H

#include "command.h"

/* Overrides of a command line, --seed and --requests among them, for points that add their own. */
struct points_overrides {
    const char *list[COMMAND_OVERRIDES_MAX + 3];
    uint32_t count;
    char seed[64];
    char drawn[64];
    char traced[64];
};

void points_overrides(const struct command_scenario *command, struct points_overrides *overrides);

/* Read --jobs. Returns 0, or EINVAL with the sentence printed. */
error_t points_jobs(const char *program, const char *text, uint32_t *jobs);

#endif
