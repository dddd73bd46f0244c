/*
 * A decorator over a fabric whose provider cannot read or write GPU memory: pages go through pinned host
 * memory. At the source a write copies its pieces into slots of a ring, by a stream of its own, and
 * posts them below when they are there; at the target peers write into a host shadow of each region, and
 * the pages of a request are copied to the GPU when all of them are in, before READY. Chosen by whoever
 * makes it, never by itself. Host regions pass through.
 *
 * What it costs: at the source `slots` times `slot_bytes` of pinned memory for each GPU; at the target
 * as much pinned memory as its regions have. One more copy on each side, the target's after the last
 * byte came.
 *
 * The fabric, its endpoints and its flusher belong to one thread, but for prepare, which runs before.
 */
#ifndef HALAGE_TRANSPORT_STAGED_H
#define HALAGE_TRANSPORT_STAGED_H

#include "halage/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_staged;

/* Numbers that are 0 take their defaults. */
struct hlg_staged_config {
    struct hlg_fabric *below; /* the caller's, until destroy returned */
    bool target;              /* peers write into its GPU memory (decode); false: it is only sent */
    uint32_t slot_bytes;      /* of a slot, >= the largest piece; 1 MiB */
    uint32_t slots;           /* for each GPU; 64 */
    uint32_t flushes_max;     /* requests that are copied to the GPU at a time; 64 */
    /* Takes one sentence, lower case and without a newline, in the thread that calls in; NULL: dropped. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
};

/*
 * Make the decorator. GPUs are opened, and their memory pinned, by the fabric's `prepare`.
 *
 * Returns 0, -HLG_EINVAL or -HLG_ENOMEM, with a sentence in error [error_bytes].
 */
int hlg_staged_create(const struct hlg_staged_config *config, struct hlg_staged **staged,
                      char *error, size_t error_bytes);

/* The fabric of one messenger or pump, since its flusher answers whoever polls it; caps.device_memory is true of it,
 * and its `copies` says what it did. */
struct hlg_fabric *hlg_staged_fabric(struct hlg_staged *staged);

/* After all its endpoints were freed. Waits for copies; takes NULL. */
void hlg_staged_destroy(struct hlg_staged *staged);

#ifdef __cplusplus
}
#endif

#endif
