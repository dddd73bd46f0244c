/*
 * Numbers with units, as scenario files and command lines write them: 500ms, 3/s, 400Gbit/s, 64KiB.
 */
#ifndef HALAGE_SIM_SCENARIO_UNIT_H
#define HALAGE_SIM_SCENARIO_UNIT_H

#include <stdbool.h>
#include <stddef.h>

enum sim_unit {
    SIM_UNIT_NONE,        /* a plain number */
    SIM_UNIT_SHARE,       /* 0.9 or 90% */
    SIM_UNIT_NANOSECONDS, /* ns us ms s min h d */
    SIM_UNIT_PICOSECONDS, /* the same words and ps; the value is in picoseconds */
    SIM_UNIT_RATE,        /* /s /min /h; the value is per second */
    SIM_UNIT_BANDWIDTH,   /* bit/s and B/s with k, M, G, T or Ki, Mi, Gi; the value is in bytes/s */
    SIM_UNIT_BYTES,       /* B with k, M, G, T or Ki, Mi, Gi, Ti */
};

/* Room for every text of sim_unit_print(). */
#define SIM_UNIT_TEXT_BYTES 40u

/*
 * Read a number. Returns NULL and sets *value, finite, or returns the remedy: what to write instead,
 * for the end of a sentence.
 */
const char *sim_unit_parse(enum sim_unit unit, const char *text, double *value);

/* Print a finite number >= 0 so that sim_unit_parse() gives back the same bits. */
void sim_unit_print(enum sim_unit unit, double value, char text[SIM_UNIT_TEXT_BYTES]);

#endif
