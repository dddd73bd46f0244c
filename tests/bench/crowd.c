/*
 * halage-bench-crowd PROVIDER PEERS SECONDS: a decode node connects to many prefill nodes at once. The node is
 * a messenger of this process; those that it connects to are pumps of a child, each with an endpoint of its
 * own. Printed are the time until all sessions are up, memory for each peer and for each request, and the
 * processor time that the node takes while all are connected and nothing is asked for. Fails when the sessions
 * take longer than SECONDS.
 */
#define _GNU_SOURCE
#include <halage/messenger.h>
#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/ofi.h>
#include <halage/transport/tcp.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PEERS_MAX     4096u
#define MESSAGE_BYTES (64u << 10)
#define PAGES         16u
#define IDLE_MS       2000
#define GIVE_UP_NS    (120 * HLG_NS_PER_S)
#define REQUESTS      64u

static uint64_t memory[PAGES * 32];

static hlg_time now_ns(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (hlg_time)now.tv_sec * HLG_NS_PER_S + (hlg_time)now.tv_nsec;
}

static uint64_t resident(void)
{
    unsigned long long size = 0;
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &size, &pages) != 2) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "halage-bench-crowd: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

static void set_layout(struct hlg_layout *layout)
{
    *layout = (struct hlg_layout){.tp = 1,
                                  .stages = 1,
                                  .pools = 1,
                                  .layers = 1,
                                  .stage_limit = {1},
                                  .rank_limit = 1,
                                  .all_reduce = 1,
                                  .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                                  .group_count = 1,
                                  .groups = {{.planes = 1,
                                              .heads = 1,
                                              .head_bytes = 256,
                                              .page_tokens = 1,
                                              .page_count = PAGES,
                                              .layers = {1}}}};
}

static void set_limits(struct hlg_limits *limits, uint32_t peers)
{
    hlg_limits_default(limits);
    limits->peers_max = peers;
    limits->requests_max = REQUESTS;
    limits->lanes_max = 1;
    limits->rails_max = 1;
    limits->slices_max = 4;
    limits->chunks_max = 64;
    limits->ops_max = 64;
    limits->blocks_max = 2 * REQUESTS;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = MESSAGE_BYTES;
}

/* ---- the many ---- */

static void ignore(void *context, const struct hlg_notice *notice)
{
    (void)context;
    (void)notice;
}

static struct hlg_pump *make_pump(struct hlg_fabric *fabric, uint32_t index)
{
    const struct hlg_pump_region region = {.memory = HLG_MEM_HOST(memory, sizeof memory)};
    const struct hlg_place place = {.stride = 256};
    struct hlg_pump_config config = {.role = HLG_ROLE_PREFILL,
                                     .fabric = fabric,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = &place,
                                     .place_count = 1,
                                     .notice = ignore};
    struct hlg_pump *pump = NULL;
    char error[200];

    config.prefill = (struct hlg_prefill_config){.rails = 1, .node = 100 + index, .incarnation = 1};
    set_limits(&config.prefill.limits, 1);
    set_layout(&config.prefill.layout);
    if (hlg_pump_create(&config, &pump, error, sizeof error) != 0) {
        (void)fail("a pump", error);
        return NULL;
    }
    return pump;
}

/* Takes connections as they come, a pump for each, and steps all of them: busily until all are there. */
static void be_many(struct hlg_tcp_listener *listener, const char *provider, uint32_t count)
{
    static struct hlg_pump *pumps[PEERS_MAX];
    const struct hlg_ofi_config ofi = {.provider = provider, .peers_max = 2, .mems_max = 2};
    struct hlg_fabric *fabric = NULL;
    struct hlg_channel *channel = NULL;
    char error[200] = "";
    uint32_t made = 0;
    hlg_time busy = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hlg_ofi_open(&ofi, &fabric, error, sizeof error) != 0) {
        _exit(fail("a fabric", error));
    }
    for (;;) {
        uint32_t peer = 0;
        int work = 0;
        while (made < count && hlg_tcp_accept(listener, &channel) == 1) {
            pumps[made] = make_pump(fabric, made);
            if (pumps[made] == NULL || hlg_pump_channel(pumps[made], channel, false, &peer) != 0) {
                _exit(fail("a peer", "it cannot be opened"));
            }
            made++;
            work++;
        }
        for (uint32_t i = 0; i < made; i++) {
            work += hlg_pump_step(pumps[i]) > 0;
        }
        const hlg_time now = now_ns(CLOCK_MONOTONIC);
        busy = work > 0 && made < count ? now : busy;
        if (now - busy > HLG_NS_PER_S / 100) {
            (void)poll(NULL, 0, made < count ? 1 : 20);
        }
    }
}

/* ---- the one ---- */

struct one {
    struct hlg_messenger *messenger;
    struct hlg_fabric *fabric;
};

