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

/* Shares since the sample before are of both halves: dropping one would leave means of half the time. The
 * busiest NIC may be another one in each half; then its share is an upper bound. */
static struct sim_sample join(const struct sim_sample *first, const struct sim_sample *second)
{
    struct sim_sample both = *second;

    both.prefill_busy = (first->prefill_busy + second->prefill_busy) / 2;
    both.nic_out = (first->nic_out + second->nic_out) / 2;
    both.nic_out_max = (first->nic_out_max + second->nic_out_max) / 2;
    both.nic_in = (first->nic_in + second->nic_in) / 2;
    both.nic_in_max = (first->nic_in_max + second->nic_in_max) / 2;
    return both;
}

static void halve(struct cluster *c)
{
    struct sim_sample *series = c->run->series;

    for (uint32_t i = 0; i < SIM_SERIES_MAX / 2; i++) {
        series[i] = join(&series[2 * i], &series[2 * i + 1]);
    }
    c->run->series_count = SIM_SERIES_MAX / 2;
    c->pace *= 2;
}

/* What a node's NICs have moved, out of a prefill node and into a decode node. */
static void add_nics(const struct node *n, uint64_t *flows, uint64_t *bytes, double *busy_ns)
{
    const struct cluster *c = n->cluster;
    uint32_t side = n->decode ? 1 : 0;
    uint32_t rails = c->scenario->network.nics_per_gpu;
    uint32_t count = hlg_layout_lanes(&c->layouts[cluster_kind(n)]) * rails;
    struct hlg_simgrid_nic_stats stats;

    for (uint32_t nic = 0; nic < count; nic++) {
        int error = hlg_simgrid_nic_stats(c->net, n->index, nic / rails, nic % rails, &stats);
        HLG_ASSERT(error == 0);
        *flows += stats.flows;
        *bytes += stats.bytes[side];
        *busy_ns += (double)stats.busy_ns[side];
    }
}

/* Time with a forward or step running, up to now. */
static double busy_of(const struct node *n)
{
    hlg_time running = n->busy_since == HLG_TIME_NEVER ? 0 : n->cluster->now - n->busy_since;

    return n->totals.busy_ns + (double)running;
}

static void add_mixed(struct node *n, struct sim_sample *sample, double span)
{
    struct cluster *c = n->cluster;
    double nodes = c->prefills;

    for (uint32_t rank = 0; n->alive && rank < n->ranks; rank++) {
        sample->prefill_queue += sim_mixed_waiting(n->mixed.mixed, rank);
        sample->decode_running += sim_mixed_running(n->mixed.mixed, rank);
    }
    sample->prefill_queue += n->mixed.queue.count;
    double busy = busy_of(n);
    float kv = (float)((double)n->pages_used / (double)n->totals.kv_pages / nodes);
    sample->prefill_kv += kv;
    sample->decode_kv += kv;
    sample->prefill_busy += (float)((busy - n->busy_sampled) / span / nodes);
    n->busy_sampled = busy;
}

static void add_node(struct node *n, struct sim_sample *sample, double span)
{
    struct cluster *c = n->cluster;
    double nodes = n->decode ? c->decodes : c->prefills;
    double busy = busy_of(n);
    double bandwidth = c->scenario->network.nic.bandwidth * n->totals.nics;
    uint64_t flows = 0;
    uint64_t bytes = 0;
    double nic_busy_ns = 0;

    add_nics(n, &flows, &bytes, &nic_busy_ns);
    float nic = (float)((double)(bytes - n->bytes_sampled) / (bandwidth * span * 1e-9));
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
        if (c->colocated) {
            add_mixed(&c->nodes[i], &sample, span);
        } else {
            add_node(&c->nodes[i], &sample, span);
        }
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
}

void sample_batch(struct cluster *c, struct node *n)
{
    struct sim_batch_totals totals = {0};
    struct sim_gaps gaps = {0};

    sim_batch_totals(n->decoder.batch, &totals);
    sim_batch_gaps(n->decoder.batch, &gaps);
    sim_gaps_merge(&c->run->gaps, &gaps);
    n->totals.forwards += totals.steps;
    n->totals.beyond += totals.beyond;
    n->totals.tokens_out += totals.tokens;
}

/* A folded node's NIC stands for one of each rank. */
static void sum_nics(struct node *n)
{
    const struct cluster *c = n->cluster;

    add_nics(n, &c->run->flows, &n->totals.bytes, &n->totals.nic_busy_ns);
    n->totals.nic_busy_ns *= c->fold.on ? c->fold.scale[cluster_kind(n)] : 1;
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
        } else if (n->alive && c->colocated) {
            mixed_sum(n);
        }
        if (!c->colocated) {
            sum_nics(n);
        }
    }
}
