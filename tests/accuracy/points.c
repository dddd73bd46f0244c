#define _GNU_SOURCE /* MAP_ANONYMOUS, asprintf() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS 2u

static int simulate(const char *path, const char *const *overrides, uint32_t count,
                    struct point *point)
{
    const struct sim_run_options options = {0};
    struct sim_scenario scenario;
    struct sim_workload workload;
    struct sim_run run;

    point->error =
        sim_scenario_read(&scenario, path, overrides, count, point->text, sizeof point->text);
    if (point->error != 0) {
        return point->error;
    }
    point->error = sim_scenario_workload(&scenario, &workload, point->text, sizeof point->text);
    if (point->error != 0) {
        return point->error;
    }
    point->error = sim_run(&scenario, &workload, &options, &run, point->text, sizeof point->text);
    if (point->error != 0) {
        return point->error;
    }
    if (sim_metrics_conserved(&workload, &run, point->text, sizeof point->text) != NULL) {
        point->error = -HLG_EINVAL;
        return point->error;
    }
    point->error = sim_metrics(&scenario, &workload, &run, &point->metrics);
    return point->error;
}

static void await_one(void)
{
    int status = 0;

    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
}

struct point *points_run(const char *file, uint32_t count)
{
    struct sim_sweep sweep;
    char text[512] = "";
    char *path = NULL;
    struct point *points = mmap(NULL, count * sizeof *points, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(points != MAP_FAILED);
    assert_non_null(getenv("HALAGE_SOURCE_DIR"));
    assert_true(asprintf(&path, "%s/scenarios/%s", getenv("HALAGE_SOURCE_DIR"), file) > 0);
    if (sim_scenario_sweep(path, &sweep, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    assert_int_equal(sweep.point_count, count);
    (void)fflush(stdout);
    for (uint32_t i = 0; i < count; i++) {
        const char *overrides[SIM_SWEEP_OVERRIDES_MAX];
        const uint32_t override_count = sim_sweep_point(&sweep, i, overrides);
        if (i >= JOBS) {
            await_one();
        }
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(simulate(path, overrides, override_count, &points[i]) == 0 ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < count && i < JOBS; i++) {
        await_one();
    }
    sim_sweep_fini(&sweep);
    free(path);
    return points;
}

void points_free(struct point *points, uint32_t count)
{
    assert_int_equal(munmap(points, count * sizeof *points), 0);
}
