/* Sums over seeds: what happened, how often each kind, note and checker had its turn. */
#include "../../src/core/note.h"
#include "runner.h"

#include <errno.h>
#include <halage/log.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Notes that a storm of sound nodes need not bring about, whose peer or engine they need, and the
 * tests that do. Where a fault looks like such a peer they come all the same. */
static const struct {
    uint32_t code;
    const char *why;
} elsewhere[] = {
    {HLG_NOTE_MESSAGE_UNEXPECTED, "a peer that breaks the protocol: hostile"},
    {HLG_NOTE_OUTBOX_FULL, "a peer that never reads: session, credits"},
    {HLG_NOTE_IMM_UNKNOWN, "a peer that makes slots up: decode_pair"},
    {HLG_NOTE_IMM_EARLY, "a peer that writes unasked: decode_pair"},
    {HLG_NOTE_IMM_EXCESS, "a peer that writes too much: storm-plant-count-more"},
    {HLG_NOTE_PIECES_DIFFER, "a peer that counts otherwise: decode_pair"},
    {HLG_NOTE_ANSWER_FOREIGN, "a peer that answers for another: decode_pair, hostile"},
    {HLG_NOTE_CREDIT_BACKWARD, "a peer that credits less than before: prefill"},
    {HLG_NOTE_GRANT_BACKWARD, "a peer that takes grants back: credits"},
    {HLG_NOTE_GRANT_EXCEEDED, "a peer that asks beyond its grant: credits"},
    {HLG_NOTE_SUBMIT_TOO_LARGE, "an engine that asks what no HELLO leaves room for: credits"},
    {HLG_NOTE_SUBMIT_SOURCES, "an engine that names too few or too many sources: decode_pair"},
};

static const char *note_elsewhere(uint32_t code)
{
    for (uint32_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        if (elsewhere[i].code == code) {
            return elsewhere[i].why;
        }
    }
    return NULL;
}

/* Its name, as a log has it. */
static void note_name(uint32_t code, char *name, size_t capacity)
{
    char line[HLG_NOTE_TEXT_BYTES];
    const struct hlg_note note = {.code = code, .peer = HLG_NONE};

    (void)hlg_note_text(&note, line, sizeof line);
    (void)snprintf(name, capacity, "%.*s", (int)strcspn(line, " "), line);
}

void tally_add(struct storm_counts *sum, const struct storm_counts *one)
{
    sum->submitted += one->submitted;
    sum->ready += one->ready;
    sum->returned += one->returned;
    sum->poisoned += one->poisoned;
    sum->local += one->local;
    sum->landings += one->landings;
    sum->pieces += one->pieces;
    sum->restarts += one->restarts;
    sum->probes += one->probes;
    sum->old_keys += one->old_keys;
    sum->steps += one->steps;
    sum->seeds += one->seeds;
    if (one->settle_ns_max > sum->settle_ns_max) {
        sum->settle_ns_max = one->settle_ns_max;
    }
    for (uint32_t i = 0; i <= HLG_REASON_PREEMPTED; i++) {
        sum->failed[i] += one->failed[i];
    }
    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        sum->net[i] += one->net[i];
        sum->fault[i] += one->fault[i];
    }
    for (uint32_t i = 0; i < CHECKER_COUNT; i++) {
        sum->looked[i] += one->looked[i];
    }
    for (uint32_t i = 0; i < 64; i++) {
        sum->notes[i] += one->notes[i];
    }
}

static void print_kinds(const struct storm_counts *c)
{
    printf("kind              loop, engines   decorator\n");
    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        printf("  %-14s %14" PRIu64 " %11" PRIu64 "\n", kind_name(i), c->net[i], c->fault[i]);
    }
}

static void print_checkers(const struct storm_counts *c)
{
    printf("checker                looked   planted\n");
    for (uint32_t i = 1; i < CHECKER_COUNT; i++) {
        const char *comma = " ";
        printf("  %-12s %14" PRIu64 "  ", checker_name(i), c->looked[i]);
        for (uint32_t p = 1; p < PLANT_COUNT; p++) {
            if (plant_checker(p) == i) {
                printf("%s%s", comma, plant_name(p));
                comma = ", ";
            }
        }
        printf("\n");
    }
}

static void print_notes(const struct storm_counts *c)
{
    printf("note                     hits\n");
    for (uint32_t i = 1; i < HLG_NOTE_COUNT; i++) {
        char name[40];
        const char *why = note_elsewhere(i);
        note_name(i, name, sizeof name);
        printf("  %-18s %8" PRIu64 "%s%s\n", name, c->notes[i], why != NULL ? "   " : "",
               why != NULL ? why : "");
    }
}

