/*
 * The engine's side of the library, as an engine sees it: two messengers with all their threads, over
 * libfabric and TCP on loopback. What the machines decide is tested elsewhere; here it is that calls
 * reach them, reports come back, and what cannot work is said in words.
 */
#define _GNU_SOURCE /* sigaction, MAP_ANONYMOUS */
#include "../support/duo.h"

#include <halage/placement.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int duo_setup(void **state)
{
    *state = duo_open();
    return 0;
}

static int empty_setup(void **state)
{
    *state = calloc(1, sizeof(struct duo));
    return *state == NULL;
}

static int duo_teardown(void **state)
{
    duo_close(*state);
    return 0;
}

static void run_requests(struct duo *duo)
{
    static const uint32_t tokens[] = {2, 5, 33, 200, 65};
    uint32_t target[5] = {0};
    uint32_t source[5] = {0};
    hlg_ticket tickets[5];
    struct hlg_layout layout;
    uint32_t page = 0;

    duo_layout(&layout);
    for (uint32_t i = 0; i < 5; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "request-%u", i);
        target[i] = (page + 11) % DUO_PAGES; /* so that no page has its source's number */
        source[i] = page;
        assert_int_equal(duo_submit(duo, id, tokens[i], target[i], i, &tickets[i]), 0);
        page += hlg_layout_pages(&layout, 0, tokens[i] - 1);
    }
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 5);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 5);
    for (uint32_t i = 0; i < 5; i++) {
        duo_expect(duo, target[i], source[i], hlg_layout_pages(&layout, 0, tokens[i] - 1));
        assert_int_equal(hlg_messenger_release(duo->decode.messenger, tickets[i]), 0);
    }
    assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_FAILED), 0);
    assert_int_equal(duo_count(&duo->prefill, HLG_REPORT_REFUSED), 0);
    const struct hlg_report *ready = duo_last(&duo->decode, HLG_NOTICE_READY);
    assert_int_equal(ready->pieces_counted, ready->pieces_expected);
    assert_true(ready->bytes > 0 && ready->id_bytes == strlen("request-0"));
    assert_true(ready->submitted <= ready->first_piece && ready->last_piece <= ready->noticed);
}

static void counter_words_move_requests(void **state)
{
    run_requests(*state);
}

static void ends_of_forwards_move_requests(void **state)
{
    struct duo *duo = *state;

    duo->progress = DUO_FORWARD_END;
    run_requests(duo);
}

static void one_token_is_ready_without_a_prefiller(void **state)
{
    struct duo *duo = *state;
    struct hlg_submit submit = {.size = sizeof submit, .tokens = 1, .ttl_ns = HLG_NS_PER_S};
    hlg_ticket ticket = 0;

    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_READY)->ticket, ticket);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
    assert_int_not_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
}

static void a_cancelled_request_returns_its_pages(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "c", 40, 0, 0, &ticket), 0);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), -HLG_ESTATE);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->reason, HLG_REASON_CANCELLED);
    assert_string_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->text, "cancelled");
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, 1);

    /* Calls on what is over meanwhile do no harm. */
    hlg_ticket theirs = duo_last(&duo->prefill, HLG_NOTICE_FENCED)->ticket;
    assert_int_equal(hlg_messenger_chunk(duo->prefill.messenger, theirs, 1, 0, 39), 0);
    assert_int_equal(hlg_messenger_reject(duo->prefill.messenger, theirs, 0), 0);
    duo_wait(duo, &duo->prefill, HLG_REPORT_REFUSED, 2);
    assert_int_equal(duo_last(&duo->prefill, HLG_REPORT_REFUSED)->error, -HLG_ESTALE);
    assert_int_equal(hlg_messenger_release(duo->prefill.messenger, theirs), 0);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);

    /* The same pages serve at once. */
    duo->passive = false;
    duo->answered = duo->prefill.report_count;
    assert_int_equal(duo_submit(duo, "d", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

static void a_prompt_reaches_the_engine_that_rejects_it(void **state)
{
    struct duo *duo = *state;
    struct hlg_request request = {.size = sizeof request};
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "prompt words", 40, 0, 3, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    hlg_ticket theirs = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
    assert_int_equal(hlg_messenger_request(duo->prefill.messenger, theirs, &request), 0);
    assert_int_equal(request.tokens, 40);
    assert_int_equal(request.prompt_bytes, strlen("prompt words"));
    assert_memory_equal(request.prompt, "prompt words", request.prompt_bytes);
    assert_memory_equal(request.id, "prompt words", request.id_bytes);
    assert_int_equal(request.group_count, 2);
    assert_int_equal(request.groups[0].count, 10);
    assert_int_equal(request.groups[1].count, 1);
    assert_int_equal(hlg_messenger_reject(duo->prefill.messenger, theirs, 77), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    const struct hlg_report *failed = duo_last(&duo->decode, HLG_NOTICE_FAILED);
    assert_int_equal(failed->reason, HLG_REASON_REJECTED);
    assert_int_equal(failed->retry_after_ns, 77);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, 1);
    assert_int_equal(hlg_messenger_release(duo->prefill.messenger, theirs), 0);
}

static void what_the_core_refuses_fails_and_returns(void **state)
{
    struct duo *duo = *state;
    hlg_ticket tickets[2];

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "a", 40, 0, 0, &tickets[0]), 0);
    assert_int_equal(duo_submit(duo, "b", 40, 5, 1, &tickets[1]), 0); /* shares pages 5 to 9 */
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    const struct hlg_report *failed = duo_last(&duo->decode, HLG_NOTICE_FAILED);
    assert_int_equal(failed->ticket, tickets[1]);
    assert_int_equal(failed->error, -HLG_EOWNED);
    assert_int_equal(failed->reason, HLG_REASON_LOCAL);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, tickets[1]), 0);

    duo->peer += 1u << 16; /* a session that never was */
    assert_int_equal(duo_submit(duo, "c", 40, 100, 2, &tickets[1]), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 2);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->error, -HLG_EPEER);
}

