/*
 * Scenario files: what is written reads back equal, every key goes in and out, and all that is wrong is
 * refused in one sentence with file, key, value and remedy.
 *
 * The table of keys is walked, so that a new key is tested without a new test. Files are made in a
 * directory of the test's own.
 */
#define _GNU_SOURCE /* mkdtemp(), open_memstream() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"
#include "scenario_key.h"
#include "scenario_unit.h"

#define TEXT_BYTES 2048u

static char directory[] = "/tmp/halage-scenario-XXXXXX";
static struct sim_scenario scenario;
static struct sim_scenario other;

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", directory);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char paths[4][SIM_PATH_MAX];
    static unsigned next;
    char *const path = paths[next++ % 4];
    (void)snprintf(path, SIM_PATH_MAX, "%s/%s", directory, name);
    return path;
}

static const char *write_file(const char *name, const char *text)
{
    const char *const path = path_of(name);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

static char *written(const struct sim_scenario *from, bool comments)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(sim_scenario_write(from, comments, file), 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void read_good(struct sim_scenario *into, const char *path, const char *const *overrides,
                      uint32_t count)
{
    char text[TEXT_BYTES] = "";
    if (sim_scenario_read(into, path, overrides, count, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
}

/* Read a file of this text, which must be refused with a sentence of this end. */
static void assert_refused(const char *yaml, const char *const *overrides, uint32_t count,
                           const char *sentence)
{
    char text[TEXT_BYTES] = "";
    const char *const path = write_file("bad.yaml", yaml);
    const int result = sim_scenario_read(&scenario, path, overrides, count, text, sizeof text);
    assert_int_equal(result, -HLG_EINVAL);
    const size_t used = strncmp(text, path, strlen(path)) == 0 ? strlen(path) : 0;
    assert_string_equal(text + used, sentence);
}

static void assert_unfit(const char *const *overrides, uint32_t count, const char *part)
{
    char text[TEXT_BYTES] = "";
    read_good(&scenario, write_file("one.yaml", "schema: 1\n"), overrides, count);
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in: %s", part, text);
    }
    sim_scenario_fini(&scenario);
}

static void the_default_can_be_run(void **state)
{
    char text[TEXT_BYTES] = "";
    uint64_t kv_tokens[2] = {0};
    (void)state;
    sim_scenario_default(&scenario);
    assert_int_equal(sim_scenario_check(&scenario, kv_tokens, text, sizeof text), 0);
    assert_true(kv_tokens[0] > 100000 && kv_tokens[1] == kv_tokens[0]);
    assert_int_equal(scenario.decode.engine.gpus, 8);
    sim_scenario_fini(&scenario);
}

static void what_is_written_reads_back_equal(void **state)
{
    static const char *const overrides[] = {
        "serving=colocated",
        "colocated.accept=[0.85, 0.6]",
        "network.bandwidth=25Gbit/s",
        "network.operation=1.5us",
        "traffic.arrivals.rate=7/min",
        "measure.window=90.5s",
        "faults.0.at=3s",
        "faults.0.kind=slow",
        "faults.0.factor=0.25",
        "prefill.table=a b\".tsv",
        "measure.stop=1h",
        "decode.step_overhead=4.2ms",
        "seed=9007199254740991",
        "network.background=12.5%",
        "network.fold=never",
        "model.max_context=99999",
        "traffic.prompt.kind=lognormal",
        "decode.kv_tokens=123456",
    };
    const uint32_t count = sizeof overrides / sizeof overrides[0];
    (void)state;
    for (uint32_t used = 0; used <= count; used++) {
        read_good(&scenario, write_file("one.yaml", "schema: 1\n"), overrides, used);
        for (int comments = 0; comments < 2; comments++) {
            char *const first = written(&scenario, comments == 1);
            read_good(&other, write_file("two.yaml", first), NULL, 0);
            char *const second = written(&other, comments == 1);
            assert_string_equal(first, second);
            assert_true(sim_scenario_digest(&scenario) == sim_scenario_digest(&other));
            free(first);
            free(second);
            sim_scenario_fini(&other);
        }
        sim_scenario_fini(&scenario);
    }
}

static void every_key_takes_what_it_prints(void **state)
{
    const struct sim_key_source source = {.name = "test"};
    char value[SIM_KEY_TEXT_BYTES];
    char again[SIM_KEY_TEXT_BYTES];
    char text[TEXT_BYTES] = "";
    (void)state;
    sim_scenario_default(&scenario);
    for (uint32_t i = 0; i < sim_key_count; i++) {
        const struct sim_key *const key = &sim_keys[i];
        assert_true(key->comment != NULL && sim_key_find(key->path) == key);
        if (key->kind == SIM_KEY_LIST || key->kind == SIM_KEY_EXTENDS ||
            key->kind == SIM_KEY_TOKENS || key->kind == SIM_KEY_DRAFT) {
            continue;
        }
        sim_key_print(&scenario, key, value);
        if (sim_key_set(&scenario, key, value, &source, text, sizeof text) != 0) {
            fail_msg("%s", text);
        }
        sim_key_print(&scenario, key, again);
        assert_string_equal(value, again);
    }
    sim_scenario_fini(&scenario);
}

/* Every key says no to nonsense, and then has the value that it had. */
static void every_key_refuses_nonsense(void **state)
{
    static const char *const nonsense[] = {"",     "-1",  "nan", "1e999", "12 parsecs",
                                           "0x10", "1;2", "inf", "--",    "1ms1"};
    const struct sim_key_source source = {.name = "test"};
    char text[TEXT_BYTES] = "";
    (void)state;
    sim_scenario_default(&scenario);
    const uint64_t digest = sim_scenario_digest(&scenario);
    for (uint32_t i = 0; i < sim_key_count; i++) {
        const struct sim_key *const key = &sim_keys[i];
        const bool free_text = key->kind == SIM_KEY_TEXT || key->kind == SIM_KEY_EXTENDS;
        for (uint32_t k = 0; k < sizeof nonsense / sizeof nonsense[0] && !free_text; k++) {
            const bool may_be_empty = key->kind == SIM_KEY_CONFIG || key->kind == SIM_KEY_CDF;
            if (nonsense[k][0] == '\0' && may_be_empty) {
                continue;
            }
            if (sim_key_set(&scenario, key, nonsense[k], &source, text, sizeof text) == 0) {
                fail_msg("%s took '%s'", key->path, nonsense[k]);
            }
            assert_non_null(strstr(text, key->path));
            assert_true(strlen(text) > strlen(key->path) + 12);
        }
    }
    assert_true(sim_scenario_digest(&scenario) == digest);
    sim_scenario_fini(&scenario);
}

static void numbers_need_their_units(void **state)
{
    static const struct {
        enum sim_unit unit;
        const char *text;
        double value; /* < 0: refused */
    } cases[] = {
        {SIM_UNIT_NANOSECONDS, "500ms", 5e8},
        {SIM_UNIT_NANOSECONDS, "1.5 s", 1.5e9},
        {SIM_UNIT_NANOSECONDS, "2min", 120e9},
        {SIM_UNIT_NANOSECONDS, "1d", 86400e9},
        {SIM_UNIT_NANOSECONDS, "3\xc2\xb5s", 3e3},
        {SIM_UNIT_NANOSECONDS, "500", -1},
        {SIM_UNIT_NANOSECONDS, "ms", -1},
        {SIM_UNIT_NANOSECONDS, "5m", -1},
        {SIM_UNIT_NANOSECONDS, "5MS", -1},
        {SIM_UNIT_NANOSECONDS, "1e3ns", 1e3},
        {SIM_UNIT_PICOSECONDS, "0.35ns", 350},
        {SIM_UNIT_RATE, "3/s", 3},
        {SIM_UNIT_RATE, "180/min", 3},
        {SIM_UNIT_RATE, "3", -1},
        {SIM_UNIT_RATE, "3Hz", -1},
        {SIM_UNIT_BANDWIDTH, "400Gbit/s", 5e10},
        {SIM_UNIT_BANDWIDTH, "50GB/s", 5e10},
        {SIM_UNIT_BANDWIDTH, "1GiB/s", 1073741824},
        {SIM_UNIT_BANDWIDTH, "400G", -1},
        {SIM_UNIT_BANDWIDTH, "400Gbps", -1},
        {SIM_UNIT_BYTES, "64KiB", 65536},
        {SIM_UNIT_BYTES, "1kB", 1000},
        {SIM_UNIT_BYTES, "64K", -1},
        {SIM_UNIT_SHARE, "90%", 0.9},
        {SIM_UNIT_SHARE, "0.9", 0.9},
        {SIM_UNIT_NONE, "1e400", -1},
        {SIM_UNIT_NONE, "0x10", -1},
        {SIM_UNIT_NONE, "nan", -1},
        {SIM_UNIT_NONE, ".5", 0.5},
        {SIM_UNIT_NONE, ".", -1},
        {SIM_UNIT_NONE, "1e", -1},
        {SIM_UNIT_NONE, "1 2", -1},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = -2;
        const char *const remedy = sim_unit_parse(cases[i].unit, cases[i].text, &value);
        if ((remedy == NULL) != (cases[i].value >= 0)) {
            fail_msg("'%s': %s", cases[i].text, remedy == NULL ? "taken" : remedy);
        }
        assert_true(remedy != NULL || value == cases[i].value);
    }
}

/* Printed numbers read back to the bit, whatever their unit. Seed: 42. */
static void printed_numbers_read_back(void **state)
{
    uint64_t seed = 42;
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        char text[SIM_UNIT_TEXT_BYTES];
        double again = -1;
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        const enum sim_unit unit = (enum sim_unit)(i % (SIM_UNIT_BYTES + 1));
        const double share = (double)(seed >> 11) / 9007199254740992.0;
        double value = ldexp(share, (int)((seed >> 3) % 50));
        value = i % 3 == 0 ? floor(value) : i % 3 == 1 ? floor(value * 1000) / 1000 : value;
        sim_unit_print(unit, value, text);
        assert_null(sim_unit_parse(unit, text, &again));
        if (again != value) {
            fail_msg("%.17g is printed as %s and read as %.17g", value, text, again);
        }
    }
}

static void bad_files_are_refused_in_a_sentence(void **state)
{
    (void)state;
    assert_refused("name: x\n", NULL, 0, ": schema: missing; begin the file with schema: 1");
    assert_refused("schema: 2\n", NULL, 0,
                   ": line 1: schema: '2': write 1, the only schema so far");
    assert_refused("schema: 1\nserving: both\n", NULL, 0,
                   ": line 2: serving: 'both': write disaggregated or colocated");
    assert_refused(
        "schema: 1\nmeasure:\n  warmup: 500\n", NULL, 0,
        ": line 3: measure.warmup: '500': write a time with its unit (ns, us, ms, s, min, "
        "h, d), such as 500ms");
    assert_refused(
        "schema: 1\ntraffic:\n  arrivals: {rate: 3}\n", NULL, 0,
        ": line 3: traffic.arrivals.rate: '3': write a rate with its unit (/s, /min, /h), "
        "such as 3/s");
    assert_refused("schema: 1\ndecode:\n  nodes: 0\n", NULL, 0,
                   ": line 3: decode.nodes: '0': write a whole number, 1 to 2048");
    assert_refused("schema: 1\ndecode:\n  nodes: 1.5\n", NULL, 0,
                   ": line 3: decode.nodes: '1.5': write a whole number, 1 to 2048");
    assert_refused("schema: 1\ndecode:\n  memory_fraction: 1.5\n", NULL, 0,
                   ": line 3: decode.memory_fraction: '1.5': write a value, 0.01 to 1");
    assert_refused(
        "schema: 1\nprefill:\n  nodez: 1\n", NULL, 0,
        ": line 3: unknown key 'nodez' in prefill; valid keys: nodes, gpu, tp, dp, ep, "
        "engine, engine_version, weights, kv, roofline, table, step_overhead, "
        "layer_overhead, memory_fraction, kv_tokens, page_tokens, arrangement, "
        "requests_max, ingest, dispatch, budget_tokens, chunked, prefix_cache, forwards, "
        "layerwise");
    assert_refused("schema: 1\nschema: 1\n", NULL, 0, ": schema: the key is there twice; keep one");
    assert_refused("schema: 1\nprefill: 3\n", NULL, 0,
                   ": line 2: prefill: the wrong shape; write keys with values, one a line");
    assert_refused("schema: 1\nname: [a]\n", NULL, 0,
                   ": line 2: name: the wrong shape; write one value");
    assert_refused("schema: 1\ndecode:\n  accept: [0.8, 2]\n", NULL, 0,
                   ": line 3: decode.accept: '2': write a list of shares, such as [0.8, 0.5]");
    assert_refused("schema: 1\nfaults:\n  - {kind: burn, at: 1s}\n", NULL, 0,
                   ": line 3: faults.0.kind: 'burn': write kill, restart, slow or link");
    assert_refused("schema: 1\nfaults:\n  - {kind: kill}\n", NULL, 0,
                   ": line 3: faults.0: say what happens when: kind and at");
    assert_refused("schema: 1\nextends: none.yaml\n", NULL, 0,
                   ": line 2: extends: 'none.yaml': there is no such file beside this one");
    assert_refused(
        "schema: 1\ndecode: {accept: [0.8], draft: 2}\n", NULL, 0,
        ": line 2: decode.draft: '2': accept has fewer shares; write a smaller number, or more "
        "shares there");
}

static void unknown_names_are_answered_with_the_known(void **state)
{
    char text[TEXT_BYTES] = "";
    static const struct {
        const char *yaml;
        const char *part;
    } cases[] = {
        {"schema: 1\nmodel: {name: R2}\n", "model.name: 'R2': valid: DeepSeek-R1, "},
        {"schema: 1\nnode: dgx-9\n", "line 2: node: 'dgx-9': valid: hgx-h200, "},
        {"schema: 1\nprefill: {gpu: H900}\n", "prefill.gpu: 'H900': valid: A100, "},
        {"schema: 1\nnetwork: {nic: cx1}\n", "network.nic: 'cx1': valid: cx7-400g, "},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const path = write_file("bad.yaml", cases[i].yaml);
        assert_int_equal(sim_scenario_read(&scenario, path, NULL, 0, text, sizeof text),
                         -HLG_EINVAL);
        assert_non_null(strstr(text, cases[i].part));
    }
}

static void overrides_are_applied_last_and_in_order(void **state)
{
    static const char *const good[] = {"decode.nodes=5", "decode.nodes=7", "decode.accept=0.5,0.25",
                                       "faults.1.kind=restart", "faults.2.at=9s"};
    static const char *const bad[][2] = {
        {"decode.nodes", "-s: 'decode.nodes': write key.path=value, such as decode.nodes=3"},
        {"=3", "-s: '=3': write key.path=value, such as decode.nodes=3"},
        {"routing.x=1", "-s: unknown key 'routing.x'; valid keys: routing.prefill, routing.decode, "
                        "routing.load_weight"},
        {"decode.nodes=x", "-s: decode.nodes: 'x': write a whole number, 1 to 2048"},
        {"routing.decode=prefix",
         "-s: routing.decode: 'prefix': write round-robin, random or least-loaded"},
        {"faults.9.at=1s", "-s: faults.9.at: '1s': write faults.N.kind, .at, .role, .node, .nic or "
                           ".factor, N one of the scenario's or the next; or faults=[]"},
        {"extends=x.yaml", "-s: extends: 'x.yaml': it belongs into a file"},
    };
    static const char yaml[] = "schema: 1\ndecode: {nodes: 2, accept: [0.9]}\nfaults:\n"
                               "  - {kind: kill, at: 1s, role: decode, node: 1}\n"
                               "  - {kind: kill, at: 2s, nic: 3}\n";
    (void)state;
    read_good(&scenario, write_file("one.yaml", yaml), good, 5);
    assert_int_equal(scenario.decode.nodes, 7);
    assert_int_equal(scenario.decode.draft, 2);
    assert_true(scenario.decode.accept[1] == 0.25);
    assert_int_equal(scenario.fault_count, 3);
    assert_int_equal(scenario.faults[0].nic, HLG_NONE);
    assert_true(scenario.faults[0].decode && !scenario.faults[1].decode);
    assert_int_equal(scenario.faults[1].kind, SIM_FAULT_RESTART);
    assert_true(scenario.faults[2].at == 9 * HLG_NS_PER_S);
    sim_scenario_fini(&scenario);
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(yaml, &bad[i][0], 1, bad[i][1]);
    }
}

static void scenarios_extend_each_other(void **state)
{
    char text[TEXT_BYTES] = "";
    (void)state;
    (void)write_file("a.yaml",
                     "schema: 1\nname: a\nnode: dgx-h100\ndecode: {nodes: 4, accept: [0.5]}\n"
                     "faults: [{kind: kill, at: 1s}]\n");
    (void)write_file("b.yaml", "schema: 1\nextends: a.yaml\nname: b\nprefill: {nodes: 2}\n");
    read_good(&scenario,
              write_file("c.yaml", "schema: 1\nextends: b.yaml\nprefill: {gpu: h200}\n"
                                   "decode: {draft: 0}\n"),
              NULL, 0);
    assert_string_equal(scenario.name, "b");
    assert_string_equal(scenario.prefill.engine.gpu, "H200");
    assert_string_equal(scenario.decode.engine.gpu, "H100");
    assert_int_equal(scenario.prefill.nodes, 2);
    assert_int_equal(scenario.decode.nodes, 4);
    assert_int_equal(scenario.decode.draft, 0);
    assert_int_equal(scenario.fault_count, 1);
    sim_scenario_fini(&scenario);
    (void)write_file("a.yaml", "schema: 1\nextends: ./c.yaml\n");
    assert_int_equal(sim_scenario_read(&scenario, path_of("c.yaml"), NULL, 0, text, sizeof text),
                     -HLG_EINVAL);
    assert_non_null(strstr(text,
                           "a.yaml: line 2: extends: './c.yaml': scenarios extend each other in "
                           "a circle; take one away"));
}

/* Whatever is not said of the co-located engine is the decode engine's, so that the two compare. */
static void a_colocated_engine_is_decodes_unless_said(void **state)
{
    const char *const overrides[] = {"colocated.ep=1", "decode.memory_fraction=0.7"};
    (void)state;
    (void)write_file("a.yaml", "schema: 1\ncolocated: {page_tokens: 16}\n"
                               "decode: {gpu: B200, tp: 2, dp: 2, ep: 4, page_tokens: 32}\n");
    const char *const path = write_file(
        "b.yaml", "schema: 1\nextends: a.yaml\ndecode: {engine: trtllm, kv_tokens: 1234567}\n");
    read_good(&scenario, path, overrides, 2);
    struct sim_engine expected = scenario.decode.engine;
    expected.page_tokens = 16;
    expected.ep = 1;
    assert_memory_equal(&scenario.colocated.engine, &expected, sizeof expected);
    assert_string_equal(expected.name, "trtllm");
    assert_string_equal(expected.gpu, "B200");
    assert_int_equal(expected.gpus, 4);
    assert_int_equal(expected.kv_tokens, 1234567);
    assert_true(expected.memory_fraction == 0.7);
    assert_int_equal(scenario.colocated.nodes, 4);
    sim_scenario_fini(&scenario);
}

static void models_may_be_given_in_numbers(void **state)
{
    static const char yaml[] = "schema: 1\nmodel: {name: mine, attention: gqa, weights: bf16, "
                               "layers: 12, hidden: 1024, heads: "
                               "16, kv_heads: 4, head_dim: 64, dense_layers: 12, dense_inter: "
                               "4096, vocab: 32000, max_context: "
                               "32768, window_layers: 6, window_tokens: 1024}\n"
                               "prefill: {tp: 4}\ndecode: {tp: 2}\n";
    char text[TEXT_BYTES] = "";
    uint64_t bits = 0;
    (void)state;
    read_good(&scenario, write_file("one.yaml", yaml), NULL, 0);
    assert_int_equal(scenario.model.experts, 0);
    assert_int_equal(scenario.prefill.engine.weights, SIM_BF16);
    for (uint32_t i = 0; i < 12; i++) {
        bits += (scenario.model.window_bits[0] >> i) & 1;
    }
    assert_true(bits == 6 && scenario.model.window_bits[0] < 1 << 12);
    if (sim_scenario_check(&scenario, NULL, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    sim_scenario_fini(&scenario);
}

static void the_digest_follows_what_a_run_depends_on(void **state)
{
    static const struct {
        const char *override;
        bool changes;
    } cases[] = {
        {"name=x", false},
        {"question=x", false},
        {"seed=2", true},
        {"decode.nodes=4", true},
        {"decode.nodes=3", false}, /* as it is */
        {"colocated.nodes=9", false},
        {"traffic.trace.file=x", false},
        {"traffic.arrivals.rate=180/min", false},
        {"traffic.arrivals.rate=3.000001/s", true},
        {"network.busy_factor=1.01", true},
        {"model.layers=60", true},
        {"faults.0.at=3s", true},
        {"node=none", false}, /* the hardware stays */
    };
    (void)state;
    sim_scenario_default(&scenario);
    const uint64_t digest = sim_scenario_digest(&scenario);
    sim_scenario_fini(&scenario);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_good(&scenario, write_file("one.yaml", "schema: 1\n"), &cases[i].override, 1);
        if ((sim_scenario_digest(&scenario) != digest) != cases[i].changes) {
            fail_msg("%s", cases[i].override);
        }
        sim_scenario_fini(&scenario);
    }
}

static void what_cannot_be_run_is_refused(void **state)
{
    static const struct {
        const char *overrides[3];
        const char *part;
    } cases[] = {
        {{"node=dgx-h100"}, "GiB missing"},
        {{"decode.tp=3"}, "-s decode.tp: 3"},
        {{"decode.tp=16"}, "decode.tp: tp 16 * dp 1 GPUs: a node hgx-h200 has 8; write less"},
        {{"decode.ep=4"}, "decode.ep: 4: write 1, or tp * dp = 8"},
        {{"decode.page_tokens=32"},
         "prefill: its pages cannot be planned into decode's: page_tokens: source 64, target 32"},
        {{"decode.kv=fp8"}, "its pages cannot be planned into decode's: head_bytes"},
        {{"decode.accept=[0.5,0.6]"}, "decode.accept: 0.6 after 0.5"},
        {{"faults.0.node=1"}, "faults.0.node: 1: there are nodes 0 to 0"},
        {{"faults.0.kind=slow", "faults.0.nic=8", "faults.0.factor=0.5"},
         "faults.0.nic: 8: a node has NICs 0 to 7"},
        {{"faults.0.kind=slow"}, "faults.0.factor: 0: write more than 0, or kind: link"},
        {{"faults.0.kind=slow", "faults.0.factor=1e-12"},
         "faults.0.factor: 1e-12: leaves a NIC 0.0"},
        {{"faults.0.kind=link", "faults.0.factor=0.5"}, "faults.0.factor: 0.5: a link is down, 0"},
        {{"traffic.prompt.tokens=170000"}, "and model.max_context is 163840; write shorter ones"},
        {{"decode.kv_tokens=4500"},
         "traffic: prompt and answer of the longest request have 4596 tokens, and a DP rank of "
         "decode has room for 4500"},
        {{"prefill.kv_tokens=4000"},
         "the longest prompt has 4096 tokens, and a DP rank of prefill"},
        {{"traffic.prompt.min=5000"}, "traffic.prompt.max: 4096: write 5000 to 16777216 tokens"},
        {{"traffic.prompt.kind=empirical"}, "traffic.prompt.cdf: '': name the file of lengths"},
        {{"traffic.source=trace"}, "traffic.trace.file: '': name the file"},
        {{"traffic.source=trace", "traffic.trace.format=csv"},
         "traffic.trace.format: 'csv': write azure"},
        {{"traffic.requests=200"},
         "measure.warmup_requests (default): 200: the scenario has 200 requests"},
        {{"decode.engine=triton"}, "-s decode.engine: 'triton': write sglang"},
        {{"decode.table=none.tsv"}, "-s decode.table: 'none.tsv': there is no such file"},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t count = 0;
        while (count < 3 && cases[i].overrides[count] != NULL) {
            count++;
        }
        assert_unfit(cases[i].overrides, count, cases[i].part);
    }
}

/* The bound of a distribution is no request: only what is drawn is refused. */
static void rare_lengths_are_judged_by_what_is_drawn(void **state)
{
    static const char *const overrides[] = {"traffic.prompt.kind=lognormal",
                                            "traffic.prompt.max=16777216", "traffic.prompt.min=1"};
    char text[TEXT_BYTES] = "";
    (void)state;
    read_good(&scenario, write_file("one.yaml", "schema: 1\n"), overrides, 3);
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), 0);
    scenario.traffic.drawn.prompt.mean = 100000;
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "prompt and answer of request "));
    sim_scenario_fini(&scenario);
}

