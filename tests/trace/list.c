/*
 * The canonical list, made of traces alone: of every request the pieces that were written, the messages
 * about it, and its ends at both engines. Left out is what may differ from network to network and run
 * to run: times, handles, numbers of operations, rails, immediates, how pieces were merged into writes
 * and offered again, credit, heartbeats; and how many pieces a decoder had counted of a request that
 * failed, and the notice ACCEPTED, which READY may overtake; and the answer to a CANCEL that crossed the
 * prefiller's own FENCED. A line is a row of numbers behind a word, so that sorting needs no knowledge of it.
 */
#include "samecore.h"

#include <halage/log.h>
#include <halage/wire.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 17u
#define PEERS   8u
#define SLOTS   1024u /* low bits of a decoder's slot */
#define NUMBERS 1024u
#define CHUNKS  16u
#define NOBODY  UINT32_MAX

/* In the order in which they stand below a request. */
enum line_kind {
    LINE_CHUNK = 0,
    LINE_PIECE,
    LINE_MESSAGE,
    LINE_NOTICE,
};

struct line {
    uint32_t kind;
    uint32_t column[COLUMNS]; /* column 0: request */
};

struct list {
    struct line *lines;
    size_t count;
    size_t capacity;
    bool full;
};

/* A request as one prefill node knows it. */
struct known {
    bool used;
    uint32_t index;
    struct hlg_request_message message;
    uint32_t pages[GROUPS_MAX][PAGES_MAX];
    hlg_handle handle;
    uint32_t cached_tokens;
    uint32_t chunk_count;
    uint32_t ends[CHUNKS];
};

struct reading {
    struct list *list;
    uint32_t scene;
    struct hlg_trace_log *log;
    const struct hlg_layout *layout;
    bool prefill;
    struct known known[OF_SCENE];
    uint32_t number_of[PEERS][NUMBERS]; /* index of a REQUEST's number */
    uint32_t slot_of[PEERS][SLOTS];
    struct known *chunked; /* the record before was a CHUNK of it: a RESULT takes it back */
    bool writing;          /* the record before was a WRITE: */
    struct hlg_action_write write;
    struct hlg_slice slice;
    const char *fault;
};

struct list *list_make(void)
{
    return calloc(1, sizeof(struct list));
}

void list_free(struct list *list)
{
    if (list != NULL) {
        free(list->lines);
        free(list);
    }
}

static struct line *add(struct reading *r, enum line_kind kind, uint32_t index)
{
    static struct line spill;
    struct list *list = r->list;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 4096 : 2 * list->capacity;
        struct line *grown = realloc(list->lines, capacity * sizeof *grown);
        if (grown == NULL) {
            list->full = true;
            return &spill;
        }
        list->lines = grown;
        list->capacity = capacity;
    }
    struct line *line = &list->lines[list->count++];
    *line = (struct line){.kind = kind, .column = {r->scene * OF_SCENE + index}};
    return line;
}

static void fault(struct reading *r, const char *what)
{
    r->fault = r->fault == NULL ? what : r->fault;
}

/* ---- Messages ---- */

static void learn_request(struct reading *r, uint32_t peer, const struct hlg_request_message *m)
{
    uint32_t index = m->id[0];

    if (m->id_bytes != 4 || index >= OF_SCENE || peer >= PEERS || m->slot >= SLOTS ||
        m->number >= NUMBERS || m->group_count > GROUPS_MAX) {
        fault(r, "a REQUEST that the script does not know");
        return;
    }
    struct known *k = &r->known[index];
    *k = (struct known){.used = true, .index = index, .message = *m};
    for (uint32_t g = 0; g < m->group_count; g++) {
        memcpy(k->pages[g], m->groups[g].pages, m->groups[g].count * sizeof(uint32_t));
    }
    r->number_of[peer][m->number] = index;
    r->slot_of[peer][m->slot] = index;
}

static void add_message(struct reading *r, uint32_t peer, const struct hlg_message *m)
{
    bool request = m->kind == HLG_MESSAGE_REQUEST;

    if (m->kind < HLG_MESSAGE_REQUEST || m->kind > HLG_MESSAGE_FAILED) {
        return;
    }
    if (request && !r->prefill) {
        learn_request(r, peer, &m->request);
    }
    uint64_t number = request ? m->request.number : m->answer.number;
    if (peer >= PEERS || number >= NUMBERS || r->number_of[peer][number] == NOBODY) {
        fault(r, "a message on a request that was not asked");
        return;
    }
    struct line *line = add(r, LINE_MESSAGE, r->number_of[peer][number]);
    line->column[1] = m->kind;
    if (request) {
        line->column[2] = (uint32_t)m->request.pieces;
        line->column[3] = m->request.tokens;
        line->column[4] = m->request.pool;
        line->column[5] = m->request.offset;
        line->column[6] = m->request.source_count;
        for (uint32_t g = 0; g < m->request.group_count && g < GROUPS_MAX; g++) {
            line->column[7 + 2 * g] = m->request.groups[g].first;
            line->column[8 + 2 * g] = m->request.groups[g].count;
        }
    } else {
        line->column[2] = (uint32_t)m->answer.pieces;
        line->column[3] = m->answer.reason;
        line->column[4] = m->answer.await;
    }
}

