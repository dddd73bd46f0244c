/*
 * A prefill node, a decode node and a hostile peer on one loop. The two nodes are pumps with small engines,
 * and honest; the peer is a channel and an endpoint in the hands of the test, which says on it what no pump
 * would. Each landing is looked at: bytes that are to reach a node must come from source pages that were
 * admitted for a request of that node, and land in pages that it asked for.
 */
#ifndef HALAGE_SUPPORT_HOSTILE_H
#define HALAGE_SUPPORT_HOSTILE_H

#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/loop.h>
#include <halage/wire.h>

#define HOSTILE_LAYERS      3u
#define HOSTILE_PAGE_TOKENS 4u
#define HOSTILE_PAGES       64u
#define HOSTILE_CONTEXTS    16u
#define HOSTILE_PLACES      (2 * HOSTILE_LAYERS + 1)
#define HOSTILE_NOTES       64u /* codes */
#define HOSTILE_NOTICES     20u /* kinds */
#define HOSTILE_TICKETS     16u /* of the decode node */

enum {
    DECODE = 0,
    PREFILL = 1,
    PEER = 2,
    NODES = 3
};

struct hostile_node {
    struct hostile_world *world;
    struct hlg_pump *pump;
    uint32_t index;
    enum hlg_role role;
    uint8_t *memory;
    uint64_t bytes;
    uint64_t notes[HOSTILE_NOTES];
    uint64_t notices[HOSTILE_NOTICES];
    uint32_t forward;
    /* decode */
    uint32_t pages[HOSTILE_TICKETS][HOSTILE_PAGES];
    uint32_t contexts[HOSTILE_TICKETS];
    hlg_handle tickets[HOSTILE_TICKETS]; /* 0: free */
    bool asked[HOSTILE_PAGES];           /* pages of open requests */
    bool context_asked[HOSTILE_CONTEXTS];
    uint64_t ready;
    uint64_t failed;
    /* prefill: which node a source page was admitted for, or HLG_NONE */
    uint32_t page_of[HOSTILE_PAGES];
    uint32_t context_of[HOSTILE_CONTEXTS];            /* by index in `admitted` */
    hlg_handle admitted[HOSTILE_TICKETS];             /* 0: free */
    uint32_t sources[HOSTILE_TICKETS][HOSTILE_PAGES]; /* their pages, then HLG_NONE */
    bool deaf;                                        /* the engine answers no request */
    bool deaf_to_peer;                                /* none of the peer */
};

struct hostile_world {
    struct hlg_loop *loop;
    struct hostile_node nodes[2];
    /* the peer */
    uint8_t *memory;
    uint64_t bytes;
    struct hlg_transport *endpoint;
    hlg_mem mem;
    struct hlg_channel *channel; /* NULL: none */
    uint64_t byes;               /* that came */
    uint64_t answers[HLG_MESSAGE_BYE + 1];
    struct hlg_rail_address address; /* of the endpoint */
    struct hlg_region_key key;
    struct hlg_place places[HOSTILE_PLACES];
    uint64_t landings[NODES]; /* by target */
    /* what the last HELLO to the peer said */
    struct hlg_rail_address their_address;
    struct hlg_region_key their_key;
    uint32_t decoder; /* the prefill pump's number of the decode node */
};

void hostile_layout(struct hlg_layout *layout);

/* The two nodes, connected to each other. */
struct hostile_world *hostile_open(uint64_t seed);
void hostile_close(struct hostile_world *w);

/* Let the peer dial a node, as `node` accepts; an older channel is closed. */
void hostile_dial(struct hostile_world *w, uint32_t node);
void hostile_hang_up(struct hostile_world *w);

/* A HELLO that is good for `node`, of the peer's own memory. Pointers lead into the world. */
void hostile_hello(struct hostile_world *w, uint32_t node, struct hlg_message *message);
/* A REQUEST that is good, of 13 tokens, into pages [page, page + 3) and context page 0. */
void hostile_request(uint64_t number, uint32_t page, struct hlg_message *message);

/* Say something; what does not fit into the channel is lost. Returns whether the channel is open. */
bool hostile_say(struct hostile_world *w, const struct hlg_message *message);
bool hostile_say_bytes(struct hostile_world *w, const uint8_t *frame, uint32_t bytes);

/* Move all on until nothing happens for 2 ms of virtual time, or for `turns` turns. */
void hostile_settle(struct hostile_world *w, uint32_t turns);
/* Dial a node and greet it well; fails the test unless the session is up. */
void hostile_join(struct hostile_world *w, uint32_t node);
/* Whether the channel is still open to the peer, all read. */
bool hostile_connected(struct hostile_world *w);

/* Write 16 bytes to the first page of the node that greeted last, with an immediate of the peer's choice. */
void hostile_write(struct hostile_world *w, uint32_t imm);

/* Submit a request of the decode node. Returns its ticket. */
uint32_t hostile_submit(struct hostile_world *w, uint32_t tokens);
/* Until all requests of the decode node have ended; fails the test when they do not, or when one failed. */
void hostile_finish(struct hostile_world *w);

#endif
