/*
 * Readers of published request traces and length distributions.
 */
#ifndef HALAGE_SIM_WORKLOAD_TRACE_H
#define HALAGE_SIM_WORKLOAD_TRACE_H

#include "workload.h"

enum sim_trace_format {
    /* CSV: TIMESTAMP (YYYY-MM-DD HH:MM:SS.f), ContextTokens, GeneratedTokens. */
    SIM_TRACE_AZURE,
    /*
     * CSV: Timestamp (seconds), Request tokens, Response tokens; further columns are not read. Rows
     * without response tokens, failed requests, are left out and counted in skipped_count.
     */
    SIM_TRACE_BURSTGPT,
    /*
     * A JSON object a line: timestamp (ms), input_length, output_length, hash_ids, one for each 512
     * tokens, the last block not always full.
     */
    SIM_TRACE_MOONCAKE,
    /* As Mooncake, but timestamp in seconds and blocks of 16 tokens, full or not at the end. */
    SIM_TRACE_BAILIAN,
};

/* Find a format by its name in lower case. Returns false for an unknown one. */
bool sim_trace_format_find(const char *name, enum sim_trace_format *format);

/*
 * Read the first rows of a trace. The first request arrives at 0, the others as much later as the
 * file says; a row that is earlier than the one before it is an error.
 *
 * count_max  rows to read at most, >= 1
 * text       [capacity] on failure one sentence: file, line, value and remedy
 *
 * Returns 0, -HLG_EINVAL (an empty trace too), -HLG_ELIMIT or -HLG_ENOMEM. Release with
 * sim_workload_fini().
 */
int sim_trace_read(struct sim_workload *workload, enum sim_trace_format format, const char *file,
                   uint32_t count_max, char *text, size_t capacity);

/*
 * Read lengths as JSON: pairs [tokens, share of all that are at most so long], alone or under the
 * key "cdf".
 *
 * text  [capacity] on failure one sentence
 *
 * Returns 0 or -HLG_EINVAL.
 */
int sim_cdf_read(struct sim_cdf *cdf, const char *file, char *text, size_t capacity);

struct sim_servegen_config {
    const char *rates_file;   /* TSV, see below */
    const char *lengths_file; /* TSV, see below */
    uint32_t window_s;        /* a row of rates holds so long: 600 as published; 1..86400 */
    uint32_t begin_s;         /* take windows that begin in [begin_s, limit_s) */
    uint32_t limit_s;
    uint64_t seed;
};

/*
 * Draw requests of many clients, as ServeGen's (arXiv:2505.09999) per-client figures describe them.
 *
 * Rates: client, window_start_s, rate_rps, arrival_family (Gamma, Weibull), param1 (shape), ...; by
 * client, then window.
 * Lengths: client, window_start_s, field (input_tokens, output_tokens; others are not read), p0, p1,
 * p5, p10, p20, p25, p30, p40, p50, p60, p70, p75, p80, p90, p95, p99, p100: quantiles; by
 * client.
 *
 * In each window a client sends rate * window requests, rounded up or down by chance. Their gaps are
 * drawn from the family and stretched together to fill the window, so that the rate is the file's
 * and not that of a renewal process that begins anew. Lengths come from the client's row nearest
 * to the window (published here: every sixth hour), linear between the quantiles; prompt and output
 * are drawn independently. What a client draws depends on the seed, its number and the window alone.
 * Time 0 is begin_s.
 *
 * text  [capacity] on failure one sentence: file, line, value and remedy
 *
 * Returns 0, -HLG_EINVAL (no request too), -HLG_ELIMIT or -HLG_ENOMEM. Release with
 * sim_workload_fini().
 */
int sim_servegen_draw(struct sim_workload *workload, const struct sim_servegen_config *config,
                      char *text, size_t capacity);

#endif
