/*
 * Frames. Random messages of every kind must survive the way there and back, in one encoding only;
 * the examples of docs/protocol.md must be what the encoder makes; whatever is cut short, changed or
 * lies about a length must be refused, or decode to something that encodes to the same bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver/rng.h"
#include "halage/wire.h"

#define FRAME_BYTES_MAX (8u << 20)
#define PAGES_MAX       131072u
#define ENTRIES_MAX     4096u

struct bench {
    uint64_t seed; /* of the message under test, 0 between tests */
    struct hlg_rng rng;
    uint8_t *frame;
    uint8_t *again;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    uint32_t *pages;
    uint8_t *prompt;
    struct hlg_rail_address *addresses;
    struct hlg_region_key *keys;
    struct hlg_place *places;
    struct hlg_credit_entry *credits;
};

static void *must(void *memory)
{
    assert_non_null(memory);
    return memory;
}

static int set_up(void **state)
{
    struct bench *b = must(calloc(1, sizeof(*b)));
    struct hlg_limits limits = {.message_bytes_max = FRAME_BYTES_MAX, .blocks_max = 8192};

    b->scratch_bytes = hlg_wire_scratch_bytes(&limits);
    b->frame = must(malloc(FRAME_BYTES_MAX));
    b->again = must(malloc(FRAME_BYTES_MAX));
    b->scratch = must(malloc(b->scratch_bytes));
    b->pages = must(calloc(PAGES_MAX, sizeof(*b->pages)));
    b->prompt = must(calloc(PAGES_MAX, 4));
    b->addresses = must(calloc(ENTRIES_MAX, sizeof(*b->addresses)));
    b->keys = must(calloc(ENTRIES_MAX, sizeof(*b->keys)));
    b->places = must(calloc(ENTRIES_MAX, sizeof(*b->places)));
    b->credits = must(calloc(ENTRIES_MAX, sizeof(*b->credits)));
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    free(b->frame);
    free(b->again);
    free(b->scratch);
    free(b->pages);
    free(b->prompt);
    free(b->addresses);
    free(b->keys);
    free(b->places);
    free(b->credits);
    free(b);
    return 0;
}

static uint32_t below(struct bench *b, uint32_t limit)
{
    return (uint32_t)hlg_rng_below(&b->rng, limit);
}

static uint32_t any_u32(struct bench *b)
{
    return (uint32_t)(hlg_rng_next(&b->rng) >> 32);
}

static void fill(struct bench *b, uint8_t *bytes, uint32_t count)
{
    for (uint32_t index = 0; index < count; index++) {
        bytes[index] = (uint8_t)below(b, 256);
    }
}

static void random_layout(struct bench *b, struct hlg_layout *layout)
{
    layout->tp = any_u32(b);
    layout->stages = below(b, HLG_STAGES_MAX + 1);
    layout->pools = any_u32(b);
    layout->layers = any_u32(b);
    for (uint32_t stage = 0; stage < layout->stages; stage++) {
        layout->stage_limit[stage] = any_u32(b);
    }
    layout->rank_begin = any_u32(b);
    layout->rank_limit = any_u32(b);
    layout->all_reduce = below(b, 2);
    layout->piece_bytes_max = any_u32(b);
    layout->group_count = below(b, HLG_GROUPS_MAX + 1);
    for (uint32_t index = 0; index < layout->group_count; index++) {
        struct hlg_group *group = &layout->groups[index];

        group->kind = any_u32(b);
        group->planes = any_u32(b);
        group->heads = any_u32(b);
        group->head_bytes = any_u32(b);
        group->page_tokens = any_u32(b);
        group->arrangement = any_u32(b);
        group->page_count = any_u32(b);
        for (uint32_t word = 0; word < 4; word++) {
            group->layers[word] = hlg_rng_next(&b->rng);
        }
    }
}

