#include "report.h"

#include <inttypes.h>
#include <string.h>

#define NAME_WIDTH 22

uint64_t sim_report_steps(const struct sim_run *run, bool decode, uint64_t *beyond)
{
    uint64_t steps = 0;

    *beyond = 0;
    for (uint32_t i = 0; i < run->node_count; i++) {
        if (run->nodes[i].decode == decode) {
            steps += run->nodes[i].forwards;
            *beyond += run->nodes[i].beyond;
        }
    }
    return steps;
}

/* ---- Heading ---- */

static void engine_line(FILE *file, const char *role, uint32_t nodes,
                        const struct sim_engine *engine, const struct sim_run *run, uint32_t side)
{
    const struct sim_cost_basis *basis = &run->basis[side];
    uint64_t beyond = 0;
    const uint64_t steps = sim_report_steps(run, side == 1, &beyond);

    (void)fprintf(file,
                  "  %s: %" PRIu32 " x %" PRIu32 " %s, tp %" PRIu32 " dp %" PRIu32 " ep %" PRIu32
                  ", weights %s, kv %s\n",
                  role, nodes, engine->gpus, engine->gpu, engine->tp, engine->dp, engine->ep,
                  sim_dtype_name(engine->weights), sim_dtype_name(engine->kv));
    if (basis->own_times) {
        (void)fprintf(file, "    %s", basis->why);
    } else {
        (void)fprintf(file, "    %s%s%s, calibration %s", basis->engine,
                      engine->version[0] != '\0' ? ", asked for " : "", engine->version, basis->id);
    }
    (void)fprintf(file, "; %" PRIu64 " KV tokens a rank%s\n", run->kv_tokens[side],
                  engine->kv_tokens != 0 ? " (given)" : "");
    if (basis->why[0] != '\0' && !basis->own_times) {
        (void)fprintf(file, "    %s: %s\n", basis->extrapolated ? "EXTRAPOLATED" : "rests on",
                      basis->why);
    }
    if (beyond != 0) {
        (void)fprintf(file,
                      "    BEYOND what was measured: %.2f %% of its steps (%" PRIu64 " of %" PRIu64
                      "), whose times are extrapolated\n",
                      100 * (double)beyond / (double)steps, beyond, steps);
    }
}

static void heading(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                    const struct sim_metrics *metrics)
{
    const bool colocated = scenario->serving == SIM_SERVING_COLOCATED;

    (void)fprintf(file, "halage-sim %s: %s\n", sim_version(), scenario->name);
    if (scenario->question[0] != '\0') {
        (void)fprintf(file, "  question: %s\n", scenario->question);
    }
    (void)fprintf(file,
                  "  scenario %016" PRIx64 ", seed %" PRIu64 "; %s; %" PRIu32 " GPUs in all\n",
                  metrics->digest, scenario->seed, scenario->model.name, metrics->gpus);
    if (colocated) {
        engine_line(file, "co-located", scenario->colocated.nodes, &scenario->colocated.engine, run,
                    0);
        return;
    }
    engine_line(file, "prefill", scenario->prefill.nodes, &scenario->prefill.engine, run, 0);
    engine_line(file, "decode ", scenario->decode.nodes, &scenario->decode.engine, run, 1);
    (void)fprintf(file, "  network: %" PRIu32 " x %s a GPU%s%s\n", scenario->network.nics_per_gpu,
                  scenario->network.nic.name, run->folded ? ", folded" : "",
                  scenario->network.pod_nodes != 0 ? ", pods with uplinks" : "");
}

/* ---- Latencies ---- */

static void cell(FILE *file, double value, bool open)
{
    char text[32];
    const int digits = value < 100 ? 2 : value < 10000 ? 1 : 0;

    (void)snprintf(text, sizeof text, "%s%.*f", open ? ">=" : "", digits, value);
    (void)fprintf(file, " %10s", text);
}

static void summary_line(FILE *file, const char *name, const struct sim_summary *s)
{
    (void)fprintf(file, "%-*s", NAME_WIDTH, name);
    if (s->count == 0) {
        (void)fputs("          - no request has one\n", file);
        return;
    }
    if (s->mean_count == 0) {
        (void)fprintf(file, " %10s", "-");
    } else {
        cell(file, s->mean, false);
    }
    if (s->batches == 0) {
        (void)fprintf(file, " %9s", "-");
    } else {
        const double half = (s->high - s->low) / 2;
        (void)fprintf(file, " %9.*f", half < 100 ? 2 : 1, half);
    }
    cell(file, s->p50, s->p50_open);
    cell(file, s->p90, s->p90_open);
    cell(file, s->p99, s->p99_open);
    cell(file, s->max, s->max_open);
    (void)fputc('\n', file);
}

static void latency_table(FILE *file, const struct sim_metrics *metrics)
{
    (void)fprintf(file, "\n%-*s %10s %9s %10s %10s %10s %10s\n", NAME_WIDTH, "milliseconds", "mean",
                  "+-95%", "p50", "p90", "p99", "max");
    summary_line(file, "TTFT", &metrics->ttft_ms);
    for (uint32_t i = 0; i < SIM_TTFT_PARTS; i++) {
        char name[NAME_WIDTH];
        (void)snprintf(name, sizeof name, "  %s", sim_part_name(i));
        summary_line(file, name, &metrics->part_ms[i]);
    }
    summary_line(file, "TPOT (after first)", &metrics->tpot_ms);
    summary_line(file, "ITL (gaps, all)", &metrics->itl_ms);
    summary_line(file, "E2E / output tokens", &metrics->e2e_per_token_ms);
    summary_line(file, "E2E", &metrics->e2e_ms);
    (void)fprintf(file, "%-*s %10s %9s %10s %10s %10s %10s\n", NAME_WIDTH, "tokens/s", "mean",
                  "+-95%", "half >=", "90% >=", "99% >=", "slowest");
    summary_line(file, "speed of a user", &metrics->speed_tps);
}

