#include "claims.h"

#include <stdlib.h>
#include <string.h>

#define R1    "assumptions.yaml"
#define MIXED "serving=colocated"

/* Co-located nodes at 3/s have the load of the 1 + 3 nodes; at 4/s, 1/s each: the article says neither. */
static const struct claims_part parts[] = {
    {"r1", R1, NULL, CLAIMS_AS_IS, 0},
    {"r1", R1, NULL, CLAIMS_ROOFLINE, 0},
    {"r1", R1, NULL, CLAIMS_SLOW_NIC, 0},
    {"r1-mixed", R1, MIXED, CLAIMS_AS_IS, 0},
    {"r1-mixed", R1, MIXED, CLAIMS_ROOFLINE, 0},
    {"r1-mixed", R1, MIXED, CLAIMS_WHOLE, 0},
    {"r1-mixed", R1, MIXED, CLAIMS_SMALL, 0},
    {"r1-mixed-4", R1, MIXED " traffic.arrivals.rate=4/s", CLAIMS_AS_IS, 0},
    {"dp", "r1-dp.yaml", NULL, CLAIMS_AS_IS, 0},
    {"dp", "r1-dp.yaml", NULL, CLAIMS_ROOFLINE, 4},
    {"dp", "r1-dp.yaml", NULL, CLAIMS_SLOW_NIC, 4},
    {"qwen", "qwen3-coder.yaml", NULL, CLAIMS_AS_IS, 0},
    {"qwen", "qwen3-coder.yaml", NULL, CLAIMS_ROOFLINE, 0},
    {"qwen", "qwen3-coder.yaml", NULL, CLAIMS_SLOW_NIC, 0},
};

uint32_t claims_part_count(void)
{
    return sizeof parts / sizeof parts[0];
}

const struct claims_part *claims_part(uint32_t index)
{
    HLG_ASSERT(index < claims_part_count());
    return &parts[index];
}

static const struct sim_engine *first_engine(const struct sim_scenario *scenario)
{
    return scenario->serving == SIM_SERVING_COLOCATED ? &scenario->colocated.engine
                                                      : &scenario->prefill.engine;
}

/* R1: three prompts by two outputs, one draft token, SGLang. One cell of each of the others. */
bool claims_in_corner(const struct claims_part *part, const struct sim_scenario *scenario)
{
    const uint32_t prompt = scenario->traffic.drawn.prompt.tokens_min;
    const uint32_t output = scenario->traffic.drawn.output.tokens_min;
    const bool mixed = scenario->serving == SIM_SERVING_COLOCATED;
    const uint32_t drafts = mixed ? scenario->colocated.draft : scenario->decode.draft;

    if (strcmp(first_engine(scenario)->name, "sglang") != 0) {
        return false;
    }
    if (strcmp(part->deployment, "dp") == 0) {
        return prompt == 1024 && output == 250 && drafts == 1 && scenario->prefill.nodes == 4;
    }
    if (strcmp(part->deployment, "qwen") == 0) {
        return scenario->decode.nodes == 3 && output == 400 &&
               scenario->traffic.drawn.arrivals.rate_rps == 4.0;
    }
    return drafts == 1 && (output == 500 || output == 1000) &&
           (prompt == 2048 || prompt == 4096 || prompt == 6144);
}

static void fail(const char *sentence)
{
    (void)fprintf(stderr, "halage-claims: %s\n", sentence);
    exit(1);
}

static void control(enum claims_control what, struct sim_scenario *scenario)
{
    switch (what) {
    case CLAIMS_AS_IS:
        break;
    case CLAIMS_ROOFLINE:
        scenario->prefill.engine.roofline = true;
        scenario->decode.engine.roofline = true;
        scenario->colocated.engine.roofline = true;
        break;
    case CLAIMS_SLOW_NIC:
        scenario->network.nic.bandwidth /= 10.0;
        scenario->network.nic.op_ps *= 10;
        break;
    case CLAIMS_WHOLE:
        scenario->colocated.chunked = false;
        break;
    case CLAIMS_SMALL:
        scenario->colocated.budget_tokens = 2048;
        break;
    }
}

/* Split the part's own overrides at spaces, in place. */
static uint32_t split(char *text, const char *words[], uint32_t count_max)
{
    uint32_t count = 0;

    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        HLG_ASSERT(count < count_max);
        words[count++] = word;
    }
    return count;
}

bool claims_read(const struct claims_part *part, const char *folder, const struct sim_sweep *sweep,
                 uint32_t point, struct sim_scenario *scenario)
{
    char path[SIM_PATH_MAX];
    char own[128];
    char text[1024];
    const char *words[4 + SIM_SWEEP_OVERRIDES_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", folder, part->file);
    (void)snprintf(own, sizeof own, "%s", part->override == NULL ? "" : part->override);
    uint32_t count = split(own, words, 4);
    count += sim_sweep_point(sweep, point, words + count);
    if (sim_scenario_read(scenario, path, words, count, text, sizeof text) != 0) {
        fail(text);
    }
    control(part->control, scenario);
    if (part->prefill_nodes != 0 && scenario->prefill.nodes != part->prefill_nodes) {
        sim_scenario_fini(scenario);
        return false;
    }
    return true;
}
