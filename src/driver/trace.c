/* Recording: what the pump says of its machine, as a log. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (64u << 10)

struct hlg_trace {
    int fd; /* -1: in memory */
    bool begun;
    bool ended;
    bool failed; /* some of it could not be written: the rest is dropped */
    int why;     /* errno of that; 0: it is not a write that failed */
    uint8_t *buffer;
    size_t used;
    size_t capacity;
    uint64_t check; /* running, over records */
    uint64_t hash;  /* running, over what the machine gave */
    uint64_t events;
    uint64_t actions;
    bool node_empty;      /* such a pull of nothing is written since the last event or action */
    uint64_t lanes_empty; /* likewise, of writes */
    void *scratch;        /* a frame */
    uint64_t scratch_bytes;
};

int trace_fail(char *error, size_t error_bytes, int code, const char *format, ...)
{
    va_list arguments;

    if (error_bytes > 0) {
        va_start(arguments, format);
        /* Cut where it does not fit. clang-tidy 14 does not see va_start. */
        (void)vsnprintf(error, error_bytes, format,
                        arguments); /* NOLINT(clang-analyzer-valist.*) */
        va_end(arguments);
    }
    return code;
}

int hlg_trace_create(const char *path, struct hlg_trace **trace, char *error, size_t error_bytes)
{
    struct hlg_trace *t = calloc(1, sizeof *t);

    if (t == NULL) {
        return trace_fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    t->fd = -1;
    t->hash = TRACE_HASH_SEED;
    t->capacity = BUFFER_BYTES;
    t->buffer = malloc(t->capacity);
    if (t->buffer == NULL) {
        free(t);
        return trace_fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    if (path != NULL) {
        t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (t->fd < 0) {
            int code = trace_fail(error, error_bytes, -HLG_EIO, "cannot record to %s: %s", path,
                                  strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
            free(t->buffer);
            free(t);
            return code;
        }
    }
    *trace = t;
    return 0;
}

/* ---- Bytes ---- */

static void flush(struct hlg_trace *t)
{
    size_t done = 0;

    while (t->fd >= 0 && !t->failed && done < t->used) {
        ssize_t wrote = write(t->fd, t->buffer + done, t->used - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            t->failed = true;
            t->why = wrote == 0 ? ENOSPC : errno;
        }
    }
    t->used = t->fd >= 0 ? 0 : t->used;
}

static bool make_room(struct hlg_trace *t, size_t count)
{
    if (t->fd >= 0) {
        flush(t);
        return true;
    }
    size_t capacity = 2 * t->capacity + count;
    uint8_t *grown = realloc(t->buffer, capacity);
    if (grown == NULL) {
        t->failed = true;
        return false;
    }
    t->buffer = grown;
    t->capacity = capacity;
    return true;
}

static void put_raw(struct hlg_trace *t, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0 && !t->failed) {
        size_t room = t->capacity - t->used;
        if (room == 0 || (t->fd < 0 && room < count)) {
            if (!make_room(t, count)) {
                return;
            }
            continue;
        }
        size_t part = count < room ? count : room;
        memcpy(t->buffer + t->used, at, part);
        t->used += part;
        at += part;
        count -= part;
    }
}

static void put_checked(void *context, const void *bytes, size_t count)
{
    struct hlg_trace *t = context;

    t->check = trace_hash(t->check, bytes, count);
    put_raw(t, bytes, count);
}

/* Of a record: what the machine gave, too. */
static void put_hashed(void *context, const void *bytes, size_t count)
{
    struct hlg_trace *t = context;

    t->hash = trace_hash(t->hash, bytes, count);
    put_checked(t, bytes, count);
}

static void put_u32(struct hlg_trace *t, uint32_t value)
{
    const uint8_t wire[4] = {(uint8_t)(value & 0xffu), (uint8_t)(value >> 8 & 0xffu),
                             (uint8_t)(value >> 16 & 0xffu), (uint8_t)(value >> 24)};

    put_checked(t, wire, sizeof wire);
}

static void put_u64(struct hlg_trace *t, uint64_t value)
{
    put_u32(t, hlg_u32(value & UINT32_MAX));
    put_u32(t, hlg_u32(value >> 32));
}

/* The check itself is not part of what it checks. */
static void put_check(struct hlg_trace *t)
{
    uint64_t check = t->check;

    put_u32(t, hlg_u32(check & UINT32_MAX));
    t->check = check;
}

/* ---- Records ---- */

struct record {
    enum hlg_trace_kind kind;
    uint32_t lane;
    unsigned kinds;
    int32_t result;
    struct hlg_event *event;
    struct hlg_action *action;
};

static void visit_record(struct visit *v, struct record *r)
{
    switch (r->kind) {
    case HLG_TRACE_EVENT:
        visit_event(v, r->event);
        return;
    case HLG_TRACE_RESULT:
        visit_result(v, &r->result);
        return;
    case HLG_TRACE_ACTION:
        visit_pull(v, &r->lane, &r->kinds);
        visit_action(v, r->action);
        return;
    case HLG_TRACE_NOTHING:
        visit_pull(v, &r->lane, &r->kinds);
        return;
    case HLG_TRACE_END:
        return;
    }
}

static void put_record(struct hlg_trace *t, struct record *r)
{
    struct visit v = {
        .mode = VISIT_COUNT, .scratch = t->scratch, .scratch_bytes = t->scratch_bytes};
    const uint8_t kind = (uint8_t)r->kind;

    if (!t->begun || t->ended || t->failed) {
        return;
    }
    visit_record(&v, r);
    if (v.failed || v.bad || v.count > UINT32_MAX) {
        t->failed = true; /* a message or an event beyond what any reader takes */
        return;
    }
    uint64_t bytes = v.count;
    put_checked(t, &kind, 1);
    put_u32(t, hlg_u32(bytes));
    v.mode = VISIT_PUT;
    v.put = r->kind == HLG_TRACE_EVENT ? put_checked : put_hashed;
    v.put_context = t;
    if (r->kind != HLG_TRACE_EVENT) {
        t->hash = trace_hash(t->hash, &kind, 1);
    }
    visit_record(&v, r);
    put_check(t);
}

void hlg_trace_begin(struct hlg_trace *t, const struct hlg_prefill_config *prefill,
                     const struct hlg_decode_config *decode)
{
    struct hlg_trace_head head = {.role = prefill != NULL ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE};
    struct visit v = {.mode = VISIT_COUNT};

    HLG_ASSERT((prefill != NULL) != (decode != NULL));
    HLG_ASSERT(!t->begun);
    if (prefill != NULL) {
        head.prefill = *prefill;
    } else {
        head.decode = *decode;
    }
    t->scratch_bytes =
        prefill != NULL ? prefill->limits.message_bytes_max : decode->limits.message_bytes_max;
    t->scratch = malloc(t->scratch_bytes);
    t->failed = t->failed || t->scratch == NULL;
    t->check = TRACE_HASH_SEED;
    put_checked(t, TRACE_MAGIC, TRACE_MAGIC_BYTES);
    put_u32(t, HLG_TRACE_VERSION);
    visit_head(&v, &head);
    put_u32(t, hlg_u32(v.count));
    v.mode = VISIT_PUT;
    v.put = put_checked;
    v.put_context = t;
    visit_head(&v, &head);
    uint64_t check = t->check;
    put_u64(t, check);
    t->check = check;
    t->begun = true;
    flush(t);
}

void hlg_trace_event(struct hlg_trace *t, const struct hlg_event *event)
{
    struct hlg_event copy = *event;

    t->node_empty = false;
    t->lanes_empty = 0;
    put_record(t, &(struct record){.kind = HLG_TRACE_EVENT, .event = &copy});
    t->events++;
    flush(t);
}

void hlg_trace_result(struct hlg_trace *t, int result)
{
    if (result != 0) {
        put_record(t, &(struct record){.kind = HLG_TRACE_RESULT, .result = result});
    }
}

void hlg_trace_action(struct hlg_trace *t, uint32_t lane, unsigned kinds,
                      const struct hlg_action *action)
{
    struct hlg_action copy = *action;

    t->node_empty = false;
    t->lanes_empty = 0;
    put_record(t, &(struct record){
                      .kind = HLG_TRACE_ACTION, .lane = lane, .kinds = kinds, .action = &copy});
    t->actions++;
}

void hlg_trace_nothing(struct hlg_trace *t, uint32_t lane, unsigned kinds)
{
    HLG_ASSERT(lane < HLG_RANKS_MAX);
    if (kinds == HLG_ACTION_WRITE) {
        if ((t->lanes_empty >> lane & 1u) != 0) {
            return;
        }
        t->lanes_empty |= 1ull << lane;
    } else if (kinds == HLG_ACTIONS_NODE) {
        if (t->node_empty) {
            return;
        }
        t->node_empty = true;
    }
    put_record(t, &(struct record){.kind = HLG_TRACE_NOTHING, .lane = lane, .kinds = kinds});
}

uint64_t hlg_trace_hash(const struct hlg_trace *t)
{
    return t->hash;
}

/* ---- End ---- */

static void end(struct hlg_trace *t)
{
    const uint8_t kind = HLG_TRACE_END;

    if (t->begun && !t->ended && !t->failed) {
        put_checked(t, &kind, 1);
        put_u32(t, 24);
        put_u64(t, t->events);
        put_u64(t, t->actions);
        put_u64(t, t->hash);
        put_check(t);
    }
    flush(t);
    t->ended = true;
}

const uint8_t *hlg_trace_bytes(struct hlg_trace *t, size_t *bytes)
{
    end(t);
    if (t->fd >= 0 || t->failed) {
        return NULL;
    }
    *bytes = t->used;
    return t->buffer;
}

int hlg_trace_destroy(struct hlg_trace *t)
{
    if (t == NULL) {
        return 0;
    }
    end(t);
    bool failed = t->failed;
    if (t->fd >= 0) {
        failed = close(t->fd) != 0 || failed;
    }
    const int why = t->why != 0 ? t->why : errno;
    free(t->scratch);
    free(t->buffer);
    free(t);
    errno = failed ? why : errno;
    return failed ? -HLG_EIO : 0;
}
