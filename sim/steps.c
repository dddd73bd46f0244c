#include "steps.h"

#include "steps_heap.h"

#include <driver/rng.h>

#include <stdlib.h>

/* A plan of more steps is looked at in its middle, which must lie so near to the line. */
#define STRAIGHT_STEPS 16u
#define STRAIGHT       1e-4

struct rank_state {
    uint64_t context_q; /* sum over its sequences, as of `made` */
    uint64_t rate_q;    /* sum */
    uint32_t running;
    uint32_t oldest;
    uint32_t newest;
    uint32_t longest; /* the one with the longest context; HLG_NONE: to be found */
};

struct plan {
    bool valid;
    bool decode;
    hlg_time begin;
    uint64_t made; /* steps before its first */
    uint32_t end;
    uint32_t position;
    double first_ns; /* of step 0 */
    double slope_ns; /* each step takes so much more than the one before */
    uint32_t
        beyond_begin; /* its steps from here on and before the limit go beyond the measured range */
    uint32_t beyond_limit;
};

struct sim_steps {
    struct sim_steps_config config;
    uint64_t accept[SIM_DRAFT_MAX]; /* of 2^53 */
    struct sim_steps_sequence *sequences;
    uint32_t *unused; /* stack of free places */
    uint32_t unused_count;
    uint32_t *fresh;
    uint32_t fresh_count;
    struct sim_steps_heap heaps[SIM_STEPS_KEYS];
    struct rank_state *ranks;
    struct sim_rank_step *prices; /* [ranks], for the cost model */
    struct plan plan;
    uint64_t made; /* steps of sequences up to the position */
    uint64_t serial;
    hlg_time last_ns; /* end of the last step of sequences */
    struct sim_batch_totals totals;
    struct sim_gaps gaps;
};

static bool config_is_valid(const struct sim_steps_config *config)
{
    double before = 1.0;

    if (config->cost == NULL || config->ranks == 0 || config->sequences_max == 0 ||
        config->draft > SIM_DRAFT_MAX) {
        return false;
    }
    for (uint32_t k = 0; k < config->draft; k++) {
        if (!(config->accept[k] >= 0 && config->accept[k] <= before)) {
            return false;
        }
        before = config->accept[k];
    }
    return true;
}

int sim_steps_create(const struct sim_steps_config *config, struct sim_steps **out)
{
    struct sim_steps *steps = NULL;
    const uint32_t max = config->sequences_max;
    bool complete = true;

    if (!config_is_valid(config)) {
        return -HLG_EINVAL;
    }
    steps = calloc(1, sizeof(*steps));
    if (steps == NULL) {
        return -HLG_ENOMEM;
    }
    steps->config = *config;
    steps->config.accept = NULL;
    for (uint32_t k = 0; k < config->draft; k++) {
        steps->accept[k] = (uint64_t)(config->accept[k] * 9007199254740992.0);
    }
    steps->sequences = calloc(max, sizeof(*steps->sequences));
    steps->unused = calloc(max, sizeof(*steps->unused));
    steps->fresh = calloc(max, sizeof(*steps->fresh));
    steps->ranks = calloc(config->ranks, sizeof(*steps->ranks));
    steps->prices = calloc(config->ranks, sizeof(*steps->prices));
    for (uint32_t i = 0; i < SIM_STEPS_KEYS; i++) {
        uint32_t *places = calloc(max, sizeof(*places));

        steps->heaps[i] =
            (struct sim_steps_heap){steps->sequences, places, 0, (enum sim_steps_key)i};
        complete = complete && places != NULL;
    }
    if (!complete || steps->sequences == NULL || steps->unused == NULL || steps->fresh == NULL ||
        steps->ranks == NULL || steps->prices == NULL) {
        sim_steps_destroy(steps);
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < max; i++) {
        steps->unused[i] = max - 1 - i;
    }
    steps->unused_count = max;
    for (uint32_t r = 0; r < config->ranks; r++) {
        steps->ranks[r].oldest = HLG_NONE;
        steps->ranks[r].newest = HLG_NONE;
        steps->ranks[r].longest = HLG_NONE;
    }
    *out = steps;
    return 0;
}

