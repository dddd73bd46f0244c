/*
 * The simulated cluster: a request's life reckoned by hand from the cost model and the NIC's constants,
 * queues of known length, pages that run out, nodes that die, folding. Every run is a process of its
 * own (sim_child.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics.h"
#include "sim_child.h"

#include <halage/message.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MS HLG_NS_PER_MS

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected))) {
        fail_msg("%.17g is not within %g of %.17g", value, share, expected);
    }
}

static struct sim_cost *open_cost(const struct sim_scenario *s, const struct sim_engine *engine)
{
    struct sim_cost *cost = NULL;
    char text[256] = "";

    if (sim_scenario_cost(s, engine, &cost, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    return cost;
}

static hlg_time prefill_span(const struct sim_scenario *s, uint32_t tokens, uint32_t context)
{
    struct sim_cost *cost = open_cost(s, &s->prefill.engine);
    struct sim_chunk chunk = {.tokens = tokens, .context = context};
    struct sim_rank_step step = {.chunks = &chunk, .chunk_count = 1};
    double span = sim_cost_step_ns(cost, &step, 1, NULL);

    sim_cost_destroy(cost);
    return (hlg_time)(span + 0.5);
}

static double decode_span(const struct sim_scenario *s, uint32_t context)
{
    struct sim_cost *cost = open_cost(s, &s->decode.engine);
    struct sim_rank_step step = {
        .sequences = 1, .context_sum = context, .context_max = context, .query_tokens = 1};
    double span = sim_cost_step_ns(cost, &step, 1, NULL);

    sim_cost_destroy(cost);
    return span;
}

static struct child *run(const struct sim_scenario *s, const struct sim_workload *w)
{
    struct child *child = child_run(s, w, NULL);
    char text[256];

    if (child->error != 0) {
        fail_msg("%s", child->text);
    }
    const char *broken = sim_metrics_conserved(w, &child->run, text, sizeof text);
    if (broken != NULL) {
        fail_msg("%s", broken);
    }
    return child;
}

static void assert_all_done(const struct child *child)
{
    for (uint32_t i = 0; i < child->run.record_count; i++) {
        const struct sim_record *r = &child->records[i];
        if (r->outcome != SIM_DONE) {
            fail_msg("request %u: outcome %u, reason %u", i, r->outcome, r->reason);
        }
        for (uint32_t m = 1; m < SIM_MOMENTS; m++) {
            if (r->at[m] < r->at[m - 1]) {
                fail_msg("request %u: moment %u comes before the one before it", i, m);
            }
        }
    }
}

/* ---- one request -------------------------------------------------------------------------- */

static void the_life_of_one_request_is_as_reckoned(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 1, 0, 1025, 3);
    struct child *child = run(&s, &w);
    const hlg_time *at = child->records[0].at;
    const struct sim_nic *nic = &s.network.nic;
    /* the last layer leaves when it is computed: 16 pages of 64 tokens of 576 values on each NIC */
    double bytes = 1024.0 * 576 * 2;
    double wire = fmax(bytes / nic->bandwidth * 1e9, 16.0 * (double)nic->op_ps / 1000);

    assert_all_done(child);
    assert_int_equal(at[SIM_ARRIVED], 0);
    assert_int_equal(at[SIM_INGESTED], 1000);
    assert_int_equal(at[SIM_SUBMITTED], 1000);
    assert_int_equal(at[SIM_REQUESTED], 1000 + s.network.message_ns + 2000);
    assert_int_equal(at[SIM_STARTED], at[SIM_REQUESTED]);
    assert_int_equal(at[SIM_COMPUTED] - at[SIM_STARTED], prefill_span(&s, 1024, 0));
    assert_true(
        fabs((double)(at[SIM_LANDED] - at[SIM_COMPUTED]) - wire - (double)nic->latency_ns) <= 2);
    assert_int_equal(at[SIM_READY] - at[SIM_LANDED], 3000);
    assert_int_equal(at[SIM_STEPPED], at[SIM_READY]);
    assert_near((double)(at[SIM_FIRST] - at[SIM_STEPPED]), decode_span(&s, 1024), 1e-3);
    assert_near((double)(at[SIM_FINISHED] - at[SIM_FIRST]),
                decode_span(&s, 1025) + decode_span(&s, 1026), 1e-3);
    assert_int_equal(child->records[0].steps, 3);
    assert_int_equal(child->records[0].chunks, 1);
    child_free(child);
    sim_workload_fini(&w);
}

