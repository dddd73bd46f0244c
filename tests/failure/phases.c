#include "matrix.h"

const char *const phase_names[PHASES] = {"up",   "sent",    "asked", "admitted",  "posted",
                                         "half", "context", "ready", "cancelled", "fencing"};

#define REACH_NS MS(20) /* what a phase takes to come, at most */

static const struct job *watched_of(const struct scene *s)
{
    return &s->jobs[3]; /* after the three others */
}

static bool others_have_begun(const struct scene *s)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct job *job = &s->jobs[i];
        uint32_t pieces = LAYERS * PLANES * 2 * job->source_count;
        if (job->landed != pieces || !job->accepted) {
            return false;
        }
    }
    return true;
}

static bool all_complete(const struct scene *s)
{
    for (uint32_t i = PREFILL_0; i <= PREFILL_1; i++) {
        struct hlg_pump_stats stats;
        hlg_pump_stats(s->nodes[i].pump, &stats);
        if (stats.pieces_done != stats.pieces_posted || s->nodes[i].forward.number != 0) {
            return false;
        }
    }
    return true;
}

static bool sources_are(const struct scene *s, uint32_t state)
{
    const struct job *job = watched_of(s);

    for (uint32_t i = 0; i < job->source_count; i++) {
        if (job->sources[i].state != state) {
            return false;
        }
    }
    return true;
}

static uint32_t layer_pieces(const struct job *job)
{
    return PLANES * job->count * job->source_count;
}

static bool is_asked(const struct scene *s)
{
    return sources_are(s, SOURCE_ASKED);
}

static bool is_admitted(const struct scene *s)
{
    return watched_of(s)->accepted;
}

static bool forwards_at(const struct scene *s, uint32_t layers)
{
    const struct job *job = watched_of(s);

    for (uint32_t i = 0; i < job->source_count; i++) {
        const struct forward *f = &s->nodes[job->sources[i].node].forward;
        if (f->number == 0 || f->layers != layers) {
            return false;
        }
    }
    return true;
}

static bool is_posted(const struct scene *s)
{
    return forwards_at(s, 1);
}

static bool is_half(const struct scene *s)
{
    const struct job *job = watched_of(s);

    for (uint32_t i = 0; i < job->source_count; i++) {
        struct hlg_pump_stats stats;
        hlg_pump_stats(s->nodes[job->sources[i].node].pump, &stats);
        if (stats.pieces_done != stats.pieces_posted) {
            return false;
        }
    }
    return forwards_at(s, LAYERS / 2) && job->landed == LAYERS / 2 * layer_pieces(job);
}

static bool is_context(const struct scene *s)
{
    const struct job *job = watched_of(s);

    for (uint32_t i = 0; i < job->source_count; i++) {
        if (job->sources[i].announced != job->tokens - 1 ||
            s->nodes[job->sources[i].node].forward.number != 0) {
            return false;
        }
    }
    return job->landed == LAYERS * layer_pieces(job);
}

static bool is_ready(const struct scene *s)
{
    return watched_of(s)->target == TARGET_READY;
}

static bool is_stopping(const struct scene *s)
{
    return sources_are(s, SOURCE_STOPPING);
}

static void reach(struct cell *c, scene_fn *fn)
{
    if (!scene_until(&c->scene, fn, scene_now(&c->scene) + REACH_NS)) {
        scene_break(&c->scene, "phase %s did not come", phase_names[c->phase]);
    }
}

static bool first_is_over(const struct scene *s)
{
    return s->jobs[0].target == TARGET_RELEASED;
}

/* Small requests, one after the other, until each slot of both decoders has had one. */
static void warm_up(struct cell *c)
{
    struct scene *s = &c->scene;
    static const uint32_t page[] = {8};

    for (uint32_t i = 0; i < 16; i++) {
        (void)scene_job(s, "warm", i % 2 == 0 ? DECODE_0 : DECODE_1, page, 3);
        scene_submit(s, &s->jobs[0]);
        reach(c, first_is_over);
        reach(c, scene_at_rest);
        s->jobs[0].used = false;
    }
}

