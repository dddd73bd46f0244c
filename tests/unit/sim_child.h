/*
 * A simulated run in a process of its own: SimGrid has one engine a process. What it says comes back in
 * shared memory.
 */
#ifndef HALAGE_TESTS_SIM_CHILD_H
#define HALAGE_TESTS_SIM_CHILD_H

#include "cluster.h"

#define CHILD_RECORDS_MAX 4096u
#define CHILD_NODES_MAX   64u

struct child {
    int error;
    char text[512];
    struct sim_run run; /* its pointers are those below */
    struct sim_record records[CHILD_RECORDS_MAX];
    struct sim_node_totals nodes[CHILD_NODES_MAX];
    uint32_t spans;
    uint32_t calls; /* of progress */
};

/* Fails the test when the process ends otherwise than by itself. Release with child_free(). */
struct child *child_run(const struct sim_scenario *scenario, const struct sim_workload *workload,
                        const struct sim_run_options *options);
void child_free(struct child *child);

/* R1 on H200 with short times around the engines: 1 prefill node, `decodes` decode nodes. */
void child_scenario(struct sim_scenario *scenario, uint32_t decodes);

/* `count` requests at `gap_ns` from each other, all alike. Free with sim_workload_fini(). */
void child_workload(struct sim_workload *workload, uint32_t count, hlg_time gap_ns,
                    uint32_t prompt_tokens, uint32_t output_tokens);

#endif
