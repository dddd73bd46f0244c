/*
 * The co-located engine: queues, budget, pages, preemption and prefix cache in one node of ranks that step
 * together.
 *
 * Timelines worked out by hand; random ones against a model that makes each step and knows nothing of
 * plans (prices are whole and linear, so events and times must be equal); random calls in between against
 * none; what must hold in each run: tokens and pages conserved, nobody starved, served in order. Seeds are
 * printed.
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

#include "mixed.h"
#include "mixed_model.h"
#include "sim_price.h"

#define PROMPT_MAX 60u /* of drawn requests */
#define OUTPUT_MAX 36u

/* The seed in use: of the failure, when there is one. */
static uint64_t last_seed;

static struct mixed_log logs[2];

/* Take what has happened up to `now`; `capacity` events at a time. */
static void take(struct sim_mixed *mixed, hlg_time now, uint32_t capacity, struct mixed_log *log)
{
    uint32_t given = capacity;

    while (given == capacity) {
        assert_true(log->count + capacity <= MIXED_EVENTS_MAX);
        given = sim_mixed_advance(mixed, now, log->events + log->count, capacity);
        log->count += given;
        assert_int_equal(sim_mixed_check(mixed), 0);
    }
}

static struct sim_mixed *create(const struct mixed_world *world)
{
    struct sim_mixed_config config = world->config;
    struct sim_mixed *mixed = NULL;

    config.cost = &world->cost;
    assert_int_equal(sim_mixed_create(&config, &mixed), 0);
    return mixed;
}

static void submit(const struct mixed_world *world, struct sim_mixed *mixed, uint32_t index)
{
    const struct mixed_request *r = &world->requests[index];

    assert_int_equal(sim_mixed_submit(mixed, r->at, r->rank, index, index, r->prompt, r->output,
                                      r->names, r->name_count),
                     0);
}

/* Run a world by its events alone; with `rng`, also ask and advance at random times between. At the time of
 * a submit, advance first or submit first, as `before` says. */
static void run(const struct mixed_world *world, struct hlg_rng *rng, bool before,
                struct mixed_log *log)
{
    struct sim_mixed *mixed = create(world);
    uint32_t submitted = 0;
    hlg_time now = 0;

    memset(log, 0, sizeof(*log));
    while (submitted < world->request_count || sim_mixed_next(mixed) != HLG_TIME_NEVER) {
        hlg_time arrival =
            submitted < world->request_count ? world->requests[submitted].at : HLG_TIME_NEVER;
        hlg_time next = hlg_min_time(sim_mixed_next(mixed), arrival);

        if (rng != NULL && next > now && hlg_rng_below(rng, 3) == 0) {
            next = now + hlg_rng_below(rng, next - now);
        }
        assert_true(next >= now);
        now = next;
        if (before || now < arrival) {
            take(mixed, now, rng != NULL ? (uint32_t)hlg_rng_between(rng, 1, 4) : 8, log);
        }
        for (; submitted < world->request_count && world->requests[submitted].at == now;
             submitted++) {
            submit(world, mixed, submitted);
        }
    }
    for (uint32_t r = 0; r < world->config.ranks; r++) {
        assert_int_equal(sim_mixed_pages_used(mixed, r), 0);
        assert_int_equal(sim_mixed_waiting(mixed, r) + sim_mixed_computing(mixed, r) +
                             sim_mixed_running(mixed, r),
                         0);
    }
    sim_mixed_gaps(mixed, &log->gaps);
    sim_mixed_totals(mixed, &log->totals);
    sim_mixed_destroy(mixed);
}

/* Requests of a rank start in the order in which they were submitted, but those that start anew. */
static void assert_in_order(const struct mixed_world *world, const struct mixed_log *log)
{
    uint32_t next[MIXED_RANKS_MAX] = {0};

    for (uint32_t i = 0; i < log->count; i++) {
        const struct sim_mixed_event *event = &log->events[i];

        if (event->kind == SIM_MIXED_STARTED && event->preemptions == 0) {
            assert_true(event->request >= next[event->rank]);
            next[event->rank] = event->request + 1;
            assert_int_equal(event->rank, world->requests[event->request].rank);
        }
    }
}

