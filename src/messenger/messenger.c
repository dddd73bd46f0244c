/* Calls of the engine's threads. They check what can be checked here, put what is long into the
 * ticket's entry, push a command and ring. The core thread does the rest. */
#include "messenger_internal.h"

#include <stdio.h>

static bool forked(const struct hlg_messenger *m)
{
    return *m->alive == 0;
}

/* What every call needs first. */
static int usable(const struct hlg_messenger *m)
{
    if (forked(m)) {
        return -HLG_EFORK;
    }
    return m->started ? 0 : -HLG_ESTATE;
}

/* ---- Tickets: index in the low half, uses of the entry in the high half, which is never 0 ---- */

struct entry *entry_find(struct hlg_messenger *m, hlg_ticket ticket)
{
    uint32_t index = (uint32_t)(ticket & UINT32_MAX);

    if (ticket == 0 || index >= m->entry_count) {
        return NULL;
    }
    /* acquire: pairs with entry_publish(), so that the entry's fields are seen */
    if (atomic_load_explicit(&m->entries[index].ticket, memory_order_acquire) != ticket) {
        return NULL;
    }
    return &m->entries[index];
}

struct entry *entry_take(struct hlg_messenger *m)
{
    uint32_t index = 0;

    return ring_pop(&m->free_entries, &index) ? &m->entries[index] : NULL;
}

hlg_ticket entry_publish(struct hlg_messenger *m, struct entry *entry)
{
    entry->uses = entry->uses == UINT32_MAX ? 1 : entry->uses + 1;
    hlg_ticket ticket = (uint64_t)entry->uses << 32 | entry_index(m, entry);
    /* relaxed: the store of the ticket below publishes both */
    atomic_store_explicit(&entry->phase, ENTRY_OPEN, memory_order_relaxed);
    atomic_store_explicit(&entry->admit_state, ADMIT_IDLE, memory_order_relaxed);
    /* release: pairs with entry_find() */
    atomic_store_explicit(&entry->ticket, ticket, memory_order_release);
    return ticket;
}

void entry_finish(struct entry *entry)
{
    /* release: whoever finds it finished sees all that the core thread did for it */
    atomic_store_explicit(&entry->phase, ENTRY_FINISHED, memory_order_release);
}

hlg_ticket entry_ticket(const struct entry *entry)
{
    /* relaxed: whoever asks found it by its ticket, or holds its only mention */
    return atomic_load_explicit(&entry->ticket, memory_order_relaxed);
}

bool entry_finished(const struct entry *entry)
{
    return atomic_load_explicit(&entry->phase, memory_order_acquire) >= ENTRY_FINISHED;
}

void entry_free(struct hlg_messenger *m, struct entry *entry)
{
    uint32_t index = entry_index(m, entry);

    /* relaxed: who still holds the ticket is in breach; who takes the entry anew syncs by the ring */
    atomic_store_explicit(&entry->ticket, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->phase, ENTRY_FREE, memory_order_relaxed);
    bool pushed = ring_push(&m->free_entries, &index);
    HLG_ASSERT(pushed); /* as many cells as entries */
}

bool entry_leave(struct entry *entry)
{
    uint32_t idle = ADMIT_IDLE;

    /* acquire: pairs with entry_admitted(); whoever called admit has let go */
    return atomic_compare_exchange_strong_explicit(&entry->admit_state, &idle, ADMIT_OVER,
                                                   memory_order_acquire, memory_order_relaxed);
}

void entry_admitted(struct entry *entry)
{
    /* release: `admit` and the pages are read, or written no more; pairs with admit_begin() and
       entry_leave() */
    atomic_store_explicit(&entry->admit_state, ADMIT_IDLE, memory_order_release);
}

