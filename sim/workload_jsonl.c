#include "workload_jsonl.h"

#include <driver/rng.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOONCAKE_BLOCK_TOKENS 512u
#define BAILIAN_BLOCK_TOKENS  16u
#define SECONDS_MAX           (SIM_DAYS_MAX * 86400u)

/* What the two formats differ in, and room for a row's blocks. */
struct jsonl {
    uint32_t block_tokens;
    uint64_t unit_ns; /* of a timestamp */
    bool needs_last;  /* the last block has an id even when it is not full */
    bool is_chained;  /* an id already stands for all the tokens in front of the block too */
    uint64_t *blocks;
    uint64_t block_capacity;
};

/* The object's member, or NULL and a sentence. */
static const json_t *member(const struct sim_table *table, const json_t *row, const char *key)
{
    const json_t *const value = json_object_get(row, key);
    if (value == NULL) {
        (void)sim_table_refuse(table, "no key '%s': write it", key);
    }
    return value;
}

static int read_tokens(const struct sim_table *table, const json_t *row, const char *key,
                       uint32_t *tokens)
{
    const json_t *const value = member(table, row, key);
    if (value == NULL) {
        return -HLG_EINVAL;
    }
    const json_int_t number = json_integer_value(value); /* 0 when it is none */
    if (number < 1 || number > HLG_TOKENS_MAX) {
        return sim_table_refuse(table, "%s: %g: write a whole number, 1 to %u", key,
                                json_number_value(value), HLG_TOKENS_MAX);
    }
    *tokens = (uint32_t)number;
    return 0;
}

static int read_time(const struct sim_table *table, const struct jsonl *jsonl, const json_t *row,
                     hlg_time *time_ns)
{
    const json_t *const value = member(table, row, "timestamp");
    if (value == NULL) {
        return -HLG_EINVAL;
    }
    const double unit_ns = (double)jsonl->unit_ns;
    const double max = (double)SECONDS_MAX * (double)HLG_NS_PER_S / unit_ns;
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number <= max)) {
        return sim_table_refuse(table, "timestamp: %g: write a number, 0 to %.0f", number, max);
    }
    /* Whole numbers stay exact past 2^53. */
    *time_ns = json_is_integer(value) ? (uint64_t)json_integer_value(value) * jsonl->unit_ns
                                      : (uint64_t)(number * unit_ns + 0.5);
    return 0;
}

static int reserve_blocks(struct jsonl *jsonl, uint64_t count)
{
    if (count <= jsonl->block_capacity) {
        return 0;
    }
    void *const grown = realloc(jsonl->blocks, count * sizeof *jsonl->blocks);
    if (grown == NULL) {
        return -HLG_ENOMEM;
    }
    jsonl->blocks = grown;
    jsonl->block_capacity = count;
    return 0;
}

/* Bailian does not say whether its ids depend on the blocks in front: make them. */
static uint64_t chain(uint64_t previous, uint64_t id)
{
    struct hlg_rng rng = hlg_rng_seed(previous);
    rng = hlg_rng_seed(hlg_rng_next(&rng) ^ id);
    return hlg_rng_next(&rng);
}

static int read_blocks(const struct sim_table *table, struct jsonl *jsonl, const json_t *row,
                       struct sim_workload_request *request)
{
    const json_t *const ids = member(table, row, "hash_ids");
    if (ids == NULL) {
        return -HLG_EINVAL;
    }
    const uint64_t count = json_array_size(ids);
    const uint32_t whole = request->prompt_tokens / jsonl->block_tokens; /* flooring: full ones */
    const uint32_t all = hlg_div_ceil(request->prompt_tokens, jsonl->block_tokens);
    if (!json_is_array(ids) || (count != all && (jsonl->needs_last || count != whole))) {
        return sim_table_refuse(table,
                                "hash_ids: %" PRIu64 " for %" PRIu32 " tokens: write %" PRIu32
                                ", one for each %" PRIu32 " tokens",
                                count, request->prompt_tokens, all, jsonl->block_tokens);
    }
    if (reserve_blocks(jsonl, count) != 0) {
        return sim_table_fail(table, -HLG_ENOMEM);
    }
    uint64_t previous = 0;
    for (uint64_t i = 0; i < count; i++) {
        const json_t *const id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            return sim_table_refuse(
                table, "hash_ids: %g at %" PRIu64 ": write whole numbers, 0 to 2^63 - 1",
                json_number_value(id), i);
        }
        const uint64_t value = (uint64_t)json_integer_value(id);
        previous = jsonl->is_chained ? value : chain(previous, value);
        jsonl->blocks[i] = previous;
    }
    request->block_count = hlg_u32(count);
    return 0;
}

