#include "plant_fabric.h"

#include <poll.h>
#include <stdlib.h>

/* How long a lie is given to take effect. */
#define PLANT_MS 40

bool plant_fabric_wrap(struct node *node)
{
    node->fabric_owned = NULL;
    return true;
}

void plant_fabric_unwrap(struct node *node)
{
    (void)node;
}

const _Atomic uint32_t *plant_fabric_word(struct node *node)
{
    return node->options.config.plant.kind == PLANT_EARLY_TICK ? &node->plant_word
                                                               : ranks_word(node->ranks, 0);
}

void plant_fabric_forward(struct node *node, uint32_t forward)
{
    const struct plant *plant = &node->options.config.plant;
    if (plant->kind != PLANT_EARLY_TICK) {
        return;
    }
    atomic_store(&node->plant_word, forward << 8 | (plant->layer + 1));
    (void)poll(NULL, 0, PLANT_MS);
}
