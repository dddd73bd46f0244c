#include "pipe.h"

#include <halage/wire.h>
#include <poll.h>
#include <string.h>

uint32_t pipe_unread(const struct pipe_stream *stream)
{
    return stream->limit - stream->begin;
}

uint8_t *pipe_front(struct pipe_stream *stream)
{
    return stream->bytes + stream->begin;
}

void pipe_put(struct pipe_stream *stream, const uint8_t *bytes, uint32_t count)
{
    memmove(stream->bytes, stream->bytes + stream->begin, pipe_unread(stream));
    stream->limit -= stream->begin;
    stream->begin = 0;
    HLG_ASSERT(count <= PIPE_BYTES - stream->limit);
    if (count > 0) {
        memcpy(stream->bytes + stream->limit, bytes, count);
    }
    stream->limit += count;
}

uint32_t pipe_take(struct pipe_stream *stream, uint8_t *bytes)
{
    const uint32_t count = pipe_unread(stream);

    memcpy(bytes, pipe_front(stream), count);
    stream->begin = stream->limit;
    return count;
}

static struct pipe_end *end_of(struct hlg_channel *c)
{
    return (struct pipe_end *)c;
}

static int pipe_send(struct hlg_channel *c, const uint8_t *frame, uint32_t bytes)
{
    struct pipe_end *end = end_of(c);
    const uint32_t unread = pipe_unread(end->out);

    if (end->out->ended) {
        return -HLG_EPEER;
    }
    if (unread > 0 && bytes > end->out->room - hlg_min_u32(unread, end->out->room)) {
        return 0;
    }
    pipe_put(end->out, frame, bytes);
    if (bytes <= PIPE_BYTES - end->out->recorded) {
        memcpy(end->out->record + end->out->recorded, frame, bytes);
        end->out->recorded += bytes;
    }
    return 1;
}

static int pipe_receive(struct hlg_channel *c, const uint8_t **frame, uint32_t *bytes)
{
    struct pipe_end *end = end_of(c);
    const uint32_t here = hlg_min_u32(pipe_unread(end->in), end->in->visible);
    int64_t length = HLG_WIRE_HEADER_BYTES;

    if (here >= HLG_WIRE_HEADER_BYTES) {
        length = hlg_wire_frame_bytes(pipe_front(end->in), PIPE_BYTES);
        if (length < 0) {
            return -HLG_EPROTO;
        }
    }
    if (here < (uint64_t)length) {
        return end->in->ended ? -HLG_EPEER : 0;
    }
    *frame = pipe_front(end->in);
    *bytes = hlg_u32((uint64_t)length);
    end->in->begin += *bytes;
    end->in->visible -= end->in->visible == UINT32_MAX ? 0 : *bytes;
    return 1;
}

static int pipe_wait_fd(struct hlg_channel *c, short *events)
{
    (void)c;
    *events = POLLIN;
    return -HLG_ESTATE;
}

static const char *pipe_name(struct hlg_channel *c)
{
    (void)c;
    return "pipe";
}

static void pipe_close(struct hlg_channel *c)
{
    end_of(c)->closed = true;
    end_of(c)->out->ended = true;
}

static const struct hlg_channel_ops pipe_ops = {
    .send = pipe_send,
    .receive = pipe_receive,
    .wait_fd = pipe_wait_fd,
    .name = pipe_name,
    .close = pipe_close,
};

void pipe_init(struct pipe *pipe)
{
    memset(pipe, 0, sizeof *pipe);
    for (uint32_t i = 0; i < 2; i++) {
        pipe->ends[i] = (struct pipe_end){
            .channel = {.ops = &pipe_ops}, .in = &pipe->to[i], .out = &pipe->to[1 - i]};
        pipe->to[i].room = PIPE_BYTES;
        pipe->to[i].visible = UINT32_MAX;
    }
}
