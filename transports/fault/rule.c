/* Rules: which there can be, when they strike, and the faults of nodes that are under way. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const char *const names[HLG_FAULT_KINDS] = {
    [HLG_FAULT_DELAY] = "delay",
    [HLG_FAULT_REORDER] = "reorder",
    [HLG_FAULT_DUPLICATE] = "duplicate",
    [HLG_FAULT_FAIL_BEFORE] = "fail-before",
    [HLG_FAULT_FAIL_AFTER] = "fail-after",
    [HLG_FAULT_FAIL_LATE] = "fail-late",
    [HLG_FAULT_REFUSE] = "refuse",
    [HLG_FAULT_PARTIAL] = "partial",
    [HLG_FAULT_IMM_LATE] = "imm-late",
    [HLG_FAULT_IMM_STALE] = "imm-stale",
    [HLG_FAULT_FRAME_DELAY] = "frame-delay",
    [HLG_FAULT_FRAME_DROP] = "frame-drop",
    [HLG_FAULT_KILL] = "kill",
    [HLG_FAULT_FREEZE] = "freeze",
    [HLG_FAULT_PARTITION] = "partition",
    [HLG_FAULT_HALF_OPEN] = "half-open",
    [HLG_FAULT_SLOW] = "slow",
    [HLG_FAULT_CLOCK_STALL] = "clock-stall",
    [HLG_FAULT_CLOCK_JUMP] = "clock-jump",
    [HLG_FAULT_CLOSE_FAILS] = "close-fails",
};

const char *hlg_fault_name(uint32_t kind)
{
    return kind >= HLG_FAULT_DELAY && kind < HLG_FAULT_KINDS ? names[kind] : "none";
}

bool fault_rule_is_of_node(uint32_t kind)
{
    return kind >= HLG_FAULT_KILL && kind <= HLG_FAULT_CLOCK_JUMP;
}

static bool is_any_or(uint32_t wanted, uint32_t is)
{
    return wanted == HLG_FAULT_ANY || wanted == is;
}

static bool fits(const struct rule *r, uint32_t kind, const struct occasion *o)
{
    return r->used && r->what.kind == kind && is_any_or(r->what.node, o->node) &&
           is_any_or(r->what.peer, o->peer) && is_any_or(r->what.lane, o->lane) &&
           is_any_or(r->what.rail, o->rail);
}

static bool is_exhausted(const struct rule *r)
{
    const bool once = r->what.count == 0 && r->what.ppm == 0;

    return once ? r->fired >= 1 : r->what.count != 0 && r->fired >= r->what.count;
}

static bool strikes(struct hlg_fault *f, const struct rule *r, hlg_time now)
{
    if (r->what.ppm != 0) {
        return hlg_rng_chance(&f->rng, r->what.ppm);
    }
    if (r->what.nth != 0) {
        return r->seen + 1 >= r->what.nth;
    }
    return now >= hlg_time_after(f->began, r->what.at);
}

uint32_t fault_rule_draw(struct hlg_fault *f, uint32_t kind, const struct occasion *o)
{
    for (uint32_t index = 0; f->rules_of[kind] != 0 && index < f->config.rules_max; index++) {
        if (fits(&f->rules[index], kind, o) && strikes(f, &f->rules[index], o->now)) {
            return index;
        }
    }
    return HLG_NONE;
}

void fault_rule_occasion(struct hlg_fault *f, uint32_t kind, const struct occasion *o)
{
    for (uint32_t index = 0; f->rules_of[kind] != 0 && index < f->config.rules_max; index++) {
        f->rules[index].seen += fits(&f->rules[index], kind, o);
    }
}

static hlg_time draw_span(struct hlg_fault *f, const struct hlg_fault_rule *what)
{
    return what->span_max > what->span ? hlg_rng_between(&f->rng, what->span, what->span_max)
                                       : what->span;
}

hlg_time fault_rule_hit(struct hlg_fault *f, uint32_t index)
{
    struct rule *r = &f->rules[index];
    const hlg_time span = draw_span(f, &r->what);

    HLG_ASSERT(r->used && !is_exhausted(r));
    r->fired++;
    f->hits[r->what.kind]++;
    if (is_exhausted(r)) {
        fault_rule_free(f, r);
    }
    return span;
}

bool fault_rule_strikes(struct hlg_fault *f, uint32_t kind, const struct occasion *o,
                        hlg_time *span)
{
    const uint32_t index = fault_rule_draw(f, kind, o);

    fault_rule_occasion(f, kind, o);
    if (index == HLG_NONE) {
        return false;
    }
    *span = fault_rule_hit(f, index);
    return true;
}

void fault_rule_free(struct hlg_fault *f, struct rule *r)
{
    HLG_ASSERT(r->used && f->rules_of[r->what.kind] > 0);
    r->used = false;
    r->active = false;
    r->uses++;
    f->rules_of[r->what.kind]--;
    f->node_rules -= fault_rule_is_of_node(r->what.kind);
}

/* ---- faults under way ----------------------------------------------------------------------- */

