#include "fact.h"

#include "layer.h"

void facts_init(struct facts *f, struct carve *c, uint32_t words, uint32_t positions)
{
    struct fact *facts = carve_array(c, (size_t)words * positions, sizeof *facts);
    hlg_time *last = carve_array(c, words, sizeof *last);

    if (c->base != NULL) {
        *f = (struct facts){.words = words, .positions = positions, .facts = facts, .last = last};
    }
}

void facts_tick(struct facts *f, uint32_t word, uint32_t forward, uint32_t count, hlg_time now)
{
    HLG_ASSERT(word < f->words);
    struct fact *facts = &f->facts[(size_t)word * f->positions];

    f->last[word] = now;
    for (uint32_t i = hlg_min_u32(count, f->positions); i > 0; i--) {
        if (facts[i - 1].forward == forward) {
            return; /* and so are all before it */
        }
        facts[i - 1] = (struct fact){.forward = forward, .at = now};
    }
}

void facts_end(struct facts *f, hlg_time now)
{
    for (uint32_t i = 0; i < f->words; i++) {
        f->last[i] = now;
    }
}

hlg_time facts_at(const struct facts *f, uint32_t word, uint32_t forward, uint32_t position)
{
    HLG_ASSERT(word < f->words && position < f->positions);
    const struct fact *fact = &f->facts[(size_t)word * f->positions + position];

    if (fact->forward != 0 && (fact->forward == forward || layers_after(fact->forward, forward))) {
        return fact->at;
    }
    return f->last[word];
}
