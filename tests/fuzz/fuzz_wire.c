/*
 * Any bytes as a frame. What decodes has one encoding only: encoded again it is the same bytes. Each
 * input is tried as it stands, and once more with the length and the version that a frame of its size
 * must have, so that the fuzzer need not find them.
 */
#include "fuzz.h"

#include <halage/wire.h>

#include <stdlib.h>

#define FRAME_BYTES_MAX (64u << 10)
#define SCRATCH_BYTES   (1u << 20)

static void try_frame(const uint8_t *frame, uint64_t bytes, uint64_t scratch_bytes)
{
    static _Alignas(8) uint8_t scratch[SCRATCH_BYTES];
    static uint8_t again[FRAME_BYTES_MAX + 64];
    struct hlg_message message;

    int result = hlg_wire_decode(frame, bytes, scratch, scratch_bytes, &message);
    HLG_ASSERT(result == 0 || result == -HLG_EPROTO || result == -HLG_ELIMIT);
    if (result != 0) {
        return;
    }
    HLG_ASSERT(hlg_wire_frame_bytes(frame, HLG_MESSAGE_BYTES_MAX) == (int64_t)bytes);
    HLG_ASSERT(hlg_wire_bytes(&message) == bytes);
    HLG_ASSERT(hlg_wire_encode(&message, again, sizeof again) == (int64_t)bytes);
    HLG_ASSERT(memcmp(again, frame, bytes) == 0);
    HLG_ASSERT(hlg_wire_encode(&message, again, bytes - 1) == -HLG_ELIMIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > FRAME_BYTES_MAX) {
        return 0;
    }
    try_frame(data, size, SCRATCH_BYTES);
    if (size < HLG_WIRE_HEADER_BYTES) {
        return 0;
    }
    int64_t says = hlg_wire_frame_bytes(data, HLG_MESSAGE_BYTES_MAX);
    HLG_ASSERT(says == -HLG_EPROTO || (says >= 8 && says <= (int64_t)HLG_MESSAGE_BYTES_MAX));
    uint8_t *mended = malloc(size);
    HLG_ASSERT(mended != NULL);
    memcpy(mended, data, size);
    for (uint32_t i = 0; i < 4; i++) {
        mended[i] = (uint8_t)((size - 4) >> (8 * i));
    }
    mended[4] = 1;
    mended[5] = 0;
    try_frame(mended, size, SCRATCH_BYTES);
    try_frame(mended, size, data[0] * 8ull); /* little room */
    free(mended);
    return 0;
}