static void values_set_by_hand_are_checked_too(void **state)
{
    char text[TEXT_BYTES] = "";
    (void)state;
    sim_scenario_default(&scenario);
    scenario.decode.nodes = 0;
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "decode.nodes: '0': write a whole number, 1 to 2048"));
    sim_scenario_default(&scenario);
    scenario.traffic.drawn.arrivals.rate_rps = -3;
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "traffic.arrivals.rate: '-3': write a rate with its unit"));
    sim_scenario_default(&scenario);
    scenario.decode.engine.step_overhead_ns = -2; /* any below 0 is the calibrated one */
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), 0);
    sim_scenario_fini(&scenario);
}

static void traces_are_read_and_their_faults_told(void **state)
{
    static const char *const overrides[] = {"traffic.source=trace", "traffic.trace.format=mooncake",
                                            "traffic.trace.file=t.jsonl", "traffic.trace.speed=2",
                                            "measure.warmup_requests=1"};
    struct sim_workload workload = {0};
    char text[TEXT_BYTES] = "";
    (void)state;
    (void)write_file(
        "t.jsonl",
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, 2]}\n"
        "{\"timestamp\": 1000, \"input_length\": 10, \"output_length\": 5, \"hash_ids\": [3]}\n");
    read_good(&scenario, write_file("one.yaml", "schema: 1\n"), overrides, 5);
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), 0);
    assert_int_equal(sim_scenario_workload(&scenario, &workload, text, sizeof text), 0);
    assert_int_equal(workload.count, 2);
    assert_true(workload.requests[1].arrival_ns == HLG_NS_PER_S / 2);
    sim_workload_fini(&workload);
    scenario.traffic.speed = 1e-13;
    assert_int_equal(sim_scenario_workload(&scenario, &workload, text, sizeof text), -HLG_EINVAL);
    assert_non_null(
        strstr(text, "traffic.trace.speed: 1e-13: the last request would come after 3660 days"));
    scenario.traffic.speed = 1;
    (void)write_file("t.jsonl", "");
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "t.jsonl"));
    (void)write_file(
        "t.jsonl",
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, 2]}\n"
        "{\"timestamp\": 0, \"input_length\": 600}\n");
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), -HLG_EINVAL);
    if (strstr(text, "t.jsonl:2: ") == NULL) {
        fail_msg("%s", text);
    }
    sim_scenario_fini(&scenario);
}

