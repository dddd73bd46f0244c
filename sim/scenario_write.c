/* Scenario files written from the table of keys. */
#include "scenario_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN 44 /* of the comments */

/* A scenario with nothing but what the catalogues say, to see what comes from there. */
static void make_reference(struct sim_scenario *reference, const struct sim_scenario *scenario)
{
    const struct sim_model *const model = sim_model_find(scenario->model.name);
    const struct sim_nic *const nic = sim_nic_find(scenario->network.nic.name);
    *reference = *scenario;
    reference->model = model != NULL ? *model : (struct sim_model){0};
    reference->network.nic = nic != NULL ? *nic : (struct sim_nic){0};
}

static bool is_derived(const struct sim_scenario *scenario, const struct sim_scenario *reference,
                       const struct sim_key *key)
{
    char here[SIM_KEY_TEXT_BYTES];
    char there[SIM_KEY_TEXT_BYTES];
    if ((key->flags & SIM_KEY_DERIVED) == 0) {
        return false;
    }
    sim_key_print(scenario, key, here);
    sim_key_print(reference, key, there);
    return strcmp(here, there) == 0;
}

static bool is_text(const struct sim_key *key)
{
    return key->kind == SIM_KEY_TEXT || key->kind == SIM_KEY_MODEL || key->kind == SIM_KEY_CONFIG ||
           key->kind == SIM_KEY_GPU || key->kind == SIM_KEY_NIC || key->kind == SIM_KEY_CDF;
}

/* Between double quotes, as YAML wants them. */
static size_t quote(const char *text, char *quoted, size_t capacity)
{
    size_t used = 0;
    quoted[used++] = '"';
    for (; *text != '\0' && used + 8 < capacity; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            quoted[used++] = '\\';
            quoted[used++] = *text;
        } else if (byte < ' ') {
            used += (size_t)snprintf(quoted + used, capacity - used, "\\x%02x", byte);
        } else {
            quoted[used++] = *text;
        }
    }
    quoted[used++] = '"';
    quoted[used] = '\0';
    return used;
}

/* Whether a text is a plain word, which needs no quotes. */
static bool is_plain(const char *text)
{
    const size_t bytes = strlen(text);
    return bytes > 0 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-") ==
               bytes &&
           text[0] != '-';
}

static void write_key(FILE *file, const struct sim_scenario *scenario,
                      const struct sim_scenario *reference, const struct sim_key *key,
                      const char *name, int indent, bool comments)
{
    char value[SIM_KEY_TEXT_BYTES];
    char quoted[2 * SIM_KEY_TEXT_BYTES];
    char line[3 * SIM_KEY_TEXT_BYTES];
    const bool derived = is_derived(scenario, reference, key);
    if ((key->flags & SIM_KEY_ALIAS) != 0 || (derived && !comments)) {
        return;
    }
    sim_key_print(scenario, key, value);
    if (is_text(key) && !is_plain(value)) {
        (void)quote(value, quoted, sizeof quoted);
    } else {
        (void)snprintf(quoted, sizeof quoted, "%s", value);
    }
    (void)snprintf(line, sizeof line, "%*s%s%s: %s", indent, "", derived ? "# " : "", name, quoted);
    if (comments) {
        (void)fprintf(file, "%-*s # %s\n", COLUMN, line, key->comment);
    } else {
        (void)fprintf(file, "%s\n", line);
    }
}

static void write_faults(FILE *file, const struct sim_scenario *scenario, bool comments)
{
    char value[SIM_KEY_TEXT_BYTES];
    if (comments) {
        (void)fputs(
            "\n# What breaks, and when: kind kill, restart, slow (a NIC at `factor` of its "
            "bandwidth; "
            "1 repairs)\n# or link (factor 0: down, 1: up); role prefill, decode or colocated; "
            "node and "
            "nic counted from 0,\n# or nic: all. For example:\n#   - {kind: kill, at: 60s, role: "
            "decode, node: 0}\n",
            file);
    }
    if (scenario->fault_count == 0) {
        return;
    }
    (void)fputs("faults:\n", file);
    for (uint32_t i = 0; i < scenario->fault_count; i++) {
        (void)fputs("  - {", file);
        for (uint32_t k = 0; sim_key_fault_field(k) != NULL; k++) {
            sim_key_print_fault(&scenario->faults[i], sim_key_fault_field(k), value, sizeof value);
            (void)fprintf(file, "%s%s: %s", k == 0 ? "" : ", ", sim_key_fault_field(k), value);
        }
        (void)fputs("}\n", file);
    }
}

static void write_group(FILE *file, const struct sim_scenario *scenario,
                        const struct sim_scenario *reference, const char *group, bool comments)
{
    const char *name = group;
    int indent = 0;
    for (const char *at = group; at != NULL && *at != '\0'; at = strchr(at, '.')) {
        at += *at == '.' ? 1 : 0;
        name = at;
        indent += 2;
    }
    if (indent > 0) {
        (void)fprintf(file, "%s%*s%s:\n", indent == 2 && comments ? "\n" : "", indent - 2, "",
                      name);
    }
    for (uint32_t i = 0; i < sim_key_count; i++) {
        if (sim_key_in_group(sim_keys[i].path, group, &name)) {
            write_key(file, scenario, reference, &sim_keys[i], name, indent, comments);
        }
    }
}

int sim_scenario_write(const struct sim_scenario *scenario, bool comments, FILE *file)
{
    struct sim_scenario *const reference = malloc(sizeof *reference);
    if (reference == NULL) {
        return -HLG_EIO;
    }
    make_reference(reference, scenario);
    if (comments) {
        (void)fputs("# A scenario of halage-sim: every key with its value and meaning. What is "
                    "left out has the\n"
                    "# value shown by `halage-sim init`; of colocated's engine it has decode's. "
                    "Times, rates, bytes\n"
                    "# and bandwidths need their unit. Keys behind # come with the name above "
                    "them, and may be set to\n# differ from it.\n",
                    file);
    }
    for (uint32_t i = 0; sim_key_group(i) != NULL; i++) {
        write_group(file, scenario, reference, sim_key_group(i), comments);
    }
    write_faults(file, scenario, comments);
    free(reference);
    return fflush(file) == 0 && ferror(file) == 0 ? 0 : -HLG_EIO;
}
