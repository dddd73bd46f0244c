/*
 * Which channels a pump reads in a round: those whose descriptors say that something came, in one call of the system for
 * all, and those of which no descriptor can tell; no frame is left lying, and no silent channel costs a read. By fake
 * channels that count, under a hand-made pump whose machine takes everything.
 */
#include "driver/pump_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define PEERS 4u

/* An eventfd stands for the socket: its value is the frames in it. */
struct fake {
    struct hlg_channel channel;
    int fd;
    bool mute;      /* it has no descriptor to tell of */
    uint64_t held;  /* frames taken out of the socket, not yet given */
    uint32_t reads; /* calls */
    uint8_t frame[HLG_WIRE_HEADER_BYTES + 64];
    uint32_t bytes;
};

struct bench {
    struct hlg_pump pump;
    struct hlg_fabric fabric;
    struct pump_peer peers[PEERS];
    struct fake fakes[PEERS];
    struct pollfd looks[PEERS];
    uint32_t look_peers[PEERS];
    uint64_t scratch[512];
    uint32_t events[PEERS]; /* that the machine was given of each peer */
};

static struct bench bench;

static int fake_receive(struct hlg_channel *channel, const uint8_t **frame, uint32_t *bytes)
{
    struct fake *f = (struct fake *)channel;
    uint64_t came = 0;

    f->reads++;
    if (f->held == 0 && read(f->fd, &came, sizeof came) == (ssize_t)sizeof came) {
        f->held = came;
    }
    if (f->held == 0) {
        return 0;
    }
    f->held--;
    *frame = f->frame;
    *bytes = f->bytes;
    return 1;
}

static int fake_wait_fd(struct hlg_channel *channel, short *events)
{
    const struct fake *f = (const struct fake *)channel;

    *events = POLLIN;
    return f->mute ? -1 : f->fd;
}

static const struct hlg_channel_ops channel_ops = {.receive = fake_receive,
                                                   .wait_fd = fake_wait_fd};

static int handle(void *machine, const struct hlg_event *event)
{
    (void)machine;
    bench.events[event->peer.peer]++;
    return 0;
}

static int next(void *machine, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    (void)machine;
    (void)lane;
    (void)kinds;
    (void)action;
    return 0;
}

static hlg_time now(struct hlg_fabric *fabric)
{
    (void)fabric;
    return 1;
}

static int set_up(void **state)
{
    const struct hlg_message beat = {.kind = HLG_MESSAGE_HEARTBEAT};

    bench = (struct bench){.fabric.now = now};
    bench.pump.machine.handle = handle;
    bench.pump.machine.next = next;
    bench.pump.fabric = &bench.fabric;
    bench.pump.peers = bench.peers;
    bench.pump.peers_used = PEERS;
    bench.pump.looks = bench.looks;
    bench.pump.look_peers = bench.look_peers;
    bench.pump.scratch = bench.scratch;
    bench.pump.scratch_bytes = sizeof bench.scratch;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct fake *f = &bench.fakes[i];
        f->channel.ops = &channel_ops;
        f->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        f->bytes = (uint32_t)hlg_wire_encode(&beat, f->frame, sizeof f->frame);
        assert_true(f->fd >= 0 && f->bytes >= HLG_WIRE_HEADER_BYTES);
        bench.peers[i] = (struct pump_peer){.state = PUMP_PEER_LIVE, .channel = &f->channel};
    }
    *state = &bench;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PEERS; i++) {
        (void)close(bench.fakes[i].fd);
    }
    return 0;
}

static void come(uint32_t peer, uint64_t frames)
{
    assert_int_equal(write(bench.fakes[peer].fd, &frames, sizeof frames), sizeof frames);
}

static void silent_channels_are_not_read(void **state)
{
    (void)state;
    assert_int_equal(pump_sessions_read(&bench.pump), 0);
    come(2, 3);
    assert_int_equal(pump_sessions_read(&bench.pump), 3);
    assert_int_equal(pump_sessions_read(&bench.pump), 0);
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(bench.events[i], i == 2 ? 3 : 0);
        assert_int_equal(bench.fakes[i].reads, i == 2 ? 4 : 0);
    }
}

/* A channel may have taken more out of its socket than a round takes of it: no descriptor tells of the rest. */
static void frames_beyond_a_round_come_in_the_next(void **state)
{
    uint32_t rounds = 0;

    (void)state;
    come(1, 100);
    while (bench.events[1] < 100 && rounds < 10) {
        assert_true(pump_sessions_read(&bench.pump) > 0);
        rounds++;
    }
    assert_int_equal(bench.events[1], 100);
    assert_true(rounds > 1);
    const uint32_t reads = bench.fakes[1].reads;
    assert_int_equal(pump_sessions_read(&bench.pump), 0);
    assert_int_equal(pump_sessions_read(&bench.pump), 0);
    assert_true(bench.fakes[1].reads <= reads + 1);
}

/* Neither can one tell of a channel that has none, was never read, or had no room for a frame. */
static void channels_of_which_no_descriptor_tells_are_read(void **state)
{
    (void)state;
    bench.fakes[0].mute = true;
    bench.peers[1].unread = true;
    bench.fakes[1].held = 2; /* read before it was the pump's */
    bench.peers[2].send_full = true;
    assert_int_equal(pump_sessions_read(&bench.pump), 2);
    assert_int_equal(bench.events[1], 2);
    assert_int_equal(bench.events[2], 1); /* SEND_ROOM */
    assert_false(bench.peers[2].send_full);
    assert_int_equal(pump_sessions_read(&bench.pump), 0);
    assert_int_equal(bench.fakes[0].reads, 2);
    assert_int_equal(bench.fakes[2].reads, 1);
}

static void a_lone_channel_is_read_at_once(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < PEERS; i++) {
        bench.peers[i].state = PUMP_PEER_FREE;
    }
    come(0, 1);
    assert_int_equal(pump_sessions_read(&bench.pump), 1);
    assert_int_equal(bench.events[0], 1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(silent_channels_are_not_read),
        TEST(frames_beyond_a_round_come_in_the_next),
        TEST(channels_of_which_no_descriptor_tells_are_read),
        TEST(a_lone_channel_is_read_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
