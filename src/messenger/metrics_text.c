/* Metrics as text: one table, a row for each series, rows of one name next to each other. Names and
 * meanings are also in docs/metrics.md, which a test compares. */
#include "metrics.h"

#include "../core/session.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum row_kind {
    ROW_COUNT,       /* counter, uint64_t */
    ROW_COUNT_TIME,  /* counter of seconds, from ns */
    ROW_GAUGE,       /* uint64_t */
    ROW_GAUGE_SMALL, /* uint32_t */
    ROW_TIMES,       /* histogram of seconds, from ns */
    ROW_SIZES,       /* histogram of bytes */
    ROW_RATES,       /* histogram of bytes a second */
    ROW_DERIVED,     /* gauge, by derive() */
};

/* What is worked out when it is read. */
enum derived {
    DERIVED_THROUGHPUT,
    DERIVED_PIECES,
    DERIVED_AGE,
    DERIVED_HEALTHY,
    DERIVED_POISONED,
};

struct row {
    const char *name; /* without the prefix */
    const char *label;
    const char *help;
    enum row_kind kind;
    size_t at; /* in struct metrics; enum derived */
};

#define AT(field) offsetof(struct metrics, field)

static const struct row rows[] = {
    /* requests */
    {"requests_started_total", "", "Requests submitted (decode) or received (prefill)", ROW_COUNT,
     AT(stats.requests_submitted)},
    {"requests_total", "status=\"completed\"", "Requests that ended, each once, by how", ROW_COUNT,
     AT(requests[METRICS_COMPLETED])},
    {"requests_total", "status=\"failed\"", NULL, ROW_COUNT, AT(requests[METRICS_FAILED])},
    {"requests_total", "status=\"expired\"", NULL, ROW_COUNT, AT(requests[METRICS_EXPIRED])},
    {"requests_total", "status=\"cancelled\"", NULL, ROW_COUNT, AT(requests[METRICS_CANCELLED])},
    {"requests_expired_total", "", "Requests whose time was up; not among the failures", ROW_COUNT,
     AT(requests[METRICS_EXPIRED])},
    {"failures_total", "reason=\"rejected\"", "Requests that failed, by reason", ROW_COUNT,
     AT(failures[HLG_REASON_REJECTED])},
    {"failures_total", "reason=\"peer\"", NULL, ROW_COUNT, AT(failures[HLG_REASON_PEER])},
    {"failures_total", "reason=\"protocol\"", NULL, ROW_COUNT, AT(failures[HLG_REASON_PROTOCOL])},
    {"failures_total", "reason=\"local\"", NULL, ROW_COUNT, AT(failures[HLG_REASON_LOCAL])},
    {"failures_total", "reason=\"preempted\"", NULL, ROW_COUNT, AT(failures[HLG_REASON_PREEMPTED])},
    {"failures_total", "reason=\"none\"", NULL, ROW_COUNT, AT(failures[HLG_REASON_NONE])},
    {"requests_poisoned_total", "", "Failed requests whose pages can never be used again",
     ROW_COUNT, AT(stats.requests_poisoned)},
    {"requests_open", "", "Requests open in the machine", ROW_GAUGE_SMALL, AT(stats.requests_open)},
    {"commands_refused_total", "", "Engine's commands that the core would not take", ROW_COUNT,
     AT(stats.commands_refused)},
    /* how long */
    {"request_seconds", "",
     "Per completed request: submitted until the last piece was counted (decode), received until "
     "all "
     "writes completed (prefill)",
     ROW_TIMES, AT(request_ns)},
    {"transfer_seconds", "",
     "Per completed request: first until last piece counted (decode) or written (prefill)",
     ROW_TIMES, AT(transfer_ns)},
    {"queue_seconds", "",
     "Per request: submitted until all prefillers took it (decode), received until admitted "
     "(prefill)",
     ROW_TIMES, AT(queue_ns)},
    {"post_seconds", "", "Per paged write: made until the transport had taken all of it", ROW_TIMES,
     AT(pump.prefill.post_ns)},
    {"layer_lag_seconds", "stage=\"read\"",
     "Counter value read until the core had it (read, per value); from then until a paged write of "
     "that layer was taken (posted) and had completed (done)",
     ROW_TIMES, AT(read_ns)},
    {"layer_lag_seconds", "stage=\"posted\"", NULL, ROW_TIMES, AT(pump.prefill.posted_ns)},
    {"layer_lag_seconds", "stage=\"done\"", NULL, ROW_TIMES, AT(pump.prefill.done_ns)},
    {"handshake_seconds", "", "Per session: connected until both sides had greeted", ROW_TIMES,
     AT(handshake_ns)},
    /* how much */
    {"bytes_total", "direction=\"out\"",
     "KV and context bytes taken by the transport (out), of completed requests (in)", ROW_COUNT,
     AT(pump.bytes_posted)},
    {"bytes_total", "direction=\"in\"", NULL, ROW_COUNT, AT(stats.bytes_ready)},
    {"pages_total", "", "Pages and contexts of completed requests", ROW_COUNT, AT(pages)},
    {"writes_total", "", "Paged writes wholly taken by the transport", ROW_COUNT,
     AT(pump.prefill.write_bytes.count)},
    {"write_bytes", "", "Per paged write: its bytes", ROW_SIZES, AT(pump.prefill.write_bytes)},
    {"writes_refused_total", "", "Offers of which the transport took nothing", ROW_COUNT,
     AT(pump.writes_refused)},
    {"pieces_total", "state=\"posted\"", "Contiguous pieces of paged writes", ROW_COUNT,
     AT(pump.pieces_posted)},
    {"pieces_total", "state=\"done\"", NULL, ROW_COUNT, AT(pump.pieces_done)},
    {"pieces_total", "state=\"failed\"", NULL, ROW_COUNT, AT(pump.pieces_failed)},
    {"pieces_total", "state=\"counted\"", NULL, ROW_COUNT, AT(pump.pieces_counted)},
    {"inflight_writes", "", "Paged writes begun and not completed", ROW_GAUGE,
     AT(pump.prefill.writes_in_flight)},
    {"inflight_pieces", "", "Pieces posted and not completed", ROW_DERIVED, DERIVED_PIECES},
    {"busy_seconds_total", "",
     "Time in which anything was in flight, however much: the union of all transfers",
     ROW_COUNT_TIME, AT(busy_ns)},
    {"throughput_bytes_per_second", "",
     "Of the node since it started: bytes over busy seconds; not the sum of its transfers' rates",
     ROW_DERIVED, DERIVED_THROUGHPUT},
    {"transfer_bytes_per_second", "", "Per completed request (decode): its bytes over its transfer",
     ROW_RATES, AT(transfer_rate)},
    {"layers_total", "when=\"early\"",
     "Layers posted before their forward pass ended (early) or not (late), per chunk and rank",
     ROW_COUNT, AT(pump.layers_early)},
    {"layers_total", "when=\"late\"", NULL, ROW_COUNT, AT(pump.layers_late)},
    {"staged_bytes_total", "direction=\"out\"",
     "Bytes copied from GPUs to be sent (out), to GPUs after they came (in); 0 without the staged "
     "path",
     ROW_COUNT, AT(copies.bytes_out)},
    {"staged_bytes_total", "direction=\"in\"", NULL, ROW_COUNT, AT(copies.bytes_in)},
    {"staged_copies_total", "direction=\"out\"", "Copies of the driver for that", ROW_COUNT,
     AT(copies.copies_out)},
    {"staged_copies_total", "direction=\"in\"", NULL, ROW_COUNT, AT(copies.copies_in)},
    {"staged_waits_total", "", "Offers of which nothing was taken for want of a slot", ROW_COUNT,
     AT(copies.waits)},
    {"staged_pinned_bytes", "", "Pinned host memory of the staged path", ROW_GAUGE,
     AT(copies.pinned_bytes)},
    /* what should not be */
    {"late_immediates_total", "", "Pieces counted after their request had failed", ROW_COUNT,
     AT(late)},
    {"stale_immediates_total", "", "Pieces of an older use of a counter; not counted", ROW_COUNT,
     AT(stale)},
    {"unknown_immediates_total", "", "Pieces of a counter never used; not counted", ROW_COUNT,
     AT(unknown)},
    {"early_immediates_total", "", "Pieces counted before their request was sent", ROW_COUNT,
     AT(early)},
    {"excess_immediates_total", "", "Immediates that went beyond what their request expects",
     ROW_COUNT, AT(excess)},
    {"quarantined_pages", "", "Pages of failed requests in which a write may still land", ROW_GAUGE,
     AT(pump.decode.pages_quarantined)},
    {"poisoned_pages", "", "Pages that can never be used again", ROW_DERIVED, DERIVED_POISONED},
    {"bad_messages_total", "reason=\"malformed\"", "Messages that break the protocol, by how",
     ROW_COUNT, AT(pump.frames_malformed)},
    {"bad_messages_total", "reason=\"unexpected\"", NULL, ROW_COUNT,
     AT(bad[METRICS_BAD_UNEXPECTED])},
    {"bad_messages_total", "reason=\"foreign\"", NULL, ROW_COUNT, AT(bad[METRICS_BAD_FOREIGN])},
    {"bad_messages_total", "reason=\"pieces\"", NULL, ROW_COUNT, AT(bad[METRICS_BAD_PIECES])},
    {"bad_messages_total", "reason=\"credit\"", NULL, ROW_COUNT, AT(bad[METRICS_BAD_CREDIT])},
    {"bad_messages_total", "reason=\"grant\"", NULL, ROW_COUNT, AT(pump.prefill.beyond_grant)},
    {"fence_timeouts_total", "", "Cancels that were not confirmed in time: the session ended",
     ROW_COUNT, AT(fence_timeouts)},
    /* peers */
    {"peers_up", "", "Sessions that requests may use", ROW_GAUGE_SMALL, AT(stats.peers_up)},
    {"leases_expired_total", "", "Sessions ended because their peer was silent", ROW_COUNT,
     AT(sessions_ended[SESSION_END_SILENCE])},
    {"sessions_ended_total", "reason=\"channel\"", "Sessions that ended, by reason", ROW_COUNT,
     AT(sessions_ended[SESSION_END_CHANNEL])},
    {"sessions_ended_total", "reason=\"silence\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_SILENCE])},
    {"sessions_ended_total", "reason=\"bye\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_BYE])},
    {"sessions_ended_total", "reason=\"protocol\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_PROTOCOL])},
    {"sessions_ended_total", "reason=\"replaced\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_REPLACED])},
    {"sessions_ended_total", "reason=\"shared\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_SHARED])},
    {"sessions_ended_total", "reason=\"fence\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_FENCE])},
    {"sessions_ended_total", "reason=\"asked\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_ASKED])},
    {"sessions_ended_total", "reason=\"outbox\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_OUTBOX])},
    {"sessions_ended_total", "reason=\"writes\"", NULL, ROW_COUNT,
     AT(sessions_ended[SESSION_END_WRITES])},
    {"sessions_refused_total", "", "Greetings between nodes that cannot work together", ROW_COUNT,
     AT(sessions_refused)},
    {"connections_refused_total", "reason=\"version\"",
     "Connections that were not let in, or ended for their key, by reason", ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_VERSION])},
    {"connections_refused_total", "reason=\"plain\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_PLAIN])},
    {"connections_refused_total", "reason=\"key\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_KEY])},
    {"connections_refused_total", "reason=\"altered\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_ALTERED])},
    {"connections_refused_total", "reason=\"long\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_LONG])},
    {"connections_refused_total", "reason=\"identity\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_IDENTITY])},
    {"connections_refused_total", "reason=\"by_peer\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_BY_PEER])},
    {"connections_refused_total", "reason=\"frame\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_FRAME])},
    {"connections_refused_total", "reason=\"silence\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_SILENCE])},
    {"connections_refused_total", "reason=\"crowded\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_CROWDED])},
    {"connections_refused_total", "reason=\"gone\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_GONE])},
    {"connections_refused_total", "reason=\"address\"", NULL, ROW_COUNT,
     AT(stats.peers_refused[HLG_REFUSED_ADDRESS])},
    {"messages_total", "direction=\"out\"", "Control messages", ROW_COUNT, AT(pump.frames_sent)},
    {"messages_total", "direction=\"in\"", NULL, ROW_COUNT, AT(pump.frames_received)},
    /* the library itself */
    {"queue_depth", "queue=\"commands\"", "Entries that wait between threads", ROW_GAUGE,
     AT(queues[METRICS_QUEUE_COMMANDS])},
    {"queue_depth", "queue=\"reports\"", NULL, ROW_GAUGE, AT(queues[METRICS_QUEUE_REPORTS])},
    {"queue_depth", "queue=\"layers\"", NULL, ROW_GAUGE, AT(queues[METRICS_QUEUE_LAYERS])},
    {"queue_depth", "queue=\"dials\"", NULL, ROW_GAUGE, AT(queues[METRICS_QUEUE_DIALS])},
    {"log_lines_suppressed_total", "", "Log lines left out because there were too many of a kind",
     ROW_COUNT, AT(lines_suppressed)},
    {"core_loops_total", "", "Rounds of the core thread", ROW_COUNT, AT(stats.core_loops)},
    {"core_sleeps_total", "", "Sleeps of the core thread", ROW_COUNT, AT(stats.core_sleeps)},
    {"core_age_seconds", "", "Since the core thread was last seen moving", ROW_DERIVED,
     DERIVED_AGE},
    {"healthy", "", "1: hlg_messenger_health() is good; 0: poisoned or stuck", ROW_DERIVED,
     DERIVED_HEALTHY},
};

struct out {
    char *text;
    size_t capacity;
    size_t bytes; /* of the whole, written or not */
};

__attribute__((format(printf, 2, 3))) static void put(struct out *o, const char *format, ...)
{
    const size_t room = o->bytes < o->capacity ? o->capacity - o->bytes : 0;
    va_list arguments;

    va_start(arguments, format);
    int bytes = vsnprintf(room > 0 ? o->text + o->bytes : NULL, room, format,
                          arguments); /* NOLINT(clang-analyzer-valist.*) */
    va_end(arguments);
    HLG_ASSERT(bytes >= 0);
    o->bytes += (size_t)bytes;
}

/* Seconds without floating point: no locale, no rounding. */
static void put_seconds(struct out *o, hlg_time ns)
{
    put(o, "%llu.%09llu", ns / HLG_NS_PER_S, ns % HLG_NS_PER_S);
}

/* Name and labels, the brace still open. */
static void put_series(struct out *o, const struct metrics *x, const struct row *row,
                       const char *suffix)
{
    const char *side = x->role == HLG_ROLE_PREFILL ? "prefill" : "decode";

    put(o, "halage_%s%s{side=\"%s\"%s%s", row->name, suffix, side, row->label[0] != '\0' ? "," : "",
        row->label);
}

static void put_value(struct out *o, const struct row *row, uint64_t value)
{
    if (row->kind == ROW_TIMES || row->kind == ROW_COUNT_TIME) {
        put_seconds(o, value);
    } else {
        put(o, "%" PRIu64, value);
    }
}

static void put_histogram(struct out *o, const struct metrics *x, const struct row *row,
                          const struct hlg_histogram *h)
{
    const uint32_t first = row->kind == ROW_TIMES   ? HLG_HISTOGRAM_TIME
                           : row->kind == ROW_SIZES ? HLG_HISTOGRAM_BYTES
                                                    : HLG_HISTOGRAM_RATE;
    uint64_t below = 0;

    for (uint32_t i = 0; i < HLG_HISTOGRAM_BUCKETS; i++) {
        below += h->buckets[i];
        put_series(o, x, row, "_bucket");
        put(o, ",le=\"");
        put_value(o, row, 1ull << (first + i));
        put(o, "\"} %" PRIu64 "\n", below);
    }
    put_series(o, x, row, "_bucket");
    put(o, ",le=\"+Inf\"} %" PRIu64 "\n", h->count);
    put_series(o, x, row, "_sum");
    put(o, "} ");
    put_value(o, row, h->sum);
    put(o, "\n");
    put_series(o, x, row, "_count");
    put(o, "} %" PRIu64 "\n", h->count);
}

static uint64_t throughput(const struct metrics *x)
{
    const bool prefill = x->role == HLG_ROLE_PREFILL;
    const uint64_t bytes = prefill ? x->pump.bytes_posted : x->stats.bytes_ready;

    return x->busy_ns == 0 ? 0
                           : (uint64_t)((double)bytes * (double)HLG_NS_PER_S / (double)x->busy_ns);
}

static void put_derived(struct out *o, const struct metrics *x, enum derived what, hlg_time now)
{
    switch (what) {
    case DERIVED_THROUGHPUT:
        put(o, "%" PRIu64, throughput(x));
        return;
    case DERIVED_PIECES:
        put(o, "%" PRIu64, x->pump.pieces_posted - x->pump.pieces_done - x->pump.pieces_failed);
        return;
    case DERIVED_AGE:
        put_seconds(o, now > x->shown ? now - x->shown : 0);
        return;
    case DERIVED_HEALTHY:
        put(o, "%d", metrics_health(x, now) == HLG_HEALTH_GOOD);
        return;
    case DERIVED_POISONED:
        put(o, "%" PRIu64, metrics_poisoned(x));
        return;
    }
}

static const char *type_of(enum row_kind kind)
{
    switch (kind) {
    case ROW_COUNT:
    case ROW_COUNT_TIME:
        return "counter";
    case ROW_GAUGE:
    case ROW_GAUGE_SMALL:
    case ROW_DERIVED:
        return "gauge";
    case ROW_TIMES:
    case ROW_SIZES:
    case ROW_RATES:
        return "histogram";
    }
    hlg_unreachable();
}

static void put_row(struct out *o, const struct metrics *x, const struct row *row, hlg_time now)
{
    const char *at = (const char *)x + row->at;

    if (row->help != NULL) {
        put(o, "# HELP halage_%s %s\n# TYPE halage_%s %s\n", row->name, row->help, row->name,
            type_of(row->kind));
    }
    if (row->kind == ROW_TIMES || row->kind == ROW_SIZES || row->kind == ROW_RATES) {
        put_histogram(o, x, row, (const struct hlg_histogram *)(const void *)at);
        return;
    }
    put_series(o, x, row, "");
    put(o, "} ");
    if (row->kind == ROW_DERIVED) {
        put_derived(o, x, (enum derived)row->at, now);
    } else if (row->kind == ROW_GAUGE_SMALL) {
        put(o, "%" PRIu32, *(const uint32_t *)(const void *)at);
    } else {
        put_value(o, row, *(const uint64_t *)(const void *)at);
    }
    put(o, "\n");
}

int metrics_text(const struct metrics *x, hlg_time now, char *text, size_t bytes)
{
    struct out o = {.text = text, .capacity = bytes};

    if (bytes > 0) {
        text[0] = '\0';
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_row(&o, x, &rows[i], now);
    }
    HLG_ASSERT(o.bytes <= INT32_MAX);
    return (int)o.bytes;
}
