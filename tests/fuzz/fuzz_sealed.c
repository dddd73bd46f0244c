/*
 * Two sides of a sealed channel, and whoever sits on the connection: alters, cuts, drops, repeats, reflects
 * and makes up what is between them. What comes out on one side is what the other sent, from the first
 * on, in order, and nothing else; a side that is over stays so and says why once. Where nobody meddles all
 * comes out. In half of the inputs the second side is a liar that has the key: of what it seals, only
 * whole frames may come out, and a HELLO only of who it said it was.
 */
#include "../support/pipe.h"
#include "fuzz.h"

#include <driver/rng.h>
#include <sealed/handshake.h>
#include <sodium.h>

#define MESSAGE_BYTES 256u
#define SENT_MAX      64u
#define STEPS_MAX     256u
#define INCARNATION   5u

/* Where HELLO has its node and incarnation: docs/protocol.md. */
#define HELLO_NODE  60u
#define HELLO_BYTES 84u

/* A frame that a side sent, and whether it may come out on the other. */
struct sent {
    uint8_t bytes[MESSAGE_BYTES];
    uint32_t count;
    bool good;
};

struct side {
    struct hlg_channel *channel; /* NULL: the liar */
    struct hlg_rng rng;
    struct sent sent[SENT_MAX];
    uint32_t sent_count;
    uint32_t heard; /* of the other's, that came out here */
    uint64_t counts[HLG_SEALED_REASONS];
    bool over;
};

struct world {
    struct pipe pipe;
    struct side sides[2];
    struct handshake_secret secret; /* the liar's */
    struct handshake_keys keys;
    bool keyed; /* they are agreed on */
    uint64_t sealed_count;
    uint64_t node; /* as the liar greeted */
    uint64_t incarnation;
    bool dialled; /* likewise, and wrong */
    bool touched; /* what is on the way, or by whom */
};

static const uint8_t shared_key[HLG_SEALED_KEY_BYTES] = {0xaa, 1, 2, 3};

static void draw(void *context, uint8_t *bytes, size_t count)
{
    struct hlg_rng *rng = context;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)hlg_rng_below(rng, 256);
    }
}

static struct hlg_sealed_config config_of(struct world *w, uint32_t side)
{
    return (struct hlg_sealed_config){.key = shared_key,
                                      .dialled = side == 0,
                                      .node = 10 + side,
                                      .incarnation = INCARNATION,
                                      .message_bytes_max = MESSAGE_BYTES,
                                      .random = draw,
                                      .random_context = &w->sides[side].rng,
                                      .counts = w->sides[side].counts};
}

static uint32_t room_of(const struct pipe_stream *stream)
{
    return PIPE_BYTES - pipe_unread(stream);
}

/* Puts bytes on the way to a side, if they fit. */
static void put(struct world *w, uint32_t to, const uint8_t *bytes, uint32_t count)
{
    if (count <= room_of(&w->pipe.to[to])) {
        pipe_put(&w->pipe.to[to], bytes, count);
    }
}

static bool may_come_out(const struct world *w, uint32_t from, const struct sent *frame)
{
    uint64_t node = 0;
    uint64_t incarnation = 0;
    bool liar = w->sides[from].channel == NULL;

    if (w->dialled || frame->count < HLG_WIRE_HEADER_BYTES ||
        hlg_wire_frame_bytes(frame->bytes, MESSAGE_BYTES) != frame->count) {
        return false;
    }
    return !hlg_wire_hello_identity(frame->bytes, frame->count, &node, &incarnation) ||
           (node == (liar ? w->node : 10 + from) &&
            incarnation == (liar ? w->incarnation : INCARNATION));
}

static void put_u64(uint8_t *bytes, uint64_t value)
{
    for (uint32_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i) & 0xffu);
    }
}

/* A frame with a right header, or one that lies; sometimes a HELLO as far as its identity. */
static void make_frame(struct world *w, struct feed *f, uint32_t from, struct sent *frame)
{
    uint32_t shape = feed_byte(f);
    uint32_t fill = feed_byte(f);

    *frame = (struct sent){.count = HLG_WIRE_HEADER_BYTES + feed_below(f, 200)};
    for (uint32_t i = HLG_WIRE_HEADER_BYTES; i < frame->count; i++) {
        frame->bytes[i] = (uint8_t)(fill + i * 7);
    }
    sealed_put_header(frame->bytes, 1 + shape % 16, frame->count);
    if (shape % 16 == 0 && frame->count >= HELLO_BYTES) {
        put_u64(frame->bytes + HELLO_NODE, shape % 32 == 0 ? 10 + from : feed_byte(f));
        put_u64(frame->bytes + HELLO_NODE + 8, shape % 64 < 32 ? INCARNATION : feed_byte(f));
    }
    for (uint32_t i = 0; shape >= 128 && i < shape % 8; i++) {
        uint32_t at = feed_below(f, 64);
        frame->bytes[at] = (uint8_t)feed_byte(f);
    }
    if (shape >= 224 && w->sides[from].channel == NULL) {
        frame->count = feed_byte(f); /* shorter than a header too */
    }
    frame->good = may_come_out(w, from, frame);
}

