/* FLUSH actions of a fabric that has something to do for them: requests wait in a queue, the first one's
 * pages are told to the flusher run by run, a bounded number a step, and its answers become events. */
#include "pump_internal.h"

#define SPANS_PER_STEP_MAX 256u
#define DONE_PER_STEP_MAX  16u

void pump_flush_add(struct hlg_pump *p, hlg_handle request)
{
    struct pump_flush *f = &p->flush;

    HLG_ASSERT(f->count < f->capacity); /* each open request once */
    f->queue[(f->first + f->count) % f->capacity] = request;
    f->count++;
}

/* The run of pages from f->page on that lies in one piece at a place. Returns its pages. */
static uint32_t run_of(const struct hlg_page_list *pages, uint32_t from, bool packed)
{
    uint32_t count = 1;

    while (packed && from + count < pages->count &&
           pages->pages[from + count] == pages->pages[from + count - 1] + 1) {
        count++;
    }
    return count;
}

/* Tell the runs of one place, from f->page on. Returns false when the flusher or the step is full. */
static bool tell_place(struct hlg_pump *p, const struct pump_place *place,
                       const struct hlg_page_list *pages, uint32_t bytes, uint32_t *budget)
{
    struct hlg_flusher *flusher = p->flusher;
    struct pump_flush *f = &p->flush;
    const struct hlg_mem_region *region = &p->regions[place->region].memory;

    while (region->kind != HLG_MEMORY_HOST && f->page < pages->count) {
        const uint32_t run = run_of(pages, f->page, place->stride == bytes);
        uint8_t *base =
            (uint8_t *)region->base + place->offset + pages->pages[f->page] * place->stride;
        if (*budget == 0 || flusher->span(flusher, base, (uint64_t)run * bytes) == 0) {
            return false;
        }
        --*budget;
        f->page += run;
    }
    f->page = 0;
    return true;
}

/* Tell all that a request owns, place by place. Returns true when that is done. */
static bool tell_all(struct hlg_pump *p, hlg_handle request, uint32_t *budget)
{
    const struct hlg_layout *layout = &p->layout;
    const uint32_t of_pool = layout->rank_limit - layout->rank_begin;
    struct pump_flush *f = &p->flush;
    struct hlg_page_list pages;
    uint32_t pool = 0;

    if (p->flusher->span == NULL) {
        return true;
    }
    for (; f->place < p->places_max; f->place++) {
        const struct pump_place *place = &p->places[f->place];
        const uint32_t group = f->place / (p->planes * (layout->layers + 1)) % layout->group_count;
        const uint32_t lane = f->place / (p->planes * (layout->layers + 1) * layout->group_count);
        if (lane >= p->lanes) {
            break;
        }
        const bool found = hlg_decode_pages(p->machine.memory, request, group, &pool, &pages);
        HLG_ASSERT(found); /* it is kept until FLUSHED */
        if (place->region == HLG_NONE || lane / of_pool != pool) {
            continue;
        }
        if (!tell_place(p, place, &pages, hlg_layout_page_bytes(layout, group), budget)) {
            return false;
        }
    }
    return true;
}

int pump_flush_step(struct hlg_pump *p)
{
    struct hlg_flusher *flusher = p->flusher;
    struct pump_flush *f = &p->flush;
    struct hlg_flushed done[DONE_PER_STEP_MAX];
    uint32_t budget = SPANS_PER_STEP_MAX;
    int work = 0;

    while (f->count > 0 && tell_all(p, f->queue[f->first], &budget) &&
           flusher->finish(flusher, f->queue[f->first]) != 0) {
        f->first = (f->first + 1) % f->capacity;
        f->count--;
        f->under_way++;
        f->place = 0;
        f->page = 0;
        work++;
    }
    const int count = f->under_way > 0 ? flusher->poll(flusher, done, DONE_PER_STEP_MAX) : 0;
    for (int i = 0; i < count; i++) {
        struct hlg_event event = {.kind = done[i].status == 0 ? HLG_EVENT_FLUSHED
                                                              : HLG_EVENT_FLUSH_FAILED,
                                  .request = done[i].request};
        const int error = pump_feed(p, &event);
        HLG_ASSERT(error == 0 && f->under_way > 0);
        f->under_way--;
        work++;
    }
    return work;
}

void pump_flush_drain(struct hlg_pump *p)
{
    struct hlg_flusher *flusher = p->flusher;
    struct pump_flush *f = &p->flush;
    struct hlg_flushed done[DONE_PER_STEP_MAX];

    if (f->count > 0 && (f->place > 0 || f->page > 0)) { /* told in part */
        while (flusher->finish(flusher, f->queue[f->first]) == 0) {
            f->under_way -= (uint32_t)flusher->poll(flusher, done, DONE_PER_STEP_MAX);
        }
        f->under_way++;
    }
    f->count = 0;
    while (f->under_way > 0) {
        f->under_way -= (uint32_t)flusher->poll(flusher, done, DONE_PER_STEP_MAX);
    }
}

bool pump_flush_busy(const struct hlg_pump *p)
{
    return p->flush.count > 0 || p->flush.under_way > 0;
}
