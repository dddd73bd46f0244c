/*
 * Machines, channels, a fabric and engines of fuzz_pair.c, and what they keep to account for.
 */
#ifndef HALAGE_TESTS_FUZZ_PAIR_WORLD_H
#define HALAGE_TESTS_FUZZ_PAIR_WORLD_H

#include "machine.h"

#define DECODERS        2u
#define PREFILLERS      2u
#define SIDES           (DECODERS + PREFILLERS)
#define REQUESTS_MAX    4u
#define TOKENS_MAX      24u
#define LIST_PAGES_MAX  6u
#define POOL_PAGES_MAX  16u
#define POOLS_MAX       2u
#define RECORDS_MAX     64u
#define CONNECTIONS_MAX 24u
#define FRAMES_MAX      16u
#define PIECES_MAX      2048u
#define GENERATIONS_MAX 128u
#define SLOTS_MAX       8u
#define NO_RECORD       HLG_NONE

enum record_state {
    RECORD_OPEN = 1,
    RECORD_READY,
    RECORD_FAILED,
    RECORD_POISONED,
    RECORD_GONE,
};

/* A request of a decoder's engine. */
struct record {
    enum record_state state;
    uint32_t side;
    uint32_t life;
    hlg_handle handle;
    uint32_t tokens;
    uint32_t pool;
    uint32_t counts[2];
    uint32_t first[2];
    uint32_t pages[2][LIST_PAGES_MAX];
    /* How often each byte landed: [group][position][layer][plane][rank][byte]. */
    uint8_t marks[2][LIST_PAGES_MAX][3][2][4][16];
};

/* A request at a prefiller. */
struct asked {
    hlg_handle handle; /* 0: none */
    uint32_t record;   /* or NO_RECORD, of a decoder that died meanwhile */
    uint32_t tokens;
    uint32_t announced;
    bool admitted;
    bool stopping;
    uint32_t pool;
    uint32_t counts[2];
    uint32_t first[2];
    uint32_t pages[2][LIST_PAGES_MAX];
};

struct frame {
    uint8_t *bytes;
    uint32_t count;
};

/* End 0 is the decoder's, end 1 the prefiller's. */
struct connection {
    bool used;
    uint32_t side[2];
    uint32_t life[2];
    uint32_t peer[2];
    uint32_t domain[2];
    bool open[2];                       /* its side has not closed it */
    bool eof[2];                        /* its side was told that the other is gone */
    bool closed;                        /* the decoder's endpoints are: nothing lands any more */
    bool stuck[2];                      /* a SEND was refused there */
    struct frame frames[2][FRAMES_MAX]; /* towards end i */
    uint32_t frame_count[2];
};

/* One piece of a write that a transport took. */
struct piece {
    bool used;
    bool placed;
    bool counted;
    bool done;
    uint32_t from;
    uint32_t life;
    uint32_t connection;
    uint32_t op;
    uint32_t record;
    uint32_t imm;
    uint32_t lane; /* of the target */
    uint32_t rail;
    uint32_t layer;
    uint32_t page;
    uint32_t position; /* in the record's list */
    uint32_t run;
    struct hlg_slice slice;
};

struct world {
    struct machine machines[SIDES];
    uint32_t lives[SIDES];
    bool flush;
    bool acknowledged; /* writes may complete well before they are placed */
    bool split;        /* each prefiller hosts one of two ranks */
    uint32_t connection_of[SIDES][MACHINE_PEERS_MAX]; /* plus 1; 0: free */
    struct connection connections[CONNECTIONS_MAX];
    uint32_t by_slot[DECODERS][SLOTS_MAX][GENERATIONS_MAX]; /* record plus 1 */
    bool lent[SIDES][POOLS_MAX][2][POOL_PAGES_MAX];         /* pages that their engine gave out */
    struct asked asked[SIDES][REQUESTS_MAX];
    uint32_t forward[SIDES];
    uint32_t record_count;
    uint32_t piece_limit; /* one past the last that was ever used */
    struct record records[RECORDS_MAX];
    struct piece pieces[PIECES_MAX];
};

void world_open(struct world *w, struct feed *f);
void world_fini(struct world *w);
void world_drop_frames(struct connection *c);

void world_connect(struct world *w, uint32_t decode, uint32_t prefill, uint32_t domain);
void world_submit(struct world *w, uint32_t side, uint32_t tokens, uint32_t pool, uint32_t first,
                  uint32_t random);
void world_decode_call(struct world *w, uint32_t record, uint32_t kind);
void world_admit(struct world *w, uint32_t side, struct asked *asked, uint32_t cached);
void world_chunk(struct world *w, uint32_t side, struct asked *asked, uint32_t count);
void world_layer(struct world *w, uint32_t side, uint32_t word);
void world_forward_over(struct world *w, uint32_t side, uint32_t kind);
void world_give_up(struct world *w, uint32_t side, struct asked *asked, uint32_t how);

/* Carries out up to `count` plus 1 actions of a node; its PEER_CLOSEs wait for world_close(). */
bool world_carry(struct world *w, uint32_t side, uint32_t count);
void world_close(struct world *w, uint32_t side, int32_t status);
bool world_writes(struct world *w, uint32_t side, uint32_t lane, struct feed *f);
bool world_deliver(struct world *w, uint32_t from, uint32_t count);
/* What becomes of a piece: whether that could be. */
bool world_place(struct world *w, struct piece *piece);
bool world_count(struct world *w, struct piece *piece);
bool world_complete(struct world *w, struct piece *piece, bool well);
void world_advance(struct world *w, hlg_time span);
void world_break(struct world *w, uint32_t connection);
void world_restart(struct world *w, uint32_t side);
/* Everything moves on without a fault, `rounds` times. */
void world_rush(struct world *w, uint32_t rounds);
void world_settle(struct world *w);

#endif
