/* The record of a machine as prose. */
#include "tale.h"

#include <halage/refusal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMES_MAX    64u
#define SESSIONS_MAX 64u
#define OPS_MAX      64u

/* Pieces at one time that make one line. */
enum heap_kind {
    HEAP_NONE,
    HEAP_WRITE,
    HEAP_DONE,
    HEAP_IMM,
    HEAP_FULL
};

struct heap {
    uint32_t kind; /* enum heap_kind */
    hlg_time at;
    char id[24]; /* or "an unknown request" */
    uint32_t layer;
    uint32_t pieces;
    uint32_t failed;
    uint32_t late;
    uint32_t stale;
};

/* A request as this machine names it. */
struct name {
    uint32_t peer;
    uint64_t number;
    uint32_t imm; /* slot and generation */
    uint64_t handle;
    char id[16];
};

struct prose {
    struct tale *tale;
    const struct scene_node_state *node;
    hlg_time now;
    struct heap heap;
    struct name names[NAMES_MAX];
    uint32_t name_count;
    uint32_t sessions;              /* begun so far */
    uint64_t other[SESSIONS_MAX];   /* node at the other end of each; 0: not known */
    uint32_t session_of[PEERS_MAX]; /* current one of each peer */
    uint32_t op_imm[OPS_MAX];
    uint32_t op_peer[OPS_MAX];
    uint32_t write_layer;
    uint32_t write_op;
    bool spoke; /* the last event made the last line */
};

static const char *const reasons[] = {"none",     "rejected", "cancelled", "peer",
                                      "deadline", "protocol", "local",     "preempted"};

const char *tale_node(uint32_t node)
{
    static const char *const names[NODES] = {"decode", "prefill-0", "prefill-1", "decode-1"};

    return node < NODES ? names[node] : "somebody";
}

void tale_add(struct tale *t, hlg_time at, uint32_t order, const char *who, const char *what)
{
    if (at < t->begin) {
        return;
    }
    HLG_ASSERT(t->line_count < TALE_LINES_MAX);
    struct tale_line *line = &t->lines[t->line_count];
    *line = (struct tale_line){.at = at, .order = order, .number = t->line_count++};
    (void)snprintf(line->who, sizeof line->who, "%s", who);
    (void)snprintf(line->what, sizeof line->what, "%s", what);
}

/* ---- Heaps -------------------------------------------------------------------------------- */

static void add(struct prose *p, hlg_time at, const char *what)
{
    tale_add(p->tale, at, 1 + p->node->index, tale_node(p->node->index), what);
}

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

static void tell_imm(const struct heap *h, char *what)
{
    int used =
        snprintf(what, TALE_LINE_BYTES, "takes %u immediate%s", h->pieces, plural(h->pieces));

    if (h->stale > 0) {
        (void)snprintf(what + used, TALE_LINE_BYTES - (size_t)used,
                       " of an older generation: they change nothing");
    } else if (h->late > 0) {
        (void)snprintf(what + used, TALE_LINE_BYTES - (size_t)used,
                       " of %s, which has failed: they change nothing", h->id);
    } else {
        (void)snprintf(what + used, TALE_LINE_BYTES - (size_t)used, " of %s", h->id);
    }
}

static void flush(struct prose *p)
{
    struct heap h = p->heap;
    char what[TALE_LINE_BYTES] = "";

    p->heap = (struct heap){0};
    switch ((enum heap_kind)h.kind) {
    case HEAP_NONE:
        return;
    case HEAP_WRITE:
        if (h.layer == LAYERS) {
            (void)snprintf(what, sizeof what, "writes the context of %s: %u piece%s", h.id,
                           h.pieces, plural(h.pieces));
        } else {
            (void)snprintf(what, sizeof what, "writes layer %u of %s: %u piece%s", h.layer, h.id,
                           h.pieces, plural(h.pieces));
        }
        break;
    case HEAP_FULL:
        (void)snprintf(what, sizeof what, "finds no room on the rail for more of %s", h.id);
        break;
    case HEAP_DONE:
        if (h.failed > 0 && h.pieces == 0) {
            (void)snprintf(what, sizeof what, "sees %u piece%s of %s fail", h.failed,
                           plural(h.failed), h.id);
        } else if (h.failed > 0) {
            (void)snprintf(what, sizeof what, "sees %u piece%s of %s complete and %u fail",
                           h.pieces, plural(h.pieces), h.id, h.failed);
        } else {
            (void)snprintf(what, sizeof what, "sees %u piece%s of %s complete", h.pieces,
                           plural(h.pieces), h.id);
        }
        break;
    case HEAP_IMM:
        tell_imm(&h, what);
        break;
    }
    add(p, h.at, what);
}

