/* Frames over a connected stream socket. */
#ifndef TCP_CHANNEL_H
#define TCP_CHANNEL_H

#include "halage/transport/tcp.h"

/*
 * Make a channel of a connected, non-blocking stream socket, which is the channel's from then on
 * (on failure it stays the caller's).
 *
 * name  kept as a copy, cut at HLG_TCP_NAME_BYTES
 *
 * Returns 0 or -HLG_ENOMEM.
 */
int tcp_channel_make(int fd, const char *name, uint32_t message_bytes_max,
                     struct hlg_channel **channel);

#endif
