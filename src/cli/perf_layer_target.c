/* The decode node of `halage perf layer`: a messenger, and an engine that asks for one request at a time. */
#include "perf.h"

#include <stdlib.h>

#define UP_NS    (20 * HLG_NS_PER_S)
#define READY_NS (60 * HLG_NS_PER_S)
#define SLICE_NS (100 * HLG_NS_PER_MS)

struct perf_layer_target {
    struct perf_node node;
    hlg_peer peer;
};

static int connect_up(struct perf_layer_target *t, const char *address, char *error)
{
    struct hlg_report report = {0};

    const int rc = hlg_messenger_connect(t->node.messenger, address);
    if (rc >= 0 && perf_node_report(&t->node, UP_NS, &report) == 1 &&
        report.kind == HLG_NOTICE_PEER_UP) {
        t->peer = report.peer;
        return 0;
    }
    (void)snprintf(error, PERF_ERROR_BYTES, "no session with %.60s: %.100s", address, report.text);
    return -HLG_EPEER;
}

int perf_layer_target_open(const struct perf_case *shape, const struct perf_place *place,
                           bool insecure, struct perf_layer_target **target, char *error)
{
    struct hlg_messenger_config config;
    struct perf_layer_target *t = calloc(1, sizeof *t);

    if (t == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    int rc = perf_node_open(&t->node, HLG_ROLE_DECODE, shape, place, insecure, &config, error);
    rc = rc == 0 ? perf_node_start(&t->node, &config, NULL, error) : rc;
    rc = rc == 0 ? connect_up(t, shape->address, error) : rc;
    if (rc != 0) {
        perf_layer_target_close(t);
        return rc;
    }
    *target = t;
    return 0;
}

void perf_layer_target_close(struct perf_layer_target *t)
{
    if (t != NULL) {
        perf_node_close(&t->node);
        free(t);
    }
}

/* One request, from SUBMIT to READY; 1 when the one who asks is gone. */
static int fetch(struct perf_layer_target *t, struct hlg_channel *channel, hlg_time *ready,
                 char *error)
{
    const struct perf_arena *arena = &t->node.arena;
    const hlg_time limit = perf_now() + READY_NS;
    struct hlg_submit submit = {.size = sizeof submit,
                                .source_count = 1,
                                .peers = {t->peer},
                                .tokens = arena->shape.pages + 1};
    struct hlg_report report = {0};
    struct perf_message message;
    hlg_ticket ticket = 0;

    submit.groups[0] = (struct hlg_page_list){.count = arena->shape.pages, .pages = arena->pages};
    int rc = hlg_messenger_submit(t->node.messenger, &submit, &ticket);
    while (rc == 0 && report.kind != HLG_NOTICE_READY) {
        const int got = perf_node_report(&t->node, SLICE_NS, &report);
        if (perf_receive(channel, &message) != 0) {
            return 1; /* it says nothing before our answer: it gave up, or died */
        }
        if ((got == 0 && (perf_now() > limit || perf_interrupted())) ||
            (got == 1 && report.kind != HLG_NOTICE_READY && report.kind != HLG_NOTICE_ACCEPTED)) {
            rc = -HLG_EPEER;
        }
    }
    *ready = perf_now();
    rc = rc == 0 ? hlg_messenger_release(t->node.messenger, ticket) : rc;
    if (rc < 0) {
        (void)snprintf(error, PERF_ERROR_BYTES, "a request did not become ready: %.120s",
                       report.text[0] != '\0' ? report.text : hlg_error_text(rc));
    }
    return rc;
}

int perf_layer_target_go(struct perf_layer_target *t, struct hlg_channel *channel, uint64_t count,
                         char *error)
{
    struct perf_message answer = {.kind = PERF_MESSAGE_DONE};
    int rc = 0;

    perf_watch(NULL); /* the messenger has a watchdog of its own */
    for (uint64_t i = 0; i < count && rc == 0 && !perf_interrupted(); i++) {
        hlg_time ready = 0;
        rc = fetch(t, channel, &ready, error);
        answer.go.count = i;
        answer.go.ready_ns = ready;
        rc = rc == 0 ? perf_send(channel, &answer) : rc;
    }
    return rc > 0 ? -HLG_EPEER : rc;
}
