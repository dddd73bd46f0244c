/* A decode engine in small: submits, cancels, checks every byte at READY, reuses pages at once. */
#include "world.h"

#include <stdio.h>
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
    struct world *w = n->world;

    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        if (w->what.plant == PLANT_PAGE_LOST && !w->planted && job->count[g] > 0) {
            job->count[g]--;
            w->planted = true;
        }
        node_give(n, job, g);
        if (w->what.plant == PLANT_PAGE_TWICE && !w->planted && job->count[g] > 0) {
            node_give(n, job, g);
            w->planted = true;
        }
    }
}

/* One part of a request; where it is wrong is the first thing to know. */
static uint64_t check_part(struct node *n, struct job *job, uint32_t group, uint32_t layer,
                           uint32_t rank, uint32_t limit)
{
    uint64_t wrong = content_fill(n, job, group, layer, rank, 0, limit, true);

    if (wrong > 0) {
        world_tell(n->world, n, "request %llu: %llu wrong bytes, rank %u group %u layer %u",
                   (unsigned long long)job->uid, (unsigned long long)wrong, rank, group, layer);
    }
    if (n->layout.groups[group].kind == HLG_GROUP_PAGED &&
        content_touched(n, job, group, layer, rank, limit) > 0) {
        world_break(n->world, CHECK_LAST, "the prompt's last token was prefilled", job->uid, layer);
    }
    return wrong;
}

/* Every planned slot that was asked for, on every rank, at every layer; and the context. */
static void check_bytes(struct node *n, struct job *job)
{
    const struct hlg_layout *layout = &n->layout;
    uint64_t wrong = 0;

    for (uint32_t rank = 0; rank < hlg_layout_ranks(layout); rank++) {
        uint32_t stage = rank / layout->tp;
        for (uint32_t g = 0; g < layout->group_count; g++) {
            if (layout->groups[g].kind == HLG_GROUP_CONTEXT) {
                if (stage + 1 == layout->stages && job->tokens > 1) {
                    wrong += check_part(n, job, g, layout->layers, rank, 1);
                }
                continue;
            }
            for (uint32_t layer = hlg_layout_layer_begin(layout, stage);
                 layer < layout->stage_limit[stage]; layer++) {
                if (hlg_group_has_layer(&layout->groups[g], layer)) {
                    wrong += check_part(n, job, g, layer, rank, job->tokens - 1);
                }
            }
        }
    }
    looked(n->world, CHECK_BYTES);
    looked(n->world, CHECK_LAST);
    if (wrong > 0) {
        world_break(n->world, CHECK_BYTES, "READY with wrong bytes", job->uid, wrong);
    }
}

static void on_failed(struct node *n, struct job *job, const struct hlg_notice *notice)
{
    struct world *w = n->world;

    if (job->failed || job->ready) {
        world_break(w, CHECK_NOTICE, "a second terminal notice", notice->kind, job->uid);
    }
    job->failed = true;
    w->counts.failed[notice->reason]++;
    looked(w, CHECK_COUNT);
    if (notice->reason == HLG_REASON_PROTOCOL) {
        world_break(w, CHECK_COUNT, "two sound sides disagreed on the pieces of a request",
                    job->uid, notice->pieces_counted);
    }
    if (job->probe && notice->reason != HLG_REASON_REJECTED) {
        world_break(w, CHECK_PROBE, "a request of the calm failed", notice->reason, job->uid);
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        bool context = n->layout.groups[g].kind == HLG_GROUP_CONTEXT;
        if (w->what.plant == PLANT_TARGET_FREED ||
            (w->what.plant == PLANT_CONTEXT_FREED && context)) {
            node_give(n, job, g);
            job->count[g] = 0;
        }
    }
}

static void on_ready(struct node *n, struct job *job, const struct hlg_notice *notice)
{
    struct world *w = n->world;

    looked(w, CHECK_COUNT);
    if (job->failed || job->ready) {
        world_break(w, CHECK_NOTICE, "READY out of place", job->uid, 0);
    }
    if (notice->pieces_counted != notice->pieces_expected ||
        job->landed < notice->pieces_expected) {
        world_break(w, CHECK_COUNT, "READY before every piece had landed", job->landed,
                    notice->pieces_expected);
    }
    job->ready = true;
    job->release_at =
        hlg_loop_now(w->loop) + soon(w, is_on(w, KIND_LATE) && !w->calm ? 5000000 : 100000);
    w->counts.ready++;
    w->counts.local += notice->pieces_expected == 0;
    check_bytes(n, job);
    device_check(n, job);
    if (job->probe) {
        looked(w, CHECK_PROBE);
        w->counts.probes++;
        n->probe++;
    }
}

