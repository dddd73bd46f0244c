#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "endpoint.h"

#define ERROR_BYTES 320u /* of a sentence of libfabric's and ours */

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t bytes,
                                                         const char *format, ...)
{
    const size_t used = strnlen(text, bytes);
    va_list arguments;

    if (used >= bytes) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

uint32_t hlg_ofi_list(const char *node, struct hlg_ofi_provider *providers, uint32_t capacity)
{
    const struct ofi_provider *provider = NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; (provider = ofi_provider_at(i)) != NULL && count < capacity; i++) {
        char why[ERROR_BYTES];
        if (!ofi_provider_is_served(provider, why, sizeof why)) {
            continue;
        }
        struct fi_info *infos = ofi_infos(provider, node);
        if (infos != NULL) {
            struct hlg_ofi_provider *out = &providers[count++];
            *out = (struct hlg_ofi_provider){
                .domains_max = provider->domains_max,
                .measured = !provider->rdma,
                .placed = provider->placed,
            };
            (void)snprintf(out->name, sizeof out->name, "%s", provider->name);
        }
        ofi_infos_free(infos);
    }
    return count;
}

static struct hlg_ofi_version version_of(uint32_t packed)
{
    return (struct hlg_ofi_version){.major = FI_MAJOR(packed), .minor = FI_MINOR(packed)};
}

struct hlg_ofi_version hlg_ofi_version(void)
{
    return version_of(fi_version());
}

struct hlg_ofi_version hlg_ofi_version_min(const char *name)
{
    const struct ofi_provider *provider = ofi_provider_find(name);

    return version_of(provider != NULL ? provider->version_min : 0);
}

static void explain_unknown(const char *name, char *error, size_t error_bytes)
{
    const struct ofi_provider *provider = NULL;

    (void)snprintf(error, error_bytes, "there is no provider %s: use auto, tcp", name);
    for (uint32_t i = 0; (provider = ofi_provider_at(i)) != NULL; i++) {
        if (strcmp(provider->name, "tcp") != 0) {
            append(error, error_bytes, ", %s", provider->name);
        }
    }
}

static void explain_absent(const char *name, const char *node, char *error, size_t error_bytes)
{
    struct hlg_ofi_provider here[HLG_OFI_PROVIDERS_MAX];
    const uint32_t count = hlg_ofi_list(node, here, HLG_OFI_PROVIDERS_MAX);

    (void)snprintf(error, error_bytes,
                   "provider %s cannot be used here%s%s: it finds no device of its own; ", name,
                   node != NULL ? " on " : "", node != NULL ? node : "");
    for (uint32_t i = 0; i < count; i++) {
        append(error, error_bytes, "%s%s", i == 0 ? "use " : ", ", here[i].name);
    }
    append(error, error_bytes, "%ssee halage doctor",
           count == 0 ? "nor does any other: " : ", or ");
}

static struct fi_info *look(const struct ofi_fabric *f, const struct ofi_provider *provider,
                            const char *node)
{
    return f->config.device_memory ? ofi_infos_for_gpus(provider, node) : ofi_infos(provider, node);
}

/* Real RDMA first, then native TCP: the table's order, without those that are only taken by name. */
static void choose(struct ofi_fabric *f, const char *node)
{
    const struct ofi_provider *provider = NULL;

    for (uint32_t i = 0; (provider = ofi_provider_at(i)) != NULL; i++) {
        char why[ERROR_BYTES];
        if (provider->by_name_only) {
            continue;
        }
        f->infos = look(f, provider, node);
        if (f->infos != NULL && !ofi_provider_is_served(provider, why, sizeof why)) {
            ofi_log(f, "%s", why); /* its device is here, and a slower one is taken */
            ofi_infos_free(f->infos);
            f->infos = NULL;
        }
        if (f->infos != NULL) {
            f->provider = provider;
            if (provider->rdma) {
                ofi_log(f, "provider %s, chosen by auto: an RDMA device is present",
                        provider->name);
            } else {
                ofi_log(f,
                        "provider %s, chosen by auto: there is no RDMA device of efa or verbs at "
                        "%s",
                        provider->name, node != NULL ? node : "127.0.0.1");
            }
            return;
        }
    }
}

static int find(struct ofi_fabric *f, const char *name, const char *node, char *error,
                size_t error_bytes)
{
    if (name == NULL || strcmp(name, "auto") == 0) {
        name = "auto";
        choose(f, node);
    } else {
        f->provider = ofi_provider_find(name);
        if (f->provider == NULL) {
            explain_unknown(name, error, error_bytes);
            return -HLG_EINVAL;
        }
        if (!ofi_provider_is_served(f->provider, error, error_bytes)) {
            return -HLG_EIO;
        }
        f->infos = look(f, f->provider, node);
    }
    if (f->infos == NULL) {
        explain_absent(name, node, error, error_bytes);
        return -HLG_EIO;
    }
    if (f->provider->warning != NULL) {
        ofi_log(f, "%s", f->provider->warning);
    }
    return 0;
}

/* Those of its devices that are to be used, and how many they are. */
static int keep_devices(struct ofi_fabric *f, const char *names, char *error, size_t error_bytes)
{
    const int rc = names != NULL ? ofi_devices_keep(&f->infos, names, error, error_bytes) : 0;

    for (const struct fi_info *info = f->infos; info != NULL; info = info->next) {
        f->info_count++;
    }
    return rc;
}

