/*
 * Pages of a request that is whole go from their shadows to the GPU, run by run, and the request is over
 * when the GPU has done all of them. Only runs that the request owns are ever copied (I1).
 */
#include "internal.h"

static struct hlg_staged *staged_of(struct hlg_flusher *flusher)
{
    return (struct hlg_staged *)(void *)((uint8_t *)flusher - offsetof(struct hlg_staged, flusher));
}

static int copy(struct hlg_staged *s, const struct staged_shadow *shadow, uint8_t *base,
                uint64_t bytes)
{
    struct copier *in = shadow->gpu->in;
    int code = copier_begin(in);

    if (code == 0) {
        code = copier_in(in, base, shadow->host + (base - shadow->device), bytes);
        copier_end(in);
    }
    if (code != 0) {
        staged_copy_failed(s, shadow->gpu, in);
        return code;
    }
    s->stats.copies_in++;
    s->stats.bytes_in += bytes;
    return 0;
}

static int span(struct hlg_flusher *flusher, void *base, uint64_t bytes)
{
    struct hlg_staged *s = staged_of(flusher);
    const struct staged_shadow *shadow = staged_shadow_of(s, base, bytes);

    HLG_ASSERT(shadow != NULL); /* every GPU region was prepared, and pages lie within regions */
    s->telling.gpus |= 1u << (uint32_t)(shadow->gpu - s->gpus);
    if (s->telling.status == 0) {
        s->telling.status = copy(s, shadow, base, bytes);
    }
    return 1;
}

/* Mark what was put in on each GPU; where that fails, wait instead: nothing may be copied later on. */
static void mark(struct hlg_staged *s, struct staged_flush *flush, uint32_t number)
{
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        struct copier *in = s->gpus[i].in;
        if ((flush->gpus & 1u << i) == 0) {
            continue;
        }
        int code = copier_begin(in);
        if (code == 0) {
            code = copier_mark(in, number);
            copier_end(in);
        }
        if (code != 0) {
            staged_copy_failed(s, &s->gpus[i], in);
            (void)copier_wait(in); /* a context that cannot even wait copies nothing any more */
            flush->gpus &= ~(1u << i);
            flush->status = flush->status != 0 ? flush->status : -HLG_EIO;
        }
    }
}

static int finish(struct hlg_flusher *flusher, hlg_handle request)
{
    struct hlg_staged *s = staged_of(flusher);

    if (s->flush_count == s->config.flushes_max) {
        return 0;
    }
    const uint32_t number = (s->flush_first + s->flush_count) % s->config.flushes_max;
    struct staged_flush *flush = &s->flushes[number];
    *flush = s->telling;
    flush->request = request;
    mark(s, flush, number);
    s->telling = (struct staged_flush){0};
    s->flush_count++;
    return 1;
}

/* Whether all GPUs of a flush are done with it. */
static bool is_over(struct hlg_staged *s, struct staged_flush *flush, uint32_t number)
{
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        struct copier *in = s->gpus[i].in;
        if ((flush->gpus & 1u << i) == 0) {
            continue;
        }
        const int done = copier_done(in, number);
        if (done == 0) {
            return false;
        }
        if (done < 0) {
            staged_copy_failed(s, &s->gpus[i], in);
            (void)copier_wait(in);
            flush->status = flush->status != 0 ? flush->status : done;
        }
        flush->gpus &= ~(1u << i);
    }
    return true;
}

static int poll_flushes(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    struct hlg_staged *s = staged_of(flusher);
    uint32_t count = 0;

    while (count < capacity && s->flush_count > 0) {
        struct staged_flush *flush = &s->flushes[s->flush_first];
        if (!is_over(s, flush, s->flush_first)) {
            break;
        }
        done[count++] = (struct hlg_flushed){.request = flush->request, .status = flush->status};
        s->flush_first = (s->flush_first + 1) % s->config.flushes_max;
        s->flush_count--;
    }
    return (int)count;
}

void staged_flusher_init(struct hlg_staged *s)
{
    s->flusher = (struct hlg_flusher){.span = span, .finish = finish, .poll = poll_flushes};
}
