/*
 * Three constants a NIC kind reproduce the published times of writes, alone and in pages; the
 * catalogue's constants are those of the fit; and the simgrid transport, given them, takes the times
 * of the formula.
 *
 * Facts: arXiv:2510.27656 (fabric-lib), tables 2 and 3. Each kind is fitted twice: to all eight points,
 * and to four, of which the other four are then predicted. The transport runs the same eight cases on
 * a simulated pair of nodes, each in a child of its own (SimGrid has one engine a process).
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts.h"
#include "fit.h"
#include "hardware.h"

#include <halage/message.h>
#include <halage/transport/simgrid.h>

#define CASES         8u
#define KINDS         2u
#define PAGES         10000u /* of a paged write: the bench of the paper */
#define SINGLES       20u    /* single writes, one after another, that the transport is timed on */
#define BLOCK_PIECES  256u   /* pieces offered in one write, as the pump does: a block of pages */
#define NICS_MAX      2u
#define BITS_PER_GBIT 1e9
#define TEST          "nic"
#define TABLE_2       "arXiv:2510.27656 table 2"
#define TABLE_3       "arXiv:2510.27656 table 3"

enum constant {
    BANDWIDTH, /* bytes/s */
    OP,        /* s */
    BASE,      /* s */
    CONSTANTS
};

/* What is written: pieces posted together, of so many bytes. */
static const struct {
    const char *name;
    uint32_t bytes;
    uint32_t pieces;
} cases[CASES] = {
    {"single-64KiB", 64u << 10, 1},    {"single-256KiB", 256u << 10, 1},
    {"single-1MiB", 1u << 20, 1},      {"single-32MiB", 32u << 20, 1},
    {"paged-1KiB", 1u << 10, PAGES},   {"paged-8KiB", 8u << 10, PAGES},
    {"paged-16KiB", 16u << 10, PAGES}, {"paged-64KiB", 64u << 10, PAGES},
};

/* Gbit/s of one GPU. */
static const struct kind {
    const char *name;
    uint32_t nics; /* of the GPU: EFA 2 x 200 Gbit/s, over which the paper spreads its writes */
    double gbits[CASES];
} kinds[KINDS] = {
    {"efa-200g", 2, {16, 54, 145, 336, 17, 138, 274, 364}},
    {"cx7-400g", 1, {44, 116, 245, 378, 91, 320, 367, 370}},
};

static const uint32_t all_points[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const uint32_t four_points[] = {0, 3, 4, 7}; /* single 64 KiB, 32 MiB; paged 1 KiB, 64 KiB */

static bool is_of_four(uint32_t point)
{
    return point == 0 || point == 3 || point == 4 || point == 7;
}

/* Gbit/s of a case, from its time in seconds. */
static double gbits_of(uint32_t index, double seconds)
{
    return (double)cases[index].bytes * cases[index].pieces * 8 / seconds / BITS_PER_GBIT;
}

/* The model, for the NICs of a GPU together: x is bandwidth, time of a piece, what is fixed. */
static double predict(const void *context, const double *x, uint32_t index)
{
    (void)context;
    const double bytes = (double)cases[index].bytes * cases[index].pieces;
    return gbits_of(index, fmax(bytes / x[BANDWIDTH], cases[index].pieces * x[OP]) + x[BASE]);
}

/* Of one NIC, in the catalogue's units: each has its share of bytes and of pieces. */
static void fit(const struct kind *kind, const uint32_t *points, uint32_t count, double *x)
{
    x[BANDWIDTH] = 45e9;
    x[OP] = 200e-9;
    x[BASE] = 20e-6;
    (void)fit_relative(predict, NULL, points, count, kind->gbits, x, CONSTANTS);
}

static double error_of(const struct kind *kind, const double *x, uint32_t index)
{
    return 100 * (predict(NULL, x, index) / kind->gbits[index] - 1);
}

static void print_fit(const struct kind *kind, const char *what, const double *x)
{
    print_message("%s, %s: of a NIC %.3f GB/s, %.1f ns a piece; fixed %.3f us\n", kind->name, what,
                  x[BANDWIDTH] / kind->nics * 1e-9, x[OP] * kind->nics * 1e9, x[BASE] * 1e6);
    for (uint32_t i = 0; i < CASES; i++) {
        print_message("  %-14s measured %4.0f Gbit/s, model %6.1f, error %+5.1f %%\n",
                      cases[i].name, kind->gbits[i], predict(NULL, x, i), error_of(kind, x, i));
    }
}

/* Issue 3: on all eight points mean <= 5 %, worst <= 15 %. */
static void eight_points_are_fitted(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        double x[CONSTANTS];
        double sum = 0;
        double worst = 0;
        fit(&kinds[k], all_points, CASES, x);
        print_fit(&kinds[k], "fitted to all eight", x);
        for (uint32_t i = 0; i < CASES; i++) {
            const double error = fabs(error_of(&kinds[k], x, i));
            sum += error;
            worst = fmax(worst, error);
        }
        print_message("  mean %.2f %%, worst %.2f %%\n", sum / CASES, worst);
        assert_true(sum / CASES <= 5);
        assert_true(worst <= 15);
    }
}

