/* A sealed channel over TCP keeps the contract of a channel. Both ends share their handshake here, so
 * that the tests begin with an open channel. */
#define _GNU_SOURCE
#include <poll.h>

#include "channel.h"
#include "halage/transport/sealed.h"
#include "halage/transport/tcp.h"

static const uint8_t key[HLG_SEALED_KEY_BYTES] = {1, 2, 3};

static struct hlg_channel *seal(struct hlg_channel *below, uint32_t message_bytes_max, bool dialled)
{
    const struct hlg_sealed_config config = {.key = key,
                                             .dialled = dialled,
                                             .node = dialled ? 1 : 2,
                                             .incarnation = 7,
                                             .message_bytes_max = message_bytes_max};
    struct hlg_channel *sealed = NULL;

    assert_int_equal(hlg_sealed_open(&config, below, &sealed), 0);
    return sealed;
}

static void shake_hands(struct hlg_channel *a, struct hlg_channel *b)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;

    while (hlg_sealed_state(a, NULL) == HLG_SEALED_GREETING ||
           hlg_sealed_state(b, NULL) == HLG_SEALED_GREETING) {
        short events = 0;
        struct pollfd fds[2] = {{.fd = a->ops->wait_fd(a, &events), .events = POLLIN},
                                {.fd = b->ops->wait_fd(b, &events), .events = POLLIN}};
        assert_true(poll(fds, 2, 10000) > 0);
        assert_int_equal(a->ops->receive(a, &frame, &bytes), 0);
        assert_int_equal(b->ops->receive(b, &frame, &bytes), 0);
    }
    assert_int_equal(hlg_sealed_state(a, NULL), HLG_SEALED_OPEN);
    assert_int_equal(hlg_sealed_state(b, NULL), HLG_SEALED_OPEN);
}

static void make_pair(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b)
{
    const uint32_t below = message_bytes_max + HLG_SEALED_OVERHEAD_BYTES;
    struct hlg_tcp_listener *listener = NULL;
    char error[256] = "";

    if (hlg_tcp_listen("127.0.0.1:0", below, &listener, error, sizeof error) != 0 ||
        hlg_tcp_dial(hlg_tcp_listener_name(listener), 10 * HLG_NS_PER_S, below, a, error,
                     sizeof error) != 0) {
        fail_msg("%s", error);
    }
    struct pollfd wanted = {.fd = hlg_tcp_listener_fd(listener), .events = POLLIN};
    assert_int_equal(poll(&wanted, 1, 10000), 1);
    assert_int_equal(hlg_tcp_accept(listener, b), 1);
    hlg_tcp_listener_close(listener);
    *a = seal(*a, message_bytes_max, true);
    *b = seal(*b, message_bytes_max, false);
    shake_hands(*a, *b);
}

const struct channel_backend channel_backend = {.name = "sealed", .pair = make_pair};
