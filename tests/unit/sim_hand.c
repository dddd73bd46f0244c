#include "sim_hand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS     HLG_NS_PER_MS
#define PROMPT 1000u
#define OUTPUT 11u
#define BYTES  70272000ull /* 1000 tokens x 70272 bytes: DeepSeek-R1, bf16 */

/* In place of the one that reads a whole scenario: the build wraps the name. */
uint64_t __wrap_sim_scenario_digest(const struct sim_scenario *scenario);
uint64_t __wrap_sim_scenario_digest(const struct sim_scenario *scenario)
{
    (void)scenario;
    return HAND_DIGEST;
}

static void set_engine(struct sim_engine *engine)
{
    (void)snprintf(engine->name, sizeof engine->name, "sglang");
    (void)snprintf(engine->version, sizeof engine->version, "1.2.3");
    (void)snprintf(engine->gpu, sizeof engine->gpu, "H200");
    engine->gpus = engine->tp = engine->ep = 8;
    engine->dp = 1;
    engine->weights = SIM_FP8;
    engine->kv = SIM_BF16;
}

static void set_scenario(struct sim_scenario *scenario)
{
    (void)snprintf(scenario->name, sizeof scenario->name, "by hand");
    (void)snprintf(scenario->question, sizeof scenario->question, "does it add up?");
    (void)snprintf(scenario->model.name, sizeof scenario->model.name, "DeepSeek-R1");
    (void)snprintf(scenario->network.nic.name, sizeof scenario->network.nic.name, "cx7-400g");
    scenario->seed = 7;
    scenario->serving = SIM_SERVING_DISAGGREGATED;
    scenario->prefill.nodes = scenario->decode.nodes = 1;
    set_engine(&scenario->prefill.engine);
    set_engine(&scenario->decode.engine);
    scenario->decode.sequences_max = 16;
    scenario->network.nics_per_gpu = 1;
    scenario->measure.window_ns = HLG_TIME_NEVER;
    scenario->measure.stop_ns = HLG_TIME_NEVER;
}

static void set_record(struct sim_record *record, uint32_t index)
{
    hlg_time at = 100 * MS * index;

    *record = (struct sim_record){.request = index,
                                  .outcome = SIM_DONE,
                                  .prompt_tokens = PROMPT,
                                  .output_tokens = OUTPUT,
                                  .chunks = 1,
                                  .steps = OUTPUT,
                                  .prefill_node = 0,
                                  .decode_node = 1,
                                  .bytes = BYTES};
    for (uint32_t i = 0; i <= SIM_FIRST; i++) {
        at += i * MS;
        record->at[i] = at;
    }
    record->at[SIM_FINISHED] = at + 100 * MS;
}

static void set_run(struct hand *hand, uint32_t count)
{
    struct sim_run *run = &hand->run;

    hand->nodes[0] = (struct sim_node_totals){
        .busy_ns = 5.0 * MS * count, .tokens_in = (PROMPT - 1) * count, .nics = 8, .kv_pages = 100};
    hand->nodes[1] = (struct sim_node_totals){.busy_ns = 109.0 * MS * count,
                                              .tokens_out = OUTPUT * count,
                                              .nics = 8,
                                              .kv_pages = 100,
                                              .decode = true};
    run->records = hand->records;
    run->record_count = count;
    run->nodes = hand->nodes;
    run->node_count = 2;
    run->prefill_nodes = 1;
    run->end_ns = 100 * MS * (count - 1) + 145 * MS;
    run->sequence_ns = 145.0 * MS * count;
    run->bytes_posted = run->bytes_landed = run->bytes_planned = BYTES * count;
    run->gaps.count[106] = 10 * count; /* 2^(106/8) us = 9.7 ms to 10.6 ms */
    run->gaps.sum_ns = 100.0 * MS * count;
    run->kv_tokens[0] = run->kv_tokens[1] = 400000;
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_cost_basis *basis = &run->basis[i];
        (void)snprintf(basis->id, sizeof basis->id, "calibration-1");
        (void)snprintf(basis->engine, sizeof basis->engine, "sglang");
    }
}

struct hand *hand_make(uint32_t count)
{
    struct hand *hand = calloc(1, sizeof *hand);

    HLG_ASSERT(hand != NULL && count >= 1 && count <= HAND_REQUESTS_MAX);
    set_scenario(&hand->scenario);
    hand->workload.requests = hand->requests;
    hand->workload.count = count;
    for (uint32_t i = 0; i < count; i++) {
        hand->requests[i] = (struct sim_workload_request){
            .arrival_ns = 100 * MS * i, .prompt_tokens = PROMPT, .output_tokens = OUTPUT};
        set_record(&hand->records[i], i);
    }
    set_run(hand, count);
    return hand;
}

void hand_free(struct hand *hand)
{
    free(hand);
}

void hand_stop(struct hand *hand, uint32_t index, enum sim_moment moment)
{
    struct sim_record *record = &hand->records[index];
    struct sim_run *run = &hand->run;

    HLG_ASSERT(record->outcome == SIM_DONE && moment > SIM_ARRIVED);
    run->sequence_ns += (double)run->end_ns - (double)record->at[SIM_FINISHED];
    for (uint32_t i = moment; i < SIM_MOMENTS; i++) {
        record->at[i] = HLG_TIME_NEVER;
    }
    record->outcome = SIM_UNFINISHED;
}
