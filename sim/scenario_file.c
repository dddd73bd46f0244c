/* libcyaml wants a schema; it is built here from the table of keys. All mappings share one struct, so
 * that a key's text lies where its number says, however deep the key. */
#define _GNU_SOURCE /* realpath() */
#include "scenario_file.h"

#include "scenario_path.h"
#include "yaml_file.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 16u
/* Of one mapping: its keys, mappings within it, faults, sweep and the end. */
#define FIELDS_MAX (SIM_FILE_KEYS_MAX + GROUPS_MAX + 3)

static const cyaml_schema_value_t text_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED),
};

#define TEXT(type, key)                                                                  \
    CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, key, 0, \
                           CYAML_UNLIMITED)
#define LIST(type, key, entry)                                                                \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, key, entry, 0, \
                         CYAML_UNLIMITED)

static const cyaml_schema_field_t axis_fields[] = {
    TEXT(struct sim_file_axis, key),
    TEXT(struct sim_file_axis, name),
    LIST(struct sim_file_axis, values, &text_schema),
    LIST(struct sim_file_axis, cases, &text_schema),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t axis_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct sim_file_axis, axis_fields),
};

static const cyaml_schema_field_t sweep_field = LIST(struct sim_file, sweep, &axis_schema);

struct schema {
    cyaml_schema_field_t fields[GROUPS_MAX][FIELDS_MAX];
    cyaml_schema_field_t fault_fields[SIM_FAULT_FIELDS + 1];
    cyaml_schema_value_t fault;
    cyaml_schema_value_t root;
};

uint32_t sim_file_list_index(const struct sim_key *key)
{
    uint32_t index = 0;
    HLG_ASSERT(key->kind == SIM_KEY_LIST);
    for (const struct sim_key *before = sim_keys; before != key; before++) {
        index += before->kind == SIM_KEY_LIST;
    }
    HLG_ASSERT(index < SIM_FILE_LISTS_MAX);
    return index;
}

static cyaml_schema_field_t text_field(const char *name, size_t offset)
{
    return (cyaml_schema_field_t){
        .key = name,
        .data_offset = (uint32_t)offset,
        .value = {.type = CYAML_STRING,
                  .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                  .data_size = sizeof(char),
                  .string = {.min = 0, .max = CYAML_UNLIMITED}},
    };
}

static cyaml_schema_field_t list_field(const char *name, uint32_t index)
{
    const size_t offset = offsetof(struct sim_file, lists) + index * sizeof(struct sim_file_list);
    return (cyaml_schema_field_t){
        .key = name,
        .data_offset = (uint32_t)(offset + offsetof(struct sim_file_list, values)),
        .count_offset = (uint32_t)(offset + offsetof(struct sim_file_list, values_count)),
        .count_size = sizeof(uint32_t),
        .value = {.type = CYAML_SEQUENCE,
                  .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                  .data_size = sizeof(char *),
                  .sequence = {.entry = &text_schema, .min = 0, .max = CYAML_UNLIMITED}},
    };
}

static cyaml_schema_field_t faults_field(const struct schema *schema)
{
    return (cyaml_schema_field_t){
        .key = "faults",
        .data_offset = offsetof(struct sim_file, faults),
        .count_offset = offsetof(struct sim_file, faults_count),
        .count_size = sizeof(uint32_t),
        .value = {.type = CYAML_SEQUENCE,
                  .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                  .data_size = sizeof(struct sim_file_fault),
                  .sequence = {.entry = &schema->fault, .min = 0, .max = SIM_FAULTS_MAX}},
    };
}

static void build_group(struct schema *schema, uint32_t group)
{
    cyaml_schema_field_t *field = schema->fields[group];
    const char *const path = sim_key_group(group);
    const char *name = NULL;
    for (uint32_t i = 0; i < sim_key_count; i++) {
        if (sim_key_in_group(sim_keys[i].path, path, &name)) {
            *field++ =
                sim_keys[i].kind == SIM_KEY_LIST
                    ? list_field(name, sim_file_list_index(&sim_keys[i]))
                    : text_field(name, offsetof(struct sim_file, values) + i * sizeof(char *));
        }
    }
    for (uint32_t inner = 1; sim_key_group(inner) != NULL; inner++) {
        if (inner != group && sim_key_in_group(sim_key_group(inner), path, &name)) {
            *field++ = (cyaml_schema_field_t){
                .key = name,
                .value = {.type = CYAML_MAPPING,
                          .flags = CYAML_FLAG_OPTIONAL,
                          .data_size = sizeof(struct sim_file),
                          .mapping = {.fields = schema->fields[inner]}},
            };
        }
    }
    if (group == 0) {
        *field++ = faults_field(schema);
        *field++ = sweep_field;
    }
    HLG_ASSERT(field < schema->fields[group] + FIELDS_MAX && field->key == NULL);
}

