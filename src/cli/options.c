/* Command lines. argp reports an unknown option in two lines and names no valid ones, so that they
 * are looked for before argp sees them. */
#include "options.h"

#include "cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Those that argp adds to every command. */
static const struct argp_option added[] = {
    {"help", '?', NULL, 0, NULL, 0},
    {"usage", 1, NULL, 0, NULL, 0},
    {"version", 'V', NULL, 0, NULL, 0},
    {0},
};

int options_error(const char *program, const char *format, ...)
{
    va_list arguments;
    (void)fprintf(stderr, "%s: ", program);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    return EINVAL;
}

bool options_same_file(const char *program, const char *option, const char *output,
                       const char *input)
{
    struct stat a;
    struct stat b;
    const bool same = output != NULL && input != NULL && strcmp(output, "-") != 0 &&
                      stat(output, &a) == 0 && stat(input, &b) == 0 && S_ISREG(a.st_mode) &&
                      a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    if (same) {
        (void)options_error(program, "%s: %s: is also the input %s; give another file", option,
                            output, input);
    }
    return same;
}

bool options_one_output(const char *program, const char *one, const char *file, const char *other,
                        const char *other_file)
{
    struct stat a;
    struct stat b;

    if (file == NULL || other_file == NULL) {
        return false;
    }
    const bool same = strcmp(file, other_file) == 0 ||
                      (strcmp(file, "-") != 0 && strcmp(other_file, "-") != 0 &&
                       stat(file, &a) == 0 && stat(other_file, &b) == 0 && S_ISREG(a.st_mode) &&
                       a.st_dev == b.st_dev && a.st_ino == b.st_ino);
    if (same) {
        (void)options_error(program, "%s and %s: both write to %s; give another file", one, other,
                            file);
    }
    return same;
}

/* What access() says of the file, or where there is none of its folder. */
static int output_error(const char *file)
{
    const char *slash = strrchr(file, '/');
    struct stat status;
    char folder[4096];
    if (stat(file, &status) == 0) {
        return S_ISDIR(status.st_mode) ? EISDIR : access(file, W_OK) == 0 ? 0 : errno;
    }
    if (slash != NULL && slash - file >= (ptrdiff_t)sizeof folder - 1) {
        return ENAMETOOLONG;
    }
    (void)snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - file) + 1,
                   slash == NULL ? "." : file);
    return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}

bool options_output_possible(const char *program, const char *option, const char *file)
{
    const int error = file == NULL || strcmp(file, "-") == 0 ? 0 : output_error(file);
    if (error != 0) {
        (void)options_error(program, "%s: %s: cannot be opened: %s", option, file, strerror(error));
    }
    return error == 0;
}

bool options_ip(const char *text)
{
    uint8_t bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

bool options_u32(const char *text, uint32_t *value)
{
    uint64_t sum = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        sum = sum * 10 + (uint64_t)(*text - '0');
        if (sum > UINT32_MAX) {
            return false;
        }
    }
    *value = (uint32_t)sum;
    return true;
}

bool options_bytes(const char *text, const char **end, uint32_t *bytes)
{
    static const struct {
        const char *word;
        uint32_t times;
    } units[] = {
        /* longest first */
        {"KiB", 1u << 10},  {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"kB", 1000},    {"MB", 1000000},
        {"GB", 1000000000}, {"k", 1u << 10},   {"K", 1u << 10},   {"m", 1u << 20}, {"M", 1u << 20},
        {"g", 1u << 30},    {"G", 1u << 30},   {"B", 1},          {"", 1},
    };
    char *after = NULL;
    uint64_t product = 0;

    errno = 0;
    const unsigned long long number =
        isdigit((unsigned char)*text) ? strtoull(text, &after, 10) : 0;
    if (after == NULL || errno != 0) {
        return false;
    }
    size_t unit = 0;
    while (strncmp(after, units[unit].word, strlen(units[unit].word)) != 0) {
        unit++; /* the last one is in every text */
    }
    after += strlen(units[unit].word);
    if (__builtin_mul_overflow((uint64_t)number, (uint64_t)units[unit].times, &product) ||
        product > UINT32_MAX || (end == NULL && *after != '\0')) {
        return false;
    }
    if (end != NULL) {
        *end = after;
    }
    *bytes = (uint32_t)product;
    return true;
}

static bool is_end(const struct argp_option *option)
{
    return option->name == NULL && option->key == 0;
}

