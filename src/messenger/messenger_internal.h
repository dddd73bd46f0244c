/*
 * What the files of the messenger share.
 *
 *   messenger.c   calls of the engine's threads, and the tickets that they and the core thread share
 *   life.c        create, start, destroy
 *   regions.c     what is said of memory before start
 *   progress.c    the core thread: the only one that touches the pump, and so the core
 *   command.c     on the core thread: commands become events
 *   notice.c      on the core thread: notices become reports
 *   lobby.c       on the core thread: connections that have not proved themselves
 *   metrics.c     on the core thread: what is counted and timed; metrics_text.c makes text of a copy
 *   dial.c        the dialling thread
 *   layer_poll.c  the layer poller's thread
 *   hold.c        on the core thread: submits that wait for a word of the engine's
 *   watchdog.c    a thread that ends the process when the core thread is stuck in a transport
 */
#ifndef HALAGE_MESSENGER_INTERNAL_H
#define HALAGE_MESSENGER_INTERNAL_H

#include "metrics.h"
#include "ring.h"
#include <halage/memory.h>
#include <halage/messenger.h>
#include <halage/placement.h>
#include <halage/pump.h>
#include <halage/transport/sealed.h>
#include <halage/transport/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#define ADDRESS_BYTES_MAX 256u
#define DIALS_MAX         64u  /* that may wait */
#define LAYERS_MAX        256u /* counter values that may wait; more stay in their words */
#define ERROR_BYTES       256u
#define THREADS_MAX       3u
#define WATCHDOG_NS_MIN   (10 * HLG_NS_PER_MS)
#define WATCHDOG_NS_MAX   (3600 * HLG_NS_PER_S)

/* What an address is refused with, after what it is. */
#define NO_KEY_ADVICE                                                                          \
    "without a key, whoever reaches it could read prompts and write KV pages; give all nodes " \
    "one key ('halage key', --key-file), or allow strangers (--insecure)"

/* A command as it goes to the core thread. What is long waits in the ticket's entry. */
struct command {
    uint32_t kind; /* enum hlg_command_kind */
    hlg_peer peer;
    hlg_ticket ticket;
    hlg_time retry_after_ns;
    uint32_t forward;
    uint32_t token_begin;
    uint32_t token_count;
};

struct dial_order {
    uint32_t connection;
    char address[ADDRESS_BYTES_MAX];
};

struct dial_result {
    uint32_t connection;
    int32_t error;
    bool not_loopback; /* why `error` is set */
    struct hlg_channel *channel;
    char address[ADDRESS_BYTES_MAX];
    char text[HLG_REPORT_TEXT_BYTES];
};

struct layer_value {
    uint32_t word;
    uint32_t value;
    hlg_time read; /* metrics_clock() */
};

enum entry_phase {
    ENTRY_FREE = 0,
    ENTRY_OPEN,
    ENTRY_FINISHED, /* its last report was pushed */
    ENTRY_RELEASED, /* the engine gave it back; the core thread frees it */
};

/* Who has `admit` and the pages of an entry. */
enum admit_state {
    ADMIT_IDLE = 0,
    ADMIT_UNDER_WAY, /* a thread that calls admit; then the core thread, until it has read them */
    ADMIT_OVER,      /* the ticket is released */
};

/* What stands behind a ticket. Fields without a word on it are written by the submitting thread
 * (decode) or the core thread (prefill) before the ticket is known to anyone else. */
struct entry {
    _Atomic uint64_t ticket;      /* 0: free */
    _Atomic uint32_t phase;       /* enum entry_phase */
    _Atomic uint32_t admit_state; /* enum admit_state */
    uint32_t uses;
    hlg_handle handle;        /* core thread's */
    bool bound;               /* core thread's: `handle` is good */
    hlg_time begun;           /* core thread's: when it was noticed, prefill */
    uint8_t *prompt;          /* [prompt_bytes_max] */
    uint32_t *pages;          /* [pages_max] */
    struct hlg_submit submit; /* decode; pointers into this entry */
    struct hlg_admit admit;   /* prefill; likewise */
    struct hlg_request view;  /* prefill; likewise */
    uint8_t id[HLG_REQUEST_ID_BYTES_MAX];
};

/* A peer of the pump; core thread's. */
struct peer_slot {
    uint32_t uses; /* 16 bits, high half of hlg_peer */
    uint32_t connection;
    bool up;
    hlg_time connected;
    char name[HLG_TCP_NAME_BYTES];
};

