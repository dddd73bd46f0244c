#include "scenario.h"

#include "scenario_key.h"

#include <halage/base.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the numbers come from that neither the article nor a catalogue gives: docs/simulation.md. */
static void default_engine(struct sim_engine *engine)
{
    *engine = (struct sim_engine){
        .name = "sglang",
        .gpus = 8,
        .tp = 8,
        .dp = 1,
        .ep = 1,
        .kv = SIM_BF16,
        .step_overhead_ns = -1,
        .layer_overhead_ns = -1,
        .memory_fraction = 0.88,
        .page_tokens = 64,
        .arrangement = HLG_HND,
        .requests_max = 512,
        /* vLLM 0.15.1 takes 15.6 ms to take in a request: BLIS's fit, coefficients of its README. */
        .ingest_ns = 15600000,
        .dispatch_ns = 1 * HLG_NS_PER_MS,
    };
}

static void default_traffic(struct sim_traffic *traffic)
{
    *traffic = (struct sim_traffic){
        .kind = SIM_WORKLOAD_DRAWN,
        .drawn =
            {
                .arrivals = {.kind = SIM_ARRIVALS_POISSON,
                             .rate_rps = 3,
                             .cv = 1,
                             .burst_requests = 8,
                             .users = 8,
                             .pause_ns = 0},
                .prompt = {.kind = SIM_LENGTHS_FIXED,
                           .tokens_min = 4096,
                           .tokens_max = 4096,
                           .mean = 4096,
                           .cv = 1},
                .output = {.kind = SIM_LENGTHS_FIXED,
                           .tokens_min = 500,
                           .tokens_max = 500,
                           .mean = 500,
                           .cv = 1},
                .count = 2000,
            },
        .format = "mooncake",
        .begin_ns = 0,
        .limit_ns = 86400 * HLG_NS_PER_S,
        .period_ns = 600 * HLG_NS_PER_S,
        .speed = 1,
    };
}

static void default_serving(struct sim_scenario *scenario)
{
    default_engine(&scenario->prefill.engine);
    default_engine(&scenario->decode.engine);
    default_engine(&scenario->colocated.engine);
    scenario->serving = SIM_SERVING_DISAGGREGATED;
    scenario->prefill.nodes = 1;
    scenario->prefill.budget_tokens = 8192;
    scenario->prefill.chunked = true;
    scenario->prefill.forwards = 2;
    scenario->prefill.prefix_cache = true;
    scenario->prefill.layerwise = true;
    scenario->decode.nodes = 3;
    scenario->decode.sequences_max = 256;
    scenario->decode.policy = SIM_KV_RESERVE;
    scenario->decode.last_token = true;
    scenario->colocated.nodes = 4;
    scenario->colocated.budget_tokens = 8192;
    scenario->colocated.chunked = true;
    scenario->colocated.sequences_max = 256;
    scenario->colocated.policy = SIM_KV_RESERVE;
    scenario->colocated.prefix_cache = true;
}

/* What a catalogue has must be there: this is a programmer's error, not a user's. */
static void set_name(struct sim_scenario *scenario, const char *path, const char *value)
{
    char text[512];
    const struct sim_key_source source = {.name = "default"};
    const int result = sim_key_set(scenario, sim_key_find(path), value, &source, text, sizeof text);
    HLG_ASSERT(result == 0);
}

void sim_scenario_default(struct sim_scenario *scenario)
{
    *scenario = (struct sim_scenario){
        .name = "r1-h200-1p3d",
        .question = "Can one prefill node of DeepSeek-R1 on H200 keep three decode nodes busy?",
        .seed = 1,
        .prefill_routing = SIM_ROUTING_LEAST_LOADED,
        .decode_routing = SIM_ROUTING_LEAST_LOADED,
        .routing_load_weight = 1,
        .measure =
            {
                .window_ns = HLG_TIME_NEVER,
                .warmup_requests = 200,
                .stop_ns = HLG_TIME_NEVER,
            },
        .network =
            {
                .fold = true,
                .fold_auto = true,
                .oversubscription = 1,
                .message_ns = 20000,
                .fence_domains = 1024,
                .context_bytes = 0,
            },
    };
    default_serving(scenario);
    default_traffic(&scenario->traffic);
    set_name(scenario, "node", "hgx-h200");
    set_name(scenario, "model.name", "DeepSeek-R1");
}

void sim_scenario_fini(struct sim_scenario *scenario)
{
    for (uint32_t i = 0; i < 2; i++) {
        free(scenario->traffic.cdfs[i]);
        scenario->traffic.cdfs[i] = NULL;
    }
    scenario->traffic.drawn.prompt.cdf = NULL;
    scenario->traffic.drawn.output.cdf = NULL;
}

/* FNV-1a, with the final zero of text, so that neighbours do not run together. */
static void add_text(uint64_t *hash, const char *text)
{
    do {
        *hash = (*hash ^ (unsigned char)*text) * 0x100000001b3ull;
    } while (*text++ != '\0');
}

static bool in_section(const struct sim_key *key, const char *section)
{
    const size_t bytes = strlen(section);
    return strncmp(key->path, section, bytes) == 0 && key->path[bytes] == '.';
}

bool sim_key_matters(const struct sim_scenario *scenario, const struct sim_key *key)
{
    const bool drawn = scenario->traffic.kind == SIM_WORKLOAD_DRAWN;
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    if ((key->flags & (SIM_KEY_LABEL | SIM_KEY_ALIAS)) != 0 || key->kind == SIM_KEY_NODE ||
        key->kind == SIM_KEY_CONFIG) {
        return false;
    }
    if (in_section(key, "prefill") || in_section(key, "decode") || in_section(key, "network")) {
        return !colocated;
    }
    if (in_section(key, "colocated")) {
        return colocated;
    }
    if (in_section(key, "traffic.trace")) {
        return !drawn;
    }
    if (in_section(key, "traffic.servegen")) {
        return scenario->traffic.kind == SIM_WORKLOAD_SERVEGEN;
    }
    if (in_section(key, "traffic.arrivals") || in_section(key, "traffic.prompt") ||
        in_section(key, "traffic.output") || strcmp(key->path, "traffic.requests") == 0) {
        return drawn;
    }
    return true;
}

uint64_t sim_scenario_digest(const struct sim_scenario *scenario)
{
    char text[SIM_KEY_TEXT_BYTES];
    uint64_t hash = 0xcbf29ce484222325ull;
    for (uint32_t i = 0; i < sim_key_count; i++) {
        if (sim_key_matters(scenario, &sim_keys[i])) {
            sim_key_print(scenario, &sim_keys[i], text);
            add_text(&hash, sim_keys[i].path);
            add_text(&hash, text);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        (void)snprintf(text, sizeof text, "%llx",
                       (unsigned long long)scenario->model.window_bits[i]);
        add_text(&hash, text);
    }
    for (uint32_t i = 0; i < scenario->fault_count; i++) {
        const char *field = NULL;
        for (uint32_t k = 0; (field = sim_key_fault_field(k)) != NULL; k++) {
            sim_key_print_fault(&scenario->faults[i], field, text, sizeof text);
            add_text(&hash, text);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct sim_cdf *const cdf = scenario->traffic.cdfs[i];
        for (uint32_t k = 0; cdf != NULL && k < cdf->count; k++) {
            (void)snprintf(text, sizeof text, "%u %.17g", cdf->points[k].tokens,
                           cdf->points[k].share);
            add_text(&hash, text);
        }
    }
    return hash;
}
