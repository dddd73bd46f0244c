#define _GNU_SOURCE /* memfd_create, seals */
#include <halage/memory.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct hlg_memory {
    enum hlg_memory_kind kind;
    int fd;
    void *base;
    uint64_t bytes;
};

static int map(int fd, uint64_t bytes, struct hlg_memory **memory)
{
    struct hlg_memory *m = malloc(sizeof *m);

    if (m == NULL) {
        return -HLG_ENOMEM;
    }
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        free(m);
        return errno == ENOMEM ? -HLG_ENOMEM : -HLG_EIO;
    }
    *m = (struct hlg_memory){.kind = HLG_MEMORY_HOST, .fd = fd, .base = base, .bytes = bytes};
    *memory = m;
    return 0;
}

/* A file that can shrink makes whoever maps it die by SIGBUS: none that could is mapped. */
static int seal(int fd, uint64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0) {
        return -HLG_EINVAL; /* no memfd */
    }
    if ((seals & F_SEAL_SHRINK) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        return -HLG_EINVAL;
    }
    /* The size is looked at only now that it cannot shrink any more. */
    if (fstat(fd, &status) != 0 || status.st_size < 0 || (uint64_t)status.st_size < bytes) {
        return -HLG_EINVAL;
    }
    return 0;
}

int hlg_memory_create(uint64_t bytes, struct hlg_memory **memory)
{
    if (bytes == 0 || bytes > INT64_MAX) {
        return -HLG_EINVAL;
    }
    int fd = memfd_create("halage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -HLG_EIO;
    }
    int error = -HLG_EIO;
    if (ftruncate(fd, (off_t)bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        error = map(fd, bytes, memory);
    } else if (errno == ENOMEM || errno == EFBIG) {
        error = -HLG_ENOMEM;
    }
    if (error != 0) {
        (void)close(fd);
    }
    return error;
}

int hlg_memory_export(const struct hlg_memory *memory)
{
    int fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);

    return fd < 0 ? -HLG_EIO : fd;
}

int hlg_memory_import(int fd, uint64_t bytes, struct hlg_memory **memory)
{
    if (bytes == 0 || bytes > INT64_MAX) {
        return -HLG_EINVAL;
    }
    int error = seal(fd, bytes);
    if (error != 0) {
        return error;
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return -HLG_EIO;
    }
    error = map(own, bytes, memory);
    if (error != 0) {
        (void)close(own);
    }
    return error;
}

void hlg_memory_release(struct hlg_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    int failed = munmap(memory->base, (size_t)memory->bytes);
    HLG_ASSERT(failed == 0);
    (void)close(memory->fd);
    free(memory);
}

void *hlg_memory_base(const struct hlg_memory *memory)
{
    return memory->base;
}

uint64_t hlg_memory_bytes(const struct hlg_memory *memory)
{
    return memory->bytes;
}

enum hlg_memory_kind hlg_memory_kind(const struct hlg_memory *memory)
{
    return memory->kind;
}