/* A connection that is not a peer yet; core thread's. */
struct guest {
    struct hlg_channel *channel; /* what the pump will get; NULL: free */
    struct hlg_channel *tcp;     /* the same, or within it */
    uint32_t connection;         /* 0: accepted */
    hlg_time due;
    uint64_t serial;
};

struct lobby {
    struct guest *guests; /* [accepted_max] accepted, then [DIALS_MAX] dialled */
    uint32_t accepted_max;
    uint32_t count;
    uint64_t serial;
    hlg_time listen_due; /* when they are listened to next */
    hlg_time told;       /* when refusals were logged last */
    uint64_t untold;
    void *scratch; /* of hlg_wire_decode(), where there is no key */
    uint64_t scratch_bytes;
    uint64_t sealed_counts[HLG_SEALED_REASONS];
};

/* Which entry stands for a handle of the machine: by the handle's low half. */
struct binding {
    hlg_handle handle;
    uint32_t entry; /* HLG_NONE */
};

/* A submit that waits for its word. */
struct held {
    uint32_t entry;
    hlg_time deadline;
};

/* Memory of another process, mapped here. */
struct import {
    struct hlg_memory *memory;
    uint64_t file[2]; /* device and inode: what is imported twice has two addresses */
};

struct counter_word {
    const _Atomic uint32_t *counter;
    uint32_t last;
};

/* What the watchdog looks at; see watchdog.c. */
struct watch {
    struct hlg_fabric fabric; /* first: the decorator that the pump uses */
    struct hlg_fabric *below;
    _Atomic uint64_t beat;    /* of the core thread; odd while it sleeps */
    const char *_Atomic call; /* of the transport that it is in; NULL: none */
    struct bell bell;
    struct latch stop;
    pthread_t thread;
    bool running;
};

/* In order of who uses what, which padding is a small price for. */
#define FLUSHES_MAX 64u

/* Flush policy: see flush.c. */
struct flush {
    struct hlg_flusher flusher; /* first */
    struct hlg_messenger *messenger;
    int32_t devices[HLG_RANKS_MAX];
    uint32_t device_count;
    struct hlg_flushed done[FLUSHES_MAX]; /* to be polled */
    uint32_t count;
};

/* Flush policy READ: see sentinel.c. */
struct sentinels {
    struct hlg_flusher flusher; /* first */
    struct hlg_messenger *messenger;
    struct sentinel *all; /* [all_count] one a lane, rail and GPU */
    uint32_t all_count;
    /* [count] in the order of finish: `over` of them are to be polled, the next `reading` are in the round that is
       under way, the rest wait for the next one */
    struct hlg_flushed requests[FLUSHES_MAX];
    uint32_t over;
    uint32_t reading;
    uint32_t count;
    hlg_time span; /* that a round may take */
    hlg_time due;
    int32_t status; /* of the round */
    char why[ERROR_BYTES];
};

struct hlg_messenger { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    struct hlg_messenger_config config;
    struct hlg_placement placement; /* of its threads and memory */
    const uint32_t *alive;          /* a page that a forked child finds zeroed */
    bool started;
    char error[ERROR_BYTES];

    /* memory */
    struct hlg_pump_region *regions; /* in order of lane */
    struct import *imports;          /* [import_count] */
    struct hlg_place *places;
    uint32_t region_count;
    uint32_t import_count;
    uint32_t place_count;

    /* tickets */
    struct entry *entries; /* [entry_count] */
    uint8_t *buffers;      /* [entry_count][buffer_bytes], mapped, touched when used */
    size_t buffer_bytes;
    uint32_t entry_count;
    uint32_t pages_max; /* of one entry */
    struct ring free_entries;

    /* between threads */
    struct ring commands;
    struct ring reports;
    struct ring orders;  /* to the dialling thread */
    struct ring dialled; /* from it */
    struct ring layers;  /* from the layer poller */
    struct bell core_bell;
    struct bell report_bell;
    struct bell dial_bell;
    struct bell layer_bell;
    struct latch stop;
    _Atomic uint32_t connections;
    _Atomic uint64_t chunks_announced;
    _Atomic uint64_t chunks_rested; /* announced ones whose forward is over */
    pthread_mutex_t stats_lock;
    struct metrics metrics_shown; /* under stats_lock */

