/*
 * What is measured, and how it reads. The reports of users on other engines' numbers (group H) are cases
 * here: throughput that divides by overlapping times, latencies that end too late, expiry among failures,
 * numbers whose unit or scope nobody knows, log lines that say nothing. The text is read by a strict
 * parser (tests/support/exposition.h), of made-up figures and of a real pair over libfabric.
 */
#include "../support/duo.h"
#include "../support/exposition.h"

#include "core/fact.h"
#include "core/note.h"
#include "core/session.h"
#include "messenger/metrics.h"

#include <halage/log.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_BYTES 65536u
#define GB         1000000000ull
#define S          HLG_NS_PER_S

static char text[TEXT_BYTES];

static const char *make_text(const struct metrics *x, hlg_time now)
{
    const int bytes = metrics_text(x, now, text, sizeof text);

    assert_true(bytes > 0 && bytes < (int)sizeof text);
    assert_int_equal(strlen(text), bytes);
    const char *fault = exposition_fault(text);
    if (fault != NULL) {
        fail_msg("%s", fault);
    }
    return text;
}

static bool is_near(double a, double b)
{
    return a >= b - 1e-9 * b && a <= b + 1e-9 * b;
}

static void expect(const char *series, double value)
{
    const double found = exposition_value(text, series);

    if (!is_near(found, value)) {
        fail_msg("%s: %.9g, not %.9g", series, found, value);
    }
}

/* ---- Histograms and intervals ---- */

static void values_fall_into_the_bucket_that_bounds_them(void **state)
{
    struct hlg_histogram h = {0};

    (void)state;
    hlg_histogram_add(&h, 10, 0);
    hlg_histogram_add(&h, 10, 1024);
    assert_int_equal(h.buckets[0], 2);
    hlg_histogram_add(&h, 10, 1025);
    hlg_histogram_add(&h, 10, 2048);
    assert_int_equal(h.buckets[1], 2);
    hlg_histogram_add(&h, 10, 2049);
    assert_int_equal(h.buckets[2], 1);
    hlg_histogram_add(&h, 10, 1ull << 37);
    assert_int_equal(h.buckets[HLG_HISTOGRAM_BUCKETS - 1], 1);
    assert_int_equal(h.sum, 1024 + 1025 + 2048 + 2049 + (1ull << 37));
    hlg_histogram_add(&h, 10, (1ull << 37) + 1);
    hlg_histogram_add(&h, 10, UINT64_MAX);
    assert_int_equal(h.count, 8);
    assert_int_equal(h.sum, UINT64_MAX); /* saturates */
    uint64_t below = 0;
    for (uint32_t i = 0; i < HLG_HISTOGRAM_BUCKETS; i++) {
        below += h.buckets[i];
    }
    assert_int_equal(below, 6);
}

static void busy_time_is_the_union_of_intervals(void **state)
{
    struct hlg_busy b = {0};

    (void)state;
    hlg_busy_begin(&b, 10);
    hlg_busy_begin(&b, 12);
    assert_int_equal(hlg_busy_total(&b, 15), 5);
    hlg_busy_end(&b, 20);
    hlg_busy_end(&b, 30);
    assert_int_equal(hlg_busy_total(&b, 100), 20);
    hlg_busy_begin(&b, 100);
    hlg_busy_end(&b, 100);
    hlg_busy_begin(&b, 200);
    assert_int_equal(hlg_busy_total(&b, 201), 21);
}

static void facts_are_not_older_than_their_layer(void **state)
{
    struct carve c = {0};
    struct facts f = {0};

    (void)state;
    facts_init(&f, &c, 2, 5);
    void *memory = calloc(1, c.used + 64);
    assert_non_null(memory);
    c = (struct carve){.base = memory};
    facts_init(&f, &c, 2, 5);
    facts_tick(&f, 1, 7, 2, 100);
    facts_tick(&f, 1, 7, 4, 200);
    assert_int_equal(facts_at(&f, 1, 7, 0), 100);
    assert_int_equal(facts_at(&f, 1, 7, 1), 100);
    assert_int_equal(facts_at(&f, 1, 7, 2), 200);
    assert_int_equal(facts_at(&f, 1, 7, 3), 200);
    assert_int_equal(facts_at(&f, 0, 7, 0), 0);   /* the other word was never ticked */
    facts_tick(&f, 1, 8, 255, 300);               /* more than there are */
    assert_int_equal(facts_at(&f, 1, 7, 0), 300); /* the newer one's: a lag is understated */
    assert_int_equal(facts_at(&f, 1, 8, 4), 300);
    facts_end(&f, 400);
    assert_int_equal(facts_at(&f, 1, 8, 4), 300);
    assert_int_equal(facts_at(&f, 1, 9, 4), 400); /* ended without a stamp */
    free(memory);
}

