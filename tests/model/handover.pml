/*
 * The hand-over's safety, as docs/protocol.md gives it: one decoder, two prefillers that both write for
 * each request, one page that is lent to one request after the other.
 *
 *   safe    a write that lands finds the page still lent to the request that it was posted for
 *   ready   of a request that is READY all pieces have landed
 *   ends    where nothing more can happen no request is open or quarantined: each FAILED one was RETURNED.
 *           Every step uses something up (a request, a piece, a session, a fault), so that there are no
 *           cycles: every run stops, and how it stops is what "eventually" means here
 *
 * The fabric is unordered: a piece lands whenever it likes until the decoder's endpoints of its session are
 * closed, also when its write was reported as failed or its writer died. Its immediate comes some time
 * after. Channels are streams that belong to a session; what is unread when it ends is dropped.
 *
 * ACKNOWLEDGED: a write may complete well before it lands, as on efa and verbs. FENCED then says how many
 * pieces there were, and is believed when as many were counted. SAYS_PLACED: the prefillers take such a write for
 * placed all the same, and FENCED awaits nothing: then the decoder ends the session.
 *
 * FAULTS counts ended sessions, restarts and failed writes. Each other macro takes a guard away:
 * tests/model/run.py tries each and wants the counterexample. Comments name the functions that a step
 * stands for, in decode.c (D), prefill.c (P) and session.c (S).
 */
#ifndef SOURCES
#define SOURCES 2
#endif
#ifndef REQUESTS
#define REQUESTS 2 /* at most 2, or write more steps below */
#endif
#ifndef SESSIONS
#define SESSIONS 2 /* at most 2, likewise */
#endif
#ifndef PIECES
#define PIECES 1 /* of each source; at most 2, likewise */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif

/* Requests and sessions count from 1. */
#define AT(r, s)    ((r) * SOURCES + (s))
#define IN(s, k)    ((s) * (SESSIONS + 1) + (k))
#define OF(r, s, i) (((r) * SOURCES + (s)) * PIECES + (i))

mtype = { REQUEST, CANCEL, REJECT, FENCED, FAILED };
/* kind, number, decoder's incarnation, session that CANCEL names (or REQUEST's index, or FENCED's pieces), session
   that carries it */
chan to_prefill[SOURCES] = [2] of { mtype, byte, byte, byte, byte };
chan to_decode[SOURCES] = [2] of { mtype, byte, byte, byte, byte };

/* Sessions, seen from either side. */
#define UP     1
#define ENDED  2 /* the decoder's: its endpoints are not closed yet */
#define CLOSED 3
byte decode_session[SOURCES * (SESSIONS + 1)];
byte prefill_session[SOURCES * (SESSIONS + 1)];
byte serial[SOURCES];
bool landable[SOURCES * (SESSIONS + 1)]; /* the decoder's endpoints of that session are open */
byte faults = FAULTS;

/* The decoder: the request that was submitted last is the only one that may hold the page. */
#define OPEN        1 /* PLANNED, SENT, RECEIVING */
#define READY       2
#define QUARANTINED 3
byte page; /* request that it is lent to; 0: the engine's */
byte state;
byte last;
byte incarnation = 1;
byte base; /* requests of earlier incarnations: numbers begin at 1 again */
byte carried[SOURCES]; /* by which session */
bool sent[SOURCES];
bool fenced[SOURCES];
bool cancel[SOURCES]; /* a CANCEL waits to be sent */
byte counted[SOURCES];
byte awaited[SOURCES]; /* pieces that FENCED spoke for, plus 1; 0: it has not come */

/* The prefillers. */
#define RUNNING  1
#define STOPPING 2
byte asked[(REQUESTS + 1) * SOURCES];
byte asked_in[(REQUESTS + 1) * SOURCES];
byte answer_in[(REQUESTS + 1) * SOURCES];
byte number[(REQUESTS + 1) * SOURCES];
byte asker[(REQUESTS + 1) * SOURCES]; /* incarnation */
byte posted[(REQUESTS + 1) * SOURCES];
byte outstanding[(REQUESTS + 1) * SOURCES];
bool failed[(REQUESTS + 1) * SOURCES];

