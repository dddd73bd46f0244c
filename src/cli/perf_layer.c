/*
 * `halage perf layer`: the whole way of a layer, through messengers. This side is a prefill node whose engine is
 * a thread that stamps the counter word, layer after layer, at a pause; the other side a decode node. Timed
 * are a stamp until the layer's first write is handed to the transport (seen by a decorator of the fabric), and
 * the last stamp until the source has all of it back and the target's engine knows.
 */
#define _GNU_SOURCE /* sched_setaffinity */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <jansson.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM_UPS  2u
#define WAIT_NS   (30 * HLG_NS_PER_S)
#define ENDPOINTS 8u

enum span {
    SPAN_HANDED = 0, /* stamp to the call of the layer's first write */
    SPAN_POSTED,     /* to its return */
    SPAN_SENT,       /* last stamp to the report SENT */
    SPAN_READY,      /* to READY at the target; one host only */
    SPANS,
};

/* What the decorator saw. Written by the core thread until SENT, read by the engine after. */
struct spy {
    struct hlg_fabric fabric; /* first */
    struct hlg_fabric *below;
    struct hlg_transport *transports[ENDPOINTS];
    const struct hlg_transport_ops *ops[ENDPOINTS];
    struct hlg_transport_ops patched[ENDPOINTS];
    uint32_t count;
    uint64_t layer_bytes;
    uint64_t bytes;  /* taken so far; not pieces, since pages that follow one another come merged */
    uint64_t layers; /* of all forwards */
    hlg_time *handed; /* [layers] */
    hlg_time *posted; /* [layers] */
};

struct layer_run {
    const struct perf_options *options;
    struct perf_session *session;
    struct perf_case shape;
    struct spy spy;
    struct perf_node node;
    hlg_time *stamps; /* [layers of all forwards] */
    _Atomic uint32_t word;
    hlg_ticket waiting;   /* requested, not yet admitted; 0: none */
    double *spans[SPANS]; /* us */
    uint32_t counts[SPANS];
    char error[PERF_ERROR_BYTES];
};

static struct spy *spying; /* the one that there is */

static int64_t spy_write(struct hlg_transport *t, const struct hlg_paged_write *write)
{
    struct spy *s = spying;
    uint32_t i = 0;

    while (s->transports[i] != t) {
        i++;
    }
    const uint64_t layer = s->bytes / s->layer_bytes; /* floor: layers go one after the other */
    const bool first = s->bytes % s->layer_bytes == 0 && layer < s->layers;
    const hlg_time before = perf_now();
    const int64_t taken = s->ops[i]->write(t, write);
    if (first && taken > 0) {
        s->handed[layer] = before;
        s->posted[layer] = perf_now();
    }
    s->bytes += taken > 0 ? (uint64_t)taken * write->bytes : 0;
    return taken;
}

static int spy_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                    struct hlg_transport **out)
{
    struct spy *s = (struct spy *)fabric;

    const int rc = s->below->open(s->below, lane, rail, out);
    if (rc == 0) {
        HLG_ASSERT(s->count < ENDPOINTS); /* one peer, one rail, no second session */
        s->transports[s->count] = *out;
        s->ops[s->count] = (*out)->ops;
        s->patched[s->count] = *(*out)->ops;
        s->patched[s->count].write = spy_write;
        (*out)->ops = &s->patched[s->count];
        s->count++;
    }
    return rc;
}

static void spy_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    const struct spy *s = (const struct spy *)fabric;

    s->below->query(s->below, caps);
}

static hlg_time spy_now(struct hlg_fabric *fabric)
{
    struct spy *s = (struct spy *)fabric;

    return s->below->now(s->below);
}

static int spy_prepare(struct hlg_fabric *fabric, const struct hlg_mem_region *region, char *error,
                       size_t error_bytes)
{
    struct spy *s = (struct spy *)fabric;

    return s->below->prepare(s->below, region, error, error_bytes);
}

static int fail(struct layer_run *r, const char *sentence)
{
    (void)snprintf(r->error, sizeof r->error, "%.180s", sentence);
    return -HLG_EIO;
}

/* ---- the prefill node ---- */

