/*
 * Models have the parameters and bytes that their vendors publish, and layouts that the
 * plan takes.
 *
 * Expected numbers are the derived values of the model catalogue that DESIGN's planning notes use;
 * where HALAGE_DATA names it, every model and every derived value is compared, else that test is
 * skipped.
 */
#define _GNU_SOURCE /* asprintf() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#include <halage/plan.h>

static char text[1024];

static const struct sim_model *model(const char *name)
{
    const struct sim_model *const found = sim_model_find(name);
    assert_non_null(found);
    return found;
}

static void catalogue_is_sound(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (const struct sim_model *m = sim_model_at(0); m != NULL; m = sim_model_at(++count)) {
        if (sim_model_check(m, text, sizeof text) != 0) {
            fail_msg("%s", text);
        }
        assert_ptr_equal(sim_model_find(m->name), m);
    }
    assert_int_equal(count, 13);
    assert_ptr_equal(sim_model_find("DEEPSEEK-r1"), sim_model_at(0));
    assert_null(sim_model_find("DeepSeek-R"));
    assert_null(sim_model_find(""));
    assert_null(sim_model_at(UINT32_MAX));
}

static void totals_are_those_published(void **state)
{
    static const struct {
        const char *name;
        double billions;
        uint64_t kv_bytes; /* of a token in bf16, windows aside */
    } expected[] = {
        {"DeepSeek-R1", 671.0, 70272},
        {"Kimi-K2-Instruct", 1026, 70272},
        {"Qwen3-Coder-480B-A35B-Instruct", 480.2, 253952},
        {"Qwen3-235B-A22B", 235.1, 192512},
        {"Qwen3-32B", 32.8, 262144},
        {"gpt-oss-120b", 116.8, 36864},
        {"Llama-3.1-405B", 405.8, 516096},
        {"Llama-3.1-70B", 70.6, 327680},
        {"Llama-3.1-8B", 8.0, 131072},
    };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct sim_model *const m = model(expected[i].name);
        const double billions = (double)sim_model_parameters(m) * 1e-9;
        const double unit = expected[i].billions > 1000 ? 1 : 0.1;
        if (billions < expected[i].billions - unit / 2 ||
            billions > expected[i].billions + unit / 2) {
            fail_msg("%s: %.3f billions, not %.1f", m->name, billions, expected[i].billions);
        }
        assert_int_equal(sim_model_kv_bytes_per_token(m, SIM_BF16), expected[i].kv_bytes);
    }
    /* The vendor's card: 685 billions with the MTP module, which stores a second embedding and head:
       1.9 billions that engines share. */
    const double module = (double)sim_model_mtp_weight_bytes(model("DeepSeek-R1"), SIM_FP8) * 1e-9;
    assert_true(module > 11.4 && module < 11.8);
    assert_int_equal(sim_model_mtp_weight_bytes(model("Qwen3-8B"), SIM_BF16), 0);
}

/* C14 of the planning notes: bytes kept and sent halve; weights have a type of their own. */
static void fp8_halves_the_cache_alone(void **state)
{
    (void)state;
    for (uint32_t i = 0; sim_model_at(i) != NULL; i++) {
        const struct sim_model *const m = sim_model_at(i);
        struct hlg_layout wide;
        struct hlg_layout narrow;
        assert_int_equal(sim_model_kv_bytes_per_token(m, SIM_BF16),
                         2 * sim_model_kv_bytes_per_token(m, SIM_FP8));
        assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, 5000),
                         2 * sim_model_kv_bytes(m, SIM_FP8, 5000));
        assert_int_equal(
            sim_model_layout(m, SIM_BF16, 4, 1, 64, HLG_HND, 0, &wide, text, sizeof text), 0);
        assert_int_equal(
            sim_model_layout(m, SIM_FP8, 4, 1, 64, HLG_HND, 0, &narrow, text, sizeof text), 0);
        assert_int_equal(hlg_layout_page_bytes(&wide, 0), 2 * hlg_layout_page_bytes(&narrow, 0));
    }
}

