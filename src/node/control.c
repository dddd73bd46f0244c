#define _GNU_SOURCE /* SOCK_CLOEXEC */
#include "control.h"

#include <errno.h>
#include <sys/socket.h>

int control_pair(int sockets[2])
{
    /* Room for a few of the largest frames; the kernel takes less where it must. */
    const int room = 4 * (int)CONTROL_FRAME_BYTES_MAX;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -HLG_EIO;
    }
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(sockets[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    return 0;
}

int control_send(int socket, const void *frame, size_t bytes, bool wait)
{
    const int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
    ssize_t sent = -1;
    HLG_ASSERT(bytes >= sizeof(struct control_head) && bytes <= CONTROL_FRAME_BYTES_MAX);
    do {
        sent = send(socket, frame, bytes, flags);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return !wait && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -HLG_EIO;
    }
    return 1;
}

int control_receive(int socket, void *frame)
{
    ssize_t bytes = -1;
    do {
        bytes = recv(socket, frame, CONTROL_FRAME_BYTES_MAX, MSG_DONTWAIT);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? -HLG_ESTATE : 0;
    }
    return (int)bytes;
}
