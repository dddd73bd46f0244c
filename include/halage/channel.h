/*
 * A channel: the ordered stream of control frames between two nodes. It carries whole frames
 * (wire.h) and knows nothing of their content but the length in the header.
 */
#ifndef HALAGE_CHANNEL_H
#define HALAGE_CHANNEL_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_channel;

struct hlg_channel_ops {
    /*
     * Send one whole frame. Returns 1 when it was taken (copied), 0 when there is no room now, or a
     * negative error when the channel is over. A frame of up to message_bytes_max bytes is always
     * taken by a channel that has nothing queued.
     */
    int (*send)(struct hlg_channel *c, const uint8_t *frame, uint32_t bytes);
    /*
     * Take one frame. Returns 1 with *frame and *bytes, valid until the next call; 0 when none is
     * complete; -HLG_EPROTO when the stream is not made of frames; -HLG_EPEER at its end (frames
     * that came before the end are given first). Also moves queued output on.
     */
    int (*receive)(struct hlg_channel *c, const uint8_t **frame, uint32_t *bytes);
    /* Descriptor to sleep on, and the poll(2) events wanted; -1 when there is none. */
    int (*wait_fd)(struct hlg_channel *c, short *events);
    /* Other side's name for logs ("192.0.2.1:7000"). Lives as long as the channel. */
    const char *(*name)(struct hlg_channel *c);
    /* Ends the stream: what was queued is sent if that needs no waiting. Frees the channel. */
    void (*close)(struct hlg_channel *c);
};

/* First member of every backend's own struct. */
struct hlg_channel {
    const struct hlg_channel_ops *ops;
    uint32_t tag; /* the caller's own; backends leave it alone */
};

#ifdef __cplusplus
}
#endif

#endif
