#define _GNU_SOURCE /* realpath(), O_CLOEXEC */

#include "output.h"

#include "scenario_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, const char *what, char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "%s: cannot %s: %s; give another file", path, what,
                   strerror(errno));
    return -HLG_EIO;
}

static int in_place(const char *path, struct sim_output *output, char *text, size_t capacity)
{
    output->temporary[0] = '\0';
    output->file = fopen(path, "we");
    return output->file != NULL ? 0 : fail(path, "open", text, capacity);
}

/* Resolve symbolic links of a file that is there. Returns whether the name fits. */
static bool resolve(const char *path, char target[SIM_PATH_MAX])
{
    char *const real = realpath(path, NULL);
    const bool good = real != NULL && strlen(real) < SIM_PATH_MAX;

    errno = real != NULL && !good ? ENAMETOOLONG : errno;
    if (good) {
        (void)snprintf(target, SIM_PATH_MAX, "%s", real);
    }
    free(real);
    return good;
}

/* With the mode and, where that is allowed, the owner of what it will replace (NULL: nothing). */
static FILE *open_temporary(const char *path, const struct stat *there)
{
    (void)unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *const file = fd < 0 ? NULL : fdopen(fd, "w");

    if (file == NULL && fd >= 0) {
        (void)close(fd);
        (void)unlink(path);
    }
    if (file != NULL && there != NULL) {
        const int owner = fchown(fd, there->st_uid, there->st_gid);
        (void)fchmod(fd, there->st_mode & (owner == 0 ? 07777 : 0777));
    }
    return file;
}

int sim_output_open(const char *path, struct sim_output *output, char *text, size_t capacity)
{
    struct stat there;
    struct stat link;
    const bool exists = stat(path, &there) == 0;

    if (strlen(path) >= sizeof output->target) {
        errno = ENAMETOOLONG;
        return fail(path, "create", text, capacity);
    }
    (void)snprintf(output->target, sizeof output->target, "%s", path);
    if (exists && !S_ISREG(there.st_mode)) {
        return in_place(path, output, text, capacity);
    }
    if (!exists && lstat(path, &link) == 0) { /* a symbolic link to what is not there yet */
        return in_place(path, output, text, capacity);
    }
    if (exists && !resolve(path, output->target)) {
        return fail(path, "create", text, capacity);
    }
    if (exists && ((there.st_mode & S_IWUSR) == 0 || access(path, W_OK) != 0)) {
        errno = EACCES;
        (void)snprintf(text, capacity,
                       "%s: is write-protected; give another file, or allow it: chmod u+w", path);
        return -HLG_EIO;
    }
    (void)snprintf(output->temporary, sizeof output->temporary, "%s.%ld.part", output->target,
                   (long)getpid());
    output->file = open_temporary(output->temporary, exists ? &there : NULL);
    if (output->file == NULL && exists) { /* none can be made beside it */
        return in_place(output->target, output, text, capacity);
    }
    return output->file != NULL ? 0 : fail(path, "create", text, capacity);
}

int sim_output_close(struct sim_output *output, char *text, size_t capacity)
{
    const bool whole = output->temporary[0] != '\0';
    int error = 0;

    errno = EIO; /* for a write that failed long ago: the stream does not keep why */
    if (ferror(output->file) != 0 || fflush(output->file) != 0 ||
        (whole && fsync(fileno(output->file)) != 0)) {
        error = fail(output->target, "write", text, capacity);
    }
    if (fclose(output->file) != 0 && error == 0) {
        error = fail(output->target, "write", text, capacity);
    }
    if (error == 0 && whole && rename(output->temporary, output->target) != 0) {
        error = fail(output->target, "rename into place", text, capacity);
    }
    if (error != 0 && whole) {
        (void)unlink(output->temporary);
    }
    return error;
}

void sim_output_abandon(struct sim_output *output)
{
    (void)fclose(output->file);
    if (output->temporary[0] != '\0') {
        (void)unlink(output->temporary);
    }
}

/* ---- The same file twice ---- */

/* A regular file that is there, or the place where one would be made. */
struct identity {
    bool known;
    dev_t device;
    ino_t number;     /* of the file, or of its folder */
    const char *name; /* in the folder; NULL: the file is there */
};

static struct identity identify(const char *path)
{
    struct stat status;
    char folder[SIM_PATH_MAX];
    const char *const slash = strrchr(path, '/');

    if (path[0] == '\0') {
        return (struct identity){0};
    }
    if (stat(path, &status) == 0) {
        return (struct identity){S_ISREG(status.st_mode), status.st_dev, status.st_ino, NULL};
    }
    (void)snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1,
                   slash == NULL ? "." : path);
    if (stat(folder, &status) != 0) {
        return (struct identity){0};
    }
    return (struct identity){true, status.st_dev, status.st_ino, slash == NULL ? path : slash + 1};
}

