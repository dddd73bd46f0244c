/*
 * The core thread. With no request open it sleeps on the control sockets and its bell and polls no
 * completion queue; with requests open it spins, then sleeps ever longer, up to config.sleep_ns, on
 * the endpoints' descriptors as well where they have some.
 */
#define _GNU_SOURCE /* ppoll */
#include "messenger_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#define SLEEP_NS_MIN     20000u
#define STATS_NS         (10 * HLG_NS_PER_MS)
#define IDLE_NS_MAX      HLG_NS_PER_S
#define ACCEPTS_PER_STEP 16u
/* A busy core thread looks for new connections this often: a look is a call of the system. */
#define ACCEPT_NS HLG_NS_PER_MS
/* And so often where the system had no descriptor or memory for who waits. */
#define ACCEPT_REST_NS (100 * HLG_NS_PER_MS)
/* Endpoints are kept moving this long after the last request; see LINGER_NS in the pump. */
#define LINGER_NS       (20 * HLG_NS_PER_MS)
#define FDS_OWN         2u
#define LOOKS_PER_ROUND 100u /* at counter words: about as long as a round */
/* So often it is seen whether counters are awaited still: that looks at every request. */
#define AWAITS_NS (10 * HLG_NS_PER_MS)

/* Whether there is room for the reports that anything new could bring, beyond those of what is open
 * already. The engine that does not poll stops its own commands, and loses nothing. */
static bool may_take(const struct hlg_messenger *m)
{
    uint64_t used = ring_pushes(&m->reports) - ring_pops(&m->reports);

    return used + m->report_reserve < ring_capacity(&m->reports);
}

/* ---- Connections ---- */

void progress_let_in(struct hlg_messenger *m, struct hlg_channel *channel, uint32_t connection)
{
    char name[HLG_TCP_NAME_BYTES];
    uint32_t index = 0;

    (void)snprintf(name, sizeof name, "%s", channel->ops->name(channel));
    int error = hlg_pump_channel(m->pump, channel, connection != 0, &index);
    if (error == 0) {
        struct peer_slot *peer = &m->peers[index];
        uint32_t uses = (peer->uses + 1) & 0xffffu;
        *peer = (struct peer_slot){
            .uses = uses, .connection = connection, .connected = hlg_pump_now(m->pump)};
        memcpy(peer->name, name, sizeof peer->name);
        messenger_log(m, HLG_LOG_DEBUG, "channel %s peer %" PRIu32, name, peer_name_of(m, index));
        return;
    }
    messenger_log(m, HLG_LOG_WARN, "channel %s refused %s", name, hlg_error_text(error));
    if (connection != 0) {
        struct hlg_report report = {.kind = HLG_NOTICE_PEER_REFUSED,
                                    .peer = HLG_NONE,
                                    .connection = connection,
                                    .error = error};
        (void)snprintf(report.text, sizeof report.text, "%s: %s", name,
                       error == -HLG_ELIMIT ? "as many peers as limits.peers_max are connected"
                                            : "no endpoint could be opened for it");
        report_push(m, &report);
    }
}

