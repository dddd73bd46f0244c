/*
 * halage-prefill: a prefill node. Its engine batches chunks of several requests into each forward
 * pass, under a budget of tokens, and frees a request's pages when the messenger says that all of
 * them are sent. It never samples, and does not even link a sampler.
 */
#include "../cli/cli.h"
#include "node.h"
#include "pages.h"
#include "plant_fabric.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *argp_program_version = "halage " HALAGE_VERSION;

/* As many as the messenger has tickets: a request that is over holds its pages, and its ticket, until its forward
 * pass has ended, while the messenger takes new ones in its place. */
#define WORKS_MAX (2 * NODE_REQUESTS_MAX)

enum work_state {
    WORK_FREE = 0,
    WORK_WAITING, /* for pages */
    WORK_RUNNING, /* some of its tokens are not computed yet */
    WORK_DONE,    /* all are; the rest is the messenger's */
    WORK_STOPPED, /* no longer wanted */
};

struct work {
    enum work_state state;
    hlg_ticket ticket;
    uint64_t number;   /* of the starter */
    uint32_t tokens;   /* to compute: those of the prompt less one */
    uint32_t computed; /* or about to be, by the forward under way */
    uint32_t page_count;
    uint32_t context; /* page of the context group, HLG_NONE: none wanted */
    uint64_t first;   /* forward pass that it was in first, counted from 1; 0: none yet */
    bool in_forward;
    bool last;        /* its last chunk is in the forward */
    bool over;        /* the messenger has let go of the pages */
    bool poisoned;    /* and they are never used again */
    uint32_t *pages;  /* [pages of a context] */
    uint32_t *prompt; /* [NODE_CONTEXT_TOKENS] */
};

struct engine {
    struct node node;
    struct pages pages;
    struct pages contexts;
    uint64_t pages_poisoned; /* of both */
    struct work works[WORKS_MAX];
    uint32_t order[WORKS_MAX]; /* of `works`, as they came */
    uint32_t order_count;
    uint32_t *word_memory;
    uint32_t forward;
    uint64_t forwards;
    hlg_time forwards_ns; /* that they took, in sum */
    hlg_time posted;      /* when the present one began */
    uint64_t sent;
    uint64_t stopped;
    hlg_time drain_due; /* 0: not draining */
    bool drained;
};

#define DRAIN_NS (60 * HLG_NS_PER_S) /* from SIGTERM to the end, at most */

/* ---- Requests ---- */

static struct work *find_work(struct engine *e, hlg_ticket ticket)
{
    for (uint32_t i = 0; i < e->order_count; i++) {
        if (e->works[e->order[i]].ticket == ticket) {
            return &e->works[e->order[i]];
        }
    }
    return NULL;
}

/* Give back what a request holds, once messenger and forward pass are both done with it. Poisoned pages
 * are never used again. */
static void finish(struct engine *e, struct work *work)
{
    const uint32_t index = hlg_u32((uint64_t)(work - e->works));
    if (!work->over || work->in_forward) {
        return;
    }
    if (work->poisoned) {
        e->pages_poisoned += (uint64_t)work->page_count + (work->context != HLG_NONE ? 1 : 0);
    } else {
        pages_give(&e->pages, work->pages, work->page_count);
        if (work->context != HLG_NONE) {
            pages_give(&e->contexts, &work->context, 1);
        }
    }
    (void)hlg_messenger_release(e->node.messenger, work->ticket);
    for (uint32_t i = 0; i < e->order_count; i++) {
        if (e->order[i] == index) {
            memmove(&e->order[i], &e->order[i + 1], (e->order_count - i - 1) * sizeof e->order[0]);
            e->order_count--;
            break;
        }
    }
    work->state = WORK_FREE;
}

static void take_request(struct engine *e, hlg_ticket ticket)
{
    struct hlg_request request = {.size = sizeof request};
    uint32_t index = 0;
    char id[HLG_REQUEST_ID_BYTES_MAX + 1] = "";
    if (hlg_messenger_request(e->node.messenger, ticket, &request) != 0) {
        return;
    }
    while (index < WORKS_MAX && e->works[index].state != WORK_FREE) {
        index++;
    }
    HLG_ASSERT(index < WORKS_MAX); /* the messenger has no more tickets */
    struct work *work = &e->works[index];
    memcpy(id, request.id, request.id_bytes);
    *work = (struct work){
        .state = WORK_WAITING,
        .ticket = ticket,
        .number = strtoull(id, NULL, 10),
        .tokens = request.tokens - 1,
        .context = HLG_NONE,
        .pages = work->pages,
        .prompt = work->prompt,
    };
    e->order[e->order_count++] = index;
    /* What a peer sends is not to be trusted. */
    bool good = request.tokens >= 2 && request.tokens <= NODE_CONTEXT_TOKENS &&
                request.prompt_bytes == request.tokens * sizeof *work->prompt;
    for (uint32_t i = 0; good && i < request.tokens; i++) {
        memcpy(&work->prompt[i], request.prompt + i * sizeof *work->prompt, sizeof *work->prompt);
        good = work->prompt[i] < e->node.options.config.model.vocab;
    }
    if (!good) {
        node_say(&e->node, "request %s: no prompt of this model; rejected", id);
        work->state = WORK_STOPPED;
        (void)hlg_messenger_reject(e->node.messenger, ticket, 0);
    }
}

