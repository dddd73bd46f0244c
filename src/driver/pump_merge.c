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
    uint32_t weight = 0;

    if (w->count != 1 || w->local_stride != w->bytes || w->remote_stride != w->bytes) {
        return 0;
    }
    while (weight < WEIGHT_MAX && (uint64_t)w->bytes << (weight + 1) <= merge_bytes_max) {
        weight++;
    }
    return weight;
}

static bool follows(const uint32_t *pages, uint32_t page)
{
    return pages[page] == pages[page - 1] + 1;
}

/* Where the row of pages ends that begins at `begin`, both sides' pages one after the other. */
static uint32_t row_limit(const struct hlg_paged_write *w, uint32_t begin)
{
    uint32_t page = begin + 1;

    while (page < w->piece_limit && follows(w->source_pages, page) &&
           follows(w->target_pages, page)) {
        page++;
    }
    return page;
}

/* Where the stretch of pages ends that begins at `begin`, of which none follows the one before. */
static uint32_t stretch_limit(const struct hlg_paged_write *w, uint32_t begin)
{
    uint32_t page = begin + 1;

    while (page < w->piece_limit && row_limit(w, page - 1) == page) {
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

int64_t pump_merge_write(struct hlg_transport *t, const struct hlg_paged_write *w,
                         uint64_t merge_bytes_max)
{
    const uint32_t most = weight_max(w, merge_bytes_max);
    uint32_t page = w->piece_begin;

    if (most == 0) {
        return t->ops->write(t, w);
    }
    while (page < w->piece_limit) {
        const uint32_t limit = row_limit(w, page);
        uint32_t weight = 0;
        while (weight < most && limit - page >= 2u << weight) {
            weight++;
        }
        struct hlg_paged_write part = *w;
        part.piece_begin = page;
        part.piece_limit = stretch_limit(w, page);
        if (weight > 0) {
            part = merged(w, page, limit, weight);
        }
        const uint32_t offered = part.piece_limit - part.piece_begin;
        const int64_t taken = t->ops->write(t, &part);
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
