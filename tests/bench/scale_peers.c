/* A prefill machine with many peers that have nothing to say but that they live: what a heartbeat costs. */
#include "scale.h"

#include "../support/small_layout.h"

#include <stdlib.h>
#include <string.h>

#define BEAT_NS HLG_NS_PER_S

struct scale_peers {
    void *memory;
    struct hlg_prefill *machine;
    uint32_t count;
    hlg_time now;
    uint32_t next;  /* peer whose heartbeat comes next */
    uint64_t beats; /* from them */
    uint64_t sent;  /* to them */
};

static void make_config(uint32_t count, struct hlg_prefill_config *config)
{
    *config = (struct hlg_prefill_config){.rails = 1, .node = 1, .incarnation = 1};
    config->layout = small_layout((struct small_layout){
        .layers = 1, .planes = 1, .heads = 1, .head_bytes = 8, .page_tokens = 4, .pages = 4});
    hlg_limits_default(&config->limits);
    config->limits.peers_max = count;
    config->limits.requests_max = 16;
    config->limits.lanes_max = 1;
    config->limits.rails_max = 1;
    config->limits.slices_max = 16;
    config->limits.heartbeat_ns = BEAT_NS;
    config->limits.lease_ns = 6 * BEAT_NS;
}

static void feed(struct scale_peers *p, struct hlg_event event)
{
    event.now = p->now;
    const int error = hlg_prefill_handle(p->machine, &event);
    HLG_ASSERT(error == 0);
}

static void carry(struct scale_peers *p)
{
    struct hlg_action action;

    while (hlg_prefill_next(p->machine, 0, HLG_ACTIONS_NODE, &action) != 0) {
        HLG_ASSERT(action.kind != HLG_ACTION_PEER_CLOSE);
        p->sent += action.kind == HLG_ACTION_SEND;
        if (action.kind == HLG_ACTION_PEER_OPEN) {
            feed(p,
                 (struct hlg_event){.kind = HLG_EVENT_PEER_OPENED, .peer = {.peer = action.peer}});
        }
    }
}

static void hear(struct scale_peers *p, uint32_t peer, const struct hlg_message *message)
{
    feed(p,
         (struct hlg_event){.kind = HLG_EVENT_MESSAGE, .peer = {.peer = peer, .message = message}});
    carry(p);
}

struct scale_peers *scale_peers_open(uint32_t count)
{
    struct hlg_prefill_config config;
    struct scale_peers *p = calloc(1, sizeof *p);
    struct hlg_message hello = {.kind = HLG_MESSAGE_HELLO};

    make_config(count, &config);
    HLG_ASSERT(p != NULL);
    p->memory = malloc(hlg_prefill_size(&config));
    HLG_ASSERT(p->memory != NULL);
    p->machine = hlg_prefill_init(p->memory, &config);
    p->count = count;
    hello.hello = (struct hlg_hello){.protocol_min = HLG_PROTOCOL_MIN,
                                     .protocol_max = HLG_PROTOCOL_MAX,
                                     .role = HLG_ROLE_DECODE,
                                     .window_pieces = 64,
                                     .layout = config.layout,
                                     .address_count = 1};
    for (uint32_t i = 0; i < count; i++) {
        p->now += BEAT_NS / count;
        feed(p, (struct hlg_event){.kind = HLG_EVENT_CHANNEL_UP, .peer = {.peer = i, .domain = i}});
        carry(p);
        hello.hello.node = 100 + i;
        hello.hello.incarnation = i;
        hear(p, i, &hello);
    }
    return p;
}

void scale_peers_run(struct scale_peers *p, uint32_t seconds)
{
    static const struct hlg_message beat = {.kind = HLG_MESSAGE_HEARTBEAT};
    const hlg_time end = p->now + seconds * HLG_NS_PER_S;

    p->beats = 0;
    p->sent = 0;
    for (hlg_time heard = p->now; p->now < end;) {
        const hlg_time due = hlg_prefill_deadline(p->machine);
        if (due <= heard) {
            p->now = due > p->now ? due : p->now;
            feed(p, (struct hlg_event){.kind = HLG_EVENT_TIME});
            carry(p);
            continue;
        }
        p->now = heard > p->now ? heard : p->now;
        hear(p, p->next, &beat);
        p->beats++;
        p->next = (p->next + 1) % p->count;
        heard += BEAT_NS / p->count;
    }
}

uint64_t scale_peers_beats(const struct scale_peers *p, uint64_t *sent)
{
    *sent = p->sent;
    return p->beats;
}

void scale_peers_close(struct scale_peers *p)
{
    free(p->memory);
    free(p);
}
