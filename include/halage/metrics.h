/*
 * What is measured as it happens, in fixed memory: histograms with a bucket for each power of two, and
 * the time in which anything was under way. Pure; names and text are messenger.h's.
 */
#ifndef HALAGE_METRICS_H
#define HALAGE_METRICS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_HISTOGRAM_BUCKETS 28u

/* The first bucket's bound is 2 to this power. */
#define HLG_HISTOGRAM_TIME  10u /* of nanoseconds: 1.024 us, the last one's 137 s */
#define HLG_HISTOGRAM_BYTES 6u  /* of bytes: 64 B, the last one's 8 GiB */
#define HLG_HISTOGRAM_RATE  16u /* of bytes a second: 64 KiB/s, the last one's 8 TiB/s */

/* Buckets are not cumulative. A value beyond the last bound is in `count` and `sum` alone. */
struct hlg_histogram {
    uint64_t count;
    uint64_t sum; /* saturates */
    uint64_t buckets[HLG_HISTOGRAM_BUCKETS];
};

/* Add a value; `first` must be the same for all of a histogram. O(1). */
static inline void hlg_histogram_add(struct hlg_histogram *h, uint32_t first, uint64_t value)
{
    const uint32_t bits = value <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(value - 1);
    const uint32_t bucket = bits <= first ? 0 : bits - first;

    h->count++;
    h->sum = value > UINT64_MAX - h->sum ? UINT64_MAX : h->sum + value;
    if (bucket < HLG_HISTOGRAM_BUCKETS) {
        h->buckets[bucket]++;
    }
}

/* The union of intervals that overlap: time in which at least one was under way. */
struct hlg_busy {
    uint64_t depth; /* under way now */
    hlg_time since; /* when depth was 0 last */
    hlg_time total; /* of what is over */
};

/* Something begins, or ends: as often the one as the other. O(1). */
static inline void hlg_busy_begin(struct hlg_busy *b, hlg_time now)
{
    b->since = b->depth == 0 ? now : b->since;
    b->depth++;
}
static inline void hlg_busy_end(struct hlg_busy *b, hlg_time now)
{
    HLG_ASSERT(b->depth > 0);
    HLG_ASSERT(now >= b->since);
    b->depth--;
    b->total += b->depth == 0 ? now - b->since : 0;
}

/* Time under way up to now. */
static inline hlg_time hlg_busy_total(const struct hlg_busy *b, hlg_time now)
{
    return b->total + (b->depth > 0 ? now - b->since : 0);
}

#ifdef __cplusplus
}
#endif

#endif
