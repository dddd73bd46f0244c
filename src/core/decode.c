#include "census.h"
#include "credit.h"
#include "imm.h"
#include "owner.h"
#include "session.h"
#include "timer.h"
#include <halage/decode.h>
#include <halage/handoff.h>
#include <halage/replica.h>
#include <halage/wire.h>

enum request_state {
    REQUEST_FREE = 0,
    REQUEST_PLANNED,     /* a REQUEST waits to be sent */
    REQUEST_SENT,        /* all are sent; nothing landed yet */
    REQUEST_RECEIVING,   /* something landed */
    REQUEST_FLUSHING,    /* all landed; not yet visible to the device */
    REQUEST_READY,       /* until the engine releases it */
    REQUEST_QUARANTINED, /* FAILED was said; until every source is fenced */
};

/* Of a request's FLUSH. */
enum flush_state {
    FLUSH_NONE = 0,
    FLUSH_WAITS,  /* in the list */
    FLUSH_ASKED,  /* and not yet answered: the driver may still touch the pages */
    FLUSH_DONE,   /* all that landed is visible, and no more can land */
    FLUSH_FAILED, /* what landed may still be on its way to the device */
};

/* One prefill node that writes for a request. */
struct source {
    uint32_t peer;
    uint64_t serial; /* of the peer's session that the REQUEST belongs to */
    uint32_t slot;
    uint32_t offset; /* replica offset */
    bool sent;       /* the peer may have seen the REQUEST */
    bool accepted;
    bool awaits; /* REJECT or FENCED came; it is believed once `awaited` pieces are counted */
    bool fenced; /* nothing of it can land any more */
    bool lost;   /* the session ended and its domain could not be closed for certain */
    bool wrote;  /* fenced, and something of it may have landed */
    uint64_t awaited;
};

struct request {
    uint32_t state;
    uint32_t uses; /* high half of the handle */
    uint32_t reason;
    uint32_t pool;
    uint32_t tokens;
    uint32_t source_count;
    struct source sources[HLG_SOURCES_MAX];
    uint32_t page_list;  /* owner map */
    uint32_t flush;      /* enum flush_state */
    uint32_t flush_next; /* FLUSH_WAITS */
    bool flush_fences;   /* asked for to give the pages back, not to read them */
    uint32_t prompt_bytes;
    const uint8_t *prompt;                       /* the caller's, until sent or terminal */
    struct hlg_page_list groups[HLG_GROUPS_MAX]; /* likewise */
    uint32_t id_bytes;
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX];
    uint64_t bytes;
    hlg_time deadline;
    hlg_time submitted;
    hlg_time accepted;
    bool begun; /* a piece came */
    hlg_time first_piece;
    hlg_time last_piece;
    bool receiving; /* something landed and more is to come: counted in `busy` */
    uint32_t pages; /* it owns, context pages included */
};

/* Immediates taken from one rail of ours, of one peer. */
struct taken {
    uint64_t pieces;
    uint64_t told; /* in the last CREDIT */
};

struct hlg_decode {
    struct hlg_decode_config config;
    struct sessions sessions;
    struct owners owners;
    struct slots slots;
    struct credits credits;
    struct timers timers; /* by request: its deadline; QUARANTINED: wait for FENCED */
    struct request *requests;
    uint32_t free_head;
    uint32_t *free_next; /* [requests_max] */
    uint32_t open_count;
    uint32_t flush_head;
    uint32_t flush_tail;
    uint64_t number; /* of the last REQUEST */
    hlg_handle submitted;
    uint32_t rails;                   /* lanes * rails of each lane */
    struct taken *taken;              /* [peers_max][rails] */
    bool *credit_waits;               /* [peers_max] a CREDIT is queued */
    struct hlg_credit_entry *entries; /* [rails], of the CREDIT being pulled */
    struct hlg_busy busy;             /* requests that something landed for, not yet whole */
    uint64_t quarantined;             /* pages of QUARANTINED requests */
};

static void lay_out(struct hlg_decode *d, struct carve *c, const struct hlg_decode_config *config)
{
    const struct hlg_limits *limits = &config->limits;
    uint32_t slots = hlg_min_u32(HLG_SLOTS_MAX, limits->requests_max * limits->sources_max);
    struct session_config session = {.limits = &d->config.limits,
                                     .layout = &d->config.layout,
                                     .fingerprint = d->config.fingerprint,
                                     .role = HLG_ROLE_DECODE,
                                     .node = config->node,
                                     .incarnation = config->incarnation};

    d->rails = hlg_layout_lanes(&config->layout) * config->rails;
    sessions_init(&d->sessions, c, &session);
    owners_init(&d->owners, c, &d->config.layout);
    slots_init(&d->slots, c, slots);
    credits_init(&d->credits, c, limits->peers_max, slots);
    timers_init(&d->timers, c, limits->requests_max);
    d->requests = carve_array(c, limits->requests_max, sizeof *d->requests);
    d->free_next = carve_array(c, limits->requests_max, sizeof *d->free_next);
    d->taken = carve_array(c, (size_t)limits->peers_max * d->rails, sizeof *d->taken);
    d->credit_waits = carve_array(c, limits->peers_max, sizeof *d->credit_waits);
    d->entries = carve_array(c, d->rails, sizeof *d->entries);
}

static bool config_fits(const struct hlg_decode_config *config)
{
    const struct hlg_limits *limits = &config->limits;

    return sessions_fit(limits, &config->layout, config->rails) && limits->sources_max >= 1 &&
           limits->sources_max <= HLG_SOURCES_MAX;
}

size_t hlg_decode_size(const struct hlg_decode_config *config)
{
    struct hlg_decode measured = {.config = *config};
    struct carve c = {0};

    if (!config_fits(config)) {
        return 0;
    }
    carve_array(&c, 1, sizeof measured);
    lay_out(&measured, &c, config);
    return c.used;
}

struct hlg_decode *hlg_decode_init(void *memory, const struct hlg_decode_config *config)
{
    struct carve c = {.base = memory};

    HLG_ASSERT(config_fits(config));
    struct hlg_decode *d = carve_array(&c, 1, sizeof *d);
    d->config = *config;
    lay_out(d, &c, config);
    d->free_head = HLG_NONE;
    d->flush_head = HLG_NONE;
    d->flush_tail = HLG_NONE;
    for (uint32_t i = config->limits.requests_max; i > 0; i--) {
        d->free_next[i - 1] = d->free_head;
        d->free_head = i - 1;
    }
    return d;
}

static uint32_t index_of(const struct hlg_decode *d, const struct request *r)
{
    return (uint32_t)(r - d->requests);
}

static hlg_handle handle_of(const struct hlg_decode *d, const struct request *r)
{
    return (uint64_t)r->uses << 32 | index_of(d, r);
}

static struct request *find(struct hlg_decode *d, hlg_handle handle)
{
    uint32_t index = (uint32_t)handle;

    if (index >= d->config.limits.requests_max) {
        return NULL;
    }
    struct request *r = &d->requests[index];
    return r->state != REQUEST_FREE && r->uses == (uint32_t)(handle >> 32) ? r : NULL;
}