static void heap(struct prose *p, uint32_t kind, const char *id, uint32_t layer, uint32_t pieces)
{
    struct heap *h = &p->heap;

    if (h->kind != kind || h->at != p->now || h->layer != layer || strcmp(h->id, id) != 0) {
        flush(p);
        *h = (struct heap){.kind = kind, .at = p->now, .layer = layer};
        (void)snprintf(h->id, sizeof h->id, "%s", id);
    }
    h->pieces += pieces;
    p->spoke = false;
}

static void say(struct prose *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct prose *p, const char *format, ...)
{
    char what[TALE_LINE_BYTES];
    va_list list;

    flush(p);
    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    add(p, p->now, what);
    p->spoke = true;
}

/* ---- Names -------------------------------------------------------------------------------- */

static const char *other(const struct prose *p, uint32_t peer)
{
    if (peer >= PEERS_MAX) {
        return "nobody";
    }
    uint64_t node = p->other[p->session_of[peer]];
    return tale_node(node == 0 ? p->node->node_of[peer] : (uint32_t)node - 1);
}

static void learn(struct prose *p, uint32_t peer, const struct hlg_request_message *m)
{
    struct name *n = &p->names[p->name_count++];

    HLG_ASSERT(p->name_count < NAMES_MAX);
    *n = (struct name){
        .peer = peer, .number = m->number, .imm = hlg_imm_make(m->slot, m->generation, 0)};
    memcpy(n->id, m->id, hlg_min_u32(m->id_bytes, sizeof n->id - 1));
}

static const char *by_number(const struct prose *p, uint32_t peer, uint64_t number)
{
    for (uint32_t i = p->name_count; i > 0; i--) {
        if (p->names[i - 1].number == number && p->names[i - 1].peer == peer) {
            return p->names[i - 1].id;
        }
    }
    return "an unknown request";
}

static const char *by_imm(const struct prose *p, uint32_t peer, uint32_t imm)
{
    for (uint32_t i = p->name_count; i > 0; i--) {
        const struct name *n = &p->names[i - 1];
        if (n->imm == (imm & ~0xfu) && (peer == HLG_NONE || n->peer == peer)) {
            return n->id;
        }
    }
    return "an unknown request";
}

/* The engines' own books know the handles. */
static const char *by_handle(const struct prose *p, uint64_t handle)
{
    for (uint32_t i = p->name_count; i > 0; i--) {
        if (p->names[i - 1].handle == handle) {
            return p->names[i - 1].id;
        }
    }
    for (uint32_t i = JOBS_MAX; p->node->decode && i > 0; i--) {
        const struct job *job = &p->tale->scene.jobs[i - 1];
        if (job->used && job->node == p->node->index && job->handle == handle) {
            return job->id;
        }
    }
    return "an unknown request";
}

static void list_pages(const struct hlg_page_list *list, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < list->count && used + 8 < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, " %u", list->pages[i]);
    }
}

/* ---- Messages ----------------------------------------------------------------------------- */

static void tell_answer_sent(struct prose *p, uint32_t peer, const struct hlg_message *m)
{
    const char *id = by_number(p, peer, m->answer.number);
    const char *to = other(p, peer);
    unsigned pieces = (unsigned)m->answer.pieces;

    if (m->kind == HLG_MESSAGE_ACCEPT) {
        say(p, "accepts %s, and counts %u piece%s too (ACCEPT to %s)", id, pieces, plural(pieces),
            to);
    } else if (m->kind == HLG_MESSAGE_REJECT && m->answer.retry_after_ns != 0) {
        say(p, "rejects %s of %s (%s): ask again in %u ms", id, to, reasons[m->answer.reason],
            (unsigned)(m->answer.retry_after_ns / HLG_NS_PER_MS));
    } else if (m->kind == HLG_MESSAGE_REJECT) {
        say(p, "rejects %s of %s (%s)", id, to, reasons[m->answer.reason]);
    } else if (m->kind == HLG_MESSAGE_CANCEL) {
        say(p, "asks %s to stop %s (CANCEL)", to, id);
    } else if (m->kind == HLG_MESSAGE_FENCED) {
        say(p, "says FENCED of %s to %s: %u pieces were posted, none is outstanding", id, to,
            pieces);
    } else {
        say(p, "says FAILED (%s) of %s to %s: %u pieces were posted", reasons[m->answer.reason], id,
            to, pieces);
    }
}

