#define _GNU_SOURCE
#include <poll.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"
#include "halage/message.h"

/* Completions read at a time, and at most in one poll: a poll is short even in a storm. */
#define BATCH      32u
#define POLL_READS 16u

/* Completions that one poll takes at most, and reads that it makes. */
#define POLL_ENTRIES (POLL_READS * BATCH)

/* Events looked back over for one to add to. Reports may come in parts, so a miss does no harm. */
#define MERGE_SPAN 32u

/* Reads of an empty queue after which it is taken to be empty: a provider may look at one of its own
 * entries in each, and keep it to itself (64 receive buffers of each of 64 connections that broke). */
#define EMPTY_READS 4096u

hlg_time ofi_now(struct hlg_transport *t)
{
    struct timespec now;

    (void)t;
    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A piece for a write that is about to be posted; the caller counts it once it is. */
static inline struct ofi_piece *piece_take(struct ofi_endpoint *e, uint64_t owner)
{
    struct ofi_piece *piece = e->free;

    HLG_ASSERT(piece->state == OFI_PIECE_FREE); /* NULL faults here: room was counted before */
    e->free = piece->next_free;
    piece->owner = owner;
    piece->state = OFI_PIECE_POSTED;
    return piece;
}

static void piece_give_back(struct ofi_endpoint *e, struct ofi_piece *piece)
{
    piece->state = OFI_PIECE_FREE;
    piece->next_free = e->free;
    e->free = piece;
}

/* What all pieces of a write have in common, and room for what they have not. */
struct post {
    struct ofi_endpoint *e;
    uint64_t owner;
    uint64_t flags;
    uintptr_t base; /* of our registration */
    uint64_t last;  /* where a piece may begin in it */
    void *descriptor;
    struct iovec from;
    struct fi_rma_iov to;
    struct fi_msg_rma message;
};

/* FI_DELIVERY_COMPLETE must be in the flags of each call: the endpoint's default flags do not apply to
 * fi_writemsg. */
static void post_prepare(struct ofi_endpoint *e, const struct hlg_paged_write *w, struct post *post)
{
    const struct ofi_mem *mem = &e->mems[w->mem];

    HLG_ASSERT(mem->bytes >= w->bytes);
    post->e = e;
    post->owner = ofi_owner(w->op, w->peer);
    post->base = (uintptr_t)mem->base;
    post->last = mem->bytes - w->bytes;
    post->flags =
        FI_REMOTE_CQ_DATA | FI_COMPLETION | (e->owner->provider->placed ? FI_DELIVERY_COMPLETE : 0);
    post->descriptor = fi_mr_desc(e->mems[w->mem].mr);
    post->from.iov_len = w->bytes;
    post->to.len = w->bytes;
    post->to.key = w->remote_key;
    post->message = (struct fi_msg_rma){
        .msg_iov = &post->from,
        .desc = &post->descriptor,
        .iov_count = 1,
        .addr = e->peers[w->peer].address,
        .rma_iov = &post->to,
        .rma_iov_count = 1,
        .data = w->imm,
    };
}

/* Whether a piece that begins here lies in our registration. */
static inline bool is_inside(const struct post *post, const uint8_t *source)
{
    return (uintptr_t)source - post->base <= post->last;
}

/* Of a piece in our registration. Returns 0 or libfabric's own error. */
static inline ssize_t post_piece(struct post *post, uint8_t *source, uint64_t target)
{
    struct ofi_piece *piece = piece_take(post->e, post->owner);

    post->from.iov_base = source;
    post->to.addr = target;
    post->message.context = &piece->provider;
    const ssize_t rc = fi_writemsg(post->e->ep, &post->message, post->flags);
    if (rc != 0) {
        piece_give_back(post->e, piece);
    }
    return rc;
}

/* The last page whose piece lies in our registration; the first one's does. */
static uint32_t page_last(const struct post *post, const uint8_t *first, uint64_t stride)
{
    const uint64_t room = post->last - ((uintptr_t)first - post->base);

    return stride == 0 ? UINT32_MAX : (uint32_t)hlg_min_u64(room / stride, UINT32_MAX); /* floor */
}

/* Pages of one piece each. This and take_writes() are what a page costs at its source: what can be done once
 * for a write is done outside the loop. */
static uint32_t post_pages(struct post *post, const struct hlg_paged_write *w, uint32_t begin,
                           uint32_t limit, ssize_t *rc)
{
    const uint32_t *const source_pages = w->source_pages;
    const uint32_t *const target_pages = w->target_pages;
    const uint64_t local_stride = w->local_stride;
    const uint64_t remote_stride = w->remote_stride;
    uint8_t *const local = w->local + w->source_offset;
    const uint64_t remote = w->remote + w->target_offset;
    const uint64_t owner = post->owner;
    const uint32_t last = is_inside(post, local) ? page_last(post, local, local_stride) : 0;
    struct ofi_piece *piece = post->e->free;
    ssize_t error = is_inside(post, local) ? 0 : -FI_EFAULT;
    uint32_t i = begin;

    for (; error == 0 && i < limit; i++) {
        const uint32_t page = source_pages[i];
        if (page > last) {
            error = -FI_EFAULT;
            break;
        }
        HLG_ASSERT(piece->state == OFI_PIECE_FREE); /* NULL faults here: room was counted before */
        struct ofi_piece *const next = piece->next_free;
        piece->owner = owner;
        piece->state = OFI_PIECE_POSTED;
        post->from.iov_base = local + page * local_stride;
        post->to.addr = remote + target_pages[i] * remote_stride;
        post->message.context = &piece->provider;
        error = fi_writemsg(post->e->ep, &post->message, post->flags);
        if (error != 0) {
            piece->state = OFI_PIECE_FREE;
            break;
        }
        piece = next;
    }
    post->e->free = piece;
    *rc = error;
    return i - begin;
}

/* Pages of any number of pieces. */
static uint32_t post_parts(struct post *post, const struct hlg_paged_write *w, uint32_t begin,
                           uint32_t limit, ssize_t *rc)
{
    uint32_t page = begin / w->count; /* floor: the page that holds it */
    uint32_t part = begin % w->count;
    uint32_t index = begin;

    for (; index < limit; page++, part = 0) {
        uint8_t *source = w->local + w->source_pages[page] * w->local_stride + w->source_offset +
                          (uint64_t)part * w->source_stride;
        uint64_t target = w->remote + w->target_pages[page] * w->remote_stride + w->target_offset +
                          (uint64_t)part * w->target_stride;
        const uint32_t end = index + hlg_min_u32(limit - index, w->count - part);
        for (; index < end; index++) {
            *rc = is_inside(post, source) ? post_piece(post, source, target) : -FI_EFAULT;
            if (*rc != 0) {
                return index - begin;
            }
            source += w->source_stride;
            target += w->target_stride;
        }
    }
    return index - begin;
}

/* Post pieces [begin, limit) until one is refused. Returns how many were posted; *rc says why no more. */
static uint32_t post_pieces(struct ofi_endpoint *e, const struct hlg_paged_write *w, uint32_t begin,
                            uint32_t limit, ssize_t *rc)
{
    struct post post;

    *rc = 0;
    post_prepare(e, w, &post);
    const uint32_t posted = w->count == 1 ? post_pages(&post, w, begin, limit, rc)
                                          : post_parts(&post, w, begin, limit, rc);
    e->outstanding += posted;
    e->peers[w->peer].outstanding += posted;
    return posted;
}

static void peer_is_down(struct ofi_endpoint *e, uint32_t number, const char *why)
{
    struct ofi_peer *peer = &e->peers[number];

    HLG_ASSERT(!peer->down);
    peer->down = true;
    peer->down_untold = true;
    e->down_untold++;
    ofi_log(e->owner, "peer %u is down: %s", number, why);
}

/* A refusal that follows the last one by more than stall_ns says nothing of the time between. */
static void note_refusal(struct ofi_endpoint *e, uint32_t number)
{
    struct ofi_peer *peer = &e->peers[number];
    const hlg_time now = ofi_now(&e->transport);

    if (peer->refused_first == HLG_TIME_NEVER || now - peer->refused_last > e->caps.stall_ns) {
        peer->refused_first = now;
    }
    peer->refused_last = now;
    if (now - peer->refused_first >= e->caps.stall_ns) {
        peer_is_down(e, number, "it took no writes for too long");
    }
}

static int check_write(const struct ofi_endpoint *e, const struct hlg_paged_write *w)
{
    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (w->bytes == 0 || w->bytes > e->caps.piece_bytes_max || w->count == 0 ||
        w->piece_begin >= w->piece_limit || w->mem >= e->owner->config.mems_max ||
        e->mems[w->mem].mr == NULL || e->mems[w->mem].bytes < w->bytes) {
        return -HLG_EINVAL;
    }
    if (w->peer >= e->owner->config.peers_max || e->peers[w->peer].state != OFI_PEER_OPEN ||
        e->peers[w->peer].down) {
        return -HLG_EPEER;
    }
    return 0;
}

/* ---- completions ---------------------------------------------------------------------------- */

struct output {
    struct hlg_transport_event *events;
    uint32_t capacity;
    uint32_t filled;
};

static void report_done(struct output *out, hlg_op_id op, uint32_t done, uint32_t failed,
                        int32_t status)
{
    const uint32_t oldest = out->filled > MERGE_SPAN ? out->filled - MERGE_SPAN : 0;

    for (uint32_t i = out->filled; i > oldest; i--) {
        struct hlg_transport_event *event = &out->events[i - 1];
        if (event->kind == HLG_TRANSPORT_DONE_WRITE && event->done.op == op) {
            event->done.done += done;
            event->done.failed += failed;
            event->done.status = event->done.status != 0 ? event->done.status : status;
            return;
        }
    }
    HLG_ASSERT(out->filled < out->capacity);
    out->events[out->filled++] = (struct hlg_transport_event){
        .kind = HLG_TRANSPORT_DONE_WRITE,
        .done = {.op = op, .done = done, .failed = failed, .status = status},
    };
}

static bool is_mark(uint32_t imm)
{
    return hlg_imm_weight(imm) == HLG_IMM_WEIGHT_MARK;
}

/* Immediates that are equal. */
static void report_imm(struct output *out, uint32_t imm, uint32_t immediates)
{
    const uint32_t pieces = is_mark(imm) ? 0 : immediates << hlg_imm_weight(imm);
    const uint32_t oldest = out->filled > MERGE_SPAN ? out->filled - MERGE_SPAN : 0;

    for (uint32_t i = out->filled; i > oldest; i--) {
        struct hlg_transport_event *event = &out->events[i - 1];
        if (event->kind == HLG_TRANSPORT_IMM && event->imm.imm >> 4 == imm >> 4 &&
            is_mark(event->imm.imm) == is_mark(imm)) {
            event->imm.pieces += pieces;
            event->imm.immediates += immediates;
            return;
        }
    }
    HLG_ASSERT(out->filled < out->capacity);
    out->events[out->filled++] = (struct hlg_transport_event){
        .kind = HLG_TRANSPORT_IMM,
        .imm = {.imm = imm, .pieces = pieces, .immediates = immediates},
    };
}

static void report_down(struct ofi_endpoint *e, struct output *out)
{
    for (uint32_t i = 0; i < e->owner->config.peers_max && e->down_untold > 0; i++) {
        if (out->filled == out->capacity) {
            return;
        }
        if (e->peers[i].down_untold) {
            e->peers[i].down_untold = false;
            e->down_untold--;
            out->events[out->filled++] =
                (struct hlg_transport_event){.kind = HLG_TRANSPORT_PEER_DOWN, .peer = i};
        }
    }
}

/* The piece that a context names, or NULL: providers also report contexts of their own making. */
static inline struct ofi_piece *piece_of(const struct ofi_endpoint *e, const void *context)
{
    const uintptr_t offset = (uintptr_t)context - (uintptr_t)e->pieces;

    if (offset >= e->pieces_bytes || offset % sizeof *e->pieces != 0) {
        return NULL; /* NULL is among them */
    }
    struct ofi_piece *piece = (struct ofi_piece *)(uintptr_t)context;
    return piece->state == OFI_PIECE_POSTED ? piece : NULL;
}

/* Report `count` pieces of one operation that were given back. */
static void run_report(struct ofi_endpoint *e, uint64_t owner, uint32_t count, int32_t status,
                       struct output *out)
{
    struct ofi_peer *peer = &e->peers[owner >> 32];
    const uint32_t failed = status != 0 ? count : 0;

    HLG_ASSERT(e->outstanding >= count && peer->outstanding >= count);
    report_done(out, (hlg_op_id)(owner & UINT32_MAX), count - failed, failed, status);
    e->outstanding -= count;
    peer->outstanding -= count;
    peer->refused_first = HLG_TIME_NEVER;
    if (peer->state == OFI_PEER_CLOSING) {
        ofi_peer_forget(e, peer);
    }
}

static void piece_report(struct ofi_endpoint *e, struct ofi_piece *piece, int32_t status,
                         struct output *out)
{
    HLG_ASSERT(piece->state != OFI_PIECE_FREE);
    piece_give_back(e, piece);
    run_report(e, piece->owner, 1, status, out);
}

/* A write that the connection's end took along is the peer's doing; all else the provider's. */
static int32_t status_of(int error)
{
    switch (error) {
    case FI_ECANCELED:
    case FI_ENOTCONN:
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
    case FI_ECONNABORTED:
    case FI_ESHUTDOWN:
    case FI_ETIMEDOUT:
    case FI_EHOSTUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETUNREACH:
        return -HLG_EPEER;
    default:
        return -HLG_EIO;
    }
}

/* Returns the piece that failed, its status in *status; NULL when the error belongs to none. */
static struct ofi_piece *read_error(struct ofi_endpoint *e, int32_t *status)
{
    struct fi_cq_err_entry error = {0};
    char text[128] = "";

    if (fi_cq_readerr(e->cq, &error, 0) != 1) {
        return NULL;
    }
    struct ofi_piece *piece = piece_of(e, error.op_context);
    bool *logged = piece != NULL ? &e->peers[piece->owner >> 32].logged : &e->stray_logged;
    if (!*logged) {
        *logged = true;
        (void)fi_cq_strerror(e->cq, error.prov_errno, error.err_data, text, sizeof text);
        const char *const gap = *text == '\0' ? "" : " "; /* net has no words of its own */
        if (piece != NULL) {
            ofi_log(e->owner, "a write to peer %u failed: %s (provider: %d%s%s)",
                    (uint32_t)(piece->owner >> 32), fi_strerror(error.err), error.prov_errno, gap,
                    text);
        } else {
            ofi_log(e->owner, "an error that belongs to no write: %s (provider: %d%s%s)",
                    fi_strerror(error.err), error.prov_errno, gap, text);
        }
    }
    *status = status_of(error.err);
    return piece;
}

/* Whether an entry tells of a write that came here. shm of libfabric 2 leaves FI_REMOTE_WRITE out; sockets
 * sets FI_REMOTE_CQ_DATA on writes of ours too. */
static bool is_remote(const struct fi_cq_data_entry *entry)
{
    return (entry->flags & FI_WRITE) == 0 &&
           (entry->flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) != 0;
}

/* Some write failed, and the provider does not say which: whoever has one under way is lost. The write itself is
 * reported at close. */
static void lose_all(struct ofi_endpoint *e)
{
    for (uint32_t i = 0; i < e->owner->config.peers_max; i++) {
        if (e->peers[i].state == OFI_PEER_OPEN && e->peers[i].outstanding > 0 &&
            !e->peers[i].down) {
            peer_is_down(e, i, "a write failed that the provider does not name");
        }
    }
}

/* Takes immediates up to the first entry that is none. Returns how many entries. */
static size_t take_immediates(const struct fi_cq_data_entry *entries, size_t count,
                              struct output *out)
{
    uint32_t imm = 0;
    uint32_t equal = 0; /* that are not yet reported */
    size_t i = 0;

    for (; i < count && is_remote(&entries[i]); i++) {
        const uint32_t value = (uint32_t)(entries[i].data & UINT32_MAX);
        if ((entries[i].flags & FI_REMOTE_CQ_DATA) == 0) {
            continue;
        }
        if (value != imm && equal > 0) {
            report_imm(out, imm, equal);
            equal = 0;
        }
        imm = value;
        equal++;
    }
    if (equal > 0) {
        report_imm(out, imm, equal);
    }
    return i;
}

/* Likewise, writes of ours that are over. */
static size_t take_writes(struct ofi_endpoint *e, const struct fi_cq_data_entry *entries,
                          size_t count, struct output *out)
{
    struct ofi_piece *free = e->free;
    uint64_t owner = 0;
    uint32_t equal = 0;
    size_t i = 0;

    for (; i < count && !is_remote(&entries[i]); i++) {
        struct ofi_piece *piece = piece_of(e, entries[i].op_context);
        if (piece == NULL) {
            continue;
        }
        if (piece->owner != owner && equal > 0) {
            run_report(e, owner, equal, 0, out);
            equal = 0;
        }
        owner = piece->owner;
        equal++;
        piece->state = OFI_PIECE_FREE;
        piece->next_free = free;
        free = piece;
    }
    e->free = free;
    if (equal > 0) {
        run_report(e, owner, equal, 0, out);
    }
    return i;
}

/* All completions of a batch: neighbours are mostly of one kind, and of one operation or request. */
static void take_entries(struct ofi_endpoint *e, const struct fi_cq_data_entry *entries,
                         size_t count, struct output *out)
{
    for (size_t i = 0; i < count;) {
        i += take_immediates(entries + i, count - i, out);
        i += take_writes(e, entries + i, count - i, out);
    }
}

/* After close: what was under way, a report for each operation. */
static int poll_closed(struct ofi_endpoint *e, struct output *out)
{
    for (; e->drain_next < e->caps.pieces_max && out->filled < out->capacity; e->drain_next++) {
        struct ofi_piece *piece = &e->pieces[e->drain_next];
        HLG_ASSERT(piece->state != OFI_PIECE_POSTED);
        if (piece->state == OFI_PIECE_OVER) {
            piece_report(e, piece, piece->status, out);
        }
    }
    return (int)out->filled;
}

/* Read a batch. Returns what fi_cq_read said; an error of the queue is taken too, and counts as read. */
static ssize_t reap(struct ofi_endpoint *e, uint32_t wanted, struct output *out)
{
    struct fi_cq_data_entry entries[BATCH];
    int32_t status = 0;

    const ssize_t count = fi_cq_read(e->cq, entries, wanted);
    if (count > 0) {
        take_entries(e, entries, (size_t)count, out);
    } else if (count == -FI_EAVAIL) {
        struct ofi_piece *piece = read_error(e, &status);
        if (piece != NULL) {
            piece_report(e, piece, status, out);
        } else if (e->owner->provider->nameless_errors) {
            lose_all(e);
        }
        return wanted;
    }
    return count;
}

/* What write has reaped. */
static void report_stash(struct ofi_endpoint *e, struct output *out)
{
    const uint32_t count = hlg_min_u32(e->stashed, out->capacity - out->filled);

    memcpy(out->events + out->filled, e->stash, count * sizeof *e->stash);
    memmove(e->stash, e->stash + count, (e->stashed - count) * sizeof *e->stash);
    out->filled += count;
    e->stashed -= count;
}

int ofi_poll(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);
    struct output out = {.events = events, .capacity = hlg_min_u32(capacity, INT32_MAX)};
    const uint32_t patience = e->owner->provider->patience;
    uint32_t taken = 0;
    uint32_t empty = 0; /* reads since something came */

    report_stash(e, &out);
    if (e->closed) {
        return poll_closed(e, &out);
    }
    report_down(e, &out);
    while (taken < POLL_ENTRIES && out.filled < out.capacity) {
        const uint32_t wanted = hlg_min_u32(BATCH, out.capacity - out.filled);
        const ssize_t count = reap(e, wanted, &out);
        if (count > 0) {
            taken += (uint32_t)count;
            empty = 0;
            if (count < (ssize_t)wanted && patience == 0) {
                break; /* one more read is a call of the system for nothing */
            }
        } else if (taken == 0 || ++empty > patience) {
            break;
        }
    }
    return (int)out.filled;
}

