#include "batch.h"

#include "steps.h"

#include <stdlib.h>

/* A sequence that waits. */
struct entry {
    hlg_time joined;
    uint64_t serial; /* order of joining */
    hlg_time last_ns;
    uint64_t stream;
    uint32_t sequence;
    uint32_t context;
    uint32_t output;
    uint32_t next; /* of its rank's queue, or of the unused ones */
};

struct queue {
    uint32_t head;
    uint32_t tail;
    uint32_t count;
};

struct sim_batch {
    struct sim_batch_config config;
    struct sim_steps *steps;
    struct entry *entries; /* [waiting_max] */
    uint32_t unused;
    uint32_t waiting_count;
    struct queue *queues; /* [ranks] */
    hlg_time now;         /* of the latest call */
    hlg_time boundary;    /* where the next plan begins */
    hlg_time left;        /* when one has left last */
    uint64_t serial;
    struct sim_batch_event *events;
    uint32_t event_begin; /* given so far */
    uint32_t event_count;
    uint32_t event_capacity;
};

/* Nothing is planned, and nothing is running. */
#define IDLE HLG_NONE

int sim_batch_create(const struct sim_batch_config *config, struct sim_batch **out)
{
    struct sim_steps_config steps = {.cost = config->cost,
                                     .ranks = config->ranks,
                                     .sequences_max = config->waiting_max,
                                     .seed = config->seed,
                                     .draft = config->draft,
                                     .accept = config->accept,
                                     .grow_tokens = config->grow != NULL ? config->grow_tokens : 0};
    struct sim_batch *batch = NULL;
    int error = 0;

    if (config->sequences_max == 0 || config->waiting_max > HLG_TOKENS_MAX ||
        (config->grow != NULL && config->grow_tokens == 0)) {
        return -HLG_EINVAL;
    }
    batch = calloc(1, sizeof(*batch));
    if (batch == NULL) {
        return -HLG_ENOMEM;
    }
    batch->config = *config;
    error = sim_steps_create(&steps, &batch->steps);
    if (error != 0) {
        sim_batch_destroy(batch);
        return error;
    }
    batch->entries = calloc(config->waiting_max, sizeof(*batch->entries));
    batch->queues = calloc(config->ranks, sizeof(*batch->queues));
    batch->event_capacity = 4 * config->waiting_max; /* each kind once for each */
    batch->events = calloc(batch->event_capacity, sizeof(*batch->events));
    if (batch->entries == NULL || batch->queues == NULL || batch->events == NULL) {
        sim_batch_destroy(batch);
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < config->waiting_max; i++) {
        batch->entries[i].next = i + 1 < config->waiting_max ? i + 1 : HLG_NONE;
    }
    for (uint32_t r = 0; r < config->ranks; r++) {
        batch->queues[r] = (struct queue){HLG_NONE, HLG_NONE, 0};
    }
    *out = batch;
    return 0;
}

void sim_batch_destroy(struct sim_batch *batch)
{
    if (batch != NULL) {
        sim_steps_destroy(batch->steps);
        free(batch->entries);
        free(batch->queues);
        free(batch->events);
        free(batch);
    }
}

static void add_event(struct sim_batch *batch, enum sim_batch_event_kind kind, uint32_t place,
                      hlg_time at)
{
    const struct sim_steps_sequence *sequence = sim_steps_at(batch->steps, place);

    HLG_ASSERT(batch->event_count < batch->event_capacity);
    batch->events[batch->event_count++] =
        (struct sim_batch_event){.kind = (uint32_t)kind,
                                 .sequence = sequence->user,
                                 .rank = sequence->rank,
                                 .tokens = sim_steps_tokens(batch->steps, place),
                                 .steps = sim_steps_made(batch->steps, place),
                                 .at = at};
}

/* A running sequence is over or loses its place. */
static void end(struct sim_batch *batch, enum sim_batch_event_kind kind, uint32_t place)
{
    const struct sim_steps_sequence *sequence = sim_steps_at(batch->steps, place);

    add_event(batch, kind, place, batch->boundary);
    if (batch->config.release != NULL) {
        batch->config.release(batch->config.context, sequence->rank, sequence->user);
    }
    sim_steps_remove(batch->steps, place);
}