static void random_hello(struct bench *b, struct hlg_hello *hello, uint32_t entries)
{
    hello->protocol_min = any_u32(b);
    hello->protocol_max = any_u32(b);
    hello->role = below(b, 2);
    hello->window_pieces = any_u32(b);
    hello->message_bytes_max = any_u32(b);
    hello->prompt_bytes_max = any_u32(b);
    if (hello->role == HLG_ROLE_PREFILL) {
        hello->draining = below(b, 2);
        hello->grant =
            (struct hlg_load){hlg_rng_next(&b->rng), hlg_rng_next(&b->rng), hlg_rng_next(&b->rng)};
    }
    hello->node = hlg_rng_next(&b->rng);
    hello->incarnation = hlg_rng_next(&b->rng);
    hello->session = hlg_rng_next(&b->rng);
    fill(b, hello->fingerprint, sizeof(hello->fingerprint));
    memcpy(hello->provider, "tcp;ofi_rxm", below(b, 12));
    random_layout(b, &hello->layout);
    hello->address_count = hlg_min_u32(entries, HLG_RANKS_MAX * HLG_RAILS_MAX);
    hello->key_count = entries;
    hello->place_count = entries;
    hello->addresses = b->addresses;
    hello->keys = b->keys;
    hello->places = b->places;
    for (uint32_t index = 0; index < entries; index++) {
        struct hlg_rail_address *address = &b->addresses[index];

        memset(address, 0, sizeof(*address));
        address->lane = any_u32(b);
        address->rail = any_u32(b);
        address->bytes = 1 + below(b, HLG_ADDRESS_BYTES_MAX);
        fill(b, address->address, address->bytes);
        b->keys[index] = (struct hlg_region_key){any_u32(b),
                                                 any_u32(b),
                                                 any_u32(b),
                                                 0,
                                                 hlg_rng_next(&b->rng),
                                                 hlg_rng_next(&b->rng),
                                                 hlg_rng_next(&b->rng)};
        b->places[index] = (struct hlg_place){any_u32(b),
                                              any_u32(b),
                                              any_u32(b),
                                              any_u32(b),
                                              any_u32(b),
                                              0,
                                              hlg_rng_next(&b->rng),
                                              hlg_rng_next(&b->rng)};
    }
}

/* Pages in runs and in fragments, the extremes of 32 bits among them. */
static void random_pages(struct bench *b, uint32_t *pages, uint32_t count)
{
    uint32_t next = any_u32(b);

    for (uint32_t index = 0; index < count; index++) {
        if (below(b, 4) == 0) {
            next = below(b, 8) == 0 ? UINT32_MAX - below(b, 3) : any_u32(b);
        }
        pages[index] = next++;
    }
}

static void random_request(struct bench *b, struct hlg_request_message *request)
{
    uint32_t used = 0;

    request->number = 1 + hlg_rng_below(&b->rng, UINT64_MAX);
    request->pool = any_u32(b);
    request->source_count = 1 + below(b, HLG_SOURCES_MAX);
    request->source = below(b, request->source_count);
    request->slot = below(b, HLG_SLOTS_MAX);
    request->generation = below(b, HLG_GENERATIONS);
    request->offset = any_u32(b);
    request->tokens = 1 + below(b, HLG_TOKENS_MAX);
    request->pieces = hlg_rng_next(&b->rng);
    request->ttl_ns = hlg_rng_next(&b->rng);
    request->group_count = below(b, HLG_GROUPS_MAX + 1);
    for (uint32_t group = 0; group < request->group_count; group++) {
        const uint32_t count = below(b, 40);

        random_pages(b, b->pages + used, count);
        request->groups[group] =
            (struct hlg_page_list){count, below(b, HLG_TOKENS_MAX - 40), b->pages + used};
        used += count;
    }
    request->id_bytes = below(b, HLG_REQUEST_ID_BYTES_MAX + 1);
    fill(b, request->id, request->id_bytes);
    request->prompt_bytes = below(b, 100);
    fill(b, b->prompt, request->prompt_bytes);
    request->prompt = b->prompt;
}

static void random_answer(struct bench *b, uint32_t kind, struct hlg_answer *answer)
{
    const bool reject = kind == HLG_MESSAGE_REJECT;

    answer->number = 1 + hlg_rng_below(&b->rng, UINT64_MAX);
    answer->incarnation = hlg_rng_next(&b->rng);
    answer->session = kind == HLG_MESSAGE_CANCEL ? hlg_rng_next(&b->rng) : 0;
    answer->pieces = reject || kind == HLG_MESSAGE_CANCEL ? 0 : hlg_rng_next(&b->rng);
    answer->reason = reject || kind == HLG_MESSAGE_FAILED ? below(b, HLG_REASON_PREEMPTED + 1) : 0;
    answer->await = kind == HLG_MESSAGE_FENCED ? any_u32(b) % 3 : 0;
    answer->retry_after_ns = reject ? hlg_rng_next(&b->rng) : 0;
}

