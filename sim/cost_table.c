#include "cost_table.h"

#include "workload_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US        1e3
#define MICROSECONDS_MAX 1e9 /* a quarter of an hour */

struct row {
    uint32_t kind;
    uint32_t tokens;
    uint32_t context;
    uint32_t line;
    double ns;
};

struct sim_step_table {
    struct row *rows; /* [count] by kind, tokens, context */
    uint32_t count;
    uint32_t capacity;
    uint32_t begin[SIM_STEP_KINDS + 1]; /* of each kind in rows */
    double least[SIM_STEP_KINDS];
};

enum column {
    KIND,
    TOKENS,
    CONTEXT,
    TIME,
    COLUMNS,
};

static const char *const column_names[COLUMNS] = {"kind", "tokens", "context", "time_us"};

static int row_order(const void *left, const void *right)
{
    const struct row *a = left;
    const struct row *b = right;

    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    if (a->tokens != b->tokens) {
        return a->tokens < b->tokens ? -1 : 1;
    }
    return a->context < b->context ? -1 : a->context > b->context;
}

static int take_row(const struct sim_table *in, const uint32_t *columns, struct row *row)
{
    for (uint32_t i = 0; i < COLUMNS; i++) {
        if (columns[i] >= in->field_count) {
            return sim_table_refuse(in, "%s: missing: write as many columns as the heading has",
                                    column_names[i]);
        }
    }
    const char *kind = in->fields[columns[KIND]];
    if (strcmp(kind, "prefill") != 0 && strcmp(kind, "decode") != 0) {
        return sim_table_refuse(in, "kind: '%.60s': write prefill or decode", kind);
    }
    row->kind = strcmp(kind, "decode") == 0 ? SIM_STEP_DECODE : SIM_STEP_PREFILL;
    row->line = in->number;
    int status = sim_table_tokens(in, columns[TOKENS], "tokens", 1, &row->tokens);
    if (status == 0) {
        status = sim_table_tokens(in, columns[CONTEXT], "context", 0, &row->context);
    }
    if (status != 0) {
        return status;
    }
    double time_us = 0.0;
    const char *time = in->fields[columns[TIME]];
    if (!sim_take_double(time, &time_us) || time_us <= 0.0 || time_us > MICROSECONDS_MAX) {
        return sim_table_refuse(in, "time_us: '%.60s': write microseconds above 0, at most 1e9",
                                time);
    }
    row->ns = time_us * NS_PER_US;
    return 0;
}

static int add_row(struct sim_step_table *table, const struct sim_table *in, struct row row)
{
    if (table->count == SIM_STEP_ROWS_MAX) {
        return sim_table_refuse(in, "more than %u rows: keep fewer points", SIM_STEP_ROWS_MAX);
    }
    if (table->count == table->capacity) {
        const uint32_t capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
        struct row *rows = realloc(table->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return -HLG_ENOMEM;
        }
        table->rows = rows;
        table->capacity = capacity;
    }
    table->rows[table->count++] = row;
    return 0;
}

/* Order the rows, find repeats, and note where each kind begins. */
static int order_rows(struct sim_step_table *table, struct sim_table *in)
{
    if (table->count > 0) {
        qsort(table->rows, table->count, sizeof *table->rows, row_order);
    }
    for (uint32_t i = 1; i < table->count; i++) {
        if (row_order(&table->rows[i - 1], &table->rows[i]) == 0) {
            const uint32_t a = table->rows[i - 1].line;
            const uint32_t b = table->rows[i].line;
            in->number = hlg_max_u32(a, b);
            return sim_table_refuse(
                in, "tokens and context are those of line %" PRIu32 ": keep one row",
                hlg_min_u32(a, b));
        }
    }
    uint32_t at = 0;
    for (uint32_t kind = 0; kind < SIM_STEP_KINDS; kind++) {
        table->begin[kind] = at;
        for (; at < table->count && table->rows[at].kind == kind; at++) {
            const bool is_less =
                at == table->begin[kind] || table->rows[at].ns < table->least[kind];
            table->least[kind] = is_less ? table->rows[at].ns : table->least[kind];
        }
        if (at == table->begin[kind]) {
            return sim_table_refuse(in, "no row of kind %s: add one",
                                    kind == SIM_STEP_DECODE ? "decode" : "prefill");
        }
    }
    table->begin[SIM_STEP_KINDS] = at;
    return 0;
}

