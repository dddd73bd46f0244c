/* `halage-sim check`: whether scenarios can be run, before they are. */
#include "command.h"
#include "output.h"
#include "report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 2000u /* of a sweep that are all looked at */
#define NOTES_MAX  5u
#define MANY_PAIRS 65536u
#define PAIR_KIB   42u

struct request {
    const char *files[COMMAND_OVERRIDES_MAX];
    uint32_t file_count;
    struct command_scenario scenario;
    const char *json_file; /* NULL: none; "-": stdout */
    bool values;
};

enum key {
    KEY_JSON = COMMAND_KEY_OWN,
    KEY_VALUES,
};

static const struct argp_option option_table[] = {
    COMMAND_SCENARIO_ROWS,
    {"values", KEY_VALUES, NULL, 0,
     "Print a scenario file of every key with its effective value, text then to stderr", 0},
    {"json", KEY_JSON, "FILE", 0, "Write the results as JSON; - is stdout, text then to stderr", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case KEY_VALUES:
        request->values = true;
        return 0;
    case ARGP_KEY_ARG:
        if (request->file_count == COMMAND_OVERRIDES_MAX) {
            return options_error(state->name, "at most %u scenarios", COMMAND_OVERRIDES_MAX);
        }
        request->files[request->file_count++] = argument;
        return 0;
    case ARGP_KEY_END:
        return request->file_count > 0
                   ? 0
                   : options_error(state->name, "name at least one scenario file");
    default: /* the many other keys of argp */
        return command_scenario_parse(&request->scenario, key, argument, state);
    }
}

static bool on_stdout(const struct request *request)
{
    return request->json_file != NULL && strcmp(request->json_file, "-") == 0;
}

static void print_engine(FILE *out, const char *name, uint32_t nodes,
                         const struct sim_engine *engine, uint64_t kv_tokens)
{
    (void)fprintf(out,
                  "  %s: %" PRIu32 " node%s of %" PRIu32 " x %s, TP %" PRIu32 ", DP %" PRIu32
                  ", EP %" PRIu32 ", %s; %s%" PRIu64 " tokens of KV for each DP rank\n",
                  name, nodes, nodes == 1 ? "" : "s", engine->gpus, engine->gpu, engine->tp,
                  engine->dp, engine->ep, engine->name,
                  engine->kv_tokens != 0 ? "given, not computed: " : "", kv_tokens);
}

/* Measured with R1, folded: 42 KiB at 256 x 256 and at 384 x 384 nodes. */
static void print_memory(FILE *out, const struct sim_scenario *scenario)
{
    const uint64_t pairs = (uint64_t)scenario->prefill.nodes * scenario->decode.nodes;

    if (scenario->serving == SIM_SERVING_DISAGGREGATED && pairs >= MANY_PAIRS) {
        (void)fprintf(out,
                      "  note: connections of %" PRIu32 " x %" PRIu32
                      " nodes take some %.0f GiB of memory to run\n",
                      scenario->prefill.nodes, scenario->decode.nodes,
                      (double)pairs * PAIR_KIB / (1 << 20));
    }
}

/* A sequence as long as the model allows does not always fit; requests that are served may be shorter. */
static void print_context(FILE *out, const struct sim_scenario *scenario, uint64_t kv_tokens)
{
    if (kv_tokens < scenario->model.max_context) {
        (void)fprintf(out,
                      "  note: a sequence of model.max_context %" PRIu32
                      " tokens does not fit; an engine must be told to take at most %" PRIu64 "\n",
                      scenario->model.max_context, kv_tokens);
    }
}

static void print_network(FILE *out, const struct sim_scenario *scenario,
                          const uint64_t kv_tokens[2])
{
    const char *const obstacle = sim_fold_obstacle(scenario, kv_tokens);
    (void)fprintf(out, "  network: %" PRIu32 " x %s for each GPU, ", scenario->network.nics_per_gpu,
                  scenario->network.nic.name);
    if (!scenario->network.fold && !scenario->network.fold_auto) {
        (void)fputs("not folded, as the scenario says\n", out);
    } else if (obstacle == NULL) {
        (void)fputs("folded\n", out);
    } else {
        (void)fprintf(out, "not folded: %s\n", obstacle);
    }
}

