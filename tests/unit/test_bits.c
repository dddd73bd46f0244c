/* Sets of small numbers: the next of a turn is what a search one by one finds, across words and round the end. */
#include "core/bits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_MAX 200u

static uint32_t search(const uint64_t *bits, uint32_t count, uint32_t from)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = (from + i) % count;
        if (bits_has(bits, number)) {
            return number;
        }
    }
    return HLG_NONE;
}

static void the_next_is_what_a_search_finds(void **state)
{
    static const uint32_t counts[] = {1, 2, 63, 64, 65, 128, 129, COUNT_MAX};
    uint64_t bits[4] = {0};
    uint64_t random = 88172645463325252ull;

    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const uint32_t count = counts[c];
        for (uint32_t round = 0; round < 300; round++) {
            if (round % 50 == 0) {
                memset(bits, 0, sizeof bits); /* a set that is empty, then one that fills */
            }
            for (uint32_t from = 0; from < count; from++) {
                assert_int_equal(bits_next(bits, bits_words(count), from),
                                 search(bits, count, from));
            }
            random ^= random << 13; /* xorshift64, G. Marsaglia */
            random ^= random >> 7;
            random ^= random << 17;
            const uint32_t number = (uint32_t)(random >> 32) % count;
            if (bits_has(bits, number) && random % 2 == 0) {
                bits_clear(bits, number);
                assert_false(bits_has(bits, number));
            } else {
                bits_set(bits, number);
                assert_true(bits_has(bits, number));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_is_what_a_search_finds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
