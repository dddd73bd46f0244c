/* Messages between `run` and `serve`: frames of a TCP channel, of one size, checked. */
#define _GNU_SOURCE /* ppoll */
#include "perf.h"

#include "cli.h"

#include <halage/wire.h>

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct perf_case) == 144, "crosses the wire");
_Static_assert(sizeof(struct perf_ready) == 96, "crosses the wire");
_Static_assert(sizeof(struct perf_message) == 216, "crosses the wire");

static volatile sig_atomic_t interrupted;
static const char *volatile watched = "";

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void on_alarm(int number)
{
    static const char text[] =
        ": the provider has not returned for a minute, as shm does not when its "
        "other side has died: this process ends; start it again\n";

    (void)number;
    /* Nothing else may be called here, and nobody hears of what cannot be written. */
    if (write(STDERR_FILENO, watched, strlen(watched)) >= 0 &&
        write(STDERR_FILENO, text, sizeof text - 1) >= 0) {
        _exit(CLI_FAILED);
    }
    _exit(CLI_FAILED);
}

void perf_watch(const char *program)
{
    watched = program != NULL ? program : "";
    (void)alarm(program != NULL ? PERF_STUCK_S : 0);
}

/* A second signal ends the process, wherever it is. */
void perf_catch(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    const struct sigaction stuck = {.sa_handler = on_alarm};

    interrupted = 0;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGALRM, &stuck, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

bool perf_interrupted(void)
{
    return interrupted != 0;
}

hlg_time perf_now(void)
{
    struct timespec now;

    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

int perf_send(struct hlg_channel *channel, struct perf_message *message)
{
    message->bytes = sizeof *message - sizeof message->bytes;
    message->version = PERF_VERSION;
    message->wire_kind = 0;
    /* The channel's queue holds many of these: no room means that the other side reads nothing. */
    const int sent = channel->ops->send(channel, (const uint8_t *)message, sizeof *message);

    return sent == 1 ? 0 : -HLG_EPEER;
}

int perf_receive(struct hlg_channel *channel, struct perf_message *message)
{
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;

    const int got = channel->ops->receive(channel, &frame, &bytes);
    if (got <= 0) {
        return got;
    }
    if (bytes != sizeof *message) {
        return -HLG_EPROTO;
    }
    memcpy(message, frame, sizeof *message);
    if (message->version != PERF_VERSION || message->wire_kind != 0 ||
        message->bench >= PERF_BENCHES) {
        return -HLG_EPROTO;
    }
    if (message->kind == PERF_MESSAGE_ERROR) {
        message->text[PERF_ERROR_BYTES - 1] = '\0';
    }
    return 1;
}

int perf_await(struct hlg_channel *channel, hlg_time span, struct perf_message *message)
{
    const hlg_time limit = hlg_time_after(perf_now(), span);

    for (;;) {
        const int got = perf_receive(channel, message);
        const hlg_time now = perf_now();
        if (got != 0 || now >= limit || perf_interrupted()) {
            return got;
        }
        short events = 0;
        struct pollfd fd = {.fd = channel->ops->wait_fd(channel, &events)};
        fd.events = events;
        const hlg_time rest = hlg_min_time(limit - now, 100 * HLG_NS_PER_MS);
        const struct timespec wait = {.tv_nsec = (long)rest};
        (void)ppoll(&fd, 1, &wait, NULL); /* an error or a signal only makes it look again */
    }
}

static bool in_range(uint32_t value, uint32_t least, uint32_t most, const char *name, char *error)
{
    if (value >= least && value <= most) {
        return true;
    }
    (void)snprintf(error, PERF_ERROR_BYTES, "%s %u is not between %u and %u", name, value, least,
                   most);
    return false;
}

static bool is_text(const char *text, size_t bytes, char *error)
{
    if (memchr(text, 0, bytes) != NULL && text[0] != '\0') {
        return true;
    }
    (void)snprintf(error, PERF_ERROR_BYTES, "a name or an address is missing");
    return false;
}

bool perf_case_check(const struct perf_case *shape, char *error)
{
    return in_range(shape->path, PERF_CORE, PERF_PATHS - 1, "path", error) &&
           in_range(shape->order, 0, PERF_ORDERS - 1, "order", error) &&
           in_range(shape->page_bytes, 1, PERF_PAGE_BYTES_MAX, "page bytes", error) &&
           in_range(shape->pages, 1, PERF_PAGES_MAX, "pages", error) &&
           in_range(shape->layers, 1, PERF_LAYERS_MAX, "layers", error) &&
           in_range(shape->peers, 1, PERF_PEERS_MAX, "peers", error) &&
           in_range(shape->rails, 1, PERF_RAILS_MAX, "rails", error) &&
           in_range(shape->window, 1, PERF_WINDOW_MAX, "window", error) &&
           in_range(shape->check, 0, 1, "check", error) &&
           in_range(shape->way.memory, HLG_MEMORY_HOST, HLG_MEMORY_CUDA, "memory", error) &&
           in_range(shape->way.staged, 0, shape->way.memory == HLG_MEMORY_CUDA, "staged", error) &&
           is_text(shape->way.provider, sizeof shape->way.provider, error) &&
           (shape->path != PERF_LAYER || is_text(shape->address, sizeof shape->address, error));
}