/* Pieces. */
#define FLYING 1
#define LANDED 2 /* not yet reported */
#define LATE   3 /* reported as failed, or nobody is left to report to: it may land all the same. Or acknowledged */
#define GONE   4
byte piece[(REQUESTS + 1) * SOURCES * PIECES];
byte piece_in[(REQUESTS + 1) * SOURCES * PIECES];  /* session */
bool immediate[(REQUESTS + 1) * SOURCES * PIECES]; /* landed, not yet counted */
byte landed[(REQUESTS + 1) * SOURCES];

#ifndef BREADTH_FIRST
hidden /* which a breadth-first search does not allow */
#endif
byte i, j, m, q; /* of loops within one step */

#ifdef QUIET
#define SAY(text, a, b) skip
#else
#define SAY(text, a, b) printf(text, a, b)
#endif

/* ---- the decoder -------------------------------------------------------------------------- */

#ifdef FIRST_FENCED_IS_ENOUGH
#define IS_SETTLED (fenced[0] || fenced[SOURCES - 1])
#else
#define IS_SETTLED (fenced[0] && fenced[SOURCES - 1])
#endif

/* D settle(): pages return once every source is fenced. */
inline settle()
{
    if
    :: state == QUARANTINED && IS_SETTLED ->
        state = 0;
        page = 0;
        for (i : 0 .. SOURCES - 1) {
            cancel[i] = false
        }
        SAY("decode     RETURNED %d%c\n", last, ' ')
    :: else
    fi
}

/* D fail(): one terminal notice; CANCEL to each source that may have seen the REQUEST. */
inline fail()
{
    state = QUARANTINED;
    SAY("decode     FAILED %d%c\n", last, ' ');
    for (i : 0 .. SOURCES - 1) {
        if
        :: !sent[i] -> fenced[i] = true /* its REQUEST is dropped unsent */
        :: sent[i] && !fenced[i] && awaited[i] == 0 -> cancel[i] = true
        :: else
        fi
    }
    settle()
}

/* S sessions_end(), D for_each_source(closed false). */
inline decode_end(s, k)
{
    decode_session[IN(s, k)] = ENDED;
    SAY("decode     ends session %d with prefiller %d\n", k, s);
    if
    :: state == OPEN && carried[s] == k -> fail()
    :: else
    fi
}

/* D on_closed(), status 0: its endpoints of the session are closed, so that nothing lands any more. */
inline decode_close(s, k)
{
    decode_session[IN(s, k)] = CLOSED;
#ifndef NO_DOMAIN_CLOSE
    landable[IN(s, k)] = false;
    for (i : 1 .. REQUESTS) {
        for (j : 0 .. PIECES - 1) {
            if
            :: piece_in[OF(i, s, j)] == k ->
                immediate[OF(i, s, j)] = false;
                if
                :: piece[OF(i, s, j)] == LATE -> piece[OF(i, s, j)] = GONE
                :: else
                fi
            :: else
            fi
        }
    }
#endif
    SAY("decode     closed its endpoints of session %d with prefiller %d\n", k, s);
    if
    :: (state == QUARANTINED || state == READY) && carried[s] == k ->
        fenced[s] = true;
        cancel[s] = false;
        settle()
    :: else
    fi
}

/* An answer counts in the session that carried the REQUEST. */
#ifdef HEED_ANY_SESSION
#define IS_HEEDED(s, k) true
#else
#define IS_HEEDED(s, k) (carried[s] == (k))
#endif

/* What FENCED speaks for, and whether it cannot be believed of this transport. */
#ifdef SAYS_PLACED
#define SPOKEN(pieces) 0
#else
#define SPOKEN(pieces) pieces
#endif
#if defined(SAYS_PLACED) && !defined(NOTHING_BELIEVED)
#define IS_IMPOSSIBLE(s, kind) (kind == FENCED && awaited[s] == 0 && !fenced[s])
#else
#define IS_IMPOSSIBLE(s, kind) false
#endif

