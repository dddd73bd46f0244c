#define _GNU_SOURCE /* asprintf() */

#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_axis(struct sim_axis *axis)
{
    for (uint32_t i = 0; i < axis->value_count; i++) {
        for (uint32_t j = 0; j < axis->key_count; j++) {
            free(axis->values[i][j]);
        }
    }
    free(axis->values);
    for (uint32_t i = 0; i < axis->key_count; i++) {
        free(axis->keys[i]);
    }
    *axis = (struct sim_axis){0};
}

/* Length of the first field of [text, limit): up to `separator` outside brackets. */
static size_t field_length(const char *text, const char *limit, char separator)
{
    uint32_t depth = 0;
    const char *c = text;

    for (; c < limit && (*c != separator || depth != 0); c++) {
        depth += *c == '[';
        depth -= *c == ']' && depth != 0;
    }
    return (size_t)(c - text);
}

/* Cut [text, limit) at ":" into [count] copies. Returns how many fields there are; past `capacity` they
 * are counted and not copied. Negative: no memory. */
static int cut(const char *text, const char *limit, char **fields, uint32_t capacity)
{
    uint32_t count = 0;

    for (;;) {
        const size_t length = field_length(text, limit, ':');
        if (count < capacity) {
            fields[count] = strndup(text, length);
            if (fields[count] == NULL) {
                while (count > 0) {
                    free(fields[--count]);
                }
                return -HLG_ENOMEM;
            }
        }
        count++;
        text += length;
        if (text >= limit) {
            return (int)count;
        }
        text++;
    }
}

static bool any_empty(char *const *fields, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fields[i][0] == '\0') {
            return true;
        }
    }
    return false;
}

static int bad(char *text, size_t capacity, const char *axis, const char *what)
{
    (void)snprintf(text, capacity,
                   "sweep: axis '%.60s' %s; write key=value,value,... or "
                   "key:key=value:value,...",
                   axis, what);
    return -HLG_EINVAL;
}

static int add_value(struct sim_axis *axis, const char *begin, const char *limit, const char *word,
                     char *text, size_t capacity)
{
    if (axis->value_count == SIM_VALUES_MAX) {
        return bad(text, capacity, word, "has more than 1024 values");
    }
    char **fields = axis->values[axis->value_count];
    const int count = axis->key_count == 1 ? 1 : cut(begin, limit, fields, axis->key_count);
    if (axis->key_count == 1) { /* a lone key's value may have colons */
        fields[0] = strndup(begin, (size_t)(limit - begin));
    }
    if (count < 0 || fields[0] == NULL) {
        (void)snprintf(text, capacity, "sweep: no memory");
        return -HLG_ENOMEM;
    }
    if ((uint32_t)count != axis->key_count || any_empty(fields, axis->key_count)) {
        for (uint32_t i = 0; i < axis->key_count && i < (uint32_t)count; i++) {
            free(fields[i]);
        }
        return bad(text, capacity, word, "has a value that is empty or not one for each key");
    }
    axis->value_count++;
    return 0;
}

static int parse_axis(struct sim_axis *axis, const char *word, char *text, size_t capacity)
{
    const char *equal = strchr(word, '=');

    if (equal == NULL || equal == word) {
        return bad(text, capacity, word, "has no '=' after a key");
    }
    const int keys = cut(word, equal, axis->keys, SIM_AXIS_KEYS_MAX);
    if (keys < 0) {
        (void)snprintf(text, capacity, "sweep: no memory");
        return -HLG_ENOMEM;
    }
    axis->key_count = hlg_min_u32((uint32_t)keys, SIM_AXIS_KEYS_MAX);
    if ((uint32_t)keys > SIM_AXIS_KEYS_MAX || any_empty(axis->keys, axis->key_count)) {
        return bad(text, capacity, word, "has an empty key, or more than 4");
    }
    axis->values = calloc(SIM_VALUES_MAX, sizeof *axis->values);
    if (axis->values == NULL) {
        (void)snprintf(text, capacity, "sweep: no memory");
        return -HLG_ENOMEM;
    }
    const char *limit = word + strlen(word);
    const char *value = equal + 1;
    for (;;) {
        const size_t length = field_length(value, limit, ',');
        const int error = add_value(axis, value, value + length, word, text, capacity);
        if (error != 0) {
            return error;
        }
        value += length;
        if (value >= limit) {
            return 0;
        }
        value++;
    }
}

static bool has_key(const struct sim_grid *grid, const char *key)
{
    for (uint32_t i = 0; i < grid->axis_count; i++) {
        for (uint32_t j = 0; j < grid->axes[i].key_count; j++) {
            if (strcmp(grid->axes[i].keys[j], key) == 0) {
                return true;
            }
        }
    }
    return false;
}

int sim_grid_add(struct sim_grid *grid, const char *word, char *text, size_t capacity)
{
    struct sim_axis axis = {0};
    int error = 0;

    if (grid->axis_count == SIM_AXES_MAX) {
        return bad(text, capacity, word, "is one more than 8");
    }
    error = parse_axis(&axis, word, text, capacity);
    if (error == 0 && sim_grid_count(grid) > SIM_POINTS_MAX / axis.value_count) {
        error = bad(text, capacity, word, "makes more than 100000 points");
    }
    for (uint32_t i = 0; error == 0 && i < axis.key_count; i++) {
        bool twice = has_key(grid, axis.keys[i]);
        for (uint32_t j = 0; j < i; j++) {
            twice |= strcmp(axis.keys[i], axis.keys[j]) == 0;
        }
        error = twice ? bad(text, capacity, word, "has a key that another axis has") : 0;
    }
    if (error != 0) {
        free_axis(&axis);
        return error;
    }
    grid->axes[grid->axis_count++] = axis;
    return 0;
}

uint32_t sim_grid_count(const struct sim_grid *grid)
{
    uint32_t count = 1;

    for (uint32_t i = 0; i < grid->axis_count; i++) {
        count *= grid->axes[i].value_count;
    }
    return count;
}

const char *sim_grid_value(const struct sim_grid *grid, uint32_t point, uint32_t axis, uint32_t key)
{
    HLG_ASSERT(point < sim_grid_count(grid));
    HLG_ASSERT(axis < grid->axis_count && key < grid->axes[axis].key_count);
    for (uint32_t i = grid->axis_count; i-- > axis + 1;) {
        point /= grid->axes[i].value_count;
    }
    return grid->axes[axis].values[point % grid->axes[axis].value_count][key];
}

int sim_grid_overrides(const struct sim_grid *grid, uint32_t point,
                       char *overrides[SIM_OVERRIDES_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < grid->axis_count; i++) {
        for (uint32_t j = 0; j < grid->axes[i].key_count; j++) {
            if (asprintf(&overrides[count], "%s=%s", grid->axes[i].keys[j],
                         sim_grid_value(grid, point, i, j)) < 0) {
                while (count > 0) {
                    free(overrides[--count]);
                }
                return -HLG_ENOMEM;
            }
            count++;
        }
    }
    return (int)count;
}

void sim_grid_fini(struct sim_grid *grid)
{
    for (uint32_t i = 0; i < grid->axis_count; i++) {
        free_axis(&grid->axes[i]);
    }
    *grid = (struct sim_grid){0};
}
