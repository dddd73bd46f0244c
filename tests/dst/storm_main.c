/*
 * halage-storm: run seeds of the storm. A failing seed prints one line that replays it, then a smaller
 * case that fails alike, with the last happenings of that one.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "runner.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEEDS_MAX      1000000000u
#define REQUESTS_LIMIT 100000u
#define JOBS_LIMIT     64u
#define TRIES          250u /* cases that a search for a smaller one runs */
#define SMALLER_MAX    3u   /* failing seeds for which one is sought */
#define PROGRESS_S     10

struct options {
    struct runner_options run;
    bool cover;
    bool small; /* look for a smaller case */
    bool verbose;
    const char *json;
};

static const struct argp_option table[] = {
    {"seeds", 's', "A-B", 0, "seeds to run, ends included (default 1-300)", 0},
    {"jobs", 'j', "N", 0, "processes, 1..64 (default 1); output does not depend on it", 0},
    {"repeat", 'r', "N", 0,
     "run each Nth seed a second time, which must be alike (default 1; 0: none)", 0},
    {"without", 'w', "KIND,...", 0, "take kinds of faults and worlds out; --list names them", 0},
    {"requests", 'q', "N", 0, "requests of each seed before the calm, 1..100000 (default 48)", 0},
    {"nodes", 'n', "P:D", 0, "at most P prefillers and D decoders, 1..4 each (default 4:4)", 0},
    {"plant", 'p', "NAME", 0, "plant a fault: good when the checker that it is for notices; --list",
     0},
    {"cover", 'c', NULL, 0, "fail when a kind, a note or a checker had no turn", 0},
    {"trace", 't', "DIR", 0,
     "write the nodes' traces there: of the smaller case of each failing seed, or of a single seed",
     0},
    {"json", 'o', "FILE", 0, "write the counts to FILE", 0},
    {"as-is", 'a', NULL, 0, "look for no smaller case of a seed that fails", 0},
    {"verbose", 'v', NULL, 0, "print each seed's world", 0},
    {"list", 'l', NULL, 0, "print the kinds, the checkers and the plants, and end", 0},
    {0},
};

static void print_list(void)
{
    printf("kinds:");
    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        printf(" %s", kind_name(i));
    }
    printf("\nplants, and the checkers that must notice:\n");
    for (uint32_t i = 1; i < PLANT_COUNT; i++) {
        printf("  %-14s %s\n", plant_name(i), checker_name(plant_checker(i)));
    }
}

/* Reads a number in [least, most] up to `end`; argp_error does not return. */
static uint64_t number(struct argp_state *state, const char *option, const char *text, char **end,
                       uint64_t least, uint64_t most)
{
    errno = 0;
    uint64_t value = strtoull(text, end, 10);
    if (*end == text || text[0] < '0' || text[0] > '9' || errno != 0 || value < least ||
        value > most) {
        argp_error(state, "--%s %s: want a number from %llu to %llu", option, text,
                   (unsigned long long)least, (unsigned long long)most);
    }
    return value;
}

static uint32_t whole(struct argp_state *state, const char *option, const char *text,
                      uint64_t least, uint64_t most)
{
    char *end = NULL;
    uint64_t value = number(state, option, text, &end, least, most);

    if (*end != '\0') {
        argp_error(state, "--%s %s: '%s' is not a part of a number", option, text, end);
    }
    return (uint32_t)value;
}

static void parse_seeds(struct options *o, const char *arg, struct argp_state *state)
{
    char *end = NULL;

    o->run.begin = number(state, "seeds", arg, &end, 0, UINT64_MAX - SEEDS_MAX);
    o->run.last = o->run.begin;
    if (*end == '-') {
        o->run.last = number(state, "seeds", end + 1, &end, 0, UINT64_MAX - SEEDS_MAX);
    }
    if (*end != '\0' || o->run.last < o->run.begin || o->run.last - o->run.begin >= SEEDS_MAX) {
        argp_error(state, "--seeds %s: want A or A-B with A <= B, and at most %u of them", arg,
                   SEEDS_MAX);
    }
}

static void parse_nodes(struct options *o, const char *arg, struct argp_state *state)
{
    char *end = NULL;

    o->run.what.prefillers = (uint32_t)number(state, "nodes", arg, &end, 1, PREFILLERS_MAX);
    if (*end != ':') {
        argp_error(state, "--nodes %s: want P:D", arg);
    }
    o->run.what.decoders = whole(state, "nodes", end + 1, 1, DECODERS_MAX);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char bad[64];

    switch (key) {
    case 's':
        parse_seeds(o, arg, state);
        return 0;
    case 'j':
        o->run.jobs = whole(state, "jobs", arg, 1, JOBS_LIMIT);
        return 0;
    case 'r':
        o->run.repeat = whole(state, "repeat", arg, 0, SEEDS_MAX);
        return 0;
    case 'w':
        if (kinds_parse(arg, &o->run.what.without, bad, sizeof bad) != 0) {
            argp_error(state, "--without: '%s' is no kind; --list names them", bad);
        }
        return 0;
    case 'q':
        o->run.what.requests = whole(state, "requests", arg, 1, REQUESTS_LIMIT);
        return 0;
    case 'n':
        parse_nodes(o, arg, state);
        return 0;
    case 'p':
        if (plant_parse(arg, &o->run.what.plant) != 0) {
            argp_error(state, "--plant %s: want a name or number; --list names them", arg);
        }
        return 0;
    case 'c':
        o->cover = true;
        return 0;
    case 't':
        o->run.what.trace = arg;
        return 0;
    case 'o':
        o->json = arg;
        return 0;
    case 'a':
        o->small = false;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    case 'l':
        print_list();
        exit(0);
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is too much", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- telling -------------------------------------------------------------------------------- */

struct telling {
    const struct options *o;
    struct storm_counts counts;
    uint64_t passed;
    uint64_t failed;
    uint64_t noticed; /* the plant, by its checker */
    uint64_t other;   /* the plant, by another */
    uint32_t smaller;
    time_t told;
};

static void tell_progress(struct telling *t)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec >= t->told + PROGRESS_S) {
        t->told = now.tv_sec;
        (void)fprintf(stderr, "halage-storm: %llu of %llu seeds, %llu failed\n",
                      (unsigned long long)(t->passed + t->failed),
                      (unsigned long long)(t->o->run.last - t->o->run.begin + 1),
                      (unsigned long long)t->failed);
    }
}