static void random_message(struct bench *b, uint32_t kind, struct hlg_message *m)
{
    memset(m, 0, sizeof(*m));
    m->kind = kind;
    switch ((enum hlg_message_kind)kind) {
    case HLG_MESSAGE_HELLO:
        random_hello(b, &m->hello, below(b, 6));
        return;
    case HLG_MESSAGE_REQUEST:
        random_request(b, &m->request);
        return;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        random_answer(b, kind, &m->answer);
        return;
    case HLG_MESSAGE_CREDIT:
        m->credit.finished =
            (struct hlg_load){hlg_rng_next(&b->rng), hlg_rng_next(&b->rng), hlg_rng_next(&b->rng)};
        m->credit.count = below(b, 20);
        m->credit.entries = b->credits;
        for (uint32_t index = 0; index < m->credit.count; index++) {
            b->credits[index] =
                (struct hlg_credit_entry){any_u32(b), any_u32(b), hlg_rng_next(&b->rng)};
        }
        return;
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
        return;
    case HLG_MESSAGE_BYE:
        m->bye.why =
            (struct hlg_refusal){any_u32(b), any_u32(b), any_u32(b), any_u32(b), any_u32(b)};
        return;
    }
    fail();
}

static void expect_array(const void *got, const void *sent, uint64_t count, size_t bytes)
{
    if (count != 0) {
        assert_memory_equal(got, sent, count * bytes);
    }
}

/* Compare everything, pointed-to arrays included. Messages were zeroed, so pads compare too. */
static void expect_equal(const struct hlg_message *got, const struct hlg_message *sent)
{
    struct hlg_message a = *got;
    struct hlg_message c = *sent;

    assert_int_equal(got->kind, sent->kind);
    if (sent->kind == HLG_MESSAGE_HELLO) {
        expect_array(got->hello.addresses, sent->hello.addresses, sent->hello.address_count,
                     sizeof(*sent->hello.addresses));
        expect_array(got->hello.keys, sent->hello.keys, sent->hello.key_count,
                     sizeof(*sent->hello.keys));
        expect_array(got->hello.places, sent->hello.places, sent->hello.place_count,
                     sizeof(*sent->hello.places));
        a.hello.addresses = c.hello.addresses = NULL;
        a.hello.keys = c.hello.keys = NULL;
        a.hello.places = c.hello.places = NULL;
    } else if (sent->kind == HLG_MESSAGE_REQUEST) {
        for (uint32_t group = 0; group < sent->request.group_count; group++) {
            assert_int_equal(got->request.groups[group].count, sent->request.groups[group].count);
            expect_array(got->request.groups[group].pages, sent->request.groups[group].pages,
                         sent->request.groups[group].count, sizeof(uint32_t));
            a.request.groups[group].pages = c.request.groups[group].pages = NULL;
        }
        expect_array(got->request.prompt, sent->request.prompt, sent->request.prompt_bytes, 1);
        a.request.prompt = c.request.prompt = NULL;
    } else if (sent->kind == HLG_MESSAGE_CREDIT) {
        expect_array(got->credit.entries, sent->credit.entries, sent->credit.count,
                     sizeof(*sent->credit.entries));
        a.credit.entries = c.credit.entries = NULL;
    }
    assert_memory_equal(&a, &c, sizeof(a));
}

static uint64_t encode(struct bench *b, const struct hlg_message *m)
{
    const uint64_t bytes = hlg_wire_bytes(m);

    assert_int_equal(hlg_wire_encode(m, b->frame, bytes - 1), -HLG_ELIMIT);
    assert_int_equal(hlg_wire_encode(m, b->frame, FRAME_BYTES_MAX), bytes);
    assert_int_equal(hlg_wire_frame_bytes(b->frame, FRAME_BYTES_MAX), bytes);
    return bytes;
}

static void round_trip(struct bench *b, const struct hlg_message *m)
{
    const uint64_t bytes = encode(b, m);
    struct hlg_message got;

    assert_int_equal(hlg_wire_decode(b->frame, bytes, b->scratch, b->scratch_bytes, &got), 0);
    expect_equal(&got, m);
    assert_int_equal(hlg_wire_encode(&got, b->again, FRAME_BYTES_MAX), bytes);
    assert_memory_equal(b->again, b->frame, bytes);
}

static void every_kind_survives_the_way_there_and_back(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;

    for (uint64_t seed = 1; seed <= 10000; seed++) {
        b->seed = seed;
        b->rng = hlg_rng_seed(seed);
        random_message(b, HLG_MESSAGE_HELLO + (uint32_t)(seed % HLG_MESSAGE_BYE), &m);
        round_trip(b, &m);
    }
    b->seed = 0;
}

static int print_seed(void **state)
{
    const struct bench *b = *state;

    if (b->seed != 0) {
        print_message("seed %u\n", (unsigned)b->seed);
    }
    return 0;
}

