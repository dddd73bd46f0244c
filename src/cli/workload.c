#define _GNU_SOURCE /* getline() */
#include "workload.h"

#include <halage/base.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_TOKENS_MAX 160u
#define OUTPUT_COUNT_MIN  4u
#define OUTPUT_COUNT_MAX  24u
#define TRACE_TOKENS_MAX  (1u << 24)

/* splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators" (2014). */
static uint64_t next_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint32_t draw(uint64_t *state, uint32_t min, uint32_t max)
{
    return min + (uint32_t)(next_random(state) % (max - min + 1));
}

static int make(struct workload *workload, uint32_t count, uint64_t seed)
{
    *workload = (struct workload){.count = count, .seed = seed};
    workload->requests = calloc(count, sizeof *workload->requests);
    return workload->requests == NULL ? -HLG_ENOMEM : 0;
}

int workload_draw(struct workload *workload, uint32_t count, uint64_t seed, uint32_t page_tokens,
                  uint32_t context_tokens)
{
    uint64_t state = seed;
    const uint32_t corners[] = {
        1, 2, page_tokens, page_tokens + 1, page_tokens + 2, 3 * page_tokens + 1};
    const uint32_t corner_count = sizeof corners / sizeof corners[0];
    const int status = make(workload, count, seed);
    for (uint32_t i = 0; i < count && status == 0; i++) {
        uint32_t prompt = draw(&state, 3, PROMPT_TOKENS_MAX);
        if (i % 8 == 7) {
            prompt = corners[i / 8 % corner_count]; /* flooring: the eighth it is in */
        }
        const uint32_t output = draw(&state, OUTPUT_COUNT_MIN, OUTPUT_COUNT_MAX);
        workload->requests[i].output_count = output;
        workload->requests[i].prompt_tokens = hlg_min_u32(prompt, context_tokens - output);
    }
    return status;
}

void workload_fini(struct workload *workload)
{
    free(workload->requests);
    workload->requests = NULL;
}

/* Reads a whole number and leaves *text behind it. */
static bool take_number(char **text, uint32_t *value)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    errno = 0;
    const unsigned long number = strtoul(*text, &end, 10);
    if (errno != 0 || number > TRACE_TOKENS_MAX) {
        return false;
    }
    *value = (uint32_t)number;
    *text = end;
    return true;
}

/* So many digits, and leaves *text behind them and one mark. */
static bool take_digits(const char **text, int digits, char mark, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++) {
        if (!isdigit((unsigned char)**text)) {
            return false;
        }
        *value = *value * 10 + (uint64_t)(*(*text)++ - '0');
    }
    if (mark == '\0') {
        return true;
    }
    return *(*text)++ == mark;
}

/* Days of the civil calendar before a date, from some day on. Flooring: leap days of whole years. */
static uint64_t days_before(uint64_t year, uint64_t month, uint64_t day)
{
    static const uint16_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const uint64_t whole = year - 1;
    return whole * 365 + whole / 4 - whole / 100 + whole / 400 + before[month - 1] +
           (leap && month > 2 ? 1 : 0) + day - 1;
}

/* "2023-11-16 18:15:46.6805900" and a comma, to nanoseconds from some day on. */
static bool take_time(const char *at, uint64_t *ns)
{
    uint64_t year = 0;
    uint64_t month = 0;
    uint64_t day = 0;
    uint64_t hour = 0;
    uint64_t minute = 0;
    uint64_t second = 0;
    uint64_t scale = HLG_NS_PER_S;
    if (!take_digits(&at, 4, '-', &year) || !take_digits(&at, 2, '-', &month) ||
        !take_digits(&at, 2, ' ', &day) || !take_digits(&at, 2, ':', &hour) ||
        !take_digits(&at, 2, ':', &minute) || !take_digits(&at, 2, '\0', &second) || year < 1 ||
        month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
        return false;
    }
    *ns = 0;
    if (*at == '.') {
        for (at++; isdigit((unsigned char)*at); at++) {
            scale /= 10; /* flooring: 0 from the tenth digit on, below a nanosecond */
            *ns += scale * (uint64_t)(*at - '0');
        }
    }
    /* Years below 585 from the epoch fit 64 bits: count days from 1900. */
    if (*at != ',' || year < 1900 || year > 2400) {
        return false;
    }
    const uint64_t days = days_before(year, month, day) - days_before(1900, 1, 1);
    *ns += (((days * 24 + hour) * 60 + minute) * 60 + second) * HLG_NS_PER_S;
    return true;
}

