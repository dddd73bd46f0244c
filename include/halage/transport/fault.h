/*
 * fault: a decorator over any fabric and any channels, for tests of one's own. It does to real traffic
 * what networks and peers do: from a seed, by a script, or at once. Link `halage_fault`; it needs libc
 * alone.
 *
 * One struct hlg_fault decorates the nodes of a test that live in this process; each gets its fabric and
 * its channels through it. A process that is one node of several decorates that one, and then only
 * faults that one side can cause are felt.
 *
 * Whatever the faults, the transport contract holds (pieces taken add up, an IMM means that its bytes are
 * there, a failed write may still land): an engine that keeps to the contract must come through all of
 * them. Equal seed, script and calls give equal faults, as far as what is below is deterministic. All
 * memory is taken by create and by open. One thread.
 */
#ifndef HALAGE_TRANSPORT_FAULT_H
#define HALAGE_TRANSPORT_FAULT_H

#include "../channel.h"
#include "../transport.h"

struct hlg_fault;

enum hlg_fault_kind {
    /* of pieces that a write takes */
    HLG_FAULT_DELAY = 1,   /* posted below only `span` later */
    HLG_FAULT_REORDER,     /* posted below before all that waits, or behind the next `count` */
    HLG_FAULT_DUPLICATE,   /* payload placed twice, both before its immediate (as EFA may) */
    HLG_FAULT_FAIL_BEFORE, /* never posted below; reported failed */
    HLG_FAULT_FAIL_AFTER,  /* landed and counted; reported failed all the same */
    HLG_FAULT_FAIL_LATE,   /* reported failed, posted below `span` later: a late write */
    /* of calls of write */
    HLG_FAULT_REFUSE, /* nothing taken, for that peer, for `span`; beyond stall_ns it is PEER_DOWN */
    HLG_FAULT_PARTIAL, /* a prefix is taken */
    /* of immediates at their target */
    HLG_FAULT_IMM_LATE,  /* polled only `span` later */
    HLG_FAULT_IMM_STALE, /* an immediate of an earlier generation of that slot comes again */
    /* of frames */
    HLG_FAULT_FRAME_DELAY, /* it, and so all behind it, `span` later */
    HLG_FAULT_FRAME_DROP,  /* lost, and the connection with it: channels are streams */
    /* of nodes */
    HLG_FAULT_KILL, /* its endpoints and channels are gone; what it had posted may still land */
    HLG_FAULT_FREEZE, /* it does nothing for `span`, then goes on as if nothing had been: the zombie */
    HLG_FAULT_PARTITION, /* nothing passes between node and peer, either way, for `span`; then all that
                            waited does, in order */
    HLG_FAULT_HALF_OPEN,   /* nothing passes from node to peer, for `span`; the other way does */
    HLG_FAULT_SLOW,        /* a rail moves `rate` bytes/s at most, for `span` */
    HLG_FAULT_CLOCK_STALL, /* its clock stands for `span`, then jumps to where it ought to be */
    HLG_FAULT_CLOCK_JUMP,  /* its clock is `span` ahead from now on */
    HLG_FAULT_CLOSE_FAILS, /* close of an endpoint says -HLG_EIO: its pages are POISONED */
    HLG_FAULT_KINDS,
};

#define HLG_FAULT_ANY UINT32_MAX

/* One thing that goes wrong. */
struct hlg_fault_rule {
    uint32_t kind; /* enum hlg_fault_kind */
    uint32_t node; /* that writes, sends, receives the immediate, dies…; HLG_FAULT_ANY */
    uint32_t peer; /* at the other end; HLG_FAULT_ANY */
    uint32_t lane; /* of `node`; HLG_FAULT_ANY */
    uint32_t rail;
    /* When: at each occasion with this chance (1..1000000), or else at occasion `nth` (from 1) that fits,
       or else at time `at`. Faults of nodes know ppm 0 and nth 0 only. */
    uint32_t ppm;
    uint64_t nth;
    hlg_time at;
    hlg_time span; /* drawn evenly from [span, span_max]; span_max below span: span */
    hlg_time span_max;
    uint64_t rate;  /* SLOW */
    uint32_t count; /* how often at most; 0: without end (nth, at: once) */
};

