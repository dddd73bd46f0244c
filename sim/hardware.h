/*
 * What a node is made of: GPUs and NICs as data, each figure with its source, and presets of whole
 * nodes. Units: bytes, bytes/s, flop/s, nanoseconds, picoseconds.
 */
#ifndef HALAGE_SIM_HARDWARE_H
#define HALAGE_SIM_HARDWARE_H

#include <halage/base.h>

struct sim_gpu {
    char name[32];
    double bf16_flops; /* dense */
    double fp8_flops;  /* 0: none */
    double fp4_flops;
    double hbm_bandwidth;
    uint64_t hbm_bytes;
    double scaleup_bandwidth; /* each way, NVLink or what stands for it */
    double pcie_bandwidth;
    const char *source;
};

/*
 * A kind of NIC, in the three constants that the published tables fix (docs/simulation.md):
 *   a batch of n pieces takes max(bytes / bandwidth, n * op) + base.
 */
struct sim_nic {
    char name[32];
    double bandwidth;        /* bytes/s, each way, achieved by bulk writes */
    double line_rate;        /* bytes/s, nominal */
    uint64_t op_ps;          /* picoseconds of the NIC for one piece */
    hlg_time latency_ns;     /* one way, of a write, with its posting */
    uint32_t pieces_max;     /* queue depth: pieces under way at one NIC */
    uint32_t background_ppm; /* share of the bandwidth that other traffic takes: default 0 */
    double busy_factor;      /* time of each piece on a busy GPU against an idle one: default 1 */
    const char *source;
};

struct sim_node_preset {
    char name[32];
    const char *gpu;
    const char *nic;
    uint32_t gpus;
    uint32_t nics_per_gpu;
    const char *source;
};

/* Catalogues: in a fixed order, NULL past the end; by name, letter case aside, NULL when unknown. */
const struct sim_gpu *sim_gpu_at(uint32_t index);
const struct sim_gpu *sim_gpu_find(const char *name);
const struct sim_nic *sim_nic_at(uint32_t index);
const struct sim_nic *sim_nic_find(const char *name);
const struct sim_node_preset *sim_node_preset_at(uint32_t index);
const struct sim_node_preset *sim_node_preset_find(const char *name);

/* Time of a batch of `pieces` pieces of `bytes` each on an idle NIC, from post to completion. */
double sim_nic_batch_ns(const struct sim_nic *nic, uint64_t pieces, uint64_t bytes);

#endif