/* Whether the caller has `admit` and the pages of the ticket's entry, until entry_admitted(). */
static int admit_begin(struct entry *entry, hlg_ticket ticket)
{
    uint32_t state = ADMIT_IDLE;

    /* acquire: pairs with entry_admitted(); the core thread has let go of `admit` */
    if (!atomic_compare_exchange_strong_explicit(&entry->admit_state, &state, ADMIT_UNDER_WAY,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return state == ADMIT_OVER ? -HLG_ESTALE : -HLG_ESTATE;
    }
    /* Another thread may have released it since it was found: now it cannot change. */
    if (entry_ticket(entry) != ticket) {
        entry_admitted(entry);
        return -HLG_ESTALE;
    }
    return 0;
}

/* ---- Commands ---- */

static int push_command(struct hlg_messenger *m, const struct command *command)
{
    if (!ring_push(&m->commands, command)) {
        return -HLG_ELIMIT;
    }
    bell_ring(&m->core_bell);
    return 0;
}

/* A command that names a request and nothing that needs checking here. */
static int push_for(struct hlg_messenger *m, hlg_ticket ticket, const struct command *command)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    return entry_find(m, ticket) == NULL ? -HLG_ESTALE : push_command(m, command);
}

int hlg_messenger_connect(struct hlg_messenger *m, const char *address)
{
    struct dial_order order = {0};
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    size_t bytes = strlen(address);
    if (bytes == 0 || bytes >= sizeof order.address) {
        return -HLG_EINVAL;
    }
    memcpy(order.address, address, bytes);
    /* relaxed: only numbers, unique by themselves */
    order.connection =
        (atomic_fetch_add_explicit(&m->connections, 1, memory_order_relaxed) & 0x3fffffffu) + 1;
    if (!ring_push(&m->orders, &order)) {
        return -HLG_ELIMIT;
    }
    bell_ring(&m->dial_bell);
    return (int)order.connection;
}

int hlg_messenger_disconnect(struct hlg_messenger *m, hlg_peer peer)
{
    int error = usable(m);

    return error != 0
               ? error
               : push_command(m, &(struct command){.kind = HLG_COMMAND_DISCONNECT, .peer = peer});
}

/* Copies lists into `pages` [capacity]; pointers in `groups` then lead there. */
static int copy_pages(const struct hlg_messenger *m, struct hlg_page_list *groups,
                      const struct hlg_page_list *from, uint32_t *pages)
{
    uint64_t count = 0;

    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        if ((from[g].count > 0 && from[g].pages == NULL) ||
            (g >= m->config.layout.group_count && from[g].count > 0)) {
            return -HLG_EINVAL;
        }
        count += from[g].count;
    }
    if (count > m->pages_max) {
        return -HLG_EINVAL;
    }
    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        groups[g] =
            (struct hlg_page_list){.count = from[g].count, .first = from[g].first, .pages = pages};
        if (from[g].count > 0) {
            memcpy(pages, from[g].pages, from[g].count * sizeof *pages);
        }
        pages += from[g].count;
    }
    return 0;
}

static int fill_submit(const struct hlg_messenger *m, struct entry *entry,
                       const struct hlg_submit *submit)
{
    entry->submit = *submit;
    entry->submit.ttl_ns = submit->ttl_ns == 0 ? HLG_TTL_DEFAULT_NS : submit->ttl_ns;
    int error = copy_pages(m, entry->submit.groups, submit->groups, entry->pages);
    if (error != 0) {
        return error;
    }
    if (submit->id_bytes > 0) {
        memcpy(entry->id, submit->id, submit->id_bytes);
    }
    if (submit->prompt_bytes > 0) {
        memcpy(entry->prompt, submit->prompt, submit->prompt_bytes);
    }
    entry->submit.id = entry->id;
    entry->submit.prompt = entry->prompt;
    return 0;
}

