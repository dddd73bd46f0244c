/*
 * What the core is told. An event carries its time; times never run back. The machine copies what it
 * keeps, so that every pointer in an event may die when handle returns, unless its line says more.
 */
#ifndef HALAGE_EVENT_H
#define HALAGE_EVENT_H

#include "message.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hlg_event_kind {
    /* from the driver, both machines */
    HLG_EVENT_TIME = 1,     /* nothing but the time: deadlines are looked at */
    HLG_EVENT_CHANNEL_UP,   /* a channel to peer `peer` (an unused index) exists */
    HLG_EVENT_MESSAGE,      /* a message came from `peer` */
    HLG_EVENT_PEER_OPENED,  /* action PEER_OPEN was carried out; status says how */
    HLG_EVENT_PEER_DOWN,    /* the channel or a transport says that `peer` is gone */
    HLG_EVENT_PEER_CLOSED,  /* action PEER_CLOSE was carried out: endpoints of the peer's fence
                                domain are closed, every write of ours through them is reported and
                                none of the peer's can land any more; status 0 if that is certain */
    HLG_EVENT_SEND_REFUSED, /* the channel had no room for the SEND action just pulled */
    HLG_EVENT_SEND_ROOM,    /* it may have room again */
    /* from the driver, prefill */
    HLG_EVENT_TAKEN,      /* how much of the WRITE action just pulled the transport took */
    HLG_EVENT_ROOM,       /* a rail may take writes again: every peer parked on it is unparked */
    HLG_EVENT_DONE_WRITE, /* pieces of an operation completed */
    HLG_EVENT_LAYER,      /* a counter word was read */
    /* from the driver, decode */
    HLG_EVENT_IMM,     /* immediates arrived */
    HLG_EVENT_FLUSHED, /* action FLUSH was carried out, and touches the pages no more */
    /* from the engine, both */
    HLG_EVENT_CANCEL,     /* decode: end a request. prefill: the engine gives a request up */
    HLG_EVENT_DISCONNECT, /* end the session with `peer` */
    /* from the engine, prefill */
    HLG_EVENT_ADMIT,         /* the engine takes a request and names its source pages */
    HLG_EVENT_REJECT,        /* the engine will not */
    HLG_EVENT_CHUNK,         /* a forward pass will compute these tokens; before the forward runs */
    HLG_EVENT_FORWARD_END,   /* a forward pass is over: implies all its layers and the context */
    HLG_EVENT_FORWARD_ABORT, /* a forward pass is given up: its requests stop (preempted). Before a
                                newer one stamps a counter: a newer stamp says that it is complete */
    HLG_EVENT_DRAIN,         /* take no new requests */
    /* from the engine, decode */
    HLG_EVENT_SUBMIT,  /* ask for a request */
    HLG_EVENT_RELEASE, /* the engine is done with a READY request's context pages */
    /* from the driver, decode */
    HLG_EVENT_FLUSH_FAILED, /* action FLUSH was tried: the device never sees the bytes. Nothing of it
                               touches the pages any more; where it fences, they are POISONED */
};

struct hlg_event_peer {
    uint32_t peer;
    uint32_t domain; /* CHANNEL_UP: fence domain that this peer's endpoints live in */
    int32_t status;  /* 0, or a negated enum hlg_error */
    bool dialled;    /* CHANNEL_UP: we dialled, so we send HELLO first */
    const struct hlg_message *message; /* MESSAGE */
};

struct hlg_event_taken {
    hlg_op_id op;
    uint32_t pieces; /* of those offered, from piece_begin on; fewer parks the peer on that rail */
};

struct hlg_event_done {
    hlg_op_id op;
    uint32_t done;   /* pieces that completed well since the last event */
    uint32_t failed; /* pieces that ended in error */
    int32_t status;  /* of the first failed one */
};

struct hlg_event_layer {
    uint32_t word;  /* stage (layout.all_reduce) or lane-local index; see hlg_prefill_config */
    uint32_t value; /* forward << 8 | layers done */
};

struct hlg_event_imm {
    uint32_t imm;        /* any of the coalesced ones: all have this slot and generation */
    uint32_t pieces;     /* sum of their pieces */
    uint32_t immediates; /* how many there were */
    uint32_t lane;
    uint32_t rail;
    uint32_t domain;
};

struct hlg_event_admit {
    hlg_handle request;
    uint32_t pool;           /* source pool */
    uint32_t cached_tokens;  /* prompt tokens whose pages hold valid KV already, <= tokens - 1 */
    uint32_t cached_forward; /* forward after which they are valid; 0: already */
    /* source pages [pages of tokens - 1] from position 0 on, context groups 1; copied */
    struct hlg_page_list groups[HLG_GROUPS_MAX];
};

struct hlg_event_reject {
    hlg_handle request;
    hlg_time retry_after_ns;
};

struct hlg_event_chunk {
    hlg_handle request;
    uint32_t forward;     /* 24-bit number of the pass, never 0 */
    uint32_t token_begin; /* where the last chunk (or the cached tokens) ended */
    uint32_t token_count; /* the last chunk ends at tokens - 1 */
};

/*
 * One request. With tokens 1, or with every page already there and no context group, it is READY at
 * once and no prefiller hears of it.
 */
struct hlg_event_submit {
    uint32_t source_count;
    uint32_t peers[HLG_SOURCES_MAX]; /* the nodes that will write, all UP */
    uint32_t pool;
    uint32_t tokens; /* of the prompt, >= 1 */
    uint32_t random; /* uniform; picks the replica offset */
    hlg_time ttl_ns; /* the request fails (deadline) after that */
    uint32_t id_bytes;
    const uint8_t *id; /* copied */
    uint32_t prompt_bytes;
    const uint8_t *prompt; /* kept until its REQUESTs are sent or the terminal notice */
    /* pages to fill, [count] from position `first` on; owned by the request until its pages
       return. `pages` is kept as `prompt` is; where FLUSH is asked for and reads it, until the request is over:
       READY, RETURNED or POISONED */
    struct hlg_page_list groups[HLG_GROUPS_MAX];
};

struct hlg_event_room {
    uint32_t lane;
    uint32_t rail;
};

struct hlg_event {
    uint32_t kind; /* enum hlg_event_kind */
    hlg_time now;
    union {
        struct hlg_event_peer peer;
        struct hlg_event_taken taken;
        struct hlg_event_done done;
        struct hlg_event_layer layer;
        struct hlg_event_imm imm;
        struct hlg_event_admit admit;
        struct hlg_event_reject reject;
        struct hlg_event_chunk chunk;
        struct hlg_event_submit submit;
        struct hlg_event_room room; /* ROOM */
        uint32_t forward;           /* FORWARD_END, FORWARD_ABORT */
        hlg_handle request;         /* CANCEL, RELEASE, FLUSHED, FLUSH_FAILED */
    };
};

#ifdef __cplusplus
}
#endif

#endif
