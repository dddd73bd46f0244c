#include "workload_table.h"
#include "workload_trace.h"
#include "workload_variate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EXCERPT      60 /* characters of a foreign value in a sentence */
#define ROWS_MAX     1000000u
#define CLIENT_MAX   1000000u
#define SECONDS_MAX  (SIM_DAYS_MAX * 86400u)
#define RATE_MAX     1e6
#define SHAPE_MIN    0.001
#define SHAPE_MAX    10000.0
#define WINDOW_S_MAX 86400u
#define FIRST_SHARE  3 /* column of p0 among those that a row of lengths is read by */

static const char *const rate_names[] = {"client", "window_start_s", "rate_rps", "arrival_family",
                                         "param1"};
static const char *const lengths_names[] = {"client", "window_start_s",
                                            "field",  "p0",
                                            "p1",     "p5",
                                            "p10",    "p20",
                                            "p25",    "p30",
                                            "p40",    "p50",
                                            "p60",    "p70",
                                            "p75",    "p80",
                                            "p90",    "p95",
                                            "p99",    "p100"};
static const double shares[] = {0,   0.01, 0.05, 0.1, 0.2, 0.25, 0.3,  0.4, 0.5,
                                0.6, 0.7,  0.75, 0.8, 0.9, 0.95, 0.99, 1};

enum {
    RATE_COLUMNS = sizeof rate_names / sizeof rate_names[0],
    LENGTHS_COLUMNS = sizeof lengths_names / sizeof lengths_names[0],
    SHARES = sizeof shares / sizeof shares[0],
};
_Static_assert(LENGTHS_COLUMNS == FIRST_SHARE + SHARES, "a name for each share");

/* What one client sends in one window. */
struct rate_row {
    uint32_t client;
    uint32_t begin_s;
    double rate_rps;
    double shape;
    bool is_weibull; /* else gamma */
};

enum field {
    FIELD_PROMPT,
    FIELD_OUTPUT,
    FIELD_OTHER
};

struct lengths_row {
    uint32_t client;
    uint32_t begin_s;
    enum field field;
    double tokens[SHARES];
};

struct servegen {
    struct rate_row *rates; /* [rate_count] */
    uint32_t rate_count;
    struct lengths_row *lengths; /* [lengths_count] */
    uint32_t lengths_count;
};

static int take_u32(const struct sim_table *table, uint32_t field, const char *name, uint32_t max,
                    uint32_t *value)
{
    uint64_t number = 0;
    if (!sim_take_u64(table->fields[field], max, &number)) {
        return sim_table_refuse(table, "%s: '%.*s': write a whole number, 0 to %" PRIu32, name,
                                EXCERPT, table->fields[field], max);
    }
    *value = hlg_u32(number);
    return 0;
}

static int take_number(const struct sim_table *table, uint32_t field, const char *name, double min,
                       double max, double *value)
{
    double number = 0;
    if (!sim_take_double(table->fields[field], &number) || !(number >= min && number <= max)) {
        return sim_table_refuse(table, "%s: '%.*s': write a number, %g to %g", name, EXCERPT,
                                table->fields[field], min, max);
    }
    *value = number;
    return 0;
}

/* Client and window, which both files begin with. */
static int take_key(const struct sim_table *table, const uint32_t *columns, uint32_t *client,
                    uint32_t *begin_s)
{
    const int status = take_u32(table, columns[0], "client", CLIENT_MAX, client);
    return status != 0 ? status
                       : take_u32(table, columns[1], "window_start_s", SECONDS_MAX, begin_s);
}

static int take_rate(const struct sim_table *table, const uint32_t *columns, void *to)
{
    struct rate_row *const row = to;
    const char *const family = table->fields[columns[3]];
    int status = take_key(table, columns, &row->client, &row->begin_s);
    if (status == 0) {
        status = take_number(table, columns[2], "rate_rps", 0, RATE_MAX, &row->rate_rps);
    }
    if (status == 0 && strcmp(family, "Gamma") != 0 && strcmp(family, "Weibull") != 0) {
        status = sim_table_refuse(table, "arrival_family: '%.*s': write Gamma or Weibull", EXCERPT,
                                  family);
    }
    if (status == 0) {
        row->is_weibull = strcmp(family, "Weibull") == 0;
        status = take_number(table, columns[4], "param1", SHAPE_MIN, SHAPE_MAX, &row->shape);
    }
    return status;
}

