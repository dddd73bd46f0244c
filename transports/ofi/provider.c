#define _GNU_SOURCE
#include "provider.h"

#include <stdlib.h>
#include <string.h>

/*
 * Every difference between providers that the code cannot ask libfabric for stands in this table,
 * in the order in which auto prefers them. Measured on Debian 12 with libfabric 1.17 where it says
 * so: endpoints take 70 KB (net), 3 MB (tcp;ofi_rxm, with the variables below) and 5.5 MB (shm). efa
 * and verbs: their documents; on both FI_DELIVERY_COMPLETE is emulated or ignored, so not asked for.
 * Keys are ours to choose unless the provider's mr_mode says FI_MR_PROV_KEY.
 */
static const struct ofi_provider table[] = {
    {.name = "efa", .domains_max = 16, .rdma = true},
    {.name = "verbs;ofi_rxm", .domains_max = 64, .rdma = true, .emptied_first = true},
    {.name = "tcp", .domains_max = 1024, .measured = true, .placed = true, .binds_to_ip = true},
    {.name = "net", .domains_max = 1024, .measured = true, .placed = true, .binds_to_ip = true},
    {.name = "tcp;ofi_rxm",
     .domains_max = 32,
     .measured = true,
     .placed = true,
     .binds_to_ip = true,
     .warning =
         "tcp;ofi_rxm may end a process by SIGSEGV when a session ends in the midst of a write to "
         "it; tcp does not"},
    {.name = "shm",
     .domains_max = 8,
     .measured = true,
     .placed = true,
     .by_name_only = true,
     .warning = "shm reaches this machine only, and writes to a killed peer may hang for ever"},
    {.name = "sockets",
     .domains_max = 64,
     .measured = true,
     .placed = true,
     .binds_to_ip = true,
     .by_name_only = true,
     .warning =
         "sockets is libfabric's slow emulation, kept for tests: a provider that is deprecated"},
};

/* Shrink tcp;ofi_rxm endpoints from 70 MB to 3 MB, keep verbs from holding closed registrations
 * alive, and keep libinfinipath, which Debian's libfabric loads, from catching SIGSEGV. */
static const char *const environment[][2] = {
    {"FI_OFI_RXM_BUFFER_SIZE", "1024"}, {"FI_OFI_RXM_MSG_TX_SIZE", "64"},
    {"FI_OFI_RXM_MSG_RX_SIZE", "64"},   {"FI_MR_CACHE_MAX_COUNT", "0"},
    {"IPATH_NO_BACKTRACE", "1"},
};

static void set_environment(void)
{
    for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++) {
        (void)setenv(environment[i][0], environment[i][1], 0);
    }
}

/* The native RDM endpoint over TCP was called net up to 1.17, where "tcp" means tcp;ofi_rxm. */
static const char *native_tcp(void)
{
    return FI_VERSION_LT(fi_version(), FI_VERSION(1, 18)) ? "net" : "tcp";
}

static bool is_native_tcp(const char *name)
{
    return strcmp(name, "tcp") == 0 || strcmp(name, "net") == 0;
}

const struct ofi_provider *ofi_provider_at(uint32_t index)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (is_native_tcp(table[i].name) && strcmp(table[i].name, native_tcp()) != 0) {
            continue;
        }
        if (index-- == 0) {
            return &table[i];
        }
    }
    return NULL;
}

const struct ofi_provider *ofi_provider_find(const char *name)
{
    const char *wanted = is_native_tcp(name) ? native_tcp() : name;
    const struct ofi_provider *provider = NULL;

    for (uint32_t i = 0; (provider = ofi_provider_at(i)) != NULL; i++) {
        if (strcmp(provider->name, wanted) == 0) {
            return provider;
        }
    }
    return NULL;
}

static struct fi_info *make_hints(const struct ofi_provider *provider)
{
    struct fi_info *hints = fi_allocinfo();

    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider->name);
    if (hints->fabric_attr->prov_name == NULL) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

/* libfabric answers for layered providers too, and several times for one device. */
static bool is_wanted(const struct ofi_provider *provider, const struct fi_info *info,
                      const struct fi_info *kept)
{
    if (strcmp(info->fabric_attr->prov_name, provider->name) != 0 ||
        info->domain_attr->cq_data_size < sizeof(uint32_t) || info->tx_attr->size == 0) {
        return false;
    }
    for (; kept != NULL; kept = kept->next) {
        if (strcmp(kept->domain_attr->name, info->domain_attr->name) == 0) {
            return false;
        }
    }
    return true;
}

struct fi_info *ofi_infos(const struct ofi_provider *provider, const char *node)
{
    const uint32_t built = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    struct fi_info *found = NULL;

    set_environment();
    struct fi_info *hints = make_hints(provider);
    if (hints == NULL) {
        return NULL;
    }
    if (node == NULL && provider->binds_to_ip) {
        node = "127.0.0.1";
    }
    if (strcmp(provider->name, "shm") == 0 || strcmp(provider->name, "efa") == 0) {
        node = NULL; /* not addressed by IP */
    }
    const uint32_t version = FI_VERSION_LT(fi_version(), built) ? fi_version() : built;
    if (fi_getinfo(version, node, NULL, node != NULL ? FI_SOURCE : 0, hints, &found) != 0) {
        found = NULL;
    }
    fi_freeinfo(hints);

    struct fi_info *kept = NULL;
    struct fi_info **tail = &kept;
    while (found != NULL) {
        struct fi_info *next = found->next;
        found->next = NULL;
        if (is_wanted(provider, found, kept)) {
            *tail = found;
            tail = &found->next;
        } else {
            fi_freeinfo(found);
        }
        found = next;
    }
    return kept;
}

void ofi_infos_free(struct fi_info *infos)
{
    if (infos != NULL) {
        fi_freeinfo(infos);
    }
}
