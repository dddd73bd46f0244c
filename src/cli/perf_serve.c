/* `halage perf serve`: receives what `run` and `layer` send, one of them at a time. */
#include "perf.h"

#include "cli.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LINGER_NS  (50 * HLG_NS_PER_MS) /* ends are kept moving after the last word */
#define SLICE_NS   HLG_NS_PER_MS
#define JOIN_NS    (20 * HLG_NS_PER_S)
#define SILENCE_NS (200 * HLG_NS_PER_MS) /* between looks at the door while nothing is open */
#define GONE_NS \
    (200 * HLG_NS_PER_MS) /* an end of the other side's breaks sessions before its channel ends */
#define DOOR_NS (100 * HLG_NS_PER_MS)
#define STEPS_A_LOOK \
    256u /* rounds of an end between looks at the channel: a look is a call of the system */

struct bench {
    struct perf_arena arena;
    struct perf_end *end; /* NULL: closed */
};

struct server {
    const struct perf_serve *config;
    struct perf_door *door;
    struct hlg_channel *channel; /* of who asks */
    uint64_t token;              /* of its peers' connections */
    hlg_time door_due;
    struct bench benches[PERF_BENCHES];
    struct perf_layer_target *layer; /* NULL: none */
    char error[PERF_ERROR_BYTES];
};

static void bench_close(struct bench *bench)
{
    if (bench->end != NULL) {
        bench->end->ops->close(bench->end);
        bench->end = NULL;
    }
    perf_arena_close(&bench->arena);
}

int perf_end_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                  struct perf_end **end, char *error)
{
    switch ((enum perf_path)arena->shape.path) {
    case PERF_CORE:
        return perf_core_open(arena, target, place, end, error);
    case PERF_BARE:
        return perf_bare_open(arena, target, place, end, error);
    case PERF_PING:
        return perf_ping_open(arena, target, place, end, error);
    case PERF_LAYER:
    case PERF_PATHS:
        break;
    }
    hlg_unreachable(); /* no end's */
}

/* Who else connects hears that it must wait. */
static void look_at_door(struct server *s)
{
    const hlg_time now = perf_now();

    if (now >= s->door_due) {
        s->door_due = now + DOOR_NS;
        struct hlg_channel *late = perf_door_peer(s->door, 0, s->channel->ops->name(s->channel));
        HLG_ASSERT(late == NULL); /* no token is 0 */
    }
}

/* Keeps a sentence for who asks. */
static int refuse(struct server *s, const char *sentence)
{
    if (sentence != s->error) {
        (void)snprintf(s->error, sizeof s->error, "%s", sentence);
    }
    return -HLG_EINVAL;
}

/* A decode node in place of the last one. */
static int open_layer(struct server *s, const struct perf_message *message)
{
    struct perf_message answer = {.kind = PERF_MESSAGE_UP};

    perf_layer_target_close(s->layer);
    s->layer = NULL;
    const int rc = perf_layer_target_open(&message->shape, &s->config->place, s->config->insecure,
                                          &s->layer, s->error);
    return rc != 0 ? rc : perf_send(s->channel, &answer);
}

static int open_case(struct server *s, const struct perf_message *message)
{
    const struct perf_place *place = &s->config->place;
    struct bench *bench = &s->benches[message->bench];
    struct perf_message answer = {.kind = PERF_MESSAGE_READY, .bench = message->bench};

    bench_close(bench);
    if (!perf_case_check(&message->shape, s->error)) {
        return -HLG_EINVAL;
    }
    if (message->shape.path == PERF_LAYER) {
        return open_layer(s, message);
    }
    int rc = perf_arena_open(&message->shape, true, place->device, &bench->arena, s->error);
    rc = rc == 0 ? perf_end_open(&bench->arena, true, place, &bench->end, s->error) : rc;
    if (rc != 0) {
        return rc;
    }
    answer.ready = bench->end->ready;
    answer.ready.token = s->token;
    return perf_send(s->channel, &answer);
}

/* Takes the channels of a core's peers, which are dialled now, and waits until all are up. */
static int join_bench(struct server *s, const struct perf_message *message)
{
    struct perf_end *end = s->benches[message->bench].end;
    struct perf_message answer = {.kind = PERF_MESSAGE_UP, .bench = message->bench};
    const char *name = s->channel->ops->name(s->channel);
    const hlg_time limit = perf_now() + JOIN_NS;
    struct perf_message other;

    if (end == NULL) {
        return refuse(s, "nothing is open to be joined");
    }
    int rc = end->ops->join(end, &message->ready);
    while (rc >= 0 && !end->ops->joined(end)) {
        struct hlg_channel *channel = perf_door_peer(s->door, s->token, name);
        rc = channel != NULL ? perf_core_channel(end, channel) : end->ops->step(end);
        if (perf_receive(s->channel, &other) != 0) {
            return -HLG_EPEER; /* it is gone, or gave up: nothing is sent before our answer */
        }
        if (rc >= 0 && (perf_now() > limit || perf_interrupted())) {
            return refuse(s, "the connections of the peers did not come up in time");
        }
    }
    return rc < 0 ? refuse(s, end->error) : perf_send(s->channel, &answer);
}

