/* The asking side's connection to `serve`, which it may start itself. */
#define _GNU_SOURCE /* prctl */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIAL_NS (5 * HLG_NS_PER_S)
#define REAP_MS 5000

static void serve_here(const struct perf_options *options, int fd)
{
    const struct perf_serve serve = {.program = options->program,
                                     .listen = "127.0.0.1:0",
                                     .place = options->place,
                                     .once = true};

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

int perf_session_wrong(int got, const struct perf_message *message, char *error)
{
    if (perf_interrupted()) {
        return -HLG_ECANCELED;
    }
    if (got == 1 && message->kind == PERF_MESSAGE_ERROR) {
        (void)snprintf(error, PERF_ERROR_BYTES, "the serving side says: %.170s", message->text);
        return -HLG_EIO;
    }
    (void)snprintf(error, PERF_ERROR_BYTES, "%s",
                   got == 0 ? "the serving side does not answer: is it stopped?"
                            : "the connection to the serving side ended: see what it printed");
    return -HLG_EIO;
}

int perf_session_await(struct perf_session *s, uint32_t kind, hlg_time span,
                       struct perf_message *message, char *error)
{
    perf_watch(NULL); /* no provider is called */
    const int got = perf_await(s->channel, span, message);

    return got == 1 && message->kind == kind ? 0 : perf_session_wrong(got, message, error);
}

/* Which provider it is, by libfabric's own name, and whether it and the memory can be had here. */
static int choose_way(struct perf_session *s, char *error)
{
    const struct perf_options *o = s->options;
    const struct hlg_memory_site site = {.kind = o->cuda ? HLG_MEMORY_CUDA : HLG_MEMORY_HOST,
                                         .device = s->place.device};
    struct perf_case shape = {.page_bytes = o->page_bytes,
                              .way = {.memory = site.kind, .staged = o->staged ? 1 : 0}};
    struct hlg_transport_caps caps;
    struct perf_fabric fabric;
    struct hlg_memory *memory = NULL;

    if (hlg_memory_create(&site, 1, &memory, error, PERF_ERROR_BYTES) != 0) {
        return -HLG_EIO;
    }
    hlg_memory_release(memory);
    for (uint32_t i = 0; i < o->size_count; i++) {
        shape.page_bytes = hlg_max_u32(shape.page_bytes, o->sizes[i]);
    }
    if (strlen(o->provider) >= sizeof shape.way.provider) {
        (void)snprintf(error, PERF_ERROR_BYTES, "there is no provider %.40s", o->provider);
        return -HLG_EINVAL;
    }
    memcpy(shape.way.provider, o->provider, strlen(o->provider));
    const int rc = perf_fabric_open(&shape, &s->place, false, &fabric, error);
    if (rc != 0) {
        return rc;
    }
    fabric.top->query(fabric.top, &caps);
    perf_fabric_close(&fabric);
    s->way = shape.way;
    memcpy(s->way.provider, caps.provider, sizeof s->way.provider);
    if (shape.page_bytes > caps.piece_bytes_max) {
        (void)snprintf(error, PERF_ERROR_BYTES,
                       "pages of %u bytes are too large: provider %s writes at most %" PRIu64
                       " at once",
                       shape.page_bytes, s->way.provider, caps.piece_bytes_max);
        return -HLG_EINVAL;
    }
    return 0;
}

static int greet(struct perf_session *s, char *error)
{
    struct perf_message message = {.kind = PERF_MESSAGE_HELLO};

    const int sent = perf_send(s->channel, &message);
    const int got = sent == 0 ? perf_await(s->channel, DIAL_NS, &message) : sent;
    if (got == 1 && message.kind == PERF_MESSAGE_HELLO) {
        return 0;
    }
    if (got == 1 && message.kind == PERF_MESSAGE_ERROR) {
        return perf_session_wrong(got, &message, error);
    }
    (void)snprintf(error, PERF_ERROR_BYTES,
                   got == 0
                       ? "%.80s does not answer: is it 'halage perf serve', and not stopped?"
                       : "%.80s is no 'halage perf serve' of this version: use the same halage "
                         "at both sides",
                   s->address);
    return -HLG_EPROTO;
}

static int dial(struct perf_session *s, char *error)
{
    int rc =
        hlg_tcp_dial(s->address, DIAL_NS, PERF_FRAME_BYTES, &s->channel, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        const size_t used = strlen(error);
        (void)snprintf(error + used, PERF_ERROR_BYTES - used, "%s",
                       rc != -HLG_EPEER ? ""
                                        : ": start 'halage perf serve' there, or give --local");
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

    *session = (struct perf_session){.options = options, .place = options->place};
    (void)snprintf(session->address, sizeof session->address, "%s",
                   options->local ? "" : options->address);
    int rc = options->local && !start_server(session) ? -HLG_EIO : 0;
    rc = rc == 0 ? dial(session, error) : rc;
    rc = rc == 0 ? choose_way(session, error) : rc;
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

/* Ends the serving process; one that is stuck in its provider not gently. */
static void reap(pid_t child)
{
    pid_t reaped = 0;

    (void)kill(child, SIGTERM);
    for (int ms = 0; ms < REAP_MS && reaped == 0; ms++) {
        reaped = waitpid(child, NULL, WNOHANG);
        if (reaped == 0) {
            (void)poll(NULL, 0, 1);
        }
    }
    if (reaped == 0) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
}

void perf_session_close(struct perf_session *session)
{
    if (session->channel != NULL) {
        session->channel->ops->close(session->channel);
        session->channel = NULL;
    }
    if (session->child > 0) {
        reap(session->child);
        session->child = 0;
    }
}
