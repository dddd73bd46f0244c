/* Hugging Face's config.json, of the families whose caches and costs are known here. */
#include "model.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (4u << 20)
#define EXCERPT        60 /* characters of a foreign value in a sentence */

enum family {
    FAMILY_DENSE,
    FAMILY_QWEN_MOE,
    FAMILY_MIXTRAL,
    FAMILY_GPT_OSS,
    FAMILY_DEEPSEEK,
};

/* Which layers attend to a window where layer_types does not say so. */
enum windows {
    WINDOWS_NONE,      /* the family knows no windows */
    WINDOWS_ALL,       /* sliding_window is meant for every layer */
    WINDOWS_ALTERNATE, /* for layers 0, 2, 4, ... */
    WINDOWS_LISTED,    /* without layer_types nobody knows */
};

static const struct type {
    const char *name;
    enum family family;
    enum windows windows;
} types[] = {
    {"llama", FAMILY_DENSE, WINDOWS_NONE},          {"mistral", FAMILY_DENSE, WINDOWS_ALL},
    {"qwen2", FAMILY_DENSE, WINDOWS_LISTED},        {"qwen3", FAMILY_DENSE, WINDOWS_LISTED},
    {"qwen3_moe", FAMILY_QWEN_MOE, WINDOWS_LISTED}, {"mixtral", FAMILY_MIXTRAL, WINDOWS_ALL},
    {"gpt_oss", FAMILY_GPT_OSS, WINDOWS_ALTERNATE}, {"deepseek_v2", FAMILY_DEEPSEEK, WINDOWS_NONE},
    {"deepseek_v3", FAMILY_DEEPSEEK, WINDOWS_NONE}, {"kimi_k2", FAMILY_DEEPSEEK, WINDOWS_NONE},
};

#define TYPE_NAMES                                                                            \
    "llama, mistral, qwen2, qwen3, qwen3_moe, mixtral, gpt_oss, deepseek_v2, deepseek_v3 or " \
    "kimi_k2"

struct reader {
    const json_t *object; /* what holds the shape */
    const char *path;
    char *text;
    size_t capacity;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reader *reader,
                                                        const char *format, ...)
{
    va_list arguments;
    const int begin = snprintf(reader->text, reader->capacity, "%s: ", reader->path);
    if (begin >= 0 && (size_t)begin < reader->capacity) {
        va_start(arguments, format);
        (void)vsnprintf(reader->text + begin, reader->capacity - (size_t)begin, format, arguments);
        va_end(arguments);
    }
    return -HLG_EINVAL;
}

/* A foreign value, in ASCII and cut short. */
struct excerpt {
    char text[EXCERPT + 4];
};

static struct excerpt excerpt_of(const json_t *value)
{
    struct excerpt excerpt = {"nothing"};
    char *const all = value == NULL
                          ? NULL
                          : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (all != NULL) {
        (void)snprintf(excerpt.text, sizeof excerpt.text, "%.*s%s", EXCERPT, all,
                       strlen(all) > EXCERPT ? "..." : "");
    }
    free(all);
    return excerpt;
}

/* The member, or NULL for one that is absent or null: both mean the format's default. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* A whole number of which the format has no default. */
static int read_number(const struct reader *reader, const char *key, uint32_t min, uint32_t max,
                       uint32_t *number)
{
    const json_t *const value = member(reader->object, key);
    if (value == NULL) {
        return refuse(reader, "no key '%s': write a whole number, %u to %u", key, min, max);
    }
    const json_int_t integer = json_integer_value(value); /* 0 when it is none */
    if (!json_is_integer(value) || integer < min || integer > max) {
        return refuse(reader, "%s: %s: write a whole number, %u to %u", key, excerpt_of(value).text,
                      min, max);
    }
    *number = (uint32_t)integer;
    return 0;
}

static int read_optional(const struct reader *reader, const char *key, uint32_t min, uint32_t max,
                         uint32_t fallback, uint32_t *number)
{
    if (member(reader->object, key) == NULL) {
        *number = fallback;
        return 0;
    }
    return read_number(reader, key, min, max, number);
}

static int read_flag(const struct reader *reader, const char *key, bool fallback, bool *flag)
{
    const json_t *const value = member(reader->object, key);
    if (value != NULL && !json_is_boolean(value)) {
        return refuse(reader, "%s: %s: write true or false", key, excerpt_of(value).text);
    }
    *flag = value == NULL ? fallback : json_is_true(value);
    return 0;
}

/* A number of the format, and where it goes. The bounds that matter are sim_model_check()'s. */
struct field {
    const char *key;
    uint32_t *number;
    uint32_t min;
};

