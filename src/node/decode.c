/*
 * halage-decode: a decode node. Its engine hands pages out, asks the prefill node, and holds a
 * request until the messenger says READY. Then it takes digests of what landed, runs the last prompt
 * token as the request's first step, and decodes greedily, all requests of a pool in one batch.
 */
#include "../cli/cli.h"
#include "digest.h"
#include "guard.h"
#include "lane.h"
#include "pages.h"

#include <inttypes.h>
#include <sample.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *argp_program_version = "halage " HALAGE_VERSION;

#define TTL_NS    (120 * HLG_NS_PER_S)
#define PEERS_MAX 16u
#define TRIES_MAX 64u /* of one request */
#define REDIAL_NS (100 * HLG_NS_PER_MS)
/* How long pages of failed requests are waited for at the end; the starter has less patience than a lease. */
#define SETTLE_NS (5 * HLG_NS_PER_S)

enum job_state {
    JOB_FREE = 0,
    JOB_WAITING,  /* for pages */
    JOB_ASKED,    /* for READY */
    JOB_DECODING, /* its pages are the engine's */
    JOB_FAILED,   /* its pages are not the engine's yet */
};

struct job {
    enum job_state state;
    hlg_ticket ticket;
    uint64_t number;
    uint64_t arrival; /* first come, first served */
    uint32_t pool;
    uint32_t prompt_tokens;
    uint32_t output_count;
    uint32_t generated;
    uint32_t page_count;
    uint32_t context; /* HLG_NONE: none */
    bool in_step;
    uint32_t prefill;    /* index of the peer that is its first source */
    uint32_t tries;      /* that failed and are not the end of it */
    bool again;          /* to be asked once more when its pages are back */
    hlg_time not_before; /* to be asked */
    hlg_time asked;
    hlg_time accepted;
    hlg_time first_piece;
    hlg_time last_piece;
    hlg_time ready;
    hlg_time first_token;
    uint64_t pieces_counted;
    uint64_t pieces_expected;
    uint64_t bytes;
    uint32_t *pages;  /* [pages of a context] */
    uint32_t *prompt; /* [NODE_CONTEXT_TOKENS] */
    uint32_t *tokens; /* [NODE_CONTEXT_TOKENS] */
    uint64_t *logits; /* [NODE_CONTEXT_TOKENS] digests */
    uint64_t *landed; /* [tp * layers * planes] */
    uint64_t contexts[HLG_RANKS_MAX];
};

struct peer {
    hlg_peer peer;
    uint32_t connection;
    bool up;
    bool draining;   /* it takes no new requests */
    bool told;       /* that it cannot be reached */
    hlg_time redial; /* when to dial it again; 0: not now */
};

struct engine {
    struct node node;
    struct pages pages[HLG_RANKS_MAX];    /* of each pool */
    struct pages contexts[HLG_RANKS_MAX]; /* of each pool */
    struct job jobs[NODE_REQUESTS_MAX];
    uint32_t jobs_used; /* those behind were never used */
    uint32_t *word_memory;
    uint64_t *long_memory;
    uint32_t landed_count;
    uint64_t arrivals;
    struct peer
        peers[PEERS_MAX]; /* prefill nodes; each `sources` in a row send a request together */
    uint32_t peer_count;
    uint32_t set_next;              /* of such a row: to be asked */
    hlg_time posted[HLG_RANKS_MAX]; /* when the present step of each pool began */
    int refused;                    /* exit status for it; 0: not refused */
    bool planted;                   /* the planted fault is done */
    uint64_t steps;
    uint64_t pages_poisoned;
    uint64_t pages_touched;
    uint64_t agains;
    uint64_t redials;
    bool announced;
};

/* ---- Requests ---- */

static struct job *find_job(struct engine *e, hlg_ticket ticket)
{
    for (uint32_t i = 0; i < e->jobs_used; i++) {
        if (e->jobs[i].state >= JOB_ASKED && e->jobs[i].ticket == ticket) {
            return &e->jobs[i];
        }
    }
    return NULL;
}

static void send_failed(struct engine *e, uint64_t number, const char *text)
{
    struct control_failed frame = {.head.kind = CONTROL_FAILED, .number = number};
    (void)snprintf(frame.text, sizeof frame.text, "%s", text);
    node_send(&e->node, &frame, sizeof frame);
}

