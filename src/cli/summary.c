#include "summary.h"

#include "cli.h"
#include "detail.h"
#include "options.h"

#include <halage/messenger.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BAR_CELLS   30u
#define BAR_NS      (100 * HLG_NS_PER_MS)
#define LABEL_WIDTH 12

/* What percentiles are taken of, in nanoseconds. */
struct sample {
    uint64_t *values; /* [count], ascending */
    uint32_t count;
};

enum measure {
    MEASURE_TTFT,     /* submit to first token */
    MEASURE_HANDOVER, /* end of the last forward to READY taken by the engine */
    MEASURE_EXPOSED,  /* end of the last forward to last piece counted */
    MEASURES,
};

struct totals {
    struct sample samples[MEASURES];
    uint64_t bytes;
    uint64_t pieces_counted;
    uint64_t pieces_expected;
    uint64_t tokens;
    uint64_t layers_early;
    uint64_t layers_late;
    uint64_t forwards;
    hlg_time forwards_ns;
    uint64_t pieces_posted;
    uint64_t poisoned;
    uint64_t again;
    uint64_t redials;
    bool prefill_known; /* its numbers are */
};

/* ---- Numbers ---- */

static int compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right ? 1 : 0;
}

/* later - earlier, 0 where it came the other way round. */
static uint64_t span(hlg_time earlier, hlg_time later)
{
    return later > earlier ? later - earlier : 0;
}

static void add_value(struct sample *sample, uint64_t value)
{
    sample->values[sample->count++] = value;
}

static void add_request(struct totals *totals, const struct traffic_request *request)
{
    if (request->state != TRAFFIC_VERIFIED && request->state != TRAFFIC_MISMATCHED) {
        return;
    }
    totals->bytes += request->bytes;
    totals->pieces_counted += request->pieces_counted;
    totals->pieces_expected += request->pieces_expected;
    add_value(&totals->samples[MEASURE_TTFT], span(request->submitted, request->first_token));
    if (request->forward_end == 0 || request->last_piece == 0) {
        return; /* nothing was moved, or the prefill node is elsewhere */
    }
    add_value(&totals->samples[MEASURE_HANDOVER], span(request->forward_end, request->ready));
    add_value(&totals->samples[MEASURE_EXPOSED], span(request->forward_end, request->last_piece));
}