static uint32_t pop(struct sim_batch *batch, uint32_t rank)
{
    struct queue *queue = &batch->queues[rank];
    uint32_t index = queue->head;

    queue->head = batch->entries[index].next;
    if (queue->head == HLG_NONE) {
        queue->tail = HLG_NONE;
    }
    queue->count--;
    batch->waiting_count--;
    batch->entries[index].next = batch->unused;
    batch->unused = index;
    return index;
}

int sim_batch_join(struct sim_batch *batch, hlg_time now, uint32_t rank, uint32_t sequence,
                   uint64_t stream, uint32_t context, uint32_t output_tokens)
{
    return sim_batch_resume(batch, now, rank, sequence, stream, context, output_tokens,
                            HLG_TIME_NEVER);
}

int sim_batch_resume(struct sim_batch *batch, hlg_time now, uint32_t rank, uint32_t sequence,
                     uint64_t stream, uint32_t context, uint32_t output_tokens, hlg_time last_ns)
{
    struct queue *queue = &batch->queues[rank];
    uint32_t index = batch->unused;

    HLG_ASSERT(rank < batch->config.ranks && now >= batch->now);
    HLG_ASSERT(output_tokens != 0 && output_tokens <= HLG_TOKENS_MAX);
    HLG_ASSERT(last_ns <= now || last_ns == HLG_TIME_NEVER);
    if (batch->waiting_count + sim_steps_count(batch->steps) >= batch->config.waiting_max) {
        return -HLG_ELIMIT;
    }
    batch->now = now;
    batch->unused = batch->entries[index].next;
    batch->entries[index] = (struct entry){.joined = now,
                                           .serial = batch->serial++,
                                           .last_ns = last_ns,
                                           .stream = stream,
                                           .sequence = sequence,
                                           .context = context,
                                           .output = output_tokens,
                                           .next = HLG_NONE};
    if (queue->tail != HLG_NONE) {
        batch->entries[queue->tail].next = index;
    } else {
        queue->head = index;
    }
    queue->tail = index;
    queue->count++;
    batch->waiting_count++;
    return 0;
}

/* Whether the first that waits for a rank has a slot. */
static bool has_slot(const struct sim_batch *batch, uint32_t rank)
{
    return batch->queues[rank].count != 0 &&
           sim_steps_running(batch->steps, rank) < batch->config.sequences_max;
}

/* The time from which somebody may be let in, or never. */
static hlg_time wake_time(const struct sim_batch *batch)
{
    hlg_time wake = HLG_TIME_NEVER;

    for (uint32_t r = 0; batch->waiting_count != 0 && r < batch->config.ranks; r++) {
        if (has_slot(batch, r)) {
            wake = hlg_min_time(wake, batch->entries[batch->queues[r].head].joined);
        }
    }
    return wake < batch->left ? batch->left : wake; /* a step under way ends first */
}

/* When something happens next, and at which boundary of the plan. */
static hlg_time due(struct sim_batch *batch, uint32_t *k)
{
    struct sim_steps *steps = batch->steps;
    const hlg_time wake = wake_time(batch);
    uint32_t fresh = 0;

    *k = IDLE;
    if (sim_steps_count(steps) == 0) {
        return wake > batch->boundary ? wake : batch->boundary;
    }
    if (!sim_steps_planned(steps)) {
        if (wake <= batch->boundary) {
            return batch->boundary;
        }
        sim_steps_plan(steps, batch->boundary, NULL, true);
    }
    (void)sim_steps_fresh(steps, &fresh);
    *k = fresh != 0 ? 1 : sim_steps_next(steps);
    if (wake != HLG_TIME_NEVER) {
        *k = hlg_min_u32(*k, sim_steps_until(steps, wake));
    }
    return sim_steps_boundary(steps, *k);
}

