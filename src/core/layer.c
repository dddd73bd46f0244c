#include "layer.h"

#define NUMBER_MASK   0xffffffu
#define NUMBER_WINDOW 0x800000u

void layers_init(struct layers *l, struct carve *c, uint32_t forwards_max, uint32_t words)
{
    struct forward *forwards = carve_array(c, forwards_max, sizeof *forwards);
    uint8_t *done = carve_array(c, (size_t)forwards_max * words, sizeof *done);

    if (c->base != NULL) {
        *l = (struct layers){
            .forwards_max = forwards_max, .words = words, .forwards = forwards, .done = done};
    }
}

bool layers_after(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & NUMBER_MASK;

    return ahead != 0 && ahead < NUMBER_WINDOW;
}

uint32_t layers_find(const struct layers *l, uint32_t number)
{
    for (uint32_t i = 0; number != 0 && i < l->used; i++) {
        if (l->forwards[i].number == number) {
            return i;
        }
    }
    return HLG_NONE;
}

int64_t layers_announce(struct layers *l, uint32_t number)
{
    if (number == 0 || number > NUMBER_MASK) {
        return -HLG_EINVAL;
    }
    uint32_t index = layers_find(l, number);
    if (index != HLG_NONE) {
        return l->forwards[index].ended ? -HLG_EINVAL : (int64_t)index;
    }
    if (l->newest != 0 && !layers_after(number, l->newest)) {
        return -HLG_EINVAL;
    }
    for (index = 0; index < l->forwards_max; index++) {
        if (l->forwards[index].number == 0) {
            l->forwards[index] = (struct forward){.number = number};
            memset(&l->done[index * l->words], 0, l->words);
            l->used = hlg_max_u32(l->used, index + 1);
            l->newest = number;
            return (int64_t)index;
        }
    }
    return -HLG_ELIMIT;
}

static void let_go(struct layers *l, uint32_t index)
{
    if (l->forwards[index].ended && l->forwards[index].chunks == 0) {
        l->forwards[index] = (struct forward){0};
    }
    while (l->used > 0 && l->forwards[l->used - 1].number == 0) {
        l->used--;
    }
}

enum layer_tick layers_tick(struct layers *l, uint32_t word, uint32_t value)
{
    HLG_ASSERT(word < l->words);
    uint32_t number = value >> 8;
    uint8_t count = (uint8_t)(value & 0xffu);
    uint32_t index = layers_find(l, number);
    if (index == HLG_NONE) {
        return LAYER_TICK_UNANNOUNCED;
    }
    enum layer_tick result = LAYER_TICK_NOTHING;
    uint8_t *done = &l->done[index * l->words + word];
    if (count > *done) {
        *done = count;
        result = LAYER_TICK_NEWS;
    }
    /* The stream went on, so whatever it ran before is over for this word. */
    for (uint32_t i = 0; i < l->used; i++) {
        uint8_t *older = &l->done[i * l->words + word];
        if (l->forwards[i].number != 0 && layers_after(number, l->forwards[i].number) &&
            *older != LAYERS_ALL) {
            *older = LAYERS_ALL;
            result = LAYER_TICK_NEWS;
        }
    }
    return result;
}

void layers_end(struct layers *l, uint32_t index)
{
    HLG_ASSERT(index < l->forwards_max && l->forwards[index].number != 0);
    memset(&l->done[index * l->words], LAYERS_ALL, l->words);
    l->forwards[index].ended = true;
    let_go(l, index);
}

void layers_hold(struct layers *l, uint32_t index)
{
    HLG_ASSERT(index < l->forwards_max && l->forwards[index].number != 0);
    l->forwards[index].chunks++;
}

void layers_drop(struct layers *l, uint32_t index)
{
    HLG_ASSERT(index < l->forwards_max && l->forwards[index].chunks > 0);
    l->forwards[index].chunks--;
    let_go(l, index);
}

uint32_t layers_done(const struct layers *l, uint32_t index, uint32_t word)
{
    if (index == HLG_NONE) {
        return LAYERS_ALL;
    }
    HLG_ASSERT(index < l->forwards_max && word < l->words);
    return l->done[index * l->words + word];
}

bool layers_passed(const struct layers *l, uint32_t index)
{
    const struct forward *f = &l->forwards[index];

    HLG_ASSERT(index < l->forwards_max);
    return f->number != 0 && !f->ended &&
           memchr(&l->done[index * l->words], LAYERS_ALL, l->words) != NULL;
}

void layers_check(const struct layers *l)
{
    HLG_ASSERT(l->used <= l->forwards_max);
    HLG_ASSERT(l->used == 0 || l->forwards[l->used - 1].number != 0);
    for (uint32_t i = 0; i < l->forwards_max; i++) {
        const struct forward *f = &l->forwards[i];
        HLG_ASSERT(f->number != 0 || (f->chunks == 0 && !f->ended));
        HLG_ASSERT(f->number == 0 || !layers_after(f->number, l->newest));
        HLG_ASSERT(!f->ended || f->chunks > 0);
        HLG_ASSERT(f->number == 0 || (i < l->used && layers_find(l, f->number) == i));
    }
}