/*
 * A write of ours was refused though there is room in our window. shm of libfabric 1.17 takes one write of up to 4 KiB
 * to a peer at a time, so that pages go at the pace at which both sides look: there many reads on the spot are far
 * cheaper than a round of the whole program, and over TCP a few are. What is reaped is for the next poll. Returns
 * whether a completion came.
 */
static bool await_room(struct ofi_endpoint *e, const struct ofi_peer *peer)
{
    struct output out = {.events = e->stash, .capacity = OFI_STASH, .filled = e->stashed};
    const uint32_t before = peer->outstanding;
    uint32_t left = before > 0 ? e->owner->provider->patience : 0;

    /* Else a read could find the peer lost, and what is posted to it next is posted to nobody. */
    HLG_ASSERT(left == 0 || !e->owner->provider->nameless_errors);
    for (; left > 0 && peer->outstanding == before && out.capacity - out.filled > BATCH; left--) {
        const ssize_t count = reap(e, BATCH, &out);
        if (count < 0 && count != -FI_EAGAIN) {
            break;
        }
    }
    e->stashed = out.filled;
    return peer->outstanding != before;
}

int64_t ofi_write(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    const int invalid = check_write(e, w);
    if (invalid != 0) {
        return invalid;
    }
    struct ofi_peer *peer = &e->peers[w->peer];
    const uint32_t peer_max = e->owner->config.peer_pieces_max;
    uint32_t begin = w->piece_begin;
    ssize_t rc = 0;
    do {
        const uint32_t room =
            hlg_min_u32(peer_max - peer->outstanding, e->caps.pieces_max - e->outstanding);
        const uint32_t count = hlg_min_u32(room, w->piece_limit - begin);
        begin += post_pieces(e, w, begin, begin + count, &rc);
    } while (rc == -FI_EAGAIN && begin < w->piece_limit && await_room(e, peer));
    if (begin > w->piece_begin) {
        peer->refused_first = HLG_TIME_NEVER;
        return (int64_t)(begin - w->piece_begin);
    }
    if (rc == -FI_EFAULT) {
        return -HLG_EINVAL;
    }
    if (rc != 0 && rc != -FI_EAGAIN) {
        peer_is_down(e, w->peer, fi_strerror((int)-rc));
        return -HLG_EPEER;
    }
    if (rc == -FI_EAGAIN || peer->outstanding == peer_max) {
        note_refusal(e, w->peer); /* else the endpoint is full, which is not this peer's doing */
    }
    return 0;
}

