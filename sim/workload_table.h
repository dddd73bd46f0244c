/*
 * Text files line by line, their fields, and one sentence about what is wrong with one. For the
 * readers of traces alone.
 */
#ifndef HALAGE_SIM_WORKLOAD_TABLE_H
#define HALAGE_SIM_WORKLOAD_TABLE_H

#include <halage/base.h>

#include <stdio.h>

#define SIM_TABLE_FIELDS_MAX 64u

struct sim_table {
    FILE *in;
    const char *file;
    uint32_t number; /* of the line that was read last, 1 for the first */
    char separator;
    char *line; /* without its end */
    size_t line_bytes;
    size_t line_capacity;
    char *fields[SIM_TABLE_FIELDS_MAX]; /* in `line`, which sim_table_split() cuts */
    uint32_t field_count;
    char *text;
    size_t text_capacity;
};

/*
 * Open a file. `file` and `text` must outlive the table.
 *
 * Returns 0 or -HLG_EINVAL with a sentence. Close with sim_table_close(), after a failure too.
 */
int sim_table_open(struct sim_table *table, const char *file, char separator, char *text,
                   size_t text_capacity);
void sim_table_close(struct sim_table *table);

/* Read a line. Returns 1, 0 at the end, or -HLG_EINVAL with a sentence. */
int sim_table_next(struct sim_table *table);

/* Read a line and cut it into fields. Returns as sim_table_next(). */
int sim_table_next_row(struct sim_table *table);

/*
 * Read the heading and find columns by their names.
 *
 * names    [count] what the columns must be called
 * columns  [count] field index of each
 *
 * Returns 0 or -HLG_EINVAL with a sentence.
 */
int sim_table_heading(struct sim_table *table, const char *const *names, uint32_t count,
                      uint32_t *columns);

/* Write "file:line: ..." to the table's text. Returns -HLG_EINVAL. */
__attribute__((format(printf, 2, 3))) int sim_table_refuse(const struct sim_table *table,
                                                           const char *format, ...);

/* The sentence for a negative status that has none yet. Returns the status. */
int sim_table_fail(const struct sim_table *table, int status);

/* A whole decimal number of at most `max`, nothing around it. */
bool sim_take_u64(const char *text, uint64_t max, uint64_t *value);

/* Seconds with any number of decimals, to nanoseconds; flooring past the ninth. */
bool sim_take_seconds(const char *text, hlg_time *time_ns);

/* A finite decimal number. */
bool sim_take_double(const char *text, double *value);

/* A field as tokens, min..HLG_TOKENS_MAX, or a sentence that names the column. */
int sim_table_tokens(const struct sim_table *table, uint32_t field, const char *name, uint32_t min,
                     uint32_t *tokens);

#endif
