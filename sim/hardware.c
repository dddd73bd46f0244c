#include "hardware.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* Figures without structured sparsity. Where catalogues disagree, `source` says which was taken. */
#define AIC      "ai-dynamo/aiconfigurator@095f58a5 aic-core/src/aiconfigurator_core/systems/"
#define INFERSIM "alibaba/InferSim@f2293dab hardware/gpu.py"

static const struct sim_gpu gpus[] = {
    {.name = "A100",
     .bf16_flops = 312e12,
     .hbm_bandwidth = 2.039e12,
     .hbm_bytes = 80 * GIB,
     .scaleup_bandwidth = 300e9,
     .pcie_bandwidth = 32e9,
     .source = AIC "a100_sxm.yaml (SXM, 80 GB)"},
    {.name = "A100-40G",
     .bf16_flops = 312e12,
     .hbm_bandwidth = 1.555e12,
     .hbm_bytes = 40 * GIB,
     .scaleup_bandwidth = 300e9,
     .pcie_bandwidth = 32e9,
     .source = AIC "a100_sxm.yaml; memory: NVIDIA A100 data sheet (SXM, 40 GB, 1,555 GB/s)"},
    {.name = "H100",
     .bf16_flops = 989e12,
     .fp8_flops = 1.978e15,
     .hbm_bandwidth = 3.35e12,
     .hbm_bytes = 85520809984,
     .scaleup_bandwidth = 450e9,
     .pcie_bandwidth = 64e9,
     .source = AIC "h100_sxm.yaml; memory as the driver reports it, 81,559 MiB, not 80 GiB"},
    {.name = "H200",
     .bf16_flops = 989e12,
     .fp8_flops = 1.978e15,
     .hbm_bandwidth = 4.8e12,
     .hbm_bytes = 150754820096,
     .scaleup_bandwidth = 450e9,
     .pcie_bandwidth = 64e9,
     .source = AIC "h200_sxm.yaml; memory as the driver reports it, 143,771 MiB, not 141 GiB"},
    {.name = "B200",
     .bf16_flops = 2.25e15,
     .fp8_flops = 4.5e15,
     .fp4_flops = 9e15,
     .hbm_bandwidth = 7.7e12,
     .hbm_bytes = 180 * GIB,
     .scaleup_bandwidth = 900e9,
     .pcie_bandwidth = 128e9,
     .source = AIC "b200_sxm.yaml; other catalogues have 8.0 TB/s of memory"},
    {.name = "B300",
     .bf16_flops = 2.25e15,
     .fp8_flops = 4.5e15,
     .fp4_flops = 14e15,
     .hbm_bandwidth = 7.75e12,
     .hbm_bytes = 288400343040,
     .scaleup_bandwidth = 900e9,
     .pcie_bandwidth = 128e9,
     .source = AIC "b300_sxm.yaml"},
    {.name = "GB200",
     .bf16_flops = 2.5e15,
     .fp8_flops = 5e15,
     .fp4_flops = 10e15,
     .hbm_bandwidth = 8e12,
     .hbm_bytes = 198674743296,
     .scaleup_bandwidth = 900e9,
     .pcie_bandwidth = 64e9,
     .nic_path_bandwidth =
         450e9, /* NVLink-C2C to Grace, whose NICs they are: NVIDIA GB200 data sheet, 900 GB/s both ways */
     .source = AIC "gb200.yaml (NVL72)"},
    {.name = "GB300",
     .bf16_flops = 2.5e15,
     .fp8_flops = 5e15,
     .fp4_flops = 15e15,
     .hbm_bandwidth = 8e12,
     .hbm_bytes = 298013687808,
     .scaleup_bandwidth = 900e9,
     .pcie_bandwidth = 64e9,
     .nic_path_bandwidth =
         450e9, /* NVLink-C2C to Grace, whose NICs they are: NVIDIA GB200 data sheet, 900 GB/s both ways */
     .source = AIC "gb300.yaml (NVL72)"},
    {.name = "L40S",
     .bf16_flops = 362.05e12,
     .fp8_flops = 733e12,
     .hbm_bandwidth = 864e9,
     .hbm_bytes = 48305799168,
     .scaleup_bandwidth = 32e9,
     .pcie_bandwidth = 32e9,
     .source = AIC "l40s.yaml (no NVLink: PCIe stands for it)"},
    {.name = "H800",
     .bf16_flops = 989e12,
     .fp8_flops = 1.979e15,
     .hbm_bandwidth = 3.43e12,
     .hbm_bytes = 80000000000,
     .scaleup_bandwidth = 200e9,
     .pcie_bandwidth = 64e9,
     .source = INFERSIM "; DeepSeek's papers have 3.35 TB/s of memory; PCIe is the H100's"},
    {.name = "H20",
     .bf16_flops = 148e12,
     .fp8_flops = 296e12,
     .hbm_bandwidth = 4.096e12,
     .hbm_bytes = 96000000000,
     .scaleup_bandwidth = 450e9,
     .pcie_bandwidth = 64e9,
     .source = INFERSIM "; others have 4.0 TB/s of memory; PCIe is assumed"},
};

