/* Grids of overrides. */
#define _GNU_SOURCE /* strdup() */
#include "scenario_file.h"
#include "yaml_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 1024u

static void free_axis(struct sim_sweep_axis *axis)
{
    const uint32_t override_count = axis->begins == NULL ? 0 : axis->begins[axis->entry_count];
    for (uint32_t i = 0; axis->texts != NULL && i < axis->entry_count; i++) {
        free(axis->texts[i]);
    }
    for (uint32_t i = 0; axis->overrides != NULL && i < override_count; i++) {
        free(axis->overrides[i]);
    }
    free(axis->texts);
    free(axis->overrides);
    free(axis->begins);
    *axis = (struct sim_sweep_axis){0};
}

void sim_sweep_fini(struct sim_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->axis_count; i++) {
        free_axis(&sweep->axes[i]);
    }
    *sweep = (struct sim_sweep){0};
}

/* Words apart by spaces, except within brackets. Returns a copy of the next one, or NULL at the end. */
static char *next_word(const char **text)
{
    const char *begin = *text + strspn(*text, " \t\n");
    const char *end = begin;
    bool inside = false;
    while (*end != '\0' && (inside || strchr(" \t\n", *end) == NULL)) {
        inside = *end == '[' || (inside && *end != ']');
        end++;
    }
    *text = end;
    return end == begin ? NULL : strndup(begin, (size_t)(end - begin));
}

static int fill_axis(struct sim_sweep_axis *axis, const char *const *texts, uint32_t entry_count)
{
    uint32_t count = 0;
    axis->texts = calloc(entry_count, sizeof *axis->texts);
    axis->begins = calloc(entry_count + 1, sizeof *axis->begins);
    axis->overrides =
        calloc((size_t)entry_count * SIM_SWEEP_OVERRIDES_MAX, sizeof *axis->overrides);
    if (axis->texts == NULL || axis->begins == NULL || axis->overrides == NULL) {
        return -HLG_ENOMEM;
    }
    axis->entry_count = entry_count;
    for (uint32_t i = 0; i < entry_count; i++) {
        const char *rest = texts[i];
        char *word = NULL;
        axis->texts[i] = strdup(texts[i]);
        while (count - axis->begins[i] < SIM_SWEEP_OVERRIDES_MAX &&
               (word = next_word(&rest)) != NULL) {
            axis->overrides[count++] = word;
            axis->begins[entry_count] = count;
        }
        if (axis->texts[i] == NULL || rest[strspn(rest, " \t\n")] != '\0') {
            return axis->texts[i] == NULL ? -HLG_ENOMEM : -HLG_ELIMIT;
        }
        axis->begins[i + 1] = count;
    }
    axis->begins[entry_count] = count;
    return 0;
}

/* The most overrides that a point has. */
static uint32_t widest(const struct sim_sweep *sweep)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < sweep->axis_count; i++) {
        const struct sim_sweep_axis *const axis = &sweep->axes[i];
        uint32_t most = 0;
        for (uint32_t k = 0; k < axis->entry_count; k++) {
            most = hlg_max_u32(most, axis->begins[k + 1] - axis->begins[k]);
        }
        sum += most;
    }
    return sum;
}

int sim_sweep_add(struct sim_sweep *sweep, const char *name, const char *const *texts,
                  uint32_t entry_count, char *text, size_t capacity)
{
    struct sim_sweep_axis axis = {0};
    const uint64_t points =
        (uint64_t)entry_count * (sweep->axis_count == 0 ? 1 : sweep->point_count);
    if (sweep->axis_count == SIM_SWEEP_AXES_MAX || entry_count == 0 ||
        entry_count > SIM_SWEEP_ENTRIES_MAX || points > SIM_SWEEP_POINTS_MAX) {
        (void)snprintf(text, capacity,
                       "sweep: %s: write 1 to %u values, at most %u lists and %u points in all",
                       name, SIM_SWEEP_ENTRIES_MAX, SIM_SWEEP_AXES_MAX, SIM_SWEEP_POINTS_MAX);
        return -HLG_EINVAL;
    }
    (void)snprintf(axis.name, sizeof axis.name, "%s", name);
    int result = fill_axis(&axis, texts, entry_count);
    if (result == 0) {
        sweep->axes[sweep->axis_count++] = axis;
        if (widest(sweep) <= SIM_SWEEP_OVERRIDES_MAX) {
            sweep->point_count = (uint32_t)points;
            return 0;
        }
        sweep->axes[--sweep->axis_count] = (struct sim_sweep_axis){0};
        result = -HLG_ELIMIT;
    }
    (void)snprintf(text, capacity, "sweep: %s: %s", name,
                   result == -HLG_ENOMEM ? "no memory"
                                         : "too many overrides; write at most 64 for a point");
    free_axis(&axis);
    return result == -HLG_ENOMEM ? result : -HLG_EINVAL;
}

uint32_t sim_sweep_entry(const struct sim_sweep *sweep, uint32_t point, uint32_t axis)
{
    HLG_ASSERT(axis < sweep->axis_count && point < sweep->point_count);
    for (uint32_t i = sweep->axis_count - 1; i > axis; i--) {
        point /= sweep->axes[i].entry_count; /* the floor is the number on the axes before */
    }
    return point % sweep->axes[axis].entry_count;
}