void sim_steps_destroy(struct sim_steps *steps)
{
    if (steps == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SIM_STEPS_KEYS; i++) {
        free(steps->heaps[i].places);
    }
    free(steps->sequences);
    free(steps->unused);
    free(steps->fresh);
    free(steps->ranks);
    free(steps->prices);
    free(steps);
}

/* Tokens of one step: 1 and the accepted drafts, whose shares fall. */
static uint32_t draw_tokens(const struct sim_steps *steps, struct hlg_rng *rng)
{
    uint64_t drawn = hlg_rng_next(rng) >> 11;
    uint32_t accepted = 0;

    while (accepted < steps->config.draft && drawn < steps->accept[accepted]) {
        accepted++;
    }
    return 1 + accepted;
}

/* Draw how many steps its output takes. */
static void draw_steps(const struct sim_steps *steps, struct sim_steps_sequence *sequence)
{
    struct hlg_rng rng = hlg_rng_seed(sequence->seed);
    uint32_t tokens = 0;

    if (steps->config.draft == 0) {
        sequence->steps = sequence->output;
        sequence->first_tokens = 1;
        return;
    }
    sequence->steps = 0;
    while (tokens < sequence->output) {
        tokens += draw_tokens(steps, &rng);
        if (sequence->steps == 0) {
            sequence->first_tokens = hlg_min_u32(tokens, sequence->output);
        }
        sequence->steps++;
    }
}

/* Context of a sequence before the step that `made` steps are made before. */
static uint64_t context_at(const struct sim_steps_sequence *sequence, uint64_t made)
{
    return (sequence->context_q + (made - sequence->begin) * sequence->rate_q) >> SIM_STEPS_SHIFT;
}

/* Count of steps before which a sequence needs more room than it has, by its mean growth. */
static uint64_t grow_key(const struct sim_steps *steps, const struct sim_steps_sequence *sequence)
{
    const uint64_t query = 1u + (uint64_t)steps->config.draft;
    const uint64_t most = (sequence->context_q >> SIM_STEPS_SHIFT) + sequence->output;
    uint64_t limit_q = 0;

    if (steps->config.grow_tokens == 0 || most <= sequence->room) {
        return UINT64_MAX;
    }
    if (sequence->room + 1u <= query) {
        return sequence->begin;
    }
    limit_q = (sequence->room + 1u - query)
              << SIM_STEPS_SHIFT; /* context + query > room from here */
    if (limit_q <= sequence->context_q) {
        return sequence->begin;
    }
    return sequence->begin +
           (limit_q - sequence->context_q + sequence->rate_q - 1) / sequence->rate_q;
}

uint32_t sim_steps_add(struct sim_steps *steps, uint32_t rank, uint32_t user, uint64_t stream,
                       uint32_t salt, uint32_t context, uint32_t output, hlg_time last_ns)
{
    struct rank_state *state = &steps->ranks[rank];
    const uint32_t page = steps->config.grow_tokens;
    struct hlg_rng mix = hlg_rng_seed(stream);
    struct sim_steps_sequence *sequence = NULL;
    uint32_t place = 0;

    HLG_ASSERT(rank < steps->config.ranks && output != 0 && output <= HLG_TOKENS_MAX);
    HLG_ASSERT(context <= 2 * HLG_TOKENS_MAX && steps->unused_count != 0);
    place = steps->unused[--steps->unused_count];
    sequence = &steps->sequences[place];
    *sequence = (struct sim_steps_sequence){.serial = steps->serial++,
                                            .begin = steps->made,
                                            .context_q = (uint64_t)context << SIM_STEPS_SHIFT,
                                            .last_ns = last_ns,
                                            .user = user,
                                            .rank = rank,
                                            .output = output,
                                            .older = state->newest,
                                            .newer = HLG_NONE};
    mix = hlg_rng_seed(hlg_rng_next(&mix) + salt);
    sequence->seed = steps->config.seed ^ hlg_rng_next(&mix);
    draw_steps(steps, sequence);
    sequence->rate_q = ((uint64_t)output << SIM_STEPS_SHIFT) / sequence->steps;
    sequence->room = page == 0 ? context : hlg_div_ceil(context, page) * page;
    sequence->key[SIM_STEPS_FINISH] = steps->made + sequence->steps;
    sequence->key[SIM_STEPS_GROW] = grow_key(steps, sequence);
    for (uint32_t i = 0; i < SIM_STEPS_KEYS; i++) {
        sim_steps_heap_add(&steps->heaps[i], place);
    }
    if (state->newest != HLG_NONE) {
        steps->sequences[state->newest].newer = place;
    } else {
        state->oldest = place;
    }
    state->newest = place;
    if (state->running == 0 ||
        (state->longest != HLG_NONE &&
         context > context_at(&steps->sequences[state->longest], steps->made))) {
        state->longest = place;
    }
    state->running++;
    state->context_q += sequence->context_q;
    state->rate_q += sequence->rate_q;
    steps->fresh[steps->fresh_count++] = place;
    return place;
}