/* Pages of one token each, no two adjacent, and four bytes of prompt a token. */
static void a_request_of_131072_fragmented_tokens_fits(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;

    b->rng = hlg_rng_seed(7);
    random_message(b, HLG_MESSAGE_REQUEST, &m);
    for (uint32_t index = 0; index < PAGES_MAX; index++) {
        b->pages[index] = 2 * (PAGES_MAX - index);
    }
    m.request.tokens = PAGES_MAX;
    m.request.group_count = 1;
    memset(m.request.groups, 0, sizeof(m.request.groups));
    m.request.groups[0] = (struct hlg_page_list){PAGES_MAX, 0, b->pages};
    m.request.prompt_bytes = 4 * PAGES_MAX;
    assert_true(hlg_wire_bytes(&m) < HLG_MESSAGE_BYTES_MAX);
    round_trip(b, &m);
}

static void a_hello_of_4096_keys_fits(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;

    b->rng = hlg_rng_seed(8);
    memset(&m, 0, sizeof(m));
    m.kind = HLG_MESSAGE_HELLO;
    random_hello(b, &m.hello, ENTRIES_MAX);
    round_trip(b, &m);
}

/* A frame in memory of exactly its size, so that asan sees one byte too many. */
static int decode_exact(struct bench *b, const uint8_t *frame, uint64_t bytes,
                        struct hlg_message *got)
{
    uint8_t *copy = must(malloc(bytes == 0 ? 1 : bytes));
    int status;

    memcpy(copy, frame, bytes);
    status = hlg_wire_decode(copy, bytes, b->scratch, b->scratch_bytes, got);
    if (status == 0) {
        assert_int_equal(hlg_wire_encode(got, b->again, FRAME_BYTES_MAX), bytes);
        assert_memory_equal(b->again, copy, bytes);
    }
    free(copy);
    return status;
}

static void put_length(uint8_t *frame, uint64_t bytes)
{
    for (uint32_t index = 0; index < 4; index++) {
        frame[index] = (uint8_t)(((bytes - 4) >> (8 * index)) & 0xffu);
    }
}

/* Cut anywhere, with the length field told or not told, and lengthened by a byte. */
static void frames_cut_short_are_refused(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;
    struct hlg_message got;

    for (uint32_t kind = HLG_MESSAGE_HELLO; kind <= HLG_MESSAGE_BYE; kind++) {
        uint64_t bytes;

        b->rng = hlg_rng_seed(100 + kind);
        random_message(b, kind, &m);
        bytes = encode(b, &m);
        for (uint64_t cut = 0; cut < bytes; cut++) {
            put_length(b->frame, bytes);
            assert_int_equal(decode_exact(b, b->frame, cut, &got), -HLG_EPROTO);
            if (cut >= 4) {
                put_length(b->frame, cut);
                assert_int_equal(decode_exact(b, b->frame, cut, &got), -HLG_EPROTO);
            }
        }
        put_length(b->frame, bytes + 1);
        b->frame[bytes] = 0;
        assert_int_equal(decode_exact(b, b->frame, bytes + 1, &got), -HLG_EPROTO);
    }
}

static void a_changed_byte_is_refused_or_means_what_it_says(void **state)
{
    struct bench *b = *state;
    uint32_t refused = 0;
    uint32_t taken = 0;
    struct hlg_message m;
    struct hlg_message got;

    for (uint32_t kind = HLG_MESSAGE_HELLO; kind <= HLG_MESSAGE_BYE; kind++) {
        uint64_t bytes;

        b->rng = hlg_rng_seed(200 + kind);
        random_message(b, kind, &m);
        bytes = encode(b, &m);
        for (uint64_t at = 0; at < bytes; at++) {
            for (uint32_t change = 1; change < 256; change++) {
                b->frame[at] ^= (uint8_t)change;
                if (decode_exact(b, b->frame, bytes, &got) == 0) {
                    taken++;
                } else {
                    refused++;
                }
                b->frame[at] ^= (uint8_t)change;
            }
        }
    }
    print_message("changed bytes: %u refused, %u taken\n", refused, taken);
    assert_true(refused > 0 && taken > 0);
}

static void put_u32_at(uint8_t *frame, uint64_t at, uint32_t value)
{
    for (uint32_t index = 0; index < 4; index++) {
        frame[at + index] = (uint8_t)((value >> (8 * index)) & 0xffu);
    }
}

