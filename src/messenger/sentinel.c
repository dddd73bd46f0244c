/*
 * Flush policy READ: before a request is READY, each NIC that may have written to a GPU of the node reads a few
 * bytes of it back (struct hlg_sentinel). One round of reads serves all requests that were whole when it
 * began. It is over when each read is, or failed, or had its time: a request of a round with a failure is
 * never visible. What failed is closed, and opened anew for the next round.
 */
#include "messenger_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum step {
    STEP_BEGIN = 0, /* its read is to be begun */
    STEP_READING,
    STEP_OVER,
};

struct sentinel {
    struct hlg_sentinel *below; /* NULL: to be opened */
    struct hlg_mem_region region;
    uint32_t lane;
    uint32_t rail;
    enum step step;
};

static struct sentinels *of(struct hlg_flusher *flusher)
{
    return (struct sentinels *)(void *)flusher; /* its first member */
}

static void close_one(struct sentinel *one)
{
    if (one->below != NULL) {
        one->below->ops->free(one->below);
        one->below = NULL;
    }
}

/* The round goes on, to its end; its requests are lost. */
static void lose(struct sentinels *s, struct sentinel *one, int32_t status, const char *what)
{
    close_one(one);
    one->step = STEP_OVER;
    s->status = s->status != 0 ? s->status : status;
    (void)snprintf(s->why, sizeof s->why,
                   "the read of gpu %" PRId32 " through the NIC of lane %" PRIu32 ", rail %" PRIu32
                   " %s (%s): take flush policy cuda, or the staged path",
                   one->region.device, one->lane, one->rail, what, hlg_error_text(status));
    messenger_log(s->messenger, HLG_LOG_ERROR, "flush of gpu memory failed: %s", s->why);
}

static int open_one(struct sentinels *s, struct sentinel *one)
{
    struct hlg_fabric *fabric = s->messenger->config.fabric;

    if (one->below != NULL) {
        return 0;
    }
    const int status =
        fabric->sentinel_open(fabric, one->lane, one->rail, &one->region, &one->below);
    if (status != 0) {
        one->below = NULL;
        lose(s, one, status, "cannot be prepared");
    }
    return status;
}

static void move(struct sentinels *s, struct sentinel *one)
{
    int status = 0;

    if (one->step == STEP_BEGIN) {
        if (open_one(s, one) != 0) {
            return;
        }
        status = one->below->ops->read(one->below);
        one->step = status > 0 ? STEP_READING : STEP_BEGIN;
    } else if (one->step == STEP_READING) {
        status = one->below->ops->poll(one->below);
        one->step = status > 0 ? STEP_OVER : STEP_READING;
    }
    if (status < 0) {
        lose(s, one, status, "failed");
    }
}

static hlg_time now(const struct sentinels *s)
{
    return s->messenger->config.fabric->now(s->messenger->config.fabric);
}

static void begin_round(struct sentinels *s)
{
    s->reading = s->count - s->over;
    s->status = 0;
    s->due = now(s) + s->span;
    for (uint32_t i = 0; i < s->all_count; i++) {
        s->all[i].step = STEP_BEGIN;
    }
}

/* Returns whether the round is over. */
static bool step_round(struct sentinels *s)
{
    bool over = true;

    for (uint32_t i = 0; i < s->all_count; i++) {
        move(s, &s->all[i]);
        over = over && s->all[i].step == STEP_OVER;
    }
    if (over || now(s) < s->due) {
        return over;
    }
    for (uint32_t i = 0; i < s->all_count; i++) {
        if (s->all[i].step != STEP_OVER) {
            lose(s, &s->all[i], -HLG_EIO, "did not come back in time");
        }
    }
    return true;
}

static int finish(struct hlg_flusher *flusher, hlg_handle request)
{
    struct sentinels *s = of(flusher);

    if (s->count == FLUSHES_MAX) {
        return 0;
    }
    s->requests[s->count++] = (struct hlg_flushed){.request = request};
    return 1;
}

static int poll_over(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    struct sentinels *s = of(flusher);

    watchdog_enter(&s->messenger->watch, "sentinel");
    if (s->reading == 0 && s->count > s->over) {
        begin_round(s);
    }
    if (s->reading > 0 && step_round(s)) {
        for (; s->reading > 0; s->reading--) {
            s->requests[s->over++].status = s->status;
        }
    }
    watchdog_leave(&s->messenger->watch);
    const uint32_t count = hlg_min_u32(s->over, capacity);
    memcpy(done, s->requests, count * sizeof *done);
    s->over -= count;
    s->count -= count;
    memmove(s->requests, s->requests + count, s->count * sizeof *s->requests);
    return (int)count;
}

/* A GPU that several regions of a lane are on is one device: writes to all of them go the same way. */
static bool is_first(const struct hlg_messenger *m, uint32_t index)
{
    const struct hlg_pump_region *region = &m->regions[index];

    for (uint32_t i = 0; i < index; i++) {
        if (m->regions[i].lane == region->lane && m->regions[i].memory.kind == HLG_MEMORY_CUDA &&
            m->regions[i].memory.device == region->memory.device) {
            return false;
        }
    }
    return region->memory.kind == HLG_MEMORY_CUDA;
}

static int take_all(struct hlg_messenger *m)
{
    struct sentinels *s = &m->sentinels;
    const uint32_t rails = m->config.fabric->rails;

    s->all = calloc((size_t)m->region_count * rails + 1, sizeof *s->all);
    if (s->all == NULL) {
        return messenger_fail(m, -HLG_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < m->region_count; i++) {
        for (uint32_t rail = 0; rail < rails && is_first(m, i); rail++) {
            s->all[s->all_count++] = (struct sentinel){
                .region = m->regions[i].memory, .lane = m->regions[i].lane, .rail = rail};
        }
    }
    return 0;
}

int sentinels_start(struct hlg_messenger *m, struct hlg_flusher **flusher)
{
    struct sentinels *s = &m->sentinels;
    struct hlg_transport_caps caps;
    struct hlg_flushed trial = {0};

    m->config.fabric->query(m->config.fabric, &caps);
    s->flusher = (struct hlg_flusher){.finish = finish, .poll = poll_over};
    s->messenger = m;
    s->span = caps.stall_ns;
    const int code = take_all(m);
    if (code != 0 || s->all_count == 0) {
        return code;
    }
    for (uint32_t i = 0; i < s->all_count; i++) { /* in its own time, not in that of a round */
        const int opened = open_one(s, &s->all[i]);
        if (opened != 0) {
            return messenger_fail(m, opened, s->why);
        }
    }
    /* Whether the provider can do it shows in one read, which connects each endpoint to itself too. */
    (void)finish(&s->flusher, trial.request);
    while (poll_over(&s->flusher, &trial, 1) == 0) {
        (void)poll(NULL, 0, 1); /* bounded by the round */
    }
    if (trial.status != 0) {
        return messenger_fail(m, trial.status, s->why);
    }
    *flusher = &s->flusher;
    return 0;
}

void sentinels_end(struct hlg_messenger *m)
{
    for (uint32_t i = 0; i < m->sentinels.all_count; i++) {
        close_one(&m->sentinels.all[i]);
    }
    free(m->sentinels.all);
}