/* ---- Group H ---- */

/* H-01: four transfers of 1 GB in the same second are 4 GB/s of the node and 1 GB/s each. */
static void throughput_is_of_the_node_and_not_a_sum_of_rates(void **state)
{
    struct metrics x = {.role = HLG_ROLE_DECODE};
    struct hlg_busy busy = {0};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        hlg_busy_begin(&busy, 5 * S);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const struct hlg_notice ready = {.kind = HLG_NOTICE_READY,
                                         .bytes = GB,
                                         .submitted = 4 * S,
                                         .accepted = 4 * S,
                                         .first_piece = 5 * S,
                                         .last_piece = 6 * S,
                                         .noticed = 6 * S};
        hlg_busy_end(&busy, 6 * S);
        metrics_notice(&x, &ready, 0, 3);
        x.stats.bytes_ready += ready.bytes;
    }
    x.busy_ns = hlg_busy_total(&busy, 9 * S);
    make_text(&x, 0);
    expect("halage_throughput_bytes_per_second{side=\"decode\"}", 4.0 * (double)GB);
    expect("halage_busy_seconds_total{side=\"decode\"}", 1);
    expect("halage_transfer_bytes_per_second_sum{side=\"decode\"}", 4.0 * (double)GB);
    expect("halage_transfer_bytes_per_second_count{side=\"decode\"}", 4);
    expect("halage_pages_total{side=\"decode\"}", 12);
}

/* H-03: the end is the last piece counted, whenever the engine gets to hear of it. */
static void a_request_ends_with_its_last_piece(void **state)
{
    struct metrics x = {.role = HLG_ROLE_DECODE};
    const struct hlg_notice ready = {.kind = HLG_NOTICE_READY,
                                     .submitted = 1 * S,
                                     .first_piece = 2 * S,
                                     .last_piece = 4 * S,
                                     .noticed = 90 * S};

    (void)state;
    metrics_notice(&x, &ready, 0, 0);
    make_text(&x, 0);
    expect("halage_request_seconds_sum{side=\"decode\"}", 3);
    expect("halage_transfer_seconds_sum{side=\"decode\"}", 2);
    expect("halage_request_seconds_bucket{side=\"decode\",le=\"2.147483648\"}", 0);
    expect("halage_request_seconds_bucket{side=\"decode\",le=\"4.294967296\"}", 1);
}

/* H-05: what expired, what was cancelled, what failed and what lost its peer are told apart. */
static void expiry_is_not_a_failure(void **state)
{
    static const uint32_t reasons[] = {HLG_REASON_DEADLINE, HLG_REASON_DEADLINE,
                                       HLG_REASON_CANCELLED, HLG_REASON_PEER, HLG_REASON_PROTOCOL};
    struct metrics x = {.role = HLG_ROLE_PREFILL};

    (void)state;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        const struct hlg_notice stop = {.kind = HLG_NOTICE_STOPPING, .reason = reasons[i]};
        const struct hlg_notice over = {.kind = HLG_NOTICE_FENCED, .reason = reasons[i]};
        metrics_notice(&x, &stop, 0, 9);
        metrics_notice(&x, &over, 0, 9); /* the same request: not twice */
    }
    const struct hlg_note silent = {.code = HLG_NOTE_SESSION_DOWN, .a = SESSION_END_SILENCE};
    metrics_note(&x, &silent);
    make_text(&x, 0);
    expect("halage_requests_expired_total{side=\"prefill\"}", 2);
    expect("halage_requests_total{side=\"prefill\",status=\"expired\"}", 2);
    expect("halage_requests_total{side=\"prefill\",status=\"cancelled\"}", 1);
    expect("halage_requests_total{side=\"prefill\",status=\"failed\"}", 2);
    expect("halage_failures_total{side=\"prefill\",reason=\"peer\"}", 1);
    expect("halage_failures_total{side=\"prefill\",reason=\"protocol\"}", 1);
    expect("halage_leases_expired_total{side=\"prefill\"}", 1);
    expect("halage_pages_total{side=\"prefill\"}", 0);
}

