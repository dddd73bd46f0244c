#include "workload.h"

#include "workload_variate.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MIN     1e-6
#define RATE_MAX     1e9
#define CV_MIN       0.001
#define CV_MAX       100.0
#define TIME_NS_MAX  ((hlg_time)SIM_DAYS_MAX * 86400 * HLG_NS_PER_S)
#define CAPACITY_MIN 1024u

void sim_workload_fini(struct sim_workload *workload)
{
    free(workload->requests);
    free(workload->blocks);
    *workload = (struct sim_workload){0};
}

static int grow_requests(struct sim_workload *workload)
{
    if (workload->count < workload->capacity) {
        return 0;
    }
    if (workload->count == SIM_REQUESTS_MAX) {
        return -HLG_ELIMIT;
    }
    const uint32_t capacity =
        hlg_min_u32(SIM_REQUESTS_MAX, hlg_max_u32(CAPACITY_MIN, 2 * workload->capacity));
    void *const grown = realloc(workload->requests, capacity * sizeof *workload->requests);
    if (grown == NULL) {
        return -HLG_ENOMEM;
    }
    workload->requests = grown;
    workload->capacity = capacity;
    return 0;
}

static int grow_blocks(struct sim_workload *workload, uint32_t count)
{
    const uint64_t needed = workload->block_count + count;
    if (needed <= workload->block_capacity) {
        return 0;
    }
    if (needed > SIM_BLOCKS_MAX) {
        return -HLG_ELIMIT;
    }
    uint64_t capacity = 2 * workload->block_capacity;
    capacity = capacity < needed ? needed : capacity;
    void *const grown = realloc(workload->blocks, capacity * sizeof *workload->blocks);
    if (grown == NULL) {
        return -HLG_ENOMEM;
    }
    workload->blocks = grown;
    workload->block_capacity = capacity;
    return 0;
}

int sim_workload_append(struct sim_workload *workload, const struct sim_workload_request *request,
                        const uint64_t *blocks)
{
    HLG_ASSERT(request->prompt_tokens >= 1 && request->prompt_tokens <= HLG_TOKENS_MAX);
    HLG_ASSERT(request->output_tokens >= 1 && request->output_tokens <= HLG_TOKENS_MAX);
    int status = grow_requests(workload);
    if (status == 0) {
        status = grow_blocks(workload, request->block_count);
    }
    if (status != 0) {
        return status;
    }
    struct sim_workload_request *const added = &workload->requests[workload->count++];
    *added = *request;
    added->block_begin = workload->block_count;
    if (request->block_count != 0) {
        memcpy(workload->blocks + workload->block_count, blocks,
               request->block_count * sizeof *blocks);
        workload->block_count += request->block_count;
    }
    return 0;
}

struct report {
    char *text;
    size_t capacity;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct report *report,
                                                        const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(report->text, report->capacity, format, arguments);
    va_end(arguments);
    return -HLG_EINVAL;
}

/* False for NaN too. */
static bool is_within(double value, double min, double max)
{
    return value >= min && value <= max;
}

static int check_count(const struct report *report, const char *key, uint32_t value)
{
    if (value >= 1 && value <= SIM_REQUESTS_MAX) {
        return 0;
    }
    return refuse(report, "%s: %" PRIu32 ": write a whole number, 1 to %u", key, value,
                  SIM_REQUESTS_MAX);
}

static int check_cv(const struct report *report, const char *key, double cv)
{
    if (is_within(cv, CV_MIN, CV_MAX)) {
        return 0;
    }
    return refuse(report, "%s.cv: %g: write a coefficient of variation, %g to %g", key, cv, CV_MIN,
                  CV_MAX);
}

static int check_arrivals(const struct report *report, const struct sim_arrivals *arrivals)
{
    if (arrivals->kind == SIM_ARRIVALS_CLOSED) {
        if (arrivals->pause_ns > TIME_NS_MAX) {
            return refuse(report, "arrivals.pause: %" PRIu64 " ns: write at most %u days",
                          arrivals->pause_ns, SIM_DAYS_MAX);
        }
        return check_count(report, "arrivals.users", arrivals->users);
    }
    if (!is_within(arrivals->rate_rps, RATE_MIN, RATE_MAX)) {
        return refuse(report, "arrivals.rate: %g: write requests per second, %g to %g",
                      arrivals->rate_rps, RATE_MIN, RATE_MAX);
    }
    if (arrivals->kind == SIM_ARRIVALS_GAMMA) {
        return check_cv(report, "arrivals", arrivals->cv);
    }
    if (arrivals->kind == SIM_ARRIVALS_BURSTS) {
        return check_count(report, "arrivals.burst_requests", arrivals->burst_requests);
    }
    return 0;
}

