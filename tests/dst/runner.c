#define _GNU_SOURCE /* pipe2 */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX 64u
#define SEED_S   120u /* real seconds that a case may take; under a sanitizer they need many */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- one case ------------------------------------------------------------------------------- */

static void note_broken(struct outcome *out, enum storm_checker checker, const char *text,
                        uint64_t a, uint64_t b)
{
    if (out->broken == CHECK_NONE) {
        out->broken = checker;
        out->a = a;
        out->b = b;
        (void)snprintf(out->text, sizeof out->text, "%s", text);
    }
}

void outcome_of(const struct storm_case *what, bool repeat, struct world *w, struct outcome *out)
{
    uint64_t first = 0;
    uint64_t second = 0;
    struct world *again = repeat ? malloc(sizeof *again) : NULL;

    memset(out, 0, sizeof *out);
    out->what = *what;
    uint64_t heap = heap_blocks();
    (void)storm_run(what, w, false, &first);
    uint64_t left = heap_blocks() - heap;
    out->counts = w->counts;
    out->drawn = w->drawn;
    memcpy(out->world, w->text, sizeof out->world);
    if (w->broken != CHECK_NONE) {
        note_broken(out, w->broken, w->broken_text, w->broken_a, w->broken_b);
    }
    out->counts.looked[CHECK_MEMORY]++;
    if (left != 0) {
        note_broken(out, CHECK_MEMORY, "blocks of memory were not given back", left, 0);
    }
    if (again != NULL && out->broken == CHECK_NONE) {
        struct storm_case quiet = *what;
        quiet.trace = NULL;
        (void)storm_run(&quiet, again, true, &second);
        out->counts.looked[CHECK_REPEAT]++;
        if (first != second) {
            note_broken(out, CHECK_REPEAT, "the second run was another", first, second);
        }
    }
    free(again);
}

static void print_story(const struct world *w)
{
    uint64_t begin = w->story_count > STORY_LINES ? w->story_count - STORY_LINES : 0;

    for (uint64_t i = begin; i < w->story_count; i++) {
        printf("    %s\n", w->story[i % STORY_LINES]);
    }
}

/* ---- children ------------------------------------------------------------------------------- */

struct child {
    pid_t pid;
    int pipe;      /* outcomes come */
    FILE *errors;  /* its stderr */
    uint64_t next; /* seed that it is at */
    bool have;     /* an outcome waits to be told */
    struct outcome out;
};

static bool write_all(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;

    while (count > 0) {
        ssize_t written = write(fd, at, count);
        if (written < 0) {
            return false;
        }
        at += written;
        count -= (size_t)written;
    }
    return true;
}

static void work(const struct runner_options *o, const struct child *c, bool story, int fd)
{
    struct world *w = malloc(sizeof *w);
    struct outcome *out = malloc(sizeof *out);

    for (uint64_t seed = c->next; w != NULL && out != NULL && seed <= o->last; seed += o->jobs) {
        struct storm_case what = o->what;
        what.seed = seed;
        (void)alarm(SEED_S);
        outcome_of(&what, o->repeat > 0 && seed % o->repeat == 0, w, out);
        if (story) {
            print_story(w);
        }
        if (!write_all(fd, out, sizeof *out)) {
            break; /* nobody listens any more */
        }
        if (o->last - seed < o->jobs) {
            break;
        }
    }
    free(w);
    free(out);
    (void)fflush(stdout);
    _exit(0);
}

/* Start a child at seed c->next. */
static bool start(const struct runner_options *o, struct child *c, bool story)
{
    int fds[2];

    if (c->errors == NULL) {
        c->errors = tmpfile();
    }
    if (c->errors == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    (void)fflush(stdout);
    c->pid = fork();
    if (c->pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)close(fds[0]);
        (void)dup2(fileno(c->errors), STDERR_FILENO);
        work(o, c, story, fds[1]);
    }
    (void)close(fds[1]);
    if (c->pid < 0) {
        (void)close(fds[0]);
        return false;
    }
    c->pipe = fds[0];
    return true;
}