/* A REQUEST of one group of one run, without id and prompt; where its fields lie. */
#define AT_SOURCE       (8u + 12u)
#define AT_SOURCE_COUNT (8u + 16u)
#define AT_SLOT         (8u + 20u)
#define AT_GENERATION   (8u + 24u)
#define AT_TOKENS       (8u + 32u)
#define AT_PROMPT_BYTES (8u + 36u)
#define AT_GROUP_COUNT  (8u + 56u)
#define AT_ID_BYTES     (8u + 60u)
#define AT_LIST         (8u + 64u)

static uint64_t plain_request(struct bench *b, uint32_t count)
{
    struct hlg_message m;

    memset(&m, 0, sizeof(m));
    m.kind = HLG_MESSAGE_REQUEST;
    m.request.number = 1;
    m.request.source_count = 1;
    m.request.tokens = 64;
    m.request.group_count = 1;
    for (uint32_t index = 0; index < count; index++) {
        b->pages[index] = index;
    }
    m.request.groups[0] = (struct hlg_page_list){count, 0, b->pages};
    return encode(b, &m);
}

static void a_value_out_of_range_is_refused(void **state)
{
    struct bench *b = *state;
    static const struct {
        uint32_t at;
        uint32_t good;
        uint32_t bad;
    } cases[] = {
        {AT_SOURCE, 0, 1},
        {AT_SOURCE_COUNT, HLG_SOURCES_MAX, HLG_SOURCES_MAX + 1},
        {AT_SOURCE_COUNT, 1, 0},
        {AT_SLOT, HLG_SLOTS_MAX - 1, HLG_SLOTS_MAX},
        {AT_GENERATION, HLG_GENERATIONS - 1, HLG_GENERATIONS},
        {AT_TOKENS, HLG_TOKENS_MAX, HLG_TOKENS_MAX + 1},
        {AT_TOKENS, 1, 0},
        {AT_PROMPT_BYTES, 0, 1},
        {AT_GROUP_COUNT, 1, HLG_GROUPS_MAX + 1},
        {AT_ID_BYTES, 0, HLG_REQUEST_ID_BYTES_MAX + 1},
        {AT_LIST + 4, HLG_TOKENS_MAX - 4, HLG_TOKENS_MAX - 3}, /* first */
        {AT_LIST + 8, 1, 2},                                   /* runs */
        {AT_LIST + 12, UINT32_MAX - 3, UINT32_MAX - 2},        /* begin: 4 pages must fit */
        {AT_LIST + 16, 4, 5},                                  /* length */
    };
    struct hlg_message got;

    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        const uint64_t bytes = plain_request(b, 4);

        put_u32_at(b->frame, cases[index].at, cases[index].good);
        assert_int_equal(decode_exact(b, b->frame, bytes, &got), 0);
        put_u32_at(b->frame, cases[index].at, cases[index].bad);
        assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_EPROTO);
    }
}

/* What FENCED awaits is one of three things; other answers have nothing to say there. */
static void what_an_answer_awaits_is_checked(void **state)
{
    struct bench *b = *state;
    enum {
        AT_AWAIT = 8 + 36
    };

    for (uint32_t kind = HLG_MESSAGE_ACCEPT; kind <= HLG_MESSAGE_FAILED; kind++) {
        struct hlg_message m = {.kind = kind, .answer = {.number = 1}};
        struct hlg_message got;
        const uint64_t bytes = encode(b, &m);

        for (uint32_t await = 0; await <= HLG_AWAIT_ALL + 1; await++) {
            const bool good = await <= (kind == HLG_MESSAGE_FENCED ? (uint32_t)HLG_AWAIT_ALL : 0u);
            put_u32_at(b->frame, AT_AWAIT, await);
            assert_int_equal(decode_exact(b, b->frame, bytes, &got), good ? 0 : -HLG_EPROTO);
            assert_true(!good || got.answer.await == await);
        }
    }
}

/* Sixteen bytes that claim four billion pages cost nothing. */
static void hostile_lengths_write_nothing(void **state)
{
    struct bench *b = *state;
    static const uint32_t counts[] = {5, HLG_TOKENS_MAX, HLG_TOKENS_MAX + 1, UINT32_MAX};
    const uint64_t bytes = plain_request(b, 4);
    struct hlg_message got;

    for (size_t index = 0; index < sizeof(counts) / sizeof(counts[0]); index++) {
        put_u32_at(b->frame, AT_LIST, counts[index]);
        put_u32_at(b->frame, AT_LIST + 16, counts[index]);
        memset(b->scratch, 0x5a, 64);
        if (counts[index] > HLG_TOKENS_MAX) {
            assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_EPROTO);
        } else if (counts[index] > b->scratch_bytes / 4) {
            assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_ELIMIT);
        } else {
            assert_int_equal(decode_exact(b, b->frame, bytes, &got), 0);
            continue;
        }
        for (uint32_t at = 0; at < 64; at++) {
            assert_int_equal(b->scratch[at], 0x5a);
        }
    }
}

