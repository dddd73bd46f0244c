/*
 * `halage perf run`: for each size and order a case, repeated; with --bare each repetition is a pair, the
 * core's and the bare loop's, first one first, then the other.
 */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_A_LOOK 64u
#define ANSWER_NS    (60 * HLG_NS_PER_S)
#define CHECK_NS     (600 * HLG_NS_PER_S) /* of 16 GiB, page by page out of a GPU */
#define JOIN_NS      (20 * HLG_NS_PER_S)
#define DIAL_NS      (5 * HLG_NS_PER_S)
#define STALL_NS     (60 * HLG_NS_PER_S) /* of one round beyond what it should take */
#define SOURCE_BYTES (32ull << 20)       /* that a request has at most, if one page is no larger */
#define LAYERS_USED  32u
#define PINGS_MIN    5u
#define PINGS_MAX    20000u
#define PROGRESS_NS  (2 * HLG_NS_PER_S)

struct bench {
    struct perf_arena arena;
    struct perf_end *end; /* NULL: closed */
    uint64_t count;       /* requests of a round */
};

struct runner {
    const struct perf_options *options;
    struct perf_session session;
    struct perf_result result;
    struct bench benches[PERF_BENCHES];
    uint64_t iteration;
    hlg_time told; /* progress, as the next ones */
    const char *doing;
    uint32_t done; /* rounds of the row */
    char error[PERF_ERROR_BYTES];
};

static int fail(struct runner *r, const char *sentence)
{
    if (sentence != r->error) {
        (void)snprintf(r->error, sizeof r->error, "%s", sentence);
    }
    return -HLG_EIO;
}

/* Says how far it is, now and then: `r->doing` of pages of `bytes`. */
static void tell(struct runner *r, uint32_t bytes)
{
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const hlg_time now = perf_now();

    if (now < r->told) {
        return;
    }
    r->told =
        now + (terminal ? PROGRESS_NS / 20 : PROGRESS_NS * 5); /* floor: a tenth of a second */
    (void)fprintf(stderr, terminal ? "\r\033[K%s: %u B, %s %u of %u" : "%s: %u B, %s %u of %u\n",
                  r->options->program, bytes, r->doing, r->done + 1, r->options->rounds);
}

static void tell_end(void)
{
    if (isatty(STDERR_FILENO) == 1) {
        (void)fputs("\r\033[K", stderr);
    }
}

/* ---- talking to the other side ---- */

static int wrong(struct runner *r, int got, const struct perf_message *message)
{
    return perf_session_wrong(got, message, r->error);
}

static void bench_close(struct runner *r, uint32_t index)
{
    struct bench *bench = &r->benches[index];
    struct perf_message message = {.kind = PERF_MESSAGE_END, .bench = index};

    perf_watch(r->options->program);
    if (bench->end != NULL) {
        /* The target first, or it would see its session end. After an error there is no answer. */
        if (perf_send(r->session.channel, &message) == 0) {
            (void)perf_await(r->session.channel, DIAL_NS, &message);
        }
        bench->end->ops->close(bench->end);
        bench->end = NULL;
    }
    perf_arena_close(&bench->arena);
}

/* Dials the serving side once for each peer. */
static int dial_peers(struct runner *r, struct perf_end *end, uint64_t token)
{
    struct perf_message hello = {.kind = PERF_MESSAGE_PEER, .token = token};
    struct hlg_channel *channel = NULL;

    for (uint32_t i = 0; i < end->arena->shape.peers; i++) {
        if (hlg_tcp_dial(r->session.address, DIAL_NS, PERF_FRAME_BYTES, &channel, r->error,
                         sizeof r->error) != 0) {
            return -HLG_EPEER;
        }
        (void)perf_send(channel, &hello); /* a channel that is over says so to the pump, too */
        if (perf_core_channel(end, channel) < 0) {
            return fail(r, end->error);
        }
    }
    return 0;
}

