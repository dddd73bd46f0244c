/*
 * config.json of the known families is read as published, and everything else is refused in one
 * sentence that names file, key, value and remedy.
 *
 * Small texts are made up, each with one thing changed in a text that is read; then every prefix of
 * one, wrong types for every key, and texts that are huge or deep.
 */
#define _GNU_SOURCE /* mkdtemp(), asprintf() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model.h"

#define DEEPSEEK                                                                              \
    "{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"hidden_size\":7168,"          \
    "\"num_attention_heads\":128,\"num_key_value_heads\":128,\"vocab_size\":129280,"          \
    "\"max_position_embeddings\":163840,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"           \
    "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"                    \
    "\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"n_shared_experts\":1,"              \
    "\"moe_intermediate_size\":2048,\"first_k_dense_replace\":3,\"intermediate_size\":18432," \
    "\"moe_layer_freq\":1,\"num_nextn_predict_layers\":1,\"tie_word_embeddings\":false,"      \
    "\"torch_dtype\":\"bfloat16\",\"rope_scaling\":{\"factor\":40,\"type\":\"yarn\"},"        \
    "\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","                     \
    "\"weight_block_size\":[128,128]}}"

#define QWEN3                                                                              \
    "{\"model_type\":\"qwen3\",\"num_hidden_layers\":36,\"hidden_size\":4096,"             \
    "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":128,"               \
    "\"intermediate_size\":12288,\"vocab_size\":151936,\"max_position_embeddings\":40960," \
    "\"sliding_window\":null,\"use_sliding_window\":false,\"max_window_layers\":36,"       \
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"}"

#define QWEN3_MOE                                                                     \
    "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":94,\"hidden_size\":4096,"    \
    "\"num_attention_heads\":64,\"num_key_value_heads\":4,\"head_dim\":128,"          \
    "\"intermediate_size\":12288,\"moe_intermediate_size\":1536,\"num_experts\":128," \
    "\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,\"mlp_only_layers\":[],"     \
    "\"vocab_size\":151936,\"max_position_embeddings\":40960,"                        \
    "\"quantization_config\":{\"quant_method\":\"fp8\"}}"

#define LLAMA                                                                           \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":80,\"hidden_size\":8192,"          \
    "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672," \
    "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"torch_dtype\":\"bfloat16\"}"

#define GPT_OSS                                                                      \
    "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":24,\"hidden_size\":2880,"     \
    "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,"          \
    "\"intermediate_size\":2880,\"num_local_experts\":32,\"num_experts_per_tok\":4," \
    "\"experts_per_token\":4,\"sliding_window\":128,\"vocab_size\":201088,"          \
    "\"max_position_embeddings\":131072,"                                            \
    "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"

#define MIXTRAL                                                                         \
    "{\"model_type\":\"mixtral\",\"num_hidden_layers\":32,\"hidden_size\":4096,"        \
    "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336," \
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":null,"        \
    "\"vocab_size\":32000,\"max_position_embeddings\":32768}"

