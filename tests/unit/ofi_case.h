/* One endpoint of the libfabric backend over the double of tests/support/fake_ofi.h, with two peers. */
#ifndef HALAGE_TESTS_OFI_CASE_H
#define HALAGE_TESTS_OFI_CASE_H

#include "fake_ofi.h"

#include "halage/message.h"
#include "halage/transport/ofi.h"

#define CASE_PAGES      64u
#define CASE_PAGE_BYTES 64u

struct ofi_case {
    struct hlg_fabric *fabric;
    struct hlg_transport *t;
    struct hlg_transport_caps caps;
    hlg_mem mem;
    struct hlg_mem_export exported;
    uint32_t peers[2];
    uint8_t memory[CASE_PAGES * CASE_PAGE_BYTES];
    uint32_t identity[CASE_PAGES];
    /* polled */
    uint32_t done;
    uint32_t failed;
    int32_t status;
    uint32_t immediates;
    uint32_t pieces;
    uint32_t downs[2];
};

extern char case_error[512];  /* of the last case_open or case_try */
extern char case_heard[2048]; /* all that was logged since, a line each */

/* Opens and closes a fabric of the device. Returns what hlg_ofi_open said. */
int case_try(const struct fake_device *device, const char *provider);
/* Opens an endpoint as well; it must succeed. `config` may be NULL. */
void case_open(struct ofi_case *c, const struct fake_device *device,
               const struct hlg_ofi_config *config);
/* Closes all; nothing may be left open. */
void case_close(struct ofi_case *c);

/* Offers pieces [begin, limit), a page each, to peer 0 or 1. Returns what write said. */
int64_t case_write(struct ofi_case *c, uint32_t peer, uint32_t begin, uint32_t limit, uint32_t imm);
/* Polls until nothing comes. */
void case_poll(struct ofi_case *c);
/* Spins until the endpoint's clock has gone on. */
void case_wait(const struct ofi_case *c, hlg_time span);

#endif
