/*
 * halage-bench-path: the two ends of `halage perf run` in one process and thread, turn by turn, so that
 * test_path.py can count the instructions of each.
 */
#define _GNU_SOURCE /* clock_gettime */
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PEER_STEPS_MAX 100000000u

struct path {
    struct perf_arena arenas[2]; /* source, target, as the next ones */
    struct perf_end *ends[2];
};

/* What valgrind looks at, one of them at a time. */
__attribute__((noinline)) int path_source(struct perf_end *end);
__attribute__((noinline)) int path_target(struct perf_end *end);

int path_source(struct perf_end *end)
{
    return end->ops->step(end);
}

int path_target(struct perf_end *end)
{
    return end->ops->step(end);
}

static int fail(const char *what)
{
    (void)fprintf(stderr, "halage-bench-path: %s\n", what);
    return EXIT_FAILURE;
}

static bool join_bare(struct path *p)
{
    return p->ends[0]->ops->join(p->ends[0], &p->ends[1]->ready) == 0 &&
           p->ends[1]->ops->join(p->ends[1], &p->ends[0]->ready) == 0;
}

static bool join_core(struct path *p)
{
    struct hlg_tcp_listener *listener = NULL;
    struct hlg_channel *dialled = NULL;
    struct hlg_channel *accepted = NULL;
    char error[PERF_ERROR_BYTES];

    bool good =
        hlg_tcp_listen("127.0.0.1:0", PERF_FRAME_BYTES, &listener, error, sizeof error) == 0 &&
        hlg_tcp_dial(hlg_tcp_listener_name(listener), HLG_NS_PER_S, PERF_FRAME_BYTES, &dialled,
                     error, sizeof error) == 0;
    while (good && hlg_tcp_accept(listener, &accepted) == 0) {
    }
    good = good && perf_core_channel(p->ends[0], accepted) == 0 &&
           perf_core_channel(p->ends[1], dialled) == 0;
    hlg_tcp_listener_close(listener);
    while (good && !(p->ends[0]->ops->joined(p->ends[0]) && p->ends[1]->ops->joined(p->ends[1]))) {
        good = p->ends[0]->ops->step(p->ends[0]) == 0 && p->ends[1]->ops->step(p->ends[1]) == 0;
    }
    return good;
}

/* Processor time of this thread: others on the machine do not count. */
static hlg_time spent(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

static bool move(struct path *p, uint64_t requests, bool counted)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i < 2; i++) {
        p->ends[i]->ops->begin(p->ends[i], requests);
    }
    while (!p->ends[0]->ops->over(p->ends[0]) || !p->ends[1]->ops->over(p->ends[1])) {
        const int source = counted ? path_source(p->ends[0]) : p->ends[0]->ops->step(p->ends[0]);
        const int target = counted ? path_target(p->ends[1]) : p->ends[1]->ops->step(p->ends[1]);
        if (source < 0 || target < 0 || ++steps == PEER_STEPS_MAX) {
            return false;
        }
    }
    if (counted) {
        (void)printf("steps %u\n", steps);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct path p = {.ends = {NULL, NULL}};
    const struct perf_place place = {NULL};
    char error[PERF_ERROR_BYTES] = "no memory";

    if (argc != 8 || (strcmp(argv[2], "core") != 0 && strcmp(argv[2], "bare") != 0)) {
        return fail(
            "usage: halage-bench-path PROVIDER core|bare BYTES WINDOW PAGES LAYERS REQUESTS");
    }
    const bool core = strcmp(argv[2], "core") == 0;
    struct perf_case shape = {.path = core ? PERF_CORE : PERF_BARE,
                              .page_bytes = (uint32_t)strtoul(argv[3], NULL, 10),
                              .window = (uint32_t)strtoul(argv[4], NULL, 10),
                              .pages = (uint32_t)strtoul(argv[5], NULL, 10),
                              .layers = (uint32_t)strtoul(argv[6], NULL, 10),
                              .peers = 1,
                              .rails = 1};
    const uint64_t requests = strtoul(argv[7], NULL, 10);
    (void)snprintf(shape.provider, sizeof shape.provider, "%s", argv[1]);
    if (!perf_case_check(&shape, error)) {
        return fail(error);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (perf_arena_open(&shape, i == 1, &p.arenas[i]) != 0 ||
            (core ? perf_core_open : perf_bare_open)(&p.arenas[i], i == 1, &place, &p.ends[i],
                                                     error) != 0) {
            return fail(error);
        }
    }
    if (!(core ? join_core(&p) : join_bare(&p)) || !move(&p, 2, false)) {
        return fail("a session ended");
    }
    const hlg_time begun = spent();
    if (!move(&p, requests, true)) {
        return fail("a session ended");
    }
    const uint64_t writes = requests * shape.layers * shape.pages;
    (void)printf("writes %llu actions %llu ns_a_write %.1f\n", (unsigned long long)writes,
                 (unsigned long long)(requests * shape.layers),
                 (double)(spent() - begun) / (double)writes);
    for (uint32_t i = 2; i > 0; i--) {
        p.ends[i - 1]->ops->close(p.ends[i - 1]);
        perf_arena_close(&p.arenas[i - 1]);
    }
    return EXIT_SUCCESS;
}
