/*
 * A scenario: everything that a simulation depends on, as the YAML file gives it (schema 1; keys and
 * units: docs/simulation.md). Plain data; equal scenarios run alike.
 */
#ifndef HALAGE_SIM_SCENARIO_H
#define HALAGE_SIM_SCENARIO_H

#include "batch.h"
#include "cost.h"
#include "hardware.h"
#include "model.h"
#include "router.h"
#include "workload.h"

#include <halage/layout.h>

#include <stdio.h>

#define SIM_FAULTS_MAX 64u
#define SIM_PATH_MAX   512u
#define SIM_GPUS_MAX   64u   /* of a node */
#define SIM_NODES_MAX  2048u /* of a cluster */
/* Prefill nodes times decode nodes where there are faults: sessions that were ended keep their places, so
 * that fewer can be counted in 32 bits. */
#define SIM_FAULTY_PAIRS_MAX (1u << 20)

enum sim_serving {
    SIM_SERVING_DISAGGREGATED, /* prefill and decode nodes, KV over the network */
    SIM_SERVING_COLOCATED,     /* one kind of node does both */
};

enum sim_kv_policy {
    SIM_KV_RESERVE, /* pages for prompt and whole output are taken before a request starts */
    SIM_KV_GROW, /* pages for the prompt; more as it grows; the youngest is preempted when none are left */
};

/* What an engine's step costs and how much memory it has. */
struct sim_engine {
    char name[32];    /* of the calibration: sglang, trtllm, vllm, none */
    char version[32]; /* "": the calibration's own */
    char gpu[32];     /* catalogue name */
    uint32_t gpus;    /* of a node: tp * dp */
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
    enum sim_dtype weights;
    enum sim_dtype kv;
    bool roofline;
    char table[SIM_PATH_MAX]; /* "": none */
    double step_overhead_ns;  /* < 0: calibrated */
    double layer_overhead_ns; /* < 0: calibrated */
    double memory_fraction;   /* of the GPU's memory, for weights and KV together */
    uint64_t kv_tokens;       /* of a DP rank; 0: by formula. Given, it overrides and is echoed */
    uint32_t page_tokens;
    enum hlg_arrangement arrangement;
    uint32_t requests_max; /* open at a node */
    hlg_time ingest_ns;    /* tokenising and routing, of each request */
    hlg_time dispatch_ns;  /* scheduling of a message at the engine that gets it */
};

struct sim_prefill {
    uint32_t nodes;
    struct sim_engine engine;
    uint32_t budget_tokens; /* of one forward, over all its chunks, of each DP rank */
    bool chunked;      /* cut prompts at the budget; else a prompt is computed in one forward */
    uint32_t forwards; /* in flight: 1, or 2 (the next is composed while one runs) */
    bool prefix_cache;
    bool layerwise; /* send each layer when it is computed; else all at the end of the pass */
};

struct sim_decode {
    uint32_t nodes;
    struct sim_engine engine;
    uint32_t sequences_max; /* of a DP rank */
    enum sim_kv_policy policy;
    uint32_t draft; /* MTP draft tokens of a step; 0: no MTP */
    double accept[SIM_DRAFT_MAX];
    bool last_token; /* the first step here computes the last prompt token (the article); else
                               the prefill node sampled the first token, and it came with the KV */
};

struct sim_colocated {
    uint32_t nodes;
    struct sim_engine engine;
    uint32_t budget_tokens; /* of one step of a rank, prompts and decode together when chunked */
    bool chunked; /* mix chunks into decode steps; else prompts run alone and decode waits */
    uint32_t sequences_max;
    enum sim_kv_policy policy;
    bool prefix_cache;
    uint32_t draft;
    double accept[SIM_DRAFT_MAX];
};

struct sim_network {
    struct sim_nic nic; /* of the preset, with what the scenario overrides */
    uint32_t nics_per_gpu;
    bool fold;          /* ranks and rails of a node as one, where that is exact; else refused */
    bool fold_auto;     /* fold if it is exact */
    uint32_t pod_nodes; /* below one uplink; 0: a fabric that blocks nowhere */
    double oversubscription; /* NIC bandwidth of a pod over its uplink's, >= 1 */
    hlg_time message_ns;     /* one way, of a control message */
    uint32_t fence_domains;  /* of a node */
    uint32_t context_bytes;  /* hidden states or logits handed over last; 0: none */
    bool page_flows;         /* one flow a page, for comparison */
};

