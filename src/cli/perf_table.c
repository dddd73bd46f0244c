/* What was measured: a table for people, JSON and tab-separated lines for programs. */
#define _GNU_SOURCE /* gmtime_r */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <jansson.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const order_names[PERF_ORDERS] = {"contiguous", "scattered"};

/* What the columns say of a row. */
struct summary {
    uint64_t sent; /* writes of all rounds */
    double seconds;
    double us_a_write; /* median round, as the next two */
    double mops;
    double gb_a_second;
    double bare_mops;
    double ratio; /* of pairs: median, quarters; 0: none */
    double ratio_low;
    double ratio_high;
    double ratios[PERF_ROUNDS_MAX]; /* in order of pairs */
};

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return (left > right) - (left < right);
}

double perf_quantile(double *values, uint32_t count, double q)
{
    const double at = q * (double)(count - 1);
    const uint32_t low = (uint32_t)at; /* floor */
    const uint32_t high = hlg_min_u32(low + 1, count - 1);

    HLG_ASSERT(count > 0);
    return values[low] + (values[high] - values[low]) * (at - (double)low);
}

static double mops_of(const struct perf_rate *rate)
{
    return 1e3 * (double)rate->writes / (double)hlg_max_u64(rate->ns, 1);
}

static void sum_up(const struct perf_result *result, const struct perf_row *row, struct summary *s)
{
    double core[PERF_ROUNDS_MAX];
    double bare[PERF_ROUNDS_MAX];
    double sorted[PERF_ROUNDS_MAX];

    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < row->rounds; i++) {
        s->sent += row->core[i].writes;
        s->seconds += (double)row->core[i].ns / 1e9;
        core[i] = mops_of(&row->core[i]);
        bare[i] = result->options->bare ? mops_of(&row->bare[i]) : 0;
        s->ratios[i] = bare[i] > 0 ? core[i] / bare[i] : 0;
        sorted[i] = s->ratios[i];
    }
    qsort(core, row->rounds, sizeof core[0], by_value);
    qsort(bare, row->rounds, sizeof bare[0], by_value);
    qsort(sorted, row->rounds, sizeof sorted[0], by_value);
    s->mops = perf_quantile(core, row->rounds, 0.5);
    s->us_a_write = 1 / s->mops;
    s->gb_a_second = s->mops * row->shape.page_bytes / 1e3;
    s->bare_mops = perf_quantile(bare, row->rounds, 0.5);
    s->ratio = perf_quantile(sorted, row->rounds, 0.5);
    s->ratio_low = perf_quantile(sorted, row->rounds, 0.25);
    s->ratio_high = perf_quantile(sorted, row->rounds, 0.75);
}

/* "32m", as fabtests print sizes. */
static void print_bytes(uint64_t bytes, char *text, size_t capacity)
{
    static const char units[] = {'\0', 'k', 'm', 'g', 't'};
    uint32_t unit = 0;
    double shown = (double)bytes;

    while (shown >= 1024 && unit + 1 < sizeof units) {
        shown /= 1024;
        unit++;
    }
    (void)snprintf(text, capacity, shown < 10 && unit > 0 ? "%.1f%c" : "%.0f%c", shown,
                   units[unit]);
}

FILE *perf_out(const struct perf_options *options)
{
    return options->json_file != NULL && strcmp(options->json_file, "-") == 0 ? stderr : stdout;
}

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

void perf_table_head(const struct perf_result *result, FILE *out)
{
    const struct perf_options *o = result->options;

    (void)fprintf(out,
                  "provider %s, %u peer%s, %u rail%s, window %u, %s; %u %s%s of %u ms, "
                  "medians; writes go through the messenger's core\n",
                  result->way.provider, o->peers, plural(o->peers), o->rails, plural(o->rails),
                  o->window, perf_way_text(&result->way), o->rounds, o->bare ? "pair" : "round",
                  plural(o->rounds), o->span_ms);
    (void)fprintf(out, "%-10s %8s %8s %7s %8s %10s %10s %11s %8s", "order", "bytes", "#sent",
                  "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec", "B/W GB/s");
    if (o->latency) {
        (void)fprintf(out, " %9s %7s %7s %7s", "avg lat", "p50 us", "p90 us", "p99 us");
    }
    if (o->bare) {
        (void)fprintf(out, " %12s %7s %15s", "bare Mxf/sec", "ratio", "quarters");
    }
    (void)fputc('\n', out);
}

