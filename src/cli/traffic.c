#define _GNU_SOURCE /* signalfd() */
#include "traffic.h"

#include "cli.h"
#include "options.h"
#include "summary.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_NS    (60 * HLG_NS_PER_S) /* until all nodes are up */
#define STALL_NS    (60 * HLG_NS_PER_S) /* without any progress */
#define STOP_NS     (10 * HLG_NS_PER_S) /* until all nodes have ended */
#define REAP_NS     (5 * HLG_NS_PER_S)  /* until their ranks have */
#define TICK_MS     100
#define DIFFERENCES 5u  /* told one by one */
#define BACKLOG_MAX 16u /* results that wait for the oracle; more, and nothing is submitted */

static hlg_time time_now(void)
{
    struct timespec now;
    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

/* ---- Options ---- */

void traffic_config_default(struct traffic_config *config, const char *command)
{
    *config = (struct traffic_config){
        .command = command,
        .requests = 200,
        .prefill_nodes = 1,
        .decode_nodes = 1,
    };
    node_config_default(&config->node);
}

int traffic_config_parse(int key, char *argument, const char *program,
                         struct traffic_config *config)
{
    switch (key) {
    case TRAFFIC_KEY_REQUESTS:
        if (!options_u32(argument, &config->requests) || config->requests == 0 ||
            config->requests > WORKLOAD_REQUESTS_MAX) {
            return options_error(program, "--requests: '%s': write a whole number, 1 to %u",
                                 argument, WORKLOAD_REQUESTS_MAX);
        }
        return 0;
    case TRAFFIC_KEY_IN_FLIGHT:
        if (!options_u32(argument, &config->in_flight) || config->in_flight == 0 ||
            config->in_flight > NODE_REQUESTS_MAX / 2) {
            return options_error(program, "--in-flight: '%s': write a whole number, 1 to %d",
                                 argument, NODE_REQUESTS_MAX / 2);
        }
        return 0;
    case TRAFFIC_KEY_TRACE:
        config->trace = argument;
        return 0;
    case TRAFFIC_KEY_JSON:
        config->json_file = argument;
        return 0;
    case TRAFFIC_KEY_ARRIVALS:
        if (strcmp(argument, "closed") != 0 && strcmp(argument, "trace") != 0) {
            return options_error(program, "--arrivals: unknown word '%s'; valid: closed trace",
                                 argument);
        }
        config->paced = strcmp(argument, "trace") == 0;
        return 0;
    case TRAFFIC_KEY_DETAIL:
        config->detail = true;
        return 0;
    case TRAFFIC_KEY_VERBOSE:
        config->verbose = true;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(program, argument);
    default: /* shared ones, and the many other keys of argp */
        return node_config_parse(key, argument, program, &config->node);
    }
}

/* ---- Requests ---- */

/* A request failed; `why` NULL: that was said already. */
static void fail(struct traffic *t, uint32_t number, const char *why)
{
    struct traffic_request *request = &t->requests[number];
    if (request->state == TRAFFIC_IN_FLIGHT) {
        t->in_flight--;
        t->fleet.decode[request->member].in_flight--;
    }
    request->state = TRAFFIC_FAILED;
    t->failed++;
    if (why != NULL && t->differences_told++ < DIFFERENCES) {
        summary_say(t, "request %" PRIu32 " failed: %s", number, why);
    }
}

/* What was not sent never will be. */
static void fail_pending(struct traffic *t, const char *why)
{
    if (t->submit_over) {
        return;
    }
    t->submit_over = true;
    summary_say(t, "%s: %" PRIu32 " requests are not sent", why, t->workload.count - t->next);
    while (t->next < t->workload.count) {
        fail(t, t->next++, NULL);
    }
}

/* The next decode node in turn, HLG_NONE when none is up. */
static uint32_t choose_in_turn(struct traffic *t)
{
    for (uint32_t i = 0; i < t->fleet.decode_count; i++) {
        const uint32_t index = (t->member_next + i) % t->fleet.decode_count;
        if (t->fleet.decode[index].state == MEMBER_UP) {
            t->member_next = index + 1;
            return index;
        }
    }
    return HLG_NONE;
}

/* The decode node with the fewest requests in flight, HLG_NONE when none is up. */
static uint32_t choose_member(struct traffic *t)
{
    uint32_t best = HLG_NONE;
    if (t->config.paced) {
        return choose_in_turn(t);
    }
    for (uint32_t i = 0; i < t->fleet.decode_count; i++) {
        const struct member *member = &t->fleet.decode[i];
        if (member->state == MEMBER_UP &&
            (best == HLG_NONE || member->in_flight < t->fleet.decode[best].in_flight)) {
            best = i;
        }
    }
    return best;
}

static const char *prefill_gone_text(const struct traffic *t)
{
    return t->config.node.sources == 1 ? "the prefill node is gone"
                                       : "a prefill node of each set is gone";
}

static bool any_lost(const struct traffic *t)
{
    bool any = false;
    for (uint32_t i = 0; i < t->fleet.decode_count; i++) {
        any = any || t->fleet.decode[i].state == MEMBER_LOST;
    }
    return any;
}

/* Send the next request. Returns whether another may follow at once. */
static bool submit(struct traffic *t)
{
    static uint64_t memory[(sizeof(struct control_submit) + NODE_CONTEXT_TOKENS * 4) / 8 + 1];
    struct control_submit *frame = (struct control_submit *)(void *)memory;
    const struct workload_request *work = &t->workload.requests[t->next];
    const uint32_t index = choose_member(t);
    if (index == HLG_NONE) {
        fail_pending(t, any_lost(t) ? prefill_gone_text(t) : "no decode node is left");
        return false;
    }
    struct member *member = &t->fleet.decode[index];
    *frame = (struct control_submit){
        .head.kind = CONTROL_SUBMIT,
        .number = t->next,
        .pool = member->pool_next % t->config.node.target_dp,
        .prompt_tokens = work->prompt_tokens,
        .output_count = work->output_count,
    };
    tlm_prompt(t->workload.seed, t->next, work->prompt_tokens, t->config.node.model.vocab,
               frame->tokens);
    struct traffic_request *request = &t->requests[t->next];
    const hlg_time now = time_now();
    const int sent =
        control_send(member->socket, frame,
                     sizeof *frame + work->prompt_tokens * sizeof frame->tokens[0], false);
    if (sent != 1) {
        return false; /* full, or its end is about to be read */
    }
    request->submitted = now;
    request->state = TRAFFIC_IN_FLIGHT;
    request->member = index;
    member->pool_next++;
    member->in_flight++;
    t->in_flight++;
    t->next++;
    return true;
}

/* When the next request comes; 0: at once. */
static hlg_time next_arrival(const struct traffic *t)
{
    return t->config.paced && !t->submit_over && t->next < t->workload.count
               ? t->begun + t->workload.requests[t->next].arrival_ns
               : 0;
}

static void submit_all(struct traffic *t)
{
    while (!t->submit_over && t->next < t->workload.count && t->in_flight < t->config.in_flight &&
           t->backlog < BACKLOG_MAX && time_now() >= next_arrival(t) && submit(t)) {
    }
}

/* ---- Verdicts ---- */

static void ask_oracle(struct traffic *t)
{
    if (t->oracle_busy || t->oracle_gone || t->queue_head == HLG_NONE) {
        return;
    }
    struct traffic_request *request = &t->requests[t->queue_head];
    t->queue_head = request->verdict_next;
    t->backlog--;
    t->oracle_busy = true;
    (void)oracle_ask(&t->oracle, request->result); /* its end is read where verdicts are */
    free(request->result);
    request->result = NULL;
}

static void take_verdict(struct traffic *t)
{
    struct oracle_verdict verdict;
    const int status = oracle_take(&t->oracle, &verdict);
    if (status == 0) {
        return;
    }
    if (status < 0) {
        t->oracle_gone = true;
        t->submit_over = true;
        t->node_failed = true;
        summary_say(t, "the verifying process ended; the rest is not verified");
        return;
    }
    HLG_ASSERT(verdict.number < t->workload.count);
    struct traffic_request *request = &t->requests[verdict.number];
    HLG_ASSERT(request->state == TRAFFIC_DECODED);
    t->oracle_busy = false;
    t->constant += verdict.constant;
    if (verdict.same == 1) {
        request->state = TRAFFIC_VERIFIED;
        t->verified++;
    } else {
        request->state = TRAFFIC_MISMATCHED;
        t->mismatched++;
        if (t->differences_told++ < DIFFERENCES) {
            summary_say(t, "request %" PRIu64 " on decode node %" PRIu32 ": %s", verdict.number,
                        request->member + 1, verdict.text);
        }
    }
    ask_oracle(t);
}

/* ---- Frames of the nodes ---- */

static void take_result(struct traffic *t, const struct control_result *result, size_t bytes)
{
    HLG_ASSERT(result->number < t->workload.count);
    const uint32_t number = (uint32_t)result->number;
    struct traffic_request *request = &t->requests[number];
    HLG_ASSERT(request->state == TRAFFIC_IN_FLIGHT);
    HLG_ASSERT(bytes ==
               control_result_bytes(result->output_count, result->landed_count, result->tp));
    request->result = malloc(bytes);
    HLG_ASSERT(request->result != NULL);
    memcpy(request->result, result, bytes);
    request->state = TRAFFIC_DECODED;
    request->bytes = result->bytes;
    request->pieces_counted = result->pieces_counted;
    request->pieces_expected = result->pieces_expected;
    request->prefill = result->prefill;
    request->asked = result->asked;
    request->accepted = result->accepted;
    request->first_piece = result->first_piece;
    request->last_piece = result->last_piece;
    request->ready = result->ready;
    request->first_token = result->first_token;
    request->verdict_next = HLG_NONE;
    if (t->queue_head == HLG_NONE) {
        t->queue_head = number;
    } else {
        t->requests[t->queue_tail].verdict_next = number;
    }
    t->queue_tail = number;
    t->backlog++;
    t->in_flight--;
    t->fleet.decode[request->member].in_flight--;
    ask_oracle(t);
}

/* Keep a step for the JSON. */
static void take_step(struct traffic *t, const struct member *member,
                      const struct control_step *step)
{
    uint32_t index = 0;
    if (!t->config.detail) {
        return;
    }
    if (t->step_count == t->step_capacity) {
        t->step_capacity = t->step_capacity == 0 ? 1024 : 2 * t->step_capacity;
        t->steps = realloc(t->steps, t->step_capacity * sizeof *t->steps);
        HLG_ASSERT(t->steps != NULL);
    }
    while (fleet_member(&t->fleet, index) != member) {
        index++;
    }
    t->steps[t->step_count++] = (struct traffic_step){
        .member = index,
        .sequences = step->sequences,
        .tokens = step->tokens,
        .context_sum = step->context_sum,
        .begun = step->begun,
        .ended = step->ended,
    };
}

static void take_frame(struct traffic *t, struct member *member, size_t bytes)
{
    const void *frame = t->frame;
    const struct control_head *head = frame;
    const struct control_failed *failed = frame;
    const struct control_forward_end *end = frame;
    switch (head->kind) {
    case CONTROL_UP:
        member->up = *(const struct control_up *)frame;
        member->state = MEMBER_UP;
        break;
    case CONTROL_TEXT:
        summary_say(t, "%s", ((const struct control_text *)frame)->text);
        break;
    case CONTROL_PEER_DOWN:
        member->state = MEMBER_LOST;
        t->node_failed = true;
        break;
    case CONTROL_FORWARD_END:
        if (end->number < t->workload.count) {
            /* Of several sources the last counts. */
            hlg_time *ended = &t->requests[end->number].forward_end;
            *ended = hlg_max_u64(*ended, end->ended);
        }
        break;
    case CONTROL_STEP:
        take_step(t, member, frame);
        break;
    case CONTROL_RESULT:
        take_result(t, frame, bytes);
        break;
    case CONTROL_FAILED:
        HLG_ASSERT(failed->number < t->workload.count);
        if (t->requests[failed->number].state == TRAFFIC_IN_FLIGHT) {
            fail(t, (uint32_t)failed->number, failed->text);
        }
        break;
    case CONTROL_STATS:
        member->stats = *(const struct control_stats *)frame;
        member->has_stats = true;
        if (member->stats.pages_touched > 0) {
            t->node_failed = true;
            summary_say(t, "%s: bytes landed in %" PRIu64 " pages that nobody had asked for",
                        member->title, member->stats.pages_touched);
        }
        break;
    default: /* of a node of another build */
        hlg_unreachable();
    }
}

/* A node's process ended: its requests with it. */
static void take_end(struct traffic *t, struct member *member)
{
    char text[128];
    const bool started = member->state != MEMBER_STARTING;
    fleet_reap(member, text, sizeof text);
    if (t->stopping && member->status == 0) {
        return;
    }
    if (!started && member->status > 0 && member->status < 128) {
        t->start_status = t->start_status == 0 ? member->status : t->start_status; /* it said why */
        return;
    }
    t->node_failed = true;
    summary_say(t, "%s", text);
    for (uint32_t i = 0; i < t->next; i++) {
        const struct traffic_request *request = &t->requests[i];
        if (request->state == TRAFFIC_IN_FLIGHT && member == &t->fleet.decode[request->member]) {
            fail(t, i, text);
        }
    }
}

static void take_member(struct traffic *t, struct member *member)
{
    int bytes = control_receive(member->socket, t->frame);
    while (bytes > 0) {
        take_frame(t, member, (size_t)bytes);
        bytes = control_receive(member->socket, t->frame);
    }
    if (bytes == 0) {
        take_end(t, member);
    }
}

/* ---- The loop ---- */

static void take_signal(struct traffic *t)
{
    struct signalfd_siginfo info;
    if (read(t->signals, &info, sizeof info) != sizeof info) {
        return;
    }
    if (t->interrupted) {
        /* Asked twice: no more patience. */
        fleet_kill(&t->fleet);
        t->killed = true;
        return;
    }
    t->interrupted = true;
    t->submit_over = true;
}

/* A tick, or less until the next request comes: rounded up, so that it is not too early then. */
static int wait_ms(const struct traffic *t)
{
    const hlg_time due = next_arrival(t);
    const hlg_time now = time_now();
    if (due == 0 || due <= now) {
        return TICK_MS;
    }
    return (int)hlg_min_u64(TICK_MS, (due - now + HLG_NS_PER_MS - 1) / HLG_NS_PER_MS);
}

/* Wait for whatever comes, at most a tick, and take it. Returns whether anything came. */
static bool turn(struct traffic *t)
{
    struct pollfd fds[2 + FLEET_NODES_MAX] = {{0}};
    struct member *member = NULL;
    uint32_t count = 0;
    fds[count++] = (struct pollfd){.fd = t->signals, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = t->oracle_gone ? -1 : t->oracle.socket, .events = POLLIN};
    for (uint32_t i = 0; (member = fleet_member(&t->fleet, i)) != NULL; i++) {
        fds[count++] = (struct pollfd){.fd = member->socket, .events = POLLIN};
    }
    if (poll(fds, count, wait_ms(t)) <= 0) {
        summary_progress(t, time_now());
        return false;
    }
    if (fds[0].revents != 0) {
        take_signal(t);
    }
    if (fds[1].revents != 0) {
        take_verdict(t);
    }
    for (uint32_t i = 0; i + 2 < count; i++) {
        member = fleet_member(&t->fleet, i);
        if (fds[i + 2].revents != 0 && member->socket >= 0) {
            take_member(t, member);
        }
    }
    summary_progress(t, time_now());
    return true;
}

static bool all_up(struct traffic *t)
{
    struct member *member = NULL;
    for (uint32_t i = 0; (member = fleet_member(&t->fleet, i)) != NULL; i++) {
        if (member->state == MEMBER_STARTING) {
            return false;
        }
    }
    return true;
}

/* Wait until no member is starting any more. Returns an enum cli_exit. */
static int wait_up(struct traffic *t)
{
    const hlg_time due = time_now() + START_NS;
    while (!all_up(t) && !t->interrupted && t->start_status == 0 && !t->node_failed) {
        (void)turn(t);
        if (time_now() > due) {
            summary_say(t, "the nodes did not start within %d s", (int)(START_NS / HLG_NS_PER_S));
            return CLI_FAILED;
        }
    }
    if (t->start_status != 0) {
        return t->start_status;
    }
    return t->interrupted ? CLI_INTERRUPTED : t->node_failed ? CLI_FAILED : CLI_DONE;
}

/* Where node `index` runs, prefill nodes first; NULL: here. */
static const struct fleet_place *place_of(const struct traffic *t, uint32_t index)
{
    return t->config.place_count == 0 ? NULL : &t->config.places[index];
}

/* Start the prefill nodes and write down where they listen. */
static int start_prefill(struct traffic *t, char *addresses, size_t capacity)
{
    const struct traffic_config *config = &t->config;
    size_t used = 0;
    for (uint32_t i = 0; i < config->prefill_nodes; i++) {
        if (fleet_start_prefill(&t->fleet, &config->node, place_of(t, i), config->verbose) != 0) {
            return CLI_FAILED;
        }
    }
    const int status = wait_up(t);
    for (uint32_t i = 0; i < config->prefill_nodes && status == CLI_DONE; i++) {
        const struct fleet_place *place = place_of(t, i);
        used +=
            (size_t)snprintf(addresses + used, capacity - used, "%s%s:%" PRIu32, i == 0 ? "" : ",",
                             place == NULL ? "127.0.0.1" : place->ip, t->fleet.prefill[i].up.port);
        HLG_ASSERT(used < capacity);
    }
    return status;
}

static int start_fleet(struct traffic *t)
{
    const struct traffic_config *config = &t->config;
    char addresses[FLEET_PREFILL_MAX * (sizeof(struct fleet_place) + 8)];
    const char *prefill = config->connect;
    if (prefill == NULL) {
        const int status = start_prefill(t, addresses, sizeof addresses);
        if (status != CLI_DONE) {
            return status;
        }
        prefill = addresses;
    }
    for (uint32_t i = 0; i < config->decode_nodes; i++) {
        if (fleet_start_decode(&t->fleet, &config->node, place_of(t, config->prefill_nodes + i),
                               prefill, config->verbose) != 0) {
            return CLI_FAILED;
        }
    }
    return wait_up(t);
}

static uint32_t settled(const struct traffic *t)
{
    return t->verified + t->mismatched + t->failed;
}

static bool over(const struct traffic *t)
{
    const bool verdicts = t->oracle_gone || (!t->oracle_busy && t->queue_head == HLG_NONE);
    if (t->killed) {
        return true;
    }
    return t->in_flight == 0 && verdicts && (t->submit_over || t->next == t->workload.count);
}

/* Whether none of our prefill nodes can serve any more: of each set of sources one is gone. */
static bool prefill_gone(const struct traffic *t)
{
    const uint32_t sources = t->config.node.sources;
    for (uint32_t set = 0; set < t->fleet.prefill_count / sources; set++) { /* exact */
        bool gone = false;
        for (uint32_t i = 0; i < sources; i++) {
            gone = gone || t->fleet.prefill[set * sources + i].state == MEMBER_GONE;
        }
        if (!gone) {
            return false;
        }
    }
    return t->fleet.prefill_count > 0;
}

static void loop(struct traffic *t)
{
    hlg_time moved = time_now();
    uint32_t before = 0;
    t->begun = moved;
    while (!over(t)) {
        submit_all(t);
        if (over(t)) {
            break;
        }
        (void)turn(t);
        if (prefill_gone(t)) {
            fail_pending(t, prefill_gone_text(t));
        }
        const uint32_t done = settled(t) + t->in_flight + t->next;
        if (done != before || (t->in_flight == 0 && time_now() < next_arrival(t))) {
            before = done;
            moved = time_now();
        } else if (time_now() > moved + STALL_NS) {
            summary_say(t, "nothing has happened for %d s; giving up",
                        (int)(STALL_NS / HLG_NS_PER_S));
            break;
        }
    }
    for (uint32_t i = 0; i < t->next; i++) {
        const enum traffic_state state = t->requests[i].state;
        if (state == TRAFFIC_IN_FLIGHT || state == TRAFFIC_DECODED) {
            fail(t, i, "it did not come to its end");
        }
    }
    t->ended = time_now();
}

/* Ask one kind of node to end, and wait. */
static void stop_members(struct traffic *t, uint32_t begin, uint32_t limit)
{
    const struct control_head frame = {.kind = CONTROL_STOP};
    const hlg_time due = time_now() + STOP_NS;
    bool open = true;
    for (uint32_t i = begin; i < limit; i++) {
        struct member *member = fleet_member(&t->fleet, i);
        if (member->socket >= 0) {
            (void)control_send(member->socket, &frame, sizeof frame, false);
        }
    }
    while (open && time_now() < due) {
        open = false;
        for (uint32_t i = begin; i < limit; i++) {
            open = open || fleet_member(&t->fleet, i)->socket >= 0;
        }
        if (open) {
            (void)turn(t);
        }
    }
}

static void stop_fleet(struct traffic *t)
{
    t->stopping = true;
    const uint32_t prefill_count = t->fleet.prefill_count;
    stop_members(t, prefill_count, prefill_count + t->fleet.decode_count);
    stop_members(t, 0, prefill_count);
    fleet_kill(&t->fleet);
}

static int read_workload(struct traffic *t)
{
    char text[512];
    const struct traffic_config *config = &t->config;
    const uint64_t seed = config->node.model.seed;
    int status = 0;
    if (config->trace != NULL) {
        status = workload_read(&t->workload, config->trace, config->requests, seed,
                               NODE_CONTEXT_TOKENS, config->paced, text, sizeof text);
        if (status != 0) {
            (void)options_error(config->command, "--trace: %s", text);
            return CLI_BAD_INPUT;
        }
    } else {
        status = workload_draw(&t->workload, config->requests, seed, config->node.model.page_tokens,
                               NODE_CONTEXT_TOKENS);
    }
    t->requests = calloc(config->requests, sizeof *t->requests);
    if (status != 0 || t->requests == NULL) {
        (void)options_error(config->command, "no memory for the requests");
        return CLI_FAILED;
    }
    return CLI_DONE;
}

static int open_signals(struct traffic *t)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signals < 0 ? CLI_FAILED : CLI_DONE;
}

