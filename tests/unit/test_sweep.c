/*
 * Grids are every combination in order; sweeps give the same merged bytes with any jobs and shards,
 * resumed, and killed in the middle; a point that cannot run is a row.
 *
 * Scenario and run are stood in for (the build wraps their names): a point's scenario is the hash of its
 * overrides, its result a few numbers of them. Some points refuse, one crashes. Integration tests sweep
 * real scenarios.
 */
#define _GNU_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibration.h"
#include "sweep_run.h"

/* ---- Stand-ins ---- */

int __wrap_sim_scenario_read(struct sim_scenario *scenario, const char *path,
                             const char *const *overrides, uint32_t count, char *text,
                             size_t capacity);
void __wrap_sim_scenario_fini(struct sim_scenario *scenario);
uint64_t __wrap_sim_scenario_digest(const struct sim_scenario *scenario);
json_t *__wrap_sim_point_run(const char *path, const char *const *overrides, uint32_t count);

static uint64_t hash(const char *const *words, uint32_t count)
{
    uint64_t value = 1469598103934665603u;
    for (uint32_t i = 0; i < count; i++) {
        for (const char *c = words[i]; *c != '\0'; c++) {
            value = (value ^ (uint8_t)*c) * 1099511628211u;
        }
    }
    return value;
}

int __wrap_sim_scenario_read(struct sim_scenario *scenario, const char *path,
                             const char *const *overrides, uint32_t count, char *text,
                             size_t capacity)
{
    if (strcmp(path, "none.yaml") == 0) {
        (void)snprintf(text, capacity, "none.yaml: cannot read");
        return -HLG_EINVAL;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(overrides[i], "a=bad") == 0) {
            (void)snprintf(text, capacity, "-s: a\tis bad");
            return -HLG_EINVAL;
        }
    }
    *scenario = (struct sim_scenario){.seed = hash(overrides, count)};
    return 0;
}

void __wrap_sim_scenario_fini(struct sim_scenario *scenario)
{
    (void)scenario;
}

uint64_t __wrap_sim_scenario_digest(const struct sim_scenario *scenario)
{
    return scenario->seed;
}

static int gate = -1;          /* a pipe that holds the points with b=3 back; -1: none */
static uint32_t *ran = NULL;   /* shared with the children: points that ran */
static bool crash_now = false; /* a=2,b=4 crashes */
static bool other_calibration = false;

static bool has(const char *const *overrides, uint32_t count, const char *word)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(overrides[i], word) == 0) {
            return true;
        }
    }
    return false;
}