static void remove_fresh(struct sim_steps *steps, uint32_t place)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < steps->fresh_count; i++) {
        if (steps->fresh[i] != place) {
            steps->fresh[kept++] = steps->fresh[i];
        }
    }
    steps->fresh_count = kept;
}

void sim_steps_remove(struct sim_steps *steps, uint32_t place)
{
    struct sim_steps_sequence *sequence = &steps->sequences[place];
    struct rank_state *state = &steps->ranks[sequence->rank];
    const uint32_t made = sim_steps_made(steps, place);
    const uint32_t tokens = sim_steps_tokens(steps, place);

    steps->totals.tokens += tokens;
    steps->gaps.bursts += tokens - made;
    for (uint32_t i = 0; i < SIM_STEPS_KEYS; i++) {
        sim_steps_heap_remove(&steps->heaps[i], place);
    }
    if (made == 0) {
        remove_fresh(steps, place);
    }
    if (sequence->older != HLG_NONE) {
        steps->sequences[sequence->older].newer = sequence->newer;
    } else {
        state->oldest = sequence->newer;
    }
    if (sequence->newer != HLG_NONE) {
        steps->sequences[sequence->newer].older = sequence->older;
    } else {
        state->newest = sequence->older;
    }
    if (state->longest == place) {
        state->longest = HLG_NONE;
    }
    HLG_ASSERT(state->running != 0);
    state->running--;
    state->context_q -= sequence->context_q + made * sequence->rate_q;
    state->rate_q -= sequence->rate_q;
    steps->unused[steps->unused_count++] = place;
}

struct sim_steps_sequence *sim_steps_at(struct sim_steps *steps, uint32_t place)
{
    return &steps->sequences[place];
}

uint32_t sim_steps_made(const struct sim_steps *steps, uint32_t place)
{
    return (uint32_t)(steps->made - steps->sequences[place].begin);
}

uint32_t sim_steps_tokens(const struct sim_steps *steps, uint32_t place)
{
    const struct sim_steps_sequence *sequence = &steps->sequences[place];
    const uint32_t made = sim_steps_made(steps, place);
    struct hlg_rng rng = hlg_rng_seed(sequence->seed);
    uint32_t tokens = 0;

    if (made >= sequence->steps) {
        return sequence->output;
    }
    if (steps->config.draft == 0) {
        return made;
    }
    for (uint32_t i = 0; i < made; i++) { /* the same draws once more */
        tokens += draw_tokens(steps, &rng);
    }
    return tokens;
}

uint32_t sim_steps_count(const struct sim_steps *steps)
{
    return steps->heaps[SIM_STEPS_FINISH].count;
}

uint32_t sim_steps_running(const struct sim_steps *steps, uint32_t rank)
{
    HLG_ASSERT(rank < steps->config.ranks);
    return steps->ranks[rank].running;
}

uint64_t sim_steps_context(const struct sim_steps *steps, uint32_t rank)
{
    HLG_ASSERT(rank < steps->config.ranks);
    return steps->ranks[rank].context_q >> SIM_STEPS_SHIFT;
}

uint32_t sim_steps_youngest(const struct sim_steps *steps, uint32_t rank)
{
    return steps->ranks[rank].newest;
}

const uint32_t *sim_steps_fresh(const struct sim_steps *steps, uint32_t *count)
{
    *count = steps->fresh_count;
    return steps->fresh;
}

