/* `halage perf serve|run|layer`: command lines. */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

enum key {
    KEY_LISTEN = 256,
    KEY_NODE,
    KEY_INSECURE,
    KEY_ONCE,
    KEY_LOCAL,
    KEY_PROVIDER,
    KEY_SIZES,
    KEY_PAGES,
    KEY_ORDER,
    KEY_PEERS,
    KEY_RAILS,
    KEY_WINDOW,
    KEY_MEMORY,
    KEY_DEVICE,
    KEY_STAGED,
    KEY_ROUNDS,
    KEY_PAIRS,
    KEY_SPAN,
    KEY_CHECK,
    KEY_BARE,
    KEY_NO_LATENCY,
    KEY_JSON,
    KEY_WRITE,
    KEY_PLANT,
    KEY_PAGE_BYTES,
    KEY_LAYERS,
    KEY_FORWARDS,
    KEY_LAYER_US,
    KEY_CPU,
    KEY_COUNTERS,
};

#define ROUNDS_DEFAULT 5u
#define PAIRS_DEFAULT  15u

#define DEVICE_MAX 1023u

#define MEMORY_ROWS                                                                                 \
    {                                                                                               \
        "memory", KEY_MEMORY, "KIND", 0, "host (default), or cuda: memory of a GPU, at both sides", \
        0},                                                                                         \
        {"device", KEY_DEVICE, "N", 0, "GPU of this side, and of --local's (default 0)", 0},        \
    {                                                                                               \
        "staged", KEY_STAGED, NULL, 0,                                                              \
            "With --memory cuda: move pages through pinned host memory, for providers that "        \
            "cannot reach GPUs",                                                                    \
            0                                                                                       \
    }

#define COMMON_ROWS                                                                   \
    {"node",                                                                          \
     KEY_NODE,                                                                        \
     "IP",                                                                            \
     0,                                                                               \
     "Address that endpoints bind to (default: the one that the "                     \
     "connection uses)",                                                              \
     0},                                                                              \
    {                                                                                 \
        "insecure", KEY_INSECURE, NULL, 0, "Allow addresses that are not loopback", 0 \
    }

static int read_number(const char *argument, uint32_t least, uint32_t most, const char *program,
                       const char *option, uint32_t *value)
{
    uint32_t read = 0;

    if (!options_u32(argument, &read) || read < least || read > most) {
        return options_error(program, "--%s: '%s': write a whole number, %u to %u", option,
                             argument, least, most);
    }
    *value = read;
    return 0;
}

static int read_ip(const char *argument, const char *program, const char **ip)
{
    if (!options_ip(argument)) {
        return options_error(program, "--node: '%s': write an IPv4 or IPv6 address", argument);
    }
    *ip = argument;
    return 0;
}

static int read_device(const char *argument, const char *program, struct perf_place *place)
{
    uint32_t device = 0;
    const int error = read_number(argument, 0, DEVICE_MAX, program, "device", &device);

    place->device = (int32_t)device;
    return error;
}

/* ---- serve ---- */

static const struct argp_option serve_table[] = {
    {"listen", KEY_LISTEN, "HOST:PORT", 0, "Address to listen on (default 127.0.0.1:7117)", 0},
    COMMON_ROWS,
    {"device", KEY_DEVICE, "N", 0, "GPU that memory is taken of where it is asked for (default 0)",
     0},
    {"once", KEY_ONCE, NULL, 0, "End after the first one who asks", 0},
    {0},
};

