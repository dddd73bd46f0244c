/* Layouts as YAML. Every scalar is loaded as text and read here, where the key is known. */
#include "layout_yaml.h"

#include "options.h"

#include <halage/refusal.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_COUNT_DEFAULT 1024u

#define TEXT(type, key)                                                                  \
    CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, key, 0, \
                           CYAML_UNLIMITED)
#define LIST(type, key, entry)                                                                \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, key, entry, 0, \
                         CYAML_UNLIMITED)

static const cyaml_schema_value_t text_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED),
};

static const cyaml_schema_field_t group_fields[] = {
    TEXT(struct layout_yaml_group, kind),
    TEXT(struct layout_yaml_group, planes),
    TEXT(struct layout_yaml_group, heads),
    TEXT(struct layout_yaml_group, head_bytes),
    TEXT(struct layout_yaml_group, page_tokens),
    TEXT(struct layout_yaml_group, arrangement),
    TEXT(struct layout_yaml_group, page_count),
    LIST(struct layout_yaml_group, layers, &text_schema),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t group_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct layout_yaml_group, group_fields),
};

const cyaml_schema_field_t layout_yaml_fields[] = {
    TEXT(struct layout_yaml, tp),
    TEXT(struct layout_yaml, stages),
    TEXT(struct layout_yaml, pools),
    TEXT(struct layout_yaml, layers),
    TEXT(struct layout_yaml, ranks),
    TEXT(struct layout_yaml, all_reduce),
    TEXT(struct layout_yaml, piece_bytes_max),
    LIST(struct layout_yaml, stage_layers, &text_schema),
    LIST(struct layout_yaml, groups, &group_schema),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t layout_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct layout_yaml, layout_yaml_fields),
};

/* Where errors go, and what they are about. */
struct reader {
    const char *file;
    char place[24]; /* " (group 1)", or empty */
    char *error;
    size_t capacity;
};

static bool report(const struct reader *reader, const char *key, const char *value,
                   const char *remedy)
{
    if (value == NULL) {
        (void)snprintf(reader->error, reader->capacity, "%s: %s%s: missing; %s", reader->file, key,
                       reader->place, remedy);
    } else {
        (void)snprintf(reader->error, reader->capacity, "%s: %s%s: '%.60s': %s", reader->file, key,
                       reader->place, value, remedy);
    }
    return false;
}

static bool read_required(const struct reader *reader, const char *key, const char *text,
                          uint32_t *value)
{
    if (text != NULL && options_u32(text, value)) {
        return true;
    }
    return report(reader, key, text, "write a whole number below 2^32");
}

static bool read_number(const struct reader *reader, const char *key, const char *text,
                        uint32_t absent, uint32_t *value)
{
    if (text == NULL) {
        *value = absent;
        return true;
    }
    return read_required(reader, key, text, value);
}

/* One of two words; the first is the default. */
static bool read_word(const struct reader *reader, const char *key, const char *text,
                      const char *first, const char *second, uint32_t *value)
{
    if (text == NULL || strcmp(text, first) == 0) {
        *value = 0;
        return true;
    }
    if (strcmp(text, second) == 0) {
        *value = 1;
        return true;
    }
    char remedy[64];
    (void)snprintf(remedy, sizeof remedy, "write %s or %s", first, second);
    return report(reader, key, text, remedy);
}

/* "3", or "0-7" with both ends included. */
static bool read_span(const struct reader *reader, const char *key, const char *text,
                      uint32_t *first, uint32_t *last)
{
    char begin[16];
    const size_t bytes = strcspn(text, "-");
    if (options_u32(text, first)) {
        *last = *first;
        return true;
    }
    if (bytes < sizeof begin && text[bytes] == '-') {
        memcpy(begin, text, bytes);
        begin[bytes] = '\0';
        if (options_u32(begin, first) && options_u32(text + bytes + 1, last) && *first <= *last) {
            return true;
        }
    }
    return report(reader, key, text, "write a number, or the first and last one as 0-7");
}

/* Stages of given lengths, or the layers dealt evenly, the first stages one more. */
static bool read_stages(const struct reader *reader, const struct layout_yaml *raw,
                        struct hlg_layout *layout)
{
    const bool listed = raw->stage_layers != NULL;
    if (!read_number(reader, "stages", raw->stages, listed ? raw->stage_layers_count : 1,
                     &layout->stages)) {
        return false;
    }
    if (layout->stages == 0 || layout->stages > HLG_STAGES_MAX) {
        return true; /* the layout's check will say so */
    }
    if (listed && layout->stages != raw->stage_layers_count) {
        return report(reader, "stages", raw->stages, "stage_layers must have so many entries");
    }
    uint64_t limit = 0;
    for (uint32_t stage = 0; stage < layout->stages; stage++) {
        /* The floor and, for the first `remainder` stages, one more. */
        uint32_t count =
            layout->layers / layout->stages + (stage < layout->layers % layout->stages ? 1 : 0);
        if (listed && !read_required(reader, "stage_layers", raw->stage_layers[stage], &count)) {
            return false;
        }
        limit += count;
        layout->stage_limit[stage] = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    }
    if (limit != layout->layers) {
        char sum[24];
        (void)snprintf(sum, sizeof sum, "%" PRIu64, limit);
        return report(reader, "stage_layers", sum, "its sum must equal layers");
    }
    return true;
}

