/* `halage-sim init`: a file to begin with. */
#include "command.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct request {
    const char *file; /* NULL: stdout */
    bool force;
};

enum key {
    KEY_FORCE = 0x100,
};

static const struct argp_option option_table[] = {
    {"force", KEY_FORCE, NULL, 0, "Replace FILE if it is there", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_FORCE:
        request->force = true;
        return 0;
    case ARGP_KEY_ARG:
        if (request->file != NULL) {
            return options_error(state->name, "'%s': name one file; '%s' is there already",
                                 argument, request->file);
        }
        request->file = argument;
        return 0;
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

static int write_default(FILE *file, void *context)
{
    return sim_scenario_write(context, true, file);
}

int command_init(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "[FILE]",
        .doc =
            "Write a scenario with every key, its default and what it means: DeepSeek-R1 on H200, "
            "1 prefill node and 3 decode nodes.\vWithout FILE, to stdout. A FILE that is there is "
            "kept unless --force is given. Exit status: 0 done, 1 not written, 2 bad options.",
    };
    struct request request = {0};
    char text[COMMAND_TEXT_BYTES];
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    struct stat there;
    if (request.file != NULL && strcmp(request.file, "-") != 0 && !request.force &&
        stat(request.file, &there) == 0 && S_ISREG(there.st_mode)) {
        (void)options_error(argv[0], "%s: is there already; name another file or say --force",
                            request.file);
        return CLI_BAD_INPUT;
    }
    struct sim_scenario *const scenario = malloc(sizeof *scenario);
    if (scenario == NULL) {
        (void)options_error(argv[0], "no memory");
        return CLI_FAILED;
    }
    sim_scenario_default(scenario);
    const int result = sim_report_file(request.file == NULL ? "-" : request.file, write_default,
                                       scenario, text, sizeof text);
    sim_scenario_fini(scenario);
    free(scenario);
    if (result < 0) {
        (void)options_error(argv[0], "%s", text);
        return CLI_FAILED;
    }
    return CLI_DONE;
}
