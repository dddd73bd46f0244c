/* The channel: its states, and the sealing and opening of frames. */
#define _GNU_SOURCE
#include "handshake.h"

#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == TAG_BYTES, "tag");
_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == 32, "key of a direction");
_Static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12, "4 zeros and a count");

enum step {
    AWAIT_GREETING = 0,
    AWAIT_PROOF, /* the first sealed frame, which is empty */
    OPEN,
    OVER,
};

/* One direction: each frame has its number as nonce, so that only the next one opens. */
struct direction {
    uint8_t key[32];
    uint64_t count;
};

struct sealed {
    struct hlg_channel channel;
    struct hlg_channel *below;
    struct hlg_sealed_config config;
    uint8_t key[HLG_SEALED_KEY_BYTES];
    enum step step;
    enum hlg_sealed_reason reason; /* OVER */
    bool owe_greeting;
    bool owe_proof;
    struct handshake_secret secret;
    struct handshake_greeting peer;
    uint8_t greeting[GREETING_BYTES];
    struct direction sending;
    struct direction receiving;
    uint8_t *in;      /* [message_bytes_max] the frame given out last */
    uint8_t *out;     /* [message_bytes_max + OVERHEAD] */
    uint32_t waiting; /* bytes of `out` that the channel below has not taken */
};

static struct sealed *sealed_of(struct hlg_channel *c)
{
    return (struct sealed *)c;
}

static void wipe(struct sealed *s)
{
    sodium_memzero(s->key, sizeof s->key);
    sodium_memzero(&s->secret, sizeof s->secret);
}

static void end(struct sealed *s, enum hlg_sealed_reason reason)
{
    HLG_ASSERT(s->step != OVER);
    if (reason != HLG_SEALED_NONE && s->config.counts != NULL) {
        s->config.counts[reason]++;
    }
    s->step = OVER;
    s->reason = reason;
    s->owe_greeting = false;
    s->owe_proof = false;
    wipe(s);
    sodium_memzero(&s->sending, sizeof s->sending);
    sodium_memzero(&s->receiving, sizeof s->receiving);
}

static int over(const struct sealed *s)
{
    return s->reason == HLG_SEALED_NONE || s->reason == HLG_SEALED_REFUSED ? -HLG_EPEER
                                                                           : -HLG_EPROTO;
}

/* Hand what waits to the channel below. */
static void flush(struct sealed *s)
{
    if (s->waiting == 0 || s->step == OVER) {
        return;
    }
    const int taken = s->below->ops->send(s->below, s->out, s->waiting);
    if (taken != 0) {
        s->waiting = 0;
    }
    if (taken < 0) {
        end(s, HLG_SEALED_NONE);
    }
}

static void make_nonce(uint64_t count, uint8_t nonce[12])
{
    memset(nonce, 0, 12);
    for (uint32_t i = 0; i < 8; i++) {
        nonce[4 + i] = (uint8_t)(count >> (8 * i) & 0xffu);
    }
}

/* Seal a frame into `out`, once: it is sent as it is, or kept as it is. So no count serves twice. */
static void seal(struct sealed *s, const uint8_t *frame, uint32_t bytes)
{
    uint8_t nonce[12];

    HLG_ASSERT(s->waiting == 0);
    HLG_ASSERT(s->sending.count != UINT64_MAX);
    make_nonce(s->sending.count++, nonce);
    s->waiting = bytes + HLG_SEALED_OVERHEAD_BYTES;
    sealed_put_header(s->out, SEALED_FRAME, s->waiting);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(s->out + HLG_WIRE_HEADER_BYTES, NULL, frame,
                                                    bytes, s->out, HLG_WIRE_HEADER_BYTES, NULL,
                                                    nonce, s->sending.key); /* always 0 */
    flush(s);
}

