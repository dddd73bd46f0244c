#define _GNU_SOURCE
#include "provider.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Writes of 4 KiB and of 256 KiB, 64 under way, libfabric 1.17, GB/s: net 0.6 and 4.0, tcp;ofi_rxm 0.5 and 4.2. On shm
 * writes above 4 KiB take another way: 4.7 of 4 KiB, 2.9 of 16. An EFA device does a million writes a second (arXiv
 * 2510.27656), so that it is of use there; how much was not measured.
 */
#define MERGE_BYTES_MAX     (256ull << 10)
#define SHM_MERGE_BYTES_MAX (4ull << 10)

#define MOST_RETRIES 7u /* as in InfiniBand: for ever */

/*
 * efa, of the manual fi_efa(7) and its provider's source, libfabric 1.22 to 2.6:
 * - shared memory: off, or writes within a machine are copied by two processes, and no descriptor wakes us.
 * - CUDA: it asks CUDA about each address unless told not to, which fails for memory of cuMemCreate
 *   (ofiwg/libfabric issue 12853). An error where there is no CUDA, and that is as well.
 * - device RDMA: an error is the answer where the device has none, or FI_EFA_USE_DEVICE_RDMA=0 is set.
 * - unsolicited receives: immediates need no receive buffer of ours; both sides must agree.
 * - receiver not ready: tried again for ever. Not all devices let it be set (-FI_ENOSYS).
 */
static const struct ofi_option efa_options[] = {
    {.name = "FI_OPT_SHARED_MEMORY_PERMITTED",
     .remedy = "shared memory must be off: unset FI_EFA_ENABLE_SHM_TRANSFER",
     .number = OFI_OPTION_SHARED_MEMORY_PERMITTED,
     .since = FI_VERSION(1, 21),
     .kind = OFI_OPTION_FLAG,
     .value = false},
    {.name = "FI_OPT_CUDA_API_PERMITTED",
     .number = OFI_OPTION_CUDA_API_PERMITTED,
     .since = FI_VERSION(1, 18),
     .kind = OFI_OPTION_FLAG,
     .value = false},
    {.name = "FI_OPT_EFA_USE_DEVICE_RDMA",
     .remedy = "a device with RDMA write is needed, and FI_EFA_USE_DEVICE_RDMA must not be 0",
     .number = OFI_OPTION_EFA_USE_DEVICE_RDMA,
     .since = FI_VERSION(1, 18),
     .kind = OFI_OPTION_FLAG,
     .value = true},
    {.name = "FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV",
     .number = OFI_OPTION_EFA_USE_UNSOLICITED_WRITE_RECV,
     .since = FI_VERSION(2, 5),
     .kind = OFI_OPTION_FLAG,
     .value = true},
    {.name = "FI_OPT_EFA_RNR_RETRY",
     .number = OFI_OPTION_EFA_RNR_RETRY,
     .since = FI_VERSION(1, 17),
     .kind = OFI_OPTION_SIZE,
     .value = MOST_RETRIES},
    {.name = NULL},
};

/* The device may have RDMA read alone: then writes are copied in software, by a target that polls. */
static const struct ofi_option efa_checks[] = {
    {.name = "FI_OPT_EFA_EMULATED_WRITE",
     .remedy = "writes would be emulated in software: a device with RDMA write is needed, and an "
               "rdma-core and EFA "
               "driver that know of it",
     .number = OFI_OPTION_EFA_EMULATED_WRITE,
     .since = FI_VERSION(1, 18),
     .kind = OFI_OPTION_FLAG,
     .value = false},
    {.name = NULL},
};

/*
 * Every difference between providers that the code cannot ask libfabric for stands in this table,
 * in the order in which auto prefers them. Those that are not RDMA were measured on Debian 12 with libfabric 1.17:
 * endpoints take 70 KB (net), 3 MB (tcp;ofi_rxm, with the variables below) and 5.5 MB (shm). efa
 * and verbs: their documents; on both FI_DELIVERY_COMPLETE is emulated or ignored, so not asked for.
 * Keys are ours to choose unless the provider's mr_mode says FI_MR_PROV_KEY.
 *
 * efa before 1.22 loses or miscounts immediates (release notes 1.18.1 to 1.22.0), and asks the other side for a
 * receive buffer for each. Its fabric "efa-direct" (2.1) is not taken: it does not bound its completion queue.
 * verbs reports some failed writes without the context that they were posted with (issue 5738); the
 * connection is lost with them, and all that follows is flushed.
 * tcp was called net up to 1.17. How much patience is worth: docs/transport.md.
 */
