/*
 * Many requests and many peers in one process: one prefill node and some decode nodes, real machines and
 * pumps over loop, in virtual time. The engines are as small as they can be: two pages a request, the last
 * freed page first, forward passes of SCALE_BATCH requests, one layer a turn.
 */
#ifndef HALAGE_TESTS_SCALE_H
#define HALAGE_TESTS_SCALE_H

#include <halage/pump.h>
#include <halage/transport/loop.h>

#define SCALE_BATCH     16u
#define SCALE_NODES_MAX 16u /* decode nodes */
#define SCALE_PAGES     2u  /* of a request */
#define SCALE_LAYERS    2u
#define SCALE_TURN_NS   10000u

struct scale_config {
    uint64_t seed;
    uint32_t decoders;         /* decode nodes, <= SCALE_NODES_MAX */
    uint32_t in_flight;        /* requests that each keeps open */
    uint32_t peers_max;        /* of the prefill node */
    uint32_t session_requests; /* a session ends after so many, in one of four ways; 0: never */
    hlg_time land_ns;          /* from write to landing, up to twice that */
};

/* Pages of one node that are free, the last freed first. */
struct scale_pages {
    uint32_t *pages;
    uint32_t count;
    uint32_t capacity;
};

/* A request as its engine knows it. */
struct scale_request {
    bool open;
    uint32_t pages[SCALE_PAGES];
};

struct scale_world;

struct scale_node {
    struct scale_world *world;
    struct hlg_pump *pump;
    enum hlg_role role;
    uint32_t index; /* of the loop */
    uint8_t *memory;
    uint64_t bytes;
    struct scale_pages pages;
    struct scale_request *requests; /* [requests_max] by the handle's low half */
    uint32_t requests_max;
    uint32_t open;
    uint32_t incarnation;
    /* decode */
    bool submitting; /* `made` is the request whose SUBMIT is being handled */
    struct scale_request made;
    uint32_t (*lists)[SCALE_PAGES]; /* [requests_max] kept until the REQUEST is sent */
    uint32_t list;
    struct hlg_channel *channel;
    uint32_t peer;
    bool joined;
    bool up;
    uint32_t in_session; /* requests that ended in the present session */
    uint32_t endings;
    /* prefill */
    hlg_handle *waiting; /* ring [requests_max] admitted, in no forward yet */
    uint32_t wait_begin;
    uint32_t wait_count;
    uint32_t forward;
    uint32_t layer; /* done of the present forward */
    bool running;
};

struct scale_world {
    struct scale_config config;
    struct hlg_loop *loop;
    struct scale_node nodes[1 + SCALE_NODES_MAX]; /* the prefill node first */
    hlg_time now;
    bool stop; /* submit no more */
    uint64_t ready;
    uint64_t failed;
    uint64_t sent;
    uint64_t stopped;
    uint64_t sessions; /* that came up, of the decoders */
    uint64_t restarts;
};

/* Returns the world, or NULL. */
struct scale_world *scale_open(const struct scale_config *config);
/* Turns until `requests` ended; false when nothing moves any more. */
bool scale_run(struct scale_world *w, uint64_t requests);
/* Ends all sessions in order and waits for it; then nothing may be open, nor a page missing. Returns NULL,
 * or what is wrong. */
const char *scale_drain(struct scale_world *w);
void scale_close(struct scale_world *w);

/* A prefill machine alone, with `count` idle peers that are up; they send a heartbeat a second each. */
struct scale_peers;
struct scale_peers *scale_peers_open(uint32_t count);
void scale_peers_run(struct scale_peers *p, uint32_t seconds);
/* Heartbeats of the last run: from the peers, and *sent to them. */
uint64_t scale_peers_beats(const struct scale_peers *p, uint64_t *sent);
void scale_peers_close(struct scale_peers *p);

#endif
