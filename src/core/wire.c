/*
 * Every integer is put and got byte by byte, so that neither the host's byte order nor a struct's
 * layout shows. A reader goes bad at its first overrun and stays so; it is asked once, at the end.
 */
#include <string.h>

#include "halage/wire.h"

#define ADDRESS_FIXED_BYTES   12u /* lane, rail, bytes */
#define KEY_BYTES             40u
#define PLACE_BYTES           40u
#define CREDIT_ENTRY_BYTES    16u
#define ANSWER_BYTES          48u
#define BYE_BYTES             20u
#define RUN_BYTES             8u
#define GROUP_BYTES           60u
#define PAGE_LIST_FIXED_BYTES 12u /* count, first, runs */
#define REQUEST_FIXED_BYTES   64u
#define HELLO_FIXED_BYTES     124u
#define LOAD_BYTES            24u
#define CREDIT_FIXED_BYTES    (LOAD_BYTES + 4u)
#define LAYOUT_FIXED_BYTES    36u
#define RAILS_OF_NODE_MAX     (HLG_RANKS_MAX * HLG_RAILS_MAX)

/* hlg_wire_scratch_bytes() reckons with these: an entry is as long in memory as on the wire. */
_Static_assert(sizeof(struct hlg_region_key) == KEY_BYTES, "keys do not grow");
_Static_assert(sizeof(struct hlg_place) == PLACE_BYTES, "places do not grow");
_Static_assert(sizeof(struct hlg_credit_entry) == CREDIT_ENTRY_BYTES, "credits do not grow");
_Static_assert(sizeof(struct hlg_group) == GROUP_BYTES + 4, "a group's fields and a pad");
_Static_assert(sizeof(struct hlg_layout) == 104 + HLG_GROUPS_MAX * sizeof(struct hlg_group),
               "a layout's fields and a pad");

struct writer {
    uint8_t *next;
    uint8_t *limit;
};

static void put_bytes(struct writer *w, const void *bytes, uint64_t count)
{
    HLG_ASSERT(count <= (uint64_t)(w->limit - w->next));
    if (count != 0) {
        memcpy(w->next, bytes, count);
    }
    w->next += count;
}

static void put_u16(struct writer *w, uint32_t value)
{
    const uint8_t bytes[2] = {(uint8_t)(value & 0xffu), (uint8_t)((value >> 8) & 0xffu)};

    HLG_ASSERT(value <= UINT16_MAX);
    put_bytes(w, bytes, sizeof(bytes));
}

static void put_u32(struct writer *w, uint32_t value)
{
    uint8_t bytes[4];

    for (uint32_t index = 0; index < 4; index++) {
        bytes[index] = (uint8_t)((value >> (8 * index)) & 0xffu);
    }
    put_bytes(w, bytes, sizeof(bytes));
}

static void put_u64(struct writer *w, uint64_t value)
{
    put_u32(w, (uint32_t)(value & UINT32_MAX));
    put_u32(w, (uint32_t)(value >> 32));
}

struct reader {
    const uint8_t *next;
    uint64_t left;
    bool bad;
};

/* Returns NULL, and goes bad, when fewer are left. */
static const uint8_t *get_bytes(struct reader *r, uint64_t count)
{
    const uint8_t *bytes = r->next;

    if (r->bad || count > r->left) {
        r->bad = true;
        return NULL;
    }
    r->next += count;
    r->left -= count;
    return bytes;
}

