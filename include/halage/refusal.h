/*
 * A refusal as a sentence, for logs and people.
 */
#ifndef HALAGE_REFUSAL_H
#define HALAGE_REFUSAL_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for every sentence with its final zero. */
#define HLG_REFUSAL_TEXT_BYTES 256u

/*
 * Say in one sentence why a layout, or a pair of them, was refused: lower case, no full stop, fields
 * by the names that layout files use.
 *
 * why       may be foreign: unknown codes and fields are printed as numbers
 * text      [capacity] bytes, filled with a zero-terminated sentence
 * capacity  HLG_REFUSAL_TEXT_BYTES is always enough
 *
 * Returns the length without the zero, or -HLG_EINVAL when the sentence does not fit (`text` then
 * is an empty string if capacity allows one).
 */
int hlg_refusal_text(const struct hlg_refusal *why, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
