/* Lines of keys. libyaml's marks do not reach us through libcyaml, so the file is scanned again, by
 * indentation, once there is an error to tell. What the scan cannot follow has no line. */
#define _GNU_SOURCE /* getline() */
#include "yaml_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX    8u
#define NAME_BYTES   64u
#define LINES_MAX    100000u
#define DIGITS_BYTES 12u

/* Where the lines read so far stand: the keys around, outermost first. */
struct level {
    size_t indent;
    bool entry; /* of a list: its name is a number */
    uint32_t entries;
    char name[NAME_BYTES];
};

struct scan {
    struct level levels[DEPTH_MAX];
    uint32_t depth;
    const char *path;
    uint32_t exact; /* line of the path, and how often it was seen */
    uint32_t exact_count;
    uint32_t around; /* line of the innermost key around it that holds all in braces */
    size_t around_bytes;
};

static bool push(struct scan *scan, size_t indent, const char *name, size_t bytes, bool entry)
{
    if (scan->depth == DEPTH_MAX || bytes >= NAME_BYTES) {
        return false;
    }
    struct level *const level = &scan->levels[scan->depth];
    *level = (struct level){.indent = indent, .entry = entry};
    memcpy(level->name, name, bytes);
    scan->depth++;
    return true;
}

/* How much of the path the levels spell: all, a part that ends at a point, or nothing. */
static size_t spelled(const struct scan *scan)
{
    size_t used = 0;
    for (uint32_t i = 0; i < scan->depth; i++) {
        const size_t bytes = strlen(scan->levels[i].name);
        if (i > 0) {
            if (scan->path[used] != '.') {
                return 0;
            }
            used++;
        }
        if (strncmp(scan->path + used, scan->levels[i].name, bytes) != 0) {
            return 0;
        }
        used += bytes;
    }
    return scan->path[used] == '\0' || scan->path[used] == '.' ? used : 0;
}

static void note(struct scan *scan, uint32_t number, const char *rest)
{
    const size_t bytes = spelled(scan);
    if (bytes == 0) {
        return;
    }
    if (scan->path[bytes] == '\0') {
        scan->exact = number;
        scan->exact_count++;
    } else if (strpbrk(rest, "{[") != NULL && strpbrk(rest, "}]") != NULL &&
               bytes > scan->around_bytes) {
        scan->around = number;
        scan->around_bytes = bytes;
    }
}

/* "- " opens an entry of the list that the innermost key left of it holds. */
static bool open_entry(struct scan *scan, size_t indent)
{
    char digits[DIGITS_BYTES];
    while (scan->depth > 0 && (scan->levels[scan->depth - 1].indent > indent ||
                               (scan->levels[scan->depth - 1].entry &&
                                scan->levels[scan->depth - 1].indent == indent))) {
        scan->depth--;
    }
    if (scan->depth == 0) {
        return false;
    }
    struct level *const list = &scan->levels[scan->depth - 1];
    const int bytes = snprintf(digits, sizeof digits, "%u", list->entries++);
    return bytes > 0 && push(scan, indent, digits, (size_t)bytes, true);
}

static void read_line(struct scan *scan, uint32_t number, const char *line)
{
    size_t indent = strspn(line, " ");
    if (line[indent] == '#' || line[indent] == '\0' || line[indent] == '\n') {
        return;
    }
    if (line[indent] == '-' && line[indent + 1] == ' ') {
        if (!open_entry(scan, indent)) {
            return;
        }
        note(scan, number, line + indent + 2);
        indent += 2 + strspn(line + indent + 2, " ");
    } else {
        while (scan->depth > 0 && scan->levels[scan->depth - 1].indent >= indent) {
            scan->depth--;
        }
    }
    const char *const name = line + indent;
    const size_t bytes = strcspn(name, ": \n#{[\"'");
    if (name[bytes] == ':' && bytes > 0 && push(scan, indent, name, bytes, false)) {
        note(scan, number, name + bytes);
    }
}

uint32_t yaml_file_line(const char *file, const char *path)
{
    struct scan scan = {.path = path};
    char *line = NULL;
    size_t capacity = 0;
    struct stat status; /* a pipe is empty by now, and one without a writer would not even open */
    FILE *const in = stat(file, &status) == 0 && S_ISREG(status.st_mode) ? fopen(file, "r") : NULL;
    if (in == NULL) {
        return 0;
    }
    for (uint32_t number = 1; number <= LINES_MAX && getline(&line, &capacity, in) >= 0; number++) {
        read_line(&scan, number, line);
    }
    free(line);
    (void)fclose(in);
    if (scan.exact_count == 0) {
        return scan.around;
    }
    return scan.exact_count == 1 ? scan.exact : 0;
}
