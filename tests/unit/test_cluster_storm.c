/*
 * Clusters drawn from a seed: shapes, policies, limits that are run into, networks, arrivals, faults.
 * Every run must end by itself with all its own assertions (conservation, pages back, the machines'
 * checks), and without faults every request must be served or refused. A failing seed is printed; argument:
 * seeds to run, first and limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/rng.h"
#include "sim_child.h"

#include <stdio.h>
#include <stdlib.h>

#define REQUESTS 100u

static uint64_t seed_begin = 1;
static uint64_t seed_limit = 25;

static uint32_t draw(struct hlg_rng *rng, uint32_t limit)
{
    return (uint32_t)hlg_rng_below(rng, limit);
}

static bool chance(struct hlg_rng *rng, uint32_t of)
{
    return draw(rng, of) == 0;
}

static void draw_engines(struct hlg_rng *rng, struct sim_scenario *s)
{
    uint32_t source = 1u << draw(rng, 4);
    uint32_t target = chance(rng, 2) ? source : 1u << draw(rng, 4);

    s->prefill.nodes = 1 + draw(rng, 3);
    s->decode.nodes = 1 + draw(rng, 3);
    s->colocated.nodes = 1 + draw(rng, 3);
    s->prefill.engine.dp = source;
    s->prefill.engine.tp = 8 / source;
    s->prefill.engine.ep = 8;
    s->decode.engine.dp = target;
    s->decode.engine.tp = 8 / target;
    s->decode.engine.ep = 8;
    s->prefill.engine.kv_tokens = 20000 + draw(rng, 100000);
    s->decode.engine.kv_tokens = 12000 + draw(rng, 60000);
    s->colocated.engine.kv_tokens = s->decode.engine.kv_tokens;
    s->prefill.engine.requests_max = 1 + draw(rng, 20);
    s->decode.engine.requests_max = 1 + draw(rng, 30);
    s->colocated.engine.requests_max = 1 + draw(rng, 20);
}

/* From nothing to longer than what a fault waits for. */
static void draw_hops(struct hlg_rng *rng, struct sim_scenario *s)
{
    static const hlg_time hops_ns[] = {0, 1000, HLG_NS_PER_MS, 50 * HLG_NS_PER_MS};
    struct sim_engine *const engines[] = {&s->prefill.engine, &s->decode.engine,
                                          &s->colocated.engine};

    for (uint32_t i = 0; i < 3; i++) {
        engines[i]->ingest_ns = hops_ns[draw(rng, 4)];
        engines[i]->dispatch_ns = hops_ns[draw(rng, 4)];
    }
}

static void draw_policies(struct hlg_rng *rng, struct sim_scenario *s)
{
    s->prefill.forwards = 1 + draw(rng, 2);
    s->prefill.chunked = chance(rng, 2);
    s->prefill.layerwise = chance(rng, 2);
    s->prefill.prefix_cache = chance(rng, 2);
    s->prefill.budget_tokens = 512 + draw(rng, 8192);
    s->decode.policy = chance(rng, 2) ? SIM_KV_GROW : SIM_KV_RESERVE;
    s->decode.last_token = chance(rng, 2);
    s->decode.sequences_max = 1 + draw(rng, 20);
    s->decode.draft = draw(rng, 3);
    s->decode.accept[0] = 0.7;
    s->decode.accept[1] = 0.4;
    s->colocated.policy = s->decode.policy;
    s->colocated.chunked = s->prefill.chunked;
    s->colocated.budget_tokens = s->prefill.budget_tokens;
    s->colocated.sequences_max = 1 + draw(rng, 20);
    s->prefill_routing = (enum sim_routing)draw(rng, 4);
    s->decode_routing = (enum sim_routing)draw(rng, 3);
    if (chance(rng, 3)) {
        s->measure.drain_warmup = true;
        s->measure.warmup_requests = 1 + draw(rng, 40);
    }
    if (chance(rng, 4)) {
        s->measure.stop_ns = (1ull + draw(rng, 20)) * HLG_NS_PER_S;
    }
}

