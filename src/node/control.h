/*
 * What a node program and the command that started it tell each other: frames over a connected
 * UNIX socket of packets. Both are of one build, so a frame is a struct. When either side goes, the
 * other reads the end.
 */
#ifndef HALAGE_NODE_CONTROL_H
#define HALAGE_NODE_CONTROL_H

#include <halage/base.h>

#define CONTROL_FRAME_BYTES_MAX (128u << 10)
#define CONTROL_TEXT_BYTES      512u
#define CONTROL_WHY_BYTES       160u

enum control_kind {
    /* from the node */
    CONTROL_UP = 1,      /* it can take requests */
    CONTROL_TEXT,        /* a line for people */
    CONTROL_PEER_DOWN,   /* decode: the prefill node is gone */
    CONTROL_FORWARD_END, /* prefill: the forward with a request's last chunk ended */
    CONTROL_STEP,        /* a forward, or a decode step, ended */
    CONTROL_RESULT,      /* decode: a request was decoded to its end */
    CONTROL_FAILED,      /* decode: a request failed */
    CONTROL_STATS,       /* answer to STOP; the node then ends */
    /* to the node */
    CONTROL_SUBMIT, /* decode: take a request */
    CONTROL_STOP,
};

struct control_head {
    uint32_t kind;
    uint32_t pad;
};

struct control_up {
    struct control_head head;
    uint32_t port; /* prefill */
    uint32_t processes;
    char provider[16];
    char why[CONTROL_WHY_BYTES]; /* the provider was chosen; may be empty */
};

struct control_text {
    struct control_head head;
    char text[CONTROL_TEXT_BYTES];
};

struct control_forward_end {
    struct control_head head;
    uint64_t number;
    hlg_time ended;
};

struct control_step {
    struct control_head head;
    hlg_time begun;
    hlg_time ended;
    uint32_t sequences;
    uint32_t tokens;      /* computed: of all sequences */
    uint64_t context_sum; /* tokens in the cache before each of these, summed over them */
};

struct control_submit {
    struct control_head head;
    uint64_t number;
    uint32_t pool;
    uint32_t prompt_tokens;
    uint32_t output_count;
    uint32_t pad;
    uint32_t tokens[]; /* [prompt_tokens] */
};

/* Followed by, in this order: logits [output_count] u64, landed [tp][layers][planes] u64, context
 * [tp] u64, tokens [output_count] u32. */
struct control_result {
    struct control_head head;
    uint64_t number;
    uint32_t pool;
    uint32_t output_count;
    uint32_t landed_count; /* tp * layers * planes */
    uint32_t tp;
    uint64_t pieces_counted;
    uint64_t pieces_expected;
    uint64_t bytes;
    hlg_time asked;       /* the messenger took the request to the prefill node */
    hlg_time accepted;    /* the prefill node's engine admitted it; 0: nothing was asked */
    hlg_time first_piece; /* as the next */
    hlg_time last_piece;  /* 0: none was due */
    hlg_time ready;       /* the engine took READY */
    hlg_time first_token; /* the step with the first token ended */
    uint32_t prefill;     /* node that prefilled it, in the order of --connect, from 0 */
    uint32_t pad;
    uint64_t values[];
};

struct control_failed {
    struct control_head head;
    uint64_t number;
    char text[CONTROL_TEXT_BYTES];
};

struct control_stats {
    struct control_head head;
    uint64_t pieces_posted;
    uint64_t layers_early;
    uint64_t layers_late;
    uint64_t forwards;
    hlg_time forwards_ns; /* that they took, in sum */
    uint64_t requests_poisoned;
    uint64_t pages; /* of all pools, contexts too, as the three below */
    uint64_t pages_free;
    uint64_t pages_poisoned;
    uint64_t pages_touched;  /* decode: free pages whose bytes changed; 0 without --guard */
    uint64_t requests_again; /* decode: asked once more after they failed */
    uint64_t redials;        /* decode: that led to a session */
};

static inline size_t control_result_bytes(uint32_t output_count, uint32_t landed_count, uint32_t tp)
{
    return sizeof(struct control_result) +
           ((size_t)output_count + landed_count + tp) * sizeof(uint64_t) +
           (size_t)output_count * sizeof(uint32_t);
}

/* Make a pair of sockets for frames. Returns 0, or -HLG_EIO. */
int control_pair(int sockets[2]);

/* Send a frame. Returns 1; 0 when there is no room now (only with wait false); -HLG_EIO when nobody
 * reads any more. */
int control_send(int socket, const void *frame, size_t bytes, bool wait);

/*
 * Take a frame, without waiting.
 *
 * frame  [CONTROL_FRAME_BYTES_MAX], aligned to 8
 *
 * Returns its bytes; 0 at the end; -HLG_ESTATE when there is none.
 */
int control_receive(int socket, void *frame);

#endif