static void length_files_are_read(void **state)
{
    static const char *const overrides[] = {"traffic.prompt.cdf=lengths.json",
                                            "traffic.prompt.kind=empirical", "traffic.prompt.min=1",
                                            "traffic.prompt.max=1000000"};
    char text[TEXT_BYTES] = "";
    struct sim_workload workload = {0};
    (void)state;
    (void)write_file("lengths.json", "[[100, 0.5], [200, 1]]");
    read_good(&scenario, write_file("one.yaml", "schema: 1\n"), overrides, 4);
    const uint64_t digest = sim_scenario_digest(&scenario);
    assert_int_equal(sim_scenario_check(&scenario, NULL, text, sizeof text), 0);
    assert_int_equal(sim_scenario_workload(&scenario, &workload, text, sizeof text), 0);
    for (uint32_t i = 0; i < workload.count; i++) {
        assert_true(workload.requests[i].prompt_tokens <= 200);
    }
    sim_workload_fini(&workload);
    sim_scenario_fini(&scenario);
    (void)write_file("lengths.json", "[[100, 0.5], [201, 1]]");
    read_good(&scenario, path_of("one.yaml"), overrides, 4);
    assert_true(sim_scenario_digest(&scenario) != digest);
    sim_scenario_fini(&scenario);
    (void)write_file("lengths.json", "[[100, 0.5]]");
    assert_int_equal(
        sim_scenario_read(&scenario, path_of("one.yaml"), overrides, 4, text, sizeof text),
        -HLG_EINVAL);
    assert_non_null(strstr(text, "lengths.json"));
}

