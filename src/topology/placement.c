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

_Static_assert(sizeof(((struct hlg_placement_before *)0)->nodes) * 8 == NODES_MAX, "all nodes fit");

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

static int bind_cores(const char *list, const uint64_t before[WORDS], char *error,
                      size_t error_bytes)
{
    uint64_t wanted[WORDS];
    uint64_t after[WORDS];
    char may[HLG_CPULIST_BYTES] = "";
    if (hlg_cpulist_read(list, wanted) < 0) {
        (void)snprintf(error, error_bytes,
                       "cores '%.200s': write a list as 0-3,8 of cores below %u", list,
                       HLG_CORES_MAX);
        return -HLG_EINVAL;
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

int hlg_placement_bind(const struct hlg_placement *placement, struct hlg_placement_before *before,
                       char *error, size_t error_bytes)
{
    struct hlg_placement_before was = {.policy = -1};
    HLG_ASSERT(error_bytes > 0);
    if (placement->cores[0] != '\0') {
        if (read_cores(was.cores) != 0) {
            (void)snprintf(error, error_bytes,
                           "cores: the kernel does not say where this thread runs");
            return -HLG_EIO;
        }
        const int status = bind_cores(placement->cores, was.cores, error, error_bytes);
        if (status != 0) {
            return status;
        }
    }
    if (placement->numa >= 0 && syscall(SYS_get_mempolicy, &was.policy, was.nodes,
                                        (unsigned long)NODES_MAX, NULL, 0ul) != 0) {
        was.policy = -1;
    }
    bind_memory(placement->numa);
    if (before != NULL) {
        *before = was;
    }
    return 0;
}

void hlg_placement_restore(const struct hlg_placement_before *before)
{
    static const uint64_t none[WORDS];
    if (memcmp(before->cores, none, sizeof none) != 0) {
        (void)write_cores(before->cores);
    }
    /* Policies without nodes (default, local) want no mask at all. */
    const bool bare = memcmp(before->nodes, none, sizeof before->nodes) == 0;
    if (before->policy >= 0) {
        (void)syscall(SYS_set_mempolicy, before->policy, bare ? NULL : before->nodes,
                      bare ? 0ul : (unsigned long)NODES_MAX);
    }
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
