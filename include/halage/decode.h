/*
 * The decode machine: hands pages out to prefillers, counts immediates, says READY when a request is
 * whole, and gives pages back only when nothing can land in them any more (I1). Pure, like prefill.h.
 */
#ifndef HALAGE_DECODE_H
#define HALAGE_DECODE_H

#include "action.h"
#include "event.h"
#include "metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_decode;

struct hlg_decode_config {
    struct hlg_limits limits;
    struct hlg_layout layout;
    uint32_t rails;
    uint64_t node;
    uint64_t incarnation;
    uint8_t fingerprint[HLG_FINGERPRINT_BYTES];
    bool flush;        /* before the device sees, or pages return, bytes that landed need a FLUSH */
    bool acknowledged; /* the transport's DONE_WRITE does not mean placed; the pump sets it */
};

/* As hlg_prefill_size() and hlg_prefill_init(). */
size_t hlg_decode_size(const struct hlg_decode_config *config);
struct hlg_decode *hlg_decode_init(void *memory, const struct hlg_decode_config *config);

/* As hlg_prefill_*. SUBMIT returns 0 and hlg_decode_submitted() then names the request. */
int hlg_decode_handle(struct hlg_decode *d, const struct hlg_event *event);
int hlg_decode_next(struct hlg_decode *d, uint32_t lane, unsigned kinds, struct hlg_action *action);
hlg_time hlg_decode_deadline(const struct hlg_decode *d);
int hlg_decode_check(const struct hlg_decode *d);
uint32_t hlg_decode_open(const struct hlg_decode *d);

/* Handle that the last successful SUBMIT made. */
hlg_handle hlg_decode_submitted(const struct hlg_decode *d);

/* Pages of one group that an open request names, and its pool; the list is that of its SUBMIT, which is kept for
 * this until the request is over. False then. For a driver that carries out FLUSH. */
bool hlg_decode_pages(const struct hlg_decode *d, hlg_handle request, uint32_t group,
                      uint32_t *pool, struct hlg_page_list *pages);

struct hlg_decode_stats {
    uint64_t pages_quarantined; /* of failed requests: a late write may still land */
    uint64_t pages_poisoned;    /* for ever */
    hlg_time busy_ns; /* in which at least one request had something landed and was not whole */
};
/* As of now; busy_ns up to the machine's last event. */
void hlg_decode_stats(const struct hlg_decode *d, struct hlg_decode_stats *stats);

/* What a page of a pool is to the machine; tests check every landing against it. */
enum hlg_page_state {
    HLG_PAGE_FREE = 0,
    HLG_PAGE_OWNED,       /* of an open request: its sources may write */
    HLG_PAGE_QUARANTINED, /* of an ended request: a late write may still land */
    HLG_PAGE_POISONED,
};
/* State of a page, `page` < the group's page_count, and the request that owns it: 0 for none. O(1). */
enum hlg_page_state hlg_decode_page(const struct hlg_decode *d, uint32_t pool, uint32_t group,
                                    uint32_t page, hlg_handle *owner);

#ifdef __cplusplus
}
#endif

#endif
