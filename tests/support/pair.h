/*
 * Prefill and decode machines joined directly: no pump, no network, no thread. A test feeds events;
 * pair_run() carries out the actions that come of them until nothing more happens, and whatever a
 * test wants in its own hands it holds back: frames, writes, closings, flushes. Messages travel as
 * frames, so that what a machine gets is never the sender's own memory. Both machines' check() runs
 * after every event.
 */
#ifndef HALAGE_TESTS_PAIR_H
#define HALAGE_TESTS_PAIR_H

#include <core/note.h>
#include <halage/decode.h>
#include <halage/prefill.h>

#define PAIR_SIDES_MAX   3u
#define PAIR_PEERS_MAX   4u
#define PAIR_NOTICES_MAX 128u
#define PAIR_WRITES_MAX  64u
#define PAIR_FRAMES_MAX  64u
#define PAIR_PAGES_MAX   1024u

struct pair;

/* Where most tests have their sides. */
enum {
    DECODE = 0,
    PREFILL = 1,
    OTHER = 2
};

/* A paged write, or the part of one that a TAKEN took. */
struct pair_write {
    bool used;
    bool dead; /* the target closed: what has not landed never will */
    uint32_t from;
    uint32_t to;
    uint64_t connection;
    uint32_t domain; /* of the target */
    struct hlg_action_write write;
    struct hlg_slice slice; /* write.slice points nowhere any more */
    uint32_t taken;
    uint32_t landed;
    uint32_t done;
};

struct pair_end {
    uint64_t connection; /* 0: unused */
    uint32_t other;
    uint32_t domain;
    bool closing;          /* PEER_CLOSE was pulled and is held */
    uint32_t refuse_count; /* SENDs that its channel will refuse */
};

struct pair_side {
    enum hlg_role role;
    struct hlg_prefill *prefill;
    struct hlg_decode *decode;
    void *memory;
    struct hlg_prefill_config config; /* of either role */
    struct pair_end ends[PAIR_PEERS_MAX];
    bool hold_close;
    bool hold_flush;
    int32_t close_status;
    hlg_handle flush; /* held */
    bool flush_fences;
    struct hlg_notice notices[PAIR_NOTICES_MAX];
    uint32_t notice_count;
    uint32_t read_count; /* by pair_expect */
    uint32_t notes[HLG_NOTE_COUNT];
    struct hlg_note note;               /* the last that is no step */
    uint32_t sent[HLG_MESSAGE_BYE + 1]; /* messages by kind */
    struct hlg_message last;            /* that was sent and no CREDIT, pointers gone */
    struct hlg_request_message asked;   /* of the last REQUESTED, pointers gone */
    uint32_t page_next;                 /* of pair_admit */
};

struct pair_frame {
    uint64_t connection;
    uint32_t to;
    uint32_t bytes; /* 0: the channel is closed */
    uint8_t *frame;
};

struct pair {
    struct pair_side sides[PAIR_SIDES_MAX];
    uint32_t side_count;
    hlg_time now;
    hlg_time clocks[PAIR_SIDES_MAX]; /* each side's own is ahead of `now` by that */
    bool prefill_dials;              /* or the decode side does: of the next pair_connect() */
    uint64_t connections;
    bool hold_frames;
    bool hold_writes; /* pull none */
    bool hold_landing;
    bool hold_done;
    uint32_t take_max; /* pieces of each WRITE; HLG_NONE: all */
    struct pair_write writes[PAIR_WRITES_MAX];
    struct pair_frame frames[PAIR_FRAMES_MAX];
    uint32_t frame_count;
    /* Called for each piece that is taken. */
    void (*on_piece)(void *context, const struct hlg_action_write *write, uint32_t piece);
    void *context;
};

struct pair_ask {
    uint32_t tokens;
    uint32_t first;   /* pages that the target has, of each paged group */
    uint32_t page;    /* the request's page i is pair_page(page + i) */
    uint32_t context; /* page, when the layout has a context group */
    uint32_t source_count;
    uint32_t peers[HLG_SOURCES_MAX]; /* {0} when source_count is 0 */
    hlg_time ttl_ns;                 /* 0: endless */
    uint32_t random;
};

/* A small layout: a paged group of all layers with K and V planes, and a context if asked. */
void pair_layout(struct hlg_layout *layout, uint32_t tp, uint32_t layers, uint32_t page_tokens,
                 bool context);
void pair_limits(struct hlg_limits *limits);
/* The config of a side that pair_add() takes: the small layout, limits, one rail. */
void pair_config(struct hlg_prefill_config *config);

/* Target pages go downward, source pages upward, so that no test passes by mixing them up. */
uint32_t pair_page(uint32_t index);