static bool take_row(char *line, struct workload_request *request)
{
    char *at = strchr(line, ',');
    if (at == NULL || at == line) {
        return false;
    }
    at++;
    if (!take_number(&at, &request->prompt_tokens) || *at != ',') {
        return false;
    }
    at++;
    if (!take_number(&at, &request->output_count)) {
        return false;
    }
    return at[strspn(at, "\r\n")] == '\0';
}

/* Whole, so that columns in another order are not taken for these. */
static bool is_heading(const char *line)
{
    static const char heading[] = "TIMESTAMP,ContextTokens,GeneratedTokens";
    return strcspn(line, "\r\n") == sizeof heading - 1 &&
           memcmp(line, heading, sizeof heading - 1) == 0;
}

/* Shrink all lengths by the ratio that makes the longest fit. Flooring, but never below 1. */
static void scale(struct workload *workload, uint32_t context_tokens)
{
    uint64_t longest = context_tokens;
    for (uint32_t i = 0; i < workload->count; i++) {
        const struct workload_request *request = &workload->requests[i];
        const uint64_t length = (uint64_t)request->prompt_tokens + request->output_count;
        longest = length > longest ? length : longest;
    }
    for (uint32_t i = 0; i < workload->count; i++) {
        struct workload_request *request = &workload->requests[i];
        const uint64_t prompt = (uint64_t)request->prompt_tokens * context_tokens / longest;
        const uint64_t output = (uint64_t)request->output_count * context_tokens / longest;
        request->output_count = hlg_max_u32(1, hlg_min_u32(hlg_u32(output), context_tokens - 1));
        request->prompt_tokens =
            hlg_max_u32(1, hlg_min_u32(hlg_u32(prompt), context_tokens - request->output_count));
    }
}

/* Times count from the first row on; *last is the one before. */
static bool take_arrival(struct workload *workload, uint32_t row, const char *line, uint64_t *first,
                         uint64_t *last)
{
    uint64_t ns = 0;
    if (!take_time(line, &ns) || (row > 0 && ns < *last)) {
        return false;
    }
    *first = row == 0 ? ns : *first;
    *last = ns;
    workload->requests[row].arrival_ns = ns - *first;
    return true;
}

static int read_rows(struct workload *workload, FILE *in, const char *file, bool timed, char *text,
                     size_t capacity)
{
    uint64_t first = 0;
    uint64_t last = 0;
    char *line = NULL;
    size_t line_bytes = 0;
    uint32_t rows = 0;
    uint32_t number = 0;
    int status = 0;
    while (status == 0 && rows < workload->count && getline(&line, &line_bytes, in) >= 0) {
        number++;
        if (number == 1 && is_heading(line)) {
            continue;
        }
        if (timed && !take_arrival(workload, rows, line, &first, &last)) {
            (void)snprintf(text, capacity,
                           "%s:%" PRIu32 ": '%.*s': write a time as 2023-11-16 18:15:46.68, not "
                           "before the line above",
                           file, number, (int)strcspn(line, "\r\n") % 80, line);
            status = -HLG_EINVAL;
            break;
        }
        if (!take_row(line, &workload->requests[rows++])) {
            (void)snprintf(text, capacity,
                           "%s:%" PRIu32 ": '%.*s': write TIMESTAMP,ContextTokens,GeneratedTokens",
                           file, number, (int)strcspn(line, "\r\n") % 80, line);
            status = -HLG_EINVAL;
        }
    }
    free(line);
    if (status == 0 && ferror(in) != 0) {
        (void)snprintf(text, capacity, "%s: cannot be read: %s", file, strerror(errno));
        status = -HLG_EINVAL;
    }
    if (status == 0 && rows == 0) {
        (void)snprintf(text, capacity, "%s: no rows", file);
        status = -HLG_EINVAL;
    }
    workload->count = rows;
    return status;
}

int workload_read(struct workload *workload, const char *file, uint32_t count, uint64_t seed,
                  uint32_t context_tokens, bool timed, char *text, size_t capacity)
{
    FILE *in = fopen(file, "r");
    if (in == NULL) {
        (void)snprintf(text, capacity, "%s: cannot be read: %s", file, strerror(errno));
        return -HLG_EINVAL;
    }
    int status = make(workload, count, seed);
    if (status == 0) {
        status = read_rows(workload, in, file, timed, text, capacity);
    } else {
        (void)snprintf(text, capacity, "no memory");
    }
    (void)fclose(in);
    if (status != 0) {
        workload_fini(workload);
        return status;
    }
    scale(workload, context_tokens);
    return 0;
}
