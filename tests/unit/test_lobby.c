/*
 * Who gets in: keys, addresses that are not loopback, and connections that bring nothing. Two messengers
 * with all their threads, and strangers that speak TCP to the listening one. Strangers are counted by
 * reason and take nothing but a place in the lobby for a bounded time; who has the key gets in.
 */
#define _GNU_SOURCE
#include "../support/duo.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <halage/wire.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GREETING_BYTES 124u
#define FLOOD          10000u
#define HELD           64u /* of a flood's connections, open at a time */

static const uint8_t key_a[HLG_SEALED_KEY_BYTES] = {0xaa, 1};
static const uint8_t key_b[HLG_SEALED_KEY_BYTES] = {0xbb, 1};

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct duo));
    return *state == NULL;
}

static int teardown(void **state)
{
    duo_close(*state);
    return 0;
}

/* Starts both sides with these keys, `config` being the prefiller's. */
static void start(struct duo *duo, struct hlg_messenger_config *config, const uint8_t *prefill_key,
                  const uint8_t *decode_key)
{
    struct hlg_messenger_config decode;

    config->key = prefill_key;
    if (duo_open_side(duo, &duo->prefill, config) != 0) {
        fail_msg("%s", duo->error);
    }
    duo_config(&duo->decode, HLG_ROLE_DECODE, &decode);
    decode.key = decode_key;
    if (duo_open_side(duo, &duo->decode, &decode) != 0) {
        fail_msg("%s", duo->error);
    }
}

static void join(struct duo *duo)
{
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
}

static void run_request(struct duo *duo, uint32_t count)
{
    hlg_ticket ticket = 0;

    duo->page = 0;
    assert_int_equal(duo_submit(duo, "r", 40, 7, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, count);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, count);
    duo_expect(duo, 7, 0, 10);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
}

static uint64_t refused(struct duo_side *side, enum hlg_refused why)
{
    struct hlg_messenger_stats stats = {.size = sizeof stats};

    assert_int_equal(hlg_messenger_stats(side->messenger, &stats), 0);
    return stats.peers_refused[why];
}

/* Steps until a side has refused so many for a reason. */
static void wait_refused(struct duo *duo, struct duo_side *side, enum hlg_refused why,
                         uint64_t count)
{
    for (uint32_t i = 0; i < DUO_TURNS_MAX && refused(side, why) < count; i++) {
        (void)duo_turn(duo);
        duo_nap(duo);
    }
    assert_int_equal(refused(side, why), count);
}

/* A connection to the prefiller, from the i-th of several loopback addresses: ports of each are few. */
static int dial_from(struct duo *duo, uint32_t i)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK + 1 + i % 200)}};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    to.sin_port = htons((uint16_t)hlg_messenger_port(duo->prefill.messenger));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    while (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        assert_true(errno == EINTR || errno == EAGAIN);
    }
    return fd;
}

static void expect_closed(int fd)
{
    uint8_t bytes[256];
    struct timeval limit = {.tv_sec = 20};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t got = 0;
    do {
        got = read(fd, bytes, sizeof bytes);
    } while (got > 0);
    assert_true(got == 0 || errno == ECONNRESET);
    (void)close(fd);
}

/* ---- Keys ---- */

static void nodes_with_one_key_work_together(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    start(duo, &config, key_a, key_a);
    join(duo);
    run_request(duo, 1);
    for (uint32_t why = 0; why < HLG_REFUSED_KINDS; why++) {
        assert_int_equal(refused(&duo->prefill, why), 0);
        assert_int_equal(refused(&duo->decode, why), 0);
        assert_true(strlen(hlg_refused_name(why)) > 0);
    }
}

static void expect_refused(struct duo *duo, const uint8_t *prefill_key, const uint8_t *decode_key,
                           const char *words)
{
    struct hlg_messenger_config config;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    start(duo, &config, prefill_key, decode_key);
    const int connection = duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_REFUSED, 1);
    const struct hlg_report *report = duo_last(&duo->decode, HLG_NOTICE_PEER_REFUSED);
    assert_int_equal(report->connection, connection);
    assert_int_equal(report->error, -HLG_EPLAN);
    assert_int_equal(report->refusal.code, HLG_REFUSAL_KEY);
    if (strstr(report->text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", report->text, words);
    }
    assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_PEER_UP), 0);
    assert_int_equal(duo->prefill.report_count, 0); /* strangers are no news for the engine */
}

static void different_keys_are_said_on_both_sides(void **state)
{
    struct duo *duo = *state;

    expect_refused(duo, key_a, key_b, "has another key; give both sides the same key");
    wait_refused(duo, &duo->decode, HLG_REFUSED_KEY, 1);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_KEY, 1);
}

