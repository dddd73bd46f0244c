/*
 * What the library's numbers are called in a log: levels, notices, reasons and the core's notes.
 */
#ifndef HALAGE_LOG_H
#define HALAGE_LOG_H

#include "action.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hlg_log_level {
    HLG_LOG_FATAL = 0,
    HLG_LOG_ERROR,
    HLG_LOG_WARN,
    HLG_LOG_INFO,
    HLG_LOG_DEBUG,
};

#define HLG_NOTE_TEXT_BYTES 192u

/* One lower-case word each; "unknown" for a number that is none of the enum. */
const char *hlg_log_level_text(uint32_t level);
const char *hlg_notice_text(uint32_t kind);
const char *hlg_reason_text(uint32_t reason);

/* The level that a note's line belongs to: whoever would not log it need not make it. */
enum hlg_log_level hlg_note_level(const struct hlg_note *note);

/*
 * Make the log line of a note: its name, then `name value` pairs.
 *
 * line  [capacity], HLG_NOTE_TEXT_BYTES is always enough
 *
 * Returns the level that the line belongs to.
 */
enum hlg_log_level hlg_note_text(const struct hlg_note *note, char *line, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
