/*
 * Random variates from the fixed integer generator: equal seed, equal bits, with gcc and clang.
 *
 * They use +, -, *, / and sqrt() only, which IEEE 754 rounds correctly; logarithm and exponential
 * are series of our own, because those of two libms may differ in the last bit. The build switches
 * fused multiply-add off.
 */
#ifndef HALAGE_SIM_WORKLOAD_VARIATE_H
#define HALAGE_SIM_WORKLOAD_VARIATE_H

#include <driver/rng.h>

/* Natural logarithm of a normal positive number, to 2 units in the last place. */
double sim_log(double x);

/* e to the x, to 4 units in the last place; 0 below -708, the largest double above 709. */
double sim_exp(double x);

/*
 * Quantile of the standard normal distribution, 0 < u < 1, to about 1e-15.
 * Source: M. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), PPND16.
 */
double sim_normal_quantile(double u);

/* A multiple of 2^-53 in (0, 1): neither end is ever drawn. */
double sim_draw_uniform(struct hlg_rng *rng);

/* Standard normal. One draw of the generator. */
double sim_draw_normal(struct hlg_rng *rng);

/* Exponential, mean 1. One draw of the generator. */
double sim_draw_exponential(struct hlg_rng *rng);

/*
 * Gamma, scale 1: mean `shape`, variance `shape`. May be 0 where `shape` is far below 1.
 *
 * shape  0.0001..1000000
 *
 * Source: G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26
 * (2000); below 1 by their power of a uniform.
 */
double sim_draw_gamma(struct hlg_rng *rng, double shape);

/* Weibull, scale 1. One draw of the generator. shape: as for gamma. */
double sim_draw_weibull(struct hlg_rng *rng, double shape);

#endif
