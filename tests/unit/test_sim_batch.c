/*
 * Continuous batching in closed form: the same events as stepping one by one, at the same times, however
 * often it is asked; at a cost per change and not per token.
 *
 * Timelines worked out by hand; random ones against a model that makes each step (prices are whole
 * and linear, so times must be equal); a bent price against the same model to 1e-4; random calls in between against
 * none; MTP against the moments of its draws. Seeds are printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <driver/rng.h>

#include "batch.h"
#include "sim_price.h"

#define RANKS_MAX  3u
#define JOINS      60u
#define EVENTS_MAX 4096u
#define PAGE       16u

/* The seed in use: of the failure, when there is one. */
static uint64_t last_seed;

/* A sequence to join, and what is known of it. */
struct join {
    hlg_time at;
    uint32_t rank;
    uint32_t context;
    uint32_t output;
    hlg_time leave; /* after `at`; 0: stays */
};

struct world {
    struct sim_cost cost;
    uint32_t ranks;
    uint32_t sequences_max;
    uint32_t pages; /* of a rank; 0: no growth */
    struct join joins[JOINS];
    uint32_t join_count;
};

struct log {
    struct sim_batch_event events[EVENTS_MAX];
    uint32_t count;
    struct sim_gaps gaps;
    struct sim_batch_totals totals;
};

/* What grow() and release() work on. */
struct room {
    uint32_t free[RANKS_MAX];
    uint32_t held[JOINS]; /* pages of each sequence */
};

static bool grow(void *context, uint32_t rank, uint32_t sequence, uint32_t tokens)
{
    struct room *room = context;

    assert_int_equal(tokens, PAGE);
    if (room->free[rank] == 0) {
        return false;
    }
    room->free[rank]--;
    room->held[sequence]++;
    return true;
}

static void release(void *context, uint32_t rank, uint32_t sequence)
{
    struct room *room = context;

    room->free[rank] += room->held[sequence];
    room->held[sequence] = 0;
}

static struct sim_batch *create(const struct world *world, struct room *room)
{
    struct sim_batch_config config = {.cost = &world->cost,
                                      .ranks = world->ranks,
                                      .sequences_max = world->sequences_max,
                                      .waiting_max = JOINS,
                                      .seed = 3,
                                      .grow = world->pages != 0 ? grow : NULL,
                                      .grow_tokens = PAGE,
                                      .release = world->pages != 0 ? release : NULL,
                                      .context = room};
    struct sim_batch *batch = NULL;

    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        room->free[r] = world->pages;
    }
    memset(room->held, 0, sizeof(room->held));
    assert_int_equal(sim_batch_create(&config, &batch), 0);
    return batch;
}

static void draw_world(struct hlg_rng *rng, struct world *world)
{
    hlg_time at = 0;

    memset(world, 0, sizeof(*world));
    world->cost.step_ns = (double)hlg_rng_between(rng, 1, 1000);
    world->cost.sequence_ns = (double)hlg_rng_below(rng, 20);
    world->cost.context_ns = (double)hlg_rng_below(rng, 4);
    world->cost.longest_ns = (double)hlg_rng_below(rng, 3);
    world->cost.sum = true;
    world->ranks = (uint32_t)hlg_rng_between(rng, 1, RANKS_MAX);
    world->sequences_max = (uint32_t)hlg_rng_between(rng, 1, 6);
    world->join_count = (uint32_t)hlg_rng_between(rng, 1, JOINS);
    for (uint32_t i = 0; i < world->join_count; i++) {
        at += hlg_rng_below(rng, 4) == 0 ? 0 : hlg_rng_below(rng, 20000);
        world->joins[i] = (struct join){at, (uint32_t)hlg_rng_below(rng, world->ranks),
                                        (uint32_t)hlg_rng_below(rng, 200),
                                        (uint32_t)hlg_rng_between(rng, 1, 150), 0};
    }
}

