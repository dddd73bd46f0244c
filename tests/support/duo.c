#include "duo.h"

#include "small_layout.h"

#include <halage/log.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PLACES_MAX 64u

void duo_layout(struct hlg_layout *layout)
{
    *layout = small_layout((struct small_layout){.layers = DUO_LAYERS,
                                                 .planes = 2,
                                                 .heads = 2,
                                                 .head_bytes = 64,
                                                 .page_tokens = DUO_PAGE_TOKENS,
                                                 .pages = DUO_PAGES,
                                                 .context_bytes = 256,
                                                 .contexts = DUO_CONTEXTS});
}

static void log_line(void *context, enum hlg_log_level level, const char *line)
{
    (void)fprintf(stderr, "# %s %s %s\n", (const char *)context, hlg_log_level_text(level), line);
}

void duo_config(struct duo_side *side, uint32_t role, struct hlg_messenger_config *config)
{
    struct hlg_ofi_config ofi = {.provider = "tcp"};
    char error[256] = "";

    if (side->fabric == NULL && hlg_ofi_open(&ofi, &side->fabric, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    hlg_messenger_config_default(config);
    config->role = role;
    config->fabric = side->fabric;
    config->limits.requests_max = 16;
    config->limits.peers_max = 3;
    config->limits.reserve_percent = 0; /* one decoder may have all */
    config->limits.forwards_max = 64;   /* the engine starts one for each request, at once */
    config->limits.prompt_bytes_max = 65536;
    config->limits.message_bytes_max = 1u << 20;
    config->log = log_line;
    config->log_context = role == HLG_ROLE_PREFILL ? "prefill" : "decode";
    config->log_level = getenv("HALAGE_LOG") != NULL ? HLG_LOG_DEBUG : HLG_LOG_ERROR;
    if (role == HLG_ROLE_PREFILL) {
        config->listen = "127.0.0.1:0";
    }
    duo_layout(&config->layout);
}

static int make_memory(struct duo_side *side, bool prefill, struct hlg_fd_header *header)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_HOST};

    hlg_memory_release(side->owner);
    assert_int_equal(hlg_memory_create(&site, side->bytes, &side->owner, NULL, 0), 0);
    side->memory = hlg_memory_base(side->owner);
    for (uint64_t i = 0; prefill && i < side->bytes; i++) {
        side->memory[i] = (uint8_t)(i * 167 + i / 256);
    }
    return hlg_memory_export(side->owner, header, NULL, 0);
}

int duo_open_side(struct duo *duo, struct duo_side *side, const struct hlg_messenger_config *config)
{
    bool prefill = config->role == HLG_ROLE_PREFILL;

    int error = hlg_messenger_create(config, &side->messenger, duo->error, sizeof duo->error);
    if (error != 0) {
        return error;
    }
    assert_true(hlg_places_linear(&config->layout, 0, NULL, 0, &side->bytes) > 0);
    struct hlg_fd_header header;
    const int fd = side->take_memory != NULL ? side->take_memory(side, &header)
                                             : make_memory(side, prefill, &header);
    assert_true(fd >= 0);
    error = hlg_messenger_region_import(side->messenger, 0, fd, &header);
    (void)close(fd);
    if (error < 0) {
        (void)snprintf(duo->error, sizeof duo->error, "%s", hlg_messenger_error(side->messenger));
        return error;
    }
    assert_int_equal(hlg_messenger_places_linear(side->messenger), 0);
    if (prefill) {
        const _Atomic uint32_t *word = duo->word != NULL ? duo->word : &duo->counter;
        assert_int_equal(hlg_messenger_counter_watch(side->messenger, 0, word), 0);
    }
    error = hlg_messenger_start(side->messenger);
    (void)snprintf(duo->error, sizeof duo->error, "%s", hlg_messenger_error(side->messenger));
    return error;
}

