#include "json_out.h"

#include "cli.h"
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int json_out_write(const char *program, const char *file, json_t *root)
{
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");
    if (out == NULL) {
        (void)options_error(program, "--json: %s: cannot be opened: %s", file,
                            strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
        json_decref(root);
        return CLI_FAILED;
    }
    bool good = root != NULL && json_dumpf(root, out, JSON_INDENT(1)) == 0;
    good = fputc('\n', out) != EOF && good;
    good = (out == stdout ? fflush(out) : fclose(out)) == 0 && good;
    json_decref(root);
    if (!good) {
        (void)options_error(program, "--json: %s: cannot be written", file);
        return CLI_FAILED;
    }
    return CLI_DONE;
}

FILE *json_out_text(const char *file)
{
    return file != NULL && strcmp(file, "-") == 0 ? stderr : stdout;
}

int json_out_end(const char *program, FILE *text, const char *file, json_t *root)
{
    if (fflush(text) != 0 || ferror(text)) {
        (void)options_error(program, "the text cannot be printed");
        json_decref(root);
        return CLI_FAILED;
    }
    if (file == NULL) {
        json_decref(root);
        return CLI_DONE;
    }
    return json_out_write(program, file, root);
}
