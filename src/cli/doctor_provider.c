/* libfabric: its version, what it can open, and how device memory is registered. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#define VERSION(major, minor) ((uint32_t)(major) << 16 | (minor))

/* "version 1.22" or "device PROVIDER NAME", and nothing after it. Returns whether it is one of these. */
static bool take_answer(struct doctor *d, const char *line)
{
    unsigned major = 0;
    unsigned minor = 0;
    char rest = '\0';
    char provider[256];
    char name[256];
    struct hlg_ofi_device device = {.on_bus = false};
    if (sscanf(line, "version %4u.%4u %c", &major, &minor, &rest) == 2) {
        d->libfabric = VERSION(major, minor);
        d->libfabric_known = true;
        return true;
    }
    if (sscanf(line, "device %255s %255s %c", provider, name, &rest) != 2 ||
        strlen(provider) >= sizeof device.provider || strlen(name) >= sizeof device.name ||
        d->ofi_count == DOCTOR_NAMES_MAX) {
        return false;
    }
    memcpy(device.provider, provider, strlen(provider) + 1);
    memcpy(device.name, name, strlen(name) + 1);
    d->ofi[d->ofi_count++] = device;
    return true;
}

/* A tree may have libfabric's answers in libfabric.txt. */
static bool read_answers(struct doctor *d, char *error, size_t error_bytes)
{
    static char text[65536];
    unsigned number = 0;
    if (!doctor_read(d, text, sizeof text, "/libfabric.txt")) {
        return true;
    }
    for (char *line = text; line != NULL;) {
        char *next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        number++;
        if (line[strspn(line, " \t\r")] != '\0' && !take_answer(d, line)) {
            doctor_make_plain(line);
            (void)snprintf(error, error_bytes,
                           "%s/libfabric.txt: line %u: '%.60s': write 'version 1.22', or 'device "
                           "PROVIDER NAME' as 'device efa rdmap79s0-rdm', of which there are at "
                           "most %u",
                           d->root, number, line, DOCTOR_NAMES_MAX);
            return false;
        }
        line = next;
    }
    return true;
}

bool doctor_ask_libfabric(struct doctor *d, char *error, size_t error_bytes)
{
    if (d->root[0] != '\0') {
        return read_answers(d, error, error_bytes);
    }
    const struct hlg_ofi_version version = hlg_ofi_version();

    d->libfabric = VERSION(version.major, version.minor);
    d->libfabric_known = true;
    d->ofi_count = hlg_ofi_devices(NULL, d->ofi, DOCTOR_NAMES_MAX);
    return true;
}

static bool offers(const struct doctor *d, const char *provider)
{
    for (uint32_t i = 0; i < d->ofi_count; i++) {
        if (strcmp(d->ofi[i].provider, provider) == 0) {
            return true;
        }
    }
    return false;
}

/* Each provider once, in libfabric's order. */
static void tell_providers(const struct doctor *d, char *text)
{
    for (uint32_t i = 0; i < d->ofi_count; i++) {
        bool told = false;
        for (uint32_t before = 0; before < i; before++) {
            told = told || strcmp(d->ofi[before].provider, d->ofi[i].provider) == 0;
        }
        if (!told) {
            doctor_append(text, DOCTOR_TEXT, " %s", d->ofi[i].provider);
        }
    }
}

