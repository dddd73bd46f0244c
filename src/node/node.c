#define _GNU_SOURCE /* signalfd() */
#include "node.h"

#include "../cli/cli.h"
#include "../cli/config_file.h"
#include "../cli/options.h"
#include "crash.h"
#include "lane.h"
#include "place.h"
#include "plant_fabric.h"
#include "plant_stop.h"

#include <halage/prefill.h>
#include <halage/refusal.h>
#include <halage/transport/ofi.h>
#include <halage/transport/tcp.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_BYTES 4096u

enum key {
    KEY_LISTEN = NODE_KEY_OWN,
    KEY_CONNECT,
    KEY_CONTROL,
    KEY_NUMBER,
    KEY_VERBOSE,
    KEY_CONFIG,
};

static const struct argp_option prefill_options[] = {
    CONFIG_FILE_ROW(KEY_CONFIG),
    {"listen", KEY_LISTEN, "HOST:PORT", 0,
     "Where decode nodes connect; :PORT is all addresses, port 0 any (default 127.0.0.1:7700)", 0},
    NODE_OPTION_ROWS,
    NODE_SOURCE_ROW,
    {"verbose", KEY_VERBOSE, NULL, 0, "Show the messenger's log", 0},
    {"control-fd", KEY_CONTROL, "FD", OPTION_HIDDEN, NULL, 0},
    {"number", KEY_NUMBER, "N", OPTION_HIDDEN, NULL, 0},
    {0},
};

