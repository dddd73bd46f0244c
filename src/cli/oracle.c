#define _GNU_SOURCE /* close_range(), MAP_ANONYMOUS */
#include "oracle.h"

#include "../node/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <reference.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Outputs shorter than this may well be constant. */
#define CONSTANT_MIN 4u

struct judge {
    const struct node_config *config;
    const struct workload *workload;
    struct tlm_model *model;
    struct tlm_reference *reference;
    uint8_t *page; /* [page bytes] */
    uint64_t frame[CONTROL_FRAME_BYTES_MAX / sizeof(uint64_t)];
    uint32_t prompt[NODE_CONTEXT_TOKENS];
};

/* The arrays of a result. */
struct parts {
    const uint64_t *logits;
    const uint64_t *landed;
    const uint64_t *contexts;
    const uint32_t *tokens;
};

static struct parts parts_of(const struct control_result *result)
{
    struct parts parts;
    parts.logits = result->values;
    parts.landed = parts.logits + result->output_count;
    parts.contexts = parts.landed + result->landed_count;
    parts.tokens = (const uint32_t *)(const void *)(parts.contexts + result->tp);
    return parts;
}

static uint64_t right_digest(struct judge *j, struct tlm_reference_page *page)
{
    uint64_t digest = DIGEST_BEGIN;
    page->page = 0;
    while (tlm_reference_slots(j->reference, page) > 0) {
        const uint32_t slots = tlm_reference_page_build(j->reference, page, j->page);
        digest = digest_page(digest, &j->config->model, page->tp, j->page, slots);
        page->page++;
    }
    return digest;
}

static bool same_landed(struct judge *j, const struct control_result *result,
                        struct oracle_verdict *verdict)
{
    const struct tlm_config *model = &j->config->model;
    const uint32_t planes = tlm_planes(model);
    const struct parts parts = parts_of(result);
    if (result->landed_count != result->tp * model->layers * planes) {
        (void)snprintf(verdict->text, sizeof verdict->text, "the report has the wrong size");
        return false;
    }
    for (uint32_t i = 0; i < result->landed_count; i++) {
        struct tlm_reference_page page = {
            .tp = result->tp,
            .rank = i / planes / model->layers, /* flooring: i numbers (rank, layer, plane) */
            .layer = i / planes % model->layers,
            .plane = i % planes,
            .page_tokens = model->page_tokens,
            .arrangement = model->arrangement,
        };
        if (right_digest(j, &page) != parts.landed[i]) {
            (void)snprintf(verdict->text, sizeof verdict->text,
                           "landed bytes differ: pool %" PRIu32 ", rank %" PRIu32 ", layer %" PRIu32
                           ", plane %" PRIu32,
                           result->pool, page.rank, page.layer, page.plane);
            return false;
        }
    }
    return true;
}

static bool same_context(struct judge *j, const struct control_result *result,
                         struct oracle_verdict *verdict)
{
    const struct tlm_reference_result *right = tlm_reference_result(j->reference);
    const struct parts parts = parts_of(result);
    const uint64_t digest = right->context == NULL
                                ? 0
                                : digest_bytes(DIGEST_BEGIN, right->context,
                                               j->config->model.hidden * sizeof *right->context);
    for (uint32_t rank = 0; rank < result->tp; rank++) {
        if (parts.contexts[rank] != digest) {
            (void)snprintf(verdict->text, sizeof verdict->text,
                           "context differs: pool %" PRIu32 ", rank %" PRIu32, result->pool, rank);
            return false;
        }
    }
    return true;
}

static bool same_output(struct judge *j, const struct control_result *result,
                        struct oracle_verdict *verdict)
{
    const struct tlm_reference_result *right = tlm_reference_result(j->reference);
    const struct parts parts = parts_of(result);
    for (uint32_t i = 0; i < result->output_count; i++) {
        if (parts.logits[i] != right->logits_hash[i]) {
            (void)snprintf(verdict->text, sizeof verdict->text, "logits of step %" PRIu32 " differ",
                           i);
            return false;
        }
        if (parts.tokens[i] != right->tokens[i]) {
            (void)snprintf(verdict->text, sizeof verdict->text,
                           "token of step %" PRIu32 " differs: %" PRIu32 ", not %" PRIu32, i,
                           parts.tokens[i], right->tokens[i]);
            return false;
        }
    }
    return true;
}

static bool is_constant(const struct control_result *result)
{
    const struct parts parts = parts_of(result);
    for (uint32_t i = 1; i < result->output_count; i++) {
        if (parts.tokens[i] != parts.tokens[0]) {
            return false;
        }
    }
    return result->output_count >= CONSTANT_MIN;
}

