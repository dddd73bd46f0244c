/* One case: how time passes, its phases, and what must be so at the end of each. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_NS  20000u
#define CRAWL_NS 500u /* time goes on at least so much where somebody wants to go on at once */

static void turn(struct world *w, struct node *n, hlg_time now)
{
    life_meet(w, n, now);
    if (n->decode) {
        decode_act(n, now);
    } else {
        prefill_act(n, now);
    }
    while (w->broken == CHECK_NONE && hlg_pump_step(n->pump) > 0) {
    }
    check_tables(n);
    if (w->check) {
        looked(w, CHECK_MACHINES);
        hlg_pump_check(n->pump);
    }
}

static void act(struct world *w, hlg_time now)
{
    if (w->fault != NULL) {
        (void)w->nodes[0].fabric->now(w->nodes[0].fabric); /* it looks at the time in calls alone */
    }
    life_act(w, now);
    for (uint32_t i = 0; i < w->node_count && w->broken == CHECK_NONE; i++) {
        if (w->nodes[i].alive && !life_is_frozen(&w->nodes[i])) {
            turn(w, &w->nodes[i], now);
        }
    }
    HLG_ASSERT(w->what.plant != PLANT_ABORT || w->counts.steps < 500);
}

/* When a pump wants to go on: its clock is not the world's, and may stand. */
static hlg_time pump_next(const struct node *n, hlg_time now)
{
    hlg_time deadline = hlg_pump_deadline(n->pump);
    hlg_time clock = hlg_pump_now(n->pump);

    if (deadline == HLG_TIME_NEVER) {
        return HLG_TIME_NEVER;
    }
    return now + (deadline > clock ? deadline - clock : 0);
}

static hlg_time next_time(const struct world *w)
{
    hlg_time now = hlg_loop_now(w->loop);
    hlg_time next = hlg_loop_next_time(w->loop);

    if (w->fault != NULL) {
        /* what is due now and was not taken waits for a node that is dead */
        hlg_time due = hlg_fault_deadline(w->fault);
        next = hlg_min_time(next, due > now ? due : now + WAIT_NS);
    }
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->alive) {
            next = hlg_min_time(next, n->restart_at);
        } else if (!life_is_frozen(n)) {
            next = hlg_min_time(next, pump_next(n, now));
            next = hlg_min_time(next, n->decode ? decode_next(n) : prefill_next(n));
            next = hlg_min_time(next, life_next(w, n));
        }
    }
    return next;
}

/*
 * How many steps a world may have taken: some three for each piece that landed, the frames about it, and as long
 * as nothing moves some 50 to 190 a millisecond, of deadlines and heartbeats. Measured over 400 seeds: half of
 * this at most. One that only crawls takes 2,000 a millisecond.
 */
static uint64_t steps_max(const struct world *w, hlg_time now)
{
    return 10000 + 8 * w->counts.landings + 400 * (uint64_t)(now / HLG_NS_PER_MS);
}

static bool all_probed(const struct world *w)
{
    for (uint32_t i = w->prefillers; i < w->node_count; i++) {
        if (w->nodes[i].probe < w->sets) {
            return false;
        }
    }
    return true;
}

/* What is open, and when each node wants to go on: the first thing to read of a storm that hangs. */
static void tell_open(struct world *w, hlg_time now)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        uint32_t jobs = 0;
        for (uint32_t k = 0; k < REQUESTS_MAX; k++) {
            jobs += n->jobs[k].used;
        }
        if (!n->alive) {
            world_tell(w, n, "is dead");
            continue;
        }
        world_tell(w, n, "jobs %u open %u frozen %d, pump in %lld ns, engine in %lld, life in %lld",
                   jobs, hlg_pump_open(n->pump), life_is_frozen(n),
                   (long long)(pump_next(n, now) - now),
                   (long long)((n->decode ? decode_next(n) : prefill_next(n)) - now),
                   (long long)(life_next(w, n) - now));
        for (uint32_t k = 0; n->decode && k < w->prefillers; k++) {
            world_tell(w, n, "peer %u %d up %d dials in %lld", k, (int)n->peer_of[k], n->peer_up[k],
                       (long long)(n->dial_at[k] - now));
        }
    }
}

