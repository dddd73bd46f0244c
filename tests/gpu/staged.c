/*
 * The staged path over `net` on loopback, both ends in this process: pages of one region of the GPU are
 * written to other pages of a second one, and arrive there and nowhere else.
 */
#include <halage/memory.h>
#include <halage/message.h>
#include <halage/transport/ofi.h>
#include <halage/transport/staged.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define PAGE_BYTES 65536u
#define PAGES      256u
#define SENT       192u /* of them */
#define ROUNDS     8u
#define LIMIT_NS   INT64_C(30000000000)

struct end {
    struct hlg_fabric *below;
    struct hlg_staged *staged;
    struct hlg_fabric *fabric;
    struct hlg_transport *t;
    struct hlg_memory *memory;
    hlg_mem mem;
    uint8_t address[256];
    uint32_t address_bytes;
    uint32_t peer;
    uint32_t done;   /* pieces written */
    uint32_t landed; /* pieces that immediates told of */
    uint32_t failed;
};

static void say(void *context, const char *sentence)
{
    (void)printf("%s: %s\n", (const char *)context, sentence);
}

static void open_end(struct end *end, bool target)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = 0};
    const struct hlg_ofi_config ofi = {.provider = "tcp"};
    char error[512] = "";

    GPU_NEED(hlg_ofi_open(&ofi, &end->below, error, sizeof error) == 0, "%s", error);
    const struct hlg_staged_config config = {.below = end->below,
                                             .target = target,
                                             .log = say,
                                             .log_context = target ? "target" : "source"};
    GPU_NEED(hlg_staged_create(&config, &end->staged, error, sizeof error) == 0, "%s", error);
    end->fabric = hlg_staged_fabric(end->staged);
    GPU_NEED(hlg_memory_create(&site, (uint64_t)PAGES * PAGE_BYTES, &end->memory, error,
                               sizeof error) == 0,
             "%s", error);
    const struct hlg_mem_region region = hlg_memory_region(end->memory);
    GPU_NEED(end->fabric->prepare(end->fabric, &region, error, sizeof error) == 0, "%s", error);
    GPU_NEED(end->fabric->open(end->fabric, 0, 0, &end->t) == 0, "no endpoint of net");
    GPU_NEED(end->t->ops->mem_register(end->t, &region, &end->mem) == 0, "no registration");
    const int bytes = end->t->ops->address(end->t, end->address, sizeof end->address);
    GPU_NEED(bytes > 0, "no address");
    end->address_bytes = (uint32_t)bytes;
}

static void close_end(struct end *end)
{
    struct hlg_copy_stats stats;

    GPU_NEED(end->t->ops->close(end->t) == 0, "the endpoint does not close");
    end->t->ops->free(end->t);
    hlg_staged_fabric(end->staged)->copies(hlg_staged_fabric(end->staged), &stats);
    (void)printf("copies out %llu in %llu, pinned %llu bytes\n",
                 (unsigned long long)stats.copies_out, (unsigned long long)stats.copies_in,
                 (unsigned long long)stats.pinned_bytes);
    hlg_staged_destroy(end->staged);
    hlg_ofi_close(end->below);
    hlg_memory_release(end->memory);
}

static void meet(struct end *end, const struct end *other)
{
    const int peer = end->t->ops->peer_open(end->t, other->address, other->address_bytes);

    GPU_NEED(peer >= 0, "no peer");
    end->peer = (uint32_t)peer;
}

static void poll_end(struct end *end)
{
    struct hlg_transport_event events[64];
    const int count = end->t->ops->poll(end->t, events, 64);

    for (int i = 0; i < count; i++) {
        if (events[i].kind == HLG_TRANSPORT_DONE_WRITE) {
            end->done += events[i].done.done;
            end->failed += events[i].done.failed;
        } else if (events[i].kind == HLG_TRANSPORT_IMM) {
            end->landed += events[i].imm.pieces;
        } else {
            gpu_failed("the peer went down");
        }
    }
}