static void tell_credit(struct prose *p, const char *verb, const char *node,
                        const struct hlg_credit *credit)
{
    if (credit->count > 0) {
        say(p, "%s %s that %u immediates are taken (CREDIT)", verb, node,
            (unsigned)credit->entries[0].pieces);
    } else {
        say(p, "%s %s that %u request%s of its grant %s over (CREDIT)", verb, node,
            (unsigned)credit->finished.requests, plural((uint32_t)credit->finished.requests),
            credit->finished.requests == 1 ? "is" : "are");
    }
}

static void tell_sent(struct prose *p, const struct hlg_action_send *send)
{
    const struct hlg_message *m = &send->message;
    const char *to = other(p, send->peer);

    switch ((enum hlg_message_kind)m->kind) {
    case HLG_MESSAGE_HELLO:
        say(p, "greets %s (HELLO)", to);
        return;
    case HLG_MESSAGE_REQUEST:
        learn(p, send->peer, &m->request);
        say(p, "asks %s for %s: %u page%s, %u piece%s (REQUEST %u)", to,
            p->names[p->name_count - 1].id, m->request.groups[0].count,
            plural(m->request.groups[0].count), (unsigned)m->request.pieces,
            plural((uint32_t)m->request.pieces), (unsigned)m->request.number);
        return;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        tell_answer_sent(p, send->peer, m);
        return;
    case HLG_MESSAGE_CREDIT:
        tell_credit(p, "tells", to, &m->credit);
        return;
    case HLG_MESSAGE_HEARTBEAT:
        return;
    case HLG_MESSAGE_DRAIN:
        say(p, "asks %s for no more requests (DRAIN)", to);
        return;
    case HLG_MESSAGE_BYE:
        say(p, "says BYE to %s", to);
        return;
    }
}

static void tell_heard(struct prose *p, uint32_t peer, const struct hlg_message *m)
{
    const char *from = other(p, peer);

    switch ((enum hlg_message_kind)m->kind) {
    case HLG_MESSAGE_HELLO:
        say(p, "hears HELLO of %s, incarnation %u", from, (unsigned)m->hello.incarnation);
        return;
    case HLG_MESSAGE_REQUEST:
        learn(p, peer, &m->request);
        say(p, "hears that %s asks for %s", from, p->names[p->name_count - 1].id);
        return;
    case HLG_MESSAGE_ACCEPT:
        say(p, "hears that %s accepts %s", from, by_number(p, peer, m->answer.number));
        return;
    case HLG_MESSAGE_REJECT:
        say(p, "hears that %s rejects %s", from, by_number(p, peer, m->answer.number));
        return;
    case HLG_MESSAGE_CANCEL:
        say(p, "hears CANCEL of %s from %s", by_number(p, peer, m->answer.number), from);
        return;
    case HLG_MESSAGE_FENCED:
        say(p, "hears FENCED of %s from %s", by_number(p, peer, m->answer.number), from);
        return;
    case HLG_MESSAGE_FAILED:
        say(p, "hears FAILED (%s) of %s from %s", reasons[m->answer.reason],
            by_number(p, peer, m->answer.number), from);
        return;
    case HLG_MESSAGE_CREDIT:
        tell_credit(p, "hears from", from, &m->credit);
        return;
    case HLG_MESSAGE_HEARTBEAT:
        return;
    case HLG_MESSAGE_DRAIN:
        say(p, "hears DRAIN of %s", from);
        return;
    case HLG_MESSAGE_BYE:
        say(p, "hears BYE of %s", from);
        return;
    }
}

/* ---- Events ------------------------------------------------------------------------------- */

