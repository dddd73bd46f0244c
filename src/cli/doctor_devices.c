/* GPUs, NICs, their ports and device files. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define VENDOR_NVIDIA   0x10del
#define VENDOR_AMAZON   0x1d0fl
#define VENDOR_MELLANOX 0x15b3l

static long pci_number(const struct doctor *d, const char *busid, const char *file, long otherwise)
{
    return doctor_number(d, otherwise, "/sys/bus/pci/devices/%s/%s", busid, file);
}

void doctor_find_devices(struct doctor *d)
{
    static char names[4096][64];
    const uint32_t count = doctor_list(d, names, 4096, "/sys/bus/pci/devices");
    for (uint32_t i = 0; i < count && d->device_count < DOCTOR_NAMES_MAX; i++) {
        const long vendor = pci_number(d, names[i], "vendor", 0);
        const long device = pci_number(d, names[i], "device", 0);
        const long class = pci_number(d, names[i], "class", 0) >> 8;
        const bool gpu = vendor == VENDOR_NVIDIA && class >> 8 == 0x03;
        const bool efa = vendor == VENDOR_AMAZON && (device & 0xfff0) == 0xefa0;
        const bool mellanox = vendor == VENDOR_MELLANOX && class >> 8 == 0x02;
        if (!gpu && !efa && !mellanox) {
            continue;
        }
        struct doctor_device *found = &d->devices[d->device_count++];
        (void)snprintf(found->busid, sizeof found->busid, "%.31s", names[i]);
        found->gpu = gpu;
        found->efa = efa;
        found->numa = (int)pci_number(d, names[i], "numa_node", -1);
        d->gpu_count += gpu;
        d->nic_count += !gpu;
        d->efa_count += efa;
    }
    d->rdma_count = doctor_list(d, d->rdma, DOCTOR_NAMES_MAX, "/sys/class/infiniband");
}

void doctor_check_gpus(struct doctor *d)
{
    char version[512];
    char number[64] = "";
    const bool driver = doctor_read(d, version, sizeof version, "/proc/driver/nvidia/version");
    if (d->gpu_count == 0) {
        struct doctor_line *line = doctor_line(d, "gpus", DOCTOR_WARN);
        doctor_append(line->found, DOCTOR_TEXT, "no NVIDIA GPU: pages stay in host memory");
        doctor_append(
            line->fix, DOCTOR_TEXT,
            "on a machine that has one, give it to the container (--gpus all), or look at "
            "lspci -d 10de:");
        return;
    }
    struct doctor_line *line = doctor_line(d, "gpus", DOCTOR_OK);
    doctor_append(line->found, DOCTOR_TEXT, "%u", d->gpu_count);
    if (!driver) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT, ", and no driver of NVIDIA is loaded");
        doctor_append(line->fix, DOCTOR_TEXT, "install NVIDIA's driver and run modprobe nvidia");
        return;
    }
    d->open_driver = strstr(version, "Open Kernel Module") != NULL;
    for (const char *word = version; *word != '\0' && number[0] == '\0'; word++) {
        unsigned major = 0;
        unsigned minor = 0;
        if (strchr(" ", word[0]) != NULL && sscanf(word + 1, "%3u.%u", &major, &minor) == 2) {
            (void)snprintf(number, sizeof number, "%.*s", (int)strcspn(word + 1, " \n"), word + 1);
        }
    }
    doctor_append(line->found, DOCTOR_TEXT, ", driver %s, %s kernel modules", number,
                  d->open_driver ? "open" : "closed");
    if (!doctor_may_open(d, "/dev/nvidiactl") || !doctor_may_open(d, "/dev/nvidia-uvm")) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT,
                      ", but /dev/nvidiactl or /dev/nvidia-uvm cannot be opened");
        doctor_append(line->fix, DOCTOR_TEXT,
                      "in a container: --gpus all (NVIDIA Container Toolkit); else run "
                      "nvidia-modprobe -u -c 0");
    }
}

void doctor_check_nics(struct doctor *d)
{
    const uint32_t others = d->nic_count - d->efa_count;
    if (d->nic_count == 0 && d->rdma_count == 0) {
        struct doctor_line *line = doctor_line(d, "nics", DOCTOR_WARN);
        doctor_append(line->found, DOCTOR_TEXT, "no RDMA NIC: pages go over TCP");
        doctor_append(
            line->fix, DOCTOR_TEXT,
            "on EC2, start the instance with EFA interfaces; else look at lspci -d 15b3:");
        return;
    }
    struct doctor_line *line = doctor_line(d, "nics", DOCTOR_OK);
    if (d->rdma_count == 0) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT,
                      "%u EFA and %u ConnectX on the bus, and no RDMA device", d->efa_count,
                      others);
        doctor_append(line->fix, DOCTOR_TEXT, "%s",
                      d->efa_count > 0 ? "modprobe efa (of AWS's EFA installer)"
                                       : "modprobe mlx5_ib (or install DOCA-OFED)");
        return;
    }
    doctor_append(line->found, DOCTOR_TEXT, "%u:", d->rdma_count);
    for (uint32_t i = 0; i < d->rdma_count && i < 32; i++) {
        doctor_append(line->found, DOCTOR_TEXT, " %s", d->rdma[i]);
    }
    doctor_append(line->found, DOCTOR_TEXT, "%s", d->rdma_count > 32 ? " ..." : "");
}

static bool port_text(const struct doctor *d, const char *rdma, const char *port, const char *file,
                      char *text, size_t bytes)
{
    return doctor_read(d, text, bytes, "/sys/class/infiniband/%s/ports/%s/%s", rdma, port, file);
}

/* Ports of a device by name, at most 8. */
static uint32_t list_ports(const struct doctor *d, const char *rdma, char ports[8][64])
{
    return doctor_list(d, ports, 8, "/sys/class/infiniband/%s/ports", rdma);
}