static int prepare(struct traffic *t)
{
    char text[256];
    if (t->config.paced && t->config.trace == NULL) {
        (void)options_error(t->config.command, "--arrivals trace: give the --trace too");
        return CLI_BAD_INPUT;
    }
    if (t->config.in_flight == 0) {
        t->config.in_flight = t->config.paced ? NODE_REQUESTS_MAX / 2 : 8;
    }
    const int sound = node_config_check(&t->config.node, text, sizeof text);
    if (sound != 0) {
        (void)options_error(t->config.command, "%s", text);
        return sound == -HLG_EPLAN ? CLI_INFEASIBLE : CLI_BAD_INPUT;
    }
    const int status = read_workload(t);
    if (status != CLI_DONE) {
        return status;
    }
    if (open_signals(t) != CLI_DONE ||
        oracle_start(&t->oracle, &t->config.node, &t->workload) != 0) {
        (void)options_error(t->config.command, "the verifying process cannot be started: %s",
                            strerror(errno));
        return CLI_FAILED;
    }
    return CLI_DONE;
}

/* Nodes that this process starts on both sides get a key of their own, if none was given. */
static int prepare_key(struct traffic *t)
{
    struct node_config *node = &t->config.node;
    int status = 0;
    if (node->key_file == NULL && t->config.connect == NULL && !node->insecure) {
        status = hlg_sealed_key_make(node->key);
    } else if (node->key_file == NULL) {
        return CLI_DONE;
    }
    if (status == 0) {
        status = fleet_hold_key(&t->fleet, node);
    }
    if (status != 0) {
        (void)options_error(t->config.command, "the system gives no key: %s", strerror(errno));
    }
    return status == 0 ? CLI_DONE : CLI_FAILED;
}

