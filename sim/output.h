/*
 * Files that users name for results. A regular file is written whole under another name, with its mode
 * and owner, and renamed into place, at the end of symbolic links. Anything else (a device, a FIFO) and a
 * file in a folder where none can be made is opened and written where it is. A file whose owner may not write
 * it is refused.
 */
#ifndef HALAGE_SIM_OUTPUT_H
#define HALAGE_SIM_OUTPUT_H

#include "scenario.h"

#include <stdio.h>

struct sim_output {
    FILE *file;
    char target[SIM_PATH_MAX];         /* where it is written in the end */
    char temporary[SIM_PATH_MAX + 32]; /* "": in place */
};

/* Begin; never of "-". Returns 0, or -HLG_EIO with a sentence in text [capacity]. */
int sim_output_open(const char *path, struct sim_output *output, char *text, size_t capacity);

/* End: whole and in place, or with an error as before it began. Returns as above. */
int sim_output_close(struct sim_output *output, char *text, size_t capacity);

/* Leave nothing behind (of what was written in place, that cannot be). */
void sim_output_abandon(struct sim_output *output);

#define SIM_OUTPUTS_MAX 16u

/* What a command is about to write: option and file. */
struct sim_outputs {
    const char *options[SIM_OUTPUTS_MAX];
    char paths[SIM_OUTPUTS_MAX][SIM_PATH_MAX];
    bool single[SIM_OUTPUTS_MAX]; /* in no folder that the command makes */
    uint32_t count;
};

/* `path` may be NULL or "-": then nothing is added. With `name` it is folder/name. */
void sim_outputs_add(struct sim_outputs *outputs, const char *option, const char *path,
                     const char *name);

/*
 * Refuse outputs that are the same file as another one, as what stdout or stderr is redirected to, or
 * as a file that the scenario (NULL: none) was read from: its own, those it extends, traces, tables, configs; and such as no file can be, before the
 * work is done that is to be written to it: a folder, or a file in one that is not there.
 *
 * Returns 0, or -HLG_EINVAL with a sentence in text [capacity].
 */
int sim_outputs_check(const struct sim_outputs *outputs, const struct sim_scenario *scenario,
                      char *text, size_t capacity);

#endif
