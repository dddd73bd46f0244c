/* YAML files. libcyaml (1.3.1) tells what went wrong only in the text that it logs, and its line
 * numbers are those of the last event, not of the culprit. So the text is read for the kind of the
 * error and the keys around it, and the sentence is made here, from the schema. */
#include "yaml_file.h"

#include "yaml_check.h"

#include <halage/base.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES  (16u << 20) /* nobody writes more by hand */
#define KEY_BYTES   64u
#define DEPTH_MAX   8u
#define PLACE_BYTES 24u

/* What the log said of the first error. */
#define PATH_BYTES ((DEPTH_MAX + 1) * KEY_BYTES)

struct report {
    char line[128];                  /* the error itself */
    char keys[DEPTH_MAX][KEY_BYTES]; /* of the mappings around it, innermost first */
    uint32_t depth;
};

static void hear(cyaml_log_t level, void *context, const char *format, va_list arguments)
{
    struct report *report = context;
    char line[256];
    char key[KEY_BYTES];
    (void)level;
    if (vsnprintf(line, sizeof line, format, arguments) < 0) {
        return;
    }
    line[strcspn(line, "\n")] = '\0';
    if (report->line[0] == '\0') {
        (void)snprintf(report->line, sizeof report->line, "%.127s", line);
    } else if (sscanf(line, "  in mapping field '%63[^']'", key) == 1 &&
               report->depth < DEPTH_MAX) {
        memcpy(report->keys[report->depth], key, sizeof key);
        report->depth++;
    }
}

static cyaml_config_t make_config(struct report *report)
{
    return (cyaml_config_t){
        .log_fn = hear,
        .log_ctx = report,
        .mem_fn = cyaml_mem,
        .log_level = CYAML_LOG_ERROR,
    };
}

/* The schema of an element, through the lists around it. */
static const cyaml_schema_value_t *entry_of(const cyaml_schema_value_t *value)
{
    return value->type == CYAML_SEQUENCE ? value->sequence.entry : value;
}

/* The schema of the innermost key of the report, or NULL. */
static const cyaml_schema_value_t *find_schema(const struct report *report,
                                               const cyaml_schema_value_t *schema)
{
    for (uint32_t depth = report->depth; depth > 0; depth--) {
        schema = entry_of(schema);
        if (schema->type != CYAML_MAPPING) {
            return NULL;
        }
        const cyaml_schema_field_t *field = schema->mapping.fields;
        while (field->key != NULL && strcmp(field->key, report->keys[depth - 1]) != 0) {
            field++;
        }
        if (field->key == NULL) {
            return NULL;
        }
        schema = &field->value;
    }
    return schema;
}

/* The path of the innermost key, and of `key` in it unless it is NULL. */
static void print_path(const struct report *report, const char *key, char path[static PATH_BYTES])
{
    size_t used = 0;
    path[0] = '\0';
    for (uint32_t depth = report->depth; depth > 0; depth--) {
        used += (size_t)snprintf(path + used, PATH_BYTES - used, "%s%s", used == 0 ? "" : ".",
                                 report->keys[depth - 1]);
    }
    if (key != NULL) {
        (void)snprintf(path + used, PATH_BYTES - used, "%s%.63s", used == 0 ? "" : ".", key);
    }
}

/* "line 3: ", or nothing where it is not known. */
static void print_line(const struct report *report, const char *file, const char *key,
                       char place[static PLACE_BYTES])
{
    char path[PATH_BYTES];
    print_path(report, key, path);
    const uint32_t line = yaml_file_line(file, path);
    place[0] = '\0';
    if (line != 0) {
        (void)snprintf(place, PLACE_BYTES, "line %" PRIu32 ": ", line);
    }
}

static void print_unknown(const struct report *report, const cyaml_schema_value_t *schema,
                          const char *file, const char *key, char *error, size_t capacity)
{
    const cyaml_schema_value_t *around = find_schema(report, schema);
    char valid[1024] = "";
    char place[PLACE_BYTES];
    size_t used = 0;
    around = around == NULL ? NULL : entry_of(around);
    for (const cyaml_schema_field_t *field =
             around != NULL && around->type == CYAML_MAPPING ? around->mapping.fields : NULL;
         field != NULL && field->key != NULL && used < sizeof valid; field++) {
        const int bytes =
            snprintf(valid + used, sizeof valid - used, "%s%s", used == 0 ? "" : ", ", field->key);
        used += bytes > 0 ? (size_t)bytes : 0;
    }
    print_line(report, file, key, place);
    (void)snprintf(error, capacity, "%s: %sunknown key '%.60s'%s%s; valid keys: %s", file, place,
                   key, report->depth > 0 ? " in " : "", report->depth > 0 ? report->keys[0] : "",
                   valid);
}

