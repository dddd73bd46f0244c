/*
 * The sealed channel against whoever sits on the connection. Two sides speak over byte streams in memory,
 * with a random source of the test's; the bytes between are altered at every bit, cut at every byte,
 * repeated, swapped, sent back, and taken from sessions of other incarnations or other keys. Whatever is
 * done, nothing comes out that was not sent in this session, in its order, by who has the key; and each
 * end for a reason is counted by it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <cmocka.h>

#include "../support/allocations.h"
#include "../support/pipe.h"
#include "driver/rng.h"
#include "sealed/handshake.h"

#define MESSAGE_BYTES 1024u
#define DIALLING      0u
#define ACCEPTING     1u

/* A connection, and who speaks over it. */
struct line {
    struct pipe pipe;
    struct hlg_channel *ends[2];
    uint64_t counts[2][HLG_SEALED_REASONS];
};

static const uint8_t key_a[HLG_SEALED_KEY_BYTES] = {0xaa, 1, 2, 3};
static const uint8_t key_b[HLG_SEALED_KEY_BYTES] = {0xbb, 1, 2, 3};

static struct line line;

static void draw(void *context, uint8_t *bytes, size_t count)
{
    struct hlg_rng *rng = context;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)hlg_rng_below(rng, 256);
    }
}

static struct hlg_sealed_config config_of(uint32_t side, const uint8_t *key, uint64_t incarnation,
                                          struct hlg_rng *rng)
{
    return (struct hlg_sealed_config){.key = key,
                                      .dialled = side == DIALLING,
                                      .node = 10 + side,
                                      .incarnation = incarnation,
                                      .message_bytes_max = MESSAGE_BYTES,
                                      .random = draw,
                                      .random_context = rng,
                                      .counts = line.counts[side]};
}

/* Begin a connection; its random bytes come of `seed`. */
static void begin(uint64_t seed, uint64_t incarnation, const uint8_t *key, const uint8_t *other)
{
    struct hlg_rng rng = hlg_rng_seed(seed);

    memset(&line, 0, sizeof line);
    pipe_init(&line.pipe);
    for (uint32_t side = 0; side < 2; side++) {
        const struct hlg_sealed_config config =
            config_of(side, side == DIALLING ? key : other, incarnation, &rng);
        assert_int_equal(hlg_sealed_open(&config, &line.pipe.ends[side].channel, &line.ends[side]),
                         0);
    }
}

static void finish(void)
{
    for (uint32_t side = 0; side < 2; side++) {
        line.ends[side]->ops->close(line.ends[side]);
        assert_true(line.pipe.ends[side].closed);
    }
}

static enum hlg_sealed_state state_of(uint32_t side)
{
    return hlg_sealed_state(line.ends[side], NULL);
}

static enum hlg_sealed_reason reason_of(uint32_t side)
{
    enum hlg_sealed_reason reason = HLG_SEALED_NONE;

    (void)hlg_sealed_state(line.ends[side], &reason);
    return reason;
}

static int receive(uint32_t side, const uint8_t **frame, uint32_t *bytes)
{
    return line.ends[side]->ops->receive(line.ends[side], frame, bytes);
}

/* Receives, and nothing may come out. */
static int receive_nothing(uint32_t side)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    const int got = receive(side, &frame, &bytes);

    assert_true(got <= 0);
    return got;
}

static int send(uint32_t side, const uint8_t *frame, uint32_t bytes)
{
    return line.ends[side]->ops->send(line.ends[side], frame, bytes);
}

static void shake_hands(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(receive_nothing(ACCEPTING), 0);
        assert_int_equal(receive_nothing(DIALLING), 0);
    }
    assert_int_equal(state_of(DIALLING), HLG_SEALED_OPEN);
    assert_int_equal(state_of(ACCEPTING), HLG_SEALED_OPEN);
}

static void open_line(uint64_t seed, uint64_t incarnation)
{
    begin(seed, incarnation, key_a, key_a);
    shake_hands();
}