/* 8 ranks hold the whole latent each: 8 copies cross the network. */
static void bytes_are_tokens_times_bytes_times_copies(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 3, 100 * MS, 1025, 3);
    struct child *child = run(&s, &w);
    uint64_t bytes = 1024 * 8 * sim_model_kv_bytes_per_token(&s.model, s.decode.engine.kv);

    assert_all_done(child);
    assert_int_equal(child->records[0].bytes, bytes);
    assert_int_equal(child->run.bytes_landed, 3 * bytes);
    assert_int_equal(child->run.bytes_posted, 3 * bytes);
    assert_int_equal(child->run.bytes_planned, 3 * bytes);
    assert_int_equal(child->nodes[0].bytes, 3 * bytes);
    assert_int_equal(child->nodes[1].bytes, 3 * bytes);
    assert_int_equal(child->run.flows, 3 * 61);
    double wire = (double)bytes / s.network.nic.bandwidth * 1e9;
    assert_near(child->nodes[0].nic_busy_ns, 3 * wire, 0.01);
    assert_near(child->nodes[1].nic_busy_ns, 3 * wire, 0.01);
    child_free(child);
    sim_workload_fini(&w);
}

static void one_token_needs_no_prefill_node(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 2, MS, 1, 2);
    struct child *child = run(&s, &w);

    assert_all_done(child);
    assert_int_equal(child->records[0].at[SIM_LANDED], child->records[0].at[SIM_SUBMITTED]);
    assert_int_equal(child->records[0].prefill_node, HLG_NONE);
    assert_int_equal(child->run.bytes_posted, 0);
    child_free(child);
    sim_workload_fini(&w);
}

