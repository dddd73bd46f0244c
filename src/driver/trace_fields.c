/* Every field of a trace's records, listed once: each list counts, writes, reads or tells it. */
#include "trace_internal.h"

#include <halage/log.h>
#include <halage/wire.h>
#include <string.h>

#define ABSENT UINT32_MAX /* length of an array that is NULL */

/* ---- Scalars ---- */

static void put(struct visit *v, const void *bytes, size_t count)
{
    if (v->mode == VISIT_COUNT) {
        v->count += count;
    } else {
        v->put(v->put_context, bytes, count);
    }
}

static const uint8_t *get(struct visit *v, uint64_t count)
{
    const uint8_t *bytes = v->next;

    if (v->bad || count > v->left) {
        v->bad = true;
        return NULL;
    }
    v->next += count;
    v->left -= count;
    return bytes;
}

static void scalar(struct visit *v, uint64_t *value, uint32_t bytes)
{
    uint8_t wire[8];

    if (v->mode != VISIT_GET) {
        for (uint32_t i = 0; i < bytes; i++) {
            wire[i] = (uint8_t)(*value >> (8 * i) & 0xffu);
        }
        put(v, wire, bytes);
        return;
    }
    const uint8_t *at = get(v, bytes);
    *value = 0;
    for (uint32_t i = 0; at != NULL && i < bytes; i++) {
        *value |= (uint64_t)at[i] << (8 * i);
    }
}

static void unnamed_u32(struct visit *v, uint32_t *value)
{
    uint64_t wide = *value;

    scalar(v, &wide, 4);
    *value = hlg_u32(wide);
}

static void visit_u32(struct visit *v, const char *name, uint32_t *value)
{
    if (v->mode == VISIT_TELL) {
        v->teller->number(v->teller->context, name, *value);
        return;
    }
    unnamed_u32(v, value);
}

static void visit_u16(struct visit *v, const char *name, uint16_t *value)
{
    uint32_t wide = *value;

    visit_u32(v, name, &wide);
    v->bad = v->bad || wide > UINT16_MAX;
    *value = (uint16_t)(wide & UINT16_MAX);
}

static void visit_u64(struct visit *v, const char *name, uint64_t *value)
{
    if (v->mode == VISIT_TELL) {
        v->teller->number(v->teller->context, name, *value);
        return;
    }
    scalar(v, value, 8);
}

