/* Nodes that die, sleep or come back, networks that break. */
#include "tale.h"

static bool two_layers_are_computed(const struct scene *s)
{
    return s->nodes[PREFILL_0].forward.layers == 2;
}

/* A request is under way, and 20 pieces of it. */
static struct job *begin(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_submit(&t->scene, job);
    tale_wait_for(t, two_layers_are_computed);
    scene_wait(&t->scene, US(10));
    return job;
}

/* Some of the pages are another's at once, by way of prefill-1. */
static void use_again(struct tale *t, struct job *job)
{
    static const uint32_t pages[] = {3, 20};
    struct job *next = scene_job(&t->scene, "r-18", DECODE_0, pages, 9);

    MUST(t, job->target == TARGET_RETURNED);
    next->sources[0].node = PREFILL_1;
    t->scene.nodes[PREFILL_1].no_stamps = true;
    scene_submit(&t->scene, next);
    tale_rest(t);
    MUST(t, next->target == TARGET_RELEASED);
}

static void write_fails(struct tale *t)
{
    struct job *job = tale_job(t, "r-17");

    scene_fault(&t->scene, "fail-late node 1 peer 0 nth 13 count 1 span 1ms");
    tale_say(t, "network", "will report the 13th piece failed, and write it 1 ms later");
    scene_submit(&t->scene, job);
    tale_target(t, TARGET_FAILED);
    MUST(t, job->reason == HLG_REASON_PEER);
    tale_target(t, TARGET_RETURNED);
    use_again(t, job); /* what lands late does not land there */
    scene_wait(&t->scene, MS(3));
}

static void poisoned(struct tale *t)
{
    struct job *job = begin(t);
    struct job *next;

    scene_fault(&t->scene, "close-fails node 0 nth 1 count 1 span 1ms");
    tale_say(t, "network", "breaks the connection; closing the decoder's endpoint will fail");
    hlg_loop_channel_break(t->scene.loop, t->scene.nodes[DECODE_0].lines[PREFILL_0]);
    tale_target(t, TARGET_POISONED);
    next = tale_job(t, "r-18");
    next->context = 7;
    next->sources[0].node = PREFILL_1;
    scene_submit(&t->scene, next);
    MUST(t, next->submit_error == -HLG_EOWNED && job->reason == HLG_REASON_PEER);
    scene_wait(&t->scene, MS(3));
    MUST(t, job->landed > 10); /* some that were under way did land */
}

static bool nobody_is_up(const struct scene *s)
{
    return !s->nodes[DECODE_0].up[PREFILL_0];
}

static void prefiller_dies(struct tale *t)
{
    struct job *job = begin(t);

    tale_say(t, "world", "prefill-0 dies");
    scene_kill(&t->scene, PREFILL_0);
    tale_wait_for(t, nobody_is_up);
    use_again(t, job);
}

static void prefiller_restarts(struct tale *t)
{
    struct job *job = begin(t);

    tale_say(t, "world", "prefill-0 dies, is started again at the same address, and is dialled");
    scene_kill(&t->scene, PREFILL_0);
    scene_restart(&t->scene, PREFILL_0);
    scene_dial(&t->scene, DECODE_0, PREFILL_0);
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    tale_wait_for(t, scene_all_up);
    scene_wait(&t->scene, MS(2));
    MUST(t, t->scene.nodes[DECODE_0].notes[HLG_NOTE_SESSION_REPLACED] == 1);
}

static void decoder_restarts(struct tale *t)
{
    struct job *job = begin(t);
    struct job *next;

    tale_say(t, "world", "decode dies and is started again; its memory is the same");
    scene_kill(&t->scene, DECODE_0);
    scene_restart(&t->scene, DECODE_0);
    MUST(t, job->target == TARGET_GONE);
    tale_wait_for(t, scene_all_up);
    next = tale_job(t, "r-18");
    scene_submit(&t->scene, next);
    tale_rest(t);
    MUST(t, next->target == TARGET_RELEASED);
    MUST(t, t->scene.nodes[PREFILL_0].notes[HLG_NOTE_SESSION_REPLACED] == 1);
    MUST(t, job->sources[0].state == SOURCE_FENCED);
}

static void zombie(struct tale *t)
{
    struct job *job = begin(t);

    t->scene.no_dial = true;
    tale_say(t, "world", "prefill-0 stops (SIGSTOP), and goes on after 150 ms");
    scene_freeze(&t->scene, PREFILL_0, MS(150));
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    scene_wait(&t->scene, MS(160));
    MUST(t, job->landed == 20 && job->sources[0].state == SOURCE_FENCED);
}

static void lease_lapses(struct tale *t)
{
    struct job *job = begin(t);

    t->scene.no_dial = true;
    tale_say(t, "network", "nothing passes between decode and prefill-0 for 200 ms");
    scene_fault(&t->scene, "partition node 1 peer 0 span 200ms");
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    scene_wait(&t->scene, MS(210));
    MUST(t, job->landed == 20); /* what waited found the endpoints closed */
    MUST(t, job->sources[0].state == SOURCE_FENCED);
}

static void half_open(struct tale *t)
{
    struct job *job = begin(t);

    t->scene.no_dial = true;
    tale_say(t, "network", "nothing passes from prefill-0 to decode any more");
    scene_fault(&t->scene, "half-open node 1 peer 0 span 300ms");
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    MUST(t, job->sources[0].state == SOURCE_FENCED);
}

