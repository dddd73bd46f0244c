#include "post.h"

uint32_t post_word(const struct hlg_prefill *p, uint32_t pool, uint32_t rank)
{
    const struct hlg_layout *layout = &p->config.layout;

    if (layout->all_reduce != 0) {
        return pool * layout->stages + rank / layout->tp; /* floor: the rank's stage */
    }
    return hlg_layout_lane(layout, pool, rank);
}

static struct queue *queue_of(const struct hlg_prefill *p, uint32_t lane, uint32_t peer)
{
    return &p->queues[lane * p->config.limits.peers_max + peer];
}

static struct link *link_of(const struct hlg_prefill *p, uint32_t lane, uint32_t peer,
                            uint32_t rail)
{
    return &p->links[(lane * p->config.limits.peers_max + peer) * p->config.rails + rail];
}

static struct window *window_of(const struct hlg_prefill *p, uint32_t peer, uint32_t lane,
                                uint32_t rail)
{
    return &p->windows[(peer * HLG_RANKS_MAX + lane) * p->config.limits.rails_max + rail];
}

void post_init(struct hlg_prefill *p)
{
    uint32_t pairs = p->lane_count * p->config.limits.peers_max;

    for (uint32_t i = 0; i < pairs; i++) {
        p->queues[i] = (struct queue){.head = HLG_NONE, .tail = HLG_NONE};
    }
    for (uint32_t i = 0; i < pairs * p->config.rails; i++) {
        p->links[i] = (struct link){.op = HLG_NONE};
    }
    p->op_free = HLG_NONE;
    for (uint32_t i = p->config.limits.ops_max; i > 0; i--) {
        p->ops[i - 1] = (struct op){.request = HLG_NONE, .next = p->op_free};
        p->op_free = i - 1;
    }
    p->op_free_count = p->config.limits.ops_max;
    p->chunk_free = HLG_NONE;
    for (uint32_t i = p->config.limits.chunks_max; i > 0; i--) {
        p->chunks[i - 1] = (struct chunk){.request = HLG_NONE, .next = p->chunk_free};
        p->chunk_free = i - 1;
    }
    p->chunk_free_count = p->config.limits.chunks_max;
    p->offered = HLG_NONE;
}

void post_wake(struct hlg_prefill *p)
{
    for (uint32_t i = 0; i < p->lane_count; i++) {
        p->lanes[i].idle = false;
    }
}

/* ---- queues of cursors -------------------------------------------------------------------- */

static void list_append(struct hlg_prefill *p, uint32_t lane, uint32_t peer, uint32_t index)
{
    struct queue *q = queue_of(p, lane, peer);
    struct cursor *cursor = &p->cursors[index];

    HLG_ASSERT(!cursor->listed);
    cursor->listed = true;
    cursor->next = HLG_NONE;
    cursor->before = q->tail;
    if (q->tail == HLG_NONE) {
        q->head = index;
    } else {
        p->cursors[q->tail].next = index;
    }
    q->tail = index;
    bits_set(p->lanes[lane].busy, peer);
}

static void list_remove(struct hlg_prefill *p, struct queue *q, uint32_t index)
{
    struct cursor *cursor = &p->cursors[index];

    HLG_ASSERT(cursor->listed);
    cursor->listed = false;
    if (cursor->before == HLG_NONE) {
        q->head = cursor->next;
    } else {
        p->cursors[cursor->before].next = cursor->next;
    }
    if (cursor->next == HLG_NONE) {
        q->tail = cursor->before;
    } else {
        p->cursors[cursor->next].before = cursor->before;
    }
}

static void chunk_end(struct hlg_prefill *p, uint32_t index)
{
    struct chunk *chunk = &p->chunks[index];
    struct prefill_request *r = &p->requests[chunk->request];
    uint32_t *link = &r->chunks;

    HLG_ASSERT(chunk->cursors == 0);
    while (*link != index) {
        HLG_ASSERT(*link != HLG_NONE);
        link = &p->chunks[*link].next;
    }
    *link = chunk->next;
    r->chunk_count--;
    if (chunk->forward != HLG_NONE) {
        layers_drop(&p->layers, chunk->forward);
    }
    shares_give(&p->chunk_shares, r->peer, 1);
    *chunk = (struct chunk){.request = HLG_NONE, .next = p->chunk_free};
    p->chunk_free = index;
    p->chunk_free_count++;
}

