/*
 * Measured facts and what the project computes for them: reports/accuracy.tsv, one row a fact. Tests
 * compute, print and compare. Nothing writes the file but a person: with HALAGE_UPDATE_GOLDEN=1 a test
 * prints all of its rows without looking at the file.
 */
#ifndef HALAGE_TESTS_FACTS_H
#define HALAGE_TESTS_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define FACTS_MAX   60u /* issue 3: a table that can be read */
#define FACT_HEADER "id\twhat\tsource\tmeasured\tunit\tpredicted\terror_percent\ttest\tstatus"

struct fact {
    const char *id; /* letters, digits, hyphens; of one row alone */
    const char *what;
    const char *source;
    double measured;
    const char *unit;
    double predicted;
    const char *test;   /* of ctest */
    bool is_calibrated; /* constants were fitted to this fact; else it was kept out of every fit */
};

/* Percent by which the prediction is above the measurement. */
double fact_error_percent(const struct fact *fact);

/*
 * Print the fact's row and fail (cmocka) unless the file has it: texts equal, numbers equal but for one
 * unit of their last printed digit. With HALAGE_UPDATE_GOLDEN=1, print alone.
 */
void fact_expect(const struct fact *fact);

/* Rows of the file without its heading: calls `row` with each one's nine fields. Returns how many. */
uint32_t facts_each(void (*row)(void *context, char *const fields[9]), void *context);

#endif