static void sweeps_make_a_grid(void **state)
{
    static const char yaml[] = "schema: 1\nsweep:\n"
                               "  - key: decode.nodes\n    values: [1, 2, 3]\n"
                               "  - name: mtp\n    cases:\n"
                               "      - \"decode.accept=[]\"\n"
                               "      - \"decode.accept=[0.8, 0.5] seed=7\"\n";
    struct sim_sweep sweep = {0};
    const char *overrides[SIM_SWEEP_OVERRIDES_MAX];
    char text[TEXT_BYTES] = "";
    (void)state;
    const char *const path = write_file("one.yaml", yaml);
    assert_int_equal(sim_scenario_sweep(path, &sweep, text, sizeof text), 0);
    assert_int_equal(sweep.point_count, 6);
    assert_string_equal(sweep.axes[0].name, "decode.nodes");
    assert_string_equal(sweep.axes[1].texts[1], "decode.accept=[0.8, 0.5] seed=7");
    assert_int_equal(sim_sweep_point(&sweep, 4, overrides), 2);
    assert_string_equal(overrides[0], "decode.nodes=3");
    assert_string_equal(overrides[1], "decode.accept=[]");
    assert_int_equal(sim_sweep_point(&sweep, 3, overrides), 3);
    assert_string_equal(overrides[0], "decode.nodes=2");
    assert_string_equal(overrides[1], "decode.accept=[0.8, 0.5]");
    assert_string_equal(overrides[2], "seed=7");
    read_good(&scenario, path, overrides, 3);
    assert_int_equal(scenario.decode.draft, 2);
    assert_int_equal(scenario.seed, 7);
    sim_scenario_fini(&scenario);
    sim_sweep_fini(&sweep);
    /* Inherited where a file has none of its own. */
    assert_int_equal(sim_scenario_sweep(write_file("two.yaml", "schema: 1\nextends: one.yaml\n"),
                                        &sweep, text, sizeof text),
                     0);
    assert_int_equal(sweep.point_count, 6);
    sim_sweep_fini(&sweep);
    assert_int_equal(
        sim_scenario_sweep(write_file("two.yaml", "schema: 1\n"), &sweep, text, sizeof text), 0);
    assert_int_equal(sweep.point_count, 0);
    sim_sweep_fini(&sweep);
}

