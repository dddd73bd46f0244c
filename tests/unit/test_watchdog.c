/*
 * The watchdog of a messenger (src/messenger/watchdog.c): a core thread that is stuck inside a transport ends
 * the process with a sentence; one that sleeps, works or was stopped with its process does not. Each case
 * runs in a child process, with a fabric that does as told; what its log says comes back through a pipe.
 */
#define _GNU_SOURCE /* kill() */
#include "../support/duo.h"

#include <halage/log.h>

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Long enough that a busy machine does not starve a thread for so long. */
#define SPAN_NS (300 * HLG_NS_PER_MS)
#define HANDLED 9

/* A fabric over another one; its open() never returns when it is stuck. */
struct sticky {
    struct hlg_fabric fabric;
    struct hlg_fabric *below;
    bool stuck;
    bool crashes;
    const char *_Atomic call; /* of this thread, while it opens an endpoint */
};

static struct sticky sticky;

static int sticky_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                       struct hlg_transport **out)
{
    (void)fabric;
    sticky.call = hlg_messenger_call();
    if (sticky.crashes) {
        (void)raise(SIGSEGV); /* to this thread */
    }
    while (sticky.stuck) {
        (void)poll(NULL, 0, 1000);
    }
    return sticky.below->open(sticky.below, lane, rail, out);
}

static void sticky_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    (void)fabric;
    sticky.below->query(sticky.below, caps);
}

static hlg_time sticky_now(struct hlg_fabric *fabric)
{
    (void)fabric;
    return sticky.below->now(sticky.below);
}

static void tell(void *context, enum hlg_log_level level, const char *line)
{
    if (level == HLG_LOG_FATAL) {
        (void)dprintf(*(const int *)context, "%s\n", line);
    }
}

static void leave_by_handler(int number)
{
    (void)number;
    _exit(HANDLED);
}

struct child {
    bool stuck;
    bool crashes;
    int32_t status;
    bool asks;         /* it says which call each thread is in */
    unsigned stop_ms;  /* the parent stops it for so long when it says that it is up */
    unsigned sleep_ms; /* of the child, with a session open and nothing to do */
};

static _Noreturn void run_child(const struct child *child, int pipe_end)
{
    struct hlg_messenger_config config;
    struct duo *duo = calloc(1, sizeof *duo);
    (void)signal(SIGABRT, SIG_DFL);
    (void)signal(SIGSEGV, leave_by_handler);
    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    sticky = (struct sticky){
        .fabric = {.open = sticky_open,
                   .query = sticky_query,
                   .now = sticky_now,
                   .rails = duo->prefill.fabric->rails},
        .below = duo->prefill.fabric,
        .stuck = child->stuck,
        .crashes = child->crashes,
    };
    config.fabric = &sticky.fabric;
    config.watchdog_ns = SPAN_NS;
    config.watchdog_exit = child->status;
    config.log = tell;
    config.log_context = &pipe_end;
    if (duo_open_side(duo, &duo->prefill, &config) != 0) {
        _exit(100);
    }
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    if (duo_open_side(duo, &duo->decode, &config) != 0) {
        _exit(101);
    }
    (void)duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    (void)dprintf(pipe_end, "up\n");
    if (child->asks) {
        const char *here = hlg_messenger_call();
        (void)dprintf(pipe_end, "there %s here %s\n", sticky.call, here != NULL ? here : "none");
    }
    (void)poll(NULL, 0, (int)child->sleep_ms);
    duo_close(duo);
    _exit(0);
}

