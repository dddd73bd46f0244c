/* `halage-sim`: finds the command and hands the rest of the line to it. */
#define _GNU_SOURCE /* open_memstream() */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *argp_program_version = "halage-sim " HALAGE_VERSION;

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"check", command_check, "say whether scenarios can be run, and what they stand for"},
    {"explain", command_explain, "run a scenario and tell one request's life"},
    {"init", command_init, "write a commented scenario with every key"},
    {"list", command_list, "list models, gpus, nics, nodes, engines or keys"},
    {"plan", command_plan, "find the split of so many GPUs that meets an SLO"},
    {"run", command_run, "run a scenario: latencies, throughput, what is full"},
    {"sweep", command_sweep, "run a grid of scenarios, on all cores or many machines"},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

struct choice {
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
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)text;
    }
    FILE *out = open_memstream(&grown, &bytes);
    if (out == NULL) {
        return NULL;
    }
    (void)fputs("Commands:\n", out);
    for (size_t i = 0; i < COMMANDS; i++) {
        (void)fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fputs("\n'halage-sim COMMAND --help' says more.", out);
    if (fclose(out) != 0) {
        free(grown);
        return NULL;
    }
    return grown;
}

/* One line: what was wrong, then all that is valid. */
static int report_command(const char *word)
{
    if (word == NULL) {
        (void)fputs("halage-sim: no command; valid:", stderr);
    } else {
        (void)fprintf(stderr, "halage-sim: unknown command '%s'; valid:", word);
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        (void)fprintf(stderr, " %s", commands[i].name);
    }
    (void)fputc('\n', stderr);
    return CLI_BAD_INPUT;
}

int main(int argc, char **argv)
{
    static char program[] = "halage-sim";
    const struct argp options = {
        .parser = parse,
        .args_doc = "COMMAND [OPTION...]",
        .doc =
            "Simulate clusters that prefill and decode apart, with the messenger's own core over "
            "simulated links.\v",
        .help_filter = add_commands,
    };
    struct choice choice = {0};
    if (argc < 1) {
        return report_command(NULL);
    }
    argv[0] = program;
    if (options_parse(&options, argc, argv, ARGP_IN_ORDER, &choice) != 0) {
        return CLI_BAD_INPUT;
    }
    if (choice.index == 0) {
        return report_command(NULL);
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[choice.index], commands[i].name) == 0) {
            char name[32];
            (void)snprintf(name, sizeof name, "halage-sim %s", commands[i].name);
            argv[choice.index] = name;
            return commands[i].run(argc - choice.index, argv + choice.index);
        }
    }
    return report_command(argv[choice.index]);
}