static void a_first_token_may_come_with_the_cache(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.decode.last_token = false;
    child_workload(&w, 2, 500 * MS, 1024, 4);
    w.requests[1].output_tokens = 1;
    struct child *child = run(&s, &w);

    assert_all_done(child);
    assert_int_equal(child->records[0].at[SIM_COMPUTED] - child->records[0].at[SIM_STARTED],
                     prefill_span(&s, 1024, 0));
    assert_int_equal(child->records[0].at[SIM_FIRST], child->records[0].at[SIM_READY]);
    assert_int_equal(child->records[0].steps, 3);
    assert_int_equal(child->records[1].at[SIM_FINISHED], child->records[1].at[SIM_READY]);
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- queues ------------------------------------------------------------------------------- */

/* b prompts of one budget each wait for each other: the i-th is computed after i + 1 forwards. */
static void a_burst_waits_half_of_itself(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    for (uint32_t forwards = 1; forwards <= 2; forwards++) {
        const uint32_t burst = 16;
        double sum = 0;
        child_scenario(&s, 1);
        s.prefill.forwards = forwards;
        s.prefill.budget_tokens = 2048;
        child_workload(&w, burst, 0, 2049, 8);
        struct child *child = run(&s, &w);
        double span = (double)prefill_span(&s, 2048, 0);
        assert_all_done(child);
        for (uint32_t i = 0; i < burst; i++) {
            const hlg_time *at = child->records[i].at;
            sum += (double)(at[SIM_COMPUTED] - at[SIM_REQUESTED]);
        }
        assert_near(sum / burst, (burst + 1) / 2.0 * span, 0.01);
        assert_int_equal(child->nodes[0].forwards, burst);
        assert_near(child->nodes[0].busy_ns, burst * span, 1e-6);
        child_free(child);
        sim_workload_fini(&w);
    }
}

static void prompts_are_cut_at_the_budget(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.prefill.budget_tokens = 1024;
    child_workload(&w, 1, 0, 2561, 2);
    struct child *child = run(&s, &w);
    hlg_time span =
        prefill_span(&s, 1024, 0) + prefill_span(&s, 1024, 1024) + prefill_span(&s, 512, 2048);

    assert_all_done(child);
    assert_int_equal(child->records[0].chunks, 3);
    assert_int_equal(child->records[0].at[SIM_COMPUTED] - child->records[0].at[SIM_STARTED], span);
    child_free(child);
    s.prefill.chunked = false;
    child = run(&s, &w);
    assert_int_equal(child->records[0].chunks, 1);
    child_free(child);
    sim_workload_fini(&w);
}

/* Sent at the end of the pass, all layers cross after it. */
static void layers_hide_the_transfer(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    hlg_time exposed[2];

    (void)state;
    child_workload(&w, 1, 0, 4097, 2);
    for (uint32_t layerwise = 0; layerwise < 2; layerwise++) {
        child_scenario(&s, 1);
        s.prefill.layerwise = layerwise == 1;
        struct child *child = run(&s, &w);
        exposed[layerwise] = child->records[0].at[SIM_LANDED] - child->records[0].at[SIM_COMPUTED];
        child_free(child);
    }
    double latency = (double)s.network.nic.latency_ns;
    assert_near((double)exposed[0] - latency, 61 * ((double)exposed[1] - latency), 0.01);
    sim_workload_fini(&w);
}

static void a_gpus_way_to_its_nics_bounds_them(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.network.nics_per_gpu = 8; /* of 44.6 GB/s each, behind PCIe of 64 */
    child_workload(&w, 1, 0, 1025, 3);
    struct child *child = run(&s, &w);
    const hlg_time *at = child->records[0].at;
    double wire = 1024.0 * 576 * 2 / sim_gpu_find("H200")->pcie_bandwidth * 1e9;
    assert_all_done(child);
    assert_true(fabs((double)(at[SIM_LANDED] - at[SIM_COMPUTED]) - wire -
                     (double)s.network.nic.latency_ns) <= 2);
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- pages -------------------------------------------------------------------------------- */

static void starved_of_pages(enum sim_kv_policy policy)
{
    struct sim_scenario s;
    struct sim_workload w;
    uint32_t waited = 0;
    uint32_t preemptions = 0;

    child_scenario(&s, 2);
    s.decode.engine.kv_tokens = 64ull * 36; /* two prompts a node, and one and a half answers */
    s.decode.policy = policy;
    child_workload(&w, 24, 10 * MS, 1000, 200);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = 0; i < w.count; i++) {
        const struct sim_record *r = &child->records[i];
        waited += r->at[SIM_SUBMITTED] - r->at[SIM_INGESTED] > 100 * MS;
        preemptions += r->preemptions;
        assert_true(r->at[SIM_SUBMITTED] <
                    r->at[SIM_STARTED]); /* D has its pages before P begins */
    }
    assert_true(waited > w.count / 2);
    assert_int_equal(preemptions > 0, policy == SIM_KV_GROW);
    child_free(child);
    sim_workload_fini(&w);
}

static void requests_wait_for_reserved_pages(void **state)
{
    (void)state;
    starved_of_pages(SIM_KV_RESERVE);
}

static void growing_requests_are_preempted_and_come_again(void **state)
{
    (void)state;
    starved_of_pages(SIM_KV_GROW);
}

static void what_no_node_can_hold_is_refused(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.decode.engine.kv_tokens = 4096;
    child_workload(&w, 3, MS, 1000, 20);
    w.requests[1].prompt_tokens = 4090;
    struct child *child = run(&s, &w);
    assert_int_equal(child->records[0].outcome, SIM_DONE);
    assert_int_equal(child->records[1].outcome, SIM_REFUSED);
    assert_int_equal(child->records[2].outcome, SIM_DONE);
    child_free(child);
    sim_workload_fini(&w);
}

/* Prompts that begin alike are computed from where they part; an equal one not at all. */
static void known_prefixes_are_not_computed_again(void **state)
{
    static const uint64_t blocks[3][4] = {{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}};
    struct sim_scenario s;
    struct sim_workload w = {.block_tokens = 512};

    (void)state;
    child_scenario(&s, 1);
    for (uint32_t i = 0; i < 3; i++) {
        struct sim_workload_request request = {.arrival_ns = i * 1000 * MS,
                                               .prompt_tokens = 2049 - (i == 2 ? 1 : 0),
                                               .output_tokens = 2,
                                               .block_count = 4};
        assert_int_equal(sim_workload_append(&w, &request, blocks[i]), 0);
    }
    struct child *child = run(&s, &w);
    assert_all_done(child);
    assert_int_equal(child->records[0].cached_tokens, 0);
    assert_int_equal(child->records[1].cached_tokens, 1536);
    assert_int_equal(child->records[1].at[SIM_COMPUTED] - child->records[1].at[SIM_STARTED],
                     prefill_span(&s, 512, 1536));
    assert_int_equal(child->records[2].cached_tokens, 2047);
    assert_int_equal(child->records[2].at[SIM_COMPUTED], child->records[2].at[SIM_STARTED]);
    assert_true(child->records[2].at[SIM_LANDED] > child->records[2].at[SIM_COMPUTED]);
    assert_int_equal(child->records[2].bytes, child->records[0].bytes);
    child_free(child);
    sim_workload_fini(&w);
}

/* A prefix that a forward computes just now is valid after it. */
static void prefixes_under_way_are_shared(void **state)
{
    static const uint64_t blocks[2] = {1, 2};
    struct sim_scenario s;
    struct sim_workload w = {.block_tokens = 512};

    (void)state;
    child_scenario(&s, 1);
    for (uint32_t i = 0; i < 6; i++) {
        struct sim_workload_request request = {
            .arrival_ns = i * MS, .prompt_tokens = 1200, .output_tokens = 2, .block_count = 2};
        assert_int_equal(sim_workload_append(&w, &request, blocks), 0);
    }
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = 1; i < 6; i++) {
        assert_int_equal(child->records[i].cached_tokens, 1024);
    }
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- arrivals ----------------------------------------------------------------------------- */

static void users_wait_for_their_answers(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    const uint32_t users = 4;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 20, 0, 1000, 10);
    w.users = users;
    for (uint32_t i = 0; i < w.count; i++) {
        w.requests[i].arrival_ns = i < users ? 0 : 7 * MS;
    }
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = users; i < w.count; i++) {
        bool after = false;
        for (uint32_t k = 0; k < i; k++) {
            after = after || child->records[i].at[SIM_ARRIVED] ==
                                 child->records[k].at[SIM_FINISHED] + 7 * MS;
        }
        assert_true(after);
    }
    child_free(child);
    sim_workload_fini(&w);
}