/*
 * The constants of efa-200g and cx7-400g are fitted to the eight published points of each in
 * tests/accuracy/test_nic.c, which refuses others. The paper's EFA column is of two NICs together.
 */
#define PAPER                                                                              \
    "fitted, three constants to eight points, on arXiv:2510.27656 (fabric-lib), table 2: " \
    "tests/accuracy/test_nic.c"
#define EFA_200G_BANDWIDTH 22.173e9
#define EFA_OP_PS          950310
#define EFA_LATENCY_NS     16210
#define CX7_BANDWIDTH      44.573e9
#define CX7_OP_PS          88914
#define CX7_LATENCY_NS     5539
#define EFA_DEPTH          4096 /* fi_info on p5: tx 4096; Mooncake's EFA transport uses the same */
#define CX_DEPTH           4096 /* fabric-lib's completion queue on verbs */

static const struct sim_nic nics[] = {
    {.name = "cx7-400g",
     .bandwidth = CX7_BANDWIDTH,
     .line_rate = 50e9,
     .op_ps = CX7_OP_PS,
     .latency_ns = CX7_LATENCY_NS,
     .pieces_max = CX_DEPTH,
     .busy_factor = 1,
     .source = PAPER},
    {.name = "efa-200g",
     .bandwidth = EFA_200G_BANDWIDTH,
     .line_rate = 25e9,
     .op_ps = EFA_OP_PS,
     .latency_ns = EFA_LATENCY_NS,
     .pieces_max = EFA_DEPTH,
     .busy_factor = 1,
     .source = PAPER},
    {.name = "efa-100g",
     .bandwidth = 12.179e9,
     .line_rate = 12.5e9,
     .op_ps = 1250000,
     .latency_ns = EFA_LATENCY_NS,
     .pieces_max = EFA_DEPTH,
     .busy_factor = 1,
     .source = "efa-demo on p5: 97.43 Gbit/s of writes on one NIC; fi_rma_bw 1.25 us a piece up to "
               "1 KiB; latency assumed as of efa-200g"},
    {.name = "efa-400g",
     .bandwidth = 37.75e9,
     .line_rate = 50e9,
     .op_ps = EFA_OP_PS,
     .latency_ns = EFA_LATENCY_NS,
     .pieces_max = EFA_DEPTH,
     .busy_factor = 1,
     .source = "Mooncake docs/source/design/transfer-engine/efa_transport.md: p6-b200 302 GB/s of "
               "writes over 8 NICs; piece and latency assumed as of efa-200g"},
    {.name = "efa-100g-shared",
     .bandwidth = 6.0895e9,
     .line_rate = 6.25e9,
     .op_ps = 2500000,
     .latency_ns = EFA_LATENCY_NS,
     .pieces_max = EFA_DEPTH / 2,
     .busy_factor = 1,
     .source = "half of efa-100g: one NIC for two GPUs, each with its half at all times; p5's "
               "figures assumed for p4d's older EFA"},
    {.name = "cx6-200g",
     .bandwidth = 21.75e9,
     .line_rate = 25e9,
     .op_ps = CX7_OP_PS,
     .latency_ns = CX7_LATENCY_NS,
     .pieces_max = CX_DEPTH,
     .busy_factor = 1,
     .source = "Mooncake, FAST '25, transfer engine figure: 87 GB/s over 4 NICs of 200 Gbit/s; "
               "piece and latency assumed as of cx7-400g"},
    {.name = "cx8-800g",
     .bandwidth = 2 * CX7_BANDWIDTH,
     .line_rate = 100e9,
     .op_ps = CX7_OP_PS,
     .latency_ns = CX7_LATENCY_NS,
     .pieces_max = CX_DEPTH,
     .busy_factor = 1,
     .source = "assumed: twice the bandwidth of cx7-400g, the rest the same"},
    {.name = "plain",
     .bandwidth = 50e9,
     .line_rate = 50e9,
     .pieces_max = CX_DEPTH,
     .busy_factor = 1,
     .source =
         "no device: 400 Gbit/s, pieces and latency cost nothing; for a scenario's own figures"},
};

#define NVL72 AIC "gb200.yaml: inter_rack 100 GB/s a GPU; a node is one of the 18 of a rack"

