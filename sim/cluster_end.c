/* What is summed when a run is over, and what must hold then. */
#include "cluster_internal.h"
#include "metrics.h"

#include <stdio.h>

/* A moment that was passed over equals the one before it. */
static void fill_moments(struct sim_record *record)
{
    uint32_t limit = record->outcome == SIM_DONE ? SIM_MOMENTS : SIM_FINISHED;

    while (limit > 1 && record->at[limit - 1] == HLG_TIME_NEVER) {
        limit--;
    }
    for (uint32_t m = 1; m < limit; m++) {
        if (record->at[m] == HLG_TIME_NEVER || record->at[m] < record->at[m - 1]) {
            record->at[m] = record->at[m - 1];
        }
    }
}

/* Let the network come to rest: sources still wait to hear of their last writes. */
static void drain(struct cluster *c)
{
    bool idle = false;

    while (!idle) {
        net_turn(c);
        idle = !net_step(c, HLG_TIME_NEVER);
    }
}

/* Every page is back, no request is open, and what was posted has landed. */
static void assert_rest(const struct cluster *c)
{
    for (uint32_t i = 0; c->colocated && i < c->node_count; i++) {
        HLG_ASSERT(sim_mixed_check(c->nodes[i].mixed.mixed) == 0);
        HLG_ASSERT(c->nodes[i].mixed.open == 0);
    }
    for (uint32_t i = 0; !c->colocated && i < c->node_count; i++) {
        const struct node *n = &c->nodes[i];
        HLG_ASSERT(hlg_pump_open(n->pump) == 0);
        HLG_ASSERT(hlg_pump_check(n->pump) == 0);
        for (uint32_t rank = 0; rank < n->ranks; rank++) {
            HLG_ASSERT(sim_pages_used(n->pages[rank]) == 0);
            HLG_ASSERT(sim_pages_check(n->pages[rank]) == 0);
        }
        if (n->decode) {
            HLG_ASSERT(sim_batch_check(n->decoder.batch) == 0);
        }
    }
    HLG_ASSERT(c->jobs.used == 0 && c->intakes.used == 0 && c->works.used == 0);
    HLG_ASSERT(c->colocated || hlg_simgrid_check(c->net) == 0);
}

static void assert_conserved(const struct cluster *c)
{
    char text[256];
    const char *broken = sim_metrics_conserved(c->workload, c->run, text, sizeof text);

    if (broken != NULL) {
        (void)fprintf(stderr, "%s\n", broken);
    }
    HLG_ASSERT(broken == NULL);
}

void cluster_sum(struct cluster *c)
{
    struct sim_run *run = c->run;

    sample_end(c);
    run->folded = c->fold.on;
    bool whole = c->finished == c->limit && !c->faulty;
    if (whole) {
        drain(c);
        assert_rest(c);
    }
    for (uint32_t i = 0; i < c->limit; i++) {
        fill_moments(&run->records[i]);
    }
    for (uint32_t i = 0; i < c->node_count; i++) {
        struct node *n = &c->nodes[i];
        if (n->pump != NULL) {
            sample_stats(c, n);
            hlg_pump_destroy(n->pump);
            n->pump = NULL;
            n->alive = false;
        }
        run->nodes[i] = n->totals;
    }
    cluster_trace(c, HLG_NONE, c->colocated ? 0 : hlg_simgrid_trace_hash(c->net), run->end_ns);
    run->trace_hash = c->hash;
    assert_conserved(c);
}
