/*
 * The keys of a scenario file: one table from which files are read, checked and written, overrides
 * are set, digests are made and docs/simulation.md's table comes.
 */
#ifndef HALAGE_SIM_SCENARIO_KEY_H
#define HALAGE_SIM_SCENARIO_KEY_H

#include "scenario.h"
#include "scenario_unit.h"

enum sim_key_kind {
    SIM_KEY_COUNT, /* uint32_t */
    SIM_KEY_WIDE,  /* uint64_t */
    SIM_KEY_BOOL,
    SIM_KEY_REAL,  /* double, with a unit */
    SIM_KEY_TIME,  /* hlg_time; its word is HLG_TIME_NEVER */
    SIM_KEY_WORD,  /* an enum, by the words in its order */
    SIM_KEY_TEXT,  /* char [capacity] */
    SIM_KEY_LIST,  /* double [SIM_DRAFT_MAX], of the length that `draft` says */
    SIM_KEY_DRAFT, /* uses the first so many of that list */
    /* What is more than a field. */
    SIM_KEY_SCHEMA,
    SIM_KEY_EXTENDS,
    SIM_KEY_NODE,   /* a preset: sets GPUs and NICs */
    SIM_KEY_MODEL,  /* a name of the catalogue: sets the whole model */
    SIM_KEY_CONFIG, /* a Hugging Face file: likewise */
    SIM_KEY_GPU,
    SIM_KEY_NIC, /* a name of the catalogue: sets the whole NIC */
    SIM_KEY_FOLD,
    SIM_KEY_TOKENS, /* lengths fixed at so many tokens */
    SIM_KEY_CDF,    /* a file of lengths */
};

enum sim_key_flag {
    SIM_KEY_ALIAS = 1,   /* says in short what other keys say; never written */
    SIM_KEY_DERIVED = 2, /* comes with a name; written as a comment unless it differs */
    SIM_KEY_LABEL = 4,   /* no run depends on it */
};

struct sim_key {
    const char *path; /* "prefill.tp" */
    uint8_t kind;
    uint8_t unit; /* enum sim_unit */
    uint8_t flags;
    size_t offset; /* in struct sim_scenario */
    size_t capacity;
    double min;
    double max;
    const char *word; /* stands for word_value */
    double word_value;
    const char *const *words; /* ends with NULL */
    const char *comment;
};

extern const struct sim_key sim_keys[];
extern const uint32_t sim_key_count;

/* The mappings of the file, outermost first: "", "model", ..., "traffic.arrivals". NULL past the end. */
const char *sim_key_group(uint32_t index);
/* Whether a path lies right in a group; *name is then its last word. */
bool sim_key_in_group(const char *path, const char *group, const char **name);

/* The key of a path, or NULL. */
const struct sim_key *sim_key_find(const char *path);

/* Whether a run depends on a key, as the scenario stands. */
bool sim_key_matters(const struct sim_scenario *scenario, const struct sim_key *key);

/* Whom a value comes from, for the sentence. */
struct sim_key_source {
    const char *name;   /* "file.yaml", or "-s" */
    const char *file;   /* the file, in which lines are found; NULL: none */
    const char *beside; /* a file beside which others are looked for; NULL: none */
    bool custom_model;  /* a model's name may be unknown: its numbers follow */
};

/*
 * Set a key from text. `text` [capacity]: on error a sentence. Returns 0 or -HLG_EINVAL, with nothing
 * changed.
 */
int sim_key_set(struct sim_scenario *scenario, const struct sim_key *key, const char *value,
                const struct sim_key_source *source, char *text, size_t capacity);

/* The same for a list of shares (SIM_KEY_LIST). */
int sim_key_set_list(struct sim_scenario *scenario, const struct sim_key *key,
                     const char *const *values, uint32_t count, const struct sim_key_source *source,
                     char *text, size_t capacity);

/* A field of a fault: kind, at, role, node, nic, factor. Returns 0 or -HLG_EINVAL with a sentence. */
int sim_key_set_fault(struct sim_fault *fault, uint32_t index, const char *field, const char *value,
                      const struct sim_key_source *source, char *text, size_t capacity);
/* The names of a fault's fields; NULL past the end. */
const char *sim_key_fault_field(uint32_t index);
void sim_key_print_fault(const struct sim_fault *fault, const char *field, char *text,
                         size_t capacity);

#define SIM_KEY_TEXT_BYTES (2 * SIM_PATH_MAX)
/* What sim_key_set() would take to set the key as it is. */
void sim_key_print(const struct sim_scenario *scenario, const struct sim_key *key,
                   char text[SIM_KEY_TEXT_BYTES]);

/* Print "name: line N: key: 'value': remedy", as far as they are known. Returns -HLG_EINVAL. */
int sim_key_refuse(const struct sim_key_source *source, const char *path, const char *value,
                   const char *remedy, char *text, size_t capacity);

/* Names of the catalogues, for a remedy: "valid: a, b, c". */
void sim_key_names(char *text, size_t capacity, const char *(*at)(uint32_t index));

#endif