/* The session that a source's REQUEST belongs to, or NULL when it is over and its number another's. */
static const struct session *session_of(const struct hlg_decode *d, const struct source *source)
{
    const struct session *session = &d->sessions.peers[source->peer];

    return session->serial == source->serial ? session : NULL;
}

static struct hlg_notice *notice(struct hlg_decode *d, const struct request *r, uint32_t kind)
{
    const struct source *first = r->source_count > 0 ? &r->sources[0] : NULL;
    bool named = first != NULL && (session_of(d, first) != NULL ||
                                   d->sessions.peers[first->peer].state == SESSION_FREE);
    struct hlg_notice *n = sessions_notice(&d->sessions, kind, named ? first->peer : HLG_NONE);

    n->request = handle_of(d, r);
    n->reason = r->reason;
    n->id_bytes = r->id_bytes;
    memcpy(n->id, r->id, r->id_bytes);
    for (uint32_t i = 0; i < r->source_count; i++) {
        const struct slot *slot = &d->slots.slots[r->sources[i].slot];
        n->pieces_expected += slot->expected;
        n->pieces_counted += slot->counted;
    }
    n->bytes = r->bytes;
    n->submitted = r->submitted;
    n->accepted = r->accepted;
    n->first_piece = r->first_piece;
    n->last_piece = r->last_piece;
    return n;
}

/* Number of the REQUEST to the first source; 0 when there is none. */
static uint64_t number_of(const struct hlg_decode *d, const struct request *r)
{
    return r->source_count > 0 ? d->slots.slots[r->sources[0].slot].number : 0;
}

/* The record's end: slots and pages share one fate. */
static void end(struct hlg_decode *d, struct request *r, bool poisoned)
{
    uint32_t index = index_of(d, r);

    HLG_ASSERT(r->flush != FLUSH_WAITS && r->flush != FLUSH_ASKED);
    for (uint32_t i = 0; i < r->source_count; i++) {
        slots_close(&d->slots, r->sources[i].slot, poisoned);
    }
    if (r->state == REQUEST_QUARANTINED) {
        HLG_ASSERT(d->quarantined >= r->pages);
        d->quarantined -= r->pages;
    }
    if (poisoned) {
        uint32_t pages = owners_poison(&d->owners, index, &r->page_list);
        sessions_note(&d->sessions, HLG_NOTE_PAGES_POISONED, HLG_NONE, number_of(d, r), pages, 0);
    } else {
        uint32_t pages = owners_release(&d->owners, index, &r->page_list);
        if (r->state == REQUEST_QUARANTINED) {
            sessions_note(&d->sessions, HLG_NOTE_STEP_PAGES_RETURNED, HLG_NONE, number_of(d, r),
                          pages, 0);
        }
    }
    timers_clear(&d->timers, index);
    r->state = REQUEST_FREE;
    d->free_next[index] = d->free_head;
    d->free_head = index;
    d->open_count--;
}

/* Queue a FLUSH: what landed is to be visible before the pages are read, or given back. */
static void list_flush(struct hlg_decode *d, struct request *r)
{
    const uint32_t index = index_of(d, r);

    r->flush = FLUSH_WAITS;
    r->flush_fences = r->state == REQUEST_QUARANTINED;
    r->flush_next = HLG_NONE;
    if (d->flush_tail == HLG_NONE) {
        d->flush_head = index;
    } else {
        d->requests[d->flush_tail].flush_next = index;
    }
    d->flush_tail = index;
}

/* After FAILED: pages return once every source is fenced, and what they wrote is flushed: until then it may be on
 * its way to the device, and reach it after the next owner's bytes (I1). */
static void settle(struct hlg_decode *d, struct request *r)
{
    bool lost = r->flush == FLUSH_FAILED;
    bool wrote = false;

    HLG_ASSERT(r->state == REQUEST_QUARANTINED);
    if (r->flush == FLUSH_WAITS || r->flush == FLUSH_ASKED) {
        return; /* what carries the flush out may copy into the pages */
    }
    for (uint32_t i = 0; i < r->source_count; i++) {
        if (!r->sources[i].fenced && !r->sources[i].lost) {
            return;
        }
        lost = lost || r->sources[i].lost;
        wrote = wrote || r->sources[i].wrote;
    }
    if (d->config.flush && wrote && !lost && r->flush == FLUSH_NONE) {
        list_flush(d, r);
        return;
    }
    notice(d, r, lost ? HLG_NOTICE_POISONED : HLG_NOTICE_RETURNED);
    end(d, r, lost);
}

/* Nothing of a source can land any more; `kind` of message that says so, or 0. */
static void fence(struct hlg_decode *d, struct source *source, uint32_t kind)
{
    if (!source->fenced) {
        source->fenced = true;
        source->wrote = source->sent && kind != HLG_MESSAGE_REJECT;
        sessions_note(&d->sessions, HLG_NOTE_STEP_SOURCE_FENCED, source->peer,
                      d->slots.slots[source->slot].number, kind, 0);
    }
}

/* What `kind` says is believed when the pieces that it speaks for are counted: now, or by an immediate to come. */
static void believe(struct hlg_decode *d, struct source *source, uint32_t kind)
{
    if (source->awaits && d->slots.slots[source->slot].counted >= source->awaited) {
        fence(d, source, kind);
    }
}

static void send_answer(struct hlg_decode *d, const struct source *source, uint32_t kind)
{
    struct outgoing out = {
        .kind = kind,
        .answer = {.number = d->slots.slots[source->slot].number,
                   .incarnation = d->config.incarnation,
                   .session = source->serial},
    };

    sessions_send(&d->sessions, source->peer, &out);
}

/* ---- credit ------------------------------------------------------------------------------- */

static struct hlg_load cost_of(const struct hlg_decode *d, const struct request *r)
{
    return load_of(r->groups, d->config.layout.group_count, r->prompt_bytes);
}

/* Queue the REQUESTs at the head of a peer's line that its grant covers now. */
static void release_waiting(struct hlg_decode *d, uint32_t peer)
{
    struct purse *purse = &d->credits.purses[peer];

    while (purse->head != HLG_NONE && sessions_up(&d->sessions, peer)) {
        uint32_t index = purse->head;
        const struct slot *slot = &d->slots.slots[index];
        struct hlg_load cost = cost_of(d, &d->requests[slot->request]);
        if (!credits_cover(&d->credits, peer, &d->sessions.peers[peer].grant, &cost)) {
            return;
        }
        credits_drop(&d->credits, peer, index);
        load_add(&purse->charged, &cost);
        sessions_send(&d->sessions, peer,
                      &(struct outgoing){.kind = HLG_MESSAGE_REQUEST,
                                         .slot = index,
                                         .load = cost,
                                         .answer = {.number = slot->number}});
    }
}

/* The request needs its REQUESTs that are not sent no more, wherever they wait; those behind them may go. */
static void drop_unsent(struct hlg_decode *d, const struct request *r)
{
    for (uint32_t i = 0; i < r->source_count; i++) {
        const struct source *source = &r->sources[i];
        struct hlg_load load;
        if (source->sent || session_of(d, source) == NULL) {
            continue;
        }
        if (d->credits.waits[source->slot]) {
            credits_drop(&d->credits, source->peer, source->slot);
        } else if (sessions_take_back(&d->sessions, source->peer, source->slot, &load)) {
            load_subtract(&d->credits.purses[source->peer].charged, &load);
        }
        release_waiting(d, source->peer);
    }
}

