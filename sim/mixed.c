#include "mixed.h"

#include "pages.h"
#include "steps.h"

#include <stdlib.h>

enum request_state {
    UNUSED = 0,
    WAITING,
    COMPUTING,
    DECODING
};

struct request {
    hlg_time submitted;
    uint64_t serial;  /* order of submitting */
    hlg_time last_ns; /* of its last token; HLG_TIME_NEVER: none is out */
    const uint64_t *names;
    uint64_t stream;
    uint32_t *list; /* its pages */
    uint32_t list_count;
    uint32_t name_count;
    uint32_t named; /* of its pages, in the cache by now */
    uint32_t number;
    uint32_t rank;
    uint32_t prompt;
    uint32_t output;
    uint32_t out;    /* tokens out before it decoded last */
    uint32_t target; /* tokens to be computed: prompt, and what is out when it is computed anew */
    uint32_t done;   /* of these */
    uint32_t cached;
    uint32_t chunks;
    uint32_t steps; /* made before it decoded last */
    uint32_t preemptions;
    uint32_t place;    /* among the sequences, while DECODING */
    uint32_t previous; /* of the queue, or of those that have started, oldest first */
    uint32_t next;     /* likewise; or of the unused ones */
    enum request_state state;
};

struct list {
    uint32_t head;
    uint32_t tail;
    uint32_t count;
};

struct rank_state {
    struct sim_pages *pages;
    struct list waiting;
    struct list started; /* COMPUTING and DECODING */
    uint32_t partial;    /* a prompt that has started and goes on; HLG_NONE */
    uint32_t budget_left;
    bool closed;              /* nobody more starts in this step: the budget */
    bool blocked;             /* nobody more starts until pages come back */
    struct sim_chunk *chunks; /* [sequences_max] of the step that is composed */
    uint32_t *computed;       /* [sequences_max] whose they are */
    uint32_t chunk_count;
};

struct sim_mixed {
    struct sim_mixed_config config;
    struct sim_steps *steps;
    struct request *requests; /* [requests_max] */
    uint32_t unused;
    uint32_t open_count;
    struct rank_state *ranks;
    struct sim_rank_step *prompts; /* [ranks] */
    uint64_t serial;
    hlg_time now;
    hlg_time boundary;
    struct sim_mixed_totals totals;
    struct sim_mixed_event *events;
    uint32_t event_begin;
    uint32_t event_count;
    uint32_t event_capacity;
};

static int create_rank(const struct sim_mixed_config *config, struct rank_state *rank)
{
    int error = sim_pages_create(config->pages, config->cache, &rank->pages);

    rank->waiting = (struct list){HLG_NONE, HLG_NONE, 0};
    rank->started = (struct list){HLG_NONE, HLG_NONE, 0};
    rank->partial = HLG_NONE;
    if (error != 0) {
        return error;
    }
    rank->chunks = calloc(config->sequences_max, sizeof(*rank->chunks));
    rank->computed = calloc(config->sequences_max, sizeof(*rank->computed));
    return rank->chunks == NULL || rank->computed == NULL ? -HLG_ENOMEM : 0;
}

static int create_parts(struct sim_mixed *mixed)
{
    const struct sim_mixed_config *config = &mixed->config;
    struct sim_steps_config steps = {.cost = config->cost,
                                     .ranks = config->ranks,
                                     .sequences_max = config->ranks * config->sequences_max,
                                     .seed = config->seed,
                                     .draft = config->draft,
                                     .accept = config->accept,
                                     .grow_tokens = config->grow ? config->page_tokens : 0};
    int error = sim_steps_create(&steps, &mixed->steps);

    if (error != 0) {
        return error;
    }
    mixed->event_capacity = SIM_MIXED_STARTED * config->requests_max; /* each kind once for each */
    mixed->requests = calloc(config->requests_max, sizeof(*mixed->requests));
    mixed->ranks = calloc(config->ranks, sizeof(*mixed->ranks));
    mixed->prompts = calloc(config->ranks, sizeof(*mixed->prompts));
    mixed->events = calloc(mixed->event_capacity, sizeof(*mixed->events));
    if (mixed->requests == NULL || mixed->ranks == NULL || mixed->prompts == NULL ||
        mixed->events == NULL) {
        return -HLG_ENOMEM;
    }
    for (uint32_t r = 0; r < config->ranks && error == 0; r++) {
        error = create_rank(config, &mixed->ranks[r]);
    }
    for (uint32_t i = 0; i < config->requests_max; i++) {
        mixed->requests[i].next = i + 1 < config->requests_max ? i + 1 : HLG_NONE;
    }
    return error;
}