/* D take_fence(), believe(). */
#if defined(ACKNOWLEDGED) && !defined(FENCED_UNCOUNTED)
#define IS_COUNTED(s) (awaited[s] > 0 && counted[s] >= awaited[s] - 1)
#else
#define IS_COUNTED(s) (awaited[s] > 0)
#endif

/* D on_answer(), on_end_of_source(). */
inline decode_answer(s, kind, n, pieces, k)
{
    if
    :: decode_session[IN(s, k)] == UP && base + n == last && sent[s] &&
           IS_HEEDED(s, k) && (state == OPEN || state == QUARANTINED) ->
        if
        :: IS_IMPOSSIBLE(s, kind) -> decode_end(s, k)
        :: else ->
            awaited[s] = (kind == FENCED && awaited[s] == 0 -> (pieces) + 1 : awaited[s]);
            fenced[s] = fenced[s] || kind == REJECT || IS_COUNTED(s);
            if
            :: state == OPEN -> fail()
            :: else -> settle()
            fi
        fi
    :: else
    fi
}

/* D on_imm(), count(), complete(): generation r of the slot. */
inline count_immediate(s, r)
{
    if
#ifdef NO_GENERATION
    :: state == OPEN ->
#else
    :: state == OPEN && r == last ->
#endif
        counted[s]++;
        if
        :: counted[0] == PIECES && counted[SOURCES - 1] == PIECES ->
            state = READY;
            SAY("decode     READY %d%c\n", last, ' ');
            assert(landed[AT(last, 0)] == PIECES && landed[AT(last, SOURCES - 1)] == PIECES) /* ready */
        :: else
        fi
#ifdef ACKNOWLEDGED
    :: state == QUARANTINED && r == last ->
        counted[s]++;
        fenced[s] = fenced[s] || IS_COUNTED(s);
        settle()
#endif
    :: else
    fi
}

/* All that ends with a process; what is in memory of its own cannot be landed in by anyone. */
inline decode_restart()
{
    SAY("decode     dies and comes back as incarnation %d%c\n", incarnation + 1, ' ');
    for (m : 0 .. SOURCES - 1) {
        for (q : 1 .. SESSIONS) {
            if
            :: decode_session[IN(m, q)] == UP || decode_session[IN(m, q)] == ENDED ->
                decode_close(m, q)
            :: else
            fi;
            landable[IN(m, q)] = false
        }
        sent[m] = false;
        cancel[m] = false;
        awaited[m] = 0;
        fenced[m] = false
    }
    state = 0;
    page = 0;
    base = last;
    incarnation++
}

active proctype decode()
{
end:
    do
    /* D on_submit(): all or none of the pages, all sources up. */
    :: atomic { page == 0 && last < REQUESTS && serial[0] > 0 && serial[SOURCES - 1] > 0 &&
               decode_session[IN(0, serial[0])] == UP &&
               decode_session[IN(SOURCES - 1, serial[SOURCES - 1])] == UP ->
            last++;
            page = last;
            state = OPEN;
            for (i : 0 .. SOURCES - 1) {
                carried[i] = serial[i];
                sent[i] = false;
                fenced[i] = false;
                cancel[i] = false;
                awaited[i] = 0;
                counted[i] = 0
            }
            SAY("decode     SUBMIT %d%c\n", last, ' ')
        }
    /* The engine cancels, or the TTL is over. */
    :: atomic { state == OPEN -> fail() }
    /* D on_request_event(): RELEASE. */
    :: atomic { state == READY ->
            state = 0;
            page = 0;
            SAY("decode     RELEASE %d%c\n", last, ' ')
        }
    :: atomic { faults > 0 && serial[0] > 0 -> faults--; decode_restart() }
    od
}

/* ---- the prefillers ----------------------------------------------------------------------- */

/* P stop(): post nothing more. */
inline stop(r, s)
{
    if
    :: asked[AT(r, s)] == RUNNING -> asked[AT(r, s)] = STOPPING
    :: else
    fi
}