static int on_credit(struct hlg_decode *d, uint32_t peer, const struct hlg_credit *credit)
{
    const struct hlg_load *finished = &credit->finished;

    if (credit->count != 0 || credits_return(&d->credits, peer, finished) != 0) {
        sessions_note(&d->sessions, HLG_NOTE_GRANT_BACKWARD, peer, finished->requests,
                      finished->pages, finished->prompt_bytes);
        return -HLG_EPROTO;
    }
    release_waiting(d, peer);
    return 0;
}

/* ---- ends --------------------------------------------------------------------------------- */

/* Leave the list of requests that wait for a FLUSH. */
static void unlist_flush(struct hlg_decode *d, struct request *r)
{
    uint32_t index = index_of(d, r);
    uint32_t before = HLG_NONE;

    for (uint32_t i = d->flush_head; i != HLG_NONE; i = d->requests[i].flush_next) {
        if (i == index) {
            if (before == HLG_NONE) {
                d->flush_head = r->flush_next;
            } else {
                d->requests[before].flush_next = r->flush_next;
            }
            d->flush_tail = d->flush_tail == index ? before : d->flush_tail;
            r->flush = FLUSH_NONE;
            return;
        }
        before = i;
    }
}

/* Nothing more is awaited. */
static void stop_receiving(struct hlg_decode *d, struct request *r)
{
    if (r->receiving) {
        hlg_busy_end(&d->busy, d->sessions.now);
        r->receiving = false;
    }
}

/* The one terminal event of a request that did not come whole. */
static void fail(struct hlg_decode *d, struct request *r, enum hlg_reason reason,
                 hlg_time retry_after_ns)
{
    HLG_ASSERT(r->state != REQUEST_FREE && r->state != REQUEST_READY);
    if (r->state == REQUEST_QUARANTINED) {
        return;
    }
    if (r->state == REQUEST_FLUSHING) {
        unlist_flush(d, r);
    }
    stop_receiving(d, r);
    d->quarantined += r->pages;
    drop_unsent(d, r);
    r->state = REQUEST_QUARANTINED;
    r->reason = (uint32_t)reason;
    notice(d, r, HLG_NOTICE_FAILED)->retry_after_ns = retry_after_ns;
    for (uint32_t i = 0; i < r->source_count; i++) {
        struct source *source = &r->sources[i];
        if (!source->sent) {
            fence(d, source, 0); /* its REQUEST is dropped unsent */
        } else if (!source->fenced && !source->awaits) {
            send_answer(d, source, HLG_MESSAGE_CANCEL);
        }
    }
    timers_set(&d->timers, index_of(d, r),
               hlg_time_after(d->sessions.now, d->config.limits.fence_ns));
    settle(d, r);
}

static void ready(struct hlg_decode *d, struct request *r)
{
    r->state = REQUEST_READY;
    timers_clear(&d->timers, index_of(d, r));
    notice(d, r, HLG_NOTICE_READY);
}

/* All pieces of all sources are in: flush if the device needs it, else the request is whole. */
static void complete(struct hlg_decode *d, struct request *r)
{
    drop_unsent(d, r);
    sessions_note(&d->sessions, HLG_NOTE_STEP_WHOLE, HLG_NONE, number_of(d, r), r->bytes, 0);
    stop_receiving(d, r);
    if (!d->config.flush) {
        ready(d, r);
        return;
    }
    r->state = REQUEST_FLUSHING;
    list_flush(d, r);
}

static bool is_whole(const struct hlg_decode *d, const struct request *r)
{
    for (uint32_t i = 0; i < r->source_count; i++) {
        const struct slot *slot = &d->slots.slots[r->sources[i].slot];
        if (slot->counted != slot->expected) {
            return false;
        }
    }
    return true;
}

/* ---- SUBMIT ------------------------------------------------------------------------------- */

/* Whether the submit is sound by itself; adds up the pages that it asks of paged groups. */
static int check_submit(const struct hlg_decode *d, const struct hlg_event_submit *e,
                        uint64_t *asked)
{
    const struct hlg_layout *layout = &d->config.layout;
    uint64_t pages = 0;

    if (e->tokens < 1 || e->tokens > HLG_TOKENS_MAX || e->pool >= layout->pools ||
        e->id_bytes > HLG_REQUEST_ID_BYTES_MAX || e->source_count > d->config.limits.sources_max ||
        e->prompt_bytes > d->config.limits.prompt_bytes_max) {
        return -HLG_EINVAL;
    }
    uint32_t tokens = hlg_handoff_prefill_tokens(e->tokens);
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct hlg_page_list *list = &e->groups[g];
        if (layout->groups[g].kind == HLG_GROUP_CONTEXT) {
            if (list->first != 0 || list->count > 1 || (list->count == 0 && tokens > 0)) {
                return -HLG_EINVAL;
            }
        } else {
            uint64_t sum = (uint64_t)list->first + list->count;
            if (sum != hlg_layout_pages(layout, g, tokens)) {
                return -HLG_EINVAL;
            }
            pages += list->count;
        }
    }
    *asked = pages;
    return 0;
}

static int too_large(struct hlg_decode *d, uint32_t peer, enum note_size what, uint64_t asked,
                     uint64_t most)
{
    sessions_note(&d->sessions, HLG_NOTE_SUBMIT_TOO_LARGE, peer, (uint64_t)what, asked, most);
    return -HLG_ELIMIT;
}

/* Whether its REQUESTs can ever go: fit into frames, and into what each peer takes and grants. One that
 * does not would wait for its end, or end the session that it goes to. */
static int check_sizes(struct hlg_decode *d, const struct hlg_event_submit *e)
{
    struct hlg_message m = {.kind = HLG_MESSAGE_REQUEST,
                            .request = {.prompt_bytes = e->prompt_bytes,
                                        .group_count = d->config.layout.group_count,
                                        .id_bytes = e->id_bytes}};
    uint64_t pages = 0;

    for (uint32_t g = 0; g < m.request.group_count; g++) {
        pages += e->groups[g].count;
    }
    if (pages > HLG_TOKENS_MAX) {
        return too_large(d, HLG_NONE, NOTE_SIZE_PAGES, pages, HLG_TOKENS_MAX);
    }
    memcpy(m.request.groups, e->groups, sizeof m.request.groups);
    uint64_t bytes = hlg_wire_bytes(&m);
    for (uint32_t i = 0; i < e->source_count; i++) {
        const struct session *peer = &d->sessions.peers[e->peers[i]];
        uint32_t frame = hlg_min_u32(d->config.limits.message_bytes_max, peer->message_bytes_max);
        if (bytes > frame) {
            return too_large(d, e->peers[i], NOTE_SIZE_FRAME, bytes, frame);
        }
        if (e->prompt_bytes > peer->prompt_bytes_max) {
            return too_large(d, e->peers[i], NOTE_SIZE_PROMPT, e->prompt_bytes,
                             peer->prompt_bytes_max);
        }
        if (pages > peer->grant.pages) {
            return too_large(d, e->peers[i], NOTE_SIZE_PAGES, pages, peer->grant.pages);
        }
        if (e->prompt_bytes > peer->grant.prompt_bytes) {
            return too_large(d, e->peers[i], NOTE_SIZE_PROMPT_GRANT, e->prompt_bytes,
                             peer->grant.prompt_bytes);
        }
    }
    return 0;
}