    struct watch watch;
    pthread_t threads[THREADS_MAX]; /* [thread_count] core, dialling, layer poller */
    uint32_t thread_count;

    /* layer poller's */
    struct counter_word *words; /* [word_count] */
    uint32_t word_count;

    /* core thread's */
    struct hlg_tcp_listener *listener;
    struct hlg_pump *pump;
    struct hlg_trace *trace;  /* NULL: nothing is recorded */
    struct peer_slot *peers;  /* [peers_max] */
    struct binding *bindings; /* [requests_max] */
    struct pollfd *fds;       /* [fds_max] */
    uint32_t fds_max;
    hlg_handle *unwanted; /* [requests_max] requests that found no entry: to be rejected */
    uint32_t unwanted_count;
    struct held *held; /* [entry_count] in order of submit */
    uint32_t held_count;
    uint32_t *leaving; /* [entry_count] released entries that an admit still has */
    uint32_t leaving_count;
    bool draining;
    bool drained;            /* and told so */
    uint32_t submitting;     /* entry whose SUBMIT is being handled, or HLG_NONE */
    struct hlg_note refused; /* what the machine noted of that SUBMIT; code NONE: nothing */
    uint64_t report_reserve; /* free cells of `reports` that notices of open things may need */
    struct layer_value layers_taken[LAYERS_MAX];
    uint32_t layers_taken_count;
    uint64_t layers_after; /* commands that must be handled before these */
    uint64_t random;
    uint64_t chunks_handled;
    hlg_time awaits_due; /* when it is seen again whether counters are awaited */
    struct lobby lobby;
    struct flush flush;
    struct sentinels sentinels;
    uint8_t key[HLG_SEALED_KEY_BYTES]; /* config.key leads here, or is NULL */
    uint64_t node;
    uint64_t incarnation;
    hlg_time accept_due; /* when the core thread looks for connections next */
    bool accept_rests;   /* it could take none, and does not wait for them before */
    hlg_time stats_due;
    struct hlg_messenger_stats stats;
    struct metrics metrics;
    struct metrics_lines lines[METRICS_NOTES]; /* by note */
};

/* messenger.c: tickets. The entry of a ticket that is good, else NULL; any thread. */
struct entry *entry_find(struct hlg_messenger *m, hlg_ticket ticket);
/* A fresh entry, of which nobody knows yet; NULL when all are in use. Any thread. */
struct entry *entry_take(struct hlg_messenger *m);
/* Makes the ticket good; everything written to the entry before is seen by who finds it. */
hlg_ticket entry_publish(struct hlg_messenger *m, struct entry *entry);
void entry_finish(struct entry *entry); /* before the last report is pushed */
bool entry_finished(const struct entry *entry);
void entry_free(struct hlg_messenger *m, struct entry *entry);
hlg_ticket entry_ticket(const struct entry *entry); /* that stands for it now */
/* Ends the ticket's admits; false while one is under way. Before an entry is freed. */
bool entry_leave(struct entry *entry);
void entry_admitted(struct entry *entry); /* `admit` and the pages are free to use */

static inline uint32_t entry_index(const struct hlg_messenger *m, const struct entry *entry)
{
    return hlg_u32((uint64_t)(entry - m->entries));
}

/* life.c */
__attribute__((format(printf, 3, 4))) void
messenger_log(const struct hlg_messenger *m, enum hlg_log_level level, const char *format, ...);

/* The longest frame of a TCP channel of ours. */
uint32_t messenger_frame_bytes(const struct hlg_messenger *m);

/* Keeps the sentence for hlg_messenger_error(); returns the code. */
int messenger_fail(struct hlg_messenger *m, int code, const char *sentence);
int messenger_before_start(struct hlg_messenger *m);

/* flush.c: *flusher for the pump, by config.flush and the GPUs of the regions; NULL: none is needed. */
int messenger_flusher(struct hlg_messenger *m, struct hlg_flusher **flusher);

/* sentinel.c: likewise for policy READ, with one read of each sentinel made. */
int sentinels_start(struct hlg_messenger *m, struct hlg_flusher **flusher);
void sentinels_end(struct hlg_messenger *m);