static void tell_submit(struct prose *p, const struct hlg_event_submit *e)
{
    char pages[80];
    char id[16] = "";
    char after[64] = "";

    memcpy(id, e->id, hlg_min_u32(e->id_bytes, sizeof id - 1));
    list_pages(&e->groups[0], pages, sizeof pages);
    if (e->groups[0].first > 0) {
        (void)snprintf(after, sizeof after, ", after %u that are there", e->groups[0].first);
    }
    if (e->groups[0].count == 0) {
        say(p, "its engine submits %s: %u token%s, no page is missing", id, e->tokens,
            plural(e->tokens));
    } else {
        say(p, "its engine submits %s: %u tokens into page%s%s%s", id, e->tokens,
            plural(e->groups[0].count), pages, after);
    }
}

static void tell_admit(struct prose *p, const struct hlg_event_admit *e)
{
    char pages[80];

    list_pages(&e->groups[0], pages, sizeof pages);
    if (e->cached_tokens > 0) {
        say(p, "its engine admits %s with source pages%s, which hold %u tokens already",
            by_handle(p, e->request), pages, e->cached_tokens);
    } else {
        say(p, "its engine admits %s with source pages%s", by_handle(p, e->request), pages);
    }
}

static void tell_layer(struct prose *p, const struct hlg_event_layer *e)
{
    uint32_t layers = e->value & 0xff;

    if (layers > LAYERS) {
        say(p, "its forward %u has computed the context", e->value >> 8);
    } else {
        say(p, "its forward %u has computed layer %u", e->value >> 8, layers - 1);
    }
}

static void tell_closed(struct prose *p, const struct hlg_event_peer *e)
{
    if (e->status != 0) {
        say(p, "cannot close its endpoints for %s for certain", other(p, e->peer));
    } else if (p->node->decode) {
        say(p, "has closed its endpoints for %s: nothing of it can land any more",
            other(p, e->peer));
    } else {
        say(p, "has closed its endpoints for %s", other(p, e->peer));
    }
}

static void tell_pieces(struct prose *p, const struct hlg_event *e)
{
    if (e->kind == HLG_EVENT_TAKEN) {
        const char *id = by_imm(p, p->op_peer[p->write_op], p->op_imm[p->write_op]);
        heap(p, e->taken.pieces > 0 ? HEAP_WRITE : HEAP_FULL, id, p->write_layer, e->taken.pieces);
    } else if (e->kind == HLG_EVENT_DONE_WRITE) {
        const uint32_t op = e->done.op % OPS_MAX;
        heap(p, HEAP_DONE, by_imm(p, p->op_peer[op], p->op_imm[op]), 0, e->done.done);
        p->heap.failed += e->done.failed;
    } else {
        heap(p, HEAP_IMM, by_imm(p, HLG_NONE, e->imm.imm), 0, e->imm.pieces);
    }
}

static void tell_engine(struct prose *p, const struct hlg_event *e)
{
    switch ((enum hlg_event_kind)e->kind) {
    case HLG_EVENT_SUBMIT:
        tell_submit(p, &e->submit);
        return;
    case HLG_EVENT_CANCEL:
        say(p, "its engine gives %s up (CANCEL)", by_handle(p, e->request));
        return;
    case HLG_EVENT_RELEASE:
        say(p, "its engine releases %s", by_handle(p, e->request));
        return;
    case HLG_EVENT_DISCONNECT:
        say(p, "its engine disconnects %s", other(p, e->peer.peer));
        return;
    case HLG_EVENT_ADMIT:
        tell_admit(p, &e->admit);
        return;
    case HLG_EVENT_REJECT:
        say(p, "its engine will not have %s (REJECT)", by_handle(p, e->reject.request));
        return;
    case HLG_EVENT_CHUNK:
        say(p, "its engine announces tokens %u to %u of %s in forward %u", e->chunk.token_begin,
            e->chunk.token_begin + e->chunk.token_count - 1, by_handle(p, e->chunk.request),
            e->chunk.forward);
        return;
    case HLG_EVENT_FORWARD_END:
        say(p, "its engine ends forward %u", e->forward);
        return;
    case HLG_EVENT_FORWARD_ABORT:
        say(p, "its engine aborts forward %u", e->forward);
        return;
    case HLG_EVENT_DRAIN:
        say(p, "its engine drains the node");
        return;
    default:
        return;
    }
}

