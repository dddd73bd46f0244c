/*
 * The prefill machine's state, and its posting half: which page run goes next on which lane. Ready
 * work is a queue for each (lane, peer), served round robin by bytes; a peer that a rail refused is
 * parked on that rail and all others go on.
 */
#ifndef HALAGE_CORE_POST_H
#define HALAGE_CORE_POST_H

#include "bits.h"
#include "chunk.h"
#include "credit.h"
#include "fact.h"
#include "layer.h"
#include "session.h"
#include "timer.h"
#include <halage/prefill.h>

/* A paged write, from its first offer to its last DONE_WRITE. */
struct op {
    uint32_t request; /* HLG_NONE: unused */
    uint32_t next;    /* free list */
    uint32_t peer;
    uint32_t lane;
    uint32_t rail;
    uint32_t target_lane;
    uint32_t target_rail;
    uint32_t layer;
    uint32_t imm;
    uint32_t forward; /* number; 0: cached pages */
    hlg_time fact;    /* when its layer was known to be computed; 0: cached pages */
    hlg_time made;
    bool last_of_layer; /* of its chunk and rank */
    bool counts;        /* towards layers_early / layers_late */
    const struct hlg_slice *slice;
    const uint32_t *source_pages;
    const uint32_t *target_pages;
    uint32_t page_count;
    uint32_t total; /* pieces; less once its request stops */
    uint32_t taken;
    uint32_t done;
    uint32_t failed;
};

/* What one lane has for one peer. */
struct queue {
    uint32_t head; /* cursors */
    uint32_t tail;
};

/* One rail of one lane towards one peer. */
struct link {
    uint32_t op; /* partly taken, or HLG_NONE */
    bool parked;
};

struct lane {
    bool idle;       /* nothing was ready when last looked at, and nothing happened since */
    uint32_t turn;   /* peer being served */
    uint32_t rail;   /* rail that is looked at first */
    uint64_t served; /* bytes of this turn */
    uint64_t *busy;  /* bit of each peer: it may have cursors queued or an operation partly taken */
};

enum prefill_state {
    PREFILL_FREE = 0,
    PREFILL_ASKED,    /* the engine has not said yes or no */
    PREFILL_ADMITTED, /* source pages are known, no chunk is */
    PREFILL_RUNNING,
    PREFILL_CONTEXT,  /* the last chunk is announced */
    PREFILL_DRAINING, /* all is posted */
    PREFILL_STOPPING, /* posts nothing more, waits for what is posted; if some of it failed, for
                         PEER_CLOSED */
};

struct prefill_request {
    uint32_t state;
    uint32_t uses;
    uint32_t reason;
    uint32_t peer;
    uint64_t serial; /* of the session that asked */
    uint64_t node;   /* of the peer, to find the request from a later session */
    uint64_t incarnation;
    uint32_t answer_peer; /* FENCED goes there: the peer, or its later session that cancelled */
    uint64_t answer_serial;
    uint64_t number;
    uint32_t next_number; /* chain of the number's bucket, or free list */
    uint32_t slot;
    uint32_t generation;
    uint32_t offset;
    uint32_t tokens;
    uint32_t target_pool;
    uint32_t source_pool;
    uint32_t announced; /* tokens in chunks so far, cached ones included */
    struct page_span asked[HLG_GROUPS_MAX];
    uint32_t blocks[HLG_GROUPS_MAX];
    uint32_t chunks; /* list */
    uint32_t chunk_count;
    uint32_t op_count;
    uint64_t expected;
    uint64_t posted;
    uint64_t done;
    uint64_t failed;      /* pieces that ended in error: they may land all the same, and late */
    uint64_t bytes;       /* posted */
    hlg_time first_piece; /* when the first was taken */
    uint32_t block_count;
    struct hlg_load load; /* of the peer's grant */
    uint32_t id_bytes;
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX];
};

/* Pieces sent to one rail of one peer, against its window. */
struct window {
    uint64_t posted;
    uint64_t credited;
};

struct hlg_prefill {
    struct hlg_prefill_config config;
    struct sessions sessions;
    struct timers timers; /* by request: its deadline; STOPPING: the wait for its writes */
    struct layers layers;
    struct facts facts;
    struct blocks blocks;
    struct shares request_shares; /* of each table, by peer */
    struct shares block_shares;
    struct shares chunk_shares;
    struct shares op_shares;
    struct ledger *ledgers; /* [peers_max] */
    struct prefill_request *requests;
    uint32_t *parts; /* [requests_max][forwards_max] forward numbers that a request takes part in */
    uint32_t free_head;
    uint32_t open_count;
    uint32_t bucket_mask;
    uint32_t *buckets; /* requests by number */
    struct chunk *chunks;
    uint32_t chunk_free;
    uint32_t chunk_free_count;
    struct op *ops;
    uint32_t op_free;
    uint32_t op_free_count;
    bool op_wanted;   /* one was missing: lanes are looked at again when one is free */
    uint32_t offered; /* op of the WRITE just pulled, or HLG_NONE */
    uint32_t offered_pieces;
    uint32_t ranks; /* hosted, of one pool */
    uint32_t lane_count;
    struct cursor *cursors; /* [chunks_max][ranks] */
    struct lane *lanes;
    struct queue *queues;                      /* [lanes][peers_max] */
    struct link *links;                        /* [lanes][peers_max][rails] */
    struct window *windows;                    /* [peers_max][HLG_RANKS_MAX][rails_max] */
    const struct hlg_request_message *message; /* of a REQUESTED notice not yet pulled */
    struct hlg_busy busy;                      /* writes begun and not over */
    struct hlg_prefill_stats stats;
};

/* Counter word that speaks for a hosted rank of a pool. */
uint32_t post_word(const struct hlg_prefill *p, uint32_t pool, uint32_t rank);

void post_init(struct hlg_prefill *p);
/* Something may have become ready. */
void post_wake(struct hlg_prefill *p);
/* Queue a chunk's cursors; the chunk's spans, blocks and forward are set. The chunk may be at its end
 * at once, and is freed then. */
void post_chunk(struct hlg_prefill *p, uint32_t chunk);
/* Take a stopping request's chunks and unposted pieces out of all queues. */
void post_remove(struct hlg_prefill *p, uint32_t request);
/* Pull a WRITE of a lane. */
int post_next(struct hlg_prefill *p, uint32_t lane, struct hlg_action *action);
int post_taken(struct hlg_prefill *p, const struct hlg_event_taken *event);
int post_room(struct hlg_prefill *p, uint32_t lane, uint32_t rail);
/* Account for completions. Returns 0 with *request, or -HLG_EINVAL. */
int post_done(struct hlg_prefill *p, const struct hlg_event_done *event, uint32_t *request);
/* CREDIT of a peer; -HLG_EPROTO when it makes no sense. */
int post_credit(struct hlg_prefill *p, uint32_t peer, const struct hlg_credit *credit);
/* A peer's number is free again. */
void post_forget(struct hlg_prefill *p, uint32_t peer);
void post_check(const struct hlg_prefill *p);

#endif