int sim_mixed_create(const struct sim_mixed_config *config, struct sim_mixed **out)
{
    struct sim_mixed *mixed = NULL;
    int error = 0;

    if (config->ranks == 0 || config->ranks > HLG_RANKS_MAX || config->budget_tokens == 0 ||
        config->sequences_max == 0 || config->sequences_max > HLG_TOKENS_MAX / HLG_RANKS_MAX ||
        config->requests_max == 0 || config->requests_max > HLG_TOKENS_MAX ||
        config->page_tokens == 0 || config->page_tokens > HLG_TOKENS_MAX) {
        return -HLG_EINVAL;
    }
    mixed = calloc(1, sizeof(*mixed));
    if (mixed == NULL) {
        return -HLG_ENOMEM;
    }
    mixed->config = *config;
    error = create_parts(mixed);
    if (error != 0) {
        sim_mixed_destroy(mixed);
        return error;
    }
    *out = mixed;
    return 0;
}

void sim_mixed_destroy(struct sim_mixed *mixed)
{
    if (mixed == NULL) {
        return;
    }
    for (uint32_t r = 0; mixed->ranks != NULL && r < mixed->config.ranks; r++) {
        sim_pages_destroy(mixed->ranks[r].pages);
        free(mixed->ranks[r].chunks);
        free(mixed->ranks[r].computed);
    }
    for (uint32_t i = 0; mixed->requests != NULL && i < mixed->config.requests_max; i++) {
        free(mixed->requests[i].list);
    }
    sim_steps_destroy(mixed->steps);
    free(mixed->requests);
    free(mixed->ranks);
    free(mixed->prompts);
    free(mixed->events);
    free(mixed);
}

static void list_append(struct sim_mixed *mixed, struct list *list, uint32_t index)
{
    mixed->requests[index].previous = list->tail;
    mixed->requests[index].next = HLG_NONE;
    if (list->tail != HLG_NONE) {
        mixed->requests[list->tail].next = index;
    } else {
        list->head = index;
    }
    list->tail = index;
    list->count++;
}

static void list_prepend(struct sim_mixed *mixed, struct list *list, uint32_t index)
{
    mixed->requests[index].previous = HLG_NONE;
    mixed->requests[index].next = list->head;
    if (list->head != HLG_NONE) {
        mixed->requests[list->head].previous = index;
    } else {
        list->tail = index;
    }
    list->head = index;
    list->count++;
}

static void list_remove(struct sim_mixed *mixed, struct list *list, uint32_t index)
{
    const struct request *request = &mixed->requests[index];

    HLG_ASSERT(list->count != 0);
    if (request->previous != HLG_NONE) {
        mixed->requests[request->previous].next = request->next;
    } else {
        list->head = request->next;
    }
    if (request->next != HLG_NONE) {
        mixed->requests[request->next].previous = request->previous;
    } else {
        list->tail = request->previous;
    }
    list->count--;
}

/* Pages of so many tokens. */
static uint32_t pages_of(const struct sim_mixed *mixed, uint32_t tokens)
{
    return hlg_div_ceil(tokens, mixed->config.page_tokens);
}

bool sim_mixed_fits(const struct sim_mixed *mixed, uint32_t prompt_tokens, uint32_t output_tokens)
{
    return pages_of(mixed, prompt_tokens + output_tokens) <= mixed->config.pages;
}

