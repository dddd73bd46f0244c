/* A prefill engine in small: admits, computes in chunks over forward passes, ticks its counters. */
#include "world.h"

#include <string.h>

static struct job *find(struct node *n, hlg_handle handle)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].used && n->jobs[i].handle == handle) {
            return &n->jobs[i];
        }
    }
    return NULL;
}

static void give_pages(struct node *n, struct job *job)
{
    for (uint32_t g = 0; job->admitted && g < n->layout.group_count; g++) {
        node_give(n, job, g);
    }
    memset(job, 0, sizeof *job);
}

/* Nobody may use them again: the device may still be reading them. */
static void lose_pages(struct node *n, struct job *job)
{
    n->world->counts.poisoned++;
    n->poisonings++;
    for (uint32_t g = 0; job->admitted && g < n->layout.group_count; g++) {
        node_poison(n, job, g);
    }
    memset(job, 0, sizeof *job);
}

/* The decoder's slot is this request's: whoever writes with it must write into its pages. */
static void learn_slot(struct node *n, uint32_t peer, const struct hlg_request_message *m,
                       uint64_t uid)
{
    struct node *d = &n->world->nodes[n->node_of[peer]];

    if (d->incarnation == n->incarnation_of[peer]) {
        HLG_ASSERT(m->slot < SLOTS_MAX);
        d->slot_uid[m->slot][m->generation % GENERATIONS] = uid;
    }
}

static void on_requested(struct node *n, const struct hlg_notice *notice)
{
    struct job *job = NULL;

    for (uint32_t i = 0; i < REQUESTS_MAX && job == NULL; i++) {
        job = n->jobs[i].used ? NULL : &n->jobs[i];
    }
    looked(n->world, CHECK_NOTICE);
    if (job == NULL || notice->message->prompt_bytes != 8) {
        world_break(n->world, CHECK_NOTICE, "more requests than the limit, or a strange prompt",
                    n->index, 0);
        return;
    }
    if (n->draining) {
        world_break(n->world, CHECK_PEER, "a REQUEST was let in after DRAIN", n->index, 0);
    }
    *job = (struct job){.used = true,
                        .handle = notice->request,
                        .tokens = notice->message->tokens,
                        .rejected = mischief(n->world, KIND_REJECT, 30000)};
    memcpy(&job->uid, notice->message->prompt, 8);
    learn_slot(n, notice->peer, notice->message, job->uid);
    job->give_up_at = give_up_time(n->world, 30000);
}

void prefill_notice(struct node *n, const struct hlg_notice *notice)
{
    struct job *job = find(n, notice->request);

    if (notice->kind == HLG_NOTICE_REQUESTED) {
        on_requested(n, notice);
        return;
    }
    looked(n->world, CHECK_NOTICE);
    if (job == NULL) {
        world_break(n->world, CHECK_NOTICE, "a notice of a request that the engine does not know",
                    notice->kind, notice->request);
        return;
    }
    if (notice->kind == HLG_NOTICE_STOPPING) {
        if (job->stopping) {
            world_break(n->world, CHECK_NOTICE, "STOPPING twice", notice->request, 0);
        }
        job->stopping = true;
        return;
    }
    if (notice->kind == HLG_NOTICE_SENT) {
        /* a source that has nothing to write is done before its last CHUNK returns */
        bool whole = job->announced == job->tokens - 1 || notice->pieces_expected == 0;
        if (job->stopping || !whole || notice->pieces_counted != notice->pieces_expected) {
            world_break(n->world, CHECK_COUNT, "SENT of a request that was not wholly sent",
                        notice->request, 0);
        }
    } else if ((notice->kind != HLG_NOTICE_FENCED && notice->kind != HLG_NOTICE_POISONED) ||
               !job->stopping) {
        world_break(n->world, CHECK_NOTICE, "a notice out of place", notice->kind, notice->request);
    }
    if (notice->kind == HLG_NOTICE_POISONED && n->world->what.plant != PLANT_POISON_REUSED) {
        lose_pages(n, job);
    } else {
        give_pages(n, job);
    }
}

uint32_t prefill_word(const struct hlg_layout *layout, uint32_t lane)
{
    uint32_t hosted = layout->rank_limit - layout->rank_begin;
    uint32_t stage = (layout->rank_begin + lane % hosted) / layout->tp;

    return layout->all_reduce != 0 ? lane / hosted * layout->stages + stage : lane;
}