uint32_t sim_steps_due(const struct sim_steps *steps, enum sim_steps_key key)
{
    const struct sim_steps_heap *heap = &steps->heaps[key];

    if (heap->count == 0 || steps->sequences[heap->places[0]].key[key] > steps->made) {
        return HLG_NONE;
    }
    return heap->places[0];
}

void sim_steps_grown(struct sim_steps *steps, uint32_t place)
{
    struct sim_steps_sequence *sequence = &steps->sequences[place];

    sequence->room += steps->config.grow_tokens;
    sequence->key[SIM_STEPS_GROW] = grow_key(steps, sequence);
    sim_steps_heap_update(&steps->heaps[SIM_STEPS_GROW], place);
}

static uint32_t find_longest(struct sim_steps *steps, uint32_t rank)
{
    struct rank_state *state = &steps->ranks[rank];

    if (state->longest != HLG_NONE || state->running == 0) {
        return state->longest;
    }
    for (uint32_t at = state->oldest; at != HLG_NONE; at = steps->sequences[at].newer) {
        if (state->longest == HLG_NONE ||
            context_at(&steps->sequences[at], steps->made) >
                context_at(&steps->sequences[state->longest], steps->made)) {
            state->longest = at;
        }
    }
    return state->longest;
}

/* Price the step that comes after `offset` more steps, in nanoseconds. */
static double price(struct sim_steps *steps, const struct sim_rank_step *prompts, bool decode,
                    uint32_t offset, bool *beyond)
{
    struct sim_cost_parts parts;
    double ns = 0;

    for (uint32_t r = 0; r < steps->config.ranks; r++) {
        const struct rank_state *state = &steps->ranks[r];
        struct sim_rank_step *rank = &steps->prices[r];

        *rank = (struct sim_rank_step){.query_tokens = 1 + steps->config.draft};
        if (prompts != NULL) {
            rank->chunks = prompts[r].chunks;
            rank->chunk_count = prompts[r].chunk_count;
        }
        if (decode && state->running != 0) {
            uint32_t longest = find_longest(steps, r);

            rank->sequences = state->running;
            rank->context_sum = (state->context_q + offset * state->rate_q) >> SIM_STEPS_SHIFT;
            rank->context_max =
                hlg_u32(context_at(&steps->sequences[longest], steps->made + offset));
        }
    }
    ns = sim_cost_step_ns(steps->config.cost, steps->prices, steps->config.ranks, &parts);
    *beyond = parts.is_beyond;
    HLG_ASSERT(ns >= 0 && ns < 1e15); /* a step of eleven days is no step */
    return ns < 1 ? 1 : ns;
}

/* Price the last step of the plan, and shorten the plan while its middle lies off the line: a table of the
 * cost model has its corners, and the slowest rank may change. Short plans are taken as they are. */
static void straighten(struct sim_steps *steps, bool *last_beyond)
{
    struct plan *plan = &steps->plan;
    double last_ns = price(steps, NULL, true, plan->end - 1, last_beyond);

    while (plan->end > STRAIGHT_STEPS) {
        const uint32_t middle = (plan->end - 1) / 2; /* any step between will do */
        bool middle_beyond = false;
        const double middle_ns = price(steps, NULL, true, middle, &middle_beyond);
        const double line_ns =
            plan->first_ns + (last_ns - plan->first_ns) * (double)middle / (double)(plan->end - 1);

        if (middle_ns - line_ns < STRAIGHT * line_ns && line_ns - middle_ns < STRAIGHT * line_ns) {
            break;
        }
        plan->end = middle + 1;
        last_ns = middle_ns;
        *last_beyond = middle_beyond;
    }
    plan->slope_ns = (last_ns - plan->first_ns) / (double)(plan->end - 1);
}

/* Which steps of the plan go beyond what was measured. Contexts grow from step to step, so that the range
 * is entered or left once: where, is looked for only when the ends differ. */