static void others_wait_for_the_warm_up(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    hlg_time last = 0;

    (void)state;
    for (uint32_t users = 0; users <= 3; users += 3) {
        child_scenario(&s, 1);
        s.measure.warmup_requests = 3;
        s.measure.drain_warmup = true;
        child_workload(&w, 9, users == 0 ? MS : 0, 1000, 50);
        w.users = users;
        struct child *child = run(&s, &w);
        assert_all_done(child);
        for (uint32_t i = 0; i < 3; i++) {
            const hlg_time end = child->records[i].at[SIM_FINISHED];
            last = end > last ? end : last;
        }
        assert_int_equal(child->records[3].at[SIM_ARRIVED], last);
        assert_int_equal(child->records[4].at[SIM_ARRIVED], last + (users == 0 ? MS : 0));
        child_free(child);
        sim_workload_fini(&w);
        last = 0;
    }
}

static void an_overloaded_run_ends(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_metrics metrics;
    uint32_t open = 0;

    (void)state;
    child_scenario(&s, 1);
    s.measure.stop_ns = 5 * HLG_NS_PER_S;
    child_workload(&w, 2000, 5 * MS, 8193, 100);
    struct child *child = run(&s, &w);
    assert_int_equal(child->run.end_ns, s.measure.stop_ns);
    for (uint32_t i = 0; i < w.count; i++) {
        open += child->records[i].outcome == SIM_UNFINISHED &&
                child->records[i].at[SIM_ARRIVED] != HLG_TIME_NEVER;
    }
    assert_true(open > 500);
    assert_int_equal(sim_metrics(&s, &w, &child->run, &metrics), 0);
    assert_true(metrics.ttft_ms.open);
    child_free(child);
    sim_workload_fini(&w);
}

static bool stop_soon(void *context, uint32_t finished, uint32_t count, hlg_time now)
{
    struct child *child = context;

    (void)now;
    HLG_ASSERT(finished <= count);
    return ++child->calls < 3;
}

static void count_span(void *context, const struct sim_span *span)
{
    struct child *child = context;

    HLG_ASSERT(span->begin <= span->end && span->name != NULL);
    child->spans++;
}

/* The network's clocks do not go on for ever: a run that would is refused, or ends. */
static void a_run_ends_after_a_hundred_days(void **state)
{
    const hlg_time day = 86400 * HLG_NS_PER_S;
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 5, 30 * day, 100, 3);
    struct child *child = child_run(&s, &w, NULL);
    assert_int_equal(child->error, -HLG_EINVAL);
    assert_non_null(strstr(child->text, "arrives after 120 days, and a run ends after 100: write"));
    child_free(child);
    sim_workload_fini(&w);

    child_workload(&w, 4, 33 * day, 100, 3);
    child = run(&s, &w);
    assert_all_done(child);
    child_free(child);
    s.decode.engine.ingest_ns = 2 * day; /* the last one arrives on day 99 */
    child = run(&s, &w);
    assert_int_equal(child->records[2].outcome, SIM_DONE);
    assert_int_equal(child->records[3].outcome, SIM_UNFINISHED);
    assert_int_equal(child->run.end_ns, 100 * day);
    child_free(child);
    sim_workload_fini(&w);
}

static void an_interrupted_run_tells_what_is_known(void **state)
{
    const struct sim_run_options options = {.progress = stop_soon, .span = count_span};
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 3);
    child_workload(&w, 2000, 300 * MS, 2049, 100);
    struct child *child = child_run(&s, &w, &options);
    assert_int_equal(child->error, 0);
    assert_true(child->run.interrupted);
    assert_int_equal(child->calls, 3);
    assert_true(child->spans > 0);
    assert_int_equal(child->records[0].outcome, SIM_DONE);
    assert_int_equal(child->records[w.count - 1].outcome, SIM_UNFINISHED);
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- faults ------------------------------------------------------------------------------- */

