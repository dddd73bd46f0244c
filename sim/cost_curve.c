#include "cost_curve.h"

/* Where x lies: points i and i + 1, and the weight of the second. One point is a curve too. */
struct span {
    uint32_t low;
    uint32_t high;
    double weight;
};

static struct span find(const double *points, uint32_t count, double x, bool *beyond)
{
    if (count == 1 || x <= points[0]) {
        *beyond |= count == 1 && x > points[0];
        return (struct span){0, 0, 0.0};
    }
    uint32_t low = 0;
    uint32_t high = count - 1;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (points[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *beyond |= x > points[count - 1];
    return (struct span){low, high, (x - points[low]) / (points[high] - points[low])};
}

static double mix(double low, double high, double weight)
{
    return low + (high - low) * weight;
}

double sim_curve_at(const struct sim_curve *curve, double x, bool *beyond)
{
    if (curve->count == 0 || x <= 0.0) {
        return 0.0;
    }
    const struct span at = find(curve->x, curve->count, x, beyond);
    return mix(curve->ns[at.low], curve->ns[at.high], at.weight);
}

/* Beyond the last point in proportion: lines would go on with slopes that need not rise from row to
 * row, and then more work could take less time. */
static double clamp(const double *points, uint32_t count, double *x)
{
    const double last = points[count - 1];
    const double ratio = *x > last ? *x / last : 1.0;

    *x = *x > last ? last : *x;
    return ratio;
}

double sim_plane_at(const struct sim_plane *plane, double sequences, double context, bool *beyond)
{
    if (plane->row_count == 0 || sequences <= 0.0) {
        return 0.0;
    }
    const double ratio = clamp(plane->sequences, plane->row_count, &sequences) *
                         clamp(plane->context, plane->column_count, &context);
    *beyond |= ratio > 1.0;
    const struct span row = find(plane->sequences, plane->row_count, sequences, beyond);
    const struct span column = find(plane->context, plane->column_count, context, beyond);
    const double *low = plane->ns[row.low];
    const double *high = plane->ns[row.high];
    return ratio * mix(mix(low[column.low], low[column.high], column.weight),
                       mix(high[column.low], high[column.high], column.weight), row.weight);
}