/* Each reason of the library has a series, so that none is lost in the text. */
static void every_reason_and_end_shows(void **state)
{
    (void)state;
    for (uint32_t reason = HLG_REASON_NONE; reason <= HLG_REASON_PREEMPTED; reason++) {
        struct metrics x = {.role = HLG_ROLE_DECODE};
        metrics_failed(&x, reason);
        make_text(&x, 0);
        double sum = 0;
        for (const char *at = strstr(text, "\nhalage_failures_total{"); at != NULL;
             at = strstr(at + 1, "\nhalage_failures_total{")) {
            sum += strtod(strchr(at, '}') + 1, NULL);
        }
        const bool apart = reason == HLG_REASON_DEADLINE || reason == HLG_REASON_CANCELLED;
        assert_int_equal((int)sum, apart ? 0 : 1);
        expect("halage_requests_total{side=\"decode\",status=\"failed\"}", apart ? 0 : 1);
    }
    for (uint32_t end = SESSION_END_CHANNEL; end <= SESSION_END_WRITES; end++) {
        struct metrics x = {.role = HLG_ROLE_DECODE};
        const struct hlg_note down = {.code = HLG_NOTE_SESSION_DOWN, .a = end};
        metrics_note(&x, &down);
        make_text(&x, 0);
        double sum = 0;
        for (const char *at = strstr(text, "\nhalage_sessions_ended_total{"); at != NULL;
             at = strstr(at + 1, "\nhalage_sessions_ended_total{")) {
            sum += strtod(strchr(at, '}') + 1, NULL);
        }
        assert_int_equal((int)sum, 1);
    }
}

/* And so has each reason of a connection that was refused, under the name that the log gives it. */
static void every_refusal_shows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HLG_REFUSED_KINDS; i++) {
        struct metrics x = {.role = HLG_ROLE_DECODE};
        char series[128];
        x.stats.peers_refused[i] = 3;
        make_text(&x, 0);
        (void)snprintf(series, sizeof series,
                       "halage_connections_refused_total{side=\"decode\",reason=\"%s\"}",
                       hlg_refused_name((enum hlg_refused)i));
        expect(series, 3);
    }
}

static void immediates_are_counted_by_what_is_wrong_with_them(void **state)
{
    static const struct {
        uint32_t code;
        const char *series;
        double value;
    } cases[] = {
        {HLG_NOTE_IMM_LATE, "halage_late_immediates_total{side=\"decode\"}", 5},
        {HLG_NOTE_IMM_STALE, "halage_stale_immediates_total{side=\"decode\"}", 5},
        {HLG_NOTE_IMM_UNKNOWN, "halage_unknown_immediates_total{side=\"decode\"}", 5},
        {HLG_NOTE_IMM_EARLY, "halage_early_immediates_total{side=\"decode\"}", 5},
        {HLG_NOTE_IMM_EXCESS, "halage_excess_immediates_total{side=\"decode\"}", 1},
        {HLG_NOTE_MESSAGE_UNEXPECTED,
         "halage_bad_messages_total{side=\"decode\",reason=\"unexpected\"}", 1},
        {HLG_NOTE_ANSWER_FOREIGN, "halage_bad_messages_total{side=\"decode\",reason=\"foreign\"}",
         1},
        {HLG_NOTE_PIECES_DIFFER, "halage_bad_messages_total{side=\"decode\",reason=\"pieces\"}", 1},
        {HLG_NOTE_CREDIT_BACKWARD, "halage_bad_messages_total{side=\"decode\",reason=\"credit\"}",
         1},
        {HLG_NOTE_GRANT_BACKWARD, "halage_bad_messages_total{side=\"decode\",reason=\"credit\"}",
         1},
        {HLG_NOTE_FENCE_TIMEOUT, "halage_fence_timeouts_total{side=\"decode\"}", 1},
        {HLG_NOTE_SESSION_REFUSED, "halage_sessions_refused_total{side=\"decode\"}", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct metrics x = {.role = HLG_ROLE_DECODE};
        const struct hlg_note note = {.code = cases[i].code, .a = 1, .b = 5, .c = 7};
        make_text(&x, 0);
        expect(cases[i].series, 0);
        metrics_note(&x, &note);
        make_text(&x, 0);
        expect(cases[i].series, cases[i].value);
    }
}

/* H-08: a flood of one kind of line is cut, and what was cut is said. */
static void log_lines_of_a_kind_are_limited(void **state)
{
    struct metrics_lines lines = {0};
    uint64_t suppressed = 0;
    uint32_t out = 0;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        out += metrics_line(&lines, 7 * S + i, &suppressed);
        assert_int_equal(suppressed, 0);
    }
    assert_int_equal(out, METRICS_LINES_MAX);
    assert_true(metrics_line(&lines, 8 * S + 1000, &suppressed));
    assert_int_equal(suppressed, 1000 - METRICS_LINES_MAX);
    assert_true(metrics_line(&lines, 8 * S + 1001, &suppressed));
    assert_int_equal(suppressed, 0);
}