struct hlg_fault_config {
    uint64_t seed;
    uint32_t nodes;
    uint32_t rules_max;
    uint32_t endpoints_max; /* open at a time, all nodes together */
    uint32_t held_max;      /* pieces, immediates that wait at one endpoint; more are not delayed */
    uint32_t frames_max;    /* frames that wait at one end of a channel */
    uint32_t channels_max;
    uint32_t message_bytes_max;
};

/* Two nodes, 64 rules, room for small tests. */
void hlg_fault_config_default(struct hlg_fault_config *config);

/* Returns 0, -HLG_EINVAL for a 0 where none may be, or -HLG_ENOMEM. */
int hlg_fault_create(const struct hlg_fault_config *config, struct hlg_fault **out);

/* Endpoints must be freed and channels closed before. NULL is allowed. */
void hlg_fault_destroy(struct hlg_fault *fault);

/*
 * The fabric of a node, over another one, which stays the caller's and must outlive the decorator. Same
 * capabilities, but: no `ready` unless nothing can be held, and no wait descriptor while something is.
 */
int hlg_fault_fabric(struct hlg_fault *fault, uint32_t node, struct hlg_fabric *below,
                     struct hlg_fabric **out);

/* An end of a channel from `node` to `peer`; owns the one below, also on failure. */
int hlg_fault_channel(struct hlg_fault *fault, uint32_t node, uint32_t peer,
                      struct hlg_channel *below, struct hlg_channel **out);

/* Adds a rule; its number, or -HLG_EINVAL with a sentence (what cannot be), -HLG_ELIMIT. */
int hlg_fault_add(struct hlg_fault *fault, const struct hlg_fault_rule *rule, char *error,
                  size_t error_bytes);
void hlg_fault_remove(struct hlg_fault *fault, uint32_t rule);
/* Ends all faults under way and takes all rules away: what waits passes, clocks run, partitions heal.
 * Who was killed stays so. */
void hlg_fault_calm(struct hlg_fault *fault);

/*
 * Adds the rules of a script, all or none. One rule a line, `#` begins a comment:
 *
 *     KIND [node N] [peer N] [lane N] [rail N] [ppm N | nth N | at TIME] [span TIME[..TIME]]
 *          [rate SIZE/s] [count N]
 *
 * KIND is the constant's name in lower case with `-`: `fail-before node 0 nth 3`. Times need units (ns us
 * ms s). Returns 0, or -HLG_EINVAL with a sentence that names the line, the word and what fits there.
 */
int hlg_fault_script(struct hlg_fault *fault, const char *text, char *error, size_t error_bytes);

/* When something that is held, or a fault of a node, is next due: on a virtual clock whoever drives it
 * must come back then. HLG_TIME_NEVER: nothing is. */
hlg_time hlg_fault_deadline(const struct hlg_fault *fault);

/* Let a killed node be opened again, as a new incarnation. */
void hlg_fault_restart(struct hlg_fault *fault, uint32_t node);
bool hlg_fault_alive(const struct hlg_fault *fault, uint32_t node);
bool hlg_fault_frozen(const struct hlg_fault *fault, uint32_t node);

const char *hlg_fault_name(uint32_t kind);

struct hlg_fault_stats {
    uint64_t hits[HLG_FAULT_KINDS]; /* how often each did something */
    uint64_t held;                  /* things waiting now */
};
void hlg_fault_stats(const struct hlg_fault *fault, struct hlg_fault_stats *stats);

/* Recount what is held. Returns 0, or the number of the check that failed. */
int hlg_fault_check(const struct hlg_fault *fault);

#endif
