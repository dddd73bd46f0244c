/*
 * Faults of the network. Kinds that both the loop and the decorator know are the one's or the other's in
 * a world; the others are where they are known. The decorator's come from rules, whose times are drawn.
 */
#include "world.h"

#include <string.h>

#define STORM_NS \
    (6 * HLG_NS_PER_MS) /* about as long as requests are asked for where nothing is slow */

static uint32_t rate(const struct world *w, enum storm_kind kind, uint32_t ppm)
{
    return is_on(w, kind) ? ppm : 0;
}

static uint32_t shared_rate(const struct world *w, enum storm_kind kind, uint32_t ppm)
{
    return w->below ? rate(w, kind, ppm) : 0;
}

void faults_of_loop(const struct world *w, struct hlg_loop_faults *f)
{
    *f = (struct hlg_loop_faults){
        .delay_ppm = shared_rate(w, KIND_DELAY, 50000),
        .reorder_ppm = shared_rate(w, KIND_REORDER, 100000),
        .duplicate_ppm = shared_rate(w, KIND_DUPLICATE, 50000),
        .refuse_ppm = shared_rate(w, KIND_REFUSE, 30000),
        .partial_ppm = shared_rate(w, KIND_PARTIAL, 200000),
        .fail_before_ppm = shared_rate(w, KIND_FAIL_BEFORE, 1500),
        .fail_after_ppm = shared_rate(w, KIND_FAIL_AFTER, 1500),
        .drop_ppm = rate(w, KIND_DROP, 1000),
        .kill_ppm = shared_rate(w, KIND_KILL, 3000),
        .break_ppm = rate(w, KIND_BREAK, 10000),
        .delay_ns_max = 2 * HLG_NS_PER_MS,
        .refuse_ns_max = HLG_NS_PER_MS,
        .kill_ns_max = HLG_NS_PER_MS,
    };
}

/* What the decorator does of each kind: by chance at each occasion, or to some node at some time. */
struct way {
    enum storm_kind kind;
    uint32_t fault; /* enum hlg_fault_kind */
    bool shared;    /* with the loop */
    uint32_t ppm;   /* 0: of nodes */
    hlg_time span_max;
};

static const struct way ways[] = {
    {KIND_DELAY, HLG_FAULT_DELAY, true, 50000, 2 * HLG_NS_PER_MS},
    {KIND_REORDER, HLG_FAULT_REORDER, true, 100000, 50000},
    {KIND_DUPLICATE, HLG_FAULT_DUPLICATE, true, 50000, 0},
    {KIND_FAIL_BEFORE, HLG_FAULT_FAIL_BEFORE, true, 1500, 0},
    {KIND_FAIL_AFTER, HLG_FAULT_FAIL_AFTER, true, 1500, 0},
    {KIND_FAIL_LATE, HLG_FAULT_FAIL_LATE, false, 2500, 3 * HLG_NS_PER_MS},
    {KIND_REFUSE, HLG_FAULT_REFUSE, true, 30000, HLG_NS_PER_MS},
    {KIND_PARTIAL, HLG_FAULT_PARTIAL, true, 200000, 0},
    {KIND_IMM_LATE, HLG_FAULT_IMM_LATE, false, 50000, 2 * HLG_NS_PER_MS},
    {KIND_IMM_STALE, HLG_FAULT_IMM_STALE, false, 5000, 0},
    {KIND_FRAME_DELAY, HLG_FAULT_FRAME_DELAY, false, 100000, 2 * HLG_NS_PER_MS},
    {KIND_FRAME_DROP, HLG_FAULT_FRAME_DROP, false, 4000, 0},
    {KIND_CLOSE_FAILS, HLG_FAULT_CLOSE_FAILS, false, 100000, CLOSE_NS},
    {KIND_KILL, HLG_FAULT_KILL, true, 0, 0},
    {KIND_FREEZE, HLG_FAULT_FREEZE, false, 0, 2 * LEASE_NS},
    {KIND_PARTITION, HLG_FAULT_PARTITION, false, 0, 2 * LEASE_NS},
    {KIND_HALF_OPEN, HLG_FAULT_HALF_OPEN, false, 0, 2 * LEASE_NS},
    {KIND_SLOW, HLG_FAULT_SLOW, false, 0, 20 * HLG_NS_PER_MS},
    {KIND_CLOCK_STALL, HLG_FAULT_CLOCK_STALL, false, 0, 2 * LEASE_NS},
    {KIND_CLOCK_JUMP, HLG_FAULT_CLOCK_JUMP, false, 0, 2 * LEASE_NS},
};

static bool is_decorated(const struct world *w, const struct way *way)
{
    return is_on(w, way->kind) && !(way->shared && w->below);
}