static void hello_replaced(struct tale *t)
{
    struct job *job = begin(t);

    tale_say(t, "decode", "believes its connection lost, and connects anew");
    scene_dial(&t->scene, DECODE_0, PREFILL_0);
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    tale_wait_for(t, scene_all_up);
    MUST(t, t->scene.nodes[PREFILL_0].notes[HLG_NOTE_SESSION_REPLACED] == 1);
}

static void fence_timeout(struct tale *t)
{
    struct job *job = begin(t);

    t->scene.no_dial = true;
    tale_say(t, "world", "prefill-0 stops (SIGSTOP), and goes on after 60 ms");
    scene_freeze(&t->scene, PREFILL_0, MS(60));
    MUST(t, scene_cancel(&t->scene, job) == 0);
    tale_target(t, TARGET_RETURNED);
    MUST(t, t->scene.nodes[DECODE_0].notes[HLG_NOTE_FENCE_TIMEOUT] == 1);
    MUST(t, job->settled_at - job->terminal_at == FENCE_NS);
    use_again(t, job);
    scene_wait(&t->scene, MS(70));
}

static void connection_breaks(struct tale *t)
{
    struct job *job = begin(t);

    tale_say(t, "network", "breaks the connection of decode and prefill-0");
    hlg_loop_channel_break(t->scene.loop, t->scene.nodes[DECODE_0].lines[PREFILL_0]);
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    tale_wait_for(t, scene_all_up);
}

static void rail_refuses(struct tale *t)
{
    struct job *job = begin(t);

    t->scene.no_dial = true;
    tale_say(t, "network", "takes no write from prefill-0 to decode for 40 ms");
    scene_fault(&t->scene, "refuse node 1 peer 0 nth 1 count 1 span 40ms");
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    MUST(t, job->settled_at - job->submitted_at < STALL_NS + MS(3));
}

static void fenced_overtakes(struct tale *t)
{
    struct job *job;

    scene_fault(&t->scene, "imm-late node 0 ppm 1000000 span 3ms");
    job = begin(t);
    tale_say(t, "world", "the decoder's immediates are held up for 3 ms");
    MUST(t, scene_cancel(&t->scene, job) == 0);
    tale_target(t, TARGET_RETURNED);
    use_again(t, job);
    MUST(t, t->scene.nodes[DECODE_0].notes[HLG_NOTE_IMM_STALE] > 0);
}

static void source_poisoned(struct tale *t)
{
    struct job *job = begin(t);

    scene_fault(&t->scene, "close-fails node 1 nth 1 count 1 span 1ms");
    tale_say(t, "network", "breaks the connection; closing the prefiller's endpoint will fail");
    hlg_loop_channel_break(t->scene.loop, t->scene.nodes[DECODE_0].lines[PREFILL_0]);
    tale_target(t, TARGET_RETURNED);
    scene_wait(&t->scene, MS(3));
    MUST(t, job->sources[0].state == SOURCE_POISONED);
    use_again(t, job);
}

const struct story stories_broken[] = {
    {"write-fails", "A write is reported failed, and lands a millisecond later.",
     "No FENCED: the session ends instead, the decoder closes its endpoints, and the late write "
     "goes nowhere.",
     .play = write_fails},
    {"poisoned", "The session ends, and closing the decoder's endpoints fails.",
     "Nobody can prove that nothing lands any more, so that the pages are never used again.",
     .play = poisoned},
    {"source-poisoned",
     "The session ends amid writes, and closing the prefiller's endpoints fails.",
     "Its device may still read the source pages, so that they are never used again; the decoder's "
     "come back.",
     .play = source_poisoned},
    {"prefiller-dies", "A prefiller dies in the middle of a request.",
     "Its connection's end ends the session; the pages are another's at once.",
     .play = prefiller_dies},
    {"prefiller-restarts", "A prefiller dies and is back before anybody noticed.",
     "Its new HELLO ends the older session and all that was asked in it.",
     .config = {.death_ns = MS(50)}, .play = prefiller_restarts},
    {"decoder-restarts", "A decoder dies and is back before anybody noticed.",
     "The prefiller drops the old session; not one byte of it reaches the new incarnation's pages.",
     .config = {.death_ns = MS(50)}, .play = decoder_restarts},
    {"zombie", "A prefiller stops, and goes on long after its lease.",
     "The decoder closed its endpoints and gave the pages away; the sleeper wakes, and can do no "
     "harm.",
     .play = zombie},
    {"lease-lapses", "A partition lasts longer than the lease.",
     "Both sides end the session on their own; writes that waited find the endpoints closed.",
     .play = lease_lapses},
    {"half-open", "One direction of the network is lost.",
     "The side that hears nothing ends the session and says so to the other, which does hear.",
     .play = half_open},
    {"hello-replaced", "A decoder connects anew though the old session is up.",
     "A new HELLO ends the older session of that node; what was asked in it fails.",
     .play = hello_replaced},
    {"fence-timeout", "FENCED does not come, since the prefiller sleeps.",
     "After fence_ns the decoder proves it alone: it ends the session and closes its endpoints.",
     .play = fence_timeout},
    {"connection-breaks", "The control connection breaks.",
     "The session ends on both sides, and a new one begins; the request is the router's again.",
     .play = connection_breaks},
    {"rail-refuses", "The rail takes no write for longer than stall_ns.",
     "The transport reports the peer down, and the session ends long before its lease.",
     .play = rail_refuses},
    {"fenced-overtakes-immediates",
     "FENCED is heard before the immediates of the writes it vouches for.",
     "The bytes are there, which is what counts; the immediates are stale and change nothing.",
     .play = fenced_overtakes},
};

const uint32_t stories_broken_count = sizeof stories_broken / sizeof stories_broken[0];
