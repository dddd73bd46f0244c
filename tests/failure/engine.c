/* The small engines of both sides, and the oracles over bytes and pages. */
#include "scene.h"

#include <stdio.h>
#include <string.h>

/* ---- Content ------------------------------------------------------------------------------ */

static uint8_t content(uint64_t uid, uint32_t layer, uint32_t plane, uint32_t head, uint32_t token,
                       uint32_t byte)
{
    uint64_t x = uid * 0x9e3779b97f4a7c15ull;

    x ^= ((uint64_t)layer << 40) + ((uint64_t)plane << 32) + ((uint64_t)head << 24) +
         ((uint64_t)token << 8) + byte;
    x *= 0xff51afd7ed558ccdull;
    return (uint8_t)(x >> 56);
}

static uint8_t *page_at(const struct scene_node_state *n, uint32_t group, uint32_t layer,
                        uint32_t plane, uint32_t page)
{
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->group == group && p->layer == layer && p->plane == plane) {
            return n->memory + p->offset + page * p->stride;
        }
    }
    hlg_unreachable();
}

/* Bytes of one head of one token, written or compared. Returns those that differ. */
static uint32_t visit(uint8_t *at, uint32_t bytes, bool check, uint64_t uid, uint32_t layer,
                      uint32_t plane, uint32_t head, uint32_t token)
{
    uint32_t wrong = 0;

    for (uint32_t b = 0; b < bytes; b++) {
        uint8_t want = content(uid, layer, plane, head, token, b);
        wrong += check && at[b] != want;
        at[b] = check ? at[b] : want;
    }
    return wrong;
}

/* Tokens [begin, limit) of one layer, in pages named by position from `first` on. */
static uint32_t visit_layer(struct scene_node_state *n, const struct job *job,
                            const uint32_t *pages, uint32_t first, uint32_t layer, uint32_t begin,
                            uint32_t limit, bool check)
{
    uint32_t heads = HEADS / n->layout.tp;
    uint32_t wrong = 0;

    for (uint32_t token = begin; token < limit; token++) {
        uint32_t position = token / PAGE_TOKENS;
        for (uint32_t plane = 0; position >= first && plane < PLANES; plane++) {
            uint8_t *page = page_at(n, 0, layer, plane, pages[position - first]);
            for (uint32_t h = 0; h < heads; h++) {
                uint8_t *at = page + (h * PAGE_TOKENS + token % PAGE_TOKENS) * HEAD_BYTES;
                wrong += visit(at, HEAD_BYTES, check, job->uid, layer, plane,
                               n->layout.rank_begin * heads + h, token);
            }
        }
    }
    return wrong;
}

static uint32_t visit_context(struct scene_node_state *n, const struct job *job, uint32_t page,
                              bool check)
{
    return visit(page_at(n, 1, LAYERS, 0, page), 64, check, job->uid, LAYERS, 0, 0, 0);
}

/* Whether a context is handed over with it. */
static bool has_context(const struct scene_node_state *n, const struct job *job)
{
    return !n->scene->config.no_context && job->tokens > 1;
}

static void check_bytes(struct scene_node_state *n, const struct job *job)
{
    uint32_t wrong = 0;

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        wrong += visit_layer(n, job, job->pages, job->first, layer, 0, job->tokens - 1, true);
    }
    if (has_context(n, job)) {
        wrong += visit_context(n, job, job->context, true);
    }
    if (wrong > 0) {
        scene_break(n->scene, "READY of %s with %u wrong bytes", job->id, wrong);
    }
}

/* ---- Pages -------------------------------------------------------------------------------- */

static uint32_t number_of(const struct scene *s, const struct job *job)
{
    return (uint32_t)(job - s->jobs) + 1;
}

static void take(struct scene_node_state *n, const struct job *job, uint32_t group, uint32_t page)
{
    if (n->owner[group][page] != 0) {
        scene_break(n->scene, "%s takes page %u.%u that is not free", job->id, group, page);
    }
    n->owner[group][page] = number_of(n->scene, job);
}

/* Back to the engine: scribbled over, so that whoever still needs it will see. */
static void give(struct scene_node_state *n, const struct job *job, uint32_t group, uint32_t page)
{
    if (n->owner[group][page] != number_of(n->scene, job)) {
        scene_break(n->scene, "%s gives page %u.%u that is not its own", job->id, group, page);
    }
    n->owner[group][page] = 0;
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->group == group) {
            memset(n->memory + p->offset + page * p->stride, 0xEE, p->stride);
        }
    }
}

static void give_target(struct scene_node_state *n, struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        give(n, job, 0, job->pages[i]);
    }
    if (has_context(n, job)) {
        give(n, job, 1, job->context);
    }
}

