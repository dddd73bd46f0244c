/* From files and overrides to a scenario. */
#define _GNU_SOURCE /* strtok_r() */
#include "scenario.h"
#include "scenario_file.h"
#include "yaml_file.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 96u

static bool says(const struct sim_file *file, const char *path)
{
    const struct sim_key *const key = sim_key_find(path);
    HLG_ASSERT(key != NULL);
    return file->values[key - sim_keys] != NULL;
}

static int apply_faults(struct sim_scenario *scenario, const struct sim_file *file,
                        const struct sim_key_source *source, char *text, size_t capacity)
{
    scenario->fault_count = 0;
    for (uint32_t i = 0; i < file->faults_count; i++) {
        struct sim_fault fault = {.nic = HLG_NONE};
        for (uint32_t k = 0; k < SIM_FAULT_FIELDS; k++) {
            const char *const value = file->faults[i].fields[k];
            if (value != NULL && sim_key_set_fault(&fault, i, sim_key_fault_field(k), value, source,
                                                   text, capacity) < 0) {
                return -HLG_EINVAL;
            }
        }
        if (file->faults[i].fields[0] == NULL || file->faults[i].fields[1] == NULL) {
            char path[PATH_BYTES];
            (void)snprintf(path, sizeof path, "faults.%" PRIu32, i);
            return sim_key_refuse(source, path, NULL, "say what happens when: kind and at", text,
                                  capacity);
        }
        scenario->faults[scenario->fault_count++] = fault;
    }
    return 0;
}

static int apply(struct sim_scenario *scenario, const struct sim_file *file, const char *path,
                 uint8_t whence, char *text, size_t capacity)
{
    const struct sim_key_source source = {
        .name = path,
        .file = path,
        .beside = path,
        .custom_model = says(file, "model.layers") || says(file, "model.config"),
    };
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < sim_key_count; i++) {
        const struct sim_key *const key = &sim_keys[i];
        if (key->kind == SIM_KEY_LIST) {
            const struct sim_file_list *const list = &file->lists[sim_file_list_index(key)];
            if (list->values != NULL) {
                result = sim_key_set_list(scenario, key, (const char *const *)list->values,
                                          list->values_count, &source, text, capacity);
                scenario->whence[i] = whence;
            }
        } else if (file->values[i] != NULL) {
            result = sim_key_set(scenario, key, file->values[i], &source, text, capacity);
            scenario->whence[i] = whence;
        }
    }
    if (result == 0 && file->faults != NULL) {
        result = apply_faults(scenario, file, &source, text, capacity);
    }
    return result;
}

static int refuse_unknown(const struct sim_key_source *source, const char *path, char *text,
                          size_t capacity)
{
    char valid[1024];
    const char *const last = strrchr(path, '.');
    const size_t bytes = last == NULL ? 0 : (size_t)(last - path);
    const char *group = "";
    size_t used = 0;
    const char *name = NULL;
    for (uint32_t i = 0; sim_key_group(i) != NULL; i++) {
        if (strlen(sim_key_group(i)) == bytes && strncmp(sim_key_group(i), path, bytes) == 0) {
            group = sim_key_group(i);
        }
    }
    for (uint32_t i = 0; i < sim_key_count && used < sizeof valid; i++) {
        if (sim_key_in_group(sim_keys[i].path, group, &name)) {
            used += (size_t)snprintf(valid + used, sizeof valid - used, "%s%s",
                                     used == 0 ? "" : ", ", sim_keys[i].path);
        }
    }
    for (uint32_t i = 1; sim_key_group(i) != NULL && used < sizeof valid; i++) {
        if (sim_key_in_group(sim_key_group(i), group, &name)) {
            used += (size_t)snprintf(valid + used, sizeof valid - used, ", %s.*", sim_key_group(i));
        }
    }
    (void)snprintf(text, capacity, "%s: unknown key '%.60s'; valid keys: %s", source->name, path,
                   valid);
    return -HLG_EINVAL;
}

/* "[0.8, 0.5]" or "0.8, 0.5": words apart by commas. Changes the text. */
static int override_list(struct sim_scenario *scenario, const struct sim_key *key, char *value,
                         const struct sim_key_source *source, char *text, size_t capacity)
{
    const char *values[SIM_DRAFT_MAX + 1];
    uint32_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(value, "[], ", &rest); word != NULL && count <= SIM_DRAFT_MAX;
         word = strtok_r(NULL, "[], ", &rest)) {
        values[count++] = word;
    }
    return sim_key_set_list(scenario, key, values, count, source, text, capacity);
}

