/*
 * The messenger: what an engine links. One a node; it runs the machine of prefill.h or decode.h, the
 * pump under it, and the threads they need.
 *
 * Rules for all calls below
 *
 * - Any thread may call. None blocks on the network or a lock that is held over I/O; a queue that is
 *   full answers -HLG_ELIMIT. Nothing is allocated after start. Exceptions are marked "before start":
 *   those are for one thread alone.
 * - What happens is reported by hlg_messenger_poll(), in order for one request and for one peer. No
 *   callback is needed; hlg_messenger_fd() becomes readable when there are reports.
 * - A request is named by a ticket (hlg_ticket). It is good from submit (decode) or the report
 *   REQUESTED (prefill) until hlg_messenger_release(), which the engine owes each ticket once, after
 *   its last report: READY, RETURNED or POISONED (decode), SENT, FENCED or POISONED (prefill). A
 *   ticket used later is found out (-HLG_ESTALE).
 * - Create after fork. In a child of the process that created it every call answers -HLG_EFORK.
 * - Calls return 0, a count or a number; where their comment names no other error, -HLG_EINVAL (an argument
 *   or the role is wrong), -HLG_ESTALE (the ticket is over), -HLG_ELIMIT (a queue is full: again later),
 *   -HLG_ESTATE (not started; "before start": started) or -HLG_EFORK. What is wrong by the state of a request
 *   alone is found later, and is a report: REFUSED.
 * - Structs begin with their size, which the caller sets to sizeof: one that was compiled with headers of
 *   another version is refused (-HLG_EINVAL). Commands and reports hold no pointers to state: they can be copied to
 *   another process.
 */
#ifndef HALAGE_MESSENGER_H
#define HALAGE_MESSENGER_H

#include "action.h"
#include "event.h"
#include "log.h"
#include "memory.h"
#include "places.h"
#include "transport.h"
#include "transport/sealed.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_messenger;

/* A request as its engine names it. 0 is none. */
typedef uint64_t hlg_ticket;

/* A session with another node as the engine names it: good from PEER_UP to PEER_DOWN, then never
 * again. HLG_NONE is none. */
typedef uint32_t hlg_peer;

struct hlg_messenger_config {
    size_t size;                                /* sizeof(struct hlg_messenger_config) */
    uint32_t role;                              /* enum hlg_role */
    struct hlg_limits limits;                   /* what create takes memory for */
    struct hlg_layout layout;                   /* of this node */
    uint8_t fingerprint[HLG_FINGERPRINT_BYTES]; /* of the model; must equal the peers' */
    uint64_t node;                              /* identity, kept over restarts; 0: drawn */

    /* Makes endpoints; from transport/ofi.h for instance. The caller's, until destroy returned; from
       start on only the core thread uses it. */
    struct hlg_fabric *fabric;

    /* "host:port", "[v6]:port", ":port" (all addresses), port 0: any; NULL: dial only. */
    const char *listen;
    hlg_time
        connect_ns; /* bound of one connect, name look-up included as far as libc lets it be; then,
                            once more, of a connection's handshake or first frame */

    /* [HLG_SEALED_KEY_BYTES] shared by all nodes that are to talk to each other: control frames are then
       authenticated and encrypted (transport/sealed.h), and limits.message_bytes_max is at least
       HLG_SEALED_HANDSHAKE_BYTES. NULL: none; then listening on, dialling to, or an endpoint on an
       address that is not loopback is refused. Copied, and wiped by destroy. */
    const uint8_t *key;
    bool allow_unauthenticated; /* without a key, talk to any address all the same */
    uint32_t
        waiting_max; /* accepted connections that have not proved themselves: the oldest gives way */

    int32_t cpu;  /* that the core thread is pinned to; -1: none */
    int32_t numa; /* node that the messenger's memory comes from; -1: the kernel's choice */
    const char
        *cores; /* list, as "0-3,8", that its threads keep to; NULL: any. Both hold before the first
                              endpoint is opened; see hlg_topology_place() for those near a NIC */
    hlg_time spin_ns;      /* how long the core thread spins on an idle network before it sleeps */
    hlg_time sleep_ns;     /* longest sleep while requests are open, <= 1 ms */
    hlg_time counter_ns;   /* pause of the layer poller between looks at the counter words */
    uint32_t commands_max; /* commands that may wait for the core thread */

    /* A core thread that is stuck inside the transport for so long (a provider that spins for its dead peer)
       ends the process, with a line on level fatal that names the call. 0: never; else 10 ms to 1 h. */
    hlg_time watchdog_ns;
    int32_t watchdog_exit; /* status to _exit() with then; 0: abort() */