static bool joins(const struct rule *r, uint32_t node, uint32_t peer)
{
    return is_any_or(r->what.node, node) && is_any_or(r->what.peer, peer);
}

bool fault_rule_blocks(const struct hlg_fault *f, uint32_t node, uint32_t peer)
{
    if (f->rules_of[HLG_FAULT_PARTITION] == 0 && f->rules_of[HLG_FAULT_HALF_OPEN] == 0) {
        return false;
    }
    for (uint32_t index = 0; index < f->config.rules_max; index++) {
        const struct rule *r = &f->rules[index];

        if (!r->used || !r->active) {
            continue;
        }
        if (r->what.kind == HLG_FAULT_PARTITION && (joins(r, node, peer) || joins(r, peer, node))) {
            return true;
        }
        if (r->what.kind == HLG_FAULT_HALF_OPEN && joins(r, node, peer)) {
            return true;
        }
    }
    return false;
}

struct rule *fault_rule_slow(struct hlg_fault *f, const struct occasion *o)
{
    for (uint32_t index = 0; f->rules_of[HLG_FAULT_SLOW] != 0 && index < f->config.rules_max;
         index++) {
        if (f->rules[index].active && fits(&f->rules[index], HLG_FAULT_SLOW, o)) {
            return &f->rules[index];
        }
    }
    return NULL;
}

bool fault_rule_freezes(const struct hlg_fault *f, uint32_t node)
{
    for (uint32_t index = 0; f->rules_of[HLG_FAULT_FREEZE] != 0 && index < f->config.rules_max;
         index++) {
        const struct rule *r = &f->rules[index];

        if (r->used && r->active && r->what.kind == HLG_FAULT_FREEZE && r->what.node == node) {
            return true;
        }
    }
    return false;
}

static void begin(struct hlg_fault *f, struct rule *r, hlg_time now)
{
    const hlg_time span = draw_span(f, &r->what);
    struct node *node = r->what.node < f->config.nodes ? &f->nodes[r->what.node] : NULL;

    if (r->what.kind == HLG_FAULT_KILL || r->what.kind == HLG_FAULT_CLOCK_JUMP) {
        const uint32_t kind = r->what.kind;

        HLG_ASSERT(node != NULL);
        fault_rule_free(f, r);
        if (kind == HLG_FAULT_CLOCK_JUMP) {
            node->ahead = hlg_time_after(node->ahead, span);
            f->hits[kind]++;
        } else if (node->alive) {
            f->hits[kind]++;
            fault_kill(f, node);
        }
        return;
    }
    if (r->what.kind == HLG_FAULT_FREEZE || r->what.kind == HLG_FAULT_CLOCK_STALL) {
        HLG_ASSERT(node != NULL);
        r->clock = fault_clock(f, node->index, now);
    }
    r->active = true;
    r->until = hlg_time_after(now, span);
    r->free_at = now;
    f->hits[r->what.kind]++;
}

void fault_tick(struct hlg_fault *f)
{
    if (!f->begun || (f->node_rules == 0 && f->zombies == 0)) {
        return;
    }
    const hlg_time now = fault_now(f);

    for (uint32_t index = 0; f->node_rules != 0 && index < f->config.rules_max; index++) {
        struct rule *r = &f->rules[index];

        if (!r->used || !fault_rule_is_of_node(r->what.kind)) {
            continue;
        }
        if (r->active && now >= r->until) {
            fault_rule_free(f, r);
        } else if (!r->active && now >= hlg_time_after(f->began, r->what.at)) {
            begin(f, r, now);
        }
    }
    for (uint32_t index = 0; f->zombies != 0 && index < f->config.endpoints_max; index++) {
        struct endpoint *e = &f->endpoints[index];

        if (e->state == ENDPOINT_ZOMBIE && now >= e->muted_until) {
            fault_endpoint_reap(e);
        }
    }
}

/* ---- adding and removing -------------------------------------------------------------------- */

static bool say(char *error, size_t error_bytes, const char *name, const char *what)
{
    if (error != NULL && error_bytes != 0) {
        (void)snprintf(error, error_bytes, "%s: %s", name, what);
    }
    return false;
}

/* Kinds whose span is a length of time without which nothing would be seen of them. */
static bool needs_span(uint32_t kind)
{
    switch ((enum hlg_fault_kind)kind) {
    case HLG_FAULT_DELAY:
    case HLG_FAULT_FAIL_LATE:
    case HLG_FAULT_IMM_LATE:
    case HLG_FAULT_FRAME_DELAY:
    case HLG_FAULT_FREEZE:
    case HLG_FAULT_PARTITION:
    case HLG_FAULT_HALF_OPEN:
    case HLG_FAULT_SLOW:
    case HLG_FAULT_CLOCK_STALL:
    case HLG_FAULT_CLOCK_JUMP:
        return true;
    case HLG_FAULT_REORDER:
    case HLG_FAULT_DUPLICATE:
    case HLG_FAULT_FAIL_BEFORE:
    case HLG_FAULT_FAIL_AFTER:
    case HLG_FAULT_REFUSE:
    case HLG_FAULT_PARTIAL:
    case HLG_FAULT_IMM_STALE:
    case HLG_FAULT_FRAME_DROP:
    case HLG_FAULT_KILL:
    case HLG_FAULT_CLOSE_FAILS:
    case HLG_FAULT_KINDS:
        break;
    }
    return false;
}

