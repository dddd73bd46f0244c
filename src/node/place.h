/*
 * Where the leader of a node runs: --cores.
 */
#ifndef HALAGE_NODE_PLACE_H
#define HALAGE_NODE_PLACE_H

#include "node.h"

/*
 * Place the calling thread as --cores says, before the fabric is opened, and keep in node->placement what the messenger's
 * threads are to do. Says in one line where that is and why, as read back.
 *
 * Returns an enum cli_exit; one line was said unless it is CLI_DONE.
 */
int node_place(struct node *node);

/* --nics auto: fill in node->lane_nics, each lane's own NICs as the topology says, and node->rails. Lane i is on the i-th
 * GPU that is visible. Leaves both alone, and says so, where there is no GPU or no NIC. Returns an enum cli_exit. */
int node_pick_nics(struct node *node);

/* Put the thread back. */
void node_unplace(struct node *node);

#endif