/* A directory like a clone's, with one config.json. */
static char folder[64];
static char path[96];
static char text[1024];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/halage-model-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static int read_bytes(const char *content, size_t bytes, struct sim_model *m)
{
    FILE *const out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(content, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
    text[0] = '\0';
    return sim_model_read(m, path, text, sizeof text);
}

static int read_content(const char *content, struct sim_model *m)
{
    return read_bytes(content, strlen(content), m);
}

/* A text with one key set to a JSON value, or taken out for NULL. */
static char *changed(const char *content, const char *key, const char *value)
{
    json_t *const root = json_loads(content, 0, NULL);
    assert_non_null(root);
    if (value == NULL) {
        assert_int_equal(json_object_del(root, key), 0);
    } else {
        json_t *const made = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(made);
        assert_int_equal(json_object_set_new(root, key, made), 0);
    }
    char *const dumped = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    assert_non_null(dumped);
    return dumped;
}

static void assert_read_as(const char *content, const char *name)
{
    struct sim_model m;
    if (read_content(content, &m) != 0) {
        fail_msg("%s", text);
    }
    struct sim_model expected = *sim_model_find(name);
    assert_string_equal(m.name, strrchr(folder, '/') + 1);
    memcpy(expected.name, m.name, sizeof m.name);
    assert_int_equal(sim_model_parameters(&m), sim_model_parameters(&expected));
    assert_int_equal(m.attention, expected.attention);
    assert_int_equal(m.weights, expected.weights);
    assert_int_equal(m.layers, expected.layers);
    assert_int_equal(m.hidden, expected.hidden);
    assert_int_equal(m.heads, expected.heads);
    assert_int_equal(m.kv_heads, expected.kv_heads);
    assert_int_equal(m.head_dim, expected.head_dim);
    assert_int_equal(m.q_lora_rank, expected.q_lora_rank);
    assert_int_equal(m.kv_lora_rank, expected.kv_lora_rank);
    assert_int_equal(m.qk_nope_head_dim, expected.qk_nope_head_dim);
    assert_int_equal(m.qk_rope_head_dim, expected.qk_rope_head_dim);
    assert_int_equal(m.v_head_dim, expected.v_head_dim);
    assert_int_equal(m.dense_layers, expected.dense_layers);
    assert_int_equal(m.dense_inter, expected.dense_inter);
    assert_int_equal(m.experts, expected.experts);
    assert_int_equal(m.topk, expected.topk);
    assert_int_equal(m.shared_experts, expected.shared_experts);
    assert_int_equal(m.moe_inter, expected.moe_inter);
    assert_int_equal(m.vocab, expected.vocab);
    assert_int_equal(m.mtp_layers, expected.mtp_layers);
    assert_int_equal(m.max_context, expected.max_context);
    assert_int_equal(m.window_layers, expected.window_layers);
    assert_int_equal(m.window_tokens, expected.window_tokens);
    assert_memory_equal(m.window_bits, expected.window_bits, sizeof m.window_bits);
    assert_int_equal(m.is_embedding_shared, expected.is_embedding_shared);
}

static void published_families_are_read(void **state)
{
    (void)state;
    assert_read_as(DEEPSEEK, "DeepSeek-R1");
    assert_read_as(QWEN3, "Qwen3-8B");
    assert_read_as(QWEN3_MOE, "Qwen3-235B-A22B");
    assert_read_as(LLAMA, "Llama-3.1-70B");
    assert_read_as(GPT_OSS, "gpt-oss-20b");
    assert_read_as(MIXTRAL, "Mixtral-8x7B");
}

/* What one change in a text that is read makes of it. */
static struct sim_model read_changed(const char *content, const char *key, const char *value)
{
    struct sim_model m;
    char *const made = changed(content, key, value);
    if (read_content(made, &m) != 0) {
        fail_msg("%s", text);
    }
    free(made);
    return m;
}

static void variants_are_read(void **state)
{
    (void)state;
    assert_int_equal(read_changed(LLAMA, "head_dim", "64").head_dim, 64);
    assert_int_equal(read_changed(LLAMA, "head_dim", "null").head_dim, 128);
    assert_int_equal(read_changed(LLAMA, "num_key_value_heads", NULL).kv_heads, 64);
    assert_true(read_changed(LLAMA, "tie_word_embeddings", "true").is_embedding_shared);
    assert_int_equal(read_changed(DEEPSEEK, "q_lora_rank", "null").q_lora_rank, 0);
    assert_int_equal(read_changed(DEEPSEEK, "quantization_config", NULL).weights, SIM_BF16);
    assert_int_equal(read_changed(DEEPSEEK, "n_routed_experts", NULL).dense_layers, 61);
    assert_int_equal(read_changed(LLAMA, "quantization_config",
                                  "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}")
                         .weights,
                     SIM_FP4);
    assert_int_equal(read_changed(GPT_OSS, "num_experts_per_tok", NULL).topk, 4);
    struct sim_model m = read_changed(MIXTRAL, "sliding_window", "4096");
    assert_int_equal(m.window_layers, 32);
    assert_int_equal(m.window_tokens, 4096);
    assert_int_equal(sim_model_kv_bytes_per_token(&m, SIM_BF16), 0);
    m = read_changed(QWEN3, "sliding_window", "4096"); /* it is not used */
    assert_int_equal(m.window_layers, 0);
    m = read_changed("{\"architectures\":[\"X\"],\"text_config\":" QWEN3 "}", "vision", "{}");
    assert_int_equal(m.layers, 36);
}

static void listed_windows_are_read(void **state)
{
    char list[24 * 24] = "[";
    (void)state;
    for (uint32_t layer = 0; layer < 24; layer++) {
        const size_t length = strlen(list);
        (void)snprintf(list + length, sizeof list - length, "%s\"%s_attention\"",
                       layer == 0 ? "" : ",", layer % 6 == 5 ? "full" : "sliding");
    }
    (void)snprintf(list + strlen(list), sizeof list - strlen(list), "]");
    const struct sim_model m = read_changed(GPT_OSS, "layer_types", list);
    assert_int_equal(m.window_layers, 20);
    assert_true(m.window_bits[0] == (0xffffff & ~0x820820ull));
}

/* One change, and what the sentence must name beside the file. */
static void assert_refused(const char *content, const char *key, const char *value,
                           const char *words)
{
    struct sim_model m;
    struct sim_model before;
    memset(&m, 0x5a, sizeof m);
    before = m;
    char *const made = changed(content, key, value);
    const int rc = read_content(made, &m);
    free(made);
    if (rc != -HLG_EINVAL || strstr(text, words) == NULL || strstr(text, path) != text ||
        strchr(text, '\n') != NULL) {
        fail_msg("%s = %s: %d: \"%s\" does not say \"%s\"", key, value == NULL ? "none" : value, rc,
                 text, words);
    }
    assert_memory_equal(&m, &before, sizeof m);
}

static void absurd_values_are_refused(void **state)
{
    (void)state;
    assert_refused(LLAMA, "model_type", NULL, "model_type: nothing: write llama");
    assert_refused(LLAMA, "model_type", "\"mamba\"", "model_type: \"mamba\"");
    assert_refused(LLAMA, "model_type", "3", "model_type: 3");
    assert_refused(LLAMA, "num_hidden_layers", "0", "num_hidden_layers: 0: write a whole number");
    assert_refused(LLAMA, "num_hidden_layers", "-61", "num_hidden_layers: -61");
    assert_refused(LLAMA, "num_hidden_layers", "255", "num_hidden_layers: 255: at most 254");
    assert_refused(LLAMA, "num_hidden_layers", "4294967297", "num_hidden_layers: 4294967297");
    assert_refused(LLAMA, "num_hidden_layers", "61.5", "num_hidden_layers: 61.5");
    assert_refused(LLAMA, "num_hidden_layers", "1e300", "num_hidden_layers: 1.0");
    assert_refused(LLAMA, "vocab_size", "9223372036854775807", "vocab_size: 9223372036854775807");
    assert_refused(LLAMA, "num_attention_heads", "63", "head_dim");
    assert_refused(LLAMA, "num_key_value_heads", "65", "num_key_value_heads: 65");
    assert_refused(LLAMA, "num_key_value_heads", "7", "kv_heads: 7");
    assert_refused(LLAMA, "intermediate_size", "16777216", "dense_inter: 16777216");
    assert_refused(LLAMA, "torch_dtype", "\"float32\"", "torch_dtype: \"float32\"");
    assert_refused(LLAMA, "tie_word_embeddings", "1", "tie_word_embeddings: 1: write true");
    assert_refused(LLAMA, "quantization_config", "{\"quant_method\":\"awq\"}", "\"awq\"");
    assert_refused(LLAMA, "quantization_config", "[]", "quantization_config: []");
    assert_refused(QWEN3, "use_sliding_window", "true", "needs layer_types");
    assert_refused(QWEN3, "layer_types", "[\"full_attention\"]", "write 36 names");
    assert_refused(QWEN3_MOE, "decoder_sparse_step", "2", "decoder_sparse_step: 2");
    assert_refused(QWEN3_MOE, "mlp_only_layers", "[3]", "mlp_only_layers: [3]");
    assert_refused(QWEN3_MOE, "num_experts_per_tok", "129", "topk: 129");
    assert_refused(DEEPSEEK, "first_k_dense_replace", "62", "dense_layers: 62");
    assert_refused(DEEPSEEK, "first_k_dense_replace", NULL, "no key 'first_k_dense_replace'");
    assert_refused(DEEPSEEK, "moe_layer_freq", "2", "moe_layer_freq: 2");
    assert_refused(DEEPSEEK, "n_routed_experts", "16777216", "experts: 16777216");
    assert_refused(DEEPSEEK, "kv_lora_rank", NULL, "no key 'kv_lora_rank'");
    assert_refused(GPT_OSS, "sliding_window", NULL, "no key 'sliding_window'");
    assert_refused(GPT_OSS, "num_local_experts", NULL, "no key 'num_local_experts'");
}

/* Every key of a text with every wrong type: refused, or, where a value may be left out, read. */
static void wrong_types_are_refused(void **state)
{
    static const char *const texts[] = {DEEPSEEK, QWEN3, QWEN3_MOE, LLAMA, GPT_OSS, MIXTRAL};
    static const char *const values[] = {"\"61\"", "[]", "{}",  "[[[[{\"a\":[1]}]]]]",
                                         "true",   "-1", "0.5", "\"\\u0007\\n\""};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *const root = json_loads(texts[i], 0, NULL);
        const char *key;
        json_t *unused;
        json_object_foreach(root, key, unused)
        {
            const bool is_read = strcmp(key, "rope_scaling") != 0 && /* not looked at */
                                 strcmp(key, "max_window_layers") != 0 &&
                                 strcmp(key, "experts_per_token") != 0 &&
                                 !(texts[i] != texts[0] && strcmp(key, "sliding_window") == 0) &&
                                 !(i == 0 && strcmp(key, "num_key_value_heads") == 0) &&
                                 !(i == 0 && strcmp(key, "torch_dtype") == 0) &&
                                 !(i == 2 && strcmp(key, "intermediate_size") == 0);
            for (size_t v = 0; is_read && v < sizeof values / sizeof values[0]; v++) {
                const bool is_same = (strcmp(values[v], "[]") == 0 && json_is_array(unused)) ||
                                     (strcmp(values[v], "true") == 0 && json_is_boolean(unused) &&
                                      strcmp(key, "use_sliding_window") != 0);
                if (!is_same) {
                    assert_refused(texts[i], key, values[v],
                                   strcmp(key, "use_sliding_window") == 0 ? "sliding" : key);
                }
            }
        }
        json_decref(root);
    }
}