/* Poisoned pages are never used again. */
static void free_job(struct engine *e, struct job *job, bool poisoned)
{
    if (!poisoned) {
        guard_fill(&e->node, job->pool, 0, job->pages, job->page_count);
        pages_give(&e->pages[job->pool], job->pages, job->page_count);
        if (job->context != HLG_NONE) {
            guard_fill(&e->node, job->pool, 1, &job->context, 1);
            pages_give(&e->contexts[job->pool], &job->context, 1);
        }
    } else {
        e->pages_poisoned += (uint64_t)job->page_count + (job->context != HLG_NONE ? 1 : 0);
    }
    job->page_count = 0;
    job->context = HLG_NONE;
    job->state = JOB_FREE;
}

/* Whether all prefill nodes of a set take requests, which they send together. */
static bool set_up(const struct engine *e, uint32_t set)
{
    const uint32_t sources = e->node.options.config.sources;
    bool all = true;
    for (uint32_t i = 0; i < sources; i++) {
        const struct peer *peer = &e->peers[set * sources + i];
        all = all && peer->up && !peer->draining;
    }
    return all;
}

static uint32_t set_count(const struct engine *e)
{
    return hlg_div_exact(e->peer_count, e->node.options.config.sources);
}

/* The next set of prefill nodes to ask, in turn; HLG_NONE: none is up. */
static uint32_t choose_set(struct engine *e)
{
    for (uint32_t i = 0; i < set_count(e); i++) {
        const uint32_t set = (e->set_next + i) % set_count(e);
        if (set_up(e, set)) {
            e->set_next = set + 1;
            return set;
        }
    }
    return HLG_NONE;
}

static bool any_up(const struct engine *e)
{
    bool any = false;
    for (uint32_t set = 0; set < set_count(e); set++) {
        any = any || set_up(e, set);
    }
    return any;
}

static void take_submit(struct engine *e, const struct control_submit *frame)
{
    uint32_t index = 0;
    while (index < e->jobs_used && e->jobs[index].state != JOB_FREE) {
        index++;
    }
    if (index == NODE_REQUESTS_MAX) {
        send_failed(e, frame->number, "too many requests at a time");
        return;
    }
    e->jobs_used = hlg_max_u32(e->jobs_used, index + 1);
    struct job *job = &e->jobs[index];
    job->state = JOB_WAITING;
    job->tries = 0;
    job->again = false;
    job->not_before = 0;
    job->number = frame->number;
    job->arrival = e->arrivals++;
    job->pool = frame->pool;
    job->prompt_tokens = frame->prompt_tokens;
    job->output_count = frame->output_count;
    job->generated = 0;
    job->page_count = 0;
    job->context = HLG_NONE;
    job->in_step = false;
    memcpy(job->prompt, frame->tokens, frame->prompt_tokens * sizeof *job->prompt);
}

/* Pages for prompt and output, and a place for the context. */
static bool take_pages(struct engine *e, struct job *job)
{
    const uint32_t page_tokens = e->node.options.config.model.page_tokens;
    const uint32_t count = hlg_div_ceil(job->prompt_tokens + job->output_count - 1, page_tokens);
    if (!pages_take(&e->pages[job->pool], job->pages, count)) {
        return false;
    }
    if (job->prompt_tokens > 1 && !pages_take(&e->contexts[job->pool], &job->context, 1)) {
        job->context = HLG_NONE;
        pages_give(&e->pages[job->pool], job->pages, count);
        return false;
    }
    job->page_count = count;
    e->pages_touched += guard_touched(&e->node, job->pool, 0, job->pages, count);
    if (job->context != HLG_NONE) {
        e->pages_touched += guard_touched(&e->node, job->pool, 1, &job->context, 1);
    }
    return true;
}

