/*
 * Numbered notes: what the core saw that is worth a line in the log. `a`, `b` and `c` of struct
 * hlg_note mean what the comment says; the driver makes the text.
 *
 * The last ones, HLG_NOTE_STEP_*, are the protocol's steps: a few for each request and session, none for a
 * page or a piece. Tests stop a process at one, or count them. They are logged at debug level and never
 * take a warning's room.
 */
#ifndef HALAGE_CORE_NOTE_H
#define HALAGE_CORE_NOTE_H

enum hlg_note_code {
    HLG_NOTE_NONE = 0,
    HLG_NOTE_SESSION_UP,         /* a: node, b: incarnation */
    HLG_NOTE_SESSION_REFUSED,    /* a: enum hlg_refusal_code */
    HLG_NOTE_SESSION_DOWN,       /* a: enum session_end, b: negated error */
    HLG_NOTE_SESSION_REPLACED,   /* a: node; a new HELLO of the same node ended this session */
    HLG_NOTE_SESSION_SHARED,     /* a: domain; ended because a peer of the same fence domain did */
    HLG_NOTE_MESSAGE_UNEXPECTED, /* a: kind, b: session state */
    HLG_NOTE_OUTBOX_FULL,        /* a: messages waiting; the session ends */
    HLG_NOTE_REQUEST_REFUSED,    /* a: number, b: enum hlg_reason, c: which check (source line) */
    HLG_NOTE_REQUEST_STOPPED,    /* a: number, b: enum hlg_reason, c: pieces posted */
    HLG_NOTE_CANCEL_UNKNOWN,     /* a: number; not open, so FENCED at once */
    HLG_NOTE_WRITE_FAILED,       /* a: number, b: pieces, c: negated error */
    HLG_NOTE_LAYER_UNANNOUNCED,  /* a: word, b: value */
    HLG_NOTE_IMM_STALE,          /* a: immediate, b: pieces; an old generation */
    HLG_NOTE_IMM_UNKNOWN,     /* a: immediate, b: pieces; a slot never used, or of another domain */
    HLG_NOTE_IMM_EARLY,       /* a: number, b: pieces; before its REQUEST was sent */
    HLG_NOTE_IMM_EXCESS,      /* a: number, b: expected, c: counted */
    HLG_NOTE_IMM_LATE,        /* a: number, b: pieces; after the request had failed */
    HLG_NOTE_PIECES_DIFFER,   /* a: number, b: own count, c: peer's count */
    HLG_NOTE_ANSWER_UNKNOWN,  /* a: kind, b: number; of a request that is over */
    HLG_NOTE_ANSWER_FOREIGN,  /* a: kind, b: number, c: incarnation; of another run of the peer */
    HLG_NOTE_FENCE_TIMEOUT,   /* a: number; the fence domain is closed instead */
    HLG_NOTE_PAGES_POISONED,  /* a: number, b: pages */
    HLG_NOTE_CREDIT_BACKWARD, /* a: lane, b: rail, c: pieces; a CREDIT that makes no sense
                                 ends the session */
    HLG_NOTE_GRANT_BACKWARD, /* a: requests, b: pages, c: prompt bytes; a CREDIT that makes no sense
                                 ends the session */
    HLG_NOTE_GRANT_EXCEEDED, /* a: number, b: how often so far; REJECTed. At each power of two */
    HLG_NOTE_SUBMIT_TOO_LARGE, /* a: enum note_size, b: asked, c: what the peer takes at most */
    HLG_NOTE_SUBMIT_SOURCES,   /* a: rank of the prefillers', b: how many of the named ones host it;
                                 a is HLG_RANKS_MAX when they do not shard alike */

    HLG_NOTE_STEP_FIRST,                            /* none; those that follow are steps */
    HLG_NOTE_STEP_HELLO_SENT = HLG_NOTE_STEP_FIRST, /* a: session; the channel took it, as below */
    HLG_NOTE_STEP_GREETED,                          /* a: node, b: incarnation; its HELLO is good */
    HLG_NOTE_STEP_CLOSING, /* a: node; the session is over, its endpoints are not closed yet */
    HLG_NOTE_STEP_CLOSED,  /* a: node; they are, and nothing of it can land */
    /* decode */
    HLG_NOTE_STEP_REQUEST_WAITS, /* a: number; its peer's grant is used up */
    HLG_NOTE_STEP_REQUEST_SENT,  /* a: number */
    HLG_NOTE_STEP_ACCEPTED,      /* a: number, b: pieces */
    HLG_NOTE_STEP_FIRST_PIECE,   /* a: number; of any of the request's sources */
    HLG_NOTE_STEP_WHOLE,         /* a: number, of the first source; b: bytes */
    HLG_NOTE_STEP_CANCEL_SENT,   /* a: number */
    HLG_NOTE_STEP_SOURCE_FENCED, /* a: number, b: kind of message that said so; 0: none was needed */
    HLG_NOTE_STEP_PAGES_RETURNED, /* a: number, of the first source; b: pages */
    /* prefill; it stops with HLG_NOTE_REQUEST_STOPPED */
    HLG_NOTE_STEP_REQUESTED,    /* a: number, b: pieces */
    HLG_NOTE_STEP_ADMITTED,     /* a: number, b: cached tokens */
    HLG_NOTE_STEP_FIRST_POSTED, /* a: number, b: pieces */
    HLG_NOTE_STEP_ALL_POSTED,   /* a: number, b: pieces */
    HLG_NOTE_STEP_SENT,         /* a: number, b: pieces; the last write is done */
    HLG_NOTE_STEP_FENCED_SENT,  /* a: number, b: pieces */
    HLG_NOTE_COUNT,
};

/* What of a SUBMIT no peer's HELLO leaves room for. */
enum note_size {
    NOTE_SIZE_FRAME = 1,
    NOTE_SIZE_PROMPT,
    NOTE_SIZE_PAGES,
    NOTE_SIZE_PROMPT_GRANT,
};

#endif
