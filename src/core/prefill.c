#include "census.h"
#include "post.h"
#include <halage/handoff.h>

uint32_t hlg_prefill_words(const struct hlg_layout *layout)
{
    return layout->all_reduce != 0 ? layout->pools * layout->stages : hlg_layout_lanes(layout);
}

static bool config_fits(const struct hlg_prefill_config *config)
{
    const struct hlg_limits *limits = &config->limits;

    return sessions_fit(limits, &config->layout, config->rails) && limits->forwards_max >= 1 &&
           limits->chunks_max >= 1 && limits->ops_max >= 1 && limits->turn_bytes >= 1;
}

static void lay_out(struct hlg_prefill *p, struct carve *c, const struct hlg_prefill_config *config)
{
    const struct hlg_limits *limits = &config->limits;
    struct session_config session = {.limits = &p->config.limits,
                                     .layout = &p->config.layout,
                                     .fingerprint = p->config.fingerprint,
                                     .role = HLG_ROLE_PREFILL,
                                     .node = config->node,
                                     .incarnation = config->incarnation};
    uint32_t peers = limits->peers_max;
    size_t pairs = (size_t)hlg_layout_lanes(&config->layout) * limits->peers_max;
    uint32_t buckets = 1;

    while (buckets < limits->requests_max) {
        buckets *= 2;
    }
    p->lane_count = hlg_layout_lanes(&config->layout);
    p->ranks = config->layout.rank_limit - config->layout.rank_begin;
    p->bucket_mask = buckets - 1;
    sessions_init(&p->sessions, c, &session);
    timers_init(&p->timers, c, limits->requests_max);
    layers_init(&p->layers, c, limits->forwards_max, hlg_prefill_words(&config->layout));
    facts_init(&p->facts, c, hlg_prefill_words(&config->layout), config->layout.layers + 1);
    blocks_init(&p->blocks, c, limits->blocks_max);
    shares_init(&p->request_shares, c, limits->requests_max, peers, limits->reserve_percent);
    shares_init(&p->block_shares, c, limits->blocks_max, peers, limits->reserve_percent);
    shares_init(&p->chunk_shares, c, limits->chunks_max, peers, limits->reserve_percent);
    shares_init(&p->op_shares, c, limits->ops_max, peers, limits->reserve_percent);
    p->ledgers = carve_array(c, peers, sizeof *p->ledgers);
    p->requests = carve_array(c, limits->requests_max, sizeof *p->requests);
    p->parts =
        carve_array(c, (size_t)limits->requests_max * limits->forwards_max, sizeof *p->parts);
    p->buckets = carve_array(c, buckets, sizeof *p->buckets);
    p->chunks = carve_array(c, limits->chunks_max, sizeof *p->chunks);
    p->ops = carve_array(c, limits->ops_max, sizeof *p->ops);
    p->cursors = carve_array(c, (size_t)limits->chunks_max * p->ranks, sizeof *p->cursors);
    p->lanes = carve_array(c, p->lane_count, sizeof *p->lanes);
    uint64_t *busy =
        carve_array(c, (size_t)p->lane_count * bits_words(limits->peers_max), sizeof *busy);
    for (uint32_t i = 0; c->base != NULL && i < p->lane_count; i++) {
        p->lanes[i].busy = busy + (size_t)i * bits_words(limits->peers_max);
    }
    p->queues = carve_array(c, pairs, sizeof *p->queues);
    p->links = carve_array(c, pairs * config->rails, sizeof *p->links);
    p->windows = carve_array(c, (size_t)limits->peers_max * HLG_RANKS_MAX * limits->rails_max,
                             sizeof *p->windows);
}

size_t hlg_prefill_size(const struct hlg_prefill_config *config)
{
    struct hlg_prefill measured = {.config = *config};
    struct carve c = {0};

    if (!config_fits(config)) {
        return 0;
    }
    carve_array(&c, 1, sizeof measured);
    lay_out(&measured, &c, config);
    return c.used;
}

struct hlg_prefill *hlg_prefill_init(void *memory, const struct hlg_prefill_config *config)
{
    struct carve c = {.base = memory};

    HLG_ASSERT(config_fits(config));
    struct hlg_prefill *p = carve_array(&c, 1, sizeof *p);
    p->config = *config;
    lay_out(p, &c, config);
    post_init(p);
    p->free_head = HLG_NONE;
    for (uint32_t i = config->limits.requests_max; i > 0; i--) {
        p->requests[i - 1].next_number = p->free_head;
        p->free_head = i - 1;
    }
    for (uint32_t i = 0; i <= p->bucket_mask; i++) {
        p->buckets[i] = HLG_NONE;
    }
    return p;
}

static uint32_t index_of(const struct hlg_prefill *p, const struct prefill_request *r)
{
    return (uint32_t)(r - p->requests);
}

static hlg_handle handle_of(const struct hlg_prefill *p, const struct prefill_request *r)
{
    return (uint64_t)r->uses << 32 | index_of(p, r);
}

static struct prefill_request *find(struct hlg_prefill *p, hlg_handle handle)
{
    uint32_t index = (uint32_t)handle;

    if (index >= p->config.limits.requests_max) {
        return NULL;
    }
    struct prefill_request *r = &p->requests[index];
    return r->state != PREFILL_FREE && r->uses == (uint32_t)(handle >> 32) ? r : NULL;
}

static struct hlg_notice *notice(struct hlg_prefill *p, const struct prefill_request *r,
                                 uint32_t kind)
{
    struct hlg_notice *n = sessions_notice(&p->sessions, kind, r->peer);

    n->request = handle_of(p, r);
    n->reason = r->reason;
    n->id_bytes = r->id_bytes;
    memcpy(n->id, r->id, r->id_bytes);
    n->pieces_expected = r->expected;
    n->pieces_counted = r->posted;
    n->bytes = r->bytes;
    return n;
}