/* Take what has happened up to `now`; `capacity` events at a time. */
static void take(struct sim_batch *batch, hlg_time now, uint32_t capacity, struct log *log)
{
    uint32_t given = capacity;

    while (given == capacity) {
        assert_true(log->count + capacity <= EVENTS_MAX);
        given = sim_batch_advance(batch, now, log->events + log->count, capacity);
        log->count += given;
        assert_int_equal(sim_batch_check(batch), 0);
    }
}

/*
 * Run a world by its events alone; with `rng`, also ask and advance at random times between. At the time of
 * a join, advance first or join first, as `before` says.
 */
static void run(const struct world *world, struct hlg_rng *rng, bool before, struct log *log)
{
    struct room room;
    struct sim_batch *batch = create(world, &room);
    uint32_t joined = 0;
    hlg_time now = 0;

    memset(log, 0, sizeof(*log));
    while (joined < world->join_count || sim_batch_next(batch) != HLG_TIME_NEVER) {
        hlg_time join = joined < world->join_count ? world->joins[joined].at : HLG_TIME_NEVER;
        hlg_time next = hlg_min_time(sim_batch_next(batch), join);

        for (uint32_t i = 0; i < joined; i++) {
            next = world->joins[i].leave > now ? hlg_min_time(next, world->joins[i].leave) : next;
        }
        if (rng != NULL && next > now && hlg_rng_below(rng, 3) == 0) {
            next = now + hlg_rng_below(rng, next - now);
        }
        assert_true(next >= now);
        now = next;
        for (uint32_t i = 0; i < joined; i++) {
            if (world->joins[i].leave != 0 &&
                world->joins[i].leave == now) { /* before what else happens then */
                sim_batch_leave(batch, now, i);
                room.free[world->joins[i].rank] += room.held[i];
                room.held[i] = 0;
            }
        }
        if (before || now < join) {
            take(batch, now, rng != NULL ? (uint32_t)hlg_rng_between(rng, 1, 4) : 8, log);
        }
        for (; joined < world->join_count && world->joins[joined].at == now; joined++) {
            const struct join *j = &world->joins[joined];

            assert_int_equal(
                sim_batch_join(batch, now, j->rank, joined, joined, j->context, j->output), 0);
        }
    }
    sim_batch_gaps(batch, &log->gaps);
    sim_batch_totals(batch, &log->totals);
    sim_batch_destroy(batch);
}

/* One sequence of the model. */
struct model_sequence {
    uint32_t made;
    bool running;
    bool over;
    uint32_t order; /* of admission */
    uint32_t room;
    hlg_time last;
};

struct model {
    const struct world *world;
    struct model_sequence sequences[JOINS];
    uint32_t free[RANKS_MAX];
    uint32_t held[JOINS];
    uint32_t admitted;
    hlg_time now;
    struct log *log;
};

static void model_event(struct model *model, enum sim_batch_event_kind kind, uint32_t i)
{
    const uint32_t made = model->sequences[i].made;

    model->log->events[model->log->count++] = (struct sim_batch_event){
        (uint32_t)kind, i, model->world->joins[i].rank, made, made, model->now};
}

static void model_end(struct model *model, enum sim_batch_event_kind kind, uint32_t i)
{
    model_event(model, kind, i);
    model->sequences[i].running = false;
    model->sequences[i].over = true;
    model->free[model->world->joins[i].rank] += model->held[i];
    model->held[i] = 0;
}

/* The running sequence that was admitted first after `order`, or last of all. */
static uint32_t model_find(const struct model *model, uint32_t rank, bool last, uint32_t order)
{
    uint32_t found = HLG_NONE;

    for (uint32_t i = 0; i < model->world->join_count; i++) {
        const struct model_sequence *s = &model->sequences[i];

        if (!s->running || (rank != HLG_NONE && model->world->joins[i].rank != rank) ||
            (!last && s->order < order)) {
            continue;
        }
        if (found == HLG_NONE || (s->order < model->sequences[found].order) != last) {
            found = i;
        }
    }
    return found;
}

