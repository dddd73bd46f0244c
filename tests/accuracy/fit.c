#include "fit.h"

#include <halage/base.h>

#include <math.h>
#include <string.h>

#define ROUNDS      300u
#define STEP        1e-7 /* of a constant, for differences */
#define CHANGE_MAX  0.5
#define DAMPING_MIN 1e-9
#define DAMPING_MAX 1e9

typedef double matrix[FIT_CONSTANTS_MAX][FIT_CONSTANTS_MAX + 1];

/* Solve the first `count` columns for the last, in place. Symmetric, with a positive diagonal. */
static void solve(matrix m, uint32_t count, double *x)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            const double factor = m[j][i] / m[i][i];
            for (uint32_t k = 0; j != i && k <= count; k++) {
                m[j][k] -= factor * m[i][k];
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        x[i] = m[i][count] / m[i][i];
    }
}

struct problem {
    double (*predict)(const void *context, const double *x, uint32_t index);
    const void *context;
    const uint32_t *points;
    uint32_t point_count;
    const double *measured;
    uint32_t count;
};

static double residuals(const struct problem *p, const double *x, double *r)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->point_count; i++) {
        const uint32_t point = p->points[i];
        r[i] = p->predict(p->context, x, point) / p->measured[point] - 1;
        sum += r[i] * r[i];
    }
    return sum;
}

/* The step, each part relative to its constant, that a linear model of the residuals asks for. */
static void find_step(const struct problem *p, const double *x, const double *r, double damping,
                      double *step)
{
    double slopes[FIT_CONSTANTS_MAX][FIT_POINTS_MAX] = {{0}};
    matrix m = {{0}};
    for (uint32_t k = 0; k < p->count; k++) {
        double moved[FIT_CONSTANTS_MAX];
        memcpy(moved, x, p->count * sizeof *x);
        moved[k] *= 1 + STEP;
        (void)residuals(p, moved, slopes[k]);
        for (uint32_t i = 0; i < p->point_count; i++) {
            slopes[k][i] = (slopes[k][i] - r[i]) / STEP;
        }
    }
    for (uint32_t k = 0; k < p->count; k++) {
        for (uint32_t i = 0; i < p->point_count; i++) {
            for (uint32_t l = 0; l < p->count; l++) {
                m[k][l] += slopes[k][i] * slopes[l][i];
            }
            m[k][p->count] -= slopes[k][i] * r[i];
        }
    }
    for (uint32_t k = 0; k < p->count; k++) {
        m[k][k] = m[k][k] * (1 + damping) + 1e-12; /* a constant that no point feels stays */
    }
    solve(m, p->count, step);
}

double fit_relative(double (*predict)(const void *context, const double *x, uint32_t index),
                    const void *context, const uint32_t *points, uint32_t point_count,
                    const double *measured, double *constants, uint32_t count)
{
    const struct problem p = {predict, context, points, point_count, measured, count};
    double r[FIT_POINTS_MAX] = {0};
    double damping = 1e-2;
    HLG_ASSERT(count >= 1 && count <= FIT_CONSTANTS_MAX);
    HLG_ASSERT(point_count >= 1 && point_count <= FIT_POINTS_MAX);

    double best = residuals(&p, constants, r);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        double step[FIT_CONSTANTS_MAX] = {0};
        double moved[FIT_CONSTANTS_MAX];
        double tried[FIT_POINTS_MAX] = {0};
        find_step(&p, constants, r, damping, step);
        for (uint32_t k = 0; k < count; k++) {
            moved[k] = constants[k] * (1 + fmax(-CHANGE_MAX, fmin(CHANGE_MAX, step[k])));
        }
        const double sum = residuals(&p, moved, tried);
        if (sum < best) {
            best = sum;
            memcpy(constants, moved, count * sizeof *constants);
            memcpy(r, tried, point_count * sizeof *r);
            damping = fmax(damping * 0.3, DAMPING_MIN);
        } else {
            damping = fmin(damping * 4, DAMPING_MAX);
        }
    }
    return best;
}
