#include "output.h"
#include "report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TRACK_REQUESTS 2u /* and all above */

struct sim_trace {
    const struct sim_scenario *scenario;
    struct sim_output output;
    FILE *file; /* of `output` */
    uint32_t nodes;
    uint32_t *tracks;       /* [nodes] named so far, of each */
    struct sim_span *spans; /* [span_count] of requests: they get their lanes at the end */
    size_t span_count;
    size_t span_capacity;
    bool no_memory;
};

static void node_name(const struct sim_scenario *scenario, uint32_t node, char *text,
                      size_t capacity)
{
    const uint32_t prefill = scenario->prefill.nodes;

    if (scenario->serving == SIM_SERVING_COLOCATED) {
        (void)snprintf(text, capacity, "node %" PRIu32, node);
    } else if (node < prefill) {
        (void)snprintf(text, capacity, "prefill %" PRIu32, node);
    } else {
        (void)snprintf(text, capacity, "decode %" PRIu32, node - prefill);
    }
}

static void free_trace(struct sim_trace *trace)
{
    free(trace->spans);
    free(trace->tracks);
    free(trace);
}

int sim_trace_open(const char *path, const struct sim_scenario *scenario, struct sim_trace **trace,
                   char *text, size_t capacity)
{
    const uint32_t nodes = scenario->serving == SIM_SERVING_COLOCATED
                               ? scenario->colocated.nodes
                               : scenario->prefill.nodes + scenario->decode.nodes;
    struct sim_trace *t = calloc(1, sizeof *t);

    if (t == NULL || (t->tracks = calloc(nodes, sizeof *t->tracks)) == NULL) {
        free(t);
        (void)snprintf(text, capacity, "%s: no memory for a trace", path);
        return -HLG_ENOMEM;
    }
    t->scenario = scenario;
    t->nodes = nodes;
    const int error = sim_output_open(path, &t->output, text, capacity);
    if (error != 0) {
        free_trace(t);
        return error;
    }
    t->file = t->output.file;
    (void)fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", t->file);
    for (uint32_t i = 0; i < nodes; i++) {
        char name[32];
        node_name(scenario, i, name, sizeof name);
        (void)fprintf(t->file,
                      "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRIu32
                      ",\"tid\":0,\"args\":{\"name\":\"%s\"}},\n"
                      "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%" PRIu32
                      ",\"tid\":0,\"args\":{\"sort_index\":%" PRIu32 "}}",
                      i == 0 ? "" : ",\n", i, name, i, i);
    }
    *trace = t;
    return 0;
}

/* A track gets its name when it is first used: tracks of a node are few, and used from 0 upward. */
static void name_tracks(struct sim_trace *trace, uint32_t node, uint32_t track)
{
    while (trace->tracks[node] <= track) {
        const uint32_t next = trace->tracks[node]++;
        char name[32];
        if (next < 2) {
            (void)snprintf(name, sizeof name, "%s", next == 0 ? "engine" : "network");
        } else {
            (void)snprintf(name, sizeof name, "requests %" PRIu32, next - 2);
        }
        (void)fprintf(trace->file,
                      ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRIu32
                      ",\"tid\":%" PRIu32 ",\"args\":{\"name\":\"%s\"}}",
                      node, next, name);
    }
}

static void write_span(struct sim_trace *trace, const struct sim_span *span)
{
    const hlg_time length = span->end - span->begin;

    name_tracks(trace, span->node, span->track);
    (void)fprintf(trace->file,
                  ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
                  ",\"ts\":%" PRIu64 ".%03" PRIu64 ",\"dur\":%" PRIu64 ".%03" PRIu64
                  ",\"args\":{\"value\":%" PRIu64,
                  span->name, span->node, span->track, span->begin / 1000, span->begin % 1000,
                  length / 1000, length % 1000, span->value);
    if (span->request != HLG_NONE) {
        (void)fprintf(trace->file, ",\"request\":%" PRIu32, span->request);
    }
    (void)fputs("}}", trace->file);
}

void sim_trace_span(void *context, const struct sim_span *span)
{
    struct sim_trace *trace = context;

    HLG_ASSERT(span->node < trace->nodes && span->begin <= span->end);
    if (span->track < TRACK_REQUESTS) {
        write_span(trace, span);
        return;
    }
    if (trace->span_count == trace->span_capacity) {
        const size_t capacity = trace->span_capacity == 0 ? 1024 : 2 * trace->span_capacity;
        struct sim_span *grown = realloc(trace->spans, capacity * sizeof *grown);
        if (grown == NULL) {
            trace->no_memory = true;
            return;
        }
        trace->spans = grown;
        trace->span_capacity = capacity;
    }
    trace->spans[trace->span_count++] = *span;
}

/* ---- Lanes: requests of a node that overlap get threads of their own ---- */

