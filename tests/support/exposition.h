/*
 * Reads Prometheus' text format strictly and looks its samples up: what a scraper would take, and the
 * conventions beyond it (units, _total, buckets that add up).
 */
#ifndef HALAGE_TESTS_EXPOSITION_H
#define HALAGE_TESTS_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPOSITION_NAME_BYTES 96u

/* Checks the whole text. Returns NULL, or a sentence on the first line that is wrong. */
const char *exposition_fault(const char *text);

/* Value of the sample that begins so, labels included, e.g. "halage_peers_up{side=\"decode\"}"; -1 when
 * there is none. */
double exposition_value(const char *text, const char *series);

/* Walks the families: copies the next one's name and type; returns where to go on, or NULL at the end. */
const char *exposition_next(const char *text, char name[EXPOSITION_NAME_BYTES], char type[16]);

#endif