void duo_close_side(struct duo_side *side)
{
    (void)hlg_messenger_destroy(side->messenger);
    side->messenger = NULL;
    if (side->fabric != NULL) {
        hlg_ofi_close(side->fabric);
    }
    side->fabric = NULL;
    hlg_memory_release(side->owner);
    side->owner = NULL;
    side->memory = NULL;
}

int duo_connect(struct duo *duo)
{
    char address[64];

    (void)snprintf(address, sizeof address, "127.0.0.1:%d",
                   hlg_messenger_port(duo->prefill.messenger));
    int connection = hlg_messenger_connect(duo->decode.messenger, address);
    assert_true(connection > 0);
    return connection;
}

struct duo *duo_open(void)
{
    return duo_open_watching(NULL, NULL);
}

struct duo *duo_open_watching(const _Atomic uint32_t *word, void (*launch)(uint32_t forward))
{
    struct hlg_messenger_config config;
    struct duo *duo = calloc(1, sizeof *duo);

    assert_non_null(duo);
    duo->word = word;
    duo->launch = launch;
    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    if (duo_open_side(duo, &duo->prefill, &config) != 0) {
        fail_msg("%s", duo->error);
    }
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    if (duo_open_side(duo, &duo->decode, &config) != 0) {
        fail_msg("%s", duo->error);
    }
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    return duo;
}

void duo_close(struct duo *duo)
{
    duo_close_side(&duo->decode);
    duo_close_side(&duo->prefill);
    free(duo);
}

/* Takes a request with the next source pages and computes it in one forward. */
static void compute(struct duo *duo, hlg_ticket ticket)
{
    struct hlg_messenger *m = duo->prefill.messenger;
    struct hlg_request request = {.size = sizeof request};
    struct hlg_admit admit = {.size = sizeof admit};
    struct hlg_layout layout;
    uint32_t pages[DUO_PAGES];
    uint32_t context = duo->context++ % DUO_CONTEXTS;

    assert_int_equal(hlg_messenger_request(m, ticket, &request), 0);
    duo_layout(&layout);
    uint32_t count = hlg_layout_pages(&layout, 0, request.tokens - 1);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = duo->page++ % DUO_PAGES;
    }
    admit.groups[0] = (struct hlg_page_list){.count = count, .pages = pages};
    admit.groups[1] = (struct hlg_page_list){.count = 1, .pages = &context};
    duo->forward++;
    assert_int_equal(hlg_messenger_admit(m, ticket, &admit), 0);
    assert_int_equal(hlg_messenger_chunk(m, ticket, duo->forward, 0, request.tokens - 1), 0);
    if (duo->launch != NULL) {
        duo->launch(duo->forward);
    }
    for (uint32_t done = 1;
         duo->launch == NULL && duo->progress == DUO_COUNTER && done <= DUO_LAYERS + 1; done++) {
        atomic_store_explicit(&duo->counter, duo->forward << 8 | done, memory_order_release);
    }
    if (duo->progress == DUO_FORWARD_END) {
        assert_int_equal(hlg_messenger_forward_end(m, duo->forward), 0);
    } else {
        duo->forward_of[(uint32_t)ticket % DUO_TICKETS_MAX] = duo->forward;
    }
}

/* The last report of a request came. */
static void finish(struct duo *duo, hlg_ticket ticket)
{
    uint32_t *forward = &duo->forward_of[(uint32_t)ticket % DUO_TICKETS_MAX];

    if (*forward != 0) {
        assert_int_equal(hlg_messenger_forward_end(duo->prefill.messenger, *forward), 0);
        *forward = 0;
    }
    assert_int_equal(hlg_messenger_release(duo->prefill.messenger, ticket), 0);
}

static int take_reports(struct duo_side *side)
{
    if (side->messenger == NULL) {
        return 0;
    }
    assert_true(side->report_count < DUO_REPORTS_MAX);
    int count = hlg_messenger_poll(side->messenger, side->reports + side->report_count,
                                   sizeof(struct hlg_report), DUO_REPORTS_MAX - side->report_count);
    assert_true(count >= 0);
    side->report_count += (uint32_t)count;
    return count;
}

