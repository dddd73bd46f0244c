/*
 * Scenario files as libcyaml loads them: every scalar as text, by the table of keys.
 */
#ifndef HALAGE_SIM_SCENARIO_FILE_H
#define HALAGE_SIM_SCENARIO_FILE_H

#include "scenario_key.h"

#define SIM_FILE_KEYS_MAX    SIM_KEYS_MAX
#define SIM_FILE_LISTS_MAX   4u
#define SIM_FILE_EXTENDS_MAX 8u
#define SIM_FAULT_FIELDS     6u

struct sim_file_list {
    char **values;
    uint32_t values_count;
};

struct sim_file_fault {
    char *fields[SIM_FAULT_FIELDS]; /* in the order of sim_key_fault_field() */
};

struct sim_file_axis {
    char *key;
    char *name;
    char **values;
    uint32_t values_count;
    char **cases;
    uint32_t cases_count;
};

/* What one file says. */
struct sim_file {
    char *values[SIM_FILE_KEYS_MAX]; /* by number of the key; NULL: absent */
    struct sim_file_list lists[SIM_FILE_LISTS_MAX];
    struct sim_file_fault *faults;
    uint32_t faults_count;
    struct sim_file_axis *sweep;
    uint32_t sweep_count;
};

/* Number of the list of a key of SIM_KEY_LIST. */
uint32_t sim_file_list_index(const struct sim_key *key);

/* A file and those that it extends, from itself outward. */
struct sim_file_chain {
    struct sim_file *files[SIM_FILE_EXTENDS_MAX];
    char paths[SIM_FILE_EXTENDS_MAX][SIM_PATH_MAX];
    uint32_t count;
};

/* Load them all. Returns 0, -HLG_EINVAL or -HLG_ENOMEM with a sentence. */
int sim_file_load(struct sim_file_chain *chain, const char *path, char *text, size_t capacity);
void sim_file_free(struct sim_file_chain *chain);

#endif
