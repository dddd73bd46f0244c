#define _GNU_SOURCE /* asprintf() */
#include "config.h"

#include "../cli/options.h"
#include "key.h"

#include <halage/log.h>
#include <halage/messenger.h>
#include <halage/placement.h>
#include <halage/refusal.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICES_MAX 4096u
#define PAGES_MAX  65536u

/* Pages of a pool suffice for this many of the longest sequences. */
#define SEQUENCES_HELD 10u

void node_config_default(struct node_config *config)
{
    *config = (struct node_config){
        .kv_heads = 4,
        .source_tp = 2,
        .sources = 1,
        .target_tp = 1,
        .target_dp = 1,
        .chunk_tokens = 64,
        .provider = "auto",
        .watchdog_ms = 30000,
    };
    tlm_config_default(TLM_GQA, config->kv_heads, 1, &config->model);
    config->model.batch_sequences_max = NODE_SEQUENCES_MAX;
    config->model.context_tokens_max = NODE_CONTEXT_TOKENS;
    config->model.batch_tokens_max = NODE_CONTEXT_TOKENS;
}

bool node_log_level(const char *program, enum hlg_log_level otherwise, enum hlg_log_level *level)
{
    static const enum hlg_log_level levels[] = {HLG_LOG_FATAL, HLG_LOG_ERROR, HLG_LOG_WARN,
                                                HLG_LOG_INFO, HLG_LOG_DEBUG};
    const char *word = getenv("HALAGE_LOG");
    *level = otherwise;
    if (word == NULL || *word == '\0') {
        return true;
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(word, hlg_log_level_text(levels[i])) == 0) {
            *level = levels[i];
            return true;
        }
    }
    (void)options_error(program, "HALAGE_LOG: '%s': write fatal, error, warn, info or debug", word);
    return false;
}

/* A whole number from `min` to `max`, or one line on stderr. */
static int take_number(const char *program, const char *option, const char *argument, uint32_t min,
                       uint32_t max, uint32_t *value)
{
    uint32_t number = 0;
    if (!options_u32(argument, &number) || number < min || number > max) {
        return options_error(program, "--%s: '%s': write a whole number, %" PRIu32 " to %" PRIu32,
                             option, argument, min, max);
    }
    *value = number;
    return 0;
}

static int take_seed(const char *program, const char *argument, uint64_t *seed)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(argument, &end, 10);
    if (*argument < '0' || *argument > '9' || *end != '\0' || errno != 0) {
        return options_error(program, "--seed: '%s': write a whole number below 2^64", argument);
    }
    *seed = number;
    return 0;
}

static int take_ip(const char *argument, const char *program, const char **ip)
{
    if (!options_ip(argument)) {
        return options_error(program, "--advertise: '%s': write an IPv4 or IPv6 address", argument);
    }
    *ip = argument;
    return 0;
}

static int take_key(const char *argument, const char *program, struct node_config *config)
{
    char text[512];
    if (node_key_read(argument, config->key, text, sizeof text) != 0) {
        return options_error(program, "--key-file: %s", text);
    }
    config->key_file = argument;
    return 0;
}

static int take_cores(const char *argument, const char *program, const char **cores)
{
    uint64_t read[HLG_CORES_MAX / 64];
    if (strlen(argument) >= HLG_CPULIST_BYTES ||
        (strcmp(argument, "auto") != 0 && hlg_cpulist_read(argument, read) < 0)) {
        return options_error(program, "--cores: '%.200s': write auto, or a list as 0-3,8",
                             argument);
    }
    *cores = argument;
    return 0;
}

static int take_flush(const char *argument, const char *program, struct node_config *config)
{
    const char *name = NULL;
    config->flush_text = argument;
    for (config->flush = 0; (name = hlg_flush_name(config->flush)) != NULL; config->flush++) {
        if (strcmp(argument, name) == 0) {
            return 0;
        }
    }
    return options_error(program, "--flush: unknown policy '%s'; valid: auto none cuda read",
                         argument);
}

/* "I/N", from 1 on. */
static int take_source(const char *program, const char *argument, struct node_config *config)
{
    uint32_t index = 0;
    uint32_t count = 0;
    char first[8] = "";
    const char *slash = strchr(argument, '/');
    if (slash != NULL && (size_t)(slash - argument) < sizeof first) {
        memcpy(first, argument, (size_t)(slash - argument));
    }
    if (slash == NULL || !options_u32(first, &index) || !options_u32(slash + 1, &count) ||
        index == 0 || index > count || count > NODE_SOURCES_MAX) {
        return options_error(program,
                             "--source: '%s': write I/N, as 1/2 and 2/2 for two prefill nodes that "
                             "send each request; N is at most %d",
                             argument, NODE_SOURCES_MAX);
    }
    config->source_index = index - 1;
    config->sources = count;
    return 0;
}

