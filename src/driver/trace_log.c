/* Reading a log: all of it is checked before anything is made of it. */
#include "trace_internal.h"

#include <halage/refusal.h>
#include <halage/wire.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES      16u /* magic, version, length */
#define CONFIG_BYTES    (1u << 16)
#define END_BYTES       24u
#define LIMIT_MAX       (1u << 24) /* of a table: far beyond any node, and no product overflows */
#define PEERS_LIMIT_MAX (1u << 16)

static uint64_t get_number(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/* ---- Head ---- */

static const struct hlg_limits *limits_of(const struct hlg_trace_head *head)
{
    return head->role == HLG_ROLE_PREFILL ? &head->prefill.limits : &head->decode.limits;
}

static const char *find_absurd(const struct hlg_limits *limits)
{
    const struct {
        const char *name;
        uint32_t value;
        uint32_t max;
    } rows[] = {
        {"peers_max", limits->peers_max, PEERS_LIMIT_MAX},
        {"requests_max", limits->requests_max, HLG_SLOTS_MAX - 1},
        {"sources_max", limits->sources_max, HLG_SOURCES_MAX},
        {"lanes_max", limits->lanes_max, HLG_RANKS_MAX},
        {"rails_max", limits->rails_max, HLG_RAILS_MAX},
        {"slices_max", limits->slices_max, LIMIT_MAX},
        {"forwards_max", limits->forwards_max, LIMIT_MAX},
        {"chunks_max", limits->chunks_max, LIMIT_MAX},
        {"ops_max", limits->ops_max, LIMIT_MAX},
        {"blocks_max", limits->blocks_max, LIMIT_MAX},
        {"message_bytes_max", limits->message_bytes_max, HLG_MESSAGE_BYTES_MAX},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].value > rows[i].max) {
            return rows[i].name;
        }
    }
    return NULL;
}

static int check_head(const struct hlg_trace_head *head, char *error, size_t error_bytes)
{
    const struct hlg_layout *layout =
        head->role == HLG_ROLE_PREFILL ? &head->prefill.layout : &head->decode.layout;
    struct hlg_refusal why = {0};
    char sentence[HLG_REFUSAL_TEXT_BYTES] = "";

    if (head->role != HLG_ROLE_PREFILL && head->role != HLG_ROLE_DECODE) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head names role %u, which is neither prefill nor decode",
                          head->role);
    }
    const char *absurd = find_absurd(limits_of(head));
    if (absurd != NULL) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head's limits.%s is beyond what a node can have", absurd);
    }
    if (hlg_layout_check(layout, &why) != 0) {
        (void)hlg_refusal_text(&why, sentence, sizeof sentence);
        return trace_fail(error, error_bytes, -HLG_EPROTO, "the head's layout: %s", sentence);
    }
    size_t bytes = head->role == HLG_ROLE_PREFILL ? hlg_prefill_size(&head->prefill)
                                                  : hlg_decode_size(&head->decode);
    if (bytes == 0) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head's config breaks a limit: no machine can be made of it");
    }
    return 0;
}

static int open_head(struct hlg_trace_log *log, char *error, size_t error_bytes)
{
    if (log->size < HEAD_BYTES || memcmp(log->bytes, TRACE_MAGIC, TRACE_MAGIC_BYTES) != 0) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "not a trace of halage: it does not begin with %s", TRACE_MAGIC);
    }
    const uint64_t version = get_number(log->bytes + TRACE_MAGIC_BYTES, 4);
    if (version != HLG_TRACE_VERSION) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the trace has version %" PRIu64 ", this program reads %u: use the "
                          "program that recorded it",
                          version, HLG_TRACE_VERSION);
    }
    const uint64_t config = get_number(log->bytes + TRACE_MAGIC_BYTES + 4, 4);
    if (config > CONFIG_BYTES || config + HEAD_BYTES + 8 > log->size) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head breaks off: it wants %" PRIu64 " bytes of config", config);
    }
    const size_t limit = HEAD_BYTES + (size_t)config;
    if (trace_hash(TRACE_HASH_SEED, log->bytes, limit) != get_number(log->bytes + limit, 8)) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head was changed: its hash does not fit");
    }
    struct visit v = {.mode = VISIT_GET, .next = log->bytes + HEAD_BYTES, .left = config};
    visit_head(&v, &log->head);
    if (v.bad || v.left != 0) {
        return trace_fail(error, error_bytes, -HLG_EPROTO,
                          "the head's %" PRIu64 " bytes of config do not fit its fields", config);
    }
    log->begin = limit + 8;
    return check_head(&log->head, error, error_bytes);
}

