/* Keys to fields and back. */
#include "scenario_key.h"
#include "scenario_path.h"
#include "workload_trace.h"
#include "yaml_file.h"

#include <halage/base.h>

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMEDY_BYTES 768u
#define PPM          1e6

int sim_key_refuse(const struct sim_key_source *source, const char *path, const char *value,
                   const char *remedy, char *text, size_t capacity)
{
    char place[32] = "";
    const uint32_t line = source->file == NULL ? 0 : yaml_file_line(source->file, path);
    if (line != 0) {
        (void)snprintf(place, sizeof place, "line %" PRIu32 ": ", line);
    }
    if (value == NULL) {
        (void)snprintf(text, capacity, "%s: %s%s: %s", source->name, place, path, remedy);
    } else {
        (void)snprintf(text, capacity, "%s: %s%s: '%.60s': %s", source->name, place, path, value,
                       remedy);
    }
    return -HLG_EINVAL;
}

void sim_key_names(char *text, size_t capacity, const char *(*at)(uint32_t index))
{
    size_t used = (size_t)snprintf(text, capacity, "valid:");
    for (uint32_t i = 0; at(i) != NULL && used < capacity; i++) {
        used += (size_t)snprintf(text + used, capacity - used, "%s %s", i == 0 ? "" : ",", at(i));
    }
}

static const char *model_name(uint32_t index)
{
    const struct sim_model *const model = sim_model_at(index);
    return model == NULL ? NULL : model->name;
}

static const char *gpu_name(uint32_t index)
{
    const struct sim_gpu *const gpu = sim_gpu_at(index);
    return gpu == NULL ? NULL : gpu->name;
}

static const char *nic_name(uint32_t index)
{
    const struct sim_nic *const nic = sim_nic_at(index);
    return nic == NULL ? NULL : nic->name;
}

static const char *node_name(uint32_t index)
{
    const struct sim_node_preset *const node = sim_node_preset_at(index);
    return node == NULL ? NULL : node->name;
}

/* A number of [min, max], or the key's word. Returns NULL or the remedy, which may use `room`. */
static const char *parse_number(const struct sim_key *key, const char *value, double *number,
                                char *room)
{
    char least[SIM_UNIT_TEXT_BYTES];
    char most[SIM_UNIT_TEXT_BYTES];
    if (key->word != NULL && strcmp(value, key->word) == 0) {
        *number = key->word_value;
        return NULL;
    }
    const char *const remedy = sim_unit_parse(key->unit, value, number);
    if (remedy != NULL) {
        if (key->unit != SIM_UNIT_NONE || key->kind == SIM_KEY_REAL) {
            (void)snprintf(room, REMEDY_BYTES, "%s%s%s", remedy, key->word != NULL ? "; or " : "",
                           key->word != NULL ? key->word : "");
            return room;
        }
    }
    sim_unit_print(key->unit, key->min, least);
    sim_unit_print(key->unit, key->max, most);
    if (key->kind == SIM_KEY_COUNT && key->unit == SIM_UNIT_SHARE) {
        sim_unit_print(key->unit, key->max / PPM, most);
        *number *= PPM;
    }
    const bool whole =
        key->kind == SIM_KEY_COUNT || key->kind == SIM_KEY_WIDE || key->kind == SIM_KEY_TOKENS;
    if (remedy != NULL || !(*number >= key->min && *number <= key->max) ||
        (whole && key->unit == SIM_UNIT_NONE && *number != floor(*number))) {
        (void)snprintf(room, REMEDY_BYTES, "write %s, %s to %s%s%s",
                       whole && key->unit == SIM_UNIT_NONE ? "a whole number" : "a value", least,
                       most, key->word != NULL ? ", or " : "", key->word != NULL ? key->word : "");
        return room;
    }
    return NULL;
}

static void *field_of(struct sim_scenario *scenario, const struct sim_key *key)
{
    return (unsigned char *)scenario + key->offset;
}

static const void *field_in(const struct sim_scenario *scenario, const struct sim_key *key)
{
    return (const unsigned char *)scenario + key->offset;
}

