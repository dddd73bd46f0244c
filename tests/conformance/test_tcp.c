/* Addresses, ports and the sentences of halage/transport/tcp.h; frames are channel.c's business. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "halage/transport/tcp.h"

#define BYTES 4096u

static char error[256];

static struct hlg_tcp_listener *must_listen(const char *address)
{
    struct hlg_tcp_listener *listener = NULL;

    if (hlg_tcp_listen(address, BYTES, &listener, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    return listener;
}

static int dial(const char *address, hlg_time timeout_ns)
{
    struct hlg_channel *channel = NULL;

    error[0] = 0;
    const int rc = hlg_tcp_dial(address, timeout_ns, BYTES, &channel, error, sizeof error);
    if (rc == 0) {
        channel->ops->close(channel);
    }
    return rc;
}

static void port_0_reports_the_port_chosen(void **state)
{
    (void)state;
    struct hlg_tcp_listener *listener = must_listen("127.0.0.1:0");
    const char *name = hlg_tcp_listener_name(listener);
    struct hlg_channel *channel = NULL;

    assert_memory_equal(name, "127.0.0.1:", 10);
    assert_true(strtoul(name + 10, NULL, 10) > 0);
    assert_int_equal(hlg_tcp_accept(listener, &channel), 0);
    assert_int_equal(dial(name, HLG_NS_PER_S), 0);
    hlg_tcp_listener_close(listener);
}

static void a_port_in_use_is_a_sentence(void **state)
{
    (void)state;
    struct hlg_tcp_listener *listener = must_listen("127.0.0.1:0");
    struct hlg_tcp_listener *second = NULL;
    char expected[256];

    assert_int_equal(
        hlg_tcp_listen(hlg_tcp_listener_name(listener), BYTES, &second, error, sizeof error),
        -HLG_EIO);
    (void)snprintf(expected, sizeof expected,
                   "cannot listen on %s: address already in use: choose another port, or end what "
                   "listens there",
                   hlg_tcp_listener_name(listener));
    assert_string_equal(error, expected);
    hlg_tcp_listener_close(listener);
    assert_int_equal(hlg_tcp_listen("203.0.113.7:0", BYTES, &second, error, sizeof error),
                     -HLG_EIO);
    assert_string_equal(
        error,
        "cannot listen on 203.0.113.7:0: cannot assign requested address: give an address that "
        "this host has");
}

static void a_refused_connection_is_a_sentence(void **state)
{
    (void)state;
    struct hlg_tcp_listener *listener = must_listen("127.0.0.1:0");
    char name[HLG_TCP_NAME_BYTES];
    char expected[256];

    (void)snprintf(name, sizeof name, "%s", hlg_tcp_listener_name(listener));
    hlg_tcp_listener_close(listener);
    assert_int_equal(dial(name, HLG_NS_PER_S), -HLG_EPEER);
    (void)snprintf(expected, sizeof expected, "cannot reach %s: connection refused", name);
    assert_string_equal(error, expected);
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {
        "",      "localhost", "127.0.0.1",  "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:12a",
        "::1:7", ":7000",     "[::1:7000]", "[::1]7000",  "127.0.0.1:-1",    "127.0.0.1:000000",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dial(wrong[i], HLG_NS_PER_S), -HLG_EINVAL);
        assert_non_null(strstr(error, "is not an address"));
    }
    struct hlg_tcp_listener *any = must_listen(":0");
    hlg_tcp_listener_close(any);
}

static void names_and_ipv6_are_understood(void **state)
{
    (void)state;
    struct hlg_tcp_listener *listener = must_listen("localhost:0");
    assert_int_equal(dial(hlg_tcp_listener_name(listener), HLG_NS_PER_S), 0);
    hlg_tcp_listener_close(listener);

    if (hlg_tcp_listen("[::1]:0", BYTES, &listener, error, sizeof error) != 0) {
        print_message("no IPv6 here: %s\n", error);
        skip();
    }
    assert_memory_equal(hlg_tcp_listener_name(listener), "[::1]:", 6);
    assert_int_equal(dial(hlg_tcp_listener_name(listener), HLG_NS_PER_S), 0);
    hlg_tcp_listener_close(listener);
}

static hlg_time clock_now(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

/* A listener whose queue is full answers no more SYNs: dialling it must end all the same. */
static void dialling_is_bounded(void **state)
{
    (void)state;
    struct hlg_tcp_listener *listener = must_listen("127.0.0.1:0");
    const hlg_time timeout_ns = 150 * HLG_NS_PER_MS;
    int rc = 0;

    assert_int_equal(listen(hlg_tcp_listener_fd(listener), 0), 0);
    for (int i = 0; i < 8 && rc == 0; i++) {
        const hlg_time begin = clock_now();
        rc = dial(hlg_tcp_listener_name(listener), timeout_ns);
        assert_true(rc == 0 || clock_now() - begin >= timeout_ns);
    }
    assert_int_equal(rc, -HLG_EPEER);
    assert_non_null(strstr(error, "timed out"));
    hlg_tcp_listener_close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_0_reports_the_port_chosen),
        cmocka_unit_test(a_port_in_use_is_a_sentence),
        cmocka_unit_test(a_refused_connection_is_a_sentence),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(names_and_ipv6_are_understood),
        cmocka_unit_test(dialling_is_bounded),
    };

    (void)alarm(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