    /* Called by the library's threads, and by create and destroy, with one line without its end: lower
       case, `name value` pairs, request id within. Must not call the messenger. NULL: no log. */
    void (*log)(void *context, enum hlg_log_level level, const char *line);
    void *log_context;
    uint32_t log_level; /* enum hlg_log_level: lines above it are not made */

    /* Decode: enum hlg_flush_policy, for regions of GPUs that NICs write themselves. A fabric with a flusher
       of its own (staged) needs none. READ opens an endpoint more for each lane, rail and GPU, makes a read through
       each at start, and fails a request whose reads are not over within the transport's stall_ns. */
    uint32_t flush;

    /* File that the machine's events and actions are recorded to, for `halage trace` (see trace.h): made
       anew by create, whole when destroy returned; NULL: none. Holds prompts. Costs the core thread a
       write(2) an event; a full disk ends the recording alone: destroy logs and returns that. */
    const char *record;

    /* Prefill: the core thread reads the counter words itself, and does not sleep while a layer is awaited: from
       the announcement of a forward pass (chunk) until its last layer's stamp came, or the pass or its requests
       ended. Some 2 us from a stamp to its first write in place of counter_ns and a thread's way, for a core of
       its own (cpu) meanwhile. False: the layer poller's thread does, while as much is awaited. */
    bool counter_core;
};

/* Fills in defaults: limits of hlg_limits_default(), no listening, no cores, connect 5 s, spin 50 us, sleep
 * 1 ms, counters 20 us, no watchdog, log level info without a log, no key, 64 waiting connections. Role,
 * layout and fabric remain the caller's. */
void hlg_messenger_config_default(struct hlg_messenger_config *config);

/* "auto", "none", "cuda", "read"; NULL for what is no policy. */
const char *hlg_flush_name(uint32_t policy);

/*
 * Make a messenger: takes all its memory and the port, starts no thread.
 *
 * config  copied
 * error   [error_bytes] filled with a sentence on failure; may be NULL with 0 bytes
 *
 * Returns 0, -HLG_EINVAL (config breaks its contract), -HLG_EPLAN (layout is unsound), -HLG_EUNSUPPORTED
 * (a flush policy that the fabric cannot do), -HLG_ENOMEM or -HLG_EIO (port in use, …).
 */
int hlg_messenger_create(const struct hlg_messenger_config *config,
                         struct hlg_messenger **messenger, char *error, size_t error_bytes);

/* ---- Memory: before start ---- */

/* Adds memory that KV pages live in, of any kind; the region is copied. Memory and dma-buf must stay
 * until destroy returned. Returns the region's number within its lane, from 0, or an error of
 * hlg_memory_check(), -HLG_EINVAL for a lane that is none or an overlap, -HLG_ENOMEM. */
int hlg_messenger_region_add(struct hlg_messenger *m, uint32_t lane,
                             const struct hlg_mem_region *region);

/* The same for memory of another process: maps the descriptor as hlg_memory_import() does (and unmaps
 * at destroy). The descriptor stays the caller's; the header's lane and region are not read. Host memory that
 * was imported before is -HLG_EINVAL. Returns the region's number, or an error of either. */
int hlg_messenger_region_import(struct hlg_messenger *m, uint32_t lane, int fd,
                                const struct hlg_fd_header *header);

/* Says where the pages of one (lane, group, layer, plane) lie; copied, and looked at by start. 0 or -HLG_ENOMEM. */
int hlg_messenger_place_add(struct hlg_messenger *m, const struct hlg_place *place);

/* The places of hlg_places_linear() for all lanes, each in its lane's region 0. 0 or -HLG_ENOMEM. */
int hlg_messenger_places_linear(struct hlg_messenger *m);

/* Prefill: the counter word that the engine stamps (hlg_prefill_words() says which there are). Read
 * with acquire order by the layer poller; it must stay mapped until destroy returned. */
int hlg_messenger_counter_watch(struct hlg_messenger *m, uint32_t word,
                                const HLG_ATOMIC_U32 *counter);

/* ---- Life ---- */

/* Checks regions and places and starts the threads. Returns 0, or an error with hlg_messenger_error()
 * set. Once only; what a failed one leaves is for destroy. */
int hlg_messenger_start(struct hlg_messenger *m);

/* Ends all sessions (BYE), stops the threads, frees everything. Bounded in time; takes NULL, and a
 * messenger that was never started. No other call may run or follow. In a forked child: frees nothing
 * that the parent uses.
 *
 * Returns 0, or -HLG_EIO when `record` was given and some of it could not be written. */