void ofi_settle_before_close(struct ofi_endpoint *e)
{
    /* Enough reads for everything that the queue can hold, so that no success is lost. */
    const uint32_t reads = e->caps.pieces_max + e->caps.cq_depth;
    struct fi_cq_data_entry entry;

    for (uint32_t i = 0; i < reads && e->outstanding > 0; i++) {
        struct ofi_piece *piece = NULL;
        int32_t status = 0;

        const ssize_t count = fi_cq_read(e->cq, &entry, 1);
        if (count == 1 && !is_remote(&entry)) {
            piece = piece_of(e, entry.op_context);
        } else if (count == -FI_EAVAIL) {
            piece = read_error(e, &status);
        } else if (count != 1) {
            break;
        }
        if (piece != NULL) {
            piece->state = OFI_PIECE_OVER;
            piece->status = status;
        }
    }
    for (uint32_t i = 0; i < e->caps.pieces_max; i++) {
        if (e->pieces[i].state == OFI_PIECE_POSTED) {
            e->pieces[i].state = OFI_PIECE_OVER;
            e->pieces[i].status = -HLG_ECANCELED;
        }
    }
}

void ofi_empty_queue(struct ofi_endpoint *e)
{
    /* What was registered is not any more: no more can come than the queues hold. */
    const uint32_t reads_max = e->caps.pieces_max + e->caps.cq_depth + EMPTY_READS * 2;
    uint32_t nothing = 0;

    for (uint32_t i = 0; i < reads_max && nothing < EMPTY_READS; i++) {
        struct fi_cq_data_entry entries[BATCH];
        int32_t status = 0;

        const ssize_t count = fi_cq_read(e->cq, entries, BATCH);
        if (count == -FI_EAVAIL) {
            (void)read_error(e, &status);
        }
        nothing = count == -FI_EAGAIN ? nothing + 1 : 0;
    }
}