/* ---- Pieces ---- */

static struct known *by_handle(struct reading *r, hlg_handle handle)
{
    for (uint32_t i = 0; i < OF_SCENE; i++) {
        if (r->known[i].used && r->known[i].handle == handle) {
            return &r->known[i];
        }
    }
    fault(r, "an event on a request that was not asked");
    return NULL;
}

/* The chunk, by its end, that a page goes with: the first that completes it, or the last. */
static uint32_t chunk_of(const struct reading *r, const struct known *k, uint32_t group,
                         uint32_t position)
{
    uint32_t tokens = k->message.tokens - 1;
    uint32_t whole = (position + 1) * r->layout->groups[group].page_tokens;
    uint32_t end = whole < tokens ? whole : tokens;

    if (r->layout->groups[group].kind == HLG_GROUP_CONTEXT) {
        end = tokens;
    }
    if (end <= k->cached_tokens) {
        return k->cached_tokens;
    }
    for (uint32_t c = 0; c < k->chunk_count; c++) {
        if (k->ends[c] >= end) {
            return k->ends[c];
        }
    }
    return NOBODY; /* written before its chunk was announced */
}

static void add_piece(struct reading *r, const struct known *k, uint32_t piece)
{
    const struct hlg_action_write *w = &r->write;
    const struct hlg_slice *s = &r->slice;
    uint32_t target = w->target_pages[piece / s->count];
    uint32_t run = piece % s->count;
    uint32_t at = 0;

    while (at < k->message.groups[s->group].count && k->pages[s->group][at] != target) {
        at++;
    }
    if (at == k->message.groups[s->group].count) {
        fault(r, "a write to a page that was not asked");
        return;
    }
    uint32_t position = k->message.groups[s->group].first + at;
    struct line *line = add(r, LINE_PIECE, k->index);
    const uint32_t columns[] = {chunk_of(r, k, s->group, position),
                                w->layer,
                                s->group,
                                s->plane,
                                s->source_rank,
                                s->target_rank,
                                w->lane,
                                w->target_lane,
                                position,
                                run,
                                w->source_pages[piece / s->count],
                                s->source_offset + run * s->source_stride,
                                target,
                                s->target_offset + run * s->target_stride,
                                s->bytes};
    memcpy(line->column + 1, columns, sizeof columns);
    if (columns[0] == NOBODY) {
        fault(r, "a write of a page whose chunk was not announced");
    }
}

static void add_taken(struct reading *r, uint32_t pieces)
{
    const struct hlg_action_write *w = &r->write;
    uint32_t slot = hlg_imm_slot(w->imm);

    if (w->peer >= PEERS || slot >= SLOTS || r->slot_of[w->peer][slot] == NOBODY) {
        fault(r, "a write for a slot that was not asked");
        return;
    }
    const struct known *k = &r->known[r->slot_of[w->peer][slot]];
    if (k->message.generation != hlg_imm_generation(w->imm)) {
        fault(r, "a write for an older generation");
    }
    for (uint32_t i = 0; i < pieces; i++) {
        add_piece(r, k, w->piece_begin + i);
    }
}

/* ---- Notices ---- */

static void add_notice(struct reading *r, const struct hlg_notice *n)
{
    if (n->kind == HLG_NOTICE_REQUESTED && n->message->id[0] < OF_SCENE) {
        r->known[n->message->id[0]].handle = n->request;
    }
    /* An engine's request, whatever the machine says of it. Ids are 4 bytes, peers have none. */
    if (n->request == 0 || n->id_bytes != 4 || n->id[0] >= OF_SCENE) {
        return;
    }
    if (n->kind == HLG_NOTICE_ACCEPTED) {
        return; /* left out: the last piece may overtake the ACCEPT */
    }
    bool failed = n->kind == HLG_NOTICE_FAILED;
    struct line *line = add(r, LINE_NOTICE, n->id[0]);
    line->column[1] = n->kind;
    line->column[2] = n->reason;
    line->column[3] = (uint32_t)n->pieces_expected;
    line->column[4] = failed ? 0 : (uint32_t)n->pieces_counted;
    line->column[5] = failed ? 0 : (uint32_t)n->bytes;
}

/* ---- Records ---- */

static void read_event(struct reading *r, const struct hlg_event *event)
{
    if (r->writing && event->kind == HLG_EVENT_TAKEN) {
        add_taken(r, event->taken.pieces);
    } else if (r->prefill && event->kind == HLG_EVENT_MESSAGE &&
               event->peer.message->kind == HLG_MESSAGE_REQUEST) {
        learn_request(r, event->peer.peer, &event->peer.message->request);
    } else if (event->kind == HLG_EVENT_ADMIT) {
        struct known *k = by_handle(r, event->admit.request);
        if (k != NULL) {
            k->cached_tokens = event->admit.cached_tokens;
        }
    } else if (event->kind == HLG_EVENT_CHUNK) {
        struct known *k = by_handle(r, event->chunk.request);
        if (k != NULL && k->chunk_count < CHUNKS) {
            uint32_t end = event->chunk.token_begin + event->chunk.token_count;
            k->ends[k->chunk_count++] = end;
            struct line *line = add(r, LINE_CHUNK, k->index);
            line->column[1] = event->chunk.token_begin;
            line->column[2] = end;
            r->chunked = k;
        }
    }
}