/* Pages are the engine's again, or lost for good. */
static void on_pages(struct node *n, struct job *job, const struct hlg_notice *notice)
{
    struct world *w = n->world;

    if (!job->failed) {
        world_break(w, CHECK_NOTICE, "pages came back before FAILED", notice->kind, job->uid);
    }
    if (notice->kind == HLG_NOTICE_RETURNED) {
        device_check(n, job);
    }
    if (notice->kind == HLG_NOTICE_RETURNED || w->what.plant == PLANT_POISON_REUSED) {
        w->counts.returned++;
        give_pages(n, job);
    } else {
        w->counts.poisoned++;
        n->poisonings++;
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            node_poison(n, job, g);
        }
    }
    memset(job, 0, sizeof *job);
}

void decode_notice(struct node *n, const struct hlg_notice *notice)
{
    struct world *w = n->world;
    struct job *job = find(n, notice->request);

    looked(w, CHECK_NOTICE);
    if (job == NULL) {
        /* SUBMIT may notify READY before it returns the handle */
        for (uint32_t i = 0; i < REQUESTS_MAX && job == NULL; i++) {
            job = n->jobs[i].used && n->jobs[i].handle == 0 ? &n->jobs[i] : NULL;
        }
        if (job == NULL) {
            world_break(w, CHECK_NOTICE, "a notice of a request that nobody submitted",
                        notice->kind, notice->request);
            return;
        }
        job->handle = notice->request;
    }
    if (notice->kind == HLG_NOTICE_READY) {
        on_ready(n, job, notice);
    } else if (notice->kind == HLG_NOTICE_FAILED) {
        on_failed(n, job, notice);
    } else if (notice->kind == HLG_NOTICE_RETURNED || notice->kind == HLG_NOTICE_POISONED) {
        on_pages(n, job, notice);
    }
}

/* Some set of prefillers of which all are up. */
static uint32_t some_set(struct node *n)
{
    uint32_t up[PREFILLERS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < n->world->sets; i++) {
        if (life_set_up(n, i)) {
            up[count++] = i;
        }
    }
    return count == 0 ? HLG_NONE : up[draw(n->world, count)];
}

/* Draw lengths and prefix, and take pages. */
static bool draw_job(struct node *n, struct job *job)
{
    struct world *w = n->world;
    bool probe = w->phase == PHASE_PROBE;

    *job = (struct job){.used = true, .uid = ++w->uid, .pool = draw(w, n->layout.pools)};
    job->probe = probe;
    job->tokens = chance(w, 100000) ? 1 + draw(w, 2) : 1 + draw(w, TOKENS_MAX);
    job->tokens = probe ? hlg_max_u32(2, job->tokens) : job->tokens;
    job->give_up_at = give_up_time(w, 150000);
    memcpy(job->prompt, &job->uid, 8);
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        uint32_t pages = hlg_layout_pages(&n->layout, g, job->tokens - 1);
        if (n->layout.groups[g].kind == HLG_GROUP_PAGED && chance(w, 200000) && !probe) {
            job->first[g] = draw(w, pages + 1);
        } else if (n->layout.groups[g].kind == HLG_GROUP_CONTEXT && job->tokens == 1) {
            pages = 0;
        }
        job->count[g] = pages - job->first[g];
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        if (!node_take(n, job, g)) {
            for (uint32_t k = 0; k < g; k++) {
                node_give(n, job, k);
            }
            job->used = false;
            return false;
        }
    }
    return true;
}

static void fill_submit(struct node *n, const struct job *job, struct hlg_event *event)
{
    struct world *w = n->world;

    *event = (struct hlg_event){
        .kind = HLG_EVENT_SUBMIT,
        .submit = {.pool = job->pool,
                   .tokens = job->tokens,
                   .random = draw_u32(w),
                   .ttl_ns = mischief(w, KIND_DEADLINE, 50000) ? soon(w, 500000) : TTL_NS,
                   .id_bytes = 8,
                   .id = job->prompt,
                   .prompt_bytes = 8,
                   .prompt = job->prompt}};
    for (uint32_t i = 0; i < w->share; i++) {
        event->submit.peers[event->submit.source_count++] = n->peer_of[job->set * w->share + i];
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        event->submit.groups[g] = (struct hlg_page_list){
            .count = job->count[g], .first = job->first[g], .pages = job->pages[g]};
    }
}

