/*
 * The cryptography of the handshake, without a channel: greetings, and the keys that come of two of them.
 * docs/protocol.md, "The handshake", gives the bytes.
 */
#ifndef HALAGE_SEALED_HANDSHAKE_H
#define HALAGE_SEALED_HANDSHAKE_H

#include "halage/transport/sealed.h"
#include "halage/wire.h"

#define SEALED_VERSION 1u

/* Kinds of the frames below, apart from those of messages. */
enum sealed_kind {
    SEALED_GREETING = 0x101,
    SEALED_FRAME = 0x102,
};

#define RANDOM_BYTES   32u
#define PUBLIC_BYTES   32u
#define MAC_BYTES      32u
#define TAG_BYTES      16u
#define GREETING_BYTES (HLG_WIRE_HEADER_BYTES + 4 + RANDOM_BYTES + PUBLIC_BYTES + 8 + 8 + MAC_BYTES)

_Static_assert(HLG_SEALED_OVERHEAD_BYTES == HLG_WIRE_HEADER_BYTES + TAG_BYTES, "header and tag");
_Static_assert(GREETING_BYTES <= HLG_SEALED_HANDSHAKE_BYTES, "the longest frame of the handshake");

/* What a side draws for one handshake: its random bytes, and the secret of its X25519 key. */
struct handshake_secret {
    uint8_t random[RANDOM_BYTES];
    uint8_t exchange[32];
};

/* What a greeting says. */
struct handshake_greeting {
    bool dialled;
    uint64_t node;
    uint64_t incarnation;
    uint8_t public[PUBLIC_BYTES];
};

struct handshake_keys {
    uint8_t to_accepting[32]; /* seals what the side that dialled sends */
    uint8_t to_dialling[32];
};

/* Header of a frame of `bytes` in all. */
void sealed_put_header(uint8_t header[HLG_WIRE_HEADER_BYTES], uint32_t kind, uint32_t bytes);
void sealed_get_header(const uint8_t header[HLG_WIRE_HEADER_BYTES], uint32_t *version,
                       uint32_t *kind, uint32_t *bytes);

/* Make our greeting. */
void handshake_greet(const struct hlg_sealed_config *config, const struct handshake_secret *secret,
                     uint8_t frame[GREETING_BYTES]);

/* Read theirs. Returns NONE, or why not. Costs one hash: nothing dearer is done for who lacks the key. */
enum hlg_sealed_reason handshake_read(const uint8_t key[HLG_SEALED_KEY_BYTES], const uint8_t *frame,
                                      uint32_t bytes, struct handshake_greeting *greeting);

/* Derive the two keys. `public` is the other side's. Returns false when that is no good. */
bool handshake_derive(const uint8_t key[HLG_SEALED_KEY_BYTES],
                      const struct handshake_secret *secret, const uint8_t public[PUBLIC_BYTES],
                      const uint8_t dialling[GREETING_BYTES],
                      const uint8_t accepting[GREETING_BYTES], struct handshake_keys *keys);

#endif
