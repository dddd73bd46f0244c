#include "claims.h"

#include <halage/plan.h>

#include <stdlib.h>

#define SLICES_MAX 65536u
#define TOKENS     4096u
#define KV_TOKENS  65536u

static void fail(const char *sentence)
{
    (void)fprintf(stderr, "halage-claims: %s\n", sentence);
    exit(1);
}

static uint64_t count(const struct hlg_layout *source, const struct hlg_layout *target)
{
    struct hlg_plan plan;
    struct hlg_refusal why;
    uint32_t pages[HLG_GROUPS_MAX] = {0};
    struct hlg_slice *slices = calloc(SLICES_MAX, sizeof *slices);

    if (slices == NULL || hlg_plan_build(&plan, slices, SLICES_MAX, source, target, &why) != 0) {
        fail("the plan of Qwen3-Coder cannot be made");
    }
    for (uint32_t group = 0; group < source->group_count; group++) {
        pages[group] = hlg_layout_pages(source, group, TOKENS - 1);
    }
    const uint64_t pieces = hlg_plan_pieces(&plan, 0, HLG_NONE, pages, HLG_GROUP_PAGED);
    free(slices);
    return pieces;
}

void claims_pieces(const char *folder, FILE *out)
{
    static const uint32_t ranks[][2] = {{8, 8}, {4, 8}, {8, 4}, {4, 4}};
    char path[SIM_PATH_MAX];
    char text[1024];
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);

    (void)snprintf(path, sizeof path, "%s/qwen3-coder.yaml", folder);
    if (scenario == NULL || sim_scenario_read(scenario, path, NULL, 0, text, sizeof text) != 0) {
        fail(scenario == NULL ? "no memory for a scenario" : text);
    }
    for (uint32_t i = 0; i < 2 * (sizeof ranks / sizeof ranks[0]); i++) {
        const bool nhd = i % 2 != 0;
        struct sim_engine source = scenario->prefill.engine;
        struct sim_engine target = scenario->decode.engine;
        struct hlg_layout layouts[2];
        source.tp = source.gpus = ranks[i / 2][0];
        target.tp = target.gpus = ranks[i / 2][1];
        source.arrangement = target.arrangement = nhd ? HLG_NHD : HLG_HND;
        if (sim_scenario_layout(scenario, &source, KV_TOKENS, &layouts[0], text, sizeof text) !=
                0 ||
            sim_scenario_layout(scenario, &target, KV_TOKENS, &layouts[1], text, sizeof text) !=
                0) {
            fail(text);
        }
        (void)fprintf(out, "# pieces\t%s\t%u\t%u\t%llu\n", nhd ? "NHD" : "HND", source.tp,
                      target.tp, (unsigned long long)count(&layouts[0], &layouts[1]));
    }
    sim_scenario_fini(scenario);
    free(scenario);
}
