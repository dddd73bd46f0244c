/*
 * Layouts as YAML: docs/layouts.md describes the format.
 */
#ifndef HALAGE_CLI_LAYOUT_YAML_H
#define HALAGE_CLI_LAYOUT_YAML_H

#include "yaml_file.h"

#include <halage/layout.h>

/* A layout as it stands in a file, NULL where a key is absent. */
struct layout_yaml_group {
    char *kind;
    char *planes;
    char *heads;
    char *head_bytes;
    char *page_tokens;
    char *arrangement;
    char *page_count;
    char **layers;
    uint32_t layers_count;
};

struct layout_yaml {
    char *tp;
    char *stages;
    char *pools;
    char *layers;
    char *ranks;
    char *all_reduce;
    char *piece_bytes_max;
    char **stage_layers;
    uint32_t stage_layers_count;
    struct layout_yaml_group *groups;
    uint32_t groups_count;
};

/* Schema of struct layout_yaml, for files that hold a layout under some key of theirs. */
extern const cyaml_schema_field_t layout_yaml_fields[];

/*
 * Make a layout of what a file holds.
 *
 * raw     loaded by layout_yaml_fields
 * file    for the error
 * layout  written on success
 * error   [capacity] bytes, YAML_FILE_ERROR_BYTES is enough; one line on failure: file, key, value, remedy
 *
 * Returns 0; -HLG_EINVAL for a bad file; -HLG_EPLAN when each value is good, yet TP and heads do not
 * divide.
 */
int layout_yaml_convert(const struct layout_yaml *raw, const char *file, struct hlg_layout *layout,
                        char *error, size_t capacity);

/* Read a file that holds one layout. As layout_yaml_convert(). */
int layout_yaml_read(const char *file, struct hlg_layout *layout, char *error, size_t capacity);

#endif