#define NUMBER_MAX (1u << 24)

static int read_fields(const struct reader *reader, const struct field *fields, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const int rc =
            read_number(reader, fields[i].key, fields[i].min, NUMBER_MAX, fields[i].number);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

#define READ_FIELDS(reader, fields) read_fields(reader, fields, sizeof(fields) / sizeof(fields)[0])

static int read_grouped_attention(const struct reader *reader, struct sim_model *m)
{
    m->attention = SIM_ATTENTION_GQA;
    int rc = read_optional(reader, "num_key_value_heads", 1, m->heads, m->heads, &m->kv_heads);
    if (rc != 0) {
        return rc;
    }
    const bool is_given = member(reader->object, "head_dim") != NULL;
    if (!is_given && m->hidden % m->heads != 0) {
        return refuse(reader,
                      "no key 'head_dim', and num_attention_heads: %u: does not divide "
                      "hidden_size, %u: write head_dim",
                      m->heads, m->hidden);
    }
    rc = read_optional(reader, "head_dim", 1, NUMBER_MAX, m->hidden / m->heads, &m->head_dim);
    return rc;
}

static int read_latent_attention(const struct reader *reader, struct sim_model *m)
{
    const struct field fields[] = {
        {"kv_lora_rank", &m->kv_lora_rank, 1},
        {"qk_nope_head_dim", &m->qk_nope_head_dim, 1},
        {"qk_rope_head_dim", &m->qk_rope_head_dim, 1},
        {"v_head_dim", &m->v_head_dim, 1},
    };
    m->attention = SIM_ATTENTION_MLA;
    m->kv_heads = 1;
    const int rc = read_optional(reader, "q_lora_rank", 1, NUMBER_MAX, 0, &m->q_lora_rank);
    return rc != 0 ? rc : READ_FIELDS(reader, fields);
}

/* Every how many layers there are experts: only each is known here. */
static int read_sparse_step(const struct reader *reader, const char *key)
{
    uint32_t step = 1;
    const int rc = read_optional(reader, key, 1, NUMBER_MAX, 1, &step);
    if (rc == 0 && step != 1) {
        return refuse(reader, "%s: %u: only 1, experts in every layer, is known here", key, step);
    }
    return rc;
}

static int read_dense(const struct reader *reader, struct sim_model *m)
{
    m->dense_layers = m->layers;
    return read_number(reader, "intermediate_size", 1, NUMBER_MAX, &m->dense_inter);
}

static int read_qwen_moe(const struct reader *reader, struct sim_model *m)
{
    const struct field fields[] = {
        {"num_experts", &m->experts, 1},
        {"num_experts_per_tok", &m->topk, 1},
        {"moe_intermediate_size", &m->moe_inter, 1},
    };
    const json_t *const dense = member(reader->object, "mlp_only_layers");
    if (dense != NULL && (!json_is_array(dense) || json_array_size(dense) != 0)) {
        return refuse(reader, "mlp_only_layers: %s: only [] is known here", excerpt_of(dense).text);
    }
    const int rc = read_sparse_step(reader, "decoder_sparse_step");
    return rc != 0 ? rc : READ_FIELDS(reader, fields);
}

static int read_local_experts(const struct reader *reader, struct sim_model *m)
{
    /* gpt-oss writes both names, of which either may be left out. */
    const bool is_short = member(reader->object, "num_experts_per_tok") == NULL &&
                          member(reader->object, "experts_per_token") != NULL;
    const struct field fields[] = {
        {"num_local_experts", &m->experts, 1},
        {is_short ? "experts_per_token" : "num_experts_per_tok", &m->topk, 1},
        {"intermediate_size", &m->moe_inter, 1},
    };
    return READ_FIELDS(reader, fields);
}

static int read_deepseek(const struct reader *reader, struct sim_model *m)
{
    if (member(reader->object, "n_routed_experts") == NULL) {
        return read_dense(reader, m);
    }
    const struct field fields[] = {
        {"n_routed_experts", &m->experts, 1},        {"num_experts_per_tok", &m->topk, 1},
        {"moe_intermediate_size", &m->moe_inter, 1}, {"first_k_dense_replace", &m->dense_layers, 0},
        {"intermediate_size", &m->dense_inter, 1},
    };
    int rc = read_sparse_step(reader, "moe_layer_freq");
    rc = rc != 0 ? rc : READ_FIELDS(reader, fields);
    rc = rc != 0 ? rc
                 : read_optional(reader, "n_shared_experts", 0, NUMBER_MAX, 0, &m->shared_experts);
    return rc != 0 ? rc
                   : read_optional(reader, "num_nextn_predict_layers", 0, NUMBER_MAX, 0,
                                   &m->mtp_layers);
}

static int read_family(const struct reader *reader, enum family family, struct sim_model *m)
{
    const int rc = family == FAMILY_DEEPSEEK ? read_latent_attention(reader, m)
                                             : read_grouped_attention(reader, m);
    if (rc != 0) {
        return rc;
    }
    switch (family) {
    case FAMILY_DENSE:
        return read_dense(reader, m);
    case FAMILY_QWEN_MOE:
        return read_qwen_moe(reader, m);
    case FAMILY_MIXTRAL:
    case FAMILY_GPT_OSS:
        return read_local_experts(reader, m);
    case FAMILY_DEEPSEEK:
        return read_deepseek(reader, m);
    }
    hlg_unreachable();
}

static void mark_window(struct sim_model *m, uint32_t layer)
{
    m->window_bits[layer / 64] |= UINT64_C(1) << (layer % 64);
    m->window_layers++;
}

static int read_layer_types(const struct reader *reader, const json_t *list, struct sim_model *m)
{
    if (!json_is_array(list) || json_array_size(list) != m->layers) {
        return refuse(reader, "layer_types: %s: write %u names, one a layer", excerpt_of(list).text,
                      m->layers);
    }
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        const json_t *const value = json_array_get(list, layer);
        const char *const name = json_is_string(value) ? json_string_value(value) : "";
        if (strcmp(name, "sliding_attention") == 0) {
            mark_window(m, layer);
        } else if (strcmp(name, "full_attention") != 0) {
            return refuse(reader,
                          "layer_types: %s: only full_attention and sliding_attention are known "
                          "here",
                          excerpt_of(value).text);
        }
    }
    return 0;
}

