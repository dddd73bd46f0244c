/* `halage-sim`: its commands. */
#include "command.h"
#include "dispatch.h"

const char *argp_program_version = "halage-sim " HALAGE_VERSION;

static const struct dispatch_command commands[] = {
    {"check", command_check, "say whether scenarios can be run, and what they stand for"},
    {"explain", command_explain, "run a scenario and tell one request's life"},
    {"init", command_init, "write a commented scenario with every key"},
    {"list", command_list, "list models, gpus, nics, nodes, engines or keys"},
    {"plan", command_plan, "find the split of so many GPUs that meets an SLO"},
    {"run", command_run, "run a scenario: latencies, throughput, what is full"},
    {"sweep", command_sweep, "run a grid of scenarios, on all cores or many machines"},
};

int main(int argc, char **argv)
{
    static const struct dispatch program = {
        .name = "halage-sim",
        .doc =
            "Simulate clusters that prefill and decode apart, with the messenger's own core over "
            "simulated links.\v",
        .commands = commands,
        .count = sizeof commands / sizeof commands[0],
    };
    return dispatch(&program, argc, argv);
}
