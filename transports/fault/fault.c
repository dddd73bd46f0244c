/* The decorator itself: its memory, its nodes, their clocks, their death. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void hlg_fault_config_default(struct hlg_fault_config *config)
{
    *config = (struct hlg_fault_config){
        .seed = 1,
        .nodes = 2,
        .rules_max = 64,
        .endpoints_max = 16,
        .peers_max = 16,
        .held_max = 256,
        .late_bytes_max = 4096,
        .frames_max = 64,
        .channels_max = 8,
        .message_bytes_max = 1u << 20,
    };
}

static bool config_is_sound(const struct hlg_fault_config *c)
{
    return c->nodes != 0 && c->nodes < HLG_NONE && c->rules_max != 0 && c->rules_max <= 0x10000u &&
           c->endpoints_max != 0 && c->peers_max != 0 && c->held_max != 0 &&
           c->held_max <= 1u << 20 && c->frames_max != 0 && c->channels_max != 0 &&
           c->message_bytes_max != 0 && c->message_bytes_max <= HLG_MESSAGE_BYTES_MAX &&
           c->late_bytes_max <= 1u << 24;
}

/* One array of ours, zeroed. Sets *failed when it could not be had. */
static void *take(struct hlg_fault *f, uint64_t count, size_t bytes, bool *failed)
{
    void *memory = *failed ? NULL : calloc(count, bytes);

    HLG_ASSERT(f->memory_count < sizeof(f->memory) / sizeof(f->memory[0]));
    if (memory == NULL) {
        *failed = true;
        return NULL;
    }
    f->memory[f->memory_count++] = memory;
    return memory;
}

static bool take_all(struct hlg_fault *f)
{
    const struct hlg_fault_config *c = &f->config;
    const uint64_t ends = c->channels_max;
    bool failed = false;

    f->ring_bytes = 2 * c->message_bytes_max;
    f->rules = take(f, c->rules_max, sizeof(*f->rules), &failed);
    f->nodes = take(f, c->nodes, sizeof(*f->nodes), &failed);
    f->endpoints = take(f, c->endpoints_max, sizeof(*f->endpoints), &failed);
    f->ends = take(f, ends, sizeof(*f->ends), &failed);
    struct frame *frames = take(f, ends * c->frames_max, sizeof(*frames), &failed);
    uint8_t *rings = take(f, ends * f->ring_bytes, 1, &failed);
    uint8_t *wholes = take(f, ends * c->message_bytes_max, 1, &failed);

    if (failed) {
        return false;
    }
    for (uint64_t index = 0; index < ends; index++) {
        f->ends[index].frames = frames + index * c->frames_max;
        f->ends[index].ring = rings + index * f->ring_bytes;
        f->ends[index].whole = wholes + index * c->message_bytes_max;
    }
    return true;
}

static void query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    const struct hlg_fabric *below = ((const struct node *)fabric)->below;

    below->query(below, caps);
}

static hlg_time now(struct hlg_fabric *fabric)
{
    struct node *node = (struct node *)fabric; /* fabric is the first member */

    fault_tick(node->fault);
    return fault_clock(node->fault, node->index, node->below->now(node->below));
}

int hlg_fault_create(const struct hlg_fault_config *config, struct hlg_fault **out)
{
    if (!config_is_sound(config)) {
        return -HLG_EINVAL;
    }
    struct hlg_fault *f = calloc(1, sizeof(*f));

    if (f == NULL) {
        return -HLG_ENOMEM;
    }
    f->config = *config;
    f->rng = hlg_rng_seed(config->seed);
    if (!take_all(f)) {
        hlg_fault_destroy(f);
        return -HLG_ENOMEM;
    }
    for (uint32_t index = 0; index < config->nodes; index++) {
        struct node *node = &f->nodes[index];

        node->fabric.open = fault_endpoint_open;
        node->fabric.query = query;
        node->fabric.now = now;
        node->fault = f;
        node->index = index;
        node->alive = true;
    }
    *out = f;
    return 0;
}

static void reap_all(struct hlg_fault *f)
{
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        if (f->endpoints[index].state == ENDPOINT_ZOMBIE) {
            fault_endpoint_reap(&f->endpoints[index]);
        }
    }
}

void hlg_fault_destroy(struct hlg_fault *f)
{
    if (f == NULL) {
        return;
    }
    if (f->endpoints != NULL) {
        reap_all(f);
    }
    while (f->memory_count > 0) {
        free(f->memory[--f->memory_count]);
    }
    free(f);
}

static int fabric_prepare(struct hlg_fabric *fabric, const struct hlg_mem_region *region,
                          char *error, size_t error_bytes)
{
    struct hlg_fabric *below = ((struct node *)(void *)fabric)->below;

    return below->prepare(below, region, error, error_bytes);
}

