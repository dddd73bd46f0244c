/*
 * Memory that one process makes and another maps: both see the same bytes, no holder of the
 * descriptor can take bytes away from under the other, and what is no such memory is refused.
 */
#define _GNU_SOURCE /* memfd_create */
#include <halage/memory.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 10000u

static const struct hlg_memory_site host = {.kind = HLG_MEMORY_HOST};

/* The rank's header, of so many bytes. */
static struct hlg_fd_header header_of(uint64_t bytes)
{
    return (struct hlg_fd_header){.kind = HLG_MEMORY_HOST, .bytes = bytes};
}

static int import(int fd, uint64_t bytes, struct hlg_memory **memory)
{
    const struct hlg_fd_header header = header_of(bytes);
    char error[256] = "";
    const int code = hlg_memory_import(fd, &header, memory, error, sizeof error);

    assert_true((code != 0) == (error[0] != '\0'));
    return code;
}

/* The rank's process: makes memory, fills it, sends it, waits for the leader's answer in it. */
static int rank_main(int socket)
{
    struct hlg_memory *memory = NULL;
    char go = 0;

    if (hlg_memory_create(&host, BYTES, &memory, NULL, 0) != 0) {
        return 1;
    }
    uint8_t *bytes = hlg_memory_base(memory);
    memset(bytes, 0x5a, BYTES);
    struct hlg_fd_header header;
    int fd = hlg_memory_export(memory, &header, NULL, 0);
    header.lane = 3;
    header.region = 2;
    if (fd < 0 || hlg_fd_send(socket, &header, fd) != 0) {
        return 2;
    }
    close(fd);
    if (read(socket, &go, 1) != 1) {
        return 3;
    }
    if (bytes[BYTES - 1] != 0xa5) {
        return 4;
    }
    hlg_memory_release(memory);
    return 0;
}

static void two_processes_see_the_same_bytes(void **state)
{
    struct hlg_memory *memory = NULL;
    struct hlg_fd_header header;
    int sockets[2];
    int status = 0;
    int fd = -1;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t rank = fork();
    assert_true(rank >= 0);
    if (rank == 0) {
        close(sockets[0]);
        _exit(rank_main(sockets[1]));
    }
    close(sockets[1]);
    assert_int_equal(hlg_fd_receive(sockets[0], &header, &fd), 1);
    assert_int_equal(header.lane, 3);
    assert_int_equal(header.region, 2);
    assert_int_equal(header.bytes, BYTES);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(import(fd, header.bytes, &memory), 0);
    assert_int_not_equal(ftruncate(fd, 1), 0);
    close(fd);
    assert_int_equal(hlg_memory_kind(memory), HLG_MEMORY_HOST);
    uint8_t *bytes = hlg_memory_base(memory);
    assert_int_equal(bytes[0], 0x5a);
    assert_int_equal(bytes[BYTES - 1], 0x5a);
    bytes[BYTES - 1] = 0xa5;
    assert_int_equal(write(sockets[0], "g", 1), 1);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(hlg_fd_receive(sockets[0], &header, &fd), 0);
    assert_int_equal(bytes[0], 0x5a); /* it lives on without its maker */
    hlg_memory_release(memory);
    close(sockets[0]);
}

static void memory_that_could_shrink_is_sealed_or_refused(void **state)
{
    struct hlg_memory *memory = NULL;
    int fd = memfd_create("test", MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(import(fd, BYTES + 1, &memory), -HLG_EINVAL);
    assert_int_equal(import(fd, BYTES, &memory), 0);
    assert_int_not_equal(ftruncate(fd, 1), 0);
    hlg_memory_release(memory);
    close(fd);

    fd = memfd_create("test", 0); /* takes no seals */
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(import(fd, BYTES, &memory), -HLG_EINVAL);
    close(fd);
}

static void what_is_no_memory_is_refused(void **state)
{
    struct hlg_memory *memory = NULL;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(import(fds[0], BYTES, &memory), -HLG_EINVAL);
    assert_int_equal(import(-1, BYTES, &memory), -HLG_EINVAL);
    assert_int_equal(hlg_memory_create(&host, 0, &memory, NULL, 0), -HLG_EINVAL);
    assert_int_equal(hlg_memory_create(&host, UINT64_MAX, &memory, NULL, 0), -HLG_EINVAL);
    close(fds[0]);
    close(fds[1]);
}

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Send a header with that many descriptors. */
static void send_fds(int socket, const struct hlg_fd_header *header, size_t bytes, int count)
{
    struct hlg_fd_header copy = *header;
    struct iovec vector = {.iov_base = &copy, .iov_len = bytes};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    int fds[4] = {0, 0, 0, 0};

    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(part), fds, (size_t)count * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &message, 0), bytes);
}

static void malformed_hand_overs_are_refused_and_leak_nothing(void **state)
{
    static const struct hlg_fd_header good = {.kind = HLG_MEMORY_HOST, .bytes = BYTES};
    struct hlg_fd_header bad = good;

    (void)state;
    for (int i = 0; i < 7; i++) {
        struct hlg_fd_header header;
        int sockets[2];
        int fd = -1;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
        int before = count_fds();
        bad = good;
        bad.kind = i == 4 ? 77 : good.kind;
        bad.bytes = i == 5 ? 0 : good.bytes;
        bad.pad = i == 6;
        /* none, two, four; a short header; a kind unknown; no bytes; a pad */
        send_fds(sockets[0], &bad, i == 3 ? 10 : sizeof bad, i < 3 ? 2 * i : 1);
        close(sockets[0]);
        assert_int_equal(hlg_fd_receive(sockets[1], &header, &fd), -HLG_EPROTO);
        assert_int_equal(count_fds(), before - 1);
        close(sockets[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_see_the_same_bytes),
        cmocka_unit_test(memory_that_could_shrink_is_sealed_or_refused),
        cmocka_unit_test(what_is_no_memory_is_refused),
        cmocka_unit_test(malformed_hand_overs_are_refused_and_leak_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