static void a_key_that_only_the_listening_side_has_is_asked_for(void **state)
{
    struct duo *duo = *state;

    expect_refused(duo, key_a, NULL, "asks for one, the other has none; give both the same key");
    wait_refused(duo, &duo->prefill, HLG_REFUSED_PLAIN, 1);
}

static void a_key_that_only_the_dialling_side_has_is_told(void **state)
{
    struct duo *duo = *state;

    expect_refused(duo, NULL, key_a, "has no key; give both sides the same key");
    wait_refused(duo, &duo->decode, HLG_REFUSED_PLAIN, 1);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_FRAME, 1);
}

/* ---- Addresses ---- */

static void listening_beyond_loopback_needs_a_key_or_a_word(void **state)
{
    struct duo *duo = *state;
    static const char *const addresses[] = {":0", "0.0.0.0:0"};
    struct hlg_messenger_config config;

    for (uint32_t i = 0; i < 6; i++) {
        duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
        config.listen = addresses[i % 2];
        config.key = i / 2 == 1 ? key_a : NULL;
        config.allow_unauthenticated = i / 2 == 2;
        const int error = duo_open_side(duo, &duo->prefill, &config);
        assert_int_equal(error, i / 2 == 0 ? -HLG_EINVAL : 0);
        if (error != 0) {
            assert_non_null(strstr(duo->error, config.listen));
            assert_non_null(strstr(duo->error, "is not loopback"));
            assert_non_null(strstr(duo->error, "'halage key', --key-file"));
        }
        duo_close_side(&duo->prefill);
    }
}

/* A fabric of which a test says that other hosts reach it. */
struct exposed {
    struct hlg_fabric fabric;
    struct hlg_fabric *below;
};

static struct hlg_fabric *below_of(const struct hlg_fabric *fabric)
{
    return ((const struct exposed *)fabric)->below;
}

static int exposed_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                        struct hlg_transport **out)
{
    return below_of(fabric)->open(below_of(fabric), lane, rail, out);
}

static void exposed_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    below_of(fabric)->query(below_of(fabric), caps);
    assert_false(caps->reachable); /* 127.0.0.1 */
    caps->reachable = true;
}

static hlg_time exposed_now(struct hlg_fabric *fabric)
{
    return below_of(fabric)->now(below_of(fabric));
}

static void endpoints_beyond_loopback_need_a_key_or_a_word(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;

    for (uint32_t i = 0; i < 3; i++) {
        duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
        struct exposed exposed = {.fabric = {.open = exposed_open,
                                             .query = exposed_query,
                                             .now = exposed_now,
                                             .rails = config.fabric->rails},
                                  .below = config.fabric};
        config.fabric = &exposed.fabric;
        config.key = i == 1 ? key_a : NULL;
        config.allow_unauthenticated = i == 2;
        const int error = duo_open_side(duo, &duo->decode, &config);
        assert_int_equal(error, i == 0 ? -HLG_EINVAL : 0);
        if (error != 0) {
            assert_non_null(strstr(duo->error, "endpoints are not on loopback"));
        }
        duo_close_side(&duo->decode);
    }
}

/* An address of this host that is not loopback. Traffic to it stays within the host. */
static bool own_address(char *text, size_t bytes)
{
    struct ifaddrs *all = NULL;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *a = all; a != NULL && !found; a = a->ifa_next) {
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET ||
            (a->ifa_flags & IFF_LOOPBACK) != 0) {
            continue;
        }
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a->ifa_addr;
        found = inet_ntop(AF_INET, &in->sin_addr, text, (socklen_t)bytes) != NULL;
    }
    freeifaddrs(all);
    return found;
}

static void dialling_beyond_loopback_needs_a_key_or_a_word(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    char ip[64];
    char address[96];

    if (!own_address(ip, sizeof ip)) {
        print_message("this host has no address but loopback\n");
        skip();
    }
    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.listen = ":0";
    config.allow_unauthenticated = true;
    start(duo, &config, NULL, NULL);
    (void)snprintf(address, sizeof address, "%s:%d", ip,
                   hlg_messenger_port(duo->prefill.messenger));
    assert_true(hlg_messenger_connect(duo->decode.messenger, address) > 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_REFUSED, 1);
    const struct hlg_report *report = duo_last(&duo->decode, HLG_NOTICE_PEER_REFUSED);
    assert_non_null(strstr(report->text, address));
    assert_non_null(strstr(report->text, "is not loopback"));
    wait_refused(duo, &duo->decode, HLG_REFUSED_ADDRESS, 1);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_GONE, 1);
}

/* ---- Strangers ---- */

static void silence_is_bounded(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.connect_ns = 50 * HLG_NS_PER_MS;
    start(duo, &config, key_a, key_a);
    expect_closed(dial_from(duo, 0));
    wait_refused(duo, &duo->prefill, HLG_REFUSED_SILENCE, 1);
    assert_int_equal(duo->prefill.report_count, 0);
}

