/* `halage-sim sweep`: a grid of scenarios, on all cores or spread over machines. */
#include "points.h"

#include "plot.h"
#include "pool.h"
#include "sweep_examine.h"
#include "sweep_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct command_scenario scenario;
    const char *axes[SIM_SWEEP_AXES_MAX];
    uint32_t axis_count;
    const char *folder;
    const char *json_file;
    uint32_t jobs;
    uint32_t shard_index;
    uint32_t shard_count;
    bool fresh;
    bool plot;
    bool quiet;
};

enum key {
    KEY_OUT = COMMAND_KEY_OWN,
    KEY_JOBS,
    KEY_SHARD,
    KEY_FRESH,
    KEY_PLOT,
    KEY_JSON,
    KEY_QUIET,
};

static const struct argp_option option_table[] = {
    COMMAND_SCENARIO_ROWS,
    {NULL, 'g', "KEY=V1,V2,...", 0,
     "An axis of the grid, in place of the scenario's own (repeatable); keys that move together: "
     "prefill.nodes:decode.nodes=1:3,2:2",
     0},
    {"out", KEY_OUT, "DIR", 0, "Where results are kept and merged", 0},
    {"jobs", KEY_JOBS, "N", 0, "Points at a time; default: the CPUs that there are", 0},
    {"shard", KEY_SHARD, "I/N", 0,
     "Run only the I-th of N parts, 1 <= I <= N; all parts share DIR, the last one merges", 0},
    {"fresh", KEY_FRESH, NULL, 0, "Run again what DIR has results of", 0},
    {"plot", KEY_PLOT, NULL, 0, "Draw TTFT and speed over the first axis, by gnuplot", 0},
    {"json", KEY_JSON, "FILE", 0, "Write the merged results here too; - is stdout", 0},
    {"quiet", KEY_QUIET, NULL, 0, "Show no progress", 0},
    {0},
};

static error_t parse_shard(const struct argp_state *state, const char *text,
                           struct request *request)
{
    char index[16];
    const char *const slash = strchr(text, '/');
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - text);

    if (bytes > 0 && bytes < sizeof index) {
        memcpy(index, text, bytes);
        index[bytes] = '\0';
        if (options_u32(index, &request->shard_index) &&
            options_u32(slash + 1, &request->shard_count) && request->shard_index >= 1 &&
            request->shard_index <= request->shard_count) {
            request->shard_index--;
            return 0;
        }
    }
    return options_error(state->name,
                         "--shard: '%s': write I/N with 1 <= I <= N; for an index that counts "
                         "from 0: $((i + 1))/N",
                         text);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case 'g':
        if (request->axis_count == SIM_SWEEP_AXES_MAX) {
            return options_error(state->name, "-g: at most %u axes", SIM_SWEEP_AXES_MAX);
        }
        request->axes[request->axis_count++] = argument;
        return 0;
    case KEY_OUT:
        request->folder = argument;
        return 0;
    case KEY_JOBS:
        return points_jobs(state->name, argument, &request->jobs);
    case KEY_SHARD:
        return parse_shard(state, argument, request);
    case KEY_FRESH:
        request->fresh = true;
        return 0;
    case KEY_PLOT:
        request->plot = true;
        return 0;
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case KEY_QUIET:
        request->quiet = true;
        return 0;
    case ARGP_KEY_END:
        if (request->folder == NULL) {
            return options_error(state->name, "name a folder for the results: --out DIR");
        }
        return command_scenario_parse(&request->scenario, key, argument, state);
    default: /* the many other keys of argp */
        return command_scenario_parse(&request->scenario, key, argument, state);
    }
}

/* The command line's axes, or else the scenario's. */
static int read_grid(const char *program, const struct request *request, struct sim_sweep *grid)
{
    char text[COMMAND_TEXT_BYTES];
    int error = 0;

    if (request->axis_count == 0) {
        error = sim_scenario_sweep(request->scenario.path, grid, text, sizeof text);
        if (error == 0 && grid->axis_count == 0) {
            (void)options_error(program,
                                "%s: has no sweep; write -g KEY=V1,V2 or the section `sweep`",
                                request->scenario.path);
            return CLI_BAD_INPUT;
        }
    }
    for (uint32_t i = 0; error == 0 && i < request->axis_count; i++) {
        error = sim_sweep_axis_add(grid, request->axes[i], text, sizeof text);
    }
    if (error != 0) {
        (void)options_error(program, "%s", text);
        sim_sweep_fini(grid);
        return error == -HLG_ENOMEM ? CLI_FAILED : CLI_BAD_INPUT;
    }
    return CLI_DONE;
}

static void show(void *context, const struct sim_sweep_totals *totals)
{
    command_progress_show(context, totals->kept + totals->ran, totals->due, "points");
}

