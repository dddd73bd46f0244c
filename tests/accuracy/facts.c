#include "facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS     9u
#define LINE_BYTES 1024u

double fact_error_percent(const struct fact *fact)
{
    return 100 * (fact->predicted / fact->measured - 1);
}

/* Cut a line at its tabs, whose number must be right. */
static void cut(char *line, char *fields[FIELDS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FIELDS; i++) {
        fields[i] = line;
    }
    line[strcspn(line, "\n")] = '\0';
    for (char *at = line; at != NULL; count++) {
        char *const end = strchr(at, '\t');
        if (count < FIELDS) {
            fields[count] = at;
        }
        if (end != NULL) {
            *end = '\0';
        }
        at = end == NULL ? NULL : end + 1;
    }
    if (count != FIELDS) {
        fail_msg("reports/accuracy.tsv: %s: %u fields, not %u", line, count, FIELDS);
    }
}

uint32_t facts_each(void (*row)(void *context, char *const fields[9]), void *context)
{
    char path[4096];
    char line[LINE_BYTES];
    uint32_t count = 0;
    const char *const root = getenv("HALAGE_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/reports/accuracy.tsv", root == NULL ? "." : root);
    FILE *const in = fopen(path, "r");
    if (in == NULL) {
        fail_msg("%s cannot be read: run it by ctest, or from the sources' root", path);
    }
    assert_non_null(fgets(line, sizeof line, in));
    assert_string_equal(line, FACT_HEADER "\n");
    while (fgets(line, sizeof line, in) != NULL) {
        char *fields[FIELDS];
        cut(line, fields);
        row(context, fields);
        count++;
    }
    (void)fclose(in);
    return count;
}

struct search {
    const struct fact *fact;
    uint32_t found;
};

/* One unit of the last of four digits that predictions are printed with. */
static double unit_of(double value)
{
    double rest = fabs(value);
    double unit = 1e-3;
    while (rest >= 10) {
        rest /= 10;
        unit *= 10;
    }
    while (rest < 1 && rest > 0) {
        rest *= 10;
        unit /= 10;
    }
    return unit;
}

static void compare(void *context, char *const fields[FIELDS])
{
    struct search *const search = context;
    const struct fact *const fact = search->fact;
    if (strcmp(fields[0], fact->id) != 0) {
        return;
    }
    search->found++;
    assert_string_equal(fields[1], fact->what);
    assert_string_equal(fields[2], fact->source);
    assert_string_equal(fields[4], fact->unit);
    assert_string_equal(fields[7], fact->test);
    assert_string_equal(fields[8], fact->is_calibrated ? "calibrated" : "predicted");
    const struct {
        const char *name;
        const char *field;
        double value;
        double unit;
    } numbers[] = {
        {"measured", fields[3], fact->measured, 1e-9 * fabs(fact->measured)},
        {"predicted", fields[5], fact->predicted, 1.001 * unit_of(fact->predicted)},
        {"error", fields[6], fact_error_percent(fact), 0.1001},
    };
    for (uint32_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char *end = NULL;
        const double number = strtod(numbers[i].field, &end);
        if (*end != '\0' || !(fabs(number - numbers[i].value) <= numbers[i].unit)) {
            fail_msg("reports/accuracy.tsv: %s: %s: %s, but %g was computed", fact->id,
                     numbers[i].name, numbers[i].field, numbers[i].value);
        }
    }
}

void fact_expect(const struct fact *fact)
{
    struct search search = {.fact = fact};
    print_message("%s\t%s\t%s\t%.10g\t%s\t%.4g\t%.1f\t%s\t%s\n", fact->id, fact->what, fact->source,
                  fact->measured, fact->unit, fact->predicted, fact_error_percent(fact), fact->test,
                  fact->is_calibrated ? "calibrated" : "predicted");
    if (getenv("HALAGE_UPDATE_GOLDEN") != NULL) {
        return;
    }
    (void)facts_each(compare, &search);
    if (search.found != 1) {
        fail_msg("reports/accuracy.tsv has %u rows %s, not one", search.found, fact->id);
    }
}
