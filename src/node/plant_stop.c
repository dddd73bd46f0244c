#define _GNU_SOURCE /* kill() */
#include "plant_stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static void reach(struct node *node, const char *step, size_t bytes)
{
    const struct plant *plant = &node->options.config.plant;
    if (plant->kind != PLANT_STOP || strlen(plant->step) != bytes ||
        memcmp(plant->step, step, bytes) != 0) {
        return;
    }
    if (atomic_fetch_add(&node->plant_reached, 1) + 1 == plant->count) {
        (void)kill(getpid(), SIGSTOP);
    }
}

void plant_stop_at(struct node *node, const char *step)
{
    reach(node, step, strlen(step));
}

void plant_stop_line(struct node *node, const char *line)
{
    size_t bytes = strcspn(line, " ");
    if (bytes == strlen("request") && memcmp(line, "request", bytes) == 0) {
        /* "request ID ready ..."; the id is a number here. */
        line += bytes + strspn(line + bytes, " ");
        line += strcspn(line, " ");
        line += strspn(line, " ");
        bytes = strcspn(line, " ");
    }
    reach(node, line, bytes);
}
