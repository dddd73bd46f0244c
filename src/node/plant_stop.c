#define _GNU_SOURCE /* kill() */
#include "plant_stop.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void reach(struct node *node, const char *step, size_t bytes)
{
    const struct plant *plant = &node->options.config.plant;
    volatile uint32_t *volatile nowhere = NULL; /* or the compiler would know better */
    if (!plant_has_step(plant) || strlen(plant->step) != bytes ||
        memcmp(plant->step, step, bytes) != 0) {
        return;
    }
    if (atomic_fetch_add(&node->plant_reached, 1) + 1 != plant->count) {
        return;
    }
    if (plant->kind == PLANT_STOP) {
        (void)kill(getpid(), SIGSTOP);
    }
    if (plant->kind == PLANT_CRASH) {
        *nowhere = 0;
    }
    while (plant->kind == PLANT_STUCK) {
        (void)poll(NULL, 0, 1000);
    }
}

void plant_stop_at(struct node *node, const char *step)
{
    reach(node, step, strlen(step));
}

void plant_stop_line(struct node *node, const char *line)
{
    reach(node, line, strcspn(line, " "));
}