/* A frame of `bytes` in all, of a kind that is none, all of it `fill`. */
static uint32_t make_frame(uint8_t *frame, uint32_t bytes, uint8_t fill)
{
    memset(frame, fill, bytes);
    for (uint32_t i = 0; i < 4; i++) {
        frame[i] = (uint8_t)((bytes - 4) >> (8 * i) & 0xffu);
    }
    return bytes;
}

static void send_frame(uint32_t side, uint32_t bytes, uint8_t fill)
{
    uint8_t frame[MESSAGE_BYTES];

    assert_int_equal(send(side, frame, make_frame(frame, bytes, fill)), 1);
}

static void expect_frame(uint32_t side, uint32_t bytes, uint8_t fill)
{
    uint8_t wanted[MESSAGE_BYTES];
    const uint8_t *frame = NULL;
    uint32_t got = 0;

    assert_int_equal(receive(side, &frame, &got), 1);
    assert_int_equal(got, make_frame(wanted, bytes, fill));
    assert_memory_equal(frame, wanted, bytes);
}

/* The side has ended for `reason`, counted once, and gives and takes nothing more. */
static void expect_over(uint32_t side, enum hlg_sealed_reason reason)
{
    uint8_t frame[HLG_WIRE_HEADER_BYTES];

    assert_int_equal(state_of(side), HLG_SEALED_OVER);
    assert_int_equal(reason_of(side), reason);
    for (uint32_t i = 0; i < HLG_SEALED_REASONS; i++) {
        assert_int_equal(line.counts[side][i], i == (uint32_t)reason && i != HLG_SEALED_NONE);
    }
    assert_int_equal(receive_nothing(side),
                     reason == HLG_SEALED_NONE || reason == HLG_SEALED_REFUSED ? -HLG_EPEER
                                                                               : -HLG_EPROTO);
    assert_int_equal(send(side, frame, make_frame(frame, sizeof frame, 0)), -HLG_EPEER);
}

/* ---- What works ---- */

static void frames_pass_both_ways_after_the_handshake_only(void **state)
{
    (void)state;
    uint8_t frame[MESSAGE_BYTES];
    begin(1, 5, key_a, key_a);
    const uint32_t bytes = make_frame(frame, 100, 7);
    assert_int_equal(send(DIALLING, frame, bytes), 0);
    assert_int_equal(send(ACCEPTING, frame, bytes), 0);
    assert_int_equal(receive_nothing(ACCEPTING), 0); /* greets and proves */
    assert_int_equal(send(ACCEPTING, frame, bytes), 0);
    assert_int_equal(state_of(ACCEPTING), HLG_SEALED_GREETING);
    assert_int_equal(receive_nothing(DIALLING), 0);
    assert_int_equal(state_of(DIALLING), HLG_SEALED_OPEN);
    const uint64_t before = allocations;
    assert_true(before > 0); /* the count works */
    for (uint32_t i = 0; i < 200; i++) {
        send_frame(i % 2, HLG_WIRE_HEADER_BYTES + i * 5, (uint8_t)i);
        expect_frame(1 - i % 2, HLG_WIRE_HEADER_BYTES + i * 5, (uint8_t)i);
    }
    send_frame(DIALLING, MESSAGE_BYTES, 9);
    expect_frame(ACCEPTING, MESSAGE_BYTES, 9);
    assert_int_equal(allocations, before);
    assert_int_equal(send(DIALLING, frame, MESSAGE_BYTES + 1), -HLG_EINVAL);
    finish();
}

/* Prompts are not to be read off the connection. */
static void nothing_is_sent_in_clear(void **state)
{
    (void)state;
    static const uint8_t prompt[16] = "a secret prompt";
    uint8_t frame[64];
    uint8_t seen[PIPE_BYTES];
    open_line(2, 5);
    (void)make_frame(frame, sizeof frame, 0);
    memcpy(frame + 20, prompt, sizeof prompt);
    assert_int_equal(send(DIALLING, frame, sizeof frame), 1);
    const uint32_t bytes = pipe_take(&line.pipe.to[ACCEPTING], seen);
    assert_int_equal(bytes, sizeof frame + HLG_SEALED_OVERHEAD_BYTES);
    for (uint32_t at = 0; at + 4 <= bytes; at++) {
        assert_memory_not_equal(seen + at, prompt + 2, 4);
    }
    finish();
}