static void poison_target(struct scene_node_state *n, struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        n->poisoned[0][job->pages[i]] = true;
    }
    if (has_context(n, job)) {
        n->poisoned[1][job->context] = true;
    }
}

static void poison_source(struct scene_node_state *n, const struct job *job,
                          const struct job_source *part)
{
    for (uint32_t i = 0; i < scene_pages_of(job->tokens); i++) {
        n->poisoned[0][part->pages[i]] = true;
    }
    if (has_context(n, job)) {
        n->poisoned[1][part->context] = true;
    }
}

static void give_source(struct scene_node_state *n, struct job *job, struct job_source *part)
{
    for (uint32_t i = 0; i < scene_pages_of(job->tokens); i++) {
        give(n, job, 0, part->pages[i]);
    }
    if (has_context(n, job)) {
        give(n, job, 1, part->context);
    }
}

/* The lowest free page, so that one that was given back is used again at once. */
static uint32_t take_free(struct scene_node_state *n, const struct job *job, uint32_t group)
{
    for (uint32_t page = 0; page < n->layout.groups[group].page_count; page++) {
        if (n->owner[group][page] == 0) {
            take(n, job, group, page);
            return page;
        }
    }
    scene_break(n->scene, "no page is left for %s", job->id);
    return 0;
}

static bool find_page(const struct scene_node_state *n, uint64_t offset, uint32_t *group,
                      uint32_t *page)
{
    for (uint32_t i = 0; i < n->place_count; i++) {
        const struct hlg_place *p = &n->places[i];
        if (offset >= p->offset &&
            offset < p->offset + p->stride * n->layout.groups[p->group].page_count) {
            *group = p->group;
            *page = (uint32_t)((offset - p->offset) / p->stride);
            return true;
        }
    }
    return false;
}

void engine_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct scene *s = context;
    const struct scene_node_state *target = &s->nodes[landing->target_node];
    const struct scene_node_state *source = &s->nodes[landing->source_node];
    uint32_t group = 0;
    uint32_t page = 0;

    if (!find_page(target, landing->target_offset, &group, &page)) {
        scene_break(s, "a byte landed outside all pages");
        return;
    }
    uint32_t owner = target->owner[group][page];
    if (owner == 0) {
        scene_break(s, "a byte landed in page %u.%u, which the engine holds free", group, page);
        return;
    }
    if (!landing->again) {
        s->jobs[owner - 1].landed++;
    }
    uintptr_t at = (uintptr_t)landing->source - (uintptr_t)source->memory;
    if (landing->source == NULL || at >= source->bytes || source->was_killed ||
        hlg_fault_owns(s->fault, landing->source) || !find_page(source, at, &group, &page)) {
        return; /* it had left its page before, or its node died */
    }
    if (source->owner[group][page] == 0) {
        scene_break(s, "source page %u.%u was read after it was given back", group, page);
    } else if (source->owner[group][page] != owner) {
        scene_break(s, "a byte of %s landed in a page of %s",
                    s->jobs[source->owner[group][page] - 1].id, s->jobs[owner - 1].id);
    }
}

/* ---- Requests ----------------------------------------------------------------------------- */

uint32_t scene_pages_of(uint32_t tokens)
{
    return hlg_div_ceil(tokens - 1, PAGE_TOKENS);
}

struct job *scene_job(struct scene *s, const char *id, uint32_t decode, const uint32_t *pages,
                      uint32_t tokens)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        if (job->used) {
            continue;
        }
        *job = (struct job){.used = true,
                            .uid = ++s->uid,
                            .node = decode,
                            .tokens = tokens,
                            .count = scene_pages_of(tokens),
                            .context = i % CONTEXTS,
                            .source_count = s->config.split ? 2 : 1,
                            .sources = {{.node = PREFILL_0}, {.node = PREFILL_1}}};
        HLG_ASSERT(job->count <= JOB_PAGES);
        for (uint32_t k = 0; k < job->count; k++) {
            job->pages[k] = pages[k];
        }
        (void)snprintf(job->id, sizeof job->id, "%s", id);
        return job;
    }
    hlg_unreachable();
}

