/*
 * What the commands of `halage-sim` share.
 *
 * A command is one function with a row in main.c's table. It reads its line by options_parse()
 * (src/cli/options.h), writes results to stdout, or to stderr when its JSON goes to stdout, and returns
 * an enum cli_exit: 0 done, 1 ran but failed, 2 bad input, 3 infeasible, 130 interrupted.
 */
#ifndef HALAGE_SIM_CLI_COMMAND_H
#define HALAGE_SIM_CLI_COMMAND_H

#include "cli.h"
#include "cluster.h"
#include "options.h"
#include "scenario.h"

#include <stdio.h>

/* argv[0] is "halage-sim <command>". */
int command_check(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_init(int argc, char **argv);
int command_list(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_run(int argc, char **argv);
int command_sweep(int argc, char **argv);

/* Room for every sentence of the simulator. */
#define COMMAND_TEXT_BYTES 2048u

#define COMMAND_OVERRIDES_MAX 256u

/* The options by which a command finds its scenario. */
struct command_scenario {
    const char *path; /* the argument; NULL: none yet */
    const char *overrides[COMMAND_OVERRIDES_MAX];
    uint32_t override_count;
    uint64_t seed;
    bool seed_given;
    uint32_t requests; /* 0: as the scenario says */
};

/* Rows of argp, and what parses them. */
enum command_key {
    COMMAND_KEY_SEED = 0x400,
    COMMAND_KEY_REQUESTS,
    COMMAND_KEY_OWN, /* a command's own keys begin here */
};

#define COMMAND_SCENARIO_ROWS                                                                     \
    {NULL, 's', "KEY=VALUE", 0, "Set a key of the scenario, such as decode.nodes=3 (repeatable)", \
     0},                                                                                          \
        {"seed", COMMAND_KEY_SEED, "N", 0, "Seed of all draws", 0},                               \
    {                                                                                             \
        "requests", COMMAND_KEY_REQUESTS, "N", 0, "How many requests, drawn or of the trace", 0   \
    }

/* Parse one of these, or the argument SCENARIO. Returns 0, EINVAL, or ARGP_ERR_UNKNOWN for others. */
error_t command_scenario_parse(struct command_scenario *scenario, int key, char *argument,
                               const struct argp_state *state);

/*
 * Read the scenario with its overrides, then `more` [more_count] (a sweep's point), then --seed and
 * --requests. Returns CLI_DONE (release with sim_scenario_fini()), or CLI_BAD_INPUT with a sentence in
 * text [capacity].
 */
int command_scenario_read(const struct command_scenario *command, const char *const *more,
                          uint32_t more_count, struct sim_scenario *scenario, char *text,
                          size_t capacity);

/* A line, begun with `lead`, when a scenario asks for more requests than its trace has. */
void command_note_trace(FILE *out, const char *lead, const struct sim_scenario *scenario,
                        const struct sim_workload *workload);

/* Flush what was printed (stdout or stderr). Returns whether all of it could be written; a line on stderr
 * says if not. */
bool command_printed(const char *program, FILE *out);

/* Count signals SIGINT and SIGTERM from now on, instead of ending by the first; one that comes
 * two seconds later or more ends, and says so. */
void command_catch_signals(void);
bool command_interrupted(void);

/* A line on stderr that tells how far a run is and when it will be done: on a terminal twice a second,
 * elsewhere every half minute, not at all if quiet. */
struct command_progress {
    const char *name;
    bool quiet;
    uint64_t begin_ns; /* of the machine's clock */
    uint64_t shown_ns;
    bool open; /* a line without its end is on the terminal */
};
void command_progress_begin(struct command_progress *progress, const char *name, bool quiet);
void command_progress_show(struct command_progress *progress, uint64_t done, uint64_t all,
                           const char *what);
void command_progress_end(struct command_progress *progress);

#endif
