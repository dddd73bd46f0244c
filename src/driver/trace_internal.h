/*
 * What the files of the trace share. trace_fields.c knows every field of a record, once: the same
 * functions count, write, read and tell them. trace.c records, trace_log.c reads, trace_replay.c runs
 * a machine.
 */
#ifndef HALAGE_DRIVER_TRACE_INTERNAL_H
#define HALAGE_DRIVER_TRACE_INTERNAL_H

#include <halage/trace.h>

#define TRACE_MAGIC        "HLGTRACE"
#define TRACE_MAGIC_BYTES  8u
#define TRACE_RECORD_BYTES 9u /* kind, length and check */
#define TRACE_HASH_SEED    0xcbf29ce484222325u

static inline uint64_t trace_hash(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}

enum visit_mode {
    VISIT_COUNT, /* how many bytes will it be */
    VISIT_PUT,
    VISIT_GET,
    VISIT_TELL,
};

/* Page lists of a log that is read, in one piece: never more than the log has bytes. */
struct trace_arena {
    uint32_t *words;
    size_t used;
    size_t capacity;
};

struct visit {
    enum visit_mode mode;
    uint64_t count; /* COUNT */
    /* PUT */
    void (*put)(void *context, const void *bytes, size_t count);
    void *put_context;
    /* GET: goes bad at the first thing that cannot be, and stays so */
    const uint8_t *next;
    uint64_t left;
    bool bad;
    struct trace_arena *arena;
    struct hlg_message *message; /* filled by GET */
    struct hlg_slice *slice;     /* likewise */
    /* PUT: encoded frame; GET: arrays of the decoded one */
    void *scratch;
    uint64_t scratch_bytes;
    bool failed; /* PUT: a message did not fit into scratch */
    const struct hlg_trace_teller *teller;
};

void visit_event(struct visit *v, struct hlg_event *event);
void visit_pull(struct visit *v, uint32_t *lane, unsigned *kinds);
void visit_action(struct visit *v, struct hlg_action *action);
void visit_result(struct visit *v, int32_t *result);
void visit_head(struct visit *v, struct hlg_trace_head *head);

/* Appends a sentence's text; cut where it does not fit. Returns the code. */
__attribute__((format(printf, 4, 5))) int trace_fail(char *error, size_t error_bytes, int code,
                                                     const char *format, ...);

struct hlg_trace_log {
    const uint8_t *bytes;
    size_t size;
    size_t begin; /* of the first record */
    size_t limit; /* one past the last whole record, END not counted */
    size_t at;
    uint64_t number; /* of the last record taken */
    uint64_t count;
    bool cut;
    uint64_t hash;
    struct hlg_trace_head head;
    struct trace_arena arena;
    /* What a record points to. An event has its own: a machine looks at its message while actions are
       taken from the log. */
    struct hlg_message messages[2];
    void *scratches[2];
    uint64_t scratch_bytes;
    struct hlg_slice slice;
    /* of the record taken last */
    const uint8_t *payload;
    uint32_t payload_bytes;
};

#endif