int hlg_messenger_submit(struct hlg_messenger *m, const struct hlg_submit *submit,
                         hlg_ticket *ticket)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    if (submit->size != sizeof *submit || m->config.role != HLG_ROLE_DECODE ||
        submit->source_count > HLG_SOURCES_MAX || submit->id_bytes > HLG_REQUEST_ID_BYTES_MAX ||
        submit->prompt_bytes > m->config.limits.prompt_bytes_max || submit->tokens == 0 ||
        submit->ttl_ns == HLG_TIME_NEVER || (submit->id_bytes > 0 && submit->id == NULL) ||
        (submit->prompt_bytes > 0 && submit->prompt == NULL)) {
        return -HLG_EINVAL;
    }
    struct entry *entry = entry_take(m);
    if (entry == NULL) {
        return -HLG_ELIMIT;
    }
    error = fill_submit(m, entry, submit);
    if (error != 0) {
        entry_free(m, entry);
        return error;
    }
    struct command command = {.kind = HLG_COMMAND_SUBMIT, .ticket = entry_publish(m, entry)};
    /* Written before the push: the reports may be out before this returns. */
    *ticket = command.ticket;
    error = push_command(m, &command);
    if (error != 0) {
        *ticket = 0;
        entry_free(m, entry);
    }
    return error;
}

int hlg_messenger_cancel(struct hlg_messenger *m, hlg_ticket ticket)
{
    return push_for(m, ticket, &(struct command){.kind = HLG_COMMAND_CANCEL, .ticket = ticket});
}

int hlg_messenger_release(struct hlg_messenger *m, hlg_ticket ticket)
{
    uint32_t phase = ENTRY_FINISHED;
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    struct entry *entry = entry_find(m, ticket);
    if (entry == NULL) {
        return -HLG_ESTALE;
    }
    /* acquire: pairs with entry_finish(). Of two that release at once, one is told so. */
    if (!atomic_compare_exchange_strong_explicit(&entry->phase, &phase, ENTRY_RELEASED,
                                                 memory_order_acquire, memory_order_acquire)) {
        return phase == ENTRY_OPEN ? -HLG_ESTATE : -HLG_ESTALE;
    }
    error = push_command(m, &(struct command){.kind = HLG_COMMAND_RELEASE, .ticket = ticket});
    if (error != 0) {
        entry_finish(entry);
    }
    return error;
}

int hlg_messenger_request(struct hlg_messenger *m, hlg_ticket ticket, struct hlg_request *request)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    if (request->size != sizeof *request || m->config.role != HLG_ROLE_PREFILL) {
        return -HLG_EINVAL;
    }
    const struct entry *entry = entry_find(m, ticket);
    if (entry == NULL) {
        return -HLG_ESTALE;
    }
    *request = entry->view;
    return 0;
}

int hlg_messenger_admit(struct hlg_messenger *m, hlg_ticket ticket, const struct hlg_admit *admit)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    if (admit->size != sizeof *admit || m->config.role != HLG_ROLE_PREFILL) {
        return -HLG_EINVAL;
    }
    struct entry *entry = entry_find(m, ticket);
    if (entry == NULL) {
        return -HLG_ESTALE;
    }
    error = admit_begin(entry, ticket);
    if (error != 0) {
        return error;
    }
    entry->admit = *admit;
    error = copy_pages(m, entry->admit.groups, admit->groups, entry->pages);
    if (error == 0) {
        error = push_command(m, &(struct command){.kind = HLG_COMMAND_ADMIT, .ticket = ticket});
    }
    if (error != 0) {
        entry_admitted(entry);
    }
    return error;
}

int hlg_messenger_reject(struct hlg_messenger *m, hlg_ticket ticket, hlg_time retry_after_ns)
{
    return push_for(m, ticket,
                    &(struct command){.kind = HLG_COMMAND_REJECT,
                                      .ticket = ticket,
                                      .retry_after_ns = retry_after_ns});
}

