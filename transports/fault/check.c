/* Looking at the decorator from outside: deadlines, counts, and whether they are right. */
#include <string.h>

#include "internal.h"

static hlg_time rules_deadline(const struct hlg_fault *f)
{
    hlg_time due = HLG_TIME_NEVER;

    for (uint32_t index = 0; f->node_rules != 0 && index < f->config.rules_max; index++) {
        const struct rule *r = &f->rules[index];

        if (r->used && fault_rule_is_of_node(r->what.kind)) {
            due = hlg_min_time(due, r->active ? r->until : hlg_time_after(f->began, r->what.at));
        }
    }
    return due;
}

/* What was refused below waits for the one below, not for a time. */
static hlg_time endpoint_deadline(const struct endpoint *e, hlg_time now)
{
    hlg_time due = e->report_count != 0 ? now : HLG_TIME_NEVER;

    for (uint32_t index = e->held_first; index != HLG_NONE; index = e->helds[index].next) {
        const struct held *h = &e->helds[index];
        const struct peer *peer = &e->peers[h->peer];

        if (h->state == HELD_WAITING && !peer->stuck &&
            !fault_rule_blocks(e->fault, e->node, peer->node)) {
            due = hlg_min_time(due, h->due);
            break; /* those behind are due later */
        }
    }
    for (uint32_t index = 0; index < e->imm_count; index++) {
        due = hlg_min_time(due, e->imms[index].due);
    }
    for (uint32_t row = 0; e->refused && row < e->fault->config.peers_max; row++) {
        due = hlg_min_time(due, fault_peer_stall(e, &e->peers[row]));
    }
    return due;
}

hlg_time hlg_fault_deadline(const struct hlg_fault *f)
{
    const hlg_time now = fault_now(f);
    hlg_time due = rules_deadline(f);

    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        const struct endpoint *e = &f->endpoints[index];

        if (e->state == ENDPOINT_OPEN && !fault_rule_freezes(f, e->node)) {
            due = hlg_min_time(due, endpoint_deadline(e, now));
        } else if (e->state == ENDPOINT_ZOMBIE) {
            due = hlg_min_time(due, e->muted_until);
        }
    }
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        const struct end *c = &f->ends[index];

        if (fault_end_frames(c) > 0 && !c->stuck && !fault_rule_freezes(f, c->node) &&
            !fault_rule_blocks(f, c->node, c->peer)) {
            due = hlg_min_time(due, c->frames[c->frame_head].due);
        }
    }
    return due;
}

void hlg_fault_stats(const struct hlg_fault *f, struct hlg_fault_stats *stats)
{
    memcpy(stats->hits, f->hits, sizeof(stats->hits));
    stats->held = 0;
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        const struct endpoint *e = &f->endpoints[index];

        stats->held += e->state == ENDPOINT_OPEN ? (uint64_t)e->held_count + e->imm_count : 0;
    }
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        stats->held += fault_end_frames(&f->ends[index]);
    }
}

/* ---- recounting ----------------------------------------------------------------------------- */

/* Pieces that the caller has still to hear of. */
static uint64_t count_unpolled(const struct endpoint *e)
{
    uint64_t count = 0;

    for (uint32_t index = e->held_first; index != HLG_NONE; index = e->helds[index].next) {
        count += e->helds[index].kind != FLIGHT_LATE;
    }
    for (uint32_t index = 0; !e->muted && index < e->flights_max; index++) {
        const struct flight *flight = &e->flights[index];
        const bool told = flight->kind == FLIGHT_SHADOW || flight->kind == FLIGHT_LATE;

        count += flight->used && !told ? flight->outstanding : 0;
    }
    for (uint32_t index = 0; index < e->report_count; index++) {
        const struct report *r = &e->reports[(e->report_head + index) % e->caps.pieces_max];

        count += (uint64_t)r->done + r->failed;
    }
    return count;
}

static int check_held(const struct endpoint *e)
{
    uint32_t count = 0;
    uint32_t of_peers = 0;
    hlg_time due = 0;

    for (uint32_t index = e->held_first; index != HLG_NONE; index = e->helds[index].next) {
        const struct held *h = &e->helds[index];

        if (h->state == HELD_FREE || h->due < due || !e->peers[h->peer].used) {
            return 1;
        }
        due = h->due;
        count++;
        if (count > e->fault->config.held_max) {
            return 2;
        }
    }
    for (uint32_t row = 0; row < e->fault->config.peers_max; row++) {
        of_peers += e->peers[row].used ? e->peers[row].held : 0;
    }
    return count == e->held_count && of_peers == count ? 0 : 3;
}

static int check_endpoint(const struct endpoint *e)
{
    uint32_t late = 0;
    const int held = check_held(e);

    if (held != 0) {
        return held;
    }
    if (count_unpolled(e) != e->unpolled || e->unpolled > e->caps.pieces_max) {
        return 4;
    }
    for (uint32_t index = 0; index < e->flights_max; index++) {
        late += e->flights[index].used && e->flights[index].kind == FLIGHT_LATE;
    }
    for (uint32_t index = e->held_first; index != HLG_NONE; index = e->helds[index].next) {
        late += e->helds[index].kind == FLIGHT_LATE;
    }
    for (uint32_t slot = 0; slot < LATE_SLOTS; slot++) {
        late -= (e->late_used & 1u << slot) != 0;
    }
    return late == 0 ? 0 : 5;
}

int hlg_fault_check(const struct hlg_fault *f)
{
    uint32_t rules[HLG_FAULT_KINDS] = {0};
    uint32_t zombies = 0;

    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        const struct endpoint *e = &f->endpoints[index];
        const bool counts = e->state != ENDPOINT_FREE && e->state != ENDPOINT_ZOMBIE;
        const int broken = counts ? check_endpoint(e) : 0;

        if (broken != 0) {
            return broken;
        }
        zombies += e->state == ENDPOINT_ZOMBIE;
    }
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        const struct end *c = &f->ends[index];
        uint64_t bytes = 0;

        for (uint32_t frame = 0; frame < fault_end_frames(c); frame++) {
            bytes += c->frames[(c->frame_head + frame) % f->config.frames_max].bytes;
        }
        if (c->used && bytes != c->ring_used) {
            return 6;
        }
    }
    for (uint32_t index = 0; index < f->config.rules_max; index++) {
        rules[f->rules[index].what.kind % HLG_FAULT_KINDS] += f->rules[index].used;
    }
    if (memcmp(rules, f->rules_of, sizeof(rules)) != 0) {
        return 7;
    }
    return zombies == f->zombies ? 0 : 8;
}