static void begin_others(struct cell *c)
{
    struct scene *s = &c->scene;
    static const uint32_t mate[] = {0, 1, 2};
    static const uint32_t far[] = {4, 5, 6};

    c->mate = scene_job(s, "mate", DECODE_0, mate, 13);
    c->far = scene_job(s, "far", DECODE_0, far, 13);
    c->guest = scene_job(s, "guest", DECODE_1, mate, 13);
    if (!s->config.split) {
        c->far->sources[0].node = PREFILL_1;
    }
    for (uint32_t i = 0; i < 3; i++) {
        s->jobs[i].chunk_tokens = 8;
        s->jobs[i].stop_at = 8;
        scene_submit(s, &s->jobs[i]);
    }
    reach(c, others_have_begun);
    reach(c, all_complete);
}

/* The engines hold the watched request back where its phase is. */
static void hold(struct cell *c)
{
    uint32_t layers = c->phase == PHASE_POSTED || c->phase >= PHASE_CANCELLED ? 1
                      : c->phase == PHASE_HALF                                ? LAYERS / 2
                                                                              : HLG_NONE;

    c->watched->hold_answer = c->phase <= PHASE_ASKED;
    c->watched->hold_chunk = c->phase <= PHASE_ADMITTED;
    c->watched->hold_release = c->phase == PHASE_READY;
    for (uint32_t i = 0; i < c->watched->source_count; i++) {
        c->scene.nodes[c->watched->sources[i].node].layers_max = layers;
    }
}

static void bring(struct cell *c)
{
    static scene_fn *const reached[PHASES] = {
        [PHASE_ASKED] = is_asked,      [PHASE_ADMITTED] = is_admitted, [PHASE_POSTED] = is_posted,
        [PHASE_HALF] = is_half,        [PHASE_CONTEXT] = is_context,   [PHASE_READY] = is_ready,
        [PHASE_CANCELLED] = is_posted, [PHASE_FENCING] = is_posted};

    if (c->phase == PHASE_UP) {
        return;
    }
    scene_submit(&c->scene, c->watched);
    scene_turn(&c->scene);
    if (reached[c->phase] != NULL) {
        reach(c, reached[c->phase]);
    }
    if (c->phase >= PHASE_CANCELLED) {
        HLG_ASSERT(scene_cancel(&c->scene, c->watched) == 0);
        scene_turn(&c->scene);
    }
    if (c->phase == PHASE_FENCING) {
        reach(c, is_stopping);
    }
}

void cell_open(struct cell *c)
{
    struct scene *s = &c->scene;
    static const uint32_t pages[] = {20, 3, 17, 9, 28};
    struct scene_config config = {.seed = c->seed * PHASES + c->phase + 1,
                                  .split = c->fault->split,
                                  .window_pieces = c->fault->warm ? 32 : 0,
                                  .death_ns = c->fault->slow_news ? MS(50) : 0,
                                  .acknowledged = c->acknowledged};
    bool verbose = s->verbose;

    scene_open(s, &config);
    s->verbose = verbose;
    reach(c, scene_all_up);
    if (c->fault->warm) {
        warm_up(c);
    }
    begin_others(c);
    c->watched = scene_job(s, "watched", DECODE_0, pages, 21);
    c->watched->ttl_ns = c->ttl_ns;
    hold(c);
    bring(c);
}

void cell_let_go(struct cell *c, bool others)
{
    struct scene *s = &c->scene;

    for (uint32_t i = others ? 0 : 3; i < JOBS_MAX; i++) {
        s->jobs[i].hold_answer = false;
        s->jobs[i].hold_chunk = false;
        s->jobs[i].stop_at = 0;
    }
    for (uint32_t i = 0; i < NODES; i++) {
        s->nodes[i].layers_max = HLG_NONE;
    }
}