/* Moves until all of a round is here. */
static int go_bench(struct server *s, const struct perf_message *message)
{
    struct bench *bench = &s->benches[message->bench];
    struct perf_end *end = bench->end;
    struct perf_message answer = {.kind = PERF_MESSAGE_DONE, .bench = message->bench};
    struct perf_message other;

    if (end == NULL || message->go.count == 0 || message->go.count > UINT32_MAX) {
        return refuse(s, "nothing is open to be moved, or the count is out of range");
    }
    end->ops->begin(end, message->go.count);
    for (uint32_t i = 1; !end->ops->over(end); i++) {
        if (end->ops->step(end) < 0) {
            return refuse(s, end->error);
        }
        if (i % STEPS_A_LOOK == 0) {
            perf_watch(s->config->program);
            look_at_door(s);
            if (perf_receive(s->channel, &other) != 0) {
                return -HLG_EPEER; /* as above */
            }
        }
        if (perf_interrupted()) {
            return -HLG_ECANCELED;
        }
    }
    answer.go.count = message->go.count;
    int rc = perf_send(s->channel, &answer);
    if (rc == 0 && bench->arena.shape.check != 0 && message->go.iteration != 0) {
        const uint32_t slots = (uint32_t)hlg_min_u64(PERF_SLOTS, message->go.count);
        perf_watch(NULL); /* this may take its time */
        rc = perf_arena_wrong(&bench->arena, message->go.iteration, slots, &answer.go.wrong);
        rc = rc != 0 ? refuse(s, "the pages cannot be read back") : perf_send(s->channel, &answer);
    }
    return rc;
}

static int handle(struct server *s, const struct perf_message *message)
{
    switch (message->kind) {
    case PERF_MESSAGE_CASE:
        return open_case(s, message);
    case PERF_MESSAGE_READY:
        return join_bench(s, message);
    case PERF_MESSAGE_GO:
        return s->layer != NULL
                   ? perf_layer_target_go(s->layer, s->channel, message->go.count, s->error)
                   : go_bench(s, message);
    case PERF_MESSAGE_END:
        bench_close(&s->benches[message->bench]);
        return perf_send(s->channel,
                         &(struct perf_message){.kind = PERF_MESSAGE_END, .bench = message->bench});
    default:
        return refuse(s, "a message of a kind that is not known; use the same version of halage");
    }
}

/* Between messages: what is open is kept moving, fast for a while, then once a slice. */
static int rest(struct server *s, hlg_time since)
{
    struct perf_message message;
    bool any = false;

    for (uint32_t i = 0; i < PERF_BENCHES; i++) {
        struct perf_end *end = s->benches[i].end;
        any = any || end != NULL;
        if (end != NULL && end->ops->step(end) < 0) {
            return refuse(s, end->error);
        }
    }
    const hlg_time span = !any ? SILENCE_NS : perf_now() < since + LINGER_NS ? 0 : SLICE_NS;
    perf_watch(NULL);
    look_at_door(s);
    const int got = perf_await(s->channel, span, &message);
    if (got <= 0) {
        return got;
    }
    perf_watch(s->config->program);
    return handle(s, &message) < 0 ? -HLG_EINVAL : 1;
}

/* Whether the one who asks has ended, or ended what it asked for: then no failure that follows is one. */
static bool has_gone(struct server *s)
{
    struct perf_message message;
    const int got = perf_await(s->channel, GONE_NS, &message);

    return got == -HLG_EPEER || (got == 1 && message.kind == PERF_MESSAGE_END);
}

/* One who asks, until it goes. */
static void serve_one(struct server *s)
{
    struct perf_message message = {.kind = PERF_MESSAGE_HELLO};
    hlg_time since = perf_now();
    const char *name = s->channel->ops->name(s->channel);

    s->error[0] = '\0';
    int rc = perf_send(s->channel, &message);
    if (getrandom(&s->token, sizeof s->token, 0) != (ssize_t)sizeof s->token || s->token == 0) {
        rc = refuse(s, "the system has no random numbers");
    }
    while (rc >= 0 && !perf_interrupted()) {
        rc = rest(s, since);
        since = rc > 0 ? perf_now() : since;
    }
    perf_watch(s->config->program);
    if (s->error[0] != '\0' && !has_gone(s)) {
        message.kind = PERF_MESSAGE_ERROR;
        (void)snprintf(message.text, sizeof message.text, "%s", s->error);
        (void)perf_send(s->channel, &message);
        (void)fprintf(stderr, "%s: %s: %s\n", s->config->program, name, s->error);
    }
    for (uint32_t i = 0; i < PERF_BENCHES; i++) {
        bench_close(&s->benches[i]);
    }
    perf_layer_target_close(s->layer);
    s->layer = NULL;
    s->channel->ops->close(s->channel);
    s->channel = NULL;
    perf_watch(NULL);
}

static int accept_all(struct server *s)
{
    while (!perf_interrupted()) {
        s->channel = perf_door_asker(s->door, HLG_TIME_NEVER);
        if (s->channel != NULL) {
            serve_one(s);
            if (s->config->once) {
                return CLI_DONE;
            }
        }
    }
    return CLI_INTERRUPTED;
}

int perf_serve(const struct perf_serve *config, int port_fd)
{
    struct server s = {.config = config};
    char error[PERF_ERROR_BYTES] = "";

    const int opened = perf_door_open(config->listen, &s.door, error);
    if (opened != 0) {
        (void)options_error(config->program, "--listen: %s", error);
        return opened == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    const char *name = perf_door_name(s.door);
    if (!config->insecure && !hlg_tcp_is_loopback(name)) {
        (void)options_error(config->program,
                            "--listen: %s: whoever reaches it can use this machine's memory and "
                            "NICs; listen on loopback, or allow it (--insecure)",
                            config->listen);
        perf_door_close(s.door);
        return CLI_BAD_INPUT;
    }
    if (port_fd >= 0) {
        const bool told = write(port_fd, name, strlen(name) + 1) > 0;
        (void)close(port_fd);
        if (!told) {
            perf_door_close(s.door);
            return CLI_FAILED;
        }
    } else {
        (void)printf("listening %s\n", name);
        (void)fflush(stdout);
    }
    const int status = accept_all(&s);
    perf_door_close(s.door);
    return status;
}