/* Each request said everything, once and in order; sums agree. */
static void assert_conserved(const struct mixed_world *world, const struct mixed_log *log)
{
    static uint32_t seen[MIXED_REQUESTS_MAX];
    static hlg_time first[MIXED_REQUESTS_MAX];
    uint64_t out = 0;
    uint64_t prompts = 0;
    uint64_t gaps = 0;
    double spans = 0;

    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < log->count; i++) {
        const struct sim_mixed_event *event = &log->events[i];
        const uint32_t output = world->requests[event->request].output;

        assert_true(i == 0 || event->at >= log->events[i - 1].at);
        switch ((enum sim_mixed_event_kind)event->kind) {
        case SIM_MIXED_STARTED:
            assert_true(seen[event->request] <= 1);
            seen[event->request] = 1;
            break;
        case SIM_MIXED_COMPUTED:
            assert_int_equal(seen[event->request], 1);
            seen[event->request] = 2;
            break;
        case SIM_MIXED_FIRST:
            assert_int_equal(seen[event->request], 2);
            assert_int_equal(event->tokens, 1);
            seen[event->request] = 3;
            first[event->request] = event->at;
            break;
        case SIM_MIXED_PREEMPTED:
            assert_in_range(seen[event->request], 1, 3);
            break;
        case SIM_MIXED_FINISHED:
            assert_int_equal(seen[event->request], 3);
            assert_int_equal(event->tokens, output);
            seen[event->request] = 4;
            spans += (double)(event->at - first[event->request]);
            break;
        }
    }
    assert_in_order(world, log);
    for (uint32_t i = 0; i < world->request_count; i++) {
        assert_int_equal(seen[i], 4); /* nobody starved */
        out += world->requests[i].output;
        prompts += world->requests[i].prompt;
    }
    for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
        gaps += log->gaps.count[i];
    }
    assert_int_equal(log->totals.tokens_out, out);
    assert_int_equal(gaps + log->gaps.bursts, out - world->request_count);
    assert_true(fabs(log->gaps.sum_ns - spans) <= 1e-9 * spans);
    assert_true(log->totals.tokens_in + log->totals.tokens_cached >= prompts);
    assert_true(log->totals.preemptions != 0 ||
                log->totals.tokens_in + log->totals.tokens_cached == prompts);
}

static void assert_equal_logs(const struct mixed_log *a, const struct mixed_log *b)
{
    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        const struct sim_mixed_event *x = &a->events[i];
        const struct sim_mixed_event *y = &b->events[i];

        if (memcmp(x, y, sizeof(*x)) != 0) {
            fail_msg("event %u: kind %u request %u tokens %u cached %u chunks %u steps %u "
                     "preemptions %u at %" PRIu64 ", not kind %u request %u tokens %u cached %u "
                     "chunks %u steps %u preemptions %u at %" PRIu64,
                     i, x->kind, x->request, x->tokens, x->cached, x->chunks, x->steps,
                     x->preemptions, x->at, y->kind, y->request, y->tokens, y->cached, y->chunks,
                     y->steps, y->preemptions, y->at);
        }
    }
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->gaps.count, b->gaps.count, sizeof(a->gaps.count));
    assert_true(a->gaps.sum_ns == b->gaps.sum_ns);
    assert_int_equal(a->totals.steps, b->totals.steps);
    assert_int_equal(a->totals.prompt_steps, b->totals.prompt_steps);
    assert_true(a->totals.busy_ns == b->totals.busy_ns);
    assert_int_equal(a->totals.tokens_in, b->totals.tokens_in);
    assert_int_equal(a->totals.tokens_cached, b->totals.tokens_cached);
    assert_int_equal(a->totals.tokens_out, b->totals.tokens_out);
    assert_int_equal(a->totals.preemptions, b->totals.preemptions);
}

