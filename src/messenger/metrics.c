/* Recording, on the core thread. What cannot be counted is left out: nothing here can fail, so that
 * measuring never changes what becomes of a request. */
#define _GNU_SOURCE /* clock_gettime */
#include "metrics.h"

#include "../core/note.h"
#include "../core/session.h"

#include <time.h>

#define STUCK_NS (5 * HLG_NS_PER_S)

_Static_assert(HLG_REASON_PREEMPTED < METRICS_REASONS, "a reason more");
_Static_assert(SESSION_END_WRITES < METRICS_ENDS, "an end more");
_Static_assert(HLG_NOTE_COUNT <= METRICS_NOTES, "a note more");

hlg_time metrics_clock(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail on Linux */
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

static void add_time(struct hlg_histogram *h, hlg_time begin, hlg_time end)
{
    hlg_histogram_add(h, HLG_HISTOGRAM_TIME, end > begin ? end - begin : 0);
}

/* Bytes a second of one transfer; what took no time at all has no rate. */
static void add_rate(struct metrics *x, uint64_t bytes, hlg_time span)
{
    if (span > 0) {
        const double rate = (double)bytes * (double)HLG_NS_PER_S / (double)span;
        hlg_histogram_add(&x->transfer_rate, HLG_HISTOGRAM_RATE,
                          rate < 1e18 ? (uint64_t)rate : (uint64_t)1e18);
    }
}

void metrics_failed(struct metrics *x, uint32_t reason)
{
    switch ((enum hlg_reason)reason) {
    case HLG_REASON_DEADLINE:
        x->requests[METRICS_EXPIRED]++;
        return;
    case HLG_REASON_CANCELLED:
        x->requests[METRICS_CANCELLED]++;
        return;
    case HLG_REASON_NONE:
    case HLG_REASON_REJECTED:
    case HLG_REASON_PEER:
    case HLG_REASON_PROTOCOL:
    case HLG_REASON_LOCAL:
    case HLG_REASON_PREEMPTED:
        break;
    }
    x->requests[METRICS_FAILED]++;
    x->failures[reason < METRICS_REASONS ? reason : 0]++;
}

void metrics_notice(struct metrics *x, const struct hlg_notice *n, hlg_time begun, uint64_t pages)
{
    switch ((enum hlg_notice_kind)n->kind) {
    case HLG_NOTICE_ACCEPTED:
        add_time(&x->queue_ns, n->submitted, n->noticed);
        return;
    case HLG_NOTICE_READY:
        x->requests[METRICS_COMPLETED]++;
        x->pages += pages;
        /* Ends with the last piece counted: what the engine does later is not ours (H-03). A request
           without pieces was ready at once. */
        if (n->last_piece > 0) {
            add_time(&x->request_ns, n->submitted, n->last_piece);
            add_time(&x->transfer_ns, n->first_piece, n->last_piece);
            add_rate(x, n->bytes, n->last_piece - n->first_piece);
        } else {
            add_time(&x->request_ns, n->submitted, n->submitted);
        }
        return;
    case HLG_NOTICE_SENT:
        x->requests[METRICS_COMPLETED]++;
        x->pages += pages;
        add_time(&x->request_ns, begun, n->noticed);
        return;
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_STOPPING:
        metrics_failed(x, n->reason);
        return;
    case HLG_NOTICE_REQUESTED:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
    case HLG_NOTICE_PEER_UP:
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
        return;
    }
}

void metrics_note(struct metrics *x, const struct hlg_note *note)
{
    switch (note->code) {
    case HLG_NOTE_SESSION_DOWN:
        x->sessions_ended[note->a < METRICS_ENDS ? note->a : 0]++;
        break;
    case HLG_NOTE_SESSION_REFUSED:
        x->sessions_refused++;
        break;
    case HLG_NOTE_IMM_LATE:
        x->late += note->b;
        break;
    case HLG_NOTE_IMM_STALE:
        x->stale += note->b;
        break;
    case HLG_NOTE_IMM_UNKNOWN:
        x->unknown += note->b;
        break;
    case HLG_NOTE_IMM_EARLY:
        x->early += note->b;
        break;
    case HLG_NOTE_IMM_EXCESS:
        x->excess++;
        break;
    case HLG_NOTE_MESSAGE_UNEXPECTED:
        x->bad[METRICS_BAD_UNEXPECTED]++;
        break;
    case HLG_NOTE_ANSWER_FOREIGN:
        x->bad[METRICS_BAD_FOREIGN]++;
        break;
    case HLG_NOTE_PIECES_DIFFER:
        x->bad[METRICS_BAD_PIECES]++;
        break;
    case HLG_NOTE_CREDIT_BACKWARD:
    case HLG_NOTE_GRANT_BACKWARD:
        x->bad[METRICS_BAD_CREDIT]++;
        break;
    case HLG_NOTE_FENCE_TIMEOUT:
        x->fence_timeouts++;
        break;
    default: /* worth a line in the log, and no number */
        break;
    }
}

bool metrics_line(struct metrics_lines *lines, hlg_time now, uint64_t *suppressed)
{
    *suppressed = 0;
    if (now - lines->second >= HLG_NS_PER_S) {
        *suppressed = lines->suppressed;
        *lines = (struct metrics_lines){.second = now};
    }
    if (lines->count == METRICS_LINES_MAX) {
        lines->suppressed++;
        return false;
    }
    lines->count++;
    return true;
}

uint64_t metrics_poisoned(const struct metrics *x)
{
    return x->pump.decode.pages_poisoned + x->pump.prefill.pages_poisoned; /* of one of the two */
}

int metrics_health(const struct metrics *x, hlg_time now)
{
    if (now > x->shown && now - x->shown > STUCK_NS) {
        return HLG_HEALTH_STUCK;
    }
    return metrics_poisoned(x) > 0 ? HLG_HEALTH_POISONED : HLG_HEALTH_GOOD;
}