int hlg_fault_fabric(struct hlg_fault *f, uint32_t index, struct hlg_fabric *below,
                     struct hlg_fabric **out)
{
    if (index >= f->config.nodes || below == NULL) {
        return -HLG_EINVAL;
    }
    struct node *node = &f->nodes[index];

    node->below = below;
    node->fabric.rails = below->rails;
    node->fabric.prepare = below->prepare != NULL ? fabric_prepare : NULL;
    node->fabric.flusher = below->flusher; /* copies within a node meet no faults */
    if (!f->begun) {
        f->began = below->now(below);
        f->begun = true;
    }
    *out = &node->fabric;
    return 0;
}

hlg_time fault_now(const struct hlg_fault *f)
{
    for (uint32_t index = 0; index < f->config.nodes; index++) {
        struct hlg_fabric *below = f->nodes[index].below;

        if (below != NULL) {
            return below->now(below);
        }
    }
    return 0;
}

hlg_time fault_clock(struct hlg_fault *f, uint32_t index, hlg_time time)
{
    struct node *node = &f->nodes[index];
    hlg_time clock = hlg_time_after(time, node->ahead);

    for (uint32_t i = 0; f->node_rules != 0 && i < f->config.rules_max; i++) {
        const struct rule *r = &f->rules[i];
        const bool stops =
            r->used && r->active && r->what.node == index &&
            (r->what.kind == HLG_FAULT_FREEZE || r->what.kind == HLG_FAULT_CLOCK_STALL);

        clock = stops ? hlg_min_time(clock, r->clock) : clock;
    }
    node->shown = clock > node->shown ? clock : node->shown;
    return node->shown;
}

static void bury(struct hlg_fault *f, uint32_t node)
{
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        if (f->endpoints[index].state != ENDPOINT_FREE && f->endpoints[index].node == node) {
            fault_endpoint_bury(&f->endpoints[index]);
        }
    }
}

void fault_kill(struct hlg_fault *f, struct node *node)
{
    HLG_ASSERT(node->alive);
    node->alive = false;
    bury(f, node->index);
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        struct endpoint *e = &f->endpoints[index];

        if (e->state == ENDPOINT_OPEN && e->node == node->index) {
            fault_endpoint_kill(e);
        }
    }
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        struct end *c = &f->ends[index];

        if (c->used && c->node == node->index) {
            fault_end_kill(c);
        }
    }
}

/* A process that froze is over, and with it what it did. */
void hlg_fault_restart(struct hlg_fault *f, uint32_t index)
{
    HLG_ASSERT(index < f->config.nodes);
    f->nodes[index].alive = true;
    bury(f, index);
    for (uint32_t i = 0; i < f->config.rules_max; i++) {
        struct rule *r = &f->rules[i];

        if (r->used && r->active && r->what.kind == HLG_FAULT_FREEZE && r->what.node == index) {
            fault_rule_free(f, r);
        }
    }
}

bool hlg_fault_alive(const struct hlg_fault *f, uint32_t node)
{
    HLG_ASSERT(node < f->config.nodes);
    return f->nodes[node].alive;
}

bool hlg_fault_frozen(const struct hlg_fault *f, uint32_t node)
{
    HLG_ASSERT(node < f->config.nodes);
    return fault_rule_freezes(f, node);
}

static void hurry(struct endpoint *e)
{
    for (uint32_t index = e->held_first; index != HLG_NONE; index = e->helds[index].next) {
        e->helds[index].due = 0;
    }
    for (uint32_t index = 0; index < e->imm_count; index++) {
        e->imms[index].due = 0;
    }
    for (uint32_t index = 0; index < e->fault->config.peers_max; index++) {
        e->peers[index].refused_until = 0;
        e->peers[index].refused_since = HLG_TIME_NEVER;
    }
}

void hlg_fault_calm(struct hlg_fault *f)
{
    for (uint32_t index = 0; index < f->config.rules_max; index++) {
        if (f->rules[index].used) {
            fault_rule_free(f, &f->rules[index]);
        }
    }
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        if (f->endpoints[index].state == ENDPOINT_OPEN) {
            hurry(&f->endpoints[index]);
        }
    }
    for (uint32_t index = 0; index < f->config.channels_max; index++) {
        struct end *c = &f->ends[index];

        for (uint32_t frame = 0; c->used && frame < c->frame_count; frame++) {
            c->frames[(c->frame_head + frame) % f->config.frames_max].due = 0;
        }
    }
    reap_all(f);
}

bool hlg_fault_owns(const struct hlg_fault *f, const void *memory)
{
    for (uint32_t index = 0; index < f->config.endpoints_max; index++) {
        const uint8_t *late = f->endpoints[index].late;
        const uintptr_t offset = (uintptr_t)memory - (uintptr_t)late;

        if (late != NULL && offset < (uintptr_t)LATE_SLOTS * f->config.late_bytes_max) {
            return true;
        }
    }
    return false;
}
