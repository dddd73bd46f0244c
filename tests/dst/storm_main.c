/*
 * halage-storm: run seeds of the storm. Each seed runs twice and must have the same trace hash. A
 * failing seed prints one line that replays it.
 */
#include "world.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    uint64_t begin;
    uint64_t last;
    uint64_t plant;
    bool verbose;
};

static const struct argp_option table[] = {
    {"seeds", 's', "A-B", 0, "seeds to run, ends included (default 1-300)", 0},
    {"plant", 'p', "N", 0, "plant fault N (1..3) in the engines: good when a seed notices", 0},
    {"verbose", 'v', NULL, 0, "print each seed's world", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end = arg;

    switch (key) {
    case 's':
        o->begin = strtoull(arg, &end, 10);
        o->last = o->begin;
        if (*end == '-') {
            o->last = strtoull(end + 1, &end, 10);
        }
        if (end == arg || *end != '\0' || o->last < o->begin) {
            argp_error(state, "--seeds %s: want A or A-B with A <= B", arg);
        }
        return 0;
    case 'p':
        o->plant = strtoull(arg, &end, 10);
        if (end == arg || *end != '\0' || o->plant == 0 || o->plant >= PLANT_COUNT) {
            argp_error(state, "--plant %s: want 1..%d", arg, PLANT_COUNT - 1);
        }
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void add_faults(struct hlg_loop_stats *sum, const struct hlg_loop_stats *one)
{
    sum->delays += one->delays;
    sum->reorders += one->reorders;
    sum->duplicates += one->duplicates;
    sum->refusals += one->refusals;
    sum->partials += one->partials;
    sum->fails_before += one->fails_before;
    sum->fails_after += one->fails_after;
    sum->drops += one->drops;
    sum->kills += one->kills;
    sum->breaks += one->breaks;
    sum->downs += one->downs;
    sum->lates += one->lates;
    sum->held += one->held;
    sum->taken += one->taken;
}

static void add_counts(struct storm_counts *sum, const struct storm_counts *one)
{
    sum->submitted += one->submitted;
    sum->ready += one->ready;
    sum->returned += one->returned;
    sum->poisoned += one->poisoned;
    sum->local += one->local;
    sum->landings += one->landings;
    sum->aborts += one->aborts;
    sum->restarts += one->restarts;
    for (uint32_t i = 0; i <= HLG_REASON_PREEMPTED; i++) {
        sum->failed[i] += one->failed[i];
    }
    for (uint32_t i = 0; i < 64; i++) {
        sum->notes[i] += one->notes[i];
    }
}

static void print_sums(const struct storm_counts *c, const struct hlg_loop_stats *f)
{
    printf("requests   submitted %llu ready %llu (without prefiller %llu) returned %llu "
           "poisoned %llu\n",
           (unsigned long long)c->submitted, (unsigned long long)c->ready,
           (unsigned long long)c->local, (unsigned long long)c->returned,
           (unsigned long long)c->poisoned);
    printf("failed     rejected %llu cancelled %llu peer %llu deadline %llu protocol %llu "
           "preempted %llu\n",
           (unsigned long long)c->failed[HLG_REASON_REJECTED],
           (unsigned long long)c->failed[HLG_REASON_CANCELLED],
           (unsigned long long)c->failed[HLG_REASON_PEER],
           (unsigned long long)c->failed[HLG_REASON_DEADLINE],
           (unsigned long long)c->failed[HLG_REASON_PROTOCOL],
           (unsigned long long)c->failed[HLG_REASON_PREEMPTED]);
    printf("faults     delay %llu reorder %llu duplicate %llu refuse %llu partial %llu "
           "fail-before %llu fail-after %llu drop %llu kill %llu break %llu late %llu\n",
           (unsigned long long)f->delays, (unsigned long long)f->reorders,
           (unsigned long long)f->duplicates, (unsigned long long)f->refusals,
           (unsigned long long)f->partials, (unsigned long long)f->fails_before,
           (unsigned long long)f->fails_after, (unsigned long long)f->drops,
           (unsigned long long)f->kills, (unsigned long long)f->breaks,
           (unsigned long long)f->lates);
    printf(
        "landings   %llu, pieces %llu, forwards aborted %llu, restarts %llu, window broken %llu\n",
        (unsigned long long)c->landings, (unsigned long long)f->taken,
        (unsigned long long)c->aborts, (unsigned long long)c->restarts,
        (unsigned long long)f->held);
}

/* One seed, twice. Returns 0 when both went well and alike. */
static int run_twice(const struct options *o, uint64_t seed, struct world *w,
                     struct storm_counts *counts, struct hlg_loop_stats *faults)
{
    uint64_t first = 0;
    uint64_t second = 0;

    int broken = storm_run(seed, o->plant, w, &first, faults);
    if (o->plant != PLANT_NONE) {
        return broken; /* as it must be */
    }
    if (o->verbose || broken != 0) {
        printf("seed %llu: %s: %s\n", (unsigned long long)seed, w->text,
               broken != 0 ? w->broken : "good");
    }
    if (broken != 0) {
        printf("broken: %s (%llu, %llu) at step %llu; again with: halage-storm --seeds %llu\n",
               w->broken, (unsigned long long)w->broken_a, (unsigned long long)w->broken_b,
               (unsigned long long)w->counts.steps, (unsigned long long)seed);
        return 1;
    }
    add_counts(counts, &w->counts);
    broken = storm_run(seed, o->plant, w, &second, NULL);
    if (broken != 0 || first != second) {
        printf("broken: seed %llu ran differently the second time (%016llx, %016llx)\n",
               (unsigned long long)seed, (unsigned long long)first, (unsigned long long)second);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.begin = 1, .last = 300};
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "Storms over the whole messenger, by seed."};
    struct storm_counts counts = {0};
    struct hlg_loop_stats faults = {0};
    uint64_t bad = 0;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct world *w = malloc(sizeof *w);
    if (w == NULL) {
        return 1;
    }
    for (uint64_t seed = o.begin; seed <= o.last; seed++) {
        struct hlg_loop_stats one = {0};
        bad += (uint64_t)run_twice(&o, seed, w, &counts, &one);
        add_faults(&faults, &one);
    }
    free(w);
    if (o.plant != PLANT_NONE) {
        printf("plant %llu noticed by %llu of %llu seeds\n", (unsigned long long)o.plant,
               (unsigned long long)bad, (unsigned long long)(o.last - o.begin + 1));
        return bad > 0 ? 0 : 1;
    }
    print_sums(&counts, &faults);
    printf("%llu passed, %llu failed\n", (unsigned long long)(o.last - o.begin + 1 - bad),
           (unsigned long long)bad);
    return bad == 0 ? 0 : 1;
}
