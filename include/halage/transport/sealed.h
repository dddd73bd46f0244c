/*
 * sealed: a decorator over any channel that authenticates and encrypts its frames with a key that both
 * nodes were given. Link `halage_sealed`; it needs libsodium.
 *
 * Both sides exchange a greeting (random bytes, a fresh X25519 key, node, incarnation), each under the
 * shared key, and derive from it, both greetings and the exchange one key a direction. Then each frame is
 * sealed with ChaCha20-Poly1305 and a count. What is altered, repeated, left out, reordered, reflected or
 * of another session does not open, and ends the channel. docs/protocol.md, "The handshake", has every
 * byte.
 *
 * Nothing of the channel below comes out, and nothing goes in, before the other side has proved that it
 * has the key. Nothing is allocated but by open. The channel has no clock: whoever waits for a handshake
 * bounds it. `ready` of a fabric tells of the channels below, so do not decorate where it is used.
 */
#ifndef HALAGE_TRANSPORT_SEALED_H
#define HALAGE_TRANSPORT_SEALED_H

#include "halage/channel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_SEALED_KEY_BYTES 32u

/* A frame of the channel below is this much longer than the one within it. */
#define HLG_SEALED_OVERHEAD_BYTES 24u

/* The longest frame of the handshake: the channel below needs no longer ones until it is over. */
#define HLG_SEALED_HANDSHAKE_BYTES 128u

/* Why a channel ended. */
enum hlg_sealed_reason {
    HLG_SEALED_NONE = 0,
    HLG_SEALED_VERSION, /* another version of the handshake */
    HLG_SEALED_PLAIN,   /* frames without a handshake: the other side has no key */
    HLG_SEALED_KEY,     /* made with another key */
    HLG_SEALED_ALTERED, /* altered, repeated, left out, reordered, reflected or of another session */
    HLG_SEALED_LONG,    /* a length that does not fit its frame, or beyond message_bytes_max */
    HLG_SEALED_IDENTITY, /* HELLO names another node or incarnation than the greeting did */
    HLG_SEALED_REFUSED,  /* the other side refused us, for a reason that it said */
    HLG_SEALED_REASONS,
};

enum hlg_sealed_state {
    HLG_SEALED_GREETING = 0, /* the handshake is under way: send answers 0, receive gives nothing */
    HLG_SEALED_OPEN,         /* the other side has proved that it has the key */
    HLG_SEALED_OVER,         /* of no use any more */
};

struct hlg_sealed_config {
    const uint8_t *key; /* [HLG_SEALED_KEY_BYTES] shared by all nodes; copied */
    bool dialled;       /* of the two sides one says true */
    uint64_t node;      /* ours, as our HELLO will say them */
    uint64_t incarnation;
    uint32_t message_bytes_max; /* of one frame within; the channel below takes OVERHEAD more */
    /* Fills `bytes` with unpredictable ones: of the greeting. NULL: the system's; tests give their own. */
    void (*random)(void *context, uint8_t *bytes, size_t count);
    void *random_context;
    uint64_t *counts; /* [HLG_SEALED_REASONS] that each end for a reason is added to; NULL: none */
};

/*
 * Decorate a channel. Owns `below` from now on, also on failure.
 *
 * Returns 0 with *sealed, -HLG_ENOMEM, or -HLG_EIO when libsodium does not start. Takes two buffers of
 * message_bytes_max; pages of them never used stay the system's. The handshake costs each side two
 * X25519 operations (about 0.1 ms), the accepting side only for a greeting made with the key.
 */
int hlg_sealed_open(const struct hlg_sealed_config *config, struct hlg_channel *below,
                    struct hlg_channel **sealed);

/* Move the handshake on as far as it goes without waiting, and take nothing that comes after it. Returns
 * the state. Who does not call this leaves it to receive. */
enum hlg_sealed_state hlg_sealed_shake(struct hlg_channel *sealed);

/* Whether a frame is a greeting: for who has no key, and wants to say so. */
bool hlg_sealed_is_greeting(const uint8_t *frame, uint32_t bytes);

/* State of a channel that hlg_sealed_open() made, as of its last receive. *reason, unless NULL: why it is
 * OVER (NONE: the channel below ended). */
enum hlg_sealed_state hlg_sealed_state(const struct hlg_channel *sealed,
                                       enum hlg_sealed_reason *reason);

/* A few words, lower case, that go on from "the other side": "has another key". */
const char *hlg_sealed_reason_text(enum hlg_sealed_reason reason);

/* Draw a new key from the system. Returns 0 or -HLG_EIO. */
int hlg_sealed_key_make(uint8_t key[HLG_SEALED_KEY_BYTES]);

#define HLG_SEALED_KEY_DIGITS 64u

/* A key as 64 hexadecimal digits and a zero; and back: returns whether `text` is just that, spaces and
 * line ends around it aside. */
void hlg_sealed_key_print(const uint8_t key[HLG_SEALED_KEY_BYTES],
                          char text[HLG_SEALED_KEY_DIGITS + 1]);
bool hlg_sealed_key_parse(const char *text, uint8_t key[HLG_SEALED_KEY_BYTES]);

#ifdef __cplusplus
}
#endif

#endif
