/*
 * What threads of ours do with signals: those of the process are for the engine's threads. Faults of the thread
 * itself stay with it: blocked, they would end the process past every handler, a sanitizer's too.
 */
#ifndef HALAGE_MESSENGER_SIGNALS_H
#define HALAGE_MESSENGER_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* Threads that are made from now on take no signal but their own faults, until pthread_sigmask() restores
 * `before`. */
static inline void signals_leave(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t others;

    (void)sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)sigdelset(&others, faults[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &others, before);
}

#endif
