/*
 * Which NICs and which cores are near which GPU, by hwloc: of this machine, or of a machine that hwloc has
 * written down as XML.
 *
 * GPUs are PCI devices of NVIDIA (vendor 10de) of the display classes 03xx. NICs are the RDMA devices of the
 * operating system (hwloc's OPENFABRICS devices) and, where a machine shows none of a vendor, that vendor's PCI
 * functions that are made for RDMA (EFA, InfiniBand, ConnectX). Virtual functions count where they stand alone.
 *
 * How near: enum hlg_link, then for one PCIe switch within another the inner one. NICs that are equally near are
 * shared among the GPUs to which they are that: 16 NICs of 8 GPUs on 4 switches are 2 for each GPU. NICs that are
 * nearer to no GPU than others (those for storage, for management) are nobody's share.
 */
#ifndef HALAGE_TOPOLOGY_H
#define HALAGE_TOPOLOGY_H

#include "placement.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_TOPOLOGY_GPUS_MAX    64u
#define HLG_TOPOLOGY_NICS_MAX    512u
#define HLG_TOPOLOGY_NAME_BYTES  64u
#define HLG_TOPOLOGY_NOTES_MAX   8u
#define HLG_TOPOLOGY_NOTE_BYTES  256u
#define HLG_TOPOLOGY_BUS_BYTES   17u
#define HLG_TOPOLOGY_DOMAINS_MAX 256u

/* Nearest first. */
enum hlg_link {
    HLG_LINK_SWITCH,  /* under one PCIe switch: bytes need not pass the CPU */
    HLG_LINK_ROOT,    /* under one host bridge */
    HLG_LINK_NUMA,    /* under two host bridges of one NUMA node */
    HLG_LINK_PACKAGE, /* at two NUMA nodes of one package */
    HLG_LINK_MACHINE, /* at two packages, or nobody knows where */
};

/* "same PCIe switch", "same host bridge", … */
const char *hlg_link_name(enum hlg_link link);

struct hlg_bus_id {
    uint32_t domain;
    uint8_t bus;
    uint8_t device;   /* < 32 */
    uint8_t function; /* < 8 */
};

/* Read "0000:53:00.0", also without the domain, with eight digits of it (nvidia-smi), or in capitals. Returns 0 or
 * -HLG_EINVAL. */
int hlg_bus_id_read(const char *text, struct hlg_bus_id *id);

/* Write it as "0000:53:00.0". */
void hlg_bus_id_write(const struct hlg_bus_id *id, char text[HLG_TOPOLOGY_BUS_BYTES]);

/* Whether two name the same function of the same device. */
bool hlg_bus_id_equal(const struct hlg_bus_id *a, const struct hlg_bus_id *b);

struct hlg_topology_nic {
    char name[HLG_TOPOLOGY_NAME_BYTES]; /* RDMA device, as "mlx5_0"; without a driver its bus id */
    char domain[HLG_TOPOLOGY_NAME_BYTES]; /* libfabric's name of it; "": not joined */
    bool on_bus;                          /* else `bus` is 0 and nothing is known of where it is */
    bool driver;                          /* the system has an RDMA device for it */
    bool down;                            /* all of its ports are known to be down */
    bool virtual_function;
    bool usable; /* else left out: config.nics names others, or libfabric does not open it */
    struct hlg_bus_id bus;
    int32_t numa;    /* as the kernel numbers it; -1: none, or several */
    uint16_t vendor; /* PCI; 0 without a bus */
    uint16_t device;
    char cores[HLG_CPULIST_BYTES]; /* those of its NUMA node */
    uint32_t gpu_count;            /* GPUs of the machine that have it in their share */
};

/* One NIC as one GPU sees it. */
struct hlg_topology_near {
    uint32_t nic; /* index in hlg_topology.nics */
    enum hlg_link link;
    uint32_t depth; /* SWITCH: bridges above the common one; more is nearer */
};

struct hlg_topology_gpu {
    uint32_t index;         /* among the visible ones, in their order: CUDA's number */
    uint32_t machine_index; /* among all, in the order of bus ids: nvidia-smi's number */
    struct hlg_bus_id bus;
    uint16_t device;                    /* PCI */
    int32_t numa;                       /* as the kernel numbers it; -1: none, or several */
    char uuid[HLG_TOPOLOGY_NAME_BYTES]; /* "GPU-…"; "": not known */
    char cores[HLG_CPULIST_BYTES];      /* those near it, all hardware threads */
    char slice[HLG_CPULIST_BYTES]; /* its share of them: one thread of each physical core, each core
                                           to one GPU of those with the same cores */
    uint32_t nic_count;            /* that can be used at all */
    uint32_t near_count;           /* of these the nearest, all equally near; they come first */
    uint32_t share_count;          /* of these its own; they come first of all */
    struct hlg_topology_near nics[HLG_TOPOLOGY_NICS_MAX];
};