void post_chunk(struct hlg_prefill *p, uint32_t index)
{
    struct chunk *chunk = &p->chunks[index];
    const struct prefill_request *r = &p->requests[chunk->request];
    const struct hlg_plan *plan = &p->sessions.peers[r->peer].plan;
    uint32_t first = p->config.layout.rank_begin;

    chunk->cursors = 0;
    for (uint32_t k = 0; k < p->ranks; k++) {
        struct cursor *cursor = &p->cursors[index * p->ranks + k];
        *cursor = (struct cursor){.slice = plan->slice_begin[first + k]};
        if (cursor_seek(cursor, chunk, plan, first + k, r->offset)) {
            uint32_t lane = r->source_pool * p->ranks + k;
            list_append(p, lane, r->peer, index * p->ranks + k);
            chunk->cursors++;
        }
    }
    if (chunk->cursors == 0) {
        chunk_end(p, index);
    }
    post_wake(p);
}

static void op_free(struct hlg_prefill *p, uint32_t index)
{
    struct op *op = &p->ops[index];

    HLG_ASSERT(op->done + op->failed == op->taken && op->taken == op->total);
    HLG_ASSERT(p->requests[op->request].op_count > 0);
    p->requests[op->request].op_count--;
    if (op->taken > 0) {
        hlg_busy_end(&p->busy, p->sessions.now);
    }
    if (op->fact != 0 && op->failed == 0 && op->taken > 0) {
        hlg_histogram_add(&p->stats.done_ns, HLG_HISTOGRAM_TIME, p->sessions.now - op->fact);
    }
    shares_give(&p->op_shares, op->peer, 1);
    *op = (struct op){.request = HLG_NONE, .next = p->op_free};
    p->op_free = index;
    p->op_free_count++;
    if (p->op_wanted) {
        p->op_wanted = false;
        post_wake(p);
    }
}

void post_remove(struct hlg_prefill *p, uint32_t request)
{
    struct prefill_request *r = &p->requests[request];

    while (r->chunks != HLG_NONE) {
        uint32_t index = r->chunks;
        for (uint32_t k = 0; k < p->ranks; k++) {
            uint32_t lane = r->source_pool * p->ranks + k;
            if (p->cursors[index * p->ranks + k].listed) {
                list_remove(p, queue_of(p, lane, r->peer), index * p->ranks + k);
                p->chunks[index].cursors--;
            }
        }
        chunk_end(p, index);
    }
    for (uint32_t k = 0; k < p->ranks * p->config.rails; k++) {
        uint32_t lane = r->source_pool * p->ranks + k / p->config.rails;
        struct link *link = link_of(p, lane, r->peer, k % p->config.rails);
        if (link->op == HLG_NONE || p->ops[link->op].request != request) {
            continue;
        }
        struct op *op = &p->ops[link->op];
        op->total = op->taken;
        if (op->done + op->failed == op->taken) {
            op_free(p, link->op);
        }
        link->op = HLG_NONE;
    }
}

/* ---- choosing ----------------------------------------------------------------------------- */

/* The first cursor of a queue whose layer's fact is in, or HLG_NONE. */
static uint32_t find_ready(const struct hlg_prefill *p, const struct queue *q, uint32_t lane)
{
    uint32_t rank = p->config.layout.rank_begin + lane % p->ranks;
    uint32_t word = post_word(p, lane / p->ranks, rank);

    for (uint32_t i = q->head; i != HLG_NONE; i = p->cursors[i].next) {
        const struct chunk *chunk = &p->chunks[i / p->ranks];
        if (layers_done(&p->layers, chunk->forward, word) > p->cursors[i].position) {
            return i;
        }
    }
    return HLG_NONE;
}

/*
 * Where the share of a run that begins at `page` ends: the rails of a lane share each run of `count`
 * pages. Shares differ by a page at most, and `phase` says which are the larger ones, so that no rail
 * gets more run after run.
 */
static uint32_t share_limit(uint32_t page, uint32_t count, uint32_t rails, uint32_t phase)
{
    HLG_ASSERT(page < count && phase < rails);
    const uint64_t begin = (uint64_t)rails * (page + 1ull) - phase;
    const uint64_t share = begin / count + (begin % count != 0);

    /* floor: share k ends at page (k * count + phase) / rails */
    return (uint32_t)hlg_min_u64((share * count + phase) / rails, count);
}

/* Point an operation at a share of the run of pages under a cursor, and move the cursor past it.
 * Returns whether the cursor has more. */
