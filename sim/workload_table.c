#define _GNU_SOURCE /* getline() */
#include "workload_table.h"

#include "workload.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX  (16u << 20)
#define LINE_NUMBER_MAX (1u << 28)
#define EXCERPT         60 /* characters of a foreign value in a sentence */
#define NUMBER_CHARS    "0123456789+-.eE"

int sim_table_refuse(const struct sim_table *table, const char *format, ...)
{
    va_list arguments;
    /* Of an empty file there is no line. */
    const int used = table->number == 0
                         ? snprintf(table->text, table->text_capacity, "%s: ", table->file)
                         : snprintf(table->text, table->text_capacity, "%s:%" PRIu32 ": ",
                                    table->file, table->number);
    if (used >= 0 && (size_t)used < table->text_capacity) {
        va_start(arguments, format);
        (void)vsnprintf(table->text + used, table->text_capacity - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return -HLG_EINVAL;
}

int sim_table_fail(const struct sim_table *table, int status)
{
    if (status == -HLG_ENOMEM) {
        (void)sim_table_refuse(table, "no memory for more requests: read fewer rows");
    } else if (status == -HLG_ELIMIT) {
        (void)sim_table_refuse(table, "more than %u requests: read fewer rows", SIM_REQUESTS_MAX);
    }
    return status;
}

int sim_table_open(struct sim_table *table, const char *file, char separator, char *text,
                   size_t text_capacity)
{
    *table = (struct sim_table){
        .file = file, .separator = separator, .text = text, .text_capacity = text_capacity};
    table->in = fopen(file, "r");
    if (table->in == NULL) {
        (void)snprintf(text, text_capacity, "%s: cannot be read: %s: name a file that can", file,
                       strerror(errno));
        return -HLG_EINVAL;
    }
    return 0;
}

void sim_table_close(struct sim_table *table)
{
    if (table->in != NULL) {
        (void)fclose(table->in);
    }
    free(table->line);
    table->in = NULL;
    table->line = NULL;
}

int sim_table_next(struct sim_table *table)
{
    errno = 0;
    const ssize_t got = getline(&table->line, &table->line_capacity, table->in);
    if (got < 0 && (errno != 0 || ferror(table->in) != 0)) {
        table->number++;
        return sim_table_refuse(table, "cannot be read: %s: name a file that can", strerror(errno));
    }
    if (got < 0) {
        return 0;
    }
    if (table->number == LINE_NUMBER_MAX) {
        return sim_table_refuse(table, "more than %u lines: cut the file", LINE_NUMBER_MAX);
    }
    table->number++;
    table->line_bytes = (size_t)got;
    if (table->line_bytes > LINE_BYTES_MAX) {
        return sim_table_refuse(table, "a line of %zu bytes: write at most %u", table->line_bytes,
                                LINE_BYTES_MAX);
    }
    if (memchr(table->line, '\0', table->line_bytes) != NULL) {
        return sim_table_refuse(table, "holds a zero byte: write plain text");
    }
    table->line_bytes = strcspn(table->line, "\r\n");
    if (strspn(table->line + table->line_bytes, "\r\n") != (size_t)got - table->line_bytes) {
        return sim_table_refuse(table, "holds a stray carriage return: write one row a line");
    }
    table->line[table->line_bytes] = '\0';
    if (table->line_bytes == 0) {
        return sim_table_refuse(table, "is empty: delete the line");
    }
    return 1;
}

int sim_table_next_row(struct sim_table *table)
{
    const int status = sim_table_next(table);
    if (status <= 0) {
        return status;
    }
    char *at = table->line;
    table->field_count = 0;
    while (at != NULL) {
        if (table->field_count == SIM_TABLE_FIELDS_MAX) {
            return sim_table_refuse(table, "more than %u columns: delete those of no use",
                                    SIM_TABLE_FIELDS_MAX);
        }
        table->fields[table->field_count++] = at;
        at = strchr(at, table->separator);
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    return 1;
}

int sim_table_heading(struct sim_table *table, const char *const *names, uint32_t count,
                      uint32_t *columns)
{
    const int status = sim_table_next_row(table);
    if (status < 0) {
        return status;
    }
    if (status == 0) {
        table->number = 1;
        return sim_table_refuse(table, "the file is empty: write a heading and rows");
    }
    for (uint32_t i = 0; i < count; i++) {
        columns[i] = HLG_NONE;
        for (uint32_t field = 0; field < table->field_count; field++) {
            if (strcmp(table->fields[field], names[i]) == 0) {
                columns[i] = field;
            }
        }
        if (columns[i] == HLG_NONE) {
            return sim_table_refuse(table,
                                    "the heading '%.*s...' has no column '%s': name the format "
                                    "that the file has, or write the heading",
                                    EXCERPT, table->fields[0], names[i]);
        }
    }
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits to a number of at most `max`; *text is left behind them. */
static bool take_digits(const char **text, uint64_t max, uint64_t *value)
{
    uint64_t sum = 0;
    if (!is_digit(**text)) {
        return false;
    }
    for (; is_digit(**text); (*text)++) {
        const uint64_t digit = (uint64_t)(**text - '0');
        if (digit > max || sum > (max - digit) / 10) {
            return false;
        }
        sum = 10 * sum + digit;
    }
    *value = sum;
    return true;
}

bool sim_take_u64(const char *text, uint64_t max, uint64_t *value)
{
    uint64_t number = 0;
    if (!take_digits(&text, max, &number) || *text != '\0') {
        return false;
    }
    *value = number;
    return true;
}

bool sim_take_seconds(const char *text, hlg_time *time_ns)
{
    uint64_t seconds = 0;
    uint64_t fraction_ns = 0;
    if (!take_digits(&text, SIM_DAYS_MAX * 86400ull, &seconds)) {
        return false;
    }
    if (*text == '.') {
        uint64_t place_ns = HLG_NS_PER_S / 10;
        text++;
        if (!is_digit(*text)) {
            return false;
        }
        for (; is_digit(*text); text++) {
            fraction_ns += place_ns * (uint64_t)(*text - '0');
            place_ns /= 10; /* flooring: 0 past the ninth decimal */
        }
    }
    if (*text != '\0') {
        return false;
    }
    *time_ns = seconds * HLG_NS_PER_S + fraction_ns;
    return true;
}

bool sim_take_double(const char *text, double *value)
{
    char *end = NULL;
    if (*text == '\0' || text[strspn(text, NUMBER_CHARS)] != '\0') {
        return false;
    }
    const double number = strtod(text, &end);
    if (*end != '\0' || !isfinite(number)) {
        return false;
    }
    *value = number;
    return true;
}

int sim_table_tokens(const struct sim_table *table, uint32_t field, const char *name, uint32_t min,
                     uint32_t *tokens)
{
    uint64_t number = 0;
    HLG_ASSERT(field < table->field_count);
    if (!sim_take_u64(table->fields[field], HLG_TOKENS_MAX, &number) || number < min) {
        return sim_table_refuse(table, "%s: '%.*s': write a whole number, %" PRIu32 " to %u", name,
                                EXCERPT, table->fields[field], min, HLG_TOKENS_MAX);
    }
    *tokens = hlg_u32(number);
    return 0;
}
