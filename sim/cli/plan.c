/* `halage-sim plan`: which split of a budget of GPUs meets an SLO. */
#define _GNU_SOURCE /* strdup() */
#include "plan.h"

#include "output.h"
#include "pool.h"
#include "report.h"
#include "scenario_unit.h"
#include "sweep_run.h"

#include <stdlib.h>
#include <string.h>

enum key {
    KEY_SLO = COMMAND_KEY_OWN,
    KEY_RATE,
    KEY_GPUS,
    KEY_SHARE,
    KEY_JOBS,
    KEY_JSON,
    KEY_QUIET,
};

static const struct argp_option option_table[] = {
    COMMAND_SCENARIO_ROWS,
    {"slo", KEY_SLO, "ttft=T,tpot=T", 0, "What a request must meet, such as ttft=500ms,tpot=20ms",
     0},
    {"rate", KEY_RATE, "R", 0, "Requests that arrive, such as 12/s; default: the scenario's", 0},
    {"gpus", KEY_GPUS, "N", 0, "GPUs that there are for prefill and decode together", 0},
    {"share", KEY_SHARE, "SHARE", 0, "Of the requests that must meet the SLO; default: 90%", 0},
    {"jobs", KEY_JOBS, "N", 0, "Simulations at a time; default: the CPUs that there are", 0},
    {"json", KEY_JSON, "FILE", 0, "Write all results as JSON; - is stdout, text then to stderr", 0},
    {"quiet", KEY_QUIET, NULL, 0, "Show no progress", 0},
    {0},
};

/* "ttft=500ms,tpot=20ms", either or both. */
static error_t parse_slo(const struct argp_state *state, const char *text, struct plan *plan)
{
    char *const copy = strdup(text);
    char *rest = NULL;
    const char *wrong = copy == NULL ? "no memory" : NULL;

    for (char *word = copy == NULL ? NULL : strtok_r(copy, ",", &rest);
         word != NULL && wrong == NULL; word = strtok_r(NULL, ",", &rest)) {
        double *const bound = strncmp(word, "ttft=", 5) == 0   ? &plan->slo_ttft_ns
                              : strncmp(word, "tpot=", 5) == 0 ? &plan->slo_tpot_ns
                                                               : NULL;
        wrong = bound == NULL ? "write ttft=TIME,tpot=TIME"
                : *bound > 0  ? "one of them is there twice; keep one"
                              : sim_unit_parse(SIM_UNIT_NANOSECONDS, word + 5, bound);
        if (wrong == NULL && *bound <= 0) {
            wrong = "write a time above 0";
        }
    }
    free(copy);
    return wrong == NULL ? 0 : options_error(state->name, "--slo: '%s': %s", text, wrong);
}

static error_t parse_number(const struct argp_state *state, const char *option, enum sim_unit unit,
                            const char *text, double most, double *value)
{
    const char *const wrong = sim_unit_parse(unit, text, value);

    if (wrong != NULL) {
        return options_error(state->name, "%s: '%s': %s", option, text, wrong);
    }
    if (*value <= 0 || *value > most) {
        return options_error(state->name, "%s: '%s': write a number above 0, at most %g", option,
                             text, most);
    }
    return 0;
}

static error_t parse_end(const struct argp_state *state, const struct plan *plan)
{
    if (plan->gpus == 0) {
        return options_error(state->name, "say how many GPUs there are: --gpus N");
    }
    if (plan->slo_ttft_ns <= 0 && plan->slo_tpot_ns <= 0) {
        return options_error(state->name, "say what is wanted: --slo ttft=500ms,tpot=20ms");
    }
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct plan *plan = state->input;
    switch (key) {
    case KEY_SLO:
        return parse_slo(state, argument, plan);
    case KEY_RATE:
        return parse_number(state, "--rate", SIM_UNIT_RATE, argument, 1e9, &plan->rate);
    case KEY_SHARE:
        return parse_number(state, "--share", SIM_UNIT_SHARE, argument, 1, &plan->share);
    case KEY_GPUS:
        if (!options_u32(argument, &plan->gpus) || plan->gpus < 2 || plan->gpus > PLAN_GPUS_MAX) {
            return options_error(state->name, "--gpus: '%s': write a whole number, 2 to %u",
                                 argument, PLAN_GPUS_MAX);
        }
        return 0;
    case KEY_JOBS:
        return points_jobs(state->name, argument, &plan->jobs);
    case KEY_JSON:
        plan->json_file = argument;
        return 0;
    case KEY_QUIET:
        plan->quiet = true;
        return 0;
    case ARGP_KEY_END: {
        const error_t error = parse_end(state, plan);
        return error != 0 ? error : command_scenario_parse(&plan->command, key, argument, state);
    }
    default: /* the many other keys of argp */
        return command_scenario_parse(&plan->command, key, argument, state);
    }
}