static const struct ofi_provider table[] = {
    {.name = "efa",
     .fabric = "efa",
     .version_min = FI_VERSION(1, 22),
     .version_remedy = "the EFA installer of AWS brings one",
     .domains_max = 16,
     .ip = OFI_IP_IGNORED,
     .rdma = true,
     .options = efa_options,
     .checks = efa_checks},
    {.name = "verbs;ofi_rxm",
     .domains_max = 64,
     .ip = OFI_IP_TAKEN,
     .rdma = true,
     .emptied_first = true,
     .nameless_errors = true},
    {.name = "tcp", .domains_max = 1024, .patience = 2, .placed = true},
    {.name = "net", .domains_max = 1024, .patience = 2, .placed = true},
    {.name = "tcp;ofi_rxm",
     .domains_max = 32,
     .placed = true,
     .warning =
         "tcp;ofi_rxm may end a process by SIGSEGV when a session ends in the midst of a write to "
         "it; tcp does not"},
    {.name = "shm",
     .domains_max = 8,
     .merge_bytes_max = SHM_MERGE_BYTES_MAX,
     .patience = 64,
     .ip = OFI_IP_IGNORED,
     .placed = true,
     .local = true,
     .by_name_only = true,
     .warning = "shm reaches this machine only, and writes to a killed peer may hang for ever"},
    {.name = "sockets",
     .domains_max = 64,
     .placed = true,
     .by_name_only = true,
     .warning =
         "sockets is libfabric's slow emulation, kept for tests: a provider that is deprecated"},
};

/*
 * Shrink tcp;ofi_rxm endpoints from 70 MB to 3 MB, keep verbs from holding closed registrations alive, and keep
 * libinfinipath, which Debian's libfabric loads, from catching SIGSEGV. Registered memory stays with the
 * parent where an engine forks. efa's shared memory is off as well before there is an endpoint: its queue
 * has no descriptor else.
 */
static const char *const environment[][2] = {
    {"FI_OFI_RXM_BUFFER_SIZE", "1024"}, {"FI_OFI_RXM_MSG_TX_SIZE", "64"},
    {"FI_OFI_RXM_MSG_RX_SIZE", "64"},   {"FI_MR_CACHE_MAX_COUNT", "0"},
    {"IPATH_NO_BACKTRACE", "1"},        {"FI_EFA_FORK_SAFE", "1"},
    {"RDMAV_FORK_SAFE", "1"},           {"FI_EFA_ENABLE_SHM_TRANSFER", "0"},
};

/* rxm's completion queue has room for this many peers; 256 unless told, which soft-RoCE's queues have not. */
static uint32_t peers_expected = 64;

void ofi_expect_peers(uint32_t peers)
{
    peers_expected = hlg_max_u32(peers_expected, peers);
}

static void set_environment(void)
{
    char peers[12];

    for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++) {
        (void)setenv(environment[i][0], environment[i][1], 0);
    }
    (void)snprintf(peers, sizeof peers, "%u", peers_expected);
    (void)setenv("FI_UNIVERSE_SIZE", peers, 0);
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

uint64_t ofi_provider_merges(const struct ofi_provider *provider)
{
    return provider->merge_bytes_max != 0 ? provider->merge_bytes_max : MERGE_BYTES_MAX;
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

bool ofi_provider_is_served(const struct ofi_provider *provider, char *sentence, size_t bytes)
{
    const uint32_t here = fi_version();
    const uint32_t least = provider->version_min;

    if (!FI_VERSION_LT(here, least)) {
        return true;
    }
    (void)snprintf(sentence, bytes,
                   "provider %s needs libfabric %u.%u or newer, and this is %u.%u: %s",
                   provider->name, FI_MAJOR(least), FI_MINOR(least), FI_MAJOR(here), FI_MINOR(here),
                   provider->version_remedy);
    return false;
}

bool ofi_is_loopback(const char *node)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, node, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, node, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static struct fi_info *make_hints(const struct ofi_provider *provider, bool gpus)
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
    if (gpus) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
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
        (provider->fabric != NULL && strcmp(info->fabric_attr->name, provider->fabric) != 0) ||
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

/* Behaviour is asked for by version, that of the headers or the first that the provider works with, whichever is
 * newer; the layout of structures follows the headers by itself. */
static uint32_t api_version(const struct ofi_provider *provider)
{
    const uint32_t built = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    const uint32_t least = provider->version_min;
    const uint32_t wanted = FI_VERSION_LT(built, least) ? least : built;

    return FI_VERSION_LT(fi_version(), wanted) ? fi_version() : wanted;
}

static struct fi_info *look(const struct ofi_provider *provider, const char *node, bool gpus)
{
    struct fi_info *found = NULL;

    set_environment();
    struct fi_info *hints = make_hints(provider, gpus);
    if (hints == NULL) {
        return NULL;
    }
    if (node == NULL && provider->ip == OFI_IP_NEEDED) {
        node = "127.0.0.1";
    }
    if (provider->ip == OFI_IP_IGNORED) {
        node = NULL;
    }
    if (fi_getinfo(api_version(provider), node, NULL, node != NULL ? FI_SOURCE : 0, hints,
                   &found) != 0) {
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

struct fi_info *ofi_infos(const struct ofi_provider *provider, const char *node)
{
    return look(provider, node, false);
}

struct fi_info *ofi_infos_for_gpus(const struct ofi_provider *provider, const char *node)
{
    struct fi_info *infos = look(provider, node, true);

    return infos != NULL ? infos : look(provider, node, false);
}

void ofi_infos_free(struct fi_info *infos)
{
    if (infos != NULL) {
        fi_freeinfo(infos);
    }
}
