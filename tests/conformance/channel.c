/*
 * halage/channel.h, line by line. Frames carry a number and a pattern drawn from it, so that order,
 * length and content are all checked at the other end.
 */
#define _GNU_SOURCE
#include "channel.h"

#include <poll.h>
#include <unistd.h>

#define WATCHDOG_S 30
#define SMALL_MAX  (64u << 10)

struct fixture {
    struct hlg_channel *a;
    struct hlg_channel *b;
    int raw;
    uint64_t random;
    uint8_t *frame; /* [HLG_MESSAGE_BYTES_MAX] */
};

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)alarm(WATCHDOG_S);
    f->raw = -1;
    f->random = 1;
    f->frame = malloc(HLG_MESSAGE_BYTES_MAX + 8);
    assert_non_null(f->frame);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->a != NULL) {
        f->a->ops->close(f->a);
    }
    if (f->b != NULL) {
        f->b->ops->close(f->b);
    }
    if (f->raw >= 0) {
        (void)close(f->raw);
    }
    if (channel_backend.done != NULL) {
        channel_backend.done();
    }
    free(f->frame);
    free(f);
    (void)alarm(0);
    return 0;
}

static void step(void)
{
    if (channel_backend.step != NULL) {
        channel_backend.step();
    }
}

static void put_u32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

/* A frame as wire.h lays it out; what is in it is the channel's business only up to the length. */
static void make_frame(uint8_t *frame, uint32_t number, uint32_t bytes)
{
    uint64_t pattern = number;

    put_u32(frame, bytes - 4);
    put_u32(frame + 4, number);
    for (uint32_t i = HLG_WIRE_HEADER_BYTES; i < bytes; i++) {
        frame[i] = (uint8_t)(draw(&pattern) & 0xff);
    }
}

static void check_frame(const uint8_t *frame, uint32_t bytes, uint32_t number, uint32_t wanted)
{
    uint64_t pattern = number;
    uint8_t header[HLG_WIRE_HEADER_BYTES];

    assert_int_equal(bytes, wanted);
    put_u32(header, bytes - 4);
    put_u32(header + 4, number);
    assert_memory_equal(frame, header, sizeof header);
    for (uint32_t i = HLG_WIRE_HEADER_BYTES; i < bytes; i++) {
        if (frame[i] != (uint8_t)(draw(&pattern) & 0xff)) {
            fail_msg("frame %u differs at byte %u", number, i);
        }
    }
}

static uint32_t size_of(uint32_t number, uint32_t most)
{
    uint64_t state = number + 1000;
    const uint64_t cut = UINT64_C(1) << (draw(&state) % 17);

    const uint64_t bytes = HLG_WIRE_HEADER_BYTES + draw(&state) % cut;
    return bytes < most ? (uint32_t)bytes : most;
}

/* Take one frame, which must come. `other` moves its queued output on meanwhile. */
static void expect_frame(struct hlg_channel *c, struct hlg_channel *other, uint32_t number,
                         uint32_t wanted)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    int got = 0;

    while ((got = c->ops->receive(c, &frame, &bytes)) == 0) {
        const uint8_t *unwanted = NULL;
        uint32_t none = 0;
        step();
        if (other != NULL) {
            assert_int_equal(other->ops->receive(other, &unwanted, &none), 0);
        }
    }
    assert_int_equal(got, 1);
    check_frame(frame, bytes, number, wanted);
}

static void frames_of_many_sizes_arrive_whole_and_in_order(void **state)
{
    struct fixture *f = *state;
    const uint32_t count = 400;
    uint32_t received = 0;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    for (uint32_t sent = 0; sent < count;) {
        const uint32_t bytes = size_of(sent, SMALL_MAX);
        make_frame(f->frame, sent, bytes);
        const int rc = f->a->ops->send(f->a, f->frame, bytes);
        assert_in_range(rc, 0, 1);
        sent += (uint32_t)rc;
        while (received < sent && (rc == 0 || draw(&f->random) % 4 == 0)) {
            expect_frame(f->b, f->a, received, size_of(received, SMALL_MAX));
            received++;
        }
    }
    for (; received < count; received++) {
        expect_frame(f->b, f->a, received, size_of(received, SMALL_MAX));
    }
}

