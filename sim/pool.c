#define _GNU_SOURCE /* memfd_create(), sched_getaffinity() */

#include "pool.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t pid; /* 0: none */
    uint32_t index;
    int result; /* file in memory */
};

uint32_t sim_pool_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    const int count = CPU_COUNT(&set);
    return count < 1 ? 1 : hlg_min_u32((uint32_t)count, SIM_POOL_JOBS_MAX);
}

/* Ends the process. */
static _Noreturn void work(const struct sim_pool *pool, uint32_t index, int result, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it died before that took hold */
        _exit(1);
    }
    (void)signal(SIGINT, SIG_DFL); /* the terminal sends it to all: children need no handler */
    (void)signal(SIGTERM, SIG_DFL);
    json_t *json = pool->work(pool->context, index);
    FILE *file = fdopen(result, "w");
    if (json == NULL || file == NULL || json_dumpf(json, file, JSON_ENCODE_ANY) != 0 ||
        fclose(file) != 0) {
        _exit(1);
    }
    _exit(0);
}

static int begin(const struct sim_pool *pool, struct child *child, uint32_t index)
{
    const pid_t parent = getpid();
    const int result = memfd_create("halage-sim result", MFD_CLOEXEC);

    if (result < 0) {
        return -HLG_EIO;
    }
    (void)fflush(NULL); /* what is buffered is written once */
    const pid_t pid = fork();
    if (pid == 0) {
        work(pool, index, result, parent);
    }
    if (pid < 0) {
        (void)close(result);
        return -HLG_EIO;
    }
    *child = (struct child){pid, index, result};
    return 0;
}

static int finish(const struct sim_pool *pool, struct child *child, int status)
{
    char sentence[128];
    json_t *json = NULL;

    if (WIFSIGNALED(status)) {
        (void)snprintf(sentence, sizeof sentence, "its process was ended by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
        (void)snprintf(sentence, sizeof sentence, "its process ended with status %d",
                       WEXITSTATUS(status));
    } else {
        json_error_t error;
        (void)lseek(child->result, 0, SEEK_SET);
        json = json_loadfd(child->result, JSON_DECODE_ANY, &error);
        (void)snprintf(sentence, sizeof sentence, "its process gave no result");
    }
    (void)close(child->result);
    const int error = pool->done(pool->context, child->index, json, json != NULL ? NULL : sentence);
    json_decref(json);
    child->pid = 0;
    return error;
}

static struct child *find(struct child *children, uint32_t jobs, pid_t pid)
{
    for (uint32_t i = 0; i < jobs; i++) {
        if (children[i].pid == pid) {
            return &children[i];
        }
    }
    return NULL;
}

static bool stopped(const struct sim_pool *pool)
{
    return pool->stopped != NULL && pool->stopped();
}

static void end_all(struct child *children, uint32_t jobs)
{
    for (uint32_t i = 0; i < jobs; i++) {
        if (children[i].pid != 0) {
            int status = 0;
            (void)kill(children[i].pid, SIGKILL);
            while (waitpid(children[i].pid, &status, 0) < 0 && errno == EINTR) {
            }
            (void)close(children[i].result);
            children[i].pid = 0;
        }
    }
}

/* Wait for one of them. Returns 0, or an error: of done(), or when that cannot be. */
static int reap(const struct sim_pool *pool, struct child *children, uint32_t *running)
{
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);

    if (pid < 0) {
        return errno == EINTR ? 0 : -HLG_EIO; /* a signal: look again whether it stops */
    }
    struct child *child = find(children, pool->jobs, pid);
    if (child != NULL && !stopped(pool)) {
        (*running)--;
        return finish(pool, child, status);
    }
    if (child != NULL) { /* the same signal may have ended it: that is no result */
        (void)close(child->result);
        child->pid = 0;
        (*running)--;
    }
    return 0;
}

int sim_pool_run(const struct sim_pool *pool, const uint32_t *indices, uint32_t count)
{
    struct child *children = calloc(pool->jobs, sizeof *children);
    uint32_t next = 0;
    uint32_t running = 0;
    int error = 0;

    HLG_ASSERT(pool->jobs >= 1 && pool->jobs <= SIM_POOL_JOBS_MAX);
    if (children == NULL) {
        return -HLG_ENOMEM;
    }
    while (error == 0 && (next < count || running != 0)) {
        if (stopped(pool)) {
            error = -HLG_ECANCELED;
        } else if (next < count && running < pool->jobs) {
            error = begin(pool, find(children, pool->jobs, 0), indices[next]);
            next += error == 0;
            running += error == 0;
        } else {
            error = reap(pool, children, &running);
        }
    }
    end_all(children, pool->jobs);
    free(children);
    return error;
}