/* Open a frame into `in`. Returns the bytes within, or -1 when it does not open: a reason is set. */
static int64_t unseal(struct sealed *s, const uint8_t *frame, uint32_t bytes)
{
    uint8_t nonce[12];
    uint32_t version = 0;
    uint32_t kind = 0;
    uint32_t length = 0;

    sealed_get_header(frame, &version, &kind, &length);
    if (bytes < HLG_SEALED_OVERHEAD_BYTES || length != bytes ||
        bytes - HLG_SEALED_OVERHEAD_BYTES > s->config.message_bytes_max) {
        end(s, HLG_SEALED_LONG);
        return -1;
    }
    make_nonce(s->receiving.count++, nonce);
    if (kind != SEALED_FRAME || version != SEALED_VERSION ||
        crypto_aead_chacha20poly1305_ietf_decrypt(
            s->in, NULL, NULL, frame + HLG_WIRE_HEADER_BYTES, bytes - HLG_WIRE_HEADER_BYTES, frame,
            HLG_WIRE_HEADER_BYTES, nonce, s->receiving.key) != 0) {
        end(s, HLG_SEALED_ALTERED);
        return -1;
    }
    return (int64_t)bytes - HLG_SEALED_OVERHEAD_BYTES;
}

/* ---- The handshake ---- */

/* Say what we owe, one thing after the other. */
static void say(struct sealed *s)
{
    flush(s);
    if (s->owe_greeting && s->waiting == 0) {
        s->owe_greeting = false;
        memcpy(s->out, s->greeting, GREETING_BYTES);
        s->waiting = GREETING_BYTES;
        flush(s);
    }
    if (s->owe_proof && !s->owe_greeting && s->waiting == 0) {
        s->owe_proof = false;
        seal(s, NULL, 0);
    }
}

/* The handshake came to nothing: last words in clear, a BYE, for whoever has no key or another one. It
 * proves nothing, and nothing is done for it but to name a reason. */
static void refuse(struct sealed *s, enum hlg_sealed_reason reason)
{
    const uint32_t trouble = reason == HLG_SEALED_PLAIN ? HLG_KEY_MISSING_THERE
                             : reason == HLG_SEALED_KEY ? HLG_KEY_DIFFERS
                                                        : HLG_KEY_HANDSHAKE;
    const struct hlg_message bye = {.kind = HLG_MESSAGE_BYE,
                                    .bye = {.why = {.code = HLG_REFUSAL_KEY, .a = trouble}}};

    if (s->waiting == 0) {
        const int64_t bytes = hlg_wire_encode(&bye, s->out, s->config.message_bytes_max);
        if (bytes > 0) {
            (void)s->below->ops->send(s->below, s->out, hlg_u32((uint64_t)bytes));
        }
    }
    end(s, reason);
}

/* Whether a frame is a BYE in clear; then *reason is what the other side holds against us. */
static bool is_refusal(const uint8_t *frame, uint32_t bytes, enum hlg_sealed_reason *reason)
{
    uint64_t scratch[1];
    struct hlg_message message;

    if (hlg_wire_decode(frame, bytes, scratch, sizeof scratch, &message) != 0 ||
        message.kind != HLG_MESSAGE_BYE) {
        return false;
    }
    *reason = HLG_SEALED_REFUSED;
    if (message.bye.why.code == HLG_REFUSAL_KEY) {
        *reason = message.bye.why.a == HLG_KEY_MISSING_HERE ? HLG_SEALED_PLAIN
                  : message.bye.why.a == HLG_KEY_DIFFERS    ? HLG_SEALED_KEY
                                                            : HLG_SEALED_REFUSED;
    }
    return true;
}

static void on_greeting(struct sealed *s, const uint8_t *frame, uint32_t bytes)
{
    struct handshake_keys keys;
    enum hlg_sealed_reason reason = HLG_SEALED_NONE;

    if (is_refusal(frame, bytes, &reason)) {
        end(s, reason);
        return;
    }
    reason = handshake_read(s->key, frame, bytes, &s->peer);
    if (reason == HLG_SEALED_NONE && s->peer.dialled == s->config.dialled) {
        reason = HLG_SEALED_ALTERED; /* our own, or of one that greets in the wrong role */
    }
    if (reason != HLG_SEALED_NONE) {
        refuse(s, reason);
        return;
    }
    if (!s->config.dialled) {
        handshake_greet(&s->config, &s->secret, s->greeting);
        s->owe_greeting = true;
    }
    if (!handshake_derive(s->key, &s->secret, s->peer.public,
                          s->config.dialled ? s->greeting : frame,
                          s->config.dialled ? frame : s->greeting, &keys)) {
        refuse(s, HLG_SEALED_ALTERED);
        return;
    }
    memcpy(s->sending.key, s->config.dialled ? keys.to_accepting : keys.to_dialling, 32);
    memcpy(s->receiving.key, s->config.dialled ? keys.to_dialling : keys.to_accepting, 32);
    sodium_memzero(&keys, sizeof keys);
    wipe(s);
    s->step = AWAIT_PROOF;
    s->owe_proof = true;
    say(s);
}