/* ---- What every point of the plan sets ---- */

static void add_word(struct plan *plan, const char *key, enum sim_unit unit, double value)
{
    char number[SIM_UNIT_TEXT_BYTES];
    char *const word = plan->words[plan->word_count];

    sim_unit_print(unit, value, number);
    (void)snprintf(word, PLAN_WORD_BYTES, "%s=%s", key, number);
    plan->base[plan->base_count++] = word;
    plan->word_count++;
}

static void set_base(struct plan *plan)
{
    points_overrides(&plan->command, &plan->overrides);
    for (uint32_t i = 0; i < plan->overrides.count; i++) {
        plan->base[plan->base_count++] = plan->overrides.list[i];
    }
    if (plan->rate > 0) {
        add_word(plan, "traffic.arrivals.rate", SIM_UNIT_RATE, plan->rate);
    }
    if (plan->slo_ttft_ns > 0) {
        add_word(plan, "measure.slo_ttft", SIM_UNIT_NANOSECONDS, plan->slo_ttft_ns);
    }
    if (plan->slo_tpot_ns > 0) {
        add_word(plan, "measure.slo_tpot", SIM_UNIT_NANOSECONDS, plan->slo_tpot_ns);
    }
}

uint32_t plan_overrides(const struct plan *plan, const struct plan_row *row,
                        char words[3][PLAN_WORD_BYTES], const char **list)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < plan->base_count; i++) {
        list[count++] = plan->base[i];
    }
    if (row->colocated) {
        (void)snprintf(words[0], PLAN_WORD_BYTES, "serving=colocated");
        (void)snprintf(words[1], PLAN_WORD_BYTES, "colocated.nodes=%u", row->prefill);
    } else {
        (void)snprintf(words[0], PLAN_WORD_BYTES, "serving=disaggregated");
        (void)snprintf(words[1], PLAN_WORD_BYTES, "prefill.nodes=%u", row->prefill);
        (void)snprintf(words[2], PLAN_WORD_BYTES, "decode.nodes=%u", row->decode);
        list[count + 2] = words[2];
    }
    list[count] = words[0];
    list[count + 1] = words[1];
    return count + (row->colocated ? 2 : 3);
}

/* ---- Simulating the rows ---- */

struct simulation {
    struct plan *plan;
    struct command_progress *progress;
    uint32_t due;
    uint32_t over;
};

static json_t *work(void *context, uint32_t index)
{
    const struct simulation *simulation = context;
    const struct plan *plan = simulation->plan;
    const char *list[PLAN_OVERRIDES_MAX];
    char words[3][PLAN_WORD_BYTES];
    const uint32_t count = plan_overrides(plan, &plan->rows[index], words, list);

    return sim_point_run(plan->command.path, list, count);
}

static int done(void *context, uint32_t index, json_t *result, const char *sentence)
{
    struct simulation *simulation = context;

    simulation->over++;
    plan_judge(simulation->plan, &simulation->plan->rows[index], result, sentence);
    command_progress_show(simulation->progress, simulation->over, simulation->due, "simulations");
    return 0;
}