static int copy_file(FILE *file, void *context)
{
    FILE *const from = fopen(context, "r");
    char bytes[4096];
    size_t count = 0;

    if (from == NULL) {
        return -HLG_EIO;
    }
    while ((count = fread(bytes, 1, sizeof bytes, from)) != 0) {
        if (fwrite(bytes, 1, count, file) != count) {
            break;
        }
    }
    const bool good = feof(from) != 0 && ferror(from) == 0;
    (void)fclose(from);
    return good ? 0 : -HLG_EIO;
}

/* What the merged results are good for. Returns an exit status. */
static int finish(const char *program, const struct request *request, const struct sim_sweep *grid,
                  const struct sim_sweep_totals *totals, FILE *out)
{
    char text[COMMAND_TEXT_BYTES];
    char path[COMMAND_TEXT_BYTES];

    (void)snprintf(path, sizeof path, "%s/sweep.json", request->folder);
    if (request->json_file != NULL &&
        sim_report_file(request->json_file, copy_file, path, text, sizeof text) != 0) {
        (void)options_error(program, "--json: %s", text);
        return CLI_FAILED;
    }
    (void)fprintf(out, "merged: %s/sweep.tsv %s/sweep.json\n", request->folder, request->folder);
    if (!request->plot) {
        return CLI_DONE;
    }
    if (totals->refused + totals->broken == totals->points) {
        (void)options_error(program, "--plot: no point has a result to draw");
        return CLI_DONE;
    }
    const int drawn = sim_plot_sweep(request->folder, grid, text, sizeof text);
    if (drawn != 0) {
        (void)options_error(program, "--plot: %s", text);
    } else {
        (void)fprintf(out, "drawn:  %s/sweep.svg %s/sweep.png\n", request->folder, request->folder);
    }
    return drawn < 0 ? CLI_FAILED : CLI_DONE;
}

static int run(const char *program, const struct request *request, const struct sim_sweep *grid)
{
    FILE *const out =
        request->json_file != NULL && strcmp(request->json_file, "-") == 0 ? stderr : stdout;
    struct points_overrides overrides;
    struct command_progress progress;
    struct sim_sweep_totals totals;
    char text[COMMAND_TEXT_BYTES] = "";

    points_overrides(&request->scenario, &overrides);
    const struct sim_sweep_run sweep = {
        .scenario = request->scenario.path,
        .overrides = overrides.list,
        .override_count = overrides.count,
        .grid = grid,
        .folder = request->folder,
        .jobs = request->jobs,
        .shard_index = request->shard_index,
        .shard_count = request->shard_count,
        .fresh = request->fresh,
        .stopped = command_interrupted,
        .progress = show,
        .context = &progress,
    };
    const struct examine examine = {
        request->scenario.path, &overrides,         grid,         request->axis_count != 0,
        request->folder,        request->json_file, request->plot};
    const int examined = sweep_examine(program, &examine);
    if (examined != CLI_DONE) {
        return examined;
    }
    command_catch_signals();
    command_progress_begin(&progress, program, request->quiet);
    const int error = sim_sweep_run(&sweep, &totals, text, sizeof text);
    command_progress_end(&progress);
    if (error == -HLG_ECANCELED) {
        (void)fprintf(stderr,
                      "%s: interrupted after %" PRIu32 " of %" PRIu32
                      " points; the same command goes on from there\n",
                      program, totals.kept + totals.ran, totals.due);
        return CLI_INTERRUPTED;
    }
    if (error != 0) {
        (void)options_error(program, "%s", text);
        return error == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    (void)fprintf(out,
                  "sweep: %" PRIu32 " points, %" PRIu32 " run now, %" PRIu32 " kept; %" PRIu32
                  " refused, %" PRIu32 " failed, %" PRIu32 " not run yet\n",
                  totals.points, totals.ran, totals.kept, totals.refused, totals.broken,
                  totals.missing);
    const int status =
        totals.missing != 0 ? CLI_DONE : finish(program, request, grid, &totals, out);
    if (!command_printed(program, out)) {
        return CLI_FAILED;
    }
    if (status == CLI_DONE && totals.missing == 0 && totals.refused == totals.points) {
        (void)options_error(program, "no point can be run; the first: %s", totals.first);
        return CLI_INFEASIBLE;
    }
    return status != CLI_DONE ? status : totals.broken != 0 ? CLI_FAILED : CLI_DONE;
}

int command_sweep(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "SCENARIO",
        .doc =
            "Run every point of a grid, each in a process of its own, and merge the results into "
            "DIR/sweep.tsv and DIR/sweep.json.\vA result that DIR has already is kept, so the "
            "same command goes on where one was interrupted. Shards may run on many machines that "
            "share DIR. A point that cannot be run is a row with its sentence. Exit status: 0 "
            "done, 1 a point failed, 2 bad input, 3 no point can be run, 130 interrupted.",
    };
    struct request request = {.jobs = sim_pool_cpus(), .shard_count = 1};
    struct sim_sweep grid = {0};

    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    int status = read_grid(argv[0], &request, &grid);
    if (status == CLI_DONE) {
        status = run(argv[0], &request, &grid);
        sim_sweep_fini(&grid);
    }
    return status;
}