/* Returns the child's wait status; what it said is in `said`. */
static int run(const struct child *child, char *said, size_t capacity)
{
    int ends[2];
    int status = 0;
    size_t used = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(ends[0]);
        run_child(child, ends[1]);
    }
    (void)close(ends[1]);
    for (ssize_t bytes = 1; bytes > 0;) {
        bytes = read(ends[0], said + used, capacity - used - 1);
        used += bytes > 0 ? (size_t)bytes : 0;
        said[used] = '\0';
        if (child->stop_ms > 0 && bytes > 0 && strcmp(said, "up\n") == 0) {
            assert_int_equal(kill(pid, SIGSTOP), 0);
            (void)poll(NULL, 0, (int)child->stop_ms);
            assert_int_equal(kill(pid, SIGCONT), 0);
        }
    }
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_stuck_call_ends_the_process_and_is_named(void **state)
{
    char said[512] = "";
    const struct child child = {.stuck = true, .status = 7};
    (void)state;

    const int status = run(&child, said, sizeof said);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_non_null(strstr(said, "watchdog: 'open' of provider "));
    assert_non_null(strstr(said, " has not returned for 300 ms"));
    assert_null(strstr(said, "up"));
}

static void without_a_status_it_aborts(void **state)
{
    char said[512] = "";
    const struct child child = {.stuck = true};
    (void)state;

    const int status = run(&child, said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(said, "watchdog: 'open'"));
}

static void a_thread_that_sleeps_is_not_stuck(void **state)
{
    char said[512] = "";
    const struct child child = {.status = 7, .sleep_ms = 700};
    (void)state;

    assert_int_equal(run(&child, said, sizeof said), 0);
    assert_string_equal(said, "up\n");
}

static void a_process_that_was_stopped_is_not_stuck(void **state)
{
    char said[512] = "";
    const struct child child = {.status = 7, .sleep_ms = 700, .stop_ms = 600};
    (void)state;

    assert_int_equal(run(&child, said, sizeof said), 0);
    assert_string_equal(said, "up\n");
}

static void a_crash_of_the_core_thread_reaches_the_engines_handler(void **state)
{
    char said[512] = "";
    const struct child child = {.crashes = true, .status = 7};
    (void)state;

    const int status = run(&child, said, sizeof said);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), HANDLED);
    assert_string_equal(said, "");
}

static void a_thread_knows_the_call_that_it_is_in(void **state)
{
    char said[512] = "";
    const struct child child = {.asks = true, .status = 7};
    (void)state;

    assert_int_equal(run(&child, said, sizeof said), 0);
    assert_string_equal(said, "up\nthere open here none\n");
}

static void a_span_or_a_status_out_of_range_is_refused(void **state)
{
    static const struct {
        hlg_time ns;
        int32_t status;
        bool good;
    } cases[] = {
        {0, 0, true},
        {10 * HLG_NS_PER_MS, 255, true},
        {3600 * HLG_NS_PER_S, 1, true},
        {10 * HLG_NS_PER_MS - 1, 0, false},
        {3600 * HLG_NS_PER_S + 1, 0, false},
        {HLG_NS_PER_S, -1, false},
        {HLG_NS_PER_S, 256, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct duo *duo = calloc(1, sizeof *duo);
        struct hlg_messenger *m = NULL;
        struct hlg_messenger_config config;
        char error[256] = "";
        assert_non_null(duo);
        duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
        config.watchdog_ns = cases[i].ns;
        config.watchdog_exit = cases[i].status;
        const int made = hlg_messenger_create(&config, &m, error, sizeof error);
        assert_int_equal(made, cases[i].good ? 0 : -HLG_EINVAL);
        assert_true(cases[i].good || strstr(error, "watchdog_ns") != NULL);
        (void)hlg_messenger_destroy(m);
        hlg_ofi_close(duo->decode.fabric);
        free(duo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stuck_call_ends_the_process_and_is_named),
        cmocka_unit_test(without_a_status_it_aborts),
        cmocka_unit_test(a_thread_that_sleeps_is_not_stuck),
        cmocka_unit_test(a_process_that_was_stopped_is_not_stuck),
        cmocka_unit_test(a_crash_of_the_core_thread_reaches_the_engines_handler),
        cmocka_unit_test(a_thread_knows_the_call_that_it_is_in),
        cmocka_unit_test(a_span_or_a_status_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
