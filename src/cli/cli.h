/*
 * What the commands of `halage` share: exit statuses and one function each.
 */
#ifndef HALAGE_CLI_H
#define HALAGE_CLI_H

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,        /* ran, but failed */
    CLI_BAD_INPUT = 2,     /* options, files */
    CLI_INFEASIBLE = 3,    /* sound input, and the answer is no */
    CLI_INTERRUPTED = 130, /* by a signal; what was done is reported */
};

/* Each runs one command and returns an enum cli_exit. argv[0] is "halage <command>". */
int cli_plan(int argc, char **argv);
int cli_demo(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_node(int argc, char **argv);
int cli_perf(int argc, char **argv);
int cli_topo(int argc, char **argv);
int cli_trace(int argc, char **argv);

#endif
