/* PCI bus ids, and what links are called. */
#include <halage/topology.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *hlg_link_name(enum hlg_link link)
{
    switch (link) {
    case HLG_LINK_SWITCH:
        return "same PCIe switch";
    case HLG_LINK_ROOT:
        return "same host bridge";
    case HLG_LINK_NUMA:
        return "same NUMA node";
    case HLG_LINK_PACKAGE:
        return "same package";
    case HLG_LINK_MACHINE:
        return "same machine only";
    }
    hlg_unreachable();
}

/* Read `digits_min` to `digits_max` hexadecimal digits. Returns where they end, or NULL. */
static const char *read_hex(const char *text, int digits_min, int digits_max, uint32_t *value)
{
    int digits = 0;
    *value = 0;
    for (; isxdigit((unsigned char)*text); text++) {
        const int lower = tolower((unsigned char)*text);
        if (++digits > digits_max) {
            return NULL;
        }
        *value = *value << 4 | (uint32_t)(lower <= '9' ? lower - '0' : lower - 'a' + 10);
    }
    return digits >= digits_min ? text : NULL;
}

int hlg_bus_id_read(const char *text, struct hlg_bus_id *id)
{
    uint32_t part[4] = {0}; /* domain, bus, device, function */
    const char *colon = strchr(text, ':');
    const bool has_domain = colon != NULL && strchr(colon + 1, ':') != NULL;
    if (has_domain) {
        text = read_hex(text, 1, 8, &part[0]);
        text = text != NULL && *text == ':' ? text + 1 : NULL;
    }
    text = text != NULL ? read_hex(text, 1, 2, &part[1]) : NULL;
    text = text != NULL && *text == ':' ? read_hex(text + 1, 1, 2, &part[2]) : NULL;
    text = text != NULL && *text == '.' ? read_hex(text + 1, 1, 1, &part[3]) : NULL;
    if (text == NULL || *text != '\0' || part[2] >= 32 || part[3] >= 8) {
        return -HLG_EINVAL;
    }
    *id = (struct hlg_bus_id){.domain = part[0],
                              .bus = (uint8_t)part[1],
                              .device = (uint8_t)part[2],
                              .function = (uint8_t)part[3]};
    return 0;
}

void hlg_bus_id_write(const struct hlg_bus_id *id, char text[HLG_TOPOLOGY_BUS_BYTES])
{
    (void)snprintf(text, HLG_TOPOLOGY_BUS_BYTES, "%04x:%02x:%02x.%x", id->domain, id->bus,
                   id->device, id->function & 7u);
}

bool hlg_bus_id_equal(const struct hlg_bus_id *a, const struct hlg_bus_id *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device &&
           a->function == b->function;
}
