/* How halage/transport/ofi.h chooses a provider, and the sentences when it cannot. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "halage/transport/ofi.h"

static char error[256];
static char heard[512];

static void hear(void *context, const char *sentence)
{
    (void)context;
    (void)snprintf(heard, sizeof heard, "%s", sentence);
}

static int open_named(const char *provider, const char *node, char *name)
{
    const struct hlg_ofi_config config = {.provider = provider, .node = node, .log = hear};
    struct hlg_fabric *fabric = NULL;
    struct hlg_transport_caps caps;

    error[0] = 0;
    heard[0] = 0;
    const int rc = hlg_ofi_open(&config, &fabric, error, sizeof error);
    if (rc == 0) {
        fabric->query(fabric, &caps);
        (void)snprintf(name, 16, "%.16s", caps.provider);
        hlg_ofi_close(fabric);
    }
    return rc;
}

static bool is_here(const char *name)
{
    struct hlg_ofi_provider providers[HLG_OFI_PROVIDERS_MAX];
    const uint32_t count = hlg_ofi_list(NULL, providers, HLG_OFI_PROVIDERS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(providers[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* First of all: libfabric reads its environment once. */
static void the_environment_is_set_unless_the_user_did(void **state)
{
    (void)state;
    assert_int_equal(setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 1), 0);
    assert_int_equal(unsetenv("FI_OFI_RXM_MSG_TX_SIZE"), 0);
    assert_int_equal(unsetenv("FI_MR_CACHE_MAX_COUNT"), 0);
    assert_true(is_here("tcp;ofi_rxm"));
    assert_string_equal(getenv("FI_OFI_RXM_BUFFER_SIZE"), "2048");
    assert_string_equal(getenv("FI_OFI_RXM_MSG_TX_SIZE"), "64");
    assert_string_equal(getenv("FI_MR_CACHE_MAX_COUNT"), "0");
}

static void tcp_and_net_are_the_native_provider(void **state)
{
    (void)state;
    char a[16] = "";
    char b[16] = "";

    assert_int_equal(open_named("tcp", NULL, a), 0);
    assert_int_equal(open_named("net", NULL, b), 0);
    assert_string_equal(a, b);
    assert_true(strcmp(a, "tcp") == 0 || strcmp(a, "net") == 0);
    assert_true(is_here(a));
}

static void auto_says_what_it_chose_and_never_takes_what_is_for_tests(void **state)
{
    (void)state;
    char name[16] = "";
    char expected[64];

    assert_int_equal(open_named("auto", NULL, name), 0);
    (void)snprintf(expected, sizeof expected, "provider %s, chosen by auto: ", name);
    assert_memory_equal(heard, expected, strlen(expected));
    assert_string_not_equal(name, "shm");
    assert_string_not_equal(name, "sockets");
    if (!is_here("efa") && !is_here("verbs;ofi_rxm")) {
        assert_true(strcmp(name, "tcp") == 0 || strcmp(name, "net") == 0);
    }
    assert_int_equal(open_named(NULL, NULL, name), 0);
}

static void an_unknown_provider_names_the_valid_ones(void **state)
{
    (void)state;
    char name[16];

    assert_int_equal(open_named("udp;ofi_rxd", NULL, name), -HLG_EINVAL);
    assert_non_null(strstr(error, "there is no provider udp;ofi_rxd: use auto, tcp, efa,"));
    assert_non_null(strstr(error, "tcp;ofi_rxm"));
    assert_int_equal(open_named("", NULL, name), -HLG_EINVAL);
}

static void an_absent_provider_is_not_replaced(void **state)
{
    (void)state;
    char name[16];

    if (is_here("efa")) {
        skip();
    }
    assert_int_equal(open_named("efa", NULL, name), -HLG_EIO);
    assert_true(strstr(error, "provider efa cannot be used here: it finds no device") != NULL ||
                strstr(error, "provider efa needs libfabric 1.22 or newer") != NULL);
    if (!is_here("verbs;ofi_rxm")) {
        assert_int_equal(open_named("verbs;ofi_rxm", NULL, name), -HLG_EIO);
        assert_non_null(
            strstr(error, "provider verbs;ofi_rxm cannot be used here: it finds no device"));
        assert_non_null(strstr(error, "; use "));
        assert_non_null(strstr(error, "tcp;ofi_rxm"));
        assert_non_null(strstr(error, ", or see halage doctor"));
    }
}

