/*
 * What a run is told as: text for people, JSON, CSV (one row a request), Perfetto's trace format, and
 * one request's life. Every output carries version, scenario digest, calibration id and flags.
 * Files are written whole under another name and renamed into place.
 */
#ifndef HALAGE_SIM_REPORT_H
#define HALAGE_SIM_REPORT_H

#include "metrics.h"

#include <jansson.h>
#include <stdio.h>

/* Returns 0 or -HLG_EIO (the stream says why). */
int sim_report_text(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                    const struct sim_metrics *metrics);

/* A new reference, or NULL without memory. */
json_t *sim_report_json(const struct sim_scenario *scenario, const struct sim_run *run,
                        const struct sim_metrics *metrics);

int sim_report_csv(FILE *file, const struct sim_workload *workload, const struct sim_run *run);

/* One request's life: each moment with its time, part, node. -HLG_EINVAL: there is no such request. */
int sim_report_explain(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                       uint32_t request);

/* Perfetto (JSON trace events): begin, spans in any order, end. */
struct sim_trace;
int sim_trace_open(const char *path, struct sim_trace **trace, char *text, size_t capacity);
void sim_trace_span(void *trace, const struct sim_span *span); /* fits sim_run_options.span */
int sim_trace_close(struct sim_trace *trace, char *text, size_t capacity);

/* Write to `path` through a temporary file beside it; "-" is stdout. `write` returns 0 or an error. */
int sim_report_file(const char *path, int (*write)(FILE *file, void *context), void *context,
                    char *text, size_t capacity);

#endif
