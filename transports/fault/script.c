/* Scripts: one rule a line. A script is read twice, so that either all of it is added or nothing. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define WORD_BYTES 64u

struct reader {
    const char *at;
    uint32_t line;
    char word[WORD_BYTES];
    char *error;
    size_t error_bytes;
};

__attribute__((format(printf, 2, 3))) static bool say(struct reader *r, const char *format, ...)
{
    va_list arguments;
    int used;

    if (r->error == NULL || r->error_bytes == 0) {
        return false;
    }
    used = snprintf(r->error, r->error_bytes, "line %u: ", r->line);
    if (used > 0 && (size_t)used < r->error_bytes) {
        va_start(arguments, format);
        (void)vsnprintf(r->error + used, r->error_bytes - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of this line, cut at what fits; a `?` stands for what cannot be printed, since a sentence may
 * repeat it. False at the line's end. */
static bool next_word(struct reader *r)
{
    uint32_t length = 0;

    while (is_space(*r->at)) {
        r->at++;
    }
    if (*r->at == '#') {
        r->at += strcspn(r->at, "\n");
    }
    while (*r->at != 0 && *r->at != '\n' && *r->at != '#' && !is_space(*r->at)) {
        if (length + 1 < WORD_BYTES) {
            r->word[length++] = (unsigned char)*r->at < ' ' || *r->at == 0x7f ? '?' : *r->at;
        }
        r->at++;
    }
    r->word[length] = 0;
    return length != 0;
}

/* Digits at *at, which is moved on. False when there are none, or they are too many. */
static bool read_digits(const char **at, uint64_t *value)
{
    const char *begin = *at;

    *value = 0;
    while (**at >= '0' && **at <= '9') {
        const uint64_t digit = (uint64_t)(**at - '0');

        if (!hlg_mul_u64(*value, 10, value) || *value > UINT64_MAX - digit) {
            return false;
        }
        *value += digit;
        (*at)++;
    }
    return *at != begin;
}

struct unit {
    const char *name;
    uint64_t value;
};

static const struct unit times[] = {
    {"ns", 1}, {"us", 1000}, {"ms", HLG_NS_PER_MS}, {"s", HLG_NS_PER_S}, {NULL, 0}};
static const struct unit rates[] = {{"B/s", 1},
                                    {"kB/s", 1000},
                                    {"MB/s", 1000000},
                                    {"GB/s", 1000000000},
                                    {"KiB/s", 1ull << 10},
                                    {"MiB/s", 1ull << 20},
                                    {"GiB/s", 1ull << 30},
                                    {NULL, 0}};

/* A number and its unit at *at, which is moved on to `stop` or the end. */
static bool read_amount(const char **at, const struct unit *units, uint64_t *value)
{
    uint64_t number;

    if (!read_digits(at, &number)) {
        return false;
    }
    for (; units->name != NULL; units++) {
        const size_t length = strlen(units->name);

        if (strncmp(*at, units->name, length) == 0 &&
            ((*at)[length] == 0 || (*at)[length] == '.')) {
            *at += length;
            return hlg_mul_u64(number, units->value, value);
        }
    }
    return false;
}

static bool read_number(struct reader *r, const char *key, uint64_t min, uint64_t max,
                        uint64_t *value)
{
    const char *at = r->word;

    if (!next_word(r)) {
        return say(r, "%s needs a number", key);
    }
    if (!read_digits(&at, value) || *at != 0 || *value < min || *value > max) {
        return say(r, "%s \"%s\" is no number from %llu to %llu", key, r->word,
                   (unsigned long long)min, (unsigned long long)max);
    }
    return true;
}

static bool read_time(struct reader *r, const char *key, hlg_time *time)
{
    const char *at = r->word;

    if (!next_word(r)) {
        return say(r, "%s needs a time, such as 20us", key);
    }
    if (!read_amount(&at, times, time) || *at != 0) {
        return say(r, "%s \"%s\" is no time: write a number and one of ns us ms s, as in 20us", key,
                   r->word);
    }
    return true;
}

static bool read_span(struct reader *r, struct hlg_fault_rule *rule)
{
    const char *at = r->word;

    if (!next_word(r)) {
        return say(r, "span needs a time, such as 20us or 1ms..5ms");
    }
    if (strcmp(r->word, "forever") == 0) {
        rule->span = HLG_TIME_NEVER;
        rule->span_max = HLG_TIME_NEVER;
        return true;
    }
    bool fits = read_amount(&at, times, &rule->span);

    rule->span_max = rule->span;
    if (fits && strncmp(at, "..", 2) == 0) {
        at += 2;
        fits = read_amount(&at, times, &rule->span_max) && rule->span_max >= rule->span;
    }
    if (!fits || *at != 0) {
        return say(r,
                   "span \"%s\" is no span: write a time, two with .. between and the shorter "
                   "first, or forever, as in 1ms..5ms",
                   r->word);
    }
    return true;
}

static bool read_rate(struct reader *r, uint64_t *rate)
{
    const char *at = r->word;

    if (!next_word(r)) {
        return say(r, "rate needs bytes a second, such as 10MB/s");
    }
    if (!read_amount(&at, rates, rate) || *at != 0) {
        return say(r,
                   "rate \"%s\" is no rate: write a number and one of B/s kB/s MB/s GB/s KiB/s "
                   "MiB/s GiB/s, as in 10MB/s",
                   r->word);
    }
    return true;
}