static void read_action(struct reading *r, const struct hlg_action *action)
{
    if (action->kind == HLG_ACTION_WRITE) {
        r->write = action->write;
        r->slice = *action->write.slice;
    } else if (action->kind == HLG_ACTION_NOTICE) {
        add_notice(r, &action->notice);
    } else if (action->kind == HLG_ACTION_SEND) {
        add_message(r, action->send.peer, &action->send.message);
    }
}

static void read_log(struct reading *r)
{
    struct hlg_trace_record record;
    size_t before = 0;

    hlg_trace_rewind(r->log);
    while (hlg_trace_next(r->log, &record) == 1) {
        if (record.kind == HLG_TRACE_EVENT) {
            if (record.event.kind == HLG_EVENT_SEND_REFUSED) {
                r->list->count = before; /* the SEND just read did not go */
            }
            before = r->list->count;
            r->chunked = NULL;
            read_event(r, &record.event);
            r->writing = false;
        } else if (record.kind == HLG_TRACE_RESULT && r->chunked != NULL) {
            r->list->count = before; /* refused, and announced again later */
            r->chunked->chunk_count--;
            r->chunked = NULL;
        } else if (record.kind == HLG_TRACE_ACTION) {
            before = r->list->count;
            read_action(r, &record.action);
            r->writing = record.action.kind == HLG_ACTION_WRITE;
        }
    }
}

const char *list_add(struct list *list, uint32_t scene, struct hlg_trace_log *const *logs)
{
    struct reading *r = malloc(sizeof *r);
    const char *what = r == NULL ? "out of memory" : NULL;

    for (uint32_t n = 0; n < NODES && what == NULL; n++) {
        const struct hlg_trace_head *head = hlg_trace_head(logs[n]);
        memset(r, 0, sizeof *r);
        memset(r->number_of, 0xff, sizeof r->number_of);
        memset(r->slot_of, 0xff, sizeof r->slot_of);
        r->list = list;
        r->scene = scene;
        r->log = logs[n];
        r->prefill = head->role == HLG_ROLE_PREFILL;
        r->layout = r->prefill ? &head->prefill.layout : &head->decode.layout;
        read_log(r);
        what = list->full ? "out of memory" : r->fault;
    }
    free(r);
    return what;
}

/* ---- Out ---- */

static int compare(const void *a, const void *b)
{
    const struct line *left = a;
    const struct line *right = b;

    if (left->column[0] != right->column[0]) {
        return left->column[0] < right->column[0] ? -1 : 1;
    }
    if (left->kind != right->kind) {
        return left->kind < right->kind ? -1 : 1;
    }
    for (uint32_t c = 1; c < COLUMNS; c++) {
        if (left->column[c] != right->column[c]) {
            return left->column[c] < right->column[c] ? -1 : 1;
        }
    }
    return 0;
}

static bool is_fenced(const struct line *line)
{
    return line->kind == LINE_MESSAGE && line->column[1] == HLG_MESSAGE_FENCED;
}

/* A prefiller that gave a request up has said FAILED and FENCED; a CANCEL that arrives between the two
 * is answered by that FENCED, a later one by another, of nothing. */
static void drop_crossed(struct list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct line *line = &list->lines[i];
        const struct line *next = line + 1;
        bool crossed = i + 1 < list->count && is_fenced(line) && is_fenced(next) &&
                       line->column[0] == next->column[0] && line->column[2] == 0;
        if (!crossed) {
            list->lines[kept++] = *line;
        }
    }
    list->count = kept;
}

void list_sort(struct list *list)
{
    qsort(list->lines, list->count, sizeof *list->lines, compare);
    drop_crossed(list);
}

void list_print(const struct list *list, FILE *out)
{
    static const char *const words[] = {"chunk", "piece", "message", "notice"};
    static const uint32_t columns[] = {2, 15, 12, 5};

    for (size_t i = 0; i < list->count; i++) {
        const struct line *line = &list->lines[i];
        (void)fprintf(out, "%u %s", line->column[0], words[line->kind]);
        for (uint32_t c = 1; c <= columns[line->kind]; c++) {
            (void)fprintf(out, " %u", line->column[c]);
        }
        (void)fputc('\n', out);
    }
}

uint64_t list_digest(const struct list *list)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < list->count; i++) {
        const struct line *line = &list->lines[i];
        for (uint32_t c = 0; c <= COLUMNS; c++) {
            uint32_t value = c == COLUMNS ? line->kind : line->column[c];
            for (uint32_t b = 0; b < 4; b++) {
                hash = (hash ^ (value >> (8 * b) & 0xffu)) * 0x100000001b3u;
            }
        }
    }
    return hash;
}

size_t list_count(const struct list *list)
{
    return list->count;
}
