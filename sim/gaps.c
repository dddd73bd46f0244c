#include "gaps.h"

/* 2^(k/8) */
static const double eighths[8] = {
    1.0,
    1.0905077326652577,
    1.189207115002721,
    1.2968395546510096,
    1.4142135623730951,
    1.5422108254079407,
    1.681792830507429,
    1.8340080864093424,
};

double sim_gap_bucket_ns(uint32_t bucket)
{
    HLG_ASSERT(bucket <= SIM_GAP_BUCKETS);
    return 1000.0 * (double)(1ull << (bucket / 8)) * eighths[bucket % 8];
}

uint32_t sim_gap_bucket(hlg_time gap_ns)
{
    uint32_t low = 0;
    uint32_t limit = SIM_GAP_BUCKETS;

    while (limit - low > 1) { /* edge of low <= gap (or low 0) < edge of limit (or the last) */
        uint32_t middle = (low + limit) / 2;

        if ((double)gap_ns >= sim_gap_bucket_ns(middle)) {
            low = middle;
        } else {
            limit = middle;
        }
    }
    return low;
}

void sim_gaps_add(struct sim_gaps *gaps, hlg_time gap_ns, uint64_t count)
{
    gaps->count[sim_gap_bucket(gap_ns)] += count;
    gaps->sum_ns += (double)gap_ns * (double)count;
}

void sim_gaps_merge(struct sim_gaps *gaps, const struct sim_gaps *other)
{
    for (uint32_t i = 0; i < SIM_GAP_BUCKETS; i++) {
        gaps->count[i] += other->count[i];
    }
    gaps->bursts += other->bursts;
    gaps->sum_ns += other->sum_ns;
}