static struct schema *make_schema(void)
{
    struct schema *const schema = calloc(1, sizeof *schema);
    if (schema == NULL) {
        return NULL;
    }
    HLG_ASSERT(sim_key_count <= SIM_FILE_KEYS_MAX);
    for (uint32_t i = 0; sim_key_fault_field(i) != NULL; i++) {
        HLG_ASSERT(i < SIM_FAULT_FIELDS);
        schema->fault_fields[i] = text_field(sim_key_fault_field(i), i * sizeof(char *));
    }
    schema->fault = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                           .data_size = sizeof(struct sim_file_fault),
                                           .mapping = {.fields = schema->fault_fields}};
    for (uint32_t group = 0; sim_key_group(group) != NULL; group++) {
        HLG_ASSERT(group < GROUPS_MAX);
        build_group(schema, group);
    }
    schema->root = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                          .flags = CYAML_FLAG_POINTER,
                                          .data_size = sizeof(struct sim_file),
                                          .mapping = {.fields = schema->fields[0]}};
    return schema;
}

static const char *value_of(const struct sim_file *file, const char *path)
{
    const struct sim_key *const key = sim_key_find(path);
    HLG_ASSERT(key != NULL);
    return file->values[key - sim_keys];
}

/* Whether a file is one of the chain already. */
static bool is_known(const struct sim_file_chain *chain, const char *path)
{
    char *const name = realpath(path, NULL);
    bool known = false;
    for (uint32_t i = 0; name != NULL && i < chain->count && !known; i++) {
        char *const other = realpath(chain->paths[i], NULL);
        known = other != NULL && strcmp(name, other) == 0;
        free(other);
    }
    free(name);
    return known;
}

static int load_one(struct sim_file_chain *chain, const struct schema *schema, const char *path,
                    char *text, size_t capacity)
{
    void *data = NULL;
    if (snprintf(chain->paths[chain->count], SIM_PATH_MAX, "%s", path) >= (int)SIM_PATH_MAX) {
        (void)snprintf(text, capacity, "%.60s...: the path is too long; write at most %u bytes",
                       path, SIM_PATH_MAX - 1);
        return -HLG_EINVAL;
    }
    if (yaml_file_load(path, &schema->root, &data, text, capacity) < 0) {
        return -HLG_EINVAL;
    }
    chain->files[chain->count++] = data;
    const struct sim_key_source source = {.name = path, .file = path};
    const char *const value = value_of(data, "schema");
    if (value == NULL) {
        return sim_key_refuse(&source, "schema", NULL, "missing; begin the file with schema: 1",
                              text, capacity);
    }
    return 0;
}

static int load_chain(struct sim_file_chain *chain, const struct schema *schema, const char *path,
                      char *text, size_t capacity)
{
    char next[SIM_PATH_MAX];
    int result = load_one(chain, schema, path, text, capacity);
    while (result == 0) {
        const char *const here = chain->paths[chain->count - 1];
        const char *const extends = value_of(chain->files[chain->count - 1], "extends");
        const struct sim_key_source source = {.name = here, .file = here};
        if (extends == NULL) {
            return 0;
        }
        if (!sim_path_join(here, extends, next) || is_known(chain, next)) {
            return sim_key_refuse(&source, "extends", extends,
                                  "scenarios extend each other in a circle; take one away", text,
                                  capacity);
        }
        if (access(next, R_OK) != 0) {
            return sim_key_refuse(&source, "extends", extends,
                                  "there is no such file beside this one", text, capacity);
        }
        if (chain->count == SIM_FILE_EXTENDS_MAX) {
            return sim_key_refuse(&source, "extends", extends,
                                  "too deep; at most 8 scenarios extend each other", text,
                                  capacity);
        }
        result = load_one(chain, schema, next, text, capacity);
    }
    return result;
}

static void free_files(struct sim_file_chain *chain, const struct schema *schema)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        yaml_file_free(&schema->root, chain->files[i]);
    }
    chain->count = 0;
}

int sim_file_load(struct sim_file_chain *chain, const char *path, char *text, size_t capacity)
{
    struct schema *const schema = make_schema();
    chain->count = 0;
    if (schema == NULL) {
        (void)snprintf(text, capacity, "no memory to read %s", path);
        return -HLG_ENOMEM;
    }
    const int result = load_chain(chain, schema, path, text, capacity);
    if (result < 0) {
        free_files(chain, schema);
    }
    free(schema);
    return result;
}

void sim_file_free(struct sim_file_chain *chain)
{
    struct schema *const schema = make_schema();
    HLG_ASSERT(schema != NULL);
    free_files(chain, schema);
    free(schema);
}