/* S sessions_end(), P stop_all_of(). */
inline prefill_end(s, k)
{
    prefill_session[IN(s, k)] = ENDED;
    SAY("prefill %d  ends session %d\n", s, k);
    for (i : 1 .. REQUESTS) {
        if
        :: asked_in[AT(i, s)] == k -> stop(i, s)
        :: else
        fi
    }
}

inline forget(r, s)
{
    asked[AT(r, s)] = 0;
    asked_in[AT(r, s)] = 0;
    answer_in[AT(r, s)] = 0;
    number[AT(r, s)] = 0;
    asker[AT(r, s)] = 0
}

inline prefill_restart(s)
{
    SAY("prefill %d  dies and comes back%c\n", s, ' ');
    for (i : 1 .. SESSIONS) {
        if
        :: prefill_session[IN(s, i)] == UP -> prefill_session[IN(s, i)] = ENDED
        :: else
        fi
    }
    for (i : 1 .. REQUESTS) {
        forget(i, s);
        outstanding[AT(i, s)] = 0;
        for (j : 0 .. PIECES - 1) {
            if
            :: piece[OF(i, s, j)] == FLYING -> piece[OF(i, s, j)] = LATE
            :: piece[OF(i, s, j)] == LANDED -> piece[OF(i, s, j)] = GONE
            :: else
            fi
        }
    }
}

#ifdef NO_INCARNATION
#define IS_ASKERS(r, s, inc) true
#else
#define IS_ASKERS(r, s, inc) (asker[AT(r, s)] == (inc))
#endif
#define IS_NAMED(r, s, n, inc) \
    (asked[AT(r, s)] != 0 && number[AT(r, s)] == (n) && IS_ASKERS(r, s, inc))

#ifdef FENCED_OF_OLD_SESSION
#define VOUCHES(named, k) true
#else
#define VOUCHES(named, k) ((named) == (k))
#endif

#if defined(ACKNOWLEDGED) && !defined(FORGOTTEN_UNCOUNTED)
#define FORGOTTEN PIECES /* it was SENT */
#else
#define FORGOTTEN 0
#endif

/* P on_cancel(): stop it; or FENCED at once for what this session is done with. Older sessions: none. */
inline on_cancel(s, n, inc, named, k)
{
    q = 0;
    for (i : 1 .. REQUESTS) {
        if
        :: q == 0 && IS_NAMED(i, s, n, inc) -> q = i
        :: else
        fi
    }
    if
    :: q != 0 ->
        answer_in[AT(q, s)] = k;
        stop(q, s)
    :: q == 0 && VOUCHES(named, k) ->
        SAY("prefill %d  FENCED %d, not open\n", s, n);
        to_decode[s] ! FENCED(n, inc, SPOKEN(FORGOTTEN), k)
    :: else
    fi
}

#ifdef FENCED_WHILE_OUTSTANDING
#define IS_QUIET(r, s) true
#else
#define IS_QUIET(r, s) (outstanding[AT(r, s)] == 0)
#endif
#ifdef FENCED_THOUGH_FAILED
#define IS_WELL(r, s) true
#else
#define IS_WELL(r, s) (!failed[AT(r, s)])
#endif

/* P settle(), say_fenced(): FENCED vouches for writes that all completed well; else the session ends. */
inline say_fenced(r, s)
{
    if
    :: IS_WELL(r, s) && prefill_session[IN(s, answer_in[AT(r, s)])] == UP ->
        SAY("prefill %d  FENCED %d\n", s, r);
        to_decode[s] ! FENCED(number[AT(r, s)], asker[AT(r, s)], SPOKEN(posted[AT(r, s)]), answer_in[AT(r, s)])
    :: !IS_WELL(r, s) && prefill_session[IN(s, asked_in[AT(r, s)])] == UP ->
        prefill_end(s, asked_in[AT(r, s)])
    :: else
    fi;
    forget(r, s)
}

/* Whether what a request has to say has room in its channel. */
#define CAN_SAY(s) nfull(to_decode[s])

