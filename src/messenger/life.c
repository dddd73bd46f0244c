/* A messenger's life: create takes memory and port, start the pump and the threads, destroy undoes
 * both in reverse order. */
#define _GNU_SOURCE /* MADV_WIPEONFORK, thread affinity, getrandom */
#include "messenger_internal.h"
#include "signals.h"

#include <errno.h>
#include <halage/refusal.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>

#define LINE_BYTES    512u
#define PAGE_BYTES    4096u
#define PEERS_LIMIT   0xffffu /* half of hlg_peer */
#define WAITING_LIMIT 65536u
/* Reports that one ticket, and one session, may owe at most before the engine does its part. */
#define REPORTS_PER_TICKET 4u
#define REPORTS_PER_PEER   4u

void messenger_log(const struct hlg_messenger *m, enum hlg_log_level level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;

    if (m->config.log == NULL || (uint32_t)level > m->config.log_level) {
        return;
    }
    va_start(arguments, format);
    /* Cut where it does not fit. clang-tidy 14 does not see va_start. */
    (void)vsnprintf(line, sizeof line, format, arguments); /* NOLINT(clang-analyzer-valist.*) */
    va_end(arguments);
    m->config.log(m->config.log_context, level, line);
}

void hlg_messenger_config_default(struct hlg_messenger_config *config)
{
    *config = (struct hlg_messenger_config){.size = sizeof *config,
                                            .connect_ns = 5 * HLG_NS_PER_S,
                                            .cpu = -1,
                                            .numa = -1,
                                            .spin_ns = 50000,
                                            .sleep_ns = HLG_NS_PER_MS,
                                            .counter_ns = 20000,
                                            .waiting_max = 64,
                                            .commands_max = 4096,
                                            .log_level = HLG_LOG_INFO};
    hlg_limits_default(&config->limits);
}

/* ---- Create ---- */

static int refuse(char *error, size_t error_bytes, int code, const char *sentence)
{
    if (error_bytes > 0) {
        (void)snprintf(error, error_bytes, "%s", sentence); /* cut where it does not fit */
    }
    return code;
}

static int check_flush(const struct hlg_messenger_config *config, char *error, size_t error_bytes)
{
    const struct hlg_fabric *fabric = config->fabric;

    if (hlg_flush_name(config->flush) == NULL) {
        return refuse(error, error_bytes, -HLG_EINVAL,
                      "config.flush is no policy of enum hlg_flush_policy");
    }
    if (config->role == HLG_ROLE_DECODE && config->flush == HLG_FLUSH_READ &&
        fabric->flusher == NULL && fabric->sentinel_open == NULL) {
        return refuse(error, error_bytes, -HLG_EUNSUPPORTED,
                      "this fabric cannot read its own memory back, which flush policy read needs: "
                      "take policy cuda, or the staged path");
    }
    return 0;
}

static int check_config(const struct hlg_messenger_config *config, char *error, size_t error_bytes)
{
    const struct hlg_limits *limits = &config->limits;
    struct hlg_refusal why = {0};
    char sentence[HLG_REFUSAL_TEXT_BYTES] = "";

    if (config->size != sizeof *config) {
        return refuse(error, error_bytes, -HLG_EINVAL, "config.size is not that of this library");
    }
    if (config->role != HLG_ROLE_PREFILL && config->role != HLG_ROLE_DECODE) {
        return refuse(error, error_bytes, -HLG_EINVAL, "config.role is neither prefill nor decode");
    }
    if (config->fabric == NULL) {
        return refuse(error, error_bytes, -HLG_EINVAL, "config.fabric is missing");
    }
    if (limits->peers_max == 0 || limits->peers_max >= PEERS_LIMIT || limits->requests_max == 0 ||
        limits->requests_max >= HLG_SLOTS_MAX || config->commands_max == 0 ||
        config->sleep_ns == 0 || config->sleep_ns > HLG_NS_PER_MS || config->connect_ns == 0 ||
        config->waiting_max == 0 || config->waiting_max > WAITING_LIMIT) {
        return refuse(error, error_bytes, -HLG_EINVAL,
                      "peers_max, requests_max, commands_max, sleep_ns, connect_ns or waiting_max "
                      "of the config is out of range");
    }
    if (config->key != NULL && (limits->message_bytes_max < HLG_SEALED_HANDSHAKE_BYTES ||
                                limits->message_bytes_max > HLG_MESSAGE_BYTES_MAX)) {
        return refuse(error, error_bytes, -HLG_EINVAL,
                      "limits.message_bytes_max of the config is out of range for a handshake");
    }
    if ((config->watchdog_ns != 0 &&
         (config->watchdog_ns < WATCHDOG_NS_MIN || config->watchdog_ns > WATCHDOG_NS_MAX)) ||
        config->watchdog_exit < 0 || config->watchdog_exit > 255) {
        return refuse(
            error, error_bytes, -HLG_EINVAL,
            "config.watchdog_ns is neither 0 nor 10 ms to 1 h, or watchdog_exit is no exit "
            "status");
    }
    if (hlg_layout_check(&config->layout, &why) != 0) {
        (void)hlg_refusal_text(&why, sentence, sizeof sentence);
        return refuse(error, error_bytes, -HLG_EPLAN, sentence);
    }
    return check_flush(config, error, error_bytes);
}