/* Returns whether there was memory. Release with free_totals() in any case. */
static bool make_totals(const struct traffic *t, struct totals *totals)
{
    *totals = (struct totals){.prefill_known = t->fleet.prefill_count > 0};
    for (int i = 0; i < MEASURES; i++) {
        totals->samples[i].values = calloc(t->workload.count, sizeof(uint64_t));
        if (totals->samples[i].values == NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; i < t->workload.count; i++) {
        add_request(totals, &t->requests[i]);
        if (t->requests[i].state == TRAFFIC_VERIFIED) {
            totals->tokens += t->workload.requests[i].output_count;
        }
    }
    for (int i = 0; i < MEASURES; i++) {
        qsort(totals->samples[i].values, totals->samples[i].count, sizeof(uint64_t), compare_u64);
    }
    for (uint32_t i = 0; i < t->fleet.prefill_count; i++) {
        const struct member *prefill = &t->fleet.prefill[i];
        totals->prefill_known = totals->prefill_known && prefill->has_stats;
        totals->layers_early += prefill->stats.layers_early;
        totals->layers_late += prefill->stats.layers_late;
        totals->forwards += prefill->stats.forwards;
        totals->forwards_ns += prefill->stats.forwards_ns;
        totals->pieces_posted += prefill->stats.pieces_posted;
    }
    for (uint32_t i = 0; i < t->fleet.decode_count; i++) {
        totals->poisoned += t->fleet.decode[i].stats.requests_poisoned;
        totals->again += t->fleet.decode[i].stats.requests_again;
        totals->redials += t->fleet.decode[i].stats.redials;
    }
    return true;
}

static void free_totals(struct totals *totals)
{
    for (int i = 0; i < MEASURES; i++) {
        free(totals->samples[i].values);
    }
}

/* The nearest rank: the smallest value that at least `percent` of a hundred do not exceed. */
static double percentile_ms(const struct sample *sample, uint32_t percent)
{
    const uint64_t rank = ((uint64_t)sample->count * percent + 99) / 100;
    return (double)sample->values[rank == 0 ? 0 : rank - 1] / 1e6;
}

static double early_ratio(const struct totals *totals)
{
    const uint64_t layers = totals->layers_early + totals->layers_late;
    return layers == 0 ? 0.0 : (double)totals->layers_early / (double)layers;
}

/* 1234567 as "1,234,567". */
static const char *grouped(uint64_t value, char text[32])
{
    char digits[24];
    size_t at = 0;
    const int count = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            text[at++] = ',';
        }
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* ---- Before and while it runs ---- */

static uint32_t settled(const struct traffic *t)
{
    return t->verified + t->mismatched + t->failed;
}

static void clear_bar(const struct traffic *t)
{
    if (t->tty) {
        (void)fputs("\r\033[K", t->out);
    }
}

void summary_say(struct traffic *traffic, const char *format, ...)
{
    va_list arguments;
    clear_bar(traffic);
    (void)fflush(traffic->out);
    (void)fprintf(stderr, "%s: ", traffic->config.command);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    traffic->progress_due = 0; /* draw the bar again */
}

static void print_row(FILE *out, const char *label)
{
    (void)fprintf(out, "  %-*s", LABEL_WIDTH, label);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_fleet(const struct traffic *t)
{
    const struct node_config *node = &t->config.node;
    const uint32_t ranks = node->target_tp * node->target_dp;
    uint32_t processes = 2; /* this one and the oracle */
    for (uint32_t i = 0; i < t->fleet.decode_count; i++) {
        processes += t->fleet.decode[i].up.processes;
    }
    (void)fprintf(t->out, "%s: ", t->config.command);
    if (t->config.connect == NULL) {
        const uint32_t count = t->fleet.prefill_count;
        for (uint32_t i = 0; i < count; i++) {
            processes += t->fleet.prefill[i].up.processes;
        }
        (void)fprintf(t->out, "%" PRIu32 " prefill node%s of %" PRIu32 " rank%s, ", count,
                      plural(count), node->source_tp, plural(node->source_tp));
        if (node->sources > 1) {
            (void)fprintf(t->out, "each sending %" PRIu32 " of them, ",
                          hlg_div_exact(node->source_tp, node->sources));
        }
    } else {
        (void)fprintf(t->out, "prefill node at %s, ", t->config.connect);
    }
    (void)fprintf(
        t->out, "%" PRIu32 " decode node%s of %" PRIu32 " rank%s; %" PRIu32 " processes here\n",
        t->fleet.decode_count, plural(t->fleet.decode_count), ranks, plural(ranks), processes);
}

static void print_chunks(const struct traffic *t)
{
    const uint32_t tokens = t->config.node.chunk_tokens;
    print_row(t->out, "prefill");
    if (tokens == 0) {
        (void)fprintf(t->out, "whole prompts, as many a forward as fit\n");
    } else {
        (void)fprintf(t->out, "%" PRIu32 " tokens a forward, of several requests\n", tokens);
    }
}

void summary_begin(const struct traffic *t)
{
    const struct node_config *node = &t->config.node;
    const struct tlm_config *model = &node->model;
    const bool mla = model->attention == TLM_MLA;
    print_fleet(t);
    print_row(t->out, "model");
    (void)fprintf(t->out, "%s, %" PRIu32 " layers, %" PRIu32 " %s, hidden %" PRIu32 ", float32\n",
                  mla ? "MLA" : "GQA", model->layers, model->kv_heads,
                  mla ? "latent a token" : "KV heads", model->hidden);
    print_row(t->out, "cache");
    (void)fprintf(t->out, "pages of %" PRIu32 " token%s, %s, ", model->page_tokens,
                  plural(model->page_tokens), model->arrangement == TLM_NHD ? "NHD" : "HND");
    if (t->config.connect == NULL) { /* or only the prefill node knows */
        (void)fprintf(t->out, "TP %" PRIu32 " -> ", node->source_tp);
    }
    if (node->target_dp > 1) {
        (void)fprintf(t->out, "DP %" PRIu32 " x ", node->target_dp);
    }
    (void)fprintf(t->out, "TP %" PRIu32 "\n", node->target_tp);
    if (t->config.connect == NULL) {
        print_chunks(t);
    }
    print_row(t->out, "provider");
    const struct control_up *up = &t->fleet.decode[0].up;
    const char *why = strstr(up->why, "chosen by");
    (void)fprintf(t->out, "%s%s%s\n", up->provider, why == NULL ? "" : ", ",
                  why == NULL ? "" : why);
    if (node->cuda) {
        char memory[NODE_MEMORY_BYTES];
        node_config_memory(node, memory, sizeof memory);
        print_row(t->out, "memory");
        (void)fprintf(t->out, "%s\n", memory);
    }
    print_row(t->out, "requests");
    (void)fprintf(t->out, "%" PRIu32 ", %" PRIu32 " at a time, %s, seed %" PRIu64 "\n",
                  t->workload.count, t->config.in_flight,
                  t->config.trace == NULL ? "lengths drawn" : t->config.trace, t->workload.seed);
    (void)fflush(t->out);
}

static void draw_bar(const struct traffic *t, hlg_time now)
{
    const uint32_t done = settled(t);
    const uint32_t cells = (uint32_t)((uint64_t)done * BAR_CELLS / t->workload.count);
    (void)fputs("\r\033[K  [", t->out);
    for (uint32_t i = 0; i < BAR_CELLS; i++) {
        (void)fputc(i < cells ? '#' : '.', t->out);
    }
    (void)fprintf(t->out, "] %" PRIu32 "/%" PRIu32 "  verified %" PRIu32, done, t->workload.count,
                  t->verified);
    if (t->mismatched + t->failed > 0) {
        (void)fprintf(t->out, "  mismatched %" PRIu32 "  failed %" PRIu32, t->mismatched,
                      t->failed);
    }
    (void)fprintf(t->out, "  in flight %" PRIu32 "  %.1f s", t->in_flight,
                  (double)(now - t->begun) / 1e9);
    (void)fflush(t->out);
}

void summary_progress(struct traffic *t, hlg_time now)
{
    if (t->begun == 0 || t->ended != 0 || now < t->progress_due) {
        return;
    }
    t->progress_due = now + BAR_NS;
    if (t->tty) {
        draw_bar(t, now);
        return;
    }
    /* Four lines a run are enough for a log. Flooring: a quarter is told once it is full. */
    const uint32_t quarter = (uint32_t)((uint64_t)settled(t) * 4 / t->workload.count);
    if (quarter > t->progress_told && quarter < 4) {
        t->progress_told = quarter;
        (void)fprintf(t->out, "  %" PRIu32 " of %" PRIu32 " done, %" PRIu32 " verified, %.1f s\n",
                      settled(t), t->workload.count, t->verified, (double)(now - t->begun) / 1e9);
        (void)fflush(t->out);
    }
}

/* ---- At the end ---- */

static const struct {
    const char *label;
    const char *key;
    const char *meaning;
} measures[MEASURES] = {
    [MEASURE_TTFT] = {"ttft", "ttft_ms", "submit to first token"},
    [MEASURE_HANDOVER] = {"handover", "handover_ms", "last forward's end to READY"},
    [MEASURE_EXPOSED] = {"exposed", "exposed_transfer_ms", "last forward's end to last piece"},
};

static void print_measures(const struct traffic *t, const struct totals *totals)
{
    (void)fprintf(t->out, "\n  %-*s %9s %9s %9s\n", LABEL_WIDTH, "ms", "p50", "p90", "p99");
    for (int i = 0; i < MEASURES; i++) {
        const struct sample *sample = &totals->samples[i];
        if (sample->count > 0) {
            (void)fprintf(t->out, "  %-*s %9.2f %9.2f %9.2f   %s\n", LABEL_WIDTH, measures[i].label,
                          percentile_ms(sample, 50), percentile_ms(sample, 90),
                          percentile_ms(sample, 99), measures[i].meaning);
        }
    }
}

static void print_moved(const struct traffic *t, const struct totals *totals)
{
    char a[32];
    char b[32];
    print_row(t->out, "moved");
    (void)fprintf(t->out, "%s bytes; %s pieces counted", grouped(totals->bytes, a),
                  grouped(totals->pieces_counted, b));
    (void)fprintf(t->out, ", %s expected", grouped(totals->pieces_expected, a));
    if (totals->prefill_known) {
        (void)fprintf(t->out, ", %s writes", grouped(totals->pieces_posted, a));
    }
    (void)fputc('\n', t->out);
    if (totals->prefill_known && totals->layers_early + totals->layers_late > 0) {
        print_row(t->out, "overlap");
        (void)fprintf(t->out, "%.1f %% of layers were on their way before their forward ended\n",
                      100.0 * early_ratio(totals));
    }
}

void summary_end(struct traffic *t)
{
    struct totals totals;
    char text[32];
    const uint32_t sent = t->verified + t->mismatched + t->failed;
    clear_bar(t);
    if (!make_totals(t, &totals)) {
        free_totals(&totals);
        return;
    }
    (void)fputc('\n', t->out);
    print_row(t->out, t->interrupted ? "interrupted" : "done");
    (void)fprintf(t->out,
                  "%" PRIu32 " request%s in %.1f s: %" PRIu32 " verified, %" PRIu32
                  " mismatched, %" PRIu32 " failed\n",
                  sent, plural(sent), (double)(t->ended - t->begun) / 1e9, t->verified,
                  t->mismatched, t->failed);
    print_row(t->out, "verified");
    (void)fprintf(t->out, "%s tokens, each with its logits; every landed page and context\n",
                  grouped(totals.tokens, text));
    print_moved(t, &totals);
    if (totals.again + totals.redials > 0) {
        print_row(t->out, "again");
        (void)fprintf(
            t->out, "%" PRIu64 " request%s asked for once more, after %" PRIu64 " new session%s\n",
            totals.again, plural(totals.again), totals.redials, plural(totals.redials));
    }
    if (totals.samples[MEASURE_TTFT].count > 0) {
        print_measures(t, &totals);
    }
    (void)fflush(t->out);
    free_totals(&totals);
}

static json_t *make_percentiles(const struct sample *sample)
{
    if (sample->count == 0) {
        return json_null();
    }
    return json_pack("{s:f, s:f, s:f}", "p50", percentile_ms(sample, 50), "p90",
                     percentile_ms(sample, 90), "p99", percentile_ms(sample, 99));
}

static json_t *make_known(bool known, uint64_t value)
{
    return known ? json_integer((json_int_t)value) : json_null();
}

/* What each node that ended well says of its pages. NULL when there was no memory. */
static json_t *make_nodes(struct traffic *t)
{
    json_t *nodes = json_array();
    struct member *member = NULL;
    for (uint32_t i = 0; nodes != NULL && (member = fleet_member(&t->fleet, i)) != NULL; i++) {
        const struct control_stats *stats = &member->stats;
        if (!member->has_stats) {
            continue;
        }
        json_t *node = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "node", member->title, "pages",
            (json_int_t)stats->pages, "pages_free", (json_int_t)stats->pages_free, "pages_poisoned",
            (json_int_t)stats->pages_poisoned, "pages_touched", (json_int_t)stats->pages_touched,
            "requests_again", (json_int_t)stats->requests_again, "redials",
            (json_int_t)stats->redials, "pieces_posted", (json_int_t)stats->pieces_posted);
        if (json_array_append_new(nodes, node) != 0) {
            json_decref(nodes);
            nodes = NULL;
        }
    }
    return nodes;
}

/* A failed allocation within makes json_pack() fail in turn, by the NULL that it is handed. */
static json_t *make_root(struct traffic *t, const struct totals *totals)
{
    const bool layers = totals->prefill_known && totals->layers_early + totals->layers_late > 0;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:s, s:s, s:b, s:s?, s:o, s:o, s:o, s:o, "
        "s:o, "
        "s:o, s:I, "
        "s:I, "
        "s:b, s:f, s:o}",
        "requests", (json_int_t)settled(t), "completed", (json_int_t)t->verified + t->mismatched,
        "verified", (json_int_t)t->verified, "mismatched", (json_int_t)t->mismatched, "failed",
        (json_int_t)t->failed, "kv_bytes", (json_int_t)totals->bytes, "writes",
        make_known(totals->prefill_known, totals->pieces_posted), "pieces_counted",
        (json_int_t)totals->pieces_counted, "pieces_expected", (json_int_t)totals->pieces_expected,
        "provider", t->fleet.decode[0].up.provider, "memory", t->config.node.cuda ? "cuda" : "host",
        "staged", t->config.node.staged ? 1 : 0, "flush",
        t->config.node.cuda && !t->config.node.staged ? hlg_flush_name(t->config.node.flush) : NULL,
        measures[MEASURE_TTFT].key, make_percentiles(&totals->samples[MEASURE_TTFT]),
        measures[MEASURE_HANDOVER].key, make_percentiles(&totals->samples[MEASURE_HANDOVER]),
        measures[MEASURE_EXPOSED].key, make_percentiles(&totals->samples[MEASURE_EXPOSED]),
        "layers_early_ratio", layers ? json_real(early_ratio(totals)) : json_null(), "forwards",
        make_known(totals->prefill_known, totals->forwards), "forward_ms",
        totals->forwards > 0
            ? json_real((double)totals->forwards_ns / 1e6 / (double)totals->forwards)
            : json_null(),
        "constant_outputs", (json_int_t)t->constant, "requests_poisoned",
        (json_int_t)totals->poisoned, "interrupted", t->interrupted ? 1 : 0, "seconds",
        (double)(t->ended - t->begun) / 1e9, "nodes", make_nodes(t));
}

int summary_json(struct traffic *t)
{
    struct totals totals;
    const char *file = t->config.json_file;
    if (file == NULL) {
        return CLI_DONE;
    }
    json_t *root = make_totals(t, &totals) ? make_root(t, &totals) : NULL;
    if (root != NULL && t->config.detail && detail_add(t, root) != 0) {
        json_decref(root);
        root = NULL;
    }
    free_totals(&totals);
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");
    if (out == NULL) {
        (void)options_error(t->config.command, "--json: %s: cannot be opened: %s", file,
                            strerror(errno));
        json_decref(root);
        return CLI_FAILED;
    }
    bool good = root != NULL && json_dumpf(root, out, JSON_INDENT(1)) == 0;
    good = fputc('\n', out) != EOF && good;
    good = (out == stdout ? fflush(out) : fclose(out)) == 0 && good;
    json_decref(root);
    if (!good) {
        (void)options_error(t->config.command, "--json: %s: cannot be written", file);
        return CLI_FAILED;
    }
    return CLI_DONE;
}
