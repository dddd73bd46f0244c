#include "sweep_axis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_BYTES 1024u

struct field {
    const char *begin;
    size_t bytes;
};

/* Length of the first field of [text, limit): up to `separator` outside brackets. */
static size_t field_bytes(const char *text, const char *limit, char separator)
{
    uint32_t depth = 0;
    const char *c = text;

    for (; c < limit && (*c != separator || depth != 0); c++) {
        depth += *c == '[';
        depth -= *c == ']' && depth != 0;
    }
    return (size_t)(c - text);
}

/* Fields of [text, limit), one at least. Returns how many; past `capacity` they are only counted. */
static uint32_t cut(const char *text, const char *limit, char separator, struct field *fields,
                    uint32_t capacity)
{
    uint32_t count = 0;

    for (;;) {
        const size_t bytes = field_bytes(text, limit, separator);
        if (count < capacity) {
            fields[count] = (struct field){text, bytes};
        }
        count++;
        text += bytes;
        if (text >= limit) {
            return count;
        }
        text++;
    }
}

static int bad(char *text, size_t capacity, const char *axis, const char *what)
{
    (void)snprintf(text, capacity,
                   "sweep: axis '%.60s' %s; write key=value,value,... or "
                   "key:key=value:value,...",
                   axis, what);
    return -HLG_EINVAL;
}

/* "key=value key=value" of one entry into entry [ENTRY_BYTES]. Returns NULL or what is wrong. */
static const char *write_entry(const struct field *keys, uint32_t key_count, struct field value,
                               char *entry)
{
    struct field values[SIM_AXIS_KEYS_MAX] = {value}; /* a lone key's value may have colons */
    size_t used = 0;

    if (key_count > 1 &&
        cut(value.begin, value.begin + value.bytes, ':', values, SIM_AXIS_KEYS_MAX) != key_count) {
        return "has a value that is not one for each key";
    }
    for (uint32_t i = 0; i < key_count; i++) {
        if (values[i].bytes == 0) {
            return "has an empty value";
        }
        const int bytes =
            snprintf(entry + used, ENTRY_BYTES - used, "%s%.*s=%.*s", i == 0 ? "" : " ",
                     (int)keys[i].bytes, keys[i].begin, (int)values[i].bytes, values[i].begin);
        used += (size_t)bytes;
        if (used >= ENTRY_BYTES) {
            return "has a value that is too long";
        }
    }
    return NULL;
}

/* Whether an axis of the sweep sets a key. */
static bool has_key(const struct sim_sweep *sweep, struct field key)
{
    for (uint32_t i = 0; i < sweep->axis_count; i++) {
        const struct sim_sweep_axis *axis = &sweep->axes[i];
        for (uint32_t k = 0; k < axis->begins[axis->entry_count]; k++) {
            if (strncmp(axis->overrides[k], key.begin, key.bytes) == 0 &&
                axis->overrides[k][key.bytes] == '=') {
                return true;
            }
        }
    }
    return false;
}

static const char *check_keys(const struct sim_sweep *sweep, const struct field *keys,
                              uint32_t count)
{
    if (count > SIM_AXIS_KEYS_MAX) {
        return "has more than 4 keys";
    }
    for (uint32_t i = 0; i < count; i++) {
        bool twice = has_key(sweep, keys[i]);
        for (uint32_t k = 0; k < i; k++) {
            twice |= keys[i].bytes == keys[k].bytes &&
                     strncmp(keys[i].begin, keys[k].begin, keys[i].bytes) == 0;
        }
        if (keys[i].bytes == 0 || twice) {
            return twice ? "has a key that another axis has" : "has an empty key";
        }
    }
    return NULL;
}

int sim_sweep_axis_add(struct sim_sweep *sweep, const char *word, char *text, size_t capacity)
{
    const char *const equal = strchr(word, '=');
    struct field keys[SIM_AXIS_KEYS_MAX];
    struct field *const values = calloc(SIM_SWEEP_ENTRIES_MAX, sizeof *values);
    char(*const entries)[ENTRY_BYTES] = calloc(SIM_SWEEP_ENTRIES_MAX, sizeof *entries);
    const char **const list = calloc(SIM_SWEEP_ENTRIES_MAX, sizeof *list);
    const char *what = NULL;
    int error = -HLG_EINVAL;

    if (values == NULL || entries == NULL || list == NULL) {
        (void)snprintf(text, capacity, "sweep: no memory");
        error = -HLG_ENOMEM;
    } else if (equal == NULL || equal == word) {
        error = bad(text, capacity, word, "has no '=' after a key");
    } else {
        char name[64];
        const uint32_t key_count = cut(word, equal, ':', keys, SIM_AXIS_KEYS_MAX);
        const uint32_t count =
            cut(equal + 1, word + strlen(word), ',', values, SIM_SWEEP_ENTRIES_MAX);
        what = count > SIM_SWEEP_ENTRIES_MAX ? "has more than 256 values"
                                             : check_keys(sweep, keys, key_count);
        for (uint32_t i = 0; what == NULL && i < count; i++) {
            what = write_entry(keys, key_count, values[i], entries[i]);
            list[i] = entries[i];
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)(equal - word), word);
        error = what != NULL ? bad(text, capacity, word, what)
                             : sim_sweep_add(sweep, name, list, count, text, capacity);
    }
    free(values);
    free(entries);
    free(list);
    return error;
}

uint32_t sim_sweep_count(const struct sim_sweep *sweep)
{
    return sweep->axis_count == 0 ? 1 : sweep->point_count;
}

void sim_sweep_label(const struct sim_sweep_axis *axis, uint32_t entry,
                     char label[SIM_AXIS_LABEL_BYTES])
{
    const char *name = axis->name;
    size_t used = 0;
    bool same = true;

    for (uint32_t k = axis->begins[entry]; same && k < axis->begins[entry + 1]; k++) {
        const char *const word = axis->overrides[k];
        const size_t key_bytes = strcspn(word, "=");
        same = strncmp(name, word, key_bytes) == 0 &&
               name[key_bytes] == (k + 1 == axis->begins[entry + 1] ? '\0' : ':');
        name += same ? key_bytes + (name[key_bytes] == ':') : 0;
        used += (size_t)snprintf(label + used, SIM_AXIS_LABEL_BYTES - used, "%s%s",
                                 k == axis->begins[entry] ? "" : ":",
                                 word[key_bytes] == '=' ? word + key_bytes + 1 : "");
        used = used < SIM_AXIS_LABEL_BYTES ? used : SIM_AXIS_LABEL_BYTES - 1;
    }
    if (!same || used == 0) {
        (void)snprintf(label, SIM_AXIS_LABEL_BYTES, "%s", axis->texts[entry]);
    }
}
