/* What is known of libfabric's providers, and how one is found. */
#ifndef OFI_PROVIDER_H
#define OFI_PROVIDER_H

#include <rdma/fabric.h>

#include "halage/transport/ofi.h"

struct ofi_provider {
    const char *name;     /* libfabric's, exact */
    uint32_t domains_max; /* endpoints that are affordable: memory, set-up time, device limits */
    bool measured;        /* false: domains_max is a guess from documents */
    bool placed;          /* FI_DELIVERY_COMPLETE is asked for and means placed */
    bool binds_to_ip;     /* an address to bind to is needed: 127.0.0.1 if none is given */
    bool rdma;            /* real devices: preferred by auto */
    bool emptied_first;   /* its queue must be empty when an endpoint is closed */
    bool by_name_only;    /* auto never takes it */
    const char *warning;  /* told when it is chosen; NULL: none */
};

/* The row of a name that the user gave ("tcp" and "net" are one), or NULL. */
const struct ofi_provider *ofi_provider_find(const char *name);

/* The i-th row of those that apply to the libfabric at hand, the preferred first; NULL at the end. */
const struct ofi_provider *ofi_provider_at(uint32_t index);

/*
 * Ask libfabric for the provider. Returns a list of which every entry is of that provider and can
 * carry the contract, one entry a device; NULL when there is none. Free with ofi_infos_free.
 */
struct fi_info *ofi_infos(const struct ofi_provider *provider, const char *node);

void ofi_infos_free(struct fi_info *infos);

#endif