static void answer(struct hlg_prefill *p, const struct prefill_request *r, uint32_t kind,
                   uint64_t pieces)
{
    if (!sessions_up(&p->sessions, r->answer_peer) ||
        p->sessions.peers[r->answer_peer].serial != r->answer_serial) {
        return; /* that session is over, and the decoder closes its own endpoints */
    }
    sessions_send(
        &p->sessions, r->answer_peer,
        &(struct outgoing){.kind = kind,
                           .answer = {.number = r->number,
                                      .incarnation = p->config.incarnation,
                                      .pieces = pieces,
                                      .reason = kind == HLG_MESSAGE_FAILED ? r->reason : 0,
                                      .await = kind == HLG_MESSAGE_FENCED && p->config.acknowledged
                                                   ? HLG_AWAIT_PIECES
                                                   : HLG_AWAIT_NOTHING}});
}

/* The most that one REQUEST of a peer can cost. */
static struct hlg_load largest(const struct hlg_prefill *p, uint32_t peer)
{
    const struct hlg_layout *target = &p->sessions.peers[peer].plan.target;
    struct hlg_load most = {.requests = 1, .prompt_bytes = p->config.limits.prompt_bytes_max};

    for (uint32_t g = 0; g < target->group_count; g++) {
        most.pages += target->groups[g].page_count;
    }
    return most;
}

/* Return credit to a peer before it can be short of it. */
static void return_credit(struct hlg_prefill *p, uint32_t peer)
{
    struct ledger *ledger = &p->ledgers[peer];
    struct hlg_load most = largest(p, peer);

    if (!ledger->queued && sessions_up(&p->sessions, peer) &&
        ledger_due(ledger, &p->sessions.grant, &most)) {
        ledger->queued = true;
        sessions_send(&p->sessions, peer, &(struct outgoing){.kind = HLG_MESSAGE_CREDIT});
    }
}

/* The record's end. Nothing is outstanding. */
static void end(struct hlg_prefill *p, struct prefill_request *r)
{
    uint32_t index = index_of(p, r);
    uint32_t *link = &p->buckets[r->number & p->bucket_mask];

    HLG_ASSERT(r->chunk_count == 0 && r->op_count == 0);
    while (*link != index) {
        HLG_ASSERT(*link != HLG_NONE);
        link = &p->requests[*link].next_number;
    }
    *link = r->next_number;
    for (uint32_t g = 0; g < p->config.layout.group_count; g++) {
        blocks_give(&p->blocks, r->blocks[g]);
        r->blocks[g] = HLG_NONE;
    }
    shares_give(&p->block_shares, r->peer, r->block_count);
    shares_give(&p->request_shares, r->peer, 1);
    load_add(&p->ledgers[r->peer].finished, &r->load);
    return_credit(p, r->peer);
    timers_clear(&p->timers, index);
    r->state = PREFILL_FREE;
    r->next_number = p->free_head;
    p->free_head = index;
    p->open_count--;
}

/*
 * FENCED vouches for every write of the request: only if all of them completed well. One that ended in
 * error may land all the same, and later (measured on net and tcp;ofi_rxm: the bytes wait in the
 * target's socket). Then the session ends instead, and the decoder closes its own endpoints. Nor is it
 * known whether our device still reads its source: only that our own endpoints are closed says so, and
 * the request is kept until then (end_failed).
 */
static void end_stopped(struct hlg_prefill *p, struct prefill_request *r)
{
    HLG_ASSERT(r->state == PREFILL_STOPPING);
    if (r->failed > 0) {
        HLG_ASSERT(p->sessions.peers[r->peer].serial == r->serial);
        timers_clear(&p->timers, index_of(p, r));
        sessions_end(&p->sessions, r->peer, SESSION_END_WRITES, -HLG_EIO);
        return;
    }
    answer(p, r, HLG_MESSAGE_FENCED, r->posted);
    notice(p, r, HLG_NOTICE_FENCED);
    end(p, r);
}

/* What follows when a request's posting or completions went on. */
static void settle(struct hlg_prefill *p, struct prefill_request *r)
{
    if (r->state == PREFILL_CONTEXT && r->chunk_count == 0 && r->posted == r->expected) {
        r->state = PREFILL_DRAINING;
        sessions_note(&p->sessions, HLG_NOTE_STEP_ALL_POSTED, r->peer, r->number, r->posted, 0);
    }
    if (r->op_count > 0) {
        return;
    }
    if (r->state == PREFILL_DRAINING) {
        HLG_ASSERT(r->posted == r->expected && r->done == r->expected);
        sessions_note(&p->sessions, HLG_NOTE_STEP_SENT, r->peer, r->number, r->done, 0);
        notice(p, r, HLG_NOTICE_SENT);
        p->stats.sent++;
        hlg_histogram_add(&p->stats.transfer_ns, HLG_HISTOGRAM_TIME,
                          r->posted > 0 ? p->sessions.now - r->first_piece : 0);
        end(p, r);
    } else if (r->state == PREFILL_STOPPING) {
        end_stopped(p, r);
    }
}

/* Post nothing more. `tell`: the decoder does not know yet. */
static void stop(struct hlg_prefill *p, struct prefill_request *r, enum hlg_reason reason,
                 bool tell)
{
    if (r->state == PREFILL_STOPPING) {
        return;
    }
    post_remove(p, index_of(p, r));
    r->state = PREFILL_STOPPING;
    r->reason = (uint32_t)reason;
    p->stats.stopped++;
    sessions_note(&p->sessions, HLG_NOTE_REQUEST_STOPPED, r->peer, r->number, r->reason, r->posted);
    notice(p, r, HLG_NOTICE_STOPPING);
    timers_set(&p->timers, index_of(p, r),
               hlg_time_after(p->sessions.now, p->config.limits.fence_ns));
    if (tell) {
        answer(p, r, HLG_MESSAGE_FAILED, r->posted);
    }
    settle(p, r);
}

/* ---- REQUEST ------------------------------------------------------------------------------ */

