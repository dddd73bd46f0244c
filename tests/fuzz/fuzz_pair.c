/*
 * One or two decode machines and two prefill machines, joined by channels and a fabric that the input
 * drives: which frame is delivered, which piece lands, is counted or completes, in which order, which fails
 * (and may land later all the same), who dies and comes again. Engines keep to their contracts; pages are
 * used again as soon as they are given back. Looked at:
 *
 *   I1     a piece lands only in a page that its request still holds
 *   READY  each byte asked has landed once, and as many pieces were counted as expected
 *   end    when the input is used up all faults stop: nothing stays open and no page is lost
 */
#include "pair_world.h"

static void connect_sides(struct world *w, struct feed *f)
{
    uint32_t byte = feed_byte(f);

    world_connect(w, byte % DECODERS, DECODERS + byte / 8 % PREFILLERS, byte / 64);
}

static void submit(struct world *w, struct feed *f)
{
    uint32_t byte = feed_byte(f);
    uint32_t tokens = 1 + feed_below(f, TOKENS_MAX);
    uint32_t first = feed_byte(f);

    world_submit(w, byte % DECODERS, tokens, byte / 4 % 2, first < 128 ? 0 : first, feed_byte(f));
}

static void decode_engine(struct world *w, struct feed *f, uint32_t kind)
{
    uint32_t at = w->record_count > 0 ? feed_byte(f) % w->record_count : 0;

    /* Recent ones are the interesting ones. */
    if (w->record_count > 0) {
        world_decode_call(w, w->record_count - 1 - at, kind);
    }
}

static void prefill_engine(struct world *w, struct feed *f)
{
    uint32_t byte = feed_byte(f);
    uint32_t side = DECODERS + byte % PREFILLERS;
    struct asked *asked = &w->asked[side][byte / 2 % REQUESTS_MAX];
    uint32_t what = feed_below(f, 8);

    switch (what) {
    case 0:
    case 1:
        world_admit(w, side, asked, feed_byte(f));
        return;
    case 2:
    case 3:
        world_chunk(w, side, asked, feed_byte(f));
        return;
    case 4:
        world_layer(w, side, feed_byte(f));
        return;
    case 5:
        world_forward_over(w, side, HLG_EVENT_FORWARD_END);
        return;
    case 6:
        world_forward_over(w, side, HLG_EVENT_FORWARD_ABORT);
        return;
    default:
        world_give_up(w, side, asked, feed_byte(f));
        return;
    }
}

static void fabric(struct world *w, struct feed *f, uint32_t what)
{
    uint32_t from = feed_byte(f);
    uint32_t count = 1 + feed_byte(f) % 32;

    for (uint32_t i = 0; i < w->piece_limit && count > 0; i++) {
        struct piece *piece = &w->pieces[(from * 8 + i) % w->piece_limit];
        bool did = false;
        if (piece->used) {
            did = what == 0   ? world_place(w, piece)
                  : what == 1 ? world_count(w, piece)
                  : what == 2 ? world_complete(w, piece, true)
                              : world_complete(w, piece, false);
        }
        count -= did ? 1 : 0;
    }
}

static void step(struct world *w, struct feed *f)
{
    uint32_t side = 0;

    switch (feed_byte(f) % 24) {
    case 0:
        connect_sides(w, f);
        return;
    case 1:
    case 2:
        submit(w, f);
        return;
    case 3:
        decode_engine(w, f, HLG_EVENT_CANCEL);
        return;
    case 4:
        decode_engine(w, f, HLG_EVENT_RELEASE);
        return;
    case 5:
    case 6:
    case 7:
        prefill_engine(w, f);
        return;
    case 8:
    case 9:
        side = feed_byte(f);
        world_carry(w, side % SIDES, side / SIDES);
        return;
    case 10:
    case 11:
        side = feed_byte(f);
        world_writes(w, DECODERS + side % PREFILLERS, side / 2, f);
        return;
    case 12:
    case 13:
    case 14:
        world_deliver(w, feed_byte(f), 1 + feed_below(f, 8));
        return;
    case 15:
    case 16:
        fabric(w, f, 0);
        return;
    case 17:
        fabric(w, f, 1);
        return;
    case 18:
        fabric(w, f, 2);
        return;
    case 19:
        fabric(w, f, 3);
        return;
    case 20:
        world_advance(w, machine_span(f));
        return;
    case 21:
        world_break(w, feed_byte(f));
        return;
    case 22:
        side = feed_byte(f);
        if (side >= 0xc0) {
            world_restart(w, side % SIDES);
        } else {
            world_close(w, side % SIDES, feed_byte(f) >= 0xf0 ? -HLG_EIO : 0);
        }
        return;
    default:
        world_rush(w, 1 + feed_below(f, 4)); /* all goes well for a while */
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct feed f = {.next = data, .left = size};

    if (size > MACHINE_INPUT_MAX) {
        return 0;
    }
    world_open(&w, &f);
    while (f.left > 0) {
        step(&w, &f);
    }
    world_settle(&w);
    world_fini(&w);
    return 0;
}
