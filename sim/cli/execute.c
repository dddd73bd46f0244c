#include "execute.h"

#include <stdio.h>
#include <string.h>

struct watch {
    struct command_progress progress;
    struct sim_trace *trace; /* NULL: none */
};

static bool on_progress(void *context, uint32_t finished, uint32_t count, hlg_time now)
{
    struct watch *watch = context;
    char what[64];
    (void)snprintf(what, sizeof what, "requests done, at %.1f s of the cluster's time",
                   (double)now / 1e9);
    command_progress_show(&watch->progress, finished, count, what);
    return !command_interrupted();
}

static void on_span(void *context, const struct sim_span *span)
{
    struct watch *watch = context;
    sim_trace_span(watch->trace, span);
}

static int prepare(struct execution *execution, const char *program,
                   const struct command_scenario *command)
{
    char text[COMMAND_TEXT_BYTES];
    int result = command_scenario_read(command, NULL, 0, &execution->scenario, text, sizeof text);
    if (result != CLI_DONE) {
        (void)options_error(program, "%s", text);
        return result;
    }
    execution->has_scenario = true;
    result = sim_scenario_check(&execution->scenario, NULL, text, sizeof text);
    if (result == 0) {
        result =
            sim_scenario_workload(&execution->scenario, &execution->workload, text, sizeof text);
    }
    if (result < 0) {
        (void)options_error(program, "%s", text);
        return result == -HLG_ENOMEM ? CLI_FAILED : CLI_BAD_INPUT;
    }
    (void)snprintf(text, sizeof text, "%s: ", program);
    command_note_trace(stderr, text, &execution->scenario, &execution->workload);
    return CLI_DONE;
}

static int simulate(struct execution *execution, const char *program, struct watch *watch)
{
    char text[COMMAND_TEXT_BYTES];
    const struct sim_run_options options = {
        .progress = on_progress,
        .span = watch->trace == NULL ? NULL : on_span,
        .context = watch,
    };
    command_catch_signals();
    const int result = sim_run(&execution->scenario, &execution->workload, &options,
                               &execution->run, text, sizeof text);
    command_progress_end(&watch->progress);
    if (result < 0) {
        (void)options_error(program, "%s: %s", execution->scenario.path, text);
        return result == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    execution->has_run = true;
    if (sim_metrics(&execution->scenario, &execution->workload, &execution->run,
                    &execution->metrics) < 0) {
        (void)options_error(program, "no memory for the metrics of the run");
        return CLI_FAILED;
    }
    return CLI_DONE;
}

int execution_run(struct execution *execution, const char *program,
                  const struct command_scenario *command, bool quiet, const char *trace_file,
                  const struct sim_outputs *outputs)
{
    struct watch watch = {.trace = NULL};
    char text[COMMAND_TEXT_BYTES];
    *execution = (struct execution){0};
    int status = prepare(execution, program, command);
    if (status != CLI_DONE) {
        return status;
    }
    if (outputs != NULL &&
        sim_outputs_check(outputs, &execution->scenario, text, sizeof text) != 0) {
        (void)options_error(program, "%s", text);
        return CLI_BAD_INPUT;
    }
    if (trace_file != NULL &&
        sim_trace_open(trace_file, &execution->scenario, &watch.trace, text, sizeof text) < 0) {
        (void)options_error(program, "--trace-out: %s", text);
        return CLI_FAILED;
    }
    command_progress_begin(&watch.progress, program, quiet);
    status = simulate(execution, program, &watch);
    if (watch.trace != NULL && status != CLI_DONE) {
        sim_trace_abandon(watch.trace);
    } else if (watch.trace != NULL &&
               sim_trace_close(watch.trace, &execution->run, text, sizeof text) < 0) {
        (void)options_error(program, "--trace-out: %s", text);
        return CLI_FAILED;
    }
    return status == CLI_DONE && execution->run.interrupted ? CLI_INTERRUPTED : status;
}

void execution_fini(struct execution *execution)
{
    if (execution->has_run) {
        sim_run_fini(&execution->run);
    }
    sim_workload_fini(&execution->workload);
    if (execution->has_scenario) {
        sim_scenario_fini(&execution->scenario);
    }
}
