#include "mixed_model.h"

#include "pages.h"

#include <string.h>

enum state {
    AWAY = 0, /* not submitted yet, or over */
    WAITING,
    COMPUTING,
    DECODING
};

struct served {
    enum state state;
    uint32_t place;   /* in the queue: the smallest is first */
    uint32_t started; /* the largest is the youngest */
    uint32_t joined;  /* decode: order */
    uint32_t out;
    uint32_t target;
    uint32_t done;  /* tokens with KV */
    uint32_t chunk; /* tokens of the step under way */
    uint32_t order; /* of the chunk in its step */
    uint32_t cached;
    uint32_t chunks;
    uint32_t steps;
    uint32_t preemptions;
    hlg_time last;
    uint32_t list[256];
    uint32_t list_count;
    uint32_t named;
};

struct model {
    const struct mixed_world *world;
    struct mixed_log *log;
    struct served served[MIXED_REQUESTS_MAX];
    struct sim_pages *pages[MIXED_RANKS_MAX];
    bool blocked[MIXED_RANKS_MAX];
    uint32_t submitted;
    uint32_t front; /* places before all others */
    uint32_t count; /* of starts and joins */
    hlg_time now;
};

static void say(struct model *model, enum sim_mixed_event_kind kind, uint32_t i)
{
    const struct served *s = &model->served[i];

    model->log->events[model->log->count++] =
        (struct sim_mixed_event){(uint32_t)kind,
                                 i,
                                 model->world->requests[i].rank,
                                 s->out,
                                 s->cached,
                                 s->chunks,
                                 s->steps,
                                 s->preemptions,
                                 model->now};
}

static uint32_t pages_of(const struct model *model, uint32_t tokens)
{
    return (tokens + model->world->config.page_tokens - 1) / model->world->config.page_tokens;
}

/* Name the full pages with KV, each once. */
static void name(struct model *model, uint32_t i)
{
    const struct mixed_request *r = &model->world->requests[i];
    struct served *s = &model->served[i];

    while (s->named < r->name_count &&
           (s->named + 1) * model->world->config.page_tokens <= s->done) {
        sim_pages_name(model->pages[r->rank], &s->list[s->named], &r->names[s->named], 1);
        s->named++;
    }
}

static void give(struct model *model, uint32_t i)
{
    const uint32_t rank = model->world->requests[i].rank;

    name(model, i);
    sim_pages_give(model->pages[rank], model->served[i].list, model->served[i].list_count);
    model->served[i].list_count = 0;
    model->served[i].named = 0;
    model->blocked[rank] = false;
}

static void token(struct model *model, uint32_t i)
{
    struct served *s = &model->served[i];

    s->out++;
    model->log->totals.tokens_out++;
    if (s->out == 1) {
        say(model, SIM_MIXED_COMPUTED, i);
        say(model, SIM_MIXED_FIRST, i);
    } else {
        sim_gaps_add(&model->log->gaps, model->now - s->last, 1);
    }
    s->last = model->now;
    if (s->state == COMPUTING) {
        s->state = DECODING;
        s->joined = ++model->count;
    }
    if (s->out == model->world->requests[i].output) {
        say(model, SIM_MIXED_FINISHED, i);
        give(model, i);
        s->state = AWAY;
    }
}

/* The one of a state with the smallest number above `above`, or HLG_NONE. `offset`: of the number. */
static uint32_t next_of(const struct model *model, enum state state, uint32_t rank, size_t offset,
                        uint32_t above)
{
    uint32_t found = HLG_NONE;
    uint32_t best = HLG_NONE;

    for (uint32_t i = 0; i < model->submitted; i++) {
        uint32_t number = 0;

        memcpy(&number, (const char *)&model->served[i] + offset, sizeof(number));
        if (model->served[i].state == state && number > above && number < best &&
            (rank == HLG_NONE || model->world->requests[i].rank == rank)) {
            found = i;
            best = number;
        }
    }
    return found;
}

static void end_chunks(struct model *model)
{
    bool any = false;

    for (uint32_t rank = 0; rank < model->world->config.ranks; rank++) {
        for (uint32_t order = 1; order <= MIXED_REQUESTS_MAX; order++) {
            for (uint32_t i = 0; i < model->submitted; i++) {
                struct served *s = &model->served[i];

                if (s->chunk == 0 || s->order != order || model->world->requests[i].rank != rank) {
                    continue;
                }
                s->done += s->chunk;
                s->chunks++;
                model->log->totals.tokens_in += s->chunk;
                s->chunk = 0;
                name(model, i);
                model->blocked[rank] = false;
                any = true;
                if (s->done == s->target) {
                    token(model, i);
                }
                break;
            }
        }
    }
    model->log->totals.prompt_steps += any;
}