/* Pages of the longest lists that one request can bring. */
static uint64_t pages_of_request(const struct hlg_layout *layout)
{
    uint64_t pages = 0;

    for (uint32_t g = 0; g < layout->group_count; g++) {
        pages +=
            hlg_min_u32(layout->groups[g].page_count, hlg_layout_pages(layout, g, HLG_TOKENS_MAX));
    }
    return pages;
}

/* Prompts and page lists of all tickets: address space at first, memory when used. */
static int take_buffers(struct hlg_messenger *m)
{
    uint64_t prompt = m->config.limits.prompt_bytes_max;
    uint64_t pages = pages_of_request(&m->config.layout) * sizeof(uint32_t);
    uint64_t total = 0;

    m->pages_max = hlg_u32(pages / sizeof(uint32_t));
    prompt = (prompt + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    pages = (pages + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (!hlg_mul_u64(prompt + pages, m->entry_count, &total)) {
        return -HLG_ENOMEM;
    }
    m->buffer_bytes = (size_t)(prompt + pages);
    void *buffers = mmap(NULL, (size_t)total, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffers == MAP_FAILED) {
        return -HLG_ENOMEM;
    }
    m->buffers = buffers;
    for (uint32_t i = 0; i < m->entry_count; i++) {
        m->entries[i].prompt = m->buffers + i * m->buffer_bytes;
        m->entries[i].pages = (uint32_t *)(void *)(m->entries[i].prompt + prompt);
    }
    return 0;
}

/* The kernel zeroes this page in a forked child: one load tells, where getpid() is a system call. */
static int take_fork_mark(struct hlg_messenger *m)
{
    uint32_t *alive =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (alive == MAP_FAILED) {
        return -HLG_ENOMEM;
    }
    m->alive = alive;
    *alive = 1;
    return madvise(alive, PAGE_BYTES, MADV_WIPEONFORK) == 0 ? 0 : -HLG_EIO;
}

static int take_tables(struct hlg_messenger *m)
{
    const struct hlg_limits *limits = &m->config.limits;
    uint32_t lanes = hlg_layout_lanes(&m->config.layout);
    uint32_t rails = m->config.fabric->rails;

    m->fds_max = 2 + m->config.waiting_max + DIALS_MAX + limits->peers_max +
                 limits->peers_max * lanes * rails;
    m->peers = calloc(limits->peers_max, sizeof *m->peers);
    m->bindings = calloc(limits->requests_max, sizeof *m->bindings);
    m->unwanted = calloc(limits->requests_max, sizeof *m->unwanted);
    m->held = calloc(m->entry_count, sizeof *m->held);
    m->leaving = calloc(m->entry_count, sizeof *m->leaving);
    m->fds = calloc(m->fds_max, sizeof *m->fds);
    m->entries = calloc(m->entry_count, sizeof *m->entries);
    m->words = calloc(m->word_count > 0 ? m->word_count : 1, sizeof *m->words);
    if (m->peers == NULL || m->bindings == NULL || m->unwanted == NULL || m->held == NULL ||
        m->leaving == NULL || m->fds == NULL || m->entries == NULL || m->words == NULL) {
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < limits->requests_max; i++) {
        m->bindings[i].entry = HLG_NONE;
    }
    return take_buffers(m);
}

static int take_rings(struct hlg_messenger *m)
{
    uint64_t reserve = (uint64_t)REPORTS_PER_TICKET * m->entry_count +
                       (uint64_t)REPORTS_PER_PEER * m->config.limits.peers_max + DIALS_MAX + 3;

    m->report_reserve = reserve;
    if (ring_init(&m->free_entries, m->entry_count, sizeof(uint32_t)) != 0 ||
        ring_init(&m->commands, m->config.commands_max, sizeof(struct command)) != 0 ||
        ring_init(&m->reports, hlg_u32(2 * reserve), sizeof(struct hlg_report)) != 0 ||
        ring_init(&m->orders, DIALS_MAX, sizeof(struct dial_order)) != 0 ||
        ring_init(&m->dialled, DIALS_MAX, sizeof(struct dial_result)) != 0 ||
        ring_init(&m->layers, LAYERS_MAX, sizeof(struct layer_value)) != 0) {
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < m->entry_count; i++) {
        bool pushed = ring_push(&m->free_entries, &i);
        HLG_ASSERT(pushed);
    }
    if (bell_init(&m->core_bell) != 0 || bell_init(&m->report_bell) != 0 ||
        bell_init(&m->dial_bell) != 0 || bell_init(&m->layer_bell) != 0 ||
        bell_init(&m->watch.bell) != 0) {
        return -HLG_EIO;
    }
    return 0;
}

uint32_t messenger_frame_bytes(const struct hlg_messenger *m)
{
    return m->config.limits.message_bytes_max +
           (m->config.key != NULL ? HLG_SEALED_OVERHEAD_BYTES : 0);
}

static int take_port(struct hlg_messenger *m, char *error, size_t error_bytes)
{
    int code = hlg_tcp_listen(m->config.listen, messenger_frame_bytes(m), &m->listener, error,
                              error_bytes);

    if (code == 0 && lobby_needs_loopback(m) &&
        !hlg_tcp_is_loopback(hlg_tcp_listener_name(m->listener))) {
        if (error_bytes > 0) {
            (void)snprintf(error, error_bytes, "%.64s is not loopback: " NO_KEY_ADVICE,
                           m->config.listen);
        }
        return -HLG_EINVAL; /* whoever dialled meanwhile was not heard */
    }
    return code;
}

static int take_all(struct hlg_messenger *m, char *error, size_t error_bytes)
{
    int code = take_fork_mark(m);

    if (code == 0) {
        code = take_tables(m);
    }
    if (code == 0) {
        code = take_rings(m);
    }
    if (code == 0) {
        code = lobby_init(m);
    }
    if (code != 0) {
        return refuse(error, error_bytes, code,
                      code == -HLG_ENOMEM ? "out of memory" : "the system gives no descriptor");
    }
    if (getrandom(&m->random, sizeof m->random, 0) != (ssize_t)sizeof m->random) {
        return refuse(error, error_bytes, -HLG_EIO, "the system gives no random number");
    }
    m->random |= 1;
    if (m->config.record != NULL) {
        code = hlg_trace_create(m->config.record, &m->trace, error, error_bytes);
        if (code != 0) {
            return code;
        }
    }
    return m->config.listen == NULL ? 0 : take_port(m, error, error_bytes);
}

int hlg_messenger_create(const struct hlg_messenger_config *config,
                         struct hlg_messenger **messenger, char *error, size_t error_bytes)
{
    int code = check_config(config, error, error_bytes);

    if (code != 0) {
        return code;
    }
    struct hlg_messenger *m = aligned_alloc(_Alignof(struct hlg_messenger), sizeof *m);
    if (m == NULL) {
        return refuse(error, error_bytes, -HLG_ENOMEM, "out of memory");
    }
    memset(m, 0, sizeof *m);
    m->config = *config;
    if (config->key != NULL) {
        memcpy(m->key, config->key, sizeof m->key);
        m->config.key = m->key;
    }
    m->core_bell.fd = -1;
    m->report_bell.fd = -1;
    m->dial_bell.fd = -1;
    m->layer_bell.fd = -1;
    m->watch.bell.fd = -1;
    m->submitting = HLG_NONE;
    m->metrics.role = config->role;
    latch_init(&m->stop);
    latch_init(&m->watch.stop);
    (void)pthread_mutex_init(&m->stats_lock, NULL);
    /* A prefiller's tickets outlive the machine's requests until they are released. */
    bool prefill = config->role == HLG_ROLE_PREFILL;
    m->entry_count = config->limits.requests_max * (prefill ? 2 : 1);
    m->word_count = prefill ? hlg_prefill_words(&config->layout) : 0;
    m->placement.numa = config->numa;
    (void)snprintf(m->placement.cores, sizeof m->placement.cores, "%s",
                   config->cores != NULL ? config->cores : "");
    struct hlg_placement_before before;
    code = hlg_placement_bind(&m->placement, &before, m->error, sizeof m->error);
    if (code == 0) {
        code = take_all(m, error, error_bytes);
        hlg_placement_restore(&before);
    } else {
        (void)refuse(error, error_bytes, code, m->error);
    }
    if (code != 0) {
        (void)hlg_messenger_destroy(m);
        return code;
    }
    m->config.listen = NULL; /* the caller's */
    m->config.cores = NULL;
    m->config.record = NULL;
    *messenger = m;
    return 0;
}

/* ---- Start ---- */

int messenger_fail(struct hlg_messenger *m, int code, const char *sentence)
{
    (void)snprintf(m->error, sizeof m->error, "%s", sentence);
    return code;
}

int messenger_before_start(struct hlg_messenger *m)
{
    if (*m->alive == 0) {
        return -HLG_EFORK;
    }
    return m->started ? messenger_fail(m, -HLG_ESTATE, "the messenger is started already") : 0;
}

static int make_pump(struct hlg_messenger *m)
{
    const struct hlg_messenger_config *config = &m->config;
    uint64_t drawn[2] = {0};
    struct hlg_pump_config pump = {.role = (enum hlg_role)config->role,
                                   .fabric = watchdog_fabric(m),
                                   .regions = m->regions,
                                   .region_count = m->region_count,
                                   .places = m->places,
                                   .place_count = m->place_count,
                                   .notice = notice_take,
                                   .note = note_take,
                                   .context = m,
                                   .trace = m->trace};

    const int code = messenger_flusher(m, &pump.flusher);
    if (code != 0) {
        return code;
    }
    if (pump.flusher != NULL) {
        messenger_log(m, HLG_LOG_INFO, "writes of NICs to GPUs are flushed, policy %s",
                      hlg_flush_name(config->flush));
    }
    if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
        return messenger_fail(m, -HLG_EIO, "the system gives no random number");
    }
    const uint64_t node = config->node != 0 ? config->node : drawn[0] | 1;
    m->node = node;
    m->incarnation = drawn[1];
    if (config->role == HLG_ROLE_PREFILL) {
        pump.prefill = (struct hlg_prefill_config){.limits = config->limits,
                                                   .layout = config->layout,
                                                   .rails = config->fabric->rails,
                                                   .node = node,
                                                   .incarnation = drawn[1]};
        memcpy(pump.prefill.fingerprint, config->fingerprint, HLG_FINGERPRINT_BYTES);
    } else {
        pump.decode = (struct hlg_decode_config){.limits = config->limits,
                                                 .layout = config->layout,
                                                 .rails = config->fabric->rails,
                                                 .node = node,
                                                 .incarnation = drawn[1]};
        memcpy(pump.decode.fingerprint, config->fingerprint, HLG_FINGERPRINT_BYTES);
    }
    return hlg_pump_create(&pump, &m->pump, m->error, sizeof m->error);
}

static int pin(struct hlg_messenger *m)
{
    cpu_set_t cpus;

    if (m->config.cpu < 0) {
        return 0;
    }
    CPU_ZERO(&cpus);
    if (m->config.cpu < CPU_SETSIZE) {
        CPU_SET((size_t)m->config.cpu, &cpus);
    }
    return pthread_setaffinity_np(m->threads[0], sizeof cpus, &cpus) == 0
               ? 0
               : messenger_fail(m, -HLG_EINVAL, "the core thread cannot be pinned to config.cpu");
}

static int start_threads(struct hlg_messenger *m)
{
    /* The layer poller comes last: there may be none. */
    static void *(*const mains[THREADS_MAX])(void *) = {progress_main, dial_main, layer_poll_main};
    sigset_t before;

    signals_leave(&before);
    int error = 0;
    const bool polls = m->word_count > 0 && !m->config.counter_core;
    for (uint32_t i = 0; error == 0 && i < (polls ? THREADS_MAX : THREADS_MAX - 1); i++) {
        error = pthread_create(&m->threads[i], NULL, mains[i], m);
        m->thread_count += error == 0;
    }
    error = error == 0 ? watchdog_start(m) : error;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? pin(m) : messenger_fail(m, -HLG_ENOMEM, "a thread could not be started");
}

int hlg_messenger_start(struct hlg_messenger *m)
{
    int error = messenger_before_start(m);

    if (error != 0) {
        return error;
    }
    if (m->pump != NULL) {
        return messenger_fail(m, -HLG_ESTATE, "an earlier start failed");
    }
    struct hlg_transport_caps caps;
    m->config.fabric->query(m->config.fabric, &caps);
    if (caps.reachable && lobby_needs_loopback(m)) {
        return messenger_fail(m, -HLG_EINVAL,
                              "the fabric's endpoints are not on loopback: " NO_KEY_ADVICE);
    }
    /* Threads begin where the one that starts them is, and memory lies where it is touched first. */
    struct hlg_placement_before before;
    error = hlg_placement_bind(&m->placement, &before, m->error, sizeof m->error);
    if (error != 0) {
        return error;
    }
    error = make_pump(m);
    if (error == 0) {
        m->metrics.shown = metrics_clock();
        m->metrics_shown = m->metrics;
        error = start_threads(m);
    }
    hlg_placement_restore(&before);
    if (error != 0) {
        return error;
    }
    m->started = true;
    const int port = hlg_messenger_port(m);
    messenger_log(m, HLG_LOG_INFO, "started role %s provider %.16s lanes %u rails %u port %d",
                  m->config.role == HLG_ROLE_PREFILL ? "prefill" : "decode", caps.provider,
                  hlg_layout_lanes(&m->config.layout), m->config.fabric->rails,
                  port > 0 ? port : 0);
    return 0;
}

/* ---- End ---- */

static void stop_threads(struct hlg_messenger *m)
{
    latch_set(&m->stop);
    if (m->thread_count > 0) {
        bell_ring(&m->core_bell);
        bell_ring(&m->dial_bell);
        bell_ring(&m->layer_bell);
    }
    for (uint32_t i = 0; i < m->thread_count; i++) {
        int error = pthread_join(m->threads[i], NULL);
        HLG_ASSERT(error == 0);
    }
}

static void give_rings(struct hlg_messenger *m)
{
    struct dial_result result;

    while (m->dialled.turns != NULL && ring_pop(&m->dialled, &result)) {
        if (result.channel != NULL) {
            result.channel->ops->close(result.channel);
        }
    }
    ring_fini(&m->free_entries);
    ring_fini(&m->commands);
    ring_fini(&m->reports);
    ring_fini(&m->orders);
    ring_fini(&m->dialled);
    ring_fini(&m->layers);
    bell_fini(&m->core_bell);
    bell_fini(&m->report_bell);
    bell_fini(&m->dial_bell);
    bell_fini(&m->layer_bell);
    bell_fini(&m->watch.bell);
}

int hlg_messenger_destroy(struct hlg_messenger *m)
{
    if (m == NULL || (m->alive != NULL && *m->alive == 0)) {
        return 0; /* in a forked child all of it is the parent's */
    }
    stop_threads(m);
    lobby_fini(m);
    watchdog_round(&m->watch); /* what closes endpoints may be stuck as well */
    hlg_pump_destroy(m->pump);
    sentinels_end(m);
    watchdog_stop(m);
    const int recorded = hlg_trace_destroy(m->trace);
    if (recorded != 0) {
        messenger_log(
            m, HLG_LOG_ERROR,
            "recording is cut short: the file could not be written: %s; free some room or "
            "record elsewhere",
            strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
    }
    if (m->listener != NULL) {
        hlg_tcp_listener_close(m->listener);
    }
    give_rings(m);
    for (uint32_t i = 0; i < m->import_count; i++) {
        hlg_memory_release(m->imports[i].memory);
    }
    if (m->buffers != NULL) {
        (void)munmap(m->buffers, m->buffer_bytes * m->entry_count);
    }
    if (m->alive != NULL) {
        (void)munmap((void *)(uintptr_t)m->alive, PAGE_BYTES);
    }
    (void)pthread_mutex_destroy(&m->stats_lock);
    free(m->imports);
    free(m->regions);
    free(m->places);
    free(m->peers);
    free(m->bindings);
    free(m->unwanted);
    free(m->held);
    free(m->leaving);
    free(m->fds);
    free(m->entries);
    free(m->words);
    explicit_bzero(m->key, sizeof m->key);
    free(m);
    return recorded;
}

const char *hlg_messenger_error(const struct hlg_messenger *m)
{
    return m->error;
}

int hlg_messenger_port(const struct hlg_messenger *m)
{
    if (*m->alive == 0) {
        return -HLG_EFORK;
    }
    if (m->listener == NULL) {
        return -HLG_ESTATE;
    }
    /* "127.0.0.1:40123", "[::1]:40123" */
    const char *colon = strrchr(hlg_tcp_listener_name(m->listener), ':');
    return colon == NULL ? -HLG_ESTATE : (int)strtol(colon + 1, NULL, 10);
}
