/*
 * The requests that a simulation serves, in order of arrival: drawn from distributions here, read
 * from traces in workload_trace.h.
 */
#ifndef HALAGE_SIM_WORKLOAD_H
#define HALAGE_SIM_WORKLOAD_H

#include <halage/base.h>

#define SIM_REQUESTS_MAX 4000000u
#define SIM_BLOCKS_MAX   (1ull << 28)
#define SIM_CDF_MAX      4096u
#define SIM_DAYS_MAX     3660u /* no arrival is later: more is a slip of the unit */

struct sim_workload_request {
    /*
     * Nanoseconds from the start, never before the request in front. With users != 0 instead the
     * pause between the end of the user's last request and this one's arrival.
     */
    hlg_time arrival_ns;
    uint32_t prompt_tokens; /* 1..HLG_TOKENS_MAX */
    uint32_t output_tokens; /* 1..HLG_TOKENS_MAX */
    uint64_t block_begin;   /* index of its first prefix block */
    uint32_t block_count;   /* 0: nothing is known of its prefix */
};

struct sim_workload {
    struct sim_workload_request *requests; /* [count] */
    uint32_t count;
    uint32_t users;         /* closed loop: requests [0, users) start at 0; 0: open loop */
    uint32_t block_tokens;  /* tokens of a prefix block, 0 without */
    uint32_t skipped_count; /* rows that a reader left out, as its contract says */
    uint64_t *blocks;       /* [block_count] ids: equal id, equal tokens up to the block's end */
    uint64_t block_count;
    uint32_t capacity; /* for workload*.c alone, as is the next */
    uint64_t block_capacity;
};

enum sim_arrivals_kind {
    SIM_ARRIVALS_POISSON, /* exponential gaps of mean 1 / rate_rps */
    SIM_ARRIVALS_GAMMA,   /* gamma gaps of mean 1 / rate_rps and coefficient of variation `cv` */
    SIM_ARRIVALS_FIXED,   /* one every 1 / rate_rps, the first at 0 */
    SIM_ARRIVALS_BURSTS,  /* burst_requests at once, a burst every burst_requests / rate_rps */
    SIM_ARRIVALS_CLOSED,  /* `users` users, who wait pause_ns after each answer */
};

struct sim_arrivals {
    enum sim_arrivals_kind kind;
    double rate_rps;         /* requests per second, 1e-6..1e9; not read when closed */
    double cv;               /* 0.001..100 */
    uint32_t burst_requests; /* 1..SIM_REQUESTS_MAX */
    uint32_t users;          /* 1..SIM_REQUESTS_MAX */
    hlg_time pause_ns;
};

enum sim_lengths_kind {
    SIM_LENGTHS_FIXED,     /* tokens_min */
    SIM_LENGTHS_UNIFORM,   /* every length of [tokens_min, tokens_max] alike */
    SIM_LENGTHS_LOGNORMAL, /* of mean `mean` and coefficient of variation `cv`, rounded */
    SIM_LENGTHS_EMPIRICAL, /* linear between the points of `cdf`, rounded up */
};

/* Share of all lengths that are at most `tokens`. */
struct sim_cdf_point {
    uint32_t tokens;
    double share;
};

struct sim_cdf {
    struct sim_cdf_point points[SIM_CDF_MAX]; /* tokens rise, shares never fall, the last is 1 */
    uint32_t count;
};

struct sim_lengths {
    enum sim_lengths_kind kind;
    uint32_t tokens_min; /* 1..tokens_max; lengths outside are moved to the nearer end */
    uint32_t tokens_max; /* <= HLG_TOKENS_MAX */
    double mean;         /* before they are moved */
    double cv;           /* 0.001..100 */
    const struct sim_cdf *cdf;
};

struct sim_workload_config {
    struct sim_arrivals arrivals;
    struct sim_lengths prompt;
    struct sim_lengths output;
    uint32_t count; /* 1..SIM_REQUESTS_MAX */
    uint64_t seed;  /* arrivals, prompts and outputs each have a stream of their own */
};

/*
 * Draw requests. Equal config, equal bytes.
 *
 * text  [capacity] on -HLG_EINVAL one sentence: key of the config, value and remedy
 *
 * Returns 0, -HLG_EINVAL or -HLG_ENOMEM. Release with sim_workload_fini(). O(count).
 */
int sim_workload_draw(struct sim_workload *workload, const struct sim_workload_config *config,
                      char *text, size_t capacity);

void sim_workload_fini(struct sim_workload *workload);

/* Length at share `u` of (0, 1), as sim_workload_draw() takes it. The config is one that it takes. */
uint32_t sim_lengths_quantile(const struct sim_lengths *lengths, double u);

/* Check a distribution function. Returns NULL, or what is wrong with point *index. */
const char *sim_cdf_check(const struct sim_cdf *cdf, uint32_t *index);

/* Whole pages of a prompt whose prefix is known: 0 without prefix blocks. */
uint32_t sim_workload_page_count(const struct sim_workload *workload, uint32_t request,
                                 uint32_t page_tokens);

/*
 * Name of the prompt's tokens up to the end of a page: two pages of equal name hold equal KV.
 *
 * page_index  0 <= page_index < sim_workload_page_count(), of pages of any one size
 *
 * A block's id stands for everything up to its end, so a page is named by the block that its last
 * token lies in, and where in it.
 */
uint64_t sim_workload_page_hash(const struct sim_workload *workload, uint32_t request,
                                uint32_t page_tokens, uint32_t page_index);

/* Digest of all requests and blocks, for tests and reports; nothing else of the struct counts. */
uint64_t sim_workload_digest(const struct sim_workload *workload);

/*
 * Append one request with its blocks. For readers.
 *
 * Returns 0, -HLG_ELIMIT at SIM_REQUESTS_MAX or SIM_BLOCKS_MAX, or -HLG_ENOMEM.
 */
int sim_workload_append(struct sim_workload *workload, const struct sim_workload_request *request,
                        const uint64_t *blocks);

#endif