/* Issue 3: fitted to four points, the other four to 10 % in the mean; the worst is printed. */
static void four_points_predict_the_others(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        double x[CONSTANTS];
        double sum = 0;
        double worst = 0;
        fit(&kinds[k], four_points, 4, x);
        print_fit(&kinds[k], "fitted to single 64 KiB and 32 MiB, paged 1 and 64 KiB", x);
        for (uint32_t i = 0; i < CASES; i++) {
            if (!is_of_four(i)) {
                const double error = fabs(error_of(&kinds[k], x, i));
                sum += error;
                worst = fmax(worst, error);
            }
        }
        print_message("  the other four: mean %.2f %%, worst %.2f %%\n", sum / 4, worst);
        assert_true(sum / 4 <= 10);
    }
}

/* The fit finds a minimum: no constant moved by a part in a thousand does better. */
static void fit_is_a_minimum(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        double x[CONSTANTS];
        fit(&kinds[k], all_points, CASES, x);
        for (uint32_t c = 0; c < 2 * CONSTANTS; c++) {
            double moved[CONSTANTS];
            double best = 0;
            double sum = 0;
            memcpy(moved, x, sizeof x);
            moved[c / 2] *= c % 2 == 0 ? 1.001 : 0.999;
            for (uint32_t i = 0; i < CASES; i++) {
                best += error_of(&kinds[k], x, i) * error_of(&kinds[k], x, i);
                sum += error_of(&kinds[k], moved, i) * error_of(&kinds[k], moved, i);
            }
            assert_true(sum > best);
        }
    }
}

/* What each constant is for: without it some point is off by half or more. */
static void no_constant_is_idle(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint32_t c = 0; c < CONSTANTS; c++) {
            double x[CONSTANTS];
            double worst = 0;
            fit(&kinds[k], all_points, CASES, x);
            x[c] = c == BANDWIDTH ? 1e15 : 0;
            for (uint32_t i = 0; i < CASES; i++) {
                worst = fmax(worst, fabs(error_of(&kinds[k], x, i)));
            }
            assert_true(worst > 50);
        }
    }
}

static void assert_close(double value, double expected, double relative, const char *what)
{
    if (!(fabs(value / expected - 1) <= relative)) {
        fail_msg("%s: %.10g, not %.10g", what, value, expected);
    }
}

/* The catalogue has the fit of all eight points, rounded. */
static void catalogue_is_the_fit(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct sim_nic *const nic = sim_nic_find(kinds[k].name);
        double x[CONSTANTS];
        assert_non_null(nic);
        fit(&kinds[k], all_points, CASES, x);
        assert_close(nic->bandwidth, x[BANDWIDTH] / kinds[k].nics, 5e-5, "bandwidth");
        assert_close((double)nic->op_ps, x[OP] * kinds[k].nics * 1e12, 5e-5, "op_ps");
        assert_close((double)nic->latency_ns, x[BASE] / 2 * 1e9, 1e-4, "latency_ns");
        for (uint32_t i = 0; i < CASES; i++) {
            /* a single write is cut into as many as there are NICs */
            const bool is_single = cases[i].pieces == 1;
            const uint64_t bytes = cases[i].bytes / (is_single ? kinds[k].nics : 1);
            const uint64_t pieces = is_single ? 1 : cases[i].pieces / kinds[k].nics;
            assert_close(gbits_of(i, sim_nic_batch_ns(nic, pieces, bytes) * 1e-9),
                         predict(NULL, x, i), 2e-4, cases[i].name);
        }
    }
}

