#include "stats.h"

#include <math.h>
#include <stdlib.h>

#define BATCHES_MANY   20u
#define BATCHES_FEW    10u
#define VALUES_MANY    200u
#define VALUES_MIN     20u
#define OPEN_TOLERANCE 1.01 /* a percentile that moves by less is not called open */
#define WIDE_SHARE     0.1
#define NORMAL_975     1.959963984540054
#define NORMAL_990     2.33

/* Two-sided 95 % points, 1 to 30 degrees of freedom: any table of Student's t. */
static const double student[] = {
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
};
#define STUDENT (sizeof student / sizeof student[0])

double sim_student_975(uint32_t degrees)
{
    HLG_ASSERT(degrees >= 1);
    if (degrees <= STUDENT) {
        return student[degrees - 1];
    }
    /* Cornish-Fisher: z + (z^3 + z) / 4n + (5z^5 + 16z^3 + 3z) / 96n^2, for z = 1.95996. */
    return NORMAL_975 + (2.3723 + 2.8225 / degrees) / degrees;
}

void sim_wilson(uint64_t hits, uint64_t trials, double *low, double *high)
{
    HLG_ASSERT(hits <= trials);
    if (trials == 0) {
        *low = 0;
        *high = 1;
        return;
    }
    const double n = (double)trials;
    const double share = (double)hits / n;
    const double z2 = NORMAL_975 * NORMAL_975;
    const double middle = share + z2 / (2 * n);
    const double half = NORMAL_975 * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    *low = hits == 0 ? 0 : (middle - half) / (1 + z2 / n);
    *high = hits == trials ? 1 : (middle + half) / (1 + z2 / n);
}

/* Means of `batches` runs of the counted values, in order. */
static void batch_means(const struct sim_value *values, uint64_t count, uint64_t counted,
                        uint32_t batches, double *means)
{
    uint64_t index = 0; /* of the counted value */
    uint64_t begin = 0;
    uint32_t batch = 0;
    double sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (!values[i].counted) {
            continue;
        }
        sum += values[i].value;
        index++;
        const uint64_t limit = (batch + 1) * counted / batches; /* floors: runs differ by one */
        if (index == limit) {
            means[batch++] = sum / (double)(limit - begin);
            begin = limit;
            sum = 0;
        }
    }
    HLG_ASSERT(batch == batches && index == counted);
}

static void interval(const struct sim_value *values, uint64_t count, struct sim_summary *summary)
{
    double means[BATCHES_MANY];
    const uint64_t counted = summary->mean_count;
    const uint32_t batches = counted >= VALUES_MANY  ? BATCHES_MANY
                             : counted >= VALUES_MIN ? BATCHES_FEW
                                                     : 0;
    summary->low = summary->high = summary->mean;
    summary->batches = batches;
    if (batches == 0) {
        return;
    }
    batch_means(values, count, counted, batches, means);
    double grand = 0;
    for (uint32_t i = 0; i < batches; i++) {
        grand += means[i];
    }
    grand /= batches;
    double squares = 0;
    double products = 0;
    for (uint32_t i = 0; i < batches; i++) {
        squares += (means[i] - grand) * (means[i] - grand);
        products += i == 0 ? 0 : (means[i] - grand) * (means[i - 1] - grand);
    }
    const double half =
        sim_student_975(batches - 1) * sqrt(squares / (batches - 1) / (double)batches);
    summary->low = summary->mean - half;
    summary->high = summary->mean + half;
    /* Rounding alone must not be called a trend. */
    const bool moves = half > 1e-9 * fabs(summary->mean);
    summary->correlated = moves && products / squares > NORMAL_990 / sqrt(batches);
}

static int compare_values(const void *a, const void *b)
{
    const struct sim_value *left = a;
    const struct sim_value *right = b;

    if (left->value != right->value) {
        return left->value < right->value ? -1 : 1;
    }
    return (int)left->open - (int)right->open;
}

/* ceil(percent * count / 100), without overflow. */
static uint64_t rank_of(uint64_t count, uint32_t percent)
{
    return (count / 100) * percent + (count % 100 * percent + 99) / 100;
}

/* The value at share `percent` of sorted values. */
static double percentile(const struct sim_value *sorted, uint64_t count, uint64_t open_count,
                         uint32_t percent, bool *open)
{
    const uint64_t rank = rank_of(count, percent);
    const uint64_t closed = count - open_count;
    const double lower = sorted[rank - 1].value;

    *open = rank > closed;
    if (*open || open_count == 0) {
        return lower;
    }
    /* With every open value endless, it is the rank-th of the others. */
    uint64_t seen = 0;
    for (uint64_t i = 0; i < count; i++) {
        seen += !sorted[i].open;
        if (seen == rank) {
            *open = sorted[i].value > lower * OPEN_TOLERANCE;
            return lower;
        }
    }
    hlg_unreachable();
}

/* Put the rank-th smallest of [begin, limit), counted over all values, in its place: smaller ones before
 * it, greater ones after it. O(n) in the mean. */
static double select_rank(struct sim_value *values, uint64_t begin, uint64_t limit, uint64_t rank)
{
    const uint64_t place = rank - 1;

    HLG_ASSERT(begin <= place && place < limit);
    for (;;) {
        const double pivot = values[begin + (limit - begin) / 2].value;
        uint64_t less = begin;
        uint64_t more = limit;
        for (uint64_t i = begin; i < more;) {
            const struct sim_value value = values[i];
            if (value.value < pivot) {
                values[i++] = values[less];
                values[less++] = value;
            } else if (value.value > pivot) {
                values[i] = values[--more];
                values[more] = value;
            } else {
                i++;
            }
        }
        if (place >= less && place < more) {
            return pivot;
        }
        begin = place < less ? begin : more;
        limit = place < less ? less : limit;
    }
}

/* Percentiles of values that are all known: no need to sort them. */
static void known_percentiles(struct sim_value *values, uint64_t count, struct sim_summary *summary)
{
    static const uint32_t percents[] = {50, 90, 99, 100};
    double *const places[] = {&summary->p50, &summary->p90, &summary->p99, &summary->max};
    uint64_t begin = 0;

    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t rank = rank_of(count, percents[i]);
        *places[i] = select_rank(values, begin, count, rank);
        begin = rank - 1;
    }
}

void sim_summarise(struct sim_value *values, uint64_t count, struct sim_summary *summary)
{
    double sum = 0;

    *summary = (struct sim_summary){.count = count, .wide = true};
    for (uint64_t i = 0; i < count; i++) {
        HLG_ASSERT(!(values[i].open && values[i].counted));
        summary->open_count += values[i].open;
        summary->mean_count += values[i].counted;
        sum += values[i].counted ? values[i].value : 0;
    }
    if (count == 0) {
        return;
    }
    if (summary->mean_count != 0) {
        summary->mean = sum / (double)summary->mean_count;
        interval(values, count, summary);
        summary->wide = summary->batches == 0 || summary->correlated ||
                        summary->high - summary->low > WIDE_SHARE * fabs(summary->mean);
    }
    if (summary->open_count == 0) {
        known_percentiles(values, count, summary);
        return;
    }
    qsort(values, count, sizeof *values, compare_values);
    const uint64_t open = summary->open_count;
    summary->p50 = percentile(values, count, open, 50, &summary->p50_open);
    summary->p90 = percentile(values, count, open, 90, &summary->p90_open);
    summary->p99 = percentile(values, count, open, 99, &summary->p99_open);
    summary->max = percentile(values, count, open, 100, &summary->max_open);
    summary->open =
        summary->p50_open || summary->p90_open || summary->p99_open || summary->max_open;
}
