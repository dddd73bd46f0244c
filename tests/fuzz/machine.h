/*
 * One machine under a fuzzer: made of the input's first bytes, told events, its invariants recounted
 * after each. What a driver owes a machine is kept to here: notices are pulled after each event, a WRITE is
 * answered by its TAKEN, PEER_CLOSED comes after PEER_CLOSE and after all writes were reported. What peers,
 * engines and networks do is up to the input.
 */
#ifndef HALAGE_TESTS_FUZZ_MACHINE_H
#define HALAGE_TESTS_FUZZ_MACHINE_H

#include "fuzz.h"

#include <core/note.h>
#include <core/post.h>
#include <halage/decode.h>
#include <halage/prefill.h>

#define MACHINE_PEERS_MAX 3u
#define MACHINE_OPS_MAX   16u
#define MACHINE_LAYOUTS   6u
#define MACHINE_INPUT_MAX 4096u

struct machine {
    enum hlg_role role;
    struct hlg_prefill *prefill;
    struct hlg_decode *decode;
    void *memory;
    struct hlg_limits limits;
    struct hlg_layout layout;
    uint32_t rails;
    hlg_time now;
    uint64_t node;
    uint64_t incarnation;
    bool acknowledged;               /* prefill: completed writes need not be placed */
    bool closing[MACHINE_PEERS_MAX]; /* PEER_CLOSE was pulled */
    /* The driver's books: by operation, pieces with the transport. */
    uint32_t outstanding[MACHINE_OPS_MAX];
    uint32_t op_peer[MACHINE_OPS_MAX];
    uint32_t op_request[MACHINE_OPS_MAX];
    /* Called for each notice, and for each WRITE of which something is taken. */
    void (*on_notice)(void *context, struct machine *m, const struct hlg_notice *notice);
    void (*on_write)(void *context, struct machine *m, const struct hlg_action_write *write,
                     uint32_t taken);
    void *context;
};

/* Small layouts that can be joined with one another where their numbers have the same parity. */
void machine_layout(uint32_t index, struct hlg_layout *layout);
void machine_limits(struct feed *f, struct hlg_limits *limits);

void machine_open(struct machine *m, enum hlg_role role, bool flush);
void machine_close(struct machine *m);

/* Feeds an event at the machine's time, checks, pulls notices and notes. Returns what handle said. */
int machine_feed(struct machine *m, const struct hlg_event *event);
int machine_feed_peer(struct machine *m, uint32_t kind, uint32_t peer, int32_t status);
/* A message as it comes off the wire: false when no frame says that. */
bool machine_feed_message(struct machine *m, uint32_t peer, const struct hlg_message *message);
/* A frame; false when it is none. */
bool machine_feed_bytes(struct machine *m, uint32_t peer, const uint8_t *frame, uint64_t bytes);
/* The rest of the input, or a part of it, as a frame. */
void machine_feed_frame(struct machine *m, uint32_t peer, struct feed *f);
int machine_next(struct machine *m, uint32_t lane, unsigned kinds, struct hlg_action *action);

/* A HELLO that fits, but for what the input changes. */
void machine_hello(struct feed *f, enum hlg_role role, struct hlg_message *message);
/* HEARTBEAT, DRAIN, BYE and the answers, with hostile contents. */
void machine_small_message(struct feed *f, struct hlg_message *message);

/* Prefill: pulls a WRITE of a lane and answers with a TAKEN. False when there was none. */
bool machine_write(struct machine *m, uint32_t lane, struct feed *f);
/* Pieces of an operation complete. Returns what handle said. */
int machine_done(struct machine *m, uint32_t op, uint32_t done, uint32_t failed);
/* Carries a PEER_CLOSE out. */
void machine_closed(struct machine *m, uint32_t peer, int32_t status);

hlg_time machine_span(struct feed *f);

/* Events that both machines know, by kind of `what`; false when it is none of them. */
bool machine_common(struct machine *m, struct feed *f, uint32_t what);
#define MACHINE_COMMON 9u

#endif
