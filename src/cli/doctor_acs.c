/* PCI access control (ACS): bridges that send what a GPU and a NIC write to each other up through the CPU's root complex,
 * though one switch holds both. Read off configuration space: PCI Express Base Specification 5.0, 7.5.1.3 (bridges),
 * 7.6.3 (extended capabilities), 7.7.8 (ACS). That it must be off: NVIDIA, NCCL documentation, "Troubleshooting", "PCI
 * Access Control Services". */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#define CLASS_BRIDGE 0x0604
#define CONFIG_BYTES \
    4096u /* all of it; a conventional device has 256, and who is not root may read 64 */
#define PLAIN_BYTES 256u

#define SECONDARY_BUS     0x19u
#define SUBORDINATE_BUS   0x1au
#define CAPABILITY_ACS    0x000du
#define CAPABILITIES_MAX  ((CONFIG_BYTES - PLAIN_BYTES) / 8)
#define ACS_CONTROL       6u
#define ACS_REDIRECT_BITS 0x0cu /* requests and completions between peers go upstream */

enum redirect {
    REDIRECT_NO,
    REDIRECT_YES,
    REDIRECT_HIDDEN, /* this process may not read it */
};

struct bridge {
    char busid[32];
    unsigned domain;
    unsigned first; /* buses below it */
    unsigned last;
    enum redirect redirect;
    bool between; /* a GPU and a NIC of one switch */
};

struct bridges {
    uint32_t count;
    struct bridge bridges[DOCTOR_NAMES_MAX];
};

static uint32_t word_at(const uint8_t *config, uint32_t at)
{
    return config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
           (uint32_t)config[at + 3] << 24;
}

static enum redirect read_redirect(const uint8_t *config, size_t bytes)
{
    uint32_t at = PLAIN_BYTES;
    if (bytes < CONFIG_BYTES) {
        return bytes < PLAIN_BYTES ? REDIRECT_HIDDEN : REDIRECT_NO;
    }
    for (uint32_t i = 0; i < CAPABILITIES_MAX && at >= PLAIN_BYTES && at <= CONFIG_BYTES - 8; i++) {
        const uint32_t header = word_at(config, at);
        if ((header & 0xffffu) == CAPABILITY_ACS) {
            const bool on = (config[at + ACS_CONTROL] & ACS_REDIRECT_BITS) != 0;
            return on ? REDIRECT_YES : REDIRECT_NO;
        }
        at = header >> 20 & 0xffcu; /* 0: the last */
    }
    return REDIRECT_NO;
}

static void find_bridges(const struct doctor *d, struct bridges *all)
{
    static char names[4096][64];
    static uint8_t config[CONFIG_BYTES];
    const uint32_t count = doctor_list(d, names, 4096, "/sys/bus/pci/devices");
    for (uint32_t i = 0; i < count && all->count < DOCTOR_NAMES_MAX; i++) {
        struct bridge *bridge = &all->bridges[all->count];
        unsigned domain = 0;
        if (doctor_number(d, 0, "/sys/bus/pci/devices/%s/class", names[i]) >> 8 != CLASS_BRIDGE ||
            sscanf(names[i], "%8x:", &domain) != 1) {
            continue;
        }
        const size_t bytes =
            doctor_bytes(d, config, sizeof config, "/sys/bus/pci/devices/%s/config", names[i]);
        if (bytes <= SUBORDINATE_BUS || config[SECONDARY_BUS] == 0) {
            continue; /* nobody knows what it is above of, or nothing */
        }
        *bridge = (struct bridge){.domain = domain,
                                  .first = config[SECONDARY_BUS],
                                  .last = config[SUBORDINATE_BUS],
                                  .redirect = read_redirect(config, bytes)};
        (void)snprintf(bridge->busid, sizeof bridge->busid, "%.31s", names[i]);
        all->count++;
    }
}

static bool is_above(const struct bridge *bridge, const struct doctor_device *device)
{
    unsigned domain = 0;
    unsigned bus = 0;
    return sscanf(device->busid, "%8x:%2x:", &domain, &bus) == 2 && domain == bridge->domain &&
           bus >= bridge->first && bus <= bridge->last;
}

/* Mark the bridges on the way between two devices, if there is one that does not leave their switch. */
static void mark(struct bridges *all, const struct doctor_device *gpu,
                 const struct doctor_device *nic)
{
    bool together = false;
    for (uint32_t i = 0; i < all->count && !together; i++) {
        together = is_above(&all->bridges[i], gpu) && is_above(&all->bridges[i], nic);
    }
    for (uint32_t i = 0; i < all->count && together; i++) {
        struct bridge *bridge = &all->bridges[i];
        bridge->between = bridge->between || is_above(bridge, gpu) != is_above(bridge, nic);
    }
}

void doctor_check_acs(struct doctor *d)
{
    static struct bridges all;
    char names[DOCTOR_TEXT] = "";
    uint32_t counts[3] = {0}; /* by enum redirect */
    find_bridges(d, &all);
    for (uint32_t a = 0; a < d->device_count; a++) {
        for (uint32_t b = 0; b < d->device_count && d->devices[a].gpu; b++) {
            if (!d->devices[b].gpu) {
                mark(&all, &d->devices[a], &d->devices[b]);
            }
        }
    }
    for (uint32_t i = 0; i < all.count; i++) {
        const struct bridge *bridge = &all.bridges[i];
        if (bridge->between) {
            counts[bridge->redirect]++;
            if (bridge->redirect == REDIRECT_YES) {
                doctor_append(names, sizeof names, " %s", bridge->busid);
            }
        }
    }
    const uint32_t between = counts[REDIRECT_NO] + counts[REDIRECT_YES] + counts[REDIRECT_HIDDEN];
    struct doctor_line *line = doctor_line(d, "acs", DOCTOR_OK);
    if (between == 0) {
        doctor_append(line->found, DOCTOR_TEXT, "no switch with a GPU and a NIC below it");
    } else if (counts[REDIRECT_YES] > 0) {
        line->state = DOCTOR_WARN;
        doctor_append(line->found, DOCTOR_TEXT,
                      "on for %u of %u bridges between GPU and NIC, bytes take the way through the "
                      "CPU, or fail:%.300s",
                      counts[REDIRECT_YES], between, names);
        doctor_append(line->fix, DOCTOR_TEXT,
                      "without virtual machines turn ACS off in the firmware, or after each boot: "
                      "setpci -s BRIDGE ECAP_ACS+6.w=0000");
    } else if (counts[REDIRECT_HIDDEN] > 0) {
        line->state = DOCTOR_WARN;
        doctor_append(line->found, DOCTOR_TEXT,
                      "not known of %u of %u bridges between GPU and NIC: only root may read it",
                      counts[REDIRECT_HIDDEN], between);
        doctor_append(line->fix, DOCTOR_TEXT, "run halage doctor as root, outside of a container");
    } else {
        doctor_append(line->found, DOCTOR_TEXT, "off for all %u bridges between GPU and NIC",
                      between);
    }
}