static int take_connections(struct hlg_messenger *m, hlg_time now)
{
    struct dial_result result;
    struct hlg_channel *channel = NULL;
    int work = 0;

    bool look = m->listener != NULL && m->accept_due <= now;
    if (look) {
        m->accept_due = now + ACCEPT_NS;
        m->accept_rests = false;
    }
    for (uint32_t i = 0; look && i < ACCEPTS_PER_STEP && may_take(m); i++) {
        const int got = hlg_tcp_accept(m->listener, &channel);
        if (got < 0) {
            m->accept_rests = true; /* no descriptor is free for whoever waits */
            m->accept_due = now + ACCEPT_REST_NS;
        }
        if (got <= 0) {
            break;
        }
        lobby_enter(m, channel, 0, now);
        work++;
        if (i == ACCEPTS_PER_STEP - 1) {
            m->accept_due = now; /* more may wait, and the system's queue must not fill up */
        }
    }
    while (may_take(m) && ring_pop(&m->dialled, &result)) {
        work++;
        if (result.error == 0) {
            lobby_enter(m, result.channel, result.connection, now);
            continue;
        }
        m->stats.peers_refused[HLG_REFUSED_ADDRESS] += result.not_loopback;
        struct hlg_report report = {.kind = HLG_NOTICE_PEER_REFUSED,
                                    .peer = HLG_NONE,
                                    .connection = result.connection,
                                    .error = result.error};
        report_text(&report, result.text);
        messenger_log(m, HLG_LOG_WARN, "peer_refused connection %" PRIu32 " %s", result.connection,
                      result.text);
        report_push(m, &report);
    }
    return work + (may_take(m) ? lobby_step(m, now) : 0);
}

/* ---- Commands and counter values ---- */

/* Handles commands up to the push number `limit`. Returns how many; fewer are there when one of them
 * is still being pushed, or the engine must poll first. */
static int take_commands(struct hlg_messenger *m, uint64_t limit)
{
    struct command command;
    int work = 0;

    while (ring_pops(&m->commands) < limit && may_take(m) && ring_pop(&m->commands, &command)) {
        command_handle(m, &command);
        work++;
    }
    return work;
}

/*
 * Counter values are handed over only when every command that was pushed before they were read has
 * been handled (I4): they are taken out of their ring first, then the commands, then they are acted
 * on. A value that must wait for a command half pushed waits.
 */
static int take_layers_and_commands(struct hlg_messenger *m)
{
    int work = 0;

    if (m->layers_taken_count == 0) {
        if (layer_poll_awaits(m)) {
            m->layers_taken_count = layer_poll_look(m, m->layers_taken, LAYERS_MAX);
        }
        while (m->layers_taken_count < LAYERS_MAX &&
               ring_pop(&m->layers, &m->layers_taken[m->layers_taken_count])) {
            m->layers_taken_count++;
        }
        m->layers_after = ring_pushes(&m->commands);
    }
    work += take_commands(m, ring_pushes(&m->commands));
    if (m->layers_taken_count == 0 || ring_pops(&m->commands) < m->layers_after) {
        return work;
    }
    for (uint32_t i = 0; i < m->layers_taken_count; i++) {
        struct hlg_event event = {
            .kind = HLG_EVENT_LAYER,
            .layer = {.word = m->layers_taken[i].word, .value = m->layers_taken[i].value}};
        int error = hlg_pump_event(m->pump, &event);
        HLG_ASSERT(error == 0); /* counter_watch() checked the word's number */
        m->stats.layers_read++;
    }
    (void)hlg_pump_write(m->pump); /* before anything else: it is what the layers are for */
    const hlg_time now = metrics_clock();
    for (uint32_t i = 0; i < m->layers_taken_count; i++) {
        const hlg_time read = m->layers_taken[i].read;
        hlg_histogram_add(&m->metrics.read_ns, HLG_HISTOGRAM_TIME, now > read ? now - read : 0);
    }
    work += (int)m->layers_taken_count;
    m->layers_taken_count = 0;
    return work;
}

/* ---- Sleeping ---- */

static void gather_stats(struct hlg_messenger *m)
{
    const struct hlg_pump_stats *pump = &m->metrics.pump;

    m->stats.requests_open = hlg_pump_open(m->pump);
    m->stats.pieces_posted = pump->pieces_posted;
    m->stats.pieces_done = pump->pieces_done;
    m->stats.pieces_failed = pump->pieces_failed;
    m->stats.bytes_posted = pump->bytes_posted;
    m->stats.writes_refused = pump->writes_refused;
    m->stats.pieces_counted = pump->pieces_counted;
    m->stats.frames_sent = pump->frames_sent;
    m->stats.frames_received = pump->frames_received;
    m->stats.frames_malformed = pump->frames_malformed;
    m->stats.sessions_ended = pump->sessions_ended;
    lobby_stats(m, &m->stats);
    m->stats.layers_early = pump->layers_early;
    m->stats.layers_late = pump->layers_late;
}

