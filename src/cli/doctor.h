/*
 * `halage doctor`: what it looks at. Every probe reads files below one root, so that a test can make the tree that it
 * wants to see judged, and what libfabric says, which a test can write down.
 */
#ifndef HALAGE_CLI_DOCTOR_H
#define HALAGE_CLI_DOCTOR_H

#include <halage/transport/ofi.h>

#define DOCTOR_LINES_MAX 16u
#define DOCTOR_NAMES_MAX 256u
#define DOCTOR_TEXT      512u

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_WARN, /* works, not as it could */
    DOCTOR_FAIL, /* does not work, or not over RDMA, though the devices are there */
};

struct doctor_line {
    const char *name;
    enum doctor_state state;
    char found[DOCTOR_TEXT]; /* what is */
    char fix[DOCTOR_TEXT];   /* what to do; "" where nothing is */
};

/* A PCI function that matters. */
struct doctor_device {
    char busid[32];
    bool gpu; /* else a NIC made for RDMA */
    bool efa;
    int numa; /* -1: not told */
};

struct doctor {
    const char *root; /* "" for this machine, else a folder without its last slash */
    uint32_t line_count;
    struct doctor_line lines[DOCTOR_LINES_MAX];

    /* What the first probes find and the later ones go by. */
    uint32_t device_count;
    struct doctor_device devices[DOCTOR_NAMES_MAX];
    uint32_t gpu_count;
    uint32_t nic_count; /* PCI functions */
    uint32_t efa_count; /* of these */
    uint32_t rdma_count;
    char rdma[DOCTOR_NAMES_MAX][64]; /* RDMA devices of the kernel, by name */
    bool open_driver;                /* NVIDIA's open kernel modules */

    bool libfabric_known;
    uint32_t libfabric; /* FI_VERSION() of it: major << 16 | minor */
    uint32_t ofi_count;
    struct hlg_ofi_device ofi[DOCTOR_NAMES_MAX];
};

/* ---- Files, doctor_files.c ---- */

/* Files are named as printf() does, below the root; a name that is too long is one that is not there. */
#define DOCTOR_PATH(at, first) __attribute__((format(printf, at, first)))

/* Read the first `capacity` bytes of a file. Returns how many there were; 0 without a file. */
DOCTOR_PATH(4, 5)
size_t doctor_bytes(const struct doctor *d, void *bytes, size_t capacity, const char *path, ...);

/* Read the beginning of a file, without its last newline. Returns whether there is one. */
DOCTOR_PATH(4, 5)
bool doctor_read(const struct doctor *d, char *text, size_t bytes, const char *path, ...);

/* Read a number in a file, decimal or 0x…, or return `otherwise`. */
DOCTOR_PATH(3, 4) long doctor_number(const struct doctor *d, long otherwise, const char *path, ...);

DOCTOR_PATH(2, 3) bool doctor_exists(const struct doctor *d, const char *path, ...);

/* Whether this process may read and write it. */
DOCTOR_PATH(2, 3) bool doctor_may_open(const struct doctor *d, const char *path, ...);

/* Names in a folder in order, those beginning with a dot left out. Returns how many, <= capacity; 0 without a folder. */
DOCTOR_PATH(4, 5)
uint32_t doctor_list(const struct doctor *d, char names[][64], uint32_t capacity, const char *path,
                     ...);

/* The value of "key: value" or "key value" in a text of lines; false: no such line. */
bool doctor_field(const char *text, const char *key, char *value, size_t bytes);

/* Put '?' for what is no printable ASCII: texts come from files of any kind. */
void doctor_make_plain(char *text);

/* Begin a line; the caller fills in found and fix. */
struct doctor_line *doctor_line(struct doctor *d, const char *name, enum doctor_state state);

__attribute__((format(printf, 3, 4))) void doctor_append(char *text, size_t bytes,
                                                         const char *format, ...);

/* ---- Probes. They run in this order. ---- */

/* doctor_devices.c */
void doctor_find_devices(struct doctor *d); /* no line */
void doctor_check_gpus(struct doctor *d);
void doctor_check_nics(struct doctor *d);
void doctor_check_ports(struct doctor *d);
void doctor_check_gids(struct doctor *d);
void doctor_check_nodes(struct doctor *d); /* device files */

/* doctor_provider.c */
/* No line. Returns whether libfabric.txt, where there is one, says what it is to say; else `error` is a sentence. */
bool doctor_ask_libfabric(struct doctor *d, char *error, size_t error_bytes);
void doctor_check_libfabric(struct doctor *d);
void doctor_check_gpudirect(struct doctor *d);

/* doctor_system.c */
void doctor_check_memlock(struct doctor *d);
void doctor_check_numa(struct doctor *d);
void doctor_check_capabilities(struct doctor *d);
void doctor_check_governor(struct doctor *d);
void doctor_check_iommu(struct doctor *d);

/* doctor_acs.c */
void doctor_check_acs(struct doctor *d);

#endif