static void preempt(struct model *model, uint32_t rank)
{
    uint32_t youngest = HLG_NONE;

    for (uint32_t i = 0; i < model->submitted; i++) {
        const struct served *s = &model->served[i];

        if ((s->state == COMPUTING || s->state == DECODING) &&
            model->world->requests[i].rank == rank &&
            (youngest == HLG_NONE || s->started > model->served[youngest].started)) {
            youngest = i;
        }
    }
    model->served[youngest].preemptions++;
    model->log->totals.preemptions++;
    say(model, SIM_MIXED_PREEMPTED, youngest);
    give(model, youngest);
    model->served[youngest].state = WAITING;
    model->served[youngest].place = --model->front;
}

static void grow(struct model *model)
{
    uint32_t above = 0;

    while (model->world->config.grow) {
        const uint32_t i =
            next_of(model, DECODING, HLG_NONE, offsetof(struct served, joined), above);
        struct served *s = NULL;

        if (i == HLG_NONE) {
            return;
        }
        s = &model->served[i];
        above = s->joined;
        while (s->state == DECODING && pages_of(model, s->done + 1) > s->list_count) {
            const uint32_t rank = model->world->requests[i].rank;

            if (sim_pages_take(model->pages[rank], 1, s->list + s->list_count)) {
                s->list_count++;
            } else {
                preempt(model, rank);
            }
        }
    }
}

/* Start the first of a rank's queue. Returns tokens that it adds to the step, 0: it did not. */
static uint32_t start(struct model *model, uint32_t rank, uint32_t used, uint32_t budget,
                      uint32_t order)
{
    const struct sim_mixed_config *config = &model->world->config;
    const uint32_t i = next_of(model, WAITING, rank, offsetof(struct served, place), 0);
    const struct mixed_request *r = &model->world->requests[i];
    struct served *s = &model->served[i];
    const uint32_t target = r->prompt + s->out;
    const uint32_t need = pages_of(model, config->grow ? target : r->prompt + r->output);
    uint32_t whole = target / config->page_tokens;
    uint32_t hits = 0;
    uint32_t done = 0;

    whole = whole < r->name_count ? whole : r->name_count;
    whole = whole < (r->prompt + r->output - 1) / config->page_tokens
                ? whole
                : (r->prompt + r->output - 1) / config->page_tokens;
    hits = sim_pages_peek(model->pages[rank], r->names, whole);
    done = hits * config->page_tokens < target ? hits * config->page_tokens : target - 1;
    if (!config->chunked && order > 1 && used + target - done > budget) {
        return 0;
    }
    (void)sim_pages_match(model->pages[rank], r->names, whole, s->list);
    if (!sim_pages_take(model->pages[rank], need - hits, s->list + hits)) {
        sim_pages_give(model->pages[rank], s->list, hits);
        model->blocked[rank] = true;
        return 0;
    }
    s->list_count = need;
    s->named = hits;
    s->target = target;
    s->done = done;
    s->state = COMPUTING;
    s->started = ++model->count;
    model->log->totals.tokens_cached += done;
    if (s->out == 0) {
        s->cached = s->preemptions == 0 ? done : s->cached;
        say(model, SIM_MIXED_STARTED, i);
    }
    s->chunk = config->chunked && budget - used < target - done ? budget - used : target - done;
    s->order = order;
    return s->chunk;
}

struct composition {
    uint32_t used[MIXED_RANKS_MAX];
    uint32_t order[MIXED_RANKS_MAX];
    bool closed[MIXED_RANKS_MAX];
};

static uint32_t count_of(const struct model *model, uint32_t rank, enum state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < model->submitted; i++) {
        count += model->served[i].state == state && model->world->requests[i].rank == rank;
    }
    return count;
}

/* The rank whose first in the queue was submitted first, of those that can start one. */
static uint32_t next_rank(const struct model *model, const struct composition *composition)
{
    const struct sim_mixed_config *config = &model->world->config;
    uint32_t best = HLG_NONE;
    uint32_t first = HLG_NONE;

    for (uint32_t rank = 0; rank < config->ranks; rank++) {
        const uint32_t i = next_of(model, WAITING, rank, offsetof(struct served, place), 0);

        if (i != HLG_NONE && !composition->closed[rank] && !model->blocked[rank] &&
            composition->used[rank] < config->budget_tokens && i < first &&
            count_of(model, rank, COMPUTING) + count_of(model, rank, DECODING) <
                config->sequences_max) {
            best = rank;
            first = i;
        }
    }
    return best;
}