static uint64_t depth(const struct ring *ring)
{
    return ring_pushes(ring) - ring_pops(ring);
}

static void show_stats(struct hlg_messenger *m, hlg_time now)
{
    struct metrics *x = &m->metrics;

    hlg_pump_stats(m->pump, &x->pump);
    if (m->config.fabric->copies != NULL) {
        m->config.fabric->copies(m->config.fabric, &x->copies);
    }
    gather_stats(m);
    x->stats = m->stats;
    x->queues[METRICS_QUEUE_COMMANDS] = depth(&m->commands);
    x->queues[METRICS_QUEUE_REPORTS] = depth(&m->reports);
    x->queues[METRICS_QUEUE_LAYERS] = depth(&m->layers);
    x->queues[METRICS_QUEUE_DIALS] = depth(&m->orders);
    x->busy_ns = x->pump.decode.busy_ns;
    if (x->role == HLG_ROLE_PREFILL) {
        x->busy_ns = x->pump.prefill.busy_ns;
        x->transfer_ns = x->pump.prefill.transfer_ns;
    }
    x->shown = metrics_clock();
    m->stats_due = now + STATS_NS;
    (void)pthread_mutex_lock(&m->stats_lock);
    m->metrics_shown = *x;
    (void)pthread_mutex_unlock(&m->stats_lock);
}

static hlg_time sleep_limit(struct hlg_messenger *m, hlg_time now, bool active, hlg_time *backoff)
{
    hlg_time due =
        hlg_min_time(hlg_pump_deadline(m->pump), may_take(m) ? lobby_deadline(m) : HLG_TIME_NEVER);
    due = m->accept_rests ? hlg_min_time(due, m->accept_due) : due;
    hlg_time span = due <= now ? 0 : due - now;

    if (!active) {
        return hlg_min_time(span, IDLE_NS_MAX);
    }
    span = hlg_min_time(span, *backoff);
    *backoff = hlg_min_time(2 * *backoff, m->config.sleep_ns);
    return span;
}

static void sleep_until_work(struct hlg_messenger *m, hlg_time now, bool active, hlg_time *backoff)
{
    uint32_t count = 0;

    bell_arm(&m->core_bell);
    /* Work that the engine's idleness keeps waiting does not keep us awake. */
    if (may_take(m) && (!ring_empty(&m->commands) || !ring_empty(&m->dialled))) {
        return;
    }
    if (!ring_empty(&m->layers) || latch_is_set(&m->stop)) {
        return;
    }
    m->fds[count++] = (struct pollfd){.fd = m->core_bell.fd, .events = POLLIN};
    const bool listens = m->listener != NULL && may_take(m) && !m->accept_rests;
    if (listens) {
        m->fds[count++] = (struct pollfd){.fd = hlg_tcp_listener_fd(m->listener), .events = POLLIN};
    }
    const struct pollfd *guests = m->fds + count;
    uint32_t guest_count = 0;
    if (may_take(m)) {
        guest_count = lobby_wait_fds(m, m->fds + count, m->fds_max - count);
        count += guest_count;
    }
    int more = hlg_pump_wait_fds(m->pump, m->fds + count, m->fds_max - count, active);
    if (more < 0) {
        /* An endpoint has work, or none has a descriptor: short sleeps on the rest. */
        more = hlg_pump_wait_fds(m->pump, m->fds + count, m->fds_max - count, false);
    }
    count += more > 0 ? (uint32_t)more : 0;
    hlg_time span = sleep_limit(m, now, active, backoff);
    struct timespec limit = {.tv_sec = (time_t)(span / HLG_NS_PER_S),
                             .tv_nsec = (long)(span % HLG_NS_PER_S)};
    m->stats.core_sleeps++;
    watchdog_sleep(&m->watch);
    (void)ppoll(m->fds, count, &limit, NULL); /* an error or a signal only makes it look again */
    if (listens && (m->fds[1].revents & POLLIN) != 0) {
        m->accept_due = 0;
    }
    lobby_woken(m, guests, guest_count);
}