static void draw_config(struct hlg_rng *rng, struct mixed_world *world)
{
    memset(world, 0, sizeof(*world));
    world->cost = (struct sim_cost){.step_ns = (double)hlg_rng_between(rng, 1, 500),
                                    .sequence_ns = (double)hlg_rng_below(rng, 20),
                                    .context_ns = (double)hlg_rng_below(rng, 3),
                                    .longest_ns = (double)hlg_rng_below(rng, 3),
                                    .token_ns = (double)hlg_rng_between(rng, 1, 10),
                                    .pair_ns = (double)hlg_rng_below(rng, 2),
                                    .sum = true};
    world->config =
        (struct sim_mixed_config){.ranks = (uint32_t)hlg_rng_between(rng, 1, MIXED_RANKS_MAX),
                                  .budget_tokens = (uint32_t)hlg_rng_between(rng, 1, 100),
                                  .chunked = hlg_rng_chance(rng, 600000),
                                  .sequences_max = (uint32_t)hlg_rng_between(rng, 1, 6),
                                  .requests_max = MIXED_REQUESTS_MAX,
                                  .page_tokens = (uint32_t)hlg_rng_between(rng, 2, 12),
                                  .grow = hlg_rng_chance(rng, 600000),
                                  .cache = hlg_rng_chance(rng, 500000),
                                  .seed = hlg_rng_next(rng)};
    /* At least for the longest request. */
    world->config.pages = hlg_div_ceil((uint32_t)hlg_rng_between(rng, PROMPT_MAX + OUTPUT_MAX, 300),
                                       world->config.page_tokens);
}

/* A world whose requests share the beginnings of some conversations. */
static void draw_world(struct hlg_rng *rng, struct mixed_world *world)
{
    const uint64_t pause = hlg_rng_between(rng, 1, 4000);
    hlg_time at = 0;

    draw_config(rng, world);
    world->request_count = (uint32_t)hlg_rng_between(rng, 1, MIXED_REQUESTS_MAX);
    for (uint32_t i = 0; i < world->request_count; i++) {
        struct mixed_request *r = &world->requests[i];
        const uint64_t conversation = hlg_rng_below(rng, 4);
        const uint32_t shared = (uint32_t)hlg_rng_below(rng, 12);

        at += hlg_rng_below(rng, 4) == 0 ? 0 : hlg_rng_below(rng, pause);
        r->at = at;
        r->rank = (uint32_t)hlg_rng_below(rng, world->config.ranks);
        r->prompt = (uint32_t)hlg_rng_between(rng, 1, PROMPT_MAX);
        r->output = (uint32_t)hlg_rng_between(rng, 1, OUTPUT_MAX);
        r->name_count = (r->prompt + r->output) / world->config.page_tokens;
        for (uint32_t k = 0; k < r->name_count; k++) {
            r->names[k] = k < shared ? conversation << 32 | k : (uint64_t)(i + 10) << 32 | k;
        }
    }
}

static void closed_form_equals_stepping_one_by_one(void **state)
{
    uint64_t preemptions = 0;
    uint64_t cached = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        static struct mixed_world world;

        last_seed = seed;
        draw_world(&rng, &world);
        run(&world, NULL, true, &logs[0]);
        mixed_model_run(&world, &logs[1]);
        assert_equal_logs(&logs[0], &logs[1]);
        assert_conserved(&world, &logs[0]);
        preemptions += logs[0].totals.preemptions;
        cached += logs[0].totals.tokens_cached;
    }
    print_message("mixed: %" PRIu64 " preemptions, %" PRIu64 " tokens cached\n", preemptions,
                  cached);
    assert_true(preemptions > 1000 &&
                cached > 10000); /* the worlds have in them what they should */
}

static void asking_in_between_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        static struct mixed_world world;

        last_seed = seed;
        draw_world(&rng, &world);
        world.cost.bend = 1e-5;
        world.cost.sum = false;
        world.config.draft = (uint32_t)hlg_rng_below(&rng, 3);
        world.config.accept[0] = 0.7;
        world.config.accept[1] = 0.4;
        run(&world, NULL, true, &logs[0]);
        assert_conserved(&world, &logs[0]);
        /* Submits at the very times of boundaries are the hard case. */
        for (uint32_t i = 1; i < world.request_count && i * 3 < logs[0].count; i++) {
            hlg_time at = i % 2 == 0 ? world.requests[i].at : logs[0].events[i * 3].at;

            world.requests[i].at = at < world.requests[i - 1].at ? world.requests[i - 1].at : at;
        }
        for (uint32_t i = 1; i < world.request_count; i++) {
            world.requests[i].at = world.requests[i].at < world.requests[i - 1].at
                                       ? world.requests[i - 1].at
                                       : world.requests[i].at;
        }
        run(&world, NULL, true, &logs[0]);
        for (uint32_t i = 0; i < 4; i++) {
            run(&world, &rng, i % 2 == 0, &logs[1]);
            assert_equal_logs(&logs[0], &logs[1]);
        }
    }
}

