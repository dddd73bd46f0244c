/* Who connects to `halage perf serve`: looked at without waiting, by the one thread that there is. */
#include "perf.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define GUESTS_MAX (PERF_PEERS_MAX + 16u)
#define GUEST_NS   (5 * HLG_NS_PER_S) /* to say what it is */
#define SLICE_MS   20

struct guest {
    struct hlg_channel *channel; /* NULL: free */
    hlg_time since;
    uint64_t token; /* of a peer's; 0: it has not said what it is */
};

struct perf_door {
    struct hlg_tcp_listener *listener;
    struct guest guests[GUESTS_MAX];
    uint32_t count;
};

int perf_door_open(const char *listen, struct perf_door **out, char *error)
{
    struct perf_door *door = calloc(1, sizeof *door);

    if (door == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    const int rc =
        hlg_tcp_listen(listen, PERF_FRAME_BYTES, &door->listener, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        free(door);
        return rc;
    }
    *out = door;
    return 0;
}

static struct hlg_channel *let_go(struct perf_door *door, uint32_t index)
{
    struct hlg_channel *channel = door->guests[index].channel;

    door->guests[index].channel = NULL;
    door->count--;
    return channel;
}

void perf_door_close(struct perf_door *door)
{
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        if (door->guests[i].channel != NULL) {
            struct hlg_channel *channel = let_go(door, i);
            channel->ops->close(channel);
        }
    }
    hlg_tcp_listener_close(door->listener);
    free(door);
}

const char *perf_door_name(const struct perf_door *door)
{
    return hlg_tcp_listener_name(door->listener);
}

static void take_all(struct perf_door *door)
{
    uint32_t slot = 0;

    while (door->count < GUESTS_MAX) {
        while (door->guests[slot].channel != NULL) {
            slot++;
        }
        if (hlg_tcp_accept(door->listener, &door->guests[slot].channel) != 1) {
            door->guests[slot].channel = NULL;
            return;
        }
        door->guests[slot].since = perf_now();
        door->guests[slot].token = 0;
        door->count++;
    }
}

static void send_away(struct perf_door *door, uint32_t index, const char *why, const char *who)
{
    struct hlg_channel *channel = let_go(door, index);
    struct perf_message message = {.kind = PERF_MESSAGE_ERROR};

    (void)snprintf(message.text, sizeof message.text, why, who);
    (void)perf_send(channel, &message); /* last words */
    channel->ops->close(channel);
}

/* A guest that is heard at last, but is not wanted. */
static void turn_away(struct perf_door *door, uint32_t index, int got,
                      const struct perf_message *message, const char *busy_with)
{
    if (got == 1 && message->kind == PERF_MESSAGE_HELLO) {
        send_away(door, index,
                  "%.80s is served now, and one at a time is: try again later, or start another "
                  "'halage perf serve' on a port of its own",
                  busy_with);
    } else if (got == -HLG_EPEER) {
        struct hlg_channel *gone = let_go(door, index);
        gone->ops->close(gone);
    } else {
        send_away(door, index, "this is %s: use 'halage perf run' of the same version",
                  "'halage perf serve'");
    }
}

/* The next guest that is wanted: with this token, or without one who asks. The others hear why they are not, but
 * for peers' connections: they may come before the word that they are to. */
static struct hlg_channel *look(struct perf_door *door, uint64_t token, const char *busy_with)
{
    take_all(door);
    const hlg_time now = perf_now(); /* no guest came later */
    for (uint32_t i = 0; i < GUESTS_MAX && door->count > 0; i++) {
        struct guest *guest = &door->guests[i];
        struct perf_message message;
        if (guest->channel == NULL) {
            continue;
        }
        const int got = guest->token == 0 ? perf_receive(guest->channel, &message) : 0;
        if (got == 1 && message.kind == PERF_MESSAGE_PEER) {
            guest->token = message.token;
        }
        if ((token != 0 && guest->token == token) ||
            (got == 1 && message.kind == PERF_MESSAGE_HELLO && busy_with == NULL)) {
            return let_go(door, i);
        }
        if ((got != 0 && guest->token == 0) || now - guest->since > GUEST_NS) {
            turn_away(door, i, got, &message, busy_with);
        }
    }
    return NULL;
}

struct hlg_channel *perf_door_asker(struct perf_door *door, hlg_time span)
{
    const hlg_time limit = hlg_time_after(perf_now(), span);

    while (!perf_interrupted()) {
        struct hlg_channel *channel = look(door, 0, NULL);
        if (channel != NULL || perf_now() >= limit) {
            return channel;
        }
        /* A guest's descriptor is not among these: it is looked at again soon. An error or a signal only makes
           it look earlier. */
        struct pollfd fd = {.fd = hlg_tcp_listener_fd(door->listener), .events = POLLIN};
        (void)poll(&fd, 1, door->count > 0 ? SLICE_MS : 10 * SLICE_MS);
    }
    return NULL;
}

struct hlg_channel *perf_door_peer(struct perf_door *door, uint64_t token, const char *busy_with)
{
    return look(door, token, busy_with);
}