static void the_longest_frame_is_taken_by_an_empty_channel(void **state)
{
    struct fixture *f = *state;

    channel_backend.pair(HLG_MESSAGE_BYTES_MAX, &f->a, &f->b);
    make_frame(f->frame, 9, HLG_MESSAGE_BYTES_MAX);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f->a->ops->send(f->a, f->frame, HLG_MESSAGE_BYTES_MAX), 1);
        memset(f->frame, 0, 64); /* it was copied */
        expect_frame(f->b, f->a, 9, HLG_MESSAGE_BYTES_MAX);
        make_frame(f->frame, 9, HLG_MESSAGE_BYTES_MAX);
    }
}

/* Nobody reads: at some point 0 is the answer, and goes on being it; nothing of what was taken is
 * lost, and then there is room again. */
static void a_full_channel_says_0_and_recovers(void **state)
{
    struct fixture *f = *state;
    const uint32_t bytes = 4096;
    uint32_t sent = 0;
    int rc = 1;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    while (rc == 1) {
        make_frame(f->frame, sent, bytes);
        rc = f->a->ops->send(f->a, f->frame, bytes);
        assert_in_range(rc, 0, 1);
        sent += (uint32_t)rc;
    }
    assert_true(sent * bytes >= SMALL_MAX);
    assert_int_equal(f->a->ops->send(f->a, f->frame, bytes), 0);
    for (uint32_t i = 0; i < sent; i++) {
        expect_frame(f->b, f->a, i, bytes);
    }
    make_frame(f->frame, 77, bytes);
    assert_int_equal(f->a->ops->send(f->a, f->frame, bytes), 1);
    expect_frame(f->b, f->a, 77, bytes);
}

static void both_ends_may_fill_it_at_once(void **state)
{
    struct fixture *f = *state;
    uint32_t sent[2] = {0};
    uint32_t received[2] = {0};
    const uint32_t count = 300;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    struct hlg_channel *const ends[] = {f->a, f->b};
    while (received[0] < count || received[1] < count) {
        const uint32_t end = (uint32_t)(draw(&f->random) & 1);
        struct hlg_channel *c = ends[end];
        if (draw(&f->random) % 3 != 0 && sent[end] < count) {
            const uint32_t bytes = size_of(sent[end] + end, SMALL_MAX);
            make_frame(f->frame, sent[end] + end, bytes);
            const int rc = c->ops->send(c, f->frame, bytes);
            assert_in_range(rc, 0, 1);
            sent[end] += (uint32_t)rc;
        } else {
            const uint8_t *frame = NULL;
            uint32_t bytes = 0;
            const uint32_t number = received[end] + (1 - end);
            step();
            const int rc = c->ops->receive(c, &frame, &bytes);
            assert_in_range(rc, 0, 1);
            if (rc == 1) {
                check_frame(frame, bytes, number, size_of(number, SMALL_MAX));
                received[end]++;
            }
        }
    }
}

static int receive_until_over(struct hlg_channel *c, uint32_t *frames)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    int rc = 0;

    while ((rc = c->ops->receive(c, &frame, &bytes)) >= 0) {
        *frames += (uint32_t)rc;
        step();
    }
    return rc;
}

static void frames_before_the_end_are_given_first(void **state)
{
    struct fixture *f = *state;
    uint32_t frames = 0;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    for (uint32_t i = 0; i < 5; i++) {
        make_frame(f->frame, i, 100);
        assert_int_equal(f->a->ops->send(f->a, f->frame, 100), 1);
    }
    f->a->ops->close(f->a);
    f->a = NULL;
    assert_int_equal(receive_until_over(f->b, &frames), -HLG_EPEER);
    assert_int_equal(frames, 5);
    assert_int_equal(receive_until_over(f->b, &frames), -HLG_EPEER);
    int rc = 1;
    while (rc >= 0) { /* the first ones may still be taken */
        make_frame(f->frame, 0, 4096);
        rc = f->b->ops->send(f->b, f->frame, 4096);
        step();
    }
    assert_int_equal(rc, -HLG_EPEER);
}

static void names_and_descriptors(void **state)
{
    struct fixture *f = *state;
    short events = 0;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    assert_true(f->a->ops->name(f->a)[0] != 0);
    assert_true(f->b->ops->name(f->b)[0] != 0);
    const int fd = f->b->ops->wait_fd(f->b, &events);
    if (fd < 0) {
        skip();
    }
    assert_int_equal(events, POLLIN);
    struct pollfd wanted = {.fd = fd, .events = events};
    assert_int_equal(poll(&wanted, 1, 0), 0);
    make_frame(f->frame, 1, 64);
    assert_int_equal(f->a->ops->send(f->a, f->frame, 64), 1);
    assert_int_equal(poll(&wanted, 1, 10000), 1);
    expect_frame(f->b, NULL, 1, 64);
    int rc = 1;
    while (rc == 1) {
        make_frame(f->frame, 2, 4096);
        rc = f->a->ops->send(f->a, f->frame, 4096);
    }
    assert_true(f->a->ops->wait_fd(f->a, &events) >= 0);
    assert_int_equal(events, POLLIN | POLLOUT);
}