/* Those that need more room get it, or the youngest of their rank go. Returns whether any went. */
static bool settle_growth(struct sim_batch *batch)
{
    bool gone = false;
    uint32_t place = sim_steps_due(batch->steps, SIM_STEPS_GROW);

    while (place != HLG_NONE) {
        const struct sim_steps_sequence *sequence = sim_steps_at(batch->steps, place);

        if (batch->config.grow(batch->config.context, sequence->rank, sequence->user,
                               batch->config.grow_tokens)) {
            sim_steps_grown(batch->steps, place);
        } else {
            end(batch, SIM_BATCH_PREEMPTED, sim_steps_youngest(batch->steps, sequence->rank));
            gone = true;
        }
        place = sim_steps_due(batch->steps, SIM_STEPS_GROW);
    }
    return gone;
}

/* Let in the one that has waited longest of those that have a slot. Returns whether there was one. One at
 * a time, so that it is all the same whether others came before the batch was advanced or after. */
static bool admit(struct sim_batch *batch)
{
    const struct entry *first = NULL;
    uint32_t rank = 0;

    for (uint32_t r = 0; batch->waiting_count != 0 && r < batch->config.ranks; r++) {
        const struct entry *head = &batch->entries[batch->queues[r].head];

        if (has_slot(batch, r) && head->joined <= batch->boundary &&
            (first == NULL || head->serial < first->serial)) {
            first = head;
            rank = r;
        }
    }
    if (first == NULL) {
        return false;
    }
    (void)pop(batch, rank);
    (void)sim_steps_add(batch->steps, rank, first->sequence, first->stream, 0, first->context,
                        first->output, first->last_ns);
    return true;
}

static void announce(struct sim_batch *batch)
{
    uint32_t count = 0;
    const uint32_t *fresh = sim_steps_fresh(batch->steps, &count);

    for (uint32_t i = 0; i < count; i++) {
        struct sim_steps_sequence *sequence = sim_steps_at(batch->steps, fresh[i]);

        if (!sequence->announced) {
            sequence->announced = true;
            add_event(batch, SIM_BATCH_STEPPED, fresh[i], batch->boundary);
        }
    }
}

/* Move along the plan to boundary k; who made a first step says so. */
static void move(struct sim_batch *batch, uint32_t k)
{
    uint32_t count = 0;
    const uint32_t *fresh = sim_steps_fresh(batch->steps, &count);
    const uint32_t position = sim_steps_position(batch->steps);

    sim_steps_move(batch->steps, k);
    batch->boundary = sim_steps_boundary(batch->steps, k);
    for (uint32_t i = 0; i < count && k != position; i++) {
        HLG_ASSERT(k == 1);
        add_event(batch, SIM_BATCH_FIRST, fresh[i], batch->boundary);
    }
}

/* Make happen what is due at boundary k, at `at`. */
static void step(struct sim_batch *batch, uint32_t k, hlg_time at)
{
    bool changed = true;
    uint32_t place = 0;

    if (sim_steps_planned(batch->steps)) {
        move(batch, k);
        changed = k == sim_steps_end(batch->steps);
    }
    batch->boundary = at;
    place = sim_steps_due(batch->steps, SIM_STEPS_FINISH);
    while (place != HLG_NONE) {
        end(batch, SIM_BATCH_FINISHED, place);
        changed = true;
        place = sim_steps_due(batch->steps, SIM_STEPS_FINISH);
    }
    changed = settle_growth(batch) || changed;
    while (admit(batch)) {
        (void)settle_growth(batch);
        changed = true;
    }
    announce(batch);
    if (changed) {
        sim_steps_drop(batch->steps);
    }
}

hlg_time sim_batch_next(struct sim_batch *batch)
{
    uint32_t k = 0;

    if (batch->event_begin < batch->event_count) {
        return batch->events[batch->event_begin].at;
    }
    if (sim_steps_count(batch->steps) == 0 && batch->waiting_count == 0) {
        return HLG_TIME_NEVER;
    }
    return due(batch, &k);
}

uint32_t sim_batch_advance(struct sim_batch *batch, hlg_time now, struct sim_batch_event *events,
                           uint32_t capacity)
{
    uint32_t given = 0;

    HLG_ASSERT(now >= batch->now && now != HLG_TIME_NEVER);
    batch->now = now;
    while (given < capacity) {
        uint32_t k = 0;
        hlg_time at = 0;

        if (batch->event_begin < batch->event_count) {
            events[given++] = batch->events[batch->event_begin++];
            continue;
        }
        batch->event_begin = 0;
        batch->event_count = 0;
        if (sim_steps_count(batch->steps) == 0 && batch->waiting_count == 0) {
            break;
        }
        at = due(batch, &k);
        if (at > now) {
            break;
        }
        step(batch, k, at);
    }
    return given;
}

