/*
 * What has news, so that nobody looks everywhere. Each node has a list of its endpoints and sides of
 * channels with news, and the simulation a list of nodes whose list is not empty. All are rings of
 * items: those of endpoints, of sides, of nodes, then the heads of the nodes' lists and of the last.
 */
#include "internal.h"

static uint32_t side_item(const struct side *s)
{
    const uint32_t number = s == &s->sim->pairs[s->pair].sides[0] ? 0 : 1;

    return s->sim->endpoint_count + 2 * s->pair + number;
}

static uint32_t node_item(const struct hlg_simgrid *sim, uint32_t node)
{
    return sim->endpoint_count + 2 * sim->config.channels_max + node;
}

static uint32_t head_item(const struct hlg_simgrid *sim, uint32_t node)
{
    return node_item(sim, sim->config.nodes) + node;
}

/* The list of nodes. */
static uint32_t last_item(const struct hlg_simgrid *sim)
{
    return head_item(sim, sim->config.nodes);
}

uint64_t ready_items(const struct hlg_simgrid *sim)
{
    return sim->endpoint_count + 2ull * sim->config.channels_max + 2ull * sim->config.nodes + 1;
}

void ready_init(struct hlg_simgrid *sim)
{
    for (uint32_t item = 0; item <= last_item(sim); item++) {
        sim->items[item] = (struct item){item, item};
    }
}

static bool is_alone(const struct hlg_simgrid *sim, uint32_t item)
{
    return sim->items[item].next == item;
}

/* At the end of a list, unless it is in one. */
static void append(struct hlg_simgrid *sim, uint32_t head, uint32_t item)
{
    if (!is_alone(sim, item)) {
        return;
    }
    sim->items[item] = (struct item){.next = head, .before = sim->items[head].before};
    sim->items[sim->items[head].before].next = item;
    sim->items[head].before = item;
}

static void detach(struct hlg_simgrid *sim, uint32_t item)
{
    const struct item old = sim->items[item];

    sim->items[old.before].next = old.next;
    sim->items[old.next].before = old.before;
    sim->items[item] = (struct item){item, item};
}

static void put(struct hlg_simgrid *sim, uint32_t node, uint32_t item)
{
    append(sim, head_item(sim, node), item);
    append(sim, last_item(sim), node_item(sim, node));
}

static void drop(struct hlg_simgrid *sim, uint32_t node, uint32_t item)
{
    detach(sim, item);
    if (is_alone(sim, head_item(sim, node))) {
        detach(sim, node_item(sim, node));
    }
}

void ready_put_endpoint(struct endpoint *e)
{
    put(e->sim, e->self.node, e->self.slot);
}

void ready_put_side(struct side *s)
{
    put(s->sim, s->node, side_item(s));
}

void ready_drop_endpoint(struct endpoint *e)
{
    drop(e->sim, e->self.node, e->self.slot);
}

void ready_drop_side(struct side *s)
{
    drop(s->sim, s->node, side_item(s));
}

bool ready_any(const struct hlg_simgrid *sim)
{
    return !is_alone(sim, last_item(sim));
}

bool ready_pop(struct hlg_fabric *fabric, struct hlg_ready *ready)
{
    const struct node *node = (const struct node *)fabric; /* fabric is the first member */
    struct hlg_simgrid *sim = node->sim;
    const uint32_t head = head_item(sim, node->index);
    const uint32_t item = sim->items[head].next;

    if (item == head) {
        return false;
    }
    drop(sim, node->index, item);
    if (item < sim->endpoint_count) {
        *ready = (struct hlg_ready){.transport = &sim->endpoints[item].transport};
    } else {
        const uint32_t side = item - sim->endpoint_count;

        *ready = (struct hlg_ready){.channel = &sim->pairs[side / 2].sides[side % 2].channel};
    }
    return true;
}

bool hlg_simgrid_ready(struct hlg_simgrid *sim, uint32_t *node)
{
    const uint32_t head = last_item(sim);
    const uint32_t item = sim->items[head].next;

    if (item == head) {
        return false;
    }
    detach(sim, item);
    *node = item - node_item(sim, 0);
    return true;
}