int sim_mixed_submit(struct sim_mixed *mixed, hlg_time now, uint32_t rank, uint32_t request,
                     uint64_t stream, uint32_t prompt_tokens, uint32_t output_tokens,
                     const uint64_t *names, uint32_t name_count)
{
    const uint32_t index = mixed->unused;
    uint32_t *list = NULL;
    uint32_t nameable = 0;

    HLG_ASSERT(rank < mixed->config.ranks && now >= mixed->now);
    HLG_ASSERT(prompt_tokens != 0 && prompt_tokens <= HLG_TOKENS_MAX);
    HLG_ASSERT(output_tokens != 0 && output_tokens <= HLG_TOKENS_MAX);
    if (!sim_mixed_fits(mixed, prompt_tokens, output_tokens)) {
        return -HLG_EINVAL;
    }
    if (mixed->open_count == mixed->config.requests_max) {
        return -HLG_ELIMIT;
    }
    list = malloc(pages_of(mixed, prompt_tokens + output_tokens) * sizeof(*list));
    if (list == NULL) {
        return -HLG_ENOMEM;
    }
    /* Whole pages alone; what the last token would write is never computed. */
    nameable = (prompt_tokens + output_tokens - 1) / mixed->config.page_tokens;
    mixed->now = now;
    mixed->unused = mixed->requests[index].next;
    mixed->open_count++;
    mixed->requests[index] = (struct request){.submitted = now,
                                              .serial = mixed->serial++,
                                              .last_ns = HLG_TIME_NEVER,
                                              .names = names,
                                              .stream = stream,
                                              .list = list,
                                              .name_count = hlg_min_u32(name_count, nameable),
                                              .number = request,
                                              .rank = rank,
                                              .prompt = prompt_tokens,
                                              .output = output_tokens,
                                              .place = HLG_NONE,
                                              .state = WAITING};
    list_append(mixed, &mixed->ranks[rank].waiting, index);
    return 0;
}

static uint32_t tokens_out(const struct sim_mixed *mixed, const struct request *request)
{
    return request->state == DECODING
               ? request->out + sim_steps_tokens(mixed->steps, request->place)
               : request->out;
}

static void add_event(struct sim_mixed *mixed, enum sim_mixed_event_kind kind, uint32_t index)
{
    const struct request *request = &mixed->requests[index];
    const uint32_t made =
        request->state == DECODING ? sim_steps_made(mixed->steps, request->place) : 0;

    HLG_ASSERT(mixed->event_count < mixed->event_capacity);
    mixed->events[mixed->event_count++] =
        (struct sim_mixed_event){.kind = (uint32_t)kind,
                                 .request = request->number,
                                 .rank = request->rank,
                                 .tokens = tokens_out(mixed, request),
                                 .cached = request->cached,
                                 .chunks = request->chunks,
                                 .steps = request->steps + made,
                                 .preemptions = request->preemptions,
                                 .at = mixed->boundary};
}

/* The cache knows its pages up to so many computed tokens. */
static void name_pages(struct sim_mixed *mixed, struct request *request, uint32_t tokens)
{
    /* Rounded down: a page is known when it is full. */
    uint32_t full = hlg_min_u32(tokens / mixed->config.page_tokens, request->name_count);

    full = hlg_min_u32(full, request->list_count); /* with MTP, pages follow the mean growth */
    if (full > request->named) {
        sim_pages_name(mixed->ranks[request->rank].pages, request->list + request->named,
                       request->names + request->named, full - request->named);
        request->named = full;
    }
}

/* Its pages go back, those of the first `tokens` tokens with their names. */
static void give_pages(struct sim_mixed *mixed, struct request *request, uint32_t tokens)
{
    struct rank_state *rank = &mixed->ranks[request->rank];

    name_pages(mixed, request, tokens);
    sim_pages_give(rank->pages, request->list, request->list_count);
    request->list_count = 0;
    request->named = 0;
    rank->blocked = false;
}

/* Its last token is out. */
static void finish(struct sim_mixed *mixed, uint32_t index)
{
    struct request *request = &mixed->requests[index];

    add_event(mixed, SIM_MIXED_FINISHED, index);
    give_pages(mixed, request, request->prompt + request->output - 1);
    list_remove(mixed, &mixed->ranks[request->rank].started, index);
    if (request->state == DECODING) {
        sim_steps_remove(mixed->steps, request->place);
    }
    free(request->list);
    *request = (struct request){.next = mixed->unused};
    mixed->unused = index;
    mixed->open_count--;
}