static int open_node(struct layer_run *r, bool core)
{
    const char *ip = r->session->place.node;
    const bool v6 = strchr(ip, ':') != NULL;
    char listen[HLG_TCP_NAME_BYTES];
    struct hlg_messenger_config config;

    int rc = perf_node_open(&r->node, HLG_ROLE_PREFILL, &r->shape, &r->session->place,
                            r->options->insecure, &config, r->error);
    if (rc != 0) {
        return rc;
    }
    r->spy.below = r->node.fabric.top;
    r->spy.fabric =
        (struct hlg_fabric){.open = spy_open,
                            .query = spy_query,
                            .now = spy_now,
                            .rails = 1,
                            .prepare = r->spy.below->prepare != NULL ? spy_prepare : NULL,
                            .flusher = r->spy.below->flusher};
    (void)snprintf(listen, sizeof listen, v6 ? "[%s]:0" : "%s:0", ip);
    config.fabric = &r->spy.fabric;
    config.listen = listen;
    config.cpu = r->options->cpu;
    config.counter_core = core;
    config.counter_ns = 0; /* a thread that polls does nothing else */
    rc = perf_node_start(&r->node, &config, &r->word, r->error);
    (void)snprintf(r->shape.address, sizeof r->shape.address, v6 ? "[%s]:%d" : "%s:%d", ip,
                   rc == 0 ? hlg_messenger_port(r->node.messenger) : 0);
    return rc;
}

/* The next report of that kind; others pass by, unless something went wrong. */
static int next_report(struct layer_run *r, uint32_t kind, struct hlg_report *report)
{
    const hlg_time limit = perf_now() + WAIT_NS;

    while (perf_now() < limit && perf_node_report(&r->node, WAIT_NS, report) == 1) {
        if (report->kind == kind) {
            return 0;
        }
        if (report->kind == HLG_NOTICE_REQUESTED) {
            r->waiting = report->ticket; /* the target is faster than the source's own end */
        } else if (report->kind == HLG_NOTICE_PEER_DOWN) {
            return fail(r, "the session with the serving side ended");
        } else if (report->kind != HLG_NOTICE_PEER_UP) {
            (void)snprintf(r->error, sizeof r->error, "a request failed: %s %.100s",
                           hlg_error_text(report->error), report->text);
            return -HLG_EIO;
        }
    }
    return perf_interrupted() ? -HLG_ECANCELED : fail(r, "no request came in time");
}

static void pause_until(hlg_time when)
{
    const struct timespec at = {.tv_sec = (time_t)(when / HLG_NS_PER_S), /* floor: whole seconds */
                                .tv_nsec = (long)(when % HLG_NS_PER_S)};

    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* Stamps all layers of a forward pass, as its device would. */
static void compute(struct layer_run *r, uint32_t forward, hlg_time *stamps)
{
    hlg_time next = perf_now();

    for (uint32_t layer = 0; layer < r->shape.layers; layer++) {
        next += r->options->layer_us * 1000ull;
        pause_until(next);
        stamps[layer] = perf_now();
        /* release: the word's reader sees the layer's bytes */
        atomic_store_explicit(&r->word, forward << 8 | (layer + 1), memory_order_release);
    }
    pause_until(next + r->options->layer_us * 1000ull);
}

static void add(struct layer_run *r, enum span span, hlg_time from, hlg_time to)
{
    r->spans[span][r->counts[span]++] = (double)(to - hlg_min_time(from, to)) / 1e3;
}

static int one_forward(struct layer_run *r, uint32_t index)
{
    const uint32_t layers = r->shape.layers;
    hlg_time *stamps = r->stamps + (uint64_t)index * layers;
    struct hlg_report report;
    struct perf_message message;
    struct hlg_admit admit = {.size = sizeof admit};

    admit.groups[0] = (struct hlg_page_list){.count = r->shape.pages, .pages = r->node.arena.pages};
    report.ticket = r->waiting;
    int rc = r->waiting != 0 ? 0 : next_report(r, HLG_NOTICE_REQUESTED, &report);
    if (rc != 0) {
        return rc;
    }
    const hlg_ticket ticket = report.ticket;
    r->waiting = 0;
    rc = hlg_messenger_admit(r->node.messenger, ticket, &admit);
    rc =
        rc == 0 ? hlg_messenger_chunk(r->node.messenger, ticket, index + 1, 0, r->shape.pages) : rc;
    if (rc < 0) {
        return fail(r, hlg_error_text(rc));
    }
    compute(r, index + 1, stamps);
    rc = hlg_messenger_forward_end(r->node.messenger, index + 1);
    rc = rc == 0 ? next_report(r, HLG_NOTICE_SENT, &report) : fail(r, hlg_error_text(rc));
    const hlg_time sent = report.noticed;
    rc = rc == 0 ? hlg_messenger_release(r->node.messenger, ticket) : rc;
    rc = rc == 0 ? perf_session_await(r->session, PERF_MESSAGE_DONE, WAIT_NS, &message, r->error)
                 : rc;
    for (uint32_t i = 0; rc == 0 && index >= WARM_UPS && i < layers; i++) {
        const uint64_t layer = (uint64_t)index * layers + i;
        add(r, SPAN_HANDED, stamps[i], r->spy.handed[layer]);
        add(r, SPAN_POSTED, stamps[i], r->spy.posted[layer]);
    }
    if (rc == 0 && index >= WARM_UPS) {
        add(r, SPAN_SENT, stamps[layers - 1], sent);
    }
    if (rc == 0 && index >= WARM_UPS && r->options->local) {
        add(r, SPAN_READY, stamps[layers - 1], message.go.ready_ns);
    }
    return rc;
}

static int run_forwards(struct layer_run *r)
{
    const uint32_t forwards = r->options->forwards + WARM_UPS;
    struct perf_message message = {.kind = PERF_MESSAGE_CASE, .shape = r->shape};

    int rc = perf_send(r->session->channel, &message);
    rc =
        rc == 0 ? perf_session_await(r->session, PERF_MESSAGE_UP, WAIT_NS, &message, r->error) : rc;
    message = (struct perf_message){.kind = PERF_MESSAGE_GO};
    message.go.count = forwards;
    rc = rc == 0 ? perf_send(r->session->channel, &message) : rc;
    for (uint32_t i = 0; rc == 0 && i < forwards && !perf_interrupted(); i++) {
        rc = one_forward(r, i);
    }
    return rc;
}

/* ---- what came out ---- */

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return (left > right) - (left < right);
}

