/*
 * What the simulated cluster does for speed changes nothing: a layer's pages as one flow, and ranks and
 * rails of a node as one. Runs where eight NICs write to two, and where a thousand requests meet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics.h"
#include "sim_child.h"

#include <math.h>

#define MS HLG_NS_PER_MS

static struct child *run(const struct sim_scenario *s, const struct sim_workload *w)
{
    struct child *child = child_run(s, w, NULL);
    char text[256];

    if (child->error != 0) {
        fail_msg("%s", child->text);
    }
    if (sim_metrics_conserved(w, &child->run, text, sizeof text) != NULL) {
        fail_msg("%s", text);
    }
    for (uint32_t i = 0; i < w->count; i++) {
        assert_int_equal(child->records[i].outcome, SIM_DONE);
    }
    return child;
}

/* The greatest difference between two runs' moments, relative to the time since the request arrived. The
 * clock's own grain, a nanosecond, is none. */
static double worst_difference(const struct child *a, const struct child *b, uint32_t count)
{
    double worst = 0;

    for (uint32_t i = 0; i < count; i++) {
        const hlg_time begin = a->records[i].at[SIM_ARRIVED];
        for (uint32_t m = SIM_INGESTED; m < SIM_MOMENTS; m++) {
            const double left = (double)(a->records[i].at[m] - begin);
            const double right = (double)(b->records[i].at[m] - begin);
            const double apart = fabs(left - right);
            worst = fmax(worst, apart <= 1 ? 0 : apart / right);
        }
    }
    return worst;
}

/* Four prefill nodes of two NICs, one decode node of two, all prompts at once and NICs that are slow
 * enough to be what the prompts wait for. */
static void incast(struct sim_scenario *s, struct sim_workload *w)
{
    child_scenario(s, 1);
    s->model = *sim_model_find("Qwen3-32B");
    s->prefill.nodes = 4;
    s->prefill.engine.tp = 2;
    s->prefill.engine.ep = 1;
    s->prefill.engine.weights = s->model.weights;
    s->decode.engine.weights = s->model.weights;
    s->decode.engine.tp = 2;
    s->decode.engine.ep = 1;
    s->prefill.engine.gpus = 2;
    s->decode.engine.gpus = 2;
    s->network.nic.bandwidth = 1e9;
    child_workload(w, 8, MS, 1, 2);
    for (uint32_t i = 0; i < w->count; i++) {
        w->requests[i].prompt_tokens = 1000 + 137 * i;
    }
}

static void layers_are_as_their_pages_in_an_incast(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    uint32_t nics = 0;
    double late = 0;

    (void)state;
    incast(&s, &w);
    struct child *layers = run(&s, &w);
    s.network.page_flows = true;
    struct child *pages = run(&s, &w);
    for (uint32_t i = 0; i < 4; i++) {
        nics += layers->nodes[i].nics;
        assert_true(layers->nodes[i].bytes > 0);
    }
    assert_int_equal(nics, 8);
    assert_int_equal(layers->nodes[4].nics, 2);
    for (uint32_t i = 0; i < w.count; i++) {
        const hlg_time *at = layers->records[i].at;
        late = fmax(late, (double)(at[SIM_LANDED] - at[SIM_COMPUTED]) / MS);
    }
    assert_true(late > 100); /* the NICs are what it waits for */
    assert_true(pages->run.flows > 4 * layers->run.flows);
    const double worst = worst_difference(layers, pages, w.count);
    print_message("8 NICs to 2: layers against pages: worst %g, %.0f ms exposed\n", worst, late);
    assert_true(worst <= 1e-4);
    child_free(layers);
    child_free(pages);
    sim_workload_fini(&w);
}

static void a_thousand_requests_are_the_same_folded(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 3);
    s.prefill.nodes = 2;
    s.network.nic.bandwidth = 1.5e9;
    child_workload(&w, 1000, 140 * MS, 1, 1);
    for (uint32_t i = 0; i < w.count; i++) {
        w.requests[i].prompt_tokens = 100 + i * 7919 % 6000;
        w.requests[i].output_tokens = 1 + i * 104729 % 200;
    }
    struct child *folded = run(&s, &w);
    s.network.fold = false;
    s.network.fold_auto = false;
    struct child *unfolded = run(&s, &w);
    assert_true(folded->run.folded && !unfolded->run.folded);
    const double worst = worst_difference(folded, unfolded, w.count);
    print_message("1000 requests: folded against unfolded: worst %g\n", worst);
    assert_true(worst <= 1e-9);
    assert_int_equal(folded->run.bytes_posted, unfolded->run.bytes_posted);
    child_free(folded);
    child_free(unfolded);
    sim_workload_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_as_their_pages_in_an_incast),
        cmocka_unit_test(a_thousand_requests_are_the_same_folded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
