/*
 * From the records of a run to numbers with names, units and intervals.
 *
 * Latencies are of the measured requests: those that arrive within the scenario's window. Unfinished
 * and failed ones count in the percentiles of TTFT, its parts and E2E as at least what they waited
 * until the run ended; a refused one has no latency. Rates are of all requests that finish within the
 * window, measured or not. A scenario that bounds no window has one from its first measured arrival to
 * the last arrival; to the end of the run in closed loop, or when all arrive in the run's first half.
 */
#ifndef HALAGE_SIM_METRICS_H
#define HALAGE_SIM_METRICS_H

#include "cluster.h"
#include "stats.h"

struct sim_metrics {
    uint64_t digest;   /* of the scenario */
    uint32_t requests; /* measured */
    uint32_t finished;
    uint32_t unfinished;
    uint32_t failed;
    uint32_t refused;
    uint32_t preemptions;
    struct sim_summary ttft_ms;
    /* Means of those whose first token is out, so that they sum to TTFT's mean. */
    struct sim_summary part_ms[SIM_TTFT_PARTS];
    /* These three are different quantities under the same colloquial name. Finished requests only. */
    struct sim_summary tpot_ms; /* (E2E - TTFT) / (output - 1), of requests with > 1 token */
    struct sim_summary e2e_per_token_ms; /* E2E / output */
    struct sim_summary itl_ms; /* gaps between tokens, of all requests of the run; no interval;
                                  percentiles are upper ends of buckets that are 9 % wide */
    struct sim_summary e2e_ms;
    /* 1 / TPOT, tokens/s of a user. Percentiles count from the fast side: nine of ten users have at least
     * p90; max is the slowest. */
    struct sim_summary speed_tps;
    hlg_time window_begin_ns; /* for rates and shares of the time */
    hlg_time window_end_ns;
    double window_s;
    double arrival_rate; /* requests/s that arrive in the window */
    double request_rate; /* that finish in it */
    double goodput;      /* of these, the ones that meet every SLO */
    bool slo;            /* an SLO is set */
    uint32_t slo_hits;
    double slo_share; /* of all measured requests; unfinished ones do not meet it */
    double slo_low;   /* 95 % Wilson interval */
    double slo_high;
    double input_tps; /* prompt tokens, cached ones too, of requests that finish in the window */
    double output_tps;
    double output_tps_per_gpu; /* over all GPUs, prefill ones too */
    double input_tps_per_gpu;
    uint32_t gpus;
    double prefill_busy; /* shares of the window, mean over nodes; co-located: prefill_* */
    double decode_busy;
    double prefill_kv;
    double decode_kv;
    double nic_out;
    double nic_out_max; /* of the busiest NIC */
    double nic_in;
    double nic_in_max;
    double batch_mean; /* sequences in decode, mean over the window, of a node */
    double held_mean;  /* that hold pages: these, and those in prefill and on the way */
    double
        waiting_share; /* of the window, in which a request waits for pages or a slot of its node */
    double waiting_held; /* sequences that hold pages of such a node then */
    double queue_mean;   /* requests that wait for their first token */
    double cached_share; /* prompt tokens found in caches */
    double limit_batch;  /* of a node, at the limit of KV or slots; 0 for the others */
    const char *limit; /* what is fullest: "prefill", "decode batch slots", "decode KV", "network",
                          "engine" and "KV", "batch slots" of co-located nodes; "none" */
    bool overloaded;   /* open loop, and the queue grew through the whole window */
};

/* One quantity of a request. The first SIM_TTFT_PARTS numbers are the parts of its TTFT. */
enum sim_latency {
    SIM_LATENCY_PART = 0,
    SIM_LATENCY_TTFT = SIM_TTFT_PARTS,
    SIM_LATENCY_TPOT,
    SIM_LATENCY_E2E_PER_TOKEN,
    SIM_LATENCY_E2E,
    SIM_LATENCY_SPEED,
    SIM_LATENCIES
};

/* A latency of all measured requests that have it, in order, into values [run->record_count]; in
 * milliseconds, or tokens/s. Returns how many. */
uint64_t sim_metrics_values(const struct sim_scenario *scenario, const struct sim_run *run,
                            uint32_t latency, struct sim_value *values);

/* Whether a request met every SLO that is set. One that is not done met none. */
bool sim_metrics_meets(const struct sim_scenario *scenario, const struct sim_record *record);

/* Returns 0 or -HLG_ENOMEM. O(n log n) for n requests. */
int sim_metrics(const struct sim_scenario *scenario, const struct sim_workload *workload,
                const struct sim_run *run, struct sim_metrics *metrics);

/*
 * Little's law over the whole run (requests in the system, integrated, against the sum of their
 * stays); tokens; bytes; order of each request's moments, and parts against TTFT. Tokens and bytes are
 * compared exactly when every request is done at its first attempt, else as bounds.
 *
 * Returns NULL, or `text` [capacity] with the sentence of the first that does not hold.
 */
const char *sim_metrics_conserved(const struct sim_workload *workload, const struct sim_run *run,
                                  char *text, size_t capacity);

#endif