static bool read_small(struct reader *r, const char *key, uint64_t min, uint64_t max, uint32_t *out)
{
    uint64_t value;

    if (!read_number(r, key, min, max, &value)) {
        return false;
    }
    *out = hlg_u32(value);
    return true;
}

enum key {
    KEY_NODE,
    KEY_PEER,
    KEY_LANE,
    KEY_RAIL,
    KEY_PPM,
    KEY_NTH,
    KEY_AT,
    KEY_SPAN,
    KEY_RATE,
    KEY_COUNT,
    KEYS
};

static const char *const keys[KEYS] = {"node", "peer", "lane", "rail", "ppm",
                                       "nth",  "at",   "span", "rate", "count"};

static bool read_value(struct reader *r, enum key key, struct hlg_fault_rule *rule)
{
    switch (key) {
    case KEY_NODE:
        return read_small(r, "node", 0, HLG_FAULT_ANY - 1, &rule->node);
    case KEY_PEER:
        return read_small(r, "peer", 0, HLG_FAULT_ANY - 1, &rule->peer);
    case KEY_LANE:
        return read_small(r, "lane", 0, HLG_RANKS_MAX - 1, &rule->lane);
    case KEY_RAIL:
        return read_small(r, "rail", 0, HLG_RAILS_MAX - 1, &rule->rail);
    case KEY_PPM:
        return read_small(r, "ppm", 1, HLG_RNG_PPM, &rule->ppm);
    case KEY_NTH:
        return read_number(r, "nth", 1, UINT64_MAX - 1, &rule->nth);
    case KEY_AT:
        return read_time(r, "at", &rule->at);
    case KEY_SPAN:
        return read_span(r, rule);
    case KEY_RATE:
        return read_rate(r, &rule->rate);
    case KEY_COUNT:
        return read_small(r, "count", 1, UINT32_MAX - 1, &rule->count);
    case KEYS:
        break;
    }
    hlg_unreachable();
}

static bool read_kind(struct reader *r, struct hlg_fault_rule *rule)
{
    char list[256] = "";
    size_t used = 0;

    for (uint32_t kind = HLG_FAULT_DELAY; kind < HLG_FAULT_KINDS; kind++) {
        const char *name = hlg_fault_name(kind);

        if (strcmp(name, r->word) == 0) {
            rule->kind = kind;
            return true;
        }
        const int wrote = snprintf(list + used, sizeof(list) - used, " %s", name);
        HLG_ASSERT(wrote > 0 && used + (size_t)wrote < sizeof(list));
        used += (size_t)wrote;
    }
    return say(r, "\"%s\" is no fault: write one of%s", r->word, list);
}

/* One rule, whose first word was read. */
static bool read_rule(struct reader *r, struct hlg_fault_rule *rule)
{
    bool given[KEYS] = {false};

    *rule = (struct hlg_fault_rule){
        .node = HLG_FAULT_ANY, .peer = HLG_FAULT_ANY, .lane = HLG_FAULT_ANY, .rail = HLG_FAULT_ANY};
    if (!read_kind(r, rule)) {
        return false;
    }
    while (next_word(r)) {
        uint32_t key = 0;

        while (key < KEYS && strcmp(keys[key], r->word) != 0) {
            key++;
        }
        if (key == KEYS) {
            return say(r,
                       "\"%s\" is unknown: write one of node peer lane rail ppm nth at span rate "
                       "count",
                       r->word);
        }
        if (given[key]) {
            return say(r, "\"%s\" is there twice: write it once", r->word);
        }
        given[key] = true;
        if (!read_value(r, (enum key)key, rule)) {
            return false;
        }
    }
    return true;
}

static uint32_t free_rules(const struct hlg_fault *f)
{
    uint32_t count = f->config.rules_max;

    for (uint32_t kind = 0; kind < HLG_FAULT_KINDS; kind++) {
        count -= f->rules_of[kind];
    }
    return count;
}

/* Reads all lines; adds the rules when `add`. */
static bool read_script(struct hlg_fault *f, struct reader *r, bool add)
{
    const uint32_t room = free_rules(f);
    struct hlg_fault_rule rule;
    char why[192] = "";
    uint32_t count = 0;

    for (r->line = 1; *r->at != 0; r->line++) {
        if (next_word(r)) {
            if (!read_rule(r, &rule)) {
                return false;
            }
            if (!fault_rule_is_sound(f, &rule, why, sizeof(why))) {
                return say(r, "%s", why);
            }
            count++;
            if (!add && count > room) {
                return say(r, "no room for one more rule: raise rules_max above %u",
                           f->config.rules_max);
            }
            if (add) {
                const int number = hlg_fault_add(f, &rule, NULL, 0);
                HLG_ASSERT(number >= 0);
            }
        }
        r->at += *r->at == '\n';
    }
    return true;
}

int hlg_fault_script(struct hlg_fault *f, const char *text, char *error, size_t error_bytes)
{
    struct reader reader = {.at = text, .error = error, .error_bytes = error_bytes};

    if (!read_script(f, &reader, false)) {
        return -HLG_EINVAL;
    }
    reader.at = text;
    const bool added = read_script(f, &reader, true);

    HLG_ASSERT(added);
    return 0;
}