void scene_submit(struct scene *s, struct job *job)
{
    struct scene_node_state *n = &s->nodes[job->node];
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT};
    struct hlg_event_submit *e = &event.submit;

    HLG_ASSERT(job->target == TARGET_NONE);
    *e = (struct hlg_event_submit){
        .source_count = job->source_count,
        .tokens = job->tokens,
        .ttl_ns = job->ttl_ns != 0 ? job->ttl_ns : 60 * HLG_NS_PER_S,
        .id_bytes = (uint32_t)strlen(job->id),
        .id = (const uint8_t *)job->id,
        .prompt_bytes = sizeof job->uid,
        .prompt = (const uint8_t *)&job->uid,
        .groups = {{.count = job->count, .first = job->first, .pages = job->pages},
                   {.count = has_context(n, job), .pages = &job->context}}};
    for (uint32_t i = 0; i < job->source_count; i++) {
        e->peers[i] = n->peer_of[job->sources[i].node];
    }
    job->submitted_at = scene_now(s);
    job->target = TARGET_OPEN; /* READY may be told before the call returns */
    job->submit_error = hlg_pump_event(n->pump, &event);
    if (job->submit_error != 0) {
        job->target = TARGET_REFUSED;
        job->settled_at = scene_now(s);
        return;
    }
    job->handle = hlg_pump_submitted(n->pump);
    for (uint32_t i = 0; i < job->count; i++) {
        take(n, job, 0, job->pages[i]);
    }
    if (has_context(n, job)) {
        take(n, job, 1, job->context);
    }
}

int scene_cancel(struct scene *s, struct job *job)
{
    return hlg_pump_event(s->nodes[job->node].pump,
                          &(struct hlg_event){.kind = HLG_EVENT_CANCEL, .request = job->handle});
}

int scene_give_up(struct scene *s, struct job *job, uint32_t source)
{
    struct job_source *part = &job->sources[source];

    return hlg_pump_event(s->nodes[part->node].pump,
                          &(struct hlg_event){.kind = HLG_EVENT_CANCEL, .request = part->handle});
}

void scene_node_event(struct scene *s, uint32_t node, uint32_t kind)
{
    HLG_ASSERT(hlg_pump_event(s->nodes[node].pump, &(struct hlg_event){.kind = kind}) == 0);
}

/* ---- Decode engine ------------------------------------------------------------------------ */

static struct job *job_of_target(struct scene_node_state *n, const struct hlg_notice *notice)
{
    struct scene *s = n->scene;

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        bool open = job->target == TARGET_OPEN || job->target == TARGET_READY ||
                    job->target == TARGET_FAILED;
        if (job->used && job->node == n->index && open &&
            (job->handle == notice->request || job->handle == 0)) {
            return job;
        }
    }
    return NULL;
}

static void decode_notice(struct scene_node_state *n, const struct hlg_notice *notice)
{
    struct scene *s = n->scene;
    struct job *job = job_of_target(n, notice);

    if (job == NULL) {
        scene_break(s, "notice %u of a request that nobody has open", notice->kind);
        return;
    }
    if (notice->kind == HLG_NOTICE_ACCEPTED) {
        job->accepted = true;
    } else if (notice->kind == HLG_NOTICE_READY || notice->kind == HLG_NOTICE_FAILED) {
        if (job->target != TARGET_OPEN) {
            scene_break(s, "a second terminal notice for %s", job->id);
        }
        job->terminal_at = scene_now(s);
        job->pieces = notice->pieces_expected;
        job->retry_heard = notice->retry_after_ns;
        job->reason = notice->reason;
        job->target = notice->kind == HLG_NOTICE_READY ? TARGET_READY : TARGET_FAILED;
        if (job->target == TARGET_READY) {
            check_bytes(n, job);
        }
    } else if (notice->kind == HLG_NOTICE_RETURNED || notice->kind == HLG_NOTICE_POISONED) {
        if (job->target != TARGET_FAILED) {
            scene_break(s, "pages of %s came back before FAILED", job->id);
        }
        job->settled_at = scene_now(s);
        if (notice->kind == HLG_NOTICE_RETURNED) {
            job->target = TARGET_RETURNED;
            give_target(n, job);
        } else {
            job->target = TARGET_POISONED;
            poison_target(n, job);
        }
    }
}

static int decode_act(struct scene_node_state *n)
{
    struct scene *s = n->scene;
    int work = 0;

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        if (!job->used || job->node != n->index || job->target != TARGET_READY ||
            job->hold_release) {
            continue;
        }
        check_bytes(n, job); /* still whole */
        HLG_ASSERT(hlg_pump_event(n->pump, &(struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                                               .request = job->handle}) == 0);
        give_target(n, job);
        job->target = TARGET_RELEASED;
        job->settled_at = scene_now(s);
        work++;
    }
    return work;
}

/* ---- Prefill engine ----------------------------------------------------------------------- */

