/*
 * What a node is made of: GPUs and NICs as data, each figure with its source, and presets of whole
 * nodes. Units: bytes, bytes/s, flop/s, nanoseconds, picoseconds.
 */
#ifndef HALAGE_SIM_HARDWARE_H
#define HALAGE_SIM_HARDWARE_H

#include <halage/base.h>

struct sim_gpu {
    char name[32];
    double bf16_flops; /* dense, as the next two */
    double fp8_flops;  /* 0: none */
    double fp4_flops;  /* 0: none */
    double hbm_bandwidth;
    uint64_t hbm_bytes;
    double scaleup_bandwidth;  /* each way, NVLink or what stands for it */
    double pcie_bandwidth;     /* each way */
    double nic_path_bandwidth; /* each way between a GPU and its NICs, all together; 0: PCIe's */
    const char *source;
};

/*
 * A kind of NIC. Three constants fix its times: a write, or writes posted together, of n pieces takes
 *
 *   max(bytes / bandwidth, n * op) + 2 * latency
 *
 * from posting to completion at the source, and one latency less until the bytes are there. That is
 * what the simgrid transport does when it is given the same constants; tests/accuracy/test_nic.c holds
 * formula, transport and published figures together.
 *
 * Not modelled unless a scenario says so: what other traffic takes (background_ppm, 0), and that GPUs
 * at work slow their NICs down (busy_factor, 1). No public figure fixes either.
 */
struct sim_nic {
    char name[32];
    double bandwidth;        /* bytes/s, each way, achieved by bulk writes */
    double line_rate;        /* bytes/s, nominal: for reports alone */
    uint64_t op_ps;          /* picoseconds of the NIC for one piece */
    hlg_time latency_ns;     /* one way, of a write, half of its posting in it */
    uint32_t pieces_max;     /* queue depth: pieces under way at one NIC */
    uint32_t background_ppm; /* share of the bandwidth that other traffic takes: default 0 */
    double busy_factor;      /* time of each piece on a busy GPU against an idle one: default 1 */
    const char *source;
};

struct sim_node_preset {
    char name[32];
    const char *gpu; /* of the catalogue, as the next */
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

/* Whether the numbers can be a NIC. Returns 0, or -HLG_EINVAL with a sentence in text [capacity]. */
int sim_nic_check(const struct sim_nic *nic, char *text, size_t capacity);

/* What a transport is to be given: bandwidth less the background, time of a piece on a busy GPU. */
double sim_nic_bandwidth(const struct sim_nic *nic);
uint64_t sim_nic_op_ps(const struct sim_nic *nic);

/* Time of `pieces` pieces of `bytes` each, alone on its NIC, from posting to completion. */
double sim_nic_batch_ns(const struct sim_nic *nic, uint64_t pieces, uint64_t bytes);

#endif
