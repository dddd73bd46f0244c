/*
 * reports/accuracy.tsv is a table that can be read and trusted: few rows, each whole, with an id of
 * its own, an error that follows from its numbers, and a test that ctest knows.
 *
 * Each row's numbers are compared with what is computed by the test that the row names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"

struct seen {
    char ids[FACTS_MAX + 1][64];
    uint32_t count;
};

static double number(const char *field)
{
    char *end = NULL;
    const double value = strtod(field, &end);
    if (*field == '\0' || *end != '\0' || !isfinite(value)) {
        fail_msg("\"%s\" is no number", field);
    }
    return value;
}

static void look(void *context, char *const fields[9])
{
    struct seen *const seen = context;
    if (seen->count > FACTS_MAX) {
        fail_msg("more than %u rows", FACTS_MAX);
    }
    for (uint32_t i = 0; i < 9; i++) {
        if (fields[i][0] == '\0') {
            fail_msg("%s: field %u is empty", fields[0], i + 1);
        }
    }
    for (uint32_t i = 0; i < seen->count; i++) {
        assert_string_not_equal(seen->ids[i], fields[0]);
    }
    assert_true(strlen(fields[0]) < sizeof seen->ids[0]);
    memcpy(seen->ids[seen->count++], fields[0], strlen(fields[0]) + 1);
    const double measured = number(fields[3]);
    const double predicted = number(fields[5]);
    const double error = 100 * (predicted / measured - 1);
    if (!(fabs(error - number(fields[6])) <= 0.15)) { /* both are rounded */
        fail_msg("%s: error %s, but %.2f follows", fields[0], fields[6], error);
    }
    const bool is_calibrated = strcmp(fields[8], "calibrated") == 0;
    assert_true(is_calibrated || strcmp(fields[8], "predicted") == 0);
}

static void table_is_sound(void **state)
{
    struct seen seen = {0};
    (void)state;
    assert_in_range(facts_each(look, &seen), 1, FACTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