/* A frame that the connection has no room for is kept as it was sealed. The next waits. */
static void a_full_connection_keeps_frames_whole_and_in_order(void **state)
{
    (void)state;
    uint8_t frame[MESSAGE_BYTES];
    short events = 0;
    open_line(3, 5);
    line.pipe.to[ACCEPTING].room = 300;
    send_frame(DIALLING, 200, 1);
    send_frame(DIALLING, 200, 2); /* taken, but not sent */
    assert_int_equal(pipe_unread(&line.pipe.to[ACCEPTING]), 200 + HLG_SEALED_OVERHEAD_BYTES);
    (void)line.ends[DIALLING]->ops->wait_fd(line.ends[DIALLING], &events);
    assert_int_not_equal(events & 4 /* POLLOUT */, 0);
    assert_int_equal(send(DIALLING, frame, make_frame(frame, 200, 3)), 0);
    expect_frame(ACCEPTING, 200, 1);
    assert_int_equal(receive_nothing(DIALLING), 0); /* moves it on */
    expect_frame(ACCEPTING, 200, 2);
    send_frame(DIALLING, 200, 3);
    expect_frame(ACCEPTING, 200, 3);
    finish();
}

/* ---- The documentation's example ---- */

static uint32_t read_block(const char *name, uint8_t *bytes, uint32_t capacity)
{
    const char *root = getenv("HALAGE_SOURCE_DIR");
    char path[4096];
    char heading[64];
    static char text[1u << 20];
    uint32_t count = 0;

    (void)snprintf(path, sizeof path, "%s/docs/protocol.md", root == NULL ? "." : root);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t read = fread(text, 1, sizeof text - 1, file);
    text[read] = 0;
    (void)fclose(file);
    (void)snprintf(heading, sizeof heading, "```sealed %s\n", name);
    const char *at = strstr(text, heading);
    if (at == NULL) {
        return 0;
    }
    at += strlen(heading);
    while (*at != '`' && count < capacity) {
        char *limit = NULL;
        bytes[count++] = (uint8_t)strtoul(at, &limit, 16);
        assert_ptr_not_equal(limit, at);
        at = limit + strspn(limit, " \n");
    }
    return count;
}

static bool is_documented(const char *name, const uint8_t *bytes, uint32_t count)
{
    uint8_t golden[PIPE_BYTES];

    if (read_block(name, golden, sizeof golden) == count && memcmp(golden, bytes, count) == 0) {
        return true;
    }
    print_message("```sealed %s", name);
    for (uint32_t i = 0; i < count; i++) {
        print_message("%s%02x", i % 16 == 0 ? "\n" : " ", bytes[i]);
    }
    print_message("\n```\n");
    return false;
}

/* Random bytes 0, 1, 2, ...: first of the dialling side, then of the accepting one. */
static void count_up(void *context, uint8_t *bytes, size_t count)
{
    uint8_t *next = context;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (*next)++;
    }
}

