#define _GNU_SOURCE /* asprintf() */

#include "sweep_run.h"

#include "calibration.h"
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sweep_table.h"

struct state {
    const struct sim_sweep_run *sweep;
    uint64_t *digests; /* [points], names of the result files */
    uint32_t *due;     /* [due_count], points to run */
    uint32_t due_count;
    struct sim_sweep_totals *totals;
    char calibration[48]; /* as in struct sim_cost_basis */
    char *text;
    size_t capacity;
};

/* Overrides of a point: the user's, then the grid's. To be freed; NULL without memory. */
static const char **point_overrides(const struct sim_sweep_run *sweep, uint32_t point,
                                    uint32_t *count)
{
    const char **all = calloc((size_t)sweep->override_count + SIM_SWEEP_OVERRIDES_MAX, sizeof *all);

    if (all == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < sweep->override_count; i++) {
        all[i] = sweep->overrides[i];
    }
    *count = sweep->override_count;
    if (sweep->grid->axis_count != 0) {
        *count += sim_sweep_point(sweep->grid, point, all + sweep->override_count);
    }
    return all;
}

/* FNV-1a, of the words that a point without a scenario has: its result needs a name, too. */
static uint64_t hash_words(const struct sim_sweep_run *sweep, const char *const *words,
                           uint32_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (uint32_t i = 0; i <= count; i++) {
        for (const char *c = i == 0 ? sweep->scenario : words[i - 1];; c++) {
            hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
            if (*c == '\0') {
                break;
            }
        }
    }
    return hash;
}

static int digest_of(const struct sim_sweep_run *sweep, uint32_t point, uint64_t *digest)
{
    char text[256];
    uint32_t count = 0;
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);
    const char **words = point_overrides(sweep, point, &count);
    const bool memory = scenario != NULL && words != NULL;

    if (memory &&
        sim_scenario_read(scenario, sweep->scenario, words, count, text, sizeof text) == 0) {
        *digest = sim_scenario_digest(scenario);
        sim_scenario_fini(scenario);
    } else if (memory) {
        *digest = hash_words(sweep, words, count);
    }
    free(scenario);
    free(words);
    return memory ? 0 : -HLG_ENOMEM;
}

/* ---- Result files ---- */

static char *file_name(const struct state *state, uint32_t index)
{
    char *name = NULL;

    if (asprintf(&name, "%s/%016" PRIx64 ".json", state->sweep->folder, state->digests[index]) <
        0) {
        return NULL;
    }
    return name;
}