static int join(struct runner *r, uint32_t index, const struct perf_ready *other)
{
    struct perf_end *end = r->benches[index].end;
    struct perf_message message = {.kind = PERF_MESSAGE_READY, .bench = index, .ready = end->ready};
    const hlg_time limit = perf_now() + JOIN_NS;
    bool up = false;

    int rc = perf_send(r->session.channel, &message);
    if (rc == 0 && end->arena->shape.path == PERF_CORE) {
        rc = dial_peers(r, end, other->token);
    }
    if (rc != 0) {
        return rc == -HLG_EPEER && r->error[0] == '\0' ? wrong(r, rc, &message) : rc;
    }
    if (end->ops->join(end, other) < 0) {
        return fail(r, end->error);
    }
    while (!up || !end->ops->joined(end)) {
        if (end->ops->step(end) < 0) {
            return fail(r, end->error);
        }
        const int got = up ? 0 : perf_receive(r->session.channel, &message);
        if (got < 0 || (got == 1 && message.kind != PERF_MESSAGE_UP) || perf_interrupted()) {
            return wrong(r, got, &message);
        }
        up = up || got == 1;
        if (perf_now() > limit) {
            return fail(r, "the peers' sessions did not come up in time");
        }
    }
    return 0;
}

static int fill(struct runner *r, uint32_t index, bool plant)
{
    return perf_arena_fill(&r->benches[index].arena, r->iteration, plant) == 0
               ? 0
               : fail(r, "pages cannot be written to the memory");
}

static int bench_open(struct runner *r, uint32_t index, const struct perf_case *shape)
{
    struct bench *bench = &r->benches[index];
    struct perf_message message = {.kind = PERF_MESSAGE_CASE, .bench = index, .shape = *shape};

    int rc = perf_arena_open(shape, false, r->session.place.device, &bench->arena, r->error);
    rc = rc == 0 ? fill(r, index, false) : rc;
    rc = rc == 0 ? perf_send(r->session.channel, &message) : rc;
    rc = rc == 0
             ? perf_session_await(&r->session, PERF_MESSAGE_READY, ANSWER_NS, &message, r->error)
             : rc;
    if (rc == 0) {
        rc = perf_end_open(&bench->arena, false, &r->session.place, &bench->end, r->error);
    }
    return rc == 0 ? join(r, index, &message.ready) : rc;
}

/* Moves `count` requests to each peer, and says how long it took until both sides had all. */
static int go(struct runner *r, uint32_t index, uint64_t count, uint64_t iteration, hlg_time *span)
{
    struct perf_end *end = r->benches[index].end;
    struct perf_message message = {.kind = PERF_MESSAGE_GO, .bench = index};
    bool done = false;

    message.go.count = count;
    message.go.iteration = iteration;
    const hlg_time begun = perf_now();
    if (perf_send(r->session.channel, &message) != 0) {
        return wrong(r, -HLG_EPEER, &message);
    }
    end->ops->begin(end, count);
    for (uint32_t i = 1; !done || !end->ops->over(end); i++) {
        if (end->ops->step(end) < 0) {
            return fail(r, end->error);
        }
        if (i % STEPS_A_LOOK != 0) {
            continue;
        }
        perf_watch(r->options->program);
        tell(r, end->arena->shape.page_bytes);
        const int got = done ? 0 : perf_receive(r->session.channel, &message);
        if (got < 0 || (got == 1 && message.kind != PERF_MESSAGE_DONE) || perf_interrupted()) {
            return wrong(r, got, &message);
        }
        done = done || got == 1;
        if (perf_now() - begun > STALL_NS + r->options->span_ms * 10 * HLG_NS_PER_MS) {
            return fail(r, "no progress: is the serving side stopped?");
        }
    }
    *span = perf_now() - begun;
    perf_watch(NULL);
    return 0;
}

static uint64_t writes_of(const struct perf_case *shape, uint64_t requests)
{
    return requests * shape->pages * shape->layers * shape->peers;
}

/* A round whose bytes are looked at: of a pattern of its own. */
static int go_checked(struct runner *r, uint32_t index, struct perf_row *row, hlg_time *span)
{
    struct bench *bench = &r->benches[index];
    struct perf_message message;

    r->iteration++;
    int rc = fill(r, index, r->options->plant);
    rc = rc == 0 ? go(r, index, bench->count, r->iteration, span) : rc;
    perf_watch(NULL);
    rc = rc == 0 ? perf_session_await(&r->session, PERF_MESSAGE_DONE, CHECK_NS, &message, r->error)
                 : rc;
    if (rc == 0) {
        row->wrong += message.go.wrong;
        row->checked += writes_of(&bench->arena.shape, hlg_min_u64(PERF_SLOTS, bench->count)) *
                        bench->arena.shape.page_bytes;
    }
    return rc;
}

/* ---- cases ---- */

