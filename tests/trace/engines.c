/* Two small engines. They look at the script and at what has happened, never at the clock, so that what
 * each request moves and is told is the same on every network. */
#include "world.h"

#include <string.h>

/* ---- Decode ---- */

static struct job *job_of_target(const struct node *n, hlg_handle handle)
{
    struct world *w = n->world;
    struct job *fresh = NULL; /* a notice may come before SUBMIT returns */

    for (uint32_t i = 0; i < OF_SCENE; i++) {
        struct job *job = &w->jobs[i];
        if (PREFILLERS + job->request->decoder != n->index || !job->submitted || job->over) {
            continue;
        }
        if (job->target == handle) {
            return job;
        }
        fresh = job->target == 0 ? job : fresh;
    }
    if (fresh != NULL) {
        fresh->target = handle;
    }
    return fresh;
}

void decode_notice(struct node *n, const struct hlg_notice *notice)
{
    struct job *job = job_of_target(n, notice->request);

    if (job == NULL) {
        world_break(n->world, "a decoder speaks of a request that it does not have");
    } else if (notice->kind == HLG_NOTICE_READY) {
        job->ready = true;
        if (!bytes_arrived(n->world, job)) {
            world_break(n->world, "READY with wrong bytes");
        }
    } else if (notice->kind == HLG_NOTICE_FAILED) {
        job->failed = true;
        if (job->request->fate == FATE_READY || job->request->fate == FATE_LOCAL) {
            world_break(n->world, "a request failed that should not");
        }
    } else if (notice->kind == HLG_NOTICE_RETURNED) {
        job->over = true;
    } else if (notice->kind == HLG_NOTICE_POISONED) {
        world_break(n->world, "pages were poisoned");
    }
}

static void submit(struct node *n, struct job *job)
{
    const struct script_request *r = job->request;
    uint8_t id[4] = {(uint8_t)job->index};
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = 1,
                                         .peers = {n->peers[r->prefiller]},
                                         .pool = r->target_pool,
                                         .tokens = r->tokens,
                                         .random = r->random,
                                         .ttl_ns = HLG_TIME_NEVER,
                                         .id_bytes = sizeof id,
                                         .id = id,
                                         .prompt_bytes = 1,
                                         .prompt = (const uint8_t *)"p"}};

    for (uint32_t g = 0; g < n->layout->group_count; g++) {
        for (uint32_t i = 0; i < r->count[g]; i++) {
            job->pages[g][i] = script_target_page(r, r->first[g] + i);
        }
        event.submit.groups[g] = (struct hlg_page_list){
            .count = r->count[g], .first = r->first[g], .pages = job->pages[g]};
    }
    job->submitted = true;
    job->finished = r->fate == FATE_LOCAL; /* no prefiller hears of it */
    world_event(n, &event);
    if (!job->over && job->target == 0) {
        job->target = hlg_pump_submitted(n->pump);
    }
}

static void end_request(struct node *n, struct job *job, enum hlg_event_kind kind)
{
    struct hlg_event event = {.kind = kind, .request = job->target};

    job->over = kind == HLG_EVENT_RELEASE;
    job->cancelled = true;
    world_event(n, &event);
}

/* Whether the script wants a request given up now. */
static bool is_cancel_due(struct world *w, const struct job *job)
{
    const struct script_request *r = job->request;

    if (job->cancelled || !job->asked) {
        return false;
    }
    if (r->fate == FATE_CANCEL_ASKED) {
        return true;
    }
    struct hlg_pump_stats stats;
    hlg_pump_stats(w->nodes[r->prefiller].pump, &stats);
    return r->fate == FATE_CANCEL_CUT && job->admitted && job->computed > r->cut_last &&
           stats.pieces_done - job->done_before == pieces_due(w, job, r->cuts[r->cut_last]);
}

void decode_act(struct node *n)
{
    struct world *w = n->world;
    bool slots[TARGET_SLOTS] = {false};

    for (uint32_t i = 0; i < OF_SCENE; i++) {
        struct job *job = &w->jobs[i];
        const struct script_request *r = job->request;
        if (PREFILLERS + r->decoder != n->index) {
            continue;
        }
        if (!job->submitted && !slots[r->target_slot]) {
            submit(n, job);
        }
        if (job->submitted && job->ready && !job->over) {
            end_request(n, job, HLG_EVENT_RELEASE);
        } else if (job->submitted && !job->failed && is_cancel_due(w, job)) {
            end_request(n, job, HLG_EVENT_CANCEL);
        }
        slots[r->target_slot] = slots[r->target_slot] || !job->over;
    }
}

/* ---- Prefill ---- */

static bool is_mine(const struct node *n, const struct job *job)
{
    return job->request->prefiller == n->index && job->request->fate != FATE_LOCAL;
}

void prefill_notice(struct node *n, const struct hlg_notice *notice)
{
    struct world *w = n->world;

    if (notice->kind == HLG_NOTICE_POISONED) {
        world_break(w, "pages were poisoned");
        return;
    }
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        struct job *job = &w->jobs[notice->message->id[0] % OF_SCENE];
        job->asked = true;
        job->source = notice->request;
        return;
    }
    for (uint32_t i = 0; i < OF_SCENE; i++) {
        struct job *job = &w->jobs[i];
        if (!is_mine(n, job) || !job->asked || job->finished || job->source != notice->request) {
            continue;
        }
        job->stopped = job->stopped || notice->kind == HLG_NOTICE_STOPPING;
        job->finished = notice->kind == HLG_NOTICE_SENT || notice->kind == HLG_NOTICE_FENCED;
        return;
    }
    world_break(w, "a prefiller speaks of a request that it does not have");
}