static void print_shape(const struct report *report, const cyaml_schema_value_t *schema,
                        const char *file, char *error, size_t capacity)
{
    const cyaml_schema_value_t *value = find_schema(report, schema);
    const bool in_entry = value != NULL && value->type == CYAML_SEQUENCE &&
                          strstr(report->line, "Expecting SEQUENCE") == NULL;
    const cyaml_schema_value_t *wanted = in_entry ? entry_of(value) : value;
    const char *shape = "one value";
    char place[PLACE_BYTES];
    if (wanted != NULL && wanted->type == CYAML_SEQUENCE) {
        shape = "a list, such as [a, b]";
    } else if (wanted != NULL && wanted->type == CYAML_MAPPING) {
        shape = "keys with values, one a line";
    }
    char path[PATH_BYTES];
    print_path(report, NULL, path);
    print_line(report, file, NULL, place);
    (void)snprintf(error, capacity, "%s: %s%s%s: the wrong shape; write %s", file, place,
                   report->depth > 0 ? path : "the file", in_entry ? ", an entry" : "", shape);
}

static void print_error(cyaml_err_t result, const struct report *report,
                        const cyaml_schema_value_t *schema, const char *file, char *error,
                        size_t capacity)
{
    static const char unknown[] = "Load: Unexpected key: ";
    static const char twice[] = "Load: Mapping field already seen: ";
    static const char syntax[] = "Load: libyaml: ";
    const char *line = report->line;
    if (strncmp(line, unknown, sizeof unknown - 1) == 0) {
        print_unknown(report, schema, file, line + sizeof unknown - 1, error, capacity);
    } else if (strncmp(line, twice, sizeof twice - 1) == 0) {
        (void)snprintf(error, capacity, "%s: %s: the key is there twice; keep one", file,
                       line + sizeof twice - 1);
    } else if (strncmp(line, syntax, sizeof syntax - 1) == 0) {
        (void)snprintf(error, capacity, "%s: not YAML: %s", file, line + sizeof syntax - 1);
    } else if (strncmp(line, "Load: Expecting", 15) == 0) {
        print_shape(report, schema, file, error, capacity);
    } else if (result == CYAML_ERR_INTERNAL_ERROR) {
        (void)snprintf(error, capacity,
                       "%s: a key is no plain word; write keys with values, one a line", file);
    } else {
        (void)snprintf(error, capacity, "%s: cannot be read: %s", file, cyaml_strerror(result));
    }
}

/* All of a file, which the caller frees. It is read once: it may be a pipe. NULL: `error` is a sentence. */
static uint8_t *read_file(const char *file, size_t *count, char *error, size_t capacity)
{
    uint8_t *bytes = NULL;
    size_t room = 0;
    FILE *in = fopen(file, "r");
    if (in == NULL) {
        (void)snprintf(error, capacity, "%s: cannot be opened: %s", file, strerror(errno));
        return NULL;
    }
    *count = 0;
    do {
        room = room == 0 ? 4096 : 2 * room;
        uint8_t *grown = room <= FILE_BYTES ? realloc(bytes, room) : NULL;
        if (grown == NULL) {
            (void)snprintf(error, capacity, "%s: is larger than %u bytes, or than memory", file,
                           FILE_BYTES);
            free(bytes);
            (void)fclose(in);
            return NULL;
        }
        bytes = grown;
        *count += fread(bytes + *count, 1, room - *count, in);
    } while (*count == room);
    if (ferror(in)) {
        (void)snprintf(error, capacity, "%s: cannot be read: %s", file, strerror(errno));
        free(bytes);
        bytes = NULL;
    }
    (void)fclose(in);
    return bytes;
}

int yaml_file_load(const char *file, const cyaml_schema_value_t *schema, void **data, char *error,
                   size_t capacity)
{
    struct report report = {0};
    const cyaml_config_t config = make_config(&report);
    size_t count = 0;
    void *loaded = NULL;
    uint8_t *bytes = read_file(file, &count, error, capacity);
    if (bytes == NULL) {
        return -HLG_EINVAL;
    }
    if (yaml_check(file, bytes, count, error, capacity) != 0) {
        yaml_file_one_line(error);
        free(bytes);
        return -HLG_EINVAL;
    }
    const cyaml_err_t result = cyaml_load_data(bytes, count, &config, schema, &loaded, NULL);
    free(bytes);
    if (result != CYAML_OK) {
        print_error(result, &report, schema, file, error, capacity);
        return -HLG_EINVAL;
    }
    if (loaded == NULL) {
        (void)snprintf(error, capacity, "%s: the file is empty", file);
        return -HLG_EINVAL;
    }
    *data = loaded;
    return 0;
}

void yaml_file_free(const cyaml_schema_value_t *schema, void *data)
{
    struct report report = {0};
    const cyaml_config_t config = make_config(&report);
    (void)cyaml_free(&config, schema, data, 0); /* it can only refuse bad arguments */
}

void yaml_file_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = ' ';
        }
    }
}