static void the_example_of_the_documentation_is_what_is_sent(void **state)
{
    (void)state;
    uint8_t key[HLG_SEALED_KEY_BYTES];
    uint8_t seen[PIPE_BYTES];
    uint8_t next = 0;
    bool equal = true;
    static const uint8_t heartbeat[] = {4, 0, 0, 0, 1, 0, 9, 0};

    memset(&line, 0, sizeof line);
    memset(key, 0x6b, sizeof key);
    pipe_init(&line.pipe);
    for (uint32_t side = 0; side < 2; side++) {
        const struct hlg_sealed_config config = {.key = key,
                                                 .dialled = side == DIALLING,
                                                 .node = side == DIALLING ? 0xabcd : 0x1234,
                                                 .incarnation = side == DIALLING ? 3 : 9,
                                                 .message_bytes_max = MESSAGE_BYTES,
                                                 .random = count_up,
                                                 .random_context = &next};
        assert_int_equal(hlg_sealed_open(&config, &line.pipe.ends[side].channel, &line.ends[side]),
                         0);
    }
    struct pipe_stream *streams = line.pipe.to;
    equal = is_documented("dialling greets", pipe_front(&streams[ACCEPTING]),
                          pipe_unread(&streams[ACCEPTING])) &&
            equal;
    assert_int_equal(receive_nothing(ACCEPTING), 0);
    equal = is_documented("accepting greets and proves", pipe_front(&streams[DIALLING]),
                          pipe_unread(&streams[DIALLING])) &&
            equal;
    assert_int_equal(receive_nothing(DIALLING), 0);
    equal = is_documented("dialling proves", pipe_front(&streams[ACCEPTING]),
                          pipe_unread(&streams[ACCEPTING])) &&
            equal;
    assert_int_equal(receive_nothing(ACCEPTING), 0);
    assert_int_equal(send(DIALLING, heartbeat, sizeof heartbeat), 1);
    equal = is_documented("HEARTBEAT of the dialling side", seen,
                          pipe_take(&streams[ACCEPTING], seen)) &&
            equal;
    assert_int_equal(send(ACCEPTING, heartbeat, sizeof heartbeat), 1);
    equal = is_documented("HEARTBEAT of the accepting side", seen,
                          pipe_take(&streams[DIALLING], seen)) &&
            equal;
    finish();
    assert_true(equal);
}

/* ---- Who has no key, or another ---- */

static void another_key_is_told_and_counted_on_both_sides(void **state)
{
    (void)state;
    begin(4, 5, key_a, key_b);
    assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
    expect_over(ACCEPTING, HLG_SEALED_KEY);
    assert_int_equal(receive_nothing(DIALLING), -HLG_EPROTO);
    expect_over(DIALLING, HLG_SEALED_KEY);
    assert_string_equal(hlg_sealed_reason_text(reason_of(DIALLING)), "has another key");
    finish();
}

/* Gives `side` these bytes in place of what the other side sent. */
static void inject(uint32_t side, const uint8_t *bytes, uint32_t count)
{
    uint8_t dropped[PIPE_BYTES];

    (void)pipe_take(&line.pipe.to[side], dropped);
    pipe_put(&line.pipe.to[side], bytes, count);
}

static void frames_in_clear_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const uint8_t heartbeat[] = {4, 0, 0, 0, 1, 0, 9, 0};
    uint64_t scratch[1];
    struct hlg_message bye;
    for (uint32_t side = 0; side < 2; side++) {
        begin(5, 5, key_a, key_a);
        inject(side, heartbeat, sizeof heartbeat);
        assert_int_equal(receive_nothing(side), -HLG_EPROTO);
        expect_over(side, HLG_SEALED_PLAIN);
        struct pipe_stream *out = &line.pipe.to[1 - side];
        out->begin += side == DIALLING ? GREETING_BYTES : 0;
        assert_int_equal(
            hlg_wire_decode(pipe_front(out), pipe_unread(out), scratch, sizeof scratch, &bye), 0);
        assert_int_equal(bye.kind, HLG_MESSAGE_BYE);
        assert_int_equal(bye.bye.why.code, HLG_REFUSAL_KEY);
        assert_int_equal(bye.bye.why.a, HLG_KEY_MISSING_THERE);
        finish();
    }
}

