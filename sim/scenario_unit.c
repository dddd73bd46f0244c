#include "scenario_unit.h"

#include <halage/base.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64u
#define DIGITS_MAX       17 /* of a double that must read back the same */
#define DIGITS_SHORT     9  /* beyond these another unit is tried */

/* A unit's word. A number x with it is x * times / parts; one of them is 1, so that one rounding is all. */
struct word {
    const char *word;
    double times;
    double parts;
    bool printed;
};

/* Largest first: the first that makes a short number of at least 1 is printed. */
static const struct word share_words[] = {{"", 1, 1, true}, {"%", 1, 100, false}, {0}};
static const struct word nanosecond_words[] = {
    {"d", 86400e9, 1, false},     {"h", 3600e9, 1, false}, {"min", 60e9, 1, false},
    {"s", 1e9, 1, true},          {"ms", 1e6, 1, true},    {"us", 1e3, 1, true},
    {"\xc2\xb5s", 1e3, 1, false}, {"ns", 1, 1, true},      {0},
};
static const struct word picosecond_words[] = {
    {"s", 1e12, 1, true},
    {"ms", 1e9, 1, true},
    {"us", 1e6, 1, true},
    {"\xc2\xb5s", 1e6, 1, false},
    {"ns", 1e3, 1, true},
    {"ps", 1, 1, true},
    {0},
};
static const struct word rate_words[] = {
    {"/s", 1, 1, true}, {"/min", 1, 60, false}, {"/h", 1, 3600, false}, {0}};
static const struct word bandwidth_words[] = {
    {"Tbit/s", 125e9, 1, false},  {"Gbit/s", 125e6, 1, true},
    {"Mbit/s", 125e3, 1, true},   {"kbit/s", 125, 1, false},
    {"bit/s", 1, 8, false},       {"TB/s", 1e12, 1, false},
    {"GB/s", 1e9, 1, false},      {"MB/s", 1e6, 1, false},
    {"kB/s", 1e3, 1, false},      {"GiB/s", 1073741824, 1, false},
    {"MiB/s", 1048576, 1, false}, {"KiB/s", 1024, 1, false},
    {"B/s", 1, 1, true},          {0},
};
static const struct word byte_words[] = {
    {"TiB", 1099511627776, 1, true},
    {"GiB", 1073741824, 1, true},
    {"MiB", 1048576, 1, true},
    {"KiB", 1024, 1, true},
    {"TB", 1e12, 1, false},
    {"GB", 1e9, 1, false},
    {"MB", 1e6, 1, false},
    {"kB", 1e3, 1, false},
    {"B", 1, 1, true},
    {0},
};
static const struct word plain_words[] = {{"", 1, 1, true}, {0}};

static const struct {
    const struct word *words;
    const char *remedy;
} units[] = {
    [SIM_UNIT_NONE] = {plain_words, "write a plain number, such as 0.8"},
    [SIM_UNIT_SHARE] = {share_words, "write a share, such as 0.9 or 90%"},
    [SIM_UNIT_NANOSECONDS] = {nanosecond_words,
                              "write a time with its unit (ns, us, ms, s, min, h, d), such as "
                              "500ms"},
    [SIM_UNIT_PICOSECONDS] = {picosecond_words,
                              "write a time with its unit (ps, ns, us, ms, s), such as 350ns"},
    [SIM_UNIT_RATE] = {rate_words, "write a rate with its unit (/s, /min, /h), such as 3/s"},
    [SIM_UNIT_BANDWIDTH] = {bandwidth_words,
                            "write a bandwidth with its unit (Gbit/s, Mbit/s, GB/s, GiB/s, ...), "
                            "such as 400Gbit/s"},
    [SIM_UNIT_BYTES] = {byte_words,
                        "write a size with its unit (B, KiB, MiB, GiB, kB, MB, GB), such as "
                        "64KiB"},
};

/* Length of the number that a text begins with: digits, with a point and an exponent if it likes. */
static size_t number_bytes(const char *text)
{
    const size_t sign = text[0] == '-' || text[0] == '+';
    size_t bytes = sign + strspn(text + sign, "0123456789");
    size_t digits = bytes - sign;
    if (text[bytes] == '.') {
        const size_t after = strspn(text + bytes + 1, "0123456789");
        digits += after;
        bytes += 1 + after;
    }
    if (digits == 0) {
        return 0;
    }
    if (text[bytes] == 'e' || text[bytes] == 'E') {
        const size_t exponent_sign = text[bytes + 1] == '-' || text[bytes + 1] == '+';
        const size_t exponent = strspn(text + bytes + 1 + exponent_sign, "0123456789");
        bytes += exponent > 0 ? 1 + exponent_sign + exponent : 0;
    }
    return bytes;
}

const char *sim_unit_parse(enum sim_unit unit, const char *text, double *value)
{
    char number[NUMBER_BYTES_MAX];
    const size_t bytes = number_bytes(text);
    if (bytes == 0 || bytes >= sizeof number) {
        return units[unit].remedy;
    }
    memcpy(number, text, bytes);
    number[bytes] = '\0';
    const char *rest = text + bytes;
    rest += *rest == ' ' ? 1 : 0;
    for (const struct word *word = units[unit].words; word->word != NULL; word++) {
        if (strcmp(rest, word->word) == 0) {
            const double scaled = strtod(number, NULL) * word->times / word->parts;
            if (!isfinite(scaled)) {
                return "write a smaller number";
            }
            *value = scaled;
            return NULL;
        }
    }
    return units[unit].remedy;
}

/* The shortest text of at most `digits` digits that reads back the same. Returns whether there is one. */
static bool print_exact(enum sim_unit unit, const struct word *word, double value, int digits,
                        char text[SIM_UNIT_TEXT_BYTES])
{
    const double number = value * word->parts / word->times;
    for (int precision = 1; precision <= digits; precision++) {
        double again = 0;
        (void)snprintf(text, SIM_UNIT_TEXT_BYTES, "%.*g%s", precision, number, word->word);
        const bool exponent = strchr(text, 'e') != NULL && number < 1e9 && number >= 1e-3;
        if (!exponent && sim_unit_parse(unit, text, &again) == NULL && again == value) {
            return true;
        }
    }
    return false;
}

void sim_unit_print(enum sim_unit unit, double value, char text[SIM_UNIT_TEXT_BYTES])
{
    HLG_ASSERT(value >= 0 && isfinite(value));
    const struct word *last = NULL;
    for (const struct word *word = units[unit].words; word->word != NULL; word++) {
        if (word->printed) {
            if (value * word->parts / word->times >= 1 &&
                print_exact(unit, word, value, DIGITS_SHORT, text)) {
                return;
            }
            last = word;
        }
    }
    HLG_ASSERT(last != NULL && last->times == 1 && last->parts == 1);
    const bool exact = print_exact(unit, last, value, DIGITS_MAX, text);
    HLG_ASSERT(exact);
}
