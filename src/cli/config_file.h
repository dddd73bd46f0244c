/*
 * A YAML file in place of options: each key is the long name of one, without its dashes.
 */
#ifndef HALAGE_CLI_CONFIG_FILE_H
#define HALAGE_CLI_CONFIG_FILE_H

#include "options.h"

/* Row of the commands that take one; its key does nothing in a parser. */
#define CONFIG_FILE_ROW(key)                                                                     \
    {                                                                                            \
        "config", key, "FILE", 0,                                                                \
            "YAML file whose keys are these options; options that are given outdo it (default: " \
            "HALAGE_CONFIG)",                                                                    \
            0                                                                                    \
    }

/*
 * Parse a command line as options_parse() does, after the options of a file: that of --config, or else the one that
 * the environment variable HALAGE_CONFIG names, or else none. Keys are the printable options but `config`; an option
 * without a value takes true or false. What the file's values are refused for names the file.
 *
 * file  which file that was, or NULL; of argv or the environment
 *
 * Returns 0, or CLI_BAD_INPUT after one line on stderr. The parser may keep its arguments: the file's words stay for the
 * life of the process.
 */
int config_file_parse(const struct argp *options, int argc, char **argv, void *input,
                      const char **file);

#endif
