/*
 * Runs the failure matrix, or a cell of it, and compares what came of each with tests/failure/matrix.tsv.
 */
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALTERNATIVES_MAX 3u
#define FIELD_BYTES      40u
#define LINE_BYTES       256u
#define TOLD_MAX         10u /* cells that are wrong */

enum field {
    FIELD_FAULT,
    FIELD_PHASE,
    FIELD_DECODE,
    FIELD_PAGES,
    FIELD_PREFILL,
    FIELD_SESSION,
    FIELD_OTHERS,
    FIELD_WITHIN,
    FIELDS,
};

struct row {
    char field[FIELDS][FIELD_BYTES];
    hlg_time took; /* to the end of all of it, source pages included */
};

static const char *const reasons[] = {"none",     "rejected", "cancelled", "peer",
                                      "deadline", "protocol", "local",     "preempted"};
static const char *const whys[] = {"up",     "channel", "lease", "bye",    "protocol", "replaced",
                                   "shared", "fence",   "asked", "outbox", "writes"};

/* How long after the fault its last consequence for the watched request may come. */
static const struct {
    const char *name;
    hlg_time ns;
} bounds[] = {
    {"now", MS(5)},
    {"stall", STALL_NS + MS(5)},
    {"fence", FENCE_NS + MS(5)},
    {"pause", LEASE_NS / 2 + MS(5)},
    {"lease", LEASE_NS + HEARTBEAT_NS + MS(5)},
    {"thaw", 2 * LEASE_NS + MS(15)},
};
#define BOUNDS (sizeof bounds / sizeof bounds[0])

/* ---- Running a cell ----------------------------------------------------------------------- */

static struct cell *now_running; /* for predicates */
static bool acknowledged;        /* the network's writes complete before they are placed */

static bool target_over(const struct job *job)
{
    return job->target != TARGET_NONE && job->target != TARGET_OPEN &&
           job->target != TARGET_READY && job->target != TARGET_FAILED;
}

static bool sources_over(const struct job *job)
{
    for (uint32_t i = 0; i < job->source_count; i++) {
        uint32_t state = job->sources[i].state;
        if (state != SOURCE_NONE && state < SOURCE_SENT) {
            return false;
        }
    }
    return true;
}

static bool can_submit(const struct scene *s)
{
    const struct scene_node_state *n = &s->nodes[DECODE_0];

    return n->alive && !n->frozen && n->up[PREFILL_0] && (!s->config.split || n->up[PREFILL_1]);
}

static bool never(const struct scene *s)
{
    (void)s;
    return false;
}

static bool watched_is_back(const struct scene *s)
{
    (void)s;
    return target_over(now_running->watched);
}

static bool watched_is_over(const struct scene *s)
{
    (void)s;
    return target_over(now_running->watched) && sources_over(now_running->watched);
}

static bool all_over(const struct scene *s)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        if (s->jobs[i].used && (!target_over(&s->jobs[i]) || !sources_over(&s->jobs[i]))) {
            return false;
        }
    }
    return scene_at_rest(s) && scene_all_up(s);
}

static bool serves(const struct scene *s, uint32_t prefiller)
{
    return s->nodes[DECODE_0].up[prefiller] && s->nodes[prefiller].alive &&
           !s->nodes[prefiller].frozen;
}

static bool reuse_can_go(const struct scene *s)
{
    const struct scene_node_state *n = &s->nodes[DECODE_0];

    return n->alive && !n->frozen && serves(s, PREFILL_1) &&
           (!s->config.split || serves(s, PREFILL_0));
}

static void revive(struct cell *c)
{
    if (c->killed != HLG_NONE) {
        (void)scene_until(&c->scene, never, c->revive_at);
        scene_restart(&c->scene, c->killed);
        c->killed = HLG_NONE;
    }
}

/* Runs to `fn`, letting the dead live again when it is time for that. */
static bool run(struct cell *c, scene_fn *fn, hlg_time limit)
{
    struct scene *s = &c->scene;

    if (c->killed != HLG_NONE && c->revive_at <= limit) {
        if (scene_until(s, fn, c->revive_at)) {
            return true;
        }
        revive(c);
    }
    return scene_until(s, fn, limit);
}

static struct job *same_pages(struct cell *c, const char *id, uint32_t prefiller)
{
    const struct job *w = c->watched;
    uint32_t pages[JOB_PAGES];
    struct job *job;