/* ---- The rest ---- */

static void rates(FILE *file, const struct sim_metrics *m)
{
    (void)fprintf(file,
                  "\nrequests    %.3f/s arrive, %.3f/s finish, goodput %.3f/s (window %.1f s)\n",
                  m->arrival_rate, m->request_rate, m->goodput, m->window_s);
    (void)fprintf(file,
                  "tokens      output %.0f/s = %.1f/s a GPU, input %.0f/s = %.1f/s a GPU, over all "
                  "%" PRIu32 " GPUs\n",
                  m->output_tps, m->output_tps_per_gpu, m->input_tps, m->input_tps_per_gpu,
                  m->gpus);
}

static void use(FILE *file, const struct sim_scenario *scenario, const struct sim_metrics *m)
{
    if (scenario->serving == SIM_SERVING_COLOCATED) {
        (void)fprintf(file, "nodes       busy %.1f %%, KV %.1f %%", 100 * m->prefill_busy,
                      100 * m->prefill_kv);
    } else {
        (void)fprintf(
            file, "nodes       prefill busy %.1f %%, KV %.1f %%; decode busy %.1f %%, KV %.1f %%",
            100 * m->prefill_busy, 100 * m->prefill_kv, 100 * m->decode_busy, 100 * m->decode_kv);
    }
    (void)fprintf(file, "; batch %.1f a node\n", m->batch_mean);
    if (scenario->serving != SIM_SERVING_COLOCATED) {
        (void)fprintf(file,
                      "NICs        out %.1f %% (busiest %.1f %%), in %.1f %% (busiest %.1f %%)\n",
                      100 * m->nic_out, 100 * m->nic_out_max, 100 * m->nic_in, 100 * m->nic_in_max);
    }
    if (m->cached_share > 0) {
        (void)fprintf(file, "prefix      %.1f %% of the prompt tokens were cached\n",
                      100 * m->cached_share);
    }
}

static void slo(FILE *file, const struct sim_scenario *scenario, const struct sim_metrics *m)
{
    const double ms = (double)HLG_NS_PER_MS;

    (void)fputs("SLO        ", file);
    if (!m->slo) {
        (void)fputs(" none\n", file);
        return;
    }
    if (scenario->measure.slo_ttft_ns > 0) {
        (void)fprintf(file, " TTFT <= %.6g ms", scenario->measure.slo_ttft_ns / ms);
    }
    if (scenario->measure.slo_tpot_ns > 0) {
        (void)fprintf(file, "%s TPOT <= %.6g ms", scenario->measure.slo_ttft_ns > 0 ? "," : "",
                      scenario->measure.slo_tpot_ns / ms);
    }
    (void)fprintf(file, ": met by %.2f %% of requests (95 %%: %.2f to %.2f %%)\n",
                  100 * m->slo_share, 100 * m->slo_low, 100 * m->slo_high);
}

static void verdict(FILE *file, const struct sim_run *run, const struct sim_metrics *m)
{
    (void)fprintf(file,
                  "measured    %" PRIu32 ": %" PRIu32 " finished, %" PRIu32 " unfinished, %" PRIu32
                  " failed, %" PRIu32 " refused; %" PRIu32 " preemptions\n",
                  m->requests, m->finished, m->unfinished, m->failed, m->refused, m->preemptions);
    (void)fprintf(file, "limit       %s", m->limit);
    if (m->waiting_share > 0) {
        (void)fprintf(file, "; requests wait for pages or a slot %.0f %% of the time",
                      100 * m->waiting_share);
    }
    if (m->limit_batch > 0) {
        (void)fprintf(file, ": %s-limited at b=%.1f a node",
                      strstr(m->limit, "KV") != NULL ? "KV" : "slot", m->limit_batch);
    }
    (void)fputc('\n', file);
    if (m->requests == 0) {
        (void)fputs(
            "NOTHING     was measured: all requests arrive in the warm-up or after the window;\n"
            "            ask for more, or lower measure.warmup_requests or measure.warmup\n",
            file);
    }
    if (m->overloaded) {
        (void)fputs(
            "OVERLOADED  the queue grew all the time: latencies depend on how long it ran\n", file);
    }
    if (run->interrupted) {
        (void)fputs("INTERRUPTED what is told is what was known then\n", file);
    }
    if (m->unfinished + m->failed != 0) {
        (void)fputs("            unfinished and failed requests count in TTFT and E2E as at least "
                    "what they waited;\n            >= marks what is known as a lower bound only\n",
                    file);
    }
    if (m->ttft_ms.wide || m->tpot_ms.wide) {
        (void)fprintf(file, "run longer  the interval of the mean of%s%s%s is %s\n",
                      m->ttft_ms.wide ? " TTFT" : "",
                      m->ttft_ms.wide && m->tpot_ms.wide ? " and" : "",
                      m->tpot_ms.wide ? " TPOT" : "",
                      m->ttft_ms.batches == 0 ? "not known: fewer than 20 requests"
                                              : "wider than a tenth, or the run's parts differ");
    }
}

int sim_report_text(FILE *file, const struct sim_scenario *scenario, const struct sim_run *run,
                    const struct sim_metrics *metrics)
{
    heading(file, scenario, run, metrics);
    latency_table(file, metrics);
    rates(file, metrics);
    use(file, scenario, metrics);
    slo(file, scenario, metrics);
    verdict(file, run, metrics);
    return ferror(file) != 0 ? -HLG_EIO : 0;
}
