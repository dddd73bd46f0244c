#include "cost.h"

#include "calibration.h"
#include "cost_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of an activation. */
#define ACTIVATION_BYTES 2.0

static double max(double a, double b)
{
    return a > b ? a : b;
}

int sim_cost_create(const struct sim_cost_config *config, struct sim_cost **cost, char *text,
                    size_t capacity)
{
    int status = sim_model_check(config->model, text, capacity);

    if (status == 0) {
        status = sim_cost_check(config, text, capacity);
    }
    if (status != 0) {
        return status;
    }
    struct sim_cost *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -HLG_ENOMEM;
    }
    made->model = *config->model;
    made->gpu = *config->gpu;
    (void)snprintf(made->engine, sizeof made->engine, "%s",
                   config->engine == NULL ? "none" : config->engine);
    made->weights = config->weights;
    made->kv = config->kv;
    made->tp = config->tp;
    made->dp = config->dp;
    made->ep = config->ep;
    made->moe_tp = config->tp * config->dp / config->ep;
    made->draft_module = config->draft_module;
    made->imbalance = config->moe_imbalance;
    struct sim_operators operators = {.model = &made->model,
                                      .gpu = &made->gpu,
                                      .engine = made->engine,
                                      .weights = made->weights,
                                      .kv = made->kv,
                                      .measured = !config->roofline};
    sim_cost_measure(made, &operators);
    status = sim_cost_ground(made, config, &operators, text, capacity);
    if (status == 0 && config->table != NULL) {
        status = sim_step_table_read(config->table, &made->table, text, capacity);
    }
    if (status != 0) {
        sim_cost_destroy(made);
        return status;
    }
    *cost = made;
    return 0;
}

void sim_cost_destroy(struct sim_cost *cost)
{
    if (cost != NULL) {
        sim_step_table_destroy(cost->table);
        free(cost);
    }
}

/* Work of a step: of the rank that holds the others up, and of all together. */
struct work {
    double gemm_ns;
    double attention_ns;
    double tokens_most;  /* of one rank */
    double tokens;       /* of all */
    double outputs_most; /* tokens that one rank makes */
    double sequences;
    double sequences_most;
    double drafts;        /* passes of the draft module */
    double draft_context; /* mean, of the rank with most sequences */
};

static uint32_t queries(const struct sim_rank_step *rank)
{
    return hlg_max_u32(1, rank->query_tokens);
}

static double rank_tokens(const struct sim_rank_step *rank)
{
    double tokens = (double)rank->sequences * queries(rank);

    for (uint32_t i = 0; i < rank->chunk_count; i++) {
        tokens += rank->chunks[i].tokens;
    }
    return tokens;
}

/* Pairs of a query and a key that it sees, in a layer with a window: query i of a chunk sees itself and
 * at most window - 1 before. */
static double window_pairs(const struct sim_chunk *chunk, double window)
{
    const double tokens = chunk->tokens;
    const double first = chunk->context + 1.0; /* keys that the first query would see */
    const double growing = window > first ? window - first : 0.0;
    const double grown = growing < tokens ? growing : tokens;

    return grown * first + grown * (grown - 1.0) / 2.0 + (tokens - grown) * window;
}

static double prompt_attention_ns(const struct sim_cost *cost, const struct sim_rank_step *rank)
{
    const double windows = cost->model.window_layers;
    const double full = cost->model.layers - windows;
    double ns = 0.0;

    for (uint32_t i = 0; i < rank->chunk_count; i++) {
        const struct sim_chunk *chunk = &rank->chunks[i];
        const double tokens = chunk->tokens;
        const double pairs = tokens * chunk->context + tokens * (tokens + 1.0) / 2.0;
        ns += cost->model.layers * cost->context.token_ns * tokens;
        ns += full * cost->context.pair_ns * pairs;
        if (windows > 0.0) {
            ns += windows * cost->context.pair_ns * window_pairs(chunk, cost->model.window_tokens);
        }
    }
    return ns > 0.0 ? ns + cost->model.layers * cost->context.start_ns : 0.0;
}

/* One layer: the mean context says how much is read, the longest one how long the last wave lasts. */
static double decode_layer_ns(const struct sim_cost *cost, const struct sim_rank_step *rank,
                              double window, bool *beyond)
{
    const double heads = (double)hlg_div_exact(cost->model.heads, cost->tp) * queries(rank);
    const double mean = (double)rank->context_sum / rank->sequences;
    const double most = max(mean, rank->context_max);
    const double mean_seen = mean < window ? mean : window;
    const double most_seen = most < window ? most : window;
    const double all =
        sim_decode_times_at(&cost->decode, heads, rank->sequences, mean_seen, beyond);

    return most_seen > mean_seen
               ? max(all, sim_decode_times_at(&cost->decode, heads, 1.0, most_seen, beyond))
               : all;
}

static double decode_attention_ns(const struct sim_cost *cost, const struct sim_rank_step *rank,
                                  bool *beyond)
{
    const double windows = cost->model.window_layers;

    if (rank->sequences == 0) {
        return 0.0;
    }
    double ns = (cost->model.layers - windows) * decode_layer_ns(cost, rank, 1e18, beyond);
    if (windows > 0.0) {
        ns += windows * decode_layer_ns(cost, rank, cost->model.window_tokens, beyond);
    }
    return ns;
}

static void add_rank(const struct sim_cost *cost, const struct sim_rank_step *rank,
                     struct work *work, bool *beyond)
{
    const double tokens = rank_tokens(rank);
    const double gemm = sim_curve_at(&cost->gemm, tokens, beyond);
    const double attention =
        prompt_attention_ns(cost, rank) + decode_attention_ns(cost, rank, beyond);
    const double outputs = (double)rank->sequences * queries(rank) + rank->chunk_count;

