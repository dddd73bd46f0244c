/* Limits, NUMA, capabilities, clocks. */
#include "doctor.h"

#include <halage/placement.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_BYTES 8192u

/* linux/capability.h */
#define CAP_BIT_IPC_LOCK   14u
#define CAP_BIT_SYS_PTRACE 19u
#define CAP_BIT_SYS_NICE   23u

static uint64_t read_capabilities(const struct doctor *d)
{
    char status[STATUS_BYTES];
    char value[64] = "";
    if (!doctor_read(d, status, sizeof status, "/proc/self/status") ||
        !doctor_field(status, "CapEff", value, sizeof value)) {
        return 0;
    }
    return strtoull(value, NULL, 16);
}

static bool has_capability(uint64_t capabilities, unsigned bit)
{
    return (capabilities >> bit & 1) != 0;
}

void doctor_check_memlock(struct doctor *d)
{
    char limits[4096];
    char value[128] = "";
    struct doctor_line *line = doctor_line(d, "memlock", DOCTOR_OK);
    const bool known = doctor_read(d, limits, sizeof limits, "/proc/self/limits") &&
                       doctor_field(limits, "Max locked memory", value, sizeof value);
    if (has_capability(read_capabilities(d), CAP_BIT_IPC_LOCK)) {
        doctor_append(line->found, DOCTOR_TEXT, "no limit (CAP_IPC_LOCK)");
        return;
    }
    if (known && strncmp(value, "unlimited", 9) == 0) {
        doctor_append(line->found, DOCTOR_TEXT, "unlimited");
        return;
    }
    const uint64_t kib = strtoull(value, NULL, 10) / 1024; /* flooring: for people */
    if (known) {
        doctor_append(line->found, DOCTOR_TEXT, "%" PRIu64 " KiB", kib);
    } else {
        doctor_append(line->found, DOCTOR_TEXT, "not known: /proc/self/limits cannot be read");
    }
    if (d->nic_count + d->rdma_count == 0) {
        doctor_append(line->found, DOCTOR_TEXT, "; TCP locks none");
        return;
    }
    line->state = DOCTOR_FAIL;
    doctor_append(
        line->fix, DOCTOR_TEXT,
        "registered pages are locked: ulimit -l unlimited; container: --ulimit memlock=-1 "
        "or --cap-add IPC_LOCK; systemd: LimitMEMLOCK=infinity");
}