static void on_proof(struct sealed *s, const uint8_t *frame, uint32_t bytes)
{
    enum hlg_sealed_reason reason = HLG_SEALED_NONE;

    if (is_refusal(frame, bytes, &reason)) {
        end(s, reason);
        return;
    }
    const int64_t within = unseal(s, frame, bytes);
    if (within > 0) {
        end(s, HLG_SEALED_ALTERED); /* a proof is empty */
    } else if (within == 0) {
        s->step = OPEN;
    }
}

/* ---- Operations ---- */

static int sealed_send(struct hlg_channel *c, const uint8_t *frame, uint32_t bytes)
{
    struct sealed *s = sealed_of(c);

    if (bytes < HLG_WIRE_HEADER_BYTES || bytes > s->config.message_bytes_max) {
        return -HLG_EINVAL;
    }
    say(s);
    if (s->step == OVER) {
        return -HLG_EPEER;
    }
    if (s->step != OPEN || s->owe_proof || s->waiting > 0) {
        return 0;
    }
    seal(s, frame, bytes);
    return s->step == OVER ? -HLG_EPEER : 1;
}

/* Give out the frame within a sealed one. */
static int on_frame(struct sealed *s, const uint8_t *frame, uint32_t bytes, const uint8_t **inner,
                    uint32_t *inner_bytes)
{
    uint64_t node = 0;
    uint64_t incarnation = 0;

    const int64_t within = unseal(s, frame, bytes);
    if (within < 0) {
        return over(s);
    }
    if (within < HLG_WIRE_HEADER_BYTES ||
        hlg_wire_frame_bytes(s->in, s->config.message_bytes_max) != within) {
        end(s, HLG_SEALED_LONG);
        return over(s);
    }
    if (hlg_wire_hello_identity(s->in, (uint64_t)within, &node, &incarnation) &&
        (node != s->peer.node || incarnation != s->peer.incarnation)) {
        end(s, HLG_SEALED_IDENTITY);
        return over(s);
    }
    *inner = s->in;
    *inner_bytes = hlg_u32((uint64_t)within);
    return 1;
}

/* Take one frame of the channel below. Returns whether there is one; when it is over, so are we. */
static bool take(struct sealed *s, const uint8_t **frame, uint32_t *bytes)
{
    const int got = s->below->ops->receive(s->below, frame, bytes);

    if (got >= 0) {
        return got == 1;
    }
    if (got == -HLG_EPROTO && s->step == AWAIT_GREETING) {
        refuse(s, HLG_SEALED_PLAIN); /* longer than a greeting: a HELLO, or nothing of ours */
    } else {
        end(s, got == -HLG_EPROTO ? HLG_SEALED_LONG : HLG_SEALED_NONE);
    }
    return false;
}

/* Until the handshake is over, or nothing more has come. */
static void shake(struct sealed *s)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;

    say(s);
    while ((s->step == AWAIT_GREETING || s->step == AWAIT_PROOF) && take(s, &frame, &bytes)) {
        if (s->step == AWAIT_GREETING) {
            on_greeting(s, frame, bytes);
        } else {
            on_proof(s, frame, bytes);
        }
    }
}

static int sealed_receive(struct hlg_channel *c, const uint8_t **frame, uint32_t *bytes)
{
    struct sealed *s = sealed_of(c);
    const uint8_t *outer = NULL;
    uint32_t outer_bytes = 0;

    shake(s);
    if (s->step == OPEN && take(s, &outer, &outer_bytes)) {
        return on_frame(s, outer, outer_bytes, frame, bytes);
    }
    return s->step == OVER ? over(s) : 0;
}

static int sealed_wait_fd(struct hlg_channel *c, short *events)
{
    const struct sealed *s = sealed_of(c);
    const int fd = s->below->ops->wait_fd(s->below, events);

    if (s->waiting > 0) {
        *events = (short)(*events | POLLOUT);
    }
    return fd;
}

static const char *sealed_name(struct hlg_channel *c)
{
    return sealed_of(c)->below->ops->name(sealed_of(c)->below);
}

