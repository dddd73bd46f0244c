/* Names of what can be drawn, looked at and planted. */
#include "kinds.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[KIND_COUNT] = {
    [KIND_DELAY] = "delay",
    [KIND_REORDER] = "reorder",
    [KIND_DUPLICATE] = "duplicate",
    [KIND_REFUSE] = "refuse",
    [KIND_PARTIAL] = "partial",
    [KIND_FAIL_BEFORE] = "fail-before",
    [KIND_FAIL_AFTER] = "fail-after",
    [KIND_FAIL_LATE] = "fail-late",
    [KIND_DROP] = "drop",
    [KIND_KILL] = "kill",
    [KIND_BREAK] = "break",
    [KIND_IMM_LATE] = "imm-late",
    [KIND_IMM_STALE] = "imm-stale",
    [KIND_FRAME_DELAY] = "frame-delay",
    [KIND_FRAME_DROP] = "frame-drop",
    [KIND_FREEZE] = "freeze",
    [KIND_PARTITION] = "partition",
    [KIND_HALF_OPEN] = "half-open",
    [KIND_SLOW] = "slow",
    [KIND_CLOCK_STALL] = "clock-stall",
    [KIND_CLOCK_JUMP] = "clock-jump",
    [KIND_CLOSE_FAILS] = "close-fails",
    [KIND_REJECT] = "reject",
    [KIND_GIVE_UP] = "give-up",
    [KIND_ABORT] = "abort",
    [KIND_DEADLINE] = "deadline",
    [KIND_DISCONNECT] = "disconnect",
    [KIND_STRANGER] = "stranger",
    [KIND_TWICE] = "twice",
    [KIND_DRAIN] = "drain",
    [KIND_VERSION] = "version",
    [KIND_SHARE] = "share",
    [KIND_TINY] = "tiny",
    [KIND_FLUSH] = "flush",
    [KIND_LATE] = "late",
    [KIND_FICKLE] = "fickle",
    [KIND_OLD_ADDRESS] = "old-address",
    [KIND_ACKNOWLEDGED] = "acknowledged",
    [KIND_DENSE] = "dense",
};

static const char *const checker_names[CHECKER_COUNT] = {
    [CHECK_NONE] = "none",       [CHECK_TARGET] = "target",     [CHECK_OWNER] = "owner",
    [CHECK_SOURCE] = "source",   [CHECK_LAYER] = "layer",       [CHECK_BYTES] = "bytes",
    [CHECK_LAST] = "last-token", [CHECK_COUNT] = "count",       [CHECK_NOTICE] = "notice",
    [CHECK_PAGES] = "pages",     [CHECK_REST] = "rest",         [CHECK_BOUND] = "bound",
    [CHECK_WINDOW] = "window",   [CHECK_CALL] = "call",         [CHECK_PEER] = "peer",
    [CHECK_LIVE] = "live",       [CHECK_PROBE] = "probe",       [CHECK_REPEAT] = "repeat",
    [CHECK_MEMORY] = "memory",   [CHECK_MACHINES] = "machines",
};

struct plant_text {
    const char *name;
    enum storm_checker checker;
    storm_kinds kinds; /* without which it has no chance */
};