/* A BYE in clear, from a node without a key or from anyone: the handshake is off, and says why. */
static void a_refusal_in_clear_ends_the_handshake(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        uint32_t trouble;
        enum hlg_sealed_reason reason;
    } rows[] = {
        {HLG_REFUSAL_KEY, HLG_KEY_MISSING_HERE, HLG_SEALED_PLAIN},
        {HLG_REFUSAL_KEY, HLG_KEY_DIFFERS, HLG_SEALED_KEY},
        {HLG_REFUSAL_KEY, HLG_KEY_HANDSHAKE, HLG_SEALED_REFUSED},
        {HLG_REFUSAL_FULL, 3, HLG_SEALED_REFUSED},
        {HLG_REFUSAL_NONE, 0, HLG_SEALED_REFUSED},
    };
    uint8_t frame[64];
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        const struct hlg_message bye = {
            .kind = HLG_MESSAGE_BYE,
            .bye = {.why = {.code = rows[i / 2].code, .a = rows[i / 2].trouble}}};
        const int64_t bytes = hlg_wire_encode(&bye, frame, sizeof frame);
        begin(6, 5, key_a, key_a);
        if (i % 2 == 1) {
            assert_int_equal(receive_nothing(ACCEPTING), 0); /* awaits the proof */
        }
        inject(ACCEPTING, frame, hlg_u32((uint64_t)bytes));
        assert_true(receive_nothing(ACCEPTING) < 0);
        expect_over(ACCEPTING, rows[i / 2].reason);
        finish();
    }
}

static void another_version_is_refused(void **state)
{
    (void)state;
    begin(7, 5, key_a, key_a);
    pipe_front(&line.pipe.to[ACCEPTING])[4]++;
    assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
    expect_over(ACCEPTING, HLG_SEALED_VERSION);
    assert_int_equal(receive_nothing(DIALLING), -HLG_EPEER);
    expect_over(DIALLING, HLG_SEALED_REFUSED);
    finish();
}

/* ---- Who sits on the connection ---- */

/* What `side` is about to receive, when the handshake has come as far as `stage`. */
static void begin_stage(uint32_t stage, uint64_t seed, uint64_t incarnation)
{
    begin(seed, incarnation, key_a, key_a);
    if (stage >= 1) {
        assert_int_equal(receive_nothing(ACCEPTING), 0);
    }
    if (stage >= 2) {
        assert_int_equal(receive_nothing(DIALLING), 0);
    }
    if (stage >= 3) {
        assert_int_equal(receive_nothing(ACCEPTING), 0);
        send_frame(DIALLING, 40, 1);
    }
}

static const uint32_t stage_receiver[] = {ACCEPTING, DIALLING, ACCEPTING, ACCEPTING};

/* Greeting, greeting and proof, proof, frame: no bit of them may differ. A length that grows is a frame
 * that never ends; the connection's end ends it. */
static void no_bit_may_differ(void **state)
{
    (void)state;
    uint32_t flips = 0;
    for (uint32_t stage = 0; stage < 4; stage++) {
        const uint32_t side = stage_receiver[stage];
        begin_stage(stage, 8, 5);
        const uint32_t bytes = pipe_unread(&line.pipe.to[side]);
        finish();
        for (uint32_t bit = 0; bit < 8 * bytes; bit++) {
            begin_stage(stage, 8, 5);
            pipe_front(&line.pipe.to[side])[bit / 8] ^= (uint8_t)(1u << bit % 8);
            line.pipe.to[side].ended = true;
            assert_true(receive_nothing(side) < 0);
            assert_int_equal(state_of(side), HLG_SEALED_OVER);
            finish();
            flips++;
        }
    }
    print_message("%u bits\n", flips);
    assert_int_equal(flips, 8 * (124 + 124 + 24 + 24 + 64));
}

/* Whatever is cut off, nothing comes out of what is not whole. */
static void a_stream_cut_at_any_byte_gives_what_was_whole(void **state)
{
    (void)state;
    uint8_t stream[PIPE_BYTES];
    for (uint32_t cut = 0; cut <= 124 + 24 + 2 * 64; cut++) {
        uint32_t whole = 0;
        const uint8_t *frame = NULL;
        uint32_t bytes = 0;
        int got = 0;
        begin(9, 5, key_a, key_a);
        /* the accepting side sees the dialling side's stream through a window of `cut` bytes */
        line.pipe.to[ACCEPTING].visible = cut;
        (void)receive_nothing(ACCEPTING);
        (void)receive_nothing(DIALLING);
        for (uint32_t i = 0; i < 2 && state_of(DIALLING) == HLG_SEALED_OPEN; i++) {
            send_frame(DIALLING, 40, (uint8_t)i);
        }
        line.pipe.to[ACCEPTING].ended = true;
        while ((got = receive(ACCEPTING, &frame, &bytes)) == 1) {
            assert_int_equal(bytes, 40);
            assert_int_equal(frame[10], whole);
            whole++;
        }
        assert_int_equal(got, -HLG_EPEER);
        assert_int_equal(whole, cut < 124 + 24 + 64 ? 0 : cut < 124 + 24 + 2 * 64 ? 1 : 2);
        assert_int_equal(line.counts[ACCEPTING][HLG_SEALED_ALTERED], 0);
        (void)pipe_take(&line.pipe.to[ACCEPTING], stream);
        finish();
    }
}