void doctor_check_ports(struct doctor *d)
{
    char down[DOCTOR_TEXT] = "";
    uint32_t active = 0;
    uint32_t total = 0;
    for (uint32_t i = 0; i < d->rdma_count; i++) {
        char ports[8][64];
        const uint32_t count = list_ports(d, d->rdma[i], ports);
        for (uint32_t port = 0; port < count; port++) {
            char state[64] = "";
            (void)port_text(d, d->rdma[i], ports[port], "state", state, sizeof state);
            total++;
            if (strncmp(state, "4:", 2) == 0) {
                active++;
            } else {
                doctor_append(down, sizeof down, " %s/%s (%s)", d->rdma[i], ports[port], state);
            }
        }
    }
    if (d->rdma_count == 0) {
        doctor_append(doctor_line(d, "ports", DOCTOR_OK)->found, DOCTOR_TEXT, "none to look at");
        return;
    }
    struct doctor_line *line = doctor_line(d, "ports",
                                           active == total && total > 0 ? DOCTOR_OK
                                           : active > 0                 ? DOCTOR_WARN
                                                                        : DOCTOR_FAIL);
    doctor_append(line->found, DOCTOR_TEXT, "%u of %u active", active, total);
    if (line->state != DOCTOR_OK) {
        doctor_append(line->found, DOCTOR_TEXT, "; not:%.300s", down);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "ip link set the interface up; look at cable and switch; on InfiniBand INIT "
                      "means that no subnet manager runs");
    }
}

/* The best GID of a RoCE port: 2 routable and v2, 1 only local to the link or only v1, 0 none. */
static int rate_gids(const struct doctor *d, const char *rdma, const char *port)
{
    int best = 0;
    for (uint32_t index = 0; index < 256; index++) {
        char file[64];
        char gid[64] = "";
        char type[64] = "";
        (void)snprintf(file, sizeof file, "gids/%u", index);
        if (!port_text(d, rdma, port, file, gid, sizeof gid)) {
            break;
        }
        (void)snprintf(file, sizeof file, "gid_attrs/types/%u", index);
        (void)port_text(d, rdma, port, file, type, sizeof type);
        if (strspn(gid, "0:") == strlen(gid)) {
            continue; /* an empty place of the table */
        }
        const bool local = strncasecmp(gid, "fe80:", 5) == 0;
        const bool routable = !local && strcmp(type, "RoCE v2") == 0;
        best = routable ? 2 : best > 1 ? best : 1;
    }
    return best;
}

