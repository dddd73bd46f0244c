/*
 * Frames: messages as bytes. Pure; safe on any bytes whatever.
 *
 * A frame is 4 bytes of length (of what follows), 2 of protocol version, 2 of kind, then the body.
 * docs/protocol.md gives every field.
 */
#ifndef HALAGE_WIRE_H
#define HALAGE_WIRE_H

#include "message.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_WIRE_HEADER_BYTES 8u

/* Exact bytes of the frame of a message, header included. Page lists travel as runs. */
uint64_t hlg_wire_bytes(const struct hlg_message *message);

/*
 * Encode one message. Returns the bytes written, or -HLG_ELIMIT when `capacity` is short.
 * frame   [capacity] bytes
 */
int64_t hlg_wire_encode(const struct hlg_message *message, uint8_t *frame, uint64_t capacity);

/*
 * Decode one whole frame.
 *
 * frame    [bytes], header included
 * scratch  [scratch_bytes], 8-byte aligned; arrays of the message are put there
 * message  filled on success; its pointers point into scratch or frame
 *
 * Returns 0; -HLG_EPROTO for anything malformed: short, long, trailing bytes, unknown kind or
 * version, count beyond its bound, pad not zero; -HLG_ELIMIT when scratch is too small.
 * Scratch of hlg_wire_scratch_bytes(limits) always suffices for what the limits admit.
 */
int hlg_wire_decode(const uint8_t *frame, uint64_t bytes, void *scratch, uint64_t scratch_bytes,
                    struct hlg_message *message);

/* Bytes of scratch that every message takes which the limits admit. */
uint64_t hlg_wire_scratch_bytes(const struct hlg_limits *limits);

/*
 * Length of the frame that starts with these HLG_WIRE_HEADER_BYTES bytes, header included, or
 * -HLG_EPROTO when it is shorter than a header or longer than frame_bytes_max.
 */
int64_t hlg_wire_frame_bytes(const uint8_t *header, uint32_t frame_bytes_max);

/* Whether a frame is a HELLO, of this version and long enough to say who greets; then who. Looks at
 * nothing else of it. */
bool hlg_wire_hello_identity(const uint8_t *frame, uint64_t bytes, uint64_t *node,
                             uint64_t *incarnation);

#ifdef __cplusplus
}
#endif

#endif
