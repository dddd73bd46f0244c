#include "calibration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sim_calibration_text(const char *name)
{
    const struct sim_calibration_file *file = sim_calibration_files;

    while (file->name != NULL && strcmp(file->name, name) != 0) {
        file++;
    }
    HLG_ASSERT(file->name != NULL);
    return file->text;
}

/* The line after this one, or NULL. */
static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

const char *sim_calibration_heading(const char *text)
{
    while (*text == '#') {
        text = next_line(text);
        HLG_ASSERT(text != NULL);
    }
    return text;
}

const char *sim_calibration_next(const char *text, const char *prefix, const char *after)
{
    const size_t length = strlen(prefix);
    const char *row = next_line(after == NULL ? sim_calibration_heading(text) : after);

    while (row != NULL && strncmp(row, prefix, length) != 0) {
        row = next_line(row);
    }
    return row;
}

static const char *field_at(const char *row, uint32_t index)
{
    for (; index > 0; index--) {
        row += strcspn(row, "\t\n");
        HLG_ASSERT(*row == '\t');
        row++;
    }
    return row;
}

uint32_t sim_calibration_numbers(const char *row, uint32_t skip, double *numbers, uint32_t capacity)
{
    const char *at = field_at(row, skip);
    uint32_t count = 0;

    for (; count < capacity; count++) {
        uint64_t value = 0;
        HLG_ASSERT(*at >= '0' && *at <= '9');
        for (; *at >= '0' && *at <= '9'; at++) {
            value = value * 10 + (uint64_t)(*at - '0');
        }
        numbers[count] = (double)value;
        if (*at != '\t') {
            HLG_ASSERT(*at == '\n' || *at == '\0');
            return count + 1;
        }
        at++;
    }
    return count;
}

void sim_calibration_field(const char *row, uint32_t index, char *text, size_t capacity)
{
    const char *at = field_at(row, index);

    (void)snprintf(text, capacity, "%.*s", (int)strcspn(at, "\t\n"), at);
}

void sim_calibration_id(char *text, size_t capacity)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (const struct sim_calibration_file *file = sim_calibration_files; file->name != NULL;
         file++) {
        for (const char *at = file->text; *at != '\0'; at++) {
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
        }
    }
    (void)snprintf(text, capacity, "1:%016" PRIx64, hash);
}