/* C03: a window layer's cache ends at its window; half of gpt-oss's layers have one of 128. */
static void windows_are_not_overcharged(void **state)
{
    const struct sim_model *const m = model("gpt-oss-120b");
    const uint64_t tokens = 131072;
    const uint64_t layer = 2 * 8 * 64 * 2; /* K and V, 8 heads of 64, 2 bytes */
    (void)state;
    assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, tokens),
                     18 * layer * tokens + 18 * layer * 128);
    const uint64_t all = 36 * layer * tokens; /* the mistake: 1.998 times too much */
    const double ratio = (double)all / (double)sim_model_kv_bytes(m, SIM_BF16, tokens);
    assert_true(ratio > 1.99 && ratio < 2);
    /* the other mistake: no window layers at all */
    assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, 128), 36 * layer * 128);
    assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, 1), 36 * layer);
    assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, 4096), 155713536);
}

/* C15: bytes = tokens x bytes of a token, at every length. */
static void bytes_grow_with_tokens(void **state)
{
    static const uint64_t lengths[] = {1, 2, 63, 64, 65, 4096, 163840};
    const struct sim_model *const m = model("DeepSeek-R1");
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, lengths[i]), lengths[i] * 70272);
        /* MLA's latent is whole at each rank */
        assert_int_equal(sim_model_rank_kv_bytes(m, SIM_BF16, 8, lengths[i]), lengths[i] * 70272);
    }
    assert_int_equal(sim_model_kv_bytes(m, SIM_BF16, 4096), 287834112);
    /* K and V are split up to kv_heads ranks, and copied beyond */
    const struct sim_model *const q = model("Qwen3-235B-A22B");
    assert_int_equal(sim_model_rank_kv_bytes(q, SIM_BF16, 2, 100), 100 * 192512 / 2);
    assert_int_equal(sim_model_rank_kv_bytes(q, SIM_BF16, 4, 100), 100 * 192512 / 4);
    assert_int_equal(sim_model_rank_kv_bytes(q, SIM_BF16, 8, 100), 100 * 192512 / 4);
}

/* What one GPU holds: all ranks together hold at least the model, and exactly it where nothing is copied. */
static void ranks_hold_the_model(void **state)
{
    (void)state;
    for (uint32_t i = 0; sim_model_at(i) != NULL; i++) {
        const struct sim_model *const m = sim_model_at(i);
        for (uint32_t dtype = SIM_BF16; dtype <= SIM_MXFP4; dtype++) {
            const uint64_t whole = sim_model_weight_bytes(m, (enum sim_dtype)dtype);
            const uint64_t one = sim_model_rank_weight_bytes(m, (enum sim_dtype)dtype, 1, 1, 1);
            const uint64_t eighth = sim_model_rank_weight_bytes(m, (enum sim_dtype)dtype, 8, 1, 1);
            assert_int_equal(one, whole);
            assert_true(eighth * 8 >= whole);
            assert_true((double)eighth * 8 < 1.05 * (double)whole);
        }
    }
    /* R1: 8 ranks of attention with their own sequences hold it 8 times; experts stay spread. */
    const struct sim_model *const m = model("DeepSeek-R1");
    const uint64_t tp = sim_model_rank_weight_bytes(m, SIM_FP8, 8, 1, 8);
    const uint64_t dp = sim_model_rank_weight_bytes(m, SIM_FP8, 1, 8, 8);
    const uint64_t copied = 61ull * 187105280 + 3ull * 396361728 + 58ull * 44040192 + /* shared */
                            2ull * 1853358080 + 58ull * 2 * 7168 * 256;
    assert_int_equal(dp, copied + 58ull * 256 / 8 * 44040192);
    assert_true(tp < dp);
    assert_int_equal(sim_model_rank_weight_bytes(m, SIM_FP8, 8, 1, 1), tp);
}