/* Submit a request to a set of prefill nodes. Returns as hlg_messenger_submit(). */
static int submit(struct engine *e, struct job *job, uint32_t set)
{
    char id[HLG_REQUEST_ID_BYTES_MAX];
    const uint32_t sources = e->node.options.config.sources;
    struct hlg_submit order = {
        .size = sizeof order,
        .source_count = sources,
        .pool = job->pool,
        .tokens = job->prompt_tokens,
        .id_bytes = (uint32_t)snprintf(id, sizeof id, "%" PRIu64, job->number),
        .id = id,
        .prompt_bytes = job->prompt_tokens * (uint32_t)sizeof *job->prompt,
        .prompt = job->prompt,
        .ttl_ns = TTL_NS,
    };
    job->prefill = set * sources;
    for (uint32_t i = 0; i < sources; i++) {
        order.peers[i] = e->peers[job->prefill + i].peer;
    }
    order.groups[0] = (struct hlg_page_list){
        .count = hlg_div_ceil(job->prompt_tokens - 1, e->node.options.config.model.page_tokens),
        .pages = job->pages,
    };
    order.groups[1] = (struct hlg_page_list){
        .count = job->context == HLG_NONE ? 0 : 1,
        .pages = &job->context,
    };
    return hlg_messenger_submit(e->node.messenger, &order, &job->ticket);
}

/* Ask prefill nodes. Returns whether the next one may be tried. */
static bool ask(struct engine *e, struct job *job)
{
    if (!any_up(e)) {
        if (e->node.options.config.redial) {
            return false; /* it waits */
        }
        send_failed(e, job->number, "the prefill node is gone, or takes no new requests");
        job->state = JOB_FREE;
        return true;
    }
    if (!take_pages(e, job)) {
        return false;
    }
    const uint32_t set = choose_set(e);
    HLG_ASSERT(set != HLG_NONE);
    const int status = submit(e, job, set);
    if (status == 0) {
        job->state = JOB_ASKED;
        return true;
    }
    if (status == -HLG_ELIMIT) {
        e->node.retry = true;
        free_job(e, job, false);
        job->state = JOB_WAITING;
        return false;
    }
    send_failed(e, job->number, hlg_error_text(status));
    free_job(e, job, false);
    return true;
}

/* The first to come of those that wait in a pool and may be asked now. */
static struct job *first_waiting(struct engine *e, uint32_t pool, hlg_time now)
{
    struct job *first = NULL;
    for (uint32_t i = 0; i < e->jobs_used; i++) {
        struct job *job = &e->jobs[i];
        if (job->state != JOB_WAITING || job->pool != pool) {
            continue;
        }
        if (job->not_before > now) {
            node_wake_at(&e->node, job->not_before);
        } else if (first == NULL || job->arrival < first->arrival) {
            first = job;
        }
    }
    return first;
}

/* Ask for those that wait, in order of arrival, as far as a pool's pages go. */
static void ask_waiting(struct engine *e)
{
    const hlg_time now = node_now();
    for (uint32_t pool = 0; pool < e->node.layout.pools; pool++) {
        struct job *job = first_waiting(e, pool, now);
        while (job != NULL && ask(e, job)) {
            job = first_waiting(e, pool, now);
        }
    }
}

/* ---- What landed ---- */

static uint64_t landed_digest(struct engine *e, const struct job *job, uint32_t rank,
                              uint32_t layer, uint32_t plane)
{
    const struct tlm_config *model = &e->node.options.config.model;
    const uint32_t tp = e->node.layout.tp;
    uint64_t digest = DIGEST_BEGIN;
    uint32_t left = job->prompt_tokens - 1;
    for (uint32_t page = 0; left > 0; page++) {
        const uint32_t slots = hlg_min_u32(left, model->page_tokens);
        const uint8_t *bytes = lane_look(&e->node, job->pool * tp + rank,
                                         lane_page(&e->node, layer, plane, job->pages[page]),
                                         tlm_page_bytes(model, tp));
        digest = digest_page(digest, model, tp, bytes, slots);
        left -= slots;
    }
    return digest;
}

static uint64_t context_digest(struct engine *e, const struct job *job, uint32_t rank)
{
    const uint32_t lane = job->pool * e->node.layout.tp + rank;
    const uint64_t bytes = hlg_layout_page_bytes(&e->node.layout, 1);
    if (job->context == HLG_NONE) {
        return 0;
    }
    return digest_bytes(
        DIGEST_BEGIN, lane_look(&e->node, lane, lane_context(&e->node, lane, job->context), bytes),
        (size_t)bytes);
}

