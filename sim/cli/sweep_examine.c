/* What is found out of a sweep before anything is run. */
#include "sweep_examine.h"

#include "plot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint64_t digest;
    uint32_t point;
};

static int by_digest(const void *left, const void *right)
{
    const struct place *const a = left;
    const struct place *const b = right;

    if (a->digest != b->digest) {
        return a->digest < b->digest ? -1 : 1;
    }
    return a->point < b->point ? -1 : a->point > b->point;
}

/* The same run twice is not an error, but nobody wants it. */
static void tell_equal(const char *program, struct place *places, uint32_t count)
{
    uint32_t equal = 0;
    const struct place *first = NULL;

    qsort(places, count, sizeof *places, by_digest);
    for (uint32_t i = 1; i < count; i++) {
        if (places[i].digest == places[i - 1].digest) {
            equal++;
            first = first == NULL || places[i].point < first->point ? &places[i] : first;
        }
    }
    if (first != NULL) {
        (void)options_error(program,
                            "note: %" PRIu32 " of %" PRIu32 " points repeat another; point %" PRIu32
                            " is the same as %" PRIu32,
                            equal, count, first->point, first[-1].point);
    }
}

static void name_outputs(const struct examine *examine, struct sim_outputs *outputs)
{
    sim_outputs_add(outputs, "--out", examine->folder, "sweep.tsv");
    sim_outputs_add(outputs, "--out", examine->folder, "sweep.json");
    for (size_t i = 0; examine->plot && sim_plot_sweep_files[i] != NULL; i++) {
        sim_outputs_add(outputs, "--plot", examine->folder, sim_plot_sweep_files[i]);
    }
    sim_outputs_add(outputs, "--json", examine->json_file, NULL);
}

static int examine_points(const struct examine *examine, struct sim_scenario *scenario,
                          const char **words, struct place *places, char *text, size_t capacity)
{
    struct sim_outputs outputs = {.count = 0};
    const uint32_t own = examine->overrides->count;
    int error = sim_scenario_read(scenario, examine->scenario, examine->overrides->list, own, text,
                                  capacity);

    if (error != 0) {
        return error;
    }
    sim_scenario_fini(scenario);
    name_outputs(examine, &outputs);
    memcpy(words, examine->overrides->list, own * sizeof *words);
    for (uint32_t i = 0; error == 0 && i < sim_sweep_count(examine->grid); i++) {
        const uint32_t count = own + sim_sweep_point(examine->grid, i, words + own);
        error = sim_scenario_read(scenario, examine->scenario, words, count, text, capacity);
        if (error != 0) {
            if (examine->from_line && strncmp(text, "-s: ", 4) == 0) {
                text[1] = 'g'; /* its words are read as overrides: say whose they are */
            }
            return error;
        }
        places[i] = (struct place){sim_scenario_digest(scenario), i};
        error = sim_outputs_check(&outputs, scenario, text, capacity);
        sim_scenario_fini(scenario);
    }
    return error;
}

int sweep_examine(const char *program, const struct examine *examine)
{
    char text[COMMAND_TEXT_BYTES] = "no memory";
    const uint32_t count = sim_sweep_count(examine->grid);
    struct sim_scenario *const scenario = calloc(1, sizeof *scenario);
    const char **const words =
        calloc((size_t)examine->overrides->count + SIM_SWEEP_OVERRIDES_MAX, sizeof *words);
    struct place *const places = calloc(count, sizeof *places);
    int error = -HLG_ENOMEM;

    if (scenario != NULL && words != NULL && places != NULL) {
        error = examine_points(examine, scenario, words, places, text, sizeof text);
    }
    if (error != 0) {
        (void)options_error(program, "%s", text);
    } else {
        tell_equal(program, places, count);
    }
    free(places);
    free(words);
    free(scenario);
    return error == 0 ? CLI_DONE : error == -HLG_ENOMEM ? CLI_FAILED : CLI_BAD_INPUT;
}