#define STEPS_OF_REQUEST(r)                                                                       \
    /* P post_next(), post_taken() */                                                             \
    :: atomic { asked[AT(r, s)] == RUNNING && posted[AT(r, s)] < PIECES ->                        \
            piece[OF(r, s, posted[AT(r, s)])] = FLYING;                                           \
            piece_in[OF(r, s, posted[AT(r, s)])] = asked_in[AT(r, s)];                            \
            posted[AT(r, s)]++;                                                                   \
            outstanding[AT(r, s)]++;                                                              \
            SAY("prefill %d  posts a piece of %d\n", s, r)                                        \
        }                                                                                         \
    /* P on_done() with an error, on_give_up(), on_forward_over(): STOPPING, FAILED */            \
    :: atomic { asked[AT(r, s)] == RUNNING && CAN_SAY(s) && (failed[AT(r, s)] || s == 0 && faults > 0) -> \
            faults = (failed[AT(r, s)] -> faults : faults - 1);                                   \
            stop(r, s);                                                                           \
            SAY("prefill %d  FAILED %d\n", s, r);                                                 \
            if                                                                                    \
            :: prefill_session[IN(s, answer_in[AT(r, s)])] == UP ->                               \
                to_decode[s] ! FAILED(number[AT(r, s)], asker[AT(r, s)], 0, answer_in[AT(r, s)])  \
            :: else                                                                               \
            fi                                                                                    \
        }                                                                                         \
    /* P settle(): SENT. The decoder is not told. */                                              \
    :: atomic { asked[AT(r, s)] == RUNNING && posted[AT(r, s)] == PIECES &&                       \
               outstanding[AT(r, s)] == 0 && !failed[AT(r, s)] ->                                 \
            forget(r, s);                                                                         \
            SAY("prefill %d  SENT %d\n", s, r)                                                    \
        }                                                                                         \
    :: atomic { asked[AT(r, s)] == STOPPING && IS_QUIET(r, s) && CAN_SAY(s) -> say_fenced(r, s) } \
    REJECT_STEP(r)

#ifdef REJECT_AFTER_WRITE
#define MAY_REJECT(r, s) true
#else
#define MAY_REJECT(r, s) (s == 0 && posted[AT(r, s)] == 0)
#endif
/* P on_reject(): the engine will not; only while it is ASKED. */
#define REJECT_STEP(r)                                                                           \
    :: atomic { asked[AT(r, s)] == RUNNING && MAY_REJECT(r, s) && CAN_SAY(s) &&                   \
               prefill_session[IN(s, asked_in[AT(r, s)])] == UP ->                                \
            SAY("prefill %d  REJECT %d\n", s, r);                                                 \
            to_decode[s] ! REJECT(number[AT(r, s)], asker[AT(r, s)], 0, asked_in[AT(r, s)]);      \
            forget(r, s)                                                                          \
        }

proctype prefill(byte s)
{
    mtype kind = REQUEST;
    byte n, inc, named, k;
end:
    do
    :: atomic { CAN_SAY(s) && nempty(to_prefill[s]) ->
            to_prefill[s] ? kind(n, inc, named, k);
            if
            :: prefill_session[IN(s, k)] != UP /* unread of an ended session */
            :: prefill_session[IN(s, k)] == UP && kind == REQUEST ->
                q = named; /* which of all requests it is: for the model's own books */
                asked[AT(q, s)] = RUNNING;
                asked_in[AT(q, s)] = k;
                answer_in[AT(q, s)] = k;
                number[AT(q, s)] = n;
                asker[AT(q, s)] = inc
            :: prefill_session[IN(s, k)] == UP && kind == CANCEL -> on_cancel(s, n, inc, named, k)
            fi;
            kind = REQUEST;
            n = 0;
            inc = 0;
            named = 0;
            k = 0
        }
    STEPS_OF_REQUEST(1)
#if REQUESTS > 1
    STEPS_OF_REQUEST(2)
#endif
    :: atomic { faults > 0 && s == 0 && serial[s] > 0 -> faults--; prefill_restart(s) }
    od
}

/* ---- what is between them ----------------------------------------------------------------- */