static bool fill_op(struct hlg_prefill *p, struct op *op, uint32_t index)
{
    struct cursor *cursor = &p->cursors[index];
    const struct chunk *chunk = &p->chunks[index / p->ranks];
    const struct prefill_request *r = &p->requests[chunk->request];
    const struct session *peer = &p->sessions.peers[r->peer];
    uint32_t rank = p->config.layout.rank_begin + index % p->ranks;
    const struct hlg_slice *slice = &peer->plan.slices[cursor->slice];
    const struct page_span *span = &chunk->spans[slice->group];
    const struct block *block = &p->blocks.blocks[cursor->block];
    uint32_t at = (span->begin - r->asked[slice->group].begin + cursor->page) % HLG_BLOCK_PAGES;
    uint32_t position = cursor->position;
    uint32_t share =
        share_limit(cursor->page, span->count, p->config.rails, position % p->config.rails) -
        cursor->page;

    *op = (struct op){
        .request = chunk->request,
        .peer = r->peer,
        .lane = r->source_pool * p->ranks + index % p->ranks,
        .target_lane = hlg_layout_lane(&peer->plan.target, r->target_pool, slice->target_rank),
        .layer = cursor_layer(cursor, &peer->plan, rank),
        .imm = hlg_imm_make(r->slot, r->generation, 0),
        .forward = chunk->number,
        .slice = slice,
        .source_pages = &block->source[at],
        .target_pages = &block->target[at],
        .page_count = hlg_min_u32(share, HLG_BLOCK_PAGES - at),
    };
    op->total = op->page_count * slice->count;
    cursor->page += op->page_count;
    cursor->block = at + op->page_count == HLG_BLOCK_PAGES ? block->next : cursor->block;
    bool more = cursor_seek(cursor, chunk, &peer->plan, rank, r->offset);
    op->last_of_layer = !more || cursor->position != position;
    uint32_t stage = rank / p->config.layout.tp; /* floor: the rank's stage */
    op->counts = op->layer + 1 < p->config.layout.stage_limit[stage] && op->forward != 0;
    op->made = p->sessions.now;
    op->fact = op->forward == 0
                   ? 0
                   : facts_at(&p->facts, post_word(p, r->source_pool, rank), op->forward, position);
    return more;
}

/* Make an operation of the next ready page run of (lane, peer). Returns it, or HLG_NONE. */
static uint32_t make_op(struct hlg_prefill *p, uint32_t lane, uint32_t peer)
{
    struct queue *q = queue_of(p, lane, peer);
    uint32_t cursor = find_ready(p, q, lane);

    if (cursor == HLG_NONE) {
        return HLG_NONE;
    }
    if (!shares_take(&p->op_shares, peer, 1)) {
        p->op_wanted = true; /* others go on with theirs */
        return HLG_NONE;
    }
    uint32_t index = p->op_free;
    HLG_ASSERT(index != HLG_NONE);
    struct op *op = &p->ops[index];
    p->op_free = op->next;
    p->op_free_count--;
    bool more = fill_op(p, op, cursor);
    p->requests[op->request].op_count++;
    if (more && p->config.rails > 1 && p->cursors[cursor].page > 0) {
        return index; /* the run's next share is the next rail's */
    }
    list_remove(p, q, cursor);
    if (more) {
        list_append(p, lane, peer, cursor); /* behind the peer's other requests */
    } else {
        struct chunk *chunk = &p->chunks[cursor / p->ranks];
        chunk->cursors--;
        if (chunk->cursors == 0) {
            chunk_end(p, cursor / p->ranks);
        }
    }
    return index;
}

/* Pieces of an operation that the target rail's window allows now, and no more than fill the turn: a peer
 * whose pages are large must not get more bytes than the others. At least one, of a piece that is larger
 * than a turn. */
static uint32_t allowed(const struct hlg_prefill *p, const struct op *op)
{
    const struct window *w = window_of(p, op->peer, op->target_lane, op->target_rail);
    uint64_t limit = w->credited + p->sessions.peers[op->peer].window_pieces;
    uint64_t room = limit > w->posted ? limit - w->posted : 0;

    uint64_t rest = p->config.limits.turn_bytes - p->lanes[op->lane].served;
    uint64_t turn = rest / op->slice->bytes; /* floor: not beyond it */
    uint64_t left = op->total - op->taken;

    left = turn == 0 ? 1 : hlg_min_u64(left, turn);
    return (uint32_t)hlg_min_u64(room, left);
}

