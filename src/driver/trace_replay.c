/* Replaying: the machine of a log again, told the same and asked the same. */
#include "pump_internal.h"
#include "trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_BYTES_MAX (1ull << 30)

struct replay {
    struct hlg_trace_log *log;
    struct pump_machine machine;
    struct hlg_trace_verdict *verdict;
    uint8_t *payload; /* [capacity] what a record of this action would hold */
    size_t used;
    size_t capacity;
    bool full;
    void *frame;
    uint32_t message_bytes_max;
    bool offered; /* a WRITE was pulled and waits for its TAKEN */
    hlg_op_id op;
    uint32_t pieces;
    char *error;
    size_t error_bytes;
};

static void keep(void *context, const void *bytes, size_t count)
{
    struct replay *r = context;

    if (count > r->capacity - r->used) {
        size_t capacity = 2 * r->capacity + count;
        uint8_t *grown = realloc(r->payload, capacity);
        if (grown == NULL) {
            r->full = true;
            return;
        }
        r->payload = grown;
        r->capacity = capacity;
    }
    memcpy(r->payload + r->used, bytes, count);
    r->used += count;
}

static void hash_record(struct replay *r, uint32_t kind)
{
    const uint8_t byte = (uint8_t)kind;

    r->verdict->hash = trace_hash(trace_hash(r->verdict->hash, &byte, 1), r->payload, r->used);
}

static void differ(struct replay *r, const struct hlg_trace_record *recorded,
                   const struct hlg_trace_record *replayed)
{
    struct hlg_trace_verdict *verdict = r->verdict;

    verdict->different = recorded->number;
    hlg_trace_text(recorded, verdict->recorded, sizeof verdict->recorded);
    hlg_trace_text(replayed, verdict->replayed, sizeof verdict->replayed);
}

/* A pull, and whether it gave what the record holds. Returns 0 or an error. */
static int replay_pull(struct replay *r, const struct hlg_trace_record *recorded)
{
    struct hlg_trace_record got = {
        .number = recorded->number, .lane = recorded->lane, .kinds = recorded->kinds};
    struct visit v = {.mode = VISIT_PUT,
                      .put = keep,
                      .put_context = r,
                      .scratch = r->frame,
                      .scratch_bytes = r->message_bytes_max};

    if (r->offered) {
        return trace_fail(r->error, r->error_bytes, -HLG_EPROTO,
                          "record %" PRIu64 " is a pull, but the WRITE before it was not answered",
                          recorded->number);
    }
    HLG_ASSERT(r->machine.next != NULL);
    int pulled = r->machine.next(r->machine.memory, got.lane, got.kinds, &got.action);
    got.kind = pulled != 0 ? HLG_TRACE_ACTION : HLG_TRACE_NOTHING;
    r->used = 0;
    visit_pull(&v, &got.lane, &got.kinds);
    if (pulled != 0) {
        visit_action(&v, &got.action);
        r->verdict->actions++;
    }
    if (r->full || v.failed || v.bad) {
        return trace_fail(r->error, r->error_bytes, -HLG_ENOMEM,
                          "record %" PRIu64 ": the replayed action is beyond memory",
                          recorded->number);
    }
    hash_record(r, got.kind);
    if (got.kind != recorded->kind || r->used != r->log->payload_bytes ||
        memcmp(r->payload, r->log->payload, r->used) != 0) {
        differ(r, recorded, &got);
        return 0;
    }
    if (pulled != 0 && got.action.kind == HLG_ACTION_WRITE) {
        r->offered = true;
        r->op = got.action.write.op;
        r->pieces = got.action.write.piece_limit - got.action.write.piece_begin;
    }
    return 0;
}

static int replay_event(struct replay *r, const struct hlg_event *event, uint64_t number,
                        int *result)
{
    const bool answers = event->kind == HLG_EVENT_TAKEN && event->taken.op == r->op &&
                         event->taken.pieces <= r->pieces;

    if (r->offered && !answers) {
        return trace_fail(r->error, r->error_bytes, -HLG_EPROTO,
                          "record %" PRIu64 " does not answer the WRITE before it with its TAKEN",
                          number);
    }
    HLG_ASSERT(r->machine.handle != NULL);
    r->offered = false;
    *result = r->machine.handle(r->machine.memory, event);
    r->verdict->events++;
    return 0;
}