static int read_windows(const struct reader *reader, enum windows windows, struct sim_model *m)
{
    const json_t *const list = member(reader->object, "layer_types");
    bool is_used = false;
    int rc = read_flag(reader, "use_sliding_window", windows != WINDOWS_LISTED, &is_used);
    if (rc != 0) {
        return rc;
    }
    const bool is_given = is_used && member(reader->object, "sliding_window") != NULL;
    if (list != NULL) {
        rc = read_layer_types(reader, list, m);
    } else if (windows == WINDOWS_LISTED && is_used) {
        return refuse(reader,
                      "use_sliding_window: true: needs layer_types, which names the layers");
    } else if (windows == WINDOWS_ALTERNATE || (windows == WINDOWS_ALL && is_given)) {
        for (uint32_t layer = 0; layer < m->layers; layer += windows == WINDOWS_ALL ? 1 : 2) {
            mark_window(m, layer);
        }
    }
    if (rc != 0 || m->window_layers == 0) {
        return rc;
    }
    return read_number(reader, "sliding_window", 1, NUMBER_MAX, &m->window_tokens);
}

/* How the weights are stored where they are not quantised. */
static int read_torch_dtype(const struct reader *reader)
{
    const char *const key =
        member(reader->object, "dtype") != NULL ? "dtype" : "torch_dtype"; /* its older name */
    const json_t *const value = member(reader->object, key);
    const char *const name = json_is_string(value) ? json_string_value(value) : "";
    if (value != NULL && strcmp(name, "bfloat16") != 0 && strcmp(name, "float16") != 0) {
        return refuse(reader, "%s: %s: only bfloat16 and float16 are known here", key,
                      excerpt_of(value).text);
    }
    return 0;
}

static int read_weights(const struct reader *reader, const json_t *root, struct sim_model *m)
{
    const json_t *quantization = member(root, "quantization_config");
    quantization =
        quantization == NULL ? member(reader->object, "quantization_config") : quantization;
    if (quantization == NULL) {
        m->weights = SIM_BF16;
        return read_torch_dtype(reader);
    }
    const json_t *const algorithm = member(quantization, "quant_algo"); /* of modelopt */
    const json_t *const value =
        algorithm != NULL ? algorithm : member(quantization, "quant_method");
    static const struct {
        const char *name;
        enum sim_dtype dtype;
    } known[] = {{"fp8", SIM_FP8}, {"FP8", SIM_FP8}, {"mxfp4", SIM_MXFP4}, {"NVFP4", SIM_FP4}};
    for (uint32_t i = 0; json_is_string(value) && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(json_string_value(value), known[i].name) == 0) {
            m->weights = known[i].dtype;
            return 0;
        }
    }
    return refuse(reader,
                  "quantization_config: %s: quant_method fp8 or mxfp4, or quant_algo FP8 or NVFP4, "
                  "are known here: take it out and name the weights' type in the scenario",
                  excerpt_of(value != NULL ? value : quantization).text);
}

