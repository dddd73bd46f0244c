/*
 * A trace: what one machine was told and what it asked for, so that a run can be looked at and run
 * again elsewhere. The machine is pure, so that the events of a trace, handed to a machine made from
 * its config, give the same actions again, whatever the transport was. `halage trace` prints and
 * replays one.
 *
 * The log is little-endian. A head: 8 bytes "HLGTRACE", u32 version, u32 bytes of the config that
 * follows, config, u64 hash of all that. Then records: u8 kind, u32 bytes, payload, u32 check, where
 * check is the low half of a running hash over all records so far, so that none can be changed, left
 * out or moved unseen. Last an END with the counts and the action hash. All hashes are FNV-1a, 64 bits;
 * they find accidents, not forgers. A log holds prompts, request ids and page numbers, never KV bytes
 * or keys of memory beyond those that HELLO carries.
 */
#ifndef HALAGE_TRACE_H
#define HALAGE_TRACE_H

#include "action.h"
#include "decode.h"
#include "event.h"
#include "prefill.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_TRACE_VERSION    3u
#define HLG_TRACE_TEXT_BYTES 1024u

/* ---- Recording: a pump is given the recorder (struct hlg_pump_config) and does the calls ---- */

struct hlg_trace;

/*
 * Make a recorder that writes a file, made anew or cut to nothing, or keeps the log in memory (path
 * NULL). Each event is with the kernel before the machine sees it, so that the log of a process that
 * dies is whole up to the event that it died of; that costs a write(2) an event.
 *
 * error  [error_bytes] a sentence on failure; may be NULL with 0 bytes
 *
 * Returns 0, -HLG_EIO or -HLG_ENOMEM. One thread at a time. Memory of a log kept in memory grows with it.
 */
int hlg_trace_create(const char *path, struct hlg_trace **trace, char *error, size_t error_bytes);

/* Writes END, closes the file, frees all. Returns 0, or -HLG_EIO when some of the log could not be
 * written (disk full; errno says why): what is there is then cut short. NULL is allowed: 0. */
int hlg_trace_destroy(struct hlg_trace *trace);

/* The head: once, first. The config is that of the machine of this role, the other is NULL. */
void hlg_trace_begin(struct hlg_trace *trace, const struct hlg_prefill_config *prefill,
                     const struct hlg_decode_config *decode);
/* Before the machine is handed an event, and what it answered. */
void hlg_trace_event(struct hlg_trace *trace, const struct hlg_event *event);
void hlg_trace_result(struct hlg_trace *trace, int result);
/* After a pull: the action, or that there was none. Of pulls of nothing only the first since the last
 * event or action is written, since a machine has no more to say until then. */
void hlg_trace_action(struct hlg_trace *trace, uint32_t lane, unsigned kinds,
                      const struct hlg_action *action);
void hlg_trace_nothing(struct hlg_trace *trace, uint32_t lane, unsigned kinds);

/* Running hash of all that the machine gave so far: results that are not 0, actions with all their
 * fields, and pulls of nothing, in order. */
uint64_t hlg_trace_hash(const struct hlg_trace *trace);
/* Ends the log (as destroy does; recorder calls after it are dropped) and returns it, when it is kept in
 * memory: good until destroy. NULL for a file, or when memory ran out. */
const uint8_t *hlg_trace_bytes(struct hlg_trace *trace, size_t *bytes);

/* ---- Reading ---- */

enum hlg_trace_kind {
    HLG_TRACE_EVENT = 1,
    HLG_TRACE_RESULT,  /* of the event before it; left out when 0 */
    HLG_TRACE_ACTION,  /* one was pulled */
    HLG_TRACE_NOTHING, /* none was there */
    HLG_TRACE_END,
};

struct hlg_trace_record {
    uint64_t number; /* from 1 */
    uint32_t kind;   /* enum hlg_trace_kind */
    uint32_t lane;   /* ACTION, NOTHING: what the pull asked for */
    unsigned kinds;
    int32_t result;           /* RESULT */
    struct hlg_event event;   /* EVENT */
    struct hlg_action action; /* ACTION */
};

/* Who made the trace. */
struct hlg_trace_head {
    uint32_t role; /* enum hlg_role */
    union {
        struct hlg_prefill_config prefill;
        struct hlg_decode_config decode;
    };
};

struct hlg_trace_log;

/*
 * Look at a log: all of it is checked, record by record, before this returns.
 *
 * bytes    [size] kept until close; foreign data is welcome
 * partial  take what is whole of a log that breaks off, as that of a process that died does
 * error    [error_bytes] a sentence on failure: what is wrong, in which record, at which byte
 *
 * Returns 0, -HLG_EPROTO (not a log, another version, cut, changed, or numbers that cannot be),
 * -HLG_ENOMEM.
 */
int hlg_trace_open(const uint8_t *bytes, size_t size, bool partial, struct hlg_trace_log **log,
                   char *error, size_t error_bytes);
void hlg_trace_close(struct hlg_trace_log *log);

/* Who made it. Good until close. */
const struct hlg_trace_head *hlg_trace_head(const struct hlg_trace_log *log);
/* Records, END not counted. */
uint64_t hlg_trace_count(const struct hlg_trace_log *log);
/* Whether it breaks off before an END. */
bool hlg_trace_cut(const struct hlg_trace_log *log);
/* Action hash of all its records; END's, checked, when it has one. */
uint64_t hlg_trace_recorded_hash(const struct hlg_trace_log *log);

/* The next record. Returns 1, or 0 at the end. Page lists live until rewind or close; the message of
 * an event or of an action, and a slice, until the next one. */
int hlg_trace_next(struct hlg_trace_log *log, struct hlg_trace_record *record);
void hlg_trace_rewind(struct hlg_trace_log *log);

/* Gets a record's fields one by one, in order. */
struct hlg_trace_teller {
    void (*word)(void *context, const char *name, const char *word);
    void (*number)(void *context, const char *name, uint64_t value);
    void (*integer)(void *context, const char *name, int64_t value);
    void (*numbers)(void *context, const char *name, const uint32_t *values, uint32_t count);
    void (*bytes)(void *context, const char *name, const uint8_t *bytes, uint32_t count);
    void *context;
};
/* Hand the fields of a record to a teller. */
void hlg_trace_tell(const struct hlg_trace_record *record, const struct hlg_trace_teller *teller);
/* The same in one line, `name value` pairs; cut where it does not fit. */
void hlg_trace_text(const struct hlg_trace_record *record, char *text, size_t text_bytes);

/* ---- Replaying ---- */

struct hlg_trace_verdict {
    uint64_t events; /* handed over */
    uint64_t actions;
    uint64_t hash;      /* of what the machine gave, as hlg_trace_hash() */
    uint64_t different; /* number of the first record that is not what the machine gave; 0: none */
    char recorded[HLG_TRACE_TEXT_BYTES]; /* that record, and what came instead */
    char replayed[HLG_TRACE_TEXT_BYTES];
};

/*
 * Make a machine from the log's config, hand it the events and pull in the recorded order, up to the
 * first difference. Rewinds the log before and after.
 *
 * Returns 0 with *verdict, also when there is a difference; -HLG_EPROTO with a sentence when the log
 * asks what no driver may (time running back, a WRITE not answered by its TAKEN); -HLG_ENOMEM. A machine
 * that broke an invariant when it was recorded does so again: the process aborts, as it did then.
 */
int hlg_trace_replay(struct hlg_trace_log *log, struct hlg_trace_verdict *verdict, char *error,
                     size_t error_bytes);

#ifdef __cplusplus
}
#endif

#endif
