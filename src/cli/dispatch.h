/*
 * A program of several commands: finds the command and hands the rest of the line to it.
 */
#ifndef HALAGE_CLI_DISPATCH_H
#define HALAGE_CLI_DISPATCH_H

#include <stddef.h>

struct dispatch_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is "<program> <command>" */
    const char *summary;               /* for --help, one line */
};

struct dispatch {
    const char *name;                        /* of the program, below 32 bytes */
    const char *doc;                         /* for --help, ends in \v */
    const struct dispatch_command *commands; /* [count] */
    size_t count;
};

/* Returns what the command returns, or CLI_BAD_INPUT with one line on stderr that names all commands. */
int dispatch(const struct dispatch *program, int argc, char **argv);

#endif