static bool read_ranks(const struct reader *reader, const struct layout_yaml *raw,
                       struct hlg_layout *layout)
{
    /* Bounded so that a wild TP cannot wrap; the layout's check refuses it all the same. */
    layout->rank_limit =
        hlg_min_u32(layout->tp, HLG_RANKS_MAX) * hlg_min_u32(layout->stages, HLG_STAGES_MAX);
    if (raw->ranks == NULL) {
        return true;
    }
    uint32_t last = 0;
    if (!read_span(reader, "ranks", raw->ranks, &layout->rank_begin, &last)) {
        return false;
    }
    if (last >= layout->rank_limit) {
        return report(reader, "ranks", raw->ranks, "ranks are below tp * stages");
    }
    layout->rank_limit = last + 1;
    return true;
}

static bool read_layers(const struct reader *reader, const struct layout_yaml_group *raw,
                        uint32_t layers, struct hlg_group *group)
{
    if (raw->layers == NULL) {
        const bool all = group->kind == HLG_GROUP_PAGED;
        for (uint32_t layer = 0; all && layer < hlg_min_u32(layers, HLG_LAYERS_MAX); layer++) {
            group->layers[layer / 64] |= 1ull << (layer % 64);
        }
        return true;
    }
    for (uint32_t i = 0; i < raw->layers_count; i++) {
        uint32_t first = 0;
        uint32_t last = 0;
        if (!read_span(reader, "layers", raw->layers[i], &first, &last)) {
            return false;
        }
        if (last >= layers || last >= HLG_LAYERS_MAX) {
            return report(reader, "layers", raw->layers[i],
                          "a group's layers are below the layers of the model");
        }
        for (uint32_t layer = first; layer <= last; layer++) {
            group->layers[layer / 64] |= 1ull << (layer % 64);
        }
    }
    return true;
}

static bool read_group(const struct reader *reader, const struct layout_yaml_group *raw,
                       uint32_t layers, struct hlg_group *group)
{
    if (!read_word(reader, "kind", raw->kind, "paged", "context", &group->kind) ||
        !read_word(reader, "arrangement", raw->arrangement, "HND", "NHD", &group->arrangement) ||
        !read_required(reader, "head_bytes", raw->head_bytes, &group->head_bytes) ||
        !read_number(reader, "page_count", raw->page_count, PAGE_COUNT_DEFAULT,
                     &group->page_count)) {
        return false;
    }
    if (group->kind == HLG_GROUP_CONTEXT) {
        return read_number(reader, "planes", raw->planes, 1, &group->planes) &&
               read_number(reader, "heads", raw->heads, 1, &group->heads) &&
               read_number(reader, "page_tokens", raw->page_tokens, 1, &group->page_tokens) &&
               read_layers(reader, raw, layers, group);
    }
    return read_required(reader, "planes", raw->planes, &group->planes) &&
           read_required(reader, "heads", raw->heads, &group->heads) &&
           read_required(reader, "page_tokens", raw->page_tokens, &group->page_tokens) &&
           read_layers(reader, raw, layers, group);
}

static bool read_layout(struct reader *reader, const struct layout_yaml *raw,
                        struct hlg_layout *layout)
{
    if (!read_required(reader, "tp", raw->tp, &layout->tp) ||
        !read_required(reader, "layers", raw->layers, &layout->layers) ||
        !read_number(reader, "pools", raw->pools, 1, &layout->pools) ||
        !read_number(reader, "piece_bytes_max", raw->piece_bytes_max, HLG_PIECE_BYTES_DEFAULT,
                     &layout->piece_bytes_max) ||
        !read_word(reader, "all_reduce", raw->all_reduce, "false", "true", &layout->all_reduce) ||
        !read_stages(reader, raw, layout) || !read_ranks(reader, raw, layout)) {
        return false;
    }
    if (raw->groups_count == 0) {
        return report(reader, "groups", NULL, "list at least one group");
    }
    layout->group_count = raw->groups_count;
    for (uint32_t i = 0; i < hlg_min_u32(raw->groups_count, HLG_GROUPS_MAX); i++) {
        (void)snprintf(reader->place, sizeof reader->place, " (group %" PRIu32 ")", i);
        if (!read_group(reader, &raw->groups[i], layout->layers, &layout->groups[i])) {
            return false;
        }
    }
    return true;
}

int layout_yaml_convert(const struct layout_yaml *raw, const char *file, struct hlg_layout *layout,
                        char *error, size_t capacity)
{
    struct reader reader = {.file = file, .error = error, .capacity = capacity};
    struct hlg_layout read = {0};
    struct hlg_refusal why = {0};
    if (!read_layout(&reader, raw, &read)) {
        return -HLG_EINVAL;
    }
    if (hlg_layout_check(&read, &why) < 0) {
        char sentence[HLG_REFUSAL_TEXT_BYTES];
        (void)hlg_refusal_text(&why, sentence, sizeof sentence);
        (void)snprintf(error, capacity, "%s: %s", file, sentence);
        return why.code == HLG_REFUSAL_HEADS_TP ? -HLG_EPLAN : -HLG_EINVAL;
    }
    *layout = read;
    return 0;
}

int layout_yaml_read(const char *file, struct hlg_layout *layout, char *error, size_t capacity)
{
    void *raw = NULL;
    if (yaml_file_load(file, &layout_schema, &raw, error, capacity) < 0) {
        return -HLG_EINVAL;
    }
    const int result = layout_yaml_convert(raw, file, layout, error, capacity);
    yaml_file_free(&layout_schema, raw);
    if (result < 0) {
        yaml_file_one_line(error);
    }
    return result;
}
