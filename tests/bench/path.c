/*
 * halage-bench-path: the two ends of `halage perf run` in one process and thread, turn by turn, case after case, so
 * that test_path.py can count the instructions of each.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

#define PEER_STEPS_MAX 100000000u

struct path {
    struct perf_arena arenas[2]; /* source, target, as the next ones */
    struct perf_end *ends[2];
};

/* What valgrind looks at, one of them at a time. */
__attribute__((noinline)) int path_source(struct perf_end *end);
__attribute__((noinline)) int path_target(struct perf_end *end);
/* It takes down the counts of a case when this returns. */
__attribute__((noinline)) void path_over(void);

int path_source(struct perf_end *end)
{
    return end->ops->step(end);
}

int path_target(struct perf_end *end)
{
    return end->ops->step(end);
}

void path_over(void)
{
    __asm__ volatile(""); /* or a compiler leaves the call out */
}

static int fail(const char *what)
{
    (void)fprintf(stderr, "halage-bench-path: %s\n", what);
    return EXIT_FAILURE;
}

static bool join(struct path *p)
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
    return true;
}

/* One case: ORDER:PAGES:REQUESTS. */
static bool run_case(const char *words, struct perf_case *shape, char *error)
{
    static const char *const orders[] = {"rows", "source", "target",
                                         "both"}; /* what is scattered */
    const struct perf_place place = {.node = NULL};
    struct path p = {.ends = {NULL, NULL}};
    char order[8] = "";
    unsigned long requests = 0;
    uint32_t scattered = 0;

    if (sscanf(words, "%7[a-z]:%u:%lu", order, &shape->pages, &requests) != 3) {
        return false;
    }
    while (scattered < 4 && strcmp(order, orders[scattered]) != 0) {
        scattered++;
    }
    if (scattered == 4 || requests == 0 || !perf_case_check(shape, error)) {
        return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        shape->order = (scattered >> i & 1) != 0 ? PERF_SCATTERED : PERF_CONTIGUOUS;
        if (perf_arena_open(shape, i == 1, 0, &p.arenas[i], error) != 0 ||
            perf_core_open(&p.arenas[i], i == 1, &place, &p.ends[i], error) != 0) {
            return false;
        }
    }
    const bool good = join(&p) && move(&p, 2, false) && move(&p, requests, true);
    for (uint32_t i = 2; i > 0; i--) {
        p.ends[i - 1]->ops->close(p.ends[i - 1]);
        perf_arena_close(&p.arenas[i - 1]);
    }
    path_over();
    (void)printf("%s actions %lu\n", words, requests * shape->layers);
    return good;
}

int main(int argc, char **argv)
{
    char error[PERF_ERROR_BYTES] = "a session ended, or a case is not ORDER:PAGES:REQUESTS";

    if (argc < 6) {
        return fail("usage: halage-bench-path PROVIDER BYTES WINDOW LAYERS CASE...");
    }
    struct perf_case shape = {.path = PERF_CORE,
                              .page_bytes = (uint32_t)strtoul(argv[2], NULL, 10),
                              .window = (uint32_t)strtoul(argv[3], NULL, 10),
                              .layers = (uint32_t)strtoul(argv[4], NULL, 10),
                              .peers = 1,
                              .rails = 1,
                              .way = {.memory = HLG_MEMORY_HOST}};
    (void)snprintf(shape.way.provider, sizeof shape.way.provider, "%s", argv[1]);
    for (int i = 5; i < argc; i++) {
        if (!run_case(argv[i], &shape, error)) {
            return fail(error);
        }
    }
    return EXIT_SUCCESS;
}
