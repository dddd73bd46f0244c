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
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        node_give(n, job->pool, g, job->pages[g], job->count[g]);
    }
}

/* One part of a request; where it is wrong is the first thing to know. */
static uint64_t check_part(struct node *n, const struct job *job, uint32_t group, uint32_t layer,
                           uint32_t rank, uint32_t limit)
{
    uint64_t wrong = content_fill(n, job, group, layer, rank, 0, limit, true);

    if (wrong > 0) {
        printf("node %u request %llu: %llu wrong bytes in rank %u group %u layer %u; tokens %u, "
               "asked %u pages from %u\n",
               n->index, (unsigned long long)job->uid, (unsigned long long)wrong, rank, group,
               layer, job->tokens, job->count[group], job->first[group]);
    }
    return wrong;
}

/* Every planned slot that was asked for, on every rank, at every layer; and the context. */
static void check_bytes(struct node *n, const struct job *job)
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
    n->world->counts.bytes_checked += 1;
    if (wrong > 0) {
        world_break(n->world, "READY with wrong bytes", job->uid, wrong);
    }
}

static void on_failed(struct node *n, struct job *job, const struct hlg_notice *notice)
{
    if (job->failed || job->ready) {
        world_break(n->world, "a second terminal notice", notice->kind, job->uid);
    }
    job->failed = true;
    n->world->counts.failed[notice->reason]++;
    if (n->world->plant == PLANT_TARGET_FREED_EARLY) {
        give_pages(n, job);
        memset(job->count, 0, sizeof job->count);
    }
}

void decode_notice(struct node *n, const struct hlg_notice *notice)
{
    struct world *w = n->world;
    struct job *job = find(n, notice->request);

    if (notice->kind == HLG_NOTICE_PEER_DRAINING) {
        return;
    }
    if (job == NULL) {
        /* SUBMIT may notify READY before it returns the handle */
        for (uint32_t i = 0; i < REQUESTS_MAX && job == NULL; i++) {
            job = n->jobs[i].used && n->jobs[i].handle == 0 ? &n->jobs[i] : NULL;
        }
        if (job == NULL) {
            world_break(w, "a notice of a request that nobody submitted", notice->kind,
                        notice->request);
            return;
        }
        job->handle = notice->request;
    }
    if (notice->kind == HLG_NOTICE_READY) {
        if (job->failed || job->ready || notice->pieces_counted != notice->pieces_expected) {
            world_break(w, "READY out of place", job->uid, 0);
        }
        job->ready = true;
        job->release_at = hlg_loop_now(w->loop) + soon(w, w->late ? 5000000 : 100000);
        w->counts.ready++;
        w->counts.local += notice->pieces_expected == 0;
        check_bytes(n, job);
    } else if (notice->kind == HLG_NOTICE_FAILED) {
        on_failed(n, job, notice);
    } else if (notice->kind == HLG_NOTICE_RETURNED || notice->kind == HLG_NOTICE_POISONED) {
        if (!job->failed) {
            world_break(w, "pages came back before FAILED", notice->kind, job->uid);
        }
        if (notice->kind == HLG_NOTICE_RETURNED) {
            w->counts.returned++;
            give_pages(n, job);
        } else {
            w->counts.poisoned++;
        }
        memset(job, 0, sizeof *job);
    }
}

static uint32_t some_peer(struct node *n)
{
    uint32_t up[PREFILLERS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < n->world->prefillers; i++) {
        if (n->peer_up[i]) {
            up[count++] = i;
        }
    }
    if (n->world->split) {
        return count == n->world->prefillers ? 0 : HLG_NONE; /* all of them */
    }
    return count == 0 ? HLG_NONE : up[draw(n->world, count)];
}

/* Draw lengths and prefix, and take pages. */
static bool draw_job(struct node *n, struct job *job)
{
    struct world *w = n->world;

    *job = (struct job){.used = true, .uid = ++w->uid, .pool = draw(w, n->layout.pools)};
    job->tokens = chance(w, 100000) ? 1 + draw(w, 2) : 1 + draw(w, TOKENS_MAX);
    job->give_up_at = give_up_time(w, 150000);
    memcpy(job->prompt, &job->uid, 8);
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        uint32_t pages = hlg_layout_pages(&n->layout, g, job->tokens - 1);
        if (n->layout.groups[g].kind == HLG_GROUP_PAGED && chance(w, 200000)) {
            job->first[g] = draw(w, pages + 1);
        } else if (n->layout.groups[g].kind == HLG_GROUP_CONTEXT && job->tokens == 1) {
            pages = 0;
        }
        job->count[g] = pages - job->first[g];
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        if (!node_take(n, job->pool, g, job->count[g], job->pages[g])) {
            for (uint32_t k = 0; k < g; k++) {
                node_give(n, job->pool, k, job->pages[k], job->count[k]);
            }
            job->used = false;
            return false;
        }
    }
    return true;
}

static void submit(struct node *n)
{
    struct world *w = n->world;
    struct job *job = NULL;
    uint32_t other = some_peer(n);

    for (uint32_t i = 0; i < REQUESTS_MAX && job == NULL; i++) {
        job = n->jobs[i].used ? NULL : &n->jobs[i];
    }
    if (job == NULL || other == HLG_NONE || !draw_job(n, job)) {
        return;
    }
    job->peer = other;
    struct hlg_event event = {
        .kind = HLG_EVENT_SUBMIT,
        .submit = {.source_count = 1,
                   .peers = {n->peer_of[other]},
                   .pool = job->pool,
                   .tokens = job->tokens,
                   .random = draw_u32(w),
                   .ttl_ns = chance(w, w->calm ? 0 : 50000) ? soon(w, 500000) : 10 * HLG_NS_PER_S,
                   .id_bytes = 8,
                   .id = job->prompt,
                   .prompt_bytes = 8,
                   .prompt = job->prompt}};
    for (uint32_t i = 1; w->split && i < w->prefillers; i++) {
        event.submit.peers[event.submit.source_count++] = n->peer_of[i];
    }
    for (uint32_t g = 0; g < n->layout.group_count; g++) {
        event.submit.groups[g] = (struct hlg_page_list){
            .count = job->count[g], .first = job->first[g], .pages = job->pages[g]};
    }
    int error = hlg_pump_event(n->pump, &event);
    if (error == 0) {
        w->counts.submitted++;
        w->submits_left--;
        if (job->used && job->handle == 0) {
            job->handle = hlg_pump_submitted(n->pump);
        }
        return;
    }
    give_pages(n, job);
    job->used = false;
    if (error == -HLG_EINVAL || error == -HLG_EOWNED) {
        world_break(w, "a sound SUBMIT was refused", (uint64_t)(-error), job->uid);
    }
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
            struct hlg_event event = {.kind = HLG_EVENT_RELEASE, .request = job->handle};
            if (hlg_pump_event(n->pump, &event) != 0) {
                world_break(w, "RELEASE of a READY request was refused", job->uid, 0);
            }
            give_pages(n, job);
            memset(job, 0, sizeof *job);
        } else if (!job->ready && !job->failed && job->give_up_at <= now) {
            struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = job->handle};
            if (hlg_pump_event(n->pump, &event) != 0) {
                world_break(w, "CANCEL of an open request was refused", job->uid, 0);
            }
        }
    }
    if (w->submits_left > 0 && n->submit_at <= now) {
        n->submit_at = now + soon(w, 60000);
        submit(n);
    }
}

hlg_time decode_next(const struct node *n)
{
    hlg_time next = n->world->submits_left > 0 ? n->submit_at : HLG_TIME_NEVER;

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
