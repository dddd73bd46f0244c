/*
 * The prefill machine: takes requests, learns chunks before each forward pass, and asks for the
 * writes of a layer once that layer's fact is in. Pure: no I/O, thread, clock, allocation, log.
 */
#ifndef HALAGE_PREFILL_H
#define HALAGE_PREFILL_H

#include "action.h"
#include "event.h"
#include "metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_prefill;

struct hlg_prefill_config {
    struct hlg_limits limits;
    struct hlg_layout layout;
    uint32_t rails;       /* of each lane */
    uint64_t node;        /* identity, stable over restarts */
    uint64_t incarnation; /* unique to this run */
    uint8_t fingerprint[HLG_FINGERPRINT_BYTES];
    bool acknowledged; /* the transport's DONE_WRITE does not mean placed; the pump sets it */
};

/*
 * Counter words. Word w is the stage's (layout.all_reduce: w = pool * stages + stage) or the lane's
 * (otherwise: w = lane). It holds forward << 8 | layers done of its stage, in order of global layer
 * number, and one more for the context. Forward numbers go upward from 1 within 2^23 of each other,
 * mod 2^24, 0 skipped.
 */
uint32_t hlg_prefill_words(const struct hlg_layout *layout);

/* Bytes that init needs; 0 when the config breaks a limit. */
size_t hlg_prefill_size(const struct hlg_prefill_config *config);
/* Makes a machine in `memory` ([size] bytes, max_align_t aligned, the caller's). */
struct hlg_prefill *hlg_prefill_init(void *memory, const struct hlg_prefill_config *config);

/* Take one event. Returns 0, or a negated enum hlg_error with the machine unchanged. */
int hlg_prefill_handle(struct hlg_prefill *p, const struct hlg_event *event);
/* Pull an action of one of `kinds`; WRITE only for `lane`. Returns 1 with *action, or 0. */
int hlg_prefill_next(struct hlg_prefill *p, uint32_t lane, unsigned kinds,
                     struct hlg_action *action);
/* When it wants the time next, or HLG_TIME_NEVER. */
hlg_time hlg_prefill_deadline(const struct hlg_prefill *p);
/* Recounts every invariant from scratch; aborts by assertion at the first that is broken. Returns 0. */
int hlg_prefill_check(const struct hlg_prefill *p);
/* Requests open, for drain and idleness. */
uint32_t hlg_prefill_open(const struct hlg_prefill *p);
/* Whether a request waits for a counter to move: it takes part in a forward of which some word of its pool has not
 * shown all layers, and the context where the layout has one. O(forwards * requests). */
bool hlg_prefill_awaits(const struct hlg_prefill *p);

/* Since init. A layer of a chunk on one rank is early when all its writes were taken before the
 * engine ended that forward; the last layer of each stage is left out, and so are cached pages. */
struct hlg_prefill_stats {
    uint64_t layers_early;
    uint64_t layers_late;
    uint64_t requests;
    uint64_t sent;
    uint64_t stopped;
    uint64_t pages_poisoned;   /* source pages of POISONED requests, as often as those named them */
    uint64_t writes_in_flight; /* paged writes begun and not over */
    hlg_time busy_ns;          /* in which at least one write was in flight */
    /* of paged writes. Lag is from when the machine was told that the layer is computed; cached pages
       have none. Where a newer forward pass had got that far before, it is understated. */
    struct hlg_histogram write_bytes; /* HLG_HISTOGRAM_BYTES; the rest are HLG_HISTOGRAM_TIME */
    struct hlg_histogram post_ns;     /* from made to wholly taken by the transport */
    struct hlg_histogram posted_ns;   /* lag until wholly taken */
    struct hlg_histogram done_ns;     /* lag until the last piece completed */
    /* of requests that were SENT: from the first piece taken to the last one completed */
    struct hlg_histogram transfer_ns;
    uint64_t beyond_grant; /* REQUESTs rejected because their peer's grant was used up */
};
/* As of now; busy_ns up to the machine's last event. */
void hlg_prefill_stats(const struct hlg_prefill *p, struct hlg_prefill_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
