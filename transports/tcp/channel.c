#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "halage/wire.h"

/* Room for small messages while a long one is being sent. */
#define QUEUE_EXTRA_BYTES (64u << 10)

/* Bytes [begin, limit) of a fixed buffer are in use. */
struct buffer {
    uint8_t *bytes;
    uint32_t capacity; /* of `in`: also of the longest frame that is taken */
    uint32_t begin;
    uint32_t limit;
};

struct tcp_channel {
    struct hlg_channel channel;
    int fd;
    uint32_t message_bytes_max;
    struct buffer in;
    struct buffer out;
    bool in_over;   /* end of stream, or an error: what is in the buffer is the last */
    bool in_broken; /* not made of frames */
    bool out_over;
    char name[HLG_TCP_NAME_BYTES];
};

static struct tcp_channel *channel_of(struct hlg_channel *c)
{
    return (struct tcp_channel *)c;
}

static uint32_t used(const struct buffer *buffer)
{
    return buffer->limit - buffer->begin;
}

/* Move what is in use to the front. Done only when the end is reached, so each byte moves seldom. */
static void compact(struct buffer *buffer)
{
    if (buffer->begin > 0) {
        memmove(buffer->bytes, buffer->bytes + buffer->begin, used(buffer));
        buffer->limit -= buffer->begin;
        buffer->begin = 0;
    }
}

static bool would_wait(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Send without waiting. Returns how many bytes went; an error ends the output. */
static uint32_t push(struct tcp_channel *c, const uint8_t *bytes, uint32_t count)
{
    uint32_t sent = 0;

    while (sent < count) {
        const ssize_t n = send(c->fd, bytes + sent, count - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            c->out_over = !would_wait(errno);
            break;
        }
        sent += hlg_u32((uint64_t)n);
    }
    return sent;
}

static void flush(struct tcp_channel *c)
{
    if (!c->out_over && used(&c->out) > 0) {
        c->out.begin += push(c, c->out.bytes + c->out.begin, used(&c->out));
    }
    if (used(&c->out) == 0) {
        c->out.begin = 0;
        c->out.limit = 0;
    }
}

static int channel_send(struct hlg_channel *channel, const uint8_t *frame, uint32_t bytes)
{
    struct tcp_channel *c = channel_of(channel);
    uint32_t sent = 0;

    if (bytes < HLG_WIRE_HEADER_BYTES || bytes > c->message_bytes_max) {
        return -HLG_EINVAL;
    }
    flush(c);
    if (!c->out_over && used(&c->out) == 0) {
        sent = push(c, frame, bytes);
    }
    if (c->out_over) {
        return -HLG_EPEER;
    }
    const uint32_t rest = bytes - sent;
    if (rest > c->out.capacity - used(&c->out)) {
        HLG_ASSERT(sent == 0); /* an empty queue has room for any frame */
        return 0;
    }
    if (rest > c->out.capacity - c->out.limit) {
        compact(&c->out);
    }
    memcpy(c->out.bytes + c->out.limit, frame + sent, rest);
    c->out.limit += rest;
    return 1;
}

/* Returns 1 with the length of the frame at the front, 0 when it is not whole, or -HLG_EPROTO. */
static int front_frame(struct tcp_channel *c, uint32_t *bytes)
{
    if (used(&c->in) < HLG_WIRE_HEADER_BYTES) {
        return 0;
    }
    const int64_t length = hlg_wire_frame_bytes(c->in.bytes + c->in.begin, c->in.capacity);
    if (length < 0) {
        c->in_broken = true;
        return -HLG_EPROTO;
    }
    if ((uint64_t)length > used(&c->in)) {
        return 0;
    }
    *bytes = hlg_u32((uint64_t)length);
    return 1;
}

/* Read once. Returns whether there may be more. */
static bool pull(struct tcp_channel *c)
{
    if (used(&c->in) == 0) {
        c->in.begin = 0;
        c->in.limit = 0;
    } else if (c->in.limit == c->in.capacity) {
        compact(&c->in);
    }
    HLG_ASSERT(c->in.limit < c->in.capacity);
    const ssize_t n = recv(c->fd, c->in.bytes + c->in.limit, c->in.capacity - c->in.limit, 0);
    if (n > 0) {
        c->in.limit += hlg_u32((uint64_t)n);
        return true;
    }
    c->in_over = n == 0 || !would_wait(errno);
    return false;
}

static int channel_receive(struct hlg_channel *channel, const uint8_t **frame, uint32_t *bytes)
{
    struct tcp_channel *c = channel_of(channel);
    uint32_t length = 0;

    flush(c);
    if (c->in_broken) {
        return -HLG_EPROTO;
    }
    int found = front_frame(c, &length);
    while (found == 0 && !c->in_over && pull(c)) {
        found = front_frame(c, &length);
    }
    if (found == 1) {
        *frame = c->in.bytes + c->in.begin;
        *bytes = length;
        c->in.begin += length;
    }
    return found == 0 && c->in_over ? -HLG_EPEER : found;
}

static int channel_wait_fd(struct hlg_channel *channel, short *events)
{
    const struct tcp_channel *c = channel_of(channel);

    *events = (short)(POLLIN | (used(&c->out) > 0 && !c->out_over ? POLLOUT : 0));
    return c->fd;
}

static const char *channel_name(struct hlg_channel *channel)
{
    return channel_of(channel)->name;
}

static void channel_close(struct hlg_channel *channel)
{
    struct tcp_channel *c = channel_of(channel);

    flush(c);
    (void)shutdown(c->fd, SHUT_WR);
    (void)close(c->fd);
    free(c->in.bytes);
    free(c->out.bytes);
    free(c);
}

static const struct hlg_channel_ops channel_ops = {
    .send = channel_send,
    .receive = channel_receive,
    .wait_fd = channel_wait_fd,
    .name = channel_name,
    .close = channel_close,
};

void hlg_tcp_channel_limit(struct hlg_channel *channel, uint32_t bytes)
{
    HLG_ASSERT(channel->ops == &channel_ops);
    struct tcp_channel *c = channel_of(channel);

    HLG_ASSERT(bytes >= HLG_WIRE_HEADER_BYTES && bytes <= c->message_bytes_max);
    HLG_ASSERT(c->in.limit <= bytes);
    c->in.capacity = bytes; /* of the memory that there is */
}

int tcp_channel_make(int fd, const char *name, uint32_t message_bytes_max,
                     struct hlg_channel **channel)
{
    HLG_ASSERT(message_bytes_max >= HLG_WIRE_HEADER_BYTES);
    HLG_ASSERT(message_bytes_max <= HLG_TCP_FRAME_BYTES_MAX);
    struct tcp_channel *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return -HLG_ENOMEM;
    }
    c->channel.ops = &channel_ops;
    c->fd = fd;
    c->message_bytes_max = message_bytes_max;
    c->in.capacity = message_bytes_max;
    c->out.capacity = message_bytes_max + QUEUE_EXTRA_BYTES;
    c->in.bytes = malloc(c->in.capacity);
    c->out.bytes = malloc(c->out.capacity);
    if (c->in.bytes == NULL || c->out.bytes == NULL) {
        free(c->in.bytes);
        free(c->out.bytes);
        free(c);
        return -HLG_ENOMEM;
    }
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    *channel = &c->channel;
    return 0;
}
