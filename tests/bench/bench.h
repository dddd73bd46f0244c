/*
 * halage-bench-flows: the messenger over simgrid against the same flows in a bare loop over SimGrid.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <halage/base.h>

#define LAYERS            61u
#define DECODERS          3u /* for each prefiller */
#define PREFILLS_MAX      128u
#define BARE_PREFILLS_MAX 4u                               /* with a tape */
#define NODES_MAX         ((1u + DECODERS) * PREFILLS_MAX) /* the first ones prefill */
#define LANES_MAX         8u
#define PAGE_TOKENS       64u
#define NIC_BANDWIDTH     50e9 /* bytes/s: 400 Gbit/s */
#define LATENCY_NS        2500u

struct options {
    uint64_t requests;
    uint32_t prefills; /* each decoder has a session with each */
    uint32_t tokens;
    uint32_t lanes;   /* 8, or 1: the node folded into one rank of eightfold pages and bandwidth */
    hlg_time tick_ns; /* of a layer */
    uint32_t runs;
    bool bare;        /* run the bare loop too */
    bool engine;      /* SimGrid for every flow, also for those that share with none */
    double ratio_max; /* beyond it the run fails; 0: none */
};

static inline uint32_t options_nodes(const struct options *options)
{
    return options->prefills * (1 + DECODERS);
}

/* One flow. NICs are numbered node by node, lane by lane. */
struct flow {
    uint32_t source;
    uint32_t target;
    double bytes;
    hlg_time posted;
};

/* Flows in the order in which they were posted, in memory that a child shares with its parent. */
struct tape {
    uint64_t count;
    uint64_t capacity;
    struct flow *flows;
};

struct outcome {
    uint64_t flows;
    hlg_time ended; /* of the virtual clock */
    double seconds; /* processor time in all */
    double setup;   /* of it, until all sessions are up */
    uint64_t hash;
};

/* Processor time of this process. */
double processor_seconds(void);

/* Run all requests through the messenger. With a tape, each write is put on it. */
void cluster_run(const struct options *options, struct tape *tape, struct outcome *outcome);

/*
 * Run the flows of a tape through SimGrid and nothing else. As in the messenger, those from one NIC to
 * another go one at a time, first in, first out, none before it was posted.
 */
void bare_run(const struct options *options, const struct tape *tape, struct outcome *outcome);

/* Endpoints that the fabric opens from now on put what they write on the tape. */
struct hlg_fabric;
void tape_attach(struct tape *tape, struct hlg_fabric *fabric, uint32_t first_nic);

#endif
