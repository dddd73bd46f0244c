#define _GNU_SOURCE

#include "report.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *path, const char *what, char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "%s: cannot %s: %s; give another file", path, what,
                   strerror(errno));
    return -HLG_EIO;
}

static int to_stdout(int (*write)(FILE *file, void *context), void *context, char *text,
                     size_t capacity)
{
    const int error = write(stdout, context);

    if (error == 0 && fflush(stdout) != 0) {
        return fail("-", "write", text, capacity);
    }
    if (error != 0) {
        (void)snprintf(text, capacity, "-: cannot write: %s", hlg_error_text(error));
    }
    return error;
}

int sim_report_file(const char *path, int (*write)(FILE *file, void *context), void *context,
                    char *text, size_t capacity)
{
    char temporary[SIM_PATH_MAX + 32];

    if (strcmp(path, "-") == 0) {
        return to_stdout(write, context, text, capacity);
    }
    const int length = snprintf(temporary, sizeof temporary, "%s.%ld.part", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return fail(path, "write", text, capacity);
    }
    FILE *file = fopen(temporary, "we");
    if (file == NULL) {
        return fail(path, "create", text, capacity);
    }
    int error = write(file, context);
    if (error != 0) {
        (void)snprintf(text, capacity, "%s: cannot write: %s", path, hlg_error_text(error));
    } else if (ferror(file) != 0 || fflush(file) != 0 || fsync(fileno(file)) != 0) {
        error = fail(path, "write", text, capacity);
    }
    if (fclose(file) != 0 && error == 0) {
        error = fail(path, "write", text, capacity);
    }
    if (error == 0 && rename(temporary, path) != 0) {
        error = fail(path, "rename into place", text, capacity);
    }
    if (error != 0) {
        (void)unlink(temporary);
    }
    return error;
}
