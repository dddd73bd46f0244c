/*
 * Command lines, by argp, with one-line errors that name what is wrong and what is valid.
 */
#ifndef HALAGE_CLI_OPTIONS_H
#define HALAGE_CLI_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Parse a command line. Unknown options, abbreviated ones included, and missing or empty values are reported
 * here, in one line to stderr. A parser reports what else is wrong by options_error().
 *
 * options  without children and aliases; `name` or a printable `key`, or both
 * flags    ARGP_*; with ARGP_IN_ORDER options from the first argument on are not looked at
 * input    handed to the parser
 *
 * Returns 0, or CLI_BAD_INPUT. Ends the process for --help and --version, as argp does.
 */
int options_parse(const struct argp *options, int argc, char **argv, unsigned flags, void *input);

/* Value of an option that was declared OPTION_ARG_OPTIONAL, for a parser: what came with it, the next word where that
 * is no option (which argp leaves to the command), or "-". */
const char *options_optional(char *argument, struct argp_state *state);

/* For the ARGP_KEY_ARG of a command that takes options alone: say so. Returns EINVAL, for a parser to return. */
int options_no_argument(const char *program, const char *argument);

/* The same as options_parse() where the first `count` words after argv[0] are options of a file: what a parser says of their values, by
 * options_error() and its state's name, begins with the file's name. */
int options_parse_after(const struct argp *options, const char *file, int count, int argc,
                        char **argv, void *input);

/* Row of a command that prints what it found: as JSON, too. The parser takes options_optional(), json_out.h the rest. */
#define OPTIONS_JSON_ROW(key)                                                           \
    {                                                                                   \
        "json", key, "FILE", OPTION_ARG_OPTIONAL,                                       \
            "Write it as JSON; - or nothing is stdout, the text then goes to stderr", 0 \
    }

/* Print "<program>: <sentence>" to stderr. Returns EINVAL, for a parser to return. */
__attribute__((format(printf, 2, 3))) int options_error(const char *program, const char *format,
                                                        ...);

/* Whether an output (option `option`) would replace an input, the same regular file; both may be NULL. A
 * line is then on stderr. */
bool options_same_file(const char *program, const char *option, const char *output,
                       const char *input);

/* Whether an output that is written at the end can be, as far as one can see before: `file` may be NULL or "-".
 * Otherwise a line is on stderr. */
bool options_output_possible(const char *program, const char *option, const char *file);

/* Whether two outputs, of options `one` and `other`, are one file, "-" included; both may be NULL. A line is then on
 * stderr. */
bool options_one_output(const char *program, const char *one, const char *file, const char *other,
                        const char *other_file);

/* Read a whole number in decimal digits. Returns whether it is one and fits. */
bool options_u32(const char *text, uint32_t *value);

/* Whether it is an IPv4 or IPv6 address, in digits. */
bool options_ip(const char *text);

/* Read a size: a whole number of bytes, or with a unit as scenarios of halage-sim have them (B, kB, MB, GB, KiB, MiB,
 * GiB) or as other benchmarks do (k, m, g or K, M, G: binary). `end`: where it stopped, NULL: at the end. Returns whether
 * it is one and fits. */
bool options_bytes(const char *text, const char **end, uint32_t *bytes);

#endif