uint32_t sim_sweep_point(const struct sim_sweep *sweep, uint32_t point,
                         const char *overrides[SIM_SWEEP_OVERRIDES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep->axis_count; i++) {
        const struct sim_sweep_axis *const axis = &sweep->axes[i];
        const uint32_t entry = sim_sweep_entry(sweep, point, i);
        for (uint32_t k = axis->begins[entry]; k < axis->begins[entry + 1]; k++) {
            HLG_ASSERT(count < SIM_SWEEP_OVERRIDES_MAX);
            overrides[count++] = axis->overrides[k];
        }
    }
    return count;
}

static int add_values(struct sim_sweep *sweep, const struct sim_file_axis *axis, char *text,
                      size_t capacity)
{
    const uint32_t count = hlg_min_u32(axis->values_count, SIM_SWEEP_ENTRIES_MAX + 1);
    char(*const texts)[TEXT_BYTES] = calloc(count + 1, sizeof *texts);
    const char **const list = calloc(count + 1, sizeof *list);
    int result = texts == NULL || list == NULL ? -HLG_ENOMEM : 0;
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        const int bytes = snprintf(texts[i], TEXT_BYTES, "%s=%s", axis->key, axis->values[i]);
        result = bytes < 0 || (size_t)bytes >= TEXT_BYTES ? -HLG_EINVAL : 0;
        list[i] = texts[i];
        if (result < 0) {
            (void)snprintf(text, capacity, "sweep: %.60s: a value is too long", axis->key);
        }
    }
    if (result == 0) {
        result = sim_sweep_add(sweep, axis->name != NULL ? axis->name : axis->key, list, count,
                               text, capacity);
    }
    free(list);
    free(texts);
    return result;
}

static int add_axis(struct sim_sweep *sweep, const struct sim_file_axis *axis, uint32_t index,
                    const struct sim_key_source *source, char *text, size_t capacity)
{
    char path[32];
    char why[TEXT_BYTES];
    int result = -HLG_EINVAL;
    (void)snprintf(path, sizeof path, "sweep.%" PRIu32, index);
    const bool by_key = axis->key != NULL && axis->values != NULL && axis->cases == NULL;
    const bool by_case = axis->key == NULL && axis->values == NULL && axis->cases != NULL;
    if (!by_key && !by_case) {
        return sim_key_refuse(source, path, NULL,
                              "write key and values, or cases (\"key=value key=value\", ...) with "
                              "a name",
                              text, capacity);
    }
    if (by_key) {
        result = add_values(sweep, axis, why, sizeof why);
    } else {
        result =
            sim_sweep_add(sweep, axis->name != NULL ? axis->name : "case",
                          (const char *const *)axis->cases, axis->cases_count, why, sizeof why);
    }
    if (result < 0) {
        (void)snprintf(text, capacity, "%s: %s", source->name, why);
    }
    return result;
}

/* Try every override on the scenario, each entry by itself. */
static int try_overrides(const char *path, const struct sim_sweep *sweep, char *text,
                         size_t capacity)
{
    struct sim_scenario *const scenario = malloc(sizeof *scenario);
    char why[TEXT_BYTES];
    int result = scenario == NULL ? -HLG_ENOMEM : 0;
    for (uint32_t i = 0; i < sweep->axis_count; i++) {
        const struct sim_sweep_axis *const axis = &sweep->axes[i];
        for (uint32_t k = 0; result == 0 && k < axis->entry_count; k++) {
            result = sim_scenario_read(scenario, path,
                                       (const char *const *)&axis->overrides[axis->begins[k]],
                                       axis->begins[k + 1] - axis->begins[k], why, sizeof why);
            if (result == 0) {
                sim_scenario_fini(scenario);
            } else if (strncmp(why, "-s: ", 4) == 0) {
                (void)snprintf(text, capacity, "%s: sweep: %s: %s", path, axis->name, why + 4);
            } else {
                (void)snprintf(text, capacity, "%s", why);
            }
        }
    }
    free(scenario);
    return result;
}

int sim_scenario_sweep(const char *path, struct sim_sweep *sweep, char *text, size_t capacity)
{
    struct sim_file_chain chain;
    struct sim_sweep read = {0};
    int result = sim_file_load(&chain, path, text, capacity);
    if (result < 0) {
        return result;
    }
    uint32_t at = 0;
    while (at + 1 < chain.count && chain.files[at]->sweep_count == 0) {
        at++;
    }
    const struct sim_key_source source = {.name = chain.paths[at], .file = chain.paths[at]};
    for (uint32_t i = 0; result == 0 && i < chain.files[at]->sweep_count; i++) {
        result = add_axis(&read, &chain.files[at]->sweep[i], i, &source, text, capacity);
    }
    sim_file_free(&chain);
    if (result == 0) {
        result = try_overrides(path, &read, text, capacity);
    }
    if (result < 0) {
        sim_sweep_fini(&read);
        yaml_file_one_line(text);
        return result;
    }
    *sweep = read;
    return 0;
}