/* watchdog.c. The fabric for the pump: config.fabric, watched where config.watchdog_ns says so. */
struct hlg_fabric *watchdog_fabric(struct hlg_messenger *m);
int watchdog_start(struct hlg_messenger *m);
void watchdog_stop(struct hlg_messenger *m);
void watchdog_round(struct watch *w); /* core thread: it moves */
/* Around calls of the fabric that do not go through the pump's endpoints. */
void watchdog_enter(struct watch *w, const char *call);
void watchdog_leave(struct watch *w);
void watchdog_sleep(struct watch *w); /* core thread: it sleeps, until the next round */

/* progress.c */
void *progress_main(void *messenger);
/* A connection that may speak becomes a peer, or is refused. */
void progress_let_in(struct hlg_messenger *m, struct hlg_channel *channel, uint32_t connection);

/* lobby.c */
int lobby_init(struct hlg_messenger *m);
void lobby_fini(struct hlg_messenger *m);
/* Owns the channel. */
void lobby_enter(struct hlg_messenger *m, struct hlg_channel *channel, uint32_t connection,
                 hlg_time now);
/* Listens to all who wait, where that is due. Returns how many were let in or refused. */
int lobby_step(struct hlg_messenger *m, hlg_time now);
hlg_time lobby_deadline(const struct hlg_messenger *m);
/* Descriptors to sleep on; returns how many, of `capacity`. */
uint32_t lobby_wait_fds(const struct hlg_messenger *m, struct pollfd *fds, uint32_t capacity);
/* The sleep on these is over: who has news is listened to at once. */
void lobby_woken(struct hlg_messenger *m, const struct pollfd *fds, uint32_t count);
void lobby_stats(const struct hlg_messenger *m, struct hlg_messenger_stats *stats);
/* Without a key, and not told otherwise, only this host may be talked to. */
bool lobby_needs_loopback(const struct hlg_messenger *m);

/* hold.c */
/* Whether a submit's word has not reached its value: it is kept, and submitted when it has. */
bool hold_take(struct hlg_messenger *m, struct entry *entry);
/* Forgets one that waits; returns whether it did. */
bool hold_drop(struct hlg_messenger *m, const struct entry *entry);
/* Submits those whose words are reached, ends those whose time is over. Returns how many. */
int hold_step(struct hlg_messenger *m, hlg_time now);

/* command.c */
/* SUBMIT of an entry, `ttl_ns` to live. */
void command_submit(struct hlg_messenger *m, struct entry *entry, hlg_time ttl_ns);
/* The terminal reports of one that the machine never had. */
void command_fail_submit(struct hlg_messenger *m, struct entry *entry, enum hlg_reason reason,
                         int error);
void command_handle(struct hlg_messenger *m, const struct command *command);
/* After DRAIN, once nothing is open, and once only; returns whether it did. */
int command_tell_drained(struct hlg_messenger *m);
/* Frees released entries that no admit has any more. */
void command_free_released(struct hlg_messenger *m);
/* Rejects what found no entry; returns how many. */
int command_reject_unwanted(struct hlg_messenger *m);

/* notice.c */
void notice_take(void *messenger, const struct hlg_notice *notice);
void note_take(void *messenger, const struct hlg_note *note);
void report_push(struct hlg_messenger *m, const struct hlg_report *report);
void report_text(struct hlg_report *report, const char *text);
hlg_peer peer_name_of(const struct hlg_messenger *m, uint32_t index);
/* The machine's index of a peer that is still the one named, or HLG_NONE. */
uint32_t peer_index_of(const struct hlg_messenger *m, hlg_peer peer);
void binding_make(struct hlg_messenger *m, hlg_handle handle, struct entry *entry);
void binding_end(struct hlg_messenger *m, struct entry *entry);

/* dial.c */
void *dial_main(void *messenger);

/* layer_poll.c */
void *layer_poll_main(void *messenger);
/* Core thread, config.counter_core: words that moved, of `capacity`; returns how many. */
uint32_t layer_poll_look(struct hlg_messenger *m, struct layer_value *values, uint32_t capacity);
/* Core thread: whether it is to look at them, since a forward pass is announced. */
bool layer_poll_awaits(const struct hlg_messenger *m);
/* Whether no chunk was announced since layer_poll_rest(). */
bool layer_poll_resting(const struct hlg_messenger *m);
/* A chunk is about to be pushed (any thread); or could not be, after all. */
void layer_poll_announce(struct hlg_messenger *m);
void layer_poll_withdraw(struct hlg_messenger *m);
/* No request awaits a counter but those of chunks after the `handled` first. */
void layer_poll_rest(struct hlg_messenger *m, uint64_t handled);

#endif
