/*
 * JSON of a command, to a file or stdout.
 */
#ifndef HALAGE_CLI_JSON_OUT_H
#define HALAGE_CLI_JSON_OUT_H

#include <jansson.h>
#include <stdio.h>

/* Write `root` to the file, "-" being stdout, and give it up. NULL is memory that could not be had. Returns an enum
 * cli_exit; one line was said unless it is CLI_DONE. */
int json_out_write(const char *program, const char *file, json_t *root);

/* Where the text of a command goes whose JSON goes to `file` (NULL: none): stdout, or stderr where stdout is the JSON's. */
FILE *json_out_text(const char *file);

/* After the text was printed to `text`: whether all of it was, and then json_out_write(), unless `file` is NULL. Gives
 * `root` up. Returns an enum cli_exit; one line was said unless it is CLI_DONE. */
int json_out_end(const char *program, FILE *text, const char *file, json_t *root);

#endif
