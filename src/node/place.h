/*
 * Where the leader of a node runs: --cores.
 */
#ifndef HALAGE_NODE_PLACE_H
#define HALAGE_NODE_PLACE_H

#include "node.h"

/*
 * Place the calling thread as --cores says (auto: near the first of --nics, else near the NIC of lane 0's GPU), before the fabric is opened, and keep in node->placement what the messenger's
 * threads are to do. Says in one line where that is and why, as read back.
 *
 * Returns an enum cli_exit; one line was said unless it is CLI_DONE.
 */
int node_place(struct node *node);

/* --nics auto: fill in node->lane_nics, the own NICs of each lane's GPU as the topology says, and node->rails. Of memory
 * of GPUs the driver tells which that is; pages in host memory go by the GPU that the lane would have, which is the
 * visible one of its rank's number, counted round. Leaves both alone, and says so, where there is no GPU, or no NIC that
 * the provider opens. Returns an enum cli_exit. */
int node_pick_nics(struct node *node);

/* Put the thread back. */
void node_unplace(struct node *node);

#endif
