/* What can go wrong, and from which phase on. What must come of it is stated in matrix.tsv. */
#include "matrix.h"

#define LONG_NS  (2 * LEASE_NS + MS(5))
#define SHORT_NS (LEASE_NS / 2)

static struct scene_node_state *node(struct cell *c, uint32_t index)
{
    return &c->scene.nodes[index];
}

static void nothing(struct cell *c)
{
    (void)c;
}

static void must_say(struct cell *c, int said, int due)
{
    if (said != due) {
        scene_break(&c->scene, "the engine was told: %s", hlg_error_text(said));
    }
}

static void die(struct cell *c, uint32_t index, hlg_time revive)
{
    scene_kill(&c->scene, index);
    c->killed = index;
    c->revive_at = scene_now(&c->scene) + revive;
}

static void prefiller_dies(struct cell *c)
{
    die(c, PREFILL_0, MS(20));
}

static void decoder_dies(struct cell *c)
{
    die(c, DECODE_0, MS(20));
}

/* At the same address, so fast that the other side hears of the new one first. */
static void prefiller_restarts(struct cell *c)
{
    scene_kill(&c->scene, PREFILL_0);
    scene_restart(&c->scene, PREFILL_0);
    scene_dial(&c->scene, DECODE_0, PREFILL_0);
}

static void decoder_restarts(struct cell *c)
{
    scene_kill(&c->scene, DECODE_0);
    scene_restart(&c->scene, DECODE_0);
}

static void second_dies(struct cell *c)
{
    die(c, PREFILL_1, MS(20));
}

static void second_freezes(struct cell *c)
{
    scene_freeze(&c->scene, PREFILL_1, LONG_NS);
}

static void prefiller_freezes(struct cell *c)
{
    scene_freeze(&c->scene, PREFILL_0, LONG_NS);
}

static void prefiller_pauses(struct cell *c)
{
    scene_freeze(&c->scene, PREFILL_0, SHORT_NS);
}

static void decoder_freezes(struct cell *c)
{
    scene_freeze(&c->scene, DECODE_0, LONG_NS);
}

static void decoder_pauses(struct cell *c)
{
    scene_freeze(&c->scene, DECODE_0, SHORT_NS);
}

static void channel_breaks(struct cell *c)
{
    hlg_loop_channel_break(c->scene.loop, node(c, DECODE_0)->lines[PREFILL_0]);
}

/* The decoder connects anew though nothing ended: as after a connection lost unnoticed. */
static void hello_again(struct cell *c)
{
    scene_dial(&c->scene, DECODE_0, PREFILL_0);
}

static void prefiller_gives_up(struct cell *c)
{
    must_say(c, scene_give_up(&c->scene, c->watched, 0), 0);
}

static void second_gives_up(struct cell *c)
{
    must_say(c, scene_give_up(&c->scene, c->watched, 1), 0);
}

static void decoder_cancels(struct cell *c)
{
    must_say(c, scene_cancel(&c->scene, c->watched), c->phase < PHASE_READY ? 0 : -HLG_ESTATE);
}

static void forward_aborts(struct cell *c)
{
    node(c, PREFILL_0)->abort = true;
}

static void engine_rejects(struct cell *c)
{
    c->watched->will_reject = 1;
    c->watched->retry_after = MS(7);
}

static void drains(struct cell *c)
{
    scene_node_event(&c->scene, PREFILL_0, HLG_EVENT_DRAIN);
}

/* A frame of a kind that there is not. */
static void garble(struct cell *c, uint32_t from, uint32_t to)
{
    static const uint8_t frame[] = {4, 0, 0, 0, 1, 0, 0x63, 0};
    struct hlg_channel *channel = node(c, from)->channels[to];

    HLG_ASSERT(channel->ops->send(channel, frame, sizeof frame) == 1);
}

static void garbled_to_decoder(struct cell *c)
{
    garble(c, PREFILL_0, DECODE_0);
}

static void garbled_to_prefiller(struct cell *c)
{
    garble(c, DECODE_0, PREFILL_0);
}

static void disconnect(struct cell *c, uint32_t from, uint32_t to)
{
    struct hlg_event event = {.kind = HLG_EVENT_DISCONNECT,
                              .peer = {.peer = node(c, from)->peer_of[to]}};

    HLG_ASSERT(hlg_pump_event(node(c, from)->pump, &event) == 0);
}

static void decoder_disconnects(struct cell *c)
{
    disconnect(c, DECODE_0, PREFILL_0);
}

static void prefiller_disconnects(struct cell *c)
{
    disconnect(c, PREFILL_0, DECODE_0);
}

/* The engine names pages that are not its own to give: it must be told, and nothing else happen. */
static void pages_named_twice(struct cell *c)
{
    struct scene *s = &c->scene;
    struct job *job = scene_job(s, "thief", DECODE_0, c->watched->pages, c->watched->tokens);

    job->sources[0].node = PREFILL_1;
    job->context = CONTEXTS - 1;
    scene_submit(s, job);
    must_say(c, job->submit_error, -HLG_EOWNED);
    job->used = false;
}

