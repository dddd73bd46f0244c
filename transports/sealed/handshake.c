#include "handshake.h"

#include <sodium.h>
#include <string.h>

/* Offsets in a greeting. */
enum {
    AT_ROLE = HLG_WIRE_HEADER_BYTES,
    AT_RANDOM = AT_ROLE + 4,
    AT_PUBLIC = AT_RANDOM + RANDOM_BYTES,
    AT_NODE = AT_PUBLIC + PUBLIC_BYTES,
    AT_INCARNATION = AT_NODE + 8,
    AT_MAC = AT_INCARNATION + 8,
};

_Static_assert(AT_MAC + MAC_BYTES == GREETING_BYTES, "the fields fill it");
_Static_assert(crypto_scalarmult_BYTES == PUBLIC_BYTES, "X25519");
_Static_assert(crypto_generichash_KEYBYTES_MAX >= HLG_SEALED_KEY_BYTES, "the key fits the hash");
_Static_assert(sizeof(struct handshake_keys) == crypto_generichash_BYTES_MAX,
               "both keys come of one hash");

/* What a hash is for goes first, so that no hash can be taken for another. */
static const char greeting_purpose[16] = "halage greeting";
static const char keys_purpose[16] = "halage keys";

static void put(uint8_t *bytes, uint64_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i) & 0xffu);
    }
}

static uint64_t get(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

void sealed_put_header(uint8_t header[HLG_WIRE_HEADER_BYTES], uint32_t kind, uint32_t bytes)
{
    put(header, bytes - 4, 4);
    put(header + 4, SEALED_VERSION, 2);
    put(header + 6, kind, 2);
}

void sealed_get_header(const uint8_t header[HLG_WIRE_HEADER_BYTES], uint32_t *version,
                       uint32_t *kind, uint32_t *bytes)
{
    *bytes = (uint32_t)get(header, 4) + 4;
    *version = (uint32_t)get(header + 4, 2);
    *kind = (uint32_t)get(header + 6, 2);
}

static void hash_begin(crypto_generichash_state *hash, const uint8_t *key, const char purpose[16],
                       size_t bytes)
{
    (void)crypto_generichash_init(hash, key, HLG_SEALED_KEY_BYTES, bytes); /* sizes are in range */
    (void)crypto_generichash_update(hash, (const uint8_t *)purpose, 16);
}

static void make_mac(const uint8_t *key, const uint8_t *frame, uint8_t mac[MAC_BYTES])
{
    crypto_generichash_state hash;

    hash_begin(&hash, key, greeting_purpose, MAC_BYTES);
    (void)crypto_generichash_update(&hash, frame, AT_MAC);
    (void)crypto_generichash_final(&hash, mac, MAC_BYTES);
}

void handshake_greet(const struct hlg_sealed_config *config, const struct handshake_secret *secret,
                     uint8_t frame[GREETING_BYTES])
{
    sealed_put_header(frame, SEALED_GREETING, GREETING_BYTES);
    put(frame + AT_ROLE, config->dialled, 4);
    memcpy(frame + AT_RANDOM, secret->random, RANDOM_BYTES);
    (void)crypto_scalarmult_base(frame + AT_PUBLIC, secret->exchange); /* always 0 */
    put(frame + AT_NODE, config->node, 8);
    put(frame + AT_INCARNATION, config->incarnation, 8);
    make_mac(config->key, frame, frame + AT_MAC);
}

enum hlg_sealed_reason handshake_read(const uint8_t key[HLG_SEALED_KEY_BYTES], const uint8_t *frame,
                                      uint32_t bytes, struct handshake_greeting *greeting)
{
    uint8_t mac[MAC_BYTES];
    uint32_t version = 0;
    uint32_t kind = 0;
    uint32_t length = 0;

    HLG_ASSERT(bytes >= HLG_WIRE_HEADER_BYTES);
    sealed_get_header(frame, &version, &kind, &length);
    if (kind != SEALED_GREETING) {
        return HLG_SEALED_PLAIN;
    }
    if (version != SEALED_VERSION) {
        return HLG_SEALED_VERSION;
    }
    if (bytes != GREETING_BYTES || length != bytes) {
        return HLG_SEALED_LONG;
    }
    make_mac(key, frame, mac);
    if (sodium_memcmp(mac, frame + AT_MAC, MAC_BYTES) != 0) {
        return HLG_SEALED_KEY;
    }
    const uint64_t role = get(frame + AT_ROLE, 4);
    if (role > 1) {
        return HLG_SEALED_ALTERED;
    }
    greeting->dialled = role == 1;
    greeting->node = get(frame + AT_NODE, 8);
    greeting->incarnation = get(frame + AT_INCARNATION, 8);
    memcpy(greeting->public, frame + AT_PUBLIC, PUBLIC_BYTES);
    return HLG_SEALED_NONE;
}

bool handshake_derive(const uint8_t key[HLG_SEALED_KEY_BYTES],
                      const struct handshake_secret *secret, const uint8_t public[PUBLIC_BYTES],
                      const uint8_t dialling[GREETING_BYTES],
                      const uint8_t accepting[GREETING_BYTES], struct handshake_keys *keys)
{
    crypto_generichash_state hash;
    uint8_t shared[crypto_scalarmult_BYTES];
    uint8_t both[sizeof *keys];

    if (crypto_scalarmult(shared, secret->exchange, public) != 0) {
        return false; /* a point of small order: the exchange would be no secret */
    }
    hash_begin(&hash, key, keys_purpose, sizeof both);
    (void)crypto_generichash_update(&hash, dialling, GREETING_BYTES);
    (void)crypto_generichash_update(&hash, accepting, GREETING_BYTES);
    (void)crypto_generichash_update(&hash, shared, sizeof shared);
    (void)crypto_generichash_final(&hash, both, sizeof both);
    memcpy(keys->to_accepting, both, sizeof keys->to_accepting);
    memcpy(keys->to_dialling, both + sizeof keys->to_accepting, sizeof keys->to_dialling);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(both, sizeof both);
    sodium_memzero(&hash, sizeof hash);
    return true;
}
