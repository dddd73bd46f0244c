/*
 * Words for numbers: every note, notice, reason and level has a name of its own, numbers beyond the
 * last have none but do no harm, and no line outgrows its buffer.
 */
#include "../../src/core/note.h"
#include <halage/log.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void every_note_makes_a_line_that_fits(void **state)
{
    char line[HLG_NOTE_TEXT_BYTES];

    (void)state;
    for (uint32_t code = 0; code <= HLG_NOTE_COUNT; code++) {
        struct hlg_note note = {.code = code,
                                .peer = UINT32_MAX - 1,
                                .a = (uint64_t)INT64_MIN,
                                .b = (uint64_t)INT64_MIN,
                                .c = (uint64_t)INT64_MIN};
        memset(line, 'x', sizeof line);
        enum hlg_log_level level = hlg_note_text(&note, line, sizeof line);
        assert_true(level <= HLG_LOG_DEBUG);
        assert_non_null(memchr(line, 0, sizeof line));
        bool known = code != HLG_NOTE_NONE && code < HLG_NOTE_COUNT;
        assert_int_equal(strncmp(line, "note ", 5) != 0, known);
    }
}

static void lines_are_name_value(void **state)
{
    char line[HLG_NOTE_TEXT_BYTES];
    struct hlg_note note = {
        .code = HLG_NOTE_WRITE_FAILED, .peer = 3, .a = 17, .b = 5, .c = (uint64_t)-10};

    (void)state;
    assert_int_equal(hlg_note_text(&note, line, sizeof line), HLG_LOG_ERROR);
    assert_string_equal(line, "write_failed peer 3 number 17 pieces 5 error -10");
    note = (struct hlg_note){.code = HLG_NOTE_FENCE_TIMEOUT, .peer = HLG_NONE, .a = 17};
    assert_int_equal(hlg_note_text(&note, line, sizeof line), HLG_LOG_WARN);
    assert_string_equal(line, "fence_timeout number 17");
}

static void names_are_known_up_to_the_last_and_not_beyond(void **state)
{
    (void)state;
    assert_string_equal(hlg_log_level_text(HLG_LOG_DEBUG), "debug");
    assert_string_equal(hlg_log_level_text(HLG_LOG_DEBUG + 1), "unknown");
    assert_string_equal(hlg_notice_text(0), "unknown");
    assert_string_equal(hlg_notice_text(HLG_NOTICE_PEER_UP), "peer_up");
    assert_string_equal(hlg_notice_text(HLG_NOTICE_POISONED), "poisoned");
    assert_string_equal(hlg_notice_text(HLG_NOTICE_POISONED + 1), "unknown");
    assert_string_equal(hlg_reason_text(HLG_REASON_PREEMPTED), "preempted");
    assert_string_equal(hlg_reason_text(HLG_REASON_PREEMPTED + 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_note_makes_a_line_that_fits),
        cmocka_unit_test(lines_are_name_value),
        cmocka_unit_test(names_are_known_up_to_the_last_and_not_beyond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
