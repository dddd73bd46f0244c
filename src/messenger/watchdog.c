/*
 * The watchdog: a thread that ends the process when the core thread is stuck inside a transport's call. A
 * provider may spin for ever where its peer died (shm of libfabric 1.17 does); nobody can take a thread
 * out of it, and a node that stands still with its sockets open is the worst kind of peer.
 *
 * The core thread counts a beat each round, odd while it sleeps in the system. All calls of endpoints
 * go through a decorator here, which names the call while it lasts. The watchdog wakes LOOKS times in the
 * span and ends the process when it has seen the same even beat at each of them: so a process that
 * was stopped, or a machine that slept, is not taken for one that is stuck.
 */
#define _GNU_SOURCE /* nothing else declares what poll.h does with an unlimited wait */
#include "messenger_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOKS 8u

/* What a handler of a signal can ask for: nothing leads it to a messenger. */
static _Thread_local const char *_Atomic call_here;

struct watched {
    struct hlg_transport transport;
    struct hlg_transport *below;
    struct watch *watch;
};

/* ---- On the core thread, or whoever closes the messenger after it ---- */

void watchdog_round(struct watch *w)
{
    /* relaxed, here and below: the watchdog only compares, and reads nothing else by it */
    uint64_t beat = atomic_load_explicit(&w->beat, memory_order_relaxed);

    atomic_store_explicit(&w->beat, (beat | 1) + 1, memory_order_relaxed);
}

void watchdog_sleep(struct watch *w)
{
    uint64_t beat = atomic_load_explicit(&w->beat, memory_order_relaxed);

    atomic_store_explicit(&w->beat, beat | 1, memory_order_relaxed);
}

static struct watched *self(const struct hlg_transport *t)
{
    return (struct watched *)(uintptr_t)t;
}

static void set_call(struct watch *w, const char *call)
{
    atomic_store_explicit(&w->call, call, memory_order_relaxed);
    atomic_store_explicit(&call_here, call, memory_order_relaxed); /* read by this thread alone */
}

const char *hlg_messenger_call(void)
{
    return atomic_load_explicit(&call_here, memory_order_relaxed);
}

void watchdog_enter(struct watch *w, const char *call)
{
    set_call(w, call);
}

void watchdog_leave(struct watch *w)
{
    set_call(w, NULL);
    watchdog_round(w); /* a long round of many short calls is no standstill */
}

static struct hlg_transport *enter(struct hlg_transport *t, const char *call)
{
    struct watched *w = self(t);

    watchdog_enter(w->watch, call);
    return w->below;
}

static void leave(struct hlg_transport *t)
{
    watchdog_leave(self(t)->watch);
}

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    self(t)->below->ops->query(self(t)->below, caps);
}

static hlg_time now(struct hlg_transport *t)
{
    return self(t)->below->ops->now(self(t)->below);
}

static int address(struct hlg_transport *t, uint8_t *bytes, uint32_t capacity)
{
    return self(t)->below->ops->address(self(t)->below, bytes, capacity);
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    struct hlg_transport *below = enter(t, "peer_open");
    int result = below->ops->peer_open(below, bytes, count);

    leave(t);
    return result;
}

static int peer_close(struct hlg_transport *t, uint32_t peer)
{
    struct hlg_transport *below = enter(t, "peer_close");
    int result = below->ops->peer_close(below, peer);

    leave(t);
    return result;
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem)
{
    struct hlg_transport *below = enter(t, "mem_register");
    int result = below->ops->mem_register(below, region, mem);

    leave(t);
    return result;
}

static int mem_export(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out)
{
    return self(t)->below->ops->mem_export(self(t)->below, mem, out);
}

static int mem_release(struct hlg_transport *t, hlg_mem mem)
{
    struct hlg_transport *below = enter(t, "mem_release");
    int result = below->ops->mem_release(below, mem);

    leave(t);
    return result;
}

static int64_t write_pieces(struct hlg_transport *t, const struct hlg_paged_write *write)
{
    struct hlg_transport *below = enter(t, "write");
    int64_t result = below->ops->write(below, write);

    leave(t);
    return result;
}

static int poll_events(struct hlg_transport *t, struct hlg_transport_event *events,
                       uint32_t capacity)
{
    struct hlg_transport *below = enter(t, "poll");
    int result = below->ops->poll(below, events, capacity);

    leave(t);
    return result;
}

static int wait_fd(struct hlg_transport *t)
{
    struct hlg_transport *below = enter(t, "wait_fd");
    int result = below->ops->wait_fd(below);

    leave(t);
    return result;
}

/* Any thread: not ours to watch. */
static void wake(struct hlg_transport *t)
{
    self(t)->below->ops->wake(self(t)->below);
}

static int close_endpoint(struct hlg_transport *t)
{
    struct hlg_transport *below = enter(t, "close");
    int result = below->ops->close(below);

    leave(t);
    return result;
}

static void free_endpoint(struct hlg_transport *t)
{
    struct hlg_transport *below = enter(t, "free");

    below->ops->free(below);
    leave(t);
    free(self(t));
}