/* A world of one rank with plenty of everything: steps take 100 ns and 1 ns a prompt token. */
static struct mixed_world plain_world(void)
{
    return (struct mixed_world){.cost = {.step_ns = 100, .token_ns = 1},
                                .config = {.ranks = 1,
                                           .budget_tokens = 100,
                                           .chunked = true,
                                           .sequences_max = 16,
                                           .requests_max = MIXED_REQUESTS_MAX,
                                           .pages = 1000,
                                           .page_tokens = 16}};
}

static void add_request(struct mixed_world *world, hlg_time at, uint32_t rank, uint32_t prompt,
                        uint32_t output)
{
    world->requests[world->request_count++] =
        (struct mixed_request){.at = at, .rank = rank, .prompt = prompt, .output = output};
}

static void expect(const struct mixed_log *log, const char *text)
{
    static const char *const kinds[] = {"?",        "computed",  "first",
                                        "finished", "preempted", "started"};
    char said[2048] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < log->count; i++) {
        int n = 0;

        if (log->events[i].kind == SIM_MIXED_COMPUTED) { /* says no more than FIRST */
            continue;
        }
        n = snprintf(said + length, sizeof(said) - length, "%" PRIu64 " %c %s %u\n",
                     log->events[i].at, (char)('a' + log->events[i].request),
                     kinds[log->events[i].kind], log->events[i].tokens);
        assert_true(n > 0 && (size_t)n < sizeof(said) - length);
        length += (size_t)n;
    }
    assert_string_equal(said, text);
}

static void chunks_ride_on_decode_steps(void **state)
{
    struct mixed_world world = plain_world();

    (void)state;
    add_request(&world, 0, 0, 50, 4);   /* a: 150, and a token a step */
    add_request(&world, 10, 0, 150, 2); /* b waits for a's step; 99 tokens, then 51 */
    add_request(&world, 160, 0, 40, 1); /* c: with b's second part */
    run(&world, NULL, true, &logs[0]);
    /* Steps: 0-150 a's prompt; 150-349 a and 99 of b; 349-540 a, 51 of b, 40 of c; 540-640 a and b. */
    expect(&logs[0], "0 a started 0\n150 a first 1\n150 b started 0\n349 c started 0\n"
                     "540 b first 1\n540 c first 1\n540 c finished 1\n640 a finished 4\n"
                     "640 b finished 2\n");
    assert_int_equal(logs[0].totals.steps, 4);
    assert_int_equal(logs[0].totals.prompt_steps, 3);
    assert_int_equal(logs[0].totals.tokens_in, 240);
    assert_true(logs[0].totals.busy_ns == 640);
    assert_true(logs[0].gaps.sum_ns == 490 + 100);
}

static void whole_prompts_stop_decode_on_all_ranks(void **state)
{
    struct mixed_world world = plain_world();

    (void)state;
    world.config.chunked = false;
    world.config.ranks = 2;
    add_request(&world, 0, 0, 50, 3);    /* a */
    add_request(&world, 200, 1, 150, 2); /* b is over the budget, and goes alone */
    add_request(&world, 200, 1, 30, 1);  /* c does not fit beside it */
    run(&world, NULL, true, &logs[0]);
    /* Steps: 0-150 a; 150-250 a decodes; 250-500 b; 500-630 c; 630-730 a and b decode. */
    expect(&logs[0], "0 a started 0\n150 a first 1\n250 b started 0\n500 b first 1\n"
                     "500 c started 0\n630 c first 1\n630 c finished 1\n730 a finished 3\n"
                     "730 b finished 2\n");
    assert_true(logs[0].gaps.sum_ns == 100 + 480 + 230);
    assert_int_equal(logs[0].totals.prompt_steps, 3);
}

