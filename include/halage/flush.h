/*
 * How bytes that landed become visible to the device that will read them. The pump drives a flusher
 * between the last immediate of a request and its READY, and one without `span` also before pages of a
 * failed request return; a fabric or messenger provides it where something is to be done. One thread: the
 * pump's.
 */
#ifndef HALAGE_FLUSH_H
#define HALAGE_FLUSH_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_sentinel;

/* What a decode node does for GPU memory that NICs write themselves, before READY and before pages return. */
enum hlg_flush_policy {
    HLG_FLUSH_AUTO = 0, /* CUDA where the GPU's attributes say that it does not order such writes */
    HLG_FLUSH_NONE,     /* nothing, whatever the GPU says: for tests and measurements */
    HLG_FLUSH_CUDA,     /* cuFlushGPUDirectRDMAWrites */
    HLG_FLUSH_READ,     /* each NIC reads some bytes of the GPU back: struct hlg_sentinel */
};

/*
 * Reads a few bytes of our own device memory back to the host through one NIC. PCIe lets no read pass a
 * write that went the same way before it: when a read is over, all that this NIC had written to that device
 * before the read began is in the device's memory. That is not so of what other NICs wrote, or of what this
 * one wrote to other devices: each of them needs a sentinel of its own.
 */
struct hlg_sentinel_ops {
    /* Begin a read; none is under way. Returns 1; 0: not now, call it again; or an error. */
    int (*read)(struct hlg_sentinel *s);
    /* Progress of the read under way. Returns 1: it is over; 0: not yet; an error: it failed. */
    int (*poll)(struct hlg_sentinel *s);
    /* Also with a read under way, which touches nothing any more then. Bounded in time. */
    void (*free)(struct hlg_sentinel *s);
};

/* First member of every backend's own struct. One thread: its fabric's. */
struct hlg_sentinel {
    const struct hlg_sentinel_ops *ops;
};

struct hlg_flushed {
    hlg_handle request;
    int32_t
        status; /* 0: visible. Negative: never will be. Either way the pages are touched no more */
};

struct hlg_flusher {
    /*
     * One run of bytes in device memory that a request owns; NULL: only whole requests are of
     * interest. All runs of a request come before its finish, and no other request's in between.
     * Returns 1, or 0: not now, offer it again. A failure is kept and told by poll.
     */
    int (*span)(struct hlg_flusher *flusher, void *base, uint64_t bytes);
    /* All runs of this request were taken. Returns 1, or 0: not now, call it again. */
    int (*finish)(struct hlg_flusher *flusher, hlg_handle request);
    /* Requests that are over, in the order of finish. Returns how many of `capacity` were filled in. */
    int (*poll)(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity);
};

#ifdef __cplusplus
}
#endif

#endif