/* Whether a foreign REQUEST fits the plan, and both sides count alike. */
static bool request_fits(struct hlg_prefill *p, uint32_t peer, const struct hlg_request_message *m)
{
    const struct hlg_plan *plan = &p->sessions.peers[peer].plan;
    uint32_t pages[HLG_GROUPS_MAX] = {0};

    if (m->tokens < 2 || m->tokens > HLG_TOKENS_MAX || m->pool >= plan->target.pools ||
        m->offset >= plan->offset_count || m->group_count != plan->source.group_count ||
        m->slot >= HLG_SLOTS_MAX || m->generation >= HLG_GENERATIONS ||
        m->id_bytes > HLG_REQUEST_ID_BYTES_MAX) {
        return false;
    }
    uint32_t tokens = hlg_handoff_prefill_tokens(m->tokens);
    for (uint32_t g = 0; g < m->group_count; g++) {
        const struct hlg_page_list *list = &m->groups[g];
        uint64_t sum = (uint64_t)list->first + list->count;
        if (sum != hlg_layout_pages(&plan->target, g, tokens) ||
            (plan->target.groups[g].kind == HLG_GROUP_CONTEXT && list->first != 0)) {
            return false;
        }
        for (uint32_t i = 0; i < list->count; i++) {
            if (list->pages[i] >= plan->target.groups[g].page_count) {
                return false;
            }
        }
        pages[g] = list->count;
    }
    uint64_t own = hlg_plan_pieces(plan, m->offset, HLG_NONE, pages, HLG_NONE);
    if (own != m->pieces) {
        sessions_note(&p->sessions, HLG_NOTE_PIECES_DIFFER, peer, m->number, own, m->pieces);
    }
    return own == m->pieces;
}

static void send_reject(struct hlg_prefill *p, uint32_t peer, uint64_t number,
                        enum hlg_reason reason, hlg_time retry_after_ns)
{
    sessions_send(&p->sessions, peer,
                  &(struct outgoing){.kind = HLG_MESSAGE_REJECT,
                                     .answer = {.number = number,
                                                .incarnation = p->config.incarnation,
                                                .reason = (uint32_t)reason,
                                                .retry_after_ns = retry_after_ns}});
}

static void reject(struct hlg_prefill *p, uint32_t peer, uint64_t number, enum hlg_reason reason,
                   hlg_time retry_after_ns)
{
    sessions_note(&p->sessions, HLG_NOTE_REQUEST_REFUSED, peer, number, (uint64_t)reason, 0);
    send_reject(p, peer, number, reason, retry_after_ns);
}

static uint32_t count_blocks(const struct hlg_request_message *m)
{
    uint32_t blocks = 0;

    for (uint32_t g = 0; g < m->group_count; g++) {
        blocks += hlg_div_ceil(m->groups[g].count, HLG_BLOCK_PAGES);
    }
    return blocks;
}

/* Whether a peer that has nothing else open could have this REQUEST taken. */
static bool can_ever_fit(const struct hlg_limits *limits, const struct hlg_request_message *m)
{
    return m->prompt_bytes <= limits->prompt_bytes_max &&
           count_blocks(m) <=
               shares_most(limits->blocks_max, limits->peers_max, limits->reserve_percent);
}

/* Keep the target pages. The peer's share holds them. */
static void keep_pages(struct hlg_prefill *p, struct prefill_request *r,
                       const struct hlg_request_message *m)
{
    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        r->blocks[g] = HLG_NONE;
    }
    for (uint32_t g = 0; g < m->group_count; g++) {
        r->asked[g] = (struct page_span){.begin = m->groups[g].first, .count = m->groups[g].count};
        int error = blocks_take(&p->blocks, m->groups[g].pages, m->groups[g].count, &r->blocks[g]);
        HLG_ASSERT(error == 0);
    }
}

/* The caller made sure that the peer's shares hold it. */
static void open_request(struct hlg_prefill *p, uint32_t peer, const struct hlg_request_message *m,
                         const struct hlg_load *load)
{
    uint32_t index = p->free_head;
    struct prefill_request *r = &p->requests[index];
    struct session *session = &p->sessions.peers[peer];
    uint32_t free_next = r->next_number;
    uint32_t uses = r->uses + 1;

    *r = (struct prefill_request){.uses = uses == 0 ? 1 : uses,
                                  .next_number = free_next,
                                  .peer = peer,
                                  .serial = session->serial,
                                  .node = session->node,
                                  .incarnation = session->incarnation,
                                  .answer_peer = peer,
                                  .answer_serial = session->serial,
                                  .number = m->number,
                                  .slot = m->slot,
                                  .generation = m->generation,
                                  .offset = m->offset,
                                  .tokens = m->tokens,
                                  .target_pool = m->pool,
                                  .chunks = HLG_NONE,
                                  .expected = m->pieces,
                                  .block_count = count_blocks(m),
                                  .load = *load,
                                  .id_bytes = m->id_bytes};
    memcpy(r->id, m->id, m->id_bytes);
    memset(&p->parts[index * p->config.limits.forwards_max], 0,
           p->config.limits.forwards_max * sizeof *p->parts);
    bool taken = shares_take(&p->request_shares, peer, 1) &&
                 shares_take(&p->block_shares, peer, r->block_count);
    HLG_ASSERT(taken && index != HLG_NONE);
    keep_pages(p, r, m);
    uint32_t *bucket = &p->buckets[m->number & p->bucket_mask];
    p->free_head = free_next;
    r->next_number = *bucket;
    *bucket = index;
    r->state = PREFILL_ASKED;
    p->open_count++;
    p->stats.requests++;
    timers_set(&p->timers, index, hlg_time_after(p->sessions.now, m->ttl_ns));
    p->message = m;
    sessions_note(&p->sessions, HLG_NOTE_STEP_REQUESTED, peer, m->number, m->pieces, 0);
    notice(p, r, HLG_NOTICE_REQUESTED);
}

