/* Whether a scenario can be run: what no single key can say. */
#include "scenario.h"
#include "scenario_file.h"
#include "scenario_key.h"
#include "scenario_path.h"
#include "yaml_file.h"

#include <halage/plan.h>
#include <halage/refusal.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCE_BYTES 512u
#define KEY_BYTES      96u
#define SLICES_MAX     (1u << 18)
#define BANDWIDTH_MIN  10.0 /* bytes/s of a slow NIC: the network wants one at least */

struct check {
    const struct sim_scenario *scenario;
    char *text;
    size_t capacity;
};

/* "tp: 3: why" of the section "decode": of the key "decode.tp", that is. Returns the sentence behind it. */
static const char *whole_key(const char *section, const char *sentence, char key[static KEY_BYTES])
{
    const size_t bytes = strcspn(sentence, ": ");
    (void)snprintf(key, KEY_BYTES, "%s.%.*s", section, (int)bytes, sentence);
    if (sim_key_find(section) == NULL && strncmp(sentence + bytes, ": ", 2) == 0 &&
        sim_key_find(key) != NULL) {
        return sentence + bytes + 2;
    }
    (void)snprintf(key, KEY_BYTES, "%s", section);
    return sentence;
}

/* The file of the scenario's chain that gives a value; the scenario itself where that is not known. */
static void file_of(const struct sim_scenario *scenario, uint8_t whence, char path[SIM_PATH_MAX])
{
    struct sim_file_chain *const chain = whence > 1 ? malloc(sizeof *chain) : NULL;
    char text[64];
    (void)snprintf(path, SIM_PATH_MAX, "%s", scenario->path);
    if (chain != NULL && sim_file_load(chain, scenario->path, text, sizeof text) == 0) {
        if (whence <= chain->count) {
            (void)snprintf(path, SIM_PATH_MAX, "%s", chain->paths[whence - 1]);
        }
        sim_file_free(chain);
    }
    free(chain);
}

/* "file: line N: key: sentence", the line being the value's; of a value that no file gives, "-s key" or
 * "key (default)". */
__attribute__((format(printf, 3, 4))) static int
refuse(const struct check *check, const char *section, const char *format, ...)
{
    const struct sim_scenario *const scenario = check->scenario;
    const bool named = scenario->path[0] != '\0';
    char sentence[SENTENCE_BYTES];
    char key[KEY_BYTES];
    char path[SIM_PATH_MAX];
    char place[32] = "";
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    const char *const rest = whole_key(section, sentence, key);
    const struct sim_key *const known = sim_key_find(key);
    const uint8_t whence = known == NULL ? 1 : scenario->whence[known - sim_keys];
    const bool given = whence == SIM_WHENCE_OVERRIDE;
    file_of(scenario, given ? 0 : whence, path);
    const uint32_t line = named && !given && whence != 0 ? yaml_file_line(path, key) : 0;
    if (line != 0) {
        (void)snprintf(place, sizeof place, "line %" PRIu32 ": ", line);
    }
    (void)snprintf(check->text, check->capacity, "%s%s%s%s%s%s: %s", path, named ? ": " : "", place,
                   given ? "-s " : "", key, whence == 0 ? " (default)" : "", rest);
    return -HLG_EINVAL;
}

/* Every value would be taken from a file, too. */
static int check_ranges(const struct check *check)
{
    const struct sim_key_source source = {.name = check->scenario->path};
    char value[SIM_KEY_TEXT_BYTES];
    struct sim_scenario *const copy = malloc(sizeof *copy);
    int result = copy == NULL ? -HLG_ENOMEM : 0;
    if (copy != NULL) {
        *copy = *check->scenario;
    }
    for (uint32_t i = 0; result == 0 && i < sim_key_count; i++) {
        const struct sim_key *const key = &sim_keys[i];
        const enum sim_key_kind kind = key->kind;
        const bool number = kind == SIM_KEY_COUNT || kind == SIM_KEY_WIDE || kind == SIM_KEY_REAL ||
                            kind == SIM_KEY_TIME;
        if (number && sim_key_matters(check->scenario, key)) {
            sim_key_print(check->scenario, key, value);
            result = sim_key_set(copy, key, value, &source, check->text, check->capacity);
        }
    }
    free(copy);
    return result;
}