static const struct sim_node_preset presets[] = {
    {"hgx-h200", "H200", "cx7-400g", 8, 1,
     "perplexityai/pplx-garden docs/fabric-lib.md: one CX-7 of 400 Gbit/s a GPU"},
    {"dgx-h100", "H100", "cx7-400g", 8, 1, "NVIDIA DGX H100 data sheet: 8 CX-7 of 400 Gbit/s"},
    {"hgx-h20", "H20", "cx7-400g", 8, 1, "Mooncake, FAST '25: 8 NICs of 400 Gbit/s (RoCE)"},
    {"hgx-h800", "H800", "cx7-400g", 8, 1, "Mooncake, FAST '25: 8 NICs of 400 Gbit/s (RoCE)"},
    {"hgx-b200", "B200", "cx7-400g", 8, 1, "8 CX-7 of 400 Gbit/s, assumed as in hgx-h200"},
    {"hgx-b200-800g", "B200", "cx8-800g", 8, 1, AIC "b200_sxm.yaml: 100 GB/s a GPU"},
    {"hgx-b300", "B300", "cx8-800g", 8, 1, AIC "b300_sxm.yaml: 100 GB/s a GPU"},
    {"gb200-nvl72", "GB200", "cx8-800g", 4, 1, NVL72},
    {"gb300-nvl72", "GB300", "cx8-800g", 4, 1, "as gb200-nvl72, assumed"},
    {"p4d", "A100-40G", "efa-100g-shared", 8, 1, "AWS EC2 documentation: 4 NICs of 100 Gbit/s"},
    {"p5", "H100", "efa-100g", 8, 4,
     "AWS EC2 User Guide, efa-acc-inst-types: P5 and P5e have 32 network cards, 3,200 Gbit/s"},
    {"p5e", "H200", "efa-100g", 8, 4,
     "AWS EC2 User Guide, efa-acc-inst-types: P5 and P5e have 32 network cards, 3,200 Gbit/s"},
    {"p5en", "H200", "efa-200g", 8, 2,
     "pytorch/torchx, named AWS specs: EFA_DEVICE 16; 3,200 Gbit/s a node"},
    {"p6-b200", "B200", "efa-400g", 8, 1,
     "public test report of pplx-garden on B200 and EFA: 8 NICs of 400 Gbit/s"},
    {"nd-a100-v4", "A100", "cx6-200g", 8, 1,
     "Azure/azhpc-images topology ndv4: 8 A100, 8 HDR NICs (200 Gbit/s)"},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

const struct sim_gpu *sim_gpu_at(uint32_t index)
{
    return index < COUNT(gpus) ? &gpus[index] : NULL;
}

const struct sim_gpu *sim_gpu_find(const char *name)
{
    for (uint32_t i = 0; i < COUNT(gpus); i++) {
        if (strcasecmp(gpus[i].name, name) == 0) {
            return &gpus[i];
        }
    }
    return NULL;
}

const struct sim_nic *sim_nic_at(uint32_t index)
{
    return index < COUNT(nics) ? &nics[index] : NULL;
}

const struct sim_nic *sim_nic_find(const char *name)
{
    for (uint32_t i = 0; i < COUNT(nics); i++) {
        if (strcasecmp(nics[i].name, name) == 0) {
            return &nics[i];
        }
    }
    return NULL;
}

const struct sim_node_preset *sim_node_preset_at(uint32_t index)
{
    return index < COUNT(presets) ? &presets[index] : NULL;
}

const struct sim_node_preset *sim_node_preset_find(const char *name)
{
    for (uint32_t i = 0; i < COUNT(presets); i++) {
        if (strcasecmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

/* One number of a NIC, with what it may be. */
static bool is_within(double value, double min, double max)
{
    return value >= min && value <= max; /* false for what is not a number */
}

int sim_nic_check(const struct sim_nic *nic, char *text, size_t capacity)
{
    const struct {
        const char *key;
        double value;
        double min;
        double max;
    } ranges[] = {
        {"bandwidth", nic->bandwidth, 1e3, 1e13},
        {"op_ps", (double)nic->op_ps, 0, 1e12},
        {"latency_ns", (double)nic->latency_ns, 0, 1e10},
        {"pieces_max", nic->pieces_max, 1, 1u << 20},
        {"background_ppm", nic->background_ppm, 0, 999999},
        {"busy_factor", nic->busy_factor, 1, 1000},
    };
    for (uint32_t i = 0; i < COUNT(ranges); i++) {
        if (!is_within(ranges[i].value, ranges[i].min, ranges[i].max)) {
            (void)snprintf(text, capacity, "nic %s: %s: %g: must be %g to %g", nic->name,
                           ranges[i].key, ranges[i].value, ranges[i].min, ranges[i].max);
            return -HLG_EINVAL;
        }
    }
    return 0;
}

double sim_nic_bandwidth(const struct sim_nic *nic)
{
    return nic->bandwidth * (1 - nic->background_ppm * 1e-6);
}

uint64_t sim_nic_op_ps(const struct sim_nic *nic)
{
    return (uint64_t)((double)nic->op_ps * nic->busy_factor + 0.5);
}

double sim_nic_batch_ns(const struct sim_nic *nic, uint64_t pieces, uint64_t bytes)
{
    const double moving_ns = (double)pieces * (double)bytes / sim_nic_bandwidth(nic) * 1e9;
    const double ops_ns = (double)pieces * (double)sim_nic_op_ps(nic) * 1e-3;
    return fmax(moving_ns, ops_ns) + 2 * (double)nic->latency_ns;
}