static json_t *show(struct layer_run *r, const char *placement)
{
    static const char *const names[SPANS] = {"stamp to write called", "stamp to write posted",
                                             "last stamp to source done",
                                             "last stamp to target ready"};
    static const char *const keys[SPANS] = {"handed_us", "posted_us", "sent_us", "ready_us"};
    FILE *out = perf_out(r->options);
    json_t *made = json_pack("{s:s}", "counters", placement);

    for (uint32_t span = 0; span < SPANS; span++) {
        const uint32_t count = r->counts[span];
        double *values = r->spans[span];
        if (count == 0) {
            continue;
        }
        qsort(values, count, sizeof *values, by_value);
        const double p50 = perf_quantile(values, count, 0.5);
        const double p90 = perf_quantile(values, count, 0.9);
        const double p99 = perf_quantile(values, count, 0.99);
        (void)fprintf(out, "%-8s %-27s %7u %9.2f %9.2f %9.2f %9.2f\n", placement, names[span],
                      count, p50, p90, p99, values[count - 1]);
        (void)json_object_set_new(made, keys[span],
                                  json_pack("{s:i, s:f, s:f, s:f, s:f}", "count", (int)count, "p50",
                                            p50, "p90", p90, "p99", p99, "max", values[count - 1]));
    }
    (void)fflush(out);
    return made;
}

static void free_run(struct layer_run *r)
{
    perf_node_close(&r->node);
    for (uint32_t span = 0; span < SPANS; span++) {
        free(r->spans[span]);
    }
    free(r->spy.handed);
    free(r->spy.posted);
    free(r->stamps);
    free(r);
}

static bool allocate(struct layer_run *r)
{
    const uint64_t layers = (uint64_t)(r->options->forwards + WARM_UPS) * r->shape.layers;
    bool good = true;

    r->spy.layers = layers;
    r->spy.layer_bytes = (uint64_t)r->shape.pages * r->shape.page_bytes;
    r->spy.handed = calloc(layers, sizeof *r->spy.handed);
    r->spy.posted = calloc(layers, sizeof *r->spy.posted);
    r->stamps = calloc(layers, sizeof *r->stamps);
    for (uint32_t span = 0; span < SPANS; span++) {
        r->spans[span] = calloc(layers, sizeof *r->spans[span]);
        good = good && r->spans[span] != NULL;
    }
    return good && r->spy.handed != NULL && r->spy.posted != NULL && r->stamps != NULL;
}