void tally_print(const struct storm_counts *c)
{
    printf("requests  submitted %" PRIu64 " ready %" PRIu64 " (without prefiller %" PRIu64
           ") returned %" PRIu64 " poisoned %" PRIu64 " probes %" PRIu64 "\n",
           c->submitted, c->ready, c->local, c->returned, c->poisoned, c->probes);
    printf("failed    rejected %" PRIu64 " cancelled %" PRIu64 " peer %" PRIu64 " deadline %" PRIu64
           " preempted %" PRIu64 "\n",
           c->failed[HLG_REASON_REJECTED], c->failed[HLG_REASON_CANCELLED],
           c->failed[HLG_REASON_PEER], c->failed[HLG_REASON_DEADLINE],
           c->failed[HLG_REASON_PREEMPTED]);
    printf("work      pieces %" PRIu64 " landings %" PRIu64 " restarts %" PRIu64
           " old keys kept out %" PRIu64 " steps %" PRIu64 "\n",
           c->pieces, c->landings, c->restarts, c->old_keys, c->steps);
    printf("calm      longest until all had ended %.1f ms, of %.1f allowed\n",
           (double)c->settle_ns_max / 1e6, (double)SETTLE_NS / 1e6);
    print_kinds(c);
    print_checkers(c);
    print_notes(c);
}

/* Whether the loop or an engine draws a kind, and whether the decorator does. */
static bool is_of_loop(uint32_t kind)
{
    return kind <= KIND_BREAK || kind >= KIND_REJECT;
}

static bool is_of_decorator(uint32_t kind)
{
    return kind < KIND_REJECT && kind != KIND_DROP && kind != KIND_BREAK;
}

uint32_t tally_missing(const struct storm_counts *c)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        if (is_of_loop(i) && c->net[i] == 0) {
            printf("never hit: %s\n", kind_name(i));
            missing++;
        }
        if (is_of_decorator(i) && c->fault[i] == 0) {
            printf("never hit: %s of the decorator\n", kind_name(i));
            missing++;
        }
    }
    for (uint32_t i = 1; i < CHECKER_COUNT; i++) {
        if (c->looked[i] == 0) {
            printf("never looked: checker %s\n", checker_name(i));
            missing++;
        }
    }
    for (uint32_t i = 1; i < HLG_NOTE_COUNT; i++) {
        if (c->notes[i] == 0 && note_elsewhere(i) == NULL) {
            char name[40];
            note_name(i, name, sizeof name);
            printf("never hit: note %s\n", name);
            missing++;
        }
    }
    return missing;
}

static void write_json(const struct storm_counts *c, uint64_t passed, uint64_t failed, FILE *file)
{
    (void)fprintf(file,
                  "{\n  \"passed\": %" PRIu64 ",\n  \"failed\": %" PRIu64 ",\n"
                  "  \"submitted\": %" PRIu64 ",\n  \"ready\": %" PRIu64 ",\n"
                  "  \"returned\": %" PRIu64 ",\n  \"poisoned\": %" PRIu64 ",\n"
                  "  \"probes\": %" PRIu64 ",\n  \"pieces\": %" PRIu64 ",\n"
                  "  \"landings\": %" PRIu64 ",\n  \"restarts\": %" PRIu64 ",\n"
                  "  \"old_keys\": %" PRIu64 ",\n  \"settle_ns_max\": %" PRIu64 ",\n",
                  passed, failed, c->submitted, c->ready, c->returned, c->poisoned, c->probes,
                  c->pieces, c->landings, c->restarts, c->old_keys, c->settle_ns_max);
    (void)fprintf(file, "  \"kinds\": {");
    for (uint32_t i = 0; i < KIND_COUNT; i++) {
        (void)fprintf(file, "%s\n    \"%s\": [%" PRIu64 ", %" PRIu64 "]", i > 0 ? "," : "",
                      kind_name(i), c->net[i], c->fault[i]);
    }
    (void)fprintf(file, "\n  },\n  \"checkers\": {");
    for (uint32_t i = 1; i < CHECKER_COUNT; i++) {
        (void)fprintf(file, "%s\n    \"%s\": %" PRIu64, i > 1 ? "," : "", checker_name(i),
                      c->looked[i]);
    }
    (void)fprintf(file, "\n  },\n  \"notes\": {");
    for (uint32_t i = 1; i < HLG_NOTE_COUNT; i++) {
        char name[40];
        note_name(i, name, sizeof name);
        (void)fprintf(file, "%s\n    \"%s\": %" PRIu64, i > 1 ? "," : "", name, c->notes[i]);
    }
    (void)fprintf(file, "\n  }\n}\n");
}

int tally_json(const struct storm_counts *c, uint64_t passed, uint64_t failed, const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        return -HLG_EIO;
    }
    write_json(c, passed, failed, file);
    bool bad = ferror(file) != 0;
    bad = fclose(file) != 0 || bad;
    return bad ? -HLG_EIO : 0;
}