static void the_youngest_is_computed_anew(void **state)
{
    struct mixed_world world = plain_world();

    (void)state;
    world.config.grow = true;
    world.config.pages = 4;
    add_request(&world, 0, 0, 31,
                20); /* a: 2 pages; its 2nd decode step wants a third, its 18th a fourth */
    add_request(&world, 0, 0, 30, 2); /* b: 2 pages */
    add_request(&world, 0, 0, 10, 1); /* c: no page until b has gone; b waits before it */
    run(&world, NULL, true, &logs[0]);
    /* 0-161 a and b; 161-261: b finishes with its second token before a wants more; then c. */
    expect(&logs[0],
           "0 a started 0\n0 b started 0\n161 a first 1\n161 b first 1\n261 b finished 2\n"
           "261 c started 0\n371 c first 1\n371 c finished 1\n2071 a finished 20\n");
    world.requests[1].output = 8;
    world.requests[2].at = 300;
    run(&world, NULL, true, &logs[0]);
    /* At 261 a wants its third page: b goes, with 2 tokens out. It comes first again, with 32 tokens to
       compute, but a has 3 of 4 pages until it ends at 2061. Then b and c take 142 ns, in which b says its
       third token, and b 5 steps more. */
    expect(&logs[0], "0 a started 0\n0 b started 0\n161 a first 1\n161 b first 1\n"
                     "261 b preempted 2\n2061 a finished 20\n2061 c started 0\n2203 c first 1\n"
                     "2203 c finished 1\n2703 b finished 8\n");
    assert_int_equal(logs[0].totals.preemptions, 1);
    assert_int_equal(logs[0].totals.tokens_in, 31 + 30 + 32 + 10);
}

static void a_burst_of_b_prompts_waits_b_plus_1_halves(void **state)
{
    (void)state;
    for (uint32_t chunked = 0; chunked < 2; chunked++) {
        for (uint32_t b = 1; b <= 16; b++) {
            struct mixed_world world = plain_world();
            double sum = 0;

            world.config.chunked = chunked == 1;
            for (uint32_t i = 0; i < b; i++) {
                add_request(&world, 5, 0, 100, 1);
            }
            run(&world, NULL, true, &logs[0]);
            for (uint32_t i = 0; i < logs[0].count; i++) {
                sum += logs[0].events[i].kind == SIM_MIXED_FIRST
                           ? (double)(logs[0].events[i].at - 5)
                           : 0;
            }
            assert_true(fabs(sum / b - (b + 1) / 2.0 * 200) < 1e-9);
        }
    }
}

/* Name of the page of `page_tokens` tokens that ends a conversation's first `tokens` tokens. */
static uint64_t name_of(uint32_t conversation, uint32_t tokens)
{
    return (uint64_t)conversation << 32 | tokens;
}

/* Turns of conversations on one rank, one after the other; each has the whole one before in front. Fills
 * cached [turns] with the cached tokens of each, by the event. Returns tokens computed. */
static uint64_t run_turns(uint32_t page_tokens, const uint32_t (*turns)[3], uint32_t count,
                          uint32_t *cached)
{
    struct mixed_world world = plain_world();
    struct sim_mixed *mixed = NULL;
    struct sim_mixed_totals totals;
    hlg_time now = 0;

    world.config.page_tokens = page_tokens;
    world.config.pages = 65536 / page_tokens * 4;
    world.config.budget_tokens = 2048;
    world.config.cache = true;
    mixed = create(&world);
    for (uint32_t i = 0; i < count; i++) {
        static uint64_t names[65536];
        const uint32_t whole = (turns[i][1] + turns[i][2]) / page_tokens;
        struct sim_mixed_event event;

        for (uint32_t k = 0; k < whole; k++) {
            names[k] = name_of(turns[i][0], (k + 1) * page_tokens);
        }
        assert_int_equal(
            sim_mixed_submit(mixed, now, 0, i, i, turns[i][1], turns[i][2], names, whole), 0);
        while (sim_mixed_next(mixed) != HLG_TIME_NEVER) {
            now = sim_mixed_next(mixed);
            if (sim_mixed_advance(mixed, now, &event, 1) == 1) {
                cached[i] = event.cached;
            }
        }
    }
    sim_mixed_totals(mixed, &totals);
    sim_mixed_destroy(mixed);
    return totals.tokens_in;
}