static void facts_are_reported(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        double eight[CONSTANTS];
        double four[CONSTANTS];
        fit(&kinds[k], all_points, CASES, eight);
        fit(&kinds[k], four_points, 4, four);
        for (uint32_t i = 0; i < CASES; i++) {
            char id[64];
            char what[128];
            (void)snprintf(id, sizeof id, "nic-%s-%s", kinds[k].name, cases[i].name);
            (void)snprintf(what, sizeof what, "%s x %u, %s, constants of %s points", kinds[k].name,
                           kinds[k].nics, cases[i].name,
                           is_of_four(i) ? "all eight" : "four other");
            fact_expect(&(struct fact){.id = id,
                                       .what = what,
                                       .source = TABLE_2,
                                       .measured = kinds[k].gbits[i],
                                       .unit = "Gbit/s",
                                       .predicted = predict(NULL, is_of_four(i) ? eight : four, i),
                                       .test = TEST,
                                       .is_calibrated = is_of_four(i)});
        }
    }
}

/* Table 3: pages of 32 KiB of a layer, over 4 ranks with 2 NICs each, and the time of a layer. */
static const struct {
    uint32_t pages;
    double ms;
} layers[] = {{256, 0.661},  {512, 0.952},  {1024, 1.610},
              {1024, 1.606}, {1024, 1.611}, {1024, 1.609}};

#define LAYERS     (sizeof layers / sizeof layers[0])
#define LAYER_NICS 8u

/*
 * The KV transfer table is calibration: two constants fitted on its rows of 256 and 1024 pages, and
 * only the row of 512 left to check them. The NIC constants alone give a small part of these times;
 * what the rest is, nobody has published.
 */
static void kv_table_is_calibrated(void **state)
{
    double mean = 0;
    (void)state;
    for (uint32_t i = 2; i < LAYERS; i++) {
        mean += layers[i].ms / 4;
    }
    const double page_ms = (mean - layers[0].ms) / (1024 - 256);
    const double fixed_ms = layers[0].ms - 256 * page_ms;
    const double half = fixed_ms + 512 * page_ms;
    print_message("kv transfer, calibration: %.3f ms a layer and %.3f us a page\n", fixed_ms,
                  page_ms * 1e3);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const double alone =
            sim_nic_batch_ns(sim_nic_find("efa-200g"), layers[i].pages / LAYER_NICS, 32u << 10) *
            1e-6;
        print_message("  %4u pages: measured %.3f ms, calibrated %.3f; NIC constants alone %.3f: "
                      "%.3f ms unexplained\n",
                      layers[i].pages, layers[i].ms, fixed_ms + layers[i].pages * page_ms, alone,
                      layers[i].ms - alone);
        assert_true(alone < layers[i].ms / 3); /* else the calibration would not be needed */
    }
    assert_true(fabs(half / layers[1].ms - 1) <= 0.05);
    const struct fact facts[] = {
        {"kv-layer-256-pages", "KV transfer of a layer, 256 pages of 32 KiB", TABLE_3, layers[0].ms,
         "ms", fixed_ms + 256 * page_ms, TEST, true},
        {"kv-layer-512-pages", "KV transfer of a layer, 512 pages, constants of the other rows",
         TABLE_3, layers[1].ms, "ms", half, TEST, false},
        {"kv-layer-1024-pages", "KV transfer of a layer, 1024 pages, mean of four rows", TABLE_3,
         mean, "ms", fixed_ms + 1024 * page_ms, TEST, true},
        {"kv-layer-1024-pages-nic-alone",
         "KV transfer of a layer, 1024 pages, NIC constants alone: the gap is unexplained", TABLE_3,
         mean, "ms",
         sim_nic_batch_ns(sim_nic_find("efa-200g"), 1024 / LAYER_NICS, 32u << 10) * 1e-6, TEST,
         false},
    };
    for (uint32_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        fact_expect(&facts[i]);
    }
}