/* ---- Records ---- */

static void get_record(struct visit *v, struct hlg_trace_record *record)
{
    switch ((enum hlg_trace_kind)record->kind) {
    case HLG_TRACE_EVENT:
        visit_event(v, &record->event);
        return;
    case HLG_TRACE_RESULT:
        visit_result(v, &record->result);
        return;
    case HLG_TRACE_ACTION:
        visit_pull(v, &record->lane, &record->kinds);
        visit_action(v, &record->action);
        return;
    case HLG_TRACE_NOTHING:
        visit_pull(v, &record->lane, &record->kinds);
        return;
    case HLG_TRACE_END:
        break;
    }
    v->bad = true;
}

/* Takes the record at log->at, whose length is known to fit. Returns whether its fields do. */
static bool take(struct hlg_trace_log *log, struct hlg_trace_record *record)
{
    const uint32_t own = log->bytes[log->at] == HLG_TRACE_EVENT ? 0 : 1;
    struct visit v = {.mode = VISIT_GET,
                      .arena = &log->arena,
                      .message = &log->messages[own],
                      .slice = &log->slice,
                      .scratch = log->scratches[own],
                      .scratch_bytes = log->scratch_bytes};

    memset(record, 0, sizeof *record);
    record->number = ++log->number;
    record->kind = log->bytes[log->at];
    log->payload_bytes = hlg_u32(get_number(log->bytes + log->at + 1, 4));
    log->payload = log->bytes + log->at + 5;
    v.next = log->payload;
    v.left = log->payload_bytes;
    get_record(&v, record);
    log->at += TRACE_RECORD_BYTES + log->payload_bytes;
    return !v.bad && v.left == 0;
}

struct scan {
    struct hlg_trace_log *log;
    uint64_t check;
    uint64_t events;
    uint64_t actions;
    hlg_time now;
    bool after_event; /* the record before was an EVENT */
    char *error;
    size_t error_bytes;
};

__attribute__((format(printf, 2, 3))) static int scan_fail(struct scan *s, const char *format, ...)
{
    char what[160];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments); /* NOLINT(clang-analyzer-valist.*) */
    va_end(arguments);
    return trace_fail(s->error, s->error_bytes, -HLG_EPROTO, "record %" PRIu64 " at byte %zu %s",
                      s->log->count + 1, s->log->at, what);
}

static int scan_end(struct scan *s, const uint8_t *payload, uint32_t bytes)
{
    struct hlg_trace_log *log = s->log;

    if (bytes != END_BYTES) {
        return scan_fail(s, "is an END of %u bytes, not %u", bytes, END_BYTES);
    }
    if (get_number(payload, 8) != s->events || get_number(payload + 8, 8) != s->actions ||
        get_number(payload + 16, 8) != log->hash) {
        return scan_fail(s, "is an END whose counts or hash are not those of the records before");
    }
    if (log->at + TRACE_RECORD_BYTES + bytes != log->size) {
        return scan_fail(s, "is the END, and %zu bytes follow",
                         log->size - log->at - TRACE_RECORD_BYTES - bytes);
    }
    return 0;
}

