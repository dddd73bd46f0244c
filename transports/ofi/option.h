/* Options of libfabric endpoints: what a provider must be told, and what it must say of itself. */
#ifndef OFI_OPTION_H
#define OFI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext.h>

/*
 * Numbers of options, which belong to libfabric's ABI, under names that every header has: a build with the headers
 * of 1.17 may run on a library that knows more, and says so by fi_version().
 * Source: libfabric 2.6, include/rdma/fi_endpoint.h and fi_ext.h; the assertions below compare where they can.
 */
enum ofi_option_number {
    OFI_OPTION_CUDA_API_PERMITTED = 10,
    OFI_OPTION_SHARED_MEMORY_PERMITTED = 11,
    OFI_OPTION_EFA_RNR_RETRY = -(0xefa << 16),
    OFI_OPTION_EFA_EMULATED_WRITE = OFI_OPTION_EFA_RNR_RETRY + 2,
    OFI_OPTION_EFA_USE_DEVICE_RDMA = OFI_OPTION_EFA_RNR_RETRY + 4,
    OFI_OPTION_EFA_USE_UNSOLICITED_WRITE_RECV = OFI_OPTION_EFA_RNR_RETRY + 8,
};

#define OFI_HEADERS_HAVE(major, minor) \
    FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(major, minor))

_Static_assert((int)OFI_OPTION_CUDA_API_PERMITTED == FI_OPT_XPU_TRIGGER + 1, "as in the ABI");
_Static_assert((int)OFI_OPTION_EFA_RNR_RETRY == FI_OPT_EFA_RNR_RETRY, "as in the ABI");
#if OFI_HEADERS_HAVE(1, 18)
_Static_assert((int)OFI_OPTION_CUDA_API_PERMITTED == FI_OPT_CUDA_API_PERMITTED, "as in the ABI");
_Static_assert((int)OFI_OPTION_EFA_EMULATED_WRITE == FI_OPT_EFA_EMULATED_WRITE, "as in the ABI");
_Static_assert((int)OFI_OPTION_EFA_USE_DEVICE_RDMA == FI_OPT_EFA_USE_DEVICE_RDMA, "as in the ABI");
#endif
#if OFI_HEADERS_HAVE(1, 21)
_Static_assert((int)OFI_OPTION_SHARED_MEMORY_PERMITTED == FI_OPT_SHARED_MEMORY_PERMITTED,
               "as in the ABI");
#endif
#if OFI_HEADERS_HAVE(2, 5)
_Static_assert((int)OFI_OPTION_EFA_USE_UNSOLICITED_WRITE_RECV ==
                   FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV,
               "as in the ABI");
#endif

enum ofi_option_kind {
    OFI_OPTION_FLAG, /* bool */
    OFI_OPTION_SIZE, /* size_t */
};

/* A row of a provider's list; the last one has no name. */
struct ofi_option {
    const char *name; /* libfabric's */
    const char
        *remedy; /* NULL: going on without it is right where the library or the device lacks it */
    int number;
    uint32_t since; /* FI_VERSION() of the first library that has it */
    enum ofi_option_kind kind;
    size_t value; /* what is set; of a check, what must come back */
};

struct ofi_endpoint;

/* Set what the provider's row lists, before the endpoint is enabled. Returns the option that failed and has a
 * remedy, libfabric's error in *rc; NULL when all went well. */
const struct ofi_option *ofi_options_set(struct ofi_endpoint *e, int *rc);

/* Ask what the row wants to know of an enabled endpoint. Returns the first that is not as it must be. */
const struct ofi_option *ofi_options_check(struct ofi_endpoint *e, int *rc);

#endif
