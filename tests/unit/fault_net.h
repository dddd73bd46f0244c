/* Nodes over the loop through one decorator, for the tests of `fault`. The loop's times are fixed: 1 us
 * to land, nothing more for immediate and completion, 10 us for a frame. */
#ifndef FAULT_NET_H
#define FAULT_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "halage/message.h"
#include "halage/transport/fault.h"
#include "halage/transport/loop.h"

#define NET_NODES      3u
#define NET_PAGES      64u
#define NET_PAGE_BYTES 64u
#define NET_OPS        64u
#define NET_US         1000u
#define NET_STALL_NS   (200 * NET_US)
#define NET_LANDINGS   512u

struct end {
    struct hlg_fabric *fabric;
    struct hlg_transport *t;
    uint8_t memory[NET_PAGES * NET_PAGE_BYTES];
    hlg_mem mem;
    struct hlg_mem_export exported;
    uint32_t peers[NET_NODES];
    uint32_t pieces;
    uint32_t immediates;
    uint32_t generations[16]; /* pieces by generation */
    uint32_t downs[NET_NODES];
    uint32_t taken[NET_OPS];
    uint32_t done[NET_OPS];
    uint32_t failed[NET_OPS];
    int32_t status[NET_OPS];
};

struct net {
    struct hlg_loop *loop;
    struct hlg_fault *fault;
    struct end ends[NET_NODES];
    uint32_t pages[NET_PAGES];
    /* what landed, in order */
    uint32_t landed[NET_LANDINGS]; /* page at the target */
    bool copies[NET_LANDINGS];     /* from a copy of the decorator */
    uint32_t landings;
    /* ends of channels that are polled too; what comes is not looked at */
    struct hlg_channel *polled[2];
};

/* Opens all endpoints, joins them all, and adds the rules of `script` afterwards. */
void net_make(struct net *n, uint64_t seed, const char *script);
void net_make_of(struct net *n, const struct hlg_fault_config *config, const char *script);
void net_drop(struct net *n);
void net_script(struct net *n, const char *script);
void net_open(struct net *n, uint32_t node);
void net_join(struct net *n, uint32_t from, uint32_t to);
/* Pages [begin, limit), a piece each, of slot 5 and generation `op` % 16. */
struct hlg_paged_write net_write(const struct net *n, uint32_t from, uint32_t to, hlg_op_id op,
                                 uint32_t begin, uint32_t limit);
/* One call of write; counts what is taken. */
int64_t net_post(struct net *n, uint32_t from, const struct hlg_paged_write *w);
/* All `pieces` pages from the first one on must be taken. */
void net_post_all(struct net *n, uint32_t from, uint32_t to, hlg_op_id op, uint32_t pieces);
void net_expect_done(const struct net *n, uint32_t node, hlg_op_id op, uint32_t done,
                     uint32_t failed);
void net_poll(struct net *n, uint32_t node);
/* Let time pass, in steps that no happening lies between, and poll all. */
void net_pass(struct net *n, hlg_time span);
/* Until nothing more happens, by the deadlines of loop and decorator. */
void net_run_dry(struct net *n);
uint64_t net_hits(const struct net *n, uint32_t kind);
uint64_t net_held(const struct net *n);
/* Whether page `page` of `node` holds what `from` has in that page. */
bool net_has(const struct net *n, uint32_t node, uint32_t page, uint32_t from);
/* Every operation of a node is over. */
bool net_is_even(const struct net *n, uint32_t node);

struct wires {
    struct hlg_channel *a; /* node 0's end */
    struct hlg_channel *b; /* node 1's */
};

struct wires net_wires(struct net *n);
/* A frame of one byte. Returns what send says. */
int net_send(struct hlg_channel *c, uint8_t number);
/* The number of the next frame, 0 for none, or an error. Lets the sender, if given, move on first. */
int net_receive(struct hlg_channel *from, struct hlg_channel *c);

#endif