static void model_grow(struct model *model)
{
    if (model->world->pages == 0) {
        return;
    }
    for (uint32_t i = model_find(model, HLG_NONE, false, 0); i != HLG_NONE;) {
        const uint32_t rank = model->world->joins[i].rank;
        struct model_sequence *s = &model->sequences[i];
        const uint32_t order = s->order;

        while (s->running && model->world->joins[i].context + s->made + 1 > s->room) {
            if (model->free[rank] != 0) {
                model->free[rank]--;
                model->held[i]++;
                s->room += PAGE;
            } else {
                model_end(model, SIM_BATCH_PREEMPTED, model_find(model, rank, true, 0));
            }
        }
        i = model_find(model, HLG_NONE, false, order + 1);
    }
}

/* The first that waits and has a slot. */
static bool model_admit(struct model *model)
{
    for (uint32_t i = 0; i < model->world->join_count; i++) {
        const struct join *join = &model->world->joins[i];
        struct model_sequence *s = &model->sequences[i];
        uint32_t running = 0;

        for (uint32_t j = 0; j < model->world->join_count; j++) {
            running += model->sequences[j].running && model->world->joins[j].rank == join->rank;
        }
        if (join->at <= model->now && !s->over && !s->running &&
            running < model->world->sequences_max) {
            s->running = true;
            s->order = ++model->admitted;
            s->room = hlg_div_ceil(join->context, PAGE) * PAGE;
            return true;
        }
    }
    return false;
}

/* One step of all: its price. */
static hlg_time model_price(const struct model *model)
{
    struct sim_rank_step ranks[RANKS_MAX] = {0};

    for (uint32_t i = 0; i < model->world->join_count; i++) {
        const uint32_t context = model->world->joins[i].context + model->sequences[i].made;
        struct sim_rank_step *rank = &ranks[model->world->joins[i].rank];

        if (model->sequences[i].running) {
            rank->sequences++;
            rank->context_sum += context;
            rank->context_max = hlg_max_u32(rank->context_max, context);
            rank->query_tokens = 1;
        }
    }
    return (hlg_time)(sim_cost_step_ns(&model->world->cost, ranks, model->world->ranks, NULL) +
                      0.5);
}

/* Who has left is gone. */
static void model_leave(struct model *model)
{
    for (uint32_t i = 0; i < model->world->join_count; i++) {
        struct model_sequence *s = &model->sequences[i];

        if (!s->over && model->world->joins[i].leave != 0 &&
            model->world->joins[i].leave <= model->now) {
            s->running = false;
            s->over = true;
            model->free[model->world->joins[i].rank] += model->held[i];
            model->held[i] = 0;
        }
    }
}

/* One boundary: who is new or over, in the order of the header. */
static void model_boundary(struct model *model)
{
    const uint32_t known = model->admitted;

    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = model_find(model, HLG_NONE, false, 0); i != HLG_NONE;) {
            struct model_sequence *s = &model->sequences[i];
            const uint32_t order = s->order;

            if (pass == 0 && s->made == 1) {
                model_event(model, SIM_BATCH_FIRST, i);
            } else if (pass == 1 && s->made == model->world->joins[i].output) {
                model_end(model, SIM_BATCH_FINISHED, i);
            }
            i = model_find(model, HLG_NONE, false, order + 1);
        }
    }
    model_grow(model);
    while (model_admit(model)) {
        model_grow(model);
    }
    for (uint32_t i = model_find(model, HLG_NONE, false, known + 1); i != HLG_NONE;) {
        model_event(model, SIM_BATCH_STEPPED, i);
        i = model_find(model, HLG_NONE, false, model->sequences[i].order + 1);
    }
}

