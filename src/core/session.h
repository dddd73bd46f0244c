/*
 * Sessions: what both machines have alike. Peers and their HELLO, leases and heartbeats, the plan with
 * each peer, the messages that wait to be sent, notices and notes that wait to be pulled.
 *
 * A session is one channel. It ends once, for whatever reason, and then always the same way: the
 * machine ends its requests, PEER_CLOSE asks the driver to close the channel and the fence domain,
 * and PEER_CLOSED frees the peer's number.
 */
#ifndef HALAGE_CORE_SESSION_H
#define HALAGE_CORE_SESSION_H

#include "bits.h"
#include "carve.h"
#include "note.h"
#include "share.h"
#include "timer.h"
#include <halage/action.h>
#include <halage/event.h>

enum session_state {
    SESSION_FREE = 0,
    SESSION_GREETING, /* waiting for the peer's HELLO */
    SESSION_OPENING,  /* HELLO was good; PEER_OPEN is asked for or under way */
    SESSION_UP,
    SESSION_CLOSING, /* BYE may wait to be sent; then PEER_CLOSE is asked for, or under way */
};

enum session_end {
    SESSION_END_CHANNEL = 1, /* the channel or a transport said so */
    SESSION_END_SILENCE,     /* nothing heard for lease_ns */
    SESSION_END_BYE,
    SESSION_END_PROTOCOL,
    SESSION_END_REPLACED,
    SESSION_END_SHARED,
    SESSION_END_FENCE, /* FENCED did not come in time */
    SESSION_END_ASKED, /* by the engine */
    SESSION_END_OUTBOX,
    SESSION_END_WRITES, /* writes of ours ended in error: what became of them is not known */
};

/* A message that waits; what its kind does not use is 0. */
struct outgoing {
    uint32_t kind; /* enum hlg_message_kind */
    uint32_t next;
    bool shared;          /* out of the peer's share, not the sessions' own */
    uint32_t slot;        /* REQUEST: of the source that it is for */
    struct hlg_load load; /* REQUEST: what it costs */
    struct hlg_answer answer;
    struct hlg_refusal why; /* BYE */
};

struct session {
    uint32_t state;
    uint32_t domain;
    bool dialled;
    bool send_full;   /* the channel refused; until SEND_ROOM */
    bool open_asked;  /* PEER_OPEN was pulled */
    bool close_asked; /* PEER_CLOSE was pulled */
    bool draining;    /* the peer takes no new requests */
    bool was_up; /* requests may have gone: only closing the fence domain proves that all is over */
    bool ended;  /* and the machine has not taken note */
    uint64_t node;
    uint64_t incarnation;
    uint64_t serial;            /* of this session among all of this machine's */
    uint64_t peer_serial;       /* of the same session among the peer's, as its HELLO says */
    uint64_t last_number;       /* prefill: highest REQUEST number seen */
    uint32_t rails;             /* of each of the peer's lanes */
    uint32_t window_pieces;     /* that the peer grants per rail */
    uint32_t message_bytes_max; /* that it takes */
    uint32_t prompt_bytes_max;
    struct hlg_load grant; /* prefill: ours to it; decode: its to us */
    hlg_time heard;
    hlg_time sent;
    struct hlg_plan plan;
    struct hlg_slice *slices; /* [slices_max], lent to plan */
    uint32_t out_head;        /* outgoing */
    uint32_t out_tail;
    uint32_t out_count;
};