static void truncated_texts_are_refused(void **state)
{
    (void)state;
    const size_t bytes = strlen(DEEPSEEK);
    for (size_t kept = 0; kept < bytes; kept++) {
        struct sim_model m;
        assert_int_equal(read_bytes(DEEPSEEK, kept, &m), -HLG_EINVAL);
        assert_non_null(strstr(text, "line 1"));
        assert_non_null(strstr(text, "write valid JSON"));
    }
}

/* `bytes` of one character, or of deep nesting, before and after which `head` and `tail` stand. */
static void assert_huge_refused(const char *head, char filling, size_t bytes, const char *tail,
                                const char *words)
{
    struct sim_model m;
    const size_t head_bytes = strlen(head);
    const size_t tail_bytes = strlen(tail);
    char *const content = malloc(head_bytes + bytes + tail_bytes + 1);
    assert_non_null(content);
    memcpy(content, head, head_bytes + 1);
    memset(content + head_bytes, filling, bytes);
    memcpy(content + head_bytes + bytes, tail, tail_bytes + 1);
    assert_int_equal(read_bytes(content, head_bytes + bytes + tail_bytes, &m), -HLG_EINVAL);
    free(content);
    if (strstr(text, words) == NULL || strlen(text) > 400) {
        fail_msg("%s", text);
    }
}