static void layouts_are_accepted(void **state)
{
    static const uint32_t tps[] = {1, 2, 4, 8, 16};
    (void)state;
    for (uint32_t i = 0; sim_model_at(i) != NULL; i++) {
        const struct sim_model *const m = sim_model_at(i);
        for (size_t t = 0; t < sizeof tps / sizeof tps[0]; t++) {
            struct hlg_layout layout;
            struct hlg_refusal why;
            if (sim_model_layout(m, SIM_BF16, tps[t], 2, 64, HLG_HND, 14336, &layout, text,
                                 sizeof text) != 0) {
                fail_msg("%s", text);
            }
            assert_int_equal(hlg_layout_check(&layout, &why), 0);
            assert_int_equal(layout.group_count, m->window_layers != 0 ? 3 : 2);
            /* planes x heads x bytes of all layers are the cache of a token */
            uint64_t bytes = 0;
            for (uint32_t layer = 0; layer < m->layers; layer++) {
                const struct hlg_group *const g = &layout.groups[0];
                bytes += hlg_group_has_layer(g, layer)
                             ? (uint64_t)g->planes * g->heads * g->head_bytes
                             : 0;
            }
            assert_int_equal(bytes, sim_model_kv_bytes_per_token(m, SIM_BF16));
            assert_int_equal(layout.groups[layout.group_count - 1].kind, HLG_GROUP_CONTEXT);
        }
    }
}

/* Shapes as in engines' caches: R1 one plane of 1,152 bytes; K and V of 8 heads; windows apart. */
static void layouts_have_the_caches_shape(void **state)
{
    struct hlg_layout layout;
    (void)state;
    assert_int_equal(sim_model_layout(model("DeepSeek-R1"), SIM_BF16, 8, 1, 64, HLG_HND, 0, &layout,
                                      text, sizeof text),
                     0);
    assert_int_equal(layout.group_count, 1);
    assert_int_equal(layout.groups[0].planes, 1);
    assert_int_equal(layout.groups[0].heads, 1);
    assert_int_equal(layout.groups[0].head_bytes, 1152);
    assert_int_equal(hlg_layout_page_bytes(&layout, 0), 73728);

    assert_int_equal(sim_model_layout(model("Qwen3-Coder-480B-A35B-Instruct"), SIM_FP8, 8, 1, 64,
                                      HLG_NHD, 0, &layout, text, sizeof text),
                     0);
    assert_int_equal(layout.groups[0].planes, 2);
    assert_int_equal(layout.groups[0].heads, 8);
    assert_int_equal(layout.groups[0].head_bytes, 128);
    assert_int_equal(layout.groups[0].arrangement, HLG_NHD);

    assert_int_equal(sim_model_layout(model("gpt-oss-20b"), SIM_BF16, 8, 1, 16, HLG_HND, 0, &layout,
                                      text, sizeof text),
                     0);
    assert_int_equal(layout.group_count, 2);
    for (uint32_t layer = 0; layer < 24; layer++) {
        assert_int_equal(hlg_group_has_layer(&layout.groups[0], layer), layer % 2 == 1);
        assert_int_equal(hlg_group_has_layer(&layout.groups[1], layer), layer % 2 == 0);
    }
    assert_int_equal(sim_model_layout(model("Llama-3.1-8B"), SIM_BF16, 3, 1, 64, HLG_HND, 0,
                                      &layout, text, sizeof text),
                     -HLG_EINVAL);
    assert_non_null(strstr(text, "Llama-3.1-8B"));
    assert_non_null(strstr(text, "heads: 8 (group 0) against tp 3"));
    assert_int_equal(sim_model_layout(model("Llama-3.1-8B"), SIM_BF16, 8, 1, 0, HLG_HND, 0, &layout,
                                      text, sizeof text),
                     -HLG_EINVAL);
    assert_non_null(strstr(text, "page_tokens"));
}

#define SLICES 4096u
#define PAGES  10u

static void build_plan(const struct sim_model *m, uint32_t source_tp, uint32_t target_tp,
                       enum hlg_arrangement arrangement, struct hlg_slice *slices,
                       struct hlg_plan *plan)
{
    struct hlg_layout source;
    struct hlg_layout target;
    struct hlg_refusal why;
    assert_int_equal(
        sim_model_layout(m, SIM_BF16, source_tp, 1, 16, arrangement, 0, &source, text, sizeof text),
        0);
    assert_int_equal(
        sim_model_layout(m, SIM_BF16, target_tp, 1, 16, arrangement, 0, &target, text, sizeof text),
        0);
    assert_int_equal(hlg_plan_build(plan, slices, SLICES, &source, &target, &why), 0);
}

