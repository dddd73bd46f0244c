#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"

/* Connections that the system holds until we look, at most every millisecond or so. */
#define BACKLOG 1024

/* A peer that vanished without a word is found by the system after some 20 s even when the lease of
 * the session is long: 10 s of silence, then 5 probes 2 s apart; 20 s for sent data. */
#define KEEP_IDLE_S       10
#define KEEP_INTERVAL_S   2
#define KEEP_PROBES       5
#define UNACKNOWLEDGED_MS 20000

struct hlg_tcp_listener {
    int fd;
    uint32_t message_bytes_max;
    char name[HLG_TCP_NAME_BYTES];
};

struct endpoint_name {
    char host[256]; /* empty: any */
    char port[8];
};

static hlg_time clock_now(void)
{
    struct timespec now;

    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

/* strerror(), which is not for threads, in the style of our sentences. */
static const char *why(int error, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "%s", strerrordesc_np(error));
    text[0] = (char)tolower((unsigned char)text[0]);
    return text;
}

/* What to do where this host gives no address to listen on. */
static const char *listen_remedy(int error)
{
    switch (error) {
    case EADDRINUSE:
        return ": choose another port, or end what listens there";
    case EADDRNOTAVAIL:
        return ": give an address that this host has";
    case EACCES:
        return ": choose a port from 1024 on";
    default:
        return "";
    }
}

static bool is_port(const char *text)
{
    const size_t digits = strspn(text, "0123456789");

    return digits >= 1 && digits <= 5 && text[digits] == 0 && strtoul(text, NULL, 10) <= 65535;
}

/* Split "host:port" or "[host]:port". Returns false when it is neither. */
static bool split(const char *address, struct endpoint_name *out)
{
    const char *colon = strrchr(address, ':');

    if (colon == NULL || !is_port(colon + 1)) {
        return false;
    }
    const char *host = address;
    size_t bytes = (size_t)(colon - address);
    if (bytes >= 2 && host[0] == '[' && host[bytes - 1] == ']') {
        host++;
        bytes -= 2;
    } else if (memchr(host, ':', bytes) != NULL || memchr(host, '[', bytes) != NULL) {
        return false; /* IPv6 without brackets: where it ends and the port begins is a guess */
    }
    if (bytes >= sizeof out->host) {
        return false;
    }
    memcpy(out->host, host, bytes);
    out->host[bytes] = 0;
    (void)snprintf(out->port, sizeof out->port, "%s", colon + 1);
    return true;
}

/* Addresses of a name. Returns NULL with a sentence when there are none. */
static struct addrinfo *look_up(const char *address, int flags, int *rc, char *error,
                                size_t error_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct endpoint_name name;
    struct addrinfo *found = NULL;
    char text[128];

    if (!split(address, &name) || (name.host[0] == 0 && (flags & AI_PASSIVE) == 0)) {
        (void)snprintf(error, error_bytes,
                       "'%s' is not an address: write host:port, or [host]:port for IPv6", address);
        *rc = -HLG_EINVAL;
        return NULL;
    }
    const int failed = getaddrinfo(name.host[0] != 0 ? name.host : NULL, name.port, &hints, &found);
    if (failed != 0) {
        const char *reason =
            failed == EAI_SYSTEM ? why(errno, text, sizeof text) : gai_strerror(failed);
        (void)snprintf(error, error_bytes, "cannot look up %s: %s", address, reason);
        *rc = (flags & AI_PASSIVE) != 0 ? -HLG_EIO : -HLG_EPEER;
        return NULL;
    }
    return found;
}

static void name_of(const struct sockaddr *address, socklen_t bytes, char *name)
{
    char host[64];
    char port[8];

    if (getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        (void)snprintf(name, HLG_TCP_NAME_BYTES, "unknown");
        return;
    }
    const bool brackets = strchr(host, ':') != NULL;
    (void)snprintf(name, HLG_TCP_NAME_BYTES, "%s%s%s:%s", brackets ? "[" : "", host,
                   brackets ? "]" : "", port);
}

/* Best effort: a channel without one of these options still works, and finds a dead peer later. */
static void set_options(int fd)
{
    const struct {
        int level;
        int option;
        int value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
    };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(fd, options[i].level, options[i].option, &options[i].value,
                         sizeof options[i].value);
    }
}

bool hlg_tcp_is_loopback(const char *name)
{
    struct endpoint_name parts;
    struct in_addr v4;
    struct in6_addr v6;

    if (!split(name, &parts)) {
        return false;
    }
    if (inet_pton(AF_INET, parts.host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, parts.host, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) ||
            (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET));
}

/* ---- listening ------------------------------------------------------------------------------ */

/* Returns a listening socket, or a negated errno. */
static int listen_on(const struct addrinfo *address)
{
    const int one = 1;

    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int error = errno;
        (void)close(fd);
        return -error;
    }
    return fd;
}