/* Step one by one. */
static void run_model(const struct world *world, struct log *log)
{
    struct model model = {.world = world, .log = log};

    memset(log, 0, sizeof(*log));
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        model.free[r] = world->pages;
    }
    while (true) {
        hlg_time first = HLG_TIME_NEVER;

        model_boundary(&model);
        if (model_find(&model, HLG_NONE, false, 0) == HLG_NONE) {
            for (uint32_t i = 0; i < world->join_count; i++) {
                if (!model.sequences[i].over) {
                    first = hlg_min_time(first, world->joins[i].at);
                }
            }
            if (first == HLG_TIME_NEVER) {
                return;
            }
            model.now = first;
            model_leave(&model);
            continue;
        }
        hlg_time price = model_price(&model);

        model.now += price;
        model_leave(&model);
        log->totals.steps++;
        log->totals.busy_ns += (double)price;
        for (uint32_t i = 0; i < world->join_count; i++) {
            struct model_sequence *s = &model.sequences[i];

            if (s->running && s->made != 0) {
                sim_gaps_add(&log->gaps, model.now - s->last, 1);
            }
            s->last = model.now;
            s->made += s->running;
        }
    }
}

static void assert_equal_logs(const struct log *a, const struct log *b)
{
    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        const struct sim_batch_event *x = &a->events[i];
        const struct sim_batch_event *y = &b->events[i];

        if (memcmp(x, y, sizeof(*x)) != 0) {
            fail_msg("event %u: kind %u sequence %u tokens %u steps %u at %" PRIu64
                     ", not kind %u sequence %u tokens %u steps %u at %" PRIu64,
                     i, x->kind, x->sequence, x->tokens, x->steps, x->at, y->kind, y->sequence,
                     y->tokens, y->steps, y->at);
        }
    }
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->gaps.count, b->gaps.count, sizeof(a->gaps.count));
    assert_true(a->gaps.sum_ns == b->gaps.sum_ns && a->gaps.bursts == b->gaps.bursts);
    assert_int_equal(a->totals.steps, b->totals.steps);
    assert_true(a->totals.busy_ns == b->totals.busy_ns);
}

static struct log logs[2];

static void closed_form_equals_stepping_one_by_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        struct world world;

        last_seed = seed;
        draw_world(&rng, &world);
        world.pages = seed % 2 == 0 ? (uint32_t)hlg_rng_between(&rng, 1, 40) : 0;
        for (uint32_t i = 0; i < world.join_count && seed % 3 == 0; i++) {
            if (hlg_rng_below(&rng, 3) == 0) {
                world.joins[i].leave = world.joins[i].at + 1 + hlg_rng_below(&rng, 30000);
            }
        }
        run(&world, NULL, true, &logs[0]);
        run_model(&world, &logs[1]);
        assert_equal_logs(&logs[0], &logs[1]);
    }
}

static void asking_in_between_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        struct world world;

        last_seed = seed;
        draw_world(&rng, &world);
        world.cost.bend = 1e-6;
        world.pages = seed % 2 == 0 ? (uint32_t)hlg_rng_between(&rng, 1, 40) : 0;
        run(&world, NULL, true, &logs[0]);
        /* Joins at the very times of boundaries are the hard case. */
        for (uint32_t i = 1; i < world.join_count && i * 3 < logs[0].count; i += 2) {
            world.joins[i].at = logs[0].events[i * 3].at;
        }
        for (uint32_t i = 1; i < world.join_count; i++) {
            world.joins[i].at = world.joins[i].at < world.joins[i - 1].at ? world.joins[i - 1].at
                                                                          : world.joins[i].at;
        }
        run(&world, NULL, true, &logs[0]);
        for (uint32_t i = 0; i < 4; i++) {
            run(&world, &rng, i % 2 == 0, &logs[1]);
            assert_equal_logs(&logs[0], &logs[1]);
        }
    }
}

