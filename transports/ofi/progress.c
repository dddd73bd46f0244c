#define _GNU_SOURCE
#include <poll.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"
#include "halage/message.h"

/* Completions read at a time, and at most in one poll: a poll is short even in a storm. */
#define BATCH      32u
#define POLL_READS 16u

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

static struct ofi_piece *piece_take(struct ofi_endpoint *e, hlg_op_id op, uint32_t peer)
{
    HLG_ASSERT(e->piece_free < e->caps.pieces_max);
    struct ofi_piece *piece = &e->pieces[e->piece_free];
    HLG_ASSERT(piece->state == OFI_PIECE_FREE);

    e->piece_free = piece->next_free;
    piece->op = op;
    piece->peer = peer;
    piece->state = OFI_PIECE_POSTED;
    piece->status = 0;
    e->outstanding++;
    e->peers[peer].outstanding++;
    return piece;
}

static void piece_give_back(struct ofi_endpoint *e, struct ofi_piece *piece)
{
    struct ofi_peer *peer = &e->peers[piece->peer];

    HLG_ASSERT(piece->state != OFI_PIECE_FREE);
    HLG_ASSERT(e->outstanding > 0 && peer->outstanding > 0);
    e->outstanding--;
    peer->outstanding--;
    piece->state = OFI_PIECE_FREE;
    piece->next_free = e->piece_free;
    e->piece_free = (uint32_t)(piece - e->pieces);
}

/* libfabric's own error, 0 when posted. FI_DELIVERY_COMPLETE must be in the flags of each call: the
 * endpoint's default flags do not apply to fi_writemsg. */