/* Whether a REQUEST opens; else it is REJECTed. */
static bool take_request(struct hlg_prefill *p, uint32_t peer, const struct hlg_request_message *m,
                         const struct hlg_load *load)
{
    struct ledger *ledger = &p->ledgers[peer];
    hlg_time later = p->config.limits.heartbeat_ns;

    if (!ledger_ask(ledger, &p->sessions.grant, load)) {
        ledger->beyond_count++;
        p->stats.beyond_grant++;
        if ((ledger->beyond_count & (ledger->beyond_count - 1)) == 0) {
            sessions_note(&p->sessions, HLG_NOTE_GRANT_EXCEEDED, peer, m->number,
                          ledger->beyond_count, 0);
        }
        send_reject(p, peer, m->number, HLG_REASON_REJECTED, later);
    } else if (!request_fits(p, peer, m)) {
        reject(p, peer, m->number, HLG_REASON_PROTOCOL, 0);
    } else if (!can_ever_fit(&p->config.limits, m)) {
        reject(p, peer, m->number, HLG_REASON_REJECTED, 0); /* there is no use in asking again */
    } else if (p->sessions.draining || !shares_fit(&p->request_shares, peer, 1) ||
               !shares_fit(&p->block_shares, peer, count_blocks(m))) {
        reject(p, peer, m->number, HLG_REASON_REJECTED, later);
    } else {
        open_request(p, peer, m, load);
        return true;
    }
    return false;
}