    for (uint32_t i = 0; i < w->count; i++) {
        pages[i] = w->pages[(3 * i + 1) % w->count];
    }
    job = scene_job(&c->scene, id, DECODE_0, pages, w->tokens);
    job->context = w->context;
    if (!c->scene.config.split) {
        job->sources[0].node = prefiller;
    }
    scene_submit(&c->scene, job);
    if (w->target == TARGET_POISONED) {
        if (job->submit_error != -HLG_EOWNED) {
            scene_break(&c->scene, "poisoned pages were taken: %s",
                        hlg_error_text(job->submit_error));
        }
    } else if (job->submit_error != 0) {
        scene_break(&c->scene, "pages that are back were refused: %s",
                    hlg_error_text(job->submit_error));
    }
    return job;
}

static void must_be_ready(struct cell *c, const struct job *job)
{
    if (c->watched->target != TARGET_POISONED && job->target != TARGET_RELEASED) {
        scene_break(&c->scene,
                    "%s, which has the same pages, did not come whole: state %u reason %u", job->id,
                    job->target, job->reason);
    }
}

/* The fault strikes, and all that follows from it follows. */
static void strike(struct cell *c)
{
    struct scene *s = &c->scene;

    c->struck_at = scene_now(s);
    c->fault->strike(c);
    if (!c->fault->timed) {
        cell_let_go(c, !c->fault->writes);
    }
    if (c->phase == PHASE_UP) {
        if (!run(c, can_submit, c->struck_at + MS(500))) {
            scene_break(s, "the session did not come back");
        }
        scene_submit(s, c->watched);
    } else if (c->fault->timed) {
        scene_wait(s, 2);
        cell_let_go(c, true);
    }
    if (c->watched->hold_release) {
        (void)run(c, watched_is_back, c->struck_at + c->fault->over_ns + MS(1));
        c->watched->hold_release = false;
    }
}

/* The same pages go to another request as soon as they are back; later once more. */
static void use_again(struct cell *c)
{
    struct scene *s = &c->scene;

    if (!run(c, reuse_can_go, scene_now(s) + MS(500))) {
        scene_break(s, "no session for the next request");
        return;
    }
    c->reuse = same_pages(c, "reuse", PREFILL_1);
    if (!run(c, watched_is_over, scene_now(s) + MS(500))) {
        scene_break(s, "the source pages did not come back");
    }
}

static void come_to_rest(struct cell *c)
{
    struct scene *s = &c->scene;

    revive(c);
    cell_let_go(c, true);
    scene_wait(s, c->struck_at + c->fault->over_ns > scene_now(s)
                      ? c->struck_at + c->fault->over_ns - scene_now(s)
                      : 0);
    struct hlg_fault_stats stats;
    hlg_fault_stats(s->fault, &stats);
    if (c->fault->kind != 0 && stats.hits[c->fault->kind] == 0) {
        scene_break(s, "the fault did not strike");
        return;
    }
    hlg_fault_calm(s->fault);
    if (!run(c, all_over, scene_now(s) + MS(500))) {
        scene_break(s, "no rest");
        return;
    }
    must_be_ready(c, c->reuse);
    if (s->nodes[DECODE_0].draining[PREFILL_0]) {
        return; /* it takes no more */
    }
    c->again = same_pages(c, "again", PREFILL_0);
    if (!run(c, all_over, scene_now(s) + MS(50))) {
        scene_break(s, "no rest after the pages were used again");
    }
    must_be_ready(c, c->again);
    scene_wait(s, LEASE_NS + MS(20));
    if (!all_over(s) || hlg_loop_check(s->loop) != 0 || hlg_fault_check(s->fault) != 0) {
        scene_break(s, "no rest while nothing is asked");
    }
}

/* ---- What came of it ---------------------------------------------------------------------- */

static void say_target(const struct job *job, char *decode, char *pages)
{
    bool failed = job->target == TARGET_RETURNED || job->target == TARGET_POISONED;

    if (failed && job->retry_heard != 0) {
        (void)snprintf(decode, FIELD_BYTES, "failed(%s, retry in %u ms)", reasons[job->reason],
                       (unsigned)(job->retry_heard / HLG_NS_PER_MS));
    } else if (failed) {
        (void)snprintf(decode, FIELD_BYTES, "failed(%s)", reasons[job->reason]);
    } else {
        (void)snprintf(decode, FIELD_BYTES, "%s",
                       job->target == TARGET_RELEASED  ? "ready"
                       : job->target == TARGET_GONE    ? "gone"
                       : job->target == TARGET_REFUSED ? "refused"
                                                       : "open");
    }
    (void)snprintf(pages, FIELD_BYTES, "%s",
                   job->target == TARGET_RELEASED   ? "released"
                   : job->target == TARGET_RETURNED ? "returned"
                   : job->target == TARGET_POISONED ? "poisoned"
                   : job->target == TARGET_GONE     ? "gone"
                   : job->target == TARGET_REFUSED  ? "untouched"
                                                    : "kept");
}