/* The attention brings its own shape along; seed, size and cache stay as they are. */
static void set_attention(struct node_config *config, enum tlm_attention attention)
{
    struct tlm_config fresh;
    tlm_config_default(attention, config->kv_heads, config->model.seed, &fresh);
    config->model.attention = attention;
    config->model.kv_heads = fresh.kv_heads;
    config->model.query_heads = fresh.query_heads;
    config->model.head_dim = fresh.head_dim;
    config->model.latent_dim = fresh.latent_dim;
    config->model.rope_dim = fresh.rope_dim;
}

static int take_word(int key, const char *argument, const char *program, struct node_config *config)
{
    if (key == NODE_KEY_MODEL) {
        if (strcmp(argument, "gqa") != 0 && strcmp(argument, "mla") != 0) {
            return options_error(program, "--model: unknown model '%s'; valid: gqa mla", argument);
        }
        set_attention(config, strcmp(argument, "mla") == 0 ? TLM_MLA : TLM_GQA);
        return 0;
    }
    if (key == NODE_KEY_LAYOUT) {
        if (strcmp(argument, "hnd") != 0 && strcmp(argument, "nhd") != 0) {
            return options_error(program, "--layout: unknown layout '%s'; valid: hnd nhd",
                                 argument);
        }
        config->model.arrangement = strcmp(argument, "nhd") == 0 ? TLM_NHD : TLM_HND;
        return 0;
    }
    if (key == NODE_KEY_MEMORY) {
        if (strcmp(argument, "host") != 0 && strcmp(argument, "cuda") != 0) {
            return options_error(program, "--memory: unknown kind '%s'; valid: host cuda",
                                 argument);
        }
        config->cuda = strcmp(argument, "cuda") == 0;
        return 0;
    }
    if (key == NODE_KEY_FLUSH) {
        return take_flush(argument, program, config);
    }
    if (key == NODE_KEY_PLANT) {
        config->plant_text = argument;
        if (!plant_parse(argument, &config->plant)) {
            return options_error(program,
                                 "--plant: unknown fault '%s'; valid: %s, each with or without "
                                 ":LAYER,PLANE,RANK; stop:STEP[,COUNT] stuck:STEP[,COUNT]",
                                 argument, plant_kinds());
        }
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static int take_limit(int key, const char *argument, const char *program,
                      struct node_config *config)
{
    switch (key) {
    case NODE_KEY_LEASE_MS:
        return take_number(program, "lease-ms", argument, 100, 600000, &config->lease_ms);
    case NODE_KEY_WATCHDOG_MS:
        if (strcmp(argument, "0") == 0) {
            config->watchdog_ms = 0;
            return 0;
        }
        return take_number(program, "watchdog-ms", argument, 10, 3600000, &config->watchdog_ms);
    case NODE_KEY_DEVICE:
        config->device_text = argument;
        return take_number(program, "device", argument, 0, INT16_MAX, &config->device);
    case NODE_KEY_PAGES:
        return take_number(program, "pages", argument, 1, PAGES_MAX, &config->pages);
    case NODE_KEY_DATA_PORT:
        return take_number(program, "data-port", argument, 1024, 65000, &config->data_port);
    case NODE_KEY_SOURCES:
        return take_number(program, "sources", argument, 1, NODE_SOURCES_MAX, &config->sources);
    case NODE_KEY_SOURCE:
        return take_source(program, argument, config);
    case NODE_KEY_NODE_ID:
        return take_number(program, "node-id", argument, 1, UINT32_MAX, &config->node_id);
    default:
        return take_word(key, argument, program, config);
    }
}

static int take_width(const char *argument, const char *program, struct tlm_config *model)
{
    const int status = take_number(program, "hidden", argument, 8, 8192, &model->hidden);
    if (status == 0 && model->hidden % 8 != 0) {
        return options_error(program, "--hidden: '%s': write a multiple of 8", argument);
    }
    model->ffn = 2 * model->hidden;
    return status;
}

static int take_heads(const char *argument, const char *program, struct node_config *config)
{
    const int status = take_number(program, "kv-heads", argument, 1, 64, &config->kv_heads);
    if (status == 0) {
        set_attention(config, config->model.attention);
    }
    return status;
}

int node_config_parse(int key, const char *argument, const char *program,
                      struct node_config *config)
{
    struct tlm_config *model = &config->model;
    switch (key) {
    case NODE_KEY_KV_HEADS:
        return take_heads(argument, program, config);
    case NODE_KEY_LAYERS:
        return take_number(program, "layers", argument, 1, 253, &model->layers);
    case NODE_KEY_HIDDEN:
        return take_width(argument, program, model);
    case NODE_KEY_PAGE_TOKENS:
        return take_number(program, "page-tokens", argument, 1, NODE_CONTEXT_TOKENS,
                           &model->page_tokens);
    case NODE_KEY_SOURCE_TP:
        return take_number(program, "source-tp", argument, 1, 8, &config->source_tp);
    case NODE_KEY_TARGET_TP:
        return take_number(program, "target-tp", argument, 1, 8, &config->target_tp);
    case NODE_KEY_TARGET_DP:
        return take_number(program, "target-dp", argument, 1, 8, &config->target_dp);
    case NODE_KEY_CHUNK_TOKENS:
        if (strcmp(argument, "unlimited") == 0) {
            config->chunk_tokens = 0;
            return 0;
        }
        return take_number(program, "chunk-tokens", argument, 0, 1u << 20, &config->chunk_tokens);
    case NODE_KEY_PROVIDER:
        config->provider = argument;
        return 0;
    case NODE_KEY_RECORD:
        config->record = argument;
        return 0;
    case NODE_KEY_METRICS:
        config->metrics = argument;
        return take_number(program, "metrics", argument, 0, UINT16_MAX, &config->metrics_port);
    case NODE_KEY_CORES:
        return take_cores(argument, program, &config->cores);
    case NODE_KEY_NICS:
        config->nics = argument;
        return 0;
    case NODE_KEY_KEY_FILE:
        return take_key(argument, program, config);
    case NODE_KEY_INSECURE:
        config->insecure = true;
        return 0;
    case NODE_KEY_STAGED:
        config->staged = true;
        return 0;
    case NODE_KEY_GUARD:
        config->guard = true;
        return 0;
    case NODE_KEY_REDIAL:
        config->redial = true;
        return 0;
    case NODE_KEY_ADVERTISE:
        return take_ip(argument, program, &config->advertise);
    case NODE_KEY_SEED:
        return take_seed(program, argument, &model->seed);
    default: /* limits, words, and the keys of others */
        return take_limit(key, argument, program, config);
    }
}

void node_layout_whole(const struct node_config *config, enum hlg_role role,
                       struct hlg_layout *layout)
{
    const struct tlm_config *model = &config->model;
    const uint32_t held = SEQUENCES_HELD * hlg_div_ceil(NODE_CONTEXT_TOKENS, model->page_tokens);
    const uint32_t pages = config->pages != 0 ? config->pages : held;
    const bool prefill = role == HLG_ROLE_PREFILL;
    memset(layout, 0, sizeof *layout);
    layout->tp = prefill ? config->source_tp : config->target_tp;
    layout->stages = 1;
    layout->pools = prefill ? 1 : config->target_dp;
    layout->layers = model->layers;
    layout->stage_limit[0] = model->layers;
    layout->rank_limit = layout->tp;
    layout->all_reduce = 1; /* rank 0 ticks after a barrier of all */
    layout->piece_bytes_max = HLG_PIECE_BYTES_DEFAULT;
    layout->group_count = 2;
    layout->groups[0] = (struct hlg_group){
        .kind = HLG_GROUP_PAGED,
        .planes = tlm_planes(model),
        .heads = model->kv_heads,
        .head_bytes = tlm_kv_dim(model) * TLM_ELEMENT_BYTES,
        .page_tokens = model->page_tokens,
        .arrangement = model->arrangement == TLM_HND ? HLG_HND : HLG_NHD,
        .page_count = pages,
    };
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        layout->groups[0].layers[layer / 64] |= 1ull << (layer % 64);
    }
    layout->groups[1] = (struct hlg_group){
        .kind = HLG_GROUP_CONTEXT,
        .planes = 1,
        .heads = 1, /* hidden states: whole on every rank */
        .head_bytes = model->hidden * TLM_ELEMENT_BYTES,
        .page_tokens = 1,
        .arrangement = HLG_HND,
        .page_count = NODE_SEQUENCES_MAX,
    };
}

void node_layout(const struct node_config *config, enum hlg_role role, struct hlg_layout *layout)
{
    node_layout_whole(config, role, layout);
    if (role == HLG_ROLE_PREFILL) {
        const uint32_t ranks = hlg_div_exact(layout->tp, config->sources);
        layout->rank_begin = config->source_index * ranks;
        layout->rank_limit = layout->rank_begin + ranks;
    }
}

static int check_plan(const struct hlg_layout *source, const struct hlg_layout *target,
                      struct hlg_refusal *why)
{
    struct hlg_plan *plan = malloc(sizeof *plan);
    struct hlg_slice *slices = calloc(SLICES_MAX, sizeof *slices);
    int status = -HLG_ENOMEM;
    if (plan != NULL && slices != NULL) {
        status = hlg_plan_build(plan, slices, SLICES_MAX, source, target, why);
    }
    free(slices);
    free(plan);
    return status;
}

void node_config_memory(const struct node_config *config, char *text, size_t capacity)
{
    if (config->cuda && config->staged) {
        (void)snprintf(text, capacity, "cuda, staged through pinned host memory");
    } else if (config->cuda) {
        (void)snprintf(text, capacity, "cuda, flush policy %s", hlg_flush_name(config->flush));
    } else {
        (void)snprintf(text, capacity, "host");
    }
}

/* Options of memory of GPUs, without it or without use. */
static int check_memory(const struct node_config *config, char *text, size_t capacity)
{
    const char *word = config->staged                ? "staged"
                       : config->device_text != NULL ? "device"
                       : config->flush_text != NULL  ? "flush"
                                                     : NULL;
    if (!config->cuda && word != NULL) {
        (void)snprintf(text, capacity, "--%s: is for memory of GPUs: add --memory cuda", word);
        return -HLG_EINVAL;
    }
    if (config->staged && config->flush_text != NULL) {
        (void)snprintf(text, capacity,
                       "--flush: is for what NICs write to GPUs themselves: leave out --staged, or "
                       "--flush");
        return -HLG_EINVAL;
    }
    return 0;
}

int node_config_check(const struct node_config *config, char *text, size_t capacity)
{
    const char *why = NULL;
    struct hlg_layout source;
    struct hlg_layout target;
    struct hlg_refusal refusal = {.code = HLG_REFUSAL_NONE};
    if (tlm_config_check(&config->model, 1, &why) != 0) {
        (void)snprintf(text, capacity, "%s", why);
        return -HLG_EINVAL;
    }
    if (config->target_tp * config->target_dp > 8) {
        (void)snprintf(text, capacity,
                       "--target-tp times --target-dp: %" PRIu32 " ranks, at most 8",
                       config->target_tp * config->target_dp);
        return -HLG_EINVAL;
    }
    if (check_memory(config, text, capacity) != 0) {
        return -HLG_EINVAL;
    }
    const uint32_t least = hlg_div_ceil(NODE_CONTEXT_TOKENS, config->model.page_tokens);
    if (config->pages != 0 && config->pages < least) {
        (void)snprintf(text, capacity,
                       "--pages: %" PRIu32 ": the longest request takes %" PRIu32 " of %" PRIu32
                       " tokens: give at least as many",
                       config->pages, least, config->model.page_tokens);
        return -HLG_EINVAL;
    }
    if (config->source_tp % config->sources != 0) {
        (void)snprintf(text, capacity,
                       "--sources: %" PRIu32 " nodes cannot share %" PRIu32
                       " ranks alike: give a divisor of --source-tp",
                       config->sources, config->source_tp);
        return -HLG_EINVAL;
    }
    node_layout_whole(config, HLG_ROLE_PREFILL, &source);
    node_layout_whole(config, HLG_ROLE_DECODE, &target);
    if (check_plan(&source, &target, &refusal) != 0) {
        (void)hlg_refusal_text(&refusal, text, capacity);
        return -HLG_EPLAN;
    }
    if (tlm_config_check(&config->model, config->source_tp, &why) != 0) {
        (void)snprintf(text, capacity, "--source-tp: %" PRIu32 ": %s", config->source_tp, why);
        return -HLG_EPLAN;
    }
    if (tlm_config_check(&config->model, config->target_tp, &why) != 0) {
        (void)snprintf(text, capacity, "--target-tp: %" PRIu32 ": %s", config->target_tp, why);
        return -HLG_EPLAN;
    }
    return 0;
}

void node_fingerprint(const struct tlm_config *model, uint8_t fingerprint[HLG_FINGERPRINT_BYTES])
{
    uint64_t fields[] = {0,
                         model->seed,
                         (uint64_t)model->attention,
                         model->layers,
                         model->hidden,
                         model->kv_heads,
                         model->query_heads,
                         model->head_dim,
                         model->latent_dim,
                         model->rope_dim,
                         model->ffn,
                         model->vocab,
                         model->context_tokens_max};
    for (uint32_t i = 0; i < HLG_FINGERPRINT_BYTES / 8; i++) {
        fields[0] = i;
        const uint64_t hash = tlm_hash(fields, sizeof fields);
        memcpy(fingerprint + (size_t)i * 8, &hash, 8);
    }
}

/* Numbers that every node gets; of those behind them 0 means the default. */
#define NUMBERS_GIVEN 10u

/* Words without a value. Returns whether there was memory. */
static bool add_flags(const struct node_config *config, char *words[NODE_CONFIG_WORDS], int *count)
{
    const struct {
        const char *word;
        bool given;
    } flags[] = {
        {"--staged", config->staged},
        {"--insecure", config->insecure},
        {"--guard", config->guard},
        {"--redial", config->redial},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && good; i++) {
        if (flags[i].given) {
            words[*count] = strdup(flags[i].word);
            good = words[*count] != NULL;
            *count += good ? 1 : 0;
        }
    }
    return good;
}

int node_config_words(const struct node_config *config, char *words[NODE_CONFIG_WORDS])
{
    const struct tlm_config *model = &config->model;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"kv-heads", config->kv_heads},
        {"layers", model->layers},
        {"hidden", model->hidden},
        {"page-tokens", model->page_tokens},
        {"source-tp", config->source_tp},
        {"target-tp", config->target_tp},
        {"target-dp", config->target_dp},
        {"chunk-tokens", config->chunk_tokens},
        {"seed", model->seed},
        {"watchdog-ms", config->watchdog_ms},
        {"lease-ms", config->lease_ms},
        {"pages", config->pages},
        {"data-port", config->data_port},
        {"node-id", config->node_id},
    };
    int count = 0;
    bool good = true;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && good; i++) {
        if (i >= NUMBERS_GIVEN && numbers[i].value == 0) {
            continue; /* the default */
        }
        good = asprintf(&words[count], "--%s=%" PRIu64, numbers[i].name, numbers[i].value) >= 0;
        count += good ? 1 : 0;
    }
    const struct {
        const char *name;
        const char *value;
    } texts[] = {
        {"model", model->attention == TLM_MLA ? "mla" : "gqa"},
        {"layout", model->arrangement == TLM_NHD ? "nhd" : "hnd"},
        {"provider", config->provider},
        {"advertise", config->advertise},
        {"key-file", config->key_file},
        {"record", config->record},
        {"metrics", config->metrics},
        {"cores", config->cores},
        {"nics", config->nics},
        {"memory", config->cuda ? "cuda" : NULL},
        {"device", config->device_text},
        {"flush", config->flush_text},
        {"plant", config->plant_text},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && good; i++) {
        if (texts[i].value != NULL) {
            good = asprintf(&words[count], "--%s=%s", texts[i].name, texts[i].value) >= 0;
            count += good ? 1 : 0;
        }
    }
    good = good && add_flags(config, words, &count);
    if (good) {
        return count;
    }
    while (count > 0) {
        free(words[--count]);
    }
    return -HLG_ENOMEM;
}