static void submit(struct node *n, uint32_t set)
{
    struct world *w = n->world;
    struct hlg_event event;
    struct job *job = NULL;

    for (uint32_t i = 0; i < REQUESTS_MAX && job == NULL; i++) {
        job = n->jobs[i].used ? NULL : &n->jobs[i];
    }
    if (job == NULL || set == HLG_NONE || !draw_job(n, job)) {
        return;
    }
    job->set = set;
    if (w->what.plant == PLANT_RANDOM && !w->check) {
        (void)draw_u32(w);
    }
    fill_submit(n, job, &event);
    looked(w, CHECK_CALL);
    int error = hlg_pump_event(n->pump, &event);
    if (error == 0) {
        w->counts.submitted++;
        w->submits_left -= w->submits_left > 0;
        w->submit_at = hlg_loop_now(w->loop);
        if (job->used && job->handle == 0) {
            job->handle = hlg_pump_submitted(n->pump);
        }
        return;
    }
    bool freed = w->what.plant == PLANT_TARGET_FREED || w->what.plant == PLANT_CONTEXT_FREED;
    if (error == -HLG_EINVAL || (error == -HLG_EOWNED && !freed)) {
        world_break(w, CHECK_CALL, "a sound SUBMIT was refused", (uint64_t)(-error), job->uid);
    }
    give_pages(n, job);
    job->used = false;
}

static void release(struct node *n, struct job *job)
{
    struct world *w = n->world;
    struct hlg_event event = {.kind = HLG_EVENT_RELEASE, .request = job->handle};

    if (w->what.plant == PLANT_NO_RELEASE && !w->planted) {
        w->planted = true;
        memset(job, 0, sizeof *job);
        return;
    }
    looked(w, CHECK_CALL);
    if (hlg_pump_event(n->pump, &event) != 0) {
        world_break(w, CHECK_CALL, "RELEASE of a READY request was refused", job->uid, 0);
    }
    give_pages(n, job);
    memset(job, 0, sizeof *job);
}

static bool is_idle(const struct node *n)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].used) {
            return false;
        }
    }
    return true;
}

static bool has_room(const struct node *n)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (!n->jobs[i].used) {
            return true;
        }
    }
    return false;
}

static bool has_set(const struct node *n)
{
    for (uint32_t i = 0; i < n->world->sets; i++) {
        if (life_set_up(n, i)) {
            return true;
        }
    }
    return false;
}

/* Else only news changes anything. */
static bool wants_submit(const struct node *n)
{
    const struct world *w = n->world;

    if (!has_room(n) || !has_set(n)) {
        return false;
    }
    if (w->phase == PHASE_PROBE) {
        return n->probe < w->sets && is_idle(n);
    }
    return w->submits_left > 0 && !n->draining;
}

void decode_act(struct node *n, hlg_time now)
{
    struct world *w = n->world;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct job *job = &n->jobs[i];
        if (!job->used) {
            continue;
        }
        if (job->ready && job->release_at <= now) {
            release(n, job);
        } else if (!job->ready && !job->failed && job->give_up_at <= now) {
            struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = job->handle};
            looked(w, CHECK_CALL);
            if (hlg_pump_event(n->pump, &event) != 0) {
                world_break(w, CHECK_CALL, "CANCEL of an open request was refused", job->uid, 0);
            }
        }
    }
    if (wants_submit(n) && n->submit_at <= now) {
        n->submit_at = now + soon(w, 60000);
        submit(n, w->phase == PHASE_PROBE ? n->probe : some_set(n));
    }
}

hlg_time decode_next(const struct node *n)
{
    hlg_time next = hlg_min_time(wants_submit(n) ? n->submit_at : HLG_TIME_NEVER, device_next(n));

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].used && n->jobs[i].ready) {
            next = hlg_min_time(next, n->jobs[i].release_at);
        } else if (n->jobs[i].used && !n->jobs[i].failed) {
            next = hlg_min_time(next, n->jobs[i].give_up_at);
        }
    }
    return next;
}

void decode_died(struct node *n)
{
    memset(n->jobs, 0, sizeof n->jobs);
}
