/*
 * Scalars, errors, limits and assertions that every other header builds on.
 */
#ifndef HALAGE_BASE_H
#define HALAGE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What C and C++ spell differently; an atomic integer has one layout in both (gcc, clang). */
#ifdef __cplusplus
#include <atomic>
#define HLG_ATOMIC_U32 std::atomic<uint32_t>
#define HLG_ATOMIC_U64 std::atomic<uint64_t>
#define HLG_NORETURN   [[noreturn]]
#else
#define HLG_ATOMIC_U32 _Atomic uint32_t
#define HLG_ATOMIC_U64 _Atomic uint64_t
#define HLG_NORETURN   _Noreturn
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds of a transport's own clock. It never runs back; its zero means nothing. */
typedef uint64_t hlg_time;

#define HLG_TIME_NEVER UINT64_MAX
#define HLG_NS_PER_MS  1000000ull
#define HLG_NS_PER_S   1000000000ull

/* One posted paged write, from the core's WRITE action to its last DONE_WRITE. */
typedef uint32_t hlg_op_id;

/*
 * A request as one node names it: table index in the low 32 bits, a count of that entry's uses in
 * the high 32. A handle whose use is over is found out (HLG_ESTALE), never followed. 0 is no handle.
 */
typedef uint64_t hlg_handle;

#define HLG_NONE UINT32_MAX

/* Every function that can fail returns one of these, negated. */
enum hlg_error {
    HLG_EINVAL = 1,        /* an argument breaks the function's contract */
    HLG_ELIMIT = 2,        /* a limit of struct hlg_limits is reached; try again later */
    HLG_ESTALE = 3,        /* the handle's request is over */
    HLG_ESTATE = 4,        /* not in this state */
    HLG_EPEER = 5,         /* the peer is unknown, down, or was refused */
    HLG_EOWNED = 6,        /* a page belongs to another request, or is quarantined */
    HLG_EPROTO = 7,        /* the peer broke the protocol */
    HLG_EPLAN = 8,         /* the two layouts cannot be joined; a struct hlg_refusal says why */
    HLG_ENOMEM = 9,        /* memory could not be had */
    HLG_EIO = 10,          /* the system or a provider said no; the log names it */
    HLG_ECANCELED = 11,    /* the operation's endpoint was closed first */
    HLG_EFORK = 12,        /* the object was made by another process */
    HLG_EUNSUPPORTED = 13, /* not built in, or this machine or provider lacks it */
};

/* Returns a fixed sentence, lower case, for 0 or a negated enum hlg_error. */
const char *hlg_error_text(int error);

/*
 * Every bound of a node. Memory is taken once, at init, from these numbers; running into one is
 * answered with HLG_ELIMIT or a REJECT, never by waiting.
 */
struct hlg_limits {
    uint32_t peers_max;    /* nodes connected at a time */
    uint32_t requests_max; /* requests open at a time, <= 65535 (slots are 16 bits) */
    uint32_t sources_max;  /* prefill nodes that write for one request, 1..HLG_SOURCES_MAX */
    uint32_t lanes_max;    /* ranks of this node, <= HLG_RANKS_MAX */
    uint32_t rails_max;    /* NICs of one lane, <= HLG_RAILS_MAX */
    uint32_t slices_max;   /* slices of the plan with one peer */
    uint32_t forwards_max; /* forward passes announced and not over */
    uint32_t chunks_max;   /* chunks not yet wholly posted */
    uint32_t ops_max;      /* paged writes in flight */
    uint32_t blocks_max;   /* blocks of HLG_BLOCK_PAGES page pairs; one list never shares a block */
    uint32_t prompt_bytes_max;  /* opaque prompt of a REQUEST */
    uint32_t message_bytes_max; /* one control frame, <= HLG_MESSAGE_BYTES_MAX */
    uint32_t window_pieces;     /* pieces that a peer may have on the way to one rail */
    /* Prefill: the share of the tables of requests, blocks, chunks and operations that is kept in equal
       parts for each of peers_max decoders, 0..100; the rest is for whoever comes first. */
    uint32_t reserve_percent;
    /* Prefill: what each decoder may have open here at a time; 0: as much as it can have of the tables.
       Beyond it a decoder holds its REQUESTs back. Grants may add up to more than there is. */
    uint32_t grant_requests;
    uint32_t grant_pages;        /* that they ask for, context pages among them */
    uint64_t grant_prompt_bytes; /* not below the largest prompt */
    uint64_t turn_bytes;   /* that a lane sends to one peer before the next one's turn, >= 1 */
    hlg_time lease_ns;     /* silence after which a peer is down */
    hlg_time heartbeat_ns; /* pause between heartbeats */
    hlg_time fence_ns;     /* wait for FENCED before the fence domain is closed instead */
};

#define HLG_SOURCES_MAX          8u
#define HLG_RANKS_MAX            64u
#define HLG_RAILS_MAX            32u
#define HLG_GROUPS_MAX           8u
#define HLG_PLANES_MAX           4u
#define HLG_STAGES_MAX           16u
#define HLG_LAYERS_MAX           254u
#define HLG_BLOCK_PAGES          256u
#define HLG_MESSAGE_BYTES_MAX    (16u << 20)
#define HLG_TOKENS_MAX           (1u << 24)
#define HLG_FINGERPRINT_BYTES    32u
#define HLG_ADDRESS_BYTES_MAX    64u
#define HLG_REQUEST_ID_BYTES_MAX 64u

/* Fills `limits` with defaults that suit a node of 8 ranks and some ten peers. */
void hlg_limits_default(struct hlg_limits *limits);

/* Ends the process: prints the condition to stderr and aborts. Stays on in release builds. */
HLG_NORETURN void hlg_assert_failed(const char *condition, const char *file, int line);

#define HLG_ASSERT(condition) \
    ((condition) ? (void)0 : hlg_assert_failed(#condition, __FILE__, __LINE__))
#define hlg_unreachable() hlg_assert_failed("unreachable", __FILE__, __LINE__)

/* Product of two sizes. Returns false, and leaves *product alone, when it does not fit. */
static inline bool hlg_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    if (b != 0 && a > UINT64_MAX / b) {
        return false;
    }
    *product = a * b;
    return true;
}

/* Quotient of a division that is known to leave nothing. */
static inline uint32_t hlg_div_exact(uint32_t a, uint32_t b)
{
    HLG_ASSERT(b != 0 && a % b == 0);
    return a / b;
}

/* Quotient rounded up. */
static inline uint32_t hlg_div_ceil(uint32_t a, uint32_t b)
{
    HLG_ASSERT(b != 0);
    return a / b + (a % b != 0);
}

/* The smaller and the larger of two numbers. */
static inline uint32_t hlg_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline uint32_t hlg_max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
static inline uint64_t hlg_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t hlg_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline hlg_time hlg_min_time(hlg_time a, hlg_time b)
{
    return a < b ? a : b;
}

/* The time `span` after `now`; HLG_TIME_NEVER when it never comes. */
static inline hlg_time hlg_time_after(hlg_time now, hlg_time span)
{
    return span < HLG_TIME_NEVER - now ? now + span : HLG_TIME_NEVER;
}

/* Narrows a number that is known to fit. */
static inline uint32_t hlg_u32(uint64_t value)
{
    HLG_ASSERT(value <= UINT32_MAX);
    return (uint32_t)value;
}
static inline uint16_t hlg_u16(uint64_t value)
{
    HLG_ASSERT(value <= UINT16_MAX);
    return (uint16_t)value;
}

#ifdef __cplusplus
}
#endif

#endif