/* Its prompt is computed, and a token with it. */
static void finish_prompt(struct sim_mixed *mixed, uint32_t index)
{
    struct request *request = &mixed->requests[index];

    request->out++;
    mixed->totals.tokens_out++;
    if (request->last_ns == HLG_TIME_NEVER) {
        add_event(mixed, SIM_MIXED_COMPUTED, index);
        add_event(mixed, SIM_MIXED_FIRST, index);
    } else {
        sim_gaps_add(sim_steps_gaps(mixed->steps), mixed->boundary - request->last_ns, 1);
    }
    request->last_ns = mixed->boundary;
    if (request->out == request->output) {
        finish(mixed, index);
        return;
    }
    request->state = DECODING;
    request->place =
        sim_steps_add(mixed->steps, request->rank, index, request->stream, request->out,
                      request->target, request->output - request->out, mixed->boundary);
}

/* The step with the chunks of all ranks is over. */
static void end_chunks(struct sim_mixed *mixed)
{
    bool any = false;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        struct rank_state *rank = &mixed->ranks[r];

        for (uint32_t i = 0; i < rank->chunk_count; i++) {
            struct request *request = &mixed->requests[rank->computed[i]];

            request->done += rank->chunks[i].tokens;
            request->chunks++;
            mixed->totals.tokens_in += rank->chunks[i].tokens;
            name_pages(mixed, request, request->done);
            rank->blocked = false; /* what waits may share these pages */
            any = true;
            if (request->done == request->target) {
                rank->partial = rank->partial == rank->computed[i] ? HLG_NONE : rank->partial;
                finish_prompt(mixed, rank->computed[i]);
            }
        }
        rank->chunk_count = 0;
    }
    mixed->totals.prompt_steps += any;
}

/* The request that started last on a rank loses its pages and waits first. */
static void preempt(struct sim_mixed *mixed, struct rank_state *rank)
{
    const uint32_t index = rank->started.tail;
    struct request *request = &mixed->requests[index];
    uint32_t computed = request->done;

    HLG_ASSERT(index != HLG_NONE);
    if (request->state == DECODING) {
        const uint32_t made = sim_steps_made(mixed->steps, request->place);
        const uint32_t tokens = sim_steps_tokens(mixed->steps, request->place);

        computed = request->target + tokens;
        request->out += tokens;
        request->steps += made;
        request->last_ns = made != 0 ? sim_steps_last(mixed->steps) : request->last_ns;
        sim_steps_remove(mixed->steps, request->place);
        request->place = HLG_NONE;
    }
    if (rank->partial == index) {
        rank->partial = HLG_NONE;
    }
    request->preemptions++;
    request->state = WAITING;
    mixed->totals.preemptions++;
    add_event(mixed, SIM_MIXED_PREEMPTED, index);
    give_pages(mixed, request, computed);
    list_remove(mixed, &rank->started, index);
    list_prepend(mixed, &rank->waiting, index);
}

/* Sequences whose next step needs a page get it, or the youngest of their rank goes. Returns whether any
 * went. Ends: each turn gives a page or takes a request away. */
static bool settle_growth(struct sim_mixed *mixed)
{
    bool gone = false;
    uint32_t place = sim_steps_due(mixed->steps, SIM_STEPS_GROW);

    while (place != HLG_NONE) {
        struct request *request = &mixed->requests[sim_steps_at(mixed->steps, place)->user];
        struct rank_state *rank = &mixed->ranks[request->rank];

        HLG_ASSERT(request->list_count < pages_of(mixed, request->prompt + request->output));
        if (sim_pages_take(rank->pages, 1, request->list + request->list_count)) {
            request->list_count++;
            sim_steps_grown(mixed->steps, place);
        } else {
            preempt(mixed, rank);
            gone = true;
        }
        place = sim_steps_due(mixed->steps, SIM_STEPS_GROW);
    }
    return gone;
}

