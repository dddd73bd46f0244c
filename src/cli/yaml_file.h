/*
 * YAML files by libcyaml, with errors of our own: file, key, and what is valid by the schema.
 * (yaml_free() and its like are names of libyaml, which libcyaml calls.)
 */
#ifndef HALAGE_CLI_YAML_FILE_H
#define HALAGE_CLI_YAML_FILE_H

#include <cyaml/cyaml.h>
#include <stddef.h>

/* Room for every error of yaml_file_load(). Longer words from the file are cut. */
#define YAML_FILE_ERROR_BYTES 2048u

/*
 * Load a file, or a pipe: it is read once. A second document is refused, and a key or an entry without a value ("a:",
 * "a: ~", "a: null"), with its line.
 *
 * schema  a mapping with CYAML_FLAG_POINTER. Let its scalars be optional strings, and check them
 *         where the error can name the key and the remedy; sequences and mappings may nest
 * data    set on success; give it back to yaml_file_free()
 * error   [capacity] bytes; one line on failure
 *
 * Returns 0, or -HLG_EINVAL.
 */
int yaml_file_load(const char *file, const cyaml_schema_value_t *schema, void **data, char *error,
                   size_t capacity);

/*
 * Line of a key by its path, such as "traffic.arrivals.rate" or "faults.1.at", counted from 1. 0 when it
 * cannot be told: the key is not there, is there twice, or stands in braces over several lines, or the file is a pipe.
 */
uint32_t yaml_file_line(const char *file, const char *path);

/* Put spaces for control characters that a value brought into a sentence, so that it stays one line. */
void yaml_file_one_line(char *text);

void yaml_file_free(const cyaml_schema_value_t *schema, void *data);

#endif
