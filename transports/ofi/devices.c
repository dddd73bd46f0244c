/* Which devices there are, and which of them are to be used. */
#define _GNU_SOURCE
#include "devices.h"

#include <rdma/fabric.h>
#include <stdio.h>
#include <string.h>

/* Where the device is on the PCI bus; fi_info->nic is NULL for TCP and shared memory. */
static bool bus_of(const struct fi_info *info, struct hlg_ofi_device *device)
{
    if (info->nic == NULL || info->nic->bus_attr == NULL ||
        info->nic->bus_attr->bus_type != FI_BUS_PCI) {
        return false;
    }
    device->domain = info->nic->bus_attr->attr.pci.domain_id;
    device->bus = info->nic->bus_attr->attr.pci.bus_id;
    device->slot = info->nic->bus_attr->attr.pci.device_id;
    device->function = info->nic->bus_attr->attr.pci.function_id;
    return true;
}

void ofi_device_tell(const struct fi_info *info, struct hlg_ofi_device *device)
{
    *device = (struct hlg_ofi_device){.on_bus = false};
    device->on_bus = bus_of(info, device);
    (void)snprintf(device->name, sizeof device->name, "%s", info->domain_attr->name);
    (void)snprintf(device->provider, sizeof device->provider, "%s", info->fabric_attr->prov_name);
}

uint32_t hlg_ofi_devices(const char *node, struct hlg_ofi_device *devices, uint32_t capacity)
{
    const struct ofi_provider *provider = NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; (provider = ofi_provider_at(i)) != NULL; i++) {
        struct fi_info *infos = ofi_infos(provider, node);
        for (const struct fi_info *info = infos; info != NULL && count < capacity;
             info = info->next) {
            ofi_device_tell(info, &devices[count++]);
        }
        ofi_infos_free(infos);
    }
    return count;
}

/* A name of a list, or the bus id in it. */
static bool is_named(const struct hlg_ofi_device *device, const char *word, size_t bytes)
{
    char bus[32];
    (void)snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", device->domain, device->bus, device->slot,
                   device->function);
    const char *const names[] = {device->name, device->on_bus ? bus : device->name};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (bytes > 0 && strlen(names[i]) == bytes && memcmp(names[i], word, bytes) == 0) {
            return true;
        }
    }
    /* EFA's domain is the RDMA device's name and a suffix. */
    return strncmp(device->name, word, bytes) == 0 && (strcmp(device->name + bytes, "-rdm") == 0 ||
                                                       strcmp(device->name + bytes, "-dgrm") == 0);
}

static void explain(const struct fi_info *infos, const char *word, size_t bytes, char *error,
                    size_t error_bytes)
{
    int used =
        snprintf(error, error_bytes, "there is no NIC '%.*s' of provider %s: there %s", (int)bytes,
                 word, infos->fabric_attr->prov_name, infos->next == NULL ? "is" : "are");
    for (; infos != NULL && used > 0 && (size_t)used < error_bytes; infos = infos->next) {
        used += snprintf(error + used, error_bytes - (size_t)used, " %s", infos->domain_attr->name);
    }
}

/* Moves the entries that a word names from one list to the end of another. Returns whether there were any. */
static bool move(struct fi_info **from, struct fi_info **to, const char *word, size_t bytes)
{
    bool found = false;
    while (*to != NULL) {
        to = &(*to)->next;
    }
    while (*from != NULL) {
        struct hlg_ofi_device device;
        struct fi_info *info = *from;
        ofi_device_tell(info, &device);
        if (!is_named(&device, word, bytes)) {
            from = &info->next;
            continue;
        }
        *from = info->next;
        info->next = NULL;
        *to = info;
        to = &info->next;
        found = true;
    }
    return found;
}

/* Whether one of `infos` is called so. */
static bool knows(const struct fi_info *infos, const char *word, size_t bytes)
{
    struct hlg_ofi_device device;
    for (; infos != NULL; infos = infos->next) {
        ofi_device_tell(infos, &device);
        if (is_named(&device, word, bytes)) {
            return true;
        }
    }
    return false;
}

int ofi_devices_keep(struct fi_info **infos, const char *names, char *error, size_t error_bytes)
{
    struct fi_info *kept = NULL;
    for (const char *word = names;;) {
        const size_t bytes = strcspn(word, ",");
        if (!knows(*infos, word, bytes) && !knows(kept, word, bytes)) {
            struct fi_info **tail = infos; /* the sentence names all */
            while (*tail != NULL) {
                tail = &(*tail)->next;
            }
            *tail = kept;
            explain(*infos, word, bytes, error, error_bytes);
            return -HLG_EINVAL;
        }
        (void)move(infos, &kept, word, bytes);
        if (word[bytes] == '\0') {
            break;
        }
        word += bytes + 1;
    }
    ofi_infos_free(*infos);
    *infos = kept;
    return 0;
}

/* Number of the first entry that a word names, or HLG_NONE. */
static uint32_t number_of(const struct fi_info *infos, const char *word, size_t bytes)
{
    struct hlg_ofi_device device;
    for (uint32_t number = 0; infos != NULL; infos = infos->next, number++) {
        ofi_device_tell(infos, &device);
        if (is_named(&device, word, bytes)) {
            return number;
        }
    }
    return HLG_NONE;
}

int ofi_devices_pick(const struct fi_info *infos, const char *names, uint32_t rails,
                     uint32_t *picks, char *error, size_t error_bytes)
{
    const char *word = names;
    for (uint32_t rail = 0; rail < rails; rail++) {
        const size_t bytes = word != NULL ? strcspn(word, ",") : 0;
        picks[rail] = word != NULL ? number_of(infos, word, bytes) : HLG_NONE;
        if (word != NULL && picks[rail] == HLG_NONE) {
            explain(infos, word, bytes, error, error_bytes);
            return -HLG_EINVAL;
        }
        if (word != NULL) {
            word = word[bytes] == '\0' ? names : word + bytes + 1;
        }
    }
    return 0;
}