static int check_shape(const struct check *check, const char *section,
                       const struct sim_engine *engine)
{
    char key[48];
    const struct sim_node_preset *const node = sim_node_preset_find(check->scenario->node);
    (void)snprintf(key, sizeof key, "%s.tp", section);
    if (engine->gpus != engine->tp * engine->dp || engine->gpus > SIM_GPUS_MAX) {
        return refuse(check, key,
                      "tp %" PRIu32 " * dp %" PRIu32 ": write at most %u GPUs for a node",
                      engine->tp, engine->dp, SIM_GPUS_MAX);
    }
    if (node != NULL && engine->gpus > node->gpus) {
        return refuse(check, key,
                      "tp %" PRIu32 " * dp %" PRIu32 " GPUs: a node %s has %" PRIu32
                      "; write less, or node: none",
                      engine->tp, engine->dp, node->name, node->gpus);
    }
    (void)snprintf(key, sizeof key, "%s.ep", section);
    if (engine->ep != 1 && engine->ep != engine->gpus) {
        return refuse(check, key, "%" PRIu32 ": write 1, or tp * dp = %" PRIu32, engine->ep,
                      engine->gpus);
    }
    return 0;
}

int sim_scenario_cost(const struct sim_scenario *scenario, const struct sim_engine *engine,
                      struct sim_cost **cost, char *text, size_t capacity)
{
    char table[SIM_PATH_MAX];
    const struct sim_gpu *const gpu = sim_gpu_find(engine->gpu);
    if (gpu == NULL) {
        (void)snprintf(text, capacity, "gpu: '%s': unknown; see halage-sim list gpus", engine->gpu);
        return -HLG_EINVAL;
    }
    if (engine->table[0] != '\0' && !sim_path_find(scenario->path, engine->table, table)) {
        (void)snprintf(text, capacity,
                       "table: '%s': there is no such file beside the scenario or in HALAGE_DATA",
                       engine->table);
        return -HLG_EIO;
    }
    const struct sim_cost_config config = {
        .model = &scenario->model,
        .gpu = gpu,
        .engine = engine->name,
        .version = engine->version[0] == '\0' ? NULL : engine->version,
        .weights = engine->weights,
        .kv = engine->kv,
        .tp = engine->tp,
        .dp = engine->dp,
        .ep = engine->ep,
        .roofline = engine->roofline,
        .table = engine->table[0] == '\0' ? NULL : table,
        .step_overhead_ns = engine->step_overhead_ns,
        .layer_overhead_ns = engine->layer_overhead_ns,
    };
    return sim_cost_create(&config, cost, text, capacity);
}

int sim_scenario_kv_tokens(const struct sim_engine *engine, const struct sim_cost *cost,
                           uint64_t *tokens, char *text, size_t capacity)
{
    const uint64_t room = engine->kv_tokens != 0
                              ? engine->kv_tokens
                              : sim_cost_kv_tokens(cost, engine->memory_fraction, text, capacity);
    if (room == 0) {
        return -HLG_EINVAL;
    }
    *tokens = room;
    return 0;
}

int sim_scenario_layout(const struct sim_scenario *scenario, const struct sim_engine *engine,
                        uint64_t kv_tokens, struct hlg_layout *layout, char *text, size_t capacity)
{
    const int result = sim_model_layout(&scenario->model, engine->kv, engine->tp, engine->dp,
                                        engine->page_tokens, engine->arrangement,
                                        scenario->network.context_bytes, layout, text, capacity);
    if (result < 0) {
        return result;
    }
    const uint64_t pages = kv_tokens / engine->page_tokens; /* a part of a page is no page */
    for (uint32_t group = 0; group < layout->group_count; group++) {
        layout->groups[group].page_count =
            layout->groups[group].kind == HLG_GROUP_CONTEXT
                ? engine->requests_max
                : (uint32_t)(pages < UINT32_MAX ? pages : UINT32_MAX);
    }
    return 0;
}

