/*
 * Metrics over HTTP, asked by a client that is nothing but a socket: what a scraper gets is the whole text,
 * what nobody should send is answered or dropped, and a port that is taken is told (H-07: several processes
 * want one port). Requests of the pair are as they are, whatever the client does (H-06).
 */
#include "../support/duo.h"
#include "../support/exposition.h"

#include <halage/exporter.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER_BYTES 131072u

static char answer[ANSWER_BYTES];
static char error[256];

static int dial(uint32_t port)
{
    const struct timeval patience = {.tv_sec = 20};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Sends bytes, reads all that comes until the other side closes. Returns the body, or "" without one. */
static const char *ask(uint32_t port, const char *request)
{
    const int fd = dial(port);
    size_t bytes = 0;

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    for (ssize_t got = 1; got > 0 && bytes<sizeof answer - 1; bytes += got> 0 ? (size_t)got : 0) {
        got = recv(fd, answer + bytes, sizeof answer - 1 - bytes, 0);
    }
    (void)close(fd);
    answer[bytes] = '\0';
    const char *body = strstr(answer, "\r\n\r\n");
    return body == NULL ? "" : body + 4;
}

static const char *get(uint32_t port, const char *path)
{
    char request[256];

    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    return ask(port, request);
}

static struct hlg_exporter *start(struct duo *duo)
{
    struct hlg_exporter *e = NULL;
    const int status = hlg_exporter_start(duo->decode.messenger, 0, &e, error, sizeof error);

    if (status == -HLG_EUNSUPPORTED) {
        assert_non_null(strstr(error, "libmicrohttpd"));
        print_message("skipped: %s\n", error);
        skip();
    }
    assert_int_equal(status, 0);
    assert_true(hlg_exporter_port(e) > 0);
    return e;
}

static void run_one(struct duo *duo)
{
    hlg_ticket ticket = 0;
    const uint32_t before = duo_count(&duo->decode, HLG_NOTICE_READY);

    assert_int_equal(duo_submit(duo, "r", 33, 40, 1, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, before + 1);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
}

static void a_scraper_gets_the_whole_text(void **state)
{
    static const char completed[] = "halage_requests_total{side=\"decode\",status=\"completed\"}";
    struct duo *duo = *state;
    struct hlg_exporter *e = start(duo);

    run_one(duo);
    const char *body = get(hlg_exporter_port(e), "/metrics");
    for (uint32_t i = 0; i < DUO_TURNS_MAX && exposition_value(body, completed) < 1; i++) {
        (void)duo_turn(duo);
        duo_nap(duo);
        body = get(hlg_exporter_port(e), "/metrics");
    }
    assert_true(exposition_value(body, completed) >= 1);
    const char *fault = exposition_fault(body);
    if (fault != NULL) {
        fail_msg("%s", fault);
    }
    assert_int_equal(strncmp(answer, "HTTP/1.1 200", 12), 0);
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    assert_string_equal(get(hlg_exporter_port(e), "/healthz"), "good\n");
    assert_int_equal(strncmp(answer, "HTTP/1.1 200", 12), 0);
    hlg_exporter_stop(e);
}

static void other_requests_are_refused(void **state)
{
    struct duo *duo = *state;
    struct hlg_exporter *e = start(duo);
    const uint32_t port = hlg_exporter_port(e);
    static char longest[40000];

    (void)get(port, "/");
    assert_int_equal(strncmp(answer, "HTTP/1.1 404", 12), 0);
    (void)get(port, "/metrics/../../etc/passwd");
    assert_int_equal(strncmp(answer, "HTTP/1.1 404", 12), 0);
    (void)ask(port, "DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_int_equal(strncmp(answer, "HTTP/1.1 405", 12), 0);
    (void)ask(port, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                    "Connection: close\r\n\r\nabc");
    assert_null(strstr(answer, "halage_"));
    (void)ask(port, "no http at all\r\n\r\n");
    assert_null(strstr(answer, "halage_"));
    memset(longest, 'a', sizeof longest - 1);
    memcpy(longest, "GET /", 5);
    memcpy(longest + sizeof longest - 5, "\r\n\r\n", 4);
    (void)ask(port, longest);
    assert_null(strstr(answer, "halage_"));
    assert_string_equal(get(port, "/healthz"), "good\n");
    run_one(duo);
    hlg_exporter_stop(e);
}

static void a_port_belongs_to_one(void **state)
{
    struct duo *duo = *state;
    struct hlg_exporter *first = start(duo);
    struct hlg_exporter *second = NULL;
    char expected[64];

    (void)snprintf(expected, sizeof expected, "127.0.0.1:%u", hlg_exporter_port(first));
    assert_int_equal(hlg_exporter_start(duo->prefill.messenger, hlg_exporter_port(first), &second,
                                        error, sizeof error),
                     -HLG_EIO);
    assert_non_null(strstr(error, expected));
    assert_non_null(strstr(error, "choose another port"));
    assert_null(second);
    assert_int_equal(
        hlg_exporter_start(duo->prefill.messenger, 65536, &second, error, sizeof error),
        -HLG_EINVAL);
    assert_int_equal(hlg_exporter_start(duo->prefill.messenger, 0, &second, NULL, 0), 0);
    assert_int_not_equal(hlg_exporter_port(first), hlg_exporter_port(second));
    assert_non_null(strstr(get(hlg_exporter_port(second), "/metrics"), "side=\"prefill\""));
    const uint32_t port = hlg_exporter_port(first);
    hlg_exporter_stop(first);
    first = NULL;
    assert_int_equal(hlg_exporter_start(duo->decode.messenger, port, &first, error, sizeof error),
                     0);
    assert_string_equal(get(port, "/healthz"), "good\n");
    run_one(duo);
    hlg_exporter_stop(first);
    hlg_exporter_stop(second);
}

/* Clients that come and say nothing are cut off at the end, and do not keep the others out for ever. */
static void silent_clients_do_not_keep_it(void **state)
{
    struct duo *duo = *state;
    struct hlg_exporter *e = start(duo);
    int fds[6];

    for (uint32_t i = 0; i < 6; i++) {
        fds[i] = dial(hlg_exporter_port(e));
        assert_int_equal(send(fds[i], "GET /me", 7, MSG_NOSIGNAL), 7);
    }
    assert_string_equal(get(hlg_exporter_port(e), "/healthz"), "good\n");
    run_one(duo);
    hlg_exporter_stop(e);
    for (uint32_t i = 0; i < 6; i++) {
        (void)close(fds[i]);
    }
}

static int open_pair(void **state)
{
    *state = duo_open();
    return 0;
}

static int close_pair(void **state)
{
    duo_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_scraper_gets_the_whole_text, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(other_requests_are_refused, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(a_port_belongs_to_one, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(silent_clients_do_not_keep_it, open_pair, close_pair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
