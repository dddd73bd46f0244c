/* libfabric's native RDM over TCP on loopback, in real time; channels are TCP too. */
#include "samecore.h"

#include <halage/transport/ofi.h>
#include <halage/transport/tcp.h>
#include <poll.h>

#define FDS_MAX 256u

static struct hlg_fabric *fabrics[NODES];

static void close_network(void)
{
    for (uint32_t n = 0; n < NODES; n++) {
        if (fabrics[n] != NULL) {
            hlg_ofi_close(fabrics[n]);
            fabrics[n] = NULL;
        }
    }
}

static bool open_network(uint64_t seed)
{
    /* A loaded machine is no dead peer. */
    const struct hlg_ofi_config config = {
        .provider = "tcp", .rails = RAILS, .stall_ns = 60 * HLG_NS_PER_S};
    char error[256] = "";

    (void)seed;
    for (uint32_t n = 0; n < NODES; n++) {
        if (hlg_ofi_open(&config, &fabrics[n], error, sizeof error) != 0) {
            (void)fprintf(stderr, "net: %s\n", error);
            close_network();
            return false;
        }
    }
    return true;
}

static struct hlg_fabric *fabric(uint32_t node)
{
    return fabrics[node];
}

static bool connect_nodes(uint32_t a, uint32_t b, struct hlg_channel **channel_a,
                          struct hlg_channel **channel_b)
{
    struct hlg_tcp_listener *listener = NULL;
    char error[256] = "";
    int accepted = 0;

    (void)a;
    (void)b;
    if (hlg_tcp_listen("127.0.0.1:0", 1u << 16, &listener, error, sizeof error) != 0) {
        (void)fprintf(stderr, "net: %s\n", error);
        return false;
    }
    if (hlg_tcp_dial(hlg_tcp_listener_name(listener), 5 * HLG_NS_PER_S, 1u << 16, channel_a, error,
                     sizeof error) != 0) {
        (void)fprintf(stderr, "net: %s\n", error);
        hlg_tcp_listener_close(listener);
        return false;
    }
    while (accepted == 0) { /* it is in the queue: the dial returned */
        accepted = hlg_tcp_accept(listener, channel_b);
    }
    hlg_tcp_listener_close(listener);
    return accepted == 1;
}

static void idle(struct hlg_pump *const *pumps, uint32_t count)
{
    struct pollfd fds[FDS_MAX];
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        int filled = hlg_pump_wait_fds(pumps[i], fds + used, FDS_MAX - used, true);
        if (filled < 0) {
            return; /* there is work */
        }
        used += (uint32_t)filled;
    }
    (void)poll(fds, used, 1);
}

const struct backend backend = {.name = "net",
                                .open = open_network,
                                .close = close_network,
                                .fabric = fabric,
                                .connect = connect_nodes,
                                .idle = idle};
