/* How a request is given up, and its pages come back. */
#include "tale.h"

static void finish(struct tale *t, const struct job *job, uint32_t reason)
{
    tale_rest(t);
    MUST(t, job->target == TARGET_RETURNED && job->reason == reason);
}

static bool two_layers_are_computed(const struct scene *s)
{
    return s->nodes[PREFILL_0].forward.layers == 2;
}

static bool all_is_posted(const struct scene *s)
{
    return s->jobs[0].sources[0].computed == s->jobs[0].tokens - 1;
}

static bool all_has_landed(const struct scene *s)
{
    return s->jobs[0].landed == 41;
}

static void cancel_now(struct tale *t, struct job *job)
{
    scene_wait(&t->scene, US(10));
    MUST(t, scene_cancel(&t->scene, job) == 0);
    MUST(t, job->target == TARGET_FAILED); /* at once, and the pages later */
}

static void cancel_before_admit(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->hold_answer = true;
    scene_submit(&t->scene, job);
    tale_source(t, SOURCE_ASKED);
    cancel_now(t, job);
    finish(t, job, HLG_REASON_CANCELLED);
    MUST(t, job->landed == 0);
}

static void cancel_midway(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    cancel_now(t, job);
    finish(t, job, HLG_REASON_CANCELLED);
    MUST(t, job->landed == 20);
}

static void cancel_after_all_posted(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    tale_wait_for(t, all_is_posted);
    cancel_now(t, job);
    finish(t, job, HLG_REASON_CANCELLED);
    MUST(t, job->landed == 41); /* all landed, and it is cancelled all the same */
}

static void cancel_unseen(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    cancel_now(t, job);
    finish(t, job, HLG_REASON_CANCELLED);
    MUST(t, job->landed == 0);
}

static void cancel_forgotten(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_fault(&t->scene, "imm-late node 0 ppm 1000000 span 3ms");
    scene_submit(&t->scene, job);
    tale_source(t, SOURCE_SENT);
    tale_say(t, "world", "the decoder's immediates are held up for 3 ms");
    cancel_now(t, job);
    finish(t, job, HLG_REASON_CANCELLED);
    scene_wait(&t->scene, MS(4));
    MUST(t, t->scene.nodes[PREFILL_0].notes[HLG_NOTE_CANCEL_UNKNOWN] == 1);
}

static void say_cancel(struct tale *t, uint64_t number, uint64_t session)
{
    const struct hlg_message cancel = {
        .kind = HLG_MESSAGE_CANCEL,
        .answer = {.number = number,
                   .incarnation = t->scene.nodes[DECODE_0].incarnation,
                   .session = session}};

    scene_inject(&t->scene, DECODE_0, PREFILL_0, &cancel);
}

static void cancel_of_older_session(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");
    struct scene_node_state *p = &t->scene.nodes[PREFILL_0];

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    scene_wait(&t->scene, US(10));
    tale_say(t, "network", "breaks the connection of decode and prefill-0");
    hlg_loop_channel_break(t->scene.loop, t->scene.nodes[DECODE_0].lines[PREFILL_0]);
    tale_target(t, TARGET_RETURNED);
    tale_wait_for(t, scene_all_up);
    scene_wait(&t->scene, US(100));
    tale_say(t, "world", "a decoder of another make repeats CANCEL, and names the old session");
    say_cancel(t, 1, 1);
    scene_wait(&t->scene, US(200));
    MUST(t, p->notes[HLG_NOTE_CANCEL_UNKNOWN] == 1);
    MUST(t, t->scene.nodes[DECODE_0].notes[HLG_NOTE_ANSWER_UNKNOWN] == 0); /* none came */
    tale_say(t, "world", "it does so once more, and names this session");
    say_cancel(t, 1, 3);
    scene_wait(&t->scene, US(200));
    MUST(t, t->scene.nodes[DECODE_0].notes[HLG_NOTE_ANSWER_UNKNOWN] == 1);
    finish(t, job, HLG_REASON_PEER);
}

static void preempted(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    scene_wait(&t->scene, US(10));
    MUST(t, scene_give_up(&t->scene, job, 0) == 0);
    finish(t, job, HLG_REASON_PREEMPTED);
    MUST(t, job->sources[0].state == SOURCE_FENCED);
}

static void forward_aborted(struct tale *t)
{
    static const uint32_t pages[] = {1, 2};
    struct job *job = tale_job(t, "r-17");
    struct job *next = scene_job(&t->scene, "r-18", DECODE_0, pages, 9);

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    scene_submit(&t->scene, next);
    scene_wait(&t->scene, US(160));
    t->scene.nodes[PREFILL_0].abort = true;
    scene_turn(&t->scene);
    finish(t, job, HLG_REASON_PREEMPTED);
    MUST(t, next->target == TARGET_RELEASED); /* in the forward after it */
}

static void deadline(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->ttl_ns = MS(5);
    job->hold_chunk = true;
    scene_submit(&t->scene, job);
    finish(t, job, HLG_REASON_DEADLINE);
    MUST(t, job->terminal_at - job->submitted_at == MS(5));
}

