/* How a request comes to be whole, or is not even asked for. */
#include "tale.h"

static void finish(struct tale *t, const struct job *job, uint32_t pieces)
{
    tale_rest(t);
    MUST(t, job->target == TARGET_RELEASED);
    MUST(t, job->landed == pieces && job->pieces == pieces);
}

static void greeting(struct tale *t)
{
    tale_wait_for(t, scene_all_up);
    scene_wait(&t->scene, US(100));
    MUST(t, t->scene.nodes[DECODE_0].up[PREFILL_0] && t->scene.nodes[PREFILL_0].up[DECODE_0]);
}

static void greeting_refused(struct tale *t)
{
    t->scene.no_dial = true;
    scene_dial(&t->scene, DECODE_0, PREFILL_1);
    scene_wait(&t->scene, MS(2));
    MUST(t, t->scene.nodes[DECODE_0].refusal.code == HLG_REFUSAL_FINGERPRINT);
    MUST(t, t->scene.nodes[PREFILL_1].refusal.code == HLG_REFUSAL_FINGERPRINT);
    MUST(t, !t->scene.nodes[DECODE_0].up[PREFILL_1]);
}

static void in_one_chunk(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    t->scene.nodes[PREFILL_0].no_stamps = true;
    scene_submit(&t->scene, job);
    finish(t, job, 41);
    MUST(t, job->sources[0].state == SOURCE_SENT);
}

static bool two_layers_are_computed(const struct scene *s)
{
    return s->nodes[PREFILL_0].forward.layers == 2;
}

static void layer_by_layer(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    MUST(t, job->landed == 10); /* the first layer is there while the third is computed */
    finish(t, job, 41);
}

static void chunked(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->chunk_tokens = 8;
    scene_submit(&t->scene, job);
    finish(t, job, 41);
    MUST(t, t->scene.nodes[PREFILL_0].forwards == 3);
}

static void prefix_on_decoder(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->first = 2;
    job->count = 3;
    scene_submit(&t->scene, job);
    finish(t, job, 3 * PLANES * LAYERS + 1);
}

static void prefix_on_prefiller(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->cached = 8;
    job->hold_chunk = true;
    scene_submit(&t->scene, job);
    scene_wait(&t->scene, US(400));
    MUST(t, job->landed == 2 * PLANES * LAYERS); /* before anything is computed */
    job->hold_chunk = false;
    finish(t, job, 41);
}

static void whole_prefix_with_context(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->first = 5;
    job->count = 0;
    scene_submit(&t->scene, job);
    finish(t, job, 1);
}

static void whole_prefix_without_context(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->first = 5;
    job->count = 0;
    scene_submit(&t->scene, job);
    finish(t, job, 0);
    MUST(t, job->sources[0].state == SOURCE_NONE);
    MUST(t, job->terminal_at == job->submitted_at);
}

static void one_token(struct tale *t)
{
    struct job *job = scene_job(&t->scene, "r-17", DECODE_0, NULL, 1);

    scene_submit(&t->scene, job);
    finish(t, job, 0);
    MUST(t, job->sources[0].state == SOURCE_NONE);
}

static void two_sources(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    finish(t, job, 81);
    MUST(t, job->sources[0].state == SOURCE_SENT && job->sources[1].state == SOURCE_SENT);
}

static void one_forward_for_two(struct tale *t)
{
    static const uint32_t pages[] = {1, 2};
    struct job *job = tale_job(t, "r-17");
    struct job *small = scene_job(&t->scene, "r-18", DECODE_0, pages, 9);

    job->hold_chunk = true; /* the engine waits for more work */
    scene_submit(&t->scene, job);
    scene_submit(&t->scene, small);
    small->hold_chunk = true;
    scene_wait(&t->scene, US(200));
    job->hold_chunk = false;
    small->hold_chunk = false;
    finish(t, job, 41);
    MUST(t, small->target == TARGET_RELEASED && small->landed == 17);
    MUST(t, t->scene.nodes[PREFILL_0].forwards == 1);
}

static void credit(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");
    struct hlg_pump_stats stats;

    t->scene.nodes[PREFILL_0].no_stamps = true;
    scene_submit(&t->scene, job);
    finish(t, job, 41);
    hlg_pump_stats(t->scene.nodes[DECODE_0].pump, &stats);
    MUST(t, stats.frames_sent > 2);
}

static void grant(struct tale *t)
{
    static const uint32_t pages[] = {1, 2};
    struct job *job = tale_job(t, "r-17");
    struct job *second = scene_job(&t->scene, "r-18", DECODE_0, pages, 9);

    t->scene.nodes[PREFILL_0].no_stamps = true;
    job->hold_release = true;
    scene_submit(&t->scene, job);
    scene_submit(&t->scene, second);
    tale_target(t, TARGET_READY);
    MUST(t, second->sources[0].state == SOURCE_NONE); /* nobody has asked for it yet */
    job->hold_release = false;
    finish(t, job, 41);
    MUST(t, second->target == TARGET_RELEASED);
}

