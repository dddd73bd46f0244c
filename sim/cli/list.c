/* `halage-sim list`: the catalogues and the keys. */
#include "calibration.h"
#include "command.h"
#include "report.h"
#include "scenario_key.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES  96u
#define COLUMNS_MAX 10u
#define GIB         1073741824.0

struct request {
    const char *what;
    const char *json_file; /* NULL: none; "-": stdout */
};

/* One row as text, and as JSON; rows end where `make` returns NULL. */
struct list {
    const char *name;
    const char *columns; /* apart by spaces */
    json_t *(*make)(uint32_t index, const struct sim_scenario *scenario,
                    char cells[COLUMNS_MAX][CELL_BYTES]);
};

__attribute__((format(printf, 2, 3))) static void cell(char *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(out, CELL_BYTES, format, arguments);
    va_end(arguments);
}

static json_t *make_model(uint32_t index, const struct sim_scenario *scenario,
                          char cells[COLUMNS_MAX][CELL_BYTES])
{
    const struct sim_model *const model = sim_model_at(index);
    (void)scenario;
    if (model == NULL) {
        return NULL;
    }
    const bool latent = model->attention == SIM_ATTENTION_MLA;
    const uint64_t parameters = sim_model_parameters(model);
    const uint64_t active = sim_model_active_parameters(model);
    const uint64_t bytes = sim_model_weight_bytes(model, model->weights);
    const uint64_t kv = sim_model_kv_bytes_per_token(model, SIM_BF16);
    cell(cells[0], "%s", model->name);
    cell(cells[1], "%.1f", (double)parameters / 1e9);
    cell(cells[2], "%.1f", (double)active / 1e9);
    cell(cells[3], "%" PRIu32, model->layers);
    cell(cells[4], "%s", latent ? "mla" : "gqa");
    cell(cells[5], "%" PRIu32, model->kv_heads);
    cell(cells[6], "%s", sim_dtype_name(model->weights));
    cell(cells[7], "%.1f", (double)bytes / GIB);
    cell(cells[8], "%" PRIu64, kv);
    cell(cells[9], "%" PRIu32, model->max_context);
    return json_pack("{s:s, s:I, s:I, s:i, s:s, s:i, s:s, s:I, s:I, s:i}", "name", model->name,
                     "parameters", (json_int_t)parameters, "active_parameters", (json_int_t)active,
                     "layers", (int)model->layers, "attention", latent ? "mla" : "gqa", "kv_heads",
                     (int)model->kv_heads, "weights", sim_dtype_name(model->weights),
                     "weight_bytes", (json_int_t)bytes, "kv_bytes_per_token_bf16", (json_int_t)kv,
                     "max_context", (int)model->max_context);
}

static json_t *make_gpu(uint32_t index, const struct sim_scenario *scenario,
                        char cells[COLUMNS_MAX][CELL_BYTES])
{
    const struct sim_gpu *const gpu = sim_gpu_at(index);
    (void)scenario;
    if (gpu == NULL) {
        return NULL;
    }
    cell(cells[0], "%s", gpu->name);
    cell(cells[1], "%.0f", gpu->bf16_flops / 1e12);
    cell(cells[2], "%.0f", gpu->fp8_flops / 1e12);
    cell(cells[3], "%.0f", gpu->fp4_flops / 1e12);
    cell(cells[4], "%.2f", gpu->hbm_bandwidth / 1e12);
    cell(cells[5], "%.1f", (double)gpu->hbm_bytes / GIB);
    cell(cells[6], "%.0f", gpu->scaleup_bandwidth / 1e9);
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:s}", "name", gpu->name,
                     "bf16_flops", gpu->bf16_flops, "fp8_flops", gpu->fp8_flops, "fp4_flops",
                     gpu->fp4_flops, "hbm_bandwidth", gpu->hbm_bandwidth, "hbm_bytes",
                     (json_int_t)gpu->hbm_bytes, "scaleup_bandwidth", gpu->scaleup_bandwidth,
                     "pcie_bandwidth", gpu->pcie_bandwidth, "source", gpu->source);
}

static json_t *make_nic(uint32_t index, const struct sim_scenario *scenario,
                        char cells[COLUMNS_MAX][CELL_BYTES])
{
    const struct sim_nic *const nic = sim_nic_at(index);
    (void)scenario;
    if (nic == NULL) {
        return NULL;
    }
    cell(cells[0], "%s", nic->name);
    cell(cells[1], "%.1f", nic->bandwidth / 125e6);
    cell(cells[2], "%.0f", nic->line_rate / 125e6);
    cell(cells[3], "%.1f", (double)nic->op_ps / 1e3);
    cell(cells[4], "%.3f", (double)nic->latency_ns / 1e3);
    cell(cells[5], "%" PRIu32, nic->pieces_max);
    return json_pack("{s:s, s:f, s:f, s:I, s:I, s:i, s:s}", "name", nic->name, "bandwidth",
                     nic->bandwidth, "line_rate", nic->line_rate, "operation_ps",
                     (json_int_t)nic->op_ps, "latency_ns", (json_int_t)nic->latency_ns,
                     "pieces_max", (int)nic->pieces_max, "source", nic->source);
}

