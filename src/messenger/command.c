/* On the core thread: commands become events. A command on a request that ended meanwhile is harmless;
 * what the machine will not have is reported. */
#include "../core/note.h"
#include "messenger_internal.h"

#include <inttypes.h>
#include <stdio.h>

static uint32_t next_random(struct hlg_messenger *m)
{
    /* xorshift64*, G. Marsaglia and S. Vigna; the high half is the good one */
    m->random ^= m->random >> 12;
    m->random ^= m->random << 25;
    m->random ^= m->random >> 27;
    return (uint32_t)((m->random * 0x2545f4914f6cdd1dull) >> 32);
}

static void report_refused(struct hlg_messenger *m, const struct command *command,
                           const struct entry *entry, int error)
{
    struct hlg_report report = {.kind = HLG_REPORT_REFUSED,
                                .peer = command->kind == HLG_COMMAND_DISCONNECT ? command->peer
                                                                                : HLG_NONE,
                                .ticket = command->ticket,
                                .error = error,
                                .command = command->kind,
                                .forward = command->forward};

    if (entry != NULL) {
        report.id_bytes = entry->view.id_bytes;
        memcpy(report.id, entry->id, sizeof report.id);
    }
    report_text(&report, hlg_error_text(error));
    m->stats.commands_refused++;
    messenger_log(m, HLG_LOG_WARN, "command_refused kind %u request %.*s forward %u error %s",
                  command->kind, (int)report.id_bytes, (const char *)report.id, report.forward,
                  report.text);
    report_push(m, &report);
}

/* ---- Decode ---- */

/* Why a SUBMIT was refused: what the machine noted of it, else what the error says. */
static void refused_text(const struct hlg_note *note, int error, char *text, size_t bytes)
{
    static const char *const sizes[] = {[NOTE_SIZE_FRAME] = "bytes of message",
                                        [NOTE_SIZE_PROMPT] = "bytes of prompt",
                                        [NOTE_SIZE_PAGES] = "pages",
                                        [NOTE_SIZE_PROMPT_GRANT] = "bytes of prompts"};

    if (note->code == HLG_NOTE_SUBMIT_TOO_LARGE) {
        HLG_ASSERT(note->a >= NOTE_SIZE_FRAME && note->a <= NOTE_SIZE_PROMPT_GRANT);
        (void)snprintf(text, bytes,
                       "it takes %" PRIu64 " %s, a prefill node %" PRIu64
                       " at most; shorten it, or raise the limit there",
                       note->b, sizes[note->a], note->c);
    } else if (note->code == HLG_NOTE_SUBMIT_SOURCES && note->a == HLG_RANKS_MAX) {
        (void)snprintf(
            text, bytes,
            "the prefill nodes named shard differently; name nodes that share one model");
    } else if (note->code == HLG_NOTE_SUBMIT_SOURCES && note->b == 0) {
        (void)snprintf(
            text, bytes,
            "no prefill node named hosts rank %" PRIu64 "; name all that share the model", note->a);
    } else if (note->code == HLG_NOTE_SUBMIT_SOURCES) {
        (void)snprintf(text, bytes,
                       "%" PRIu64 " prefill nodes named host rank %" PRIu64 "; name one of them",
                       note->b, note->a);
    } else {
        (void)snprintf(text, bytes, "%s",
                       error != 0 ? hlg_error_text(error) : "its word did not reach its value");
    }
}

/* Its pages never were anyone else's. */
void command_fail_submit(struct hlg_messenger *m, struct entry *entry, enum hlg_reason reason,
                         int error)
{
    hlg_time now = hlg_pump_now(m->pump);
    struct hlg_report report = {.kind = HLG_NOTICE_FAILED,
                                .peer = HLG_NONE,
                                .ticket = entry_ticket(entry),
                                .reason = (uint32_t)reason,
                                .error = error,
                                .submitted = now,
                                .noticed = now,
                                .id_bytes = entry->submit.id_bytes};

    memcpy(report.id, entry->id, sizeof report.id);
    char why[HLG_REPORT_TEXT_BYTES - sizeof "not submitted: "];
    refused_text(&m->refused, error, why, sizeof why);
    (void)snprintf(report.text, sizeof report.text, "not submitted: %s", why);
    messenger_log(m, HLG_LOG_WARN, "request %.*s failed %s", (int)report.id_bytes,
                  (const char *)report.id, report.text);
    m->stats.requests_failed++;
    m->stats.commands_refused += error != 0;
    metrics_failed(&m->metrics, report.reason);
    report_push(m, &report);
    report.kind = HLG_NOTICE_RETURNED;
    entry_finish(entry);
    report_push(m, &report);
}