/* The directory's name, as Hugging Face's clones have it, if it can be printed; else the type's. */
static void set_name(struct sim_model *m, const char *path, const char *type)
{
    const char *const end = strrchr(path, '/');
    const char *begin = end;
    while (begin != NULL && begin > path && begin[-1] != '/') {
        begin--;
    }
    const size_t length = begin == NULL ? 0 : (size_t)(end - begin);
    bool is_plain = length > 0 && length < sizeof m->name && begin[0] != '.';
    for (size_t i = 0; is_plain && i < length; i++) {
        is_plain = begin[i] > ' ' && begin[i] < 0x7f;
    }
    if (is_plain) {
        (void)snprintf(m->name, sizeof m->name, "%.*s", (int)length, begin);
    } else {
        (void)snprintf(m->name, sizeof m->name, "%s", type);
    }
}

static int read_shape(struct reader *reader, const json_t *root, struct sim_model *m)
{
    /* Models of several media keep the language model's shape in an object of its own. */
    const json_t *const inner = member(root, "text_config");
    reader->object = json_is_object(inner) ? inner : root;
    const json_t *const value = member(reader->object, "model_type");
    const struct type *type = NULL;
    for (uint32_t i = 0; json_is_string(value) && i < sizeof types / sizeof types[0]; i++) {
        type = strcmp(types[i].name, json_string_value(value)) == 0 ? &types[i] : type;
    }
    if (type == NULL) {
        return refuse(reader, "model_type: %s: write " TYPE_NAMES, excerpt_of(value).text);
    }
    const struct field fields[] = {
        {"num_hidden_layers", &m->layers, 1},
        {"hidden_size", &m->hidden, 1},
        {"num_attention_heads", &m->heads, 1},
        {"vocab_size", &m->vocab, 1},
        {"max_position_embeddings", &m->max_context, 1},
    };
    set_name(m, reader->path, type->name);
    int rc = READ_FIELDS(reader, fields);
    if (rc == 0 && m->layers > HLG_LAYERS_MAX) {
        return refuse(reader, "num_hidden_layers: %u: at most %u are possible here", m->layers,
                      HLG_LAYERS_MAX);
    }
    rc = rc != 0 ? rc : read_flag(reader, "tie_word_embeddings", false, &m->is_embedding_shared);
    rc = rc != 0 ? rc : read_family(reader, type->family, m);
    rc = rc != 0 ? rc : read_windows(reader, type->windows, m);
    rc = rc != 0 ? rc : read_weights(reader, root, m);
    char why[256];
    if (rc == 0 && sim_model_check(m, why, sizeof why) != 0) {
        return refuse(reader, "%s", why);
    }
    return rc;
}

/* The file's content, to be freed, or NULL with a sentence. */
static char *read_file(const struct reader *reader, size_t *bytes, int *rc)
{
    FILE *const in = fopen(reader->path, "rb");
    char *content = NULL;
    *rc = -HLG_EIO;
    if (in == NULL) {
        (void)refuse(reader, "%s: name a config.json that can be read", strerror(errno));
        return NULL;
    }
    content = malloc(FILE_BYTES_MAX + 1);
    *bytes = content == NULL ? 0 : fread(content, 1, FILE_BYTES_MAX + 1, in);
    if (content == NULL || ferror(in) != 0) {
        (void)refuse(reader, "%s: name a config.json that can be read", strerror(errno));
    } else if (*bytes > FILE_BYTES_MAX) {
        *rc = refuse(reader, "more than %u bytes: that is no config.json", FILE_BYTES_MAX);
    } else {
        *rc = 0;
    }
    (void)fclose(in);
    if (*rc != 0) {
        free(content);
        return NULL;
    }
    return content;
}

int sim_model_read(struct sim_model *model, const char *path, char *text, size_t capacity)
{
    struct reader reader = {.path = path, .text = text, .capacity = capacity};
    struct sim_model made = {0};
    json_error_t error;
    size_t bytes = 0;
    int rc = 0;
    char *const content = read_file(&reader, &bytes, &rc);
    if (content == NULL) {
        return rc;
    }
    json_t *const root = json_loadb(content, bytes, JSON_REJECT_DUPLICATES, &error);
    free(content);
    if (root == NULL) {
        for (char *c = error.text; *c != '\0'; c++) { /* it may quote the file */
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        }
        return refuse(&reader, "line %d: %s: write valid JSON", error.line, error.text);
    }
    rc = json_is_object(root) ? read_shape(&reader, root, &made)
                              : refuse(&reader, "no object: write one with the key model_type");
    json_decref(root);
    if (rc == 0) {
        *model = made;
    }
    return rc;
}
