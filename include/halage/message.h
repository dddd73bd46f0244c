/*
 * Control messages between two nodes, as structs. wire.h turns them into frames and back; the core
 * makes and takes the structs. On the wire: little-endian, versioned, every length checked.
 *
 * Pointers in a message belong to whoever made it: in an action they live as that action says, in a
 * decoded message they point into the decoder's scratch and die with the next decode.
 */
#ifndef HALAGE_MESSAGE_H
#define HALAGE_MESSAGE_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_PROTOCOL_MIN 1u
#define HLG_PROTOCOL_MAX 1u

enum hlg_message_kind {
    HLG_MESSAGE_HELLO =
        1, /* both ways, first; a later one on another channel ends the older session */
    HLG_MESSAGE_REQUEST, /* decode -> prefill: these pages are yours to fill */
    HLG_MESSAGE_ACCEPT,  /* prefill -> decode: admitted; repeats the pieces for comparison */
    HLG_MESSAGE_REJECT,  /* prefill -> decode: nothing was or will be written; counts as FENCED */
    HLG_MESSAGE_CANCEL,  /* decode -> prefill: stop; answered by FENCED, or by the session's end */
    HLG_MESSAGE_FENCED,  /* prefill -> decode: its writes all completed well, and no more come */
    HLG_MESSAGE_FAILED,  /* prefill -> decode: no more will come; FENCED follows */
    HLG_MESSAGE_CREDIT,  /* decode -> prefill: pieces taken from each rail; prefill -> decode:
                            requests that are over; both since the session began */
    HLG_MESSAGE_HEARTBEAT, /* both ways: I live; renews the session's lease */
    HLG_MESSAGE_DRAIN,     /* prefill -> decode: send no new REQUEST */
    HLG_MESSAGE_BYE,       /* both ways, last: why the session ends */
};

enum hlg_role {
    HLG_ROLE_PREFILL = 0,
    HLG_ROLE_DECODE = 1,
};

/* Why a request ended other than whole. */
enum hlg_reason {
    HLG_REASON_NONE = 0,
    HLG_REASON_REJECTED, /* the prefiller would not take it; retry_after_ns may say when to ask again */
    HLG_REASON_CANCELLED, /* this side's engine asked */
    HLG_REASON_PEER,      /* the peer is gone, or its writes failed */
    HLG_REASON_DEADLINE,  /* its time ran out */
    HLG_REASON_PROTOCOL,  /* the two sides disagree on what was sent */
    HLG_REASON_LOCAL,     /* this node's own resources failed */
    HLG_REASON_PREEMPTED, /* the prefiller's engine aborted the forward */
};

/* One endpoint: the address of one rail of one lane, opaque to all but the transport. */
struct hlg_rail_address {
    uint32_t lane;
    uint32_t rail;
    uint32_t bytes; /* of `address` in use, 1..HLG_ADDRESS_BYTES_MAX */
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
};

/* One registration: region `region` of `lane` as one rail's endpoint exposes it. */
struct hlg_region_key {
    uint32_t lane;
    uint32_t region;
    uint32_t rail;
    uint32_t pad;     /* 0 */
    uint64_t address; /* what a write names as the region's first byte */
    uint64_t bytes;
    uint64_t key;
};

/* Where the pages of one (lane, group, layer, plane) lie: page i at offset + i * stride. */
struct hlg_place {
    uint32_t lane;
    uint32_t group;
    uint32_t layer; /* global; the layout's `layers` for a context group */
    uint32_t plane;
    uint32_t region;
    uint32_t pad; /* 0 */
    uint64_t offset;
    uint64_t stride;
};

/* What requests ask of a prefiller: counted over a session, or granted at a time. */
struct hlg_load {
    uint64_t requests;
    uint64_t pages;
    uint64_t prompt_bytes;
};

struct hlg_hello {
    uint32_t protocol_min;
    uint32_t protocol_max;
    uint32_t role;              /* enum hlg_role */
    uint32_t window_pieces;     /* pieces that may be on the way to each of the sender's rails */
    uint32_t message_bytes_max; /* longest frame that the sender takes */
    uint32_t prompt_bytes_max;  /* longest prompt */
    uint32_t draining;          /* prefill: 1: it takes no new REQUEST; else 0 */
    struct hlg_load grant;      /* prefill: open at a time, of this decoder; decode: all 0 */
    uint64_t node;        /* this node's identity, the same after a restart; random unless set */
    uint64_t incarnation; /* differs from that of every earlier run of this node */
    uint64_t session;     /* counts the sender's sessions with anyone, from 1 */
    uint8_t fingerprint[HLG_FINGERPRINT_BYTES]; /* of the model; opaque; must be equal */
    char provider[16];                          /* transport's name; must be equal; zero padded */
    struct hlg_layout layout;
    uint32_t address_count;
    uint32_t key_count;
    uint32_t place_count;
    const struct hlg_rail_address *addresses;
    const struct hlg_region_key *keys;
    const struct hlg_place *places;
};