/* A part of its prompt comes into the step. */
static void add_chunk(struct sim_mixed *mixed, struct rank_state *rank, uint32_t index)
{
    const struct request *request = &mixed->requests[index];
    uint32_t tokens = request->target - request->done;

    if (mixed->config.chunked) {
        tokens = hlg_min_u32(tokens, rank->budget_left);
        rank->partial = tokens < request->target - request->done ? index : HLG_NONE;
    }
    HLG_ASSERT(tokens != 0 && rank->chunk_count < mixed->config.sequences_max);
    rank->chunks[rank->chunk_count] = (struct sim_chunk){tokens, request->done};
    rank->computed[rank->chunk_count] = index;
    rank->chunk_count++;
    rank->budget_left -= hlg_min_u32(tokens, rank->budget_left);
}

/* Tokens of a request that such a run of cached pages spares: at least one is computed. */
static uint32_t spared(const struct sim_mixed *mixed, uint32_t pages, uint32_t target)
{
    return pages == 0 ? 0 : hlg_min_u32(pages * mixed->config.page_tokens, target - 1);
}

/* Start the first that waits, or note why nobody can. */
static void start(struct sim_mixed *mixed, struct rank_state *rank)
{
    const uint32_t index = rank->waiting.head;
    struct request *request = &mixed->requests[index];
    const uint32_t target = request->prompt + request->out;
    const uint32_t nameable =
        hlg_min_u32(request->name_count, target / mixed->config.page_tokens); /* whole ones */
    const uint32_t total = mixed->config.grow ? pages_of(mixed, target)
                                              : pages_of(mixed, request->prompt + request->output);
    uint32_t hits = sim_pages_peek(rank->pages, request->names, nameable);

    if (!mixed->config.chunked && rank->chunk_count != 0 &&
        target - spared(mixed, hits, target) > rank->budget_left) {
        rank->closed = true;
        return;
    }
    hits = sim_pages_match(rank->pages, request->names, nameable, request->list);
    if (!sim_pages_take(rank->pages, total - hits, request->list + hits)) {
        sim_pages_give(rank->pages, request->list, hits);
        rank->blocked = true;
        return;
    }
    request->list_count = total;
    request->named = hits;
    request->target = target;
    request->done = spared(mixed, hits, target);
    request->state = COMPUTING;
    mixed->totals.tokens_cached += request->done;
    list_remove(mixed, &rank->waiting, index);
    list_append(mixed, &rank->started, index);
    if (request->last_ns == HLG_TIME_NEVER) {
        request->cached = request->preemptions == 0 ? request->done : request->cached;
        add_event(mixed, SIM_MIXED_STARTED, index);
    }
    add_chunk(mixed, rank, index);
}

/* Whether the first that waits may try to start in the step that is composed. */
static bool may_start(const struct sim_mixed *mixed, const struct rank_state *rank)
{
    return rank->waiting.count != 0 && rank->started.count < mixed->config.sequences_max &&
           rank->budget_left != 0 && !rank->closed && !rank->blocked;
}

/* Start who waits, in the order of submitting over all ranks: it is all the same whether others came before
 * the node was advanced or after. */
static void start_waiting(struct sim_mixed *mixed)
{
    struct rank_state *first = NULL;

    do {
        const struct request *head = NULL;

        first = NULL;
        for (uint32_t r = 0; r < mixed->config.ranks; r++) {
            struct rank_state *rank = &mixed->ranks[r];
            const struct request *request = NULL;

            if (!may_start(mixed, rank)) {
                continue;
            }
            request = &mixed->requests[rank->waiting.head];
            if (request->submitted <= mixed->boundary &&
                (head == NULL || request->serial < head->serial)) {
                head = request;
                first = rank;
            }
        }
        if (first != NULL) {
            start(mixed, first);
        }
    } while (first != NULL);
}

/* A new step: what runs comes first, and a prompt that was cut. */
static void compose(struct sim_mixed *mixed)
{
    const uint32_t budget = mixed->config.budget_tokens;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        struct rank_state *rank = &mixed->ranks[r];
        const uint64_t decode =
            (uint64_t)sim_steps_running(mixed->steps, r) * (1 + mixed->config.draft);

        HLG_ASSERT(rank->chunk_count == 0);
        rank->closed = false;
        rank->budget_left = budget;
        if (mixed->config.chunked) {
            rank->budget_left = decode < budget ? budget - (uint32_t)decode : 0;
        }
        if (rank->partial != HLG_NONE && rank->budget_left != 0) {
            add_chunk(mixed, rank, rank->partial);
        }
    }
    start_waiting(mixed);
}