static void say_source(const struct job_source *part, char *text)
{
    static const char *const names[] = {"unasked", "asked",    "admitted", "stopping", "sent",
                                        "fenced",  "poisoned", "rejected", "gone"};

    if (part->state == SOURCE_FENCED || part->state == SOURCE_POISONED) {
        (void)snprintf(text, FIELD_BYTES / 2, "%s(%s)", names[part->state], reasons[part->reason]);
    } else {
        (void)snprintf(text, FIELD_BYTES / 2, "%s", names[part->state]);
    }
}

static void say_other(const struct job *job, char *text)
{
    (void)snprintf(text, 12, "%s",
                   job->target == TARGET_RELEASED   ? "ready"
                   : job->target == TARGET_RETURNED ? "failed"
                   : job->target == TARGET_POISONED ? "poisoned"
                   : job->target == TARGET_GONE     ? "gone"
                                                    : "open");
}

/* Why the session of the two ended, as each saw it; a node that died saw nothing. */
static void say_session(const struct cell *c, char *text)
{
    const struct scene_node_state *nodes = c->scene.nodes;
    const uint32_t other = c->fault->split ? PREFILL_1 : PREFILL_0;
    uint32_t at_decode = nodes[DECODE_0].why[other];
    uint32_t at_prefill = nodes[other].why[DECODE_0];

    HLG_ASSERT(at_decode < sizeof whys / sizeof whys[0]);
    HLG_ASSERT(at_prefill < sizeof whys / sizeof whys[0]);
    if (at_decode == 0 && at_prefill == 0) {
        (void)snprintf(text, FIELD_BYTES, "up");
        return;
    }
    (void)snprintf(text, FIELD_BYTES, "%s/%s", nodes[DECODE_0].was_killed ? "-" : whys[at_decode],
                   nodes[other].was_killed ? "-" : whys[at_prefill]);
}

static void say(const struct cell *c, struct row *row)
{
    char part[2][FIELD_BYTES / 2];
    char other[3][12];

    say_target(c->watched, row->field[FIELD_DECODE], row->field[FIELD_PAGES]);
    say_source(&c->watched->sources[0], part[0]);
    say_source(&c->watched->sources[1], part[1]);
    (void)snprintf(row->field[FIELD_PREFILL], FIELD_BYTES, "%s%s%s", part[0],
                   c->fault->split ? "+" : "", c->fault->split ? part[1] : "");
    say_session(c, row->field[FIELD_SESSION]);
    say_other(c->mate, other[0]);
    say_other(c->far, other[1]);
    say_other(c->guest, other[2]);
    (void)snprintf(row->field[FIELD_OTHERS], FIELD_BYTES, "%s %s %s", other[0], other[1], other[2]);
    for (size_t i = 0; i < BOUNDS && c->phase != PHASE_READY; i++) {
        if (row->took <= bounds[i].ns) {
            (void)snprintf(row->field[FIELD_WITHIN], FIELD_BYTES, "%s", bounds[i].name);
            return;
        }
    }
    /* READY is released when the engine likes. */
    (void)snprintf(row->field[FIELD_WITHIN], FIELD_BYTES, "%s",
                   c->phase == PHASE_READY ? "-" : "never");
}

/* The request's TTL is over just after it reached the phase: found by reaching it once before. */
static hlg_time time_to_reach(const struct fault *fault, uint32_t phase, uint64_t seed)
{
    static struct cell c;

    c = (struct cell){.seed = seed,
                      .acknowledged = acknowledged,
                      .fault = fault,
                      .phase = phase,
                      .killed = HLG_NONE};
    cell_open(&c);
    hlg_time took = scene_now(&c.scene) - c.watched->submitted_at;
    scene_close(&c.scene);
    return took;
}

/* Returns NULL, or what was wrong. */
static const char *run_cell(const struct fault *fault, uint32_t phase, uint64_t seed, bool verbose,
                            struct row *row)
{
    static struct cell c;

