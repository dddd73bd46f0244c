/*
 * Tests over the double of libcuda whose bodies run in children: a driver is begun once a process, and what
 * steers the double is read then. Assertions of cmocka must not jump into the parent's frames: there
 * CHECK() and the functions below end the process.
 */
#ifndef CUDA_CHILD_H
#define CUDA_CHILD_H

#include <stdio.h>
#include <unistd.h>

#define SENTENCE 512u /* bytes of an error's */

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)

/* Runs a body, with a variable of the environment unless it is NULL; the test fails where the child does. */
void in_child(void (*body)(void), const char *variable, const char *value);

/* In the child: nothing of the driver's is alive. */
void check_clean(void);

/* In the child: a call gave this code, and its sentence holds this. */
void refused_as(int code, int wanted, const char *error, const char *sentence);

#endif