static void mark_beyond(struct sim_steps *steps, bool first, bool last)
{
    struct plan *plan = &steps->plan;
    uint32_t low = 0; /* as the first */
    uint32_t high = plan->end - 1;

    plan->beyond_begin = 0;
    plan->beyond_limit = first ? plan->end : 0;
    if (first == last) {
        return;
    }
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2; /* either of two will do */
        bool beyond = false;

        (void)price(steps, NULL, true, middle, &beyond);
        low = beyond == first ? middle : low;
        high = beyond == first ? high : middle;
    }
    plan->beyond_begin = first ? 0 : high;
    plan->beyond_limit = first ? high : plan->end;
}

void sim_steps_plan(struct sim_steps *steps, hlg_time now, const struct sim_rank_step *prompts,
                    bool decode)
{
    const struct sim_steps_heap *heap = &steps->heaps[SIM_STEPS_FINISH];
    struct plan *plan = &steps->plan;
    bool first_beyond = false;
    bool last_beyond = false;

    HLG_ASSERT(!plan->valid && (prompts != NULL || (decode && heap->count != 0)));
    *plan =
        (struct plan){.valid = true, .decode = decode, .begin = now, .made = steps->made, .end = 1};
    if (prompts == NULL) {
        uint64_t finish = steps->sequences[heap->places[0]].key[SIM_STEPS_FINISH];

        HLG_ASSERT(finish > steps->made);
        plan->end =
            finish - steps->made < SIM_STEPS_MAX ? (uint32_t)(finish - steps->made) : SIM_STEPS_MAX;
    }
    plan->first_ns = price(steps, prompts, decode, 0, &first_beyond);
    last_beyond = first_beyond;
    if (plan->end > 1) {
        straighten(steps, &last_beyond);
    }
    mark_beyond(steps, first_beyond, last_beyond);
}

bool sim_steps_planned(const struct sim_steps *steps)
{
    return steps->plan.valid;
}

hlg_time sim_steps_boundary(const struct sim_steps *steps, uint32_t k)
{
    const struct plan *plan = &steps->plan;
    double count = (double)k;

    HLG_ASSERT(plan->valid && k <= SIM_STEPS_MAX);
    if (k == 0) {
        return plan->begin;
    }
    return plan->begin +
           (hlg_time)(count * plan->first_ns + plan->slope_ns * (count * (count - 1) / 2) + 0.5);
}

uint32_t sim_steps_position(const struct sim_steps *steps)
{
    return steps->plan.position;
}

uint32_t sim_steps_end(const struct sim_steps *steps)
{
    return steps->plan.end;
}