/* Take a sequence out of the queues. Returns whether it was there. */
static bool leave_queue(struct sim_batch *batch, uint32_t sequence)
{
    for (uint32_t r = 0; r < batch->config.ranks; r++) {
        struct queue *queue = &batch->queues[r];
        uint32_t before = HLG_NONE;

        for (uint32_t at = queue->head; at != HLG_NONE; at = batch->entries[at].next) {
            if (batch->entries[at].sequence != sequence) {
                before = at;
                continue;
            }
            if (before == HLG_NONE) {
                (void)pop(batch, r);
                return true;
            }
            batch->entries[before].next = batch->entries[at].next;
            queue->tail = queue->tail == at ? before : queue->tail;
            queue->count--;
            batch->waiting_count--;
            batch->entries[at].next = batch->unused;
            batch->unused = at;
            return true;
        }
    }
    return false;
}

static uint32_t find_running(struct sim_batch *batch, uint32_t sequence)
{
    for (uint32_t r = 0; r < batch->config.ranks; r++) {
        uint32_t at = sim_steps_youngest(batch->steps, r);

        while (at != HLG_NONE && sim_steps_at(batch->steps, at)->user != sequence) {
            at = sim_steps_at(batch->steps, at)->older;
        }
        if (at != HLG_NONE) {
            return at;
        }
    }
    return HLG_NONE;
}

void sim_batch_leave(struct sim_batch *batch, hlg_time now, uint32_t sequence)
{
    struct sim_steps *steps = batch->steps;
    uint32_t place = HLG_NONE;
    uint32_t k = 0;

    HLG_ASSERT(now >= batch->now);
    batch->now = now;
    batch->left = now;
    if (leave_queue(batch, sequence)) {
        return;
    }
    place = find_running(batch, sequence);
    if (place == HLG_NONE) {
        return;
    }
    if (!sim_steps_planned(steps)) {
        sim_steps_plan(steps, batch->boundary, NULL,
                       true); /* the step under way, if there is one */
    }
    k = sim_steps_until(steps, now);
    if (k > sim_steps_position(steps)) {
        sim_steps_move(steps, k - 1);
    }
    sim_steps_remove(steps, place);
    sim_steps_cut(steps, k);
    if (sim_steps_count(steps) == 0 || k == sim_steps_position(steps)) {
        sim_steps_move(steps, k);
        batch->boundary = sim_steps_boundary(steps, k);
        sim_steps_drop(steps);
    }
}

uint32_t sim_batch_running(const struct sim_batch *batch, uint32_t rank)
{
    return sim_steps_running(batch->steps, rank);
}

uint32_t sim_batch_waiting(const struct sim_batch *batch, uint32_t rank)
{
    HLG_ASSERT(rank < batch->config.ranks);
    return batch->queues[rank].count;
}

uint64_t sim_batch_context(const struct sim_batch *batch, uint32_t rank)
{
    return sim_steps_context(batch->steps, rank);
}

void sim_batch_totals(const struct sim_batch *batch, struct sim_batch_totals *totals)
{
    sim_steps_totals(batch->steps, totals);
}

void sim_batch_gaps(const struct sim_batch *batch, struct sim_gaps *gaps)
{
    *gaps = *sim_steps_gaps(batch->steps);
}

int sim_batch_check(const struct sim_batch *batch)
{
    uint32_t waiting = 0;

    for (uint32_t r = 0; r < batch->config.ranks; r++) {
        uint32_t count = 0;

        for (uint32_t at = batch->queues[r].head; at != HLG_NONE; at = batch->entries[at].next) {
            count++;
        }
        if (count != batch->queues[r].count ||
            sim_steps_running(batch->steps, r) > batch->config.sequences_max) {
            return 101;
        }
        waiting += count;
    }
    return waiting != batch->waiting_count ? 102 : sim_steps_check(batch->steps);
}