enum sim_fault_kind {
    SIM_FAULT_KILL = 1, /* a node dies */
    SIM_FAULT_RESTART,
    SIM_FAULT_SLOW, /* a NIC (or all of a node: nic HLG_NONE) at `factor` of its bandwidth; 1 repairs */
    SIM_FAULT_LINK, /* a NIC's link is down: factor 0; or up again: 1 */
};

struct sim_fault {
    enum sim_fault_kind kind;
    hlg_time at;
    bool decode; /* node number counts decode nodes, else prefill (or co-located) ones */
    uint32_t node;
    uint32_t nic;
    double factor;
};

enum sim_trace_kind {
    SIM_WORKLOAD_DRAWN,
    SIM_WORKLOAD_TRACE,
    SIM_WORKLOAD_SERVEGEN
};

struct sim_traffic {
    enum sim_trace_kind kind;
    struct sim_workload_config drawn; /* its cdfs point into `cdfs` */
    struct sim_cdf *cdfs[2];          /* prompt, output; owned; NULL unless empirical */
    char cdf_path[2][SIM_PATH_MAX];   /* whence: "" for none */
    char format[16];                  /* of a trace: azure, mooncake, ... */
    char path[SIM_PATH_MAX];
    char lengths_path[SIM_PATH_MAX]; /* servegen, as the next three; `path` then has the rates */
    hlg_time begin_ns; /* windows that begin in [begin, limit) are taken: whole seconds */
    hlg_time limit_ns;
    hlg_time period_ns; /* a row of rates holds so long */
    uint32_t count_max; /* of a trace; 0: all */
    double speed;       /* a trace's time runs so much faster: 1 */
};

struct sim_measure {
    /* Requests that arrive outside [warmup, warmup + window) are served and not measured. */
    hlg_time warmup_ns;
    hlg_time window_ns;       /* HLG_TIME_NEVER: to the end */
    uint32_t warmup_requests; /* the first ones are not measured either */
    bool drain_warmup;        /* wait until the warm-up requests are done before the others start */
    hlg_time stop_ns;   /* virtual time at which the run ends; HLG_TIME_NEVER: when all is done */
    double slo_ttft_ns; /* 0: none */
    double slo_tpot_ns;
};

#define SIM_KEYS_MAX 192u

/* Where a key's value comes from: 0 the default, n the n-th file from the scenario outward, or this. */
#define SIM_WHENCE_OVERRIDE 255u

struct sim_scenario {
    char name[64];
    char question[256]; /* that it answers */
    char path[SIM_PATH_MAX];
    uint64_t seed;
    char node[32];             /* preset that hardware came from; "": none */
    char config[SIM_PATH_MAX]; /* Hugging Face file that the model came from; "": the catalogue */
    struct sim_model model;
    enum sim_serving serving;
    struct sim_prefill prefill;     /* disaggregated */
    struct sim_decode decode;       /* disaggregated */
    struct sim_colocated colocated; /* co-located */
    struct sim_network network;
    enum sim_routing prefill_routing; /* and of co-located nodes */
    enum sim_routing decode_routing;
    double routing_load_weight;
    struct sim_traffic traffic;
    struct sim_measure measure;
    struct sim_fault faults[SIM_FAULTS_MAX];
    uint32_t fault_count;
    uint8_t whence[SIM_KEYS_MAX]; /* by number of the key, for sentences */
};

/* R1 on H200, TP 8, 1 prefill : 3 decode, Poisson at 3 requests/s. Every field is set. */
void sim_scenario_default(struct sim_scenario *scenario);

/*
 * Read a scenario file. What it leaves out has the default's value; of colocated's engine, decode's.
 *
 * overrides  [override_count] "key.path=value", as on the command line; applied last, in order.
 *            Lists: "decode.accept=[0.8, 0.5]", "faults.0.at=3s", "faults=[]"
 * text       [capacity] on error one sentence naming file, key, value and remedy
 *
 * Returns 0, -HLG_EINVAL or -HLG_EIO. Release with sim_scenario_fini().
 */
int sim_scenario_read(struct sim_scenario *scenario, const char *path, const char *const *overrides,
                      uint32_t override_count, char *text, size_t capacity);
void sim_scenario_fini(struct sim_scenario *scenario);