static void hostile_texts_are_refused(void **state)
{
    struct sim_model m;
    (void)state;
    assert_huge_refused("{\"model_type\":\"", 'a', 10u << 20, "\"}", "more than 4194304 bytes");
    assert_huge_refused("{\"model_type\":\"", 'a', 1u << 20, "\"}", "aaaa...");
    assert_huge_refused("{\"a\":", '[', 1u << 20, "", "valid JSON");
    assert_huge_refused("{\"num_hidden_layers\":", '9', 1u << 20, "}", "valid JSON");
    assert_huge_refused("", '\0', 1000, "", "valid JSON");
    assert_huge_refused("", '\xff', 1000, "", "valid JSON");
    assert_int_equal(read_content("[]", &m), -HLG_EINVAL);
    assert_int_equal(read_content("{\"a\":1,\"a\":2}", &m), -HLG_EINVAL);
    assert_non_null(strstr(text, "duplicate"));
    assert_int_equal(read_content("{\"text_config\":{\"text_config\":" LLAMA "}}", &m),
                     -HLG_EINVAL);
}

static void missing_files_are_named(void **state)
{
    struct sim_model m;
    (void)state;
    assert_int_equal(sim_model_read(&m, "/nowhere/config.json", text, sizeof text), -HLG_EIO);
    assert_non_null(strstr(text, "/nowhere/config.json: No such file"));
    assert_int_equal(sim_model_read(&m, folder, text, sizeof text), -HLG_EIO);
    assert_non_null(strstr(text, "directory"));
    char small[8];
    assert_int_equal(sim_model_read(&m, folder, small, sizeof small), -HLG_EIO);
    assert_true(strlen(small) < sizeof small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_families_are_read),
        cmocka_unit_test(variants_are_read),
        cmocka_unit_test(listed_windows_are_read),
        cmocka_unit_test(absurd_values_are_refused),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(truncated_texts_are_refused),
        cmocka_unit_test(hostile_texts_are_refused),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
