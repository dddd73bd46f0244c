/*
 * How one node shards and stores its KV cache. A layout is plain data: it needs no device, travels
 * in HELLO, and two of them make a plan (plan.h).
 *
 * Ranks. A node's lane is pool * (stages * tp) + stage * tp + t, with 0 <= t < tp. A pool is one DP
 * rank: it has page numbers of its own. `rank` below is the lane within its pool, stage * tp + t.
 */
#ifndef HALAGE_LAYOUT_H
#define HALAGE_LAYOUT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hlg_arrangement {
    HLG_HND = 0, /* within a page: head, then token, then the head's bytes */
    HLG_NHD = 1, /* within a page: token, then head, then the head's bytes */
};

enum hlg_group_kind {
    HLG_GROUP_PAGED = 0,   /* pages of tokens, sent layer by layer */
    HLG_GROUP_CONTEXT = 1, /* one page a request, handed over last, by the last stage alone */
};

/*
 * The layers that share page size, page list, rank mapping and sending rule. A page is
 * (pool, group, index); each layer and plane of the group holds its own bytes of that page.
 * A context group has page_tokens 1, planes 1 and no layers; `heads` then counts equal shards
 * (1: every rank holds the whole, as of hidden states; tp: vocabulary-sharded logits).
 */
struct hlg_group {
    uint32_t kind;        /* enum hlg_group_kind */
    uint32_t planes;      /* separate tensors of a layer: 2 for split K and V, 1 for MLA latents */
    uint32_t heads;       /* KV heads of the whole model; 1 when all ranks hold the same bytes */
    uint32_t head_bytes;  /* bytes of one head of one token in one plane */
    uint32_t page_tokens; /* tokens of a page */
    uint32_t arrangement; /* enum hlg_arrangement */
    uint32_t page_count;  /* pages of each pool; page numbers are below it */
    uint64_t layers[4];   /* bit i of word i / 64: global layer i belongs to this group */
};

struct hlg_layout {
    uint32_t tp;                          /* tensor-parallel ranks of a stage */
    uint32_t stages;                      /* pipeline stages */
    uint32_t pools;                       /* data-parallel ranks, each tp * stages lanes */
    uint32_t layers;                      /* layers of the whole model, <= HLG_LAYERS_MAX */
    uint32_t stage_limit[HLG_STAGES_MAX]; /* stage s holds layers [stage_limit[s - 1] or 0,
                                             stage_limit[s]); the last equals `layers` */
    uint32_t rank_begin; /* this node hosts ranks [rank_begin, rank_limit) of every pool; */
    uint32_t rank_limit; /* a node that hosts all has 0 and tp * stages */
    uint32_t all_reduce; /* 1: an all-reduce over the stage precedes each layer's tick, so that one
                             counter word serves all its ranks; 0: one word a rank */
    uint32_t piece_bytes_max; /* longest contiguous run counted as one piece; the smaller of the two
                                 layouts' is used. Default HLG_PIECE_BYTES_DEFAULT */
    uint32_t group_count;
    struct hlg_group groups[HLG_GROUPS_MAX];
};

#define HLG_PIECE_BYTES_DEFAULT (1u << 20)

/* Bounds of a page of one plane on one rank: its bytes, and page_tokens times the pieces that one
 * token's bytes on the rank are cut into. Slices thus count in 32 bits, over a block of pages too. */
#define HLG_PAGE_BYTES_MAX  (1u << 31)
#define HLG_PAGE_PIECES_MAX (1u << 20)

/*
 * Why two layouts, or one, cannot be used. Numbers only, so that it can travel in BYE and read the
 * same on both sides; hlg_refusal_text() (refusal.h) makes the sentence.
 */
enum hlg_refusal_code {
    HLG_REFUSAL_NONE = 0,
    HLG_REFUSAL_RANGE,       /* field `a` of group `b`, or of the layout (HLG_NONE): value `c` */
    HLG_REFUSAL_HEADS_TP,    /* group `a`: `b` KV heads and TP `c`: neither divides the other */
    HLG_REFUSAL_STAGES,      /* stage `a` ends at layer `b` of `c` */
    HLG_REFUSAL_GROUPS,      /* source has `a` groups, target `b` */
    HLG_REFUSAL_GROUP_FIELD, /* group `a`, field `d` (enum hlg_layout_field): source `b`, target `c` */
    HLG_REFUSAL_LAYERS,      /* layers: source `a`, target `b` */
    HLG_REFUSAL_GROUP_LAYERS, /* group `a`: the two sides list different layers */
    HLG_REFUSAL_SLICES,       /* the plan needs more than `a` slices */
    HLG_REFUSAL_ROLE,         /* both nodes have role `a` */
    HLG_REFUSAL_VERSION,      /* protocol `a`..`b` against `c`..`d` */
    HLG_REFUSAL_FINGERPRINT,  /* the model fingerprints differ */
    HLG_REFUSAL_FULL,         /* no room for another peer: limit `a` */
    HLG_REFUSAL_TABLE,     /* HELLO's table of rails, regions or places is incomplete at `a`, `b` */
    HLG_REFUSAL_TRANSPORT, /* an endpoint could not be opened, or the other's not be reached */
    HLG_REFUSAL_PROVIDER, /* providers differ: `a` to `d` are the 16 bytes of the refusing node's */
    HLG_REFUSAL_KEY,      /* no handshake was had: `a` is of enum hlg_key_trouble */
};