int hlg_messenger_destroy(struct hlg_messenger *m);

/* Sentence on the last failed call that is marked "before start", or on start itself. */
const char *hlg_messenger_error(const struct hlg_messenger *m);

/* Port that it listens on, or -HLG_ESTATE when it does not. */
int hlg_messenger_port(const struct hlg_messenger *m);

/* ---- Peers ---- */

/*
 * Dial another node. Returns the connection's number, > 0, at once; a report PEER_UP or PEER_REFUSED
 * with that number follows within connect_ns and the lease, once its turn has come: addresses are dialled one after the
 * other, 1,000 that answer in a second, and each at which nobody answers takes connect_ns. Nothing is dialled again by
 * itself.
 *
 * address  "host:port" or "[v6]:port"; copied, at most 255 bytes
 */
int hlg_messenger_connect(struct hlg_messenger *m, const char *address);

/* Ends a session. Its requests get their own reports. */
int hlg_messenger_disconnect(struct hlg_messenger *m, hlg_peer peer);

/* ---- Requests: decode ---- */

/* Time to live of a request that its submit does not bound. */
#define HLG_TTL_DEFAULT_NS (300 * HLG_NS_PER_S)

struct hlg_submit {
    size_t size;
    uint32_t source_count;           /* prefill nodes that will write, 1..limits.sources_max */
    hlg_peer peers[HLG_SOURCES_MAX]; /* [source_count], all UP; together they host each rank of the
                                        prefillers' that holds anything of what is asked, once */
    uint32_t pool;
    uint32_t tokens; /* of the prompt, >= 1; tokens - 1 are prefilled */
    uint32_t id_bytes;
    uint32_t prompt_bytes;
    hlg_time ttl_ns;    /* FAILED(deadline) after that; 0: HLG_TTL_DEFAULT_NS. Never endless */
    const void *id;     /* [id_bytes] the engine's own name of the request; copied */
    const void *prompt; /* [prompt_bytes] opaque; copied */
    /* Pages to fill, from position `first` on; copied. They are the library's until READY or RETURNED
       (POISONED: for ever). From READY on the engine reads and writes them, but may name them in another
       submit only after release. */
    struct hlg_page_list groups[HLG_GROUPS_MAX];
    /* Not before: the REQUEST goes when *not_before >= not_before_value, say a counter that the device
       stamps when it has read the pages for the last time; NULL: at once. Read with acquire order; must
       stay mapped until the last report. Peers, pages and grant are looked at only then. */
    const HLG_ATOMIC_U64 *not_before;
    uint64_t not_before_value;
};

/*
 * Ask for a request. Returns 0 with *ticket, -HLG_EINVAL, or -HLG_ELIMIT (as many tickets as
 * limits.requests_max, or the queue is full). What only the core can see (a page owned by another
 * request, a peer that is gone) comes as report FAILED(local or peer), then RETURNED. O(pages).
 */
int hlg_messenger_submit(struct hlg_messenger *m, const struct hlg_submit *submit,
                         hlg_ticket *ticket);

/* Decode: ends the request: FAILED(cancelled), later RETURNED or POISONED. Prefill: the engine gives
 * it up: STOPPING, later FENCED or POISONED. Nothing happens when it ended by itself meanwhile. */
int hlg_messenger_cancel(struct hlg_messenger *m, hlg_ticket ticket);

/* Gives a ticket back after its last report. -HLG_ESTATE before that. */
int hlg_messenger_release(struct hlg_messenger *m, hlg_ticket ticket);

/* ---- Requests: prefill ---- */

/* What a decoder asks for. Pointers are good until release. */
struct hlg_request {
    size_t size;
    hlg_peer peer;
    uint32_t tokens; /* of the prompt; the engine computes tokens - 1 */
    uint32_t source; /* which of source_count this node is */
    uint32_t source_count;
    uint32_t target_pool;
    uint32_t offset; /* replica offset */
    uint32_t id_bytes;
    uint32_t prompt_bytes;
    hlg_time ttl_ns; /* that remained when it came */
    const uint8_t *id;
    const uint8_t *prompt;
    /* Pages that the target wants: `count` from position `first` on; `pages` is NULL. A context group
       with count 1 wants a context. */
    uint32_t group_count;
    struct hlg_page_list groups[HLG_GROUPS_MAX];
};

/* Look at a request that was REQUESTED. Set request->size first. */
int hlg_messenger_request(struct hlg_messenger *m, hlg_ticket ticket, struct hlg_request *request);

