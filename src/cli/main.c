/* `halage`: its commands. */
#include "cli.h"
#include "dispatch.h"

const char *argp_program_version = "halage " HALAGE_VERSION;

static const struct dispatch_command commands[] = {
    {"demo", cli_demo, "run a prefill node and decode nodes here, and verify every byte"},
    {"doctor", cli_doctor, "say whether this machine is set up for RDMA between GPUs"},
    {"key", cli_key, "make a key, with which nodes know each other"},
    {"node", cli_node, "run one node: 'halage node prefill' or 'halage node decode'"},
    {"perf", cli_perf, "measure what writes between two processes or machines cost"},
    {"plan", cli_plan, "print what goes where between two layouts"},
    {"topo", cli_topo, "print which NICs and cores are near which GPU"},
    {"trace", cli_trace, "print what a node recorded, and replay it"},
};

int main(int argc, char **argv)
{
    static const struct dispatch program = {
        .name = "halage",
        .doc = "Move KV caches from prefill nodes to decode nodes.\v",
        .commands = commands,
        .count = sizeof commands / sizeof commands[0],
    };
    return dispatch(&program, argc, argv);
}