static void store_number(struct sim_scenario *scenario, const struct sim_key *key, double number)
{
    void *const field = field_of(scenario, key);
    switch ((enum sim_key_kind)key->kind) {
    case SIM_KEY_COUNT:
        *(uint32_t *)field = (uint32_t)llround(number);
        return;
    case SIM_KEY_WIDE:
        *(uint64_t *)field = (uint64_t)llround(number);
        return;
    case SIM_KEY_REAL:
        *(double *)field = number;
        return;
    case SIM_KEY_TOKENS:
        *(struct sim_lengths *)field = (struct sim_lengths){
            .kind = SIM_LENGTHS_FIXED,
            .tokens_min = (uint32_t)number,
            .tokens_max = (uint32_t)number,
            .mean = number,
            .cv = ((const struct sim_lengths *)field)->cv,
            .cdf = ((const struct sim_lengths *)field)->cdf,
        };
        return;
    default: /* not numbers */
        hlg_unreachable();
    }
}

static const char *set_number(struct sim_scenario *scenario, const struct sim_key *key,
                              const char *value, char *room)
{
    double number = 0;
    const char *const remedy = parse_number(key, value, &number, room);
    if (remedy == NULL) {
        store_number(scenario, key, number);
    }
    return remedy;
}

static const char *set_draft(struct sim_scenario *scenario, const struct sim_key *key,
                             const char *value, char *room)
{
    const double *const accept = field_in(scenario, key);
    double number = 0;
    const char *const remedy = parse_number(key, value, &number, room);
    if (remedy != NULL) {
        return remedy;
    }
    const uint32_t count = (uint32_t)number;
    if (count > 0 && accept[count - 1] == 0) {
        return "accept has fewer shares; write a smaller number, or more shares there";
    }
    memcpy((unsigned char *)scenario + key->capacity, &count, sizeof count);
    return NULL;
}

static const char *set_time(struct sim_scenario *scenario, const struct sim_key *key,
                            const char *value, char *room)
{
    hlg_time time = HLG_TIME_NEVER;
    double number = 0;
    if (key->word == NULL || strcmp(value, key->word) != 0) {
        const char *const remedy = parse_number(key, value, &number, room);
        if (remedy != NULL) {
            return remedy;
        }
        time = (hlg_time)llround(number);
    }
    *(hlg_time *)field_of(scenario, key) = time;
    return NULL;
}

/* Which of the words, or HLG_NONE. */
static uint32_t find_word(const char *const *words, const char *value)
{
    for (uint32_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], value) == 0) {
            return i;
        }
    }
    return HLG_NONE;
}

static const char *print_words(const char *const *words, char *room)
{
    size_t used = (size_t)snprintf(room, REMEDY_BYTES, "write");
    for (uint32_t i = 0; words[i] != NULL; i++) {
        const char *const joint = i == 0 ? "" : words[i + 1] == NULL ? " or" : ",";
        used += (size_t)snprintf(room + used, REMEDY_BYTES - used, "%s %s", joint, words[i]);
    }
    return room;
}

static const char *const bool_words[] = {"false", "true", NULL};
static const char *const fold_words[] = {"never", "always", "auto", NULL};

static const char *set_word(struct sim_scenario *scenario, const struct sim_key *key,
                            const char *value, char *room)
{
    const char *const *const words = key->kind == SIM_KEY_BOOL   ? bool_words
                                     : key->kind == SIM_KEY_FOLD ? fold_words
                                                                 : key->words;
    const uint32_t index = find_word(words, value);
    if (index == HLG_NONE) {
        return print_words(words, room);
    }
    if (key->kind == SIM_KEY_BOOL) {
        *(bool *)field_of(scenario, key) = index == 1;
    } else if (key->kind == SIM_KEY_FOLD) {
        scenario->network.fold = index != 0;
        scenario->network.fold_auto = index == 2;
    } else {
        memcpy(field_of(scenario, key), &index, sizeof index);
    }
    return NULL;
}

static const char *set_text(struct sim_scenario *scenario, const struct sim_key *key,
                            const char *value, char *room)
{
    if (strlen(value) >= key->capacity) {
        (void)snprintf(room, REMEDY_BYTES, "write at most %zu bytes", key->capacity - 1);
        return room;
    }
    (void)snprintf(field_of(scenario, key), key->capacity, "%s", value);
    return NULL;
}

static void use_weights(struct sim_scenario *scenario)
{
    scenario->prefill.engine.weights = scenario->model.weights;
    scenario->decode.engine.weights = scenario->model.weights;
    scenario->colocated.engine.weights = scenario->model.weights;
}

