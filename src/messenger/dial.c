/* The dialling thread: connecting may take seconds, which neither an engine's thread nor the core
 * thread has. One address after the other. */
#include "messenger_internal.h"

#include <poll.h>
#include <stdio.h>

static void dial(struct hlg_messenger *m, const struct dial_order *order)
{
    struct dial_result result = {.connection = order->connection};

    memcpy(result.address, order->address, sizeof result.address);
    result.error = hlg_tcp_dial(order->address, m->config.connect_ns, messenger_frame_bytes(m),
                                &result.channel, result.text, sizeof result.text);
    if (result.error == 0 && lobby_needs_loopback(m) &&
        !hlg_tcp_is_loopback(result.channel->ops->name(result.channel))) {
        result.channel->ops->close(result.channel); /* nothing was said to it */
        result.channel = NULL;
        result.error = -HLG_EPEER;
        result.not_loopback = true;
        (void)snprintf(result.text, sizeof result.text, "%.64s is not loopback: " NO_KEY_ADVICE,
                       result.address);
    }
    uint32_t rounds = 0;

    /* As many results as orders fit, so that this waits for the core thread, or an engine that does not
       poll, at most. */
    while (!ring_push(&m->dialled, &result)) {
        if (latch_is_set(&m->stop)) {
            if (result.channel != NULL) {
                result.channel->ops->close(result.channel);
            }
            return;
        }
        ring_pause(&rounds);
    }
    bell_ring(&m->core_bell);
}

void *dial_main(void *messenger)
{
    struct hlg_messenger *m = messenger;
    struct dial_order order;

    while (!latch_is_set(&m->stop)) {
        if (ring_pop(&m->orders, &order)) {
            dial(m, &order);
            continue;
        }
        bell_arm(&m->dial_bell);
        if (ring_empty(&m->orders) && !latch_is_set(&m->stop)) {
            struct pollfd fd = {.fd = m->dial_bell.fd, .events = POLLIN};
            (void)poll(&fd, 1, -1); /* an error or a signal only makes it look again */
        }
    }
    return NULL;
}
