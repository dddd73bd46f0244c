/* `halage-sim` of a build without SimGrid: says so. */
#include "cli.h"
#include "options.h"

#include <stdio.h>

const char *argp_program_version = "halage-sim " HALAGE_VERSION ", without SimGrid";

int main(int argc, char **argv)
{
    const struct argp options = {
        .args_doc = "COMMAND [OPTION...]",
        .doc = "Simulate clusters: not in this build, which is without SimGrid.",
    };
    static char name[] = "halage-sim";
    if (argc > 0) {
        argv[0] = name;
        /* Only a first word that is an option; what argp answers itself does not return. */
        if (argc > 1 && argv[1][0] == '-' && options_parse(&options, 2, argv, 0, NULL) != 0) {
            return CLI_BAD_INPUT;
        }
    }
    (void)fprintf(stderr, "halage-sim: built without SimGrid; install it and configure with "
                          "-DHALAGE_SIMGRID=ON\n");
    return CLI_FAILED;
}