/* A count that the body cannot hold is refused before the first entry is written. */
static void counts_beyond_the_body_write_nothing(void **state)
{
    struct bench *b = *state;
    struct hlg_message m = {.kind = HLG_MESSAGE_CREDIT};
    struct hlg_message got;

    b->credits[0] = (struct hlg_credit_entry){1, 2, 3};
    m.credit = (struct hlg_credit){.count = 1, .entries = b->credits};
    for (uint32_t count = 2; count < 20; count++) {
        const uint64_t bytes = encode(b, &m);

        put_u32_at(b->frame, 32, count);
        b->scratch[0] = 0x5a;
        assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_EPROTO);
        assert_int_equal(b->scratch[0], 0x5a);
    }
}

static void runs_have_one_encoding(void **state)
{
    struct bench *b = *state;
    struct hlg_message got;
    uint64_t bytes = plain_request(b, 4);

    /* 0..3 as 0..1 and 2..3 */
    put_u32_at(b->frame, AT_LIST + 8, 2);
    put_u32_at(b->frame, AT_LIST + 16, 2);
    put_u32_at(b->frame, AT_LIST + 20, 2);
    put_u32_at(b->frame, AT_LIST + 24, 2);
    bytes += 8;
    put_length(b->frame, bytes);
    assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_EPROTO);
    put_u32_at(b->frame, AT_LIST + 20, 3); /* 0, 1, 3, 4 */
    assert_int_equal(decode_exact(b, b->frame, bytes, &got), 0);
    put_u32_at(b->frame, AT_LIST + 16, 4); /* an empty run */
    put_u32_at(b->frame, AT_LIST + 24, 0);
    assert_int_equal(decode_exact(b, b->frame, bytes, &got), -HLG_EPROTO);
}

static void short_scratch_is_a_limit(void **state)
{
    struct bench *b = *state;
    struct hlg_message got = {0};
    const uint64_t bytes = plain_request(b, 4);

    assert_int_equal(hlg_wire_decode(b->frame, bytes, b->scratch, 8, &got), -HLG_ELIMIT);
    assert_int_equal(got.kind, 0);
    assert_int_equal(hlg_wire_decode(b->frame, bytes, b->scratch, 16, &got), 0);
}

static void unknown_kinds_and_versions_are_refused(void **state)
{
    struct bench *b = *state;
    struct hlg_message got;
    uint8_t frame[8] = {4, 0, 0, 0, HLG_PROTOCOL_MAX, 0, HLG_MESSAGE_DRAIN, 0};

    assert_int_equal(decode_exact(b, frame, 8, &got), 0);
    frame[6] = 0;
    assert_int_equal(decode_exact(b, frame, 8, &got), -HLG_EPROTO);
    frame[6] = HLG_MESSAGE_BYE + 1;
    assert_int_equal(decode_exact(b, frame, 8, &got), -HLG_EPROTO);
    frame[6] = HLG_MESSAGE_DRAIN;
    frame[4] = HLG_PROTOCOL_MAX + 1;
    assert_int_equal(decode_exact(b, frame, 8, &got), -HLG_EPROTO);
    frame[4] = 0;
    assert_int_equal(decode_exact(b, frame, 8, &got), -HLG_EPROTO);
}

static void a_header_tells_the_length_or_is_refused(void **state)
{
    uint8_t header[8] = {4, 0, 0, 0, 1, 0, 9, 0};

    (void)state;
    assert_int_equal(hlg_wire_frame_bytes(header, 8), 8);
    assert_int_equal(hlg_wire_frame_bytes(header, 7), -HLG_EPROTO);
    header[0] = 3;
    assert_int_equal(hlg_wire_frame_bytes(header, 4096), -HLG_EPROTO);
    memset(header, 0xff, 4);
    assert_int_equal(hlg_wire_frame_bytes(header, UINT32_MAX), -HLG_EPROTO);
}

