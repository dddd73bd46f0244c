#define _GNU_SOURCE /* sockets */
#include "../messenger/signals.h"

#include <halage/exporter.h>

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 8u
#define TIMEOUT_S       5u
#define TEXT_TRIES_MAX  4u

struct hlg_exporter {
    struct hlg_messenger *messenger;
    struct MHD_Daemon *daemon;
    uint32_t port;
};

static int fail(char *error, size_t error_bytes, int code, uint32_t port, const char *why)
{
    if (error_bytes > 0) {
        (void)snprintf(error, error_bytes, "metrics: 127.0.0.1:%u: %s", port, why);
    }
    return code;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
                              size_t bytes, enum MHD_ResponseMemoryMode mode, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, mode);

    if (response == NULL) {
        if (mode == MHD_RESPMEM_MUST_FREE) {
            free(text);
        }
        return MHD_NO; /* the connection is closed */
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_word(struct MHD_Connection *connection, unsigned status,
                                   const char *word)
{
    return answer(connection, status, (char *)(uintptr_t)word, strlen(word), MHD_RESPMEM_PERSISTENT,
                  "text/plain; charset=utf-8");
}

static enum MHD_Result answer_metrics(const struct hlg_exporter *e,
                                      struct MHD_Connection *connection)
{
    int bytes = hlg_messenger_metrics(e->messenger, NULL, 0);

    /* Numbers may have grown longer since their text was measured. */
    for (uint32_t i = 0; i < TEXT_TRIES_MAX && bytes >= 0; i++) {
        const size_t capacity = (size_t)bytes + 256;
        char *text = malloc(capacity);
        if (text == NULL) {
            break;
        }
        bytes = hlg_messenger_metrics(e->messenger, text, capacity);
        if (bytes >= 0 && (size_t)bytes < capacity) {
            return answer(connection, MHD_HTTP_OK, text, (size_t)bytes, MHD_RESPMEM_MUST_FREE,
                          "text/plain; version=0.0.4; charset=utf-8");
        }
        free(text);
    }
    return answer_word(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no metrics\n");
}

static enum MHD_Result answer_health(const struct hlg_exporter *e,
                                     struct MHD_Connection *connection)
{
    const int health = hlg_messenger_health(e->messenger);

    if (health == HLG_HEALTH_GOOD) {
        return answer_word(connection, MHD_HTTP_OK, "good\n");
    }
    const char *word = health == HLG_HEALTH_POISONED ? "poisoned\n"
                       : health == HLG_HEALTH_STUCK  ? "stuck\n"
                                                     : "no messenger\n";
    return answer_word(connection, MHD_HTTP_SERVICE_UNAVAILABLE, word);
}

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
                                    const char *url, const char *method, const char *version,
                                    const char *upload, size_t *upload_bytes, void **state)
{
    const struct hlg_exporter *e = context;

    (void)version;
    (void)upload;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        if (*upload_bytes > 0) {
            return MHD_NO;
        }
        return answer_word(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (strcmp(url, "/metrics") == 0) {
        return answer_metrics(e, connection);
    }
    if (strcmp(url, "/healthz") == 0) {
        return answer_health(e, connection);
    }
    return answer_word(connection, MHD_HTTP_NOT_FOUND, "there are /metrics and /healthz\n");
}

/* Returns the socket, or -1 with errno. */
static int listen_on(uint32_t port, uint32_t *taken)
{
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* A port that an ended process left in TIME_WAIT may be taken again; one that is in use may not. */
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        listen(fd, (int)CONNECTIONS_MAX) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) {
        *taken = ntohs(address.sin_port);
        return fd;
    }
    const int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = why;
    return -1;
}

int hlg_exporter_start(struct hlg_messenger *m, uint32_t port, struct hlg_exporter **exporter,
                       char *error, size_t error_bytes)
{
    if (m == NULL || port > UINT16_MAX) {
        return fail(error, error_bytes, -HLG_EINVAL, port, "a port is 0 to 65535");
    }
    struct hlg_exporter *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return fail(error, error_bytes, -HLG_ENOMEM, port, "out of memory");
    }
    e->messenger = m;
    const int fd = listen_on(port, &e->port);
    if (fd < 0) {
        const char *why = errno == EADDRINUSE
                              ? "another process serves there; choose another port, or 0 for any"
                              : strerror(errno); /* NOLINT(concurrency-mt-unsafe) */
        free(e);
        return fail(error, error_bytes, -HLG_EIO, port, why);
    }
    sigset_t before;
    signals_leave(&before);
    e->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0,
                                 NULL, NULL, take_request, e, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
                                 MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e->daemon == NULL) {
        (void)close(fd);
        free(e);
        return fail(error, error_bytes, -HLG_EIO, port, "the HTTP server does not start");
    }
    *exporter = e;
    return 0;
}

uint32_t hlg_exporter_port(const struct hlg_exporter *exporter)
{
    return exporter->port;
}

void hlg_exporter_stop(struct hlg_exporter *exporter)
{
    if (exporter != NULL) {
        MHD_stop_daemon(exporter->daemon);
        free(exporter);
    }
}