static bool offer(struct hlg_prefill *p, uint32_t lane, uint32_t peer, uint32_t rail,
                  struct hlg_action *action)
{
    struct link *link = link_of(p, lane, peer, rail);

    if (link->parked) {
        return false;
    }
    if (link->op == HLG_NONE) {
        uint32_t made = make_op(p, lane, peer);
        if (made == HLG_NONE) {
            return false;
        }
        link->op = made;
        p->ops[made].rail = rail;
        p->ops[made].target_rail = rail % p->sessions.peers[peer].rails;
    }
    const struct op *op = &p->ops[link->op];
    uint32_t pieces = allowed(p, op);
    if (pieces == 0) {
        return false;
    }
    action->kind = HLG_ACTION_WRITE;
    action->write = (struct hlg_action_write){.op = link->op,
                                              .peer = peer,
                                              .lane = lane,
                                              .rail = rail,
                                              .target_lane = op->target_lane,
                                              .target_rail = op->target_rail,
                                              .layer = op->layer,
                                              .imm = op->imm,
                                              .slice = op->slice,
                                              .source_pages = op->source_pages,
                                              .target_pages = op->target_pages,
                                              .page_count = op->page_count,
                                              .piece_begin = op->taken,
                                              .piece_limit = op->taken + pieces};
    p->offered = link->op;
    p->offered_pieces = pieces;
    return true;
}

/* Nothing of a peer can be offered now: it is not busy if nothing is queued either. */
static void rest(struct hlg_prefill *p, uint32_t index, uint32_t peer)
{
    bool busy = queue_of(p, index, peer)->head != HLG_NONE;

    for (uint32_t rail = 0; !busy && rail < p->config.rails; rail++) {
        const struct link *link = link_of(p, index, peer, rail);
        busy = link->op != HLG_NONE || link->parked; /* ROOM looks for those */
    }
    if (!busy) {
        bits_clear(p->lanes[index].busy, peer);
    }
}

int post_next(struct hlg_prefill *p, uint32_t index, struct hlg_action *action)
{
    HLG_ASSERT(index < p->lane_count);
    HLG_ASSERT(p->offered == HLG_NONE); /* the driver answers each WRITE with TAKEN */
    struct lane *lane = &p->lanes[index];
    if (lane->idle) {
        return 0;
    }
    const uint32_t peers_max = p->config.limits.peers_max;
    const uint32_t words = bits_words(peers_max);
    const uint32_t start = lane->turn;
    for (uint32_t looked = 0; looked < peers_max;) {
        uint32_t peer = bits_next(lane->busy, words, lane->turn);
        uint32_t ahead = peer == HLG_NONE ? peers_max : (peer + peers_max - start) % peers_max;
        if (peer == HLG_NONE || ahead < looked) {
            break; /* once round */
        }
        if (peer != lane->turn) {
            lane->turn = peer;
            lane->served = 0;
        }
        for (uint32_t k = 0; sessions_up(&p->sessions, peer) && k < p->config.rails; k++) {
            uint32_t rail = (lane->rail + k) % p->config.rails;
            if (offer(p, index, peer, rail, action)) {
                lane->rail = (rail + 1) % p->config.rails;
                return 1;
            }
        }
        rest(p, index, peer);
        lane->turn = (peer + 1) % peers_max;
        lane->served = 0;
        looked = ahead + 1;
    }
    lane->idle = true;
    return 0;
}

/* ---- what became of it -------------------------------------------------------------------- */

/* A write of the same layer that another rail has not wholly taken yet, or NULL. */
static struct op *untaken(const struct hlg_prefill *p, const struct op *op)
{
    for (uint32_t rail = 0; rail < p->config.rails; rail++) {
        uint32_t index = link_of(p, op->lane, op->peer, rail)->op;
        struct op *other = index != HLG_NONE ? &p->ops[index] : NULL;
        if (other != NULL && other->request == op->request && other->forward == op->forward &&
            other->layer == op->layer) {
            return other;
        }
    }
    return NULL;
}

/* A write is wholly with the transport. */
static void measure(struct hlg_prefill *p, const struct op *op)
{
    const hlg_time now = p->sessions.now;

    hlg_histogram_add(&p->stats.post_ns, HLG_HISTOGRAM_TIME, now - op->made);
    hlg_histogram_add(&p->stats.write_bytes, HLG_HISTOGRAM_BYTES,
                      (uint64_t)op->total * op->slice->bytes);
    if (op->fact != 0) {
        hlg_histogram_add(&p->stats.posted_ns, HLG_HISTOGRAM_TIME, now - op->fact);
    }
}