static int pick_devices(struct ofi_fabric *f, const struct hlg_ofi_config *config, char *error,
                        size_t error_bytes)
{
    const uint32_t rails = f->fabric.rails;
    f->picks = calloc((size_t)config->lane_count * rails + 1, sizeof *f->picks);
    if (f->picks == NULL) {
        (void)snprintf(error, error_bytes, "out of memory");
        return -HLG_ENOMEM;
    }
    for (uint32_t lane = 0; lane < config->lane_count; lane++) {
        const int rc = ofi_devices_pick(f->infos, config->lane_devices[lane], rails,
                                        &f->picks[(size_t)lane * rails], error, error_bytes);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static void fill_defaults(struct hlg_ofi_config *config)
{
    config->provider = NULL;
    config->node = NULL;
    config->devices = NULL;
    config->lane_devices = NULL;
    config->rails = or_default(config->rails, 1);
    config->pieces_max = or_default(config->pieces_max, 256);
    config->peer_pieces_max = or_default(config->peer_pieces_max, 64);
    config->cq_depth = or_default(config->cq_depth, 4096);
    config->peers_max = or_default(config->peers_max, 64);
    config->mems_max = or_default(config->mems_max, 1024);
    config->stall_ns = config->stall_ns != 0 ? config->stall_ns : 2 * HLG_NS_PER_S;
}

/* Device of a lane's rail: the one that was named for it, else they take them in turn. */
static uint32_t device_of(const struct ofi_fabric *f, uint32_t lane, uint32_t rail)
{
    const uint32_t rails = f->fabric.rails;
    const uint32_t pick = f->picks != NULL && lane < f->config.lane_count
                              ? f->picks[(size_t)lane * rails + rail]
                              : HLG_NONE;
    return pick != HLG_NONE ? pick : (uint32_t)(((uint64_t)lane * rails + rail) % f->info_count);
}

int ofi_fabric_open(const struct ofi_fabric *f, uint32_t lane, uint32_t rail,
                    struct ofi_endpoint **out)
{
    char error[ERROR_BYTES];

    HLG_ASSERT(rail < f->fabric.rails);
    const uint32_t device = device_of(f, lane, rail);
    const struct fi_info *info = f->infos;
    for (uint32_t i = 0; i < device; i++) {
        info = info->next;
    }
    const int rc = ofi_endpoint_open(f, info, f->config.port, out, error, sizeof error);
    if (rc != 0) {
        ofi_log(f, "%s", error);
    }
    return rc;
}

static int fabric_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                       struct hlg_transport **out)
{
    struct ofi_endpoint *e = NULL;

    const int rc = ofi_fabric_open((const struct ofi_fabric *)fabric, lane, rail, &e);
    if (rc == 0) {
        *out = &e->transport;
    }
    return rc;
}

static void fabric_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    *caps = ((const struct ofi_fabric *)fabric)->caps;
}

static hlg_time fabric_now(struct hlg_fabric *fabric)
{
    (void)fabric;
    return ofi_now(NULL);
}

/* Whether other hosts reach an endpoint: all that is not known to stay within this one. */
static bool is_reachable(const struct ofi_provider *provider, const char *node)
{
    if (provider->local) {
        return false;
    }
    /* Without a node it is 127.0.0.1. */
    return provider->ip != OFI_IP_NEEDED || (node != NULL && !ofi_is_loopback(node));
}

int hlg_ofi_open(const struct hlg_ofi_config *config, struct hlg_fabric **fabric, char *error,
                 size_t error_bytes)
{
    struct ofi_endpoint *trial = NULL;

    if (config->port > UINT16_MAX) {
        (void)snprintf(error, error_bytes, "port %u: use 0 (any) to 65535", config->port);
        return -HLG_EINVAL;
    }
    struct ofi_fabric *f = calloc(1, sizeof *f);
    if (f == NULL) {
        (void)snprintf(error, error_bytes, "out of memory");
        return -HLG_ENOMEM;
    }
    f->config = *config;
    fill_defaults(&f->config);
    ofi_expect_peers(f->config.peers_max);
    f->fabric.open = fabric_open;
    f->fabric.query = fabric_query;
    f->fabric.now = fabric_now;
    f->fabric.sentinel_open = ofi_sentinel_open;
    f->fabric.rails = f->config.rails;
    int rc = find(f, config->provider, config->node, error, error_bytes);
    if (rc == 0) {
        rc = keep_devices(f, config->devices, error, error_bytes);
    }
    if (rc == 0 && config->lane_devices != NULL) {
        rc = pick_devices(f, config, error, error_bytes);
    }
    if (rc == 0) {
        rc = ofi_endpoint_open(f, f->infos, 0, &trial, error, error_bytes);
    }
    if (rc != 0) {
        hlg_ofi_close(&f->fabric);
        return rc;
    }
    f->caps = trial->caps;
    f->caps.reachable = is_reachable(f->provider, config->node);
    trial->transport.ops->free(&trial->transport);
    *fabric = &f->fabric;
    return 0;
}

void hlg_ofi_close(struct hlg_fabric *fabric)
{
    struct ofi_fabric *f = (struct ofi_fabric *)fabric;

    if (f != NULL) {
        ofi_infos_free(f->infos);
        free(f->picks);
        free(f);
    }
}
