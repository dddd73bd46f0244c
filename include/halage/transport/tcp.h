/*
 * Channels over TCP: the control connection between two nodes. Decode dials, prefill listens.
 *
 * An address is "host:port", "[::1]:7000" or ":7000" (all interfaces, to listen); the host may be a
 * name. Port 0 lets the system choose one to listen on.
 */
#ifndef HALAGE_TRANSPORT_TCP_H
#define HALAGE_TRANSPORT_TCP_H

#include "halage/channel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_TCP_NAME_BYTES 80u

/* The longest frame that a channel can be made for: a message and what a decorator puts around it. */
#define HLG_TCP_FRAME_BYTES_MAX (HLG_MESSAGE_BYTES_MAX + 64u)

struct hlg_tcp_listener;

/*
 * Listen on an address.
 *
 * message_bytes_max  longest frame, for the channels of this listener, >= a header
 * error              [error_bytes] a sentence on failure; untouched on success
 *
 * Returns 0, -HLG_EINVAL (not an address), -HLG_EIO or -HLG_ENOMEM.
 */
int hlg_tcp_listen(const char *address, uint32_t message_bytes_max,
                   struct hlg_tcp_listener **listener, char *error, size_t error_bytes);

/* Address listened on, with the port that was chosen: "127.0.0.1:40123". Lives with the listener. */
const char *hlg_tcp_listener_name(const struct hlg_tcp_listener *listener);

/* Descriptor that becomes readable when somebody dials. */
int hlg_tcp_listener_fd(const struct hlg_tcp_listener *listener);

/* Frees it; connections that were accepted stay. */
void hlg_tcp_listener_close(struct hlg_tcp_listener *listener);

/*
 * Take one connection, without waiting. Returns 1 with *channel, 0 when nobody has dialled,
 * -HLG_ELIMIT when descriptors are used up (whoever dialled stays in the queue), -HLG_ENOMEM or
 * -HLG_EIO.
 */
int hlg_tcp_accept(struct hlg_tcp_listener *listener, struct hlg_channel **channel);

/*
 * Dial an address: waits at most timeout_ns, over all addresses of a name together, so it belongs
 * on a thread of its own. Looking up a name takes as long as the system's resolver takes.
 *
 * error  [error_bytes] a sentence on failure, such as
 *        "cannot reach 127.0.0.1:7000: connection refused"; untouched on success
 *
 * Returns 0 with *channel, -HLG_EINVAL (not an address), -HLG_EPEER or -HLG_ENOMEM. A channel takes
 * two buffers of about message_bytes_max at once; pages of them never used stay the system's.
 */
int hlg_tcp_dial(const char *address, hlg_time timeout_ns, uint32_t message_bytes_max,
                 struct hlg_channel **channel, char *error, size_t error_bytes);

/*
 * Take frames of up to `bytes` only from now on, and keep no more unread: of a peer that is not known yet.
 * Once, before anything was received; then up to message_bytes_max again, at any time.
 */
void hlg_tcp_channel_limit(struct hlg_channel *channel, uint32_t bytes);

/* Whether a name of a channel or a listener ("127.0.0.1:40123") is an address of this host alone. */
bool hlg_tcp_is_loopback(const char *name);

#define HLG_TCP_IP_BYTES 64u

/*
 * The IP address of this host that traffic to `address` leaves from: for an address of our own, that
 * address. It is what an endpoint binds to (struct hlg_ofi_config's node) so that the node at the other
 * end can reach it.
 *
 * address  "host:port" or "[v6]:port", not a bare ":port"
 * ip       [HLG_TCP_IP_BYTES] numeric, without brackets
 *
 * Returns 0, or an error with a sentence, as hlg_tcp_dial() does. Sends nothing, but may ask DNS.
 */
int hlg_tcp_local_ip(const char *address, char *ip, char *error, size_t error_bytes);

#ifdef __cplusplus
}
#endif

#endif