#ifdef OLD_SESSION_SURVIVES
/* The decoder takes the new channel for the old one's continuation, and leaves its endpoints open. */
#define REPLACE_DECODE(s, k) \
    decode_session[IN(s, k)] = CLOSED; carried[s] = (carried[s] == (k) -> serial[s] + 1 : carried[s])
#else
#define REPLACE_DECODE(s, k) decode_end(s, k)
#endif

/* S on_hello(), replace(): a new HELLO of a node ends its older session, on either side. */
inline connect(s)
{
    for (m : 1 .. SESSIONS) {
        if
        :: decode_session[IN(s, m)] == UP -> REPLACE_DECODE(s, m)
        :: else
        fi;
        if
        :: prefill_session[IN(s, m)] == UP -> prefill_end(s, m)
        :: else
        fi
    }
    serial[s]++;
    decode_session[IN(s, serial[s])] = UP;
    prefill_session[IN(s, serial[s])] = UP;
    landable[IN(s, serial[s])] = true;
    SAY("           session %d with prefiller %d is up\n", serial[s], s)
}

#define IS_HEALTHY(s) (serial[s] > 0 && decode_session[IN(s, serial[s])] == UP && \
                       prefill_session[IN(s, serial[s])] == UP)

/* Sources are alike: it is enough that one of them fails, and that the pieces of one take their time. */
#define SESSIONS_OF(s) ((s) == 0 || incarnation > 1 -> SESSIONS : 1)

#define STEPS_OF_SESSION(k)                                                                       \
    /* The channel ended: the other side's end of it, or its death, is noticed. */                \
    :: atomic { decode_session[IN(s, k)] == UP && prefill_session[IN(s, k)] == ENDED ->           \
            decode_end(s, k)                                                                      \
        }                                                                                         \
    :: atomic { prefill_session[IN(s, k)] == UP && decode_session[IN(s, k)] >= ENDED ->           \
            prefill_end(s, k)                                                                     \
        }                                                                                         \
    :: atomic { decode_session[IN(s, k)] == ENDED -> decode_close(s, k) }                         \
    /* D on_time(): FENCED did not come within fence_ns. Sooner, it is a fault: the next step. */  \
    :: atomic { state == QUARANTINED && !fenced[s] && carried[s] == k &&                          \
               decode_session[IN(s, k)] == UP && empty(to_prefill[s]) && empty(to_decode[s]) ->   \
            decode_end(s, k)                                                                      \
        }                                                                                         \
    :: atomic { faults > 0 && s == 0 && decode_session[IN(s, k)] == UP ->                         \
            faults--;                                                                             \
            decode_end(s, k)                                                                      \
        }

proctype session(byte s)
{
    mtype kind = REQUEST;
    byte n, inc, named, k;
end:
    do
    :: atomic { serial[s] < SESSIONS_OF(s) && !IS_HEALTHY(s) -> connect(s) }
    STEPS_OF_SESSION(1)
#if SESSIONS > 1
    STEPS_OF_SESSION(2)
#endif
    /* D fill_request() */
    :: atomic { state == OPEN && !sent[s] && decode_session[IN(s, carried[s])] == UP &&
               nfull(to_prefill[s]) ->
            sent[s] = true;
            SAY("decode     REQUEST %d to prefiller %d\n", last, s);
            to_prefill[s] ! REQUEST(last - base, incarnation, last, carried[s])
        }
    /* D send_answer() */
    :: atomic { cancel[s] && decode_session[IN(s, carried[s])] == UP && nfull(to_prefill[s]) ->
            cancel[s] = false;
            SAY("decode     CANCEL %d to prefiller %d\n", last, s);
            to_prefill[s] ! CANCEL(last - base, incarnation, carried[s], carried[s])
        }
    /* The same in a later session, of a request whose own has ended: this decoder does not do so, but the
       protocol lets it. */
    :: atomic { cancel[s] && decode_session[IN(s, carried[s])] == ENDED && carried[s] < serial[s] &&
               decode_session[IN(s, serial[s])] == UP && nfull(to_prefill[s]) ->
            cancel[s] = false;
            SAY("decode     CANCEL %d to prefiller %d, in a later session\n", last, s);
            to_prefill[s] ! CANCEL(last - base, incarnation, carried[s], serial[s])
        }
    :: atomic { to_decode[s] ? kind(n, inc, named, k) ->
            decode_answer(s, kind, n, named, k);
            kind = REQUEST;
            n = 0;
            inc = 0;
            named = 0;
            k = 0
        }
    od
}