static void wrong_lengths_are_not_sent(void **state)
{
    struct fixture *f = *state;

    channel_backend.pair(SMALL_MAX, &f->a, &f->b);
    make_frame(f->frame, 1, SMALL_MAX + 1);
    assert_true(f->a->ops->send(f->a, f->frame, SMALL_MAX + 1) < 0);
    make_frame(f->frame, 1, SMALL_MAX);
    assert_int_equal(f->a->ops->send(f->a, f->frame, SMALL_MAX), 1);
    expect_frame(f->b, f->a, 1, SMALL_MAX);
}

/* ---- byte streams only ---------------------------------------------------------------------- */

static void start_raw(struct fixture *f)
{
    if (channel_backend.raw != NULL) {
        f->raw = channel_backend.raw(SMALL_MAX, &f->a);
        assert_true(f->raw >= 0);
    } else {
        skip();
    }
}

static void put(int fd, const uint8_t *bytes, size_t count)
{
    assert_int_equal(write(fd, bytes, count), count);
}

/* Cut anywhere, also within the header: a frame is given when its last byte is there, not before. */
static void fragments_are_joined(void **state)
{
    struct fixture *f = *state;
    static uint8_t stream[64 * SMALL_MAX];
    uint64_t ends[64];
    uint64_t total = 0;
    uint64_t written = 0;
    uint32_t received = 0;

    start_raw(f);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t bytes = size_of(i, SMALL_MAX);
        make_frame(stream + total, i, bytes);
        total += bytes;
        ends[i] = total;
    }
    while (received < 64) {
        const uint8_t *frame = NULL;
        uint32_t bytes = 0;
        const uint64_t rest = total - written;
        uint64_t cut = 1 + draw(&f->random) % (draw(&f->random) % 2 == 0 ? 9 : 5000);
        cut = cut < rest ? cut : rest;
        put(f->raw, stream + written, cut);
        written += cut;
        const int rc = f->a->ops->receive(f->a, &frame, &bytes);
        assert_in_range(rc, 0, 1);
        if (rc == 1) {
            assert_true(ends[received] <= written);
            check_frame(frame, bytes, received, size_of(received, SMALL_MAX));
            received++;
        }
    }
}

static void garbage(struct fixture *f, uint32_t length)
{
    uint8_t header[HLG_WIRE_HEADER_BYTES] = {0};
    uint32_t frames = 0;

    start_raw(f);
    make_frame(f->frame, 0, 32);
    put(f->raw, f->frame, 32);
    put_u32(header, length);
    put(f->raw, header, sizeof header);
    assert_int_equal(receive_until_over(f->a, &frames), -HLG_EPROTO);
    assert_int_equal(frames, 1);
    assert_int_equal(receive_until_over(f->a, &frames), -HLG_EPROTO);
}

static void a_length_too_great_is_a_protocol_error(void **state)
{
    garbage(*state, UINT32_MAX);
}

static void a_length_one_too_great_is_a_protocol_error(void **state)
{
    garbage(*state, SMALL_MAX - 4 + 1);
}

static void a_length_too_small_is_a_protocol_error(void **state)
{
    garbage(*state, 3);
}

static void an_end_within_a_frame_is_an_end(void **state)
{
    struct fixture *f = *state;
    uint32_t frames = 0;

    start_raw(f);
    make_frame(f->frame, 0, 500);
    put(f->raw, f->frame, 499);
    (void)close(f->raw);
    f->raw = -1;
    assert_int_equal(receive_until_over(f->a, &frames), -HLG_EPEER);
    assert_int_equal(frames, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(frames_of_many_sizes_arrive_whole_and_in_order),
        T(the_longest_frame_is_taken_by_an_empty_channel),
        T(a_full_channel_says_0_and_recovers),
        T(both_ends_may_fill_it_at_once),
        T(frames_before_the_end_are_given_first),
        T(names_and_descriptors),
        T(wrong_lengths_are_not_sent),
        T(fragments_are_joined),
        T(a_length_too_great_is_a_protocol_error),
        T(a_length_one_too_great_is_a_protocol_error),
        T(a_length_too_small_is_a_protocol_error),
        T(an_end_within_a_frame_is_an_end),
    };

    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name(channel_backend.name, tests, NULL, NULL);
}