static void example_answer(uint32_t kind, struct hlg_answer *answer)
{
    answer->number = 17;
    answer->incarnation = 3;
    answer->session = kind == HLG_MESSAGE_CANCEL ? 4 : 0;
    answer->pieces = kind == HLG_MESSAGE_ACCEPT || kind == HLG_MESSAGE_FENCED ? 16
                     : kind == HLG_MESSAGE_FAILED                             ? 9
                                                                              : 0;
    answer->reason = kind == HLG_MESSAGE_REJECT   ? (uint32_t)HLG_REASON_REJECTED
                     : kind == HLG_MESSAGE_FAILED ? (uint32_t)HLG_REASON_PREEMPTED
                                                  : 0;
    answer->await = kind == HLG_MESSAGE_FENCED ? HLG_AWAIT_PIECES : 0;
    answer->retry_after_ns = kind == HLG_MESSAGE_REJECT ? HLG_NS_PER_MS : 0;
}

/* The messages of docs/protocol.md, one of each kind, small enough to read. */
static void example(uint32_t kind, struct hlg_message *m)
{
    static const uint32_t pages[] = {7, 8, 9, 3};
    static const struct hlg_rail_address address = {0, 1, 3, {0xa1, 0xa2, 0xa3}};
    static const struct hlg_region_key key = {0, 2, 1, 0, 0x1000, 0x2000, 0x1122334455667788};
    static const struct hlg_place place = {0, 0, 5, 1, 2, 0, 0x40, 0x80};
    static const struct hlg_credit_entry credit = {1, 0, 300};

    memset(m, 0, sizeof(*m));
    m->kind = kind;
    if (kind == HLG_MESSAGE_HELLO) {
        m->hello = (struct hlg_hello){
            .protocol_min = 1,
            .protocol_max = 1,
            .role = HLG_ROLE_DECODE,
            .window_pieces = 512,
            .message_bytes_max = 1u << 20,
            .prompt_bytes_max = 1u << 16,
            .node = 0xabcd,
            .incarnation = 3,
            .session = 4,
            .fingerprint = {0xf0, 0xf1},
            .provider = "loop",
            .layout = {.tp = 1,
                       .stages = 1,
                       .pools = 1,
                       .layers = 2,
                       .stage_limit = {2},
                       .rank_limit = 1,
                       .all_reduce = 1,
                       .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                       .group_count = 1,
                       .groups = {{HLG_GROUP_PAGED, 2, 8, 256, 16, HLG_NHD, 100, {3}}}},
            .address_count = 1,
            .key_count = 1,
            .place_count = 1,
            .addresses = &address,
            .keys = &key,
            .places = &place,
        };
    } else if (kind == HLG_MESSAGE_REQUEST) {
        m->request = (struct hlg_request_message){
            .number = 17,
            .source_count = 1,
            .slot = 5,
            .generation = 6,
            .offset = 1,
            .tokens = 65,
            .prompt_bytes = 4,
            .pieces = 16,
            .ttl_ns = HLG_NS_PER_S,
            .groups = {{4, 0, pages}},
            .group_count = 1,
            .id_bytes = 2,
            .id = {'r', '1'},
            .prompt = (const uint8_t *)"\x01\x02\x03\x04",
        };
    } else if (kind == HLG_MESSAGE_CREDIT) {
        m->credit = (struct hlg_credit){.count = 1, .entries = &credit};
    } else if (kind == HLG_MESSAGE_BYE) {
        m->bye.why = (struct hlg_refusal){HLG_REFUSAL_HEADS_TP, 0, 6, 4, 0};
    } else if (kind != HLG_MESSAGE_HEARTBEAT && kind != HLG_MESSAGE_DRAIN) {
        example_answer(kind, &m->answer);
    }
}

static const char *const kind_names[] = {"",       "HELLO",     "REQUEST", "ACCEPT",
                                         "REJECT", "CANCEL",    "FENCED",  "FAILED",
                                         "CREDIT", "HEARTBEAT", "DRAIN",   "BYE"};

static char *read_protocol(void)
{
    const char *root = getenv("HALAGE_SOURCE_DIR");
    char path[4096];
    const size_t bytes_max = 1u << 20;
    char *text = must(calloc(1, bytes_max));
    FILE *file;

    assert_true(snprintf(path, sizeof(path), "%s/docs/protocol.md", root == NULL ? "." : root) > 0);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(text, 1, bytes_max - 1, file) > 0);
    (void)fclose(file);
    return text;
}

/* Read the hexadecimal block "```frame KIND" of the page. */
static uint64_t read_example(const char *text, const char *name, uint8_t *bytes, uint64_t capacity)
{
    char heading[40];
    const char *at;
    uint64_t count = 0;

    (void)snprintf(heading, sizeof(heading), "```frame %s\n", name);
    at = strstr(text, heading);
    if (at == NULL) {
        return 0;
    }
    at += strlen(heading);
    while (*at != '`' && count < capacity) {
        char *end;

        bytes[count++] = (uint8_t)strtoul(at, &end, 16);
        assert_ptr_not_equal(end, at);
        at = end + strspn(end, " \n");
    }
    return count;
}