/* Connects, warms up, and learns how many requests fill a round. */
static int calibrate(struct runner *r, uint32_t index)
{
    struct bench *bench = &r->benches[index];
    const hlg_time wanted = r->options->span_ms * HLG_NS_PER_MS;
    hlg_time span = 0;

    r->doing = "before round";
    r->done = 0;
    int rc = go(r, index, 1, 0, &span);
    bench->count = 1;
    while (rc == 0 && bench->count < UINT32_MAX / 8) {
        rc = go(r, index, bench->count, 0, &span);
        if (rc != 0 || span > wanted / 8) {
            break;
        }
        bench->count *= 4;
    }
    if (rc == 0) {
        const uint64_t scaled = bench->count * wanted / hlg_max_u64(span, 1); /* floor: about */
        bench->count = hlg_min_u64(hlg_max_u64(scaled, 1), UINT32_MAX);
    }
    return rc;
}

static int round_of(struct runner *r, uint32_t index, struct perf_row *row, struct perf_rate *rate)
{
    struct bench *bench = &r->benches[index];
    hlg_time span = 0;

    const int rc = bench->arena.shape.check != 0 ? go_checked(r, index, row, &span)
                                                 : go(r, index, bench->count, 0, &span);
    *rate = (struct perf_rate){writes_of(&bench->arena.shape, bench->count), span};
    return rc;
}

/* All repetitions of a row; those that are done count, also if the next one is not. */
static int repeat(struct runner *r, struct perf_row *row)
{
    int rc = 0;

    while (rc == 0 && row->rounds < r->options->rounds && !perf_interrupted()) {
        struct perf_rate *const rates[] = {&row->core[row->rounds], &row->bare[row->rounds]};
        const uint32_t first = r->options->bare ? row->rounds % 2 : 0;

        r->doing = "round";
        r->done = row->rounds;
        rc = round_of(r, first, row, rates[first]);
        if (rc == 0 && r->options->bare) {
            rc = round_of(r, 1 - first, row, rates[1 - first]);
        }
        row->rounds += rc == 0;
    }
    return rc;
}

static void shape_case(const struct runner *r, uint32_t bytes, enum perf_order order,
                       struct perf_case *shape)
{
    const struct perf_options *o = r->options;
    const uint64_t fit = hlg_max_u64(1, SOURCE_BYTES / bytes); /* floor: whole pages */
    const uint32_t pages = o->pages != 0 ? o->pages : (uint32_t)hlg_min_u64(256, fit);
    const uint64_t layers = hlg_max_u64(1, SOURCE_BYTES / ((uint64_t)pages * bytes));

    *shape = (struct perf_case){
        .path = PERF_CORE,
        .order = (uint32_t)order,
        .page_bytes = bytes,
        .pages = pages,
        .layers = (uint32_t)hlg_min_u64(LAYERS_USED, layers), /* floor above: whole layers */
        .peers = o->peers,
        .rails = o->rails,
        .window = o->window,
        .check = o->check ? 1 : 0,
        .way = r->session.way,
    };
}

static int run_row(struct runner *r, struct perf_row *row)
{
    struct perf_case bare = row->shape;

    bare.path = PERF_BARE;
    bare.check = 0;
    int rc = bench_open(r, 0, &row->shape);
    if (rc == 0 && r->options->bare) {
        rc = bench_open(r, 1, &bare);
    }
    for (uint32_t i = 0; rc == 0 && i < (r->options->bare ? 2u : 1u); i++) {
        rc = calibrate(r, i);
    }
    rc = rc == 0 ? repeat(r, row) : rc;
    bench_close(r, 1);
    bench_close(r, 0);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const hlg_time left = *(const hlg_time *)a;
    const hlg_time right = *(const hlg_time *)b;

    return (left > right) - (left < right);
}

/* One way: half of a round trip, in order. */
static void sum_up(const struct perf_end *end, hlg_time latency[4])
{
    static const uint32_t percents[] = {50, 90, 99};
    const uint64_t count = end->sample_count;
    hlg_time sum = 0;

    qsort(end->samples, count, sizeof *end->samples, by_time);
    for (uint64_t i = 0; i < count; i++) {
        sum += end->samples[i];
    }
    latency[0] = sum / (2 * count); /* floor: below a nanosecond */
    for (uint32_t i = 0; i < 3; i++) {
        latency[1 + i] = end->samples[(count - 1) * percents[i] / 100] / 2; /* floor: lower rank */
    }
}