static int run_placement(const struct perf_options *options, struct perf_session *session,
                         bool core, json_t *rows)
{
    struct layer_run *r = calloc(1, sizeof *r);

    if (r == NULL) {
        (void)options_error(options->program, "out of memory");
        return CLI_FAILED;
    }
    r->options = options;
    r->session = session;
    r->shape = (struct perf_case){.path = PERF_LAYER,
                                  .page_bytes = options->page_bytes,
                                  .pages = options->pages,
                                  .layers = options->layers,
                                  .peers = 1,
                                  .rails = 1,
                                  .window = options->window,
                                  .way = session->way};
    spying = &r->spy;
    int rc = allocate(r) ? 0 : fail(r, "out of memory");
    rc = rc == 0 ? open_node(r, core) : rc;
    rc = rc == 0 ? run_forwards(r) : rc;
    (void)json_array_append_new(rows, show(r, core ? "core" : "thread"));
    if (rc != 0 && !perf_interrupted()) {
        (void)options_error(options->program, "%s", r->error);
    }
    free_run(r);
    return rc == 0 ? CLI_DONE : perf_interrupted() ? CLI_INTERRUPTED : CLI_FAILED;
}

/* Leaves a CPU to the core thread: nobody else of ours, the serving child included, runs there. */
static bool leave_cpu(const struct perf_options *options)
{
    cpu_set_t cpus;

    if (options->cpu < 0) {
        return true;
    }
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || options->cpu >= CPU_SETSIZE ||
        !CPU_ISSET((size_t)options->cpu, &cpus) || CPU_COUNT(&cpus) < 2) {
        (void)options_error(options->program,
                            "--cpu: %d: not a processor that may be used here, or the only one",
                            options->cpu);
        return false;
    }
    CPU_CLR((size_t)options->cpu, &cpus);
    return sched_setaffinity(0, sizeof cpus, &cpus) == 0;
}

static int write_json(const struct perf_options *options, const struct perf_way *way, json_t *rows)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:O}", "provider", way->provider, "memory",
        options->cuda ? "cuda" : "host", "staged", way->staged != 0, "page_bytes",
        (int)options->page_bytes, "pages", (int)options->pages, "layers", (int)options->layers,
        "forwards", (int)options->forwards, "layer_us", (int)options->layer_us, "rows", rows);
    const char *file = options->json_file;

    if (file == NULL) {
        json_decref(root);
        return CLI_DONE;
    }
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");
    bool good = out != NULL && root != NULL && json_dumpf(root, out, JSON_INDENT(1)) == 0 &&
                fputc('\n', out) != EOF;
    good = out != NULL && (out == stdout ? fflush(out) : fclose(out)) == 0 && good;
    json_decref(root);
    if (!good) {
        (void)options_error(options->program, "--json: %s: cannot be written: %s", file,
                            strerror(errno));
    }
    return good ? CLI_DONE : CLI_FAILED;
}

int perf_layer(const struct perf_options *options)
{
    struct perf_session session;
    json_t *rows = json_array();
    int status = CLI_DONE;

    perf_catch();
    const int opened = leave_cpu(options) ? perf_session_open(options, &session) : CLI_BAD_INPUT;
    if (opened != 0) {
        json_decref(rows);
        return opened;
    }
    (void)fprintf(
        perf_out(options),
        "provider %s, %s, %u forwards of %u layers, a layer of %u pages of %u B each %u us; "
        "times in us\n%-8s %-27s %7s %9s %9s %9s %9s\n",
        session.way.provider, perf_way_text(&session.way), options->forwards, options->layers,
        options->pages, options->page_bytes, options->layer_us, "counters", "from, to", "#", "p50",
        "p90", "p99", "max");
    if (options->core) {
        status = run_placement(options, &session, true, rows);
    }
    if (options->thread && status == CLI_DONE) {
        status = run_placement(options, &session, false, rows);
    }
    const int written = write_json(options, &session.way, rows);
    json_decref(rows);
    perf_session_close(&session);
    if (status == CLI_DONE && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        (void)options_error(options->program, "the table cannot be printed");
        status = CLI_FAILED;
    }
    return status != CLI_DONE ? status : written;
}