static void a_bent_price_is_met_to_1e_4(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        struct world world;

        last_seed = seed;
        draw_world(&rng, &world);
        /* All at once: then steps and not times decide who is next. Several ranks, so that the slowest
           one changes within an epoch; the bend is up to some tenth of a step. */
        world.cost = (struct sim_cost){
            .step_ns = 9e6, .sequence_ns = 3e4, .context_ns = 400, .longest_ns = 100, .bend = 1e-8};
        for (uint32_t i = 0; i < world.join_count; i++) {
            world.joins[i].at = 0;
            world.joins[i].context *= 40;
            world.joins[i].output *= 3;
        }
        run(&world, NULL, true, &logs[0]);
        run_model(&world, &logs[1]);
        assert_int_equal(logs[0].count, logs[1].count);
        for (uint32_t i = 0; i < logs[0].count; i++) {
            const double at = (double)logs[0].events[i].at;
            const double expected = (double)logs[1].events[i].at;

            assert_int_equal(logs[0].events[i].sequence, logs[1].events[i].sequence);
            assert_int_equal(logs[0].events[i].kind, logs[1].events[i].kind);
            assert_true(fabs(at - expected) <= 1e-4 * expected);
        }
    }
}

static void expect(const struct log *log, const char *text)
{
    static const char *const kinds[] = {"?", "stepped", "first", "finished", "preempted"};
    char said[1024] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < log->count; i++) {
        int n = snprintf(said + length, sizeof(said) - length, "%" PRIu64 " %c %s %u\n",
                         log->events[i].at, (char)('a' + log->events[i].sequence),
                         kinds[log->events[i].kind], log->events[i].tokens);

        assert_true(n > 0 && (size_t)n < sizeof(said) - length);
        length += (size_t)n;
    }
    assert_string_equal(said, text);
}

static void a_sequence_joins_at_the_next_boundary(void **state)
{
    const struct world world = {.cost = {.step_ns = 1000},
                                .ranks = 2,
                                .sequences_max = 2,
                                .joins = {{0, 0, 100, 4, 0},    /* a */
                                          {500, 1, 100, 1, 0},  /* b waits for the running step */
                                          {1000, 0, 100, 2, 0}, /* c comes at a boundary */
                                          {1001, 0, 0, 1, 0},   /* d finds no slot until c ends */
                                          {9000, 1, 0, 1, 0}},  /* e finds nobody */
                                .join_count = 5};

    (void)state;
    run(&world, NULL, true, &logs[0]);
    expect(&logs[0], "0 a stepped 0\n1000 a first 1\n1000 b stepped 0\n1000 c stepped 0\n"
                     "2000 b first 1\n2000 c first 1\n2000 b finished 1\n3000 c finished 2\n"
                     "3000 d stepped 0\n4000 d first 1\n4000 a finished 4\n4000 d finished 1\n"
                     "9000 e stepped 0\n10000 e first 1\n10000 e finished 1\n");
    assert_true(logs[0].totals.busy_ns == 5000 && logs[0].totals.tokens == 9);
    assert_true(logs[0].gaps.sum_ns == 4000);
}

static void the_youngest_leaves_when_pages_run_out(void **state)
{
    struct world world = {.cost = {.step_ns = 100},
                          .ranks = 1,
                          .sequences_max = 4,
                          .pages = 1,
                          .joins = {{0, 0, 14, 8, 0}, {0, 0, 15, 8, 0}, {150, 0, 4, 2, 0}},
                          .join_count = 3};

    (void)state;
    /* b fills its page with its first token and takes the last one; a fills its own with two, and its third
       step finds none: b, the youngest, goes, and c has its slot. */
    run(&world, NULL, true, &logs[0]);
    expect(&logs[0], "0 a stepped 0\n0 b stepped 0\n100 a first 1\n100 b first 1\n"
                     "200 b preempted 2\n200 c stepped 0\n300 c first 1\n400 c finished 2\n"
                     "800 a finished 8\n");
    world.joins[2] = (struct join){.at = 150, .context = 4, .output = 1};
    world.pages = 2;
    run(&world, NULL, true, &logs[0]);
    expect(&logs[0], "0 a stepped 0\n0 b stepped 0\n100 a first 1\n100 b first 1\n"
                     "200 c stepped 0\n300 c first 1\n300 c finished 1\n800 a finished 8\n"
                     "800 b finished 8\n");
}

