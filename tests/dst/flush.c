/*
 * A device in small: what landed becomes visible by copies that take their time, and some fail. A request whose pages
 * are copied into has an engine that knows of it, whatever became of it meanwhile (I1).
 */
#include "world.h"

#include <string.h>

#define TAKES_NS   (HLG_NS_PER_MS / 2)
#define AGAIN_NS   (HLG_NS_PER_MS / 50)
#define REFUSE_PPM 200000u
#define FAIL_PPM   100000u

static struct device *device_of(struct hlg_flusher *flusher)
{
    return (struct device *)(void *)flusher; /* its first member */
}

/* The engine's job of a request that is not over and was not said to be READY; NULL: none, which breaks the world. */
static struct job *check_job(struct device *d, hlg_handle request)
{
    struct node *n = d->node;

    looked(n->world, CHECK_TARGET);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (n->jobs[i].used && n->jobs[i].handle == request && !n->jobs[i].ready) {
            return &n->jobs[i];
        }
    }
    world_break(n->world, CHECK_TARGET, "a device copies into pages that are not the request's",
                request, n->index);
    return NULL;
}

void device_check(struct node *n, const struct job *job)
{
    if (!n->decode || !is_on(n->world, KIND_FLUSH)) {
        return;
    }
    looked(n->world, CHECK_TARGET);
    if (job->arrived != job->visible) {
        world_break(n->world, CHECK_TARGET, "pages changed hands before the device saw all of them",
                    job->arrived, job->visible);
    }
}

static int finish(struct hlg_flusher *flusher, hlg_handle request)
{
    struct device *d = device_of(flusher);
    struct world *w = d->node->world;
    const hlg_time now = hlg_loop_now(w->loop);

    struct job *job = check_job(d, request);
    if (job == NULL || d->count == DEVICE_FLUSHES ||
        (!w->calm && hlg_rng_chance(&d->rng, REFUSE_PPM))) {
        d->again = now + AGAIN_NS;
        return 0;
    }
    d->again = HLG_TIME_NEVER;
    const hlg_time last = d->count > 0 ? d->due[d->count - 1] : now; /* in order */
    d->due[d->count] = hlg_max_u64(last, now + hlg_rng_below(&d->rng, TAKES_NS));
    d->requests[d->count++] = request;
    job->flushing = job->arrived;
    return 1;
}

static int poll_flushes(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    struct device *d = device_of(flusher);
    struct world *w = d->node->world;
    const hlg_time now = hlg_loop_now(w->loop);
    uint32_t over = 0;

    for (uint32_t i = 0; !d->ends && i < d->count; i++) {
        (void)check_job(d, d->requests[i]);
    }
    while (over < d->count && over < capacity && (d->ends || d->due[over] <= now)) {
        const bool fails = !w->calm && hlg_rng_chance(&d->rng, FAIL_PPM);
        struct job *job = fails || d->ends ? NULL : check_job(d, d->requests[over]);
        if (job != NULL) {
            job->visible = job->flushing;
        }
        done[over] = (struct hlg_flushed){d->requests[over], fails ? -HLG_EIO : 0};
        over++;
    }
    d->count -= over;
    memmove(d->due, d->due + over, d->count * sizeof *d->due);
    memmove(d->requests, d->requests + over, d->count * sizeof *d->requests);
    w->counts.net[KIND_FLUSH] += over;
    return (int)over;
}

struct hlg_flusher *device_start(struct node *n)
{
    struct device *d = &n->device;

    *d = (struct device){.flusher = {.finish = finish, .poll = poll_flushes},
                         .node = n,
                         .again = HLG_TIME_NEVER,
                         .rng = hlg_rng_seed(n->incarnation ^ ~n->world->what.seed)};
    return n->decode && is_on(n->world, KIND_FLUSH) ? &d->flusher : NULL;
}

hlg_time device_next(const struct node *n)
{
    return n->device.count > 0 ? n->device.due[0] : n->device.again;
}