static void requests_of_a_dead_decode_node_go_elsewhere(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    const hlg_time death = 2500 * MS;
    uint32_t moved = 0;
    uint32_t back = 0;

    (void)state;
    child_scenario(&s, 2);
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_KILL, .at = death, .decode = true, .node = 0};
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_RESTART, .at = 6000 * MS, .decode = true, .node = 0};
    child_workload(&w, 60, 150 * MS, 2049, 100);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = 0; i < w.count; i++) {
        const struct sim_record *r = &child->records[i];
        bool alone = r->at[SIM_FINISHED] > death && r->at[SIM_SUBMITTED] < 6000 * MS;
        assert_true(!alone || r->decode_node == 1);
        moved += r->retries;
        back += r->at[SIM_SUBMITTED] > 6000 * MS && r->decode_node == 0;
    }
    assert_true(moved > 0);
    assert_true(back > 0);
    child_free(child);
    sim_workload_fini(&w);
}

static void requests_of_a_dead_prefill_node_go_elsewhere(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    const hlg_time death = 2030 * MS; /* in the middle of a prompt */

    (void)state;
    child_scenario(&s, 2);
    s.prefill.nodes = 2;
    s.faults[s.fault_count++] = (struct sim_fault){.kind = SIM_FAULT_KILL, .at = death, .node = 1};
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_RESTART, .at = 4000 * MS, .node = 1};
    child_workload(&w, 60, 100 * MS, 4097, 20);
    struct child *child = run(&s, &w);
    uint32_t back = 0;
    assert_all_done(child);
    for (uint32_t i = 0; i < w.count; i++) {
        const struct sim_record *r = &child->records[i];
        bool alone = r->at[SIM_LANDED] > death && r->at[SIM_SUBMITTED] < 4000 * MS;
        assert_true(!alone || r->prefill_node == 0);
        back += r->at[SIM_SUBMITTED] > 4000 * MS && r->prefill_node == 1;
    }
    assert_true(back > 0);
    child_free(child);
    sim_workload_fini(&w);
}

static void with_nobody_left_requests_fail(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_KILL, .at = 100 * MS, .decode = true, .node = 0};
    child_workload(&w, 4, 100 * MS, 4097, 20);
    struct child *child = run(&s, &w);
    for (uint32_t i = 0; i < w.count; i++) {
        assert_int_equal(child->records[i].outcome, SIM_FAILED);
        assert_int_equal(child->records[i].reason, HLG_REASON_PEER);
    }
    child_free(child);
    sim_workload_fini(&w);
}

static void a_slow_nic_makes_its_transfers_slow(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.faults[s.fault_count++] = (struct sim_fault){
        .kind = SIM_FAULT_SLOW, .at = 900 * MS, .decode = true, .node = 0, .nic = 3, .factor = 0.1};
    s.faults[s.fault_count++] = (struct sim_fault){
        .kind = SIM_FAULT_SLOW, .at = 1900 * MS, .decode = true, .node = 0, .nic = 3, .factor = 1};
    child_workload(&w, 3, 1000 * MS, 8193, 2);
    struct child *child = run(&s, &w);
    double exposed[3];
    assert_all_done(child);
    assert_false(child->run.folded); /* one NIC of eight is unlike the others */
    for (uint32_t i = 0; i < 3; i++) {
        exposed[i] =
            (double)(child->records[i].at[SIM_LANDED] - child->records[i].at[SIM_COMPUTED]);
    }
    assert_near(exposed[1] - (double)s.network.nic.latency_ns,
                10 * (exposed[0] - (double)s.network.nic.latency_ns), 0.02);
    assert_near(exposed[2], exposed[0], 0.01);
    child_free(child);
    s.network.fold_auto = false;
    child = child_run(&s, &w, NULL);
    assert_int_equal(child->error, -HLG_EINVAL);
    assert_non_null(strstr(child->text, "network.fold"));
    child_free(child);
    sim_workload_fini(&w);
}

/* Writes under way fail, and the sessions with them: requests come again once the link is back. */
static void a_lost_link_is_got_over(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    uint32_t retries = 0;

    (void)state;
    child_scenario(&s, 2);
    s.prefill.nodes = 2;
    s.network.nic.bandwidth = 1e9;
    for (uint32_t i = 0; i < 2; i++) {
        s.faults[s.fault_count++] = (struct sim_fault){.kind = SIM_FAULT_LINK,
                                                       .at = (2000 + 700 * i) * MS,
                                                       .decode = true,
                                                       .node = 0,
                                                       .nic = 5,
                                                       .factor = i};
    }
    child_workload(&w, 60, 100 * MS, 4097, 20);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = 0; i < w.count; i++) {
        retries += child->records[i].retries;
    }
    assert_true(retries > 0);
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- sameness ----------------------------------------------------------------------------- */