struct pair *pair_open(void);
/* Adds a machine; returns its number. Its node is 100 plus that. */
uint32_t pair_add(struct pair *p, enum hlg_role role, const struct hlg_prefill_config *config);
uint32_t pair_add_flushing(struct pair *p, const struct hlg_prefill_config *config);
/* DECODE and PREFILL, joined by a channel on which nothing was carried yet. NULL: pair_config()'s. */
struct pair *pair_joined(const struct hlg_prefill_config *decode,
                         const struct hlg_prefill_config *prefill);
/* Adds OTHER, and joins it to the side of the other role, which has it in the named fence domain. */
void pair_join_other(struct pair *p, enum hlg_role role, const struct hlg_prefill_config *config,
                     uint32_t domain);
/* DECODE and PREFILL, both up; NULL: pair_config()'s. */
struct pair *pair_simple(const struct hlg_prefill_config *config);
/* DECODE and two prefillers, all up, in the named fence domains of the decoder's; NULL: pair_config()'s. */
struct pair *pair_two_sources(const struct hlg_prefill_config *config, uint32_t first_domain,
                              uint32_t second_domain);
void pair_close(struct pair *p);

/* A channel between a decode and a prefill side. Returns the decoder's peer number; both sides take
 * their lowest free one. */
uint32_t pair_connect(struct pair *p, uint32_t decode, uint32_t prefill, uint32_t decode_domain,
                      uint32_t prefill_domain);
/* One event; sets its time. Pulls the notices and notes that come of it. Returns what handle said. */
int pair_feed(struct pair *p, uint32_t side, const struct hlg_event *event);
int pair_feed_kind(struct pair *p, uint32_t side, uint32_t kind);
/* PEER_DOWN: the channel broke. */
int pair_down(struct pair *p, uint32_t side, uint32_t peer);
/* CANCEL, RELEASE or FLUSHED of a request. */
int pair_feed_request(struct pair *p, uint32_t side, uint32_t kind, hlg_handle request);
/* A message out of nowhere, as a struct. */
int pair_feed_message(struct pair *p, uint32_t side, uint32_t peer,
                      const struct hlg_message *message);
int pair_feed_imm(struct pair *p, uint32_t side, uint32_t imm, uint32_t pieces);
/* Carries out all that is not held, until nothing happens. */
void pair_run(struct pair *p);
/* Delivers the oldest frame that is on its way to a side; false when there is none. */
bool pair_deliver(struct pair *p, uint32_t side);
/* Moves time and tells all sides. */
void pair_advance(struct pair *p, hlg_time ns);
/* Answers a held PEER_CLOSE. */
void pair_closed(struct pair *p, uint32_t side, uint32_t peer, int32_t status);

/* SUBMIT; returns what handle said. */
int pair_submit(struct pair *p, uint32_t side, const struct pair_ask *ask, hlg_handle *request);
/* SUBMIT at DECODE, which must take it. */
hlg_handle pair_submitted(struct pair *p, const struct pair_ask *ask);
int pair_cancel(struct pair *p, uint32_t side, hlg_handle request);
/* ADMIT with the side's next free source pages. */
int pair_admit(struct pair *p, uint32_t side, hlg_handle request, uint32_t tokens,
               uint32_t cached_tokens, uint32_t cached_forward);
int pair_chunk(struct pair *p, uint32_t side, hlg_handle request, uint32_t forward, uint32_t begin,
               uint32_t count);
int pair_tick(struct pair *p, uint32_t side, uint32_t word, uint32_t forward, uint32_t layers);
int pair_forward(struct pair *p, uint32_t side, uint32_t kind, uint32_t forward);
/* Admits the side's last REQUESTED and computes all of it in one forward that ends. */
hlg_handle pair_serve(struct pair *p, uint32_t side, uint32_t forward);

/* The request of the side's last REQUESTED. */
hlg_handle pair_requested(const struct pair *p, uint32_t side);
/* The oldest write in flight, or NULL. */
struct pair_write *pair_oldest(struct pair *p);
/* Pieces of a write land at the target; complete, or fail, at the source. */
void pair_land(struct pair *p, struct pair_write *w, uint32_t pieces);
void pair_done(struct pair *p, struct pair_write *w, uint32_t done, uint32_t failed);

/*
 * Fails the test unless these are the notices since the last call: names apart by spaces, such as
 * "up requested stopping(cancelled) fenced" or "failed(peer) returned".
 */
void pair_expect(struct pair *p, uint32_t side, const char *notices);
/* The side's latest notice of that kind; fails the test when there is none. */
const struct hlg_notice *pair_last(const struct pair *p, uint32_t side, uint32_t kind);
enum hlg_page_state pair_page_state(const struct pair *p, uint32_t side, uint32_t page);
/* Fails the test unless the decoder's pair_page(0) and (1) are so, and (2) is free. */
void pair_expect_pages(const struct pair *p, enum hlg_page_state state);

#endif
