/*
 * One write with an immediate there, one back, over a transport as the pump calls it. Half of the time
 * between is what a write takes until its immediate is counted at the other side.
 */
#include "perf.h"

#include <halage/message.h>

#include <stdlib.h>
#include <string.h>

#define EVENTS 16u

struct ping {
    struct perf_end end; /* first */
    struct perf_fabric fabric;
    struct hlg_transport *transport;
    hlg_mem mem;
    uint32_t peer;
    bool has_peer;
    struct perf_ready other;
    uint64_t wanted; /* since the beginning, as the next ones */
    uint64_t received;
    uint64_t sent; /* taken by the transport */
    uint64_t completed;
    hlg_time begun; /* of the ping that is out */
};

static int fail(struct ping *p, const char *what, int error)
{
    (void)snprintf(p->end.error, sizeof p->end.error, "%s: %s", what, hlg_error_text(error));
    return error;
}

/* Writes one piece when it is our turn: an answer for each received, or the next ping. */
static int send_due(struct ping *p)
{
    static const uint32_t page = 0;
    const uint64_t due = p->end.target ? p->received : p->received + 1;
    const struct hlg_paged_write write = {
        .op = (hlg_op_id)(p->sent & 1),
        .peer = p->peer,
        .mem = p->mem,
        .imm = hlg_imm_make(0, 0, 0),
        .local = hlg_memory_base(p->end.arena->memory),
        .remote = p->other.base,
        .remote_key = p->other.key,
        .source_pages = &page,
        .target_pages = &page,
        .bytes = p->end.arena->shape.page_bytes,
        .count = 1,
        .piece_limit = 1,
    };

    if (p->sent >= due || p->sent >= p->wanted) {
        return 0;
    }
    if (!p->end.target && p->begun == 0) {
        p->begun = perf_now();
    }
    const int64_t taken = p->transport->ops->write(p->transport, &write);
    p->sent += taken > 0;
    return taken < 0 ? fail(p, "a write was refused", (int)taken) : 0;
}

static void take_answer(struct ping *p)
{
    p->received++;
    if (!p->end.target) {
        const hlg_time now = perf_now();
        if (p->end.sample_count < p->end.sample_capacity) {
            p->end.samples[p->end.sample_count++] = now - p->begun;
        }
        p->begun = 0;
    }
}

static int ping_step(struct perf_end *end)
{
    struct ping *p = (struct ping *)end;
    struct hlg_transport_event events[EVENTS];

    const int due = p->has_peer ? send_due(p) : 0;
    if (due < 0) {
        return due;
    }
    const int count = p->transport->ops->poll(p->transport, events, EVENTS);
    for (int i = 0; i < count; i++) {
        switch ((enum hlg_transport_event_kind)events[i].kind) {
        case HLG_TRANSPORT_IMM:
            take_answer(p);
            break;
        case HLG_TRANSPORT_DONE_WRITE:
            if (events[i].done.failed > 0) {
                return fail(p, "a write failed", events[i].done.status);
            }
            p->completed += events[i].done.done;
            break;
        case HLG_TRANSPORT_PEER_DOWN:
            return fail(p, "the other side is gone", -HLG_EPEER);
        }
    }
    return count < 0 ? fail(p, "the endpoint cannot be polled", count) : 0;
}

static int ping_join(struct perf_end *end, const struct perf_ready *other)
{
    struct ping *p = (struct ping *)end;

    p->other = *other;
    const int peer = p->transport->ops->peer_open(
        p->transport, other->address, hlg_min_u32(other->address_bytes, HLG_ADDRESS_BYTES_MAX));
    if (peer < 0) {
        return fail(p, "the other side's address cannot be used", peer);
    }
    p->peer = (uint32_t)peer;
    p->has_peer = true;
    return 0;
}

static bool ping_joined(const struct perf_end *end)
{
    return ((const struct ping *)end)->has_peer;
}

static void ping_begin(struct perf_end *end, uint64_t count)
{
    struct ping *p = (struct ping *)end;

    p->wanted += count; /* the first ping may be here before the word that it comes */
    end->sample_count = 0;
}

static bool ping_over(const struct perf_end *end)
{
    const struct ping *p = (const struct ping *)end;

    return p->received >= p->wanted && p->sent >= p->wanted && p->completed >= p->wanted;
}

static void ping_close(struct perf_end *end)
{
    struct ping *p = (struct ping *)end;

    if (p->transport != NULL) {
        (void)p->transport->ops->close(p->transport);
        p->transport->ops->free(p->transport);
    }
    perf_fabric_close(&p->fabric);
    free(p->end.samples);
    free(p);
}

/* As a pump does, for the memory of one endpoint. */
static int open_endpoint(struct ping *p, char *error)
{
    const struct hlg_mem_region region = perf_arena_region(p->end.arena, 0);
    struct hlg_fabric *fabric = p->fabric.top;
    struct perf_ready *ready = &p->end.ready;
    struct hlg_mem_export export = {0};

    int rc =
        fabric->prepare != NULL ? fabric->prepare(fabric, &region, error, PERF_ERROR_BYTES) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = fabric->open(fabric, 0, 0, &p->transport);
    if (rc == 0) {
        rc = p->transport->ops->mem_register(p->transport, &region, &p->mem);
    }
    if (rc == 0) {
        rc = p->transport->ops->mem_export(p->transport, p->mem, &export);
    }
    const int bytes =
        rc != 0 ? rc
                : p->transport->ops->address(p->transport, ready->address, sizeof ready->address);
    if (bytes < 0) {
        (void)snprintf(error, PERF_ERROR_BYTES, "an endpoint of %s cannot be opened: %s",
                       p->end.arena->shape.way.provider, hlg_error_text(bytes));
        return bytes;
    }
    ready->address_bytes = (uint32_t)bytes;
    ready->base = export.address;
    ready->key = export.key;
    return 0;
}

int perf_ping_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error)
{
    static const struct perf_end_ops ops = {.step = ping_step,
                                            .join = ping_join,
                                            .joined = ping_joined,
                                            .begin = ping_begin,
                                            .over = ping_over,
                                            .close = ping_close};
    struct ping *p = calloc(1, sizeof *p);
    if (p == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    p->end = (struct perf_end){
        .ops = &ops, .arena = arena, .target = target, .sample_capacity = target ? 0 : 1u << 16};
    p->end.samples = malloc((1 + p->end.sample_capacity) * sizeof *p->end.samples);
    int rc = p->end.samples == NULL ? -HLG_ENOMEM : 0;
    if (rc != 0) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
    } else {
        rc = perf_fabric_open(&arena->shape, place, target, &p->fabric, error);
    }
    rc = rc == 0 ? open_endpoint(p, error) : rc;
    if (rc != 0) {
        ping_close(&p->end);
        return rc;
    }
    *end = &p->end;
    return 0;
}
