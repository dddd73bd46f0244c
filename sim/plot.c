#define _GNU_SOURCE

#include "plot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES_MAX  12u /* more cannot be told apart */
#define LABELS_MAX 24u
#define QUANTILES  200u
#define NOT_FOUND  127 /* what the child ends with when there is no gnuplot */

/* ---- Scripts ---- */

/* To be told apart by everyone. Source: M. Okabe, K. Ito, "Color universal design" (2008), without its
 * yellow, which is too light for a line. */
static const char *const colours[] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9",
};
#define COLOURS (sizeof colours / sizeof colours[0])

const char *const sim_plot_run_files[] = {
    "latency.tsv", "latency.gp", "latency.svg", "latency.png", "series.tsv",
    "series.gp",   "series.svg", "series.png",  NULL,
};
const char *const sim_plot_sweep_files[] = {"sweep.gp", "sweep.svg", "sweep.png", NULL};

struct script {
    const char *name; /* sweep, latency, series: of script and pictures */
    void (*body)(FILE *file, const void *context);
    const void *context;
};

/* Everything is drawn twice, for the two formats. */
static int write_script(FILE *file, void *context)
{
    static const char *const terminals[][2] = {
        {"svg size 900,700 font 'Helvetica,14' background '#ffffff'", "svg"},
        {"pngcairo size 1350,1050 font 'Helvetica,14' fontscale 1.4 linewidth 1.5", "png"},
    };
    const struct script *script = context;

    (void)fprintf(file, "# halage-sim %s; run by: gnuplot %s.gp\n", sim_version(), script->name);
    (void)fputs("set datafile separator tab\nset datafile columnheaders\nset encoding utf8\n"
                "set grid lc rgb '#cccccc'\nset border 3\nset tics nomirror out\n",
                file);
    for (size_t i = 0; i < COLOURS; i++) {
        (void)fprintf(file, "set linetype %zu lc rgb '%s'\n", i + 1, colours[i]);
    }
    (void)fprintf(file, "set linetype cycle %zu\n", COLOURS);
    for (size_t i = 0; i < 2; i++) {
        (void)fprintf(file, "\nset terminal %s\nset output '%s.%s'\n", terminals[i][0],
                      script->name, terminals[i][1]);
        script->body(file, script->context);
        (void)fputs("unset output\n", file);
    }
    return ferror(file) != 0 ? -HLG_EIO : 0;
}

static int run_gnuplot(const char *folder, const char *name, char *text, size_t capacity)
{
    char file[64];
    int status = 0;

    (void)snprintf(file, sizeof file, "%s.gp", name);
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) == 0) {
            (void)execlp("gnuplot", "gnuplot", file, (char *)NULL);
        }
        _exit(NOT_FOUND);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND) {
        (void)snprintf(text, capacity,
                       "no pictures: gnuplot is not installed; install gnuplot-nox, then run "
                       "gnuplot %s in %s",
                       file, folder);
        return 1;
    }
    (void)snprintf(text, capacity, "%s/%s: gnuplot could not draw it; its words are above", folder,
                   file);
    return -HLG_EIO;
}

static int draw(const char *folder, const struct script *script, char *text, size_t capacity)
{
    char path[SIM_PATH_MAX + 64];

    (void)snprintf(path, sizeof path, "%s/%s.gp", folder, script->name);
    const int error = sim_report_file(path, write_script, (void *)script, text, capacity);
    return error != 0 ? error : run_gnuplot(folder, script->name, text, capacity);
}

/* gnuplot's single quotes: doubled within. No line's end may come in. */
static void quoted(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputc('\'', file);
        }
        (void)fputc(*text == '\n' ? ' ' : *text, file);
    }
}

/* ---- Sweeps ---- */

/* A case of several keys is a label of settings, "a=1 b=2/s": values alone are short enough for tics
 * and keys. */
static void short_label(FILE *file, const struct sim_sweep *grid, uint32_t axis, uint32_t point)
{
    char label[SIM_AXIS_LABEL_BYTES];
    char *rest = label;

    sim_sweep_label(&grid->axes[axis], sim_sweep_entry(grid, point, axis), label);
    for (const char *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
        const char *value = strchr(word, '=');
        quoted(file, value == NULL ? word : value + 1);
        (void)fputs(rest == NULL ? "" : ", ", file);
    }
}