/* ---- By the fault decorator --------------------------------------------------------------- */

static void partition(struct cell *c)
{
    scene_fault(&c->scene, "partition node 1 peer 0 span 205ms");
}

static void partition_short(struct cell *c)
{
    scene_fault(&c->scene, "partition node 1 peer 0 span 50ms");
}

static void half_open_to_decoder(struct cell *c)
{
    scene_fault(&c->scene, "half-open node 1 peer 0 span 205ms");
}

static void half_open_to_prefiller(struct cell *c)
{
    scene_fault(&c->scene, "half-open node 0 peer 1 span 205ms");
}

static void write_fails_before(struct cell *c)
{
    scene_fault(&c->scene, "fail-before node 1 peer 0 nth 3 count 1");
}

static void write_fails_after(struct cell *c)
{
    scene_fault(&c->scene, "fail-after node 1 peer 0 nth 3 count 1");
}

static void write_fails_late(struct cell *c)
{
    scene_fault(&c->scene, "fail-late node 1 peer 0 nth 3 count 1 span 2ms");
}

static void writes_refused(struct cell *c)
{
    scene_fault(&c->scene, "refuse node 1 peer 0 nth 1 count 1 span 40ms");
}

static void writes_refused_short(struct cell *c)
{
    scene_fault(&c->scene, "refuse node 1 peer 0 nth 1 count 1 span 10ms");
}

static void writes_partial(struct cell *c)
{
    scene_fault(&c->scene, "partial node 1 peer 0 ppm 1000000");
}

static void rail_slow(struct cell *c)
{
    scene_fault(&c->scene, "slow node 1 rate 1MB/s span 100ms");
}

static void pieces_reordered(struct cell *c)
{
    scene_fault(&c->scene, "reorder node 1 ppm 500000 span 500us\n"
                           "delay node 1 ppm 300000 span 0ns..2ms");
}

static void pieces_twice(struct cell *c)
{
    scene_fault(&c->scene, "duplicate node 1 ppm 1000000");
}

static void immediates_late(struct cell *c)
{
    scene_fault(&c->scene, "imm-late node 0 ppm 1000000 span 15ms");
}

static void immediates_stale(struct cell *c)
{
    scene_fault(&c->scene, "imm-stale node 0 ppm 1000000");
}

static void close_fails(struct cell *c)
{
    scene_fault(&c->scene, "close-fails node 0 nth 1 count 1 span 1ms");
    channel_breaks(c);
}

static void source_close_fails(struct cell *c)
{
    scene_fault(&c->scene, "close-fails node 1 nth 1 count 1 span 1ms");
    channel_breaks(c);
}

static void frame_lost_to_decoder(struct cell *c)
{
    scene_fault(&c->scene, "frame-drop node 1 peer 0 nth 1 count 1");
}

static void frame_lost_to_prefiller(struct cell *c)
{
    scene_fault(&c->scene, "frame-drop node 0 peer 1 nth 1 count 1");
}

static void clock_jumps(struct cell *c)
{
    scene_fault(&c->scene, "clock-jump node 0 span 205ms");
}

static void clock_stalls(struct cell *c)
{
    scene_fault(&c->scene, "clock-stall node 0 span 205ms");
}

#define NO_REQUEST  "there is no request yet"
#define NOT_ASKED   "the prefill engine does not know of it yet"
#define TERMINAL    "its terminal event was told"
#define NO_FORWARD  "no forward has a chunk of it yet"
#define FORWARD_END "its forward is over"
#define SENT_ALL    "the second source, which has no context to send, has sent all"
#define ALL_POSTED  "nothing more is posted"
#define ANSWERED    "the engine has answered"

