/* A user's own step times: sim_cost_create() has the format. */
#ifndef HALAGE_SIM_COST_TABLE_H
#define HALAGE_SIM_COST_TABLE_H

#include <halage/base.h>

#define SIM_STEP_ROWS_MAX 65536u

enum sim_step_kind {
    SIM_STEP_PREFILL,
    SIM_STEP_DECODE,
    SIM_STEP_KINDS,
};

struct sim_step_table;

/* Returns 0, -HLG_EINVAL with a sentence in text [capacity] that names file, line and value, or
 * -HLG_ENOMEM. */
int sim_step_table_read(const char *file, struct sim_step_table **table, char *text,
                        size_t capacity);
void sim_step_table_destroy(struct sim_step_table *table);

/* A step of `tokens` (of a prompt, or sequences) behind or at `context` tokens, in nanoseconds. Outside
 * of the rows: below them the first, above them the last line goes on, never down, and *beyond becomes
 * true. O(log rows). */
double sim_step_table_at(const struct sim_step_table *table, enum sim_step_kind kind, double tokens,
                         double context, bool *beyond);

/* The shortest step of a kind. */
double sim_step_table_least(const struct sim_step_table *table, enum sim_step_kind kind);

#endif
