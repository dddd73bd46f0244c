#include "plant.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [PLANT_LANDED] = "landed",
    [PLANT_LANDED_AFTER] = "landed-after",
    [PLANT_CONTEXT] = "context",
    [PLANT_OFFSET] = "offset",
    [PLANT_EARLY_READY] = "early-ready",
    [PLANT_EARLY_TICK] = "early-tick",
    [PLANT_TOKEN] = "token",
    [PLANT_FREE] = "free",
    [PLANT_STUCK] = "stuck",
    [PLANT_STOP] = "stop",
    [PLANT_CRASH] = "crash",
};

#define NAMES (sizeof names / sizeof names[0])

const char *plant_kinds(void)
{
    return "landed landed-after context offset early-ready early-tick token free";
}

/* Reads a number and the separator after it; leaves *text behind both. */
static bool take_number(const char **text, char separator, uint32_t *value)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    const unsigned long number = strtoul(*text, &end, 10);
    if (number > UINT16_MAX || *end != separator) {
        return false;
    }
    *value = (uint32_t)number;
    *text = separator == '\0' ? end : end + 1;
    return true;
}

/* "STEP" or "STEP,COUNT". */
static bool take_step(const char *text, struct plant *plant)
{
    const size_t bytes = strcspn(text, ",");
    plant->count = 1;
    if (bytes == 0 || bytes >= sizeof plant->step) {
        return false;
    }
    memcpy(plant->step, text, bytes);
    text += bytes;
    return *text == '\0' ||
           (*text++ == ',' && take_number(&text, '\0', &plant->count) && plant->count > 0);
}

bool plant_parse(const char *text, struct plant *plant)
{
    struct plant read = {.kind = PLANT_NONE};
    const size_t bytes = strcspn(text, ":");
    for (size_t i = 1; i < NAMES; i++) {
        if (strlen(names[i]) == bytes && memcmp(names[i], text, bytes) == 0) {
            read.kind = (enum plant_kind)i;
        }
    }
    if (read.kind == PLANT_NONE) {
        return false;
    }
    if (plant_has_step(&read)) {
        if (text[bytes] != ':' || !take_step(text + bytes + 1, &read)) {
            return false;
        }
    } else if (text[bytes] == ':') {
        const char *rest = text + bytes + 1;
        if (!take_number(&rest, ',', &read.layer) || !take_number(&rest, ',', &read.plane) ||
            !take_number(&rest, '\0', &read.rank)) {
            return false;
        }
    }
    *plant = read;
    return true;
}
