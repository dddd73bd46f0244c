/*
 * A scenario from file to run, as `run` and `explain` need it.
 */
#ifndef HALAGE_SIM_CLI_EXECUTE_H
#define HALAGE_SIM_CLI_EXECUTE_H

#include "command.h"
#include "output.h"
#include "report.h"

struct execution {
    struct sim_scenario scenario;
    struct sim_workload workload;
    struct sim_run run;
    struct sim_metrics metrics;
    bool has_scenario;
    bool has_run;
};

/*
 * Read, check, draw, run, measure; each error is printed to stderr.
 *
 * quiet       no progress
 * trace_file  NULL: none
 * outputs     files to be written, checked beside the scenario's before the run; NULL: none
 *
 * Returns CLI_DONE, CLI_INTERRUPTED (the run tells what is known), CLI_BAD_INPUT or CLI_FAILED.
 * Release in every case with execution_fini(). The struct is large: keep it off the stack.
 */
int execution_run(struct execution *execution, const char *program,
                  const struct command_scenario *command, bool quiet, const char *trace_file,
                  const struct sim_outputs *outputs);
void execution_fini(struct execution *execution);

#endif