static bool same(const struct identity *a, const struct identity *b)
{
    return a->known && b->known && a->device == b->device && a->number == b->number &&
           (a->name == NULL) == (b->name == NULL) &&
           (a->name == NULL || strcmp(a->name, b->name) == 0);
}

static bool same_path(const struct identity *a, const char *path)
{
    const struct identity b = identify(path);
    return same(a, &b);
}

static bool same_stream(const struct identity *a, int fd)
{
    struct stat status;
    return a->known && a->name == NULL && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_dev == a->device && status.st_ino == a->number;
}

void sim_outputs_add(struct sim_outputs *outputs, const char *option, const char *path,
                     const char *name)
{
    if (path == NULL || (name == NULL && strcmp(path, "-") == 0)) {
        return;
    }
    HLG_ASSERT(outputs->count < SIM_OUTPUTS_MAX);
    outputs->options[outputs->count] = option;
    outputs->single[outputs->count] = name == NULL;
    /* One that is too long cannot be opened either: it is found then. */
    (void)snprintf(outputs->paths[outputs->count++], SIM_PATH_MAX, "%s%s%s", path,
                   name == NULL ? "" : "/", name == NULL ? "" : name);
}

/* Which of the scenario's files it is; NULL: none. */
static const char *input_of(const struct identity *output, const struct sim_scenario *scenario,
                            const struct sim_file_chain *chain)
{
    const struct sim_traffic *const traffic = &scenario->traffic;
    const char *const names[][2] = {
        {traffic->path, "a trace of the scenario"},
        {traffic->lengths_path, "a trace of the scenario"},
        {traffic->cdf_path[0], "a table of the scenario's lengths"},
        {traffic->cdf_path[1], "a table of the scenario's lengths"},
        {scenario->config, "the config of the scenario's model"},
        {scenario->prefill.engine.table, "a step table of the scenario"},
        {scenario->decode.engine.table, "a step table of the scenario"},
        {scenario->colocated.engine.table, "a step table of the scenario"},
    };

    if (same_path(output, scenario->path)) {
        return "the scenario itself";
    }
    for (uint32_t i = 1; i < chain->count; i++) {
        if (same_path(output, chain->paths[i])) {
            return "a scenario that this one extends";
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (same_path(output, names[i][0])) {
            return names[i][1];
        }
    }
    return NULL;
}

/* Why there can be no file of that name; 0: there can, as far as one sees before. */
static int impossible(const char *path)
{
    char folder[SIM_PATH_MAX];
    struct stat about;

    if (stat(path, &about) == 0) {
        return S_ISDIR(about.st_mode) ? EISDIR : 0;
    }
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *const slash = strrchr(folder, '/');
    if (slash == NULL) {
        return 0;
    }
    slash[1] = '\0'; /* it stays: a file before it is no folder */
    return stat(folder, &about) == 0 ? 0 : errno;
}

static int check_possible(const struct sim_outputs *outputs, char *text, size_t capacity)
{
    for (uint32_t i = 0; i < outputs->count; i++) {
        const int error = outputs->single[i] ? impossible(outputs->paths[i]) : 0;
        if (error != 0) {
            (void)snprintf(text, capacity, "%s: %s: cannot create: %s; give another file",
                           outputs->options[i], outputs->paths[i], strerror(error));
            return -HLG_EINVAL;
        }
    }
    return 0;
}

int sim_outputs_check(const struct sim_outputs *outputs, const struct sim_scenario *scenario,
                      char *text, size_t capacity)
{
    struct sim_file_chain *const chain = calloc(1, sizeof *chain);
    const char *also = chain == NULL ? "out of memory" : NULL;
    /* One that cannot be read extends nothing. */
    const bool loaded = chain != NULL && scenario != NULL && outputs->count != 0 &&
                        sim_file_load(chain, scenario->path, text, capacity) == 0;
    uint32_t i = 0;

    for (i = 0; also == NULL && i < outputs->count; i++) {
        const struct identity output = identify(outputs->paths[i]);
        also = scenario == NULL ? NULL : input_of(&output, scenario, chain);
        for (uint32_t k = 0; also == NULL && k < i; k++) {
            also = same_path(&output, outputs->paths[k]) ? outputs->options[k] : NULL;
        }
        if (also == NULL && (same_stream(&output, 1) || same_stream(&output, 2))) {
            also = "where this command's text goes";
        }
    }
    if (also != NULL) {
        (void)snprintf(text, capacity, "%s: %s: is also %s; give another file",
                       outputs->count == 0 ? "" : outputs->options[i - 1],
                       outputs->count == 0 ? "" : outputs->paths[i - 1], also);
    }
    if (loaded) {
        sim_file_free(chain);
    }
    free(chain);
    return also == NULL ? check_possible(outputs, text, capacity) : -HLG_EINVAL;
}
