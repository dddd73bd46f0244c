/*
 * Times measured on a grid, and what lies between the points: straight lines. Kernel times are a fixed
 * part and a part that grows with the work, which a line between neighbours follows; and a line needs no
 * logarithm, so that gcc and clang agree to the last bit.
 */
#ifndef HALAGE_SIM_COST_CURVE_H
#define HALAGE_SIM_COST_CURVE_H

#include <halage/base.h>

#define SIM_GRID_MAX 40u

/* Nanoseconds over one quantity (tokens, bytes). A curve without points is 0 everywhere. */
struct sim_curve {
    uint32_t count;
    double x[SIM_GRID_MAX]; /* [count] rising, the first > 0 */
    double ns[SIM_GRID_MAX];
};

/* Nanoseconds over sequences and mean context. */
struct sim_plane {
    uint32_t row_count;
    uint32_t column_count;
    double sequences[SIM_GRID_MAX]; /* [row_count] rising */
    double context[SIM_GRID_MAX];   /* [column_count] rising */
    double ns[SIM_GRID_MAX][SIM_GRID_MAX];
};

/*
 * The curve at `x`: below the first point the first point's value, 0 at x = 0, beyond the last one the
 * last line goes on and `*beyond` becomes true (it is left alone otherwise).
 */
double sim_curve_at(const struct sim_curve *curve, double x, bool *beyond);

/* The plane at a point, by lines in both directions; beyond the last points in proportion, and `*beyond`
 * as for a curve. */
double sim_plane_at(const struct sim_plane *plane, double sequences, double context, bool *beyond);

#endif