static void one_source_rejects(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->will_reject = 2;
    scene_submit(&t->scene, job);
    finish(t, job, HLG_REASON_REJECTED);
    MUST(t, job->sources[0].state == SOURCE_FENCED && job->sources[1].state == SOURCE_REJECTED);
}

static bool both_have_two_layers(const struct scene *s)
{
    return s->nodes[PREFILL_0].forward.layers == 2 && s->nodes[PREFILL_1].forward.layers == 2;
}

static void one_source_sleeps(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    t->scene.no_dial = true;
    scene_submit(&t->scene, job);
    tale_wait_for(t, both_have_two_layers);
    scene_wait(&t->scene, US(10));
    tale_say(t, "world", "prefill-1 stops (SIGSTOP), and goes on after 30 ms");
    scene_freeze(&t->scene, PREFILL_1, MS(30));
    MUST(t, scene_cancel(&t->scene, job) == 0);
    scene_wait(&t->scene, MS(1));
    MUST(t, job->sources[0].state == SOURCE_FENCED && job->target == TARGET_FAILED);
    finish(t, job, HLG_REASON_CANCELLED);
    MUST(t, job->settled_at - job->terminal_at >= MS(30));
    MUST(t, job->sources[1].state == SOURCE_FENCED);
}

static void failed_crosses_ready(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    job->hold_release = true;
    scene_submit(&t->scene, job);
    tale_wait_for(t, all_has_landed);
    MUST(t, scene_give_up(&t->scene, job, 0) == 0);
    scene_wait(&t->scene, US(200));
    MUST(t, job->target == TARGET_READY);
    job->hold_release = false;
    tale_rest(t);
    MUST(t, job->target == TARGET_RELEASED);
    MUST(t, job->sources[0].state == SOURCE_FENCED);
}

static void pages_asked_for_too_early(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");
    struct job *early = tale_job(t, "r-18");
    struct job *again;

    early->context = 7;
    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    cancel_now(t, job);
    scene_wait(&t->scene, US(10));
    scene_submit(&t->scene, early);
    MUST(t, early->submit_error == -HLG_EOWNED);
    tale_target(t, TARGET_RETURNED);
    again = tale_job(t, "r-19");
    scene_submit(&t->scene, again);
    tale_rest(t);
    MUST(t, again->target == TARGET_RELEASED);
}

const struct story stories_ends[] = {
    {"cancel-before-admit", "The decode engine gives up before the prefill engine has answered.",
     "FAILED at once; FENCED as soon as CANCEL is heard, since nothing was posted.",
     .play = cancel_before_admit},
    {"cancel-midway", "The decode engine gives up when half of the layers are posted.",
     "FAILED at once, RETURNED only when all that was posted has landed and FENCED has come.",
     .play = cancel_midway},
    {"cancel-after-all-posted", "The decode engine gives up when everything is under way.",
     "Every piece lands, and is late: what has failed never becomes READY.",
     .play = cancel_after_all_posted},
    {"cancel-unseen", "The decode engine gives up before the prefiller has seen the REQUEST.",
     "CANCEL follows the REQUEST on the same channel, so that it always finds it.",
     .play = cancel_unseen},
    {"cancel-forgotten",
     "CANCEL reaches a prefiller that has sent everything and forgotten the request.",
     "Of this session it may say FENCED: SENT means that every write completed well.",
     .play = cancel_forgotten},
    {"cancel-of-older-session", "CANCEL names a request of a session that ended.",
     "No answer: the prefiller cannot vouch for what it forgot. Nor is one needed, see RETURNED "
     "above it.",
     .play = cancel_of_older_session},
    {"preempted", "The prefill engine gives a request up.",
     "FAILED tells the decoder why; FENCED comes on its CANCEL, when nothing is outstanding.",
     .play = preempted},
    {"forward-aborted", "The prefill engine aborts a forward pass.",
     "The request in it stops; the one that waits for the next forward is served.",
     .play = forward_aborted},
    {"deadline", "A request's 5 ms are over while the engine has not begun.",
     "Each side counts for itself, and the pages come back as after every failure.",
     .play = deadline},
    {"one-source-rejects", "One of two sources rejects.",
     "The request fails, the other source is cancelled, and the pages wait for both.",
     .config = {.split = true}, .play = one_source_rejects},
    {"one-source-sleeps",
     "A request with two sources is cancelled, and one of them does not answer.",
     "One FENCED is not enough: the pages wait for every source that may have seen the REQUEST.",
     .config = {.split = true}, .play = one_source_sleeps},
    {"failed-crosses-ready", "The prefill engine gives a request up when all has landed.",
     "Immediates alone complete a request: FAILED and FENCED find it READY and change nothing.",
     .play = failed_crosses_ready},
    {"pages-asked-for-too-early", "Pages of a failed request are named before they are back.",
     "-HLG_EOWNED until RETURNED; then they may be another's at once.",
     .play = pages_asked_for_too_early},
};

const uint32_t stories_ends_count = sizeof stories_ends / sizeof stories_ends[0];
