/*
 * A simulation of a few nodes with one endpoint each, for tests of the times of the simgrid transport. A
 * process has one SimGrid engine, so each scenario runs in a child of its own and sends its numbers back;
 * the parent judges them.
 */
#ifndef TESTS_CONFORMANCE_SIMGRID_WORLD_H
#define TESTS_CONFORMANCE_SIMGRID_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "halage/transport/simgrid.h"

#define NODES_MAX     16u
#define NIC_BANDWIDTH 50e9
#define PIECES_MAX    65536u

struct result {
    hlg_time arrived[NODES_MAX]; /* when all that was written to a node was there, or 0 */
    hlg_time done[NODES_MAX];    /* when all that a node wrote was reported */
    uint64_t failed;             /* pieces, of all nodes */
    uint64_t hash;
    uint64_t posted_done; /* pieces; set by scenarios that count for themselves */
    uint32_t downs;
    int32_t check;
    int32_t codes[4];
};

struct world {
    struct hlg_simgrid *sim;
    struct hlg_transport *nodes[NODES_MAX];
    uint8_t *memory; /* never touched: bytes are not copied */
    hlg_mem mem;
    uint32_t node_count;
    uint32_t expected[NODES_MAX];
    uint32_t posted[NODES_MAX];
    struct result *result;
};

/* Free of latency, bytes not copied. */
void world_config(struct hlg_simgrid_config *config, uint32_t nodes);
/* Each node has an endpoint, to which all nodes, itself too, are peers by their own number. */
void world_open(struct world *w, const struct hlg_simgrid_config *config);
/* Offer pieces of the operation that has the target's number. Returns what write said. */
int64_t offer(struct world *w, uint32_t source, uint32_t target, uint32_t pieces, uint32_t bytes);
/* The same, and all of them must be taken. */
void post(struct world *w, uint32_t source, uint32_t target, uint32_t pieces, uint32_t bytes);
/* Poll a node's endpoint until it has nothing more. */
void look(struct world *w, uint32_t node);
/* Run to the end, and end the simulation. */
void run(struct world *w);
/* Run a scenario in a child. */
void in_child(void (*scenario)(struct result *result), struct result *result);
/* To a nanosecond: the clock is rounded. */
void assert_near(hlg_time time, hlg_time wanted);

#endif