/* Nobody that has not proved itself is given room for more than a handshake: who announces more is refused by
 * the length alone, and not waited for. */
static void a_long_frame_of_a_stranger_is_not_waited_for(void **state)
{
    static const uint8_t header[] = {0x00, 0x10, 0, 0, 1, 0, 1, 0}; /* 4 KiB of HELLO */
    struct duo *duo = *state;
    struct hlg_messenger_config config;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    start(duo, &config, key_a, key_a);
    const int fd = dial_from(duo, 0);
    assert_int_equal(write(fd, header, sizeof header), sizeof header);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_PLAIN, 1);
    expect_closed(fd);
}

/* The other way round: a listener that takes the connection and says nothing. */
static void a_listener_that_says_nothing_is_given_up(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    char text[64];

    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    config.connect_ns = 50 * HLG_NS_PER_MS;
    config.key = key_a;
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    (void)snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(address.sin_port));
    assert_true(hlg_messenger_connect(duo->decode.messenger, text) > 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_REFUSED, 1);
    assert_non_null(strstr(duo_last(&duo->decode, HLG_NOTICE_PEER_REFUSED)->text,
                           "no handshake within connect_ns"));
    (void)close(fd);
}

static uint64_t core_loops(struct duo_side *side)
{
    struct hlg_messenger_stats stats = {.size = sizeof stats};

    assert_int_equal(hlg_messenger_stats(side->messenger, &stats), 0);
    return stats.core_loops;
}

/* Whoever waits for a descriptor waits in the system's queue, and costs nothing meanwhile. */
static void without_descriptors_nobody_spins(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rlimit before;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.key = key_a;
    assert_int_equal(duo_open_side(duo, &duo->prefill, &config), 0);
    to.sin_port = htons((uint16_t)hlg_messenger_port(duo->prefill.messenger));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    /* It is the lowest that was free. */
    const struct rlimit none = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    (void)poll(NULL, 0, 50);
    const uint64_t begin = core_loops(&duo->prefill);
    (void)poll(NULL, 0, 300);
    const uint64_t loops = core_loops(&duo->prefill) - begin;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(loops < 50);
    (void)close(fd);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_GONE, 1); /* once there are some it is heard */
}

static void the_oldest_gives_way(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    int fds[6];

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.waiting_max = 4;
    config.connect_ns = 60 * HLG_NS_PER_S;
    start(duo, &config, key_a, key_a);
    for (uint32_t i = 0; i < 6; i++) {
        fds[i] = dial_from(duo, i);
    }
    expect_closed(fds[0]);
    expect_closed(fds[1]);
    wait_refused(duo, &duo->prefill, HLG_REFUSED_CROWDED, 2);
    join(duo); /* in the fifth place: a third gives way */
    wait_refused(duo, &duo->prefill, HLG_REFUSED_CROWDED, 3);
    run_request(duo, 1);
    for (uint32_t i = 2; i < 6; i++) {
        (void)close(fds[i]);
    }
    wait_refused(duo, &duo->prefill, HLG_REFUSED_GONE, 3);
}

/* Looks at sockets of strangers: what dial_from() made is not from 127.0.0.1. Any thread. */
static _Atomic bool counting;
static _Atomic uint64_t looks;

ssize_t __real_recv(int fd, void *bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags)
{
    struct sockaddr_in peer = {0};
    socklen_t length = sizeof peer;

    if (atomic_load(&counting) && getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
        ntohl(peer.sin_addr.s_addr) != INADDR_LOOPBACK) {
        (void)atomic_fetch_add(&looks, 1);
    }
    return __real_recv(fd, bytes, count, flags);
}

