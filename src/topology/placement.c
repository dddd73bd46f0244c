/* Cores and memory of a thread, by Linux's calls. Memory policy has no wrapper in libc. */
#define _GNU_SOURCE /* sched_setaffinity(), syscall() */
#include <halage/placement.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS      (HLG_CORES_MAX / 64)
#define NODES_MAX  1024u /* the kernel's own limit (MAX_NUMNODES) */
#define NODE_WORDS (NODES_MAX / 64)

/* linux/mempolicy.h */
#define POLICY_DEFAULT   0
#define POLICY_PREFERRED 1
#define POLICY_BIND      2
#define FLAG_NODE        1u
#define FLAG_ADDRESS     2u

_Static_assert(sizeof(cpu_set_t) * 8 >= HLG_CORES_MAX, "a cpu_set_t holds all cores");

static int read_cores(uint64_t cores[WORDS])
{
    cpu_set_t set;
    memset(cores, 0, WORDS * sizeof *cores);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return -HLG_EIO;
    }
    for (uint32_t core = 0; core < HLG_CORES_MAX; core++) {
        if (CPU_ISSET(core, &set)) {
            cores[core / 64] |= 1ull << core % 64;
        }
    }
    return 0;
}

static int write_cores(const uint64_t cores[WORDS])
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t core = 0; core < HLG_CORES_MAX; core++) {
        if ((cores[core / 64] >> core % 64 & 1) != 0) {
            CPU_SET(core, &set);
        }
    }
    return sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : -HLG_EIO;
}

static int bind_cores(const char *list, char *error, size_t error_bytes)
{
    uint64_t wanted[WORDS];
    uint64_t before[WORDS];
    uint64_t after[WORDS];
    char may[HLG_CPULIST_BYTES] = "";
    if (hlg_cpulist_read(list, wanted) < 0) {
        (void)snprintf(error, error_bytes,
                       "cores '%.200s': write a list as 0-3,8 of cores below %u", list,
                       HLG_CORES_MAX);
        return -HLG_EINVAL;
    }
    if (read_cores(before) != 0) {
        (void)snprintf(error, error_bytes, "cores: the kernel does not say where this thread runs");
        return -HLG_EIO;
    }
    /* The kernel takes what it may of a list and is silent on the rest. */
    if (write_cores(wanted) == 0 && read_cores(after) == 0 &&
        memcmp(wanted, after, sizeof after) == 0) {
        return 0;
    }
    /* All that this process may use is what the kernel leaves of all cores. */
    memset(after, 0xff, sizeof after);
    if (write_cores(after) == 0 && read_cores(after) == 0) {
        (void)hlg_cpulist_write(after, may, sizeof may);
    }
    (void)write_cores(before);
    (void)snprintf(error, error_bytes,
                   "cores '%.200s': this process may use only %.200s; name some of these, or "
                   "give it more (cpuset of its container)",
                   list, may);
    return -HLG_EINVAL;
}

/* A refusal (seccomp of a container, a kernel without NUMA) shows when it is read back. */
static void bind_memory(int32_t numa)
{
    uint64_t nodes[NODE_WORDS] = {0};
    if (numa >= 0 && (uint32_t)numa < NODES_MAX) {
        nodes[numa / 64] |= 1ull << numa % 64;
        (void)syscall(SYS_set_mempolicy, POLICY_PREFERRED, nodes, (unsigned long)NODES_MAX);
    }
}

int hlg_placement_bind(const struct hlg_placement *placement, char *error, size_t error_bytes)
{
    HLG_ASSERT(error_bytes > 0);
    if (placement->cores[0] != '\0') {
        const int status = bind_cores(placement->cores, error, error_bytes);
        if (status != 0) {
            return status;
        }
    }
    bind_memory(placement->numa);
    return 0;
}

int hlg_placement_read(struct hlg_placement *placement)
{
    uint64_t cores[WORDS];
    uint64_t nodes[NODE_WORDS] = {0};
    int policy = POLICY_DEFAULT;
    struct hlg_placement read = {.numa = -1};
    if (read_cores(cores) != 0 || hlg_cpulist_write(cores, read.cores, sizeof read.cores) < 0) {
        return -HLG_EIO;
    }
    if (syscall(SYS_get_mempolicy, &policy, nodes, (unsigned long)NODES_MAX, NULL, 0ul) == 0 &&
        (policy == POLICY_PREFERRED || policy == POLICY_BIND)) {
        for (uint32_t node = 0; node < NODES_MAX && read.numa < 0; node++) {
            if ((nodes[node / 64] >> node % 64 & 1) != 0) {
                read.numa = (int32_t)node;
            }
        }
    }
    *placement = read;
    return 0;
}

int32_t hlg_placement_node(const void *address)
{
    int node = -1;
    const long rc = syscall(SYS_get_mempolicy, &node, NULL, 0ul, address,
                            (unsigned long)(FLAG_NODE | FLAG_ADDRESS));
    return rc == 0 ? node : -1;
}
