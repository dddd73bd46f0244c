/*
 * The operator times that the program carries: the TSV files of sim/calibration, put into it when it is built.
 * A file has lines of '#', one heading, and rows; the last columns of most are points of a grid. Pure;
 * text in, numbers out.
 */
#ifndef HALAGE_SIM_CALIBRATION_H
#define HALAGE_SIM_CALIBRATION_H

#include <halage/base.h>

struct sim_calibration_file {
    const char *name;
    const char *text;
};

/* Ends with a NULL name. */
extern const struct sim_calibration_file sim_calibration_files[];

/* The text of a file that is known to be there. */
const char *sim_calibration_text(const char *name);

/* The next row after `after` (NULL: the first) that begins with `prefix`, whole fields with the tab
 * that ends them. NULL: none. */
const char *sim_calibration_next(const char *text, const char *prefix, const char *after);

/* The heading. */
const char *sim_calibration_heading(const char *text);

/* Whole numbers of a row from field `skip` on. Returns how many there were, at most `capacity`. */
uint32_t sim_calibration_numbers(const char *row, uint32_t skip, double *numbers,
                                 uint32_t capacity);

/* Copy a field, cut to the capacity. */
void sim_calibration_field(const char *row, uint32_t index, char *text, size_t capacity);

/* "N:hash": changes with any byte of any file. */
void sim_calibration_id(char *text, size_t capacity);

#endif
