#include <halage/log.h>

#include "../core/note.h"

#include <inttypes.h>
#include <stdio.h>

const char *hlg_log_level_text(uint32_t level)
{
    static const char *const texts[] = {"fatal", "error", "warn", "info", "debug"};

    return level < sizeof texts / sizeof texts[0] ? texts[level] : "unknown";
}

const char *hlg_notice_text(uint32_t kind)
{
    static const char *const texts[] = {
        [HLG_NOTICE_PEER_UP] = "peer_up",     [HLG_NOTICE_PEER_REFUSED] = "peer_refused",
        [HLG_NOTICE_PEER_DOWN] = "peer_down", [HLG_NOTICE_PEER_DRAINING] = "peer_draining",
        [HLG_NOTICE_REQUESTED] = "requested", [HLG_NOTICE_STOPPING] = "stopping",
        [HLG_NOTICE_SENT] = "sent",           [HLG_NOTICE_FENCED] = "fenced",
        [HLG_NOTICE_ACCEPTED] = "accepted",   [HLG_NOTICE_READY] = "ready",
        [HLG_NOTICE_FAILED] = "failed",       [HLG_NOTICE_RETURNED] = "returned",
        [HLG_NOTICE_POISONED] = "poisoned",
    };

    return kind >= HLG_NOTICE_PEER_UP && kind < sizeof texts / sizeof texts[0] ? texts[kind]
                                                                               : "unknown";
}

const char *hlg_reason_text(uint32_t reason)
{
    static const char *const texts[] = {
        [HLG_REASON_NONE] = "none",           [HLG_REASON_REJECTED] = "rejected",
        [HLG_REASON_CANCELLED] = "cancelled", [HLG_REASON_PEER] = "peer",
        [HLG_REASON_DEADLINE] = "deadline",   [HLG_REASON_PROTOCOL] = "protocol",
        [HLG_REASON_LOCAL] = "local",         [HLG_REASON_PREEMPTED] = "preempted",
    };

    return reason < sizeof texts / sizeof texts[0] ? texts[reason] : "unknown";
}

/* How a note reads: names of a, b and c, NULL where one is unused. */
struct note_text {
    enum hlg_log_level level;
    const char *name;
    const char *a;
    const char *b;
    const char *c;
};