struct hlg_admit {
    size_t size;
    uint32_t pool;           /* source pool */
    uint32_t cached_tokens;  /* whose pages hold valid KV already, <= tokens - 1 */
    uint32_t cached_forward; /* forward after which they are valid; 0: already */
    /* Source pages from position 0 on, enough for tokens - 1; context groups 1 when a context is
       wanted. Copied. The library reads them until SENT or FENCED
       (POISONED: for ever, they must never be written again). */
    struct hlg_page_list groups[HLG_GROUPS_MAX];
};

/* Take a request. -HLG_ESTATE while an earlier admit of it is not handled yet. Report REFUSED when the
 * core will not have it (then reject it, or admit it again). O(pages). */
int hlg_messenger_admit(struct hlg_messenger *m, hlg_ticket ticket, const struct hlg_admit *admit);

/* Refuse a request. Report FENCED follows, then release. retry_after_ns 0: do not ask again. */
int hlg_messenger_reject(struct hlg_messenger *m, hlg_ticket ticket, hlg_time retry_after_ns);

/*
 * Announce that forward pass `forward` will compute these tokens of a request. Before the pass is
 * launched: its counter stamps are heeded only after the announcement. Chunks of one request follow
 * each other without gap, from cached_tokens to tokens - 1. When the core refuses one, the report
 * REFUSED names it and the request is given up (STOPPING, FENCED or POISONED).
 */
int hlg_messenger_chunk(struct hlg_messenger *m, hlg_ticket ticket, uint32_t forward,
                        uint32_t token_begin, uint32_t token_count);

/* All layers and the context of a forward pass are computed, whatever the counters show. Each forward
 * that a chunk announced needs this or an abort: until then it counts against limits.forwards_max and,
 * unless its stamps came, keeps the layer poller awake. */
int hlg_messenger_forward_end(struct hlg_messenger *m, uint32_t forward);

/* A forward pass is given up: its requests stop (preempted). */
int hlg_messenger_forward_abort(struct hlg_messenger *m, uint32_t forward);

/* Take no new requests: decoders are told. Not undone. Report HLG_REPORT_DRAINED follows, once, when all that
 * was accepted is over. */
int hlg_messenger_drain(struct hlg_messenger *m);

/* ---- Reports ---- */

/* Kinds are those of enum hlg_notice_kind (action.h), and: */
enum hlg_report_kind {
    HLG_REPORT_REFUSED =
        64,             /* the core refused a command: `command` and `error` say which and why */
    HLG_REPORT_DRAINED, /* prefill, after drain: no request is open, and none will be */
};

enum hlg_command_kind {
    HLG_COMMAND_SUBMIT = 1,
    HLG_COMMAND_CANCEL,
    HLG_COMMAND_RELEASE,
    HLG_COMMAND_ADMIT,
    HLG_COMMAND_REJECT,
    HLG_COMMAND_CHUNK,
    HLG_COMMAND_FORWARD_END,
    HLG_COMMAND_FORWARD_ABORT,
    HLG_COMMAND_DRAIN,
    HLG_COMMAND_DISCONNECT,
};

#define HLG_REPORT_TEXT_BYTES 256u

/* Plain data of fixed size, without pointers. Fields that a kind has no use for are 0. */
struct hlg_report {
    uint32_t kind;       /* enum hlg_notice_kind or enum hlg_report_kind */
    hlg_peer peer;       /* HLG_NONE: none */
    uint32_t connection; /* PEER_*: number that connect gave; 0: the peer dialled */
    uint32_t reason;     /* enum hlg_reason */
    hlg_ticket ticket;
    uint64_t node;  /* PEER_UP: identity of the other node */
    uint64_t bytes; /* terminal: KV and context bytes of the pieces expected (decode), posted */
    uint64_t pieces_counted;  /* terminal: counted (decode), posted (prefill) */
    uint64_t pieces_expected; /* terminal: expected, planned */
    hlg_time retry_after_ns;  /* FAILED(rejected) */
    hlg_time submitted; /* decode, terminal: phase times on the fabric's clock, 0: not reached */
    hlg_time accepted;
    hlg_time first_piece;
    hlg_time last_piece;
    hlg_time noticed;
    int32_t error;    /* negated enum hlg_error: REFUSED, FAILED(local), PEER_REFUSED; else 0 */
    uint32_t command; /* REFUSED: enum hlg_command_kind */
    uint32_t forward; /* REFUSED: of the command, or 0 */
    struct hlg_refusal refusal; /* PEER_REFUSED: numbers behind the text */
    uint32_t id_bytes;
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX];
    char text
        [HLG_REPORT_TEXT_BYTES]; /* a sentence on what went wrong, or the other side's address for
                                         PEER_UP; ends with 0, may be empty */
};