static void print_trace(FILE *out, const struct sim_scenario *scenario)
{
    struct sim_workload workload = {0};
    char text[COMMAND_TEXT_BYTES];

    if (scenario->traffic.kind == SIM_WORKLOAD_TRACE && scenario->traffic.count_max != 0 &&
        sim_scenario_workload(scenario, &workload, text, sizeof text) == 0) {
        command_note_trace(out, "  ", scenario, &workload);
        sim_workload_fini(&workload);
    }
}

static void print_good(FILE *out, const struct sim_scenario *scenario, const uint64_t kv_tokens[2])
{
    (void)fprintf(out, "%s: good\n", scenario->path);
    (void)fprintf(out, "  question: %s\n", scenario->question);
    (void)fprintf(out, "  digest: %016" PRIx64 "\n", sim_scenario_digest(scenario));
    (void)fprintf(out, "  model: %s\n", scenario->model.name);
    if (scenario->serving == SIM_SERVING_COLOCATED) {
        print_engine(out, "colocated", scenario->colocated.nodes, &scenario->colocated.engine,
                     kv_tokens[0]);
    } else {
        print_engine(out, "prefill", scenario->prefill.nodes, &scenario->prefill.engine,
                     kv_tokens[0]);
        print_engine(out, "decode", scenario->decode.nodes, &scenario->decode.engine, kv_tokens[1]);
        print_network(out, scenario, kv_tokens);
    }
    print_context(out, scenario, kv_tokens[1]);
    print_memory(out, scenario);
    print_trace(out, scenario);
}

/* Every point of the grid: read, then asked whether it can be run. What cannot is a note: that is what a
 * sweep finds out. Returns an enum cli_exit. */
static int check_sweep(FILE *out, const struct request *request, const char *file,
                       uint32_t *point_count, char *text, size_t capacity)
{
    struct sim_sweep sweep = {0};
    const char *overrides[SIM_SWEEP_OVERRIDES_MAX];
    uint32_t bad = 0;
    struct command_scenario command = request->scenario;
    command.path = file;
    if (sim_scenario_sweep(file, &sweep, text, capacity) < 0) {
        return CLI_BAD_INPUT;
    }
    *point_count = sweep.point_count;
    struct sim_scenario *const scenario = malloc(sizeof *scenario);
    int status = scenario == NULL ? CLI_FAILED : CLI_DONE;
    for (uint32_t i = 0; status == CLI_DONE && i < hlg_min_u32(sweep.point_count, POINTS_MAX);
         i++) {
        const uint32_t count = sim_sweep_point(&sweep, i, overrides);
        status = command_scenario_read(&command, overrides, count, scenario, text, capacity);
        if (status == CLI_DONE) {
            if (sim_scenario_check(scenario, NULL, text, capacity) < 0 && bad++ < NOTES_MAX) {
                (void)fprintf(out, "  note: point %" PRIu32 " of the sweep cannot be run: %s\n", i,
                              text);
            }
            sim_scenario_fini(scenario);
        }
    }
    if (status == CLI_DONE && sweep.point_count > 0) {
        (void)fprintf(out, "  sweep: %" PRIu32 " points, %" PRIu32 " of %s cannot be run\n",
                      sweep.point_count, bad,
                      sweep.point_count > POINTS_MAX ? "the first 2000" : "them");
    }
    free(scenario);
    sim_sweep_fini(&sweep);
    return status;
}

/* What the run would refuse, too. */
static bool refuse_fold(const struct sim_scenario *scenario, const uint64_t kv_tokens[2],
                        char *text, size_t capacity)
{
    if (scenario->serving == SIM_SERVING_COLOCATED || !scenario->network.fold ||
        scenario->network.fold_auto) {
        return false;
    }
    const char *const obstacle = sim_fold_obstacle(scenario, kv_tokens);
    if (obstacle != NULL) {
        (void)snprintf(text, capacity, "%s: network.fold: not exact here, %s; write auto or never",
                       scenario->path, obstacle);
    }
    return obstacle != NULL;
}