static int open_one(struct one *one, const char *provider, uint32_t peers, char *error,
                    size_t error_bytes)
{
    const struct hlg_ofi_config ofi = {.provider = provider, .peers_max = 2, .mems_max = 2};
    struct hlg_messenger_config config;

    if (hlg_ofi_open(&ofi, &one->fabric, error, error_bytes) != 0) {
        return -1;
    }
    hlg_messenger_config_default(&config);
    config.role = HLG_ROLE_DECODE;
    config.fabric = one->fabric;
    set_limits(&config.limits, peers);
    set_layout(&config.layout);
    if (hlg_messenger_create(&config, &one->messenger, error, error_bytes) != 0) {
        return -1;
    }
    if (hlg_messenger_region_add(one->messenger, 0, &HLG_MEM_HOST(memory, sizeof memory)) < 0 ||
        hlg_messenger_places_linear(one->messenger) != 0 ||
        hlg_messenger_start(one->messenger) != 0) {
        (void)snprintf(error, error_bytes, "%s", hlg_messenger_error(one->messenger));
        return -1;
    }
    return 0;
}

/* Dials as fast as orders are taken. Returns nanoseconds until all were up, 0 when one was not. */
static hlg_time connect_all(const struct one *one, const char *address, uint32_t peers)
{
    const hlg_time begun = now_ns(CLOCK_MONOTONIC);
    struct hlg_report report;
    uint32_t asked = 0;
    uint32_t up = 0;

    while (up < peers && now_ns(CLOCK_MONOTONIC) - begun < GIVE_UP_NS) {
        while (asked < peers && hlg_messenger_connect(one->messenger, address) > 0) {
            asked++;
        }
        while (hlg_messenger_poll(one->messenger, &report, sizeof report, 1) == 1) {
            if (report.kind != HLG_NOTICE_PEER_UP) {
                (void)fail("a session did not come up", report.text);
                return 0;
            }
            up++;
        }
        struct pollfd fd = {.fd = hlg_messenger_fd(one->messenger), .events = POLLIN};
        (void)poll(&fd, 1, 1);
    }
    return up == peers ? now_ns(CLOCK_MONOTONIC) - begun : 0;
}

static uint64_t machine_bytes(uint32_t peers, uint32_t requests)
{
    struct hlg_decode_config config = {.rails = 1, .node = 1, .incarnation = 1};

    set_limits(&config.limits, peers);
    config.limits.requests_max = requests;
    config.limits.blocks_max = 2 * requests;
    set_layout(&config.layout);
    return hlg_decode_size(&config);
}

static int run(const char *address, const char *provider, uint32_t peers, double seconds_max)
{
    struct one one = {NULL, NULL};
    char error[200] = "";

    if (open_one(&one, provider, peers, error, sizeof error) != 0) {
        return fail("the node", error);
    }
    const uint64_t before = resident();
    const hlg_time span = connect_all(&one, address, peers);
    if (span == 0) {
        return fail("peers", "not all came up");
    }
    const uint64_t each = (resident() - before) / peers; /* floor: whole bytes */
    (void)printf("peers %u connected in %.2f s\n", peers, (double)span / 1e9);
    (void)printf(
        "bytes a peer: %llu resident, of which %llu of the machine's tables\n",
        (unsigned long long)each,
        (unsigned long long)((machine_bytes(1 + 256, REQUESTS) - machine_bytes(1, REQUESTS)) /
                             256)); /* floor */
    (void)printf("bytes a request: %llu of the machine's tables\n",
                 (unsigned long long)((machine_bytes(16, 16 + 1024) - machine_bytes(16, 16)) /
                                      1024)); /* floor */
    (void)poll(NULL, 0, IDLE_MS);             /* what came with the connections settles */
    const hlg_time used = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    (void)poll(NULL, 0, IDLE_MS);
    (void)printf("idle with all of them: %.2f %% of a core\n",
                 (double)(now_ns(CLOCK_PROCESS_CPUTIME_ID) - used) / (IDLE_MS * 1e4));
    (void)fflush(stdout);
    (void)hlg_messenger_destroy(one.messenger);
    hlg_ofi_close(one.fabric);
    return (double)span / 1e9 > seconds_max ? fail("peers", "it took too long") : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct rlimit files = {0};
    struct hlg_tcp_listener *listener = NULL;
    char error[200] = "";

    const unsigned long peers = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    if (peers == 0 || peers > PEERS_MAX) {
        (void)fprintf(stderr, "usage: halage-bench-crowd PROVIDER PEERS SECONDS\n");
        return 2;
    }
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 12 * peers) {
        (void)printf(
            "skipped: %lu peers need some %lu descriptors, and %lu are allowed (ulimit -n)\n",
            peers, 12 * peers, (unsigned long)files.rlim_cur);
        return 77;
    }
    if (hlg_tcp_listen("127.0.0.1:0", MESSAGE_BYTES, &listener, error, sizeof error) != 0) {
        return fail("listening", error);
    }
    const pid_t child = fork();
    if (child == 0) {
        be_many(listener, argv[1], (uint32_t)peers);
    }
    const int status =
        run(hlg_tcp_listener_name(listener), argv[1], (uint32_t)peers, strtod(argv[3], NULL));
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    hlg_tcp_listener_close(listener);
    return status;
}