/*
 * Take up to `capacity` reports. Returns how many; 0 when there are none (costs one load).
 * report_bytes  sizeof(struct hlg_report) of the caller
 */
int hlg_messenger_poll(struct hlg_messenger *m, struct hlg_report *reports, size_t report_bytes,
                       uint32_t capacity);

/* Descriptor (eventfd) that is readable when reports wait; the library's. Only poll clears it, when it
 * finds no more reports: call poll until it returns less than its capacity before sleeping. */
int hlg_messenger_fd(const struct hlg_messenger *m);

/* Why a connection was not let in, or a session with a key ended. */
enum hlg_refused {
    HLG_REFUSED_VERSION = 0, /* of the handshake: as enum hlg_sealed_reason, in its order */
    HLG_REFUSED_PLAIN,
    HLG_REFUSED_KEY,
    HLG_REFUSED_ALTERED,
    HLG_REFUSED_LONG,
    HLG_REFUSED_IDENTITY,
    HLG_REFUSED_BY_PEER,
    HLG_REFUSED_FRAME,   /* no key here, and the first frame was no HELLO */
    HLG_REFUSED_SILENCE, /* nothing that let it in came within connect_ns */
    HLG_REFUSED_CROWDED, /* gave way to newer ones: waiting_max */
    HLG_REFUSED_GONE,    /* ended before it was let in */
    HLG_REFUSED_ADDRESS, /* dialled, without a key, and not loopback */
    HLG_REFUSED_KINDS,
};

/* One word for labels and logs: "crowded". */
const char *hlg_refused_name(enum hlg_refused refused);

struct hlg_messenger_stats {
    size_t size;
    uint32_t peers_up;
    uint32_t requests_open;      /* of the machine */
    uint64_t requests_submitted; /* decode: submitted; prefill: requested */
    uint64_t requests_ready;     /* decode: ready; prefill: sent */
    uint64_t requests_failed;    /* decode: failed; prefill: stopped or rejected */
    uint64_t requests_poisoned;
    uint64_t bytes_ready; /* decode: of ready requests; prefill: of sent ones */
    uint64_t pieces_posted;
    uint64_t pieces_done;
    uint64_t pieces_failed;
    uint64_t bytes_posted;
    uint64_t writes_refused;
    uint64_t pieces_counted;
    uint64_t frames_sent;
    uint64_t frames_received;
    uint64_t frames_malformed;
    uint64_t sessions_ended;
    uint64_t peers_refused[HLG_REFUSED_KINDS];
    uint64_t commands_refused;
    uint64_t layers_early; /* see struct hlg_prefill_stats */
    uint64_t layers_late;
    uint64_t layers_read; /* counter values handed to the core */
    uint64_t core_loops;  /* rounds of the core thread */
    uint64_t core_sleeps;
};

/* Counters since start, at most 10 ms old or from before the core thread's present sleep. Set
 * stats->size first. */
int hlg_messenger_stats(struct hlg_messenger *m, struct hlg_messenger_stats *stats);

/*
 * All that is measured, in Prometheus' text format (version 0.0.4); docs/metrics.md lists the names. As
 * old as the stats. Labels are few and fixed: none names a peer or a request. Some 30 KB; half a
 * millisecond of the calling thread, of which the core thread can wait for a copy of 4 KB alone.
 *
 * text   [bytes] filled with as much as fits, ended with 0; may be NULL with 0 bytes
 *
 * Returns the bytes that the whole text has without its final 0, as snprintf() does: call again with more
 * room when that is >= `bytes`, since numbers may have grown longer meanwhile. -HLG_EFORK, -HLG_ESTATE.
 */
int hlg_messenger_metrics(struct hlg_messenger *m, char *text, size_t bytes);

/*
 * The call of a transport that the calling thread is in, on behalf of any messenger with watchdog_ns: "write",
 * "close", ...; NULL: none. For a handler of SIGSEGV that says where a process crashed: async-signal-safe,
 * needs no messenger. The text is the library's and stays.
 */
const char *hlg_messenger_call(void);

enum hlg_messenger_health {
    HLG_HEALTH_GOOD = 0,
    /* pages are lost for ever, since nothing proves that no write can land in them, or read them */
    HLG_HEALTH_POISONED,
    HLG_HEALTH_STUCK, /* the core thread has not moved for 5 s: it is stuck in a provider */
};

/* The worst that is the case, an enum hlg_messenger_health; -HLG_EFORK, -HLG_ESTATE. */
int hlg_messenger_health(struct hlg_messenger *m);

#ifdef __cplusplus
}
#endif

#endif
