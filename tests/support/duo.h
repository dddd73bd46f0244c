/*
 * Two messengers in one process, a decoder and a prefiller, over libfabric on loopback, and the
 * engine that a test plays on them: single-threaded, stepping both sides until something has been
 * reported. Bounded by DUO_TURNS_MAX naps of 1 ms on the report descriptors.
 */
#ifndef HALAGE_TESTS_DUO_H
#define HALAGE_TESTS_DUO_H

#include <halage/memory.h>
#include <halage/messenger.h>
#include <halage/transport/ofi.h>
#include <stdatomic.h>

#define DUO_LAYERS      4u
#define DUO_PAGE_TOKENS 4u
#define DUO_PAGES       256u
#define DUO_CONTEXTS    32u
#define DUO_REPORTS_MAX 1024u
#define DUO_TURNS_MAX   20000u
#define DUO_TICKETS_MAX 64u

/* How the prefill engine proves that a layer is computed. */
enum duo_progress {
    DUO_COUNTER = 0, /* by the counter word alone; the forward is ended when all was sent */
    DUO_FORWARD_END, /* by ending the forward alone */
};

struct duo_side {
    struct hlg_messenger *messenger;
    struct hlg_fabric *fabric;
    /* Gives the descriptor of memory that another process made; NULL: it is made here. */
    int (*take_memory)(struct duo_side *side, struct hlg_fd_header *header);
    struct hlg_memory *owner; /* of the memory, as a rank's process would be */
    uint8_t *memory;
    uint64_t bytes;
    struct hlg_report reports[DUO_REPORTS_MAX]; /* all that came, in order */
    uint32_t report_count;
};

struct duo {
    struct duo_side prefill;
    struct duo_side decode;
    hlg_peer peer; /* the prefiller, as the decoder names it */
    /* the prefill engine */
    enum duo_progress progress;
    bool passive;      /* it answers no request */
    uint32_t answered; /* REQUESTED among prefill.reports[0 .. answered) are dealt with */
    uint32_t page;     /* next free source page */
    uint32_t context;  /* next free context page */
    uint32_t forward;
    uint32_t forward_of[DUO_TICKETS_MAX]; /* by the ticket's low half; 0: ended */
    _Atomic uint32_t counter;
    /* Both NULL: the engine stamps `counter` itself, at once. Else the word that is watched, and what has
       a forward's layers and context computed that the messenger was told of. */
    const _Atomic uint32_t *word;
    void (*launch)(uint32_t forward);
    char error[256];
};

void duo_layout(struct hlg_layout *layout);
/* The config that duo_open() uses for a side; change what the test is about. */
void duo_config(struct duo_side *side, uint32_t role, struct hlg_messenger_config *config);
/* Creates and starts one side with its memory. Returns what create or start said. */
int duo_open_side(struct duo *duo, struct duo_side *side,
                  const struct hlg_messenger_config *config);
void duo_close_side(struct duo_side *side);

/* Both sides, connected; fails the test when that does not work. */
struct duo *duo_open(void);
/* The same with a word and a launch of the test's own. */
struct duo *duo_open_watching(const _Atomic uint32_t *word, void (*launch)(uint32_t forward));
void duo_close(struct duo *duo);
/* Dials the prefiller. Returns the connection's number. */
int duo_connect(struct duo *duo);

/* One step of both sides; returns the reports that came. */
int duo_turn(struct duo *duo);
/* Sleeps until a side has reports, 1 ms at most. */
void duo_nap(const struct duo *duo);
/* Steps until the side has had `count` reports of the kind; fails the test when they do not come. */
void duo_wait(struct duo *duo, const struct duo_side *side, uint32_t kind, uint32_t count);
uint32_t duo_count(const struct duo_side *side, uint32_t kind);
/* The last report of the kind; fails the test when there is none. */
const struct hlg_report *duo_last(const struct duo_side *side, uint32_t kind);

/* Asks for `tokens` of a prompt into pages [page, ...) and a context page, for `id`. */
int duo_submit(struct duo *duo, const char *id, uint32_t tokens, uint32_t page, uint32_t context,
               hlg_ticket *ticket);
/* Fails the test unless the target's pages hold what the source's do. */
void duo_expect(const struct duo *duo, uint32_t target_page, uint32_t source_page, uint32_t count);

#endif