/* The option of a word "--name", "--name=value" or "-k", or NULL. */
static const struct argp_option *find(const struct argp_option *option, const char *word)
{
    const size_t name_bytes = strcspn(word + 2, "=");
    for (; option != NULL && !is_end(option); option++) {
        if (word[1] == '-') {
            if (option->name != NULL && strlen(option->name) == name_bytes &&
                memcmp(option->name, word + 2, name_bytes) == 0) {
                return option;
            }
        } else if (option->key == word[1]) {
            return option;
        }
    }
    return NULL;
}

static int report_unknown(const struct argp *options, const char *program, const char *word)
{
    (void)fprintf(stderr, "%s: unknown option '%s'; valid:", program, word);
    for (const struct argp_option *option = options->options; option != NULL && !is_end(option);
         option++) {
        if ((option->flags & OPTION_HIDDEN) != 0) {
            continue;
        }
        if (option->name != NULL) {
            (void)fprintf(stderr, " --%s", option->name);
        } else {
            (void)fprintf(stderr, " -%c", option->key);
        }
    }
    (void)fputs(" --help --version\n", stderr);
    return CLI_BAD_INPUT;
}

/* "--name=" */
static bool has_empty_value(const char *word)
{
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    return equals != NULL && equals[1] == '\0';
}

/* Look at all option words. Short options are one to a word. */
static int check_words(const struct argp *options, int argc, char **argv, unsigned flags)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || word[1] == '\0') {
            if ((flags & ARGP_IN_ORDER) != 0) {
                return 0;
            }
            continue;
        }
        const struct argp_option *option = find(options->options, word);
        if (option == NULL) {
            option = find(added, word);
        }
        const bool has_value = word[1] == '-' ? strchr(word, '=') != NULL : word[2] != '\0';
        if (option == NULL || (has_value && option->arg == NULL && word[1] != '-')) {
            return report_unknown(options, argv[0], word);
        }
        if (has_value && option->arg == NULL) {
            (void)options_error(argv[0], "option '--%s' takes no value", option->name);
            return CLI_BAD_INPUT;
        }
        const bool needs = option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0;
        const bool apart = needs && !has_value;
        if (has_empty_value(word) || (apart && (++i == argc || argv[i][0] == '\0'))) {
            (void)options_error(argv[0], "option '%.*s' needs a value: %s", (int)strcspn(word, "="),
                                word, option->arg);
            return CLI_BAD_INPUT;
        }
    }
    return 0;
}

int options_no_argument(const char *program, const char *argument)
{
    return options_error(program, "unknown argument '%s'; there are only options, see --help",
                         argument);
}

const char *options_optional(char *argument, struct argp_state *state)
{
    if (argument != NULL) {
        return argument;
    }
    const char *next = state->next < state->argc ? state->argv[state->next] : NULL;
    if (next == NULL || (next[0] == '-' && next[1] != '\0')) {
        return "-";
    }
    state->next++;
    return next;
}

/* A parser, and the words that come from a file. */
struct origin {
    argp_parser_t parser;
    void *input;
    const char *file;
    int last; /* index of the last of these words */
    char name[512];
};

static error_t parse_with_origin(int key, char *argument, struct argp_state *state)
{
    struct origin *origin = state->input;
    const char *program = state->name;
    const bool of_file =
        key < ARGP_KEY_END && key != ARGP_KEY_ARG && state->next <= origin->last + 1;
    state->input = origin->input;
    if (of_file) {
        (void)snprintf(origin->name, sizeof origin->name, "%s: %s", program, origin->file);
        state->name = origin->name;
    }
    const error_t result = origin->parser(key, argument, state);
    state->name = (char *)(uintptr_t)program;
    return result;
}

int options_parse_after(const struct argp *options, const char *file, int count, int argc,
                        char **argv, void *input)
{
    struct origin origin = {.parser = options->parser, .input = input, .file = file, .last = count};
    struct argp wrapped = *options;
    wrapped.parser = parse_with_origin;
    return options_parse(&wrapped, argc, argv, 0, &origin);
}

int options_parse(const struct argp *options, int argc, char **argv, unsigned flags, void *input)
{
    if (check_words(options, argc, argv, flags) != 0) {
        return CLI_BAD_INPUT;
    }
    argp_err_exit_status = CLI_BAD_INPUT;
    return argp_parse(options, argc, argv, flags, NULL, input) == 0 ? 0 : CLI_BAD_INPUT;
}