static int check_peers(const struct hlg_decode *d, const struct hlg_event_submit *e)
{
    if (e->source_count == 0) {
        return -HLG_EINVAL;
    }
    for (uint32_t i = 0; i < e->source_count; i++) {
        if (!sessions_up(&d->sessions, e->peers[i]) || d->sessions.peers[e->peers[i]].draining) {
            return -HLG_EPEER;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (e->peers[j] == e->peers[i]) {
                return -HLG_EINVAL;
            }
        }
    }
    return 0;
}

/* Whether the peers together write all that is asked, and nothing twice: a rank that none of them hosts
 * would be missing from the count as well. */
static int check_hosts(struct hlg_decode *d, const struct hlg_event_submit *e)
{
    const struct hlg_plan *plans[HLG_SOURCES_MAX];
    uint32_t pages[HLG_GROUPS_MAX] = {0};
    uint32_t hosts = 0;

    for (uint32_t g = 0; g < d->config.layout.group_count; g++) {
        pages[g] = e->groups[g].count;
    }
    for (uint32_t i = 0; i < e->source_count; i++) {
        plans[i] = &d->sessions.peers[e->peers[i]].plan;
    }
    uint32_t rank = hlg_plan_misfit(plans, e->source_count, pages, &hosts);
    if (rank == HLG_NONE) {
        return 0;
    }
    sessions_note(&d->sessions, HLG_NOTE_SUBMIT_SOURCES, e->peers[0], rank, hosts, 0);
    return -HLG_EINVAL;
}

/* Bytes that one source writes for a request. */
static uint64_t planned_bytes(const struct hlg_plan *plan, uint32_t offset, const uint32_t *pages)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        if (pages[slice->group] == 0 || slice->source_rank < plan->source.rank_begin ||
            slice->source_rank >= plan->source.rank_limit ||
            slice->target_rank < plan->target.rank_begin ||
            slice->target_rank >= plan->target.rank_limit || !hlg_plan_uses(plan, slice, offset)) {
            continue;
        }
        uint64_t layers = 0;
        for (uint32_t layer = 0; layer <= plan->source.layers; layer++) {
            layers += hlg_plan_moves_layer(plan, slice, layer);
        }
        bytes += layers * pages[slice->group] * slice->count * slice->bytes;
    }
    return bytes;
}

/* Open a slot for each source and queue its REQUEST. The caller made sure that slots suffice. */
static void add_sources(struct hlg_decode *d, struct request *r, const struct hlg_event_submit *e)
{
    uint32_t pages[HLG_GROUPS_MAX] = {0};

    for (uint32_t g = 0; g < d->config.layout.group_count; g++) {
        pages[g] = e->groups[g].count;
    }
    for (uint32_t i = 0; i < e->source_count; i++) {
        struct session *peer = &d->sessions.peers[e->peers[i]];
        uint32_t offset = hlg_replica_offset(e->random, peer->plan.offset_count);
        uint64_t expected = hlg_plan_pieces(&peer->plan, offset, HLG_NONE, pages, HLG_NONE);
        struct sender sender = {.peer = e->peers[i], .serial = peer->serial};
        uint32_t slot =
            slots_open(&d->slots, index_of(d, r), (uint16_t)i, ++d->number, expected, sender);
        HLG_ASSERT(slot != HLG_NONE);
        r->sources[i] = (struct source){
            .peer = e->peers[i], .serial = peer->serial, .slot = slot, .offset = offset};
        r->source_count = i + 1;
        r->bytes += planned_bytes(&peer->plan, offset, pages);
    }
    for (uint32_t i = 0; i < e->source_count; i++) {
        uint32_t slot = r->sources[i].slot;
        credits_wait(&d->credits, e->peers[i], slot);
        release_waiting(d, e->peers[i]);
        if (d->credits.waits[slot]) {
            sessions_note(&d->sessions, HLG_NOTE_STEP_REQUEST_WAITS, e->peers[i],
                          d->slots.slots[slot].number, 0, 0);
        }
    }
}

static int take_pages(struct hlg_decode *d, struct request *r, const struct hlg_event_submit *e)
{
    for (uint32_t g = 0; g < d->config.layout.group_count; g++) {
        int error = owners_take(&d->owners, index_of(d, r), e->pool, g, e->groups[g].pages,
                                e->groups[g].count, &r->page_list);
        if (error != 0) {
            owners_release(&d->owners, index_of(d, r), &r->page_list);
            return error;
        }
        r->pages += e->groups[g].count;
    }
    return 0;
}

static int on_submit(struct hlg_decode *d, const struct hlg_event_submit *e)
{
    uint64_t asked = 0;
    int error = check_submit(d, e, &asked);
    if (error != 0) {
        return error;
    }
    bool needs = hlg_handoff_needs_prefill(&d->config.layout, e->tokens, asked);
    error = needs ? check_peers(d, e) : 0;
    if (error == 0 && needs) {
        error = check_hosts(d, e);
    }
    if (error == 0 && needs) {
        error = check_sizes(d, e);
    }
    if (error != 0) {
        return error;
    }
    if (d->free_head == HLG_NONE || (needs && d->slots.free_count < e->source_count)) {
        return -HLG_ELIMIT;
    }
    struct request *r = &d->requests[d->free_head];
    uint32_t uses = r->uses + 1;
    *r = (struct request){.uses = uses == 0 ? 1 : uses, .page_list = HLG_NONE};
    error = take_pages(d, r, e);
    if (error != 0) {
        return error;
    }
    d->free_head = d->free_next[index_of(d, r)];
    d->open_count++;
    r->state = REQUEST_PLANNED;
    r->pool = e->pool;
    r->tokens = e->tokens;
    r->prompt = e->prompt;
    r->prompt_bytes = e->prompt_bytes;
    memcpy(r->groups, e->groups, sizeof r->groups);
    r->id_bytes = e->id_bytes;
    if (e->id_bytes > 0) { /* or `id` may be NULL */
        memcpy(r->id, e->id, e->id_bytes);
    }
    r->submitted = d->sessions.now;
    r->deadline = hlg_time_after(d->sessions.now, e->ttl_ns);
    timers_set(&d->timers, index_of(d, r), r->deadline);
    d->submitted = handle_of(d, r);
    if (!needs) {
        ready(d, r);
        return 0;
    }
    add_sources(d, r, e);
    if (is_whole(d, r)) {
        complete(d, r); /* no source has anything to write */
    }
    return 0;
}

/* ---- immediates --------------------------------------------------------------------------- */

/* Whose window an immediate came out of, or HLG_NONE. FENCED may overtake the immediates of writes that
 * it vouches for, so that their slot is closed, or another's already. */
static uint32_t credited_peer(const struct hlg_decode *d, const struct sender *sender)
{
    if (sender == NULL || sender->serial == 0) {
        return HLG_NONE;
    }
    return d->sessions.peers[sender->peer].serial == sender->serial ? sender->peer : HLG_NONE;
}

