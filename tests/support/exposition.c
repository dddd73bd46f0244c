#define _GNU_SOURCE /* strdup */
#include "exposition.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES    1024u
#define FAMILIES_MAX  256u
#define SERIES_MAX    4096u
#define BUCKET_LABEL  "le=\""
#define SAMPLE_PREFIX "halage_"

struct reader {
    char fault[LINE_BYTES + 128];
    char family[EXPOSITION_NAME_BYTES]; /* whose samples follow */
    char type[16];
    char families[FAMILIES_MAX][EXPOSITION_NAME_BYTES]; /* seen so far */
    size_t family_count;
    char *series[SERIES_MAX]; /* seen so far, malloc'd */
    size_t series_count;
    /* the histogram under way */
    double bucket;
    double bound;
    bool infinite;
    size_t samples; /* of the family */
};

static const char *wrong(struct reader *r, const char *why, const char *line)
{
    (void)snprintf(r->fault, sizeof r->fault, "%s: %s", why, line);
    return r->fault;
}

static bool ends_with(const char *text, const char *tail)
{
    const size_t bytes = strlen(text);
    const size_t tail_bytes = strlen(tail);

    return bytes >= tail_bytes && strcmp(text + bytes - tail_bytes, tail) == 0;
}

static bool good_name(const char *name)
{
    if (strncmp(name, SAMPLE_PREFIX, strlen(SAMPLE_PREFIX)) != 0) {
        return false;
    }
    for (; *name != '\0'; name++) {
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '_') {
            return false;
        }
    }
    return true;
}

/* "# HELP name text", then "# TYPE name type", in this order, each family once. */
static const char *take_comment(struct reader *r, const char *line)
{
    char name[EXPOSITION_NAME_BYTES] = "";
    char type[16] = "";

    if (sscanf(line, "# HELP %95s", name) == 1) {
        for (size_t i = 0; i < r->family_count; i++) {
            if (strcmp(r->families[i], name) == 0) {
                return wrong(r, "a family twice", line);
            }
        }
        if (!good_name(name) || strlen(line) < strlen("# HELP ") + strlen(name) + 2) {
            return wrong(r, "bad name, or no help", line);
        }
        if (r->family_count == FAMILIES_MAX) {
            return wrong(r, "too many families", line);
        }
        if (r->family_count > 0 && r->samples == 0) {
            return wrong(r, "the family before it has no sample", line);
        }
        memcpy(r->families[r->family_count++], name, sizeof name);
        memcpy(r->family, name, sizeof name);
        r->type[0] = '\0';
        r->samples = 0;
        return NULL;
    }
    if (sscanf(line, "# TYPE %95s %15s", name, type) != 2 || strcmp(name, r->family) != 0 ||
        r->type[0] != '\0') {
        return wrong(r, "no HELP, then TYPE of the same family", line);
    }
    if (strcmp(type, "counter") != 0 && strcmp(type, "gauge") != 0 &&
        strcmp(type, "histogram") != 0) {
        return wrong(r, "unknown type", line);
    }
    if ((strcmp(type, "counter") == 0) != ends_with(name, "_total")) {
        return wrong(r, "counters, and only they, end in _total", line);
    }
    if (strcmp(type, "histogram") == 0 && !ends_with(name, "_seconds") &&
        !ends_with(name, "_bytes") && !ends_with(name, "_per_second")) {
        return wrong(r, "a histogram without its unit", line);
    }
    memcpy(r->type, type, sizeof type);
    return NULL;
}