/* Name of an axis, and of the keys whose values stand at its tics. */
static void axis_label(FILE *file, const struct sim_sweep *grid, uint32_t axis)
{
    char label[SIM_AXIS_LABEL_BYTES];
    char *rest = label;

    quoted(file, grid->axes[axis].name);
    sim_sweep_label(&grid->axes[axis], 0, label);
    const char *between = ": ";
    for (char *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
        char *value = strchr(word, '=');
        if (value != NULL) {
            *value = '\0';
            (void)fputs(between, file);
            quoted(file, word);
            between = ", ";
        }
    }
}

/* A solid and a dashed line for each combination of the other axes. */
static void lines_of(FILE *file, const struct sim_sweep *grid, const char *column,
                     const char *dashed, const char *names[2])
{
    const uint32_t first = grid->axis_count == 0 ? 1 : grid->axes[0].entry_count;
    const uint32_t step = sim_sweep_count(grid) / first;
    const uint32_t shown = hlg_min_u32(step, LINES_MAX);

    for (uint32_t line = 0; line < shown; line++) {
        for (uint32_t kind = 0; kind < 2; kind++) {
            (void)fprintf(file,
                          "%s'sweep.tsv' every %" PRIu32 "::%" PRIu32
                          " using (int(column('point')/%" PRIu32
                          ")):(column('%s')) with linespoints lw 2 lc %" PRIu32 " pt %d dt %d "
                          "title '%s",
                          line + kind == 0 ? "plot " : ", \\\n     ", step, line, step,
                          kind == 0 ? column : dashed, line + 1, kind == 0 ? 7 : 6,
                          kind == 0 ? 1 : 2, names[kind]);
            for (uint32_t axis = 1; axis < grid->axis_count; axis++) {
                (void)fputs(axis == 1 ? ", " : " ", file);
                short_label(file, grid, axis, line);
            }
            (void)fputc('\'', file);
        }
    }
    (void)fputc('\n', file);
}

static void sweep_body(FILE *file, const void *context)
{
    const struct sim_sweep *grid = context;
    const uint32_t first = grid->axis_count == 0 ? 1 : grid->axes[0].entry_count;
    const uint32_t step = sim_sweep_count(grid) / first;
    const uint32_t each = first / LABELS_MAX + 1;

    (void)fputs("set multiplot layout 2,1\nset key outside right top Left reverse noenhanced\n"
                "set key title '",
                file);
    for (uint32_t axis = 1; axis < grid->axis_count; axis++) {
        quoted(file, axis == 1 ? "" : ", ");
        quoted(file, grid->axes[axis].name);
    }
    (void)fputs("' noenhanced\nset lmargin 12\nset rmargin 26\nset xlabel '", file);
    if (grid->axis_count == 0) {
        (void)fputs("the scenario", file);
    } else {
        axis_label(file, grid, 0);
    }
    (void)fprintf(file, "' noenhanced\nset xrange [-0.3:%" PRIu32 ".3]\nset xtics noenhanced (",
                  first - 1);
    for (uint32_t i = 0; i < first; i += each) {
        (void)fputs(i == 0 ? "'" : ", '", file);
        if (grid->axis_count != 0) {
            short_label(file, grid, 0, i * step);
        }
        (void)fprintf(file, "' %" PRIu32, i);
    }
    (void)fputs(")\nset logscale y\nset format y '10^{%T}'\nset ylabel 'TTFT (ms)'\n", file);
    lines_of(file, grid, "ttft_p50_ms", "ttft_p90_ms", (const char *[2]){"p50", "p90"});
    (void)fputs("unset logscale y\nset format y\nset yrange [0:*]\nset ylabel 'speed of a user "
                "(tokens/s)'\n",
                file);
    lines_of(file, grid, "speed_p50_tokens_per_s", "speed_p90_tokens_per_s",
             (const char *[2]){"half have", "90 % have"});
    (void)fputs("unset multiplot\nset yrange [*:*]\n", file);
}

int sim_plot_sweep(const char *folder, const struct sim_sweep *grid, char *text, size_t capacity)
{
    const struct script script = {"sweep", sweep_body, grid};
    return draw(folder, &script, text, capacity);
}

/* ---- One run ---- */

struct run_plot {
    const struct sim_scenario *scenario;
    const struct sim_run *run;
    const struct sim_metrics *metrics;
    struct sim_value *values;           /* [record_count] */
    double (*quantiles)[QUANTILES + 1]; /* of each curve */
};