static void compare(struct judge *j, const struct control_result *result,
                    struct oracle_verdict *verdict)
{
    HLG_ASSERT(result->number < j->workload->count);
    const struct workload_request *request = &j->workload->requests[result->number];
    *verdict = (struct oracle_verdict){.number = result->number};
    tlm_prompt(j->workload->seed, result->number, request->prompt_tokens, j->config->model.vocab,
               j->prompt);
    if (result->output_count != request->output_count ||
        tlm_reference_run(j->reference, j->prompt, request->prompt_tokens, request->output_count) !=
            0) {
        (void)snprintf(verdict->text, sizeof verdict->text, "the reference cannot run it");
        return;
    }
    verdict->constant = is_constant(result) ? 1 : 0;
    verdict->same = same_landed(j, result, verdict) && same_context(j, result, verdict) &&
                            same_output(j, result, verdict)
                        ? 1
                        : 0;
    if (verdict->same == 1 && result->pieces_counted != result->pieces_expected) {
        verdict->same = 0;
        (void)snprintf(verdict->text, sizeof verdict->text,
                       "%" PRIu64 " pieces counted, %" PRIu64 " expected", result->pieces_counted,
                       result->pieces_expected);
    }
}

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The process ends with it, and its memory too. */
static bool prepare(struct judge *j)
{
    const struct tlm_config *config = &j->config->model;
    const size_t model_bytes = tlm_model_bytes(config);
    const size_t reference_bytes = tlm_reference_bytes(config);
    void *model = map_memory(model_bytes);
    void *reference = map_memory(reference_bytes);
    j->page = map_memory(tlm_page_bytes(config, 1));
    return model != NULL && reference != NULL && j->page != NULL &&
           tlm_model_init(model, model_bytes, config, &j->model) == 0 &&
           tlm_reference_init(reference, reference_bytes, j->model, &j->reference) == 0;
}

static _Noreturn void oracle_main(const struct node_config *config, const struct workload *workload,
                                  int socket)
{
    static struct judge judge;
    struct pollfd fd = {.fd = socket, .events = POLLIN};
    judge.config = config;
    judge.workload = workload;
    /* What is measured goes first; with the guard nothing is. */
    (void)setpriority(PRIO_PROCESS, 0, config->guard ? 0 : 5);
    if (!prepare(&judge)) {
        _exit(1);
    }
    for (;;) {
        struct oracle_verdict verdict;
        (void)poll(&fd, 1, -1);
        const int bytes = control_receive(socket, judge.frame);
        if (bytes == 0) {
            _exit(0);
        }
        if (bytes < 0) {
            continue;
        }
        compare(&judge, (const struct control_result *)(const void *)judge.frame, &verdict);
        if (control_send(socket, &verdict, sizeof verdict, true) != 1) {
            _exit(0);
        }
    }
}

int oracle_start(struct oracle *oracle, const struct node_config *config,
                 const struct workload *workload)
{
    int sockets[2];
    const pid_t parent = getpid();
    if (control_pair(sockets) != 0) {
        return -HLG_EIO;
    }
    (void)fflush(NULL); /* or the child would print it again */
    oracle->pid = fork();
    if (oracle->pid == 0) {
        (void)signal(SIGINT, SIG_IGN);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1);
        }
        (void)dup2(sockets[1], 3);
        (void)close_range(4, ~0u, 0);
        oracle_main(config, workload, 3);
    }
    (void)close(sockets[1]);
    oracle->socket = sockets[0];
    return oracle->pid < 0 ? -HLG_EIO : 0;
}

int oracle_ask(const struct oracle *oracle, const struct control_result *result)
{
    const size_t bytes =
        control_result_bytes(result->output_count, result->landed_count, result->tp);
    return control_send(oracle->socket, result, bytes, true) == 1 ? 0 : -HLG_EIO;
}

int oracle_take(const struct oracle *oracle, struct oracle_verdict *verdict)
{
    static uint64_t frame[CONTROL_FRAME_BYTES_MAX / sizeof(uint64_t)];
    const int bytes = control_receive(oracle->socket, frame);
    if (bytes == -HLG_ESTATE) {
        return 0;
    }
    if (bytes != (int)sizeof *verdict) {
        return -HLG_EIO;
    }
    memcpy(verdict, frame, sizeof *verdict);
    return 1;
}

void oracle_stop(struct oracle *oracle)
{
    if (oracle->socket >= 0) {
        (void)close(oracle->socket);
    }
    if (oracle->pid > 0) {
        (void)kill(oracle->pid, SIGKILL);
        (void)waitpid(oracle->pid, NULL, 0);
    }
    *oracle = (struct oracle){.socket = -1};
}