static const struct argp_option decode_options[] = {
    CONFIG_FILE_ROW(KEY_CONFIG),
    {"connect", KEY_CONNECT, "HOST:PORT,...", 0, "The prefill nodes, which are asked in turn", 0},
    NODE_OPTION_ROWS,
    NODE_SOURCES_ROW,
    NODE_REDIAL_ROW,
    {"verbose", KEY_VERBOSE, NULL, 0, "Show the messenger's log", 0},
    {"control-fd", KEY_CONTROL, "FD", OPTION_HIDDEN, NULL, 0},
    {"number", KEY_NUMBER, "N", OPTION_HIDDEN, NULL, 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct node_options *options = state->input;
    uint32_t number = 0;
    switch (key) {
    case KEY_LISTEN:
    case KEY_CONNECT:
        options->address = argument;
        return 0;
    case KEY_VERBOSE:
        options->verbose = true;
        return 0;
    case KEY_CONFIG:
        return 0; /* config_file_parse() has read it */
    case KEY_CONTROL:
        if (!options_u32(argument, &number) || number > INT32_MAX) {
            return options_error(state->name, "--control-fd: '%s': no descriptor", argument);
        }
        options->control = (int)number;
        return 0;
    case KEY_NUMBER:
        return options_u32(argument, &options->number)
                   ? 0
                   : options_error(state->name, "--number: '%s': no number", argument);
    case ARGP_KEY_ARG:
        return options_no_argument(state->name, argument);
    default: /* shared ones, and the many other keys of argp */
        return node_config_parse(key, argument, state->name, &options->config);
    }
}

int node_options_parse(struct node_options *options, enum hlg_role role, int argc, char **argv)
{
    const struct argp table = {
        .options = role == HLG_ROLE_PREFILL ? prefill_options : decode_options,
        .parser = parse,
        .doc = role == HLG_ROLE_PREFILL
                   ? "Prefill prompts for decode nodes, and write their KV caches there."
                   : "Decode what a prefill node prefilled. Started by halage.",
    };
    *options = (struct node_options){.control = -1, .program = argv[0]};
    node_config_default(&options->config);
    if (config_file_parse(&table, argc, argv, options, &options->file) != 0 ||
        !node_log_level(argv[0], options->verbose ? HLG_LOG_INFO : HLG_LOG_ERROR,
                        &options->level)) {
        return CLI_BAD_INPUT;
    }
    return 0;
}

hlg_time node_now(void)
{
    struct timespec now;
    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

bool node_address(const struct node_options *options, uint32_t index,
                  char address[NODE_ADDRESS_BYTES])
{
    const char *at = options->address;
    for (; index > 0 && at != NULL; index--) {
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    if (at == NULL) {
        return false;
    }
    (void)snprintf(address, NODE_ADDRESS_BYTES, "%.*s", (int)strcspn(at, ","), at);
    return true;
}

/* What goes before the title of a node that has a starter, where the starter does not put its own name. */
static const char *stderr_prefix(const struct node *node)
{
    return node->options.control < 0 ? "" : "halage: ";
}

void node_say(const struct node *node, const char *format, ...)
{
    struct control_text frame = {.head.kind = CONTROL_TEXT};
    char line[CONTROL_TEXT_BYTES - sizeof node->title - 2];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    (void)snprintf(frame.text, sizeof frame.text, "%s: %s", node->title, line);
    if (node->options.control < 0 ||
        control_send(node->options.control, &frame, sizeof frame, true) != 1) {
        (void)fprintf(stderr, "%s%s\n", stderr_prefix(node), frame.text);
    }
}

static void take_log(void *context, enum hlg_log_level level, const char *line)
{
    struct node *node = context;
    plant_stop_line(node, line);
    if (level <= node->options.level) {
        node_say(node, "%s: %s", hlg_log_level_text(level), line);
    }
}

static void take_fabric_log(void *context, const char *sentence)
{
    struct node *node = context;
    const bool choosing = node->fabric == NULL; /* what was chosen and why: the title shows it */
    if (choosing && node->why[0] == '\0') {
        (void)snprintf(node->why, sizeof node->why, "%s", sentence);
    }
    if (!choosing || node->options.verbose) {
        node_say(node, "%s", sentence);
    }
}

/* Ctrl-C goes to all processes of a terminal, but is the starter's business where there is one. Ranks
 * inherit that both are blocked: the leader ends them. */
static int open_signals(struct node *node)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (node->options.control >= 0) {
        (void)sigdelset(&set, SIGINT);
    }
    node->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (node->signals < 0) {
        node_say(node, "signals cannot be taken: %s", strerror(errno));
        return CLI_FAILED;
    }
    return CLI_DONE;
}

/* The address that endpoints bind to: as told, else the one that leads to the other nodes. */
static int choose_ip(struct node *node, char ip[HLG_TCP_IP_BYTES])
{
    char text[256] = "";
    char address[NODE_ADDRESS_BYTES];
    const bool listens = node->role == HLG_ROLE_PREFILL;
    (void)node_address(&node->options, 0, address);
    if (node->options.config.advertise != NULL) {
        (void)snprintf(ip, HLG_TCP_IP_BYTES, "%s", node->options.config.advertise);
        return CLI_DONE;
    }
    if (address[0] == ':' && listens) {
        node_say(node,
                 "--listen %s takes decode nodes from anywhere: add --advertise IP, the "
                 "address of this host that they reach",
                 address);
        return CLI_BAD_INPUT;
    }
    const int status = hlg_tcp_local_ip(address, ip, text, sizeof text);
    if (status != 0) {
        node_say(node, "--%s: %s", listens ? "listen" : "connect", text);
        return status == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    return CLI_DONE;
}

static void take_staged_log(void *context, const char *sentence)
{
    struct node *node = context;
    if (node->started || node->options.verbose) { /* at start it says what --staged is */
        node_say(node, "%s", sentence);
    }
}

/* How pages in memory of GPUs get to the wire, and from there: as told, never chosen here. */
static int reach_gpus(struct node *node)
{
    char text[256] = "";
    struct hlg_transport_caps caps;
    node->fabric->query(node->fabric, &caps);
    if (!node->options.config.cuda || (caps.device_memory && !node->options.config.staged)) {
        return CLI_DONE;
    }
    if (!node->options.config.staged) {
        node_say(node,
                 "provider %s cannot reach memory of GPUs here: add --staged, which moves pages "
                 "through pinned host memory",
                 node->provider);
        return CLI_FAILED;
    }
    const struct hlg_staged_config config = {
        .below = node->fabric,
        .target = node->role == HLG_ROLE_DECODE,
        .log = take_staged_log,
        .log_context = node,
    };
    if (hlg_staged_create(&config, &node->staged, text, sizeof text) != 0) {
        node_say(node, "%s", text);
        return CLI_FAILED;
    }
    node->fabric = hlg_staged_fabric(node->staged);
    return CLI_DONE;
}

static int open_fabric(struct node *node)
{
    char text[256] = "";
    char ip[HLG_TCP_IP_BYTES] = "";
    struct hlg_transport_caps caps;
    const int chosen = choose_ip(node, ip);
    if (chosen != CLI_DONE) {
        return chosen;
    }
    const struct hlg_ofi_config config = {
        .provider = node->options.config.provider,
        .node = ip,
        .port = node->options.config.data_port,
        .devices = node->rails == 0 ? node->options.config.nics : NULL,
        .rails = node->rails,
        .device_memory = node->options.config.cuda && !node->options.config.staged,
        .lane_devices = node->rails == 0 ? NULL : (const char *const *)node->lane_nics,
        .lane_count = node->rails == 0 ? 0 : HLG_RANKS_MAX,
        .log = take_fabric_log,
        .log_context = node,
    };
    int status = hlg_ofi_open(&config, &node->fabric, text, sizeof text);
    if (status != 0) {
        node_say(node, "%s", text);
        return status == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    node->fabric->query(node->fabric, &caps);
    memcpy(node->provider, caps.provider, sizeof node->provider);
    node->provider[sizeof node->provider - 1] = '\0';
    node->ofi = node->fabric;
    status = reach_gpus(node);
    if (status != CLI_DONE) {
        return status;
    }
    return plant_fabric_wrap(node) ? CLI_DONE : CLI_FAILED;
}

/* Places of all lanes; a planted fault moves one of them. */
static int add_places(struct node *node)
{
    const struct plant *plant = &node->options.config.plant;
    const uint32_t token_bytes = node->layout.groups[0].head_bytes;
    for (uint32_t lane = 0; lane < hlg_layout_lanes(&node->layout); lane++) {
        const int count = hlg_places_linear(&node->layout, lane, NULL, 0, NULL);
        struct hlg_place *places = calloc((size_t)(count > 0 ? count : 1), sizeof *places);
        int status = places == NULL || count <= 0 ? -HLG_ENOMEM : 0;
        if (status == 0) {
            (void)hlg_places_linear(&node->layout, lane, places, (uint32_t)count, NULL);
        }
        for (int i = 0; i < count && status == 0; i++) {
            if (plant->kind == PLANT_OFFSET && node->role == HLG_ROLE_DECODE &&
                places[i].group == 0 && lane == plant->rank && places[i].layer == plant->layer &&
                places[i].plane == plant->plane) {
                places[i].offset += token_bytes;
            }
            status = hlg_messenger_place_add(node->messenger, &places[i]);
        }
        free(places);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int add_memory(struct node *node)
{
    int status = 0;
    for (uint32_t lane = 0; lane < hlg_layout_lanes(&node->layout) && status >= 0; lane++) {
        struct hlg_memory *memory = ranks_memory(node->ranks, node_ranks_lane(node, lane));
        const struct hlg_mem_region region = hlg_memory_region(memory);
        status = hlg_messenger_region_add(node->messenger, lane, &region);
    }
    if (status >= 0) {
        status = add_places(node);
    }
    if (status == 0 && node->role == HLG_ROLE_PREFILL) {
        HLG_ASSERT(hlg_prefill_words(&node->layout) == 1);
        status = hlg_messenger_counter_watch(node->messenger, 0, plant_fabric_word(node));
    }
    return status;
}

/* Where this node's trace goes. Returns whether it fits. */
static bool record_path(const struct node *node, char path[RECORD_BYTES])
{
    const char *directory = node->options.config.record;
    const char *kind = node->role == HLG_ROLE_PREFILL ? "prefill" : "decode";
    const uint32_t number = node->options.number;
    int bytes = number == 0 ? snprintf(path, RECORD_BYTES, "%s/%s.trace", directory, kind)
                            : snprintf(path, RECORD_BYTES, "%s/%s-%" PRIu32 ".trace", directory,
                                       kind, number);
    return bytes > 0 && bytes < (int)RECORD_BYTES;
}

/* What all nodes have, and what the options say. */
static void fill_limits(const struct node *node, struct hlg_messenger_config *config)
{
    const hlg_time lease_ns = node->options.config.lease_ms * HLG_NS_PER_MS;
    hlg_messenger_config_default(config);
    config->limits.requests_max = NODE_REQUESTS_MAX;
    config->limits.prompt_bytes_max = NODE_CONTEXT_TOKENS * 4;
    config->limits.message_bytes_max = 1u << 20;
    /* Forwards pile up while a decode node is slow to take what they made. */
    config->limits.forwards_max = NODE_FORWARDS_MAX;
    config->limits.chunks_max = 16384;
    config->watchdog_ns = node->options.config.watchdog_ms * HLG_NS_PER_MS;
    config->watchdog_exit = CLI_FAILED;
    if (lease_ns != 0) {
        /* In the proportions of the defaults. */
        config->limits.lease_ns = lease_ns;
        config->limits.heartbeat_ns = lease_ns / 6;
        config->limits.fence_ns = lease_ns / 3;
    }
}

static int open_messenger(struct node *node)
{
    char text[256] = "";
    char record[RECORD_BYTES];
    struct hlg_messenger_config config;
    fill_limits(node, &config);
    config.role = node->role;
    config.node = node->options.config.node_id;
    config.layout = node->layout;
    node_fingerprint(&node->options.config.model, config.fingerprint);
    config.fabric = node->fabric;
    config.listen = node->role == HLG_ROLE_PREFILL ? node->options.address : NULL;
    config.key = node->options.config.key_file != NULL ? node->options.config.key : NULL;
    config.allow_unauthenticated = node->options.config.insecure;
    config.cores = node->placement.cores[0] != '\0' ? node->placement.cores : NULL;
    config.numa = node->placement.numa;
    config.flush = node->options.config.flush;
    config.log = take_log;
    config.log_context = node;
    /* A planted stop goes by lines that nobody sees. */
    config.log_level = plant_has_step(&node->options.config.plant) ? (uint32_t)HLG_LOG_DEBUG
                                                                   : (uint32_t)node->options.level;
    if (node->options.config.record != NULL) {
        /* Where it cannot be made, the file in it cannot be either, which says why. */
        (void)mkdir(node->options.config.record, 0777);
        if (!record_path(node, record)) {
            node_say(node, "--record: the name of the directory is too long");
            return CLI_FAILED;
        }
        config.record = record;
    }
    const int made = hlg_messenger_create(&config, &node->messenger, text, sizeof text);
    if (made != 0) {
        node->messenger = NULL;
        node_say(node, "%s", text);
        return made == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    int status = add_memory(node);
    if (status == 0) {
        status = hlg_messenger_start(node->messenger);
    }
    if (status != 0) {
        node_say(node, "the messenger does not start: %s (%s)",
                 hlg_messenger_error(node->messenger), hlg_error_text(status));
        /* With memory of GPUs it may be the driver's word for what nobody gave. */
        return status == -HLG_EINVAL && !node->options.config.cuda ? CLI_BAD_INPUT : CLI_FAILED;
    }
    return CLI_DONE;
}

/* A node goes on without its numbers. */
static void serve_metrics(struct node *node)
{
    char text[256] = "";
    const struct node_config *config = &node->options.config;

    if (config->metrics == NULL) {
        return;
    }
    if (hlg_exporter_start(node->messenger, config->metrics_port, &node->exporter, text,
                           sizeof text) != 0) {
        node->exporter = NULL;
        node_say(node, "%s; the node goes on without", text);
        return;
    }
    node_say(node, "metrics at http://127.0.0.1:%" PRIu32 "/metrics",
             hlg_exporter_port(node->exporter));
}

static void set_fds(struct node *node)
{
    node->fds[0] = (struct pollfd){.fd = hlg_messenger_fd(node->messenger), .events = POLLIN};
    node->fds[1] = (struct pollfd){.fd = node->options.control, .events = POLLIN};
    node->fds[2] = (struct pollfd){.fd = node->signals, .events = POLLIN};
    node->fd_count = 3 + ranks_poll_fds(node->ranks, node->fds + 3, 2 * HLG_RANKS_MAX);
}

int node_start(struct node *node, enum hlg_role role)
{
    char text[HLG_REFUSAL_TEXT_BYTES];
    struct node_config *config = &node->options.config;
    node->role = role;
    const char *kind = role == HLG_ROLE_PREFILL ? "prefill" : "decode";
    if (node->options.control < 0) {
        (void)snprintf(node->title, sizeof node->title, "%.23s", node->options.program);
    } else if (node->options.number == 0) {
        (void)snprintf(node->title, sizeof node->title, "%s node", kind);
    } else {
        (void)snprintf(node->title, sizeof node->title, "%s node %" PRIu32, kind,
                       node->options.number);
    }
    const int sound = node_config_check(config, text, sizeof text);
    if (sound != 0) {
        node_say(node, "%s", text);
        return sound == -HLG_EPLAN ? CLI_INFEASIBLE : CLI_BAD_INPUT;
    }
    node_layout(config, role, &node->layout);
    node_layout_whole(config, role, &node->ranks_layout);
    int status = open_signals(node);
    if (status != CLI_DONE) {
        return status;
    }
    const struct ranks_config ranks = {
        .model = &config->model,
        .layout = &node->ranks_layout,
        .prefill = role == HLG_ROLE_PREFILL,
        .cuda = config->cuda,
        .device = config->device_text != NULL ? (int32_t)config->device : -1,
        .sample = node->sample,
    };
    if (ranks_start(&ranks, &node->ranks, text, sizeof text) != 0) {
        node->ranks = NULL;
        node_say(node, "%s", text);
        return CLI_FAILED;
    }
    if (!lane_init(node)) {
        node_say(node, "no memory");
        return CLI_FAILED;
    }
    (void)snprintf(text, sizeof text, "%s%s", stderr_prefix(node), node->title);
    crash_report(text, config->watchdog_ms != 0);
    status = node_place(node);
    if (status == CLI_DONE) {
        status = node_pick_nics(node);
    }
    if (status == CLI_DONE) {
        status = open_fabric(node);
    }
    if (status == CLI_DONE) {
        status = open_messenger(node);
    }
    node_unplace(node);
    if (status == CLI_DONE) {
        serve_metrics(node);
        set_fds(node);
        node->started = true;
    }
    return status;
}

uint32_t node_ranks_lane(const struct node *node, uint32_t lane)
{
    const struct hlg_layout *layout = &node->layout;
    const uint32_t hosted = layout->rank_limit - layout->rank_begin;
    const uint32_t pool = lane / hosted; /* flooring: a lane numbers (pool, rank) */
    return hlg_layout_lane(&node->ranks_layout, pool, layout->rank_begin + lane % hosted);
}

int node_stop(struct node *node, int status)
{
    hlg_exporter_stop(node->exporter);
    const int recorded = hlg_messenger_destroy(node->messenger);
    if (node->ofi != NULL) {
        plant_fabric_unwrap(node);
        hlg_staged_destroy(node->staged);
        hlg_ofi_close(node->ofi);
    }
    ranks_stop(node->ranks);
    lane_fini(node);
    for (uint32_t lane = 0; lane < HLG_RANKS_MAX; lane++) {
        free(node->lane_nics[lane]);
    }
    if (node->signals > 0) {
        (void)close(node->signals);
    }
    return recorded != 0 && status == CLI_DONE ? CLI_FAILED : status;
}

int node_wait(struct node *node)
{
    char text[128];
    struct signalfd_siginfo signal;
    int timeout_ms = node->retry ? 1 : -1;
    if (!node->retry && node->due != 0) {
        /* Rounded up, so that it is not too early then. */
        const hlg_time now = node_now();
        timeout_ms = node->due <= now ? 0 : (int)((node->due - now) / HLG_NS_PER_MS + 1);
    }
    node->retry = false;
    node->due = 0;
    int ready = 0;
    do {
        ready = poll(node->fds, node->fd_count, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    HLG_ASSERT(ready >= 0);
    if (node->signals >= 0 && read(node->signals, &signal, sizeof signal) == sizeof signal) {
        const bool gently = signal.ssi_signo == SIGTERM && node->role == HLG_ROLE_PREFILL &&
                            node->options.control < 0 && !node->draining;
        node->draining = node->draining || gently;
        node->interrupted = node->interrupted || !gently;
    }
    for (uint32_t i = 0; i < ranks_lanes(node->ranks); i++) {
        const struct pollfd *fd = &node->fds[3 + node->layout.pools + i];
        if (fd->revents != 0) {
            /* The socket may end a moment before the process can be waited for. */
            while (!ranks_dead(node->ranks, text, sizeof text)) {
                (void)poll(NULL, 0, 1);
            }
            node_say(node, "%s; the node cannot go on", text);
            return CLI_FAILED;
        }
    }
    return CLI_DONE;
}

const struct control_head *node_frame(struct node *node)
{
    if (node->options.control < 0 || node->stop) {
        return NULL;
    }
    const int bytes = control_receive(node->options.control, node->frame);
    if (bytes == 0) {
        node->stop = true;
        node->abandoned = true;
    }
    if (bytes < (int)sizeof(struct control_head)) {
        return NULL;
    }
    const struct control_head *head = (const struct control_head *)(const void *)node->frame;
    if (head->kind == CONTROL_STOP) {
        node->stop = true;
    }
    return head;
}

void node_send(struct node *node, const void *frame, size_t bytes)
{
    if (node->options.control >= 0 &&
        control_send(node->options.control, frame, bytes, true) != 1) {
        node->stop = true;
        node->abandoned = true;
    }
}

void node_announce(struct node *node)
{
    struct control_up up = {
        .head.kind = CONTROL_UP,
        .processes = ranks_lanes(node->ranks) + 1,
    };
    const int port = hlg_messenger_port(node->messenger);
    up.port = port > 0 ? (uint32_t)port : 0;
    memcpy(up.provider, node->provider, sizeof up.provider);
    memcpy(up.why, node->why, sizeof up.why);
    if (node->options.control >= 0) {
        node_send(node, &up, sizeof up);
        return;
    }
    char text[1024];
    if (node->options.file != NULL) {
        node_config_tell(&node->options.config, node->options.file, text, sizeof text);
    } else {
        node_config_print(&node->options.config, text, sizeof text);
    }
    node_say(node, "%s", text);
    char memory[NODE_MEMORY_BYTES];
    node_config_memory(&node->options.config, memory, sizeof memory);
    node_say(node, "%" PRIu32 " ranks, memory %s, provider %s, listening on %s, port %d",
             ranks_lanes(node->ranks), memory, node->provider, node->options.address, port);
}

void node_send_step(struct node *node, const struct step *step, hlg_time begun, hlg_time ended)
{
    struct control_step frame = {
        .head.kind = CONTROL_STEP,
        .begun = begun,
        .ended = ended,
        .sequences = step->sequence_count,
    };
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct tlm_sequence *sequence = &step->sequences[i];
        frame.tokens += sequence->token_count;
        frame.context_sum += (uint64_t)sequence->token_count * sequence->position;
    }
    node_send(node, &frame, sizeof frame);
}

void node_send_stats(struct node *node, struct control_stats *frame)
{
    struct hlg_messenger_stats stats = {.size = sizeof stats};
    frame->head.kind = CONTROL_STATS;
    if (hlg_messenger_stats(node->messenger, &stats) == 0) {
        frame->pieces_posted = stats.pieces_posted;
        frame->layers_early = stats.layers_early;
        frame->layers_late = stats.layers_late;
        frame->requests_poisoned = stats.requests_poisoned;
    }
    node_send(node, frame, sizeof *frame);
}