static const struct curve {
    uint32_t latency;
    const char *name;
    const char *title;
} curves[] = {
    {SIM_LATENCY_TTFT, "ttft_ms", "TTFT"},
    {SIM_REQUESTED, "prefill_queue_ms", "  prefill queue"},
    {SIM_STARTED, "prefill_ms", "  prefill"},
    {SIM_COMPUTED, "exposed_transfer_ms", "  exposed transfer"},
    {SIM_LATENCY_TPOT, "tpot_ms", "TPOT"},
    {SIM_LATENCY_E2E, "e2e_ms", "E2E"},
};
#define CURVES (sizeof curves / sizeof curves[0])

static int compare_values(const void *a, const void *b)
{
    const double left = ((const struct sim_value *)a)->value;
    const double right = ((const struct sim_value *)b)->value;
    return left < right ? -1 : left > right;
}

/* Open values are endless here: the curve ends below 1. */
static void find_quantiles(const struct run_plot *plot, uint32_t curve)
{
    const uint64_t count =
        sim_metrics_values(plot->scenario, plot->run, curves[curve].latency, plot->values);
    uint64_t closed = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (!plot->values[i].open) {
            plot->values[closed++] = plot->values[i];
        }
    }
    qsort(plot->values, closed, sizeof *plot->values, compare_values);
    for (uint64_t q = 0; q <= QUANTILES; q++) {
        const uint64_t rank =
            (q * count + QUANTILES - 1) / QUANTILES; /* of the least that q passes */
        const uint64_t index = rank == 0 ? 0 : rank - 1;
        plot->quantiles[curve][q] = index < closed ? plot->values[index].value : -1;
    }
}

static int write_latency(FILE *file, void *context)
{
    const struct run_plot *plot = context;

    (void)fprintf(file, "# halage-sim %s scenario %016" PRIx64 " calibration %s\nshare",
                  sim_version(), plot->metrics->digest, plot->run->basis[0].id);
    for (size_t i = 0; i < CURVES; i++) {
        (void)fprintf(file, "\t%s", curves[i].name);
    }
    (void)fputc('\n', file);
    for (uint32_t q = 0; q <= QUANTILES; q++) {
        (void)fprintf(file, "%.4f", (double)q / QUANTILES);
        for (size_t i = 0; i < CURVES; i++) {
            if (plot->quantiles[i][q] < 0) {
                (void)fputs("\tnan", file);
            } else {
                (void)fprintf(file, "\t%.6g", plot->quantiles[i][q]);
            }
        }
        (void)fputc('\n', file);
    }
    return ferror(file) != 0 ? -HLG_EIO : 0;
}

static void heading(FILE *file, const struct run_plot *plot)
{
    (void)fputs("set title '", file);
    quoted(file, plot->scenario->name);
    (void)fputs("' noenhanced\n", file);
}

/* On a logarithmic axis what takes no time has no place: it is drawn at a microsecond. */
static void latency_body(FILE *file, const void *context)
{
    const struct run_plot *plot = context;

    heading(file, plot);
    (void)fputs("set key outside right top Left reverse\nset xlabel 'latency (ms, logarithmic)'\n"
                "set ylabel 'share of requests that take at most so long'\n"
                "set logscale x\nset yrange [0:1]\nset xrange [0.001:*]\nset format x '10^{%T}'\n"
                "plot ",
                file);
    for (size_t i = 0; i < CURVES; i++) {
        (void)fprintf(file,
                      "%s'latency.tsv' using (column('%s') < 0.001 ? 0.001 : column('%s')):"
                      "(column('share')) with lines lw 2 lc %zu title '%s'",
                      i == 0 ? "" : ", \\\n     ", curves[i].name, curves[i].name, i + 1,
                      curves[i].title);
    }
    (void)fputs("\nunset logscale x\nset xrange [*:*]\n", file);
}

static int write_series(FILE *file, void *context)
{
    const struct run_plot *plot = context;
    return sim_report_series(file, plot->scenario, plot->run, plot->metrics);
}

/* An axis of shares in percent, up to the least of these that holds the greatest. */
static void percent_axis(FILE *file, float greatest)
{
    static const double tops[][2] = {{1, 0.25}, {2, 0.5}, {5, 1},   {10, 2},
                                     {20, 5},   {50, 10}, {100, 20}};
    size_t i = 0;

    while (i + 1 < sizeof tops / sizeof tops[0] && 100 * (double)greatest > tops[i][0]) {
        i++;
    }
    (void)fprintf(file, "set yrange [0:%g]\nset ytics %g\n", tops[i][0], tops[i][1]);
}

static float greatest_nic_use(const struct sim_run *run)
{
    float greatest = 0;

    for (uint32_t i = 0; i < run->series_count; i++) {
        const struct sim_sample *sample = &run->series[i];
        greatest = sample->nic_out_max > greatest ? sample->nic_out_max : greatest;
        greatest = sample->nic_in_max > greatest ? sample->nic_in_max : greatest;
    }
    return greatest;
}