void perf_table_row(const struct perf_result *result, const struct perf_row *row, FILE *out)
{
    const struct perf_options *o = result->options;
    struct summary s;
    char sent[16];
    char total[16];

    sum_up(result, row, &s);
    print_bytes(s.sent, sent, sizeof sent);
    print_bytes(s.sent * row->shape.page_bytes, total, sizeof total);
    (void)fprintf(out, "%-10s %8u %8s %7s %7.2fs %10.2f %10.3f %11.4f %8.3f",
                  order_names[row->shape.order], row->shape.page_bytes, sent, total, s.seconds,
                  s.gb_a_second * 1e3, s.us_a_write, s.mops, s.gb_a_second);
    if (o->latency && row->latency_ns[0] > 0) {
        for (uint32_t i = 0; i < 4; i++) {
            (void)fprintf(out, i == 0 ? " %9.2f" : " %7.2f", (double)row->latency_ns[i] / 1e3);
        }
    } else if (o->latency) {
        (void)fprintf(out, " %9s %7s %7s %7s", "-", "-", "-", "-");
    }
    if (o->bare) {
        (void)fprintf(out, " %12.4f %7.3f [%.3f, %.3f]%s", s.bare_mops, s.ratio, s.ratio_low,
                      s.ratio_high, s.ratio < 1 ? " loses" : "");
    }
    if (row->wrong > 0) {
        (void)fprintf(out, " WRONG: %llu bytes", (unsigned long long)row->wrong);
    }
    (void)fputc('\n', out);
}

void perf_table_foot(const struct perf_result *result, FILE *out)
{
    const struct perf_options *o = result->options;
    uint64_t checked = 0;
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < result->row_count; i++) {
        checked += result->rows[i].checked;
        wrong += result->rows[i].wrong;
    }
    if (o->latency) {
        (void)fprintf(
            out,
            "latency: one way, half of a write with an immediate there and one back, over "
            "the transport%s\n",
            o->staged ? ", of host memory" : "");
    }
    if (o->bare) {
        (void)fputs(
            "ratio: halage's rate over the bare libfabric loop's, median of pairs; quarters: "
            "between the first and the third\n",
            out);
    }
    if (o->check) {
        (void)fprintf(out, "check: %llu bytes looked at, %llu wrong\n", (unsigned long long)checked,
                      (unsigned long long)wrong);
    }
    if (result->interrupted) {
        (void)fputs("interrupted: the last row is partial, and later ones are missing\n", out);
    }
    (void)fflush(out);
}

/* ---- JSON ---- */

static json_t *make_row(const struct perf_result *result, const struct perf_row *row)
{
    struct summary s;

    sum_up(result, row, &s);
    json_t *made =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "order",
                  order_names[row->shape.order], "bytes", (json_int_t)row->shape.page_bytes,
                  "rounds", (json_int_t)row->rounds, "sent", (json_int_t)s.sent, "total_bytes",
                  (json_int_t)(s.sent * row->shape.page_bytes), "seconds", s.seconds,
                  "mb_per_second", s.gb_a_second * 1e3, "us_per_xfer", s.us_a_write,
                  "mxfers_per_second", s.mops, "gb_per_second", s.gb_a_second, "checked_bytes",
                  (json_int_t)row->checked, "wrong_bytes", (json_int_t)row->wrong);
    if (made != NULL && row->latency_ns[0] > 0) {
        const hlg_time *ns = row->latency_ns;
        (void)json_object_set_new(made, "latency_us",
                                  json_pack("{s:f, s:f, s:f, s:f}", "avg", (double)ns[0] / 1e3,
                                            "p50", (double)ns[1] / 1e3, "p90", (double)ns[2] / 1e3,
                                            "p99", (double)ns[3] / 1e3));
    }
    if (made != NULL && result->options->bare) {
        json_t *ratios = json_array();
        for (uint32_t i = 0; i < row->rounds; i++) {
            (void)json_array_append_new(ratios, json_real(s.ratios[i]));
        }
        (void)json_object_set_new(made, "bare_mxfers_per_second", json_real(s.bare_mops));
        (void)json_object_set_new(made, "ratio",
                                  json_pack("{s:f, s:f, s:f, s:o}", "median", s.ratio, "q1",
                                            s.ratio_low, "q3", s.ratio_high, "pairs", ratios));
    }
    return made;
}

static json_t *make_root(const struct perf_result *result)
{
    const struct perf_options *o = result->options;
    json_t *rows = json_array();

    for (uint32_t i = 0; i < result->row_count; i++) {
        (void)json_array_append_new(rows, make_row(result, &result->rows[i]));
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:s, s:b, s:i, s:b, s:b, s:b, s:o}", "provider",
                     result->way.provider, "peers", (int)o->peers, "rails", (int)o->rails, "window",
                     (int)o->window, "memory", o->cuda ? "cuda" : "host", "staged", o->staged,
                     "round_ms", (int)o->span_ms, "bare", o->bare, "check", o->check, "interrupted",
                     result->interrupted, "rows", rows);
}

