/*
 * Gaps between the tokens of a request, as a histogram over many requests.
 */
#ifndef HALAGE_SIM_GAPS_H
#define HALAGE_SIM_GAPS_H

#include <halage/base.h>

/* Bucket i counts gaps of [2^(i/8), 2^((i+1)/8)) microseconds, the first and the last one also what lies
 * beyond; tokens that come with another one (MTP) have gap 0 and are counted in `bursts`. */
#define SIM_GAP_BUCKETS 256u
struct sim_gaps {
    uint64_t count[SIM_GAP_BUCKETS];
    uint64_t bursts;
    double sum_ns;
};

/* Count `count` gaps of `gap_ns`. */
void sim_gaps_add(struct sim_gaps *gaps, hlg_time gap_ns, uint64_t count);

/* Add what `other` has counted. */
void sim_gaps_merge(struct sim_gaps *gaps, const struct sim_gaps *other);

/* The bucket that counts a gap. */
uint32_t sim_gap_bucket(hlg_time gap_ns);

/* Lower edge of a bucket, in nanoseconds; `bucket` <= SIM_GAP_BUCKETS. */
double sim_gap_bucket_ns(uint32_t bucket);

#endif
