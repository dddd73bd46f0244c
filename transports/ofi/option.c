#include "option.h"

#include <rdma/fi_errno.h>

#include "endpoint.h"

/* As libfabric wants it: a pointer to the one or the other. */
union value {
    bool flag;
    size_t size;
};

static size_t bytes_of(const struct ofi_option *option)
{
    return option->kind == OFI_OPTION_FLAG ? sizeof(bool) : sizeof(size_t);
}

const struct ofi_option *ofi_options_set(struct ofi_endpoint *e, int *rc)
{
    const struct ofi_option *options = e->owner->provider->options;

    for (; options != NULL && options->name != NULL; options++) {
        union value value = {.size = options->value};
        if (FI_VERSION_LT(fi_version(), options->since)) {
            continue; /* that library does as it always did */
        }
        if (options->kind == OFI_OPTION_FLAG) {
            value.flag = options->value != 0;
        }
        const int error =
            fi_setopt(&e->ep->fid, FI_OPT_ENDPOINT, options->number, &value, bytes_of(options));
        if (error == 0) {
            continue;
        }
        if (options->remedy != NULL) {
            *rc = error;
            return options;
        }
        ofi_log(e->owner, "%s could not be set: %s", options->name, fi_strerror(-error));
    }
    return NULL;
}

const struct ofi_option *ofi_options_check(struct ofi_endpoint *e, int *rc)
{
    const struct ofi_option *checks = e->owner->provider->checks;

    for (; checks != NULL && checks->name != NULL; checks++) {
        union value value = {.size = 0};
        size_t bytes = bytes_of(checks);
        *rc = fi_getopt(&e->ep->fid, FI_OPT_ENDPOINT, checks->number, &value, &bytes);
        const size_t got = checks->kind == OFI_OPTION_FLAG ? value.flag : value.size;
        if (*rc == 0 && got != checks->value) {
            *rc = -FI_EOPNOTSUPP;
        }
        if (*rc != 0) {
            return checks;
        }
    }
    return NULL;
}