static void draw(struct sim_workload *w, uint32_t count, double rate, uint64_t seed)
{
    char text[256] = "";
    const struct sim_workload_config config = {
        .arrivals = {.kind = SIM_ARRIVALS_POISSON, .rate_rps = rate},
        .prompt = {.kind = SIM_LENGTHS_LOGNORMAL,
                   .tokens_min = 16,
                   .tokens_max = 30000,
                   .mean = 3000,
                   .cv = 1},
        .output = {.kind = SIM_LENGTHS_UNIFORM, .tokens_min = 1, .tokens_max = 200},
        .count = count,
        .seed = seed};

    assert_int_equal(sim_workload_draw(w, &config, text, sizeof text), 0);
}

static void assert_same_records(const struct child *a, const struct child *b)
{
    assert_int_equal(a->run.record_count, b->run.record_count);
    assert_memory_equal(a->records, b->records, a->run.record_count * sizeof *a->records);
}

static void equal_runs_are_equal(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 3);
    draw(&w, 300, 5, 1);
    struct child *a = run(&s, &w);
    struct child *b = run(&s, &w);
    assert_int_equal(a->run.trace_hash, b->run.trace_hash);
    assert_same_records(a, b);
    child_free(b);
    sim_workload_fini(&w);
    draw(&w, 300, 5, 2);
    b = run(&s, &w);
    assert_int_not_equal(a->run.trace_hash, b->run.trace_hash);
    child_free(a);
    child_free(b);
    sim_workload_fini(&w);
}

/* A run so long that its series is halved again and again: the shares of what is left are still of all the time.
 * After the last sample there is less than a pace. */
static void a_long_series_is_of_all_the_time(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    double busy_ns = 0;
    double nic_bytes = 0;
    hlg_time last = 0;

    (void)state;
    child_scenario(&s, 1);
    draw(&w, 1500, 2, 1);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    const struct sim_node_totals *node = &child->run.nodes[0];
    for (uint32_t i = 0; i < child->run.series_count; i++) {
        const struct sim_sample *sample = &child->run.series[i];
        busy_ns += (double)sample->prefill_busy * (double)(sample->at - last);
        nic_bytes += (double)sample->nic_out * (double)(sample->at - last) * 1e-9 *
                     s.network.nic.bandwidth * node->nics;
        last = sample->at;
    }
    assert_true(child->run.series_count < SIM_SERIES_MAX);
    assert_near(busy_ns, node->busy_ns, 0.005);
    assert_near(nic_bytes, (double)node->bytes, 0.005);
    child_free(child);
    sim_workload_fini(&w);
}

/* On a network that is busy enough to matter. */
static void folded_nodes_are_equal_to_unfolded_ones(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    double worst = 0;

    (void)state;
    child_scenario(&s, 3);
    s.prefill.nodes = 2;
    s.network.nic.bandwidth = 1.5e9;
    draw(&w, 1000, 7, 3);
    struct child *folded = run(&s, &w);
    s.network.fold = false;
    s.network.fold_auto = false;
    struct child *unfolded = run(&s, &w);
    assert_true(folded->run.folded);
    assert_false(unfolded->run.folded);
    for (uint32_t i = 0; i < w.count; i++) {
        for (uint32_t m = 0; m < SIM_MOMENTS; m++) {
            double a = (double)folded->records[i].at[m];
            double b = (double)unfolded->records[i].at[m];
            worst = fmax(worst, fabs(a - b) / fmax(b, 1));
        }
    }
    print_message("folded against unfolded: worst %g\n", worst);
    assert_true(worst <= 1e-9);
    assert_int_equal(folded->run.bytes_posted, unfolded->run.bytes_posted);
    child_free(folded);
    child_free(unfolded);
    sim_workload_fini(&w);
}

static void layer_flows_are_equal_to_page_flows(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    double worst = 0;

    (void)state;
    child_scenario(&s, 1);
    s.prefill.nodes = 2;
    s.network.nic.bandwidth = 5e9;
    draw(&w, 40, 8, 4);
    struct child *layers = run(&s, &w);
    s.network.page_flows = true;
    struct child *pages = run(&s, &w);
    for (uint32_t i = 0; i < w.count; i++) {
        double a = (double)layers->records[i].at[SIM_LANDED];
        double b = (double)pages->records[i].at[SIM_LANDED];
        worst = fmax(worst, fabs(a - b) / b);
    }
    print_message("layer flows against page flows: worst %g\n", worst);
    assert_true(worst <= 1e-4);
    child_free(layers);
    child_free(pages);
    sim_workload_fini(&w);
}

/* ---- shapes ------------------------------------------------------------------------------- */