/* Of a float, the byte with its sign. */
#define SIGN_BYTE 3u

/* A planted fault of this job's memory, once. */
static void plant(struct engine *e, struct job *job, enum plant_kind kind)
{
    const struct plant *fault = &e->node.options.config.plant;
    const uint32_t lane = fault->rank;
    if (e->planted || fault->kind != kind || job->prompt_tokens < 2 ||
        lane / e->node.layout.tp != job->pool) {
        return;
    }
    const uint64_t offset = kind == PLANT_CONTEXT
                                ? lane_context(&e->node, lane, job->context)
                                : lane_page(&e->node, fault->layer, fault->plane, job->pages[0]);
    lane_flip(&e->node, lane, offset + SIGN_BYTE);
    e->planted = true;
}

/* The same of the page that would be taken last. */
static void plant_free(struct engine *e)
{
    const struct plant *fault = &e->node.options.config.plant;
    if (!e->planted && fault->kind == PLANT_FREE && fault->rank < e->node.layout.tp &&
        e->pages[0].free > 0) {
        lane_flip(&e->node, fault->rank,
                  lane_page(&e->node, fault->layer, fault->plane, e->pages[0].stack[0]) +
                      SIGN_BYTE);
        e->planted = true;
    }
}

static void take_digests(struct engine *e, struct job *job)
{
    const struct tlm_config *model = &e->node.options.config.model;
    const uint32_t planes = tlm_planes(model);
    plant_free(e);
    plant(e, job, PLANT_LANDED);
    plant(e, job, PLANT_CONTEXT);
    for (uint32_t rank = 0; rank < e->node.layout.tp; rank++) {
        for (uint32_t layer = 0; layer < model->layers; layer++) {
            for (uint32_t plane = 0; plane < planes; plane++) {
                job->landed[(rank * model->layers + layer) * planes + plane] =
                    landed_digest(e, job, rank, layer, plane);
            }
        }
        job->contexts[rank] = context_digest(e, job, rank);
    }
    plant(e, job, PLANT_LANDED_AFTER);
}

/* ---- Decode steps ---- */

static void send_result(struct engine *e, const struct job *job)
{
    static uint64_t memory[CONTROL_FRAME_BYTES_MAX / sizeof(uint64_t)];
    struct control_result *frame = (struct control_result *)(void *)memory;
    *frame = (struct control_result){
        .head.kind = CONTROL_RESULT,
        .number = job->number,
        .pool = job->pool,
        .output_count = job->output_count,
        .landed_count = e->landed_count,
        .tp = e->node.layout.tp,
        .pieces_counted = job->pieces_counted,
        .pieces_expected = job->pieces_expected,
        .bytes = job->bytes,
        .asked = job->asked,
        .accepted = job->accepted,
        .first_piece = job->first_piece,
        .last_piece = job->last_piece,
        .ready = job->ready,
        .first_token = job->first_token,
        .prefill = job->prefill,
    };
    uint64_t *at = frame->values;
    memcpy(at, job->logits, job->output_count * sizeof *at);
    at += job->output_count;
    memcpy(at, job->landed, e->landed_count * sizeof *at);
    at += e->landed_count;
    memcpy(at, job->contexts, frame->tp * sizeof *at);
    at += frame->tp;
    memcpy(at, job->tokens, job->output_count * sizeof *job->tokens);
    node_send(&e->node, frame,
              control_result_bytes(frame->output_count, frame->landed_count, frame->tp));
}

static void start_step(struct engine *e, uint32_t pool)
{
    if (ranks_step_running(e->node.ranks, pool)) {
        return;
    }
    const struct step *step = ranks_step_begin(e->node.ranks, pool, 0);
    for (uint32_t i = 0; i < e->jobs_used; i++) {
        struct job *job = &e->jobs[i];
        if (job->state != JOB_DECODING || job->pool != pool) {
            continue;
        }
        const uint32_t *token = job->generated == 0 ? &job->prompt[job->prompt_tokens - 1]
                                                    : &job->tokens[job->generated - 1];
        const struct tlm_sequence sequence = {
            .pages = job->pages,
            .tokens = token,
            .page_count = job->page_count,
            .position = job->prompt_tokens - 1 + job->generated,
            .token_count = 1,
        };
        job->in_step = ranks_step_add(e->node.ranks, pool, &sequence, HLG_NONE);
    }
    if (step->sequence_count > 0) {
        e->steps++;
        e->posted[pool] = node_now();
        ranks_step_post(e->node.ranks, pool);
    }
}