/* A histogram's own rules: bounds and counts rise, +Inf comes last and equals _count. */
static const char *take_histogram(struct reader *r, const char *line, const char *suffix,
                                  const char *labels, double value)
{
    if (strcmp(suffix, "_bucket") == 0) {
        const char *le = strstr(labels, BUCKET_LABEL);
        if (le == NULL) {
            return wrong(r, "a bucket without its bound", line);
        }
        le += strlen(BUCKET_LABEL);
        const bool infinite = strncmp(le, "+Inf\"", 5) == 0;
        const double bound = infinite ? HUGE_VAL : strtod(le, NULL);
        const bool first = r->bucket < 0;
        if (!first && (r->infinite || bound <= r->bound || value < r->bucket)) {
            return wrong(r, "buckets do not rise", line);
        }
        r->bucket = value;
        r->bound = bound;
        r->infinite = infinite;
        return NULL;
    }
    if (!r->infinite) {
        return wrong(r, "no +Inf bucket before it", line);
    }
    if (strcmp(suffix, "_count") == 0) {
        const bool equal = value >= r->bucket && value <= r->bucket;
        r->bucket = -1;
        r->infinite = false;
        return equal ? NULL : wrong(r, "_count is not the +Inf bucket", line);
    }
    return strcmp(suffix, "_sum") == 0 ? NULL : wrong(r, "no _bucket, _sum or _count", line);
}

static const char *take_sample(struct reader *r, const char *line)
{
    char series[LINE_BYTES];
    char name[EXPOSITION_NAME_BYTES] = "";
    char *end = NULL;
    const char *space = strrchr(line, ' ');

    if (space == NULL || space == line || sscanf(line, "%95[^{ ]", name) != 1) {
        return wrong(r, "no name and value", line);
    }
    (void)snprintf(series, sizeof series, "%.*s", (int)(space - line), line);
    const double value = strtod(space + 1, &end);
    if (end == space + 1 || *end != '\0' || isnan(value) || isinf(value) || value < 0) {
        return wrong(r, "not a finite number >= 0", line);
    }
    for (size_t i = 0; i < r->series_count; i++) {
        if (strcmp(r->series[i], series) == 0) {
            return wrong(r, "a series twice", line);
        }
    }
    if (r->series_count == SERIES_MAX) {
        return wrong(r, "too many series", line);
    }
    r->series[r->series_count++] = strdup(series);
    const size_t family = strlen(r->family);
    if (r->type[0] == '\0' || strncmp(name, r->family, family) != 0) {
        return wrong(r, "not of the family above it", line);
    }
    r->samples++;
    const char *labels = strchr(series, '{');
    if (labels == NULL || !ends_with(series, "}") || strstr(labels, "side=\"") == NULL) {
        return wrong(r, "no label side", line);
    }
    if (strcmp(r->type, "histogram") == 0) {
        return take_histogram(r, line, name + family, labels, value);
    }
    return name[family] == '\0' ? NULL : wrong(r, "a suffix that only histograms have", line);
}

static const char *take_lines(struct reader *r, const char *text)
{
    char line[LINE_BYTES];

    r->bucket = -1;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        if (end == NULL || end == text || (size_t)(end - text) >= sizeof line) {
            return wrong(r, "an empty or endless line", text);
        }
        (void)snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        const char *fault = line[0] == '#' ? take_comment(r, line) : take_sample(r, line);
        if (fault != NULL) {
            return fault;
        }
        text = end + 1;
    }
    return r->samples > 0 ? NULL : wrong(r, "no sample at the end", "");
}

const char *exposition_fault(const char *text)
{
    static char said[sizeof(struct reader)];
    struct reader *r = calloc(1, sizeof *r);
    const char *fault = r == NULL ? "out of memory" : take_lines(r, text);

    if (fault != NULL) {
        (void)snprintf(said, sizeof said, "%s", fault);
    }
    for (size_t i = 0; r != NULL && i < r->series_count; i++) {
        free(r->series[i]);
    }
    free(r);
    return fault == NULL ? NULL : said;
}

double exposition_value(const char *text, const char *series)
{
    const size_t bytes = strlen(series);

    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, series, bytes) == 0 && line[bytes] == ' ') {
            return strtod(line + bytes, NULL);
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return -1;
}

const char *exposition_next(const char *text, char name[EXPOSITION_NAME_BYTES], char type[16])
{
    const char *at = strstr(text, "# TYPE ");

    if (at == NULL || sscanf(at, "# TYPE %95s %15s", name, type) != 2) {
        return NULL;
    }
    return at + 1;
}