/* C15 again, on the wire: the plan moves tokens x bytes of a token x copies at the decoder. */
static void plans_move_the_cache(void **state)
{
    static const uint32_t tps[] = {4, 8};
    static struct hlg_slice slices[SLICES];
    (void)state;
    for (uint32_t i = 0; i < 13 * 8; i++) {
        const struct sim_model *const m = sim_model_at(i / 8);
        const uint32_t target_tp = tps[i % 2];
        struct hlg_plan plan;
        uint64_t bytes = 0;
        build_plan(m, tps[i / 2 % 2], target_tp, i / 4 % 2 == 0 ? HLG_HND : HLG_NHD, slices, &plan);
        for (uint32_t s = 0; s < plan.slice_count; s++) {
            for (uint32_t layer = 0; hlg_plan_uses(&plan, &slices[s], 0) && layer < m->layers;
                 layer++) {
                bytes += hlg_plan_moves_layer(&plan, &slices[s], layer)
                             ? (uint64_t)PAGES * slices[s].bytes * slices[s].count
                             : 0;
            }
        }
        const uint64_t copies = hlg_max_u32(1, target_tp / m->kv_heads);
        const uint64_t token = m->layers * sim_model_kv_bytes_per_layer(m, SIM_BF16);
        assert_int_equal(bytes, PAGES * 16 * token * copies);
    }
}

/* Writes of a page and plane at one decode rank, as in the golden vectors for resharding. */
static void plans_need_the_known_writes(void **state)
{
    static const struct {
        const char *name;
        uint32_t source_tp;
        uint32_t target_tp;
        uint32_t hnd;
        uint32_t nhd;
    } golden[] = {
        {"Llama-3.1-8B", 4, 4, 1, 1},     {"Llama-3.1-8B", 4, 8, 1, 16},
        {"Llama-3.1-8B", 8, 4, 2, 32},    {"Qwen3-235B-A22B", 4, 8, 1, 1},
        {"Qwen3-235B-A22B", 8, 4, 1, 1},  {"Qwen3-235B-A22B", 8, 8, 1, 1},
        {"Qwen3-235B-A22B", 2, 8, 1, 16}, {"Qwen3-235B-A22B", 8, 2, 2, 32},
        {"Qwen3-8B", 16, 8, 1, 1},        {"Qwen3-8B", 8, 16, 1, 1},
        {"DeepSeek-R1", 8, 8, 1, 1},      {"DeepSeek-R1", 4, 16, 1, 1},
    };
    static struct hlg_slice slices[SLICES];
    (void)state;
    for (size_t i = 0; i < 2 * sizeof golden / sizeof golden[0]; i++) {
        const struct sim_model *const m = model(golden[i / 2].name);
        const uint32_t planes = m->attention == SIM_ATTENTION_MLA ? 1 : 2;
        const uint32_t writes = i % 2 == 0 ? golden[i / 2].hnd : golden[i / 2].nhd;
        const uint32_t pages[] = {PAGES};
        struct hlg_plan plan;
        build_plan(m, golden[i / 2].source_tp, golden[i / 2].target_tp,
                   i % 2 == 0 ? HLG_HND : HLG_NHD, slices, &plan);
        for (uint32_t rank = 0; rank < golden[i / 2].target_tp; rank++) {
            assert_int_equal(hlg_plan_pieces(&plan, 0, rank, pages, HLG_NONE),
                             (uint64_t)m->layers * planes * PAGES * writes);
        }
    }
}

