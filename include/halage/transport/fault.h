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

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_fault;

enum hlg_fault_kind {
    /* of pieces that a write takes; at most one way to fail each */
    HLG_FAULT_DELAY = 1, /* posted below only `span` later */
    HLG_FAULT_REORDER,   /* posted below behind the pieces to that peer that come next, or `span`
                            later where none does: at the next poll without one */
    HLG_FAULT_DUPLICATE, /* payload placed twice, both before its immediate (as EFA may); only where
                            the peer is a node of this decorator, which hides the first one's */
    HLG_FAULT_FAIL_BEFORE, /* never posted below; reported failed */
    HLG_FAULT_FAIL_AFTER,  /* landed and counted; reported failed all the same */
    HLG_FAULT_FAIL_LATE, /* reported failed, posted below `span` later: a late write. Its bytes are
                              those of now; up to 16 at a time, of late_bytes_max each */
    /* of calls of write */
    HLG_FAULT_REFUSE, /* nothing taken, for that peer, for `span`; beyond stall_ns it is PEER_DOWN */
    HLG_FAULT_PARTIAL, /* a prefix is taken; an occasion is a call that could take two or more */
    /* of immediates at their target (`node`); an occasion is an event, which may sum several */
    HLG_FAULT_IMM_LATE, /* polled only `span` later */
    HLG_FAULT_IMM_STALE, /* an immediate of an earlier generation of that slot comes again; an occasion
                            is an event of a slot of which one is known */
    /* of frames that are sent */
    HLG_FAULT_FRAME_DELAY, /* it, and so all behind it, `span` later */
    HLG_FAULT_FRAME_DROP,  /* lost, and the connection with it: channels are streams */
    /* of nodes */
    HLG_FAULT_KILL, /* its endpoints and channels are gone; what it had posted below may still land */
    HLG_FAULT_FREEZE, /* it does nothing for `span`, then goes on as if nothing had been: the zombie.
                         Its clock stands meanwhile, so that nothing is missed by who drives it on */
    HLG_FAULT_PARTITION, /* nothing passes between node and peer, either way, for `span`; then all that
                            waited does, in order. What was posted below before still lands */
    HLG_FAULT_HALF_OPEN,   /* nothing passes from node to peer, for `span`; the other way does */
    HLG_FAULT_SLOW,        /* a rail moves `rate` bytes/s at most, for `span` */
    HLG_FAULT_CLOCK_STALL, /* its clock stands for `span`, then jumps to where it ought to be */
    HLG_FAULT_CLOCK_JUMP,  /* its clock is `span` ahead from now on */
    HLG_FAULT_CLOSE_FAILS, /* close of an endpoint says -HLG_EIO: its pages are POISONED. Below it
                              stays open, until it is freed and `span` is over, or its node is
                              killed or restarted: writes still land.
                              An occasion is a close */
    HLG_FAULT_KINDS,
};

#define HLG_FAULT_ANY UINT32_MAX

/* One thing that goes wrong. Of a field that a kind does not know: HLG_FAULT_ANY, or 0. */
struct hlg_fault_rule {
    uint32_t kind; /* enum hlg_fault_kind */
    uint32_t node; /* that writes, sends, receives the immediate, dies…; HLG_FAULT_ANY */
    uint32_t peer; /* at the other end; HLG_FAULT_ANY, which alone fits one that is unknown */
    uint32_t lane; /* of `node`; HLG_FAULT_ANY */
    uint32_t rail;
    /* When: at each occasion with this chance (1..1000000), or else from occasion `nth` on (from 1)
       that fits, or else from time `at` on, 0: at once. Faults of nodes know ppm 0 and nth 0 only,
       and begin by themselves, within any call. */
    uint32_t ppm;
    uint64_t nth;
    hlg_time at;   /* since the first hlg_fault_fabric, by the clock below */
    hlg_time span; /* drawn evenly from [span, span_max]; span_max below span: span. HLG_TIME_NEVER:
                      until the rule is removed, or calm */
    hlg_time span_max;
    uint64_t rate;  /* SLOW */
    uint32_t count; /* how often at most; 0: without end (nth, at: once) */
};

