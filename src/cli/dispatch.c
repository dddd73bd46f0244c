#define _GNU_SOURCE /* open_memstream() */
#include "dispatch.h"

#include "cli.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct choice {
    const struct dispatch *program;
    int index; /* of the command's word in argv; 0: none */
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct choice *choice = state->input;
    (void)argument;
    if (key == ARGP_KEY_ARG) {
        choice->index = state->next - 1;
        state->next = state->argc; /* the rest is the command's */
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* Adds the commands below the options. argp frees what this returns. */
static char *add_commands(int key, const char *text, void *input)
{
    char *grown = NULL;
    size_t bytes = 0;
    const struct choice *choice = input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)text;
    }
    FILE *out = open_memstream(&grown, &bytes);
    if (out == NULL) {
        return NULL;
    }
    (void)fputs("Commands:\n", out);
    for (size_t i = 0; i < choice->program->count; i++) {
        (void)fprintf(out, "  %-8s %s\n", choice->program->commands[i].name,
                      choice->program->commands[i].summary);
    }
    (void)fprintf(out, "\n'%s help COMMAND' or '%s COMMAND --help' says more.",
                  choice->program->name, choice->program->name);
    if (fclose(out) != 0) {
        free(grown);
        return NULL;
    }
    return grown;
}

/* One line: what was wrong, then all that is valid. */
static int report_command(const struct dispatch *program, const char *word)
{
    if (word == NULL) {
        (void)fprintf(stderr, "%s: no command; valid:", program->name);
    } else {
        (void)fprintf(stderr, "%s: unknown command '%s'; valid:", program->name, word);
    }
    for (size_t i = 0; i < program->count; i++) {
        (void)fprintf(stderr, " %s", program->commands[i].name);
    }
    (void)fputc('\n', stderr);
    return CLI_BAD_INPUT;
}

/* Run the command that argv[0] names, with the words after it. */
static int run_command(const struct dispatch *program, int argc, char **argv)
{
    for (size_t i = 0; i < program->count; i++) {
        if (strcmp(argv[0], program->commands[i].name) == 0) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s %s", program->name, program->commands[i].name);
            argv[0] = name;
            return program->commands[i].run(argc, argv);
        }
    }
    return report_command(program, argv[0]);
}

/* "help [COMMAND [WORD]]" is "[COMMAND [WORD]] --help". `own` are the program's options. */
static int run_help(const struct dispatch *program, const struct argp *own, int argc, char **argv)
{
    char option[] = "--help";
    char name[32];
    char *words[4] = {NULL};
    (void)snprintf(name, sizeof name, "%s", program->name);
    if (argc > 3) {
        (void)options_error(name, "help: too many words; write '%s help [COMMAND]'", name);
        return CLI_BAD_INPUT;
    }
    if (argc == 1) {
        words[0] = name;
        words[1] = option;
        return options_parse(own, 2, words, ARGP_IN_ORDER, &(struct choice){.program = program});
    }
    for (int i = 1; i < argc; i++) {
        words[i - 1] = argv[i];
    }
    words[argc - 1] = option;
    return run_command(program, argc, words);
}

int dispatch(const struct dispatch *program, int argc, char **argv)
{
    const struct argp options = {
        .parser = parse,
        .args_doc = "COMMAND [OPTION...]",
        .doc = program->doc,
        .help_filter = add_commands,
    };
    struct choice choice = {.program = program};
    char word[32];
    if (argc < 1) {
        return report_command(program, NULL);
    }
    (void)snprintf(word, sizeof word, "%s", program->name);
    argv[0] = word;
    if (options_parse(&options, argc, argv, ARGP_IN_ORDER, &choice) != 0) {
        return CLI_BAD_INPUT;
    }
    if (choice.index == 0) {
        return report_command(program, NULL);
    }
    argc -= choice.index;
    argv += choice.index;
    return strcmp(argv[0], "help") == 0 ? run_help(program, &options, argc, argv)
                                        : run_command(program, argc, argv);
}