static void send_frame(struct world *w, struct feed *f, uint32_t from)
{
    struct side *side = &w->sides[from];

    if (side->sent_count == SENT_MAX) {
        return;
    }
    struct sent *frame = &side->sent[side->sent_count];
    make_frame(w, f, from, frame);
    int result = side->channel->ops->send(side->channel, frame->bytes, frame->count);
    HLG_ASSERT(result == 0 || result == 1 || result == -HLG_EPEER);
    HLG_ASSERT(!side->over || result == -HLG_EPEER);
    side->sent_count += result == 1;
}

/* Of the liar: a frame that opens, whatever is in it. */
static void seal_frame(struct world *w, struct feed *f)
{
    static uint8_t out[MESSAGE_BYTES + HLG_SEALED_OVERHEAD_BYTES];
    struct side *side = &w->sides[1];
    uint8_t nonce[12] = {0};

    if (!w->keyed || side->sent_count == SENT_MAX) {
        return;
    }
    bool proof = w->sealed_count == 0 && feed_byte(f) < 240;
    struct sent *frame = &side->sent[side->sent_count];
    make_frame(w, f, 1, frame);
    frame->count = proof ? 0 : frame->count;
    if (w->sealed_count > 0) {
        side->sent_count++; /* the first one is the proof, or ends it all */
    }
    for (uint32_t i = 0; i < 8; i++) {
        nonce[4 + i] = (uint8_t)(w->sealed_count >> (8 * i));
    }
    w->sealed_count++;
    uint32_t bytes = frame->count + HLG_SEALED_OVERHEAD_BYTES;
    sealed_put_header(out, SEALED_FRAME, bytes);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(out + HLG_WIRE_HEADER_BYTES, NULL, frame->bytes,
                                                    frame->count, out, HLG_WIRE_HEADER_BYTES, NULL,
                                                    nonce, w->keys.to_dialling);
    put(w, 0, out, bytes);
}

/* The liar answers the greeting of side 0 with one of its own, in which anything may stand. */
static void greet(struct world *w, struct feed *f)
{
    uint8_t theirs[GREETING_BYTES];
    uint8_t ours[GREETING_BYTES];
    struct handshake_greeting greeting;
    struct hlg_sealed_config config = config_of(w, 1);
    const struct pipe_stream *to_us = &w->pipe.to[1];
    uint32_t odd = feed_byte(f);

    if (w->keyed || to_us->recorded < GREETING_BYTES) {
        return;
    }
    memcpy(theirs, to_us->record, sizeof theirs);
    if (handshake_read(shared_key, theirs, sizeof theirs, &greeting) != HLG_SEALED_NONE) {
        return;
    }
    config.dialled = odd == 255;
    w->dialled = config.dialled;
    config.node = odd % 4 == 0 ? feed_byte(f) : config.node;
    config.incarnation = odd % 4 == 1 ? feed_byte(f) : config.incarnation;
    draw(config.random_context, w->secret.random, sizeof w->secret.random);
    draw(config.random_context, w->secret.exchange, sizeof w->secret.exchange);
    handshake_greet(&config, &w->secret, ours);
    w->node = config.node;
    w->incarnation = config.incarnation;
    w->keyed = handshake_derive(shared_key, &w->secret, greeting.public, theirs, ours, &w->keys);
    put(w, 0, ours, sizeof ours);
}