/* A fault of nodes strikes one to three times, each at a time and a place of its own. */
static void add_rules(struct world *w, const struct way *way)
{
    char error[160] = "";
    uint32_t count = way->ppm > 0 ? 1 : 1 + draw(w, 3);

    for (uint32_t i = 0; i < count; i++) {
        struct hlg_fault_rule rule = {.kind = way->fault,
                                      .node = HLG_FAULT_ANY,
                                      .peer = HLG_FAULT_ANY,
                                      .lane = HLG_FAULT_ANY,
                                      .rail = HLG_FAULT_ANY,
                                      .ppm = way->ppm,
                                      .span = way->span_max > 0 ? 1 : 0,
                                      .span_max = way->span_max};
        if (way->ppm == 0) {
            rule.node = draw(w, w->node_count);
            rule.at = soon(w, STORM_NS);
        }
        if (way->fault == HLG_FAULT_PARTITION || way->fault == HLG_FAULT_HALF_OPEN) {
            rule.peer = rule.node < w->prefillers ? w->prefillers + draw(w, w->decoders)
                                                  : draw(w, w->prefillers);
        }
        if (way->fault == HLG_FAULT_SLOW) {
            rule.rate = 1000000 + draw(w, 50000000);
        }
        if (hlg_fault_add(w->fault, &rule, error, sizeof error) < 0) {
            world_break(w, CHECK_CALL, "the decorator refused a rule", way->fault, i);
        }
    }
}

static bool make_decorator(struct world *w, uint32_t lanes)
{
    struct hlg_fault_config config;

    hlg_fault_config_default(&config);
    config.seed = w->what.seed;
    config.nodes = w->node_count;
    config.rules_max = 64;
    config.endpoints_max = w->node_count * lanes * w->rails * (w->domains + 2);
    config.peers_max = draw_peers_max(w, lanes);
    config.held_max = 256;
    config.late_bytes_max = 256;
    config.frames_max = 64;
    config.channels_max = 128;
    config.message_bytes_max = 1u << 16;
    return hlg_fault_create(&config, &w->fault) == 0;
}

bool faults_decorate(struct world *w, uint32_t lanes)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        count += is_decorated(w, &ways[i]);
    }
    if (count > 0 && !make_decorator(w, lanes)) {
        return false;
    }
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        n->fabric = hlg_loop_fabric(w->loop, i);
        if (count > 0 && hlg_fault_fabric(w->fault, i, n->fabric, &n->fabric) != 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < sizeof ways / sizeof ways[0] && count > 0; i++) {
        if (is_decorated(w, &ways[i])) {
            add_rules(w, &ways[i]);
        }
    }
    return true;
}

void faults_calm(struct world *w)
{
    static const struct hlg_loop_faults none = {0};

    hlg_loop_faults(w->loop, &none);
    if (w->fault != NULL) {
        hlg_fault_calm(w->fault);
    }
}

static void count_loop(struct world *w)
{
    struct hlg_loop_stats f;
    uint64_t *net = w->counts.net;

    hlg_loop_stats(w->loop, &f);
    w->counts.pieces = f.taken;
    w->counts.old_keys = f.old_keys;
    net[KIND_DELAY] = f.delays;
    net[KIND_REORDER] = f.reorders;
    net[KIND_DUPLICATE] = f.duplicates;
    net[KIND_REFUSE] = f.refusals;
    net[KIND_PARTIAL] = f.partials;
    net[KIND_FAIL_BEFORE] = f.fails_before;
    net[KIND_FAIL_AFTER] = f.fails_after;
    net[KIND_FAIL_LATE] = f.lates;
    net[KIND_DROP] = f.drops;
    net[KIND_KILL] = f.kills;
    net[KIND_BREAK] = f.breaks;
    net[KIND_ACKNOWLEDGED] = f.acknowledged;
    net[KIND_OLD_ADDRESS] = is_on(w, KIND_OLD_ADDRESS) ? f.old_keys : 0;
    looked(w, CHECK_WINDOW);
    if (f.held > 0) {
        world_break(w, CHECK_WINDOW, "immediates came beyond the credit", f.held, 0);
    }
}

void faults_count(struct world *w)
{
    struct hlg_fault_stats f;

    count_loop(w);
    for (uint32_t kind = KIND_SHARE; kind < KIND_OLD_ADDRESS; kind++) {
        w->counts.net[kind] += is_on(w, kind);
    }
    if (w->fault == NULL) {
        return;
    }
    hlg_fault_stats(w->fault, &f);
    for (uint32_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        w->counts.fault[ways[i].kind] += f.hits[ways[i].fault];
    }
    looked(w, CHECK_MACHINES);
    HLG_ASSERT(hlg_fault_check(w->fault) == 0 && hlg_loop_check(w->loop) == 0);
}