/* The newest forward is given up while an older one runs: the counter of that one is still watched. */
static void an_abort_leaves_older_forwards_watched(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger *m = duo->prefill.messenger;
    struct hlg_admit admit = {.size = sizeof admit};
    const uint32_t page = 0;
    hlg_ticket tickets[2];

    duo->passive = true;
    admit.groups[0] = (struct hlg_page_list){.count = 1, .pages = &page};
    admit.groups[1] = admit.groups[0];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(duo_submit(duo, "a", 5, i, i, &tickets[i]), 0);
        duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, i + 1);
        tickets[i] = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
        assert_int_equal(hlg_messenger_admit(m, tickets[i], &admit), 0);
        assert_int_equal(hlg_messenger_chunk(m, tickets[i], i + 1, 0, 4), 0);
    }
    assert_int_equal(hlg_messenger_forward_abort(m, 2), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, 1);
    assert_int_equal(duo_last(&duo->prefill, HLG_NOTICE_FENCED)->ticket, tickets[1]);
    for (uint32_t i = 0; i < 10; i++) {
        duo_nap(duo); /* time enough for a poller that would rest */
    }
    atomic_store_explicit(&duo->counter, 1u << 8 | (DUO_LAYERS + 1), memory_order_release);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

/* Two ranks that send one memory: it would have two addresses, and pages of one lane be the other's. */
static void memory_is_imported_once(void **state)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_HOST};
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    struct hlg_memory *memory[2];
    struct hlg_fd_header header;
    int fds[3];

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.layout.pools = 2;
    assert_int_equal(
        hlg_messenger_create(&config, &duo->prefill.messenger, duo->error, sizeof duo->error), 0);
    for (uint32_t i = 0; i < 3; i++) { /* of the first one two descriptors */
        if (i < 2) {
            assert_int_equal(hlg_memory_create(&site, 4096, &memory[i], NULL, 0), 0);
        }
        fds[i] = hlg_memory_export(memory[i % 2], &header, NULL, 0);
        assert_true(fds[i] >= 0);
    }
    struct hlg_messenger *m = duo->prefill.messenger;
    assert_int_equal(hlg_messenger_region_import(m, 0, fds[0], &header), 0);
    assert_int_equal(hlg_messenger_region_import(m, 1, fds[2], &header), -HLG_EINVAL);
    assert_true(strstr(hlg_messenger_error(m), "imported already") != NULL);
    assert_int_equal(hlg_messenger_region_import(m, 1, fds[1], &header), 0);
    for (uint32_t i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
    duo_close_side(&duo->prefill);
    hlg_memory_release(memory[0]);
    hlg_memory_release(memory[1]);
}

static uint64_t sleeps_of(const struct duo_side *side)
{
    struct hlg_messenger_stats stats = {.size = sizeof stats};

    assert_int_equal(hlg_messenger_stats(side->messenger, &stats), 0);
    return stats.core_sleeps;
}

/* A core thread that reads the counters stays awake for a layer that is to come, and for no other reason: not for a
 * request that is open between two chunks, though the engine has not ended the first one's forward. */