/* Price the step that was composed, or the steps until something changes. */
static void plan(struct sim_mixed *mixed)
{
    bool any = false;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        const struct rank_state *rank = &mixed->ranks[r];

        mixed->prompts[r] =
            (struct sim_rank_step){.chunks = rank->chunks, .chunk_count = rank->chunk_count};
        any = any || rank->chunk_count != 0;
    }
    sim_steps_plan(mixed->steps, mixed->boundary, any ? mixed->prompts : NULL,
                   !any || mixed->config.chunked);
}

/* Whether anybody has started and not finished. */
static bool is_active(const struct sim_mixed *mixed)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        count += mixed->ranks[r].started.count;
    }
    return count != 0;
}

/* The time from which somebody may start, or never. */
static hlg_time wake_time(const struct sim_mixed *mixed)
{
    hlg_time wake = HLG_TIME_NEVER;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        const struct rank_state *rank = &mixed->ranks[r];

        if (may_start(mixed, rank)) {
            wake = hlg_min_time(wake, mixed->requests[rank->waiting.head].submitted);
        }
    }
    return wake;
}

/* The time from which somebody may start on a node with nothing to do, or never. */
static hlg_time idle_time(const struct sim_mixed *mixed)
{
    hlg_time wake = HLG_TIME_NEVER;

    for (uint32_t r = 0; r < mixed->config.ranks; r++) {
        const struct list *waiting = &mixed->ranks[r].waiting;

        if (waiting->count != 0) {
            wake = hlg_min_time(wake, mixed->requests[waiting->head].submitted);
        }
    }
    return wake;
}

/* When something happens next, and at which boundary of the plan. */
static hlg_time due(struct sim_mixed *mixed, uint32_t *k)
{
    hlg_time wake = 0;

    *k = 0;
    if (!is_active(mixed)) {
        return idle_time(mixed);
    }
    wake = wake_time(mixed);
    if (!sim_steps_planned(mixed->steps)) {
        if (wake <= mixed->boundary) {
            return mixed->boundary;
        }
        plan(mixed);
    }
    *k = sim_steps_next(mixed->steps);
    if (wake != HLG_TIME_NEVER) {
        *k = hlg_min_u32(*k, sim_steps_until(mixed->steps, wake));
    }
    return sim_steps_boundary(mixed->steps, *k);
}

static void finish_sequences(struct sim_mixed *mixed)
{
    uint32_t place = sim_steps_due(mixed->steps, SIM_STEPS_FINISH);

    while (place != HLG_NONE) {
        finish(mixed, sim_steps_at(mixed->steps, place)->user);
        place = sim_steps_due(mixed->steps, SIM_STEPS_FINISH);
    }
}

/* Make happen what is due at boundary k, at `at`. */
static void step(struct sim_mixed *mixed, uint32_t k, hlg_time at)
{
    const hlg_time wake = is_active(mixed) ? wake_time(mixed) : at;
    const bool planned = sim_steps_planned(mixed->steps);
    bool changed = !planned || wake <= at;

    mixed->boundary = at;
    if (is_active(mixed) && (!planned || k == 0)) {
        start_waiting(mixed); /* more of those that came at the very begin of a step */
        sim_steps_drop(mixed->steps);
        return;
    }
    if (planned) {
        changed = changed || k == sim_steps_end(mixed->steps);
        sim_steps_move(mixed->steps, k);
        end_chunks(mixed);
        finish_sequences(mixed);
        changed = settle_growth(mixed) || changed;
    }
    if (changed) {
        sim_steps_drop(mixed->steps);
        compose(mixed);
    }
}

hlg_time sim_mixed_next(struct sim_mixed *mixed)
{
    uint32_t k = 0;

    if (mixed->event_begin < mixed->event_count) {
        return mixed->events[mixed->event_begin].at;
    }
    return due(mixed, &k);
}