static int take_lengths(const struct sim_table *table, const uint32_t *columns, void *to)
{
    struct lengths_row *const row = to;
    const char *const field = table->fields[columns[2]];
    int status = take_key(table, columns, &row->client, &row->begin_s);
    row->field = FIELD_OTHER;
    if (strcmp(field, "input_tokens") == 0) {
        row->field = FIELD_PROMPT;
    } else if (strcmp(field, "output_tokens") == 0) {
        row->field = FIELD_OUTPUT;
    }
    for (uint32_t i = 0; i < SHARES && status == 0 && row->field != FIELD_OTHER; i++) {
        const uint32_t column = columns[FIRST_SHARE + i];
        const char *const name = lengths_names[FIRST_SHARE + i];
        status = take_number(table, column, name, 0, HLG_TOKENS_MAX, &row->tokens[i]);
        if (status == 0 && i != 0 && row->tokens[i] < row->tokens[i - 1]) {
            status =
                sim_table_refuse(table, "%s: '%.*s': write at least what %s says", name, EXCERPT,
                                 table->fields[column], lengths_names[FIRST_SHARE + i - 1]);
        }
    }
    return status;
}

/* How to read one of the two files. */
struct reader {
    const char *const *names;
    uint32_t column_count;
    size_t row_bytes;
    int (*take)(const struct sim_table *table, const uint32_t *columns, void *to);
};

/* All rows of a file, in *rows, to be freed by the caller even after a failure. */
static int read_rows(struct sim_table *table, const struct reader *reader, void **rows,
                     uint32_t *count)
{
    uint32_t columns[LENGTHS_COLUMNS];
    uint32_t capacity = 0;
    int status = sim_table_heading(table, reader->names, reader->column_count, columns);
    const uint32_t field_count = table->field_count;
    while (status == 0) {
        status = sim_table_next_row(table);
        if (status <= 0) {
            break;
        }
        if (table->field_count != field_count) {
            return sim_table_refuse(table,
                                    "%" PRIu32 " columns: write %" PRIu32 ", as the heading has",
                                    table->field_count, field_count);
        }
        if (*count == ROWS_MAX) {
            return sim_table_refuse(table, "more than %u rows: cut the file", ROWS_MAX);
        }
        if (*count == capacity) {
            capacity = hlg_max_u32(256, 2 * capacity);
            void *const grown = realloc(*rows, capacity * reader->row_bytes);
            if (grown == NULL) {
                return sim_table_fail(table, -HLG_ENOMEM);
            }
            *rows = grown;
        }
        status = reader->take(table, columns, (char *)*rows + *count * reader->row_bytes);
        *count += status == 0;
    }
    if (status == 0 && *count == 0) {
        return sim_table_refuse(table, "no rows: write at least one");
    }
    return status;
}