/* An engine's own: shape, costs, memory. */
static int check_engine(const struct check *check, const char *section,
                        const struct sim_engine *engine, uint64_t *kv_tokens)
{
    char sentence[SENTENCE_BYTES] = "no memory";
    struct sim_cost *cost = NULL;
    int result = check_shape(check, section, engine);
    if (result < 0) {
        return result;
    }
    result = sim_scenario_cost(check->scenario, engine, &cost, sentence, sizeof sentence);
    if (result == 0) {
        result = sim_scenario_kv_tokens(engine, cost, kv_tokens, sentence, sizeof sentence);
        sim_cost_destroy(cost);
    }
    return result < 0 ? refuse(check, section, "%s", sentence) : 0;
}

static int check_plan(const struct check *check, const uint64_t kv_tokens[2])
{
    const struct sim_scenario *const scenario = check->scenario;
    const struct sim_engine *const engines[2] = {&scenario->prefill.engine,
                                                 &scenario->decode.engine};
    static const char *const sections[2] = {"prefill", "decode"};
    struct hlg_layout layouts[2];
    struct hlg_plan plan;
    struct hlg_refusal why = {.code = HLG_REFUSAL_SLICES};
    char sentence[SENTENCE_BYTES];
    for (uint32_t side = 0; side < 2; side++) {
        if (sim_scenario_layout(scenario, engines[side], kv_tokens[side], &layouts[side], sentence,
                                sizeof sentence) < 0) {
            return refuse(check, sections[side], "%s", sentence);
        }
    }
    for (uint32_t slices_max = 4096; slices_max <= SLICES_MAX && why.code == HLG_REFUSAL_SLICES;
         slices_max *= 4) {
        struct hlg_slice *const slices = calloc(slices_max, sizeof *slices);
        if (slices == NULL) {
            return -HLG_ENOMEM;
        }
        const int result =
            hlg_plan_build(&plan, slices, slices_max, &layouts[0], &layouts[1], &why);
        free(slices);
        if (result == 0) {
            return 0;
        }
    }
    (void)hlg_refusal_text(&why, sentence, sizeof sentence);
    return refuse(check, "prefill", "its pages cannot be planned into decode's: %s", sentence);
}

static int check_accept(const struct check *check, const char *key, uint32_t draft,
                        const double accept[SIM_DRAFT_MAX])
{
    for (uint32_t i = 1; i < draft; i++) {
        if (accept[i] > accept[i - 1]) {
            return refuse(check, key,
                          "%g after %g: a step that accepts %" PRIu32 " tokens accepts %" PRIu32
                          ", too; write shares that never rise",
                          accept[i], accept[i - 1], i + 1, i);
        }
    }
    return 0;
}