struct hlg_topology {
    bool live;                             /* of the machine that this runs on */
    char machine[HLG_TOPOLOGY_NAME_BYTES]; /* its model, as the firmware says; "": not known */
    uint32_t gpu_count;                    /* visible ones */
    uint32_t machine_gpu_count;            /* all */
    uint32_t nic_count;
    uint32_t note_count;
    struct hlg_topology_gpu gpus[HLG_TOPOLOGY_GPUS_MAX];
    struct hlg_topology_nic nics[HLG_TOPOLOGY_NICS_MAX];         /* in the order of bus ids */
    char notes[HLG_TOPOLOGY_NOTES_MAX][HLG_TOPOLOGY_NOTE_BYTES]; /* for people, a sentence each */
};

/* A device that libfabric can open: fi_info->domain_attr->name, and fi_info->nic->bus_attr where there is one. */
struct hlg_topology_domain {
    char name[HLG_TOPOLOGY_NAME_BYTES];
    bool on_bus; /* else `bus` means nothing */
    struct hlg_bus_id bus;
};

struct hlg_topology_config {
    size_t size;     /* sizeof(struct hlg_topology_config) */
    const char *xml; /* file that hwloc wrote (lstopo FILE.xml); NULL: this machine */

    /* CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES: indices, UUIDs or their beginnings, bus ids. The latter
       says which GPUs there are at all, the former which of them a program sees and in which order. NULL: not set. */
    const char *cuda_visible;
    const char *nvidia_visible;

    /* NICs that may be used, with commas between: RDMA devices, libfabric's names or bus ids. NULL: all. */
    const char *nics;

    /* What libfabric can open, of this very machine. NIC and domain are joined by bus id; a NIC without a domain
       cannot be used, unless none has one. NULL: not asked. */
    const struct hlg_topology_domain *domains;
    uint32_t domain_count;
};

/*
 * Look at a machine.
 *
 * topology  the caller's, who frees it with hlg_topology_free(); untouched on failure
 * error     [error_bytes] a sentence on failure
 *
 * Returns 0; -HLG_EINVAL (not hwloc's XML or of a version that this hwloc cannot read, a NIC that does not exist, a
 * list that is none); -HLG_ELIMIT (more GPUs or NICs than the limits above); -HLG_EIO; -HLG_ENOMEM;
 * -HLG_EUNSUPPORTED in a library that was built without hwloc. Without a GPU or a NIC it is a success with a count of 0. Cost: some 10 ms,
 * and two megabytes.
 */
int hlg_topology_load(const struct hlg_topology_config *config, struct hlg_topology **topology,
                      char *error, size_t error_bytes);

/* Frees what hlg_topology_load() made; takes NULL. */
void hlg_topology_free(struct hlg_topology *topology);

/*
 * Find a GPU by its index, bus id, or the beginning of its UUID.
 *
 * Returns the index in topology->gpus, or -HLG_EINVAL with a sentence that says which there are.
 */
int hlg_topology_gpu_find(const struct hlg_topology *topology, const char *text, char *error,
                          size_t error_bytes);

/* Find a NIC by its name, libfabric's name, or bus id. Returns the index in topology->nics, or -HLG_EINVAL with a
 * sentence that says which there are. */
int hlg_topology_nic_find(const struct hlg_topology *topology, const char *text, char *error,
                          size_t error_bytes);

/*
 * Where the thread that drives a NIC belongs: near the NIC `nic`; near the first NIC of GPU `gpu` where that is
 * HLG_NONE; where both are, near the first GPU's first NIC, the first NIC, or the first GPU.
 *
 * why  [why_bytes] half a sentence for people, as "near mlx5_0, NUMA node 1"
 *
 * Returns 1; or 0 when nothing says where: the placement then leaves all to the kernel.
 */
int hlg_topology_place(const struct hlg_topology *topology, uint32_t gpu, uint32_t nic,
                       struct hlg_placement *placement, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