static void visit_i32(struct visit *v, const char *name, int32_t *value)
{
    if (v->mode == VISIT_TELL) {
        v->teller->integer(v->teller->context, name, *value);
        return;
    }
    uint32_t bits = 0;
    memcpy(&bits, value, sizeof bits);
    unnamed_u32(v, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void visit_bool(struct visit *v, const char *name, bool *value)
{
    uint64_t wide = *value ? 1 : 0;

    if (v->mode == VISIT_TELL) {
        v->teller->number(v->teller->context, name, wide);
        return;
    }
    scalar(v, &wide, 1);
    v->bad = v->bad || wide > 1;
    *value = wide == 1;
}

/* ---- Arrays ---- */

/* The length as it stands before an array: ABSENT when there is none. */
static uint32_t visit_length(struct visit *v, uint32_t count, bool present, uint32_t item_bytes)
{
    uint32_t length = present ? count : ABSENT;

    unnamed_u32(v, &length);
    if (v->mode == VISIT_GET && length != ABSENT &&
        (length != count || length > v->left / item_bytes)) {
        v->bad = true;
    }
    return v->bad ? ABSENT : length;
}

static void visit_bytes(struct visit *v, const char *name, uint32_t count, const uint8_t **bytes)
{
    if (v->mode == VISIT_TELL) {
        v->teller->bytes(v->teller->context, name, *bytes, *bytes == NULL ? 0 : count);
        return;
    }
    uint32_t length = visit_length(v, count, *bytes != NULL, 1);
    if (v->mode == VISIT_GET) {
        *bytes = length == ABSENT ? NULL : get(v, length);
    } else if (length != ABSENT) {
        put(v, *bytes, length);
    }
}

static void visit_array(struct visit *v, const char *name, uint8_t *bytes, uint32_t count)
{
    if (v->mode == VISIT_TELL) {
        v->teller->bytes(v->teller->context, name, bytes, count);
    } else if (v->mode == VISIT_GET) {
        const uint8_t *at = get(v, count);
        if (at != NULL) {
            memcpy(bytes, at, count);
        }
    } else {
        put(v, bytes, count);
    }
}

static void visit_words(struct visit *v, const char *name, uint32_t count, const uint32_t **words)
{
    if (v->mode == VISIT_TELL) {
        v->teller->numbers(v->teller->context, name, *words, *words == NULL ? 0 : count);
        return;
    }
    uint32_t length = visit_length(v, count, *words != NULL, 4);
    if (v->mode != VISIT_GET) {
        for (uint32_t i = 0; length != ABSENT && i < length; i++) {
            uint32_t word = (*words)[i];
            unnamed_u32(v, &word);
        }
        return;
    }
    *words = NULL;
    if (length == ABSENT) {
        return;
    }
    /* A log has room for the pages of all its lists, each once. */
    HLG_ASSERT(length <= v->arena->capacity - v->arena->used);
    uint32_t *taken = v->arena->words + v->arena->used;
    v->arena->used += length;
    for (uint32_t i = 0; i < length; i++) {
        unnamed_u32(v, &taken[i]);
    }
    *words = taken;
}

static void visit_list(struct visit *v, struct hlg_page_list *list)
{
    visit_u32(v, "pages", &list->count);
    visit_u32(v, "first", &list->first);
    visit_words(v, "page", list->count, &list->pages);
}

/* All that a submit or admit could name; a tale leaves out what it does not. */
static void visit_lists(struct visit *v, struct hlg_page_list *lists)
{
    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        if (v->mode != VISIT_TELL || lists[g].count != 0 || lists[g].first != 0) {
            visit_list(v, &lists[g]);
        }
    }
}

/* ---- Names ---- */

#define NAME(names, index)                                                                 \
    ((index) < sizeof(names) / sizeof(names)[0] && (names)[index] != NULL ? (names)[index] \
                                                                          : "unknown")

static const char *event_name(uint32_t kind)
{
    static const char *const names[] = {
        [HLG_EVENT_TIME] = "time",
        [HLG_EVENT_CHANNEL_UP] = "channel-up",
        [HLG_EVENT_MESSAGE] = "message",
        [HLG_EVENT_PEER_OPENED] = "peer-opened",
        [HLG_EVENT_PEER_DOWN] = "peer-down",
        [HLG_EVENT_PEER_CLOSED] = "peer-closed",
        [HLG_EVENT_SEND_REFUSED] = "send-refused",
        [HLG_EVENT_SEND_ROOM] = "send-room",
        [HLG_EVENT_TAKEN] = "taken",
        [HLG_EVENT_ROOM] = "room",
        [HLG_EVENT_DONE_WRITE] = "done-write",
        [HLG_EVENT_LAYER] = "layer",
        [HLG_EVENT_IMM] = "imm",
        [HLG_EVENT_FLUSHED] = "flushed",
        [HLG_EVENT_CANCEL] = "cancel",
        [HLG_EVENT_DISCONNECT] = "disconnect",
        [HLG_EVENT_ADMIT] = "admit",
        [HLG_EVENT_REJECT] = "reject",
        [HLG_EVENT_CHUNK] = "chunk",
        [HLG_EVENT_FORWARD_END] = "forward-end",
        [HLG_EVENT_FORWARD_ABORT] = "forward-abort",
        [HLG_EVENT_DRAIN] = "drain",
        [HLG_EVENT_SUBMIT] = "submit",
        [HLG_EVENT_RELEASE] = "release",
        [HLG_EVENT_FLUSH_FAILED] = "flush-failed",
    };
    return NAME(names, kind);
}

static const char *action_name(uint32_t kind)
{
    static const char *const names[] = {"write", "send",   "peer-open", "peer-close",
                                        "flush", "notice", "note"};

    for (uint32_t bit = 0; bit < 7; bit++) {
        if (kind == 1u << bit) {
            return names[bit];
        }
    }
    return "unknown";
}

static const char *message_name(uint32_t kind)
{
    static const char *const names[] = {
        [HLG_MESSAGE_HELLO] = "hello",
        [HLG_MESSAGE_REQUEST] = "request",
        [HLG_MESSAGE_ACCEPT] = "accept",
        [HLG_MESSAGE_REJECT] = "reject",
        [HLG_MESSAGE_CANCEL] = "cancel",
        [HLG_MESSAGE_FENCED] = "fenced",
        [HLG_MESSAGE_FAILED] = "failed",
        [HLG_MESSAGE_CREDIT] = "credit",
        [HLG_MESSAGE_HEARTBEAT] = "heartbeat",
        [HLG_MESSAGE_DRAIN] = "drain",
        [HLG_MESSAGE_BYE] = "bye",
    };
    return NAME(names, kind);
}

/* A number that stands for a word: the number is stored, the word told. */
static void visit_kind(struct visit *v, const char *name, uint32_t *kind,
                       const char *(*text)(uint32_t kind))
{
    if (v->mode == VISIT_TELL) {
        v->teller->word(v->teller->context, name, text(*kind));
        return;
    }
    unnamed_u32(v, kind);
}

/* ---- Messages ---- */

static void tell_request(struct visit *v, struct hlg_request_message *m)
{
    const uint8_t *id = m->id;

    visit_u64(v, "number", &m->number);
    visit_bytes(v, "id", m->id_bytes, &id);
    visit_u32(v, "pool", &m->pool);
    visit_u32(v, "source", &m->source);
    visit_u32(v, "sources", &m->source_count);
    visit_u32(v, "slot", &m->slot);
    visit_u32(v, "generation", &m->generation);
    visit_u32(v, "offset", &m->offset);
    visit_u32(v, "tokens", &m->tokens);
    visit_u64(v, "pieces", &m->pieces);
    visit_u64(v, "ttl_ns", &m->ttl_ns);
    visit_bytes(v, "prompt", m->prompt_bytes, &m->prompt);
    for (uint32_t g = 0; g < m->group_count && g < HLG_GROUPS_MAX; g++) {
        visit_list(v, &m->groups[g]);
    }
}

static void tell_answer(struct visit *v, struct hlg_answer *a)
{
    visit_u64(v, "number", &a->number);
    visit_u64(v, "incarnation", &a->incarnation);
    visit_u64(v, "session", &a->session);
    visit_u64(v, "pieces", &a->pieces);
    visit_kind(v, "reason", &a->reason, hlg_reason_text);
    visit_u32(v, "await", &a->await);
    visit_u64(v, "retry_after_ns", &a->retry_after_ns);
}

static void tell_hello(struct visit *v, struct hlg_hello *h)
{
    visit_u64(v, "node", &h->node);
    visit_u64(v, "incarnation", &h->incarnation);
    visit_u64(v, "session", &h->session);
    visit_u32(v, "role", &h->role);
    visit_u32(v, "window_pieces", &h->window_pieces);
    visit_u32(v, "message_bytes_max", &h->message_bytes_max);
    visit_u32(v, "prompt_bytes_max", &h->prompt_bytes_max);
    visit_u32(v, "draining", &h->draining);
    visit_u64(v, "grant_requests", &h->grant.requests);
    visit_u64(v, "grant_pages", &h->grant.pages);
    visit_u64(v, "grant_prompt_bytes", &h->grant.prompt_bytes);
    visit_u32(v, "tp", &h->layout.tp);
    visit_u32(v, "stages", &h->layout.stages);
    visit_u32(v, "pools", &h->layout.pools);
    visit_u32(v, "layers", &h->layout.layers);
    visit_u32(v, "addresses", &h->address_count);
    visit_u32(v, "keys", &h->key_count);
    visit_u32(v, "places", &h->place_count);
}

static void tell_message(struct visit *v, const struct hlg_message *message)
{
    struct hlg_message m = *message;

    visit_kind(v, "message", &m.kind, message_name);
    switch ((enum hlg_message_kind)m.kind) {
    case HLG_MESSAGE_HELLO:
        tell_hello(v, &m.hello);
        return;
    case HLG_MESSAGE_REQUEST:
        tell_request(v, &m.request);
        return;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        tell_answer(v, &m.answer);
        return;
    case HLG_MESSAGE_CREDIT:
        visit_u64(v, "requests", &m.credit.finished.requests);
        visit_u64(v, "pages", &m.credit.finished.pages);
        visit_u64(v, "prompt_bytes", &m.credit.finished.prompt_bytes);
        for (uint32_t i = 0; i < m.credit.count; i++) {
            struct hlg_credit_entry entry = m.credit.entries[i];
            visit_u32(v, "lane", &entry.lane);
            visit_u32(v, "rail", &entry.rail);
            visit_u64(v, "pieces", &entry.pieces);
        }
        return;
    case HLG_MESSAGE_BYE:
        visit_u32(v, "why", &m.bye.why.code);
        return;
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
        return;
    }
}

/* As a frame; the bytes of a frame stand for all fields. */
static void visit_message(struct visit *v, const struct hlg_message **message)
{
    if (v->mode == VISIT_TELL) {
        tell_message(v, *message);
        return;
    }
    uint32_t length = 0;
    if (v->mode == VISIT_GET) {
        unnamed_u32(v, &length);
        const uint8_t *frame = get(v, length);
        v->bad =
            v->bad || hlg_wire_decode(frame, length, v->scratch, v->scratch_bytes, v->message) != 0;
        *message = v->message;
        return;
    }
    uint64_t bytes = hlg_wire_bytes(*message);
    if (bytes > v->scratch_bytes) {
        v->failed = true;
        return;
    }
    length = hlg_u32(bytes);
    unnamed_u32(v, &length);
    if (v->mode == VISIT_PUT) {
        int64_t written = hlg_wire_encode(*message, v->scratch, v->scratch_bytes);
        HLG_ASSERT(written == (int64_t)bytes);
    }
    put(v, v->scratch, length);
}

/* ---- Events ---- */

static void visit_submit(struct visit *v, struct hlg_event_submit *s)
{
    visit_u32(v, "sources", &s->source_count);
    for (uint32_t i = 0; i < HLG_SOURCES_MAX; i++) {
        if (v->mode != VISIT_TELL || i < s->source_count) {
            visit_u32(v, "peer", &s->peers[i]);
        }
    }
    visit_u32(v, "pool", &s->pool);
    visit_u32(v, "tokens", &s->tokens);
    visit_u32(v, "random", &s->random);
    visit_u64(v, "ttl_ns", &s->ttl_ns);
    visit_u32(v, "id_bytes", &s->id_bytes);
    visit_bytes(v, "id", s->id_bytes, &s->id);
    visit_u32(v, "prompt_bytes", &s->prompt_bytes);
    visit_bytes(v, "prompt", s->prompt_bytes, &s->prompt);
    visit_lists(v, s->groups);
}

static void visit_admit(struct visit *v, struct hlg_event_admit *a)
{
    visit_u64(v, "request", &a->request);
    visit_u32(v, "pool", &a->pool);
    visit_u32(v, "cached_tokens", &a->cached_tokens);
    visit_u32(v, "cached_forward", &a->cached_forward);
    visit_lists(v, a->groups);
}

static void visit_imm(struct visit *v, struct hlg_event_imm *i)
{
    visit_u32(v, "imm", &i->imm);
    visit_u32(v, "pieces", &i->pieces);
    visit_u32(v, "immediates", &i->immediates);
    visit_u32(v, "lane", &i->lane);
    visit_u32(v, "rail", &i->rail);
    visit_u32(v, "domain", &i->domain);
}

static void visit_chunk(struct visit *v, struct hlg_event_chunk *c)
{
    visit_u64(v, "request", &c->request);
    visit_u32(v, "forward", &c->forward);
    visit_u32(v, "token_begin", &c->token_begin);
    visit_u32(v, "token_count", &c->token_count);
}

static void visit_done(struct visit *v, struct hlg_event_done *d)
{
    visit_u32(v, "op", &d->op);
    visit_u32(v, "done", &d->done);
    visit_u32(v, "failed", &d->failed);
    visit_i32(v, "status", &d->status);
}

static void visit_peer(struct visit *v, struct hlg_event *event)
{
    visit_u32(v, "peer", &event->peer.peer);
    visit_u32(v, "domain", &event->peer.domain);
    visit_i32(v, "status", &event->peer.status);
    visit_bool(v, "dialled", &event->peer.dialled);
    if (event->kind == HLG_EVENT_MESSAGE) {
        visit_message(v, &event->peer.message);
    }
}

static void visit_event_body(struct visit *v, struct hlg_event *event)
{
    switch ((enum hlg_event_kind)event->kind) {
    case HLG_EVENT_TIME:
    case HLG_EVENT_DRAIN:
        return;
    case HLG_EVENT_CHANNEL_UP:
    case HLG_EVENT_MESSAGE:
    case HLG_EVENT_PEER_OPENED:
    case HLG_EVENT_PEER_DOWN:
    case HLG_EVENT_PEER_CLOSED:
    case HLG_EVENT_SEND_REFUSED:
    case HLG_EVENT_SEND_ROOM:
    case HLG_EVENT_DISCONNECT:
        visit_peer(v, event);
        return;
    case HLG_EVENT_TAKEN:
        visit_u32(v, "op", &event->taken.op);
        visit_u32(v, "pieces", &event->taken.pieces);
        return;
    case HLG_EVENT_ROOM:
        visit_u32(v, "lane", &event->room.lane);
        visit_u32(v, "rail", &event->room.rail);
        return;
    case HLG_EVENT_DONE_WRITE:
        visit_done(v, &event->done);
        return;
    case HLG_EVENT_LAYER:
        visit_u32(v, "word", &event->layer.word);
        visit_u32(v, "value", &event->layer.value);
        return;
    case HLG_EVENT_IMM:
        visit_imm(v, &event->imm);
        return;
    case HLG_EVENT_FLUSHED:
    case HLG_EVENT_FLUSH_FAILED:
    case HLG_EVENT_CANCEL:
    case HLG_EVENT_RELEASE:
        visit_u64(v, "request", &event->request);
        return;
    case HLG_EVENT_ADMIT:
        visit_admit(v, &event->admit);
        return;
    case HLG_EVENT_REJECT:
        visit_u64(v, "request", &event->reject.request);
        visit_u64(v, "retry_after_ns", &event->reject.retry_after_ns);
        return;
    case HLG_EVENT_CHUNK:
        visit_chunk(v, &event->chunk);
        return;
    case HLG_EVENT_FORWARD_END:
    case HLG_EVENT_FORWARD_ABORT:
        visit_u32(v, "forward", &event->forward);
        return;
    case HLG_EVENT_SUBMIT:
        visit_submit(v, &event->submit);
        return;
    }
    v->bad = true; /* a kind that this version does not know */
}

void visit_event(struct visit *v, struct hlg_event *event)
{
    visit_kind(v, "event", &event->kind, event_name);
    visit_u64(v, "now", &event->now);
    visit_event_body(v, event);
}

/* ---- Actions ---- */

static void visit_slice(struct visit *v, struct hlg_slice *s)
{
    visit_u16(v, "source_rank", &s->source_rank);
    visit_u16(v, "target_rank", &s->target_rank);
    visit_u16(v, "group", &s->group);
    visit_u16(v, "plane", &s->plane);
    visit_u32(v, "source_offset", &s->source_offset);
    visit_u32(v, "target_offset", &s->target_offset);
    visit_u32(v, "bytes", &s->bytes);
    visit_u32(v, "count", &s->count);
    visit_u32(v, "source_stride", &s->source_stride);
    visit_u32(v, "target_stride", &s->target_stride);
}

static void visit_write(struct visit *v, struct hlg_action_write *w)
{
    struct hlg_slice slice = {0};

    visit_u32(v, "op", &w->op);
    visit_u32(v, "peer", &w->peer);
    visit_u32(v, "lane", &w->lane);
    visit_u32(v, "rail", &w->rail);
    visit_u32(v, "target_lane", &w->target_lane);
    visit_u32(v, "target_rail", &w->target_rail);
    visit_u32(v, "layer", &w->layer);
    visit_u32(v, "imm", &w->imm);
    if (v->mode != VISIT_GET) {
        slice = *w->slice;
    }
    visit_slice(v, &slice);
    if (v->mode == VISIT_GET) {
        *v->slice = slice;
        w->slice = v->slice;
    }
    visit_u32(v, "page_count", &w->page_count);
    visit_u32(v, "piece_begin", &w->piece_begin);
    visit_u32(v, "piece_limit", &w->piece_limit);
    visit_words(v, "source_pages", w->page_count, &w->source_pages);
    visit_words(v, "target_pages", w->page_count, &w->target_pages);
    if (v->mode == VISIT_GET &&
        (w->source_pages == NULL || w->target_pages == NULL || w->piece_begin > w->piece_limit ||
         w->piece_limit > (uint64_t)w->page_count * slice.count)) {
        v->bad = true;
    }
}

static void visit_refusal(struct visit *v, struct hlg_refusal *why)
{
    visit_u32(v, "refusal", &why->code);
    visit_u32(v, "a", &why->a);
    visit_u32(v, "b", &why->b);
    visit_u32(v, "c", &why->c);
    visit_u32(v, "d", &why->d);
}

static void visit_requested(struct visit *v, struct hlg_notice *n)
{
    struct hlg_message message = {.kind = HLG_MESSAGE_REQUEST};
    const struct hlg_message *pointer = &message;
    bool present = n->message != NULL;

    visit_bool(v, "with_message", &present);
    if (!present) {
        n->message = NULL;
        return;
    }
    if (v->mode != VISIT_GET) {
        HLG_ASSERT(n->message != NULL);
        message.request = *n->message;
    }
    visit_message(v, &pointer);
    if (v->mode == VISIT_GET) {
        v->bad = v->bad || pointer->kind != HLG_MESSAGE_REQUEST;
        n->message = &pointer->request;
    }
}

static void visit_notice(struct visit *v, struct hlg_notice *n)
{
    visit_kind(v, "notice", &n->kind, hlg_notice_text);
    visit_u32(v, "peer", &n->peer);
    visit_u64(v, "request", &n->request);
    visit_kind(v, "reason", &n->reason, hlg_reason_text);
    visit_u32(v, "id_bytes", &n->id_bytes);
    v->bad = v->bad || n->id_bytes > HLG_REQUEST_ID_BYTES_MAX;
    visit_array(v, "id", n->id, v->bad ? 0 : n->id_bytes);
    visit_u64(v, "pieces_expected", &n->pieces_expected);
    visit_u64(v, "pieces_counted", &n->pieces_counted);
    visit_u64(v, "bytes", &n->bytes);
    visit_u64(v, "retry_after_ns", &n->retry_after_ns);
    visit_u64(v, "submitted", &n->submitted);
    visit_u64(v, "accepted", &n->accepted);
    visit_u64(v, "first_piece", &n->first_piece);
    visit_u64(v, "last_piece", &n->last_piece);
    visit_u64(v, "noticed", &n->noticed);
    visit_refusal(v, &n->refusal);
    visit_u64(v, "node", &n->node);
    visit_requested(v, n);
}

static void visit_send(struct visit *v, struct hlg_action_send *send)
{
    const struct hlg_message *message = &send->message;

    visit_u32(v, "peer", &send->peer);
    visit_message(v, &message);
    if (v->mode == VISIT_GET && !v->bad) {
        send->message = *message;
    }
}

static void visit_action_body(struct visit *v, struct hlg_action *action)
{
    switch ((enum hlg_action_kind)action->kind) {
    case HLG_ACTION_WRITE:
        visit_write(v, &action->write);
        return;
    case HLG_ACTION_SEND:
        visit_send(v, &action->send);
        return;
    case HLG_ACTION_PEER_OPEN:
        visit_u32(v, "peer", &action->peer);
        return;
    case HLG_ACTION_PEER_CLOSE:
        visit_u32(v, "peer", &action->close.peer);
        visit_u32(v, "domain", &action->close.domain);
        visit_bool(v, "fence", &action->close.fence);
        return;
    case HLG_ACTION_FLUSH:
        visit_u64(v, "request", &action->flush.request);
        return;
    case HLG_ACTION_NOTICE:
        visit_notice(v, &action->notice);
        return;
    case HLG_ACTION_NOTE:
        visit_u32(v, "code", &action->note.code);
        visit_u32(v, "peer", &action->note.peer);
        visit_u64(v, "a", &action->note.a);
        visit_u64(v, "b", &action->note.b);
        visit_u64(v, "c", &action->note.c);
        return;
    }
    v->bad = true;
}

void visit_action(struct visit *v, struct hlg_action *action)
{
    visit_kind(v, "action", &action->kind, action_name);
    visit_action_body(v, action);
}

void visit_pull(struct visit *v, uint32_t *lane, unsigned *kinds)
{
    uint64_t small_lane = *lane;
    uint64_t small_kinds = *kinds;

    if (v->mode == VISIT_TELL) {
        v->teller->number(v->teller->context, "pull_lane", *lane);
        v->teller->number(v->teller->context, "pull_kinds", *kinds);
        return;
    }
    scalar(v, &small_lane, 1);
    scalar(v, &small_kinds, 1);
    *lane = hlg_u32(small_lane);
    *kinds = hlg_u32(small_kinds);
    v->bad = v->bad || *kinds == 0 || (*kinds & ~HLG_ACTIONS_ALL) != 0 || *lane >= HLG_RANKS_MAX;
}

void visit_result(struct visit *v, int32_t *result)
{
    visit_i32(v, "result", result);
}

/* ---- Head ---- */

static void visit_limits(struct visit *v, struct hlg_limits *l)
{
    _Static_assert(sizeof *l == 16 * sizeof(uint32_t) + 5 * sizeof(uint64_t),
                   "a new limit belongs below");
    visit_u32(v, "peers_max", &l->peers_max);
    visit_u32(v, "requests_max", &l->requests_max);
    visit_u32(v, "sources_max", &l->sources_max);
    visit_u32(v, "lanes_max", &l->lanes_max);
    visit_u32(v, "rails_max", &l->rails_max);
    visit_u32(v, "slices_max", &l->slices_max);
    visit_u32(v, "forwards_max", &l->forwards_max);
    visit_u32(v, "chunks_max", &l->chunks_max);
    visit_u32(v, "ops_max", &l->ops_max);
    visit_u32(v, "blocks_max", &l->blocks_max);
    visit_u32(v, "prompt_bytes_max", &l->prompt_bytes_max);
    visit_u32(v, "message_bytes_max", &l->message_bytes_max);
    visit_u32(v, "window_pieces", &l->window_pieces);
    visit_u32(v, "reserve_percent", &l->reserve_percent);
    visit_u32(v, "grant_requests", &l->grant_requests);
    visit_u32(v, "grant_pages", &l->grant_pages);
    visit_u64(v, "grant_prompt_bytes", &l->grant_prompt_bytes);
    visit_u64(v, "turn_bytes", &l->turn_bytes);
    visit_u64(v, "lease_ns", &l->lease_ns);
    visit_u64(v, "heartbeat_ns", &l->heartbeat_ns);
    visit_u64(v, "fence_ns", &l->fence_ns);
}

static void visit_group(struct visit *v, struct hlg_group *g)
{
    visit_u32(v, "kind", &g->kind);
    visit_u32(v, "planes", &g->planes);
    visit_u32(v, "heads", &g->heads);
    visit_u32(v, "head_bytes", &g->head_bytes);
    visit_u32(v, "page_tokens", &g->page_tokens);
    visit_u32(v, "arrangement", &g->arrangement);
    visit_u32(v, "page_count", &g->page_count);
    for (uint32_t i = 0; i < 4; i++) {
        visit_u64(v, "layers", &g->layers[i]);
    }
}

static void visit_layout(struct visit *v, struct hlg_layout *l)
{
    visit_u32(v, "tp", &l->tp);
    visit_u32(v, "stages", &l->stages);
    visit_u32(v, "pools", &l->pools);
    visit_u32(v, "layers", &l->layers);
    for (uint32_t i = 0; i < HLG_STAGES_MAX; i++) {
        visit_u32(v, "stage_limit", &l->stage_limit[i]);
    }
    visit_u32(v, "rank_begin", &l->rank_begin);
    visit_u32(v, "rank_limit", &l->rank_limit);
    visit_u32(v, "all_reduce", &l->all_reduce);
    visit_u32(v, "piece_bytes_max", &l->piece_bytes_max);
    visit_u32(v, "group_count", &l->group_count);
    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        visit_group(v, &l->groups[g]);
    }
}

