/*
 * Operator times from a GPU's peaks alone: the greater of compute and memory time, plus a start. The
 * fallback where nothing was measured, and the negative control. Pure.
 */
#ifndef HALAGE_SIM_COST_ROOFLINE_H
#define HALAGE_SIM_COST_ROOFLINE_H

#include "hardware.h"
#include "model.h"

/* Bytes of one weight; mxfp4 and nvfp4 with their scales. */
double sim_dtype_bytes(enum sim_dtype dtype);

/* One matrix product: [m][k] by [k][n]. */
double sim_roofline_gemm_ns(const struct sim_gpu *gpu, enum sim_dtype weights, double m, double n,
                            double k);

/* Attention of one layer in decode. heads, kv_heads: of this rank. */
double sim_roofline_decode_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                              enum sim_dtype kv, double heads, double kv_heads, double sequences,
                              double context);

/* Attention of one layer over a prompt: for each pair of query and key, and for each new token. */
double sim_roofline_pair_ns(const struct sim_gpu *gpu, const struct sim_model *model, double heads);
double sim_roofline_token_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                             enum sim_dtype kv, double kv_heads);

/* The routed experts of one layer on one rank; `tokens` over the whole group. */
double sim_roofline_experts_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                               enum sim_dtype weights, double tokens, uint32_t moe_tp, uint32_t ep);

/* All-reduce of `bytes`, and dispatch + combine of `tokens` of each rank over `ranks`. */
double sim_roofline_reduce_ns(const struct sim_gpu *gpu, uint32_t gpus, double bytes);
double sim_roofline_exchange_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                                uint32_t ranks, double tokens);

#endif