/* C-16: what is lost for ever, and a core thread that hangs, show. */
static void bad_health_shows(void **state)
{
    struct metrics x = {.role = HLG_ROLE_DECODE, .shown = 100 * S};

    (void)state;
    assert_int_equal(metrics_health(&x, 104 * S), HLG_HEALTH_GOOD);
    make_text(&x, 104 * S);
    expect("halage_healthy{side=\"decode\"}", 1);
    expect("halage_core_age_seconds{side=\"decode\"}", 4);
    x.pump.decode.pages_poisoned = 2;
    assert_int_equal(metrics_health(&x, 104 * S), HLG_HEALTH_POISONED);
    make_text(&x, 104 * S);
    expect("halage_healthy{side=\"decode\"}", 0);
    expect("halage_poisoned_pages{side=\"decode\"}", 2);
    x.pump.decode.pages_poisoned = 0;
    x.pump.prefill.pages_poisoned = 3;
    assert_int_equal(metrics_health(&x, 104 * S), HLG_HEALTH_POISONED);
    make_text(&x, 104 * S);
    expect("halage_poisoned_pages{side=\"decode\"}", 3);
    assert_int_equal(metrics_health(&x, 106 * S), HLG_HEALTH_STUCK);
    assert_int_equal(metrics_health(&x, 99 * S), HLG_HEALTH_POISONED); /* shown meanwhile */
}

/* ---- Text ---- */

static void the_parser_finds_what_is_wrong(void **state)
{
    static const char *const bad[] = {
        "halage_a{side=\"x\"} 1\n",
        "# HELP halage_a_total h\n# TYPE halage_a_total gauge\nhalage_a_total{side=\"x\"} 1\n",
        "# HELP halage_a h\n# TYPE halage_a counter\nhalage_a{side=\"x\"} 1\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\nhalage_a{side=\"x\"} nan\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\nhalage_a{side=\"x\"} -1\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\nhalage_a{side=\"x\"} 1\nhalage_a{side=\"x\"} "
        "1\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\nhalage_b{side=\"x\"} 1\n",
        "# HELP halage_A h\n# TYPE halage_A gauge\nhalage_A{side=\"x\"} 1\n",
        "# HELP halage_a h\n# TYPE halage_a gauge\nhalage_a 1\n",
        "# HELP halage_a_bytes h\n# TYPE halage_a_bytes histogram\n"
        "halage_a_bytes_bucket{side=\"x\",le=\"2\"} 2\nhalage_a_bytes_bucket{side=\"x\",le=\"4\"} "
        "1\n",
        "# HELP halage_a_bytes h\n# TYPE halage_a_bytes histogram\n"
        "halage_a_bytes_bucket{side=\"x\",le=\"2\"} 2\n"
        "halage_a_bytes_bucket{side=\"x\",le=\"+Inf\"} 3\nhalage_a_bytes_count{side=\"x\"} 2\n",
        "# HELP halage_a_bytes h\n# TYPE halage_a_bytes histogram\nhalage_a_bytes_sum{side=\"x\"} "
        "2\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (exposition_fault(bad[i]) == NULL) {
            fail_msg("not found: %s", bad[i]);
        }
    }
    assert_null(
        exposition_fault("# HELP halage_a h\n# TYPE halage_a gauge\nhalage_a{side=\"x\"} 1\n"));
}

