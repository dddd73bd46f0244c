/*
 * What the files of the staged decorator share. staged.c owns GPUs, rings and shadows; endpoint.c is the
 * transport around one below; cargo.c moves pieces from the GPU to the wire; flusher.c moves pages of
 * whole requests to the GPU.
 */
#ifndef STAGED_INTERNAL_H
#define STAGED_INTERNAL_H

#include "halage/transport/staged.h"
#include "memory/copier.h"

#define STAGED_GPUS_MAX    16u
#define STAGED_SHADOWS_MAX 1024u
#define STAGED_MEMS_MAX    1024u
#define STAGED_CARGOS_MAX  256u /* of one endpoint */
#define STAGED_PIECES_MAX  256u /* of one cargo */

/* One GPU: the way out through a ring of slots, and at a target the way in. */
struct staged_gpu {
    int32_t device;
    struct copier *out; /* one mark a slot */
    struct copier *in;  /* one mark a flush; NULL: not a target */
    uint8_t *ring;
    uint32_t *next_free; /* [slots] */
    uint32_t first_free; /* HLG_NONE: none */
    uint32_t free_count;
    bool told; /* in the log, that copies fail */
};

/* Host memory that peers write to in place of a region of a GPU. */
struct staged_shadow {
    uint8_t *device; /* base of the region */
    uint64_t bytes;
    uint8_t *host;
    struct staged_gpu *gpu;
};

struct staged_flush {
    hlg_handle request;
    int32_t status;
    uint32_t gpus; /* bits: whose mark is to be waited for */
};

struct hlg_staged {
    struct hlg_fabric fabric;
    struct hlg_flusher flusher;
    struct hlg_staged_config config; /* defaults filled in */
    struct hlg_transport_caps caps;
    struct staged_gpu gpus[STAGED_GPUS_MAX];
    uint32_t gpu_count;
    struct staged_shadow *shadows; /* [STAGED_SHADOWS_MAX] */
    uint32_t shadow_count;
    uint32_t identity[STAGED_PIECES_MAX + 1]; /* page i is page i: where pieces lie in a slot */
    struct staged_flush *flushes;             /* [flushes_max], a ring */
    uint32_t flush_first;
    uint32_t flush_count;
    struct staged_flush telling; /* the request whose runs are told now */
    struct hlg_copy_stats stats;
};

/* staged.c */
__attribute__((format(printf, 2, 3))) void staged_log(const struct hlg_staged *s,
                                                      const char *format, ...);
/* The GPU of a device that was prepared; NULL: it was not. */
struct staged_gpu *staged_gpu_of(struct hlg_staged *s, int32_t device);
/* The shadow that holds a range; NULL: none. */
const struct staged_shadow *staged_shadow_of(const struct hlg_staged *s, const void *base,
                                             uint64_t bytes);
/* A free slot of a ring, of which there is one; and back. */
uint32_t staged_slot_take(struct staged_gpu *gpu);
void staged_slot_give(struct staged_gpu *gpu, uint32_t slot);
int staged_prepare(struct hlg_fabric *fabric, const struct hlg_mem_region *region, char *error,
                   size_t error_bytes);
/* Says once for each GPU why its copies fail. */
void staged_copy_failed(struct hlg_staged *s, struct staged_gpu *gpu, const struct copier *copier);

/* flusher.c */
void staged_flusher_init(struct hlg_staged *s);

/* ---- endpoints ---- */

enum cargo_state {
    CARGO_FREE = 0,
    CARGO_COPYING, /* on its way into its slot */
    CARGO_LOADED,  /* in its slot, not yet wholly taken by the transport below */
    CARGO_POSTED,  /* taken; its completions come from below */
};

/* Part of a paged write that is under way. Its number is the operation below. */
struct cargo {
    uint32_t state;         /* enum cargo_state */
    uint32_t next;          /* of those not posted, in order; or of the free ones */
    hlg_op_id op;           /* the caller's */
    struct staged_gpu *gpu; /* NULL: host memory, without a slot */
    uint32_t slot;
    struct hlg_paged_write write; /* to the transport below: what it did not take yet */
    uint32_t outstanding;         /* pieces below */
    bool failed;                  /* some of what was taken below */
    int32_t doomed;               /* what is not taken yet fails with that; 0: it does not */
};

struct staged_mem {
    bool used;
    struct hlg_mem_region region;
    hlg_mem below;          /* host memory, or the shadow; HLG_NONE: none */
    struct staged_gpu *gpu; /* NULL: host memory */
};

struct staged_peer {
    bool open;
    bool closing; /* below it is open until what was taken for it is posted */
    bool down;    /* told, or to be told */
    bool down_untold;
    uint32_t waiting; /* cargos not posted */
    uint32_t slots;   /* that hold pieces for it */
    uint32_t pieces;  /* under way to it */
    hlg_time
        refused_first; /* HLG_TIME_NEVER: not refused since it last took or completed something */
    hlg_time refused_last;
};

struct staged_endpoint {
    struct hlg_transport transport;
    struct hlg_transport *below;
    struct hlg_staged *staged;
    struct staged_mem *mems;            /* [STAGED_MEMS_MAX] */
    hlg_mem ring_mems[STAGED_GPUS_MAX]; /* of each GPU's ring; HLG_NONE: not registered */
    struct staged_peer *peers;          /* [peer_count] by the number of the transport below */
    uint32_t peer_count;
    uint32_t down_untold;
    struct cargo *cargos; /* [STAGED_CARGOS_MAX] */
    uint32_t cargo_free;
    uint32_t pieces;     /* under way, <= caps.pieces_max */
    uint32_t wait_first; /* not posted, in order */
    uint32_t wait_last;
    bool closed;
    bool unclosed; /* the transport below could not be: its slots are lost */
};

static inline struct staged_endpoint *staged_endpoint_of(const struct hlg_transport *t)
{
    return (struct staged_endpoint *)(uintptr_t)t;
}

int staged_endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out);

/* cargo.c */
int64_t cargo_write(struct hlg_transport *t, const struct hlg_paged_write *write);
int cargo_poll(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity);
/* Nothing more is handed to the transport below. */
void cargo_doom(struct staged_endpoint *e, int32_t status);
/* Wait until no copy into a slot is under way. */
void cargo_settle(struct staged_endpoint *e);

#endif
