/*
 * What the core asks for. Actions are pulled one at a time by lane and kind; each must be carried
 * out, or answered as its line says, before the next event is handed over.
 */
#ifndef HALAGE_ACTION_H
#define HALAGE_ACTION_H

#include "message.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits, so that `next` can be asked for some kinds only. */
enum hlg_action_kind {
    HLG_ACTION_WRITE = 1u << 0,      /* of a lane: offer to a transport, then event TAKEN */
    HLG_ACTION_SEND = 1u << 1,       /* send to a peer; event SEND_REFUSED if its channel is full */
    HLG_ACTION_PEER_OPEN = 1u << 2,  /* insert the peer's addresses and keys, then PEER_OPENED */
    HLG_ACTION_PEER_CLOSE = 1u << 3, /* close channel, then with `fence` the fence domain's
                                        endpoints, then event PEER_CLOSED */
    HLG_ACTION_FLUSH = 1u << 4,      /* make landed bytes visible to the device, then FLUSHED or
                                        FLUSH_FAILED: until then the pages stay the request's */
    HLG_ACTION_NOTICE = 1u << 5,     /* tell the engine */
    HLG_ACTION_NOTE = 1u << 6,       /* log */
};
#define HLG_ACTIONS_ALL  0x7fu
#define HLG_ACTIONS_NODE 0x7eu /* those that belong to no lane */

/*
 * A paged write: pieces [piece_begin, piece_limit) of `page_count` pages. Piece i is run
 * i mod slice->count of page i / slice->count. Pointers live until the operation's last DONE_WRITE.
 */
struct hlg_action_write {
    hlg_op_id op;
    uint32_t peer;
    uint32_t lane; /* ours */
    uint32_t rail; /* of that lane */
    uint32_t target_lane;
    uint32_t target_rail;
    uint32_t layer; /* global; layout.layers for a context */
    uint32_t imm;
    const struct hlg_slice *slice;
    const uint32_t *source_pages; /* [page_count] */
    const uint32_t *target_pages; /* [page_count] */
    uint32_t page_count;
    uint32_t piece_begin;
    uint32_t piece_limit; /* <= page_count * slice->count; less when the window is short */
};

struct hlg_action_send {
    uint32_t peer;
    /* HELLO: the driver adds provider, addresses, keys and places. Pointers of a REQUEST are those of
       its SUBMIT; the others live until the next call into the machine. */
    struct hlg_message message;
};

enum hlg_notice_kind {
    HLG_NOTICE_PEER_UP = 1,   /* requests may go to, or come from, `peer` */
    HLG_NOTICE_PEER_REFUSED,  /* it cannot work: refusal says why */
    HLG_NOTICE_PEER_DOWN,     /* the session is over; its requests get their own notices */
    HLG_NOTICE_PEER_DRAINING, /* decode: it takes no new requests */
    /* prefill */
    HLG_NOTICE_REQUESTED, /* a request came: ADMIT or REJECT it */
    HLG_NOTICE_STOPPING,  /* it posts nothing more; the engine may stop computing it (reason) */
    HLG_NOTICE_SENT,      /* all is written and complete: source pages are the engine's again */
    HLG_NOTICE_FENCED, /* after STOPPING: nothing reads any more: source pages are the engine's again */
    /* decode */
    HLG_NOTICE_ACCEPTED, /* the prefiller took it (every source) */
    HLG_NOTICE_READY,    /* terminal: pages and context are whole and visible */
    HLG_NOTICE_FAILED,   /* terminal: reason; the pages are NOT the engine's yet */
    HLG_NOTICE_RETURNED, /* after FAILED: nothing can land in the pages any more */
    /* decode, after FAILED: that cannot be proved; prefill, after STOPPING: writes failed and may still
       be reading. The pages must never be used again */
    HLG_NOTICE_POISONED,
};

struct hlg_notice {
    uint32_t kind;      /* enum hlg_notice_kind */
    uint32_t peer;      /* HLG_NONE when it concerns none */
    hlg_handle request; /* 0 when it concerns none */
    uint32_t reason;    /* enum hlg_reason */
    uint32_t id_bytes;
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX]; /* the engine's own request id */
    uint64_t pieces_expected;             /* decode terminal; prefill: planned */
    uint64_t pieces_counted;              /* decode terminal; prefill: posted */
    uint64_t bytes;                       /* KV and context bytes: decode of those expected */
    hlg_time retry_after_ns;              /* FAILED(rejected) */
    hlg_time submitted;                   /* decode terminal: phase times, 0 where not reached */
    hlg_time accepted;
    hlg_time first_piece;
    hlg_time last_piece;
    hlg_time noticed; /* when this notice was made */
    struct hlg_refusal refusal;
    uint64_t node; /* PEER_UP: identity of the other node */
    /* REQUESTED: the message, valid until the next event is handled (copy what you need) */
    const struct hlg_request_message *message;
};

/* A numbered observation for the log: src/core/note.h lists them with the meaning of a, b, c. */
struct hlg_note {
    uint32_t code;
    uint32_t peer;
    uint64_t a;
    uint64_t b;
    uint64_t c;
};

struct hlg_action_close {
    uint32_t peer;
    uint32_t domain;
    bool fence; /* false: it never was up, and others of the domain go on */
};

struct hlg_action_flush {
    hlg_handle request;
    bool
        fences; /* the pages are given back unread, and only what landed must not follow. Who copies what landed
                    to the device has nothing to do */
};

struct hlg_action {
    uint32_t kind; /* enum hlg_action_kind */
    union {
        struct hlg_action_write write;
        struct hlg_action_send send;
        struct hlg_notice notice;
        struct hlg_note note;
        uint32_t peer;                 /* PEER_OPEN */
        struct hlg_action_close close; /* PEER_CLOSE */
        struct hlg_action_flush flush;
    };
};

#ifdef __cplusplus
}
#endif

#endif