static const struct hlg_transport_ops ops = {
    .query = query,
    .now = now,
    .address = address,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .mem_register = mem_register,
    .mem_export = mem_export,
    .mem_release = mem_release,
    .write = write_pieces,
    .poll = poll_events,
    .wait_fd = wait_fd,
    .wake = wake,
    .close = close_endpoint,
    .free = free_endpoint,
};

static struct watch *watch_of(const struct hlg_fabric *fabric)
{
    return (struct watch *)(uintptr_t)fabric; /* its first member */
}

static int open_endpoint(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    struct watch *w = watch_of(fabric);
    struct watched *t = calloc(1, sizeof *t);

    if (t == NULL) {
        return -HLG_ENOMEM;
    }
    t->transport.ops = &ops;
    t->watch = w;
    set_call(w, "open");
    int error = w->below->open(w->below, lane, rail, &t->below);
    leave(&t->transport);
    if (error != 0) {
        free(t);
        return error;
    }
    *out = &t->transport;
    return 0;
}

static void query_fabric(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    const struct watch *w = watch_of(fabric);

    w->below->query(w->below, caps);
}

static hlg_time now_fabric(struct hlg_fabric *fabric)
{
    return watch_of(fabric)->below->now(watch_of(fabric)->below);
}

static int prepare_fabric(struct hlg_fabric *fabric, const struct hlg_mem_region *region,
                          char *error, size_t error_bytes)
{
    struct hlg_fabric *below = watch_of(fabric)->below;

    return below->prepare(below, region, error, error_bytes);
}

struct hlg_fabric *watchdog_fabric(struct hlg_messenger *m)
{
    struct watch *w = &m->watch;
    struct hlg_fabric *below = m->config.fabric;

    /* A fabric that tells its news names its own endpoints: it is simulated, and cannot be stuck. */
    if (m->config.watchdog_ns == 0 || below->ready != NULL) {
        return below;
    }
    w->fabric = (struct hlg_fabric){.open = open_endpoint,
                                    .query = query_fabric,
                                    .now = now_fabric,
                                    .rails = below->rails,
                                    .prepare = below->prepare != NULL ? prepare_fabric : NULL,
                                    .flusher = below->flusher};
    w->below = below;
    return &w->fabric;
}

/* ---- The watchdog's thread ---- */

static void end_process(struct hlg_messenger *m, const char *call)
{
    const uint64_t span_ms = m->config.watchdog_ns / HLG_NS_PER_MS;
    struct hlg_transport_caps caps;
    char line[256];

    m->config.fabric->query(m->config.fabric, &caps);
    caps.provider[sizeof caps.provider - 1] = '\0';
    if (call != NULL) {
        (void)snprintf(line, sizeof line,
                       "watchdog: '%s' of provider %s has not returned for %" PRIu64
                       " ms; this process ends, since nothing can take a thread out of a provider: "
                       "start it again",
                       call, caps.provider, span_ms);
    } else {
        (void)snprintf(line, sizeof line,
                       "watchdog: the core thread has not moved for %" PRIu64
                       " ms, outside any call of provider %s; this process ends: start it again, "
                       "and report this",
                       span_ms, caps.provider);
    }
    messenger_log(m, HLG_LOG_FATAL, "%s", line);
    if (m->config.log == NULL) {
        (void)fprintf(stderr, "halage: %s\n", line); /* nobody else will say why */
    }
    if (m->config.watchdog_exit != 0) {
        _exit(m->config.watchdog_exit);
    }
    abort();
}

static void *watchdog_main(void *messenger)
{
    struct hlg_messenger *m = messenger;
    struct watch *w = &m->watch;
    const int nap_ms = (int)((m->config.watchdog_ns / LOOKS + HLG_NS_PER_MS - 1) / HLG_NS_PER_MS);
    uint64_t seen = 1;
    uint32_t same = 0;

    while (!latch_is_set(&w->stop)) {
        struct pollfd fd = {.fd = w->bell.fd, .events = POLLIN};
        (void)poll(&fd, 1, nap_ms); /* an error or a signal only makes it look earlier */
        uint64_t beat = atomic_load_explicit(&w->beat, memory_order_relaxed);
        same = beat == seen && beat % 2 == 0 ? same + 1 : 0;
        seen = beat;
        if (same == LOOKS) {
            end_process(m, atomic_load_explicit(&w->call, memory_order_relaxed));
        }
    }
    return NULL;
}

int watchdog_start(struct hlg_messenger *m)
{
    struct watch *w = &m->watch;

    if (m->config.watchdog_ns == 0) {
        return 0;
    }
    if (pthread_create(&w->thread, NULL, watchdog_main, m) != 0) {
        return -HLG_ENOMEM;
    }
    w->running = true;
    return 0;
}

void watchdog_stop(struct hlg_messenger *m)
{
    struct watch *w = &m->watch;

    if (w->running) {
        latch_set(&w->stop);
        bell_ring(&w->bell);
        int error = pthread_join(w->thread, NULL);
        HLG_ASSERT(error == 0);
        w->running = false;
    }
}