static json_t *make_node(uint32_t index, const struct sim_scenario *scenario,
                         char cells[COLUMNS_MAX][CELL_BYTES])
{
    const struct sim_node_preset *const node = sim_node_preset_at(index);
    (void)scenario;
    if (node == NULL) {
        return NULL;
    }
    cell(cells[0], "%s", node->name);
    cell(cells[1], "%s", node->gpu);
    cell(cells[2], "%" PRIu32, node->gpus);
    cell(cells[3], "%s", node->nic);
    cell(cells[4], "%" PRIu32, node->nics_per_gpu);
    return json_pack("{s:s, s:s, s:i, s:s, s:i, s:s}", "name", node->name, "gpu", node->gpu, "gpus",
                     (int)node->gpus, "nic", node->nic, "nics_per_gpu", (int)node->nics_per_gpu,
                     "source", node->source);
}

static json_t *make_engine(uint32_t index, const struct sim_scenario *scenario,
                           char cells[COLUMNS_MAX][CELL_BYTES])
{
    const char *const text = sim_calibration_text("constants.tsv");
    const char *row = sim_calibration_next(text, "", NULL);
    char source[512];
    double ns[2] = {0};
    (void)scenario;
    for (uint32_t i = 0; row != NULL && i < index; i++) {
        row = sim_calibration_next(text, "", row);
    }
    if (row == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < 4; i++) {
        sim_calibration_field(row, i, cells[i], CELL_BYTES);
    }
    (void)sim_calibration_numbers(row, 4, ns, 2);
    sim_calibration_field(row, 6, source, sizeof source);
    cell(cells[4], "%.1f", ns[0] / 1e3);
    cell(cells[5], "%.1f", ns[1] / 1e3);
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:s}", "name", cells[0], "mode", cells[1],
                     "gpu", cells[2], "version", cells[3], "layer_overhead_ns", ns[0],
                     "step_overhead_ns", ns[1], "source", source);
}

static const char *unit_name(enum sim_unit unit)
{
    switch (unit) {
    case SIM_UNIT_NONE:
        return "number";
    case SIM_UNIT_SHARE:
        return "share";
    case SIM_UNIT_NANOSECONDS:
    case SIM_UNIT_PICOSECONDS:
        return "time";
    case SIM_UNIT_RATE:
        return "rate";
    case SIM_UNIT_BANDWIDTH:
        return "bandwidth";
    case SIM_UNIT_BYTES:
        return "bytes";
    }
    hlg_unreachable();
}

/* What a key takes, in words: "time or never". */
static void print_taken(const struct sim_key *key, char out[CELL_BYTES])
{
    const char *taken = "whole number";
    size_t used = 0;
    switch ((enum sim_key_kind)key->kind) {
    case SIM_KEY_COUNT:
    case SIM_KEY_WIDE:
        taken = key->unit == SIM_UNIT_NONE ? taken : unit_name(key->unit);
        break;
    case SIM_KEY_REAL:
    case SIM_KEY_TIME:
        taken = unit_name(key->unit);
        break;
    case SIM_KEY_BOOL:
        taken = "true or false";
        break;
    case SIM_KEY_FOLD:
        taken = "never, always or auto";
        break;
    case SIM_KEY_LIST:
        taken = "list of shares";
        break;
    case SIM_KEY_EXTENDS:
    case SIM_KEY_CONFIG:
    case SIM_KEY_CDF:
        taken = "file";
        break;
    case SIM_KEY_TEXT:
    case SIM_KEY_NODE:
    case SIM_KEY_MODEL:
    case SIM_KEY_GPU:
    case SIM_KEY_NIC:
        taken = "text";
        break;
    case SIM_KEY_SCHEMA:
    case SIM_KEY_DRAFT:
    case SIM_KEY_TOKENS:
        break;
    case SIM_KEY_WORD:
        for (uint32_t i = 0; key->words[i] != NULL && used < CELL_BYTES; i++) {
            const char *const joint = i == 0 ? "" : key->words[i + 1] == NULL ? " or " : ", ";
            used += (size_t)snprintf(out + used, CELL_BYTES - used, "%s%s", joint, key->words[i]);
        }
        return;
    }
    cell(out, "%s%s%s", taken, key->word == NULL ? "" : " or ", key->word == NULL ? "" : key->word);
}

static json_t *make_key(uint32_t index, const struct sim_scenario *scenario,
                        char cells[COLUMNS_MAX][CELL_BYTES])
{
    char value[SIM_KEY_TEXT_BYTES];
    if (index >= sim_key_count) {
        return NULL;
    }
    const struct sim_key *const key = &sim_keys[index];
    sim_key_print(scenario, key, value);
    cell(cells[0], "%s", key->path);
    print_taken(key, cells[1]);
    cell(cells[2], "%.40s", value);
    cell(cells[3], "%s", key->comment);
    return json_pack("{s:s, s:s, s:s, s:s, s:b}", "key", key->path, "takes", cells[1], "default",
                     value, "meaning", key->comment, "derived",
                     (key->flags & SIM_KEY_DERIVED) != 0);
}