static uint32_t get_u16(struct reader *r)
{
    const uint8_t *bytes = get_bytes(r, 2);

    return bytes == NULL ? 0 : (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t get_u32(struct reader *r)
{
    const uint8_t *bytes = get_bytes(r, 4);

    return bytes == NULL ? 0
                         : (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                               (uint32_t)bytes[3] << 24;
}

static uint64_t get_u64(struct reader *r)
{
    const uint64_t low = get_u32(r);

    return low | (uint64_t)get_u32(r) << 32;
}

static void require(struct reader *r, bool condition)
{
    if (!condition) {
        r->bad = true;
    }
}

/* A count of entries of at least `entry_bytes` each: never more than the body can still hold. */
static uint32_t get_count(struct reader *r, uint32_t entry_bytes, uint32_t count_max)
{
    const uint32_t count = get_u32(r);

    require(r, count <= count_max && count <= r->left / entry_bytes);
    return r->bad ? 0 : count;
}

struct arena {
    uint8_t *base;
    uint64_t bytes;
    uint64_t used;
    bool full;
};

static void *arena_take(struct arena *arena, uint64_t count, uint64_t entry_bytes)
{
    /* Counts are bounded by the frame, or by HLG_TOKENS_MAX, so that this cannot overflow. */
    const uint64_t bytes = (count * entry_bytes + 7) / 8 * 8;
    void *taken = arena->base + arena->used;

    HLG_ASSERT(count <= HLG_MESSAGE_BYTES_MAX && entry_bytes <= 128);
    if (bytes > arena->bytes - arena->used) {
        arena->full = true;
        return NULL;
    }
    arena->used += bytes;
    return taken;
}

/* Which fields a kind of struct hlg_answer may use; the others are 0 on the wire. */
static bool answer_is_sound(uint32_t kind, const struct hlg_answer *answer)
{
    const bool reject = kind == HLG_MESSAGE_REJECT;
    const bool counted =
        kind == HLG_MESSAGE_ACCEPT || kind == HLG_MESSAGE_FENCED || kind == HLG_MESSAGE_FAILED;

    return answer->number != 0 && answer->reason <= HLG_REASON_PREEMPTED &&
           (kind == HLG_MESSAGE_CANCEL || answer->session == 0) &&
           (counted || answer->pieces == 0) &&
           (reject || kind == HLG_MESSAGE_FAILED || answer->reason == 0) &&
           answer->await <= (kind == HLG_MESSAGE_FENCED ? HLG_AWAIT_ALL : HLG_AWAIT_NOTHING) &&
           (reject || answer->retry_after_ns == 0);
}

static void put_answer(struct writer *w, uint32_t kind, const struct hlg_answer *answer)
{
    HLG_ASSERT(answer_is_sound(kind, answer));
    put_u64(w, answer->number);
    put_u64(w, answer->incarnation);
    put_u64(w, answer->session);
    put_u64(w, answer->pieces);
    put_u32(w, answer->reason);
    put_u32(w, answer->await);
    put_u64(w, answer->retry_after_ns);
}

static void get_answer(struct reader *r, uint32_t kind, struct hlg_answer *answer)
{
    answer->number = get_u64(r);
    answer->incarnation = get_u64(r);
    answer->session = get_u64(r);
    answer->pieces = get_u64(r);
    answer->reason = get_u32(r);
    answer->await = get_u32(r);
    answer->retry_after_ns = get_u64(r);
    require(r, answer_is_sound(kind, answer));
}

static void put_group(struct writer *w, const struct hlg_group *group)
{
    put_u32(w, group->kind);
    put_u32(w, group->planes);
    put_u32(w, group->heads);
    put_u32(w, group->head_bytes);
    put_u32(w, group->page_tokens);
    put_u32(w, group->arrangement);
    put_u32(w, group->page_count);
    for (uint32_t word = 0; word < 4; word++) {
        put_u64(w, group->layers[word]);
    }
}

static void get_group(struct reader *r, struct hlg_group *group)
{
    group->kind = get_u32(r);
    group->planes = get_u32(r);
    group->heads = get_u32(r);
    group->head_bytes = get_u32(r);
    group->page_tokens = get_u32(r);
    group->arrangement = get_u32(r);
    group->page_count = get_u32(r);
    for (uint32_t word = 0; word < 4; word++) {
        group->layers[word] = get_u64(r);
    }
}

/* Only the stages and groups in use travel. Whether the numbers make sense is layout.c's to say. */
static void put_layout(struct writer *w, const struct hlg_layout *layout)
{
    put_u32(w, layout->tp);
    put_u32(w, layout->stages);
    put_u32(w, layout->pools);
    put_u32(w, layout->layers);
    for (uint32_t stage = 0; stage < layout->stages; stage++) {
        put_u32(w, layout->stage_limit[stage]);
    }
    put_u32(w, layout->rank_begin);
    put_u32(w, layout->rank_limit);
    put_u32(w, layout->all_reduce);
    put_u32(w, layout->piece_bytes_max);
    put_u32(w, layout->group_count);
    for (uint32_t index = 0; index < layout->group_count; index++) {
        put_group(w, &layout->groups[index]);
    }
}

static void get_layout(struct reader *r, struct hlg_layout *layout)
{
    layout->tp = get_u32(r);
    layout->stages = get_u32(r);
    layout->pools = get_u32(r);
    layout->layers = get_u32(r);
    require(r, layout->stages <= HLG_STAGES_MAX);
    for (uint32_t stage = 0; stage < layout->stages && !r->bad; stage++) {
        layout->stage_limit[stage] = get_u32(r);
    }
    layout->rank_begin = get_u32(r);
    layout->rank_limit = get_u32(r);
    layout->all_reduce = get_u32(r);
    layout->piece_bytes_max = get_u32(r);
    layout->group_count = get_count(r, GROUP_BYTES, HLG_GROUPS_MAX);
    for (uint32_t index = 0; index < layout->group_count && !r->bad; index++) {
        get_group(r, &layout->groups[index]);
    }
}

static bool provider_is_padded(const char *provider, uint32_t bytes)
{
    bool over = false;

    for (uint32_t index = 0; index < bytes; index++) {
        if (over && provider[index] != 0) {
            return false;
        }
        over = over || provider[index] == 0;
    }
    return over;
}

static void put_addresses(struct writer *w, const struct hlg_hello *hello)
{
    put_u32(w, hello->address_count);
    for (uint32_t index = 0; index < hello->address_count; index++) {
        const struct hlg_rail_address *address = &hello->addresses[index];

        put_u32(w, address->lane);
        put_u32(w, address->rail);
        put_u32(w, address->bytes);
        put_bytes(w, address->address, address->bytes);
    }
}

static void get_addresses(struct reader *r, struct arena *arena, struct hlg_hello *hello)
{
    const uint32_t count = get_count(r, ADDRESS_FIXED_BYTES + 1, RAILS_OF_NODE_MAX);
    struct hlg_rail_address *addresses = arena_take(arena, count, sizeof(*addresses));

    for (uint32_t index = 0; addresses != NULL && index < count && !r->bad; index++) {
        struct hlg_rail_address *address = &addresses[index];
        const uint8_t *bytes;

        memset(address, 0, sizeof(*address));
        address->lane = get_u32(r);
        address->rail = get_u32(r);
        address->bytes = get_u32(r);
        require(r, address->bytes >= 1 && address->bytes <= HLG_ADDRESS_BYTES_MAX);
        bytes = get_bytes(r, address->bytes);
        if (bytes != NULL) {
            memcpy(address->address, bytes, address->bytes);
        }
    }
    hello->address_count = count;
    hello->addresses = addresses;
}

static void put_keys(struct writer *w, const struct hlg_hello *hello)
{
    put_u32(w, hello->key_count);
    for (uint32_t index = 0; index < hello->key_count; index++) {
        const struct hlg_region_key *key = &hello->keys[index];

        HLG_ASSERT(key->pad == 0);
        put_u32(w, key->lane);
        put_u32(w, key->region);
        put_u32(w, key->rail);
        put_u32(w, key->pad);
        put_u64(w, key->address);
        put_u64(w, key->bytes);
        put_u64(w, key->key);
    }
}

static void get_keys(struct reader *r, struct arena *arena, struct hlg_hello *hello)
{
    const uint32_t count = get_count(r, KEY_BYTES, HLG_MESSAGE_BYTES_MAX);
    struct hlg_region_key *keys = arena_take(arena, count, sizeof(*keys));

    for (uint32_t index = 0; keys != NULL && index < count; index++) {
        struct hlg_region_key *key = &keys[index];

        key->lane = get_u32(r);
        key->region = get_u32(r);
        key->rail = get_u32(r);
        key->pad = get_u32(r);
        key->address = get_u64(r);
        key->bytes = get_u64(r);
        key->key = get_u64(r);
        require(r, key->pad == 0);
    }
    hello->key_count = count;
    hello->keys = keys;
}

static void put_places(struct writer *w, const struct hlg_hello *hello)
{
    put_u32(w, hello->place_count);
    for (uint32_t index = 0; index < hello->place_count; index++) {
        const struct hlg_place *place = &hello->places[index];

        HLG_ASSERT(place->pad == 0);
        put_u32(w, place->lane);
        put_u32(w, place->group);
        put_u32(w, place->layer);
        put_u32(w, place->plane);
        put_u32(w, place->region);
        put_u32(w, place->pad);
        put_u64(w, place->offset);
        put_u64(w, place->stride);
    }
}

static void get_places(struct reader *r, struct arena *arena, struct hlg_hello *hello)
{
    const uint32_t count = get_count(r, PLACE_BYTES, HLG_MESSAGE_BYTES_MAX);
    struct hlg_place *places = arena_take(arena, count, sizeof(*places));

    for (uint32_t index = 0; places != NULL && index < count; index++) {
        struct hlg_place *place = &places[index];

        place->lane = get_u32(r);
        place->group = get_u32(r);
        place->layer = get_u32(r);
        place->plane = get_u32(r);
        place->region = get_u32(r);
        place->pad = get_u32(r);
        place->offset = get_u64(r);
        place->stride = get_u64(r);
        require(r, place->pad == 0);
    }
    hello->place_count = count;
    hello->places = places;
}

static void put_load(struct writer *w, const struct hlg_load *load)
{
    put_u64(w, load->requests);
    put_u64(w, load->pages);
    put_u64(w, load->prompt_bytes);
}

static void get_load(struct reader *r, struct hlg_load *load)
{
    load->requests = get_u64(r);
    load->pages = get_u64(r);
    load->prompt_bytes = get_u64(r);
}

/* Only a prefiller grants, and drains. */
static bool grant_is_sound(const struct hlg_hello *hello)
{
    const struct hlg_load *grant = &hello->grant;

    return hello->role <= HLG_ROLE_DECODE && hello->draining <= 1 &&
           (hello->role == HLG_ROLE_PREFILL || (hello->draining == 0 && grant->requests == 0 &&
                                                grant->pages == 0 && grant->prompt_bytes == 0));
}

static void put_hello(struct writer *w, const struct hlg_hello *hello)
{
    HLG_ASSERT(grant_is_sound(hello));
    HLG_ASSERT(provider_is_padded(hello->provider, sizeof(hello->provider)));
    put_u32(w, hello->protocol_min);
    put_u32(w, hello->protocol_max);
    put_u32(w, hello->role);
    put_u32(w, hello->window_pieces);
    put_u32(w, hello->message_bytes_max);
    put_u32(w, hello->prompt_bytes_max);
    put_u32(w, hello->draining);
    put_load(w, &hello->grant);
    put_u64(w, hello->node);
    put_u64(w, hello->incarnation);
    put_u64(w, hello->session);
    put_bytes(w, hello->fingerprint, sizeof(hello->fingerprint));
    put_bytes(w, hello->provider, sizeof(hello->provider));
    put_layout(w, &hello->layout);
    put_addresses(w, hello);
    put_keys(w, hello);
    put_places(w, hello);
}

/* The first fields of a HELLO. */
static void get_greeter(struct reader *r, struct hlg_hello *hello)
{
    hello->protocol_min = get_u32(r);
    hello->protocol_max = get_u32(r);
    hello->role = get_u32(r);
    hello->window_pieces = get_u32(r);
    hello->message_bytes_max = get_u32(r);
    hello->prompt_bytes_max = get_u32(r);
    hello->draining = get_u32(r);
    get_load(r, &hello->grant);
    hello->node = get_u64(r);
    hello->incarnation = get_u64(r);
    hello->session = get_u64(r);
}

static void get_hello(struct reader *r, struct arena *arena, struct hlg_hello *hello)
{
    const uint8_t *bytes;

    get_greeter(r, hello);
    require(r, grant_is_sound(hello));
    bytes = get_bytes(r, sizeof(hello->fingerprint) + sizeof(hello->provider));
    if (bytes != NULL) {
        memcpy(hello->fingerprint, bytes, sizeof(hello->fingerprint));
        memcpy(hello->provider, bytes + sizeof(hello->fingerprint), sizeof(hello->provider));
        require(r, provider_is_padded(hello->provider, sizeof(hello->provider)));
    }
    get_layout(r, &hello->layout);
    get_addresses(r, arena, hello);
    if (!arena->full) {
        get_keys(r, arena, hello);
    }
    if (!arena->full) {
        get_places(r, arena, hello);
    }
}

/* Where the run that begins at pages[begin] ends: the longest that ascends by one. */
static uint32_t run_limit(const struct hlg_page_list *list, uint32_t begin)
{
    uint32_t limit = begin + 1;

    while (limit < list->count && list->pages[limit - 1] != UINT32_MAX &&
           list->pages[limit] == list->pages[limit - 1] + 1) {
        limit++;
    }
    return limit;
}

static uint32_t run_count(const struct hlg_page_list *list)
{
    uint32_t runs = 0;

    for (uint32_t begin = 0; begin < list->count; begin = run_limit(list, begin)) {
        runs++;
    }
    return runs;
}

static void put_page_list(struct writer *w, const struct hlg_page_list *list)
{
    put_u32(w, list->count);
    put_u32(w, list->first);
    put_u32(w, run_count(list));
    for (uint32_t begin = 0; begin < list->count;) {
        const uint32_t limit = run_limit(list, begin);

        put_u32(w, list->pages[begin]);
        put_u32(w, limit - begin);
        begin = limit;
    }
}

/*
 * Look at all runs before one page is written: they must be as long as the list says, within 32
 * bits, and none may continue the one before it, so that each list has one encoding.
 */
static bool runs_are_sound(struct reader runs, uint32_t runs_count, uint32_t pages)
{
    uint64_t total = 0;
    uint64_t limit_before = UINT64_MAX;

    for (uint32_t run = 0; run < runs_count; run++) {
        const uint64_t begin = get_u32(&runs);
        const uint64_t count = get_u32(&runs);

        if (count == 0 || begin + count > (uint64_t)UINT32_MAX + 1 || begin == limit_before) {
            return false;
        }
        limit_before = begin + count;
        total += count;
    }
    return !runs.bad && total == pages;
}

static void get_page_list(struct reader *r, struct arena *arena, uint32_t pages_max,
                          struct hlg_page_list *list)
{
    const uint32_t count = get_u32(r);
    const uint32_t first = get_u32(r);
    const uint32_t runs = get_count(r, RUN_BYTES, count);
    uint32_t *pages;
    uint32_t filled = 0;

    require(r, count <= pages_max && (uint64_t)first + count <= HLG_TOKENS_MAX);
    if (r->bad || !runs_are_sound(*r, runs, count)) {
        r->bad = true;
        return;
    }
    pages = arena_take(arena, count, sizeof(*pages));
    if (pages == NULL) {
        return;
    }
    for (uint32_t run = 0; run < runs; run++) {
        const uint32_t begin = get_u32(r);
        const uint32_t length = get_u32(r);

        for (uint32_t index = 0; index < length; index++) {
            pages[filled++] = begin + index;
        }
    }
    HLG_ASSERT(filled == count);
    list->count = count;
    list->first = first;
    list->pages = pages;
}

static bool request_is_sound(const struct hlg_request_message *request)
{
    return request->number != 0 && request->source_count >= 1 &&
           request->source_count <= HLG_SOURCES_MAX && request->source < request->source_count &&
           request->slot < HLG_SLOTS_MAX && request->generation < HLG_GENERATIONS &&
           request->tokens >= 1 && request->tokens <= HLG_TOKENS_MAX &&
           request->group_count <= HLG_GROUPS_MAX && request->id_bytes <= HLG_REQUEST_ID_BYTES_MAX;
}

static void put_request(struct writer *w, const struct hlg_request_message *request)
{
    HLG_ASSERT(request_is_sound(request));
    put_u64(w, request->number);
    put_u32(w, request->pool);
    put_u32(w, request->source);
    put_u32(w, request->source_count);
    put_u32(w, request->slot);
    put_u32(w, request->generation);
    put_u32(w, request->offset);
    put_u32(w, request->tokens);
    put_u32(w, request->prompt_bytes);
    put_u64(w, request->pieces);
    put_u64(w, request->ttl_ns);
    put_u32(w, request->group_count);
    put_u32(w, request->id_bytes);
    put_bytes(w, request->id, request->id_bytes);
    for (uint32_t group = 0; group < request->group_count; group++) {
        put_page_list(w, &request->groups[group]);
    }
    put_bytes(w, request->prompt, request->prompt_bytes);
}

static void get_request(struct reader *r, struct arena *arena, struct hlg_request_message *request)
{
    uint32_t pages_max = HLG_TOKENS_MAX; /* of all groups together */
    const uint8_t *id;

    request->number = get_u64(r);
    request->pool = get_u32(r);
    request->source = get_u32(r);
    request->source_count = get_u32(r);
    request->slot = get_u32(r);
    request->generation = get_u32(r);
    request->offset = get_u32(r);
    request->tokens = get_u32(r);
    request->prompt_bytes = get_u32(r);
    request->pieces = get_u64(r);
    request->ttl_ns = get_u64(r);
    request->group_count = get_u32(r);
    request->id_bytes = get_u32(r);
    require(r, request_is_sound(request));
    id = get_bytes(r, request->id_bytes);
    if (id != NULL) {
        memcpy(request->id, id, request->id_bytes);
    }
    for (uint32_t group = 0; group < request->group_count && !r->bad && !arena->full; group++) {
        get_page_list(r, arena, pages_max, &request->groups[group]);
        pages_max -= request->groups[group].count;
    }
    if (!arena->full && request->prompt_bytes != 0) {
        request->prompt = get_bytes(r, request->prompt_bytes);
    }
}

static void put_credit(struct writer *w, const struct hlg_credit *credit)
{
    put_load(w, &credit->finished);
    put_u32(w, credit->count);
    for (uint32_t index = 0; index < credit->count; index++) {
        put_u32(w, credit->entries[index].lane);
        put_u32(w, credit->entries[index].rail);
        put_u64(w, credit->entries[index].pieces);
    }
}

static void get_credit(struct reader *r, struct arena *arena, struct hlg_credit *credit)
{
    get_load(r, &credit->finished);

    const uint32_t count = get_count(r, CREDIT_ENTRY_BYTES, RAILS_OF_NODE_MAX);
    struct hlg_credit_entry *entries = arena_take(arena, count, sizeof(*entries));

    for (uint32_t index = 0; entries != NULL && index < count; index++) {
        entries[index].lane = get_u32(r);
        entries[index].rail = get_u32(r);
        entries[index].pieces = get_u64(r);
    }
    credit->count = count;
    credit->entries = entries;
}

static void put_bye(struct writer *w, const struct hlg_bye *bye)
{
    put_u32(w, bye->why.code);
    put_u32(w, bye->why.a);
    put_u32(w, bye->why.b);
    put_u32(w, bye->why.c);
    put_u32(w, bye->why.d);
}

/* Any code is let through: an unknown one ends the session as well as a known one. */
static void get_bye(struct reader *r, struct hlg_bye *bye)
{
    bye->why.code = get_u32(r);
    bye->why.a = get_u32(r);
    bye->why.b = get_u32(r);
    bye->why.c = get_u32(r);
    bye->why.d = get_u32(r);
}

static uint64_t hello_bytes(const struct hlg_hello *hello)
{
    const struct hlg_layout *layout = &hello->layout;
    uint64_t bytes = HELLO_FIXED_BYTES + LAYOUT_FIXED_BYTES + 3 * 4;

    HLG_ASSERT(layout->stages <= HLG_STAGES_MAX && layout->group_count <= HLG_GROUPS_MAX);
    HLG_ASSERT(hello->address_count <= RAILS_OF_NODE_MAX);
    bytes += layout->stages * 4u + layout->group_count * GROUP_BYTES;
    for (uint32_t index = 0; index < hello->address_count; index++) {
        const uint32_t address_bytes = hello->addresses[index].bytes;

        HLG_ASSERT(address_bytes >= 1 && address_bytes <= HLG_ADDRESS_BYTES_MAX);
        bytes += ADDRESS_FIXED_BYTES + address_bytes;
    }
    return bytes + (uint64_t)hello->key_count * KEY_BYTES +
           (uint64_t)hello->place_count * PLACE_BYTES;
}

static uint64_t request_bytes(const struct hlg_request_message *request)
{
    uint64_t bytes = REQUEST_FIXED_BYTES + (uint64_t)request->id_bytes + request->prompt_bytes;
    uint64_t pages = 0;

    HLG_ASSERT(request->group_count <= HLG_GROUPS_MAX);
    for (uint32_t group = 0; group < request->group_count; group++) {
        const struct hlg_page_list *list = &request->groups[group];

        HLG_ASSERT((uint64_t)list->first + list->count <= HLG_TOKENS_MAX);
        bytes += PAGE_LIST_FIXED_BYTES + (uint64_t)run_count(list) * RUN_BYTES;
        pages += list->count;
    }
    HLG_ASSERT(pages <= HLG_TOKENS_MAX);
    return bytes;
}

uint64_t hlg_wire_bytes(const struct hlg_message *message)
{
    const uint64_t header = HLG_WIRE_HEADER_BYTES;

    switch ((enum hlg_message_kind)message->kind) {
    case HLG_MESSAGE_HELLO:
        return header + hello_bytes(&message->hello);
    case HLG_MESSAGE_REQUEST:
        return header + request_bytes(&message->request);
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        return header + ANSWER_BYTES;
    case HLG_MESSAGE_CREDIT:
        HLG_ASSERT(message->credit.count <= RAILS_OF_NODE_MAX);
        return header + CREDIT_FIXED_BYTES + (uint64_t)message->credit.count * CREDIT_ENTRY_BYTES;
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
        return header;
    case HLG_MESSAGE_BYE:
        return header + BYE_BYTES;
    }
    hlg_unreachable();
}

static void put_body(struct writer *w, const struct hlg_message *message)
{
    switch ((enum hlg_message_kind)message->kind) {
    case HLG_MESSAGE_HELLO:
        put_hello(w, &message->hello);
        return;
    case HLG_MESSAGE_REQUEST:
        put_request(w, &message->request);
        return;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        put_answer(w, message->kind, &message->answer);
        return;
    case HLG_MESSAGE_CREDIT:
        put_credit(w, &message->credit);
        return;
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
        return;
    case HLG_MESSAGE_BYE:
        put_bye(w, &message->bye);
        return;
    }
    hlg_unreachable();
}

int64_t hlg_wire_encode(const struct hlg_message *message, uint8_t *frame, uint64_t capacity)
{
    const uint64_t bytes = hlg_wire_bytes(message);
    struct writer w = {frame, NULL};

    if (bytes > capacity || bytes > HLG_MESSAGE_BYTES_MAX) {
        return -HLG_ELIMIT;
    }
    w.limit = frame + bytes;
    put_u32(&w, (uint32_t)bytes - 4);
    put_u16(&w, HLG_PROTOCOL_MAX);
    put_u16(&w, message->kind);
    put_body(&w, message);
    HLG_ASSERT(w.next == w.limit);
    return (int64_t)bytes;
}

/* Returns false for a kind that is none. */
static bool get_body(struct reader *r, struct arena *arena, struct hlg_message *message)
{
    switch ((enum hlg_message_kind)message->kind) {
    case HLG_MESSAGE_HELLO:
        get_hello(r, arena, &message->hello);
        return true;
    case HLG_MESSAGE_REQUEST:
        get_request(r, arena, &message->request);
        return true;
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_CANCEL:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        get_answer(r, message->kind, &message->answer);
        return true;
    case HLG_MESSAGE_CREDIT:
        get_credit(r, arena, &message->credit);
        return true;
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
        return true;
    case HLG_MESSAGE_BYE:
        get_bye(r, &message->bye);
        return true;
    }
    return false;
}

int hlg_wire_decode(const uint8_t *frame, uint64_t bytes, void *scratch, uint64_t scratch_bytes,
                    struct hlg_message *message)
{
    struct reader r = {frame, bytes, false};
    struct arena arena = {scratch, scratch_bytes, 0, false};
    struct hlg_message decoded;
    uint32_t body_bytes;
    uint32_t version;

    HLG_ASSERT((uintptr_t)scratch % 8 == 0);
    memset(&decoded, 0, sizeof(decoded));
    body_bytes = get_u32(&r);
    version = get_u16(&r);
    decoded.kind = get_u16(&r);
    if (r.bad || bytes > HLG_MESSAGE_BYTES_MAX || body_bytes != bytes - 4 ||
        version < HLG_PROTOCOL_MIN || version > HLG_PROTOCOL_MAX) {
        return -HLG_EPROTO;
    }
    if (!get_body(&r, &arena, &decoded) || r.bad) {
        return -HLG_EPROTO;
    }
    if (arena.full) {
        return -HLG_ELIMIT;
    }
    if (r.left != 0) {
        return -HLG_EPROTO;
    }
    *message = decoded;
    return 0;
}

/*
 * Keys, places and credits take no more memory than frame; addresses grow from 13 bytes at worst to
 * a whole struct, but are few; pages are bounded by the blocks that would have to hold them.
 */
uint64_t hlg_wire_scratch_bytes(const struct hlg_limits *limits)
{
    const uint64_t tables = limits->message_bytes_max +
                            RAILS_OF_NODE_MAX * sizeof(struct hlg_rail_address) +
                            8 * (HLG_GROUPS_MAX + 1);
    const uint64_t pages_of_blocks = (uint64_t)limits->blocks_max * HLG_BLOCK_PAGES;
    const uint64_t pages = pages_of_blocks < HLG_TOKENS_MAX ? pages_of_blocks : HLG_TOKENS_MAX;
    const uint64_t lists = pages * sizeof(uint32_t) + 8 * HLG_GROUPS_MAX;

    return (tables > lists ? tables : lists) / 8 * 8 + 8;
}

int64_t hlg_wire_frame_bytes(const uint8_t *header, uint32_t frame_bytes_max)
{
    struct reader r = {header, HLG_WIRE_HEADER_BYTES, false};
    const uint64_t bytes = (uint64_t)get_u32(&r) + 4;

    if (bytes < HLG_WIRE_HEADER_BYTES || bytes > frame_bytes_max) {
        return -HLG_EPROTO;
    }
    return (int64_t)bytes;
}

bool hlg_wire_hello_identity(const uint8_t *frame, uint64_t bytes, uint64_t *node,
                             uint64_t *incarnation)
{
    struct reader r = {frame, bytes, false};
    struct hlg_hello hello;

    (void)get_u32(&r);
    const uint32_t version = get_u16(&r);
    const uint32_t kind = get_u16(&r);
    get_greeter(&r, &hello);
    if (r.bad || kind != HLG_MESSAGE_HELLO || version < HLG_PROTOCOL_MIN ||
        version > HLG_PROTOCOL_MAX) {
        return false;
    }
    *node = hello.node;
    *incarnation = hello.incarnation;
    return true;
}
