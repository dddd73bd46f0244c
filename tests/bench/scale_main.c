/*
 * halage-bench-scale churn: sessions and requests by the many, and afterwards nothing must be left of them.
 * halage-bench-scale flight: requests at a steady number in flight; tests/bench/test_scale.py counts what
 * scale_measure() costs.
 * halage-bench-scale peers: idle peers, by the many; likewise, of scale_peers_run().
 */
#define _GNU_SOURCE
#include "scale.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
    const char *what;
    uint64_t requests;
    uint64_t sessions;
    uint32_t in_flight;
    uint32_t peers_max;
};

/* Resident memory in KiB. */
static uint64_t resident(void)
{
    unsigned long long size = 0;
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &size, &pages) != 2) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");

    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return count;
}

static double seconds(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The sanitizer keeps what was freed, to find its use; it looks for leaks itself. */
static bool counts_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return true;
#endif
}

static int fail(const char *what)
{
    (void)printf("FAILED: %s\n", what);
    return EXIT_FAILURE;
}

static int churn(const struct options *o)
{
    const uint64_t share = o->requests / o->sessions;
    /* Those in flight when a session ends fail, and are of its share. */
    struct scale_config config = {.seed = 7,
                                  .decoders = 8,
                                  .in_flight = 16,
                                  .peers_max = 16,
                                  .session_requests = share > 32 ? (uint32_t)share - 16 : 16,
                                  .land_ns = 20000};
    const double begun = seconds();
    struct scale_world *w = scale_open(&config);

    if (w == NULL || !scale_run(w, o->requests / 4)) {
        return fail("the world does not begin");
    }
    const uint64_t memory = resident();
    const uint32_t open = descriptors();
    const uint64_t sessions = w->sessions;
    if (!scale_run(w, o->requests)) {
        return fail("requests no longer end");
    }
    while (w->sessions < o->sessions) {
        if (!scale_run(w, w->ready + w->failed + 1)) {
            return fail("sessions no longer begin");
        }
    }
    const char *wrong = scale_drain(w);
    if (wrong != NULL) {
        return fail(wrong);
    }
    const uint64_t memory_end = resident();
    (void)printf("requests %" PRIu64 " ready %" PRIu64 " failed %" PRIu64 " sent %" PRIu64
                 " stopped %" PRIu64 "\n",
                 w->ready + w->failed, w->ready, w->failed, w->sent, w->stopped);
    (void)printf("sessions %" PRIu64 " restarts %" PRIu64 " of %" PRIu32 " decode nodes\n",
                 w->sessions, w->restarts, config.decoders);
    (void)printf("memory %" PRIu64 " KiB after %" PRIu64 " sessions, %" PRIu64
                 " KiB after all; descriptors %" PRIu32 ", %" PRIu32 "\n",
                 memory, sessions, memory_end, open, descriptors());
    (void)printf("seconds %.1f, microseconds a request %.2f\n", seconds() - begun,
                 1e6 * (seconds() - begun) / (double)(w->ready + w->failed));
    const bool flat = !counts_memory() || memory_end <= memory + memory / 100 + 256;
    const bool closed = descriptors() == open;
    const bool many = w->restarts > 0 && w->failed > 0 && w->failed < w->ready;
    scale_close(w);
    return !flat     ? fail("memory grew")
           : !closed ? fail("descriptors were left open")
           : !many   ? fail("too few requests ended well, or nothing ended otherwise")
                     : EXIT_SUCCESS;
}

/* What valgrind looks at alone. */
__attribute__((noinline)) bool scale_measure(struct scale_world *w, uint64_t requests);
bool scale_measure(struct scale_world *w, uint64_t requests)
{
    return scale_run(w, w->ready + w->failed + requests);
}

static int flight(const struct options *o)
{
    /* Half of SCALE_BATCH requests in three turns are on their way for the time that all take. */
    const struct scale_config config = {.seed = 7,
                                        .decoders = 1,
                                        .in_flight = o->in_flight,
                                        .peers_max = o->peers_max,
                                        .land_ns = (hlg_time)o->in_flight * 3 * SCALE_TURN_NS /
                                                   SCALE_BATCH / 2};
    struct scale_world *w = scale_open(&config);

    if (w == NULL || !scale_run(w, 2ull * o->in_flight)) {
        return fail("the world does not begin");
    }
    const double begun = seconds();
    const hlg_time virtual = w->now;
    if (!scale_measure(w, o->requests)) {
        return fail("requests no longer end");
    }
    const double spent = seconds() - begun;
    (void)printf("in_flight %" PRIu32 " peers_max %" PRIu32 " requests %" PRIu64 " turns %" PRIu64
                 " seconds %.2f microseconds_a_request %.2f\n",
                 o->in_flight, o->peers_max, o->requests,
                 (uint64_t)((w->now - virtual) / SCALE_TURN_NS), spent,
                 1e6 * spent / (double)o->requests);
    const char *wrong = scale_drain(w);
    const uint64_t failed = w->failed;
    scale_close(w);
    return wrong != NULL ? fail(wrong) : failed > 0 ? fail("requests failed") : EXIT_SUCCESS;
}

static int peers(const struct options *o)
{
    struct scale_peers *p = scale_peers_open(o->peers_max);
    uint64_t sent = 0;
    const double begun = seconds();

    scale_peers_run(p, 5);
    const double spent = seconds() - begun;
    const uint64_t beats = scale_peers_beats(p, &sent);
    (void)printf("peers %" PRIu32 " beats %" PRIu64 " sent %" PRIu64
                 " seconds %.2f microseconds_a_beat %.2f\n",
                 o->peers_max, beats, sent, spent, 1e6 * spent / (double)beats);
    scale_peers_close(p);
    return beats < 4ull * o->peers_max || sent < 4ull * o->peers_max
               ? fail("a heartbeat is missing")
               : EXIT_SUCCESS;
}

static int usage(void)
{
    (void)fprintf(stderr,
                  "usage: halage-bench-scale churn|flight|peers [--requests N] [--sessions N] "
                  "[--in-flight N] [--peers-max N]\n");
    return 2;
}

static bool take(struct options *o, const char *name, const char *value)
{
    char *end = NULL;
    const unsigned long long number = strtoull(value, &end, 10);

    if (*value < '0' || *value > '9' || *end != '\0' || number == 0 || number > 1000000000) {
        return false;
    }
    if (strcmp(name, "--requests") == 0) {
        o->requests = number;
    } else if (strcmp(name, "--sessions") == 0) {
        o->sessions = number;
    } else if (strcmp(name, "--in-flight") == 0) {
        o->in_flight = (uint32_t)number;
    } else if (strcmp(name, "--peers-max") == 0) {
        o->peers_max = (uint32_t)number;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options o = {.requests = 10000, .sessions = 200, .in_flight = 100, .peers_max = 16};

    if (argc < 2 || argc % 2 != 0) {
        return usage();
    }
    o.what = argv[1];
    for (int i = 2; i < argc; i += 2) {
        if (!take(&o, argv[i], argv[i + 1])) {
            return usage();
        }
    }
    if (o.sessions > o.requests || o.in_flight > 30000 || o.peers_max > 60000) {
        return usage();
    }
    if (strcmp(o.what, "churn") == 0) {
        return churn(&o);
    }
    if (strcmp(o.what, "flight") == 0) {
        return flight(&o);
    }
    return strcmp(o.what, "peers") == 0 ? peers(&o) : usage();
}