static int check_fault(const struct check *check, uint32_t index)
{
    const struct sim_scenario *const scenario = check->scenario;
    const struct sim_fault *const fault = &scenario->faults[index];
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    const uint32_t nodes = colocated       ? scenario->colocated.nodes
                           : fault->decode ? scenario->decode.nodes
                                           : scenario->prefill.nodes;
    const struct sim_engine *const engine =
        fault->decode ? &scenario->decode.engine : &scenario->prefill.engine;
    const uint32_t nics = engine->gpus * scenario->network.nics_per_gpu;
    char key[48];
    (void)snprintf(key, sizeof key, "faults.%" PRIu32 ".node", index);
    if (colocated && fault->decode) {
        return refuse(check, key, "role decode: co-located nodes have role colocated");
    }
    if (fault->node >= nodes) {
        return refuse(check, key, "%" PRIu32 ": there are nodes 0 to %" PRIu32, fault->node,
                      nodes - 1);
    }
    (void)snprintf(key, sizeof key, "faults.%" PRIu32 ".nic", index);
    const bool on_nic = fault->kind == SIM_FAULT_SLOW || fault->kind == SIM_FAULT_LINK;
    if (on_nic && colocated) {
        return refuse(check, key, "co-located nodes send no KV over NICs; take the fault away");
    }
    if (on_nic && fault->nic != HLG_NONE && fault->nic >= nics) {
        return refuse(check, key, "%" PRIu32 ": a node has NICs 0 to %" PRIu32, fault->nic,
                      nics - 1);
    }
    (void)snprintf(key, sizeof key, "faults.%" PRIu32 ".factor", index);
    if (fault->kind == SIM_FAULT_SLOW && fault->factor == 0) {
        return refuse(check, key, "0: write more than 0, or kind: link");
    }
    const double bandwidth =
        scenario->network.nic.bandwidth * (1 - (double)scenario->network.nic.background_ppm / 1e6);
    if (fault->kind == SIM_FAULT_SLOW && fault->factor * bandwidth < BANDWIDTH_MIN) {
        return refuse(check, key,
                      "%g: leaves a NIC %g bytes/s; write a larger share, or kind: link",
                      fault->factor, fault->factor * bandwidth);
    }
    if (fault->kind == SIM_FAULT_LINK && fault->factor != 0 && fault->factor != 1) {
        return refuse(check, key, "%g: a link is down, 0, or up again, 1", fault->factor);
    }
    return 0;
}

/* The longest request that can be drawn. */
static void bound_lengths(const struct sim_lengths *lengths, uint32_t *longest)
{
    *longest = lengths->kind == SIM_LENGTHS_FIXED ? lengths->tokens_min : lengths->tokens_max;
    if (lengths->kind == SIM_LENGTHS_EMPIRICAL && lengths->cdf != NULL) {
        const uint32_t last = lengths->cdf->points[lengths->cdf->count - 1].tokens;
        *longest = hlg_max_u32(lengths->tokens_min, hlg_min_u32(*longest, last));
    }
}

struct longest {
    uint32_t prompt;
    uint32_t prompt_request; /* HLG_NONE: of the distribution */
    uint64_t both;           /* prompt and output of one request */
    uint32_t both_request;
};

static void measure(const struct sim_workload *workload, struct longest *longest)
{
    *longest = (struct longest){0};
    for (uint32_t i = 0; i < workload->count; i++) {
        const struct sim_workload_request *const request = &workload->requests[i];
        const uint64_t both = (uint64_t)request->prompt_tokens + request->output_tokens;
        if (request->prompt_tokens > longest->prompt) {
            longest->prompt = request->prompt_tokens;
            longest->prompt_request = i;
        }
        if (both > longest->both) {
            longest->both = both;
            longest->both_request = i;
        }
    }
}

static bool holds(uint64_t kv_tokens, uint32_t page_tokens, uint64_t tokens)
{
    return (tokens + page_tokens - 1) / page_tokens <= kv_tokens / page_tokens;
}

/* What makes room in an engine. */
static const char *room_remedy(const struct sim_engine *engine)
{
    return engine->kv_tokens != 0 ? "its kv_tokens" : "its memory_fraction or tp";
}

static int check_longest(const struct check *check, const struct longest *longest,
                         const uint64_t kv_tokens[2])
{
    const struct sim_scenario *const scenario = check->scenario;
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;
    const struct sim_engine *const first =
        colocated ? &scenario->colocated.engine : &scenario->prefill.engine;
    const struct sim_engine *const second =
        colocated ? &scenario->colocated.engine : &scenario->decode.engine;
    char who[32] = "of the longest request";
    if (longest->both_request != HLG_NONE) {
        (void)snprintf(who, sizeof who, "of request %" PRIu32, longest->both_request);
    }
    if (longest->both > scenario->model.max_context) {
        return refuse(check, "traffic",
                      "prompt and answer %s have %" PRIu64
                      " tokens, and model.max_context is %" PRIu32 "; write shorter ones",
                      who, longest->both, scenario->model.max_context);
    }
    if (!holds(kv_tokens[1], second->page_tokens, longest->both)) {
        return refuse(check, "traffic",
                      "prompt and answer %s have %" PRIu64
                      " tokens, and a DP rank of %s has room for %" PRIu64
                      "; write shorter ones, or raise %s",
                      who, longest->both, colocated ? "colocated" : "decode", kv_tokens[1],
                      room_remedy(second));
    }
    if (!holds(kv_tokens[0], first->page_tokens, longest->prompt)) {
        return refuse(
            check, "traffic",
            "the longest prompt has %" PRIu32 " tokens, and a DP rank of %s has room for %" PRIu64
            "; write a shorter one, or raise %s",
            longest->prompt, colocated ? "colocated" : "prefill", kv_tokens[0], room_remedy(first));
    }
    return 0;
}

