/*
 * What the core thread measures, and how it reads as text. One writer, the core thread; readers get a
 * copy. Recording costs O(1) a request, a notice or a counter value, and nothing a page.
 */
#ifndef HALAGE_MESSENGER_METRICS_H
#define HALAGE_MESSENGER_METRICS_H

#include <halage/messenger.h>
#include <halage/metrics.h>
#include <halage/pump.h>

enum metrics_status {
    METRICS_COMPLETED = 0,
    METRICS_FAILED,
    METRICS_EXPIRED,
    METRICS_CANCELLED,
    METRICS_STATUSES,
};

enum metrics_queue {
    METRICS_QUEUE_COMMANDS = 0,
    METRICS_QUEUE_REPORTS,
    METRICS_QUEUE_LAYERS,
    METRICS_QUEUE_DIALS,
    METRICS_QUEUES,
};

/* Of messages and immediates that should not have come. */
enum metrics_bad {
    METRICS_BAD_UNEXPECTED = 0, /* not in this state of the session, or not from this side */
    METRICS_BAD_FOREIGN,        /* an answer that names another run of the peer */
    METRICS_BAD_PIECES,         /* the two sides count differently */
    METRICS_BAD_CREDIT,         /* more than was used, or less than before */
    METRICS_BADS,
};

#define METRICS_REASONS 16u /* more than enum hlg_reason has */
#define METRICS_ENDS    16u /* more than enum session_end has */
#define METRICS_NOTES   64u /* more than enum hlg_note_code has */

/* Lines of one kind of note in a second; the rest are counted. */
#define METRICS_LINES_MAX 10u

struct metrics {
    uint32_t role;  /* enum hlg_role */
    hlg_time shown; /* metrics_clock() of this copy */
    struct hlg_messenger_stats stats;
    struct hlg_pump_stats pump;
    struct hlg_copy_stats copies; /* of the fabric */
    uint64_t requests[METRICS_STATUSES];
    uint64_t failures[METRICS_REASONS];
    uint64_t pages; /* of completed requests */
    uint64_t late;  /* pieces of immediates, by what was wrong with them */
    uint64_t stale;
    uint64_t unknown;
    uint64_t early;
    uint64_t excess; /* immediates */
    uint64_t bad[METRICS_BADS];
    uint64_t sessions_ended[METRICS_ENDS];
    uint64_t sessions_refused;
    uint64_t fence_timeouts;
    uint64_t lines_suppressed;
    uint64_t queues[METRICS_QUEUES];
    hlg_time busy_ns; /* of the machine */
    struct hlg_histogram request_ns;
    struct hlg_histogram transfer_ns; /* prefill: of the machine, when shown */
    struct hlg_histogram transfer_rate;
    struct hlg_histogram queue_ns;
    struct hlg_histogram handshake_ns;
    struct hlg_histogram read_ns;
};

/* Lines of a kind of note in the present second. */
struct metrics_lines {
    hlg_time second;
    uint32_t count;
    uint64_t suppressed; /* since the last line that said how many */
};

/* Nanoseconds of CLOCK_MONOTONIC; for what two threads measure between them. */
hlg_time metrics_clock(void);

/*
 * A notice of a request. READY, SENT, FAILED and STOPPING end it, once.
 *
 * begun  prefill: when its REQUESTED was noticed; 0: not known
 * pages  that the request names, contexts included
 */
void metrics_notice(struct metrics *x, const struct hlg_notice *notice, hlg_time begun,
                    uint64_t pages);
/* A request that ended without a notice: the engine rejected it, or the machine would not take it. */
void metrics_failed(struct metrics *x, uint32_t reason);
void metrics_note(struct metrics *x, const struct hlg_note *note);

/* Whether one more line of a kind may be logged now; when *suppressed is not 0, so many were not, and the
 * log should say so. */
bool metrics_line(struct metrics_lines *lines, hlg_time now, uint64_t *suppressed);

/* Pages that are lost for ever. */
uint64_t metrics_poisoned(const struct metrics *x);
/* enum hlg_messenger_health of a copy; `now` of metrics_clock(). */
int metrics_health(const struct metrics *x, hlg_time now);

/* Prometheus' text format. Returns bytes of the whole text without its final 0, of which as much as fits
 * `text` [bytes] is written, and a 0 if bytes > 0. */
int metrics_text(const struct metrics *x, hlg_time now, char *text, size_t bytes);

#endif