void node_config_print(const struct node_config *config, char *text, size_t capacity)
{
    const struct tlm_config *model = &config->model;
    char chunk[32];
    if (config->chunk_tokens == 0) {
        (void)snprintf(chunk, sizeof chunk, "unlimited");
    } else {
        (void)snprintf(chunk, sizeof chunk, "%" PRIu32, config->chunk_tokens);
    }
    (void)snprintf(text, capacity,
                   "model %s kv-heads %" PRIu32 " layers %" PRIu32 " hidden %" PRIu32
                   " page-tokens %" PRIu32 " layout %s source-tp %" PRIu32 " target-tp %" PRIu32
                   " target-dp %" PRIu32 " chunk-tokens %s provider %s seed %" PRIu64
                   " memory %s%s",
                   model->attention == TLM_MLA ? "mla" : "gqa", model->kv_heads, model->layers,
                   model->hidden, model->page_tokens, model->arrangement == TLM_NHD ? "nhd" : "hnd",
                   config->source_tp, config->target_tp, config->target_dp, chunk, config->provider,
                   model->seed, config->cuda ? "cuda" : "host", config->staged ? " staged" : "");
}

void node_config_tell(const struct node_config *config, const char *file, char *text,
                      size_t capacity)
{
    char *words[NODE_CONFIG_WORDS] = {NULL};
    const int count = node_config_words(config, words);
    size_t used = (size_t)snprintf(text, capacity, "config %s:", file);
    for (int i = 0; i < count; i++) {
        used += used < capacity
                    ? (size_t)snprintf(text + used, capacity - used, " %s", words[i] + 2)
                    : 0;
        free(words[i]);
    }
}
