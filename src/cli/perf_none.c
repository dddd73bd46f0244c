/* `halage perf` of a build without libfabric: says so. */
#include "cli.h"
#include "options.h"

#include <stdio.h>

int cli_perf(int argc, char **argv)
{
    const struct argp options = {
        .args_doc = "serve|run",
        .doc = "Measure what writes cost: not in this build, which is without libfabric.",
    };
    /* Only a first word that is an option; what argp answers itself does not return. */
    if (argc > 1 && argv[1][0] == '-' && options_parse(&options, 2, argv, 0, NULL) != 0) {
        return CLI_BAD_INPUT;
    }
    (void)fprintf(stderr, "halage perf: built without libfabric; install it and configure with "
                          "-DHALAGE_OFI=ON\n");
    return CLI_FAILED;
}