static error_t parse_serve(int key, char *argument, struct argp_state *state)
{
    struct perf_serve *serve = state->input;

    switch (key) {
    case KEY_LISTEN:
        serve->listen = argument;
        return 0;
    case KEY_NODE:
        return read_ip(argument, state->name, &serve->place.node);
    case KEY_DEVICE:
        return read_device(argument, state->name, &serve->place);
    case KEY_INSECURE:
        serve->insecure = true;
        return 0;
    case KEY_ONCE:
        serve->once = true;
        return 0;
    case ARGP_KEY_ARG:
        return options_error(state->name, "unknown argument '%s'; there are none", argument);
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

static int serve_main(int argc, char **argv)
{
    static char name[] = "halage perf serve";
    const struct argp options = {
        .options = serve_table,
        .parser = parse_serve,
        .doc = "Receive what 'halage perf run' sends, one of them at a time, until a signal.\v"
               "Whoever connects can have memory taken and written to: listen on loopback, or on a "
               "network of your own with --insecure. Exit status: 1 cannot listen, 2 bad options, "
               "130 signal.",
    };
    struct perf_serve serve = {.program = name, .listen = "127.0.0.1:7117"};

    argv[0] = name;
    if (options_parse(&options, argc, argv, 0, &serve) != 0) {
        return CLI_BAD_INPUT;
    }
    perf_catch();
    return perf_serve(&serve, -1);
}

/* ---- run ---- */

static const struct argp_option run_table[] = {
    {"local", KEY_LOCAL, NULL, 0, "Start the serving side here too", 0},
    {"provider", KEY_PROVIDER, "NAME", 0, "libfabric provider (default auto)", 0},
    {"sizes", KEY_SIZES, "BYTES,...", 0,
     "Bytes of a page, such as 4096, 4k or 1MiB (default 256,1k,4k,16k,64k,256k,1m)", 0},
    {"pages", KEY_PAGES, "N", 0, "Pages of a layer (default 256, or as many as make 32 MiB)", 0},
    {"order", KEY_ORDER, "WHICH", 0,
     "contiguous, scattered or both (default): where neighbours lie at source and target", 0},
    {"peers", KEY_PEERS, "N", 0, "Decode nodes written to at a time, 1 to 64 (default 1)", 0},
    {"rails", KEY_RAILS, "N", 0, "Endpoints that share each layer, 1 to 8 (default 1)", 0},
    {"window", KEY_WINDOW, "N", 0, "Writes on their way to a peer (default 64)", 0},
    MEMORY_ROWS,
    {"rounds", KEY_ROUNDS, "N", 0, "Repetitions of a row, whose median counts (default 5)", 0},
    {"span", KEY_SPAN, "MS", 0, "Milliseconds of a repetition (default 200)", 0},
    {"check", KEY_CHECK, NULL, 0, "Look at every byte at the target", 0},
    {"bare", KEY_BARE, NULL, 0,
     "Run the minimal libfabric loop in turn with it, and print the ratio", 0},
    {"pairs", KEY_PAIRS, "N", 0, "Repetitions with --bare (default 15)", 0},
    {"no-latency", KEY_NO_LATENCY, NULL, 0, "Leave out the columns of latency", 0},
    {"json", KEY_JSON, "FILE", 0, "Write all numbers as JSON ('-': standard output)", 0},
    {"write", KEY_WRITE, "FILE", 0, "Add the rows to a tab-separated file", 0},
    COMMON_ROWS,
    {"plant", KEY_PLANT, NULL, OPTION_HIDDEN, "For tests: send a wrong byte", 0},
    {0},
};

static int read_sizes(const char *argument, const char *program, struct perf_options *o)
{
    const char *at = argument;

    o->size_count = 0;
    while (o->size_count < PERF_SIZES_MAX) {
        uint32_t *size = &o->sizes[o->size_count++];
        if (!options_bytes(at, &at, size) || *size == 0 || *size > PERF_PAGE_BYTES_MAX) {
            break;
        }
        if (*at == '\0') {
            return 0;
        }
        if (*at++ != ',') {
            break;
        }
    }
    return options_error(
        program, "--sizes: '%s': write at most %u sizes such as 256,4k,1MiB, each up to 1GiB",
        argument, PERF_SIZES_MAX);
}

static int read_order(const char *argument, const char *program, struct perf_options *o)
{
    const bool both = strcmp(argument, "both") == 0;

    o->contiguous = both || strcmp(argument, "contiguous") == 0;
    o->scattered = both || strcmp(argument, "scattered") == 0;
    return o->contiguous || o->scattered
               ? 0
               : options_error(program, "--order: '%s': write contiguous, scattered or both",
                               argument);
}

static int read_memory(const char *argument, const char *program, struct perf_options *o)
{
    o->cuda = strcmp(argument, "cuda") == 0;
    return o->cuda || strcmp(argument, "host") == 0
               ? 0
               : options_error(program, "--memory: unknown kind '%s'; valid: host cuda", argument);
}

static error_t parse_run_number(int key, const char *argument, const char *program,
                                struct perf_options *o)
{
    switch (key) {
    case KEY_PAGES:
        return read_number(argument, 1, PERF_PAGES_MAX, program, "pages", &o->pages);
    case KEY_PEERS:
        return read_number(argument, 1, PERF_PEERS_MAX, program, "peers", &o->peers);
    case KEY_RAILS:
        return read_number(argument, 1, PERF_RAILS_MAX, program, "rails", &o->rails);
    case KEY_WINDOW:
        return read_number(argument, 1, PERF_WINDOW_MAX, program, "window", &o->window);
    case KEY_ROUNDS:
        return read_number(argument, 1, PERF_ROUNDS_MAX, program, "rounds", &o->rounds);
    case KEY_PAIRS:
        return read_number(argument, 1, PERF_ROUNDS_MAX, program, "pairs", &o->pairs);
    case KEY_SPAN:
        return read_number(argument, 1, 60000, program, "span", &o->span_ms);
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t end_run(const char *program, struct perf_options *o)
{
    if ((o->address != NULL) == o->local) {
        return options_error(program, "give the address of 'halage perf serve', or --local%s",
                             o->local ? ", not both" : "");
    }
    if (!o->cuda && (o->staged || o->device)) {
        return options_error(program, "--%s: is for memory of GPUs: add --memory cuda",
                             o->staged ? "staged" : "device");
    }
    if (o->plant && !o->check) {
        return options_error(program, "--plant needs --check");
    }
    if (o->bare && (o->peers > 1 || o->rails > 1)) {
        return options_error(program, "--bare has one peer and one rail; leave out --peers and "
                                      "--rails");
    }
    if (o->bare && o->cuda) {
        return options_error(program, "--bare has host memory; leave out --memory cuda");
    }
    if (o->bare ? o->rounds != 0 : o->pairs != 0) {
        return options_error(program, "--%s is for runs %s --bare; use --%s",
                             o->bare ? "rounds" : "pairs", o->bare ? "without" : "with",
                             o->bare ? "pairs" : "rounds");
    }
    o->rounds = o->bare ? o->pairs : o->rounds;
    if (o->rounds == 0) {
        o->rounds = o->bare ? PAIRS_DEFAULT : ROUNDS_DEFAULT;
    }
    return 0;
}

static error_t parse_run(int key, char *argument, struct argp_state *state)
{
    struct perf_options *o = state->input;

    switch (key) {
    case KEY_LOCAL:
        o->local = true;
        return 0;
    case KEY_PROVIDER:
        o->provider = argument;
        return 0;
    case KEY_NODE:
        return read_ip(argument, state->name, &o->place.node);
    case KEY_MEMORY:
        return read_memory(argument, state->name, o);
    case KEY_DEVICE:
        o->device = true;
        return read_device(argument, state->name, &o->place);
    case KEY_STAGED:
        o->staged = true;
        return 0;
    case KEY_INSECURE:
        o->insecure = true;
        return 0;
    case KEY_SIZES:
        return read_sizes(argument, state->name, o);
    case KEY_ORDER:
        return read_order(argument, state->name, o);
    case KEY_CHECK:
        o->check = true;
        return 0;
    case KEY_BARE:
        o->bare = true;
        return 0;
    case KEY_NO_LATENCY:
        o->latency = false;
        return 0;
    case KEY_PLANT:
        o->plant = true;
        return 0;
    case KEY_JSON:
        o->json_file = argument;
        return 0;
    case KEY_WRITE:
        o->tsv_file = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (o->address != NULL) {
            return options_error(state->name, "unknown argument '%s'; one address is enough",
                                 argument);
        }
        o->address = argument;
        return 0;
    case ARGP_KEY_END:
        return end_run(state->name, o);
    default: /* numbers, and the many other keys of argp */
        return parse_run_number(key, argument, state->name, o);
    }
}

static int run_main(int argc, char **argv)
{
    static char name[] = "halage perf run";
    const struct argp options = {
        .options = run_table,
        .parser = parse_run,
        .args_doc = "[HOST:PORT]",
        .doc =
            "Measure paged writes to a 'halage perf serve', or to one that is started here "
            "(--local).\vWrites go through the machines and the pump that a messenger runs, "
            "requests' frames included; latency is of the transport alone. Exit status: 0 done, 1 "
            "failed or wrong bytes, 2 bad options, 130 interrupted.",
    };
    struct perf_options o = {.program = name,
                             .provider = "auto",
                             .contiguous = true,
                             .scattered = true,
                             .latency = true,
                             .sizes = {256, 1024, 4096, 16384, 65536, 262144, 1048576},
                             .size_count = 7,
                             .peers = 1,
                             .rails = 1,
                             .window = 64,
                             .span_ms = 200};

    argv[0] = name;
    if (options_parse(&options, argc, argv, 0, &o) != 0 ||
        !options_output_possible(name, "--json", o.json_file) ||
        !options_output_possible(name, "--write", o.tsv_file) ||
        options_one_output(name, "--json", o.json_file, "--write", o.tsv_file)) {
        return CLI_BAD_INPUT;
    }
    return perf_run(&o);
}

/* ---- layer ---- */

static const struct argp_option layer_table[] = {
    {"local", KEY_LOCAL, NULL, 0, "Start the serving side here too", 0},
    {"provider", KEY_PROVIDER, "NAME", 0, "libfabric provider (default auto)", 0},
    {"page-bytes", KEY_PAGE_BYTES, "BYTES", 0, "Bytes of a page, such as 16384 or 16k (default)",
     0},
    {"pages", KEY_PAGES, "N", 0, "Pages of a layer (default 8)", 0},
    {"layers", KEY_LAYERS, "N", 0, "Layers, 1 to 64 (default 32)", 0},
    {"forwards", KEY_FORWARDS, "N", 0, "Forward passes, one request each (default 50)", 0},
    {"layer-us", KEY_LAYER_US, "US", 0, "Microseconds that a layer takes (default 500)", 0},
    {"counters", KEY_COUNTERS, "WHO", 0,
     "core, thread or both (default): who reads the counter word", 0},
    MEMORY_ROWS,
    {"cpu", KEY_CPU, "N", 0, "Give this processor to the core thread alone", 0},
    {"json", KEY_JSON, "FILE", 0, "Write all numbers as JSON ('-': standard output)", 0},
    COMMON_ROWS,
    {0},
};

static error_t parse_layer_number(int key, const char *argument, const char *program,
                                  struct perf_options *o)
{
    uint32_t cpu = 0;

    switch (key) {
    case KEY_PAGE_BYTES:
        return options_bytes(argument, NULL, &o->page_bytes) && o->page_bytes > 0 &&
                       o->page_bytes <= PERF_PAGE_BYTES_MAX
                   ? 0
                   : options_error(program,
                                   "--page-bytes: '%s': write a size such as 16k, up to 1GiB",
                                   argument);
    case KEY_LAYERS:
        return read_number(argument, 1, PERF_LAYERS_MAX, program, "layers", &o->layers);
    case KEY_FORWARDS:
        return read_number(argument, 1, 100000, program, "forwards", &o->forwards);
    case KEY_LAYER_US:
        return read_number(argument, 1, 1000000, program, "layer-us", &o->layer_us);
    case KEY_CPU:
        if (read_number(argument, 0, 1023, program, "cpu", &cpu) != 0) {
            return EINVAL;
        }
        o->cpu = (int)cpu;
        return 0;
    default: /* shared ones */
        return parse_run_number(key, argument, program, o);
    }
}

static error_t parse_layer(int key, char *argument, struct argp_state *state)
{
    struct perf_options *o = state->input;
    const bool both = key == KEY_COUNTERS && strcmp(argument, "both") == 0;

    switch (key) {
    case KEY_LOCAL:
    case KEY_PROVIDER:
    case KEY_NODE:
    case KEY_INSECURE:
    case KEY_MEMORY:
    case KEY_DEVICE:
    case KEY_STAGED:
    case KEY_JSON:
    case ARGP_KEY_ARG:
    case ARGP_KEY_END:
        return parse_run(key, argument, state);
    case KEY_COUNTERS:
        o->core = both || strcmp(argument, "core") == 0;
        o->thread = both || strcmp(argument, "thread") == 0;
        return o->core || o->thread
                   ? 0
                   : options_error(state->name, "--counters: '%s': write core, thread or both",
                                   argument);
    default: /* numbers, and the many other keys of argp */
        return parse_layer_number(key, argument, state->name, o);
    }
}

static int layer_main(int argc, char **argv)
{
    static char name[] = "halage perf layer";
    const struct argp options = {
        .options = layer_table,
        .parser = parse_layer,
        .args_doc = "[HOST:PORT]",
        .doc =
            "Measure the whole way of a layer: from the stamp of the counter word to its first "
            "write, "
            "to the source's end and to the target's.\vBoth sides run messengers. Exit status: as "
            "of 'halage perf run'.",
    };
    struct perf_options o = {.program = name,
                             .provider = "auto",
                             .page_bytes = 16384,
                             .pages = 8,
                             .layers = 32,
                             .window = 64,
                             .forwards = 50,
                             .layer_us = 500,
                             .cpu = -1,
                             .core = true,
                             .thread = true};

    argv[0] = name;
    if (options_parse(&options, argc, argv, 0, &o) != 0 ||
        !options_output_possible(name, "--json", o.json_file)) {
        return CLI_BAD_INPUT;
    }
    return perf_layer(&o);
}

int cli_perf(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";

    if (strcmp(kind, "serve") == 0) {
        return serve_main(argc - 1, argv + 1);
    }
    if (strcmp(kind, "run") == 0) {
        return run_main(argc - 1, argv + 1);
    }
    if (strcmp(kind, "layer") == 0) {
        return layer_main(argc - 1, argv + 1);
    }
    if (kind[0] == '-') {
        const struct argp options = {
            .args_doc = "serve|run|layer [OPTION...]",
            .doc = "Measure what writes between two processes or machines cost.\v"
                   "'halage perf run --local' is a table in some twenty seconds; 'halage perf run "
                   "--help' says more.",
        };
        /* Only the first word is this command's; what argp answers itself does not return. */
        if (options_parse(&options, 2, argv, 0, NULL) != 0) {
            return CLI_BAD_INPUT;
        }
    }
    (void)fprintf(stderr, "halage perf: %s%s%s; valid: serve run layer\n",
                  argc > 1 ? "unknown kind '" : "no kind", kind, argc > 1 ? "'" : "");
    return CLI_BAD_INPUT;
}
