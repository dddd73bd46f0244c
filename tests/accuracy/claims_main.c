/*
 * halage-claims: runs the article's deployments over their grids and writes a row of figures for each run.
 * Exit status: 0 done, 1 a run failed, 2 bad input.
 */
#include "claims.h"

#include "calibration.h"
#include "pool.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNS_MAX 4096u

/* A run: a point of a part's grid. */
struct job {
    const struct claims_part *part;
    const struct sim_sweep *sweep;
    uint32_t point;
};

struct claims {
    const char *folder;
    bool corner;
    struct sim_sweep sweeps[32]; /* of each part */
    struct job jobs[RUNS_MAX];
    uint32_t job_count;
    char rows[RUNS_MAX][CLAIMS_ROW_BYTES];
    uint32_t done;
    bool failed;
};

static json_t *work(void *context, uint32_t index)
{
    struct claims *claims = context;
    const struct job *job = &claims->jobs[index];
    char row[CLAIMS_ROW_BYTES] = "";
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);

    if (scenario != NULL &&
        claims_read(job->part, claims->folder, job->sweep, job->point, scenario)) {
        claims_run(job->part, scenario, row);
        sim_scenario_fini(scenario);
    }
    free(scenario);
    return json_string(row);
}

static int done(void *context, uint32_t index, json_t *result, const char *sentence)
{
    struct claims *claims = context;

    if (result == NULL) {
        (void)fprintf(stderr, "halage-claims: run %u: %s\n", index, sentence);
        claims->failed = true;
    } else {
        (void)snprintf(claims->rows[index], CLAIMS_ROW_BYTES, "%s", json_string_value(result));
    }
    claims->done++;
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r%u of %u runs", claims->done, claims->job_count);
    }
    return 0;
}

/* List the runs of a part. Returns 0, or an error that was told. */
static int list(struct claims *claims, uint32_t index)
{
    const struct claims_part *part = claims_part(index);
    struct sim_sweep *sweep = &claims->sweeps[index];
    char path[SIM_PATH_MAX];
    char text[1024];
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);

    (void)snprintf(path, sizeof path, "%s/%s", claims->folder, part->file);
    if (scenario == NULL || sim_scenario_sweep(path, sweep, text, sizeof text) != 0) {
        (void)fprintf(stderr, "halage-claims: %s\n", scenario == NULL ? "no memory" : text);
        free(scenario);
        return -HLG_EINVAL;
    }
    for (uint32_t point = 0; point < sweep->point_count; point++) {
        if (!claims_read(part, claims->folder, sweep, point, scenario)) {
            continue;
        }
        if (!claims->corner || claims_in_corner(part, scenario)) {
            HLG_ASSERT(claims->job_count < RUNS_MAX);
            claims->jobs[claims->job_count++] = (struct job){part, sweep, point};
        }
        sim_scenario_fini(scenario);
    }
    free(scenario);
    return 0;
}

static int run_all(struct claims *claims, uint32_t jobs)
{
    static uint32_t indices[RUNS_MAX];
    const struct sim_pool pool = {.jobs = jobs, .work = work, .done = done, .context = claims};

    for (uint32_t i = 0; i < claims->job_count; i++) {
        indices[i] = i;
    }
    const int error = sim_pool_run(&pool, indices, claims->job_count);
    return error != 0 ? error : claims->failed ? -HLG_EIO : 0;
}

static void tell(const struct claims *claims)
{
    char id[64];

    sim_calibration_id(id, sizeof id);
    (void)printf("# halage-claims of halage-sim %s, calibration %s\n", sim_version(), id);
    claims_pieces(claims->folder, stdout);
    (void)printf("%s\n", CLAIMS_HEADER);
    for (uint32_t i = 0; i < claims->job_count; i++) {
        (void)printf("%s\n", claims->rows[i]);
    }
}

static void release(struct claims *claims)
{
    for (uint32_t i = 0; i < claims_part_count(); i++) {
        sim_sweep_fini(&claims->sweeps[i]);
    }
    free(claims);
}

int main(int argc, char **argv)
{
    const bool corner = argc == 3 && strcmp(argv[1], "--corner") == 0;
    struct claims *claims = calloc(1, sizeof *claims);
    int error = 0;

    if ((argc != 2 && !corner) || argv[argc - 1][0] == '-') {
        (void)fprintf(stderr,
                      "usage: halage-claims [--corner] FOLDER, that of scenarios/article\n");
        free(claims);
        return 2;
    }
    if (claims == NULL) {
        (void)fprintf(stderr, "halage-claims: no memory\n");
        return 1;
    }
    claims->folder = argv[argc - 1];
    claims->corner = corner;
    for (uint32_t i = 0; error == 0 && i < claims_part_count(); i++) {
        error = list(claims, i);
    }
    if (error != 0) {
        free(claims);
        return 2;
    }
    error = run_all(claims, sim_pool_cpus());
    if (error == 0) {
        tell(claims);
    }
    release(claims);
    return error == 0 ? 0 : 1;
}