static const struct note_text notes[] = {
    [HLG_NOTE_SESSION_UP] = {HLG_LOG_DEBUG, "session_up", "node", "incarnation", NULL},
    [HLG_NOTE_SESSION_REFUSED] = {HLG_LOG_DEBUG, "session_refused", "code", NULL, NULL},
    [HLG_NOTE_SESSION_DOWN] = {HLG_LOG_INFO, "session_down", "why", "error", NULL},
    [HLG_NOTE_SESSION_REPLACED] = {HLG_LOG_WARN, "session_replaced", "node", NULL, NULL},
    [HLG_NOTE_SESSION_SHARED] = {HLG_LOG_WARN, "session_shared", "domain", NULL, NULL},
    [HLG_NOTE_MESSAGE_UNEXPECTED] = {HLG_LOG_ERROR, "message_unexpected", "kind", "state", NULL},
    [HLG_NOTE_OUTBOX_FULL] = {HLG_LOG_ERROR, "outbox_full", "waiting", NULL, NULL},
    [HLG_NOTE_REQUEST_REFUSED] = {HLG_LOG_WARN, "request_refused", "number", "reason", "line"},
    [HLG_NOTE_REQUEST_STOPPED] = {HLG_LOG_INFO, "request_stopped", "number", "reason", "posted"},
    [HLG_NOTE_CANCEL_UNKNOWN] = {HLG_LOG_DEBUG, "cancel_unknown", "number", NULL, NULL},
    [HLG_NOTE_WRITE_FAILED] = {HLG_LOG_ERROR, "write_failed", "number", "pieces", "error"},
    [HLG_NOTE_LAYER_UNANNOUNCED] = {HLG_LOG_DEBUG, "layer_unannounced", "word", "value", NULL},
    [HLG_NOTE_IMM_STALE] = {HLG_LOG_WARN, "imm_stale", "immediate", "pieces", NULL},
    [HLG_NOTE_IMM_UNKNOWN] = {HLG_LOG_WARN, "imm_unknown", "immediate", "pieces", NULL},
    [HLG_NOTE_IMM_EARLY] = {HLG_LOG_DEBUG, "imm_early", "number", "pieces", NULL},
    [HLG_NOTE_IMM_EXCESS] = {HLG_LOG_ERROR, "imm_excess", "number", "expected", "counted"},
    [HLG_NOTE_IMM_LATE] = {HLG_LOG_DEBUG, "imm_late", "number", "pieces", NULL},
    [HLG_NOTE_PIECES_DIFFER] = {HLG_LOG_ERROR, "pieces_differ", "number", "own", "peer"},
    [HLG_NOTE_ANSWER_UNKNOWN] = {HLG_LOG_DEBUG, "answer_unknown", "kind", "number", NULL},
    [HLG_NOTE_ANSWER_FOREIGN] = {HLG_LOG_WARN, "answer_foreign", "kind", "number", "incarnation"},
    [HLG_NOTE_FENCE_TIMEOUT] = {HLG_LOG_WARN, "fence_timeout", "number", NULL, NULL},
    [HLG_NOTE_PAGES_POISONED] = {HLG_LOG_ERROR, "pages_poisoned", "number", "pages", NULL},
    [HLG_NOTE_CREDIT_BACKWARD] = {HLG_LOG_ERROR, "credit_backward", "lane", "rail", "pieces"},
    [HLG_NOTE_GRANT_BACKWARD] = {HLG_LOG_ERROR, "grant_backward", "requests", "pages",
                                 "prompt_bytes"},
    [HLG_NOTE_GRANT_EXCEEDED] = {HLG_LOG_WARN, "grant_exceeded", "number", "times", NULL},
    [HLG_NOTE_SUBMIT_TOO_LARGE] = {HLG_LOG_WARN, "submit_too_large", "what", "asked", "most"},
    [HLG_NOTE_SUBMIT_SOURCES] = {HLG_LOG_WARN, "submit_sources", "rank", "hosts", NULL},
    [HLG_NOTE_STEP_HELLO_SENT] = {HLG_LOG_DEBUG, "hello_sent", "session", NULL, NULL},
    [HLG_NOTE_STEP_GREETED] = {HLG_LOG_DEBUG, "greeted", "node", "incarnation", NULL},
    [HLG_NOTE_STEP_CLOSING] = {HLG_LOG_DEBUG, "closing", "node", NULL, NULL},
    [HLG_NOTE_STEP_CLOSED] = {HLG_LOG_DEBUG, "closed", "node", NULL, NULL},
    [HLG_NOTE_STEP_REQUEST_WAITS] = {HLG_LOG_DEBUG, "request_waits", "number", NULL, NULL},
    [HLG_NOTE_STEP_REQUEST_SENT] = {HLG_LOG_DEBUG, "request_sent", "number", NULL, NULL},
    [HLG_NOTE_STEP_ACCEPTED] = {HLG_LOG_DEBUG, "accepted", "number", "pieces", NULL},
    [HLG_NOTE_STEP_FIRST_PIECE] = {HLG_LOG_DEBUG, "first_piece", "number", NULL, NULL},
    [HLG_NOTE_STEP_WHOLE] = {HLG_LOG_DEBUG, "whole", "number", "bytes", NULL},
    [HLG_NOTE_STEP_CANCEL_SENT] = {HLG_LOG_DEBUG, "cancel_sent", "number", NULL, NULL},
    [HLG_NOTE_STEP_SOURCE_FENCED] = {HLG_LOG_DEBUG, "source_fenced", "number", "by", NULL},
    [HLG_NOTE_STEP_PAGES_RETURNED] = {HLG_LOG_DEBUG, "pages_returned", "number", "pages", NULL},
    [HLG_NOTE_STEP_REQUESTED] = {HLG_LOG_DEBUG, "requested", "number", "pieces", NULL},
    [HLG_NOTE_STEP_ADMITTED] = {HLG_LOG_DEBUG, "admitted", "number", "cached", NULL},
    [HLG_NOTE_STEP_FIRST_POSTED] = {HLG_LOG_DEBUG, "first_posted", "number", "pieces", NULL},
    [HLG_NOTE_STEP_ALL_POSTED] = {HLG_LOG_DEBUG, "all_posted", "number", "pieces", NULL},
    [HLG_NOTE_STEP_SENT] = {HLG_LOG_DEBUG, "sent", "number", "pieces", NULL},
    [HLG_NOTE_STEP_FENCED_SENT] = {HLG_LOG_DEBUG, "fenced_sent", "number", "pieces", NULL},
};

static const struct note_text unknown = {HLG_LOG_WARN, "note", "a", "b", "c"};

static size_t add_pair(char *line, size_t at, size_t capacity, const char *name, uint64_t value)
{
    if (name == NULL || at >= capacity) {
        return at;
    }
    /* Signed: errors travel negated, and what else there is stays below 2^63 or is a random name. */
    int bytes = snprintf(line + at, capacity - at, " %s %" PRId64, name, (int64_t)value);
    return bytes < 0 ? at : at + (size_t)bytes;
}

static const struct note_text *text_of(const struct hlg_note *note)
{
    bool known = note->code < sizeof notes / sizeof notes[0] && notes[note->code].name != NULL;

    return known ? &notes[note->code] : &unknown;
}

enum hlg_log_level hlg_note_level(const struct hlg_note *note)
{
    return text_of(note)->level;
}

enum hlg_log_level hlg_note_text(const struct hlg_note *note, char *line, size_t capacity)
{
    const struct note_text *text = text_of(note);
    size_t at = 0;

    int bytes = snprintf(line, capacity, "%s", text->name);
    at = bytes < 0 ? 0 : (size_t)bytes;
    if (text == &unknown) {
        at = add_pair(line, at, capacity, "code", note->code);
    }
    if (note->peer != HLG_NONE) {
        at = add_pair(line, at, capacity, "peer", note->peer);
    }
    at = add_pair(line, at, capacity, text->a, note->a);
    at = add_pair(line, at, capacity, text->b, note->b);
    at = add_pair(line, at, capacity, text->c, note->c);
    HLG_ASSERT(at < HLG_NOTE_TEXT_BYTES);
    return text->level;
}