/* The engine's own faults, planted. */
static void compute_wrongly(struct node *n, const struct job *job, uint32_t g, uint32_t layer,
                            uint32_t rank, uint32_t limit)
{
    struct world *w = n->world;

    if (w->what.plant == PLANT_LAST_TOKEN && limit + 1 == job->tokens) {
        content_fill(n, job, g, layer, rank, limit, limit + 1, false);
    } else if (w->what.plant == PLANT_WRONG_BYTE && layer + 1 == n->layout.layers && limit > 0) {
        struct job other = *job;
        other.uid++;
        content_fill(n, &other, g, layer, rank, limit - 1, limit, false);
    }
}

/* Compute tokens [begin, limit) of one layer on the ranks that a counter word speaks for. */
static void compute(struct node *n, struct job *job, uint32_t word, uint32_t layer, uint32_t begin,
                    uint32_t limit)
{
    const struct hlg_layout *layout = &n->layout;

    for (uint32_t rank = layout->rank_begin; rank < layout->rank_limit; rank++) {
        uint32_t stage = rank / layout->tp;
        uint32_t own = prefill_word(layout, hlg_layout_lane(layout, job->pool, rank));
        bool holds = layer == layout->layers ? stage == layout->stages - 1
                                             : layer >= hlg_layout_layer_begin(layout, stage) &&
                                                   layer < layout->stage_limit[stage];
        if (own != word || !holds) {
            continue;
        }
        for (uint32_t g = 0; g < layout->group_count; g++) {
            bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
            if (context && layer == layout->layers) {
                content_fill(n, job, g, layer, rank, 0, 1, false);
            } else if (!context && hlg_group_has_layer(&layout->groups[g], layer)) {
                content_fill(n, job, g, layer, rank, begin, limit, false);
                compute_wrongly(n, job, g, layer, rank, limit);
            }
        }
    }
    job->fact[word][layer] = (uint8_t)(layer == layout->layers ? job->tokens : limit);
}

static void compute_all(struct node *n, struct job *job, uint32_t begin, uint32_t limit)
{
    for (uint32_t word = 0; word < hlg_prefill_words(&n->layout); word++) {
        for (uint32_t layer = 0; layer < n->layout.layers; layer++) {
            compute(n, job, word, layer, begin, limit);
        }
    }
}

/* Layers that word w counts: of its stage, and the context on the last. */
static uint32_t word_layers(const struct node *n, uint32_t word, uint32_t *begin)
{
    uint32_t rank = n->layout.rank_begin + word % node_hosted(n);
    uint32_t stage = n->layout.all_reduce != 0 ? word % n->layout.stages : rank / n->layout.tp;

    *begin = hlg_layout_layer_begin(&n->layout, stage);
    return n->layout.stage_limit[stage] - *begin + (stage + 1 == n->layout.stages ? 1 : 0);
}

/* A forward that has not run to its end, to make a new job's cached pages valid; NULL: none has room.
 * Rather one that will be given up: those are few. */
static struct forward_run *some_forward(struct node *n)
{
    struct forward_run *found = NULL;

    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        struct forward_run *f = &n->forwards[i];
        if (f->number != 0 && !f->over && f->work_count < REQUESTS_MAX &&
            (found == NULL || f->abort)) {
            found = f;
        }
    }
    return found;
}

/* A job's first tokens are that forward's to compute, as if for another request: what its words have
 * gone through is there, the rest follows. */
static void join_forward(struct node *n, struct forward_run *f, struct job *job, uint32_t tokens)
{
    uint32_t begin = 0;

    f->work[f->work_count++] = (struct piece_of_work){
        .job = (uint32_t)(job - n->jobs), .handle = job->handle, .count = tokens};
    for (uint32_t word = 0; word < hlg_prefill_words(&n->layout); word++) {
        word_layers(n, word, &begin);
        for (uint32_t done = 0; done < f->done[word]; done++) {
            if (begin + done < n->layout.layers) {
                compute(n, job, word, begin + done, 0, tokens);
            }
        }
    }
}

static void refuse(struct node *n, struct job *job, uint32_t retry_ms)
{
    struct hlg_event event = {
        .kind = HLG_EVENT_REJECT,
        .reject = {.request = job->handle, .retry_after_ns = retry_ms * HLG_NS_PER_MS}};

    if (hlg_pump_event(n->pump, &event) == 0) {
        memset(job, 0, sizeof *job);
    }
}