static void bad_sweeps_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"[{key: decode.nodes}]", "line 2: sweep.0: write key and values, or cases"},
        {"[{key: decode.nodes, values: [1], cases: [\"seed=1\"]}]",
         "write key and values, or cases"},
        {"[{key: decode.nodes, values: []}]", "write key and values, or cases"},
        {"[{key: decode.node, values: [1]}]",
         "sweep: decode.node: unknown key 'decode.node'; valid keys"},
        {"[{key: decode.nodes, values: [1, 0]}]",
         "sweep: decode.nodes: decode.nodes: '0': write a whole number, 1 to 2048"},
        {"[{cases: [\"decode.nodes\"]}]", "sweep: case: 'decode.nodes': write key.path=value"},
        {"[{keys: 1}]", "unknown key 'keys' in sweep; valid keys: key, name, values, cases"},
    };
    struct sim_sweep sweep = {0};
    char text[TEXT_BYTES] = "";
    char yaml[256];
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(yaml, sizeof yaml, "schema: 1\nsweep: %s\n", cases[i][0]);
        assert_int_equal(
            sim_scenario_sweep(write_file("one.yaml", yaml), &sweep, text, sizeof text),
            -HLG_EINVAL);
        if (strstr(text, cases[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i][1], text);
        }
        assert_int_equal(sweep.point_count, 0);
    }
}