int hlg_tcp_listen(const char *address, uint32_t message_bytes_max,
                   struct hlg_tcp_listener **listener, char *error, size_t error_bytes)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    char text[128];
    int rc = 0;
    int fd = -EADDRNOTAVAIL;

    struct addrinfo *found = look_up(address, AI_PASSIVE, &rc, error, error_bytes);
    if (found == NULL) {
        return rc;
    }
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = listen_on(a);
    }
    freeaddrinfo(found);
    if (fd < 0) {
        (void)snprintf(error, error_bytes, "cannot listen on %s: %s%s", address,
                       why(-fd, text, sizeof text), listen_remedy(-fd));
        return -HLG_EIO;
    }
    struct hlg_tcp_listener *l = calloc(1, sizeof *l);
    if (l == NULL || getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        (void)snprintf(error, error_bytes, "out of memory");
        free(l);
        (void)close(fd);
        return -HLG_ENOMEM;
    }
    l->fd = fd;
    l->message_bytes_max = message_bytes_max;
    name_of((const struct sockaddr *)&bound, bytes, l->name);
    *listener = l;
    return 0;
}

const char *hlg_tcp_listener_name(const struct hlg_tcp_listener *listener)
{
    return listener->name;
}

int hlg_tcp_listener_fd(const struct hlg_tcp_listener *listener)
{
    return listener->fd;
}

void hlg_tcp_listener_close(struct hlg_tcp_listener *listener)
{
    (void)close(listener->fd);
    free(listener);
}

/* accept(2) gives errors of the connection that it would have returned: those are not ours. */
static int accept_error(int error)
{
    switch (error) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
    case EPERM:
        return 0;
    case EMFILE:
    case ENFILE:
        return -HLG_ELIMIT;
    case ENOBUFS:
    case ENOMEM:
        return -HLG_ENOMEM;
    default:
        return -HLG_EIO;
    }
}

int hlg_tcp_accept(struct hlg_tcp_listener *listener, struct hlg_channel **channel)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    char name[HLG_TCP_NAME_BYTES];

    const int fd =
        accept4(listener->fd, (struct sockaddr *)&peer, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return accept_error(errno);
    }
    set_options(fd);
    name_of((const struct sockaddr *)&peer, bytes, name);
    const int rc = tcp_channel_make(fd, name, listener->message_bytes_max, channel);
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    return 1;
}

/* ---- dialling ------------------------------------------------------------------------------- */

/* Wait until the socket is connected or the time is up. Returns 0 or an errno. */
static int await_connection(int fd, hlg_time deadline)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    int ready = 0;

    while (ready == 0) {
        const hlg_time now = clock_now();
        if (now >= deadline) {
            return ETIMEDOUT;
        }
        const hlg_time rest_ms = (deadline - now) / HLG_NS_PER_MS + 1;
        ready = poll(&wanted, 1, rest_ms < 60000 ? (int)rest_ms : 60000);
        if (ready < 0) {
            if (errno != EINTR) {
                return errno;
            }
            ready = 0;
        }
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

/* Returns a connected socket, or a negated errno. */
static int connect_to(const struct addrinfo *address, hlg_time deadline)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        error = errno == EINPROGRESS || errno == EINTR ? await_connection(fd, deadline) : errno;
    }
    if (error != 0) {
        (void)close(fd);
        return -error;
    }
    return fd;
}

int hlg_tcp_dial(const char *address, hlg_time timeout_ns, uint32_t message_bytes_max,
                 struct hlg_channel **channel, char *error, size_t error_bytes)
{
    const hlg_time begin = clock_now();
    const hlg_time deadline =
        timeout_ns < HLG_TIME_NEVER - begin ? begin + timeout_ns : HLG_TIME_NEVER;
    char name[HLG_TCP_NAME_BYTES] = "";
    char text[128];
    int rc = 0;
    int fd = -EADDRNOTAVAIL;

    struct addrinfo *found = look_up(address, 0, &rc, error, error_bytes);
    if (found == NULL) {
        return rc;
    }
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = connect_to(a, deadline);
        name_of(a->ai_addr, a->ai_addrlen, name);
    }
    freeaddrinfo(found);
    if (fd < 0) {
        (void)snprintf(error, error_bytes, "cannot reach %s: %s", address,
                       why(-fd, text, sizeof text));
        return -HLG_EPEER;
    }
    set_options(fd);
    rc = tcp_channel_make(fd, name, message_bytes_max, channel);
    if (rc != 0) {
        (void)close(fd);
        (void)snprintf(error, error_bytes, "out of memory");
    }
    return rc;
}

int hlg_tcp_local_ip(const char *address, char *ip, char *error, size_t error_bytes)
{
    int rc = 0;
    struct addrinfo *found = look_up(address, 0, &rc, error, error_bytes);

    if (found == NULL) {
        return rc;
    }
    rc = -HLG_EPEER;
    for (const struct addrinfo *a = found; a != NULL && rc != 0; a = a->ai_next) {
        struct sockaddr_storage local;
        socklen_t bytes = sizeof local;
        /* connecting a datagram socket asks the routing table and sends nothing */
        const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            continue;
        }
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&local, &bytes) == 0 &&
            getnameinfo((struct sockaddr *)&local, bytes, ip, HLG_TCP_IP_BYTES, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            rc = 0;
        }
        (void)close(fd);
    }
    freeaddrinfo(found);
    if (rc != 0) {
        (void)snprintf(error, error_bytes, "no route to %s", address);
    }
    return rc;
}