static const struct plant_text plants[PLANT_COUNT] = {
    [PLANT_NONE] = {"none", CHECK_NONE, 0},
    [PLANT_TARGET_FREED] = {"target-freed", CHECK_TARGET, 0},
    [PLANT_CONTEXT_FREED] = {"context-freed", CHECK_TARGET, 0},
    [PLANT_SOURCE_FREED] = {"source-freed", CHECK_SOURCE, 0},
    [PLANT_WRONG_PAGE] = {"wrong-page", CHECK_OWNER, 0},
    [PLANT_LAYER_EARLY] = {"layer-early", CHECK_LAYER, 0},
    [PLANT_WRONG_BYTE] = {"wrong-byte", CHECK_BYTES, 0},
    [PLANT_LAST_TOKEN] = {"last-token", CHECK_LAST, 0},
    [PLANT_COUNT_MORE] = {"count-more", CHECK_COUNT, 0},
    [PLANT_NOTICE_TWICE] = {"notice-twice", CHECK_NOTICE, 0},
    [PLANT_PAGE_LOST] = {"page-lost", CHECK_PAGES, 0},
    [PLANT_PAGE_TWICE] = {"page-twice", CHECK_PAGES, 0},
    [PLANT_NO_RELEASE] = {"no-release", CHECK_REST, 0},
    [PLANT_NO_END] = {"no-end", CHECK_REST, 0},
    [PLANT_ENDPOINT_LEAK] = {"endpoint-leak", CHECK_BOUND, 0},
    [PLANT_WIDE_WINDOW] = {"wide-window", CHECK_WINDOW, 0},
    [PLANT_POISON_REUSED] = {"poison-reused", CHECK_CALL, STORM_KIND(KIND_CLOSE_FAILS)},
    [PLANT_ONE_MODEL] = {"one-model", CHECK_PEER, STORM_KIND(KIND_VERSION)},
    [PLANT_NO_DRAIN] = {"no-drain", CHECK_PEER, STORM_KIND(KIND_DRAIN)},
    [PLANT_DONE_LOST] = {"done-lost", CHECK_MACHINES, 0},
    [PLANT_ASLEEP] = {"asleep", CHECK_LIVE, 0},
    [PLANT_DEAF] = {"deaf", CHECK_PROBE, 0},
    [PLANT_RANDOM] = {"random", CHECK_REPEAT, 0},
    [PLANT_MEMORY_LEAK] = {"memory-leak", CHECK_MEMORY, 0},
    [PLANT_ABORT] = {"abort", CHECK_MACHINES, 0},
    [PLANT_OLD_KEYS] = {"old-keys", CHECK_TARGET,
                        STORM_KIND(KIND_PARTITION) | STORM_KIND(KIND_KILL) |
                            STORM_KIND(KIND_DISCONNECT)},
    [PLANT_SAID_PLACED] = {"said-placed", CHECK_TARGET,
                           STORM_KIND(KIND_ACKNOWLEDGED) | STORM_KIND(KIND_FICKLE) |
                               STORM_KIND(KIND_DELAY)},
};

const char *kind_name(uint32_t kind)
{
    HLG_ASSERT(kind < KIND_COUNT && kind_names[kind] != NULL);
    return kind_names[kind];
}

const char *checker_name(uint32_t checker)
{
    HLG_ASSERT(checker < CHECKER_COUNT && checker_names[checker] != NULL);
    return checker_names[checker];
}

const char *plant_name(uint32_t plant)
{
    HLG_ASSERT(plant < PLANT_COUNT && plants[plant].name != NULL);
    return plants[plant].name;
}

enum storm_checker plant_checker(uint32_t plant)
{
    HLG_ASSERT(plant < PLANT_COUNT);
    return plants[plant].checker;
}

storm_kinds plant_kinds(uint32_t plant)
{
    HLG_ASSERT(plant < PLANT_COUNT);
    return plants[plant].kinds;
}

int plant_parse(const char *text, uint32_t *plant)
{
    for (uint32_t i = 1; i < PLANT_COUNT; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%u", i);
        if (strcmp(text, plants[i].name) == 0 || strcmp(text, number) == 0) {
            *plant = i;
            return 0;
        }
    }
    return -HLG_EINVAL;
}

int kinds_parse(const char *text, storm_kinds *kinds, char *bad, size_t bad_bytes)
{
    storm_kinds all = 0;

    for (const char *at = text;;) {
        size_t bytes = strcspn(at, ",");
        uint32_t kind = 0;
        while (kind < KIND_COUNT &&
               (strncmp(kind_names[kind], at, bytes) != 0 || kind_names[kind][bytes] != '\0')) {
            kind++;
        }
        if (kind == KIND_COUNT) {
            (void)snprintf(bad, bad_bytes, "%.*s", (int)(bytes < 40 ? bytes : 40), at);
            return -HLG_EINVAL;
        }
        all |= STORM_KIND(kind);
        if (at[bytes] == '\0') {
            break;
        }
        at += bytes + 1;
    }
    *kinds = all;
    return 0;
}

void kinds_text(storm_kinds kinds, char *text, size_t text_bytes)
{
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        if ((kinds & STORM_KIND(i)) != 0 && at < text_bytes) {
            int bytes =
                snprintf(text + at, text_bytes - at, "%s%s", at > 0 ? "," : "", kind_names[i]);
            at += bytes > 0 ? (size_t)bytes : 0;
        }
    }
}