/* Whether the request at the head of the line got pages and was handed to the messenger. */
static bool admit(struct engine *e, struct work *work)
{
    struct hlg_admit order = {.size = sizeof order};
    const uint32_t count = hlg_div_ceil(work->tokens, e->node.options.config.model.page_tokens);
    if (!pages_take(&e->contexts, &work->context, 1)) {
        work->context = HLG_NONE;
        return false;
    }
    if (!pages_take(&e->pages, work->pages, count)) {
        pages_give(&e->contexts, &work->context, 1);
        work->context = HLG_NONE;
        return false;
    }
    work->page_count = count;
    order.groups[0] = (struct hlg_page_list){.count = count, .pages = work->pages};
    order.groups[1] = (struct hlg_page_list){.count = 1, .pages = &work->context};
    const int status = hlg_messenger_admit(e->node.messenger, work->ticket, &order);
    if (status != 0) {
        pages_give(&e->pages, work->pages, count);
        pages_give(&e->contexts, &work->context, 1);
        work->page_count = 0;
        work->context = HLG_NONE;
        e->node.retry = status == -HLG_ELIMIT;
        return false;
    }
    work->state = WORK_RUNNING;
    return true;
}

/* ---- Forward passes ---- */

/* Announce a chunk of a request and put it into the step. Returns the tokens it takes. */
static uint32_t add_chunk(struct engine *e, struct work *work, uint32_t budget)
{
    const uint32_t count = hlg_min_u32(work->tokens - work->computed, budget);
    const struct tlm_sequence sequence = {
        .pages = work->pages,
        .tokens = work->prompt + work->computed,
        .page_count = work->page_count,
        .position = work->computed,
        .token_count = count,
    };
    const bool last = work->computed + count == work->tokens;
    const int status =
        hlg_messenger_chunk(e->node.messenger, work->ticket, e->forward, work->computed, count);
    if (status != 0) {
        e->node.retry = e->node.retry || status == -HLG_ELIMIT;
        return 0;
    }
    const bool added = ranks_step_add(e->node.ranks, 0, &sequence, last ? work->context : HLG_NONE);
    HLG_ASSERT(added); /* budget and sequence count were looked at */
    work->in_forward = true;
    work->first = work->first == 0 ? e->forwards + 1 : work->first;
    work->last = last;
    work->computed += count;
    return count;
}

/*
 * Whether the messenger may still hold as many forwards as it can: those from the first one on of the
 * oldest request that is not sent. That request is in every forward until it is done, since it is the
 * first in line, and has fewer chunks than NODE_FORWARDS_MAX; so this ends.
 */
static bool is_full(const struct engine *e)
{
    uint64_t oldest = e->forwards + 1;
    for (uint32_t i = 0; i < e->order_count; i++) {
        const struct work *work = &e->works[e->order[i]];
        oldest = work->first != 0 && work->first < oldest ? work->first : oldest;
    }
    return e->forwards + 1 - oldest >= NODE_FORWARDS_MAX - 1;
}

/* Start a forward pass where there is work and none is under way. */
static void start_forward(struct engine *e)
{
    const struct tlm_config *model = &e->node.options.config.model;
    uint32_t budget = e->node.options.config.chunk_tokens;
    if (ranks_step_running(e->node.ranks, 0) || is_full(e)) {
        return;
    }
    if (budget == 0 || budget > model->batch_tokens_max) {
        budget = model->batch_tokens_max;
    }
    e->forward = e->forward == TLM_FORWARD_MAX ? 1 : e->forward + 1;
    const struct step *step = ranks_step_begin(e->node.ranks, 0, e->forward);
    for (uint32_t i = 0; i < e->order_count; i++) {
        struct work *work = &e->works[e->order[i]];
        if (work->state == WORK_WAITING && !admit(e, work)) {
            break; /* first come, first served */
        }
    }
    for (uint32_t i = 0;
         i < e->order_count && budget > 0 && step->sequence_count < model->batch_sequences_max;
         i++) {
        struct work *work = &e->works[e->order[i]];
        if (work->state == WORK_RUNNING) {
            budget -= add_chunk(e, work, budget);
        }
    }
    if (step->sequence_count == 0) {
        e->forward--; /* unused */
        return;
    }
    plant_fabric_forward(&e->node, e->forward);
    e->posted = node_now();
    ranks_step_post(e->node.ranks, 0);
}