static uint64_t now_ms(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* While a request is open the core thread goes round and round: it does not ask the system for each stranger
 * in each round. Their silence must not cost those who work. */
static void strangers_are_not_listened_to_in_each_round(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    hlg_ticket ticket = 0;
    int fds[32];
    const uint32_t count = sizeof fds / sizeof fds[0];

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.connect_ns = 60 * HLG_NS_PER_S;
    config.spin_ns = 60 * HLG_NS_PER_S;
    start(duo, &config, key_a, key_a);
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = dial_from(duo, i);
    }
    join(duo); /* behind them, so that all are in the lobby */
    duo->passive = true;
    assert_int_equal(duo_submit(duo, "r", 40, 7, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    const uint64_t begin = now_ms();
    atomic_store(&counting, true);
    (void)poll(NULL, 0, 100);
    atomic_store(&counting, false);
    const uint64_t span = now_ms() - begin + 1;
    print_message("%u strangers, %u ms: %u looks\n", count, (unsigned)span,
                  (unsigned)atomic_load(&looks));
    assert_true(atomic_load(&looks) > 0);
    assert_true(atomic_load(&looks) <= count * (span + 2)); /* one each a millisecond */
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
    wait_refused(duo, &duo->prefill, HLG_REFUSED_GONE, count); /* all the same */
}

static uint32_t open_files(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");

    assert_non_null(directory);
    while (readdir(directory) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        count++;
    }
    (void)closedir(directory);
    return count;
}

/* What strangers bring, by turns: nothing, noise, frames in clear, a greeting with another key, the
 * beginning of a frame of 2 GiB, half a greeting. */
static void send_something(int fd, uint32_t i)
{
    uint8_t bytes[GREETING_BYTES];
    uint32_t count = GREETING_BYTES;
    static const uint8_t greeting[8] = {GREETING_BYTES - 4, 0, 0, 0, 1, 0, 1, 1};
    static const uint8_t heartbeat[8] = {4, 0, 0, 0, 1, 0, 9, 0};
    static const uint8_t endless[8] = {0xff, 0xff, 0xff, 0x7f, 1, 0, 1, 1};

    for (uint32_t b = 0; b < sizeof bytes; b++) {
        bytes[b] = (uint8_t)(i * 7 + b * 13 + i / 251);
    }
    switch (i % 6) {
    case 0:
        return;
    case 1:
        break;
    case 2:
        memcpy(bytes, heartbeat, sizeof heartbeat);
        count = sizeof heartbeat;
        break;
    case 3:
        memcpy(bytes, greeting, sizeof greeting);
        break;
    case 4:
        memcpy(bytes, endless, sizeof endless);
        break;
    default:
        memcpy(bytes, greeting, sizeof greeting);
        count = 60;
        break;
    }
    (void)!send(fd, bytes, count, MSG_NOSIGNAL); /* it may be closed already */
}

static void flood(struct duo *duo, bool keyed)
{
    struct hlg_messenger_config config;
    int held[HELD];
    uint32_t files = 0;
    uint64_t total = 0;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.waiting_max = 16;
    start(duo, &config, keyed ? key_a : NULL, keyed ? key_a : NULL);
    const uint32_t before = open_files();
    for (uint32_t i = 0; i < FLOOD; i++) {
        if (i >= HELD) {
            (void)close(held[i % HELD]);
        }
        held[i % HELD] = dial_from(duo, i);
        send_something(held[i % HELD], i);
        if (i % 256 == 0) {
            const uint32_t now = open_files();
            files = now > files ? now : files;
        }
        if (i == FLOOD / 2) {
            join(duo); /* in the midst of it */
            run_request(duo, 1);
        }
    }
    for (uint32_t i = 0; i < HELD; i++) {
        (void)close(held[i]);
    }
    run_request(duo, 2);
    for (uint32_t turn = 0; turn < DUO_TURNS_MAX && total < FLOOD; turn++) {
        total = 0;
        for (uint32_t why = 0; why < HLG_REFUSED_KINDS; why++) {
            total += refused(&duo->prefill, why);
        }
        duo_nap(duo);
    }
    assert_int_equal(total, FLOOD);
    for (uint32_t why = 0; why < HLG_REFUSED_KINDS; why++) {
        print_message("%s %u\n", hlg_refused_name(why), (unsigned)refused(&duo->prefill, why));
    }
    /* held by us, in the lobby, and what a session takes */
    assert_true(files <= before + HELD + config.waiting_max + 64);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_PEER_UP), 1);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_PEER_REFUSED), 0);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_PEER_DOWN), 0);
}

static void a_flood_of_strangers_is_bounded_with_a_key(void **state)
{
    struct duo *duo = *state;

    flood(duo, true);
    assert_true(refused(&duo->prefill, HLG_REFUSED_KEY) > 0);
    assert_true(refused(&duo->prefill, HLG_REFUSED_PLAIN) > 0);
}

static void a_flood_of_strangers_is_bounded_without_a_key(void **state)
{
    struct duo *duo = *state;

    flood(duo, false);
    assert_true(refused(&duo->prefill, HLG_REFUSED_FRAME) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_with_one_key_work_together, setup, teardown),
        cmocka_unit_test_setup_teardown(different_keys_are_said_on_both_sides, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_that_only_the_listening_side_has_is_asked_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_key_that_only_the_dialling_side_has_is_told, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(listening_beyond_loopback_needs_a_key_or_a_word, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(endpoints_beyond_loopback_need_a_key_or_a_word, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(dialling_beyond_loopback_needs_a_key_or_a_word, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(silence_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_frame_of_a_stranger_is_not_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_listener_that_says_nothing_is_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(without_descriptors_nobody_spins, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_gives_way, setup, teardown),
        cmocka_unit_test_setup_teardown(strangers_are_not_listened_to_in_each_round, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_strangers_is_bounded_with_a_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_strangers_is_bounded_without_a_key, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
