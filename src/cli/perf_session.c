/* The asking side's connection to `serve`, which it may start itself. */
#define _GNU_SOURCE /* prctl */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <halage/transport/ofi.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIAL_NS (5 * HLG_NS_PER_S)

static void serve_here(const struct perf_options *options, int fd)
{
    const struct perf_serve serve = {
        .program = options->program, .listen = "127.0.0.1:0", .node = options->node, .once = true};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN); /* the terminal's is for the asking side */
    const int status = perf_serve(&serve, fd);
    (void)fflush(NULL);
    _exit(status);
}

/* Forks before libfabric starts, and learns where the child listens. */
static bool start_server(struct perf_session *s)
{
    int ends[2];

    if (pipe(ends) != 0) {
        return false;
    }
    (void)fflush(NULL);
    s->child = (int)fork();
    if (s->child == 0) {
        (void)close(ends[0]);
        serve_here(s->options, ends[1]);
    }
    (void)close(ends[1]);
    const ssize_t bytes = s->child > 0 ? read(ends[0], s->address, sizeof s->address) : -1;
    (void)close(ends[0]);
    return bytes > 0 && memchr(s->address, 0, (size_t)bytes) != NULL;
}

static void log_line(void *context, const char *sentence)
{
    (void)fprintf(stderr, "%s: %s\n", (const char *)context, sentence);
}

/* Which provider it is, by libfabric's own name. */
static int choose_provider(struct perf_session *s, char *error)
{
    uint32_t page_bytes = s->options->page_bytes;
    const struct hlg_ofi_config config = {
        .provider = s->options->provider,
        .node = s->place.node,
        .log = log_line,
        .log_context = (void *)(uintptr_t)s->options->program,
    };
    struct hlg_transport_caps caps;
    struct hlg_fabric *fabric = NULL;

    const int rc = hlg_ofi_open(&config, &fabric, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        return rc;
    }
    fabric->query(fabric, &caps);
    memcpy(s->provider, caps.provider, sizeof s->provider);
    hlg_ofi_close(fabric);
    for (uint32_t i = 0; i < s->options->size_count; i++) {
        page_bytes = hlg_max_u32(page_bytes, s->options->sizes[i]);
    }
    if (page_bytes > caps.piece_bytes_max) {
        (void)snprintf(error, PERF_ERROR_BYTES,
                       "pages of %u bytes are too large: provider %s writes at most %" PRIu64
                       " at once",
                       page_bytes, s->provider, caps.piece_bytes_max);
        return -HLG_EINVAL;
    }
    return 0;
}

static int greet(struct perf_session *s, char *error)
{
    struct perf_message message = {.kind = PERF_MESSAGE_HELLO};

    if (perf_send(s->channel, &message) != 0 || perf_await(s->channel, DIAL_NS, &message) != 1 ||
        message.kind != PERF_MESSAGE_HELLO) {
        (void)snprintf(
            error, PERF_ERROR_BYTES,
            "%s does not answer as 'halage perf serve' of this version; it serves one at "
            "a time",
            s->address);
        return -HLG_EPROTO;
    }
    return 0;
}

static int dial(struct perf_session *s, char *error)
{
    int rc =
        hlg_tcp_dial(s->address, DIAL_NS, PERF_FRAME_BYTES, &s->channel, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        return rc;
    }
    if (!s->options->insecure && !hlg_tcp_is_loopback(s->channel->ops->name(s->channel))) {
        (void)snprintf(error, PERF_ERROR_BYTES,
                       "%s is not loopback; nothing proves who answers there: allow it with "
                       "--insecure",
                       s->address);
        return -HLG_EINVAL;
    }
    if (s->place.node == NULL) {
        rc = hlg_tcp_local_ip(s->address, s->node, error, PERF_ERROR_BYTES);
        s->place.node = s->node;
    }
    return rc != 0 ? rc : greet(s, error);
}

int perf_session_open(const struct perf_options *options, struct perf_session *session)
{
    char error[PERF_ERROR_BYTES] = "the serving process cannot be started";

    *session = (struct perf_session){.options = options, .place.node = options->node};
    (void)snprintf(session->address, sizeof session->address, "%s",
                   options->local ? "" : options->address);
    int rc = options->local && !start_server(session) ? -HLG_EIO : 0;
    rc = rc == 0 ? dial(session, error) : rc;
    rc = rc == 0 ? choose_provider(session, error) : rc;
    if (rc == 0) {
        return CLI_DONE;
    }
    const bool interrupted = perf_interrupted();
    if (!interrupted) {
        (void)options_error(options->program, "%s", error);
    }
    perf_session_close(session);
    return interrupted ? CLI_INTERRUPTED : rc == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
}

void perf_session_close(struct perf_session *session)
{
    if (session->channel != NULL) {
        session->channel->ops->close(session->channel);
        session->channel = NULL;
    }
    if (session->child > 0) {
        (void)kill(session->child, SIGTERM);
        (void)waitpid(session->child, NULL, 0);
        session->child = 0;
    }
}
