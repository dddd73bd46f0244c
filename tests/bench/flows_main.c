/*
 * Options, and the runs: each in a child of its own, since a process has one SimGrid engine.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUNS_MAX 101u

struct shared {
    struct outcome outcome;
    struct tape tape;
};

static const struct argp_option table[] = {
    {"requests", 'r', "N", 0, "requests in all (default 1000)", 0},
    {"prefills", 'p', "N", 0, "prefill nodes, with three decode nodes each (default 1)", 0},
    {"tokens", 't', "N", 0, "tokens of each, 2..16385 (default 8193)", 0},
    {"lanes", 'l', "N", 0, "8, or 1: folded (default 8)", 0},
    {"tick", 'k', "NS", 0, "nanoseconds of a layer (default 1000000)", 0},
    {"runs", 'n', "N", 0, "runs of each, interleaved (default 7)", 0},
    {"no-bare", 'b', NULL, 0, "leave the bare loop out", 0},
    {"engine", 'e', NULL, 0, "ask SimGrid for every flow, also for those that share with none", 0},
    {"ratio-max", 'm', "PERCENT", 0, "fail if the ratio is above so many percent", 0},
    {0},
};

static uint64_t number(struct argp_state *state, const char *name, const char *arg, uint64_t low,
                       uint64_t high)
{
    char *end = NULL;
    const uint64_t value = strtoull(arg, &end, 10);

    if (end == arg || *end != '\0' || value < low || value > high) {
        argp_error(state, "--%s %s: want %llu..%llu", name, arg, (unsigned long long)low,
                   (unsigned long long)high);
    }
    return value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case 'r':
        o->requests = number(state, "requests", arg, 1, 10000000);
        return 0;
    case 'p':
        o->prefills = (uint32_t)number(state, "prefills", arg, 1, PREFILLS_MAX);
        return 0;
    case 't':
        o->tokens = (uint32_t)number(state, "tokens", arg, 2, 16385);
        return 0;
    case 'l':
        o->lanes = (uint32_t)number(state, "lanes", arg, 1, LANES_MAX);
        if (o->lanes != 1 && o->lanes != LANES_MAX) {
            argp_error(state, "--lanes %s: want 1 or 8", arg);
        }
        return 0;
    case 'k':
        o->tick_ns = number(state, "tick", arg, 1, HLG_NS_PER_S);
        return 0;
    case 'n':
        o->runs = (uint32_t)number(state, "runs", arg, 1, RUNS_MAX);
        return 0;
    case 'b':
        o->bare = false;
        return 0;
    case 'e':
        o->engine = true;
        return 0;
    case 'm':
        o->ratio_max = (double)number(state, "ratio-max", arg, 1, 10000) / 100;
        return 0;
    case ARGP_KEY_END:
        if (o->bare && o->prefills > BARE_PREFILLS_MAX) {
            argp_error(state, "--prefills %u: above %u only with --no-bare", o->prefills,
                       BARE_PREFILLS_MAX);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

double processor_seconds(void)
{
    struct timespec t;

    HLG_ASSERT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *share(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    HLG_ASSERT(memory != MAP_FAILED);
    return memory;
}

enum what {
    RECORD,
    CLUSTER,
    BARE,
};

static struct outcome in_child(enum what what, const struct options *options, struct shared *shared)
{
    const pid_t pid = fork();
    int status = 0;

    HLG_ASSERT(pid >= 0);
    if (pid == 0) {
        const double before = processor_seconds();

        shared->outcome.setup = before;
        if (what == BARE) {
            bare_run(options, &shared->tape, &shared->outcome);
        } else {
            cluster_run(options, what == RECORD ? &shared->tape : NULL, &shared->outcome);
        }
        shared->outcome.seconds = processor_seconds() - before;
        shared->outcome.setup -= before;
        _exit(0);
    }
    HLG_ASSERT(waitpid(pid, &status, 0) == pid);
    if (status != 0) {
        exit(1); /* it said why */
    }
    return shared->outcome;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2]; /* floor: the middle one of an odd count */
}

static void print(const char *name, const struct outcome *outcome, double seconds)
{
    printf("%-8s %9.3f s, %.3f s to begin, then %.3f us/flow; %llu flows end at %.9f s\n", name,
           seconds, outcome->setup, (seconds - outcome->setup) * 1e6 / (double)outcome->flows,
           (unsigned long long)outcome->flows, (double)outcome->ended * 1e-9);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "What a flow costs, in processor time."};
    struct options options = {.requests = 1000,
                              .prefills = 1,
                              .tokens = 8193,
                              .lanes = LANES_MAX,
                              .tick_ns = HLG_NS_PER_MS,
                              .runs = 7,
                              .bare = true};
    double cluster_seconds[RUNS_MAX];
    double bare_seconds[RUNS_MAX];
    struct outcome cluster = {0};
    struct outcome bare = {0};

    (void)argp_parse(&argp, argc, argv, 0, NULL, &options);
    struct shared *shared = share(sizeof *shared);
    const uint64_t flows = 2 * options.requests * LAYERS * options.lanes; /* should some be cut */
    shared->tape = (struct tape){.capacity = flows, .flows = share(flows * sizeof(struct flow))};
    if (options.bare) {
        (void)in_child(RECORD, &options, shared);
    }
    for (uint32_t run = 0; run < options.runs; run++) {
        cluster = in_child(CLUSTER, &options, shared);
        cluster_seconds[run] = cluster.seconds;
        if (options.bare) {
            bare = in_child(BARE, &options, shared);
            bare_seconds[run] = bare.seconds;
        }
    }
    print("cluster", &cluster, median(cluster_seconds, options.runs));
    if (options.bare) {
        print("bare", &bare, median(bare_seconds, options.runs));
        const double ratio =
            median(cluster_seconds, options.runs) / median(bare_seconds, options.runs);
        printf("ratio    %9.3f\n", ratio);
        if (options.ratio_max > 0 && ratio > options.ratio_max) {
            printf("the ratio is above %.2f\n", options.ratio_max);
            return 1;
        }
        if (bare.flows != cluster.flows) {
            printf("the writes were cut: %llu flows in place of %llu\n",
                   (unsigned long long)bare.flows, (unsigned long long)cluster.flows);
            return 1;
        }
    }
    return 0;
}
