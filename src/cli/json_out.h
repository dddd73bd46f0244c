/*
 * JSON of a command, to a file or stdout.
 */
#ifndef HALAGE_CLI_JSON_OUT_H
#define HALAGE_CLI_JSON_OUT_H

#include <jansson.h>

/* Write `root` to the file, "-" being stdout, and give it up. NULL is memory that could not be had. Returns an enum
 * cli_exit; one line was said unless it is CLI_DONE. */
int json_out_write(const char *program, const char *file, json_t *root);

#endif