/* Constants of one source against whole nodes measured by another. */
static void nodes_are_predicted(void **state)
{
    (void)state;
    const struct {
        const char *preset;
        const char *id;
        const char *what;
        double gb_per_s;
    } nodes[] = {
        {"p5en", "nic-node-p5en", "p5en, bulk writes of 16 NICs, constants of table 2", 365.66},
        {"p5", "nic-node-p5", "p5, bulk writes of 32 NICs, constants of efa-demo", 389},
    };
    for (uint32_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        const struct sim_node_preset *const preset = sim_node_preset_find(nodes[i].preset);
        const double predicted =
            sim_nic_find(preset->nic)->bandwidth * preset->gpus * preset->nics_per_gpu * 1e-9;
        assert_true(fabs(predicted / nodes[i].gb_per_s - 1) <= 0.05);
        fact_expect(&(struct fact){
            nodes[i].id, nodes[i].what,
            "Mooncake docs/source/design/transfer-engine/efa_transport.md: GPU to GPU write",
            nodes[i].gb_per_s, "GB/s", predicted, TEST, false});
    }
}

/* A pair of nodes in the simgrid transport; node 0 writes on all rails of its one lane. */
struct world {
    struct hlg_simgrid *sim;
    const struct sim_nic *nic;
    uint32_t rails;
    struct hlg_transport *ends[2][NICS_MAX];
    uint64_t remote_key[NICS_MAX];
    uint64_t remote[NICS_MAX];
    hlg_mem mem;
    uint32_t left[NICS_MAX];     /* pieces still to be taken */
    uint32_t reported[NICS_MAX]; /* pieces whose completion was polled */
};

static uint8_t memory[64]; /* never touched: bytes are not copied */
static uint32_t pages[BLOCK_PIECES];

static void world_open(struct world *w, const struct sim_nic *nic, uint32_t rails)
{
    struct hlg_simgrid_config config;
    char error[256];
    *w = (struct world){.nic = nic, .rails = rails};
    hlg_simgrid_config_default(&config);
    config.nodes = 2;
    config.lanes = 1;
    config.rails = rails;
    config.nic_bandwidth = sim_nic_bandwidth(nic);
    config.op_ps = sim_nic_op_ps(nic);
    config.latency_ns = nic->latency_ns;
    config.copy_bytes = false;
    config.piece_bytes_max = 64u << 20;
    config.pieces_max = nic->pieces_max;
    config.peer_pieces_max = nic->pieces_max;
    config.cq_depth = nic->pieces_max;
    HLG_ASSERT(hlg_simgrid_create(&config, &w->sim, error, sizeof error) == 0);
    for (uint32_t end = 0; end < 2 * rails; end++) {
        struct hlg_fabric *const fabric = hlg_simgrid_fabric(w->sim, end % 2);
        struct hlg_transport **const t = &w->ends[end % 2][end / 2];
        HLG_ASSERT(fabric->open(fabric, 0, end / 2, t) == 0);
        HLG_ASSERT((*t)->ops->mem_register(*t, &HLG_MEM_HOST(memory, sizeof memory), &w->mem) == 0);
    }
    for (uint32_t rail = 0; rail < rails; rail++) {
        uint8_t address[HLG_ADDRESS_BYTES_MAX];
        struct hlg_mem_export export;
        struct hlg_transport *const target = w->ends[1][rail];
        const int bytes = target->ops->address(target, address, sizeof address);
        HLG_ASSERT(w->ends[0][rail]->ops->peer_open(w->ends[0][rail], address, (uint32_t)bytes) ==
                   0);
        HLG_ASSERT(target->ops->mem_export(target, w->mem, &export) == 0);
        w->remote[rail] = export.address;
        w->remote_key[rail] = export.key;
    }
}

/* Offer what is left, block by block, until the transport takes no more. */
static void offer(struct world *w, uint32_t rail, uint32_t bytes)
{
    struct hlg_transport *const t = w->ends[0][rail];
    int64_t taken = 1;
    while (taken > 0 && w->left[rail] > 0) {
        const struct hlg_paged_write write = {
            .op = 1,
            .peer = 0,
            .mem = w->mem,
            .imm = hlg_imm_make(1, 0, 0),
            .local = memory,
            .remote = w->remote[rail],
            .remote_key = w->remote_key[rail],
            .source_pages = pages,
            .target_pages = pages,
            .bytes = bytes,
            .count = 1,
            .piece_limit = hlg_min_u32(w->left[rail], BLOCK_PIECES),
        };
        taken = t->ops->write(t, &write);
        HLG_ASSERT(taken >= 0);
        w->left[rail] -= (uint32_t)taken;
    }
}

