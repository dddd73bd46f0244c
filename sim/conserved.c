#include "metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define LITTLE_TOLERANCE 1e-9 /* of the integral: sums of doubles, in another order */

struct sums {
    double stays_ns;
    uint64_t computed_min; /* prompt tokens */
    uint64_t computed_max;
    uint64_t output;
    uint64_t bytes;
    bool whole; /* every request is done at its first attempt, or was refused */
};

/* Moments in order, none after one that was not reached. Returns the first that is not, or none. */
static uint32_t disorder(const struct sim_record *record)
{
    for (uint32_t i = 1; i < SIM_MOMENTS; i++) {
        const hlg_time before = record->at[i - 1];
        if (i == SIM_FINISHED && record->outcome != SIM_DONE) {
            break; /* failed and refused requests leave from any state */
        }
        if (record->at[i] != HLG_TIME_NEVER &&
            (before == HLG_TIME_NEVER || record->at[i] < before)) {
            return i;
        }
    }
    return record->outcome == SIM_DONE && record->at[SIM_FINISHED] == HLG_TIME_NEVER ? SIM_FINISHED
                                                                                     : SIM_MOMENTS;
}

static void add(struct sums *sums, const struct sim_record *record, hlg_time end)
{
    const hlg_time left = hlg_min_time(record->at[SIM_FINISHED], end);

    if (record->at[SIM_ARRIVED] == HLG_TIME_NEVER || record->at[SIM_ARRIVED] > left) {
        return;
    }
    sums->stays_ns += (double)(left - record->at[SIM_ARRIVED]);
    sums->bytes += record->bytes;
    if (record->outcome == SIM_DONE) {
        const uint32_t computed = record->prompt_tokens - record->cached_tokens;
        sums->computed_min += computed - (computed != 0); /* the last may be decoded first */
        sums->computed_max += computed;
        sums->output += record->output_tokens;
    }
    sums->whole &= (record->outcome == SIM_DONE || record->outcome == SIM_REFUSED) &&
                   record->preemptions == 0 && record->retries == 0;
}

static const char *compare_totals(const struct sim_run *run, const struct sums *sums, char *text,
                                  size_t capacity)
{
    uint64_t computed = 0;
    uint64_t output = 0;

    for (uint32_t i = 0; i < run->node_count; i++) {
        computed += i < run->prefill_nodes ? run->nodes[i].tokens_in : 0;
        output += run->nodes[i].tokens_out;
    }
    const double gap = fabs(run->sequence_ns - sums->stays_ns);
    if (gap > LITTLE_TOLERANCE * sums->stays_ns + 1000) {
        (void)snprintf(text, capacity,
                       "Little's law does not hold: %.0f ns integrated, %.0f ns of stays",
                       run->sequence_ns, sums->stays_ns);
    } else if (output < sums->output || (sums->whole && output != sums->output)) {
        (void)snprintf(text, capacity,
                       "output tokens: nodes made %" PRIu64 ", requests got %" PRIu64, output,
                       sums->output);
    } else if (computed < sums->computed_min || (sums->whole && computed > sums->computed_max)) {
        (void)snprintf(text, capacity,
                       "prompt tokens: nodes computed %" PRIu64 ", requests need %" PRIu64
                       " to %" PRIu64,
                       computed, sums->computed_min, sums->computed_max);
    } else if (run->bytes_posted < run->bytes_landed || run->bytes_landed < run->bytes_planned ||
               (sums->whole && (run->bytes_posted != run->bytes_landed ||
                                run->bytes_landed != run->bytes_planned))) {
        (void)snprintf(text, capacity,
                       "bytes: %" PRIu64 " posted, %" PRIu64 " landed, %" PRIu64 " planned",
                       run->bytes_posted, run->bytes_landed, run->bytes_planned);
    } else if (sums->bytes > run->bytes_landed ||
               (sums->whole && sums->bytes != run->bytes_landed)) {
        (void)snprintf(text, capacity,
                       "bytes: requests count %" PRIu64 ", nodes saw %" PRIu64 " land", sums->bytes,
                       run->bytes_landed);
    } else {
        return NULL;
    }
    return text;
}

const char *sim_metrics_conserved(const struct sim_workload *workload, const struct sim_run *run,
                                  char *text, size_t capacity)
{
    struct sums sums = {.whole = true};

    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        const uint32_t moment = disorder(record);
        if (moment != SIM_MOMENTS) {
            (void)snprintf(text, capacity,
                           "request %" PRIu32 ": moment %s is missing or before the one in front",
                           record->request, sim_moment_name(moment));
            return text;
        }
        if (record->request < workload->count &&
            workload->requests[record->request].prompt_tokens != record->prompt_tokens) {
            (void)snprintf(text, capacity,
                           "request %" PRIu32 " has %" PRIu32
                           " prompt tokens in the workload and %" PRIu32 " in its record",
                           record->request, workload->requests[record->request].prompt_tokens,
                           record->prompt_tokens);
            return text;
        }
        if (record->cached_tokens > record->prompt_tokens) {
            (void)snprintf(text, capacity, "request %" PRIu32 ": more tokens cached than prompted",
                           record->request);
            return text;
        }
        add(&sums, record, run->end_ns);
    }
    return compare_totals(run, &sums, text, capacity);
}