    c = (struct cell){.seed = seed,
                      .acknowledged = acknowledged,
                      .fault = fault,
                      .phase = phase,
                      .killed = HLG_NONE};
    now_running = &c;
    if (fault->timed) {
        c.ttl_ns = time_to_reach(fault, phase, seed) + 1;
    }
    c.scene.verbose = verbose;
    cell_open(&c);
    strike(&c);
    if (!run(&c, watched_is_back, c.struck_at + MS(500))) {
        scene_break(&c.scene, "no end");
    }
    hlg_time settled = c.watched->settled_at;
    if (c.scene.broken[0] == '\0') {
        use_again(&c);
        row->took = settled - c.struck_at;
    }
    if (c.scene.broken[0] == '\0') {
        come_to_rest(&c);
    }
    say(&c, row);
    scene_close(&c.scene);
    return c.scene.broken[0] != '\0' ? c.scene.broken : NULL;
}

/* ---- The table ---------------------------------------------------------------------------- */

static const char *impossible(const struct fault *fault, uint32_t phase)
{
    /* The decorator places nothing twice where the first placement may be the later one. At `ready` the source
       may be done with the request. */
    if (acknowledged &&
        (fault->kind == HLG_FAULT_DUPLICATE ||
         (phase == PHASE_READY && strcmp(fault->name, "prefiller-gives-up") == 0))) {
        return "not where writes are acknowledged";
    }
    bool past = fault->limit != 0 && phase >= fault->limit;
    bool again = fault->again != 0 && phase >= fault->again;

    return phase < fault->from ? fault->before : past && !again ? fault->after : NULL;
}

static void make_row(const struct fault *fault, uint32_t phase, struct row *row)
{
    *row = (struct row){0};
    (void)snprintf(row->field[FIELD_FAULT], FIELD_BYTES, "%s", fault->name);
    (void)snprintf(row->field[FIELD_PHASE], FIELD_BYTES, "%s", phase_names[phase]);
}

static void write_line(const struct row *row, const char *reason, char *line)
{
    size_t used = 0;

    if (reason != NULL) {
        (void)snprintf(line, LINE_BYTES, "%s\t%s\t-\t%s", row->field[FIELD_FAULT],
                       row->field[FIELD_PHASE], reason);
        return;
    }
    for (uint32_t i = 0; i < FIELDS; i++) {
        int bytes =
            snprintf(line + used, LINE_BYTES - used, "%s%s", i > 0 ? "\t" : "", row->field[i]);
        HLG_ASSERT(bytes >= 0 && used + (size_t)bytes < LINE_BYTES);
        used += (size_t)bytes;
    }
}

/* The next line of the table that is not a comment; "" at its end. */
static void read_line(FILE *table, char *line)
{
    do {
        if (table == NULL || fgets(line, LINE_BYTES, table) == NULL) {
            line[0] = '\0';
            return;
        }
        line[strcspn(line, "\n")] = '\0';
    } while (line[0] == '#' || line[0] == '\0');
}

/* Where writes are acknowledged the source may be done sooner: what the decoder is told is the same. */
static void keep_decoder_alone(char *line)
{
    uint32_t fields = 0;

    for (char *at = line; *at != '\0'; at++) {
        fields += *at == '\t';
        if (fields > FIELD_PAGES) {
            *at = '\0';
            return;
        }
    }
}

/* Whether each field is the stated one: the alternative `which` where there are several. */
static bool agrees_with(const char *line, const char *stated, uint32_t which)
{
    for (;;) {
        size_t bytes = strcspn(line, "\t");
        const char *end = stated + strcspn(stated, "\t");
        for (uint32_t i = 0; memchr(stated, '|', (size_t)(end - stated)) != NULL && i < which;
             i++) {
            stated += strcspn(stated, "|") + 1;
        }
        if (strcspn(stated, "|\t") != bytes || memcmp(line, stated, bytes) != 0) {
            return false;
        }
        line += bytes;
        stated = end;
        if (*line == '\0' || *stated == '\0') {
            return *line == *stated;
        }
        line++;
        stated++;
    }
}

/* A stated field may have alternatives, `a|b`, where chance decides who is first: all such fields of a line have
 * the first, or all the second, ... */
static bool agrees(const char *line, const char *stated)
{
    for (uint32_t which = 0; which < ALTERNATIVES_MAX; which++) {
        if (agrees_with(line, stated, which)) {
            return true;
        }
    }
    return false;
}

struct options {
    const char *fault;
    const char *phase;
    uint64_t seed;
    bool table;
    bool verbose;
};

static bool is_wanted(const struct options *o, const struct row *row)
{
    return (o->fault == NULL || strcmp(o->fault, row->field[FIELD_FAULT]) == 0) &&
           (o->phase == NULL || strcmp(o->phase, row->field[FIELD_PHASE]) == 0);
}