static void a_turn_computes_its_new_tokens_alone(void **state)
{
    /* conversation, prompt, output: each prompt is the turn before, its answer, and something new */
    static const uint32_t turns[][3] = {{1, 3000, 200}, {2, 700, 300},  {1, 3700, 500},
                                        {2, 1600, 10},  {1, 4400, 100}, {1, 4400, 100}};
    /* Tokens with KV by then: all but the last one of the turn before. */
    const uint32_t known[] = {0, 0, 3199, 999, 4199, 4499};
    const uint32_t sizes[] = {1, 16, 64, 512};
    uint32_t cached[6];

    (void)state;
    for (uint32_t s = 0; s < 4; s++) {
        const uint64_t computed = run_turns(sizes[s], turns, 6, cached);
        uint64_t expected = 0;

        for (uint32_t i = 0; i < 6; i++) {
            uint32_t hits = hlg_min_u32(known[i], turns[i][1]) / sizes[s] * sizes[s];

            /* Equal up to the page that is not full; one token at least is computed. */
            assert_int_equal(cached[i], hlg_min_u32(hits, turns[i][1] - 1));
            expected += turns[i][1] - cached[i];
        }
        assert_int_equal(computed, expected);
    }
    assert_int_equal(run_turns(1, turns, 6, cached),
                     3000 + 700 + (3700 - 3199) + (1600 - 999) + (4400 - 4199) + 1);
}

/* Keep `users` requests of 900 + 100 tokens at a node, `count` in all. Returns tokens out per ns; *running is
 * the mean of those that run. */
static double run_closed(const struct mixed_world *world, uint32_t users, uint32_t count,
                         double *running)
{
    struct sim_mixed *mixed = create(world);
    struct sim_mixed_event events[8];
    struct sim_mixed_totals totals;
    uint32_t submitted = 0;
    uint32_t finished = 0;
    hlg_time now = 0;
    double area = 0;

    while (finished < count) {
        hlg_time next = 0;
        uint32_t given = 0;

        for (; submitted < count && submitted - finished < users; submitted++) {
            assert_int_equal(
                sim_mixed_submit(mixed, now, 0, submitted, submitted, 900, 100, NULL, 0), 0);
        }
        next = sim_mixed_next(mixed);
        area += (double)(next - now) *
                (double)(sim_mixed_running(mixed, 0) + sim_mixed_computing(mixed, 0));
        now = next;
        given = sim_mixed_advance(mixed, now, events, 8);
        for (uint32_t i = 0; i < given; i++) {
            finished += events[i].kind == SIM_MIXED_FINISHED;
        }
    }
    sim_mixed_totals(mixed, &totals);
    sim_mixed_destroy(mixed);
    *running = area / (double)now;
    return (double)totals.tokens_out / (double)now;
}

static void beyond_the_pages_more_users_only_wait(void **state)
{
    struct mixed_world world = plain_world();
    double running[3];
    double rate[3];

    (void)state;
    world.cost = (struct sim_cost){.step_ns = 9e6, .sequence_ns = 1e5, .token_ns = 2e4};
    world.config.budget_tokens = 2048;
    world.config.sequences_max = 64;
    world.config.page_tokens = 10;
    world.config.pages = 1200; /* 12 requests of 1000 tokens */
    rate[0] = run_closed(&world, 6, 600, &running[0]);
    rate[1] = run_closed(&world, 16, 600, &running[1]);
    rate[2] = run_closed(&world, 48, 600, &running[2]);
    print_message("mixed: 6, 16, 48 users: %.2f, %.2f, %.2f run\n", running[0], running[1],
                  running[2]);
    assert_true(fabs(running[0] - 6) < 0.02 * 6);
    assert_true(fabs(running[1] - 12) < 0.02 * 12 && fabs(running[2] - 12) < 0.02 * 12);
    assert_true(rate[1] > 1.2 * rate[0] && fabs(rate[2] / rate[1] - 1) < 0.02);
}

