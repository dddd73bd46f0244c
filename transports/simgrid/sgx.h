/*
 * SimGrid as plain C sees it: flows between NICs, and the engine's clock in seconds. All of it is
 * callbacks of SimGrid's maestro; there are no actors. One engine a process. SimGrid's exceptions end
 * here: a function that can fail returns -1 and leaves a sentence in sgx_error().
 */
#ifndef HALAGE_SIMGRID_SGX_H
#define HALAGE_SIMGRID_SGX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sgx_nic {
    double bandwidth; /* bytes/s, each way */
    uint32_t group;   /* its uplink; never less than that of the NIC before */
};

struct sgx_platform {
    const struct sgx_nic *nics; /* [nic_count] */
    uint32_t nic_count;
    double group_bandwidth; /* bytes/s of an uplink, each way; 0: a star without uplinks */
};

/*
 * Take the engine. The first call builds the platform; later ones, after sgx_close, must name an equal
 * one, whose bandwidths are restored, and the clock goes on. Returns 0 or -1.
 */
int sgx_open(const struct sgx_platform *platform);
void sgx_close(void);

/* Start flow number `flow`, which must be free. Low numbers take less memory. Returns 0 or -1. */
int sgx_flow(uint32_t flow, uint32_t source, uint32_t target, double bytes);

/* End a flow; it is free, and never reported. Returns 0 or -1. */
int sgx_cancel(uint32_t flow);

/* Change the bandwidth of a NIC, each way, also for flows under way. Returns 0 or -1. */
int sgx_set_bandwidth(uint32_t nic, double bandwidth);

/* Bring the clock to `when`, unless it is there. Flows that end on the way are reported by the next run.
 * Returns 0 or -1. */
int sgx_sync(double when);

/* Run until `when` (negative: no limit) or until flows end. Returns how many ended, or -1. */
int sgx_run(double when);

/* When the next flow would end, if nothing changes; a run may find none all the same. Or -1. */
double sgx_next(void);

/* The index-th of the flows that ended in the last run, in the engine's order; it is free. */
uint32_t sgx_ended(uint32_t index);

double sgx_now(void);

/* What went wrong last, one line. */
const char *sgx_error(void);

#ifdef __cplusplus
}
#endif

#endif