struct hlg_fault_config {
    uint64_t seed;
    uint32_t nodes;
    uint32_t rules_max;
    uint32_t endpoints_max; /* open at a time, all nodes together */
    uint32_t peers_max;     /* of one endpoint, as of the one below */
    uint32_t held_max; /* pieces, and immediates, that wait at one endpoint, a quarter of it for
                               one peer; more are not delayed, or refused where they cannot pass */
    uint32_t
        late_bytes_max;  /* longest piece that FAIL_LATE can keep a copy of; 0: it is not used */
    uint32_t frames_max; /* frames that wait at one end of a channel */
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
 * The fabric of a node, over another one, which stays the caller's and must outlive the decorator, or be
 * replaced by another call when no endpoint is open. All nodes' fabrics must have one clock. Same
 * capabilities, but: no `ready`, and no wait descriptor while something waits. `open` says -HLG_ESTATE
 * while the node is dead, -HLG_ELIMIT beyond endpoints_max. A shadow of DUPLICATE and a copy of FAIL_LATE
 * need one write and one registration more below than the caller sees.
 *
 * A dead node's endpoints give nothing but what close reports. peer_close below waits for pieces that
 * wait here. Returns 0 or -HLG_EINVAL.
 */
int hlg_fault_fabric(struct hlg_fault *fault, uint32_t node, struct hlg_fabric *below,
                     struct hlg_fabric **out);

/* An end of a channel from `node` to `peer` (or HLG_FAULT_ANY: not known yet); owns the one below, also
 * on failure. Returns 0, -HLG_EINVAL, -HLG_ELIMIT beyond channels_max, -HLG_ESTATE when node is dead. */
int hlg_fault_channel(struct hlg_fault *fault, uint32_t node, uint32_t peer,
                      struct hlg_channel *below, struct hlg_channel **out);

/* Adds a rule; its number, or -HLG_EINVAL with a sentence (what cannot be), -HLG_ELIMIT. A fault of a
 * node that is due begins within the call, if a fabric was given. `error` may be NULL. A rule that is
 * over, since it struck `count` times or its span ended, gives its place back. */
int hlg_fault_add(struct hlg_fault *fault, const struct hlg_fault_rule *rule, char *error,
                  size_t error_bytes);
/* Removes a rule and ends its fault. What waits stays; a rule that is over is no harm. */
void hlg_fault_remove(struct hlg_fault *fault, uint32_t rule);
/* Ends all faults under way and takes all rules away: what waits passes, clocks run, partitions heal.
 * Who was killed stays so. */
void hlg_fault_calm(struct hlg_fault *fault);

/*
 * Adds the rules of a script, all or none. One rule a line, `#` begins a comment:
 *
 *     KIND [node N] [peer N] [lane N] [rail N] [ppm N | nth N | at TIME]
 *          [span TIME[..TIME] | span forever] [rate SIZE/s] [count N]
 *
 * KIND is the constant's name in lower case with `-`: `fail-before node 0 nth 3`. Times need units (ns us
 * ms s), rates too (B/s kB/s MB/s GB/s KiB/s MiB/s GiB/s). Returns 0, or -HLG_EINVAL with a sentence
 * that names the line, the word and what fits there.
 */
int hlg_fault_script(struct hlg_fault *fault, const char *text, char *error, size_t error_bytes);

/* When something that is held, or a fault of a node, is next due, by the clock below: on a virtual clock
 * whoever drives it must come back then, and poll. Not later than now: poll now. What a frozen node holds
 * and what the one below refused is due at no time. HLG_TIME_NEVER: nothing is. */
hlg_time hlg_fault_deadline(const struct hlg_fault *fault);

/* A new incarnation of a node, which is another process: if it was killed it can be opened again, what froze
 * is over, and what closes that failed had left open is closed. Call it also where a node ended in order
 * and its memory is used again. */
void hlg_fault_restart(struct hlg_fault *fault, uint32_t node);
bool hlg_fault_alive(const struct hlg_fault *fault, uint32_t node);
bool hlg_fault_frozen(const struct hlg_fault *fault, uint32_t node);

/* The word that scripts call a kind by: "delay". kind < HLG_FAULT_KINDS. */
const char *hlg_fault_name(uint32_t kind);

/* Counters since create. */
struct hlg_fault_stats {
    uint64_t hits[HLG_FAULT_KINDS]; /* how often each did something */
    uint64_t held;                  /* things waiting now */
};
/* As of now. */
void hlg_fault_stats(const struct hlg_fault *fault, struct hlg_fault_stats *stats);

/* Whether that byte is of a copy that FAIL_LATE made: what a landing reads it from is no page. */
bool hlg_fault_owns(const struct hlg_fault *fault, const void *memory);

/* Recount what is held. Returns 0, or the number of the check that failed. */
int hlg_fault_check(const struct hlg_fault *fault);

#ifdef __cplusplus
}
#endif

#endif