json_t *__wrap_sim_point_run(const char *path, const char *const *overrides, uint32_t count)
{
    char calibration[48];
    char byte = 0;

    (void)path;
    sim_calibration_id(calibration, sizeof calibration);
    if (other_calibration) {
        calibration[0] = '0';
    }
    (void)__atomic_add_fetch(ran, 1, __ATOMIC_SEQ_CST);
    if (gate >= 0 && has(overrides, count, "b=3")) {
        (void)!read(gate, &byte, 1);
    }
    if (crash_now && has(overrides, count, "a=2") && has(overrides, count, "b=4")) {
        (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would speak */
        abort();
    }
    if (has(overrides, count, "a=bad")) {
        return json_pack("{ss ss ss ss ss so}", "version", sim_version(), "calibration",
                         calibration, "digest", "0", "status", "refused", "sentence",
                         "-s: a\tis bad", "report", json_null());
    }
    return json_pack("{ss ss ss ss ss s{s{s{sf}} ss}}", "version", sim_version(), "calibration",
                     calibration, "digest", "0", "status", "done", "sentence", "", "report",
                     "latency", "ttft_ms", "mean", (double)(hash(overrides, count) % 100000) / 7,
                     "limit", "none");
}

/* ---- Grids ---- */

static void expect_axis(const char *word, int expected, const char *says)
{
    struct sim_sweep grid = {0};
    char text[256] = "";
    assert_int_equal(sim_sweep_axis_add(&grid, word, text, sizeof text), expected);
    if (expected != 0 && strstr(text, says) == NULL) {
        fail_msg("'%s' does not say '%s'", text, says);
    }
    sim_sweep_fini(&grid);
}

static void grids_are_every_combination(void **state)
{
    struct sim_sweep grid = {0};
    const char *overrides[SIM_SWEEP_OVERRIDES_MAX];
    char label[SIM_AXIS_LABEL_BYTES];
    char text[256];

    (void)state;
    assert_int_equal(sim_sweep_count(&grid), 1);
    assert_int_equal(sim_sweep_axis_add(&grid, "p:d=1:3,2:2", text, sizeof text), 0);
    assert_int_equal(sim_sweep_axis_add(&grid, "accept=[0.8,0.6],[0.7],none", text, sizeof text),
                     0);
    assert_int_equal(sim_sweep_count(&grid), 6);
    assert_int_equal(sim_sweep_point(&grid, 4, overrides), 3);
    assert_string_equal(overrides[0], "p=2");
    assert_string_equal(overrides[1], "d=2");
    assert_string_equal(overrides[2], "accept=[0.7]");
    sim_sweep_label(&grid.axes[0], 1, label);
    assert_string_equal(label, "2:2");
    sim_sweep_label(&grid.axes[1], 0, label);
    assert_string_equal(label, "[0.8,0.6]");
    assert_int_equal(sim_sweep_axis_add(&grid, "d=1", text, sizeof text), -HLG_EINVAL);
    assert_int_equal(sim_sweep_count(&grid), 6);
    const char *const cases[] = {"x=1 y=2", "x=2"};
    assert_int_equal(sim_sweep_add(&grid, "how", cases, 2, text, sizeof text), 0);
    sim_sweep_label(&grid.axes[2], 0, label);
    assert_string_equal(label, "x=1 y=2");
    sim_sweep_label(&grid.axes[2], 1, label);
    assert_string_equal(label, "x=2");
    sim_sweep_fini(&grid);
}

static void bad_axes_are_refused(void **state)
{
    struct sim_sweep grid = {0};
    char axis[8192] = "a=0";
    char text[256];

    (void)state;
    expect_axis("time=1:30,2:00", 0, "");
    expect_axis("nothing", -HLG_EINVAL, "no '='");
    expect_axis("=1", -HLG_EINVAL, "no '='");
    expect_axis("a=", -HLG_EINVAL, "empty");
    expect_axis("a=1,,2", -HLG_EINVAL, "empty");
    expect_axis("a:b=1:2,3", -HLG_EINVAL, "each key");
    expect_axis("a:b=1:2:3", -HLG_EINVAL, "each key");
    expect_axis("a:a=1:2", -HLG_EINVAL, "another axis");
    expect_axis("a:=1:2", -HLG_EINVAL, "empty key");
    expect_axis("a:b:c:d:e=1:2:3:4:5", -HLG_EINVAL, "more than 4");
    for (uint32_t i = 1; i < 256; i++) {
        (void)snprintf(axis + strlen(axis), sizeof axis - strlen(axis), ",%u", i);
    }
    expect_axis(axis, 0, "");
    assert_int_equal(sim_sweep_axis_add(&grid, axis, text, sizeof text), 0);
    axis[0] = 'b';
    assert_int_equal(sim_sweep_axis_add(&grid, axis, text, sizeof text), 0);
    assert_int_equal(sim_sweep_axis_add(&grid, "c=1,2", text, sizeof text), -HLG_EINVAL);
    (void)snprintf(axis + strlen(axis), sizeof axis - strlen(axis), ",256");
    expect_axis(axis, -HLG_EINVAL, "256 values");
    sim_sweep_fini(&grid);
}

/* ---- Sweeps ---- */

static char folder[] = "/tmp/halage-sweep-XXXXXX";

struct bench {
    struct sim_sweep grid;
    char folder[128];
    struct sim_sweep_run sweep;
    struct sim_sweep_totals totals;
    char text[512];
};

static struct bench *bench_make(const char *name)
{
    struct bench *bench = calloc(1, sizeof *bench);
    static const char *const overrides[] = {"seed=1"};
    char text[256];

    assert_non_null(bench);
    assert_int_equal(sim_sweep_axis_add(&bench->grid, "a=1,2,bad", text, sizeof text), 0);
    assert_int_equal(sim_sweep_axis_add(&bench->grid, "b=1,2,3,4,5", text, sizeof text), 0);
    (void)snprintf(bench->folder, sizeof bench->folder, "%s/%s", folder, name);
    bench->sweep = (struct sim_sweep_run){.scenario = "some.yaml",
                                          .overrides = overrides,
                                          .override_count = 1,
                                          .grid = &bench->grid,
                                          .folder = bench->folder,
                                          .jobs = 1,
                                          .shard_count = 1};
    *ran = 0;
    return bench;
}

static int bench_run(struct bench *bench)
{
    return sim_sweep_run(&bench->sweep, &bench->totals, bench->text, sizeof bench->text);
}

static char *slurp(const struct bench *bench, const char *name)
{
    char path[256];
    char *text = NULL;
    size_t size = 0;

    (void)snprintf(path, sizeof path, "%s/%s", bench->folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    assert_true(getdelim(&text, &size, '\0', file) > 0);
    (void)fclose(file);
    return text;
}

/* Removes the folder and all in it. No temporary file may be left. */
static void bench_free(struct bench *bench)
{
    char path[512];
    DIR *directory = opendir(bench->folder);

    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        assert_null(strstr(entry->d_name, ".part"));
        (void)snprintf(path, sizeof path, "%s/%s", bench->folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(directory);
    assert_int_equal(rmdir(bench->folder), 0);
    sim_sweep_fini(&bench->grid);
    free(bench);
}

static void assert_same(const struct bench *one, const struct bench *other)
{
    static const char *const names[] = {"sweep.tsv", "sweep.json"};
    for (size_t i = 0; i < 2; i++) {
        char *a = slurp(one, names[i]);
        char *b = slurp(other, names[i]);
        assert_non_null(a);
        assert_non_null(b);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
}

static struct bench *reference(void)
{
    struct bench *bench = bench_make("reference");
    assert_int_equal(bench_run(bench), 0);
    return bench;
}

/* Root may write into this folder, says access(), but nobody can make a file there. */
static void the_first_result_that_cannot_be_written_ends_it(void **state)
{
    struct bench *bench = bench_make("unwritten");

    (void)state;
    bench->sweep.folder = "/proc/self/fd";
    assert_int_equal(bench_run(bench), -HLG_EIO);
    assert_int_equal(*ran, 1);
    assert_non_null(strstr(bench->text, "/proc/self/fd"));
    assert_int_equal(mkdir(bench->folder, 0700), 0);
    bench_free(bench);
}

static void rows_are_in_order_of_the_grid(void **state)
{
    struct bench *bench = reference();
    char *table = slurp(bench, "sweep.tsv");
    uint32_t row = 0;

    (void)state;
    assert_int_equal(*ran, 15);
    assert_true(bench->totals.points == 15 && bench->totals.ran == 15);
    assert_true(bench->totals.refused == 5 && bench->totals.broken == 0);
    assert_int_equal(bench->totals.missing, 0);
    char *line = strchr(strchr(table, '\n') + 1, '\n') + 1;
    assert_int_equal(strncmp(table, "# halage-sim ", 13), 0);
    assert_int_equal(strncmp(strchr(table, '\n') + 1, "point\ta\tb\tstatus\t", 17), 0);
    for (; *line != '\0'; line = strchr(line, '\n') + 1, row++) {
        static const char *const a[] = {"1", "2", "bad"};
        char begin[64];
        (void)snprintf(begin, sizeof begin, "%u\t%s\t%u\t%s\t", row, a[row / 5], row % 5 + 1,
                       row < 10 ? "done" : "refused");
        assert_int_equal(strncmp(line, begin, strlen(begin)), 0);
    }
    assert_int_equal(row, 15);
    assert_non_null(strstr(table, "\t-s: a is bad\n")); /* its tab is a space now */
    free(table);
    bench_free(bench);
}

static void jobs_do_not_show(void **state)
{
    struct bench *one = reference();
    struct bench *two = bench_make("jobs");

    (void)state;
    two->sweep.jobs = 4;
    assert_int_equal(bench_run(two), 0);
    assert_same(one, two);
    bench_free(one);
    bench_free(two);
}

static void shards_complete_each_other(void **state)
{
    struct bench *one = reference();
    struct bench *shards = bench_make("shards");

    (void)state;
    shards->sweep.shard_count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t order[] = {2, 0, 3, 1};
        shards->sweep.shard_index = order[i];
        assert_int_equal(bench_run(shards), 0);
        assert_int_equal(shards->totals.missing == 0, i == 3);
        char *table = slurp(shards, "sweep.tsv");
        assert_true((table != NULL) == (i == 3));
        free(table);
    }
    assert_int_equal(*ran, 15);
    assert_same(one, shards);
    bench_free(one);
    bench_free(shards);
}

static void results_are_kept(void **state)
{
    struct bench *bench = reference();
    char *before = slurp(bench, "sweep.json");

    (void)state;
    assert_int_equal(bench_run(bench), 0);
    assert_true(*ran == 15 && bench->totals.kept == 15 && bench->totals.ran == 0);
    bench->sweep.fresh = true;
    assert_int_equal(bench_run(bench), 0);
    assert_int_equal(*ran, 30);
    char *after = slurp(bench, "sweep.json");
    assert_string_equal(before, after);
    free(before);
    free(after);
    bench_free(bench);
}

static void results_of_another_calibration_are_made_anew(void **state)
{
    struct bench *bench = bench_make("other");

    (void)state;
    other_calibration = true;
    assert_int_equal(bench_run(bench), 0);
    assert_int_equal(bench->totals.missing, 15);
    other_calibration = false;
    assert_int_equal(bench_run(bench), 0);
    assert_true(bench->totals.kept == 0 && bench->totals.ran == 15);
    assert_int_equal(bench->totals.missing, 0);
    bench_free(bench);
}

static void crashes_are_rows_and_are_tried_again(void **state)
{
    struct bench *one = reference();
    struct bench *bench = bench_make("crash");

    (void)state;
    crash_now = true;
    assert_int_equal(bench_run(bench), 0);
    assert_int_equal(bench->totals.broken, 1);
    char *table = slurp(bench, "sweep.tsv");
    assert_non_null(strstr(table, "its process was ended by signal 6"));
    free(table);
    crash_now = false;
    assert_int_equal(bench_run(bench), 0);
    assert_true(bench->totals.kept == 14 && bench->totals.ran == 1 && bench->totals.broken == 0);
    assert_same(one, bench);
    bench_free(one);
    bench_free(bench);
}

static void bad_bases_are_errors(void **state)
{
    struct bench *bench = bench_make("base");

    (void)state;
    bench->sweep.scenario = "none.yaml";
    assert_int_equal(bench_run(bench), -HLG_EINVAL);
    assert_string_equal(bench->text, "none.yaml: cannot read");
    bench_free(bench);
    bench = bench_make("base");
    bench->sweep.folder = "/proc/none/such";
    assert_int_equal(bench_run(bench), -HLG_EIO);
    assert_non_null(strstr(bench->text, "--out"));
    sim_sweep_fini(&bench->grid);
    free(bench);
}

/* A sweep in a process of its own, that blocks in the points with b=3. */
static pid_t start_blocked(struct bench *bench, int pipe_end)
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        gate = pipe_end;
        bench->sweep.jobs = 2;
        (void)bench_run(bench);
        _exit(0);
    }
    return pid;
}

/* Killed while two points run: what was over is kept, the rest runs anew, the bytes are the same. */
static void killed_sweeps_resume(void **state)
{
    struct bench *one = reference();
    struct bench *killed = bench_make("killed");
    int ends[2];
    int status = 0;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = start_blocked(killed, ends[0]);
    /* Both children hang at last: points 2 and 7 have b=3, those before them are done. */
    while (__atomic_load_n(ran, __ATOMIC_SEQ_CST) < 8) {
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    char *table = slurp(killed, "sweep.tsv");
    assert_null(table);
    *ran = 0;
    assert_int_equal(bench_run(killed), 0);
    assert_int_equal(killed->totals.kept, 6); /* all that was over before point 7 began */
    assert_int_equal(killed->totals.ran + killed->totals.kept, 15);
    assert_int_equal(*ran, killed->totals.ran);
    assert_same(one, killed);
    (void)close(ends[0]);
    (void)close(ends[1]);
    bench_free(one);
    bench_free(killed);
}

static bool stop = false;

static bool stopped(void)
{
    return stop;
}

static void stop_after_three(void *context, const struct sim_sweep_totals *totals)
{
    (void)context;
    stop = totals->ran == 3;
}

static void stopped_sweeps_resume(void **state)
{
    struct bench *one = reference();
    struct bench *bench = bench_make("stopped");

    (void)state;
    bench->sweep.stopped = stopped;
    bench->sweep.progress = stop_after_three;
    assert_int_equal(bench_run(bench), -HLG_ECANCELED);
    assert_int_equal(bench->totals.ran, 3);
    stop = false;
    bench->sweep.progress = NULL;
    assert_int_equal(bench_run(bench), 0);
    assert_int_equal(bench->totals.kept, 3);
    assert_same(one, bench);
    bench_free(one);
    bench_free(bench);
}

static int set_up(void **state)
{
    (void)state;
    ran = mmap(NULL, sizeof *ran, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return ran == MAP_FAILED || mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder) != 0 || munmap(ran, sizeof *ran) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_are_every_combination),
        cmocka_unit_test(bad_axes_are_refused),
        cmocka_unit_test(the_first_result_that_cannot_be_written_ends_it),
        cmocka_unit_test(rows_are_in_order_of_the_grid),
        cmocka_unit_test(jobs_do_not_show),
        cmocka_unit_test(shards_complete_each_other),
        cmocka_unit_test(results_are_kept),
        cmocka_unit_test(results_of_another_calibration_are_made_anew),
        cmocka_unit_test(crashes_are_rows_and_are_tried_again),
        cmocka_unit_test(bad_bases_are_errors),
        cmocka_unit_test(killed_sweeps_resume),
        cmocka_unit_test(stopped_sweeps_resume),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