static void on_request(struct hlg_prefill *p, uint32_t peer, const struct hlg_request_message *m)
{
    struct session *session = &p->sessions.peers[peer];
    struct hlg_load load = load_of(m->groups, m->group_count, m->prompt_bytes);

    if (m->number <= session->last_number) {
        sessions_note(&p->sessions, HLG_NOTE_MESSAGE_UNEXPECTED, peer, HLG_MESSAGE_REQUEST,
                      m->number, session->last_number);
        sessions_end(&p->sessions, peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
        return;
    }
    session->last_number = m->number;
    if (!take_request(p, peer, m, &load)) {
        load_add(&p->ledgers[peer].finished, &load);
    }
    return_credit(p, peer);
}

/* ---- other messages ----------------------------------------------------------------------- */

static void on_cancel(struct hlg_prefill *p, uint32_t peer, const struct hlg_answer *m)
{
    const struct session *session = &p->sessions.peers[peer];

    for (uint32_t i = p->buckets[m->number & p->bucket_mask]; i != HLG_NONE;
         i = p->requests[i].next_number) {
        struct prefill_request *r = &p->requests[i];
        if (r->number == m->number && r->node == session->node &&
            r->incarnation == session->incarnation) {
            r->answer_peer = peer;
            r->answer_serial = session->serial;
            stop(p, r, HLG_REASON_CANCELLED, false);
            return;
        }
    }
    sessions_note(&p->sessions, HLG_NOTE_CANCEL_UNKNOWN, peer, m->number, m->session,
                  session->peer_serial);
    if (m->session != session->peer_serial) {
        return; /* of an ended session: this node cannot vouch for what became of its writes */
    }
    /* What was rejected or fenced in this session was so before, in order: this one was SENT. */
    sessions_send(
        &p->sessions, peer,
        &(struct outgoing){
            .kind = HLG_MESSAGE_FENCED,
            .answer = {.number = m->number,
                       .incarnation = p->config.incarnation,
                       .await = p->config.acknowledged ? HLG_AWAIT_ALL : HLG_AWAIT_NOTHING}});
}

static int on_message(struct hlg_prefill *p, const struct hlg_event_peer *e)
{
    if (e->peer >= p->config.limits.peers_max) {
        return -HLG_EINVAL;
    }
    if (sessions_message(&p->sessions, e) != 0) {
        return 0;
    }
    switch ((enum hlg_message_kind)e->message->kind) {
    case HLG_MESSAGE_REQUEST:
        on_request(p, e->peer, &e->message->request);
        return 0;
    case HLG_MESSAGE_CANCEL:
        on_cancel(p, e->peer, &e->message->answer);
        return 0;
    case HLG_MESSAGE_CREDIT:
        if (e->message->credit.finished.requests != 0 || e->message->credit.finished.pages != 0 ||
            e->message->credit.finished.prompt_bytes != 0 ||
            post_credit(p, e->peer, &e->message->credit) != 0) {
            sessions_end(&p->sessions, e->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
        }
        return 0;
    case HLG_MESSAGE_HELLO: /* GCOVR_EXCL_LINE: counted here, and unreachable */
    case HLG_MESSAGE_HEARTBEAT:
    case HLG_MESSAGE_DRAIN:
    case HLG_MESSAGE_BYE:
        hlg_unreachable(); /* the sessions took it */
    case HLG_MESSAGE_ACCEPT:
    case HLG_MESSAGE_REJECT:
    case HLG_MESSAGE_FENCED:
    case HLG_MESSAGE_FAILED:
        break; /* a decoder does not send these */
    }
    sessions_note(&p->sessions, HLG_NOTE_MESSAGE_UNEXPECTED, e->peer, e->message->kind, 0, 0);
    sessions_end(&p->sessions, e->peer, SESSION_END_PROTOCOL, -HLG_EPROTO);
    return 0;
}

/* ---- the engine --------------------------------------------------------------------------- */

/* Announce tokens [announced, limit) as computed by a forward (index or HLG_NONE). */
static void add_chunk(struct hlg_prefill *p, struct prefill_request *r, uint32_t forward,
                      uint32_t limit)
{
    const struct hlg_layout *layout = &p->config.layout;
    uint32_t index = p->chunk_free;
    struct chunk *chunk = &p->chunks[index];
    bool last = limit == hlg_handoff_prefill_tokens(r->tokens);

    HLG_ASSERT(index != HLG_NONE);
    bool taken = shares_take(&p->chunk_shares, r->peer, 1);
    HLG_ASSERT(taken); /* the caller made sure */
    p->chunk_free = chunk->next;
    p->chunk_free_count--;
    *chunk = (struct chunk){.request = index_of(p, r),
                            .forward = forward,
                            .number = forward == HLG_NONE ? 0 : p->layers.forwards[forward].number,
                            .last = last,
                            .next = r->chunks};
    for (uint32_t g = 0; g < layout->group_count; g++) {
        struct page_span *span = &chunk->spans[g];
        if (layout->groups[g].kind == HLG_GROUP_CONTEXT) {
            *span = (struct page_span){.begin = 0, .count = last ? r->asked[g].count : 0};
        } else {
            *span = chunk_pages(layout->groups[g].page_tokens, r->announced, limit, last,
                                r->asked[g].begin);
        }
        chunk->blocks[g] =
            span->count == 0 ? HLG_NONE
                             : blocks_at(&p->blocks, r->blocks[g], span->begin - r->asked[g].begin);
    }
    r->chunks = index;
    r->chunk_count++;
    r->announced = limit;
    r->state = last ? PREFILL_CONTEXT : PREFILL_RUNNING;
    if (forward != HLG_NONE) {
        layers_hold(&p->layers, forward);
    }
    post_chunk(p, index);
    settle(p, r);
}

/* Whether ADMIT names good source pages; as many as the prompt less its last token needs. */
static bool admit_fits(const struct hlg_prefill *p, const struct prefill_request *r,
                       const struct hlg_event_admit *e)
{
    const struct hlg_layout *layout = &p->config.layout;

    if (e->pool >= layout->pools ||
        e->cached_tokens > hlg_handoff_cached_tokens_max(layout, r->tokens)) {
        return false;
    }
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct hlg_page_list *list = &e->groups[g];
        if (list->first != 0 ||
            list->count != hlg_layout_pages(layout, g, hlg_handoff_prefill_tokens(r->tokens))) {
            return false;
        }
        for (uint32_t i = 0; i < list->count; i++) {
            if (list->pages[i] >= layout->groups[g].page_count) {
                return false;
            }
        }
    }
    return true;
}

/* Number of the forward in place `forward` of the table that a request takes part in, if any:
 * computed by it, or cached and valid after it. A chunk that completes no page leaves nothing else
 * behind, and must stop with its forward all the same. */
static uint32_t *part_of(const struct hlg_prefill *p, uint32_t request, uint32_t forward)
{
    return &p->parts[request * p->config.limits.forwards_max + forward];
}

static int on_admit(struct hlg_prefill *p, const struct hlg_event_admit *e)
{
    struct prefill_request *r = find(p, e->request);
    uint32_t forward = HLG_NONE;

    if (r == NULL) {
        return -HLG_ESTALE;
    }
    if (r->state != PREFILL_ASKED) {
        return -HLG_ESTATE;
    }
    if (!admit_fits(p, r, e)) {
        return -HLG_EINVAL;
    }
    if (e->cached_tokens > 0 && e->cached_forward != 0) {
        forward = layers_find(&p->layers, e->cached_forward);
        if (forward == HLG_NONE &&
            (p->layers.newest == 0 || layers_after(e->cached_forward, p->layers.newest))) {
            return -HLG_EINVAL;
        }
    }
    if (e->cached_tokens > 0 && !shares_fit(&p->chunk_shares, r->peer, 1)) {
        return -HLG_ELIMIT;
    }
    r->source_pool = e->pool;
    for (uint32_t g = 0; g < p->config.layout.group_count; g++) {
        if (r->asked[g].count > 0) {
            blocks_sources(&p->blocks, r->blocks[g], e->groups[g].pages + r->asked[g].begin,
                           r->asked[g].count);
        }
    }
    r->state = PREFILL_ADMITTED;
    sessions_note(&p->sessions, HLG_NOTE_STEP_ADMITTED, r->peer, r->number, e->cached_tokens, 0);
    answer(p, r, HLG_MESSAGE_ACCEPT, r->expected);
    if (e->cached_tokens > 0) {
        if (forward != HLG_NONE) {
            *part_of(p, index_of(p, r), forward) = e->cached_forward;
        }
        add_chunk(p, r, forward, e->cached_tokens);
    }
    return 0;
}

static int on_reject(struct hlg_prefill *p, const struct hlg_event_reject *e)
{
    struct prefill_request *r = find(p, e->request);

    if (r == NULL) {
        return -HLG_ESTALE;
    }
    if (r->state != PREFILL_ASKED) {
        return -HLG_ESTATE;
    }
    if (sessions_up(&p->sessions, r->peer)) {
        reject(p, r->peer, r->number, HLG_REASON_REJECTED, e->retry_after_ns);
    }
    end(p, r);
    return 0;
}

/* What a rank's word shows when it has no layer, nor context, to stamp any more. */
static uint32_t layers_of(const struct hlg_layout *layout, uint32_t rank)
{
    const uint32_t stage = rank / layout->tp; /* floor: ranks of a stage lie side by side */
    bool context = false;

    for (uint32_t g = 0; g < layout->group_count; g++) {
        context = context || layout->groups[g].kind == HLG_GROUP_CONTEXT;
    }
    return layout->stage_limit[stage] - hlg_layout_layer_begin(layout, stage) +
           (context && stage == layout->stages - 1 ? 1 : 0);
}

/* Whether some request takes part in a forward of which its words have not shown all. */
static bool is_awaited(const struct hlg_prefill *p, uint32_t forward)
{
    uint32_t number = p->layers.forwards[forward].number;
    uint32_t first = p->config.layout.rank_begin;

    for (uint32_t i = 0; i < p->config.limits.requests_max; i++) {
        const struct prefill_request *r = &p->requests[i];
        if (r->state == PREFILL_FREE || *part_of(p, i, forward) != number) {
            continue;
        }
        for (uint32_t rank = first; rank < first + p->ranks; rank++) {
            uint32_t word = post_word(p, r->source_pool, rank);
            if (layers_done(&p->layers, forward, word) < layers_of(&p->config.layout, rank)) {
                return true;
            }
        }
    }
    return false;
}

bool hlg_prefill_awaits(const struct hlg_prefill *p)
{
    for (uint32_t i = 0; i < p->layers.used; i++) {
        const struct forward *forward = &p->layers.forwards[i];
        if (forward->number != 0 && !forward->ended && is_awaited(p, i)) {
            return true;
        }
    }
    return false;
}

/* Where counters are watched nobody need end a forward: newer stamps do (I4). And chunks of one that has
 * ended need it no more, however long a peer lets them wait: it must not keep others from new forwards.
 * Looked at when the table is full. */
static void end_passed_forwards(struct hlg_prefill *p)
{
    for (uint32_t i = 0; i < p->layers.forwards_max; i++) {
        if (layers_passed(&p->layers, i) && !is_awaited(p, i)) {
            layers_end(&p->layers, i);
        }
    }
    for (uint32_t i = 0; i < p->config.limits.chunks_max; i++) {
        struct chunk *chunk = &p->chunks[i];
        if (chunk->request != HLG_NONE && chunk->forward != HLG_NONE &&
            p->layers.forwards[chunk->forward].ended) {
            uint32_t forward = chunk->forward;
            chunk->forward = HLG_NONE; /* all its pages are valid */
            layers_drop(&p->layers, forward);
        }
    }
}

static int on_chunk(struct hlg_prefill *p, const struct hlg_event_chunk *e)
{
    struct prefill_request *r = find(p, e->request);

    if (r == NULL) {
        return -HLG_ESTALE;
    }
    if (r->state != PREFILL_ADMITTED && r->state != PREFILL_RUNNING) {
        return -HLG_ESTATE;
    }
    uint32_t tokens = hlg_handoff_prefill_tokens(r->tokens);
    if (e->token_begin != r->announced || e->token_count == 0 ||
        e->token_count > tokens - r->announced) {
        return -HLG_EINVAL;
    }
    if (!shares_fit(&p->chunk_shares, r->peer, 1)) {
        return -HLG_ELIMIT;
    }
    int64_t forward = layers_announce(&p->layers, e->forward);
    if (forward == -HLG_ELIMIT) {
        end_passed_forwards(p);
        forward = layers_announce(&p->layers, e->forward);
    }
    if (forward < 0) {
        return (int)forward;
    }
    *part_of(p, index_of(p, r), (uint32_t)forward) = e->forward;
    add_chunk(p, r, (uint32_t)forward, e->token_begin + e->token_count);
    return 0;
}

static int on_forward_over(struct hlg_prefill *p, uint32_t number, bool aborted)
{
    uint32_t forward = layers_find(&p->layers, number);

    if (forward == HLG_NONE || p->layers.forwards[forward].ended) {
        /* over already, by a newer stamp: an end is no news, an abort comes too late */
        bool known = p->layers.newest != 0 && number != 0 && number <= 0xffffffu &&
                     !layers_after(number, p->layers.newest);
        return known && !aborted ? 0 : -HLG_ESTATE;
    }
    for (uint32_t i = 0; aborted && i < p->config.limits.requests_max; i++) {
        if (p->requests[i].state != PREFILL_FREE && *part_of(p, i, forward) == number) {
            stop(p, &p->requests[i], HLG_REASON_PREEMPTED, true);
        }
    }
    facts_end(&p->facts, p->sessions.now);
    layers_end(&p->layers, forward);
    post_wake(p);
    return 0;
}

/* ---- the driver --------------------------------------------------------------------------- */

static int on_layer(struct hlg_prefill *p, const struct hlg_event_layer *e)
{
    if (e->word >= p->layers.words) {
        return -HLG_EINVAL;
    }
    switch (layers_tick(&p->layers, e->word, e->value)) {
    case LAYER_TICK_NEWS:
        facts_tick(&p->facts, e->word, e->value >> 8, e->value & 0xffu, p->sessions.now);
        post_wake(p);
        break;
    case LAYER_TICK_NOTHING:
        break;
    case LAYER_TICK_UNANNOUNCED:
        sessions_note(&p->sessions, HLG_NOTE_LAYER_UNANNOUNCED, HLG_NONE, e->word, e->value, 0);
        break;
    }
    return 0;
}

static int on_taken(struct hlg_prefill *p, const struct hlg_event_taken *e)
{
    if (e->op >= p->config.limits.ops_max || p->ops[e->op].request == HLG_NONE) {
        return -HLG_EINVAL;
    }
    uint32_t request = p->ops[e->op].request;
    int error = post_taken(p, e);
    if (error == 0) {
        settle(p, &p->requests[request]);
    }
    return error;
}

static int on_done(struct hlg_prefill *p, const struct hlg_event_done *e)
{
    uint32_t index = HLG_NONE;
    int error = post_done(p, e, &index);

    if (error != 0) {
        return error;
    }
    struct prefill_request *r = &p->requests[index];
    if (e->failed > 0 && r->state != PREFILL_STOPPING) {
        sessions_note(&p->sessions, HLG_NOTE_WRITE_FAILED, r->peer, r->number, e->failed,
                      (uint64_t)(int64_t)e->status);
        stop(p, r, HLG_REASON_PEER, true);
    } else {
        settle(p, r);
    }
    return 0;
}

static void stop_all_of(struct hlg_prefill *p, uint32_t peer)
{
    uint64_t serial = p->sessions.peers[peer].serial;

    for (uint32_t i = 0; i < p->config.limits.requests_max; i++) {
        struct prefill_request *r = &p->requests[i];
        if (r->state != PREFILL_FREE && r->peer == peer && r->serial == serial) {
            stop(p, r, HLG_REASON_PEER, false);
        }
    }
}

/* Source pages as ADMIT named them. */
static uint64_t count_sources(const struct hlg_prefill *p, const struct prefill_request *r)
{
    uint64_t pages = 0;

    for (uint32_t g = 0; g < p->config.layout.group_count; g++) {
        pages += hlg_layout_pages(&p->config.layout, g, hlg_handoff_prefill_tokens(r->tokens));
    }
    return pages;
}

/* The endpoints are closed, or closing them gave an error: what is left of the peer had writes that
 * failed. */
static void end_failed(struct hlg_prefill *p, uint32_t peer, int32_t status)
{
    for (uint32_t i = 0; i < p->config.limits.requests_max; i++) {
        struct prefill_request *r = &p->requests[i];
        if (r->state == PREFILL_FREE || r->peer != peer) {
            continue;
        }
        HLG_ASSERT(r->state == PREFILL_STOPPING && r->failed > 0);
        if (status == 0) {
            notice(p, r, HLG_NOTICE_FENCED);
        } else {
            uint64_t pages = count_sources(p, r);
            sessions_note(&p->sessions, HLG_NOTE_PAGES_POISONED, peer, r->number, pages, 0);
            notice(p, r, HLG_NOTICE_POISONED);
            p->stats.pages_poisoned += pages;
        }
        end(p, r);
    }
}

static int on_closed(struct hlg_prefill *p, const struct hlg_event_peer *e)
{
    int error = sessions_closed(&p->sessions, e->peer);

    if (error != 0) {
        return error;
    }
    end_failed(p, e->peer, e->status);
    post_forget(p, e->peer);
    HLG_ASSERT(p->request_shares.by_peer[e->peer] == 0 && p->block_shares.by_peer[e->peer] == 0);
    HLG_ASSERT(p->chunk_shares.by_peer[e->peer] == 0 && p->op_shares.by_peer[e->peer] == 0);
    p->ledgers[e->peer] = (struct ledger){0};
    return 0;
}

static void on_time(struct hlg_prefill *p)
{
    sessions_time(&p->sessions);
    for (uint32_t i = timers_due(&p->timers, p->sessions.now); i != HLG_NONE;
         i = timers_due(&p->timers, p->sessions.now)) {
        struct prefill_request *r = &p->requests[i];
        if (r->state != PREFILL_STOPPING) {
            stop(p, r, HLG_REASON_DEADLINE, true);
        } else {
            /* Its source pages are not held for ever: closing our endpoints ends what is outstanding. */
            sessions_note(&p->sessions, HLG_NOTE_FENCE_TIMEOUT, r->peer, r->number, 0, 0);
            sessions_end(&p->sessions, r->peer, SESSION_END_FENCE, -HLG_EPEER);
        }
    }
}

static int on_give_up(struct hlg_prefill *p, hlg_handle request)
{
    struct prefill_request *r = find(p, request);

    if (r == NULL) {
        return -HLG_ESTALE;
    }
    stop(p, r, HLG_REASON_PREEMPTED, true);
    return 0;
}

static int on_down(struct hlg_prefill *p, const struct hlg_event *event)
{
    if (event->peer.peer >= p->config.limits.peers_max) {
        return -HLG_EINVAL;
    }
    sessions_end(&p->sessions, event->peer.peer,
                 event->kind == HLG_EVENT_DISCONNECT ? SESSION_END_ASKED : SESSION_END_CHANNEL,
                 event->peer.status);
    return 0;
}

static int dispatch(struct hlg_prefill *p, const struct hlg_event *event)
{
    switch ((enum hlg_event_kind)event->kind) {
    case HLG_EVENT_TIME:
        on_time(p);
        return 0;
    case HLG_EVENT_CHANNEL_UP:
        return sessions_channel_up(&p->sessions, &event->peer);
    case HLG_EVENT_MESSAGE:
        return on_message(p, &event->peer);
    case HLG_EVENT_PEER_OPENED:
        return sessions_opened(&p->sessions, &event->peer);
    case HLG_EVENT_PEER_DOWN:
    case HLG_EVENT_DISCONNECT:
        return on_down(p, event);
    case HLG_EVENT_PEER_CLOSED:
        return on_closed(p, &event->peer);
    case HLG_EVENT_SEND_REFUSED:
    case HLG_EVENT_SEND_ROOM:
        return 0; /* sessions_begin saw to it */
    case HLG_EVENT_TAKEN:
        return on_taken(p, &event->taken);
    case HLG_EVENT_ROOM:
        return post_room(p, event->room.lane, event->room.rail);
    case HLG_EVENT_DONE_WRITE:
        return on_done(p, &event->done);
    case HLG_EVENT_LAYER:
        return on_layer(p, &event->layer);
    case HLG_EVENT_CANCEL:
        return on_give_up(p, event->request);
    case HLG_EVENT_ADMIT:
        return on_admit(p, &event->admit);
    case HLG_EVENT_REJECT:
        return on_reject(p, &event->reject);
    case HLG_EVENT_CHUNK:
        return on_chunk(p, &event->chunk);
    case HLG_EVENT_FORWARD_END:
        return on_forward_over(p, event->forward, false);
    case HLG_EVENT_FORWARD_ABORT:
        return on_forward_over(p, event->forward, true);
    case HLG_EVENT_DRAIN:
        sessions_drain(&p->sessions);
        return 0;
    case HLG_EVENT_IMM:
    case HLG_EVENT_FLUSHED:
    case HLG_EVENT_FLUSH_FAILED:
    case HLG_EVENT_SUBMIT:
    case HLG_EVENT_RELEASE:
        return -HLG_EINVAL; /* the decode machine's */
    }
    return -HLG_EINVAL;
}

/* The CREDIT that the last `next` pulled was refused, and is still queued. */
static void unsent(struct hlg_prefill *p, const struct hlg_event *event)
{
    if (event->kind == HLG_EVENT_SEND_REFUSED && p->sessions.sending != HLG_NONE &&
        event->peer.peer == p->sessions.sending) {
        const struct session *peer = &p->sessions.peers[event->peer.peer];
        bool credit = p->sessions.out[peer->out_head].kind == HLG_MESSAGE_CREDIT;
        p->ledgers[event->peer.peer].queued = p->ledgers[event->peer.peer].queued || credit;
    }
}

int hlg_prefill_handle(struct hlg_prefill *p, const struct hlg_event *event)
{
    p->message = NULL;
    unsent(p, event);
    sessions_begin(&p->sessions, event);
    int error = dispatch(p, event);
    for (uint32_t peer = sessions_take_ended(&p->sessions); peer != HLG_NONE;
         peer = sessions_take_ended(&p->sessions)) {
        stop_all_of(p, peer);
    }
    return error;
}

int hlg_prefill_next(struct hlg_prefill *p, uint32_t lane, unsigned kinds,
                     struct hlg_action *action)
{
    const struct outgoing *out = NULL;

    if (sessions_next(&p->sessions, kinds, action, &out) != 0) {
        if (action->kind == HLG_ACTION_NOTICE && action->notice.kind == HLG_NOTICE_REQUESTED) {
            HLG_ASSERT(p->message != NULL); /* pulled before the next event */
            action->notice.message = p->message;
        } else if (out != NULL && out->kind == HLG_MESSAGE_CREDIT) {
            struct ledger *ledger = &p->ledgers[action->send.peer];
            ledger->queued = false;
            ledger->told = ledger->finished;
            action->send.message.credit = (struct hlg_credit){.finished = ledger->told};
        }
        return 1;
    }
    return (kinds & HLG_ACTION_WRITE) != 0 ? post_next(p, lane, action) : 0;
}

hlg_time hlg_prefill_deadline(const struct hlg_prefill *p)
{
    return hlg_min_time(timers_next(&p->sessions.due), timers_next(&p->timers));
}

uint32_t hlg_prefill_open(const struct hlg_prefill *p)
{
    return p->open_count;
}

void hlg_prefill_stats(const struct hlg_prefill *p, struct hlg_prefill_stats *stats)
{
    *stats = p->stats;
    stats->writes_in_flight = p->busy.depth;
    stats->busy_ns = hlg_busy_total(&p->busy, p->sessions.now);
}

void hlg_prefill_census(const struct hlg_prefill *p, struct hlg_census *census)
{
    *census = (struct hlg_census){
        .requests = p->open_count,
        .requests_max = p->config.limits.requests_max,
        .timers = p->timers.count,
        .ops = p->config.limits.ops_max - p->op_free_count,
        .ops_max = p->config.limits.ops_max,
        .blocks = p->blocks.capacity - p->blocks.free_count,
        .blocks_max = p->blocks.capacity,
        .chunks = p->config.limits.chunks_max - p->chunk_free_count,
        .chunks_max = p->config.limits.chunks_max,
        .forwards_max = p->config.limits.forwards_max,
        .sources_poisoned = p->stats.pages_poisoned,
    };
    for (uint32_t i = 0; i < p->layers.forwards_max; i++) {
        census->forwards += p->layers.forwards[i].number != 0;
    }
    sessions_census(&p->sessions, census);
}

/* ---- check -------------------------------------------------------------------------------- */

static uint32_t check_request(const struct hlg_prefill *p, uint32_t index)
{
    const struct prefill_request *r = &p->requests[index];
    uint32_t chunks = 0;
    uint32_t blocks = 0;

    for (uint32_t c = r->chunks; c != HLG_NONE; c = p->chunks[c].next) {
        HLG_ASSERT(p->chunks[c].request == index);
        chunks++;
    }
    HLG_ASSERT(chunks == r->chunk_count);
    HLG_ASSERT(r->posted <= r->expected && r->done <= r->posted);
    HLG_ASSERT(r->announced < r->tokens); /* the last token is never prefilled (I6) */
    HLG_ASSERT(r->state != PREFILL_ASKED || (chunks == 0 && r->posted == 0));
    HLG_ASSERT(r->state != PREFILL_CONTEXT || chunks > 0 || r->posted < r->expected);
    HLG_ASSERT(r->state != PREFILL_DRAINING || (chunks == 0 && r->op_count > 0));
    HLG_ASSERT(r->state != PREFILL_STOPPING || chunks == 0);
    if (r->state == PREFILL_STOPPING && r->op_count == 0) { /* waits for PEER_CLOSED */
        HLG_ASSERT(r->failed > 0 && p->sessions.peers[r->peer].state == SESSION_CLOSING);
    }
    HLG_ASSERT(r->state == PREFILL_FREE || p->sessions.peers[r->peer].serial == r->serial);
    for (uint32_t g = 0; g < p->config.layout.group_count; g++) {
        uint32_t count = blocks_count(&p->blocks, r->blocks[g]);
        HLG_ASSERT(count == hlg_div_ceil(r->asked[g].count, HLG_BLOCK_PAGES));
        blocks += count;
    }
    return blocks;
}

int hlg_prefill_check(const struct hlg_prefill *p)
{
    uint32_t open = 0;
    uint32_t blocks = 0;
    uint64_t ops = 0;
    uint32_t held = 0;
    uint32_t waiting = 0;

    sessions_check(&p->sessions);
    timers_check(&p->timers);
    layers_check(&p->layers);
    post_check(p);
    shares_check(&p->request_shares);
    shares_check(&p->block_shares);
    shares_check(&p->chunk_shares);
    shares_check(&p->op_shares);
    for (uint32_t i = 0; i < p->config.limits.requests_max; i++) {
        if (p->requests[i].state != PREFILL_FREE) {
            blocks += check_request(p, i);
            ops += p->requests[i].op_count;
            open++;
        }
    }
    for (uint32_t i = 0; i < p->layers.forwards_max; i++) {
        held += p->layers.forwards[i].chunks;
    }
    for (uint32_t i = 0; i < p->config.limits.chunks_max; i++) {
        waiting += p->chunks[i].request != HLG_NONE && p->chunks[i].forward != HLG_NONE;
    }
    HLG_ASSERT(open == p->open_count);
    HLG_ASSERT(blocks + p->blocks.free_count == p->blocks.capacity);
    HLG_ASSERT(open == p->request_shares.used && blocks == p->block_shares.used);
    HLG_ASSERT(ops == p->op_shares.used);
    HLG_ASSERT(p->chunk_free_count + p->chunk_shares.used == p->config.limits.chunks_max);
    HLG_ASSERT(ops + p->op_free_count == p->config.limits.ops_max);
    HLG_ASSERT(held == waiting);
    return 0;
}
