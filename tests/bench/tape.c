/*
 * Writes, seen on their way from the pump to the transport.
 */
#include "bench.h"

#include <halage/transport.h>
#include <string.h>

#define FABRICS_MAX   (BARE_PREFILLS_MAX * (1 + DECODERS))
#define ENDPOINTS_MAX (2 * BARE_PREFILLS_MAX * BARE_PREFILLS_MAX * DECODERS * LANES_MAX)
#define PEERS_MAX     LANES_MAX

struct reel {
    struct hlg_transport *transport;
    const struct hlg_transport_ops *ops; /* the transport's own */
    struct hlg_transport_ops patched;
    uint32_t nic;
    uint32_t peers[PEERS_MAX]; /* NICs */
};

static struct tape *running;
static struct reel reels[ENDPOINTS_MAX];
static uint32_t reel_count;
static struct {
    struct hlg_fabric *fabric;
    int (*open)(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                struct hlg_transport **out);
    uint32_t first_nic;
} fabrics[FABRICS_MAX];
static uint32_t fabric_count;

static struct reel *reel_of(const struct hlg_transport *t)
{
    for (uint32_t i = 0; i < reel_count; i++) {
        if (reels[i].transport == t) {
            return &reels[i];
        }
    }
    hlg_unreachable();
}

static int peer_open(struct hlg_transport *t, const uint8_t *address, uint32_t bytes)
{
    struct reel *reel = reel_of(t);
    const int peer = reel->ops->peer_open(t, address, bytes);

    for (uint32_t i = 0; peer >= 0 && i < reel_count; i++) {
        uint8_t other[HLG_ADDRESS_BYTES_MAX];
        const int count = reels[i].ops->address(reels[i].transport, other, sizeof other);

        if (count == (int)bytes && memcmp(other, address, bytes) == 0) {
            HLG_ASSERT(peer < (int)PEERS_MAX);
            reel->peers[peer] = reels[i].nic;
        }
    }
    return peer;
}

static int64_t write_pages(struct hlg_transport *t, const struct hlg_paged_write *write)
{
    const struct reel *reel = reel_of(t);
    const int64_t pieces = reel->ops->write(t, write);

    if (pieces > 0) {
        HLG_ASSERT(running->count < running->capacity);
        running->flows[running->count++] = (struct flow){.source = reel->nic,
                                                         .target = reel->peers[write->peer],
                                                         .bytes = (double)pieces * write->bytes,
                                                         .posted = reel->ops->now(t)};
    }
    return pieces;
}

static int open_endpoint(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    uint32_t index = 0;

    while (fabrics[index].fabric != fabric) {
        index++;
    }

    const int error = fabrics[index].open(fabric, lane, rail, out);

    if (error == 0) {
        struct reel *reel = &reels[reel_count++];

        HLG_ASSERT(reel_count <= ENDPOINTS_MAX && rail == 0);
        reel->transport = *out;
        reel->ops = (*out)->ops;
        reel->patched = *reel->ops;
        reel->patched.peer_open = peer_open;
        reel->patched.write = write_pages;
        reel->nic = fabrics[index].first_nic + lane;
        (*out)->ops = &reel->patched;
    }
    return error;
}

void tape_attach(struct tape *tape, struct hlg_fabric *fabric, uint32_t first_nic)
{
    HLG_ASSERT(fabric_count < FABRICS_MAX);
    running = tape;
    fabrics[fabric_count].fabric = fabric;
    fabrics[fabric_count].open = fabric->open;
    fabrics[fabric_count].first_nic = first_nic;
    fabric_count++;
    fabric->open = open_endpoint;
}