void command_submit(struct hlg_messenger *m, struct entry *entry, hlg_time ttl_ns)
{
    const struct hlg_submit *submit = &entry->submit;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT,
                              .submit = {.source_count = submit->source_count,
                                         .pool = submit->pool,
                                         .tokens = submit->tokens,
                                         .random = next_random(m),
                                         .ttl_ns = ttl_ns,
                                         .id_bytes = submit->id_bytes,
                                         .id = submit->id,
                                         .prompt_bytes = submit->prompt_bytes,
                                         .prompt = submit->prompt}};
    int error = 0;

    memcpy(event.submit.groups, submit->groups, sizeof event.submit.groups);
    for (uint32_t i = 0; i < submit->source_count; i++) {
        event.submit.peers[i] = peer_index_of(m, submit->peers[i]);
        error = event.submit.peers[i] == HLG_NONE ? -HLG_EPEER : error;
    }
    if (error == 0) {
        m->submitting = entry_index(m, entry);
        error = hlg_pump_event(m->pump, &event);
        m->submitting = HLG_NONE;
        if (error == 0 && !entry->bound && !entry_finished(entry)) {
            binding_make(m, hlg_pump_submitted(m->pump), entry);
        }
    }
    if (error != 0) {
        command_fail_submit(m, entry, error == -HLG_EPEER ? HLG_REASON_PEER : HLG_REASON_LOCAL,
                            error);
    }
    m->refused.code = HLG_NOTE_NONE;
}

static void on_submit(struct hlg_messenger *m, struct entry *entry)
{
    m->stats.requests_submitted++;
    if (!hold_take(m, entry)) {
        command_submit(m, entry, entry->submit.ttl_ns);
    }
}

static void on_release(struct hlg_messenger *m, struct entry *entry)
{
    if (entry->bound) {
        struct hlg_event event = {.kind = HLG_EVENT_RELEASE, .request = entry->handle};
        int error = hlg_pump_event(m->pump, &event);
        HLG_ASSERT(error == 0); /* bound and finished is READY */
        binding_end(m, entry);
    }
    m->leaving[m->leaving_count++] = entry_index(m, entry);
    command_free_released(m);
}

void command_free_released(struct hlg_messenger *m)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < m->leaving_count; i++) {
        struct entry *entry = &m->entries[m->leaving[i]];
        if (entry_leave(entry)) {
            entry_free(m, entry);
        } else {
            m->leaving[left++] = m->leaving[i];
        }
    }
    m->leaving_count = left;
}

/* ---- Prefill ---- */

static int on_admit(struct hlg_messenger *m, const struct entry *entry)
{
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT,
                              .admit = {.request = entry->handle,
                                        .pool = entry->admit.pool,
                                        .cached_tokens = entry->admit.cached_tokens,
                                        .cached_forward = entry->admit.cached_forward}};

    memcpy(event.admit.groups, entry->admit.groups, sizeof event.admit.groups);
    const int error = entry->bound ? hlg_pump_event(m->pump, &event) : -HLG_ESTALE;
    if (error == 0) {
        hlg_histogram_add(&m->metrics.queue_ns, HLG_HISTOGRAM_TIME,
                          hlg_pump_now(m->pump) - entry->begun);
    }
    return error;
}

static int on_reject(struct hlg_messenger *m, struct entry *entry, const struct command *command)
{
    struct hlg_event event = {
        .kind = HLG_EVENT_REJECT,
        .reject = {.request = entry->handle, .retry_after_ns = command->retry_after_ns}};
    int error = entry->bound ? hlg_pump_event(m->pump, &event) : -HLG_ESTALE;

    if (error != 0) {
        return error;
    }
    /* The machine has nothing to say of a request that never was the engine's, but a ticket has one
       last report. */
    struct hlg_report report = {.kind = HLG_NOTICE_FENCED,
                                .peer = entry->view.peer,
                                .ticket = command->ticket,
                                .reason = HLG_REASON_REJECTED,
                                .noticed = hlg_pump_now(m->pump),
                                .id_bytes = entry->view.id_bytes};
    memcpy(report.id, entry->id, sizeof report.id);
    m->stats.requests_failed++;
    metrics_failed(&m->metrics, HLG_REASON_REJECTED);
    binding_end(m, entry);
    entry_finish(entry);
    report_push(m, &report);
    return 0;
}

static int give_up(struct hlg_messenger *m, const struct entry *entry)
{
    struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = entry->handle};

    return entry->bound ? hlg_pump_event(m->pump, &event) : -HLG_ESTALE;
}