/* Returns whether the step, if one ended, went well. */
static bool end_step(struct engine *e, uint32_t pool)
{
    uint32_t index = 0;
    const struct step *step = ranks_step_take(e->node.ranks, pool);
    if (step == NULL) {
        return true;
    }
    if (atomic_load(&step->status) != 0) {
        char why[CONTROL_TEXT_BYTES];
        ranks_step_why(e->node.ranks, pool, why, sizeof why);
        node_say(&e->node, "a decode step failed: %s; the node cannot go on", why);
        return false;
    }
    const hlg_time now = node_now();
    for (uint32_t i = 0; i < e->jobs_used; i++) { /* the order in which they were added */
        struct job *job = &e->jobs[i];
        if (!job->in_step || job->pool != pool) {
            continue;
        }
        job->in_step = false;
        job->first_token = job->generated == 0 ? now : job->first_token;
        job->tokens[job->generated] = step->sampled[index];
        job->logits[job->generated] = step->logits_hash[index];
        if (e->node.options.config.plant.kind == PLANT_TOKEN && !e->planted) {
            job->tokens[job->generated] ^= 1;
            e->planted = true;
        }
        job->generated++;
        index++;
        if (job->generated == job->output_count) {
            send_result(e, job);
            free_job(e, job, false);
        }
    }
    HLG_ASSERT(index == step->sequence_count);
    node_send_step(&e->node, step, e->posted[pool], now);
    return true;
}

/* ---- Reports ---- */

static void take_ready(struct engine *e, const struct hlg_report *report)
{
    struct job *job = find_job(e, report->ticket);
    HLG_ASSERT(job != NULL && job->state == JOB_ASKED);
    job->ready = node_now();
    job->asked = report->submitted;
    job->accepted = report->accepted;
    job->first_piece = report->first_piece;
    job->last_piece = report->last_piece;
    job->pieces_counted = report->pieces_counted;
    job->pieces_expected = report->pieces_expected;
    job->bytes = report->bytes;
    take_digests(e, job);
    /* The context's place is the library's until now, the pages were ours since READY. */
    while (hlg_messenger_release(e->node.messenger, job->ticket) == -HLG_ELIMIT) {
        (void)poll(NULL, 0, 1);
    }
    job->state = JOB_DECODING;
}

static const char *const reasons[] = {
    [HLG_REASON_NONE] = "no reason",
    [HLG_REASON_REJECTED] = "rejected by the prefill node",
    [HLG_REASON_CANCELLED] = "cancelled",
    [HLG_REASON_PEER] = "the prefill node is gone",
    [HLG_REASON_DEADLINE] = "its time ran out",
    [HLG_REASON_PROTOCOL] = "the two sides disagree",
    [HLG_REASON_LOCAL] = "this node's own resources failed",
    [HLG_REASON_PREEMPTED] = "the prefill node gave up its forward pass",
};

/* Whether a request that failed so may well succeed later. */
static bool may_succeed(const struct engine *e, const struct hlg_report *report)
{
    if (report->reason == HLG_REASON_REJECTED) {
        return report->retry_after_ns != 0;
    }
    return e->node.options.config.redial &&
           (report->reason == HLG_REASON_PEER || report->reason == HLG_REASON_PREEMPTED ||
            report->reason == HLG_REASON_DEADLINE);
}

static void take_failed(struct engine *e, const struct hlg_report *report)
{
    char text[CONTROL_TEXT_BYTES];
    struct job *job = find_job(e, report->ticket);
    HLG_ASSERT(job != NULL);
    job->again = !e->node.stop && job->tries < TRIES_MAX && may_succeed(e, report);
    if (job->again) {
        job->tries++;
        job->not_before = node_now() + report->retry_after_ns;
        job->state = JOB_FAILED;
        e->agains++;
        return;
    }
    const char *reason =
        report->reason <= HLG_REASON_PREEMPTED ? reasons[report->reason] : "unknown reason";
    const bool more = report->reason == HLG_REASON_LOCAL || report->reason == HLG_REASON_PROTOCOL;
    (void)snprintf(text, sizeof text, "%s%s%s", reason, more ? ": " : "", more ? report->text : "");
    send_failed(e, job->number, text);
    job->state = JOB_FAILED;
}

