/*
 * The trace as a file format and a tool: logs of a live scene over the loop network are read, written
 * again, cut, changed and forged. What is damaged must be refused in a sentence; what is forged, with
 * all checks made anew, may at worst run into an assertion of the machine, never into memory that is
 * not its own: each such replay runs in a child, whose end is looked at.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../src/driver/rng.h"
#include "samecore.h"

#define HEAD_BYTES  16u /* magic, version, length of the config */
#define FRAME_BYTES 9u  /* of a record: kind, length, check */
#define FORGED      400u
#define OF_CHILD    20u /* forged logs that one child replays */
#define SENTENCE    256u

/* Logs of one scene, [0] of a prefill node and [NODES - 1] of a decode node. */
static uint8_t *logs[NODES];
static size_t sizes[NODES];
static uint64_t hashes[NODES];

static int record(void **state)
{
    static struct script script;
    struct hlg_trace *traces[NODES];
    char error[SENTENCE] = "";

    (void)state;
    script_draw(&script, 7);
    for (uint32_t n = 0; n < NODES; n++) {
        assert_int_equal(hlg_trace_create(NULL, &traces[n], error, sizeof error), 0);
    }
    assert_null(world_run(&script, 1, traces));
    for (uint32_t n = 0; n < NODES; n++) {
        const uint8_t *bytes = hlg_trace_bytes(traces[n], &sizes[n]);
        assert_non_null(bytes);
        logs[n] = malloc(sizes[n]);
        assert_non_null(logs[n]);
        memcpy(logs[n], bytes, sizes[n]);
        hashes[n] = hlg_trace_hash(traces[n]);
        assert_int_equal(hlg_trace_destroy(traces[n]), 0);
    }
    return 0;
}

static int forget(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < NODES; n++) {
        free(logs[n]);
    }
    return 0;
}

static struct hlg_trace_log *open_log(uint32_t node)
{
    struct hlg_trace_log *log = NULL;
    char error[SENTENCE] = "";

    if (hlg_trace_open(logs[node], sizes[node], false, &log, error, sizeof error) != 0) {
        fail_msg("node %u: %s", node, error);
    }
    return log;
}

/* ---- Sound logs ---- */

static void a_log_replays_to_the_hash_that_was_recorded(void **state)
{
    static struct hlg_trace_verdict verdict;

    (void)state;
    for (uint32_t n = 0; n < NODES; n++) {
        char error[SENTENCE] = "";
        struct hlg_trace_log *log = open_log(n);
        assert_int_equal(hlg_trace_replay(log, &verdict, error, sizeof error), 0);
        assert_int_equal(verdict.different, 0);
        assert_true(verdict.events > 100 && verdict.actions > 10);
        assert_true(verdict.hash == hashes[n]);
        assert_true(hlg_trace_recorded_hash(log) == hashes[n]);
        hlg_trace_close(log);
    }
}

/* Puts a log's records into another recorder; `change` may have a say. */
static struct hlg_trace *copy(struct hlg_trace_log *log,
                              bool (*change)(struct hlg_trace_record *record))
{
    const struct hlg_trace_head *head = hlg_trace_head(log);
    struct hlg_trace_record record;
    struct hlg_trace *trace = NULL;
    char error[SENTENCE] = "";
    bool changed = false;

    assert_int_equal(hlg_trace_create(NULL, &trace, error, sizeof error), 0);
    hlg_trace_begin(trace, head->role == HLG_ROLE_PREFILL ? &head->prefill : NULL,
                    head->role == HLG_ROLE_DECODE ? &head->decode : NULL);
    while (hlg_trace_next(log, &record) == 1) {
        changed = changed || (change != NULL && change(&record));
        if (record.kind == HLG_TRACE_EVENT) {
            hlg_trace_event(trace, &record.event);
        } else if (record.kind == HLG_TRACE_RESULT) {
            hlg_trace_result(trace, record.result);
        } else if (record.kind == HLG_TRACE_ACTION) {
            hlg_trace_action(trace, record.lane, record.kinds, &record.action);
        } else {
            hlg_trace_nothing(trace, record.lane, record.kinds);
        }
    }
    assert_true(changed || change == NULL);
    return trace;
}