static void print_frame(const char *name, const uint8_t *frame, uint64_t bytes)
{
    print_message("```frame %s", name);
    for (uint64_t at = 0; at < bytes; at++) {
        print_message("%s%02x", at % 16 == 0 ? "\n" : " ", frame[at]);
    }
    print_message("\n```\n");
}

static void frames_are_those_of_the_documentation(void **state)
{
    struct bench *b = *state;
    char *text = read_protocol();
    bool equal = true;
    struct hlg_message m;

    for (uint32_t kind = HLG_MESSAGE_HELLO; kind <= HLG_MESSAGE_BYE; kind++) {
        uint64_t bytes;
        uint64_t golden;

        example(kind, &m);
        round_trip(b, &m);
        bytes = encode(b, &m);
        golden = read_example(text, kind_names[kind], b->again, 4096);
        if (golden != bytes || memcmp(b->again, b->frame, bytes) != 0) {
            print_frame(kind_names[kind], b->frame, bytes);
            equal = false;
        }
    }
    free(text);
    assert_true(equal);
}

/* Who says HELLO is read before the rest of it is: from as few bytes as hold it, of HELLOs of a known
 * protocol alone. */
static void the_identity_of_a_hello_is_read_from_its_beginning(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;
    uint64_t node = 0;
    uint64_t incarnation = 0;
    uint64_t least = 0;

    example(HLG_MESSAGE_HELLO, &m);
    const uint64_t bytes = encode(b, &m);
    while (!hlg_wire_hello_identity(b->frame, least, &node, &incarnation)) {
        assert_int_equal(node + incarnation, 0); /* written on success alone */
        assert_true(++least < bytes);
    }
    for (uint64_t count = least; count <= bytes; count++) {
        node = 0;
        assert_true(hlg_wire_hello_identity(b->frame, count, &node, &incarnation));
        assert_int_equal(node, m.hello.node);
        assert_int_equal(incarnation, m.hello.incarnation);
    }
    for (uint32_t version = 0; version < 4; version++) {
        b->frame[4] = (uint8_t)version;
        assert_int_equal(hlg_wire_hello_identity(b->frame, bytes, &node, &incarnation),
                         version >= HLG_PROTOCOL_MIN && version <= HLG_PROTOCOL_MAX);
    }
    b->frame[4] = HLG_PROTOCOL_MAX;
    b->frame[6] = HLG_MESSAGE_REQUEST;
    assert_false(hlg_wire_hello_identity(b->frame, bytes, &node, &incarnation));
}

/* However little scratch there is, it is a limit and no message comes of it: cut at each of a HELLO's
 * tables. */
static void a_hello_beyond_its_scratch_is_a_limit(void **state)
{
    struct bench *b = *state;
    struct hlg_message m;
    struct hlg_message got = {0};
    uint64_t scratch = 0;

    example(HLG_MESSAGE_HELLO, &m);
    const uint64_t bytes = encode(b, &m);
    while (hlg_wire_decode(b->frame, bytes, b->scratch, scratch, &got) == -HLG_ELIMIT) {
        assert_int_equal(got.kind, 0);
        scratch += 8;
        assert_true(scratch < bytes + 1024);
    }
    assert_int_equal(got.kind, HLG_MESSAGE_HELLO);
    assert_true(scratch > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_kind_survives_the_way_there_and_back, print_seed),
        cmocka_unit_test(a_request_of_131072_fragmented_tokens_fits),
        cmocka_unit_test(a_hello_of_4096_keys_fits),
        cmocka_unit_test(frames_cut_short_are_refused),
        cmocka_unit_test(a_changed_byte_is_refused_or_means_what_it_says),
        cmocka_unit_test(a_value_out_of_range_is_refused),
        cmocka_unit_test(what_an_answer_awaits_is_checked),
        cmocka_unit_test(hostile_lengths_write_nothing),
        cmocka_unit_test(counts_beyond_the_body_write_nothing),
        cmocka_unit_test(runs_have_one_encoding),
        cmocka_unit_test(short_scratch_is_a_limit),
        cmocka_unit_test(unknown_kinds_and_versions_are_refused),
        cmocka_unit_test(a_header_tells_the_length_or_is_refused),
        cmocka_unit_test(frames_are_those_of_the_documentation),
        cmocka_unit_test(the_identity_of_a_hello_is_read_from_its_beginning),
        cmocka_unit_test(a_hello_beyond_its_scratch_is_a_limit),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
