/*
 * The channel contract (halage/channel.h) as tests, over any backend. A program links channel.c and
 * one backend file that defines `channel_backend`.
 */
#ifndef CONFORMANCE_CHANNEL_H
#define CONFORMANCE_CHANNEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "halage/channel.h"
#include "halage/wire.h"

struct channel_backend {
    const char *name;

    /* Make the two ends of a channel whose frames are at most message_bytes_max long. */
    void (*pair)(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b);

    /* Move the network and its clock on. NULL: they move by themselves. */
    void (*step)(void);

    /* Make one end, and a blocking descriptor that is the other. NULL: it is not a byte stream. */
    int (*raw)(uint32_t message_bytes_max, struct hlg_channel **a);

    /* After each test, when its channels are closed. May be NULL. */
    void (*done)(void);
};

/* As with CONFORMANCE_BACKEND: the one below a decorator is `channel_below`. */
#ifndef CHANNEL_BACKEND
#define CHANNEL_BACKEND channel_backend
#endif
extern const struct channel_backend CHANNEL_BACKEND;
extern const struct channel_backend channel_backend;

#endif