/* Whether the pages of a request are free at its prefiller, and nobody wants to be alone there. */
static bool may_admit(const struct node *n, const struct job *job)
{
    const struct world *w = n->world;
    const bool alone = script_alone(job->request);

    for (uint32_t i = 0; i < job->index; i++) {
        const struct job *older = &w->jobs[i];
        if (is_mine(n, older) && !older->finished &&
            (alone || script_alone(older->request) ||
             older->request->source_slot == job->request->source_slot)) {
            return false;
        }
    }
    for (uint32_t i = job->index + 1; alone && i < OF_SCENE; i++) {
        if (is_mine(n, &w->jobs[i]) && w->jobs[i].admitted && !w->jobs[i].finished) {
            return false;
        }
    }
    return true;
}

static void admit(struct node *n, struct job *job)
{
    const struct script_request *r = job->request;
    uint32_t pages[GROUPS_MAX][PAGES_MAX];
    struct hlg_pump_stats stats;
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT,
                              .admit = {.request = job->source,
                                        .pool = r->source_pool,
                                        .cached_tokens = r->cached_tokens}};

    for (uint32_t g = 0; g < n->layout->group_count; g++) {
        uint32_t count = hlg_layout_pages(n->layout, g, r->tokens - 1);
        for (uint32_t i = 0; i < count; i++) {
            pages[g][i] = script_source_page(r, i);
        }
        event.admit.groups[g] = (struct hlg_page_list){.count = count, .pages = pages[g]};
    }
    hlg_pump_stats(n->pump, &stats);
    job->done_before = stats.pieces_done;
    job->admitted = true;
    world_event(n, &event);
}

static void reject(struct node *n, struct job *job)
{
    struct hlg_event event = {.kind = HLG_EVENT_REJECT, .reject = {.request = job->source}};

    job->stopped = true;
    job->finished = true;
    world_event(n, &event);
}

/* Chunks that the script lets be announced. */
static uint32_t chunks_allowed(const struct script_request *r)
{
    return script_alone(r) ? r->cut_last + 1 : r->cut_count;
}

/* Returns whether the machine had room; else it is announced with a later forward. */
static bool announce(struct node *n, struct job *job, uint32_t number)
{
    const struct script_request *r = job->request;
    uint32_t begin = job->announced == 0 ? r->cached_tokens : r->cuts[job->announced - 1];
    struct hlg_event event = {.kind = HLG_EVENT_CHUNK,
                              .chunk = {.request = job->source,
                                        .forward = number,
                                        .token_begin = begin,
                                        .token_count = r->cuts[job->announced] - begin}};

    int error = hlg_pump_event(n->pump, &event);
    if (error != 0 && error != -HLG_ELIMIT) {
        world_break(n->world, "the machine refused a sound chunk");
    }
    job->announced += error == 0;
    return error == 0;
}

/* The next chunk of each request that has one. */
static void start_forward(struct node *n)
{
    struct forward *f = &n->forward;

    *f = (struct forward){.number = 0};
    for (uint32_t i = 0; i < OF_SCENE && f->job_count < SOURCE_SLOTS; i++) {
        struct job *job = &n->world->jobs[i];
        if (is_mine(n, job) && job->admitted && !job->stopped && !job->finished &&
            job->announced < chunks_allowed(job->request) && announce(n, job, n->forwards + 1)) {
            f->jobs[f->job_count++] = job;
        }
    }
    if (f->job_count > 0) {
        f->number = ++n->forwards;
    }
}

/* One more layer of every word; after the last the forward ends. */
static void step_forward(struct node *n)
{
    struct forward *f = &n->forward;
    uint32_t words = hlg_prefill_words(n->layout);

    f->step++;
    for (uint32_t word = 0; word < words; word++) {
        struct hlg_event event = {.kind = HLG_EVENT_LAYER,
                                  .layer = {.word = word, .value = f->number << 8 | f->step}};
        world_event(n, &event);
    }
    if (f->step > n->layout->layers) {
        struct hlg_event event = {.kind = HLG_EVENT_FORWARD_END, .forward = f->number};
        for (uint32_t i = 0; i < f->job_count; i++) {
            f->jobs[i]->computed++;
        }
        f->number = 0;
        world_event(n, &event);
    }
}

/* What happens to a request that is alone, once its last chunk is wholly written. */
static void meet_fate(struct node *n, struct job *job)
{
    const struct script_request *r = job->request;
    struct hlg_pump_stats stats;

    hlg_pump_stats(n->pump, &stats);
    if (job->computed <= r->cut_last ||
        stats.pieces_done - job->done_before != pieces_due(n->world, job, r->cuts[r->cut_last])) {
        return;
    }
    struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = job->source};
    if (r->fate == FATE_ABORTED) {
        if (!announce(n, job, n->forwards + 1)) {
            return;
        }
        n->forwards++;
        event = (struct hlg_event){.kind = HLG_EVENT_FORWARD_ABORT, .forward = n->forwards};
    }
    job->cancelled = true;
    world_event(n, &event);
}

void prefill_act(struct node *n)
{
    struct world *w = n->world;

    for (uint32_t i = 0; i < OF_SCENE; i++) {
        struct job *job = &w->jobs[i];
        if (!is_mine(n, job) || !job->asked || job->finished || job->stopped) {
            continue;
        }
        enum fate fate = job->request->fate;
        if (!job->admitted && fate == FATE_REJECTED) {
            reject(n, job);
        } else if (!job->admitted && fate != FATE_CANCEL_ASKED && may_admit(n, job)) {
            admit(n, job);
        } else if (job->admitted && !job->cancelled &&
                   (fate == FATE_GIVEN_UP || fate == FATE_ABORTED)) {
            meet_fate(n, job);
        }
    }
    if (n->forward.number == 0) {
        start_forward(n);
    } else {
        step_forward(n);
    }
}
