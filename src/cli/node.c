/* `halage node prefill|decode`: one node, for pairs that lie on different machines. */
#include "cli.h"
#include "config_file.h"
#include "options.h"
#include "traffic.h"

#include <stdio.h>
#include <string.h>

enum key {
    KEY_CONNECT = NODE_KEY_OWN,
    KEY_CONFIG,
};

static const struct argp_option option_table[] = {
    CONFIG_FILE_ROW(KEY_CONFIG),
    {"connect", KEY_CONNECT, "HOST:PORT,...", 0, "The prefill nodes, which are asked in turn", 0},
    NODE_OPTION_ROWS,
    NODE_SOURCES_ROW,
    NODE_REDIAL_ROW,
    TRAFFIC_OPTION_ROWS,
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct traffic_config *config = state->input;
    switch (key) {
    case KEY_CONNECT:
        config->connect = argument;
        return 0;
    case KEY_CONFIG:
        return 0; /* config_file_parse() has read it */
    case ARGP_KEY_END:
        return config->connect != NULL
                   ? 0
                   : options_error(state->name, "--connect HOST:PORT must be given");
    default: /* shared ones, and the many other keys of argp */
        return traffic_config_parse(key, argument, state->name, config);
    }
}

static int run_decode(int argc, char **argv)
{
    static char name[] = "halage node decode";
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .doc = "Connect to a prefill node, let it prefill requests, decode them, and verify all "
               "of it against a run in one process.\vModel, seed, page and layout options must "
               "equal the prefill node's. Exit status: 0 all verified, 1 not, 2 bad options, 3 "
               "the two nodes cannot work together, 130 interrupted.",
    };
    struct traffic_config config;
    char text[1024];
    const char *file = NULL;
    enum hlg_log_level level;
    argv[0] = name;
    traffic_config_default(&config, name);
    if (config_file_parse(&options, argc, argv, &config, &file) != 0 ||
        !node_log_level(name, HLG_LOG_ERROR, &level)) {
        return CLI_BAD_INPUT;
    }
    if (options_same_file(name, "--json", config.json_file, config.trace) ||
        !options_output_possible(name, "--json", config.json_file)) {
        return CLI_BAD_INPUT;
    }
    if (file != NULL) {
        node_config_tell(&config.node, file, text, sizeof text);
    } else {
        node_config_print(&config.node, text, sizeof text);
    }
    (void)fprintf(stderr, "%s: connect %s %s\n", name, config.connect, text);
    return traffic_run(&config);
}

int cli_node(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    if (strcmp(kind, "decode") == 0) {
        return run_decode(argc - 1, argv + 1);
    }
    if (strcmp(kind, "prefill") == 0) {
        (void)fleet_exec("halage-prefill", argv + 1);
        return CLI_FAILED;
    }
    if (kind[0] == '-') {
        const struct argp options = {
            .args_doc = "prefill|decode [OPTION...]",
            .doc = "Run one node of a pair, for pairs that lie on different machines.\v"
                   "'halage node prefill --help' and 'halage node decode --help' say more.",
        };
        /* Only the first word is this command's; what argp answers itself does not return. */
        if (options_parse(&options, 2, argv, 0, NULL) != 0) {
            return CLI_BAD_INPUT;
        }
    }
    (void)fprintf(stderr, "halage node: %s%s%s; valid: prefill decode\n",
                  argc > 1 ? "unknown kind '" : "no kind of node", kind, argc > 1 ? "'" : "");
    return CLI_BAD_INPUT;
}
