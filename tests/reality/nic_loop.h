/*
 * One side of the loop: an endpoint of libfabric's native TCP provider, one block of memory, one peer.
 */
#ifndef HALAGE_TESTS_NIC_LOOP_H
#define HALAGE_TESTS_NIC_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct side;

struct side_news {
    uint64_t written; /* own writes that are placed */
    uint64_t seen;    /* immediates of the peer */
};

/* Open it at an address, and tell each other of address and memory through `pair`. What fails ends the
 * process with a line. */
struct side *side_open(const char *ip, uint64_t bytes, int pair);

/* Write with an immediate, to the same place of the peer's memory. Returns whether there was room. */
bool side_write(struct side *side, uint64_t offset, uint64_t bytes);

/* Returns at once with `wait` false; else it may sleep, a millisecond at most, as halage's own thread does
 * when nothing has come for a while, and leave the processor to the other side. */
struct side_news side_poll(struct side *side, bool wait);

/* A TCP connection to the peer: `dials` to ip, or waits there. `pair` carries the port. */
int side_socket(const char *ip, bool dials, int pair);

double now_ns(void);
_Noreturn void give_up(const char *what);

#endif
