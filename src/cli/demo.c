/* `halage demo`: a prefill node and some decode nodes on this machine, and a check of every byte. */
#include "cli.h"
#include "options.h"
#include "traffic.h"

enum key {
    KEY_DECODE_NODES = NODE_KEY_OWN,
};

static const struct argp_option option_table[] = {
    NODE_OPTION_ROWS,
    {"decode-nodes", KEY_DECODE_NODES, "N", 0, "Decode nodes (default 3)", 0},
    TRAFFIC_OPTION_ROWS,
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct traffic_config *config = state->input;
    if (key == KEY_DECODE_NODES) {
        if (!options_u32(argument, &config->decode_nodes) || config->decode_nodes == 0 ||
            config->decode_nodes > FLEET_DECODE_MAX) {
            return options_error(state->name, "--decode-nodes: '%s': write a whole number, 1 to %u",
                                 argument, FLEET_DECODE_MAX);
        }
        return 0;
    }
    return traffic_config_parse(key, argument, state->name, config);
}

int cli_demo(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .doc = "Run a small transformer, split over a prefill node and decode nodes on this "
               "machine, each rank a process; move its KV cache by RDMA writes while it is "
               "computed; and verify every token, every logit and every byte that landed against "
               "a run in one process.\vExit status: 0 all verified, 1 not, 2 bad options, 3 the "
               "two sides cannot be joined, 130 interrupted.",
    };
    struct traffic_config config;
    traffic_config_default(&config, argv[0]);
    config.decode_nodes = 3;
    if (options_parse(&options, argc, argv, 0, &config) != 0) {
        return CLI_BAD_INPUT;
    }
    return traffic_run(&config);
}