uint32_t sim_mixed_advance(struct sim_mixed *mixed, hlg_time now, struct sim_mixed_event *events,
                           uint32_t capacity)
{
    uint32_t given = 0;

    HLG_ASSERT(now >= mixed->now && now != HLG_TIME_NEVER);
    mixed->now = now;
    while (given < capacity) {
        uint32_t k = 0;
        hlg_time at = 0;

        if (mixed->event_begin < mixed->event_count) {
            events[given++] = mixed->events[mixed->event_begin++];
            continue;
        }
        mixed->event_begin = 0;
        mixed->event_count = 0;
        at = due(mixed, &k);
        if (at > now) {
            break;
        }
        step(mixed, k, at);
    }
    return given;
}

uint32_t sim_mixed_cached(const struct sim_mixed *mixed, uint32_t rank, const uint64_t *names,
                          uint32_t name_count)
{
    HLG_ASSERT(rank < mixed->config.ranks);
    return sim_pages_peek(mixed->ranks[rank].pages, names, name_count) * mixed->config.page_tokens;
}

uint32_t sim_mixed_waiting(const struct sim_mixed *mixed, uint32_t rank)
{
    HLG_ASSERT(rank < mixed->config.ranks);
    return mixed->ranks[rank].waiting.count;
}

uint32_t sim_mixed_computing(const struct sim_mixed *mixed, uint32_t rank)
{
    HLG_ASSERT(rank < mixed->config.ranks);
    return mixed->ranks[rank].started.count - sim_steps_running(mixed->steps, rank);
}

uint32_t sim_mixed_running(const struct sim_mixed *mixed, uint32_t rank)
{
    return sim_steps_running(mixed->steps, rank);
}

uint32_t sim_mixed_pages_used(const struct sim_mixed *mixed, uint32_t rank)
{
    HLG_ASSERT(rank < mixed->config.ranks);
    return sim_pages_used(mixed->ranks[rank].pages);
}

void sim_mixed_totals(const struct sim_mixed *mixed, struct sim_mixed_totals *totals)
{
    struct sim_batch_totals steps;

    sim_steps_totals(mixed->steps, &steps);
    *totals = mixed->totals;
    totals->steps = steps.steps;
    totals->beyond = steps.beyond;
    totals->busy_ns = steps.busy_ns;
    totals->tokens_out += steps.tokens;
}

void sim_mixed_gaps(const struct sim_mixed *mixed, struct sim_gaps *gaps)
{
    *gaps = *sim_steps_gaps(mixed->steps);
}

/* Recount one rank. */
static int check_rank(const struct sim_mixed *mixed, uint32_t r)
{
    const struct rank_state *rank = &mixed->ranks[r];
    uint32_t decoding = 0;
    uint32_t count = 0;
    uint64_t pages = 0;

    for (uint32_t at = rank->started.head; at != HLG_NONE; at = mixed->requests[at].next) {
        const struct request *request = &mixed->requests[at];
        uint32_t held = request->target;

        if (request->state == DECODING) {
            held += sim_steps_tokens(mixed->steps, request->place);
            decoding++;
        } else if (request->state != COMPUTING || request->done > request->target) {
            return 201;
        }
        if (mixed->config.draft == 0 && pages_of(mixed, held) > request->list_count) {
            return 202; /* tokens without a page */
        }
        pages += request->list_count;
        count++;
    }
    if (count != rank->started.count || decoding != sim_steps_running(mixed->steps, r) ||
        count > mixed->config.sequences_max) {
        return 203;
    }
    if (pages < sim_pages_used(rank->pages)) {
        return 204; /* used by nobody */
    }
    return sim_pages_check(rank->pages);
}

int sim_mixed_check(const struct sim_mixed *mixed)
{
    uint32_t open = 0;
    int failed = sim_steps_check(mixed->steps);

    for (uint32_t r = 0; r < mixed->config.ranks && failed == 0; r++) {
        failed = check_rank(mixed, r);
        open += mixed->ranks[r].waiting.count + mixed->ranks[r].started.count;
    }
    return failed == 0 && open != mixed->open_count ? 205 : failed;
}