static void drain(struct tale *t)
{
    static const uint32_t pages[] = {1, 2};
    struct job *job = tale_job(t, "r-17");
    struct job *early = scene_job(&t->scene, "r-18", DECODE_0, pages, 9);
    struct job *late = scene_job(&t->scene, "r-19", DECODE_0, pages + 1, 5);

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    scene_wait(&t->scene, US(10));
    scene_node_event(&t->scene, PREFILL_0, HLG_EVENT_DRAIN);
    scene_submit(&t->scene, early); /* crosses the DRAIN */
    scene_wait(&t->scene, US(200));
    scene_submit(&t->scene, late);
    MUST(t, late->submit_error == -HLG_EPEER);
    finish(t, job, 41);
    MUST(t, early->target == TARGET_RETURNED && early->reason == HLG_REASON_REJECTED);
}

static void reject_and_retry(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");
    struct job *again;

    job->will_reject = 1;
    job->retry_after = MS(7);
    scene_submit(&t->scene, job);
    tale_target(t, TARGET_RETURNED);
    MUST(t, job->reason == HLG_REASON_REJECTED && job->retry_heard == MS(7));
    scene_wait(&t->scene, job->retry_heard);
    again = tale_job(t, "r-17-again");
    scene_submit(&t->scene, again);
    finish(t, again, 41);
}

const struct story stories_plain[] = {
    {"greeting", "A decoder and its two prefillers greet each other.",
     "Whoever was called answers with its own HELLO only when it can be written to.",
     .greets = true, .play = greeting},
    {"greeting-refused", "A prefiller serves another model than the decoder.",
     "Both engines hear the same reason, and nothing was asked or written.",
     .config = {.foreign = true}, .play = greeting_refused},
    {"in-one-chunk", "A prompt is prefilled in one forward that tells of its end alone.",
     "All is posted at once; the count of 41 pieces, and nothing else, makes the request READY.",
     .play = in_one_chunk},
    {"layer-by-layer", "The same prompt, and a counter word that tells of each layer.",
     "Layer 0 is at the decoder while layer 2 is computed; only the context is left for the end.",
     .play = layer_by_layer},
    {"chunked", "The same prompt in three chunks of 8, 8 and 4 tokens.",
     "A page goes with the chunk that completes it; the number of pieces is the same.",
     .play = chunked},
    {"prefix-on-decoder", "The decoder has the first two pages already.",
     "They are neither asked for nor written: 25 pieces in place of 41.",
     .play = prefix_on_decoder},
    {"prefix-on-prefiller", "The prefiller has the first two pages in its cache.",
     "They are a chunk of their own, written before anything is computed.",
     .play = prefix_on_prefiller},
    {"whole-prefix-with-context", "The decoder has all pages, but the model hands a context over.",
     "The prefiller computes the prompt all the same, and writes one piece.",
     .play = whole_prefix_with_context},
    {"whole-prefix-without-context", "The decoder has all pages, and there is no context.",
     "READY at once; no prefiller hears of it.", .config = {.no_context = true},
     .play = whole_prefix_without_context},
    {"one-token", "A prompt of one token.",
     "The last token is never prefilled, so that nothing is to be handed over: READY at once.",
     .play = one_token},
    {"two-sources", "Two prefillers hold a rank each, and both write for one request.",
     "READY when both counts are reached; only one of them owes the context.",
     .config = {.split = true}, .play = two_sources},
    {"one-forward-for-two", "Two requests are computed in one forward.",
     "A stamp tells of the layer for both; each has its own immediates and its own end.",
     .play = one_forward_for_two},
    {"credit", "The window is 8 immediates, and 41 are to come.",
     "The prefiller stops at 8 until CREDIT tells it how many were taken; nothing overflows.",
     .config = {.window_pieces = 8}, .play = credit},
    {"grant", "A prefiller grants a decoder one request at a time, and two are submitted.",
     "The second REQUEST waits at the decoder until CREDIT says that the first is over.",
     .config = {.grant_requests = 1}, .play = grant},
    {"drain", "A prefiller is drained while it works.",
     "It finishes what it has, rejects what crosses DRAIN; the decoder asks it for no more.",
     .play = drain},
    {"reject-and-retry", "The prefill engine has no room and says when to ask again.",
     "REJECT is a fence: the pages are back at once, and the second attempt is a new request.",
     .play = reject_and_retry},
};

const uint32_t stories_plain_count = sizeof stories_plain / sizeof stories_plain[0];
