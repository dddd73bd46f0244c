#define _GNU_SOURCE /* asprintf() */
#include "config_file.h"

#include "cli.h"
#include "yaml_file.h"

#include <halage/base.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 64u

struct keys {
    const struct argp_option *rows[KEYS_MAX];
    cyaml_schema_field_t fields[KEYS_MAX + 1]; /* the last is the end */
    cyaml_schema_value_t schema;
    uint32_t count;
};

/* The file that the words name last, or NULL. */
static const char *find_file(int argc, char **argv)
{
    static const char option[] = "--config";
    const char *file = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], option) == 0 && i + 1 < argc) {
            file = argv[++i];
        } else if (strncmp(argv[i], "--config=", sizeof option) == 0) {
            file = argv[i] + sizeof option;
        }
    }
    return file;
}

static void make_keys(const struct argp_option *row, struct keys *keys)
{
    for (; row->name != NULL || row->key != 0; row++) {
        if (row->name == NULL || (row->flags & OPTION_HIDDEN) != 0 ||
            strcmp(row->name, "config") == 0) {
            continue;
        }
        HLG_ASSERT(keys->count < KEYS_MAX);
        keys->fields[keys->count] = (cyaml_schema_field_t){
            .key = row->name,
            .data_offset = keys->count * (uint32_t)sizeof(char *),
            .value = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, char, 0,
                                         CYAML_UNLIMITED)},
        };
        keys->rows[keys->count++] = row;
    }
    keys->fields[keys->count] = (cyaml_schema_field_t)CYAML_FIELD_END;
    keys->schema = (cyaml_schema_value_t){
        .type = CYAML_MAPPING,
        .flags = CYAML_FLAG_POINTER,
        .data_size = keys->count * (uint32_t)sizeof(char *),
        .mapping.fields = keys->fields,
    };
}

static int refuse(const char *program, const char *file, const char *key, const char *value,
                  const char *remedy)
{
    char text[256];
    char place[24] = "";
    const uint32_t line = yaml_file_line(file, key);
    if (line != 0) {
        (void)snprintf(place, sizeof place, "line %" PRIu32 ": ", line);
    }
    (void)snprintf(text, sizeof text, "%.60s: '%.60s': %s", key, value, remedy);
    yaml_file_one_line(text);
    (void)options_error(program, "%s: %s%s", file, place, text);
    return CLI_BAD_INPUT;
}

/* One word for each key that the file has. */
static int make_words(const struct keys *keys, char *const *values, const char *program,
                      const char *file, char **words, int *count)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        const char *name = keys->rows[i]->name;
        const char *value = values[i];
        const bool flag = keys->rows[i]->arg == NULL;
        if (value == NULL || (flag && strcmp(value, "false") == 0)) {
            continue;
        }
        if (flag && strcmp(value, "true") != 0) {
            return refuse(program, file, name, value, "write true or false");
        }
        if (*value == '\0') {
            return refuse(program, file, name, value, "write a value, or take the key out");
        }
        const int made = flag ? asprintf(&words[*count], "--%s", name)
                              : asprintf(&words[*count], "--%s=%s", name, value);
        if (made < 0) {
            (void)options_error(program, "%s: no memory", file);
            return CLI_FAILED;
        }
        yaml_file_one_line(words[*count]);
        ++*count;
    }
    return 0;
}

int config_file_parse(const struct argp *options, int argc, char **argv, void *input,
                      const char **file)
{
    struct keys keys = {.count = 0};
    char error[YAML_FILE_ERROR_BYTES];
    void *values = NULL;
    const char *environment = getenv("HALAGE_CONFIG");

    *file = find_file(argc, argv);
    if (*file == NULL && environment != NULL && *environment != '\0') {
        *file = environment;
    }
    if (*file == NULL) {
        return options_parse(options, argc, argv, 0, input);
    }
    make_keys(options->options, &keys);
    static char **words; /* the parser's arguments point into these: they stay */
    words = calloc((size_t)argc + keys.count + 1, sizeof *words);
    if (words == NULL) {
        return CLI_FAILED;
    }
    int count = 0;
    words[0] = argv[0];
    if (yaml_file_load(*file, &keys.schema, &values, error, sizeof error) != 0) {
        yaml_file_one_line(error);
        (void)options_error(argv[0], "%s%s", *file == environment ? "HALAGE_CONFIG: " : "", error);
        return CLI_BAD_INPUT;
    }
    int status = make_words(&keys, values, argv[0], *file, words + 1, &count);
    yaml_file_free(&keys.schema, values);
    for (int i = 1; i < argc; i++) {
        words[count + i] = argv[i];
    }
    if (status == 0) {
        status = options_parse_after(options, *file, count, argc + count, words, input);
    }
    return status;
}