    if (gemm + attention > work->gemm_ns + work->attention_ns) {
        work->gemm_ns = gemm;
        work->attention_ns = attention;
    }
    work->tokens += tokens;
    work->sequences += rank->sequences;
    work->tokens_most = max(work->tokens_most, tokens);
    work->outputs_most = max(work->outputs_most, outputs);
    work->drafts = max(work->drafts, rank->sequences > 0 ? queries(rank) - 1.0 : 0.0);
    if (rank->sequences > work->sequences_most) {
        work->sequences_most = rank->sequences;
        work->draft_context = (double)rank->context_sum / rank->sequences;
    }
}

/* Messages of the expert and dense layers of `share` of the model. */
static double communication_ns(const struct sim_cost *cost, double tokens_most, double tokens,
                               double share, bool *beyond)
{
    const double row = cost->model.hidden * ACTIVATION_BYTES;
    double ns = 0.0;

    ns += cost->reduce_count * sim_curve_at(&cost->reduce, tokens_most * row, beyond);
    ns += cost->gather_count * sim_curve_at(&cost->gather, tokens * row, beyond);
    ns += cost->exchange_count * sim_curve_at(&cost->exchange, tokens_most / cost->tp, beyond);
    return ns * share;
}

static double experts_ns(const struct sim_cost *cost, double tokens, bool *beyond)
{
    const double hottest = cost->imbalance > 1.0 && cost->ep > 1 ? cost->imbalance : 1.0;
    return sim_curve_at(&cost->experts, tokens * hottest, beyond);
}

/* The draft module: one more layer of the model and a head, for one token of each sequence a pass. */
static void add_drafts(const struct sim_cost *cost, const struct work *work,
                       struct sim_cost_parts *parts)
{
    const struct sim_model *m = &cost->model;
    const double passes = work->drafts * cost->draft_layers;
    const double heads = (double)hlg_div_exact(m->heads, cost->tp);
    const double most = work->sequences_most;
    const double all = work->sequences;
    bool *beyond = &parts->is_beyond;

    if (passes <= 0.0 || most <= 0.0) {
        return;
    }
    parts->gemm_ns += passes * sim_curve_at(&cost->draft_gemm, most, beyond);
    parts->attention_ns +=
        passes * sim_decode_times_at(&cost->decode, heads, most, work->draft_context, beyond);
    parts->head_ns += passes * sim_curve_at(&cost->head, most, beyond);
    parts->communication_ns += communication_ns(cost, most, all, passes / m->layers, beyond);
    if (m->experts > 0) {
        parts->experts_ns += passes * experts_ns(cost, all, beyond) / (m->layers - m->dense_layers);
    }
}

/* A user's own times, of the rank that holds the others up. */
static double table_ns(const struct sim_cost *cost, const struct sim_rank_step *ranks,
                       uint32_t rank_count, bool *beyond)
{
    double slowest = 0.0;

    for (uint32_t i = 0; i < rank_count; i++) {
        double tokens = 0.0;
        double behind = 0.0; /* context of each token, summed */
        for (uint32_t c = 0; c < ranks[i].chunk_count; c++) {
            tokens += ranks[i].chunks[c].tokens;
            behind += (double)ranks[i].chunks[c].tokens * ranks[i].chunks[c].context;
        }
        double ns = tokens > 0.0 ? sim_step_table_at(cost->table, SIM_STEP_PREFILL, tokens,
                                                     behind / tokens, beyond)
                                 : 0.0;
        if (ranks[i].sequences > 0) {
            const double mean = (double)ranks[i].context_sum / ranks[i].sequences;
            const double decode =
                sim_step_table_at(cost->table, SIM_STEP_DECODE, ranks[i].sequences, mean, beyond);
            const double shared = sim_step_table_least(cost->table, SIM_STEP_DECODE);
            ns = tokens > 0.0 ? ns + max(decode - shared, 0.0) : decode;
        }
        slowest = max(slowest, ns);
    }
    return slowest;
}

double sim_cost_step_ns(const struct sim_cost *cost, const struct sim_rank_step *ranks,
                        uint32_t rank_count, struct sim_cost_parts *parts)
{
    struct sim_cost_parts found = {0};
    struct work work = {0};

    HLG_ASSERT(rank_count >= 1 && rank_count <= cost->dp);
    if (cost->table != NULL) {
        found.overhead_ns = table_ns(cost, ranks, rank_count, &found.is_beyond);
    } else {
        for (uint32_t i = 0; i < rank_count; i++) {
            add_rank(cost, &ranks[i], &work, &found.is_beyond);
        }
        if (work.tokens > 0.0) {
            found.gemm_ns = work.gemm_ns;
            found.attention_ns = work.attention_ns;
            found.experts_ns = experts_ns(cost, work.tokens, &found.is_beyond);
            found.communication_ns =
                communication_ns(cost, work.tokens_most, work.tokens, 1.0, &found.is_beyond);
            found.head_ns = sim_curve_at(&cost->head, work.outputs_most, &found.is_beyond);
            found.overhead_ns = cost->overhead_ns;
            add_drafts(cost, &work, &found);
        }
    }
    if (parts != NULL) {
        *parts = found;
    }
    return found.gemm_ns + found.attention_ns + found.experts_ns + found.communication_ns +
           found.head_ns + found.overhead_ns;
}

void sim_cost_basis(const struct sim_cost *cost, struct sim_cost_basis *basis)
{
    *basis = cost->basis;
}
