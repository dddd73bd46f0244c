/*
 * Each request and each step of a run, for JSON: what percentiles hide.
 */
#ifndef HALAGE_CLI_DETAIL_H
#define HALAGE_CLI_DETAIL_H

#include "traffic.h"

#include <jansson.h>

/*
 * Add "detail" to `root`: "requests", each with its nodes, sizes and moments, and "steps", each forward
 * pass of the prefill nodes and each step of the decode nodes. Times in nanoseconds since the first
 * request could come, null where the moment did not come.
 *
 * Returns 0 or -HLG_ENOMEM.
 */
int detail_add(const struct traffic *traffic, json_t *root);

#endif
