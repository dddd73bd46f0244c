#include "workload_trace.h"

#include "workload_jsonl.h"
#include "workload_table.h"

#include <inttypes.h>
#include <string.h>

#define EXCERPT 60 /* characters of a foreign value in a sentence */

bool sim_trace_format_find(const char *name, enum sim_trace_format *format)
{
    static const char *const names[] = {"azure", "burstgpt", "mooncake", "bailian"};
    static const enum sim_trace_format formats[] = {SIM_TRACE_AZURE, SIM_TRACE_BURSTGPT,
                                                    SIM_TRACE_MOONCAKE, SIM_TRACE_BAILIAN};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *format = formats[i];
            return true;
        }
    }
    return false;
}

/* Days from 1970-01-01; Howard Hinnant, "chrono-compatible low-level date algorithms". */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day)
{
    const uint64_t y = year - (month <= 2);
    const uint64_t era = y / 400; /* flooring, as all divisions here */
    const uint64_t year_of_era = y % 400;
    const uint64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    HLG_ASSERT(year >= 1970);
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

/* The number that stands in `digits` places. */
static bool take_part(const char *at, uint32_t digits, uint64_t min, uint64_t max, uint64_t *value)
{
    char part[8] = {0};
    HLG_ASSERT(digits < sizeof part);
    memcpy(part, at, digits);
    return sim_take_u64(part, max, value) && *value >= min;
}

static uint64_t month_days(uint64_t year, uint64_t month)
{
    static const uint64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && is_leap ? 29 : days[month - 1];
}

/* "2023-11-16 18:17:03.9799600", UTC, with or without "+00:00". */
static bool take_date(const char *text, hlg_time *time_ns)
{
    uint64_t year = 0;
    uint64_t month = 0;
    uint64_t day = 0;
    uint64_t hour = 0;
    uint64_t minute = 0;
    hlg_time second_ns = 0;
    char seconds[32] = {0};
    const size_t bytes = strlen(text);
    if (bytes < 19 || bytes > 19 + 6 + 10 || text[4] != '-' || text[7] != '-' || text[10] != ' ' ||
        text[13] != ':' || text[16] != ':') {
        return false;
    }
    const char *const zone = strchr(text + 17, '+');
    if (zone != NULL && strcmp(zone, "+00:00") != 0) {
        return false;
    }
    memcpy(seconds, text + 17, zone == NULL ? bytes - 17 : (size_t)(zone - text) - 17);
    if (!take_part(text, 4, 1970, 2200, &year) || !take_part(text + 5, 2, 1, 12, &month) ||
        !take_part(text + 8, 2, 1, month_days(year, month), &day) ||
        !take_part(text + 11, 2, 0, 23, &hour) || !take_part(text + 14, 2, 0, 59, &minute) ||
        !sim_take_seconds(seconds, &second_ns) || second_ns >= 61 * HLG_NS_PER_S) {
        return false;
    }
    *time_ns =
        (days_of(year, month, day) * 86400 + hour * 3600 + minute * 60) * HLG_NS_PER_S + second_ns;
    return true;
}

enum {
    COLUMN_TIME,
    COLUMN_PROMPT,
    COLUMN_OUTPUT,
    COLUMNS
};

struct csv {
    const char *names[COLUMNS];
    bool (*take_time)(const char *text, hlg_time *time_ns);
    const char *time_remedy;
    bool skips_failed; /* rows without output are failed requests */
};

static const struct csv *csv_of(enum sim_trace_format format)
{
    static const struct csv azure = {
        {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
        take_date,
        "write YYYY-MM-DD HH:MM:SS.f",
        false,
    };
    static const struct csv burstgpt = {
        {"Timestamp", "Request tokens", "Response tokens"},
        sim_take_seconds,
        "write seconds, at most 3660 days",
        true,
    };
    HLG_ASSERT(format == SIM_TRACE_AZURE || format == SIM_TRACE_BURSTGPT);
    return format == SIM_TRACE_AZURE ? &azure : &burstgpt;
}

/* Move a row's time to the trace's own, which begins at its first row. */
int sim_trace_arrival(const struct sim_table *table, struct sim_trace_clock *clock,
                      hlg_time time_ns, hlg_time *arrival_ns)
{
    if (!clock->has_begun) {
        *clock = (struct sim_trace_clock){true, time_ns, time_ns};
    }
    if (time_ns < clock->last_ns) {
        return sim_table_refuse(table,
                                "arrives %" PRIu64 " ns before the row in front: sort the rows by "
                                "time",
                                clock->last_ns - time_ns);
    }
    if (time_ns - clock->begin_ns > (hlg_time)SIM_DAYS_MAX * 86400 * HLG_NS_PER_S) {
        return sim_table_refuse(table,
                                "arrives more than %u days after the first row: check the unit of "
                                "the time",
                                SIM_DAYS_MAX);
    }
    clock->last_ns = time_ns;
    *arrival_ns = time_ns - clock->begin_ns;
    return 0;
}

static int read_csv_row(struct sim_workload *workload, const struct sim_table *table,
                        const struct csv *csv, const uint32_t columns[COLUMNS],
                        struct sim_trace_clock *clock)
{
    struct sim_workload_request request = {0};
    hlg_time time_ns = 0;
    if (!csv->take_time(table->fields[columns[COLUMN_TIME]], &time_ns)) {
        return sim_table_refuse(table, "%s: '%.*s': %s", csv->names[COLUMN_TIME], EXCERPT,
                                table->fields[columns[COLUMN_TIME]], csv->time_remedy);
    }
    int status = sim_table_tokens(table, columns[COLUMN_OUTPUT], csv->names[COLUMN_OUTPUT],
                                  csv->skips_failed ? 0 : 1, &request.output_tokens);
    if (status == 0) {
        status = sim_table_tokens(table, columns[COLUMN_PROMPT], csv->names[COLUMN_PROMPT],
                                  request.output_tokens == 0 ? 0 : 1, &request.prompt_tokens);
    }
    if (status == 0) {
        status = sim_trace_arrival(table, clock, time_ns, &request.arrival_ns);
    }
    if (status != 0) {
        return status;
    }
    if (request.output_tokens == 0) {
        workload->skipped_count++;
        return 0;
    }
    return sim_table_fail(table, sim_workload_append(workload, &request, NULL));
}

static int read_csv(struct sim_workload *workload, struct sim_table *table,
                    enum sim_trace_format format, uint32_t count_max)
{
    const struct csv *const csv = csv_of(format);
    uint32_t columns[COLUMNS];
    struct sim_trace_clock clock = {0};
    int status = sim_table_heading(table, csv->names, COLUMNS, columns);
    const uint32_t field_count = table->field_count;
    while (status == 0 && workload->count < count_max) {
        status = sim_table_next_row(table);
        if (status <= 0) {
            return status;
        }
        if (table->field_count != field_count) {
            return sim_table_refuse(table,
                                    "%" PRIu32 " columns: write %" PRIu32 ", as the heading has",
                                    table->field_count, field_count);
        }
        status = read_csv_row(workload, table, csv, columns, &clock);
    }
    return status;
}

int sim_trace_read(struct sim_workload *workload, enum sim_trace_format format, const char *file,
                   uint32_t count_max, char *text, size_t capacity)
{
    struct sim_workload read = {0};
    struct sim_table table;
    HLG_ASSERT(count_max >= 1);
    int status = sim_table_open(&table, file, ',', text, capacity);
    if (status == 0) {
        switch (format) {
        case SIM_TRACE_AZURE:
        case SIM_TRACE_BURSTGPT:
            status = read_csv(&read, &table, format, count_max);
            break;
        case SIM_TRACE_MOONCAKE:
        case SIM_TRACE_BAILIAN:
            status = sim_jsonl_read(&read, &table, format, count_max);
            break;
        }
    }
    if (status == 0 && read.count == 0) {
        status = sim_table_refuse(&table, "no request: write at least one row");
    }
    sim_table_close(&table);
    if (status != 0) {
        sim_workload_fini(&read);
        return status;
    }
    HLG_ASSERT(read.requests != NULL);
    /* The trace begins with its first request, even where failed ones stood in front. */
    const hlg_time begin_ns = read.requests[0].arrival_ns;
    for (uint32_t i = 0; i < read.count; i++) {
        read.requests[i].arrival_ns -= begin_ns;
    }
    *workload = read;
    return 0;
}
