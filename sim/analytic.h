/*
 * A cluster by formulas, in microseconds: what a plan is bracketed with before it is simulated, and
 * what the simulation is held against.
 *
 * A prefill node is M/G/1: the mean wait is rho / (1 - rho) * E[s^2] / 2 E[s], s the time of a prompt's
 * forwards alone. A decode node's batch is by Little's law the fixed point B = rate * output * TPOT(B).
 * Not in it: bursts, routing, batching of prompts in one forward, prefix caches, tails, contention.
 * Source: Pollaczek and Khinchine's formula; reference: docs/simulation.md, "Plan".
 */
#ifndef HALAGE_SIM_ANALYTIC_H
#define HALAGE_SIM_ANALYTIC_H

#include "scenario.h"

struct sim_analytic;

/* What holds at any size. */
struct sim_analytic_base {
    double rate;          /* requests/s, of the workload */
    double prompt_tokens; /* means */
    double output_tokens;
    double prefill_ms;       /* mean time of a prompt's forwards */
    double unloaded_ttft_ms; /* mean */
    double share_ttft_ms;    /* that `share` of the requests have unloaded at best */
    double unloaded_tpot_ms; /* one sequence alone, of mean context */
    uint64_t kv_tokens[2];   /* of a rank */
};

/* Of so many nodes. */
struct sim_analytic_point {
    double prefill_use; /* rho; at 1 and above the queue has no end */
    double wait_ms;     /* mean; infinite then */
    double ttft_ms;     /* mean */
    double batch;       /* sequences of a decode node; above batch_max, what it would take */
    double batch_max;   /* that it has KV and slots for, with means */
    double tpot_ms;
    bool decode_overloaded; /* no batch up to batch_max serves the rate */
};

/*
 * Of a disaggregated scenario that sim_scenario_check() takes, and its workload, in open loop.
 *
 * share  of the requests, for base->share_ttft_ms: 0 < share <= 1
 * text   [capacity] on error one sentence
 *
 * Returns 0, -HLG_EINVAL or -HLG_ENOMEM. The scenario must outlive the result.
 */
int sim_analytic_create(const struct sim_scenario *scenario, const struct sim_workload *workload,
                        double share, struct sim_analytic **analytic, char *text, size_t capacity);
void sim_analytic_destroy(struct sim_analytic *analytic);

const struct sim_analytic_base *sim_analytic_base(const struct sim_analytic *analytic);
void sim_analytic_point(const struct sim_analytic *analytic, uint32_t prefill_nodes,
                        uint32_t decode_nodes, struct sim_analytic_point *point);

#endif