/* A result of this version and calibration, or NULL. One that ended without an answer is not one. */
static json_t *load(const struct state *state, uint32_t index)
{
    char *name = file_name(state, index);
    json_error_t error;

    if (name == NULL) {
        return NULL;
    }
    json_t *json = json_load_file(name, 0, &error);
    free(name);
    const char *version = json_string_value(json_object_get(json, "version"));
    const char *status = json_string_value(json_object_get(json, "status"));
    const char *calibration = json_string_value(json_object_get(json, "calibration"));
    if (version == NULL || status == NULL || calibration == NULL ||
        strcmp(version, sim_version()) != 0 || strcmp(calibration, state->calibration) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static bool kept(const struct state *state, uint32_t index)
{
    json_t *json = load(state, index);
    const char *status = json_string_value(json_object_get(json, "status"));
    const bool known = status != NULL && strcmp(status, "crashed") != 0;

    json_decref(json);
    return known && !state->sweep->fresh;
}

static int write_json(FILE *file, void *json)
{
    return sim_report_json_write(file, json);
}

static int store(struct state *state, uint32_t index, json_t *json)
{
    char *name = file_name(state, index);
    const int error = name == NULL
                          ? -HLG_ENOMEM
                          : sim_report_file(name, write_json, json, state->text, state->capacity);

    free(name);
    return error;
}

/* ---- Running ---- */

static json_t *work(void *context, uint32_t index)
{
    const struct state *state = context;
    uint32_t count = 0;
    const char **words = point_overrides(state->sweep, index, &count);
    json_t *json = words == NULL ? NULL : sim_point_run(state->sweep->scenario, words, count);

    free(words);
    return json;
}

static void count(struct sim_sweep_totals *totals, const char *status)
{
    const bool refused = status != NULL && strcmp(status, "refused") == 0;
    const bool done = status != NULL && strcmp(status, "done") == 0;

    totals->refused += refused;
    totals->broken += !refused && !done;
}

static int done(void *context, uint32_t index, json_t *result, const char *sentence)
{
    struct state *state = context;
    const struct sim_sweep_run *sweep = state->sweep;
    const char *status = json_string_value(json_object_get(result, "status"));

    int error = 0;
    if (result != NULL) {
        error = store(state, index, result);
    } else {
        json_t *crash = json_pack("{ss ss ss ss so}", "version", sim_version(), "calibration",
                                  state->calibration, "status", "crashed", "sentence", sentence,
                                  "report", json_null());
        if (crash != NULL) {
            error = store(state, index, crash);
        }
        json_decref(crash);
    }
    state->totals->ran++;
    count(state->totals, status);
    if (sweep->progress != NULL) {
        sweep->progress(sweep->context, state->totals);
    }
    return error;
}

/* Names all points, and lists what this shard has to run. */
static int prepare(struct state *state)
{
    const struct sim_sweep_run *sweep = state->sweep;

    for (uint32_t i = 0; i < state->totals->points; i++) {
        const int error = digest_of(sweep, i, &state->digests[i]);
        if (error != 0) {
            return error;
        }
        if (i % sweep->shard_count != sweep->shard_index) {
            continue;
        }
        state->totals->due++;
        if (kept(state, i)) {
            state->totals->kept++;
        } else {
            state->due[state->due_count++] = i;
        }
    }
    return 0;
}

static int merge(struct state *state)
{
    struct sim_sweep_table *table = NULL;
    int error = sim_sweep_table_begin(state->sweep, &table, state->text, state->capacity);

    state->totals->refused = state->totals->broken = 0;
    for (uint32_t i = 0; error == 0 && i < state->totals->points; i++) {
        json_t *result = load(state, i);
        state->totals->missing += result == NULL;
        if (result != NULL) {
            count(state->totals, json_string_value(json_object_get(result, "status")));
            if (state->totals->refused == 1 && state->totals->first[0] == '\0') {
                (void)snprintf(state->totals->first, sizeof state->totals->first, "%s",
                               json_string_value(json_object_get(result, "sentence")));
            }
            error = sim_sweep_table_add(table, i, state->digests[i], result);
        }
        json_decref(result);
    }
    if (table == NULL) {
        return error;
    }
    if (error == 0 && state->totals->missing == 0) {
        return sim_sweep_table_write(table, state->text, state->capacity);
    }
    sim_sweep_table_abandon(table);
    return error;
}

static int run_all(struct state *state)
{
    const struct sim_sweep_run *sweep = state->sweep;
    const struct sim_pool pool = {.jobs = sweep->jobs,
                                  .work = work,
                                  .done = done,
                                  .context = state,
                                  .stopped = sweep->stopped};
    int error = prepare(state);

    if (error == 0) {
        error = sim_pool_run(&pool, state->due, state->due_count);
    }
    return error != 0 ? error : merge(state);
}

/* Makes the folder or takes the one that is there. Before anything runs: results that nothing can hold are lost. */
static bool open_folder(const char *folder, char *text, size_t capacity)
{
    const int made = mkdir(folder, 0777) == 0 ? 0 : errno;

    if (made != 0 && made != EEXIST) {
        (void)snprintf(text, capacity, "%s: cannot make the folder: %s; give another to --out",
                       folder, strerror(made));
        return false;
    }
    struct stat about;
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
        (void)snprintf(text, capacity, "%s: is not a folder; give another to --out", folder);
        return false;
    }
    if (access(folder, W_OK | X_OK) != 0) {
        (void)snprintf(text, capacity,
                       "%s: results cannot be written into it: %s; give another to --out", folder,
                       strerror(errno));
        return false;
    }
    return true;
}

int sim_sweep_run(const struct sim_sweep_run *sweep, struct sim_sweep_totals *totals, char *text,
                  size_t capacity)
{
    const uint32_t points = sim_sweep_count(sweep->grid);
    struct state state = {.sweep = sweep, .totals = totals, .text = text, .capacity = capacity};

    HLG_ASSERT(sweep->shard_count >= 1 && sweep->shard_index < sweep->shard_count);
    *totals = (struct sim_sweep_totals){.points = points};
    sim_calibration_id(state.calibration, sizeof state.calibration);
    if (strlen(sweep->folder) > SIM_PATH_MAX - 32) {
        (void)snprintf(text, capacity, "%.40s...: path of more than %u bytes; give a shorter --out",
                       sweep->folder, SIM_PATH_MAX - 32);
        return -HLG_EINVAL;
    }
    if (!open_folder(sweep->folder, text, capacity)) {
        return -HLG_EIO;
    }
    (void)snprintf(text, capacity, "sweep: no memory, or no process could be made");
    state.digests = calloc(points, sizeof *state.digests);
    state.due = calloc(points, sizeof *state.due);
    const int error = state.digests == NULL || state.due == NULL ? -HLG_ENOMEM : run_all(&state);
    free(state.digests);
    free(state.due);
    return error;
}
