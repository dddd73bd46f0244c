/*
 * The JSON half of workload_trace.c.
 */
#ifndef HALAGE_SIM_WORKLOAD_JSONL_H
#define HALAGE_SIM_WORKLOAD_JSONL_H

#include "workload_table.h"
#include "workload_trace.h"

/* Time of the file's rows. Zero before the first. */
struct sim_trace_clock {
    bool has_begun;
    hlg_time begin_ns;
    hlg_time last_ns;
};

/* Move a row's time to the trace's own. Returns 0 or -HLG_EINVAL with a sentence. */
int sim_trace_arrival(const struct sim_table *table, struct sim_trace_clock *clock,
                      hlg_time time_ns, hlg_time *arrival_ns);

/* Read rows of Mooncake's or Bailian's kind. Returns as sim_trace_read(); an empty file gives 0. */
int sim_jsonl_read(struct sim_workload *workload, struct sim_table *table,
                   enum sim_trace_format format, uint32_t count_max);

#endif