static void sweeps_have_limits(void **state)
{
    static const char *texts[SIM_SWEEP_ENTRIES_MAX + 1];
    struct sim_sweep sweep = {0};
    char text[TEXT_BYTES] = "";
    char wide[1024] = "";
    (void)state;
    for (uint32_t i = 0; i <= SIM_SWEEP_ENTRIES_MAX; i++) {
        texts[i] = "seed=1";
    }
    assert_int_equal(
        sim_sweep_add(&sweep, "x", texts, SIM_SWEEP_ENTRIES_MAX + 1, text, sizeof text),
        -HLG_EINVAL);
    assert_int_equal(sim_sweep_add(&sweep, "x", texts, SIM_SWEEP_ENTRIES_MAX, text, sizeof text),
                     0);
    assert_int_equal(sim_sweep_add(&sweep, "x", texts, SIM_SWEEP_ENTRIES_MAX, text, sizeof text),
                     0);
    assert_int_equal(sim_sweep_add(&sweep, "x", texts, 2, text, sizeof text), -HLG_EINVAL);
    assert_int_equal(sweep.point_count, 65536);
    for (uint32_t i = 0; i <= SIM_SWEEP_OVERRIDES_MAX; i++) {
        (void)snprintf(wide + strlen(wide), sizeof wide - strlen(wide), "seed=%u ", i);
    }
    const char *const one[] = {wide};
    assert_int_equal(sim_sweep_add(&sweep, "x", one, 1, text, sizeof text), -HLG_EINVAL);
    assert_non_null(strstr(text, "too many overrides"));
    assert_int_equal(sweep.axis_count, 2);
    sim_sweep_fini(&sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_can_be_run),
        cmocka_unit_test(what_is_written_reads_back_equal),
        cmocka_unit_test(every_key_takes_what_it_prints),
        cmocka_unit_test(every_key_refuses_nonsense),
        cmocka_unit_test(numbers_need_their_units),
        cmocka_unit_test(printed_numbers_read_back),
        cmocka_unit_test(bad_files_are_refused_in_a_sentence),
        cmocka_unit_test(unknown_names_are_answered_with_the_known),
        cmocka_unit_test(overrides_are_applied_last_and_in_order),
        cmocka_unit_test(scenarios_extend_each_other),
        cmocka_unit_test(a_colocated_engine_is_decodes_unless_said),
        cmocka_unit_test(models_may_be_given_in_numbers),
        cmocka_unit_test(the_digest_follows_what_a_run_depends_on),
        cmocka_unit_test(what_cannot_be_run_is_refused),
        cmocka_unit_test(rare_lengths_are_judged_by_what_is_drawn),
        cmocka_unit_test(values_set_by_hand_are_checked_too),
        cmocka_unit_test(traces_are_read_and_their_faults_told),
        cmocka_unit_test(length_files_are_read),
        cmocka_unit_test(sweeps_make_a_grid),
        cmocka_unit_test(bad_sweeps_are_refused),
        cmocka_unit_test(sweeps_have_limits),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
