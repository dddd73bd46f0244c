/* cuMem memory across processes: a rank makes and fills it, this process imports it and reads the same
 * bytes, writes others, and the rank reads those. */
#define _GNU_SOURCE
#include <halage/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BYTES ((uint64_t)8 << 20)
#define REACH ((uint64_t)1 << 30) /* beyond any granule */

static void fill(uint8_t *bytes, uint32_t salt)
{
    for (uint64_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)((i * 167 + i / 256) ^ salt);
    }
}

static int fail_rank(const char *why)
{
    (void)fprintf(stderr, "rank: %s\n", why);
    return 1;
}

/* Returns the child's exit status. */
static int rank_main(int socket)
{
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = 0};
    struct hlg_memory *memory = NULL;
    struct hlg_fd_header header;
    uint8_t *wanted = malloc(BYTES);
    uint8_t *seen = malloc(BYTES);
    char error[512] = "";
    char word = 0;

    if (wanted == NULL || seen == NULL) {
        return fail_rank("out of memory");
    }
    fill(wanted, 0);
    if (hlg_memory_create(&site, BYTES, &memory, error, sizeof error) != 0) {
        return fail_rank(error);
    }
    if (hlg_memory_write(memory, 0, wanted, BYTES) != 0) {
        return fail_rank("its memory cannot be written");
    }
    const int fd = hlg_memory_export(memory, &header, error, sizeof error);
    if (fd < 0 || hlg_fd_send(socket, &header, fd) != 0) {
        return fail_rank(error);
    }
    (void)close(fd);
    if (read(socket, &word, 1) != 1) {
        return fail_rank("the leader is gone");
    }
    fill(wanted, 0x5a);
    if (hlg_memory_read(memory, 0, seen, BYTES) != 0 || memcmp(seen, wanted, BYTES) != 0) {
        return fail_rank("what the leader wrote is not there");
    }
    hlg_memory_release(memory);
    return 0;
}

void gpu_cumem(void)
{
    struct hlg_memory *memory = NULL;
    struct hlg_fd_header header;
    uint8_t *wanted = malloc(BYTES);
    uint8_t *seen = malloc(BYTES);
    char error[512] = "";
    int sockets[2];
    int status = 0;
    int fd = -1;

    GPU_NEED(wanted != NULL && seen != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0,
             "out of memory or descriptors");
    const pid_t rank = fork();
    GPU_NEED(rank >= 0, "cannot fork");
    if (rank == 0) {
        (void)close(sockets[0]);
        _exit(rank_main(sockets[1]));
    }
    (void)close(sockets[1]);
    (void)gpu_driver();
    GPU_NEED(hlg_fd_receive(sockets[0], &header, &fd) == 1, "the rank sent no descriptor");
    GPU_NEED(hlg_memory_import(fd, &header, &memory, error, sizeof error) == 0, "%s", error);
    (void)close(fd);
    fill(wanted, 0);
    GPU_NEED(hlg_memory_read(memory, 0, seen, BYTES) == 0 && memcmp(seen, wanted, BYTES) == 0,
             "what the rank wrote is not in the imported memory");
    fill(wanted, 0x5a);
    GPU_NEED(hlg_memory_write(memory, 0, wanted, BYTES) == 0 && write(sockets[0], "", 1) == 1,
             "cannot write imported memory");
    GPU_NEED(waitpid(rank, &status, 0) == rank && WIFEXITED(status) && WEXITSTATUS(status) == 0,
             "the rank did not see what was written here");
    struct hlg_mem_region region = hlg_memory_region(memory);
    GPU_NEED(hlg_memory_check(&region, error, sizeof error) == 0,
             "what was imported is refused as a region: %s", error);
    region.bytes += REACH;
    GPU_NEED(hlg_memory_check(&region, error, sizeof error) == -HLG_EINVAL,
             "a region that reaches beyond its allocation is not refused");
    (void)printf("a region that reaches too far: %s\n", error);
    const bool has_dmabuf = hlg_memory_dmabuf(memory) >= 0;
    hlg_memory_release(memory);
    gpu_ran("8 MiB between two processes, both ways; %s",
            has_dmabuf ? "with a dma-buf" : "no dma-buf");
}
