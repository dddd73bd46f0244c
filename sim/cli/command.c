#define _GNU_SOURCE /* clock_gettime(), sigaction(), isatty() */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOW_TERMINAL_NS (HLG_NS_PER_S / 2)
#define SHOW_FILE_NS     (30 * HLG_NS_PER_S)
#define WORDS_BYTES      64u
#define REPEAT_SECONDS   2 /* a signal so soon after the first one is the same */

error_t command_scenario_parse(struct command_scenario *scenario, int key, char *argument,
                               const struct argp_state *state)
{
    char *end = NULL;
    switch (key) {
    case 's':
        if (scenario->override_count == COMMAND_OVERRIDES_MAX) {
            return options_error(state->name, "-s: at most %u", COMMAND_OVERRIDES_MAX);
        }
        scenario->overrides[scenario->override_count++] = argument;
        return 0;
    case COMMAND_KEY_SEED:
        scenario->seed = strtoull(argument, &end, 10);
        if (*argument < '0' || *argument > '9' || *end != '\0' || scenario->seed > 1ull << 53) {
            return options_error(state->name, "--seed: '%s': write a whole number, 0 to 2^53",
                                 argument);
        }
        scenario->seed_given = true;
        return 0;
    case COMMAND_KEY_REQUESTS:
        if (!options_u32(argument, &scenario->requests) || scenario->requests == 0 ||
            scenario->requests > SIM_REQUESTS_MAX) {
            return options_error(state->name, "--requests: '%s': write a whole number, 1 to %u",
                                 argument, SIM_REQUESTS_MAX);
        }
        return 0;
    case ARGP_KEY_ARG:
        if (scenario->path != NULL) {
            return options_error(state->name, "'%s': name one scenario; '%s' is there already",
                                 argument, scenario->path);
        }
        scenario->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (scenario->path == NULL) {
            return options_error(state->name, "name a scenario file; halage-sim init writes one");
        }
        return 0;
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

int command_scenario_read(const struct command_scenario *command, const char *const *more,
                          uint32_t more_count, struct sim_scenario *scenario, char *text,
                          size_t capacity)
{
    const uint32_t count = command->override_count + more_count;
    const char **const overrides = calloc(count + 3, sizeof *overrides);
    char seed[WORDS_BYTES];
    char drawn[WORDS_BYTES];
    char traced[WORDS_BYTES];
    uint32_t used = 0;
    if (overrides == NULL) {
        (void)snprintf(text, capacity, "no memory");
        return CLI_FAILED;
    }
    for (uint32_t i = 0; i < command->override_count; i++) {
        overrides[used++] = command->overrides[i];
    }
    for (uint32_t i = 0; i < more_count; i++) {
        overrides[used++] = more[i];
    }
    if (command->seed_given) {
        (void)snprintf(seed, sizeof seed, "seed=%" PRIu64, command->seed);
        overrides[used++] = seed;
    }
    if (command->requests != 0) {
        (void)snprintf(drawn, sizeof drawn, "traffic.requests=%" PRIu32, command->requests);
        (void)snprintf(traced, sizeof traced, "traffic.trace.requests=%" PRIu32, command->requests);
        overrides[used++] = drawn;
        overrides[used++] = traced;
    }
    const int result = sim_scenario_read(scenario, command->path, overrides, used, text, capacity);
    free(overrides);
    return result == 0 ? CLI_DONE : result == -HLG_ENOMEM ? CLI_FAILED : CLI_BAD_INPUT;
}

void command_note_trace(FILE *out, const char *lead, const struct sim_scenario *scenario,
                        const struct sim_workload *workload)
{
    if (scenario->traffic.kind == SIM_WORKLOAD_TRACE &&
        workload->count < scenario->traffic.count_max) {
        (void)fprintf(out,
                      "%snote: traffic.trace.requests: %" PRIu32 ": the trace has %" PRIu32
                      " requests; all of them are taken\n",
                      lead, scenario->traffic.count_max, workload->count);
    }
}

bool command_printed(const char *program, FILE *out)
{
    errno = 0;
    const bool good = fflush(out) == 0 && ferror(out) == 0;
    if (!good) {
        (void)options_error(program,
                            "the output: cannot write all of it: %s; give it another place",
                            errno != 0 ? strerror(errno) : "some of it failed before");
    }
    return good;
}

static volatile sig_atomic_t signals;
static volatile sig_atomic_t first_second; /* of the machine's clock, when the first one came */

static void catch_signals(int flags);

/* Some senders send it twice at once (timeout: to the process, then to its group): that is one. */
static void on_signal(int number)
{
    static const char sentence[] =
        "halage-sim: ended by a second signal: what was not written yet is lost\n";
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (signals == 0) {
        signals = 1;
        first_second = (sig_atomic_t)now.tv_sec;
        catch_signals(SA_RESTART); /* no more waits are to be cut short, what is known is written */
    } else if (now.tv_sec - first_second >= REPEAT_SECONDS) {
        const ssize_t wrote = write(STDERR_FILENO, sentence, sizeof sentence - 1);
        (void)wrote;
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    }
}

static void catch_signals(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

void command_catch_signals(void)
{
    catch_signals(0);
}

bool command_interrupted(void)
{
    return signals != 0;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * HLG_NS_PER_S + (uint64_t)now.tv_nsec;
}

void command_progress_begin(struct command_progress *progress, const char *name, bool quiet)
{
    const uint64_t now = clock_ns();
    *progress =
        (struct command_progress){.name = name, .quiet = quiet, .begin_ns = now, .shown_ns = now};
}

void command_progress_show(struct command_progress *progress, uint64_t done, uint64_t all,
                           const char *what)
{
    if (progress->quiet) {
        return;
    }
    const uint64_t now = clock_ns();
    const bool terminal = isatty(STDERR_FILENO) == 1;
    if (now - progress->shown_ns < (terminal ? SHOW_TERMINAL_NS : SHOW_FILE_NS)) {
        return;
    }
    const double spent = (double)(now - progress->begin_ns) / 1e9;
    progress->shown_ns = now;
    (void)fprintf(stderr, "%s%s: %" PRIu64 " of %" PRIu64 " %s", terminal ? "\r\033[K" : "",
                  progress->name, done, all, what);
    if (done > 0 && done < all) {
        (void)fprintf(stderr, ", some %.0f s left", spent * (double)(all - done) / (double)done);
    }
    (void)fputs(terminal ? "" : "\n", stderr);
    (void)fflush(stderr);
    progress->open = terminal;
}

void command_progress_end(struct command_progress *progress)
{
    if (progress->open) {
        (void)fputs("\r\033[K", stderr);
        progress->open = false;
    }
}