/* Somebody must be left to measure. */
static int check_warmup(const struct check *check, uint32_t count)
{
    const uint32_t warmup = check->scenario->measure.warmup_requests;
    if (warmup < count) {
        return 0;
    }
    return refuse(check, "measure.warmup_requests",
                  "%" PRIu32 ": the scenario has %" PRIu32
                  " requests; write less, or more requests",
                  warmup, count);
}

static bool measures_by_time(const struct sim_measure *measure)
{
    return measure->warmup_ns != 0 || measure->window_ns != HLG_TIME_NEVER ||
           measure->stop_ns != HLG_TIME_NEVER;
}

/* Of an open loop it is known before the run when its requests arrive. Where users, or the end of the
 * warm-up, decide that, the run tells. */
static int check_measured(const struct check *check, const struct sim_workload *workload)
{
    const struct sim_measure *const measure = &check->scenario->measure;
    const hlg_time limit =
        hlg_min_time(hlg_time_after(measure->warmup_ns, measure->window_ns), measure->stop_ns);
    hlg_time first = HLG_TIME_NEVER;
    hlg_time last = 0;

    if (workload->users != 0 || measure->drain_warmup || !measures_by_time(measure)) {
        return 0;
    }
    for (uint32_t i = measure->warmup_requests; i < workload->count; i++) {
        const hlg_time at = workload->requests[i].arrival_ns;
        if (at >= measure->warmup_ns && at < limit) {
            return 0;
        }
        first = hlg_min_time(first, at);
        last = at > last ? at : last;
    }
    const char *const key = last < measure->warmup_ns   ? "measure.warmup"
                            : measure->stop_ns <= limit ? "measure.stop"
                                                        : "measure.window";
    return refuse(check, key,
                  "nothing would be measured: after the first %" PRIu32
                  " requests (measure.warmup_requests) they arrive from %.6g s to %.6g s, and "
                  "measured is from %.6g s to %.6g s; ask for more requests, or change it",
                  measure->warmup_requests, (double)first / 1e9, (double)last / 1e9,
                  (double)measure->warmup_ns / 1e9, (double)limit / 1e9);
}

/* First by the distributions' bounds, which cost nothing; then, where these are too long, by what is
 * drawn. */
static int check_traffic(const struct check *check, const uint64_t kv_tokens[2])
{
    const struct sim_scenario *const scenario = check->scenario;
    const struct sim_workload_config *const drawn = &scenario->traffic.drawn;
    const bool is_drawn = scenario->traffic.kind == SIM_WORKLOAD_DRAWN;
    struct sim_workload workload = {0};
    struct longest longest = {.prompt_request = HLG_NONE, .both_request = HLG_NONE};
    if (is_drawn) {
        if (check_warmup(check, drawn->count) < 0) {
            return -HLG_EINVAL;
        }
        struct sim_scenario one = *scenario;
        uint32_t output = 0;
        one.traffic.drawn.count = 1;
        const int result = sim_scenario_workload(&one, &workload, check->text, check->capacity);
        if (result < 0) {
            return result;
        }
        sim_workload_fini(&workload);
        bound_lengths(&drawn->prompt, &longest.prompt);
        bound_lengths(&drawn->output, &output);
        longest.both = (uint64_t)longest.prompt + output;
        const bool fits = check_longest(check, &longest, kv_tokens) == 0;
        if (fits && !measures_by_time(&scenario->measure)) {
            return 0;
        }
        if (!fits && drawn->prompt.kind == SIM_LENGTHS_FIXED &&
            drawn->output.kind == SIM_LENGTHS_FIXED) {
            return -HLG_EINVAL;
        }
    }
    const int result = sim_scenario_workload(scenario, &workload, check->text, check->capacity);
    if (result < 0) {
        return result;
    }
    measure(&workload, &longest);
    const bool good =
        check_warmup(check, workload.count) == 0 && check_measured(check, &workload) == 0;
    sim_workload_fini(&workload);
    return good ? check_longest(check, &longest, kv_tokens) : -HLG_EINVAL;
}