/* A smaller case, its line, its last happenings, its traces. */
static void tell_smaller(struct telling *t, const struct outcome *out)
{
    struct storm_case small;
    struct outcome again;
    char line[1024];

    if (!t->o->small || t->smaller == SMALLER_MAX) {
        return;
    }
    t->smaller++;
    struct outcome plain = *out;
    plain.what.trace = NULL;
    uint32_t tried = minimise(&plain, TRIES, &small);
    case_text(&small, line, sizeof line);
    printf("  smaller, found in %u tries: %s\n", tried, line);
    printf("  its last happenings:\n");
    small.trace = t->o->run.what.trace;
    outcome_alone(&small, out->broken == CHECK_REPEAT, true, &again);
    printf("  and then %s: %s (%llu, %llu)\n", checker_name(again.broken), again.text,
           (unsigned long long)again.a, (unsigned long long)again.b);
    if (small.trace != NULL) {
        printf("  its traces: %s/seed-%llu-*.trace; print one with: halage trace FILE\n",
               small.trace, (unsigned long long)small.seed);
    }
}

static void tell_broken(struct telling *t, const struct outcome *out)
{
    char line[1024];

    case_text(&out->what, line, sizeof line);
    printf("seed %llu: broken, checker %s: %s (%llu, %llu) at step %llu; again with: %s\n",
           (unsigned long long)out->what.seed, checker_name(out->broken), out->text,
           (unsigned long long)out->a, (unsigned long long)out->b,
           (unsigned long long)out->counts.steps, line);
    printf("  world: %s\n", out->world);
    tell_smaller(t, out);
}

/* With a plant: the first seed whose checker notices is enough. */
static bool hear_planted(struct telling *t, const struct outcome *out)
{
    if (out->broken == CHECK_NONE) {
        t->passed++;
        return true;
    }
    t->failed++;
    if (out->broken != plant_checker(out->what.plant)) {
        t->other++;
        printf("seed %llu: another checker noticed, %s: %s (%llu, %llu)\n",
               (unsigned long long)out->what.seed, checker_name(out->broken), out->text,
               (unsigned long long)out->a, (unsigned long long)out->b);
        return true;
    }
    t->noticed++;
    tell_broken(t, out);
    return false;
}

static bool hear(void *context, const struct outcome *out)
{
    struct telling *t = context;

    tally_add(&t->counts, &out->counts);
    if (t->o->run.what.plant != PLANT_NONE) {
        return hear_planted(t, out);
    }
    if (out->broken != CHECK_NONE) {
        t->failed++;
        tell_broken(t, out);
    } else {
        t->passed++;
        if (t->o->verbose) {
            printf("seed %llu: %s: good\n", (unsigned long long)out->what.seed, out->world);
        }
    }
    tell_progress(t);
    return true;
}

static int finish(const struct options *o, const struct telling *t, int result)
{
    if (o->run.what.plant != PLANT_NONE) {
        printf("plant %s %s by its checker %s after %llu seeds\n", plant_name(o->run.what.plant),
               t->noticed > 0 ? "noticed" : "not noticed",
               checker_name(plant_checker(o->run.what.plant)),
               (unsigned long long)(t->passed + t->failed));
        return t->noticed > 0 ? result : 1;
    }
    tally_print(&t->counts);
    if (o->json != NULL && tally_json(&t->counts, t->passed, t->failed, o->json) != 0) {
        (void)fprintf(stderr, "halage-storm: cannot write %s: %s\n", o->json, strerror(errno));
        result = result == 0 ? 1 : result;
    }
    if (o->cover && result == 0 && tally_missing(&t->counts) > 0) {
        result = 1;
    }
    printf("%llu passed, %llu failed%s\n", (unsigned long long)t->passed,
           (unsigned long long)t->failed, result == 130 ? ", interrupted" : "");
    return result == 0 && t->failed > 0 ? 1 : result;
}

int main(int argc, char **argv)
{
    struct options o = {
        .run = {.begin = 1,
                .last = 300,
                .jobs = 1,
                .repeat = 1,
                .what = {.requests = 48, .prefillers = PREFILLERS_MAX, .decoders = DECODERS_MAX}},
        .small = true};
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "Storms over the whole messenger, by seed."};
    struct telling t = {.o = &o};
    struct timespec now;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    t.told = now.tv_sec;
    struct runner_options run = o.run;
    if (run.begin != run.last) {
        run.what.trace = NULL;
    }
    int result = runner_run(&run, hear, &t);
    if (result < 0) {
        (void)fprintf(stderr, "halage-storm: no process or pipe can be had: %s\n", strerror(errno));
        return 1;
    }
    return finish(&o, &t, result);
}
