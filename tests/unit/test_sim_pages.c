/*
 * The pages of a simulated rank: none is given twice, the prefix cache finds what was named, and what is
 * evicted is the oldest. Random calls are compared with a plain model that looks at every page, seeds are
 * printed; the order of eviction and shared pages also by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>

#include <driver/rng.h>

#include "pages.h"

/* The seed in use: of the failure, when there is one. */
static uint64_t last_seed;

#define COUNT_MAX 24u
#define LISTS     12u
#define NAMES     20u

/* A page as the model sees it. */
struct model_page {
    uint32_t users;
    bool named;
    bool poisoned;
    uint64_t name;
    uint64_t released; /* when its last user went */
};

struct model {
    struct model_page pages[COUNT_MAX];
    uint32_t count;
    uint64_t clock;
};

struct holding {
    uint32_t list[COUNT_MAX];
    uint32_t count;
};

static uint32_t model_find(const struct model *model, uint64_t name)
{
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->pages[i].named && model->pages[i].name == name) {
            return i;
        }
    }
    return HLG_NONE;
}

static uint32_t model_available(const struct model *model)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < model->count; i++) {
        count += model->pages[i].users == 0 && !model->pages[i].poisoned;
    }
    return count;
}

/* The page that must go next, or HLG_NONE while there are free ones. */
static uint32_t model_victim(const struct model *model)
{
    uint32_t victim = HLG_NONE;

    for (uint32_t i = 0; i < model->count; i++) {
        const struct model_page *page = &model->pages[i];

        if (page->users != 0 || page->poisoned) {
            continue;
        }
        if (!page->named) {
            return HLG_NONE;
        }
        if (victim == HLG_NONE || page->released < model->pages[victim].released) {
            victim = i;
        }
    }
    return victim;
}

static void try_take(struct sim_pages *pages, struct model *model, struct holding *holding,
                     uint32_t count)
{
    const bool could = count <= model_available(model);

    assert_int_equal(sim_pages_take(pages, count, holding->list + holding->count), could);
    for (uint32_t i = 0; could && i < count; i++) {
        uint32_t victim = model_victim(model);
        uint32_t index = holding->list[holding->count++];

        assert_true(index < model->count);
        assert_true(victim == HLG_NONE || victim == index);
        assert_true(model->pages[index].users == 0 && !model->pages[index].poisoned);
        assert_true(victim == index || !model->pages[index].named);
        model->pages[index] = (struct model_page){.users = 1};
    }
}

static void try_match(struct sim_pages *pages, struct model *model, struct holding *holding,
                      const uint64_t *names, uint32_t count)
{
    uint32_t expected = 0;

    while (expected < count && model_find(model, names[expected]) != HLG_NONE) {
        expected++;
    }
    assert_int_equal(sim_pages_peek(pages, names, count), expected);
    assert_int_equal(sim_pages_match(pages, names, count, holding->list), expected);
    for (uint32_t i = 0; i < expected; i++) {
        assert_int_equal(holding->list[i], model_find(model, names[i]));
        model->pages[holding->list[i]].users++;
    }
    holding->count = expected;
}

static void do_name(struct sim_pages *pages, struct model *model, const struct holding *holding,
                    const uint64_t *names)
{
    sim_pages_name(pages, holding->list, names, holding->count);
    for (uint32_t i = 0; i < holding->count; i++) {
        struct model_page *page = &model->pages[holding->list[i]];

        if (!page->named && !page->poisoned && model_find(model, names[i]) == HLG_NONE) {
            page->named = true;
            page->name = names[i];
        }
    }
}

static void do_give(struct sim_pages *pages, struct model *model, struct holding *holding)
{
    sim_pages_give(pages, holding->list, holding->count);
    for (uint32_t i = holding->count; i > 0; i--) {
        struct model_page *page = &model->pages[holding->list[i - 1]];

        page->users--;
        page->released = ++model->clock;
    }
    holding->count = 0;
}

/* The last page of a holding that nobody has poisoned yet is written by a ghost. */
static void do_poison(struct sim_pages *pages, struct model *model, struct holding *holding)
{
    struct model_page *page = &model->pages[holding->list[holding->count - 1]];

    if (!page->poisoned) {
        sim_pages_poison(pages, &holding->list[holding->count - 1], 1);
        page->poisoned = true;
        page->named = false;
        page->users--;
        holding->count--;
    }
}