/* A forward pass ended. Returns whether it went well. */
static bool end_forward(struct engine *e)
{
    const struct step *step = ranks_step_take(e->node.ranks, 0);
    if (step == NULL) {
        return true;
    }
    if (atomic_load(&step->status) != 0) {
        char why[CONTROL_TEXT_BYTES];
        ranks_step_why(e->node.ranks, 0, why, sizeof why);
        node_say(&e->node, "forward %" PRIu32 " failed: %s; the node cannot go on", step->forward,
                 why);
        (void)hlg_messenger_forward_abort(e->node.messenger, step->forward);
        return false;
    }
    const hlg_time now = node_now();
    while (hlg_messenger_forward_end(e->node.messenger, step->forward) == -HLG_ELIMIT) {
        (void)poll(NULL, 0, 1); /* it must not be lost, and the queue is drained all the time */
    }
    e->forwards++;
    e->forwards_ns += now - e->posted;
    node_send_step(&e->node, step, e->posted, now);
    for (uint32_t i = 0; i < WORKS_MAX; i++) {
        struct work *work = &e->works[i];
        if (!work->in_forward) {
            continue;
        }
        work->in_forward = false;
        if (work->last && work->state == WORK_RUNNING) {
            const struct control_forward_end frame = {
                .head.kind = CONTROL_FORWARD_END, .number = work->number, .ended = now};
            work->state = WORK_DONE;
            node_send(&e->node, &frame, sizeof frame);
        }
        finish(e, work);
    }
    return true;
}

/* ---- Reports ---- */

static const char *const commands[] = {
    [HLG_COMMAND_RELEASE] = "release",         [HLG_COMMAND_ADMIT] = "admit",
    [HLG_COMMAND_REJECT] = "reject",           [HLG_COMMAND_CHUNK] = "chunk",
    [HLG_COMMAND_FORWARD_END] = "forward end", [HLG_COMMAND_FORWARD_ABORT] = "forward abort",
};

static void take_refused(struct engine *e, const struct hlg_report *report)
{
    if (report->error == -HLG_ESTALE) {
        return; /* the request ended meanwhile, and its own reports say so */
    }
    const bool known =
        report->command < sizeof commands / sizeof commands[0] && commands[report->command] != NULL;
    node_say(&e->node, "request %.*s: the messenger refused '%s': %s", (int)report->id_bytes,
             (const char *)report->id, known ? commands[report->command] : "a command",
             hlg_error_text(report->error));
    if (report->command == HLG_COMMAND_ADMIT) {
        struct work *work = find_work(e, report->ticket);
        if (work != NULL) {
            work->state = WORK_STOPPED;
        }
        (void)hlg_messenger_reject(e->node.messenger, report->ticket, 0);
    }
}

static void take_ended(struct engine *e, const struct hlg_report *report)
{
    struct work *work = find_work(e, report->ticket);
    if (work == NULL) {
        return;
    }
    if (report->kind == HLG_NOTICE_STOPPING) {
        work->state = WORK_STOPPED;
        return;
    }
    e->sent += report->kind == HLG_NOTICE_SENT ? 1 : 0;
    e->stopped += report->kind == HLG_NOTICE_SENT ? 0 : 1;
    work->over = true;
    work->poisoned = report->kind == HLG_NOTICE_POISONED;
    finish(e, work);
}