static void what_is_read_is_written_again_byte_for_byte(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < NODES; n++) {
        struct hlg_trace_log *log = open_log(n);
        struct hlg_trace *trace = copy(log, NULL);
        size_t size = 0;
        const uint8_t *bytes = hlg_trace_bytes(trace, &size);
        assert_int_equal(size, sizes[n]);
        assert_memory_equal(bytes, logs[n], size);
        hlg_trace_close(log);
        assert_int_equal(hlg_trace_destroy(trace), 0);
    }
}

static void every_record_has_a_line(void **state)
{
    char line[HLG_TRACE_TEXT_BYTES];
    struct hlg_trace_record record;

    (void)state;
    for (uint32_t n = 0; n < NODES; n++) {
        struct hlg_trace_log *log = open_log(n);
        uint64_t count = 0;
        while (hlg_trace_next(log, &record) == 1) {
            hlg_trace_text(&record, line, sizeof line);
            assert_int_equal(record.number, ++count);
            assert_null(strstr(line, "unknown"));
            assert_true(strlen(line) > 4);
            hlg_trace_text(&record, line, 5); /* cut, not overrun */
            assert_true(strlen(line) <= 4);
        }
        assert_int_equal(count, hlg_trace_count(log));
        hlg_trace_close(log);
    }
}

/* ---- Differences ---- */

static bool change_time(struct hlg_trace_record *record)
{
    return record->kind == HLG_TRACE_ACTION && record->action.kind == HLG_ACTION_NOTICE &&
           record->action.notice.noticed++ > 0;
}

static bool change_pieces(struct hlg_trace_record *record)
{
    return record->kind == HLG_TRACE_EVENT && record->event.kind == HLG_EVENT_IMM &&
           record->event.imm.pieces++ > 0;
}

static bool change_nothing(struct hlg_trace_record *record)
{
    if (record->kind != HLG_TRACE_ACTION || record->action.kind != HLG_ACTION_SEND) {
        return false;
    }
    record->kind = HLG_TRACE_NOTHING;
    return true;
}

/* A pull that gave nothing becomes an answer that the machine did not give to the event before it. */
static bool change_result(struct hlg_trace_record *record)
{
    static bool after_event;
    const bool found = after_event && record->kind == HLG_TRACE_NOTHING;

    after_event = record->kind == HLG_TRACE_EVENT;
    if (found) {
        record->kind = HLG_TRACE_RESULT;
        record->result = -HLG_EINVAL;
    }
    return found;
}

static uint64_t difference(uint32_t node, bool (*change)(struct hlg_trace_record *record))
{
    static struct hlg_trace_verdict verdict;
    struct hlg_trace_log *log = open_log(node);
    struct hlg_trace_log *changed = NULL;
    struct hlg_trace *trace = copy(log, change);
    char error[SENTENCE] = "";
    size_t size = 0;
    const uint8_t *bytes = hlg_trace_bytes(trace, &size);

    assert_int_equal(hlg_trace_open(bytes, size, false, &changed, error, sizeof error), 0);
    assert_int_equal(hlg_trace_replay(changed, &verdict, error, sizeof error), 0);
    assert_true(verdict.different == 0 || verdict.recorded[0] != '\0');
    assert_true(verdict.different == 0 || strcmp(verdict.recorded, verdict.replayed) != 0);
    hlg_trace_close(changed);
    hlg_trace_close(log);
    assert_int_equal(hlg_trace_destroy(trace), 0);
    return verdict.different;
}

static void a_changed_event_or_action_is_told_apart(void **state)
{
    (void)state;
    assert_int_not_equal(difference(0, change_time), 0);
    assert_int_not_equal(difference(NODES - 1, change_time), 0);
    assert_int_not_equal(difference(NODES - 1, change_pieces), 0);
    assert_int_not_equal(difference(0, change_nothing), 0);
    assert_int_not_equal(difference(0, change_result), 0);
    assert_int_equal(difference(0, NULL), 0);
}

/* ---- Damaged logs ---- */

static void refuse(const uint8_t *bytes, size_t size, const char *word)
{
    struct hlg_trace_log *log = NULL;
    char error[SENTENCE] = "";

    assert_int_equal(hlg_trace_open(bytes, size, false, &log, error, sizeof error), -HLG_EPROTO);
    assert_true(strlen(error) > 10);
    if (word != NULL && strstr(error, word) == NULL) {
        fail_msg("'%s' does not say '%s'", error, word);
    }
}

