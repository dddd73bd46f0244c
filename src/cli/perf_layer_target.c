/* The decode node of `halage perf layer`: a messenger, and an engine that asks for one request at a time. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "perf.h"

#include <halage/messenger.h>
#include <halage/transport/ofi.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UP_NS    (20 * HLG_NS_PER_S)
#define READY_NS (60 * HLG_NS_PER_S)
#define SLICE_MS 100

struct perf_layer_target {
    struct perf_layer_case shape;
    struct hlg_messenger *messenger;
    struct hlg_fabric *fabric;
    void *memory;
    uint64_t bytes;
    uint32_t *pages;
    hlg_peer peer;
};

void perf_layer_layout(const struct perf_layer_case *shape, struct hlg_layout *layout)
{
    *layout = (struct hlg_layout){
        .tp = 1,
        .stages = 1,
        .pools = 1,
        .layers = shape->layers,
        .stage_limit = {shape->layers},
        .rank_limit = 1,
        .all_reduce = 1,
        .piece_bytes_max = hlg_max_u32(HLG_PIECE_BYTES_DEFAULT, shape->page_bytes),
        .group_count = 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = shape->page_bytes,
                    .page_tokens = 1,
                    .page_count = shape->pages,
                    .layers = {shape->layers == 64 ? UINT64_MAX : (1ull << shape->layers) - 1}}}};
}

/* The next report, or 0 after `span`. */
static int next_report(struct perf_layer_target *t, hlg_time span, struct hlg_report *report)
{
    const hlg_time limit = perf_now() + span;

    for (;;) {
        const int got = hlg_messenger_poll(t->messenger, report, sizeof *report, 1);
        if (got != 0 || perf_now() > limit || perf_interrupted()) {
            return got;
        }
        struct pollfd fd = {.fd = hlg_messenger_fd(t->messenger), .events = POLLIN};
        (void)poll(&fd, 1, SLICE_MS); /* an error or a signal only makes it look again */
    }
}

static int connect_up(struct perf_layer_target *t, char *error)
{
    struct hlg_report report = {0};

    const int rc = hlg_messenger_connect(t->messenger, t->shape.address);
    if (rc >= 0 && next_report(t, UP_NS, &report) == 1 && report.kind == HLG_NOTICE_PEER_UP) {
        t->peer = report.peer;
        return 0;
    }
    (void)snprintf(error, PERF_ERROR_BYTES, "no session with %.60s: %.100s", t->shape.address,
                   report.text);
    return -HLG_EPEER;
}

static int make_messenger(struct perf_layer_target *t, bool insecure, char *error)
{
    struct hlg_messenger_config config;

    hlg_messenger_config_default(&config);
    config.role = HLG_ROLE_DECODE;
    config.fabric = t->fabric;
    config.allow_unauthenticated = insecure;
    config.limits.message_bytes_max = PERF_FRAME_BYTES;
    config.limits.prompt_bytes_max = 64;
    perf_layer_layout(&t->shape, &config.layout);
    int rc = hlg_messenger_create(&config, &t->messenger, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        return rc;
    }
    rc = hlg_messenger_region_add(t->messenger, 0, &HLG_MEM_HOST(t->memory, t->bytes));
    rc = rc >= 0 ? hlg_messenger_places_linear(t->messenger) : rc;
    rc = rc >= 0 ? hlg_messenger_start(t->messenger) : rc;
    if (rc < 0) {
        (void)snprintf(error, PERF_ERROR_BYTES, "%s", hlg_messenger_error(t->messenger));
        return rc;
    }
    return connect_up(t, error);
}

int perf_layer_target_open(const struct perf_layer_case *shape, const struct perf_place *place,
                           bool insecure, struct perf_layer_target **target, char *error)
{
    const struct hlg_ofi_config ofi = {.provider = shape->provider, .node = place->node};
    struct hlg_layout layout;

    struct perf_layer_target *t = calloc(1, sizeof *t);
    (void)snprintf(error, PERF_ERROR_BYTES, "there is no memory for so many pages");
    if (t == NULL) {
        return -HLG_ENOMEM;
    }
    t->shape = *shape;
    perf_layer_layout(shape, &layout);
    t->pages = malloc(shape->pages * sizeof *t->pages);
    int rc =
        hlg_places_linear(&layout, 0, NULL, 0, &t->bytes) < 0 || t->pages == NULL ? -HLG_ENOMEM : 0;
    if (rc == 0) {
        t->memory = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        t->memory = t->memory == MAP_FAILED ? NULL : t->memory;
        rc = t->memory == NULL ? -HLG_ENOMEM : 0;
    }
    for (uint32_t i = 0; rc == 0 && i < shape->pages; i++) {
        t->pages[i] = i;
    }
    if (rc == 0) {
        rc = hlg_ofi_open(&ofi, &t->fabric, error, PERF_ERROR_BYTES);
    }
    rc = rc == 0 ? make_messenger(t, insecure, error) : rc;
    if (rc != 0) {
        perf_layer_target_close(t);
        return rc;
    }
    error[0] = '\0';
    *target = t;
    return 0;
}

void perf_layer_target_close(struct perf_layer_target *t)
{
    if (t == NULL) {
        return;
    }
    (void)hlg_messenger_destroy(t->messenger);
    if (t->fabric != NULL) {
        hlg_ofi_close(t->fabric);
    }
    if (t->memory != NULL) {
        (void)munmap(t->memory, t->bytes);
    }
    free(t->pages);
    free(t);
}

/* One request, from SUBMIT to READY. */
static int fetch(struct perf_layer_target *t, hlg_time *ready, char *error)
{
    struct hlg_submit submit = {
        .size = sizeof submit, .source_count = 1, .peers = {t->peer}, .tokens = t->shape.pages + 1};
    struct hlg_report report = {0};
    hlg_ticket ticket = 0;

    submit.groups[0] = (struct hlg_page_list){.count = t->shape.pages, .pages = t->pages};
    int rc = hlg_messenger_submit(t->messenger, &submit, &ticket);
    while (rc == 0 && report.kind != HLG_NOTICE_READY) {
        if (next_report(t, READY_NS, &report) != 1 ||
            (report.kind != HLG_NOTICE_READY && report.kind != HLG_NOTICE_ACCEPTED)) {
            rc = -HLG_EPEER;
        }
    }
    *ready = perf_now();
    rc = rc == 0 ? hlg_messenger_release(t->messenger, ticket) : rc;
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

    for (uint64_t i = 0; i < count && rc == 0 && !perf_interrupted(); i++) {
        hlg_time ready = 0;
        rc = fetch(t, &ready, error);
        answer.go.count = i;
        answer.go.ready_ns = ready;
        rc = rc == 0 ? perf_send(channel, &answer) : rc;
    }
    return rc;
}
