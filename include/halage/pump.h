/*
 * The pump turns completions and frames into events of one machine, and its actions into calls of
 * transports and channels. One pump a node; one thread calls it. It owns the peers' endpoints:
 * for each fence domain one endpoint per (lane, rail), with its own registrations.
 */
#ifndef HALAGE_PUMP_H
#define HALAGE_PUMP_H

#include "channel.h"
#include "decode.h"
#include "prefill.h"
#include "trace.h"
#include "transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_pump;
struct pollfd;

/* Memory of one lane that KV pages live in; region numbers count from 0 within a lane. */
struct hlg_pump_region {
    uint32_t lane;
    struct hlg_mem_region memory;
};

struct hlg_pump_config {
    enum hlg_role role;
    union {
        struct hlg_prefill_config prefill;
        struct hlg_decode_config decode;
    };
    struct hlg_fabric *fabric;
    struct hlg_flusher *flusher;           /* decode; NULL: the fabric's, if it has one */
    const struct hlg_pump_region *regions; /* [region_count], in order of lane; copied */
    uint32_t region_count;
    /* [place_count] one for each hosted (lane, group, layer, plane); every page of the group's
       page_count must lie in its region, or create says -HLG_EINVAL; copied */
    const struct hlg_place *places;
    uint32_t place_count;
    /* Called inside step and event, for each notice; must not call the pump. */
    void (*notice)(void *context, const struct hlg_notice *notice);
    void (*note)(void *context, const struct hlg_note *note); /* may be NULL */
    void *context;
    /* Records what the machine is told and what it gives; the caller's, until destroy returned; NULL:
       nothing is recorded. Fresh: nothing was begun with it. */
    struct hlg_trace *trace;
};

/* Takes all its memory. Returns 0, or an error with `error` [error_bytes] filled with a sentence. */
int hlg_pump_create(const struct hlg_pump_config *config, struct hlg_pump **pump, char *error,
                    size_t error_bytes);

/* Ends every session (BYE), closes all endpoints. Bounded in time. */
void hlg_pump_destroy(struct hlg_pump *pump);

/*
 * Give a connected channel to the pump, which owns it from now on. A fence domain is chosen (opened,
 * or shared where the provider affords no more). Returns 0 with *peer, or an error (the channel is
 * closed then, with BYE when that is possible).
 */
int hlg_pump_channel(struct hlg_pump *pump, struct hlg_channel *channel, bool dialled,
                     uint32_t *peer);

/* The other side's address, for logs: the name of the peer's channel, or "" when it is closed. Good
 * until the next step. */
const char *hlg_pump_peer_name(const struct hlg_pump *pump, uint32_t peer);

/* Hand an engine's event to the machine; `now` is filled in. Returns what the machine says. */
int hlg_pump_event(struct hlg_pump *pump, struct hlg_event *event);

/* Handle that the last successful SUBMIT made; decode. */
hlg_handle hlg_pump_submitted(const struct hlg_pump *pump);

/*
 * One round: read channels, poll endpoints of peers with open requests, tell the time when it is due,
 * carry actions out. Returns how many things it did; 0 means that it may sleep till the deadline or
 * until a descriptor wakes it.
 */
int hlg_pump_step(struct hlg_pump *pump);

/* The part of a round that writes, alone: what an event made ready goes at once, and the network is looked at
 * later. Returns how many writes were taken, wholly or in part. */
int hlg_pump_write(struct hlg_pump *pump);

/* The fabric's time, and when the pump wants a step at the latest, or HLG_TIME_NEVER. */
hlg_time hlg_pump_now(const struct hlg_pump *pump);
hlg_time hlg_pump_deadline(const struct hlg_pump *pump);

/* Descriptors to sleep on, as poll(2) wants them. Returns how many were filled, or an error when some
 * endpoint has work now or cannot be slept on. With `endpoints` false only channels are listed. */
int hlg_pump_wait_fds(struct hlg_pump *pump, struct pollfd *fds, uint32_t capacity, bool endpoints);

/* Requests open. */
uint32_t hlg_pump_open(const struct hlg_pump *pump);
/* Prefill: hlg_prefill_awaits(); decode: false. */
bool hlg_pump_awaits(const struct hlg_pump *pump);

/* The machine's own check, which aborts at a broken invariant; for tests. Returns 0. */
int hlg_pump_check(const struct hlg_pump *pump);

/* Counters since create; for stats and logs. */
struct hlg_pump_stats {
    uint64_t pieces_posted;
    uint64_t pieces_done;
    uint64_t pieces_failed;
    uint64_t bytes_posted;
    uint64_t writes_refused; /* offers of which nothing was taken */
    uint64_t pieces_counted; /* by immediates that arrived */
    uint64_t frames_sent;
    uint64_t frames_received;
    uint64_t frames_malformed;
    uint64_t sessions_ended;
    uint64_t layers_early; /* see struct hlg_prefill_stats; 0 for decode */
    uint64_t layers_late;
    /* The machine's own, all of them; what is another role's is 0. */
    struct hlg_prefill_stats prefill;
    struct hlg_decode_stats decode;
};
/* As of now. */
void hlg_pump_stats(const struct hlg_pump *pump, struct hlg_pump_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