static void compose(struct model *model)
{
    const struct sim_mixed_config *config = &model->world->config;
    struct composition composition = {0};

    for (uint32_t rank = 0; rank < config->ranks; rank++) {
        const uint32_t i = next_of(model, COMPUTING, rank, offsetof(struct served, started), 0);

        composition.used[rank] = config->chunked ? count_of(model, rank, DECODING) : 0;
        if (i != HLG_NONE && composition.used[rank] < config->budget_tokens) {
            struct served *s = &model->served[i];
            const uint32_t left = config->budget_tokens - composition.used[rank];

            s->chunk = s->target - s->done < left ? s->target - s->done : left;
            s->order = ++composition.order[rank];
            composition.used[rank] += s->chunk;
        }
    }
    for (uint32_t rank = next_rank(model, &composition); rank != HLG_NONE;
         rank = next_rank(model, &composition)) {
        uint32_t tokens = start(model, rank, composition.used[rank], config->budget_tokens,
                                composition.order[rank] + 1);

        composition.closed[rank] = tokens == 0;
        composition.order[rank] += tokens != 0;
        composition.used[rank] += tokens;
    }
}

/* Make one step. Returns false when there is nothing to do. */
static bool step(struct model *model)
{
    static struct sim_chunk chunks[MIXED_RANKS_MAX][MIXED_REQUESTS_MAX];
    struct sim_rank_step ranks[MIXED_RANKS_MAX];
    bool prompts = false;
    bool decode = false;

    memset(ranks, 0, sizeof(ranks));
    for (uint32_t i = 0; i < model->submitted; i++) {
        prompts = prompts || model->served[i].chunk != 0;
    }
    for (uint32_t i = 0; i < model->submitted; i++) {
        const struct served *s = &model->served[i];
        const uint32_t r = model->world->requests[i].rank;

        if (s->chunk != 0) {
            chunks[r][ranks[r].chunk_count++] = (struct sim_chunk){s->chunk, s->done};
            ranks[r].chunks = chunks[r];
        }
        if (s->state == DECODING && (model->world->config.chunked || !prompts)) {
            ranks[r].sequences++;
            ranks[r].context_sum += s->done;
            ranks[r].context_max = s->done > ranks[r].context_max ? s->done : ranks[r].context_max;
            ranks[r].query_tokens = 1;
            decode = true;
        }
    }
    if (!prompts && !decode) {
        return false;
    }
    hlg_time price =
        (hlg_time)(sim_cost_step_ns(&model->world->cost, ranks, model->world->config.ranks, NULL) +
                   0.5);
    model->now += price;
    model->log->totals.steps++;
    model->log->totals.busy_ns += (double)price;
    uint32_t last = model->count;

    end_chunks(model);
    for (uint32_t i = next_of(model, DECODING, HLG_NONE, offsetof(struct served, joined), 0);
         decode && i != HLG_NONE && model->served[i].joined <= last;
         i = next_of(model, DECODING, HLG_NONE, offsetof(struct served, joined),
                     model->served[i].joined)) {
        model->served[i].done++;
        model->served[i].steps++;
        token(model, i);
    }
    return true;
}

void mixed_model_run(const struct mixed_world *world, struct mixed_log *log)
{
    static struct model model;
    bool working = false;

    memset(log, 0, sizeof(*log));
    memset(&model, 0, sizeof(model));
    model.world = world;
    model.log = log;
    model.front = 1u << 20;
    for (uint32_t rank = 0; rank < world->config.ranks; rank++) {
        (void)sim_pages_create(world->config.pages, world->config.cache, &model.pages[rank]);
    }
    while (working || model.submitted < world->request_count) {
        if (!working && world->requests[model.submitted].at > model.now) {
            model.now = world->requests[model.submitted].at;
        }
        while (model.submitted < world->request_count &&
               world->requests[model.submitted].at <= model.now) {
            model.served[model.submitted].state = WAITING;
            model.served[model.submitted].place = (1u << 20) + model.submitted;
            model.submitted++;
        }
        grow(&model);
        compose(&model);
        working = step(&model);
    }
    for (uint32_t rank = 0; rank < world->config.ranks; rank++) {
        sim_pages_destroy(model.pages[rank]);
    }
}