static void a_log_that_breaks_off_is_refused_or_taken_in_part(void **state)
{
    const uint32_t n = NODES - 1;
    static struct hlg_trace_verdict verdict;

    (void)state;
    for (size_t cut = 0; cut < sizes[n]; cut += cut < 3000 ? 1 : 997) {
        struct hlg_trace_log *log = NULL;
        char error[SENTENCE] = "";
        uint8_t *part = malloc(cut + 1); /* so that reading beyond is seen */
        assert_non_null(part);
        memcpy(part, logs[n], cut);
        refuse(part, cut, NULL);
        if (hlg_trace_open(part, cut, true, &log, error, sizeof error) == 0) {
            assert_true(hlg_trace_cut(log));
            assert_int_equal(hlg_trace_replay(log, &verdict, error, sizeof error), 0);
            assert_int_equal(verdict.different, 0);
            hlg_trace_close(log);
        }
        free(part);
    }
    refuse(logs[n], sizes[n] - 1, "breaks off");
}

static void every_changed_bit_is_refused(void **state)
{
    const uint32_t n = NODES - 1;
    struct hlg_rng rng = hlg_rng_seed(3);

    (void)state;
    for (size_t at = 0; at < sizes[n]; at += at < 2000 ? 1 : 97) {
        const uint8_t bit = (uint8_t)(1u << hlg_rng_below(&rng, 8));
        logs[n][at] ^= bit;
        refuse(logs[n], sizes[n], NULL);
        logs[n][at] ^= bit;
    }
    hlg_trace_close(open_log(n));
}

/* ---- Forged logs ---- */

static uint64_t fnv(uint64_t hash, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

static uint64_t get(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i) & 0xffu);
    }
}

/* Makes all hashes and checks anew, as far as the lengths lead, and END's sums. */
static void forge(uint8_t *log, size_t size)
{
    const uint64_t config = get(log + 12, 4);
    uint64_t hash = 0xcbf29ce484222325u;
    uint64_t sums[2] = {0, 0};

    if (config > size - HEAD_BYTES - 8) {
        return;
    }
    size_t at = HEAD_BYTES + (size_t)config;
    uint64_t check = fnv(0xcbf29ce484222325u, log, at);
    put(log + at, check, 8);
    at += 8;
    while (size - at >= FRAME_BYTES && get(log + at + 1, 4) <= size - at - FRAME_BYTES) {
        const size_t bytes = (size_t)get(log + at + 1, 4);
        if (log[at] == HLG_TRACE_END && bytes == 24) {
            put(log + at + 5, sums[0], 8);
            put(log + at + 13, sums[1], 8);
            put(log + at + 21, hash, 8);
        } else if (log[at] == HLG_TRACE_EVENT) {
            sums[0]++;
        } else {
            sums[1] += log[at] == HLG_TRACE_ACTION;
            hash = fnv(fnv(hash, log + at, 1), log + at + 5, bytes);
        }
        check = fnv(check, log + at, 5 + bytes);
        put(log + at + 5 + bytes, check & UINT32_MAX, 4);
        at += FRAME_BYTES + bytes;
    }
}

/* Some numbers of the log become others: small, large, or nearly what they were. */
static void mutate(uint8_t *log, size_t size, struct hlg_rng *rng)
{
    const uint32_t changes = 1 + (uint32_t)hlg_rng_below(rng, 3);

    for (uint32_t i = 0; i < changes; i++) {
        const bool early = hlg_rng_below(rng, 4) == 0; /* the head, the greeting */
        const size_t at = (size_t)hlg_rng_below(rng, early ? 1500 : size - 8);
        switch (hlg_rng_below(rng, 4)) {
        case 0:
            log[at] = (uint8_t)hlg_rng_below(rng, 256);
            break;
        case 1:
            put(log + at, UINT64_MAX, 1 + (uint32_t)hlg_rng_below(rng, 8));
            break;
        case 2:
            log[at]++;
            break;
        case 3:
            put(log + at, 0, 1 + (uint32_t)hlg_rng_below(rng, 4));
            break;
        }
    }
    forge(log, size);
}

/* How a forged log ended. */
enum end {
    END_REFUSED = 0,
    END_STOPPED, /* the replay saw what no driver may do */
    END_DIFFERENT,
    END_EQUAL, /* the change did not matter, such as a byte of a prompt */
    END_ASSERTED,
    END_SILENT, /* refused without a sentence */
    END_COUNT,
};