static void take_report(struct engine *e, const struct hlg_report *report)
{
    const bool alone = e->node.options.control < 0;
    switch (report->kind) {
    case HLG_NOTICE_REQUESTED:
        take_request(e, report->ticket);
        break;
    case HLG_NOTICE_STOPPING:
    case HLG_NOTICE_SENT:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_POISONED:
        take_ended(e, report);
        break;
    case HLG_REPORT_REFUSED:
        take_refused(e, report);
        break;
    case HLG_REPORT_DRAINED:
        e->drained = true;
        break;
    case HLG_NOTICE_PEER_REFUSED:
        node_say(&e->node, "refused a decode node: %s", report->text);
        break;
    case HLG_NOTICE_PEER_UP:
        if (alone) {
            node_say(&e->node, "decode node at %s is up", report->text);
        }
        break;
    case HLG_NOTICE_PEER_DOWN:
        if (alone) { /* else the starter says it, and knows why */
            node_say(&e->node, "a decode node is gone: %s", report->text);
        }
        break;
    default: /* those of a decode node */
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

/* SIGTERM came: take nothing new, and end when all that was taken is over. Returns whether to go on. */
static bool drain(struct engine *e)
{
    const hlg_time now = node_now();
    if (!e->node.draining) {
        return true;
    }
    if (e->drain_due == 0 && hlg_messenger_drain(e->node.messenger) == 0) {
        e->drain_due = now + DRAIN_NS;
        node_say(&e->node, "draining: no new requests are taken");
    }
    node_wake_at(&e->node, e->drain_due == 0 ? now : e->drain_due);
    return !e->drained && (e->drain_due == 0 || now < e->drain_due);
}

static int end_drained(struct engine *e)
{
    if (e->drained) {
        node_say(&e->node, "drained; %" PRIu64 " requests sent, %" PRIu64 " stopped", e->sent,
                 e->stopped);
        return CLI_DONE;
    }
    node_say(&e->node,
             "not drained within %" PRIu64 " s: what is open is given up; send SIGTERM earlier, or "
             "cancel it on the decode nodes",
             (uint64_t)(DRAIN_NS / HLG_NS_PER_S));
    return CLI_FAILED;
}

static int run(struct engine *e)
{
    node_announce(&e->node);
    while (!e->node.stop && !e->node.interrupted && drain(e)) {
        if (node_wait(&e->node) != CLI_DONE) {
            return CLI_FAILED;
        }
        while (node_frame(&e->node) != NULL) {
        }
        take_reports(e);
        if (!end_forward(e)) {
            return CLI_FAILED;
        }
        start_forward(e);
    }
    struct control_stats stats = {
        .forwards = e->forwards,
        .forwards_ns = e->forwards_ns,
        .pages = (uint64_t)e->pages.count + e->contexts.count,
        .pages_free = (uint64_t)e->pages.free + e->contexts.free,
        .pages_poisoned = e->pages_poisoned,
    };
    if (e->node.interrupted) {
        node_say(&e->node,
                 "interrupted; %" PRIu64 " requests sent, %" PRIu64 " stopped, %" PRIu64
                 " forwards (prompts of one token need no prefill node and are not among them); "
                 "%" PRIu64 " of %" PRIu64 " pages free",
                 e->sent, e->stopped, e->forwards, stats.pages_free, stats.pages);
        return CLI_INTERRUPTED;
    }
    if (e->node.draining && !e->node.stop) {
        return end_drained(e);
    }
    node_send_stats(&e->node, &stats);
    return e->node.abandoned ? CLI_FAILED : CLI_DONE;
}

static int make_pages(struct engine *e)
{
    const struct hlg_group *groups = e->node.layout.groups;
    const uint32_t most =
        hlg_div_ceil(NODE_CONTEXT_TOKENS, e->node.options.config.model.page_tokens);
    const size_t words = (size_t)most + NODE_CONTEXT_TOKENS;
    e->word_memory = calloc(WORKS_MAX * words, sizeof *e->word_memory);
    if (e->word_memory == NULL || !pages_init(&e->pages, groups[0].page_count) ||
        !pages_init(&e->contexts, groups[1].page_count)) {
        node_say(&e->node, "no memory");
        return CLI_FAILED;
    }
    for (uint32_t i = 0; i < WORKS_MAX; i++) {
        e->works[i].pages = e->word_memory + i * words;
        e->works[i].prompt = e->works[i].pages + most;
    }
    return CLI_DONE;
}

int main(int argc, char **argv)
{
    static char title[] = "halage node prefill";
    static struct engine engine;
    struct node *node = &engine.node;
    argv[0] = title;
    if (node_options_parse(&node->options, HLG_ROLE_PREFILL, argc, argv) != 0) {
        return CLI_BAD_INPUT;
    }
    if (node->options.address == NULL) {
        node->options.address = "127.0.0.1:7700";
    }
    int status = node_start(node, HLG_ROLE_PREFILL);
    if (status == CLI_DONE) {
        status = make_pages(&engine);
    }
    if (status == CLI_DONE) {
        status = run(&engine);
    }
    status = node_stop(node, status);
    pages_fini(&engine.pages);
    pages_fini(&engine.contexts);
    free(engine.word_memory);
    return status;
}
