/*
 * Any bytes as a trace: refused in one sentence, or each record can be taken and told, twice alike. An input
 * whose first byte is odd is put behind the head of a sound config, and has its records' checks set right, so
 * that the fuzzer need not find hashes; one that is even stands as it is but for the first byte.
 */
#include "machine.h"

#include <driver/trace_internal.h>
#include <halage/trace.h>

#include <stdlib.h>

#define RECORD_HEAD_BYTES 5u
#define CHECK_BYTES       4u

static uint32_t length_at(const uint8_t *at)
{
    return at[1] | (uint32_t)at[2] << 8 | (uint32_t)at[3] << 16 | (uint32_t)at[4] << 24;
}

/* The head of a log of a small machine. Returns its bytes. */
static size_t make_head(uint32_t role, uint8_t *bytes, size_t capacity)
{
    struct hlg_trace *trace = NULL;
    struct hlg_prefill_config prefill = {.rails = 1, .node = 1, .incarnation = 2};
    struct hlg_decode_config decode = {.rails = 1, .node = 1, .incarnation = 2};
    struct feed none = {0};
    size_t size = 0;

    machine_limits(&none, &prefill.limits);
    machine_layout(1, &prefill.layout);
    decode.limits = prefill.limits;
    decode.layout = prefill.layout;
    HLG_ASSERT(hlg_trace_create(NULL, &trace, NULL, 0) == 0);
    hlg_trace_begin(trace, role == 0 ? &prefill : NULL, role == 0 ? NULL : &decode);
    const uint8_t *made = hlg_trace_bytes(trace, &size);
    HLG_ASSERT(made != NULL && size > RECORD_HEAD_BYTES + CHECK_BYTES + 24);
    size -= RECORD_HEAD_BYTES + CHECK_BYTES + 24; /* its END: two counts and a hash */
    HLG_ASSERT(size <= capacity);
    memcpy(bytes, made, size);
    hlg_trace_destroy(trace);
    return size;
}

/* Records out of the input: kind, two bytes of length (as far as there is input), payload; then the check. */
static size_t add_records(struct feed *f, uint8_t *bytes, size_t head, size_t capacity)
{
    uint64_t check = trace_hash(TRACE_HASH_SEED, bytes, head - 8);
    size_t size = head;

    while (f->left > 0) {
        uint8_t *at = bytes + size;
        at[0] = (uint8_t)feed_byte(f);
        uint32_t length = (uint32_t)feed_bytes(f, 2) % 1024;
        length = length < f->left ? length : (uint32_t)f->left;
        at[1] = (uint8_t)length;
        at[2] = (uint8_t)(length >> 8);
        at[3] = at[4] = 0;
        HLG_ASSERT(length_at(at) == length);
        HLG_ASSERT(size + RECORD_HEAD_BYTES + length + CHECK_BYTES <= capacity);
        for (uint32_t i = 0; i < length; i++) {
            at[RECORD_HEAD_BYTES + i] = (uint8_t)feed_byte(f);
        }
        check = trace_hash(check, at, RECORD_HEAD_BYTES + length);
        for (uint32_t i = 0; i < CHECK_BYTES; i++) {
            at[RECORD_HEAD_BYTES + length + i] = (uint8_t)(check >> (8 * i));
        }
        size += RECORD_HEAD_BYTES + length + CHECK_BYTES;
    }
    return size;
}

static uint64_t read_all(struct hlg_trace_log *log)
{
    struct hlg_trace_record record;
    char text[HLG_TRACE_TEXT_BYTES];
    uint64_t hash = TRACE_HASH_SEED;
    uint64_t count = 0;

    while (hlg_trace_next(log, &record) == 1) {
        hlg_trace_text(&record, text, sizeof text);
        hash = trace_hash(hash, text, strlen(text));
        count++;
    }
    HLG_ASSERT(count == hlg_trace_count(log));
    hlg_trace_rewind(log);
    return hash;
}

static void try_log(const uint8_t *bytes, size_t size, bool partial)
{
    struct hlg_trace_log *log = NULL;
    char error[256] = "";

    int result = hlg_trace_open(bytes, size, partial, &log, error, sizeof error);
    HLG_ASSERT(result == 0 || (error[0] != '\0' && strlen(error) < sizeof error));
    if (result != 0) {
        return;
    }
    HLG_ASSERT(hlg_trace_head(log) != NULL && (partial || !hlg_trace_cut(log)));
    uint64_t first = read_all(log);
    HLG_ASSERT(read_all(log) == first);
    hlg_trace_close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t made[64u << 10];
    struct feed f = {.next = data, .left = size};

    if (size == 0 || size > MACHINE_INPUT_MAX) {
        return 0;
    }
    uint32_t first = feed_byte(&f);
    if (first % 2 == 0) {
        try_log(f.next, f.left, first % 4 == 0);
        return 0;
    }
    size_t head = make_head(first / 2 % 2, made, sizeof made);
    size_t all = add_records(&f, made, head, sizeof made);
    uint8_t *exact = malloc(all);
    HLG_ASSERT(exact != NULL);
    memcpy(exact, made, all);
    try_log(exact, all, true);
    try_log(exact, all - 1, true);
    free(exact);
    return 0;
}
