#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC */
#include <halage/memory.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(sizeof(struct hlg_fd_header) == 40, "the header goes from process to process");

/* One descriptor in a control message, aligned as the kernel wants it. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int hlg_fd_send(int socket, const struct hlg_fd_header *header, int fd)
{
    struct hlg_fd_header copy = *header;
    struct iovec vector = {.iov_base = &copy, .iov_len = sizeof copy};
    union control control;
    ssize_t sent = 0;

    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    /* A stream socket takes so short a message whole or not at all. */
    return sent == (ssize_t)sizeof copy ? 0 : -HLG_EIO;
}

/* The descriptor that came along, or -1. Of several, none is wanted: all are closed. */
static int take_fd(struct msghdr *message)
{
    int fd = -1;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof fd; /* padding lets 2 in */
        for (size_t i = 0; i < count; i++) {
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (count > 1) {
                (void)close(fd);
                fd = -1;
            }
        }
    }
    return fd;
}

int hlg_fd_receive(int socket, struct hlg_fd_header *header, int *fd)
{
    struct hlg_fd_header got = {0};
    struct iovec vector = {.iov_base = &got, .iov_len = sizeof got};
    union control control;
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t bytes = 0;

    do {
        bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    } while (bytes < 0 && errno == EINTR);
    if (bytes <= 0) {
        return bytes == 0 ? 0 : -HLG_EIO;
    }
    int came = take_fd(&message);
    if (bytes != (ssize_t)sizeof got || came < 0 ||
        (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0 || got.pad != 0 ||
        (got.kind != HLG_MEMORY_HOST && got.kind != HLG_MEMORY_CUDA) || got.bytes == 0) {
        if (came >= 0) {
            (void)close(came);
        }
        return -HLG_EPROTO;
    }
    *header = got;
    *fd = came;
    return 1;
}