/* "faults.2.at" */
static int override_fault(struct sim_scenario *scenario, const char *path, const char *value,
                          const struct sim_key_source *source, char *text, size_t capacity)
{
    uint32_t index = 0;
    char field[16];
    if (strcmp(path, "faults") == 0 && strcmp(value, "[]") == 0) {
        scenario->fault_count = 0;
        return 0;
    }
    if (sscanf(path, "faults.%2" SCNu32 ".%15[a-z]", &index, field) == 2 &&
        index < SIM_FAULTS_MAX && index <= scenario->fault_count) {
        for (uint32_t i = 0; sim_key_fault_field(i) != NULL; i++) {
            if (strcmp(sim_key_fault_field(i), field) != 0) {
                continue;
            }
            struct sim_fault fault = {.kind = SIM_FAULT_KILL, .nic = HLG_NONE};
            if (index < scenario->fault_count) {
                fault = scenario->faults[index];
            }
            const int result =
                sim_key_set_fault(&fault, index, field, value, source, text, capacity);
            if (result == 0) {
                scenario->faults[index] = fault;
                scenario->fault_count = hlg_max_u32(scenario->fault_count, index + 1);
            }
            return result;
        }
    }
    return sim_key_refuse(source, path, value,
                          "write faults.N.kind, .at, .role, .node, .nic or .factor, N one of the "
                          "scenario's or the next; or faults=[]",
                          text, capacity);
}

static int override(struct sim_scenario *scenario, const char *words, char *text, size_t capacity)
{
    const struct sim_key_source source = {.name = "-s", .beside = scenario->path};
    const char *const equals = strchr(words, '=');
    char path[PATH_BYTES];
    char value[SIM_KEY_TEXT_BYTES];
    if (equals == NULL || equals == words || (size_t)(equals - words) >= sizeof path ||
        strlen(equals + 1) >= sizeof value) {
        (void)snprintf(text, capacity, "-s: '%.60s': write key.path=value, such as decode.nodes=3",
                       words);
        return -HLG_EINVAL;
    }
    (void)snprintf(path, sizeof path, "%.*s", (int)(equals - words), words);
    (void)snprintf(value, sizeof value, "%s", equals + 1);
    if (strncmp(path, "faults", 6) == 0 && (path[6] == '\0' || path[6] == '.')) {
        return override_fault(scenario, path, value, &source, text, capacity);
    }
    const struct sim_key *const key = sim_key_find(path);
    if (key == NULL) {
        return refuse_unknown(&source, path, text, capacity);
    }
    scenario->whence[key - sim_keys] = SIM_WHENCE_OVERRIDE;
    if (key->kind == SIM_KEY_LIST) {
        return override_list(scenario, key, value, &source, text, capacity);
    }
    return sim_key_set(scenario, key, value, &source, text, capacity);
}

/* Which keys the files and overrides say. Overrides with unknown keys were refused. */
static void mark_said(const struct sim_file_chain *chain, const char *const *overrides,
                      uint32_t override_count, bool said[SIM_FILE_KEYS_MAX])
{
    for (uint32_t k = 0; k < sim_key_count; k++) {
        const size_t bytes = strlen(sim_keys[k].path);
        said[k] = false;
        for (uint32_t i = 0; i < chain->count; i++) {
            said[k] |= chain->files[i]->values[k] != NULL;
        }
        for (uint32_t i = 0; i < override_count; i++) {
            said[k] |=
                strncmp(overrides[i], sim_keys[k].path, bytes) == 0 && overrides[i][bytes] == '=';
        }
    }
}

/* The engine of co-located nodes is the decode nodes', but for what is said of it: the two are compared. */
static void follow_decode(struct sim_scenario *scenario, const bool said[SIM_FILE_KEYS_MAX])
{
    const struct sim_key_source source = {.name = "colocated", .beside = scenario->path};
    const size_t from = offsetof(struct sim_scenario, decode.engine);
    const size_t to = offsetof(struct sim_scenario, colocated.engine);

    for (uint32_t k = 0; k < sim_key_count; k++) {
        const struct sim_key *const key = &sim_keys[k];
        if (said[k] || key->offset < to || key->offset >= to + sizeof(struct sim_engine)) {
            continue;
        }
        for (uint32_t i = 0; i < sim_key_count; i++) {
            char value[SIM_KEY_TEXT_BYTES];
            char text[SIM_KEY_TEXT_BYTES];
            if (sim_keys[i].offset == key->offset - to + from) {
                sim_key_print(scenario, &sim_keys[i], value);
                const int result = sim_key_set(scenario, key, value, &source, text, sizeof text);
                HLG_ASSERT(result == 0); /* what one prints the other takes */
            }
        }
    }
}

int sim_scenario_read(struct sim_scenario *scenario, const char *path, const char *const *overrides,
                      uint32_t override_count, char *text, size_t capacity)
{
    struct sim_file_chain chain;
    int result = sim_file_load(&chain, path, text, capacity);
    if (result < 0) {
        return result;
    }
    sim_scenario_default(scenario);
    (void)snprintf(scenario->path, sizeof scenario->path, "%s", path);
    for (uint32_t i = chain.count; result == 0 && i > 0; i--) {
        result =
            apply(scenario, chain.files[i - 1], chain.paths[i - 1], (uint8_t)i, text, capacity);
    }
    for (uint32_t i = 0; result == 0 && i < override_count; i++) {
        result = override(scenario, overrides[i], text, capacity);
    }
    if (result == 0) {
        bool said[SIM_FILE_KEYS_MAX];
        mark_said(&chain, overrides, override_count, said);
        follow_decode(scenario, said);
    }
    sim_file_free(&chain);
    if (result < 0) {
        sim_scenario_fini(scenario);
        yaml_file_one_line(text);
    }
    return result;
}
