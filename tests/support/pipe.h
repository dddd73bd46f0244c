/*
 * Two ends of a channel over two byte streams in memory, and hands on the bytes between: for tests that
 * alter, repeat or cut what goes over a connection.
 */
#ifndef HALAGE_SUPPORT_PIPE_H
#define HALAGE_SUPPORT_PIPE_H

#include <halage/channel.h>

#define PIPE_BYTES 8192u

/* What one end sent and the other has not received: bytes [begin, limit). */
struct pipe_stream {
    uint8_t bytes[PIPE_BYTES];
    uint32_t begin;
    uint32_t limit;
    uint32_t room;    /* of unread bytes; a frame into an empty stream always fits */
    uint32_t visible; /* bytes from the front that have arrived; UINT32_MAX: all */
    bool ended;
    uint8_t record[PIPE_BYTES]; /* all that was ever sent, as far as it fits */
    uint32_t recorded;
};

struct pipe_end {
    struct hlg_channel channel;
    struct pipe_stream *in;
    struct pipe_stream *out;
    bool closed;
};

struct pipe {
    struct pipe_end ends[2];
    struct pipe_stream to[2]; /* to[i] is what ends[i] receives */
};

void pipe_init(struct pipe *pipe);

/* How many bytes are unread in a stream, and where they begin. */
uint32_t pipe_unread(const struct pipe_stream *stream);
uint8_t *pipe_front(struct pipe_stream *stream);

/* Put bytes behind what is unread; take all that is unread away into `bytes` [PIPE_BYTES]. */
void pipe_put(struct pipe_stream *stream, const uint8_t *bytes, uint32_t count);
uint32_t pipe_take(struct pipe_stream *stream, uint8_t *bytes);

#endif