static int compare_owners(const void *a, const void *b)
{
    const struct sim_span *left = a;
    const struct sim_span *right = b;

    if (left->node != right->node) {
        return left->node < right->node ? -1 : 1;
    }
    if (left->request != right->request) {
        return left->request < right->request ? -1 : 1;
    }
    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->end > right->end ? -1 : left->end < right->end; /* the outer one first */
}

/* All spans of one request on one node. */
struct stay {
    uint32_t node;
    uint32_t lane;
    hlg_time begin;
    hlg_time end;
    size_t first; /* span */
    size_t count;
};

static int compare_stays(const void *a, const void *b)
{
    const struct stay *left = a;
    const struct stay *right = b;

    if (left->node != right->node) {
        return left->node < right->node ? -1 : 1;
    }
    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->first < right->first ? -1 : 1;
}

static size_t list_stays(const struct sim_trace *trace, struct stay *stays)
{
    size_t count = 0;

    for (size_t i = 0; i < trace->span_count; i++) {
        const struct sim_span *span = &trace->spans[i];
        if (i == 0 || span->node != span[-1].node || span->request != span[-1].request) {
            stays[count++] = (struct stay){.node = span->node, .begin = span->begin, .first = i};
        }
        struct stay *stay = &stays[count - 1];
        stay->end = span->end > stay->end ? span->end : stay->end;
        stay->count++;
    }
    return count;
}

/* The first lane that is free, by a tree of the least end of each pair of lanes: a lane is found in the
 * logarithm of their number, and lanes are as many as stays at most. */
static void give_lanes(struct stay *stays, size_t count, hlg_time *tree, size_t leaves)
{
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || stays[i].node != stays[i - 1].node) {
            memset(tree, 0, 2 * leaves * sizeof *tree);
        }
        size_t at = 1;
        while (at < leaves) {
            at = 2 * at + (tree[2 * at] > stays[i].begin);
        }
        HLG_ASSERT(tree[at] <= stays[i].begin);
        stays[i].lane = hlg_u32(at - leaves);
        for (tree[at] = stays[i].end; at > 1; at /= 2) {
            tree[at / 2] = hlg_min_time(tree[at], tree[at ^ 1]);
        }
    }
}

static bool write_requests(struct sim_trace *trace)
{
    size_t leaves = 1;
    struct stay *stays = calloc(trace->span_count + 1, sizeof *stays);

    if (stays == NULL) {
        return false;
    }
    if (trace->span_count != 0) {
        qsort(trace->spans, trace->span_count, sizeof *trace->spans, compare_owners);
    }
    const size_t count = list_stays(trace, stays);
    while (leaves < count + 1) {
        leaves *= 2;
    }
    hlg_time *tree = calloc(2 * leaves, sizeof *tree);
    if (tree == NULL) {
        free(stays);
        return false;
    }
    qsort(stays, count, sizeof *stays, compare_stays);
    give_lanes(stays, count, tree, leaves);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < stays[i].count; k++) {
            struct sim_span *span = &trace->spans[stays[i].first + k];
            span->track = TRACK_REQUESTS + stays[i].lane;
            write_span(trace, span);
        }
    }
    free(tree);
    free(stays);
    return true;
}

static void trailer(struct sim_trace *trace, const struct sim_run *run)
{
    json_t *other = json_pack("{ss ss ss sb ss ss}", "version", sim_version(), "calibration",
                              run->basis[0].id, "engine", run->basis[0].engine, "extrapolated",
                              run->basis[0].extrapolated || run->basis[1].extrapolated, "name",
                              trace->scenario->name, "why", run->basis[0].why);
    char digest[17];

    (void)snprintf(digest, sizeof digest, "%016" PRIx64, sim_scenario_digest(trace->scenario));
    (void)fputs("\n],\"otherData\":", trace->file);
    if (other != NULL) {
        (void)json_object_set_new(other, "scenario_digest", json_string(digest));
        (void)json_dumpf(other, trace->file, JSON_COMPACT);
        json_decref(other);
    } else {
        (void)fputs("{}", trace->file);
    }
    (void)fputs("}\n", trace->file);
}

int sim_trace_close(struct sim_trace *trace, const struct sim_run *run, char *text, size_t capacity)
{
    int error = 0;

    if (trace->no_memory || !write_requests(trace)) {
        (void)snprintf(text, capacity, "%s: no memory for the trace; run fewer requests",
                       trace->output.target);
        sim_output_abandon(&trace->output);
        error = -HLG_EIO;
    } else {
        trailer(trace, run);
        error = sim_output_close(&trace->output, text, capacity);
    }
    free_trace(trace);
    return error;
}

void sim_trace_abandon(struct sim_trace *trace)
{
    sim_output_abandon(&trace->output);
    free_trace(trace);
}