static void take_back(struct engine *e, const struct hlg_report *report)
{
    struct job *job = find_job(e, report->ticket);
    HLG_ASSERT(job != NULL && job->state == JOB_FAILED);
    (void)hlg_messenger_release(e->node.messenger, report->ticket);
    free_job(e, job, report->kind == HLG_NOTICE_POISONED);
    job->state = job->again ? JOB_WAITING : JOB_FREE;
}

static void take_peer_down(struct engine *e, const struct hlg_report *report)
{
    const struct control_head frame = {.kind = CONTROL_PEER_DOWN};
    for (uint32_t i = 0; i < e->peer_count; i++) {
        struct peer *peer = &e->peers[i];
        if (peer->up && peer->peer == report->peer) {
            peer->up = false;
            peer->redial = node_now();
        }
    }
    if (e->node.stop) {
        return;
    }
    const bool any = any_up(e) || e->node.options.config.sources > 1;
    node_say(&e->node, "%s prefill node is gone: %s", any ? "a" : "the", report->text);
    if (!any_up(e) && !e->node.options.config.redial) {
        node_send(&e->node, &frame, sizeof frame);
    }
}

static void take_peer_draining(struct engine *e, const struct hlg_report *report)
{
    for (uint32_t i = 0; i < e->peer_count; i++) {
        struct peer *peer = &e->peers[i];
        peer->draining = peer->draining || (peer->up && peer->peer == report->peer);
    }
}

/* A node is up when all its peers are. */
static void take_peer_up(struct engine *e, const struct hlg_report *report)
{
    bool all = true;
    for (uint32_t i = 0; i < e->peer_count; i++) {
        struct peer *peer = &e->peers[i];
        if (peer->connection == report->connection) {
            peer->peer = report->peer;
            peer->up = true;
            peer->draining = false;
            peer->told = false;
        }
        all = all && peer->up;
    }
    e->redials += e->announced ? 1 : 0;
    if (all && !e->announced) {
        e->announced = true;
        node_announce(&e->node);
    }
}

/* Dial those that are gone once more, when it is time. */
static void redial(struct engine *e)
{
    char address[NODE_ADDRESS_BYTES];
    const hlg_time now = node_now();
    for (uint32_t i = 0; i < e->peer_count && e->node.options.config.redial; i++) {
        struct peer *peer = &e->peers[i];
        if (peer->redial == 0) {
            continue;
        }
        if (peer->redial > now) {
            node_wake_at(&e->node, peer->redial);
            continue;
        }
        (void)node_address(&e->node.options, i, address);
        const int connection = hlg_messenger_connect(e->node.messenger, address);
        peer->redial = connection < 0 ? now + REDIAL_NS : 0;
        peer->connection = connection < 0 ? 0 : (uint32_t)connection;
    }
}

/* A dialled peer that did not answer, and may later. Returns whether that is one. */
static bool dial_later(struct engine *e, const struct hlg_report *report)
{
    const uint32_t code = report->refusal.code;
    const bool may_work_later =
        code == HLG_REFUSAL_NONE || code == HLG_REFUSAL_TRANSPORT || code == HLG_REFUSAL_FULL;
    for (uint32_t i = 0; i < e->peer_count; i++) {
        struct peer *peer = &e->peers[i];
        if (!may_work_later || !e->node.options.config.redial || report->connection == 0 ||
            peer->connection != report->connection) {
            continue;
        }
        if (!peer->told) {
            peer->told = true;
            node_say(&e->node, "no connection: %s; it is dialled again", report->text);
        }
        peer->redial = node_now() + REDIAL_NS;
        return true;
    }
    return false;
}

