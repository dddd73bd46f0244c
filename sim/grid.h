/*
 * The points of a sweep: every combination of the values of some axes. An axis is written
 *
 *   key=v1,v2,...             one key of the scenario
 *   key:key=v1:w1,v2:w2,...   keys that move together: prefill.nodes:decode.nodes=1:3,2:2
 *
 * A comma within brackets belongs to the value. The first axis moves slowest.
 */
#ifndef HALAGE_SIM_GRID_H
#define HALAGE_SIM_GRID_H

#include <halage/base.h>

#define SIM_AXES_MAX      8u
#define SIM_AXIS_KEYS_MAX 4u
#define SIM_VALUES_MAX    1024u
#define SIM_POINTS_MAX    100000u
/* Overrides of one point. */
#define SIM_OVERRIDES_MAX (SIM_AXES_MAX * SIM_AXIS_KEYS_MAX)

struct sim_axis {
    char *keys[SIM_AXIS_KEYS_MAX]; /* [key_count] */
    uint32_t key_count;
    char *(*values)[SIM_AXIS_KEYS_MAX]; /* [value_count][key_count] */
    uint32_t value_count;
};

/* All zero: no axis, one point. */
struct sim_grid {
    struct sim_axis axes[SIM_AXES_MAX];
    uint32_t axis_count;
};

/*
 * Add an axis as written above.
 *
 * text  [capacity] on error one sentence
 *
 * Returns 0, -HLG_EINVAL (no "=", no value, a key twice, keys and values that do not match, too many)
 * or -HLG_ENOMEM; then nothing was added.
 */
int sim_grid_add(struct sim_grid *grid, const char *axis, char *text, size_t capacity);

/*
 * Add the axes of a scenario file: its key `sweep`, a list of axes as written above; none without it.
 * Returns as sim_grid_add() does, or -HLG_EINVAL for a file that is not to be read.
 */
int sim_grid_read(struct sim_grid *grid, const char *path, char *text, size_t capacity);

/* Points: 1 without axes, <= SIM_POINTS_MAX. */
uint32_t sim_grid_count(const struct sim_grid *grid);

/* The value of key `key` of axis `axis` at a point. */
const char *sim_grid_value(const struct sim_grid *grid, uint32_t point, uint32_t axis,
                           uint32_t key);

/*
 * "key=value" of each key at a point, in order of the axes. Returns how many there are, <=
 * SIM_OVERRIDES_MAX, each to be freed; or -HLG_ENOMEM with none.
 */
int sim_grid_overrides(const struct sim_grid *grid, uint32_t point,
                       char *overrides[SIM_OVERRIDES_MAX]);

void sim_grid_fini(struct sim_grid *grid);

#endif