static void dtypes_have_names(void **state)
{
    (void)state;
    for (uint32_t i = SIM_BF16; i <= SIM_MXFP4; i++) {
        enum sim_dtype dtype = SIM_BF16;
        assert_true(sim_dtype_find(sim_dtype_name((enum sim_dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
    enum sim_dtype dtype = SIM_FP8;
    assert_true(sim_dtype_find("BF16", &dtype));
    assert_false(sim_dtype_find("fp16", &dtype));
    assert_int_equal(dtype, SIM_BF16);
}

static void impossible_models_are_refused(void **state)
{
    (void)state;
    struct sim_model m = *model("DeepSeek-R1");
    m.layers = 255;
    assert_int_equal(sim_model_check(&m, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "layers: 255"));
    m = *model("DeepSeek-R1");
    m.topk = 257;
    assert_int_equal(sim_model_check(&m, text, sizeof text), -HLG_EINVAL);
    m = *model("Qwen3-32B");
    m.kv_heads = 7;
    assert_int_equal(sim_model_check(&m, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "must divide heads, 64"));
    m = *model("gpt-oss-20b");
    m.window_layers = 11;
    assert_int_equal(sim_model_check(&m, text, sizeof text), -HLG_EINVAL);
    m = *model("DeepSeek-R1"); /* each number by itself is possible */
    m.layers = 254;
    m.hidden = 1u << 17;
    m.experts = 1u << 14;
    m.moe_inter = 1u << 20;
    assert_int_equal(sim_model_check(&m, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "parameters"));
}

/* All derived values of the catalogue file, when it is there. */
static void derived_values_are_the_catalogues(void **state)
{
    static const char *const dtypes[] = {"bf16", "fp8", "fp4", "mxfp4_moe"};
    const char *const data = getenv("HALAGE_DATA");
    char *path = NULL;
    (void)state;
    if (data == NULL) {
        print_message("HALAGE_DATA is unset: models.json is not there to compare with\n");
        skip();
    }
    assert_true(asprintf(&path, "%s/models.json", data) > 0);
    json_t *const root = json_load_file(path, 0, NULL);
    free(path);
    const json_t *const list = json_object_get(root, "models");
    assert_int_equal(json_array_size(list), 13);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const row = json_array_get(list, i);
        const json_t *const derived = json_object_get(row, "derived");
        const struct sim_model *const m = model(json_string_value(json_object_get(row, "name")));
        const struct {
            const char *key;
            uint64_t value;
        } values[] = {
            {"attn_params_per_layer", sim_model_attention_parameters(m)},
            {"total_params", sim_model_parameters(m)},
            {"active_params_per_token_excl_input_embedding", sim_model_active_parameters(m)},
            {"embedding_params", sim_model_embedding_parameters(m)},
            {"dense_ffn_params_per_layer", sim_model_dense_parameters(m)},
            {"native_weight_bytes", sim_model_weight_bytes(m, m->weights)},
            {"bf16_weight_bytes", sim_model_weight_bytes(m, SIM_BF16)},
            {"kv_bytes_per_token_bf16", sim_model_kv_bytes_per_token(m, SIM_BF16)},
            {"kv_bytes_per_token_fp8", sim_model_kv_bytes_per_token(m, SIM_FP8)},
            {"kv_bytes_per_token_per_layer_bf16", sim_model_kv_bytes_per_layer(m, SIM_BF16)},
            {"kv_bytes_per_token_per_layer_fp8", sim_model_kv_bytes_per_layer(m, SIM_FP8)},
            {"kv_bytes_4096_bf16", sim_model_kv_bytes(m, SIM_BF16, 4096)},
        };
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            const json_t *const value = json_object_get(derived, values[k].key);
            if (!json_is_integer(value) ||
                json_integer_value(value) != (json_int_t)values[k].value) {
                fail_msg("%s: %s: %ju, not %lld", m->name, values[k].key,
                         (uintmax_t)values[k].value, (long long)json_integer_value(value));
            }
        }
        assert_string_equal(dtypes[m->weights],
                            json_string_value(json_object_get(row, "native_weight_dtype")));
        assert_int_equal(m->max_context, json_integer_value(json_object_get(row, "max_context")));
        assert_int_equal(m->topk, json_integer_value(json_object_get(row, "topk")));
        assert_int_equal(m->mtp_layers, json_integer_value(json_object_get(row, "mtp_layers")));
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalogue_is_sound),
        cmocka_unit_test(totals_are_those_published),
        cmocka_unit_test(fp8_halves_the_cache_alone),
        cmocka_unit_test(windows_are_not_overcharged),
        cmocka_unit_test(bytes_grow_with_tokens),
        cmocka_unit_test(ranks_hold_the_model),
        cmocka_unit_test(layouts_are_accepted),
        cmocka_unit_test(layouts_have_the_caches_shape),
        cmocka_unit_test(plans_move_the_cache),
        cmocka_unit_test(plans_need_the_known_writes),
        cmocka_unit_test(dtypes_have_names),
        cmocka_unit_test(impossible_models_are_refused),
        cmocka_unit_test(derived_values_are_the_catalogues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