static ssize_t post(struct ofi_endpoint *e, const struct hlg_paged_write *w, uint8_t *source,
                    uint32_t index)
{
    const uint64_t flags =
        FI_REMOTE_CQ_DATA | FI_COMPLETION | (e->owner->provider->placed ? FI_DELIVERY_COMPLETE : 0);
    void *descriptor = fi_mr_desc(e->mems[w->mem].mr);
    const struct iovec from = {.iov_base = source, .iov_len = w->bytes};
    const struct fi_rma_iov to = {
        .addr = hlg_paged_write_target(w, index),
        .len = w->bytes,
        .key = w->remote_key,
    };
    struct ofi_piece *piece = piece_take(e, w->op, w->peer);
    const struct fi_msg_rma message = {
        .msg_iov = &from,
        .desc = &descriptor,
        .iov_count = 1,
        .addr = e->peers[w->peer].address,
        .rma_iov = &to,
        .rma_iov_count = 1,
        .context = &piece->provider,
        .data = w->imm,
    };

    const ssize_t rc = fi_writemsg(e->ep, &message, flags);
    if (rc != 0) {
        piece_give_back(e, piece);
    }
    return rc;
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

static bool source_is_ours(const struct ofi_mem *mem, const uint8_t *source, uint32_t bytes)
{
    const uintptr_t offset = (uintptr_t)source - (uintptr_t)mem->base;

    return offset < mem->bytes && bytes <= mem->bytes - offset;
}

static int check_write(const struct ofi_endpoint *e, const struct hlg_paged_write *w)
{
    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (w->bytes == 0 || w->bytes > e->caps.piece_bytes_max || w->count == 0 ||
        w->piece_begin >= w->piece_limit || w->mem >= e->owner->config.mems_max ||
        e->mems[w->mem].mr == NULL) {
        return -HLG_EINVAL;
    }
    if (w->peer >= e->owner->config.peers_max || e->peers[w->peer].state != OFI_PEER_OPEN ||
        e->peers[w->peer].down) {
        return -HLG_EPEER;
    }
    return 0;
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
    const uint32_t room =
        hlg_min_u32(peer_max - peer->outstanding, e->caps.pieces_max - e->outstanding);
    const uint32_t limit = w->piece_begin + hlg_min_u32(room, w->piece_limit - w->piece_begin);
    uint32_t index = w->piece_begin;
    ssize_t rc = 0;
    for (; index < limit && rc == 0; index += rc == 0) {
        uint8_t *source = hlg_paged_write_source(w, index);
        if (!source_is_ours(&e->mems[w->mem], source, w->bytes)) {
            return index > w->piece_begin ? (int64_t)(index - w->piece_begin) : -HLG_EINVAL;
        }
        rc = post(e, w, source, index);
    }
    if (index > w->piece_begin) {
        peer->refused_first = HLG_TIME_NEVER;
        return (int64_t)(index - w->piece_begin);
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

/* ---- completions ---------------------------------------------------------------------------- */

struct output {
    struct hlg_transport_event *events;
    uint32_t capacity;
    uint32_t filled;
};

static void report_done(struct output *out, hlg_op_id op, int32_t status)
{
    const uint32_t failed = status != 0;
    const uint32_t oldest = out->filled > MERGE_SPAN ? out->filled - MERGE_SPAN : 0;

    for (uint32_t i = out->filled; i > oldest; i--) {
        struct hlg_transport_event *event = &out->events[i - 1];
        if (event->kind == HLG_TRANSPORT_DONE_WRITE && event->done.op == op) {
            event->done.done += 1 - failed;
            event->done.failed += failed;
            event->done.status = event->done.status != 0 ? event->done.status : status;
            return;
        }
    }
    HLG_ASSERT(out->filled < out->capacity);
    out->events[out->filled++] = (struct hlg_transport_event){
        .kind = HLG_TRANSPORT_DONE_WRITE,
        .done = {.op = op, .done = 1 - failed, .failed = failed, .status = status},
    };
}

static bool is_mark(uint32_t imm)
{
    return hlg_imm_weight(imm) == HLG_IMM_WEIGHT_MARK;
}

static void report_imm(struct output *out, uint32_t imm)
{
    const uint32_t pieces = is_mark(imm) ? 0 : 1u << hlg_imm_weight(imm);
    const uint32_t oldest = out->filled > MERGE_SPAN ? out->filled - MERGE_SPAN : 0;

    for (uint32_t i = out->filled; i > oldest; i--) {
        struct hlg_transport_event *event = &out->events[i - 1];
        if (event->kind == HLG_TRANSPORT_IMM && event->imm.imm >> 4 == imm >> 4 &&
            is_mark(event->imm.imm) == is_mark(imm)) {
            event->imm.pieces += pieces;
            event->imm.immediates++;
            return;
        }
    }
    HLG_ASSERT(out->filled < out->capacity);
    out->events[out->filled++] = (struct hlg_transport_event){
        .kind = HLG_TRANSPORT_IMM,
        .imm = {.imm = imm, .pieces = pieces, .immediates = 1},
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
static struct ofi_piece *piece_of(const struct ofi_endpoint *e, const void *context)
{
    const uintptr_t offset = (uintptr_t)context - (uintptr_t)e->pieces;

    if (context == NULL || offset >= e->caps.pieces_max * sizeof *e->pieces ||
        offset % sizeof *e->pieces != 0) {
        return NULL;
    }
    struct ofi_piece *piece = &e->pieces[offset / sizeof *e->pieces];
    return piece->state == OFI_PIECE_POSTED ? piece : NULL;
}

static void piece_report(struct ofi_endpoint *e, struct ofi_piece *piece, int32_t status,
                         struct output *out)
{
    struct ofi_peer *peer = &e->peers[piece->peer];

    report_done(out, piece->op, status);
    piece_give_back(e, piece);
    peer->refused_first = HLG_TIME_NEVER;
    if (peer->state == OFI_PEER_CLOSING) {
        ofi_peer_forget(e, peer);
    }
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
    bool *logged = piece != NULL ? &e->peers[piece->peer].logged : &e->stray_logged;
    if (!*logged) {
        *logged = true;
        (void)fi_cq_strerror(e->cq, error.prov_errno, error.err_data, text, sizeof text);
        if (piece != NULL) {
            ofi_log(e->owner, "a write to peer %u failed: %s (provider: %d %s)", piece->peer,
                    fi_strerror(error.err), error.prov_errno, text);
        } else {
            ofi_log(e->owner, "an error that belongs to no write: %s (provider: %d %s)",
                    fi_strerror(error.err), error.prov_errno, text);
        }
    }
    *status = status_of(error.err);
    return piece;
}

/* Whether an entry tells of a write that came here. shm of libfabric 2 leaves FI_REMOTE_WRITE out; sockets
 * sets FI_REMOTE_CQ_DATA on writes of ours too. */
static bool is_remote(const struct fi_cq_data_entry *entry)
{
    return (entry->flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) != 0 &&
           (entry->flags & FI_WRITE) == 0;
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

static void take_entry(struct ofi_endpoint *e, const struct fi_cq_data_entry *entry,
                       struct output *out)
{
    if (is_remote(entry)) {
        if ((entry->flags & FI_REMOTE_CQ_DATA) != 0) {
            report_imm(out, (uint32_t)(entry->data & UINT32_MAX));
        }
        return;
    }
    struct ofi_piece *piece = piece_of(e, entry->op_context);
    if (piece != NULL) {
        piece_report(e, piece, 0, out);
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

int ofi_poll(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);
    struct output out = {.events = events, .capacity = hlg_min_u32(capacity, INT32_MAX)};

    if (e->closed) {
        return poll_closed(e, &out);
    }
    report_down(e, &out);
    for (uint32_t reads = 0; reads < POLL_READS && out.filled < out.capacity; reads++) {
        struct fi_cq_data_entry entries[BATCH];
        const uint32_t wanted = hlg_min_u32(BATCH, out.capacity - out.filled);

        const ssize_t count = fi_cq_read(e->cq, entries, wanted);
        for (ssize_t i = 0; i < count; i++) {
            take_entry(e, &entries[i], &out);
        }
        if (count == -FI_EAVAIL) {
            int32_t status = 0;
            struct ofi_piece *piece = read_error(e, &status);
            if (piece != NULL) {
                piece_report(e, piece, status, &out);
            } else if (e->owner->provider->nameless_errors) {
                lose_all(e);
            }
        } else if (count < (ssize_t)wanted) {
            break;
        }
    }
    return (int)out.filled;
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
    if (e->closed || !e->caps.pollable || e->down_untold > 0) {
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