static void who_leaves_is_not_heard_of_again(void **state)
{
    const struct world world = {
        .cost = {.step_ns = 100, .sequence_ns = 10}, .ranks = 1, .sequences_max = 2};
    struct room room;
    struct sim_batch *batch = create(&world, &room);

    (void)state;
    memset(&logs[0], 0, sizeof(logs[0]));
    for (uint32_t i = 0; i < 4; i++) { /* a and b run, c and d wait */
        assert_int_equal(sim_batch_join(batch, 0, 0, i, 0, 10, i == 0 ? 3 : 2), 0);
    }
    take(batch, 0, 8, &logs[0]);
    sim_batch_leave(batch, 50, 2); /* c waits; d is next */
    sim_batch_leave(batch, 60, 1); /* b's step runs on: d joins at its end */
    sim_batch_leave(batch, 60, 9); /* nobody */
    assert_int_equal(sim_batch_running(batch, 0), 1);
    assert_int_equal(sim_batch_waiting(batch, 0), 1);
    while (sim_batch_next(batch) != HLG_TIME_NEVER) {
        take(batch, sim_batch_next(batch), 8, &logs[0]);
    }
    expect(&logs[0], "0 a stepped 0\n0 b stepped 0\n120 a first 1\n120 d stepped 0\n"
                     "240 d first 1\n360 a finished 3\n360 d finished 2\n");
    memset(&logs[0], 0, sizeof(logs[0]));
    assert_int_equal(sim_batch_join(batch, 1000, 0, 5, 0, 10, 9), 0);
    take(batch, 1000, 8, &logs[0]);
    sim_batch_leave(batch, 1010, 5); /* the last one: its step still ends at 1110 */
    assert_int_equal(sim_batch_next(batch), HLG_TIME_NEVER);
    assert_int_equal(sim_batch_join(batch, 1020, 0, 6, 0, 10, 1), 0);
    take(batch, 2000, 8, &logs[0]);
    expect(&logs[0], "1000 f stepped 0\n1110 g stepped 0\n1220 g first 1\n1220 g finished 1\n");
    assert_int_equal(sim_batch_context(batch, 0), 0);
    sim_batch_destroy(batch);
}

static void a_gap_reaches_back_to_the_last_token(void **state)
{
    const struct world world = {.cost = {.step_ns = 1000}, .ranks = 1, .sequences_max = 2};
    struct room room;
    struct sim_batch *batch = create(&world, &room);
    struct sim_gaps gaps;

    (void)state;
    memset(&logs[0], 0, sizeof(logs[0]));
    assert_int_equal(sim_batch_join(batch, 0, 0, 0, 0, 10, 3), 0);
    assert_int_equal(sim_batch_resume(batch, 1500, 0, 1, 1, 10, 2, 700), 0);
    take(batch, 9000, 8, &logs[0]);
    expect(&logs[0], "0 a stepped 0\n1000 a first 1\n2000 b stepped 0\n3000 b first 1\n"
                     "3000 a finished 3\n4000 b finished 2\n");
    sim_batch_gaps(batch, &gaps);
    assert_true(gaps.sum_ns == 2 * 1000 + (3000 - 700) + 1000);
    assert_int_equal(gaps.count[sim_gap_bucket(2300)], 1);
    assert_int_equal(gaps.count[sim_gap_bucket(1000)], 3);
    sim_batch_destroy(batch);
}