static void give_credit(struct hlg_decode *d, const struct hlg_event_imm *e)
{
    struct sender *sender =
        slots_sender(&d->slots, hlg_imm_slot(e->imm), hlg_imm_generation(e->imm));
    uint32_t peer = credited_peer(d, sender);

    if (peer == HLG_NONE || d->sessions.peers[peer].domain != e->domain) {
        return;
    }
    /* One that comes again, after its request was whole, took nothing out of the window. */
    uint64_t credited = hlg_min_u64(e->pieces, sender->owed);
    HLG_ASSERT(e->rail < d->config.rails && e->lane < d->rails / d->config.rails);
    struct taken *taken = &d->taken[peer * d->rails + e->lane * d->config.rails + e->rail];
    sender->owed -= credited;
    taken->pieces += credited;
    if (taken->pieces - taken->told >= d->config.limits.window_pieces / 2 &&
        !d->credit_waits[peer] && sessions_up(&d->sessions, peer)) {
        d->credit_waits[peer] = true;
        sessions_send(&d->sessions, peer, &(struct outgoing){.kind = HLG_MESSAGE_CREDIT});
    }
}

/* Count pieces of an open slot. */
static void count(struct hlg_decode *d, struct slot *slot, uint32_t pieces)
{
    struct request *r = &d->requests[slot->request];
    struct source *source = &r->sources[slot->source];

    slot->counted += pieces;
    if (r->state == REQUEST_QUARANTINED) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_LATE, source->peer, slot->number, pieces, 0);
        believe(d, source, HLG_MESSAGE_FENCED);
        settle(d, r);
        return;
    }
    if (!source->sent) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_EARLY, source->peer, slot->number, pieces, 0);
    }
    if (!r->begun) {
        r->begun = true;
        r->first_piece = d->sessions.now;
        sessions_note(&d->sessions, HLG_NOTE_STEP_FIRST_PIECE, source->peer, slot->number, 0, 0);
    }
    if (!r->receiving && r->state <= REQUEST_RECEIVING) {
        hlg_busy_begin(&d->busy, d->sessions.now);
        r->receiving = true;
    }
    r->last_piece = d->sessions.now;
    if (slot->counted > slot->expected) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_EXCESS, source->peer, slot->number, slot->expected,
                      slot->counted);
        if (r->state != REQUEST_READY) {
            fail(d, r, HLG_REASON_PROTOCOL, 0);
        }
        if (session_of(d, source) != NULL) {
            sessions_end(&d->sessions, source->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
        }
        return;
    }
    if (r->state == REQUEST_SENT) {
        r->state = REQUEST_RECEIVING;
    }
    if (is_whole(d, r)) {
        complete(d, r);
    }
}

/* Whether an immediate came over the fence domain of whoever writes for this slot. Others that hold keys can
 * make a slot up, but only over their own domain's endpoints. */
static bool came_home(const struct hlg_decode *d, const struct slot *slot,
                      const struct hlg_event_imm *e)
{
    const struct session *session =
        session_of(d, &d->requests[slot->request].sources[slot->source]);

    return session == NULL || session->domain == e->domain;
}

static int on_imm(struct hlg_decode *d, const struct hlg_event_imm *e)
{
    uint32_t index = hlg_imm_slot(e->imm);

    if (e->lane >= hlg_layout_lanes(&d->config.layout) || e->rail >= d->config.rails) {
        return -HLG_EINVAL;
    }
    give_credit(d, e);
    if (index >= d->slots.capacity || !d->slots.slots[index].used) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_UNKNOWN, HLG_NONE, e->imm, e->pieces, 0);
        return 0;
    }
    struct slot *slot = &d->slots.slots[index];
    if (slot->state != SLOT_OPEN || slot->generation != hlg_imm_generation(e->imm)) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_STALE, HLG_NONE, e->imm, e->pieces, 0);
        return 0;
    }
    if (!came_home(d, slot, e)) {
        sessions_note(&d->sessions, HLG_NOTE_IMM_UNKNOWN, HLG_NONE, e->imm, e->pieces, 0);
        return 0;
    }
    if (e->pieces > 0) {
        count(d, slot, e->pieces);
    }
    return 0;
}

/* ---- messages ----------------------------------------------------------------------------- */

static void on_accept(struct hlg_decode *d, struct request *r, struct source *source,
                      const struct hlg_answer *answer)
{
    const struct slot *slot = &d->slots.slots[source->slot];

    if (answer->pieces != slot->expected) {
        sessions_note(&d->sessions, HLG_NOTE_PIECES_DIFFER, source->peer, slot->number,
                      slot->expected, answer->pieces);
        if (r->state != REQUEST_READY) {
            fail(d, r, HLG_REASON_PROTOCOL, 0);
        }
        return;
    }
    source->accepted = true;
    sessions_note(&d->sessions, HLG_NOTE_STEP_ACCEPTED, source->peer, slot->number, answer->pieces,
                  0);
    for (uint32_t i = 0; i < r->source_count; i++) {
        if (!r->sources[i].accepted) {
            return;
        }
    }
    /* Writes may overtake the ACCEPT: nothing follows a terminal notice but that of the pages. */
    if (r->accepted == 0 && r->state != REQUEST_READY && r->state != REQUEST_QUARANTINED) {
        r->accepted = d->sessions.now;
        notice(d, r, HLG_NOTICE_ACCEPTED);
    }
}

/*
 * REJECT and FENCED: the source posts no more. Both are believed when the pieces that they speak for are counted: each
 * is then in its page, and is not placed again. Not to be believed at all, so that the session ends, are: a REJECT,
 * which says that nothing was posted, of what was accepted or has come; FENCED that has posted fewer than came, or
 * more than were asked for; and FENCED that awaits nothing where our own transport, which is the peer's, merely
 * acknowledges writes: nothing that the peer saw then proves that they have landed. Only the first one knows: a
 * second one answers a CANCEL that it crossed. Returns whether the session goes on.
 */
