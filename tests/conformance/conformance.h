/*
 * The transport contract (halage/transport.h) as tests, over any backend. A program links
 * transport.c, fixture.c and one backend file that defines `conformance_backend`.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "halage/message.h"
#include "halage/transport.h"

/* What a backend is known not to do; docs/transport.md says it in words. Tests of it are skipped. */
enum conformance_limit {
    LIMIT_KILL_HANGS = 1,     /* writes to a killed peer may hang, or succeed falsely */
    LIMIT_FALSE_SUCCESS = 2,  /* a write that the target refuses may still be reported as done */
    LIMIT_ERROR_IS_FINAL = 4, /* after a failed write that peer needs a new endpoint */
    LIMIT_PEERS_STAY = 8,     /* no poll is allowed after a peer of this process has closed */
    LIMIT_HEAD_OF_LINE = 16,  /* completions wait for those of earlier writes, to any peer */
    LIMIT_TAKES_FIRST = 32,   /* writes to nobody may be taken, and then fail */
    LIMIT_DOWN_AT_ONCE =
        64, /* a peer that is not there is down at the first write, not after stall_ns */
    LIMIT_CUT_WRITE_BREAKS =
        128, /* a writer that died in the midst of a write may break its target */
};

struct conformance_backend {
    const char *name;
    uint32_t limits; /* enum conformance_limit */

    /* Make the fabric of a node, 0, 1, ... Fabrics that are open together reach each other. Peers
     * that take nothing for stall_ns are down. */
    struct hlg_fabric *(*open)(uint32_t node, hlg_time stall_ns);
    void (*close)(struct hlg_fabric *fabric);

    /* Move network and clock on between two rounds of polls. NULL: they move by themselves. */
    void (*step)(void);

    /* A well-formed address at which nobody is. Returns its bytes. */
    uint32_t (*nobody)(uint8_t *address, uint32_t capacity);

    /* End a node as SIGKILL would: none of its endpoints does anything any more; then they are only
     * freed. NULL: a node can be a process, and the suite kills that. */
    void (*kill)(struct hlg_fabric *fabric);

    /* Remove what a killed process left behind in the system. May be NULL. */
    void (*bury)(int pid);
};

/* The name that a backend file gives its own, for decorators: two backends are linked, and the one
 * below is `conformance_below`. */
#ifndef CONFORMANCE_BACKEND
#define CONFORMANCE_BACKEND conformance_backend
#endif
extern const struct conformance_backend CONFORMANCE_BACKEND;
extern const struct conformance_backend conformance_backend;

#define OPS_MAX      1024u
#define SLOTS_MAX    1024u
#define PEERS_MAX    16u
#define EVENTS       64u
#define MEMORY_BYTES (8u << 20)
#define STALL_NS     (300 * HLG_NS_PER_MS * fixture_slowness())
#define GUARD        0xee

/* What one endpoint has seen. */
struct tally {
    struct {
        uint32_t taken;
        uint32_t over; /* done, or failed */
        uint32_t failed;
        int32_t status;
    } ops[OPS_MAX];
    struct {
        uint32_t pieces, immediates, marks;
    } slots[SLOTS_MAX];
    uint32_t down[PEERS_MAX];
    uint32_t taken;
    uint32_t over;
    /* Called for each IMM event, before the next poll. */
    void (*on_imm)(void *context, uint32_t slot);
    void *context;
};

/* What the tests call a slot is 8 bits of the immediate's slot and 2 of its generation. */
static inline uint32_t slot_imm(uint32_t slot, uint32_t weight)
{
    return hlg_imm_make(slot & 0xff, slot >> 8, weight);
}

struct node {
    struct hlg_fabric *fabric;
    struct hlg_transport *t;
    struct hlg_transport_caps caps;
    uint8_t *memory; /* [MEMORY_BYTES] */
    hlg_mem mem;
    struct hlg_mem_export export;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    uint32_t address_bytes;
    struct tally tally;
    uint32_t events_max; /* of one poll; 0: EVENTS */
    bool dead;           /* not polled */
};

/* A node that can be killed: another process, or a third node of this one. */
struct victim {
    int pid;
    int fd;
    struct node node; /* of this process, or only the address and export of the other's */
};

struct fixture {
    struct node writer;
    struct node target;
    struct victim victim;
    uint32_t peer;        /* the target, as the writer calls it */
    uint32_t pages[4096]; /* 0, 1, 2, ... */
    uint64_t seed;
    uint64_t random;
};

/* fixture.c */
/* How many times slower than usual this machine is: HALAGE_TEST_SLOWNESS, 1 to 100; else 1. Stalls and
 * time limits are multiplied by it. */
uint32_t fixture_slowness(void);
void node_open(struct node *node, uint32_t number);
void node_close(struct node *node);
void node_endpoint(struct node *node); /* open endpoint, register, export, address */
void node_poll(struct node *node);
uint32_t node_peer(struct node *node, const struct node *other);

int fixture_setup(void **state);
int fixture_teardown(void **state);
uint64_t fixture_random(struct fixture *f, uint64_t limit);
void fixture_fill(struct fixture *f, uint8_t *bytes, size_t count);
/* One round: the network, then both ends. */
void fixture_round(struct fixture *f);
/* `pieces` pieces of `bytes`, from the start of the writer's memory to that of the target. */
struct hlg_paged_write fixture_write(struct fixture *f, hlg_op_id op, uint32_t slot,
                                     uint32_t pieces, uint32_t bytes);
/* Offer what is left of a write once. Returns what write did; moves piece_begin on. */
int64_t fixture_offer(struct fixture *f, struct hlg_paged_write *w);
/* Offer until all is taken. */
void fixture_push(struct fixture *f, struct hlg_paged_write *w);
/* Rounds until everything that the writer posted is done. */
void fixture_drain(struct fixture *f);
/* Rounds until the target has counted so many pieces of a slot; checks that no more come. */
void fixture_expect(struct fixture *f, uint32_t slot, uint32_t pieces);
/* Open, see a first write arrive, so that the connection is up. */
void fixture_connect(struct fixture *f);

void victim_start(struct fixture *f);
void victim_kill(struct fixture *f);
/* Another process, that writes to the target until victim_kill: without end, or no more than may wait
 * there unread. */
void flooder_start(struct fixture *f, bool endless);
/* Until it says that a write was refused or failed; half a second for backends where none is. */
void flooder_await_refusal(struct fixture *f);
/* The body of a process that a test started: main() of the suite calls it. */
int other_main(const char *part);

#endif