/* As the node says it that refuses. */
enum hlg_key_trouble {
    HLG_KEY_MISSING_HERE = 0, /* it has no key, the other has */
    HLG_KEY_MISSING_THERE,    /* it has one, the other has none */
    HLG_KEY_DIFFERS,
    HLG_KEY_HANDSHAKE, /* else: another version, or what came was damaged */
};

enum hlg_layout_field {
    HLG_FIELD_TP = 1,
    HLG_FIELD_STAGES,
    HLG_FIELD_POOLS,
    HLG_FIELD_LAYERS,
    HLG_FIELD_RANKS,
    HLG_FIELD_PIECE_BYTES_MAX,
    HLG_FIELD_GROUPS,
    HLG_FIELD_KIND,
    HLG_FIELD_PLANES,
    HLG_FIELD_HEADS,
    HLG_FIELD_HEAD_BYTES,
    HLG_FIELD_PAGE_TOKENS,
    HLG_FIELD_ARRANGEMENT,
    HLG_FIELD_PAGE_COUNT,
    HLG_FIELD_ALL_REDUCE,
};

struct hlg_refusal {
    uint32_t code; /* enum hlg_refusal_code */
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
};

/*
 * Say whether a layout is sound by itself: every field in range, heads and TP divide, stages cover
 * all layers, sizes fit in 32 bits. Safe on foreign data. Returns 0, or -HLG_EPLAN with *why set.
 */
int hlg_layout_check(const struct hlg_layout *layout, struct hlg_refusal *why);

/* Ranks of one pool, tp * stages. */
static inline uint32_t hlg_layout_ranks(const struct hlg_layout *layout)
{
    return layout->tp * layout->stages;
}

/* Lanes that this node hosts, over all pools. Lane = pool * hosted ranks + (rank - rank_begin). */
static inline uint32_t hlg_layout_lanes(const struct hlg_layout *layout)
{
    return layout->pools * (layout->rank_limit - layout->rank_begin);
}

/* Lane of a hosted rank of a pool. */
static inline uint32_t hlg_layout_lane(const struct hlg_layout *layout, uint32_t pool,
                                       uint32_t rank)
{
    HLG_ASSERT(rank >= layout->rank_begin && rank < layout->rank_limit && pool < layout->pools);
    return pool * (layout->rank_limit - layout->rank_begin) + (rank - layout->rank_begin);
}

/* First layer of a stage and one past its last. */
static inline uint32_t hlg_layout_layer_begin(const struct hlg_layout *layout, uint32_t stage)
{
    return stage == 0 ? 0 : layout->stage_limit[stage - 1];
}

/* Whether a global layer, also one beyond HLG_LAYERS_MAX, belongs to a group. */
static inline bool hlg_group_has_layer(const struct hlg_group *group, uint32_t layer)
{
    return layer < HLG_LAYERS_MAX && ((group->layers[layer / 64] >> (layer % 64)) & 1u) != 0;
}

/*
 * Heads [*begin, *limit) that tensor-parallel rank t of tp holds: heads / tp each when tp divides,
 * the one head floor(t * heads / tp) when heads divide tp. Golden vectors: tests/unit/test_plan.c.
 */
void hlg_layout_heads(uint32_t heads, uint32_t tp, uint32_t t, uint32_t *begin, uint32_t *limit);

/* Replica sets of a group: max(1, tp / heads). Set k is the ranks t with t mod sets == k. */
uint32_t hlg_layout_sets(uint32_t heads, uint32_t tp);

/* Bytes of one page of one plane on one rank. */
uint32_t hlg_layout_page_bytes(const struct hlg_layout *layout, uint32_t group);

/* Pages of a group that hold `tokens` tokens: ceil for a paged group, 1 for a context group. */
uint32_t hlg_layout_pages(const struct hlg_layout *layout, uint32_t group, uint32_t tokens);

#ifdef __cplusplus
}
#endif

#endif
