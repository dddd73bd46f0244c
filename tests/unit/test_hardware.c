/*
 * GPUs, NICs and nodes: each has a source and numbers that can be, presets name what exists, and a NIC's
 * times follow its constants.
 *
 * Where HALAGE_DATA names the hardware catalogue, every GPU's figures are compared with it, else that
 * test is skipped. Constants of NICs against published figures: tests/accuracy/test_nic.c.
 */
#define _GNU_SOURCE /* asprintf() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hardware.h"

static char text[512];

static void gpus_are_sound(void **state)
{
    static const char *const wanted[] = {"A100", "H100", "H800",  "H20",   "H200",
                                         "B200", "B300", "GB200", "GB300", "L40S"};
    uint32_t count = 0;
    (void)state;
    for (const struct sim_gpu *g = sim_gpu_at(0); g != NULL; g = sim_gpu_at(++count)) {
        assert_ptr_equal(sim_gpu_find(g->name), g);
        assert_true(strlen(g->source) > 10);
        assert_true(g->bf16_flops >= 1e14 && g->bf16_flops <= 1e16);
        assert_true(g->fp8_flops == 0 || g->fp8_flops >= 1.9 * g->bf16_flops);
        assert_true(g->fp4_flops == 0 || g->fp4_flops >= 1.9 * g->fp8_flops);
        assert_true(g->hbm_bandwidth >= 8e11 && g->hbm_bandwidth <= 1e13);
        assert_true(g->hbm_bytes >= 40000000000 && g->hbm_bytes <= 300000000000);
        assert_true(g->scaleup_bandwidth >= 3e10 && g->pcie_bandwidth >= 3e10);
    }
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_non_null(sim_gpu_find(wanted[i]));
    }
    assert_ptr_equal(sim_gpu_find("h200"), sim_gpu_find("H200"));
    assert_null(sim_gpu_find("H2"));
    assert_null(sim_gpu_at(count));
    assert_null(sim_gpu_at(UINT32_MAX));
}

static void nics_are_sound(void **state)
{
    uint32_t count = 0;
    (void)state;
    for (const struct sim_nic *n = sim_nic_at(0); n != NULL; n = sim_nic_at(++count)) {
        assert_ptr_equal(sim_nic_find(n->name), n);
        assert_true(strlen(n->source) > 10);
        assert_true(n->bandwidth <= n->line_rate && n->bandwidth >= 0.7 * n->line_rate);
        if (sim_nic_check(n, text, sizeof text) != 0) {
            fail_msg("%s", text);
        }
        /* nothing but the NIC itself is modelled until a scenario says so */
        assert_int_equal(n->background_ppm, 0);
        assert_true(n->busy_factor == 1);
        assert_true(sim_nic_bandwidth(n) == n->bandwidth);
        assert_int_equal(sim_nic_op_ps(n), n->op_ps);
    }
    assert_ptr_equal(sim_nic_find("CX7-400G"), sim_nic_find("cx7-400g"));
    assert_null(sim_nic_find(""));
    assert_null(sim_nic_at(count));
}

/* Issue 3 names these nodes; Gbit/s are those of the whole node. */
static void nodes_have_their_rate(void **state)
{
    static const struct {
        const char *name;
        const char *gpu;
        double gbits;
        uint32_t nics;
    } wanted[] = {
        {"hgx-h200", "H200", 3200, 8},   {"dgx-h100", "H100", 3200, 8},
        {"p5", "H100", 3200, 32},        {"p5e", "H200", 3200, 32},
        {"p5en", "H200", 3200, 16},      {"hgx-b200", "B200", 3200, 8},
        {"p6-b200", "B200", 3200, 8},    {"hgx-h20", "H20", 3200, 8},
        {"hgx-h800", "H800", 3200, 8},   {"p4d", "A100-40G", 400, 8},
        {"nd-a100-v4", "A100", 1600, 8},
    };
    uint32_t count = 0;
    (void)state;
    for (const struct sim_node_preset *p = sim_node_preset_at(0); p != NULL;
         p = sim_node_preset_at(++count)) {
        assert_ptr_equal(sim_node_preset_find(p->name), p);
        assert_true(strlen(p->source) > 10);
        assert_non_null(sim_gpu_find(p->gpu));
        assert_non_null(sim_nic_find(p->nic));
        assert_in_range(p->gpus, 1, 8);
        assert_in_range(p->nics_per_gpu, 1, HLG_RAILS_MAX);
    }
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const struct sim_node_preset *const p = sim_node_preset_find(wanted[i].name);
        assert_non_null(p);
        assert_string_equal(p->gpu, wanted[i].gpu);
        assert_int_equal(p->gpus * p->nics_per_gpu, wanted[i].nics);
        const double gbits = wanted[i].nics * sim_nic_find(p->nic)->line_rate * 8e-9;
        assert_true(fabs(gbits - wanted[i].gbits) < 1);
    }
    assert_null(sim_node_preset_find("dgx-h200x"));
}