int hlg_messenger_chunk(struct hlg_messenger *m, hlg_ticket ticket, uint32_t forward,
                        uint32_t token_begin, uint32_t token_count)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    /* The counter that keeps the poller awake counts these, so that they must be pushed or undone. */
    layer_poll_announce(m);
    error = push_for(m, ticket,
                     &(struct command){.kind = HLG_COMMAND_CHUNK,
                                       .ticket = ticket,
                                       .forward = forward,
                                       .token_begin = token_begin,
                                       .token_count = token_count});
    if (error != 0) {
        layer_poll_withdraw(m);
    }
    return error;
}

int hlg_messenger_forward_end(struct hlg_messenger *m, uint32_t forward)
{
    int error = usable(m);

    return error != 0 ? error
                      : push_command(m, &(struct command){.kind = HLG_COMMAND_FORWARD_END,
                                                          .forward = forward});
}

int hlg_messenger_forward_abort(struct hlg_messenger *m, uint32_t forward)
{
    int error = usable(m);

    return error != 0 ? error
                      : push_command(m, &(struct command){.kind = HLG_COMMAND_FORWARD_ABORT,
                                                          .forward = forward});
}

int hlg_messenger_drain(struct hlg_messenger *m)
{
    int error = usable(m);

    return error != 0 ? error : push_command(m, &(struct command){.kind = HLG_COMMAND_DRAIN});
}

/* ---- Reports ---- */

static uint32_t pop_reports(struct hlg_messenger *m, struct hlg_report *reports, uint32_t capacity)
{
    uint32_t count = 0;

    while (count < capacity && ring_pop(&m->reports, &reports[count])) {
        count++;
    }
    return count;
}

int hlg_messenger_poll(struct hlg_messenger *m, struct hlg_report *reports, size_t report_bytes,
                       uint32_t capacity)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    if (report_bytes != sizeof *reports || capacity > INT32_MAX) {
        return -HLG_EINVAL;
    }
    if (!bell_rung(&m->report_bell)) {
        return 0;
    }
    uint32_t count = pop_reports(m, reports, capacity);
    if (count > 0 && !ring_empty(&m->commands)) {
        bell_ring(&m->core_bell); /* they may have waited for room among the reports */
    }
    if (count == capacity) {
        return (int)count; /* there may be more: the descriptor stays readable */
    }
    bell_arm(&m->report_bell);
    uint32_t late = pop_reports(m, reports + count, capacity - count);
    if (late > 0) {
        bell_ring(&m->report_bell); /* perhaps for more than these */
    }
    return (int)(count + late);
}

int hlg_messenger_fd(const struct hlg_messenger *m)
{
    return forked(m) ? -HLG_EFORK : m->report_bell.fd;
}

int hlg_messenger_stats(struct hlg_messenger *m, struct hlg_messenger_stats *stats)
{
    int error = usable(m);

    if (error != 0) {
        return error;
    }
    if (stats->size != sizeof *stats) {
        return -HLG_EINVAL;
    }
    (void)pthread_mutex_lock(&m->stats_lock);
    *stats = m->metrics_shown.stats;
    (void)pthread_mutex_unlock(&m->stats_lock);
    stats->size = sizeof *stats;
    return 0;
}

/* A copy of what the core thread showed last. */
static int shown(struct hlg_messenger *m, struct metrics *copy)
{
    int error = usable(m);

    if (error == 0) {
        (void)pthread_mutex_lock(&m->stats_lock);
        *copy = m->metrics_shown;
        (void)pthread_mutex_unlock(&m->stats_lock);
    }
    return error;
}

int hlg_messenger_metrics(struct hlg_messenger *m, char *text, size_t bytes)
{
    struct metrics copy;
    int error = shown(m, &copy);

    return error != 0 ? error : metrics_text(&copy, metrics_clock(), text, bytes);
}

int hlg_messenger_health(struct hlg_messenger *m)
{
    struct metrics copy;
    int error = shown(m, &copy);

    return error != 0 ? error : metrics_health(&copy, metrics_clock());
}
