/*
 * Least squares of a few constants over a few points, by damped Gauss-Newton on relative steps. Equal
 * arguments, equal result; no libm but sqrt and fabs.
 */
#ifndef HALAGE_TESTS_FIT_H
#define HALAGE_TESTS_FIT_H

#include <stdint.h>

#define FIT_CONSTANTS_MAX 4u
#define FIT_POINTS_MAX    64u

/*
 * Minimise the sum of squares of predicted / measured - 1.
 *
 * predict    value of point `index` under constants x[count], > 0
 * points     [point_count] the points that count
 * measured   by point, not by place in `points`
 * constants  [count] all > 0: where to begin, then the result
 *
 * Returns the sum of squares reached. Some 10^4 predictions.
 */
double fit_relative(double (*predict)(const void *context, const double *x, uint32_t index),
                    const void *context, const uint32_t *points, uint32_t point_count,
                    const double *measured, double *constants, uint32_t count);

#endif