static void take_peer_refused(struct engine *e, const struct hlg_report *report)
{
    if (dial_later(e, report)) {
        return;
    }
    if (report->refusal.code == HLG_REFUSAL_NONE) {
        node_say(&e->node, "no connection: %s", report->text);
        e->refused = CLI_FAILED;
        return;
    }
    node_say(&e->node, "the connection to %s was refused: %s", e->node.options.address,
             report->text);
    const bool may_work_later =
        report->refusal.code == HLG_REFUSAL_TRANSPORT || report->refusal.code == HLG_REFUSAL_FULL;
    e->refused = may_work_later ? CLI_FAILED : CLI_INFEASIBLE;
}

static void take_report(struct engine *e, const struct hlg_report *report)
{
    switch (report->kind) {
    case HLG_NOTICE_PEER_UP:
        take_peer_up(e, report);
        break;
    case HLG_NOTICE_PEER_REFUSED:
        take_peer_refused(e, report);
        break;
    case HLG_NOTICE_PEER_DOWN:
        take_peer_down(e, report);
        break;
    case HLG_NOTICE_PEER_DRAINING:
        take_peer_draining(e, report);
        break;
    case HLG_NOTICE_READY:
        take_ready(e, report);
        break;
    case HLG_NOTICE_FAILED:
        take_failed(e, report);
        break;
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        take_back(e, report);
        break;
    default: /* ACCEPTED, and those of a prefill node */
        break;
    }
}

static void take_reports(struct engine *e)
{
    static struct hlg_report reports[NODE_REPORTS];
    int count = 0;
    do {
        count = hlg_messenger_poll(e->node.messenger, reports, sizeof reports[0], NODE_REPORTS);
        for (int i = 0; i < count; i++) {
            take_report(e, &reports[i]);
        }
    } while (count == NODE_REPORTS);
}

static void take_frames(struct engine *e)
{
    const struct control_head *head = node_frame(&e->node);
    while (head != NULL) {
        if (head->kind == CONTROL_SUBMIT) {
            take_submit(e, (const struct control_submit *)(const void *)head);
        }
        head = node_frame(&e->node);
    }
}

static int connect_all(struct engine *e)
{
    char address[NODE_ADDRESS_BYTES];
    while (node_address(&e->node.options, e->peer_count, address)) {
        if (e->peer_count == PEERS_MAX) {
            node_say(&e->node, "--connect: more than %u prefill nodes", PEERS_MAX);
            return CLI_BAD_INPUT;
        }
        const int connection = hlg_messenger_connect(e->node.messenger, address);
        if (connection < 0) {
            node_say(&e->node, "cannot connect to %s: %s", address, hlg_error_text(connection));
            return CLI_FAILED;
        }
        e->peers[e->peer_count++].connection = (uint32_t)connection;
    }
    const uint32_t sources = e->node.options.config.sources;
    if (e->peer_count % sources != 0) {
        node_say(&e->node,
                 "--connect: %" PRIu32 " prefill nodes, of which %" PRIu32
                 " send each request: give a multiple of --sources",
                 e->peer_count, sources);
        return CLI_BAD_INPUT;
    }
    return CLI_DONE;
}

static bool any_failed(const struct engine *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->jobs_used; i++) {
        any = any || e->jobs[i].state == JOB_FAILED;
    }
    return any;
}

/* At the end: wait for the pages of requests that failed. */
static int settle(struct engine *e)
{
    const hlg_time due = node_now() + SETTLE_NS;
    while (any_failed(e) && node_now() < due) {
        node_wake_at(&e->node, due);
        if (node_wait(&e->node) != CLI_DONE) {
            return CLI_FAILED;
        }
        take_reports(e);
    }
    return CLI_DONE;
}

static void send_stats(struct engine *e)
{
    struct control_stats stats = {
        .forwards = e->steps,
        .pages_poisoned = e->pages_poisoned,
        .pages_touched = e->pages_touched,
        .requests_again = e->agains,
        .redials = e->redials,
    };
    for (uint32_t pool = 0; pool < e->node.layout.pools; pool++) {
        const struct pages *const both[] = {&e->pages[pool], &e->contexts[pool]};
        for (uint32_t group = 0; group < 2; group++) {
            stats.pages += both[group]->count;
            stats.pages_free += both[group]->free;
            stats.pages_touched +=
                guard_touched(&e->node, pool, group, both[group]->stack, both[group]->free);
        }
    }
    node_send_stats(&e->node, &stats);
}