int duo_turn(struct duo *duo)
{
    int work = take_reports(&duo->decode) + take_reports(&duo->prefill);

    while (!duo->passive && duo->answered < duo->prefill.report_count) {
        const struct hlg_report *report = &duo->prefill.reports[duo->answered++];
        if (report->kind == HLG_NOTICE_REQUESTED) {
            compute(duo, report->ticket);
        } else if (report->kind == HLG_NOTICE_SENT || report->kind == HLG_NOTICE_FENCED ||
                   report->kind == HLG_NOTICE_POISONED) {
            finish(duo, report->ticket);
        }
    }
    return work;
}

void duo_nap(const struct duo *duo)
{
    struct pollfd fds[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};

    if (duo->decode.messenger != NULL) {
        fds[0].fd = hlg_messenger_fd(duo->decode.messenger);
    }
    if (duo->prefill.messenger != NULL) {
        fds[1].fd = hlg_messenger_fd(duo->prefill.messenger);
    }
    (void)poll(fds, 2, 1);
}

void duo_wait(struct duo *duo, const struct duo_side *side, uint32_t kind, uint32_t count)
{
    for (uint32_t i = 0; i < DUO_TURNS_MAX; i++) {
        int work = duo_turn(duo);
        if (duo_count(side, kind) >= count) {
            return;
        }
        if (work == 0) {
            duo_nap(duo);
        }
    }
    fail_msg("report %s: %u of %u came", hlg_notice_text(kind), duo_count(side, kind), count);
}

uint32_t duo_count(const struct duo_side *side, uint32_t kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < side->report_count; i++) {
        count += side->reports[i].kind == kind;
    }
    return count;
}

const struct hlg_report *duo_last(const struct duo_side *side, uint32_t kind)
{
    for (uint32_t i = side->report_count; i > 0; i--) {
        if (side->reports[i - 1].kind == kind) {
            return &side->reports[i - 1];
        }
    }
    fail_msg("no report %s", hlg_notice_text(kind));
    return NULL;
}

int duo_submit(struct duo *duo, const char *id, uint32_t tokens, uint32_t page, uint32_t context,
               hlg_ticket *ticket)
{
    uint32_t pages[DUO_PAGES];
    struct hlg_layout layout;

    duo_layout(&layout);
    uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = (page + i) % DUO_PAGES;
    }
    struct hlg_submit submit = {
        .size = sizeof submit,
        .source_count = 1,
        .peers = {duo->peer},
        .tokens = tokens,
        .id_bytes = (uint32_t)strlen(id),
        .prompt_bytes = (uint32_t)strlen(id),
        .ttl_ns = 60 * HLG_NS_PER_S,
        .id = id,
        .prompt = id,
        .groups = {{.count = count, .pages = pages}, {.count = 1, .pages = &context}}};
    return hlg_messenger_submit(duo->decode.messenger, &submit, ticket);
}

void duo_expect(const struct duo *duo, uint32_t target_page, uint32_t source_page, uint32_t count)
{
    struct hlg_place places[PLACES_MAX];
    struct hlg_layout layout;

    duo_layout(&layout);
    int place_count = hlg_places_linear(&layout, 0, places, PLACES_MAX, NULL);
    for (int p = 0; p < place_count; p++) {
        for (uint32_t i = 0; places[p].group == 0 && i < count; i++) {
            uint64_t from = places[p].offset + (source_page + i) % DUO_PAGES * places[p].stride;
            uint64_t to = places[p].offset + (target_page + i) % DUO_PAGES * places[p].stride;
            assert_memory_equal(duo->decode.memory + to, duo->prefill.memory + from,
                                places[p].stride);
        }
    }
}