static void poll_end(struct world *w, uint32_t node, uint32_t rail)
{
    struct hlg_transport *const t = w->ends[node][rail];
    struct hlg_transport_event events[16];
    int count = 0;
    while ((count = t->ops->poll(t, events, 16)) > 0) {
        for (int i = 0; i < count; i++) {
            if (events[i].kind == HLG_TRANSPORT_DONE_WRITE) {
                HLG_ASSERT(events[i].done.failed == 0);
                w->reported[rail] += events[i].done.done;
            }
        }
    }
}

/* Post `pieces` on each rail and step until all are reported. Returns nanoseconds. */
static hlg_time write_all(struct world *w, uint32_t pieces, uint32_t bytes)
{
    const hlg_time begin = hlg_simgrid_now(w->sim);
    bool is_done = false;
    for (uint32_t rail = 0; rail < w->rails; rail++) {
        w->left[rail] = pieces;
        w->reported[rail] = 0;
        offer(w, rail, bytes);
    }
    while (!is_done) {
        HLG_ASSERT(hlg_simgrid_step(w->sim));
        is_done = true;
        for (uint32_t rail = 0; rail < w->rails; rail++) {
            poll_end(w, 0, rail);
            poll_end(w, 1, rail);
            offer(w, rail, bytes);
            is_done = is_done && w->reported[rail] == pieces;
        }
    }
    return hlg_simgrid_now(w->sim) - begin;
}

/* Time of one case: of a paged write, or the mean of single ones back to back. */
static double play(uint32_t kind, uint32_t index)
{
    struct world w;
    const uint32_t nics = kinds[kind].nics;
    const bool is_single = cases[index].pieces == 1;
    const uint32_t bytes = cases[index].bytes / (is_single ? nics : 1); /* exact: powers of two */
    const uint32_t pieces = is_single ? 1 : cases[index].pieces / nics;
    const uint32_t rounds = is_single ? SINGLES : 1;
    hlg_time sum = 0;
    world_open(&w, sim_nic_find(kinds[kind].name), nics);
    for (uint32_t round = 0; round < rounds; round++) {
        sum += write_all(&w, pieces, bytes);
    }
    HLG_ASSERT(hlg_simgrid_check(w.sim) == 0);
    hlg_simgrid_destroy(w.sim);
    return (double)sum / rounds;
}

static double play_in_child(uint32_t kind, uint32_t index)
{
    int ends[2];
    int status = 0;
    double ns = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ns = play(kind, index);
        _exit(write(ends[1], &ns, sizeof ns) == (ssize_t)sizeof ns ? 0 : 1);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &ns, sizeof ns), sizeof ns);
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return ns;
}

/* The simulated NIC is the fitted one: within 1 % of the formula, and of the paper within its bounds. */
static void transport_takes_the_formulas_times(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct sim_nic *const nic = sim_nic_find(kinds[k].name);
        for (uint32_t i = 0; i < CASES; i++) {
            const bool is_single = cases[i].pieces == 1;
            const double formula =
                sim_nic_batch_ns(nic, is_single ? 1 : cases[i].pieces / kinds[k].nics,
                                 cases[i].bytes / (is_single ? kinds[k].nics : 1));
            const double ns = play_in_child(k, i);
            print_message("%s %-14s formula %11.0f ns, transport %11.0f ns (%+.3f %%), %.1f of "
                          "%.0f Gbit/s\n",
                          kinds[k].name, cases[i].name, formula, ns, 100 * (ns / formula - 1),
                          gbits_of(i, ns * 1e-9), kinds[k].gbits[i]);
            assert_close(ns, formula, 0.01, cases[i].name);
            assert_close(gbits_of(i, ns * 1e-9), kinds[k].gbits[i], 0.15, cases[i].name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_points_are_fitted),
        cmocka_unit_test(four_points_predict_the_others),
        cmocka_unit_test(fit_is_a_minimum),
        cmocka_unit_test(no_constant_is_idle),
        cmocka_unit_test(catalogue_is_the_fit),
        cmocka_unit_test(transport_takes_the_formulas_times),
        cmocka_unit_test(nodes_are_predicted),
        cmocka_unit_test(kv_table_is_calibrated),
        cmocka_unit_test(facts_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
