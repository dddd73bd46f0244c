/* On the core thread: what the machine tells the engine becomes reports and log lines. */
#include "../core/note.h"
#include "messenger_internal.h"

#include <halage/log.h>
#include <halage/refusal.h>
#include <inttypes.h>
#include <stdio.h>

void report_push(struct hlg_messenger *m, const struct hlg_report *report)
{
    bool pushed = ring_push(&m->reports, report);

    /* The core thread takes nothing on that could bring more reports than `report_reserve`. */
    HLG_ASSERT(pushed);
    bell_ring(&m->report_bell);
}

void report_text(struct hlg_report *report, const char *text)
{
    (void)snprintf(report->text, sizeof report->text, "%s", text); /* cut where it does not fit */
}

hlg_peer peer_name_of(const struct hlg_messenger *m, uint32_t index)
{
    return index >= m->config.limits.peers_max ? HLG_NONE : m->peers[index].uses << 16 | index;
}

uint32_t peer_index_of(const struct hlg_messenger *m, hlg_peer peer)
{
    uint32_t index = peer & 0xffffu;

    return index < m->config.limits.peers_max && m->peers[index].up &&
                   peer_name_of(m, index) == peer
               ? index
               : HLG_NONE;
}

/* ---- Handles and tickets ---- */

static struct binding *binding_of(struct hlg_messenger *m, hlg_handle handle)
{
    uint32_t index = (uint32_t)(handle & UINT32_MAX);

    HLG_ASSERT(index < m->config.limits.requests_max);
    return &m->bindings[index];
}

void binding_make(struct hlg_messenger *m, hlg_handle handle, struct entry *entry)
{
    struct binding *binding = binding_of(m, handle);

    HLG_ASSERT(handle != 0);
    binding->handle = handle;
    binding->entry = entry_index(m, entry);
    entry->handle = handle;
    entry->bound = true;
}

void binding_end(struct hlg_messenger *m, struct entry *entry)
{
    if (entry->bound) {
        binding_of(m, entry->handle)->entry = HLG_NONE;
        entry->bound = false;
    }
}

static struct entry *bound_entry(struct hlg_messenger *m, hlg_handle handle)
{
    struct binding *binding = binding_of(m, handle);

    if (binding->entry != HLG_NONE && binding->handle == handle) {
        return &m->entries[binding->entry];
    }
    /* A notice of the request that is being submitted: its handle is not known yet. */
    if (m->submitting != HLG_NONE) {
        struct entry *entry = &m->entries[m->submitting];
        if (!entry->bound) {
            binding_make(m, handle, entry);
            return entry;
        }
    }
    return NULL;
}

/* ---- Peers ---- */

static void log_peer(const struct hlg_messenger *m, const struct hlg_report *report,
                     const char *what, enum hlg_log_level level)
{
    messenger_log(m, level, "%s peer %" PRIu32 " node %016" PRIx64 " %s", what, report->peer,
                  report->node, report->text);
}

static void take_peer_notice(struct hlg_messenger *m, const struct hlg_notice *notice,
                             struct hlg_report *report)
{
    struct peer_slot *peer = &m->peers[notice->peer];
    char sentence[HLG_REFUSAL_TEXT_BYTES] = "";

    report->connection = peer->connection;
    report_text(report, peer->name);
    switch ((enum hlg_notice_kind)notice->kind) {
    case HLG_NOTICE_PEER_UP:
        peer->up = true;
        m->stats.peers_up++;
        hlg_histogram_add(&m->metrics.handshake_ns, HLG_HISTOGRAM_TIME,
                          notice->noticed - peer->connected);
        log_peer(m, report, "peer_up", HLG_LOG_INFO);
        break;
    case HLG_NOTICE_PEER_DRAINING:
        log_peer(m, report, "peer_draining", HLG_LOG_INFO);
        break;
    case HLG_NOTICE_PEER_REFUSED:
        (void)hlg_refusal_text(&notice->refusal, sentence, sizeof sentence);
        (void)snprintf(report->text, sizeof report->text, "%s: %s", peer->name, sentence);
        report->error = -HLG_EPLAN;
        log_peer(m, report, "peer_refused", HLG_LOG_WARN);
        break;
    case HLG_NOTICE_PEER_DOWN:
        if (peer->up) {
            HLG_ASSERT(m->stats.peers_up > 0);
            m->stats.peers_up--;
        } else {
            /* To the engine a session that never was up did not go down. */
            report->kind = HLG_NOTICE_PEER_REFUSED;
            report->error = -HLG_EPEER;
            (void)snprintf(report->text, sizeof report->text,
                           "%s: the connection ended before both sides had greeted", peer->name);
        }
        peer->up = false;
        log_peer(m, report, "peer_down", HLG_LOG_WARN);
        break;
    case HLG_NOTICE_REQUESTED:
    case HLG_NOTICE_STOPPING:
    case HLG_NOTICE_SENT:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_ACCEPTED:
    case HLG_NOTICE_READY:
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        hlg_unreachable();
    }
    report_push(m, report);
}