const char *sim_cdf_check(const struct sim_cdf *cdf, uint32_t *index)
{
    *index = 0;
    if (cdf->count == 0 || cdf->count > SIM_CDF_MAX) {
        return "write 1 to 4096 points";
    }
    for (uint32_t i = 0; i < cdf->count; i++) {
        const struct sim_cdf_point *const point = &cdf->points[i];
        *index = i;
        if (point->tokens < 1 || point->tokens > HLG_TOKENS_MAX) {
            return "write 1 to 16777216 tokens";
        }
        if (!is_within(point->share, 0, 1)) {
            return "write a share from 0 to 1";
        }
        if (i != 0 && (point->tokens <= point[-1].tokens || point->share < point[-1].share)) {
            return "sort the points: tokens rise and shares never fall";
        }
    }
    return cdf->points[cdf->count - 1].share == 1 ? NULL : "end with share 1";
}

static int check_lengths(const struct report *report, const char *key,
                         const struct sim_lengths *lengths)
{
    if (lengths->tokens_min < 1 || lengths->tokens_min > HLG_TOKENS_MAX) {
        return refuse(report, "%s.min: %" PRIu32 ": write 1 to %u tokens", key, lengths->tokens_min,
                      HLG_TOKENS_MAX);
    }
    if (lengths->tokens_max < lengths->tokens_min || lengths->tokens_max > HLG_TOKENS_MAX) {
        return refuse(report, "%s.max: %" PRIu32 ": write %" PRIu32 " to %u tokens", key,
                      lengths->tokens_max, lengths->tokens_min, HLG_TOKENS_MAX);
    }
    if (lengths->kind == SIM_LENGTHS_LOGNORMAL) {
        if (!is_within(lengths->mean, 1, HLG_TOKENS_MAX)) {
            return refuse(report, "%s.mean: %g: write 1 to %u tokens", key, lengths->mean,
                          HLG_TOKENS_MAX);
        }
        return check_cv(report, key, lengths->cv);
    }
    if (lengths->kind == SIM_LENGTHS_EMPIRICAL) {
        uint32_t index = 0;
        HLG_ASSERT(lengths->cdf != NULL);
        const char *const remedy = sim_cdf_check(lengths->cdf, &index);
        if (remedy != NULL) {
            return refuse(report, "%s.cdf: point %" PRIu32 ": %s", key, index, remedy);
        }
    }
    return 0;
}

/* Rounded up: a length of the bucket (tokens before, tokens]. */
static double empirical_quantile(const struct sim_cdf *cdf, double u)
{
    uint32_t i = 0;
    while (i + 1 < cdf->count && cdf->points[i].share < u) {
        i++;
    }
    const double from = i == 0 ? 0 : (double)cdf->points[i - 1].tokens;
    const double share_from = i == 0 ? 0 : cdf->points[i - 1].share;
    const double width = cdf->points[i].share - share_from;
    HLG_ASSERT(width > 0);
    return ceil(from + (cdf->points[i].tokens - from) * (u - share_from) / width);
}

uint32_t sim_lengths_quantile(const struct sim_lengths *lengths, double u)
{
    const double min = lengths->tokens_min;
    const double max = lengths->tokens_max;
    double value = min;
    HLG_ASSERT(u > 0 && u < 1);
    switch (lengths->kind) {
    case SIM_LENGTHS_FIXED:
        break;
    case SIM_LENGTHS_UNIFORM:
        value = floor(min + u * (max - min + 1));
        break;
    case SIM_LENGTHS_LOGNORMAL: {
        const double variance = sim_log(1 + lengths->cv * lengths->cv);
        const double exponent = sqrt(variance) * sim_normal_quantile(u) - variance / 2;
        value = floor(lengths->mean * sim_exp(exponent) + 0.5);
        break;
    }
    case SIM_LENGTHS_EMPIRICAL:
        value = empirical_quantile(lengths->cdf, u);
        break;
    }
    value = value < min ? min : value;
    return (uint32_t)(value > max ? max : value);
}

/* Seconds to the next arrival, in units of the mean gap. */
static double draw_gap(struct hlg_rng *rng, const struct sim_arrivals *arrivals, uint32_t index)
{
    switch (arrivals->kind) {
    case SIM_ARRIVALS_POISSON:
        return sim_draw_exponential(rng);
    case SIM_ARRIVALS_GAMMA: {
        const double shape = 1 / (arrivals->cv * arrivals->cv);
        return sim_draw_gamma(rng, shape) / shape;
    }
    case SIM_ARRIVALS_FIXED:
        return index == 0 ? 0 : 1;
    case SIM_ARRIVALS_BURSTS:
        return index != 0 && index % arrivals->burst_requests == 0 ? arrivals->burst_requests : 0;
    case SIM_ARRIVALS_CLOSED:
        return 0;
    }
    hlg_unreachable();
}

