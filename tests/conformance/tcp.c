#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel.h"
#include "halage/transport/tcp.h"

static struct hlg_tcp_listener *start(uint32_t message_bytes_max)
{
    struct hlg_tcp_listener *listener = NULL;
    char error[256] = "";

    if (hlg_tcp_listen("127.0.0.1:0", message_bytes_max, &listener, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    return listener;
}

static struct hlg_channel *take(struct hlg_tcp_listener *listener)
{
    struct pollfd wanted = {.fd = hlg_tcp_listener_fd(listener), .events = POLLIN};
    struct hlg_channel *channel = NULL;

    assert_int_equal(poll(&wanted, 1, 10000), 1);
    assert_int_equal(hlg_tcp_accept(listener, &channel), 1);
    return channel;
}

static void make_pair(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b)
{
    struct hlg_tcp_listener *listener = start(message_bytes_max);
    char error[256] = "";

    if (hlg_tcp_dial(hlg_tcp_listener_name(listener), 10 * HLG_NS_PER_S, message_bytes_max, a,
                     error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    *b = take(listener);
    hlg_tcp_listener_close(listener);
}

static int make_raw(uint32_t message_bytes_max, struct hlg_channel **a)
{
    struct hlg_tcp_listener *listener = start(message_bytes_max);
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;

    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(getsockname(hlg_tcp_listener_fd(listener), (struct sockaddr *)&name, &bytes),
                     0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);
    *a = take(listener);
    hlg_tcp_listener_close(listener);
    return fd;
}

const struct channel_backend CHANNEL_BACKEND = {
    .name = "tcp",
    .pair = make_pair,
    .raw = make_raw,
};
