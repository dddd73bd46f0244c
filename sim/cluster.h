/*
 * The simulated cluster: nodes with the real messenger core (pump and machines) over the simgrid
 * transport, driven by modelled engines through the public API; and co-located nodes, which need no
 * network. One run a process at a time (SimGrid); sweeps fork.
 */
#ifndef HALAGE_SIM_CLUSTER_H
#define HALAGE_SIM_CLUSTER_H

#include "record.h"
#include "scenario.h"

#define SIM_SERIES_MAX 512u

/* A series over virtual time, sampled at a fixed pace that doubles when it is full. */
struct sim_sample {
    hlg_time at;
    uint32_t prefill_queue; /* requests asked and not started, all nodes */
    uint32_t decode_running;
    uint32_t decode_waiting;
    float prefill_busy; /* share of the time since the last sample, mean over nodes */
    float prefill_kv;   /* share of pages in use, mean over nodes */
    float decode_kv;
    float nic_out;     /* share of the bandwidth used since the last sample, mean of prefill NICs */
    float nic_out_max; /* of the busiest one */
    float nic_in;      /* decode NICs */
    float nic_in_max;
};

struct sim_node_totals {
    double busy_ns;     /* with a forward or step running */
    uint64_t forwards;  /* or steps */
    uint64_t beyond;    /* of these, with a price beyond what was measured */
    uint64_t tokens_in; /* prompt tokens computed */
    uint64_t tokens_out;
    uint64_t bytes;     /* sent, or landed */
    double nic_busy_ns; /* sum over its NICs */
    double kv_page_ns;  /* pages in use, integrated */
    uint32_t kv_pages;  /* that it has, all ranks */
    uint32_t nics;
    bool decode;
};

struct sim_run {
    struct sim_record *records; /* [record_count], by request */
    uint32_t record_count;
    hlg_time end_ns; /* virtual time at which the run ended */
    bool interrupted;
    bool folded;
    struct sim_node_totals *nodes; /* [node_count], prefill (or co-located) first */
    uint32_t node_count;
    uint32_t prefill_nodes;
    struct sim_sample series[SIM_SERIES_MAX];
    uint32_t series_count;
    struct sim_gaps gaps;           /* of all decode batches */
    struct sim_cost_basis basis[2]; /* prefill (or co-located), decode */
    uint64_t kv_tokens[2];
    uint64_t flows; /* of SimGrid */
    uint64_t events;
    uint64_t trace_hash; /* of all that happened; equal seed, equal hash */
    uint64_t messages;
    uint64_t bytes_posted;
    uint64_t bytes_landed;
    uint64_t bytes_planned; /* tokens x bytes/token x decode copies, of requests that were READY */
    double sequence_ns;     /* requests in the system, integrated: for Little's law */
};

/* One thing of a request's or a node's life, for Perfetto and `explain`. */
struct sim_span {
    const char *name;
    uint32_t node;    /* as in sim_run.nodes */
    uint32_t track;   /* 0 engine, 1 network, 2.. requests */
    uint32_t request; /* HLG_NONE: none */
    hlg_time begin;
    hlg_time end;
    uint64_t value; /* tokens, bytes: what `name` says */
};

struct sim_run_options {
    uint32_t requests_max; /* stop taking arrivals after so many; 0: all */
    /* Called now and then with requests finished, requests in all, and virtual time; false stops the
       run, which then tells what is known. May be NULL. */
    bool (*progress)(void *context, uint32_t finished, uint32_t count, hlg_time now);
    void (*span)(void *context, const struct sim_span *span); /* may be NULL */
    void *context;
    bool check; /* run all machines' own checks; slow */
};

/*
 * Run. At the end conservation is asserted: Little's law, tokens, bytes landed = bytes planned, all
 * pages back, machines' own checks; a broken one ends the process with the sentence.
 *
 * scenario  one that sim_scenario_check() took
 * options   may be NULL
 *
 * The decode node has pages for a request before it asks a prefill node; a prefill node is asked for no
 * more requests than its requests_max. A request whose attempt fails (a node died, its time ran out) goes
 * through the routers again, 3 times, from its beginning; one that is preempted goes on with what it had
 * said. Routers hear at once of nodes that die, and of sessions.
 *
 * Cost: some 2.5 us for each request and layer that it crosses, set-up aside, which grows with pairs of
 * nodes.
 *
 * Returns 0 with *run (release with sim_run_fini()), -HLG_EINVAL, -HLG_ENOMEM or -HLG_EIO with `text`
 * [capacity] a sentence.
 */
int sim_run(const struct sim_scenario *scenario, const struct sim_workload *workload,
            const struct sim_run_options *options, struct sim_run *run, char *text,
            size_t capacity);
void sim_run_fini(struct sim_run *run);

/*
 * Whether the ranks of each node of a disaggregated scenario can be simulated as one.
 *
 * kv_tokens  as sim_scenario_check() gives them
 *
 * Returns NULL if that is exact, or why not, for the end of a sentence.
 */
const char *sim_fold_obstacle(const struct sim_scenario *scenario, const uint64_t kv_tokens[2]);

#endif