/* Whether this process may run on a core of the node. */
static bool may_use_node(const struct doctor *d, int node)
{
    char status[STATUS_BYTES];
    char value[HLG_CPULIST_BYTES];
    char list[HLG_CPULIST_BYTES];
    uint64_t allowed[HLG_CORES_MAX / 64];
    uint64_t near[HLG_CORES_MAX / 64];
    if (!doctor_read(d, status, sizeof status, "/proc/self/status") ||
        !doctor_field(status, "Cpus_allowed_list", value, sizeof value) ||
        !doctor_read(d, list, sizeof list, "/sys/devices/system/node/node%d/cpulist", node) ||
        hlg_cpulist_read(value, allowed) < 0 || hlg_cpulist_read(list, near) < 0) {
        return true; /* not known: no reason to complain */
    }
    for (size_t i = 0; i < HLG_CORES_MAX / 64; i++) {
        if ((allowed[i] & near[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* Whether a NIC is at the node. */
static bool has_nic(const struct doctor *d, int node)
{
    for (uint32_t i = 0; i < d->device_count; i++) {
        if (!d->devices[i].gpu && d->devices[i].numa == node) {
            return true;
        }
    }
    return false;
}

void doctor_check_numa(struct doctor *d)
{
    static char names[1024][64];
    uint32_t nodes = 0;
    const uint32_t count = doctor_list(d, names, 1024, "/sys/devices/system/node");
    for (uint32_t i = 0; i < count; i++) {
        nodes += strncmp(names[i], "node", 4) == 0 && strspn(names[i] + 4, "0123456789") > 0;
    }
    struct doctor_line *line = doctor_line(d, "numa", DOCTOR_OK);
    doctor_append(line->found, DOCTOR_TEXT, "%u node%s", nodes, nodes == 1 ? "" : "s");
    for (uint32_t i = 0; i < d->device_count && nodes > 1 && line->state == DOCTOR_OK; i++) {
        const struct doctor_device *device = &d->devices[i];
        const char *kind = device->gpu ? "GPU" : "NIC";
        if (device->numa < 0) {
            doctor_append(line->found, DOCTOR_TEXT, "; %s %s is at none of them", kind,
                          device->busid);
            doctor_append(line->fix, DOCTOR_TEXT,
                          "the firmware, or the host of the virtual machine, has to tell (vNUMA); "
                          "until then name cores by --cores");
        } else if (!may_use_node(d, device->numa)) {
            doctor_append(line->found, DOCTOR_TEXT,
                          "; %s %s is at node %d, of which this process may use no core", kind,
                          device->busid, device->numa);
            doctor_append(line->fix, DOCTOR_TEXT,
                          "give the container cores of that node (--cpuset-cpus; Kubernetes: "
                          "topology manager)");
        } else if (device->gpu && d->nic_count > 0 && !has_nic(d, device->numa)) {
            doctor_append(line->found, DOCTOR_TEXT, "; GPU %s is at node %d, which has no NIC",
                          device->busid, device->numa);
            doctor_append(line->fix, DOCTOR_TEXT,
                          "its pages cross the sockets: prefer other GPUs, or a NIC in a slot of "
                          "that node");
        } else {
            continue;
        }
        line->state = DOCTOR_WARN;
    }
    if (line->state == DOCTOR_OK && nodes > 1 && d->device_count > 0) {
        doctor_append(line->found, DOCTOR_TEXT, "; every device tells its own, and may be near");
    }
}

static bool is_container(const struct doctor *d)
{
    char cgroup[4096] = "";
    return doctor_exists(d, "/.dockerenv") || doctor_exists(d, "/run/.containerenv") ||
           (doctor_read(d, cgroup, sizeof cgroup, "/proc/1/cgroup") &&
            (strstr(cgroup, "docker") != NULL || strstr(cgroup, "kubepods") != NULL ||
             strstr(cgroup, "containerd") != NULL));
}

void doctor_check_capabilities(struct doctor *d)
{
    static const struct {
        const char *name;
        unsigned bit;
        const char *use;
    } wanted[] = {
        {"IPC_LOCK", CAP_BIT_IPC_LOCK, "locks memory beyond the limit"},
        {"SYS_NICE", CAP_BIT_SYS_NICE, "places memory on the NIC's node"},
        {"SYS_PTRACE", CAP_BIT_SYS_PTRACE, "lets provider shm copy between processes"},
    };
    const uint64_t has = read_capabilities(d);
    struct doctor_line *line = doctor_line(d, "capabilities", DOCTOR_OK);
    if (!is_container(d)) {
        doctor_append(line->found, DOCTOR_TEXT, "not in a container");
        return;
    }
    doctor_append(line->found, DOCTOR_TEXT, "in a container");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (!has_capability(has, wanted[i].bit)) {
            line->state = DOCTOR_WARN;
            doctor_append(line->found, DOCTOR_TEXT, ", without %s (%s)", wanted[i].name,
                          wanted[i].use);
            doctor_append(line->fix, DOCTOR_TEXT, "%s--cap-add %s", line->fix[0] == '\0' ? "" : " ",
                          wanted[i].name);
        }
    }
    if (line->state == DOCTOR_OK) {
        doctor_append(line->found, DOCTOR_TEXT, " with all that are of use");
    }
}

void doctor_check_governor(struct doctor *d)
{
    static char names[4096][64];
    char other[64] = "";
    uint32_t seen = 0;
    uint32_t slow = 0;
    const uint32_t count = doctor_list(d, names, 4096, "/sys/devices/system/cpu");
    for (uint32_t i = 0; i < count; i++) {
        char governor[64] = "";
        if (!doctor_read(d, governor, sizeof governor,
                         "/sys/devices/system/cpu/%s/cpufreq/scaling_governor", names[i])) {
            continue;
        }
        seen++;
        if (strcmp(governor, "performance") != 0) {
            slow++;
            (void)snprintf(other, sizeof other, "%s", governor);
        }
    }
    struct doctor_line *line = doctor_line(d, "governor", slow > 0 ? DOCTOR_WARN : DOCTOR_OK);
    if (seen == 0) {
        doctor_append(line->found, DOCTOR_TEXT, "not this system's to choose");
    } else if (slow == 0) {
        doctor_append(line->found, DOCTOR_TEXT, "performance on all %u cores", seen);
    } else {
        doctor_append(line->found, DOCTOR_TEXT, "%s on %u of %u cores", other, slow, seen);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "cpupower frequency-set -g performance: a core that sleeps wakes late");
    }
}

void doctor_check_iommu(struct doctor *d)
{
    char units[4][64];
    char words[4096] = "";
    const bool on = doctor_list(d, units, 4, "/sys/class/iommu") > 0;
    (void)doctor_read(d, words, sizeof words, "/proc/cmdline");
    const bool passes =
        strstr(words, "iommu=pt") != NULL || strstr(words, "iommu.passthrough=1") != NULL;
    const bool needed = d->gpu_count > 0 && d->nic_count > 0;
    struct doctor_line *line =
        doctor_line(d, "iommu", on && !passes && needed ? DOCTOR_WARN : DOCTOR_OK);
    doctor_append(line->found, DOCTOR_TEXT, "%s",
                  !on      ? "off"
                  : passes ? "passes through"
                           : "translates");
    if (line->state == DOCTOR_WARN) {
        doctor_append(line->found, DOCTOR_TEXT,
                      ": bytes between NIC and GPU take the way through the CPU, or fail");
        doctor_append(line->fix, DOCTOR_TEXT,
                      "boot with iommu=pt (and intel_iommu=on or amd_iommu=on as it is)");
    }
}