/* Pages asked of one group: those that the target lacks, in order of position. */
struct hlg_page_list {
    uint32_t count;
    uint32_t
        first; /* position of pages[0] in the request: pages before it are the target's already */
    const uint32_t *pages; /* page numbers in the target pool, each once */
};

struct hlg_request_message {
    uint64_t number; /* upward from 1 within an incarnation of the decoder; never repeats */
    uint32_t pool;   /* target pool */
    uint32_t source; /* which of source_count this REQUEST is for */
    uint32_t source_count;
    uint32_t slot;       /* of this source, 16 bits */
    uint32_t generation; /* of that slot, 12 bits */
    uint32_t offset;     /* replica offset */
    uint32_t tokens;     /* of the prompt; the prefiller handles tokens - 1 */
    uint32_t prompt_bytes;
    uint64_t pieces;                             /* that this source will write, context included */
    hlg_time ttl_ns;                             /* remaining time, not a deadline */
    struct hlg_page_list groups[HLG_GROUPS_MAX]; /* [group_count of the layouts] */
    uint32_t group_count;
    uint32_t id_bytes; /* of the engine's own request id, for logs */
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX];
    const uint8_t *prompt; /* opaque: token ids, sampling hints, whatever the engines agreed on */
};

/*
 * What of a source's pieces must have been counted before its FENCED is believed. A write that a transport
 * merely acknowledged (caps.placed false) is on the target's side and may still be on its way into memory;
 * its own immediate is what says that it is there. There the first of these ends the session.
 */
enum hlg_await {
    HLG_AWAIT_NOTHING = 0, /* every write was placed when it completed */
    HLG_AWAIT_PIECES,      /* `pieces` of the answer: those that were posted */
    HLG_AWAIT_ALL, /* all that the REQUEST expects: they were posted, and the prefiller has forgotten it */
};

/* ACCEPT, REJECT, CANCEL, FENCED and FAILED speak of one REQUEST. */
struct hlg_answer {
    uint64_t number;
    uint64_t incarnation;    /* of the node that sends this message */
    uint64_t session;        /* CANCEL: the session in which the REQUEST went; else 0 */
    uint64_t pieces;         /* ACCEPT: own count; FAILED: posted so far; FENCED: posted in all */
    uint32_t reason;         /* enum hlg_reason: REJECT, FAILED */
    uint32_t await;          /* FENCED: enum hlg_await */
    hlg_time retry_after_ns; /* REJECT */
};

struct hlg_credit_entry {
    uint32_t lane;
    uint32_t rail;
    uint64_t pieces; /* taken from that rail by immediates since the session began */
};

struct hlg_credit {
    struct hlg_load finished; /* prefill -> decode: of the grant, used and free again; else 0 */
    uint32_t count;           /* decode -> prefill; else 0 */
    const struct hlg_credit_entry *entries; /* [count] each rail once, upward by lane and rail */
};

struct hlg_bye {
    struct hlg_refusal why; /* code 0: an orderly end */
};

struct hlg_message {
    uint32_t kind; /* enum hlg_message_kind */
    union {
        struct hlg_hello hello;
        struct hlg_request_message request;
        struct hlg_answer answer;
        struct hlg_credit credit;
        struct hlg_bye bye;
    };
};

/*
 * The immediate of a write: 16 bits of slot, 12 of generation, 4 of weight. Weight w of 0..14
 * counts 2^w pieces; 15 is a mark and counts none. Nothing here writes marks: docs/protocol.md, "Where
 * this departs from the first design".
 */
#define HLG_IMM_WEIGHT_MARK 15u
#define HLG_GENERATIONS     4096u
#define HLG_SLOTS_MAX       65536u

/* Make one, and take it apart: slot < HLG_SLOTS_MAX, generation < HLG_GENERATIONS, weight <= 15. */
static inline uint32_t hlg_imm_make(uint32_t slot, uint32_t generation, uint32_t weight)
{
    HLG_ASSERT(slot < HLG_SLOTS_MAX && generation < HLG_GENERATIONS && weight <= 15);
    return slot << 16 | generation << 4 | weight;
}
static inline uint32_t hlg_imm_slot(uint32_t imm)
{
    return imm >> 16;
}
static inline uint32_t hlg_imm_generation(uint32_t imm)
{
    return (imm >> 4) & 0xfffu;
}
static inline uint32_t hlg_imm_weight(uint32_t imm)
{
    return imm & 0xfu;
}

#ifdef __cplusplus
}
#endif

#endif