static void a_text_that_does_not_fit_is_cut_and_says_its_length(void **state)
{
    struct metrics x = {.role = HLG_ROLE_PREFILL};
    char small[100];

    (void)state;
    memset(&x.read_ns, 0xff, sizeof x.read_ns); /* numbers at their longest */
    memset(small, 'x', sizeof small);
    const int whole = metrics_text(&x, 0, NULL, 0);
    assert_int_equal(metrics_text(&x, 0, small, sizeof small), whole);
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_int_equal(metrics_text(&x, 0, small, 1), whole);
    assert_string_equal(small, "");
    assert_int_equal(metrics_text(&x, 0, text, sizeof text), whole);
    assert_int_equal(strlen(text), whole);
}

/* ---- A real pair ---- */

static void take_text(struct hlg_messenger *m)
{
    const int bytes = hlg_messenger_metrics(m, text, sizeof text);

    assert_true(bytes > 0 && bytes < (int)sizeof text);
    const char *fault = exposition_fault(text);
    if (fault != NULL) {
        fail_msg("%s", fault);
    }
}

/* The text is as old as the stats: asks until a value is there. */
static void wait_for(struct duo *duo, struct hlg_messenger *m, const char *series, double value)
{
    for (uint32_t i = 0; i < DUO_TURNS_MAX; i++) {
        take_text(m);
        if (is_near(exposition_value(text, series), value)) {
            return;
        }
        (void)duo_turn(duo);
        duo_nap(duo);
    }
    fail_msg("%s: %g, not %g", series, exposition_value(text, series), value);
}

/* What comes in one look has no span, and so no rate. */
static void expect_throughput(double bytes)
{
    const double busy = exposition_value(text, "halage_busy_seconds_total{side=\"decode\"}");
    const double rate =
        exposition_value(text, "halage_throughput_bytes_per_second{side=\"decode\"}");

    assert_true(busy == 0 ? rate == 0 : rate * busy > 0.99 * bytes && rate * busy < 1.01 * bytes);
}

static void run_three(struct duo *duo)
{
    hlg_ticket tickets[3];

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(duo_submit(duo, "r", 33, 40 * i, i, &tickets[i]), 0);
    }
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 3);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(hlg_messenger_release(duo->decode.messenger, tickets[i]), 0);
    }
}

static void a_pair_counts_what_it_moved(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger *p = duo->prefill.messenger;
    struct hlg_messenger *d = duo->decode.messenger;
    hlg_ticket ticket = 0;

    run_three(duo);
    const double bytes = 3.0 * (double)duo_last(&duo->decode, HLG_NOTICE_READY)->bytes;
    duo->passive = true;
    assert_int_equal(duo_submit(duo, "c", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 4);
    assert_int_equal(hlg_messenger_cancel(d, ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, 1);

    wait_for(duo, d, "halage_requests_total{side=\"decode\",status=\"cancelled\"}", 1);
    wait_for(duo, d, "halage_quarantined_pages{side=\"decode\"}", 0);
    expect("halage_requests_total{side=\"decode\",status=\"completed\"}", 3);
    expect("halage_requests_started_total{side=\"decode\"}", 4);
    expect("halage_request_seconds_count{side=\"decode\"}", 3);
    expect("halage_bytes_total{side=\"decode\",direction=\"in\"}", bytes);
    expect("halage_pages_total{side=\"decode\"}", 3 * (8 + 1));
    expect("halage_peers_up{side=\"decode\"}", 1);
    expect("halage_handshake_seconds_count{side=\"decode\"}", 1);
    expect("halage_healthy{side=\"decode\"}", 1);
    expect_throughput(bytes);

    wait_for(duo, p, "halage_requests_total{side=\"prefill\",status=\"cancelled\"}", 1);
    expect("halage_requests_total{side=\"prefill\",status=\"completed\"}", 3);
    expect("halage_bytes_total{side=\"prefill\",direction=\"out\"}", bytes);
    expect("halage_write_bytes_sum{side=\"prefill\"}", bytes);
    expect("halage_pages_total{side=\"prefill\"}", 3 * (8 + 1));
    expect("halage_queue_seconds_count{side=\"prefill\"}", 3);
    expect("halage_transfer_seconds_count{side=\"prefill\"}", 3);
    expect("halage_inflight_writes{side=\"prefill\"}", 0);
    expect("halage_inflight_pieces{side=\"prefill\"}", 0);
    const double writes = exposition_value(text, "halage_writes_total{side=\"prefill\"}");
    assert_true(writes > 0);
    expect("halage_post_seconds_count{side=\"prefill\"}", writes);
    expect("halage_layer_lag_seconds_count{side=\"prefill\",stage=\"posted\"}", writes);
    expect("halage_layer_lag_seconds_count{side=\"prefill\",stage=\"done\"}", writes);
    assert_true(exposition_value(text, "halage_busy_seconds_total{side=\"prefill\"}") > 0);
    assert_true(exposition_value(
                    text, "halage_layer_lag_seconds_count{side=\"prefill\",stage=\"read\"}") > 0);
}

static void *scrape(void *messenger)
{
    char *own = malloc(TEXT_BYTES);

    for (uint32_t i = 0; own != NULL && i < 200; i++) {
        (void)hlg_messenger_metrics(messenger, own, i % 2 == 0 ? TEXT_BYTES : 77);
        (void)hlg_messenger_metrics(messenger, NULL, 0);
        (void)hlg_messenger_health(messenger);
    }
    free(own);
    return NULL;
}

/* H-06: whatever is done with the metrics, requests are as they are. */
static void looking_changes_no_request(void **state)
{
    struct duo *duo = *state;
    pthread_t threads[2];

    assert_int_equal(pthread_create(&threads[0], NULL, scrape, duo->decode.messenger), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, scrape, duo->prefill.messenger), 0);
    run_three(duo);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_FAILED), 0);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_STOPPING), 0);
    duo_expect(duo, 0, 0, 8);
    assert_int_equal(hlg_messenger_health(duo->decode.messenger), HLG_HEALTH_GOOD);
}