static void on_requested(struct scene_node_state *n, const struct hlg_notice *notice)
{
    struct scene *s = n->scene;
    uint64_t uid = 0;

    HLG_ASSERT(notice->message->prompt_bytes == sizeof uid);
    memcpy(&uid, notice->message->prompt, sizeof uid);
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        struct job_source *part = &job->sources[notice->message->source];
        if (job->used && job->uid == uid) {
            if (part->node != n->index || part->state != SOURCE_NONE) {
                scene_break(s, "%s was asked for twice, or of the wrong node", job->id);
            }
            part->state = SOURCE_ASKED;
            part->handle = notice->request;
            return;
        }
    }
    scene_break(s, "a request that nobody submitted was asked for");
}

static struct job_source *part_of(struct scene_node_state *n, hlg_handle handle, struct job **job)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *j = &n->scene->jobs[i];
        for (uint32_t k = 0; j->used && k < j->source_count; k++) {
            struct job_source *part = &j->sources[k];
            if (part->node == n->index && part->handle == handle && part->state != SOURCE_NONE &&
                part->state != SOURCE_GONE) {
                *job = j;
                return part;
            }
        }
    }
    return NULL;
}

static void prefill_notice(struct scene_node_state *n, const struct hlg_notice *notice)
{
    struct job *job = NULL;

    if (notice->kind == HLG_NOTICE_REQUESTED) {
        on_requested(n, notice);
        return;
    }
    struct job_source *part = part_of(n, notice->request, &job);
    if (part == NULL) {
        scene_break(n->scene, "notice %u of a request that nobody asked for", notice->kind);
        return;
    }
    if (notice->kind == HLG_NOTICE_STOPPING) {
        part->reason = notice->reason;
        part->state = SOURCE_STOPPING;
        return;
    }
    if (part->paged && notice->kind == HLG_NOTICE_POISONED) {
        poison_source(n, job, part);
    } else if (part->paged) {
        give_source(n, job, part);
    }
    part->paged = false;
    part->state = notice->kind == HLG_NOTICE_SENT     ? SOURCE_SENT
                  : notice->kind == HLG_NOTICE_FENCED ? SOURCE_FENCED
                                                      : SOURCE_POISONED;
}

static int answer(struct scene_node_state *n, struct job *job, struct job_source *part)
{
    struct hlg_event event = {
        .kind = HLG_EVENT_REJECT,
        .reject = {.request = part->handle, .retry_after_ns = job->retry_after}};

    if ((job->will_reject >> (part - job->sources) & 1) != 0) {
        part->state = SOURCE_REJECTED;
        HLG_ASSERT(hlg_pump_event(n->pump, &event) == 0);
        return 1;
    }
    uint32_t count = scene_pages_of(job->tokens);
    for (uint32_t i = 0; i < count; i++) {
        part->pages[i] = take_free(n, job, 0);
    }
    if (has_context(n, job)) {
        part->context = take_free(n, job, 1);
    }
    for (uint32_t layer = 0; job->cached > 0 && layer < LAYERS; layer++) {
        (void)visit_layer(n, job, part->pages, 0, layer, 0, job->cached, false);
    }
    if (job->cached + 1 == job->tokens && has_context(n, job)) {
        (void)visit_context(n, job, part->context, false);
    }
    part->state = SOURCE_ADMITTED;
    part->paged = true;
    part->announced = job->cached;
    part->computed = job->cached;
    event = (struct hlg_event){
        .kind = HLG_EVENT_ADMIT,
        .admit = {.request = part->handle,
                  .cached_tokens = job->cached,
                  .groups = {{.count = count, .pages = part->pages},
                             {.count = has_context(n, job), .pages = &part->context}}}};
    HLG_ASSERT(hlg_pump_event(n->pump, &event) == 0);
    return 1;
}

static bool may_chunk(const struct scene_node_state *n, const struct job *job,
                      const struct job_source *part)
{
    return job->used && part->node == n->index && part->state == SOURCE_ADMITTED &&
           part->computed == part->announced && part->announced < job->tokens - 1 &&
           (job->stop_at == 0 || part->announced < job->stop_at) && !job->hold_chunk;
}