static void draw_network(struct hlg_rng *rng, struct sim_scenario *s)
{
    s->network.nics_per_gpu = 1 + draw(rng, 2);
    s->network.context_bytes = chance(rng, 2) ? 14336 : 0;
    s->network.nic.bandwidth = chance(rng, 2) ? 1e9 : 50e9;
    s->network.fence_domains = 1 + draw(rng, 4);
    if (chance(rng, 2)) {
        s->network.nic.pieces_max = 64;
    }
}

static void draw_faults(struct hlg_rng *rng, struct sim_scenario *s)
{
    bool colocated = s->serving == SIM_SERVING_COLOCATED;
    hlg_time at = 0;

    for (uint32_t i = 1 + draw(rng, 6); i > 0; i--) {
        struct sim_fault *f = &s->faults[s->fault_count++];
        at += (hlg_time)draw(rng, 5000) * HLG_NS_PER_MS;
        f->kind = (enum sim_fault_kind)(1 + draw(rng, colocated ? 2 : 4));
        f->at = at;
        f->decode = !colocated && chance(rng, 2);
        f->node = draw(rng, f->decode   ? s->decode.nodes
                            : colocated ? s->colocated.nodes
                                        : s->prefill.nodes);
        f->nic = chance(rng, 2) ? HLG_NONE : 0;
        f->factor = f->kind == SIM_FAULT_LINK ? draw(rng, 2) : 0.05 + 0.1 * draw(rng, 10);
    }
}

static void draw_workload(struct hlg_rng *rng, struct sim_workload *w, uint64_t seed)
{
    char text[256] = "";
    const struct sim_workload_config config = {
        .arrivals = {.kind = (enum sim_arrivals_kind)draw(rng, 5),
                     .rate_rps = 2 + draw(rng, 10),
                     .cv = 1.5,
                     .burst_requests = 5,
                     .users = 1 + draw(rng, 10),
                     .pause_ns = draw(rng, 2) * HLG_NS_PER_MS},
        .prompt = {.kind = SIM_LENGTHS_LOGNORMAL,
                   .tokens_min = 1,
                   .tokens_max = 15000,
                   .mean = 2000,
                   .cv = 1.5},
        .output = {.kind = SIM_LENGTHS_LOGNORMAL,
                   .tokens_min = 1,
                   .tokens_max = 500,
                   .mean = 80,
                   .cv = 1},
        .count = REQUESTS,
        .seed = seed};

    assert_int_equal(sim_workload_draw(w, &config, text, sizeof text), 0);
}

static void play(uint64_t seed)
{
    struct hlg_rng rng = hlg_rng_seed(seed);
    struct sim_scenario s;
    struct sim_workload w;

    print_message("seed %llu\n", (unsigned long long)seed);
    child_scenario(&s, 1);
    s.serving = chance(&rng, 4) ? SIM_SERVING_COLOCATED : SIM_SERVING_DISAGGREGATED;
    draw_engines(&rng, &s);
    draw_hops(&rng, &s);
    draw_policies(&rng, &s);
    draw_network(&rng, &s);
    if (!chance(&rng, 3)) {
        draw_faults(&rng, &s);
    }
    draw_workload(&rng, &w, seed);
    const struct sim_run_options options = {.check = chance(&rng, 3)};
    struct child *child = child_run(&s, &w, &options);
    if (child->error != 0) {
        fail_msg("%s", child->text);
    }
    for (uint32_t i = 0; i < w.count; i++) {
        const struct sim_record *r = &child->records[i];
        if (s.measure.stop_ns == HLG_TIME_NEVER) {
            assert_int_not_equal(r->outcome, SIM_UNFINISHED);
        }
        if (s.fault_count == 0) {
            assert_int_not_equal(r->outcome, SIM_FAILED);
            assert_int_equal(r->retries, 0);
        }
    }
    child_free(child);
    sim_workload_fini(&w);
}

static void drawn_clusters_end_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = seed_begin; seed < seed_limit; seed++) {
        play(seed);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_clusters_end_in_order)};

    if (argc == 3) {
        seed_begin = strtoull(argv[1], NULL, 10);
        seed_limit = strtoull(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
