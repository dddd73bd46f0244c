#define _GNU_SOURCE /* asprintf(), close_range(), setns() */
#include "fleet.h"

#include "../node/key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL_FD 3 /* in the child */
#define KEY_FD     4
#define REAP_MS    10000
#define WORDS_MAX  (NODE_CONFIG_WORDS + 8)

/* Path of a program beside ours. */
static void find_sibling(const char *program, char *path, size_t capacity)
{
    char self[4096];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes < 0 ? 0 : bytes] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        slash[1] = '\0';
    }
    (void)snprintf(path, capacity, "%s%s", self, program);
}

int fleet_exec(const char *program, char **argv)
{
    char path[4200];
    find_sibling(program, path, sizeof path);
    /* libinfinipath, which Debian's libfabric loads, takes SIGINT and more before main() otherwise,
     * even where it was ignored, and ends the process with status 1. */
    (void)setenv("IPATH_NO_BACKTRACE", "1", 0);
    (void)execv(path, argv);
    (void)fprintf(stderr, "halage: %s cannot be run: %s\n", path, strerror(errno));
    return -HLG_EIO;
}

/* Move this process into a network namespace. */
static bool enter(const char *netns)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/run/netns/%s", netns);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (!entered) {
        (void)fprintf(stderr, "halage: network namespace %s cannot be entered: %s\n", path,
                      strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return entered;
}

/* key  descriptor beyond KEY_FD; -1: none */
static _Noreturn void run_child(const char *program, char **argv, const struct fleet_place *place,
                                int socket, int key, pid_t parent)
{
    sigset_t none;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(1);
    }
    /* Ctrl-C is for the command, which then stops its nodes. Before it is unblocked, or one that
     * waits would end this process. */
    (void)signal(SIGINT, SIG_IGN);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    /* Both of these leave it open over exec. */
    if ((socket == CONTROL_FD ? fcntl(socket, F_SETFD, 0) : dup2(socket, CONTROL_FD)) < 0) {
        _exit(1);
    }
    if (key >= 0 && dup2(key, KEY_FD) < 0) {
        _exit(1);
    }
    (void)unsetenv("HALAGE_CONFIG"); /* its words tell a node all */
    (void)close_range(key >= 0 ? KEY_FD + 1 : CONTROL_FD + 1, ~0u, 0);
    if (place != NULL && place->netns[0] != '\0' && !enter(place->netns)) {
        _exit(1);
    }
    (void)fleet_exec(program, argv);
    _exit(1);
}

static int start(struct member *member, int key, const char *program,
                 const struct node_config *config, const struct fleet_place *place,
                 char *const *extra, bool verbose)
{
    char *words[WORDS_MAX] = {(char *)(uintptr_t)program};
    int sockets[2];
    const int count = node_config_words(config, words + 1);
    const pid_t parent = getpid();
    if (count < 0 || control_pair(sockets) != 0) {
        (void)fprintf(stderr, "halage: %s cannot be started: %s\n", program, strerror(errno));
        return -HLG_EIO;
    }
    int used = 1 + count;
    words[used++] = (char *)(uintptr_t) "--control-fd=3";
    for (; *extra != NULL; extra++) {
        words[used++] = *extra;
    }
    words[used] = verbose ? (char *)(uintptr_t) "--verbose" : NULL;
    (void)fflush(NULL); /* or the child would print it again */
    member->pid = fork();
    if (member->pid == 0) {
        run_child(program, words, place, sockets[1], key, parent);
    }
    for (int i = 1; i <= count; i++) {
        free(words[i]);
    }
    (void)close(sockets[1]);
    member->socket = sockets[0];
    member->state = MEMBER_STARTING;
    if (member->pid < 0) {
        (void)fprintf(stderr, "halage: %s cannot be started: %s\n", program, strerror(errno));
        return -HLG_EIO;
    }
    return 0;
}

int fleet_hold_key(struct fleet *fleet, struct node_config *config)
{
    fleet->key = node_key_hold(config->key, KEY_FD + 1);
    config->key_file = "/proc/self/fd/4";
    return fleet->key < 0 ? -HLG_EIO : 0;
}