static int run(struct engine *e)
{
    const int status = connect_all(e);
    if (status != CLI_DONE) {
        return status;
    }
    while (!e->node.stop && !e->node.interrupted) {
        if (node_wait(&e->node) != CLI_DONE) {
            return CLI_FAILED;
        }
        take_frames(e);
        take_reports(e);
        if (e->refused != 0) {
            return e->refused;
        }
        redial(e);
        ask_waiting(e);
        for (uint32_t pool = 0; pool < e->node.layout.pools; pool++) {
            if (!end_step(e, pool)) {
                return CLI_FAILED;
            }
            start_step(e, pool);
        }
        ask_waiting(e);
        if (e->node.broken) {
            return CLI_FAILED;
        }
    }
    const int settled = e->node.abandoned ? CLI_DONE : settle(e);
    send_stats(e);
    if (settled != CLI_DONE || e->node.broken) {
        return CLI_FAILED;
    }
    if (e->node.interrupted) {
        return CLI_INTERRUPTED;
    }
    return e->node.abandoned ? CLI_FAILED : CLI_DONE;
}

static int make_jobs(struct engine *e)
{
    const struct tlm_config *model = &e->node.options.config.model;
    const uint32_t most = hlg_div_ceil(NODE_CONTEXT_TOKENS, model->page_tokens);
    const size_t words = most + 2 * (size_t)NODE_CONTEXT_TOKENS;
    e->landed_count = e->node.layout.tp * model->layers * tlm_planes(model);
    const size_t longs = NODE_CONTEXT_TOKENS + e->landed_count;
    bool good = true;
    e->word_memory = calloc(NODE_REQUESTS_MAX * words, sizeof *e->word_memory);
    e->long_memory = calloc(NODE_REQUESTS_MAX * longs, sizeof *e->long_memory);
    for (uint32_t pool = 0; pool < e->node.layout.pools && good; pool++) {
        good = pages_init(&e->pages[pool], e->node.layout.groups[0].page_count) &&
               pages_init(&e->contexts[pool], e->node.layout.groups[1].page_count);
        if (good) {
            guard_fill(&e->node, pool, 0, e->pages[pool].stack, e->pages[pool].free);
            guard_fill(&e->node, pool, 1, e->contexts[pool].stack, e->contexts[pool].free);
        }
    }
    if (!good || e->word_memory == NULL || e->long_memory == NULL) {
        node_say(&e->node, "no memory");
        return CLI_FAILED;
    }
    for (uint32_t i = 0; i < NODE_REQUESTS_MAX; i++) {
        struct job *job = &e->jobs[i];
        job->pages = e->word_memory + i * words;
        job->prompt = job->pages + most;
        job->tokens = job->prompt + NODE_CONTEXT_TOKENS;
        job->logits = e->long_memory + i * longs;
        job->landed = job->logits + NODE_CONTEXT_TOKENS;
    }
    return CLI_DONE;
}

int main(int argc, char **argv)
{
    static char title[] = "halage node decode";
    static struct engine engine;
    struct node *node = &engine.node;
    argv[0] = title;
    if (node_options_parse(&node->options, HLG_ROLE_DECODE, argc, argv) != 0) {
        return CLI_BAD_INPUT;
    }
    if (node->options.control < 0 || node->options.address == NULL) {
        (void)fprintf(stderr,
                      "halage-decode is started by 'halage demo' and 'halage node decode'\n");
        return CLI_BAD_INPUT;
    }
    node->sample = tlm_sample_greedy;
    int status = node_start(node, HLG_ROLE_DECODE);
    if (status == CLI_DONE) {
        status = make_jobs(&engine);
    }
    if (status == CLI_DONE) {
        status = run(&engine);
    }
    status = node_stop(node, status);
    for (uint32_t pool = 0; pool < HLG_RANKS_MAX; pool++) {
        pages_fini(&engine.pages[pool]);
        pages_fini(&engine.contexts[pool]);
    }
    free(engine.word_memory);
    free(engine.long_memory);
    return status;
}