/* ---- Requests ---- */

/* Copies what REQUESTED brought; its message dies with the next event. */
static void fill_view(struct hlg_messenger *m, struct entry *entry, const struct hlg_notice *notice)
{
    const struct hlg_request_message *message = notice->message;

    HLG_ASSERT(message->prompt_bytes <= m->config.limits.prompt_bytes_max);
    HLG_ASSERT(message->group_count <= HLG_GROUPS_MAX);
    if (message->prompt_bytes > 0) {
        memcpy(entry->prompt, message->prompt, message->prompt_bytes);
    }
    memcpy(entry->id, notice->id, sizeof entry->id);
    entry->view = (struct hlg_request){.size = sizeof entry->view,
                                       .peer = peer_name_of(m, notice->peer),
                                       .tokens = message->tokens,
                                       .source = message->source,
                                       .source_count = message->source_count,
                                       .target_pool = message->pool,
                                       .offset = message->offset,
                                       .id_bytes = notice->id_bytes,
                                       .prompt_bytes = message->prompt_bytes,
                                       .ttl_ns = message->ttl_ns,
                                       .id = entry->id,
                                       .prompt = entry->prompt,
                                       .group_count = message->group_count};
    for (uint32_t g = 0; g < message->group_count; g++) {
        entry->view.groups[g] = (struct hlg_page_list){.count = message->groups[g].count,
                                                       .first = message->groups[g].first};
    }
}

/* One that found no entry ended before it was rejected; the machine has its place for others. */
static void forget_unwanted(struct hlg_messenger *m, hlg_handle request)
{
    for (uint32_t i = 0; i < m->unwanted_count; i++) {
        if (m->unwanted[i] == request) {
            m->unwanted[i] = m->unwanted[--m->unwanted_count];
            return;
        }
    }
}

static struct entry *take_requested(struct hlg_messenger *m, const struct hlg_notice *notice)
{
    struct entry *entry = entry_take(m);

    if (entry == NULL) {
        HLG_ASSERT(m->unwanted_count < m->config.limits.requests_max); /* all are open */
        m->unwanted[m->unwanted_count++] = notice->request;
        return NULL;
    }
    fill_view(m, entry, notice);
    binding_make(m, notice->request, entry);
    entry->begun = notice->noticed;
    (void)entry_publish(m, entry);
    m->stats.requests_submitted++;
    return entry;
}

/* Log and count; returns whether it is the ticket's last report. */
static bool count_request(struct hlg_messenger *m, const struct hlg_notice *notice)
{
    switch ((enum hlg_notice_kind)notice->kind) {
    case HLG_NOTICE_READY:
    case HLG_NOTICE_SENT:
        m->stats.requests_ready++;
        m->stats.bytes_ready += notice->bytes;
        return true;
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_STOPPING:
        m->stats.requests_failed++;
        return false;
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_FENCED:
        return true;
    case HLG_NOTICE_POISONED:
        m->stats.requests_poisoned++;
        return true;
    case HLG_NOTICE_REQUESTED:
    case HLG_NOTICE_ACCEPTED:
        return false;
    case HLG_NOTICE_PEER_UP:
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
        break;
    }
    hlg_unreachable();
}

/* When a request came to this node, as far as it is known: else its age is 0. */
static hlg_time begun_at(const struct hlg_notice *notice, const struct entry *entry)
{
    hlg_time begun = notice->submitted;

    if (entry != NULL && entry->view.size != 0) {
        begun = entry->begun;
    }
    return begun != 0 ? begun : notice->noticed;
}

/* Pages and contexts that a request names. */
static uint64_t pages_of(const struct hlg_messenger *m, const struct entry *entry)
{
    const bool prefill = m->config.role == HLG_ROLE_PREFILL;
    uint64_t pages = 0;

    for (uint32_t g = 0; entry != NULL && g < m->config.layout.group_count; g++) {
        pages += prefill ? entry->view.groups[g].count : entry->submit.groups[g].count;
    }
    return pages;
}