static bool read_all(int fd, void *bytes, size_t count)
{
    char *at = bytes;

    while (count > 0) {
        ssize_t got = read(fd, at, count);
        if (got < 0 && errno == EINTR && !interrupted) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        at += got;
        count -= (size_t)got;
    }
    return true;
}

/* What the child said last, for whoever asks why it ended; all of it goes to our stderr. */
static void last_words(struct child *c, char *text, size_t text_bytes)
{
    char line[136];

    rewind(c->errors);
    while (fgets(line, sizeof line, c->errors) != NULL) {
        (void)fputs(line, stderr);
        line[strcspn(line, "\n")] = '\0';
        if (text[0] == '\0') {
            (void)snprintf(text, text_bytes, "%s", line);
        }
    }
    rewind(c->errors);
    (void)!ftruncate(fileno(c->errors), 0);
}

static int stop(struct child *c, bool hard)
{
    int status = 0;

    if (c->pid > 0) {
        if (hard) {
            (void)kill(c->pid, SIGKILL);
        }
        (void)close(c->pipe);
        (void)waitpid(c->pid, &status, 0);
    }
    c->pid = 0;
    return status;
}

/* The child ended in the middle of a case. */
static void describe_crash(const struct runner_options *o, struct child *c, int status, bool tell)
{
    char words[140] = "";
    const char *why = "the process ended";

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        why = "it took too long";
    }
    memset(&c->out, 0, sizeof c->out);
    if (tell) {
        last_words(c, words, sizeof words);
    }
    c->out.what = o->what;
    c->out.what.seed = c->next;
    c->out.broken = CHECK_MACHINES;
    c->out.a = WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0;
    (void)snprintf(c->out.text, sizeof c->out.text, "%s", words[0] != '\0' ? words : why);
}

/* The next outcome of a child; one that crashed starts again behind the seed. */
static bool take(const struct runner_options *o, struct child *c)
{
    if (read_all(c->pipe, &c->out, sizeof c->out)) {
        c->next += o->jobs;
        return true;
    }
    if (interrupted) {
        return false;
    }
    describe_crash(o, c, stop(c, false), true);
    uint64_t seed = c->next;
    c->next += o->jobs;
    return o->last - seed < o->jobs || start(o, c, false);
}

int runner_run(const struct runner_options *o, runner_fn *fn, void *context)
{
    struct child *children = calloc(JOBS_MAX, sizeof *children);
    struct sigaction action = {.sa_handler = on_interrupt};
    int result = 0;

    HLG_ASSERT(o->jobs >= 1 && o->jobs <= JOBS_MAX);
    if (children == NULL) {
        return -HLG_EIO;
    }
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    for (uint32_t i = 0; i < o->jobs && result == 0; i++) {
        children[i].next = o->begin + i;
        if (children[i].next <= o->last && !start(o, &children[i], false)) {
            result = -HLG_EIO;
        }
    }
    for (uint64_t seed = o->begin; result == 0 && seed <= o->last; seed++) {
        struct child *c = &children[(seed - o->begin) % o->jobs];
        if (!take(o, c)) {
            result = interrupted ? 130 : -HLG_EIO;
        } else if (!fn(context, &c->out)) {
            break;
        }
        if (interrupted) {
            result = 130;
        }
        if (seed == UINT64_MAX) {
            break;
        }
    }
    for (uint32_t i = 0; i < o->jobs; i++) {
        (void)stop(&children[i], true);
        if (children[i].errors != NULL) {
            (void)fclose(children[i].errors);
        }
    }
    free(children);
    return result;
}

void outcome_alone(const struct storm_case *what, bool repeat, bool story, struct outcome *out)
{
    struct runner_options o = {
        .what = *what, .begin = what->seed, .last = what->seed, .jobs = 1, .repeat = repeat};
    struct child *c = calloc(1, sizeof *c);

    memset(out, 0, sizeof *out);
    out->what = *what;
    if (c == NULL) {
        return;
    }
    c->next = what->seed;
    if (start(&o, c, story)) {
        if (read_all(c->pipe, &c->out, sizeof c->out)) {
            (void)stop(c, false);
        } else {
            describe_crash(&o, c, stop(c, true), false);
        }
        *out = c->out;
    }
    if (c->errors != NULL) {
        (void)fclose(c->errors);
    }
    free(c);
}