static void the_core_thread_is_awake_while_a_layer_is_awaited(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    struct hlg_admit admit = {.size = sizeof admit};
    const uint32_t pages[2] = {0, 1};
    hlg_ticket ticket = 0;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.counter_core = true;
    assert_int_equal(duo_open_side(duo, &duo->prefill, &config), 0);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    duo->passive = true;
    admit.groups[0] = (struct hlg_page_list){.count = 2, .pages = pages};
    admit.groups[1] = (struct hlg_page_list){.count = 1, .pages = pages};
    assert_int_equal(duo_submit(duo, "two", 9, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    ticket = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
    assert_int_equal(hlg_messenger_admit(duo->prefill.messenger, ticket, &admit), 0);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(
            hlg_messenger_chunk(duo->prefill.messenger, ticket, chunk + 1, 4 * chunk, 4), 0);
        (void)poll(NULL, 0, 30); /* taken by then, and shown */
        const uint64_t before = sleeps_of(&duo->prefill);
        (void)poll(NULL, 0, 60);
        assert_int_equal(sleeps_of(&duo->prefill), before);
        atomic_store_explicit(&duo->counter, (chunk + 1) << 8 | (DUO_LAYERS + 1),
                              memory_order_release);
        for (uint32_t i = 0; i < 100 && sleeps_of(&duo->prefill) == before; i++) {
            (void)poll(NULL, 0, 10);
        }
        assert_true(sleeps_of(&duo->prefill) > before);
    }
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

/* Two pools, each with forward passes and a counter of its own: the newest forward ends while the older one of
 * the other pool runs, whose counter is still watched. */
static void the_end_of_a_forward_leaves_other_pools_watched(void **state)
{
    static _Atomic uint32_t counters[2];
    struct duo *duo = *state;
    struct hlg_messenger *m = NULL;
    struct hlg_messenger_config config;
    struct hlg_admit admit = {.size = sizeof admit};
    const uint32_t page = 0;
    uint64_t bytes = 0;
    uint8_t *memory[2];
    hlg_ticket ticket = 0;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.layout.pools = 2;
    assert_int_equal(hlg_messenger_create(&config, &m, duo->error, sizeof duo->error), 0);
    duo->prefill.messenger = m;
    assert_true(hlg_places_linear(&config.layout, 0, NULL, 0, &bytes) > 0);
    for (uint32_t i = 0; i < 2; i++) {
        memory[i] = calloc(bytes, 1);
        assert_int_equal(hlg_messenger_region_add(m, i, &HLG_MEM_HOST(memory[i], bytes)), 0);
        assert_int_equal(hlg_messenger_counter_watch(m, i, &counters[i]), 0);
    }
    assert_int_equal(hlg_messenger_places_linear(m), 0);
    assert_int_equal(hlg_messenger_start(m), 0);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    duo->passive = true;
    admit.groups[0] = (struct hlg_page_list){.count = 1, .pages = &page};
    admit.groups[1] = admit.groups[0];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(duo_submit(duo, "pool", 5, i, i, &ticket), 0);
        duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, i + 1);
        ticket = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
        admit.pool = i;
        assert_int_equal(hlg_messenger_admit(m, ticket, &admit), 0);
        assert_int_equal(hlg_messenger_chunk(m, ticket, i + 1, 0, 4), 0);
    }
    assert_int_equal(hlg_messenger_forward_end(m, 2), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 1);
    assert_int_equal(duo_last(&duo->prefill, HLG_NOTICE_SENT)->ticket, ticket);
    atomic_store_explicit(&counters[0], 1u << 8 | (DUO_LAYERS + 1), memory_order_release);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 2);
    duo_close_side(&duo->prefill);
    free(memory[0]);
    free(memory[1]);
}

/* A chunk that leaves a gap could never be sent: the request is given up, and its decoder told. */
static void a_refused_chunk_gives_the_request_up(void **state)
{
    struct duo *duo = *state;
    struct hlg_admit admit = {.size = sizeof admit};
    uint32_t pages[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint32_t context = 0;
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "a", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    hlg_ticket theirs = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
    admit.groups[0] = (struct hlg_page_list){.count = 10, .pages = pages};
    admit.groups[1] = (struct hlg_page_list){.count = 1, .pages = &context};
    assert_int_equal(hlg_messenger_admit(duo->prefill.messenger, theirs, &admit), 0);
    assert_int_equal(hlg_messenger_chunk(duo->prefill.messenger, theirs, 9, 8, 31), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, 1);
    const struct hlg_report *refused = duo_last(&duo->prefill, HLG_REPORT_REFUSED);
    assert_int_equal(refused->command, HLG_COMMAND_CHUNK);
    assert_int_equal(refused->forward, 9);
    assert_int_equal(refused->error, -HLG_EINVAL);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
}

static void tickets_are_bounded_and_come_back(void **state)
{
    struct duo *duo = *state;
    hlg_ticket tickets[16];
    hlg_ticket more = 0;

    duo->passive = true;
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(duo_submit(duo, "t", 5, 2 * i, i, &tickets[i]), 0);
    }
    assert_int_equal(duo_submit(duo, "t", 5, 64, 20, &more), -HLG_ELIMIT);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 16);
    duo->passive = false;
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 16);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 16); /* it would reject a 17th before */
    assert_int_equal(duo_submit(duo, "t", 5, 64, 20, &more), -HLG_ELIMIT);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(hlg_messenger_release(duo->decode.messenger, tickets[i]), 0);
    }
    while (duo_submit(duo, "t", 5, 64, 20, &more) == -HLG_ELIMIT) {
        duo_turn(duo);
    }
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 17);
}