/* All of a layer's writes of one chunk and rank are with the transport: before its forward ended? */
static void count_layer(struct hlg_prefill *p, const struct op *op)
{
    if (!op->last_of_layer || !op->counts) {
        return;
    }
    struct op *other = untaken(p, op);
    if (other != NULL) {
        other->last_of_layer = true;
        return;
    }
    uint32_t forward = layers_find(&p->layers, op->forward);
    if (forward != HLG_NONE && !p->layers.forwards[forward].ended) {
        p->stats.layers_early++;
    } else {
        p->stats.layers_late++;
    }
}

int post_taken(struct hlg_prefill *p, const struct hlg_event_taken *e)
{
    if (e->op != p->offered || p->offered == HLG_NONE || e->pieces > p->offered_pieces) {
        return -HLG_EINVAL;
    }
    struct op *op = &p->ops[e->op];
    struct prefill_request *r = &p->requests[op->request];
    struct link *link = link_of(p, op->lane, op->peer, op->rail);
    struct lane *lane = &p->lanes[op->lane];
    HLG_ASSERT(link->op == e->op);
    p->offered = HLG_NONE;
    if (e->pieces > 0 && op->taken == 0) {
        hlg_busy_begin(&p->busy, p->sessions.now);
    }
    if (e->pieces > 0 && r->posted == 0) {
        r->first_piece = p->sessions.now;
    }
    op->taken += e->pieces;
    if (r->posted == 0 && e->pieces > 0) {
        sessions_note(&p->sessions, HLG_NOTE_STEP_FIRST_POSTED, r->peer, r->number, e->pieces, 0);
    }
    r->posted += e->pieces;
    uint64_t bytes = (uint64_t)e->pieces * op->slice->bytes;
    r->bytes += bytes;
    window_of(p, op->peer, op->target_lane, op->target_rail)->posted += e->pieces;
    link->parked = e->pieces < p->offered_pieces;
    lane->served += bytes;
    if (lane->served >= p->config.limits.turn_bytes) {
        lane->served = 0;
        lane->turn = (op->peer + 1) % p->config.limits.peers_max;
    }
    if (op->taken == op->total) {
        link->op = HLG_NONE;
        measure(p, op);
        count_layer(p, op);
    }
    return 0;
}

int post_room(struct hlg_prefill *p, uint32_t lane, uint32_t rail)
{
    if (lane >= p->lane_count || rail >= p->config.rails) {
        return -HLG_EINVAL;
    }
    /* Only busy peers can be parked. */
    for (uint32_t word = 0; word < bits_words(p->config.limits.peers_max); word++) {
        for (uint64_t rest = p->lanes[lane].busy[word]; rest != 0; rest &= rest - 1) {
            uint32_t peer = word * 64 + (uint32_t)__builtin_ctzll(rest);
            link_of(p, lane, peer, rail)->parked = false;
        }
    }
    p->lanes[lane].idle = false;
    return 0;
}

int post_done(struct hlg_prefill *p, const struct hlg_event_done *e, uint32_t *request)
{
    if (e->op >= p->config.limits.ops_max || p->ops[e->op].request == HLG_NONE) {
        return -HLG_EINVAL;
    }
    struct op *op = &p->ops[e->op];
    uint64_t over = (uint64_t)op->done + op->failed + e->done + e->failed;
    if (over > op->taken) {
        return -HLG_EINVAL;
    }
    op->done += e->done;
    op->failed += e->failed;
    p->requests[op->request].done += e->done;
    p->requests[op->request].failed += e->failed;
    *request = op->request;
    /* One that is still offered goes when its last piece is taken and done. */
    if (op->done + op->failed == op->total && op->taken == op->total) {
        op_free(p, e->op);
    }
    return 0;
}