static int run_pings(struct runner *r, struct perf_row *row)
{
    struct perf_case shape = row->shape;
    hlg_time span = 0;

    shape.path = PERF_PING;
    if (shape.way.staged != 0) { /* a staged end either sends or is written to */
        shape.way.memory = HLG_MEMORY_HOST;
        shape.way.staged = 0;
    }
    shape.pages = 1;
    shape.layers = 1;
    shape.peers = 1;
    shape.rails = 1;
    shape.check = 0;
    int rc = bench_open(r, 0, &shape);
    rc = rc == 0 ? calibrate(r, 0) : rc;
    if (rc == 0) {
        const uint64_t count = hlg_max_u64(r->benches[0].count, PINGS_MIN);
        r->doing = "latency before round";
        rc = go(r, 0, hlg_min_u64(count, PINGS_MAX), 0, &span);
    }
    if (rc == 0) {
        sum_up(r->benches[0].end, row->latency_ns);
    }
    bench_close(r, 0);
    return rc;
}

static int run_size(struct runner *r, uint32_t bytes)
{
    const bool wanted[PERF_ORDERS] = {r->options->contiguous, r->options->scattered};
    const struct perf_row *before = NULL;
    int rc = 0;

    for (uint32_t order = 0; order < PERF_ORDERS && rc == 0; order++) {
        if (!wanted[order] || perf_interrupted()) {
            continue;
        }
        HLG_ASSERT(r->result.row_count < r->result.row_capacity);
        struct perf_row *row = &r->result.rows[r->result.row_count];
        *row = (struct perf_row){.rounds = 0};
        shape_case(r, bytes, (enum perf_order)order, &row->shape);
        if (before == NULL && r->options->latency) {
            rc = run_pings(r, row);
        } else if (before != NULL) {
            memcpy(row->latency_ns, before->latency_ns, sizeof row->latency_ns);
        }
        before = row;
        rc = rc == 0 ? run_row(r, row) : rc;
        tell_end();
        if (row->rounds > 0) {
            r->result.row_count++;
            perf_table_row(&r->result, row, perf_out(r->options));
            (void)fflush(perf_out(r->options));
        }
    }
    return rc;
}

static int finish(struct runner *r, int rc)
{
    uint64_t wrong = 0;
    int status = CLI_DONE;

    r->result.interrupted = perf_interrupted();
    perf_table_foot(&r->result, perf_out(r->options));
    if (rc != 0 && !r->result.interrupted) {
        (void)options_error(r->options->program, "%s", r->error);
        status = CLI_FAILED;
    }
    for (uint32_t i = 0; i < r->result.row_count; i++) {
        wrong += r->result.rows[i].wrong;
    }
    if (wrong > 0) {
        (void)options_error(r->options->program, "%llu bytes are wrong at the target",
                            (unsigned long long)wrong);
        status = CLI_FAILED;
    }
    const int json = perf_json(&r->result);
    const int tsv = perf_tsv(&r->result);
    const int written = json != CLI_DONE ? json : tsv;
    status = status == CLI_DONE ? written : status;
    if (status == CLI_DONE && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        (void)options_error(r->options->program, "the table cannot be printed");
        status = CLI_FAILED;
    }
    return status == CLI_DONE && r->result.interrupted ? CLI_INTERRUPTED : status;
}

int perf_run(const struct perf_options *options)
{
    struct runner *r = calloc(1, sizeof *r);
    struct perf_row *rows = calloc((size_t)PERF_ORDERS * options->size_count, sizeof *rows);
    int rc = 0;

    if (r == NULL || rows == NULL) {
        free(r);
        free(rows);
        (void)options_error(options->program, "out of memory");
        return CLI_FAILED;
    }
    perf_catch();
    r->options = options;
    const int opened = perf_session_open(options, &r->session);
    if (opened != 0) {
        free(r);
        free(rows);
        return opened;
    }
    r->result = (struct perf_result){
        .options = options, .rows = rows, .row_capacity = PERF_ORDERS * options->size_count};
    r->result.way = r->session.way;
    perf_table_head(&r->result, perf_out(options));
    (void)fflush(perf_out(options));
    for (uint32_t i = 0; i < options->size_count && rc == 0; i++) {
        if (perf_interrupted() || ferror(stdout) != 0) {
            break; /* nobody wants, or would read, the rest */
        }
        rc = run_size(r, options->sizes[i]);
    }
    const int status = finish(r, rc);
    perf_watch(NULL);
    perf_session_close(&r->session);
    free(rows);
    free(r);
    return status;
}