static void write_pages(struct end *source, struct end *target, const uint32_t *from,
                        const uint32_t *to)
{
    struct hlg_mem_export export;
    const int64_t limit = gpu_now_ns() + LIMIT_NS;

    GPU_NEED(target->t->ops->mem_export(target->t, target->mem, &export) == 0, "no export");
    struct hlg_paged_write write = {.op = 1,
                                    .peer = source->peer,
                                    .mem = source->mem,
                                    .imm = hlg_imm_make(1, 1, 0),
                                    .local = hlg_memory_base(source->memory),
                                    .local_stride = PAGE_BYTES,
                                    .remote = export.address,
                                    .remote_key = export.key,
                                    .remote_stride = PAGE_BYTES,
                                    .source_pages = from,
                                    .target_pages = to,
                                    .bytes = PAGE_BYTES,
                                    .count = 1,
                                    .piece_limit = SENT};
    source->done = 0;
    target->landed = 0;
    while (source->done < SENT || target->landed < SENT) {
        const int64_t taken =
            write.piece_begin < SENT ? source->t->ops->write(source->t, &write) : 0;
        GPU_NEED(taken >= 0 && source->failed == 0, "a write is refused or failed");
        write.piece_begin += (uint32_t)taken;
        poll_end(source);
        poll_end(target);
        GPU_NEED(gpu_now_ns() < limit, "%u of %u pages written, %u landed, after 30 s",
                 source->done, SENT, target->landed);
    }
}

/* To the GPU: what the decoder does before READY. */
static void flush_pages(struct end *target, const uint32_t *to)
{
    struct hlg_flusher *flusher = target->fabric->flusher;
    const int64_t limit = gpu_now_ns() + LIMIT_NS;
    struct hlg_flushed flushed = {.status = -1};
    uint8_t *base = hlg_memory_base(target->memory);

    for (uint32_t i = 0; i < SENT; i++) {
        while (flusher->span(flusher, base + (uint64_t)to[i] * PAGE_BYTES, PAGE_BYTES) == 0) {
            GPU_NEED(gpu_now_ns() < limit, "a page is not copied after 30 s");
        }
    }
    while (flusher->finish(flusher, 7) == 0) {
        GPU_NEED(gpu_now_ns() < limit, "the flush does not begin after 30 s");
    }
    while (flusher->poll(flusher, &flushed, 1) == 0) {
        GPU_NEED(gpu_now_ns() < limit, "the flush is not over after 30 s");
    }
    GPU_NEED(flushed.status == 0 && flushed.request == 7, "the flush failed");
}

static void verify(const struct end *target, const uint8_t *bytes, const uint32_t *from,
                   const uint32_t *to)
{
    uint8_t *seen = malloc((size_t)PAGES * PAGE_BYTES);
    static const uint8_t nothing[PAGE_BYTES];
    static bool is_target[PAGES];

    GPU_NEED(seen != NULL &&
                 hlg_memory_read(target->memory, 0, seen, (uint64_t)PAGES * PAGE_BYTES) == 0,
             "cannot read the target");
    for (uint32_t i = 0; i < SENT; i++) {
        is_target[to[i]] = true;
        GPU_NEED(memcmp(seen + (size_t)to[i] * PAGE_BYTES, bytes + (size_t)from[i] * PAGE_BYTES,
                        PAGE_BYTES) == 0,
                 "page %u of the target is not page %u of the source", to[i], from[i]);
    }
    for (uint32_t p = 0; p < PAGES; p++) {
        GPU_NEED(is_target[p] || memcmp(seen + (size_t)p * PAGE_BYTES, nothing, PAGE_BYTES) == 0,
                 "page %u of the target was not to be written", p);
    }
    free(seen);
}

void gpu_staged(void)
{
    static struct end source;
    static struct end target;
    static int64_t times[ROUNDS];
    uint8_t *bytes = malloc((size_t)PAGES * PAGE_BYTES);
    uint32_t from[SENT];
    uint32_t to[SENT];

    (void)gpu_driver();
    GPU_NEED(bytes != NULL, "out of memory");
    for (size_t i = 0; i < (size_t)PAGES * PAGE_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 167 + i / 256 + i / PAGE_BYTES);
    }
    for (uint32_t i = 0; i < SENT; i++) {
        from[i] = (i * 77 + 5) % PAGES; /* 77 is odd: no page twice */
        to[i] = (i * 33 + 9) % PAGES;
    }
    open_end(&source, false);
    open_end(&target, true);
    meet(&source, &target);
    meet(&target, &source);
    GPU_NEED(hlg_memory_write(source.memory, 0, bytes, (uint64_t)PAGES * PAGE_BYTES) == 0,
             "cannot write the source");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const int64_t begin = gpu_now_ns();
        write_pages(&source, &target, from, to);
        flush_pages(&target, to);
        times[round] = gpu_now_ns() - begin;
    }
    verify(&target, bytes, from, to);
    gpu_print_times("12 MiB from GPU to GPU memory, 192 pages, one thread for both ends", times,
                    ROUNDS);
    close_end(&source);
    close_end(&target);
    gpu_ran("%u times %u pages of %u bytes, all bytes right, no other page touched", ROUNDS, SENT,
            PAGE_BYTES);
}
