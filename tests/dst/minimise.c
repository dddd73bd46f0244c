/* From a case that fails to a smaller one that fails alike. */
#include "runner.h"

#include <stdio.h>
#include <string.h>

struct search {
    enum storm_checker checker;
    storm_kinds drawn;
    bool repeat; /* what failed was the repetition */
    uint32_t tries;
    uint32_t tried;
    struct storm_case best;
};

/* Whether a case fails alike; then it is the best so far. */
static bool fails(struct search *s, const struct storm_case *what)
{
    struct outcome out;

    if (s->tried == s->tries) {
        return false;
    }
    s->tried++;
    outcome_alone(what, s->repeat, false, &out);
    if (out.broken != s->checker) {
        return false;
    }
    s->best = *what;
    return true;
}

/* Halves, then takes off one by one. */
static bool fewer_requests(struct search *s)
{
    bool better = false;
    struct storm_case what = s->best;

    for (uint32_t step = what.requests / 2; step > 0;) {
        what = s->best;
        what.requests -= hlg_min_u32(step, what.requests - 1);
        if (what.requests < s->best.requests && fails(s, &what)) {
            better = true;
            step = hlg_min_u32(step, s->best.requests / 2);
        } else {
            step /= 2;
        }
    }
    return better;
}

static bool fewer_nodes(struct search *s)
{
    bool better = false;

    for (uint32_t p = 1; p < s->best.prefillers; p++) {
        struct storm_case what = s->best;
        what.prefillers = p;
        if (fails(s, &what)) {
            better = true;
            break;
        }
    }
    for (uint32_t d = 1; d < s->best.decoders; d++) {
        struct storm_case what = s->best;
        what.decoders = d;
        if (fails(s, &what)) {
            better = true;
            break;
        }
    }
    return better;
}

/* All kinds at once, then halves of them, then each. */
static bool fewer_kinds(struct search *s)
{
    bool better = false;

    for (uint32_t width = KIND_COUNT; width > 0; width /= 2) {
        for (uint32_t begin = 0; begin < KIND_COUNT; begin += width) {
            struct storm_case what = s->best;
            for (uint32_t k = begin; k < begin + width && k < KIND_COUNT; k++) {
                what.without |= STORM_KIND(k) & s->drawn;
            }
            better = (what.without != s->best.without && fails(s, &what)) || better;
        }
    }
    return better;
}

uint32_t minimise(const struct outcome *from, uint32_t tries, struct storm_case *small)
{
    /* one that crashed did not tell what was drawn */
    struct search s = {.checker = from->broken,
                       .drawn = from->drawn != 0 ? from->drawn : STORM_KIND(KIND_COUNT) - 1,
                       .repeat = from->broken == CHECK_REPEAT,
                       .tries = tries,
                       .best = from->what};
    bool better = true;

    while (better && s.tried < s.tries) {
        better = fewer_kinds(&s);
        better = fewer_nodes(&s) || better;
        better = fewer_requests(&s) || better;
    }
    *small = s.best;
    return s.tried;
}

void case_text(const struct storm_case *what, char *text, size_t text_bytes)
{
    char kinds[600];
    char without[640] = "";
    char plant[64] = "";

    kinds_text(what->without, kinds, sizeof kinds);
    if (what->without != 0) {
        (void)snprintf(without, sizeof without, " --without %s", kinds);
    }
    if (what->plant != PLANT_NONE) {
        (void)snprintf(plant, sizeof plant, " --plant %s", plant_name(what->plant));
    }
    (void)snprintf(text, text_bytes, "halage-storm --seeds %llu%s%s --requests %u --nodes %u:%u",
                   (unsigned long long)what->seed, plant, without, what->requests, what->prefillers,
                   what->decoders);
}
