/* `halage key`: a new key for a cluster. */
#include "cli.h"
#include "options.h"

#include <halage/transport/sealed.h>

#include <stdio.h>

static error_t parse(int key, char *argument, struct argp_state *state)
{
    return key == ARGP_KEY_ARG
               ? options_error(state->name, "unknown argument '%s'; there are none", argument)
               : ARGP_ERR_UNKNOWN;
}

int cli_key(int argc, char **argv)
{
    const struct argp options = {
        .parser = parse,
        .doc =
            "Print a new key, 64 hexadecimal digits: for the --key-file of all nodes that are to "
            "talk to each other.\vKeep it from others: (umask 077; halage key > FILE).",
    };
    uint8_t key[HLG_SEALED_KEY_BYTES];
    char text[HLG_SEALED_KEY_DIGITS + 1];

    if (options_parse(&options, argc, argv, 0, NULL) != 0) {
        return CLI_BAD_INPUT;
    }
    if (hlg_sealed_key_make(key) != 0) {
        (void)fprintf(stderr, "halage key: the system gives no random numbers\n");
        return CLI_FAILED;
    }
    hlg_sealed_key_print(key, text);
    if (puts(text) < 0 || fflush(stdout) != 0) {
        (void)fprintf(stderr, "halage key: the key cannot be printed\n");
        return CLI_FAILED;
    }
    return CLI_DONE;
}