static int draw_requests(struct sim_workload *workload, const struct sim_workload_config *config,
                         const struct report *report)
{
    struct hlg_rng seeds = hlg_rng_seed(config->seed);
    struct hlg_rng gaps = hlg_rng_seed(hlg_rng_next(&seeds));
    struct hlg_rng prompts = hlg_rng_seed(hlg_rng_next(&seeds));
    struct hlg_rng outputs = hlg_rng_seed(hlg_rng_next(&seeds));
    const bool is_closed = config->arrivals.kind == SIM_ARRIVALS_CLOSED;
    const double gap_ns = is_closed ? 0 : HLG_NS_PER_S / config->arrivals.rate_rps;
    double now_ns = 0;
    int status = 0;

    workload->users = is_closed ? config->arrivals.users : 0;
    for (uint32_t i = 0; i < config->count && status == 0; i++) {
        now_ns += draw_gap(&gaps, &config->arrivals, i) * gap_ns;
        if (now_ns > (double)TIME_NS_MAX) {
            return refuse(report,
                          "count: %" PRIu32 ": lasts more than %u days at %g requests per second:"
                          " write fewer requests or a higher rate",
                          config->count, SIM_DAYS_MAX, config->arrivals.rate_rps);
        }
        const hlg_time pause_ns = i < workload->users ? 0 : config->arrivals.pause_ns;
        const struct sim_workload_request request = {
            .arrival_ns = is_closed ? pause_ns : (hlg_time)(now_ns + 0.5),
            .prompt_tokens = sim_lengths_quantile(&config->prompt, sim_draw_uniform(&prompts)),
            .output_tokens = sim_lengths_quantile(&config->output, sim_draw_uniform(&outputs)),
        };
        status = sim_workload_append(workload, &request, NULL);
    }
    return status;
}

int sim_workload_draw(struct sim_workload *workload, const struct sim_workload_config *config,
                      char *text, size_t capacity)
{
    const struct report report = {text, capacity};
    struct sim_workload drawn = {0};
    int status = check_count(&report, "count", config->count);
    if (status == 0) {
        status = check_arrivals(&report, &config->arrivals);
    }
    if (status == 0) {
        status = check_lengths(&report, "prompt", &config->prompt);
    }
    if (status == 0) {
        status = check_lengths(&report, "output", &config->output);
    }
    if (status == 0) {
        status = draw_requests(&drawn, config, &report);
    }
    if (status != 0) {
        sim_workload_fini(&drawn);
        return status;
    }
    *workload = drawn;
    return 0;
}

uint32_t sim_workload_page_count(const struct sim_workload *workload, uint32_t request,
                                 uint32_t page_tokens)
{
    HLG_ASSERT(request < workload->count);
    HLG_ASSERT(page_tokens != 0);
    const struct sim_workload_request *const r = &workload->requests[request];
    const uint64_t named = (uint64_t)r->block_count * workload->block_tokens;
    const uint64_t tokens = named < r->prompt_tokens ? named : r->prompt_tokens;
    return hlg_u32(tokens / page_tokens); /* flooring: a page that is not full is not shared */
}

/* One step of splitmix64's finisher: a bijection, so that unequal inputs stay unequal. */
static uint64_t mix(uint64_t z)
{
    struct hlg_rng rng = hlg_rng_seed(z);
    return hlg_rng_next(&rng);
}

uint64_t sim_workload_page_hash(const struct sim_workload *workload, uint32_t request,
                                uint32_t page_tokens, uint32_t page_index)
{
    HLG_ASSERT(page_index < sim_workload_page_count(workload, request, page_tokens));
    const struct sim_workload_request *const r = &workload->requests[request];
    const uint64_t last = ((uint64_t)page_index + 1) * page_tokens - 1;
    const uint64_t block = last / workload->block_tokens; /* flooring: the block it is in */
    HLG_ASSERT(block < r->block_count);
    return mix(mix(workload->blocks[r->block_begin + block]) + last % workload->block_tokens);
}

uint64_t sim_workload_digest(const struct sim_workload *workload)
{
    uint64_t digest = mix(workload->count);
    for (uint32_t i = 0; i < workload->count; i++) {
        const struct sim_workload_request *const r = &workload->requests[i];
        digest = mix(digest ^ r->arrival_ns);
        digest = mix(digest ^ ((uint64_t)r->prompt_tokens << 32 | r->output_tokens));
        digest = mix(digest ^ r->block_count);
    }
    for (uint64_t i = 0; i < workload->block_count; i++) {
        digest = mix(digest ^ workload->blocks[i]);
    }
    return digest;
}