static const char *set_model(struct sim_scenario *scenario, const struct sim_key *key,
                             const char *value, bool custom, char *room)
{
    const struct sim_model *const model = sim_model_find(value);
    if (model == NULL && !custom) {
        sim_key_names(room, REMEDY_BYTES, model_name);
        return room;
    }
    const char *const remedy = set_text(scenario, key, value, room);
    if (remedy != NULL) {
        return remedy;
    }
    scenario->config[0] = '\0';
    if (model != NULL) {
        scenario->model = *model;
    } else {
        struct sim_model blank = {0};
        memcpy(blank.name, scenario->model.name, sizeof blank.name);
        scenario->model = blank;
    }
    use_weights(scenario);
    return NULL;
}

static const char *set_config(struct sim_scenario *scenario, const struct sim_key *key,
                              const char *value, const struct sim_key_source *source, char *room)
{
    struct sim_model model = scenario->model;
    char path[SIM_PATH_MAX];
    char why[REMEDY_BYTES / 2];
    if (value[0] == '\0') {
        scenario->config[0] = '\0';
        return NULL;
    }
    if (!sim_path_find(source->beside, value, path)) {
        return "there is no such file beside the scenario or in HALAGE_DATA";
    }
    if (sim_model_read(&model, path, why, sizeof why) < 0) {
        (void)snprintf(room, REMEDY_BYTES, "%s", why);
        return room;
    }
    const char *const remedy = set_text(scenario, key, path, room);
    if (remedy == NULL) {
        if (source->custom_model) {
            memcpy(model.name, scenario->model.name, sizeof model.name);
        }
        scenario->model = model;
        use_weights(scenario);
    }
    return remedy;
}

static const char *set_gpu(struct sim_scenario *scenario, const struct sim_key *key,
                           const char *value, char *room)
{
    const struct sim_gpu *const gpu = sim_gpu_find(value);
    if (gpu == NULL) {
        sim_key_names(room, REMEDY_BYTES, gpu_name);
        return room;
    }
    return set_text(scenario, key, gpu->name, room);
}

static const char *set_nic(struct sim_scenario *scenario, const char *value, char *room)
{
    const struct sim_nic *const nic = sim_nic_find(value);
    if (nic == NULL) {
        sim_key_names(room, REMEDY_BYTES, nic_name);
        return room;
    }
    scenario->network.nic = *nic;
    return NULL;
}

static const char *set_node(struct sim_scenario *scenario, const struct sim_key *key,
                            const char *value, char *room)
{
    const struct sim_node_preset *const node = sim_node_preset_find(value);
    if (strcmp(value, "none") == 0) {
        scenario->node[0] = '\0';
        return NULL;
    }
    if (node == NULL) {
        sim_key_names(room, REMEDY_BYTES, node_name);
        return room;
    }
    const struct sim_gpu *const gpu = sim_gpu_find(node->gpu);
    HLG_ASSERT(gpu != NULL);
    const char *const wrong = set_nic(scenario, node->nic, room);
    HLG_ASSERT(wrong == NULL);
    memcpy(scenario->prefill.engine.gpu, gpu->name, sizeof gpu->name);
    memcpy(scenario->decode.engine.gpu, gpu->name, sizeof gpu->name);
    memcpy(scenario->colocated.engine.gpu, gpu->name, sizeof gpu->name);
    scenario->network.nics_per_gpu = node->nics_per_gpu;
    return set_text(scenario, key, node->name, room);
}

static const char *set_cdf(struct sim_scenario *scenario, const struct sim_key *key,
                           const char *value, const struct sim_key_source *source, char *room)
{
    const uint32_t index =
        key->offset == offsetof(struct sim_scenario, traffic.cdf_path[0]) ? 0 : 1;
    struct sim_lengths *const lengths =
        index == 0 ? &scenario->traffic.drawn.prompt : &scenario->traffic.drawn.output;
    struct sim_cdf *cdf = NULL;
    char path[SIM_PATH_MAX] = "";
    char why[REMEDY_BYTES / 2];
    if (value[0] != '\0') {
        if (!sim_path_find(source->beside, value, path)) {
            return "there is no such file beside the scenario or in HALAGE_DATA";
        }
        cdf = calloc(1, sizeof *cdf);
        if (cdf == NULL) {
            return "no memory for it";
        }
        if (sim_cdf_read(cdf, path, why, sizeof why) < 0) {
            free(cdf);
            (void)snprintf(room, REMEDY_BYTES, "%s", why);
            return room;
        }
    }
    const char *const remedy = set_text(scenario, key, value, room);
    if (remedy != NULL) {
        free(cdf);
        return remedy;
    }
    free(scenario->traffic.cdfs[index]);
    scenario->traffic.cdfs[index] = cdf;
    lengths->cdf = cdf;
    return NULL;
}