static void sealed_free(struct sealed *s)
{
    free(s->in);
    free(s->out);
    sodium_memzero(s, sizeof *s);
    free(s);
}

static void sealed_close(struct hlg_channel *c)
{
    struct sealed *s = sealed_of(c);

    say(s);
    s->below->ops->close(s->below);
    sealed_free(s);
}

static const struct hlg_channel_ops sealed_ops = {
    .send = sealed_send,
    .receive = sealed_receive,
    .wait_fd = sealed_wait_fd,
    .name = sealed_name,
    .close = sealed_close,
};

static void system_random(void *context, uint8_t *bytes, size_t count)
{
    (void)context;
    randombytes_buf(bytes, count);
}

int hlg_sealed_open(const struct hlg_sealed_config *config, struct hlg_channel *below,
                    struct hlg_channel **sealed)
{
    HLG_ASSERT(config->message_bytes_max >= HLG_SEALED_HANDSHAKE_BYTES);
    HLG_ASSERT(config->message_bytes_max <= HLG_MESSAGE_BYTES_MAX);
    if (sodium_init() < 0) {
        below->ops->close(below);
        return -HLG_EIO;
    }
    struct sealed *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->in = malloc(config->message_bytes_max);
        s->out = malloc(config->message_bytes_max + HLG_SEALED_OVERHEAD_BYTES);
    }
    if (s == NULL || s->in == NULL || s->out == NULL) {
        if (s != NULL) {
            sealed_free(s);
        }
        below->ops->close(below);
        return -HLG_ENOMEM;
    }
    s->channel.ops = &sealed_ops;
    s->below = below;
    s->config = *config;
    memcpy(s->key, config->key, sizeof s->key);
    s->config.key = s->key;
    if (s->config.random == NULL) {
        s->config.random = system_random;
    }
    s->config.random(s->config.random_context, s->secret.random, sizeof s->secret.random);
    s->config.random(s->config.random_context, s->secret.exchange, sizeof s->secret.exchange);
    if (config->dialled) {
        handshake_greet(&s->config, &s->secret, s->greeting);
        s->owe_greeting = true;
        say(s);
    }
    *sealed = &s->channel;
    return 0;
}

enum hlg_sealed_state hlg_sealed_shake(struct hlg_channel *sealed)
{
    HLG_ASSERT(sealed->ops == &sealed_ops);
    shake(sealed_of(sealed));
    return hlg_sealed_state(sealed, NULL);
}

bool hlg_sealed_is_greeting(const uint8_t *frame, uint32_t bytes)
{
    uint32_t version = 0;
    uint32_t kind = 0;
    uint32_t length = 0;

    if (bytes < HLG_WIRE_HEADER_BYTES) {
        return false;
    }
    sealed_get_header(frame, &version, &kind, &length);
    return kind == SEALED_GREETING;
}

enum hlg_sealed_state hlg_sealed_state(const struct hlg_channel *sealed,
                                       enum hlg_sealed_reason *reason)
{
    HLG_ASSERT(sealed->ops == &sealed_ops);
    const struct sealed *s = (const struct sealed *)sealed;

    if (reason != NULL) {
        *reason = s->reason;
    }
    switch (s->step) {
    case AWAIT_GREETING:
    case AWAIT_PROOF:
        return HLG_SEALED_GREETING;
    case OPEN:
        return HLG_SEALED_OPEN;
    case OVER:
        return HLG_SEALED_OVER;
    }
    hlg_unreachable();
}

const char *hlg_sealed_reason_text(enum hlg_sealed_reason reason)
{
    switch (reason) {
    case HLG_SEALED_NONE:
        return "closed the connection";
    case HLG_SEALED_VERSION:
        return "speaks another version of the handshake";
    case HLG_SEALED_PLAIN:
        return "has no key";
    case HLG_SEALED_KEY:
        return "has another key";
    case HLG_SEALED_ALTERED:
        return "sent what was altered, repeated or of another session";
    case HLG_SEALED_LONG:
        return "sent a frame of a wrong length";
    case HLG_SEALED_IDENTITY:
        return "greeted as one node and speaks as another";
    case HLG_SEALED_REFUSED:
        return "refused the handshake";
    case HLG_SEALED_REASONS:
        break;
    }
    return "is not understood";
}