void doctor_check_gids(struct doctor *d)
{
    char bad[DOCTOR_TEXT] = "";
    uint32_t roce = 0;
    uint32_t good = 0;
    for (uint32_t i = 0; i < d->rdma_count; i++) {
        char ports[8][64];
        const uint32_t count = list_ports(d, d->rdma[i], ports);
        for (uint32_t port = 0; port < count; port++) {
            char layer[64] = "";
            (void)port_text(d, d->rdma[i], ports[port], "link_layer", layer, sizeof layer);
            if (strcmp(layer, "Ethernet") != 0) {
                continue; /* InfiniBand has its subnet manager, EFA needs no address of this kind */
            }
            roce++;
            const int rate = rate_gids(d, d->rdma[i], ports[port]);
            good += rate == 2;
            if (rate < 2) {
                doctor_append(bad, sizeof bad, " %s/%s", d->rdma[i], ports[port]);
            }
        }
    }
    if (roce == 0) {
        doctor_append(doctor_line(d, "gids", DOCTOR_OK)->found, DOCTOR_TEXT,
                      "no RoCE port, so none is needed");
        return;
    }
    struct doctor_line *line = doctor_line(d, "gids",
                                           good == roce ? DOCTOR_OK
                                           : good > 0   ? DOCTOR_WARN
                                                        : DOCTOR_FAIL);
    doctor_append(line->found, DOCTOR_TEXT, "%u of %u RoCE ports have a RoCE v2 GID that routes",
                  good, roce);
    if (good < roce) {
        doctor_append(line->found, DOCTOR_TEXT, "; not:%.300s", bad);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "give the port's interface an IP address (ip address add); a link-local GID "
                      "reaches no further than its switch");
    }
}

void doctor_check_nodes(struct doctor *d)
{
    char names[DOCTOR_NAMES_MAX][64];
    uint32_t verbs = 0;
    uint32_t open = 0;
    const bool connects = d->rdma_count > 0 && d->efa_count < d->nic_count;
    const uint32_t count = doctor_list(d, names, DOCTOR_NAMES_MAX, "/dev/infiniband");
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(names[i], "uverbs", 6) == 0) {
            verbs++;
            open += doctor_may_open(d, "/dev/infiniband/%s", names[i]);
        }
    }
    if (d->rdma_count == 0) {
        doctor_append(doctor_line(d, "device-files", DOCTOR_OK)->found, DOCTOR_TEXT,
                      "no RDMA device, so none is needed");
        return;
    }
    struct doctor_line *line = doctor_line(d, "device-files", DOCTOR_OK);
    doctor_append(line->found, DOCTOR_TEXT, "%u of %u /dev/infiniband/uverbs* can be opened", open,
                  verbs);
    if (open == 0) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->fix, DOCTOR_TEXT,
                      "in a container: --device /dev/infiniband (Kubernetes: the device plugin of "
                      "the NIC); else modprobe ib_uverbs, and look at the files' owner");
    } else if (connects && !doctor_may_open(d, "/dev/infiniband/rdma_cm")) {
        line->state = DOCTOR_FAIL;
        doctor_append(line->found, DOCTOR_TEXT, "; /dev/infiniband/rdma_cm cannot");
        doctor_append(line->fix, DOCTOR_TEXT,
                      "modprobe rdma_ucm; in a container: --device /dev/infiniband/rdma_cm. "
                      "verbs;ofi_rxm connects by it");
    } else if (open < d->rdma_count) {
        line->state = DOCTOR_WARN;
        doctor_append(line->found, DOCTOR_TEXT, "; the RDMA devices are %u", d->rdma_count);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "give the container all of /dev/infiniband, or name those it has by --nics");
    }
}