/* What holds between one record and the next. */
static int scan_order(struct scan *s, const struct hlg_trace_record *record)
{
    if (record->kind == HLG_TRACE_EVENT) {
        if (record->event.now < s->now) {
            return scan_fail(s, "is an event whose time runs back");
        }
        s->now = record->event.now;
        s->events++;
    } else if (record->kind == HLG_TRACE_RESULT &&
               (!s->after_event || record->result >= 0 || record->result < -HLG_EUNSUPPORTED)) {
        return scan_fail(s, "is a result of no event, or none that an event can have");
    }
    s->actions += record->kind == HLG_TRACE_ACTION;
    s->after_event = record->kind == HLG_TRACE_EVENT;
    return 0;
}

/* One record. Returns 1, 0 at a sound END, 2 where the log breaks off, or an error. */
static int scan_record(struct scan *s)
{
    struct hlg_trace_log *log = s->log;
    const size_t left = log->size - log->at;
    const uint8_t *at = log->bytes + log->at;

    if (left < TRACE_RECORD_BYTES || get_number(at + 1, 4) > left - TRACE_RECORD_BYTES) {
        return 2;
    }
    const uint32_t bytes = hlg_u32(get_number(at + 1, 4));
    const uint64_t check = trace_hash(s->check, at, 5 + (size_t)bytes);
    if ((check & UINT32_MAX) != get_number(at + 5 + bytes, 4)) {
        return scan_fail(s, "was changed, or one before it left out: its check does not fit");
    }
    if (at[0] == HLG_TRACE_END) {
        return scan_end(s, at + 5, bytes);
    }
    struct hlg_trace_record record;
    const size_t before = log->at;
    const bool sound = take(log, &record);
    log->at = before;
    if (!sound) {
        return scan_fail(s, "has kind %u and %u bytes, which do not fit its fields", at[0], bytes);
    }
    int error = scan_order(s, &record);
    if (error != 0) {
        return error;
    }
    if (record.kind != HLG_TRACE_EVENT) {
        log->hash = trace_hash(trace_hash(log->hash, at, 1), at + 5, bytes);
    }
    s->check = check;
    log->at += TRACE_RECORD_BYTES + bytes;
    log->count++;
    return 1;
}

static int scan_all(struct hlg_trace_log *log, bool partial, char *error, size_t error_bytes)
{
    struct scan s = {.log = log,
                     .check = trace_hash(TRACE_HASH_SEED, log->bytes, log->begin - 8),
                     .error = error,
                     .error_bytes = error_bytes};
    int more = 1;

    log->at = log->begin;
    while (more == 1) {
        more = scan_record(&s);
    }
    if (more == 2 && !partial) {
        return scan_fail(&s, "breaks off: the recording did not end well; read what is whole of it "
                             "as a partial log (--partial)");
    }
    log->cut = more == 2;
    log->limit = log->at;
    return more < 0 ? more : 0;
}

/* ---- Life ---- */