static void mtp_makes_the_tokens_that_it_accepts(void **state)
{
    const struct sim_cost cost = {.step_ns = 1000};
    const uint32_t count = 400;
    const uint32_t output = 500;
    struct sim_batch_config config = {.cost = &cost,
                                      .ranks = 1,
                                      .sequences_max = count,
                                      .waiting_max = count,
                                      .draft = 3,
                                      .accept = {0.8, 0.5, 0.3}};
    struct sim_batch_event events[16];
    uint64_t steps[2] = {0, 0};
    uint32_t kept[3] = {0, 0, 0};
    double spread = 0;

    (void)state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct sim_batch *batch = NULL;
        struct sim_gaps gaps;
        uint64_t firsts = 0;

        config.seed = turn == 2 ? 8 : 7;
        assert_int_equal(sim_batch_create(&config, &batch), 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(sim_batch_join(batch, 0, 0, i, i, 100, output), 0);
        }
        while (sim_batch_next(batch) != HLG_TIME_NEVER) {
            uint32_t given = sim_batch_advance(batch, sim_batch_next(batch), events, 16);

            for (uint32_t i = 0; i < given; i++) {
                firsts += events[i].kind == SIM_BATCH_FIRST ? events[i].tokens : 0;
                if (events[i].kind == SIM_BATCH_FINISHED) {
                    assert_int_equal(events[i].tokens, output);
                    assert_true(events[i].steps >= output / 4 && events[i].steps <= output);
                    assert_int_equal(events[i].at, 1000u * events[i].steps);
                    steps[turn % 2] += turn != 2 ? events[i].steps : 0;
                    kept[turn] = events[i].sequence == 0 ? events[i].steps : kept[turn];
                }
            }
        }
        sim_batch_gaps(batch, &gaps);
        if (turn == 0) {
            uint64_t all = 0;

            for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
                all += gaps.count[i];
            }
            assert_int_equal(all + gaps.bursts, (uint64_t)count * output - count);
            assert_true(gaps.bursts == (uint64_t)count * output - steps[0]);
            /* mean 2.6 tokens, of variance 1.24; over 400 first steps */
            spread = 6 * sqrt(1.24 / count);
            assert_true(fabs((double)firsts / count - 2.6) < spread);
        }
        sim_batch_destroy(batch);
    }
    /* Tokens of all steps: the last of each request may make more than are left, so 1 % on top. */
    assert_true(fabs((double)count * output / (double)steps[0] - 2.6) < 0.026 + 0.01);
    assert_int_equal(steps[0], steps[1]);
    assert_int_equal(kept[0], kept[1]);
    assert_int_not_equal(kept[0], kept[2]);
}

static void it_costs_a_change_and_not_a_token(void **state)
{
    uint64_t calls = 0;
    const struct sim_cost cost = {
        .step_ns = 9e6, .sequence_ns = 1e5, .context_ns = 50, .calls = &calls};
    const char *more = getenv("HALAGE_BATCH_SEQUENCES");
    const uint32_t count = more != NULL ? (uint32_t)strtoul(more, NULL, 10) : 20000;
    const struct sim_batch_config config = {
        .cost = &cost, .ranks = 1, .sequences_max = 256, .waiting_max = 1024, .seed = 1};
    struct hlg_rng rng = hlg_rng_seed(1);
    struct sim_batch *batch = NULL;
    struct sim_batch_event events[64];
    uint32_t finished = 0;
    uint32_t joined = 0;
    hlg_time join = 0;

    (void)state;
    assert_int_equal(sim_batch_create(&config, &batch), 0);
    while (finished < count) {
        hlg_time now = hlg_min_time(sim_batch_next(batch), joined < count ? join : HLG_TIME_NEVER);
        uint32_t given = sim_batch_advance(batch, now, events, 64);

        for (uint32_t i = 0; i < given; i++) {
            finished += events[i].kind == SIM_BATCH_FINISHED;
        }
        if (joined < count && now == join) {
            assert_int_equal(sim_batch_join(batch, now, 0, joined, joined, 1000, 200), 0);
            joined++;
            join +=
                hlg_rng_below(&rng, 200000000); /* 10 a second on average: some 30 in the batch */
        }
    }
    print_message("batch: %u sequences of 200 tokens, %.2f prices each\n", count,
                  (double)calls / count);
    assert_true((double)calls / count < 6);
    sim_batch_destroy(batch);
}