static uint32_t look_at(const struct options *o, const struct fault *fault, uint32_t phase,
                        char *stated, uint32_t *run_count)
{
    static uint32_t told;
    struct row row;
    char line[LINE_BYTES];
    const char *reason = impossible(fault, phase);

    make_row(fault, phase, &row);
    if (!is_wanted(o, &row)) {
        return 0;
    }
    const char *broken = reason == NULL ? run_cell(fault, phase, o->seed, o->verbose, &row) : NULL;
    *run_count += reason == NULL;
    write_line(&row, reason, line);
    if (o->table) {
        printf("%s\n", line);
    }
    if (acknowledged) {
        keep_decoder_alone(line);
        keep_decoder_alone(stated);
    }
    if (broken == NULL && (agrees(line, stated) || (acknowledged && reason != NULL))) {
        return 0;
    }
    if (told++ == TOLD_MAX) {
        fprintf(stderr, "and more\n");
    }
    if (told > TOLD_MAX) {
        return 1;
    }
    if (broken != NULL) {
        fprintf(stderr, "%s at %s: %s\n", fault->name, phase_names[phase], broken);
    } else {
        fprintf(stderr, "%s at %s: the table states\n  %s\nand it was\n  %s\n", fault->name,
                phase_names[phase], stated, line);
    }
    return 1;
}

static const char help[] =
    "usage: halage-failures [--table] [--fault NAME] [--phase NAME] [--seed N]\n"
    "                       [--acknowledged] [--verbose]\n"
    "Let every fault strike at every phase of a request, and compare what came of it with\n"
    "tests/failure/matrix.tsv, which explains its columns and the words in them. Run it from the\n"
    "root of the sources, or set HALAGE_SOURCE_DIR.\n"
    "\n"
    "  --table       print a line for each cell: fault, phase, decode, pages, prefill, session,\n"
    "                others, within\n"
    "  --fault NAME  this fault alone\n"
    "  --phase NAME  this phase alone\n"
    "  --seed N      another seed of the fault decorator\n"
    "  --acknowledged\n"
    "                writes complete before they are placed; the table is the same\n"
    "  --verbose     tell what happens\n"
    "  --help        this text\n"
    "\n"
    "Exit status: 0 as stated, 1 not, 2 bad options.\n";

static int parse(int count, char **words, struct options *o)
{
    for (int i = 1; i < count; i++) {
        bool more = i + 1 < count;
        if (strcmp(words[i], "--table") == 0) {
            o->table = true;
        } else if (strcmp(words[i], "--verbose") == 0) {
            o->verbose = true;
        } else if (strcmp(words[i], "--acknowledged") == 0) {
            acknowledged = true;
        } else if (strcmp(words[i], "--fault") == 0 && more) {
            o->fault = words[++i];
        } else if (strcmp(words[i], "--phase") == 0 && more) {
            o->phase = words[++i];
        } else if (strcmp(words[i], "--seed") == 0 && more) {
            o->seed = strtoull(words[++i], NULL, 10);
        } else {
            fprintf(stderr, "halage-failures: %s is unknown, or lacks its value (see --help)\n",
                    words[i]);
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    const char *root = getenv("HALAGE_SOURCE_DIR");
    char path[1024];
    char stated[LINE_BYTES];
    uint32_t wrong = 0;
    uint32_t run_count = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        (void)fputs(help, stdout);
        return 0;
    }
    if (parse(argc, argv, &o) != 0) {
        return 2;
    }
    (void)snprintf(path, sizeof path, "%s/tests/failure/matrix.tsv", root != NULL ? root : ".");
    FILE *table = fopen(path, "r");
    if (table == NULL) {
        fprintf(stderr, "%s cannot be read: set HALAGE_SOURCE_DIR to the sources\n", path);
    }
    for (uint32_t f = 0; f < fault_count; f++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) {
            read_line(table, stated);
            wrong += look_at(&o, &faults[f], phase, stated, &run_count);
        }
    }
    if (run_count == 0) {
        fprintf(stderr, "halage-failures: no such fault, phase or cell; --table lists them\n");
        return 2;
    }
    read_line(table, stated);
    if (table == NULL || stated[0] != '\0') {
        fprintf(stderr, "the table is missing, or states more than there is: %s\n", stated);
        wrong++;
    }
    if (table != NULL) {
        (void)fclose(table);
    }
    printf("%u faults x %u phases: %u cells run, %u wrong\n", fault_count, PHASES, run_count,
           wrong);
    return wrong > 0;
}