static void repeated_left_out_and_swapped_frames_are_refused(void **state)
{
    (void)state;
    static const char *const orders[] = {"00", "1", "10", "012012", "02", "0121"};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        uint8_t stream[PIPE_BYTES];
        const uint8_t *frame = NULL;
        uint32_t bytes = 0;
        uint32_t good = 0;
        open_line(10, 5);
        for (uint8_t n = 0; n < 3; n++) {
            send_frame(DIALLING, 40, n);
        }
        (void)pipe_take(&line.pipe.to[ACCEPTING], stream);
        for (const char *at = orders[i]; *at != 0; at++) {
            pipe_put(&line.pipe.to[ACCEPTING], stream + 64 * (uint32_t)(*at - '0'), 64);
        }
        while (orders[i][good] == (char)('0' + good)) {
            assert_int_equal(receive(ACCEPTING, &frame, &bytes), 1);
            assert_int_equal(frame[10], good++);
        }
        assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
        expect_over(ACCEPTING, HLG_SEALED_ALTERED);
        finish();
    }
}

static void what_a_side_sent_does_not_serve_to_answer_it(void **state)
{
    (void)state;
    uint8_t stream[PIPE_BYTES];
    begin(11, 5, key_a, key_a); /* its own greeting */
    const uint32_t greeting = pipe_take(&line.pipe.to[ACCEPTING], stream);
    inject(DIALLING, stream, greeting);
    assert_int_equal(receive_nothing(DIALLING), -HLG_EPROTO);
    expect_over(DIALLING, HLG_SEALED_ALTERED);
    finish();

    begin_stage(2, 11, 5); /* its own proof */
    const uint32_t proof = pipe_take(&line.pipe.to[ACCEPTING], stream);
    inject(DIALLING, stream, proof);
    assert_int_equal(receive_nothing(DIALLING), -HLG_EPROTO);
    expect_over(DIALLING, HLG_SEALED_ALTERED);
    finish();

    open_line(11, 5); /* its own frame */
    send_frame(DIALLING, 40, 1);
    const uint32_t frame = pipe_take(&line.pipe.to[ACCEPTING], stream);
    inject(DIALLING, stream, frame);
    assert_int_equal(receive_nothing(DIALLING), -HLG_EPROTO);
    expect_over(DIALLING, HLG_SEALED_ALTERED);
    finish();
}

/* All that a side of an older session said, of an older incarnation or of the same. */
static void an_older_session_cannot_be_played_again(void **state)
{
    (void)state;
    struct pipe_stream old;
    for (uint32_t run = 0; run < 4; run++) {
        const uint32_t side = run % 2; /* to whom it is played */
        open_line(12, 5);
        send_frame(1 - side, 40, 1);
        expect_frame(side, 40, 1);
        old = line.pipe.to[side];
        assert_int_equal(old.recorded, 124 + 24 + 64);
        finish();

        begin(13, run < 2 ? 6 : 5, key_a, key_a);
        inject(side, old.record, old.recorded);
        assert_int_equal(receive_nothing(side), -HLG_EPROTO);
        expect_over(side, HLG_SEALED_ALTERED);
        finish();
    }
}