int fleet_start_prefill(struct fleet *fleet, const struct node_config *config,
                        const struct fleet_place *place, bool verbose)
{
    HLG_ASSERT(fleet->prefill_count < FLEET_PREFILL_MAX);
    char *extra[4] = {NULL};
    const uint32_t index = fleet->prefill_count % config->sources;
    struct member *member = &fleet->prefill[fleet->prefill_count++];
    if (fleet->prefill_count == 1) {
        (void)snprintf(member->title, sizeof member->title, "prefill node");
    } else {
        (void)snprintf(member->title, sizeof member->title, "prefill node %" PRIu32,
                       fleet->prefill_count);
    }
    int status = -HLG_EIO;
    /* The first one goes by no number. */
    if (asprintf(&extra[0], "--listen=%s:0", place == NULL ? "127.0.0.1" : place->ip) >= 0 &&
        asprintf(&extra[1], "--source=%" PRIu32 "/%" PRIu32, index + 1, config->sources) >= 0 &&
        (fleet->prefill_count == 1 ||
         asprintf(&extra[2], "--number=%" PRIu32, fleet->prefill_count) >= 0)) {
        status = start(member, fleet->key, "halage-prefill", config, place, extra, verbose);
    }
    free(extra[0]);
    free(extra[1]);
    free(extra[2]);
    return status;
}

int fleet_start_decode(struct fleet *fleet, const struct node_config *config,
                       const struct fleet_place *place, const char *address, bool verbose)
{
    HLG_ASSERT(fleet->decode_count < FLEET_DECODE_MAX);
    struct member *member = &fleet->decode[fleet->decode_count++];
    char *extra[4] = {NULL};
    (void)snprintf(member->title, sizeof member->title, "decode node %" PRIu32,
                   fleet->decode_count);
    int status = -HLG_EIO;
    if (asprintf(&extra[0], "--connect=%s", address) >= 0 &&
        asprintf(&extra[1], "--number=%" PRIu32, fleet->decode_count) >= 0 &&
        asprintf(&extra[2], "--sources=%" PRIu32, config->sources) >= 0) {
        status = start(member, fleet->key, "halage-decode", config, place, extra, verbose);
    }
    free(extra[0]);
    free(extra[1]);
    free(extra[2]);
    return status;
}

struct member *fleet_member(struct fleet *fleet, uint32_t index)
{
    if (index < fleet->prefill_count) {
        return &fleet->prefill[index];
    }
    index -= fleet->prefill_count;
    return index < fleet->decode_count ? &fleet->decode[index] : NULL;
}

void fleet_reap(struct member *member, char *text, size_t capacity)
{
    int status = 0;
    pid_t reaped = 0;
    for (int ms = 0; ms < REAP_MS && reaped == 0; ms++) {
        reaped = waitpid(member->pid, &status, WNOHANG);
        if (reaped == 0) {
            (void)poll(NULL, 0, 1);
        }
    }
    if (reaped == 0) {
        (void)kill(member->pid, SIGKILL);
        (void)waitpid(member->pid, &status, 0);
    }
    if (WIFSIGNALED(status)) {
        member->status = 128 + WTERMSIG(status);
        (void)snprintf(text, capacity, "%s (process %d) was killed by signal %d", member->title,
                       (int)member->pid, WTERMSIG(status));
    } else {
        member->status = WEXITSTATUS(status);
        (void)snprintf(text, capacity, "%s (process %d) ended with status %d", member->title,
                       (int)member->pid, member->status);
    }
    (void)close(member->socket);
    member->socket = -1;
    member->state = MEMBER_GONE;
}

void fleet_kill(struct fleet *fleet)
{
    char text[128];
    struct member *member = NULL;
    for (uint32_t i = 0; (member = fleet_member(fleet, i)) != NULL; i++) {
        if (member->state != MEMBER_NONE && member->state != MEMBER_GONE && member->pid > 0) {
            (void)kill(member->pid, SIGKILL);
            fleet_reap(member, text, sizeof text);
        }
    }
}
