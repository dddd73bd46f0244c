/*
 * What a storm can draw, what looks at it, and what can be planted to see that it looks; each with its
 * name. A kind is switched off by its name (`--without`); its draws are made all the same.
 */
#ifndef HALAGE_TESTS_DST_KINDS_H
#define HALAGE_TESTS_DST_KINDS_H

#include <halage/base.h>

enum storm_kind {
    /* faults of the network; the loop draws some, the decorator (transport/fault.h) others or both */
    KIND_DELAY,
    KIND_REORDER,
    KIND_DUPLICATE,
    KIND_REFUSE,
    KIND_PARTIAL,
    KIND_FAIL_BEFORE,
    KIND_FAIL_AFTER,
    KIND_FAIL_LATE,
    KIND_DROP,
    KIND_KILL,
    KIND_BREAK,
    KIND_IMM_LATE,
    KIND_IMM_STALE,
    KIND_FRAME_DELAY,
    KIND_FRAME_DROP,
    KIND_FREEZE,
    KIND_PARTITION,
    KIND_HALF_OPEN,
    KIND_SLOW,
    KIND_CLOCK_STALL,
    KIND_CLOCK_JUMP,
    KIND_CLOSE_FAILS,
    /* what engines do */
    KIND_REJECT,     /* a prefill engine will not */
    KIND_GIVE_UP,    /* either engine cancels */
    KIND_ABORT,      /* a forward is aborted */
    KIND_DEADLINE,   /* a short TTL */
    KIND_DISCONNECT, /* an engine ends a session */
    KIND_STRANGER,   /* somebody connects, says nothing and goes */
    KIND_TWICE,      /* a decoder dials again though its session is up */
    KIND_DRAIN,      /* a node is taken out and comes back; prefillers DRAIN */
    KIND_VERSION,    /* a node runs another model for a while: refused */
    /* what makes a world unlike an easy one */
    KIND_SHARE,        /* a request has two or three sources, which share the ranks */
    KIND_TINY,         /* limits that are run into all the time */
    KIND_FLUSH,        /* landed bytes need a FLUSH, which takes its time and may fail */
    KIND_LATE,         /* decode engines release READY requests late */
    KIND_FICKLE,       /* engines give most requests up */
    KIND_OLD_ADDRESS,  /* endpoints have the addresses of those before them: keys alone tell */
    KIND_ACKNOWLEDGED, /* writes complete before they are placed */
    KIND_DENSE,        /* pages without gaps, many in a row: written several at once */
    KIND_COUNT,
};

/* Bits of enum storm_kind. */
typedef uint64_t storm_kinds;

#define STORM_KIND(kind) (1ull << (kind))

const char *kind_name(uint32_t kind);
/* Parse "delay,kill". Returns 0, or -HLG_EINVAL with *bad the first name that is none. */
int kinds_parse(const char *text, storm_kinds *kinds, char *bad, size_t bad_bytes);
/* "delay,kill"; "" for none. */
void kinds_text(storm_kinds kinds, char *text, size_t text_bytes);

enum storm_checker {
    CHECK_NONE = 0,
    CHECK_TARGET,   /* a landing in a page that its engine holds free, or in none (I1) */
    CHECK_OWNER,    /* a landing in a page of another request than the one that it belongs to */
    CHECK_SOURCE,   /* a source page read after it was given back (I1b) */
    CHECK_LAYER,    /* a piece posted before its layer was computed */
    CHECK_BYTES,    /* READY with a wrong byte */
    CHECK_LAST,     /* the prompt's last token was prefilled */
    CHECK_COUNT,    /* READY or SENT by another count than expected, or excess */
    CHECK_NOTICE,   /* a notice out of place, or a second terminal one */
    CHECK_PAGES,    /* a page lost, or given back twice */
    CHECK_REST,     /* at rest a machine holds what its engine does not */
    CHECK_BOUND,    /* a table, queue or number of endpoints beyond its limit */
    CHECK_WINDOW,   /* immediates beyond the credit */
    CHECK_CALL,     /* a sound call was refused */
    CHECK_PEER,     /* a session that must not be, or none though it must */
    CHECK_LIVE,     /* something open beyond its bound after the calm */
    CHECK_PROBE,    /* a request of the calm that did not become READY */
    CHECK_REPEAT,   /* the second run of a seed differed */
    CHECK_MEMORY,   /* memory not given back */
    CHECK_MACHINES, /* an assertion of the code, or of hlg_pump_check() */
    CHECKER_COUNT,
};

const char *checker_name(uint32_t checker);

/* Faults planted in the fake engines or between a pump and its network. */
enum storm_plant {
    PLANT_NONE = 0,
    PLANT_TARGET_FREED,  /* decode engine reuses pages at FAILED rather than RETURNED */
    PLANT_CONTEXT_FREED, /* the same of context slots alone */
    PLANT_SOURCE_FREED,  /* prefill engine reuses pages at the last chunk */
    PLANT_WRONG_PAGE,    /* a write goes to the page before the one that it should */
    PLANT_LAYER_EARLY,   /* the counter ticks before the layer is computed */
    PLANT_WRONG_BYTE,    /* one byte of the last layer is computed wrong */
    PLANT_LAST_TOKEN,    /* the prompt's last token is prefilled with the others */
    PLANT_COUNT_MORE,    /* an immediate counts one piece too many */
    PLANT_NOTICE_TWICE,  /* a terminal notice is told twice */
    PLANT_PAGE_LOST,     /* decode engine forgets to take one page back */
    PLANT_PAGE_TWICE,    /* decode engine takes a page back twice */
    PLANT_NO_RELEASE,    /* decode engine forgets a READY request: its slots leak */
    PLANT_NO_END,        /* prefill engine forgets to end a forward */
    PLANT_ENDPOINT_LEAK, /* an endpoint is never freed */
    PLANT_WIDE_WINDOW,   /* the completion queue is said to be deeper than it is */
    PLANT_POISON_REUSED, /* decode engine reuses poisoned pages */
    PLANT_ONE_MODEL,     /* a node of another model greets as if it had the same */
    PLANT_NO_DRAIN,      /* a prefiller goes without DRAIN */
    PLANT_DONE_LOST,     /* a completion is never told */
    PLANT_ASLEEP,        /* a node does nothing more once the storm is over */
    PLANT_DEAF,          /* prefill engine never admits in the calm */
    PLANT_RANDOM,        /* an engine does something else each time */
    PLANT_MEMORY_LEAK,   /* an engine forgets memory */
    PLANT_ABORT,         /* an assertion fails */
    PLANT_OLD_KEYS,      /* keys are the same in each incarnation, at the same address */
    PLANT_SAID_PLACED,   /* a transport that acknowledges says that it places */
    PLANT_COUNT,
};

const char *plant_name(uint32_t plant);
/* The checker that must see a plant. */
enum storm_checker plant_checker(uint32_t plant);
/* Kinds that are on in all its worlds: without them it could do no harm. */
storm_kinds plant_kinds(uint32_t plant);
/* By name or number. Returns 0 or -HLG_EINVAL. */
int plant_parse(const char *text, uint32_t *plant);

#endif
