/*
 * The flows of a tape in a bare loop over SimGrid: callbacks, a queue for each pair of NICs, and the
 * times at which the flows were posted.
 */
#include "bench.h"
#include "sgx.h"

#include <stdlib.h>

struct queue {
    uint32_t head; /* flows; HLG_NONE: empty */
    uint32_t tail;
};

struct bare {
    const struct tape *tape;
    uint32_t nics;
    struct queue *queues; /* [nics][nics] */
    uint32_t *next;       /* of each flow, in its queue */
    uint32_t *numbers;    /* flow of each number that SimGrid knows, one for each queue */
    uint64_t ended;
};

static void begin(struct bare *b, uint32_t queue)
{
    const uint32_t flow = b->queues[queue].head;
    const struct flow *f = &b->tape->flows[flow];

    b->numbers[queue] = flow;
    HLG_ASSERT(sgx_flow(queue, f->source, f->target, f->bytes) == 0);
}

static void post(struct bare *b, uint32_t flow)
{
    const struct flow *f = &b->tape->flows[flow];
    const uint32_t index = f->source * b->nics + f->target;
    struct queue *queue = &b->queues[index];

    b->next[flow] = HLG_NONE;
    if (queue->head != HLG_NONE) {
        b->next[queue->tail] = flow;
        queue->tail = flow;
        return;
    }
    *queue = (struct queue){flow, flow};
    begin(b, index);
}

static void end(struct bare *b, uint32_t index)
{
    struct queue *queue = &b->queues[index];

    queue->head = b->next[b->numbers[index]];
    b->ended++;
    if (queue->head != HLG_NONE) {
        begin(b, index);
    }
}

static void run_to(struct bare *b, double when)
{
    int ended;

    do {
        ended = sgx_run(when);
        HLG_ASSERT(ended >= 0);
        for (uint32_t i = 0; i < (uint32_t)ended; i++) {
            end(b, sgx_ended(i));
        }
    } while (ended > 0);
}

void bare_run(const struct options *options, const struct tape *tape, struct outcome *outcome)
{
    struct bare b = {.tape = tape, .nics = options_nodes(options) * options->lanes};
    struct sgx_nic nics[BARE_PREFILLS_MAX * (1 + DECODERS) * LANES_MAX];
    const struct sgx_platform platform = {.nics = nics, .nic_count = b.nics};

    for (uint32_t nic = 0; nic < b.nics; nic++) {
        nics[nic].bandwidth = NIC_BANDWIDTH * LANES_MAX / options->lanes;
        nics[nic].group = 0;
    }
    HLG_ASSERT(sgx_open(&platform) == 0);
    b.queues = malloc((size_t)b.nics * b.nics * sizeof *b.queues);
    b.numbers = malloc((size_t)b.nics * b.nics * sizeof *b.numbers);
    b.next = malloc(tape->count * sizeof *b.next);
    HLG_ASSERT(b.queues != NULL && b.numbers != NULL && b.next != NULL);
    for (uint32_t queue = 0; queue < b.nics * b.nics; queue++) {
        b.queues[queue] = (struct queue){HLG_NONE, HLG_NONE};
    }
    outcome->setup = processor_seconds();
    for (uint32_t flow = 0; flow < tape->count; flow++) {
        const double when = (double)tape->flows[flow].posted * 1e-9;

        if (when > sgx_now()) {
            run_to(&b, when);
        }
        post(&b, flow);
    }
    while (b.ended < tape->count) {
        run_to(&b, -1);
    }
    outcome->flows = b.ended;
    outcome->ended = (hlg_time)(sgx_now() * 1e9);
    free(b.queues);
    free(b.numbers);
    free(b.next);
}