static void impossible_configurations_are_refused(void **state)
{
    const struct sim_cost cost = {.step_ns = 1};
    const struct sim_batch_config good = {.cost = &cost,
                                          .ranks = 1,
                                          .sequences_max = 1,
                                          .waiting_max = 2,
                                          .draft = 2,
                                          .accept = {0.9, 0.9}};
    struct sim_batch_config bad = good;
    struct sim_batch *batch = NULL;

    (void)state;
    bad.ranks = 0;
    assert_int_equal(sim_batch_create(&bad, &batch), -HLG_EINVAL);
    bad = good;
    bad.accept[1] = 0.95; /* rises */
    assert_int_equal(sim_batch_create(&bad, &batch), -HLG_EINVAL);
    bad = good;
    bad.draft = SIM_DRAFT_MAX + 1;
    assert_int_equal(sim_batch_create(&bad, &batch), -HLG_EINVAL);
    bad = good;
    bad.grow = grow; /* by no page */
    assert_int_equal(sim_batch_create(&bad, &batch), -HLG_EINVAL);
    bad = good;
    bad.waiting_max = 0;
    assert_int_equal(sim_batch_create(&bad, &batch), -HLG_EINVAL);
    assert_int_equal(sim_batch_create(&good, &batch), 0);
    assert_int_equal(sim_batch_join(batch, 0, 0, 1, 1, 0, 1), 0);
    assert_int_equal(sim_batch_join(batch, 0, 0, 2, 2, 0, 1), 0);
    assert_int_equal(sim_batch_join(batch, 0, 0, 3, 3, 0, 1), -HLG_ELIMIT);
    sim_batch_destroy(batch);
}

static void gaps_fall_into_their_buckets(void **state)
{
    struct sim_gaps gaps = {0};
    struct sim_gaps sum = {0};

    (void)state;
    for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
        const double edge = sim_gap_bucket_ns(i);
        const double exact = 1000 * pow(2, i / 8.0);

        assert_true(fabs(edge - exact) < 1e-12 * exact);
        assert_int_equal(sim_gap_bucket((hlg_time)ceil(edge)), i);
        assert_int_equal(sim_gap_bucket((hlg_time)ceil(edge) - 1), i == 0 ? 0 : i - 1);
    }
    assert_int_equal(sim_gap_bucket(0), 0);
    assert_int_equal(sim_gap_bucket(UINT64_MAX), SIM_GAP_BUCKETS - 1);
    sim_gaps_add(&gaps, 1000000, 3);
    sim_gaps_merge(&sum, &gaps);
    sim_gaps_merge(&sum, &gaps);
    assert_int_equal(sum.count[sim_gap_bucket(1000000)], 6);
    assert_true(sum.sum_ns == 6e6);
}

static int print_seed(void **state)
{
    (void)state;
    print_message("batch: seeds up to %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_joins_at_the_next_boundary),
        cmocka_unit_test(the_youngest_leaves_when_pages_run_out),
        cmocka_unit_test(who_leaves_is_not_heard_of_again),
        cmocka_unit_test_teardown(closed_form_equals_stepping_one_by_one, print_seed),
        cmocka_unit_test_teardown(asking_in_between_changes_nothing, print_seed),
        cmocka_unit_test_teardown(a_bent_price_is_met_to_1e_4, print_seed),
        cmocka_unit_test(a_gap_reaches_back_to_the_last_token),
        cmocka_unit_test(mtp_makes_the_tokens_that_it_accepts),
        cmocka_unit_test(it_costs_a_change_and_not_a_token),
        cmocka_unit_test(impossible_configurations_are_refused),
        cmocka_unit_test(gaps_fall_into_their_buckets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