static void compare(const struct sim_pages *pages, const struct model *model)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < model->count; i++) {
        used += model->pages[i].users != 0;
    }
    assert_int_equal(sim_pages_used(pages), used);
    assert_int_equal(sim_pages_available(pages), model_available(model));
    assert_int_equal(sim_pages_check(pages), 0);
}

static void random_calls_agree_with_a_plain_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        struct model model = {.count = (uint32_t)hlg_rng_between(&rng, 1, COUNT_MAX)};
        struct holding holdings[LISTS] = {0};
        struct sim_pages *pages = NULL;
        const uint32_t poison_ppm = seed % 4 == 0 ? 20000 : 0;

        last_seed = seed;
        assert_int_equal(sim_pages_create(model.count, true, &pages), 0);
        for (uint32_t turn = 0; turn < 1000; turn++) {
            struct holding *holding = &holdings[hlg_rng_below(&rng, LISTS)];
            uint64_t names[COUNT_MAX];
            const uint64_t begin = hlg_rng_below(&rng, NAMES);

            for (uint32_t i = 0; i < COUNT_MAX; i++) {
                names[i] = (begin + i) % (NAMES + COUNT_MAX) * 0x100000001ull;
            }
            if (holding->count == 0) {
                try_match(pages, &model, holding, names,
                          (uint32_t)hlg_rng_below(&rng, COUNT_MAX / 2));
                try_take(pages, &model, holding, (uint32_t)hlg_rng_below(&rng, COUNT_MAX / 2));
            } else if (hlg_rng_chance(&rng, poison_ppm)) {
                do_poison(pages, &model, holding);
            } else if (hlg_rng_chance(&rng, 400000)) {
                do_name(pages, &model, holding, names);
            } else {
                do_give(pages, &model, holding);
            }
            compare(pages, &model);
        }
        sim_pages_destroy(pages);
    }
}

static void the_end_of_a_prefix_is_evicted_first(void **state)
{
    const uint64_t names[4] = {10, 11, 12, 13};
    uint32_t first[4];
    uint32_t other[2];
    struct sim_pages *pages = NULL;

    (void)state;
    assert_int_equal(sim_pages_create(4, true, &pages), 0);
    assert_true(sim_pages_take(pages, 4, first));
    sim_pages_name(pages, first, names, 4);
    sim_pages_give(pages, first, 4);
    assert_int_equal(sim_pages_available(pages), 4);
    assert_true(sim_pages_take(pages, 1, other));
    assert_int_equal(other[0], first[3]);
    assert_true(sim_pages_take(pages, 1, other + 1));
    assert_int_equal(other[1], first[2]);
    assert_int_equal(sim_pages_peek(pages, names, 4), 2);
    sim_pages_give(pages, other, 2);
    assert_int_equal(sim_pages_match(pages, names, 4, first), 2);
    assert_int_equal(sim_pages_available(pages), 2); /* those in use cannot be evicted */
    assert_false(sim_pages_take(pages, 3, other));
    sim_pages_give(pages, first, 2);
    sim_pages_destroy(pages);
}

static void without_a_cache_names_mean_nothing(void **state)
{
    const uint64_t names[2] = {1, 2};
    uint32_t list[2];
    struct sim_pages *pages = NULL;

    (void)state;
    assert_int_equal(sim_pages_create(0, true, &pages), -HLG_EINVAL);
    assert_int_equal(sim_pages_create(2, false, &pages), 0);
    assert_true(sim_pages_take(pages, 2, list));
    sim_pages_name(pages, list, names, 2);
    assert_int_equal(sim_pages_match(pages, names, 2, list), 0);
    sim_pages_give(pages, list, 2);
    assert_int_equal(sim_pages_peek(pages, names, 2), 0);
    assert_int_equal(sim_pages_check(pages), 0);
    sim_pages_destroy(pages);
}

static int print_seed(void **state)
{
    (void)state;
    print_message("pages: seeds up to %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_calls_agree_with_a_plain_model, print_seed),
        cmocka_unit_test(the_end_of_a_prefix_is_evicted_first),
        cmocka_unit_test(without_a_cache_names_mean_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
