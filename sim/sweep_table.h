/*
 * The merged results of a sweep: sweep.tsv for gnuplot and spreadsheets, sweep.json whole.
 */
#ifndef HALAGE_SIM_SWEEP_TABLE_H
#define HALAGE_SIM_SWEEP_TABLE_H

#include "sweep_run.h"

struct sim_sweep_table;

/* Returns 0, -HLG_EINVAL (the base scenario) or -HLG_ENOMEM, with a sentence in `text` [capacity]. */
int sim_sweep_table_begin(const struct sim_sweep_run *sweep, struct sim_sweep_table **table,
                          char *text, size_t capacity);

/* Add the result of the next point. Returns 0 or -HLG_ENOMEM. */
int sim_sweep_table_add(struct sim_sweep_table *table, uint32_t point, uint64_t digest,
                        json_t *result);

/* Write both files and free the table, in any case. Returns 0 or -HLG_EIO with a sentence. */
int sim_sweep_table_write(struct sim_sweep_table *table, char *text, size_t capacity);
void sim_sweep_table_abandon(struct sim_sweep_table *table);

#endif