static int run(struct traffic *t)
{
    int status = prepare_key(t);
    if (status != CLI_DONE) {
        return status;
    }
    status = start_fleet(t);
    if (status == CLI_INTERRUPTED) {
        summary_say(t, "interrupted before all nodes were up");
    }
    if (status != CLI_DONE) {
        stop_fleet(t);
        return status;
    }
    summary_begin(t);
    loop(t);
    stop_fleet(t);
    summary_end(t);
    status = summary_json(t);
    if (ferror(t->out) != 0) {
        (void)options_error(t->config.command, "the results cannot be printed");
        status = CLI_FAILED;
    }
    if (t->interrupted) {
        return CLI_INTERRUPTED;
    }
    if (t->mismatched > 0 || t->failed > 0 || t->node_failed) {
        return CLI_FAILED;
    }
    return status;
}

/* Nothing of ours is left behind: those that still run are dying already. */
static void reap_all(void)
{
    const hlg_time due = time_now() + REAP_NS;
    pid_t reaped = waitpid(-1, NULL, WNOHANG);
    while (reaped >= 0 && time_now() < due) {
        if (reaped == 0) {
            (void)poll(NULL, 0, 1);
        }
        reaped = waitpid(-1, NULL, WNOHANG);
    }
}

int traffic_run(const struct traffic_config *config)
{
    struct traffic *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return CLI_FAILED;
    }
    t->config = *config;
    t->signals = -1;
    t->oracle.socket = -1;
    t->fleet.key = -1;
    t->queue_head = HLG_NONE;
    t->out = config->json_file != NULL && strcmp(config->json_file, "-") == 0 ? stderr : stdout;
    t->tty = isatty(fileno(t->out)) == 1;
    for (uint32_t i = 0; i < FLEET_PREFILL_MAX; i++) {
        t->fleet.prefill[i].socket = -1;
    }
    for (uint32_t i = 0; i < FLEET_DECODE_MAX; i++) {
        t->fleet.decode[i].socket = -1;
    }
    /* Ranks of a node that was killed become our children, and so can be waited for. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int status = prepare(t);
    if (status == CLI_DONE) {
        status = run(t);
    }
    oracle_stop(&t->oracle);
    reap_all();
    for (uint32_t i = 0; t->requests != NULL && i < t->workload.count; i++) {
        free(t->requests[i].result);
    }
    free(t->requests);
    free(t->steps);
    workload_fini(&t->workload);
    if (t->signals >= 0) {
        (void)close(t->signals);
    }
    if (t->fleet.key >= 0) {
        (void)close(t->fleet.key);
    }
    free(t);
    return status;
}
