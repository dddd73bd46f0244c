/*
 * Pages that follow one another on both sides go as one write with one immediate of weight w, for 2^w pieces. The
 * machine and the other side count pieces and never know. What a transport reports of such a write is in runs of 2^w
 * pieces; w travels in the operation's number, of which the machine needs no more than the lower bits.
 */
#include "pump_internal.h"

#define WEIGHT_MAX 14u

/* How many times a piece may be doubled: 0 where its pages can never follow one another without a gap. */
static uint32_t weight_max(const struct hlg_paged_write *w, uint64_t merge_bytes_max)
{
    const uint64_t most = merge_bytes_max / w->bytes; /* floor: whole pages */

    if (most < 2 || w->count != 1 || w->local_stride != w->bytes || w->remote_stride != w->bytes) {
        return 0;
    }
    return hlg_min_u32(WEIGHT_MAX, 63 - (uint32_t)__builtin_clzll(most));
}

/* Of PUMP_ROW pages from `page` on: 0 for each that follows the one before on both sides. */
static inline pump_row gaps(const struct hlg_paged_write *w, uint32_t page)
{
    const uint32_t *const source = w->source_pages + page;
    const uint32_t *const target = w->target_pages + page;

    return (pump_row_load(source) - pump_row_load(source - 1) - 1) |
           (pump_row_load(target) - pump_row_load(target - 1) - 1);
}

static bool follows(const struct hlg_paged_write *w, uint32_t page)
{
    return w->source_pages[page] - w->source_pages[page - 1] == 1 &&
           w->target_pages[page] - w->target_pages[page - 1] == 1;
}

/* Where the row of pages ends that begins at `begin`, both sides' pages one after the other. */
static uint32_t row_limit(const struct hlg_paged_write *w, uint32_t begin)
{
    uint32_t page = begin + 1;

    while (page + PUMP_ROW <= w->piece_limit && pump_row_any(gaps(w, page)) == 0) {
        page += PUMP_ROW;
    }
    while (page < w->piece_limit && follows(w, page)) {
        page++;
    }
    return page;
}

/* Where the stretch of pages ends that begins at `begin`, of which none follows the one before. */
static uint32_t stretch_limit(const struct hlg_paged_write *w, uint32_t begin)
{
    uint32_t page = begin + 1;
    pump_row found = {0};

    for (; page + 2 * PUMP_ROW <= w->piece_limit; page += 2 * PUMP_ROW) {
        found = (pump_row)(gaps(w, page) == 0) | (pump_row)(gaps(w, page + PUMP_ROW) == 0);
        if (pump_row_any(found) != 0) {
            break;
        }
    }
    while (page < w->piece_limit && !follows(w, page)) {
        page++;
    }
    return page < w->piece_limit ? page - 1 : page;
}

/* The first runs of 2^weight pages of a row, as pieces within one page. */
static struct hlg_paged_write merged(const struct hlg_paged_write *w, uint32_t begin,
                                     uint32_t limit, uint32_t weight)
{
    struct hlg_paged_write row = *w;

    HLG_ASSERT(hlg_imm_weight(w->imm) == 0 && w->op < 1u << PUMP_OP_BITS);
    row.op |= weight << PUMP_OP_BITS;
    row.imm |= weight;
    row.source_pages += begin;
    row.target_pages += begin;
    row.bytes = hlg_u32((uint64_t)w->bytes << weight);
    row.count = (limit - begin) >> weight;
    row.source_stride = row.bytes;
    row.target_stride = row.bytes;
    row.piece_begin = 0;
    row.piece_limit = row.count;
    return row;
}

/* Returns what of pages [begin, limit) was taken, in runs of 2^weight pages, or an error. */
static int64_t write_part(struct hlg_transport *t, const struct hlg_paged_write *w, uint32_t begin,
                          uint32_t limit, uint32_t weight)
{
    if (weight == 0 && begin == w->piece_begin && limit == w->piece_limit) {
        return t->ops->write(t, w);
    }
    struct hlg_paged_write part = *w;
    part.piece_begin = begin;
    part.piece_limit = limit;
    if (weight > 0) {
        part = merged(w, begin, limit, weight);
    }
    return t->ops->write(t, &part);
}

/* What the pages from `page` on are. */
static struct pump_stretch look(const struct hlg_paged_write *w, uint32_t page,
                                uint64_t merge_bytes_max)
{
    struct pump_stretch stretch = {.limit = w->piece_limit,
                                   .weight = weight_max(w, merge_bytes_max)};

    if (stretch.weight > 0) {
        stretch.limit = row_limit(w, page);
        if (stretch.limit == page + 1) {
            stretch = (struct pump_stretch){.limit = stretch_limit(w, page)};
        }
    }
    return stretch;
}

int64_t pump_merge_write(struct hlg_transport *t, const struct hlg_paged_write *w,
                         uint64_t merge_bytes_max, struct pump_stretch *stretch)
{
    uint32_t page = w->piece_begin;

    while (page < w->piece_limit) {
        if (page >= stretch->limit) {
            *stretch = look(w, page, merge_bytes_max);
        }
        const uint32_t limit = hlg_min_u32(stretch->limit, w->piece_limit);
        uint32_t weight = stretch->weight;
        while (weight > 0 && limit - page < 1u << weight) {
            weight--;
        }
        const uint32_t offered = (limit - page) >> weight;
        const int64_t taken = write_part(t, w, page, limit, weight);
        if (taken < 0 && page == w->piece_begin) {
            return taken;
        }
        page += taken > 0 ? hlg_u32((uint64_t)taken) << weight : 0;
        if (taken < (int64_t)offered) {
            break; /* an error comes again with the next offer */
        }
    }
    return page - w->piece_begin;
}