/* A frame of one connection within another one of the same two nodes, under way at the same time. */
static void frames_of_another_session_do_not_open(void **state)
{
    (void)state;
    uint8_t stream[PIPE_BYTES];
    open_line(14, 5);
    send_frame(DIALLING, 40, 1);
    const uint32_t bytes = pipe_take(&line.pipe.to[ACCEPTING], stream);
    finish();
    open_line(15, 5);
    inject(ACCEPTING, stream, bytes);
    assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
    expect_over(ACCEPTING, HLG_SEALED_ALTERED);
    finish();
}

/* ---- Who has the key, and breaks the rules all the same ---- */

static void a_greeting_with_an_exchange_that_is_no_secret_is_refused(void **state)
{
    (void)state;
    crypto_generichash_state hash;
    static const uint8_t purpose[16] = "halage greeting";
    const uint32_t at_public = HLG_WIRE_HEADER_BYTES + 4 + RANDOM_BYTES;
    begin(16, 5, key_a, key_a);
    uint8_t *greeting = pipe_front(&line.pipe.to[ACCEPTING]);
    memset(greeting + at_public, 0, PUBLIC_BYTES);
    (void)crypto_generichash_init(&hash, key_a, sizeof key_a, MAC_BYTES);
    (void)crypto_generichash_update(&hash, purpose, sizeof purpose);
    (void)crypto_generichash_update(&hash, greeting, GREETING_BYTES - MAC_BYTES);
    (void)crypto_generichash_final(&hash, greeting + GREETING_BYTES - MAC_BYTES, MAC_BYTES);
    assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
    expect_over(ACCEPTING, HLG_SEALED_ALTERED);
    finish();
}

static void a_length_that_lies_within_a_sealed_frame_is_refused(void **state)
{
    (void)state;
    uint8_t frame[MESSAGE_BYTES];
    for (uint32_t length = 0; length < 64; length++) {
        if (length == 36) {
            continue; /* the right one */
        }
        open_line(17, 5);
        (void)make_frame(frame, 40, 1);
        frame[0] = (uint8_t)length;
        assert_int_equal(send(DIALLING, frame, 40), 1);
        assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
        expect_over(ACCEPTING, HLG_SEALED_LONG);
        finish();
    }
}

static void a_frame_longer_than_agreed_is_refused(void **state)
{
    (void)state;
    struct hlg_rng rng = hlg_rng_seed(18);
    uint8_t frame[MESSAGE_BYTES];
    begin(18, 5, key_a, key_a);
    line.ends[ACCEPTING]->ops->close(line.ends[ACCEPTING]);
    line.pipe.to[DIALLING].ended = false;
    struct hlg_sealed_config config = config_of(ACCEPTING, key_a, 5, &rng);
    config.message_bytes_max = 512;
    assert_int_equal(
        hlg_sealed_open(&config, &line.pipe.ends[ACCEPTING].channel, &line.ends[ACCEPTING]), 0);
    shake_hands();
    send_frame(DIALLING, 512, 1);
    expect_frame(ACCEPTING, 512, 1);
    assert_int_equal(send(DIALLING, frame, make_frame(frame, 513, 2)), 1);
    assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
    expect_over(ACCEPTING, HLG_SEALED_LONG);
    finish();
}

/* A HELLO, as far as its identity, of this node and incarnation. */
static uint32_t make_hello(uint8_t *frame, uint64_t node, uint64_t incarnation)
{
    const uint32_t bytes = make_frame(frame, 172, 0);

    frame[4] = HLG_PROTOCOL_MIN;
    frame[6] = HLG_MESSAGE_HELLO;
    frame[60] = (uint8_t)node;
    frame[68] = (uint8_t)incarnation;
    return bytes;
}

static void hello_must_be_of_who_greeted(void **state)
{
    (void)state;
    uint8_t frame[MESSAGE_BYTES];
    const uint8_t *got = NULL;
    uint32_t bytes = 0;
    for (uint32_t run = 0; run < 3; run++) {
        open_line(19, 5);
        const uint32_t made = make_hello(frame, run == 1 ? 11 : 10, run == 2 ? 4 : 5);
        assert_int_equal(send(DIALLING, frame, made), 1);
        if (run == 0) {
            assert_int_equal(receive(ACCEPTING, &got, &bytes), 1);
            assert_int_equal(bytes, made);
        } else {
            assert_int_equal(receive_nothing(ACCEPTING), -HLG_EPROTO);
            expect_over(ACCEPTING, HLG_SEALED_IDENTITY);
        }
        finish();
    }
}

