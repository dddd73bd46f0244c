/*
 * Where a thread runs and from which NUMA node its memory comes. Linux's own calls, no library.
 *
 * A NIC's queues lie where the thread that opens it takes its memory from, and stay there. So a thread is placed
 * first, and opens the NIC then.
 */
#ifndef HALAGE_PLACEMENT_H
#define HALAGE_PLACEMENT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fits every list of 1024 cores that a kernel prints for a real machine; longer ones are refused. */
#define HLG_CPULIST_BYTES 2048u

/* Cores are numbered as the kernel does and limited to this. */
#define HLG_CORES_MAX 1024u

struct hlg_placement {
    char cores[HLG_CPULIST_BYTES]; /* cpulist, as "0-3,8"; "": wherever the kernel likes */
    int32_t numa; /* node, as the kernel numbers it, that memory comes from; -1: the
                                      kernel's choice */
};

/*
 * Read a list of cores, as "0-3,8,10-11": increasing or not, overlaps allowed.
 *
 * cores  [HLG_CORES_MAX / 64], bit c % 64 of word c / 64 is core c; written on success only
 *
 * Returns how many there are, > 0, or -HLG_EINVAL when it is no such list, is empty, or names a core from
 * HLG_CORES_MAX on.
 */
int hlg_cpulist_read(const char *text, uint64_t cores[HLG_CORES_MAX / 64]);

/* Write such a list, ranges joined. Returns its length, or -HLG_EINVAL when it does not fit. */
int hlg_cpulist_write(const uint64_t cores[HLG_CORES_MAX / 64], char *text, size_t bytes);

/* How a thread was placed, to put it back so. */
struct hlg_placement_before {
    uint64_t cores[HLG_CORES_MAX / 64]; /* all 0: were left as they were */
    uint64_t nodes[16];
    int policy; /* of memory, Linux's; -1: was left as it was */
};

/*
 * Place the calling thread, and the threads that it starts later.
 *
 * placement  cores "" and numa -1 leave that part as it is
 * before     what hlg_placement_restore() is to bring back; written on success only; may be NULL
 * error      [error_bytes] a sentence on failure; untouched on success
 *
 * Memory is preferred to come from the node, not bound to it: where the node is full, others give. What counts is
 * memory touched from now on. A kernel or container that refuses to set the memory's node is no failure: read back
 * with hlg_placement_read() and say what it is.
 *
 * Returns 0; -HLG_EINVAL when the list is none, or names cores that this process may not use (the sentence says
 * which it may; nothing is changed then); -HLG_EIO.
 */
int hlg_placement_bind(const struct hlg_placement *placement, struct hlg_placement_before *before,
                       char *error, size_t error_bytes);

/* Put the calling thread back. Threads that it started meanwhile, and memory that was touched, stay where they are. */
void hlg_placement_restore(const struct hlg_placement_before *before);

/* Read how the calling thread is placed: its cores, and the node that its memory is to come from. Returns 0 or
 * -HLG_EIO. */
int hlg_placement_read(struct hlg_placement *placement);

/* The NUMA node on which the page of an address lies, or -1 where that is not known. Touch it first. */
int32_t hlg_placement_node(const void *address);

#ifdef __cplusplus
}
#endif

#endif