static void tell_event(struct prose *p, const struct hlg_event *e)
{
    p->spoke = false;
    p->now = e->now;
    switch ((enum hlg_event_kind)e->kind) {
    case HLG_EVENT_CHANNEL_UP:
        p->session_of[e->peer.peer] = ++p->sessions;
        say(p, "%s %s", e->peer.dialled ? "is connected to" : "is connected by",
            other(p, e->peer.peer));
        return;
    case HLG_EVENT_MESSAGE:
        tell_heard(p, e->peer.peer, e->peer.message);
        return;
    case HLG_EVENT_PEER_DOWN:
        say(p, "learns that its connection to %s is over", other(p, e->peer.peer));
        return;
    case HLG_EVENT_PEER_CLOSED:
        tell_closed(p, &e->peer);
        return;
    case HLG_EVENT_LAYER:
        tell_layer(p, &e->layer);
        return;
    case HLG_EVENT_TAKEN:
    case HLG_EVENT_DONE_WRITE:
    case HLG_EVENT_IMM:
        tell_pieces(p, e);
        return;
    default:
        tell_engine(p, e);
        return;
    }
}

/* ---- Notices and notes -------------------------------------------------------------------- */

static void tell_session_notice(struct prose *p, const struct hlg_notice *n)
{
    char text[160] = "";

    if (n->kind == HLG_NOTICE_PEER_UP) {
        say(p, "tells its engine: %s is up", other(p, n->peer));
    } else if (n->kind == HLG_NOTICE_PEER_DOWN) {
        say(p, "tells its engine: %s is down", other(p, n->peer));
    } else if (n->kind == HLG_NOTICE_PEER_DRAINING) {
        say(p, "tells its engine: %s takes no new requests", other(p, n->peer));
    } else {
        (void)hlg_refusal_text(&n->refusal, text, sizeof text);
        say(p, "tells its engine: %s and this node cannot work together: %s", other(p, n->peer),
            text);
    }
}

static void tell_notice(struct prose *p, const struct hlg_notice *n)
{
    char id[16] = "";
    unsigned counted = (unsigned)n->pieces_counted;
    unsigned expected = (unsigned)n->pieces_expected;

    memcpy(id, n->id, hlg_min_u32(n->id_bytes, sizeof id - 1));
    switch ((enum hlg_notice_kind)n->kind) {
    case HLG_NOTICE_PEER_UP:
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
        tell_session_notice(p, n);
        return;
    case HLG_NOTICE_REQUESTED:
        p->names[p->name_count - 1].handle = n->request;
        say(p, "tells its engine: %s wants %s, %u piece%s", other(p, n->peer), id, expected,
            plural(expected));
        return;
    case HLG_NOTICE_STOPPING:
        say(p, "tells its engine: %s is STOPPING (%s), %u of %u pieces are posted", id,
            reasons[n->reason], counted, expected);
        return;
    case HLG_NOTICE_SENT:
        say(p, "tells its engine: %s is SENT, its source pages are free", id);
        return;
    case HLG_NOTICE_FENCED:
        say(p, "tells its engine: %s is FENCED, its source pages are free", id);
        return;
    case HLG_NOTICE_ACCEPTED:
        say(p, "tells its engine: %s is accepted", id);
        return;
    case HLG_NOTICE_READY:
        say(p, "tells its engine: %s is READY, %u of %u piece%s, %u bytes", id, counted, expected,
            plural(expected), (unsigned)n->bytes);
        return;
    case HLG_NOTICE_FAILED:
        say(p, "tells its engine: %s FAILED (%s) at %u of %u pieces; its pages are not back yet",
            id, reasons[n->reason], counted, expected);
        return;
    case HLG_NOTICE_RETURNED:
        say(p, "tells its engine: the pages of %s are RETURNED", id);
        return;
    case HLG_NOTICE_POISONED:
        say(p, "tells its engine: the %spages of %s are POISONED, and never used again",
            n->submitted == 0 ? "source " : "", id);
        return;
    }
}

