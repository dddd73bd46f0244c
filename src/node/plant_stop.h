/*
 * The planted stop: a node that stops itself at a step of its protocol, as a machine does that hangs,
 * so that a test can kill it there, or let it sleep and go on. The leader gets SIGSTOP; its ranks run on
 * and wait for it. Or it is stuck there for ever, as inside a provider that spins, or crashes.
 *
 * Steps are the first words of the messenger's log lines, so the notes of the core (docs/protocol.md,
 * src/core/note.h: greeted, requested, first_posted, first_piece, ...), and what passes the transport:
 * peer_open, writing (before pieces are offered), write (some were taken), imm, done, close (before the endpoint is closed).
 */
#ifndef HALAGE_NODE_PLANT_STOP_H
#define HALAGE_NODE_PLANT_STOP_H

#include "node.h"

/* A step was reached; stop here when it is the planted one and its turn. */
void plant_stop_at(struct node *node, const char *step);

/* The same for a line of the messenger's log. Any thread. */
void plant_stop_line(struct node *node, const char *line);

#endif