static void take_request_notice(struct hlg_messenger *m, const struct hlg_notice *notice,
                                struct hlg_report *report)
{
    bool last = count_request(m, notice);
    struct entry *entry = notice->kind == HLG_NOTICE_REQUESTED ? take_requested(m, notice)
                                                               : bound_entry(m, notice->request);
    const hlg_time begun = begun_at(notice, entry);
    bool bad = notice->kind == HLG_NOTICE_FAILED || notice->kind == HLG_NOTICE_STOPPING ||
               notice->kind == HLG_NOTICE_POISONED;

    messenger_log(m, bad ? HLG_LOG_WARN : HLG_LOG_DEBUG,
                  "request %.*s %s reason %s age_ms %" PRIu64 " bytes %" PRIu64 " pieces %" PRIu64
                  "/%" PRIu64,
                  (int)notice->id_bytes, (const char *)notice->id, hlg_notice_text(notice->kind),
                  hlg_reason_text(notice->reason),
                  (uint64_t)((notice->noticed - begun) / HLG_NS_PER_MS), notice->bytes,
                  notice->pieces_counted, notice->pieces_expected);
    metrics_notice(&m->metrics, notice, begun, pages_of(m, entry));
    if (entry == NULL) {
        if (last) {
            forget_unwanted(m, notice->request);
        }
        return; /* it found no entry and is being rejected */
    }
    /* The core thread alone writes tickets of open entries. */
    report->ticket = (uint64_t)entry->uses << 32 | entry_index(m, entry);
    if (notice->reason != HLG_REASON_NONE) {
        report_text(report, hlg_reason_text(notice->reason));
    }
    if (last) {
        /* READY stays bound: its RELEASE goes to the machine. */
        if (notice->kind != HLG_NOTICE_READY) {
            binding_end(m, entry);
        }
        entry_finish(entry);
    }
    report_push(m, report);
}

void notice_take(void *messenger, const struct hlg_notice *notice)
{
    struct hlg_messenger *m = messenger;
    struct hlg_report report = {.kind = notice->kind,
                                .peer = peer_name_of(m, notice->peer),
                                .reason = notice->reason,
                                .node = notice->node,
                                .bytes = notice->bytes,
                                .pieces_counted = notice->pieces_counted,
                                .pieces_expected = notice->pieces_expected,
                                .retry_after_ns = notice->retry_after_ns,
                                .submitted = notice->submitted,
                                .accepted = notice->accepted,
                                .first_piece = notice->first_piece,
                                .last_piece = notice->last_piece,
                                .noticed = notice->noticed,
                                .refusal = notice->refusal,
                                .id_bytes = notice->id_bytes};

    memcpy(report.id, notice->id, sizeof report.id);
    switch ((enum hlg_notice_kind)notice->kind) {
    case HLG_NOTICE_PEER_UP:
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
        take_peer_notice(m, notice, &report);
        return;
    case HLG_NOTICE_REQUESTED:
    case HLG_NOTICE_STOPPING:
    case HLG_NOTICE_SENT:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_ACCEPTED:
    case HLG_NOTICE_READY:
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        take_request_notice(m, notice, &report);
        return;
    }
    hlg_unreachable();
}

void note_take(void *messenger, const struct hlg_note *note)
{
    struct hlg_messenger *m = messenger;
    char line[HLG_NOTE_TEXT_BYTES];
    enum hlg_log_level level = hlg_note_level(note);
    uint64_t suppressed = 0;

    metrics_note(&m->metrics, note);
    if (m->submitting != HLG_NONE &&
        (note->code == HLG_NOTE_SUBMIT_SOURCES || note->code == HLG_NOTE_SUBMIT_TOO_LARGE)) {
        m->refused = *note;
    }
    if (m->config.log == NULL || (uint32_t)level > m->config.log_level) {
        return; /* a step of every request, most often */
    }
    /* Who asks for debug lines wants all of them. */
    HLG_ASSERT(note->code < METRICS_NOTES);
    if (level < HLG_LOG_DEBUG &&
        !metrics_line(&m->lines[note->code], hlg_pump_now(m->pump), &suppressed)) {
        m->metrics.lines_suppressed++;
        return;
    }
    (void)hlg_note_text(note, line, sizeof line);
    if (suppressed > 0) {
        messenger_log(m, level, "%.*s lines_left_out %" PRIu64, (int)strcspn(line, " "), line,
                      suppressed);
    }
    messenger_log(m, level, "%s", line);
}
