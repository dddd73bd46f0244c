/*
 * A plan: rows of node counts within a budget of GPUs, each bracketed by formulas, simulated where that
 * can tell more, and judged.
 */
#ifndef HALAGE_SIM_CLI_PLAN_H
#define HALAGE_SIM_CLI_PLAN_H

#include "analytic.h"
#include "points.h"

#include <jansson.h>

#define PLAN_GPUS_MAX      16384u
#define PLAN_ROWS_MAX      64u /* of splits, and one of co-located nodes */
#define PLAN_MIXED_MAX     24u /* more of co-located nodes */
#define PLAN_WORD_BYTES    96u
#define PLAN_WHY_BYTES     512u
#define PLAN_OVERRIDES_MAX (COMMAND_OVERRIDES_MAX + 16u)

struct plan_row {
    uint32_t prefill; /* nodes; co-located ones in a co-located row */
    uint32_t decode;
    uint32_t gpus;
    bool colocated;
    bool whole_budget; /* no node more fits */
    bool analytic_known;
    struct sim_analytic_point analytic;
    bool simulated;
    bool unable; /* it cannot be simulated: `why` says why */
    bool broken; /* likewise, by a failure */
    bool feasible;
    bool uncertain; /* the interval of the share that meets the SLO holds the wanted one */
    char why[PLAN_WHY_BYTES]; /* not feasible because; "" when it is */
    json_t *report;           /* of the simulation; NULL without */
    double slo_share;
};

struct plan {
    struct command_scenario command;
    struct points_overrides overrides;
    const char *json_file;
    double slo_ttft_ns; /* 0: none */
    double slo_tpot_ns;
    double rate;  /* requests/s; 0: the scenario's */
    double share; /* of requests that must meet the SLO */
    uint32_t gpus;
    uint32_t jobs;
    bool quiet;

    const char *base[PLAN_OVERRIDES_MAX]; /* [base_count] overrides of every row */
    uint32_t base_count;
    char words[4][PLAN_WORD_BYTES];
    uint32_t word_count;

    struct sim_scenario *scenario; /* disaggregated */
    struct sim_workload workload;
    struct sim_analytic *analytic;
    bool never;                                           /* no size can meet the SLO */
    char why[PLAN_WHY_BYTES];                             /* why not */
    struct plan_row rows[PLAN_ROWS_MAX + PLAN_MIXED_MAX]; /* splits first */
    uint32_t row_count;
    bool interrupted; /* rows without a verdict were not simulated to the end */
    bool thinned;     /* more splits exist than rows */
    /* Fewest GPUs that are feasible: of all, of splits, of co-located nodes; NULL: none. */
    const struct plan_row *best;
    const struct plan_row *best_split;
    const struct plan_row *best_colocated;
};

/* Read the scenario and list the rows, by formulas. Returns an enum cli_exit with a sentence. */
int plan_prepare(struct plan *plan, char *text, size_t capacity);

/* Overrides of a row into list [PLAN_OVERRIDES_MAX]. Returns how many. */
uint32_t plan_overrides(const struct plan *plan, const struct plan_row *row,
                        char words[3][PLAN_WORD_BYTES], const char **list);

/* Take in a simulation's result (borrowed; NULL with a sentence when there is none). */
void plan_judge(const struct plan *plan, struct plan_row *row, json_t *result,
                const char *sentence);

/* When the rows so far are judged: add co-located rows on as many GPUs as the splits that are feasible. */
void plan_match_colocated(struct plan *plan);
/* Then, one at a time: a co-located row between the fewest nodes that are feasible and the most that are not.
 * Returns whether there is one to simulate; after at most some ten there is not. */
bool plan_narrow_colocated(struct plan *plan);

/* Put the rows in order and point at the best ones. */
void plan_choose(struct plan *plan);
void plan_text(FILE *file, const struct plan *plan);
json_t *plan_json(const struct plan *plan);
void plan_fini(struct plan *plan);

#endif
