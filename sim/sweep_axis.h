/*
 * Axes of a sweep as the command line writes them, and what their entries are called.
 *
 *   key=v1,v2,...             one key of the scenario
 *   key:key=v1:w1,v2:w2,...   keys that move together: prefill.nodes:decode.nodes=1:3,2:2
 *
 * A comma within brackets belongs to the value.
 */
#ifndef HALAGE_SIM_SWEEP_AXIS_H
#define HALAGE_SIM_SWEEP_AXIS_H

#include "scenario.h"

#define SIM_AXIS_KEYS_MAX    4u
#define SIM_AXIS_LABEL_BYTES 1024u

/*
 * Add an axis. `text` [capacity]: on error one sentence. Returns 0, -HLG_EINVAL (no "=", no value,
 * keys and values that do not match, a key that an axis has already, too many) or -HLG_ENOMEM; then the
 * sweep is as it was.
 */
int sim_sweep_axis_add(struct sim_sweep *sweep, const char *axis, char *text, size_t capacity);

/* Points of the grid: 1 without an axis. */
uint32_t sim_sweep_count(const struct sim_sweep *sweep);

/* What an entry is called: its values ("1:3") where the axis has the name of its keys, else its text.
 * Longer ones are cut. */
void sim_sweep_label(const struct sim_sweep_axis *axis, uint32_t entry,
                     char label[SIM_AXIS_LABEL_BYTES]);

#endif