/* Opens both sides with configs that a test has spoilt, connects, and takes the refusal. */
static void expect_refusal(struct duo *duo, const struct hlg_messenger_config *prefill,
                           const struct hlg_messenger_config *decode, uint32_t code,
                           const char *words)
{
    assert_int_equal(duo_open_side(duo, &duo->prefill, prefill), 0);
    assert_int_equal(duo_open_side(duo, &duo->decode, decode), 0);
    int connection = duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_REFUSED, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_PEER_REFUSED, 1);
    const struct hlg_report *reports[2] = {duo_last(&duo->decode, HLG_NOTICE_PEER_REFUSED),
                                           duo_last(&duo->prefill, HLG_NOTICE_PEER_REFUSED)};
    assert_int_equal(reports[0]->connection, connection);
    assert_int_equal(reports[1]->connection, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(reports[i]->refusal.code, code);
        assert_non_null(strstr(reports[i]->text, words));
    }
    assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_PEER_UP), 0);
}

static void layouts_that_cannot_be_joined_refuse_each_other(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config prefill;
    struct hlg_messenger_config decode;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &prefill);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &decode);
    decode.layout.groups[0].head_bytes *= 2;
    expect_refusal(duo, &prefill, &decode, HLG_REFUSAL_GROUP_FIELD, "head_bytes");
}

static void other_layer_counts_refuse_each_other(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config prefill;
    struct hlg_messenger_config decode;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &prefill);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &decode);
    decode.layout.layers = DUO_LAYERS - 1;
    decode.layout.stage_limit[0] = DUO_LAYERS - 1;
    decode.layout.groups[0].layers[0] >>= 1;
    expect_refusal(duo, &prefill, &decode, HLG_REFUSAL_LAYERS, "layers");
}

static void other_models_refuse_each_other(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config prefill;
    struct hlg_messenger_config decode;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &prefill);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &decode);
    decode.fingerprint[31] = 1;
    expect_refusal(duo, &prefill, &decode, HLG_REFUSAL_FINGERPRINT, "fingerprint");
}

static void a_port_in_use_is_said_at_create(void **state)
{
    struct duo *duo = *state;
    struct duo_side other = {0};
    struct hlg_messenger_config config;
    char listen_on[64];

    duo_config(&other, HLG_ROLE_PREFILL, &config);
    (void)snprintf(listen_on, sizeof listen_on, "127.0.0.1:%d",
                   hlg_messenger_port(duo->prefill.messenger));
    config.listen = listen_on;
    assert_int_equal(duo_open_side(duo, &other, &config), -HLG_EIO);
    assert_non_null(strstr(duo->error, listen_on));
    assert_null(other.messenger);
    duo_close_side(&other);
}

/* Cores that may not be used, or a list that is none, are said before anything is made; and who creates a messenger
 * that is placed is not moved by it. */
static void cores_that_there_are_not_are_said_at_create(void **state)
{
    struct duo *duo = *state;
    struct duo_side other = {0};
    struct hlg_messenger_config config;
    struct hlg_placement before;
    struct hlg_placement after;

    assert_int_equal(hlg_placement_read(&before), 0);
    duo_config(&other, HLG_ROLE_DECODE, &config);
    config.cores = "1023";
    assert_int_equal(duo_open_side(duo, &other, &config), -HLG_EINVAL);
    assert_non_null(strstr(duo->error, "cores '1023': this process may use only "));
    config.cores = "0-";
    assert_int_equal(duo_open_side(duo, &other, &config), -HLG_EINVAL);
    assert_non_null(strstr(duo->error, "cores '0-': write a list as 0-3,8"));
    assert_null(other.messenger);
    duo_close_side(&other);

    duo_config(&other, HLG_ROLE_DECODE, &config);
    config.cores = before.cores;
    config.numa = 0;
    assert_int_equal(duo_open_side(duo, &other, &config), 0);
    duo_close_side(&other);
    assert_int_equal(hlg_placement_read(&after), 0);
    assert_string_equal(after.cores, before.cores);
    assert_int_equal(after.numa, before.numa);
}

static void nobody_there_is_said_in_words(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    char text[64];

    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    /* A port that is bound but not listened on: nobody else can take it meanwhile. */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    (void)snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(address.sin_port));
    int connection = hlg_messenger_connect(duo->decode.messenger, text);
    assert_true(connection > 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_REFUSED, 1);
    const struct hlg_report *refused = duo_last(&duo->decode, HLG_NOTICE_PEER_REFUSED);
    assert_int_equal(refused->connection, connection);
    assert_int_equal(refused->error, -HLG_EPEER);
    assert_int_equal(refused->peer, HLG_NONE);
    assert_non_null(strstr(refused->text, text));
    close(fd);
    assert_int_equal(hlg_messenger_connect(duo->decode.messenger, ""), -HLG_EINVAL);
}

