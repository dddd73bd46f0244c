/*
 * From the records of a run to numbers with names, units and intervals.
 */
#ifndef HALAGE_SIM_METRICS_H
#define HALAGE_SIM_METRICS_H

#include "cluster.h"

/* Distribution of one quantity over measured requests. Percentiles count unfinished requests as at
 * least the time that they have waited; when a percentile falls among those, `open` is true and the
 * value is a lower bound. */
struct sim_summary {
    uint64_t count; /* with a value, unfinished ones included */
    double mean;    /* of those that have the value */
    double low;     /* 95 % confidence interval of the mean, by batch means */
    double high;
    double p50;
    double p90;
    double p99;
    double max;
    bool open;
    bool wide; /* the interval is wider than a tenth of the mean: run longer */
};

struct sim_metrics {
    uint32_t requests; /* measured */
    uint32_t finished;
    uint32_t unfinished;
    uint32_t failed;
    uint32_t refused;
    uint32_t preemptions;
    struct sim_summary ttft_ms;
    struct sim_summary part_ms[SIM_TTFT_PARTS];
    struct sim_summary tpot_ms; /* (E2E - TTFT) / (output - 1), of requests with > 1 token */
    struct sim_summary e2e_per_token_ms; /* E2E / output */
    struct sim_summary itl_ms;           /* gaps between tokens, of all requests; no interval */
    struct sim_summary e2e_ms;
    struct sim_summary speed_tps; /* 1 / TPOT, tokens/s of a user */
    double window_s;
    double request_rate; /* finished per second of the window */
    double goodput;      /* of these, the ones that meet every SLO */
    double slo_share;    /* of all measured requests; unfinished ones do not meet it */
    double slo_low;      /* 95 % Wilson interval */
    double slo_high;
    double input_tps;
    double output_tps;
    double output_tps_per_gpu; /* over all GPUs, prefill ones too */
    double input_tps_per_gpu;
    uint32_t gpus;
    double prefill_busy; /* shares of the time, mean over nodes */
    double decode_busy;
    double prefill_kv;
    double decode_kv;
    double nic_out;
    double nic_in;
    double batch_mean;   /* sequences in decode, mean over time, of a node */
    double cached_share; /* prompt tokens found in caches */
    const char *limit;   /* "prefill", "decode", "decode KV", "network", "none": what is fullest */
    bool overloaded;     /* the queue grew through the whole window */
};

void sim_metrics(const struct sim_scenario *scenario, const struct sim_workload *workload,
                 const struct sim_run *run, struct sim_metrics *metrics);

/* Little's law over the whole run; tokens; bytes; parts against TTFT. Returns NULL, or the sentence of
 * the first that does not hold. */
const char *sim_metrics_conserved(const struct sim_workload *workload, const struct sim_run *run);

#endif
