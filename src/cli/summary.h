/*
 * What a run tells: the lines before it, its progress, the table at its end, and JSON.
 */
#ifndef HALAGE_CLI_SUMMARY_H
#define HALAGE_CLI_SUMMARY_H

#include "traffic.h"

/* What is about to run. */
void summary_begin(const struct traffic *traffic);

/* A bar on a terminal, now and then a line elsewhere. `now` on the machine's clock. */
void summary_progress(struct traffic *traffic, hlg_time now);

/* A line for people, with the bar out of its way. */
__attribute__((format(printf, 2, 3))) void summary_say(struct traffic *traffic, const char *format,
                                                       ...);

/* The table. */
void summary_end(struct traffic *traffic);

/* The JSON file, where one is wanted. Returns an enum cli_exit. */
int summary_json(struct traffic *traffic);

#endif