static void tell_note(struct prose *p, const struct hlg_note *n)
{
    static const char *const whys[] = {"",
                                       "the connection is over",
                                       "nothing was heard for the lease",
                                       "the other side said BYE",
                                       "the other side broke the protocol",
                                       "the same node greets anew",
                                       "another session of the fence domain ended",
                                       "FENCED did not come in time",
                                       "the engine asked",
                                       "too many messages wait",
                                       "writes ended in error, so that it cannot say FENCED"};
    const uint32_t pieces = (uint32_t)n->b;

    switch (n->code) {
    case HLG_NOTE_SESSION_DOWN:
        HLG_ASSERT(n->a < sizeof whys / sizeof whys[0]);
        say(p, "ends the session with %s: %s", other(p, n->peer), whys[n->a]);
        return;
    case HLG_NOTE_IMM_LATE:
        p->heap.late += p->heap.kind == HEAP_IMM ? pieces : 0;
        return;
    case HLG_NOTE_IMM_STALE:
        p->heap.stale += p->heap.kind == HEAP_IMM ? pieces : 0;
        return;
    case HLG_NOTE_CANCEL_UNKNOWN:
        say(p, "has no such request open");
        return;
    case HLG_NOTE_ANSWER_UNKNOWN:
        say(p, "ignores that: the request is over");
        return;
    case HLG_NOTE_ANSWER_FOREIGN:
        say(p, "ignores that: it is of another session or incarnation");
        return;
    case HLG_NOTE_LAYER_UNANNOUNCED:
        say(p, "ignores a stamp of a forward that nobody announced");
        return;
    default:
        return; /* the debug notes, and what other lines say */
    }
}

static void tell_action(struct prose *p, const struct hlg_action *a)
{
    switch ((enum hlg_action_kind)a->kind) {
    case HLG_ACTION_WRITE:
        p->write_op = a->write.op % OPS_MAX;
        p->write_layer = a->write.layer;
        p->op_imm[p->write_op] = a->write.imm;
        p->op_peer[p->write_op] = a->write.peer;
        return;
    case HLG_ACTION_SEND:
        tell_sent(p, &a->send);
        return;
    case HLG_ACTION_NOTICE:
        tell_notice(p, &a->notice);
        return;
    case HLG_ACTION_NOTE:
        tell_note(p, &a->note);
        return;
    case HLG_ACTION_PEER_OPEN:
    case HLG_ACTION_PEER_CLOSE:
    case HLG_ACTION_FLUSH:
        return;
    }
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* Which node each session is with: known from its HELLO, said from its connection on. */
static void find_others(struct prose *p, struct hlg_trace_log *log)
{
    struct hlg_trace_record r;
    uint32_t sessions = 0;
    uint32_t session_of[PEERS_MAX] = {0};

    while (hlg_trace_next(log, &r) != 0) {
        if (r.kind != HLG_TRACE_EVENT) {
            continue;
        }
        if (r.event.kind == HLG_EVENT_CHANNEL_UP) {
            session_of[r.event.peer.peer] = ++sessions;
            HLG_ASSERT(sessions < SESSIONS_MAX);
        } else if (r.event.kind == HLG_EVENT_MESSAGE &&
                   r.event.peer.message->kind == HLG_MESSAGE_HELLO) {
            p->other[session_of[r.event.peer.peer]] = r.event.peer.message->hello.node;
        }
    }
    hlg_trace_rewind(log);
}

static void read_log(struct tale *t, uint32_t node, struct hlg_trace_log *log)
{
    static struct prose p;
    struct hlg_trace_record r;

    p = (struct prose){.tale = t, .node = &t->scene.nodes[node]};
    find_others(&p, log);
    while (hlg_trace_next(log, &r) != 0) {
        if (r.kind == HLG_TRACE_EVENT) {
            tell_event(&p, &r.event);
        } else if (r.kind == HLG_TRACE_ACTION) {
            tell_action(&p, &r.action);
        } else if (r.kind == HLG_TRACE_RESULT && p.spoke && t->line_count > 0) {
            struct tale_line *last = &t->lines[t->line_count - 1];
            size_t used = strlen(last->what);
            (void)snprintf(last->what + used, sizeof last->what - used, " - and is told: %s",
                           hlg_error_text(r.result));
        }
    }
    flush(&p);
}

void tale_read(struct tale *t, uint32_t node)
{
    struct scene_node_state *n = &t->scene.nodes[node];
    char error[256] = "";

    for (uint32_t i = 0; i < n->lives; i++) {
        struct hlg_trace_log *log = NULL;
        size_t size = 0;
        const uint8_t *bytes = hlg_trace_bytes(n->traces[i], &size);
        if (hlg_trace_open(bytes, size, false, &log, error, sizeof error) != 0) {
            scene_break(&t->scene, "the record of %s: %s", tale_node(node), error);
            return;
        }
        read_log(t, node, log);
        hlg_trace_close(log);
    }
}
