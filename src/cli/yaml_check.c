/* What libcyaml (1.3.1) reads without a word, and nobody means: a second document, which it does not look at, and a key
 * without a value ("listen:", "listen: ~"), which it takes for the word that stands there. */
#include "yaml_check.h"

#include <halage/base.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX  32u
#define NAME_BYTES 64u

/* Where the events stand: the mappings and lists around, outermost first. */
struct place {
    uint32_t depth;
    struct {
        bool mapping;
        bool value_next; /* of a mapping: its key was read */
        char key[NAME_BYTES];
    } levels[DEPTH_MAX];
    uint32_t documents;
};

static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    const char *text = (const char *)event->data.scalar.value;
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
        strlen(text) != event->data.scalar.length) {
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A key, a value or an entry ends: what comes next in the mapping around it? `key` NULL: it was no plain one. */
static void step(struct place *place, const char *key)
{
    if (place->depth == 0 || !place->levels[place->depth - 1].mapping) {
        return;
    }
    const uint32_t at = place->depth - 1;
    if (!place->levels[at].value_next) {
        (void)snprintf(place->levels[at].key, NAME_BYTES, "%.63s", key != NULL ? key : "a key");
    }
    place->levels[at].value_next = !place->levels[at].value_next;
}

static bool is_key(const struct place *place)
{
    return place->depth > 0 && place->levels[place->depth - 1].mapping &&
           !place->levels[place->depth - 1].value_next;
}

static void open_level(struct place *place, bool mapping)
{
    HLG_ASSERT(place->depth < DEPTH_MAX);
    step(place, NULL);
    place->levels[place->depth].mapping = mapping;
    place->levels[place->depth].value_next = false;
    place->depth++;
}

/* The innermost key around. */
static const char *key_of(const struct place *place)
{
    for (uint32_t depth = place->depth; depth > 0; depth--) {
        if (place->levels[depth - 1].mapping) {
            return place->levels[depth - 1].key;
        }
    }
    return "the file";
}

/* Returns whether the event is welcome; else `error` is a sentence. */
static bool take(struct place *place, const yaml_event_t *event, const char *file, char *error,
                 size_t capacity)
{
    const size_t line = event->start_mark.line + 1;
    switch ((int)event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (place->documents++ > 0) {
            (void)snprintf(error, capacity,
                           "%s: line %zu: a second document begins, and a file is read as one: "
                           "take out the line '---'",
                           file, line);
            return false;
        }
        return true;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        open_level(place, event->type == YAML_MAPPING_START_EVENT);
        return true;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        HLG_ASSERT(place->depth > 0);
        place->depth--;
        return true;
    case YAML_SCALAR_EVENT:
        if (place->depth > 0 && !is_key(place) && is_null(event)) {
            (void)snprintf(error, capacity,
                           "%s: line %zu: %s has no value: write one, in quotes where the word is "
                           "meant, or take the key out",
                           file, line, key_of(place));
            return false;
        }
        step(place, (const char *)event->data.scalar.value);
        return true;
    default: /* of a stream and of a document's end; an alias stands for what its anchor was */
        if (event->type == YAML_ALIAS_EVENT) {
            step(place, NULL);
        }
        return true;
    }
}

int yaml_check(const char *file, const uint8_t *bytes, size_t count, char *error, size_t capacity)
{
    yaml_parser_t parser;
    struct place place = {.depth = 0};
    bool good = true;
    bool more = true;
    if (yaml_parser_initialize(&parser) == 0) {
        return 0; /* no memory: the reader will say so */
    }
    yaml_parser_set_input_string(&parser, bytes, count);
    /* Deeper than any schema is, the reader refuses; libyaml (0.2.5) takes time with the square of the depth. */
    while (good && more && place.depth < DEPTH_MAX) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) {
            break; /* no YAML: the reader says why */
        }
        more = event.type != YAML_STREAM_END_EVENT;
        good = take(&place, &event, file, error, capacity);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return good ? 0 : -HLG_EINVAL;
}
