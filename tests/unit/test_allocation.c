/*
 * Nothing is allocated by halage's own objects on the data path: two connected messengers move a
 * thousand requests, some of them cancelled, while every call of malloc, calloc, realloc,
 * posix_memalign, aligned_alloc and mmap that the linked objects make is counted. libfabric's own
 * calls are not: it is another library.
 */
#include "../support/allocations.h"
#include "../support/duo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS    200u
#define PER_ROUND 5u

/* Some requests, one of them cancelled at once, all ended and released. */
static void run_round(struct duo *duo)
{
    hlg_ticket tickets[PER_ROUND];
    struct hlg_layout layout;
    uint32_t page = 0;

    duo_layout(&layout);
    duo->prefill.report_count = 0;
    duo->decode.report_count = 0;
    duo->answered = 0;
    duo->page = 0;
    duo->context = 0;
    for (uint32_t i = 0; i < PER_ROUND; i++) {
        uint32_t tokens = 2 + 37 * i;
        assert_int_equal(duo_submit(duo, "r", tokens, page, i, &tickets[i]), 0);
        page += hlg_layout_pages(&layout, 0, tokens - 1);
    }
    assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, tickets[PER_ROUND - 1]), 0);
    while (duo_count(&duo->decode, HLG_NOTICE_READY) +
                   duo_count(&duo->decode, HLG_NOTICE_RETURNED) <
               PER_ROUND ||
           duo_count(&duo->prefill, HLG_NOTICE_SENT) + duo_count(&duo->prefill, HLG_NOTICE_FENCED) <
               duo_count(&duo->prefill, HLG_NOTICE_REQUESTED)) {
        if (duo_turn(duo) == 0) {
            duo_nap(duo);
        }
    }
    for (uint32_t i = 0; i < PER_ROUND; i++) {
        assert_int_equal(hlg_messenger_release(duo->decode.messenger, tickets[i]), 0);
    }
}

static void the_data_path_allocates_nothing(void **state)
{
    (void)state;
    struct duo *duo = duo_open();
    duo->progress = DUO_FORWARD_END; /* a refused chunk leaves its forward unannounced */
    uint64_t before = allocations;
    assert_true(before > 0); /* the counting works: opening did allocate */
    run_round(duo);
    before = allocations;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        run_round(duo);
    }
    printf("%u requests, %llu allocations\n", ROUNDS * PER_ROUND,
           (unsigned long long)(allocations - before));
    assert_int_equal(allocations, before);
    duo_close(duo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_data_path_allocates_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
