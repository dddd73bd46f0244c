/*
 * What a run is told as: text for people, JSON, CSV (one row a request), TSV of the series, Perfetto's
 * trace format, and one request's life. Every output carries version, scenario digest, calibration and
 * what is extrapolated. Equal runs, equal bytes. Files: see output.h.
 */
#ifndef HALAGE_SIM_REPORT_H
#define HALAGE_SIM_REPORT_H

#include "metrics.h"

#include <jansson.h>
#include <stdio.h>

/* "0.1.0": of the build; stands in every output. */
const char *sim_version(void);

/* For people, some 45 lines of at most 100 columns. Returns 0 or -HLG_EIO (the stream says why). */
int sim_report_text(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                    const struct sim_metrics *metrics);

/* Forwards and steps of prefill (or co-located) or decode nodes; *beyond of them were priced beyond what was
 * measured. O(nodes). */
uint64_t sim_report_steps(const struct sim_run *run, bool decode, uint64_t *beyond);

/* A new reference, or NULL without memory. */
json_t *sim_report_json(const struct sim_scenario *scenario, const struct sim_run *run,
                        const struct sim_metrics *metrics);

/* Version, scenario, calibration and flags alone: the opening of each JSON file. */
json_t *sim_report_origin(const struct sim_scenario *scenario, const struct sim_run *run,
                          const struct sim_metrics *metrics);

/* Write indented, ten significant digits, with a newline. Returns 0 or -HLG_EIO. */
int sim_report_json_write(FILE *file, const json_t *json);

/*
 * One row a request, in order; a moment is in nanoseconds from the start, empty where it was not
 * reached. Before the column names one line that begins with "#" gives the origin.
 */
int sim_report_csv(FILE *file, const struct sim_scenario *scenario,
                   const struct sim_workload *workload, const struct sim_run *run,
                   const struct sim_metrics *metrics);

/* The run's series over time, tab-separated, in the same style. */
int sim_report_series(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                      const struct sim_metrics *metrics);

/* One request's life: each moment with its time, part, node. -HLG_EINVAL: there is no such request. */
int sim_report_explain(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                       uint32_t request);

/*
 * Perfetto (JSON trace events, times in microseconds): nodes are processes; engine, network and as many
 * lanes as requests overlap are threads. Open, spans in any order, close; those of requests (track >= 2)
 * are kept until then, and share a lane where they do not overlap. `path` is written at close, whole; sim_trace_abandon()
 * leaves nothing behind.
 *
 * text  [capacity] one sentence on error
 *
 * Open returns 0, -HLG_EIO or -HLG_ENOMEM; close 0 or -HLG_EIO, and frees the trace in both cases.
 */
struct sim_trace;
int sim_trace_open(const char *path, const struct sim_scenario *scenario, struct sim_trace **trace,
                   char *text, size_t capacity);
void sim_trace_span(void *trace, const struct sim_span *span); /* fits sim_run_options.span */
int sim_trace_close(struct sim_trace *trace, const struct sim_run *run, char *text,
                    size_t capacity);
void sim_trace_abandon(struct sim_trace *trace);

/*
 * Write to `path` as output.h says; "-" is stdout. `write` returns 0 or an error,
 * which is handed on; then a regular file is as before. Returns 0, or -HLG_EIO with a
 * sentence in `text` [capacity].
 */
int sim_report_file(const char *path, int (*write)(FILE *file, void *context), void *context,
                    char *text, size_t capacity);

#endif