static int read_row(struct sim_workload *workload, const struct sim_table *table,
                    struct jsonl *jsonl, const json_t *row, struct sim_trace_clock *clock)
{
    struct sim_workload_request request = {0};
    hlg_time time_ns = 0;
    int status = read_time(table, jsonl, row, &time_ns);
    if (status == 0) {
        status = sim_trace_arrival(table, clock, time_ns, &request.arrival_ns);
    }
    if (status == 0) {
        status = read_tokens(table, row, "input_length", &request.prompt_tokens);
    }
    if (status == 0) {
        status = read_tokens(table, row, "output_length", &request.output_tokens);
    }
    if (status == 0) {
        status = read_blocks(table, jsonl, row, &request);
    }
    if (status == 0) {
        status = sim_table_fail(table, sim_workload_append(workload, &request, jsonl->blocks));
    }
    return status;
}

int sim_jsonl_read(struct sim_workload *workload, struct sim_table *table,
                   enum sim_trace_format format, uint32_t count_max)
{
    struct jsonl jsonl = {MOONCAKE_BLOCK_TOKENS, HLG_NS_PER_MS, true, true, NULL, 0};
    struct sim_trace_clock clock = {0};
    int status = 0;
    HLG_ASSERT(format == SIM_TRACE_MOONCAKE || format == SIM_TRACE_BAILIAN);
    if (format == SIM_TRACE_BAILIAN) {
        jsonl = (struct jsonl){BAILIAN_BLOCK_TOKENS, HLG_NS_PER_S, false, false, NULL, 0};
    }
    workload->block_tokens = jsonl.block_tokens;
    while (status == 0 && workload->count < count_max) {
        json_error_t error;
        status = sim_table_next(table);
        if (status <= 0) {
            break;
        }
        json_t *const row =
            json_loadb(table->line, table->line_bytes, JSON_REJECT_DUPLICATES, &error);
        if (json_is_object(row)) {
            status = read_row(workload, table, &jsonl, row, &clock);
        } else {
            status = sim_table_refuse(table, "%s: write one JSON object a line",
                                      row == NULL ? error.text : "no object");
        }
        json_decref(row);
    }
    free(jsonl.blocks);
    return status;
}

static int refuse_cdf(const char *file, char *text, size_t capacity, uint32_t index,
                      const char *remedy)
{
    (void)snprintf(text, capacity, "%s: point %" PRIu32 ": %s", file, index, remedy);
    return -HLG_EINVAL;
}

static int take_points(struct sim_cdf *cdf, const json_t *points, const char *file, char *text,
                       size_t capacity)
{
    const size_t count = json_array_size(points);
    if (count == 0 || count > SIM_CDF_MAX) {
        (void)snprintf(text, capacity,
                       "%s: %zu points: write an array of 1 to %u pairs [tokens, share]", file,
                       count, SIM_CDF_MAX);
        return -HLG_EINVAL;
    }
    *cdf = (struct sim_cdf){.count = (uint32_t)count};
    for (uint32_t i = 0; i < cdf->count; i++) {
        const json_t *const point = json_array_get(points, i);
        const json_t *const share = json_array_get(point, 1);
        const json_int_t tokens = json_integer_value(json_array_get(point, 0));
        if (json_array_size(point) != 2 || !json_is_number(share) || tokens < 1 ||
            tokens > HLG_TOKENS_MAX) {
            return refuse_cdf(file, text, capacity, i,
                              "write [tokens, share], tokens from 1 to 16777216");
        }
        cdf->points[i] = (struct sim_cdf_point){(uint32_t)tokens, json_number_value(share)};
    }
    uint32_t index = 0;
    const char *const remedy = sim_cdf_check(cdf, &index);
    return remedy == NULL ? 0 : refuse_cdf(file, text, capacity, index, remedy);
}

int sim_cdf_read(struct sim_cdf *cdf, const char *file, char *text, size_t capacity)
{
    json_error_t error;
    struct sim_cdf read;
    json_t *const root = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        (void)snprintf(text, capacity, "%s:%d: %s: write JSON pairs [tokens, share]", file,
                       error.line, error.text);
        return -HLG_EINVAL;
    }
    const json_t *const points = json_is_object(root) ? json_object_get(root, "cdf") : root;
    const int status = take_points(&read, points, file, text, capacity);
    json_decref(root);
    if (status == 0) {
        *cdf = read;
    }
    return status;
}
