#define _GNU_SOURCE
#include "ofi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "halage/transport/ofi.h"

static void tell(void *context, const char *sentence)
{
    (void)context;
    if (getenv("HALAGE_TEST_LOG") != NULL) {
        (void)fprintf(stderr, "  %s\n", sentence);
    }
}

const char *ofi_backend_node(void)
{
    return getenv("HALAGE_TEST_NODE");
}

struct hlg_fabric *ofi_backend_open(const char *provider, hlg_time stall_ns)
{
    const struct hlg_ofi_config config = {
        .provider = provider,
        .node = ofi_backend_node(),
        .stall_ns = stall_ns,
        .log = tell,
    };
    struct hlg_fabric *fabric = NULL;
    char error[256] = "";

    if (hlg_ofi_open(&config, &fabric, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s\n", error);
        return NULL;
    }
    return fabric;
}

void ofi_backend_close(struct hlg_fabric *fabric)
{
    hlg_ofi_close(fabric);
}

/* A port that the system just gave out and took back: it will not give it out again at once. */
uint32_t ofi_backend_nobody_ip(uint8_t *address, uint32_t capacity)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t bytes = sizeof name;
    const char *node = ofi_backend_node();

    assert_true(node == NULL || inet_pton(AF_INET, node, &name.sin_addr) == 1);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &bytes), 0);
    (void)close(fd);
    assert_true(sizeof name <= capacity);
    memcpy(address, &name, sizeof name);
    return sizeof name;
}