static void ranks_with_requests_of_their_own_work(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    bool ranks[8] = {false};

    (void)state;
    child_scenario(&s, 2);
    s.decode.engine.tp = 1;
    s.decode.engine.dp = 8;
    s.decode.engine.ep = 8;
    s.prefill.engine.tp = 2;
    s.prefill.engine.dp = 4;
    s.prefill.engine.ep = 8;
    draw(&w, 200, 10, 5);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    assert_false(child->run.folded); /* 2 ranks write to 1 */
    for (uint32_t i = 0; i < w.count; i++) {
        ranks[child->records[i].decode_rank] = true;
    }
    for (uint32_t rank = 0; rank < 8; rank++) {
        assert_true(ranks[rank]);
    }
    child_free(child);
    sim_workload_fini(&w);
}

/* Both pools of pages, groups of layers with windows, a context, several NICs, pods: all at once. */
static void other_models_and_networks_work(void **state)
{
    static const char *const models[] = {"Qwen3-Coder-480B", "gpt-oss-120b", "Llama-3.1-70B"};
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    draw(&w, 60, 6, 6);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sim_model *model = NULL;
        for (uint32_t k = 0; model == NULL && sim_model_at(k) != NULL; k++) {
            model = strncmp(sim_model_at(k)->name, models[i], 8) == 0 ? sim_model_at(k) : NULL;
        }
        if (model == NULL) {
            fail_msg("no model %s", models[i]);
            return; /* for those who do not know that it does not come here */
        }
        child_scenario(&s, 2);
        s.prefill.nodes = 2;
        s.model = *model;
        s.prefill.engine.weights = model->weights;
        s.decode.engine.weights = model->weights;
        s.prefill.engine.ep = model->experts > 0 ? 8 : 1;
        s.decode.engine.ep = s.prefill.engine.ep;
        s.prefill.engine.kv_tokens = 200000;
        s.decode.engine.kv_tokens = 200000;
        s.network.context_bytes = 14336;
        s.network.nics_per_gpu = 2;
        s.network.pod_nodes = 2;
        s.network.oversubscription = 4;
        struct child *child = run(&s, &w);
        assert_all_done(child);
        child_free(child);
    }
    sim_workload_fini(&w);
}

/* ---- co-located --------------------------------------------------------------------------- */

static void colocated(struct sim_scenario *s, uint32_t nodes)
{
    child_scenario(s, 1);
    s->serving = SIM_SERVING_COLOCATED;
    s->colocated.nodes = nodes;
    s->colocated.engine.ingest_ns = 1000;
    s->colocated.engine.dispatch_ns = 2000;
}

static void a_colocated_node_does_both(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    colocated(&s, 1);
    child_workload(&w, 1, 0, 1024, 3);
    struct child *child = run(&s, &w);
    const hlg_time *at = child->records[0].at;
    s.prefill.engine = s.colocated.engine;
    s.decode.engine = s.colocated.engine;
    assert_all_done(child);
    assert_int_equal(at[SIM_REQUESTED], 3000);
    assert_int_equal(at[SIM_STARTED], 3000);
    assert_near((double)(at[SIM_COMPUTED] - at[SIM_STARTED]), (double)prefill_span(&s, 1024, 0),
                1e-3);
    assert_int_equal(at[SIM_FIRST], at[SIM_COMPUTED]);
    assert_near(child->nodes[0].busy_ns, (double)(at[SIM_FINISHED] - at[SIM_STARTED]), 1e-9);
    assert_near((double)(at[SIM_FINISHED] - at[SIM_FIRST]),
                decode_span(&s, 1024) + decode_span(&s, 1025), 1e-2);
    assert_int_equal(child->run.bytes_posted, 0);
    child_free(child);
    sim_workload_fini(&w);
}

static void colocated_clusters_work(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    draw(&w, 300, 6, 8);
    for (uint32_t i = 0; i < 4; i++) {
        colocated(&s, 3);
        s.colocated.chunked = i % 2 == 0;
        s.colocated.policy = i < 2 ? SIM_KV_GROW : SIM_KV_RESERVE;
        s.colocated.engine.kv_tokens = 60000;
        s.colocated.engine.requests_max = i == 3 ? 2 : 512;
        struct child *a = run(&s, &w);
        struct child *b = run(&s, &w);
        assert_all_done(a);
        assert_int_equal(a->run.trace_hash, b->run.trace_hash);
        assert_same_records(a, b);
        child_free(a);
        child_free(b);
    }
    sim_workload_fini(&w);
}

static void requests_of_a_dead_colocated_node_go_elsewhere(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    uint32_t moved = 0;
    uint32_t back = 0;

    (void)state;
    colocated(&s, 2);
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_KILL, .at = 2500 * MS, .node = 0};
    s.faults[s.fault_count++] =
        (struct sim_fault){.kind = SIM_FAULT_RESTART, .at = 6000 * MS, .node = 0};
    child_workload(&w, 60, 150 * MS, 2049, 100);
    struct child *child = run(&s, &w);
    assert_all_done(child);
    for (uint32_t i = 0; i < w.count; i++) {
        const struct sim_record *r = &child->records[i];
        bool alone = r->at[SIM_FINISHED] > 2500 * MS && r->at[SIM_FINISHED] < 6000 * MS;
        assert_true(!alone || r->decode_node == 1);
        moved += r->retries;
        back += r->at[SIM_SUBMITTED] > 6000 * MS && r->decode_node == 0;
    }
    assert_true(moved > 0);
    assert_true(back > 0);
    child_free(child);
    sim_workload_fini(&w);
}

