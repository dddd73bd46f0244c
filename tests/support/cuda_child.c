#define _GNU_SOURCE
#include "cuda_child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "fake_cuda_control.h"

void in_child(void (*body)(void), const char *variable, const char *value)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        if (variable != NULL) {
            (void)setenv(variable, value, 1);
        }
        body();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("child ended with status %x (%s=%s)", status, variable != NULL ? variable : "",
                 value != NULL ? value : "");
    }
}

void check_clean(void)
{
    struct fake_cuda_control control;
    char text[256];

    fake_cuda_control(&control);
    if (control.live(text, sizeof text) != 0) {
        (void)fprintf(stderr, "leaked: %s\n", text);
        _exit(1);
    }
}

void refused_as(int code, int wanted, const char *error, const char *sentence)
{
    if (code != wanted || strstr(error, sentence) == NULL || strchr(error, '\n') != NULL) {
        (void)fprintf(stderr, "code %d '%s', not %d '%s'\n", code, error, wanted, sentence);
        _exit(1);
    }
}