static void series_panel(FILE *file, const char *label, const char *const columns[][2],
                         size_t count, bool percent)
{
    (void)fprintf(file, "set ylabel '%s'\nplot ", label);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(file,
                      "%s'series.tsv' using (column('time_s')):(%scolumn('%s')) with lines lw 1.5 "
                      "lc %zu title '%s'",
                      i == 0 ? "" : ", \\\n     ", percent ? "100*" : "", columns[i][0], i + 1,
                      columns[i][1]);
    }
    (void)fputc('\n', file);
}

static void series_body(FILE *file, const void *context)
{
    static const char *const nics[][2] = {
        {"nic_out_busiest", "out, busiest"},
        {"nic_out", "out, mean"},
        {"nic_in_busiest", "in, busiest"},
        {"nic_in", "in, mean"},
    };
    static const char *const nodes[][2] = {
        {"prefill_busy", "prefill busy"},
        {"prefill_kv", "prefill KV pages"},
        {"decode_kv", "decode KV pages"},
    };
    static const char *const mixed[][2] = {
        {"prefill_busy", "busy"},
        {"prefill_kv", "KV pages"},
    };
    static const char *const counts[][2] = {
        {"prefill_queue", "wait for prefill"},
        {"decode_waiting", "wait for decode"},
        {"decode_running", "in decode"},
    };
    const struct run_plot *plot = context;
    const bool colocated = plot->scenario->serving == SIM_SERVING_COLOCATED;

    (void)fprintf(file,
                  "set multiplot layout %d,1\nset lmargin 10\nset rmargin 24\n"
                  "set key outside right top Left reverse\n",
                  colocated ? 2 : 3);
    heading(file, plot);
    (void)fputs("set xlabel 'virtual time (s)'\n", file);
    if (!colocated) {
        percent_axis(file, greatest_nic_use(plot->run));
        series_panel(file, "NIC use (%)", nics, 4, true);
        (void)fputs("unset title\n", file);
    }
    percent_axis(file, 1);
    series_panel(file, "node use (%)", colocated ? mixed : nodes, colocated ? 2 : 3, true);
    (void)fputs("unset title\n", file);
    (void)fputs("set yrange [0:*]\nset ytics autofreq\n", file);
    series_panel(file, "requests", counts, 3, false);
    (void)fputs("unset multiplot\nset yrange [*:*]\n", file);
}

static int draw_run(const char *folder, struct run_plot *plot, char *text, size_t capacity)
{
    const struct script scripts[] = {{"latency", latency_body, plot},
                                     {"series", series_body, plot}};
    char path[SIM_PATH_MAX + 64];
    int result = 0;

    for (uint32_t i = 0; i < CURVES; i++) {
        find_quantiles(plot, i);
    }
    (void)snprintf(path, sizeof path, "%s/latency.tsv", folder);
    int error = sim_report_file(path, write_latency, plot, text, capacity);
    if (error == 0) {
        (void)snprintf(path, sizeof path, "%s/series.tsv", folder);
        error = sim_report_file(path, write_series, plot, text, capacity);
    }
    for (size_t i = 0; error == 0 && i < 2; i++) {
        const int drawn = draw(folder, &scripts[i], text, capacity);
        error = drawn < 0 ? drawn : 0;
        result = drawn;
    }
    return error != 0 ? error : result;
}

int sim_plot_run(const char *folder, const struct sim_scenario *scenario, const struct sim_run *run,
                 const struct sim_metrics *metrics, char *text, size_t capacity)
{
    struct run_plot plot = {.scenario = scenario, .run = run, .metrics = metrics};

    if (strlen(folder) > SIM_PATH_MAX - 32 || (mkdir(folder, 0777) != 0 && errno != EEXIST)) {
        (void)snprintf(text, capacity, "%.200s: cannot make the folder: %s; give another", folder,
                       strerror(errno));
        return -HLG_EIO;
    }
    plot.values = calloc((size_t)run->record_count + 1, sizeof *plot.values);
    plot.quantiles = calloc(CURVES, sizeof *plot.quantiles);
    int error = -HLG_ENOMEM;
    if (plot.values != NULL && plot.quantiles != NULL) {
        error = draw_run(folder, &plot, text, capacity);
    } else {
        (void)snprintf(text, capacity, "%s: no memory for its figures", folder);
    }
    free(plot.values);
    free(plot.quantiles);
    return error;
}