/* One chunk of each request that is to go on. */
static int begin_forward(struct scene_node_state *n)
{
    struct scene *s = n->scene;
    struct forward f = {0};

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        for (uint32_t k = 0; k < s->jobs[i].source_count; k++) {
            struct job *job = &s->jobs[i];
            struct job_source *part = &job->sources[k];
            if (!may_chunk(n, job, part)) {
                continue;
            }
            uint32_t rest = job->tokens - 1 - part->announced;
            uint32_t size = job->chunk_tokens != 0 ? hlg_min_u32(rest, job->chunk_tokens) : rest;
            f.number = n->forwards + 1;
            f.jobs[f.job_count] = i;
            f.begin[f.job_count] = part->announced;
            f.limit[f.job_count++] = part->announced + size;
            HLG_ASSERT(hlg_pump_event(n->pump,
                                      &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                                          .chunk = {.request = part->handle,
                                                                    .forward = f.number,
                                                                    .token_begin = part->announced,
                                                                    .token_count = size}}) == 0);
            part->announced += size;
        }
    }
    if (f.job_count == 0) {
        return 0;
    }
    n->forwards = f.number;
    n->forward = f;
    n->layer_at = scene_now(s) + LAYER_NS;
    return 1;
}

static struct job_source *part_in(struct scene_node_state *n, struct job *job)
{
    for (uint32_t k = 0; k < job->source_count; k++) {
        if (job->sources[k].node == n->index) {
            return &job->sources[k];
        }
    }
    hlg_unreachable();
}

/* A layer, or the context after the last, is computed: its bytes, then its stamp. */
static int compute_layer(struct scene_node_state *n)
{
    struct forward *f = &n->forward;

    for (uint32_t i = 0; i < f->job_count; i++) {
        struct job *job = &n->scene->jobs[f->jobs[i]];
        struct job_source *part = part_in(n, job);
        if (part->state != SOURCE_ADMITTED) {
            continue; /* it was stopped, and its pages may be another's */
        }
        if (f->layers < LAYERS) {
            (void)visit_layer(n, job, part->pages, 0, f->layers, f->begin[i], f->limit[i], false);
        } else {
            part->computed = f->limit[i];
            if (f->limit[i] == job->tokens - 1 && has_context(n, job)) {
                (void)visit_context(n, job, part->context, false);
            }
        }
    }
    f->layers++;
    n->layer_at = scene_now(n->scene) + LAYER_NS;
    struct hlg_event event = {.kind = HLG_EVENT_LAYER,
                              .layer = {.value = f->number << 8 | f->layers}};
    HLG_ASSERT(n->no_stamps || hlg_pump_event(n->pump, &event) == 0);
    if (f->layers == LAYERS + 1) {
        event = (struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = f->number};
        f->number = 0;
        HLG_ASSERT(hlg_pump_event(n->pump, &event) == 0);
    }
    return 1;
}

static int abort_forward(struct scene_node_state *n)
{
    struct hlg_event event = {.kind = HLG_EVENT_FORWARD_ABORT, .forward = n->forward.number};

    n->abort = false;
    if (n->forward.number == 0) {
        return 0;
    }
    n->forward.number = 0;
    HLG_ASSERT(hlg_pump_event(n->pump, &event) == 0);
    return 1;
}

static int prefill_act(struct scene_node_state *n)
{
    struct scene *s = n->scene;
    int work = n->abort ? abort_forward(n) : 0;

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        for (uint32_t k = 0; job->used && k < job->source_count; k++) {
            struct job_source *part = &job->sources[k];
            if (part->node == n->index && part->state == SOURCE_ASKED && !job->hold_answer) {
                work += answer(n, job, part);
            }
        }
    }
    if (n->forward.number == 0) {
        return work + begin_forward(n);
    }
    if (n->forward.layers < n->layers_max && n->layer_at <= scene_now(s)) {
        work += compute_layer(n);
    }
    return work;
}

/* ---- Both --------------------------------------------------------------------------------- */

void engine_notice(struct scene_node_state *n, const struct hlg_notice *notice)
{
    if (n->decode) {
        decode_notice(n, notice);
    } else {
        prefill_notice(n, notice);
    }
}

int engine_act(struct scene_node_state *n)
{
    return n->decode ? decode_act(n) : prefill_act(n);
}

hlg_time engine_next(const struct scene_node_state *n)
{
    bool waits = !n->decode && n->forward.number != 0 && n->forward.layers < n->layers_max;

    return waits ? n->layer_at : HLG_TIME_NEVER;
}

void engine_died(struct scene_node_state *n)
{
    struct scene *s = n->scene;

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &s->jobs[i];
        if (!job->used) {
            continue;
        }
        bool open = job->target == TARGET_OPEN || job->target == TARGET_READY ||
                    job->target == TARGET_FAILED;
        if (job->node == n->index && open) {
            job->target = TARGET_GONE;
            job->settled_at = scene_now(s);
        }
        for (uint32_t k = 0; k < job->source_count; k++) {
            struct job_source *part = &job->sources[k];
            if (part->node == n->index && part->state != SOURCE_NONE && part->state < SOURCE_SENT) {
                part->state = SOURCE_GONE;
            }
        }
    }
}
