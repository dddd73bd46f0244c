/* `halage demo`: prefill nodes and some decode nodes on this machine, and a check of every byte. */
#include "cli.h"
#include "options.h"
#include "traffic.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum key {
    KEY_DECODE_NODES = NODE_KEY_OWN,
    KEY_PREFILL_NODES,
    KEY_NETNS,
};

static const struct argp_option option_table[] = {
    NODE_OPTION_ROWS,
    NODE_SOURCES_ROW,
    {"prefill-nodes", KEY_PREFILL_NODES, "N", 0,
     "Prefill nodes, a multiple of the sources (default: as many)", 0},
    {"netns", KEY_NETNS, "NAME=IP,...", 0,
     "Network namespace, and address in it, of each node, prefill nodes first (default: all here, "
     "on loopback)",
     0},
    {"decode-nodes", KEY_DECODE_NODES, "N", 0, "Decode nodes (default 3)", 0},
    TRAFFIC_OPTION_ROWS,
    {0},
};

/* "NAME=IP,NAME=IP". Returns whether it is that. */
static bool take_places(const char *text, struct traffic_config *config)
{
    config->place_count = 0;
    while (*text != '\0') {
        struct fleet_place *place = &config->places[config->place_count];
        uint8_t bytes[16];
        const size_t name = strcspn(text, "=,/");
        const size_t ip = text[name] == '=' ? strcspn(text + name + 1, ",") : 0;
        if (config->place_count == FLEET_NODES_MAX || name == 0 || name >= sizeof place->netns ||
            ip == 0 || ip >= sizeof place->ip) {
            return false;
        }
        (void)snprintf(place->netns, sizeof place->netns, "%.*s", (int)name, text);
        (void)snprintf(place->ip, sizeof place->ip, "%.*s", (int)ip, text + name + 1);
        if (inet_pton(AF_INET, place->ip, bytes) != 1) {
            return false;
        }
        config->place_count++;
        text += name + 1 + ip;
        text += *text == ',' ? 1 : 0;
    }
    return config->place_count > 0;
}

/* A count of nodes, or a line on stderr. */
static int take_nodes(const char *program, const char *option, const char *argument, uint32_t max,
                      uint32_t *value)
{
    if (!options_u32(argument, value) || *value == 0 || *value > max) {
        return options_error(program, "--%s: '%s': write a whole number, 1 to %" PRIu32, option,
                             argument, max);
    }
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct traffic_config *config = state->input;
    if (key == KEY_DECODE_NODES) {
        return take_nodes(state->name, "decode-nodes", argument, FLEET_DECODE_MAX,
                          &config->decode_nodes);
    }
    if (key == KEY_PREFILL_NODES) {
        return take_nodes(state->name, "prefill-nodes", argument, FLEET_PREFILL_MAX,
                          &config->prefill_nodes);
    }
    if (key == KEY_NETNS && !take_places(argument, config)) {
        return options_error(state->name,
                             "--netns: '%s': write NAME=IP for each node, IPv4, commas between",
                             argument);
    }
    if (key == ARGP_KEY_END && config->prefill_nodes == 0) {
        config->prefill_nodes = config->node.sources;
    }
    if (key == ARGP_KEY_END && config->prefill_nodes % config->node.sources != 0) {
        return options_error(state->name,
                             "--prefill-nodes: %" PRIu32 ", of which %" PRIu32
                             " send each request: give a multiple of --sources",
                             config->prefill_nodes, config->node.sources);
    }
    if (key == ARGP_KEY_END && config->place_count > 0 &&
        config->place_count != config->prefill_nodes + config->decode_nodes) {
        return options_error(state->name, "--netns: %" PRIu32 " places for %" PRIu32 " nodes",
                             config->place_count, config->prefill_nodes + config->decode_nodes);
    }
    return key == KEY_NETNS ? 0 : traffic_config_parse(key, argument, state->name, config);
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
    config.prefill_nodes = 0;
    config.decode_nodes = 3;
    if (options_parse(&options, argc, argv, 0, &config) != 0) {
        return CLI_BAD_INPUT;
    }
    if (options_same_file(argv[0], "--json", config.json_file, config.trace) ||
        !options_output_possible(argv[0], "--json", config.json_file)) {
        return CLI_BAD_INPUT;
    }
    return traffic_run(&config);
}
