/* `halage-sim run`: one scenario, and what came of it. */
#include "execute.h"
#include "plot.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct command_scenario scenario;
    const char *json_file; /* NULL: none; "-": stdout; so are the others */
    const char *csv_file;
    const char *series_file;
    const char *trace_file;
    const char *plot_folder;
    bool quiet;
};

enum key {
    KEY_JSON = COMMAND_KEY_OWN,
    KEY_CSV,
    KEY_SERIES,
    KEY_TRACE,
    KEY_PLOT,
    KEY_QUIET,
};

static const struct argp_option option_table[] = {
    COMMAND_SCENARIO_ROWS,
    {"json", KEY_JSON, "FILE", 0, "Write all results as JSON; - is stdout, text then to stderr", 0},
    {"csv", KEY_CSV, "FILE", 0, "Write one row for each request, its moments in nanoseconds", 0},
    {"series", KEY_SERIES, "FILE", 0, "Write queues, batches, KV and NIC use over time as TSV", 0},
    {"trace-out", KEY_TRACE, "FILE", 0, "Write all that happens for Perfetto (ui.perfetto.dev)", 0},
    {"plot", KEY_PLOT, "DIR", 0,
     "Draw latencies, and the use of NICs and nodes over time, into DIR, by gnuplot", 0},
    {"quiet", KEY_QUIET, NULL, 0, "Show no progress", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case KEY_CSV:
        request->csv_file = argument;
        return 0;
    case KEY_SERIES:
        request->series_file = argument;
        return 0;
    case KEY_TRACE:
        request->trace_file = argument;
        return 0;
    case KEY_PLOT:
        request->plot_folder = argument;
        return 0;
    case KEY_QUIET:
        request->quiet = true;
        return 0;
    default: /* the many other keys of argp */
        return command_scenario_parse(&request->scenario, key, argument, state);
    }
}

static int write_json(FILE *file, void *context)
{
    const struct execution *execution = context;
    json_t *const json =
        sim_report_json(&execution->scenario, &execution->run, &execution->metrics);
    const int result = json == NULL ? -HLG_EIO : sim_report_json_write(file, json);
    json_decref(json);
    return result;
}

static int write_csv(FILE *file, void *context)
{
    const struct execution *execution = context;
    return sim_report_csv(file, &execution->scenario, &execution->workload, &execution->run,
                          &execution->metrics);
}

static int write_series(FILE *file, void *context)
{
    const struct execution *execution = context;
    return sim_report_series(file, &execution->scenario, &execution->run, &execution->metrics);
}

static bool write_file(const char *program, const char *option, const char *file,
                       int (*write)(FILE *file, void *context), struct execution *execution)
{
    char text[COMMAND_TEXT_BYTES];
    if (file == NULL || sim_report_file(file, write, execution, text, sizeof text) == 0) {
        return true;
    }
    (void)options_error(program, "%s: %s", option, text);
    return false;
}

static bool is_stdout(const char *file)
{
    return file != NULL && strcmp(file, "-") == 0;
}

static bool draw(const char *program, const char *folder, const struct execution *execution)
{
    char text[COMMAND_TEXT_BYTES];
    const int drawn = folder == NULL ? 0
                                     : sim_plot_run(folder, &execution->scenario, &execution->run,
                                                    &execution->metrics, text, sizeof text);
    if (drawn != 0) {
        (void)options_error(program, "--plot: %s", text);
    }
    return drawn >= 0;
}

/* Everything is written, though one file fails. */
static bool tell(const char *program, const struct request *request, struct execution *execution)
{
    const bool taken = is_stdout(request->json_file) || is_stdout(request->csv_file) ||
                       is_stdout(request->series_file) || is_stdout(request->trace_file);
    FILE *const out = taken ? stderr : stdout;
    (void)sim_report_text(out, &execution->scenario, &execution->run, &execution->metrics);
    bool good = command_printed(program, out);
    good = write_file(program, "--json", request->json_file, write_json, execution) && good;
    good = write_file(program, "--csv", request->csv_file, write_csv, execution) && good;
    good = write_file(program, "--series", request->series_file, write_series, execution) && good;
    return draw(program, request->plot_folder, execution) && good;
}

static int run(const char *program, const struct request *request, struct execution *execution)
{
    struct sim_outputs outputs = {.count = 0};

    sim_outputs_add(&outputs, "--json", request->json_file, NULL);
    sim_outputs_add(&outputs, "--csv", request->csv_file, NULL);
    sim_outputs_add(&outputs, "--series", request->series_file, NULL);
    sim_outputs_add(&outputs, "--trace-out", request->trace_file, NULL);
    for (size_t i = 0; request->plot_folder != NULL && sim_plot_run_files[i] != NULL; i++) {
        sim_outputs_add(&outputs, "--plot", request->plot_folder, sim_plot_run_files[i]);
    }
    const int status = execution_run(execution, program, &request->scenario, request->quiet,
                                     request->trace_file, &outputs);
    if ((status == CLI_DONE || status == CLI_INTERRUPTED) && !tell(program, request, execution)) {
        return CLI_FAILED;
    }
    if (status == CLI_DONE && execution->metrics.requests == 0) {
        (void)options_error(program,
                            "%s: nothing was measured: no request arrived between the "
                            "warm-up and the end; lower measure.warmup, or raise "
                            "measure.stop or measure.window",
                            request->scenario.path);
        return CLI_FAILED;
    }
    return status;
}

int command_run(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "SCENARIO",
        .doc =
            "Run a scenario and report TTFT in its parts, TPOT, ITL, E2E, throughput, what is "
            "full, and the SLO.\vInterrupted by Ctrl-C, it reports what is known. Exit status: 0 "
            "done, 1 failed, 2 bad input, 130 interrupted.",
    };
    struct request request = {0};
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    if (is_stdout(request.trace_file) || is_stdout(request.json_file) +
                                                 is_stdout(request.csv_file) +
                                                 is_stdout(request.series_file) >
                                             1) {
        (void)options_error(argv[0], "only one of --json, --csv and --series may be -");
        return CLI_BAD_INPUT;
    }
    struct execution *const execution = malloc(sizeof *execution);
    if (execution == NULL) {
        (void)options_error(argv[0], "no memory");
        return CLI_FAILED;
    }
    const int status = run(argv[0], &request, execution);
    execution_fini(execution);
    free(execution);
    return status;
}