/* Simulate the rows from `from` on. Returns 0 or an error. */
static int simulate_rows(struct simulation *simulation, uint32_t from)
{
    const struct plan *plan = simulation->plan;
    uint32_t due[PLAN_ROWS_MAX + PLAN_MIXED_MAX];
    uint32_t count = 0;
    const struct sim_pool pool = {.jobs = plan->jobs,
                                  .work = work,
                                  .done = done,
                                  .context = simulation,
                                  .stopped = command_interrupted};

    for (uint32_t i = from; i < plan->row_count; i++) {
        if (plan->rows[i].simulated) {
            due[count++] = i;
        }
    }
    simulation->due += count;
    return count == 0 ? 0 : sim_pool_run(&pool, due, count);
}

static int simulate(const char *program, struct plan *plan)
{
    struct command_progress progress;
    struct simulation simulation = {.plan = plan, .progress = &progress};

    command_catch_signals();
    command_progress_begin(&progress, program, plan->quiet);
    int error = simulate_rows(&simulation, 0);
    if (error == 0) {
        const uint32_t from = plan->row_count;
        plan_match_colocated(plan);
        error = simulate_rows(&simulation, from);
    }
    while (error == 0 && plan_narrow_colocated(plan)) {
        error = simulate_rows(&simulation, plan->row_count - 1);
    }
    command_progress_end(&progress);
    if (error != 0 && error != -HLG_ECANCELED) {
        (void)options_error(program, "%s", hlg_error_text(error));
        return CLI_FAILED;
    }
    return error == 0 ? CLI_DONE : CLI_INTERRUPTED;
}

static int write_json(FILE *file, void *context)
{
    json_t *const json = plan_json(context);
    const int error = json == NULL ? -HLG_ENOMEM : sim_report_json_write(file, json);

    json_decref(json);
    return error;
}

static int tell(const char *program, struct plan *plan, int status)
{
    char text[COMMAND_TEXT_BYTES];
    FILE *const out =
        plan->json_file != NULL && strcmp(plan->json_file, "-") == 0 ? stderr : stdout;

    plan_text(out, plan);
    const bool printed = command_printed(program, out);
    if (plan->json_file != NULL &&
        sim_report_file(plan->json_file, write_json, plan, text, sizeof text) != 0) {
        (void)options_error(program, "--json: %s", text);
        return CLI_FAILED;
    }
    if (!printed) {
        return CLI_FAILED;
    }
    if (status != CLI_DONE) {
        return status;
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].broken) {
            return CLI_FAILED;
        }
    }
    return plan->best == NULL ? CLI_INFEASIBLE : CLI_DONE;
}

int command_plan(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "SCENARIO",
        .doc =
            "Find the split of N GPUs into prefill and decode nodes, of the scenario's kinds, that "
            "meets an SLO at a rate: by formulas first, then by simulation, beside co-located "
            "nodes on as many GPUs, and on as few as do. tp, dp and ep are the scenario's: they "
            "are "
            "not searched.\vA row meets the SLO when the share of its requests that do is "
            "at least --share and its queue does not grow. Exit status: 0 something is feasible, "
            "1 failed, 2 bad input, 3 nothing is feasible, 130 interrupted.",
    };
    struct plan *const plan = calloc(1, sizeof *plan);
    char text[COMMAND_TEXT_BYTES] = "";

    if (plan == NULL) {
        (void)options_error(argv[0], "no memory");
        return CLI_FAILED;
    }
    plan->share = 0.9;
    plan->jobs = sim_pool_cpus();
    if (options_parse(&options, argc, argv, 0, plan) != 0) {
        free(plan);
        return CLI_BAD_INPUT;
    }
    set_base(plan);
    struct sim_outputs outputs = {.count = 0};
    int status = plan_prepare(plan, text, sizeof text);
    sim_outputs_add(&outputs, "--json", plan->json_file, NULL);
    if (status == CLI_DONE && sim_outputs_check(&outputs, plan->scenario, text, sizeof text) != 0) {
        status = CLI_BAD_INPUT;
    }
    if (status != CLI_DONE) {
        (void)options_error(argv[0], "%s", text);
    } else {
        status = simulate(argv[0], plan);
        plan->interrupted = status == CLI_INTERRUPTED;
        plan_choose(plan);
        status = tell(argv[0], plan, status);
    }
    plan_fini(plan);
    free(plan);
    return status;
}