/* ---- Anything at all ---- */

static void random_bytes_never_come_through(void **state)
{
    (void)state;
    struct hlg_rng rng = hlg_rng_seed(20);
    uint8_t bytes[512];
    for (uint32_t run = 0; run < 4000; run++) {
        const uint32_t stage = (uint32_t)hlg_rng_below(&rng, 4);
        const uint32_t side = stage_receiver[stage];
        const uint32_t count = (uint32_t)hlg_rng_between(&rng, 1, sizeof bytes);
        begin_stage(stage, run, 5);
        draw(&rng, bytes, count);
        if (run % 2 == 0 && count >= HLG_WIRE_HEADER_BYTES) { /* with a header that could be */
            sealed_put_header(bytes, SEALED_GREETING + (run / 2) % 2, count);
        }
        inject(side, bytes, count);
        line.pipe.to[side].ended = true;
        assert_true(receive_nothing(side) < 0);
        assert_int_equal(state_of(side), HLG_SEALED_OVER);
        finish();
    }
}

static void keys_are_64_digits(void **state)
{
    (void)state;
    uint8_t key[HLG_SEALED_KEY_BYTES];
    uint8_t again[HLG_SEALED_KEY_BYTES];
    char text[HLG_SEALED_KEY_DIGITS + 1];
    char line_text[80];
    assert_int_equal(hlg_sealed_key_make(key), 0);
    assert_int_equal(hlg_sealed_key_make(again), 0);
    assert_memory_not_equal(key, again, sizeof key);
    hlg_sealed_key_print(key, text);
    assert_int_equal(strlen(text), 64);
    assert_true(hlg_sealed_key_parse(text, again));
    assert_memory_equal(key, again, sizeof key);
    (void)snprintf(line_text, sizeof line_text, " %s\r\n", text);
    assert_true(hlg_sealed_key_parse(line_text, again));
    (void)snprintf(line_text, sizeof line_text, "%s0", text);
    assert_false(hlg_sealed_key_parse(line_text, again));
    (void)snprintf(line_text, sizeof line_text, "%s %s", text, "0");
    assert_false(hlg_sealed_key_parse(line_text, again));
    text[63] = 0;
    assert_false(hlg_sealed_key_parse(text, again));
    text[63] = 'g';
    assert_false(hlg_sealed_key_parse(text, again));
    assert_false(hlg_sealed_key_parse("", again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_pass_both_ways_after_the_handshake_only),
        cmocka_unit_test(nothing_is_sent_in_clear),
        cmocka_unit_test(a_full_connection_keeps_frames_whole_and_in_order),
        cmocka_unit_test(the_example_of_the_documentation_is_what_is_sent),
        cmocka_unit_test(another_key_is_told_and_counted_on_both_sides),
        cmocka_unit_test(frames_in_clear_are_refused_with_a_reason),
        cmocka_unit_test(a_refusal_in_clear_ends_the_handshake),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(no_bit_may_differ),
        cmocka_unit_test(a_stream_cut_at_any_byte_gives_what_was_whole),
        cmocka_unit_test(repeated_left_out_and_swapped_frames_are_refused),
        cmocka_unit_test(what_a_side_sent_does_not_serve_to_answer_it),
        cmocka_unit_test(an_older_session_cannot_be_played_again),
        cmocka_unit_test(frames_of_another_session_do_not_open),
        cmocka_unit_test(a_greeting_with_an_exchange_that_is_no_secret_is_refused),
        cmocka_unit_test(a_length_that_lies_within_a_sealed_frame_is_refused),
        cmocka_unit_test(a_frame_longer_than_agreed_is_refused),
        cmocka_unit_test(hello_must_be_of_who_greeted),
        cmocka_unit_test(random_bytes_never_come_through),
        cmocka_unit_test(keys_are_64_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