static int read_rows(struct sim_step_table *table, struct sim_table *in)
{
    uint32_t columns[COLUMNS];
    int status = sim_table_heading(in, column_names, COLUMNS, columns);

    while (status == 0) {
        const int got = sim_table_next_row(in);
        if (got <= 0) {
            return got < 0 ? got : order_rows(table, in);
        }
        struct row row;
        status = take_row(in, columns, &row);
        if (status == 0) {
            status = add_row(table, in, row);
        }
    }
    return status;
}

int sim_step_table_read(const char *file, struct sim_step_table **table, char *text,
                        size_t capacity)
{
    struct sim_step_table *made = calloc(1, sizeof *made);
    struct sim_table in;

    if (made == NULL) {
        return -HLG_ENOMEM;
    }
    int status = sim_table_open(&in, file, '\t', text, capacity);
    if (status == 0) {
        status = read_rows(made, &in);
        sim_table_close(&in);
    }
    if (status != 0) {
        sim_step_table_destroy(made);
        return status;
    }
    *table = made;
    return 0;
}

void sim_step_table_destroy(struct sim_step_table *table)
{
    if (table != NULL) {
        free(table->rows);
        free(table);
    }
}

/* The line through two points at x; beyond the second it does not fall. */
static double line_at(double x0, double y0, double x1, double y1, double x)
{
    if (x <= x0 || x1 <= x0) {
        return y0;
    }
    const double y = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    return x > x1 && y < y1 ? y1 : y;
}

/* The last row of [begin, limit) whose key is at most x, else begin; the key is tokens or context. */
static uint32_t last_at_most(const struct row *rows, uint32_t begin, uint32_t limit, bool by_tokens,
                             double x)
{
    while (limit - begin > 1) {
        const uint32_t middle = begin + (limit - begin) / 2;
        const double key = by_tokens ? rows[middle].tokens : rows[middle].context;
        if (key <= x) {
            begin = middle;
        } else {
            limit = middle;
        }
    }
    return begin;
}

/* Rows of equal tokens around one of them. */
static void group_of(const struct row *rows, uint32_t begin, uint32_t limit, uint32_t row,
                     uint32_t *first, uint32_t *past)
{
    const double tokens = rows[row].tokens;
    const uint32_t before = last_at_most(rows, begin, limit, true, tokens - 0.5);
    *first = rows[before].tokens == rows[row].tokens ? before : before + 1;
    *past = last_at_most(rows, begin, limit, true, tokens) + 1;
}

static double group_at(const struct row *rows, uint32_t first, uint32_t past, double context,
                       bool *beyond)
{
    *beyond |= context > rows[past - 1].context || context < rows[first].context;
    if (past - first == 1) {
        return rows[first].ns;
    }
    const uint32_t low = hlg_min_u32(last_at_most(rows, first, past, false, context), past - 2);
    return line_at(rows[low].context, rows[low].ns, rows[low + 1].context, rows[low + 1].ns,
                   context);
}

double sim_step_table_at(const struct sim_step_table *table, enum sim_step_kind kind, double tokens,
                         double context, bool *beyond)
{
    const struct row *rows = table->rows;
    const uint32_t begin = table->begin[kind];
    const uint32_t limit = table->begin[kind + 1];
    uint32_t first;
    uint32_t past;

    *beyond |= tokens < rows[begin].tokens;
    group_of(rows, begin, limit, last_at_most(rows, begin, limit, true, tokens), &first, &past);
    if (past == limit && first > begin) {
        /* Above the last tokens: the line of the last two groups goes on. */
        *beyond |= tokens > rows[first].tokens;
        group_of(rows, begin, limit, first - 1, &first, &past);
    }
    const double low = group_at(rows, first, past, context, beyond);
    if (past == limit || tokens <= rows[first].tokens) {
        *beyond |= past == limit && tokens > rows[first].tokens;
        return low;
    }
    uint32_t next_first;
    uint32_t next_past;
    group_of(rows, begin, limit, past, &next_first, &next_past);
    return line_at(rows[first].tokens, low, rows[next_first].tokens,
                   group_at(rows, next_first, next_past, context, beyond), tokens);
}

double sim_step_table_least(const struct sim_step_table *table, enum sim_step_kind kind)
{
    return table->least[kind];
}