static bool take_fence(struct hlg_decode *d, struct source *source, uint32_t kind,
                       const struct hlg_answer *answer)
{
    const struct slot *slot = &d->slots.slots[source->slot];
    bool possible = true; /* of an honest peer */

    if (source->awaits || source->fenced) {
        return true;
    }
    source->awaited = 0;
    switch ((enum hlg_await)answer->await) {
    case HLG_AWAIT_NOTHING:
        possible = kind == HLG_MESSAGE_REJECT ? !source->accepted && slot->counted == 0
                                              : !d->config.acknowledged;
        break;
    case HLG_AWAIT_PIECES:
        source->awaited = answer->pieces;
        break;
    case HLG_AWAIT_ALL:
        source->awaited = slot->expected;
        break;
    }
    const bool counts = answer->await == HLG_AWAIT_NOTHING ||
                        (source->awaited <= slot->expected && source->awaited >= slot->counted);
    if (possible && counts) {
        source->awaits = true;
        believe(d, source, kind);
        return true;
    }
    if (possible) {
        sessions_note(&d->sessions, HLG_NOTE_PIECES_DIFFER, source->peer, slot->number,
                      slot->counted, source->awaited);
    } else {
        sessions_note(&d->sessions, HLG_NOTE_MESSAGE_UNEXPECTED, source->peer, kind, 0, 0);
    }
    sessions_end(&d->sessions, source->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
    return false;
}

/* REJECT, FENCED and FAILED: this source writes no more, or is about to say so. */
static void on_end_of_source(struct hlg_decode *d, struct request *r, struct source *source,
                             uint32_t kind, const struct hlg_answer *answer)
{
    enum hlg_reason reason = HLG_REASON_PEER;

    if (r->state == REQUEST_READY) {
        return; /* whole all the same: immediates alone complete a request */
    }
    if (kind == HLG_MESSAGE_REJECT) {
        reason = answer->reason == HLG_REASON_PROTOCOL ? HLG_REASON_PROTOCOL : HLG_REASON_REJECTED;
    } else if (kind == HLG_MESSAGE_FAILED && answer->reason > HLG_REASON_NONE &&
               answer->reason <= HLG_REASON_PREEMPTED) {
        reason = (enum hlg_reason)answer->reason;
    }
    if (kind != HLG_MESSAGE_FAILED && !take_fence(d, source, kind, answer)) {
        return; /* the session's end fails the request */
    }
    if (r->state == REQUEST_QUARANTINED) {
        settle(d, r);
    } else {
        fail(d, r, reason, answer->retry_after_ns);
    }
}

static void on_answer(struct hlg_decode *d, uint32_t peer, uint32_t kind,
                      const struct hlg_answer *answer)
{
    uint32_t index = slots_find(&d->slots, answer->number);

    if (index == HLG_NONE) {
        sessions_note(&d->sessions, HLG_NOTE_ANSWER_UNKNOWN, peer, kind, answer->number, 0);
        return;
    }
    const struct slot *slot = &d->slots.slots[index];
    struct request *r = &d->requests[slot->request];
    struct source *source = &r->sources[slot->source];
    if (source->peer != peer || session_of(d, source) == NULL || !source->sent ||
        answer->incarnation != d->sessions.peers[peer].incarnation) {
        sessions_note(&d->sessions, HLG_NOTE_ANSWER_FOREIGN, peer, kind, answer->number,
                      answer->incarnation);
        return;
    }
    if (kind == HLG_MESSAGE_ACCEPT) {
        on_accept(d, r, source, answer);
    } else {
        on_end_of_source(d, r, source, kind, answer);
    }
}

static int on_message(struct hlg_decode *d, const struct hlg_event_peer *e)
{
    if (e->peer >= d->config.limits.peers_max) {
        return -HLG_EINVAL;
    }
    if (sessions_message(&d->sessions, e) != 0) {
        return 0;
    }
    switch ((enum hlg_message_kind)e->message->kind) {
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        on_answer(d, e->peer, e->message->kind, &e->message->answer);
        return 0;
    case HLG_MESSAGE_CREDIT:
        if (on_credit(d, e->peer, &e->message->credit) != 0) {
            sessions_end(&d->sessions, e->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
        }
        return 0;
    case HLG_MESSAGE_HELLO: /* GCOVR_EXCL_LINE: counted here, and unreachable */
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
    case HLG_MESSAGE_BYE:
        hlg_unreachable(); /* the sessions took it */
    case HLG_MESSAGE_REQUEST:
    case HLG_MESSAGE_CANCEL:
        break; /* a prefiller does not send these */
    }
    sessions_note(&d->sessions, HLG_NOTE_MESSAGE_UNEXPECTED, e->peer, e->message->kind, 0, 0);
    sessions_end(&d->sessions, e->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
    return 0;
}

/* ---- the rest ----------------------------------------------------------------------------- */

/* Each request's sources at a peer whose session ended (`closed` false) or whose fence domain is now
 * closed (true; status 0 proves that nothing can land). */
static void for_each_source(struct hlg_decode *d, uint32_t peer, bool closed, int32_t status)
{
    for (uint32_t i = 0; i < d->config.limits.requests_max; i++) {
        struct request *r = &d->requests[i];
        bool touched = false;
        for (uint32_t k = 0; r->state != REQUEST_FREE && k < r->source_count; k++) {
            struct source *source = &r->sources[k];
            if (source->peer != peer || source->fenced || source->lost) {
                continue;
            }
            touched = true;
            if (closed && status == 0) {
                fence(d, source, 0);
            } else if (closed) {
                source->lost = true;
            }
        }
        if (!touched) {
            continue;
        }
        if (!closed && r->state != REQUEST_READY) {
            fail(d, r, HLG_REASON_PEER, 0);
        } else if (closed && r->state == REQUEST_QUARANTINED) {
            settle(d, r);
        }
    }
}

static int on_closed(struct hlg_decode *d, const struct hlg_event_peer *e)
{
    int error = sessions_closed(&d->sessions, e->peer);

    if (error != 0) {
        return error;
    }
    for_each_source(d, e->peer, true, e->status);
    credits_forget(&d->credits, e->peer);
    memset(&d->taken[e->peer * d->rails], 0, d->rails * sizeof *d->taken);
    d->credit_waits[e->peer] = false;
    return 0;
}

static void on_time(struct hlg_decode *d)
{
    sessions_time(&d->sessions);
    for (;;) {
        uint32_t index = timers_due(&d->timers, d->sessions.now);
        if (index == HLG_NONE) {
            return;
        }
        struct request *r = &d->requests[index];
        if (r->state != REQUEST_QUARANTINED) {
            fail(d, r, HLG_REASON_DEADLINE, 0);
            continue;
        }
        for (uint32_t i = 0; i < r->source_count; i++) {
            const struct source *source = &r->sources[i];
            const struct session *session = session_of(d, source);
            if (!source->fenced && session != NULL && session->state == SESSION_UP) {
                sessions_note(&d->sessions, HLG_NOTE_FENCE_TIMEOUT, source->peer,
                              d->slots.slots[source->slot].number, 0, 0);
                sessions_end(&d->sessions, source->peer, SESSION_END_FENCE, -HLG_EPEER);
            }
        }
    }
}

/* The driver's answer to FLUSH. Without a question it is nothing. */
static void on_flushed(struct hlg_decode *d, struct request *r, bool visible)
{
    if (r->flush != FLUSH_ASKED) {
        return;
    }
    r->flush = r->flush_fences ? FLUSH_FAILED : FLUSH_NONE; /* one more, to give the pages back */
    r->flush = visible ? FLUSH_DONE : r->flush;
    if (r->state == REQUEST_QUARANTINED) {
        settle(d, r);
    } else if (visible) {
        ready(d, r);
    } else {
        fail(d, r, HLG_REASON_LOCAL, 0);
    }
}

static int on_request_event(struct hlg_decode *d, const struct hlg_event *event)
{
    struct request *r = find(d, event->request);

    if (r == NULL) {
        return -HLG_ESTALE;
    }
    if (event->kind == HLG_EVENT_FLUSHED || event->kind == HLG_EVENT_FLUSH_FAILED) {
        on_flushed(d, r, event->kind == HLG_EVENT_FLUSHED);
        return 0;
    }
    if (event->kind == HLG_EVENT_RELEASE) {
        if (r->state != REQUEST_READY) {
            return -HLG_ESTATE;
        }
        end(d, r, false);
        return 0;
    }
    if (r->state == REQUEST_READY || r->state == REQUEST_QUARANTINED) {
        return -HLG_ESTATE;
    }
    fail(d, r, HLG_REASON_CANCELLED, 0);
    return 0;
}

static int dispatch(struct hlg_decode *d, const struct hlg_event *event)
{
    switch ((enum hlg_event_kind)event->kind) {
    case HLG_EVENT_TIME:
        on_time(d);
        return 0;
    case HLG_EVENT_CHANNEL_UP:
        return sessions_channel_up(&d->sessions, &event->peer);
    case HLG_EVENT_MESSAGE:
        return on_message(d, &event->peer);
    case HLG_EVENT_PEER_OPENED:
        return sessions_opened(&d->sessions, &event->peer);
    case HLG_EVENT_PEER_DOWN:
    case HLG_EVENT_DISCONNECT:
        if (event->peer.peer >= d->config.limits.peers_max) {
            return -HLG_EINVAL;
        }
        sessions_end(&d->sessions, event->peer.peer,
                     event->kind == HLG_EVENT_DISCONNECT ? SESSION_END_ASKED : SESSION_END_CHANNEL,
                     event->peer.status);
        return 0;
    case HLG_EVENT_PEER_CLOSED:
        return on_closed(d, &event->peer);
    case HLG_EVENT_SEND_REFUSED:
    case HLG_EVENT_SEND_ROOM:
        return 0; /* sessions_begin saw to it */
    case HLG_EVENT_IMM:
        return on_imm(d, &event->imm);
    case HLG_EVENT_SUBMIT:
        return on_submit(d, &event->submit);
    case HLG_EVENT_FLUSHED:
    case HLG_EVENT_FLUSH_FAILED:
    case HLG_EVENT_CANCEL:
    case HLG_EVENT_RELEASE:
        return on_request_event(d, event);
    case HLG_EVENT_TAKEN:
    case HLG_EVENT_ROOM:
    case HLG_EVENT_DONE_WRITE:
    case HLG_EVENT_LAYER:
    case HLG_EVENT_ADMIT:
    case HLG_EVENT_REJECT:
    case HLG_EVENT_CHUNK:
    case HLG_EVENT_FORWARD_END:
    case HLG_EVENT_FORWARD_ABORT:
    case HLG_EVENT_DRAIN:
        return -HLG_EINVAL; /* the prefill machine's */
    }
    return -HLG_EINVAL;
}

/* What the last `next` pulled was refused: the peer has not seen it, and it is still queued. */
static void unsent(struct hlg_decode *d, const struct hlg_event *event)
{
    if (event->kind != HLG_EVENT_SEND_REFUSED || d->sessions.sending == HLG_NONE ||
        event->peer.peer != d->sessions.sending) {
        return;
    }
    const struct outgoing *out = &d->sessions.out[d->sessions.peers[event->peer.peer].out_head];
    if (out->kind == HLG_MESSAGE_CREDIT) {
        d->credit_waits[event->peer.peer] = true;
    }
    if (out->kind == HLG_MESSAGE_REQUEST) {
        const struct slot *slot = &d->slots.slots[out->slot];
        struct request *r = &d->requests[slot->request];
        r->sources[slot->source].sent = false;
        load_subtract(&d->credits.purses[event->peer.peer].sent, &out->load);
        if (r->state == REQUEST_SENT) {
            r->state = REQUEST_PLANNED;
        }
    }
}

int hlg_decode_handle(struct hlg_decode *d, const struct hlg_event *event)
{
    unsent(d, event);
    sessions_begin(&d->sessions, event);
    int error = dispatch(d, event);
    for (uint32_t peer = sessions_take_ended(&d->sessions); peer != HLG_NONE;
         peer = sessions_take_ended(&d->sessions)) {
        for_each_source(d, peer, false, 0);
    }
    return error;
}

/* Make the REQUEST of a slot. */
static void fill_request(struct hlg_decode *d, const struct outgoing *out,
                         struct hlg_request_message *m)
{
    const struct slot *slot = &d->slots.slots[out->slot];
    struct request *r = &d->requests[slot->request];
    struct source *source = &r->sources[slot->source];

    /* or it was taken back */
    HLG_ASSERT(slot->state == SLOT_OPEN && slot->number == out->answer.number);
    HLG_ASSERT(r->state == REQUEST_PLANNED || r->state == REQUEST_RECEIVING);
    *m = (struct hlg_request_message){
        .number = slot->number,
        .pool = r->pool,
        .source = slot->source,
        .source_count = r->source_count,
        .slot = out->slot,
        .generation = slot->generation,
        .offset = source->offset,
        .tokens = r->tokens,
        .prompt_bytes = r->prompt_bytes,
        .pieces = slot->expected,
        .ttl_ns = r->deadline == HLG_TIME_NEVER
                      ? HLG_TIME_NEVER
                      : r->deadline - hlg_min_time(r->deadline, d->sessions.now),
        .group_count = d->config.layout.group_count,
        .id_bytes = r->id_bytes,
        .prompt = r->prompt,
    };
    memcpy(m->groups, r->groups, sizeof m->groups);
    memcpy(m->id, r->id, r->id_bytes);
    source->sent = true;
    load_add(&d->credits.purses[source->peer].sent, &out->load);
    bool all_sent = true;
    for (uint32_t i = 0; i < r->source_count; i++) {
        all_sent = all_sent && r->sources[i].sent;
    }
    if (all_sent && r->state == REQUEST_PLANNED) {
        r->state = REQUEST_SENT;
    }
}

static void fill_credit(struct hlg_decode *d, uint32_t peer, struct hlg_credit *credit)
{
    struct taken *taken = &d->taken[peer * d->rails];

    d->credit_waits[peer] = false;
    for (uint32_t i = 0; i < d->rails; i++) {
        d->entries[i] = (struct hlg_credit_entry){
            .lane = i / d->config.rails, .rail = i % d->config.rails, .pieces = taken[i].pieces};
        taken[i].told = taken[i].pieces;
    }
    *credit = (struct hlg_credit){.count = d->rails, .entries = d->entries};
}

int hlg_decode_next(struct hlg_decode *d, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    const struct outgoing *out = NULL;

    (void)lane; /* a decoder writes nothing */
    if (sessions_next(&d->sessions, kinds, action, &out) != 0) {
        if (out != NULL && out->kind == HLG_MESSAGE_CREDIT) {
            fill_credit(d, action->send.peer, &action->send.message.credit);
        } else if (out != NULL && out->kind == HLG_MESSAGE_REQUEST) {
            fill_request(d, out, &action->send.message.request);
        }
        return 1;
    }
    if ((kinds & HLG_ACTION_FLUSH) != 0 && d->flush_head != HLG_NONE) {
        struct request *r = &d->requests[d->flush_head];
        d->flush_head = r->flush_next;
        if (d->flush_head == HLG_NONE) {
            d->flush_tail = HLG_NONE;
        }
        r->flush = FLUSH_ASKED;
        *action =
            (struct hlg_action){.kind = HLG_ACTION_FLUSH,
                                .flush = {.request = handle_of(d, r), .fences = r->flush_fences}};
        return 1;
    }
    return 0;
}

hlg_time hlg_decode_deadline(const struct hlg_decode *d)
{
    return hlg_min_time(timers_next(&d->sessions.due), timers_next(&d->timers));
}

uint32_t hlg_decode_open(const struct hlg_decode *d)
{
    return d->open_count;
}

void hlg_decode_stats(const struct hlg_decode *d, struct hlg_decode_stats *stats)
{
    *stats = (struct hlg_decode_stats){.pages_quarantined = d->quarantined,
                                       .pages_poisoned = d->owners.poisoned_count,
                                       .busy_ns = hlg_busy_total(&d->busy, d->sessions.now)};
}

hlg_handle hlg_decode_submitted(const struct hlg_decode *d)
{
    return d->submitted;
}

enum hlg_page_state hlg_decode_page(const struct hlg_decode *d, uint32_t pool, uint32_t group,
                                    uint32_t page, hlg_handle *owner)
{
    const struct owner_entry *entry =
        &d->owners.entries[owners_entry(&d->owners, pool, group, page)];

    *owner = 0;
    if (entry->poisoned) {
        return HLG_PAGE_POISONED;
    }
    if (entry->owner == HLG_NONE) {
        return HLG_PAGE_FREE;
    }
    const struct request *r = &d->requests[entry->owner];
    *owner = handle_of(d, r);
    return r->state == REQUEST_QUARANTINED ? HLG_PAGE_QUARANTINED : HLG_PAGE_OWNED;
}

bool hlg_decode_pages(const struct hlg_decode *d, hlg_handle request, uint32_t group,
                      uint32_t *pool, struct hlg_page_list *pages)
{
    const uint32_t index = (uint32_t)(request & UINT32_MAX);

    if (index >= d->config.limits.requests_max || d->requests[index].state == REQUEST_FREE ||
        handle_of(d, &d->requests[index]) != request) {
        return false;
    }
    HLG_ASSERT(group < d->config.layout.group_count);
    *pool = d->requests[index].pool;
    *pages = d->requests[index].groups[group];
    return true;
}

void hlg_decode_census(const struct hlg_decode *d, struct hlg_census *census)
{
    *census = (struct hlg_census){
        .requests = d->open_count,
        .requests_max = d->config.limits.requests_max,
        .timers = d->timers.count,
        .slots = d->slots.capacity - d->slots.free_count - d->slots.poisoned_count,
        .slots_poisoned = d->slots.poisoned_count,
        .slots_max = d->slots.capacity,
        .pages = d->owners.owned_count,
        .pages_poisoned = d->owners.poisoned_count,
        .pages_max = d->owners.entry_count,
    };
    sessions_census(&d->sessions, census);
}

static void check_request(const struct hlg_decode *d, const struct request *r)
{
    uint32_t unfenced = 0;
    uint32_t sent = 0;

    for (uint32_t i = 0; i < r->source_count; i++) {
        const struct source *source = &r->sources[i];
        const struct slot *slot = &d->slots.slots[source->slot];
        HLG_ASSERT(slot->state == SLOT_OPEN && slot->request == index_of(d, r));
        HLG_ASSERT(slot->source == i);
        HLG_ASSERT(r->state == REQUEST_QUARANTINED || r->state == REQUEST_READY ||
                   slot->counted <= slot->expected);
        HLG_ASSERT(!d->credits.waits[source->slot] ||
                   (!source->sent && r->state == REQUEST_PLANNED));
        HLG_ASSERT(!source->awaits || (source->sent && source->awaited <= slot->expected));
        HLG_ASSERT(!source->awaits || source->fenced || source->awaited > slot->counted);
        unfenced += !source->fenced && !source->lost;
        sent += source->sent;
    }
    bool whole = is_whole(d, r);
    HLG_ASSERT(r->state != REQUEST_PLANNED || sent < r->source_count);
    HLG_ASSERT(r->state != REQUEST_SENT || sent == r->source_count);
    HLG_ASSERT((r->state != REQUEST_SENT && r->state != REQUEST_RECEIVING) || !whole);
    HLG_ASSERT(r->state != REQUEST_FLUSHING || whole);
    HLG_ASSERT(!r->receiving || (r->state <= REQUEST_RECEIVING && !whole));
    const bool flushing = r->flush == FLUSH_WAITS || r->flush == FLUSH_ASKED;
    HLG_ASSERT(r->state != REQUEST_QUARANTINED || unfenced > 0 || flushing);
    HLG_ASSERT(!flushing || r->state == REQUEST_FLUSHING || r->state == REQUEST_QUARANTINED);
    HLG_ASSERT((r->reason != HLG_REASON_NONE) == (r->state == REQUEST_QUARANTINED));
}

/* What is charged and not sent is in the outbox, and who waits for credit waits at its own peer. */
static void check_credits(const struct hlg_decode *d)
{
    uint32_t listed = 0;

    for (uint32_t i = 0; i < d->config.limits.peers_max; i++) {
        const struct purse *purse = &d->credits.purses[i];
        struct hlg_load queued = purse->charged;
        for (uint32_t s = purse->head; s != HLG_NONE; s = d->credits.next[s]) {
            const struct slot *slot = &d->slots.slots[s];
            HLG_ASSERT(slot->state == SLOT_OPEN && d->credits.waits[s]);
            HLG_ASSERT(d->requests[slot->request].sources[slot->source].peer == i);
            listed++;
        }
        load_subtract(&queued, &purse->sent);
        HLG_ASSERT(load_within(&purse->returned, &purse->sent));
        for (uint32_t o = d->sessions.peers[i].out_head;
             o != HLG_NONE && d->sessions.peers[i].state == SESSION_UP;
             o = d->sessions.out[o].next) {
            const struct outgoing *out = &d->sessions.out[o];
            bool pulled = d->sessions.sending == i && o == d->sessions.peers[i].out_head;
            if (out->kind == HLG_MESSAGE_REQUEST && !pulled) {
                load_subtract(&queued, &out->load);
            }
        }
        HLG_ASSERT(queued.requests == 0 || d->sessions.peers[i].state != SESSION_UP);
    }
    for (uint32_t i = 0; i < d->slots.capacity; i++) {
        listed -= d->credits.waits[i];
    }
    HLG_ASSERT(listed == 0);
}

int hlg_decode_check(const struct hlg_decode *d)
{
    uint32_t open = 0;
    uint32_t slots = 0;
    uint32_t owned = 0;
    uint64_t receiving = 0;
    uint64_t quarantined = 0;

    sessions_check(&d->sessions);
    owners_check(&d->owners);
    slots_check(&d->slots);
    timers_check(&d->timers);
    check_credits(d);
    for (uint32_t i = 0; i < d->config.limits.requests_max; i++) {
        const struct request *r = &d->requests[i];
        if (r->state == REQUEST_FREE) {
            continue;
        }
        check_request(d, r);
        open++;
        slots += r->source_count;
        receiving += r->receiving;
        quarantined += r->state == REQUEST_QUARANTINED ? r->pages : 0;
        uint32_t before = owned;
        for (uint32_t e = r->page_list; e != HLG_NONE; e = d->owners.entries[e].next) {
            HLG_ASSERT(d->owners.entries[e].owner == i);
            owned++;
        }
        HLG_ASSERT(owned - before == r->pages);
    }
    HLG_ASSERT(receiving == d->busy.depth && quarantined == d->quarantined);
    HLG_ASSERT(open == d->open_count);
    HLG_ASSERT(slots + d->slots.free_count + d->slots.poisoned_count == d->slots.capacity);
    HLG_ASSERT(owned == d->owners.owned_count);
    return 0;
}
