/*
 * Copies between one GPU and pinned host memory, in order, on a stream of their own, while the caller
 * goes on. Calls between copier_begin() and copier_end() run in the GPU's primary context; the caller's
 * own is current again afterwards. One thread at a time. After a failure copier_why() has the sentence;
 * once a copy has failed the GPU's context is broken, and all that follows fails too.
 */
#ifndef HALAGE_MEMORY_COPIER_H
#define HALAGE_MEMORY_COPIER_H

#include "internal.h"

struct copier;

/* marks: events that copier_mark() may set at a time. Returns 0, or an error as hlg_memory_create(). */
int copier_open(int32_t device, uint32_t marks, struct copier **copier, char *error,
                size_t error_bytes);
/* Waits for what is under way. Takes NULL. Pinned memory must have been given back. */
void copier_close(struct copier *c);

/* Pinned host memory, zeroed as mmap gives it or not at all: its content is the caller's to write. */
int copier_pin(struct copier *c, uint64_t bytes, void **host, char *error, size_t error_bytes);
void copier_unpin(struct copier *c, void *host);

int copier_begin(struct copier *c);
void copier_end(struct copier *c);

/* Between begin and end: put a copy into the stream. Returns 0, or -HLG_EIO. */
int copier_out(struct copier *c, void *host, const void *device, uint64_t bytes);
int copier_in(struct copier *c, void *device, const void *host, uint64_t bytes);
/* Mark what was put in so far; the number is the caller's, < marks, and not in use. */
int copier_mark(struct copier *c, uint32_t mark);

/* Whether all before the mark is done: 1, 0, or -HLG_EIO: it never will be. Needs no begin. */
int copier_done(struct copier *c, uint32_t mark);
/* Wait for all that was put in. Returns 0 or -HLG_EIO. Needs no begin. */
int copier_wait(struct copier *c);

const char *copier_why(const struct copier *c);

#endif
