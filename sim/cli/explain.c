/* `halage-sim explain`: one request's life. */
#include "execute.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct request {
    struct command_scenario scenario;
    uint32_t number; /* HLG_NONE: not given */
    bool quiet;
};

enum key {
    KEY_REQUEST = COMMAND_KEY_OWN,
    KEY_QUIET,
};

static const struct argp_option option_table[] = {
    {"request", KEY_REQUEST, "N", 0, "Number of the request, counted from 0", 0},
    COMMAND_SCENARIO_ROWS,
    {"quiet", KEY_QUIET, NULL, 0, "Show no progress", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_REQUEST:
        if (!options_u32(argument, &request->number) || request->number >= SIM_REQUESTS_MAX) {
            return options_error(state->name, "--request: '%s': write a whole number below %u",
                                 argument, SIM_REQUESTS_MAX);
        }
        return 0;
    case KEY_QUIET:
        request->quiet = true;
        return 0;
    case ARGP_KEY_END:
        if (request->number == HLG_NONE) {
            return options_error(state->name, "--request must be given");
        }
        return command_scenario_parse(&request->scenario, key, argument, state);
    default: /* the many other keys of argp */
        return command_scenario_parse(&request->scenario, key, argument, state);
    }
}

static int explain(const char *program, const struct request *request, struct execution *execution)
{
    const int status =
        execution_run(execution, program, &request->scenario, request->quiet, NULL, NULL);
    if (status != CLI_DONE && status != CLI_INTERRUPTED) {
        return status;
    }
    if (request->number >= execution->run.record_count) {
        (void)options_error(program,
                            "--request: %" PRIu32 ": the scenario has requests 0 to %" PRIu32,
                            request->number, execution->run.record_count - 1);
        return CLI_BAD_INPUT;
    }
    (void)sim_report_explain(stdout, &execution->scenario, &execution->run, request->number);
    if (!command_printed(program, stdout)) {
        return CLI_FAILED;
    }
    if (status == CLI_INTERRUPTED) {
        (void)options_error(program, "interrupted: what is told is what was known then");
    }
    return status;
}

int command_explain(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "SCENARIO",
        .doc = "Run a scenario and tell one request's life: every moment, what lies between, and "
               "where it was.\vExit status: 0 done, 1 failed, 2 bad input, 130 interrupted.",
    };
    struct request request = {.number = HLG_NONE};
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    struct execution *const execution = malloc(sizeof *execution);
    if (execution == NULL) {
        (void)options_error(argv[0], "no memory");
        return CLI_FAILED;
    }
    const int status = explain(argv[0], &request, execution);
    execution_fini(execution);
    free(execution);
    return status;
}