int post_credit(struct hlg_prefill *p, uint32_t peer, const struct hlg_credit *credit)
{
    uint32_t lanes = hlg_layout_lanes(&p->sessions.peers[peer].plan.target);
    uint64_t rails_max = p->config.limits.rails_max;
    uint64_t least = 0; /* each rail at most once */
    bool gives = false;

    for (uint32_t i = 0; i < credit->count; i++) {
        const struct hlg_credit_entry *entry = &credit->entries[i];
        if (entry->lane >= lanes || entry->rail >= rails_max ||
            entry->lane * rails_max + entry->rail < least) {
            sessions_note(&p->sessions, HLG_NOTE_CREDIT_BACKWARD, peer, entry->lane, entry->rail,
                          entry->pieces);
            return -HLG_EPROTO;
        }
        least = entry->lane * rails_max + entry->rail + 1;
        struct window *w = window_of(p, peer, entry->lane, entry->rail);
        if (entry->pieces < w->credited || entry->pieces > w->posted) {
            sessions_note(&p->sessions, HLG_NOTE_CREDIT_BACKWARD, peer, entry->lane, entry->rail,
                          entry->pieces);
            return -HLG_EPROTO;
        }
        gives = gives || entry->pieces > w->credited;
        w->credited = entry->pieces;
    }
    if (!gives) {
        sessions_note(&p->sessions, HLG_NOTE_CREDIT_BACKWARD, peer, HLG_NONE, HLG_NONE, 0);
        return -HLG_EPROTO; /* given before */
    }
    post_wake(p);
    return 0;
}

void post_forget(struct hlg_prefill *p, uint32_t peer)
{
    for (uint32_t lane = 0; lane < p->lane_count; lane++) {
        HLG_ASSERT(queue_of(p, lane, peer)->head == HLG_NONE);
        for (uint32_t rail = 0; rail < p->config.rails; rail++) {
            HLG_ASSERT(link_of(p, lane, peer, rail)->op == HLG_NONE);
            link_of(p, lane, peer, rail)->parked = false;
        }
    }
    memset(window_of(p, peer, 0, 0), 0,
           HLG_RANKS_MAX * p->config.limits.rails_max * sizeof *p->windows);
}

static uint32_t check_queues(const struct hlg_prefill *p)
{
    uint32_t listed = 0;

    for (uint32_t i = 0; i < p->lane_count * p->config.limits.peers_max; i++) {
        const uint32_t peer = i % p->config.limits.peers_max;
        const struct lane *lane = &p->lanes[i / p->config.limits.peers_max];
        uint32_t before = HLG_NONE;
        HLG_ASSERT(p->queues[i].head == HLG_NONE || bits_has(lane->busy, peer));
        for (uint32_t c = p->queues[i].head; c != HLG_NONE; c = p->cursors[c].next) {
            const struct prefill_request *r = &p->requests[p->chunks[c / p->ranks].request];
            HLG_ASSERT(p->cursors[c].listed && p->cursors[c].before == before);
            HLG_ASSERT(r->peer == peer);
            HLG_ASSERT(r->state >= PREFILL_ADMITTED && r->state <= PREFILL_CONTEXT);
            before = c;
            listed++;
        }
        HLG_ASSERT(p->queues[i].tail == before);
    }
    return listed;
}

void post_check(const struct hlg_prefill *p)
{
    uint32_t cursors = 0;
    uint32_t chunks = 0;
    uint32_t ops = 0;
    uint64_t begun = 0;

    for (uint32_t i = 0; i < p->config.limits.chunks_max; i++) {
        chunks += p->chunks[i].request != HLG_NONE;
        cursors += p->chunks[i].request != HLG_NONE ? p->chunks[i].cursors : 0;
        HLG_ASSERT(p->chunks[i].request == HLG_NONE || p->chunks[i].cursors > 0);
    }
    HLG_ASSERT(cursors == check_queues(p));
    HLG_ASSERT(chunks + p->chunk_free_count == p->config.limits.chunks_max);
    for (uint32_t i = 0; i < p->config.limits.ops_max; i++) {
        const struct op *op = &p->ops[i];
        if (op->request == HLG_NONE) {
            continue;
        }
        ops++;
        begun += op->taken > 0;
        HLG_ASSERT(op->done + op->failed <= op->taken && op->taken <= op->total);
        HLG_ASSERT(op->done + op->failed < op->total); /* or it would be free */
        bool current = link_of(p, op->lane, op->peer, op->rail)->op == i;
        HLG_ASSERT(current == (op->taken < op->total));
        HLG_ASSERT(!current || bits_has(p->lanes[op->lane].busy, op->peer));
    }
    HLG_ASSERT(ops + p->op_free_count == p->config.limits.ops_max);
    HLG_ASSERT(begun == p->busy.depth);
}