static int open_log(struct hlg_trace_log *log, bool partial, char *error, size_t error_bytes)
{
    int code = open_head(log, error, error_bytes);

    if (code != 0) {
        return code;
    }
    log->scratch_bytes = hlg_wire_scratch_bytes(limits_of(&log->head));
    log->scratches[0] = malloc(log->scratch_bytes);
    log->scratches[1] = malloc(log->scratch_bytes);
    log->arena.capacity = log->size / sizeof(uint32_t);
    log->arena.words = malloc(log->size);
    if (log->scratches[0] == NULL || log->scratches[1] == NULL || log->arena.words == NULL) {
        return trace_fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    code = scan_all(log, partial, error, error_bytes);
    hlg_trace_rewind(log);
    return code;
}

int hlg_trace_open(const uint8_t *bytes, size_t size, bool partial, struct hlg_trace_log **log,
                   char *error, size_t error_bytes)
{
    struct hlg_trace_log *opened = calloc(1, sizeof *opened);

    if (opened == NULL) {
        return trace_fail(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    opened->bytes = bytes;
    opened->size = size;
    opened->hash = TRACE_HASH_SEED;
    int code = open_log(opened, partial, error, error_bytes);
    if (code != 0) {
        hlg_trace_close(opened);
        return code;
    }
    *log = opened;
    return 0;
}

void hlg_trace_close(struct hlg_trace_log *log)
{
    if (log == NULL) {
        return;
    }
    free(log->scratches[0]);
    free(log->scratches[1]);
    free(log->arena.words);
    free(log);
}

const struct hlg_trace_head *hlg_trace_head(const struct hlg_trace_log *log)
{
    return &log->head;
}

uint64_t hlg_trace_count(const struct hlg_trace_log *log)
{
    return log->count;
}

bool hlg_trace_cut(const struct hlg_trace_log *log)
{
    return log->cut;
}

uint64_t hlg_trace_recorded_hash(const struct hlg_trace_log *log)
{
    return log->hash;
}

int hlg_trace_next(struct hlg_trace_log *log, struct hlg_trace_record *record)
{
    if (log->at == log->limit) {
        return 0;
    }
    bool sound = take(log, record);
    HLG_ASSERT(sound); /* open saw it */
    return 1;
}

void hlg_trace_rewind(struct hlg_trace_log *log)
{
    log->at = log->begin;
    log->number = 0;
    log->arena.used = 0;
}

/* ---- Telling ---- */

void hlg_trace_tell(const struct hlg_trace_record *record, const struct hlg_trace_teller *teller)
{
    struct hlg_trace_record copy = *record;
    struct visit v = {.mode = VISIT_TELL, .teller = teller};

    switch ((enum hlg_trace_kind)copy.kind) {
    case HLG_TRACE_EVENT:
        visit_event(&v, &copy.event);
        return;
    case HLG_TRACE_RESULT:
        teller->word(teller->context, "result", hlg_error_text(copy.result));
        return;
    case HLG_TRACE_ACTION:
        visit_action(&v, &copy.action);
        return;
    case HLG_TRACE_NOTHING:
        teller->word(teller->context, "action", "none");
        visit_pull(&v, &copy.lane, &copy.kinds);
        return;
    case HLG_TRACE_END:
        return;
    }
}

struct line {
    char *next;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int wanted =
        vsnprintf(line->next, line->left, format, arguments); /* NOLINT(clang-analyzer-valist.*) */
    va_end(arguments);
    size_t written = wanted < 0 ? 0 : (size_t)wanted;
    written = written < line->left ? written : line->left - 1;
    line->next += written;
    line->left -= written;
}

static void line_word(void *context, const char *name, const char *word)
{
    append(context, " %s %s", name, word);
}

static void line_number(void *context, const char *name, uint64_t value)
{
    if (value == HLG_TIME_NEVER || value == HLG_NONE) {
        append(context, " %s %s", name, value == HLG_NONE ? "none" : "never");
    } else {
        append(context, " %s %" PRIu64, name, value);
    }
}

static void line_integer(void *context, const char *name, int64_t value)
{
    append(context, " %s %" PRId64, name, value);
}

static void line_numbers(void *context, const char *name, const uint32_t *values, uint32_t count)
{
    append(context, " %s", name);
    for (uint32_t i = 0; i < count; i++) {
        append(context, "%c%u", i == 0 ? ' ' : ',', values[i]);
    }
    append(context, "%s", count == 0 ? " -" : "");
}

static void line_bytes(void *context, const char *name, const uint8_t *bytes, uint32_t count)
{
    append(context, " %s ", name);
    for (uint32_t i = 0; i < count; i++) {
        append(context, "%02x", bytes[i]);
    }
    append(context, "%s", count == 0 ? "-" : "");
}

void hlg_trace_text(const struct hlg_trace_record *record, char *text, size_t text_bytes)
{
    struct line line = {.next = text, .left = text_bytes};
    const struct hlg_trace_teller teller = {.word = line_word,
                                            .number = line_number,
                                            .integer = line_integer,
                                            .numbers = line_numbers,
                                            .bytes = line_bytes,
                                            .context = &line};

    HLG_ASSERT(text_bytes > 0);
    text[0] = '\0';
    append(&line, "%" PRIu64, record->number);
    hlg_trace_tell(record, &teller);
}
