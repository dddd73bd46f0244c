#define _GNU_SOURCE /* scandir() */
#include "doctor.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096u

/* Returns whether it fits. */
static bool full_path(const struct doctor *d, char full[PATH_BYTES], const char *path,
                      va_list arguments)
{
    const size_t root = strlen(d->root);
    HLG_ASSERT(root < PATH_BYTES);
    memcpy(full, d->root, root);
    const int bytes = vsnprintf(full + root, PATH_BYTES - root, path, arguments);
    return bytes > 0 && (size_t)bytes < PATH_BYTES - root;
}

/* Returns how many bytes there were, or -1 without a file. */
static ssize_t read_file(const struct doctor *d, void *bytes, size_t capacity, const char *path,
                         va_list arguments)
{
    char full[PATH_BYTES];
    FILE *in = full_path(d, full, path, arguments) ? fopen(full, "r") : NULL;
    if (in == NULL) {
        return -1;
    }
    const size_t count = fread(bytes, 1, capacity, in);
    (void)fclose(in);
    return (ssize_t)count;
}

size_t doctor_bytes(const struct doctor *d, void *bytes, size_t capacity, const char *path, ...)
{
    va_list arguments;
    va_start(arguments, path);
    const ssize_t count = read_file(d, bytes, capacity, path, arguments);
    va_end(arguments);
    return count > 0 ? (size_t)count : 0;
}

bool doctor_read(const struct doctor *d, char *text, size_t bytes, const char *path, ...)
{
    va_list arguments;
    va_start(arguments, path);
    ssize_t count = read_file(d, text, bytes - 1, path, arguments);
    va_end(arguments);
    if (count < 0) {
        return false;
    }
    while (count > 0 && text[count - 1] == '\n') {
        count--;
    }
    text[count] = '\0';
    return true;
}

long doctor_number(const struct doctor *d, long otherwise, const char *path, ...)
{
    char text[64] = "";
    char *end = NULL;
    va_list arguments;
    va_start(arguments, path);
    const ssize_t count = read_file(d, text, sizeof text - 1, path, arguments);
    va_end(arguments);
    const long value = count > 0 ? strtol(text, &end, 0) : 0;
    return count <= 0 || end == text ? otherwise : value;
}

bool doctor_exists(const struct doctor *d, const char *path, ...)
{
    char full[PATH_BYTES];
    va_list arguments;
    va_start(arguments, path);
    const bool fits = full_path(d, full, path, arguments);
    va_end(arguments);
    return fits && access(full, F_OK) == 0;
}

bool doctor_may_open(const struct doctor *d, const char *path, ...)
{
    char full[PATH_BYTES];
    va_list arguments;
    va_start(arguments, path);
    const bool fits = full_path(d, full, path, arguments);
    va_end(arguments);
    return fits && access(full, R_OK | W_OK) == 0;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strlen(entry->d_name) < 64;
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name); /* mlx5_2 before mlx5_10, whatever the locale */
}

uint32_t doctor_list(const struct doctor *d, char names[][64], uint32_t capacity, const char *path,
                     ...)
{
    char full[PATH_BYTES];
    struct dirent **entries = NULL;
    uint32_t count = 0;
    va_list arguments;
    va_start(arguments, path);
    const bool fits = full_path(d, full, path, arguments);
    va_end(arguments);
    const int found = fits ? scandir(full, &entries, is_shown, compare) : -1;
    for (int i = 0; i < found; i++) {
        if (count < capacity) {
            (void)snprintf(names[count++], 64, "%.63s", entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

bool doctor_field(const char *text, const char *key, char *value, size_t bytes)
{
    const size_t key_bytes = strlen(key);
    while (text != NULL && *text != '\0') {
        if (strncmp(text, key, key_bytes) == 0 && strchr(": \t", text[key_bytes]) != NULL) {
            text += key_bytes + strspn(text + key_bytes, ": \t");
            (void)snprintf(value, bytes, "%.*s", (int)strcspn(text, "\n"), text);
            return true;
        }
        text = strchr(text, '\n');
        text = text != NULL ? text + 1 : NULL;
    }
    return false;
}

void doctor_make_plain(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

struct doctor_line *doctor_line(struct doctor *d, const char *name, enum doctor_state state)
{
    HLG_ASSERT(d->line_count < DOCTOR_LINES_MAX);
    struct doctor_line *line = &d->lines[d->line_count++];
    *line = (struct doctor_line){.name = name, .state = state};
    return line;
}

void doctor_append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    HLG_ASSERT(used < bytes);
    va_start(arguments, format);
    (void)vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}
