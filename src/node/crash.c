#define _GNU_SOURCE /* sigaction() */
#include "crash.h"

#include <halage/messenger.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A handler is given no context. Written before it is installed. */
static struct {
    char title[48];
    bool watched;
} crash;

struct line {
    char text[320];
    size_t bytes;
};

/* Only what is async-signal-safe is called from here on. */
static void add(struct line *line, const char *text)
{
    const size_t bytes = strlen(text);
    if (bytes <= sizeof line->text - line->bytes) {
        memcpy(line->text + line->bytes, text, bytes);
        line->bytes += bytes;
    }
}

static void add_address(struct line *line, uintptr_t address)
{
    char digits[2 * sizeof address + 1] = "";
    size_t at = sizeof digits - 1;
    do {
        digits[--at] = "0123456789abcdef"[address % 16];
        address /= 16;
    } while (address > 0);
    add(line, "0x");
    add(line, digits + at);
}

/* No alternate stack: that is each thread's own, and the core thread is the library's. A thread without
 * any stack left ends without the sentence. */
static void on_crash(int number, siginfo_t *info, void *context)
{
    struct line line = {.bytes = 0};
    const char *call = hlg_messenger_call();
    (void)context;

    add(&line, crash.title);
    add(&line, number == SIGBUS ? ": crashed (SIGBUS at " : ": crashed (SIGSEGV at ");
    add_address(&line, (uintptr_t)info->si_addr);
    if (call != NULL) {
        add(&line, ") inside '");
        add(&line, call);
        add(&line, "' of its transport; start it again, and report this unless docs/transport.md "
                   "knows it of the provider\n");
    } else {
        add(&line, crash.watched ? ") outside any call of its transport" : ")");
        add(&line, "; start it again, and report this\n");
    }
    (void)!write(STDERR_FILENO, line.text, line.bytes);
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* pending until this returns */
}

void crash_report(const char *title, bool watched)
{
    static const int numbers[] = {SIGSEGV, SIGBUS};
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};

    (void)snprintf(crash.title, sizeof crash.title, "%s", title);
    crash.watched = watched;
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && (old.sa_flags & SA_SIGINFO) == 0 &&
            old.sa_handler == SIG_DFL) {
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}