/* ---- sleeping ------------------------------------------------------------------------------- */

int ofi_wait_fd(struct hlg_transport *t)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);
    uint64_t wakes = 0;

    /* fi_trywait on a queue without a wait object ends in SIGSEGV (tcp;ofi_rxm, net, shm). */
    if (e->closed || !e->caps.pollable || e->down_untold > 0 || e->stashed > 0) {
        return -HLG_ESTATE;
    }
    if (read(e->wake_fd, &wakes, sizeof wakes) == (ssize_t)sizeof wakes) {
        return -HLG_ESTATE; /* woken since the last time: look at everything once more first */
    }
    struct fid *fids[] = {&e->cq->fid};
    if (fi_trywait(e->fabric, fids, 1) != 0) {
        return -HLG_ESTATE;
    }
    /* net of 1.17 leaves the queue's descriptor readable once and for all: sleeping on it is spinning
     * (300,000 turns a second measured). Whoever finds it so sleeps by the clock instead. */
    struct pollfd now = {.fd = e->epoll_fd, .events = POLLIN};
    return poll(&now, 1, 0) == 0 ? e->epoll_fd : -HLG_ESTATE;
}

void ofi_wake(struct hlg_transport *t)
{
    const uint64_t one = 1;

    /* Fails only when the counter is full, and then the sleeper wakes anyway. */
    if (write(ofi_endpoint_of(t)->wake_fd, &one, sizeof one) < 0) {
        return;
    }
}