static void admit(struct node *n, struct job *job)
{
    struct world *w = n->world;
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT, .admit = {.request = job->handle}};
    uint32_t tokens = job->tokens - 1;
    struct forward_run *f = NULL;

    job->pool = draw(w, n->layout.pools);
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        job->count[g] = hlg_layout_pages(&n->layout, g, tokens);
        if (n->free_count[job->pool][g] < job->count[g]) {
            return; /* later */
        }
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        (void)node_take(n, job, g); /* there are as many */
        event.admit.groups[g].count = job->count[g];
        event.admit.groups[g].pages = job->pages[g];
    }
    job->admitted = true;
    event.admit.pool = job->pool;
    if (tokens > 1 && chance(w, 200000)) {
        event.admit.cached_tokens = draw(w, tokens);
        f = chance(w, 500000) && event.admit.cached_tokens > 0 ? some_forward(n) : NULL;
        if (f == NULL) {
            compute_all(n, job, 0, event.admit.cached_tokens);
        } else {
            event.admit.cached_forward = f->number;
        }
    }
    int error = hlg_pump_event(n->pump, &event);
    if (error == 0) {
        if (f != NULL) {
            join_forward(n, f, job, event.admit.cached_tokens);
        }
        job->announced = event.admit.cached_tokens;
        job->computed = event.admit.cached_tokens;
    } else if (error == -HLG_ELIMIT) {
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            node_give(n, job, g);
        }
        job->admitted = false;
    } else {
        world_break(w, CHECK_CALL, "a sound ADMIT was refused", (uint64_t)(-error), job->handle);
    }
}

/* Announce the next forward pass: some tokens of some of the jobs. */
static void announce(struct node *n, struct forward_run *f, hlg_time now)
{
    struct world *w = n->world;
    uint32_t budget = 1 + draw(w, 24);
    uint32_t number = n->forward_number % 0xffffff + 1;

    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < REQUESTS_MAX && budget > 0; i++) {
        struct job *job = &n->jobs[i];
        if (!job->used || !job->admitted || job->stopping || job->announced + 1 >= job->tokens) {
            continue;
        }
        uint32_t count = hlg_min_u32(budget, job->tokens - 1 - job->announced);
        struct hlg_event event = {.kind = HLG_EVENT_CHUNK,
                                  .chunk = {.request = job->handle,
                                            .forward = number,
                                            .token_begin = job->announced,
                                            .token_count = count}};
        hlg_handle handle = job->handle;
        uint32_t begin = job->announced;
        int error = hlg_pump_event(n->pump, &event);
        if (error == -HLG_ELIMIT) {
            continue;
        }
        if (error != 0) {
            world_break(w, CHECK_CALL, "a sound CHUNK was refused", (uint64_t)(-error), handle);
            return;
        }
        f->work[f->work_count++] =
            (struct piece_of_work){.job = i, .handle = handle, .begin = begin, .count = count};
        /* the notice SENT may have come at once, when nothing was asked of it */
        if (job->used && job->handle == handle) {
            job->announced = begin + count;
            f->work[f->work_count - 1].last = job->announced + 1 == job->tokens;
        }
        budget -= count;
    }
    if (f->work_count > 0) {
        n->forward_number = number;
        f->number = number;
        f->next_at = now + soon(w, 40000);
        f->abort = mischief(w, KIND_ABORT, 20000);
    }
}

static void tick(struct node *n, uint32_t word, uint32_t value)
{
    struct hlg_event event = {.kind = HLG_EVENT_LAYER, .layer = {.word = word, .value = value}};

    looked(n->world, CHECK_CALL);
    if (hlg_pump_event(n->pump, &event) != 0) {
        world_break(n->world, CHECK_CALL, "a LAYER was refused", word, value);
    }
}

/* One layer of one word; maybe tell the core, maybe leave it to a later tick. */
static void compute_layer(struct node *n, struct forward_run *f, uint32_t word)
{
    struct world *w = n->world;
    uint32_t begin = 0;

    word_layers(n, word, &begin);
    uint32_t layer = begin + f->done[word]++;
    bool context = layer == n->layout.layers;
    if (w->what.plant == PLANT_LAYER_EARLY) {
        tick(n, word, f->number << 8 | (f->done[word]));
    }
    for (uint32_t i = 0; w->what.plant != PLANT_LAYER_EARLY && i < f->work_count; i++) {
        struct piece_of_work *work = &f->work[i];
        struct job *job = &n->jobs[work->job];
        if (job->used && job->handle == work->handle && (!context || work->last)) {
            compute(n, job, word, layer, work->begin, work->begin + work->count);
        }
    }
    if (chance(w, 700000)) {
        tick(n, word, f->number << 8 | f->done[word]);
        if (chance(w, 100000)) {
            tick(n, word, f->number << 8 | draw(w, f->done[word] + 1)); /* old news */
        }
    }
    if (chance(w, 50000)) {
        tick(n, word, (f->number + 1000) << 8 | 200); /* a forward that nobody announced */
    }
}

