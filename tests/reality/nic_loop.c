/*
 * The constants of a NIC, measured by a minimal loop: bare libfabric between two processes, each in a
 * network namespace of its own, with nothing of halage in between. What is printed is what a scenario
 * takes: bandwidth, time of an operation, latency of a write, latency of a control message.
 *
 *     nic-loop NAMESPACE=IP NAMESPACE=IP PIECE_BYTES      (the first writes to the second)
 */
#define _GNU_SOURCE /* setns() */
#include "nic_loop.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WINDOW      64u  /* writes under way, as halage has to one peer */
#define PING_COUNT  300u /* of which the median */
#define PING_BYTES  8u
#define SMALL_BYTES 64u /* what counts is that there is one more of it */
#define SMALL_COUNT 2000u
#define BULK_BYTES  (16u << 20)
#define HEAD_BYTES  (1u << 20) /* not timed: it has the head start of a burst */
#define BULK_ROUNDS 8u

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right ? 1 : 0;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2]; /* floor: the middle one, or the upper of two */
}

double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void give_up(const char *what)
{
    (void)fprintf(stderr, "nic-loop: %s\n", what);
    exit(1);
}

/*
 * Write `bytes` in pieces, a window of them at a time. Returns nanoseconds from the moment at which `head` of
 * these bytes were placed until all are.
 */
static double bulk(struct side *side, uint64_t bytes, uint64_t piece, uint64_t head)
{
    const uint64_t count = bytes / piece; /* floor: whole pieces */
    const uint64_t places = BULK_BYTES / piece;
    uint64_t posted = 0;
    uint64_t done = 0;
    uint64_t before = 0; /* pieces that are not timed */
    double begun = now_ns();
    while (done < count) {
        while (posted < count && posted - done < WINDOW &&
               side_write(side, posted % places * piece, piece)) {
            posted++;
        }
        done += side_poll(side, true).written;
        if (before == 0 && head > 0 && done * piece >= head) {
            begun = now_ns();
            before = done;
        }
    }
    /* As if the head had ended exactly where it should. */
    return (now_ns() - begun) * (double)(bytes - head) / (double)((count - before) * piece);
}

/* Half of a round trip of writes that answer each other. */
static double ping(struct side *side, bool first)
{
    double halves[PING_COUNT];
    for (uint32_t i = 0; i < PING_COUNT; i++) {
        const double begun = now_ns();
        bool due = first;
        uint64_t seen = 0;
        for (uint32_t step = 0; step < 2; step++, due = !due) {
            if (!due) {
                while (seen == 0) {
                    seen = side_poll(side, true).seen;
                }
                continue;
            }
            while (!side_write(side, 0, PING_BYTES)) {
                seen += side_poll(side, false).seen;
            }
        }
        halves[i] = (now_ns() - begun) / 2;
    }
    return median(halves, PING_COUNT);
}

/* The same over a TCP socket, as control messages travel. */
static double ping_socket(int socket, bool first)
{
    double halves[PING_COUNT];
    char text[256] = "";
    for (uint32_t i = 0; i < PING_COUNT; i++) {
        const double begun = now_ns();
        bool due = first;
        for (uint32_t step = 0; step < 2; step++, due = !due) {
            const ssize_t moved = due ? send(socket, text, sizeof text, 0)
                                      : recv(socket, text, sizeof text, MSG_WAITALL);
            if (moved != (ssize_t)sizeof text) {
                give_up("the TCP connection ended");
            }
        }
        halves[i] = (now_ns() - begun) / 2;
    }
    return median(halves, PING_COUNT);
}

static void write_side(struct side *side, int socket, uint64_t piece)
{
    double times[BULK_ROUNDS];
    double small[BULK_ROUNDS];
    (void)ping(side, true); /* connections come up */
    const double latency = ping(side, true);
    const double message = ping_socket(socket, true);
    for (uint32_t i = 0; i < BULK_ROUNDS; i++) {
        times[i] = bulk(side, BULK_BYTES, piece, HEAD_BYTES);
        small[i] = bulk(side, SMALL_COUNT * SMALL_BYTES, SMALL_BYTES, 0) / SMALL_COUNT;
    }
    (void)printf("{\"bandwidth_bytes_s\": %.0f, \"operation_ps\": %.0f, \"latency_ns\": %.0f, "
                 "\"message_ns\": %.0f}\n",
                 (double)(BULK_BYTES - HEAD_BYTES) / median(times, BULK_ROUNDS) * 1e9,
                 median(small, BULK_ROUNDS) * 1e3, latency, message);
}

/* Answers until the other side hangs up. */
static void answer_side(struct side *side, int socket)
{
    char byte = 0;
    (void)ping(side, false);
    (void)ping(side, false);
    (void)ping_socket(socket, false);
    (void)fcntl(socket, F_SETFL, O_NONBLOCK);
    while (recv(socket, &byte, 1, 0) != 0) {
        (void)side_poll(side, true);
    }
}

static void enter(const char *netns)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/run/netns/%s", netns);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        give_up("a network namespace cannot be entered");
    }
    (void)close(fd);
}

/* "NAME=IP" in two. */
static void take_place(const char *text, char netns[64], char ip[64])
{
    const size_t name = strcspn(text, "=");
    if (text[name] != '=' || name >= 64 || strlen(text + name + 1) >= 64) {
        give_up("write NAMESPACE=IP");
    }
    (void)snprintf(netns, 64, "%.*s", (int)name, text);
    (void)snprintf(ip, 64, "%s", text + name + 1);
}

static void run_side(const char *place, const char *other, int pair, bool first, uint64_t piece)
{
    char netns[64];
    char ip[64];
    char other_netns[64];
    char other_ip[64];
    struct side *side = NULL;
    take_place(place, netns, ip);
    take_place(other, other_netns, other_ip);
    enter(netns);
    side = side_open(ip, BULK_BYTES, pair);
    const int socket = side_socket(first ? other_ip : ip, first, pair);
    if (first) {
        write_side(side, socket, piece);
    } else {
        answer_side(side, socket);
    }
}

int main(int argc, char **argv)
{
    int pair[2];
    int status = 0;
    const uint64_t piece = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    if (piece < SMALL_BYTES || piece > HEAD_BYTES || HEAD_BYTES % piece != 0) {
        give_up("write NAMESPACE=IP NAMESPACE=IP PIECE_BYTES, a power of two, 64 to 1048576");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        give_up("no pair of sockets");
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(pair[0]);
        run_side(argv[2], argv[1], pair[1], false, piece);
        return 0;
    }
    (void)close(pair[1]);
    run_side(argv[1], argv[2], pair[0], true, piece);
    (void)fflush(stdout);
    (void)kill(child, SIGKILL); /* all is said; its socket would end a moment later */
    (void)waitpid(child, &status, 0);
    return 0;
}
