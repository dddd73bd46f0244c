/*
 * The co-located engine of sim/mixed.h once more, as simply as can be: every step is made and priced, every
 * request looked at in each. Without MTP. Pages are those of sim/pages.h.
 */
#ifndef HALAGE_TESTS_MIXED_MODEL_H
#define HALAGE_TESTS_MIXED_MODEL_H

#include "mixed.h"
#include "sim_price.h"

#define MIXED_RANKS_MAX    3u
#define MIXED_REQUESTS_MAX 64u
#define MIXED_NAMES_MAX    64u
#define MIXED_EVENTS_MAX   8192u

struct mixed_request {
    hlg_time at; /* never before the one in front */
    uint32_t rank;
    uint32_t prompt;
    uint32_t output;
    uint32_t name_count;
    uint64_t names[MIXED_NAMES_MAX];
};

struct mixed_world {
    struct sim_cost cost;
    struct sim_mixed_config config; /* cost is filled in by who uses it */
    struct mixed_request requests[MIXED_REQUESTS_MAX];
    uint32_t request_count;
};

struct mixed_log {
    struct sim_mixed_event events[MIXED_EVENTS_MAX];
    uint32_t count;
    struct sim_gaps gaps;
    struct sim_mixed_totals totals;
};

/* Serve all requests of the world. */
void mixed_model_run(const struct mixed_world *world, struct mixed_log *log);

#endif
