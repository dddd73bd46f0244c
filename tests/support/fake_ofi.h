/*
 * A double of libfabric for one provider at a time: what a machine without its device cannot run. It stands behind
 * the linker's --wrap of fi_getinfo, fi_fabric and fi_version, answers as `fake.device` says, and writes down what it
 * was asked. Nothing moves: a test says what completes, fails or arrives. fi_info structures are libfabric's own.
 */
#ifndef HALAGE_TESTS_FAKE_OFI_H
#define HALAGE_TESTS_FAKE_OFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#define FAKE_INFOS_MAX   6u
#define FAKE_OPTIONS_MAX 16u
#define FAKE_WRITES_MAX  1024u
#define FAKE_QUEUE_MAX   1024u
#define FAKE_CALLS_MAX   64u

/* One fi_info that fi_getinfo gives. */
struct fake_info {
    const char *provider;
    const char *fabric;
    const char *domain;
};

/* What a provider is like. Attributes are of the providers' sources; the tests say where they are from. */
struct fake_device {
    struct fake_info infos[FAKE_INFOS_MAX]; /* the first without a name ends them */
    uint32_t version;                       /* fi_version() */
    uint64_t mr_mode; /* needed: fi_getinfo gives nothing unless all of it is offered */
    size_t mr_key_size;
    size_t cq_data_size;
    size_t tx_size;
    size_t max_msg_size;
    size_t inject_size;
    uint32_t addr_format;
    size_t address_bytes;
    size_t cq_entries_max; /* deeper queues cannot be had */
    bool cq_descriptor;    /* FI_WAIT_FD can be had */
    bool has_rdma;         /* efa: FI_OPT_EFA_USE_DEVICE_RDMA may be on */
    bool emulates_write;   /* efa: FI_OPT_EFA_EMULATED_WRITE */
    bool sets_rnr;         /* efa: FI_OPT_EFA_RNR_RETRY may be set */
    bool has_hmem;         /* FI_HMEM can be had */
    bool has_cuda;         /* efa: FI_OPT_CUDA_API_PERMITTED may be set */
};

struct fake_option {
    int number;
    size_t value;
    size_t bytes;
    bool enabled; /* it came after fi_enable */
};

/* A write that was posted. */
struct fake_write {
    uint64_t flags;
    uint64_t data;
    uint64_t address;
    uint64_t key;
    size_t bytes;
    const void *local;
    void *descriptor;
    void *context;
    fi_addr_t peer;
};

/* A read that was posted, the last one. */
struct fake_read {
    uint64_t address;
    uint64_t key;
    size_t bytes;
    void *local;
    void *descriptor;
    void *context;
    fi_addr_t peer;
};

/* Entry of the completion queue. */
struct fake_entry {
    struct fi_cq_data_entry well;
    int error; /* positive; 0: it is `well` */
};

struct fake_ofi {
    struct fake_device device;
    /* what was asked */
    uint32_t api; /* of the last fi_getinfo */
    char node[64];
    uint32_t getinfo_count;
    char universe[16];    /* environment at the last fi_getinfo: FI_UNIVERSE_SIZE ... */
    char fork_safe[3][8]; /* ... FI_EFA_FORK_SAFE, RDMAV_FORK_SAFE, FI_EFA_ENABLE_SHM_TRANSFER */
    struct fake_option options[FAKE_OPTIONS_MAX];
    uint32_t option_count;
    size_t cq_asked;   /* entries of the queue that was had */
    uint64_t cq_bound; /* flags that it was bound with */
    uint32_t cq_reads;
    struct fake_write writes[FAKE_WRITES_MAX];
    uint32_t write_count;
    struct fake_read read;
    uint32_t read_count;
    uint32_t open;            /* objects that were not closed */
    uint32_t mrs;             /* of these, registrations */
    uint32_t ep_close_mrs;    /* registrations when the last endpoint was closed */
    uint32_t ep_close_unread; /* entries of the queue then */
    char calls[FAKE_CALLS_MAX][20];
    uint32_t call_count;
    uint64_t registered_access;
    uint64_t registered_accesses; /* of all registrations together */
    int registered_iface;         /* enum fi_hmem_iface */
    int registered_device;
    uint64_t registered_flags;
    /* what is answered */
    const char *fail; /* name of the call that gives fail_rc */
    int fail_rc;
    uint32_t again_count; /* the next writes get -FI_EAGAIN ... */
    fi_addr_t again_peer; /* ... to this peer; FI_ADDR_UNSPEC: to any */
    int write_rc;         /* not 0: what a write or read gets then */
    int trywait_rc;
    struct fake_entry queue[FAKE_QUEUE_MAX];
    uint32_t queue_head;
    uint32_t queue_count;
};

extern struct fake_ofi fake;

/* Forget everything; the device is given. */
void fake_reset(const struct fake_device *device);

/* A posted write completes, or ends in `error` (positive), without its context if nameless. */
void fake_done(uint32_t write);
void fake_error(uint32_t write, int error, bool nameless);
/* Likewise the last read; error 0: it is over. */
void fake_read_ends(int error);
/* An immediate of a peer's write arrives. */
void fake_arrives(uint32_t imm);
/* A remote write without an immediate, as shm reports each. */
void fake_arrives_bare(void);

/* How often an option was set to a value before fi_enable. */
uint32_t fake_option_sets(int number, size_t value);

#endif