uint32_t sim_steps_until(const struct sim_steps *steps, hlg_time at)
{
    uint32_t low = steps->plan.position;
    uint32_t high = steps->plan.end;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (sim_steps_boundary(steps, middle) >= at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

uint32_t sim_steps_next(const struct sim_steps *steps)
{
    const struct plan *plan = &steps->plan;
    const struct sim_steps_heap *heap = &steps->heaps[SIM_STEPS_GROW];
    uint64_t grow = UINT64_MAX;

    HLG_ASSERT(plan->valid);
    if (plan->decode && heap->count != 0) {
        grow = steps->sequences[heap->places[0]].key[SIM_STEPS_GROW];
    }
    if (grow == UINT64_MAX || grow - plan->made >= plan->end) {
        return plan->end;
    }
    return hlg_max_u32((uint32_t)(grow - plan->made), plan->position + 1);
}

/* Count the gaps of `count` sequences in the steps between two boundaries. */
static void add_gaps(struct sim_steps *steps, uint32_t from, uint32_t to, uint32_t count)
{
    hlg_time before = sim_steps_boundary(steps, from);

    if (from < to && count != 0) {
        hlg_time first = sim_steps_boundary(steps, from + 1) - before;
        hlg_time last = sim_steps_boundary(steps, to) - sim_steps_boundary(steps, to - 1);
        uint32_t bucket = sim_gap_bucket(first);

        if (bucket == sim_gap_bucket(last)) { /* steps between lie between */
            steps->gaps.count[bucket] += (uint64_t)count * (to - from);
            steps->gaps.sum_ns += (double)count * (double)(sim_steps_boundary(steps, to) - before);
            return;
        }
    }
    for (uint32_t k = from; k < to && count != 0; k++) {
        hlg_time after = sim_steps_boundary(steps, k + 1);

        sim_gaps_add(&steps->gaps, after - before, count);
        before = after;
    }
}

/* The first step of a plan: a pause before it, and sequences that are new, make other gaps. */
static void add_first_gaps(struct sim_steps *steps)
{
    const hlg_time end = sim_steps_boundary(steps, 1);
    const uint32_t old_count = sim_steps_count(steps) - steps->fresh_count;

    if (old_count != 0) {
        sim_gaps_add(&steps->gaps, end - steps->last_ns, old_count);
    }
    for (uint32_t i = 0; i < steps->fresh_count; i++) {
        hlg_time last = steps->sequences[steps->fresh[i]].last_ns;

        if (last != HLG_TIME_NEVER) {
            sim_gaps_add(&steps->gaps, end - last, 1);
        }
    }
    steps->fresh_count = 0;
}

void sim_steps_move(struct sim_steps *steps, uint32_t k)
{
    struct plan *plan = &steps->plan;
    const uint32_t from = plan->position;

    HLG_ASSERT(plan->valid && k >= from && k <= plan->end);
    if (k == from) {
        return;
    }
    steps->totals.steps += k - from;
    steps->totals.beyond += hlg_max_u32(from, hlg_min_u32(k, plan->beyond_limit)) -
                            hlg_max_u32(from, hlg_min_u32(k, plan->beyond_begin));
    steps->totals.busy_ns +=
        (double)(sim_steps_boundary(steps, k) - sim_steps_boundary(steps, from));
    if (plan->decode) {
        if (from == 0) {
            add_first_gaps(steps);
        }
        add_gaps(steps, hlg_max_u32(from, 1), k, sim_steps_count(steps));
        for (uint32_t r = 0; r < steps->config.ranks; r++) {
            steps->ranks[r].context_q += (k - from) * steps->ranks[r].rate_q;
        }
        steps->made += k - from;
        steps->last_ns = sim_steps_boundary(steps, k);
    }
    plan->position = k;
}

void sim_steps_cut(struct sim_steps *steps, uint32_t k)
{
    HLG_ASSERT(steps->plan.valid && k >= steps->plan.position && k <= steps->plan.end);
    steps->plan.end = k;
}

void sim_steps_drop(struct sim_steps *steps)
{
    steps->plan.valid = false;
}

hlg_time sim_steps_last(const struct sim_steps *steps)
{
    return steps->last_ns;
}

void sim_steps_totals(const struct sim_steps *steps, struct sim_batch_totals *totals)
{
    *totals = steps->totals;
}

struct sim_gaps *sim_steps_gaps(struct sim_steps *steps)
{
    return &steps->gaps;
}

int sim_steps_check(const struct sim_steps *steps)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < steps->config.ranks; r++) {
        const struct rank_state *state = &steps->ranks[r];
        uint64_t context_q = 0;
        uint64_t rate_q = 0;
        uint32_t running = 0;

        for (uint32_t at = state->oldest; at != HLG_NONE; at = steps->sequences[at].newer) {
            const struct sim_steps_sequence *sequence = &steps->sequences[at];

            context_q += sequence->context_q + (steps->made - sequence->begin) * sequence->rate_q;
            rate_q += sequence->rate_q;
            running++;
            if (sequence->rank != r || sequence->key[SIM_STEPS_FINISH] < steps->made) {
                return 1;
            }
        }
        if (context_q != state->context_q || rate_q != state->rate_q || running != state->running) {
            return 2;
        }
        count += running;
    }
    for (uint32_t i = 0; i < SIM_STEPS_KEYS; i++) {
        const struct sim_steps_heap *heap = &steps->heaps[i];

        for (uint32_t j = 0; j < heap->count; j++) {
            const uint32_t above = j == 0 ? 0 : (j - 1) / 2;
            const struct sim_steps_sequence *parent = &steps->sequences[heap->places[above]];
            const struct sim_steps_sequence *child = &steps->sequences[heap->places[j]];

            if (child->heap_index[i] != j || (j != 0 && parent->key[i] > child->key[i])) {
                return 3;
            }
        }
        if (heap->count != count) {
            return 4;
        }
    }
    return steps->unused_count + count != steps->config.sequences_max ? 5 : 0;
}