/* What was on its way to a node that dies is not handed to whoever comes next, or to nobody. */
static void what_was_on_its_way_to_a_dead_node_never_comes(void **state)
{
    (void)state;
    for (uint32_t nodes = 1; nodes <= 2; nodes++) {
        struct sim_scenario s;
        struct sim_workload w;
        uint32_t moved = 0;

        colocated(&s, nodes);
        s.colocated.engine.dispatch_ns = 10 * MS;
        s.faults[s.fault_count++] =
            (struct sim_fault){.kind = SIM_FAULT_KILL, .at = 5 * MS, .node = 0};
        s.faults[s.fault_count++] =
            (struct sim_fault){.kind = SIM_FAULT_RESTART, .at = 50 * MS, .node = 0};
        child_workload(&w, 8, MS, 100, 3);
        struct child *child = run(&s, &w);
        assert_all_done(child);
        for (uint32_t i = 0; i < w.count; i++) {
            const struct sim_record *r = &child->records[i];
            assert_int_equal(r->at[SIM_REQUESTED] - r->at[SIM_SUBMITTED], 10 * MS);
            moved += r->retries;
        }
        assert_true(moved > 0);
        child_free(child);
        sim_workload_fini(&w);
    }
}

/* In this process, so that the sanitizers see all of it; checked at every step. */
static void a_run_gives_back_what_it_took(void **state)
{
    const struct sim_run_options options = {.check = true};
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_run run;
    char text[256] = "";

    (void)state;
    child_scenario(&s, 2);
    s.decode.policy = SIM_KV_GROW;
    draw(&w, 50, 5, 7);
    assert_int_equal(sim_run(&s, &w, &options, &run, text, sizeof text), 0);
    assert_int_equal(run.records[0].outcome, SIM_DONE);
    sim_run_fini(&run);
    sim_workload_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_life_of_one_request_is_as_reckoned),
        cmocka_unit_test(bytes_are_tokens_times_bytes_times_copies),
        cmocka_unit_test(one_token_needs_no_prefill_node),
        cmocka_unit_test(a_first_token_may_come_with_the_cache),
        cmocka_unit_test(a_burst_waits_half_of_itself),
        cmocka_unit_test(prompts_are_cut_at_the_budget),
        cmocka_unit_test(layers_hide_the_transfer),
        cmocka_unit_test(a_gpus_way_to_its_nics_bounds_them),
        cmocka_unit_test(requests_wait_for_reserved_pages),
        cmocka_unit_test(growing_requests_are_preempted_and_come_again),
        cmocka_unit_test(what_no_node_can_hold_is_refused),
        cmocka_unit_test(known_prefixes_are_not_computed_again),
        cmocka_unit_test(prefixes_under_way_are_shared),
        cmocka_unit_test(users_wait_for_their_answers),
        cmocka_unit_test(others_wait_for_the_warm_up),
        cmocka_unit_test(an_overloaded_run_ends),
        cmocka_unit_test(a_run_ends_after_a_hundred_days),
        cmocka_unit_test(an_interrupted_run_tells_what_is_known),
        cmocka_unit_test(requests_of_a_dead_decode_node_go_elsewhere),
        cmocka_unit_test(requests_of_a_dead_prefill_node_go_elsewhere),
        cmocka_unit_test(with_nobody_left_requests_fail),
        cmocka_unit_test(a_slow_nic_makes_its_transfers_slow),
        cmocka_unit_test(a_lost_link_is_got_over),
        cmocka_unit_test(equal_runs_are_equal),
        cmocka_unit_test(a_long_series_is_of_all_the_time),
        cmocka_unit_test(folded_nodes_are_equal_to_unfolded_ones),
        cmocka_unit_test(layer_flows_are_equal_to_page_flows),
        cmocka_unit_test(ranks_with_requests_of_their_own_work),
        cmocka_unit_test(other_models_and_networks_work),
        cmocka_unit_test(a_colocated_node_does_both),
        cmocka_unit_test(colocated_clusters_work),
        cmocka_unit_test(requests_of_a_dead_colocated_node_go_elsewhere),
        cmocka_unit_test(what_was_on_its_way_to_a_dead_node_never_comes),
        cmocka_unit_test(a_run_gives_back_what_it_took),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
