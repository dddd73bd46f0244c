/* What is known of libfabric's providers, and how one is found. */
#ifndef OFI_PROVIDER_H
#define OFI_PROVIDER_H

#include <rdma/fabric.h>

#include "halage/transport/ofi.h"
#include "option.h"

/* What a node's IP address is to a provider. */
enum ofi_ip {
    OFI_IP_NEEDED = 0, /* bound to: 127.0.0.1 if none is given */
    OFI_IP_TAKEN,      /* names the device, if it is given */
    OFI_IP_IGNORED,    /* addresses are of another kind */
};

/* One row of the table of quirks: all that differs between providers and that libfabric does not tell. What most
 * have in common is 0 and not said. */
struct ofi_provider {
    const char *name;           /* libfabric's, exact */
    const char *fabric;         /* the one of its fabrics that is meant; NULL: it has one alone */
    uint32_t version_min;       /* FI_VERSION() of the first library that it works with; 0: any */
    const char *version_remedy; /* where to get a newer one */
    uint32_t domains_max; /* endpoints that are affordable: memory, set-up time, device limits */
    uint64_t merge_bytes_max; /* 0: the usual; see ofi_provider_merges() */
    uint32_t
        patience; /* reads of an empty queue that are worth while where something just came, or must come
                          before more is taken; 0: none */
    enum ofi_ip ip;
    bool placed;          /* FI_DELIVERY_COMPLETE is asked for and means placed */
    bool local;           /* reaches this machine only */
    bool rdma;            /* real devices: preferred by auto; known from documents alone */
    bool emptied_first;   /* its queue must be empty when an endpoint is closed */
    bool by_name_only;    /* auto never takes it */
    bool nameless_errors; /* an error that names no write may be that of one: its peers are lost */
    const struct ofi_option *options; /* set before an endpoint is enabled; NULL: none */
    const struct ofi_option *checks;  /* asked afterwards: what must not be, ends it; NULL: none */
    const char *warning;              /* told when it is chosen; NULL: none */
};

/* The row of a name that the user gave ("tcp" and "net" are one), or NULL. */
const struct ofi_provider *ofi_provider_find(const char *name);

/* The i-th row of those that apply to the libfabric at hand, the preferred first; NULL at the end. */
const struct ofi_provider *ofi_provider_at(uint32_t index);

/* Pages that follow one another are worth writing at once up to so many bytes, as in struct hlg_transport_caps. */
uint64_t ofi_provider_merges(const struct ofi_provider *provider);

/* Whether the libfabric at hand is new enough for a provider; else `sentence` says what is, and what to do. */
bool ofi_provider_is_served(const struct ofi_provider *provider, char *sentence, size_t bytes);

/* Whether a node's address, as text, stays within this host. */
bool ofi_is_loopback(const char *node);

/*
 * Ask libfabric for the provider. Returns a list of which every entry is of that provider and can
 * carry the contract, one entry a device; NULL when there is none. Free with ofi_infos_free.
 */
struct fi_info *ofi_infos(const struct ofi_provider *provider, const char *node);
/* Those that take memory of GPUs (FI_HMEM), or where there are none, all the same ones. */
struct fi_info *ofi_infos_for_gpus(const struct ofi_provider *provider, const char *node);

void ofi_infos_free(struct fi_info *infos);

/* Peers that one endpoint will have: those that rxm makes room for. Before the first ofi_infos. */
void ofi_expect_peers(uint32_t peers);

#endif