/* What the machine answered to the last event, against the RESULT that came, or did not, after it. */
static bool same_result(struct replay *r, int *result, const struct hlg_trace_record *record)
{
    const bool recorded = record->kind == HLG_TRACE_RESULT;
    struct hlg_trace_record got = {
        .number = record->number, .kind = HLG_TRACE_RESULT, .result = *result};

    if (*result != 0) {
        struct visit v = {.mode = VISIT_PUT, .put = keep, .put_context = r};
        r->used = 0;
        visit_result(&v, &got.result);
        hash_record(r, HLG_TRACE_RESULT);
    }
    bool same = *result == (recorded ? record->result : 0);
    *result = 0;
    if (!same) {
        differ(r, record, &got);
    }
    return same;
}

static int replay_all(struct replay *r)
{
    /* Its event must live on while actions are pulled that point to its message. */
    struct hlg_trace_record record;
    int result = 0;
    int error = 0;

    hlg_trace_rewind(r->log);
    while (error == 0 && r->verdict->different == 0 && hlg_trace_next(r->log, &record) == 1) {
        if (!same_result(r, &result, &record)) {
            break;
        }
        if (record.kind == HLG_TRACE_EVENT) {
            error = replay_event(r, &record.event, record.number, &result);
        } else if (record.kind == HLG_TRACE_ACTION || record.kind == HLG_TRACE_NOTHING) {
            error = replay_pull(r, &record);
        }
    }
    /* A log that breaks off may lack the last result: nobody can tell. */
    if (error == 0 && r->verdict->different == 0 && result != 0 && !r->log->cut) {
        (void)same_result(
            r, &result,
            &(struct hlg_trace_record){.number = r->log->count + 1, .kind = HLG_TRACE_END});
    }
    return error;
}

static int make_machine(struct replay *r)
{
    const struct hlg_trace_head *head = &r->log->head;
    struct hlg_pump_config config = {.role = (enum hlg_role)head->role};
    bool prefill = head->role == HLG_ROLE_PREFILL;
    size_t bytes = prefill ? hlg_prefill_size(&head->prefill) : hlg_decode_size(&head->decode);

    if (bytes > MACHINE_BYTES_MAX) {
        return trace_fail(r->error, r->error_bytes, -HLG_ENOMEM,
                          "the head's limits want a machine of %zu bytes, and %llu are the most "
                          "that is replayed",
                          bytes, MACHINE_BYTES_MAX);
    }
    if (prefill) {
        config.prefill = head->prefill;
    } else {
        config.decode = head->decode;
    }
    int error = pump_machine_init(&r->machine, &config);
    if (error != 0) {
        return trace_fail(r->error, r->error_bytes, error, "no machine can be made: %s",
                          hlg_error_text(error));
    }
    return 0;
}

int hlg_trace_replay(struct hlg_trace_log *log, struct hlg_trace_verdict *verdict, char *error,
                     size_t error_bytes)
{
    bool prefill = log->head.role == HLG_ROLE_PREFILL;
    struct replay r = {.log = log,
                       .verdict = verdict,
                       .message_bytes_max = prefill ? log->head.prefill.limits.message_bytes_max
                                                    : log->head.decode.limits.message_bytes_max,
                       .error = error,
                       .error_bytes = error_bytes};

    *verdict = (struct hlg_trace_verdict){.hash = TRACE_HASH_SEED};
    r.frame = malloc(r.message_bytes_max > 0 ? r.message_bytes_max : 1);
    int code = r.frame == NULL ? trace_fail(error, error_bytes, -HLG_ENOMEM, "out of memory")
                               : make_machine(&r);
    if (code == 0) {
        code = replay_all(&r);
    }
    hlg_trace_rewind(log);
    free(r.machine.memory);
    free(r.payload);
    free(r.frame);
    return code;
}