static void a_forked_child_is_refused(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;
    struct hlg_report report;
    int status = 0;

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct hlg_messenger *m = duo->decode.messenger;
        bool refused = duo_submit(duo, "f", 5, 0, 0, &ticket) == -HLG_EFORK &&
                       hlg_messenger_poll(m, &report, sizeof report, 1) == -HLG_EFORK &&
                       hlg_messenger_connect(m, "127.0.0.1:1") == -HLG_EFORK &&
                       hlg_messenger_fd(m) == -HLG_EFORK;
        (void)hlg_messenger_destroy(m); /* must leave the parent's alone */
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(duo_submit(duo, "p", 5, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

static void garbage_ends_its_own_session_only(void **state)
{
    struct duo *duo = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint8_t garbage[64] = {[0] = 60, [4] = 1, [6] = 200};
    hlg_ticket ticket = 0;

    address.sin_port = htons((uint16_t)hlg_messenger_port(duo->prefill.messenger));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(write(fd, garbage, sizeof garbage), sizeof garbage);
    while (read(fd, garbage, sizeof garbage) > 0) {
    }
    close(fd);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_PEER_REFUSED), 0); /* only counted */
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_PEER_DOWN), 0);
}

static void a_session_ends_and_comes_back_under_a_new_name(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    assert_int_equal(hlg_messenger_disconnect(duo->decode.messenger, duo->peer), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_DOWN, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_PEER_DOWN, 1);
    int connection = duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 2);
    const struct hlg_report *up = duo_last(&duo->decode, HLG_NOTICE_PEER_UP);
    assert_int_equal(up->connection, connection);
    assert_int_not_equal(up->peer, duo->peer);
    duo->peer = up->peer;
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

static void the_end_of_one_side_is_told_to_the_other(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    (void)hlg_messenger_destroy(duo->prefill.messenger);
    duo->prefill.messenger = NULL;
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_DOWN, 1);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->reason, HLG_REASON_PEER);
}

static void a_draining_prefiller_is_told_of(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    assert_int_equal(hlg_messenger_drain(duo->prefill.messenger), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_DRAINING, 1);
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->error, -HLG_EPEER);
}

/* DRAINED comes once, and after the last of what was accepted. */
static void drained_is_told_when_all_is_over(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    assert_int_equal(hlg_messenger_drain(duo->prefill.messenger), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_DRAINING, 1);
    assert_int_equal(duo_count(&duo->prefill, HLG_REPORT_DRAINED), 0);
    duo->passive = false;
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 1);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    duo_wait(duo, &duo->prefill, HLG_REPORT_DRAINED, 1);
    assert_int_equal(duo->prefill.reports[duo->prefill.report_count - 1].kind, HLG_REPORT_DRAINED);
    assert_int_equal(hlg_messenger_drain(duo->prefill.messenger), 0);
    for (uint32_t i = 0; i < 20; i++) {
        duo_nap(duo);
        duo_turn(duo);
    }
    assert_int_equal(duo_count(&duo->prefill, HLG_REPORT_DRAINED), 1);
}

/* C-19: a decoder whose kernels still read the pages must not have them written. */
static void a_submit_waits_for_its_word(void **state)
{
    struct duo *duo = *state;
    static _Atomic uint64_t word;
    uint32_t page = 0;
    uint32_t context = 0;
    struct hlg_submit submit = {
        .size = sizeof submit,
        .source_count = 1,
        .peers = {duo->peer},
        .tokens = 5,
        .not_before = &word,
        .not_before_value = 7,
        .groups = {{.count = 1, .pages = &page}, {.count = 1, .pages = &context}}};
    hlg_ticket tickets[3];

    atomic_store(&word, 6);
    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &tickets[0]), 0);
    submit.not_before_value = 8;
    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &tickets[1]), 0);
    submit.ttl_ns = 20 * HLG_NS_PER_MS;
    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &tickets[2]), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->reason, HLG_REASON_DEADLINE);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->ticket, tickets[2]);
    assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, tickets[1]), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 2);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->reason, HLG_REASON_CANCELLED);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_REQUESTED), 0);
    atomic_store(&word, 7);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_READY)->ticket, tickets[0]);
    submit.ttl_ns = HLG_TIME_NEVER; /* no request is for ever */
    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &tickets[0]),
                     -HLG_EINVAL);
}

/* A node that hosts half of the ranks has half of the bytes: the engine is told to name the other as well. */
static void a_source_that_hosts_half_is_refused_in_a_sentence(void **state)
{
    struct hlg_messenger_config config;
    struct duo *duo = *state;
    uint32_t page = 0;
    uint32_t context = 0;
    struct hlg_submit submit = {
        .size = sizeof submit,
        .source_count = 1,
        .tokens = 5,
        .groups = {{.count = 1, .pages = &page}, {.count = 1, .pages = &context}}};
    hlg_ticket ticket = 0;

    duo_close_side(&duo->prefill);
    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.layout.tp = 2;
    assert_int_equal(duo_open_side(duo, &duo->prefill, &config), 0);
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 2);
    submit.peers[0] = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    assert_int_equal(hlg_messenger_submit(duo->decode.messenger, &submit, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    const struct hlg_report *failed = duo_last(&duo->decode, HLG_NOTICE_FAILED);
    assert_int_equal(failed->reason, HLG_REASON_LOCAL);
    assert_int_equal(failed->error, -HLG_EINVAL);
    assert_string_equal(failed->text, "not submitted: no prefill node named hosts rank 1; name all "
                                      "that share the model");
    assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_READY), 0);
}