static void end_storm(struct world *w, hlg_time now)
{
    w->calm = true;
    w->calm_at = now;
    w->phase = PHASE_SETTLE;
    faults_calm(w);
}

/* Goes to the next phase when all of this one is done; each has its bound, the storm from request to request. */
static void look_at_phase(struct world *w, hlg_time now)
{
    hlg_time bound = w->phase == PHASE_PROBE
                         ? w->probe_at + w->sets * TTL_NS
                         : SETTLE_NS + (w->phase == PHASE_STORM ? w->submit_at : w->calm_at);

    looked(w, CHECK_LIVE);
    if (w->phase == PHASE_STORM && w->submits_left == 0) {
        end_storm(w, now);
    } else if (w->phase == PHASE_SETTLE && life_all_met(w)) {
        w->phase = PHASE_PROBE;
        w->probe_at = now;
        w->counts.settle_ns_max = now - w->calm_at;
    } else if (w->phase == PHASE_PROBE && all_probed(w) && life_all_met(w)) {
        w->phase = PHASE_REST;
        check_rest(w);
    } else if (now > bound) {
        tell_open(w, now);
        world_break(w, w->phase == PHASE_PROBE ? CHECK_PROBE : CHECK_LIVE,
                    "not all had come to its end within the bound", w->phase, now - bound);
    }
}

static void run(struct world *w)
{
    for (uint64_t step = 0; w->broken == CHECK_NONE; step++) {
        hlg_time now = hlg_loop_now(w->loop);
        w->counts.steps = step;
        act(w, now);
        look_at_phase(w, now);
        if (w->phase == PHASE_REST) {
            return;
        }
        hlg_time next = next_time(w);
        if (step > steps_max(w, now) || next == HLG_TIME_NEVER) {
            tell_open(w, now);
            world_break(w, CHECK_LIVE, "nothing is due, or it goes on for ever", step, now);
            return;
        }
        if (hlg_loop_next_time(w->loop) <= next) {
            hlg_loop_step(w->loop);
        } else {
            hlg_loop_advance_to(w->loop, next > now ? next : now + CRAWL_NS);
        }
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

static void take_down(struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        if (w->nodes[i].pump != NULL) {
            node_stop(&w->nodes[i]);
        }
    }
    hlg_fault_destroy(w->fault);
    hlg_loop_destroy(w->loop);
    for (uint32_t i = 0; i < w->node_count; i++) {
        for (uint32_t lane = 0; lane < w->nodes[i].lanes; lane++) {
            free(w->nodes[i].memory[lane]);
        }
        free(w->nodes[i].places);
    }
    looked(w, CHECK_BOUND);
    if (w->endpoints != 0) {
        world_break(w, CHECK_BOUND, "endpoints were left open", w->endpoints, 0);
    }
}

int storm_run(const struct storm_case *what, struct world *w, bool again, uint64_t *hash)
{
    memset(w, 0, sizeof *w);
    w->what = *what;
    w->check = !again;
    w->rng = hlg_rng_seed(what->seed);
    w->hash = 0xcbf29ce484222325u;
    w->submits_left = what->requests;
    w->counts.seeds = 1;
    if (draw_world(w)) {
        run(w);
    } else {
        world_break(w, CHECK_MEMORY, "the world could not be made", what->seed, 0);
    }
    if (w->loop != NULL) {
        faults_count(w);
        w->hash ^= hlg_loop_trace_hash(w->loop);
    }
    take_down(w);
    if (what->plant == PLANT_MEMORY_LEAK && malloc(64) == NULL) {
        world_break(w, CHECK_MEMORY, "there was none to leak", 0, 0);
    }
    *hash = w->hash;
    return w->broken != CHECK_NONE;
}
