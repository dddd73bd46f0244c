/*
 * The article's deployments, run over the grids of scenarios/article: one row of figures a run, from which
 * claims.py takes its verdicts. Each run is a process of its own; rows are in the grids' order and
 * depend neither on jobs nor on time.
 */
#ifndef HALAGE_TESTS_CLAIMS_H
#define HALAGE_TESTS_CLAIMS_H

#include "scenario.h"

#include <stdio.h>

/* What is changed of a scenario, after the point of the grid is set. */
enum claims_control {
    CLAIMS_AS_IS = 0,
    CLAIMS_ROOFLINE, /* no measured operator times */
    CLAIMS_SLOW_NIC, /* bandwidth and operation clock of every NIC ten times slower */
    CLAIMS_WHOLE,    /* co-located nodes do not cut prompts: decode stands still meanwhile */
    CLAIMS_SMALL,    /* co-located nodes cut prompts at 2048 tokens of a step */
};

/* One grid, run in one way. */
struct claims_part {
    const char *deployment;
    const char *file;     /* in scenarios/article; its grid is run */
    const char *override; /* one more, before those of the grid; NULL: none */
    enum claims_control control;
    uint32_t prefill_nodes; /* only points with so many; 0: all */
};

uint32_t claims_part_count(void);
const struct claims_part *claims_part(uint32_t index);

/* Whether a point belongs to the corner that the quick tier runs again. */
bool claims_in_corner(const struct claims_part *part, const struct sim_scenario *scenario);

/* Read a point with its control. False: the part leaves it out. Ends the process, with a sentence, when it
 * cannot be read. Release with sim_scenario_fini(). */
bool claims_read(const struct claims_part *part, const char *folder, const struct sim_sweep *sweep,
                 uint32_t point, struct sim_scenario *scenario);

#define CLAIMS_ROW_BYTES 512u
#define CLAIMS_HEADER                                                                             \
    "deployment\tcontrol\tengine\tprompt\toutput\tdrafts\tprefill\tdecode\trate\ttps\ttps_half\t" \
    "tpot\tttft\tttft_half\thandover\tqueue\texposed\tbusy\tbatch\tgaps\tfinished\tlate\tlimit"

/*
 * Run a scenario and tell it as a row, without a newline:
 *
 * prefill, decode  nodes; co-located ones count as prefill ones
 * tps, tps_half    mean speed of a user, tokens/s, and half of its 95 % interval
 * tpot             mean, ms
 * ttft, ttft_half  mean, ms, and half of its interval
 * handover         of the mean TTFT, ms: page wait, dispatch, exposed transfer, signal, batch wait, first step
 * queue            of the mean TTFT, ms: prefill queue and prefill
 * exposed          of the mean TTFT, ms: exposed transfer
 * busy             share of the time in which prefill (or co-located) nodes compute
 * batch            mean sequences in decode, of a node
 * gaps             gaps between tokens of 100 ms and more, for each request
 * finished         requests that finish in the window for each that arrives in it
 * late             1: the queue grew through the whole window
 * limit            what is full
 */
void claims_run(const struct claims_part *part, const struct sim_scenario *scenario,
                char row[CLAIMS_ROW_BYTES]);

/* Rows of what the plan of Qwen3-Coder's KV moves for one prompt, by layout and ranks. */
void claims_pieces(const char *folder, FILE *out);

#endif