/* In a child: reads, tells and replays. */
static enum end survive(const uint8_t *bytes, size_t size)
{
    static struct hlg_trace_verdict verdict;
    struct hlg_trace_log *log = NULL;
    struct hlg_trace_record record;
    char text[HLG_TRACE_TEXT_BYTES];
    char error[SENTENCE] = "";

    if (hlg_trace_open(bytes, size, false, &log, error, sizeof error) != 0) {
        return error[0] != '\0' ? END_REFUSED : END_SILENT;
    }
    while (hlg_trace_next(log, &record) == 1) {
        hlg_trace_text(&record, text, sizeof text);
    }
    const int code = hlg_trace_replay(log, &verdict, error, sizeof error);
    hlg_trace_close(log);
    if (code != 0) {
        return error[0] != '\0' ? END_STOPPED : END_SILENT;
    }
    return verdict.different != 0 ? END_DIFFERENT : END_EQUAL;
}

/* Replays forged logs from `seed` on. Returns how many it was through with; an assertion ends one. */
static uint32_t forge_in_child(uint64_t seed, uint32_t count, uint32_t counts[END_COUNT])
{
    int ends[2];
    int status = 0;
    uint8_t through = 0;

    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) { /* assertions are expected here */
            _exit(2);
        }
        for (uint32_t i = 0; i < count; i++) {
            struct hlg_rng rng = hlg_rng_seed(seed + i);
            const uint32_t node = (seed + i) % 2 == 0 ? 0 : NODES - 1;
            uint8_t *forged = malloc(sizes[node]);
            if (forged == NULL) {
                _exit(2);
            }
            memcpy(forged, logs[node], sizes[node]);
            mutate(forged, sizes[node], &rng);
            through = (uint8_t)survive(forged, sizes[node]);
            free(forged);
            if (through == END_SILENT || write(ends[1], &through, 1) != 1) {
                _exit(2);
            }
        }
        _exit(0);
    }
    (void)close(ends[1]);
    uint32_t done = 0;
    while (read(ends[0], &through, 1) == 1) {
        counts[through]++;
        done++;
    }
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    const bool asserted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!asserted && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        fail_msg("forged log of seed %llu: status %x", (unsigned long long)(seed + done), status);
    }
    assert_true(asserted ? done < count : done == count);
    counts[END_ASSERTED] += asserted;
    return asserted ? done + 1 : done;
}

static void forged_logs_do_no_harm(void **state)
{
    uint32_t counts[END_COUNT] = {0};

    (void)state;
    for (uint32_t done = 0; done < FORGED;) {
        const uint32_t left = FORGED - done;
        done += forge_in_child(1000 + done, left < OF_CHILD ? left : OF_CHILD, counts);
    }
    printf("forged %u: refused %u stopped %u different %u equal %u asserted %u\n", FORGED,
           counts[END_REFUSED], counts[END_STOPPED], counts[END_DIFFERENT], counts[END_EQUAL],
           counts[END_ASSERTED]);
    /* they get as far as the machine, and are not all turned away at the door */
    assert_true(counts[END_DIFFERENT] > 10 && counts[END_REFUSED] > 10);
}

static void absurd_limits_are_refused_in_words(void **state)
{
    /* the head: role, then limits in the order of struct hlg_limits */
    static const char *const names[] = {"peers_max", "requests_max", "sources_max",  "lanes_max",
                                        "rails_max", "slices_max",   "forwards_max", "chunks_max",
                                        "ops_max",   "blocks_max"};
    uint8_t *log = malloc(sizes[0]);

    (void)state;
    assert_non_null(log);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        memcpy(log, logs[0], sizes[0]);
        put(log + HEAD_BYTES + 4 + (size_t)i * 4, UINT32_MAX, 4);
        forge(log, sizes[0]);
        refuse(log, sizes[0], names[i]);
    }
    memcpy(log, logs[0], sizes[0]);
    char word[16];
    (void)snprintf(word, sizeof word, "version %u", HLG_TRACE_VERSION + 1);
    put(log + 8, HLG_TRACE_VERSION + 1, 4);
    refuse(log, sizes[0], word);
    free(log);
}

/* ---- Recording to a file ---- */