static bool is_of_one_node(uint32_t kind)
{
    return kind == HLG_FAULT_KILL || kind == HLG_FAULT_FREEZE || kind == HLG_FAULT_CLOCK_STALL ||
           kind == HLG_FAULT_CLOCK_JUMP;
}

/* What has no other end at all, or does not know whose it is. */
static bool has_no_peer(uint32_t kind)
{
    return is_of_one_node(kind) || kind == HLG_FAULT_IMM_LATE || kind == HLG_FAULT_IMM_STALE ||
           kind == HLG_FAULT_CLOSE_FAILS;
}

static bool has_no_rail(uint32_t kind)
{
    return is_of_one_node(kind) || kind == HLG_FAULT_PARTITION || kind == HLG_FAULT_HALF_OPEN ||
           kind == HLG_FAULT_FRAME_DELAY || kind == HLG_FAULT_FRAME_DROP;
}

bool fault_rule_is_sound(const struct hlg_fault *f, const struct hlg_fault_rule *what, char *error,
                         size_t error_bytes)
{
    const char *name = hlg_fault_name(what->kind);
    const uint32_t nodes = f->config.nodes;

    if (what->kind < HLG_FAULT_DELAY || what->kind >= HLG_FAULT_KINDS) {
        return say(error, error_bytes, name, "kind must be one of enum hlg_fault_kind");
    }
    if ((what->node != HLG_FAULT_ANY && what->node >= nodes) ||
        (what->peer != HLG_FAULT_ANY && what->peer >= nodes)) {
        return say(error, error_bytes, name, "node and peer must be below the number of nodes");
    }
    if (is_of_one_node(what->kind) && what->node == HLG_FAULT_ANY) {
        return say(error, error_bytes, name, "needs its node: say which");
    }
    if (has_no_peer(what->kind) && what->peer != HLG_FAULT_ANY) {
        return say(error, error_bytes, name, "knows no peer: leave it out");
    }
    if (has_no_rail(what->kind) && (what->lane != HLG_FAULT_ANY || what->rail != HLG_FAULT_ANY)) {
        return say(error, error_bytes, name, "knows no lane and no rail: leave them out");
    }
    if (what->ppm > HLG_RNG_PPM) {
        return say(error, error_bytes, name, "ppm must be at most 1000000");
    }
    if ((what->ppm != 0) + (what->nth != 0) + (what->at != 0) > 1) {
        return say(error, error_bytes, name, "give one of ppm, nth and at");
    }
    if (fault_rule_is_of_node(what->kind) && (what->ppm != 0 || what->nth != 0)) {
        return say(error, error_bytes, name, "comes at a time or at once: leave out ppm and nth");
    }
    if (fault_rule_is_of_node(what->kind) && what->count > 1) {
        return say(error, error_bytes, name, "comes once: leave out count");
    }
    if (needs_span(what->kind) && what->span == 0 && what->span_max == 0) {
        return say(error, error_bytes, name, "needs a span above 0");
    }
    if (what->span_max > what->span && what->span_max == HLG_TIME_NEVER) {
        return say(error, error_bytes, name, "span can be drawn between two times only");
    }
    if ((what->kind == HLG_FAULT_SLOW) != (what->rate != 0)) {
        return say(error, error_bytes, name,
                   what->rate != 0 ? "knows no rate: leave it out" : "needs a rate above 0");
    }
    if (what->kind == HLG_FAULT_FAIL_LATE && f->config.late_bytes_max == 0) {
        return say(error, error_bytes, name, "needs late_bytes_max above 0 in the configuration");
    }
    return true;
}

int hlg_fault_add(struct hlg_fault *f, const struct hlg_fault_rule *what, char *error,
                  size_t error_bytes)
{
    if (!fault_rule_is_sound(f, what, error, error_bytes)) {
        return -HLG_EINVAL;
    }
    for (uint32_t index = 0; index < f->config.rules_max; index++) {
        struct rule *r = &f->rules[index];

        if (!r->used) {
            const uint32_t uses = r->uses & 0x7fffu;

            *r = (struct rule){.what = *what, .used = true, .uses = r->uses};
            f->rules_of[what->kind]++;
            f->node_rules += fault_rule_is_of_node(what->kind);
            fault_tick(f);
            return (int)(uses << 16 | index);
        }
    }
    (void)say(error, error_bytes, hlg_fault_name(what->kind), "rules_max rules are there already");
    return -HLG_ELIMIT;
}

void hlg_fault_remove(struct hlg_fault *f, uint32_t rule)
{
    const uint32_t index = rule & 0xffffu;

    if (index < f->config.rules_max && f->rules[index].used &&
        (f->rules[index].uses & 0x7fffu) == rule >> 16) {
        fault_rule_free(f, &f->rules[index]);
    }
}