#define SIM_SWEEP_AXES_MAX      8u
#define SIM_SWEEP_ENTRIES_MAX   256u /* of an axis */
#define SIM_SWEEP_OVERRIDES_MAX 64u  /* of a point of the grid, over all axes */
#define SIM_SWEEP_POINTS_MAX    100000u

/* One axis of a grid: each entry is a list of overrides, made together. */
struct sim_sweep_axis {
    char name[64]; /* of the key, or what the file calls it */
    char **texts;  /* [entry_count] "key=value", several with a space between */
    uint32_t entry_count;
    char **overrides; /* [override_count] "key=value" of all entries, in order */
    uint32_t *begins; /* [entry_count + 1] an entry's first override */
};

/* The `sweep:` section of a scenario: a grid of overrides. */
struct sim_sweep {
    struct sim_sweep_axis axes[SIM_SWEEP_AXES_MAX];
    uint32_t axis_count;
    uint32_t point_count; /* product of the entries; 0: there is no sweep */
};

/*
 * Read the grid that a scenario file, or the nearest one that it extends, describes:
 *
 *   sweep:
 *     - key: decode.nodes
 *       values: [1, 2, 3]
 *     - name: transfer
 *       cases: ["prefill.layerwise=true", "prefill.layerwise=false prefill.forwards=1"]
 *
 * Every key is known and every value good for it; whether a point can be run, sim_scenario_check()
 * says of the scenario that is read with its overrides. Returns 0, -HLG_EINVAL, -HLG_EIO or
 * -HLG_ENOMEM with a sentence. Release with sim_sweep_fini().
 */
int sim_scenario_sweep(const char *path, struct sim_sweep *sweep, char *text, size_t capacity);
void sim_sweep_fini(struct sim_sweep *sweep);

/* Add an axis to a sweep that was read, or is all zero. On an error *sweep is as it was. */
int sim_sweep_add(struct sim_sweep *sweep, const char *name, const char *const *texts,
                  uint32_t entry_count, char *text, size_t capacity);

/* Which entry of an axis a point has; the last axis turns fastest. */
uint32_t sim_sweep_entry(const struct sim_sweep *sweep, uint32_t point, uint32_t axis);

/* Overrides of a point, for sim_scenario_read(). Returns how many. They live as long as the sweep. */
uint32_t sim_sweep_point(const struct sim_sweep *sweep, uint32_t point,
                         const char *overrides[SIM_SWEEP_OVERRIDES_MAX]);

/*
 * Whether it can be run: numbers in range, model fits (else the missing GiB), TP that the plan takes, one
 * sequence of the longest request fits. Returns 0 or -HLG_EINVAL with a sentence. `kv_tokens` (may be
 * NULL): of a DP rank of prefill and decode (both: co-located).
 */
int sim_scenario_check(const struct sim_scenario *scenario, uint64_t kv_tokens[2], char *text,
                       size_t capacity);

/* For all who need the same of an engine: its cost model; KV tokens of a DP rank, those that the
 * scenario says or those that fit; its KV layout with page counts for so many tokens. Each returns 0 or
 * an error with a sentence. Release the cost with sim_cost_destroy(). */
int sim_scenario_cost(const struct sim_scenario *scenario, const struct sim_engine *engine,
                      struct sim_cost **cost, char *text, size_t capacity);
int sim_scenario_kv_tokens(const struct sim_engine *engine, const struct sim_cost *cost,
                           uint64_t *tokens, char *text, size_t capacity);
int sim_scenario_layout(const struct sim_scenario *scenario, const struct sim_engine *engine,
                        uint64_t kv_tokens, struct hlg_layout *layout, char *text, size_t capacity);

/* Digest over all fields that a run depends on. */
uint64_t sim_scenario_digest(const struct sim_scenario *scenario);

/*
 * Write a scenario file: every key with its value, and if `comments` what it means. Read back, it is
 * equal. The sweep is not written. Returns 0 or -HLG_EIO.
 */
int sim_scenario_write(const struct sim_scenario *scenario, bool comments, FILE *file);

/* Draw or read its requests; a trace's path is taken from the scenario's directory, then HALAGE_DATA.
 * Release with sim_workload_fini(). */
int sim_scenario_workload(const struct sim_scenario *scenario, struct sim_workload *workload,
                          char *text, size_t capacity);

#endif
