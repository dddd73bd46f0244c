#include "points.h"

#include "pool.h"

#include <inttypes.h>
#include <stdio.h>

void points_overrides(const struct command_scenario *command, struct points_overrides *overrides)
{
    overrides->count = 0;
    for (uint32_t i = 0; i < command->override_count; i++) {
        overrides->list[overrides->count++] = command->overrides[i];
    }
    if (command->seed_given) {
        (void)snprintf(overrides->seed, sizeof overrides->seed, "seed=%" PRIu64, command->seed);
        overrides->list[overrides->count++] = overrides->seed;
    }
    if (command->requests != 0) {
        (void)snprintf(overrides->drawn, sizeof overrides->drawn, "traffic.requests=%" PRIu32,
                       command->requests);
        (void)snprintf(overrides->traced, sizeof overrides->traced,
                       "traffic.trace.requests=%" PRIu32, command->requests);
        overrides->list[overrides->count++] = overrides->drawn;
        overrides->list[overrides->count++] = overrides->traced;
    }
}

error_t points_jobs(const char *program, const char *text, uint32_t *jobs)
{
    if (!options_u32(text, jobs) || *jobs == 0 || *jobs > SIM_POOL_JOBS_MAX) {
        return options_error(program, "--jobs: '%s': write a whole number, 1 to %u", text,
                             SIM_POOL_JOBS_MAX);
    }
    return 0;
}