static void receive(struct world *w, uint32_t to)
{
    struct side *side = &w->sides[to];
    const struct side *other = &w->sides[1 - to];
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    enum hlg_sealed_reason reason = HLG_SEALED_NONE;
    uint64_t ends = 0;

    if (side->channel == NULL) {
        return;
    }
    int result = side->channel->ops->receive(side->channel, &frame, &bytes);
    HLG_ASSERT(result == 0 || result == 1 || result == -HLG_EPROTO || result == -HLG_EPEER);
    HLG_ASSERT(!side->over || result < 0);
    enum hlg_sealed_state state = hlg_sealed_state(side->channel, &reason);
    HLG_ASSERT((state == HLG_SEALED_OVER) == (result < 0));
    side->over = result < 0;
    for (uint32_t i = 0; i < HLG_SEALED_REASONS; i++) {
        ends += side->counts[i];
    }
    HLG_ASSERT(ends == (side->over && reason != HLG_SEALED_NONE ? 1 : 0));
    if (result == 1) {
        HLG_ASSERT(state == HLG_SEALED_OPEN && side->heard < other->sent_count);
        const struct sent *sent = &other->sent[side->heard++];
        HLG_ASSERT(sent->good && bytes == sent->count && memcmp(frame, sent->bytes, bytes) == 0);
    }
}

/* What is done to the bytes on the way to a side. */
static void meddle(struct world *w, struct feed *f, uint32_t to, uint32_t what)
{
    struct pipe_stream *stream = &w->pipe.to[to];
    uint32_t unread = pipe_unread(stream);
    uint32_t at = feed_byte(f);
    uint8_t bytes[PIPE_BYTES];

    switch (what) {
    case 0: /* alter */
        if (unread > 0) {
            pipe_front(stream)[at % unread] ^= (uint8_t)(1u << feed_below(f, 8));
        }
        return;
    case 1: /* drop */
        stream->begin += at < unread ? at : unread;
        return;
    case 2: /* make up */
        for (uint32_t i = 0; i < at % 64; i++) {
            bytes[i] = (uint8_t)feed_byte(f);
        }
        put(w, to, bytes, at % 64);
        return;
    case 3: /* repeat */
        if (at < stream->recorded) {
            uint32_t count = 1 + feed_byte(f);
            put(w, to, stream->record + at, hlg_min_u32(count, stream->recorded - at));
        }
        return;
    case 4: /* reflect */
        memcpy(bytes, pipe_front(stream), unread);
        put(w, 1 - to, bytes, unread);
        return;
    case 5: /* hold the rest */
        stream->visible = at;
        return;
    case 6:
        stream->visible = UINT32_MAX;
        return;
    case 7:
        stream->room = at * 4;
        return;
    default:
        stream->ended = at >= 192;
        return;
    }
}

/* Where nobody meddled: all that was taken has come out, up to a frame that ends the channel. */
static void expect_all(const struct world *w)
{
    uint32_t good[2] = {0};

    for (uint32_t from = 0; from < 2; from++) {
        const struct side *side = &w->sides[from];
        while (good[from] < side->sent_count && side->sent[good[from]].good) {
            good[from]++;
        }
    }
    bool sound = good[0] == w->sides[0].sent_count && good[1] == w->sides[1].sent_count;
    for (uint32_t to = 0; to < 2 && !w->touched; to++) {
        /* A side that ended hears nothing more, and what it sent last may be lost. */
        HLG_ASSERT(sound ? !w->sides[to].over && w->sides[to].heard == good[1 - to]
                         : w->sides[to].heard <= good[1 - to]);
    }
}

static void step(struct world *w, struct feed *f)
{
    uint32_t byte = feed_byte(f);
    uint32_t side = byte & 1;
    bool liar = w->sides[side].channel == NULL;
    uint32_t op = byte >> 1 & 15;

    if (op < 4) {
        receive(w, side);
    } else if (op < 7) {
        if (liar) {
            seal_frame(w, f);
        } else {
            send_frame(w, f, side);
        }
    } else if (op == 7 && liar) {
        greet(w, f);
    } else {
        w->touched = true;
        meddle(w, f, side, op - 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct feed f = {.next = data, .left = size};

    memset(&w, 0, sizeof w);
    pipe_init(&w.pipe);
    bool liar = feed_byte(&f) >= 128;
    for (uint32_t side = 0; side < 2; side++) {
        w.sides[side].rng = hlg_rng_seed(1 + side);
        struct hlg_sealed_config config = config_of(&w, side);
        HLG_ASSERT((side == 1 && liar) || hlg_sealed_open(&config, &w.pipe.ends[side].channel,
                                                          &w.sides[side].channel) == 0);
    }
    for (uint32_t i = 0; i < STEPS_MAX && f.left > 0; i++) {
        step(&w, &f);
    }
    for (uint32_t i = 0; i < 2 * SENT_MAX; i++) {
        receive(&w, i & 1);
    }
    w.touched = w.touched || liar;
    expect_all(&w);
    for (uint32_t side = 0; side < 2; side++) {
        if (w.sides[side].channel != NULL) {
            w.sides[side].channel->ops->close(w.sides[side].channel);
        }
    }
    return 0;
}