static int check_one(FILE *out, const struct request *request, const char *file, json_t *results,
                     char *text, size_t capacity)
{
    uint64_t kv_tokens[2] = {0};
    uint32_t points = 0;
    struct command_scenario command = request->scenario;
    command.path = file;
    struct sim_scenario *const scenario = malloc(sizeof *scenario);
    int status = CLI_FAILED;
    if (scenario != NULL) {
        status = command_scenario_read(&command, NULL, 0, scenario, text, capacity);
    }
    if (status == CLI_DONE) {
        if (sim_scenario_check(scenario, kv_tokens, text, capacity) < 0 ||
            refuse_fold(scenario, kv_tokens, text, capacity)) {
            status = CLI_BAD_INPUT;
        } else {
            print_good(out, scenario, kv_tokens);
            status = check_sweep(out, request, file, &points, text, capacity);
        }
        if (status == CLI_DONE && request->values) {
            (void)sim_scenario_write(scenario, false, on_stdout(request) ? stderr : stdout);
        }
        if (status == CLI_DONE) {
            char digest[24];
            (void)snprintf(digest, sizeof digest, "%016" PRIx64, sim_scenario_digest(scenario));
            (void)json_array_append_new(
                results, json_pack("{s:s, s:b, s:s, s:s, s:s, s:[I, I], s:I}", "file", file, "good",
                                   1, "name", scenario->name, "question", scenario->question,
                                   "digest", digest, "kv_tokens", (json_int_t)kv_tokens[0],
                                   (json_int_t)kv_tokens[1], "sweep_points", (json_int_t)points));
        }
        sim_scenario_fini(scenario);
    }
    if (status != CLI_DONE) {
        (void)json_array_append_new(
            results, json_pack("{s:s, s:b, s:s}", "file", file, "good", 0, "error", text));
    }
    free(scenario);
    return status;
}

static int write_json(FILE *file, void *context)
{
    return sim_report_json_write(file, context);
}

/* Whether the JSON would replace one of the files, or one that they name. Returns an enum cli_exit. */
static int check_output(const struct request *request, char *text, size_t capacity)
{
    struct sim_outputs outputs = {.count = 0};
    struct sim_scenario *const scenario = malloc(sizeof *scenario);
    int status = scenario == NULL ? CLI_FAILED : CLI_DONE;

    sim_outputs_add(&outputs, "--json", request->json_file, NULL);
    for (uint32_t i = 0; status == CLI_DONE && outputs.count != 0 && i < request->file_count; i++) {
        struct command_scenario command = request->scenario;
        command.path = request->files[i];
        if (command_scenario_read(&command, NULL, 0, scenario, text, capacity) != CLI_DONE) {
            sim_scenario_default(scenario); /* told later; its own file is known */
            (void)snprintf(scenario->path, sizeof scenario->path, "%s", command.path);
        }
        if (sim_outputs_check(&outputs, scenario, text, capacity) != 0) {
            status = CLI_BAD_INPUT;
        }
        sim_scenario_fini(scenario);
    }
    free(scenario);
    return status;
}

int command_check(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "SCENARIO...",
        .doc = "Say of each scenario whether it can be run: keys, units, ranges, memory, the plan "
               "between prefill and decode, its requests; and of its sweep.\vExit status: 0 all "
               "good, 1 a file could not be written, 2 one cannot be run.",
    };
    struct request request = {0};
    char text[COMMAND_TEXT_BYTES] = "no memory";
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    /* With --values stdout is a scenario file. */
    FILE *const out = on_stdout(&request) || request.values ? stderr : stdout;
    int status = check_output(&request, text, sizeof text);
    if (status != CLI_DONE) {
        (void)options_error(argv[0], "%s", text);
        return status;
    }
    json_t *const results = json_array();
    for (uint32_t i = 0; i < request.file_count; i++) {
        const int one = check_one(out, &request, request.files[i], results, text, sizeof text);
        if (one != CLI_DONE) {
            (void)fflush(out);
            (void)options_error(argv[0], "%s", text);
            status = one;
        }
    }
    if (request.json_file != NULL) {
        json_t *const root =
            json_pack("{s:s, s:O}", "version", sim_version(), "scenarios", results);
        if (root == NULL ||
            sim_report_file(request.json_file, write_json, root, text, sizeof text) < 0) {
            (void)options_error(argv[0], "--json: %s", root == NULL ? "no memory" : text);
            status = CLI_FAILED;
        }
        json_decref(root);
    }
    json_decref(results);
    return command_printed(argv[0], stdout) && command_printed(argv[0], stderr) ? status
                                                                                : CLI_FAILED;
}