#define STALE_COMMANDS 1000u

/* Each of these brings a report, many more than there is room for: the commands wait instead. */
static void an_engine_that_does_not_poll_loses_nothing(void **state)
{
    struct duo *duo = *state;
    hlg_ticket ticket = 0;

    duo->passive = true;
    assert_int_equal(duo_submit(duo, "p", 40, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, 1);
    hlg_ticket theirs = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
    assert_int_equal(hlg_messenger_cancel(duo->prefill.messenger, theirs), 0);
    for (uint32_t i = 0; i < STALE_COMMANDS; i++) {
        assert_int_equal(hlg_messenger_chunk(duo->prefill.messenger, theirs, i + 1, 0, 1), 0);
    }
    struct hlg_report *reports = duo->prefill.reports;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < DUO_TURNS_MAX && refused < STALE_COMMANDS; i++) {
        int count = hlg_messenger_poll(duo->prefill.messenger, reports, sizeof *reports, 7);
        for (int r = 0; r < count; r++) {
            refused += reports[r].kind == HLG_REPORT_REFUSED;
            assert_true(reports[r].kind != HLG_REPORT_REFUSED || reports[r].forward == refused);
        }
        if (count == 0) {
            /* Not duo_nap(): the decoder's reports, which nobody takes here, would not let it sleep. */
            struct pollfd fd = {.fd = hlg_messenger_fd(duo->prefill.messenger), .events = POLLIN};
            (void)poll(&fd, 1, 1);
        }
    }
    assert_int_equal(refused, STALE_COMMANDS);
}

/* A core thread stands still in the log of its next line, until the test lets it go. */
struct gate {
    pthread_mutex_t lock;
    _Atomic bool shut;
};

static void log_at_gate(void *context, enum hlg_log_level level, const char *line)
{
    struct gate *gate = context;

    (void)level;
    (void)line;
    if (atomic_load(&gate->shut)) {
        pthread_mutex_lock(&gate->lock);
        pthread_mutex_unlock(&gate->lock);
    }
}

#define BURST 8u

/* Of an engine that releases no ticket: requests that find none are to be rejected, but their decoder gives
 * them up before, more of them in one round than may be open at a time. */