static const struct list lists[] = {
    {"models", "name params/G active/G layers kv kv_heads weights weights/GiB kv_B/token context",
     make_model},
    {"gpus", "name bf16/TF fp8/TF fp4/TF HBM/TB/s memory/GiB scale-up/GB/s", make_gpu},
    {"nics", "name bandwidth/Gbit/s line/Gbit/s piece/ns latency/us pieces_max", make_nic},
    {"nodes", "name gpu gpus nic nics_per_gpu", make_node},
    {"engines", "name mode gpu version layer/us step/us", make_engine},
    {"keys", "key takes default meaning", make_key},
};

#define LISTS (sizeof lists / sizeof lists[0])

enum key {
    KEY_JSON = 0x100,
};

static const struct argp_option option_table[] = {
    {"json", KEY_JSON, "FILE", 0, "Write JSON, with sources; - is stdout, text then to stderr", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (request->what != NULL) {
            return options_error(state->name, "'%s': name one list", argument);
        }
        request->what = argument;
        return 0;
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

/* Widths first, then all rows; the last column is as wide as it likes. */
static void print_list(FILE *out, const struct list *list, const struct sim_scenario *scenario)
{
    char heads[COLUMNS_MAX][CELL_BYTES] = {{0}};
    char cells[COLUMNS_MAX][CELL_BYTES];
    size_t widths[COLUMNS_MAX] = {0};
    uint32_t columns = 0;
    json_t *row = NULL;
    for (const char *at = list->columns; *at != '\0'; columns++) {
        const size_t bytes = strcspn(at, " ");
        HLG_ASSERT(columns < COLUMNS_MAX && bytes < CELL_BYTES);
        memcpy(heads[columns], at, bytes);
        widths[columns] = bytes;
        at += bytes + (at[bytes] == ' ' ? 1 : 0);
    }
    for (uint32_t i = 0; (row = list->make(i, scenario, cells)) != NULL; i++) {
        for (uint32_t k = 0; k < columns; k++) {
            widths[k] = strlen(cells[k]) > widths[k] ? strlen(cells[k]) : widths[k];
        }
        json_decref(row);
    }
    for (uint32_t k = 0; k < columns; k++) {
        (void)fprintf(out, "%-*s%s", k + 1 == columns ? 0 : (int)widths[k], heads[k],
                      k + 1 == columns ? "\n" : "  ");
    }
    for (uint32_t i = 0; (row = list->make(i, scenario, cells)) != NULL; i++) {
        for (uint32_t k = 0; k < columns; k++) {
            (void)fprintf(out, "%-*s%s", k + 1 == columns ? 0 : (int)widths[k], cells[k],
                          k + 1 == columns ? "\n" : "  ");
        }
        json_decref(row);
    }
}

static int write_json(FILE *file, void *context)
{
    return sim_report_json_write(file, context);
}

static int show(const char *program, const struct request *request, const struct list *list,
                const struct sim_scenario *scenario)
{
    const bool on_stdout = request->json_file != NULL && strcmp(request->json_file, "-") == 0;
    char text[COMMAND_TEXT_BYTES];
    char cells[COLUMNS_MAX][CELL_BYTES];
    json_t *row = NULL;
    print_list(on_stdout ? stderr : stdout, list, scenario);
    if (!command_printed(program, on_stdout ? stderr : stdout)) {
        return CLI_FAILED;
    }
    if (request->json_file == NULL) {
        return CLI_DONE;
    }
    json_t *const rows = json_array();
    for (uint32_t i = 0; (row = list->make(i, scenario, cells)) != NULL; i++) {
        (void)json_array_append_new(rows, row);
    }
    json_t *const root = json_pack("{s:s, s:o}", "version", sim_version(), list->name, rows);
    const int result =
        root == NULL ? -HLG_EIO
                     : sim_report_file(request->json_file, write_json, root, text, sizeof text);
    json_decref(root);
    if (result < 0) {
        (void)options_error(program, "--json: %s", text);
        return CLI_FAILED;
    }
    return CLI_DONE;
}

int command_list(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "models|gpus|nics|nodes|engines|keys",
        .doc = "Print a catalogue: what scenarios may name; or the keys of scenario files.\vExit "
               "status: 0 done, 1 not written, 2 bad options.",
    };
    struct request request = {0};
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    for (size_t i = 0; request.what != NULL && i < LISTS; i++) {
        if (strcmp(lists[i].name, request.what) == 0) {
            struct sim_scenario *const scenario = malloc(sizeof *scenario);
            if (scenario == NULL) {
                (void)options_error(argv[0], "no memory");
                return CLI_FAILED;
            }
            sim_scenario_default(scenario);
            const int status = show(argv[0], &request, &lists[i], scenario);
            sim_scenario_fini(scenario);
            free(scenario);
            return status;
        }
    }
    if (request.what == NULL) {
        (void)options_error(argv[0], "name a list: models, gpus, nics, nodes, engines or keys");
    } else {
        (void)options_error(argv[0], "'%s': write models, gpus, nics, nodes, engines or keys",
                            request.what);
    }
    return CLI_BAD_INPUT;
}