/* "-" is the standard output. */
static FILE *open_output(const struct perf_options *o, const char *option, const char *file,
                         const char *mode)
{
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, mode);

    if (out == NULL) {
        (void)options_error(o->program, "%s: %s: cannot be opened: %s", option, file,
                            strerror(errno));
    }
    return out;
}

static int close_output(const struct perf_options *o, const char *option, const char *file,
                        FILE *out, bool good)
{
    good = (out == stdout ? fflush(out) : fclose(out)) == 0 && good;
    if (!good) {
        (void)options_error(o->program, "%s: %s: cannot be written", option, file);
    }
    return good ? CLI_DONE : CLI_FAILED;
}

int perf_json(const struct perf_result *result)
{
    const struct perf_options *o = result->options;

    if (o->json_file == NULL) {
        return CLI_DONE;
    }
    FILE *out = open_output(o, "--json", o->json_file, "w");
    if (out == NULL) {
        return CLI_FAILED;
    }
    json_t *root = make_root(result);
    const bool good =
        root != NULL && json_dumpf(root, out, JSON_INDENT(1)) == 0 && fputc('\n', out) != EOF;
    json_decref(root);
    return close_output(o, "--json", o->json_file, out, good);
}

/* ---- TSV ---- */

/* "AMD EPYC 7R13, 2 CPUs" of this machine. */
static void name_machine(char *text, size_t capacity)
{
    char line[256];
    char model[128] = "unknown processor";
    FILE *in = fopen("/proc/cpuinfo", "r");

    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        if (sscanf(line, "model name : %127[^\n]", model) == 1) {
            break;
        }
    }
    if (in != NULL) {
        (void)fclose(in);
    }
    (void)snprintf(text, capacity, "%s, %ld CPUs", model, sysconf(_SC_NPROCESSORS_ONLN));
}

/* "-" for what was not measured. */
static void put_cell(FILE *out, bool known, int digits, double value)
{
    if (known) {
        (void)fprintf(out, "\t%.*f", digits, value);
    } else {
        (void)fputs("\t-", out);
    }
}

/* Adds to the file: one provider's lines after the other's. */
int perf_tsv(const struct perf_result *result)
{
    const struct perf_options *o = result->options;
    struct timespec now = {0};
    char machine[192];
    char date[16] = "";
    struct tm utc;
    struct summary s;

    if (o->tsv_file == NULL) {
        return CLI_DONE;
    }
    FILE *out = open_output(o, "--write", o->tsv_file, "a");
    if (out == NULL) {
        return CLI_FAILED;
    }
    name_machine(machine, sizeof machine);
    if (clock_gettime(CLOCK_REALTIME, &now) == 0 && gmtime_r(&now.tv_sec, &utc) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%d", &utc);
    }
    (void)fprintf(out, "# %s, %s: provider %s, %u peer%s, %u rail%s, window %u, %s, %u x %u ms\n",
                  date, machine, result->way.provider, o->peers, plural(o->peers), o->rails,
                  plural(o->rails), o->window, perf_way_text(&result->way), o->rounds, o->span_ms);
    (void)fputs(
        "provider\torder\tbytes\tmxfers_per_second\tgb_per_second\tlatency_p50_us\t"
        "latency_p90_us\tlatency_p99_us\tbare_mxfers_per_second\tratio\tratio_q1\tratio_q3\n",
        out);
    for (uint32_t i = 0; i < result->row_count; i++) {
        const struct perf_row *row = &result->rows[i];
        sum_up(result, row, &s);
        (void)fprintf(out, "%s\t%s\t%u\t%.4f\t%.4f", result->way.provider,
                      order_names[row->shape.order], row->shape.page_bytes, s.mops, s.gb_a_second);
        for (uint32_t quantile = 1; quantile < 4; quantile++) {
            put_cell(out, row->latency_ns[0] > 0, 2, (double)row->latency_ns[quantile] / 1e3);
        }
        put_cell(out, o->bare, 4, s.bare_mops);
        put_cell(out, o->bare, 3, s.ratio);
        put_cell(out, o->bare, 3, s.ratio_low);
        put_cell(out, o->bare, 3, s.ratio_high);
        (void)fputc('\n', out);
    }
    return close_output(o, "--write", o->tsv_file, out, ferror(out) == 0);
}