void doctor_check_libfabric(struct doctor *d)
{
    const bool connectx = d->nic_count > d->efa_count;
    const struct hlg_ofi_version efa = hlg_ofi_version_min("efa");
    struct doctor_line *line = doctor_line(d, "libfabric", DOCTOR_OK);
    if (!d->libfabric_known) {
        line->state = DOCTOR_WARN;
        doctor_append(line->found, DOCTOR_TEXT, "not asked");
        doctor_append(
            line->fix, DOCTOR_TEXT,
            "put libfabric.txt with a line 'version 1.22' into the folder of --root, and a "
            "line 'device PROVIDER NAME' for each that fi_info lists");
        return;
    }
    doctor_append(line->found, DOCTOR_TEXT, "version %u.%u, providers:", d->libfabric >> 16,
                  d->libfabric & 0xffffu);
    tell_providers(d, line->found);
    if (d->libfabric < VERSION(1, 17)) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->fix, DOCTOR_TEXT, "install libfabric 1.17 or newer");
    } else if (d->efa_count > 0 && d->libfabric < VERSION(efa.major, efa.minor)) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT,
                      "; EFA needs %u.%u, the first whose immediates consume no receive", efa.major,
                      efa.minor);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "install AWS's EFA installer and put /opt/amazon/efa/lib first in "
                      "LD_LIBRARY_PATH");
    } else if (d->efa_count > 0 && !offers(d, "efa")) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT, "; there are EFA NICs, and no efa");
        doctor_append(line->fix, DOCTOR_TEXT,
                      "use a libfabric with provider efa (AWS's EFA installer); FI_PROVIDER must "
                      "not leave it out");
    } else if (connectx && d->rdma_count > 0 && !offers(d, "verbs;ofi_rxm")) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT, "; there are ConnectX NICs, and no verbs;ofi_rxm");
        doctor_append(line->fix, DOCTOR_TEXT,
                      "install ibverbs-providers, give the NIC's interface an IP address, and load "
                      "rdma_ucm");
    } else if (d->ofi_count == 0) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT, " none");
        doctor_append(line->fix, DOCTOR_TEXT, "bring a network interface up; look at fi_info");
    }
}

/* Kernels from 5.12 on let a NIC register a dma-buf. */
static bool kernel_has_dmabuf(const struct doctor *d, char *release, size_t bytes)
{
    unsigned major = 0;
    unsigned minor = 0;
    return doctor_read(d, release, bytes, "/proc/sys/kernel/osrelease") &&
           sscanf(release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 12));
}

/* Source of the rules: NVIDIA, GPUDirect RDMA documentation ("dma-buf needs the open kernel modules, kernel 5.12 and a
 * Turing GPU or newer; else nvidia-peermem"); libfabric's FI_MR_DMABUF came with 1.20. */
void doctor_check_gpudirect(struct doctor *d)
{
    char release[128] = "unknown";
    const bool kernel = kernel_has_dmabuf(d, release, sizeof release);
    const bool library = d->libfabric_known && d->libfabric >= VERSION(1, 20);
    const bool peermem = doctor_exists(d, "/sys/module/nvidia_peermem") ||
                         doctor_exists(d, "/sys/module/nv_peer_mem");
    const bool efa_peermem = doctor_exists(d, "/sys/module/efa_nv_peermem");
    const bool all_efa = d->efa_count > 0 && d->efa_count == d->nic_count;
    if (d->gpu_count == 0 || d->nic_count + d->rdma_count == 0) {
        doctor_append(doctor_line(d, "gpudirect", DOCTOR_OK)->found, DOCTOR_TEXT,
                      "not needed without a %s", d->gpu_count == 0 ? "GPU" : "NIC");
        return;
    }
    struct doctor_line *line = doctor_line(d, "gpudirect", DOCTOR_OK);
    if (kernel && library && d->open_driver) {
        doctor_append(line->found, DOCTOR_TEXT, "by dma-buf (kernel %s)", release);
        return;
    }
    if (all_efa ? efa_peermem : peermem) {
        doctor_append(line->found, DOCTOR_TEXT, "by %s",
                      all_efa ? "efa_nv_peermem" : "nvidia_peermem");
        return;
    }
    line->state = DOCTOR_FAIL;
    doctor_append(line->found, DOCTOR_TEXT, "neither dma-buf (%s%s%s) nor %s",
                  kernel ? "" : "kernel below 5.12; ", library ? "" : "libfabric below 1.20; ",
                  d->open_driver ? "open driver" : "closed driver",
                  all_efa ? "efa_nv_peermem" : "nvidia_peermem");
    doctor_append(
        line->fix, DOCTOR_TEXT, "%s; or use %s",
        all_efa ? "modprobe efa_nv_peermem" : "modprobe nvidia-peermem",
        "NVIDIA's open kernel modules, kernel 5.12 and libfabric 1.20 or newer; else pages "
        "are staged through host memory");
}
