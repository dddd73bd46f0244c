/* What a cost model rests on: the engine's constants, and a sentence about what was not measured. */
#include "calibration.h"
#include "cost_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const operator_names[SIM_OPERATOR_COUNT] = {
    "matrix products", "prompt attention", "decode attention",
    "experts",         "all-reduce",       "all-to-all"};

static const char *const engines[] = {"sglang", "trtllm", "vllm", "none"};

__attribute__((format(printf, 2, 3))) static void add(struct sim_cost_basis *basis,
                                                      const char *format, ...)
{
    const size_t used = strlen(basis->why);
    va_list arguments;

    if (used > 0 && used + 3 < sizeof basis->why) {
        (void)snprintf(basis->why + used, sizeof basis->why - used, "; ");
    }
    va_start(arguments, format);
    (void)vsnprintf(basis->why + strlen(basis->why), sizeof basis->why - strlen(basis->why), format,
                    arguments);
    va_end(arguments);
}

/* "matrix products, experts" of those that are marked. Returns whether any is. */
static bool list(const bool *marked, char *text, size_t capacity)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < SIM_OPERATOR_COUNT; i++) {
        const size_t used = strlen(text);
        if (marked[i]) {
            (void)snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "",
                           operator_names[i]);
        }
    }
    return text[0] != '\0';
}

static void describe(struct sim_cost *cost, const struct sim_operators *operators)
{
    struct sim_cost_basis *basis = &cost->basis;
    char names[128];

    if (!operators->measured) {
        basis->extrapolated = true;
        add(basis, "roofline asked for: nothing measured is used");
        return;
    }
    if (list(operators->missing, names, sizeof names)) {
        basis->extrapolated = true;
        add(basis, "no measured times on %s for %s: roofline", cost->gpu.name, names);
    }
    if (list(operators->related, names, sizeof names)) {
        basis->extrapolated = true;
        add(basis, "measured on another GPU than %s: %s", cost->gpu.name, names);
    }
    if (list(operators->stretched, names, sizeof names)) {
        add(basis, "scaled from another shape: %s", names);
    }
    if (list(operators->borrowed, names, sizeof names)) {
        basis->borrowed = true;
        add(basis, "measured with sglang 0.5.14: %s", names);
    }
}

/* The row of constants.tsv for this engine and mode, of this GPU if there is one; NULL: none. */
static const char *constants_row(const char *text, const char *engine, const char *mode,
                                 const char *gpu)
{
    const char *best = NULL;
    char prefix[64];

    (void)snprintf(prefix, sizeof prefix, "%s\t%s\t", engine, mode);
    for (const char *row = NULL; (row = sim_calibration_next(text, prefix, row)) != NULL;) {
        char of[32];
        sim_calibration_field(row, 2, of, sizeof of);
        if (strcmp(of, gpu) == 0) {
            return row;
        }
        best = best == NULL ? row : best;
    }
    return best;
}

static void take_constants(struct sim_cost *cost, const struct sim_cost_config *config)
{
    const char *text = sim_calibration_text("constants.tsv");
    const char *mode = cost->dp > 1 ? "dp" : "tp";
    const char *row = constants_row(text, cost->engine, mode, cost->gpu.name);
    struct sim_cost_basis *basis = &cost->basis;
    char version[24];
    char gpu[32];
    double ns[2];

    if (row == NULL) {
        basis->borrowed = true;
        add(basis, "no constant of %s with %s ranks: 0", cost->engine, mode);
        return;
    }
    sim_calibration_field(row, 2, gpu, sizeof gpu);
    sim_calibration_field(row, 3, version, sizeof version);
    (void)sim_calibration_numbers(row, 4, ns, 2);
    (void)snprintf(basis->engine, sizeof basis->engine, "%s %s", cost->engine, version);
    basis->layer_overhead_ns = ns[0];
    basis->step_overhead_ns = ns[1];
    if (strcmp(gpu, cost->gpu.name) != 0) {
        basis->borrowed = true;
        add(basis, "constants of %s on %s", cost->engine, gpu);
    }
    if (config->version != NULL && strcmp(config->version, version) != 0) {
        basis->is_stale = true;
        add(basis, "version %.20s asked for, constants are of %s %s", config->version, cost->engine,
            version);
    }
}

int sim_cost_ground(struct sim_cost *cost, const struct sim_cost_config *config,
                    const struct sim_operators *operators, char *text, size_t capacity)
{
    struct sim_cost_basis *basis = &cost->basis;
    bool is_known = false;

    for (uint32_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
        is_known |= config->engine != NULL && strcmp(config->engine, engines[i]) == 0;
    }
    if (!is_known) {
        (void)snprintf(text, capacity, "engine: '%.40s': write sglang, trtllm, vllm or none",
                       config->engine == NULL ? "" : config->engine);
        return -HLG_EINVAL;
    }
    sim_calibration_id(basis->id, sizeof basis->id);
    (void)snprintf(basis->engine, sizeof basis->engine, "%s", cost->engine);
    if (config->table != NULL) {
        basis->own_times = true;
        (void)snprintf(basis->id, sizeof basis->id, "none");
        (void)snprintf(basis->engine, sizeof basis->engine, "none");
        add(basis, "step times of %.280s", config->table);
        return 0;
    }
    describe(cost, operators);
    if (strcmp(cost->engine, "none") != 0 && !config->roofline) {
        take_constants(cost, config);
    }
    if (config->layer_overhead_ns >= 0.0) {
        basis->layer_overhead_ns = config->layer_overhead_ns;
    }
    if (config->step_overhead_ns >= 0.0) {
        basis->step_overhead_ns = config->step_overhead_ns;
    }
    cost->overhead_ns = basis->step_overhead_ns + cost->model.layers * basis->layer_overhead_ns;
    return 0;
}