static const char *set_value(struct sim_scenario *scenario, const struct sim_key *key,
                             const char *value, const struct sim_key_source *source, char *room)
{
    switch ((enum sim_key_kind)key->kind) {
    case SIM_KEY_COUNT:
    case SIM_KEY_WIDE:
    case SIM_KEY_REAL:
    case SIM_KEY_TOKENS:
        return set_number(scenario, key, value, room);
    case SIM_KEY_TIME:
        return set_time(scenario, key, value, room);
    case SIM_KEY_DRAFT:
        return set_draft(scenario, key, value, room);
    case SIM_KEY_BOOL:
    case SIM_KEY_WORD:
    case SIM_KEY_FOLD:
        return set_word(scenario, key, value, room);
    case SIM_KEY_TEXT:
        return set_text(scenario, key, value, room);
    case SIM_KEY_LIST:
        return "write a list of shares, such as [0.8, 0.5]";
    case SIM_KEY_SCHEMA:
        return strcmp(value, "1") == 0 ? NULL : "write 1, the only schema so far";
    case SIM_KEY_EXTENDS:
        return source->file == NULL ? "it belongs into a file" : NULL;
    case SIM_KEY_NODE:
        return set_node(scenario, key, value, room);
    case SIM_KEY_MODEL:
        return set_model(scenario, key, value, source->custom_model, room);
    case SIM_KEY_CONFIG:
        return set_config(scenario, key, value, source, room);
    case SIM_KEY_GPU:
        return set_gpu(scenario, key, value, room);
    case SIM_KEY_NIC:
        return set_nic(scenario, value, room);
    case SIM_KEY_CDF:
        return set_cdf(scenario, key, value, source, room);
    }
    hlg_unreachable();
}

/* Window layers whose number was given without their places are spread evenly. */
static void spread_windows(struct sim_model *model)
{
    uint32_t counted = 0;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        counted += (uint32_t)(model->window_bits[layer / 64] >> (layer % 64)) & 1u;
    }
    if (counted == model->window_layers) {
        return;
    }
    memset(model->window_bits, 0, sizeof model->window_bits);
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        /* The floors differ at exactly window_layers of the layers. */
        if ((layer + 1) * model->window_layers / model->layers !=
            layer * model->window_layers / model->layers) {
            model->window_bits[layer / 64] |= 1ull << (layer % 64);
        }
    }
}

/* What follows from other fields. */
static void derive(struct sim_scenario *scenario)
{
    spread_windows(&scenario->model);
    struct sim_engine *const engines[] = {&scenario->prefill.engine, &scenario->decode.engine,
                                          &scenario->colocated.engine};
    for (uint32_t i = 0; i < 3; i++) {
        engines[i]->gpus = engines[i]->tp * engines[i]->dp;
    }
}

int sim_key_set(struct sim_scenario *scenario, const struct sim_key *key, const char *value,
                const struct sim_key_source *source, char *text, size_t capacity)
{
    char room[REMEDY_BYTES];
    const char *const remedy = set_value(scenario, key, value, source, room);
    if (remedy != NULL) {
        return sim_key_refuse(source, key->path, value, remedy, text, capacity);
    }
    derive(scenario);
    return 0;
}

int sim_key_set_list(struct sim_scenario *scenario, const struct sim_key *key,
                     const char *const *values, uint32_t count, const struct sim_key_source *source,
                     char *text, size_t capacity)
{
    double list[SIM_DRAFT_MAX] = {0};
    HLG_ASSERT(key->kind == SIM_KEY_LIST);
    if (count > SIM_DRAFT_MAX) {
        return sim_key_refuse(source, key->path, values[SIM_DRAFT_MAX], "a list of at most 8", text,
                              capacity);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *const remedy = sim_unit_parse(SIM_UNIT_SHARE, values[i], &list[i]);
        if (remedy != NULL || !(list[i] >= key->min && list[i] <= key->max)) {
            return sim_key_refuse(source, key->path, values[i],
                                  "write a list of shares, such as [0.8, 0.5]", text, capacity);
        }
    }
    memcpy(field_of(scenario, key), list, sizeof list);
    memcpy((unsigned char *)scenario + key->capacity, &count, sizeof count);
    return 0;
}