static void on_chunk(struct hlg_messenger *m, const struct entry *entry,
                     const struct command *command)
{
    struct hlg_event event = {.kind = HLG_EVENT_CHUNK,
                              .chunk = {.request = entry->handle,
                                        .forward = command->forward,
                                        .token_begin = command->token_begin,
                                        .token_count = command->token_count}};
    int error = entry->bound ? hlg_pump_event(m->pump, &event) : -HLG_ESTALE;

    if (error != 0) {
        /* Its tokens can never be sent, so that it would wait for its deadline. The refusal is told
           before the end that it brings. -HLG_ESTALE: it was ending already. */
        report_refused(m, command, entry, error);
        (void)give_up(m, entry);
    }
}

static int on_forward_over(struct hlg_messenger *m, const struct command *command)
{
    bool end = command->kind == HLG_COMMAND_FORWARD_END;
    struct hlg_event event = {.kind =
                                  (uint32_t)(end ? HLG_EVENT_FORWARD_END : HLG_EVENT_FORWARD_ABORT),
                              .forward = command->forward};
    int error = hlg_pump_event(m->pump, &event);

    /* Other forwards may still run: older ones, or those of other pools. A later chunk is counted by the poller
       already, or will be, and keeps it awake. */
    if (!hlg_pump_awaits(m->pump)) {
        layer_poll_rest(m, m->chunks_handled);
    }
    /* -HLG_ESTATE: all its requests ended before. */
    return error == -HLG_ESTATE ? 0 : error;
}

static int on_plain(struct hlg_messenger *m, const struct command *command)
{
    struct hlg_event event = {.kind = HLG_EVENT_DRAIN};

    if (command->kind == HLG_COMMAND_DISCONNECT) {
        event.kind = HLG_EVENT_DISCONNECT;
        event.peer.peer = peer_index_of(m, command->peer);
        if (event.peer.peer == HLG_NONE) {
            return 0; /* it is down already */
        }
    }
    int error = hlg_pump_event(m->pump, &event);
    m->draining = m->draining || (command->kind == HLG_COMMAND_DRAIN && error == 0);
    return error;
}

int command_tell_drained(struct hlg_messenger *m)
{
    if (!m->draining || m->drained || hlg_pump_open(m->pump) > 0) {
        return 0;
    }
    struct hlg_report report = {
        .kind = HLG_REPORT_DRAINED, .peer = HLG_NONE, .noticed = hlg_pump_now(m->pump)};
    m->drained = true;
    messenger_log(m, HLG_LOG_INFO, "drained");
    report_push(m, &report);
    return 1;
}

void command_handle(struct hlg_messenger *m, const struct command *command)
{
    struct entry *entry = entry_find(m, command->ticket);
    bool stale = command->ticket != 0 && entry == NULL;
    int error = stale ? -HLG_ESTALE : 0;

    m->chunks_handled += command->kind == HLG_COMMAND_CHUNK;
    if (stale) {
        report_refused(m, command, NULL, error);
        return;
    }
    switch ((enum hlg_command_kind)command->kind) {
    case HLG_COMMAND_SUBMIT:
        on_submit(m, entry);
        break;
    case HLG_COMMAND_CANCEL:
        if (hold_drop(m, entry)) {
            command_fail_submit(m, entry, HLG_REASON_CANCELLED, 0);
            break;
        }
        /* It may be over, or ending: its own reports say so. */
        (void)give_up(m, entry);
        break;
    case HLG_COMMAND_RELEASE:
        on_release(m, entry);
        break;
    case HLG_COMMAND_ADMIT:
        error = on_admit(m, entry);
        entry_admitted(entry);
        break;
    case HLG_COMMAND_REJECT:
        error = on_reject(m, entry, command);
        break;
    case HLG_COMMAND_CHUNK:
        on_chunk(m, entry, command);
        break;
    case HLG_COMMAND_FORWARD_END:
    case HLG_COMMAND_FORWARD_ABORT:
        error = on_forward_over(m, command);
        break;
    case HLG_COMMAND_DRAIN:
    case HLG_COMMAND_DISCONNECT:
        error = on_plain(m, command);
        break;
    }
    if (error != 0) {
        report_refused(m, command, entry, error);
    }
}

int command_reject_unwanted(struct hlg_messenger *m)
{
    int count = (int)m->unwanted_count;

    while (m->unwanted_count > 0) {
        struct hlg_event event = {.kind = HLG_EVENT_REJECT,
                                  .reject = {.request = m->unwanted[--m->unwanted_count],
                                             .retry_after_ns = m->config.limits.heartbeat_ns}};
        (void)hlg_pump_event(m->pump, &event); /* -HLG_ESTALE: it ended before */
    }
    return count;
}
