/* One scene, live: five pumps over the backend, turned until every request is over. */
#include "world.h"

#include "../../src/driver/rng.h"
#include <halage/places.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 20000000u

void world_break(struct world *w, const char *what)
{
    w->broken = w->broken == NULL ? what : w->broken;
}

void world_event(struct node *n, struct hlg_event *event)
{
    if (hlg_pump_event(n->pump, event) != 0) {
        world_break(n->world, "the machine refused a sound event of the engine");
    }
}

static void on_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->ups++;
    } else if (notice->kind == HLG_NOTICE_PEER_DOWN || notice->kind == HLG_NOTICE_PEER_REFUSED) {
        world_break(n->world, "a session ended");
    } else if (n->index < PREFILLERS) {
        prefill_notice(n, notice);
    } else {
        decode_notice(n, notice);
    }
}

/* ---- Making ---- */

static void draw_limits(struct hlg_limits *limits)
{
    hlg_limits_default(limits);
    limits->peers_max = 4;
    limits->requests_max = 64;
    limits->sources_max = 1;
    limits->lanes_max = LANES_MAX;
    limits->rails_max = RAILS;
    limits->slices_max = 512;
    limits->forwards_max = 8;
    limits->chunks_max = 64;
    limits->ops_max = 48; /* small, as the window is, so that much waits and is offered in parts */
    limits->blocks_max = 256;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = 1u << 16;
    limits->window_pieces = 48;
    limits->lease_ns = 600 * HLG_NS_PER_S; /* a loaded machine is no dead peer */
    limits->heartbeat_ns = 50 * HLG_NS_PER_MS;
    limits->fence_ns = 600 * HLG_NS_PER_S;
}

static bool make_memory(struct node *n, uint64_t seed)
{
    struct hlg_rng rng = hlg_rng_seed(seed + n->index);

    n->lanes = hlg_layout_lanes(n->layout);
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        uint64_t bytes = 0;
        int count =
            hlg_places_linear(n->layout, lane, n->places + n->place_count, PLACES_MAX, &bytes);
        if (count < 0 || count > (int)PLACES_MAX) {
            return false;
        }
        n->place_count += (uint32_t)count;
        n->memory_bytes = bytes > n->memory_bytes ? bytes : n->memory_bytes;
    }
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        n->memory[lane] = malloc(n->memory_bytes);
        if (n->memory[lane] == NULL) {
            return false;
        }
        for (uint64_t i = 0; i < n->memory_bytes; i++) {
            n->memory[lane][i] = (uint8_t)(hlg_rng_next(&rng) & 0xffu);
        }
    }
    return true;
}

static bool make_pump(struct node *n, struct hlg_trace *trace)
{
    struct hlg_pump_region regions[LANES_MAX];
    struct hlg_limits limits;
    char error[256] = "";
    struct hlg_pump_config config = {.role =
                                         n->index < PREFILLERS ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE,
                                     .fabric = backend.fabric(n->index),
                                     .regions = regions,
                                     .region_count = n->lanes,
                                     .places = n->places,
                                     .place_count = n->place_count,
                                     .notice = on_notice,
                                     .context = n,
                                     .trace = trace};

    draw_limits(&limits);
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        regions[lane] = (struct hlg_pump_region){
            .lane = lane, .memory = HLG_MEM_HOST(n->memory[lane], n->memory_bytes)};
    }
    if (config.role == HLG_ROLE_PREFILL) {
        config.prefill = (struct hlg_prefill_config){.limits = limits,
                                                     .layout = *n->layout,
                                                     .rails = RAILS,
                                                     .node = n->index + 1,
                                                     .incarnation = n->index + 101};
    } else {
        config.decode = (struct hlg_decode_config){.limits = limits,
                                                   .layout = *n->layout,
                                                   .rails = RAILS,
                                                   .node = n->index + 1,
                                                   .incarnation = n->index + 101,
                                                   .flush = n->index % 2 == 0};
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        (void)fprintf(stderr, "node %u: %s\n", n->index, error);
        return false;
    }
    return true;
}