static void a_file_that_cannot_be_written_is_said(void **state)
{
    struct hlg_trace *trace = NULL;
    struct hlg_trace_log *log = open_log(0);
    char error[SENTENCE] = "";

    (void)state;
    assert_int_equal(hlg_trace_create("/nowhere/at/all", &trace, error, sizeof error), -HLG_EIO);
    assert_non_null(strstr(error, "/nowhere/at/all"));
    assert_int_equal(hlg_trace_create("/dev/full", &trace, error, sizeof error), 0);
    hlg_trace_begin(trace, &hlg_trace_head(log)->prefill, NULL);
    hlg_trace_event(trace, &(struct hlg_event){.kind = HLG_EVENT_TIME, .now = 1});
    assert_int_equal(hlg_trace_destroy(trace), -HLG_EIO);
    hlg_trace_close(log);
}

/* The event is with the kernel before the machine sees it. */
static void the_event_that_a_process_died_of_is_in_the_log(void **state)
{
    char path[] = "/tmp/halage-trace-XXXXXX";
    static uint8_t bytes[1u << 16];
    struct hlg_trace_log *log = open_log(0);
    struct hlg_trace_log *left = NULL;
    struct hlg_trace_record record = {0};
    char error[SENTENCE] = "";
    int status = 0;

    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hlg_trace *trace = NULL;
        if (hlg_trace_create(path, &trace, error, sizeof error) == 0) {
            hlg_trace_begin(trace, &hlg_trace_head(log)->prefill, NULL);
            hlg_trace_event(trace, &(struct hlg_event){.kind = HLG_EVENT_TIME, .now = 1});
            hlg_trace_nothing(trace, 0, HLG_ACTIONS_NODE);
            hlg_trace_event(trace, &(struct hlg_event){.kind = HLG_EVENT_DRAIN, .now = 2});
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    const ssize_t size = read(fd, bytes, sizeof bytes);
    (void)close(fd);
    (void)unlink(path);
    assert_true(size > 0);
    assert_int_equal(hlg_trace_open(bytes, (size_t)size, true, &left, error, sizeof error), 0);
    assert_true(hlg_trace_cut(left));
    while (hlg_trace_next(left, &record) == 1) {
    }
    assert_int_equal(record.number, 3);
    assert_int_equal(record.event.kind, HLG_EVENT_DRAIN);
    hlg_trace_close(left);
    hlg_trace_close(log);
}

static void pulls_of_nothing_are_written_once(void **state)
{
    struct hlg_trace *trace = NULL;
    struct hlg_trace_log *log = open_log(0);
    struct hlg_trace_log *made = NULL;
    char error[SENTENCE] = "";
    size_t size = 0;

    (void)state;
    assert_int_equal(hlg_trace_create(NULL, &trace, error, sizeof error), 0);
    hlg_trace_begin(trace, &hlg_trace_head(log)->prefill, NULL);
    for (uint32_t i = 0; i < 5; i++) {
        hlg_trace_nothing(trace, 0, HLG_ACTIONS_NODE);
        hlg_trace_nothing(trace, i % 2, HLG_ACTION_WRITE);
    }
    hlg_trace_event(trace, &(struct hlg_event){.kind = HLG_EVENT_TIME, .now = 1});
    hlg_trace_nothing(trace, 0, HLG_ACTIONS_NODE);
    const uint8_t *bytes = hlg_trace_bytes(trace, &size);
    assert_int_equal(hlg_trace_open(bytes, size, false, &made, error, sizeof error), 0);
    assert_int_equal(hlg_trace_count(made), 5); /* node, lanes 0 and 1, the event, node */
    hlg_trace_close(made);
    hlg_trace_close(log);
    assert_int_equal(hlg_trace_destroy(trace), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_replays_to_the_hash_that_was_recorded),
        cmocka_unit_test(what_is_read_is_written_again_byte_for_byte),
        cmocka_unit_test(every_record_has_a_line),
        cmocka_unit_test(a_changed_event_or_action_is_told_apart),
        cmocka_unit_test(a_log_that_breaks_off_is_refused_or_taken_in_part),
        cmocka_unit_test(every_changed_bit_is_refused),
        cmocka_unit_test(forged_logs_do_no_harm),
        cmocka_unit_test(absurd_limits_are_refused_in_words),
        cmocka_unit_test(a_file_that_cannot_be_written_is_said),
        cmocka_unit_test(the_event_that_a_process_died_of_is_in_the_log),
        cmocka_unit_test(pulls_of_nothing_are_written_once),
    };

    return cmocka_run_group_tests_name("trace", tests, record, forget);
}
