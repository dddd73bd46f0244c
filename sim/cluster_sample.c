/* Integrals over time, and the series: samples at a pace that doubles when there are too many. */
#include "cluster_internal.h"

void sample_open(struct cluster *c)
{
    c->run->sequence_ns += (double)c->open * (double)(c->now - c->open_since);
    c->open_since = c->now;
}

void sample_pages(struct node *n)
{
    n->totals.kv_page_ns += (double)n->pages_used * (double)(n->cluster->now - n->pages_since);
    n->pages_since = n->cluster->now;
}

void sample_pages_after(struct node *n)
{
    n->pages_used = 0;
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        n->pages_used += sim_pages_used(n->pages[rank]);
    }
}

void sample_busy(struct node *n, bool busy)
{
    hlg_time now = n->cluster->now;

    if (n->busy_since != HLG_TIME_NEVER) {
        n->totals.busy_ns += (double)(now - n->busy_since);
    }
    n->busy_since = busy ? now : HLG_TIME_NEVER;
}

/* ---- the series --------------------------------------------------------------------------- */

static void halve(struct cluster *c)
{
    for (uint32_t i = 0; i < SIM_SERIES_MAX / 2; i++) {
        c->run->series[i] = c->run->series[2 * i + 1];
    }
    c->run->series_count = SIM_SERIES_MAX / 2;
    c->pace *= 2;
}

/* Bytes that a node's NICs have moved. */
static double bytes_of(const struct node *n)
{
    struct hlg_pump_stats stats = {0};

    if (n->decode || n->pump == NULL) {
        return (double)n->totals.bytes;
    }
    hlg_pump_stats(n->pump, &stats);
    return (double)n->totals.bytes + (double)stats.bytes_posted;
}

static void add_node(struct node *n, struct sim_sample *sample, double span)
{
    struct cluster *c = n->cluster;
    double nodes = n->decode ? c->decodes : c->prefills;
    double busy = n->totals.busy_ns;
    double bandwidth = c->scenario->network.nic.bandwidth * n->totals.nics;
    double bytes = bytes_of(n);

    busy += n->busy_since == HLG_TIME_NEVER ? 0 : (double)(c->now - n->busy_since);
    float nic = (float)((bytes - n->bytes_sampled) / (bandwidth * span * 1e-9));
    float kv = (float)((double)n->pages_used / (double)n->totals.kv_pages / nodes);
    for (uint32_t rank = 0; n->alive && n->decode && rank < n->ranks; rank++) {
        sample->decode_running += sim_batch_running(n->decoder.batch, rank);
        sample->decode_waiting += n->decoder.queues[rank].count;
    }
    for (uint32_t rank = 0; n->alive && !n->decode && rank < n->ranks; rank++) {
        sample->prefill_queue += n->prefill.queues[rank].count;
    }
    if (n->decode) {
        sample->decode_kv += kv;
        sample->nic_in += nic / (float)nodes;
        sample->nic_in_max = nic > sample->nic_in_max ? nic : sample->nic_in_max;
    } else {
        sample->prefill_kv += kv;
        sample->prefill_busy += (float)((busy - n->busy_sampled) / span / nodes);
        sample->nic_out += nic / (float)nodes;
        sample->nic_out_max = nic > sample->nic_out_max ? nic : sample->nic_out_max;
    }
    n->busy_sampled = busy;
    n->bytes_sampled = bytes;
}

void sample_take(struct cluster *c)
{
    struct sim_sample sample = {.at = c->now};
    double span = (double)(c->now - c->sampled_at);

    if (c->run->series_count == SIM_SERIES_MAX) {
        halve(c);
    }
    for (uint32_t i = 0; i < c->node_count; i++) {
        add_node(&c->nodes[i], &sample, span);
    }
    c->run->series[c->run->series_count++] = sample;
    c->sampled_at = c->now;
    heap_put(c, (struct event){.at = hlg_time_after(c->now, c->pace), .kind = EVENT_SAMPLE});
}

/* ---- sums --------------------------------------------------------------------------------- */

void sample_stats(struct cluster *c, struct node *n)
{
    struct hlg_pump_stats stats = {0};

    hlg_pump_stats(n->pump, &stats);
    c->run->messages += stats.frames_sent;
    c->run->bytes_posted += stats.bytes_posted;
    if (!n->decode) {
        n->totals.bytes += stats.bytes_posted;
    }
}

void sample_batch(struct cluster *c, struct node *n)
{
    struct sim_batch_totals totals = {0};
    struct sim_gaps gaps = {0};

    sim_batch_totals(n->decoder.batch, &totals);
    sim_batch_gaps(n->decoder.batch, &gaps);
    sim_gaps_merge(&c->run->gaps, &gaps);
    n->totals.forwards += totals.steps;
    n->totals.tokens_out += totals.tokens;
}

void sample_end(struct cluster *c)
{
    sample_open(c);
    for (uint32_t i = 0; i < c->node_count; i++) {
        struct node *n = &c->nodes[i];
        sample_pages(n);
        sample_busy(n, false);
        if (n->alive && n->decode) {
            sample_batch(c, n);
        }
    }
}