/* H-04: docs/metrics.md says of each metric its type, what one observation or count is of, and what it
 * means, and of no other. */
static void every_metric_is_documented(void **state)
{
    static char page[TEXT_BYTES];
    struct metrics x = {.role = HLG_ROLE_DECODE};
    char path[1024];
    char name[EXPOSITION_NAME_BYTES];
    char type[16];
    uint32_t count = 0;
    uint32_t documented = 0;

    (void)state;
    const char *root = getenv("HALAGE_SOURCE_DIR");
    assert_non_null(root);
    (void)snprintf(path, sizeof path, "%s/docs/metrics.md", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    (void)fclose(file);
    make_text(&x, 0);
    for (const char *at = exposition_next(text, name, type); at != NULL;
         at = exposition_next(at, name, type)) {
        char row[160];
        (void)snprintf(row, sizeof row, "\n| `%s` | %s | per ", name, type);
        if (strstr(page, row) == NULL) {
            fail_msg("docs/metrics.md has no row that begins '| `%s` | %s | per '", name, type);
        }
        count++;
    }
    for (const char *at = strstr(page, "\n| `halage_"); at != NULL;
         at = strstr(at + 1, "\n| `halage_")) {
        documented++;
    }
    assert_int_equal(documented, count);
}

static int open_pair(void **state)
{
    *state = duo_open();
    return 0;
}

static int close_pair(void **state)
{
    duo_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_fall_into_the_bucket_that_bounds_them),
        cmocka_unit_test(busy_time_is_the_union_of_intervals),
        cmocka_unit_test(facts_are_not_older_than_their_layer),
        cmocka_unit_test(throughput_is_of_the_node_and_not_a_sum_of_rates),
        cmocka_unit_test(a_request_ends_with_its_last_piece),
        cmocka_unit_test(expiry_is_not_a_failure),
        cmocka_unit_test(every_reason_and_end_shows),
        cmocka_unit_test(every_refusal_shows),
        cmocka_unit_test(immediates_are_counted_by_what_is_wrong_with_them),
        cmocka_unit_test(log_lines_of_a_kind_are_limited),
        cmocka_unit_test(bad_health_shows),
        cmocka_unit_test(the_parser_finds_what_is_wrong),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut_and_says_its_length),
        cmocka_unit_test_setup_teardown(a_pair_counts_what_it_moved, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(looking_changes_no_request, open_pair, close_pair),
        cmocka_unit_test(every_metric_is_documented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
