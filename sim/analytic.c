#include "analytic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS          ((double)HLG_NS_PER_MS)
#define SAMPLES_MAX 1000u
#define ROUNDS_MAX  200u /* of the fixed point; it rises, so that each round is nearer */
#define CHUNKS_MAX  4096u

struct sim_analytic {
    const struct sim_scenario *scenario;
    struct sim_cost *prefill;
    struct sim_cost *decode;
    struct sim_analytic_base base;
    double service_ns;  /* of a prefill node, for each request: E[s] */
    double service2_ns; /* E[s^2] */
    double fixed_ns;    /* of every TTFT: ingest, messages, dispatch, signal */
    double transfer_ns; /* exposed, mean */
};

/* ---- Prefill ---- */

/* Time of all forwards of a prompt, every rank of the node with one of its kind. */
static double prompt_ns(const struct sim_analytic *a, uint32_t tokens)
{
    const struct sim_prefill *prefill = &a->scenario->prefill;
    struct sim_rank_step ranks[SIM_GPUS_MAX];
    struct sim_chunk chunk = {0, 0};
    double sum = 0;

    tokens -= a->scenario->decode.last_token && tokens > 1;
    for (uint32_t round = 0; round < CHUNKS_MAX && chunk.context < tokens; round++) {
        const uint32_t left = tokens - chunk.context;
        chunk.tokens = prefill->chunked ? hlg_min_u32(left, prefill->budget_tokens) : left;
        for (uint32_t i = 0; i < prefill->engine.dp; i++) {
            ranks[i] = (struct sim_rank_step){.chunks = &chunk, .chunk_count = 1};
        }
        sum += sim_cost_step_ns(a->prefill, ranks, prefill->engine.dp, NULL);
        chunk.context += chunk.tokens;
    }
    return sum;
}

/* What a prompt's last layer, or all of it, still has to travel when it is computed: each rank sends
 * its part over its own NICs. */
static double transfer_ns(const struct sim_scenario *scenario, double tokens)
{
    const struct sim_network *network = &scenario->network;
    const struct sim_model *model = &scenario->model;
    const struct sim_engine *decode = &scenario->decode.engine;
    const double bytes = tokens * (double)sim_model_kv_bytes_per_token(model, decode->kv) /
                         (scenario->prefill.layerwise ? model->layers : 1);
    /* Latent vectors are copied to every rank, heads are spread over them. */
    const double ranks = model->attention == SIM_ATTENTION_MLA ? 1 : decode->tp;
    return bytes / ranks / (network->nic.bandwidth * network->nics_per_gpu) +
           (double)network->nic.latency_ns;
}

/* ---- Decode ---- */

static double tokens_a_step(const struct sim_decode *decode)
{
    double sum = 1;
    for (uint32_t i = 0; i < decode->draft; i++) {
        sum += decode->accept[i];
    }
    return sum;
}

static double whole_step_ns(const struct sim_analytic *a, uint32_t sequences)
{
    const struct sim_decode *decode = &a->scenario->decode;
    const double context = a->base.prompt_tokens + a->base.output_tokens / 2;
    struct sim_rank_step ranks[SIM_GPUS_MAX];

    for (uint32_t i = 0; i < decode->engine.dp; i++) {
        const uint32_t count = sequences / decode->engine.dp + (i < sequences % decode->engine.dp);
        ranks[i] = (struct sim_rank_step){
            .sequences = count,
            .context_sum = (uint64_t)(context * count),
            .context_max = (uint32_t)context,
            .query_tokens = 1 + decode->draft,
        };
    }
    return sim_cost_step_ns(a->decode, ranks, decode->engine.dp, NULL);
}

/* Between two whole batches in a straight line; at least one sequence. */
static double step_ns(const struct sim_analytic *a, double batch)
{
    if (batch <= 1) {
        return whole_step_ns(a, 1);
    }
    const double below = floor(batch);
    const double low = whole_step_ns(a, (uint32_t)below);
    const double high = whole_step_ns(a, (uint32_t)below + 1);
    return low + (high - low) * (batch - below);
}

/* ---- Both ---- */