static bool connect_nodes(struct world *w)
{
    for (uint32_t d = PREFILLERS; d < NODES; d++) {
        for (uint32_t p = 0; p < PREFILLERS; p++) {
            struct hlg_channel *ours = NULL;
            struct hlg_channel *theirs = NULL;
            struct node *decoder = &w->nodes[d];
            struct node *prefiller = &w->nodes[p];
            if (!backend.connect(d, p, &ours, &theirs) ||
                hlg_pump_channel(decoder->pump, ours, true, &decoder->peers[p]) != 0 ||
                hlg_pump_channel(prefiller->pump, theirs, false, &prefiller->peers[d]) != 0) {
                return false;
            }
        }
    }
    return true;
}

static void make(struct world *w, const struct script *script, struct hlg_trace *const *traces)
{
    if (!backend.open(script->seed)) {
        world_break(w, "the network could not be opened");
        return;
    }
    for (uint32_t i = 0; i < OF_SCENE; i++) {
        w->jobs[i] = (struct job){.request = &w->scene->requests[i], .index = i};
    }
    for (uint32_t n = 0; n < NODES; n++) {
        struct node *node = &w->nodes[n];
        node->world = w;
        node->index = n;
        node->layout = &w->scene->layouts[n];
        if (!make_memory(node, script->seed) || !make_pump(node, traces[n])) {
            world_break(w, "a node could not be made");
            return;
        }
    }
    if (!connect_nodes(w)) {
        world_break(w, "the nodes could not be connected");
    }
}

/* ---- Running ---- */

static bool connected(const struct world *w)
{
    for (uint32_t n = 0; n < NODES; n++) {
        if (w->nodes[n].ups < (n < PREFILLERS ? DECODERS : PREFILLERS)) {
            return false;
        }
    }
    return true;
}

static bool all_over(const struct world *w)
{
    for (uint32_t i = 0; i < OF_SCENE; i++) {
        if (!w->jobs[i].over || !w->jobs[i].finished) {
            return false;
        }
    }
    for (uint32_t n = 0; n < PREFILLERS; n++) {
        if (w->nodes[n].forward.number != 0) {
            return false;
        }
    }
    return true;
}

static int turn(struct world *w)
{
    int work = 0;
    const bool up = connected(w);

    for (uint32_t n = 0; n < NODES && w->broken == NULL; n++) {
        struct node *node = &w->nodes[n];
        if (up && n < PREFILLERS) {
            prefill_act(node);
        } else if (up) {
            decode_act(node);
        }
        work += hlg_pump_step(node->pump);
        (void)hlg_pump_check(node->pump);
    }
    return work;
}

static void run(struct world *w)
{
    struct hlg_pump *pumps[NODES];

    for (uint32_t n = 0; n < NODES; n++) {
        pumps[n] = w->nodes[n].pump;
    }
    for (uint32_t i = 0; w->broken == NULL && !all_over(w); i++) {
        if (i == TURNS_MAX) {
            world_break(w, "the scene does not end");
            return;
        }
        if (turn(w) == 0) {
            backend.idle(pumps, NODES);
        }
    }
}

const char *world_run(const struct script *script, uint32_t scene, struct hlg_trace *const *traces)
{
    struct world *w = calloc(1, sizeof *w);

    if (w == NULL) {
        return "out of memory";
    }
    w->scene = &script->scenes[scene];
    make(w, script, traces);
    if (w->broken == NULL) {
        run(w);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        hlg_pump_destroy(w->nodes[n].pump);
    }
    backend.close();
    for (uint32_t n = 0; n < NODES; n++) {
        for (uint32_t lane = 0; lane < LANES_MAX; lane++) {
            free(w->nodes[n].memory[lane]);
        }
    }
    const char *broken = w->broken;
    free(w);
    return broken;
}