static int check_serving(const struct check *check, uint64_t kv_tokens[2])
{
    const struct sim_scenario *const scenario = check->scenario;
    int result = 0;
    if (scenario->serving == SIM_SERVING_COLOCATED) {
        const struct sim_colocated *const colocated = &scenario->colocated;
        result = check_engine(check, "colocated", &colocated->engine, &kv_tokens[0]);
        kv_tokens[1] = kv_tokens[0];
        return result < 0
                   ? result
                   : check_accept(check, "colocated.accept", colocated->draft, colocated->accept);
    }
    result = check_engine(check, "prefill", &scenario->prefill.engine, &kv_tokens[0]);
    if (result == 0) {
        result = check_engine(check, "decode", &scenario->decode.engine, &kv_tokens[1]);
    }
    if (result == 0) {
        result =
            check_accept(check, "decode.accept", scenario->decode.draft, scenario->decode.accept);
    }
    return result < 0 ? result : check_plan(check, kv_tokens);
}

static int check_pairs(const struct check *check)
{
    const struct sim_scenario *const scenario = check->scenario;
    const uint32_t pairs = scenario->prefill.nodes * scenario->decode.nodes;

    HLG_ASSERT(scenario->prefill.nodes <= SIM_NODES_MAX && scenario->decode.nodes <= SIM_NODES_MAX);
    if (scenario->serving == SIM_SERVING_COLOCATED || scenario->fault_count == 0 ||
        pairs <= SIM_FAULTY_PAIRS_MAX) {
        return 0;
    }
    return refuse(check, "decode.nodes",
                  "%" PRIu32 ", with %" PRIu32
                  " prefill nodes: write at most %u pairs of nodes where "
                  "there are faults",
                  scenario->decode.nodes, scenario->prefill.nodes, SIM_FAULTY_PAIRS_MAX);
}

int sim_scenario_check(const struct sim_scenario *scenario, uint64_t kv_tokens[2], char *text,
                       size_t capacity)
{
    const struct check check = {.scenario = scenario, .text = text, .capacity = capacity};
    char sentence[SENTENCE_BYTES];
    uint64_t tokens[2] = {0};
    int result = check_ranges(&check);
    if (result == 0 && sim_model_check(&scenario->model, sentence, sizeof sentence) < 0) {
        result = refuse(&check, "model", "%s", sentence);
    }
    if (result == 0 && scenario->serving == SIM_SERVING_DISAGGREGATED &&
        sim_nic_check(&scenario->network.nic, sentence, sizeof sentence) < 0) {
        result = refuse(&check, "network", "%s", sentence);
    }
    if (result == 0) {
        result = check_pairs(&check);
    }
    if (result == 0) {
        result = check_serving(&check, tokens);
    }
    for (uint32_t i = 0; result == 0 && i < scenario->fault_count; i++) {
        result = check_fault(&check, i);
    }
    if (result == 0) {
        result = check_traffic(&check, tokens);
    }
    if (result == 0 && kv_tokens != NULL) {
        kv_tokens[0] = tokens[0];
        kv_tokens[1] = tokens[1];
    }
    return result;
}