static void it_costs_a_change_and_not_a_token(void **state)
{
    uint64_t calls = 0;
    struct mixed_world world = plain_world();
    const char *more = getenv("HALAGE_MIXED_REQUESTS");
    const uint32_t count = more != NULL ? (uint32_t)strtoul(more, NULL, 10) : 5000;
    struct hlg_rng rng = hlg_rng_seed(1);
    struct sim_mixed *mixed = NULL;
    struct sim_mixed_event events[8];
    uint32_t submitted = 0;
    uint32_t finished = 0;
    hlg_time arrival = 0;

    (void)state;
    world.cost =
        (struct sim_cost){.step_ns = 9e6, .sequence_ns = 1e5, .token_ns = 2e4, .calls = &calls};
    world.config = (struct sim_mixed_config){.ranks = 1,
                                             .budget_tokens = 2048,
                                             .chunked = true,
                                             .sequences_max = 256,
                                             .requests_max = 4096,
                                             .pages = 10000,
                                             .page_tokens = 64,
                                             .grow = true};
    mixed = create(&world);
    while (finished < count) {
        hlg_time now =
            hlg_min_time(sim_mixed_next(mixed), submitted < count ? arrival : HLG_TIME_NEVER);
        uint32_t given = sim_mixed_advance(mixed, now, events, 8);

        for (uint32_t i = 0; i < given; i++) {
            finished += events[i].kind == SIM_MIXED_FINISHED;
        }
        if (submitted < count && now == arrival) {
            assert_int_equal(
                sim_mixed_submit(mixed, now, 0, submitted, submitted, 1000, 200, NULL, 0), 0);
            submitted++;
            arrival += hlg_rng_below(&rng, 200000000); /* 10 a second on average */
        }
    }
    print_message("mixed: %u requests of 1000 + 200 tokens, %.2f prices each\n", count,
                  (double)calls / count);
    assert_true((double)calls / count < 8);
    sim_mixed_destroy(mixed);
}

static void what_cannot_fit_is_refused(void **state)
{
    struct mixed_world world = plain_world();
    struct sim_mixed *mixed = NULL;
    struct sim_mixed_config bad;

    (void)state;
    world.config.pages = 10;
    world.config.requests_max = 1;
    mixed = create(&world);
    assert_true(sim_mixed_fits(mixed, 150, 10));
    assert_false(sim_mixed_fits(mixed, 150, 11));
    assert_int_equal(sim_mixed_submit(mixed, 0, 0, 0, 0, 150, 11, NULL, 0), -HLG_EINVAL);
    assert_int_equal(sim_mixed_next(mixed), HLG_TIME_NEVER);
    assert_int_equal(sim_mixed_submit(mixed, 0, 0, 0, 0, 150, 10, NULL, 0), 0);
    assert_int_equal(sim_mixed_submit(mixed, 0, 0, 1, 0, 1, 1, NULL, 0), -HLG_ELIMIT);
    sim_mixed_destroy(mixed);
    bad = world.config;
    bad.cost = &world.cost;
    bad.budget_tokens = 0;
    assert_int_equal(sim_mixed_create(&bad, &mixed), -HLG_EINVAL);
    bad.budget_tokens = 1;
    bad.pages = 0;
    assert_int_equal(sim_mixed_create(&bad, &mixed), -HLG_EINVAL);
    bad.pages = 1;
    bad.page_tokens = 0;
    assert_int_equal(sim_mixed_create(&bad, &mixed), -HLG_EINVAL);
}

static int print_seed(void **state)
{
    (void)state;
    print_message("mixed: seeds up to %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_ride_on_decode_steps),
        cmocka_unit_test(whole_prompts_stop_decode_on_all_ranks),
        cmocka_unit_test(the_youngest_is_computed_anew),
        cmocka_unit_test(a_burst_of_b_prompts_waits_b_plus_1_halves),
        cmocka_unit_test(a_turn_computes_its_new_tokens_alone),
        cmocka_unit_test_teardown(closed_form_equals_stepping_one_by_one, print_seed),
        cmocka_unit_test_teardown(asking_in_between_changes_nothing, print_seed),
        cmocka_unit_test(beyond_the_pages_more_users_only_wait),
        cmocka_unit_test(it_costs_a_change_and_not_a_token),
        cmocka_unit_test(what_cannot_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