struct sessions {
    const struct hlg_limits *limits;
    const struct hlg_layout *layout;
    const uint8_t *fingerprint;
    enum hlg_role role;
    uint64_t node;
    uint64_t incarnation;
    uint64_t serial;
    bool draining;         /* prefill: this node takes no new requests */
    struct hlg_load grant; /* prefill: to each peer */
    hlg_time now;
    struct timers due; /* by peer: not later than its lease or next heartbeat */
    uint32_t up_count;
    uint32_t ended_count;
    uint32_t changing_count; /* peers to be opened or closed, and not asked for yet */
    struct session *peers;   /* [peers_max] */
    struct outgoing *out;    /* [out_max] pool */
    uint32_t out_max;
    uint32_t out_free;
    uint32_t out_free_count;
    struct shares out_shares; /* of those entries that are not the sessions' own */
    uint32_t sending;  /* peer whose first outgoing was pulled by the last `next`, or HLG_NONE */
    uint32_t turn;     /* peer that SEND looks at first */
    uint64_t *waiting; /* bit of each peer: it has outgoing messages */
    struct hlg_notice *notices; /* ring [notices_max] */
    uint32_t notices_max;
    uint32_t notice_begin;
    uint32_t notice_count;
    struct hlg_note *notes; /* ring [notes_max] */
    uint32_t notes_max;
    uint32_t note_begin;
    uint32_t note_count;
    uint64_t notes_lost; /* other than steps */
    uint64_t steps_lost;
};

struct session_config {
    const struct hlg_limits *limits; /* these pointers must outlive the machine */
    const struct hlg_layout *layout;
    const uint8_t *fingerprint;
    enum hlg_role role;
    uint64_t node;
    uint64_t incarnation;
};

/* Whether limits, layout and rails of a node go together, as far as both machines need it alike. */
bool sessions_fit(const struct hlg_limits *limits, const struct hlg_layout *layout, uint32_t rails);
void sessions_init(struct sessions *s, struct carve *c, const struct session_config *config);

/* The events that are the sessions' alone. */
int sessions_channel_up(struct sessions *s, const struct hlg_event_peer *event);
int sessions_opened(struct sessions *s, const struct hlg_event_peer *event);
/* HELLO, HEARTBEAT, DRAIN and BYE. Returns 1 if the message was one of these or came too early or too
 * late, 0 if it is the machine's and the session is up. Anything out of place ends the session. */
int sessions_message(struct sessions *s, const struct hlg_event_peer *event);
/*
 * End a session; no-op when it is over. Peers of the same fence domain end with one that was up. The
 * machine finds each ended peer by sessions_take_ended, at the end of every event, and ends its requests.
 */
void sessions_end(struct sessions *s, uint32_t peer, enum session_end why, int32_t status);
uint32_t sessions_take_ended(struct sessions *s);
/* PEER_CLOSED: the number is free again. The machine lets go of the peer before the event is over. */
int sessions_closed(struct sessions *s, uint32_t peer);
/* Leases and heartbeats that are due. */
void sessions_time(struct sessions *s);

/* Prefill: take no new requests; peers that are UP are told, later ones by HELLO. */
void sessions_drain(struct sessions *s);

/* Queue a message; dropped when the session is over. A peer that lets too many wait loses its
 * session. */
void sessions_send(struct sessions *s, uint32_t peer, const struct outgoing *message);

/*
 * Pull a SEND, PEER_OPEN, PEER_CLOSE, NOTICE or NOTE action of `kinds`. For SEND, *outgoing is the
 * entry, whose message the machine completes when the kind is its own. Returns 1 or 0.
 */
int sessions_next(struct sessions *s, unsigned kinds, struct hlg_action *action,
                  const struct outgoing **outgoing);
/* Called first for every event: what the last `next` pulled is sent now, unless refused. */
void sessions_begin(struct sessions *s, const struct hlg_event *event);
/* Drop the REQUEST of a slot, with *load, which is no longer wanted. Returns whether one was queued. A look
 * through the peer's queue. */
bool sessions_take_back(struct sessions *s, uint32_t peer, uint32_t slot, struct hlg_load *load);

struct hlg_notice *sessions_notice(struct sessions *s, uint32_t kind, uint32_t peer);
void sessions_note(struct sessions *s, uint32_t code, uint32_t peer, uint64_t a, uint64_t b,
                   uint64_t c);
bool sessions_up(const struct sessions *s, uint32_t peer);
/* Fills in what of a census is the sessions'. */
struct hlg_census;
void sessions_census(const struct sessions *s, struct hlg_census *census);
void sessions_check(const struct sessions *s);

#endif