const struct fault faults[] = {
    {.name = "nothing", .strike = nothing},
    {.name = "prefiller-dies", .over_ns = MS(5), .strike = prefiller_dies},
    {.name = "prefiller-restarts",
     .over_ns = MS(60),
     .slow_news = true,
     .strike = prefiller_restarts},
    {.name = "prefiller-freezes", .over_ns = LONG_NS, .strike = prefiller_freezes},
    {.name = "prefiller-pauses", .over_ns = SHORT_NS, .strike = prefiller_pauses},
    {.name = "prefiller-gives-up",
     .from = PHASE_ASKED,
     .before = NOT_ASKED,
     .strike = prefiller_gives_up},
    {.name = "prefiller-drains", .over_ns = MS(2), .strike = drains},
    {.name = "prefiller-disconnects", .over_ns = MS(2), .strike = prefiller_disconnects},
    {.name = "engine-rejects",
     .limit = PHASE_ADMITTED,
     .after = ANSWERED,
     .strike = engine_rejects},
    {.name = "forward-aborts",
     .from = PHASE_POSTED,
     .limit = PHASE_CONTEXT,
     .again = PHASE_CANCELLED,
     .before = NO_FORWARD,
     .after = FORWARD_END,
     .strike = forward_aborts},
    {.name = "decoder-dies", .over_ns = MS(5), .strike = decoder_dies},
    {.name = "decoder-restarts", .over_ns = MS(60), .slow_news = true, .strike = decoder_restarts},
    {.name = "decoder-freezes", .over_ns = LONG_NS, .strike = decoder_freezes},
    {.name = "decoder-pauses", .over_ns = SHORT_NS, .strike = decoder_pauses},
    {.name = "decoder-cancels",
     .from = PHASE_SENT,
     .before = NO_REQUEST,
     .strike = decoder_cancels},
    {.name = "decoder-disconnects", .over_ns = MS(2), .strike = decoder_disconnects},
    {.name = "deadline",
     .timed = true,
     .from = PHASE_SENT,
     .limit = PHASE_READY,
     .before = NO_REQUEST,
     .after = TERMINAL,
     .strike = nothing},
    {.name = "pages-named-twice",
     .from = PHASE_SENT,
     .before = NO_REQUEST,
     .strike = pages_named_twice},
    {.name = "channel-breaks", .over_ns = MS(2), .strike = channel_breaks},
    {.name = "hello-again", .over_ns = MS(2), .strike = hello_again},
    {.name = "garbled-to-decoder", .over_ns = MS(2), .strike = garbled_to_decoder},
    {.name = "garbled-to-prefiller", .over_ns = MS(2), .strike = garbled_to_prefiller},
    {.name = "partition", .kind = HLG_FAULT_PARTITION, .over_ns = LONG_NS, .strike = partition},
    {.name = "partition-short",
     .kind = HLG_FAULT_PARTITION,
     .over_ns = SHORT_NS,
     .strike = partition_short},
    {.name = "half-open-to-decoder",
     .kind = HLG_FAULT_HALF_OPEN,
     .over_ns = LONG_NS,
     .strike = half_open_to_decoder},
    {.name = "half-open-to-prefiller",
     .kind = HLG_FAULT_HALF_OPEN,
     .over_ns = LONG_NS,
     .strike = half_open_to_prefiller},
    {.name = "frame-lost-to-decoder",
     .kind = HLG_FAULT_FRAME_DROP,
     .over_ns = MS(12),
     .strike = frame_lost_to_decoder},
    {.name = "frame-lost-to-prefiller",
     .kind = HLG_FAULT_FRAME_DROP,
     .over_ns = MS(12),
     .strike = frame_lost_to_prefiller},
    {.name = "write-fails-before",
     .kind = HLG_FAULT_FAIL_BEFORE,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = write_fails_before},
    {.name = "write-fails-after",
     .kind = HLG_FAULT_FAIL_AFTER,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = write_fails_after},
    {.name = "write-fails-late",
     .kind = HLG_FAULT_FAIL_LATE,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = write_fails_late},
    {.name = "writes-refused",
     .kind = HLG_FAULT_REFUSE,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = writes_refused},
    {.name = "writes-refused-short",
     .kind = HLG_FAULT_REFUSE,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = writes_refused_short},
    {.name = "writes-partial",
     .kind = HLG_FAULT_PARTIAL,
     .limit = PHASE_CONTEXT,
     .after = ALL_POSTED,
     .writes = true,
     .strike = writes_partial},
    {.name = "rail-slow", .kind = HLG_FAULT_SLOW, .strike = rail_slow},
    {.name = "pieces-reordered",
     .kind = HLG_FAULT_REORDER,
     .over_ns = MS(3),
     .strike = pieces_reordered},
    {.name = "pieces-twice", .kind = HLG_FAULT_DUPLICATE, .over_ns = MS(3), .strike = pieces_twice},
    {.name = "immediates-late", .kind = HLG_FAULT_IMM_LATE, .strike = immediates_late},
    {.name = "immediates-stale",
     .kind = HLG_FAULT_IMM_STALE,
     .warm = true,
     .strike = immediates_stale},
    {.name = "close-fails", .kind = HLG_FAULT_CLOSE_FAILS, .over_ns = MS(3), .strike = close_fails},
    {.name = "source-close-fails",
     .kind = HLG_FAULT_CLOSE_FAILS,
     .over_ns = MS(3),
     .strike = source_close_fails},
    {.name = "clock-jumps", .kind = HLG_FAULT_CLOCK_JUMP, .strike = clock_jumps},
    {.name = "clock-stalls",
     .kind = HLG_FAULT_CLOCK_STALL,
     .over_ns = LONG_NS,
     .strike = clock_stalls},
    {.name = "second-source-gives-up",
     .split = true,
     .from = PHASE_ASKED,
     .before = NOT_ASKED,
     .limit = PHASE_CONTEXT,
     .again = PHASE_CANCELLED,
     .after = SENT_ALL,
     .strike = second_gives_up},
    {.name = "second-source-freezes", .split = true, .over_ns = LONG_NS, .strike = second_freezes},
    {.name = "second-source-dies", .split = true, .over_ns = MS(5), .strike = second_dies},
};

const uint32_t fault_count = sizeof faults / sizeof faults[0];