static void run_forward(struct node *n, struct forward_run *f, hlg_time now)
{
    uint32_t words = hlg_prefill_words(&n->layout);
    uint32_t begin = 0;
    bool over = true;

    for (uint32_t word = 0; word < words; word++) {
        if (f->done[word] < word_layers(n, word, &begin)) {
            if (chance(n->world, 600000)) {
                compute_layer(n, f, word);
            }
            over = over && f->done[word] >= word_layers(n, word, &begin);
        }
    }
    f->next_at = now + soon(n->world, 40000);
    f->over = over || (f->abort && chance(n->world, 200000));
    if (f->over) {
        f->end_at = now + soon(n->world, 60000);
    }
}

/* The engine forgets, after it told of all layers. */
static bool forget_forward(struct node *n, struct forward_run *f)
{
    uint32_t begin = 0;

    if (n->world->what.plant != PLANT_NO_END || f->abort || n->world->planted) {
        return false;
    }
    for (uint32_t word = 0; word < hlg_prefill_words(&n->layout); word++) {
        tick(n, word, f->number << 8 | word_layers(n, word, &begin));
    }
    n->world->planted = true;
    memset(f, 0, sizeof *f);
    return true;
}

static void end_forward(struct node *n, struct forward_run *f)
{
    bool abort = f->abort;
    struct hlg_event event = {.kind = abort ? HLG_EVENT_FORWARD_ABORT : HLG_EVENT_FORWARD_END,
                              .forward = f->number};

    if (forget_forward(n, f)) {
        return;
    }
    memset(f, 0, sizeof *f);
    if (hlg_pump_event(n->pump, &event) != 0) {
        world_break(n->world, CHECK_CALL, "the end of a forward was refused", event.forward, abort);
    }
}

/* Forwards run one after the other; the next may be announced before the last is over. One that is
 * given up is told before the next one stamps a counter, as the contract asks. */
static struct forward_run *running(const struct node *n)
{
    const struct forward_run *first = NULL;

    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        const struct forward_run *f = &n->forwards[i];
        if (f->number != 0 && f->over && f->abort) {
            return NULL;
        }
        if (f->number != 0 && !f->over && (first == NULL || f->number < first->number)) {
            first = f;
        }
    }
    return (struct forward_run *)(uintptr_t)first;
}

static void act_on_jobs(struct node *n, hlg_time now)
{
    const uint32_t plant = n->world->what.plant;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct job *job = &n->jobs[i];
        if (job->used && !job->admitted && !job->stopping) {
            if (plant == PLANT_DEAF && n->world->phase == PHASE_PROBE) {
                continue;
            }
            if (job->rejected) {
                refuse(n, job, 1);
            } else {
                admit(n, job);
            }
        } else if (job->used && job->admitted && !job->stopping && job->give_up_at <= now) {
            struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = job->handle};
            hlg_pump_event(n->pump, &event);
        }
        if (plant == PLANT_SOURCE_FREED && job->used && job->admitted &&
            job->announced + 1 == job->tokens && !job->stopping && job->computed != UINT32_MAX) {
            job->computed = UINT32_MAX;
            node_give(n, job, 0);
        }
    }
}

void prefill_act(struct node *n, hlg_time now)
{
    struct forward_run *unused = NULL;

    act_on_jobs(n, now);
    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        struct forward_run *f = &n->forwards[i];
        if (f->number == 0) {
            unused = f;
        } else if (f->over && f->end_at <= now) {
            end_forward(n, f);
            unused = f;
        }
    }
    struct forward_run *run = running(n);
    if (run != NULL && run->next_at <= now) {
        run_forward(n, run, now);
    }
    if (unused != NULL && n->forward_at <= now) {
        n->forward_at = now + soon(n->world, 100000);
        announce(n, unused, now);
    }
}

/* Whether a forward could be announced, or a request admitted: else only news changes anything. */
static bool has_work(const struct node *n)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct job *job = &n->jobs[i];
        if (job->used && !job->stopping && (!job->admitted || job->announced + 1 < job->tokens)) {
            return true;
        }
    }
    return false;
}

hlg_time prefill_next(const struct node *n)
{
    hlg_time next = HLG_TIME_NEVER;
    bool work = has_work(n);

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].admitted && !n->jobs[i].stopping) {
            next = hlg_min_time(next, n->jobs[i].give_up_at);
        }
    }

    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        const struct forward_run *f = &n->forwards[i];
        if (f->number == 0) {
            next = work ? hlg_min_time(next, n->forward_at) : next;
        } else if (f->over) {
            next = hlg_min_time(next, f->end_at);
        } else if (f == running(n)) {
            next = hlg_min_time(next, f->next_at);
        }
    }
    return next;
}

void prefill_died(struct node *n)
{
    memset(n->jobs, 0, sizeof n->jobs);
    memset(n->forwards, 0, sizeof n->forwards);
    n->forward_number = 0;
}