/* What was asked for, read back: a container may refuse the memory's node. */
static void tell_placement(const struct hlg_messenger *m)
{
    struct hlg_placement is;
    if (m->placement.cores[0] == '\0' && m->placement.numa < 0) {
        return;
    }
    if (hlg_placement_read(&is) != 0) {
        messenger_log(m, HLG_LOG_WARN, "placement unknown: the kernel does not tell it");
        return;
    }
    messenger_log(m, HLG_LOG_INFO, "placement cores %.128s memory_node %" PRId32, is.cores,
                  is.numa);
    if (is.numa != m->placement.numa && m->placement.numa >= 0) {
        messenger_log(m, HLG_LOG_WARN,
                      "placement memory_node %" PRId32 " refused by the kernel: its memory comes "
                      "from anywhere; give the container CAP_SYS_NICE",
                      m->placement.numa);
    }
}

/* Between two rounds that found nothing: looks at the words for a while, which cost less than a round. */
static void watch_layers(struct hlg_messenger *m)
{
    if (m->layers_taken_count > 0) {
        return; /* they wait for a command that is half pushed */
    }
    for (uint32_t i = 0; i < LOOKS_PER_ROUND && m->layers_taken_count == 0; i++) {
        m->layers_taken_count = layer_poll_look(m, m->layers_taken, LAYERS_MAX);
    }
    m->layers_after = ring_pushes(&m->commands);
}

/* Lets the counter words alone when no layer is awaited: all were stamped, though nobody ended their forward yet, or
 * their requests are over. The end of a forward says so at once. */
static void rest_layers(struct hlg_messenger *m, bool open, hlg_time now)
{
    if (layer_poll_resting(m) || (open && now < m->awaits_due)) {
        return;
    }
    m->awaits_due = now + AWAITS_NS;
    if (!open || !hlg_pump_awaits(m->pump)) {
        layer_poll_rest(m, m->chunks_handled);
    }
}

void *progress_main(void *messenger)
{
    struct hlg_messenger *m = messenger;
    hlg_time busy = hlg_pump_now(m->pump); /* when there was work last */
    hlg_time active_until = 0;
    hlg_time backoff = SLEEP_NS_MIN;

    tell_placement(m);
    while (!latch_is_set(&m->stop)) {
        watchdog_round(&m->watch);
        int work = take_layers_and_commands(m);
        work += take_connections(m, hlg_pump_now(m->pump));
        command_free_released(m);
        work += command_reject_unwanted(m);
        work += hold_step(m, hlg_pump_now(m->pump));
        work += hlg_pump_step(m->pump);
        m->stats.core_loops++;
        hlg_time now = hlg_pump_now(m->pump);
        const bool open = hlg_pump_open(m->pump) > 0;
        active_until = open ? now + LINGER_NS : active_until;
        rest_layers(m, open, now);
        work += command_tell_drained(m);
        bool active = now < active_until || m->held_count > 0;
        if (work > 0) {
            busy = now;
            backoff = hlg_min_time(SLEEP_NS_MIN, m->config.sleep_ns);
        } else if (layer_poll_awaits(m)) {
            watch_layers(m);
        } else if (!active || now - busy >= m->config.spin_ns) {
            show_stats(m, now);
            sleep_until_work(m, now, active, &backoff);
            continue;
        }
        if (m->stats_due <= now) {
            show_stats(m, now);
        }
    }
    watchdog_sleep(&m->watch); /* until the messenger is destroyed */
    return NULL;
}