static int create_costs(struct sim_analytic *a, char *text, size_t capacity)
{
    const struct sim_scenario *scenario = a->scenario;
    const struct sim_engine *engines[] = {&scenario->prefill.engine, &scenario->decode.engine};
    struct sim_cost **costs[] = {&a->prefill, &a->decode};

    for (uint32_t i = 0; i < 2; i++) {
        int error = sim_scenario_cost(scenario, engines[i], costs[i], text, capacity);
        if (error == 0) {
            error = sim_scenario_kv_tokens(engines[i], *costs[i], &a->base.kv_tokens[i], text,
                                           capacity);
        }
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Means over requests taken evenly from the workload. */
static int sample(struct sim_analytic *a, const struct sim_workload *workload, double share)
{
    const struct sim_scenario *scenario = a->scenario;
    const uint32_t count = hlg_min_u32(workload->count, SAMPLES_MAX);
    const double dp = scenario->prefill.engine.dp;
    double *ttft = calloc(count, sizeof *ttft);
    double transfer = 0;
    double alone = 0;

    if (ttft == NULL) {
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < workload->count; i++) {
        a->base.prompt_tokens += (double)workload->requests[i].prompt_tokens / workload->count;
        a->base.output_tokens += (double)workload->requests[i].output_tokens / workload->count;
    }
    const double step = step_ns(a, 1);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t index = (uint64_t)i * workload->count / count;
        const uint32_t tokens = workload->requests[index].prompt_tokens;
        const double service = prompt_ns(a, tokens);
        const double moved = transfer_ns(scenario, tokens);
        ttft[i] = a->fixed_ns + service + moved + step;
        alone += service / count;
        transfer += moved / count;
        a->service_ns += service / dp / count;
        a->service2_ns += service / dp * service / dp / count;
        a->base.unloaded_ttft_ms += ttft[i] / MS / count;
    }
    qsort(ttft, count, sizeof *ttft, compare_doubles);
    const double rank = ceil(share * count);
    a->base.share_ttft_ms = ttft[rank < 1 ? 0 : (uint32_t)rank - 1] / MS;
    a->base.prefill_ms = alone / MS;
    a->base.unloaded_tpot_ms = step / tokens_a_step(&scenario->decode) / MS;
    a->transfer_ns = transfer;
    free(ttft);
    return 0;
}

int sim_analytic_create(const struct sim_scenario *scenario, const struct sim_workload *workload,
                        double share, struct sim_analytic **analytic, char *text, size_t capacity)
{
    struct sim_analytic *a = calloc(1, sizeof *a);
    int error = a == NULL ? -HLG_ENOMEM : 0;

    HLG_ASSERT(scenario->serving == SIM_SERVING_DISAGGREGATED && share > 0 && share <= 1);
    (void)snprintf(text, capacity, "no memory for the plan");
    if (error == 0 && (workload->users != 0 || workload->count < 2 ||
                       workload->requests[workload->count - 1].arrival_ns == 0)) {
        (void)snprintf(text, capacity,
                       "the traffic has no rate: a plan needs requests that arrive by themselves, "
                       "over some time");
        error = -HLG_EINVAL;
    }
    if (error == 0) {
        const double last = (double)workload->requests[workload->count - 1].arrival_ns;
        a->scenario = scenario;
        a->base.rate = (double)workload->count / (last / (double)HLG_NS_PER_S);
        if (scenario->traffic.kind == SIM_WORKLOAD_DRAWN) {
            a->base.rate = scenario->traffic.drawn.arrivals.rate_rps;
        }
        a->fixed_ns = (double)scenario->decode.engine.ingest_ns +
                      (double)scenario->prefill.engine.dispatch_ns +
                      (double)scenario->network.message_ns +
                      (double)scenario->decode.engine.dispatch_ns;
        error = create_costs(a, text, capacity);
    }
    if (error == 0) {
        error = sample(a, workload, share);
    }
    if (error != 0) {
        sim_analytic_destroy(a);
        return error;
    }
    *analytic = a;
    return 0;
}

void sim_analytic_destroy(struct sim_analytic *analytic)
{
    if (analytic != NULL) {
        sim_cost_destroy(analytic->prefill);
        sim_cost_destroy(analytic->decode);
        free(analytic);
    }
}

const struct sim_analytic_base *sim_analytic_base(const struct sim_analytic *analytic)
{
    return &analytic->base;
}

/* Sequences of mean length that a decode node holds: by slots and by KV, which a request holds from its
 * submission on; reserved whole, or in the mean half of its output. */
static double batch_max(const struct sim_analytic *a)
{
    const struct sim_decode *decode = &a->scenario->decode;
    const double output =
        decode->policy == SIM_KV_RESERVE ? a->base.output_tokens : a->base.output_tokens / 2;
    const double kv = (double)a->base.kv_tokens[1] / (a->base.prompt_tokens + output);
    return decode->engine.dp * (kv < decode->sequences_max ? kv : (double)decode->sequences_max);
}

void sim_analytic_point(const struct sim_analytic *a, uint32_t prefill_nodes, uint32_t decode_nodes,
                        struct sim_analytic_point *point)
{
    const double prefill_rate = a->base.rate / prefill_nodes / (double)HLG_NS_PER_S;
    const double decode_rate = a->base.rate / decode_nodes / (double)HLG_NS_PER_S;
    const double each = tokens_a_step(&a->scenario->decode);
    double step = step_ns(a, 0);

    *point = (struct sim_analytic_point){.batch_max = batch_max(a)};
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        const double batch = decode_rate * a->base.output_tokens * step / each;
        const bool settled = fabs(batch - point->batch) < 1e-6 * batch;
        point->batch = batch;
        if (settled) {
            break;
        }
        step = step_ns(a, batch < point->batch_max ? batch : point->batch_max);
    }
    point->decode_overloaded = point->batch > point->batch_max;
    point->tpot_ms = step / each / MS;
    point->prefill_use = prefill_rate * a->service_ns;
    point->wait_ms = point->prefill_use >= 1
                         ? INFINITY
                         : prefill_rate * a->service2_ns / 2 / (1 - point->prefill_use) / MS;
    /* A request that is ready waits half a step in the mean for its first one. */
    point->ttft_ms =
        (a->fixed_ns + a->transfer_ns + 1.5 * step) / MS + a->base.prefill_ms + point->wait_ms;
}