static void print_list(const struct sim_scenario *scenario, const struct sim_key *key,
                       char text[SIM_KEY_TEXT_BYTES])
{
    const double *const list = field_in(scenario, key);
    uint32_t count = 0;
    memcpy(&count, (const unsigned char *)scenario + key->capacity, sizeof count);
    size_t used = (size_t)snprintf(text, SIM_KEY_TEXT_BYTES, "[");
    for (uint32_t i = 0; i < hlg_min_u32(count, SIM_DRAFT_MAX); i++) {
        char share[SIM_UNIT_TEXT_BYTES];
        sim_unit_print(SIM_UNIT_SHARE, list[i], share);
        used += (size_t)snprintf(text + used, SIM_KEY_TEXT_BYTES - used, "%s%s", i == 0 ? "" : ", ",
                                 share);
    }
    (void)snprintf(text + used, SIM_KEY_TEXT_BYTES - used, "]");
}

static void print_number(const struct sim_key *key, double number, char text[SIM_KEY_TEXT_BYTES])
{
    char printed[SIM_UNIT_TEXT_BYTES];
    if (key->word != NULL && (number == key->word_value || (number < 0 && key->word_value < 0))) {
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", key->word);
        return;
    }
    if (!(number >= 0 && isfinite(number))) {
        /* By hand: no file has it, and sim_scenario_check() will refuse it. */
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%g", number);
        return;
    }
    sim_unit_print(key->unit, number, printed);
    (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", printed);
}

void sim_key_print(const struct sim_scenario *scenario, const struct sim_key *key,
                   char text[SIM_KEY_TEXT_BYTES])
{
    const void *const field = field_in(scenario, key);
    uint32_t index = 0;
    switch ((enum sim_key_kind)key->kind) {
    case SIM_KEY_COUNT:
        print_number(key,
                     key->unit == SIM_UNIT_SHARE ? *(const uint32_t *)field / PPM
                                                 : *(const uint32_t *)field,
                     text);
        return;
    case SIM_KEY_WIDE:
        if (key->unit == SIM_UNIT_NONE && (key->word == NULL || *(const uint64_t *)field != 0)) {
            (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%" PRIu64, *(const uint64_t *)field);
            return;
        }
        print_number(key, (double)*(const uint64_t *)field, text);
        return;
    case SIM_KEY_REAL:
        print_number(key, *(const double *)field, text);
        return;
    case SIM_KEY_TIME:
        if (*(const hlg_time *)field == HLG_TIME_NEVER) {
            (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", key->word == NULL ? "?" : key->word);
            return;
        }
        print_number(key, (double)*(const hlg_time *)field, text);
        return;
    case SIM_KEY_BOOL:
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", bool_words[*(const bool *)field ? 1 : 0]);
        return;
    case SIM_KEY_WORD:
        memcpy(&index, field, sizeof index);
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", key->words[index]);
        return;
    case SIM_KEY_FOLD:
        index = scenario->network.fold_auto ? 2 : scenario->network.fold ? 1 : 0;
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", fold_words[index]);
        return;
    case SIM_KEY_TEXT:
    case SIM_KEY_MODEL:
    case SIM_KEY_CONFIG:
    case SIM_KEY_GPU:
    case SIM_KEY_NIC:
    case SIM_KEY_CDF:
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s", (const char *)field);
        return;
    case SIM_KEY_NODE:
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "%s",
                       scenario->node[0] == '\0' ? "none" : scenario->node);
        return;
    case SIM_KEY_LIST:
        print_list(scenario, key, text);
        return;
    case SIM_KEY_SCHEMA:
        (void)snprintf(text, SIM_KEY_TEXT_BYTES, "1");
        return;
    case SIM_KEY_EXTENDS:
    case SIM_KEY_TOKENS:
    case SIM_KEY_DRAFT:
        text[0] = '\0';
        return;
    }
    hlg_unreachable();
}