static int read_file(const char *file, const struct reader *reader, void **rows, uint32_t *count,
                     char *text, size_t capacity)
{
    struct sim_table table;
    int status = sim_table_open(&table, file, '\t', text, capacity);
    if (status == 0) {
        status = read_rows(&table, reader, rows, count);
    }
    sim_table_close(&table);
    return status;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* Index of the first row of a client or of those behind it. Rows are in order of clients. */
static uint32_t first_lengths(const struct servegen *servegen, uint32_t client)
{
    uint32_t begin = 0;
    uint32_t limit = servegen->lengths_count;
    while (begin < limit) {
        const uint32_t middle = begin + (limit - begin) / 2; /* flooring: stays below limit */
        if (servegen->lengths[middle].client < client) {
            begin = middle + 1;
        } else {
            limit = middle;
        }
    }
    return begin;
}

/* The client's row nearest to a window, the earlier of two; NULL if it has none. */
static const struct lengths_row *find_lengths(const struct servegen *servegen, uint32_t client,
                                              uint32_t begin_s, enum field field)
{
    const struct lengths_row *best = NULL;
    uint32_t best_s = UINT32_MAX;
    for (uint32_t i = first_lengths(servegen, client); i < servegen->lengths_count; i++) {
        const struct lengths_row *const row = &servegen->lengths[i];
        if (row->client != client) {
            break;
        }
        if (row->field != field) {
            continue;
        }
        const uint32_t away_s = distance(row->begin_s, begin_s);
        if (best == NULL || away_s < best_s || (away_s == best_s && row->begin_s < best->begin_s)) {
            best = row;
            best_s = away_s;
        }
    }
    return best;
}

static uint32_t draw_tokens(struct hlg_rng *rng, const struct lengths_row *row)
{
    const double u = sim_draw_uniform(rng);
    uint32_t i = 1;
    while (i < SHARES - 1 && shares[i] < u) {
        i++;
    }
    const double part = (u - shares[i - 1]) / (shares[i] - shares[i - 1]);
    const double value = row->tokens[i - 1] + part * (row->tokens[i] - row->tokens[i - 1]) + 0.5;
    return value < 1 ? 1 : hlg_min_u32(HLG_TOKENS_MAX, (uint32_t)value);
}

static double draw_gap(struct hlg_rng *rng, const struct rate_row *row)
{
    return row->is_weibull ? sim_draw_weibull(rng, row->shape) : sim_draw_gamma(rng, row->shape);
}

/* One window of one client. */
static int draw_window(struct sim_workload *workload, const struct servegen *servegen,
                       const struct sim_servegen_config *config, const struct rate_row *row)
{
    struct hlg_rng seeds = hlg_rng_seed(config->seed);
    seeds = hlg_rng_seed(hlg_rng_next(&seeds) ^ ((uint64_t)row->client << 32 | row->begin_s));
    struct hlg_rng lengths = hlg_rng_seed(hlg_rng_next(&seeds));
    struct hlg_rng gaps = hlg_rng_seed(hlg_rng_next(&seeds));
    const struct lengths_row *const prompt =
        find_lengths(servegen, row->client, row->begin_s, FIELD_PROMPT);
    const struct lengths_row *const output =
        find_lengths(servegen, row->client, row->begin_s, FIELD_OUTPUT);
    const double expected = row->rate_rps * config->window_s + sim_draw_uniform(&seeds);
    if (expected > SIM_REQUESTS_MAX) {
        return -HLG_ELIMIT;
    }
    const uint32_t count = (uint32_t)expected; /* flooring after a uniform: right on average */
    HLG_ASSERT(prompt != NULL && output != NULL);

    struct hlg_rng ahead = gaps; /* the same gaps are drawn twice: once for their sum */
    double sum = 0;
    for (uint32_t i = 0; i <= count; i++) {
        sum += draw_gap(&ahead, row);
    }
    /* All gaps 0 (a shape far below 1): everything at the window's begin. */
    const double scale = sum > 0 ? (double)config->window_s * HLG_NS_PER_S / sum : 0;
    const uint64_t window_ns = config->window_s * HLG_NS_PER_S;
    const uint64_t begin_ns = (row->begin_s - config->begin_s) * HLG_NS_PER_S;
    double now = 0;
    for (uint32_t i = 0; i < count; i++) {
        now += draw_gap(&gaps, row);
        /* Where the last gap is next to 0, the sum would reach the next window. */
        const uint64_t offset_ns = hlg_min_time((uint64_t)(now * scale), window_ns - 1);
        const struct sim_workload_request request = {
            .arrival_ns = begin_ns + offset_ns,
            .prompt_tokens = draw_tokens(&lengths, prompt),
            .output_tokens = draw_tokens(&lengths, output),
        };
        const int status = sim_workload_append(workload, &request, NULL);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

struct arrival {
    struct sim_workload_request request;
    uint32_t order; /* in which it was drawn: makes the sort total */
};

static int compare_arrivals(const void *a, const void *b)
{
    const struct arrival *const x = a;
    const struct arrival *const y = b;
    if (x->request.arrival_ns != y->request.arrival_ns) {
        return x->request.arrival_ns < y->request.arrival_ns ? -1 : 1;
    }
    return x->order < y->order ? -1 : 1;
}

static int sort_requests(struct sim_workload *workload)
{
    struct arrival *const arrivals = calloc(workload->count, sizeof *arrivals);
    if (arrivals == NULL) {
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < workload->count; i++) {
        arrivals[i] = (struct arrival){workload->requests[i], i};
    }
    qsort(arrivals, workload->count, sizeof *arrivals, compare_arrivals);
    for (uint32_t i = 0; i < workload->count; i++) {
        workload->requests[i] = arrivals[i].request;
    }
    free(arrivals);
    return 0;
}

/* A window that stands twice would send twice. Rows have no gaps: the heading is line 1. */
static int check_order(const struct servegen *servegen, const struct sim_servegen_config *config,
                       char *text, size_t capacity)
{
    for (uint32_t i = 1; i < servegen->lengths_count; i++) {
        const uint32_t client = servegen->lengths[i].client;
        if (client < servegen->lengths[i - 1].client) {
            (void)snprintf(text, capacity,
                           "%s:%" PRIu32 ": client %" PRIu32
                           " is behind a higher one: sort the rows by client",
                           config->lengths_file, i + 2, client);
            return -HLG_EINVAL;
        }
    }
    for (uint32_t i = 1; i < servegen->rate_count; i++) {
        const struct rate_row *const row = &servegen->rates[i];
        const struct rate_row *const last = &servegen->rates[i - 1];
        if (row->client < last->client ||
            (row->client == last->client && row->begin_s <= last->begin_s)) {
            (void)snprintf(text, capacity,
                           "%s:%" PRIu32 ": client %" PRIu32 ", window %" PRIu32
                           " is not behind the row in front: sort the rows and write each once",
                           config->rates_file, i + 2, row->client, row->begin_s);
            return -HLG_EINVAL;
        }
    }
    return 0;
}

static int draw_windows(struct sim_workload *workload, const struct servegen *servegen,
                        const struct sim_servegen_config *config, char *text, size_t capacity)
{
    int status = check_order(servegen, config, text, capacity);
    if (status != 0) {
        return status;
    }
    HLG_ASSERT(servegen->rates != NULL && servegen->lengths != NULL);
    for (uint32_t i = 0; i < servegen->rate_count && status == 0; i++) {
        const struct rate_row *const row = &servegen->rates[i];
        if (row->begin_s < config->begin_s || row->begin_s >= config->limit_s) {
            continue;
        }
        if (find_lengths(servegen, row->client, row->begin_s, FIELD_PROMPT) == NULL ||
            find_lengths(servegen, row->client, row->begin_s, FIELD_OUTPUT) == NULL) {
            (void)snprintf(text, capacity,
                           "%s: client %" PRIu32 ": no lengths: write a row of input_tokens and "
                           "one of output_tokens",
                           config->lengths_file, row->client);
            return -HLG_EINVAL;
        }
        status = draw_window(workload, servegen, config, row);
    }
    if (status == 0 && workload->count == 0) {
        (void)snprintf(text, capacity,
                       "%s: no request in %" PRIu32 "..%" PRIu32 " s: take a longer span",
                       config->rates_file, config->begin_s, config->limit_s);
        return -HLG_EINVAL;
    }
    if (status == 0) {
        status = sort_requests(workload);
    }
    if (status != 0) {
        (void)snprintf(text, capacity, "%s: more requests than memory or %u: take a shorter span",
                       config->rates_file, SIM_REQUESTS_MAX);
    }
    return status;
}

static int check_config(const struct sim_servegen_config *config, char *text, size_t capacity)
{
    if (config->window_s < 1 || config->window_s > WINDOW_S_MAX) {
        (void)snprintf(text, capacity, "window: %" PRIu32 ": write 1 to %u seconds",
                       config->window_s, WINDOW_S_MAX);
        return -HLG_EINVAL;
    }
    if (config->begin_s >= config->limit_s || config->limit_s > SECONDS_MAX) {
        (void)snprintf(text, capacity,
                       "span: %" PRIu32 "..%" PRIu32 " s: write a begin before the end, both at "
                       "most %u days",
                       config->begin_s, config->limit_s, SIM_DAYS_MAX);
        return -HLG_EINVAL;
    }
    return 0;
}

int sim_servegen_draw(struct sim_workload *workload, const struct sim_servegen_config *config,
                      char *text, size_t capacity)
{
    static const struct reader rates = {rate_names, RATE_COLUMNS, sizeof(struct rate_row),
                                        take_rate};
    static const struct reader lengths = {lengths_names, LENGTHS_COLUMNS,
                                          sizeof(struct lengths_row), take_lengths};
    struct servegen servegen = {0};
    struct sim_workload drawn = {0};
    void *rate_rows = NULL;
    void *lengths_rows = NULL;
    int status = check_config(config, text, capacity);
    if (status == 0) {
        status =
            read_file(config->rates_file, &rates, &rate_rows, &servegen.rate_count, text, capacity);
    }
    if (status == 0) {
        status = read_file(config->lengths_file, &lengths, &lengths_rows, &servegen.lengths_count,
                           text, capacity);
    }
    if (status == 0) {
        servegen.rates = rate_rows;
        servegen.lengths = lengths_rows;
        status = draw_windows(&drawn, &servegen, config, text, capacity);
    }
    free(rate_rows);
    free(lengths_rows);
    if (status != 0) {
        sim_workload_fini(&drawn);
        return status;
    }
    *workload = drawn;
    return 0;
}