/* A piece may land as long as the decoder's endpoints are open. */
#define CAN_LAND(r, s, i) \
    ((piece[OF(r, s, i)] == FLYING || piece[OF(r, s, i)] == LATE) && landable[IN(s, piece_in[OF(r, s, i)])])

#ifdef ACKNOWLEDGED
#define ACKNOWLEDGE_STEP(r, i)                                                                    \
    /* The other side has it, and nobody waits for it any more: it lands by and by. */            \
    :: atomic { piece[OF(r, s, i)] == FLYING && landable[IN(s, piece_in[OF(r, s, i)])] &&          \
               prefill_session[IN(s, piece_in[OF(r, s, i)])] == UP ->                             \
            piece[OF(r, s, i)] = LATE;                                                            \
            outstanding[AT(r, s)]--;                                                              \
            SAY("fabric     a piece of %d is acknowledged to prefiller %d\n", r, s)               \
        }
#else
#define ACKNOWLEDGE_STEP(r, i)
#endif

#define STEPS_OF_PIECE(r, i)                                                                      \
    :: atomic { CAN_LAND(r, s, i) ->                                                              \
            SAY("fabric     a piece of %d lands from prefiller %d\n", r, s);                      \
            assert(page == r); /* safe */                                                         \
            piece[OF(r, s, i)] = (piece[OF(r, s, i)] == FLYING -> LANDED : GONE);                 \
            landed[AT(r, s)]++;                                                                   \
            if                                                                                    \
            :: s > 0 && piece[OF(r, s, i)] == LANDED ->                                           \
                piece[OF(r, s, i)] = GONE;                                                        \
                outstanding[AT(r, s)]--;                                                          \
                count_immediate(s, r)                                                             \
            :: else -> immediate[OF(r, s, i)] = true                                              \
            fi                                                                                    \
        }                                                                                         \
    :: atomic { immediate[OF(r, s, i)] ->                                                         \
            immediate[OF(r, s, i)] = false;                                                       \
            count_immediate(s, r)                                                                 \
        }                                                                                         \
    :: atomic { piece[OF(r, s, i)] == LANDED ->                                                   \
            piece[OF(r, s, i)] = GONE;                                                            \
            outstanding[AT(r, s)]--                                                               \
        }                                                                                         \
    ACKNOWLEDGE_STEP(r, i)                                                                        \
    /* Reported as failed: by a fault, or because the writer closed its endpoints. */             \
    :: atomic { piece[OF(r, s, i)] == FLYING &&                                                   \
               (s == 0 && faults > 0 || prefill_session[IN(s, piece_in[OF(r, s, i)])] != UP) ->             \
            faults = (prefill_session[IN(s, piece_in[OF(r, s, i)])] == UP -> faults - 1 : faults); \
            piece[OF(r, s, i)] = (landable[IN(s, piece_in[OF(r, s, i)])] -> LATE : GONE);         \
            outstanding[AT(r, s)]--;                                                              \
            failed[AT(r, s)] = true;                                                              \
            SAY("fabric     a piece of %d fails at prefiller %d\n", r, s)                         \
        }

proctype fabric(byte s)
{
end:
    do
    STEPS_OF_PIECE(1, 0)
#if PIECES > 1
    STEPS_OF_PIECE(1, 1)
#endif
#if REQUESTS > 1
    STEPS_OF_PIECE(2, 0)
#if PIECES > 1
    STEPS_OF_PIECE(2, 1)
#endif
#endif
    od
}

/* Where nothing more can happen. */
active proctype end_of_all()
{
end:
    timeout -> assert(state == 0 && page == 0) /* ends */
}

init
{
    atomic {
        for (m : 0 .. SOURCES - 1) {
            run prefill(m);
            run session(m);
            run fabric(m)
        }
    }
}
