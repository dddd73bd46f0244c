#include "output.h"
#include "report.h"

#include <errno.h>
#include <string.h>

/* In the system's words where it has some: a stream keeps whether it failed, not why. */
static void refuse(const char *path, int error, char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "%s: cannot write: %s; give another file", path,
                   error == -HLG_EIO && errno != 0 ? strerror(errno) : hlg_error_text(error));
}

static int to_stdout(int (*write)(FILE *file, void *context), void *context, char *text,
                     size_t capacity)
{
    errno = 0;
    const int error = write(stdout, context);

    if (error != 0 || fflush(stdout) != 0 || ferror(stdout) != 0) {
        refuse("-", error != 0 ? error : -HLG_EIO, text, capacity);
        return error != 0 ? error : -HLG_EIO;
    }
    return 0;
}

int sim_report_file(const char *path, int (*write)(FILE *file, void *context), void *context,
                    char *text, size_t capacity)
{
    struct sim_output output;

    if (strcmp(path, "-") == 0) {
        return to_stdout(write, context, text, capacity);
    }
    int error = sim_output_open(path, &output, text, capacity);
    if (error != 0) {
        return error;
    }
    errno = 0;
    error = write(output.file, context);
    if (error != 0) {
        refuse(path, error, text, capacity);
        sim_output_abandon(&output);
        return error;
    }
    return sim_output_close(&output, text, capacity);
}