static void times_follow_the_constants(void **state)
{
    struct sim_nic nic = *sim_nic_find("plain"); /* 50 GB/s and nothing else */
    (void)state;
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 1000) < 1e-9);
    nic.latency_ns = 100;
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 1200) < 1e-9);
    nic.op_ps = 50000; /* ten take 500 ns: hidden */
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 1200) < 1e-9);
    nic.op_ps = 200000; /* and now 2 us: not the sum */
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 2200) < 1e-9);
    nic.busy_factor = 1.5;
    assert_int_equal(sim_nic_op_ps(&nic), 300000);
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 3200) < 1e-9);
    nic.background_ppm = 900000; /* a tenth is left: 10 us */
    assert_true(fabs(sim_nic_batch_ns(&nic, 10, 5000) - 10200) < 1e-6);
}

static void impossible_nics_are_refused(void **state)
{
    const struct sim_nic *const good = sim_nic_find("cx7-400g");
    struct sim_nic bad[7];
    static const char *const keys[] = {"bandwidth: 0",   "bandwidth: nan", "busy_factor: 0.5",
                                       "background_ppm", "pieces_max: 0",  "latency_ns",
                                       "op_ps"};
    (void)state;
    for (size_t i = 0; i < 7; i++) {
        bad[i] = *good;
    }
    bad[0].bandwidth = 0;
    bad[1].bandwidth = (double)NAN;
    bad[2].busy_factor = 0.5;
    bad[3].background_ppm = 1000000;
    bad[4].pieces_max = 0;
    bad[5].latency_ns = UINT64_MAX;
    bad[6].op_ps = UINT64_MAX;
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(sim_nic_check(&bad[i], text, sizeof text), -HLG_EINVAL);
        if (strstr(text, keys[i]) == NULL || strstr(text, "nic cx7-400g: ") != text) {
            fail_msg("%s", text);
        }
    }
}

static double figure(const json_t *gpu, const char *key)
{
    return json_number_value(json_object_get(json_object_get(gpu, key), "v"));
}

/* Names are the catalogue's up to its first hyphen. */
static void figures_are_the_catalogues(void **state)
{
    const char *const data = getenv("HALAGE_DATA");
    char *path = NULL;
    (void)state;
    if (data == NULL) {
        print_message("HALAGE_DATA is unset: hardware.json is not there to compare with\n");
        skip();
    }
    assert_true(asprintf(&path, "%s/hardware.json", data) > 0);
    json_t *const root = json_load_file(path, 0, NULL);
    free(path);
    const json_t *const list = json_object_get(root, "gpus");
    assert_int_equal(json_array_size(list), 10);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const row = json_array_get(list, i);
        char name[32];
        (void)snprintf(name, sizeof name, "%s", json_string_value(json_object_get(row, "name")));
        name[strcspn(name, "-")] = '\0';
        const struct sim_gpu *const g = sim_gpu_find(name);
        assert_non_null(g);
        const bool is_measured = json_object_get(row, "hbm_capacity_bytes_alt") != NULL;
        const char *const bytes = is_measured ? "hbm_capacity_bytes_alt" : "hbm_capacity_bytes";
        assert_true(g->bf16_flops == figure(row, "bf16_dense_flops"));
        assert_true(g->fp8_flops == figure(row, "fp8_dense_flops")); /* 0 when there is none */
        assert_true(g->fp4_flops == figure(row, "fp4_dense_flops"));
        assert_true(g->hbm_bandwidth == figure(row, "hbm_bytes_per_s"));
        assert_true((double)g->hbm_bytes == figure(row, bytes));
        assert_true(g->scaleup_bandwidth == figure(row, "scaleup_bytes_per_s_per_dir"));
        assert_true(g->pcie_bandwidth == figure(row, "pcie_bytes_per_s_per_dir"));
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_sound),
        cmocka_unit_test(nics_are_sound),
        cmocka_unit_test(nodes_have_their_rate),
        cmocka_unit_test(times_follow_the_constants),
        cmocka_unit_test(impossible_nics_are_refused),
        cmocka_unit_test(figures_are_the_catalogues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