/* The port that an endpoint says it has, 0: none. */
static uint32_t port_of(struct hlg_transport *t)
{
    struct sockaddr_in address = {.sin_port = 0};
    const int bytes = t->ops->address(t, (uint8_t *)&address, sizeof address);

    assert_int_equal(bytes, (int)sizeof address);
    return ntohs(address.sin_port);
}

/* A port that nobody has now; those after it may well be taken. */
static uint32_t find_port(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;

    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &bytes), 0);
    (void)close(fd);
    return ntohs(name.sin_port);
}

/* Each endpoint has a port of its own, from the asked one up; one that was closed frees its port, so that a
 * node that comes back has the addresses that it had. */
static void endpoints_take_the_first_free_ports(void **state)
{
    (void)state;
    static const char *const names[] = {"net", "tcp;ofi_rxm"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct hlg_ofi_config config = {.provider = names[i], .port = find_port()};
        struct hlg_fabric *fabric = NULL;
        struct hlg_transport *t[3];
        assert_int_equal(hlg_ofi_open(&config, &fabric, error, sizeof error), 0);
        assert_int_equal(fabric->open(fabric, 0, 0, &t[0]), 0);
        assert_int_equal(fabric->open(fabric, 1, 0, &t[1]), 0);
        const uint32_t first = port_of(t[0]);
        assert_int_equal(first, config.port);
        assert_true(port_of(t[1]) > first);
        t[0]->ops->free(t[0]);
        assert_int_equal(fabric->open(fabric, 0, 0, &t[2]), 0);
        assert_int_equal(port_of(t[2]), first);
        t[1]->ops->free(t[1]);
        t[2]->ops->free(t[2]);
        hlg_ofi_close(fabric);
    }
}

static void an_address_of_another_machine_is_an_error(void **state)
{
    (void)state;
    char name[16];

    assert_int_equal(open_named("tcp", "192.0.2.1", name), -HLG_EIO);
    assert_true(error[0] != 0);
}

static void a_port_that_there_is_not_is_said(void **state)
{
    struct hlg_ofi_config config = {.provider = "tcp", .port = 65535};
    struct hlg_fabric *fabric = NULL;

    (void)state;
    assert_int_equal(hlg_ofi_open(&config, &fabric, error, sizeof error), 0);
    hlg_ofi_close(fabric);
    for (config.port = 65536; config.port != 0; config.port *= 2) {
        assert_int_equal(hlg_ofi_open(&config, &fabric, error, sizeof error), -HLG_EINVAL);
        assert_non_null(strstr(error, "use 0 (any) to 65535"));
    }
}

static void a_short_error_buffer_is_enough(void **state)
{
    (void)state;
    const struct hlg_ofi_config config = {.provider = "nonsense"};
    struct hlg_fabric *fabric = NULL;
    char tiny[8];

    assert_int_equal(hlg_ofi_open(&config, &fabric, tiny, sizeof tiny), -HLG_EINVAL);
    assert_int_equal(strnlen(tiny, sizeof tiny), sizeof tiny - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_is_set_unless_the_user_did),
        cmocka_unit_test(endpoints_take_the_first_free_ports),
        cmocka_unit_test(tcp_and_net_are_the_native_provider),
        cmocka_unit_test(auto_says_what_it_chose_and_never_takes_what_is_for_tests),
        cmocka_unit_test(an_unknown_provider_names_the_valid_ones),
        cmocka_unit_test(an_absent_provider_is_not_replaced),
        cmocka_unit_test(an_address_of_another_machine_is_an_error),
        cmocka_unit_test(a_port_that_there_is_not_is_said),
        cmocka_unit_test(a_short_error_buffer_is_enough),
    };

    (void)alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