static void requests_without_a_ticket_may_end_by_themselves(void **state)
{
    static struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct duo *duo = *state;
    struct hlg_messenger_config config;
    hlg_ticket ticket = 0;

    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.limits.requests_max = 1; /* so that there are two tickets */
    config.limits.grant_requests = 64;
    config.log = log_at_gate;
    config.log_context = &gate;
    config.log_level = HLG_LOG_WARN;
    assert_int_equal(duo_open_side(duo, &duo->prefill, &config), 0);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    duo->passive = true;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(duo_submit(duo, "ticket", 5, 2 * i, i, &ticket), 0);
        duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, i + 1);
        if (i == 1) {
            pthread_mutex_lock(&gate.lock);
            atomic_store(&gate.shut,
                         true); /* the prefiller stands still when it stops the second */
        }
        assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, ticket), 0);
        duo_wait(duo, &duo->decode, HLG_NOTICE_FAILED, i + 1);
        duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 1);
    }
    for (uint32_t i = 2; i < 2 + BURST; i++) {
        assert_int_equal(duo_submit(duo, "none", 5, 2 * i, i, &ticket), 0);
        assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, ticket), 0);
    }
    duo_wait(duo, &duo->decode, HLG_NOTICE_FAILED, 2 + BURST);
    atomic_store(&gate.shut, false);
    pthread_mutex_unlock(&gate.lock);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 2 + BURST);

    /* Once tickets are released it serves again. */
    duo->passive = false;
    duo->answered = duo->prefill.report_count;
    for (uint32_t i = 0; i < duo->prefill.report_count; i++) {
        if (duo->prefill.reports[i].kind == HLG_NOTICE_FENCED) {
            ticket = duo->prefill.reports[i].ticket;
            assert_int_equal(hlg_messenger_release(duo->prefill.messenger, ticket), 0);
        }
    }
    assert_int_equal(duo_submit(duo, "served", 5, 40, 20, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
}

/* A page of memory that cannot be read until the test says so: whoever tries waits. */
static struct trap {
    void *page;
    sem_t entered;
    sem_t go;
} trap;

static void trapped(int signal)
{
    (void)signal;
    (void)sem_post(&trap.entered);
    while (sem_wait(&trap.go) != 0) {
    }
    (void)mprotect(trap.page, 4096, PROT_READ | PROT_WRITE);
}

struct admitter {
    struct hlg_messenger *messenger;
    hlg_ticket ticket;
    int result;
};

static void *admit_slowly(void *context)
{
    struct admitter *a = context;
    struct hlg_admit admit = {.size = sizeof admit};

    admit.groups[0] = (struct hlg_page_list){.count = 1, .pages = trap.page};
    a->result = hlg_messenger_admit(a->messenger, a->ticket, &admit);
    return NULL;
}

/* Asks for a request that finds a ticket at the prefiller, and gives it up. Returns that ticket. */
static hlg_ticket ask_in_vain(struct duo *duo, uint32_t number, struct admitter *admitter,
                              pthread_t *thread)
{
    hlg_ticket ticket = 0;

    assert_int_equal(duo_submit(duo, "vain", 5, 2 * number, number, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, number + 1);
    hlg_ticket theirs = duo_last(&duo->prefill, HLG_NOTICE_REQUESTED)->ticket;
    if (admitter != NULL) {
        *admitter = (struct admitter){.messenger = duo->prefill.messenger, .ticket = theirs};
        assert_int_equal(pthread_create(thread, NULL, admit_slowly, admitter), 0);
        assert_int_equal(sem_wait(&trap.entered), 0);
    }
    assert_int_equal(hlg_messenger_cancel(duo->decode.messenger, ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_FENCED, number + 1);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, number + 1);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
    return theirs;
}

/* One thread is about to copy the pages of an admit while another releases the same ticket, its request having
 * ended: what stands behind the ticket is given to no other request before the first is done with it. */
static void a_ticket_that_is_being_admitted_is_no_others(void **state)
{
    struct duo *duo = *state;
    struct sigaction action = {.sa_handler = trapped};
    struct sigaction before;
    struct hlg_messenger_config config;
    struct admitter admitter = {0};
    pthread_t thread;
    hlg_ticket ticket = 0;

    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    assert_int_equal(sem_init(&trap.entered, 0, 0), 0);
    assert_int_equal(sem_init(&trap.go, 0, 0), 0);
    trap.page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(trap.page != MAP_FAILED);
    duo_config(&duo->prefill, HLG_ROLE_PREFILL, &config);
    config.limits.requests_max = 1; /* so that there are two tickets */
    config.limits.grant_requests = 64;
    assert_int_equal(duo_open_side(duo, &duo->prefill, &config), 0);
    duo_config(&duo->decode, HLG_ROLE_DECODE, &config);
    assert_int_equal(duo_open_side(duo, &duo->decode, &config), 0);
    duo_connect(duo);
    duo_wait(duo, &duo->decode, HLG_NOTICE_PEER_UP, 1);
    duo->peer = duo_last(&duo->decode, HLG_NOTICE_PEER_UP)->peer;
    duo->passive = true;

    const hlg_ticket first = ask_in_vain(duo, 0, &admitter, &thread);
    assert_int_equal(hlg_messenger_release(duo->prefill.messenger, first), 0);
    const hlg_ticket second = ask_in_vain(duo, 1, NULL, NULL);
    assert_int_not_equal((uint32_t)first, (uint32_t)second);
    assert_int_equal(duo_submit(duo, "third", 5, 10, 5, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_RETURNED, 3);
    assert_int_equal(duo_last(&duo->decode, HLG_NOTICE_FAILED)->reason, HLG_REASON_REJECTED);
    assert_int_equal(duo_count(&duo->prefill, HLG_NOTICE_REQUESTED), 2);

    assert_int_equal(sem_post(&trap.go), 0);
    pthread_join(thread, NULL);
    assert_int_equal(admitter.result, 0);
    duo_wait(duo, &duo->prefill, HLG_REPORT_REFUSED, 1);
    assert_int_equal(duo_last(&duo->prefill, HLG_REPORT_REFUSED)->error, -HLG_ESTALE);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(munmap(trap.page, 4096), 0);

    duo->passive = false; /* and now it is */
    duo->answered = duo->prefill.report_count;
    assert_int_equal(duo_submit(duo, "fourth", 5, 20, 6, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    duo_expect(duo, 20, 0, 1);
}

#define SUBMITTERS 3u
#define ROUNDS     20u

struct submitter {
    struct duo *duo;
    pthread_mutex_t *lock; /* around the count of those that are open */
    uint32_t *open;
    uint32_t number;
};

static void *submit_many(void *context)
{
    struct submitter *s = context;

    for (uint32_t i = 0; i < ROUNDS;) {
        hlg_ticket ticket = 0;
        uint32_t lane = s->number * 4 + i % 4; /* pages and context of its own */
        int error = duo_submit(s->duo, "many", 5, 2 * lane, lane, &ticket);
        HLG_ASSERT(error == 0 || error == -HLG_ELIMIT);
        i += error == 0;
    }
    return NULL;
}

/* Any thread may submit: pages overlap between rounds, so that some fail as owned; each ends once. */
static void threads_submit_at_once(void **state)
{
    struct duo *duo = *state;
    struct submitter submitters[SUBMITTERS];
    pthread_t threads[SUBMITTERS];
    uint32_t seen = 0;
    uint32_t over = 0;

    duo->progress = DUO_FORWARD_END;
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.duo = duo, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &submitters[i]), 0);
    }
    for (uint32_t i = 0; i < DUO_TURNS_MAX && over < SUBMITTERS * ROUNDS; i++) {
        if (duo_turn(duo) == 0) {
            duo_nap(duo);
        }
        for (; seen < duo->decode.report_count; seen++) {
            const struct hlg_report *report = &duo->decode.reports[seen];
            if (report->kind == HLG_NOTICE_READY || report->kind == HLG_NOTICE_RETURNED) {
                over++;
                assert_int_equal(hlg_messenger_release(duo->decode.messenger, report->ticket), 0);
            }
        }
    }
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(over, SUBMITTERS * ROUNDS);
}

static void configs_that_make_no_sense_are_refused(void **state)
{
    struct duo *duo = *state;
    struct hlg_messenger_config good;
    struct hlg_messenger_config bad;
    struct hlg_messenger *m = NULL;
    char error[256] = "";

    duo_config(&duo->decode, HLG_ROLE_DECODE, &good);
    bad = good;
    bad.size--;
    assert_int_equal(hlg_messenger_create(&bad, &m, error, sizeof error), -HLG_EINVAL);
    bad = good;
    bad.role = 2;
    assert_int_equal(hlg_messenger_create(&bad, &m, error, sizeof error), -HLG_EINVAL);
    bad = good;
    bad.fabric = NULL;
    assert_int_equal(hlg_messenger_create(&bad, &m, error, sizeof error), -HLG_EINVAL);
    bad = good;
    bad.layout.groups[0].heads = 0;
    assert_int_equal(hlg_messenger_create(&bad, &m, error, sizeof error), -HLG_EPLAN);
    assert_non_null(strstr(error, "heads"));
    bad = good;
    bad.listen = "no port";
    assert_int_equal(hlg_messenger_create(&bad, &m, error, sizeof error), -HLG_EINVAL);
    assert_int_equal(hlg_messenger_create(&good, &m, NULL, 0), 0);
    assert_int_equal(hlg_messenger_port(m), -HLG_ESTATE);
    assert_int_equal(hlg_messenger_start(m), -HLG_EINVAL); /* no memory, no places */
    assert_true(strlen(hlg_messenger_error(m)) > 0);
    assert_int_equal(hlg_messenger_connect(m, "127.0.0.1:1"), -HLG_ESTATE);
    (void)hlg_messenger_destroy(m);
}

#define DUO_TEST(test)   cmocka_unit_test_setup_teardown(test, duo_setup, duo_teardown)
#define EMPTY_TEST(test) cmocka_unit_test_setup_teardown(test, empty_setup, duo_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(counter_words_move_requests),
        DUO_TEST(ends_of_forwards_move_requests),
        DUO_TEST(one_token_is_ready_without_a_prefiller),
        DUO_TEST(a_cancelled_request_returns_its_pages),
        DUO_TEST(a_prompt_reaches_the_engine_that_rejects_it),
        DUO_TEST(what_the_core_refuses_fails_and_returns),
        DUO_TEST(an_abort_leaves_older_forwards_watched),
        EMPTY_TEST(memory_is_imported_once),
        EMPTY_TEST(the_core_thread_is_awake_while_a_layer_is_awaited),
        EMPTY_TEST(the_end_of_a_forward_leaves_other_pools_watched),
        DUO_TEST(a_refused_chunk_gives_the_request_up),
        DUO_TEST(tickets_are_bounded_and_come_back),
        EMPTY_TEST(layouts_that_cannot_be_joined_refuse_each_other),
        EMPTY_TEST(other_layer_counts_refuse_each_other),
        EMPTY_TEST(other_models_refuse_each_other),
        DUO_TEST(a_port_in_use_is_said_at_create),
        DUO_TEST(cores_that_there_are_not_are_said_at_create),
        EMPTY_TEST(nobody_there_is_said_in_words),
        DUO_TEST(a_forked_child_is_refused),
        DUO_TEST(garbage_ends_its_own_session_only),
        DUO_TEST(a_session_ends_and_comes_back_under_a_new_name),
        DUO_TEST(the_end_of_one_side_is_told_to_the_other),
        DUO_TEST(a_draining_prefiller_is_told_of),
        DUO_TEST(drained_is_told_when_all_is_over),
        DUO_TEST(a_submit_waits_for_its_word),
        DUO_TEST(a_source_that_hosts_half_is_refused_in_a_sentence),
        DUO_TEST(an_engine_that_does_not_poll_loses_nothing),
        EMPTY_TEST(requests_without_a_ticket_may_end_by_themselves),
        EMPTY_TEST(a_ticket_that_is_being_admitted_is_no_others),
        DUO_TEST(threads_submit_at_once),
        EMPTY_TEST(configs_that_make_no_sense_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