void visit_head(struct visit *v, struct hlg_trace_head *head)
{
    /* Fields of both kinds of config, side by side. */
    struct hlg_decode_config config = {0};
    bool prefill = head->role == HLG_ROLE_PREFILL;

    if (v->mode != VISIT_GET && prefill) {
        config = (struct hlg_decode_config){.limits = head->prefill.limits,
                                            .layout = head->prefill.layout,
                                            .rails = head->prefill.rails,
                                            .node = head->prefill.node,
                                            .incarnation = head->prefill.incarnation,
                                            .acknowledged = head->prefill.acknowledged};
        memcpy(config.fingerprint, head->prefill.fingerprint, sizeof config.fingerprint);
    } else if (v->mode != VISIT_GET) {
        config = head->decode;
    }
    visit_u32(v, "role", &head->role);
    visit_limits(v, &config.limits);
    visit_layout(v, &config.layout);
    visit_u32(v, "rails", &config.rails);
    visit_u64(v, "node", &config.node);
    visit_u64(v, "incarnation", &config.incarnation);
    visit_array(v, "fingerprint", config.fingerprint, HLG_FINGERPRINT_BYTES);
    visit_bool(v, "flush", &config.flush);
    visit_bool(v, "acknowledged", &config.acknowledged);
    if (v->mode != VISIT_GET) {
        return;
    }
    if (head->role == HLG_ROLE_PREFILL) {
        head->prefill = (struct hlg_prefill_config){.limits = config.limits,
                                                    .layout = config.layout,
                                                    .rails = config.rails,
                                                    .node = config.node,
                                                    .incarnation = config.incarnation,
                                                    .acknowledged = config.acknowledged};
        memcpy(head->prefill.fingerprint, config.fingerprint, sizeof config.fingerprint);
    } else {
        head->decode = config;
    }
}
